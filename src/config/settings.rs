//! The levels of the configuration, made one: flag over environment variable
//! over file over default.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::ValueEnum;
use serde_json::{Map, Value as Json, json};

use super::file::{self, FileError};
use super::keys::{KEYS, Key, Kind};
use super::value::{FromValue, Value};
use super::{
    AddressMap, AdminConfig, BackoffConfig, CertificateFiles, ClientMechanism, Config, Conflict,
    DrainConfig, Limits, ListenSasl, ListenTls, LogConfig, ParseError, SequenceConfig, StateConfig,
    Timeouts, UpstreamSasl, UpstreamTls, sasl,
};
use crate::memory;
use crate::policy::Policies;

/// The effective configuration: what every key is, and who says so.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One for each key of the table, in its order.
    all: Arc<[Setting]>,
    /// The file that was read.
    file: Option<Arc<Path>>,
    /// The same, as it is shown.
    file_name: Option<Arc<str>>,
}

/// What one key is set to.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static Key,
    /// Its value.
    pub value: Value,
    /// Who says so.
    pub origin: Origin,
}

/// Who set a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nobody.
    Default,
    /// A line of the file.
    File {
        /// The file, as it was named.
        name: Arc<str>,
        /// The line, from 1 on.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag --{flag}"),
        }
    }
}

/// Where the levels above the defaults come from.
pub struct Sources<'s> {
    /// What was typed, by key.
    pub flags: Vec<(&'static Key, Value)>,
    /// What an environment variable is, when it is set.
    pub variable: &'s dyn Fn(&str) -> Option<OsString>,
    /// The `--config` file.
    pub file: Option<PathBuf>,
}

/// A file with more errors than this is another file.
const FILE_ERRORS_MAX: usize = 20;
/// The environment variable that names the file.
pub const FILE_VARIABLE: &str = "HAPAX_CONFIG";

/// What the sources say together, and what is wrong with them. Where a value
/// cannot be read the next level holds, so that errors can be logged as the
/// rest says.
pub fn settle(sources: Sources<'_>) -> (Settings, Vec<ConfigError>) {
    let Sources {
        flags,
        variable,
        file,
    } = sources;
    // A variable that is empty is as one that is not set.
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let file = file.or_else(|| variable(FILE_VARIABLE).map(PathBuf::from));
    let mut levels = Levels::defaults();
    if let Some(path) = &file {
        levels.read_file(path);
    }
    // One that a flag wins over is not read.
    let typed = |key: &Key| flags.iter().any(|(flag, _)| flag.path == key.path);
    for key in KEYS.iter().filter(|key| !typed(key)) {
        if let Some(given) = variable(&key.variable()) {
            levels.read_variable(key, given);
        }
    }
    for (key, value) in flags {
        levels.set(key, value, Origin::Flag(key.flag));
    }
    levels.settled(file.map(Into::into))
}

/// The levels so far, from the lowest on.
struct Levels {
    all: Vec<Setting>,
    errors: Vec<ConfigError>,
}

impl Levels {
    fn defaults() -> Self {
        Self {
            all: KEYS.iter().map(default_of).collect(),
            errors: Vec::new(),
        }
    }

    fn settled(mut self, file: Option<Arc<Path>>) -> (Settings, Vec<ConfigError>) {
        self.check_ranges();
        let settings = Settings {
            all: self.all.into(),
            file_name: file.as_ref().map(|path| path.to_string_lossy().into()),
            file,
        };
        (settings, self.errors)
    }

    fn set(&mut self, key: &'static Key, value: Value, origin: Origin) {
        let found = self.all.iter_mut();
        let mut found = found.filter(|setting| setting.key.path == key.path);
        if let Some(setting) = found.next() {
            *setting = Setting { key, value, origin };
        }
    }

    fn read_file(&mut self, path: &Path) {
        let name: Arc<str> = path.to_string_lossy().into();
        let contents = match file::read(path) {
            Ok(contents) => contents,
            Err(source) => {
                let error = ConfigError::NoFile { file: name, source };
                return self.errors.push(error);
            }
        };
        let more = contents.errors.len().saturating_sub(FILE_ERRORS_MAX);
        let told = contents.errors.into_iter().take(FILE_ERRORS_MAX);
        self.errors.extend(told.map(|(line, error)| {
            let file = Arc::clone(&name);
            ConfigError::InFile { file, line, error }
        }));
        if more > 0 {
            let file = Arc::clone(&name);
            self.errors.push(ConfigError::More { file, more });
        }
        for (key, value, line) in contents.values {
            let name = Arc::clone(&name);
            self.set(key, value, Origin::File { name, line });
        }
    }

    fn read_variable(&mut self, key: &'static Key, given: OsString) {
        let variable = key.variable();
        let read = match given.into_string() {
            Ok(text) => key.kind.parse_all(&text),
            Err(bytes) => Err(ParseError::NotUtf8(bytes.to_string_lossy().into_owned())),
        };
        match read {
            Ok(value) => self.set(key, value, Origin::Environment(variable)),
            Err(error) => {
                let error = ConfigError::InEnvironment { variable, error };
                self.errors.push(error);
            }
        }
    }

    fn check_ranges(&mut self) {
        for setting in &mut self.all {
            if let Err(error) = setting.check_range() {
                self.errors.push(error);
                *setting = default_of(setting.key);
            }
        }
    }
}

fn default_of(key: &'static Key) -> Setting {
    let value = key.kind.parse_all(key.default);
    Setting {
        key,
        value: value.expect("a test parses every default of the table"),
        origin: Origin::Default,
    }
}

impl Setting {
    fn check_range(&self) -> Result<(), ConfigError> {
        let fits = match (&self.key.kind, &self.value) {
            (Kind::Count(range) | Kind::Bytes(range), Value::Count(count)) => range.contains(count),
            (Kind::Wait, Value::Time(time)) => !time.is_zero(),
            _ => true,
        };
        if fits {
            return Ok(());
        }
        Err(ConfigError::OutOfRange {
            key: self.key.path,
            value: self.value.to_yaml(),
            origin: self.origin.clone(),
            expected: self.key.kind.expected(),
        })
    }
}

impl Settings {
    /// One for each key of the table, in its order.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.all.iter()
    }

    /// The file that was read, as it was named.
    pub fn file(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// The file that was read.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What they are now that the file may say something else, and what is
    /// wrong with it. Flags and variables are those that they were.
    pub fn read_again(&self) -> (Self, Vec<ConfigError>) {
        let mut levels = Levels::defaults();
        if let Some(path) = &self.file {
            levels.read_file(path);
        }
        for setting in self.iter() {
            if let Origin::Environment(_) | Origin::Flag(_) = setting.origin {
                let Setting { key, value, origin } = setting.clone();
                levels.set(key, value, origin);
            }
        }
        levels.settled(self.file.clone())
    }

    /// What is another value in `newer`, as it was and as it is there.
    pub fn changes<'s>(
        &'s self,
        newer: &'s Self,
    ) -> impl Iterator<Item = (&'s Setting, &'s Setting)> {
        let pairs = self.iter().zip(newer.iter());
        pairs.filter(|(before, after)| before.value.to_json() != after.value.to_json())
    }

    fn at(&self, path: &str) -> &Setting {
        let found = self.all.iter().find(|setting| setting.key.path == path);
        found.expect("a test reads every key that is asked for")
    }

    fn get<T: FromValue>(&self, path: &str) -> T {
        let value = T::from_value(&self.at(path).value);
        value.expect("a test reads every key as the type that is asked for")
    }

    fn choice<T: ValueEnum>(&self, path: &str) -> T {
        let value = T::from_str(&self.get::<String>(path), false);
        value.expect("a choice is one of its key's names")
    }

    /// How to log, which is needed to say what else is wrong.
    pub fn log(&self) -> LogConfig {
        LogConfig {
            level: self.get("log.level"),
            format: self.choice("log.format"),
        }
    }

    /// What the settings mean, when they make sense together.
    ///
    /// # Errors
    ///
    /// With everything that does not.
    pub fn config(&self) -> Result<Config, ConfigErrors> {
        let mut conflicts = Vec::new();
        let mut node_slots = BTreeMap::new();
        for (node, port) in self.get::<Vec<(i32, u16)>>("listen.nodeSlots") {
            if node_slots.insert(node, port).is_some() {
                conflicts.push(Conflict::SlotTwice(node));
            }
        }
        let address_map =
            AddressMap::new(self.get("upstream.addressMap")).unwrap_or_else(|twice| {
                conflicts.push(twice);
                AddressMap::default()
            });
        let config = Config {
            upstream: self.get("upstream.bootstrap"),
            listen: self.get("listen.bootstrap"),
            broker_ports: self.get("listen.brokerPorts"),
            advertised_host: self.get("listen.advertisedHost"),
            node_slots,
            slot_collisions: self.choice("listen.slotCollisions"),
            slot_grace: self.get("listen.slotGrace"),
            address_map,
            backoff: BackoffConfig {
                first: self.get("upstream.reconnectBackoff"),
                max: self.get("upstream.reconnectBackoffMax"),
            },
            upstream_tls: self.upstream_tls(&mut conflicts),
            upstream_sasl: self.upstream_sasl(&mut conflicts),
            listen_tls: self.listen_tls(&mut conflicts),
            listen_sasl: self.listen_sasl(&mut conflicts),
            allow_open_listener: self.get("allowOpenListener"),
            mode: self.choice("sequence.mode"),
            sequence: SequenceConfig {
                window_batches: self.get("sequence.windowBatches"),
                ttl: self.get("sequence.ttl"),
                hold_max: self.get("sequence.holdMax"),
                max_windows: self.get("sequence.maxWindows"),
                shield45: self.get("sequence.shield45"),
                absorb_transactional: self.get("sequence.absorbTransactional"),
                resolve: self.get("sequence.resolve"),
                resolve_timeout: self.get("sequence.resolveTimeout"),
                resolve_bytes: self.get("sequence.resolveBytes"),
                broker_producer_expiry: self.get("sequence.brokerProducerExpiry"),
            },
            policies: Policies::new(self.get("policies")),
            limits: Limits {
                connections: self.get("limits.connections"),
                frame_bytes: self.get("limits.frameBytes"),
                orphans: self.get("limits.orphans"),
                resolves: self.get("limits.resolves"),
                in_flight: self.get("limits.inFlight"),
                collected_bytes: self.get("limits.collectedBytes"),
            },
            memory_limit: match self.get("memory.limit") {
                0 => memory::default_limit(),
                bytes => bytes,
            },
            timeouts: Timeouts {
                first_request: self.get("timeouts.firstRequest"),
                idle: self.get("timeouts.idle"),
                request: self.get("timeouts.request"),
                keep_alive: self.get("timeouts.keepAlive"),
                connect: self.get("timeouts.connect"),
                tls: self.get("timeouts.tls"),
                sasl: self.get("timeouts.sasl"),
                upstream_response: self.get("timeouts.upstreamResponse"),
            },
            drain: DrainConfig {
                until: self.choice("drain.until"),
                timeout: self.get("drain.timeout"),
                min_delay: self.get("drain.minDelay"),
            },
            require_upstream: self.get("startup.requireUpstream"),
            metrics_max_topics: self.get("metrics.maxTopics"),
            admin: AdminConfig {
                listen: self.get("admin.listen"),
                api: self.choice("admin.api"),
            },
            state: StateConfig {
                directory: self.get("state.dir"),
                interval: self.get("state.interval"),
            },
            workers: match self.get("workers") {
                0 => workers_for(thread::available_parallelism().map_or(1, NonZeroUsize::get)),
                workers => workers,
            },
            log: self.log(),
            settings: self.clone(),
        };
        conflicts.extend(config.conflicts());
        if conflicts.is_empty() {
            return Ok(config);
        }
        let usage = self.file.is_none() && conflicts == [Conflict::NoUpstream];
        let errors = conflicts.into_iter().map(|conflict| self.explain(conflict));
        let errors = errors.collect();
        Err(ConfigErrors { errors, usage })
    }

    fn upstream_tls(&self, conflicts: &mut Vec<Conflict>) -> Option<UpstreamTls> {
        let certificate =
            self.certificate("upstream.tls.certFile", "upstream.tls.keyFile", conflicts);
        if self.get("upstream.tls.enabled") {
            return Some(UpstreamTls {
                ca_file: self.get("upstream.tls.caFile"),
                certificate,
                server_name: self.get("upstream.tls.serverName"),
            });
        }
        let files = ["upstream.tls.caFile", "upstream.tls.certFile"];
        let files = files.into_iter();
        let mut given: Vec<_> = files
            .filter(|path| self.get::<Option<PathBuf>>(path).is_some())
            .collect();
        if self
            .get::<Option<String>>("upstream.tls.serverName")
            .is_some()
        {
            given.push("upstream.tls.serverName");
        }
        // Whoever gives a CA believes that TLS is spoken.
        conflicts.extend(given.first().map(|given| Conflict::Incomplete {
            given,
            missing: "upstream.tls.enabled",
            advice: "set that to true, or leave this out to speak plaintext to the brokers",
        }));
        None
    }

    fn upstream_sasl(&self, conflicts: &mut Vec<Conflict>) -> Option<UpstreamSasl> {
        let read = sasl::Read {
            mechanism: self.choice("upstream.sasl.mechanism"),
            text: &|path| self.get::<Option<String>>(path),
            file: &|path| self.get::<Option<PathBuf>>(path),
        };
        read.settled(conflicts)
    }

    fn listen_tls(&self, conflicts: &mut Vec<Conflict>) -> Option<ListenTls> {
        let client_ca_file = self.get::<Option<PathBuf>>("listen.tls.clientCaFile");
        let found = conflicts.len();
        let certificate = self.certificate("listen.tls.certFile", "listen.tls.keyFile", conflicts);
        if certificate.is_none() && client_ca_file.is_some() && conflicts.len() == found {
            conflicts.push(Conflict::Incomplete {
                given: "listen.tls.clientCaFile",
                missing: "listen.tls.certFile",
                advice: "give hapax a certificate of its own as well, since clients show theirs by TLS",
            });
        }
        Some(ListenTls {
            certificate: certificate?,
            client_ca_file,
        })
    }

    fn listen_sasl(&self, conflicts: &mut Vec<Conflict>) -> Option<ListenSasl> {
        const MECHANISMS: &str = "listen.sasl.mechanisms";
        const USERS: &str = "listen.sasl.usersFile";
        let names: Vec<String> = self.get(MECHANISMS);
        let mut mechanisms = Vec::new();
        for name in names {
            let mechanism = ClientMechanism::from_str(&name, false);
            let mechanism = mechanism.expect("a choice is one of its key's names");
            if !mechanisms.contains(&mechanism) {
                mechanisms.push(mechanism);
            }
        }
        let (given, missing, advice) = match self.get::<Option<PathBuf>>(USERS) {
            Some(users_file) if !mechanisms.is_empty() => {
                return Some(ListenSasl {
                    users_file,
                    mechanisms,
                });
            }
            Some(_) => (
                USERS,
                MECHANISMS,
                "name at least one mechanism, or leave it out",
            ),
            None if self.at(MECHANISMS).value == default_of(self.at(MECHANISMS).key).value => {
                return None;
            }
            // Whoever names mechanisms believes that clients authenticate.
            None => (
                MECHANISMS,
                USERS,
                "give the file of the users, or leave this out to let clients authenticate to the brokers",
            ),
        };
        conflicts.push(Conflict::Incomplete {
            given,
            missing,
            advice,
        });
        None
    }

    /// The files of a certificate and of its key: both or none.
    fn certificate(
        &self,
        certificate: &'static str,
        key: &'static str,
        conflicts: &mut Vec<Conflict>,
    ) -> Option<CertificateFiles> {
        let files = (
            self.get::<Option<PathBuf>>(certificate),
            self.get::<Option<PathBuf>>(key),
        );
        let (given, missing) = match files {
            (Some(certificate), Some(key)) => return Some(CertificateFiles { certificate, key }),
            (None, None) => return None,
            (Some(_), None) => (certificate, key),
            (None, Some(_)) => (key, certificate),
        };
        conflicts.push(Conflict::Incomplete {
            given,
            missing,
            advice: "give both; where one PEM file has certificate and key, name it twice",
        });
        None
    }

    fn explain(&self, conflict: Conflict) -> ConfigError {
        let origins = conflict.keys().iter().map(|path| {
            let origin = &self.at(path).origin;
            format!("{path}: {origin}")
        });
        let origins = origins.collect::<Vec<_>>().join("; ");
        match conflict {
            // Nobody said anything, and the message says how to.
            Conflict::NoUpstream if self.at("upstream.bootstrap").origin == Origin::Default => {
                ConfigError::NoUpstream
            }
            conflict => ConfigError::Conflict { conflict, origins },
        }
    }

    /// The configuration as a file has it.
    pub fn to_json(&self) -> Json {
        let mut file = Map::new();
        for setting in self.iter() {
            let (section, name) = setting.key.place();
            let value = setting.value.to_json();
            if section.is_empty() {
                file.insert(name.to_owned(), value);
                continue;
            }
            let mut names = section.split('.');
            let first = names.next().unwrap_or(section);
            let mut at = file.entry(first).or_insert_with(|| json!({}));
            for name in names {
                if at[name].is_null() {
                    at[name] = json!({});
                }
                at = &mut at[name];
            }
            at[name] = value;
        }
        Json::Object(file)
    }

    /// Who set each key, by its path.
    pub fn origins(&self) -> Json {
        let origins = self.iter().map(|setting| {
            let origin = setting.origin.to_string();
            (setting.key.path.to_owned(), Json::from(origin))
        });
        Json::Object(origins.collect())
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub struct ConfigErrors {
    /// At least one.
    pub errors: Vec<ConfigError>,
    /// Whether a command was typed without what it needs, and no more.
    pub usage: bool,
}

impl From<Vec<ConfigError>> for ConfigErrors {
    fn from(errors: Vec<ConfigError>) -> Self {
        let usage = false;
        Self { errors, usage }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.errors.iter().map(ToString::to_string);
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

/// What is wrong with a configuration, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read at all.
    #[error("{file}: the configuration file cannot be read: {source}")]
    NoFile {
        /// The file.
        file: Arc<str>,
        /// What happened.
        source: io::Error,
    },
    /// Something in a file.
    #[error("{file}:{line}: {error}")]
    InFile {
        /// The file.
        file: Arc<str>,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        error: FileError,
    },
    /// More of them than are worth telling.
    #[error("{file}: and {more} more errors")]
    More {
        /// The file.
        file: Arc<str>,
        /// How many.
        more: usize,
    },
    /// An environment variable that cannot be read.
    #[error("{variable}: {error}")]
    InEnvironment {
        /// Its name.
        variable: String,
        /// What is wrong.
        error: ParseError,
    },
    /// A value that can be read, and is too small or too large.
    #[error("{key} is {value} ({origin}): give {expected}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// What it is.
        value: String,
        /// Who says so.
        origin: Origin,
        /// What it may be.
        expected: String,
    },
    /// No bootstrap server, and nothing that should have been one.
    #[error("{}", Conflict::NoUpstream)]
    NoUpstream,
    /// Values that make no sense together.
    #[error("{conflict} ({origins})")]
    Conflict {
        /// What is wrong.
        conflict: Conflict,
        /// Who set the keys.
        origins: String,
    },
}

/// Workers on so many CPUs. The CPU that is left is for the client and for the
/// thread that accepts: with two workers on two CPUs each request costs an
/// eighth more and fewer get through, because less is read at once.
fn workers_for(cpus: usize) -> usize {
    cpus.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_key_and_in_its_range() {
        for key in KEYS {
            let setting = default_of(key);
            assert!(setting.check_range().is_ok(), "{}", key.path);
            let json = setting.value.to_json();
            assert_eq!(
                json.is_null() || json == json!([]) || json == json!({}),
                key.default.is_empty()
            );
        }
    }
}
