//! Reading a partition's log back: hapax's own Fetch and ListOffsets requests,
//! their responses, and the batches in them. Walked by hand.
//!
//! Two versions of Fetch are spoken: 4, the oldest that brokers of today have
//! and the last that all of them do, by name; and 13, the first with topic
//! ids, which every broker has that takes Produce by id.
//!
//! ```text
//! Fetch response      4                       13
//!                     correlation id   4      correlation id   4
//!                                             tags
//!                     throttle time    4      throttle time    4
//!                                             error 2, session 4
//!                     topics: count    4      topics: compact count
//!                       name                    id             16
//!                       partitions     4        partitions: compact count
//!                         index        4          index        4
//!                         error        2          error        2
//!                         high waterm. 8          high waterm. 8
//!                         last stable  8          last stable  8
//!                                                 log start    8
//!                         aborted      4+16n      aborted, compact (16, tags)
//!                                                 preferred    4
//!                         records      4+n        records, compact
//!                                                 tags
//!                                               tags
//!                                             tags
//! ```

use bytes::Bytes;

use super::batch::HEADER;
use super::cursor::{self, Cursor, field};
use super::produce::TopicRef;
use super::{WireError, api, header};

/// The version of Fetch that names topics.
pub const BY_NAME: i16 = 4;
/// The version of Fetch that gives their ids.
pub const BY_ID: i16 = 13;
/// The version of ListOffsets; the oldest that brokers of today have.
pub const LIST_OFFSETS: i16 = 1;

const CLIENT_ID: &[u8] = b"hapax";
/// Who is no replica.
const CONSUMER: i32 = -1;
/// Who is none either, and wants to know what replicas do (ListOffsets).
const DEBUGGER: i32 = -2;
const NO_SESSION: (i32, i32) = (0, -1);

/// The version of Fetch that refers to a topic in this way.
#[must_use]
pub fn version_for(topic: TopicRef<'_>) -> i16 {
    match topic {
        TopicRef::Name(_) => BY_NAME,
        TopicRef::Id(_) => BY_ID,
    }
}

/// What of a partition a Fetch request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The first offset.
    pub offset: i64,
    /// At most so many bytes, but one batch whatever its size.
    pub bytes_max: i32,
    /// How long to wait for the first byte.
    pub wait_ms: i32,
}

/// A whole Fetch request, length first, for what stands in one partition,
/// committed or not, outside of any session. `None` for a name that no topic
/// can have.
#[must_use]
pub fn request(
    correlation_id: i32,
    topic: TopicRef<'_>,
    partition: i32,
    wanted: Wanted,
) -> Option<Bytes> {
    let Wanted {
        offset,
        bytes_max,
        wait_ms,
    } = wanted;
    let version = version_for(topic);
    let flexible = version >= BY_ID;
    let mut out = head(api::FETCH, version, correlation_id);
    if flexible {
        out.push(0);
    }
    out.extend(CONSUMER.to_be_bytes());
    out.extend(wait_ms.to_be_bytes());
    out.extend(i32::from(wait_ms > 0).to_be_bytes()); // for one byte, or for none
    out.extend(bytes_max.to_be_bytes());
    out.push(0); // uncommitted records too
    if flexible {
        out.extend(NO_SESSION.0.to_be_bytes());
        out.extend(NO_SESSION.1.to_be_bytes());
    }
    cursor::put_count(&mut out, flexible, 1);
    match topic {
        TopicRef::Name(name) => cursor::put_string(&mut out, flexible, name, NAME).ok()?,
        TopicRef::Id(id) => out.extend(id),
    }
    cursor::put_count(&mut out, flexible, 1);
    out.extend(partition.to_be_bytes());
    if flexible {
        out.extend((-1_i32).to_be_bytes()); // of whatever leader epoch
    }
    out.extend(offset.to_be_bytes());
    if flexible {
        out.extend((-1_i32).to_be_bytes()); // nothing was fetched before
        out.extend((-1_i64).to_be_bytes()); // no log of its own
    }
    out.extend(bytes_max.to_be_bytes());
    if flexible {
        out.extend([0, 0]); // the tags of the partition and of the topic
        cursor::put_count(&mut out, true, 0); // nothing forgotten
        out.push(1); // no rack
        out.push(0);
    }
    Some(cursor::seal(out))
}

/// In the place of a time: the offset at which the log of the broker ends,
/// above the high watermark too. One that knows only what a consumer may read
/// says that; a leader whose high watermark has not yet come to where it began
/// to lead has no such offset, and answers LEADER_NOT_AVAILABLE.
pub const LATEST: i64 = -1;

/// A whole ListOffsets request, length first, for the first offset whose
/// record is of this time or newer, `0 <= timestamp`, or for [`LATEST`].
#[must_use]
pub fn list_request(
    correlation_id: i32,
    topic: &[u8],
    partition: i32,
    timestamp: i64,
) -> Option<Bytes> {
    let mut out = head(api::LIST_OFFSETS, LIST_OFFSETS, correlation_id);
    let asks = if timestamp == LATEST {
        DEBUGGER
    } else {
        CONSUMER
    };
    out.extend(asks.to_be_bytes());
    cursor::put_count(&mut out, false, 1);
    cursor::put_string(&mut out, false, topic, NAME).ok()?;
    cursor::put_count(&mut out, false, 1);
    out.extend(partition.to_be_bytes());
    out.extend(timestamp.to_be_bytes());
    Some(cursor::seal(out))
}

/// Four bytes for the length, then the header of a request.
pub(super) fn head(api_key: i16, version: i16, correlation_id: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend([0; 4]);
    out.extend(api_key.to_be_bytes());
    out.extend(version.to_be_bytes());
    out.extend(correlation_id.to_be_bytes());
    cursor::put_string(&mut out, false, CLIENT_ID, "a client id").expect("it is short");
    out
}

/// What a broker shows of the one partition that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched<'a> {
    /// 0 for success.
    pub error: i16,
    /// Where the records end that all in-sync replicas have.
    pub high_watermark: i64,
    /// Batches, of which the last may be cut off.
    pub records: &'a [u8],
}

/// Reads the response `frame` to [`request`].
pub fn fetched(version: i16, frame: &[u8]) -> Result<Fetched<'_>, WireError> {
    if version != BY_NAME && version != BY_ID {
        let api_key = api::FETCH;
        return Err(WireError::Unsupported { api_key, version });
    }
    let flexible = version >= BY_ID;
    let mut cursor = Cursor::starting(frame, header::response_body_at(api::FETCH, version, frame)?);
    cursor.int32("a throttle time")?;
    if flexible {
        let error = cursor.int16("an error code")?;
        cursor.int32("a session id")?;
        if error != 0 {
            return Ok(Fetched {
                error,
                high_watermark: -1,
                records: &[],
            });
        }
    }
    only_one(cursor.count(flexible, "topics")?, "the number of topics")?;
    if flexible {
        cursor.array::<16>("a topic id")?;
    } else {
        cursor.string(false, NAME)?;
    }
    let count = cursor.count(flexible, "partitions")?;
    only_one(count, "the number of partitions")?;
    let fetched = partition(&mut cursor, flexible)?;
    if flexible {
        cursor.tags()?;
        cursor.tags()?;
        cursor.tags()?;
    }
    cursor.end("a Fetch response")?;
    Ok(fetched)
}

fn partition<'a>(cursor: &mut Cursor<'a>, flexible: bool) -> Result<Fetched<'a>, WireError> {
    cursor.int32("a partition index")?;
    let error = cursor.int16("an error code")?;
    let high_watermark = cursor.int64("a high watermark")?;
    cursor.int64("a last stable offset")?;
    if flexible {
        cursor.int64("a log start offset")?;
    }
    for _ in 0..cursor.count(flexible, "aborted transactions")?.unwrap_or(0) {
        cursor.int64("a producer id")?;
        cursor.int64("a first offset")?;
        if flexible {
            cursor.tags()?;
        }
    }
    if flexible {
        cursor.int32("a preferred replica")?;
    }
    let len = cursor.count(flexible, "records")?.unwrap_or(0);
    Ok(Fetched {
        error,
        high_watermark,
        records: cursor.take(len, "records")?,
    })
}

/// What [`list_request`] was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// 0 for success.
    pub error: i16,
    /// The offset; `None` where no record is of that time or newer.
    pub offset: Option<i64>,
}

/// Reads the response `frame` to [`list_request`].
pub fn listed(frame: &[u8]) -> Result<Listed, WireError> {
    let mut cursor = Cursor::new(frame);
    cursor.int32("a correlation id")?;
    only_one(cursor.count(false, "topics")?, "the number of topics")?;
    cursor.string(false, NAME)?;
    let count = cursor.count(false, "partitions")?;
    only_one(count, "the number of partitions")?;
    cursor.int32("a partition index")?;
    let error = cursor.int16("an error code")?;
    cursor.int64("a timestamp")?;
    let offset = cursor.int64("an offset")?;
    cursor.end("a ListOffsets response")?;
    Ok(Listed {
        error,
        offset: (offset >= 0).then_some(offset),
    })
}

/// One was asked for, so that one is answered.
fn only_one(count: Option<usize>, what: &'static str) -> Result<(), WireError> {
    match count {
        Some(1) => Ok(()),
        count => Err(WireError::Malformed {
            what,
            value: count.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1),
        }),
    }
}

const NAME: &str = "a topic name";

/// The header of a batch in the log, magic 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InLog {
    /// The offset of its first record.
    pub base_offset: i64,
    /// How far behind that its last one stands, `0 <=`.
    pub last_offset_delta: i32,
    /// −1 where there is none.
    pub producer: i64,
    /// Of that producer.
    pub epoch: i16,
    /// Of the first record.
    pub first: i32,
    /// The broker's time, where the topic keeps that.
    pub append_time: Option<i64>,
}

impl InLog {
    /// The offset behind its last record.
    #[must_use]
    pub fn end(&self) -> i64 {
        let records = i64::from(self.last_offset_delta) + 1;
        self.base_offset.saturating_add(records)
    }
}

/// Cuts records into the headers of their batches; what is cut off at the end
/// is left out. Yields an error, and nothing after it, for what is no batch of
/// magic 2.
pub fn batches(records: &[u8]) -> impl Iterator<Item = Result<InLog, WireError>> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let next = next_batch(rest);
        rest = match &next {
            Ok(Some((_, after))) => after,
            Ok(None) | Err(_) => &[],
        };
        next.map(|next| next.map(|(batch, _)| batch)).transpose()
    })
}

const AFTER_LENGTH: usize = 12;
const MAGIC: u8 = 2;
const LOG_APPEND_TIME: u16 = 1 << 3;

/// The first batch of `records`, if all of it is there, and what follows it.
fn next_batch(records: &[u8]) -> Result<Option<(InLog, &[u8])>, WireError> {
    let Some(head) = records.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let [magic] = field::<16, 1, HEADER>(head);
    if magic != MAGIC {
        let value = i64::from(magic);
        let what = "the magic of a batch in the log";
        return Err(WireError::Malformed { what, value });
    }
    let length = i32::from_be_bytes(field::<8, 4, HEADER>(head));
    let whole = usize::try_from(length)
        .ok()
        .and_then(|length| length.checked_add(AFTER_LENGTH))
        .filter(|whole| *whole >= HEADER)
        .ok_or_else(|| WireError::Malformed {
            what: "the length of a batch in the log",
            value: length.into(),
        })?;
    let Some(after) = records.get(whole..) else {
        return Ok(None);
    };
    let last_offset_delta = i32::from_be_bytes(field::<23, 4, HEADER>(head));
    let base_offset = i64::from_be_bytes(field::<0, 8, HEADER>(head));
    if last_offset_delta < 0 || base_offset < 0 {
        return Err(WireError::Malformed {
            what: "the offsets of a batch in the log",
            value: base_offset.min(last_offset_delta.into()),
        });
    }
    let attributes = u16::from_be_bytes(field::<21, 2, HEADER>(head));
    let max_timestamp = i64::from_be_bytes(field::<35, 8, HEADER>(head));
    let batch = InLog {
        base_offset,
        last_offset_delta,
        producer: i64::from_be_bytes(field::<43, 8, HEADER>(head)),
        epoch: i16::from_be_bytes(field::<51, 2, HEADER>(head)),
        first: i32::from_be_bytes(field::<53, 4, HEADER>(head)),
        append_time: (attributes & LOG_APPEND_TIME != 0).then_some(max_timestamp),
    };
    Ok(Some((batch, after)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::batch::tests::sample;
    use crate::wire::testing::{decode_request, response, text, unframed};
    use crate::wire::{header, schema};
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
    };
    use kafka_protocol::messages::list_offsets_response::{
        ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    };
    use kafka_protocol::messages::{
        FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, TopicName,
    };
    use proptest::prelude::*;
    use std::ops::Range;

    const ID: [u8; 16] = [7; 16];

    fn topics() -> [TopicRef<'static>; 2] {
        [TopicRef::Name(b"orders"), TopicRef::Id(ID)]
    }

    fn wanted(offset: i64) -> Wanted {
        Wanted {
            offset,
            bytes_max: 1 << 20,
            wait_ms: 0,
        }
    }

    #[test]
    fn a_fetch_that_waits_waits_for_one_byte() {
        for topic in topics() {
            let wanted = Wanted {
                wait_ms: 100,
                ..wanted(7)
            };
            let whole = request(42, topic, 3, wanted).unwrap();
            let asked: FetchRequest =
                decode_request(api::FETCH, version_for(topic), unframed(&whole));
            assert_eq!((asked.max_wait_ms, asked.min_bytes), (100, 1));
        }
    }

    #[test]
    fn a_fetch_asks_for_one_partition_at_once_as_a_consumer() {
        for topic in topics() {
            let version = version_for(topic);
            let whole = request(42, topic, 3, wanted(1_000)).unwrap();
            let frame = unframed(&whole);
            let head = header::request_head(frame).unwrap();
            assert_eq!((head.api_key, head.api_version), (api::FETCH, version));
            assert_eq!(head.correlation_id, 42);
            let asked: FetchRequest = decode_request(api::FETCH, version, frame);
            assert_eq!((asked.max_wait_ms, asked.min_bytes), (0, 0));
            assert_eq!((asked.max_bytes, asked.isolation_level), (1 << 20, 0));
            assert_eq!(asked.replica_id.0, -1);
            assert_eq!((asked.session_id, asked.session_epoch), (0, -1));
            assert!(asked.forgotten_topics_data.is_empty() && asked.rack_id.is_empty());
            assert_eq!(asked.topics.len(), 1);
            match topic {
                TopicRef::Name(_) => assert_eq!(asked.topics[0].topic.0, text("orders")),
                TopicRef::Id(id) => assert_eq!(asked.topics[0].topic_id.into_bytes(), id),
            }
            let partitions = &asked.topics[0].partitions;
            assert_eq!(partitions.len(), 1);
            assert_eq!(
                (partitions[0].partition, partitions[0].fetch_offset),
                (3, 1_000)
            );
            assert_eq!(partitions[0].partition_max_bytes, 1 << 20);
            assert_eq!(partitions[0].current_leader_epoch, -1);
            assert_eq!(partitions[0].log_start_offset, -1);
            assert_eq!(partitions[0].last_fetched_epoch, -1);
        }
        let too_long = TopicRef::Name(&[b'x'; 40_000]);
        assert_eq!(request(1, too_long, 0, wanted(0)), None);
    }

    fn answer(version: i16, error: i16, records: &[u8]) -> Vec<u8> {
        let mut partition = PartitionData::default()
            .with_partition_index(3)
            .with_error_code(error)
            .with_high_watermark(2_000)
            .with_last_stable_offset(1_900)
            .with_aborted_transactions(Some(vec![
                AbortedTransaction::default().with_first_offset(5);
                2
            ]))
            .with_records(Some(Bytes::copy_from_slice(records)));
        let mut topic = FetchableTopicResponse::default();
        if version >= BY_ID {
            partition.log_start_offset = 17;
            partition.current_leader = LeaderIdAndEpoch::default().with_leader_id(2.into());
            topic.topic_id = uuid::Uuid::from_bytes(ID);
        } else {
            topic.topic = TopicName(text("orders"));
        }
        let topic = topic.with_partitions(vec![partition]);
        let body = FetchResponse::default()
            .with_throttle_time_ms(3)
            .with_responses(vec![topic]);
        response(api::FETCH, version, &body)
    }

    #[test]
    fn an_answer_is_what_the_crate_wrote() {
        for version in [BY_NAME, BY_ID] {
            let frame = answer(version, 0, b"records");
            let expected = Fetched {
                error: 0,
                high_watermark: 2_000,
                records: b"records",
            };
            assert_eq!(fetched(version, &frame), Ok(expected));
            assert_eq!(
                fetched(version, &answer(version, 29, b"")).unwrap().error,
                29
            );
            for end in 0..frame.len() {
                assert!(fetched(version, &frame[..end]).is_err(), "{version} {end}");
            }
            let longer = [&frame[..], &[0]].concat();
            assert!(fetched(version, &longer).is_err());
        }
        assert!(fetched(5, &answer(BY_NAME, 0, b"")).is_err());
    }

    #[test]
    fn an_error_of_the_whole_answer_is_one_of_the_partition() {
        let body = FetchResponse::default().with_error_code(35);
        let frame = response(api::FETCH, BY_ID, &body);
        assert_eq!(fetched(BY_ID, &frame).unwrap().error, 35);
        let nothing = response(api::FETCH, BY_NAME, &FetchResponse::default());
        assert!(fetched(BY_NAME, &nothing).is_err(), "no partition");
    }

    /// The table of `schema`, which `tests/schemas.rs` holds to Kafka's own.
    #[test]
    fn an_answer_has_the_layout_of_the_schema() {
        struct Found {
            ints: Vec<(&'static str, i64)>,
        }
        impl<'a> schema::Visitor<'a> for Found {
            fn leaf(
                &mut self,
                field: &'static schema::Field,
                _at: Range<usize>,
                value: schema::Value<'a>,
            ) -> Result<(), WireError> {
                if let schema::Value::Int(value) = value {
                    self.ints.push((field.name, value));
                }
                Ok(())
            }
        }
        let mut tables = schema::ADDRESSED.iter();
        let table = tables.find(|table| table.api_key == api::FETCH).unwrap();
        for version in [BY_NAME, BY_ID] {
            let frame = answer(version, 9, b"some records");
            let at = header::response_body_at(api::FETCH, version, &frame).unwrap();
            let mut found = Found { ints: Vec::new() };
            schema::walk(table, version, &frame, at, &mut found).unwrap();
            let last = |name| found.ints.iter().rev().find(|(n, _)| *n == name).unwrap().1;
            let ours = fetched(version, &frame).unwrap();
            assert_eq!(i64::from(ours.error), last("ErrorCode"));
            assert_eq!(ours.high_watermark, last("HighWatermark"));
        }
    }

    #[test]
    fn an_offset_is_asked_for_by_time() {
        let whole = list_request(42, b"orders", 3, 1_700_000_000_000).unwrap();
        let frame = unframed(&whole);
        let asked: ListOffsetsRequest = decode_request(api::LIST_OFFSETS, LIST_OFFSETS, frame);
        assert_eq!((asked.replica_id.0, asked.topics.len()), (-1, 1));
        assert_eq!(asked.topics[0].name.0, text("orders"));
        let partitions = &asked.topics[0].partitions;
        assert_eq!(partitions.len(), 1);
        assert_eq!(partitions[0].partition_index, 3);
        assert_eq!(partitions[0].timestamp, 1_700_000_000_000);
        for (offset, expected) in [(70, Some(70)), (-1, None)] {
            let partition = ListOffsetsPartitionResponse::default()
                .with_partition_index(3)
                .with_error_code(29)
                .with_offset(offset);
            let topic = ListOffsetsTopicResponse::default()
                .with_name(TopicName(text("orders")))
                .with_partitions(vec![partition]);
            let body = ListOffsetsResponse::default().with_topics(vec![topic]);
            let frame = response(api::LIST_OFFSETS, LIST_OFFSETS, &body);
            let expected = Listed {
                error: 29,
                offset: expected,
            };
            assert_eq!(listed(&frame), Ok(expected));
            for end in 0..frame.len() {
                assert!(listed(&frame[..end]).is_err());
            }
        }
    }

    /// The sample batch at an offset.
    fn in_log(offset: i64, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut batch = sample(3);
        batch[..8].copy_from_slice(&offset.to_be_bytes());
        change(&mut batch);
        batch
    }

    #[test]
    fn records_are_cut_into_headers_and_a_cut_off_batch_is_left_out() {
        let logged = in_log(100, |batch| batch[22] = 1 << 3);
        let all = [in_log(97, |_| ()), logged.clone(), logged.clone()].concat();
        let expected = InLog {
            base_offset: 97,
            last_offset_delta: 2,
            producer: 7,
            epoch: 2,
            first: 40,
            append_time: None,
        };
        let second = InLog {
            base_offset: 100,
            append_time: Some(1_700_000_000_000),
            ..expected
        };
        assert_eq!((expected.end(), second.end()), (100, 103));
        let whole = |records: &[u8]| -> Vec<InLog> { batches(records).flatten().collect() };
        assert_eq!(whole(&all), [expected, second, second]);
        for end in 2 * logged.len()..all.len() {
            assert_eq!(whole(&all[..end]), [expected, second], "{end}");
        }
        assert_eq!(whole(&[]), []);
    }

    #[test]
    fn what_is_no_batch_ends_the_walk() {
        let good = in_log(97, |_| ());
        for change in [
            (|b: &mut Vec<u8>| b[16] = 1) as fn(&mut Vec<u8>),
            |b| b[8..12].fill(0xff),
            |b| b[8..12].copy_from_slice(&48_i32.to_be_bytes()),
            |b| b[23..27].fill(0xff),
            |b| b[..8].fill(0xff),
        ] {
            let all = [good.clone(), in_log(100, change), good.clone()].concat();
            let walked: Vec<_> = batches(&all).collect();
            assert_eq!(walked.len(), 2);
            assert!(walked[0].is_ok() && walked[1].is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            version in prop_oneof![Just(BY_NAME), Just(BY_ID), any::<i16>()],
        ) {
            let _ = fetched(version, &bytes);
            let _ = listed(&bytes);
            prop_assert!(batches(&bytes).count() <= 300 / HEADER + 1);
        }

        #[test]
        fn a_garbled_answer_never_makes_it_panic(
            at in 0..150_usize, byte in any::<u8>(), version in prop_oneof![Just(BY_NAME), Just(BY_ID)],
        ) {
            let mut frame = answer(version, 0, &in_log(97, |_| ()));
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
            if let Ok(fetched) = fetched(version, &frame) {
                let _ = batches(fetched.records).count();
            }
        }
    }
}
