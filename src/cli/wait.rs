//! `hapax wait`.

use std::time::Duration;

use clap::Args;

use super::AdminArgs;
use crate::config::parse_duration;

/// Wait until a running hapax has bound all of its ports; exit 69 when it has
/// not in time. Needs no shell: a probe or a first command in a distroless
/// image.
#[derive(Args, Clone, Debug)]
pub struct WaitArgs {
    /// Longest wait; 0 asks once.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub max: Duration,
    /// Wait until a broker can be reached as well (/readyz), not only until
    /// clients can connect (/startupz).
    #[arg(long)]
    pub ready: bool,
    /// Wait until its workers get on with what they have (/livez): for a
    /// liveness probe where the admin address is on loopback alone.
    #[arg(long, conflicts_with = "ready")]
    pub live: bool,
    /// For whom.
    #[command(flatten)]
    pub asked: AdminArgs,
}
