//! TLS on both sides: what hapax shows and believes, read from files and read
//! again while it runs.
//!
//! A connection keeps what it began with; one that is made after a reload has
//! what the files say then. So nothing is ever dropped for a new certificate.

mod fault;
mod files;
mod material;
mod stream;
mod validity;

use crate::config::{Config, ListenTls, UpstreamTls};
use files::named;
use material::{Authorities, Bytes, Material, Sources};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use tokio::net::TcpStream;

pub use fault::{HandshakeError, Reason};
pub use files::FileError;
pub use material::LoadError;
pub use stream::Stream;
pub use validity::Validity;

use fault::Peer;
use stream::Secured;

/// Both sides, each where it is configured.
#[derive(Default)]
pub struct Tls {
    upstream: Option<Side<UpstreamTls, ClientConfig>>,
    listen: Option<Side<ListenTls, ServerConfig>>,
}

/// One side: what its files are, and what they said last.
struct Side<F, C> {
    files: F,
    current: RwLock<Arc<Material<C>>>,
}

/// The certificates that hapax shows, and until when they are valid.
#[derive(Clone, Copy, Default, Debug)]
pub struct Shown {
    /// To clients.
    pub to_clients: Option<Validity>,
    /// To brokers.
    pub to_brokers: Option<Validity>,
}

impl Tls {
    /// What the configuration's files say.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with them.
    pub fn load(config: &Config) -> Result<Self, LoadError> {
        Ok(Self {
            upstream: config.upstream_tls.clone().map(Side::load).transpose()?,
            listen: config.listen_tls.clone().map(Side::load).transpose()?,
        })
    }

    /// Reads the files for clients again, and takes what they say for
    /// connections that are made from now on. Returns whether they say anything
    /// new.
    ///
    /// # Errors
    ///
    /// What is wrong with the files; all stays as it was.
    pub fn reload_to_clients(&self) -> Result<bool, LoadError> {
        self.listen.as_ref().map_or(Ok(false), Side::reload)
    }

    /// The same of those for brokers.
    ///
    /// # Errors
    ///
    /// What is wrong with the files; all stays as it was.
    pub fn reload_to_brokers(&self) -> Result<bool, LoadError> {
        self.upstream.as_ref().map_or(Ok(false), Side::reload)
    }

    /// Until when what hapax shows is valid.
    #[must_use]
    pub fn shown(&self) -> Shown {
        Shown {
            to_clients: self.listen.as_ref().and_then(|s| s.current().validity),
            to_brokers: self.upstream.as_ref().and_then(|s| s.current().validity),
        }
    }

    /// Whether clients speak TLS.
    #[must_use]
    pub fn is_for_clients(&self) -> bool {
        self.listen.is_some()
    }

    /// Whether brokers are spoken to by TLS.
    #[must_use]
    pub fn is_for_brokers(&self) -> bool {
        self.upstream.is_some()
    }

    /// Speaks TLS to a broker that has just been connected to, where that is
    /// configured. Its certificate has to be for `host`, unless the
    /// configuration names another one.
    ///
    /// # Errors
    ///
    /// Why there is no connection that can be trusted.
    pub async fn connect(&self, broker: TcpStream, host: &str) -> Result<Stream, HandshakeError> {
        let Some(side) = &self.upstream else {
            return Ok(Stream::Plain(broker));
        };
        let name = side.files.server_name.as_deref().unwrap_or(host);
        let peer = Peer::Broker {
            name: name.into(),
            is_shown_ours: side.files.certificate.is_some(),
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let Ok(server) = ServerName::try_from(bare.to_owned()) else {
            return Err(HandshakeError::new(peer, Reason::NoName));
        };
        let config = Arc::clone(&side.current().config);
        match ClientConnection::new(config, server) {
            Ok(tls) => Secured::new(broker, tls.into(), peer).shake_hands().await,
            Err(error) => Err(HandshakeError::new(peer, error.into())),
        }
    }

    /// Speaks TLS with a client that has connected, where that is configured.
    ///
    /// # Errors
    ///
    /// Why there is no connection to serve.
    pub async fn accept(&self, client: TcpStream) -> Result<Stream, HandshakeError> {
        let Some(side) = &self.listen else {
            return Ok(Stream::Plain(client));
        };
        let config = Arc::clone(&side.current().config);
        match ServerConnection::new(config) {
            Ok(tls) => {
                Secured::new(client, tls.into(), Peer::Client)
                    .shake_hands()
                    .await
            }
            Err(error) => Err(HandshakeError::new(Peer::Client, error.into())),
        }
    }
}

/// Whom hapax believes where it asks for something itself, over HTTPS.
pub struct Trust(Side<Authorities, ClientConfig>);

impl Trust {
    /// The CAs in a file that a configuration key names, or those of the system.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn load(key: &'static str, ca_file: Option<PathBuf>) -> Result<Self, LoadError> {
        Side::load(Authorities { key, ca_file }).map(Self)
    }

    /// Reads them again. Returns whether they are others.
    ///
    /// # Errors
    ///
    /// What is wrong with them; all stays as it was.
    pub fn reload(&self) -> Result<bool, LoadError> {
        self.0.reload()
    }

    /// Speaks TLS with a server that has just been connected to and has to be
    /// `host`.
    ///
    /// # Errors
    ///
    /// Why there is no connection that can be trusted.
    pub async fn connect(&self, server: TcpStream, host: &str) -> Result<Stream, HandshakeError> {
        let peer = Peer::Server(host.into(), self.0.files.key);
        let Ok(name) = ServerName::try_from(host.to_owned()) else {
            return Err(HandshakeError::new(peer, Reason::NoName));
        };
        let config = Arc::clone(&self.0.current().config);
        match ClientConnection::new(config, name) {
            Ok(tls) => Secured::new(server, tls.into(), peer).shake_hands().await,
            Err(error) => Err(HandshakeError::new(peer, error.into())),
        }
    }
}

/// The bytes of a file with a secret, which only its owner or group may read.
///
/// # Errors
///
/// Why they cannot be had, or should not.
pub fn read_secret(key: &'static str, path: &Path) -> Result<Vec<u8>, LoadError> {
    Ok(files::key(path).map_err(named(key, path))?)
}

/// The bytes of a file that everyone may read.
///
/// # Errors
///
/// Why they cannot be had.
pub fn read_open(key: &'static str, path: &Path) -> Result<Vec<u8>, LoadError> {
    Ok(files::certificates(path).map_err(named(key, path))?)
}

impl Shown {
    /// Those that are shown: to whom, by which key, and their validity.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Validity)> {
        let keys = [
            ("listen.tls.certFile", self.to_clients),
            ("upstream.tls.certFile", self.to_brokers),
        ];
        keys.into_iter()
            .filter_map(|(key, validity)| Some((key, validity?)))
    }

    /// Those that are not valid now, with what to do about it.
    pub fn invalid(&self, now: SystemTime) -> impl Iterator<Item = String> {
        self.iter().filter_map(move |(key, validity)| {
            let Validity { from, until } = validity;
            let (from, until) = (validity::date(from), validity::date(until));
            match validity.at(now) {
                Some(false) => Some(format!(
                    "the certificate of {key} was valid until {until}: whoever verifies it refuses; put a new one there, which is taken without a restart"
                )),
                None => Some(format!(
                    "the certificate of {key} is valid from {from} on: look at the clock of this machine, or wait"
                )),
                Some(true) => None,
            }
        })
    }
}

impl<F: Sources<C>, C> Side<F, C> {
    fn load(files: F) -> Result<Self, LoadError> {
        let material = files.read()?.build()?;
        Ok(Self {
            files,
            current: RwLock::new(Arc::new(material)),
        })
    }

    fn reload(&self) -> Result<bool, LoadError> {
        let read = self.files.read()?;
        if read.digest() == self.current().digest {
            return Ok(false);
        }
        let material = Arc::new(read.build()?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = material;
        Ok(true)
    }

    fn current(&self) -> Arc<Material<C>> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }
}
