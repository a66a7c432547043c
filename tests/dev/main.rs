//! `hapax dev`: what a person sees, what its broker does with good requests
//! and bad ones, and the clients that people use.
//!
//! `cargo test --test dev`. The clients need what `tests/run install` installs.

#![expect(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod command;
mod garbage;
mod groups;
mod process;
mod upstream;
