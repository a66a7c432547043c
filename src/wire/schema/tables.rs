//! One table for each message, in Kafka's own order and words.

use super::Kind::{Array, Bool, Int8, Int16, Int32, Int32s, Int64, Records, String, Struct, Uuid};
use super::{Field, Kind, Message, Role};
use crate::wire::api;

const fn field(name: &'static str, kind: Kind, since: i16) -> Field {
    Field::new(name, kind, since)
}

const ENDPOINT: &[Field] = &[
    field("NodeId", Int32, 0).role(Role::Node),
    field("Host", String, 0).role(Role::Host),
    field("Port", Int32, 0).role(Role::Port),
    field("Rack", String, 0),
];
const LEADER: &[Field] = &[field("LeaderId", Int32, 0), field("LeaderEpoch", Int32, 0)];

/// The response to Produce.
pub static PRODUCE_RESPONSE: Message = Message {
    name: "ProduceResponse",
    api_key: api::PRODUCE,
    oldest: 3,
    newest: 13,
    flexible: 9,
    fields: &[
        field("Responses", Array(PRODUCE_TOPIC), 0).role(Role::Topics),
        field("ThrottleTimeMs", Int32, 1),
        field("NodeEndpoints", Array(ENDPOINT), 10)
            .tag(0)
            .role(Role::Endpoints),
    ],
};
const PRODUCE_TOPIC: &[Field] = &[
    field("Name", String, 0).until(12).role(Role::TopicName),
    field("TopicId", Uuid, 13).role(Role::TopicId),
    field("PartitionResponses", Array(PRODUCE_PARTITION), 0).role(Role::Partitions),
];
const PRODUCE_PARTITION: &[Field] = &[
    field("Index", Int32, 0),
    field("ErrorCode", Int16, 0),
    field("BaseOffset", Int64, 0),
    field("LogAppendTimeMs", Int64, 2),
    field("LogStartOffset", Int64, 5),
    field("RecordErrors", Array(RECORD_ERROR), 8),
    field("ErrorMessage", String, 8),
    field("CurrentLeader", Struct(LEADER), 10).tag(0),
];
const RECORD_ERROR: &[Field] = &[
    field("BatchIndex", Int32, 8),
    field("BatchIndexErrorMessage", String, 8),
];

static FETCH_RESPONSE: Message = Message {
    name: "FetchResponse",
    api_key: api::FETCH,
    oldest: 4,
    newest: 18,
    flexible: 12,
    fields: &[
        field("ThrottleTimeMs", Int32, 1),
        field("ErrorCode", Int16, 7),
        field("SessionId", Int32, 7),
        field("Responses", Array(FETCH_TOPIC), 0),
        field("NodeEndpoints", Array(ENDPOINT), 16)
            .tag(0)
            .role(Role::Endpoints),
    ],
};
const FETCH_TOPIC: &[Field] = &[
    field("Topic", String, 0).until(12),
    field("TopicId", Uuid, 13),
    field("Partitions", Array(FETCH_PARTITION), 0),
];
const FETCH_PARTITION: &[Field] = &[
    field("PartitionIndex", Int32, 0),
    field("ErrorCode", Int16, 0),
    field("HighWatermark", Int64, 0),
    field("LastStableOffset", Int64, 4),
    field("LogStartOffset", Int64, 5),
    field("DivergingEpoch", Struct(DIVERGING), 12).tag(0),
    field("CurrentLeader", Struct(LEADER), 12).tag(1),
    field("SnapshotId", Struct(SNAPSHOT), 12).tag(2),
    field("AbortedTransactions", Array(ABORTED), 4),
    field("PreferredReadReplica", Int32, 11),
    field("Records", Records, 0),
];
const DIVERGING: &[Field] = &[field("Epoch", Int32, 12), field("EndOffset", Int64, 12)];
const SNAPSHOT: &[Field] = &[field("EndOffset", Int64, 0), field("Epoch", Int32, 0)];
const ABORTED: &[Field] = &[
    field("ProducerId", Int64, 4),
    field("FirstOffset", Int64, 4),
];

static METADATA_RESPONSE: Message = Message {
    name: "MetadataResponse",
    api_key: api::METADATA,
    oldest: 0,
    newest: 13,
    flexible: 9,
    fields: &[
        field("ThrottleTimeMs", Int32, 3),
        field("Brokers", Array(METADATA_BROKER), 0).role(Role::Brokers),
        field("ClusterId", String, 2).role(Role::ClusterId),
        field("ControllerId", Int32, 1),
        field("Topics", Array(METADATA_TOPIC), 0).role(Role::Topics),
        field("ClusterAuthorizedOperations", Int32, 8).until(10),
        field("ErrorCode", Int16, 13).role(Role::Error),
    ],
};
const METADATA_BROKER: &[Field] = &[
    field("NodeId", Int32, 0).role(Role::Node),
    field("Host", String, 0).role(Role::Host),
    field("Port", Int32, 0).role(Role::Port),
    field("Rack", String, 1),
];
const METADATA_TOPIC: &[Field] = &[
    field("ErrorCode", Int16, 0).role(Role::TopicError),
    field("Name", String, 0).role(Role::TopicName),
    field("TopicId", Uuid, 10).role(Role::TopicId),
    field("IsInternal", Bool, 1),
    field("Partitions", Array(METADATA_PARTITION), 0).role(Role::Partitions),
    field("TopicAuthorizedOperations", Int32, 8),
];
const METADATA_PARTITION: &[Field] = &[
    field("ErrorCode", Int16, 0),
    field("PartitionIndex", Int32, 0),
    field("LeaderId", Int32, 0),
    field("LeaderEpoch", Int32, 7),
    field("ReplicaNodes", Int32s, 0),
    field("IsrNodes", Int32s, 0),
    field("OfflineReplicas", Int32s, 5),
];

static FIND_COORDINATOR_RESPONSE: Message = Message {
    name: "FindCoordinatorResponse",
    api_key: api::FIND_COORDINATOR,
    oldest: 0,
    newest: 6,
    flexible: 3,
    fields: &[
        field("ThrottleTimeMs", Int32, 1),
        field("ErrorCode", Int16, 0).until(3),
        field("ErrorMessage", String, 1).until(3),
        field("NodeId", Int32, 0).until(3).role(Role::Node),
        field("Host", String, 0).until(3).role(Role::Host),
        field("Port", Int32, 0).until(3).role(Role::Port),
        field("Coordinators", Array(COORDINATOR), 4),
    ],
};
const COORDINATOR: &[Field] = &[
    field("Key", String, 4),
    field("NodeId", Int32, 4).role(Role::Node),
    field("Host", String, 4).role(Role::Host),
    field("Port", Int32, 4).role(Role::Port),
    field("ErrorCode", Int16, 4),
    field("ErrorMessage", String, 4),
];

static DESCRIBE_CLUSTER_RESPONSE: Message = Message {
    name: "DescribeClusterResponse",
    api_key: api::DESCRIBE_CLUSTER,
    oldest: 0,
    newest: 2,
    flexible: 0,
    fields: &[
        field("ThrottleTimeMs", Int32, 0),
        field("ErrorCode", Int16, 0).role(Role::Error),
        field("ErrorMessage", String, 0),
        field("EndpointType", Int8, 1).role(Role::EndpointType),
        field("ClusterId", String, 0).role(Role::ClusterId),
        field("ControllerId", Int32, 0),
        field("Brokers", Array(CLUSTER_BROKER), 0).role(Role::Brokers),
        field("ClusterAuthorizedOperations", Int32, 0),
    ],
};
const CLUSTER_BROKER: &[Field] = &[
    field("BrokerId", Int32, 0).role(Role::Node),
    field("Host", String, 0).role(Role::Host),
    field("Port", Int32, 0).role(Role::Port),
    field("Rack", String, 0),
    field("IsFenced", Bool, 2),
];

static SHARE_FETCH_RESPONSE: Message = Message {
    name: "ShareFetchResponse",
    api_key: api::SHARE_FETCH,
    oldest: 0,
    newest: 2,
    flexible: 0,
    fields: &[
        field("ThrottleTimeMs", Int32, 0),
        field("ErrorCode", Int16, 0),
        field("ErrorMessage", String, 0),
        field("AcquisitionLockTimeoutMs", Int32, 1),
        field("Responses", Array(SHARE_FETCH_TOPIC), 0),
        field("NodeEndpoints", Array(ENDPOINT), 0).role(Role::Endpoints),
    ],
};
const SHARE_FETCH_TOPIC: &[Field] = &[
    field("TopicId", Uuid, 0),
    field("Partitions", Array(SHARE_FETCH_PARTITION), 0),
];
const SHARE_FETCH_PARTITION: &[Field] = &[
    field("PartitionIndex", Int32, 0),
    field("ErrorCode", Int16, 0),
    field("ErrorMessage", String, 0),
    field("AcknowledgeErrorCode", Int16, 0),
    field("AcknowledgeErrorMessage", String, 0),
    field("CurrentLeader", Struct(LEADER), 0),
    field("Records", Records, 0),
    field("AcquiredRecords", Array(ACQUIRED), 0),
];
const ACQUIRED: &[Field] = &[
    field("FirstOffset", Int64, 0),
    field("LastOffset", Int64, 0),
    field("DeliveryCount", Int16, 0),
];

static SHARE_ACKNOWLEDGE_RESPONSE: Message = Message {
    name: "ShareAcknowledgeResponse",
    api_key: api::SHARE_ACKNOWLEDGE,
    oldest: 0,
    newest: 2,
    flexible: 0,
    fields: &[
        field("ThrottleTimeMs", Int32, 0),
        field("ErrorCode", Int16, 0),
        field("ErrorMessage", String, 0),
        field("AcquisitionLockTimeoutMs", Int32, 2),
        field("Responses", Array(SHARE_ACKNOWLEDGE_TOPIC), 0),
        field("NodeEndpoints", Array(ENDPOINT), 0).role(Role::Endpoints),
    ],
};
const SHARE_ACKNOWLEDGE_TOPIC: &[Field] = &[
    field("TopicId", Uuid, 0),
    field("Partitions", Array(SHARE_ACKNOWLEDGE_PARTITION), 0),
];
const SHARE_ACKNOWLEDGE_PARTITION: &[Field] = &[
    field("PartitionIndex", Int32, 0),
    field("ErrorCode", Int16, 0),
    field("ErrorMessage", String, 0),
    field("CurrentLeader", Struct(LEADER), 0),
];

/// The responses that carry the addresses of brokers.
pub static ADDRESSED: &[&Message] = &[
    &PRODUCE_RESPONSE,
    &FETCH_RESPONSE,
    &METADATA_RESPONSE,
    &FIND_COORDINATOR_RESPONSE,
    &DESCRIBE_CLUSTER_RESPONSE,
    &SHARE_FETCH_RESPONSE,
    &SHARE_ACKNOWLEDGE_RESPONSE,
];

/// The requests to a transaction coordinator.
pub static CLAIMS: &[&Message] = &[
    &Message {
        name: "InitProducerIdRequest",
        api_key: api::INIT_PRODUCER_ID,
        oldest: 0,
        newest: 5,
        flexible: 2,
        fields: &[
            field("TransactionalId", String, 0).role(Role::TransactionalId),
            field("TransactionTimeoutMs", Int32, 0),
            field("ProducerId", Int64, 3).role(Role::Producer),
            field("ProducerEpoch", Int16, 3).role(Role::Epoch),
        ],
    },
    &Message {
        name: "AddPartitionsToTxnRequest",
        api_key: api::ADD_PARTITIONS_TO_TXN,
        oldest: 0,
        newest: 3,
        flexible: 3,
        fields: &[
            field("V3AndBelowTransactionalId", String, 0).role(Role::TransactionalId),
            field("V3AndBelowProducerId", Int64, 0).role(Role::Producer),
            field("V3AndBelowProducerEpoch", Int16, 0).role(Role::Epoch),
            field("V3AndBelowTopics", Array(ADD_TOPIC), 0),
        ],
    },
    &Message {
        name: "AddOffsetsToTxnRequest",
        api_key: api::ADD_OFFSETS_TO_TXN,
        oldest: 0,
        newest: 4,
        flexible: 3,
        fields: &[
            field("TransactionalId", String, 0).role(Role::TransactionalId),
            field("ProducerId", Int64, 0).role(Role::Producer),
            field("ProducerEpoch", Int16, 0).role(Role::Epoch),
            field("GroupId", String, 0),
        ],
    },
    &Message {
        name: "EndTxnRequest",
        api_key: api::END_TXN,
        oldest: 0,
        newest: 5,
        flexible: 3,
        fields: &[
            field("TransactionalId", String, 0).role(Role::TransactionalId),
            field("ProducerId", Int64, 0).role(Role::Producer),
            field("ProducerEpoch", Int16, 0).role(Role::Epoch),
            field("Committed", Bool, 0),
        ],
    },
    &Message {
        name: "TxnOffsetCommitRequest",
        api_key: api::TXN_OFFSET_COMMIT,
        oldest: 0,
        newest: 6,
        flexible: 3,
        fields: &[
            field("TransactionalId", String, 0).role(Role::TransactionalId),
            field("GroupId", String, 0),
            field("ProducerId", Int64, 0).role(Role::Producer),
            field("ProducerEpoch", Int16, 0).role(Role::Epoch),
            field("GenerationIdOrMemberEpoch", Int32, 3),
            field("MemberId", String, 3),
            field("GroupInstanceId", String, 3),
            field("Topics", Array(COMMIT_TOPIC), 0),
        ],
    },
];
const ADD_TOPIC: &[Field] = &[field("Name", String, 0), field("Partitions", Int32s, 0)];
const COMMIT_TOPIC: &[Field] = &[
    field("Name", String, 0).until(5),
    field("TopicId", Uuid, 6),
    field("Partitions", Array(COMMIT_PARTITION), 0),
];
const COMMIT_PARTITION: &[Field] = &[
    field("PartitionIndex", Int32, 0),
    field("CommittedOffset", Int64, 0),
    field("CommittedLeaderEpoch", Int32, 2),
    field("CommittedMetadata", String, 0),
];

/// The responses of a transaction coordinator.
pub static OUTCOMES: &[&Message] = &[
    &Message {
        name: "InitProducerIdResponse",
        api_key: api::INIT_PRODUCER_ID,
        oldest: 0,
        newest: 5,
        flexible: 2,
        fields: &[
            field("ThrottleTimeMs", Int32, 0),
            field("ErrorCode", Int16, 0).role(Role::Error),
            field("ProducerId", Int64, 0).role(Role::Producer),
            field("ProducerEpoch", Int16, 0).role(Role::Epoch),
        ],
    },
    &Message {
        name: "AddPartitionsToTxnResponse",
        api_key: api::ADD_PARTITIONS_TO_TXN,
        oldest: 0,
        newest: 5,
        flexible: 3,
        fields: &[
            field("ThrottleTimeMs", Int32, 0),
            field("ErrorCode", Int16, 4).role(Role::Error),
            field("ResultsByTransaction", Array(ADD_RESULT), 4),
            field("ResultsByTopicV3AndBelow", Array(ADD_TOPIC_RESULT), 0).until(3),
        ],
    },
    &Message {
        name: "AddOffsetsToTxnResponse",
        api_key: api::ADD_OFFSETS_TO_TXN,
        oldest: 0,
        newest: 4,
        flexible: 3,
        fields: &[
            field("ThrottleTimeMs", Int32, 0),
            field("ErrorCode", Int16, 0).role(Role::Error),
        ],
    },
    &Message {
        name: "EndTxnResponse",
        api_key: api::END_TXN,
        oldest: 0,
        newest: 5,
        flexible: 3,
        fields: &[
            field("ThrottleTimeMs", Int32, 0),
            field("ErrorCode", Int16, 0).role(Role::Error),
            field("ProducerId", Int64, 5).role(Role::Producer),
            field("ProducerEpoch", Int16, 5).role(Role::Epoch),
        ],
    },
    &Message {
        name: "TxnOffsetCommitResponse",
        api_key: api::TXN_OFFSET_COMMIT,
        oldest: 0,
        newest: 6,
        flexible: 3,
        fields: &[
            field("ThrottleTimeMs", Int32, 0),
            field("Topics", Array(COMMIT_TOPIC_RESULT), 0),
        ],
    },
];
const ADD_RESULT: &[Field] = &[
    field("TransactionalId", String, 4),
    field("TopicResults", Array(ADD_TOPIC_RESULT), 4),
];
const ADD_TOPIC_RESULT: &[Field] = &[
    field("Name", String, 0),
    field("ResultsByPartition", Array(ADD_PARTITION_RESULT), 0),
];
const ADD_PARTITION_RESULT: &[Field] = &[
    field("PartitionIndex", Int32, 0),
    field("PartitionErrorCode", Int16, 0).role(Role::Error),
];
const COMMIT_TOPIC_RESULT: &[Field] = &[
    field("Name", String, 0).until(5),
    field("TopicId", Uuid, 6),
    field("Partitions", Array(COMMIT_PARTITION_RESULT), 0),
];
const COMMIT_PARTITION_RESULT: &[Field] = &[
    field("PartitionIndex", Int32, 0),
    field("ErrorCode", Int16, 0).role(Role::Error),
];
