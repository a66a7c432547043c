//! From files to what rustls speaks by.

use super::files::{self, Named, named};
use super::validity::Validity;
use crate::config::{CertificateFiles, ListenTls, UpstreamTls};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a side's connections are made with.
pub(super) struct Material<C> {
    pub(super) config: Arc<C>,
    /// Of the bytes that it was made of.
    pub(super) digest: u64,
    /// That of the certificate which is shown, if one is.
    pub(super) validity: Option<Validity>,
}

/// The files of a side.
pub(super) trait Sources<C> {
    /// Their bytes.
    fn read(&self) -> Result<impl Bytes<C>, LoadError>;
}

/// What the files of a side say.
pub(super) trait Bytes<C> {
    /// The same for the same bytes, and as good as never for others.
    fn digest(&self) -> u64;
    /// What is made of them.
    fn build(self) -> Result<Material<C>, LoadError>;
}

/// What is wrong with what TLS was configured with.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file.
    #[error(transparent)]
    File(#[from] Named),
    /// Certificate and key are not of each other.
    #[error(
        "{key} {path} is not the key of the certificate in {certificate}: give those that were made together, the server's own certificate first in its file"
    )]
    Mismatch {
        /// The configuration key of the private key.
        key: &'static str,
        /// Its file.
        path: String,
        /// The file of the certificate.
        certificate: String,
    },
    /// Something in them that is not known here.
    #[error("{key} {path} cannot be used: {error}")]
    Unusable {
        /// The configuration key.
        key: &'static str,
        /// Its file.
        path: String,
        /// Why.
        error: Error,
    },
    /// There is no CA to trust.
    #[error(
        "TLS is to be spoken, and this system has no CA certificates{because}: set {key} to those that the other side's certificate comes from"
    )]
    NoRoots {
        /// The configuration key.
        key: &'static str,
        /// What kept them from being read.
        because: String,
    },
    /// What cannot happen with the algorithms that hapax is built with.
    #[error("TLS cannot be set up: {0}")]
    Rustls(#[from] Error),
}

/// A certificate to show.
struct Own {
    files: CertificateFiles,
    /// The configuration keys of its two files.
    keys: [&'static str; 2],
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Own {
    fn read(files: &CertificateFiles, keys: [&'static str; 2]) -> Result<Self, Named> {
        let CertificateFiles { certificate, key } = files;
        Ok(Self {
            certificate: files::certificates(certificate).map_err(named(keys[0], certificate))?,
            key: files::key(key).map_err(named(keys[1], key))?,
            files: files.clone(),
            keys,
        })
    }

    fn hash(&self, hasher: &mut DefaultHasher) {
        (&self.certificate, &self.key).hash(hasher);
    }

    fn parse(&self) -> Result<Chain, Named> {
        let CertificateFiles { certificate, key } = &self.files;
        Ok(Chain {
            certificates: files::parse_certificates(&self.certificate)
                .map_err(named(self.keys[0], certificate))?,
            key: files::parse_key(&self.key).map_err(named(self.keys[1], key))?,
        })
    }

    /// Says what is wrong with certificate and key.
    fn explain(&self, error: Error) -> LoadError {
        let path = |path: &Path| path.display().to_string();
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => LoadError::Mismatch {
                key: self.keys[1],
                path: path(&self.files.key),
                certificate: path(&self.files.certificate),
            },
            Error::InvalidCertificate(_) => LoadError::Unusable {
                key: self.keys[0],
                path: path(&self.files.certificate),
                error,
            },
            error => LoadError::Unusable {
                key: self.keys[1],
                path: path(&self.files.key),
                error,
            },
        }
    }
}

struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Chain {
    fn validity(&self) -> Option<Validity> {
        Validity::of_all(self.certificates.iter().map(AsRef::as_ref))
    }
}

/// CAs to believe.
enum Believed {
    /// Those of the system.
    System(Vec<CertificateDer<'static>>),
    /// The bytes of a file.
    File(Vec<u8>),
}

impl Believed {
    fn read(key: &'static str, ca_file: Option<&Path>) -> Result<Self, LoadError> {
        Ok(match ca_file {
            Some(path) => Self::File(files::certificates(path).map_err(named(key, path))?),
            None => Self::System(of_system(key)?),
        })
    }
}

/// CAs alone, in a file that a configuration key names or in the system.
pub(super) struct Authorities {
    pub(super) key: &'static str,
    pub(super) ca_file: Option<PathBuf>,
}

impl Sources<ClientConfig> for Authorities {
    fn read(&self) -> Result<impl Bytes<ClientConfig>, LoadError> {
        let ca_file = self.ca_file.as_deref();
        Ok(UpstreamBytes {
            ca_key: self.key,
            ca_file,
            believed: Believed::read(self.key, ca_file)?,
            own: None,
        })
    }
}

/// What the files of the upstream side say.
struct UpstreamBytes<'f> {
    ca_key: &'static str,
    ca_file: Option<&'f Path>,
    believed: Believed,
    own: Option<Own>,
}

const CA_FILE: &str = "upstream.tls.caFile";
const CLIENT_CA_FILE: &str = "listen.tls.clientCaFile";

impl Sources<ClientConfig> for UpstreamTls {
    fn read(&self) -> Result<impl Bytes<ClientConfig>, LoadError> {
        let ca_file = self.ca_file.as_deref();
        let believed = Believed::read(CA_FILE, ca_file)?;
        let keys = ["upstream.tls.certFile", "upstream.tls.keyFile"];
        let own = self.certificate.as_ref();
        let own = own.map(|files| Own::read(files, keys)).transpose()?;
        Ok(UpstreamBytes {
            ca_key: CA_FILE,
            ca_file,
            believed,
            own,
        })
    }
}

/// The CAs that this system trusts.
fn of_system(key: &'static str) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let because = found.errors.first();
        let because = because.map_or_else(String::new, |error| format!(" ({error})"));
        return Err(LoadError::NoRoots { key, because });
    }
    Ok(found.certs)
}

impl Bytes<ClientConfig> for UpstreamBytes<'_> {
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.believed {
            Believed::System(certificates) => certificates.hash(&mut hasher),
            Believed::File(bytes) => bytes.hash(&mut hasher),
        }
        if let Some(own) = &self.own {
            own.hash(&mut hasher);
        }
        hasher.finish()
    }

    fn build(self) -> Result<Material<ClientConfig>, LoadError> {
        let digest = self.digest();
        let roots = match (self.believed, self.ca_file) {
            (Believed::File(bytes), Some(path)) => roots(self.ca_key, path, &bytes)?,
            (Believed::System(certificates), _) => {
                let mut roots = RootCertStore::empty();
                // Some systems have a few that nobody can use.
                roots.add_parsable_certificates(certificates);
                Arc::new(roots)
            }
            (Believed::File(_), None) => Arc::new(RootCertStore::empty()),
        };
        let provider = provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_webpki_verifier(verifier);
        let Some(own) = self.own else {
            return Ok(Material {
                config: Arc::new(builder.with_no_client_auth()),
                digest,
                validity: None,
            });
        };
        let chain = own.parse()?;
        let validity = chain.validity();
        let config = builder.with_client_auth_cert(chain.certificates, chain.key);
        Ok(Material {
            config: Arc::new(config.map_err(|error| own.explain(error))?),
            digest,
            validity,
        })
    }
}

/// What the files of the listeners say.
struct ListenBytes<'f> {
    files: &'f ListenTls,
    client_ca: Option<Vec<u8>>,
    own: Own,
}

impl Sources<ServerConfig> for ListenTls {
    fn read(&self) -> Result<impl Bytes<ServerConfig>, LoadError> {
        let keys = ["listen.tls.certFile", "listen.tls.keyFile"];
        let client_ca = self.client_ca_file.as_ref().map(|path| {
            let read = files::certificates(path);
            read.map_err(named(CLIENT_CA_FILE, path))
        });
        Ok(ListenBytes {
            files: self,
            own: Own::read(&self.certificate, keys)?,
            client_ca: client_ca.transpose()?,
        })
    }
}

impl Bytes<ServerConfig> for ListenBytes<'_> {
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.client_ca.hash(&mut hasher);
        self.own.hash(&mut hasher);
        hasher.finish()
    }

    fn build(self) -> Result<Material<ServerConfig>, LoadError> {
        let digest = self.digest();
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match (&self.client_ca, &self.files.client_ca_file) {
            (Some(bytes), Some(path)) => {
                let roots = roots(CLIENT_CA_FILE, path, bytes)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let chain = self.own.parse()?;
        let validity = chain.validity();
        let config = builder.with_single_cert(chain.certificates, chain.key);
        Ok(Material {
            config: Arc::new(config.map_err(|error| self.own.explain(error))?),
            digest,
            validity,
        })
    }
}

/// The CAs in a file, every one of which must be usable: whoever gave it means
/// all of them.
fn roots(key: &'static str, path: &Path, bytes: &[u8]) -> Result<Arc<RootCertStore>, LoadError> {
    let mut roots = RootCertStore::empty();
    for certificate in files::parse_certificates(bytes).map_err(named(key, path))? {
        let added = roots.add(certificate);
        added.map_err(|error| LoadError::Unusable {
            key,
            path: path.display().to_string(),
            error,
        })?;
    }
    Ok(Arc::new(roots))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
