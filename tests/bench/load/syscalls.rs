//! System calls per request, counted by strace: the tracer slows everything
//! down, but who waits for whom stays, and so does the shape of the counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::kit::generator::{Load, Pace};
use crate::kit::null;
use crate::kit::process;
use crate::measure::Plan;
use crate::peers;
use crate::rows::{Contestant, LIMIT, Row};

/// Seconds of the short and of the long run: their difference has no start
/// and no end in it.
const RUNS: [f64; 2] = [0.5, 2.5];

impl Plan {
    /// A table of the rows that are not paced: hapax beside the limit.
    pub(crate) fn syscalls(&self) -> String {
        let mut text = String::from("| | who | system calls a request |\n|---|---|---|\n");
        let closed = |row: &&Row| row.load.pace == Pace::Closed;
        for row in self.rows.iter().filter(closed) {
            let contestants = row.contestants(&self.peers).into_iter();
            let wanted = |one: &Contestant| one.label == LIMIT || one.peer.is_hapax();
            for one in contestants.filter(wanted) {
                let calls = per_request(row, &one);
                writeln!(text, "| {} | {} | {calls} |", row.title, one.label).unwrap();
            }
        }
        text
    }
}

fn per_request(row: &Row, one: &Contestant) -> String {
    let [short, long] = RUNS.map(|seconds| traced(row, one, seconds));
    let requests = long.1 - short.1;
    let mut calls: Vec<(f64, &String)> = long
        .0
        .iter()
        .map(|(name, count)| (count - short.0.get(name).unwrap_or(&0.0), name))
        .map(|(count, name)| (count / requests, name))
        .filter(|(each, _)| *each >= 0.005)
        .collect();
    calls.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
    let all: f64 = calls.iter().map(|(each, _)| each).sum();
    let each = calls.iter().map(|(each, name)| format!("{name} {each:.2}"));
    format!("{all:.2}: {}", each.collect::<Vec<_>>().join(", "))
}

/// Counts by the calls' names, and the requests that they served.
fn traced(row: &Row, one: &Contestant, seconds: f64) -> (BTreeMap<String, f64>, f64) {
    let null = null::start();
    let flags = if one.peer.is_hapax() { row.flags } else { &[] };
    let proxy = one.peer.start(null.address, flags);
    let table = peers::folder().join("strace.out");
    let mut strace = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(&table)
        .arg(format!("--attach={}", proxy.id()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace runs; tests/run bench installs it");
    // Its first line says that it is attached.
    let mut said = BufReader::new(strace.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let load = Load {
        target: proxy.address,
        warm_up: 0.0,
        seconds,
        ..one.load.clone()
    };
    let outcome = process::generate(&load).unwrap();
    let interrupt = Command::new("kill")
        .args(["-INT", &strace.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    strace.wait().unwrap();
    let text = fs::read_to_string(table).unwrap();
    (counts(&text), outcome.requests as f64)
}

/// Lines are: % time, seconds, microseconds a call, calls, errors if any, name.
fn counts(table: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let count = fields.get(3)?.parse().ok()?;
        let name = (*fields.last()?).to_owned();
        (name != "total").then_some((name, count))
    };
    table.lines().filter_map(line).collect()
}
