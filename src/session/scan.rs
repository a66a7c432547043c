//! Looking for one batch in the log of its partition: what to ask the broker
//! next, and what its answers show. Pure.
//!
//! ```text
//!  where it may begin is known ──▶ read ──▶ read … up to the high watermark ──▶ where does the log end?
//!                                            read … up to that end ◀────────────────┘
//!  else: by its newest record's time ──▶ read … (finds, but proves no absence)
//! ```
//!
//! What stands above the high watermark a broker shows no consumer: batches
//! that wait for their replicas, and on a leader that was just elected much
//! that its predecessor acknowledged. It says where its log ends, though. So
//! that is asked before "absent" is said, and what stands below that end is
//! waited for: without all of it nothing is said but that it is too early.

use crate::ids::BatchId;
use crate::window::Ack;
use crate::wire::WireError;
use crate::wire::fetch::{self, Fetched, InLog, Listed};

/// Bytes that one answer is asked to have at most; a broker sends a batch that
/// is larger all the same.
pub(super) const FETCH_MAX: usize = 1024 * 1024;

/// What is known of the batch once the log was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// It stands below the high watermark.
    Found(Ack),
    /// It does not.
    Absent,
    /// The client may not read the topic.
    Refused,
    /// Time ran out before the log showed it or all that it may be among.
    Late,
    /// Another broker has the log.
    Elsewhere,
    /// The broker hung up.
    Cut,
    /// Nothing can be said of it.
    GaveUp,
}

/// What to ask the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// The first offset of a record of this time or newer.
    ByTime(i64),
    /// Records from this offset on, of at most so many bytes; at once, or as
    /// soon as there are any.
    From {
        offset: i64,
        bytes_max: usize,
        waits: bool,
    },
    /// The offset at which the log ends.
    End,
}

/// What comes after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Another question.
    Ask(Question),
    /// The end.
    Done(Finding),
}

/// A search for one batch.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    batch: BatchId,
    place: Place,
    /// Whether the batch cannot stand anywhere but where was looked.
    proves: bool,
    /// Bytes that may still be read.
    bytes_left: usize,
    /// Of the last answer.
    high_watermark: i64,
    /// Where the log ended when that was asked. What was written to it by then
    /// stands below.
    end: Option<i64>,
    /// How often a broker may still have no more to show.
    waits_left: u8,
}

/// More than a high watermark takes that moves, and an end for a broker that
/// answers without waiting.
const WAITS: u8 = 32;

#[derive(Clone, Copy, Debug)]
enum Place {
    Unknown { newest: i64 },
    From(i64),
}

impl Scan {
    /// A search from an offset on, where that is known, else from the time of
    /// the batch's newest record.
    pub(super) fn new(batch: BatchId, from: Option<i64>, newest: i64, bytes_left: usize) -> Self {
        Self {
            batch,
            place: from.map_or(Place::Unknown { newest }, Place::From),
            proves: from.is_some(),
            bytes_left,
            high_watermark: -1,
            end: None,
            waits_left: WAITS,
        }
    }

    /// What to ask first.
    pub(super) fn first(&self) -> Next {
        match self.place {
            // Times below 0 are none, and mean something else to ListOffsets.
            Place::Unknown { newest: ..0 } => Next::Done(Finding::GaveUp),
            Place::Unknown { newest } => Next::Ask(Question::ByTime(newest)),
            Place::From(offset) => self.read_from(offset),
        }
    }

    pub(super) fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// The answer to [`Question::ByTime`].
    pub(super) fn listed(&mut self, answer: Result<Listed, WireError>) -> Next {
        match answer {
            Ok(Listed { error: 0, offset }) => {
                let Some(offset) = offset else {
                    return Next::Done(Finding::GaveUp);
                };
                self.place = Place::From(offset);
                self.read_from(offset)
            }
            Ok(Listed { error, .. }) => Next::Done(failed(error)),
            Err(_) => Next::Done(Finding::GaveUp),
        }
    }

    /// The answer to [`Question::End`].
    pub(super) fn ended(&mut self, answer: Result<Listed, WireError>) -> Next {
        let (Ok(Listed { error, offset }), Place::From(at)) = (answer, self.place) else {
            return Next::Done(Finding::GaveUp);
        };
        match (error, offset) {
            (0, Some(end)) if end >= at => {
                self.end = offset;
                self.seen_up_to(at, end)
            }
            (0, _) => Next::Done(Finding::GaveUp),
            (LEADER_NOT_AVAILABLE | OFFSET_NOT_AVAILABLE, _) => self.wait_at(at),
            _ => Next::Done(failed(error)),
        }
    }

    /// All that is below `at` was looked at, of a log that ended at `end`.
    fn seen_up_to(&mut self, at: i64, end: i64) -> Next {
        if at < end {
            return self.wait_at(at);
        }
        Next::Done(if self.proves {
            Finding::Absent
        } else {
            Finding::GaveUp
        })
    }

    /// The answer to [`Question::From`].
    pub(super) fn fetched(&mut self, answer: Result<Fetched<'_>, WireError>) -> Next {
        let (Ok(fetched), Place::From(from)) = (answer, self.place) else {
            return Next::Done(Finding::GaveUp);
        };
        if fetched.error != 0 {
            return Next::Done(failed(fetched.error));
        }
        self.bytes_left = self.bytes_left.saturating_sub(fetched.records.len());
        let mut at = from;
        for batch in fetch::batches(fetched.records) {
            let Ok(batch) = batch else {
                return Next::Done(Finding::GaveUp);
            };
            if batch.end() > fetched.high_watermark {
                return Next::Done(Finding::GaveUp);
            }
            if self.is(&batch) {
                return Next::Done(Finding::Found(Ack {
                    offset: batch.base_offset,
                    append_time: batch.append_time.unwrap_or(NO_TIME),
                    log_start: None,
                }));
            }
            // What was compacted away may have been the one.
            self.proves &= batch.base_offset <= at;
            at = at.max(batch.end());
        }
        let nothing_new = at == from;
        self.place = Place::From(at);
        self.high_watermark = fetched.high_watermark;
        if at >= fetched.high_watermark {
            return match self.end {
                Some(end) => self.seen_up_to(at, end),
                None => Next::Ask(Question::End),
            };
        }
        if nothing_new {
            return Next::Done(Finding::GaveUp);
        }
        self.read_from(at)
    }

    /// Waits for the high watermark to move. Where that is below what is
    /// looked at, a broker would answer at once.
    fn wait_at(&mut self, at: i64) -> Next {
        let place = at.min(self.high_watermark);
        if place < 0 {
            return Next::Done(Finding::GaveUp);
        }
        if self.waits_left == 0 {
            return Next::Done(Finding::Late);
        }
        self.waits_left -= 1;
        self.place = Place::From(place);
        self.ask_from(place, true)
    }

    /// By its header, and not by its checksum: the broker's time and another
    /// compression change that.
    fn is(&self, there: &InLog) -> bool {
        there.producer == self.batch.producer.to_wire()
            && there.epoch == self.batch.epoch.0
            && there.first == self.batch.first.to_wire()
            && i64::from(there.last_offset_delta) + 1 == i64::from(self.batch.count)
    }

    fn read_from(&self, offset: i64) -> Next {
        self.ask_from(offset, false)
    }

    fn ask_from(&self, offset: i64, waits: bool) -> Next {
        match self.bytes_left {
            0 => Next::Done(Finding::GaveUp),
            left => Next::Ask(Question::From {
                offset,
                bytes_max: left.min(FETCH_MAX),
                waits,
            }),
        }
    }
}

const NO_TIME: i64 = -1;
/// What the older versions of ListOffsets call the next one.
const LEADER_NOT_AVAILABLE: i16 = 5;
const OFFSET_NOT_AVAILABLE: i16 = 78;

/// What an error of the broker says: whether it is one of who asks.
fn failed(error: i16) -> Finding {
    const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
    const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
    const SASL_AUTHENTICATION_FAILED: i16 = 58;
    const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    const KAFKA_STORAGE_ERROR: i16 = 56;
    const UNKNOWN_TOPIC_ID: i16 = 100;
    match error {
        TOPIC_AUTHORIZATION_FAILED | CLUSTER_AUTHORIZATION_FAILED | SASL_AUTHENTICATION_FAILED => {
            Finding::Refused
        }
        UNKNOWN_TOPIC_OR_PARTITION
        | NOT_LEADER_OR_FOLLOWER
        | KAFKA_STORAGE_ERROR
        | UNKNOWN_TOPIC_ID => Finding::Elsewhere,
        _ => Finding::GaveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, ProducerId, Sequence};

    const LEFT: usize = 8 * FETCH_MAX;

    /// Ten records of producer 7 from sequence 40 on.
    fn wanted() -> BatchId {
        BatchId {
            producer: ProducerId::from_wire(7).unwrap(),
            epoch: Epoch(2),
            first: Sequence::from_wire(40).unwrap(),
            count: 10,
            crc: 0xdead_beef,
            len: 100,
        }
    }

    /// A batch in the log: its offset, producer, first sequence and count.
    #[derive(Clone, Copy)]
    struct Logged(i64, i64, i32, i32);

    const OURS: Logged = Logged(120, 7, 40, 10);

    impl Logged {
        fn bytes(self) -> Vec<u8> {
            let Self(offset, producer, first, count) = self;
            let mut bytes = vec![0; 80];
            let mut put = |at: usize, value: &[u8]| {
                bytes[at..at + value.len()].copy_from_slice(value);
            };
            put(0, &offset.to_be_bytes());
            put(8, &68_i32.to_be_bytes());
            put(16, &[2]);
            put(23, &(count - 1).to_be_bytes());
            put(43, &producer.to_be_bytes());
            put(51, &2_i16.to_be_bytes());
            put(53, &first.to_be_bytes());
            bytes
        }
    }

    fn log(batches: &[Logged]) -> Vec<u8> {
        batches.iter().flat_map(|batch| batch.bytes()).collect()
    }

    fn read(scan: &mut Scan, high_watermark: i64, records: &[u8]) -> Next {
        scan.fetched(Ok(Fetched {
            error: 0,
            high_watermark,
            records,
        }))
    }

    /// One answer to a search from offset 110 on.
    fn check(high_watermark: i64, batches: &[Logged], expected: Next) {
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        let first = Question::From {
            offset: 110,
            bytes_max: FETCH_MAX,
            waits: false,
        };
        assert_eq!(scan.first(), Next::Ask(first));
        assert_eq!(read(&mut scan, high_watermark, &log(batches)), expected);
    }

    const OTHER: Logged = Logged(110, 8, 40, 10);
    const FOUND: Next = Next::Done(Finding::Found(Ack {
        offset: 120,
        append_time: -1,
        log_start: None,
    }));
    const ABSENT: Next = Next::Done(Finding::Absent);
    const END: Next = Next::Ask(Question::End);
    const GAVE_UP: Next = Next::Done(Finding::GaveUp);

    #[test]
    fn a_batch_is_found_by_producer_epoch_sequence_and_length() {
        check(130, &[OTHER, OURS], FOUND);
        check(500, &[OTHER, OURS], FOUND);
        for other in [
            Logged(120, 8, 40, 10),
            Logged(120, 7, 41, 10),
            Logged(120, 7, 40, 9),
        ] {
            let behind = Logged(120 + i64::from(other.3), 9, 0, 1);
            check(behind.0 + 1, &[OTHER, other, behind], END);
        }
    }

    #[test]
    fn the_time_of_the_broker_is_kept_where_the_topic_has_it() {
        let mut records = log(&[OURS]);
        records[22] |= 1 << 3;
        records[35..43].copy_from_slice(&99_i64.to_be_bytes());
        let mut scan = Scan::new(wanted(), Some(120), 0, LEFT);
        let Next::Done(Finding::Found(ack)) = read(&mut scan, 130, &records) else {
            panic!("not found")
        };
        assert_eq!(ack.append_time, 99);
    }

    /// Where the broker says that the log ends.
    fn end(scan: &mut Scan, offset: i64) -> Next {
        let offset = Some(offset);
        scan.ended(Ok(Listed { error: 0, offset }))
    }

    /// A search from offset 110 on that comes to the high watermark with the
    /// first answer, and to this with the end of the log.
    fn check_end(high_watermark: i64, batches: &[Logged], last: i64, expected: Next) {
        check(high_watermark, batches, END);
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        assert_eq!(read(&mut scan, high_watermark, &log(batches)), END);
        assert_eq!(end(&mut scan, last), expected);
    }

    #[test]
    fn nothing_up_to_the_end_of_the_log_is_absent() {
        check_end(120, &[OTHER], 120, ABSENT);
        check_end(110, &[], 110, ABSENT);
        let both = [Logged(105, 8, 0, 10), Logged(115, 8, 10, 6)];
        check_end(121, &both, 121, ABSENT);
    }

    #[test]
    fn a_hole_in_the_offsets_may_have_been_the_batch() {
        check_end(130, &[Logged(120, 8, 0, 10)], 130, GAVE_UP);
        let hole = [OTHER, Logged(121, 8, 0, 9)];
        check_end(130, &hole, 130, GAVE_UP);
        check(140, &[Logged(111, 8, 0, 9), OURS], FOUND);
    }

    #[test]
    fn what_lies_above_the_high_watermark_says_nothing() {
        check_end(109, &[], 109, GAVE_UP);
        check(129, &[OTHER, OURS], GAVE_UP);
    }

    #[test]
    fn what_came_meanwhile_is_read_too() {
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        assert_eq!(read(&mut scan, 120, &log(&[OTHER])), END);
        assert_eq!(end(&mut scan, 130), waiting(120));
        assert_eq!(read(&mut scan, 130, &log(&[OURS])), FOUND);
    }

    /// Written, but not yet on all replicas.
    #[test]
    fn what_stands_below_the_end_is_waited_for() {
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        assert_eq!(read(&mut scan, 120, &log(&[OTHER])), END);
        assert_eq!(end(&mut scan, 140), waiting(120));
        assert_eq!(read(&mut scan, 120, &[]), waiting(120));
        let mut other = scan.clone();
        assert_eq!(
            read(&mut scan, 130, &log(&[Logged(120, 9, 0, 10)])),
            waiting(130)
        );
        assert_eq!(
            read(&mut scan, 140, &log(&[Logged(130, 9, 10, 10)])),
            ABSENT
        );
        assert_eq!(read(&mut other, 140, &log(&[OURS])), FOUND);
    }

    /// The offset from which on a leader that does not yet know where its log
    /// ends is asked for what comes next.
    fn lagging(scan: &mut Scan, error: i16) -> Next {
        let offset = None;
        scan.ended(Ok(Listed { error, offset }))
    }

    fn waiting(offset: i64) -> Next {
        Next::Ask(Question::From {
            offset,
            bytes_max: FETCH_MAX,
            waits: true,
        })
    }

    #[test]
    fn a_leader_that_does_not_know_the_end_yet_is_waited_for() {
        for error in [5, 78] {
            let mut scan = Scan::new(wanted(), Some(120), 0, LEFT);
            assert_eq!(read(&mut scan, 120, &[]), END);
            assert_eq!(lagging(&mut scan, error), waiting(120));
            assert_eq!(read(&mut scan, 120, &[]), END);
            assert_eq!(lagging(&mut scan, error), waiting(120));
            assert_eq!(read(&mut scan, 130, &log(&[OURS])), FOUND);
        }
    }

    /// Its high watermark is below what was acknowledged before: there a
    /// question waits.
    #[test]
    fn it_waits_where_the_high_watermark_is() {
        let mut scan = Scan::new(wanted(), Some(120), 0, LEFT);
        assert_eq!(read(&mut scan, 110, &[]), END);
        assert_eq!(lagging(&mut scan, 5), waiting(110));
        assert_eq!(read(&mut scan, 130, &log(&[OTHER, OURS])), FOUND);
        let mut scan = Scan::new(wanted(), Some(120), 0, LEFT);
        assert_eq!(read(&mut scan, 110, &[]), END);
        assert_eq!(lagging(&mut scan, 5), waiting(110));
        assert_eq!(read(&mut scan, 120, &log(&[OTHER])), END);
        assert_eq!(end(&mut scan, 120), ABSENT);
    }

    #[test]
    fn it_does_not_wait_for_ever() {
        let mut scan = Scan::new(wanted(), Some(120), 0, LEFT);
        let waits = (0..1_000).find(|_| {
            assert_eq!(read(&mut scan, 120, &[]), END);
            lagging(&mut scan, 5) == Next::Done(Finding::Late)
        });
        assert!(waits.is_some());
        let mut scan = Scan::new(wanted(), Some(120), 0, LEFT);
        assert_eq!(read(&mut scan, 120, &[]), END);
        assert_eq!(end(&mut scan, 130), waiting(120));
        let mut reads = (0..1_000).map(|_| read(&mut scan, 120, &[]));
        assert!(reads.any(|next| next == Next::Done(Finding::Late)));
    }

    #[test]
    fn it_reads_on_behind_what_it_has_seen() {
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        let next = read(&mut scan, 130, &log(&[OTHER]));
        let question = Question::From {
            offset: 120,
            bytes_max: FETCH_MAX,
            waits: false,
        };
        assert_eq!(next, Next::Ask(question));
        // The last batch is often cut off.
        let cut = [log(&[OURS]), OTHER.bytes()[..70].to_vec()].concat();
        assert_eq!(read(&mut scan, 130, &cut), FOUND);
    }

    #[test]
    fn no_progress_is_the_end() {
        check(130, &[], GAVE_UP);
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        assert_eq!(read(&mut scan, 130, &OTHER.bytes()[..70]), GAVE_UP);
    }

    #[test]
    fn it_ends_when_it_has_read_enough() {
        let mut scan = Scan::new(wanted(), Some(110), 0, 100);
        let question = Question::From {
            offset: 120,
            bytes_max: 20,
            waits: false,
        };
        let next = read(&mut scan, 200, &log(&[OTHER]));
        assert_eq!(next, Next::Ask(question));
        assert_eq!(scan.bytes_left(), 20);
        assert_eq!(
            read(&mut scan, 200, &log(&[Logged(120, 8, 0, 10)])),
            GAVE_UP
        );
    }

    #[test]
    fn without_a_place_it_asks_by_time_and_proves_no_absence() {
        let mut scan = Scan::new(wanted(), None, 1_000, LEFT);
        assert_eq!(scan.first(), Next::Ask(Question::ByTime(1_000)));
        let answer = |offset| Ok(Listed { error: 0, offset });
        let question = Question::From {
            offset: 110,
            bytes_max: FETCH_MAX,
            waits: false,
        };
        assert_eq!(scan.listed(answer(Some(110))), Next::Ask(question));
        assert_eq!(read(&mut scan.clone(), 130, &log(&[OTHER, OURS])), FOUND);
        assert_eq!(read(&mut scan, 120, &log(&[OTHER])), END);
        assert_eq!(end(&mut scan, 120), GAVE_UP);
        let mut scan = Scan::new(wanted(), None, 1_000, LEFT);
        assert_eq!(scan.listed(answer(None)), GAVE_UP);
        let timeless = Scan::new(wanted(), None, -1, LEFT);
        assert_eq!(timeless.first(), GAVE_UP);
    }

    #[test]
    fn an_error_is_a_refusal_or_the_end() {
        for (error, finding) in [
            (29, Finding::Refused),
            (31, Finding::Refused),
            (58, Finding::Refused),
            (1, Finding::GaveUp),
            (6, Finding::Elsewhere),
            (3, Finding::Elsewhere),
            (56, Finding::Elsewhere),
            (100, Finding::Elsewhere),
        ] {
            let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
            let fetched = Fetched {
                error,
                high_watermark: -1,
                records: &[],
            };
            assert_eq!(scan.fetched(Ok(fetched)), Next::Done(finding));
            let mut scan = Scan::new(wanted(), None, 0, LEFT);
            let offset = None;
            let listed = scan.listed(Ok(Listed { error, offset }));
            assert_eq!(listed, Next::Done(finding));
            let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
            assert_eq!(read(&mut scan, 110, &[]), END);
            let ended = scan.ended(Ok(Listed { error, offset }));
            assert_eq!(ended, Next::Done(finding));
        }
        let mut scan = Scan::new(wanted(), Some(110), 0, LEFT);
        let garbled = WireError::Truncated { what: "it" };
        assert_eq!(scan.fetched(Err(garbled)), GAVE_UP);
    }
}
