//! The fault matrix: every row, every client, direct and through hapax, as
//! often as asked. `tests/run faults` calls it.
//!
//! `--rows a,b`, `--clients a,b`, `--ways direct,hapax,shield45,write-only` and
//! `--kafka 4.4.0` choose a part; `--runs N` runs each row so many times;
//! `--seed S` gives the first run's seed, the next have the numbers after it.
//! After `--minutes N` no further run is begun, and the results name those.
//! `--report` writes the results and the README's table, which say so of rows
//! that were not run.

#![allow(dead_code, reason = "the tests of the matrix use these modules too")]
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

mod admin;
#[path = "../support/batch.rs"]
mod batch;
#[path = "../real/cluster.rs"]
mod cluster;
#[path = "../real/hapax.rs"]
mod hapax;
mod judge;
#[path = "../real/listeners.rs"]
mod listeners;
mod log;
mod partition;
mod producers;
#[path = "../real/raw.rs"]
mod raw;
mod raw_rows;
mod relay;
mod report;
mod rows;
mod scene;
#[path = "../real/tools.rs"]
mod tools;
mod trace;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::producers::Client;
use crate::report::Sum;
use crate::rows::{Case, Cell};
use crate::scene::Way;
use crate::tools::Random;

fn main() -> ExitCode {
    let start = Instant::now();
    let options = Options(std::env::args().skip(1).collect());
    let cases = options.chosen("--rows", &Case::all(), Case::id);
    let clients = options.chosen("--clients", &Client::ALL, |client| client.id().to_owned());
    let runs: u32 = options.number("--runs").unwrap_or(1);
    let first_seed = options
        .number("--seed")
        .unwrap_or_else(|| Random::from_clock().below(1 << 32));
    let mut sums: Vec<Sum> = Vec::new();
    let (mut broken, mut left_out) = (Vec::new(), Vec::new());
    let made = format!(
        "{} at {}, seed {first_seed}",
        said("date", &["-u", "+%Y-%m-%d"]),
        said("git", &["rev-parse", "--short", "HEAD"])
    );
    let limit: Option<u64> = options.number("--minutes");
    let limit = limit.map(|minutes| Duration::from_secs(60 * minutes));
    let is_over = || limit.is_some_and(|limit| start.elapsed() >= limit);
    for (case, kafka) in in_turn(&options, &cases) {
        let ways = match options.value("--ways") {
            None => case.ways().to_vec(),
            Some(_) => options.chosen("--ways", &Way::ALL, |way| way.id().to_owned()),
        };
        for run in 0..runs {
            if is_over() {
                left_out.push(format!("{} {kafka}", case.id()));
                continue;
            }
            let seed = first_seed + u64::from(run);
            let since = Instant::now();
            for clients in clients.chunks(case.at_once()) {
                // One run that cannot be finished does not take the others with it.
                let run = || case.run(seed, kafka, clients, &ways);
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(cells) => add(&mut sums, case, kafka, &made, cells),
                    Err(_) => broken.push(format!("{} {kafka}, seed {seed}", case.id())),
                }
            }
            println!("took {:.0} s", since.elapsed().as_secs_f64());
        }
    }
    for (what, runs) in [("not finished", &broken), ("no time for", &left_out)] {
        for run in runs {
            eprintln!("{what}: {run}");
        }
    }
    let complaints = complaints(&sums);
    if options.has("--report") {
        let page = std::fs::read_to_string(report::results_file()).unwrap_or_default();
        let is_clean = complaints.is_empty() && broken.is_empty() && !sums.is_empty();
        sums.extend(report::earlier(&page, &sums));
        sums.sort_by_key(|sum| Case::all().iter().position(|case| *case == sum.case));
        let text = report::results(HEAD, &sums);
        write(&text);
        println!("\n{text}");
        return code(is_clean, &complaints);
    }
    println!(
        "\n{}",
        report::results(&head(start, runs, first_seed), &sums)
    );
    code(
        complaints.is_empty() && broken.is_empty() && !sums.is_empty(),
        &complaints,
    )
}

fn code(is_clean: bool, complaints: &[String]) -> ExitCode {
    for complaint in complaints {
        eprintln!("{complaint}");
    }
    match is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Of a page whose rows may have been made on several days.
const HEAD: &str = "Made by `tests/run faults --report`, which makes the rows anew that it runs and leaves the others as they are; each says when it was run, and of what.";

/// The newest Kafka first.
fn in_turn(options: &Options, cases: &[Case]) -> Vec<(Case, &'static str)> {
    let mut all: Vec<(Case, &'static str)> = Vec::new();
    for case in cases {
        let kafkas = options.chosen("--kafka", case.kafkas(), str::to_owned);
        all.extend(kafkas.into_iter().map(|kafka| (*case, kafka)));
    }
    all.sort_by_key(|(case, kafka)| *kafka != case.kafkas()[0]);
    all
}

fn add(sums: &mut Vec<Sum>, case: Case, kafka: &'static str, made: &str, cells: Vec<Cell>) {
    for cell in cells {
        println!("{:?} {:?}: {:?}", cell.client, cell.way, cell.counts);
        let key = (case, kafka, cell.client, cell.way);
        let mut known = sums.iter_mut();
        let known = known.find(|sum| (sum.case, sum.kafka, sum.client, sum.way) == key);
        match known {
            Some(sum) => {
                sum.runs += 1;
                sum.counts.add(&cell.counts);
            }
            None => sums.push(Sum {
                case,
                kafka,
                client: cell.client,
                way: cell.way,
                runs: 1,
                counts: cell.counts,
                made: made.to_owned(),
            }),
        }
    }
}

/// Cells through hapax that are not as they should be; without READ nothing is
/// promised but that it is as without hapax, which the table shows.
fn complaints(sums: &[Sum]) -> Vec<String> {
    let through = sums
        .iter()
        .filter(|sum| !matches!(sum.way, Way::Direct | Way::WriteOnly));
    let wrong = through.filter(|sum| !sum.case.allows(&sum.counts));
    wrong
        .map(|sum| {
            format!(
                "{}: {:?} {:?}: {:?}",
                sum.case.id(),
                sum.client,
                sum.way,
                sum.counts
            )
        })
        .collect()
}

/// The command line, as words.
struct Options(Vec<String>);

impl Options {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word == name)?;
        let value = self.0.get(at + 1);
        Some(value.unwrap_or_else(|| panic!("{name} wants a value")))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let text = self.value(name)?;
        let number = text.parse().ok();
        Some(number.unwrap_or_else(|| panic!("{name} {text} is no number")))
    }

    /// Those that a list names; all where there is no such list.
    fn chosen<T: Copy>(&self, name: &str, all: &[T], id: impl Fn(T) -> String) -> Vec<T> {
        let Some(names) = self.value(name) else {
            return all.to_vec();
        };
        let named = names.split(',').map(|wanted| {
            let mut found = all.iter().copied();
            found
                .find(|item| id(*item) == wanted)
                .unwrap_or_else(|| panic!("{name}: there is no {wanted}"))
        });
        named.collect()
    }
}

fn head(start: Instant, runs: u32, seed: u64) -> String {
    let minutes = start.elapsed().as_secs().div_ceil(60);
    format!(
        "Made by `tests/run faults` on {}: hapax {} at {}, {runs} runs a row from seed {seed} on, {minutes} minutes on {} cores.",
        said("date", &["-u", "+%Y-%m-%d"]),
        env!("CARGO_PKG_VERSION"),
        said("git", &["rev-parse", "--short", "HEAD"]),
        std::thread::available_parallelism().map_or(1, usize::from),
    )
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn write(results: &str) {
    let readme = report::readme_file();
    let text = std::fs::read_to_string(&readme).expect("a readable README");
    std::fs::write(&readme, report::with_block(&text, results)).expect("a writable README");
    std::fs::write(report::results_file(), results).expect("a writable file of results");
}
