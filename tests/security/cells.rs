//! The matrix: how clients reach hapax, and how hapax reaches brokers.
//!
//! A kind of either is one row of its table. Clients that log in to hapax
//! itself, and a hapax that logs in to brokers by credentials of its own, have
//! no row yet; GSSAPI has none at all.

use std::collections::HashSet;

use crate::clients::Client;
use crate::cluster::{Cluster, assert_once_in_order};
use crate::hapax::Hapax;
use crate::tools::unique;
use crate::world::World;

/// How clients reach hapax: its flags, and theirs.
pub(crate) struct Door {
    pub(crate) name: &'static str,
    hapax: &'static str,
    client: &'static str,
}

#[rustfmt::skip]
pub(crate) const DOORS: [Door; 3] = [
    Door { name: "plaintext", hapax: "", client: "" },
    Door { name: "TLS", hapax: "--listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key", client: "--tls-ca CERTS/ca.crt" },
    Door { name: "mTLS", hapax: "--listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key --listen-tls-client-ca-file CERTS/ca.crt", client: "--tls-ca CERTS/ca.crt --tls-cert CERTS/client.crt --tls-key CERTS/client.key" },
];

/// How hapax reaches brokers: where, its flags, and what clients do for it.
pub(crate) struct Upstream {
    pub(crate) name: &'static str,
    at: fn(&Cluster) -> String,
    hapax: &'static str,
    client: &'static str,
}

#[rustfmt::skip]
pub(crate) const UPSTREAMS: [Upstream; 7] = [
    Upstream { name: "PLAINTEXT", at: Cluster::bootstrap, hapax: "", client: "" },
    Upstream { name: "SSL", at: Cluster::ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "" },
    Upstream { name: "SSL with ssl.client.auth=required", at: Cluster::mtls_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt --upstream-tls-cert-file CERTS/hapax.crt --upstream-tls-key-file CERTS/hapax.key", client: "" },
    Upstream { name: "SASL_SSL, PLAIN of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism PLAIN --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_SSL, SCRAM-SHA-256 of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism SCRAM-SHA-256 --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_SSL, SCRAM-SHA-512 of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism SCRAM-SHA-512 --sasl-user alice --sasl-password alice-secret" },
    Upstream { name: "SASL_SSL, OAUTHBEARER of the client", at: Cluster::sasl_ssl_bootstrap, hapax: "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt", client: "--sasl-mechanism OAUTHBEARER --sasl-user alice" },
];

/// Idempotent records, and after them three transactions of so many: the one
/// in the middle is aborted.
const RECORDS: u64 = 100;
const OF_A_TRANSACTION: u64 = 10;
const ALL: u64 = RECORDS + 3 * OF_A_TRANSACTION;

/// A door, an upstream, and who goes that way.
pub(crate) type Cell = (&'static Door, &'static Upstream, Vec<Client>);

/// Every door with every upstream, with Java; on the ways that have most to
/// do, the other clients too.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (row, upstream) in UPSTREAMS.iter().enumerate() {
        for (column, door) in DOORS.iter().enumerate() {
            let clients = match (row + column) % DOORS.len() {
                0 => vec![Client::Java, Client::Confluent],
                1 => vec![Client::Java, Client::FranzGo],
                _ => vec![Client::Java],
            };
            cells.push((door, upstream, clients));
        }
    }
    cells
}

/// One of each kind.
pub(crate) fn some() -> Vec<Cell> {
    vec![
        (&DOORS[2], &UPSTREAMS[0], vec![Client::FranzGo]),
        (&DOORS[0], &UPSTREAMS[1], vec![Client::FranzGo]),
        (&DOORS[2], &UPSTREAMS[2], vec![Client::Java]),
        (&DOORS[1], &UPSTREAMS[3], vec![Client::Confluent]),
        (&DOORS[1], &UPSTREAMS[5], vec![Client::FranzGo]),
        (&DOORS[1], &UPSTREAMS[6], vec![Client::Java]),
    ]
}

/// What a client wrote, to be counted in the log.
struct Written {
    what: String,
    topic: String,
    /// Of its batches that came to hapax, by verdict.
    verdicts: Vec<(String, u64)>,
}

/// Everybody produces, in transactions too, and reads it back: once each in
/// the log, and nothing of it past hapax. Gives what was done.
pub(crate) fn check(world: &World, cells: &[Cell]) -> Vec<String> {
    let written: Vec<Written> = cells.iter().flat_map(|cell| run(world, cell)).collect();
    let topics: Vec<_> = written.iter().map(|one| one.topic.as_str()).collect();
    for (one, log) in written.iter().zip(world.cluster.logs(&topics)) {
        assert_once_in_order(&log, ALL);
        let batches = log.iter().filter(|batch| !batch.is_control).count();
        let batches = u64::try_from(batches).expect("few");
        let came: u64 = one.verdicts.iter().map(|(_, count)| count).sum();
        assert!(
            came >= batches,
            "{}: {came} of {batches} batches came through hapax",
            one.what
        );
        println!("{}: {batches} batches, {:?}", one.what, one.verdicts);
    }
    written.into_iter().map(|one| one.what).collect()
}

fn run(world: &World, (door, upstream, clients): &Cell) -> Vec<Written> {
    let at = (upstream.at)(&world.cluster);
    let hapax = world.hapax(&at, &format!("{} {}", door.hapax, upstream.hapax));
    let mut written = Vec::new();
    for client in clients {
        let what = format!("{client:?}, {} to hapax, {}", door.name, upstream.name);
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
        written.push(Written {
            verdicts: verdicts(&hapax, &topic),
            what,
            topic,
        });
    }
    let log = hapax.log();
    assert!(!log.contains("alice-secret"), "hapax logged a password");
    written
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
