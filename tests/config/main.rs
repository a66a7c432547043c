//! The configuration as an operator meets it: levels, files, their errors,
//! what is printed and the schema. Every test runs the binary.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

mod errors;
mod precedence;
mod printed;
mod schema;
mod support;
