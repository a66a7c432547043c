//! Produce requests and responses, walked by hand: the hot path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use super::batch::{self, Batch, Odd};
use super::cursor::{self, Cursor, Splice, field};
use super::frame;
use super::schema::{self, Field, Role, Value, Visitor};
use super::{WireError, api, header};

/// The newest version that is walked.
pub const NEWEST: i16 = 13;
/// The oldest version with record batches. Of older requests nothing can be
/// followed: they are walked to be counted, and their answers pass unread.
pub const OLDEST_FOLLOWED: i16 = 3;

/// Topics and partitions of one request: many times what one broker leads, and
/// few enough to be looked at at once. Each may be as short as eight bytes.
pub const PARTS_MAX: usize = 50_000;

const FLEXIBLE: i16 = 9;
const TOPIC_IDS: i16 = 13;

/// A topic as a message refers to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TopicRef<'a> {
    /// By name, up to version 12. Not checked to be UTF-8.
    Name(&'a [u8]),
    /// By id, from version 13 on.
    Id([u8; 16]),
}

impl TopicRef<'_> {
    /// A copy that outlives the message.
    pub fn to_topic(self) -> Topic {
        match self {
            Self::Name(name) => Topic::Name(Bytes::copy_from_slice(name)),
            Self::Id(id) => Topic::Id(id),
        }
    }
}

/// A topic that outlives the message that named it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Topic {
    /// By name.
    Name(Bytes),
    /// By id.
    Id([u8; 16]),
}

impl Topic {
    /// A reference to it.
    pub fn as_ref(&self) -> TopicRef<'_> {
        match self {
            Self::Name(name) => TopicRef::Name(name),
            Self::Id(id) => TopicRef::Id(*id),
        }
    }
}

/// What a request says before its topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front<'a> {
    /// Not checked to be UTF-8.
    pub transactional_id: Option<&'a [u8]>,
    /// 0, 1 or −1.
    pub acks: i16,
    /// How long the broker may wait for its replicas.
    pub timeout_ms: i32,
    /// How many topics follow.
    pub topics: usize,
}

/// Who is told what a [`Walk`] finds.
pub trait Sink {
    /// The request begins.
    fn front(&mut self, _front: Front<'_>) {}
    /// A topic begins.
    fn topic(&mut self, _topic: TopicRef<'_>, _partitions: usize) {}
    /// A partition of the last topic; its records follow after the batch header.
    fn partition(&mut self, _index: i32, _batch: Batch) {}
}

/// A walk over the body of a request whose bytes arrive in pieces.
///
/// ```text
/// Front -> Topic -> Partition -> (records) -> PartitionTail -> TopicTail -> Tail -> Done
///            ^         ^------------------------|                |
///            |---------------------------------------------------|
/// ```
///
/// An element is consumed whole or not at all, records excepted: after their
/// batch header they are only counted.
#[derive(Clone, Debug)]
pub struct Walk {
    version: i16,
    stage: Stage,
    topics: usize,
    partitions: usize,
    skip: usize,
    /// Topics and partitions so far, `met <= PARTS_MAX`.
    met: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Front,
    Topic,
    Partition,
    PartitionTail,
    TopicTail,
    Tail,
    Done,
}

impl Walk {
    /// A walk at the beginning of a body, `0 <= version <= NEWEST`;
    /// any other version is refused at the first step.
    pub fn new(version: i16) -> Self {
        Self {
            version,
            stage: Stage::Front,
            topics: 0,
            partitions: 0,
            skip: 0,
            met: 0,
        }
    }

    /// Consumes whole elements of `bytes` and record bytes; returns how many
    /// bytes were consumed. The next call's bytes begin after those. Bytes after
    /// the end of the body are not consumed.
    #[inline]
    pub fn advance(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<usize, WireError> {
        let mut cursor = Cursor::new(bytes);
        loop {
            let passed = self.skip.min(cursor.left());
            self.skip -= passed;
            cursor.pass(passed);
            while self.skip == 0 && self.empty_tail(&mut cursor) {}
            if self.skip > 0 || self.stage == Stage::Done {
                return Ok(cursor.at());
            }
            let mut ahead = cursor;
            match self.step(&mut ahead, sink) {
                Ok(()) => cursor = ahead,
                Err(WireError::Truncated { .. }) => return Ok(cursor.at()),
                Err(error) => return Err(error),
            }
        }
    }

    /// One element; changes nothing of `self` unless it is whole.
    #[inline]
    fn step(&mut self, cursor: &mut Cursor<'_>, sink: &mut impl Sink) -> Result<(), WireError> {
        let flexible = self.version >= FLEXIBLE;
        match self.stage {
            Stage::Front => {
                check_version(self.version, 0)?;
                let transactional_id = match self.version {
                    ..OLDEST_FOLLOWED => None,
                    _ => cursor.string(flexible, "a transactional id")?,
                };
                let acks = cursor.int16("acks")?;
                let timeout_ms = cursor.int32("a timeout")?;
                let topics = cursor.count(flexible, "topics")?.unwrap_or(0);
                sink.front(Front {
                    transactional_id,
                    acks,
                    timeout_ms,
                    topics,
                });
                self.topics = topics;
                self.stage = self.next_topic();
            }
            Stage::Topic => {
                self.may_meet()?;
                let topic = topic(cursor, self.version)?;
                let partitions = cursor.count(flexible, "partitions")?.unwrap_or(0);
                sink.topic(topic, partitions);
                self.topics -= 1;
                self.met += 1;
                self.partitions = partitions;
                self.stage = self.next_partition();
            }
            Stage::Partition => {
                self.may_meet()?;
                let index = cursor.int32("a partition index")?;
                let len = cursor.count(flexible, "records")?.unwrap_or(0);
                let head = cursor.take(len.min(batch::HEADER), "a batch header")?;
                sink.partition(index, self.batch(len, head));
                self.partitions -= 1;
                self.met += 1;
                self.skip = len - head.len();
                self.stage = Stage::PartitionTail;
            }
            Stage::PartitionTail | Stage::TopicTail | Stage::Tail => {
                cursor.tags()?;
                self.stage = self.after_tail();
            }
            Stage::Done => {}
        }
        Ok(())
    }

    /// Whether one more topic or partition may come.
    fn may_meet(&self) -> Result<(), WireError> {
        if self.met < PARTS_MAX {
            return Ok(());
        }
        let what = "the number of topics and partitions in a produce request";
        let value = i64::try_from(self.met + 1).unwrap_or(i64::MAX);
        Err(WireError::Malformed { what, value })
    }

    /// Before version 3 there are no sequences, whatever the bytes look like.
    fn batch(&self, len: usize, head: &[u8]) -> Batch {
        match batch::batch(len, head) {
            Batch::Tracked(_) if self.version < OLDEST_FOLLOWED => Batch::Odd(Odd::Magic),
            batch => batch,
        }
    }

    /// Passes a tail without tags, which nearly all of them are and which those
    /// of older versions do not even show. Returns whether there was one.
    #[inline(always)]
    fn empty_tail(&mut self, cursor: &mut Cursor<'_>) -> bool {
        let in_tail = matches!(
            self.stage,
            Stage::PartitionTail | Stage::TopicTail | Stage::Tail
        );
        let passes = in_tail && (self.version < FLEXIBLE || cursor.no_tags());
        if passes {
            self.stage = self.after_tail();
        }
        passes
    }

    #[inline(always)]
    fn after_tail(&self) -> Stage {
        match self.stage {
            Stage::PartitionTail => self.next_partition(),
            Stage::TopicTail => self.next_topic(),
            _ => Stage::Done,
        }
    }

    fn next_topic(&self) -> Stage {
        if self.topics == 0 {
            Stage::Tail
        } else {
            Stage::Topic
        }
    }

    fn next_partition(&self) -> Stage {
        if self.partitions == 0 {
            Stage::TopicTail
        } else {
            Stage::Partition
        }
    }

    /// Whether the body has ended.
    pub fn done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Record bytes still to pass before the next element; `advance` consumes them.
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// `bytes` of those have passed elsewhere, `bytes <= self.skip()`.
    pub fn skipped(&mut self, bytes: usize) {
        self.skip -= bytes;
    }
}

pub(super) fn check_version(version: i16, oldest: i16) -> Result<(), WireError> {
    if (oldest..=NEWEST).contains(&version) {
        return Ok(());
    }
    Err(WireError::Unsupported {
        api_key: api::PRODUCE,
        version,
    })
}

#[inline(always)]
fn topic<'a>(cursor: &mut Cursor<'a>, version: i16) -> Result<TopicRef<'a>, WireError> {
    if version >= TOPIC_IDS {
        return cursor.array("a topic id").map(TopicRef::Id);
    }
    let name = cursor.string(version >= FLEXIBLE, "a topic name")?;
    name.map(TopicRef::Name).ok_or(NO_NAME)
}

const NO_NAME: WireError = WireError::Malformed {
    what: "the length of a topic name",
    value: -1,
};

/// The broker's answer for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionReply<'a> {
    /// Its topic.
    pub topic: TopicRef<'a>,
    /// Its index.
    pub partition: i32,
    /// 0 for success.
    pub error: i16,
    /// The offset of the first record, `0 <=`.
    pub base_offset: Option<i64>,
    /// −1 unless the topic stamps the time of appending.
    pub log_append_time: i64,
    /// The first offset of the log, from version 5 on.
    pub log_start_offset: Option<i64>,
}

/// Calls `f` for each partition that a response frame answers; returns whether
/// it carries node endpoints.
#[inline]
pub fn replies<'a>(
    version: i16,
    frame: &'a [u8],
    mut f: impl FnMut(PartitionReply<'a>),
) -> Result<bool, WireError> {
    each_reply(version, frame, |reply, _| f(reply))
}

/// The same, with where each partition's answer stands in the frame.
#[inline]
fn each_reply<'a>(
    version: i16,
    frame: &'a [u8],
    mut f: impl FnMut(PartitionReply<'a>, Range<usize>),
) -> Result<bool, WireError> {
    check_version(version, OLDEST_FOLLOWED)?;
    let flexible = version >= FLEXIBLE;
    let mut cursor = Cursor::starting(
        frame,
        header::response_body_at(api::PRODUCE, version, frame)?,
    );
    for _ in 0..cursor.count(flexible, "topics")?.unwrap_or(0) {
        let topic = topic(&mut cursor, version)?;
        for _ in 0..cursor.count(flexible, "partitions")?.unwrap_or(0) {
            let at = cursor.at();
            let reply = reply(&mut cursor, version, topic)?;
            f(reply, at..cursor.at());
        }
        if flexible {
            cursor.tags()?;
        }
    }
    cursor.int32("a throttle time")?;
    let mut endpoints = false;
    if flexible {
        for _ in 0..cursor.varint("a tag count")? {
            let (tag, content) = cursor.tag()?;
            if tag == NODE_ENDPOINTS && version >= LEADERS {
                let count = Cursor::new(content).count(true, "node endpoints")?;
                endpoints = count.is_some_and(|count| count > 0);
            }
        }
    }
    cursor.end("a Produce response")?;
    Ok(endpoints)
}

const THROTTLE_TIME: i16 = 1;
const APPEND_TIME: i16 = 2;
const LOG_START: i16 = 5;
const RECORD_ERRORS: i16 = 8;
const LEADERS: i16 = 10;
const NODE_ENDPOINTS: u32 = 0;

/// The usual answer from version 9 on, which says nothing in words:
///
/// ```text
///  0 index           4 | 14 append time      8 | 30 record errors   1
///  4 error           2 | 22 log start        8 | 31 error message   1
///  6 base offset     8 |                       | 32 tags            1
/// ```
const WORDLESS: usize = 33;

#[inline(always)]
fn wordless<'a>(
    cursor: &mut Cursor<'a>,
    version: i16,
    topic: TopicRef<'a>,
) -> Option<PartitionReply<'a>> {
    let bytes = cursor.ahead::<WORDLESS>()?;
    let words = field::<30, 3, WORDLESS>(bytes);
    if version < FLEXIBLE || !matches!(words, [0 | 1, 0, 0]) {
        return None;
    }
    let reply = PartitionReply {
        topic,
        partition: i32::from_be_bytes(field::<0, 4, WORDLESS>(bytes)),
        error: i16::from_be_bytes(field::<4, 2, WORDLESS>(bytes)),
        base_offset: offset(i64::from_be_bytes(field::<6, 8, WORDLESS>(bytes))),
        log_append_time: i64::from_be_bytes(field::<14, 8, WORDLESS>(bytes)),
        log_start_offset: offset(i64::from_be_bytes(field::<22, 8, WORDLESS>(bytes))),
    };
    cursor.pass(WORDLESS);
    Some(reply)
}

fn reply<'a>(
    cursor: &mut Cursor<'a>,
    version: i16,
    topic: TopicRef<'a>,
) -> Result<PartitionReply<'a>, WireError> {
    if let Some(reply) = wordless(cursor, version, topic) {
        return Ok(reply);
    }
    let flexible = version >= FLEXIBLE;
    let partition = cursor.int32("a partition index")?;
    let reply = PartitionReply {
        topic,
        partition,
        error: cursor.int16("an error code")?,
        base_offset: offset(cursor.int64("a base offset")?),
        log_append_time: cursor.int64("a log append time")?,
        log_start_offset: if version >= LOG_START {
            offset(cursor.int64("a log start offset")?)
        } else {
            None
        },
    };
    if version >= RECORD_ERRORS {
        for _ in 0..cursor.count(flexible, "record errors")?.unwrap_or(0) {
            cursor.int32("a batch index")?;
            cursor.string(flexible, "a record error")?;
            if flexible {
                cursor.tags()?;
            }
        }
        cursor.string(flexible, "an error message")?;
    }
    if flexible {
        cursor.tags()?;
    }
    Ok(reply)
}

/// The response `frame` with success at `found`'s offset and append time for
/// the partitions that it names one for; whole, length first.
pub fn acknowledge(
    version: i16,
    frame: &[u8],
    mut found: impl FnMut(TopicRef<'_>, i32) -> Option<(i64, i64)>,
) -> Result<Bytes, WireError> {
    let mut splice = Splice::new(frame);
    each_reply(version, frame, |reply, range| {
        let Some((offset, append_time)) = found(reply.topic, reply.partition) else {
            return;
        };
        let answer = Answer {
            topic: reply.topic.to_topic(),
            partition: reply.partition,
            error: 0,
            base_offset: Some(offset),
            log_append_time: append_time,
            log_start_offset: reply.log_start_offset,
            message: None,
        };
        put_partition(splice.replace(range), version, &answer);
    })?;
    let whole = splice.finish();
    Ok(whole.unwrap_or_else(|| frame::with_length(frame).into()))
}

fn offset(raw: i64) -> Option<i64> {
    (raw >= 0).then_some(raw)
}

/// An answer for one partition that hapax gives itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its topic, of the kind that the version writes.
    pub topic: Topic,
    /// Its index.
    pub partition: i32,
    /// 0 for success.
    pub error: i16,
    /// The offset of the first record.
    pub base_offset: Option<i64>,
    /// −1 unless the topic stamps the time of appending.
    pub log_append_time: i64,
    /// The first offset of the log.
    pub log_start_offset: Option<i64>,
    /// What the client is told beside the error; versions before 8 have no
    /// place for it.
    pub message: Option<Cow<'static, str>>,
}

/// A whole response, length first, that gives `answers`, `version <= NEWEST`.
pub fn answer(version: i16, correlation_id: i32, answers: &[Answer]) -> Bytes {
    let flexible = version >= FLEXIBLE;
    let mut out = Vec::with_capacity(32 + 64 * answers.len());
    out.extend([0; 4]);
    out.extend(correlation_id.to_be_bytes());
    put_no_tags(&mut out, flexible);
    let groups = by_topic(answers);
    cursor::put_count(&mut out, flexible, groups.len());
    for group in &groups {
        put_topic(&mut out, version, group);
    }
    if version >= THROTTLE_TIME {
        out.extend(0i32.to_be_bytes());
    }
    put_no_tags(&mut out, flexible);
    cursor::seal(out)
}

/// Answers by topic, topics in the order of their first answer: a client keeps
/// them in a map and must not see one twice.
fn by_topic(answers: &[Answer]) -> Vec<Vec<&Answer>> {
    let mut place = HashMap::new();
    let mut groups: Vec<Vec<&Answer>> = Vec::new();
    for answer in answers {
        let at = *place.entry(&answer.topic).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(answer),
            None => groups.push(vec![answer]),
        }
    }
    groups
}

fn put_topic(out: &mut Vec<u8>, version: i16, answers: &[&Answer]) {
    let flexible = version >= FLEXIBLE;
    let topic = answers.first().map(|answer| &answer.topic);
    if version >= TOPIC_IDS {
        out.extend(match topic {
            Some(Topic::Id(id)) => *id,
            _ => [0; 16],
        });
    } else {
        let name: &[u8] = match topic {
            Some(Topic::Name(name)) => name,
            _ => &[],
        };
        // Names come from a request, where their length had two bytes, or from
        // a compact string that no broker accepts above 249 bytes.
        let name = name.get(..name.len().min(MAX_NAME)).unwrap_or_default();
        cursor::put_string(out, flexible, name, "a topic name")
            .expect("a name was cut to what fits");
    }
    cursor::put_count(out, flexible, answers.len());
    for answer in answers {
        put_partition(out, version, answer);
    }
    put_no_tags(out, flexible);
}

/// The longest name that an int16 length can announce.
const MAX_NAME: usize = 0x7fff;

fn put_partition(out: &mut Vec<u8>, version: i16, answer: &Answer) {
    let flexible = version >= FLEXIBLE;
    out.extend(answer.partition.to_be_bytes());
    out.extend(answer.error.to_be_bytes());
    out.extend(answer.base_offset.unwrap_or(-1).to_be_bytes());
    if version >= APPEND_TIME {
        out.extend(answer.log_append_time.to_be_bytes());
    }
    if version >= LOG_START {
        out.extend(answer.log_start_offset.unwrap_or(-1).to_be_bytes());
    }
    if version >= RECORD_ERRORS {
        cursor::put_count(out, flexible, 0);
        put_message(out, flexible, answer.message.as_deref());
    }
    put_no_tags(out, flexible);
}

/// A string that may be null.
fn put_message(out: &mut Vec<u8>, flexible: bool, message: Option<&str>) {
    let null: &[u8] = if flexible { &[0] } else { &[0xff, 0xff] };
    match message.map(str::as_bytes) {
        Some(text) if text.len() <= MAX_NAME => {
            cursor::put_string(out, flexible, text, "an error message")
                .expect("its length was checked");
        }
        _ => out.extend_from_slice(null),
    }
}

fn put_no_tags(out: &mut Vec<u8>, flexible: bool) {
    if flexible {
        out.push(0);
    }
}

/// The broker's response `frame` with `answers` added; whole, length first.
/// Everything else is kept byte for byte.
pub fn merge(version: i16, frame: &[u8], answers: &[Answer]) -> Result<Bytes, WireError> {
    check_version(version, OLDEST_FOLLOWED)?;
    let mut places = Places::default();
    schema::walk(
        &schema::PRODUCE_RESPONSE,
        version,
        frame,
        header::response_body_at(api::PRODUCE, version, frame)?,
        &mut places,
    )?;
    let flexible = version >= FLEXIBLE;
    let mut added: HashMap<TopicRef<'_>, Vec<&Answer>> = by_topic(answers)
        .into_iter()
        .filter_map(|group| Some((group.first()?.topic.as_ref(), group)))
        .collect();
    let here: Vec<_> = places
        .topics
        .iter()
        .filter_map(|place| Some((place, added.remove(&place.topic?)?)))
        .collect();
    let new: Vec<_> = by_topic(answers)
        .into_iter()
        .filter(|group| {
            group
                .first()
                .is_some_and(|answer| added.contains_key(&answer.topic.as_ref()))
        })
        .collect();
    let mut splice = Splice::new(frame);
    let out = splice.replace(places.count_at);
    cursor::put_count(out, flexible, places.topics.len() + new.len());
    for (place, group) in here {
        let out = splice.replace(place.count_at.clone());
        cursor::put_count(out, flexible, place.count + group.len());
        let out = splice.replace(place.end..place.end);
        for answer in group {
            put_partition(out, version, answer);
        }
    }
    let out = splice.replace(places.end..places.end);
    for group in &new {
        put_topic(out, version, group);
    }
    let whole = splice.finish();
    Ok(whole.expect("the number of topics was replaced"))
}

/// Where a response can be added to.
#[derive(Default)]
struct Places<'a> {
    /// The number of topics.
    count_at: Range<usize>,
    topics: Vec<Place<'a>>,
    /// The end of the topics.
    end: usize,
}

struct Place<'a> {
    topic: Option<TopicRef<'a>>,
    /// The number of partitions.
    count_at: Range<usize>,
    count: usize,
    /// The end of the partitions.
    end: usize,
}

impl<'a> Visitor<'a> for Places<'a> {
    fn leaf(
        &mut self,
        field: &'static Field,
        _at: Range<usize>,
        value: Value<'a>,
    ) -> Result<(), WireError> {
        let topic = match (field.role, value) {
            (Role::TopicName, Value::Bytes(Some(name))) => TopicRef::Name(name),
            // Passed over, it would be missing in the number of topics.
            (Role::TopicName, Value::Bytes(None)) => return Err(NO_NAME),
            (Role::TopicId, Value::Uuid(id)) => TopicRef::Id(id),
            _ => return Ok(()),
        };
        self.topics.push(Place {
            topic: Some(topic),
            count_at: 0..0,
            count: 0,
            end: 0,
        });
        Ok(())
    }

    fn open(&mut self, field: &'static Field, at: Range<usize>, count: usize) {
        match field.role {
            Role::Topics => self.count_at = at,
            Role::Partitions => {
                if let Some(place) = self.topics.last_mut() {
                    place.count_at = at;
                    place.count = count;
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, field: &'static Field, at: usize) {
        match field.role {
            Role::Topics => self.end = at,
            Role::Partitions => {
                if let Some(place) = self.topics.last_mut() {
                    place.end = at;
                }
            }
            _ => {}
        }
    }
}

/// The request `frame` without the partitions that `keep` refuses; whole,
/// length first. Topics that this empties go too; everything else is kept
/// byte for byte. Asks for each partition once, in order.
pub fn retain(
    version: i16,
    frame: &[u8],
    mut keep: impl FnMut(TopicRef<'_>, i32) -> bool,
) -> Result<Bytes, WireError> {
    check_version(version, OLDEST_FOLLOWED)?;
    let flexible = version >= FLEXIBLE;
    let mut cursor = Cursor::starting(frame, header::request_body_at(frame, flexible)?);
    cursor.string(flexible, "a transactional id")?;
    cursor.int16("acks")?;
    cursor.int32("a timeout")?;
    let topics_at = cursor.at();
    let topics = cursor.count(flexible, "topics")?.unwrap_or(0);
    let topics_at = topics_at..cursor.at();

    let mut topics_kept = topics;
    let mut edits = Vec::new();
    for _ in 0..topics {
        topics_kept -= usize::from(!retain_topic(&mut cursor, version, &mut keep, &mut edits)?);
    }
    if flexible {
        cursor.tags()?;
    }
    cursor.end("a Produce request")?;

    let mut splice = Splice::new(frame);
    cursor::put_count(splice.replace(topics_at), flexible, topics_kept);
    for (range, count) in edits {
        let out = splice.replace(range);
        if let Some(count) = count {
            cursor::put_count(out, flexible, count);
        }
    }
    let whole = splice.finish();
    Ok(whole.expect("the number of topics was replaced"))
}

/// A part of a request that goes, or that a number takes the place of.
type Edit = (Range<usize>, Option<usize>);

/// Notes what [`retain`] changes in one topic. Returns whether any of it stays.
fn retain_topic(
    cursor: &mut Cursor<'_>,
    version: i16,
    keep: &mut impl FnMut(TopicRef<'_>, i32) -> bool,
    edits: &mut Vec<Edit>,
) -> Result<bool, WireError> {
    let flexible = version >= FLEXIBLE;
    let start = cursor.at();
    let topic = topic(cursor, version)?;
    let count_at = cursor.at();
    let partitions = cursor.count(flexible, "partitions")?.unwrap_or(0);
    let count_at = count_at..cursor.at();
    let mut dropped = Vec::new();
    for _ in 0..partitions {
        let start = cursor.at();
        let index = cursor.int32("a partition index")?;
        let len = cursor.count(flexible, "records")?.unwrap_or(0);
        cursor.take(len, "records")?;
        if flexible {
            cursor.tags()?;
        }
        if !keep(topic, index) {
            dropped.push((start..cursor.at(), None));
        }
    }
    if flexible {
        cursor.tags()?;
    }
    if dropped.is_empty() {
        return Ok(true);
    }
    let kept = partitions - dropped.len();
    if kept == 0 {
        edits.push((start..cursor.at(), None));
    } else {
        edits.push((count_at, Some(kept)));
        edits.append(&mut dropped);
    }
    Ok(kept > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{UNKNOWN, decode, request, response, text, unframed};
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::produce_response::{
        BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
        TopicProduceResponse,
    };
    use kafka_protocol::messages::{
        BrokerId, ProduceRequest, ProduceResponse, RequestHeader, TopicName, TransactionalId,
    };
    use kafka_protocol::protocol::Decodable;
    use proptest::prelude::*;

    struct Nobody;

    impl Sink for Nobody {
        fn topic(&mut self, _: TopicRef<'_>, _: usize) {}
        fn partition(&mut self, _: i32, _: Batch) {}
    }

    /// Eight bytes are a partition: 100 MiB of them would be gigabytes here.
    #[test]
    fn more_topics_and_partitions_than_anybody_has_are_refused() {
        use kafka_protocol::protocol::Encodable;
        let body = |partitions: usize| {
            let partitions = (0..partitions).map(|index| {
                PartitionProduceData::default().with_index(i32::try_from(index).unwrap())
            });
            let topic = TopicProduceData::default()
                .with_name(TopicName(text("t")))
                .with_partition_data(partitions.collect());
            let request = ProduceRequest::default().with_topic_data(vec![topic]);
            let mut body = bytes::BytesMut::new();
            request.encode(&mut body, 8).unwrap();
            body
        };
        let most = body(PARTS_MAX - 1);
        let mut walk = Walk::new(8);
        let mut at = 0;
        // Elements that are cut off are seen several times, and count once.
        for end in (0..most.len()).step_by(7).chain([most.len()]) {
            at += walk.advance(&most[at..end], &mut Nobody).unwrap();
        }
        assert!(walk.done() && at == most.len());
        let refused = Walk::new(8).advance(&body(PARTS_MAX), &mut Nobody);
        assert!(
            matches!(refused, Err(WireError::Malformed { .. })),
            "{refused:?}"
        );
    }

    const IDS: [&str; 3] = [
        "01010101-0101-0101-0101-010101010101",
        "02020202-0202-0202-0202-020202020202",
        "03030303-0303-0303-0303-030303030303",
    ];

    fn owned(version: i16, topic: u8) -> Topic {
        if version >= TOPIC_IDS {
            Topic::Id([topic; 16])
        } else {
            Topic::Name(Bytes::from(format!("topic-{topic}")))
        }
    }

    /// Records of partition `index`: a batch, null, empty, or an odd one.
    fn records(index: i32) -> Option<Bytes> {
        match index {
            1 => None,
            2 => Some(Bytes::new()),
            3 => Some(Bytes::from_static(b"short")),
            _ => Some(batch::tests::sample(index + 1).into()),
        }
    }

    fn produce(version: i16, topics: u8, partitions: i32) -> ProduceRequest {
        let (tag, value) = UNKNOWN;
        let mut request = ProduceRequest::default()
            .with_transactional_id((topics == 2).then(|| TransactionalId(text("tx"))))
            .with_acks(-1)
            .with_timeout_ms(30_000);
        for topic in 1..=topics {
            let mut data = TopicProduceData::default();
            if version >= TOPIC_IDS {
                data.topic_id = IDS[usize::from(topic) - 1].parse().unwrap();
            } else {
                data.name = TopicName(text(&format!("topic-{topic}")));
            }
            for index in 0..partitions {
                let mut partition = PartitionProduceData::default()
                    .with_index(index)
                    .with_records(records(index));
                if version >= FLEXIBLE {
                    partition.unknown_tagged_fields.insert(tag, value.clone());
                }
                data.partition_data.push(partition);
            }
            if version >= FLEXIBLE {
                data.unknown_tagged_fields.insert(tag, value.clone());
            }
            request.topic_data.push(data);
        }
        if version >= FLEXIBLE {
            request.unknown_tagged_fields.insert(tag, value);
        }
        request
    }

    #[derive(Default, PartialEq, Debug)]
    struct Seen {
        fronts: Vec<(Option<Vec<u8>>, i16, i32, usize)>,
        topics: Vec<(Topic, usize)>,
        partitions: Vec<(i32, Batch)>,
    }

    impl Sink for Seen {
        fn front(&mut self, f: Front<'_>) {
            let id = f.transactional_id.map(<[u8]>::to_vec);
            self.fronts.push((id, f.acks, f.timeout_ms, f.topics));
        }
        fn topic(&mut self, topic: TopicRef<'_>, partitions: usize) {
            self.topics.push((topic.to_topic(), partitions));
        }
        fn partition(&mut self, index: i32, batch: Batch) {
            self.partitions.push((index, batch));
        }
    }

    fn expected(version: i16, topics: u8, partitions: i32) -> Seen {
        let count = usize::try_from(partitions).unwrap();
        let mut seen = Seen::default();
        let id = (topics == 2).then(|| b"tx".to_vec());
        seen.fronts.push((id, -1, 30_000, topics.into()));
        for topic in 1..=topics {
            seen.topics.push((owned(version, topic), count));
            for index in 0..partitions {
                let records = records(index).unwrap_or_default();
                let head = &records[..records.len().min(batch::HEADER)];
                let batch = batch::batch(records.len(), head);
                seen.partitions.push((index, batch));
            }
        }
        seen
    }

    #[test]
    fn a_walk_finds_the_same_at_every_split() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            for (topics, partitions) in [(0u8, 0), (1, 0), (1, 1), (2, 3), (3, 5)] {
                let (frame, at) = request(0, version, &produce(version, topics, partitions));
                assert_eq!(header::body_at(&frame, version >= 9), Ok(Some(at)));
                let body = &frame[at..];
                let expected = expected(version, topics, partitions);
                for split in 0..=body.len() {
                    let mut walk = Walk::new(version);
                    let mut seen = Seen::default();
                    let first = walk.advance(&body[..split], &mut seen).unwrap();
                    assert!(first <= split);
                    // What comes later may have other bytes behind it.
                    let mut rest = body[first..].to_vec();
                    rest.push(0x55);
                    let second = walk.advance(&rest, &mut seen).unwrap();
                    assert_eq!(first + second, body.len(), "version {version} at {split}");
                    assert!(walk.done());
                    assert_eq!((walk.skip(), walk.topics), (0, 0));
                    assert_eq!(seen, expected, "version {version} at {split}");
                }
            }
        }
    }

    #[test]
    fn a_walk_fed_single_bytes_counts_down() {
        let (frame, at) = request(0, 9, &produce(9, 2, 3));
        let mut walk = Walk::new(9);
        let mut seen = Seen::default();
        let mut carry = Vec::new();
        for byte in &frame[at..] {
            carry.push(*byte);
            let consumed = walk.advance(&carry, &mut seen).unwrap();
            carry.drain(..consumed);
            assert!(carry.len() <= 5 + 1 + batch::HEADER);
            assert_eq!(walk.topics, 2 * seen.fronts.len() - seen.topics.len());
        }
        assert!(walk.done() && carry.is_empty());
    }

    #[test]
    fn a_walk_follows_nothing_before_record_batches() {
        // The layout of version 3 without its transactional id.
        let (frame, at) = request(0, 3, &produce(3, 1, 5));
        let mut expected = expected(3, 1, 5);
        for (_, batch) in &mut expected.partitions {
            if let Batch::Tracked(_) = batch {
                *batch = Batch::Odd(Odd::Magic);
            }
        }
        let no_transaction = [0xff, 0xff];
        let body = frame[at..].strip_prefix(&no_transaction).unwrap();
        for version in 0..OLDEST_FOLLOWED {
            let mut seen = Seen::default();
            let mut walk = Walk::new(version);
            assert_eq!(walk.advance(body, &mut seen), Ok(body.len()));
            assert!(walk.done());
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn versions_outside_the_walk_are_refused() {
        for version in [-1, 0, 2, 14] {
            let refused = WireError::Unsupported {
                api_key: 0,
                version,
            };
            let mut walk = Walk::new(version);
            let walked = walk.advance(&[0; 64], &mut Seen::default());
            assert_eq!(walked == Err(refused), !(0..=NEWEST).contains(&version));
            assert_eq!(replies(version, &[0; 64], |_| ()), Err(refused));
        }
    }

    fn reply_of(version: i16, index: i32) -> PartitionProduceResponse {
        let (tag, value) = UNKNOWN;
        let mut reply = PartitionProduceResponse::default()
            .with_index(index)
            .with_error_code(if index == 1 { 6 } else { 0 })
            .with_base_offset(if index == 1 { -1 } else { 100 })
            .with_log_append_time_ms(-1);
        if version >= LOG_START {
            reply.log_start_offset = 4;
        }
        if version >= RECORD_ERRORS && index == 1 {
            reply.record_errors = vec![
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(3)
                    .with_batch_index_error_message(Some(text("bad"))),
            ];
            reply.error_message = Some(text("not here"));
        }
        if version >= LEADERS && index == 1 {
            let leader = LeaderIdAndEpoch::default().with_leader_epoch(3);
            reply.current_leader = leader.with_leader_id(BrokerId(2));
        }
        if version >= FLEXIBLE {
            reply.unknown_tagged_fields.insert(tag, value);
        }
        reply
    }

    fn responded(version: i16, topics: u8, partitions: i32) -> ProduceResponse {
        let (tag, value) = UNKNOWN;
        let mut response = ProduceResponse::default().with_throttle_time_ms(9);
        for topic in 1..=topics {
            let mut data = TopicProduceResponse::default();
            if version >= TOPIC_IDS {
                data.topic_id = IDS[usize::from(topic) - 1].parse().unwrap();
            } else {
                data.name = TopicName(text(&format!("topic-{topic}")));
            }
            data.partition_responses = (0..partitions).map(|i| reply_of(version, i)).collect();
            response.responses.push(data);
        }
        if version >= LEADERS && topics > 0 {
            response.node_endpoints = vec![
                NodeEndpoint::default()
                    .with_node_id(BrokerId(2))
                    .with_host(text("b2.example"))
                    .with_port(9092),
            ];
        }
        if version >= FLEXIBLE {
            response.unknown_tagged_fields.insert(tag, value);
        }
        response
    }

    #[test]
    fn replies_agree_with_the_crate() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            for (topics, partitions) in [(0, 0), (1, 1), (3, 2)] {
                let frame = response(0, version, &responded(version, topics, partitions));
                let mut seen = Vec::new();
                let endpoints = replies(version, &frame, |reply| seen.push(reply)).unwrap();
                assert_eq!(endpoints, version >= LEADERS && topics > 0);
                let expected: Vec<_> = (1..=topics)
                    .flat_map(|topic| (0..partitions).map(move |index| (topic, index)))
                    .map(|(topic, index)| {
                        let ok = index != 1;
                        (
                            owned(version, topic),
                            index,
                            if ok { 0 } else { 6 },
                            ok.then_some(100),
                            (version >= LOG_START).then_some(4),
                        )
                    })
                    .collect();
                let seen: Vec<_> = seen
                    .iter()
                    .map(|r| {
                        let topic = r.topic.to_topic();
                        (
                            topic,
                            r.partition,
                            r.error,
                            r.base_offset,
                            r.log_start_offset,
                        )
                    })
                    .collect();
                assert_eq!(seen, expected, "version {version}");
                for end in 0..frame.len() {
                    assert!(replies(version, &frame[..end], |_| ()).is_err());
                }
            }
        }
    }

    fn answers(version: i16) -> Vec<Answer> {
        [(1, 0), (4, 7), (1, 5), (4, 8)]
            .map(|(topic, partition)| Answer {
                topic: owned(version, topic),
                partition,
                error: if partition == 8 { 19 } else { 0 },
                base_offset: (partition != 8).then_some(55),
                log_append_time: -1,
                log_start_offset: (version >= LOG_START).then_some(2),
                message: None,
            })
            .to_vec()
    }

    #[test]
    fn what_was_found_takes_the_place_of_the_error_and_of_all_that_it_said() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let before = responded(version, 2, 3);
            let frame = response(0, version, &before);
            let second = owned(version, 2);
            let whole = acknowledge(version, &frame, |topic, partition| {
                (topic == second.as_ref() && partition == 1).then_some((77, 8))
            });
            let after: ProduceResponse = decode(0, version, unframed(&whole.unwrap()));
            let mut expected = before;
            let log_start = expected.responses[1].partition_responses[1].log_start_offset;
            expected.responses[1].partition_responses[1] = PartitionProduceResponse::default()
                .with_index(1)
                .with_base_offset(77)
                .with_log_append_time_ms(8)
                .with_log_start_offset(log_start);
            assert_eq!(after, expected, "version {version}");
            let same = acknowledge(version, &frame, |_, _| None).unwrap();
            assert_eq!(unframed(&same), frame);
        }
    }

    #[test]
    fn an_answer_reads_back_topic_by_topic() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let whole = answer(version, 7, &answers(version));
            let decoded: ProduceResponse = decode(0, version, unframed(&whole));
            let partitions: Vec<Vec<_>> = decoded
                .responses
                .iter()
                .map(|topic| topic.partition_responses.iter().map(|p| p.index).collect())
                .collect();
            assert_eq!(partitions, [[0, 5], [7, 8]]);
            let mut seen = Vec::new();
            replies(version, unframed(&whole), |r| {
                seen.push(Answer {
                    topic: r.topic.to_topic(),
                    partition: r.partition,
                    error: r.error,
                    base_offset: r.base_offset,
                    log_append_time: r.log_append_time,
                    log_start_offset: r.log_start_offset,
                    message: None,
                });
            })
            .unwrap();
            let mut expected = answers(version);
            expected.swap(1, 2);
            assert_eq!(seen, expected);
            assert_eq!(&whole[..8], [&whole[..4], &[0, 0, 0, 7]].concat());
        }
    }

    #[test]
    fn an_answer_says_why_where_its_version_has_a_place_for_it() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let mut answers = answers(version);
            answers[0].message = Some("set acks=all".into());
            let decoded: ProduceResponse =
                decode(0, version, unframed(&answer(version, 7, &answers)));
            let said: Vec<_> = decoded.responses[0]
                .partition_responses
                .iter()
                .map(|p| p.error_message.as_deref())
                .collect();
            let expected = (version >= RECORD_ERRORS).then_some("set acks=all");
            assert_eq!(said, [expected, None], "version {version}");
        }
    }

    #[test]
    fn answers_before_version_3_have_their_old_layout() {
        let answer = |version: i16| {
            let mut answers = answers(3);
            answers.truncate(1);
            answers[0].topic = Topic::Name(Bytes::from_static(b"t"));
            unframed(&answer(version, 7, &answers)).to_vec()
        };
        // One topic of one partition: 0, without an error, from offset 55 on.
        let partition = [
            &b"\0\0\0\x07\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0"[..],
            &55i64.to_be_bytes(),
        ]
        .concat();
        let (time, throttle) = ((-1i64).to_be_bytes(), [0; 4]);
        assert_eq!(answer(0), partition);
        assert_eq!(answer(1), [&partition[..], &throttle].concat());
        assert_eq!(answer(2), [&partition[..], &time, &throttle].concat());
    }

    #[test]
    fn a_merge_adds_to_the_topics_that_are_there() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let broker = responded(version, 3, 2);
            let frame = response(0, version, &broker);
            let merged = merge(version, &frame, &answers(version)).unwrap();
            let decoded: ProduceResponse = decode(0, version, unframed(&merged));
            let added: ProduceResponse =
                decode(0, version, unframed(&answer(version, 7, &answers(version))));
            let mut expected = broker;
            let [here, new] = <[_; 2]>::try_from(added.responses).unwrap();
            expected.responses[0]
                .partition_responses
                .extend(here.partition_responses);
            expected.responses.push(new);
            assert_eq!(decoded, expected, "version {version}");
            // And nothing but the answers: without any, not a byte changes.
            assert_eq!(unframed(&merge(version, &frame, &[]).unwrap()), frame);
        }
    }

    /// Found by fuzzing: a merge miscounted the topics.
    #[test]
    fn a_topic_without_a_name_is_refused() {
        for version in OLDEST_FOLLOWED..FLEXIBLE {
            let mut frame = response(0, version, &responded(version, 1, 1));
            let name = frame
                .windows(7)
                .position(|part| part == b"topic-1")
                .unwrap();
            frame.splice(name - 2..name + 7, [0xff, 0xff]);
            assert_eq!(replies(version, &frame, |_| ()), Err(NO_NAME));
            assert_eq!(merge(version, &frame, &[]), Err(NO_NAME));
            assert_eq!(merge(version, &frame, &answers(version)), Err(NO_NAME));
        }
    }

    #[test]
    fn retain_drops_partitions_and_emptied_topics_only() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let mut sent = produce(version, 3, 4);
            let (frame, at) = request(0, version, &sent);
            let mut asked = Vec::new();
            let whole = retain(version, &frame, |topic, index| {
                asked.push((topic.to_topic(), index));
                topic != owned(version, 2).as_ref()
                    && (topic != owned(version, 3).as_ref() || index != 1)
            })
            .unwrap();
            assert_eq!(asked.len(), 12);
            let kept = unframed(&whole);
            assert_eq!(kept[..at], frame[..at]);
            let mut bytes = Bytes::copy_from_slice(kept);
            RequestHeader::decode(&mut bytes, if version >= 9 { 2 } else { 1 }).unwrap();
            let decoded = ProduceRequest::decode(&mut bytes, version).unwrap();
            assert!(bytes.is_empty());
            sent.topic_data.remove(1);
            sent.topic_data[1].partition_data.remove(1);
            assert_eq!(decoded, sent, "version {version}");
            assert_eq!(
                unframed(&retain(version, &frame, |_, _| true).unwrap()),
                frame
            );
            for end in 0..frame.len() {
                assert!(retain(version, &frame[..end], |_, _| true).is_err());
            }
        }
    }

    #[test]
    fn an_empty_topic_stays_when_others_go() {
        let (frame, _) = request(0, 9, &produce(9, 1, 0));
        assert_eq!(unframed(&retain(9, &frame, |_, _| false).unwrap()), frame);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            version in -1i16..15,
        ) {
            let mut walk = Walk::new(version);
            let _ = walk.advance(&bytes, &mut Seen::default());
            let _ = replies(version, &bytes, |_| ());
            let _ = merge(version, &bytes, &[]);
            let _ = retain(version, &bytes, |_, index| index % 2 == 0);
            let _ = batch::batch(bytes.len(), &bytes);
        }

        #[test]
        fn no_flipped_byte_makes_it_panic(at in any::<prop::sample::Index>(), byte: u8, version in 3i16..14) {
            let (mut frame, _) = request(0, version, &produce(version, 2, 3));
            let place = at.index(frame.len());
            frame[place] = byte;
            let _ = retain(version, &frame, |_, index| index != 1);
            let mut frame = response(0, version, &responded(version, 2, 2));
            let place = at.index(frame.len());
            frame[place] = byte;
            let mut count = 0;
            let _ = replies(version, &frame, |_| count += 1);
            prop_assert!(count <= frame.len());
            let _ = merge(version, &frame, &answers(version));
        }
    }
}
