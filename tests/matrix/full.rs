//! The client matrix: every client, every Kafka, every operation, direct and
//! through hapax. `tests/run clients` calls it; it writes the results and the
//! README's table, and fails when a way differs from the other.
//!
//! `--clients a,b`, `--kafka 4.4.0,2.8.2` and `--operations plain,group` run a
//! part, which writes nothing.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]
#![allow(dead_code, reason = "the tests of the matrix use these modules too")]

#[path = "../support/mod.rs"]
mod support;

mod cells;
mod judge;
mod kafka;
mod old_versions;
mod programs;
mod relay;
mod report;
mod snippets;

use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::cells::{Cell, KAFKAS, offered};
use crate::programs::{Client, Operation, root};

fn main() -> ExitCode {
    let start = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let clients: Vec<Client> = Client::ALL
        .into_iter()
        .filter(|client| is_chosen(&arguments, "--clients", client.id()))
        .collect();
    let kafkas: Vec<&str> = KAFKAS
        .into_iter()
        .filter(|kafka| is_chosen(&arguments, "--kafka", kafka))
        .collect();
    let operations: Vec<Operation> = Operation::ALL
        .into_iter()
        .filter(|operation| is_chosen(&arguments, "--operations", operation.name()))
        .collect();
    let mut cells: Vec<Cell> = Vec::new();
    let mut complaints: Vec<String> = Vec::new();
    for kafka in &kafkas {
        let (run, differing) = cells::run(kafka, &offered(&clients, &operations));
        cells.extend(run);
        complaints.extend(differing);
    }
    let text = report::results(&head(start), &cells);
    println!("\n{text}");
    if clients.contains(&Client::Rdkafka) {
        complaints.extend(snippets::run(&snippets::SLOW));
    }
    let all = Client::ALL.len() * KAFKAS.len() * Operation::ALL.len();
    let chosen = clients.len() * kafkas.len() * operations.len();
    if chosen == all && complaints.is_empty() {
        write(&text);
    }
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    println!(
        "{} passed, {} failed",
        cells.iter().filter(|cell| cell.is_good()).count(),
        complaints.len()
    );
    match complaints.is_empty() && !cells.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Whether a list among the arguments names it, or there is no such list.
fn is_chosen(arguments: &[String], list: &str, name: &str) -> bool {
    let mut words = arguments.iter();
    words.find(|word| *word == list);
    words
        .next()
        .is_none_or(|names| names.split(',').any(|chosen| chosen == name))
}

fn head(start: Instant) -> String {
    let minutes = start.elapsed().as_secs().div_ceil(60);
    format!(
        "Made by `tests/run clients` on {}, hapax {} at {}, {minutes} minutes on {} cores.",
        said("date", &["-u", "+%Y-%m-%d"]),
        env!("CARGO_PKG_VERSION"),
        said("git", &["rev-parse", "--short", "HEAD"]),
        std::thread::available_parallelism().map_or(1, usize::from),
    )
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn write(results: &str) {
    let readme = report::readme_file();
    let text = std::fs::read_to_string(&readme).expect("a readable README");
    std::fs::write(&readme, report::with_block(&text, results)).expect("a writable README");
    std::fs::write(report::results_file(), results).expect("a writable file of results");
}
