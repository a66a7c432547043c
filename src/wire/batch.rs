//! The 61-byte header of a record batch, magic 2.

use crate::ids::BatchId;

/// Bytes of a batch before its records.
pub const HEADER: usize = 61;

/// What the records of one partition are, by their first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// Null or empty records.
    Absent,
    /// A batch without a producer id.
    Plain {
        /// How many records it says it has.
        records: u32,
    },
    /// A batch that a window can judge.
    Tracked(Tracked),
    /// Anything else: forwarded, the broker judges (SEMANTICS.md 7.3 row 0).
    Odd(Odd),
}

/// An idempotent or transactional batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// What identifies it.
    pub id: BatchId,
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    /// The newest timestamp of its records, by its header.
    pub max_timestamp: i64,
}

/// Why a batch is not judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Odd {
    /// Not magic 2.
    Magic,
    /// More than one batch, or bytes after it.
    ManyBatches,
    /// A control batch.
    Control,
    /// A producer id with a negative sequence.
    NegativeSequence,
    /// The record count is below one or does not match the last offset delta.
    CountMismatch,
    /// Fewer bytes than a header.
    Short,
}

/// What the records are of which `head` is the first `min(61, records_len)` bytes.
pub fn batch(_records_len: usize, _head: &[u8]) -> Batch {
    todo!()
}
