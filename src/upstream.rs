//! The cluster's brokers: which there are, how they are reached, and which of
//! our ports leads to which.

mod backoff;
mod brokers;
mod dial;
mod login;
mod own;
mod probe;
mod race;

pub use backoff::{Attempt, Backoff};
pub use brokers::{Broker, Brokers, Learned, Target, home};
pub use dial::{DialError, Dialled, Dialler, connect, resolve};
pub use login::{Login, log_in};
pub use own::Own;
pub use probe::{Conversation, ProbeError, ask, explain, of_upstream, speaks_kafka};
