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
