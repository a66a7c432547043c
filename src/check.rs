//! `hapax check` and `hapax wait`: what can be said before, and while, hapax runs.
//!
//! Without `--connect` nothing is connected to: the options are valid or not,
//! the certificates, keys and CAs can be used or not, and `state.dir` can be
//! written to or not. With it
//! the upstream is asked what a client would meet, in hapax's own few requests,
//! and the slot table of `hapax run` says which port each broker would get. No
//! step takes longer than `timeouts.connect`, or `timeouts.tls`.
//!
//! | exit | meaning |
//! |---|---|
//! | 0 | nothing is wrong, or only what is said as a warning |
//! | 69 | no bootstrap server serves, or a broker cannot be reached as it advertises itself: clients would fail |
//! | 78 | the configuration is not valid, or does not fit: a local port is taken, a broker finds no port |

mod advice;
mod examine;
mod ports;
mod report;
mod text;

use std::env;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime;
use tokio::task::JoinSet;

use crate::admin::client;
use crate::cli::exit::{DONE, FAILED, UNAVAILABLE};
use crate::cli::{self, CheckArgs, WaitArgs};
use crate::config::{Collisions, Config, HostPort, Mechanism, SaslCredentials, told_host};
use crate::sasl::Sasl;
use crate::snapshot;
use crate::tls::Tls;
use crate::upstream::{Broker, Brokers, Own, home};
use crate::users::Users;
use crate::wire::metadata::Cluster;

use examine::{Examined, Fault, Found, Means, Place, examine};
use report::{BrokerRow, Clients, ClusterRow, Problem, Report, Server, Severity};

/// Addresses that are examined at a time.
const AT_A_TIME: usize = 32;

/// Runs `hapax check`; returns the exit code.
pub fn command(args: CheckArgs, out: &mut impl Write) -> u8 {
    let CheckArgs { connect, json, run } = args;
    let mut report = match run.into_config() {
        Err(error) => Report::invalid(&error.to_string()),
        Ok(config) => match of_valid(&config, connect) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("hapax: cannot start: {error}");
                return FAILED;
            }
        },
    };
    let variables = cli::unknown_variables(env::vars_os().map(|(name, _)| name));
    let unknown = variables.iter().map(advice::unknown_variable);
    report.problems.extend(unknown);
    let text = match json {
        true => format!("{}\n", report.json()),
        false => text::render(&report),
    };
    // Whoever closed the output still gets the exit code.
    match cli::write_output(out, text.as_bytes()) {
        Ok(()) => report.exit_code,
        Err(error) => {
            eprintln!("hapax: cannot print: {error}");
            FAILED
        }
    }
}

/// The report on options that are valid by themselves.
fn of_valid(config: &Config, connect: bool) -> std::io::Result<Report> {
    let mut problems = Vec::new();
    let tls = Tls::load(config);
    match &tls {
        Ok(tls) => problems.extend(advice::of_certificates(tls.shown())),
        Err(error) => problems.push(advice::of_tls(error)),
    }
    let sasl = Sasl::load(config);
    match &sasl {
        Ok(_) => problems.extend(in_the_open(config)),
        Err(error) => problems.push(advice::of_credentials(error)),
    }
    let report = match (tls, sasl) {
        (Ok(tls), Ok(sasl)) if connect => block_on(look(config, tls, sasl))?,
        // Without them nobody can be asked anything.
        _ => Report::valid(Clients::of(config, None)),
    };
    let mut report = with_state(report, config);
    report.problems.extend(problems);
    let users = Users::load(config).err();
    report.problems.extend(users.as_ref().map(advice::of_users));
    Ok(report.judged())
}

/// Secrets of hapax that are shown to whoever listens on the way.
fn in_the_open(config: &Config) -> Vec<Problem> {
    let Some(sasl) = &config.upstream_sasl else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let far = |server: &HostPort| !is_local_name(&server.host);
    let shown = matches!(sasl.mechanism, Mechanism::Plain | Mechanism::OauthBearer);
    if shown && config.upstream_tls.is_none() && config.upstream.iter().any(far) {
        let what = match sasl.mechanism {
            Mechanism::OauthBearer => "the token of OAUTHBEARER",
            _ => "the password of PLAIN",
        };
        let instead =
            "set upstream.tls.enabled, with a listener that is SASL_SSL; SCRAM shows no password";
        problems.push(advice::secret_in_the_open(what, instead));
    }
    if let SaslCredentials::Client(oauth) = &sasl.credentials
        && !oauth.endpoint.secure
        && !is_local_name(&oauth.endpoint.host)
    {
        let what = "the secret in upstream.sasl.oauth.clientSecretFile";
        let instead = "give an https URL in upstream.sasl.oauth.tokenEndpoint";
        problems.push(advice::secret_in_the_open(what, instead));
    }
    problems
}

fn is_local_name(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(is_local)
}

/// The report, and whether state could be kept where the configuration says.
fn with_state(mut report: Report, config: &Config) -> Report {
    let directory = config.state.directory.as_deref();
    let refused = directory.and_then(|directory| snapshot::probe(directory).err());
    let Some(error) = refused else { return report };
    report.problems.push(advice::of_state(&error));
    report.judged()
}

/// Runs `hapax wait`; returns the exit code.
pub fn wait(args: &WaitArgs) -> u8 {
    match block_on(client::wait(args)) {
        Ok(Ok(())) => DONE,
        Ok(Err(error)) => {
            eprintln!("hapax: {error}");
            UNAVAILABLE
        }
        Err(error) => {
            eprintln!("hapax: cannot start: {error}");
            FAILED
        }
    }
}

fn block_on<T>(task: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(task);
    // A resolver that answers late is not waited for.
    runtime.shutdown_background();
    Ok(done)
}

/// Everything that `--connect` looks at.
async fn look(config: &Config, tls: Tls, sasl: Sasl) -> Report {
    let ports = std::iter::once(config.listen.port()).chain(config.broker_ports.clone());
    let means = Arc::new(Means {
        timeouts: config.timeouts.clone(),
        own: Own::new(config.listen.ip(), ports),
        tls,
        sasl,
    });
    let mut problems = Vec::new();
    if let Err(error) = means.sasl.get_token(config.timeouts.sasl).await {
        problems.push(advice::of_token(&error));
    }
    let servers = config.upstream.iter().cloned();
    let places = servers.map(|address| Place {
        address,
        host: None,
    });
    let examined = examine_all(&places.collect::<Vec<_>>(), &means).await;
    let seen = examined.iter().find_map(|examined| examined.kafka());
    let servers = config.upstream.iter().zip(&examined);
    // One that serves is enough: hapax tries them in turn.
    let severity = match seen {
        Some(_) => Severity::Warning,
        None => Severity::Unreachable,
    };
    for (address, examined) in servers.clone() {
        if let Found::Fault(fault) = &examined.found {
            problems.push(advice::of_server(address, fault, severity));
        }
    }
    // Credentials that end at hapax do not come to a broker.
    let wanted = seen.and_then(|kafka| kafka.sasl.as_ref());
    let ends_here = config.listen_sasl.is_some() && config.upstream_sasl.is_none();
    if let Some(mechanisms) = wanted.filter(|_| ends_here) {
        problems.push(advice::nobody_logs_in(mechanisms));
    }
    let cluster = seen.and_then(|kafka| kafka.cluster.as_ref());
    let brokers = match cluster {
        Some(cluster) => {
            let at = examined.iter().find(|examined| examined.is_of(cluster));
            let elsewhere = at.and_then(|at| at.reached).map(|at| !is_local(at.ip()));
            let view = BrokersView {
                config,
                means: &means,
                elsewhere: elsewhere.unwrap_or(false),
            };
            view.look(cluster, &mut problems).await
        }
        None => Vec::new(),
    };
    if let Some(cluster) = cluster {
        let others = servers.clone().filter(|(_, examined)| {
            let other = examined.kafka().and_then(|kafka| kafka.cluster.as_ref());
            other.is_some_and(|other| differ(cluster, other))
        });
        problems.extend(others.map(|(address, _)| advice::server_of_other_cluster(address)));
    }
    let ports = ports::look(config, &mut problems).await;
    let clients = Clients::of(config, seen);
    let logged_in = examined.iter().find_map(|e| e.logged_in.as_ref());
    let logged_in = logged_in.map(|who| format!("{} by {}", who.name, who.mechanism));
    let report = Report {
        upstream: servers
            .map(|(a, examined)| Server::of(a, examined))
            .collect(),
        cluster: seen.map(ClusterRow::of),
        logged_in,
        brokers,
        ports,
        problems,
        ..Report::valid(clients)
    };
    report.judged()
}

/// Examines addresses, not too many at a time; the answers keep their order.
async fn examine_all(places: &[Place], means: &Arc<Means>) -> Vec<Examined> {
    let mut all = Vec::new();
    for some in places.chunks(AT_A_TIME) {
        let mut tasks = JoinSet::new();
        for (at, place) in some.iter().cloned().enumerate() {
            let means = Arc::clone(means);
            tasks.spawn(async move { (at, examine(&place, &means).await) });
        }
        let mut done = tasks.join_all().await;
        done.sort_by_key(|(at, _)| *at);
        all.extend(done.into_iter().map(|(_, examined)| examined));
    }
    all
}

/// What is needed to look at the brokers of a cluster.
struct BrokersView<'a> {
    config: &'a Config,
    means: &'a Arc<Means>,
    /// Whether the bootstrap server is on another machine.
    elsewhere: bool,
}

impl BrokersView<'_> {
    async fn look(&self, cluster: &Cluster, problems: &mut Vec<Problem>) -> Vec<BrokerRow> {
        let table = self.table(cluster);
        if table.is_empty() {
            problems.push(advice::no_brokers());
        }
        let places = table.iter().map(|broker| Place {
            address: broker.reached_at.clone(),
            host: Some(broker.address.host.clone()),
        });
        let mut examined = examine_all(&places.collect::<Vec<_>>(), self.means).await;
        for (broker, examined) in table.iter().zip(&mut examined) {
            if self.is_advertised_by_hapax(&broker.reached_at) {
                examined.found = Found::Fault(Fault::Loop);
            }
            if broker.port.is_none() {
                problems.push(advice::no_port(broker, &self.config.broker_ports));
            }
            let other = examined.kafka().and_then(|kafka| kafka.cluster.as_ref());
            if other.is_some_and(|other| differ(cluster, other)) {
                examined.found = Found::Fault(Fault::OtherCluster);
            }
            if let Found::Fault(fault) = &examined.found {
                let advice = advice::OfBroker {
                    broker,
                    upstream: &self.config.upstream,
                    alone: table.len() == 1,
                    elsewhere: self.elsewhere,
                };
                problems.push(advice.of(fault));
            }
        }
        let shared = self.shared_homes(&table);
        problems.extend(shared.into_iter().map(|(a, b)| advice::shared_home(a, b)));
        let rows = table.iter().zip(&examined);
        rows.map(|(broker, examined)| BrokerRow::of(broker, examined))
            .collect()
    }

    /// What the slot table of `hapax run` makes of the brokers.
    fn table(&self, cluster: &Cluster) -> Vec<Broker> {
        let config = self.config;
        let slots = Brokers::new(
            config.upstream.clone(),
            config.address_map.clone(),
            &config.broker_ports,
            &config.node_slots,
            (config.slot_collisions, config.slot_grace),
        );
        // In this order hapax run ends with it, too, whatever comes first.
        let mut brokers: Vec<_> = cluster.brokers.iter().collect();
        brokers.sort_by_key(|listed| listed.node.to_wire());
        for listed in brokers {
            // What no port is left for is in the table, too.
            let _ = slots.learn(listed.node, &listed.host, listed.port, Instant::now());
        }
        let mut table = slots.all();
        table.sort_by_key(|broker| broker.node.to_wire());
        table
    }

    /// Brokers whose ids lead to one port: which gets it depends on which hapax
    /// hears of first.
    fn shared_homes<'b>(&self, table: &'b [Broker]) -> Vec<(&'b Broker, &'b Broker)> {
        if self.config.slot_collisions == Collisions::Refuse {
            return Vec::new();
        }
        let slots = self.config.broker_ports.len();
        let loose = |b: &&Broker| !self.config.node_slots.contains_key(&b.node.to_wire());
        let loose: Vec<_> = table.iter().filter(loose).collect();
        let mut pairs = Vec::new();
        for (at, broker) in loose.iter().enumerate() {
            let mut earlier = loose[..at].iter();
            if let Some(other) =
                earlier.find(|other| home(other.node, slots) == home(broker.node, slots))
            {
                pairs.push((*other, *broker));
            }
        }
        pairs
    }

    /// Whether an address is the one that hapax tells its clients.
    fn is_advertised_by_hapax(&self, address: &HostPort) -> bool {
        let advertised = self.config.advertised_host.as_ref();
        let ours = address.port == self.config.listen.port()
            || self.config.broker_ports.contains(&address.port);
        let slot = address.port.checked_sub(*self.config.broker_ports.start());
        let is_told = |host: &String| told_host(host, slot).eq_ignore_ascii_case(&address.host);
        ours && advertised.is_some_and(is_told)
    }
}

fn differ(one: &Cluster, other: &Cluster) -> bool {
    matches!((&one.id, &other.id), (Some(one), Some(other)) if one != other)
}

fn is_local(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
