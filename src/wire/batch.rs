//! The 61-byte header of a record batch, magic 2.
//!
//! ```text
//!  0 base offset      8 | 35 max timestamp    8
//!  8 batch length     4 | 43 producer id      8
//! 12 leader epoch     4 | 51 producer epoch   2
//! 16 magic            1 | 53 base sequence    4
//! 17 crc of 21..      4 | 57 record count     4
//! 21 attributes       2 | 61 records
//! 23 last offset delta 4|
//! 27 base timestamp   8 | attributes: bit 4 transactional, bit 5 control
//! ```
//!
//! The batch length counts what follows it: the whole batch less 12 bytes.

use super::cursor::field;
use crate::ids::{BatchId, Epoch, ProducerId, Sequence};

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

const AFTER_LENGTH: usize = 12;
const MAGIC: u8 = 2;
const TRANSACTIONAL: u16 = 1 << 4;
const CONTROL: u16 = 1 << 5;

/// What the records are of which `head` is the first `min(61, records_len)` bytes.
#[inline]
pub fn batch(records_len: usize, head: &[u8]) -> Batch {
    if records_len == 0 {
        return Batch::Absent;
    }
    let Some(head) = head.first_chunk::<HEADER>() else {
        return Batch::Odd(Odd::Short);
    };
    if head[16] != MAGIC {
        return Batch::Odd(Odd::Magic);
    }
    let length = i32::from_be_bytes(field::<8, 4, HEADER>(head));
    if usize::try_from(length).ok() != records_len.checked_sub(AFTER_LENGTH) {
        return Batch::Odd(Odd::ManyBatches);
    }
    let attributes = u16::from_be_bytes(field::<21, 2, HEADER>(head));
    if attributes & CONTROL != 0 {
        return Batch::Odd(Odd::Control);
    }
    let records = i32::from_be_bytes(field::<57, 4, HEADER>(head));
    let Some(producer) = ProducerId::from_wire(i64::from_be_bytes(field::<43, 8, HEADER>(head)))
    else {
        let records = u32::try_from(records).unwrap_or(0);
        return Batch::Plain { records };
    };
    let Some(first) = Sequence::from_wire(i32::from_be_bytes(field::<53, 4, HEADER>(head))) else {
        return Batch::Odd(Odd::NegativeSequence);
    };
    let last_offset_delta = i32::from_be_bytes(field::<23, 4, HEADER>(head));
    let (Ok(count @ 1..), Ok(len)) = (u32::try_from(records), u32::try_from(records_len)) else {
        return Batch::Odd(Odd::CountMismatch);
    };
    if last_offset_delta.checked_add(1) != Some(records) {
        return Batch::Odd(Odd::CountMismatch);
    }
    Batch::Tracked(Tracked {
        id: BatchId {
            producer,
            epoch: Epoch(i16::from_be_bytes(field::<51, 2, HEADER>(head))),
            first,
            count,
            crc: u32::from_be_bytes(field::<17, 4, HEADER>(head)),
            len,
        },
        transactional: attributes & TRANSACTIONAL != 0,
        max_timestamp: i64::from_be_bytes(field::<35, 8, HEADER>(head)),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A batch of producer 7, epoch 2, with `records` records from sequence 40
    /// on, whose record bytes are not records.
    pub(in crate::wire) fn sample(records: i32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + 19];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(8, &68i32.to_be_bytes());
        put(16, &[2]);
        put(17, &0xdead_beef_u32.to_be_bytes());
        put(23, &(records - 1).to_be_bytes());
        put(35, &1_700_000_000_000i64.to_be_bytes());
        put(43, &7i64.to_be_bytes());
        put(51, &2i16.to_be_bytes());
        put(53, &40i32.to_be_bytes());
        put(57, &records.to_be_bytes());
        bytes
    }

    fn check(change: impl Fn(&mut Vec<u8>), expected: Batch) {
        let mut bytes = sample(3);
        change(&mut bytes);
        let head = &bytes[..bytes.len().min(HEADER)];
        assert_eq!(batch(bytes.len(), head), expected);
    }

    fn tracked(change: impl Fn(&mut Tracked)) -> Batch {
        let mut tracked = Tracked {
            id: BatchId {
                producer: ProducerId::from_wire(7).unwrap(),
                epoch: Epoch(2),
                first: Sequence::from_wire(40).unwrap(),
                count: 3,
                crc: 0xdead_beef,
                len: 80,
            },
            transactional: false,
            max_timestamp: 1_700_000_000_000,
        };
        change(&mut tracked);
        Batch::Tracked(tracked)
    }

    #[test]
    fn an_idempotent_batch_is_tracked() {
        check(|_| (), tracked(|_| ()));
        check(|b| b[22] = 1 << 4, tracked(|t| t.transactional = true));
        check(
            |b| b[51..53].fill(0xff),
            tracked(|t| t.id.epoch = Epoch(-1)),
        );
    }

    #[test]
    fn a_batch_without_a_producer_is_plain() {
        check(|b| b[43..51].fill(0xff), Batch::Plain { records: 3 });
    }

    #[test]
    fn what_the_broker_must_judge_is_odd() {
        check(|b| b[16] = 1, Batch::Odd(Odd::Magic));
        check(|b| b.push(0), Batch::Odd(Odd::ManyBatches));
        check(|b| b[11] += 1, Batch::Odd(Odd::ManyBatches));
        check(|b| b[8..12].fill(0xff), Batch::Odd(Odd::ManyBatches));
        check(|b| b[22] = 1 << 5, Batch::Odd(Odd::Control));
        check(|b| b[53..57].fill(0xff), Batch::Odd(Odd::NegativeSequence));
        check(|b| b[60] = 4, Batch::Odd(Odd::CountMismatch));
        check(|b| b[57..61].fill(0xff), Batch::Odd(Odd::CountMismatch));
        check(
            |b| b[23..27].copy_from_slice(&[0x7f, 255, 255, 255]),
            Batch::Odd(Odd::CountMismatch),
        );
        check(|b| b.truncate(60), Batch::Odd(Odd::Short));
        check(Vec::clear, Batch::Absent);
    }

    #[test]
    fn no_records_are_not_a_batch() {
        let mut none = sample(3);
        none[23..27].fill(0xff);
        none[57..61].fill(0);
        assert_eq!(
            batch(none.len(), &none[..HEADER]),
            Batch::Odd(Odd::CountMismatch)
        );
    }
}
