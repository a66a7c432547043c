//! A seeded simulation: clients that retry, connections that break, brokers
//! that forget, and hapax's real ledger between them, in virtual time.
//!
//! Every run is told against the log: a success must be in it, at its offset;
//! nothing is in it twice or out of order but by the broker's own doing;
//! nobody waits for ever. `HAPAX_SIM_SEED` runs one seed, `HAPAX_SIM_RUNS`
//! another number of seeds a scenario.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

mod broker;
mod client;
mod proxy;
mod rng;
mod world;

use client::Kind;
use std::ops::{Add, AddAssign};
use world::{Between, Scenario, World};

const RUNS: u64 = 60;

const CALM: Scenario = Scenario {
    name: "lost answers",
    kinds: &[Kind::Java, Kind::Librdkafka],
    partitions: 3,
    batches: 20,
    lost: 60,
    stalled: 20,
    slow: 20,
    partial: 20,
    errors: 0,
    restarts: 0,
    moves: 0,
    expiries: 0,
    fresh: false,
};
const ERRORS: Scenario = Scenario {
    name: "+ errors 7, 19, 20",
    errors: 80,
    ..CALM
};
const FRESH: Scenario = Scenario {
    name: "not leader, fresh partition",
    kinds: &[Kind::Java, Kind::Librdkafka],
    lost: 0,
    stalled: 0,
    slow: 0,
    partial: 0,
    fresh: true,
    ..CALM
};
const MOVES: Scenario = Scenario {
    name: "+ leaders that move",
    errors: 40,
    moves: 4,
    fresh: true,
    ..CALM
};
const RESTARTS: Scenario = Scenario {
    name: "+ broker restarts",
    restarts: 6,
    ..CALM
};
const EXPIRY: Scenario = Scenario {
    name: "old timestamps + expiry",
    expiries: 12,
    ..CALM
};
const HASTY: Scenario = Scenario {
    name: "abandoned batches",
    kinds: &[Kind::Hasty, Kind::Hasty],
    errors: 60,
    ..CALM
};
const EVERYTHING: Scenario = Scenario {
    name: "everything",
    kinds: &[Kind::Java, Kind::Librdkafka, Kind::Hasty],
    errors: 60,
    restarts: 4,
    moves: 3,
    expiries: 4,
    fresh: true,
    ..CALM
};

const ALL: [Scenario; 8] = [
    CALM, ERRORS, FRESH, MOVES, RESTARTS, EXPIRY, HASTY, EVERYTHING,
];

/// What a run came to.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    /// Batches in the log once more than they should be.
    duplicates: u64,
    /// Batches that stand behind a later one.
    reorders: u64,
    /// Batches that were acknowledged and are not in the log.
    lost: u64,
    /// Successes with an offset at which another batch stands.
    misplaced: u64,
    /// Batches that a patient client gave up and that are not in the log.
    stuck: u64,
    absorbed: u64,
    mirrored: u64,
    held: u64,
    holds_expired: u64,
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            duplicates: self.duplicates + other.duplicates,
            reorders: self.reorders + other.reorders,
            lost: self.lost + other.lost,
            misplaced: self.misplaced + other.misplaced,
            stuck: self.stuck + other.stuck,
            absorbed: self.absorbed + other.absorbed,
            mirrored: self.mirrored + other.mirrored,
            held: self.held + other.held,
            holds_expired: self.holds_expired + other.holds_expired,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Runs one seed to its end and tells it against the log.
fn run(seed: u64, scenario: Scenario, between: Between, told: bool) -> (Tally, World) {
    let mut world = World::new(seed, scenario, between, told);
    world.run();
    let mut tally = Tally {
        absorbed: world.proxy.absorbed,
        mirrored: world.proxy.mirrored,
        held: world.proxy.held,
        holds_expired: world.proxy.holds_expired,
        ..Tally::default()
    };
    for (who, client) in world.clients.iter().enumerate() {
        for (partition, lane) in client.lanes.iter().enumerate() {
            let log = world.partitions[partition].log.iter();
            let own: Vec<(i64, u32)> = log
                .filter(|(_, batch)| batch.client == who)
                .map(|(offset, batch)| (*offset, batch.number))
                .collect();
            let mut seen = Vec::new();
            for (_, number) in &own {
                if seen.contains(number) {
                    tally.duplicates += 1;
                    continue;
                }
                tally.reorders += u64::from(seen.iter().any(|earlier| earlier > number));
                seen.push(*number);
            }
            for (number, offset) in &lane.acked {
                if !seen.contains(number) {
                    tally.lost += 1;
                } else if offset.is_some_and(|offset| !own.contains(&(offset, *number))) {
                    tally.misplaced += 1;
                }
            }
            let missing = lane.given_up.iter().filter(|number| !seen.contains(number));
            if !client.hasty() {
                tally.stuck += missing.count() as u64;
            }
        }
    }
    (tally, world)
}

fn seeds() -> Vec<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|value: String| value.parse().unwrap())
    };
    if let Some(seed) = number("HAPAX_SIM_SEED") {
        return vec![seed];
    }
    (0..number("HAPAX_SIM_RUNS").unwrap_or(RUNS)).collect()
}

/// Tells a seed again, aloud, and fails.
fn fail(seed: u64, scenario: Scenario, between: Between, why: &str) -> ! {
    let (tally, world) = run(seed, scenario, between, true);
    panic!(
        "HAPAX_SIM_SEED={seed} \"{}\" {between:?}: {why}\n{tally:?}\n{}\n{:?}",
        scenario.name,
        world.story(),
        world.wrongs,
    );
}

fn total(scenario: Scenario, between: Between) -> Tally {
    let mut total = Tally::default();
    for seed in seeds() {
        total += run(seed, scenario, between, false).0;
    }
    total
}

fn row(name: &str, between: Between, t: &Tally) -> String {
    format!(
        "{name:<28} {:<12} {:>5} dup {:>5} reorders {:>4} lost {:>4} stuck {:>4} misplaced | {:>5} absorbed {:>5} mirrored {:>5} held {:>3} expired",
        format!("{between:?}"),
        t.duplicates,
        t.reorders,
        t.lost,
        t.stuck,
        t.misplaced,
        t.absorbed,
        t.mirrored,
        t.held,
        t.holds_expired
    )
}

#[test]
fn table() {
    for scenario in ALL {
        for between in [
            Between::Direct,
            Between::NoGate,
            Between::NoHold,
            Between::Absorb,
            Between::SentAsAcked,
        ] {
            let started = std::time::Instant::now();
            let t = total(scenario, between);
            println!(
                "{} {:?}",
                row(scenario.name, between, &t),
                started.elapsed()
            );
            for seed in seeds() {
                let (_, w) = run(seed, scenario, between, false);
                if !w.wrongs.is_empty() {
                    println!("  seed {seed}: {:?}", w.wrongs);
                    break;
                }
            }
        }
    }
}

#[test]
fn explore() {
    let Ok(name) = std::env::var("S") else { return };
    let between = match std::env::var("B").unwrap().as_str() {
        "D" => Between::Direct,
        "S" => Between::Shield,
        "N" => Between::NoGate,
        _ => Between::Absorb,
    };
    let scenario = *ALL.iter().find(|s| s.name.contains(&name)).unwrap();
    for seed in seeds() {
        let (t, world) = run(
            seed,
            scenario,
            between,
            std::env::var("HAPAX_SIM_SEED").is_ok(),
        );
        println!("{seed} {t:?} {:?}", world.wrongs);
        println!("{}", world.story());
        for (p, part) in world.partitions.iter().enumerate() {
            for who in 0..scenario.kinds.len() {
                let log: Vec<_> = part
                    .log
                    .iter()
                    .filter(|(_, b)| b.client == who)
                    .map(|(o, b)| (*o, b.number, b.epoch, b.first))
                    .collect();
                if std::env::var("HAPAX_SIM_SEED").is_ok() {
                    println!("LOG p{p} c{who} {log:?}");
                }
            }
        }
    }
}

#[test]
fn unused() {
    if std::env::var("X").is_ok() {
        fail(0, CALM, Between::Direct, "");
    }
}
