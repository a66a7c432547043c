//! A raw Kafka client on a blocking socket, with the few calls the tests make themselves.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, CreateTopicsRequest, InitProducerIdRequest,
    MetadataRequest, MetadataResponse, ProduceRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

use crate::tools::wait_for;

const PATIENCE: Duration = Duration::from_secs(20);

/// One connection to one broker.
pub(crate) struct Connection {
    stream: TcpStream,
    correlation: i32,
    bytes_sent: usize,
}

impl Connection {
    pub(crate) fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a socket takes nodelay");
        Self {
            stream,
            correlation: 0,
            bytes_sent: 0,
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.try_call(version, request)
            .unwrap_or_else(|error| panic!("api {}: {error}", R::KEY))
    }

    /// Like `call`; an error is what the connection ended with.
    pub(crate) fn try_call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response> {
        self.send(version, request)?;
        let mut answer = read_frame(&mut self.stream)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?
            .slice(4..);
        let header = ResponseHeader::decode(&mut answer, R::Response::header_version(version))
            .expect("a response header");
        assert_eq!(
            header.correlation_id, self.correlation,
            "answers come in order"
        );
        Ok(R::Response::decode(&mut answer, version).expect("a response of the version asked for"))
    }

    fn send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<()> {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("raw")));
        let mut body = BytesMut::new();
        header
            .encode(&mut body, R::header_version(version))
            .expect("a header encodes");
        request
            .encode(&mut body, version)
            .expect("a request encodes");
        let mut frame = u32::try_from(body.len())
            .expect("a small frame")
            .to_be_bytes()
            .to_vec();
        frame.extend_from_slice(&body);
        self.bytes_sent += frame.len();
        self.stream.write_all(&frame)
    }

    /// Of all requests so far.
    pub(crate) fn bytes_sent(&self) -> usize {
        self.bytes_sent
    }

    /// Whether the other side ends the connection without another answer.
    pub(crate) fn is_ended(&mut self) -> bool {
        !matches!(read_frame(&mut self.stream), Ok(Some(_)))
    }

    /// Creates a topic and waits until its partitions have leaders.
    pub(crate) fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replication: i16,
        configs: &[(&str, &str)],
    ) {
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
            .with_replication_factor(replication)
            .with_configs(configs);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(20_000);
        let response = self.call(5, &request);
        let created = &response.topics[0];
        assert_eq!(
            created.error_code, 0,
            "create topic {name}: {:?}",
            created.error_message
        );
        wait_for("leaders of a new topic", PATIENCE, || {
            let leaders = self.leaders(name);
            (leaders.len() == usize::try_from(partitions).expect("positive")
                && leaders.iter().all(|leader| *leader >= 0))
            .then_some(())
        });
    }

    /// What the broker says of the cluster and of these topics.
    pub(crate) fn metadata(&mut self, topics: &[&str]) -> MetadataResponse {
        let topics = topics
            .iter()
            .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
            .collect();
        let request = MetadataRequest::default()
            .with_topics(Some(topics))
            .with_allow_auto_topic_creation(false);
        self.call(8, &request)
    }

    /// Node ids of the partitions' leaders, by partition; -1 where there is none.
    pub(crate) fn leaders(&mut self, topic: &str) -> Vec<i32> {
        let mut partitions = self.metadata(&[topic]).topics.swap_remove(0).partitions;
        partitions.sort_by_key(|partition| partition.partition_index);
        partitions
            .iter()
            .map(|partition| partition.leader_id.0)
            .collect()
    }

    /// Moves each partition of a topic to the one node that is named for it.
    pub(crate) fn move_partitions(&mut self, topic: &str, nodes: &[i32]) {
        let partitions = (0..).zip(nodes).map(|(index, node)| {
            ReassignablePartition::default()
                .with_partition_index(index)
                .with_replicas(Some(vec![(*node).into()]))
        });
        let topic = ReassignableTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.collect());
        let request = AlterPartitionReassignmentsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(20_000);
        let response = self.call(0, &request);
        let topics = response.responses.iter();
        let codes = topics.flat_map(|topic| topic.partitions.iter().map(|p| p.error_code));
        let codes: Vec<i16> = codes.chain([response.error_code]).collect();
        assert!(codes.iter().all(|code| *code == 0), "{response:?}");
    }

    /// A new producer id; a fresh broker may have to be asked more than once.
    pub(crate) fn init_producer_id(&mut self) -> i64 {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000);
        wait_for("a producer id", PATIENCE, || {
            let response = self.call(4, &request);
            (response.error_code == 0).then_some(response.producer_id.0)
        })
    }

    /// Produces one batch with acks=all.
    pub(crate) fn produce(&mut self, topic: &str, batch: &Bytes) -> PartitionProduceResponse {
        self.try_produce(topic, batch)
            .expect("the connection lives")
    }

    /// Like `produce`; an error is what the connection ended with.
    pub(crate) fn try_produce(
        &mut self,
        topic: &str,
        batch: &Bytes,
    ) -> io::Result<PartitionProduceResponse> {
        let mut response = self.try_call(9, &produce_request(topic, batch))?;
        Ok(response
            .responses
            .swap_remove(0)
            .partition_responses
            .swap_remove(0))
    }

    /// Sends one batch with acks=all, and waits for nothing.
    pub(crate) fn send_produce(&mut self, topic: &str, batch: &Bytes) {
        self.send(9, &produce_request(topic, batch))
            .expect("the connection lives");
    }
}

fn produce_request(topic: &str, batch: &Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(batch.clone()));
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_transactional_id(None)
        .with_acks(-1)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![topic])
}

/// A batch of one record, in its producer's first epoch.
pub(crate) fn batch(producer_id: i64, sequence: i32, timestamp: i64, value: &str) -> Bytes {
    batch_in_epoch(0, producer_id, sequence, timestamp, value)
}

/// The same in a later epoch.
pub(crate) fn batch_in_epoch(
    producer_epoch: i16,
    producer_id: i64,
    sequence: i32,
    timestamp: i64,
    value: &str,
) -> Bytes {
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id,
        producer_epoch,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence,
        timestamp,
        key: None,
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: IndexMap::new(),
    };
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    RecordBatchEncoder::encode(&mut bytes, [&record], &options).expect("a batch encodes");
    bytes.freeze()
}

/// The next frame, its four length bytes included; `None` is a clean end.
pub(crate) fn read_frame(stream: &mut impl Read) -> io::Result<Option<Bytes>> {
    let mut frame = vec![0; 4];
    match stream.read(&mut frame)? {
        0 => return Ok(None),
        n => stream.read_exact(&mut frame[n..])?,
    }
    let length = (&frame[..]).get_i32();
    let length =
        usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    frame.resize(4 + length, 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(Some(Bytes::from(frame)))
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}
