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
use hapax::snapshot::{Head, facts};
use hapax::window::{Ack, Acks, Action, Arrival, Mode, Outcome, Rules};
use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
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
        snapshot(&ledger, rules, windows);
    }
}

/// A snapshot of them all: what it takes on the disk and, beside the windows,
/// in memory; and that it brings all of them back. Prints how long it takes,
/// and how long a batch waited for its window meanwhile at the most.
fn snapshot(ledger: &Ledger, rules: Rules, windows: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let now = ledger.time(Instant::now());
    let before = resident_bytes();
    let quiet = AtomicBool::new(false);
    let usual = thread::scope(|threads| {
        let waits = threads.spawn(|| longest_wait(ledger, &quiet));
        // Another thread works as well, but asks for no window.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            std::hint::black_box(began);
        }
        quiet.store(true, Ordering::Relaxed);
        waits.join().unwrap()
    });
    let done = AtomicBool::new(false);
    let (poured, took, peak, longest) = thread::scope(|threads| {
        let waits = threads.spawn(|| longest_wait(ledger, &done));
        let began = Instant::now();
        let mut file = File::create(&path).unwrap();
        let mut sink = Watched {
            file: &mut file,
            peak: 0,
        };
        let poured = facts::pour(ledger, &Head::default(), &[], now, &mut sink).unwrap();
        let peak = sink.peak;
        file.sync_all().unwrap();
        let took = began.elapsed();
        done.store(true, Ordering::Relaxed);
        (poured, took, peak, waits.join().unwrap())
    });
    let beside = peak.saturating_sub(before);
    let each = poured.bytes / windows;
    println!(
        "{each:>5} bytes a window in a snapshot of them, at most {SNAPSHOT_BOUND}; {} MiB in {took:?}, {} MiB of memory meanwhile; a batch waited {longest:?} at the most, without it {usual:?}",
        poured.bytes / MIB,
        beside / MIB,
    );
    assert_eq!(poured.windows, windows);
    assert_eq!(poured.facts, windows * u64::from(FACTS));
    assert!(
        each <= SNAPSHOT_BOUND,
        "{each} bytes a window in a snapshot"
    );
    assert!(
        beside <= 64 * MIB,
        "{} MiB beside the windows",
        beside / MIB
    );

    let bytes = std::fs::read(&path).unwrap();
    let after = Ledger::new(rules, usize::MAX, 1000);
    let now = after.time(Instant::now());
    let began = Instant::now();
    let loaded = facts::load(&bytes, &after, Duration::from_secs(1), now).unwrap();
    println!(
        "      a million windows brought back in {:?}",
        began.elapsed()
    );
    assert_eq!((loaded.windows, after.windows() as u64), (windows, windows));
    assert_eq!(loaded.facts, poured.facts);
}

/// Bytes that a window with five facts may take in a snapshot.
const SNAPSHOT_BOUND: u64 = 100;

/// What a session meets that asks for windows all the time.
fn longest_wait(ledger: &Ledger, done: &AtomicBool) -> Duration {
    let topic = ledger.topics.key(TopicName::Name(b"orders")).unwrap();
    let mut longest = Duration::ZERO;
    for producer in (0..100_000).cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let id = ProducerId::from_wire(producer).unwrap();
        let key = WindowKey {
            producer: id,
            topic,
            partition: 0,
        };
        let arrival = Arrival {
            batch: BatchId {
                producer: id,
                epoch: Epoch(0),
                first: Sequence::ZERO.advance(FACTS * 10),
                count: 10,
                crc: 0,
                len: 1000,
            },
            transactional: false,
            acks: Acks::All,
            realm: ledger.realm(&Identity::Anonymous),
            node: NodeId::from_wire(1),
            link: ledger.link(),
            now: ledger.time(Instant::now()),
            patient: true,
        };
        let began = Instant::now();
        let verdict = ledger.judge(key, &arrival);
        longest = longest.max(began.elapsed());
        assert_eq!(verdict.action, Action::Forward);
    }
    longest
}

/// A file, and the most memory that was taken while it was written.
struct Watched<'a> {
    file: &'a mut File,
    peak: u64,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.peak = self.peak.max(resident_bytes());
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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
