//! The cluster's brokers: which there are, how they are reached, and which of
//! our ports leads to which.

mod brokers;
mod dial;
mod probe;

pub use brokers::{Brokers, Learned, Target};
pub use dial::{DialError, dial};
pub use probe::{ProbeError, ask};
