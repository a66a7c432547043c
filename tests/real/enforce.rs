//! Mode enforce before a real Kafka: what is refused, what the client sees of
//! it, and that nobody else is.

use std::time::{Duration, SystemTime};

use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;

use crate::clients::Client;
use crate::cluster::{Cluster, Options, assert_once_in_order};
use crate::forgotten::wait_until_forgotten;
use crate::hapax::{Hapax, Ports, Route};
use crate::raw::{Connection, batch_in_epoch, topic_name};
use crate::tools::wait_for;

const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const INVALID_PRODUCER_EPOCH: i16 = 47;

/// What the batches of a zombie come to: one of its own epoch, one of the
/// next, and then again one of its own once Kafka has forgotten both.
struct Zombie {
    remembered: i16,
    forgotten: i16,
    in_log: usize,
}

fn zombie(cluster: &Cluster, topic: &str, bootstrap: &str) -> Zombie {
    let mut client = Connection::open(bootstrap);
    learn(&mut client, topic);
    let producer = client.init_producer_id();
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let old = now - Duration::from_secs(26 * 3600);
    let ms = |time: Duration| i64::try_from(time.as_millis()).expect("a time of this age");
    let mut produce = |epoch, sequence, time| {
        let value = format!("{epoch}/{sequence}");
        let batch = batch_in_epoch(epoch, producer, sequence, ms(time), &value);
        client.produce(topic, &batch).error_code
    };
    // The metadata names a leader a moment before it leads.
    let first = wait_for("the first batch", Duration::from_secs(20), || {
        Some(produce(0, 0, now)).filter(|code| *code != NOT_LEADER_OR_FOLLOWER)
    });
    assert_eq!(first, 0);
    assert_eq!(produce(1, 0, now), 0);
    let remembered = produce(0, 1, now);
    // Kafka forgets a producer by the time of its last record.
    assert_eq!(produce(1, 1, old), 0);
    wait_until_forgotten(cluster, topic);
    let forgotten = produce(0, 1, now);
    Zombie {
        remembered,
        forgotten,
        in_log: cluster.log(topic).len(),
    }
}

/// The client learns the topic's id, as every client of Kafka 3.1 and later does.
fn learn(client: &mut Connection, topic: &str) {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false);
    let known = client.call(12, &request);
    assert_eq!(known.topics[0].error_code, 0);
}

#[test]
fn a_zombie_that_kafka_forgot_writes_direct_and_not_through_enforce() {
    let cluster = Cluster::start(Options {
        fast_pid: true,
        ..Options::default()
    });
    let topic = cluster.create_topic("direct", 1);
    let direct = zombie(&cluster, &topic, &cluster.bootstrap());
    assert_eq!(direct.remembered, INVALID_PRODUCER_EPOCH);
    assert_eq!(direct.forgotten, 0, "Kafka takes it");
    assert_eq!(direct.in_log, 4);

    if Route::chosen() == Route::Direct {
        return;
    }
    for (mode, forgotten, in_log) in [("absorb", 0, 4), ("enforce", INVALID_PRODUCER_EPOCH, 3)] {
        let hapax = Hapax::in_front_of(&cluster, &["--mode", mode]);
        let topic = cluster.create_topic(mode, 1);
        let through = zombie(&cluster, &topic, &hapax.bootstrap());
        assert_eq!(through.remembered, direct.remembered, "{mode}");
        assert_eq!((through.forgotten, through.in_log), (forgotten, in_log));
        let refused = if mode == "enforce" { 2 } else { 0 };
        assert_eq!(hapax.batches(&topic, "refused"), refused);
    }
}

#[test]
fn clients_without_idempotence_are_told_the_setting() {
    if Route::chosen() == Route::Direct {
        return;
    }
    let cluster = Cluster::one();
    let topic = cluster.create_topic("policy", 2);
    let policy = format!("{}*=idempotence", &topic[..8]);
    let hapax = Hapax::in_front_of(cluster, &["--mode", "enforce", "--policies", &policy]);
    let mut refused = 0;
    for (client, shown) in [
        (
            Client::Java,
            "PolicyViolationException: a policy of hapax for this topic: set enable.idempotence=true",
        ),
        (Client::Confluent, "POLICY_VIOLATION"),
        (Client::FranzGo, "POLICY_VIOLATION"),
        (Client::Sarama, "policy"),
    ] {
        let arguments = [
            "--topic",
            &topic,
            "--partitions",
            "2",
            "--count",
            "4",
            "--idempotence",
            "false",
        ];
        let lines = client
            .start("produce", &hapax.bootstrap(), &arguments)
            .gives_up();
        let errors: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["error"].as_str())
            .collect();
        assert_eq!(errors.len(), 4, "{client:?}: {lines:?}");
        println!("{client:?}: {}", errors[0]);
        assert!(
            errors
                .iter()
                .all(|error| error.to_lowercase().contains(&shown.to_lowercase())),
            "{client:?}: {errors:?}"
        );
        // Whatever a client shows of it, hapax names the setting.
        let before = refused;
        refused = hapax.batches(&topic, "refused");
        assert!(refused > before, "{client:?}");
    }
    assert_eq!(cluster.log(&topic).len(), 0);
    let violations = hapax.metric(
        "hapax_policy_violations_total",
        &[("topic", &topic), ("policy", "idempotence")],
    );
    #[expect(clippy::cast_precision_loss, reason = "a few batches")]
    let expected = refused as f64;
    assert_eq!(violations, expected);
    let events = hapax.events();
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event["event"] == "policy_violation")
        .filter_map(|event| event["detail"].as_str())
        .collect();
    assert!(
        told.len() >= 2
            && told
                .iter()
                .all(|detail| detail.contains("enable.idempotence=true")),
        "{events:?}"
    );

    // Who does it gets through.
    for client in [
        Client::Java,
        Client::Confluent,
        Client::FranzGo,
        Client::Sarama,
    ] {
        let arguments = ["--topic", &topic, "--partitions", "2", "--count", "4"];
        let produced = client.run("produce", &hapax.bootstrap(), &arguments);
        assert_eq!(produced.summary["acked"], 4, "{client:?}");
    }
    assert_eq!(hapax.batches(&topic, "refused"), refused);
}

#[test]
fn transactions_whose_epoch_rises_with_each_end_are_not_refused() {
    if Route::chosen() == Route::Direct {
        return;
    }
    let cluster = Cluster::one();
    let topic = cluster.create_topic("transactional", 2);
    let flags = [
        "--mode",
        "enforce",
        "--policies",
        "*=transactional+acks_all",
    ];
    let hapax = Hapax::in_front_of(cluster, &flags);
    for client in Client::FULL {
        let id = format!("{topic}-{client:?}");
        let arguments = [
            "--topic",
            &topic,
            "--partitions",
            "2",
            "--count",
            "20",
            "--transactional-id",
            &id,
        ];
        for _ in 0..2 {
            let done = client.run("transact", &hapax.bootstrap(), &arguments);
            assert_eq!(done.summary["committed"], 40, "{client:?}");
        }
    }
    assert_eq!(
        hapax.metric("hapax_verdicts_total", &[("verdict", "refused")]),
        0.0
    );
    assert_eq!(hapax.metric("hapax_fenced_producers_total", &[]), 0.0);
}

/// hapax is killed and starts with nothing: what it does not know it forwards.
#[test]
fn nobody_is_refused_when_hapax_is_killed_and_knows_nothing() {
    if Route::chosen() == Route::Direct {
        return;
    }
    let cluster = Cluster::one();
    for client in [Client::Java, Client::Confluent, Client::FranzGo] {
        let topic = cluster.create_topic("killed", 3);
        let ports = Ports::free(8);
        let flags = ["--mode", "enforce", "--policies", "*=idempotence+acks_all"];
        let start = || Hapax::on_ports_in_front_of(ports.clone(), cluster, &flags);
        let mut hapax = start();
        let producer = client.start(
            "produce",
            &hapax.bootstrap(),
            &[
                "--topic",
                &topic,
                "--partitions",
                "3",
                "--rate",
                "1000",
                "--until-input-ends",
                "--linger-ms",
                "5",
                "--batch-bytes",
                "300",
                "--request-timeout-ms",
                "1000",
                "--backoff-ms",
                "20",
            ],
        );
        for _ in 0..5 {
            producer.wait_for_lines(producer.printed() + 500);
            assert_eq!(hapax.batches(&topic, "refused"), 0, "{client:?}");
            drop(hapax);
            hapax = start();
        }
        producer.wait_for_lines(producer.printed() + 500);
        let produced = producer.finish();
        assert_eq!(produced.summary["failed"], 0, "{client:?}");
        assert_eq!(hapax.batches(&topic, "refused"), 0, "{client:?}");
        let sent = produced.summary["sent"].as_u64().expect("a count");
        assert_once_in_order(&cluster.log(&topic), sent);
    }
}
