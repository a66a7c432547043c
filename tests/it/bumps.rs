//! Raised epochs: the records that come again, and the error 45 that need not
//! raise one.

use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_response::{LeaderIdAndEpoch, NodeEndpoint};
use kafka_protocol::protocol::StrBytes;
use serde_json::{Value, json};

use crate::broker::{Asked, failed, produced};
use crate::support::await_until;
use crate::support::batch::{Batch, TRANSACTIONAL};
use crate::support::raw::Produce;
use crate::world::{Owed, PRODUCER, Pair, SOON, World, orders, produce};

/// The report's three records (librdkafka issue 4953), under these numbers.
fn three(epoch: i16, first: i32) -> Batch {
    Batch::of(PRODUCER, epoch, first, ["77", "78", "79"])
}

fn to(partition: i32, batch: &Batch) -> Produce {
    Produce::to(&orders(), partition, batch.bytes())
}

/// Waits until so many sessions live on without their client.
fn orphans(world: &World, count: f64) {
    await_until("orphan sessions", SOON, || {
        world.gauge("hapax_orphan_sessions") == count
    });
}

fn resends(world: &World) -> [f64; 2] {
    ["acknowledged", "unknown"].map(|original| {
        let label = format!("original=\"{original}\"");
        world.hapax.metric("hapax_epoch_resends_total", &[&label])
    })
}

/// The events of that name.
fn told(world: &World, name: &str) -> Vec<Value> {
    let page = world.hapax.json("/api/v1/events");
    let events = page["events"].as_array().unwrap().iter();
    events
        .filter(|event| event["event"] == name)
        .cloned()
        .collect()
}

/// The one re-send that was told.
fn the_resend(world: &World) -> Value {
    let events = told(world, "epoch_resend");
    assert_eq!(events.len(), 1, "{events:?}");
    events[0].clone()
}

/// Every batch got one verdict, and that many came.
fn check_batches(world: &World, came: f64, forwarded: f64) {
    assert_eq!(world.gauge("hapax_verdicts_total"), came);
    assert_eq!(world.verdicts("forwarded"), forwarded);
}

#[test]
fn records_that_the_cluster_acknowledged_are_forwarded_and_told_under_a_new_epoch() {
    let world = World::new(&[]);
    assert_eq!(resends(&world), [0.0, 0.0], "before the first");
    let mut pair = world.informed();
    pair.write(&produce(0), 40);
    pair.write(&to(0, &three(0, 1)), 41);
    // Forwarded as it came, and the broker's own answer is passed on.
    assert_eq!(pair.write(&to(0, &three(1, 0)), 44)[0].offset, 44);
    assert_eq!(resends(&world), [1.0, 0.0]);
    let event = the_resend(&world);
    let told = [
        "kind",
        "topic",
        "epoch",
        "first",
        "count",
        "original_offset",
    ];
    let told: Vec<&Value> = told.iter().map(|field| &event[field]).collect();
    let expected = json!(["acknowledged", "orders", 1, 0, 3, 41]);
    assert_eq!(json!(told), expected, "{event}");
    assert_eq!(
        event["detail"],
        "sequences 1 to 3 of epoch 0, which was acknowledged"
    );
    check_batches(&world, 3.0, 3.0);
    // Its own retry is a duplicate like any other, and is not told again.
    assert_eq!(pair.answered_here(&to(0, &three(1, 0)))[0].offset, 44);
    assert_eq!(resends(&world), [1.0, 0.0]);
    check_batches(&world, 4.0, 3.0);
}

#[test]
fn records_of_unknown_outcome_are_told_as_such() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 40);
    let (_, _asked) = pair.forwarded(&to(0, &three(0, 1)));
    // The acknowledgement is lost between the broker and hapax.
    drop(pair);
    let mut pair = world.informed();
    pair.write(&to(0, &three(1, 0)), 44);
    assert_eq!(resends(&world), [0.0, 1.0]);
    let event = the_resend(&world);
    assert_eq!(event["kind"], "unknown");
    assert_eq!(event.get("original_offset"), None);
    check_batches(&world, 3.0, 3.0);
}

#[test]
fn an_error_that_names_an_offset_says_where_the_original_may_be() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 40);
    let (owed, asked) = pair.forwarded(&to(0, &three(0, 1)));
    let appended = |_| crate::support::raw::Answer {
        offset: 41,
        ..failed(20)
    };
    pair.broker.reply(&asked, appended);
    assert_eq!(pair.receive_one(&owed).code, 20);
    pair.write(&to(0, &three(1, 0)), 44);
    assert_eq!(the_resend(&world)["original_offset"], 41);
    assert_eq!(resends(&world), [0.0, 1.0]);
}

/// hapax saw the acknowledgement that the client did not.
#[test]
fn an_acknowledgement_that_came_after_the_client_was_cut_off_counts() {
    let world = World::new(&[]);
    let mut cut = world.informed();
    cut.write(&produce(0), 40);
    let (_, asked) = cut.forwarded(&to(0, &three(0, 1)));
    let Pair { client, mut broker } = cut;
    client.reset();
    orphans(&world, 1.0);
    broker.ack(&asked, 41);
    orphans(&world, 0.0);
    let mut pair = world.informed();
    assert_eq!(pair.write(&to(0, &three(1, 0)), 44)[0].offset, 44);
    assert_eq!(resends(&world), [1.0, 0.0]);
    assert_eq!(the_resend(&world)["original_offset"], 41);
}

#[test]
fn every_batch_that_comes_again_is_told_and_nothing_else() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    let values = ["a", "b", "c", "d"];
    for (at, value) in (0..).zip(values) {
        pair.write(&to(0, &Batch::of(PRODUCER, 0, at, [value])), at.into());
    }
    for (at, value) in (0..).zip(values) {
        pair.write(
            &to(0, &Batch::of(PRODUCER, 1, at, [value])),
            (10 + at).into(),
        );
    }
    pair.write(&to(0, &Batch::of(PRODUCER, 1, 4, ["e"])), 14);
    assert_eq!(resends(&world), [4.0, 0.0]);
    let offsets: Vec<Value> = told(&world, "epoch_resend")
        .iter()
        .map(|event| event["original_offset"].clone())
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3]);
    check_batches(&world, 9.0, 9.0);
}

#[test]
fn observe_tells_the_same() {
    let world = World::of("observe", &[]);
    let mut pair = world.informed();
    pair.write(&to(0, &three(0, 0)), 40);
    pair.write(&to(0, &three(1, 0)), 43);
    assert_eq!(resends(&world), [1.0, 0.0]);
}

/// What an aborted transaction wrote is written again for a reason.
#[test]
fn a_transaction_that_sends_the_same_is_not_told() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    for epoch in 0..2 {
        let mut batch = three(epoch, 0);
        batch.attributes = TRANSACTIONAL;
        pair.write(&to(0, &batch).transactional("tx"), 40);
    }
    assert_eq!(resends(&world), [0.0, 0.0]);
}

/// A client that restarts one partition only (Dekaf issue 3342).
#[test]
fn a_partition_that_goes_on_counting_in_a_new_epoch_is_told_as_such() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&produce(0), 40);
    let midway = Batch::of(PRODUCER, 1, 1, ["next"]);
    let (owed, asked) = pair.forwarded(&to(0, &midway));
    pair.broker.reply(&asked, |_| failed(45));
    assert_eq!(pair.receive_one(&owed).code, 45);
    let gaps = told(&world, "gap");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0]["kind"], "new_epoch_midway");
    assert_eq!(gaps[0]["explain"], "new_epoch_midway");
    assert_eq!(gaps[0].get("missing"), None, "it is not a gap of records");
    assert_eq!(world.gauge("hapax_missing_records_total"), 0.0);
}

/// A head that fails with `code` while followers are on their way, which get 45.
fn fallout(pair: &mut Pair, version: i16, followers: i32, code: i16) -> Vec<(i16, i64)> {
    let requests: Vec<Owed> = (1..=followers + 1)
        .map(|sequence| pair.send(&produce(sequence).version(version)))
        .collect();
    let asked: Vec<Asked> = requests.iter().map(|_| pair.broker.next()).collect();
    pair.broker.reply(&asked[0], |_| failed(code));
    for asked in &asked[1..] {
        pair.broker.reply(asked, |_| failed(45));
    }
    let answers = requests.iter().map(|owed| pair.receive_one(owed));
    answers.map(|answer| (answer.code, answer.offset)).collect()
}

#[test]
fn a_45_behind_a_failed_batch_is_shown_as_its_error_where_that_was_asked_for() {
    for (version, code, shown) in [
        (3, 6, 6),
        (8, 3, 3),
        (9, 19, 19),
        (12, 6, 6),
        (13, 100, 100),
        (13, 51, 19),
    ] {
        let world = World::new(&["--sequence-shield45"]);
        let mut pair = world.informed();
        pair.write(&produce(0), 40);
        let expected = [(code, -1), (shown, -1), (shown, -1)];
        assert_eq!(fallout(&mut pair, version, 2, code), expected, "{version}");
        assert_eq!(world.gauge("hapax_shielded_errors_total"), 2.0);
        let events = told(&world, "shielded");
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(events[0]["detail"], format!("shown as {shown}"));
        assert_eq!(events[0]["first"], 2);
        // The broker's word is counted as it was.
        let error = ["error=\"out_of_order_sequence_number\""];
        let errors = world.hapax.metric("hapax_sequence_errors_total", &error);
        assert_eq!(errors, 2.0);
        if code == 100 {
            continue; // another incarnation of the topic from here on
        }
        for sequence in 1..=3 {
            let offset = 40 + i64::from(sequence);
            let answers = pair.write(&produce(sequence).version(version), offset);
            assert_eq!(answers[0].offset, offset);
        }
        assert_eq!(world.gauge("hapax_verdicts_total"), 7.0);
    }
}

#[test]
fn unasked_or_observing_a_45_is_passed_on() {
    for world in [
        World::new(&[]),
        World::of("observe", &["--sequence-shield45"]),
    ] {
        let mut pair = world.informed();
        pair.write(&produce(0), 40);
        let codes = fallout(&mut pair, 12, 2, 6);
        assert_eq!(codes, [(6, -1), (45, -1), (45, -1)]);
        assert_eq!(world.gauge("hapax_shielded_errors_total"), 0.0);
        assert!(told(&world, "shielded").is_empty());
    }
}

#[test]
fn a_client_that_gave_the_failed_batch_up_hears_of_the_gap_after_three_answers() {
    let world = World::new(&["--sequence-shield45"]);
    let mut pair = world.informed();
    pair.write(&produce(0), 40);
    assert_eq!(fallout(&mut pair, 12, 1, 6), [(6, -1), (6, -1)]);
    for code in [6, 6, 45, 45] {
        let (owed, asked) = pair.forwarded(&produce(2));
        pair.broker.reply(&asked, |_| failed(45));
        assert_eq!(pair.receive_one(&owed).code, code);
    }
    assert_eq!(world.gauge("hapax_shielded_errors_total"), 3.0);
}

/// Nobody is shown anything when the client has gone.
#[test]
fn a_45_to_a_client_that_was_cut_off_is_not_counted_as_shown() {
    let world = World::new(&["--sequence-shield45"]);
    let mut pair = world.informed();
    pair.write(&produce(0), 40);
    let (_, head) = pair.forwarded(&produce(1));
    let (_, tail) = pair.forwarded(&produce(2));
    let Pair { client, mut broker } = pair;
    client.reset();
    orphans(&world, 1.0);
    broker.reply(&head, |_| failed(6));
    broker.reply(&tail, |_| failed(45));
    orphans(&world, 0.0);
    assert_eq!(world.gauge("hapax_shielded_errors_total"), 0.0);
}

/// The other partitions of the response stay as the broker gave them, words go
/// with the error that they were about, and addresses are still local.
#[test]
fn only_the_shielded_partition_of_a_response_changes() {
    let world = World::new(&["--sequence-shield45"]);
    let mut pair = world.informed();
    let batch = |partition: i32, sequence| {
        let value = format!("{partition}/{sequence}");
        (
            partition,
            Some(Batch::of(PRODUCER, 0, sequence, [value]).bytes()),
        )
    };
    let both =
        |first, second| Produce::of(vec![(orders(), vec![batch(0, first), batch(1, second)])]);
    pair.write(&both(0, 0), 40);
    let head = pair.send(&Produce::of(vec![(orders(), vec![batch(0, 1)])]));
    let tail = pair.send(&both(2, 1));
    let asked = [pair.broker.next(), pair.broker.next()];
    pair.broker.reply(&asked[0], |_| failed(6));
    let mut response = produced(&asked[1], |partition| {
        if partition == 0 {
            failed(45)
        } else {
            failed(6)
        }
    });
    let leader = LeaderIdAndEpoch::default()
        .with_leader_id(1.into())
        .with_leader_epoch(9);
    let partitions = &mut response.responses[0].partition_responses;
    partitions[0].error_message = Some(StrBytes::from_static_str("out of order"));
    partitions[1].error_message = Some(StrBytes::from_static_str("moved"));
    partitions[1].current_leader = leader;
    response.node_endpoints = vec![
        NodeEndpoint::default()
            .with_node_id(1.into())
            .with_host(StrBytes::from_static_str("kafka-1.example"))
            .with_port(9092),
    ];
    pair.broker.answer(&asked[1], &response);
    assert_eq!(pair.receive_one(&head).code, 6);
    let got = pair
        .client
        .receive::<ProduceRequest>(tail.version, tail.correlation)
        .unwrap();
    let mut expected = response.clone();
    let shown = &mut expected.responses[0].partition_responses[0];
    shown.error_code = 6;
    shown.error_message = None;
    assert_eq!(got.responses, expected.responses);
    let endpoint = &got.node_endpoints[0];
    assert_eq!(endpoint.host.as_str(), "127.0.0.1");
    let local = u16::try_from(endpoint.port).unwrap();
    assert!((world.hapax.first_port..world.hapax.first_port + 4).contains(&local));
    assert_eq!(world.gauge("hapax_shielded_errors_total"), 1.0);
}
