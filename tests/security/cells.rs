//! The matrix: how clients reach hapax, and how hapax reaches brokers.
//!
//! A kind of either is one row of its table. Where clients log in to hapax
//! itself they cannot log in to brokers as well. GSSAPI has no row.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clients::Client;
use crate::cluster::{Batch, Cluster, assert_once_in_order};
use crate::hapax::Hapax;
use crate::report::say;
use crate::tools::unique;
use crate::world::World;

/// How clients reach hapax: its flags, and theirs.
pub(crate) struct Door {
    pub(crate) name: &'static str,
    hapax: &'static str,
    client: &'static str,
}

#[rustfmt::skip]
pub(crate) const DOORS: [Door; 7] = [
    Door { name: "plaintext", hapax: "", client: "" },
    Door { name: "TLS", hapax: "--listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key", client: "--tls-ca CERTS/ca.crt" },
    Door { name: "mTLS", hapax: "--listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key --listen-tls-client-ca-file CERTS/ca.crt", client: "--tls-ca CERTS/ca.crt --tls-cert CERTS/client.crt --tls-key CERTS/client.key" },
    Door { name: "SASL_PLAINTEXT, SCRAM-SHA-256", hapax: "--listen-sasl-users-file CERTS/users --listen-sasl-mechanisms SCRAM-SHA-256", client: "--sasl-mechanism SCRAM-SHA-256 --sasl-user carol --sasl-password carol-secret" },
    Door { name: "SASL_SSL, PLAIN", hapax: "--listen-sasl-users-file CERTS/users --listen-sasl-mechanisms PLAIN --listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key", client: "--tls-ca CERTS/ca.crt --sasl-mechanism PLAIN --sasl-user carol --sasl-password carol-secret" },
    Door { name: "SASL_SSL, SCRAM-SHA-512", hapax: "--listen-sasl-users-file CERTS/users --listen-sasl-mechanisms SCRAM-SHA-512 --listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key", client: "--tls-ca CERTS/ca.crt --sasl-mechanism SCRAM-SHA-512 --sasl-user carol --sasl-password carol-secret" },
    Door { name: "SASL_SSL, SCRAM-SHA-256 and a certificate", hapax: "--listen-sasl-users-file CERTS/users --listen-sasl-mechanisms SCRAM-SHA-256 --listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key --listen-tls-client-ca-file CERTS/ca.crt", client: "--tls-ca CERTS/ca.crt --tls-cert CERTS/client.crt --tls-key CERTS/client.key --sasl-mechanism SCRAM-SHA-256 --sasl-user carol --sasl-password carol-secret" },
];

/// How hapax reaches brokers: where, its flags, and what clients do for it.
pub(crate) struct Upstream {
    pub(crate) name: &'static str,
    at: fn(&Cluster) -> String,
    hapax: &'static str,
    client: &'static str,
}

#[rustfmt::skip]
pub(crate) const UPSTREAMS: [Upstream; 17] = [
    Upstream { name: "PLAINTEXT", at: Cluster::bootstrap, hapax: "", client: "" },
    Upstream { name: "SSL", at: Cluster::ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "" },
    Upstream { name: "SSL with ssl.client.auth=required", at: Cluster::mtls_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-tls-cert-file CERTS/hapax.crt --upstream-tls-key-file CERTS/hapax.key", client: "" },
    Upstream { name: "SASL_SSL, PLAIN of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism PLAIN --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_SSL, SCRAM-SHA-256 of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism SCRAM-SHA-256 --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_SSL, SCRAM-SHA-512 of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism SCRAM-SHA-512 --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_SSL, OAUTHBEARER of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism OAUTHBEARER --sasl-user alice" },
    Upstream { name: "SASL_PLAINTEXT, PLAIN of the client", at: Cluster::sasl_bootstrap, hapax: "", client: "--sasl-mechanism PLAIN --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_PLAINTEXT, SCRAM-SHA-512 of the client", at: Cluster::sasl_bootstrap, hapax: "", client: "--sasl-mechanism SCRAM-SHA-512 --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_PLAINTEXT, PLAIN of hapax", at: Cluster::sasl_bootstrap, hapax: "--upstream-sasl-mechanism PLAIN --upstream-sasl-username alice --upstream-sasl-password-file CERTS/password", client: "" },
    Upstream { name: "SASL_PLAINTEXT, SCRAM-SHA-256 of hapax", at: Cluster::sasl_bootstrap, hapax: "--upstream-sasl-mechanism SCRAM-SHA-256 --upstream-sasl-username alice --upstream-sasl-password-file CERTS/password", client: "" },
    Upstream { name: "SASL_PLAINTEXT, OAUTHBEARER of hapax, from a file", at: Cluster::sasl_bootstrap, hapax: "--upstream-sasl-mechanism OAUTHBEARER --upstream-sasl-token-file CERTS/token", client: "" },
    Upstream { name: "SASL_SSL, PLAIN of hapax", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-sasl-mechanism PLAIN --upstream-sasl-username alice --upstream-sasl-password-file CERTS/password", client: "" },
    Upstream { name: "SASL_SSL, SCRAM-SHA-256 of hapax", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-sasl-mechanism SCRAM-SHA-256 --upstream-sasl-username alice --upstream-sasl-password-file CERTS/password", client: "" },
    Upstream { name: "SASL_SSL, SCRAM-SHA-512 of hapax", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-sasl-mechanism SCRAM-SHA-512 --upstream-sasl-username alice --upstream-sasl-password-file CERTS/password", client: "" },
    Upstream { name: "SASL_SSL, OAUTHBEARER of hapax, from a file", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-sasl-mechanism OAUTHBEARER --upstream-sasl-token-file CERTS/token", client: "" },
    Upstream { name: "SASL_SSL, OAUTHBEARER of hapax, from an endpoint by HTTPS", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-sasl-mechanism OAUTHBEARER --upstream-sasl-oauth-token-endpoint ENDPOINT --upstream-sasl-oauth-client-id hapax --upstream-sasl-oauth-client-secret-file CERTS/password --upstream-sasl-oauth-ca-file CERTS/ca.crt", client: "" },
];

impl Door {
    fn has_users(&self) -> bool {
        self.hapax.contains("users-file")
    }

    /// Whether clients can come by it to an upstream like this.
    fn leads_to(&self, upstream: &Upstream) -> bool {
        !(self.has_users() && upstream.is_of_clients())
    }
}

impl Upstream {
    /// Whether clients log in to it.
    fn is_of_clients(&self) -> bool {
        !self.client.is_empty()
    }

    /// Whether hapax does.
    fn is_of_hapax(&self) -> bool {
        self.hapax.contains("upstream-sasl")
    }
}

/// Idempotent records, and after them three transactions of so many: the one
/// in the middle is aborted.
const RECORDS: u64 = 100;
const OF_A_TRANSACTION: u64 = 10;
const ALL: u64 = RECORDS + 3 * OF_A_TRANSACTION;

/// A door, an upstream, and who goes that way.
pub(crate) type Cell = (&'static Door, &'static Upstream, Client);

/// Every door with every upstream, each client in a third of them: each meets
/// each door and each upstream.
fn all() -> impl Iterator<Item = Cell> {
    let rows = UPSTREAMS.iter().enumerate();
    rows.flat_map(|(row, upstream)| {
        let doors = DOORS.iter().enumerate();
        let doors = doors.filter(|(_, door)| door.leads_to(upstream));
        doors.map(move |(column, door)| (door, upstream, who(row, column)))
    })
}

fn who(row: usize, column: usize) -> Client {
    Client::FULL[(row + column) % Client::FULL.len()]
}

/// One of each kind.
pub(crate) fn some() -> Vec<Cell> {
    let cell = |door: &str, upstream: &str, client| {
        let door = DOORS.iter().find(|one| one.name == door);
        let upstream = UPSTREAMS.iter().find(|one| one.name == upstream);
        (door.expect("a door"), upstream.expect("one"), client)
    };
    #[rustfmt::skip]
    let some = vec![
        cell("mTLS", "PLAINTEXT", Client::FranzGo),
        cell("SASL_SSL, SCRAM-SHA-512", "SSL", Client::FranzGo),
        cell("mTLS", "SSL with ssl.client.auth=required", Client::Java),
        cell("TLS", "SASL_SSL, PLAIN of the client", Client::Confluent),
        cell("plaintext", "SASL_SSL, SCRAM-SHA-512 of hapax", Client::FranzGo),
        cell("TLS", "SASL_SSL, OAUTHBEARER of the client", Client::Java),
        cell("SASL_SSL, PLAIN", "SASL_SSL, OAUTHBEARER of hapax, from an endpoint by HTTPS", Client::Confluent),
    ];
    some
}

/// What a client wrote, to be counted in the log.
struct Written {
    what: String,
    topic: String,
    /// Of its batches that came to hapax, by verdict.
    verdicts: Vec<(String, u64)>,
}

/// Everybody produces, in transactions too, and reads it back: once each in
/// the log, and nothing of it past hapax.
pub(crate) fn check(world: &World, cells: &[Cell]) {
    let written: Vec<Written> = cells.iter().map(|cell| run(world, cell)).collect();
    let topics: Vec<_> = written.iter().map(|one| one.topic.as_str()).collect();
    for (one, log) in written.iter().zip(world.cluster.logs(&topics)) {
        one.check(&log);
    }
}

/// The same of every cell, one after the other whatever becomes of it, as a
/// table; gives those that failed.
pub(crate) fn table(world: &World) -> Vec<String> {
    let cells: Vec<Cell> = all().collect();
    let (mut written, mut failed) = (Vec::new(), HashSet::new());
    for (number, cell) in cells.iter().enumerate() {
        match catch_unwind(AssertUnwindSafe(|| run(world, cell))) {
            Ok(one) => written.push((number, one)),
            Err(_) => drop(failed.insert(number)),
        }
    }
    let topics: Vec<_> = written.iter().map(|(_, one)| one.topic.as_str()).collect();
    for ((number, one), log) in written.iter().zip(world.cluster.logs(&topics)) {
        if catch_unwind(AssertUnwindSafe(|| one.check(&log))).is_err() {
            failed.insert(*number);
        }
    }
    say(format!(
        "{} of {} ways: {RECORDS} idempotent records, three transactions of {OF_A_TRANSACTION} (one aborted) and what a committed reader reads, each record once and in order in Kafka's log, each batch seen by hapax.",
        cells.len() - failed.len(),
        cells.len(),
    ));
    say("");
    let names: Vec<_> = DOORS.iter().map(|door| door.name).collect();
    say(format!(
        "| hapax to brokers \\ clients to hapax | {} |",
        names.join(" | ")
    ));
    say(format!("|---|{}", "---|".repeat(DOORS.len())));
    for upstream in &UPSTREAMS {
        let of_door = |door: &Door| {
            let is_it = |cell: &Cell| (cell.0.name, cell.1.name) == (door.name, upstream.name);
            match cells.iter().position(is_it) {
                None => "–".to_owned(),
                Some(number) if failed.contains(&number) => "**failed**".to_owned(),
                Some(number) => format!("{:?}", cells[number].2),
            }
        };
        let row: Vec<_> = DOORS.iter().map(of_door).collect();
        say(format!("| {} | {} |", upstream.name, row.join(" | ")));
    }
    failed
        .into_iter()
        .map(|number| what(&cells[number]))
        .collect()
}

fn what((door, upstream, client): &Cell) -> String {
    format!("{client:?}, {} to hapax, {}", door.name, upstream.name)
}

impl Written {
    fn check(&self, log: &[Batch]) {
        assert_once_in_order(log, ALL);
        let batches = log.iter().filter(|batch| !batch.is_control).count();
        let batches = u64::try_from(batches).expect("few");
        let came: u64 = self.verdicts.iter().map(|(_, count)| count).sum();
        assert!(
            came >= batches,
            "{}: {came} of {batches} batches came through hapax",
            self.what
        );
        println!("{}: {batches} batches, {:?}", self.what, self.verdicts);
    }
}

fn run(world: &World, cell: &Cell) -> Written {
    let (door, upstream, client) = cell;
    let at = (upstream.at)(&world.cluster);
    let hapax = world.hapax(&at, &format!("{} {}", door.hapax, upstream.hapax));
    let what = what(cell);
    println!("{what}");
    let topic = world.cluster.create_topic("cell", 2);
    let work = |operation: &str, more: &str| {
        let arguments = format!("--topic {topic} {more} {} {}", door.client, upstream.client);
        world
            .client(*client, operation, &hapax.bootstrap(), &arguments)
            .finish()
    };
    let produced = work("produce", &format!("--partitions 2 --count {RECORDS}"));
    assert_eq!(produced.summary["acked"], RECORDS, "{what}");
    let id = unique("id");
    let of = format!("--partitions 2 --first {RECORDS} --count {OF_A_TRANSACTION}");
    let transacted = work("transact", &format!("{of} --transactional-id {id}"));
    let mut committed: HashSet<u64> = transacted.committed().into_iter().collect();
    assert_eq!(committed.len(), 20, "{what}");
    committed.extend(0..RECORDS);
    let count = committed.len();
    let consumed = work(
        "consume",
        &format!("--read-committed --group {topic} --count {count} --timeout-ms 120000"),
    );
    let read: HashSet<u64> = consumed.records().iter().map(|(n, ..)| *n).collect();
    assert_eq!(read, committed, "{what}");
    assert_eq!(consumed.records().len(), count, "{what}: a record twice");
    let authenticated = hapax.metric("hapax_client_authentications_total", &[("outcome", "ok")]);
    assert_eq!(authenticated > 0.0, door.has_users(), "{what}");
    let logged_in = hapax.metric("hapax_upstream_logins_total", &[("outcome", "ok")]);
    assert_eq!(logged_in > 0.0, upstream.is_of_hapax(), "{what}");
    let shown = [hapax.log(), hapax.scrape()];
    for secret in world.secrets() {
        let mut shown = shown.iter();
        assert!(
            shown.all(|text| !text.contains(secret)),
            "{what}: a secret is shown"
        );
    }
    Written {
        verdicts: verdicts(&hapax, &topic),
        what,
        topic,
    }
}

fn verdicts(hapax: &Hapax, topic: &str) -> Vec<(String, u64)> {
    let of_topic = format!("topic=\"{topic}\"");
    let metrics = hapax.metrics().into_iter();
    let series = metrics.filter(|(series, value)| {
        series.starts_with("hapax_produce_batches_total{")
            && series.contains(&of_topic)
            && *value > 0.0
    });
    let verdict = |series: &str| {
        let (_, rest) = series.split_once("verdict=\"").expect("a verdict");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    series
        .map(|(series, _)| {
            let verdict = verdict(&series);
            let count = hapax.batches(topic, &verdict);
            (verdict, count)
        })
        .collect()
}
