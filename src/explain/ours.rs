//! The events and verdicts of hapax.

use super::produce::BATCHES_FORGOTTEN;
use super::{Explanation, Subject};

const TOLD: Explanation = Explanation {
    subject: Subject::Told,
    ..Explanation::BLANK
};

/// A retry was answered from an earlier acknowledgement.
pub static DUPLICATE_ABSORBED: Explanation = Explanation {
    name: "duplicate_absorbed",
    aliases: &["absorbed", "duplicate"],
    says: "A retry got the first acknowledgement again; nothing was written twice.",
    raised: "hapax, for a batch with the numbers, length and checksum of one that the cluster \
             acknowledged within --sequence-ttl, from the same client.",
    causes: &[
        "An acknowledgement that was lost on its way to the client.",
        "A client whose request timeout is shorter than the cluster's answer.",
    ],
    hapax: "The client gets the offset of the first acknowledgement. The broker sees nothing.",
    advice: &[
        "Nothing is wrong with the data; a rising rate means that answers get lost or late.",
        "Compare request timeouts with hapax_request_duration_seconds, and look at the network.",
    ],
    promql: &["rate(hapax_verdicts_total{verdict=\"duplicate_absorbed\"}[5m]) > 0"],
    belief: Some(BATCHES_FORGOTTEN),
    see: &["duplicate_forwarded", "idempotence"],
    ..TOLD
};

/// A retry was left to the broker.
pub static DUPLICATE_FORWARDED: Explanation = Explanation {
    name: "duplicate_forwarded",
    aliases: &["forwarded_duplicate"],
    says: "A retry was left to the broker, which knows of the first copy.",
    raised: "hapax, for a batch that is on its way, whose outcome is unknown, or which it may \
             not answer itself.",
    causes: &[
        "Mode observe, or a transaction (--sequence-absorb-transactional is off).",
        "The first copy is unanswered, or its connection was lost.",
        "The retry came from another user, with acks=1, or later than --sequence-ttl.",
    ],
    hapax: "It forwards the retry. A broker that remembers the batch writes it once.",
    advice: &[
        "Nothing, unless the broker restarted or the records are a day old: then it may forget.",
        "In mode observe: hapax run --mode absorb answers those that were acknowledged.",
    ],
    promql: &["rate(hapax_verdicts_total{verdict=\"duplicate_forwarded\"}[5m]) > 0"],
    belief: Some(BATCHES_FORGOTTEN),
    see: &["duplicate_absorbed", "idempotence"],
    ..TOLD
};

/// Records are missing before a batch.
pub static GAP: Explanation = Explanation {
    name: "gap",
    says: "Sequence numbers are missing before a batch.",
    raised: "hapax, for a batch that does not begin where the one before it ended. The event's \
             kind says which: predecessor_failed, never_seen, no_baseline or \
             new_epoch_midway.",
    causes: &[
        "predecessor_failed: the batch before it failed, and comes again as a rule.",
        "never_seen: the records before it never came this way.",
        "no_baseline: hapax began to look in mid-stream.",
        "new_epoch_midway: a raised epoch that does not begin at sequence 0.",
    ],
    hapax: "It never fills a gap and refuses nothing because of one.",
    advice: &["Look at the kind of the gap: only never_seen means that records are missing."],
    promql: &["sum by (kind) (increase(hapax_gaps_total[1h])) > 0"],
    see: &[
        "never_seen",
        "predecessor_failed",
        "no_baseline",
        "new_epoch_midway",
        "45",
    ],
    ..TOLD
};

/// A gap behind a batch that failed.
pub static PREDECESSOR_FAILED: Explanation = Explanation {
    name: "predecessor_failed",
    says: "The batch before this one failed and has not come again yet.",
    raised: "hapax, when a batch arrives, or is even acknowledged, behind one that failed.",
    causes: &[
        "An error of the broker (3, 6, 19 and others); the client retries in order.",
        "The client gave the failed batch up and goes on: its records are missing.",
    ],
    hapax: "In mode absorb the later batch is answered with a retriable error, so that the \
            failed one is written first: once, and three times at most while the beginning of an \
            epoch is what failed.",
    advice: &[
        "Nothing, if it ends by itself: the retry of the failed batch closes the gap.",
        "If it lasts, see the error before it, and the client's delivery timeout.",
    ],
    promql: &["increase(hapax_gaps_total{kind=\"predecessor_failed\"}[1h]) > 0"],
    see: &["mirrored", "45", "gap"],
    ..TOLD
};

/// A gap of which nobody saw the records.
pub static NEVER_SEEN: Explanation = Explanation {
    name: "never_seen",
    says: "Records before this batch never came this way; the broker lacks them too.",
    raised: "hapax, for a batch behind a gap, when the batches before the gap were seen.",
    causes: &[
        "The client counted messages that it had already reported as failed.",
        "A defect of the client: sends at once that confuse its numbering.",
        "A part of the client's traffic goes around hapax.",
    ],
    hapax: "It forwards the batch. The broker answers 45, if it remembers the producer.",
    advice: &[
        "Look at the producer in the event: its log has the failed sends; update its client.",
        "All of a producer's connections have to go through hapax: see hapax producers.",
    ],
    promql: &[
        "increase(hapax_gaps_total{kind=\"never_seen\"}[1h]) > 0",
        "sum by (topic) (increase(hapax_missing_records_total[1h])) > 0",
    ],
    see: &["45", "gap"],
    ..TOLD
};

/// A gap that is one only because hapax was not there before.
pub static NO_BASELINE: Explanation = Explanation {
    name: "no_baseline",
    says: "The first batch that hapax sees of a producer or epoch is not its first.",
    raised: "hapax, for a batch that does not begin at sequence 0, of which nothing earlier is \
             known.",
    causes: &[
        "hapax was restarted, or put in front of a producer that already ran.",
        "The producer was idle for so long that its window was dropped.",
    ],
    hapax: "It follows the producer from here on. Nothing before it can be absorbed.",
    advice: &["Nothing: it is no error, and no record is missing because of it."],
    promql: &["increase(hapax_gaps_total{kind=\"no_baseline\"}[1h]) > 0"],
    see: &["gap"],
    ..TOLD
};

/// A raised epoch that goes on with its old sequence.
pub static NEW_EPOCH_MIDWAY: Explanation = Explanation {
    name: "new_epoch_midway",
    aliases: &["epoch_reset_violation"],
    says: "A producer raised its epoch and did not begin at sequence 0 again.",
    raised: "hapax, for a batch of a higher epoch than the known one on that partition, which \
             does not begin at 0 and has no batch of its epoch before it.",
    causes: &[
        "A client that restarts only the partition that failed, and goes on counting on others.",
        "The first batches of the new epoch went around hapax.",
    ],
    hapax: "It forwards the batch. A broker that knows the producer answers 45, and a client that \
            raises its epoch for that does so again and again.",
    advice: &[
        "Update the client: all partitions have to begin at 0 in a new epoch.",
        "All of a producer's connections have to go through hapax: see hapax producers.",
    ],
    promql: &["increase(hapax_gaps_total{kind=\"new_epoch_midway\"}[1h]) > 0"],
    see: &["epoch_bump", "45", "gap"],
    ..TOLD
};

/// A sequence range came again with other bytes.
pub static SEQUENCE_REUSE: Explanation = Explanation {
    name: "sequence_reuse",
    aliases: &["reuse", "sequence_reuse_conflict"],
    says: "Sequence numbers of one batch came again with other bytes.",
    raised: "hapax, for a batch that has the numbers of a known one and another checksum.",
    causes: &[
        "KafkaJS, which stamps records anew on each retry: then it is a plain retry.",
        "A defect of the client: two batches under the same numbers. One of them is lost.",
        "An application that restores an old sequence from its own state.",
    ],
    hapax: "It forwards the batch. A broker acknowledges it and throws it away: it compares \
            numbers, not bytes.",
    advice: &[
        "Compare what was sent with what is in the topic: a batch may be acknowledged and lost.",
        "KafkaJS: give each message a timestamp; then its retries are known again, and absorbed.",
        "Another client: update it, and do not send from several threads into one batch.",
    ],
    promql: &["increase(hapax_verdicts_total{verdict=\"sequence_reuse\"}[1h]) > 0"],
    see: &["idempotence", "46"],
    ..TOLD
};

/// A batch repeats part of an acknowledged range.
pub static OVERLAP: Explanation = Explanation {
    name: "overlap",
    says: "A batch repeats a part of known ones, or is older than all of them.",
    raised: "hapax, for sequence numbers that lie partly or wholly within known ones, without \
             being equal to one batch.",
    causes: &[
        "A client that batches retries anew.",
        "A retry that is older than --sequence-window-batches.",
    ],
    hapax: "It forwards the batch; the broker answers 45, if it remembers the producer.",
    advice: &[
        "Raise --sequence-window-batches if retries come that late; else update the client.",
        "Clients must retry batches as they were, or without idempotence.",
    ],
    promql: &["increase(hapax_verdicts_total{verdict=\"overlap\"}[1h]) > 0"],
    belief: Some(BATCHES_FORGOTTEN),
    see: &["45", "idempotence"],
    ..TOLD
};

/// A batch of an older epoch.
pub static STALE_EPOCH: Explanation = Explanation {
    name: "stale_epoch",
    says: "A batch has an older epoch than one that the cluster already accepted.",
    raised: "hapax, by the epochs that it saw acknowledged on that partition.",
    causes: &[
        "A late copy from before an epoch bump: harmless, the broker refuses it.",
        "An old instance of a transactional producer that goes on writing.",
    ],
    hapax: "It forwards the batch; the broker answers 47, unless it forgot the producer. In \
            mode enforce hapax answers 47 itself.",
    advice: &["Nothing for a single one; many mean that an old instance still runs: stop it."],
    promql: &["increase(hapax_verdicts_total{verdict=\"stale_epoch\"}[1h]) > 0"],
    see: &["47", "refused", "epoch_bump", "fencing"],
    ..TOLD
};

/// An epoch rose without a coordinator's answer saying so.
pub static EPOCH_BUMP: Explanation = Explanation {
    name: "epoch_bump",
    says: "A producer raised its epoch by itself and begins its sequences at 0 again.",
    raised: "hapax, for an epoch above the known one that no InitProducerId or EndTxn answer \
             announced.",
    causes: &[
        "The client met an error, most often 45 or a batch that it gave up.",
        "sarama raises it once for each message that failed.",
    ],
    hapax: "It forwards what comes. What the client sends anew has new numbers: if the first \
            copies were written after all, they are in the log twice.",
    advice: &[
        "Look at the events before it: the error behind the bump is what to cure.",
        "epoch_resend events say which of them are in the log twice, or may be.",
    ],
    promql: &["increase(hapax_producer_epoch_bumps_total[1h]) > 0"],
    see: &["epoch_resend", "45", "disagreement", "idempotence"],
    ..TOLD
};

/// The records of a batch came again under a new epoch.
pub static EPOCH_RESEND: Explanation = Explanation {
    name: "epoch_resend",
    aliases: &["resend", "cross_epoch_duplicate"],
    says: "Records came again under a new epoch: the log may have them twice.",
    raised: "hapax, for a batch with the length, count, times and records of one of an older \
             epoch within --sequence-ttl. Kind acknowledged: the cluster has the original, at \
             original_offset. Kind unknown: it may have it.",
    causes: &[
        "librdkafka: error 45 on one partition raises the epoch of all. A batch of another one \
         whose answer was lost is sent anew, from sequence 0.",
        "Java: 45 for the batch next in turn, whose first copy a restarted broker forgot.",
        "A client that gave a batch up after a lost answer, and raised its epoch for that.",
        "Rarely an application that sends equal records with equal times of its own choosing.",
    ],
    hapax: "It forwards the batch, and the broker writes it. It only tells: a new epoch begins \
            with what the client sends first, and nothing of it can be left out.",
    advice: &[
        "Look for the records of the event in the topic; consumers see them twice.",
        "librdkafka and its wrappers: --sequence-shield45 avoids the bumps that follow from a \
         failed batch.",
        "Find the error before the epoch_bump event, and why answers get lost.",
    ],
    promql: &[
        "increase(hapax_epoch_resends_total{original=\"acknowledged\"}[1h]) > 0",
        "increase(hapax_epoch_resends_total{original=\"unknown\"}[1h]) > 0",
    ],
    see: &["epoch_bump", "shielded", "45"],
    ..TOLD
};

/// Error 45 was shown as the error of the batch before it.
pub static SHIELDED: Explanation = Explanation {
    name: "shielded",
    aliases: &["shield45"],
    says: "Error 45 was shown as the error of the batch before it: the client retries.",
    raised: "hapax with --sequence-shield45, for error 45 to a batch right behind one that failed, \
             may have failed or was sent again: it only follows from that.",
    causes: &["A failed batch with others behind it on their way, as clients with several have."],
    hapax: "It shows 3, 6 or 100 if the batch before it got that, else 19: not written, try again. \
            Three times at most for a batch, until the one before it comes again; then 45. \
            librdkafka would raise the epoch of all partitions for it, and write batches twice \
            whose answers were lost; Java and franz-go retry in either case.",
    advice: &[
        "Nothing, while it is short; else cure the error of the batch before it.",
        "If the client gave that batch up, it learns of the gap up to three retries later.",
    ],
    promql: &["rate(hapax_shielded_errors_total[5m]) > 0"],
    see: &["epoch_resend", "mirrored", "45"],
    ..TOLD
};

/// A transactional producer was fenced.
pub static FENCED_PRODUCER: Explanation = Explanation {
    name: "fenced_producer",
    says: "A transactional producer was shut out: there is a newer epoch of it.",
    raised: "hapax, when a broker or coordinator answers a transactional producer 47 or 90, or \
             hapax itself does in mode enforce; once for each producer id and epoch.",
    causes: &[
        "A second instance with the same transactional.id.",
        "A transaction that took longer than transaction.timeout.ms.",
    ],
    hapax: "It relays the error and names the victim. The detail says whether the newer \
            instance was seen here.",
    advice: &[
        "Give each running instance its own transactional.id, and keep transactions short.",
        "If it is the old instance of a restart: nothing, it has to end.",
    ],
    promql: &["increase(hapax_fenced_producers_total[1h]) > 0"],
    belief: Some(super::general::THREADS),
    see: &["fencing", "90", "47"],
    ..TOLD
};

/// A broker refused what follows on its own acknowledgement.
pub static DISAGREEMENT: Explanation = Explanation {
    name: "disagreement",
    says: "The broker answered 45 to the very batch that follows its last success.",
    raised: "hapax, when a batch in its turn gets 45 and no earlier copy of it may be in the log.",
    causes: &[
        "The broker lost its memory of the producer: truncation, a topic made anew.",
        "Traffic of this producer that goes around hapax.",
    ],
    hapax: "It relays 45 and drops what it knew: the broker is the authority.",
    advice: &[
        "Check the topic for lost records: leader elections, deletion, unclean elections.",
        "All of a producer's connections have to go through hapax.",
    ],
    promql: &["increase(hapax_events_total{event=\"disagreement\"}[1h]) > 0"],
    see: &["45", "log_truncated"],
    ..TOLD
};

/// A broker gave an offset out again.
pub static LOG_TRUNCATED: Explanation = Explanation {
    name: "log_truncated",
    aliases: &["truncated", "truncation"],
    says: "The broker gave an acknowledged offset out again: its log was cut.",
    raised: "hapax, when a later batch is acknowledged at or below the offset of an earlier one.",
    causes: &[
        "An unclean leader election, or acks=1 and the loss of a leader.",
        "The topic was deleted and created again.",
    ],
    hapax: "It drops what it knew of the producer on that partition, so that nothing lost is \
            acknowledged again.",
    advice: &[
        "Acknowledged records are lost: find out from the brokers' logs how many.",
        "acks=all, three replicas, min.insync.replicas=2, no unclean elections.",
    ],
    promql: &["increase(hapax_events_total{event=\"log_truncated\"}[1h]) > 0"],
    see: &["disagreement"],
    ..TOLD
};

static FORWARDED: Explanation = Explanation {
    name: "forwarded",
    says: "The batch went to the broker; nothing was known against it.",
    raised: "hapax, for a batch in its turn, and for the retry of one that was not written.",
    causes: &["Ordinary traffic."],
    hapax: "It relays the broker's answer.",
    advice: &["Nothing: this is what most batches should get."],
    promql: &["rate(hapax_verdicts_total{verdict=\"forwarded\"}[5m])"],
    see: &["idempotence"],
    ..TOLD
};

/// A retry was found in the log.
pub static DUPLICATE_RESOLVED: Explanation = Explanation {
    name: "duplicate_resolved",
    aliases: &["resolved"],
    says: "A retry was found in the log; the broker had forgotten it, or may have.",
    raised: "hapax in mode absorb, for a retry of unknown outcome whose records are older than \
             --sequence-broker-producer-expiry, before the broker gets it; and for a batch that \
             the broker refused with 45 although it may be written. Both are looked for in the \
             log by the client's own connection, by producer, epoch and sequence.",
    causes: &[
        "A broker that restarted: its snapshot keeps the last batch of a producer only.",
        "Record timestamps a day old: brokers forget their producers within minutes.",
    ],
    hapax: "The client gets the offset at which the batch stands. Without it the broker would \
            have refused the retry with 45, or written it twice.",
    advice: &[
        "Nothing is wrong with the data; an acknowledgement was lost.",
        "hapax_resolves_total says how often the log was read in vain: refused means that the \
         producer's user has no READ on the topic.",
    ],
    promql: &[
        "rate(hapax_resolves_total{outcome=\"found\"}[5m]) > 0",
        "increase(hapax_resolves_total{outcome=\"refused\"}[1h]) > 0",
    ],
    belief: Some(BATCHES_FORGOTTEN),
    see: &["duplicate_forwarded", "duplicate_absorbed", "45"],
    ..TOLD
};

static MIRRORED: Explanation = Explanation {
    name: "mirrored",
    says: "A batch got the error of the one before it, so that order is kept.",
    raised: "hapax in mode absorb, for a batch that was never forwarded, behind one that failed \
             or whose outcome is unknown; and for a retry of records older than \
             --sequence-broker-producer-expiry while nobody can tell whether it is written.",
    causes: &[
        "An error of the broker for the batch before it: 3, 6, 19, 100 and others.",
        "Old records, and a broker or its replicas that are slower than the client waits: the first \
         copy is still on its way, or stands where the log cannot be read yet.",
    ],
    hapax: "It answers 3, 6 or 100 if the failed batch got that, else 19. All of them say that \
            nothing was written and that the client should retry. Once for a \
            batch, and three times at most while the beginning of an epoch is what failed, since \
            a broker would take what follows; then it is forwarded. A retry of old records \
            gets 7, as often as it comes, until the log or the first copy's answer says more: a \
            broker that has forgotten its producer would write it twice.",
    advice: &["Nothing, while it is short; else cure the error of the batch before it."],
    promql: &["rate(hapax_verdicts_total{verdict=\"mirrored\"}[5m]) > 0"],
    see: &["predecessor_failed", "19"],
    ..TOLD
};

static REFUSED: Explanation = Explanation {
    name: "refused",
    says: "A batch was rejected by a proof or a policy.",
    raised: "hapax in mode enforce, for a batch of an older epoch than one that the cluster has \
             accepted on that partition, or than the coordinator granted its transactional.id; \
             and for one that lacks what a policy requires.",
    causes: &[
        "A producer that another instance or its own epoch bump has replaced: a zombie.",
        "A producer without what the policies of the topic require.",
    ],
    hapax: "It answers 47 to the older epoch and 44 by a policy; nothing of the batch reaches \
            the broker. Without proof, as after a restart, it forwards.",
    advice: &[
        "hapax events names the producer, and whether it was its epoch or a policy.",
        "For an older epoch: stop the old instance. A broker that remembers it says 47 as well.",
    ],
    promql: &["increase(hapax_verdicts_total{verdict=\"refused\"}[1h]) > 0"],
    see: &["stale_epoch", "44", "47"],
    ..TOLD
};

static UNTRACKED: Explanation = Explanation {
    name: "untracked",
    says: "The batch is not followed: it passes, and its retry is not recognised.",
    raised: "hapax, for batches without a producer id, in old formats, or above its limits.",
    causes: &[
        "enable.idempotence=false, or a client that has none.",
        "acks=1 or retries=0 in Java, which switch the default idempotence off.",
        "More windows than --sequence-max-windows.",
    ],
    hapax: "It forwards the batch unchanged.",
    advice: &[
        "Set enable.idempotence=true and acks=all on the producer.",
        "hapax_limit_reached_total says whether a limit of hapax is the reason.",
    ],
    promql: &[
        "rate(hapax_verdicts_total{verdict=\"untracked\"}[5m]) > 0",
        "rate(hapax_limit_reached_total{limit=\"windows\"}[5m]) > 0",
    ],
    see: &["idempotence"],
    ..TOLD
};

pub(super) static ALL: &[&Explanation] = &[
    &DUPLICATE_ABSORBED,
    &DUPLICATE_FORWARDED,
    &DUPLICATE_RESOLVED,
    &GAP,
    &NEVER_SEEN,
    &PREDECESSOR_FAILED,
    &NO_BASELINE,
    &NEW_EPOCH_MIDWAY,
    &SEQUENCE_REUSE,
    &OVERLAP,
    &STALE_EPOCH,
    &EPOCH_BUMP,
    &EPOCH_RESEND,
    &SHIELDED,
    &FENCED_PRODUCER,
    &DISAGREEMENT,
    &LOG_TRUNCATED,
    &FORWARDED,
    &MIRRORED,
    &REFUSED,
    &UNTRACKED,
];
