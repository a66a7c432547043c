//! Connecting to a broker.

use super::login::{Login, log_in};
use super::race::Race;
use super::{Own, Target};
use crate::config::{HostPort, Timeouts};
use crate::sasl::{LoginError, Sasl};
use crate::socket;
use crate::timers::timeout;
use crate::tls::{HandshakeError, Stream, Tls};
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
    /// It is reached, and there is no TLS with it.
    #[error("{address} is reached, but {error}")]
    Tls {
        /// What was dialled.
        address: HostPort,
        /// Why.
        error: HandshakeError,
    },
    /// It is reached, and says nothing to TLS in time.
    #[error(
        "{address} is reached, and does not finish the TLS handshake within {after:?}: is it a listener for TLS? (upstream.tls.enabled, timeouts.tls)"
    )]
    TlsTimeout {
        /// What was dialled.
        address: HostPort,
        /// How long was waited.
        after: Duration,
    },
    /// It could not be reached just now, so it is not tried for everybody.
    #[error("could not be reached just now, and is tried again in {0:?}")]
    LeftAlone(Duration),
    /// It is reached, and hapax is not logged in.
    #[error("{address} is reached, but {error}")]
    Login {
        /// What was dialled.
        address: HostPort,
        /// Why.
        error: LoginError,
    },
    /// There was nothing to dial.
    #[error("no address to connect to")]
    Nothing,
}

impl DialError {
    /// Whether no other address is worth a try.
    fn is_final(&self) -> bool {
        matches!(self, Self::Login { error, .. } if error.is_final())
    }

    /// What there is to connect to has refused, or there is nothing.
    fn connect(address: &HostPort, source: io::Error) -> Self {
        let address = address.clone();
        match source.kind() {
            ErrorKind::ConnectionRefused => Self::Refused { address },
            _ => Self::Connect { address, source },
        }
    }
}

/// What a broker is dialled by.
#[derive(Clone, Copy)]
pub struct Dialler<'a> {
    /// How long each step may take.
    pub timeouts: &'a Timeouts,
    /// Addresses that lead back to hapax.
    pub own: &'a Own,
    /// How to speak.
    pub tls: &'a Tls,
    /// By what to log in.
    pub sasl: &'a Sasl,
}

/// A connection to a broker on which a client may speak.
pub struct Dialled {
    /// The connection.
    pub stream: Stream,
    /// As whom hapax is logged in there, where it does so itself.
    pub login: Option<Login>,
}

impl Dialler<'_> {
    /// Connects to the first address of the target that answers; tells which of
    /// the target's that is one of.
    ///
    /// # Errors
    ///
    /// The last failure, that one of the addresses is hapax itself, or that the
    /// login was refused.
    pub async fn dial(self, target: &Target) -> Result<(HostPort, Dialled), DialError> {
        let others = target.others.iter().map(|(address, _)| address);
        let names = target.addresses.iter().chain(others).cloned();
        let mut race = Race::new(names, self.timeouts.connect, self.own);
        let mut worst = DialError::Nothing;
        while let Some(tried) = race.next().await {
            let error = match tried {
                Ok((address, stream)) => {
                    self.prepare(&stream);
                    let host = target.host_at(&address);
                    match self.welcomed(stream, &address, host).await {
                        Ok(dialled) => return Ok((address, dialled)),
                        Err(error) if error.is_final() => return Err(error),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if !matches!(worst, DialError::Loop { .. }) {
                worst = error;
            }
        }
        Err(worst)
    }

    fn prepare(self, stream: &TcpStream) {
        if let Err(error) = socket::prepare(stream, self.timeouts.keep_alive) {
            tracing::debug!(%error, "cannot set what every connection is set to, upstream");
        }
    }

    /// Speaks as it is configured, and logs in where that is.
    async fn welcomed(
        self,
        stream: TcpStream,
        address: &HostPort,
        host: &str,
    ) -> Result<Dialled, DialError> {
        let stream = self.secure(stream, address, host).await?;
        if !self.sasl.is_on() {
            let login = None;
            return Ok(Dialled { stream, login });
        }
        let logged_in = log_in(stream, self.sasl, self.timeouts.sasl).await;
        let (stream, login) = logged_in.map_err(|error| DialError::Login {
            address: address.clone(),
            error,
        })?;
        let login = Some(login);
        Ok(Dialled { stream, login })
    }

    /// Speaks TLS on a connection, where that is configured, to whoever has a
    /// certificate for `host`.
    ///
    /// # Errors
    ///
    /// Where that comes to nothing, or not in time.
    pub async fn secure(
        self,
        stream: TcpStream,
        address: &HostPort,
        host: &str,
    ) -> Result<Stream, DialError> {
        let after = self.timeouts.tls;
        let address = address.clone();
        match timeout(after, self.tls.connect(stream, host)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(DialError::Tls { address, error }),
            Err(_) => Err(DialError::TlsTimeout { address, after }),
        }
    }
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
    Ok(stream)
}
