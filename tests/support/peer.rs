//! A scripted upstream: a broker that answers little, and misbehaves for the
//! clients whose id names a misdeed.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, MetadataRequest, MetadataResponse, ProduceRequest,
    ProduceResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

/// What an upstream does to a client whose id is its [`Misdeed::name`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misdeed {
    /// Answers with a correlation id that nobody sent.
    UnknownCorrelation,
    /// Closes half-way through the answer.
    HalfAnAnswer,
    /// Announces an answer of 2^31−1 bytes.
    HugeAnswer,
    /// Announces an answer of −1 bytes.
    NegativeAnswer,
    /// Announces an answer that has no room for a correlation id.
    ShortAnswer,
    /// Answers with a TLS alert.
    TlsAlert,
    /// Answers Metadata with what is none.
    GarbledBody,
    /// Answers Fetch with 8 MiB.
    LargeAnswer,
    /// Reads nothing more.
    Deaf,
}

impl Misdeed {
    const ALL: [Self; 9] = [
        Self::UnknownCorrelation,
        Self::HalfAnAnswer,
        Self::HugeAnswer,
        Self::NegativeAnswer,
        Self::ShortAnswer,
        Self::TlsAlert,
        Self::GarbledBody,
        Self::LargeAnswer,
        Self::Deaf,
    ];

    /// The client id that asks for it.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// How a client id begins whose batches are acknowledged, each at the offset that
/// is its first sequence; any other's are refused.
pub const ACKNOWLEDGED: &str = "Acknowledged";

/// The upstream.
pub struct Peer {
    /// `127.0.0.1:port` where it listens.
    pub address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Frames of Produce and of unknown apis, without their lengths.
    frames: Mutex<Vec<Bytes>>,
    received: AtomicUsize,
}

/// Starts the upstream; its threads end with the test.
pub fn start() -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(State::default());
    let shared = Arc::clone(&state);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let state = Arc::clone(&shared);
            thread::Builder::new()
                .stack_size(128 << 10)
                .spawn(move || serve(stream, address.port(), &state))
                .unwrap();
        }
    });
    Peer {
        address: address.to_string(),
        state,
    }
}

impl Peer {
    /// The frames it got that it keeps: Produce and unknown apis.
    pub fn frames(&self) -> Vec<Bytes> {
        self.state.frames.lock().unwrap().clone()
    }

    /// All bytes it has read.
    pub fn received(&self) -> usize {
        self.state.received.load(Ordering::Relaxed)
    }
}

/// One connection, until the other side or a misdeed ends it.
fn serve(mut stream: TcpStream, port: u16, state: &State) {
    while let Ok(Some(frame)) = next_frame(&mut stream, state) {
        let Some(answer) = respond(&frame, port, state) else {
            return;
        };
        match answer {
            Answer::Bytes(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Answer::Large(head) => {
                if stream.write_all(&head).is_err() {
                    return;
                }
                // From one small buffer: many of them cost the test no memory.
                let mut left = LARGE;
                while left > 0 {
                    let some = left.min(FILL.len());
                    if stream.write_all(&FILL[..some]).is_err() {
                        return;
                    }
                    left -= some;
                }
            }
            Answer::Then(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Answer::Sleep => {
                // Long enough for every test; nothing reads the socket meanwhile.
                super::pause(Duration::from_secs(60));
                return;
            }
        }
    }
}

enum Answer {
    /// Send these, go on.
    Bytes(Bytes),
    /// Send these, close.
    Then(Bytes),
    /// Send this, and `LARGE` bytes behind it.
    Large(Bytes),
    /// Keep the connection and do nothing.
    Sleep,
}

/// Bytes of a large answer behind its head.
const LARGE: usize = 8 << 20;
static FILL: [u8; 64 << 10] = [7; 64 << 10];

fn next_frame(stream: &mut TcpStream, state: &State) -> io::Result<Option<Bytes>> {
    let mut length = [0; 4];
    if stream.read_exact(&mut length).is_err() {
        return Ok(None);
    }
    state.received.fetch_add(4, Ordering::Relaxed);
    let length = u64::from(u32::from_be_bytes(length));
    let mut frame = Vec::new();
    let mut part = [0; 16 << 10];
    while (frame.len() as u64) < length {
        let most = part
            .len()
            .min(usize::try_from(length).unwrap() - frame.len());
        let read = stream.read(&mut part[..most])?;
        if read == 0 {
            return Ok(None);
        }
        state.received.fetch_add(read, Ordering::Relaxed);
        frame.extend(&part[..read]);
    }
    Ok(Some(frame.into()))
}

fn respond(frame: &Bytes, port: u16, state: &State) -> Option<Answer> {
    let key = i16::from_be_bytes(frame[..2].try_into().unwrap());
    let version = i16::from_be_bytes(frame[2..4].try_into().unwrap());
    let correlation = i32::from_be_bytes(frame[4..8].try_into().unwrap());
    let Ok(api) = ApiKey::try_from(key) else {
        state.frames.lock().unwrap().push(frame.clone());
        return Some(Answer::Bytes(framed(correlation, b"of an unknown api")));
    };
    let mut body = frame.clone();
    let header = RequestHeader::decode(&mut body, api.request_header_version(version)).ok()?;
    let client = header.client_id.as_deref().unwrap_or_default();
    let asked = Misdeed::ALL
        .into_iter()
        .find(|misdeed| misdeed.name() == client);
    if let Some(misdeed) = asked
        && api != ApiKey::ApiVersions
    {
        return Some(misbehave(misdeed, correlation));
    }
    match api {
        ApiKey::ApiVersions => {
            let keys = ApiKey::iter().map(|api| {
                let range = api.valid_versions();
                ApiVersion::default()
                    .with_api_key(api as i16)
                    .with_min_version(range.min)
                    .with_max_version(range.max)
            });
            let answer = ApiVersionsResponse::default().with_api_keys(keys.collect());
            Some(Answer::Bytes(encoded(correlation, version, &answer)))
        }
        ApiKey::Metadata => {
            let request = MetadataRequest::decode(&mut body, version).ok()?;
            let answer = metadata(&request, port);
            Some(Answer::Bytes(encoded(correlation, version, &answer)))
        }
        ApiKey::Produce => {
            let acknowledged = client.starts_with(ACKNOWLEDGED);
            if !acknowledged {
                state.frames.lock().unwrap().push(frame.clone());
            }
            let request = ProduceRequest::decode(&mut body, version).ok()?;
            let answer = produced(&request, acknowledged);
            Some(Answer::Bytes(if request.acks == 0 {
                Bytes::new()
            } else {
                encoded(correlation, version, &answer)
            }))
        }
        _ => Some(Answer::Bytes(framed(correlation, b"something opaque"))),
    }
}

fn misbehave(misdeed: Misdeed, correlation: i32) -> Answer {
    let right = framed(correlation, &[7; 100]);
    match misdeed {
        Misdeed::UnknownCorrelation => {
            Answer::Bytes(framed(correlation.wrapping_add(1000), &[7; 100]))
        }
        Misdeed::HalfAnAnswer => Answer::Then(right.slice(..50)),
        Misdeed::HugeAnswer => Answer::Bytes(i32::MAX.to_be_bytes().to_vec().into()),
        Misdeed::NegativeAnswer => Answer::Bytes((-1_i32).to_be_bytes().to_vec().into()),
        Misdeed::ShortAnswer => Answer::Bytes(vec![0, 0, 0, 2, 0, 0].into()),
        Misdeed::TlsAlert => Answer::Bytes(vec![0x15, 3, 3, 0, 2, 2, 70].into()),
        Misdeed::GarbledBody => Answer::Bytes(framed(correlation, &[0xff; 100])),
        Misdeed::LargeAnswer => {
            let length = u32::try_from(LARGE + 4).unwrap();
            let head = [length.to_be_bytes(), correlation.to_be_bytes()].concat();
            Answer::Large(head.into())
        }
        Misdeed::Deaf => Answer::Sleep,
    }
}

fn metadata(request: &MetadataRequest, port: u16) -> MetadataResponse {
    let broker = MetadataResponseBroker::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(i32::from(port));
    let asked = request.topics.iter().flatten();
    let topics = asked.map(|topic| {
        let partition = MetadataResponsePartition::default()
            .with_leader_id(1.into())
            .with_replica_nodes(vec![1.into()])
            .with_isr_nodes(vec![1.into()]);
        MetadataResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(vec![partition])
    });
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_static_str("peer")))
        .with_controller_id(1.into())
        .with_topics(topics.collect())
}

/// The first sequence of a batch, 53 bytes into it.
fn first_sequence(records: &[u8]) -> i64 {
    let bytes = records.get(53..57).and_then(|bytes| bytes.try_into().ok());
    i64::from(bytes.map_or(-1, i32::from_be_bytes))
}

fn produced(request: &ProduceRequest, acknowledged: bool) -> ProduceResponse {
    let topics = request.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            let records = partition.records.as_deref().unwrap_or_default();
            let (error, offset) = match acknowledged {
                true => (0, first_sequence(records)),
                false => (87, -1),
            };
            PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_error_code(error)
                .with_base_offset(offset)
        });
        TopicProduceResponse::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions.collect())
    });
    ProduceResponse::default().with_responses(topics.collect())
}

fn encoded<M: Encodable + HeaderVersion>(correlation: i32, version: i16, message: &M) -> Bytes {
    let mut frame = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(correlation)
        .encode(&mut frame, M::header_version(version))
        .unwrap();
    message.encode(&mut frame, version).unwrap();
    let body = frame.freeze().split_off(4);
    framed(correlation, body.chunk())
}

fn framed(correlation: i32, rest: &[u8]) -> Bytes {
    let mut frame = u32::try_from(rest.len() + 4)
        .unwrap()
        .to_be_bytes()
        .to_vec();
    frame.extend(correlation.to_be_bytes());
    frame.extend(rest);
    frame.into()
}
