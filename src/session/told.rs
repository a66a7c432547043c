//! What was told lately, so that a client which tries again and again, or a
//! broker that is gone, does not fill the log.

use crate::ids::{NodeId, TopicKey};
use crate::wire::frame::Stranger;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the same is told.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// How much is remembered; what is beyond it is counted by metrics alone.
const KEYS_MAX: usize = 1024;
/// How often anything is told in [`TELL_EVERY`]: clients may have as many
/// addresses as they like.
const LINES_MAX: u32 = 200;

/// What may repeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Matter {
    /// A broker, or the bootstrap servers, cannot be reached.
    Unreachable(Option<NodeId>),
    /// A broker ended a connection with requests open, or said nothing.
    BrokerLost(Option<NodeId>),
    /// What a broker says cannot be understood.
    BrokerSpeech(Option<NodeId>),
    /// A broker speaks another protocol.
    BrokerStranger(Option<NodeId>),
    /// What a client says cannot be understood.
    ClientSpeech(IpAddr),
    /// A client speaks another protocol.
    ClientStranger(IpAddr, Stranger),
    /// There is no TLS with a client.
    ClientTls(IpAddr),
    /// A client wants to log in where hapax does that itself.
    ClientLogin(IpAddr),
    /// hapax is not logged in any more.
    Login(Option<NodeId>),
    /// A client does not authenticate.
    ClientSasl(IpAddr),
    /// A client does not do what a policy of the topic requires.
    Policy(IpAddr, Option<TopicKey>),
    /// There are too many connections.
    Full,
    /// There is no memory for a connection, or for what it sends.
    NoMemory,
    /// The system does not let a connection be served.
    NotTakenOver,
    /// No port is left for a broker.
    NoPort,
    /// The upstream is a cluster that it was not before.
    OtherCluster,
}

/// What was told lately.
#[derive(Default)]
pub(super) struct Told(Mutex<Tellings>);

#[derive(Default)]
struct Tellings {
    of: HashMap<Matter, Telling>,
    /// When the time began in which no more than [`LINES_MAX`] are told, and
    /// how many were.
    all: Option<(Instant, u32)>,
}

struct Telling {
    /// When the time began in which it may be told a few times.
    since: Instant,
    /// How often it was told in that time.
    times: u32,
    /// What happened since it was told last.
    left_out: u64,
}

impl Matter {
    /// How often it may be told in [`TELL_EVERY`]: more than once where one
    /// connection's story may differ from the next one's.
    fn times_max(self) -> u32 {
        match self {
            Self::Unreachable(_)
            | Self::BrokerStranger(_)
            | Self::ClientStranger(..)
            | Self::Full
            | Self::NoMemory
            | Self::NotTakenOver
            | Self::OtherCluster => 1,
            Self::BrokerLost(_)
            | Self::Policy(..)
            | Self::ClientTls(_)
            | Self::ClientSasl(_)
            | Self::ClientLogin(_)
            | Self::Login(_) => 3,
            Self::BrokerSpeech(_) | Self::ClientSpeech(_) | Self::NoPort => 10,
        }
    }
}

impl Told {
    /// Whether it is time to tell of something: then how often it has happened
    /// since it was told last, this time not counted.
    pub(super) fn may_tell(&self, matter: Matter, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Tellings { of, all } = &mut *told;
        let passed = |since: Instant| now.saturating_duration_since(since) >= TELL_EVERY;
        let over = |t: &Telling| passed(t.since);
        if of.len() >= KEYS_MAX && !of.contains_key(&matter) {
            of.retain(|_, telling| !over(telling));
            if of.len() >= KEYS_MAX {
                return None;
            }
        }
        let (_, lines) = match all {
            Some(all) if !passed(all.0) => all,
            all => all.insert((now, 0)),
        };
        let telling = of.entry(matter).or_insert(Telling {
            since: now,
            times: 0,
            left_out: 0,
        });
        if over(telling) {
            telling.since = now;
            telling.times = 0;
        }
        if telling.times >= matter.times_max() || *lines >= LINES_MAX {
            telling.left_out += 1;
            return None;
        }
        telling.times += 1;
        *lines += 1;
        Some(std::mem::take(&mut telling.left_out))
    }
}

/// How often something was left out, as a field that is there only when it was.
pub(super) fn several(left_out: u64) -> Option<u64> {
    (left_out > 0).then_some(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_failures_a_second_are_one_line_in_five_seconds_with_their_number() {
        let told = Told::default();
        let start = Instant::now();
        let matter = Matter::Unreachable(None);
        let lines: Vec<u64> = (0..1000)
            .filter_map(|n| told.may_tell(matter, start + Duration::from_millis(10 * n)))
            .collect();
        assert_eq!(lines, [0, 499]);
        let client = Matter::ClientSpeech(IpAddr::from([127, 0, 0, 1]));
        let told_of: Vec<u64> = (0..1000)
            .filter_map(|n| told.may_tell(client, start + Duration::from_millis(10 * n)))
            .collect();
        assert_eq!(told_of.len(), 20);
        assert_eq!(told_of[10], 490);
        let other = Matter::Unreachable(NodeId::from_wire(1));
        assert_eq!(told.may_tell(other, start), Some(0));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_makes_room_again() {
        let told = Told::default();
        let start = Instant::now();
        let client = |n: u32| Matter::ClientSpeech(IpAddr::from(n.to_be_bytes()));
        let lines = (0..5000).filter_map(|n| told.may_tell(client(n), start));
        assert_eq!(lines.count(), LINES_MAX as usize);
        assert_eq!(told.0.lock().unwrap().of.len(), KEYS_MAX);
        assert_eq!(told.may_tell(client(9999), start), None);
        assert_eq!(told.may_tell(client(9999), start + TELL_EVERY), Some(0));
    }
}
