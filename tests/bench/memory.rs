//! What a window costs: a million of them with five facts each, of a hundred
//! thousand producers on ten partitions, measured as resident memory, key and
//! maps included. Prints the figures and fails above the bounds that the
//! README states.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made must fail"
)]

use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence};
use hapax::ledger::{Identity, Ledger, TopicName, WindowKey};
use hapax::window::{Ack, Acks, Arrival, Mode, Outcome, Rules};
use std::time::{Duration, Instant};

const PRODUCERS: i64 = 100_000;
const PARTITIONS: i32 = 10;
const WINDOWS: u64 = 1_000_000;
const FACTS: u32 = 5;
/// Bytes that one window may cost.
const BOUND: u64 = 400;

fn main() {
    let rules = Rules {
        mode: Mode::Absorb,
        ttl: Duration::from_secs(300),
        window_batches: 5,
        absorb_transactional: false,
        shield45: false,
    };
    let ledger = Ledger::new(rules, usize::MAX, 1000);
    let before = resident_bytes();
    for producer in 0..PRODUCERS {
        for partition in 0..PARTITIONS {
            fill(&ledger, producer, partition);
        }
    }
    let each = (resident_bytes() - before) / WINDOWS;
    let total = (resident_bytes() - before) / (1024 * 1024);
    println!("windows: {}", ledger.windows());
    println!("facts in each: {FACTS}");
    println!("bytes a window, key and map included: {each}");
    println!("MiB for all: {total}");
    assert_eq!(ledger.windows() as u64, WINDOWS);
    assert!(
        each <= BOUND,
        "{each} bytes a window, at most {BOUND} are allowed"
    );
    assert!(
        total <= 400,
        "{total} MiB for a million windows, at most 400 are allowed"
    );
}

/// One window with five acknowledged batches.
fn fill(ledger: &Ledger, producer: i64, partition: i32) {
    let key = WindowKey {
        producer: ProducerId::from_wire(producer).unwrap(),
        topic: ledger.topics.key(TopicName::Name(b"orders")).unwrap(),
        partition,
    };
    let link = ledger.link();
    let realm = ledger.realm(&Identity::Anonymous);
    for n in 0..FACTS {
        let arrival = Arrival {
            batch: BatchId {
                producer: key.producer,
                epoch: Epoch(0),
                first: Sequence::ZERO.advance(n * 10),
                count: 10,
                crc: n,
                len: 1000,
            },
            transactional: false,
            acks: Acks::All,
            realm,
            node: NodeId::from_wire(1),
            link,
            now: ledger.time(Instant::now()),
            patient: true,
        };
        let verdict = ledger.judge(key, &arrival);
        let ticket = ledger.commit(key, &arrival, &verdict).unwrap();
        let ack = Ack {
            offset: i64::from(n) * 10,
            append_time: -1,
            log_start: Some(0),
        };
        let _ = ledger.settle(&ticket, Outcome::Written(Some(ack)), arrival.now);
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}
