//! Upstreams that are down, brokers that die, and the end of hapax itself.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiVersionsRequest;

use crate::clients::{Client, Running};
use crate::cluster::{Cluster, Options, assert_once_in_order};
use crate::hapax::{Front, Hapax, Route};
use crate::raw::Connection;
use crate::tools::{free_ports, wait_for};

/// Long enough for a broker's failover; not for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn an_upstream_that_is_down_at_start_is_served_once_it_is_up() {
    let port = free_ports(6);
    let front = format!("127.0.0.1:{}", port + 2);
    let map = format!("kafka-0.invalid:{port}={front}");
    let hapax = Hapax::start(&["--upstream", &front, "--upstream-address-map", &map]);
    wait_for("an unready hapax", PATIENCE, || {
        hapax.probe("/readyz").filter(|status| *status == 503)
    });
    assert_eq!(hapax.probe("/livez"), Some(200));
    let refused = Connection::open(&hapax.bootstrap()).try_call(0, &ApiVersionsRequest::default());
    assert!(refused.is_err(), "nobody can have answered: {refused:?}");
    assert!(hapax.metric("hapax_upstream_connect_errors_total", &[]) >= 1.0);

    let cluster = Cluster::start(Options {
        first_port: Some(port),
        ..Options::default()
    });
    wait_for("a ready hapax", PATIENCE, || {
        hapax.probe("/readyz").filter(|status| *status == 200)
    });
    let topic = cluster.create_topic("late", 1);
    let produced = Client::Confluent.run(
        "produce",
        &hapax.bootstrap(),
        &["--topic", &topic, "--count", "50"],
    );
    assert_eq!(produced.summary["acked"], 50);
    assert_once_in_order(&cluster.log(&topic), 50);
}

#[test]
fn java_loses_and_doubles_nothing_when_a_leader_is_killed_and_restarted() {
    check_killed_leader(Client::Java);
}

#[test]
fn confluent_kafka_loses_and_doubles_nothing_when_a_leader_is_killed_and_restarted() {
    check_killed_leader(Client::Confluent);
}

#[test]
fn franz_go_loses_and_doubles_nothing_when_a_leader_is_killed_and_restarted() {
    check_killed_leader(Client::FranzGo);
}

fn check_killed_leader(client: Client) {
    let cluster = Cluster::three();
    let front = Front::of(cluster);
    let topic = cluster.create_topic("killed", 3);
    let producer = produce_on(client, &front.bootstrap, &topic);
    producer.wait_for_lines(500);
    let leader = cluster.leader(&topic, 0);
    cluster.kill(leader);
    producer.wait_for_lines(producer.printed() + 1500);
    cluster.restart(leader);
    producer.wait_for_lines(producer.printed() + 1000);
    let produced = producer.finish();
    let sent = produced.summary["sent"].as_u64().expect("a count");
    assert_eq!(produced.summary["acked"], sent);
    // Any node but the restarted one leads by now, and tells.
    assert_once_in_order(&cluster.log(&topic), sent);
    if let Some(hapax) = &front.hapax {
        assert!(hapax.batches(&topic, "forwarded") > 0);
        assert_eq!(
            hapax.metric("hapax_sequence_errors_total", &[]),
            0.0,
            "{:?}",
            hapax.events()
        );
    }
}

#[test]
fn sigterm_serves_old_and_new_clients_to_their_end_and_exits_with_0() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let cluster = Cluster::one();
    let topic = cluster.create_topic("drain", 1);
    let mut hapax = Hapax::in_front_of(cluster, &["--drain-timeout", "120s"]);
    let producer = produce_on(Client::Confluent, &hapax.bootstrap(), &topic);
    producer.wait_for_lines(100);

    hapax.sigterm();
    wait_for("a draining hapax", PATIENCE, || {
        hapax.probe("/readyz").filter(|status| *status == 503)
    });
    assert_eq!(hapax.metric("hapax_draining", &[]), 1.0);
    let newcomer = cluster.create_topic("newcomer", 1);
    for client in [Client::FranzGo, Client::Kcat] {
        let produced = client.run(
            "produce",
            &hapax.bootstrap(),
            &["--topic", &newcomer, "--count", "50"],
        );
        assert_eq!(produced.summary["acked"], 50);
    }
    producer.wait_for_lines(producer.printed() + 500);
    assert!(!hapax.has_ended(), "a client is still there");
    let produced = producer.finish();

    let closed = Instant::now();
    assert_eq!(hapax.exit_code(PATIENCE), Some(0));
    assert!(
        closed.elapsed() < Duration::from_secs(2),
        "it ended {:?} after the last client",
        closed.elapsed()
    );
    let sent = produced.summary["sent"].as_u64().expect("a count");
    assert_eq!(produced.summary["acked"], sent);
    assert_once_in_order(&cluster.log(&topic), sent);
}

#[test]
fn a_drain_that_takes_too_long_ends_with_0() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let mut hapax = Hapax::in_front_of(Cluster::one(), &["--drain-timeout", "1s"]);
    let mut client = Connection::open(&hapax.bootstrap());
    client.call(0, &ApiVersionsRequest::default());
    hapax.sigterm();
    assert_eq!(hapax.exit_code(Duration::from_secs(10)), Some(0));
    assert!(client.try_call(0, &ApiVersionsRequest::default()).is_err());
}

#[test]
fn a_second_sigterm_ends_it_at_once_with_1() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let mut hapax = Hapax::in_front_of(Cluster::one(), &["--drain-timeout", "120s"]);
    let mut client = Connection::open(&hapax.bootstrap());
    client.call(0, &ApiVersionsRequest::default());
    hapax.sigterm();
    wait_for("a draining hapax", PATIENCE, || {
        hapax.probe("/readyz").filter(|status| *status == 503)
    });
    assert!(!hapax.has_ended());
    hapax.sigterm();
    assert_eq!(hapax.exit_code(Duration::from_secs(5)), Some(1));
}

#[test]
fn promtool_finds_nothing_to_say_about_the_metrics() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let cluster = Cluster::one();
    let hapax = Hapax::in_front_of(cluster, &[]);
    let topic = cluster.create_topic("metrics", 1);
    Client::Confluent.run(
        "produce",
        &hapax.bootstrap(),
        &["--topic", &topic, "--count", "50"],
    );
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts: `tests/run install` (stage debian) installs it");
    let scrape = hapax.scrape();
    promtool
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(scrape.as_bytes())
        .expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// A producer that goes on until it is finished.
fn produce_on(client: Client, bootstrap: &str, topic: &str) -> Running {
    client.start(
        "produce",
        bootstrap,
        &[
            "--topic",
            topic,
            "--partitions",
            partitions(topic),
            "--rate",
            "500",
            "--until-input-ends",
            "--linger-ms",
            "5",
            "--backoff-ms",
            "50",
        ],
    )
}

/// Topics that a leader is killed of have three.
fn partitions(topic: &str) -> &'static str {
    if topic.starts_with("killed") {
        "3"
    } else {
        "1"
    }
}
