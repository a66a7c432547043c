//! The producer of the demo: one message a batch, idempotent, and able to
//! lose an acknowledgement.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest, RequestHeader,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time;

use super::code::OFFSET_OUT_OF_RANGE;
use super::upstream::Upstream;

/// How long an answer may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most that an answer to the demo has.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: i32 = 1 << 20;
const CLIENT_ID: &str = "hapax-dev-demo";
const TEXT: &str = "message ";

/// Why the demo cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The connection failed.
    #[error("the demo's connection to {address}: {source}")]
    Io {
        /// Where it leads.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// An answer that was not expected.
    #[error("{0}")]
    Answer(String),
    /// Standard output is closed, or takes no more.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// What happens to an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It arrives.
    Heard,
    /// The connection breaks after the broker has written and before the
    /// producer hears of it.
    Lost,
    /// The same, and the broker forgets the producer before the retry.
    LostAndForgotten,
}

/// A message, as far as the producer knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// Where it was first written.
    pub(super) written: i64,
    /// What the last acknowledgement says.
    pub(super) acknowledged: i64,
}

/// A topic with one partition, and the one producer that writes to it.
pub(super) struct Producer {
    address: SocketAddr,
    upstream: Upstream,
    pub(super) topic: &'static str,
    id: i64,
    sequence: i32,
    stream: Option<TcpStream>,
    correlation: i32,
    /// What of the log has been read.
    pub(super) read: Read,
}

/// What has been read back from a log.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Read {
    next_offset: i64,
    /// The greatest message so far: they are written in order.
    newest: u64,
    pub(super) written: u64,
    pub(super) duplicates: u64,
}

impl Producer {
    /// A producer that reaches `upstream` at a bootstrap address.
    pub(super) async fn start(
        bootstrap: SocketAddr,
        upstream: Upstream,
        topic: &'static str,
    ) -> Result<Self, DemoError> {
        let mut producer = Self {
            address: bootstrap,
            upstream,
            topic,
            id: -1,
            sequence: 0,
            stream: None,
            correlation: 0,
            read: Read::default(),
        };
        producer.address = producer.leader().await?;
        producer.stream = None;
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let response = producer.call(4, &request).await?;
        succeeded("InitProducerId", response.error_code)?;
        producer.id = response.producer_id.0;
        Ok(producer)
    }

    /// Makes the topic, and asks which address leads to its broker.
    async fn leader(&mut self) -> Result<SocketAddr, DemoError> {
        let topic = MetadataRequestTopic::default().with_name(Some(name(self.topic)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(true);
        let response = self.call(12, &request).await?;
        succeeded(
            "Metadata",
            response.topics.first().map_or(-1, |t| t.error_code),
        )?;
        let broker = response.brokers.first();
        let address = broker.and_then(|broker| {
            let ip = broker.host.parse().ok()?;
            Some(SocketAddr::new(ip, u16::try_from(broker.port).ok()?))
        });
        address.ok_or_else(|| DemoError::Answer("Metadata names no broker".to_owned()))
    }

    /// Sends message `number` until it is acknowledged.
    pub(super) async fn send(&mut self, number: u64, fate: Fate) -> Result<Delivery, DemoError> {
        let request = self.request(number)?;
        let written = self.upstream.end(self.topic);
        if fate != Fate::Heard {
            self.write(9, &request).await?;
            self.hang_up_on_the_answer().await?;
            if fate == Fate::LostAndForgotten {
                self.upstream.forget_producers(self.topic);
            }
        }
        let response = self.call(9, &request).await?;
        let answer = response.responses.first();
        let answer = answer.and_then(|topic| topic.partition_responses.first());
        let answer =
            answer.ok_or_else(|| DemoError::Answer("Produce answers nothing".to_owned()))?;
        succeeded("Produce", answer.error_code)?;
        self.sequence += 1;
        Ok(Delivery {
            written,
            acknowledged: answer.base_offset,
        })
    }

    /// Waits until the acknowledgement is here, and cuts the connection without
    /// reading it: it is written, and the producer never hears so.
    async fn hang_up_on_the_answer(&mut self) -> Result<(), DemoError> {
        let address = self.address;
        let failed = |source| DemoError::Io { address, source };
        let Some(stream) = self.stream.take() else {
            return Err(failed(io::ErrorKind::NotConnected.into()));
        };
        let arrived = time::timeout(PATIENCE, stream.peek(&mut [0])).await;
        let arrived = arrived.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match arrived.map_err(failed)? {
            0 => Err(failed(io::ErrorKind::UnexpectedEof.into())),
            _ => Ok(()),
        }
    }

    fn request(&self, number: u64) -> Result<ProduceRequest, DemoError> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let record = Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: self.id,
            producer_epoch: 0,
            timestamp_type: TimestampType::Creation,
            offset: 0,
            sequence: self.sequence,
            timestamp: i64::try_from(now.as_millis()).unwrap_or(0),
            key: None,
            value: Some(format!("{TEXT}{number}").into()),
            headers: Default::default(),
        };
        let options = RecordEncodeOptions {
            version: 2,
            compression: Compression::None,
        };
        let mut records = BytesMut::new();
        RecordBatchEncoder::encode(&mut records, [&record], &options).map_err(unreadable)?;
        let partition = PartitionProduceData::default().with_records(Some(records.freeze()));
        let topic = TopicProduceData::default()
            .with_name(name(self.topic))
            .with_partition_data(vec![partition]);
        Ok(ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![topic]))
    }

    /// Reads the log on, from where it was read before, to its end.
    pub(super) async fn read_back(&mut self) -> Result<Read, DemoError> {
        loop {
            let partition = FetchPartition::default()
                .with_fetch_offset(self.read.next_offset)
                .with_partition_max_bytes(READ_BYTES);
            let topic = FetchTopic::default()
                .with_topic(name(self.topic))
                .with_partitions(vec![partition]);
            let request = FetchRequest::default()
                .with_replica_id((-1).into())
                .with_max_bytes(READ_BYTES)
                .with_topics(vec![topic]);
            let response = self.call(12, &request).await?;
            let topic = response.responses.into_iter().next();
            let partition = topic.and_then(|topic| topic.partitions.into_iter().next());
            let partition =
                partition.ok_or_else(|| DemoError::Answer("Fetch answers nothing".to_owned()))?;
            if partition.error_code == OFFSET_OUT_OF_RANGE {
                // Others wrote so much meanwhile that these were dropped unread.
                self.read.skip_to(partition.log_start_offset);
                continue;
            }
            succeeded("Fetch", partition.error_code)?;
            let mut records = partition.records.unwrap_or_default();
            if records.is_empty() {
                return Ok(self.read);
            }
            for set in RecordBatchDecoder::decode_all(&mut records).map_err(unreadable)? {
                for record in set.records {
                    self.read.count(&record)?;
                }
            }
        }
    }

    async fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, DemoError> {
        self.write(version, request).await?;
        let address = self.address;
        let failed = |source| DemoError::Io { address, source };
        let stream = self.stream.as_mut();
        let stream = stream.ok_or_else(|| failed(io::ErrorKind::NotConnected.into()))?;
        let answer = time::timeout(PATIENCE, receive(stream)).await;
        let mut answer = answer
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        let header_version = R::Response::header_version(version);
        ResponseHeader::decode(&mut answer, header_version).map_err(unreadable)?;
        R::Response::decode(&mut answer, version).map_err(unreadable)
    }

    async fn write<R: Request>(&mut self, version: i16, request: &R) -> Result<(), DemoError> {
        self.correlation += 1;
        let mut frame = BytesMut::from(&[0; 4][..]);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
        let encoded = header
            .encode(&mut frame, R::header_version(version))
            .and_then(|()| request.encode(&mut frame, version));
        encoded.map_err(unreadable)?;
        let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let address = self.address;
        let failed = |source| DemoError::Io { address, source };
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await.map_err(failed)?,
        };
        stream.write_all(&frame).await.map_err(failed)?;
        self.stream = Some(stream);
        Ok(())
    }
}

impl Read {
    fn skip_to(&mut self, offset: i64) {
        self.written += u64::try_from(offset - self.next_offset).unwrap_or(0);
        self.next_offset = offset;
    }

    fn count(&mut self, record: &Record) -> Result<(), DemoError> {
        let value = record.value.as_deref().unwrap_or_default();
        let number = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.strip_prefix(TEXT)?.parse().ok());
        let Some(number) = number else {
            let why = format!(
                "the demo's topic has a message of someone else at offset {}",
                record.offset
            );
            return Err(DemoError::Answer(why));
        };
        self.next_offset = record.offset + 1;
        self.written += 1;
        if number <= self.newest {
            self.duplicates += 1;
        } else {
            self.newest = number;
        }
        Ok(())
    }
}

async fn receive(stream: &mut TcpStream) -> io::Result<Bytes> {
    let length = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if length > ANSWER_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    Ok(answer.into())
}

fn name(topic: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(topic))
}

fn succeeded(api: &str, code: i16) -> Result<(), DemoError> {
    match code {
        0 => Ok(()),
        code => Err(DemoError::Answer(format!("{api} answers error {code}"))),
    }
}

fn unreadable(error: impl std::fmt::Display) -> DemoError {
    DemoError::Answer(format!("an answer that cannot be read: {error:#}"))
}
