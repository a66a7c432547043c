//! `hapax config`.

use clap::{Args, Subcommand};

use super::RunArgs;

/// `hapax config`.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// What to show.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to show of the configuration.
#[derive(Subcommand, Clone, Debug)]
pub enum ConfigCommand {
    /// Print what hapax run would run with, as a file that it reads back.
    Print(Box<PrintArgs>),
    /// Print a JSON Schema of the configuration file.
    Schema,
}

/// `hapax config print`, which takes what `hapax run` takes.
#[derive(Args, Clone, Debug)]
pub struct PrintArgs {
    /// Say for each key who set it.
    #[arg(long)]
    pub origins: bool,
    /// What hapax run would be given.
    #[command(flatten)]
    pub run: RunArgs,
}
