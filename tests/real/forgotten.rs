//! Retries that Kafka has forgotten are answered from the first acknowledgement.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kafka_protocol::messages::DescribeProducersRequest;
use kafka_protocol::messages::describe_producers_request::TopicRequest;

use crate::cluster::{Cluster, Options};
use crate::hapax::{Hapax, Route};
use crate::raw::{Connection, batch, topic_name};
use crate::tools::wait_for;

const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;

#[test]
fn a_retry_with_old_timestamps_is_written_once_though_its_producer_has_expired() {
    let cluster = Cluster::start(Options {
        fast_pid: true,
        ..Options::default()
    });
    let yesterday = now_ms() - Duration::from_secs(26 * 3600).as_millis();
    let yesterday = i64::try_from(yesterday).expect("a time of this age");

    let twice = cluster.create_topic("twice", 1);
    let mut direct = cluster.connect(0);
    let batch_direct = batch(direct.init_producer_id(), 0, yesterday, "0");
    assert_eq!(acked_at(&mut direct, &twice, &batch_direct), 0);
    wait_until_forgotten(&cluster, &twice);
    assert_eq!(
        acked_at(&mut direct, &twice, &batch_direct),
        1,
        "Kafka writes it again"
    );
    assert_eq!(cluster.log(&twice).len(), 2);

    if Route::chosen() == Route::Direct {
        return;
    }
    let hapax = Hapax::in_front_of(&cluster, &[]);
    let once = cluster.create_topic("once", 1);
    let mut client = Connection::open(&hapax.bootstrap());
    // Metrics name a topic that the cluster has named.
    client.metadata(&[&once]);
    let batch_through = batch(client.init_producer_id(), 0, yesterday, "0");
    let first = client.produce(&once, &batch_through);
    assert_eq!((first.error_code, first.base_offset), (0, 0));
    wait_until_forgotten(&cluster, &once);
    drop(client);
    let retry = Connection::open(&hapax.bootstrap()).produce(&once, &batch_through);
    assert_eq!(retry, first, "the answer is the first acknowledgement");
    assert_eq!(cluster.log(&once).len(), 1, "the log holds it once");
    assert_eq!(hapax.batches(&once, "duplicate_absorbed"), 1);
    assert_eq!(hapax.batches(&once, "forwarded"), 1);
}

#[test]
fn the_eighth_last_batch_is_absorbed_by_a_window_of_32() {
    let cluster = Cluster::one();
    let topic = cluster.create_topic("direct", 1);
    let mut direct = cluster.connect(0);
    let batches = eight_batches(direct.init_producer_id());
    for (offset, batch) in (0..).zip(&batches) {
        assert_eq!(acked_at(&mut direct, &topic, batch), offset);
    }
    assert_eq!(
        direct.produce(&topic, &batches[0]).error_code,
        OUT_OF_ORDER_SEQUENCE_NUMBER
    );

    if Route::chosen() == Route::Direct {
        return;
    }
    let hapax = Hapax::in_front_of(cluster, &["--sequence-window-batches", "32"]);
    let topic = cluster.create_topic("through", 1);
    let mut client = Connection::open(&hapax.bootstrap());
    let batches = eight_batches(client.init_producer_id());
    for (offset, batch) in (0..).zip(&batches) {
        assert_eq!(acked_at(&mut client, &topic, batch), offset);
    }
    assert_eq!(
        acked_at(&mut client, &topic, &batches[0]),
        0,
        "the eighth-last batch"
    );
    assert_eq!(cluster.log(&topic).len(), 8);
    assert_eq!(hapax.batches(&topic, "duplicate_absorbed"), 1);

    // The window's default is what Kafka itself remembers: beyond it, Kafka judges.
    let hapax = Hapax::in_front_of(cluster, &[]);
    let topic = cluster.create_topic("default", 1);
    let mut client = Connection::open(&hapax.bootstrap());
    let batches = eight_batches(client.init_producer_id());
    for batch in &batches {
        acked_at(&mut client, &topic, batch);
    }
    assert_eq!(
        client.produce(&topic, &batches[0]).error_code,
        OUT_OF_ORDER_SEQUENCE_NUMBER
    );
}

fn eight_batches(producer_id: i64) -> Vec<Bytes> {
    let now = i64::try_from(now_ms()).expect("a time of this age");
    (0..8)
        .map(|sequence| batch(producer_id, sequence, now, &sequence.to_string()))
        .collect()
}

/// The offset that a batch was acknowledged with.
#[track_caller]
fn acked_at(connection: &mut Connection, topic: &str, batch: &Bytes) -> i64 {
    let answer = connection.produce(topic, batch);
    assert_eq!(answer.error_code, 0, "{answer:?}");
    answer.base_offset
}

/// Kafka forgets a producer by the time of its last record.
pub(crate) fn wait_until_forgotten(cluster: &Cluster, topic: &str) {
    let mut connection = cluster.connect(0);
    let topic = TopicRequest::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    wait_for("the producer's expiry", Duration::from_secs(30), || {
        let response = connection.call(0, &request);
        let partition = &response.topics[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        partition.active_producers.is_empty().then_some(())
    });
}

fn now_ms() -> u128 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_millis()
}
