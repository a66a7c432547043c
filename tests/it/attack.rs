//! What anybody may do who can connect.

use std::time::Duration;

use crate::broker;
use crate::support::await_until;
use crate::support::batch::Batch;
use crate::support::raw::{Produce, Topic};
use crate::world::{ID, PRODUCER, SOON, World, batch, orders, produce};

/// Anybody who can connect can name topics.
#[test]
fn made_up_topic_names_do_not_end_the_tracking_of_real_ones() {
    let world = World::new(&[]);
    let mut nobody = world.client();
    for round in 0..11 {
        let topics = (0..10_000).map(|n| {
            let topic = Topic::unknown(&format!("no-{round}-{n}"));
            (topic, vec![(0, None)])
        });
        let request = Produce::of(topics.collect());
        nobody.send(12, &request.request()).unwrap();
    }
    let mut bin = world.upstream.accept();
    for _ in 0..11 {
        let asked = bin.next();
        bin.reply(&asked, |_| broker::failed(3));
    }
    drop(nobody);
    let mut pair = world.pair();
    pair.learn(ID);
    pair.write(&produce(0), 7);
    let owed = pair.send(&produce(0));
    pair.broker
        .stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    assert!(
        pair.broker.try_next().is_err(),
        "a topic that was first used after a flood of made-up names is not tracked"
    );
    assert_eq!(pair.receive_one(&owed).offset, 7);
}

/// A request for several partitions of a producer that is not calm is
/// collected whole, whoever sends it.
#[test]
fn unfinished_requests_do_not_add_up() {
    const EACH: usize = 48 << 20;
    let world = World::new(&["--limits-collected-bytes=67108864"]);
    let before = world.hapax.memory();
    let mut clients = Vec::new();
    for n in 0..6 {
        let mut client = world.client();
        let one = Batch::of(PRODUCER + n, 0, 0, [vec![b'x'; EACH]]).bytes();
        let request = Produce::of(vec![(orders(), vec![(0, Some(one)), (1, Some(batch(0)))])]);
        let (_, frame) = client.frame(12, &request.request());
        // Beyond the limit it streams, to a broker that reads nothing.
        let patience = Some(Duration::from_millis(500));
        client.stream().set_write_timeout(patience).unwrap();
        let _ = client.send_raw(&frame[..frame.len() - 10]);
        clients.push(client);
    }
    let grown = world.hapax.memory().saturating_sub(before);
    println!("grown by {} MiB", grown >> 20);
    assert!(grown < 128 << 20, "grown by {} MiB", grown >> 20);
}

/// Nothing but a listener's idle time would end them.
#[test]
fn silent_connections_do_not_keep_others_out_for_ever() {
    let world = World::new(&["--limits-connections=3", "--timeouts-first-request=3s"]);
    let mut silent = Vec::new();
    let kept_out = ["limit=\"connections\""];
    await_until("one that is kept out", SOON, || {
        silent.push(world.client());
        world.hapax.metric("hapax_limit_reached_total", &kept_out) >= 1.0
    });
    for client in &mut silent {
        assert!(client.is_closed(SOON));
    }
    await_until("their end", SOON, || {
        world.gauge("hapax_client_connections") == 0.0
    });
    world.pair().barrier();
}
