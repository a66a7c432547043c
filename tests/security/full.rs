//! Security and the life of a process, with real brokers and real clients: all
//! of it, one part after another. `tests/run security` calls it.
//!
//! Words choose parts: `matrix rights check rotation drain rolling`; `--write`
//! makes a page of what they told.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]
#![allow(
    dead_code,
    reason = "other programs of the tests use these modules too"
)]

mod cells;
mod check;
#[path = "../real/clients.rs"]
mod clients;
#[path = "../real/cluster.rs"]
mod cluster;
mod drain;
#[path = "../real/hapax.rs"]
mod hapax;
#[path = "../support/oidc.rs"]
mod oidc;
#[path = "../real/raw.rs"]
mod raw;
mod report;
mod rights;
mod rolling;
mod rotation;
#[path = "../support/secure.rs"]
mod secure;
#[path = "../real/tools.rs"]
mod tools;
mod volume;
mod world;

use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::clients::Client;
use crate::world::World;

/// A part, and what its heading is on the page.
type Part = (&'static str, &'static str, fn());

#[rustfmt::skip]
const PARTS: [Part; 6] = [
    ("matrix", "Every way to hapax with every way to brokers", matrix),
    ("rights", "Who may not do something", rights),
    ("check", "hapax check --connect", check),
    ("rotation", "Ten new certificates under load, both sides", rotation::ten_times_under_load),
    ("drain", "Drains under 500 messages a second from each client", drain),
    ("rolling", "A rolling restart of three brokers", rolling::under_load),
];
const PAGE: &str = "tests/results/security.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_written = |word: &&String| *word == "--write";
    let asked: Vec<&String> = arguments.iter().filter(|word| !is_written(word)).collect();
    let unknown = |word: &&&String| PARTS.iter().all(|(name, ..)| name != **word);
    if let Some(word) = asked.iter().find(unknown) {
        let names = PARTS.map(|(name, ..)| name).join(", ");
        eprintln!("no part {word}: {names}");
        return ExitCode::from(64);
    }
    let mut failed = Vec::new();
    let mut page = std::env::var("SECURITY_MADE_BY").unwrap_or_default();
    for (name, heading, part) in PARTS {
        if !asked.is_empty() && !asked.iter().any(|word| *word == name) {
            continue;
        }
        println!("== {name}");
        let start = Instant::now();
        // A part that fails has said why; the others are run all the same.
        let is_well = catch_unwind(AssertUnwindSafe(part)).is_ok();
        if !is_well {
            failed.push(name);
        }
        let took = start.elapsed().as_secs();
        println!("{name}: {took} s");
        let outcome = if is_well { "passed" } else { "**failed**" };
        write!(page, "\n\n## {heading}\n\n`{name}`: {outcome}, {took} s.\n").expect("a text grows");
        for line in listed(report::take()) {
            page += "\n";
            page += &line;
        }
    }
    if arguments.iter().any(|word| is_written(&word)) {
        fs::write(PAGE, page.trim_start().to_owned() + "\n").expect("the page can be written");
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Lines as a list, but for tables, which are what they are.
fn listed(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| match line.as_str() {
        "" => line,
        table if table.starts_with('|') => line,
        _ => format!("- {line}"),
    })
}

fn matrix() {
    let failed = cells::table(World::one());
    assert!(failed.is_empty(), "{failed:#?}");
}

fn rights() {
    rights::the_brokers_answers_pass(World::one());
    rights::clients_tell_the_same(World::one(), &Client::FULL);
}

fn check() {
    check::what_is_right(World::one());
    check::what_is_wrong(World::one());
}

fn drain() {
    let world = World::one();
    drain::until_connections(world);
    drain::until_requests(world);
    drain::cut_under_load(world);
    drain::the_cut_is_counted(world, "connections");
    drain::the_cut_is_counted(world, "requests");
}
