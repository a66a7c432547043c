//! Security and the life of a process, with real brokers and real clients: all
//! of it, one part after another. `tests/run security` calls it.
//!
//! Words choose parts: `matrix rights check rotation drain rolling`.

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
#[path = "../real/raw.rs"]
mod raw;
mod rights;
mod rolling;
mod rotation;
#[path = "../support/secure.rs"]
mod secure;
#[path = "../real/tools.rs"]
mod tools;
mod volume;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::clients::Client;
use crate::world::World;

type Part = (&'static str, fn());

const PARTS: [Part; 6] = [
    ("matrix", matrix),
    ("rights", rights),
    ("check", check),
    ("rotation", rotation::ten_times_under_load),
    ("drain", drain),
    ("rolling", rolling::under_load),
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(word) = asked
        .iter()
        .find(|word| PARTS.iter().all(|(name, _)| name != word))
    {
        eprintln!("no part {word}: {}", PARTS.map(|(name, _)| name).join(", "));
        return ExitCode::from(64);
    }
    let mut failed = Vec::new();
    for (name, part) in PARTS {
        if !asked.is_empty() && !asked.iter().any(|word| word == name) {
            continue;
        }
        println!("== {name}");
        let start = Instant::now();
        // A part that fails has said why; the others are run all the same.
        if catch_unwind(AssertUnwindSafe(part)).is_err() {
            failed.push(name);
        }
        println!("{name}: {} s", start.elapsed().as_secs());
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn matrix() {
    let done = cells::check(World::one(), &cells::all());
    println!("{} ways, each record once in its log", done.len());
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
