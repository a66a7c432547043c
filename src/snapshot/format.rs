//! The bytes of a snapshot. Pure.
//!
//! ```text
//!  0  "HAPAXSNP"                      who wrote it
//!  8  version, u32                    how the rest is to be read
//! 12  head                            when, of which cluster, behind which ports
//!     record …                        a byte that says which, and its fields
//!     0                               no record follows
//!     length of everything, u64      ┐ a file that was cut, or that grew,
//!     CRC-32C of all before it, u32  ┘ is told from one that was changed
//! ```
//!
//! Fixed numbers are little-endian. The others are of seven bits a byte, the
//! lowest first; those that may be negative are folded (0, −1, 1, −2 …). Texts
//! are their length and UTF-8. A record that others speak of (an identity, a
//! topic) stands before them, and is spoken of by its number. The facts of a
//! window are in order, each told as its distance from the one before.
//!
//! Nothing is allocated by a number that was read: a list grows by what is
//! there.

use std::num::NonZeroU32;

use crate::ids::{Epoch, NodeId, ProducerId, Sequence, TopicId};
use crate::ledger::Identity;

/// What a snapshot begins with.
const MAGIC: &[u8; 8] = b"HAPAXSNP";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Magic and version.
const PREAMBLE: usize = 12;
/// Length and checksum at the end.
const TRAILER: usize = 12;
/// The longest text: a topic has 249 letters, a user as many as it likes.
const TEXT_MAX: usize = 4096;
/// Facts of one window, as `sequence.windowBatches` allows.
const FACTS_MAX: usize = 1024;

const END: u8 = 0;
const SLOT: u8 = 1;
const TOTAL: u8 = 2;
const ANONYMOUS: u8 = 3;
const USER: u8 = 4;
const LOCAL: u8 = 5;
const TOPIC: u8 = 6;
const WINDOW: u8 = 7;

/// When something was, by the clocks that outlive a process.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stamp {
    /// Milliseconds since 1970, by the clock on the wall.
    pub wall_ms: u64,
    /// The machine's own clock, where it has one that can be read.
    pub boot: Option<Boot>,
}

/// The time of one machine since it was started: nobody sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boot {
    /// Which start of which machine.
    pub id: String,
    /// Milliseconds since then.
    pub up_ms: u64,
}

/// What all records share.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Head {
    /// When the snapshot was begun; nothing in it is older than it says.
    pub written: Stamp,
    /// The cluster that acknowledged the facts.
    pub cluster_id: String,
    /// Where clients bootstrapped (SEMANTICS 7.3, A5).
    pub listen: String,
    /// First and last port for brokers.
    pub broker_ports: (u16, u16),
    /// Seconds since 1970 at which the totals began.
    pub totals_since: u64,
    /// Processes that the totals are of.
    pub starts: u64,
}

/// A topic incarnation that windows are of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicRecord {
    /// Its name, where it was known.
    pub name: Option<String>,
    /// Its id, where it was known.
    pub id: Option<TopicId>,
}

/// The facts of one producer on one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowRecord {
    /// The producer.
    pub producer: ProducerId,
    /// The number of its topic.
    pub topic: usize,
    /// The partition.
    pub partition: i32,
    /// The number of the identity whose batches they are.
    pub identity: usize,
    /// The epoch of every fact.
    pub epoch: Epoch,
    /// Where the log began, where the cluster said so.
    pub log_start: Option<i64>,
    /// Duplicates that were answered.
    pub absorbed: u32,
    /// Gaps that were flagged.
    pub gaps: u16,
    /// The facts, oldest first; at least one.
    pub facts: Vec<FactRecord>,
}

/// A batch that all in-sync replicas acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FactRecord {
    /// Sequence of its first record.
    pub first: Sequence,
    /// Sequence numbers it takes, `1 <= count < 2^31`.
    pub count: u32,
    /// CRC-32C from its header.
    pub crc: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Offset of its first record.
    pub offset: i64,
    /// The broker's append time in milliseconds, −1 on CreateTime topics.
    pub append_time: i64,
    /// Seconds from its acknowledgement to [`Head::written`], rounded up.
    pub age_s: u32,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A broker had this port.
    Slot(NodeId, u16),
    /// A counter had come to this.
    Total(String, u64),
    /// The next identity.
    Identity(Identity),
    /// The next topic.
    Topic(TopicRecord),
    /// A window.
    Window(WindowRecord),
}

/// Why bytes are no snapshot that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Flaw {
    /// Somebody else wrote it.
    #[error("it is no snapshot of hapax")]
    Foreign,
    /// A hapax wrote it that knows more, or less.
    #[error("it has format {0}, and this hapax reads format {VERSION}")]
    Version(u32),
    /// It was cut, or grew.
    #[error("it has {is} bytes and was written with {said}")]
    Length {
        /// Its bytes.
        is: u64,
        /// What it says itself.
        said: u64,
    },
    /// Too short to say anything.
    #[error("it ends after {0} bytes")]
    Short(usize),
    /// Something in it was changed.
    #[error("its checksum is not that of its contents")]
    Checksum,
    /// Its checksum is right and it makes no sense.
    #[error("{what} at byte {at} makes no sense")]
    Malformed {
        /// What it should have been.
        what: &'static str,
        /// Where it is.
        at: usize,
    },
}

/// Writes a snapshot record by record.
pub struct Encoder {
    /// What has not been taken yet.
    bytes: Vec<u8>,
    taken: u64,
    crc: u32,
}

impl Encoder {
    /// Begins with the head.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        let mut own = Self {
            bytes: Vec::new(),
            taken: 0,
            crc: 0,
        };
        own.bytes.extend(MAGIC);
        own.bytes.extend(VERSION.to_le_bytes());
        own.number(head.written.wall_ms);
        match &head.written.boot {
            Some(boot) => {
                own.byte(1);
                own.text(&boot.id);
                own.number(boot.up_ms);
            }
            None => own.byte(0),
        }
        own.text(&head.cluster_id);
        own.text(&head.listen);
        own.number(u64::from(head.broker_ports.0));
        own.number(u64::from(head.broker_ports.1));
        own.number(head.totals_since);
        own.number(head.starts);
        own
    }

    /// Adds a record. What a record may not hold ([`Decoder`] would refuse
    /// it) is left out: returns whether it was taken in.
    pub fn record(&mut self, record: &Record) -> bool {
        match record {
            Record::Slot(node, port) => self.slot(*node, *port),
            Record::Total(name, count) => return self.total(name, *count),
            Record::Identity(identity) => return self.identity(identity),
            Record::Topic(topic) => return self.topic(topic),
            Record::Window(window) => return self.window(window),
        }
        true
    }

    fn slot(&mut self, node: NodeId, port: u16) {
        self.byte(SLOT);
        self.number(u64::from(node.to_wire().cast_unsigned()));
        self.number(u64::from(port));
    }

    fn total(&mut self, name: &str, count: u64) -> bool {
        if name.len() > TEXT_MAX {
            return false;
        }
        self.byte(TOTAL);
        self.text(name);
        self.number(count);
        true
    }

    fn identity(&mut self, identity: &Identity) -> bool {
        let fits = |text: &String| text.len() <= TEXT_MAX;
        match identity {
            Identity::Anonymous => self.byte(ANONYMOUS),
            Identity::User { mechanism, user } if fits(mechanism) && fits(user) => {
                self.byte(USER);
                self.text(mechanism);
                self.text(user);
            }
            Identity::Local { mechanism } if fits(mechanism) => {
                self.byte(LOCAL);
                self.text(mechanism);
            }
            Identity::User { .. } | Identity::Local { .. } | Identity::Unproven => return false,
        }
        true
    }

    fn topic(&mut self, topic: &TopicRecord) -> bool {
        let name = topic.name.as_deref();
        if name.is_some_and(|name| name.len() > TEXT_MAX) || (name.is_none() && topic.id.is_none())
        {
            return false;
        }
        self.byte(TOPIC);
        self.byte(u8::from(name.is_some()) | u8::from(topic.id.is_some()) << 1);
        if let Some(name) = name {
            self.text(name);
        }
        if let Some(id) = topic.id {
            self.bytes.extend(id.to_wire());
        }
        true
    }

    /// The same as [`Self::record`] with [`Record::Window`].
    pub fn window(&mut self, window: &WindowRecord) -> bool {
        if window.facts.is_empty() || window.facts.len() > FACTS_MAX {
            return false;
        }
        self.byte(WINDOW);
        self.number(window.producer.to_wire().cast_unsigned());
        self.number(window.topic as u64);
        self.signed(window.partition.into());
        self.number(window.identity as u64);
        self.signed(window.epoch.0.into());
        self.signed(window.log_start.unwrap_or(-1));
        self.number(u64::from(window.absorbed));
        self.number(u64::from(window.gaps));
        self.number(window.facts.len() as u64);
        let mut last = (0_i64, 0_i64, 0_i64);
        for fact in &window.facts {
            let this = (
                i64::from(fact.first.to_wire()),
                fact.offset,
                fact.append_time,
            );
            self.signed(this.0 - last.0);
            self.number(u64::from(fact.count));
            self.bytes.extend(fact.crc.to_le_bytes());
            self.number(u64::from(fact.len));
            self.signed(this.1.wrapping_sub(last.1));
            self.signed(this.2.wrapping_sub(last.2));
            self.number(u64::from(fact.age_s));
            last = this;
        }
        true
    }

    /// How many bytes wait to be taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Hands over what there is by now, and goes on.
    pub fn take(&mut self, buffer: &mut Vec<u8>) {
        self.crc = crc32c::crc32c_append(self.crc, &self.bytes);
        self.taken += self.bytes.len() as u64;
        buffer.clear();
        std::mem::swap(buffer, &mut self.bytes);
    }

    /// The rest.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.byte(END);
        let length = self.taken + (self.bytes.len() + TRAILER) as u64;
        self.bytes.extend(length.to_le_bytes());
        let crc = crc32c::crc32c_append(self.crc, &self.bytes);
        self.bytes.extend(crc.to_le_bytes());
        self.bytes
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            let [low, ..] = number.to_le_bytes();
            self.bytes.push(low | 0x80);
            number >>= 7;
        }
        let [low, ..] = number.to_le_bytes();
        self.bytes.push(low);
    }

    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }
}

/// Reads a snapshot record by record.
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    identities: usize,
    topics: usize,
    head: Head,
}

impl<'a> Decoder<'a> {
    /// Finds out whether the bytes are a whole snapshot, and reads its head.
    ///
    /// # Errors
    ///
    /// Where they are none.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Flaw> {
        let Some((preamble, _)) = bytes.split_first_chunk::<PREAMBLE>() else {
            return Err(match MAGIC.starts_with(bytes) || bytes.starts_with(MAGIC) {
                true => Flaw::Short(bytes.len()),
                false => Flaw::Foreign,
            });
        };
        let [magic @ .., a, b, c, d] = preamble;
        if magic != MAGIC {
            return Err(Flaw::Foreign);
        }
        let version = u32::from_le_bytes([*a, *b, *c, *d]);
        if version != VERSION {
            return Err(Flaw::Version(version));
        }
        let short = Flaw::Short(bytes.len());
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(short)?;
        let (records, said) = body.split_last_chunk::<8>().ok_or(short)?;
        if records.len() < PREAMBLE {
            return Err(short);
        }
        let (is, said) = (bytes.len() as u64, u64::from_le_bytes(*said));
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(match is == said {
                true => Flaw::Checksum,
                false => Flaw::Length { is, said },
            });
        }
        if is != said {
            return Err(Flaw::Length { is, said });
        }
        let mut own = Self {
            bytes: records,
            at: PREAMBLE,
            identities: 0,
            topics: 0,
            head: Head::default(),
        };
        own.head = own.read_head()?;
        Ok(own)
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next record; `None` after the last.
    ///
    /// # Errors
    ///
    /// Where it makes no sense.
    pub fn record(&mut self) -> Result<Option<Record>, Flaw> {
        let at = self.at;
        Ok(Some(match self.byte("a record")? {
            END if self.at == self.bytes.len() => return Ok(None),
            SLOT => Record::Slot(self.node()?, self.port("a port")?),
            TOTAL => Record::Total(self.text("a counter's name")?, self.number("a count")?),
            ANONYMOUS => self.identity(Identity::Anonymous),
            USER => {
                let mechanism = self.text("a mechanism")?;
                let user = self.text("a user")?;
                self.identity(Identity::User { mechanism, user })
            }
            LOCAL => {
                let mechanism = self.text("a mechanism")?;
                self.identity(Identity::Local { mechanism })
            }
            TOPIC => Record::Topic(self.topic()?),
            WINDOW => Record::Window(self.window()?),
            _ => return Err(malformed("a record", at)),
        }))
    }

    fn read_head(&mut self) -> Result<Head, Flaw> {
        let wall_ms = self.number("a time")?;
        let at = self.at;
        let boot = match self.byte("a clock")? {
            0 => None,
            1 => Some(Boot {
                id: self.text("a machine's start")?,
                up_ms: self.number("a time")?,
            }),
            _ => return Err(malformed("a clock", at)),
        };
        Ok(Head {
            written: Stamp { wall_ms, boot },
            cluster_id: self.text("a cluster")?,
            listen: self.text("an address")?,
            broker_ports: (self.port("a port")?, self.port("a port")?),
            totals_since: self.number("a time")?,
            starts: self.number("a count")?,
        })
    }

    fn identity(&mut self, identity: Identity) -> Record {
        self.identities += 1;
        Record::Identity(identity)
    }

    fn topic(&mut self) -> Result<TopicRecord, Flaw> {
        let at = self.at;
        let has = self.byte("a topic")?;
        if !(1..=3).contains(&has) {
            return Err(malformed("a topic", at));
        }
        let name = (has & 1 != 0).then(|| self.text("a topic's name"));
        let name = name.transpose()?;
        let at = self.at;
        let id = (has & 2 != 0).then(|| self.chunk::<16>("a topic's id"));
        let id = id.transpose()?.map(TopicId::from_wire);
        if id == Some(None) {
            return Err(malformed("a topic's id", at));
        }
        self.topics += 1;
        let id = id.flatten();
        Ok(TopicRecord { name, id })
    }

    fn window(&mut self) -> Result<WindowRecord, Flaw> {
        let at = self.at;
        let bad = |what| malformed(what, at);
        let producer = self.number("a producer")?.cast_signed();
        let producer = ProducerId::from_wire(producer).ok_or_else(|| bad("a producer"))?;
        let topic = self.index("a topic's number", self.topics)?;
        let partition = self.narrow(Self::signed, "a partition")?;
        let identity = self.index("an identity's number", self.identities)?;
        let epoch = Epoch(self.narrow(Self::signed, "an epoch")?);
        let log_start = Some(self.signed("a log's start")?).filter(|start| *start >= 0);
        let absorbed = self.narrow(Self::number, "a count")?;
        let gaps = self.narrow(Self::number, "a count")?;
        let count = self.index("a number of facts", FACTS_MAX + 1)?;
        if count == 0 {
            return Err(bad("a window without facts"));
        }
        let mut facts = Vec::new();
        let mut last = (0_i64, 0_i64, 0_i64);
        for _ in 0..count {
            let fact = self.fact(last)?;
            last = (
                i64::from(fact.first.to_wire()),
                fact.offset,
                fact.append_time,
            );
            facts.push(fact);
        }
        Ok(WindowRecord {
            producer,
            topic,
            partition,
            identity,
            epoch,
            log_start,
            absorbed,
            gaps,
            facts,
        })
    }

    fn fact(&mut self, last: (i64, i64, i64)) -> Result<FactRecord, Flaw> {
        let at = self.at;
        let first = last.0.checked_add(self.signed("a sequence")?);
        let first = first.and_then(|first| Sequence::from_wire(i32::try_from(first).ok()?));
        let first = first.ok_or_else(|| malformed("a sequence", at))?;
        let at = self.at;
        let count: i32 = self.narrow(Self::number, "a count")?;
        let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
        let count = count.ok_or_else(|| malformed("a count", at))?.get();
        let crc = u32::from_le_bytes(self.chunk("a checksum")?);
        let len = self.narrow(Self::number, "a length")?;
        let at = self.at;
        let offset = last.1.wrapping_add(self.signed("an offset")?);
        if offset < 0 {
            return Err(malformed("an offset", at));
        }
        let at = self.at;
        let append_time = last.2.wrapping_add(self.signed("a time")?);
        if append_time < -1 {
            return Err(malformed("a time", at));
        }
        let age_s = self.narrow(Self::number, "an age")?;
        Ok(FactRecord {
            first,
            count,
            crc,
            len,
            offset,
            append_time,
            age_s,
        })
    }

    fn node(&mut self) -> Result<NodeId, Flaw> {
        let at = self.at;
        let raw = self.narrow(Self::number, "a node id")?;
        NodeId::from_wire(raw).ok_or_else(|| malformed("a node id", at))
    }

    fn port(&mut self, what: &'static str) -> Result<u16, Flaw> {
        self.narrow(Self::number, what)
    }

    /// A number below `limit`.
    fn index(&mut self, what: &'static str, limit: usize) -> Result<usize, Flaw> {
        let at = self.at;
        let index: usize = self.narrow(Self::number, what)?;
        (index < limit)
            .then_some(index)
            .ok_or_else(|| malformed(what, at))
    }

    /// A number of fewer bits.
    fn narrow<W, N: TryFrom<W>>(
        &mut self,
        read: fn(&mut Self, &'static str) -> Result<W, Flaw>,
        what: &'static str,
    ) -> Result<N, Flaw> {
        let at = self.at;
        N::try_from(read(self, what)?).map_err(|_| malformed(what, at))
    }

    fn signed(&mut self, what: &'static str) -> Result<i64, Flaw> {
        let folded = self.number(what)?;
        Ok((folded >> 1).cast_signed() ^ -((folded & 1).cast_signed()))
    }

    fn number(&mut self, what: &'static str) -> Result<u64, Flaw> {
        let at = self.at;
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.byte(what)?);
            let part = byte & 0x7f;
            if (part << shift) >> shift != part {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(malformed(what, at))
    }

    fn text(&mut self, what: &'static str) -> Result<String, Flaw> {
        let at = self.at;
        let len = self.index(what, TEXT_MAX + 1)?;
        let bytes = self.bytes.get(self.at..self.at + len);
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| malformed(what, at))?;
        self.at += len;
        Ok(text.to_owned())
    }

    fn chunk<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Flaw> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let chunk = rest
            .first_chunk::<N>()
            .ok_or_else(|| malformed(what, self.at))?;
        self.at += N;
        Ok(*chunk)
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, Flaw> {
        let [byte] = self.chunk(what)?;
        Ok(byte)
    }
}

fn malformed(what: &'static str, at: usize) -> Flaw {
    Flaw::Malformed { what, at }
}

/// A snapshot as a whole, for tests and tools.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Its head.
    pub head: Head,
    /// Its records, those that others speak of before them.
    pub records: Vec<Record>,
}

/// The bytes of a snapshot. Records that no snapshot may hold are left out.
#[must_use]
pub fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut encoder = Encoder::new(&snapshot.head);
    for record in &snapshot.records {
        let _ = encoder.record(record);
    }
    encoder.finish()
}

/// The snapshot that these bytes are.
///
/// # Errors
///
/// Where they are none.
pub fn decode(bytes: &[u8]) -> Result<Snapshot, Flaw> {
    let mut decoder = Decoder::new(bytes)?;
    let mut records = Vec::new();
    while let Some(record) = decoder.record()? {
        records.push(record);
    }
    let head = decoder.head;
    Ok(Snapshot { head, records })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn fact() -> impl Strategy<Value = FactRecord> {
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>());
        (
            0..=i32::MAX,
            1..=i32::MAX,
            0..=i64::MAX,
            -1..=i64::MAX,
            numbers,
        )
            .prop_map(|(first, count, offset, append_time, (crc, len, age_s))| {
                FactRecord {
                    first: Sequence::from_wire(first).unwrap(),
                    count: count.cast_unsigned(),
                    crc,
                    len,
                    offset,
                    append_time,
                    age_s,
                }
            })
    }

    fn identity() -> impl Strategy<Value = Identity> {
        prop_oneof![
            Just(Identity::Anonymous),
            (".{0,9}", ".{0,9}").prop_map(|(mechanism, user)| Identity::User { mechanism, user }),
            ".{0,9}".prop_map(|mechanism| Identity::Local { mechanism }),
        ]
    }

    fn topic() -> impl Strategy<Value = TopicRecord> {
        let id = any::<[u8; 16]>().prop_filter_map("no id", TopicId::from_wire);
        (option::of(".{1,9}"), option::of(id))
            .prop_filter("nothing", |(name, id)| name.is_some() || id.is_some())
            .prop_map(|(name, id)| TopicRecord { name, id })
    }

    fn window(topics: usize, identities: usize) -> impl Strategy<Value = Record> {
        let place = (0..=i64::MAX, 0..topics, any::<i32>(), 0..identities);
        let rest = (any::<i16>(), option::of(0..=i64::MAX), any::<(u32, u16)>());
        (place, rest, vec(fact(), 1..7)).prop_map(
            |((producer, topic, partition, identity), (epoch, log_start, seen), facts)| {
                Record::Window(WindowRecord {
                    producer: ProducerId::from_wire(producer).unwrap(),
                    topic,
                    partition,
                    identity,
                    epoch: Epoch(epoch),
                    log_start,
                    absorbed: seen.0,
                    gaps: seen.1,
                    facts,
                })
            },
        )
    }

    fn head() -> impl Strategy<Value = Head> {
        let boot = (".{0,9}", any::<u64>()).prop_map(|(id, up_ms)| Boot { id, up_ms });
        let written = (any::<u64>(), option::of(boot));
        (written, ".{0,9}", ".{0,9}", any::<(u16, u16, u64, u64)>()).prop_map(
            |((wall_ms, boot), cluster_id, listen, (first, last, totals_since, starts))| Head {
                written: Stamp { wall_ms, boot },
                cluster_id,
                listen,
                broker_ports: (first, last),
                totals_since,
                starts,
            },
        )
    }

    fn snapshot() -> impl Strategy<Value = Snapshot> {
        let total = (".{0,9}", any::<u64>()).prop_map(|(name, n)| Record::Total(name, n));
        let slot = (0..=i32::MAX, any::<u16>())
            .prop_map(|(node, port)| Record::Slot(NodeId::from_wire(node).unwrap(), port));
        let named = (vec(topic(), 1..4), vec(identity(), 1..4));
        (head(), vec(total, 0..3), vec(slot, 0..3), named).prop_flat_map(
            |(head, totals, slots, (topics, identities))| {
                let windows = vec(window(topics.len(), identities.len()), 0..6);
                windows.prop_map(move |windows| Snapshot {
                    head: head.clone(),
                    records: [
                        totals.clone(),
                        slots.clone(),
                        topics.iter().cloned().map(Record::Topic).collect(),
                        identities.iter().cloned().map(Record::Identity).collect(),
                        windows,
                    ]
                    .concat(),
                })
            },
        )
    }

    /// Bytes whose checksum and length are right, whatever they are.
    fn sealed(records: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(records);
        let length = (bytes.len() + TRAILER) as u64;
        bytes.extend(length.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(snapshot in snapshot()) {
            prop_assert_eq!(decode(&encode(&snapshot)).unwrap(), snapshot);
        }

        #[test]
        fn it_is_the_same_in_parts(snapshot in snapshot(), every in 1..200_usize) {
            let mut encoder = Encoder::new(&snapshot.head);
            let (mut bytes, mut part) = (Vec::new(), Vec::new());
            for record in &snapshot.records {
                prop_assert!(encoder.record(record));
                if encoder.waiting() >= every {
                    encoder.take(&mut part);
                    bytes.extend(&part);
                }
            }
            bytes.extend(encoder.finish());
            prop_assert_eq!(bytes, encode(&snapshot));
        }

        #[test]
        fn no_byte_can_be_another(
            snapshot in snapshot(), at in any::<prop::sample::Index>(), other in 1..=255_u8,
        ) {
            let mut bytes = encode(&snapshot);
            let at = at.index(bytes.len());
            bytes[at] ^= other;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn nothing_can_be_cut_off_or_added(
            snapshot in snapshot(), at in any::<prop::sample::Index>(), more in vec(any::<u8>(), 1..40),
        ) {
            let bytes = encode(&snapshot);
            prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
            prop_assert!(decode(&[&bytes, more.as_slice()].concat()).is_err());
            prop_assert!(decode(&bytes.repeat(2)).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&bytes).is_err());
        }

        /// The checksum is right, as if somebody had meant it.
        #[test]
        fn no_contents_make_it_panic_or_grow(bytes in vec(any::<u8>(), 0..300)) {
            let bytes = sealed(&bytes);
            if let Ok(snapshot) = decode(&bytes) {
                prop_assert!(snapshot.records.len() <= bytes.len());
                prop_assert_eq!(decode(&encode(&snapshot)).unwrap(), snapshot);
            }
        }

        #[test]
        fn no_change_of_the_contents_makes_it_panic_or_grow(
            snapshot in snapshot(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let bytes = encode(&snapshot);
            let mut records = bytes[PREAMBLE..bytes.len() - TRAILER].to_vec();
            for (at, byte) in changes {
                let at = at.index(records.len());
                records[at] = byte;
            }
            let bytes = sealed(&records);
            if let Ok(read) = decode(&bytes) {
                prop_assert!(read.records.len() <= bytes.len());
                prop_assert_eq!(decode(&encode(&read)).unwrap(), read);
            }
        }
    }

    #[test]
    fn each_flaw_is_told_for_what_it_is() {
        let whole = encode(&Snapshot::default());
        let mut newer = whole.clone();
        newer[8] = 9;
        let mut changed = whole.clone();
        changed[PREAMBLE] ^= 1;
        let cut = &whole[..whole.len() - 1];
        for (bytes, says) in [
            (&b"PK\x03\x04 some other file"[..], "no snapshot of hapax"),
            (b"", "ends after 0 bytes"),
            (&whole[..10], "ends after 10 bytes"),
            (&newer, "it has format 9, and this hapax reads format 1"),
            (&changed, "its checksum"),
            (cut, "bytes and was written with"),
        ] {
            let flaw = decode(bytes).unwrap_err().to_string();
            assert!(flaw.contains(says), "{flaw}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_written() {
        let long = "x".repeat(TEXT_MAX + 1);
        let window = |facts| {
            Record::Window(WindowRecord {
                producer: ProducerId::from_wire(1).unwrap(),
                topic: 0,
                partition: 0,
                identity: 0,
                epoch: Epoch(0),
                log_start: None,
                absorbed: 0,
                gaps: 0,
                facts,
            })
        };
        let snapshot = Snapshot {
            head: Head::default(),
            records: vec![
                Record::Total(long.clone(), 1),
                Record::Identity(Identity::Unproven),
                Record::Identity(Identity::Local {
                    mechanism: long.clone(),
                }),
                Record::Topic(TopicRecord {
                    name: Some(long),
                    id: None,
                }),
                Record::Topic(TopicRecord {
                    name: None,
                    id: None,
                }),
                window(Vec::new()),
            ],
        };
        assert_eq!(decode(&encode(&snapshot)).unwrap().records, []);
    }
}
