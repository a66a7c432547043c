//! What can be typed: commands and flags.
//!
//! The flags of `hapax run` come from the table in [`crate::config::keys`],
//! which gives the environment variables and the configuration file too.

mod check;
mod config;
mod control;
mod dev;
pub mod exit;
mod explain;
mod generate;
mod output;
mod run;
mod snippet;
mod user;
mod variables;
mod wait;

use clap::{Args, Parser, Subcommand};

use crate::config::HostPort;

pub use self::check::CheckArgs;
pub use self::config::{ConfigArgs, ConfigCommand, PrintArgs};
pub use self::control::{DrainArgs, LogLevelArgs, ReloadArgs};
pub use self::dev::DevArgs;
pub use self::explain::ExplainArgs;
pub use self::generate::{CompletionArgs, man};
pub use self::output::write_output;
pub use self::run::RunArgs;
pub use self::snippet::SnippetArgs;
pub use self::user::UserArgs;
pub use self::variables::{UnknownVariable, unknown_variables, variable_behind};
pub use self::wait::WaitArgs;

/// The command line.
#[derive(Parser, Debug)]
#[command(name = "hapax", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the proxy.
    ///
    /// A flag wins over its environment variable, that over the --config file, and the file over
    /// the default. `hapax config print --origins` shows what holds, and who says so.
    Run(Box<RunArgs>),
    /// Try hapax: a broker in memory, hapax in front of it, and a producer that loses
    /// acknowledgements.
    Dev(DevArgs),
    /// Check the options of run, and with --connect the upstream, its brokers and the ports.
    Check(Box<CheckArgs>),
    /// Wait until a running hapax is up.
    Wait(WaitArgs),
    /// End a running hapax as SIGTERM does.
    Drain(DrainArgs),
    /// Let a running hapax read its configuration file again.
    Reload(ReloadArgs),
    /// Show what a running hapax logs, or change it.
    LogLevel(LogLevelArgs),
    /// Show the effective configuration, or the schema of the file.
    Config(ConfigArgs),
    /// List the producers that a running hapax follows, newest batch first.
    Producers(ProducersArgs),
    /// Make the lines of a user for listen.sasl.usersFile.
    User(UserArgs),
    /// List the recent events of a running hapax: duplicates, gaps, fencing.
    Events(EventsArgs),
    /// Say what an error, event or verdict means and what to do.
    Explain(ExplainArgs),
    /// Print the container of a Kubernetes sidecar, to be pasted into the values of a chart.
    Snippet(SnippetArgs),
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
    /// Print the manual page.
    Man,
    /// Say which build this is.
    Version(VersionArgs),
}

/// `hapax producers`.
#[derive(Args, Clone, Debug)]
pub struct ProducersArgs {
    /// Which hapax.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Most rows.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
}

/// `hapax events`.
#[derive(Args, Clone, Debug)]
pub struct EventsArgs {
    /// Which hapax.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Go on with each event as it happens.
    #[arg(long, short)]
    pub follow: bool,
}

/// What the commands share that print what a running hapax says.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub asked: AdminArgs,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// Which running hapax is meant.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Its --admin-listen address.
    #[arg(
        long,
        env = "HAPAX_ADMIN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9180"
    )]
    pub admin: HostPort,
}

/// `hapax version`.
#[derive(Args, Clone, Debug)]
pub struct VersionArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_holds() {
        Cli::command().debug_assert();
    }
}
