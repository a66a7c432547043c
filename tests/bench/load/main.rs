//! The load benchmark: what hapax costs beside a program that only copies
//! bytes, and beside other proxies.
//!
//! Absolute figures of a shared machine are worth little. What counts is the
//! proxy's CPU per request as a ratio within a round, then throughput, then
//! latency.
//!
//! ```text
//! cargo bench --bench load                            hapax and the limit, every row
//! cargo bench --bench load -- --rows produce-1k,mixed --rounds 7
//! cargo bench --bench load -- --peers all --write     the report, as tests/run bench makes it
//! cargo bench --bench load -- --also before=PATH      another build of hapax in the same rounds
//! cargo bench --bench load -- --syscalls              system calls a request instead
//! cargo test --bench load                             everything once and short, nothing measured
//! ```

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made must fail"
)]

mod kit;
mod measure;
mod peers;
mod report;
mod rows;
#[path = "../../support/mod.rs"]
mod support;
mod syscalls;

use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

use measure::Plan;
use peers::Peer;
use report::Report;

#[derive(Parser)]
struct Arguments {
    /// Rows to measure; every row without it.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// haproxy, Envoy and shotover by name, or `all` of them; hapax is always there.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// How often everything is measured.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Of each measurement, after half a second of warming up.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Another hapax to measure, as NAME=PATH.
    #[arg(long)]
    also: Vec<String>,
    /// The hapax to measure instead of the one that cargo has built.
    #[arg(long)]
    hapax: Option<String>,
    /// Count system calls, by strace, instead of measuring.
    #[arg(long)]
    syscalls: bool,
    /// Write the report to tests/results/bench.md and into the README.
    #[arg(long)]
    write: bool,
    /// Cargo says so where it runs a benchmark; without it this is a test.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    if kit::run_part() {
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    let plan = plan(&arguments);
    if plan.smoke {
        measure::prove_that_wrong_answers_are_refused();
    }
    if arguments.syscalls {
        println!("{}", plan.syscalls());
        return ExitCode::SUCCESS;
    }
    let standing = plan.standing();
    let cells = plan.cells();
    let report = Report::new(&plan, &cells, &standing);
    if plan.smoke {
        println!("{} loads, nothing measured", cells.len());
    } else {
        println!("{}", report.full());
    }
    if arguments.write {
        assert!(arguments.rows.is_empty(), "a part of the rows is no report");
        report.write();
    }
    // Another's failure is in the report; the own one must not pass.
    if report.own_failures().is_empty() {
        ExitCode::SUCCESS
    } else {
        eprintln!("{}", report.own_failures().join("\n"));
        ExitCode::FAILURE
    }
}

fn plan(arguments: &Arguments) -> Plan {
    let smoke = !arguments.bench;
    let mut peers = vec![match &arguments.hapax {
        Some(program) => Peer::hapax("hapax", Path::new(program)),
        None => Peer::own(),
    }];
    for also in &arguments.also {
        let (name, program) = also.split_once('=').expect("--also NAME=PATH");
        peers.push(Peer::hapax(name, Path::new(program)));
    }
    for wanted in &arguments.peers {
        let known = |peer: &&Peer| wanted == "all" || peer.name().eq_ignore_ascii_case(wanted);
        let found: Vec<Peer> = peers::OTHERS.iter().filter(known).cloned().collect();
        let known = !found.is_empty() || wanted == "hapax";
        assert!(known, "no peer is called {wanted}");
        peers.extend(found);
    }
    let mut rows = rows::all();
    for wanted in &arguments.rows {
        let known = rows.iter().any(|row| row.name == wanted);
        assert!(known, "no row is called {wanted}");
    }
    rows.retain(|row| arguments.rows.is_empty() || arguments.rows.iter().any(|r| r == row.name));
    Plan {
        rows,
        peers,
        rounds: if smoke { 1 } else { arguments.rounds },
        seconds: arguments.seconds,
        smoke,
    }
}
