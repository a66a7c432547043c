//! Asking a broker what it is, with hapax's own few requests.

use super::DialError;
use crate::timers::timeout;
use crate::tls::{HandshakeError, Stream};
use crate::wire::api_versions::{self, Offered};
use crate::wire::frame::{self, FrameError, Stranger};
use crate::wire::metadata::{self, Cluster};
use crate::wire::{WireError, sasl};
use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, MetadataRequest, RequestHeader, SaslHandshakeRequest, TopicName,
};
use kafka_protocol::protocol::{Encodable, Request, StrBytes};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest answer that is believed. None of those asked for here lists
/// topics, and ten thousand brokers fit.
const ANSWER_MAX: usize = 1024 * 1024;
/// How long a peer is waited for that may speak something else.
const TLS_PATIENCE: Duration = Duration::from_secs(2);

/// Why the upstream is not ready for clients.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It cannot be connected to.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It closed the connection instead of answering.
    #[error(
        "the upstream hung up on the first request: it is no Kafka listener for clients, or refuses this machine"
    )]
    HungUp,
    /// The connection broke.
    #[error("the connection to the upstream broke: {0}")]
    Io(io::Error),
    /// What was agreed on by TLS is taken back: so a broker refuses a
    /// certificate in TLS 1.3.
    #[error("the upstream is reached, but {0}")]
    Tls(HandshakeError),
    /// It speaks another protocol.
    #[error("{}", of_upstream(*.0))]
    Stranger(Stranger),
    /// What it says is no frame.
    #[error("the upstream does not speak Kafka's protocol: {0}")]
    Frame(FrameError),
    /// What it says is not what was asked for.
    #[error("the upstream does not speak Kafka's protocol: {0}")]
    Wire(#[from] WireError),
    /// It says nothing.
    #[error("the upstream did not answer within {0:?}")]
    Silent(Duration),
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> Self {
        if let Some(error) = HandshakeError::within(&error) {
            return Self::Tls(error.clone());
        }
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => Self::HungUp,
            _ => Self::Io(error),
        }
    }
}

/// What is wrong with an upstream that is no Kafka listener, and what to do.
#[must_use]
pub fn of_upstream(stranger: Stranger) -> &'static str {
    match stranger {
        Stranger::Tls => {
            "the upstream port speaks TLS: set upstream.tls.enabled (--upstream-tls-enabled=true), with upstream.tls.caFile where its CA is not one of the system's"
        }
        Stranger::Http | Stranger::Http2 => {
            "the upstream port speaks HTTP, it is no Kafka: give the port of a Kafka listener"
        }
        Stranger::ProxyProtocol => {
            "the upstream sends a PROXY protocol header: turn it off where that comes from"
        }
    }
}

/// Asks for the API versions, which any broker answers to anyone.
///
/// # Errors
///
/// Where no sound answer comes in time.
pub async fn ask(upstream: Stream, patience: Duration) -> Result<(), ProbeError> {
    let address = upstream.tcp().peer_addr();
    let plain = upstream.plain().is_some();
    let mut conversation = Conversation::new(upstream, patience);
    match (conversation.api_versions().await, address) {
        (Ok(_), _) => Ok(()),
        (Err(error), Ok(address)) if plain => Err(explain(error, address).await),
        (Err(error), _) => Err(error),
    }
}

/// A broker that wants TLS may just hang up on plaintext, or wait for more of
/// it: it is asked once more, in TLS.
pub async fn explain(error: ProbeError, address: SocketAddr) -> ProbeError {
    let unclear = matches!(
        error,
        ProbeError::HungUp | ProbeError::Silent(_) | ProbeError::Frame(_) | ProbeError::Wire(_)
    );
    if unclear && speaks_tls(address).await {
        return ProbeError::Stranger(Stranger::Tls);
    }
    error
}

/// Whether a handshake of TLS is answered by one, or by an alert.
async fn speaks_tls(address: SocketAddr) -> bool {
    let exchange = async {
        let mut peer = TcpStream::connect(address).await?;
        peer.write_all(&client_hello()).await?;
        let mut first = [0; 4];
        peer.read_exact(&mut first).await?;
        Ok::<_, io::Error>(first)
    };
    match timeout(TLS_PATIENCE, exchange).await {
        Ok(Ok(first)) => Stranger::recognise(&first) == Some(Stranger::Tls),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Whether a broker answers there in plaintext.
pub async fn speaks_kafka(address: SocketAddr) -> bool {
    let Ok(Ok(peer)) = timeout(TLS_PATIENCE, TcpStream::connect(address)).await else {
        return false;
    };
    let mut conversation = Conversation::new(Stream::Plain(peer), TLS_PATIENCE);
    conversation.api_versions().await.is_ok()
}

/// The least ClientHello of TLS 1.2 (RFC 5246, 7.4.1.2): it only has to make
/// the peer answer, be it by an alert, and leads to no session.
fn client_hello() -> Vec<u8> {
    const VERSION: [u8; 2] = [3, 3];
    const SUITES: [u16; 4] = [0xc02f, 0xc02b, 0xc030, 0x009c];
    let mut hello = Vec::new();
    hello.extend(VERSION);
    hello.extend(b"hapax asks whether this is TLS..");
    hello.push(0);
    hello.put_u16(8);
    SUITES.iter().for_each(|suite| hello.put_u16(*suite));
    hello.extend([1, 0]);
    let length = u8::try_from(hello.len()).expect("it is a few bytes");
    let handshake = [1, 0, 0, length];
    let mut record = vec![0x16, 3, 1, 0, length + 4];
    record.extend(handshake);
    record.extend(hello);
    record
}

/// A connection on which hapax asks for itself, one request at a time.
pub struct Conversation {
    broker: Stream,
    /// How long one answer may take.
    patience: Duration,
    asked: i32,
}

impl Conversation {
    /// Nothing has been said on the connection yet.
    #[must_use]
    pub fn new(broker: Stream, patience: Duration) -> Self {
        Self {
            broker,
            patience,
            asked: 0,
        }
    }

    /// The connection, between two requests.
    pub(super) fn into_stream(self) -> Stream {
        self.broker
    }

    /// The answer to a whole frame of the caller's.
    pub(super) async fn answer(&mut self, frame: &[u8]) -> Result<Vec<u8>, ProbeError> {
        timeout(self.patience, self.exchange(frame))
            .await
            .unwrap_or(Err(ProbeError::Silent(self.patience)))
    }

    /// The versions that the broker has of each api; asked for in the oldest
    /// version, which every broker knows.
    ///
    /// # Errors
    ///
    /// Where no sound answer comes in time.
    pub async fn api_versions(&mut self) -> Result<Vec<Offered>, ProbeError> {
        let answer = self.ask(0, &ApiVersionsRequest::default()).await?;
        Ok(api_versions::offered(&answer)?)
    }

    /// The answer to ApiVersions of this version, from 0 to 4, as it came.
    ///
    /// # Errors
    ///
    /// Where none comes in time.
    pub async fn api_versions_in(&mut self, version: i16) -> Result<Vec<u8>, ProbeError> {
        let name = StrBytes::from_static_str("hapax");
        let request = match version {
            0..3 => ApiVersionsRequest::default(),
            _ => ApiVersionsRequest::default()
                .with_client_software_name(name)
                .with_client_software_version(StrBytes::from_static_str(OWN_VERSION)),
        };
        self.ask(version, &request).await
    }

    /// The cluster without its topics.
    ///
    /// # Errors
    ///
    /// Where no sound answer comes in time.
    pub async fn cluster(&mut self, version: i16) -> Result<Cluster, ProbeError> {
        let request = MetadataRequest::default().with_topics(Some(Vec::new()));
        let answer = self.ask(version, &request).await?;
        Ok(metadata::cluster(version, &answer)?)
    }

    /// The answer to Metadata for these topics, none of which is made by it.
    /// Without any it shows the cluster alone.
    ///
    /// # Errors
    ///
    /// Where no answer comes in time.
    pub async fn describe(
        &mut self,
        version: i16,
        topics: &[String],
    ) -> Result<Vec<u8>, ProbeError> {
        let topics = topics.iter().map(|name| {
            let name = StrBytes::from_string(name.clone());
            MetadataRequestTopic::default().with_name(Some(TopicName(name)))
        });
        let request = MetadataRequest::default()
            .with_topics(Some(topics.collect()))
            // Older versions cannot say so, and ask for no topic.
            .with_allow_auto_topic_creation(version < 4);
        self.ask(version, &request).await
    }

    /// The SASL mechanisms of the listener; `None` where it wants no SASL.
    /// Nobody authenticates by this.
    ///
    /// # Errors
    ///
    /// Where no sound answer comes in time.
    pub async fn sasl_mechanisms(&mut self) -> Result<Option<Vec<String>>, ProbeError> {
        let mechanism = StrBytes::from_static_str("PLAIN");
        let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
        let answer = self.ask(1, &request).await?;
        let wanted = match sasl::handshake_error(&answer)? {
            0 | UNSUPPORTED_SASL_MECHANISM => Some(sasl::handshake_mechanisms(&answer)?),
            _ => None,
        };
        Ok(wanted)
    }

    async fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<Vec<u8>, ProbeError> {
        let frame = encode(version, self.asked, request);
        self.asked += 1;
        self.answer(&frame).await
    }

    async fn exchange(&mut self, frame: &[u8]) -> Result<Vec<u8>, ProbeError> {
        self.broker.write_all(frame).await?;
        self.broker.flush().await?;
        let mut prefix = [0; 4];
        self.broker.read_exact(&mut prefix).await?;
        let length = frame::length(prefix, frame::MIN_RESPONSE, ANSWER_MAX).map_err(|error| {
            Stranger::recognise(&prefix).map_or(ProbeError::Frame(error), ProbeError::Stranger)
        })?;
        let mut answer = Vec::new();
        let mut limited = (&mut self.broker).take(length as u64);
        if limited.read_to_end(&mut answer).await? < length {
            return Err(ProbeError::HungUp);
        }
        Ok(answer)
    }
}

/// A whole request frame, length first.
fn encode<R: Request>(version: i16, correlation_id: i32, request: &R) -> BytesMut {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("hapax")));
    let mut body = BytesMut::new();
    header
        .encode(&mut body, R::header_version(version))
        .and_then(|()| request.encode(&mut body, version))
        .expect("the requests made here have nothing that could be out of range");
    let mut whole = BytesMut::with_capacity(4 + body.len());
    whole.put_u32(u32::try_from(body.len()).expect("it is a few bytes"));
    whole.extend_from_slice(&body);
    whole
}

/// What brokers show of who asks.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");
/// The broker has SASL, but not this mechanism.
const UNSUPPORTED_SASL_MECHANISM: i16 = 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_one_that_every_broker_knows() {
        let expected = b"\0\0\0\x0f\0\x12\0\0\0\0\0\0\0\x05hapax";
        assert_eq!(
            encode(0, 0, &ApiVersionsRequest::default()),
            expected.as_slice()
        );
    }

    #[test]
    fn metadata_is_asked_for_without_topics_in_every_version() {
        for version in metadata::OLDEST..=metadata::NEWEST {
            let request = MetadataRequest::default().with_topics(Some(Vec::new()));
            // Null would ask for every topic of the cluster.
            let frame = encode(version, 0, &request);
            let topics: &[u8] = if version >= 9 { &[0, 1] } else { &[0; 4] };
            assert!(frame[19..].starts_with(topics), "version {version}");
        }
    }

    #[test]
    fn a_hello_says_its_own_length() {
        let hello = client_hello();
        assert_eq!(usize::from(hello[4]), hello.len() - 5);
        assert_eq!(usize::from(hello[8]), hello.len() - 9);
        assert_eq!(Stranger::recognise(&hello), Some(Stranger::Tls));
    }
}
