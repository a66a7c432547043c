//! Certificates made for a test, and relays that put TLS before or behind what
//! speaks plaintext: so every client and broker of the tests can speak it.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test binary that includes this code uses its own part of it"
)]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// How long a handshake of a test may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A certificate and its key, as PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Who signs.
pub struct Ca {
    /// Its certificate, as PEM.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    /// One that nobody has believed before.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for these names or addresses, for server and client alike.
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.issue_until(names, 2099)
    }

    /// The same until a year begins.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Identity {
        self.sign(params(names), year)
    }

    /// The same for somebody who is called so (CN).
    pub fn issue_to(&self, who: &str, names: &[&str]) -> Identity {
        let mut params = params(names);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, who);
        self.sign(params, 2099)
    }

    fn sign(&self, mut params: CertificateParams, year: i32) -> Identity {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

impl Identity {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        certificates(&self.certificate)
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes());
    found.collect::<Result<_, _>>().unwrap()
}

fn roots(ca: &Ca) -> Arc<RootCertStore> {
    roots_of(&ca.certificate)
}

fn roots_of(pem: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(pem));
    Arc::new(roots)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Both versions that hapax speaks.
pub const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];

/// A client that believes a CA, and shows what it has.
pub fn client(
    ca: &Ca,
    own: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    client_of(&ca.certificate, own, versions)
}

/// The same that believes every CA of a PEM.
pub fn client_of(
    pem: &str,
    own: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots_of(pem));
    Arc::new(match own {
        Some(own) => builder
            .with_client_auth_cert(own.chain(), own.key())
            .unwrap(),
        None => builder.with_no_client_auth(),
    })
}

/// A server, which may ask clients for a certificate of a CA.
pub fn server(
    own: &Identity,
    clients: Option<&Ca>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap();
    let builder = match clients {
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca), provider());
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    Arc::new(builder.with_single_cert(own.chain(), own.key()).unwrap())
}

/// A folder of files for hapax.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file that its owner alone can read; gives its path. One that is
    /// there is replaced whole.
    pub fn write(&self, name: &str, text: &str) -> String {
        self.write_with_mode(name, text, 0o600)
    }

    pub fn write_with_mode(&self, name: &str, text: &str, mode: u32) -> String {
        let (path, new) = (self.0.path().join(name), self.0.path().join("new"));
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(new, &path).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// The relays of all tests run in it.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    })
}

/// A listener in plaintext that passes everything on in TLS; gives its address.
///
/// The end of one side ends that direction of the other one, in TLS by its
/// goodbye. What is lost on one side is lost on the other: TLS then gets none.
pub fn sealing(to: &str, config: Arc<ClientConfig>, name: &str) -> String {
    let (to, connector) = (to.to_owned(), TlsConnector::from(config));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    relay(move |mut near| {
        let (to, connector, name) = (to.clone(), connector.clone(), name.clone());
        async move {
            let far = TcpStream::connect(&to).await?;
            far.set_nodelay(true)?;
            let mut far = connector.connect(name, far).await?;
            tokio::io::copy_bidirectional(&mut near, &mut far).await
        }
    })
}

/// A listener in TLS that passes everything on in plaintext; gives its address.
pub fn opening(to: &str, config: Arc<ServerConfig>) -> String {
    let (to, acceptor) = (to.to_owned(), TlsAcceptor::from(config));
    relay(move |near| {
        let (to, acceptor) = (to.clone(), acceptor.clone());
        async move {
            let mut near = acceptor.accept(near).await?;
            let mut far = TcpStream::connect(&to).await?;
            far.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut near, &mut far).await
        }
    })
}

fn relay<F: Future<Output = io::Result<(u64, u64)>> + Send>(
    pass: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> String {
    let pass = Arc::new(pass);
    runtime().block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                near.set_nodelay(true).unwrap();
                let pass = Arc::clone(&pass);
                // What becomes of it is what the test looks at.
                tokio::spawn(async move { pass(near).await.map(drop) });
            }
        });
        address
    })
}

/// The certificate that a listener shows, as PEM's bytes, to a client that
/// believes it.
///
/// # Errors
///
/// Those of the handshake.
pub fn handshake(
    to: &str,
    config: Arc<ClientConfig>,
    name: &str,
) -> io::Result<CertificateDer<'static>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    runtime().block_on(async move {
        let shaken = async {
            let socket = TcpStream::connect(to).await?;
            TlsConnector::from(config).connect(name, socket).await
        };
        let shaken = tokio::time::timeout(PATIENCE, shaken).await?;
        let (_, session) = shaken?.into_inner();
        let shown = session.peer_certificates().unwrap_or_default();
        Ok(shown.first().unwrap().clone().into_owned())
    })
}
