//! What answers at one address: names, connections, and the few requests that
//! tell a Kafka broker from everything else.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::config::{HostPort, Timeouts};
use crate::sasl::{LoginError, Principal, Sasl};
use crate::tls::{HandshakeError, Reason, Stream, Tls};
use crate::upstream::{
    Conversation, DialError, Dialler, Own, ProbeError, connect, explain, log_in, resolve,
    speaks_kafka,
};
use crate::wire::api;
use crate::wire::api_versions::Offered;
use crate::wire::frame::Stranger;
use crate::wire::metadata::{self, Cluster};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// What addresses are examined by.
pub(super) struct Means {
    pub(super) timeouts: Timeouts,
    pub(super) own: Own,
    pub(super) tls: Tls,
    pub(super) sasl: Sasl,
}

impl Means {
    fn dialler(&self) -> Dialler<'_> {
        Dialler {
            timeouts: &self.timeouts,
            own: &self.own,
            tls: &self.tls,
            sasl: &self.sasl,
        }
    }
}

/// What is to be examined.
#[derive(Clone)]
pub(super) struct Place {
    /// Where it is.
    pub(super) address: HostPort,
    /// The host that its certificate is for, where that is another one.
    pub(super) host: Option<String>,
}

impl Place {
    fn host(&self) -> &str {
        self.host.as_ref().unwrap_or(&self.address.host)
    }
}

/// What was found at an address.
pub(super) struct Examined {
    /// What its name resolves to.
    pub(super) resolved: Vec<SocketAddr>,
    /// Which of them took the connection.
    pub(super) reached: Option<SocketAddr>,
    /// How long the name and the connection took.
    pub(super) connected_in: Duration,
    /// How long the first answer took.
    pub(super) answered_in: Duration,
    /// As whom hapax logged in, where it does.
    pub(super) logged_in: Option<Principal>,
    /// Who it is.
    pub(super) found: Found,
}

/// Who is at an address.
pub(super) enum Found {
    /// A Kafka broker.
    Kafka(Kafka),
    /// Nobody that could serve clients.
    Fault(Fault),
}

/// What a broker says of itself.
pub(super) struct Kafka {
    /// Its versions of each api.
    pub(super) offered: Vec<Offered>,
    /// Its cluster; it tells nobody who has not authenticated.
    pub(super) cluster: Option<Cluster>,
    /// The SASL mechanisms of the listener, where it wants SASL.
    pub(super) sasl: Option<Vec<String>>,
}

/// Why an address cannot serve clients.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("does not resolve here ({0})")]
    Resolve(String),
    #[error("refuses the connection: nothing listens there")]
    Refused,
    #[error("does not take the connection within {0:?}")]
    Timeout(Duration),
    #[error("cannot be connected to ({0})")]
    Connect(String),
    #[error("is hapax itself")]
    Loop,
    #[error("{}", speech(*.0))]
    Stranger(Stranger),
    #[error("is reached, but {0}")]
    Tls(HandshakeError),
    #[error("takes the connection and does not finish a TLS handshake within {0:?}")]
    TlsSilent(Duration),
    #[error("speaks Kafka's protocol in plaintext, and upstream.tls.enabled asks for TLS")]
    Plaintext,
    #[error("is reached, but {0}")]
    Login(LoginError),
    #[error("takes the connection and closes it on the first request")]
    HungUp,
    #[error("takes the connection and does not answer within {0:?}")]
    Silent(Duration),
    #[error("answers what is not Kafka's protocol ({0})")]
    NotKafka(String),
    #[error("is the listener of a KRaft controller, which serves no clients")]
    Controller,
    #[error("answers who it is, and closes when it is asked for the brokers")]
    Reserved,
    #[error("leads to a broker of another cluster")]
    OtherCluster,
}

fn speech(stranger: Stranger) -> &'static str {
    match stranger {
        Stranger::Tls => "speaks TLS, and upstream.tls.enabled is not set",
        Stranger::Http | Stranger::Http2 => "speaks HTTP, so that it is no Kafka listener",
        Stranger::ProxyProtocol => "sends a PROXY protocol header, which a broker never does",
    }
}

impl Fault {
    /// A word for scripts.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Resolve(_) => "unresolved",
            Self::Refused => "refused",
            Self::Timeout(_) => "timeout",
            Self::Connect(_) => "unreachable",
            Self::Loop => "itself",
            Self::Stranger(Stranger::Tls) => "tls",
            Self::Stranger(Stranger::Http | Stranger::Http2) => "http",
            Self::Stranger(Stranger::ProxyProtocol) => "proxy_protocol",
            Self::Tls(error) => error.reason.code(),
            Self::TlsSilent(_) => "tls_silent",
            Self::Plaintext => "plaintext",
            Self::Login(error) => error.code(),
            Self::HungUp => "closed",
            Self::Silent(_) => "silent",
            Self::NotKafka(_) => "not_kafka",
            Self::Controller => "controller",
            Self::Reserved => "reserved",
            Self::OtherCluster => "other_cluster",
        }
    }
}

impl From<DialError> for Fault {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Resolve { source, .. } => Self::Resolve(source.to_string()),
            DialError::Refused { .. } => Self::Refused,
            DialError::Connect { source, .. } => Self::Connect(source.to_string()),
            DialError::Timeout { after, .. } => Self::Timeout(after),
            DialError::Loop { .. } => Self::Loop,
            DialError::Tls { error, .. } => Self::Tls(error),
            DialError::TlsTimeout { after, .. } => Self::TlsSilent(after),
            // Nobody is left alone by one that asks once.
            DialError::Nothing | DialError::LeftAlone(_) => {
                Self::Resolve("it has no address".to_owned())
            }
            DialError::Login { error, .. } => Self::Login(error),
        }
    }
}

impl From<ProbeError> for Fault {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Dial(error) => error.into(),
            ProbeError::HungUp => Self::HungUp,
            ProbeError::Tls(error) => Self::Tls(error),
            ProbeError::Io(error) => Self::Connect(error.to_string()),
            ProbeError::Stranger(stranger) => Self::Stranger(stranger),
            ProbeError::Frame(error) => Self::NotKafka(error.to_string()),
            ProbeError::Wire(error) => Self::NotKafka(error.to_string()),
            ProbeError::Silent(after) => Self::Silent(after),
        }
    }
}

impl Examined {
    /// The broker, if there is one.
    pub(super) fn kafka(&self) -> Option<&Kafka> {
        match &self.found {
            Found::Kafka(kafka) => Some(kafka),
            Found::Fault(_) => None,
        }
    }

    /// Whether this is where a cluster was described.
    pub(super) fn is_of(&self, cluster: &Cluster) -> bool {
        let own = self.kafka().and_then(|kafka| kafka.cluster.as_ref());
        own.is_some_and(|own| std::ptr::eq(own, cluster))
    }
}

/// Finds out who is at an address.
pub(super) async fn examine(place: &Place, means: &Means) -> Examined {
    let mut examined = Examined {
        resolved: Vec::new(),
        reached: None,
        connected_in: Duration::ZERO,
        answered_in: Duration::ZERO,
        logged_in: None,
        found: Found::Fault(Fault::HungUp),
    };
    let asked = ask(place, means, &mut examined).await;
    examined.found = asked.map_or_else(Found::Fault, Found::Kafka);
    examined
}

async fn ask(place: &Place, means: &Means, examined: &mut Examined) -> Result<Kafka, Fault> {
    let (address, own) = (&place.address, &means.own);
    let patience = means.timeouts.connect;
    let began = Instant::now();
    examined.resolved = resolve(address, patience).await?;
    examined.resolved.truncate(ADDRESSES_MAX);
    let (reached, stream) = reach(address, &examined.resolved, patience, own).await?;
    examined.reached = Some(reached);
    examined.connected_in = began.elapsed();

    let began = Instant::now();
    let mut broker = Conversation::new(secure(stream, place, means).await?, patience);
    let offered = match broker.api_versions().await {
        Ok(offered) => offered,
        Err(error) if means.tls.is_for_brokers() => return Err(error.into()),
        Err(error) => return Err(explain(error, reached).await.into()),
    };
    examined.answered_in = began.elapsed();
    let newest = |api_key| {
        let mut offered = offered.iter();
        let found = offered.find(|offered| offered.api_key == api_key);
        found.map(|offered| offered.max)
    };
    let (Some(version), Some(_)) = (newest(api::METADATA), newest(api::PRODUCE)) else {
        return Err(Fault::Controller);
    };
    if means.sasl.is_on() {
        let stream = connect(address, reached, patience, own).await?;
        let stream = secure(stream, place, means).await?;
        let logged_in = log_in(stream, &means.sasl, means.timeouts.sasl).await;
        let (stream, login) = logged_in.map_err(Fault::Login)?;
        broker = Conversation::new(stream, patience);
        examined.logged_in = Some(login.principal);
    }
    let asked = broker.cluster(version.min(metadata::NEWEST)).await;
    let (cluster, sasl) = match asked {
        Ok(cluster) => (Some(cluster), None),
        // KIP-152: a listener that wants SASL closes on anything else.
        Err(ProbeError::HungUp) => {
            let stream = connect(address, reached, patience, own).await?;
            let stream = secure(stream, place, means).await?;
            let mut again = Conversation::new(stream, patience);
            match again.sasl_mechanisms().await {
                Ok(Some(mechanisms)) => (None, Some(mechanisms)),
                Ok(None) | Err(_) => return Err(Fault::Reserved),
            }
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Kafka {
        offered,
        cluster,
        sasl,
    })
}

/// Speaks TLS where that is configured. One that does not answer it is asked
/// whether it is a plaintext listener.
async fn secure(
    stream: tokio::net::TcpStream,
    place: &Place,
    means: &Means,
) -> Result<Stream, Fault> {
    let address = stream.peer_addr();
    let secured = means.dialler().secure(stream, &place.address, place.host());
    let error = match secured.await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    let unclear = match &error {
        DialError::TlsTimeout { .. } => true,
        DialError::Tls { error, .. } => matches!(error.reason, Reason::HungUp | Reason::NotTls),
        _ => false,
    };
    match address {
        Ok(address) if unclear && speaks_kafka(address).await => Err(Fault::Plaintext),
        _ => Err(error.into()),
    }
}

/// Connects to whichever of the addresses is the first to answer.
async fn reach(
    address: &HostPort,
    resolved: &[SocketAddr],
    patience: Duration,
    own: &Own,
) -> Result<(SocketAddr, tokio::net::TcpStream), DialError> {
    let mut tries = JoinSet::new();
    for to in resolved.iter().copied() {
        let (address, own) = (address.clone(), own.clone());
        tries.spawn(async move {
            let stream = connect(&address, to, patience, &own).await?;
            Ok((to, stream))
        });
    }
    let mut last = DialError::Nothing;
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(looped @ DialError::Loop { .. })) => return Err(looped),
            Ok(Err(error)) => last = error,
            // A try that panicked has reached nothing.
            Err(_) => {}
        }
    }
    Err(last)
}

/// The release that first offered what a broker offers, by the api versions
/// that came with it. Other makes of broker answer like one, too.
pub(super) fn release(offered: &[Offered]) -> &'static str {
    const CAME_WITH: [(i16, i16, &str); 13] = [
        (api::PRODUCE, 13, "4.1"),
        (api::PRODUCE, 12, "4.0"),
        (api::PRODUCE, 11, "3.8"),
        (api::PRODUCE, 10, "3.7"),
        (api::FETCH, 15, "3.5"),
        (api::FETCH, 13, "3.1"),
        (api::PRODUCE, 9, "2.8"),
        (api::FETCH, 12, "2.7"),
        (api::PRODUCE, 8, "2.4"),
        (api::FETCH, 11, "2.3"),
        (api::FETCH, 10, "2.1"),
        (api::FETCH, 8, "2.0"),
        (api::METADATA, 4, "0.11"),
    ];
    let has = |api_key, version| {
        let mut offered = offered.iter();
        offered.any(|offered| offered.api_key == api_key && offered.max >= version)
    };
    let mut releases = CAME_WITH.iter();
    let found = releases.find(|(api_key, version, _)| has(*api_key, *version));
    found.map_or("0.10", |(_, _, release)| release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sign_tells_the_release() {
        let offers = |apis: &[(i16, i16)]| -> Vec<Offered> {
            let offered = apis.iter().map(|(api_key, max)| Offered {
                api_key: *api_key,
                min: 0,
                max: *max,
            });
            offered.collect()
        };
        for (produce, fetch, expected) in [
            (13, 18, "4.1"),
            (12, 17, "4.0"),
            (11, 17, "3.8"),
            (9, 13, "3.1"),
            (9, 12, "2.8"),
            (3, 4, "0.10"),
        ] {
            let offered = offers(&[(api::PRODUCE, produce), (api::FETCH, fetch)]);
            assert_eq!(release(&offered), expected);
        }
    }
}
