//! hapax: a Kafka proxy sidecar that makes "written exactly once" true and visible.

#![forbid(unsafe_code)]

pub mod ids;
pub mod ledger;
pub mod window;
pub mod wire;
