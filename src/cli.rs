//! What can be typed: commands and flags.
//!
//! The flags of `hapax run` come from the table in [`crate::config::keys`],
//! which gives the environment variables and the configuration file too.

mod config;
mod generate;
mod run;

use std::env;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::HostPort;
use crate::config::keys::{self, KEYS, Key};
use crate::config::settings::FILE_VARIABLE;

pub use self::config::{ConfigArgs, ConfigCommand, PrintArgs};
pub use self::generate::{CompletionArgs, man};
pub use self::run::RunArgs;

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
    /// Show the effective configuration, or the schema of the file.
    Config(ConfigArgs),
    /// List the producers that a running hapax follows, newest batch first.
    Producers(ProducersArgs),
    /// List the recent events of a running hapax: duplicates, gaps, fencing.
    Events(EventsArgs),
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

/// A `HAPAX_` variable that means nothing: a typing error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The variable that may have been meant.
    pub nearest: Option<String>,
}

/// The `HAPAX_` variables among `names` that mean nothing. What Kubernetes
/// injects for a Service called hapax is not one of them.
pub fn unknown_variables<N: AsRef<OsStr>>(
    names: impl IntoIterator<Item = N>,
) -> Vec<UnknownVariable> {
    let known = variables();
    let names = names.into_iter();
    let names = names.map(|name| name.as_ref().to_string_lossy().into_owned());
    let names: Vec<_> = names.filter(|name| name.starts_with("HAPAX_")).collect();
    // Of a Service hapax-gateway there is HAPAX_GATEWAY_PORT, beside its host.
    let is_port = |name: &str| {
        let service = name.strip_suffix("_PORT");
        service.is_some_and(|service| names.contains(&format!("{service}_SERVICE_HOST")))
    };
    let meaningless = names.iter().filter(|name| !known.contains(name));
    let mut unknown: Vec<_> = meaningless
        .filter(|name| !is_of_a_service(name) && !is_port(name))
        .cloned()
        .map(|name| {
            let nearest = nearest_variable(&name, &known);
            UnknownVariable { name, nearest }
        })
        .collect();
    unknown.sort_by(|a, b| a.name.cmp(&b.name));
    unknown
}

/// The environment variable whose value an error is about: clap names only the
/// flag. `typed` is the command line.
pub fn variable_behind(error: &clap::Error, typed: &[OsString]) -> Option<String> {
    let (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) = (
        error.get(ContextKind::InvalidArg),
        error.get(ContextKind::InvalidValue),
    ) else {
        return None;
    };
    let flag = argument.split([' ', '=', '[']).next()?;
    let is_typed = |word: &OsString| word.to_string_lossy().starts_with(flag);
    if typed.iter().any(is_typed) {
        return None;
    }
    let mut variables = variables().into_iter();
    variables.find(|name| {
        env::var_os(name).is_some_and(|set| set == **value) && name.ends_with(&upper(flag))
    })
}

/// A flag as the end of a variable's name.
fn upper(flag: &str) -> String {
    let name = flag.trim_start_matches('-');
    name.to_uppercase().replace('-', "_")
}

fn nearest_variable(name: &str, known: &[String]) -> Option<String> {
    let bare = |name| str::strip_prefix(name, "HAPAX_").unwrap_or(name);
    let key = keys::nearest_path(bare(name)).and_then(Key::at);
    let other = || keys::nearest(bare(name), known.iter().map(|name| bare(name)));
    key.map(Key::variable)
        .or_else(|| other().map(|name| format!("HAPAX_{name}")))
}

/// Every environment variable that means something to some command.
fn variables() -> Vec<String> {
    fn of_command(command: &clap::Command, found: &mut Vec<String>) {
        let variables = command.get_arguments().filter_map(clap::Arg::get_env);
        found.extend(variables.map(|name| name.to_string_lossy().into_owned()));
        for command in command.get_subcommands() {
            of_command(command, found);
        }
    }
    let mut found: Vec<_> = KEYS.iter().map(Key::variable).collect();
    found.push(FILE_VARIABLE.to_owned());
    of_command(&Cli::command(), &mut found);
    found
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::settings::ConfigErrors;
    use crate::config::{ApiAccess, Config, Limits, LogFormat, Mode, SequenceConfig, Timeouts};

    fn config(flags: &str) -> Result<Config, String> {
        let args = RunArgs::from_flags(flags.split_whitespace());
        let args = args.map_err(|error| error.to_string())?;
        match args.settle_with(&|_| None) {
            (settings, errors) if errors.is_empty() => settings.config(),
            (_, errors) => Err(ConfigErrors::from(errors)),
        }
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
                "listen.bootstrap has port 19092",
            ),
            (
                "--upstream a:1 --broker-ports 9100-9200",
                "admin.listen has port 9180, which listen.brokerPorts 9100-9200 contains: move one of them (admin.listen: default; listen.brokerPorts: flag --broker-ports)",
            ),
            (
                "--upstream a:1 --broker-ports 20-10",
                "listen.brokerPorts 20-10 is empty",
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
                "bytes, a number from 1024 to 2147483647",
            ),
            (
                "--upstream a:1 --timeouts-connect 0",
                "timeouts.connect is 0s (flag --timeouts-connect)",
            ),
        ] {
            let error = config(flags).unwrap_err();
            assert!(error.contains(said), "{flags}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_usage_error() {
        for flags in [
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
    fn the_definition_of_the_command_line_holds() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_variable_is_one_that_kubernetes_injects_for_a_service() {
        let variables = variables();
        assert!(variables.len() > KEYS.len());
        for variable in variables {
            let injected = is_of_a_service(&variable) || variable.ends_with("_PORT");
            assert!(!injected, "{variable}");
        }
    }

    #[test]
    fn what_kubernetes_injects_for_a_service_of_that_name_is_known() {
        // A Service `hapax`, and others whose names begin so, with ports that
        // have names of their own.
        for service in ["HAPAX", "HAPAX_GATEWAY", "HAPAX_UPSTREAM", "HAPAX_CONFIG"] {
            for name in [
                "SERVICE_HOST",
                "SERVICE_PORT",
                "SERVICE_PORT_KAFKA",
                "SERVICE_PORT_BROKER_PORTS",
                "PORT_19092_TCP",
                "PORT_19092_TCP_PROTO",
                "PORT_19092_TCP_PORT",
                "PORT_19092_TCP_ADDR",
                "PORT_19092_UDP_ADDR",
            ] {
                let variable = format!("{service}_{name}");
                assert_eq!(unknown_variables([&variable]), [], "{variable}");
                assert!(!variables().contains(&variable));
            }
        }
        assert_eq!(unknown_variables(["HAPAX_PORT"]), []);
        let gateway = ["HAPAX_GATEWAY_PORT", "HAPAX_GATEWAY_SERVICE_HOST"];
        assert_eq!(unknown_variables(gateway), []);
        assert_eq!(unknown_variables(&gateway[..1]).len(), 1);
    }

    #[test]
    fn a_mistyped_variable_finds_the_one_that_was_meant() {
        for (name, expected) in [
            ("HAPAX_UPSTREAMS", Some("HAPAX_UPSTREAM")),
            ("HAPAX_SEQUENCE_MODE", Some("HAPAX_MODE")),
            ("HAPAX_UPSTREAM_BOOTSTRAP", Some("HAPAX_UPSTREAM")),
            ("HAPAX_LISTEN_BROKERPORTS", Some("HAPAX_BROKER_PORTS")),
            ("HAPAX_LOGLEVEL", Some("HAPAX_LOG_LEVEL")),
            ("HAPAX_CONFIGS", Some("HAPAX_CONFIG")),
            ("HAPAX_ADMN", Some("HAPAX_ADMIN")),
            ("HAPAX_ENTIRELY_DIFFERENT", None),
        ] {
            let unknown = UnknownVariable {
                name: name.to_owned(),
                nearest: expected.map(str::to_owned),
            };
            assert_eq!(unknown_variables([name]), [unknown]);
        }
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
        let found = unknown_variables(names).into_iter();
        let found: Vec<_> = found.map(|variable| variable.name).collect();
        assert_eq!(found, unknown);
    }
}
