#![doc = include_str!("ARCHITECTURE.md")]
#![forbid(unsafe_code)]

pub mod admin;
pub mod check;
pub mod cli;
pub mod config;
pub mod dev;
pub mod drain;
pub mod events;
pub mod explain;
pub mod exposure;
pub mod ids;
pub mod ledger;
pub mod listen;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod policy;
pub mod ports;
pub mod reload;
pub mod sasl;
pub mod scram;
pub mod session;
pub mod snapshot;
pub mod snippet;
pub mod socket;
pub mod timers;
pub mod tls;
pub mod upstream;
pub mod users;
pub mod window;
pub mod wire;
pub mod workers;

pub use listen::{Exit, RunError, run};
