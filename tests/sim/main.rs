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

const RUNS: u64 = 80;

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
    /// The client and the partition where something was wrong first.
    culprit: Option<(usize, usize)>,
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
            culprit: self.culprit.or(other.culprit),
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
    let mut before = 0;
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
            let wrong = tally.reorders + tally.lost + tally.misplaced;
            if wrong > before && tally.culprit.is_none() {
                tally.culprit = Some((who, partition));
            }
            before = wrong;
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
        world.story(tally.culprit),
        world.wrongs,
    );
}

/// Runs all seeds and adds up, each one being held to what is always true.
fn total(scenario: Scenario, between: Between) -> Tally {
    let mut total = Tally::default();
    for seed in seeds() {
        let (tally, world) = run(seed, scenario, between, false);
        if !world.wrongs.is_empty() {
            fail(
                seed,
                scenario,
                between,
                "somebody waits, or hears what was not for him",
            );
        }
        if tally.misplaced > 0 {
            fail(
                seed,
                scenario,
                between,
                "a success names an offset where another batch is",
            );
        }
        if between == Between::Absorb {
            hold_to(seed, scenario, &tally);
        }
        total += tally;
    }
    println!("{}", row(scenario.name, between, &total));
    total
}

/// What hapax promises for one run.
fn hold_to(seed: u64, scenario: Scenario, tally: &Tally) {
    let between = Between::Absorb;
    let waited = tally.holds_expired == 0 && scenario.expiries == 0;
    // A wait that ends unanswered leaves the batch to the broker (SEMANTICS
    // 7.2), and of an expiry nobody is told: behind a gate that was open, a
    // broker without state takes whichever batch comes first.
    if waited && tally.lost > 0 {
        fail(
            seed,
            scenario,
            between,
            "an acknowledged batch is not in the log",
        );
    }
    if waited && tally.reorders > 0 {
        fail(seed, scenario, between, "a batch stands behind a later one");
    }
    let forgets = scenario.restarts + scenario.moves + scenario.expiries + scenario.errors > 0;
    let abandons = scenario.kinds.contains(&Kind::Hasty);
    if !forgets && !abandons && waited && tally.stuck > 0 {
        fail(seed, scenario, between, "a batch never got through");
    }
    if !forgets && !abandons && tally.duplicates > 0 {
        fail(seed, scenario, between, "a batch is in the log twice");
    }
}

fn row(name: &str, between: Between, t: &Tally) -> String {
    format!(
        "| {name:<28}| {:<16}|{:>5} |{:>5} |{:>5} |{:>5} |{:>6} |{:>6} |{:>6} |{:>5} |",
        format!("{between:?}"),
        t.duplicates,
        t.reorders,
        t.lost,
        t.stuck,
        t.absorbed,
        t.mirrored,
        t.held,
        t.holds_expired
    )
}

fn header(runs: usize) {
    println!("\n{runs} runs a line");
    println!(
        "| {:<28}| {:<16}|{:>5} |{:>5} |{:>5} |{:>5} |{:>6} |{:>6} |{:>6} |{:>5} |",
        "scenario", "", "dup", "reord", "lost", "stuck", "absorb", "mirror", "held", "late"
    );
}

/// Whether totals of this many runs say anything.
fn many() -> bool {
    seeds().len() >= 30
}

#[test]
fn hapax_answers_truly_loses_nothing_and_keeps_order() {
    header(seeds().len());
    let (mut direct, mut absorb) = (Tally::default(), Tally::default());
    for scenario in ALL {
        let without = total(scenario, Between::Direct);
        let with = total(scenario, Between::Absorb);
        if scenario.restarts + scenario.expiries > 0 && many() {
            assert!(with.duplicates <= without.duplicates, "{}", scenario.name);
        }
        direct += without;
        absorb += with;
    }
    println!(
        "{}\n{}",
        row("all", Between::Direct, &direct),
        row("all", Between::Absorb, &absorb)
    );
    if many() {
        assert!(absorb.duplicates <= direct.duplicates);
        assert!(absorb.reorders <= direct.reorders);
        assert!(absorb.lost <= direct.lost);
        assert!(absorb.stuck <= direct.stuck);
        assert!(absorb.absorbed > 0 && absorb.mirrored > 0 && absorb.held > 0);
    }
}

/// The oracle must see what a wrong window does: these runs fail otherwise.
#[test]
fn the_oracle_sees_sent_taken_for_acknowledged() {
    let mut total = Tally::default();
    for seed in 0..10 {
        total += run(seed, CALM, Between::SentAsAcked, false).0;
    }
    println!("{}", row(CALM.name, Between::SentAsAcked, &total));
    assert!(
        total.lost > 0,
        "acknowledged, and not in the log: {total:?}"
    );
    assert!(
        total.misplaced > 0,
        "acknowledged at an offset of another: {total:?}"
    );
}

/// KAFKA-15591: without the gate a fresh partition takes the second batch first.
#[test]
fn the_oracle_sees_the_loss_on_a_fresh_partition_without_the_gate() {
    let mut total = Tally::default();
    for seed in 0..40 {
        total += run(seed, FRESH, Between::NoGate, false).0;
    }
    println!("{}", row(FRESH.name, Between::NoGate, &total));
    assert!(total.lost + total.stuck > 0, "{total:?}");
}

#[test]
fn the_oracle_sees_the_reorder_without_holds() {
    let mut total = Tally::default();
    for seed in 0..60 {
        total += run(seed, FRESH, Between::NoHold, false).0;
        total += run(seed, MOVES, Between::NoHold, false).0;
    }
    println!("{}", row(MOVES.name, Between::NoHold, &total));
    assert!(total.reorders > 0, "{total:?}");
}
