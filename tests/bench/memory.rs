//! What a window costs, measured as resident memory with its key and all maps
//! included: a million of them with five facts each, of a hundred thousand
//! producers on ten partitions, and what is dearer than that. Prints the
//! figures and fails above the bounds that the README states.
//!
//! Each scenario runs in a process of its own: what a former one gave back
//! would not be seen to be taken.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made must fail"
)]

use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence};
use hapax::ledger::{Identity, Ledger, TopicName, WindowKey};
use hapax::window::{Ack, Acks, Action, Arrival, Mode, Outcome, Rules};
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;
const FACTS: u32 = 5;

struct Scenario {
    name: &'static str,
    producers: i64,
    partitions: i32,
    /// Batches on their way in each window, besides its facts.
    in_flight: u32,
    /// The broker's time in acknowledgements, as on LogAppendTime topics.
    append_time: i64,
    /// `sequence.windowBatches`, and facts in each window.
    facts: u32,
    /// Bytes that one window may cost.
    bound: u64,
}

/// Where fewer windows do they are a million halved several times: the maps
/// are as full as with a million.
const SCENARIOS: &[Scenario] = &[
    PLAIN,
    Scenario {
        name: "of one partition a producer",
        producers: 250_000,
        partitions: 1,
        bound: 480,
        ..PLAIN
    },
    Scenario {
        name: "with a batch on its way",
        producers: 6_250,
        in_flight: 1,
        bound: 300,
        ..PLAIN
    },
    Scenario {
        name: "with five batches on their way",
        producers: 6_250,
        in_flight: 5,
        bound: 750,
        ..PLAIN
    },
    Scenario {
        name: "with the broker's time",
        producers: 6_250,
        append_time: 1_700_000_000_000,
        bound: 380,
        ..PLAIN
    },
    Scenario {
        name: "with 32 facts",
        producers: 3_125,
        facts: 32,
        bound: 1800,
        ..PLAIN
    },
];

const PLAIN: Scenario = Scenario {
    name: "with five facts",
    producers: 100_000,
    partitions: 10,
    in_flight: 0,
    append_time: -1,
    facts: FACTS,
    bound: 300,
};

fn main() {
    if let Ok(name) = env::var("MEMORY_SCENARIO") {
        let scenario = SCENARIOS.iter().find(|s| s.name == name);
        return measure(scenario.unwrap());
    }
    let failed: Vec<&str> = SCENARIOS
        .iter()
        .map(|scenario| scenario.name)
        .filter(|name| {
            let mut child = Command::new(env::current_exe().unwrap());
            !child
                .env("MEMORY_SCENARIO", name)
                .status()
                .unwrap()
                .success()
        })
        .collect();
    assert!(failed.is_empty(), "dearer than their bound: {failed:?}");
}

fn measure(scenario: &Scenario) {
    let rules = Rules {
        mode: Mode::Absorb,
        ttl: Duration::from_secs(300),
        window_batches: scenario.facts as usize,
        absorb_transactional: false,
        shield45: false,
    };
    let ledger = Ledger::new(rules, usize::MAX, 1000);
    let windows = scenario.producers.unsigned_abs() * u64::from(scenario.partitions.unsigned_abs());
    let before = resident_bytes();
    for producer in 0..scenario.producers {
        let id = ProducerId::from_wire(producer).unwrap();
        let known = ledger.producer(id, ledger.time(Instant::now())).unwrap();
        known
            .client_id
            .get_or_init(|| Arc::from(format!("producer-{producer}")));
        for partition in 0..scenario.partitions {
            fill(&ledger, id, partition, scenario);
        }
    }
    let taken = resident_bytes() - before;
    assert_eq!(ledger.windows() as u64, windows);
    let each = taken / windows;
    println!(
        "{each:>5} bytes a window {}, key and maps included, at most {}; {} MiB for {windows}",
        scenario.name,
        scenario.bound,
        taken / MIB,
    );
    assert!(
        each <= scenario.bound,
        "{each} bytes a window, at most {} are allowed",
        scenario.bound
    );
    if scenario.name == PLAIN.name {
        assert!(
            taken <= 300 * MIB,
            "{} MiB for a million windows",
            taken / MIB
        );
    }
}

/// One window with acknowledged batches, and some on their way.
fn fill(ledger: &Ledger, producer: ProducerId, partition: i32, scenario: &Scenario) {
    let key = WindowKey {
        producer,
        topic: ledger.topics.key(TopicName::Name(b"orders")).unwrap(),
        partition,
    };
    let link = ledger.link();
    let realm = ledger.realm(&Identity::Anonymous);
    for n in 0..scenario.facts + scenario.in_flight {
        let arrival = Arrival {
            batch: BatchId {
                producer,
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
            old: false,
        };
        let verdict = ledger.judge(key, &arrival);
        assert_eq!(verdict.action, Action::Forward);
        let ticket = ledger.commit(key, &arrival, &verdict).unwrap();
        if n < scenario.facts {
            let ack = Ack {
                offset: i64::from(n) * 10,
                append_time: scenario.append_time,
                log_start: Some(0),
            };
            let _ = ledger.settle(&ticket, Outcome::Written(Some(ack)), arrival.now);
        }
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}
