//! What the oracle tests share: a raw Kafka client, hand-built record batches,
//! a real broker, a hapax process, and a model of the broker's decisions.
//!
//! Each test binary takes the part it needs.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary includes this code and uses its own part of it"
)]

pub mod batch;
pub mod hapax;
pub mod kafka;
pub mod model;
pub mod peer;
pub mod raw;

use std::time::{Duration, Instant};

/// Waits until `done` says so, for what happens in another process.
///
/// # Panics
/// When `limit` passes first; `what` names what was waited for.
pub fn await_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        pause(Duration::from_millis(20));
    }
}

/// Lets another process go on for a while.
#[expect(
    clippy::disallowed_methods,
    reason = "polls another process; no async worker runs here"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
