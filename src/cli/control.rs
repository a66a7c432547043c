//! The commands that tell a running hapax to do something.

use std::time::Duration;

use clap::Args;

use super::AdminArgs;
use crate::config::{parse_duration, parse_level};

/// Tell a running hapax on this machine to end, as SIGTERM does: clients are
/// served to their end first. For an application whose container cannot signal
/// that of hapax, such as that of a Job.
#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    /// How long to wait until it has ended, exit 1 when it has not; 0 does not
    /// wait.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub max: Duration,
    /// Which.
    #[command(flatten)]
    pub asked: AdminArgs,
}

/// Let a running hapax on this machine read its configuration file again, as
/// SIGHUP does. Says what changed; exit 1 says what is wrong, or can only be
/// changed by a restart, and then nothing changed.
#[derive(Args, Clone, Debug)]
pub struct ReloadArgs {
    /// Which.
    #[command(flatten)]
    pub asked: AdminArgs,
}

/// Show what a running hapax on this machine logs, or change it until it ends
/// or its file says something else.
#[derive(Args, Clone, Debug)]
pub struct LogLevelArgs {
    /// A level, or directives such as `info,hapax::session=debug`.
    #[arg(value_name = "LEVEL", value_parser = parse_level)]
    pub level: Option<String>,
    /// Which.
    #[command(flatten)]
    pub asked: AdminArgs,
}
