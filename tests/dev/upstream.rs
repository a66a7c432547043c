//! The broker: each api in each version, waiting, forgetting, and its limits.
//! What it does with batches is compared with Kafka's by `tests/differential`.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hapax::dev::{RETENTION_BYTES, Upstream};
use hapax::workers::new_runtime;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    FetchRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, InitProducerIdRequest,
    JoinGroupRequest, LeaveGroupRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::{Request, StrBytes};

use crate::support::batch::Batch;
use crate::support::raw::{Client, Produce, topic_name};

/// Starts a broker that holds so many bytes, on a thread that lives as long as
/// the process; gives its address and itself.
pub(crate) fn start(retention_bytes: usize) -> (String, Upstream) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        new_runtime().unwrap().block_on(async {
            let (upstream, listener) = Upstream::bind(0, retention_bytes).await.unwrap();
            tell.send(upstream.clone()).unwrap();
            upstream.serve(listener).await;
        });
    });
    let upstream = told.recv().unwrap();
    (upstream.address().to_string(), upstream)
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Asks in each version that ApiVersions offers; every answer must decode.
fn ask<R: Request>(client: &mut Client, make: impl Fn(i16) -> R) -> Vec<(i16, R::Response)> {
    let offered = client.api_versions(3).unwrap();
    let api = offered.api_keys.iter().find(|api| api.api_key == R::KEY);
    let api = api.unwrap_or_else(|| panic!("api {} is not offered", R::KEY));
    assert!(api.min_version < api.max_version, "{api:?}");
    let answers = (api.min_version..=api.max_version).map(|version| {
        let answer = client.call(version, &make(version));
        let answer = answer.unwrap_or_else(|e| panic!("api {} v{version}: {e}", R::KEY));
        (version, answer)
    });
    answers.collect()
}

#[test]
fn topics_are_made_and_told_in_every_version() {
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    let made = ask(&mut client, |version| {
        let topic = CreatableTopic::default()
            .with_name(topic_name(&format!("made-{version}")))
            .with_num_partitions(3)
            .with_replication_factor(1);
        CreateTopicsRequest::default().with_topics(vec![topic])
    });
    assert!(made.iter().all(|(_, made)| made.topics[0].error_code == 0));
    // Metadata of a topic that is not there makes it.
    let told = ask(&mut client, |version| {
        let topic =
            MetadataRequestTopic::default().with_name(Some(topic_name(&format!("auto-{version}"))));
        MetadataRequest::default().with_topics(Some(vec![topic]))
    });
    for (version, told) in told {
        assert_eq!(told.topics[0].error_code, 0, "v{version}");
        assert_eq!(told.topics[0].partitions.len(), 1, "v{version}");
        assert_eq!(format!("127.0.0.1:{}", told.brokers[0].port), address);
    }
    let all = client.call(12, &MetadataRequest::default().with_topics(None));
    assert_eq!(all.unwrap().topics.len(), made.len() + 14);
    let settings = ask(&mut client, |_| {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("made-2"));
        DescribeConfigsRequest::default().with_resources(vec![resource])
    });
    assert!(
        settings
            .iter()
            .all(|(_, found)| found.results[0].error_code == 0)
    );
    let cluster = ask(&mut client, |_| DescribeClusterRequest::default());
    assert!(
        cluster
            .iter()
            .all(|(_, cluster)| cluster.brokers.len() == 1)
    );
    let gone = ask(&mut client, |version| {
        let name = topic_name(&format!("auto-{version}"));
        let request = DeleteTopicsRequest::default();
        if version >= 6 {
            request.with_topics(vec![DeleteTopicState::default().with_name(Some(name))])
        } else {
            request.with_topic_names(vec![name])
        }
    });
    assert!(
        gone.iter()
            .all(|(_, gone)| gone.responses[0].error_code == 0)
    );
}

#[test]
fn records_are_written_and_read_in_every_version() {
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    let topic = client.create_topic("orders", 1, &[]).unwrap();
    let ids = ask(&mut client, |_| {
        InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1)
    });
    let producer = ids[0].1.producer_id.0;
    assert!(
        ids[1..]
            .iter()
            .all(|(_, id)| id.error_code == 0 && id.producer_id.0 != producer)
    );
    for (sequence, version) in (0..).zip(3..=13) {
        let batch = Batch::of(producer, 0, sequence, ["v"]);
        let produce = Produce::to(&topic, 0, batch.bytes()).version(version);
        let answer = client.produce(&produce).unwrap();
        assert_eq!((answer.code, answer.offset), (0, i64::from(sequence)));
    }
    let ends = ask(&mut client, |_| {
        let partition = ListOffsetsPartition::default().with_timestamp(-1);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("orders"))
            .with_partitions(vec![partition]);
        ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_topics(vec![topic])
    });
    assert!(
        ends.iter()
            .all(|(_, end)| end.topics[0].partitions[0].offset == 11)
    );
    let id = client.metadata(12, &["orders"]).unwrap().topics[0].topic_id;
    let read = ask(&mut client, |version| {
        let partition = FetchPartition::default()
            .with_fetch_offset(3)
            .with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_partitions(vec![partition]);
        let topic = if version >= 13 {
            topic.with_topic_id(id)
        } else {
            topic.with_topic(topic_name("orders"))
        };
        FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_topics(vec![topic])
    });
    for (version, read) in read {
        let records = read.responses[0].partitions[0].records.as_ref().unwrap();
        let offsets = crate::support::batch::stored(records);
        let offsets: Vec<_> = offsets.iter().map(|batch| batch.offset).collect();
        assert_eq!(offsets, (3..11).collect::<Vec<_>>(), "v{version}");
    }
}

#[test]
fn a_group_of_one_goes_round_in_every_version() {
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    client.create_topic("orders", 1, &[]).unwrap();
    let group = |version: i16| GroupId(text(&format!("readers-{version}")));
    let found = ask(&mut client, |version| {
        let request = FindCoordinatorRequest::default();
        if version >= 4 {
            request.with_coordinator_keys(vec![text("readers")])
        } else {
            request.with_key(text("readers"))
        }
    });
    for (version, found) in found {
        let port = if version >= 4 {
            found.coordinators[0].port
        } else {
            found.port
        };
        assert_eq!(format!("127.0.0.1:{port}"), address, "v{version}");
    }
    let joined = ask(&mut client, |version| {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata("topics".into());
        JoinGroupRequest::default()
            .with_group_id(group(version))
            .with_session_timeout_ms(30_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol])
    });
    let member = |version: i16| {
        let (_, joined) = joined
            .iter()
            .find(|(joined, _)| *joined == version)
            .unwrap();
        assert_eq!(joined.error_code, 0);
        assert_eq!(joined.leader, joined.member_id);
        joined.member_id.clone()
    };
    let sync = |version| {
        SyncGroupRequest::default()
            .with_group_id(group(version))
            .with_generation_id(1)
            .with_member_id(member(version))
    };
    let synced = ask(&mut client, sync);
    assert!(synced.iter().all(|(_, synced)| synced.error_code == 0));
    // JoinGroup has more versions than it.
    for version in 6..=9 {
        assert_eq!(client.call(5, &sync(version)).unwrap().error_code, 0);
    }
    let alive = ask(&mut client, |version| {
        HeartbeatRequest::default()
            .with_group_id(group(version))
            .with_generation_id(1)
            .with_member_id(member(version))
    });
    assert!(alive.iter().all(|(_, alive)| alive.error_code == 0));
    let committed = ask(&mut client, |version| {
        let partition =
            OffsetCommitRequestPartition::default().with_committed_offset(40 + i64::from(version));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic_name("orders"))
            .with_partitions(vec![partition]);
        OffsetCommitRequest::default()
            .with_group_id(group(version))
            .with_generation_id_or_member_epoch(1)
            .with_member_id(member(version))
            .with_topics(vec![topic])
    });
    for (version, committed) in committed {
        let code = committed.topics[0].partitions[0].error_code;
        assert_eq!(code, 0, "v{version}");
    }
    let read = ask(&mut client, |version| {
        let request = OffsetFetchRequest::default();
        if version >= 8 {
            let topic = OffsetFetchRequestTopics::default()
                .with_name(topic_name("orders"))
                .with_partition_indexes(vec![0]);
            let group = OffsetFetchRequestGroup::default()
                .with_group_id(group(version))
                .with_topics(Some(vec![topic]));
            request.with_groups(vec![group])
        } else {
            let topic = OffsetFetchRequestTopic::default()
                .with_name(topic_name("orders"))
                .with_partition_indexes(vec![0]);
            request
                .with_group_id(group(version))
                .with_topics(Some(vec![topic]))
        }
    });
    for (version, read) in &read {
        let offset = if *version >= 8 {
            read.groups[0].topics[0].partitions[0].committed_offset
        } else {
            read.topics[0].partitions[0].committed_offset
        };
        // Version 1 of OffsetCommit is not there any more.
        let wanted = if *version == 1 {
            -1
        } else {
            40 + i64::from(*version)
        };
        assert_eq!(offset, wanted, "v{version}");
    }
    let left = ask(&mut client, |version| {
        let request = LeaveGroupRequest::default().with_group_id(group(version));
        if version >= 3 {
            let member = MemberIdentity::default().with_member_id(member(version));
            request.with_members(vec![member])
        } else {
            request.with_member_id(member(version))
        }
    });
    assert!(left.iter().all(|(_, left)| left.error_code == 0));
}

#[test]
fn a_reader_waits_for_what_is_written_next() {
    let (address, _) = start(RETENTION_BYTES);
    let mut writer = Client::connect(&address).unwrap();
    let topic = writer.create_topic("orders", 1, &[]).unwrap();
    let mut reader = Client::connect(&address).unwrap();
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default()
        .with_topic(topic_name("orders"))
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_wait_ms(60_000)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![wanted]);
    let correlation = reader.send(12, &request).unwrap();
    let batch = Batch::of(7, 0, 0, ["v"]);
    writer
        .produce(&Produce::to(&topic, 0, batch.bytes()))
        .unwrap();
    let response = reader.receive::<FetchRequest>(12, correlation).unwrap();
    let records = response.responses[0].partitions[0].records.as_ref();
    assert_eq!(crate::support::batch::stored(records.unwrap()).len(), 1);
}

#[test]
fn acks_0_is_written_without_an_answer_and_an_error_closes() {
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    let topic = client.create_topic("orders", 1, &[]).unwrap();
    let put = |sequence| {
        let batch = Batch::of(7, 0, sequence, ["v"]);
        Produce::to(&topic, 0, batch.bytes()).acks(0).request()
    };
    client.send(12, &put(0)).unwrap();
    client.send(12, &put(1)).unwrap();
    // The next answer is the one to the next question.
    assert_eq!(client.end_offset("orders", 0).unwrap(), 2);
    client.send(12, &put(9)).unwrap();
    assert!(client.is_closed(Duration::from_secs(20)));
}

#[test]
fn beyond_its_limit_the_oldest_batches_go_and_logs_begin_later() {
    const LIMIT: usize = 64 << 10;
    /// What each batch counts beside its bytes.
    const OVERHEAD: usize = 128;
    let (address, _) = start(LIMIT);
    let mut client = Client::connect(&address).unwrap();
    let names = ["first", "second"];
    let topics = names.map(|name| client.create_topic(name, 1, &[]).unwrap());
    let batch = |sequence| Batch::of(7, 0, sequence, [vec![0; 1000]]).bytes();
    // Two thirds to the first topic, then as much again to the second one.
    let (mut sent, put) = (0, 40);
    for topic in &topics {
        for sequence in 0..put {
            let produce = Produce::to(topic, 0, batch(sequence));
            assert_eq!(client.produce(&produce).unwrap().code, 0);
            sent += batch(sequence).len() + OVERHEAD;
        }
    }
    let start = |client: &mut Client, name: &str| {
        let partition = ListOffsetsPartition::default().with_timestamp(-2);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name(name))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        client.call(7, &request).unwrap().topics[0].partitions[0].offset
    };
    let starts = names.map(|name| start(&mut client, name));
    let one = i64::try_from(batch(0).len() + OVERHEAD).unwrap();
    let dropped = i64::try_from(sent - LIMIT).unwrap();
    // The oldest are all of the first topic, and no more go than must.
    assert_eq!(starts, [dropped.div_euclid(one) + 1, 0]);
    for (topic, end) in topics.iter().zip([40, 40]) {
        assert_eq!(client.end_offset(&topic.name, 0).unwrap(), end);
    }
    let error = client.log("first", 0).unwrap_err();
    assert!(error.to_string().contains("Fetch answered 1"), "{error}");
    // What Kafka remembers of a producer outlives its batches.
    let again = Produce::to(&topics[0], 0, batch(39));
    let answer = client.produce(&again).unwrap();
    assert_eq!(
        (answer.code, answer.offset, answer.log_start),
        (0, 39, starts[0])
    );
}

#[test]
fn a_forgotten_producer_writes_its_batch_once_more() {
    let (address, upstream) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    let topic = client.create_topic("orders", 1, &[]).unwrap();
    let produce = Produce::to(&topic, 0, Batch::of(7, 0, 3, ["v"]).bytes());
    let mut offsets = Vec::new();
    for forgets in [false, true, false] {
        offsets.push(client.produce(&produce).unwrap().offset);
        if forgets {
            upstream.forget_producers("orders");
        }
    }
    assert_eq!(offsets, [0, 0, 1]);
}

#[test]
fn transactions_are_refused_with_a_reason() {
    const NOT_ALLOWED: i16 = 53;
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    for version in 1..=6 {
        let request = FindCoordinatorRequest::default().with_key_type(1);
        let (code, message) = if version >= 4 {
            let request = request.with_coordinator_keys(vec![text("payments")]);
            let mut found = client.call(version, &request).unwrap().coordinators;
            let found = found.remove(0);
            (found.error_code, found.error_message)
        } else {
            let request = request.with_key(text("payments"));
            let found = client.call(version, &request).unwrap();
            (found.error_code, found.error_message)
        };
        assert_eq!(code, NOT_ALLOWED, "v{version}");
        let message = message.unwrap();
        assert!(
            message.contains("hapax dev has no transactions"),
            "{message}"
        );
    }
    let error = client.init_producer(4, Some("payments"));
    assert!(error.unwrap_err().to_string().contains("answered"));
}

/// Otherwise a small request could have an answer of any size made.
#[test]
fn what_is_asked_for_twice_is_answered_once() {
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    client.create_topic("orders", 2, &[]).unwrap();
    let many = 10_000;

    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("orders")));
    let metadata = MetadataRequest::default().with_topics(Some(vec![topic; many]));
    let told = client.call(12, &metadata).unwrap();
    assert_eq!(told.topics.len(), 1);
    assert_eq!(told.topics[0].partitions.len(), 2);

    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("orders"));
    let configs = DescribeConfigsRequest::default().with_resources(vec![resource; many]);
    assert_eq!(client.call(4, &configs).unwrap().results.len(), 1);

    let partitions = vec![0; many];
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name("orders"))
        .with_partition_indexes(partitions.clone());
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text("readers")))
        .with_topics(Some(vec![topic; 2]));
    let offsets = OffsetFetchRequest::default().with_groups(vec![group; 2]);
    let told = client.call(8, &offsets).unwrap();
    assert_eq!(told.groups.len(), 1);
    assert_eq!(told.groups[0].topics.len(), 1);
    assert_eq!(told.groups[0].topics[0].partitions.len(), 1);

    let topic = OffsetFetchRequestTopic::default()
        .with_name(topic_name("orders"))
        .with_partition_indexes(partitions);
    let offsets = OffsetFetchRequest::default()
        .with_group_id(GroupId(text("readers")))
        .with_topics(Some(vec![topic; 2]));
    let told = client.call(7, &offsets).unwrap();
    assert_eq!(told.topics.len(), 1);
    assert_eq!(told.topics[0].partitions.len(), 1);
}
