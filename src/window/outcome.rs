//! What an answer of the cluster says about *this attempt* (SEMANTICS 2.1).

use super::Ack;

pub(super) const NOT_ENOUGH_REPLICAS: i16 = 19;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// Nobody knows yet whether the batch is written.
pub const REQUEST_TIMED_OUT: i16 = 7;
pub(super) const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
pub(super) const UNKNOWN_TOPIC_ID: i16 = 100;

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is in the log; `None` where the answer does not say at which offset.
    Written(Option<Ack>),
    /// The broker found its sequence out of order (45), and the log has it
    /// below the high watermark: an earlier attempt was written.
    Found(Ack),
    /// It is not in the log, and this error invites the client to send it again.
    Failed(i16),
    /// It is not in the log, and this error does not invite a retry.
    Refused(i16),
    /// The broker found its sequence out of order (45): this attempt was not
    /// written, an earlier one may have been.
    OutOfOrder,
    /// It may be in the log, at this offset if the leader appended it.
    Unknown {
        /// The offset that the leader gave it before it failed.
        candidate: Option<i64>,
    },
    /// Only a part of its request left, so the broker never saw it.
    Withheld,
}

/// What a partition's answer to a Produce request means.
///
/// An error with a base offset means that the leader appended the batch and
/// failed later (DelayedProduce only overwrites the error code). Where it then
/// leads no more, the next leader may have cut that off: the offset tells
/// nothing about it.
#[must_use]
pub fn classify(
    error: i16,
    base_offset: Option<i64>,
    append_time: i64,
    log_start: Option<i64>,
) -> Outcome {
    match (error, base_offset) {
        (0, offset) => Outcome::Written(offset.map(|offset| Ack {
            offset,
            append_time,
            log_start,
        })),
        (DUPLICATE_SEQUENCE_NUMBER, _) => Outcome::Written(None),
        (OUT_OF_ORDER_SEQUENCE_NUMBER, _) => Outcome::OutOfOrder,
        (UNKNOWN_TOPIC_OR_PARTITION | NOT_LEADER_OR_FOLLOWER | UNKNOWN_TOPIC_ID, None)
        | (2 | 10 | NOT_ENOUGH_REPLICAS | 51, _) => Outcome::Failed(error),
        (17 | 18 | 21 | 29 | 31 | 32 | 43 | 44 | 47 | 48 | 49 | 52 | 53 | 76 | 87 | 120, _) => {
            Outcome::Refused(error)
        }
        (UNKNOWN_TOPIC_OR_PARTITION | NOT_LEADER_OR_FOLLOWER | UNKNOWN_TOPIC_ID, Some(_)) => {
            Outcome::Unknown { candidate: None }
        }
        (_, candidate) => Outcome::Unknown { candidate },
    }
}

/// The error that batches behind a failed one are answered with: one that
/// says "not written, try again" of them too.
pub(super) fn mirrored(code: i16) -> i16 {
    match code {
        UNKNOWN_TOPIC_OR_PARTITION | NOT_LEADER_OR_FOLLOWER | UNKNOWN_TOPIC_ID => code,
        _ => NOT_ENOUGH_REPLICAS,
    }
}
