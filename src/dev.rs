//! `hapax dev`: a broker in memory, the proxy in front of it, and a producer
//! that loses acknowledgements.

mod apis;
mod code;
mod compression;
mod groups;
mod log;
mod records;
mod shape;
mod topics;
mod upstream;

pub use upstream::{RETENTION_BYTES, Upstream};
