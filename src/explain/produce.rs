//! The errors that a Produce response may carry.

use super::Api::{
    AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, InitProducerId, Produce, TxnOffsetCommit,
};
use super::{Api, Belief, Explanation, PerClient, Retry, Settles};

const fn error(
    code: i16,
    name: &'static str,
    retry: Retry,
    carriers: &'static [Api],
    settles: Settles,
) -> Explanation {
    let mut entry = Explanation::error(code, name, retry, carriers);
    if let super::Subject::Error(error) = &mut entry.subject {
        error.settles = Some(settles);
    }
    entry
}

const ONLY_PRODUCE: &[Api] = &[Produce];
const EVERY: &[Api] = &Api::ALL;

pub(super) const BATCHES_FORGOTTEN: Belief = Belief {
    said: "Kafka remembers the last 1000 batches of a producer.",
    truth: "It remembers five for each producer id and partition, and one after a clean \
            restart. hapax remembers --sequence-window-batches of them (5; 1024 at most).",
};

const RETRIES: PerClient = PerClient {
    java: "Retries with the same sequence, until delivery.timeout.ms.",
    librdkafka: "Retries the same messages, until message.timeout.ms.",
    franz_go: "Retries with the same sequence, without end unless RecordRetries is set.",
    sarama: "Retries Producer.Retry.Max times (3); then error and epoch bump.",
    kafkajs: "Retries 5 times, an idempotent producer without end.",
};

const REFRESHES: PerClient = PerClient {
    java: "Refreshes its metadata, retries with the same sequence.",
    librdkafka: "Refreshes its metadata and retries; not charged as a retry.",
    kafkajs: "Refreshes its metadata and retries, idempotent without end.",
    ..RETRIES
};

const FAILS: PerClient = PerClient {
    java: "Fails the batch; idempotent: bumps its epoch; transaction: abort it.",
    librdkafka: "Fails the messages; idempotent: drains, bumps its epoch; transaction: abort it.",
    franz_go: "Fails every record that it buffers for the partition.",
    sarama: "Error to the application; idempotent: bumps its epoch; transaction: abort it.",
    kafkajs: "send() rejects.",
};

const ANY_PRODUCE_ERROR: &[&str] =
    &["rate(hapax_requests_total{api=\"produce\",outcome=\"error\"}[5m]) > 0"];

/// A policy of the topic is violated: an error, and an event of hapax.
pub const POLICY_VIOLATION: Explanation = Explanation {
    says: "The producer does not do what a policy of the topic requires.",
    raised: "hapax in mode enforce, by its policies; other proxies and services with rules of \
             their own. Apache Kafka has no such rule for Produce.",
    causes: &[
        "A producer without idempotence, transactions or acks=all, where policies require it.",
        "enable.idempotence=true, which acks=1 or retries=0 switch off in Java.",
        "A rule of whoever runs the service.",
    ],
    clients: FAILS,
    hapax: "In mode enforce it answers a batch that lacks something with this error, and from \
            Produce version 8 on with a message that names the setting; nothing of the batch is \
            forwarded, unless it repeats an acknowledged one, which is answered with that. With \
            acks=0 it closes the connection. In the other modes it forwards and counts. Where \
            only a topic's id is known, it answers 6 once, so that the client asks for the name.",
    advice: &[
        "Set what the error message or the event's detail names, on that producer.",
        "Before you enforce: run in mode absorb until hapax_policy_violations_total stands still.",
        "For exceptions take topics out with a !, such as [\"*\", \"!connect-*\"].",
    ],
    promql: &[
        "sum by (topic, policy) (increase(hapax_policy_violations_total[1h])) > 0",
        "increase(hapax_events_total{event=\"policy_violation\"}[1h]) > 0",
    ],
    see: &["refused", "idempotence"],
    ..error(
        44,
        "POLICY_VIOLATION",
        Retry::Never,
        ONLY_PRODUCE,
        Settles::Refused,
    )
};

pub(super) const ALL: &[Explanation] = &[
    Explanation {
        says: "The broker failed in a way for which it has no code.",
        raised: "A broker or coordinator whose work ended in an unexpected exception. The stack \
                 trace is in its log.",
        causes: &[
            "A defect or a misconfiguration of the broker, or of a plug-in in it.",
            "A record of the transaction log that exceeds its topic's limits.",
        ],
        clients: PerClient {
            java: "Produce: fails the batch, idempotent: bumps its epoch. Else: fatal.",
            librdkafka: "Produce: fails the messages; idempotent: bumps its epoch. \
                         InitProducerId: retries. Else: abort the transaction.",
            franz_go: "Produce: fails what it buffers for the partition. AddOffsetsToTxn and \
                       EndTxn: abort the transaction; EndTxn's outcome is open.",
            sarama: "Produce: error and epoch bump. Else: fatal.",
            ..FAILS
        },
        advice: &[
            "Look into the broker's log at that time.",
            "Whether the batch was written is not known: see what the retry brings.",
        ],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            -1,
            "UNKNOWN_SERVER_ERROR",
            Retry::Never,
            EVERY,
            Settles::Unknown,
        )
    },
    Explanation {
        says: "The checksum or a size of the batch is wrong.",
        raised: "The leader, before it appends.",
        causes: &[
            "Bytes changed on their way, or in the client's memory.",
            "A client or proxy that re-encoded the batch and left the checksum.",
            "Old brokers: a record without a key on a compacted topic (now 87).",
        ],
        clients: PerClient {
            franz_go: "Fails every record that it buffers for the partition.",
            ..RETRIES
        },
        hapax: "The bytes go on as they came; the checksum is not computed.",
        advice: &[
            "Send direct once: if it stays, the client makes such batches; update it.",
            "If it goes away, look at what lies between client and broker.",
        ],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            2,
            "CORRUPT_MESSAGE",
            Retry::Again,
            ONLY_PRODUCE,
            Settles::ToRetry,
        )
    },
    Explanation {
        says: "This broker does not know the topic or the partition.",
        raised: "A broker whose metadata has no such partition; coordinators ask their metadata \
                 for AddPartitionsToTxn and TxnOffsetCommit.",
        causes: &[
            "The topic was just created: not every broker knows it yet.",
            "The topic was deleted, or is created nowhere (auto.create.topics.enable is off).",
            "A typing error in the topic's name.",
        ],
        clients: PerClient {
            franz_go: "Retries; more than 4 times in a row fail it (UnknownTopicRetries).",
            ..REFRESHES
        },
        advice: &[
            "Create the topic before the first send, or wait: new topics need a moment.",
            "kafka-topics.sh --describe --topic NAME says whether it exists.",
        ],
        promql: ANY_PRODUCE_ERROR,
        see: &["predecessor_failed"],
        ..error(
            3,
            "UNKNOWN_TOPIC_OR_PARTITION",
            Retry::Again,
            &[Produce, AddPartitionsToTxn, TxnOffsetCommit],
            Settles::ToRetryUnlessAppended,
        )
    },
    Explanation {
        aliases: &["NOT_LEADER_FOR_PARTITION"],
        says: "This broker is not the leader of the partition.",
        raised: "A broker that lost the partition's leadership, or does not have it yet. With an \
                 offset in the answer: it had appended the batch, then lost it.",
        causes: &[
            "A broker restarts or fails, a rebalancing of leaders, a reassignment.",
            "The first requests to a new partition.",
        ],
        clients: REFRESHES,
        advice: &[
            "Nothing, if it ends within seconds: clients find the new leader.",
            "If it lasts, see kafka-topics.sh --describe --unavailable-partitions.",
            "sarama: raise Producer.Retry.Max; three retries of 100 ms rarely outlast an election.",
        ],
        promql: ANY_PRODUCE_ERROR,
        see: &["predecessor_failed", "45"],
        ..error(
            6,
            "NOT_LEADER_OR_FOLLOWER",
            Retry::Again,
            ONLY_PRODUCE,
            Settles::ToRetryUnlessAppended,
        )
    },
    Explanation {
        aliases: &["_TIMED_OUT"],
        says: "The followers did not have the batch in time. The leader has it.",
        raised: "The leader, when a request with acks=all waited longer than its timeout (Java's \
                 request.timeout.ms, librdkafka's request.timeout.ms) for the in-sync replicas.",
        causes: &[
            "Slow or overloaded followers, a slow disk or network between brokers.",
            "Redpanda also answers with it when it has no better code.",
        ],
        clients: PerClient {
            java: "Retries with the same sequence. TxnOffsetCommit: asks for the coordinator.",
            librdkafka: "Retries; takes the messages as possibly in the log.",
            franz_go: "Retries, whatever RecordRetries says.",
            ..RETRIES
        },
        advice: &[
            "Find the slow replica; the batch is most likely in the log already.",
            "A higher request timeout only hides it.",
        ],
        promql: ANY_PRODUCE_ERROR,
        hapax: "It also answers with it a retry of old records, while nobody can tell whether it is \
                written (mirrored).",
        see: &["20", "duplicate_forwarded", "mirrored"],
        ..error(
            7,
            "REQUEST_TIMED_OUT",
            Retry::Again,
            &[Produce, TxnOffsetCommit],
            Settles::Unknown,
        )
    },
    Explanation {
        says: "The batch is larger than the topic allows.",
        raised: "The leader, for a batch above the topic's max.message.bytes (broker: \
                 message.max.bytes, 1 MiB). It counts the batch, compressed, not a record.",
        causes: &[
            "A batch size of the client above the limit of the topic.",
            "One record that is too large.",
        ],
        clients: PerClient {
            java: "Splits the batch, sends the parts with the same sequences. One record: fails.",
            ..FAILS
        },
        hapax: "The parts of a split batch count as retries.",
        advice: &[
            "Raise the topic's max.message.bytes, or lower the client's batch and message size.",
            "Java: max.request.size, batch.size. librdkafka: message.max.bytes, batch.size.",
            "Requests above 100 MiB also need --limits-frame-bytes.",
        ],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            10,
            "MESSAGE_TOO_LARGE",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::ToRetry,
        )
    },
    Explanation {
        says: "The topic may not be written to by clients.",
        raised: "The broker, for a topic of its own such as __consumer_offsets.",
        causes: &["A producer, or a mirror without a filter, that writes to internal topics."],
        clients: FAILS,
        advice: &["Correct the topic's name, or leave internal topics out of the mirror."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            17,
            "INVALID_TOPIC_EXCEPTION",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Refused,
        )
    },
    Explanation {
        says: "The batch is larger than a segment of the log.",
        raised: "The leader, for a batch above the topic's segment.bytes.",
        causes: &["A topic with very small segments, or very large batches."],
        clients: FAILS,
        advice: &["Raise the topic's segment.bytes above the largest batch."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            18,
            "RECORD_LIST_TOO_LARGE",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Refused,
        )
    },
    Explanation {
        says: "Too few replicas are in sync; nothing was written.",
        raised: "The leader, before it appends, for acks=all below min.insync.replicas. Brokers \
                 also send it when they cannot reach the coordinator of a transaction.",
        causes: &[
            "A broker is down or far behind.",
            "min.insync.replicas is above the number of replicas.",
            "The transaction coordinator is loading or moving.",
        ],
        clients: RETRIES,
        hapax: "It also answers with it a batch whose predecessor failed (mirrored).",
        advice: &[
            "Bring the missing replica back: under-replicated partitions tell which.",
            "Three replicas with min.insync.replicas=2 stand the loss of one broker.",
        ],
        promql: &[
            "rate(hapax_requests_total{api=\"produce\",outcome=\"error\"}[5m]) > 0",
            "rate(hapax_verdicts_total{verdict=\"mirrored\"}[5m]) > 0",
        ],
        see: &["mirrored", "20"],
        ..error(
            19,
            "NOT_ENOUGH_REPLICAS",
            Retry::Again,
            ONLY_PRODUCE,
            Settles::ToRetry,
        )
    },
    Explanation {
        says: "The leader wrote the batch, then too few replicas were in sync.",
        raised: "The leader, for acks=all, when replicas fell out of sync after it appended.",
        causes: &["A follower failed or fell behind while the request waited."],
        clients: PerClient {
            librdkafka: "Retries; takes the messages as possibly in the log.",
            franz_go: "Retries, whatever RecordRetries says.",
            ..RETRIES
        },
        advice: &[
            "Bring the missing replica back; the retry is safe with idempotence.",
            "Without idempotence the retry is written again: switch enable.idempotence on.",
        ],
        promql: ANY_PRODUCE_ERROR,
        see: &["19", "duplicate_forwarded"],
        ..error(
            20,
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            Retry::Again,
            ONLY_PRODUCE,
            Settles::Unknown,
        )
    },
    Explanation {
        says: "The request's acks is not -1, 0 or 1.",
        raised: "The broker, before it looks at the batches.",
        causes: &["A number of replicas as acks, which Kafka gave up in version 0.9."],
        clients: FAILS,
        advice: &["Set acks=all (-1); idempotence needs it."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            21,
            "INVALID_REQUIRED_ACKS",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Refused,
        )
    },
    Explanation {
        says: "The principal may not use the topic.",
        raised: "The broker or coordinator, when WRITE on the topic (TxnOffsetCommit: READ) is \
                 not granted.",
        causes: &[
            "A missing ACL.",
            "A client that authenticates as somebody else.",
        ],
        clients: PerClient {
            java: "Produce: fails the batch. AddPartitionsToTxn: abort. TxnOffsetCommit: fatal.",
            librdkafka: "Fails the messages and marks the topic; transaction: abort it.",
            franz_go: "Produce: fails the partition's records. AddPartitionsToTxn: fails all.",
            sarama: "Produce: error and epoch bump. AddPartitionsToTxn: abort. \
                     TxnOffsetCommit: fatal.",
            ..FAILS
        },
        advice: &[
            "Grant WRITE (and DESCRIBE) on the topic to the client's principal.",
            "hapax passes SASL through: the broker sees the client's own principal.",
        ],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            29,
            "TOPIC_AUTHORIZATION_FAILED",
            Retry::Never,
            &[Produce, AddPartitionsToTxn, TxnOffsetCommit],
            Settles::Refused,
        )
    },
    Explanation {
        says: "The principal may not produce with idempotence.",
        raised: "The broker at InitProducerId without a transactional id, for a principal with \
                 neither IDEMPOTENT_WRITE on the cluster nor WRITE on any topic. Brokers before \
                 2.8 want IDEMPOTENT_WRITE, at Produce too.",
        causes: &["A newer client: Java 3.0.1 and later are idempotent unless told not to be."],
        clients: PerClient {
            java: "Fails what waits to be sent; asks again with later sends.",
            librdkafka: "Fatal: the producer is dead.",
            franz_go: "Fails everything that it buffers.",
            sarama: "NewAsyncProducer fails.",
            kafkajs: "connect() rejects.",
        },
        advice: &[
            "Grant IDEMPOTENT_WRITE on the cluster, or WRITE on the topic (Kafka 2.8 and newer).",
            "enable.idempotence=false avoids it, and gives up the protection.",
        ],
        promql: &["rate(hapax_requests_total{api=\"init_producer_id\",outcome=\"error\"}[5m]) > 0"],
        see: &["idempotence"],
        ..error(
            31,
            "CLUSTER_AUTHORIZATION_FAILED",
            Retry::Never,
            &[InitProducerId, Produce],
            Settles::Refused,
        )
    },
    Explanation {
        says: "A record's time is outside what the topic allows.",
        raised: "The leader, for message.timestamp.before.max.ms and .after.max.ms, or a batch \
                 that claims to have log append times.",
        causes: &[
            "Old data written again, clocks that are wrong, seconds in place of milliseconds.",
        ],
        clients: FAILS,
        advice: &["Correct the record's time, or widen the topic's limits."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            32,
            "INVALID_TIMESTAMP",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Refused,
        )
    },
    Explanation {
        says: "The topic's message format is too old for the request.",
        raised: "A broker with a topic in an old message.format.version: no idempotence, no \
                 transactions, no headers there.",
        causes: &["A topic kept at message format 0 or 1 (Kafka before 0.11)."],
        clients: PerClient {
            java: "Fails the batch. TxnOffsetCommit: fatal.",
            librdkafka: "Fails the messages. AddOffsetsToTxn, TxnOffsetCommit: fatal.",
            ..FAILS
        },
        advice: &["Remove message.format.version from the topic; Kafka 4 has only format 2."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            43,
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            Retry::Never,
            &[Produce, TxnOffsetCommit],
            Settles::Refused,
        )
    },
    POLICY_VIOLATION,
    Explanation {
        aliases: &["_GAPLESS_GUARANTEE", "OOSN"],
        says: "The batch does not follow the last one that the broker knows of this producer.",
        raised: "The leader, when it appends: a gap, a part of a written batch, a retry older \
                 than the five batches it remembers, or a new epoch that does not begin at 0.",
        causes: &[
            "The batch before it failed or was given up (a gap).",
            "A retry that the broker no longer recognises: see below.",
            "The first batches to a fresh partition changed places.",
        ],
        clients: PerClient {
            java: "Retries; the next in turn: bumps its epoch and sends it anew (may duplicate). \
                   In a transaction: abort.",
            librdkafka: "The next in turn: FATAL, the producer is dead. Later ones: bumps the \
                         epoch of all partitions (may duplicate on others).",
            franz_go: "Bumps its epoch and sends anew; fails with StopProducerOnDataLossDetected \
                       or in a transaction.",
            sarama: "Error to the application, and epoch bump.",
            kafkajs: "send() rejects.",
        },
        hapax: "--sequence-shield45 shows the error of an open batch before it in its place \
                (shielded).",
        advice: &[
            "hapax events shows the gap or disagreement behind it; begin with the oldest.",
            "Keep enable.idempotence, acks=all and at most 5 requests in flight.",
            "librdkafka has to be made anew after it; so says rd_kafka_fatal_error().",
        ],
        promql: &[
            "rate(hapax_sequence_errors_total{error=\"out_of_order_sequence_number\"}[5m]) > 0",
        ],
        belief: Some(BATCHES_FORGOTTEN),
        see: &[
            "gap",
            "disagreement",
            "epoch_resend",
            "shielded",
            "idempotence",
        ],
        ..error(
            45,
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::OutOfOrder,
        )
    },
    Explanation {
        says: "The batch is in the log already, but the broker cannot say where.",
        raised: "Old brokers and other servers, for a retry older than what they remember. Kafka \
                 4.4 never sends it: it answers such a retry with 45.",
        causes: &["A retry of a batch whose acknowledgement was lost."],
        clients: PerClient {
            java: "Success, without an offset.",
            librdkafka: "Success, without an offset.",
            franz_go: "Success, without an offset.",
            sarama: "Success, offset unset.",
            kafkajs: "send() rejects, although the messages are in the log.",
        },
        advice: &["Nothing: it is a success. KafkaJS: do not send these messages again."],
        promql: &["rate(hapax_sequence_errors_total{error=\"duplicate_sequence_number\"}[5m]) > 0"],
        belief: Some(BATCHES_FORGOTTEN),
        see: &["45", "duplicate_absorbed"],
        ..error(
            46,
            "DUPLICATE_SEQUENCE_NUMBER",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Written,
        )
    },
    Explanation {
        says: "A newer epoch of this producer id is known.",
        raised: "The leader, for a batch below the newest epoch of its producer id there. \
                 Coordinators send it in old versions of their APIs, where newer ones say 90.",
        causes: &[
            "An instance with the same transactional.id started later.",
            "The coordinator aborted the transaction: it took too long.",
            "Not transactional: a late copy from before an epoch bump; harmless.",
        ],
        clients: PerClient {
            java: "Produce: fails the batch; idempotent: bumps its epoch; transaction: abort. \
                   Coordinators: fatal, as 90.",
            librdkafka: "Idempotent: bumps its epoch. Transactional: fatal (_FENCED).",
            franz_go: "Idempotent: bumps its epoch, sends anew. Transactional: fails; recovers at \
                       the next transaction unless transaction.version is 2.",
            sarama: "Produce: error and epoch bump, transaction: abort. Coordinators: fatal.",
            kafkajs: "Rejects.",
        },
        hapax: "Tells fenced_producer for a producer with transactions.",
        advice: &[
            "One transactional.id for each running instance, and none shared between two.",
            "Keep transactions below transaction.timeout.ms.",
        ],
        promql: &["rate(hapax_sequence_errors_total{error=\"invalid_producer_epoch\"}[5m]) > 0"],
        belief: Some(super::general::THREADS),
        see: &["fencing", "90", "stale_epoch"],
        ..error(
            47,
            "INVALID_PRODUCER_EPOCH",
            Retry::Abort,
            EVERY,
            Settles::Refused,
        )
    },
    Explanation {
        says: "The transaction is not in a state that allows this.",
        raised: "The leader, for a partition that was not added to the transaction or a plain \
                 batch while a transaction of the producer is open; the coordinator, when asked \
                 to end a transaction that is not open or ends the other way.",
        causes: &[
            "The transaction timed out and was aborted before the request came.",
            "One producer id used with and without transactions, or by two programs.",
        ],
        clients: PerClient {
            java: "Produce in a transaction: abort. Coordinators: fatal.",
            librdkafka: "Produce in a transaction: abort. Coordinators: fatal.",
            franz_go: "Produce: fails the partition's records. Coordinators: fails the producer id.",
            sarama: "Produce: abort. Coordinators: fatal.",
            kafkajs: "Rejects.",
        },
        advice: &[
            "Abort and begin anew; if the producer is dead, make a new one.",
            "Keep transactions below transaction.timeout.ms.",
        ],
        promql: ANY_PRODUCE_ERROR,
        see: &["120", "fencing"],
        ..error(
            48,
            "INVALID_TXN_STATE",
            Retry::Abort,
            &[
                Produce,
                AddPartitionsToTxn,
                AddOffsetsToTxn,
                TxnOffsetCommit,
                EndTxn,
            ],
            Settles::Refused,
        )
    },
    Explanation {
        aliases: &["INVALID_PID_MAPPING"],
        says: "The transactional id does not have this producer id.",
        raised: "The coordinator: it has no such transactional id, or another producer id for it. \
                 Brokers pass it on in Produce responses.",
        causes: &[
            "No transaction for transactional.id.expiration.ms (7 days): it is forgotten.",
            "The state of the transactional id was lost or deleted.",
        ],
        clients: PerClient {
            java: "Fatal: make a new producer.",
            librdkafka: "TxnOffsetCommit: fatal. Else: abort the transaction.",
            franz_go: "Fails the producer id; recovers at the next transaction unless \
                       transaction.version is 2.",
            sarama: "TxnOffsetCommit: fatal. Else: abort, with a new producer id; brokers before \
                     2.5: fatal.",
            kafkajs: "Rejects.",
        },
        advice: &[
            "Make a new producer; for rare transactions raise transactional.id.expiration.ms.",
        ],
        promql: &["rate(hapax_requests_total{api=\"end_txn\",outcome=\"error\"}[5m]) > 0"],
        belief: Some(super::general::CLIENT_ID),
        see: &["producer-id", "fencing"],
        ..error(
            49,
            "INVALID_PRODUCER_ID_MAPPING",
            Retry::Renew,
            &[
                Produce,
                AddPartitionsToTxn,
                AddOffsetsToTxn,
                TxnOffsetCommit,
                EndTxn,
            ],
            Settles::Refused,
        )
    },
    Explanation {
        says: "The transaction before this one is still being completed.",
        raised: "The coordinator, while it writes the markers of the last transaction, or aborts \
                 that of an instance before; the leader for Produce 12 and newer.",
        causes: &[
            "Transactions in quick succession: ordinary.",
            "A restart: the open transaction of the last instance is aborted first.",
            "Markers that cannot be written, because a partition has no leader.",
        ],
        clients: PerClient {
            java: "Retries.",
            librdkafka: "Retries; at Produce: abort the transaction.",
            franz_go: "Retries; TxnOffsetCommit: aborts the transaction.",
            sarama: "Retries; InitProducerId, TxnOffsetCommit: fatal; Produce: abort.",
            kafkajs: "InitProducerId, AddPartitionsToTxn, Produce: retries. Else: rejects.",
        },
        advice: &[
            "Nothing, if it ends within seconds.",
            "If it lasts, kafka-transactions.sh find-hanging shows what is stuck.",
        ],
        promql: &["rate(hapax_requests_total{api=\"end_txn\",outcome=\"error\"}[5m]) > 0"],
        see: &["fencing"],
        ..error(
            51,
            "CONCURRENT_TRANSACTIONS",
            Retry::Again,
            EVERY,
            Settles::ToRetry,
        )
    },
    Explanation {
        says: "The principal may not use the transactional id.",
        raised: "The broker or coordinator, when WRITE on the transactional id is not granted.",
        causes: &[
            "A missing ACL.",
            "Two-phase commit asked for, and not enabled there.",
        ],
        clients: PerClient {
            java: "initTransactions() throws, and may be called again. Else: fatal.",
            librdkafka: "Fatal; at Produce: abort the transaction.",
            franz_go: "InitProducerId: fails everything that it buffers.",
            sarama: "Fatal.",
            kafkajs: "Rejects.",
        },
        advice: &["Grant WRITE on the transactional id to the client's principal."],
        promql: &["rate(hapax_requests_total{api=\"init_producer_id\",outcome=\"error\"}[5m]) > 0"],
        ..error(
            53,
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            Retry::Never,
            EVERY,
            Settles::Refused,
        )
    },
    Explanation {
        says: "The broker cannot use the disk of the partition.",
        raised: "The leader, when its log directory is offline or a write to it failed. A part \
                 may have been written.",
        causes: &[
            "A full or broken disk.",
            "A log directory that went offline.",
        ],
        clients: PerClient {
            java: "Refreshes its metadata, retries with the same sequence.",
            librdkafka: "Refreshes its metadata and retries; takes it as not written.",
            ..RETRIES
        },
        advice: &["Look at the broker's disk and log; another replica should take over."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            56,
            "KAFKA_STORAGE_ERROR",
            Retry::Again,
            ONLY_PRODUCE,
            Settles::Unknown,
        )
    },
    Explanation {
        says: "The broker knows nothing of the producer id, and the batch does not begin at 0.",
        raised: "Brokers before 2.5, after retention removed all that the producer wrote. Newer \
                 ones take a batch of an unknown producer id, or answer with 45.",
        causes: &["Short retention and a producer that writes rarely."],
        clients: PerClient {
            java: "Bumps its epoch and retries. In a transaction: abort, unless retention \
                   removed all that it had written.",
            librdkafka: "First attempt: bumps its epoch and retries. A retry: FATAL. \
                         In a transaction: abort.",
            franz_go: "As 45.",
            sarama: "Error and epoch bump.",
            kafkajs: "send() rejects.",
        },
        advice: &["Upgrade the brokers: since 2.5 they keep a producer beyond its records."],
        promql: &["rate(hapax_sequence_errors_total{error=\"unknown_producer_id\"}[5m]) > 0"],
        belief: Some(super::general::CLIENT_ID),
        see: &["producer-id", "45"],
        ..error(
            59,
            "UNKNOWN_PRODUCER_ID",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Unknown,
        )
    },
    Explanation {
        says: "The compression is too new for this version of Produce.",
        raised: "The broker, for zstd in a request below version 7.",
        causes: &["A client that was pinned to an old version."],
        clients: FAILS,
        advice: &["Use lz4 or snappy, or let the client choose its versions."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            76,
            "UNSUPPORTED_COMPRESSION_TYPE",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Refused,
        )
    },
    Explanation {
        says: "A record or the batch breaks a rule of the topic or of the format.",
        raised: "The leader, when it validates: a record without a key on a compacted topic, \
                 empty or several batches for a partition, a count that does not fit.",
        causes: &[
            "No key, and cleanup.policy=compact.",
            "A client or proxy that makes batches which Kafka does not take.",
        ],
        clients: FAILS,
        advice: &["Give records a key, or take compact out of the topic's cleanup.policy."],
        promql: ANY_PRODUCE_ERROR,
        ..error(
            87,
            "INVALID_RECORD",
            Retry::Never,
            ONLY_PRODUCE,
            Settles::Refused,
        )
    },
    Explanation {
        aliases: &["_FENCED", "fenced"],
        says: "A newer instance has this transactional id, or the coordinator gave it a new epoch.",
        raised: "The coordinator, for an epoch that is not the current one. Leaders say 47 \
                 instead, and so do old versions of the coordinator's APIs.",
        causes: &[
            "A second instance started with the same transactional.id.",
            "The transaction timed out: the coordinator aborted it and raised the epoch.",
            "A paused or cut-off instance (a zombie) came back after its replacement.",
        ],
        clients: PerClient {
            java: "Fatal: close the producer.",
            librdkafka: "Fatal (_FENCED), as is the 47 that it gets from older APIs.",
            franz_go: "Fails the producer id for good.",
            sarama: "Fatal in a transaction.",
            kafkajs: "Uses no version that carries it, and gets 47 instead.",
        },
        hapax: "Tells fenced_producer, once per producer id and epoch.",
        advice: &[
            "Give each running instance its own transactional.id; one must stop.",
            "Keep transactions below transaction.timeout.ms.",
            "If this is the old instance, let it end: its replacement is at work.",
        ],
        promql: &["increase(hapax_fenced_producers_total[1h]) > 0"],
        belief: Some(super::general::THREADS),
        see: &["fencing", "47", "fenced_producer"],
        ..error(90, "PRODUCER_FENCED", Retry::Renew, EVERY, Settles::Unknown)
    },
    Explanation {
        says: "No topic has this id.",
        raised: "A broker, for Produce 13 (TxnOffsetCommit 6) and newer, which name topics by \
                 id: the topic was deleted, or made again under another id.",
        causes: &[
            "The topic was deleted and created again while producers ran.",
            "The topic was just created: not every broker knows it yet.",
        ],
        clients: PerClient {
            java: "Refreshes its metadata, retries with the same sequence.",
            librdkafka: "Uses no version that carries it.",
            franz_go: "Retries; more than 4 times in a row fail it (UnknownTopicRetries).",
            sarama: "Uses no version that carries it.",
            kafkajs: "Uses no version that carries it.",
        },
        hapax: "What was known of the topic is dropped: no retry is absorbed from the old one.",
        advice: &["Restart producers after a topic was made anew, if they do not recover."],
        promql: ANY_PRODUCE_ERROR,
        see: &["3"],
        ..error(
            100,
            "UNKNOWN_TOPIC_ID",
            Retry::Again,
            &[Produce, TxnOffsetCommit],
            Settles::ToRetryUnlessAppended,
        )
    },
    Explanation {
        says: "The transaction has to be aborted; then the producer may go on.",
        raised: "Newer brokers, in newer versions of these APIs (Produce 11, EndTxn 4): most often \
                 the leader, for a partition that is not part of the transaction.",
        causes: &[
            "The transaction timed out and was aborted before the request came.",
            "A request of an aborted transaction came late.",
        ],
        clients: PerClient {
            java: "Abort the transaction; the producer goes on.",
            librdkafka: "Uses no version that carries it, and gets 48 instead.",
            franz_go: "Fails the records; after the abort the producer goes on.",
            sarama: "Uses no version that carries it, and gets 48 instead.",
            kafkajs: "Uses no version that carries it, and gets 48 instead.",
        },
        advice: &[
            "Abort the transaction and do its work again.",
            "Keep transactions below transaction.timeout.ms.",
        ],
        promql: ANY_PRODUCE_ERROR,
        see: &["48", "fencing"],
        ..error(
            120,
            "TRANSACTION_ABORTABLE",
            Retry::Abort,
            EVERY,
            Settles::Refused,
        )
    },
];
