//! A part of the fault matrix, small enough to be looked at often: six
//! rows with Java and librdkafka, once each (`tests/run faults --small`). `tests/run faults` runs all of it.
//!
//! Real brokers, real clients, and in every cell Kafka alone beside Kafka
//! through hapax, struck by the same faults at the same time.

#![allow(dead_code, reason = "the whole matrix uses these modules too")]
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
mod rows;
mod scene;
#[path = "../real/tools.rs"]
mod tools;
mod trace;

use crate::producers::Client;
use crate::rows::{Case, Row};
use crate::scene::Way;
use crate::tools::Random;

#[test]
fn lost_responses() {
    check(Row::LostResponses);
}

#[test]
fn a_killed_broker() {
    check(Row::BrokerKilled);
}

#[test]
fn a_clean_restart() {
    check(Row::CleanRestartBehind);
}

#[test]
fn old_timestamps() {
    check(Row::OldTimestamps);
}

#[test]
fn fresh_partitions() {
    check(Row::FreshPartitions);
}

#[test]
fn leaders_that_move() {
    check(Row::LeaderMoves);
}

/// Through hapax nothing is lost, doubled, out of order or given up; doubled
/// only where hapax has said that it could not tell, which happens where a
/// broker hangs up on its questions.
#[track_caller]
fn check(row: Row) {
    let seed = std::env::var("SEED").map_or_else(
        |_| Random::from_clock().below(1 << 32),
        |text| text.parse().expect("SEED is a number"),
    );
    let clients = std::env::var("CLIENTS").map_or_else(
        |_| vec![Client::Java, Client::Librdkafka],
        |names| {
            Client::ALL
                .into_iter()
                .filter(|c| names.contains(c.id()))
                .collect()
        },
    );
    let case = Case::idempotent(row);
    let cells = case.run(seed, "4.4.0", &clients, &[Way::Direct, Way::Hapax]);
    let mut complaints = Vec::new();
    for cell in &cells {
        println!("{:?} {:?}: {:?}", cell.client, cell.way, cell.counts);
        let mut counts = cell.counts.clone();
        if cell.looks_in_vain > 0.0 {
            counts.duplicates = 0;
        }
        if cell.way == Way::Hapax && !case.allows(&counts) {
            complaints.push(format!("{:?}: {:?}", cell.client, cell.counts));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
