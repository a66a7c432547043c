//! Order: what waits behind an unanswered batch, and what is told when it fails.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::broker::{Asked, failed};
use crate::support::await_until;
use crate::support::batch::Batch;
use crate::support::raw::Produce;
use crate::world::{PRODUCER, Pair, SOON, World, of_epoch, orders, ping, produce, produce_all};

const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const NOT_ENOUGH_REPLICAS: i16 = 19;

#[test]
fn the_second_batch_of_a_fresh_partition_waits_for_the_first() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 0)]);
    pair.broker.assert_silent();
    assert_eq!(world.gauge("hapax_held_requests"), 1.0);
    assert_eq!(world.connection()["held"], true);
    pair.broker.ack(&asked, 10);
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.ack(&asked, 11);
    assert_eq!(pair.receive_one(&r1).offset, 10);
    assert_eq!(pair.receive_one(&r2).offset, 11);
    assert_eq!(world.gauge("hapax_held_requests"), 0.0);
    assert_eq!(world.connection()["held"], false);
    assert_eq!(world.gauge("hapax_holds_expired_total"), 0.0);
}

#[test]
fn batches_are_pipelined_once_one_was_acknowledged() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 0);
    let owed: Vec<_> = (1..6).map(|n| pair.send(&produce(n))).collect();
    let asked: Vec<_> = (1..6).map(|_| pair.broker.next()).collect();
    for (asked, offset) in asked.iter().zip(1..) {
        pair.broker.ack(asked, offset);
    }
    for (owed, offset) in owed.iter().zip(1..) {
        assert_eq!(pair.receive_one(owed).offset, offset);
    }
}

#[test]
fn what_does_not_wait_passes_a_held_request_on_no_connection_but_on_others() {
    let world = World::new(&[]);
    let (mut pair, mut other) = (world.pair(), world.pair());
    pair.send(&produce(0));
    pair.send(&produce(1));
    ping(&mut pair.client);
    pair.broker.next();
    pair.broker.assert_silent();
    other.barrier();
}

/// The first batch of partition 1 is in a request that is held behind batch 0
/// of partition 0, which the broker was asked to write; the second one, on
/// another connection, is held behind that request.
fn held_behind_a_held_request(world: &World) -> (Pair, Pair, Asked) {
    let (mut pair, mut other) = (world.pair(), world.pair());
    pair.send(&produce(0));
    let first = pair.broker.next();
    pair.send(&produce_all(&[(0, 1), (1, 0)]));
    await_until("the hold", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    other.send(&produce_all(&[(1, 1)]));
    await_until("both holds", SOON, || {
        world.gauge("hapax_held_requests") == 2.0
    });
    (pair, other, first)
}

/// A request with the first batch of a partition is held for another of its
/// partitions: a broker that knows nothing of the producer would take what
/// follows on another connection, and never again that first batch.
#[test]
fn what_follows_a_batch_of_a_held_request_waits_on_other_connections() {
    let world = World::new(&[]);
    let (mut pair, mut other, first) = held_behind_a_held_request(&world);
    other.broker.assert_silent();
    pair.broker.ack(&first, 10);
    let both = pair.broker.next();
    assert_eq!(both.sequences(), [(0, 1), (1, 0)]);
    other.broker.assert_silent();
    pair.broker.ack(&both, 11);
    assert_eq!(other.broker.next().sequences(), [(1, 1)]);
    assert_eq!(world.gauge("hapax_holds_expired_total"), 0.0);
}

/// The client of the held request is gone: what waited for it waits no more.
#[test]
fn nothing_waits_for_a_held_request_whose_client_is_gone() {
    let world = World::new(&[]);
    let (pair, mut other, _first) = held_behind_a_held_request(&world);
    pair.client.reset();
    assert_eq!(other.broker.next().sequences(), [(1, 1)]);
    assert_eq!(world.gauge("hapax_holds_expired_total"), 0.0);
}

#[test]
fn a_batch_behind_a_failed_one_gets_its_error_and_both_are_written_in_order_later() {
    for (code, told) in [(6, 6), (3, 3), (19, 19), (2, 19), (10, 19), (51, 19)] {
        let world = World::new(&[]);
        let mut pair = world.pair();
        let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
        let asked = pair.broker.next();
        pair.broker.reply(&asked, |_| failed(code));
        assert_eq!(pair.receive_one(&r1).code, code);
        let mirrored = pair.receive_one(&r2);
        assert_eq!(mirrored.code, told, "behind {code}");
        assert_eq!((mirrored.offset, mirrored.append_time), (-1, -1));
        pair.barrier();
        assert_eq!(world.verdicts("mirrored"), 1.0);
        let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(0, 0)]);
        pair.broker.ack(&asked, 0);
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(0, 1)]);
        pair.broker.ack(&asked, 1);
        assert_eq!(pair.receive_one(&r1).offset, 0);
        assert_eq!(pair.receive_one(&r2).offset, 1);
        assert_eq!(pair.answered_here(&produce(1))[0].offset, 1);
    }
}

#[test]
fn a_batch_behind_a_refused_one_goes_to_the_broker() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.send(&produce(0));
    let r2 = pair.send(&produce(1));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(87));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.reply(&asked, |_| failed(45));
    pair.client.receive_frame().unwrap();
    assert_eq!(pair.receive_one(&r2).code, 45);
}

/// A client that gave the first batch up gets through, and the gap is told.
#[test]
fn a_batch_is_mirrored_three_times_at_most() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    let owed = pair.send(&produce(0));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(6));
    pair.receive_one(&owed);
    for _ in 0..3 {
        assert_eq!(pair.answered_here(&produce(1))[0].code, 6);
    }
    let (_, asked) = pair.forwarded(&produce(1));
    pair.broker.ack(&asked, 0);
    pair.client.receive_frame().unwrap();
    let gaps = world.events();
    let gap = ("gap".to_owned(), "predecessor_failed".to_owned());
    assert_eq!(gaps, [gap]);
}

#[test]
fn a_held_request_on_another_connection_wakes_up() {
    let world = World::new(&[]);
    let (mut first, mut second) = (world.pair(), world.pair());
    let r1 = first.send(&produce(0));
    let asked = first.broker.next();
    let r2 = second.send(&produce(1));
    second.broker.assert_silent();
    let start = Instant::now();
    first.broker.ack(&asked, 0);
    let asked = second.broker.next();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "woken after {took:?}");
    second.broker.ack(&asked, 1);
    assert_eq!(first.receive_one(&r1).offset, 0);
    assert_eq!(second.receive_one(&r2).offset, 1);
}

#[test]
fn a_held_request_on_another_connection_is_mirrored_where_the_first_fails() {
    let world = World::new(&[]);
    let (mut first, mut second) = (world.pair(), world.pair());
    first.send(&produce(0));
    let asked = first.broker.next();
    let r2 = second.send(&produce(1));
    second.broker.assert_silent();
    first.broker.reply(&asked, |_| failed(6));
    assert_eq!(second.receive_one(&r2).code, 6);
    second.barrier();
}

/// Its outcome is unknown: a promise that nothing was forwarded is true of R2.
#[test]
fn a_held_request_behind_a_lost_connection_is_told_to_try_again() {
    let world = World::new(&["--sequence-resolve=false"]);
    let (mut first, mut second) = (world.pair(), world.pair());
    first.send(&produce(0));
    first.broker.next();
    let r2 = second.send(&produce(1));
    second.broker.assert_silent();
    drop(first.broker);
    assert_eq!(second.receive_one(&r2).code, 19);
    second.barrier();
    // R1 comes again, on the connection that R2 uses.
    let r1 = second.send(&produce(0));
    let asked = second.broker.next();
    second.broker.ack(&asked, 0);
    assert_eq!(second.receive_one(&r1).offset, 0);
    assert_eq!(second.write(&produce(1), 1)[0].offset, 1);
}

/// Sent on, it could reach a broker that knows nothing of its producer, and be
/// taken there before the one it follows.
#[test]
fn a_hold_that_ends_tells_the_client_that_nothing_was_written() {
    let world = World::new(&["--sequence-hold-max=200ms"]);
    let (mut old, mut new) = (world.pair(), world.pair());
    let start = Instant::now();
    old.send(&produce(0));
    assert_eq!(old.broker.next().sequences(), [(0, 0)]);
    let r2 = new.send(&produce(1));
    assert_eq!(new.receive_one(&r2).code, NOT_ENOUGH_REPLICAS);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200), "after {took:?}");
    assert_eq!(world.gauge("hapax_holds_expired_total"), 1.0);
    assert_eq!(world.gauge("hapax_held_requests"), 0.0);
    // A client that gave the first one up must get through.
    for _ in 0..2 {
        let r2 = new.send(&produce(1));
        assert_eq!(new.receive_one(&r2).code, NOT_ENOUGH_REPLICAS);
    }
    new.broker.assert_silent();
    new.send(&produce(1));
    assert_eq!(new.broker.next().sequences(), [(0, 1)]);
}

#[test]
fn a_hold_takes_a_quarter_of_the_requests_own_time_at_most() {
    let world = World::new(&[]);
    let (mut old, mut new) = (world.pair(), world.pair());
    let start = Instant::now();
    old.send(&produce(0));
    old.broker.next();
    let r2 = new.send(&produce(1).timeout(800));
    assert_eq!(new.receive_one(&r2).code, NOT_ENOUGH_REPLICAS);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200), "after {took:?}");
    assert!(took < Duration::from_secs(3), "after {took:?}");
}

/// A broker deals with a connection's requests in turn: it would not look at
/// the second one before it has answered the first.
#[test]
fn a_hold_behind_its_own_connection_ends_with_the_answer_alone() {
    let world = World::new(&["--sequence-hold-max=50ms"]);
    let mut pair = world.pair();
    let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
    let asked = pair.broker.next();
    let start = Instant::now();
    await_until("many times that", SOON, || {
        start.elapsed() > Duration::from_millis(500)
    });
    pair.broker.assert_silent();
    pair.broker
        .reply(&asked, |_| failed(NOT_LEADER_OR_FOLLOWER));
    assert_eq!(pair.receive_one(&r1).code, NOT_LEADER_OR_FOLLOWER);
    assert_eq!(pair.receive_one(&r2).code, NOT_LEADER_OR_FOLLOWER);
    pair.broker.assert_silent();
    assert_eq!(world.gauge("hapax_holds_expired_total"), 0.0);
}

/// What lies between them may be held for yet another connection.
#[test]
fn a_batch_further_behind_a_failed_one_does_not_leave_before_it() {
    let world = World::new(&[]);
    let (mut old, mut new) = (world.pair(), world.pair());
    let r1 = old.send(&produce(0));
    let asked = old.broker.next();
    old.broker.reply(&asked, |_| failed(NOT_LEADER_OR_FOLLOWER));
    assert_eq!(old.receive_one(&r1).code, NOT_LEADER_OR_FOLLOWER);
    let r3 = new.send(&produce(2));
    assert_eq!(new.receive_one(&r3).code, NOT_LEADER_OR_FOLLOWER);
    new.broker.assert_silent();
}

#[test]
fn requests_that_wait_for_each_other_do_not() {
    let world = World::new(&["--sequence-hold-max=30s"]);
    let (mut x, mut y) = (world.pair(), world.pair());
    // {a1, b2} and {b1, a2}; partition 0 is a, 1 is b.
    let rx = x.send(&produce_all(&[(0, 0), (1, 1)]).timeout(600_000));
    let asked_x = x.broker.next();
    let ry = y.send(&produce_all(&[(1, 0), (0, 1)]).timeout(600_000));
    y.broker.assert_silent();
    x.broker.ack(&asked_x, 0);
    let asked_y = y.broker.next();
    y.broker.ack(&asked_y, 1);
    assert_eq!(x.receive(&rx).len(), 2);
    assert_eq!(y.receive(&ry).len(), 2);
}

/// Both are held, each behind a batch of a third connection; neither's batches
/// count as sent for the other.
#[test]
fn held_requests_leave_no_trace_for_each_other() {
    let world = World::new(&["--sequence-hold-max=30s"]);
    let (mut x, mut y, mut z) = (world.pair(), world.pair(), world.pair());
    let rz = z.send(&produce_all(&[(0, 0), (1, 0)]));
    let asked_z = z.broker.next();
    let rx = x.send(&produce_all(&[(0, 1), (1, 2)]).timeout(600_000));
    x.broker.assert_silent();
    let ry = y.send(&produce_all(&[(1, 1), (0, 2)]).timeout(600_000));
    y.broker.assert_silent();
    z.broker.ack(&asked_z, 0);
    assert_eq!(z.receive(&rz).len(), 2);
    // Whichever is woken first leaves, the other one follows.
    let mut first_x = true;
    await_until("one of both to leave", SOON, || {
        x.broker.stream.set_nonblocking(true).unwrap();
        y.broker.stream.set_nonblocking(true).unwrap();
        let x_has = x.broker.stream.peek(&mut [0]).is_ok();
        let y_has = y.broker.stream.peek(&mut [0]).is_ok();
        x.broker.stream.set_nonblocking(false).unwrap();
        y.broker.stream.set_nonblocking(false).unwrap();
        first_x = x_has;
        x_has || y_has
    });
    let (one, other) = if first_x {
        (&mut x, &mut y)
    } else {
        (&mut y, &mut x)
    };
    let asked = one.broker.next();
    one.broker.ack(&asked, 10);
    let asked = other.broker.next();
    other.broker.ack(&asked, 20);
    assert_eq!(x.receive(&rx).len(), 2);
    assert_eq!(y.receive(&ry).len(), 2);
}

#[test]
fn a_held_client_that_hangs_up_leaves_no_trace() {
    let world = World::new(&["--sequence-hold-max=30s"]);
    let (mut first, mut second) = (world.pair(), world.pair());
    let r1 = first.send(&produce(0));
    let asked = first.broker.next();
    second.send(&produce(1).timeout(600_000));
    second.broker.assert_silent();
    second.client.reset();
    second.broker.assert_ended();
    assert_eq!(world.gauge("hapax_held_requests"), 0.0);
    first.broker.ack(&asked, 0);
    assert_eq!(first.receive_one(&r1).offset, 0);
    // The broker never saw it, so it is new.
    let (_, asked) = first.forwarded(&produce(1));
    first.broker.ack(&asked, 1);
    first.client.receive_frame().unwrap();
    assert_eq!(world.verdicts("forwarded"), 2.0);
    assert_eq!(world.gauge("hapax_verdicts_total"), 2.0);
}

/// Larger than what is read of a held client.
#[test]
fn a_held_client_with_a_large_request_that_hangs_up_leaves_no_trace() {
    let world = World::new(&["--sequence-hold-max=30s"]);
    let (mut first, mut second) = (world.pair(), world.pair());
    first.send(&produce(0));
    first.broker.next();
    let mut large = of_epoch(0, 1);
    large.payload = Some(vec![7; 2 << 20]);
    let request = Produce::to(&orders(), 0, large.bytes()).timeout(600_000);
    let (_, frame) = second.client.frame(12, &request.request());
    let stream = second.client.stream().try_clone().unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let _ = std::io::Write::write_all(&mut &stream, &frame);
    drop(stream);
    await_until("the hold", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    second.client.reset();
    second.broker.assert_ended();
    assert_eq!(world.gauge("hapax_held_requests"), 0.0);
}

#[test]
fn observe_holds_and_mirrors_nothing() {
    let world = World::of("observe", &[]);
    let mut pair = world.pair();
    let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
    let (a, b) = (pair.broker.next(), pair.broker.next());
    pair.broker.reply(&a, |_| failed(6));
    pair.broker.reply(&b, |_| failed(45));
    assert_eq!(pair.receive_one(&r1).code, 6);
    assert_eq!(pair.receive_one(&r2).code, 45);
    let (_, asked) = pair.forwarded(&produce(1));
    pair.broker.reply(&asked, |_| failed(45));
    assert_eq!(world.gauge("hapax_held_requests"), 0.0);
}

/// The broker did not see the absorbed batch: what follows must prove itself.
#[test]
fn the_gate_closes_after_an_absorbed_batch() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 0);
    pair.answered_here(&produce(0));
    pair.send(&produce(1));
    pair.send(&produce(2));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.assert_silent();
    pair.broker.ack(&asked, 1);
    assert_eq!(pair.broker.next().sequences(), [(0, 2)]);
}

#[test]
fn a_batch_of_another_connection_waits_for_those_on_their_way() {
    let world = World::new(&[]);
    let (mut first, mut second) = (world.pair(), world.pair());
    first.write(&produce(0), 0);
    first.send(&produce(1));
    let asked = first.broker.next();
    second.send(&produce(2));
    second.broker.assert_silent();
    first.broker.ack(&asked, 1);
    assert_eq!(second.broker.next().sequences(), [(0, 2)]);
}

#[test]
fn acks_0_is_never_held_and_holds_nothing() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.send(&produce(0));
    pair.send(&produce(1).acks(0));
    assert_eq!(pair.broker.next().sequences(), [(0, 0)]);
    assert_eq!(pair.broker.next().sequences(), [(0, 1)]);
    let mut other = world.pair();
    let other_batch = |sequence| {
        let batch = Batch::of(PRODUCER, 0, sequence, ["v"]);
        Produce::to(&orders(), 1, batch.bytes())
    };
    other.send(&other_batch(0).acks(0));
    other.send(&other_batch(1));
    assert_eq!(other.broker.next().sequences(), [(1, 0)]);
    assert_eq!(other.broker.next().sequences(), [(1, 1)]);
}

/// A request of a producer about which something is unknown is seen whole
/// before any of it leaves.
fn large(sequences: &[(i32, i32)]) -> Produce {
    let partitions = sequences.iter().map(|(partition, sequence)| {
        let mut batch = Batch::of(PRODUCER, 0, *sequence, ["v"]);
        // Another payload for each, under a checksum of its own.
        let fill = u8::try_from(partition * 16 + sequence).unwrap();
        batch.payload = Some(vec![fill; 100 << 10]);
        (*partition, Some(batch.bytes()))
    });
    Produce::of(vec![(orders(), partitions.collect())])
}

/// Whether the first part of a request leaves before the last byte came.
fn streams(world: &World, pair: &mut Pair, request: &Produce) -> bool {
    let (correlation, frame) = pair.client.frame(12, &request.request());
    let (most, last) = frame.split_at(frame.len() - 1);
    pair.client.send_raw(most).unwrap();
    let moment = Some(Duration::from_millis(300));
    pair.broker.stream.set_read_timeout(moment).unwrap();
    let streamed = pair.broker.stream.peek(&mut [0]).is_ok();
    pair.broker.stream.set_read_timeout(Some(SOON)).unwrap();
    pair.client.send_raw(last).unwrap();
    let asked = pair.broker.next();
    let whole: Bytes = frame.slice(4..);
    assert!(asked.frame == whole, "other bytes arrived");
    pair.broker.ack(&asked, 5);
    let owed = crate::world::Owed {
        version: 12,
        correlation,
    };
    assert_eq!(pair.receive(&owed).len(), request.topics[0].1.len());
    assert_eq!(world.gauge("hapax_requests_in_flight"), 0.0);
    streamed
}

#[test]
fn a_large_request_of_a_calm_producer_streams_and_of_a_new_one_does_not() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    assert!(!streams(
        &world,
        &mut pair,
        &large(&[(0, 0), (1, 0), (2, 0)])
    ));
    assert!(streams(
        &world,
        &mut pair,
        &large(&[(0, 1), (1, 1), (2, 1)])
    ));
    // What streamed was followed: its retry is absorbed.
    let again = pair.answered_here(&large(&[(0, 1), (1, 1), (2, 1)]));
    assert_eq!(again.len(), 3);
}

#[test]
fn a_large_request_of_a_restless_producer_is_collected_and_partly_absorbed() {
    let world = World::new(&[]);
    let mut lost = world.pair();
    lost.write(&large(&[(0, 0), (1, 0), (2, 0)]), 5);
    lost.write(&large(&[(0, 1), (1, 1)]), 6);
    // The client gives a connection up: a retry may come.
    drop(lost.client);
    lost.broker.assert_ended();
    let mut pair = world.pair();
    let owed = pair.send(&large(&[(0, 1), (1, 1), (2, 1)]));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(2, 1)]);
    pair.broker.ack(&asked, 7);
    let mut answers = pair.receive(&owed);
    answers.sort_by_key(|answer| answer.partition);
    let offsets: Vec<i64> = answers.iter().map(|answer| answer.offset).collect();
    assert_eq!(offsets, [6, 6, 7]);
}

#[test]
fn a_large_request_streams_in_observe_mode_whoever_sends_it() {
    let world = World::of("observe", &[]);
    let mut pair = world.pair();
    assert!(streams(&world, &mut pair, &large(&[(0, 0), (1, 0)])));
}

/// Sends a request whose beginning has left before the rest of it comes.
fn sent_in_parts(pair: &mut Pair, request: &Produce) -> Asked {
    let (_, frame) = pair.client.frame(12, &request.request());
    let (first, rest) = frame.split_at(90 << 10);
    pair.client.send_raw(first).unwrap();
    // The first bytes are at the broker: it is too late to take them back.
    pair.broker.stream.peek(&mut [0]).unwrap();
    pair.client.send_raw(rest).unwrap();
    let asked = pair.broker.next();
    assert!(asked.frame == frame[4..], "other bytes arrived");
    asked
}

#[test]
fn a_duplicate_found_after_bytes_have_left_is_forwarded_and_counted() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&large(&[(0, 0), (1, 0), (2, 0)]), 5);
    // Partition 2 holds a retry behind two new batches.
    sent_in_parts(&mut pair, &large(&[(0, 1), (1, 1), (2, 0)]));
    assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
    assert_eq!(world.verdicts("forwarded"), 5.0);
}

/// Brokers keep one of both batches; an acknowledgement belongs to neither.
#[test]
fn a_partition_named_twice_in_a_streamed_request_is_untracked() {
    // The first of both may have left before the second was seen: then it is
    // of unknown outcome, and would be looked for in the log.
    let world = World::new(&["--sequence-resolve=false"]);
    let mut pair = world.pair();
    pair.write(&large(&[(0, 0), (1, 0), (2, 0)]), 5);
    let twice = large(&[(0, 1), (1, 1), (1, 2), (2, 1)]);
    let asked = sent_in_parts(&mut pair, &twice);
    let mut answer = crate::broker::produced(&asked, |_| crate::broker::ok(50));
    // Of both, the broker appended the last one only.
    answer.responses[0].partition_responses.remove(1);
    pair.broker.answer(&asked, &answer);
    pair.client.receive_frame().unwrap();
    // The first was never written: its retry must reach the broker.
    let owed = pair.send(&large(&[(1, 1)]));
    pair.client.set_patience(Duration::from_secs(1));
    let told = pair.client.receive_frame();
    assert!(told.is_err(), "a batch that was never written was absorbed");
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(1, 1)]);
    pair.broker.ack(&asked, 51);
    assert_eq!(pair.receive_one(&owed).offset, 51);
}

/// Partition, code and offset of each answer.
fn told(mut answers: Vec<crate::support::raw::Answer>) -> Vec<(i32, i16, i64)> {
    answers.sort_by_key(|answer| answer.partition);
    let answers = answers.iter();
    answers.map(|a| (a.partition, a.code, a.offset)).collect()
}

#[test]
fn a_request_that_is_partly_mirrored_is_split_and_its_answers_are_merged() {
    for version in [3, 8, 9, 12, 13] {
        let world = World::new(&[]);
        let mut pair = world.pair();
        let owed = pair.send(&produce_all(&[(0, 0)]).version(version));
        let asked = pair.broker.next();
        pair.broker.reply(&asked, |_| failed(6));
        pair.receive_one(&owed);
        let owed = pair.send(&produce_all(&[(0, 1), (1, 0)]).version(version));
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(1, 0)]);
        pair.broker.ack(&asked, 30);
        let told = told(pair.receive(&owed));
        assert_eq!(told, [(0, 6, -1), (1, 0, 30)], "version {version}");
        pair.barrier();
    }
}

#[test]
fn a_request_is_answered_here_partly_by_success_and_partly_by_error() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce_all(&[(1, 0)]), 20);
    let owed = pair.send(&produce_all(&[(0, 0)]));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(3));
    pair.receive_one(&owed);
    let answers = pair.answered_here(&produce_all(&[(0, 1), (1, 0)]));
    assert_eq!(told(answers), [(0, 3, -1), (1, 0, 20)]);
}

#[test]
fn a_held_request_is_judged_again_as_a_whole() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let r1 = pair.send(&produce_all(&[(0, 0), (1, 0)]));
    let r2 = pair.send(&produce_all(&[(0, 1), (1, 1), (2, 0)]));
    let asked = pair.broker.next();
    pair.broker.assert_silent();
    pair.broker.reply(&asked, |partition| match partition {
        0 => failed(6),
        _ => crate::broker::ok(10),
    });
    assert_eq!(told(pair.receive(&r1)), [(0, 6, -1), (1, 0, 10)]);
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(1, 1), (2, 0)]);
    pair.broker.ack(&asked, 11);
    assert_eq!(
        told(pair.receive(&r2)),
        [(0, 6, -1), (1, 0, 11), (2, 0, 11)]
    );
    // And the retry of all of it: only what was not written goes on.
    let r3 = pair.send(&produce_all(&[(0, 0), (1, 1), (2, 0)]));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 0)]);
    pair.broker.ack(&asked, 12);
    assert_eq!(
        told(pair.receive(&r3)),
        [(0, 0, 12), (1, 0, 11), (2, 0, 11)]
    );
}

#[test]
fn pipelined_split_requests_are_settled_each_by_its_own_answer() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce_all(&[(0, 0), (1, 0), (2, 0), (3, 0)]), 10);
    let r1 = pair.send(&produce_all(&[(0, 0), (1, 1)]));
    let r2 = pair.send(&produce_all(&[(1, 0), (2, 1), (3, 0)]));
    let r3 = pair.send(&produce_all(&[(2, 0), (3, 1)]));
    let asked = [(); 3].map(|()| pair.broker.next());
    for (asked, offset) in asked.iter().zip(21..) {
        pair.broker.ack(asked, offset);
    }
    assert_eq!(told(pair.receive(&r1)), [(0, 0, 10), (1, 0, 21)]);
    let r2 = told(pair.receive(&r2));
    assert_eq!(r2, [(1, 0, 10), (2, 0, 22), (3, 0, 10)]);
    assert_eq!(told(pair.receive(&r3)), [(2, 0, 10), (3, 0, 23)]);
    let again = pair.answered_here(&produce_all(&[(1, 1), (2, 1), (3, 1)]));
    assert_eq!(told(again), [(1, 0, 21), (2, 0, 22), (3, 0, 23)]);
}
