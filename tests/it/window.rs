//! The window through the wire: what is absorbed, and what is left to the broker.

use bytes::Bytes;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_response::{LeaderIdAndEpoch, NodeEndpoint};
use kafka_protocol::protocol::StrBytes;

use crate::broker::{self, failed, ok};
use crate::support::batch::{Batch, CONTROL, TRANSACTIONAL};
use crate::support::raw::{Answer, Produce, Topic};
use crate::world::{
    ID, NEW_ID, PRODUCER, Pair, World, batch, of_epoch, orders, produce, produce_all,
};

/// Sends a request that the broker gets as it is, and acknowledges.
fn passes(pair: &mut Pair, produce: &Produce, offset: i64) {
    let (owed, asked) = pair.forwarded(produce);
    pair.broker.ack(&asked, offset);
    let answers = pair.receive(&owed);
    assert!(answers.iter().all(|a| a.code == 0 && a.offset == offset));
}

#[test]
fn a_retry_after_the_acknowledgement_gets_it_again_with_the_latest_log_start() {
    for version in [3, 5, 8, 9, 12, 13] {
        let world = World::new(&[]);
        let mut pair = world.pair();
        let write = |pair: &mut Pair, sequence, answer: Answer| {
            let owed = pair.send(&produce(sequence).version(version));
            let asked = pair.broker.next();
            pair.broker.reply(&asked, |_| answer);
            pair.receive_one(&owed)
        };
        let first = Answer {
            append_time: 1_234,
            log_start: 3,
            ..ok(100)
        };
        let got = write(&mut pair, 0, first);
        let later = Answer {
            log_start: 50,
            ..ok(101)
        };
        write(&mut pair, 1, later);
        let mut retry = world.pair();
        let again = retry.answered_here(&produce(0).version(version));
        let log_start = if version >= 5 { 50 } else { got.log_start };
        assert_eq!(again, [Answer { log_start, ..got }], "version {version}");
        assert_eq!(world.verdicts("duplicate_absorbed"), 1.0);
    }
}

#[test]
fn a_retry_before_the_acknowledgement_is_left_to_the_broker() {
    // The records are so old that it would be looked for in the log first.
    let world = World::new(&["--sequence-resolve=false"]);
    let (mut first, mut second) = (world.pair(), world.pair());
    let (a, asked_a) = first.forwarded(&produce(0));
    let (b, asked_b) = second.forwarded(&produce(0));
    first.broker.ack(&asked_a, 7);
    second.broker.ack(&asked_b, 7);
    assert_eq!(first.receive_one(&a).offset, 7);
    assert_eq!(second.receive_one(&b).offset, 7);
    assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
    assert_eq!(world.verdicts("duplicate_absorbed"), 0.0);
}

#[test]
fn a_partly_absorbed_request_is_split_and_its_answers_are_merged() {
    for version in [3, 8, 9, 12, 13] {
        let world = World::new(&[]);
        let mut pair = world.pair();
        pair.write(&produce_all(&[(0, 0), (2, 0)]).version(version), 40);
        let owed = pair.send(&produce_all(&[(0, 0), (1, 0), (2, 0), (3, 0)]).version(version));
        let asked = pair.broker.next();
        assert_eq!(asked.version, version);
        assert_eq!(asked.sequences(), [(1, 0), (3, 0)]);
        let request = asked.produce();
        assert_eq!((request.acks, request.timeout_ms), (-1, 15_000));
        pair.broker
            .reply(&asked, |partition| ok(50 + i64::from(partition)));
        let mut answers = pair.receive(&owed);
        answers.sort_by_key(|answer| answer.partition);
        let got: Vec<_> = answers
            .iter()
            .map(|a| (a.partition, a.code, a.offset))
            .collect();
        let expected = [(0, 0, 40), (1, 0, 51), (2, 0, 40), (3, 0, 53)];
        assert_eq!(got, expected, "version {version}");
        pair.barrier();
    }
}

#[test]
fn topics_that_are_wholly_absorbed_are_merged_back_beside_the_others() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let other = Topic::of("other", NEW_ID);
    let third = Topic::of("third", "99999999-2222-4333-8444-555555555555");
    for version in [3, 9, 12, 13] {
        let partition = i32::from(version);
        let part =
            |topic: &Topic, sequence| (topic.clone(), vec![(partition, Some(batch(sequence)))]);
        pair.write(&Produce::of(vec![part(&orders(), 0)]).version(version), 10);
        let all = vec![part(&other, 0), part(&orders(), 0), part(&third, 0)];
        let owed = pair.send(&Produce::of(all).version(version));
        let asked = pair.broker.next();
        assert_eq!(asked.produce().topic_data.len(), 2);
        pair.broker.ack(&asked, 20);
        let response = pair
            .client
            .receive::<ProduceRequest>(version, owed.correlation)
            .unwrap();
        assert_eq!(response.responses.len(), 3);
        let mut offsets: Vec<i64> = Answer::all(&response).iter().map(|a| a.offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [10, 20, 20], "version {version}");
    }
}

#[test]
fn nothing_of_a_wholly_absorbed_request_reaches_the_broker() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let request = produce_all(&[(0, 0), (1, 0), (2, 0)]);
    let first = pair.write(&request, 9);
    assert_eq!(pair.answered_here(&request), first);
    assert_eq!(world.verdicts("duplicate_absorbed"), 3.0);
}

#[test]
fn an_error_in_a_split_request_reaches_the_client_beside_the_absorbed_answers() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce_all(&[(0, 0)]), 40);
    let owed = pair.send(&produce_all(&[(0, 0), (1, 0)]));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(87));
    let mut answers = pair.receive(&owed);
    answers.sort_by_key(|answer| answer.partition);
    let codes: Vec<_> = answers.iter().map(|a| (a.partition, a.code)).collect();
    assert_eq!(codes, [(0, 0), (1, 87)]);
}

/// KIP-951 endpoints keep their place beside the replayed answers, and are ours.
#[test]
fn a_new_leader_in_a_merged_answer_is_at_a_local_port() {
    for version in [10, 12, 13] {
        let world = World::new(&[]);
        let mut pair = world.pair();
        pair.write(&produce_all(&[(0, 0)]).version(version), 40);
        let owed = pair.send(&produce_all(&[(0, 0), (1, 0)]).version(version));
        let asked = pair.broker.next();
        let mut answer = broker::produced(&asked, |_| failed(6));
        answer.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch::default()
            .with_leader_id(2.into())
            .with_leader_epoch(5);
        let endpoint = NodeEndpoint::default()
            .with_node_id(2.into())
            .with_host(StrBytes::from_static_str("kafka-2.example"))
            .with_port(9092);
        pair.broker
            .answer(&asked, &answer.with_node_endpoints(vec![endpoint]));
        let got = pair
            .client
            .receive::<ProduceRequest>(version, owed.correlation)
            .unwrap();
        assert_eq!(got.node_endpoints.len(), 1);
        let endpoint = &got.node_endpoints[0];
        assert_eq!(endpoint.host.as_str(), "127.0.0.1");
        assert_eq!(endpoint.port, i32::from(world.hapax.first_port) + 2);
        let mut partitions = got.responses[0].partition_responses.clone();
        partitions.sort_by_key(|partition| partition.index);
        assert_eq!(
            (partitions[0].error_code, partitions[0].base_offset),
            (0, 40)
        );
        assert_eq!(partitions[1].error_code, 6);
        assert_eq!(partitions[1].current_leader.leader_id.0, 2);
    }
}

/// Forwarded as it came, counted as untracked, again and again.
fn check_untracked(make: impl Fn() -> Produce, batches: f64) {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for n in 1..=2 {
        passes(&mut pair, &make(), 7);
        let counted = world.verdicts("untracked");
        assert_eq!(counted, batches * f64::from(n));
    }
    assert_eq!(world.gauge("hapax_verdicts_total"), 2.0 * batches);
    assert_eq!(world.events(), []);
}

#[test]
fn a_partition_named_twice_is_untracked() {
    let make = || {
        let both = vec![(0, Some(batch(0))), (0, Some(batch(1)))];
        Produce::of(vec![(orders(), both)])
    };
    check_untracked(make, 2.0);
}

#[test]
fn a_topic_named_twice_with_the_same_partition_is_untracked() {
    let make = || {
        let one = |sequence| (orders(), vec![(0, Some(batch(sequence)))]);
        Produce::of(vec![one(0), one(1)])
    };
    check_untracked(make, 2.0);
}

/// In whatever order the partitions come, and wherever the one comes again.
#[test]
fn only_a_partition_named_twice_is_untracked() {
    let check = |partitions: &[i32], named_twice: f64| {
        let world = World::new(&[]);
        let parts = partitions.iter().map(|p| (*p, Some(batch(0))));
        let all = Produce::of(vec![(orders(), parts.collect())]);
        passes(&mut world.pair(), &all, 7);
        let untracked = world.verdicts("untracked");
        assert_eq!(untracked, named_twice, "{partitions:?}");
        let forwarded = world.verdicts("forwarded");
        let others = partitions.len() as f64 - named_twice;
        assert_eq!(forwarded, others, "{partitions:?}");
    };
    check(&[0, 1, 2, 3], 0.0);
    check(&[2, 3, 0, 1], 0.0);
    check(&[3, 2, 1, 0], 0.0);
    check(&[0, 1, 1, 2], 2.0);
    check(&[0, 1, 2, 0], 2.0);
    check(&[2, 3, 0, 1, 2], 2.0);
    check(&[2, 3, 0, 1, 2, 3], 4.0);
    check(&[1, 0, 1, 1], 3.0);
}

#[test]
fn two_batches_of_a_partition_are_untracked() {
    let both: Bytes = [batch(0), batch(1)].concat().into();
    check_untracked(|| Produce::to(&orders(), 0, both.clone()), 1.0);
}

#[test]
fn a_stray_byte_behind_a_batch_makes_it_untracked() {
    let stray: Bytes = [&batch(0)[..], &[0]].concat().into();
    check_untracked(|| Produce::to(&orders(), 0, stray.clone()), 1.0);
}

#[test]
fn a_control_batch_is_untracked() {
    let make = || {
        let mut control = of_epoch(0, 0);
        control.attributes = CONTROL;
        Produce::to(&orders(), 0, control.bytes())
    };
    check_untracked(make, 1.0);
}

#[test]
fn a_batch_without_a_producer_id_is_untracked() {
    let plain = Batch::of(-1, -1, -1, ["v"]);
    check_untracked(|| Produce::to(&orders(), 0, plain.bytes()), 1.0);
}

#[test]
fn a_producer_id_with_a_negative_sequence_is_untracked() {
    let negative = of_epoch(0, -1);
    check_untracked(|| Produce::to(&orders(), 0, negative.bytes()), 1.0);
}

#[test]
fn null_records_pass_and_are_no_batch() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let null = Produce::of(vec![(orders(), vec![(0, None)])]);
    let (_, asked) = pair.forwarded(&null);
    pair.broker.ack(&asked, 0);
    pair.client.receive_frame().unwrap();
    assert_eq!(world.gauge("hapax_verdicts_total"), 0.0);
}

#[test]
fn the_same_sequence_with_other_bytes_is_left_to_the_broker() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 7);
    let other = Batch::of(PRODUCER, 0, 0, ["other bytes"]);
    passes(&mut pair, &Produce::to(&orders(), 0, other.bytes()), 7);
    assert_eq!(world.verdicts("sequence_reuse"), 1.0);
    let again = pair.answered_here(&produce(0));
    assert_eq!(again[0].offset, 7);
}

#[test]
fn another_producer_is_another_window() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 7);
    let other = Batch::of(PRODUCER + 1, 0, 0, ["value 0"]);
    passes(&mut pair, &Produce::to(&orders(), 0, other.bytes()), 8);
    passes(&mut pair, &Produce::to(&orders(), 1, batch(0)), 9);
}

#[test]
fn a_retry_of_a_transactional_batch_is_left_to_the_broker() {
    let transactional = |sequence| {
        let mut batch = of_epoch(0, sequence);
        batch.attributes = TRANSACTIONAL;
        Produce::to(&orders(), 0, batch.bytes()).transactional("tx")
    };
    let world = World::new(&[]);
    let mut pair = world.pair();
    passes(&mut pair, &transactional(0), 7);
    passes(&mut pair, &transactional(0), 7);
    let world = World::new(&["--sequence-absorb-transactional"]);
    let mut pair = world.pair();
    passes(&mut pair, &transactional(0), 7);
    assert_eq!(pair.answered_here(&transactional(0))[0].offset, 7);
}

#[test]
fn a_topic_by_name_and_by_id_is_one_after_metadata() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0).version(12), 7);
    assert_eq!(pair.answered_here(&produce(0).version(13))[0].offset, 7);
    pair.write(&produce(1).version(13), 8);
    assert_eq!(pair.answered_here(&produce(1).version(9))[0].offset, 8);
}

#[test]
fn a_name_and_an_id_that_nobody_joined_are_two() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    passes(&mut pair, &produce(0).version(12), 7);
    passes(&mut pair, &produce(0).version(13), 7);
}

#[test]
fn a_topic_that_was_made_anew_starts_empty() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 7);
    let anew = Produce::to(&Topic::of("orders", NEW_ID), 0, batch(0)).version(13);
    // The old id is gone, the new one is told.
    let owed = pair.send(&produce(1).version(13));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(100));
    assert_eq!(pair.receive_one(&owed).code, 100);
    pair.learn(NEW_ID);
    passes(&mut pair, &anew, 0);
    assert_eq!(pair.answered_here(&anew)[0].offset, 0);
    assert_eq!(pair.answered_here(&produce(0).version(12))[0].offset, 0);
}

/// A broker that has not heard of a new topic says that there is none: what
/// it has turned down still goes first.
#[test]
fn an_unknown_topic_id_does_not_let_the_next_batch_go_first() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    for _ in 0..2 {
        let head = pair.send(&produce(0).version(13));
        let asked = pair.broker.next();
        pair.broker.reply(&asked, |_| failed(100));
        assert_eq!(pair.receive_one(&head).code, 100);
        let owed = pair.send(&produce(1).version(13));
        assert_eq!(pair.receive_one(&owed).code, 100);
        pair.broker.assert_silent();
    }
    pair.write(&produce(0).version(13), 7);
    pair.write(&produce(1).version(13), 8);
}

#[test]
fn a_new_id_in_metadata_alone_starts_the_name_empty() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 7);
    pair.learn(ID);
    assert_eq!(pair.answered_here(&produce(0))[0].offset, 7);
    pair.learn(NEW_ID);
    passes(&mut pair, &produce(0), 0);
}

#[test]
fn another_cluster_behind_the_same_address_starts_empty() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 7);
    let mut other = crate::world::metadata(&[(1, "kafka-1.example", 9092)], Some(ID));
    other.cluster_id = Some(StrBytes::from_static_str("another"));
    let request = kafka_protocol::messages::MetadataRequest::default();
    let correlation = pair.client.send(12, &request).unwrap();
    let asked = pair.broker.next();
    pair.broker.answer(&asked, &other);
    pair.client
        .receive::<kafka_protocol::messages::MetadataRequest>(12, correlation)
        .unwrap();
    passes(&mut pair, &produce(0), 0);
}

#[test]
fn an_offset_that_is_given_again_drops_what_was_known() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 100);
    pair.write(&produce(1), 101);
    // The log was cut: the next batch gets an offset that was taken.
    pair.write(&produce(2), 100);
    passes(&mut pair, &produce(1), 101);
    assert!(world.events().iter().any(|(e, _)| e == "log_truncated"));
}

#[test]
fn error_45_for_the_very_next_batch_drops_what_was_known() {
    let world = World::new(&["--sequence-resolve=false"]);
    let mut pair = world.informed();
    pair.write(&produce(0), 100);
    let owed = pair.send(&produce(1));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    assert_eq!(pair.receive_one(&owed).code, 45);
    passes(&mut pair, &produce(0), 0);
    assert!(world.events().iter().any(|(e, _)| e == "disagreement"));
}

#[test]
fn the_ring_answers_as_many_retries_as_it_has_batches() {
    let world = World::new(&["--sequence-window-batches=8"]);
    let mut pair = world.pair();
    for sequence in 0..10 {
        pair.write(&produce(sequence), i64::from(sequence));
    }
    for sequence in 2..10 {
        let answers = pair.answered_here(&produce(sequence));
        assert_eq!(answers[0].offset, i64::from(sequence));
    }
    passes(&mut pair, &produce(1), 1);
}

#[test]
fn observe_changes_and_answers_nothing() {
    let world = World::of("observe", &[]);
    let mut pair = world.pair();
    passes(&mut pair, &produce(0), 7);
    passes(&mut pair, &produce(0), 7);
    passes(&mut pair, &produce_all(&[(0, 0), (1, 0)]), 7);
    assert_eq!(world.verdicts("duplicate_absorbed"), 0.0);
    assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
}

#[test]
fn a_batch_acked_by_the_leader_alone_is_not_absorbed_for_acks_all() {
    let world = World::new(&[]);
    let leader = broker::start();
    let mut pair = world.pair();
    let request = kafka_protocol::messages::MetadataRequest::default();
    let correlation = pair.client.send(12, &request).unwrap();
    let asked = pair.broker.next();
    let metadata = crate::world::metadata(&[(1, "127.0.0.1", leader.port)], Some(ID));
    pair.broker.answer(&asked, &metadata);
    pair.client
        .receive::<kafka_protocol::messages::MetadataRequest>(12, correlation)
        .unwrap();
    let port = world.hapax.first_port + 1;
    let mut client = crate::support::raw::Client::connect(&format!("127.0.0.1:{port}")).unwrap();
    crate::world::ping(&mut client);
    let mut broker = leader.accept();
    let asked = broker.next();
    broker.answer_raw(&asked, b"pong");
    client.receive_frame().unwrap();
    let mut on_leader = Pair { client, broker };
    on_leader.write(&produce(0).acks(1), 7);
    // The same leader, and no more is asked for: absorbed.
    assert_eq!(on_leader.answered_here(&produce(0).acks(1))[0].offset, 7);
    passes(&mut on_leader, &produce(0), 7);
    // Now all replicas have it.
    assert_eq!(on_leader.answered_here(&produce(0))[0].offset, 7);
}
