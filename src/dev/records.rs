//! Produce, Fetch and ListOffsets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::produce_request::TopicProduceData;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, ProduceRequest,
    ProduceResponse, TopicName,
};
use tokio::time::{self, Instant};
use uuid::Uuid;

use super::apis::Reply;
use super::code;
use super::topics::{Named, Topics};
use super::upstream::Shared;

/// The most that one Fetch gets, whatever it says, as in Kafka.
const FETCH_BYTES_MAX: usize = 55 << 20;
/// The longest that a Fetch waits, whatever it says: a client that goes is
/// noticed only when there is something to tell it.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Appends what a request brings; `None` where Kafka would never answer.
pub(super) fn produce(
    shared: &Shared,
    request: ProduceRequest,
    version: i16,
) -> Option<ProduceResponse> {
    let mut partitions = request
        .topic_data
        .iter()
        .flat_map(|topic| &topic.partition_data);
    if partitions.any(|partition| partition.records.is_none()) {
        return None;
    }
    let valid_acks = matches!(request.acks, -1..=1);
    let last = last_mentions(&request);
    let mut topics = shared.topics();
    let responses = (0..).zip(request.topic_data).map(|(at, topic)| {
        let mut partitions: Vec<PartitionProduceResponse> = Vec::new();
        for (nth, partition) in (0..).zip(&topic.partition_data) {
            let key = (topic.name.clone(), topic.topic_id, partition.index);
            if last.get(&key) != Some(&(at, nth)) {
                continue;
            }
            let records = partition.records.as_deref().unwrap_or_default();
            let answer = if valid_acks {
                let named = named(&topic, version);
                append(&mut topics, named, partition.index, records, version)
            } else {
                refused(code::INVALID_REQUIRED_ACKS, -1)
            };
            partitions.push(answer.with_index(partition.index));
        }
        TopicProduceResponse::default()
            .with_name(topic.name)
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions)
    });
    let responses = responses.collect();
    drop(topics);
    shared.appended.notify_waiters();
    Some(ProduceResponse::default().with_responses(responses))
}

/// Where a request mentions each partition last: what it says of it before is
/// lost, in Kafka too.
fn last_mentions(request: &ProduceRequest) -> HashMap<(TopicName, Uuid, i32), (usize, usize)> {
    let mut last = HashMap::new();
    for (at, topic) in (0..).zip(&request.topic_data) {
        for (nth, partition) in (0..).zip(&topic.partition_data) {
            let key = (topic.name.clone(), topic.topic_id, partition.index);
            last.insert(key, (at, nth));
        }
    }
    last
}

fn named(topic: &TopicProduceData, version: i16) -> Named<'_> {
    if version >= 13 {
        Named::Id(topic.topic_id)
    } else {
        Named::Name(&topic.name)
    }
}

fn append(
    topics: &mut Topics,
    named: Named<'_>,
    partition: i32,
    records: &[u8],
    version: i16,
) -> PartitionProduceResponse {
    match topics.append(named, partition, records, version, now_ms()) {
        Ok((ack, start)) => PartitionProduceResponse::default()
            .with_base_offset(ack.offset)
            .with_log_append_time_ms(ack.append_time)
            .with_log_start_offset(start),
        Err((code, start)) => refused(code, start),
    }
}

fn refused(code: i16, start: i64) -> PartitionProduceResponse {
    PartitionProduceResponse::default()
        .with_error_code(code)
        .with_base_offset(-1)
        .with_log_start_offset(start)
}

/// What acks=0 leaves to say: nothing, or that a batch was refused.
pub(super) fn silence(response: &ProduceResponse) -> Reply {
    let topics = response.responses.iter();
    let mut partitions = topics.flat_map(|topic| &topic.partition_responses);
    match partitions.find(|partition| partition.error_code != 0) {
        Some(refused) => Reply::Refused(refused.error_code),
        None => Reply::Silence,
    }
}

/// Reads, waiting until there is enough or the time is over.
pub(super) async fn fetch(shared: &Arc<Shared>, request: FetchRequest) -> FetchResponse {
    // Each answer says that there is no session, so clients ask for everything.
    if request.session_id != 0 {
        return FetchResponse::default().with_error_code(code::FETCH_SESSION_ID_NOT_FOUND);
    }
    let wait = u64::try_from(request.max_wait_ms).unwrap_or(0);
    let wait = Duration::from_millis(wait).min(WAIT_MAX);
    let deadline = Instant::now() + wait;
    let enough = usize::try_from(request.min_bytes).unwrap_or(0);
    loop {
        let appended = shared.appended.notified();
        let found = read(&shared.topics(), &request);
        if found.bytes >= enough || found.failed || Instant::now() >= deadline {
            return FetchResponse::default().with_responses(found.responses);
        }
        let _ = time::timeout_at(deadline, appended).await;
    }
}

/// What there is to read now.
#[derive(Default)]
struct Found {
    responses: Vec<FetchableTopicResponse>,
    bytes: usize,
    /// Whether a partition has an error, which does not wait.
    failed: bool,
}

fn read(topics: &Topics, request: &FetchRequest) -> Found {
    let most = usize::try_from(request.max_bytes).unwrap_or(0);
    let most = most.min(FETCH_BYTES_MAX);
    let mut found = Found::default();
    for topic in &request.topics {
        let named = named_in(topic);
        let mut partitions = Vec::new();
        for wanted in &topic.partitions {
            let left = most.saturating_sub(found.bytes);
            let mut data = read_partition(topics, named, wanted, left);
            let size = data.records.as_ref().map_or(0, Bytes::len);
            // Only what comes first may be larger than wanted.
            if found.bytes > 0 && size > left {
                data.records = Some(Bytes::new());
            } else {
                found.bytes += size;
            }
            found.failed |= data.error_code != 0;
            partitions.push(data);
        }
        let response = FetchableTopicResponse::default()
            .with_topic(topic.topic.clone())
            .with_topic_id(topic.topic_id)
            .with_partitions(partitions);
        found.responses.push(response);
    }
    found
}

fn read_partition(
    topics: &Topics,
    named: Named<'_>,
    wanted: &FetchPartition,
    left: usize,
) -> PartitionData {
    let most = usize::try_from(wanted.partition_max_bytes).unwrap_or(0);
    let data = PartitionData::default()
        .with_partition_index(wanted.partition)
        .with_aborted_transactions(None)
        .with_records(Some(Bytes::new()));
    let log = match topics.log(named, wanted.partition) {
        Ok(log) => log,
        Err(code) => return data.with_error_code(code),
    };
    let data = data
        .with_high_watermark(log.end())
        .with_last_stable_offset(log.end())
        .with_log_start_offset(log.start());
    match log.read(wanted.fetch_offset, most.min(left)) {
        Some(batches) => data.with_records(Some(joined(&batches))),
        None => data.with_error_code(code::OFFSET_OUT_OF_RANGE),
    }
}

fn named_in(topic: &FetchTopic) -> Named<'_> {
    if topic.topic_id.is_nil() {
        Named::Name(&topic.topic)
    } else {
        Named::Id(topic.topic_id)
    }
}

fn joined(batches: &[Bytes]) -> Bytes {
    if let [only] = batches {
        return only.clone();
    }
    let mut all = BytesMut::with_capacity(batches.iter().map(Bytes::len).sum());
    batches
        .iter()
        .for_each(|batch| all.extend_from_slice(batch));
    all.freeze()
}

/// Offsets by time, or of the beginning or the end.
pub(super) fn list_offsets(
    shared: &Shared,
    request: ListOffsetsRequest,
    version: i16,
) -> ListOffsetsResponse {
    const LATEST: i64 = -1;
    const EARLIEST: i64 = -2;
    const MAX_TIMESTAMP: i64 = -3;
    const EARLIEST_LOCAL: i64 = -4;
    let topics = shared.topics();
    let responses = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let answer =
                ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
            let log = match topics.log(Named::Name(&topic.name), asked.partition_index) {
                Ok(log) => log,
                Err(code) => return answer.with_error_code(code),
            };
            let found = match asked.timestamp {
                LATEST => Some((log.end(), -1)),
                EARLIEST | EARLIEST_LOCAL => Some((log.start(), -1)),
                MAX_TIMESTAMP => log.latest(),
                // Tiers of storage, of which there are none.
                special if special < 0 => None,
                time => log.offset_at(time),
            };
            let (offset, timestamp) = found.unwrap_or((-1, -1));
            answer
                .with_offset(offset)
                .with_timestamp(timestamp)
                .with_leader_epoch(if offset < 0 || version < 4 { -1 } else { 0 })
        });
        let partitions = partitions.collect();
        ListOffsetsTopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(responses.collect())
}

fn now_ms() -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
