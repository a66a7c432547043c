//! Produce, consume, transactions, share groups and admin calls of every client.

use std::collections::HashSet;

use crate::clients::{Client, Outcome};
use crate::cluster::{Batch, Cluster, assert_once_in_order};
use crate::hapax::Front;
use crate::tools::unique;

const RECORDS: u64 = 300;

#[test]
fn java_works_on_one_broker() {
    check(Client::Java, Cluster::one());
}

#[test]
fn confluent_kafka_works_on_one_broker() {
    check(Client::Confluent, Cluster::one());
}

#[test]
fn franz_go_works_on_one_broker() {
    check(Client::FranzGo, Cluster::one());
}

#[test]
fn kcat_works_on_one_broker() {
    check(Client::Kcat, Cluster::one());
}

#[test]
fn java_works_on_three_brokers() {
    check(Client::Java, Cluster::three());
}

#[test]
fn confluent_kafka_works_on_three_brokers() {
    check(Client::Confluent, Cluster::three());
}

#[test]
fn franz_go_works_on_three_brokers() {
    check(Client::FranzGo, Cluster::three());
}

#[test]
fn kcat_works_on_three_brokers() {
    check(Client::Kcat, Cluster::three());
}

#[test]
fn java_share_group_takes_every_record_on_one_broker() {
    check_share_group(Cluster::one());
}

#[test]
fn java_share_group_takes_every_record_on_three_brokers() {
    check_share_group(Cluster::three());
}

#[test]
fn java_consumes_with_the_new_group_protocol() {
    let cluster = Cluster::three();
    let front = Front::of(cluster);
    let topic = cluster.create_topic("protocol", 3);
    produce(Client::Confluent, &front, &topic);
    let consumed = Client::Java.run(
        "consume",
        &front.bootstrap,
        &[
            "--topic",
            &topic,
            "--group",
            &topic,
            "--count",
            "300",
            "--group-protocol",
            "consumer",
        ],
    );
    assert_eq!(numbers(&consumed), (0..RECORDS).collect());
}

fn check(client: Client, cluster: &Cluster) {
    let front = Front::of(cluster);
    check_produce_and_consume(client, cluster, &front);
    if client == Client::Kcat {
        return; // it has neither transactions nor admin calls
    }
    check_transactions(client, cluster, &front);
    check_admin(client, cluster, &front);
}

fn check_produce_and_consume(client: Client, cluster: &Cluster, front: &Front) {
    let topic = cluster.create_topic("traffic", 3);
    produce(client, front, &topic);

    let log = cluster.log(&topic);
    assert_once_in_order(&log, RECORDS);
    assert!(log.iter().all(Batch::is_idempotent), "{log:?}");

    let arguments = ["--topic", &topic, "--group", &topic, "--count", "300"];
    let consumed = client.run("consume", &front.bootstrap, &arguments);
    assert_eq!(numbers(&consumed), (0..RECORDS).collect());

    let Some(hapax) = &front.hapax else { return };
    let written = u64::try_from(log.len()).expect("few batches");
    let forwarded = hapax.batches(&topic, "forwarded");
    // The leaders of a new topic may refuse a batch before they know that they lead.
    assert!(
        forwarded >= written,
        "{forwarded} forwarded, {written} written"
    );
    assert_eq!(hapax.batches(&topic, "duplicate_absorbed"), 0);
    assert_eq!(
        hapax.metric(
            "hapax_produce_batches_total",
            &[("topic", &topic), ("verdict", "gap")]
        ),
        0.0
    );
}

fn check_transactions(client: Client, cluster: &Cluster, front: &Front) {
    let topic = cluster.create_topic("transactions", 2);
    let id = unique("id");
    let arguments = [
        "--topic",
        &topic,
        "--partitions",
        "2",
        "--count",
        "10",
        "--transactional-id",
        &id,
    ];
    let produced = client.run("transact", &front.bootstrap, &arguments);
    assert_eq!(produced.lines.len(), 30);
    let committed: HashSet<u64> = produced.committed().into_iter().collect();
    assert_eq!(committed, (0..10).chain(20..30).collect());

    let group = unique("committed");
    let arguments = [
        "--topic",
        &topic,
        "--group",
        &group,
        "--count",
        "20",
        "--read-committed",
    ];
    assert_eq!(
        numbers(&client.run("consume", &front.bootstrap, &arguments)),
        committed
    );
    let group = unique("uncommitted");
    let arguments = ["--topic", &topic, "--group", &group, "--count", "30"];
    assert_eq!(
        numbers(&client.run("consume", &front.bootstrap, &arguments)),
        (0..30).collect()
    );
    assert_once_in_order(&cluster.log(&topic), 30);
}

fn check_admin(client: Client, cluster: &Cluster, front: &Front) {
    let topic = unique("admin");
    let replication = cluster.nodes().to_string();
    let arguments = [
        "--topic",
        &topic,
        "--partitions",
        "3",
        "--replication",
        &replication,
    ];
    let answers = client.run("admin", &front.bootstrap, &arguments);
    let step = |name: &str| {
        let mut lines = answers.lines.iter();
        lines
            .find(|line| line["step"] == name)
            .unwrap_or_else(|| panic!("no step {name}"))
    };
    assert_eq!(step("describe_topic")["partitions"], 3);
    assert!(step("describe_configs")["entries"].as_u64() > Some(10));
    step("list_groups");
    step("delete_topic");
    let brokers = step("describe_cluster")["brokers"]
        .as_array()
        .expect("a list")
        .clone();
    assert_eq!(brokers.len(), cluster.nodes());
    if let Some(hapax) = &front.hapax {
        let ports = hapax.ports();
        for broker in brokers {
            let address = broker.as_str().expect("an address");
            let port = address
                .strip_prefix("127.0.0.1:")
                .and_then(|port| port.parse::<u16>().ok());
            let is_ours =
                port.is_some_and(|port| (ports.brokers.0..=ports.brokers.1).contains(&port));
            assert!(is_ours, "{address} is no port of hapax");
        }
    }
}

fn check_share_group(cluster: &Cluster) {
    let front = Front::of(cluster);
    let topic = cluster.create_topic("share", 3);
    produce(Client::Java, &front, &topic);
    let group = unique("share");
    let arguments = ["--topic", &topic, "--group", &group, "--count", "300"];
    assert_eq!(
        numbers(&Client::Java.run("share", &front.bootstrap, &arguments)),
        (0..RECORDS).collect()
    );
}

/// 300 records to three partitions, each acknowledged once.
fn produce(client: Client, front: &Front, topic: &str) {
    let arguments = ["--topic", topic, "--partitions", "3", "--count", "300"];
    let produced = client.run("produce", &front.bootstrap, &arguments);
    assert_eq!(produced.summary["acked"], RECORDS);
    if client != Client::Kcat {
        assert_eq!(numbers(&produced), (0..RECORDS).collect());
        let places: HashSet<(i64, i64)> = produced
            .records()
            .iter()
            .map(|(_, p, offset)| (*p, *offset))
            .collect();
        assert_eq!(
            u64::try_from(places.len()).expect("few"),
            RECORDS,
            "two records were given one offset"
        );
    }
}

/// The records a client printed, each of which may come once.
fn numbers(outcome: &Outcome) -> HashSet<u64> {
    let mut seen = HashSet::new();
    for (n, ..) in outcome.records() {
        assert!(seen.insert(n), "record {n} twice");
    }
    seen
}
