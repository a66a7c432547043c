//! What was typed, turned into what it means and validated once.
//!
//! [`keys`] is the table of all keys; [`settings`] makes one of the levels that
//! may set them, of which [`file`](mod@file) is one.

pub mod document;
pub mod file;
pub mod keys;
mod parse;
mod sasl;
pub mod schema;
pub mod settings;
pub mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use self::settings::Settings;
use crate::policy::Policies;

pub(crate) use self::parse::printable;
pub use self::parse::{
    AddressMap, Advertised, HostPort, Mapping, ParseError, parse_duration, parse_host, parse_level,
    parse_listen, parse_node_slot, parse_path, parse_port_range, parse_text,
};
pub use self::sasl::{Endpoint, Mechanism, Name, Oauth, SaslCredentials, UpstreamSasl};

/// What a process of `hapax run` was told to do. Every value is validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// `upstream.bootstrap`: bootstrap servers, at least one.
    pub upstream: Vec<HostPort>,
    /// `listen.bootstrap`: where clients bootstrap.
    pub listen: SocketAddr,
    /// `listen.brokerPorts`: one local port per broker, on the same address; not empty.
    pub broker_ports: RangeInclusive<u16>,
    /// `listen.advertisedHost`: what clients are told, see [`told_host`]; never a wildcard.
    pub advertised_host: Option<String>,
    /// `listen.nodeSlots`: fixed ports by node id, all within `broker_ports`.
    pub node_slots: BTreeMap<i32, u16>,
    /// `listen.slotCollisions`: who gives way where two brokers have one port.
    pub slot_collisions: Collisions,
    /// `listen.slotGrace`: how long a vanished broker keeps its port.
    pub slot_grace: Duration,
    /// `upstream.addressMap`.
    pub address_map: AddressMap,
    /// `upstream.reconnectBackoff*`.
    pub backoff: BackoffConfig,
    /// `upstream.tls.*`, where the brokers are spoken to by TLS.
    pub upstream_tls: Option<UpstreamTls>,
    /// `upstream.sasl.*`, where hapax logs in to the brokers itself.
    pub upstream_sasl: Option<UpstreamSasl>,
    /// `listen.tls.*`, where clients speak TLS.
    pub listen_tls: Option<ListenTls>,
    /// `listen.sasl.*`, where clients authenticate to hapax.
    pub listen_sasl: Option<ListenSasl>,
    /// `allowOpenListener`: whether clients that prove nothing may use the
    /// credentials of hapax from other machines.
    pub allow_open_listener: bool,
    /// `sequence.mode`.
    pub mode: Mode,
    /// `sequence.*`.
    pub sequence: SequenceConfig,
    /// `policies`: what producers have to do, by topic.
    pub policies: Policies,
    /// `limits.*`.
    pub limits: Limits,
    /// `memory.limit`: bytes of memory that the process may use.
    pub memory_limit: usize,
    /// `timeouts.*`.
    pub timeouts: Timeouts,
    /// `drain.*`.
    pub drain: DrainConfig,
    /// `startup.requireUpstream`: whether a broker must have been reached
    /// before hapax counts as started.
    pub require_upstream: bool,
    /// `metrics.maxTopics`: topics that have series of their own.
    pub metrics_max_topics: usize,
    /// `admin.*`.
    pub admin: AdminConfig,
    /// `state.*`.
    pub state: StateConfig,
    /// Worker threads, at least one.
    pub workers: usize,
    /// `log.*`.
    pub log: LogConfig,
    /// What all of it was made from, to show.
    pub settings: Settings,
}

/// `upstream.reconnectBackoff*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackoffConfig {
    /// How long a broker is left alone after its first failure; zero is not at all.
    pub first: Duration,
    /// How long at most.
    pub max: Duration,
}

/// `upstream.tls.*`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpstreamTls {
    /// The CAs of the brokers; those of the system without it.
    pub ca_file: Option<PathBuf>,
    /// What hapax shows to the brokers.
    pub certificate: Option<CertificateFiles>,
    /// The name of all brokers.
    pub server_name: Option<String>,
}

/// `listen.tls.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenTls {
    /// What hapax shows to clients.
    pub certificate: CertificateFiles,
    /// The CAs of clients, which then have to show a certificate.
    pub client_ca_file: Option<PathBuf>,
}

/// `listen.sasl.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenSasl {
    /// The file of users.
    pub users_file: PathBuf,
    /// How they may prove who they are; at least one way.
    pub mechanisms: Vec<ClientMechanism>,
}

/// How a client proves to hapax who it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub enum ClientMechanism {
    /// It shows its password.
    #[value(name = "PLAIN")]
    Plain,
    /// It proves that it knows its password, and shows nothing of it.
    #[value(name = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same by a longer hash.
    #[value(name = "SCRAM-SHA-512")]
    ScramSha512,
}

impl ClientMechanism {
    /// As clients call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Where a certificate is, and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate, and those between it and a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// How far hapax may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Mode {
    /// Count everything, change no produce request.
    Observe,
    /// Answer retries of acknowledged batches.
    #[default]
    Absorb,
    /// The same, and refuse what is proven wrong or against a policy.
    Enforce,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "observe",
            Self::Absorb => "absorb",
            Self::Enforce => "enforce",
        })
    }
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
    /// Whether the log is read back where the broker may have forgotten.
    pub resolve: bool,
    /// How long that may take for one request.
    pub resolve_timeout: Duration,
    /// Bytes of the log that may be read for one request.
    pub resolve_bytes: usize,
    /// How old records are whose producer the brokers forget.
    pub broker_producer_expiry: Duration,
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
    /// Connections that read a log back at once.
    pub resolves: usize,
    /// Unanswered requests of one connection.
    pub in_flight: usize,
    /// Bytes of unfinished requests that are collected, of all connections.
    pub collected_bytes: usize,
}

/// `timeouts.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// A client's first request.
    pub first_request: Duration,
    /// Silence on both sides with nothing open; zero is for ever.
    pub idle: Duration,
    /// A request that arrives at less than the least pace; zero is for ever.
    pub request: Duration,
    /// Silence before TCP asks for the peer; zero is never.
    pub keep_alive: Duration,
    /// Reaching a broker.
    pub connect: Duration,
    /// A TLS handshake.
    pub tls: Duration,
    /// A client's authentication, logging in to a broker, and getting a token
    /// for that.
    pub sasl: Duration,
    /// A broker's answer, on top of the request's own timeout.
    pub upstream_response: Duration,
}

/// `drain.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrainConfig {
    /// What is served to its end.
    pub until: DrainUntil,
    /// How long all of it may take.
    pub timeout: Duration,
    /// How long everything goes on as before, at least.
    pub min_delay: Duration,
}

/// What a drain serves to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum DrainUntil {
    /// Connections, new ones too, until clients hang up: for a sidecar.
    #[default]
    Connections,
    /// Requests that have come; no connection is accepted any more: for a gateway.
    Requests,
}

/// What becomes of a broker whose port another one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Collisions {
    /// It takes the next port that is free, and keeps it.
    #[default]
    Move,
    /// It gets none, and the lower id has this one: so that replicas of a gateway agree.
    Refuse,
}

/// `admin.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminConfig {
    /// Where the admin HTTP server listens.
    pub listen: SocketAddr,
    /// Who may read more than metrics and probes.
    pub api: ApiAccess,
}

/// `state.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateConfig {
    /// Where state is kept over restarts, if it is.
    pub directory: Option<PathBuf>,
    /// How often it is written.
    pub interval: Duration,
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

impl Config {
    /// What makes no sense together. What one value means by itself was
    /// decided when it was parsed, and its range when it was set.
    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        self.check_ports(&mut conflicts);
        self.check_node_slots(&mut conflicts);
        conflicts.extend(self.upstream_conflict());
        conflicts.extend(self.open_listener());
        if let Some(host) = &self.advertised_host {
            if is_wildcard(host) {
                conflicts.push(Conflict::AdvertisedWildcard(host.clone()));
            }
            if host.replace(SLOT, "").contains(['{', '}']) {
                conflicts.push(Conflict::AdvertisedPlaceholder(host.clone()));
            }
        }
        conflicts
    }

    fn check_ports(&self, conflicts: &mut Vec<Conflict>) {
        let (first, last) = (*self.broker_ports.start(), *self.broker_ports.end());
        if first > last {
            conflicts.push(Conflict::NoBrokerPorts { first, last });
        }
        let mut taken = |key, port| {
            if self.broker_ports.contains(&port) {
                conflicts.push(Conflict::PortTaken {
                    key,
                    port,
                    first,
                    last,
                });
            }
        };
        taken("listen.bootstrap", self.listen.port());
        let admin = self.admin.listen;
        if !addresses_overlap(admin.ip(), self.listen.ip()) {
            return;
        }
        taken("admin.listen", admin.port());
        if admin.port() != 0 && admin.port() == self.listen.port() {
            conflicts.push(Conflict::SamePort(admin.port()));
        }
    }

    fn check_node_slots(&self, conflicts: &mut Vec<Conflict>) {
        let mut owners = BTreeMap::new();
        for (&node, &port) in &self.node_slots {
            if !self.broker_ports.contains(&port) {
                conflicts.push(Conflict::SlotOutside {
                    node,
                    port,
                    first: *self.broker_ports.start(),
                    last: *self.broker_ports.end(),
                });
            }
            if let Some(other) = owners.insert(port, node) {
                conflicts.push(Conflict::SlotShared { node, other, port });
            }
        }
    }

    /// Whoever reaches a listener is to a broker who hapax is. That is right
    /// within a machine or a pod, and elsewhere only for clients that have
    /// proven who they are.
    fn open_listener(&self) -> Option<Conflict> {
        let tls = self.upstream_tls.as_ref();
        let credentials = if tls.is_some_and(|tls| tls.certificate.is_some()) {
            "upstream.tls.certFile"
        } else if self.upstream_sasl.is_some() {
            "upstream.sasl.mechanism"
        } else {
            return None;
        };
        let local = self.listen.ip().to_canonical().is_loopback();
        let proven = self.listen_tls.as_ref();
        let proven = proven.is_some_and(|tls| tls.client_ca_file.is_some());
        let proven = proven || self.listen_sasl.is_some();
        (!local && !proven && !self.allow_open_listener).then_some(Conflict::OpenListener {
            listen: self.listen,
            credentials,
        })
    }

    /// Whether other machines may send passwords that whoever is on the way
    /// can read.
    #[must_use]
    pub fn passwords_in_the_clear(&self) -> bool {
        let sasl = self.listen_sasl.as_ref();
        let shown = sasl.is_some_and(|sasl| sasl.mechanisms.contains(&ClientMechanism::Plain));
        let local = self.listen.ip().to_canonical().is_loopback();
        shown && !local && self.listen_tls.is_none()
    }

    /// An upstream that is hapax itself would hand every connection back to
    /// hapax. What only a name resolves to is found when it is dialled.
    fn upstream_conflict(&self) -> Option<Conflict> {
        if self.upstream.is_empty() {
            return Some(Conflict::NoUpstream);
        }
        let own = |server: &&HostPort| {
            let port = server.port;
            let data = port == self.listen.port() || self.broker_ports.contains(&port);
            data && reaches(&server.host, self.listen.ip())
                || port == self.admin.listen.port() && reaches(&server.host, self.admin.listen.ip())
        };
        let own = self.upstream.iter().find(own)?;
        Some(Conflict::UpstreamIsSelf(own.clone()))
    }
}

/// Values that make no sense together, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Conflict {
    /// No bootstrap server.
    #[error(
        "no upstream: give HOST:PORT of the cluster with --upstream, HAPAX_UPSTREAM, or upstream.bootstrap in a --config file"
    )]
    NoUpstream,
    /// The upstream leads back.
    #[error(
        "upstream {0} is hapax itself: give the address of the cluster, or move hapax with listen.bootstrap, listen.brokerPorts or admin.listen"
    )]
    UpstreamIsSelf(HostPort),
    /// No port for any broker.
    #[error("listen.brokerPorts {first}-{last} is empty: give FIRST-LAST, such as 19093-19192")]
    NoBrokerPorts {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// A port that is a broker's too.
    #[error(
        "{key} has port {port}, which listen.brokerPorts {first}-{last} contains: move one of them"
    )]
    PortTaken {
        /// The configuration key.
        key: &'static str,
        /// Its port.
        port: u16,
        /// First broker port.
        first: u16,
        /// Last broker port.
        last: u16,
    },
    /// Clients and admin on one port.
    #[error("listen.bootstrap and admin.listen both have port {0}: move one of them")]
    SamePort(u16),
    /// A slot that is no broker port.
    #[error(
        "listen.nodeSlots gives node {node} port {port}, which is not in listen.brokerPorts {first}-{last}: widen them or choose a port in it"
    )]
    SlotOutside {
        /// The node id.
        node: i32,
        /// Its port.
        port: u16,
        /// First broker port.
        first: u16,
        /// Last broker port.
        last: u16,
    },
    /// Two nodes on one port.
    #[error("listen.nodeSlots gives port {port} to nodes {other} and {node}: one port each")]
    SlotShared {
        /// The node id.
        node: i32,
        /// The other node id.
        other: i32,
        /// Their port.
        port: u16,
    },
    /// Two ports for one node.
    #[error("listen.nodeSlots names node {0} twice: one port each")]
    SlotTwice(i32),
    /// Two ways to one address.
    #[error("upstream.addressMap names {0} twice: one address each")]
    MappedTwice(Advertised),
    /// Half of what belongs together.
    #[error("{given} is set, and {missing} is not: {advice}")]
    Incomplete {
        /// The key that is set.
        given: &'static str,
        /// The key that is not.
        missing: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Credentials for everyone.
    #[error(
        "hapax listens at {listen}, which other machines reach, and would serve each of them with its own credentials ({credentials}): listen at 127.0.0.1, ask clients for a certificate (listen.tls.clientCaFile) or for a user (listen.sasl.usersFile), or say that it is meant by allowOpenListener"
    )]
    OpenListener {
        /// Where it listens.
        listen: SocketAddr,
        /// The key of what it shows to brokers.
        credentials: &'static str,
    },
    /// Two ways to say one thing.
    #[error("{one} and {other} are both set: leave one of them out")]
    Both {
        /// A key.
        one: &'static str,
        /// Another one.
        other: &'static str,
    },
    /// What another choice has no use for.
    #[error(
        "{given} is set, and upstream.sasl.mechanism is {mechanism}, which has no use for it: {advice}"
    )]
    Unused {
        /// The key that is set.
        given: &'static str,
        /// The mechanism.
        mechanism: Mechanism,
        /// What to do.
        advice: &'static str,
    },
    /// A URL that tokens cannot be got at.
    #[error(
        "upstream.sasl.oauth.tokenEndpoint is {0}: give https://HOST/PATH, or http://HOST:PORT/PATH within a machine"
    )]
    NoEndpoint(String),
    /// An address nobody can connect to.
    #[error(
        "listen.advertisedHost is {0}, which no client can connect to: give the name or address that clients use, or leave it out"
    )]
    AdvertisedWildcard(String),
    /// A placeholder that stands for nothing.
    #[error("listen.advertisedHost is {0}: {{slot}} is all that may be in braces")]
    AdvertisedPlaceholder(String),
}

impl Conflict {
    /// The keys that it is between, to say who set them.
    fn keys(&self) -> &[&'static str] {
        match self {
            Self::NoUpstream => &["upstream.bootstrap"],
            Self::UpstreamIsSelf(_) => &[
                "upstream.bootstrap",
                "listen.bootstrap",
                "listen.brokerPorts",
                "admin.listen",
            ],
            Self::NoBrokerPorts { .. } => &["listen.brokerPorts"],
            Self::PortTaken { key, .. } if *key == "admin.listen" => {
                &["admin.listen", "listen.brokerPorts"]
            }
            Self::PortTaken { .. } => &["listen.bootstrap", "listen.brokerPorts"],
            Self::SamePort(_) => &["listen.bootstrap", "admin.listen"],
            Self::SlotOutside { .. } => &["listen.nodeSlots", "listen.brokerPorts"],
            Self::SlotShared { .. } | Self::SlotTwice(_) => &["listen.nodeSlots"],
            Self::MappedTwice(_) => &["upstream.addressMap"],
            Self::OpenListener { credentials, .. } if *credentials == "upstream.tls.certFile" => {
                &["listen.bootstrap", "upstream.tls.certFile"]
            }
            Self::OpenListener { .. } => &["listen.bootstrap", "upstream.sasl.mechanism"],
            Self::Both { one, .. } => std::slice::from_ref(one),
            Self::Unused { given, .. } => std::slice::from_ref(given),
            Self::NoEndpoint(_) => &["upstream.sasl.oauth.tokenEndpoint"],
            Self::Incomplete { given, .. } => std::slice::from_ref(given),
            Self::AdvertisedWildcard(_) | Self::AdvertisedPlaceholder(_) => {
                &["listen.advertisedHost"]
            }
        }
    }
}

/// What stands for a slot in `listen.advertisedHost`.
const SLOT: &str = "{slot}";

/// The host that clients are told for a slot of the ports for brokers; without
/// one, which no broker should ask for, it is that of the bootstrap port.
#[must_use]
pub fn told_host(advertised: &str, slot: Option<u16>) -> Cow<'_, str> {
    if !advertised.contains(SLOT) {
        return advertised.into();
    }
    let slot = slot.map_or_else(|| "bootstrap".to_owned(), |slot| slot.to_string());
    advertised.replace(SLOT, &slot).into()
}

/// Whether a connection to `host` can end at a listener on `bound`.
fn reaches(host: &str, bound: IpAddr) -> bool {
    let bound = bound.to_canonical();
    let here = bound.is_unspecified() || bound.is_loopback();
    if host.eq_ignore_ascii_case("localhost") {
        return here;
    }
    match host.parse::<IpAddr>().map(|host| host.to_canonical()) {
        Ok(host) if host.is_unspecified() => here,
        Ok(host) => host == bound || bound.is_unspecified() && host.is_loopback(),
        Err(_) => false,
    }
}

fn addresses_overlap(one: IpAddr, other: IpAddr) -> bool {
    one == other || one.is_unspecified() || other.is_unspecified()
}

fn is_wildcard(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.is_empty() || bare == "*" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_a_host_of_its_own_where_the_template_says_so() {
        assert_eq!(told_host("hapax", Some(3)), "hapax");
        assert_eq!(told_host("b-{slot}.hapax", Some(0)), "b-0.hapax");
        assert_eq!(told_host("b-{slot}.hapax", None), "b-bootstrap.hapax");
    }

    #[test]
    fn a_listener_is_reached_by_its_own_names_only() {
        for (host, bound, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("localhost", "127.0.0.1", true),
            ("localhost", "::1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("::1", "::", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("127.0.0.2", "127.0.0.1", false),
            ("10.0.0.1", "127.0.0.1", false),
            ("localhost", "10.0.0.1", false),
            ("kafka", "0.0.0.0", false),
        ] {
            assert_eq!(
                reaches(host, bound.parse().unwrap()),
                expected,
                "{host} {bound}"
            );
        }
    }
}
