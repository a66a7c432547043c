//! hapax: a Kafka proxy sidecar that makes "written exactly once" true and visible.

#![forbid(unsafe_code)]

pub mod admin;
pub mod config;
pub mod events;
pub mod ids;
pub mod ledger;
pub mod metrics;
pub mod window;
pub mod wire;
