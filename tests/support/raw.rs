//! A raw Kafka client on a blocking socket: sends what it is told, waits when told.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, DeleteTopicsRequest,
    FetchRequest, FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse,
    RequestHeader, ResponseHeader, SaslAuthenticateRequest, SaslHandshakeRequest, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use super::batch::{self, Stored};

/// How long an answer may take before a test calls it missing.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One connection. Every request takes the next correlation id.
pub struct Client {
    stream: TcpStream,
    correlation: i32,
    /// The client id of the next request; `None` is null.
    pub client_id: Option<String>,
    /// A tagged field that nobody knows, put into each flexible header.
    pub unknown_tag: Option<(i32, Bytes)>,
}

impl Client {
    /// Connects; an answer that takes longer than [`PATIENCE`] is an error.
    pub fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            correlation: 0,
            client_id: Some("raw".to_owned()),
            unknown_tag: None,
        })
    }

    /// The socket, for what only a socket can do.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Ends the connection by a reset, as the death of a machine may.
    pub fn reset(self) {
        let socket = tokio::net::TcpSocket::from_std_stream(self.stream);
        socket.set_zero_linger().unwrap();
    }

    /// Writes bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The frame of a request and its correlation id, not sent yet.
    pub fn frame<R: Request>(&mut self, version: i16, request: &R) -> (i32, Bytes) {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).unwrap();
        self.frame_raw(R::KEY, version, R::header_version(version), &body)
    }

    /// The frame of a request whose body is encoded already.
    pub fn frame_raw(
        &mut self,
        key: i16,
        version: i16,
        header_version: i16,
        body: &[u8],
    ) -> (i32, Bytes) {
        self.correlation += 1;
        let mut header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(self.client_id.clone().map(StrBytes::from_string));
        if let Some((tag, value)) = &self.unknown_tag
            && header_version >= 2
        {
            header = header.with_unknown_tagged_field(*tag, value.clone());
        }
        let mut frame = BytesMut::from(&[0_u8; 4][..]);
        header.encode(&mut frame, header_version).unwrap();
        frame.extend_from_slice(body);
        let length = u32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        (self.correlation, frame.freeze())
    }

    /// Sends without waiting; gives the correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<i32> {
        let (correlation, frame) = self.frame(version, request);
        self.send_raw(&frame)?;
        Ok(correlation)
    }

    /// The next frame from the other side, without its length.
    pub fn receive_frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "negative length"))?;
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    /// The answer to the request sent with `correlation`, which must be next.
    pub fn receive<R: Request>(
        &mut self,
        version: i16,
        correlation: i32,
    ) -> io::Result<R::Response> {
        let mut frame = self.receive_frame()?;
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version))
            .map_err(io::Error::other)?;
        assert_eq!(header.correlation_id, correlation, "an answer out of turn");
        let response = R::Response::decode(&mut frame, version).map_err(io::Error::other)?;
        assert!(frame.is_empty(), "{} bytes after the answer", frame.len());
        Ok(response)
    }

    /// Sends and waits.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> io::Result<R::Response> {
        let correlation = self.send(version, request)?;
        self.receive::<R>(version, correlation)
    }

    /// Whether the other side has closed, after reading away what it still sent.
    pub fn is_closed(&mut self, wait: Duration) -> bool {
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let mut sink = [0; 4096];
        loop {
            match self.stream.read(&mut sink) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    );
                }
            }
        }
    }

    /// How long an answer may take from now on.
    pub fn set_patience(&mut self, wait: Duration) {
        self.stream.set_read_timeout(Some(wait)).unwrap();
    }

    /// Sends a Produce request and waits for its only partition's answer.
    pub fn produce(&mut self, produce: &Produce) -> io::Result<Answer> {
        let response = self.call(produce.version, &produce.request())?;
        Ok(Answer::only(&response))
    }

    /// Metadata of these topics by name.
    pub fn metadata(&mut self, version: i16, topics: &[&str]) -> io::Result<MetadataResponse> {
        let topics = topics
            .iter()
            .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))))
            .collect();
        self.call(
            version,
            &MetadataRequest::default()
                .with_topics(Some(topics))
                .with_allow_auto_topic_creation(false),
        )
    }

    /// A producer id and epoch; asks again while the coordinator is loading.
    pub fn init_producer(
        &mut self,
        version: i16,
        transactional: Option<&str>,
    ) -> io::Result<(i64, i16)> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(transactional.map(transactional_id))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        for _ in 0..200 {
            if let Some(id) = transactional {
                // Looking the coordinator up is what creates its topic.
                let find = FindCoordinatorRequest::default()
                    .with_key_type(1)
                    .with_key(StrBytes::from_string(id.to_owned()));
                self.call(3, &find)?;
            }
            let response = self.call(version, &request)?;
            match response.error_code {
                0 => return Ok((response.producer_id.0, response.producer_epoch)),
                // Coordinator loading, unavailable or moving; concurrent transactions.
                14 | 15 | 16 | 51 => super::pause(Duration::from_millis(50)),
                code => return Err(io::Error::other(format!("InitProducerId answered {code}"))),
            }
        }
        Err(io::Error::other("InitProducerId never became available"))
    }

    /// ApiVersions of the versions that the crate knows.
    pub fn api_versions(&mut self, version: i16) -> io::Result<ApiVersionsResponse> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("hapax-tests"))
            .with_client_software_version(StrBytes::from_static_str("1"));
        self.call(version, &request)
    }

    /// ApiVersions of any version, as Kafka 4.4 lays version 5 out; the answer
    /// comes back undecoded, after its correlation id.
    pub fn api_versions_raw(&mut self, version: i16) -> io::Result<Bytes> {
        let mut body = Vec::new();
        if version >= 3 {
            body.extend(b"\x0chapax-tests\x021");
            if version >= 5 {
                body.push(0);
                body.extend((-1_i32).to_be_bytes());
            }
            body.push(0);
        }
        let header = if version >= 3 { 2 } else { 1 };
        let (correlation, frame) = self.frame_raw(18, version, header, &body);
        self.send_raw(&frame)?;
        let answer = self.receive_frame()?;
        assert_eq!(answer[..4], correlation.to_be_bytes());
        Ok(answer.slice(4..))
    }

    /// SaslHandshake, then one token: raw frames after v0, SaslAuthenticate after v1.
    /// Gives the server's token, or the error code.
    pub fn authenticate(
        &mut self,
        version: i16,
        mechanism: &str,
        token: &[u8],
    ) -> io::Result<Result<Bytes, i16>> {
        let request = SaslHandshakeRequest::default()
            .with_mechanism(StrBytes::from_string(mechanism.to_owned()));
        let response = self.call(version, &request)?;
        if response.error_code != 0 {
            return Ok(Err(response.error_code));
        }
        if version == 0 {
            self.send_raw(&u32::try_from(token.len()).unwrap().to_be_bytes())?;
            self.send_raw(token)?;
            return self.receive_frame().map(Ok);
        }
        let request =
            SaslAuthenticateRequest::default().with_auth_bytes(Bytes::copy_from_slice(token));
        let response = self.call(2, &request)?;
        Ok(match response.error_code {
            0 => Ok(response.auth_bytes),
            code => Err(code),
        })
    }

    /// Creates a topic and waits until its partitions have a leader.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> io::Result<Topic> {
        let configs = configs
            .iter()
            .map(|(key, value)| {
                CreatableTopicConfig::default()
                    .with_name(StrBytes::from_string((*key).to_owned()))
                    .with_value(Some(StrBytes::from_string((*value).to_owned())))
            })
            .collect();
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(20_000);
        let response = self.call(7, &request)?;
        let code = response.topics[0].error_code;
        if code != 0 {
            return Err(io::Error::other(format!("CreateTopics answered {code}")));
        }
        for _ in 0..400 {
            let response = self.metadata(12, &[name])?;
            let topic = &response.topics[0];
            let known = topic.error_code == 0
                && topic.partitions.len() == usize::try_from(partitions).unwrap()
                && topic.partitions.iter().all(|p| p.error_code == 0);
            let id = TopicProduceData::default().with_topic_id(topic.topic_id);
            // The metadata names a leader a moment before it leads.
            if known && self.leads(name, partitions)? {
                let name = name.to_owned();
                return Ok(Topic { name, id });
            }
            super::pause(Duration::from_millis(10));
        }
        Err(io::Error::other(format!("{name} got no leader")))
    }

    /// Deletes a topic and waits until it is gone from the metadata.
    pub fn delete_topic(&mut self, name: &str) -> io::Result<()> {
        let request = DeleteTopicsRequest::default()
            .with_topics(vec![
                DeleteTopicState::default().with_name(Some(topic_name(name))),
            ])
            .with_timeout_ms(20_000);
        let code = self.call(6, &request)?.responses[0].error_code;
        if code != 0 {
            return Err(io::Error::other(format!("DeleteTopics answered {code}")));
        }
        for _ in 0..400 {
            if self.metadata(12, &[name])?.topics[0].error_code == 3 {
                return Ok(());
            }
            super::pause(Duration::from_millis(10));
        }
        Err(io::Error::other(format!("{name} is still there")))
    }

    /// Whether every partition has a leader that leads.
    pub fn leads(&mut self, topic: &str, partitions: i32) -> io::Result<bool> {
        let all: Vec<i32> = (0..partitions).collect();
        let response = self.list_offsets(topic, &all)?;
        let answers = &response.topics[0].partitions;
        Ok(answers.iter().all(|answer| answer.error_code == 0))
    }

    fn list_offsets(&mut self, topic: &str, partitions: &[i32]) -> io::Result<ListOffsetsResponse> {
        let partitions = partitions.iter().map(|partition| {
            ListOffsetsPartition::default()
                .with_partition_index(*partition)
                .with_current_leader_epoch(-1)
                .with_timestamp(-1)
        });
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.collect());
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_topics(vec![topic]);
        // As old a version as the oldest Kafka of the tests has.
        self.call(5, &request)
    }

    /// The offset after the last record.
    pub fn end_offset(&mut self, topic: &str, partition: i32) -> io::Result<i64> {
        let response = self.list_offsets(topic, &[partition])?;
        Ok(response.topics[0].partitions[0].offset)
    }

    /// Every batch of a partition's log.
    pub fn log(&mut self, topic: &str, partition: i32) -> io::Result<Vec<Stored>> {
        let end = self.end_offset(topic, partition)?;
        let mut batches: Vec<Stored> = Vec::new();
        loop {
            let next = batches
                .last()
                .map_or(0, |last| last.offset + i64::from(last.count));
            if next >= end {
                return Ok(batches);
            }
            let partition = FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(next)
                .with_partition_max_bytes(8 << 20);
            let topic = FetchTopic::default()
                .with_topic(topic_name(topic))
                .with_partitions(vec![partition]);
            let request = FetchRequest::default()
                .with_replica_id((-1).into())
                .with_max_wait_ms(100)
                .with_min_bytes(1)
                .with_max_bytes(64 << 20)
                .with_topics(vec![topic]);
            let response = self.call(12, &request)?;
            let partition = &response.responses[0].partitions[0];
            if partition.error_code != 0 {
                let code = partition.error_code;
                return Err(io::Error::other(format!("Fetch answered {code}")));
            }
            batches.extend(batch::stored(partition.records.as_deref().unwrap_or(&[])));
        }
    }
}

/// A topic by name and by id.
#[derive(Clone)]
pub struct Topic {
    /// Its name.
    pub name: String,
    id: TopicProduceData,
}

impl Topic {
    /// A topic that exists nowhere, neither by name nor by id.
    pub fn unknown(name: &str) -> Self {
        let id = "0badc0de-0000-4000-8000-000000000001";
        Self {
            name: name.to_owned(),
            id: TopicProduceData::default().with_topic_id(id.parse().unwrap()),
        }
    }

    /// A topic of this name and id.
    pub fn of(name: &str, id: &str) -> Self {
        Self {
            name: name.to_owned(),
            id: TopicProduceData::default().with_topic_id(id.parse().unwrap()),
        }
    }

    /// As a Produce request of `version` names it.
    fn named(&self, version: i16) -> TopicProduceData {
        if version >= 13 {
            self.id.clone()
        } else {
            TopicProduceData::default().with_name(topic_name(&self.name))
        }
    }
}

/// A Produce request in the making.
#[derive(Clone)]
pub struct Produce {
    /// 3 to 13.
    pub version: i16,
    /// −1, 0 or 1.
    pub acks: i16,
    /// The request's own timeout.
    pub timeout_ms: i32,
    /// The transactional id, if any.
    pub transactional_id: Option<String>,
    /// Topics, and what each gets.
    pub topics: Vec<(Topic, Vec<Records>)>,
}

/// A partition and its records; `None` is null.
pub type Records = (i32, Option<Bytes>);

impl Produce {
    /// A request for one partition, with acks=all.
    pub fn to(topic: &Topic, partition: i32, records: Bytes) -> Self {
        Self::of(vec![(topic.clone(), vec![(partition, Some(records))])])
    }

    /// A request for many partitions, with acks=all.
    pub fn of(topics: Vec<(Topic, Vec<Records>)>) -> Self {
        Self {
            version: 12,
            acks: -1,
            timeout_ms: 15_000,
            transactional_id: None,
            topics,
        }
    }

    /// With another version.
    #[must_use]
    pub fn version(mut self, version: i16) -> Self {
        self.version = version;
        self
    }

    /// With other acks.
    #[must_use]
    pub fn acks(mut self, acks: i16) -> Self {
        self.acks = acks;
        self
    }

    /// With another timeout.
    #[must_use]
    pub fn timeout(mut self, timeout_ms: i32) -> Self {
        self.timeout_ms = timeout_ms;
        self
    }

    /// With a transactional id.
    #[must_use]
    pub fn transactional(mut self, id: &str) -> Self {
        self.transactional_id = Some(id.to_owned());
        self
    }

    /// The request, ready for [`Client::send`].
    pub fn request(&self) -> ProduceRequest {
        let topics = self
            .topics
            .iter()
            .map(|(topic, partitions)| {
                let partitions = partitions
                    .iter()
                    .map(|(index, records)| {
                        PartitionProduceData::default()
                            .with_index(*index)
                            .with_records(records.clone())
                    })
                    .collect();
                topic.named(self.version).with_partition_data(partitions)
            })
            .collect();
        ProduceRequest::default()
            .with_transactional_id(self.transactional_id.as_deref().map(transactional_id))
            .with_acks(self.acks)
            .with_timeout_ms(self.timeout_ms)
            .with_topic_data(topics)
    }
}

/// What a Produce response says of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The partition.
    pub partition: i32,
    /// 0 or an error code.
    pub code: i16,
    /// Base offset, −1 for none.
    pub offset: i64,
    /// Log append time, −1 for none.
    pub append_time: i64,
    /// Log start offset, −1 where the version has none.
    pub log_start: i64,
}

impl Answer {
    /// The answers of a response, in its order.
    pub fn all(response: &ProduceResponse) -> Vec<Self> {
        let partitions = response
            .responses
            .iter()
            .flat_map(|t| &t.partition_responses);
        partitions
            .map(|partition| Self {
                partition: partition.index,
                code: partition.error_code,
                offset: partition.base_offset,
                append_time: partition.log_append_time_ms,
                log_start: partition.log_start_offset,
            })
            .collect()
    }

    fn only(response: &ProduceResponse) -> Self {
        let all = Self::all(response);
        assert_eq!(all.len(), 1, "one partition was asked for");
        all[0]
    }
}

/// A topic name of the protocol crate.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// A transactional id of the protocol crate.
pub fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_owned()))
}
