//! What an operator sees: verdicts that add up, events once each, gauges that
//! come back to 0, pages that tell what happened.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse,
};
use serde_json::{Value, json};

use crate::broker::{failed, ok};
use crate::support::await_until;
use crate::support::batch::{Batch, TRANSACTIONAL, legacy_message_set};
use crate::support::raw::{Produce, transactional_id};
use crate::world::{PRODUCER, Pair, SOON, World, of_epoch, orders, ping, produce, produce_all};

/// Clients of the time before Kafka 0.11: nobody looks for them more than who
/// looks for producers without idempotence.
#[test]
fn a_request_from_before_record_batches_passes_as_it_is_and_is_counted() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    for (version, acks) in [(0, 1), (1, -1), (2, 1), (0, 0)] {
        let set = legacy_message_set(i8::from(version == 2), b"1");
        let mut body = BytesMut::new();
        body.put_i16(acks);
        body.put_i32(1_000);
        body.put_i32(1);
        body.put_slice(b"\0\x06orders");
        body.put_i32(2);
        for partition in 0..2 {
            body.put_i32(partition);
            body.put_i32(i32::try_from(set.len()).unwrap());
            body.put_slice(&set);
        }
        let (correlation, frame) = pair.client.frame_raw(0, version, 1, &body);
        pair.client.send_raw(&frame).unwrap();
        let asked = pair.broker.next();
        assert_eq!(asked.frame, frame[4..]);
        if acks != 0 {
            pair.broker.answer_raw(&asked, b"in a layout of its own");
            let answer = pair.client.receive_frame().unwrap();
            assert_eq!(answer[..4], correlation.to_be_bytes());
            assert_eq!(answer[4..], *b"in a layout of its own");
        }
        pair.barrier();
    }
    let counted = ["topic=\"orders\"", "verdict=\"untracked\""];
    let batches = world.hapax.metric("hapax_produce_batches_total", &counted);
    assert_eq!(batches, 8.0);
    assert_eq!(world.verdicts("untracked"), 8.0);
}

/// Sends a request that the broker answers with `code`, or at `offset`.
fn told(pair: &mut Pair, request: &Produce, code: i16, offset: i64) {
    let owed = pair.send(request);
    let asked = pair.broker.next();
    let answer = if code == 0 { ok(offset) } else { failed(code) };
    pair.broker.reply(&asked, |_| answer);
    assert_eq!(pair.receive(&owed)[0].code, code);
}

fn of(batch: &Batch) -> Produce {
    Produce::to(&orders(), 0, batch.bytes())
}

/// The one event that the scenario leaves, without id and time.
fn check_event(world: &World, expected: &Value) {
    let page = world.hapax.json("/api/v1/events");
    let mut events = page["events"].as_array().unwrap().clone();
    for event in &mut events {
        let event = event.as_object_mut().unwrap();
        assert!(event.remove("id").unwrap().as_u64().unwrap() >= 1);
        let time = event.remove("time").unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
        event.remove("detail");
        for words in ["sentence", "hint"] {
            let words = event.remove(words).unwrap();
            assert!(words.as_str().unwrap().ends_with('.'), "{words}");
        }
        let explain = event.remove("explain").unwrap();
        assert!([&event["event"], event.get("kind").unwrap_or(&Value::Null)].contains(&&explain));
    }
    assert_eq!(events, std::slice::from_ref(expected));
    let name = expected["event"].as_str().unwrap();
    let label = format!("event=\"{name}\"");
    assert_eq!(world.hapax.metric("hapax_events_total", &[&label]), 1.0);
    assert_eq!(world.gauge("hapax_events_total"), 1.0);
    let output = world.hapax.output();
    let line = format!("\"event\":\"{name}\"");
    assert_eq!(output.matches(&line).count(), 1, "{output}");
    assert!(!output.contains("value 0"), "{output}");
}

/// The fields that most events have.
fn event(name: &str, kind: Option<&str>, epoch: i16, first: i32) -> Value {
    let mut event = json!({
        "event": name, "topic": "orders", "partition": 0, "producer_id": PRODUCER,
        "epoch": epoch, "first": first, "count": 1, "client_id": "raw",
    });
    if let Some(kind) = kind {
        event["kind"] = kind.into();
    }
    event
}

fn with(mut event: Value, fields: &[(&str, Value)]) -> Value {
    for (name, value) in fields {
        event[*name] = value.clone();
    }
    event
}

#[test]
fn an_absorbed_duplicate_is_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 7);
    pair.answered_here(&produce(0));
    check_event(&world, &event("duplicate_absorbed", None, 0, 0));
}

#[test]
fn a_forwarded_duplicate_is_told() {
    let world = World::of("observe", &[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 7);
    pair.write(&produce(0), 7);
    check_event(&world, &event("duplicate_forwarded", None, 0, 0));
}

#[test]
fn a_gap_that_nobody_saw_filled_is_told_once() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    told(&mut pair, &produce(5), 45, 0);
    told(&mut pair, &produce(5), 45, 0);
    let missing = [("expected", json!(1)), ("missing", json!(4))];
    check_event(
        &world,
        &with(event("gap", Some("never_seen"), 0, 5), &missing),
    );
    assert_eq!(world.gauge("hapax_missing_records_total"), 4.0);
    let kind = ["kind=\"never_seen\""];
    assert_eq!(world.hapax.metric("hapax_gaps_total", &kind), 1.0);
    let code = ["error=\"out_of_order_sequence_number\""];
    let errors = world.hapax.metric("hapax_sequence_errors_total", &code);
    assert_eq!(errors, 2.0);
}

#[test]
fn a_gap_behind_a_failed_batch_is_told_once() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    told(&mut pair, &produce(1), 6, 0);
    assert_eq!(pair.answered_here(&produce(2))[0].code, 6);
    told(&mut pair, &produce(2), 45, 0);
    told(&mut pair, &produce(2), 45, 0);
    let missing = [("expected", json!(1)), ("missing", json!(1))];
    let gap = with(event("gap", Some("predecessor_failed"), 0, 2), &missing);
    check_event(&world, &gap);
    assert_eq!(world.verdicts("mirrored"), 1.0);
}

#[test]
fn a_beginning_that_is_none_is_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(3), 0);
    check_event(&world, &event("gap", Some("no_baseline"), 0, 3));
}

#[test]
fn a_reused_sequence_is_told_once() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    let other = Batch::of(PRODUCER, 0, 0, ["other bytes"]);
    told(&mut pair, &of(&other), 0, 0);
    told(&mut pair, &of(&other), 0, 0);
    check_event(&world, &event("sequence_reuse", None, 0, 0));
    assert_eq!(world.verdicts("sequence_reuse"), 2.0);
}

#[test]
fn an_overlap_is_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    let three = Batch::of(PRODUCER, 0, 0, ["a", "b", "c"]);
    told(&mut pair, &of(&three), 0, 0);
    let two = Batch::of(PRODUCER, 0, 2, ["c", "d"]);
    told(&mut pair, &of(&two), 45, 0);
    let overlap = with(event("overlap", None, 0, 2), &[("count", json!(2))]);
    check_event(&world, &overlap);
}

#[test]
fn a_stale_epoch_is_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    told(&mut pair, &of(&of_epoch(1, 0)), 0, 0);
    told(&mut pair, &of(&of_epoch(0, 9)), 47, 0);
    check_event(&world, &event("stale_epoch", None, 0, 9));
}

#[test]
fn an_unannounced_epoch_is_told_once_on_whichever_partition_it_shows_first() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    told(&mut pair, &of(&anew(1)), 0, 1);
    let elsewhere = Produce::to(&orders(), 1, of_epoch(1, 0).bytes());
    told(&mut pair, &elsewhere, 0, 0);
    check_event(&world, &event("epoch_bump", None, 1, 0));
    assert_eq!(world.gauge("hapax_producer_epoch_bumps_total"), 1.0);
}

/// The first batch of an epoch, whose records were not sent before.
fn anew(epoch: i16) -> Batch {
    Batch::of(PRODUCER, epoch, 0, [format!("of epoch {epoch}")])
}

/// InitProducerId, answered with this epoch.
fn init(pair: &mut Pair, id: &str, code: i16, epoch: i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional_id(id)))
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(epoch - 1);
    let correlation = pair.client.send(5, &request).unwrap();
    let asked = pair.broker.next();
    let answer = InitProducerIdResponse::default()
        .with_error_code(code)
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(epoch);
    pair.broker.answer(&asked, &answer);
    pair.client
        .receive::<InitProducerIdRequest>(5, correlation)
        .unwrap();
}

#[test]
fn an_epoch_that_a_coordinator_announced_is_no_bump() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    init(&mut pair, "tx", 0, 0);
    told(&mut pair, &produce(0), 0, 0);
    init(&mut pair, "tx", 0, 1);
    told(&mut pair, &of(&anew(1)), 0, 1);
    assert_eq!(world.events(), []);
    assert_eq!(world.gauge("hapax_producer_ids_issued_total"), 2.0);
    // KIP-890: each EndTxn answers the next epoch.
    let request = EndTxnRequest::default()
        .with_transactional_id(transactional_id("tx"))
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(1)
        .with_committed(true);
    let correlation = pair.client.send(5, &request).unwrap();
    let asked = pair.broker.next();
    let answer = EndTxnResponse::default()
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(2);
    pair.broker.answer(&asked, &answer);
    pair.client
        .receive::<EndTxnRequest>(5, correlation)
        .unwrap();
    told(&mut pair, &of(&anew(2)), 0, 2);
    assert_eq!(world.events(), []);
}

#[test]
fn a_fenced_producer_is_told_once_per_epoch() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    init(&mut pair, "tx", 0, 3);
    let mut batch = of_epoch(3, 0);
    batch.attributes = TRANSACTIONAL;
    let request = of(&batch).transactional("tx");
    told(&mut pair, &request, 47, 0);
    told(&mut pair, &request, 47, 0);
    let end = EndTxnRequest::default()
        .with_transactional_id(transactional_id("tx"))
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(3);
    let correlation = pair.client.send(5, &end).unwrap();
    let asked = pair.broker.next();
    let fenced = EndTxnResponse::default().with_error_code(90);
    pair.broker.answer(&asked, &fenced);
    pair.client
        .receive::<EndTxnRequest>(5, correlation)
        .unwrap();
    let named = [("transactional_id", json!("tx"))];
    let expected = with(event("fenced_producer", Some("broker"), 3, 0), &named);
    check_event(&world, &expected);
    assert_eq!(world.gauge("hapax_fenced_producers_total"), 1.0);
}

#[test]
fn a_broker_that_forgot_is_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    told(&mut pair, &produce(1), 45, 0);
    check_event(&world, &event("disagreement", None, 0, 1));
}

#[test]
fn a_cut_log_is_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 9);
    pair.write(&produce(1), 4);
    check_event(&world, &event("log_truncated", None, 0, 1));
}

/// Traffic with every verdict that absorb mode gives.
fn traffic(world: &World) -> usize {
    let mut pair = world.informed();
    pair.write(&produce_all(&[(0, 0), (1, 0), (2, 0)]), 0);
    pair.answered_here(&produce_all(&[(0, 0), (1, 0)]));
    let other = Batch::of(PRODUCER, 0, 0, ["other bytes"]);
    told(&mut pair, &of(&other), 0, 0);
    told(&mut pair, &produce(9), 45, 0);
    told(&mut pair, &produce(1), 6, 0);
    pair.answered_here(&produce(2));
    told(&mut pair, &of(&of_epoch(1, 0)), 0, 1);
    told(&mut pair, &of(&of_epoch(0, 3)), 47, 0);
    told(&mut pair, &of(&Batch::of(-1, -1, -1, ["v"])), 0, 2);
    let (_, asked) = pair.forwarded(&of(&Batch::of(PRODUCER, 1, 0, ["a", "b"])));
    pair.broker.reply(&asked, |_| failed(45));
    pair.client.receive_frame().unwrap();
    let twice = pair.forwarded(&produce_all(&[(3, 0), (3, 1)])).1;
    pair.broker.ack(&twice, 5);
    pair.client.receive_frame().unwrap();
    for request in [produce(0).acks(0), produce(0).acks(7)] {
        pair.send(&request);
        let asked = pair.broker.next();
        if asked.produce().acks != 0 {
            pair.broker.reply(&asked, |_| failed(21));
            pair.client.receive_frame().unwrap();
        }
    }
    3 + 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 2 + 2
}

/// Series of a metric by the value of their verdict label.
fn by_verdict(world: &World, name: &str) -> BTreeMap<String, f64> {
    let page = world.hapax.page("/metrics");
    let mut sums = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with(name)) {
        let (_, rest) = line.split_once("verdict=\"").unwrap();
        let (verdict, _) = rest.split_once('"').unwrap();
        let (_, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        *sums.entry(verdict.to_owned()).or_default() += value;
    }
    sums
}

#[test]
fn every_batch_gets_one_verdict_and_the_sums_add_up() {
    let world = World::new(&[]);
    let batches = traffic(&world);
    let totals = by_verdict(&world, "hapax_verdicts_total{");
    let topics = by_verdict(&world, "hapax_produce_batches_total{");
    assert_eq!(totals, topics);
    let batches = f64::from(u32::try_from(batches).unwrap());
    assert_eq!(totals.values().sum::<f64>(), batches, "{totals:?}");
    let topic = ["topic=\"orders\""];
    let of_topic = world.hapax.metric("hapax_produce_batches_total", &topic);
    assert_eq!(of_topic, batches);
    // A verdict that no batch of this traffic could get.
    assert_eq!(totals["refused"] + totals["duplicate_resolved"], 0.0);
}

#[test]
fn what_is_open_is_counted_back_to_0() {
    let world = World::new(&[]);
    traffic(&world);
    let mut held = world.pair();
    held.send(&Produce::to(
        &orders(),
        3,
        Batch::of(77, 0, 0, ["v"]).bytes(),
    ));
    held.send(&Produce::to(
        &orders(),
        3,
        Batch::of(77, 0, 1, ["v"]).bytes(),
    ));
    held.broker.next();
    await_until("the hold", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    assert_eq!(world.gauge("hapax_requests_in_flight"), 1.0);
    let Pair { client, broker } = held;
    client.reset();
    await_until("the orphan", SOON, || {
        world.gauge("hapax_orphan_sessions") == 1.0
    });
    drop(broker);
    for name in [
        "hapax_orphan_sessions",
        "hapax_client_connections",
        "hapax_requests_in_flight",
        "hapax_held_requests",
        "hapax_upstream_connections",
    ] {
        await_until(name, SOON, || world.gauge(name) == 0.0);
    }
    let page = world.hapax.json("/api/v1/connections");
    assert_eq!(page["connections"], json!([]));
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let world = World::new(&[]);
    traffic(&world);
    let page = world.hapax.page("/metrics");
    let (_, text) = page.split_once("\r\n\r\n").unwrap();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs: apt-get install prometheus");
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "");
}

#[test]
fn hapax_events_says_once_what_a_kind_of_event_means_and_the_log_how_to_read_on() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    told(&mut pair, &produce(5), 45, 0);
    pair.write(&produce(1), 1);
    told(&mut pair, &produce(9), 45, 0);
    let events = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["events", "--admin", &world.hapax.admin])
        .output()
        .unwrap();
    let printed = String::from_utf8(events.stdout).unwrap();
    let gaps = printed.matches(" gap (never_seen) orders-0 ").count();
    assert_eq!(gaps, 2, "{printed}");
    let read_on = printed
        .matches("    More: hapax explain never_seen\n")
        .count();
    assert_eq!(read_on, 1, "{printed}");
    let line = world.hapax.output();
    assert!(
        line.contains("\"explain\":\"hapax explain never_seen\""),
        "{line}"
    );
}

#[test]
fn a_connection_is_shown_with_what_it_does() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for _ in 0..3 {
        ping(&mut pair.client);
    }
    let asked: Vec<_> = (0..3).map(|_| pair.broker.next()).collect();
    // A session shows what it does once it waits, not when it writes.
    await_until("the requests to be shown", SOON, || {
        world.connection()["requests"] == 4
    });
    let row = world.connection();
    assert_eq!(row["in_flight"], 3);
    assert_eq!(row["upstream"], world.upstream.address.as_str());
    assert!(row["node"].is_null());
    assert_eq!(
        (&row["held"], &row["orphan"]),
        (&json!(false), &json!(false))
    );
    for asked in &asked {
        pair.broker.answer_raw(asked, b"pong");
        pair.client.receive_frame().unwrap();
    }
    await_until("none to be in flight", SOON, || {
        world.connection()["in_flight"] == 0
    });
}

#[test]
fn a_held_request_is_counted_once() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
    let asked = pair.broker.next();
    pair.broker.ack(&asked, 0);
    let asked = pair.broker.next();
    pair.broker.ack(&asked, 1);
    pair.receive_one(&r1);
    pair.receive_one(&r2);
    assert_eq!(world.connection()["requests"], 3);
}

#[test]
fn a_large_collected_request_is_counted_once() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let partitions = (0..8).map(|partition| {
        let mut batch = of_epoch(0, 0);
        batch.payload = Some(vec![7; 50 << 10]);
        (partition, Some(batch.bytes()))
    });
    let large = Produce::of(vec![(orders(), partitions.collect())]);
    pair.write(&large, 0);
    assert_eq!(world.connection()["requests"], 2);
}

#[test]
fn a_producer_is_shown_with_what_it_did() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    init(&mut pair, "tx", 0, 0);
    let two = Batch::of(PRODUCER, 0, 0, ["a", "b"]);
    told(&mut pair, &of(&two), 0, 40);
    pair.answered_here(&of(&two));
    told(&mut pair, &of(&of_epoch(0, 5)), 45, 0);
    let page = world.hapax.json("/api/v1/producers");
    let rows = page["producers"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    let mut row = rows[0].clone();
    assert!(row["age_seconds"].as_f64().unwrap() < 10.0);
    row.as_object_mut().unwrap().remove("age_seconds");
    let expected = json!({
        "producer_id": PRODUCER, "epoch": 0, "client_id": "raw", "transactional_id": "tx",
        "topic": "orders", "partition": 0, "last_acked_sequence": 1,
        // The offset of the record with that sequence.
        "last_acked_offset": 41, "absorbed": 1, "gaps": 1,
    });
    assert_eq!(row, expected);
    assert_eq!(world.gauge("hapax_producers"), 1.0);
}

#[test]
fn bytes_are_counted_as_the_sockets_saw_them() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let counted = |name, side| world.hapax.metric(name, &[side]);
    let before = counted("hapax_sent_bytes_total", "side=\"upstream\"");
    // More than the sockets' buffers take: a part of it has to wait.
    let body = vec![7; 64 << 20];
    let (_, frame) = pair.client.frame_raw(crate::broker::OPAQUE, 0, 1, &body);
    let mut stream = pair.client.stream().try_clone().unwrap();
    let whole = frame.clone();
    let writer = std::thread::spawn(move || stream.write_all(&whole).unwrap());
    crate::support::pause(std::time::Duration::from_millis(300));
    let asked = pair.broker.next();
    writer.join().unwrap();
    assert_eq!(asked.frame.len() + 4, frame.len());
    let sent = counted("hapax_sent_bytes_total", "side=\"upstream\"") - before;
    assert_eq!(sent, f64::from(u32::try_from(frame.len()).unwrap()));
}

#[test]
fn requests_are_counted_by_api_and_outcome() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 0);
    pair.answered_here(&produce(0));
    told(&mut pair, &produce(1), 6, 0);
    let count = |api: &str, outcome: &str| {
        let labels = [format!("api=\"{api}\""), format!("outcome=\"{outcome}\"")];
        let labels = labels.each_ref().map(|label| &**label);
        world.hapax.metric("hapax_requests_total", &labels)
    };
    assert_eq!(count("metadata", "ok"), 1.0);
    assert_eq!(count("produce", "short_circuit"), 1.0);
    assert_eq!(count("produce", "error"), 1.0);
    assert_eq!(count("produce", "ok"), 1.0);
}

#[test]
fn the_effective_configuration_is_shown_with_who_set_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hapax.yaml");
    let text = "# levels\nsequence:\n  mode: observe\n  windowBatches: 9\nworkers: 2\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let world = World::new(&["--config", file, "--workers=1"]);
    let page = world.hapax.json("/api/v1/config");
    for (key, value, origin) in [
        ("sequence.mode", json!("absorb"), "flag --mode".to_owned()),
        ("sequence.windowBatches", json!(9), format!("{file}:4")),
        ("sequence.ttl", json!("5m"), "default".to_owned()),
        ("workers", json!(1), "flag --workers".to_owned()),
        (
            "listen.bootstrap",
            json!(world.hapax.bootstrap),
            "flag --listen".to_owned(),
        ),
    ] {
        let at = format!("/config/{}", key.replace('.', "/"));
        assert_eq!(page.pointer(&at), Some(&value), "{page}");
        assert_eq!(page["origins"][key], origin, "{page}");
    }
    // Every key is there.
    let keys = hapax::config::keys::KEYS.len();
    assert_eq!(page["origins"].as_object().unwrap().len(), keys);
    // What it shows is a configuration: JSON is YAML.
    let again = folder.path().join("again.yaml");
    std::fs::write(&again, page["config"].to_string()).unwrap();
    let other = World::new(&["--config", again.to_str().unwrap(), "--workers=1"]);
    let shown = other.hapax.json("/api/v1/config");
    assert_eq!(shown["config"]["sequence"], page["config"]["sequence"]);
    assert_eq!(other.gauge("hapax_windows_limit"), 100_000.0);
}
