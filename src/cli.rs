//! What can be typed: commands, flags and their environment variables.
//!
//! This is the one place of each key's name and default; [`crate::config`]
//! says what it means.

pub mod dev;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use crate::config::{
    AddressMap, AdminConfig, ApiAccess, Config, ConfigError, HostPort, Limits, LogConfig,
    LogFormat, Mapping, Mode, SequenceConfig, Timeouts, parse_duration, parse_listen,
    parse_node_slot, parse_port_range,
};
use crate::logging;

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
    Run(Box<RunArgs>),
    /// Try hapax: a broker in memory, hapax in front of it, and a producer that loses
    /// acknowledgements.
    Dev(dev::DevArgs),
    /// List the producers that a running hapax follows, newest batch first.
    Producers(ProducersArgs),
    /// List the recent events of a running hapax: duplicates, gaps, fencing.
    Events(EventsArgs),
    /// Say which build this is.
    Version(VersionArgs),
}

/// `hapax run`. Every flag is also an environment variable, which it overrides.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Bootstrap servers of the cluster.
    #[arg(
        long,
        env = "HAPAX_UPSTREAM",
        value_name = "HOST:PORT,…",
        required = true,
        value_delimiter = ','
    )]
    upstream: Vec<HostPort>,
    /// Where clients bootstrap.
    #[arg(long, env = "HAPAX_LISTEN", value_name = "ADDRESS:PORT",
          default_value = "127.0.0.1:19092", value_parser = parse_listen)]
    listen: SocketAddr,
    /// One local port per broker, on the same address.
    #[arg(long, env = "HAPAX_BROKER_PORTS", value_name = "FIRST-LAST",
          default_value = "19093-19192", value_parser = parse_port_range)]
    broker_ports: RangeInclusive<u16>,
    /// How far hapax may go with produce requests.
    #[arg(long, env = "HAPAX_MODE", value_enum, default_value_t)]
    mode: Mode,

    /// Host that clients are told to connect to. Without it: the bind address, or the one that
    /// the client reached.
    #[arg(long, env = "HAPAX_LISTEN_ADVERTISED_HOST", value_name = "HOST", help_heading = LISTEN)]
    listen_advertised_host: Option<String>,
    /// Fixed ports of brokers, for gateways with replicas.
    #[arg(long, env = "HAPAX_LISTEN_NODE_SLOTS", value_name = "ID=PORT,…", value_delimiter = ',',
          value_parser = parse_node_slot, help_heading = LISTEN)]
    listen_node_slots: Vec<(i32, u16)>,
    /// How long a vanished broker keeps its port.
    #[arg(long, env = "HAPAX_LISTEN_SLOT_GRACE", value_name = "TIME", default_value = "10m",
          value_parser = parse_duration, help_heading = LISTEN)]
    listen_slot_grace: Duration,
    /// Where to connect for brokers whose advertised address cannot be reached from here.
    #[arg(long, env = "HAPAX_UPSTREAM_ADDRESS_MAP", value_name = "ADVERTISED=REACHABLE,…",
          value_delimiter = ',', help_heading = LISTEN)]
    upstream_address_map: Vec<Mapping>,

    /// Acknowledged batches to remember per producer and partition.
    #[arg(long, env = "HAPAX_SEQUENCE_WINDOW_BATCHES", value_name = "N", default_value_t = 5,
          help_heading = SEQUENCE)]
    sequence_window_batches: usize,
    /// How long an acknowledgement may answer a retry.
    #[arg(long, env = "HAPAX_SEQUENCE_TTL", value_name = "TIME", default_value = "5m",
          value_parser = parse_duration, help_heading = SEQUENCE)]
    sequence_ttl: Duration,
    /// How long a batch waits for the one before it.
    #[arg(long, env = "HAPAX_SEQUENCE_HOLD_MAX", value_name = "TIME", default_value = "5s",
          value_parser = parse_duration, help_heading = SEQUENCE)]
    sequence_hold_max: Duration,
    /// Producers times partitions to follow; more pass untracked.
    #[arg(long, env = "HAPAX_SEQUENCE_MAX_WINDOWS", value_name = "N", default_value_t = 100_000,
          help_heading = SEQUENCE)]
    sequence_max_windows: usize,
    /// Answer the fallout of a failed batch with its retriable error instead of error 45.
    #[arg(long, env = "HAPAX_SEQUENCE_SHIELD45", value_name = "BOOL", action = ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = BoolishValueParser::new(),
          help_heading = SEQUENCE)]
    sequence_shield45: bool,
    /// Absorb retries of transactional batches too.
    #[arg(long, env = "HAPAX_SEQUENCE_ABSORB_TRANSACTIONAL", value_name = "BOOL",
          action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new(), help_heading = SEQUENCE)]
    sequence_absorb_transactional: bool,

    /// Client connections.
    #[arg(long, env = "HAPAX_LIMITS_CONNECTIONS", value_name = "N", default_value_t = 10_000,
          help_heading = LIMITS)]
    limits_connections: usize,
    /// Bytes of one frame.
    #[arg(long, env = "HAPAX_LIMITS_FRAME_BYTES", value_name = "BYTES",
          default_value_t = 104_857_600, help_heading = LIMITS)]
    limits_frame_bytes: usize,
    /// Broker connections kept after their client went.
    #[arg(long, env = "HAPAX_LIMITS_ORPHANS", value_name = "N", default_value_t = 1024,
          help_heading = LIMITS)]
    limits_orphans: usize,
    /// Unanswered requests of one connection.
    #[arg(long, env = "HAPAX_LIMITS_IN_FLIGHT", value_name = "N", default_value_t = 1024,
          help_heading = LIMITS)]
    limits_in_flight: usize,
    /// Bytes of unfinished requests that are collected, of all connections together.
    #[arg(long, env = "HAPAX_LIMITS_COLLECTED_BYTES", value_name = "BYTES",
          default_value_t = 268_435_456, help_heading = LIMITS)]
    limits_collected_bytes: usize,
    /// How long a client may be connected before its first request.
    #[arg(long, env = "HAPAX_TIMEOUTS_FIRST_REQUEST", value_name = "TIME", default_value = "10m",
          value_parser = parse_duration, help_heading = LIMITS)]
    timeouts_first_request: Duration,
    /// How long reaching a broker may take.
    #[arg(long, env = "HAPAX_TIMEOUTS_CONNECT", value_name = "TIME", default_value = "10s",
          value_parser = parse_duration, help_heading = LIMITS)]
    timeouts_connect: Duration,
    /// How long a broker's answer may take, on top of the request's own timeout.
    #[arg(long, env = "HAPAX_TIMEOUTS_UPSTREAM_RESPONSE", value_name = "TIME",
          default_value = "60s", value_parser = parse_duration, help_heading = LIMITS)]
    timeouts_upstream_response: Duration,
    /// How long SIGTERM waits for clients to hang up.
    #[arg(long, env = "HAPAX_DRAIN_TIMEOUT", value_name = "TIME", default_value = "25s",
          value_parser = parse_duration, help_heading = LIMITS)]
    drain_timeout: Duration,

    /// Where metrics, probes and the API answer.
    #[arg(long, env = "HAPAX_ADMIN_LISTEN", value_name = "ADDRESS:PORT",
          default_value = "127.0.0.1:9180", value_parser = parse_listen, help_heading = OPERATION)]
    admin_listen: SocketAddr,
    /// Who may read the API; metrics and probes answer everyone.
    #[arg(long, env = "HAPAX_ADMIN_API", value_enum, default_value_t, help_heading = OPERATION)]
    admin_api: ApiAccess,
    /// Topics that have series of their own; the others are `other`.
    #[arg(long, env = "HAPAX_METRICS_MAX_TOPICS", value_name = "N", default_value_t = 50,
          help_heading = OPERATION)]
    metrics_max_topics: usize,
    /// Worker threads; 0 is one per CPU that the process may use.
    #[arg(long, env = "HAPAX_WORKERS", value_name = "N", default_value_t = 0,
          help_heading = OPERATION)]
    workers: usize,
    /// A level (error, warn, info, debug, trace), or directives such as
    /// `info,hapax::session=debug`.
    #[arg(long, env = "HAPAX_LOG_LEVEL", value_name = "LEVEL", default_value = "info",
          value_parser = logging::parse_level, help_heading = OPERATION)]
    log_level: String,
    /// How log lines look; auto is text on a terminal and JSON otherwise.
    #[arg(long, env = "HAPAX_LOG_FORMAT", value_enum, default_value_t, help_heading = OPERATION)]
    log_format: LogFormat,
}

impl RunArgs {
    /// The arguments of `hapax run` with these flags.
    pub fn from_flags<'a>(flags: impl IntoIterator<Item = &'a str>) -> Result<Self, clap::Error> {
        let cli = Cli::try_parse_from(["hapax", "run"].into_iter().chain(flags))?;
        match cli.command {
            Command::Run(args) => Ok(*args),
            Command::Dev(_) | Command::Producers(_) | Command::Events(_) | Command::Version(_) => {
                unreachable!("the command is run")
            }
        }
    }

    /// How to log, which is needed to say what else is wrong.
    pub fn log(&self) -> LogConfig {
        LogConfig {
            level: self.log_level.clone(),
            format: self.log_format,
        }
    }

    /// What the arguments mean.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let log = self.log();
        let mut node_slots = BTreeMap::new();
        for (node, port) in self.listen_node_slots {
            if node_slots.insert(node, port).is_some() {
                return Err(ConfigError::SlotTwice(node));
            }
        }
        Config {
            upstream: self.upstream,
            listen: self.listen,
            broker_ports: self.broker_ports,
            advertised_host: self.listen_advertised_host,
            node_slots,
            slot_grace: self.listen_slot_grace,
            address_map: AddressMap::new(self.upstream_address_map)?,
            mode: self.mode,
            sequence: SequenceConfig {
                window_batches: self.sequence_window_batches,
                ttl: self.sequence_ttl,
                hold_max: self.sequence_hold_max,
                max_windows: self.sequence_max_windows,
                shield45: self.sequence_shield45,
                absorb_transactional: self.sequence_absorb_transactional,
            },
            limits: Limits {
                connections: self.limits_connections,
                frame_bytes: self.limits_frame_bytes,
                orphans: self.limits_orphans,
                in_flight: self.limits_in_flight,
                collected_bytes: self.limits_collected_bytes,
            },
            timeouts: Timeouts {
                first_request: self.timeouts_first_request,
                connect: self.timeouts_connect,
                upstream_response: self.timeouts_upstream_response,
            },
            drain_timeout: self.drain_timeout,
            metrics_max_topics: self.metrics_max_topics,
            admin: AdminConfig {
                listen: self.admin_listen,
                api: self.admin_api,
            },
            workers: match self.workers {
                0 => thread::available_parallelism().map_or(1, NonZeroUsize::get),
                workers => workers,
            },
            log,
        }
        .validate()
    }
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

/// What the commands share that ask a running hapax.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Its --admin-listen address.
    #[arg(
        long,
        env = "HAPAX_ADMIN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9180"
    )]
    pub admin: HostPort,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// `hapax version`.
#[derive(Args, Clone, Debug)]
pub struct VersionArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The `HAPAX_` variables among `names` that mean nothing: typing errors. What
/// Kubernetes injects for a Service called hapax is not one of them.
pub fn unknown_variables<N: AsRef<OsStr>>(names: impl IntoIterator<Item = N>) -> Vec<String> {
    let command = Cli::command();
    let known: Vec<_> = command
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .filter_map(clap::Arg::get_env)
        .collect();
    let mut unknown: Vec<_> = names
        .into_iter()
        .filter(|name| !known.contains(&name.as_ref()))
        .map(|name| name.as_ref().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("HAPAX_") && !is_of_a_service(name))
        .collect();
    unknown.sort();
    unknown
}

/// `HAPAX_SERVICE_HOST`, `HAPAX_SERVICE_PORT_KAFKA`, `HAPAX_PORT`,
/// `HAPAX_PORT_9092_TCP_ADDR` and the like.
fn is_of_a_service(name: &str) -> bool {
    let port_number = |(at, marker): (usize, &str)| {
        let rest = &name[at + marker.len()..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        digits > 0 && rest[digits..].starts_with('_')
    };
    name == "HAPAX_PORT"
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.match_indices("_PORT_").any(port_number)
}

const LISTEN: &str = "Addresses";
const SEQUENCE: &str = "Sequences";
const LIMITS: &str = "Limits";
const OPERATION: &str = "Operation";

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: &str) -> Result<Config, String> {
        RunArgs::from_flags(flags.split_whitespace())
            .map_err(|error| error.to_string())?
            .into_config()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_has_the_documented_default() {
        let config = config("--upstream kafka:9092").unwrap();
        let secs = Duration::from_secs;
        assert_eq!(config.upstream[0].to_string(), "kafka:9092");
        assert_eq!(config.listen.to_string(), "127.0.0.1:19092");
        assert_eq!(config.broker_ports, 19_093..=19_192);
        assert_eq!(config.advertised_host, None);
        assert_eq!(config.slot_grace, secs(600));
        assert_eq!(config.mode, Mode::Absorb);
        let sequence = SequenceConfig {
            window_batches: 5,
            ttl: secs(300),
            hold_max: secs(5),
            max_windows: 100_000,
            shield45: false,
            absorb_transactional: false,
        };
        assert_eq!(config.sequence, sequence);
        let limits = Limits {
            connections: 10_000,
            frame_bytes: 100 << 20,
            orphans: 1024,
            in_flight: 1024,
            collected_bytes: 256 << 20,
        };
        assert_eq!(config.limits, limits);
        let timeouts = Timeouts {
            first_request: secs(600),
            connect: secs(10),
            upstream_response: secs(60),
        };
        assert_eq!(config.timeouts, timeouts);
        assert_eq!(config.drain_timeout, secs(25));
        assert_eq!(config.metrics_max_topics, 50);
        assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9180");
        assert_eq!(config.admin.api, ApiAccess::Loopback);
        assert!(config.workers >= 1);
        assert_eq!(
            (&*config.log.level, config.log.format),
            ("info", LogFormat::Auto)
        );
    }

    #[test]
    fn flags_reach_their_keys() {
        let config = config(
            "--upstream a:1,[::1]:2 --upstream c:3 --mode observe --listen 0.0.0.0:5 \
             --listen-advertised-host me --broker-ports 100-200 --listen-node-slots 1=100,70000=200 \
             --upstream-address-map x:1=y:2,z=w --sequence-shield45 \
             --sequence-absorb-transactional=true --workers 3 --admin-api any --log-format json \
             --log-level info,hapax::session=debug --drain-timeout 0",
        )
        .unwrap();
        assert_eq!(config.upstream.len(), 3);
        assert_eq!(config.mode, Mode::Observe);
        assert_eq!(config.node_slots, BTreeMap::from([(1, 100), (70_000, 200)]));
        assert_eq!(config.address_map.reach("z", 9), ("w".to_owned(), 9));
        assert!(config.sequence.shield45 && config.sequence.absorb_transactional);
        assert_eq!(config.workers, 3);
        assert_eq!(config.drain_timeout, Duration::ZERO);
    }

    #[test]
    fn values_that_do_not_fit_together_are_refused_with_the_value_and_the_way_out() {
        for (flags, said) in [
            (
                "--upstream 127.0.0.1:19092",
                "upstream 127.0.0.1:19092 is hapax itself",
            ),
            (
                "--upstream a:1,localhost:19100",
                "upstream localhost:19100 is hapax itself",
            ),
            (
                "--upstream 127.0.0.1:9180",
                "upstream 127.0.0.1:9180 is hapax itself",
            ),
            (
                "--upstream a:1 --broker-ports 19000-19100",
                "listen has port 19092",
            ),
            (
                "--upstream a:1 --broker-ports 9100-9200",
                "admin.listen has port 9180",
            ),
            (
                "--upstream a:1 --broker-ports 20-10",
                "broker-ports 20-10 is empty",
            ),
            (
                "--upstream a:1 --admin-listen 0.0.0.0:19092",
                "both have port 19092",
            ),
            (
                "--upstream a:1 --listen-advertised-host 0.0.0.0",
                "advertisedHost is 0.0.0.0",
            ),
            (
                "--upstream a:1 --listen-advertised-host [::]",
                "advertisedHost is [::]",
            ),
            ("--upstream a:1 --listen-node-slots 1=5", "node 1 port 5"),
            (
                "--upstream a:1 --listen-node-slots 1=19093,2=19093",
                "nodes 1 and 2",
            ),
            (
                "--upstream a:1 --listen-node-slots 1=19093,1=19094",
                "node 1 twice",
            ),
            (
                "--upstream a:1 --upstream-address-map a=b,a=c",
                "names a twice",
            ),
            (
                "--upstream a:1 --sequence-window-batches 0",
                "windowBatches is 0",
            ),
            (
                "--upstream a:1 --sequence-window-batches 1025",
                "from 1 to 1024",
            ),
            (
                "--upstream a:1 --limits-frame-bytes 2147483648",
                "from 1024 to 2147483647",
            ),
            (
                "--upstream a:1 --timeouts-connect 0",
                "timeouts.connect is 0",
            ),
        ] {
            let error = config(flags).unwrap_err();
            assert!(error.contains(said), "{flags}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_usage_error() {
        for flags in [
            "",
            "--upstream kafka",
            "--upstream a:1 --no-such-flag",
            "--upstream a:1 --sequence-ttl 5",
            "--upstream a:1 --mode enforce",
            "--upstream a:1 --listen kafka:1",
            "--upstream a:1 --log-level loud",
            "--upstream a:1 --listen-node-slots x",
        ] {
            assert!(
                RunArgs::from_flags(flags.split_whitespace()).is_err(),
                "{flags}"
            );
        }
    }

    #[test]
    fn every_flag_of_run_is_an_environment_variable_of_its_name() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let flags: Vec<_> = run
            .get_arguments()
            .filter(|arg| arg.get_id() != "help")
            .collect();
        assert!(flags.len() > 20);
        for arg in flags {
            let flag = arg.get_long().unwrap();
            let variable = format!("HAPAX_{}", flag.to_uppercase().replace('-', "_"));
            assert_eq!(arg.get_env(), Some(OsStr::new(&variable)));
            assert!(
                !is_of_a_service(&variable),
                "{variable} collides with Kubernetes"
            );
        }
        Cli::command().debug_assert();
    }

    #[test]
    fn only_typing_errors_among_the_variables_are_unknown() {
        let names = [
            "PATH",
            "HAPAX_UPSTREAM",
            "HAPAX_ADMIN",
            "HAPAX_PORT",
            "HAPAX_SERVICE_HOST",
            "HAPAX_SERVICE_PORT",
            "HAPAX_SERVICE_PORT_KAFKA",
            "HAPAX_PORT_9092_TCP",
            "HAPAX_PORT_9092_TCP_ADDR",
            "HAPAX_GATEWAY_PORT_9092_TCP_PROTO",
            "HAPAX_UPSTREAMS",
            "HAPAX_BROKER_PORT_RANGE",
            "HAPAX_PORT_X",
        ];
        let unknown = ["HAPAX_BROKER_PORT_RANGE", "HAPAX_PORT_X", "HAPAX_UPSTREAMS"];
        assert_eq!(unknown_variables(names), unknown);
    }
}
