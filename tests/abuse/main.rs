//! An attacker's visit: what it costs hapax, and what those notice who behave.
//!
//! `cargo test --test abuse` runs it in small; `-- --full --write` as
//! `tests/run abuse` does, into tests/results/abuse.md. `-- NAME…` runs only
//! the attacks whose name contains one of these.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/secure.rs"]
mod secure;

mod admin;
mod config;
mod connections;
mod scene;
mod stalls;

use std::env;
use std::fmt::Write;
use std::fs;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scene::{Outcome, Scale};

/// An attack by its name.
type Attack = (&'static str, fn(Scale) -> Outcome);

const ATTACKS: &[Attack] = &[
    ("announcements", connections::announcements),
    ("a limit", connections::under_a_limit),
    ("read whole", connections::read_whole),
    ("idle", connections::idle),
    ("served and idle", connections::served_and_idle),
    ("one byte a second", connections::slowly),
    ("random bytes", connections::random_bytes),
    ("handshakes", connections::handshakes),
    ("clients that do not read", stalls::clients_that_do_not_read),
    (
        "clients in TLS that do not read",
        stalls::clients_in_tls_that_do_not_read,
    ),
    ("brokers that do not read", stalls::brokers_that_do_not_read),
    ("admin flood", admin::flood),
    ("client ids", admin::client_ids),
    ("configuration", config::bombs),
];

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let names: Vec<_> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let scale = if has("--full") {
        Scale::Full
    } else {
        Scale::Small
    };
    make_room();
    let mut rows = String::new();
    for (name, attack) in ATTACKS {
        if !names.is_empty() && !names.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let start = Instant::now();
        let outcome = attack(scale);
        println!("{name}: {} ({:.0?})", outcome.line(), start.elapsed());
        writeln!(rows, "| {name} | {} |", outcome.row()).unwrap();
    }
    if has("--write") {
        let made_by = env::var("ABUSE_MADE_BY").unwrap_or_default();
        let report = format!("{made_by}\n\n{}{rows}", scene::HEADER);
        fs::write("tests/results/abuse.md", report).unwrap();
    }
}

/// Every connection of an attack is two descriptors of this process.
fn make_room() {
    let before = getrlimit(Resource::Nofile);
    let raise = |to| {
        let wanted = Rlimit {
            current: to,
            maximum: to,
        };
        setrlimit(Resource::Nofile, wanted).is_ok()
    };
    // Only root may raise the hard limit.
    let _ = raise(Some(65_536)) || raise(before.maximum);
}
