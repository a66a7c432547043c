//! What one value means: its text, parsed.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::Conflict;
use crate::policy::BadPolicy;

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
    pub fn new(mappings: Vec<Mapping>) -> Result<Self, Conflict> {
        for (at, mapping) in mappings.iter().enumerate() {
            let same = |earlier: &Mapping| {
                earlier.advertised.port == mapping.advertised.port
                    && earlier.is_of_host(&mapping.advertised.host)
            };
            if mappings[..at].iter().any(same) {
                return Err(Conflict::MappedTwice(mapping.advertised.clone()));
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
    /// What a broker advertises.
    pub advertised: Advertised,
    /// Where to connect for it.
    pub reachable: Advertised,
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

/// A name or an address that clients can be told; none when it is empty.
pub fn parse_host(text: &str) -> Result<Option<String>, ParseError> {
    let text = text.trim();
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let bad = |c: char| c.is_whitespace() || "/,:=".contains(c);
    if bare.parse::<IpAddr>().is_err() && bare.contains(bad) {
        return Err(ParseError::BareHost(text.to_owned()));
    }
    Ok(Some(text.to_owned()).filter(|host| !host.is_empty()))
}

/// Words on one line; none when there are none.
pub fn parse_text(text: &str) -> Result<Option<String>, ParseError> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        return Err(ParseError::Text(text.to_owned()));
    }
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// A path; none when it is empty.
pub fn parse_path(text: &str) -> Option<PathBuf> {
    Some(text.trim())
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
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

/// A level, or directives, as `log.level` keeps it.
pub fn parse_level(text: &str) -> Result<String, ParseError> {
    let bad = |_| ParseError::Level(text.to_owned());
    let known = |part: &&str| {
        let level = part.rsplit('=').next().unwrap_or(part).to_ascii_lowercase();
        LEVELS.contains(&&*level)
    };
    match text.split(',').find(|part| !known(part)) {
        Some(_) => Err(ParseError::Level(text.to_owned())),
        None => EnvFilter::builder()
            .parse(text)
            .map(|_| text.to_owned())
            .map_err(bad),
    }
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
    /// More than a host.
    #[error("`{0}` is no host: give a name or an address, without port and scheme")]
    BareHost(String),
    /// More than words on one line.
    #[error("`{0}` has more than words on one line")]
    Text(String),
    /// A mapping that is none.
    #[error("`{0}` maps nothing: write HOST:PORT=HOST:PORT, or HOST=HOST for every port")]
    Mapping(String),
    /// A policy that is none.
    #[error("{0}")]
    Policy(#[from] BadPolicy),
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
    /// A level that does not exist.
    #[error(
        "`{0}` is no log level: write error, warn, info, debug or trace, or directives such as info,hapax::session=debug"
    )]
    Level(String),
    /// Something that is no number.
    #[error("`{0}` is no number: give {1}")]
    Count(String, String),
    /// Bytes that are no text.
    #[error("`{0}` is not UTF-8")]
    NotUtf8(String),
    /// Neither true nor false.
    #[error("`{0}` is neither true nor false")]
    Switch(String),
    /// A choice that there is not.
    #[error("there is no `{text}`: give {expected}{}", nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    Choice {
        /// What was given.
        text: String,
        /// What there is.
        expected: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
}

/// A year: longer waits are typing errors, and no sum of clocks overflows.
const MILLIS_MAX: u64 = 366 * 24 * 3_600_000;
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A text on one line, without what moves a terminal's cursor: what a client
/// calls itself, or a name in a file, may be anything.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_unicode());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

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

    #[test]
    fn a_host_has_no_port() {
        for text in ["kafka", "10.0.0.1", "::1", "[::1]", "[::]", "*"] {
            assert_eq!(parse_host(text).unwrap().as_deref(), Some(text));
        }
        assert_eq!(parse_host(" "), Ok(None));
        for text in ["kafka:19092", "[::1]:1", "http://kafka", "a b", "a,b"] {
            assert!(parse_host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_is_kept_as_it_is() {
        let path = parse_path(" /var/lib/hapax state ").unwrap();
        assert_eq!(path, PathBuf::from("/var/lib/hapax state"));
        assert_eq!(parse_path(" "), None);
    }

    #[test]
    fn a_level_is_one_or_directives() {
        assert_eq!(
            parse_level("loud"),
            Err(ParseError::Level("loud".to_owned()))
        );
        assert!(parse_level("warn,hapax::session=debug").is_ok());
        assert!(parse_level("INFO").is_ok());
    }
}
