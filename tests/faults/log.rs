//! What is in the log: read from the leaders themselves, batch by batch.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};

use crate::batch::{CONTROL, Stored, TRANSACTIONAL, stored};
use crate::cluster::Cluster;
use crate::raw::{Connection, topic_name};
use crate::tools::wait_for;

/// A record that is there to be read by a consumer of committed records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) number: u64,
}

/// A topic's records, by partition, in log order.
pub(crate) type Log = BTreeMap<i32, Vec<Record>>;

/// Reads a topic whole.
pub(crate) fn read(cluster: &Cluster, topic: &str) -> Log {
    let patience = Duration::from_secs(60);
    let leaders = wait_for(&format!("leaders of {topic}"), patience, || {
        let leaders = cluster.connect(0).leaders(topic);
        let all = !leaders.is_empty() && leaders.iter().all(|leader| *leader >= 0);
        all.then_some(leaders)
    });
    let partitions = (0..).zip(&leaders);
    let read = partitions.map(|(partition, leader)| {
        let node = cluster.node(*leader);
        let batches = wait_for(&format!("the log of {topic}-{partition}"), patience, || {
            batches(&mut cluster.connect(node), topic, partition)
        });
        (partition, committed(&batches))
    });
    read.collect()
}

/// All batches of a partition; `None` while this node cannot give them.
fn batches(connection: &mut Connection, topic: &str, partition: i32) -> Option<Vec<Stored>> {
    let end = end_offset(connection, topic, partition)?;
    let mut batches: Vec<Stored> = Vec::new();
    loop {
        let next = batches
            .last()
            .map_or(0, |last| last.offset + i64::from(last.count));
        if next >= end {
            return Some(batches);
        }
        let wanted = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(next)
            .with_partition_max_bytes(8 << 20);
        let wanted = FetchTopic::default()
            .with_topic(topic_name(topic))
            .with_partitions(vec![wanted]);
        let request = FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(100)
            .with_min_bytes(1)
            .with_max_bytes(64 << 20)
            .with_topics(vec![wanted]);
        let response = connection.try_call(12, &request).ok()?;
        let partition = &response.responses.first()?.partitions[0];
        if partition.error_code != 0 {
            return None;
        }
        batches.extend(stored(partition.records.as_deref().unwrap_or(&[])));
    }
}

fn end_offset(connection: &mut Connection, topic: &str, partition: i32) -> Option<i64> {
    let wanted = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_current_leader_epoch(-1)
        .with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![wanted]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let response = connection.try_call(5, &request).ok()?;
    let partition = &response.topics.first()?.partitions[0];
    (partition.error_code == 0).then_some(partition.offset)
}

/// The records that no transaction has taken back. One that is still open has
/// committed nothing.
fn committed(batches: &[Stored]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut open: HashMap<i64, Vec<Record>> = HashMap::new();
    for batch in batches {
        if batch.attributes & CONTROL != 0 {
            let ended = open.remove(&batch.producer).unwrap_or_default();
            if is_commit(batch) {
                records.extend(ended);
            }
            continue;
        }
        let values = batch.values();
        assert_eq!(i32::try_from(values.len()), Ok(batch.count), "{batch:?}");
        let numbers = values.iter().map(|value| {
            let text = std::str::from_utf8(value).expect("records hold numbers");
            text.parse().expect("records hold numbers")
        });
        let read = (batch.offset..)
            .zip(numbers)
            .map(|(offset, number)| Record { offset, number });
        match batch.attributes & TRANSACTIONAL != 0 {
            true => open.entry(batch.producer).or_default().extend(read),
            false => records.extend(read),
        }
    }
    records.sort_by_key(|record| record.offset);
    records
}

/// The key of a marker is a version and what it marks: 0 an abort, 1 a commit.
fn is_commit(marker: &Stored) -> bool {
    // Length, attributes, time and offset deltas and the key's length take a byte each.
    marker.payload.get(7..9) == Some(&[0, 1])
}
