//! Why two sides do not come to speak TLS, in words that say what to set.

use super::validity::date;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Who hapax speaks with.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    Client,
    /// A broker, by the name that its certificate has to be for.
    Broker {
        name: Arc<str>,
        /// Whether hapax has a certificate to show it.
        is_shown_ours: bool,
    },
    /// Another server, by name, and the key of the CAs that it has to be of.
    Server(Arc<str>, &'static str),
}

/// Why there is no TLS with a peer, or none any more.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct HandshakeError {
    peer: Peer,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong between two sides of TLS.
#[derive(Clone, Debug)]
pub enum Reason {
    /// The peer's certificate is of a CA that is not believed here.
    UnknownCa,
    /// It is a CA's own.
    CaItself,
    /// It is not valid any more; until when it was, in seconds since 1970.
    Expired(Option<i64>),
    /// It is not valid yet.
    NotYetValid(Option<i64>),
    /// It is for other names: these.
    WrongName(Vec<String>),
    /// The address to verify is no name that a certificate can be for.
    NoName,
    /// The peer shows no certificate.
    NoCertificate,
    /// The peer wants a certificate of ours.
    WantsCertificate,
    /// The peer refuses the certificate of ours, with this word.
    RefusesOurs(AlertDescription),
    /// No version, or no algorithm, is common to both.
    NothingInCommon(String),
    /// What the peer says is no TLS.
    NotTls,
    /// It hung up in the middle of the handshake.
    HungUp,
    /// Anything else that TLS has against it.
    Other(String),
}

impl Reason {
    /// A word for scripts.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownCa | Self::CaItself => "tls_ca",
            Self::Expired(_) | Self::NotYetValid(_) => "tls_expired",
            Self::WrongName(_) | Self::NoName => "tls_name",
            Self::NoCertificate | Self::WantsCertificate | Self::RefusesOurs(_) => {
                "tls_certificate"
            }
            Self::NotTls => "not_tls",
            Self::HungUp => "tls_closed",
            Self::NothingInCommon(_) | Self::Other(_) => "tls_handshake",
        }
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => of_certificate(error),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::AlertReceived(alert) => of_alert(alert),
            Error::PeerIncompatible(
                PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
            ) => Self::NothingInCommon("no signature algorithm".to_owned()),
            Error::PeerIncompatible(why) => Self::NothingInCommon(format!("{why:?}")),
            // What rustls says of a first record that is none.
            Error::InvalidMessage(_) => Self::NotTls,
            Error::UnsupportedNameType => Self::NoName,
            error => Self::Other(error.to_string()),
        }
    }
}

fn of_certificate(error: CertificateError) -> Reason {
    let seconds = |time: rustls::pki_types::UnixTime| i64::try_from(time.as_secs()).ok();
    match error {
        CertificateError::UnknownIssuer => Reason::UnknownCa,
        CertificateError::Expired => Reason::Expired(None),
        CertificateError::ExpiredContext { not_after, .. } => Reason::Expired(seconds(not_after)),
        CertificateError::NotValidYet => Reason::NotYetValid(None),
        CertificateError::NotValidYetContext { not_before, .. } => {
            Reason::NotYetValid(seconds(not_before))
        }
        CertificateError::NotValidForName => Reason::WrongName(Vec::new()),
        CertificateError::NotValidForNameContext { presented, .. } => {
            Reason::WrongName(presented.iter().map(|name| bare(name)).collect())
        }
        // rustls has no name for it.
        error if format!("{error:?}").contains("CaUsedAsEndEntity") => Reason::CaItself,
        error => Reason::Other(format!("its certificate cannot be verified: {error}")),
    }
}

/// A name as people write it: rustls tells of them as `DnsName("a.example")`
/// and `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

fn of_alert(alert: AlertDescription) -> Reason {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            Reason::WantsCertificate
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => Reason::RefusesOurs(alert),
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => {
            Reason::NothingInCommon(format!("the alert {alert:?}"))
        }
        alert => Reason::Other(format!("the alert {alert:?}")),
    }
}

impl HandshakeError {
    pub(super) fn new(peer: Peer, reason: Reason) -> Self {
        Self { peer, reason }
    }

    fn text(&self) -> String {
        match &self.peer {
            // Java says of no certificate what it says of a bad one.
            Peer::Broker {
                name,
                is_shown_ours: false,
            } if matches!(self.reason, Reason::RefusesOurs(_)) => {
                of_broker(name, &Reason::WantsCertificate)
            }
            Peer::Broker { name, .. } => of_broker(name, &self.reason),
            Peer::Server(name, key) => of_server(name, key, &self.reason),
            Peer::Client => of_client(&self.reason),
        }
    }

    /// What an error of a connection says about TLS, if it does.
    #[must_use]
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> Self {
        Self::new(ErrorKind::InvalidData, error)
    }
}

fn of_broker(name: &str, reason: &Reason) -> String {
    match reason {
        Reason::UnknownCa => {
            "its certificate does not come from a CA that hapax believes: set upstream.tls.caFile to the CA of the brokers (the ssl.truststore of clients that reach them directly), with any CA in between that the broker does not send".to_owned()
        }
        Reason::CaItself => {
            "its certificate is that of a CA (CA:TRUE), which may not be a server's own: give the broker one that the CA has signed".to_owned()
        }
        Reason::Expired(until) => format!(
            "its certificate has expired{}: renew it there, or look at the clock of this machine",
            until.map_or_else(String::new, |until| format!(" ({})", date(until)))
        ),
        Reason::NotYetValid(from) => format!(
            "its certificate is not valid yet{}: look at the clocks of both machines",
            from.map_or_else(String::new, |from| format!(" ({})", date(from)))
        ),
        Reason::WrongName(presented) => format!(
            "its certificate is not for {name}, but for {}: let the broker advertise a name of its certificate, or set upstream.tls.serverName where all brokers have one name",
            match presented.as_slice() {
                [] => "no name at all (it has no subjectAltName)".to_owned(),
                names => names.join(", "),
            }
        ),
        Reason::NoName => format!(
            "{name} is no name that a certificate can be for: set upstream.tls.serverName"
        ),
        Reason::NoCertificate => "it shows no certificate".to_owned(),
        Reason::WantsCertificate => {
            "it wants a certificate (ssl.client.auth=required): set upstream.tls.certFile and upstream.tls.keyFile".to_owned()
        }
        Reason::RefusesOurs(alert) => format!(
            "it refuses the certificate of hapax ({alert:?}): upstream.tls.certFile has to come from a CA in the broker's ssl.truststore, with the CAs in between behind it, and not be expired"
        ),
        Reason::NothingInCommon(what) => format!(
            "it has no TLS in common with hapax, which speaks 1.2 and 1.3 with AES-GCM and ChaCha20 ({what}): look at its ssl.enabled.protocols and ssl.cipher.suites; a broker that wants a client's certificate may say this as well"
        ),
        Reason::NotTls => {
            "what it says is no TLS: set upstream.tls.enabled to false where the listener is PLAINTEXT or SASL_PLAINTEXT, or give the port of an SSL listener".to_owned()
        }
        Reason::HungUp => {
            "it hung up in the middle of the TLS handshake: is the listener PLAINTEXT (then set upstream.tls.enabled to false), or does it want a certificate (upstream.tls.certFile)?".to_owned()
        }
        Reason::Other(what) => format!("TLS with it failed: {what}"),
    }
}

fn of_server(name: &str, ca_key: &str, reason: &Reason) -> String {
    match reason {
        Reason::UnknownCa => format!(
            "its certificate does not come from a CA that hapax believes: set {ca_key} to its CA"
        ),
        Reason::WrongName(presented) => format!(
            "its certificate is not for {name}, but for {}",
            match presented.as_slice() {
                [] => "no name at all (it has no subjectAltName)".to_owned(),
                names => names.join(", "),
            }
        ),
        Reason::NoName => format!("{name} is no name that a certificate can be for"),
        Reason::CaItself | Reason::Expired(_) | Reason::NotYetValid(_) => of_broker(name, reason),
        Reason::NoCertificate => "it shows no certificate".to_owned(),
        Reason::WantsCertificate | Reason::RefusesOurs(_) => {
            "it wants a certificate, and hapax has none for it".to_owned()
        }
        Reason::NothingInCommon(what) => format!(
            "it has no TLS in common with hapax, which speaks 1.2 and 1.3 with AES-GCM and ChaCha20 ({what})"
        ),
        Reason::NotTls => "what it says is no TLS: is it http, or another port?".to_owned(),
        Reason::HungUp => "it hung up in the middle of the TLS handshake".to_owned(),
        Reason::Other(what) => format!("TLS with it failed: {what}"),
    }
}

fn of_client(reason: &Reason) -> String {
    match reason {
        Reason::UnknownCa => {
            "the client's certificate does not come from a CA of listen.tls.clientCaFile: add its CA there, or give the client another certificate (ssl.keystore)".to_owned()
        }
        Reason::CaItself => {
            "the client's certificate is that of a CA (CA:TRUE), which may not be a client's own".to_owned()
        }
        Reason::Expired(until) => format!(
            "the client's certificate has expired{}",
            until.map_or_else(String::new, |until| format!(" ({})", date(until)))
        ),
        Reason::NotYetValid(from) => format!(
            "the client's certificate is not valid yet{}: look at the clocks of both machines",
            from.map_or_else(String::new, |from| format!(" ({})", date(from)))
        ),
        Reason::WrongName(_) | Reason::NoName => "the client's certificate is for something else".to_owned(),
        Reason::NoCertificate | Reason::WantsCertificate => {
            "the client shows no certificate, which listen.tls.clientCaFile asks for: give it one (ssl.keystore, or ssl.certificate.location for librdkafka)".to_owned()
        }
        Reason::RefusesOurs(alert) => format!(
            "the client refuses the certificate of hapax ({alert:?}): it has to believe the CA of listen.tls.certFile (ssl.truststore, or ssl.ca.location for librdkafka), and that certificate has to be for the host that clients are told (listen.advertisedHost) and not be expired"
        ),
        Reason::NothingInCommon(what) => format!(
            "the client has no TLS in common with hapax, which speaks 1.2 and 1.3 with AES-GCM and ChaCha20 ({what})"
        ),
        Reason::NotTls => {
            "the client speaks no TLS, and this listener does nothing else (listen.tls.certFile is set): set its security.protocol to SSL, or to SASL_SSL where it says SASL_PLAINTEXT".to_owned()
        }
        Reason::HungUp => {
            "the client hung up in the middle of the TLS handshake: clients do so when they do not believe the CA of listen.tls.certFile, or when it is not for the host that they reach".to_owned()
        }
        Reason::Other(what) => format!("TLS with the client failed: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_shown_ours: bool, says: &str) {
        let peer = Peer::Broker {
            name: "kafka".into(),
            is_shown_ours,
        };
        // Java's word for a certificate that it does not take, and for none.
        let reason = Error::AlertReceived(AlertDescription::BadCertificate).into();
        let said = HandshakeError::new(peer, reason).to_string();
        assert!(said.contains(says), "{said}");
    }

    #[test]
    fn a_broker_that_refuses_what_it_was_not_shown_wants_something() {
        check(false, "it wants a certificate (ssl.client.auth=required)");
        check(true, "it refuses the certificate of hapax (BadCertificate)");
    }

    #[test]
    fn names_of_a_certificate_are_told_as_people_write_them() {
        for (name, told) in [
            ("DnsName(\"a.example\")", "a.example"),
            ("IpAddress(10.0.0.1)", "10.0.0.1"),
            ("a.example", "a.example"),
        ] {
            assert_eq!(bare(name), told);
        }
    }
}
