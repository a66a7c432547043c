//! Produce requests and responses, walked by hand: the hot path.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use super::batch::{self, Batch};
use super::cursor::{self, Cursor, Splice};
use super::schema::{self, Field, Role, Value, Visitor};
use super::{WireError, api, header};

/// The newest version that is walked.
pub const NEWEST: i16 = 13;
/// The oldest version that is walked; older ones pass untracked.
pub const OLDEST_WALKED: i16 = 3;

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
    /// A walk at the beginning of a body, `OLDEST_WALKED <= version <= NEWEST`;
    /// any other version is refused at the first step.
    pub fn new(version: i16) -> Self {
        Self {
            version,
            stage: Stage::Front,
            topics: 0,
            partitions: 0,
            skip: 0,
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
            cursor.take(passed, "records")?;
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
                check_version(self.version)?;
                let transactional_id = cursor.string(flexible, "a transactional id")?;
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
                let topic = topic(cursor, self.version)?;
                let partitions = cursor.count(flexible, "partitions")?.unwrap_or(0);
                sink.topic(topic, partitions);
                self.topics -= 1;
                self.partitions = partitions;
                self.stage = self.next_partition();
            }
            Stage::Partition => {
                let index = cursor.int32("a partition index")?;
                let len = cursor.count(flexible, "records")?.unwrap_or(0);
                let head = cursor.take(len.min(batch::HEADER), "a batch header")?;
                sink.partition(index, batch::batch(len, head));
                self.partitions -= 1;
                self.skip = len - head.len();
                self.stage = Stage::PartitionTail;
            }
            Stage::PartitionTail => {
                self.tail(cursor)?;
                self.stage = self.next_partition();
            }
            Stage::TopicTail => {
                self.tail(cursor)?;
                self.stage = self.next_topic();
            }
            Stage::Tail => {
                self.tail(cursor)?;
                self.stage = Stage::Done;
            }
            Stage::Done => {}
        }
        Ok(())
    }

    fn tail(&self, cursor: &mut Cursor<'_>) -> Result<(), WireError> {
        if self.version < FLEXIBLE {
            return Ok(());
        }
        cursor.tags()
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

    /// Partitions of the current topic that the sink has not seen.
    pub fn partitions_left(&self) -> usize {
        self.partitions
    }

    /// Topics that the sink has not seen.
    pub fn topics_left(&self) -> usize {
        self.topics
    }
}

fn check_version(version: i16) -> Result<(), WireError> {
    if (OLDEST_WALKED..=NEWEST).contains(&version) {
        return Ok(());
    }
    Err(WireError::Unsupported {
        api_key: api::PRODUCE,
        version,
    })
}

#[inline]
fn topic<'a>(cursor: &mut Cursor<'a>, version: i16) -> Result<TopicRef<'a>, WireError> {
    if version >= TOPIC_IDS {
        return cursor.array("a topic id").map(TopicRef::Id);
    }
    let name = cursor.string(version >= FLEXIBLE, "a topic name")?;
    name.map(TopicRef::Name).ok_or(WireError::Malformed {
        what: "the length of a topic name",
        value: -1,
    })
}

/// The acks of a request, any version `0..=NEWEST`; `None` while they have not arrived.
pub fn acks(version: i16, body: &[u8]) -> Result<Option<i16>, WireError> {
    let read = || {
        if !(0..=NEWEST).contains(&version) {
            check_version(version)?;
        }
        let mut cursor = Cursor::new(body);
        if version >= OLDEST_WALKED {
            cursor.string(version >= FLEXIBLE, "a transactional id")?;
        }
        cursor.int16("acks")
    };
    match read() {
        Ok(acks) => Ok(Some(acks)),
        Err(WireError::Truncated { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

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
pub fn replies<'a>(
    version: i16,
    frame: &'a [u8],
    mut f: impl FnMut(PartitionReply<'a>),
) -> Result<bool, WireError> {
    check_version(version)?;
    let flexible = version >= FLEXIBLE;
    let mut cursor = Cursor::starting(
        frame,
        header::response_body_at(api::PRODUCE, version, frame)?,
    );
    for _ in 0..cursor.count(flexible, "topics")?.unwrap_or(0) {
        let topic = topic(&mut cursor, version)?;
        for _ in 0..cursor.count(flexible, "partitions")?.unwrap_or(0) {
            f(reply(&mut cursor, version, topic)?);
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

const LOG_START: i16 = 5;
const RECORD_ERRORS: i16 = 8;
const LEADERS: i16 = 10;
const NODE_ENDPOINTS: u32 = 0;

fn reply<'a>(
    cursor: &mut Cursor<'a>,
    version: i16,
    topic: TopicRef<'a>,
) -> Result<PartitionReply<'a>, WireError> {
    let flexible = version >= FLEXIBLE;
    let reply = PartitionReply {
        topic,
        partition: cursor.int32("a partition index")?,
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
}

/// A whole response, length first, that gives `answers`,
/// `OLDEST_WALKED <= version <= NEWEST`.
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
    out.extend(0i32.to_be_bytes());
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
    out.extend(answer.log_append_time.to_be_bytes());
    if version >= LOG_START {
        out.extend(answer.log_start_offset.unwrap_or(-1).to_be_bytes());
    }
    if version >= RECORD_ERRORS {
        cursor::put_count(out, flexible, 0);
        let null: &[u8] = if flexible { &[0] } else { &[0xff, 0xff] };
        out.extend_from_slice(null);
    }
    put_no_tags(out, flexible);
}

fn put_no_tags(out: &mut Vec<u8>, flexible: bool) {
    if flexible {
        out.push(0);
    }
}

/// The broker's response `frame` with `answers` added; whole, length first.
/// Everything else is kept byte for byte.
pub fn merge(version: i16, frame: &[u8], answers: &[Answer]) -> Result<Bytes, WireError> {
    check_version(version)?;
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
    check_version(version)?;
    let flexible = version >= FLEXIBLE;
    let mut cursor = Cursor::starting(frame, header::request_body_at(frame, flexible)?);
    cursor.string(flexible, "a transactional id")?;
    cursor.int16("acks")?;
    cursor.int32("a timeout")?;
    let topics_at = cursor.at();
    let topics = cursor.count(flexible, "topics")?.unwrap_or(0);
    let topics_at = topics_at..cursor.at();

    let mut topics_kept = topics;
    let mut edits: Vec<(Range<usize>, Option<usize>)> = Vec::new();
    for _ in 0..topics {
        let start = cursor.at();
        let before = edits.len();
        let topic = topic(&mut cursor, version)?;
        let count_at = cursor.at();
        let partitions = cursor.count(flexible, "partitions")?.unwrap_or(0);
        let count_at = count_at..cursor.at();
        let mut kept = partitions;
        for _ in 0..partitions {
            let start = cursor.at();
            let index = cursor.int32("a partition index")?;
            let len = cursor.count(flexible, "records")?.unwrap_or(0);
            cursor.take(len, "records")?;
            if flexible {
                cursor.tags()?;
            }
            if !keep(topic, index) {
                if kept == partitions {
                    edits.push((count_at.clone(), None));
                }
                kept -= 1;
                edits.push((start..cursor.at(), None));
            }
        }
        if flexible {
            cursor.tags()?;
        }
        if kept == partitions {
            continue;
        }
        if kept == 0 {
            topics_kept -= 1;
            edits.truncate(before);
            edits.push((start..cursor.at(), None));
        } else if let Some((_, count)) = edits.get_mut(before) {
            *count = Some(kept);
        }
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
