//! Connecting to a broker.

use super::Target;
use crate::config::HostPort;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time;

/// Why no address of a target could be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name is not known here.
    #[error(
        "{address} does not resolve here ({source}); if brokers advertise it, map it with --upstream-address-map"
    )]
    Resolve {
        /// What was looked up.
        address: HostPort,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// Nobody listens there, or the network refused.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// What was dialled.
        address: HostPort,
        /// What the system said.
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("no answer from {address} within {after:?}")]
    Timeout {
        /// What was dialled.
        address: HostPort,
        /// How long was waited.
        after: Duration,
    },
    /// The address is our own.
    #[error("{address} is hapax itself; point --upstream at the brokers, not at hapax")]
    Loop {
        /// What was dialled.
        address: HostPort,
    },
    /// There was nothing to dial.
    #[error("no address to connect to")]
    Nothing,
}

/// Connects to the first address of the target that answers. `ours` says
/// whether an address leads back to hapax, once connected by what local address.
///
/// # Errors
///
/// The last address's error.
pub async fn dial(
    target: &Target,
    timeout: Duration,
    ours: impl Fn(SocketAddr, Option<SocketAddr>) -> bool,
) -> Result<TcpStream, DialError> {
    let mut last = DialError::Nothing;
    for address in &target.addresses {
        match dial_one(address, timeout, &ours).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Tries every address of a name; each has its own time, so that one which
/// does not answer does not hide the others.
async fn dial_one(
    address: &HostPort,
    timeout: Duration,
    ours: &impl Fn(SocketAddr, Option<SocketAddr>) -> bool,
) -> Result<TcpStream, DialError> {
    let late = || DialError::Timeout {
        address: address.clone(),
        after: timeout,
    };
    let resolved = time::timeout(timeout, lookup_host((address.host.as_str(), address.port)))
        .await
        .map_err(|_| late())?
        .map_err(|source| DialError::Resolve {
            address: address.clone(),
            source,
        })?;
    let mut last = DialError::Nothing;
    for socket_address in resolved {
        let looped = || DialError::Loop {
            address: address.clone(),
        };
        if ours(socket_address, None) {
            return Err(looped());
        }
        let Ok(connected) = time::timeout(timeout, TcpStream::connect(socket_address)).await else {
            last = late();
            continue;
        };
        match connected {
            Ok(stream) if ours(socket_address, stream.local_addr().ok()) => return Err(looped()),
            Ok(stream) => {
                // Kafka frames are written whole: Nagle would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY upstream");
                }
                return Ok(stream);
            }
            Err(source) => {
                last = DialError::Connect {
                    address: address.clone(),
                    source,
                }
            }
        }
    }
    Err(last)
}
