//! Frames that are encoded once and patched for every send, answers that are
//! read by hand, and a client for the few calls before the load begins.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponsePartition;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, InitProducerIdRequest,
    InitProducerIdResponse, MetadataRequest, MetadataResponse, ProduceRequest, RequestHeader,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

use super::process;
use crate::support::batch::Batch;

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const METADATA: i16 = 3;
pub const API_VERSIONS: i16 = 18;
pub const INIT_PRODUCER_ID: i16 = 22;

/// The first versions of Produce with a compact layout and with topic ids.
pub const PRODUCE_COMPACT: i16 = 9;
pub const PRODUCE_TOPIC_IDS: i16 = 13;
/// What the Java clients of Kafka 4.4 send.
pub const FETCH_VERSION: i16 = 17;
/// Bytes of a record batch before its records.
pub const BATCH_HEAD: usize = 61;

const CLIENT_ID: &str = "load";
/// Where the correlation id lies in a request frame, its length included.
const CORRELATION_AT: usize = 8;
const CRC_AT: usize = 17;
/// Where the checksum begins to count.
const CHECKED_AT: usize = 21;
const PRODUCER_AT: usize = 43;
const SEQUENCE_AT: usize = 53;

/// A topic as Metadata describes it.
pub struct Topic {
    pub name: String,
    pub id: Uuid,
    pub partitions: usize,
    /// Where the leader of its first partition listens.
    pub leader: SocketAddr,
}

/// What the batches of a [`Produce`] are.
pub struct BatchShape {
    /// Bytes of the batch, its head included, to within a few.
    pub bytes: usize,
    pub records: i32,
    /// `None`: a producer without idempotence.
    pub producer: Option<(i64, i16)>,
}

/// A batch of `bytes` with one timestamp for all of its records: now.
pub fn batch(shape: &BatchShape) -> Bytes {
    let records = usize::try_from(shape.records).unwrap();
    // Lengths, deltas and the absent key and headers of a record.
    let overhead = 12;
    let value = ((shape.bytes - BATCH_HEAD) / records).saturating_sub(overhead);
    let values = vec![vec![7; value]; records];
    let (producer, epoch) = shape.producer.unwrap_or((-1, -1));
    let sequence = if shape.producer.is_some() { 0 } else { -1 };
    let mut batch = Batch::of(producer, epoch, sequence, values);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    batch.base_timestamp = i64::try_from(now.as_millis()).unwrap();
    batch.bytes()
}

/// A Produce frame with one batch for each of its partitions, all alike.
pub struct Produce {
    pub frame: Vec<u8>,
    pub records: i32,
    /// Bytes of all of its batches.
    pub payload: usize,
    acks_at: usize,
    /// Where the partition numbers and the batches lie.
    partitions: Vec<(usize, usize)>,
    checksum: Checksum,
    first_producer: i64,
}

impl Produce {
    pub fn new(
        version: i16,
        acks: i16,
        topic: &Topic,
        partitions: &[i32],
        of: &BatchShape,
    ) -> Self {
        let batch = batch(of);
        let frame = request(
            PRODUCE,
            version,
            &produce(version, acks, topic, partitions, &batch),
        );
        let acks_at = 14 + CLIENT_ID.len() + 2;
        assert_eq!(frame[acks_at..acks_at + 2], acks.to_be_bytes());
        let mut slots = Vec::new();
        let mut from = 0;
        for partition in partitions {
            let at = from + find(&frame[from..], &batch);
            let length = if version < PRODUCE_COMPACT {
                4
            } else {
                unsigned_length(batch.len() + 1)
            };
            let partition_at = at - length - 4;
            assert_eq!(
                frame[partition_at..partition_at + 4],
                partition.to_be_bytes()
            );
            slots.push((partition_at, at));
            from = at + batch.len();
        }
        Self {
            frame,
            records: of.records,
            payload: batch.len() * partitions.len(),
            acks_at,
            partitions: slots,
            checksum: Checksum::of(&batch),
            first_producer: of.producer.map_or(-1, |(id, _)| id),
        }
    }

    /// Makes it the next request of its one producer.
    pub fn patch(&mut self, correlation: i32, sequence: i32) {
        self.patch_all(correlation, self.first_producer, sequence);
    }

    /// Makes it a request of another producer.
    pub fn patch_all(&mut self, correlation: i32, producer: i64, sequence: i32) {
        put(&mut self.frame, CORRELATION_AT, &correlation.to_be_bytes());
        if self.first_producer < 0 {
            return;
        }
        let crc = self.checksum.with(producer ^ self.first_producer, sequence);
        for (_, at) in &self.partitions {
            put(&mut self.frame, at + CRC_AT, &crc.to_be_bytes());
            put(&mut self.frame, at + PRODUCER_AT, &producer.to_be_bytes());
            put(&mut self.frame, at + SEQUENCE_AT, &sequence.to_be_bytes());
        }
    }

    pub fn patch_acks(&mut self, acks: i16) {
        put(&mut self.frame, self.acks_at, &acks.to_be_bytes());
    }

    /// Numbers its partitions from `first` on.
    pub fn patch_partitions(&mut self, first: i32) {
        for ((at, _), partition) in self.partitions.iter().zip(first..) {
            put(&mut self.frame, *at, &partition.to_be_bytes());
        }
    }
}

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The checksum of a batch under changes of its producer id and sequence,
/// without reading the batch again: a CRC is linear.
struct Checksum {
    zero: u32,
    /// What each bit of the sequence changes, the lowest first.
    sequence: [u32; 32],
    /// What each of the lower bits of the producer id changes.
    producer: [u32; 32],
}

impl Checksum {
    fn of(batch: &[u8]) -> Self {
        let mut checked = batch[CHECKED_AT..].to_vec();
        let zero = crc32c::crc32c(&checked);
        let mut bits = |end: usize| {
            let end = end - CHECKED_AT;
            std::array::from_fn(|bit| {
                let at = end - 1 - bit / 8;
                checked[at] ^= 1 << (bit % 8);
                let change = crc32c::crc32c(&checked) ^ zero;
                checked[at] ^= 1 << (bit % 8);
                change
            })
        };
        Self {
            zero,
            sequence: bits(SEQUENCE_AT + 4),
            producer: bits(PRODUCER_AT + 8),
        }
    }

    fn with(&self, producer_change: i64, sequence: i32) -> u32 {
        let producer_change = u32::try_from(producer_change).expect("small producer ids");
        self.zero
            ^ combine(&self.sequence, sequence.cast_unsigned())
            ^ combine(&self.producer, producer_change)
    }
}

fn combine(changes: &[u32; 32], mut bits: u32) -> u32 {
    let mut crc = 0;
    while bits != 0 {
        crc ^= changes[bits.trailing_zeros() as usize];
        bits &= bits - 1;
    }
    crc
}

fn produce(
    version: i16,
    acks: i16,
    topic: &Topic,
    partitions: &[i32],
    batch: &Bytes,
) -> ProduceRequest {
    let data = partitions.iter().map(|partition| {
        PartitionProduceData::default()
            .with_index(*partition)
            .with_records(Some(batch.clone()))
    });
    let mut of_topic = TopicProduceData::default().with_partition_data(data.collect());
    if version < PRODUCE_TOPIC_IDS {
        of_topic.name = topic_name(&topic.name);
    } else {
        of_topic.topic_id = topic.id;
    }
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![of_topic])
}

/// A Fetch frame of one partition, outside of any fetch session.
pub struct Fetch {
    pub frame: Vec<u8>,
    offset_at: usize,
}

impl Fetch {
    pub fn new(topic: &Topic, partition: i32, max_bytes: i32) -> Self {
        // A mark to find the offset by.
        let mark = 0x1122_3344_5566_7788;
        let fetched = FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(mark)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(max_bytes);
        let of_topic = FetchTopic::default()
            .with_topic_id(topic.id)
            .with_partitions(vec![fetched]);
        let body = FetchRequest::default()
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(max_bytes)
            .with_session_epoch(-1)
            .with_topics(vec![of_topic]);
        let frame = request(FETCH, FETCH_VERSION, &body);
        let offset_at = find(&frame, &mark.to_be_bytes());
        Self { frame, offset_at }
    }

    pub fn patch(&mut self, correlation: i32, offset: i64) {
        put(&mut self.frame, CORRELATION_AT, &correlation.to_be_bytes());
        put(&mut self.frame, self.offset_at, &offset.to_be_bytes());
    }
}

/// What a Produce response says of one partition.
pub struct Answer {
    pub partition: i32,
    pub error: i16,
    pub offset: i64,
}

/// Gives every partition of a Produce response, from its correlation id on.
pub fn answers(version: i16, mut body: &[u8], mut each: impl FnMut(Answer)) {
    let compact = version >= PRODUCE_COMPACT;
    body.advance(4);
    if compact {
        no_tags(&mut body);
    }
    assert_eq!(length(&mut body, compact), 1, "one topic was sent");
    if version >= PRODUCE_TOPIC_IDS {
        body.advance(16);
    } else {
        let name = if compact {
            unsigned(&mut body) - 1
        } else {
            usize::from(body.get_u16())
        };
        body.advance(name);
    }
    for _ in 0..length(&mut body, compact) {
        let partition = body.get_i32();
        let error = body.get_i16();
        let offset = body.get_i64();
        each(Answer {
            partition,
            error,
            offset,
        });
        body.advance(if version < 5 { 8 } else { 16 });
        if version >= 8 {
            assert_eq!(length(&mut body, compact), 0, "no record is wrong");
            let message = if compact {
                unsigned(&mut body) == 0
            } else {
                body.get_i16() == -1
            };
            assert!(message, "no message without an error");
        }
        if compact {
            no_tags(&mut body);
        }
    }
}

/// What a Fetch response says of its one partition, before its records.
#[derive(Debug, PartialEq)]
pub struct Fetched {
    pub error: i16,
    pub partition: i32,
    /// Bytes of the records, and where they begin in the body.
    pub records: usize,
    pub records_at: usize,
    pub base_offset: i64,
}

/// The bytes of a Fetch response that `fetched` wants to see at most.
pub const FETCH_HEAD: usize = 160;

/// Reads the head of a Fetch response, from its correlation id on, which has
/// [`FETCH_HEAD`] bytes or all that there are.
pub fn fetched(body: &[u8]) -> Fetched {
    let mut rest = body;
    rest.advance(4);
    no_tags(&mut rest);
    rest.advance(4);
    let whole = rest.get_i16();
    assert_eq!(whole, 0, "error {whole} for all of a Fetch");
    rest.advance(4);
    assert_eq!(unsigned(&mut rest), 2, "one topic was asked for");
    rest.advance(16);
    assert_eq!(unsigned(&mut rest), 2, "one partition was asked for");
    let partition = rest.get_i32();
    let error = rest.get_i16();
    rest.advance(24);
    let aborted = unsigned(&mut rest);
    assert!(aborted <= 1, "aborted transactions");
    rest.advance(4);
    let records = unsigned(&mut rest).saturating_sub(1);
    Fetched {
        error,
        partition,
        records,
        records_at: body.len() - rest.len(),
        base_offset: if records < 8 { -1 } else { rest.get_i64() },
    }
}

fn no_tags(body: &mut &[u8]) {
    assert_eq!(body.get_u8(), 0, "tags that nobody expects");
}

fn length(body: &mut &[u8], compact: bool) -> usize {
    if compact {
        unsigned(body) - 1
    } else {
        usize::try_from(body.get_i32()).unwrap()
    }
}

/// A variable-length number without a sign.
pub fn unsigned(body: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = body.get_u8();
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn unsigned_length(value: usize) -> usize {
    (1..).find(|bytes| value >> (7 * bytes) == 0).unwrap()
}

/// Where `part` begins in `whole`.
pub fn find(whole: &[u8], part: &[u8]) -> usize {
    let mut windows = whole.windows(part.len());
    windows
        .position(|window| window == part)
        .expect("it is in there")
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// A request frame, its length included.
pub fn request<Q: Encodable + HeaderVersion>(key: i16, version: i16, body: &Q) -> Vec<u8> {
    let mut frame = BytesMut::from(&[0; 4][..]);
    RequestHeader::default()
        .with_request_api_key(key)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)))
        .encode(&mut frame, Q::header_version(version))
        .unwrap();
    body.encode(&mut frame, version).unwrap();
    let length = u32::try_from(frame.len() - 4).unwrap();
    put(&mut frame, 0, &length.to_be_bytes());
    frame.to_vec()
}

/// A blocking connection, for all that is not measured and for paced loads.
pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
        stream.set_nodelay(true).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        stream.set_write_timeout(limit).unwrap();
        Self(stream)
    }

    /// What every client asks first.
    pub fn api_versions(&mut self) {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(CLIENT_ID))
            .with_client_software_version(StrBytes::from_static_str("0"));
        let answer: ApiVersionsResponse = self.call(API_VERSIONS, 3, &request);
        assert_eq!(answer.error_code, 0, "ApiVersions");
    }

    /// A producer id with its epoch; patient with a broker that just started.
    pub fn producer(&mut self) -> (i64, i16) {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        patiently("InitProducerId", || {
            let answer: InitProducerIdResponse = self.call(INIT_PRODUCER_ID, 4, &request);
            let given = (answer.producer_id.0, answer.producer_epoch);
            (answer.error_code == 0).then_some(given)
        })
    }

    /// A topic that exists, or that the broker makes, once it has its leaders.
    pub fn topic(&mut self, name: &str) -> Topic {
        let of_topic = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request = MetadataRequest::default().with_topics(Some(vec![of_topic]));
        patiently("Metadata", || {
            let answer: MetadataResponse = self.call(METADATA, 12, &request);
            let found = answer.topics.first()?;
            let led = |partition: &MetadataResponsePartition| partition.error_code == 0;
            let first = found.partitions.first()?;
            if !found.partitions.iter().all(led) {
                return None;
            }
            let leader = answer
                .brokers
                .iter()
                .find(|broker| broker.node_id == first.leader_id)?;
            let host = (leader.host.as_str(), u16::try_from(leader.port).unwrap());
            Some(Topic {
                name: name.to_owned(),
                id: found.topic_id,
                partitions: found.partitions.len(),
                leader: host.to_socket_addrs().unwrap().next()?,
            })
        })
    }

    fn call<Q, R>(&mut self, key: i16, version: i16, body: &Q) -> R
    where
        Q: Encodable + HeaderVersion,
        R: Decodable + HeaderVersion,
    {
        self.0.write_all(&request(key, version, body)).unwrap();
        let mut frame = self.receive();
        ResponseHeader::decode(&mut frame, R::header_version(version)).unwrap();
        R::decode(&mut frame, version).unwrap()
    }

    /// The next response, from its correlation id on.
    pub fn receive(&mut self) -> Bytes {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut body).unwrap();
        body.into()
    }
}

fn patiently<T>(what: &str, mut call: impl FnMut() -> Option<T>) -> T {
    for _ in 0..100 {
        if let Some(answer) = call() {
            return answer;
        }
        process::rest(Duration::from_millis(100));
    }
    panic!("{what} is refused for ten seconds");
}
