//! The proxy as a whole: a scripted broker behind a hapax process, raw clients
//! before it. Each test makes one claim.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod attack;
mod broker;
mod bumps;
mod container;
mod door;
mod drain;
mod enforce;
mod flow;
mod insight;
mod login;
mod orders;
mod orphans;
mod reach;
mod reload;
mod resolve;
mod runs;
mod sasl;
mod scram;
#[path = "../support/secure.rs"]
mod secure;
mod snapshot;
mod time;
mod tls;
mod trust;
mod versions;
mod window;
mod world;
