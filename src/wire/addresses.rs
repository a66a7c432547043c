//! Broker addresses in responses, replaced or blanked.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::cursor::{self, Cursor, Splice};
use super::schema::{self, Field, Message, Role, Value, Visitor, Walk};
use super::{WireError, api, header};
use crate::ids::{NodeId, TopicId};

/// Who knows where clients should go, and is told what responses say.
pub trait Directory {
    /// Where clients should go for this broker; replaces its host and port.
    fn broker(&mut self, node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16);
    /// The cluster's id (Metadata, DescribeCluster).
    fn cluster_id(&mut self, _id: &str) {}
    /// The response listed every broker of the cluster, and at least one.
    fn brokers_complete(&mut self) {}
    /// A topic that Metadata lists without an error.
    fn topic(&mut self, _name: Option<&str>, _id: Option<TopicId>) {}
}

/// Whether responses of this version may carry broker addresses. Versions too
/// new to be read say yes, so that [`rewrite`] refuses them.
pub fn rewrites(api_key: i16, version: i16) -> bool {
    match api_key {
        api::PRODUCE => version >= 10,
        api::FETCH => version >= 16,
        _ => newest(api_key) >= 0,
    }
}

/// The newest version of an api whose responses are rewritten; −1 for others.
pub const fn newest(api_key: i16) -> i16 {
    match api_key {
        api::PRODUCE | api::METADATA => 13,
        api::FETCH => 18,
        api::FIND_COORDINATOR => 6,
        api::DESCRIBE_CLUSTER | api::SHARE_FETCH | api::SHARE_ACKNOWLEDGE => 2,
        _ => -1,
    }
}

fn message(api_key: i16, version: i16) -> Result<&'static Message, WireError> {
    let mut all = schema::ADDRESSED.iter();
    all.find(|message| message.api_key == api_key)
        .copied()
        .ok_or(WireError::Unsupported { api_key, version })
}

/// The response `frame` with the addresses that `directory` gives; whole, length
/// first; `None` where nothing changes. All other bytes are kept.
///
/// An address without a host or with a port outside `1..=65535` is none: that is
/// how FindCoordinator writes an error. DescribeCluster may list controllers
/// (endpoint type 2, KIP-919), which are no brokers and stay as they are.
pub fn rewrite(
    api_key: i16,
    version: i16,
    frame: &[u8],
    directory: &mut dyn Directory,
) -> Result<Option<Bytes>, WireError> {
    if !rewrites(api_key, version) {
        return Ok(None);
    }
    let message = message(api_key, version)?;
    let at = header::response_body_at(api_key, version, frame)?;
    let mut rewriter = Rewriter {
        directory,
        flexible: version >= message.flexible,
        splice: Splice::new(frame),
        node: None,
        host: None,
        tagged: None,
        listed: false,
        failed: false,
        controllers: false,
        topic: TopicSeen::default(),
    };
    schema::walk(message, version, frame, at, &mut rewriter)?;
    if rewriter.listed && !rewriter.failed && !rewriter.controllers {
        rewriter.directory.brokers_complete();
    }
    Ok(rewriter.splice.finish())
}

struct Rewriter<'a, 'd> {
    directory: &'d mut dyn Directory,
    flexible: bool,
    splice: Splice<'a>,
    node: Option<NodeId>,
    /// The last host and where it is, until its port has been read.
    host: Option<(Range<usize>, &'a str)>,
    tagged: Option<Sized>,
    /// At least one broker was listed.
    listed: bool,
    failed: bool,
    controllers: bool,
    topic: TopicSeen<'a>,
}

/// The innermost tagged field: its size changes with what is in it.
enum Sized {
    /// Nothing in it was replaced; its size is there.
    Kept(Range<usize>),
    /// Its size was dropped; its new content begins there in the copy.
    Changed(usize),
}

#[derive(Default)]
struct TopicSeen<'a> {
    failed: bool,
    name: Option<&'a [u8]>,
    id: Option<TopicId>,
}

impl<'a> Visitor<'a> for Rewriter<'a, '_> {
    fn leaf(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        value: Value<'a>,
    ) -> Result<(), WireError> {
        match (field.role, value) {
            (Role::Node, Value::Int(raw)) => {
                self.node = i32::try_from(raw).ok().and_then(NodeId::from_wire);
            }
            (Role::Host, Value::Bytes(host)) => {
                self.host = Some((at, text(host.unwrap_or_default(), "a host")?));
            }
            (Role::Port, Value::Int(port)) => self.address(at, port)?,
            (Role::ClusterId, Value::Bytes(Some(id))) => {
                self.directory.cluster_id(text(id, "a cluster id")?);
            }
            (Role::EndpointType, Value::Int(kind)) => self.controllers = kind == CONTROLLERS,
            (Role::Error, Value::Int(error)) => self.failed |= error != 0,
            (Role::TopicError, Value::Int(error)) => {
                self.topic = TopicSeen {
                    failed: error != 0,
                    ..TopicSeen::default()
                };
            }
            (Role::TopicName, Value::Bytes(name)) => self.topic.name = name,
            (Role::TopicId, Value::Uuid(id)) => self.topic.id = TopicId::from_wire(id),
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, field: &'static Field, _at: Range<usize>, count: usize) {
        match field.role {
            Role::Brokers => self.listed = count > 0,
            // Only Metadata has both; the name of a topic precedes its partitions.
            Role::Partitions if !self.topic.failed => {
                let name = self.topic.name.and_then(|name| str::from_utf8(name).ok());
                if name.is_some() || self.topic.id.is_some() {
                    self.directory.topic(name, self.topic.id);
                }
            }
            _ => {}
        }
    }

    fn tagged(&mut self, at: Range<usize>) {
        self.tagged = Some(Sized::Kept(at));
    }

    fn untagged(&mut self, at: usize) {
        if let Some(Sized::Changed(begin)) = self.tagged.take() {
            let out = self.splice.replace(at..at);
            let content = out.split_off(begin);
            let size = u32::try_from(content.len()).expect("a frame is shorter than 2^31 bytes");
            cursor::put_varint(out, size);
            out.extend(content);
        }
    }
}

/// The endpoint type of controllers.
const CONTROLLERS: i64 = 2;

impl<'a> Rewriter<'a, '_> {
    fn address(&mut self, port_at: Range<usize>, port: i64) -> Result<(), WireError> {
        let Some((host_at, host)) = self.host.take() else {
            return Ok(());
        };
        let (Ok(port @ 1..), false, false) =
            (u16::try_from(port), host.is_empty(), self.controllers)
        else {
            return Ok(());
        };
        let (new_host, new_port) = self.directory.broker(self.node, host, port);
        if new_host.as_ref() == host && new_port == port {
            return Ok(());
        }
        self.open_size();
        let flexible = self.flexible;
        let out = self.splice.replace(host_at);
        cursor::put_string(out, flexible, new_host.as_bytes(), "the length of a host")?;
        let out = self.splice.replace(port_at);
        out.extend(i32::from(new_port).to_be_bytes());
        Ok(())
    }

    /// Drops the size of the enclosing tagged field before its first change.
    fn open_size(&mut self) {
        if let Some(Sized::Kept(at)) = &self.tagged {
            let begin = self.splice.replace(at.clone()).len();
            self.tagged = Some(Sized::Changed(begin));
        }
    }
}

fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, WireError> {
    str::from_utf8(bytes).map_err(|error| WireError::Malformed {
        what,
        value: bytes
            .get(error.valid_up_to())
            .map_or(-1, |byte| i64::from(*byte)),
    })
}

/// Finds the node endpoints at the end of a Fetch (16 and newer) or ShareFetch
/// response whose bytes arrive in pieces.
#[derive(Clone, Debug)]
pub struct EndpointScan {
    api_key: i16,
    version: i16,
    /// `None` until the header has passed.
    walk: Option<Walk>,
}

impl EndpointScan {
    /// A scan at the beginning of a frame (its correlation id).
    pub fn new(api_key: i16, version: i16) -> Result<Self, WireError> {
        Walk::new(message(api_key, version)?, version, 0)?;
        Ok(Self {
            api_key,
            version,
            walk: None,
        })
    }

    /// Consumes whole elements; returns how many bytes were, which may be
    /// forwarded. The next call's bytes begin after those. Consumes nothing once
    /// at the tail. An element is at most 16 bytes long, the header excepted.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        let mut consumed = 0;
        let walk = match &mut self.walk {
            Some(walk) => walk,
            none => match header::response_body_at(self.api_key, self.version, bytes) {
                Ok(at) => {
                    consumed = at;
                    none.insert(Walk::new(
                        message(self.api_key, self.version)?,
                        self.version,
                        at,
                    )?)
                }
                Err(WireError::Truncated { .. }) => return Ok(0),
                Err(error) => return Err(error),
            },
        };
        while !walk.done() && !walk.at_tail() {
            match walk.step(bytes.get(consumed..).unwrap_or_default(), &mut ()) {
                Ok(count) => consumed += count,
                Err(WireError::Truncated { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(consumed)
    }

    /// Whether the rest of the frame has to be collected whole, for [`blank`].
    pub fn at_tail(&self) -> bool {
        self.walk.as_ref().is_some_and(Walk::at_tail)
    }
}

/// Blanks the endpoints in `tail`, the end of a frame from where an
/// [`EndpointScan`] stopped, without changing its length.
///
/// The endpoints are a hint (KIP-951): a client that is told a new leader but
/// not its address asks for metadata, whose answer is rewritten. What they took
/// becomes zeros in a tagged field that nobody knows, which every client skips
/// (KIP-482); its tag is free and fields stay in ascending order.
///
/// ```text
/// Fetch       | n | 0 | size | endpoints | others |
///          -> | n | others | 127 | size | 0 ...   |
/// ShareFetch  | m+1 | m endpoints | n | others |
///          -> | 1 | n+1 | others | 127 | size | 0 ... |
/// ```
pub fn blank(api_key: i16, version: i16, tail: &mut [u8]) -> Result<(), WireError> {
    let message = message(api_key, version)?;
    Walk::new(message, version, 0)?;
    match api_key {
        api::FETCH if rewrites(api_key, version) => blank_tagged(tail),
        api::SHARE_FETCH | api::SHARE_ACKNOWLEDGE => blank_array(tail),
        _ => Err(WireError::Unsupported { api_key, version }),
    }
}

const ENDPOINTS_TAG: u32 = 0;

fn blank_tagged(tail: &mut [u8]) -> Result<(), WireError> {
    let tags = Tags::read(Cursor::new(tail))?;
    let Some(endpoints) = tags.fields.iter().find(|field| field.tag == ENDPOINTS_TAG) else {
        return Ok(());
    };
    let (free, next) = tags.free()?;
    // The field leaves its place for the end of those with smaller tags.
    let from = endpoints.at.clone();
    let to = next.max(from.end);
    let tag_len = endpoints.tag_len;
    let size_len = endpoints.content.start - from.start - tag_len;
    let len = from.len();
    if let Some(moved) = tail.get_mut(from.start..to) {
        moved.rotate_left(len);
        let start = moved.len() - len;
        if let Some(field) = moved.get_mut(start..) {
            put_padded(field, tag_len, free);
            if let Some(content) = field.get_mut(tag_len + size_len..) {
                content.fill(0);
            }
        }
    }
    Ok(())
}

fn blank_array(tail: &mut [u8]) -> Result<(), WireError> {
    let mut cursor = Cursor::new(tail);
    let count = cursor.count(true, "node endpoints")?.unwrap_or(0);
    if count == 0 {
        return Ok(());
    }
    for _ in 0..count {
        cursor.int32("a node id")?;
        cursor.string(true, "a host")?;
        cursor.int32("a port")?;
        cursor.string(true, "a rack")?;
        cursor.tags()?;
    }
    let tags = Tags::read(cursor)?;
    let (free, next) = tags.free()?;
    let kept = |range: Range<usize>| tail.get(range).unwrap_or_default();
    let (before, after) = (kept(tags.begin..next), kept(next..tail.len()));

    let mut out = Vec::with_capacity(tail.len());
    cursor::put_count(&mut out, true, 0);
    let fields = u32::try_from(tags.fields.len()).unwrap_or(u32::MAX);
    cursor::put_varint(&mut out, fields.saturating_add(1));
    out.extend_from_slice(before);
    // An endpoint takes at least eleven bytes and the count's may grow by one,
    // so that there is room for a tag, a size and the zeros to fill.
    let room = tail.len().saturating_sub(out.len() + after.len());
    let Some(size) = room.checked_sub(1).and_then(filler) else {
        let value = i64::try_from(room).unwrap_or(i64::MAX);
        let what = "the room for a filler";
        return Err(WireError::Malformed { what, value });
    };
    cursor::put_varint(&mut out, free);
    let (size, width) = size;
    let at = out.len();
    out.resize(at + width, 0);
    if let Some(field) = out.get_mut(at..) {
        put_padded(field, width, size);
    }
    out.resize(tail.len() - after.len(), 0);
    out.extend_from_slice(after);
    tail.copy_from_slice(&out);
    Ok(())
}

/// A size and its width that take `room` bytes with the content. A width
/// may be one more than needed, which every varint reader accepts: no size
/// of least width fits a room of 129, for one.
fn filler(room: usize) -> Option<(u32, usize)> {
    (1..=5).find_map(|width| {
        let size = u32::try_from(room.checked_sub(width)?).ok()?;
        (cursor::varint_len(size) <= width).then_some((size, width))
    })
}

/// `value` as a varint of exactly `width` bytes.
fn put_padded(out: &mut [u8], width: usize, mut value: u32) {
    for (at, byte) in out.iter_mut().take(width).enumerate() {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        *byte = (low & 0x7f) | if at + 1 < width { 0x80 } else { 0 };
    }
}

/// The outermost tagged fields of a message, where they are in its tail.
struct Tags {
    /// Where the first field begins.
    begin: usize,
    fields: Vec<Tag>,
}

struct Tag {
    tag: u32,
    at: Range<usize>,
    tag_len: usize,
    content: Range<usize>,
}

impl Tags {
    fn read(mut cursor: Cursor<'_>) -> Result<Self, WireError> {
        let count = cursor.varint("a tag count")?;
        let begin = cursor.at();
        let mut fields = Vec::new();
        for _ in 0..count {
            let start = cursor.at();
            let mut ahead = cursor;
            let (tag, content) = cursor.tag()?;
            ahead.varint("a tag")?;
            fields.push(Tag {
                tag,
                at: start..cursor.at(),
                tag_len: ahead.at() - start,
                content: cursor.at() - content.len()..cursor.at(),
            });
        }
        cursor.end("a response")?;
        Ok(Self { begin, fields })
    }

    /// The largest tag of one byte that no field has, and where the first field
    /// with a larger one begins.
    fn free(&self) -> Result<(u32, usize), WireError> {
        let taken = self
            .fields
            .iter()
            .filter(|field| field.tag <= MAX_TAG)
            .fold(0u128, |taken, field| taken | 1 << field.tag);
        let free = (1..=MAX_TAG).rev().find(|tag| taken >> tag & 1 == 0);
        let free = free.ok_or_else(|| WireError::Malformed {
            what: "the number of tagged fields",
            value: i64::try_from(self.fields.len()).unwrap_or(i64::MAX),
        })?;
        let smaller = self.fields.iter().filter(|field| field.tag < free);
        let next = smaller.map(|field| field.at.end).max();
        Ok((free, next.unwrap_or(self.begin)))
    }
}

/// The largest tag of one byte.
const MAX_TAG: u32 = 127;
