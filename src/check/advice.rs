//! What to do about each thing that can be wrong.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use crate::cli::UnknownVariable;
use crate::config::HostPort;
use crate::ports;
use crate::sasl::{self, TokenError};
use crate::snapshot::DirectoryError;
use crate::tls::{LoadError, Shown};
use crate::upstream::Broker;
use crate::users;
use crate::wire::frame::Stranger;

use super::examine::Fault;
use super::report::{Problem, Severity};

/// A bootstrap server that does not serve.
pub(super) fn of_server(address: &HostPort, fault: &Fault, severity: Severity) -> Problem {
    let advice = match fault {
        Fault::Resolve(_) => {
            "correct the name in --upstream; names of containers and pods resolve only inside their own network"
        }
        Fault::Refused => "start the broker, or give the port of one of its listeners",
        Fault::Timeout(_) | Fault::Connect(_) => {
            "look for a firewall, a network policy, or an address of another network"
        }
        Fault::Loop => "point --upstream at the brokers, not at hapax",
        Fault::Stranger(Stranger::Tls) => {
            "start hapax with --upstream-tls-enabled=true, and --upstream-tls-ca-file FILE where its CA is not one of the system's"
        }
        // The message says it.
        Fault::Tls(_) | Fault::Login(_) => "",
        Fault::TlsSilent(_) => {
            "look whether it is a listener for TLS: --upstream-tls-enabled=false for one that is not"
        }
        Fault::Plaintext => {
            "leave --upstream-tls-enabled out, or give the port of a listener that is SSL or SASL_SSL"
        }
        Fault::Stranger(_) => "give the port of a Kafka listener",
        Fault::HungUp | Fault::Reserved => {
            "give a listener that is for clients: this one is for the brokers among themselves, refuses this machine, or is no Kafka"
        }
        Fault::Silent(_) => {
            "look whether it is a Kafka listener and the broker is well; a port-forward whose pod is gone does this, too"
        }
        Fault::NotKafka(_) => "give the port of a Kafka listener",
        Fault::Controller => "give the port of a broker's listener for clients",
        Fault::OtherCluster => "name the servers of one cluster in --upstream",
    };
    Problem {
        code: fault.code(),
        severity,
        message: format!("{address} {fault}"),
        advice: advice.to_owned(),
    }
}

/// A bootstrap server of another cluster than the first one's.
pub(super) fn server_of_other_cluster(address: &HostPort) -> Problem {
    Problem {
        code: Fault::OtherCluster.code(),
        severity: Severity::Configuration,
        message: format!("{address} {}", Fault::OtherCluster),
        advice: "name the servers of one cluster in --upstream".to_owned(),
    }
}

/// A broker that cannot be reached as it advertises itself.
pub(super) struct OfBroker<'a> {
    pub(super) broker: &'a Broker,
    pub(super) upstream: &'a [HostPort],
    /// Whether it is the only one.
    pub(super) alone: bool,
    /// Whether the bootstrap server is on another machine.
    pub(super) elsewhere: bool,
}

impl OfBroker<'_> {
    pub(super) fn of(&self, fault: &Fault) -> Problem {
        let Broker {
            node,
            address,
            reached_at,
            ..
        } = self.broker;
        let mapped = address != reached_at;
        let message = match mapped {
            true => format!(
                "broker {node} advertises {address}, which --upstream-address-map makes {reached_at}, which {fault}"
            ),
            false => format!("broker {node} advertises {address}, which {fault}"),
        };
        let advice = match (mapped, fault) {
            // The message says it.
            (_, Fault::Tls(_) | Fault::Login(_)) => String::new(),
            (true, _) => {
                format!("correct the entry {address}={reached_at} of --upstream-address-map")
            }
            (false, Fault::Loop) => format!(
                "let Kafka advertise its own address (advertised.listeners): hapax gives clients its own instead; or {}",
                self.map_line()
            ),
            (false, _) if self.elsewhere && is_loopback_name(&address.host) => format!(
                "{} is this machine for whoever reads it: set advertised.listeners of the broker to a name that leads there; or {}",
                address.host,
                self.map_line()
            ),
            (false, _) => format!(
                "set advertised.listeners of the broker to what hapax can reach; or {}",
                self.map_line()
            ),
        };
        Problem {
            code: fault.code(),
            severity: Severity::Unreachable,
            message,
            advice,
        }
    }

    /// The option to type. The one broker of a cluster is where hapax bootstraps.
    fn map_line(&self) -> String {
        let reachable = match self.upstream {
            [only] if self.alone && *only != self.broker.address => only.to_string(),
            _ => "HOST:PORT".to_owned(),
        };
        format!(
            "start hapax with --upstream-address-map {}={reachable}",
            self.broker.address
        )
    }
}

fn is_loopback_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(super::is_local)
}

/// A broker that finds every port taken.
pub(super) fn no_port(broker: &Broker, range: &RangeInclusive<u16>) -> Problem {
    let (first, last) = (range.start(), range.end());
    Problem {
        code: "no_port",
        severity: Severity::Configuration,
        message: format!(
            "broker {} finds no port among {first}-{last}, so that clients cannot reach it",
            broker.node
        ),
        advice: "widen --broker-ports: it needs a port for each broker, and where --listen-slot-collisions is refuse one that no other id leads to, unless --listen-node-slots says which".to_owned(),
    }
}

/// A cluster without brokers.
pub(super) fn no_brokers() -> Problem {
    Problem {
        code: "no_brokers",
        severity: Severity::Unreachable,
        message: "the upstream lists no broker".to_owned(),
        advice: "it is still starting, or has lost its controller: look at its log".to_owned(),
    }
}

/// Brokers whose ids share a port of their own.
pub(super) fn shared_home(one: &Broker, other: &Broker) -> Problem {
    let (one, other) = (one.node, other.node);
    Problem {
        code: "shared_port",
        severity: Severity::Warning,
        message: format!(
            "the ids of brokers {one} and {other} lead to the same port: who is heard of first gets it, the other one the next that is free"
        ),
        advice: "where replicas of hapax must agree, fix the ports with --listen-node-slots or widen --broker-ports, and set --listen-slot-collisions refuse".to_owned(),
    }
}

/// Addresses, `which` of them, that hapax cannot listen on.
pub(super) fn taken(flag: &str, which: &str, first: SocketAddr, error: &io::Error) -> Problem {
    Problem {
        code: "port_taken",
        severity: Severity::Configuration,
        message: format!("hapax cannot listen on {which} ({error})"),
        advice: ports::advice(flag, first, error.kind()),
    }
}

/// A directory that state cannot be kept in.
pub(super) fn of_state(error: &DirectoryError) -> Problem {
    Problem {
        code: "state_dir",
        severity: Severity::Configuration,
        message: error.to_string(),
        // The message says it.
        advice: String::new(),
    }
}

/// Certificates, keys or CAs that cannot be used.
pub(super) fn of_tls(error: &LoadError) -> Problem {
    Problem {
        code: "tls",
        severity: Severity::Configuration,
        message: error.to_string(),
        // The message says it.
        advice: String::new(),
    }
}

/// Users that cannot be read.
pub(super) fn of_users(error: &users::LoadError) -> Problem {
    Problem {
        code: "users",
        severity: Severity::Configuration,
        message: error.to_string(),
        // The message says it.
        advice: String::new(),
    }
}

/// Brokers that want a login, of which clients' credentials fall short.
pub(super) fn nobody_logs_in(mechanisms: &[String]) -> Problem {
    Problem {
        code: "nobody_logs_in",
        severity: Severity::Unreachable,
        message: format!(
            "the brokers want SASL ({}), and clients' credentials end at hapax (listen.sasl.usersFile)",
            mechanisms.join(", ")
        ),
        advice: "set upstream.sasl.mechanism, by which hapax logs in to them itself".to_owned(),
    }
}

/// Credentials that cannot be used.
pub(super) fn of_credentials(error: &sasl::LoadError) -> Problem {
    Problem {
        code: "sasl",
        severity: Severity::Configuration,
        message: error.to_string(),
        // The message says it.
        advice: String::new(),
    }
}

/// An endpoint that gives no token, so that nobody can be logged in to.
pub(super) fn of_token(error: &TokenError) -> Problem {
    Problem {
        code: "sasl_token",
        severity: Severity::Unreachable,
        message: format!("upstream.sasl.oauth.tokenEndpoint {error}"),
        // The message says it.
        advice: String::new(),
    }
}

/// A secret that everyone on the way can read.
pub(super) fn secret_in_the_open(what: &str, instead: &str) -> Problem {
    Problem {
        code: "sasl_plaintext",
        severity: Severity::Warning,
        message: format!("{what} goes over the network in plaintext"),
        advice: instead.to_owned(),
    }
}

/// Certificates that are not valid now, or not for long.
pub(super) fn of_certificates(shown: Shown) -> Vec<Problem> {
    let now = SystemTime::now();
    let invalid = shown.invalid(now).map(|message| Problem {
        code: "tls_expired",
        severity: Severity::Configuration,
        message,
        advice: String::new(),
    });
    let ending = shown
        .iter()
        .filter(|(_, validity)| validity.at(now) == Some(true) && validity.ends_within(SOON, now));
    let ending = ending.map(|(key, validity)| Problem {
        code: "tls_expires",
        severity: Severity::Warning,
        message: format!(
            "the certificate of {key} is valid until {}",
            validity.last_day()
        ),
        advice: "put a new one there, which a running hapax takes without a restart".to_owned(),
    });
    invalid.chain(ending).collect()
}

/// When the end of a certificate is worth a word.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// A variable that nobody reads.
pub(super) fn unknown_variable(variable: &UnknownVariable) -> Problem {
    let UnknownVariable { name, nearest } = variable;
    let advice = match nearest {
        Some(nearest) => format!("did you mean {nearest}? correct the name, or unset it"),
        None => "correct the name (hapax run --help lists them), or unset it".to_owned(),
    };
    Problem {
        code: "unknown_variable",
        severity: Severity::Warning,
        message: format!("the environment variable {name} is none of hapax's"),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn advice(advertised: &str, reached_at: &str, upstream: &str, elsewhere: bool) -> String {
        let broker = Broker {
            node: NodeId::from_wire(1).unwrap(),
            address: advertised.parse().unwrap(),
            reached_at: reached_at.parse().unwrap(),
            port: None,
            vanished: false,
        };
        let of_broker = OfBroker {
            broker: &broker,
            upstream: &[upstream.parse().unwrap()],
            alone: true,
            elsewhere,
        };
        let problem = of_broker.of(&Fault::Refused);
        format!("{}: {}", problem.message, problem.advice)
    }

    #[test]
    fn localhost_of_another_machine_is_told_for_what_it_is() {
        let local = "localhost:9092";
        let said = advice(local, local, "kafka.example:9092", true);
        assert!(said.contains("localhost is this machine for whoever reads it"));
        assert!(said.ends_with("--upstream-address-map localhost:9092=kafka.example:9092"));
        let said = advice(local, local, "127.0.0.1:9094", false);
        assert!(!said.contains("for whoever reads it"), "{said}");
    }

    #[test]
    fn a_mapped_address_is_told_with_its_entry() {
        let said = advice("kafka-1:9092", "127.0.0.1:5", "127.0.0.1:6", false);
        assert!(said.contains("makes 127.0.0.1:5, which refuses"), "{said}");
        assert!(
            said.ends_with("correct the entry kafka-1:9092=127.0.0.1:5 of --upstream-address-map")
        );
    }

    #[test]
    fn the_bootstrap_server_is_no_way_to_one_broker_of_many() {
        let said = advice("kafka-1:9092", "kafka-1:9092", "kafka-1:9092", false);
        assert!(
            said.ends_with("--upstream-address-map kafka-1:9092=HOST:PORT"),
            "{said}"
        );
    }
}
