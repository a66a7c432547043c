//! What several errors and events have in common.

use super::produce::BATCHES_FORGOTTEN;
use super::{Belief, Explanation};

pub(super) const CLIENT_ID: Belief = Belief {
    said: "A restarted producer gets its producer id back by its client.id.",
    truth: "Each start gets a new one, whatever client.id says. Only a transactional.id \
            keeps its producer id, and then with a higher epoch.",
};

pub(super) const THREADS: Belief = Belief {
    said: "PRODUCER_FENCED means that threads share a producer.",
    truth: "A producer may be shared by threads. Two producers with one transactional.id \
            fence each other, and so does a transaction that timed out.",
};

pub(super) const ALL: &[Explanation] = &[
    Explanation {
        name: "idempotence",
        aliases: &[
            "enable.idempotence",
            "idempotent",
            "idempotent-producer",
            "exactly-once",
            "window",
        ],
        says: "A producer numbers its records, so that a retry is not written twice.",
        raised: "The client asks for a producer id (InitProducerId) and gives each batch that \
                 id, an epoch and a sequence number per partition. The leader compares them with \
                 the last batches of that producer id.",
        causes: &[
            "A retry among the last five batches is recognised, and answered as before.",
            "An older one gets error 45, and so does a gap.",
            "The bytes are not compared: other records under old numbers are thrown away.",
            "Forgotten after a day without records, by the records' own times.",
        ],
        hapax: "It follows the same numbers. Mode absorb: a retry of a batch that the cluster \
                acknowledged is answered with that acknowledgement; order is kept where the \
                broker has no memory; what is unknown is forwarded. Mode observe: it only counts.",
        advice: &[
            "Set enable.idempotence=true and acks=all, and leave retries and timeouts alone.",
            "It covers retries of one running producer, not what an application sends again.",
            "hapax producers shows what is followed; untracked batches have no idempotence.",
        ],
        promql: &[
            "sum by (verdict) (rate(hapax_verdicts_total[5m]))",
            "rate(hapax_verdicts_total{verdict=\"untracked\"}[5m]) > 0",
        ],
        belief: Some(BATCHES_FORGOTTEN),
        see: &["45", "duplicate_absorbed", "producer-id"],
        ..Explanation::BLANK
    },
    Explanation {
        name: "producer-id",
        aliases: &["pid", "producer_id", "client-id", "client.id", "restart"],
        says: "The number under which the cluster knows one producer.",
        raised: "The coordinator, or any broker for producers without a transactional id, in \
                 its InitProducerId answer.",
        causes: &[
            "Each start of a producer, and each new producer object, gets a new one.",
            "What a restarted application sends again is new to Kafka, and to hapax.",
            "An epoch bump keeps the id, and begins the sequences at 0.",
        ],
        hapax: "It counts producer ids and shows who uses which. It does not join the ids of a \
                restarted application.",
        advice: &[
            "Make one producer and keep it; one per message costs the broker memory for a day.",
            "For exactly once over restarts use transactions, or a key by which readers can \
             tell duplicates.",
        ],
        promql: &["rate(hapax_producer_ids_issued_total[5m]) > 1"],
        belief: Some(CLIENT_ID),
        see: &["idempotence", "fencing", "59"],
        ..Explanation::BLANK
    },
    Explanation {
        name: "fencing",
        aliases: &["zombie", "transactional.id", "transactional-id", "epoch"],
        says: "The newest instance with a transactional id shuts the older ones out.",
        raised: "The coordinator raises the epoch at each InitProducerId of a transactional id, \
                 when it aborts a transaction that took too long and, since Kafka 4, at the end \
                 of each transaction. Lower epochs are refused: 90 by coordinators, 47 by leaders.",
        causes: &[
            "Two running instances share a transactional.id.",
            "A transaction lasted longer than transaction.timeout.ms (Java: 60 s).",
            "A replacement was started while the old instance still ran.",
        ],
        hapax: "It relays the error and tells fenced_producer with the victim, and whether the \
                newer instance was seen here. It never fences by itself.",
        advice: &[
            "Give each running instance its own transactional.id, stable over its restarts.",
            "Keep transactions below transaction.timeout.ms.",
            "Stop the old instance before its replacement starts, or let it end on the error.",
        ],
        promql: &["increase(hapax_fenced_producers_total[1h]) > 0"],
        belief: Some(THREADS),
        see: &["90", "47", "fenced_producer"],
        ..Explanation::BLANK
    },
];
