//! Many seeds of a scenario, and what they have to come to.

use super::faults::{ALL, Scenario};
use super::mutants::Between;
use super::oracle::{Tally, row, run};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A seed that came to what must never be.
#[derive(Debug)]
pub struct Failure {
    pub scenario: Scenario,
    pub between: Between,
    pub seed: u64,
    pub why: Vec<String>,
}

impl Failure {
    /// The failure, and the command that tells it again.
    pub fn text(&self) -> String {
        let Self {
            scenario,
            between,
            seed,
            why,
        } = self;
        let name = scenario.name;
        format!(
            "seed {seed} of \"{name}\" through {between:?}: {why:?}\n  \
             tests/run sim --scenario \"{name}\" --through {between:?} --tell {seed}"
        )
    }
}

/// Runs one seed and says what must not have been.
pub fn check(seed: u64, scenario: Scenario, between: Between) -> Result<Tally, Box<Failure>> {
    let told = run(seed, scenario, between, false);
    let mut why = told.findings;
    // A topic can be deleted after the last batch.
    if told.tally.written == 0 && scenario.recreations == 0 {
        why.push("nothing was written".to_owned());
    }
    if between != Between::Direct {
        why.extend(told.tally.broken_promises(&scenario, between));
    }
    if why.is_empty() {
        return Ok(told.tally);
    }
    Err(Box::new(Failure {
        scenario,
        between,
        seed,
        why,
    }))
}

/// What all seeds of one scenario came to.
pub struct Total {
    pub scenario: Scenario,
    pub between: Between,
    pub tally: Tally,
}

/// Runs seeds `0..seeds` of each scenario on all cores; says how far it is.
/// Ends early after a few failures.
pub fn all(
    scenarios: &[Scenario],
    betweens: &[Between],
    seeds: u64,
    say: impl Fn(&str) + Sync,
) -> (Vec<Total>, Vec<Failure>) {
    let mut totals = Vec::new();
    let mut failures = Vec::new();
    for scenario in scenarios {
        for between in betweens {
            let (tally, failed) = many(*scenario, *between, seeds);
            say(&row(scenario.name, between.name(), &tally));
            for failure in &failed {
                say(&failure.text());
            }
            failures.extend(failed);
            totals.push(Total {
                scenario: *scenario,
                between: *between,
                tally,
            });
        }
    }
    (totals, failures)
}

/// Failures of one scenario after which it goes on with the next.
const FAILURES_MAX: usize = 5;

fn many(scenario: Scenario, between: Between, seeds: u64) -> (Tally, Vec<Failure>) {
    let total = Mutex::new((Tally::default(), Vec::new()));
    let next = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut own = Tally::default();
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    match check(seed, scenario, between) {
                        Ok(tally) => own += tally,
                        Err(failure) => {
                            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                            total.1.push(*failure);
                            let many = total.1.len() >= FAILURES_MAX;
                            enough.store(many, Ordering::Relaxed);
                        }
                    }
                }
                total.lock().unwrap_or_else(PoisonError::into_inner).0 += own;
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Where hapax did worse than nothing, by more than chance explains.
pub fn worse_than_direct(totals: &[Total]) -> Vec<String> {
    let mut worse = Vec::new();
    for scenario in ALL {
        let of = |between| {
            let is = |t: &&Total| t.scenario.name == scenario.name && t.between == between;
            totals.iter().find(is).map(|total| total.tally)
        };
        let Some(direct) = of(Between::Direct) else {
            continue;
        };
        for total in totals {
            if total.scenario.name != scenario.name || total.between == Between::Direct {
                continue;
            }
            let pairs = total.tally.harms().into_iter().zip(direct.harms());
            for ((what, with), (_, without)) in pairs {
                // Both are sums of rare events that strike at other moments in
                // each run: three deviations of their difference.
                let (a, b) = (with as f64, without as f64);
                if a > b + 3.0 * (4.0 * (a + b)).sqrt() {
                    let name = scenario.name;
                    let between = total.between.name();
                    worse.push(format!(
                        "{name}, {between}: {with} {what:?}, {without} direct"
                    ));
                }
            }
        }
    }
    worse
}

/// Seeds that once came to something, and what that was.
pub const REGRESSIONS: [(&str, u64, &str); 11] = [
    (
        "unclean elections",
        2477,
        "a log that lost acknowledged batches took later ones first",
    ),
    (
        "topic re-created",
        4473,
        "librdkafka inferred a success from the first batch of a new topic",
    ),
    (
        "errors 7, 19, 20",
        199,
        "a 45 that followed from a 19 made librdkafka number another partition anew",
    ),
    (
        "leaders that move",
        972,
        "the same with a leader that was not ready",
    ),
    (
        "old timestamps, expiry",
        4,
        "the first batch of a window has nothing before it to read from",
    ),
    (
        "old timestamps, expiry",
        8,
        "the log was not read in time, and the broker had forgotten",
    ),
    (
        "old timestamps, expiry",
        3,
        "a retry passed one that was put off, and librdkafka inferred that both were written",
    ),
    (
        "old timestamps, expiry",
        74,
        "a batch passed one that was put off when an earlier success opened the gate",
    ),
    (
        "abandoned batches",
        751,
        "holds of one connection add up to more than a short request timeout",
    ),
    (
        "everything",
        5,
        "hapax was killed with an unknown outcome, and the broker had forgotten",
    ),
    (
        "everything",
        11,
        "a client that died of a 45 while brokers, leaders and hapax changed",
    ),
];
