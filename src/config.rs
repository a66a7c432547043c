//! What was typed, turned into what it means and validated once.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a process of `hapax run` was told to do. Every value is validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// `upstream`: bootstrap servers, at least one.
    pub upstream: Vec<HostPort>,
    /// `listen`: where clients bootstrap.
    pub listen: SocketAddr,
    /// `broker-ports`: one local port per broker, on the address of `listen`; not empty.
    pub broker_ports: RangeInclusive<u16>,
    /// `listen.advertisedHost`: what clients are told; never a wildcard.
    pub advertised_host: Option<String>,
    /// `listen.nodeSlots`: fixed ports by node id, all within `broker_ports`.
    pub node_slots: BTreeMap<i32, u16>,
    /// `listen.slotGrace`: how long a vanished broker keeps its port.
    pub slot_grace: Duration,
    /// `upstream.addressMap`.
    pub address_map: AddressMap,
    /// `mode`.
    pub mode: Mode,
    /// `sequence.*`.
    pub sequence: SequenceConfig,
    /// `limits.*`.
    pub limits: Limits,
    /// `timeouts.*`.
    pub timeouts: Timeouts,
    /// `drain.timeout`: how long SIGTERM waits for clients.
    pub drain_timeout: Duration,
    /// `metrics.maxTopics`: topics that have series of their own.
    pub metrics_max_topics: usize,
    /// `admin.*`.
    pub admin: AdminConfig,
    /// Worker threads, at least one.
    pub workers: usize,
    /// `log.*`.
    pub log: LogConfig,
}

/// How far hapax may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Mode {
    /// Count everything, change no produce request.
    Observe,
    /// Answer retries of acknowledged batches.
    #[default]
    Absorb,
}

/// `sequence.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceConfig {
    /// Acknowledged batches that a window remembers, `1..=1024`.
    pub window_batches: usize,
    /// How long an acknowledgement may be replayed.
    pub ttl: Duration,
    /// How long a request may be held.
    pub hold_max: Duration,
    /// Windows kept, at least one.
    pub max_windows: usize,
    /// Whether error 45 as fallout of a failed predecessor is rewritten.
    pub shield45: bool,
    /// Whether transactional batches are absorbed.
    pub absorb_transactional: bool,
}

/// `limits.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Client connections.
    pub connections: usize,
    /// Bytes of one frame, `1..=i32::MAX`.
    pub frame_bytes: usize,
    /// Orphan sessions.
    pub orphans: usize,
    /// Unanswered requests of one connection.
    pub in_flight: usize,
}

/// `timeouts.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Reaching a broker.
    pub connect: Duration,
    /// A broker's answer, on top of the request's own timeout.
    pub upstream_response: Duration,
}

/// `admin.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminConfig {
    /// Where the admin HTTP server listens.
    pub listen: SocketAddr,
    /// Who may read more than metrics and probes.
    pub api: ApiAccess,
}

/// Who may read `/api`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum ApiAccess {
    /// Peers on a loopback address.
    #[default]
    Loopback,
    /// Every peer.
    Any,
}

/// `log.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// A level, or directives such as `info,hapax::session=debug`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// A host and a port; the host has no brackets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    /// A name or an address.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Advertised addresses that cannot be reached from here, and what can.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressMap(Vec<(Advertised, Advertised)>);

/// A host, with or without a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertised {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port; `None` stands for every port.
    pub port: Option<u16>,
}

impl AddressMap {
    /// Where to connect for an advertised address.
    pub fn reach(&self, host: &str, port: u16) -> (String, u16) {
        (host.to_owned(), port)
    }
}
