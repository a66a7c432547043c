//! Kafka's numbers, by Kafka's names.

pub(super) const UNKNOWN_SERVER_ERROR: i16 = -1;
pub(super) const OFFSET_OUT_OF_RANGE: i16 = 1;
pub(super) const CORRUPT_MESSAGE: i16 = 2;
pub(super) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
pub(super) const MESSAGE_TOO_LARGE: i16 = 10;
pub(super) const OFFSET_METADATA_TOO_LARGE: i16 = 12;
pub(super) const INVALID_TOPIC: i16 = 17;
pub(super) const INVALID_REQUIRED_ACKS: i16 = 21;
pub(super) const ILLEGAL_GENERATION: i16 = 22;
pub(super) const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
pub(super) const INVALID_GROUP_ID: i16 = 24;
pub(super) const UNKNOWN_MEMBER_ID: i16 = 25;
pub(super) const INVALID_SESSION_TIMEOUT: i16 = 26;
pub(super) const REBALANCE_IN_PROGRESS: i16 = 27;
pub(super) const INVALID_TIMESTAMP: i16 = 32;
pub(super) const UNSUPPORTED_VERSION: i16 = 35;
pub(super) const TOPIC_ALREADY_EXISTS: i16 = 36;
pub(super) const INVALID_PARTITIONS: i16 = 37;
pub(super) const INVALID_CONFIG: i16 = 40;
pub(super) const POLICY_VIOLATION: i16 = 44;
pub(super) const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
pub(super) const INVALID_PRODUCER_EPOCH: i16 = 47;
pub(super) const INVALID_TXN_STATE: i16 = 48;
pub(super) const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
pub(super) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
pub(super) const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
pub(super) const GROUP_MAX_SIZE_REACHED: i16 = 81;
pub(super) const FENCED_INSTANCE_ID: i16 = 82;
pub(super) const INVALID_RECORD: i16 = 87;
pub(super) const UNKNOWN_TOPIC_ID: i16 = 100;

/// The apis that are served.
pub(super) mod api {
    pub(in super::super) const PRODUCE: i16 = 0;
    pub(in super::super) const FETCH: i16 = 1;
    pub(in super::super) const LIST_OFFSETS: i16 = 2;
    pub(in super::super) const METADATA: i16 = 3;
    pub(in super::super) const OFFSET_COMMIT: i16 = 8;
    pub(in super::super) const OFFSET_FETCH: i16 = 9;
    pub(in super::super) const FIND_COORDINATOR: i16 = 10;
    pub(in super::super) const JOIN_GROUP: i16 = 11;
    pub(in super::super) const HEARTBEAT: i16 = 12;
    pub(in super::super) const LEAVE_GROUP: i16 = 13;
    pub(in super::super) const SYNC_GROUP: i16 = 14;
    pub(in super::super) const API_VERSIONS: i16 = 18;
    pub(in super::super) const CREATE_TOPICS: i16 = 19;
    pub(in super::super) const DELETE_TOPICS: i16 = 20;
    pub(in super::super) const INIT_PRODUCER_ID: i16 = 22;
    pub(in super::super) const DESCRIBE_CONFIGS: i16 = 32;
    pub(in super::super) const DESCRIBE_CLUSTER: i16 = 60;
}
