//! The errors that only coordinators answer, and those that no broker sends
//! to producers but that people look up.

use super::Api::{AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, InitProducerId, TxnOffsetCommit};
use super::{Api, Explanation, PerClient, Retry};

const COORDINATED: &[Api] = &[
    InitProducerId,
    AddPartitionsToTxn,
    AddOffsetsToTxn,
    TxnOffsetCommit,
    EndTxn,
];
const OFFSETS: &[Api] = &[TxnOffsetCommit];

const INIT_ERRORS: &[&str] =
    &["rate(hapax_requests_total{api=\"init_producer_id\",outcome=\"error\"}[5m]) > 0"];

const MEMBERSHIP: PerClient = PerClient {
    java: "CommitFailedException: abort the transaction.",
    librdkafka: "Abort the transaction.",
    franz_go: "Aborts the transaction.",
    sarama: "Abort the transaction.",
    kafkajs: "Uses no version that carries it.",
};

const SEEKS_COORDINATOR: PerClient = PerClient {
    java: "Asks which broker is the coordinator, and retries.",
    librdkafka: "Asks which broker is the coordinator, and retries.",
    franz_go: "Asks which broker is the coordinator, and retries.",
    sarama: "Asks which broker is the coordinator, and retries.",
    kafkajs: "InitProducerId, AddPartitionsToTxn: retries. Else: rejects.",
};

const UNHANDLED_OFFSETS: PerClient = PerClient {
    java: "Fatal: make a new producer.",
    librdkafka: "Abort the transaction.",
    franz_go: "End() of the session returns the error.",
    sarama: "Fatal: make a new producer.",
    kafkajs: "sendOffsets() rejects.",
};

pub(super) const ALL: &[Explanation] = &[
    Explanation {
        says: "The partition has no leader at the moment.",
        raised: "Brokers in Metadata answers, while a leader is being elected; clients log it as \
                 a warning.",
        causes: &[
            "The topic was just created.",
            "The partition's brokers are all down, or none of them was in sync.",
        ],
        hapax: "Relays the answer with its own addresses in it.",
        advice: &[
            "Nothing, if it ends within seconds: clients ask again.",
            "If it lasts, see kafka-topics.sh --describe --unavailable-partitions.",
        ],
        see: &["3", "6"],
        ..Explanation::error(5, "LEADER_NOT_AVAILABLE", Retry::Again, &[])
    },
    Explanation {
        says: "The text beside a committed offset is too long.",
        raised: "The group coordinator, for metadata above offset.metadata.max.bytes (4096).",
        causes: &["An application that keeps state in the metadata of its commits."],
        clients: UNHANDLED_OFFSETS,
        advice: &["Shorten the metadata, or raise offset.metadata.max.bytes."],
        ..Explanation::error(12, "OFFSET_METADATA_TOO_LARGE", Retry::Never, OFFSETS)
    },
    Explanation {
        aliases: &[
            "_TRANSPORT",
            "DisconnectException",
            "KafkaJSConnectionClosedError",
            "KafkaJSConnectionError",
            "disconnected",
        ],
        says: "The connection ended before the answer came.",
        raised: "The client itself: brokers never send it to producers. Java shows it as \
                 \"Disconnected from node\", librdkafka as _TRANSPORT.",
        causes: &[
            "A broker restarts, or a proxy, firewall or load balancer cuts idle connections.",
            "A request that timed out: Java closes the connection then.",
            "The broker closed it: a failed login, or an error of a request with acks=0.",
        ],
        clients: PerClient {
            java: "Refreshes its metadata, retries with the same sequence.",
            librdkafka: "Retries; takes the messages as possibly in the log.",
            franz_go: "Retries with the same sequence on a new connection.",
            sarama: "Retries Producer.Retry.Max times (3); then error and epoch bump.",
            kafkajs: "Retries on a new connection.",
        },
        hapax: "It never answers with this. When a broker's connection is lost it closes the \
                client's; when the client goes first, it waits up to 30 s for the broker's \
                answer, which the retry then gets (duplicate_absorbed).",
        advice: &[
            "hapax's log says at that time which connection ended and why.",
            "After a regular idle time: set connections.max.idle.ms below what lies between allows.",
        ],
        promql: &["rate(hapax_client_disconnects_total{cause=\"upstream\"}[5m]) > 0"],
        see: &["duplicate_absorbed", "duplicate_forwarded"],
        ..Explanation::error(13, "NETWORK_EXCEPTION", Retry::Again, &[])
    },
    Explanation {
        aliases: &["GROUP_LOAD_IN_PROGRESS"],
        says: "The coordinator is still reading its log.",
        raised: "A broker that just became coordinator; for InitProducerId also one that has no \
                 block of producer ids from the controller yet.",
        causes: &["A broker restarted, or the cluster has just started."],
        clients: PerClient {
            java: "Retries.",
            librdkafka: "Retries.",
            sarama: "Retries, Producer.Transaction.Retry.Max times (50).",
            ..SEEKS_COORDINATOR
        },
        advice: &["Wait: it ends when the log is read, seconds as a rule."],
        promql: INIT_ERRORS,
        ..Explanation::error(
            14,
            "COORDINATOR_LOAD_IN_PROGRESS",
            Retry::Again,
            COORDINATED,
        )
    },
    Explanation {
        aliases: &["GROUP_COORDINATOR_NOT_AVAILABLE"],
        says: "There is no coordinator at the moment, or it cannot write its log.",
        raised: "A broker that shuts down, or a coordinator whose log has too few replicas.",
        causes: &[
            "A new cluster: __transaction_state or __consumer_offsets is being created.",
            "Fewer brokers than transaction.state.log.replication.factor (3).",
            "Too few replicas of these topics are in sync.",
        ],
        clients: SEEKS_COORDINATOR,
        advice: &[
            "A cluster of one broker needs transaction.state.log.replication.factor=1.",
            "Else look at the replicas of __transaction_state and __consumer_offsets.",
        ],
        promql: INIT_ERRORS,
        ..Explanation::error(15, "COORDINATOR_NOT_AVAILABLE", Retry::Again, COORDINATED)
    },
    Explanation {
        aliases: &["NOT_COORDINATOR_FOR_GROUP"],
        says: "Another broker is the coordinator.",
        raised: "A broker that is no longer coordinator, because its partition of the \
                 coordinator's log moved.",
        causes: &["A broker restarts; leaders are rebalanced."],
        clients: SEEKS_COORDINATOR,
        hapax: "FindCoordinator's answer leads to its own port for that broker.",
        advice: &["Nothing: clients look the coordinator up again."],
        promql: INIT_ERRORS,
        ..Explanation::error(16, "NOT_COORDINATOR", Retry::Again, COORDINATED)
    },
    Explanation {
        says: "The consumer of these offsets is of an older generation of its group.",
        raised: "The group coordinator: the group was rebalanced after the consumer last joined.",
        causes: &[
            "Processing took longer than max.poll.interval.ms.",
            "Consumers came or went while the transaction was open.",
        ],
        clients: MEMBERSHIP,
        advice: &[
            "Abort the transaction, and read again from the committed offsets.",
            "Shorter transactions, or a longer max.poll.interval.ms, make it rarer.",
        ],
        see: &["25", "113"],
        ..Explanation::error(22, "ILLEGAL_GENERATION", Retry::Abort, OFFSETS)
    },
    Explanation {
        says: "The group's name is empty.",
        raised: "The group coordinator, before it looks at the offsets.",
        causes: &["A consumer without group.id, or its metadata not handed over."],
        clients: UNHANDLED_OFFSETS,
        advice: &["Set group.id, and hand the consumer's group metadata to the producer."],
        ..Explanation::error(24, "INVALID_GROUP_ID", Retry::Never, OFFSETS)
    },
    Explanation {
        says: "The consumer of these offsets is no member of its group.",
        raised: "The group coordinator: the member was removed, or never joined.",
        causes: &[
            "No heartbeat for session.timeout.ms, or no poll for max.poll.interval.ms.",
            "Group metadata of a consumer that was closed.",
        ],
        clients: MEMBERSHIP,
        advice: &[
            "Abort the transaction, and read again from the committed offsets.",
            "Ask the consumer for its group metadata at each commit; do not keep it.",
        ],
        see: &["22", "113"],
        ..Explanation::error(25, "UNKNOWN_MEMBER_ID", Retry::Abort, OFFSETS)
    },
    Explanation {
        says: "The commit is too large for the coordinator's log.",
        raised: "Old group coordinators; newer ones answer -1.",
        causes: &["Offsets of very many partitions, with metadata, in one commit."],
        clients: UNHANDLED_OFFSETS,
        advice: &["Commit fewer partitions at a time, with shorter metadata."],
        ..Explanation::error(28, "INVALID_COMMIT_OFFSET_SIZE", Retry::Never, OFFSETS)
    },
    Explanation {
        says: "The principal may not use the consumer group.",
        raised: "The coordinator, when READ on the group is not granted.",
        causes: &["A missing ACL: the producer commits offsets for the group."],
        clients: PerClient {
            java: "Abort the transaction.",
            librdkafka: "Abort the transaction.",
            franz_go: "AddOffsetsToTxn: fails the producer id. TxnOffsetCommit: returns it.",
            sarama: "Abort the transaction.",
            kafkajs: "sendOffsets() rejects.",
        },
        advice: &["Grant READ on the group to the producer's principal."],
        ..Explanation::error(
            30,
            "GROUP_AUTHORIZATION_FAILED",
            Retry::Abort,
            &[AddOffsetsToTxn, TxnOffsetCommit],
        )
    },
    Explanation {
        says: "The broker does not take this version of the request, or what it asks for.",
        raised: "A broker, for a version that it does not have; the coordinator, for \
                 InitProducerId that asks to keep a prepared transaction.",
        causes: &["A client that does not negotiate versions, or a proxy that changes the offer."],
        clients: PerClient {
            java: "Fatal: make a new producer.",
            ..PerClient::NONE
        },
        hapax: "ApiVersions offers what both the broker and hapax can read.",
        advice: &["Compare the client's versions with the broker's: kafka-broker-api-versions.sh."],
        promql: INIT_ERRORS,
        ..Explanation::error(35, "UNSUPPORTED_VERSION", Retry::Never, &[InitProducerId])
    },
    Explanation {
        says: "The request contradicts itself.",
        raised: "The coordinator: an empty transactional id, or a producer id without an epoch.",
        causes: &[
            "A defect of the client.",
            "Redpanda answers Produce with it when the sequence wraps within a batch.",
        ],
        clients: PerClient {
            java: "Fatal; AddPartitionsToTxn: abort the transaction.",
            librdkafka: "InitProducerId: retries. Else: abort the transaction.",
            franz_go: "Fails the producer id.",
            sarama: "Fatal.",
            kafkajs: "Rejects.",
        },
        advice: &["Set a transactional.id that is not empty, and update the client."],
        promql: INIT_ERRORS,
        ..Explanation::error(
            42,
            "INVALID_REQUEST",
            Retry::Never,
            &[InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn],
        )
    },
    Explanation {
        aliases: &["INVALID_TXN_TIMEOUT"],
        says: "The producer's transaction timeout is not one that the broker allows.",
        raised: "The coordinator, for a timeout above transaction.max.timeout.ms (15 minutes), \
                 or not above 0.",
        causes: &["Flink and others set an hour."],
        clients: PerClient {
            java: "Fatal: make a new producer.",
            librdkafka: "Fatal: make a new producer.",
            franz_go: "Fails everything that it buffers.",
            sarama: "Fatal.",
            kafkajs: "transaction() rejects.",
        },
        advice: &[
            "Lower transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms.",
        ],
        promql: INIT_ERRORS,
        ..Explanation::error(
            50,
            "INVALID_TRANSACTION_TIMEOUT",
            Retry::Never,
            &[InitProducerId],
        )
    },
    Explanation {
        says: "A coordinator wrote a marker although another one has taken its place.",
        raised: "The leader, to a coordinator. Producers do not get it.",
        causes: &["Coordinators changed while a transaction was completed: ordinary."],
        hapax: "In a Produce response it would count as not written.",
        advice: &["Nothing: the new coordinator completes the transaction."],
        ..Explanation::error(52, "TRANSACTION_COORDINATOR_FENCED", Retry::Never, &[])
    },
    Explanation {
        says: "Nothing was done with this partition, because another one in the request failed.",
        raised: "The coordinator: all partitions of the request are added, or none.",
        causes: &["The error of the other partition: look for 3 or 29."],
        clients: PerClient {
            java: "Abort the transaction.",
            librdkafka: "Abort the transaction.",
            franz_go: "Retries the partition.",
            sarama: "Abort the transaction.",
            kafkajs: "send() rejects.",
        },
        advice: &["Deal with the other partition's error."],
        see: &["3", "29"],
        ..Explanation::error(
            55,
            "OPERATION_NOT_ATTEMPTED",
            Retry::Abort,
            &[AddPartitionsToTxn],
        )
    },
    Explanation {
        aliases: &["_AUTHENTICATION", "authentication"],
        says: "The login failed.",
        raised: "The broker at SaslAuthenticate, before the client may send anything else.",
        causes: &[
            "A wrong user, password or token, or one that the broker does not have yet.",
            "Kerberos or MSK IAM through a rewritten address, which they sign.",
        ],
        hapax: "It passes SASL through: user and password are those of the broker.",
        advice: &[
            "Log in direct once, with the same settings: it should fail in the same way.",
            "Kerberos and MSK IAM clients have to go to the brokers direct.",
        ],
        promql: &["rate(hapax_client_disconnects_total{cause=\"upstream\"}[5m]) > 0"],
        ..Explanation::error(58, "SASL_AUTHENTICATION_FAILED", Retry::Never, &[])
    },
    Explanation {
        says: "There is no such consumer group.",
        raised: "The group coordinator, since TxnOffsetCommit 6; before it said 22.",
        causes: &["The group was deleted or expired, or its name is wrong."],
        clients: PerClient {
            java: "CommitFailedException: abort the transaction.",
            librdkafka: "Uses no version that carries it.",
            sarama: "Uses no version that carries it.",
            kafkajs: "Uses no version that carries it.",
            ..PerClient::NONE
        },
        advice: &["Let the consumer join its group before its offsets are committed."],
        see: &["22"],
        ..Explanation::error(69, "GROUP_ID_NOT_FOUND", Retry::Abort, OFFSETS)
    },
    Explanation {
        says: "Another consumer has taken this one's place in the group.",
        raised: "The group coordinator: a newer member has the same group.instance.id.",
        causes: &["Two consumers with one group.instance.id."],
        clients: PerClient {
            java: "Abort the transaction.",
            librdkafka: "Abort the transaction.",
            franz_go: "End() of the session returns the error.",
            sarama: "Abort the transaction.",
            kafkajs: "Uses no version that carries it.",
        },
        advice: &["Give each consumer its own group.instance.id, or none."],
        see: &["fencing"],
        ..Explanation::error(82, "FENCED_INSTANCE_ID", Retry::Abort, OFFSETS)
    },
    Explanation {
        says: "The consumer of these offsets has an old epoch in its group.",
        raised: "The group coordinator, for groups of the newer protocol (KIP-848), since \
                 TxnOffsetCommit 6; before it said 22.",
        causes: &["The group was rebalanced while the transaction was open."],
        clients: PerClient {
            java: "CommitFailedException: abort the transaction.",
            librdkafka: "Uses no version that carries it.",
            franz_go: "Aborts the transaction.",
            sarama: "Uses no version that carries it.",
            kafkajs: "Uses no version that carries it.",
        },
        advice: &["Abort the transaction, and read again from the committed offsets."],
        see: &["22", "25"],
        ..Explanation::error(113, "STALE_MEMBER_EPOCH", Retry::Abort, OFFSETS)
    },
];
