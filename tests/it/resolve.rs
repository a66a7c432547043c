//! The log is read back where the broker may have forgotten (SEMANTICS 7.6),
//! by the client's own connection.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
};
use kafka_protocol::protocol::Decodable;

use crate::broker::{Asked, Conn, failed, ok};
use crate::support::await_until;
use crate::support::batch::{Batch, TRANSACTIONAL};
use crate::support::raw::Produce;
use crate::world::{PRODUCER, Pair, SOON, World, of_epoch, orders, produce};

const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const LEADER_NOT_AVAILABLE: i16 = 5;
const OFFSET_NOT_AVAILABLE: i16 = 78;
const REQUEST_TIMED_OUT: i16 = 7;

/// What hapax wants to see of a log.
struct Question {
    asked: Asked,
    partition: i32,
    offset: i64,
    waits: bool,
}

/// The broker's next request is a question of hapax's own, to be answered at once.
fn question(broker: &mut Conn) -> Question {
    let question = any_question(broker);
    assert!(!question.waits);
    question
}

fn any_question(broker: &mut Conn) -> Question {
    let asked = broker.next();
    assert_eq!(asked.key, FETCH, "the log is read");
    let client_id = &asked.frame[10..15];
    assert_eq!(client_id, b"hapax");
    let mut body = asked
        .frame
        .slice(if asked.version >= 12 { 16 } else { 15 }..);
    let request = FetchRequest::decode(&mut body, asked.version).unwrap();
    assert!(body.is_empty());
    assert_eq!(request.isolation_level, 0);
    let waits = request.max_wait_ms > 0;
    assert_eq!(request.min_bytes, i32::from(waits));
    assert!(request.max_bytes <= 1 << 20);
    let partition = &request.topics[0].partitions[0];
    Question {
        partition: partition.partition,
        offset: partition.fetch_offset,
        waits,
        asked,
    }
}

/// The broker's next request asks for an offset by a time.
fn asked_for_time(broker: &mut Conn) -> (Asked, i64) {
    let asked = broker.next();
    assert_eq!((asked.key, asked.version), (LIST_OFFSETS, 1));
    let mut body = asked.frame.slice(15..);
    let request = ListOffsetsRequest::decode(&mut body, 1).unwrap();
    assert_eq!(request.topics[0].name.as_str(), "orders");
    let time = request.topics[0].partitions[0].timestamp;
    // No consumer is told what stands above the high watermark.
    assert_eq!(request.replica_id.0, if time == -1 { -2 } else { -1 });
    (asked, time)
}

fn lists(broker: &mut Conn, asked: &Asked, error: i16, offset: i64) {
    let partition = ListOffsetsPartitionResponse::default()
        .with_error_code(error)
        .with_offset(offset);
    let topic = ListOffsetsTopicResponse::default().with_partitions(vec![partition]);
    let response = ListOffsetsResponse::default().with_topics(vec![topic]);
    broker.answer(asked, &response);
}

/// Answers a question with nothing but the end of the log, and where that is.
fn shows_the_end(broker: &mut Conn, question: &Question, offset: i64) {
    shows(broker, question, &ends_at(offset));
    says_where_it_ends(broker, offset);
}

fn says_where_it_ends(broker: &mut Conn, offset: i64) {
    let (asked, time) = asked_for_time(broker);
    assert_eq!(time, -1);
    lists(broker, &asked, 0, offset);
}

/// What the broker shows of its log.
#[derive(Default)]
struct Shown {
    error: i16,
    high_watermark: i64,
    records: Vec<u8>,
}

/// A batch as the log has it at this offset.
fn logged(batch: &Bytes, offset: i64) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[..8].copy_from_slice(&offset.to_be_bytes());
    batch
}

/// A batch of another producer.
fn other(offset: i64) -> Vec<u8> {
    logged(&Batch::of(1, 0, 0, ["other"]).bytes(), offset)
}

fn show(asked: &Asked, partition: i32, shown: &Shown) -> Bytes {
    let data = PartitionData::default()
        .with_partition_index(partition)
        .with_error_code(shown.error)
        .with_high_watermark(shown.high_watermark)
        .with_records(Some(shown.records.clone().into()));
    let topic = FetchableTopicResponse::default().with_partitions(vec![data]);
    let response = FetchResponse::default().with_responses(vec![topic]);
    crate::broker::answer(asked, &response)
}

/// Answers a question.
fn shows(broker: &mut Conn, question: &Question, shown: &Shown) {
    broker.send(&show(&question.asked, question.partition, shown));
}

/// The log ends with this batch, at this offset.
fn ends_with(batch: &Bytes, offset: i64) -> Shown {
    Shown {
        error: 0,
        high_watermark: offset + 1,
        records: logged(batch, offset),
    }
}

/// The log has nothing from this offset on.
fn ends_at(offset: i64) -> Shown {
    Shown {
        high_watermark: offset,
        ..Shown::default()
    }
}

fn error(error: i16) -> Shown {
    Shown {
        error,
        high_watermark: -1,
        ..Shown::default()
    }
}

/// The batch with this sequence, whose records no broker thinks old.
fn young(sequence: i32) -> Bytes {
    let mut batch = of_epoch(0, sequence);
    batch.base_timestamp = i64::MAX / 2;
    batch.bytes()
}

fn to(partition: i32, batch: &Bytes) -> Produce {
    Produce::to(&orders(), partition, batch.clone())
}

impl World {
    fn resolves(&self, outcome: &str) -> f64 {
        let label = format!("outcome=\"{outcome}\"");
        self.hapax.metric("hapax_resolves_total", &[&label])
    }

    fn resolved(&self) -> [f64; 4] {
        ["found", "absent", "refused", "gave_up"].map(|outcome| self.resolves(outcome))
    }
}

/// Batch 0 is acknowledged at offset 100, and of the given ones nobody heard
/// again: the connection is lost.
fn lost(world: &World, batches: &[Produce]) {
    let mut pair = world.informed();
    pair.write(&to(0, &young(0)), 100);
    for batch in batches {
        pair.send(batch);
    }
    for _ in batches {
        pair.broker.next();
    }
    let Pair { mut client, broker } = pair;
    drop(broker);
    assert!(client.receive_frame().is_err(), "the client hears of it");
}

/// The batch of 2023 with sequence 1, lost, and a connection that retries it.
fn lost_old(world: &World) -> Pair {
    lost(world, &[produce(1)]);
    world.informed()
}

#[test]
fn an_old_retry_that_the_log_has_is_answered_from_it() {
    for version in [3, 8, 9, 12, 13] {
        let world = World::new(&[]);
        let mut pair = lost_old(&world);
        let retry = produce(1).version(version);
        let owed = pair.send(&retry);
        let asked = question(&mut pair.broker);
        assert_eq!(asked.asked.version, if version == 13 { 13 } else { 4 });
        assert_eq!((asked.partition, asked.offset), (0, 101));
        let batch = of_epoch(0, 1).bytes();
        let records = [other(101), logged(&batch, 102)].concat();
        let shown = Shown {
            error: 0,
            high_watermark: 103,
            records,
        };
        shows(&mut pair.broker, &asked, &shown);
        let answer = pair.receive_one(&owed);
        assert_eq!((answer.code, answer.offset), (0, 102), "version {version}");
        assert_eq!(answer.append_time, -1);
        pair.barrier();
        assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(world.verdicts("duplicate_resolved"), 1.0);
        assert_eq!(world.verdicts("duplicate_absorbed"), 0.0);
        let told = world.events();
        assert!(
            told.iter().any(|(e, _)| e == "duplicate_resolved"),
            "{told:?}"
        );
        // It is a fact from here on.
        assert_eq!(pair.answered_here(&retry)[0].offset, 102);
        assert_eq!(world.verdicts("duplicate_absorbed"), 1.0);
        // And the next batch goes on where it ended.
        assert_eq!(pair.write(&produce(2), 103)[0].offset, 103);
    }
}

#[test]
fn an_old_retry_that_the_log_lacks_is_forwarded() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    shows_the_end(&mut pair.broker, &asked, 101);
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.ack(&asked, 101);
    assert_eq!(pair.receive_one(&owed).offset, 101);
    assert_eq!(world.resolved(), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
    assert_eq!(world.verdicts("duplicate_resolved"), 0.0);
}

/// The broker's answer is lost behind hapax, which does not hear of it: the
/// client is the first to lose patience, and the broker has forgotten.
#[test]
fn an_old_retry_of_a_batch_without_an_answer_is_answered_from_the_log() {
    let world = World::new(&[]);
    let mut silent = world.informed();
    silent.write(&to(0, &young(0)), 100);
    silent.send(&produce(1));
    silent.broker.next();
    let mut pair = world.informed();
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    let batch = of_epoch(0, 1).bytes();
    shows(&mut pair.broker, &asked, &ends_with(&batch, 101));
    let answer = pair.receive_one(&owed);
    assert_eq!((answer.code, answer.offset), (0, 101));
    assert_eq!(world.verdicts("duplicate_resolved"), 1.0);
}

#[test]
fn a_retry_of_today_is_forwarded_at_once() {
    let world = World::new(&[]);
    lost(&world, &[to(0, &young(1))]);
    let mut pair = world.informed();
    let owed = pair.send(&to(0, &young(1)));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.ack(&asked, 101);
    assert_eq!(pair.receive_one(&owed).offset, 101);
    assert_eq!(world.resolved(), [0.0; 4]);
}

#[test]
fn old_is_what_the_operator_says() {
    let age = Duration::from_secs(48 * 3600);
    let then = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() - age;
    let mut batch = of_epoch(0, 1);
    batch.base_timestamp = i64::try_from(then.as_millis()).unwrap();
    let retry = to(0, &batch.bytes());
    let first_word = |mode: &str, flags: &[&str]| {
        let world = World::of(mode, flags);
        lost(&world, std::slice::from_ref(&retry));
        let mut pair = world.informed();
        pair.send(&retry);
        pair.broker.next().key
    };
    assert_eq!(first_word("absorb", &[]), FETCH);
    for flag in [
        "--sequence-broker-producer-expiry=72h",
        "--sequence-resolve=false",
        "--limits-resolves=0",
    ] {
        assert_eq!(first_word("absorb", &[flag]), 0, "{flag}");
    }
    assert_eq!(first_word("observe", &[]), 0);
}

#[test]
fn at_the_limit_of_readers_the_client_tries_again() {
    let world = World::new(&["--limits-resolves=1"]);
    lost(&world, &[produce(1)]);
    let mut other = world.informed();
    other.write(&Produce::to(&orders(), 1, of_epoch(0, 0).bytes()), 500);
    other.send(&Produce::to(&orders(), 1, of_epoch(0, 1).bytes()));
    other.broker.next();
    drop(other.broker);
    assert!(other.client.receive_frame().is_err());
    let (mut first, mut second) = (world.informed(), world.informed());
    let owed = first.send(&produce(1));
    let asked = question(&mut first.broker);
    let put_off = second.send(&Produce::to(&orders(), 1, of_epoch(0, 1).bytes()));
    assert_eq!(second.receive_one(&put_off).code, REQUEST_TIMED_OUT);
    second.broker.assert_silent();
    let limit = world
        .hapax
        .metric("hapax_limit_reached_total", &["limit=\"resolves\""]);
    assert_eq!(limit, 1.0);
    shows(
        &mut first.broker,
        &asked,
        &ends_with(&of_epoch(0, 1).bytes(), 101),
    );
    assert_eq!(first.receive_one(&owed).offset, 101);
    assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(world.resolves("late"), 1.0);
}

#[test]
fn a_refusal_is_learned_once() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    shows(&mut pair.broker, &asked, &error(29));
    assert_eq!(pair.broker.next().sequences(), [(0, 1)]);
    drop(pair.broker);
    assert!(pair.client.receive_frame().is_err());
    // Its outcome is unknown again, and nobody asks again.
    let mut pair = world.informed();
    let owed = pair.send(&produce(1));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.reply(&asked, |_| failed(45));
    assert_eq!(pair.receive_one(&owed).code, 45, "relayed as it came");
    assert_eq!(world.resolved(), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn an_error_a_hole_and_what_cannot_be_read_leave_it_to_the_broker() {
    let batch = of_epoch(0, 1).bytes();
    let cut_short = Shown {
        error: 0,
        high_watermark: 200,
        records: logged(&batch, 101)[..70].to_vec(),
    };
    let hole = Shown {
        error: 0,
        high_watermark: 151,
        records: other(150),
    };
    let above = Shown {
        error: 0,
        high_watermark: 101,
        records: logged(&batch, 101),
    };
    for (shown, end) in [
        (error(1), None),
        (cut_short, None),
        (hole, Some(151)),
        (above, None),
    ] {
        let world = World::new(&[]);
        let mut pair = lost_old(&world);
        pair.send(&produce(1));
        let asked = question(&mut pair.broker);
        shows(&mut pair.broker, &asked, &shown);
        if let Some(end) = end {
            says_where_it_ends(&mut pair.broker, end);
        }
        assert_eq!(pair.broker.next().sequences(), [(0, 1)]);
        assert_eq!(world.resolved(), [0.0, 0.0, 0.0, 1.0]);
    }
}

/// It was never read: the broker that leads now is asked.
#[test]
fn of_a_broker_that_leads_no_more_nothing_is_believed() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    for _ in 0..5 {
        let owed = pair.send(&produce(1));
        let asked = question(&mut pair.broker);
        shows(&mut pair.broker, &asked, &error(6));
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(0, 1)]);
        pair.broker.reply(&asked, |_| failed(6));
        assert_eq!(pair.receive_one(&owed).code, 6);
    }
    assert_eq!(world.resolves("late"), 5.0);
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    let shown = ends_with(&of_epoch(0, 1).bytes(), 101);
    shows(&mut pair.broker, &asked, &shown);
    assert_eq!(pair.receive_one(&owed).offset, 101);
}

#[test]
fn an_answer_that_is_none_leaves_it_to_the_broker() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    pair.broker.answer_raw(&asked.asked, b"this is no answer");
    let asked = pair.broker.next();
    pair.broker.ack(&asked, 101);
    assert_eq!(pair.receive_one(&owed).offset, 101);
    assert_eq!(world.resolved(), [0.0, 0.0, 0.0, 1.0]);
}

/// A large batch is sent whole, whatever was asked for.
#[test]
fn an_answer_that_is_too_large_is_dropped_as_it_comes() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    let mut large = Batch::of(1, 0, 0, ["x"]);
    large.payload = Some(vec![7; 3 << 20]);
    let large = ends_with(&large.bytes(), 101);
    shows(&mut pair.broker, &asked, &large);
    let asked = pair.broker.next();
    pair.broker.ack(&asked, 102);
    assert_eq!(pair.receive_one(&owed).offset, 102);
    pair.barrier();
    assert_eq!(world.resolved(), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn it_reads_on_where_an_answer_ended_and_no_more_than_it_may() {
    let world = World::new(&["--sequence-resolve-bytes=1024"]);
    let mut pair = lost_old(&world);
    let owed = pair.send(&produce(1));
    for offset in [101, 102, 103] {
        let asked = question(&mut pair.broker);
        assert_eq!(asked.offset, offset);
        let shown = Shown {
            error: 0,
            high_watermark: 200,
            records: [other(offset), other(offset + 1)[..65].to_vec()].concat(),
        };
        shows(&mut pair.broker, &asked, &shown);
    }
    let asked = question(&mut pair.broker);
    shows(
        &mut pair.broker,
        &asked,
        &ends_with(&of_epoch(0, 1).bytes(), 104),
    );
    assert_eq!(pair.receive_one(&owed).offset, 104);

    let world = World::new(&["--sequence-resolve-bytes=1024"]);
    let mut pair = lost_old(&world);
    pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    let records: Vec<u8> = (101..130).flat_map(other).collect();
    assert!(records.len() > 1024);
    let shown = Shown {
        error: 0,
        high_watermark: 200,
        records,
    };
    shows(&mut pair.broker, &asked, &shown);
    assert_eq!(pair.broker.next().sequences(), [(0, 1)]);
    assert_eq!(world.resolves("gave_up"), 1.0);
}

#[test]
fn what_the_log_does_not_show_in_time_is_put_off_and_never_sent() {
    let world = World::new(&["--sequence-resolve-timeout=300ms"]);
    let mut pair = lost_old(&world);
    for _ in 0..3 {
        let start = Instant::now();
        let owed = pair.send(&produce(1));
        let late = question(&mut pair.broker);
        assert_eq!(pair.receive_one(&owed).code, REQUEST_TIMED_OUT);
        assert!(start.elapsed() >= Duration::from_millis(300));
        // The late answer comes in its turn, and no client sees it.
        shows(
            &mut pair.broker,
            &late,
            &ends_with(&of_epoch(0, 1).bytes(), 101),
        );
        pair.barrier();
    }
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    let shown = ends_with(&of_epoch(0, 1).bytes(), 101);
    shows(&mut pair.broker, &asked, &shown);
    assert_eq!(pair.receive_one(&owed).offset, 101);
    assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(world.resolves("late"), 3.0);
    assert_eq!(world.verdicts("mirrored"), 3.0);
}

/// Its replicas are slow: the leader has more than a consumer may see.
#[test]
fn what_stands_above_the_high_watermark_is_waited_for() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    let owed = pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    shows(&mut pair.broker, &asked, &ends_at(101));
    says_where_it_ends(&mut pair.broker, 102);
    for _ in 0..3 {
        let asked = any_question(&mut pair.broker);
        assert_eq!((asked.offset, asked.waits), (101, true));
        shows(&mut pair.broker, &asked, &ends_at(101));
    }
    let asked = any_question(&mut pair.broker);
    let shown = ends_with(&of_epoch(0, 1).bytes(), 101);
    shows(&mut pair.broker, &asked, &shown);
    assert_eq!(pair.receive_one(&owed).offset, 101);
    assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
}

/// The client is gone, and the broker has not yet come to its request: what
/// the log lacks it may have at any time.
#[test]
fn while_a_copy_is_on_its_way_an_old_retry_waits_and_never_leaves() {
    let world = World::new(&[]);
    let mut first = world.informed();
    first.write(&produce(0), 100);
    first.send(&produce(1));
    let original = first.broker.next();
    drop(first.client);
    let mut second = world.informed();
    let lacks_it = |pair: &mut Pair| {
        let asked = question(&mut pair.broker);
        shows_the_end(&mut pair.broker, &asked, 101);
    };
    let owed = second.send(&produce(1).timeout(400));
    lacks_it(&mut second);
    assert_eq!(second.receive_one(&owed).code, REQUEST_TIMED_OUT);
    let owed = second.send(&produce(1));
    await_until("a held request", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    first.broker.ack(&original, 101);
    assert_eq!(second.receive_one(&owed).offset, 101);
    second.broker.assert_silent();
}

/// Half of the six hundred milliseconds that the request itself allows.
#[test]
fn it_takes_no_more_than_half_of_the_requests_own_time() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    let start = Instant::now();
    let owed = pair.send(&produce(1).timeout(600));
    question(&mut pair.broker);
    assert_eq!(pair.receive_one(&owed).code, REQUEST_TIMED_OUT);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(start.elapsed() < Duration::from_secs(2));
}

/// Nothing of the producer was acknowledged here.
#[test]
fn without_a_place_to_begin_the_time_of_the_records_gives_one() {
    for version in [12, 13] {
        let world = World::new(&[]);
        let mut pair = world.informed();
        pair.send(&produce(0));
        pair.broker.next();
        drop(pair.broker);
        assert!(pair.client.receive_frame().is_err());
        let mut pair = world.informed();
        let owed = pair.send(&produce(0).version(version));
        let (asked, time) = asked_for_time(&mut pair.broker);
        assert_eq!(time, of_epoch(0, 0).greatest_timestamp());
        lists(&mut pair.broker, &asked, 0, 70);
        let asked = question(&mut pair.broker);
        assert_eq!(asked.offset, 70);
        let shown = ends_with(&of_epoch(0, 0).bytes(), 70);
        shows(&mut pair.broker, &asked, &shown);
        assert_eq!(pair.receive_one(&owed).offset, 70);
        assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
    }
}

/// What follows is not read before the question has its answer.
#[test]
fn the_batches_behind_it_wait_and_the_log_is_asked_for_each() {
    let world = World::new(&[]);
    lost(&world, &[produce(1), produce(2)]);
    let mut pair = world.informed();
    let (r1, r2) = (pair.send(&produce(1)), pair.send(&produce(2)));
    let asked = question(&mut pair.broker);
    pair.broker.assert_silent();
    shows(
        &mut pair.broker,
        &asked,
        &ends_with(&of_epoch(0, 1).bytes(), 101),
    );
    let asked = question(&mut pair.broker);
    assert_eq!(asked.offset, 102, "behind what was found");
    shows(
        &mut pair.broker,
        &asked,
        &ends_with(&of_epoch(0, 2).bytes(), 102),
    );
    assert_eq!(pair.receive_one(&r1).offset, 101);
    assert_eq!(pair.receive_one(&r2).offset, 102);
    assert_eq!(world.verdicts("duplicate_resolved"), 2.0);
}

#[test]
fn of_a_request_with_several_batches_each_gets_what_the_log_says() {
    for version in [9, 13] {
        let world = World::new(&[]);
        let both = |sequence| {
            let batch = |partition: i32| (partition, Some(of_epoch(0, sequence).bytes()));
            Produce::of(vec![(orders(), vec![batch(0), batch(1)])]).version(version)
        };
        let mut pair = world.informed();
        pair.write(&both(0), 100);
        pair.send(&both(1));
        pair.broker.next();
        drop(pair.broker);
        assert!(pair.client.receive_frame().is_err());
        let mut pair = world.informed();
        let owed = pair.send(&both(1));
        let asked = question(&mut pair.broker);
        assert_eq!(asked.partition, 0);
        shows(
            &mut pair.broker,
            &asked,
            &ends_with(&of_epoch(0, 1).bytes(), 101),
        );
        let asked = question(&mut pair.broker);
        assert_eq!(asked.partition, 1);
        shows_the_end(&mut pair.broker, &asked, 101);
        let asked = pair.broker.next();
        assert_eq!(asked.sequences(), [(1, 1)], "the other one is forwarded");
        pair.broker.reply(&asked, |_| ok(300));
        let mut answers = pair.receive(&owed);
        answers.sort_by_key(|answer| answer.partition);
        let offsets: Vec<_> = answers
            .iter()
            .map(|a| (a.partition, a.code, a.offset))
            .collect();
        assert_eq!(offsets, [(0, 0, 101), (1, 0, 300)], "version {version}");
        assert_eq!(world.resolved(), [1.0, 1.0, 0.0, 0.0]);
    }
}

#[test]
fn a_transactional_retry_is_never_looked_for() {
    let world = World::new(&[]);
    let transactional = |sequence| {
        let mut batch = of_epoch(0, sequence);
        batch.attributes = TRANSACTIONAL;
        Produce::to(&orders(), 0, batch.bytes()).transactional("tx")
    };
    let mut pair = world.informed();
    pair.write(&transactional(0), 100);
    pair.send(&transactional(1));
    pair.broker.next();
    drop(pair.broker);
    assert!(pair.client.receive_frame().is_err());
    let mut pair = world.informed();
    let owed = pair.send(&transactional(1));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    assert_eq!(pair.receive_one(&owed).code, 45);
    assert_eq!(world.resolved(), [0.0; 4]);
}

/// Hole B3: the snapshot of a broker that restarted has the last batch alone.
#[test]
fn a_45_for_what_the_log_has_becomes_its_acknowledgement() {
    for version in [3, 8, 9, 12, 13] {
        let world = World::new(&[]);
        let retry = to(0, &young(1)).version(version);
        lost(&world, std::slice::from_ref(&retry));
        let mut pair = world.informed();
        let owed = pair.send(&retry);
        let asked = pair.broker.next();
        pair.broker.reply(&asked, |_| failed(45));
        let asked = question(&mut pair.broker);
        assert_eq!(asked.offset, 101);
        shows(&mut pair.broker, &asked, &ends_with(&young(1), 101));
        let answer = pair.receive_one(&owed);
        assert_eq!((answer.code, answer.offset), (0, 101), "version {version}");
        assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
        let events = world.events();
        assert!(events.iter().any(|(e, _)| e == "duplicate_resolved"));
        assert!(!events.iter().any(|(e, _)| e == "disagreement"));
        // What was known stays known.
        assert_eq!(pair.answered_here(&to(0, &young(1)))[0].offset, 101);
    }
}

#[test]
fn a_45_for_what_the_log_lacks_is_relayed() {
    for (shown, told) in [
        (ends_at(101), 45),
        (error(29), 45),
        (error(1), 45),
        // It leads no more: nobody knows of the earlier attempt.
        (error(6), REQUEST_TIMED_OUT),
    ] {
        let world = World::new(&[]);
        let retry = to(0, &young(1));
        lost(&world, std::slice::from_ref(&retry));
        let mut pair = world.informed();
        let owed = pair.send(&retry);
        let asked = pair.broker.next();
        pair.broker.reply(&asked, |_| failed(45));
        let asked = question(&mut pair.broker);
        shows(&mut pair.broker, &asked, &shown);
        if shown.error == 0 {
            says_where_it_ends(&mut pair.broker, shown.high_watermark);
        }
        assert_eq!(pair.receive_one(&owed).code, told);
        pair.barrier();
        assert_eq!(world.resolves("found"), 0.0);
    }
}

/// Its high watermark is older than what its predecessor acknowledged, and the
/// batch stands above it.
#[test]
fn a_leader_that_was_just_elected_is_waited_for() {
    for version in [12, 13] {
        for end_is_unknown in [LEADER_NOT_AVAILABLE, OFFSET_NOT_AVAILABLE] {
            let world = World::new(&[]);
            let retry = to(0, &young(1)).version(version);
            lost(&world, std::slice::from_ref(&retry));
            let mut pair = world.informed();
            let owed = pair.send(&retry);
            let asked = pair.broker.next();
            pair.broker.reply(&asked, |_| failed(45));
            // (from where on, whether at once, what there is)
            for (offset, waits, shown) in [
                (101, false, ends_at(100)),
                (100, true, ends_with(&other(100).into(), 100)),
            ] {
                let asked = any_question(&mut pair.broker);
                assert_eq!((asked.offset, asked.waits), (offset, waits));
                shows(&mut pair.broker, &asked, &shown);
                let (asked, time) = asked_for_time(&mut pair.broker);
                assert_eq!(time, -1);
                lists(&mut pair.broker, &asked, end_is_unknown, -1);
            }
            let asked = any_question(&mut pair.broker);
            assert_eq!((asked.offset, asked.waits), (101, true));
            shows(&mut pair.broker, &asked, &ends_with(&young(1), 101));
            let answer = pair.receive_one(&owed);
            assert_eq!((answer.code, answer.offset), (0, 101));
            assert_eq!(world.resolved(), [1.0, 0.0, 0.0, 0.0]);
        }
    }
}

/// Then it is where the old leader was, and nothing speaks for the batch.
#[test]
fn a_leader_whose_end_stays_unknown_is_waited_for_no_longer_than_anything() {
    let world = World::new(&["--sequence-resolve-timeout=300ms"]);
    let retry = to(0, &young(1));
    lost(&world, std::slice::from_ref(&retry));
    let mut pair = world.informed();
    let owed = pair.send(&retry);
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    let asked = question(&mut pair.broker);
    shows(&mut pair.broker, &asked, &ends_at(101));
    let (asked, _) = asked_for_time(&mut pair.broker);
    lists(&mut pair.broker, &asked, LEADER_NOT_AVAILABLE, -1);
    let late = any_question(&mut pair.broker);
    assert!(late.waits);
    assert_eq!(pair.receive_one(&owed).code, REQUEST_TIMED_OUT);
    shows(&mut pair.broker, &late, &ends_at(101));
    pair.barrier();
    assert_eq!(world.resolves("late"), 1.0);
}

/// It contradicts the last acknowledgement, and no earlier attempt is known.
#[test]
fn a_45_behind_the_last_acknowledgement_is_looked_into_and_believed_if_it_is_right() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&to(0, &young(0)), 100);
    let owed = pair.send(&to(0, &young(1)));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    let asked = question(&mut pair.broker);
    shows(&mut pair.broker, &asked, &ends_with(&young(1), 101));
    assert_eq!(pair.receive_one(&owed).offset, 101);
    let owed = pair.send(&to(0, &young(2)));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    let asked = question(&mut pair.broker);
    shows(&mut pair.broker, &asked, &error(1));
    assert_eq!(pair.receive_one(&owed).code, 45);
    let events = world.events();
    assert!(
        events.iter().any(|(e, _)| e == "disagreement"),
        "{events:?}"
    );
}

#[test]
fn a_45_behind_a_gap_is_relayed_at_once() {
    let world = World::new(&[]);
    let mut pair = world.informed();
    pair.write(&to(0, &young(0)), 100);
    let owed = pair.send(&to(0, &young(7)));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    assert_eq!(pair.receive_one(&owed).code, 45);
    assert_eq!(world.resolved(), [0.0; 4]);
}

/// Both are at the broker when it answers: they follow what it acknowledged on
/// their connection.
fn two_refused(world: &World) -> (Pair, [crate::world::Owed; 2]) {
    let (r1, r2) = (to(0, &young(1)), to(0, &young(2)));
    let mut pair = world.informed();
    pair.write(&to(0, &young(0)), 100);
    let owed = [pair.send(&r1), pair.send(&r2)];
    let asked = [pair.broker.next(), pair.broker.next()];
    let answers = asked.map(|asked| {
        let produced = crate::broker::produced(&asked, |_| failed(45));
        crate::broker::answer(&asked, &produced)
    });
    pair.broker.send(&answers.concat());
    (pair, owed)
}

#[test]
fn of_two_that_were_refused_in_a_row_the_client_sees_two_successes_in_order() {
    let world = World::new(&[]);
    let (mut pair, [r1, r2]) = two_refused(&world);
    let asked = question(&mut pair.broker);
    assert_eq!(asked.offset, 101);
    let records = [logged(&young(1), 101), logged(&young(2), 102)].concat();
    let both = Shown {
        error: 0,
        high_watermark: 103,
        records,
    };
    shows(&mut pair.broker, &asked, &both);
    let asked = question(&mut pair.broker);
    assert_eq!(asked.offset, 102);
    shows(&mut pair.broker, &asked, &ends_with(&young(2), 102));
    assert_eq!(pair.receive_one(&r1).offset, 101);
    assert_eq!(pair.receive_one(&r2).offset, 102);
    pair.barrier();
    assert_eq!(world.resolved(), [2.0, 0.0, 0.0, 0.0]);
}

#[test]
fn what_came_behind_the_question_and_before_it_reaches_the_client_in_order() {
    let world = World::new(&[]);
    let (mut pair, [r1, r2]) = two_refused(&world);
    let asked = question(&mut pair.broker);
    // Meanwhile the client goes on with what has nothing to do with it.
    let ping = crate::world::ping(&mut pair.client);
    let pinged = pair.broker.next();
    let answer = show(&asked.asked, 0, &ends_with(&young(1), 101));
    let pong = crate::broker::framed(pinged.correlation, b"pong");
    // In pieces, so that the answer is cut.
    let (head, tail) = answer.split_at(30);
    pair.broker.send(head);
    pair.broker.send(&[tail, &pong].concat());
    let asked = question(&mut pair.broker);
    shows_the_end(&mut pair.broker, &asked, 102);
    assert_eq!(pair.receive_one(&r1).offset, 101);
    assert_eq!(pair.receive_one(&r2).code, 45, "the log does not have it");
    assert_eq!(
        pair.client.receive_frame().unwrap()[..4],
        ping.to_be_bytes()
    );
    pair.barrier();
    assert_eq!(world.resolved(), [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn what_waits_goes_when_the_time_is_over() {
    let world = World::new(&["--sequence-resolve-timeout=300ms"]);
    let (mut pair, [r1, r2]) = two_refused(&world);
    let first = question(&mut pair.broker);
    assert_eq!(pair.receive_one(&r1).code, 45);
    shows(&mut pair.broker, &first, &ends_at(101));
    // Its predecessor was refused: nothing speaks for it.
    assert_eq!(pair.receive_one(&r2).code, 45);
    pair.barrier();
    assert_eq!(world.resolves("late"), 1.0);
}

#[test]
fn too_much_behind_it_ends_the_wait() {
    let world = World::new(&["--sequence-resolve-timeout=20s"]);
    let retry = to(0, &young(1));
    lost(&world, std::slice::from_ref(&retry));
    let mut pair = world.informed();
    let owed = pair.send(&retry.timeout(600_000));
    let ping = crate::world::ping(&mut pair.client);
    let asked = pair.broker.next();
    let pinged = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    let asked = question(&mut pair.broker);
    pair.broker.answer_raw(&pinged, &vec![7; 4 << 20]);
    shows(&mut pair.broker, &asked, &ends_with(&young(1), 101));
    assert_eq!(pair.receive_one(&owed).code, 45);
    let large = pair.client.receive_frame().unwrap();
    assert_eq!(
        (large[..4].to_vec(), large.len()),
        (ping.to_be_bytes().to_vec(), 4 + (4 << 20))
    );
    pair.barrier();
    assert_eq!(world.resolved(), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn of_a_response_with_several_errors_only_what_the_log_has_is_changed() {
    for version in [8, 13] {
        let world = World::new(&[]);
        let all = |sequence| {
            let batch = |partition: i32| (partition, Some(young(sequence)));
            let partitions = (0..4).map(batch).collect();
            Produce::of(vec![(orders(), partitions)]).version(version)
        };
        let mut pair = world.informed();
        pair.write(&all(0), 100);
        pair.send(&all(1));
        pair.broker.next();
        drop(pair.broker);
        assert!(pair.client.receive_frame().is_err());
        let mut pair = world.informed();
        let owed = pair.send(&all(1));
        let asked = pair.broker.next();
        pair.broker.reply(&asked, |partition| match partition {
            1 | 3 => failed(45),
            2 => failed(87),
            _ => ok(101),
        });
        let asked = question(&mut pair.broker);
        assert_eq!(asked.partition, 1);
        shows(&mut pair.broker, &asked, &ends_with(&young(1), 103));
        let asked = question(&mut pair.broker);
        assert_eq!(asked.partition, 3);
        shows_the_end(&mut pair.broker, &asked, 101);
        let mut answers = pair.receive(&owed);
        answers.sort_by_key(|answer| answer.partition);
        let got: Vec<_> = answers.iter().map(|a| (a.code, a.offset)).collect();
        let expected = [(0, 101), (0, 103), (87, -1), (45, -1)];
        assert_eq!(got, expected, "version {version}");
    }
}

/// Whatever ends while the log is read, what is open is settled and nothing is
/// left behind.
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
fn a_client_that_goes_while_its_retry_is_looked_for_leaves_nothing() {
    for reset in [true, false] {
        let world = World::new(&[]);
        let mut pair = lost_old(&world);
        pair.send(&produce(1));
        let asked = question(&mut pair.broker);
        let Pair { client, mut broker } = pair;
        if reset {
            client.reset();
            broker.assert_ended();
        } else {
            // It has said all it wanted, and may still listen: it is served.
            drop(client);
            shows(
                &mut broker,
                &asked,
                &ends_with(&of_epoch(0, 1).bytes(), 101),
            );
            broker.assert_ended();
        }
        all_gone(&world);
        // The retry comes on another connection.
        let mut pair = world.informed();
        let owed = pair.send(&produce(1));
        if reset {
            let asked = question(&mut pair.broker);
            shows(
                &mut pair.broker,
                &asked,
                &ends_with(&of_epoch(0, 1).bytes(), 101),
            );
        }
        assert_eq!(pair.receive_one(&owed).offset, 101);
    }
}

/// An orphan goes on without its question: the batches behind it count.
#[test]
fn a_client_that_goes_while_a_response_waits_leaves_its_later_acknowledgements() {
    let world = World::new(&[]);
    let (mut pair, _) = two_refused(&world);
    let asked = question(&mut pair.broker);
    pair.send(&Produce::to(&orders(), 3, young(0)));
    let other = pair.broker.next();
    let Pair { client, mut broker } = pair;
    client.reset();
    await_until("the orphan", SOON, || {
        world.gauge("hapax_orphan_sessions") == 1.0
    });
    shows(&mut broker, &asked, &ends_at(101));
    broker.ack(&other, 900);
    broker.assert_ended();
    all_gone(&world);
    let mut pair = world.informed();
    let again = pair.answered_here(&Produce::to(&orders(), 3, young(0)));
    assert_eq!(again[0].offset, 900);
}

#[test]
fn a_broker_that_goes_while_a_response_waits_leaves_the_client_its_answers() {
    let world = World::new(&[]);
    let (mut pair, [r1, r2]) = two_refused(&world);
    question(&mut pair.broker);
    drop(pair.broker);
    let mut client = pair.client;
    for owed in [r1, r2] {
        let frame = client.receive_frame().unwrap();
        assert_eq!(frame[..4], owed.correlation.to_be_bytes());
    }
    assert!(client.receive_frame().is_err());
    drop(client);
    all_gone(&world);
}

/// Else a broker that hangs up on the question would be asked for ever.
#[test]
fn a_broker_that_hangs_up_on_the_question_is_asked_three_times() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    for _ in 0..3 {
        pair.send(&produce(1));
        question(&mut pair.broker);
        drop(pair.broker);
        assert!(pair.client.receive_frame().is_err());
        pair = world.informed();
    }
    let owed = pair.send(&produce(1));
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.ack(&asked, 101);
    assert_eq!(pair.receive_one(&owed).offset, 101);
}

#[test]
fn a_client_that_sends_no_more_still_gets_what_the_log_says() {
    let world = World::new(&[]);
    let retry = to(0, &young(1));
    lost(&world, std::slice::from_ref(&retry));
    let mut pair = world.informed();
    let owed = pair.send(&retry);
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(45));
    let asked = question(&mut pair.broker);
    let stream = pair.client.stream();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    shows(&mut pair.broker, &asked, &ends_with(&young(1), 101));
    assert_eq!(pair.receive_one(&owed).offset, 101);
    pair.broker.assert_ended();
    drop(pair);
    all_gone(&world);
}

/// The question must not stand in the middle of a client's request.
#[test]
fn the_question_waits_for_the_end_of_a_request_that_is_passing() {
    let world = World::new(&[]);
    let retry = to(0, &young(1));
    lost(&world, std::slice::from_ref(&retry));
    let mut pair = world.informed();
    let owed = pair.send(&retry);
    let asked = pair.broker.next();
    let (_, large) = pair
        .client
        .frame_raw(crate::broker::OPAQUE, 0, 1, &vec![7; 300 << 10]);
    let (head, tail) = large.split_at(200 << 10);
    pair.client.send_raw(head).unwrap();
    pair.broker.reply(&asked, |_| failed(45));
    await_until("the answer to wait", SOON, || {
        world.gauge("hapax_requests_in_flight") >= 2.0
    });
    pair.client.send_raw(tail).unwrap();
    let passed = pair.broker.next();
    assert_eq!(passed.frame.len(), large.len() - 4);
    let asked = question(&mut pair.broker);
    let pong = crate::broker::framed(passed.correlation, b"pong");
    pair.broker.send(&pong);
    shows(&mut pair.broker, &asked, &ends_with(&young(1), 101));
    assert_eq!(pair.receive_one(&owed).offset, 101);
    assert!(pair.client.receive_frame().unwrap().ends_with(b"pong"));
}

/// What hapax took from a batch's header names it: the producer is another.
#[test]
fn another_producers_batch_is_not_taken_for_it() {
    let world = World::new(&[]);
    let mut pair = lost_old(&world);
    pair.send(&produce(1));
    let asked = question(&mut pair.broker);
    let mut others = of_epoch(0, 1);
    others.producer = PRODUCER + 1;
    shows(&mut pair.broker, &asked, &ends_with(&others.bytes(), 101));
    says_where_it_ends(&mut pair.broker, 102);
    assert_eq!(pair.broker.next().sequences(), [(0, 1)]);
    assert_eq!(world.resolved(), [0.0, 1.0, 0.0, 0.0]);
}
