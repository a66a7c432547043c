//! What a load benchmark is made of: the load, an upstream that does nothing,
//! and a proxy that only copies bytes, each a process of its own, so that the
//! CPU time of each can be read. The benchmark's binary runs itself again with
//! a sub-command for each of them.
//!
//! A binary that includes this has `tests/support` as its module `support`.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each benchmark includes this code and uses its own part of it"
)]

pub mod generator;
pub mod limit;
pub mod null;
pub mod process;
pub mod wire;

use std::env;

const GENERATOR: &str = "run-generator";
const NULL: &str = "run-null";
const LIMIT: &str = "run-limit";

/// Runs the part that this process was started as; `false` where it was not
/// started as one.
pub fn run_part() -> bool {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(GENERATOR) => generator::run(&arguments[1]),
        Some(NULL) => null::run(&arguments[1]),
        Some(LIMIT) => limit::run(arguments[1].parse().unwrap()),
        _ => return false,
    }
    true
}
