//! The value of a key: read from text, written as YAML and JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use serde_json::{Map, Value as Json, json};

use super::keys::{self, Kind};
use super::{
    HostPort, Mapping, ParseError, parse_duration, parse_host, parse_level, parse_listen,
    parse_node_slot, parse_path, parse_port_range, parse_text,
};
use crate::policy::{Policy, Requirement};

/// What a key was set to. A key has the variant of its [`Kind`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// [`Kind::Servers`].
    Servers(Vec<HostPort>),
    /// [`Kind::Mappings`].
    Mappings(Vec<Mapping>),
    /// [`Kind::Listen`].
    Listen(SocketAddr),
    /// [`Kind::Ports`].
    Ports(RangeInclusive<u16>),
    /// [`Kind::Host`].
    Host(Option<String>),
    /// [`Kind::Text`].
    Text(Option<String>),
    /// [`Kind::Directory`] and [`Kind::File`].
    Path(Option<PathBuf>),
    /// [`Kind::Slots`].
    Slots(Vec<(i32, u16)>),
    /// [`Kind::Policies`].
    Policies(Vec<Policy>),
    /// [`Kind::Time`] and [`Kind::Wait`].
    Time(Duration),
    /// [`Kind::Count`] and [`Kind::Bytes`].
    Count(usize),
    /// [`Kind::Switch`].
    Switch(bool),
    /// [`Kind::Choice`].
    Choice(String),
    /// [`Kind::Choices`].
    Choices(Vec<String>),
    /// [`Kind::Level`].
    Level(String),
}

impl Kind {
    /// One value, or one of several, from its text.
    pub fn parse(&self, text: &str) -> Result<Value, ParseError> {
        Ok(match self {
            Self::Servers => Value::Servers(vec![text.parse()?]),
            Self::Mappings => Value::Mappings(vec![text.parse()?]),
            Self::Listen => Value::Listen(parse_listen(text)?),
            Self::Ports => Value::Ports(parse_port_range(text)?),
            Self::Host => Value::Host(parse_host(text)?),
            Self::Text => Value::Text(parse_text(text)?),
            Self::Directory | Self::File => Value::Path(parse_path(text)),
            Self::Slots => Value::Slots(vec![parse_node_slot(text)?]),
            Self::Policies => Value::Policies(vec![text.parse()?]),
            Self::Time | Self::Wait => Value::Time(parse_duration(text)?),
            Self::Count(_) | Self::Bytes(_) => Value::Count(self.parse_count(text)?),
            Self::Switch => Value::Switch(parse_switch(text)?),
            Self::Choice(choices) => Value::Choice(self.parse_choice(&choices(), text)?),
            Self::Choices(choices) => Value::Choices(vec![self.parse_choice(&choices(), text)?]),
            Self::Level => Value::Level(parse_level(text)?),
        })
    }

    /// A value from all of its text, as a flag or a variable has it.
    pub fn parse_all(&self, text: &str) -> Result<Value, ParseError> {
        if !self.is_many() {
            return self.parse(text);
        }
        let mut all = self.none();
        for item in text.split(',').filter(|_| !text.is_empty()) {
            all.append(self.parse(item)?);
        }
        Ok(all)
    }

    /// The value of a key that takes several, or none, and has none.
    pub fn none(&self) -> Value {
        match self {
            Self::Mappings => Value::Mappings(Vec::new()),
            Self::Slots => Value::Slots(Vec::new()),
            Self::Policies => Value::Policies(Vec::new()),
            Self::Choices(_) => Value::Choices(Vec::new()),
            Self::Host => Value::Host(None),
            Self::Text => Value::Text(None),
            Self::Directory | Self::File => Value::Path(None),
            _ => Value::Servers(Vec::new()),
        }
    }

    fn parse_count(&self, text: &str) -> Result<usize, ParseError> {
        let bad = |_| ParseError::Count(text.to_owned(), self.expected());
        text.trim().parse().map_err(bad)
    }

    fn parse_choice(&self, choices: &[PossibleValue], text: &str) -> Result<String, ParseError> {
        let names = || choices.iter().map(PossibleValue::get_name);
        match names().find(|name| *name == text.trim()) {
            Some(name) => Ok(name.to_owned()),
            None => Err(ParseError::Choice {
                text: text.to_owned(),
                expected: self.expected(),
                nearest: keys::nearest(text.trim(), names()).map(str::to_owned),
            }),
        }
    }
}

/// The words that clap takes for a flag too.
fn parse_switch(text: &str) -> Result<bool, ParseError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err(ParseError::Switch(text.to_owned())),
    }
}

impl Value {
    /// Adds what another value of the same key has, where a key takes several.
    pub fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Servers(own), Self::Servers(others)) => own.extend(others),
            (Self::Mappings(own), Self::Mappings(others)) => own.extend(others),
            (Self::Slots(own), Self::Slots(others)) => own.extend(others),
            (Self::Policies(own), Self::Policies(others)) => own.extend(others),
            (Self::Choices(own), Self::Choices(others)) => own.extend(others),
            (own, other) => *own = other,
        }
    }

    /// As the file has it.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Servers(servers) => servers.iter().map(ToString::to_string).collect(),
            Self::Mappings(mappings) => {
                let pairs = mappings.iter().map(|mapping| {
                    let reachable = Json::from(mapping.reachable.to_string());
                    (mapping.advertised.to_string(), reachable)
                });
                Json::Object(pairs.collect())
            }
            Self::Listen(address) => address.to_string().into(),
            Self::Ports(ports) => format!("{}-{}", ports.start(), ports.end()).into(),
            Self::Host(text) | Self::Text(text) => text.clone().into(),
            Self::Path(path) => path.as_ref().map(|path| path.to_string_lossy()).into(),
            Self::Slots(slots) => {
                let slots: BTreeMap<_, _> = slots.iter().copied().collect();
                let pairs = slots.into_iter();
                let pairs = pairs.map(|(node, port)| (node.to_string(), Json::from(port)));
                Json::Object(pairs.collect::<Map<_, _>>())
            }
            Self::Policies(policies) => policies
                .iter()
                .map(|policy| {
                    let topics: Json = policy.topics.iter().map(ToString::to_string).collect();
                    let require: Json = policy.require.iter().map(Requirement::name).collect();
                    json!({ "topics": topics, "require": require })
                })
                .collect(),
            Self::Time(time) => write_time(*time).into(),
            Self::Count(count) => (*count).into(),
            Self::Switch(switch) => (*switch).into(),
            Self::Choices(names) => names.clone().into(),
            Self::Choice(text) | Self::Level(text) => text.clone().into(),
        }
    }

    /// As the file has it, in one line of YAML.
    ///
    /// A key whose value is a secret (there is none yet) is to be hidden here
    /// and in [`Value::to_json`]: nothing else shows a value to anyone.
    pub fn to_yaml(&self) -> String {
        // Not through JSON: that would sort nodes as text.
        if let Self::Slots(slots) = self {
            let slots: BTreeMap<_, _> = slots.iter().copied().collect();
            let pairs = slots.iter().map(|(node, port)| format!("{node}: {port}"));
            return format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "));
        }
        if let Self::Policies(policies) = self {
            let policies: Vec<String> = policies.iter().map(policy_to_yaml).collect();
            return format!("[{}]", policies.join(", "));
        }
        match self.to_json() {
            Json::String(text) => scalar(&text),
            Json::Array(items) => {
                let items = items.iter().filter_map(Json::as_str).map(scalar);
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
            Json::Object(pairs) => {
                let text = |value: &Json| scalar(value.as_str().unwrap_or_default());
                let pairs = pairs.iter();
                let pairs = pairs.map(|(key, value)| format!("{}: {}", scalar(key), text(value)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            other => other.to_string(),
        }
    }
}

fn policy_to_yaml(policy: &Policy) -> String {
    let topics: Vec<String> = policy
        .topics
        .iter()
        .map(|topic| scalar(&topic.to_string()))
        .collect();
    let require: Vec<&str> = policy.require.iter().map(Requirement::name).collect();
    format!(
        "{{topics: [{}], require: [{}]}}",
        topics.join(", "),
        require.join(", ")
    )
}

/// The shortest way to write a time that [`parse_duration`] reads.
fn write_time(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
    let unit = units.iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) if millis > 0 => format!("{}{name}", millis / unit),
        _ => "0s".to_owned(),
    }
}

/// Text as YAML: plain where no reader takes it for anything but text.
pub(super) fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/:=-".contains(c);
    let safe = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
        && !text.ends_with(':')
        && text.parse::<f64>().is_err()
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if safe {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_graphic() || c.is_alphanumeric() || c == ' ' => quoted.push(c),
            c => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// What some YAML reader takes for something else than text.
const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// What a value of a certain type is taken out of.
pub trait FromValue: Sized {
    /// The value, where it has this type.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($variants:pat => $name:ident: $type:ty),* $(,)?) => {
        $(impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $variants => Some($name.clone()),
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    Value::Servers(servers) => servers: Vec<HostPort>,
    Value::Mappings(mappings) => mappings: Vec<Mapping>,
    Value::Listen(address) => address: SocketAddr,
    Value::Ports(ports) => ports: RangeInclusive<u16>,
    Value::Host(text) | Value::Text(text) => text: Option<String>,
    Value::Path(path) => path: Option<PathBuf>,
    Value::Slots(slots) => slots: Vec<(i32, u16)>,
    Value::Policies(policies) => policies: Vec<Policy>,
    Value::Time(time) => time: Duration,
    Value::Count(count) => count: usize,
    Value::Switch(switch) => switch: bool,
    Value::Choice(text) | Value::Level(text) => text: String,
    Value::Choices(names) => names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_where_yaml_would_read_something_else() {
        for (text, yaml) in [
            ("kafka:9092", "kafka:9092"),
            ("127.0.0.1:19092", "127.0.0.1:19092"),
            ("[::1]:9092", "\"[::1]:9092\""),
            ("info,hapax::session=debug", "\"info,hapax::session=debug\""),
            ("10", "\"10\""),
            ("1e3", "\"1e3\""),
            ("No", "\"No\""),
            ("", "\"\""),
            ("host:", "\"host:\""),
            ("a \"b\"\n", "\"a \\\"b\\\"\\U0000000a\""),
        ] {
            assert_eq!(scalar(text), yaml);
        }
    }

    #[test]
    fn a_time_is_written_as_it_is_read() {
        for text in ["0s", "1ms", "300ms", "90s", "5m", "26h"] {
            assert_eq!(write_time(parse_duration(text).unwrap()), text);
        }
        assert_eq!(write_time(Duration::from_secs(3600)), "1h");
    }
}
