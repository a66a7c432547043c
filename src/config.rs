//! What was typed, turned into what it means and validated once.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
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

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "observe",
            Self::Absorb => "absorb",
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
    /// Bytes of unfinished requests that are collected, of all connections.
    pub collected_bytes: usize,
}

/// `timeouts.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// A client's first request.
    pub first_request: Duration,
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

impl Config {
    /// Whether the values make sense together. What one value means by itself
    /// was decided when it was parsed.
    pub fn validate(self) -> Result<Self, ConfigError> {
        self.check_ranges()?;
        self.check_ports()?;
        self.check_node_slots()?;
        self.check_upstream()?;
        if let Some(host) = &self.advertised_host
            && is_wildcard(host)
        {
            return Err(ConfigError::AdvertisedWildcard(host.clone()));
        }
        Ok(self)
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let counts = [
            (
                "sequence.windowBatches",
                self.sequence.window_batches,
                1..=1024,
            ),
            (
                "sequence.maxWindows",
                self.sequence.max_windows,
                1..=100_000_000,
            ),
            ("limits.connections", self.limits.connections, 1..=1_000_000),
            (
                "limits.frameBytes",
                self.limits.frame_bytes,
                1024..=0x7fff_ffff,
            ),
            ("limits.orphans", self.limits.orphans, 0..=1_000_000),
            ("limits.inFlight", self.limits.in_flight, 1..=1_000_000),
            (
                "limits.collectedBytes",
                self.limits.collected_bytes,
                0..=usize::MAX,
            ),
            ("metrics.maxTopics", self.metrics_max_topics, 0..=10_000),
            ("workers", self.workers, 1..=1024),
        ];
        for (key, value, range) in counts {
            if !range.contains(&value) {
                return Err(ConfigError::OutOfRange {
                    key,
                    value,
                    least: *range.start(),
                    most: *range.end(),
                });
            }
        }
        let waits = [
            ("sequence.ttl", self.sequence.ttl),
            ("timeouts.firstRequest", self.timeouts.first_request),
            ("timeouts.connect", self.timeouts.connect),
            ("timeouts.upstreamResponse", self.timeouts.upstream_response),
        ];
        match waits.iter().find(|(_, wait)| wait.is_zero()) {
            Some((key, _)) => Err(ConfigError::NoTime(key)),
            None => Ok(()),
        }
    }

    fn check_ports(&self) -> Result<(), ConfigError> {
        let (first, last) = (*self.broker_ports.start(), *self.broker_ports.end());
        if first == 0 || first > last {
            return Err(ConfigError::NoBrokerPorts { first, last });
        }
        if self.broker_ports.contains(&self.listen.port()) {
            return Err(ConfigError::PortTaken {
                key: "listen",
                port: self.listen.port(),
                first,
                last,
            });
        }
        let admin = self.admin.listen;
        if !addresses_overlap(admin.ip(), self.listen.ip()) {
            return Ok(());
        }
        if self.broker_ports.contains(&admin.port()) {
            return Err(ConfigError::PortTaken {
                key: "admin.listen",
                port: admin.port(),
                first,
                last,
            });
        }
        if admin.port() != 0 && admin.port() == self.listen.port() {
            return Err(ConfigError::SamePort(admin.port()));
        }
        Ok(())
    }

    fn check_node_slots(&self) -> Result<(), ConfigError> {
        let mut owners = BTreeMap::new();
        for (&node, &port) in &self.node_slots {
            if !self.broker_ports.contains(&port) {
                return Err(ConfigError::SlotOutside {
                    node,
                    port,
                    first: *self.broker_ports.start(),
                    last: *self.broker_ports.end(),
                });
            }
            if let Some(other) = owners.insert(port, node) {
                return Err(ConfigError::SlotShared { node, other, port });
            }
        }
        Ok(())
    }

    /// An upstream that is hapax itself would hand every connection back to
    /// hapax. What only a name resolves to is found when it is dialled.
    fn check_upstream(&self) -> Result<(), ConfigError> {
        if self.upstream.is_empty() {
            return Err(ConfigError::NoUpstream);
        }
        let own = |server: &&HostPort| {
            let port = server.port;
            let data = port == self.listen.port() || self.broker_ports.contains(&port);
            data && reaches(&server.host, self.listen.ip())
                || port == self.admin.listen.port() && reaches(&server.host, self.admin.listen.ip())
        };
        if let Some(server) = self.upstream.iter().find(own) {
            return Err(ConfigError::UpstreamIsSelf(server.clone()));
        }
        Ok(())
    }
}

/// What is wrong with a configuration, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// No bootstrap server.
    #[error("upstream names no server: give at least one HOST:PORT of the cluster")]
    NoUpstream,
    /// The upstream leads back.
    #[error(
        "upstream {0} is hapax itself: give the address of the cluster, or move hapax with listen, broker-ports and admin-listen"
    )]
    UpstreamIsSelf(HostPort),
    /// A number out of range.
    #[error("{key} is {value}: give a number from {least} to {most}")]
    OutOfRange {
        /// The configuration key.
        key: &'static str,
        /// What it was.
        value: usize,
        /// Smallest number allowed.
        least: usize,
        /// Largest number allowed.
        most: usize,
    },
    /// A time of nothing.
    #[error("{0} is 0: give a time such as 10s")]
    NoTime(&'static str),
    /// No port for any broker.
    #[error("broker-ports {first}-{last} is empty: give FIRST-LAST, such as 19093-19192")]
    NoBrokerPorts {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// A port that is a broker's too.
    #[error("{key} has port {port}, which broker-ports {first}-{last} contains: move one of them")]
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
    #[error("listen and admin.listen both have port {0}: move one of them")]
    SamePort(u16),
    /// A slot that is no broker port.
    #[error(
        "listen.nodeSlots gives node {node} port {port}, which is not in broker-ports {first}-{last}: widen broker-ports or choose a port in it"
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
    /// An address nobody can connect to.
    #[error(
        "listen.advertisedHost is {0}, which no client can connect to: give the name or address that clients use, or leave it out"
    )]
    AdvertisedWildcard(String),
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

/// A host and a port; the host has no brackets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    /// A name or an address, not empty.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let Advertised { host, port } = text.parse()?;
        let Some(port) = port else {
            return Err(ParseError::NoPort(text.to_owned()));
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host(f, &self.host)?;
        write!(f, ":{}", self.port)
    }
}

/// A host, with or without a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertised {
    /// A name or an address, without brackets, not empty.
    pub host: String,
    /// The port, never 0; `None` stands for every port.
    pub port: Option<u16>,
}

impl FromStr for Advertised {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        if text.contains("://") {
            return Err(ParseError::Scheme(text.to_owned()));
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let bad = || ParseError::Ipv6(text.to_owned());
                let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
                host.parse::<Ipv6Addr>().map_err(|_| bad())?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(bad()),
                }
            }
            None if text.matches(':').count() > 1 => {
                return Err(ParseError::Ipv6(text.to_owned()));
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/,=".contains(c)) {
            return Err(ParseError::Host(text.to_owned()));
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.map(parse_port).transpose()?,
        })
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host(f, &self.host)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn write_host(f: &mut fmt::Formatter<'_>, host: &str) -> fmt::Result {
    if host.contains(':') {
        write!(f, "[{host}]")
    } else {
        f.write_str(host)
    }
}

/// Advertised addresses that cannot be reached from here, and what can.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressMap(Vec<Mapping>);

impl AddressMap {
    /// A map in which each advertised address occurs once.
    pub fn new(mappings: Vec<Mapping>) -> Result<Self, ConfigError> {
        for (at, mapping) in mappings.iter().enumerate() {
            let same = |earlier: &Mapping| {
                earlier.advertised.port == mapping.advertised.port
                    && earlier.is_of_host(&mapping.advertised.host)
            };
            if mappings[..at].iter().any(same) {
                return Err(ConfigError::MappedTwice(mapping.advertised.clone()));
            }
        }
        Ok(Self(mappings))
    }

    /// Where to connect for an advertised address: host and port as mapped,
    /// else the host as mapped, else as advertised.
    pub fn reach(&self, host: &str, port: u16) -> (String, u16) {
        let of_host = || self.0.iter().filter(|mapping| mapping.is_of_host(host));
        let found = of_host()
            .find(|mapping| mapping.advertised.port == Some(port))
            .or_else(|| of_host().find(|mapping| mapping.advertised.port.is_none()));
        match found {
            Some(Mapping { reachable, .. }) => {
                (reachable.host.clone(), reachable.port.unwrap_or(port))
            }
            None => (host.to_owned(), port),
        }
    }
}

/// One entry of an [`AddressMap`]: both sides have a port, or none has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    advertised: Advertised,
    reachable: Advertised,
}

impl Mapping {
    fn is_of_host(&self, host: &str) -> bool {
        self.advertised.host.eq_ignore_ascii_case(host)
    }
}

impl FromStr for Mapping {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let unpaired = || ParseError::Mapping(text.to_owned());
        let (advertised, reachable) = text.split_once('=').ok_or_else(unpaired)?;
        let (advertised, reachable): (Advertised, Advertised) =
            (advertised.parse()?, reachable.parse()?);
        if advertised.port.is_some() != reachable.port.is_some() {
            return Err(unpaired());
        }
        Ok(Self {
            advertised,
            reachable,
        })
    }
}

/// `ID=PORT`, as `listen.nodeSlots` has them.
pub fn parse_node_slot(text: &str) -> Result<(i32, u16), ParseError> {
    let bad = || ParseError::NodeSlot(text.to_owned());
    let (node, port) = text.trim().split_once('=').ok_or_else(bad)?;
    let node: i32 = node.parse().map_err(|_| bad())?;
    if node < 0 {
        return Err(bad());
    }
    Ok((node, parse_port(port)?))
}

/// `FIRST-LAST`, or one port.
pub fn parse_port_range(text: &str) -> Result<RangeInclusive<u16>, ParseError> {
    let (first, last) = text.trim().split_once('-').unwrap_or((text, text));
    Ok(parse_port(first)?..=parse_port(last)?)
}

/// An address to listen on; `localhost` is 127.0.0.1, port 0 is any free one.
pub fn parse_listen(text: &str) -> Result<SocketAddr, ParseError> {
    let text = text.trim();
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let bad = |_| ParseError::Listen(text.to_owned());
    address.parse().map_err(bad)
}

/// A whole number and its unit: ms, s, m or h; a 0 needs none.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let bad = || ParseError::Duration(text.to_owned());
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if number == 0 => 0,
        _ => return Err(bad()),
    };
    let millis = number.checked_mul(millis).filter(|ms| *ms <= MILLIS_MAX);
    millis.map(Duration::from_millis).ok_or_else(bad)
}

fn parse_port(text: &str) -> Result<u16, ParseError> {
    match text.trim().parse() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(ParseError::Port(text.to_owned())),
    }
}

/// A value that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// An address without its port.
    #[error("`{0}` has no port: write HOST:PORT, such as kafka:9092")]
    NoPort(String),
    /// Something that is no port.
    #[error("`{0}` is no port: write a number from 1 to 65535")]
    Port(String),
    /// A URL.
    #[error("`{0}` is a URL: leave out the scheme and write HOST:PORT")]
    Scheme(String),
    /// An IPv6 address not in brackets, or none in them.
    #[error("`{0}` is no address: write an IPv6 address in brackets, such as [::1]:9092")]
    Ipv6(String),
    /// An empty or impossible host.
    #[error("`{0}` has no valid host: write a name or an address")]
    Host(String),
    /// A mapping that is none.
    #[error("`{0}` maps nothing: write HOST:PORT=HOST:PORT, or HOST=HOST for every port")]
    Mapping(String),
    /// A node slot that is none.
    #[error("`{0}` is no node slot: write ID=PORT, such as 1=19093")]
    NodeSlot(String),
    /// An address that cannot be bound.
    #[error(
        "`{0}` is no address to listen on: write ADDRESS:PORT, such as 127.0.0.1:19092 or [::]:19092"
    )]
    Listen(String),
    /// A time without its unit.
    #[error("`{0}` is no time: write a whole number and ms, s, m or h, such as 5s")]
    Duration(String),
}

/// A year: longer waits are typing errors, and no sum of clocks overflows.
const MILLIS_MAX: u64 = 366 * 24 * 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn a_duration_needs_its_unit() {
        for (text, expected) in [
            ("300ms", Some(Duration::from_millis(300))),
            ("5s", seconds(5)),
            (" 10m ", seconds(600)),
            ("26h", seconds(93_600)),
            ("0", seconds(0)),
            ("5", None),
            ("", None),
            ("s", None),
            ("-5s", None),
            ("1.5s", None),
            ("5 s", None),
            ("99999999999999999999s", None),
            ("99999999h", None),
        ] {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_server_is_a_host_and_a_port() {
        let parse = |text: &str| text.parse::<HostPort>().map(|server| server.to_string());
        assert_eq!(parse("kafka:9092").unwrap(), "kafka:9092");
        assert_eq!(parse("[::1]:9092").unwrap(), "[::1]:9092");
        for text in [
            "kafka",
            "kafka:",
            "kafka:0",
            "kafka:65536",
            ":9092",
            "::1:9092",
            "[::1]",
            "[x]:1",
            "kafka:9092/",
            "a b:1",
            "PLAINTEXT://kafka:9092",
            "[::1]9092",
            "",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains('`') && error.contains("write"), "{error}");
        }
    }

    #[test]
    fn an_advertised_address_is_reached_as_mapped() {
        let map = |mappings: &[&str]| {
            AddressMap::new(mappings.iter().map(|m| m.parse().unwrap()).collect())
        };
        let both = map(&["kafka-0.svc:9092=localhost:30092", "KAFKA-0.svc=10.0.0.1"]).unwrap();
        for (host, port, expected) in [
            ("kafka-0.svc", 9092, ("localhost", 30092)),
            ("Kafka-0.SVC", 9093, ("10.0.0.1", 9093)),
            ("kafka-1.svc", 9092, ("kafka-1.svc", 9092)),
        ] {
            assert_eq!(both.reach(host, port), (expected.0.to_owned(), expected.1));
        }
        assert!(map(&["a:1=b:1", "A:1=c:1"]).is_err());
        assert!("a:1=b".parse::<Mapping>().is_err());
        assert!("a".parse::<Mapping>().is_err());
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

    #[test]
    fn node_slots_and_ranges_are_read() {
        assert_eq!(parse_node_slot("70000=19093"), Ok((70_000, 19_093)));
        assert!(parse_node_slot("-1=19093").is_err());
        assert!(parse_node_slot("1").is_err());
        assert_eq!(parse_port_range("19093-19192"), Ok(19_093..=19_192));
        assert_eq!(parse_port_range("19093"), Ok(19_093..=19_093));
        assert!(parse_port_range("0-5").is_err());
        assert_eq!(
            parse_listen("localhost:0").unwrap().to_string(),
            "127.0.0.1:0"
        );
        assert!(parse_listen("kafka:1").is_err());
    }
}
