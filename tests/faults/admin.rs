//! What an operator does to a cluster's topics, by raw requests.

use std::time::Duration;

use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, CreateAclsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, ElectLeadersRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::raw::{Connection, topic_name};
use crate::tools::wait_for;

/// Replicas of a partition, the preferred leader first.
pub(crate) type Replicas = Vec<i32>;

const TOPIC_ALREADY_EXISTS: i16 = 36;

/// Creates a topic with these replicas, and waits for nothing.
pub(crate) fn create_topic(connection: &mut Connection, name: &str, replicas: &[Replicas]) {
    let assignments = (0..).zip(replicas).map(|(partition, replicas)| {
        CreatableReplicaAssignment::default()
            .with_partition_index(partition)
            .with_broker_ids(replicas.iter().map(|id| (*id).into()).collect())
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(assignments.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(20_000);
    // A controller that has no time says so, and may have made it all the same.
    wait_for("a new topic", Duration::from_secs(60), || {
        let code = connection.call(5, &request).topics[0].error_code;
        matches!(code, 0 | TOPIC_ALREADY_EXISTS).then_some(())
    });
}

/// Gives each partition these replicas, whose first then leads.
pub(crate) fn lead_by(connection: &mut Connection, topic: &str, replicas: &[Replicas]) {
    let partitions = (0..).zip(replicas).map(|(partition, replicas)| {
        ReassignablePartition::default()
            .with_partition_index(partition)
            .with_replicas(Some(replicas.iter().map(|id| (*id).into()).collect()))
    });
    let wanted = ReassignableTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(partitions.collect());
    let request = AlterPartitionReassignmentsRequest::default()
        .with_timeout_ms(20_000)
        .with_topics(vec![wanted]);
    // Where a partition is being moved already, that move goes on.
    connection.call(0, &request);
    let count = i32::try_from(replicas.len()).expect("few partitions");
    let wanted = TopicPartitions::default()
        .with_topic(topic_name(topic))
        .with_partitions((0..count).collect());
    let request = ElectLeadersRequest::default()
        .with_election_type(0)
        .with_topic_partitions(Some(vec![wanted]))
        .with_timeout_ms(20_000);
    // Nor is every replica in sync, and may lead, at every moment.
    connection.call(2, &request);
}

/// Deletes a topic, and waits until it is gone.
pub(crate) fn delete_topic(connection: &mut Connection, name: &str) {
    let topic = DeleteTopicState::default().with_name(Some(topic_name(name)));
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(20_000);
    let response = connection.call(6, &request);
    assert_eq!(response.responses[0].error_code, 0, "delete {name}");
    wait_for("the topic's end", Duration::from_secs(20), || {
        let is_gone = connection.metadata(&[name]).topics[0].error_code == 3;
        is_gone.then_some(())
    });
}

/// Has topics deleted when there is time for it.
pub(crate) fn drop_topics<'a>(
    connection: &mut Connection,
    names: impl Iterator<Item = &'a String>,
) {
    let topics = names.map(|name| DeleteTopicState::default().with_name(Some(topic_name(name))));
    let request = DeleteTopicsRequest::default()
        .with_topics(topics.collect())
        .with_timeout_ms(1_000);
    // Nobody looks at what stays.
    connection.call(6, &request);
}

// Of ACLs: the resource type, the pattern type, the operations and the permission.
const TOPIC: i8 = 2;
const LITERAL: i8 = 3;
const WRITE: i8 = 4;
const DESCRIBE: i8 = 8;
const ALLOW: i8 = 3;

/// From now on this user may write to a topic, and nobody else may do anything with it.
pub(crate) fn allow_writing_alone(connection: &mut Connection, topic: &str, user: &str) {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let creations = [WRITE, DESCRIBE].map(|operation| {
        AclCreation::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_resource_pattern_type(LITERAL)
            .with_principal(text(&format!("User:{user}")))
            .with_host(text("*"))
            .with_operation(operation)
            .with_permission_type(ALLOW)
    });
    let request = CreateAclsRequest::default().with_creations(creations.to_vec());
    for result in connection.call(3, &request).results {
        assert_eq!(result.error_code, 0, "{:?}", result.error_message);
    }
}
