//! Which addresses clients are shown, and which ports lead to which broker.

use crate::clients::Client;
use crate::cluster::{Cluster, Options, assert_once_in_order};
use crate::hapax::{Hapax, Ports};

#[test]
fn kcat_sees_only_addresses_of_hapax() {
    for cluster in [Cluster::one(), Cluster::three()] {
        let hapax = Hapax::in_front_of(cluster, &[]);
        let ports = brokers(&hapax);
        assert_eq!(ports.len(), cluster.nodes());
        let range = hapax.ports().brokers;
        assert!(
            ports.iter().all(|port| (range.0..=range.1).contains(port)),
            "{ports:?} of {range:?}"
        );
    }
}

#[test]
fn node_70000_has_a_port_of_the_range() {
    let hapax = Hapax::in_front_of(Cluster::one(), &[]);
    let ports = brokers(&hapax);
    let rows = hapax.api("/api/v1/brokers")["brokers"]
        .as_array()
        .expect("a list")
        .clone();
    let row = rows
        .iter()
        .find(|row| row["node"] == 70_000)
        .unwrap_or_else(|| panic!("no node 70000 in {rows:?}"));
    assert_eq!(row["port"], ports[0]);
    let range = hapax.ports().brokers;
    assert_eq!(
        u32::from(ports[0]),
        u32::from(range.0) + 70_000 % u32::from(range.1 - range.0 + 1)
    );
}

#[test]
fn two_ports_serve_two_of_three_brokers_and_say_so() {
    let cluster = Cluster::three();
    let hapax = Hapax::on_ports_in_front_of(Ports::free(2), cluster, &[]);
    let range = hapax.ports().brokers;
    let mut shown = brokers(&hapax);
    // The third is shown with a port that nobody can connect to, so that its partitions have a leader.
    shown.sort_unstable();
    assert_eq!(shown, [0, range.0, range.1]);
    assert!(hapax.metric("hapax_broker_slots_exhausted_total", &[]) >= 1.0);
    assert_eq!(hapax.metric("hapax_broker_slots_used", &[]), 2.0);
    let log = hapax.log();
    assert!(
        log.lines()
            .any(|line| line.contains("\"ERROR\"") && line.contains("port")),
        "no error about ports in {log}"
    );

    let rows = hapax.api("/api/v1/brokers")["brokers"]
        .as_array()
        .expect("a list")
        .clone();
    let served: Vec<i64> = rows
        .iter()
        .filter(|row| !row["port"].is_null())
        .map(|row| row["node"].as_i64().expect("an id"))
        .collect();
    assert_eq!(served.len(), 2, "{rows:?}");
    // Leaders of new topics go round the brokers.
    let topic = std::iter::repeat_with(|| cluster.create_topic("served", 1))
        .take(20)
        .find(|topic| served.contains(&i64::from(cluster.connect(0).leaders(topic)[0])))
        .expect("one of 20 topics is led by one of two out of three");
    let produced = Client::Confluent.run(
        "produce",
        &hapax.bootstrap(),
        &["--topic", &topic, "--count", "50"],
    );
    assert_eq!(produced.summary["acked"], 50);
    assert_once_in_order(&cluster.log(&topic), 50);
}

#[test]
fn the_defaults_stand_beside_a_dev_kafka_on_9092() {
    let cluster = Cluster::start(Options {
        first_port: Some(9092),
        ..Options::default()
    });
    let hapax = Hapax::start_with_defaults(&["--upstream", "127.0.0.1:9092"]);
    assert_eq!(
        brokers(&hapax),
        [19094],
        "node 1 is the second slot of the default range"
    );
    let topic = cluster.create_topic("beside", 1);
    let produced = Client::Kcat.run(
        "produce",
        "127.0.0.1:19092",
        &["--topic", &topic, "--count", "50"],
    );
    assert_eq!(produced.summary["sent"], 50);
    assert_once_in_order(&cluster.log(&topic), 50);
    assert!(hapax.batches(&topic, "forwarded") > 0);
}

/// The ports that kcat is shown, each of them on this host.
fn brokers(hapax: &Hapax) -> Vec<u16> {
    let shown = Client::Kcat.run("brokers", &hapax.bootstrap(), &[]).summary;
    let brokers = shown["brokers"].as_array().expect("a list");
    let port = |broker: &serde_json::Value| {
        let address = broker.as_str().expect("an address");
        let port = address
            .strip_prefix("127.0.0.1:")
            .unwrap_or_else(|| panic!("{address} is not of hapax"));
        port.parse().expect("a port")
    };
    brokers.iter().map(port).collect()
}
