//! Produce requests and responses, walked by hand: the hot path.

use bytes::Bytes;

use super::WireError;
use super::batch::Batch;

/// The newest version that is walked.
pub const NEWEST: i16 = 13;
/// The oldest version that is walked; older ones pass untracked.
pub const OLDEST_WALKED: i16 = 3;

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
#[derive(Clone, Debug)]
pub struct Walk {}

impl Walk {
    /// A walk at the beginning of a body, `OLDEST_WALKED <= version <= NEWEST`.
    pub fn new(_version: i16) -> Self {
        todo!()
    }

    /// Consumes whole elements of `bytes` and record bytes; returns how many
    /// bytes were consumed. The next call's bytes begin after those. Bytes after
    /// the end of the body are not consumed.
    pub fn advance(&mut self, _bytes: &[u8], _sink: &mut impl Sink) -> Result<usize, WireError> {
        todo!()
    }

    /// Whether the body has ended.
    pub fn done(&self) -> bool {
        todo!()
    }

    /// Record bytes still to pass before the next element; `advance` consumes them.
    pub fn skip(&self) -> usize {
        todo!()
    }

    /// Partitions of the current topic that the sink has not seen.
    pub fn partitions_left(&self) -> usize {
        todo!()
    }

    /// Topics that the sink has not seen.
    pub fn topics_left(&self) -> usize {
        todo!()
    }
}

/// The acks of a request, any version `0..=NEWEST`; `None` while they have not arrived.
pub fn acks(_version: i16, _body: &[u8]) -> Result<Option<i16>, WireError> {
    todo!()
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
pub fn replies(
    _version: i16,
    _frame: &[u8],
    _f: impl FnMut(PartitionReply<'_>),
) -> Result<bool, WireError> {
    todo!()
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

/// A whole response, length first, that gives `answers`.
pub fn answer(_version: i16, _correlation_id: i32, _answers: &[Answer]) -> Bytes {
    todo!()
}

/// The broker's response `frame` with `answers` added; whole, length first.
/// Everything else is kept byte for byte.
pub fn merge(_version: i16, _frame: &[u8], _answers: &[Answer]) -> Result<Bytes, WireError> {
    todo!()
}

/// The request `frame` without the partitions that `keep` refuses; whole,
/// length first. Topics that this empties go too; everything else is kept
/// byte for byte. Asks for each partition once, in order.
pub fn retain(
    _version: i16,
    _frame: &[u8],
    _keep: impl FnMut(TopicRef<'_>, i32) -> bool,
) -> Result<Bytes, WireError> {
    todo!()
}
