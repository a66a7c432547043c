//! The same bytes, sent direct and through hapax (observe, absorb, enforce) to fresh
//! topics of a real Kafka, give the same answers and the same log, except
//! where a case names the rule that says otherwise. And the upstream of
//! `hapax dev` gives the answers of that Kafka, without exception.
//!
//! `cargo test --test differential [PART OF A CASE'S NAME]`. Needs Java and
//! Maven. `DIFFERENTIAL_ROUTE=direct` runs Kafka alone, to check the cases
//! themselves, and `DIFFERENTIAL_ROUTE=dev` Kafka and the dev upstream.

#![allow(unreachable_pub, reason = "nothing is public in a test binary")]
#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod dev;
mod harness;
mod special;
mod transactions;

use std::process::ExitCode;

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let mut cases = cases::all();
    cases.extend(special::all());
    cases.extend(transactions::all());
    dev::check_names(&cases);
    if let Some(filter) = filter {
        cases.retain(|case| case.name.contains(&filter));
    }
    harness::run(&cases)
}
