//! Acknowledgements that arrive after their client has gone.

use std::time::Duration;

use kafka_protocol::messages::ProduceRequest;

use crate::broker::answer;
use crate::support::await_until;
use crate::support::batch::{Batch, TRANSACTIONAL};
use crate::support::raw::Produce;
use crate::world::{Pair, SOON, World, of_epoch, orders, produce};

fn orphans(world: &World, count: f64) {
    await_until("the orphans", SOON, || {
        world.gauge("hapax_orphan_sessions") == count
    });
}

/// Everything that counts what is open is back at 0.
fn all_gone(world: &World) {
    for name in [
        "hapax_orphan_sessions",
        "hapax_client_connections",
        "hapax_requests_in_flight",
        "hapax_held_requests",
        "hapax_upstream_connections",
    ] {
        await_until(name, SOON, || world.gauge(name) == 0.0);
    }
}

#[test]
fn an_acknowledgement_after_a_reset_absorbs_the_retry() {
    let world = World::new(&[]);
    let Pair { client, mut broker } = {
        let mut pair = world.pair();
        pair.send(&produce(0));
        pair
    };
    let asked = broker.next();
    client.reset();
    orphans(&world, 1.0);
    assert_eq!(world.connection()["orphan"], true);
    broker.ack(&asked, 33);
    broker.assert_ended();
    orphans(&world, 0.0);
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
    drop(retry);
    all_gone(&world);
}

/// A request timeout: the client closes, and does not read any more.
#[test]
fn an_acknowledgement_after_the_client_closed_absorbs_the_retry() {
    let world = World::new(&[]);
    let Pair { client, mut broker } = {
        let mut pair = world.pair();
        pair.send(&produce(0));
        pair
    };
    let asked = broker.next();
    drop(client);
    broker.ack(&asked, 33);
    broker.assert_ended();
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
    drop(retry);
    all_gone(&world);
}

#[test]
fn every_acknowledgement_of_a_pipeline_counts_after_the_client_closed() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 0);
    for sequence in 1..5 {
        pair.send(&produce(sequence));
    }
    let asked: Vec<_> = (1..5).map(|_| pair.broker.next()).collect();
    let Pair { client, mut broker } = pair;
    drop(client);
    for (asked, offset) in asked.iter().zip(1..) {
        broker.ack(asked, offset);
    }
    broker.assert_ended();
    let mut retry = world.pair();
    for sequence in 1..5 {
        let answers = retry.answered_here(&produce(sequence));
        assert_eq!(answers[0].offset, i64::from(sequence));
    }
}

/// The answer that finds the client gone comes with a part of the next one.
#[test]
fn an_answer_of_which_a_part_came_when_the_client_was_lost_is_read_on() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 0);
    for sequence in 1..4 {
        pair.send(&produce(sequence));
    }
    let asked: Vec<_> = (1..4).map(|_| pair.broker.next()).collect();
    let Pair { client, mut broker } = pair;
    drop(client);
    let answers: Vec<_> = asked
        .iter()
        .zip(1..)
        .map(|(asked, offset)| {
            let message = crate::broker::produced(asked, |_| crate::broker::ok(offset));
            answer(asked, &message)
        })
        .collect();
    // The first write to a closed socket succeeds, and is answered by a reset.
    broker.send(&answers[0]);
    await_until("the first answer to be passed on", SOON, || {
        let ok = ["api=\"produce\"", "outcome=\"ok\""];
        world.hapax.metric("hapax_requests_total", &ok) == 2.0
    });
    let (head, tail) = answers[2].split_at(7);
    broker.send(&[&answers[1], head].concat());
    orphans(&world, 1.0);
    broker.send(tail);
    broker.assert_ended();
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(2))[0].offset, 2);
    assert_eq!(retry.answered_here(&produce(3))[0].offset, 3);
    let output = world.hapax.output();
    assert!(!output.contains("connection closed"), "{output}");
}

#[test]
fn nothing_held_is_forwarded_for_a_client_that_was_reset() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.send(&produce(0));
    pair.send(&produce(1));
    let asked = pair.broker.next();
    pair.broker.assert_silent();
    let Pair { client, mut broker } = pair;
    client.reset();
    orphans(&world, 1.0);
    let row = world.connection();
    assert_eq!(
        (&row["orphan"], &row["held"]),
        (&true.into(), &false.into())
    );
    broker.ack(&asked, 0);
    broker.assert_ended();
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 0);
    retry.write(&produce(1), 1);
}

/// A broker that is spoken to directly stops at its first failed write.
fn check_no_orphan(request: &Produce) {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.send(request);
    pair.broker.next();
    let Pair { client, mut broker } = pair;
    client.reset();
    broker.assert_ended();
    assert_eq!(world.gauge("hapax_orphan_sessions"), 0.0);
    all_gone(&world);
}

#[test]
fn no_orphan_waits_for_a_batch_without_idempotence() {
    let plain = Batch::of(-1, -1, -1, ["v"]);
    check_no_orphan(&Produce::to(&orders(), 0, plain.bytes()));
}

#[test]
fn no_orphan_waits_for_a_transactional_batch() {
    let mut batch = of_epoch(0, 0);
    batch.attributes = TRANSACTIONAL;
    check_no_orphan(&Produce::to(&orders(), 0, batch.bytes()).transactional("tx"));
}

/// Their bytes may have left for the kernel, the broker has half a frame.
#[test]
fn a_request_of_which_a_part_left_counts_as_never_sent() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let mut large = of_epoch(0, 0);
    large.payload = Some(vec![7; 1 << 20]);
    let request = Produce::to(&orders(), 0, large.bytes());
    let (_, frame) = pair.client.frame(12, &request.request());
    pair.client.send_raw(&frame[..frame.len() / 2]).unwrap();
    let mut begun = vec![0; 64 << 10];
    std::io::Read::read_exact(&mut pair.broker.stream, &mut begun).unwrap();
    let Pair { client, broker } = pair;
    client.reset();
    drop(broker);
    all_gone(&world);
    // Not written for certain: what follows it is told to wait for it.
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(1))[0].code, 19);
    let owed = retry.send(&request);
    let asked = retry.broker.next();
    retry.broker.ack(&asked, 5);
    assert_eq!(retry.receive_one(&owed).offset, 5);
}

#[test]
fn orphans_are_limited() {
    let world = World::new(&["--limits-orphans=1"]);
    let mut pairs = [world.pair(), world.pair()];
    for (pair, partition) in pairs.iter_mut().zip(0..) {
        let request = Produce::to(&orders(), partition, crate::world::batch(0));
        pair.send(&request);
        pair.broker.next();
    }
    let [one, other] = pairs;
    one.client.reset();
    orphans(&world, 1.0);
    other.client.reset();
    let mut broker = other.broker;
    broker.assert_ended();
    assert_eq!(world.gauge("hapax_orphan_sessions"), 1.0);
    let limit = ["limit=\"orphans\""];
    assert_eq!(world.hapax.metric("hapax_limit_reached_total", &limit), 1.0);
}

#[test]
fn an_orphan_whose_broker_is_lost_ends() {
    let world = World::new(&["--sequence-resolve=false"]);
    let mut pair = world.pair();
    pair.send(&produce(0));
    pair.broker.next();
    let Pair { client, broker } = pair;
    client.reset();
    orphans(&world, 1.0);
    drop(broker);
    all_gone(&world);
    let mut retry = world.pair();
    let owed = retry.send(&produce(0));
    let asked = retry.broker.next();
    retry.broker.ack(&asked, 3);
    assert_eq!(retry.receive_one(&owed).offset, 3);
    assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
}

#[test]
fn an_orphan_whose_broker_is_silent_ends_with_the_requests_time() {
    let world = World::new(&["--timeouts-upstream-response=300ms"]);
    let mut pair = world.pair();
    pair.send(&produce(0).timeout(100));
    pair.broker.next();
    let Pair { client, mut broker } = pair;
    client.reset();
    orphans(&world, 1.0);
    broker.assert_ended();
    all_gone(&world);
}

/// What the broker said before it closed was said.
#[test]
fn an_acknowledgement_right_before_the_broker_closes_counts() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let owed = pair.send(&produce(0));
    let asked = pair.broker.next();
    pair.broker.ack(&asked, 3);
    let Pair { mut client, broker } = pair;
    drop(broker);
    let got = client
        .receive::<ProduceRequest>(12, owed.correlation)
        .unwrap();
    assert_eq!(got.responses[0].partition_responses[0].base_offset, 3);
    assert!(client.is_closed(Duration::from_secs(5)));
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 3);
}
