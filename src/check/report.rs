//! What `hapax check` found, as `--json` prints it.

use serde::Serialize;

use crate::config::{Config, HostPort, told_host};
use crate::upstream::Broker;

use super::examine::{Examined, Found, Kafka, release};
use super::is_local;
use crate::cli::exit::{CONFIGURATION, DONE, UNAVAILABLE};

/// Everything that was found.
#[derive(Serialize)]
pub(super) struct Report {
    /// Whether `hapax run` would take the options.
    pub(super) valid: bool,
    /// The bootstrap servers.
    pub(super) upstream: Vec<Server>,
    /// The cluster behind them.
    pub(super) cluster: Option<ClusterRow>,
    /// As whom hapax logs in to it, where it does so itself.
    pub(super) logged_in: Option<String>,
    /// Its brokers, by id.
    pub(super) brokers: Vec<BrokerRow>,
    /// What hapax would listen on.
    pub(super) ports: Vec<PortRow>,
    /// What clients must set.
    pub(super) clients: Option<Clients>,
    /// What is wrong, and what to do.
    pub(super) problems: Vec<Problem>,
    /// What the process exits with.
    pub(super) exit_code: u8,
}

/// A bootstrap server.
#[derive(Serialize)]
pub(super) struct Server {
    pub(super) address: String,
    #[serde(flatten)]
    pub(super) reach: Reach,
}

/// How far an address was reached.
#[derive(Serialize)]
pub(super) struct Reach {
    /// `ok`, `sasl`, or the code of a problem.
    pub(super) state: &'static str,
    /// What its name resolves to.
    pub(super) resolved: Vec<String>,
    /// Which of them answered.
    pub(super) reached: Option<String>,
    pub(super) connected_ms: Option<u128>,
    pub(super) answered_ms: Option<u128>,
    /// A few words on a fault.
    pub(super) fault: Option<String>,
}

/// The cluster.
#[derive(Serialize)]
pub(super) struct ClusterRow {
    /// Its id, where it said one.
    pub(super) id: Option<String>,
    pub(super) controller: Option<i32>,
    /// The oldest Kafka that offers as much.
    pub(super) answers_like: &'static str,
    /// The mechanisms, where clients have to authenticate.
    pub(super) sasl_mechanisms: Option<Vec<String>>,
}

/// A broker.
#[derive(Serialize)]
pub(super) struct BrokerRow {
    pub(super) node: i32,
    /// What it advertises.
    pub(super) advertised: String,
    /// Where hapax connects for it.
    pub(super) reached_at: String,
    /// The port of hapax that clients are told for it.
    pub(super) port: Option<u16>,
    #[serde(flatten)]
    pub(super) reach: Reach,
}

/// One listener, or the range of them.
#[derive(Serialize)]
pub(super) struct PortRow {
    pub(super) flag: &'static str,
    pub(super) address: String,
    /// `free`, `hapax` where one runs already, or `taken`.
    pub(super) state: &'static str,
    /// Those that are not free.
    pub(super) taken: Vec<u16>,
}

/// What clients must set.
#[derive(Serialize)]
pub(super) struct Clients {
    /// Their bootstrap.servers.
    pub(super) bootstrap_servers: String,
    /// The host that they are told for every broker.
    pub(super) advertised_host: Option<String>,
    /// Their security.protocol, as far as can be told.
    pub(super) security_protocol: Option<&'static str>,
    /// Who can reach hapax, and how others can.
    pub(super) hints: Vec<String>,
}

/// Something to do.
#[derive(Serialize)]
pub(super) struct Problem {
    /// A word for scripts.
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    pub(super) message: String,
    /// What to do, where the message does not say it.
    pub(super) advice: String,
}

/// What a problem means for the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// Clients get through.
    Warning,
    /// They do not: 69.
    Unreachable,
    /// hapax would not start, or not serve them: 78.
    Configuration,
}

impl Report {
    /// Options that hapax does not take; a line for each reason.
    pub(super) fn invalid(reasons: &str) -> Self {
        let problem = |line: &str| Problem {
            code: "configuration",
            severity: Severity::Configuration,
            message: line.to_owned(),
            // Each reason says it.
            advice: String::new(),
        };
        Self {
            valid: false,
            problems: reasons.lines().map(problem).collect(),
            exit_code: CONFIGURATION,
            ..Self::empty()
        }
    }

    /// Options that it takes.
    pub(super) fn valid(clients: Clients) -> Self {
        Self {
            clients: Some(clients),
            ..Self::empty()
        }
    }

    fn empty() -> Self {
        Self {
            valid: true,
            upstream: Vec::new(),
            cluster: None,
            logged_in: None,
            brokers: Vec::new(),
            ports: Vec::new(),
            clients: None,
            problems: Vec::new(),
            exit_code: DONE,
        }
    }

    /// With the exit code that its problems ask for.
    pub(super) fn judged(mut self) -> Self {
        let has = |severity| self.problems.iter().any(|p| p.severity == severity);
        self.exit_code = if has(Severity::Configuration) {
            CONFIGURATION
        } else if has(Severity::Unreachable) {
            UNAVAILABLE
        } else {
            DONE
        };
        self
    }

    /// One line.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("every key is a string")
    }
}

impl Server {
    pub(super) fn of(address: &HostPort, examined: &Examined) -> Self {
        Self {
            address: address.to_string(),
            reach: Reach::of(examined),
        }
    }
}

impl Reach {
    fn of(examined: &Examined) -> Self {
        let reached = examined.reached;
        let (state, fault) = match &examined.found {
            Found::Kafka(Kafka { sasl: Some(_), .. }) => ("sasl", None),
            Found::Kafka(_) => ("ok", None),
            Found::Fault(fault) => (fault.code(), Some(fault.to_string())),
        };
        let answered = examined.kafka().map(|_| examined.answered_in.as_millis());
        Self {
            state,
            resolved: examined
                .resolved
                .iter()
                .map(|a| a.ip().to_string())
                .collect(),
            reached: reached.map(|address| address.to_string()),
            connected_ms: reached.map(|_| examined.connected_in.as_millis()),
            answered_ms: answered,
            fault,
        }
    }
}

impl ClusterRow {
    pub(super) fn of(kafka: &Kafka) -> Self {
        let cluster = kafka.cluster.as_ref();
        let controller = cluster.and_then(|cluster| cluster.controller);
        Self {
            id: cluster.and_then(|cluster| cluster.id.clone()),
            controller: controller.map(crate::ids::NodeId::to_wire),
            answers_like: release(&kafka.offered),
            sasl_mechanisms: kafka.sasl.clone(),
        }
    }
}

impl BrokerRow {
    pub(super) fn of(broker: &Broker, examined: &Examined) -> Self {
        Self {
            node: broker.node.to_wire(),
            advertised: broker.address.to_string(),
            reached_at: broker.reached_at.to_string(),
            port: broker.port,
            reach: Reach::of(examined),
        }
    }
}

impl Clients {
    /// What clients must set, and whether SASL, where a broker has said.
    pub(super) fn of(config: &Config, seen: Option<&Kafka>) -> Self {
        let listen = config.listen;
        let host = match &config.advertised_host {
            // Where every broker has a name of its own, bootstrap has one that hapax is not told.
            Some(host) if told_host(host, None) != host.as_str() => ANY_HOST.to_owned(),
            Some(host) => host.clone(),
            None if listen.ip().is_unspecified() => ANY_HOST.to_owned(),
            None => listen.ip().to_string(),
        };
        let bootstrap = match listen.port() {
            0 => format!("{host}:PORT"),
            port => HostPort { host, port }.to_string(),
        };
        Self {
            bootstrap_servers: bootstrap,
            advertised_host: config.advertised_host.clone(),
            security_protocol: seen.map(|kafka| {
                let sasl = kafka.sasl.is_some() || config.listen_sasl.is_some();
                match (sasl, config.listen_tls.is_some()) {
                    (true, true) => "SASL_SSL",
                    (true, false) => "SASL_PLAINTEXT",
                    (false, true) => "SSL",
                    (false, false) => "PLAINTEXT",
                }
            }),
            hints: hints(config, seen),
        }
    }
}

fn hints(config: &Config, seen: Option<&Kafka>) -> Vec<String> {
    let ip = config.listen.ip();
    let (first, last) = (config.broker_ports.start(), config.broker_ports.end());
    let mut hints = Vec::new();
    if is_local(ip) && config.advertised_host.is_none() {
        hints.push(format!(
            "only programs on this machine, or in the same pod or container, reach {ip}; for others: --listen 0.0.0.0:{} --listen-advertised-host NAME, where NAME leads them to this machine",
            config.listen.port()
        ));
    } else {
        hints.push(format!(
            "clients must reach the port of bootstrap.servers and the brokers' ports {first}-{last} alike (publish both from a container, under the same numbers)"
        ));
    }
    if ip.is_unspecified() && config.advertised_host.is_none() {
        hints.push(
            "clients are told the address at which they reached hapax; behind a port mapping, a load balancer or NAT set --listen-advertised-host to the name that they use"
                .to_owned(),
        );
    }
    if let Some(tls) = &config.listen_tls {
        let own = match tls.client_ca_file {
            Some(_) => ", and show a certificate of a CA in listen.tls.clientCaFile (ssl.keystore)",
            None => "",
        };
        hints.push(format!(
            "clients must believe the CA of listen.tls.certFile (ssl.truststore){own}; that certificate has to be for the host in bootstrap.servers and for the one that clients are told"
        ));
    }
    if let Some(sasl) = &config.upstream_sasl {
        let clients = match &config.listen_sasl {
            Some(_) => "no client's credentials reach them",
            None => "clients need no credentials, and one that shows any is refused with error 34",
        };
        hints.push(format!(
            "hapax logs in to the brokers itself, by {}: {clients}",
            sasl.mechanism
        ));
    }
    if let Some(sasl) = &config.listen_sasl {
        let names: Vec<_> = sasl.mechanisms.iter().map(|own| own.name()).collect();
        hints.push(format!(
            "clients authenticate to hapax as a user of listen.sasl.usersFile: sasl.mechanism is one of {}",
            names.join(", ")
        ));
    }
    if let Some(Kafka {
        sasl: Some(mechanisms),
        ..
    }) = seen
        && config.listen_sasl.is_none()
    {
        hints.push(format!(
            "the brokers want SASL ({}): clients authenticate through hapax with the credentials they have; without credentials --connect cannot list the brokers",
            mechanisms.join(", ")
        ));
    }
    let beside = |server: &&HostPort| {
        server.host == "localhost"
            || server
                .host
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| is_local(ip))
    };
    if let Some(server) = config.upstream.iter().find(beside) {
        hints.push(format!(
            "clients on this machine that keep bootstrap.servers={server} go past hapax"
        ));
    }
    hints
}

/// What stands for a host that only the reader knows.
const ANY_HOST: &str = "ADDRESS-OF-THIS-MACHINE";
