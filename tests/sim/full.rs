//! The whole simulation, for `tests/run sim`: see `main.rs`.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy exempts test functions, not the helpers of a test binary; two programs share these files"
)]

mod broker;
mod clients;
mod faults;
mod mutants;
mod oracle;
mod proxy;
mod readback;
mod rng;
mod suite;
mod world;

use faults::{ALL, Scenario, scenario};
use mutants::Between;
use std::process::ExitCode;
use std::time::Instant;

/// Seeds in all, where nothing else is asked for.
const SEEDS: u64 = 100_000;

/// What was asked for.
struct Asked {
    scenarios: Vec<Scenario>,
    betweens: Vec<Between>,
    seeds: u64,
    tell: Option<u64>,
    everything: bool,
    write: bool,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked {
        scenarios: ALL.to_vec(),
        betweens: Between::COMPARED.to_vec(),
        seeds: SEEDS,
        tell: None,
        everything: false,
        write: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number = |value: String| value.parse().map_err(|_| format!("{value} is no number"));
        match word.as_str() {
            "--seeds" => asked.seeds = number(value()?)?,
            "--scenario" => {
                let name = value()?;
                let known = scenario(&name).ok_or_else(|| format!("no scenario \"{name}\""))?;
                asked.scenarios = vec![known];
            }
            "--through" => {
                let name = value()?;
                let known =
                    Between::named(&name).ok_or_else(|| format!("nothing is called {name}"))?;
                asked.betweens = vec![known];
            }
            "--tell" => asked.tell = Some(number(value()?)?),
            "--everything" => asked.everything = true,
            "--write" => asked.write = true,
            _ => return Err(format!("{word} means nothing")),
        }
    }
    Ok(asked)
}

/// Tells one seed aloud.
fn tell(asked: &Asked, seed: u64) {
    for scenario in &asked.scenarios {
        for between in &asked.betweens {
            let told = oracle::run(seed, *scenario, *between, true);
            let of = told.tally.culprit.filter(|_| !asked.everything);
            println!(
                "== seed {seed} of \"{}\" through {between:?}",
                scenario.name
            );
            println!("{}\n{:#?}", told.world.story(of), told.tally);
            println!("{:?}", told.findings);
        }
    }
}

fn main() -> ExitCode {
    let asked = match asked() {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    if let Some(seed) = asked.tell {
        tell(&asked, seed);
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let each = asked.seeds.div_ceil(asked.scenarios.len() as u64);
    let total = each * asked.scenarios.len() as u64;
    println!("{}", oracle::header());
    let (totals, failures) = suite::all(&asked.scenarios, &asked.betweens, each, |line| {
        println!("{line}");
    });
    let seconds = start.elapsed().as_secs();
    println!(
        "{total} seeds, {each} a scenario, in {seconds} s; {} failed",
        failures.len()
    );
    let worse = suite::worse_than_direct(&totals);
    worse
        .iter()
        .for_each(|line| println!("worse than direct: {line}"));
    if !failures.is_empty() || !worse.is_empty() {
        return ExitCode::FAILURE;
    }
    if asked.write {
        let text = report(&totals, each, seconds);
        std::fs::write("tests/results/sim.md", text).unwrap();
    }
    ExitCode::SUCCESS
}

/// The dated result.
fn report(totals: &[suite::Total], each: u64, seconds: u64) -> String {
    let rows: Vec<_> = (totals.iter())
        .map(|t| oracle::row(t.scenario.name, t.between.name(), &t.tally))
        .collect();
    let date = std::env::var("SIM_MADE_BY").unwrap_or_default();
    let columns = oracle::columns();
    format!(
        "# Simulation\n\n{date}\n\n{} seeds, {each} of each scenario, each run once for every row; {seconds} s. No seed broke a promise of its scenario, and none of the sums of the first nine columns is above direct's by more than chance explains.\n\n{columns}\n\n{}\n{}\n",
        each * ALL.len() as u64,
        oracle::header(),
        rows.join("\n"),
    )
}
