//! Connecting to a broker.

use super::{Own, Target};
use crate::config::HostPort;
use crate::timers::timeout;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// Why no address of a target could be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name is not known here.
    #[error("{address} does not resolve here ({source})")]
    Resolve {
        /// What was looked up.
        address: HostPort,
        /// What the resolver said.
        source: io::Error,
    },
    /// Nobody listens there.
    #[error(
        "nothing listens at {address} (connection refused): start the broker, or correct the port"
    )]
    Refused {
        /// What was dialled.
        address: HostPort,
    },
    /// The network refused.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// What was dialled.
        address: HostPort,
        /// What the system said.
        source: io::Error,
    },
    /// No answer in time.
    #[error(
        "no answer from {address} within {after:?}: a firewall, or an address of another network"
    )]
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

impl DialError {
    /// What there is to connect to has refused, or there is nothing.
    fn connect(address: &HostPort, source: io::Error) -> Self {
        let address = address.clone();
        match source.kind() {
            ErrorKind::ConnectionRefused => Self::Refused { address },
            _ => Self::Connect { address, source },
        }
    }
}

/// Connects to the first address of the target that answers.
///
/// # Errors
///
/// The last address's error.
pub async fn dial(target: &Target, patience: Duration, own: &Own) -> Result<TcpStream, DialError> {
    let mut last = DialError::Nothing;
    for address in &target.addresses {
        match dial_one(address, patience, own).await {
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
    patience: Duration,
    own: &Own,
) -> Result<TcpStream, DialError> {
    let mut last = DialError::Nothing;
    for socket_address in resolve(address, patience).await? {
        match connect(address, socket_address, patience, own).await {
            Err(looped @ DialError::Loop { .. }) => return Err(looped),
            Err(error) => last = error,
            Ok(stream) => return Ok(stream),
        }
    }
    Err(last)
}

/// The addresses of a name.
///
/// # Errors
///
/// Where it has none here, or nobody says so in time.
pub async fn resolve(address: &HostPort, patience: Duration) -> Result<Vec<SocketAddr>, DialError> {
    let resolved = timeout(patience, lookup_host((address.host.as_str(), address.port)))
        .await
        .map_err(|_| DialError::Timeout {
            address: address.clone(),
            after: patience,
        })?
        .map_err(|source| DialError::Resolve {
            address: address.clone(),
            source,
        })?;
    Ok(resolved.collect())
}

/// Connects to one of the addresses that a name has.
///
/// # Errors
///
/// Where it is hapax itself, or does not take the connection in time.
pub async fn connect(
    address: &HostPort,
    socket_address: SocketAddr,
    patience: Duration,
    own: &Own,
) -> Result<TcpStream, DialError> {
    let looped = || DialError::Loop {
        address: address.clone(),
    };
    if own.contains(socket_address, None) {
        return Err(looped());
    }
    let stream = timeout(patience, TcpStream::connect(socket_address))
        .await
        .map_err(|_| DialError::Timeout {
            address: address.clone(),
            after: patience,
        })?
        .map_err(|source| DialError::connect(address, source))?;
    if own.contains(socket_address, stream.local_addr().ok()) {
        return Err(looped());
    }
    // Kafka frames are written whole: Nagle would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY upstream");
    }
    Ok(stream)
}
