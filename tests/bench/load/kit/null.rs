//! An upstream that does next to nothing: it acknowledges batches without
//! reading their records and answers fetches from memory.
//!
//! The base offset of a batch is its sequence, so that whoever sent a batch
//! can tell a right answer from a wrong one, and so that a repetition is
//! answered as the original was. How many batches have arrived can be asked.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, FetchRequest, FetchResponse, InitProducerIdResponse,
    MetadataRequest, MetadataResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::net::{RecvFlags, recv};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use uuid::Uuid;

use super::process::{self, Listener};
use super::wire::{self, BATCH_HEAD, BatchShape};

/// Partitions of every topic.
pub const PARTITIONS: i32 = 1000;
/// Bytes and records of what a fetch gets.
pub const FETCH_BYTES: usize = 1_048_576;
pub const FETCH_RECORDS: i32 = 1000;

const TOPIC_ID: Uuid = Uuid::from_u128(0x6c6f_6164_0000_4000_8000_0000_0000_0001);
const NODE: i32 = 1;
/// An API of its own, for [`received`].
const COUNT: i16 = 31_000;
const READ: usize = 256 * 1024;
/// Records longer than this are dropped by the kernel, without a copy.
const DROPPED: usize = 8 * 1024;

/// Starts one.
pub fn start() -> Listener {
    Listener::part(&[super::NULL, "honest"])
}

/// Starts one that gives its 100th batch a wrong offset.
pub fn start_lying() -> Listener {
    Listener::part(&[super::NULL, "lying"])
}

/// Batches that it has received since its start.
pub fn received(null: SocketAddr) -> u64 {
    let mut client = wire::Client::connect(null);
    let mut frame = vec![0; 4];
    frame.put_i16(COUNT);
    frame.put_slice(&[0; 8]);
    frame[3] = 10;
    client.0.write_all(&frame).unwrap();
    let mut answer = client.receive();
    answer.advance(4);
    answer.get_u64()
}

struct Null {
    port: u16,
    next_producer: i64,
    batches: u64,
    /// The number of the batch that gets a wrong offset.
    lie_at: Option<u64>,
    fetch: FetchAnswer,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// Bytes that do not make a unit yet.
    rest: Vec<u8>,
    /// Bytes of records that are still to be dropped.
    drop: usize,
    produce: Option<Produce>,
    out: Vec<u8>,
    /// How much of `out` may leave: an answer leaves whole.
    whole: usize,
    /// Where in `out` the records of a fetch belong, and how many have left.
    bulk: Option<(usize, usize)>,
}

/// A Produce request of which the head has been read.
struct Produce {
    version: i16,
    acks: i16,
    topics: usize,
    partitions: usize,
    state: State,
    /// Where in `out` its answer begins.
    answer_at: usize,
}

#[derive(Clone, Copy)]
enum State {
    Topic,
    Partition,
    /// After the records of a partition.
    PartitionEnd,
    TopicEnd,
    End,
}

/// Prints where it listens and answers until it is killed.
pub(super) fn run(manner: &str) {
    process::raise_file_limit();
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    println!("{address}");
    let mut null = Null {
        port: address.port(),
        next_producer: 1000,
        batches: 0,
        lie_at: (manner == "lying").then_some(100),
        fetch: FetchAnswer::new(),
        buffer: vec![0; READ],
    };
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(1024);
    let accept = Token(usize::MAX);
    poll.registry()
        .register(&mut listener, accept, Interest::READABLE)
        .unwrap();
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        if let Err(error) = poll.poll(&mut events, None) {
            assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
            continue;
        }
        for event in &events {
            if event.token() == accept {
                while let Ok((stream, _)) = listener.accept() {
                    let free = connections.iter().position(Option::is_none);
                    let at = free.unwrap_or_else(|| {
                        connections.push(None);
                        connections.len() - 1
                    });
                    connections[at] = Some(Connection::new(stream, &poll, Token(at)));
                }
                continue;
            }
            let slot = &mut connections[event.token().0];
            if slot.as_mut().is_some_and(|one| !one.drive(&mut null)) {
                *slot = None;
            }
        }
    }
}

impl Connection {
    fn new(mut stream: TcpStream, poll: &Poll, token: Token) -> Self {
        stream.set_nodelay(true).unwrap();
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, token, both).unwrap();
        Self {
            stream,
            rest: Vec::new(),
            drop: 0,
            produce: None,
            out: Vec::new(),
            whole: 0,
            bulk: None,
        }
    }

    /// Reads until nothing is left and answers; `false` once it is closed.
    fn drive(&mut self, null: &mut Null) -> bool {
        let mut buffer = std::mem::take(&mut null.buffer);
        let open = self.read_all(&mut buffer, null).unwrap_or(false) && self.flush().is_ok();
        null.buffer = buffer;
        open
    }

    fn read_all(&mut self, buffer: &mut [u8], null: &mut Null) -> std::io::Result<bool> {
        loop {
            if self.bulk.is_some() {
                self.flush()?;
                if self.bulk.is_some() {
                    return Ok(true);
                }
                // What came behind a fetch has waited for its answer.
                let waited = std::mem::take(&mut self.rest);
                let used = self.take(&waited, null);
                self.rest = waited[used..].to_vec();
                continue;
            }
            let read = if self.drop >= DROPPED {
                // The kernel discards as much as the buffer is long.
                let length = self.drop.min(buffer.len());
                recv(&self.stream, &mut buffer[..length], RecvFlags::TRUNC)
                    .map(|(_, dropped)| dropped)
                    .map_err(std::io::Error::from)
            } else {
                let kept = self.rest.len();
                buffer[..kept].copy_from_slice(&self.rest);
                self.stream.read(&mut buffer[kept..])
            };
            let read = match read {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            if self.drop >= DROPPED {
                self.drop -= read;
                continue;
            }
            let have = self.rest.len() + read;
            self.rest.clear();
            let used = self.take(&buffer[..have], null);
            self.rest.extend_from_slice(&buffer[used..have]);
            if have < buffer.len() {
                self.flush()?;
            }
        }
    }

    /// Takes what is complete, gives how much that was.
    fn take(&mut self, bytes: &[u8], null: &mut Null) -> usize {
        let mut at = 0;
        while self.bulk.is_none() {
            let dropped = self.drop.min(bytes.len() - at);
            self.drop -= dropped;
            at += dropped;
            if self.drop > 0 {
                break;
            }
            let rest = &bytes[at..];
            let used = match self.produce.take() {
                Some(produce) => self.go_on(produce, rest, null),
                None => self.begin(rest, null),
            };
            let Some(used) = used else { break };
            at += used;
        }
        at
    }

    /// The head of a Produce request, or any other request.
    fn begin(&mut self, bytes: &[u8], null: &mut Null) -> Option<usize> {
        let mut rest = bytes;
        let length = rest.try_get_u32().ok()? as usize;
        let (key, version) = (rest.try_get_i16().ok()?, rest.try_get_i16().ok()?);
        if key != wire::PRODUCE {
            let frame = bytes.get(4..4 + length)?;
            self.answer(key, version, frame, null);
            self.whole = self.out.len();
            return Some(4 + length);
        }
        let compact = version >= wire::PRODUCE_COMPACT;
        let correlation = rest.try_get_i32().ok()?;
        let client = usize::from(rest.try_get_u16().ok()?);
        // Behind the client id: tags, transactional id, acks, timeout, topics.
        let head = client + if compact { 1 + 1 + 6 + 1 } else { 2 + 6 + 4 };
        if rest.len() < head {
            return None;
        }
        rest.advance(client + if compact { 1 } else { 0 });
        let transactional = if compact {
            rest.get_u8() != 0
        } else {
            rest.get_i16() != -1
        };
        assert!(!transactional, "transactions are not for a null upstream");
        let acks = rest.get_i16();
        rest.advance(4);
        let topics = count(&mut rest, compact)?;
        let answer_at = self.out.len();
        self.out.put_u32(0);
        self.out.put_i32(correlation);
        if compact {
            self.out.put_u8(0);
        }
        put_count(&mut self.out, topics, compact);
        self.produce = Some(Produce {
            version,
            acks,
            topics,
            partitions: 0,
            state: State::Topic,
            answer_at,
        });
        Some(bytes.len() - rest.len())
    }

    /// The next unit of a Produce request.
    fn go_on(&mut self, mut produce: Produce, bytes: &[u8], null: &mut Null) -> Option<usize> {
        let used = self.unit(&mut produce, bytes, null);
        if !matches!(produce.state, State::End) || used.is_none() {
            self.produce = Some(produce);
            return used;
        }
        let compact = produce.version >= wire::PRODUCE_COMPACT;
        // The request's own tags have been read with the last topic's.
        if produce.acks == 0 {
            self.out.truncate(produce.answer_at);
        } else {
            self.out.put_u32(0);
            if compact {
                self.out.put_u8(0);
            }
            let length = u32::try_from(self.out.len() - produce.answer_at - 4).unwrap();
            self.out[produce.answer_at..produce.answer_at + 4]
                .copy_from_slice(&length.to_be_bytes());
        }
        self.whole = self.out.len();
        used
    }

    fn unit(&mut self, produce: &mut Produce, bytes: &[u8], null: &mut Null) -> Option<usize> {
        let compact = produce.version >= wire::PRODUCE_COMPACT;
        let mut rest = bytes;
        match produce.state {
            State::Topic => {
                if produce.version >= wire::PRODUCE_TOPIC_IDS {
                    let id = rest.get(..16)?;
                    self.out.put_slice(id);
                    rest.advance(16);
                } else {
                    let length = if compact {
                        unsigned(&mut rest)? - 1
                    } else {
                        usize::from(rest.try_get_u16().ok()?)
                    };
                    let end = bytes.len() - rest.len() + length;
                    let name = bytes.get(..end)?;
                    self.out.put_slice(name);
                    rest.advance(length);
                }
                // Nothing has been put out where the count is not there yet.
                let put = bytes.len() - rest.len();
                let Some(partitions) = count(&mut rest, compact) else {
                    self.out.truncate(self.out.len() - put);
                    return None;
                };
                put_count(&mut self.out, partitions, compact);
                produce.partitions = partitions;
                produce.state = State::Partition;
            }
            State::Partition => {
                let partition = rest.try_get_i32().ok()?;
                let length = if compact {
                    unsigned(&mut rest)? - 1
                } else {
                    usize::try_from(rest.try_get_i32().ok()?).unwrap()
                };
                let head = rest.get(..BATCH_HEAD)?;
                let sequence = (&head[53..57]).get_i32();
                null.batches += 1;
                let wrong = i64::from(null.lie_at == Some(null.batches));
                let offset = i64::from(sequence.max(0)) + wrong;
                self.acknowledge(produce.version, partition, offset);
                rest.advance(BATCH_HEAD);
                self.drop = length - BATCH_HEAD;
                produce.state = State::PartitionEnd;
            }
            State::PartitionEnd => {
                if compact {
                    assert_eq!(rest.try_get_u8().ok()?, 0, "tags");
                }
                produce.partitions -= 1;
                produce.state = if produce.partitions == 0 {
                    State::TopicEnd
                } else {
                    State::Partition
                };
            }
            State::TopicEnd => {
                let last = produce.topics == 1;
                if compact {
                    let tags = if last { 2 } else { 1 };
                    assert!(rest.get(..tags)?.iter().all(|tag| *tag == 0), "tags");
                    rest.advance(tags);
                    self.out.put_u8(0);
                }
                produce.topics -= 1;
                produce.state = if last { State::End } else { State::Topic };
            }
            State::End => unreachable!("it is answered"),
        }
        Some(bytes.len() - rest.len())
    }

    fn acknowledge(&mut self, version: i16, partition: i32, offset: i64) {
        let out = &mut self.out;
        out.put_i32(partition);
        out.put_i16(0);
        out.put_i64(offset);
        out.put_i64(-1);
        if version >= 5 {
            out.put_i64(0);
        }
        if version >= wire::PRODUCE_COMPACT {
            // No wrong records, no message, no tags.
            out.put_slice(&[1, 0, 0]);
        } else if version == 8 {
            out.put_slice(&[0, 0, 0, 0, 0xff, 0xff]);
        }
    }

    fn answer(&mut self, key: i16, version: i16, frame: &[u8], null: &mut Null) {
        let correlation = (&frame[4..8]).get_i32();
        if key == COUNT {
            self.out.put_u32(12);
            self.out.put_i32(correlation);
            self.out.put_u64(null.batches);
            return;
        }
        let api = ApiKey::try_from(key).unwrap_or_else(|()| panic!("API {key}"));
        let mut body = Bytes::copy_from_slice(frame);
        RequestHeader::decode(&mut body, api.request_header_version(version)).unwrap();
        match api {
            ApiKey::ApiVersions => {
                let known = version <= 4;
                let answer = offered(known);
                self.reply(correlation, if known { version } else { 0 }, &answer);
            }
            ApiKey::Metadata => {
                let request = MetadataRequest::decode(&mut body, version).unwrap();
                self.reply(correlation, version, &describe(&request, null.port));
            }
            ApiKey::InitProducerId => {
                null.next_producer += 1;
                let answer =
                    InitProducerIdResponse::default().with_producer_id(null.next_producer.into());
                self.reply(correlation, version, &answer);
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&mut body, version).unwrap();
                let asked = &request.topics[0].partitions[0];
                let (partition, offset) = (asked.partition, asked.fetch_offset);
                null.fetch
                    .put(&mut self.out, correlation, partition, offset);
                let records_end = self.out.len() - null.fetch.tail;
                self.bulk = Some((records_end, 0));
            }
            other => panic!("a null upstream has no answer to {other:?}"),
        }
    }

    fn reply<R: Encodable + HeaderVersion>(&mut self, correlation: i32, version: i16, body: &R) {
        let mut frame = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(correlation)
            .encode(&mut frame, R::header_version(version))
            .unwrap();
        body.encode(&mut frame, version).unwrap();
        self.out.put_u32(u32::try_from(frame.len()).unwrap());
        self.out.put_slice(&frame);
    }

    /// Writes what is whole, as far as the socket takes it.
    fn flush(&mut self) -> std::io::Result<()> {
        if let Some((at, mut left)) = self.bulk {
            if !self.write(at)? {
                return Ok(());
            }
            while left < RECORDS.len() {
                match self.stream.write(&RECORDS[left..]) {
                    Ok(written) => left += written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.bulk = Some((0, left));
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            self.bulk = None;
        }
        self.write(self.whole).map(drop)
    }

    /// Writes `out` up to there; `false` where the socket is full before.
    fn write(&mut self, end: usize) -> std::io::Result<bool> {
        let mut at = 0;
        let done = loop {
            if at == end {
                break true;
            }
            match self.stream.write(&self.out[at..end]) {
                Ok(written) => at += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) => return Err(error),
            }
        };
        if at > 0 {
            self.out.drain(..at);
            self.whole -= at;
            if let Some(produce) = &mut self.produce {
                produce.answer_at -= at;
            }
            if let Some((bulk, _)) = &mut self.bulk {
                *bulk -= at;
            }
        }
        Ok(done)
    }
}

/// What the records of a fetch are behind their base offset: never looked at.
static RECORDS: [u8; FETCH_BYTES] = [7; FETCH_BYTES];

/// A Fetch response without the bulk of its records.
struct FetchAnswer {
    head: Vec<u8>,
    partition_at: usize,
    /// Bytes behind the records.
    tail: usize,
    offset_at: usize,
}

impl FetchAnswer {
    fn new() -> Self {
        let batch = wire::batch(&BatchShape {
            bytes: FETCH_BYTES,
            records: FETCH_RECORDS,
            producer: None,
        });
        // The first bytes are the batch's own, the bulk stands for the others.
        let mut records = BytesMut::from(&batch[..BATCH_HEAD]);
        records.put_slice(&RECORDS);
        let mark = 0x1122_3344;
        let partition = PartitionData::default()
            .with_partition_index(mark)
            .with_high_watermark(i64::MAX)
            .with_last_stable_offset(i64::MAX)
            .with_log_start_offset(0)
            .with_aborted_transactions(Some(Vec::new()))
            .with_preferred_read_replica((-1).into())
            .with_records(Some(records.freeze()));
        let topic = FetchableTopicResponse::default()
            .with_topic_id(TOPIC_ID)
            .with_partitions(vec![partition]);
        let body = FetchResponse::default().with_responses(vec![topic]);
        let mut whole = BytesMut::from(&[0; 4][..]);
        ResponseHeader::default()
            .encode(
                &mut whole,
                FetchResponse::header_version(wire::FETCH_VERSION),
            )
            .unwrap();
        body.encode(&mut whole, wire::FETCH_VERSION).unwrap();
        let length = u32::try_from(whole.len() - 4).unwrap();
        whole[..4].copy_from_slice(&length.to_be_bytes());
        let partition_at = wire::find(&whole, &mark.to_be_bytes());
        let offset_at = wire::find(&whole, &batch[..BATCH_HEAD]);
        let bulk_at = offset_at + BATCH_HEAD;
        let tail = whole.len() - bulk_at - RECORDS.len();
        let mut head = whole[..bulk_at].to_vec();
        head.extend_from_slice(&whole[bulk_at + RECORDS.len()..]);
        Self {
            head,
            partition_at,
            tail,
            offset_at,
        }
    }

    fn put(&self, out: &mut Vec<u8>, correlation: i32, partition: i32, offset: i64) {
        let from = out.len();
        out.extend_from_slice(&self.head);
        let frame = &mut out[from..];
        frame[4..8].copy_from_slice(&correlation.to_be_bytes());
        frame[self.partition_at..self.partition_at + 4].copy_from_slice(&partition.to_be_bytes());
        frame[self.offset_at..self.offset_at + 8].copy_from_slice(&offset.to_be_bytes());
    }
}

fn offered(known: bool) -> ApiVersionsResponse {
    let apis = [
        (wire::PRODUCE, 3, 13),
        (wire::FETCH, wire::FETCH_VERSION, wire::FETCH_VERSION),
        (wire::METADATA, 0, 13),
        (wire::API_VERSIONS, 0, 4),
        (wire::INIT_PRODUCER_ID, 0, 5),
    ];
    let keys = apis.map(|(key, least, most)| {
        ApiVersion::default()
            .with_api_key(key)
            .with_min_version(least)
            .with_max_version(most)
    });
    ApiVersionsResponse::default()
        .with_error_code(if known { 0 } else { 35 })
        .with_api_keys(keys.to_vec())
}

fn describe(request: &MetadataRequest, port: u16) -> MetadataResponse {
    let broker = MetadataResponseBroker::default()
        .with_node_id(NODE.into())
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(port.into());
    let asked = request.topics.iter().flatten();
    let topics = asked.map(|topic| {
        let partitions = (0..PARTITIONS).map(|partition| {
            MetadataResponsePartition::default()
                .with_partition_index(partition)
                .with_leader_id(NODE.into())
                .with_replica_nodes(vec![NODE.into()])
                .with_isr_nodes(vec![NODE.into()])
        });
        MetadataResponseTopic::default()
            .with_name(topic.name.clone())
            .with_topic_id(TOPIC_ID)
            .with_partitions(partitions.collect())
    });
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_static_str("null")))
        .with_controller_id(NODE.into())
        .with_topics(topics.collect())
}

/// A variable-length number, where it is there.
fn unsigned(bytes: &mut &[u8]) -> Option<usize> {
    let length = bytes.iter().position(|byte| *byte < 0x80)?;
    assert!(length < 5, "a number of 32 bits");
    Some(wire::unsigned(bytes))
}

fn count(bytes: &mut &[u8], compact: bool) -> Option<usize> {
    if compact {
        unsigned(bytes).map(|count| count - 1)
    } else {
        usize::try_from(bytes.try_get_i32().ok()?).ok()
    }
}

fn put_count(out: &mut Vec<u8>, count: usize, compact: bool) {
    if !compact {
        out.put_i32(i32::try_from(count).unwrap());
        return;
    }
    let mut left = count + 1;
    while left >= 0x80 {
        out.put_u8(u8::try_from(left & 0x7f).unwrap() | 0x80);
        left >>= 7;
    }
    out.put_u8(u8::try_from(left).unwrap());
}
