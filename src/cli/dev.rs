//! `hapax dev`.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;

use crate::config::{LogConfig, LogFormat, parse_level, parse_listen};

/// `hapax dev`. Nothing it listens on can be reached from another machine.
#[derive(Args, Clone, Debug)]
pub struct DevArgs {
    /// Run the demo to its end, print what came of it, and exit.
    #[arg(long)]
    pub once: bool,
    /// Only the broker and hapax, to point a client of your own at.
    #[arg(long, conflicts_with = "once")]
    pub no_demo: bool,
    /// Where clients bootstrap; the broker's port is the next one.
    #[arg(long, env = "HAPAX_LISTEN", value_name = "ADDRESS:PORT",
          default_value = "127.0.0.1:19092", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// Where metrics, probes and the API answer; every address is this machine's
    /// loopback alone here.
    #[arg(long, env = "HAPAX_ADMIN_LISTEN", value_name = "ADDRESS:PORT",
          default_value = "127.0.0.1:9180", value_parser = parse_listen)]
    pub admin_listen: SocketAddr,
    /// Which log lines go to standard error.
    #[arg(long, env = "HAPAX_LOG_LEVEL", value_name = "LEVEL",
          default_value = "warn,hapax::listen=error", value_parser = parse_level)]
    pub log_level: String,
}

impl DevArgs {
    /// Where metrics, probes and the API answer. An image sets every address,
    /// for `hapax run`: that is no reason to refuse a demonstration.
    pub fn admin(&self) -> SocketAddr {
        match self.admin_listen {
            every if every.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, every.port()).into(),
            one => one,
        }
    }

    /// How to log: for a person.
    pub fn log(&self) -> LogConfig {
        LogConfig {
            level: self.log_level.clone(),
            format: LogFormat::Text,
        }
    }
}
