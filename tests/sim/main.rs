//! A seeded simulation: clients that retry, connections that break, brokers
//! that forget, machines that die, and hapax's real ledger between them, in
//! virtual time. Every run is told against the log (`oracle.rs`).
//!
//! `tests/run sim` runs a hundred thousand seeds, and tells one aloud.

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
mod rng;
mod suite;
mod world;

use faults::ALL;
use mutants::Between;

/// With all scenarios, a thousand.
const SEEDS: u64 = 56;

#[test]
fn a_thousand_seeds_keep_every_promise() {
    let betweens = [Between::Direct, Between::Absorb, Between::Shield];
    let (totals, failures) = suite::all(&ALL, &betweens, SEEDS, |line| println!("{line}"));
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
    let worse = suite::worse_than_direct(&totals);
    assert!(worse.is_empty(), "{worse:#?}");
}
