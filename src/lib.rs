//! hapax: a Kafka proxy sidecar that makes "written exactly once" true and visible.

#![forbid(unsafe_code)]

pub mod ids;
pub mod wire;
