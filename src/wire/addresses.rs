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

    /// Bytes to pass before the next element; `advance` consumes them.
    pub fn skip(&self) -> usize {
        self.walk.as_ref().map_or(0, Walk::skip)
    }

    /// `bytes` of those have passed elsewhere, `bytes <= self.skip()`.
    pub fn skipped(&mut self, bytes: usize) {
        if let Some(walk) = &mut self.walk {
            walk.skipped(bytes);
        }
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
    let mut all = tags
        .fields
        .iter()
        .filter(|field| field.tag == ENDPOINTS_TAG);
    let Some(endpoints) = all.next() else {
        return Ok(());
    };
    // No broker writes a field twice; a client would believe either.
    if all.next().is_some() {
        let (what, value) = ("the tag of a second field", ENDPOINTS_TAG.into());
        return Err(WireError::Malformed { what, value });
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{UNKNOWN, decode, response, text, unframed};
    use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
        SnapshotId,
    };
    use kafka_protocol::messages::find_coordinator_response::Coordinator;
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use kafka_protocol::messages::{
        BrokerId, DescribeClusterResponse, FetchResponse, FindCoordinatorResponse,
        MetadataResponse, ProduceResponse, ShareAcknowledgeResponse, ShareFetchResponse, TopicName,
        produce_response, share_acknowledge_response, share_fetch_response,
    };
    use kafka_protocol::protocol::{Decodable, Encodable};
    use proptest::prelude::*;
    use std::fmt::Debug;

    const REAL: &str = "broker-2.kafka.svc.cluster.local";
    const ID: &str = "01010101-0101-0101-0101-010101010101";

    /// Sends every client to one local port for each node, and notes the rest.
    #[derive(Default, PartialEq, Debug)]
    struct Local {
        asked: Vec<(Option<i32>, String, u16)>,
        cluster: Option<String>,
        complete: usize,
        topics: Vec<(Option<String>, Option<TopicId>)>,
        /// Where to send clients; empty: `127.0.0.1:19093+node`.
        to: Option<(String, u16)>,
    }

    impl Local {
        fn to(host: &str, port: u16) -> Self {
            Self {
                to: Some((host.to_owned(), port)),
                ..Self::default()
            }
        }
    }

    impl Directory for Local {
        fn broker(&mut self, node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16) {
            self.asked
                .push((node.map(NodeId::to_wire), host.to_owned(), port));
            match &self.to {
                Some((host, port)) => (host.as_str().into(), *port),
                None => ("127.0.0.1".into(), 19_095),
            }
        }
        fn cluster_id(&mut self, id: &str) {
            self.cluster = Some(id.to_owned());
        }
        fn brokers_complete(&mut self) {
            self.complete += 1;
        }
        fn topic(&mut self, name: Option<&str>, id: Option<TopicId>) {
            self.topics.push((name.map(str::to_owned), id));
        }
    }

    /// Rewrites what `make` makes with the real address and expects what it
    /// makes with the local one; then back, to the very bytes it came from.
    fn check<T>(key: i16, version: i16, make: impl Fn(&str, i32) -> T) -> Local
    where
        T: Encodable + Decodable + PartialEq + Debug,
    {
        let (real, local) = (make(REAL, 9092), make("127.0.0.1", 19_095));
        let frame = response(key, version, &real);
        let mut directory = Local::default();
        let whole = rewrite(key, version, &frame, &mut directory).unwrap();
        let whole = whole.expect("an address changes");
        assert_eq!(
            decode::<T>(key, version, unframed(&whole)),
            local,
            "{key} {version}"
        );
        assert!(!contains(&whole, REAL));
        for (_, host, port) in &directory.asked {
            assert_eq!((host.as_str(), *port), (REAL, 9092));
        }

        let mut back = Local::to(REAL, 9092);
        let again = rewrite(key, version, unframed(&whole), &mut back).unwrap();
        assert_eq!(unframed(&again.unwrap()), frame, "{key} {version}");
        let mut same = Local::to(REAL, 9092);
        assert_eq!(rewrite(key, version, &frame, &mut same), Ok(None));

        for end in 0..frame.len() {
            assert!(rewrite(key, version, &frame[..end], &mut Local::default()).is_err());
        }
        let mut longer = frame.clone();
        longer.push(0);
        assert!(rewrite(key, version, &longer, &mut Local::default()).is_err());
        directory
    }

    fn contains(bytes: &[u8], text: &str) -> bool {
        bytes.windows(text.len()).any(|w| w == text.as_bytes())
    }

    fn metadata(version: i16, host: &str, port: i32) -> MetadataResponse {
        let (tag, unknown) = UNKNOWN;
        let mut broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(2))
            .with_host(text(host))
            .with_port(port);
        if version >= 1 {
            broker.rack = Some(text("rack"));
        }
        let partition = MetadataResponsePartition::default()
            .with_leader_id(BrokerId(2))
            .with_replica_nodes(vec![BrokerId(2), BrokerId(3)])
            .with_isr_nodes(vec![BrokerId(2)]);
        let mut topic = MetadataResponseTopic::default()
            .with_name(Some(TopicName(text("orders"))))
            .with_partitions(vec![partition; 2]);
        let gone = MetadataResponseTopic::default()
            .with_name(Some(TopicName(text("gone"))))
            .with_error_code(3);
        if version >= 10 {
            topic.topic_id = ID.parse().unwrap();
        }
        if version >= 9 {
            broker.unknown_tagged_fields.insert(tag, unknown.clone());
            topic.unknown_tagged_fields.insert(tag, unknown.clone());
        }
        let mut metadata = MetadataResponse::default()
            .with_brokers(vec![broker; 3])
            .with_topics(vec![topic, gone]);
        if version >= 2 {
            metadata.cluster_id = Some(text("cluster"));
        }
        if version >= 9 {
            metadata.unknown_tagged_fields.insert(tag, unknown);
        }
        metadata
    }

    #[test]
    fn metadata_names_local_brokers_and_tells_the_rest() {
        for version in 0..=13 {
            let seen = check(api::METADATA, version, |host, port| {
                metadata(version, host, port)
            });
            let id = (version >= 10).then(|| TopicId::from_wire([1; 16]).unwrap());
            let expected = Local {
                asked: vec![(Some(2), REAL.to_owned(), 9092); 3],
                cluster: (version >= 2).then(|| "cluster".to_owned()),
                complete: 1,
                topics: vec![(Some("orders".to_owned()), id)],
                to: None,
            };
            assert_eq!(seen, expected, "version {version}");
        }
    }

    #[test]
    fn metadata_with_an_error_lists_no_cluster() {
        let mut seen = Local::default();
        let failed = metadata(13, REAL, 9092).with_error_code(129);
        let frame = response(api::METADATA, 13, &failed);
        rewrite(api::METADATA, 13, &frame, &mut seen).unwrap();
        assert_eq!(seen.complete, 0);
        let mut seen = Local::default();
        let empty = metadata(13, REAL, 9092).with_brokers(vec![]);
        let frame = response(api::METADATA, 13, &empty);
        assert_eq!(rewrite(api::METADATA, 13, &frame, &mut seen), Ok(None));
        assert_eq!(seen.complete, 0);
    }

    #[test]
    fn coordinators_are_local_and_their_errors_untouched() {
        for version in 0..=6 {
            check(api::FIND_COORDINATOR, version, |host, port| {
                let response = FindCoordinatorResponse::default();
                if version < 4 {
                    return response
                        .with_node_id(BrokerId(2))
                        .with_host(text(host))
                        .with_port(port);
                }
                let (tag, unknown) = UNKNOWN;
                let found = Coordinator::default()
                    .with_key(text("group"))
                    .with_node_id(BrokerId(2))
                    .with_host(text(host))
                    .with_port(port)
                    .with_unknown_tagged_field(tag, unknown);
                response.with_coordinators(vec![found.clone(), failed(), found])
            });
            let response_of = FindCoordinatorResponse::default();
            let failed = if version < 4 {
                response_of
                    .with_error_code(15)
                    .with_node_id(BrokerId(-1))
                    .with_port(-1)
            } else {
                response_of.with_coordinators(vec![failed()])
            };
            let frame = response(api::FIND_COORDINATOR, version, &failed);
            let mut seen = Local::default();
            let key = api::FIND_COORDINATOR;
            assert_eq!(rewrite(key, version, &frame, &mut seen), Ok(None));
            assert_eq!(seen, Local::default());
        }
    }

    fn failed() -> Coordinator {
        Coordinator::default()
            .with_key(text("other"))
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(15)
            .with_error_message(Some(text("not available")))
    }

    fn cluster(kind: i8, version: i16, host: &str, port: i32) -> DescribeClusterResponse {
        let (tag, unknown) = UNKNOWN;
        let mut broker = DescribeClusterBroker::default()
            .with_broker_id(BrokerId(2))
            .with_host(text(host))
            .with_port(port)
            .with_unknown_tagged_field(tag, unknown);
        broker.is_fenced = version >= 2;
        let mut cluster = DescribeClusterResponse::default()
            .with_cluster_id(text("cluster"))
            .with_brokers(vec![broker]);
        if version >= 1 {
            cluster.endpoint_type = kind;
        }
        cluster
    }

    #[test]
    fn described_clusters_are_local() {
        for version in 0..=2 {
            let seen = check(api::DESCRIBE_CLUSTER, version, |host, port| {
                cluster(1, version, host, port)
            });
            assert_eq!(
                (seen.complete, seen.cluster.as_deref()),
                (1, Some("cluster"))
            );
        }
    }

    #[test]
    fn controllers_are_no_brokers() {
        let mut seen = Local::default();
        let frame = response(api::DESCRIBE_CLUSTER, 2, &cluster(2, 2, REAL, 9092));
        assert_eq!(
            rewrite(api::DESCRIBE_CLUSTER, 2, &frame, &mut seen),
            Ok(None)
        );
        assert_eq!((seen.complete, seen.asked.len()), (0, 0));
    }

    fn produced(host: &str, port: i32) -> ProduceResponse {
        let (tag, unknown) = UNKNOWN;
        let leader = produce_response::LeaderIdAndEpoch::default().with_leader_id(BrokerId(2));
        let partition = produce_response::PartitionProduceResponse::default()
            .with_error_code(6)
            .with_error_message(Some(text("moved")))
            .with_current_leader(leader)
            .with_unknown_tagged_field(tag, unknown.clone());
        let topic = produce_response::TopicProduceResponse::default()
            .with_partition_responses(vec![partition; 2]);
        let endpoint = produce_response::NodeEndpoint::default()
            .with_node_id(BrokerId(2))
            .with_host(text(host))
            .with_port(port)
            .with_rack(Some(text("rack")))
            .with_unknown_tagged_field(tag, unknown.clone());
        ProduceResponse::default()
            .with_responses(vec![topic])
            .with_node_endpoints(vec![endpoint; 4])
            .with_unknown_tagged_field(tag, unknown)
    }

    #[test]
    fn produce_endpoints_are_local_and_their_size_is_right() {
        for version in 10..=13 {
            check(api::PRODUCE, version, produced);
        }
    }

    fn fetched(version: i16, count: usize, host: &str, port: i32) -> FetchResponse {
        let (tag, unknown) = UNKNOWN;
        let aborted = AbortedTransaction::default();
        let mut partition = PartitionData::default()
            .with_records(Some(Bytes::from(vec![7; 300])))
            .with_aborted_transactions(Some(vec![aborted; 2]));
        if version >= 12 {
            partition = partition
                .with_current_leader(LeaderIdAndEpoch::default().with_leader_epoch(5))
                .with_snapshot_id(SnapshotId::default().with_epoch(4))
                .with_unknown_tagged_field(tag, unknown.clone());
        }
        let mut topic = FetchableTopicResponse::default();
        if version >= 13 {
            topic.topic_id = ID.parse().unwrap();
        }
        topic.partitions = vec![
            partition.clone(),
            partition.with_records(None).with_aborted_transactions(None),
        ];
        let mut fetched = FetchResponse::default().with_responses(vec![topic; 2]);
        if version >= 12 {
            fetched.unknown_tagged_fields.insert(tag, unknown);
        }
        if version >= 16 {
            fetched.node_endpoints = vec![
                NodeEndpoint::default()
                    .with_node_id(BrokerId(2))
                    .with_host(text(host))
                    .with_port(port);
                count
            ];
        }
        fetched
    }

    #[test]
    fn fetch_endpoints_are_local() {
        for version in 16..=18 {
            check(api::FETCH, version, |host, port| {
                fetched(version, 2, host, port)
            });
        }
        for version in 4..16 {
            let frame = response(api::FETCH, version, &fetched(version, 0, REAL, 1));
            assert!(!rewrites(api::FETCH, version));
            let at = header::response_body_at(api::FETCH, version, &frame).unwrap();
            let message = message(api::FETCH, version).unwrap();
            assert_eq!(schema::walk(message, version, &frame, at, &mut ()), Ok(()));
        }
    }

    fn share_fetched(count: usize, host: &str, port: i32) -> ShareFetchResponse {
        use share_fetch_response::{
            AcquiredRecords, NodeEndpoint, PartitionData, ShareFetchableTopicResponse,
        };
        let (tag, unknown) = UNKNOWN;
        let partition = PartitionData::default()
            .with_records(Some(Bytes::from(vec![7; 300])))
            .with_acquired_records(vec![AcquiredRecords::default(); 2])
            .with_unknown_tagged_field(tag, unknown.clone());
        let topic = ShareFetchableTopicResponse::default()
            .with_topic_id(ID.parse().unwrap())
            .with_partitions(vec![partition; 2]);
        let endpoint = NodeEndpoint::default()
            .with_node_id(BrokerId(2))
            .with_host(text(host))
            .with_port(port)
            .with_unknown_tagged_field(tag, unknown.clone());
        ShareFetchResponse::default()
            .with_responses(vec![topic])
            .with_node_endpoints(vec![endpoint; count])
            .with_unknown_tagged_field(tag, unknown)
    }

    fn share_acknowledged(host: &str, port: i32) -> ShareAcknowledgeResponse {
        use share_acknowledge_response::{
            NodeEndpoint, PartitionData, ShareAcknowledgeTopicResponse,
        };
        let topic = ShareAcknowledgeTopicResponse::default()
            .with_topic_id(ID.parse().unwrap())
            .with_partitions(vec![PartitionData::default(); 2]);
        let endpoint = NodeEndpoint::default()
            .with_node_id(BrokerId(2))
            .with_host(text(host))
            .with_port(port);
        ShareAcknowledgeResponse::default()
            .with_responses(vec![topic])
            .with_node_endpoints(vec![endpoint])
    }

    #[test]
    fn share_endpoints_are_local() {
        check(api::SHARE_FETCH, 1, |host, port| {
            share_fetched(3, host, port)
        });
        check(api::SHARE_ACKNOWLEDGE, 1, share_acknowledged);
    }

    #[test]
    fn share_versions_beyond_the_crate_are_local_too() {
        // Responses of ShareFetch 2 are those of 1; ShareAcknowledge 2 has a
        // lock timeout after the error message.
        let with_timeout = |frame: &[u8]| {
            let at = header::response_body_at(api::SHARE_ACKNOWLEDGE, 2, frame).unwrap() + 7;
            [&frame[..at], &[0, 0, 0, 30], &frame[at..]].concat()
        };
        let acknowledged = |host, port| {
            with_timeout(&response(
                api::SHARE_ACKNOWLEDGE,
                1,
                &share_acknowledged(host, port),
            ))
        };
        let whole = rewrite(
            api::SHARE_ACKNOWLEDGE,
            2,
            &acknowledged(REAL, 9092),
            &mut Local::default(),
        );
        let whole = whole.unwrap().unwrap();
        assert_eq!(unframed(&whole), acknowledged("127.0.0.1", 19_095));
        let frame = response(api::SHARE_FETCH, 1, &share_fetched(1, REAL, 9092));
        let one = rewrite(api::SHARE_FETCH, 1, &frame, &mut Local::default());
        let two = rewrite(api::SHARE_FETCH, 2, &frame, &mut Local::default());
        assert_eq!(one, two);
    }

    #[test]
    fn versions_beyond_the_tables_are_refused() {
        for message in schema::ADDRESSED {
            let (api_key, version) = (message.api_key, message.newest + 1);
            assert_eq!(newest(api_key), message.newest);
            assert!(rewrites(api_key, version));
            let refused = rewrite(api_key, version, &[0; 99], &mut Local::default());
            assert_eq!(refused, Err(WireError::Unsupported { api_key, version }));
        }
        assert!(!rewrites(8, 3));
    }

    #[test]
    fn a_host_too_long_for_the_wire_is_an_error() {
        let frame = response(api::METADATA, 1, &metadata(1, REAL, 9092));
        let mut directory = Local::to(&"x".repeat(0x8000), 1);
        assert!(rewrite(api::METADATA, 1, &frame, &mut directory).is_err());
    }

    /// Where a scan that is fed in two pieces stops.
    fn scan(key: i16, version: i16, frame: &[u8], split: usize) -> usize {
        let mut scan = EndpointScan::new(key, version).unwrap();
        let first = scan.advance(&frame[..split]).unwrap();
        assert!(first <= split);
        let second = scan.advance(&frame[first..]).unwrap();
        assert!(scan.at_tail());
        assert_eq!(scan.advance(&frame[first + second..]), Ok(0));
        first + second
    }

    fn check_blank<T>(key: i16, version: i16, sent: &T, expected: &T, tags: impl Fn(&mut T))
    where
        T: Encodable + Decodable + PartialEq + Debug,
    {
        let frame = response(key, version, sent);
        let at = scan(key, version, &frame, 0);
        for split in 0..=frame.len() {
            assert_eq!(scan(key, version, &frame, split), at);
        }
        let mut blanked = frame.clone();
        blank(key, version, &mut blanked[at..]).unwrap();
        assert_eq!(blanked.len(), frame.len());
        assert!(!contains(&blanked, "kafka"));
        let mut decoded: T = decode(key, version, &blanked);
        tags(&mut decoded);
        assert_eq!(&decoded, expected);
        // The bytes that were forwarded before stay as they were.
        assert_eq!(blanked[..at], frame[..at]);
        for end in 0..frame.len() - at {
            let _ = blank(key, version, &mut frame[at..at + end].to_vec());
        }
    }

    #[test]
    fn blanked_fetches_have_no_endpoints_and_the_same_length() {
        for version in 16..=18 {
            for count in [0, 1, 2, 5] {
                for others in [vec![], vec![1], vec![127], vec![5, 126, 127, 300]] {
                    let mut sent = fetched(version, count, REAL, 9092);
                    for other in others {
                        sent.unknown_tagged_fields
                            .insert(other, Bytes::from_static(b"other"));
                    }
                    let mut expected = sent.clone();
                    expected.node_endpoints.clear();
                    check_blank(api::FETCH, version, &sent, &expected, |decoded| {
                        drop_filler(&mut decoded.unknown_tagged_fields);
                    });
                }
            }
        }
    }

    /// Found by fuzzing: the second one was left, with its addresses.
    #[test]
    fn endpoints_that_come_twice_are_refused() {
        let content = &[1, 2, 0, 0, 0, 7, 2, b'b', 0, 0, 1, 2, 0, 0];
        let field = |tag| [&[tag, 14], &content[..]].concat();
        let tail = |tags: &[u8]| {
            let fields = tags.iter().flat_map(|tag| field(*tag));
            let count = u8::try_from(tags.len()).unwrap();
            std::iter::once(count).chain(fields).collect::<Vec<_>>()
        };
        for tags in [&[0, 0][..], &[0, 1, 0]] {
            let refused = blank(api::FETCH, 16, &mut tail(tags));
            assert!(
                matches!(refused, Err(WireError::Malformed { .. })),
                "{refused:?}"
            );
        }
        // Others may.
        assert_eq!(blank(api::FETCH, 16, &mut tail(&[0, 1, 1])), Ok(()));
    }

    #[test]
    fn blanked_share_fetches_have_no_endpoints_and_the_same_length() {
        for count in [0, 1, 2, 3, 200] {
            for host in 5..140 {
                let mut sent = share_fetched(count, &REAL.repeat(5)[..host], 9092);
                if host % 2 == 0 {
                    for other in [1, 127, 300] {
                        sent.unknown_tagged_fields
                            .insert(other, Bytes::from_static(b"other"));
                    }
                }
                if count == 200 && host > 6 {
                    break;
                }
                let mut expected = sent.clone();
                expected.node_endpoints.clear();
                if host > 10 && host % 17 != 0 {
                    // Every split of every length would take minutes.
                    let frame = response(api::SHARE_FETCH, 1, &sent);
                    let mut blanked = frame.clone();
                    let at = scan(api::SHARE_FETCH, 2, &frame, 0);
                    blank(api::SHARE_FETCH, 2, &mut blanked[at..]).unwrap();
                    let mut decoded: ShareFetchResponse = decode(api::SHARE_FETCH, 1, &blanked);
                    drop_filler(&mut decoded.unknown_tagged_fields);
                    assert_eq!(decoded, expected);
                    continue;
                }
                check_blank(api::SHARE_FETCH, 1, &sent, &expected, |decoded| {
                    drop_filler(&mut decoded.unknown_tagged_fields);
                });
            }
        }
    }

    /// Removes the one field that is all zeros, if there is one.
    fn drop_filler(fields: &mut std::collections::BTreeMap<i32, Bytes>) {
        fields.retain(|_, content| content.iter().any(|byte| *byte != 0));
    }

    #[test]
    fn tags_stay_in_ascending_order() {
        let mut tail = vec![4, 0, 2, 9, 9, 1, 1, 7, 127, 1, 8, 0xac, 2, 1, 6];
        blank(api::FETCH, 16, &mut tail).unwrap();
        assert_eq!(tail, [4, 1, 1, 7, 126, 2, 0, 0, 127, 1, 8, 0xac, 2, 1, 6]);
        // A tag written longer than it has to be keeps its length.
        let mut tail = vec![1, 0x80, 0, 2, 9, 9];
        blank(api::FETCH, 16, &mut tail).unwrap();
        assert_eq!(tail, [1, 0xff, 0, 2, 0, 0]);
    }

    #[test]
    fn fillers_fit_every_room() {
        for room in 1..70_000 {
            let (size, width) = filler(room).unwrap();
            assert_eq!(usize::try_from(size).unwrap() + width, room);
            let mut bytes = vec![0xee; width];
            put_padded(&mut bytes, width, size);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.varint("a size"), Ok(size));
            assert_eq!(cursor.left(), 0);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..7, version in -1i16..20,
        ) {
            let key = schema::ADDRESSED[at].api_key;
            let mut seen = Local::default();
            let _ = rewrite(key, version, &bytes, &mut seen);
            prop_assert!(seen.asked.len() <= bytes.len());
            let scanned = EndpointScan::new(key, version).and_then(|mut s| s.advance(&bytes));
            prop_assert!(scanned.unwrap_or(0) <= bytes.len());
            let _ = blank(key, version, &mut bytes.clone());
        }

        #[test]
        fn no_flipped_byte_makes_it_panic(at in any::<prop::sample::Index>(), byte: u8) {
            let frames = [
                (api::METADATA, 13, response(3, 13, &metadata(13, REAL, 9092))),
                (api::METADATA, 5, response(3, 5, &metadata(5, REAL, 9092))),
                (api::PRODUCE, 13, response(0, 13, &produced(REAL, 9092))),
                (api::FETCH, 18, response(1, 18, &fetched(18, 2, REAL, 9092))),
                (api::SHARE_FETCH, 1, response(78, 1, &share_fetched(2, REAL, 9092))),
            ];
            for (key, version, mut frame) in frames {
                let place = at.index(frame.len());
                frame[place] = byte;
                let _ = rewrite(key, version, &frame, &mut Local::default());
                let tail = frame.len().saturating_sub(200);
                let _ = blank(key, version, &mut frame[tail..]);
            }
        }
    }
}
