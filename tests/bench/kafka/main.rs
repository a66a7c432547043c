//! The benchmark with a real Kafka and Kafka's own Java client: what
//! idempotence costs, and what hapax adds to it. Plain with acks=1, plain with
//! acks=all, idempotent and transactional, each direct and through hapax, on
//! one broker and on three, all in one run and in a random order that is drawn
//! anew each round.
//!
//! ```text
//! cargo bench --bench kafka -- --write                the report, tests/results/kafka-cost.md
//! cargo bench --bench kafka -- --rounds 2             the same, printed only
//! cargo bench --bench kafka -- --only "paced 1x,raw"  the cells whose names have one of these parts
//! cargo test --bench kafka                            one broker, once and short, nothing measured
//! ```
//!
//! The last fails where a record is lost, given up or in the log too often, and
//! where hapax does anything but forward what needs no more. Needs Java and Maven.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made must fail"
)]

#[path = "../load/kit/mod.rs"]
mod kit;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../real/tools.rs"]
#[allow(dead_code, reason = "the benchmark takes the part it needs")]
mod tools;

mod cells;
mod client;
mod cluster;
mod cpu;
mod report;
mod spread;
mod verdicts;
mod world;

use std::collections::BTreeMap;
use std::fs;

use clap::Parser;

use cells::{Cell, Sizes};
use report::Report;
use tools::Random;
use world::{Outcome, World};

#[derive(Parser)]
struct Arguments {
    /// How often everything is measured, after a round that only warms.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Parts of the names of the cells to measure; every cell without it.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the report to tests/results/kafka-cost.md.
    #[arg(long)]
    write: bool,
    /// Everything once and short on one broker, as without --bench.
    #[arg(long)]
    smoke: bool,
    /// Cargo says so where it runs a benchmark; without it this is a test.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    if kit::run_part() {
        return;
    }
    let arguments = Arguments::parse();
    let is_part = arguments.is_smoke() || !arguments.only.is_empty();
    assert!(!(arguments.write && is_part), "a part is no report");
    let cells = arguments.cells();
    assert!(!cells.is_empty(), "no cell has that name");
    let mut world = World::start(&cells, arguments.sizes());
    let mut random = Random::from_clock();
    let mut report = Report::new(world.versions(), arguments.sizes());
    for round in arguments.rounds() {
        let outcomes = measure(&mut world, order(&cells, &mut random), round);
        if round == WARMING {
            continue;
        }
        report.add(outcomes);
        // Each time, so that a run that is interrupted was not for nothing.
        if arguments.write {
            fs::write(tools::source("results/kafka-cost.md"), report.markdown()).unwrap();
        }
    }
    println!("{}", report.markdown());
    if arguments.is_smoke() {
        report.outcomes().for_each(Outcome::assert_well);
    }
}

/// The round that warms the client, the brokers and the page cache, and does not count.
const WARMING: usize = 0;

fn measure(world: &mut World, cells: Vec<Cell>, round: usize) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for cell in cells {
        let outcome = world.measure(cell);
        println!("round {round}: {outcome}");
        outcomes.push(outcome);
    }
    outcomes
}

impl Arguments {
    fn is_smoke(&self) -> bool {
        self.smoke || !self.bench
    }

    fn rounds(&self) -> std::ops::RangeInclusive<usize> {
        if self.is_smoke() {
            1..=1
        } else {
            WARMING..=self.rounds
        }
    }

    fn sizes(&self) -> Sizes {
        if self.is_smoke() {
            Sizes::SMOKE
        } else {
            Sizes::FULL
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let wanted = |cell: &Cell| {
            let name = cell.to_string();
            self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
        };
        let small = |cell: &Cell| !self.is_smoke() || cell.nodes == 1;
        let all = cells::all().into_iter();
        all.filter(wanted).filter(small).collect()
    }
}

/// A random order that keeps together what is compared, since the machine is
/// not the same a few minutes later.
fn order(cells: &[Cell], random: &mut Random) -> Vec<Cell> {
    let mut cells = cells.to_vec();
    let mut tables = BTreeMap::new();
    for cell in &cells {
        let table = tables.entry((cell.load, cell.nodes));
        table.or_insert_with(|| random.below(u64::MAX));
    }
    cells.sort_by_cached_key(|cell| (tables[&(cell.load, cell.nodes)], random.below(u64::MAX)));
    cells
}
