//! An epoch that a client raises by itself, and what comes of it: the sequence
//! of events of librdkafka issue 4953, with librdkafka itself and byte by byte,
//! and Java's own way to the same end.
//!
//! One producer writes to two partitions. A batch of the second is written and
//! its answer lost. Before it is sent again a batch of the first fails, and the
//! one behind it gets error 45: librdkafka raises the epoch of all partitions,
//! and the lost batch comes again with sequence 0, which no broker can know.

use std::time::SystemTime;

use serde_json::Value;

use crate::clients::{Client, Running};
use crate::cluster::{Cluster, values};
use crate::door::Door;
use crate::hapax::{Hapax, Ports, Route};
use crate::kfaked::Kfaked;
use crate::raw::{Connection, batch_in_epoch};
use crate::tools::{free_ports, wait_for};

const PRODUCE: i16 = 0;
const TOPIC: &str = "bumped";

/// Where the acknowledgement is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    /// hapax has it, the client does not.
    BeforeTheClient,
    /// Nobody has it but the broker.
    BeforeHapax,
}

#[test]
fn without_hapax_the_lost_batch_is_written_twice() {
    let broker = two_partitions();
    // Long enough that the lost batch is not sent again before the epoch is raised.
    let mut client = producer(&broker.bootstrap(), "6000");
    warm_up(&mut client);
    broker.lose(PRODUCE, 1);
    client.tell("produce 1 3");
    wait_for_records(&broker, 6);
    fail_the_other_partition(&broker, &mut client);
    assert_eq!(client.finish().summary["acked"], 15);
    assert_eq!(broker.records(TOPIC, 0), 9, "3 and 6 records");
    assert_eq!(broker.records(TOPIC, 1), 9, "3 records, and 3 twice");
}

#[test]
fn what_hapax_knows_to_be_acknowledged_is_told_as_a_duplicate() {
    let Some(told) = check_report(&[], Lost::BeforeTheClient) else {
        return;
    };
    assert_eq!(told.records, [9, 9], "written twice, as without hapax");
    assert_eq!(told.resends, [1, 0]);
    assert_eq!((told.bumps, told.shielded), (1, 0));
    let event = &told.events[0];
    assert_eq!(event["kind"], "acknowledged");
    assert_eq!(event["partition"], 1);
    assert_eq!((&event["epoch"], &event["first"]), (&1.into(), &0.into()));
    assert_eq!(event["count"], 3);
    assert_eq!(event["original_offset"], 3);
    assert_eq!(event["client_id"], "confluent-kafka");
}

#[test]
fn what_hapax_does_not_know_is_told_as_a_possible_duplicate() {
    let Some(told) = check_report(&[], Lost::BeforeHapax) else {
        return;
    };
    assert_eq!(told.records, [9, 9]);
    assert_eq!(told.resends, [0, 1], "{:?}", told.events);
    assert_eq!((told.bumps, told.shielded), (1, 0));
    assert_eq!(told.events[0]["kind"], "unknown");
    assert_eq!(told.events[0].get("original_offset"), None);
}

#[test]
fn with_shield45_no_epoch_is_raised_and_nothing_is_written_twice() {
    for lost in [Lost::BeforeTheClient, Lost::BeforeHapax] {
        let Some(told) = check_report(&["--sequence-shield45"], lost) else {
            return;
        };
        assert_eq!(told.records, [9, 6], "{lost:?}");
        assert_eq!((told.bumps, told.resends), (0, [0, 0]), "{lost:?}");
        assert_eq!(told.shielded, 1, "{lost:?}");
        let absorbed = u64::from(lost == Lost::BeforeTheClient);
        assert_eq!(told.absorbed, absorbed, "{lost:?}");
    }
}

/// What came of the report's sequence of events.
struct Told {
    /// Records in each partition.
    records: [u64; 2],
    /// Re-sends of acknowledged batches, and of ones of unknown outcome.
    resends: [u64; 2],
    bumps: u64,
    shielded: u64,
    absorbed: u64,
    /// The re-sends.
    events: Vec<Value>,
}

/// The report's sequence of events through hapax; `None` where it is left out.
///
/// ```text
/// librdkafka ── doors on 127.0.0.1 ── hapax on 127.0.0.2, the same ports ── kfaked
/// ```
fn check_report(arguments: &[&str], lost: Lost) -> Option<Told> {
    if Route::chosen() == Route::Direct {
        return None;
    }
    let broker = two_partitions();
    let front = Front::before(&broker, 2, arguments);
    let [first, second] = &front.nodes[..] else {
        panic!("a door for each node");
    };
    let mut client = producer(&front.bootstrap, "500");
    warm_up(&mut client);
    match lost {
        Lost::BeforeTheClient => second.lose_answer(),
        Lost::BeforeHapax => {
            second.shut_behind();
            broker.lose(PRODUCE, 1);
        }
    }
    client.tell("produce 1 3");
    wait_for_records(&broker, 6);
    second.wait_for_end();
    fail_the_other_partition(&broker, &mut client);
    // That of the first three records, the error, and what follows from it.
    first.wait_for_answers(3);
    second.open();
    let produced = client.finish();
    assert_eq!(produced.summary["acked"], 15, "{:?}", produced.lines);
    Some(Told {
        records: [0, 1].map(|partition| broker.records(TOPIC, partition)),
        ..front.told()
    })
}

/// librdkafka before two nodes, each of which leads a partition.
fn two_partitions() -> Kfaked {
    let broker = Kfaked::with_partitions(2, TOPIC, 2);
    broker.lead(TOPIC, 0, 0);
    broker.lead(TOPIC, 1, 1);
    broker
}

fn producer(bootstrap: &str, backoff_ms: &str) -> Running {
    let arguments = [
        "--topic",
        TOPIC,
        // A batch leaves when it is full.
        "--linger-ms",
        "20000",
        "--backoff-ms",
        backoff_ms,
    ];
    Client::Steps.start("steps", bootstrap, &arguments)
}

/// Both partitions have a batch, so that the broker knows the producer there.
fn warm_up(client: &mut Running) {
    for step in ["produce 0 3", "produce 1 3", "flush"] {
        client.tell(step);
    }
    client.wait_for_lines(7);
}

/// Two batches of the first partition at once, the first of which fails.
fn fail_the_other_partition(broker: &Kfaked, client: &mut Running) {
    // kfake answers its faults with offset 0; error 6 with an offset means appended.
    broker.fail_partition(TOPIC, 0, "NOT_ENOUGH_REPLICAS", 1);
    // The second is under way before the first is answered.
    broker.delay(PRODUCE, 1, 300);
    client.tell("produce 0 6");
}

fn wait_for_records(broker: &Kfaked, records: u64) {
    wait_for(
        "the batch to be written",
        std::time::Duration::from_secs(60),
        || (broker.records(TOPIC, 1) == records).then_some(()),
    );
}

/// hapax, and a door to each of its ports.
struct Front {
    bootstrap: String,
    hapax: Hapax,
    nodes: Vec<Door>,
    _bootstrap: Door,
}

impl Front {
    fn before(broker: &Kfaked, nodes: u16, arguments: &[&str]) -> Self {
        let ports = Ports {
            host: "127.0.0.2".to_owned(),
            ..Ports::free(nodes)
        };
        let door = |port: u16| {
            let mut door = Door::default();
            door.leads(&format!("127.0.0.1:{port}"), &format!("127.0.0.2:{port}"));
            door
        };
        let bootstrap = broker.bootstrap();
        let mut all = vec![
            "--listen-advertised-host",
            "127.0.0.1",
            "--upstream",
            &bootstrap,
        ];
        all.extend(arguments);
        let (first, last) = ports.brokers;
        Self {
            bootstrap: format!("127.0.0.1:{}", ports.bootstrap),
            nodes: (first..=last).map(door).collect(),
            _bootstrap: door(ports.bootstrap),
            hapax: Hapax::start_on(ports, &all),
        }
    }

    /// What hapax counted and told.
    fn told(&self) -> Told {
        let count = |name, labels: &[(&str, &str)]| whole(self.hapax.metric(name, labels));
        let resends = ["acknowledged", "unknown"];
        let events = self.hapax.events().into_iter();
        Told {
            records: [0; 2],
            resends: resends.map(|of| count("hapax_epoch_resends_total", &[("original", of)])),
            bumps: count("hapax_producer_epoch_bumps_total", &[]),
            shielded: count("hapax_shielded_errors_total", &[]),
            absorbed: self.hapax.batches(TOPIC, "duplicate_absorbed"),
            events: events
                .filter(|event| event["event"] == "epoch_resend")
                .collect(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter is a whole number"
)]
fn whole(count: f64) -> u64 {
    count as u64
}

/// Error 45 for the batch next in turn makes Java raise its epoch and send the
/// batch anew, although its first copy was written.
#[test]
fn what_java_sends_anew_after_an_error_45_is_told() {
    if Route::chosen() == Route::Direct {
        return;
    }
    // It does not follow from another batch: it is not hidden.
    let flags = ["--sequence-shield45", "--sequence-resolve=false"];
    let (records, told) = java_is_refused_what_is_written(&flags);
    assert_eq!(records, 40, "Java wrote them twice");
    assert_eq!((told.bumps, told.resends), (1, [0, 1]));
    assert_eq!(told.events[0]["count"], 20);
    assert_eq!(told.shielded, 0);
}

/// Where hapax may look into the log, Java never hears of that error.
#[test]
fn what_the_log_has_is_not_sent_anew() {
    if Route::chosen() == Route::Direct {
        return;
    }
    let (records, told) = java_is_refused_what_is_written(&[]);
    assert_eq!(records, 20);
    assert_eq!((told.bumps, told.resends), (0, [0, 0]));
}

/// Java sends 20 records, the acknowledgement is lost, and the retry gets 45.
/// Returns how many are in the log.
fn java_is_refused_what_is_written(flags: &[&str]) -> (u64, Told) {
    let broker = Kfaked::start(1, TOPIC);
    let front = Front::before(&broker, 1, flags);
    let door = &front.nodes[0];
    door.shut_behind();
    broker.lose(PRODUCE, 1);
    let arguments = [
        "--topic",
        TOPIC,
        "--count",
        "20",
        "--linger-ms",
        "200",
        "--backoff-ms",
        "50",
    ];
    let client = Client::Java.start("produce", &front.bootstrap, &arguments);
    door.wait_for_end();
    assert_eq!(broker.records(TOPIC, 0), 20);
    // As of a broker that was restarted and kept a later batch only.
    broker.fail_produce(TOPIC, "OUT_OF_ORDER_SEQUENCE_NUMBER", 1);
    door.open();
    assert_eq!(client.finish().summary["acked"], 20);
    (broker.records(TOPIC, 0), front.told())
}

/// The same byte by byte, with Kafka itself, directly too.
#[test]
fn kafka_writes_what_comes_again_under_a_new_epoch_and_hapax_tells() {
    check_raw(None);
    if Route::chosen() == Route::Direct {
        return;
    }
    let (hapax, topic) = check_raw(Some(Lost::BeforeTheClient)).expect("through hapax");
    check_told(&hapax, &topic, "acknowledged", Some(1));
    let (hapax, topic) = check_raw(Some(Lost::BeforeHapax)).expect("through hapax");
    check_told(&hapax, &topic, "unknown", None);
}

fn check_told(hapax: &Hapax, topic: &str, kind: &str, offset: Option<i64>) {
    let events = hapax.events().into_iter();
    let events: Vec<Value> = events.filter(|e| e["event"] == "epoch_resend").collect();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["topic"], &events[0]["kind"]),
        (&topic.into(), &kind.into())
    );
    let told = events[0].get("original_offset").and_then(Value::as_i64);
    assert_eq!(told, offset);
    let counted = hapax.metric("hapax_epoch_resends_total", &[("original", kind)]);
    assert_eq!(whole(counted), 1);
    assert_eq!(hapax.batches(topic, "duplicate_absorbed"), 0);
    assert_eq!(hapax.batches(topic, "forwarded"), 3);
}

/// `None`: without hapax. hapax, and the topic with the records that came again.
fn check_raw(lost: Option<Lost>) -> Option<(Hapax, String)> {
    let cluster = Cluster::one();
    let [gapped, twice] = ["gapped", "twice"].map(|name| cluster.create_topic(name, 1));
    let (kafka, advertised) = cluster.fronts().next().expect("one node");
    let [near_port, far_port] =
        [free_ports(1), free_ports(1)].map(|port| format!("127.0.0.1:{port}"));
    let mut far = Door::default();
    far.leads(&far_port, &kafka);
    let hapax = lost.map(|_| {
        let map = format!("{advertised}={far_port}");
        Hapax::start(&["--upstream", &far_port, "--upstream-address-map", &map])
    });
    let mut near = Door::default();
    near.leads(
        &near_port,
        &hapax.as_ref().map_or(far_port, Hapax::bootstrap),
    );
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let now = i64::try_from(now.as_millis()).expect("a time of this age");
    let connect = || {
        let mut client = Connection::open(&near_port);
        client.metadata(&[&gapped, &twice]);
        client
    };

    let mut client = connect();
    let producer = client.init_producer_id();
    let batch = |epoch, sequence, value| batch_in_epoch(epoch, producer, sequence, now, value);
    for topic in [&gapped, &twice] {
        assert_eq!(client.produce(topic, &batch(0, 0, "0")).error_code, 0);
    }
    let gap = client.produce(&gapped, &batch(0, 2, "2"));
    assert_eq!(gap.error_code, 45);
    match lost {
        Some(Lost::BeforeHapax) => far.lose_answer(),
        Some(Lost::BeforeTheClient) | None => near.lose_answer(),
    }
    let cut = client.try_produce(&twice, &batch(0, 1, "77"));
    assert!(cut.is_err(), "{cut:?}");
    far.open();
    near.open();
    let mut client = connect();
    let again = client.produce(&twice, &batch(1, 0, "77"));
    assert_eq!((again.error_code, again.base_offset), (0, 2), "{lost:?}");

    let log = cluster.log(&twice);
    assert_eq!(values(&log)[&0], [0, 77, 77], "{lost:?}");
    let numbers: Vec<_> = log.iter().map(|b| (b.epoch, b.base_sequence)).collect();
    assert_eq!(numbers, [(0, 0), (0, 1), (1, 0)]);
    hapax.map(|hapax| (hapax, twice))
}
