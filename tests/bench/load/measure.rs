//! Rounds: in each, every row, and in it everyone who takes part in a new
//! random order, so that the noise of the machine falls on all alike. What
//! counts are ratios within a round.

use serde::Serialize;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::process::Command;

use crate::kit::generator::{Load, Outcome, Pace};
use crate::kit::null;
use crate::kit::process::{self, Listener, resident_kib, rest};
use crate::peers::{self, Peer};
use crate::rows::{Contestant, Row, shorten};

use std::time::Duration;

/// How much to measure.
pub(crate) struct Plan {
    pub(crate) rows: Vec<Row>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// Only prove that everything works.
    pub(crate) smoke: bool,
}

/// One contestant in one round of a row.
#[derive(Serialize)]
pub(crate) struct Cell {
    pub(crate) row: &'static str,
    pub(crate) round: usize,
    pub(crate) label: String,
    /// What the generator found, or why there is nothing.
    pub(crate) result: Result<Outcome, String>,
    pub(crate) load_average: f64,
}

impl Plan {
    /// Measures everything; each figure also goes to a file as it comes.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let null = null::start();
        let kind = if self.smoke { "smoke" } else { "cells" };
        let path = peers::folder().join(format!("{kind}.jsonl"));
        let mut file = File::create(path).unwrap();
        let mut cells = Vec::new();
        for round in 0..self.rounds {
            for row in &self.rows {
                let mut contestants = row.contestants(&self.peers);
                shuffle(&mut contestants);
                for contestant in contestants {
                    let result = self.measure(row, contestant.clone(), &null);
                    if let Err(error) = &result {
                        eprintln!("{}, {}: {error}", row.name, contestant.label);
                    }
                    let cell = Cell {
                        row: row.name,
                        round,
                        label: contestant.label,
                        result,
                        load_average: load_average(),
                    };
                    writeln!(file, "{}", serde_json::to_string(&cell).unwrap()).unwrap();
                    cells.push(cell);
                }
            }
            eprintln!("round {}, load average {:.1}", round + 1, load_average());
        }
        cells
    }

    fn measure(&self, row: &Row, one: Contestant, null: &Listener) -> Result<Outcome, String> {
        let proxy = one.peer.start(
            null.address,
            if one.peer.is_hapax() { row.flags } else { &[] },
        );
        let mut load = Load {
            target: proxy.address,
            watch: vec![proxy.id(), null.id()],
            seconds: self.seconds,
            ..one.load
        };
        if self.smoke {
            shorten(&mut load);
        }
        let before = null::received(null.address);
        let outcome = process::generate(&load)?;
        let received = null::received(null.address) - before;
        let absorbed = if one.peer.absorbs() {
            outcome.repetitions
        } else {
            0
        };
        // Without answers nobody knows when the last have arrived.
        if load.acks != 0 && received != outcome.batches - absorbed {
            let (sent, again) = (outcome.batches, outcome.repetitions);
            return Err(format!(
                "{received} batches arrived of {sent}, {again} of them sent again"
            ));
        }
        Ok(outcome)
    }
}

/// That a load with one wrong answer among many right ones has no figure.
pub(crate) fn prove_that_wrong_answers_are_refused() {
    let null = null::start_lying();
    let load = Load {
        target: null.address,
        ..Load::default()
    };
    let error = process::generate(&load).expect_err("an answer was wrong");
    assert!(error.contains("the offset of a batch"), "{error}");
}

fn shuffle<T>(all: &mut [T]) {
    for last in (1..all.len()).rev() {
        // A hasher with new keys is as much chance as this needs.
        let chance = usize::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap();
        all.swap(last, chance % (last + 1));
    }
}

/// Of the last minute.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// What a proxy takes without any load.
#[derive(Clone)]
pub(crate) struct Standing {
    pub(crate) name: String,
    /// Milliseconds from its start to the first accepted connection.
    pub(crate) start: Vec<f64>,
    pub(crate) idle_mib: f64,
    /// For 1,000 connections that have each sent one request of 1 KB.
    pub(crate) connections_mib: Result<f64, String>,
    /// Without symbols.
    pub(crate) program_mib: Option<f64>,
}

impl Plan {
    /// The standing figures of the limit and of every peer.
    pub(crate) fn standing(&self) -> Vec<Standing> {
        let null = null::start();
        let all = [Peer::Limit].into_iter().chain(self.peers.iter().cloned());
        all.map(|peer| self.stand(&peer, &null)).collect()
    }

    fn stand(&self, peer: &Peer, null: &Listener) -> Standing {
        let start = (0..self.rounds.max(3)).map(|_| {
            let started = peer.start(null.address, &[]).started_in;
            started.as_secs_f64() * 1e3
        });
        let start = start.collect();
        let proxy = peer.start(null.address, &[]);
        let settled = if self.smoke { 0.1 } else { 2.0 };
        rest(Duration::from_secs_f64(settled));
        let idle = resident_kib(proxy.id());
        let load = Load {
            target: proxy.address,
            follow: peer.rewrites_addresses(),
            version: peer
                .produce_version()
                .unwrap_or_else(|| Load::default().version),
            pace: Pace::Hold,
            producers: if self.smoke { 100 } else { 1000 },
            seconds: settled,
            watch: vec![proxy.id()],
            ..Load::default()
        };
        let held = process::generate(&load);
        let grown = held.map(|outcome| {
            let grown = outcome.resident[0].saturating_sub(outcome.resident_before[0]);
            grown as f64 / 1024.0 / load.producers as f64 * 1000.0
        });
        Standing {
            name: peer.name().to_owned(),
            start,
            idle_mib: idle as f64 / 1024.0,
            connections_mib: grown,
            program_mib: peer.program().map(|program| stripped_mib(&program)),
        }
    }
}

fn stripped_mib(program: &std::path::Path) -> f64 {
    let stripped = peers::folder().join("stripped");
    let mut strip = Command::new("strip");
    strip
        .arg("--strip-all")
        .arg("-o")
        .arg(&stripped)
        .arg(program);
    assert!(strip.status().expect("strip runs").success(), "{strip:?}");
    let bytes = std::fs::metadata(stripped).unwrap().len();
    bytes as f64 / (1024.0 * 1024.0)
}
