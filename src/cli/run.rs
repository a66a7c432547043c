//! `hapax run`, whose flags are the keys of the configuration.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Error, FromArgMatches, Parser};

use super::{Cli, Command};
use crate::config::Config;
use crate::config::keys::{KEYS, Key, Kind};
use crate::config::settings::{
    ConfigError, ConfigErrors, FILE_VARIABLE, Settings, Sources, settle,
};
use crate::config::value::Value;

/// What was typed after `hapax run`. `hapax config print` takes the same, and
/// every command that needs to know the configuration may.
#[derive(Clone, Debug, Default)]
pub struct RunArgs {
    /// The `--config` file.
    file: Option<PathBuf>,
    /// The keys that were typed, each once.
    flags: Vec<(&'static Key, Value)>,
}

impl RunArgs {
    /// The arguments of `hapax run` with these flags.
    pub fn from_flags<'a>(flags: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let cli = Cli::try_parse_from(["hapax", "run"].into_iter().chain(flags))?;
        match cli.command {
            Command::Run(args) => Ok(*args),
            _ => unreachable!("the command is run"),
        }
    }

    /// The effective configuration in the environment of this process, and
    /// what cannot be read of it.
    pub fn settle(self) -> (Settings, Vec<ConfigError>) {
        self.settle_with(&|name| env::var_os(name))
    }

    /// The same in an environment.
    pub fn settle_with(
        self,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> (Settings, Vec<ConfigError>) {
        settle(Sources {
            flags: self.flags,
            file: self.file,
            variable,
        })
    }

    /// What the arguments mean, in the environment of this process.
    ///
    /// # Errors
    ///
    /// With everything that cannot be read or makes no sense together.
    pub fn into_config(self) -> Result<Config, ConfigErrors> {
        match self.settle() {
            (settings, errors) if errors.is_empty() => settings.config(),
            (_, errors) => Err(errors.into()),
        }
    }
}

impl FromArgMatches for RunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let file = matches.get_one::<PathBuf>(FILE_FLAG).cloned();
        let mut flags = Vec::new();
        for key in KEYS.iter().filter(|key| typed(key.flag)) {
            let mut values = matches.get_many::<Value>(key.flag).into_iter().flatten();
            let missing = || Error::raw(ErrorKind::MissingRequiredArgument, key.flag);
            let mut all = values.next().ok_or_else(missing)?.clone();
            values.for_each(|value| all.append(value.clone()));
            flags.push((key, all));
        }
        Ok(Self { file, flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RunArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new(FILE_FLAG)
            .short('c')
            .long(FILE_FLAG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!(
                "A YAML file; flags and variables win over it [env: {FILE_VARIABLE}]"
            ));
        command.arg(file).args(KEYS.iter().map(of_key))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// The flag of a key. Its environment variable is only told here: clap reads
/// none of them, so that errors in them are told like those of the file.
fn of_key(key: &'static Key) -> Arg {
    let doc = key.doc.strip_suffix('.').unwrap_or(key.doc);
    let arg = Arg::new(key.flag)
        .long(key.flag)
        .value_name(key.kind.placeholder())
        .help(format!("{doc} [env: {}]", key.variable()))
        .value_parser(parser(key));
    let arg = match key.heading {
        "" => arg,
        heading => arg.help_heading(heading),
    };
    let arg = match key.default {
        "" => arg,
        default => arg.default_value(default),
    };
    match key.kind {
        Kind::Switch => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        _ if key.kind.is_many() => arg.action(ArgAction::Append).value_delimiter(','),
        _ => arg,
    }
}

/// Reads one value, or one of several.
fn parser(key: &'static Key) -> ValueParser {
    match key.kind {
        Kind::Choice(choices) => PossibleValuesParser::new(choices())
            .map(Value::Choice)
            .into(),
        _ => ValueParser::new(|text: &str| key.kind.parse(text)),
    }
}

const FILE_FLAG: &str = "config";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::{
        ApiAccess, DrainConfig, DrainUntil, Limits, LogFormat, Mode, SequenceConfig, Timeouts,
    };

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
            resolve: true,
            resolve_timeout: secs(2),
            resolve_bytes: 8 << 20,
            broker_producer_expiry: secs(24 * 3600),
        };
        assert_eq!(config.sequence, sequence);
        let limits = Limits {
            connections: 10_000,
            frame_bytes: 100 << 20,
            orphans: 1024,
            resolves: 16,
            in_flight: 1024,
            collected_bytes: 256 << 20,
        };
        assert_eq!(config.limits, limits);
        let timeouts = Timeouts {
            first_request: secs(600),
            idle: Duration::ZERO,
            request: secs(60),
            keep_alive: secs(60),
            connect: secs(10),
            tls: secs(10),
            sasl: secs(10),
            upstream_response: secs(60),
        };
        assert_eq!(config.timeouts, timeouts);
        let drain = DrainConfig {
            until: DrainUntil::Connections,
            timeout: secs(25),
            min_delay: Duration::ZERO,
        };
        assert_eq!(config.drain, drain);
        assert!(!config.require_upstream);
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
             --log-level info,hapax::session=debug --drain-timeout 0 --drain-until requests",
        )
        .unwrap();
        assert_eq!(config.upstream.len(), 3);
        assert_eq!(config.mode, Mode::Observe);
        assert_eq!(config.node_slots, BTreeMap::from([(1, 100), (70_000, 200)]));
        assert_eq!(config.address_map.reach("z", 9), ("w".to_owned(), 9));
        assert!(config.sequence.shield45 && config.sequence.absorb_transactional);
        assert_eq!(config.workers, 3);
        assert_eq!(config.drain.timeout, Duration::ZERO);
        assert_eq!(config.drain.until, DrainUntil::Requests);
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
                "--upstream a:1 --listen-advertised-host b-{node}.hapax",
                "advertisedHost is b-{node}.hapax: {slot} is all that may be in braces",
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
            "--upstream a:1 --mode refuse",
            "--upstream a:1 --policies orders=acks",
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
}
