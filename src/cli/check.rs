//! `hapax check`.

use clap::Args;

use super::RunArgs;

/// Say whether hapax run could start with the same options, and with
/// --connect whether clients would get through.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Reach the upstream and every broker that it advertises, and look whether
    /// the local ports are free.
    #[arg(long)]
    pub connect: bool,
    /// Print JSON, one object.
    #[arg(long)]
    pub json: bool,
    /// What hapax run would be given.
    #[command(flatten)]
    pub run: RunArgs,
}
