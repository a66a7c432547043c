//! Which requests are answered, and with what: topics, offsets and groups.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, FetchRequest, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse, InitProducerIdRequest, InitProducerIdResponse,
    JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse, ListOffsetsRequest, MetadataRequest,
    MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse, ProduceRequest, ResponseHeader, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, StrBytes};

use super::code::{self, api};
use super::groups::{Committed, Progress, Who};
use super::records;
use super::topics::{Named, Topic};
use super::upstream::Shared;

/// The only broker.
pub(super) const NODE: i32 = 1;
/// With error 53, the only one that every client takes for the last word:
/// librdkafka asks again for ever after others.
const NO_TRANSACTIONS: &str = "hapax dev has no transactions: run hapax in front of a Kafka, \
                               or leave transactional.id out";

/// A request whose header has been read.
pub(super) struct Request {
    pub(super) key: i16,
    pub(super) version: i16,
    pub(super) correlation: i32,
    pub(super) client_id: String,
    pub(super) body: Bytes,
}

/// What becomes of a request.
pub(super) enum Reply {
    /// An answer, with its length.
    Frame(Bytes),
    /// No answer, as for acks=0.
    Silence,
    /// acks=0 and an error: all that can be done is to hang up.
    Refused(i16),
    /// No answer, to this nor to what follows it.
    Stuck,
    /// An api or a version that is not served.
    Unserved,
}

/// The versions of each api that are served.
pub(super) fn served(key: i16) -> Option<RangeInclusive<i16>> {
    let served = SERVED.iter().find(|(served, ..)| *served == key)?;
    Some(served.1..=served.2)
}

const SERVED: &[(i16, i16, i16)] = &[
    (api::PRODUCE, 3, 13),
    (api::FETCH, 4, 18),
    (api::LIST_OFFSETS, 1, 10),
    (api::METADATA, 0, 13),
    (api::OFFSET_COMMIT, 2, 9),
    (api::OFFSET_FETCH, 1, 9),
    (api::FIND_COORDINATOR, 0, 6),
    (api::JOIN_GROUP, 0, 9),
    (api::HEARTBEAT, 0, 4),
    (api::LEAVE_GROUP, 0, 5),
    (api::SYNC_GROUP, 0, 5),
    (api::API_VERSIONS, 0, 5),
    (api::CREATE_TOPICS, 2, 7),
    (api::DELETE_TOPICS, 1, 6),
    (api::INIT_PRODUCER_ID, 0, 5),
    (api::DESCRIBE_CONFIGS, 1, 4),
    (api::DESCRIBE_CLUSTER, 0, 2),
];

/// Answers a request.
pub(super) async fn answer(shared: &Arc<Shared>, request: Request) -> anyhow::Result<Reply> {
    let call = Call(request);
    match call.0.key {
        api::PRODUCE => {
            let produce: ProduceRequest = call.decode()?;
            let acks = produce.acks;
            match records::produce(shared, produce, call.0.version) {
                None => Ok(Reply::Stuck),
                Some(answer) if acks == 0 => Ok(records::silence(&answer)),
                Some(answer) => call.encode(&answer),
            }
        }
        api::FETCH => {
            let fetch: FetchRequest = call.decode()?;
            call.encode(&records::fetch(shared, fetch).await)
        }
        api::LIST_OFFSETS => {
            let asked: ListOffsetsRequest = call.decode()?;
            call.encode(&records::list_offsets(shared, asked, call.0.version))
        }
        api::METADATA => call.encode(&metadata(shared, call.decode()?, call.0.version)),
        api::OFFSET_COMMIT => call.encode(&offset_commit(shared, &call.decode()?)),
        api::OFFSET_FETCH => call.encode(&offset_fetch(shared, call.decode()?, call.0.version)),
        api::FIND_COORDINATOR => {
            call.encode(&find_coordinator(shared, call.decode()?, call.0.version))
        }
        api::JOIN_GROUP => {
            let join: JoinGroupRequest = call.decode()?;
            call.encode(&shared.groups.join(join, &call.0.client_id).await)
        }
        api::HEARTBEAT => call.encode(&heartbeat(shared, &call.decode()?)),
        api::LEAVE_GROUP => call.encode(&leave_group(shared, call.decode()?, call.0.version)),
        api::SYNC_GROUP => {
            let sync: SyncGroupRequest = call.decode()?;
            call.encode(&shared.groups.sync(sync).await)
        }
        api::API_VERSIONS => call.api_versions(),
        api::CREATE_TOPICS => call.encode(&create_topics(shared, call.decode()?)),
        api::DELETE_TOPICS => call.encode(&delete_topics(shared, call.decode()?, call.0.version)),
        api::INIT_PRODUCER_ID => call.encode(&init_producer_id(shared, &call.decode()?)),
        api::DESCRIBE_CONFIGS => call.encode(&describe_configs(shared, call.decode()?)),
        api::DESCRIBE_CLUSTER => call.encode(&describe_cluster(shared, &call.decode()?)),
        _ => Ok(Reply::Unserved),
    }
}

struct Call(Request);

impl Call {
    fn decode<R: Decodable + Message>(&self) -> anyhow::Result<R> {
        R::decode(&mut self.0.body.clone(), self.0.version)
    }

    fn encode<R: Encodable + HeaderVersion>(&self, response: &R) -> anyhow::Result<Reply> {
        self.encode_as(response, self.0.version)
    }

    fn encode_as<R: Encodable + HeaderVersion>(
        &self,
        response: &R,
        version: i16,
    ) -> anyhow::Result<Reply> {
        let mut frame = BytesMut::from(&[0; 4][..]);
        ResponseHeader::default()
            .with_correlation_id(self.0.correlation)
            .encode(&mut frame, R::header_version(version))?;
        response.encode(&mut frame, version)?;
        let length = u32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(Reply::Frame(frame.freeze()))
    }

    fn api_versions(&self) -> anyhow::Result<Reply> {
        let known = served(api::API_VERSIONS).is_some_and(|v| v.contains(&self.0.version));
        let all = SERVED.iter().map(|(key, oldest, newest)| {
            // As Kafka does: librdkafka compresses only where Produce begins at 0.
            let oldest = if *key == api::PRODUCE { 0 } else { *oldest };
            ApiVersion::default()
                .with_api_key(*key)
                .with_min_version(oldest)
                .with_max_version(*newest)
        });
        let response = ApiVersionsResponse::default()
            .with_error_code(if known { 0 } else { code::UNSUPPORTED_VERSION })
            .with_api_keys(all.collect());
        // Version 5 is laid out as version 4, whose layout the crate knows.
        self.encode_as(&response, if known { self.0.version.min(4) } else { 0 })
    }
}

/// What is asked for twice is answered once: otherwise a small request could
/// ask for any amount of memory.
fn once<T, K: Hash + Eq>(asked: Vec<T>, key: impl Fn(&T) -> K) -> impl Iterator<Item = T> {
    let mut seen = HashSet::new();
    asked
        .into_iter()
        .filter(move |asked| seen.insert(key(asked)))
}

/// A text of the protocol crate.
pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn host(shared: &Shared) -> (StrBytes, i32) {
    let address = shared.address;
    (text(&address.ip().to_string()), address.port().into())
}

fn metadata(shared: &Shared, request: MetadataRequest, version: i16) -> MetadataResponse {
    let (host, port) = host(shared);
    let broker = MetadataResponseBroker::default()
        .with_node_id(NODE.into())
        .with_host(host)
        .with_port(port);
    // Before version 4 clients could not say that they do not want it.
    let creates = version < 4 || request.allow_auto_topic_creation;
    let mut topics = shared.topics();
    let all = match &request.topics {
        None => true,
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let found = if all {
        topics.all().map(|(name, t)| described(name, t)).collect()
    } else {
        let asked = request.topics.unwrap_or_default();
        let asked = once(asked, |asked| (asked.name.clone(), asked.topic_id));
        let find = asked.map(|asked| {
            let name = asked.name.as_deref().map(StrBytes::as_str);
            let named = name.map_or(Named::Id(asked.topic_id), Named::Name);
            let mut error = named.unknown();
            if let (Named::Name(name), true) = (named, creates)
                && topics.find(named).is_none()
                && let Err((code, _)) = topics.create(name, -1, BTreeMap::new())
            {
                error = code;
            }
            match topics.find(named) {
                Some((name, topic)) => described(name, topic),
                None => MetadataResponseTopic::default()
                    .with_error_code(error)
                    .with_topic_id(asked.topic_id)
                    // Before version 12 a name cannot be null.
                    .with_name(
                        asked
                            .name
                            .or_else(|| (version < 12).then(TopicName::default)),
                    ),
            }
        });
        find.collect()
    };
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(text(&shared.cluster_id)))
        .with_controller_id(NODE.into())
        .with_topics(found)
}

fn described(name: &str, topic: &Topic) -> MetadataResponseTopic {
    let partitions = (0..).zip(&topic.partitions).map(|(index, _)| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(NODE.into())
            .with_leader_epoch(0)
            .with_replica_nodes(vec![NODE.into()])
            .with_isr_nodes(vec![NODE.into()])
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(name))))
        .with_topic_id(topic.id)
        .with_partitions(partitions.collect())
}

fn describe_cluster(shared: &Shared, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    let (host, port) = host(shared);
    let broker = DescribeClusterBroker::default()
        .with_broker_id(NODE.into())
        .with_host(host)
        .with_port(port);
    DescribeClusterResponse::default()
        .with_endpoint_type(request.endpoint_type)
        .with_cluster_id(text(&shared.cluster_id))
        .with_controller_id(NODE.into())
        .with_brokers(vec![broker])
}

fn create_topics(shared: &Shared, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let only_validate = request.validate_only;
    let results = request.topics.into_iter().map(|asked| {
        let result = CreatableTopicResult::default().with_name(asked.name.clone());
        match create_topic(shared, &asked, only_validate) {
            Ok((id, partitions)) => result
                .with_topic_id(id)
                .with_num_partitions(partitions)
                .with_replication_factor(1)
                .with_configs(Some(Vec::new())),
            Err((code, why)) => result
                .with_error_code(code)
                .with_error_message(Some(text(&why))),
        }
    });
    CreateTopicsResponse::default().with_topics(results.collect())
}

fn create_topic(
    shared: &Shared,
    asked: &CreatableTopic,
    only_validate: bool,
) -> Result<(uuid::Uuid, i32), (i16, String)> {
    let settings = asked.configs.iter().filter_map(|setting| {
        let value = setting.value.as_ref()?;
        Some((setting.name.to_string(), value.to_string()))
    });
    // An assignment has a row for each partition; there is only one broker.
    let partitions = match i32::try_from(asked.assignments.len()) {
        Ok(rows) if rows > 0 => rows,
        _ => asked.num_partitions,
    };
    let mut topics = shared.topics();
    let topic = topics.create(&asked.name, partitions, settings.collect())?;
    let made = (topic.id, i32::try_from(topic.partitions.len()).unwrap_or(0));
    if only_validate {
        topics.delete(Named::Name(&asked.name));
    }
    Ok(made)
}

fn delete_topics(
    shared: &Shared,
    request: DeleteTopicsRequest,
    version: i16,
) -> DeleteTopicsResponse {
    let names = request
        .topic_names
        .into_iter()
        .map(|name| (Some(name), uuid::Uuid::nil()));
    let states = request
        .topics
        .into_iter()
        .map(|topic| (topic.name, topic.topic_id));
    let results = names.chain(states).map(|(name, id)| {
        let named = name.as_deref().map(StrBytes::as_str);
        let named = named.map_or(Named::Id(id), Named::Name);
        let deleted = shared.topics().delete(named);
        let error = if deleted.is_none() {
            named.unknown()
        } else {
            0
        };
        let result = DeletableTopicResult::default().with_error_code(error);
        match deleted {
            Some((name, id)) => {
                shared.groups.forget_topic(&name);
                result
                    .with_name(Some(TopicName(text(&name))))
                    .with_topic_id(id)
            }
            None => result
                // Before version 6 a name cannot be null.
                .with_name(name.or_else(|| (version < 6).then(TopicName::default)))
                .with_topic_id(id),
        }
    });
    DeleteTopicsResponse::default().with_responses(results.collect())
}

fn describe_configs(shared: &Shared, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    const TOPIC: i8 = 2;
    const DYNAMIC_TOPIC_CONFIG: i8 = 1;
    let topics = shared.topics();
    let resources = once(request.resources, |asked| {
        (asked.resource_type, asked.resource_name.clone())
    });
    let results = resources.map(|asked| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(asked.resource_type)
            .with_resource_name(asked.resource_name.clone());
        if asked.resource_type != TOPIC {
            return result;
        }
        let named = Named::Name(&asked.resource_name);
        let Some((_, topic)) = topics.find(named) else {
            return result.with_error_code(named.unknown());
        };
        let wanted = asked.configuration_keys;
        let is_wanted = |name: &str| {
            let wanted = wanted.as_ref();
            wanted.is_none_or(|names| names.iter().any(|wanted| wanted.as_str() == name))
        };
        let settings = topic.settings.iter().filter(|(name, _)| is_wanted(name));
        let configs = settings.map(|(name, value)| {
            DescribeConfigsResourceResult::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
                .with_config_source(DYNAMIC_TOPIC_CONFIG)
        });
        result.with_configs(configs.collect())
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn init_producer_id(shared: &Shared, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    if request.transactional_id.is_some() {
        tracing::warn!(
            reason = NO_TRANSACTIONS,
            "a transactional producer is refused"
        );
        return InitProducerIdResponse::default()
            .with_error_code(code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
    }
    InitProducerIdResponse::default()
        .with_producer_id(shared.next_producer().into())
        .with_producer_epoch(0)
}

fn find_coordinator(
    shared: &Shared,
    request: FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    const GROUP: i8 = 0;
    let (host, port) = host(shared);
    let (error, message) = if request.key_type == GROUP {
        (0, None)
    } else {
        tracing::warn!(reason = NO_TRANSACTIONS, "a coordinator is refused");
        (
            code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Some(text(NO_TRANSACTIONS)),
        )
    };
    if version < 4 {
        return FindCoordinatorResponse::default()
            .with_error_code(error)
            .with_error_message(message)
            .with_node_id(NODE.into())
            .with_host(host)
            .with_port(port);
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        Coordinator::default()
            .with_key(key)
            .with_error_code(error)
            .with_error_message(message.clone())
            .with_node_id(NODE.into())
            .with_host(host.clone())
            .with_port(port)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

fn heartbeat(shared: &Shared, request: &HeartbeatRequest) -> HeartbeatResponse {
    let who = Who {
        member: &request.member_id,
        instance: request.group_instance_id.as_ref(),
        generation: request.generation_id,
    };
    let error = shared.groups.heartbeat(&request.group_id, who);
    HeartbeatResponse::default().with_error_code(error)
}

fn leave_group(shared: &Shared, request: LeaveGroupRequest, version: i16) -> LeaveGroupResponse {
    let group = request.group_id.as_str();
    if version < 3 {
        let error = shared.groups.leave(group, &request.member_id, None);
        return LeaveGroupResponse::default().with_error_code(error);
    }
    let members = request.members.into_iter().map(|member| {
        let instance = member.group_instance_id;
        let error = shared
            .groups
            .leave(group, &member.member_id, instance.as_ref());
        MemberResponse::default()
            .with_member_id(member.member_id)
            .with_group_instance_id(instance)
            .with_error_code(error)
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

fn offset_commit(shared: &Shared, request: &OffsetCommitRequest) -> OffsetCommitResponse {
    let who = Who {
        member: &request.member_id,
        instance: request.group_instance_id.as_ref(),
        generation: request.generation_id_or_member_epoch,
    };
    let topics = shared.topics();
    let offsets = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| Progress {
            topic: &topic.name,
            partition: partition.partition_index,
            exists: topics
                .log(Named::Name(&topic.name), partition.partition_index)
                .is_ok(),
            committed: Committed {
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                // A copy: a part of the request would keep all of it.
                metadata: text(partition.committed_metadata.as_deref().unwrap_or_default()),
            },
        })
    });
    let offsets: Vec<_> = offsets.collect();
    drop(topics);
    let errors = shared.groups.commit(&request.group_id, who, &offsets);
    let mut errors = errors.into_iter();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(errors.next().unwrap_or(0))
        });
        OffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

/// What is asked of a group: topics with their partitions, or all.
type Wanted = Option<Vec<(TopicName, Vec<i32>)>>;
/// What a group has read: topics with partitions and offsets.
type Read = Vec<(TopicName, Vec<(i32, Committed)>)>;

fn offset_fetch(shared: &Shared, request: OffsetFetchRequest, version: i16) -> OffsetFetchResponse {
    if version >= 8 {
        let groups = once(request.groups, |group| group.group_id.clone());
        let groups = groups.map(|group| {
            let asked = |topics: Vec<_>| topics.into_iter().map(wanted_of_group).collect();
            let read = read(shared, &group.group_id, group.topics.map(asked));
            let topics = read.into_iter().map(|(name, partitions)| {
                let partitions = partitions.into_iter().map(|(index, committed)| {
                    OffsetFetchResponsePartitions::default()
                        .with_partition_index(index)
                        .with_committed_offset(committed.offset)
                        .with_committed_leader_epoch(committed.leader_epoch)
                        .with_metadata(Some(committed.metadata))
                });
                OffsetFetchResponseTopics::default()
                    .with_name(name)
                    .with_partitions(partitions.collect())
            });
            OffsetFetchResponseGroup::default()
                .with_group_id(group.group_id)
                .with_topics(topics.collect())
        });
        return OffsetFetchResponse::default().with_groups(groups.collect());
    }
    let asked = request.topics.map(|topics| {
        let asked = topics.into_iter().map(|t| (t.name, t.partition_indexes));
        asked.collect()
    });
    let read = read(shared, &request.group_id, asked);
    let topics = read.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, committed)| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(committed.offset)
                .with_committed_leader_epoch(committed.leader_epoch)
                .with_metadata(Some(committed.metadata))
        });
        OffsetFetchResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}

fn wanted_of_group(
    topic: kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopics,
) -> (TopicName, Vec<i32>) {
    (topic.name, topic.partition_indexes)
}

fn read(shared: &Shared, group: &str, wanted: Wanted) -> Read {
    let committed = shared.groups.committed(group);
    let Some(wanted) = wanted else {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((topic, partition), committed) in committed {
            let name = TopicName(StrBytes::from_string(topic));
            all.entry(name).or_default().push((partition, committed));
        }
        return all.into_iter().collect();
    };
    let nothing = Committed {
        offset: -1,
        leader_epoch: -1,
        metadata: StrBytes::default(),
    };
    let of_topic = once(wanted, |(topic, _)| topic.clone()).map(|(topic, partitions)| {
        let of_partition = once(partitions, |partition| *partition).map(|partition| {
            let found = committed.get(&(topic.to_string(), partition));
            (partition, found.unwrap_or(&nothing).clone())
        });
        let of_partition = of_partition.collect();
        (topic, of_partition)
    });
    of_topic.collect()
}
