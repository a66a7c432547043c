//! What the parts of the hot path cost one by one, and how much memory they
//! ask for. `cargo bench --bench micro [-- PART]` measures; `cargo test
//! --bench micro` fails where the hot path asks for any.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made must fail"
)]

#[path = "../support/mod.rs"]
mod support;

use divan::{AllocProfiler, Bencher, black_box};
use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence};
use hapax::ledger::{Identity, Ledger, TopicName, WindowKey};
use hapax::window::{
    Ack, Acks, Action, Arrival, Link, Mode, Outcome, Realm, Rules, Sender, Time, Window,
};
use std::env;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const RULES: Rules = Rules {
    mode: Mode::Absorb,
    ttl: Duration::from_secs(300),
    window_batches: 5,
    absorb_transactional: false,
    shield45: false,
};

fn main() -> ExitCode {
    if env::args().any(|arg| arg == "--bench") {
        divan::main();
        return ExitCode::SUCCESS;
    }
    // Divan prints a line of allocations below whatever made some.
    assert!(report("cold").contains("alloc"), "allocations are counted");
    let hot = report("hot");
    for part in ["walk", "judge", "commit", "settle", "pair", "round"] {
        assert!(hot.contains(part), "{part} was not measured:\n{hot}");
    }
    if hot.contains("alloc") {
        eprintln!("the hot path asks for memory:\n{hot}");
        return ExitCode::FAILURE;
    }
    println!("the hot path asks for no memory");
    ExitCode::SUCCESS
}

/// What divan says of the benchmarks whose path has this part, each run briefly.
fn report(part: &str) -> String {
    let brief = ["--sample-count=2", "--sample-size=10"];
    let out = Command::new(env::current_exe().unwrap())
        .args(["--bench", "--color=never", part])
        .args(brief)
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// What every batch goes through: none of it may ask for memory.
mod hot {
    use super::*;
    use hapax::session::Pairing;
    use hapax::wire::batch::Batch;
    use hapax::wire::header::RequestHead;
    use hapax::wire::produce::{self, Sink, Walk};

    #[derive(Default)]
    struct Count(usize);

    impl Sink for Count {
        fn partition(&mut self, index: i32, batch: Batch) {
            black_box((index, batch));
            self.0 += 1;
        }
    }

    const SIZES: [(i32, usize); 6] = [
        (1, 1 << 10),
        (10, 1 << 10),
        (100, 1 << 10),
        (1, 1 << 20),
        (10, 1 << 20),
        (100, 1 << 20),
    ];

    #[divan::bench(args = SIZES)]
    fn walk_v9(bencher: Bencher<'_, '_>, (partitions, size): (i32, usize)) {
        walk(bencher, 9, partitions, size);
    }

    #[divan::bench(args = SIZES)]
    fn walk_v13(bencher: Bencher<'_, '_>, (partitions, size): (i32, usize)) {
        walk(bencher, 13, partitions, size);
    }

    fn walk(bencher: Bencher<'_, '_>, version: i16, partitions: i32, size: usize) {
        let body = requests::produce(version, partitions, size);
        bencher.bench_local(|| {
            let mut count = Count::default();
            let walked = Walk::new(version).advance(black_box(&body), &mut count);
            assert_eq!(walked, Ok(body.len()));
            count.0
        });
    }

    #[divan::bench(args = [1, 10, 100])]
    fn walk_response_v13(bencher: Bencher<'_, '_>, partitions: i32) {
        let frame = requests::produce_response(13, partitions);
        bencher.bench_local(|| {
            produce::replies(13, black_box(&frame), |reply| {
                black_box(reply);
            })
        });
    }

    #[divan::bench]
    fn judge(bencher: Bencher<'_, '_>) {
        let mut known = Known::of(5);
        let next = known.next();
        bencher.bench_local(|| known.window.judge(black_box(&next), &RULES));
    }

    #[divan::bench]
    fn commit(bencher: Bencher<'_, '_>) {
        bencher
            .with_inputs(|| {
                let mut known = Known::of(5);
                let next = known.next();
                let verdict = known.window.judge(&next, &RULES);
                (known, next, verdict)
            })
            .bench_local_refs(|(known, next, verdict)| known.window.commit(next, verdict));
    }

    #[divan::bench]
    fn settle(bencher: Bencher<'_, '_>) {
        bencher
            .with_inputs(|| {
                let mut known = Known::of(5);
                let next = known.next();
                let verdict = known.window.judge(&next, &RULES);
                let id = known.window.commit(&next, &verdict).unwrap().id;
                (known, next, id)
            })
            .bench_local_refs(|(known, next, id)| {
                known.window.settle(
                    *id,
                    &next.batch,
                    &sender(next),
                    written(5),
                    &RULES,
                    next.now,
                )
            });
    }

    /// Many answers for a duplicate: the first one makes the window's notes.
    #[divan::bench]
    fn judge_and_absorb_a_duplicate(bencher: Bencher<'_, '_>) {
        let mut known = Known::of(5);
        let again = known.arrival(2);
        let verdict = known.window.judge(&again, &RULES);
        assert!(matches!(verdict.action, Action::Replay(_)));
        known.window.absorbed(&again, &verdict);
        bencher.bench_local(|| {
            let verdict = known.window.judge(black_box(&again), &RULES);
            known.window.absorbed(&again, &verdict);
            verdict
        });
    }

    /// Five requests in flight, and their answers.
    #[divan::bench]
    fn pair(bencher: Bencher<'_, '_>) {
        let mut pairing = Pairing::default();
        let mut id: i32 = 0;
        let mut five = || {
            let first = id;
            for _ in 0..5 {
                id = id.wrapping_add(1);
                let head = RequestHead {
                    api_key: 0,
                    api_version: 12,
                    correlation_id: id,
                };
                pairing.ask(black_box(head));
            }
            for answer in 1..=5 {
                let tickets = pairing.answer(first.wrapping_add(answer));
                assert_eq!(tickets, Some(1));
            }
        };
        // The first ones make the room that a connection keeps.
        five();
        bencher.bench_local(five);
    }

    /// A debug build only sees to it that nothing asks for memory.
    const WINDOWS: &[usize] = if cfg!(debug_assertions) {
        &[10, 1000]
    } else {
        &[10, 10_000, 1_000_000]
    };

    /// A batch that is judged, leaves and is acknowledged, in any of many windows.
    #[divan::bench(args = WINDOWS, max_time = 3)]
    fn round_by_admit(bencher: Bencher<'_, '_>, windows: usize) {
        let mut crowd = Crowd::of(windows);
        bencher.bench_local(|| {
            let (key, arrival) = crowd.next();
            let admission = crowd.ledger.admit(key, &arrival);
            crowd.settle(&admission.ticket.unwrap())
        });
    }

    /// The same where a request has other batches: these are judged before
    /// any of them leaves.
    #[divan::bench(args = WINDOWS, max_time = 3)]
    fn round_by_judge_and_commit(bencher: Bencher<'_, '_>, windows: usize) {
        let mut crowd = Crowd::of(windows);
        bencher.bench_local(|| {
            let (key, arrival) = crowd.next();
            let verdict = crowd.ledger.judge(key, &arrival);
            let ticket = crowd.ledger.commit(key, &arrival, &verdict);
            crowd.settle(&ticket.unwrap())
        });
    }
}

/// What few batches go through.
mod cold {
    use super::*;
    use hapax::ids::TopicId;
    use hapax::wire::addresses::{self, Directory};
    use hapax::wire::api;
    use std::sync::Arc;

    #[divan::bench]
    fn first_batch_of_a_window(bencher: Bencher<'_, '_>) {
        let mut crowd = Crowd::of(1);
        bencher.bench_local(|| {
            let (key, arrival) = crowd.newcomer();
            let admission = crowd.ledger.admit(key, &arrival);
            crowd.settle(&admission.ticket.unwrap())
        });
    }

    #[divan::bench]
    fn five_batches_in_flight(bencher: Bencher<'_, '_>) {
        let mut known = Known::of(5);
        bencher.bench_local(|| {
            let sent = [(); 5].map(|()| {
                let next = known.next();
                let verdict = known.window.judge(&next, &RULES);
                (next, known.window.commit(&next, &verdict).unwrap().id)
            });
            for (next, id) in sent {
                let offset = i64::from(next.batch.first.to_wire());
                let sender = sender(&next);
                let _ = known.window.settle(
                    id,
                    &next.batch,
                    &sender,
                    written(offset),
                    &RULES,
                    next.now,
                );
            }
        });
    }

    struct Port(Arc<str>);

    impl Directory for Port {
        fn broker(&mut self, _: Option<NodeId>, _: &str, port: u16) -> (Arc<str>, u16) {
            (Arc::clone(&self.0), port + 1)
        }

        fn topic(&mut self, name: Option<&str>, id: Option<TopicId>) {
            black_box((name, id));
        }
    }

    #[divan::bench(args = [1, 10, 1000])]
    fn rewrite_metadata(bencher: Bencher<'_, '_>, topics: usize) {
        let frame = requests::metadata_response(13, topics);
        let mut port = Port("127.0.0.1".into());
        bencher.bench_local(|| {
            addresses::rewrite(api::METADATA, 13, black_box(&frame), &mut port)
                .unwrap()
                .unwrap()
        });
    }
}

/// A window and the batches that its producer sends: one record each, in order.
struct Known {
    window: Window,
    sent: u32,
}

impl Known {
    /// A window with this many facts.
    fn of(facts: u32) -> Self {
        let mut known = Self {
            window: Window::new(Time(0)),
            sent: 0,
        };
        for _ in 0..facts {
            let next = known.next();
            let verdict = known.window.judge(&next, &RULES);
            let id = known.window.commit(&next, &verdict).unwrap().id;
            let offset = i64::from(next.batch.first.to_wire());
            let sender = sender(&next);
            let _ =
                known
                    .window
                    .settle(id, &next.batch, &sender, written(offset), &RULES, next.now);
        }
        known
    }

    fn arrival(&self, first: u32) -> Arrival {
        let link = Link(NonZeroU32::MIN);
        arrival(ProducerId::from_wire(7).unwrap(), first, link)
    }

    fn next(&mut self) -> Arrival {
        self.sent += 1;
        self.arrival(self.sent - 1)
    }
}

fn arrival(producer: ProducerId, first: u32, link: Link) -> Arrival {
    Arrival {
        batch: BatchId {
            producer,
            epoch: Epoch(0),
            first: Sequence::ZERO.advance(first),
            count: 1,
            crc: first,
            len: 1024,
        },
        transactional: false,
        acks: Acks::All,
        realm: Some(Realm(NonZeroU32::MIN)),
        node: NodeId::from_wire(1),
        link,
        now: Time(0),
        patient: true,
        old: false,
    }
}

fn sender(arrival: &Arrival) -> Sender {
    Sender {
        acks: arrival.acks,
        node: arrival.node,
        realm: arrival.realm,
        link: arrival.link,
    }
}

fn written(offset: i64) -> Outcome {
    Outcome::Written(Some(Ack {
        offset,
        append_time: -1,
        log_start: Some(0),
    }))
}

/// A ledger with many windows, of which any may be the next one.
struct Crowd {
    ledger: Ledger,
    link: Link,
    keys: Vec<WindowKey>,
    /// Batches that each of them has acknowledged.
    sent: Vec<u32>,
    chance: u64,
}

impl Crowd {
    fn of(windows: usize) -> Self {
        let ledger = Ledger::new(RULES, usize::MAX, 1000);
        let _ = ledger.realm(&Identity::Anonymous);
        let mut crowd = Self {
            link: ledger.link(),
            ledger,
            keys: Vec::new(),
            sent: Vec::new(),
            chance: 1,
        };
        for _ in 0..windows {
            let (key, arrival) = crowd.newcomer();
            let admission = crowd.ledger.admit(key, &arrival);
            let _ = crowd.settle(&admission.ticket.unwrap());
        }
        crowd
    }

    /// The first batch of another producer.
    fn newcomer(&mut self) -> (WindowKey, Arrival) {
        let producer = ProducerId::from_wire(i64::try_from(self.keys.len()).unwrap()).unwrap();
        let key = WindowKey {
            producer,
            topic: self.ledger.topics.key(TopicName::Name(b"orders")).unwrap(),
            partition: 0,
        };
        self.keys.push(key);
        self.sent.push(1);
        (key, arrival(producer, 0, self.link))
    }

    /// The next batch of any of them.
    fn next(&mut self) -> (WindowKey, Arrival) {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005) + 1;
        let at = (self.chance >> 33) as usize % self.keys.len();
        let key = self.keys[at];
        let arrival = arrival(key.producer, self.sent[at], self.link);
        self.sent[at] += 1;
        (key, arrival)
    }

    fn settle(&self, ticket: &hapax::ledger::Ticket) -> hapax::window::Settled {
        let offset = i64::from(ticket.batch.first.to_wire());
        self.ledger.settle(ticket, written(offset), Time(0))
    }
}

/// Messages as clients and brokers write them.
mod requests {
    use super::support::batch::Batch;
    use super::support::raw::{Produce, Topic, topic_name};
    use bytes::{BufMut, Bytes, BytesMut};
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use kafka_protocol::messages::produce_response::{
        PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{BrokerId, MetadataResponse, ProduceResponse};
    use kafka_protocol::protocol::{Encodable, StrBytes};

    /// The body of a Produce request.
    pub(crate) fn produce(version: i16, partitions: i32, size: usize) -> Bytes {
        let batch = Batch::of(4711, 0, 0, [vec![7; size]]).bytes();
        let partitions = (0..partitions).map(|p| (p, Some(batch.clone())));
        let topic = Topic::unknown("orders");
        let produce = Produce::of(vec![(topic, partitions.collect())]).version(version);
        let mut body = BytesMut::new();
        produce.request().encode(&mut body, version).unwrap();
        body.freeze()
    }

    pub(crate) fn produce_response(version: i16, partitions: i32) -> Bytes {
        let partitions = (0..partitions).map(|p| {
            PartitionProduceResponse::default()
                .with_index(p)
                .with_base_offset(i64::from(p))
                .with_log_append_time_ms(-1)
                .with_log_start_offset(0)
        });
        let topic = TopicProduceResponse::default()
            .with_topic_id("0badc0de-0000-4000-8000-000000000001".parse().unwrap())
            .with_partition_responses(partitions.collect());
        frame(
            version,
            &ProduceResponse::default().with_responses(vec![topic]),
        )
    }

    /// Three brokers, and topics of ten partitions.
    pub(crate) fn metadata_response(version: i16, topics: usize) -> Bytes {
        let brokers = (0..3).map(|node| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(node))
                .with_host(StrBytes::from_string(format!("broker-{node}.example")))
                .with_port(9092)
        });
        let partitions = (0..10).map(|p| {
            MetadataResponsePartition::default()
                .with_partition_index(p)
                .with_leader_id(BrokerId(p % 3))
                .with_replica_nodes(vec![BrokerId(0), BrokerId(1), BrokerId(2)])
                .with_isr_nodes(vec![BrokerId(0), BrokerId(1), BrokerId(2)])
        });
        let partitions: Vec<_> = partitions.collect();
        let topics = (0..topics).map(|n| {
            MetadataResponseTopic::default()
                .with_name(Some(topic_name(&format!("topic-{n}"))))
                .with_partitions(partitions.clone())
        });
        let response = MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_topics(topics.collect());
        frame(version, &response)
    }

    /// A response with a flexible header.
    fn frame(version: i16, body: &impl Encodable) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_i32(7);
        frame.put_u8(0);
        body.encode(&mut frame, version).unwrap();
        frame.freeze()
    }
}
