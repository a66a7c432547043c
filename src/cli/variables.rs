//! Environment variables as a whole: which mean something, which are typing
//! errors, and which is behind an error of clap's.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};

use super::Cli;
use crate::config::keys::{self, KEYS, Key};
use crate::config::settings::FILE_VARIABLE;

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

impl Cli {
    /// What was typed. An empty variable is as one that is not set, for every
    /// command.
    ///
    /// # Errors
    ///
    /// Where the command line is none, or asks for help.
    pub fn from_typed() -> Result<Self, clap::Error> {
        let mut matches = without_empty_variables(Self::command()).try_get_matches()?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Self::command()))
    }
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| {
            let set = argument.get_env().and_then(env::var_os);
            if set.is_some_and(|value| value.is_empty()) {
                return argument.env(None::<&'static str>);
            }
            argument
        })
        .mut_subcommands(without_empty_variables)
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
    use super::*;

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
