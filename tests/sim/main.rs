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
mod readback;
mod rng;
mod suite;
mod world;

use faults::{ALL, EXPIRY, FRESH, INSTANCES, LOST, MOVES, RECREATED, Scenario};
use mutants::Between;
use oracle::Tally;

/// With all scenarios, a thousand.
const SEEDS: u64 = 56;

#[test]
fn a_thousand_seeds_keep_every_promise() {
    println!("{}", oracle::header());
    let (totals, failures) = suite::all(&ALL, &Between::COMPARED, SEEDS, |line| println!("{line}"));
    let told: Vec<_> = failures.iter().map(suite::Failure::text).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    let worse = suite::worse_than_direct(&totals);
    assert!(worse.is_empty(), "{worse:#?}");
    let all = |between| {
        let mut sum = Tally::default();
        let of = totals.iter().filter(|total| total.between == between);
        of.for_each(|total| sum += total.tally);
        sum
    };
    let (direct, hapax) = (all(Between::Direct), all(Between::Shield));
    let counts = hapax.counts;
    assert!(counts.absorbed > 0 && counts.mirrored > 0 && counts.held > 0 && counts.found > 0);
    assert!(
        direct.duplicates() > 0 && direct.reordered > 0 && direct.lost > 0 && direct.given_up > 0,
        "nothing goes wrong, so that nothing is shown: {direct:?}"
    );
}

#[test]
fn seeds_that_once_came_to_something_keep_every_promise() {
    for (name, seed, what) in suite::REGRESSIONS {
        let scenario = faults::scenario(name).expect("it is a scenario");
        for between in Between::COMPARED {
            if let Err(failure) = suite::check(seed, scenario, between) {
                panic!("{what}: {}", failure.text());
            }
        }
    }
}

#[test]
fn a_seed_tells_one_story() {
    for scenario in ALL {
        let story = || {
            oracle::run(7, scenario, Between::Shield, true)
                .world
                .story(None)
        };
        assert_eq!(story(), story(), "{}", scenario.name);
    }
}

/// What the oracle says of some seeds of a faulty hapax.
fn faulty(between: Between, scenario: Scenario, seeds: u64) -> (Tally, Vec<String>) {
    let mut total = Tally::default();
    let mut findings = Vec::new();
    for seed in 0..seeds {
        let told = oracle::run(seed, scenario, between, false);
        total += told.tally;
        findings.extend(told.findings);
    }
    println!("{}", oracle::row(scenario.name, between.name(), &total));
    (total, findings)
}

fn some(findings: &[String], what: &str) -> bool {
    findings.iter().any(|finding| finding.contains(what))
}

/// The oracle must see what a wrong hapax does: these runs fail otherwise.
#[test]
fn the_oracle_sees_sent_taken_for_acknowledged() {
    let (total, findings) = faulty(Between::SentAsAcked, LOST, 10);
    assert!(some(&findings, "and is absorbed"), "{findings:?}");
    assert!(some(&findings, "is not at"), "{findings:?}");
    assert!(total.lost > 0, "{total:?}");
}

#[test]
fn the_oracle_sees_unsettled_taken_for_written() {
    let (_, findings) = faulty(Between::UnsettledAsWritten, LOST, 20);
    assert!(some(&findings, "and is absorbed"), "{findings:?}");
}

#[test]
fn the_oracle_sees_a_stale_fact_absorbed() {
    let (_, findings) = faulty(Between::StaleFacts, RECREATED, 40);
    assert!(some(&findings, "and is absorbed"), "{findings:?}");
}

#[test]
fn the_oracle_sees_a_stale_snapshot_that_rejects() {
    let (total, findings) = faulty(Between::StaleRejects, INSTANCES, 20);
    assert!(some(&findings, "was moved by"), "{findings:?}");
    assert!(total.died > 0, "librdkafka dies of a 45: {total:?}");
}

/// KAFKA-15591: without the gate a fresh partition takes the second batch first.
#[test]
fn the_oracle_sees_the_loss_on_a_fresh_partition_without_the_gate() {
    let (total, _) = faulty(Between::NoGate, FRESH, 40);
    assert!(total.lost > 0 && total.given_up > 0, "{total:?}");
}

#[test]
fn the_oracle_sees_the_loss_without_holds() {
    let (fresh, _) = faulty(Between::NoHold, FRESH, 40);
    let (moves, _) = faulty(Between::NoHold, MOVES, 40);
    assert!(fresh.lost + fresh.reordered + moves.lost + moves.reordered > 0);
}

/// What hapax cannot do where it may not read the log.
#[test]
fn the_oracle_sees_the_holes_that_only_the_log_fills() {
    let (blind, _) = faulty(Between::Absorb, EXPIRY, 40);
    let (reads, _) = faulty(Between::Resolve, EXPIRY, 40);
    assert!(blind.doubled > 10 * reads.doubled, "{blind:?} {reads:?}");
    assert!(reads.doubled <= reads.counts.blind);
}
