//! One partition: its batches as bytes, and what it remembers of producers.
//!
//! The order of the checks is Kafka's: the batch itself, then whether it is a
//! repetition, then its epoch, then its sequence. Nothing of this is shared
//! with the proxy, which is measured against it.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};

use super::code;
use super::compression::{CODEC, ZSTD, is_plausible};

/// Batches of a producer that a repetition is recognised among.
const REMEMBERED: usize = 5;
/// Producers that a partition remembers; the one that wrote longest ago is
/// forgotten first, as Kafka forgets those that are idle.
const PRODUCERS_MAX: usize = 1000;
/// What a batch takes beside its bytes, or more.
const OVERHEAD: usize = 128;
/// The bytes before the records of a batch.
const HEAD: usize = 61;

/// What a topic's settings mean to its partitions.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) message_bytes_max: usize,
    pub(super) before_ms_max: i64,
    pub(super) after_ms_max: i64,
    pub(super) compacted: bool,
    pub(super) append_time: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            message_bytes_max: 1_048_588,
            before_ms_max: i64::MAX,
            after_ms_max: 3_600_000,
            compacted: false,
            append_time: false,
        }
    }
}

/// The log of a partition.
#[derive(Default)]
pub(super) struct Log {
    batches: VecDeque<Stored>,
    /// The first offset that can be read.
    start: i64,
    /// The offset of the next record.
    end: i64,
    producers: HashMap<i64, Producer>,
    appends: u64,
}

struct Stored {
    first: i64,
    last: i64,
    timestamp: i64,
    bytes: Bytes,
}

struct Producer {
    epoch: i16,
    /// Newest last, `1 <= len <= REMEMBERED`.
    recent: VecDeque<Recent>,
    appended: u64,
}

#[derive(Clone, Copy)]
struct Recent {
    first: i32,
    last: i32,
    offset: i64,
    timestamp: i64,
}

/// Where a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    pub(super) offset: i64,
    pub(super) append_time: i64,
    /// What its memory grew by: 0 for a repetition.
    pub(super) bytes: usize,
}

/// Why a batch is not appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) code: i16,
    /// Whether the log was looked at, so that the answer says where it starts.
    pub(super) with_start: bool,
}

impl Log {
    pub(super) fn start(&self) -> i64 {
        self.start
    }

    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// Appends the batch in `records`, unless it is there already or is wrong.
    pub(super) fn append(
        &mut self,
        records: &[u8],
        version: i16,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Ack, Refusal> {
        let batch = Batch::only(records, version)?;
        batch.check(rules, now_ms)?;
        let known = match batch.producer {
            -1 => None,
            id => self.producers.get(&id),
        };
        if let Some(known) = known {
            if let Some(again) = known.repetition(&batch) {
                return Ok(Ack {
                    offset: again.offset,
                    append_time: again.timestamp,
                    bytes: 0,
                });
            }
            known.follows(&batch).map_err(after_looking)?;
        } else if batch.epoch < -1 {
            return Err(after_looking(code::INVALID_PRODUCER_EPOCH));
        }
        Ok(self.write(&batch, rules, now_ms))
    }

    fn write(&mut self, batch: &Batch<'_>, rules: &Rules, now_ms: i64) -> Ack {
        let offset = self.end;
        let mut bytes = BytesMut::from(batch.bytes);
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        // The leader epoch: there is only one leader.
        bytes[12..16].copy_from_slice(&0_i32.to_be_bytes());
        let mut timestamp = batch.max_timestamp;
        if rules.append_time {
            timestamp = now_ms;
            let attributes = batch.attributes | APPEND_TIME;
            bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
            bytes[35..43].copy_from_slice(&now_ms.to_be_bytes());
            let crc = crc32c::crc32c(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        let last = offset + i64::from(batch.last_delta);
        self.end = last + 1;
        self.appends += 1;
        self.remember(batch, offset, timestamp);
        let size = bytes.len() + OVERHEAD;
        self.batches.push_back(Stored {
            first: offset,
            last,
            timestamp,
            bytes: bytes.freeze(),
        });
        Ack {
            offset,
            append_time: if rules.append_time { now_ms } else { -1 },
            bytes: size,
        }
    }

    fn remember(&mut self, batch: &Batch<'_>, offset: i64, timestamp: i64) {
        if batch.producer == -1 {
            return;
        }
        if self.producers.len() >= PRODUCERS_MAX && !self.producers.contains_key(&batch.producer) {
            let oldest = self
                .producers
                .iter()
                .min_by_key(|(_, known)| known.appended);
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.producers.remove(&id);
            }
        }
        let producer = self
            .producers
            .entry(batch.producer)
            .or_insert_with(|| Producer {
                epoch: batch.epoch,
                recent: VecDeque::new(),
                appended: 0,
            });
        if producer.epoch != batch.epoch {
            producer.epoch = batch.epoch;
            producer.recent.clear();
        }
        if producer.recent.len() == REMEMBERED {
            producer.recent.pop_front();
        }
        producer.recent.push_back(Recent {
            first: batch.sequence,
            last: batch.last_sequence(),
            offset,
            timestamp,
        });
        producer.appended = self.appends;
    }

    /// Forgets every producer, as Kafka does when the times of their records
    /// are older than `producer.id.expiration.ms`.
    pub(super) fn forget_producers(&mut self) {
        self.producers.clear();
    }

    /// Drops the oldest batch; gives the memory that it took.
    pub(super) fn drop_oldest(&mut self) -> usize {
        let Some(oldest) = self.batches.pop_front() else {
            return 0;
        };
        self.start = oldest.last + 1;
        oldest.bytes.len() + OVERHEAD
    }

    /// The batches from the one with `offset` on, as many as fit but at least
    /// one; `None` where there is no such offset.
    pub(super) fn read(&self, offset: i64, bytes_max: usize) -> Option<Vec<Bytes>> {
        if !(self.start..=self.end).contains(&offset) {
            return None;
        }
        let from = self.batches.partition_point(|batch| batch.last < offset);
        let mut left = bytes_max;
        let mut found = Vec::new();
        for batch in self.batches.range(from..) {
            if !found.is_empty() && batch.bytes.len() > left {
                break;
            }
            left = left.saturating_sub(batch.bytes.len());
            found.push(batch.bytes.clone());
        }
        Some(found)
    }

    /// The offset and time of the first batch that has a record this late.
    pub(super) fn offset_at(&self, timestamp: i64) -> Option<(i64, i64)> {
        let found = self.batches.iter().find(|b| b.timestamp >= timestamp);
        found.map(|batch| (batch.first, batch.timestamp))
    }

    /// The offset and time of the latest record.
    pub(super) fn latest(&self) -> Option<(i64, i64)> {
        let latest = self.batches.iter().rev().max_by_key(|b| b.timestamp);
        latest.map(|batch| (batch.last, batch.timestamp))
    }
}

impl Producer {
    fn repetition(&self, batch: &Batch<'_>) -> Option<Recent> {
        let range = (batch.sequence, batch.last_sequence());
        let mut recent = self.recent.iter();
        let found = recent.find(|r| (r.first, r.last) == range);
        found.filter(|_| self.epoch == batch.epoch).copied()
    }

    fn follows(&self, batch: &Batch<'_>) -> Result<(), i16> {
        if batch.epoch < self.epoch {
            return Err(code::INVALID_PRODUCER_EPOCH);
        }
        if self.epoch == -1 && batch.epoch == -1 {
            // No epoch at all: Kafka compares nothing.
            return Ok(());
        }
        let expected = match self.recent.back() {
            Some(newest) if batch.epoch == self.epoch => after(newest.last, 1),
            _ => 0,
        };
        if batch.sequence == expected {
            Ok(())
        } else {
            Err(code::OUT_OF_ORDER_SEQUENCE_NUMBER)
        }
    }
}

/// The sequence number `count` after another: 0 follows the greatest.
fn after(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

/// The fields of a record batch.
///
/// ```text
/// 0 base offset  8 length  12 leader epoch  16 magic  17 crc  21 attributes
/// 23 last offset delta  27 base timestamp  35 max timestamp  43 producer id
/// 51 epoch  53 base sequence  57 record count  61 records
/// ```
struct Batch<'a> {
    bytes: &'a [u8],
    attributes: i16,
    last_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer: i64,
    epoch: i16,
    sequence: i32,
    count: i32,
}

impl<'a> Batch<'a> {
    /// The one batch of a request's records; a stray part of another one after
    /// it is ignored, as by Kafka.
    fn only(records: &'a [u8], version: i16) -> Result<Self, Refusal> {
        let bytes = first(records)?.ok_or_else(|| unseen(code::INVALID_RECORD))?;
        if first(&records[bytes.len()..])?.is_some() {
            return Err(unseen(code::INVALID_RECORD));
        }
        match bytes.get(16) {
            Some(0 | 1) => return Err(unseen(code::INVALID_RECORD)),
            Some(2) if bytes.len() >= HEAD => {}
            _ => return Err(unseen(code::CORRUPT_MESSAGE)),
        }
        let batch = Self {
            bytes,
            attributes: i16::from_be_bytes(at(bytes, 21)),
            last_delta: i32::from_be_bytes(at(bytes, 23)),
            base_timestamp: i64::from_be_bytes(at(bytes, 27)),
            max_timestamp: i64::from_be_bytes(at(bytes, 35)),
            producer: i64::from_be_bytes(at(bytes, 43)),
            epoch: i16::from_be_bytes(at(bytes, 51)),
            sequence: i32::from_be_bytes(at(bytes, 53)),
            count: i32::from_be_bytes(at(bytes, 57)),
        };
        if batch.attributes & CODEC == ZSTD && version < 7 {
            return Err(unseen(code::UNSUPPORTED_COMPRESSION_TYPE));
        }
        if batch.attributes & TRANSACTIONAL != 0 {
            // Nothing opens a transaction here.
            return Err(after_looking(code::INVALID_TXN_STATE));
        }
        Ok(batch)
    }

    /// What Kafka checks before it looks at the producer.
    fn check(&self, rules: &Rules, now_ms: i64) -> Result<(), Refusal> {
        if i64::from_be_bytes(at(self.bytes, 0)) != 0 {
            return Err(after_looking(code::INVALID_RECORD));
        }
        if self.bytes.len() > rules.message_bytes_max {
            return Err(unseen(code::MESSAGE_TOO_LARGE));
        }
        let crc = u32::from_be_bytes(at(self.bytes, 17));
        if crc32c::crc32c(&self.bytes[21..]) != crc {
            return Err(unseen(code::CORRUPT_MESSAGE));
        }
        let whole = self.count > 0 && self.last_delta.checked_add(1) == Some(self.count);
        let numbered = self.producer == -1 || self.sequence >= 0;
        if !whole || !numbered || self.attributes & CONTROL != 0 {
            return Err(after_looking(code::INVALID_RECORD));
        }
        self.check_records(rules, now_ms).map_err(after_looking)
    }

    /// Each record, where they can be read: nothing here opens a compressed
    /// batch.
    fn check_records(&self, rules: &Rules, now_ms: i64) -> Result<(), i16> {
        let mut times = (self.base_timestamp, self.max_timestamp);
        let codec = self.attributes & CODEC;
        if codec == 0 {
            times = self.walk(rules)?;
        } else if !is_plausible(codec, &self.bytes[HEAD..]) {
            return Err(code::UNKNOWN_SERVER_ERROR);
        }
        let earliest = now_ms.saturating_sub(rules.before_ms_max);
        let latest = now_ms.saturating_add(rules.after_ms_max);
        if !rules.append_time && (times.0 < earliest || times.1 > latest) {
            return Err(code::INVALID_TIMESTAMP);
        }
        Ok(())
    }

    /// Walks the records; gives their first and last time.
    fn walk(&self, rules: &Rules) -> Result<(i64, i64), i16> {
        let mut rest = &self.bytes[HEAD..];
        let mut times = (i64::MAX, i64::MIN);
        for _ in 0..self.count {
            let record = Record::next(&mut rest).ok_or(code::INVALID_RECORD)?;
            if rules.compacted && !record.has_key {
                return Err(code::INVALID_RECORD);
            }
            let time = self.base_timestamp.saturating_add(record.timestamp_delta);
            times = (times.0.min(time), times.1.max(time));
        }
        match rest.len() {
            0 => Ok(times),
            _ => Err(code::INVALID_RECORD),
        }
    }

    fn last_sequence(&self) -> i32 {
        after(self.sequence, self.last_delta)
    }
}

/// What matters of a record.
struct Record {
    timestamp_delta: i64,
    has_key: bool,
}

impl Record {
    fn next(rest: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(varint(rest)?).ok()?;
        let (mut record, after) = rest.split_at_checked(length)?;
        *rest = after;
        record = record.get(1..)?;
        let timestamp_delta = varint(&mut record)?;
        varint(&mut record)?;
        let has_key = field(&mut record)?;
        field(&mut record)?;
        for _ in 0..varint(&mut record)? {
            field(&mut record)?;
            field(&mut record)?;
        }
        record.is_empty().then_some(Self {
            timestamp_delta,
            has_key,
        })
    }
}

/// Passes a length and as many bytes; whether they are not null.
fn field(rest: &mut &[u8]) -> Option<bool> {
    let length = varint(rest)?;
    if length == -1 {
        return Some(false);
    }
    *rest = rest.get(usize::try_from(length).ok()?..)?;
    Some(true)
}

/// A zigzag varint of up to 64 bits.
fn varint(rest: &mut &[u8]) -> Option<i64> {
    let mut raw = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        raw |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
        }
    }
    None
}

/// The first whole batch of `records`.
fn first(records: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    if records.len() < 12 {
        return Ok(None);
    }
    let length = i32::from_be_bytes(at(records, 8));
    // The least that a message of any format has.
    let length = usize::try_from(length).ok().filter(|length| *length >= 14);
    let Some(length) = length else {
        return Err(unseen(code::CORRUPT_MESSAGE));
    };
    Ok(records.get(..12 + length))
}

fn at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..at + N).and_then(|b| b.try_into().ok());
    field.expect("a batch has its head")
}

/// Refused by what the request says.
fn unseen(code: i16) -> Refusal {
    Refusal {
        code,
        with_start: false,
    }
}

/// Refused by what the log says, too.
fn after_looking(code: i16) -> Refusal {
    Refusal {
        code,
        with_start: true,
    }
}

const APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::indexmap::IndexMap;
    use kafka_protocol::records::{
        Compression, Record as Sent, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    };

    const NOW_MS: i64 = 1_700_000_000_000;

    fn batch(producer: i64, epoch: i16, sequence: i32, count: i32) -> Bytes {
        let records: Vec<_> = (0..count)
            .map(|at| Sent {
                transactional: false,
                control: false,
                delete_horizon: false,
                partition_leader_epoch: -1,
                producer_id: producer,
                producer_epoch: epoch,
                timestamp_type: TimestampType::Creation,
                offset: at.into(),
                sequence: sequence + at,
                timestamp: NOW_MS,
                key: None,
                value: Some("v".into()),
                headers: IndexMap::new(),
            })
            .collect();
        let options = RecordEncodeOptions {
            version: 2,
            compression: Compression::None,
        };
        let mut bytes = BytesMut::new();
        RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
        bytes.freeze()
    }

    fn append(log: &mut Log, records: &[u8]) -> Result<Ack, i16> {
        let ack = log.append(records, 12, &Rules::default(), NOW_MS);
        ack.map_err(|refusal| refusal.code)
    }

    fn offset(log: &mut Log, records: &[u8]) -> Result<i64, i16> {
        append(log, records).map(|ack| ack.offset)
    }

    #[test]
    fn a_batch_is_judged_as_by_kafka() {
        for (epoch, first, count, wanted) in [
            (3, 5, 5, Ok(5)),
            (3, 10, 1, Ok(10)),
            (3, 11, 1, Err(code::OUT_OF_ORDER_SEQUENCE_NUMBER)),
            (3, 5, 1, Err(code::OUT_OF_ORDER_SEQUENCE_NUMBER)),
            (3, 0, 1, Err(code::OUT_OF_ORDER_SEQUENCE_NUMBER)),
            (4, 0, 1, Ok(10)),
            (4, 10, 1, Err(code::OUT_OF_ORDER_SEQUENCE_NUMBER)),
            (2, 5, 5, Err(code::INVALID_PRODUCER_EPOCH)),
        ] {
            let mut log = Log::default();
            for first in [0, 5] {
                let written = offset(&mut log, &batch(1, 3, first, 5));
                assert_eq!(written, Ok(first.into()));
            }
            let found = offset(&mut log, &batch(1, epoch, first, count));
            assert_eq!(found, wanted, "epoch {epoch}, {first} and {count}");
        }
    }

    #[test]
    fn a_forgotten_producer_may_begin_anywhere() {
        let mut log = Log::default();
        assert_eq!(offset(&mut log, &batch(1, 0, 0, 1)), Ok(0));
        log.forget_producers();
        assert_eq!(offset(&mut log, &batch(1, 0, 0, 1)), Ok(1));
        assert_eq!(offset(&mut log, &batch(1, 0, 1, 1)), Ok(2));
    }

    #[test]
    fn the_producer_that_wrote_longest_ago_is_forgotten_first() {
        let mut log = Log::default();
        let last = i64::try_from(PRODUCERS_MAX).unwrap();
        for id in 0..last {
            append(&mut log, &batch(id, 0, 0, 1)).unwrap();
        }
        // The first one writes again, so that the second is the oldest.
        append(&mut log, &batch(0, 0, 1, 1)).unwrap();
        append(&mut log, &batch(last, 0, 0, 1)).unwrap();
        assert_eq!(log.producers.len(), PRODUCERS_MAX);
        assert_eq!(append(&mut log, &batch(0, 0, 1, 1)).unwrap().bytes, 0);
        assert!(append(&mut log, &batch(1, 0, 0, 1)).unwrap().bytes > 0);
    }

    #[test]
    fn the_brokers_time_is_in_the_batch_under_its_checksum() {
        let rules = Rules {
            append_time: true,
            ..Rules::default()
        };
        let mut log = Log::default();
        let sent = batch(1, 0, 0, 2);
        let first = log.append(&sent, 12, &rules, NOW_MS + 7).unwrap();
        assert_eq!(first.append_time, NOW_MS + 7);
        let again = log.append(&sent, 12, &rules, NOW_MS + 9).unwrap();
        assert_eq!(again.append_time, NOW_MS + 7, "a repetition");
        let stored = &log.read(0, 1 << 20).unwrap()[0];
        let crc = u32::from_be_bytes(at(stored, 17));
        assert_eq!(crc, crc32c::crc32c(&stored[21..]));
        assert_eq!(i64::from_be_bytes(at(stored, 35)), NOW_MS + 7);
        assert_eq!(i16::from_be_bytes(at(stored, 21)), APPEND_TIME);
    }

    #[test]
    fn reading_begins_with_the_batch_that_has_the_offset() {
        let mut log = Log::default();
        for sequence in [0, 3, 6] {
            append(&mut log, &batch(1, 0, sequence, 3)).unwrap();
        }
        let firsts = |log: &Log, offset, bytes_max| {
            let batches = log.read(offset, bytes_max)?;
            let firsts = batches.iter().map(|b| i64::from_be_bytes(at(b, 0)));
            Some(firsts.collect::<Vec<_>>())
        };
        assert_eq!(firsts(&log, 4, 1 << 20), Some(vec![3, 6]));
        assert_eq!(firsts(&log, 4, 1), Some(vec![3]), "one always fits");
        assert_eq!(firsts(&log, 9, 1 << 20), Some(vec![]), "the end");
        assert_eq!(firsts(&log, 10, 1 << 20), None);
        assert!(log.drop_oldest() > 0);
        assert_eq!(firsts(&log, 2, 1 << 20), None, "dropped");
        assert_eq!((log.start(), log.end()), (3, 9));
    }
}
