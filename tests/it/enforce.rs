//! Mode enforce: stale epochs that are proven, and policies by topic.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse,
    SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use std::io::Read;

use crate::broker::OPAQUE;
use crate::support::await_until;
use crate::support::batch::{Batch, TRANSACTIONAL, legacy_message_set};
use crate::support::raw::{Answer, Produce, Topic, transactional_id};
use crate::world::{
    ID, NEW_ID, Owed, PRODUCER, Pair, SOON, World, batch, of_epoch, orders, produce, produce_all,
};

const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const POLICY_VIOLATION: i16 = 44;
const INVALID_PRODUCER_EPOCH: i16 = 47;

fn codes(answers: &[Answer]) -> Vec<(i32, i16)> {
    let mut codes: Vec<_> = answers.iter().map(|a| (a.partition, a.code)).collect();
    codes.sort_unstable();
    codes
}

/// A request with this batch for partition 0.
fn of(batch: &Batch) -> Produce {
    Produce::to(&orders(), 0, batch.bytes())
}

/// The cluster has acknowledged a batch of epoch 1.
fn moved_on(pair: &mut Pair) {
    pair.write(&of(&of_epoch(0, 0)), 0);
    pair.write(&of(&of_epoch(1, 0)), 1);
}

/// The request reaches the broker as it is, and is answered.
fn passes(pair: &mut Pair, produce: &Produce) {
    let (owed, asked) = pair.forwarded(produce);
    pair.broker.ack(&asked, 70);
    assert!(pair.receive(&owed).iter().all(|answer| answer.code == 0));
}

#[test]
fn a_batch_of_an_epoch_that_the_cluster_has_left_is_refused() {
    for version in [3, 7, 8, 9, 12, 13] {
        let world = World::of("enforce", &[]);
        let mut pair = world.informed();
        moved_on(&mut pair);
        let mut zombie = world.pair();
        let late = of(&of_epoch(0, 1)).version(version);
        for _ in 0..2 {
            let answers = zombie.answered_here(&late);
            assert_eq!(codes(&answers), [(0, INVALID_PRODUCER_EPOCH)]);
            assert_eq!(answers[0].offset, -1);
        }
        assert_eq!(world.verdicts("refused"), 2.0, "version {version}");
        let told = world.events();
        let stale = told.iter().filter(|(event, _)| event == "stale_epoch");
        assert_eq!(stale.count(), 1, "a retry is not told again: {told:?}");
        // The producer itself goes on.
        passes(&mut pair, &of(&of_epoch(1, 1)).version(version));
    }
}

#[test]
fn even_a_batch_that_was_acknowledged_in_that_epoch_is_refused_as_brokers_do() {
    let world = World::of("enforce", &[]);
    let mut pair = world.informed();
    moved_on(&mut pair);
    let answers = pair.answered_here(&of(&of_epoch(0, 0)));
    assert_eq!(codes(&answers), [(0, INVALID_PRODUCER_EPOCH)]);
}

#[test]
fn a_stale_batch_of_unknown_outcome_is_refused_too() {
    let world = World::of("enforce", &[]);
    let mut lost = world.informed();
    lost.write(&of(&of_epoch(0, 0)), 0);
    let (_, _) = lost.forwarded(&of(&of_epoch(0, 1)));
    drop(lost.broker);
    assert!(lost.client.is_closed(SOON));
    let mut pair = world.pair();
    passes(&mut pair, &of(&of_epoch(1, 0)));
    let answers = pair.answered_here(&of(&of_epoch(0, 1)));
    assert_eq!(codes(&answers), [(0, INVALID_PRODUCER_EPOCH)]);
}

#[test]
fn without_the_mode_or_the_proof_it_is_forwarded() {
    // Another mode.
    for mode in ["observe", "absorb"] {
        let world = World::of(mode, &[]);
        let mut pair = world.informed();
        moved_on(&mut pair);
        passes(&mut pair, &of(&of_epoch(0, 1)));
        assert_eq!(world.verdicts("refused"), 0.0);
        assert_eq!(world.verdicts("stale_epoch"), 1.0);
    }
    let world = World::of("enforce", &[]);
    let mut pair = world.informed();
    // A higher epoch that the cluster refused proves nothing.
    pair.write(&of(&of_epoch(0, 0)), 0);
    let (owed, asked) = pair.forwarded(&of(&of_epoch(9, 3)));
    pair.broker.reply(&asked, |_| crate::broker::failed(45));
    assert_eq!(pair.receive_one(&owed).code, 45);
    passes(&mut pair, &of(&of_epoch(0, 1)));
    // Nor does one on another partition.
    let elsewhere = Produce::to(&orders(), 1, of_epoch(5, 0).bytes());
    pair.write(&elsewhere, 0);
    passes(&mut pair, &of(&of_epoch(0, 2)));
    // Nor one of the topic that had the name before.
    pair.write(&of(&of_epoch(1, 0)), 3);
    pair.learn(NEW_ID);
    passes(&mut pair, &of(&of_epoch(0, 3)));
    assert_eq!(world.verdicts("refused"), 0.0);
}

/// A name may be that of another topic by now, which only an id rules out.
#[test]
fn of_a_topic_without_an_id_nothing_is_proven() {
    let world = World::of("enforce", &[]);
    let mut pair = world.pair();
    moved_on(&mut pair);
    passes(&mut pair, &of(&of_epoch(0, 1)));
    assert_eq!(world.verdicts("refused"), 0.0);
    assert_eq!(world.verdicts("stale_epoch"), 1.0);
    // And it was followed: its outcome is known.
    let again = pair.forwarded(&of(&of_epoch(0, 1)));
    pair.broker.ack(&again.1, 70);
}

#[test]
fn a_refused_batch_leaves_the_others_of_its_request() {
    for version in [3, 8, 9, 12, 13] {
        let world = World::of("enforce", &[]);
        let mut pair = world.informed();
        moved_on(&mut pair);
        let owed = pair.send(&produce_all(&[(0, 1), (1, 0), (2, 0)]).version(version));
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(1, 0), (2, 0)]);
        pair.broker.ack(&asked, 5);
        let answers = pair.receive(&owed);
        let expected = [(0, INVALID_PRODUCER_EPOCH), (1, 0), (2, 0)];
        assert_eq!(codes(&answers), expected, "version {version}");
    }
}

#[test]
fn a_refusal_waits_for_its_turn() {
    let world = World::of("enforce", &[]);
    let mut pair = world.informed();
    moved_on(&mut pair);
    let (first, asked) = pair.forwarded(&of(&of_epoch(1, 1)));
    let refused = pair.send(&of(&of_epoch(0, 1)));
    pair.broker.ack(&asked, 2);
    assert_eq!(pair.receive_one(&first).code, 0);
    assert_eq!(pair.receive_one(&refused).code, INVALID_PRODUCER_EPOCH);
}

/// InitProducerId for a transactional id, answered with this epoch.
fn init(pair: &mut Pair, epoch: i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional_id("tx")))
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(epoch - 1);
    let correlation = pair.client.send(5, &request).unwrap();
    let asked = pair.broker.next();
    let answer = InitProducerIdResponse::default()
        .with_producer_id(PRODUCER.into())
        .with_producer_epoch(epoch);
    pair.broker.answer(&asked, &answer);
    let received = pair.client.receive::<InitProducerIdRequest>(5, correlation);
    received.unwrap();
}

fn of_transaction(epoch: i16, sequence: i32) -> Produce {
    let mut batch = of_epoch(epoch, sequence);
    batch.attributes = TRANSACTIONAL;
    of(&batch).transactional("tx")
}

#[test]
fn a_transaction_of_an_epoch_that_the_coordinator_took_back_is_refused() {
    let world = World::of("enforce", &[]);
    let mut zombie = world.informed();
    init(&mut zombie, 4);
    zombie.write(&of_transaction(4, 0), 0);
    let mut successor = world.pair();
    init(&mut successor, 5);
    let answers = zombie.answered_here(&of_transaction(4, 1));
    assert_eq!(codes(&answers), [(0, INVALID_PRODUCER_EPOCH)]);
    // Nobody was proven to be fenced who is not in a transaction.
    passes(&mut zombie, &of(&of_epoch(4, 1)));
    passes(&mut successor, &of_transaction(5, 0));
    let fenced = world
        .hapax
        .metric("hapax_fenced_producers_total", &["source=\"proxy\""]);
    assert_eq!(fenced, 1.0);
}

#[test]
fn an_acknowledged_batch_of_such_a_transaction_is_left_to_the_broker() {
    let world = World::of("enforce", &[]);
    let mut pair = world.informed();
    init(&mut pair, 4);
    pair.write(&of_transaction(4, 0), 0);
    init(&mut pair, 5);
    passes(&mut pair, &of_transaction(4, 0));
    let absorbing = World::of("enforce", &["--sequence-absorb-transactional"]);
    let mut pair = absorbing.informed();
    init(&mut pair, 4);
    let first = pair.write(&of_transaction(4, 0), 0);
    init(&mut pair, 5);
    assert_eq!(pair.answered_here(&of_transaction(4, 0)), first);
}

fn without_producer(value: &str) -> Batch {
    let mut batch = Batch::of(-1, -1, -1, [value]);
    batch.sequence = -1;
    batch
}

/// Codes and messages of an answer, by partition.
fn said(pair: &mut Pair, owed: &Owed) -> Vec<(i32, i16, Option<String>)> {
    let response: ProduceResponse = pair
        .client
        .receive::<ProduceRequest>(owed.version, owed.correlation)
        .unwrap();
    let partitions = response
        .responses
        .iter()
        .flat_map(|t| &t.partition_responses);
    let said = partitions.map(|p| {
        assert_eq!(p.record_errors, []);
        let message = p.error_message.as_ref().map(ToString::to_string);
        (p.index, p.error_code, message)
    });
    let mut said: Vec<_> = said.collect();
    said.sort_unstable();
    said
}

fn violations(world: &World, policy: &str) -> f64 {
    let labels = ["topic=\"orders\"", &format!("policy=\"{policy}\"")];
    world.hapax.metric("hapax_policy_violations_total", &labels)
}

#[test]
fn a_producer_without_idempotence_is_told_what_to_set() {
    for version in 3..=13 {
        let world = World::of("enforce", &["--policies=ord*=idempotence"]);
        let mut pair = world.informed();
        let owed = pair.send(&of(&without_producer("1")).version(version));
        let [(partition, code, message)] = &said(&mut pair, &owed)[..] else {
            panic!("one answer");
        };
        assert_eq!((*partition, *code), (0, POLICY_VIOLATION));
        match message {
            Some(message) => {
                assert!(version >= 8);
                for setting in [
                    "enable.idempotence=true",
                    "Producer.Idempotent=true",
                    "kgo.",
                ] {
                    assert!(message.contains(setting), "{message}");
                }
            }
            None => assert!(version < 8, "version {version} can say it"),
        }
        pair.barrier();
        assert_eq!(world.verdicts("refused"), 1.0);
        assert_eq!(violations(&world, "idempotence"), 1.0);
        passes(&mut pair, &produce(0).version(version));
        assert_eq!(violations(&world, "idempotence"), 1.0);
    }
}

#[test]
fn every_requirement_that_is_missing_is_named_and_counted() {
    let policies = "--policies=orders=acks_all,o*=idempotence+transactional";
    let world = World::of("enforce", &[policies]);
    let mut pair = world.informed();
    let owed = pair.send(&of(&without_producer("1")).acks(1));
    let [(0, POLICY_VIOLATION, Some(message))] = &said(&mut pair, &owed)[..] else {
        panic!("one answer with a message");
    };
    for setting in ["enable.idempotence=true", "acks=all", "transactional.id"] {
        assert!(message.contains(setting), "{message}");
    }
    let owed = pair.send(&produce(0));
    let [(0, POLICY_VIOLATION, Some(message))] = &said(&mut pair, &owed)[..] else {
        panic!("one answer with a message");
    };
    assert!(message.contains("transactional.id") && !message.contains("acks=all"));
    passes(&mut pair, &of_transaction(0, 0));
    for (policy, count) in [
        ("idempotence", 1.0),
        ("acks_all", 1.0),
        ("transactional", 2.0),
    ] {
        assert_eq!(violations(&world, policy), count, "{policy}");
    }
}

#[test]
fn other_modes_forward_and_count_what_enforce_would_refuse() {
    for mode in ["observe", "absorb"] {
        let world = World::of(mode, &["--policies=*+!other=idempotence+acks_all"]);
        let mut pair = world.informed();
        passes(&mut pair, &of(&without_producer("1")).acks(1));
        passes(&mut pair, &produce(0).acks(1));
        passes(&mut pair, &produce(1));
        assert_eq!(violations(&world, "idempotence"), 1.0, "{mode}");
        assert_eq!(violations(&world, "acks_all"), 2.0);
        assert_eq!(violations(&world, "transactional"), 0.0);
        assert_eq!(world.verdicts("refused"), 0.0);
        assert!(
            world
                .hapax
                .output()
                .contains("policies only count in this mode")
        );
        let page = world.hapax.json("/api/v1/events");
        let events = page["events"].as_array().unwrap();
        // Once for a connection and what it lacks, not for each batch.
        let told: Vec<_> = events
            .iter()
            .filter(|event| event["event"] == "policy_violation")
            .collect();
        assert_eq!(told.len(), 1, "{page}");
        let detail = told[0]["detail"].as_str().unwrap();
        assert!(detail.contains("only mode enforce refuses"), "{detail}");
        assert_eq!(
            (&told[0]["topic"], &told[0]["client_id"]),
            (&"orders".into(), &"raw".into())
        );
    }
}

#[test]
fn a_policy_refuses_only_the_topics_that_it_names() {
    let other = Topic::of("other", NEW_ID);
    let plain = |value: &str| Some(without_producer(value).bytes());
    for version in [3, 8, 9, 12] {
        let world = World::of("enforce", &["--policies=ord*=idempotence"]);
        let mut pair = world.informed();
        let request = Produce::of(vec![
            (orders(), vec![(0, plain("1")), (1, Some(batch(0)))]),
            (other.clone(), vec![(7, plain("2"))]),
        ]);
        let owed = pair.send(&request.version(version));
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(1, 0), (7, -1)]);
        pair.broker.ack(&asked, 5);
        let said = said(&mut pair, &owed);
        let codes: Vec<_> = said.iter().map(|(p, code, _)| (*p, *code)).collect();
        assert_eq!(codes, [(0, POLICY_VIOLATION), (1, 0), (7, 0)]);
        assert_eq!(said[0].2.is_some(), version >= 8);
        assert_eq!(said[1].2, None);
        pair.barrier();
    }
}

#[test]
fn a_retry_of_what_was_acknowledged_writes_nothing_and_is_answered() {
    let world = World::of("enforce", &["--policies=*=acks_all"]);
    let mut pair = world.informed();
    let first = pair.write(&produce(0), 7);
    assert_eq!(pair.answered_here(&produce(0).acks(1)), first);
    assert_eq!(violations(&world, "acks_all"), 0.0);
    let answers = pair.answered_here(&produce(1).acks(1));
    assert_eq!(codes(&answers), [(0, POLICY_VIOLATION)]);
}

#[test]
fn what_shows_no_producer_is_not_idempotent_whatever_its_shape() {
    let world = World::of("enforce", &["--policies=*=idempotence"]);
    let mut pair = world.informed();
    let mut trailing = without_producer("1").bytes().to_vec();
    trailing.push(0);
    let plain = without_producer("1").bytes();
    let two = [&plain[..], &plain[..]].concat();
    let set = legacy_message_set(1, b"1").to_vec();
    for records in [trailing, two, set, vec![1, 2, 3]] {
        let request = Produce::to(&orders(), 0, records.into());
        let answers = pair.answered_here(&request);
        assert_eq!(codes(&answers), [(0, POLICY_VIOLATION)]);
    }
    // A partition that is named twice is two batches, each judged by itself.
    let twice = Produce::of(vec![(
        orders(),
        vec![(1, Some(batch(0))), (1, Some(plain)), (2, Some(batch(0)))],
    )]);
    let owed = pair.send(&twice);
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(1, 0), (2, 0)]);
    pair.broker.ack(&asked, 5);
    let codes = codes(&pair.receive(&owed));
    assert_eq!(codes, [(1, 0), (1, POLICY_VIOLATION), (2, 0)]);
    // Nothing is written of null, which only the broker can refuse.
    let null = Produce::of(vec![(orders(), vec![(0, None)])]);
    let (_, _) = pair.forwarded(&null);
}

/// A request of a version before 3, as (partition, message set) of `orders`.
fn old(version: i16, acks: i16, topic: &[u8], partitions: &[i32]) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_i16(acks);
    body.put_i32(1_000);
    body.put_i32(1);
    body.put_u16(u16::try_from(topic.len()).unwrap());
    body.put_slice(topic);
    body.put_i32(i32::try_from(partitions.len()).unwrap());
    for partition in partitions {
        let set = legacy_message_set(i8::from(version == 2), b"1");
        body.put_i32(*partition);
        body.put_i32(i32::try_from(set.len()).unwrap());
        body.put_slice(&set);
    }
    body
}

#[test]
fn a_request_from_before_record_batches_is_refused_in_its_own_layout() {
    for version in 0..3 {
        let world = World::of("enforce", &["--policies=orders=idempotence"]);
        let mut pair = world.informed();
        let (correlation, frame) =
            pair.client
                .frame_raw(0, version, 1, &old(version, -1, b"orders", &[0, 1]));
        pair.client.send_raw(&frame).unwrap();
        let mut expected = BytesMut::new();
        expected.put_i32(correlation);
        expected.put_i32(1);
        expected.put_slice(b"\0\x06orders");
        expected.put_i32(2);
        for partition in 0..2 {
            expected.put_i32(partition);
            expected.put_i16(POLICY_VIOLATION);
            expected.put_i64(-1);
            if version == 2 {
                expected.put_i64(-1);
            }
        }
        if version >= 1 {
            expected.put_i32(0);
        }
        assert_eq!(pair.client.receive_frame().unwrap(), expected, "{version}");
        pair.barrier();
        // Another topic passes.
        let (_, frame) = pair
            .client
            .frame_raw(0, version, 1, &old(version, -1, b"other", &[0]));
        pair.client.send_raw(&frame).unwrap();
        assert_eq!(pair.broker.next().frame, frame[4..]);
    }
}

/// Answers of the time before version 3 are not merged: what came with a
/// refused batch was not written either, and is told so.
#[test]
fn what_comes_with_a_refused_batch_in_an_old_request_comes_again() {
    let world = World::of("enforce", &["--policies=orders=idempotence"]);
    let mut pair = world.informed();
    let mut body = old(1, -1, b"orders", &[0]);
    body[6..10].copy_from_slice(&2i32.to_be_bytes());
    let other = old(1, -1, b"other", &[0]);
    body.extend_from_slice(&other[10..]);
    let (_, frame) = pair.client.frame_raw(0, 1, 1, &body);
    pair.client.send_raw(&frame).unwrap();
    let answer = pair.client.receive_frame().unwrap();
    let after = |name: &[u8]| {
        let at = answer.windows(name.len()).position(|w| w == name).unwrap();
        let code = at + name.len() + 8;
        i16::from_be_bytes([answer[code], answer[code + 1]])
    };
    assert_eq!(after(b"\0\x06orders"), POLICY_VIOLATION);
    assert_eq!(after(b"\0\x05other"), NOT_ENOUGH_REPLICAS);
    pair.barrier();
}

/// Batches of 100 KiB for several partitions, as a large request has them.
fn large(batches: &[(i32, Option<i32>)]) -> Produce {
    let partitions = batches.iter().map(|(partition, sequence)| {
        let mut batch = match sequence {
            Some(sequence) => of_epoch(0, *sequence),
            None => without_producer("1"),
        };
        batch.payload = Some(vec![7; 100 << 10]);
        (*partition, Some(batch.bytes()))
    });
    Produce::of(vec![(orders(), partitions.collect())])
}

#[test]
fn a_large_request_hides_nothing_from_a_policy() {
    let world = World::of("enforce", &["--policies=orders=idempotence"]);
    let mut pair = world.informed();
    // Its producer is calm: it would stream in mode absorb.
    pair.write(&large(&[(0, Some(0)), (1, Some(0))]), 5);
    let owed = pair.send(&large(&[(0, Some(1)), (1, None), (2, Some(0))]));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1), (2, 0)]);
    pair.broker.ack(&asked, 6);
    let codes = codes(&pair.receive(&owed));
    assert_eq!(codes, [(0, 0), (1, POLICY_VIOLATION), (2, 0)]);
    // Of one partition the head says everything: nothing of it is kept.
    let answers = pair.answered_here(&large(&[(0, None)]));
    assert_eq!(answers[0].code, POLICY_VIOLATION);
}

/// The client sends the first `sent` bytes of a request.
fn begin(pair: &mut Pair, request: &Produce, sent: usize) -> Bytes {
    let (_, frame) = pair.client.frame(12, &request.request());
    pair.client.send_raw(&frame[..sent]).unwrap();
    frame
}

#[test]
fn what_cannot_be_collected_is_cut_off_before_the_broker_has_it_whole() {
    let flags = [
        "--policies=orders=idempotence",
        "--limits-collected-bytes=0",
    ];
    let world = World::of("enforce", &flags);
    let mut pair = world.informed();
    pair.write(&large(&[(0, Some(0))]), 5);
    let frame = begin(&mut pair, &large(&[(0, Some(1)), (1, None)]), 66 << 10);
    // The first bytes are at the broker: it is too late to take them back.
    assert_eq!(pair.broker.stream.peek(&mut [0]).unwrap(), 1);
    let _ = pair.client.send_raw(&frame[66 << 10..]);
    assert!(pair.client.is_closed(SOON));
    let mut at_broker = Vec::new();
    let _ = pair.broker.stream.read_to_end(&mut at_broker);
    assert!(at_broker.len() < frame.len(), "the broker has all of it");
    assert_eq!(violations(&world, "idempotence"), 1.0);
    assert_eq!(world.verdicts("refused"), 1.0);
    let cause = "cause=\"policy\"";
    let closed = || {
        world
            .hapax
            .metric("hapax_client_disconnects_total", &[cause])
    };
    await_until("the disconnect", SOON, || closed() == 1.0);
}

#[test]
fn what_cannot_be_collected_and_begins_with_a_violation_does_not_reach_the_broker() {
    let flags = [
        "--policies=orders=idempotence",
        "--limits-collected-bytes=0",
    ];
    let world = World::of("enforce", &flags);
    let mut pair = world.informed();
    let request = large(&[(0, None), (1, Some(0))]);
    let frame = begin(&mut pair, &request, 66 << 10);
    let _ = pair.client.send_raw(&frame[66 << 10..]);
    assert!(pair.client.is_closed(SOON));
    pair.broker.assert_ended();
    assert_eq!(violations(&world, "idempotence"), 1.0);
}

/// A stale batch of a request that streams is seen when other bytes of it have
/// left. Its retry is collected, and told.
#[test]
fn a_stale_batch_in_a_streamed_request_is_cut_off_and_then_refused() {
    let world = World::of("enforce", &[]);
    let mut pair = world.informed();
    let both = |epoch: i16, sequence: i32, stale: Option<(i16, i32)>| {
        let of = |(epoch, sequence): (i16, i32)| {
            let mut batch = of_epoch(epoch, sequence);
            batch.payload = Some(vec![7; 100 << 10]);
            Some(batch.bytes())
        };
        let newest = (epoch, sequence);
        let partitions = vec![(0, of(newest)), (1, of(stale.unwrap_or(newest)))];
        Produce::of(vec![(orders(), partitions)])
    };
    pair.write(&both(0, 0, None), 5);
    pair.write(&both(1, 0, None), 6);
    let request = both(1, 1, Some((0, 1)));
    let frame = begin(&mut pair, &request, 66 << 10);
    assert_eq!(pair.broker.stream.peek(&mut [0]).unwrap(), 1);
    let _ = pair.client.send_raw(&frame[66 << 10..]);
    assert!(pair.client.is_closed(SOON));
    let mut at_broker = Vec::new();
    let _ = pair.broker.stream.read_to_end(&mut at_broker);
    assert!(at_broker.len() < frame.len(), "the broker has all of it");
    let mut again = world.pair();
    let owed = again.send(&request);
    let asked = again.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    again.broker.ack(&asked, 7);
    let codes = codes(&again.receive(&owed));
    assert_eq!(codes, [(0, 0), (1, INVALID_PRODUCER_EPOCH)]);
}

#[test]
fn a_large_request_that_no_policy_can_refuse_streams_as_before() {
    for policies in ["--policies=other=idempotence", "--policies=*=acks_all"] {
        let world = World::of("enforce", &[policies]);
        let mut pair = world.informed();
        pair.write(&large(&[(0, Some(0)), (1, Some(0))]), 5);
        let request = large(&[(0, Some(1)), (1, Some(1))]);
        let frame = begin(&mut pair, &request, 66 << 10);
        assert_eq!(pair.broker.stream.peek(&mut [0]).unwrap(), 1);
        pair.client.send_raw(&frame[66 << 10..]).unwrap();
        let asked = pair.broker.next();
        assert!(asked.frame == frame[4..], "other bytes arrived");
    }
}

#[test]
fn with_acks_0_the_connection_ends_and_what_brokers_would_take_is_written() {
    let world = World::of("enforce", &["--policies=orders=idempotence"]);
    let mut pair = world.informed();
    let other = Topic::of("other", NEW_ID);
    let plain = |value: &str| Some(without_producer(value).bytes());
    // An answer that is owed comes first.
    let (first, asked) = pair.forwarded(&produce(0));
    let request = Produce::of(vec![
        (orders(), vec![(0, plain("1"))]),
        (other, vec![(7, plain("2"))]),
    ]);
    let (_, frame) = pair.client.frame(12, &request.acks(0).request());
    pair.client.send_raw(&frame).unwrap();
    pair.broker.assert_silent();
    pair.broker.ack(&asked, 3);
    assert_eq!(pair.receive_one(&first).code, 0);
    assert_eq!(pair.broker.next().sequences(), [(7, -1)]);
    assert!(pair.client.is_closed(SOON));
    pair.broker.assert_ended();
    assert_eq!(world.verdicts("refused"), 1.0);
    assert_eq!(violations(&world, "idempotence"), 1.0);
    assert!(world.hapax.output().contains("acks=0 lacks what a policy"));
}

#[test]
fn a_topic_whose_name_is_not_known_is_asked_for_first() {
    let world = World::of("enforce", &["--policies=orders=idempotence"]);
    let mut pair = world.pair();
    let plain = || of(&without_producer("1")).version(13);
    // What meets every policy there is needs no name.
    passes(&mut pair, &produce(0).version(13));
    let answers = pair.answered_here(&plain());
    assert_eq!(codes(&answers), [(0, NOT_LEADER_OR_FOLLOWER)]);
    pair.learn(ID);
    let answers = pair.answered_here(&plain());
    assert_eq!(codes(&answers), [(0, POLICY_VIOLATION)]);
    // A policy for every topic needs none.
    let world = World::of("enforce", &["--policies=*=idempotence"]);
    let answers = world.pair().answered_here(&plain());
    assert_eq!(codes(&answers), [(0, POLICY_VIOLATION)]);
    // And nobody is kept from another topic.
    let world = World::of("enforce", &["--policies=payments=idempotence"]);
    let mut pair = world.informed();
    passes(&mut pair, &plain());
}

/// Whoever begins to authenticate gets what the broker gives, but no way
/// around a policy: a plaintext listener refuses the handshake and goes on.
#[test]
fn a_handshake_before_it_hides_nothing_from_a_policy() {
    for version in [12, 13] {
        let world = World::of("enforce", &["--policies=orders=idempotence"]);
        let mut pair = world.informed();
        let mechanism = StrBytes::from_static_str("PLAIN");
        let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
        let handshake = pair.client.send(1, &request).unwrap();
        let owed = pair.send(&of(&without_producer("1")).version(version));
        let asked = pair.broker.next();
        assert_eq!(asked.key, 17);
        let refusal = SaslHandshakeResponse::default().with_error_code(34);
        pair.broker.answer(&asked, &refusal);
        let received = pair.client.receive::<SaslHandshakeRequest>(1, handshake);
        assert_eq!(received.unwrap().error_code, 34);
        assert_eq!(pair.receive_one(&owed).code, POLICY_VIOLATION);
        let answers = pair.answered_here(&of(&without_producer("1")).version(version));
        assert_eq!(codes(&answers), [(0, POLICY_VIOLATION)]);
    }
}

#[test]
fn without_policies_and_stale_epochs_enforce_is_absorb() {
    let world = World::of("enforce", &[]);
    let mut pair = world.informed();
    passes(&mut pair, &of(&without_producer("1")).acks(1));
    let first = pair.write(&produce(0), 7);
    assert_eq!(pair.answered_here(&produce(0)), first);
    let ping = crate::world::ping(&mut pair.client);
    let asked = pair.broker.next();
    assert_eq!((asked.key, asked.correlation), (OPAQUE, ping));
    assert_eq!(world.verdicts("duplicate_absorbed"), 1.0);
}
