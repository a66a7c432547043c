//! The layouts of the messages that are not walked by hand, as tables.
//!
//! `tests/schemas.rs` holds every table equal to the schemas that Kafka's own
//! client is generated from, field by field and version by version.

mod tables;

use std::ops::Range;

use super::WireError;
use super::cursor::Cursor;

pub use tables::{ADDRESSED, CLAIMS, OUTCOMES, PRODUCE_RESPONSE};

/// A message: its versions and its fields.
#[derive(Debug)]
pub struct Message {
    /// Its name in Kafka's schemas.
    pub name: &'static str,
    /// Which api it belongs to.
    pub api_key: i16,
    /// The oldest version that the table covers.
    pub oldest: i16,
    /// The newest version that the table covers, `oldest <= newest`.
    pub newest: i16,
    /// The first version with compact lengths and tagged fields.
    pub flexible: i16,
    /// Its fields in the order of the wire.
    pub fields: &'static [Field],
}

/// One field and the versions that have it.
#[derive(Debug)]
pub struct Field {
    /// Its name in Kafka's schemas.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// The first version that has it.
    pub since: i16,
    /// The last version that has it.
    pub until: i16,
    /// Its tag, where it is a tagged field in all its versions.
    pub tag: Option<u32>,
    /// What it means to hapax.
    pub role: Role,
}

/// How a field is written. Whether it may be null is not said: null is read
/// wherever the encoding has it.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// One byte.
    Bool,
    /// One byte.
    Int8,
    /// Two bytes.
    Int16,
    /// Four bytes.
    Int32,
    /// Eight bytes.
    Int64,
    /// Sixteen bytes.
    Uuid,
    /// A length and as many bytes of text.
    String,
    /// A length and as many bytes that are never looked at.
    Records,
    /// A length and as many int32.
    Int32s,
    /// Fields in place.
    Struct(&'static [Field]),
    /// A length and as many structs.
    Array(&'static [Field]),
}

/// What a field means to hapax.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is what its name says")]
pub enum Role {
    Other,
    Node,
    Host,
    Port,
    Brokers,
    Endpoints,
    ClusterId,
    EndpointType,
    Error,
    Topics,
    TopicError,
    TopicName,
    TopicId,
    Partitions,
    TransactionalId,
    Producer,
    Epoch,
}

impl Field {
    const fn new(name: &'static str, kind: Kind, since: i16) -> Self {
        Self {
            name,
            kind,
            since,
            until: i16::MAX,
            tag: None,
            role: Role::Other,
        }
    }

    const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    const fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    fn exists(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }
}

/// The value of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// Of an integer or a bool.
    Int(i64),
    /// Of a UUID.
    Uuid([u8; 16]),
    /// Of a string, not checked to be UTF-8.
    Bytes(Option<&'a [u8]>),
}

/// Who is told what a [`Walk`] finds. Places are offsets in the frame.
pub trait Visitor<'a> {
    /// Whether strings are wanted; where not they are passed like records, and
    /// need not be whole.
    const STRINGS: bool = true;

    /// A leaf, and where it is with its length.
    fn leaf(
        &mut self,
        _field: &'static Field,
        _at: Range<usize>,
        _value: Value<'a>,
    ) -> Result<(), WireError> {
        Ok(())
    }
    /// An array begins; `at` is its length.
    fn open(&mut self, _field: &'static Field, _at: Range<usize>, _count: usize) {}
    /// An array has ended.
    fn close(&mut self, _field: &'static Field, _at: usize) {}
    /// A known tagged field begins; `at` is its size.
    fn tagged(&mut self, _at: Range<usize>) {}
    /// A known tagged field has ended.
    fn untagged(&mut self, _at: usize) {}
}

/// Skims: wants nothing.
impl Visitor<'_> for () {
    const STRINGS: bool = false;
}

/// A walk over the body of a message whose bytes may arrive in pieces.
///
/// Leaves are consumed whole; records, and what the visitor does not want, are
/// passed by count, so that no step needs more than a few bytes at once.
#[derive(Clone, Debug)]
pub struct Walk {
    version: i16,
    flexible: bool,
    /// The place in the frame.
    at: usize,
    /// Bytes to pass before the next element.
    skip: usize,
    /// What encloses the next element, outermost first; `depth <= DEPTH`.
    stack: [Level; DEPTH],
    depth: usize,
}

/// The deepest nesting of any table, with the levels of its tagged fields.
const DEPTH: usize = 10;

#[derive(Clone, Copy, Debug)]
enum Level {
    /// The rest of a struct's fields, then its tagged ones.
    Fields { all: &'static [Field], next: usize },
    /// The tagged fields of a struct that are left.
    Tags { all: &'static [Field], left: u32 },
    /// The elements of an array that are left.
    Items {
        field: &'static Field,
        all: &'static [Field],
        left: usize,
    },
    /// The value of a tagged field.
    Tagged { field: &'static Field },
    /// The end of a tagged field.
    Ends { at: usize },
}

impl Walk {
    /// A walk of `message` whose body begins at `at` of its frame.
    pub fn new(message: &Message, version: i16, at: usize) -> Result<Self, WireError> {
        if !(message.oldest..=message.newest).contains(&version) {
            return Err(WireError::Unsupported {
                api_key: message.api_key,
                version,
            });
        }
        let root = Level::Fields {
            all: message.fields,
            next: 0,
        };
        Ok(Self {
            version,
            flexible: version >= message.flexible,
            at,
            skip: 0,
            stack: [root; DEPTH],
            depth: 1,
        })
    }

    /// Whether the message has ended.
    pub fn done(&self) -> bool {
        self.depth == 0 && self.skip == 0
    }

    /// Bytes to pass before the next element; [`step`](Self::step) consumes them.
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// `bytes` of those have passed elsewhere, `bytes <= self.skip()`.
    pub fn skipped(&mut self, bytes: usize) {
        self.skip -= bytes;
        self.at += bytes;
    }

    /// Whether only node endpoints and the outermost tagged fields are left.
    pub fn at_tail(&self) -> bool {
        let (1, 0, Some(Level::Fields { all, next })) = (self.depth, self.skip, self.stack.first())
        else {
            return false;
        };
        self.plain(all, *next)
            .is_none_or(|(_, field)| field.role == Role::Endpoints)
    }

    /// Consumes one element at the beginning of `bytes`, or some of the bytes
    /// to pass; returns how many. `Truncated` changes nothing: call again with
    /// more bytes.
    #[inline]
    pub fn step<'a>(
        &mut self,
        bytes: &'a [u8],
        visitor: &mut impl Visitor<'a>,
    ) -> Result<usize, WireError> {
        if self.skip > 0 {
            if bytes.is_empty() {
                return Err(WireError::Truncated { what: "a field" });
            }
            let passed = self.skip.min(bytes.len());
            self.skip -= passed;
            self.at += passed;
            return Ok(passed);
        }
        let Some(top) = self.top() else {
            return Ok(0);
        };
        let mut cursor = Cursor::new(bytes);
        match top {
            Level::Fields { all, next } => self.field(&mut cursor, visitor, all, next)?,
            Level::Tags { left: 0, .. } => self.depth -= 1,
            Level::Tags { all, left } => self.tag(&mut cursor, visitor, all, left)?,
            Level::Items { field, left: 0, .. } => {
                visitor.close(field, self.at);
                self.depth -= 1;
            }
            Level::Items { field, all, left } => {
                let left = left - 1;
                self.replace(Level::Items { field, all, left });
                self.push(Level::Fields { all, next: 0 })?;
            }
            Level::Tagged { field } => {
                let value = self.value(&mut cursor, visitor, field)?;
                self.depth -= 1;
                self.enter(value)?;
            }
            Level::Ends { at } if at == self.at => {
                visitor.untagged(at);
                self.depth -= 1;
            }
            Level::Ends { at } => {
                let value = i64::try_from(at).unwrap_or(i64::MAX);
                let what = "the end of a tagged field";
                return Err(WireError::Malformed { what, value });
            }
        }
        self.at += cursor.at();
        Ok(cursor.at())
    }

    /// The next field of a struct, or the number of its tagged fields.
    fn field<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        visitor: &mut impl Visitor<'a>,
        all: &'static [Field],
        next: usize,
    ) -> Result<(), WireError> {
        if let Some((at, field)) = self.plain(all, next) {
            let value = self.value(cursor, visitor, field)?;
            self.replace(Level::Fields { all, next: at + 1 });
            return self.enter(value);
        }
        if self.flexible {
            let left = cursor.varint("a tag count")?;
            self.replace(Level::Tags { all, left });
        } else {
            self.depth -= 1;
        }
        Ok(())
    }

    /// The first field from `next` on that this version writes in place.
    fn plain(&self, all: &'static [Field], next: usize) -> Option<(usize, &'static Field)> {
        let fields = all.iter().enumerate().skip(next);
        let mut here = fields.filter(|(_, f)| f.tag.is_none() && f.exists(self.version));
        here.next()
    }

    fn tag<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        visitor: &mut impl Visitor<'a>,
        all: &'static [Field],
        left: u32,
    ) -> Result<(), WireError> {
        let tag = cursor.varint("a tag")?;
        let size_at = self.at + cursor.at();
        let size = cursor.varint("the size of a tagged field")?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let begin = self.at + cursor.at();
        let left = left - 1;
        self.replace(Level::Tags { all, left });
        let mut known = all.iter().filter(|f| f.tag == Some(tag));
        match known.find(|field| field.exists(self.version)) {
            Some(field) => {
                visitor.tagged(size_at..begin);
                let at = begin.saturating_add(size);
                self.push(Level::Ends { at })?;
                self.push(Level::Tagged { field })
            }
            None => {
                self.skip = size;
                Ok(())
            }
        }
    }

    /// Reads a leaf or the length of an array; returns the level to enter.
    fn value<'a, V: Visitor<'a>>(
        &mut self,
        cursor: &mut Cursor<'a>,
        visitor: &mut V,
        field: &'static Field,
    ) -> Result<Option<Level>, WireError> {
        let begin = self.at + cursor.at();
        let value = match field.kind {
            Kind::Bool | Kind::Int8 => Value::Int(cursor.int8(field.name)?.into()),
            Kind::Int16 => Value::Int(cursor.int16(field.name)?.into()),
            Kind::Int32 => Value::Int(cursor.int32(field.name)?.into()),
            Kind::Int64 => Value::Int(cursor.int64(field.name)?),
            Kind::Uuid => Value::Uuid(cursor.array(field.name)?),
            Kind::String => {
                let len = cursor.string_len(self.flexible, field.name)?;
                match len {
                    Some(len) if V::STRINGS => Value::Bytes(Some(cursor.take(len, field.name)?)),
                    Some(len) => {
                        self.skip = len;
                        return Ok(None);
                    }
                    None => Value::Bytes(None),
                }
            }
            Kind::Records => {
                self.skip = cursor.count(self.flexible, field.name)?.unwrap_or(0);
                return Ok(None);
            }
            Kind::Int32s => {
                let count = cursor.count(self.flexible, field.name)?.unwrap_or(0);
                self.skip = count.saturating_mul(4);
                return Ok(None);
            }
            Kind::Struct(all) => return Ok(Some(Level::Fields { all, next: 0 })),
            Kind::Array(all) => {
                let left = cursor.count(self.flexible, field.name)?.unwrap_or(0);
                visitor.open(field, begin..self.at + cursor.at(), left);
                return Ok(Some(Level::Items { field, all, left }));
            }
        };
        visitor.leaf(field, begin..self.at + cursor.at(), value)?;
        Ok(None)
    }

    fn enter(&mut self, level: Option<Level>) -> Result<(), WireError> {
        match level {
            Some(level) => self.push(level),
            None => Ok(()),
        }
    }

    fn top(&self) -> Option<Level> {
        self.stack.get(self.depth.checked_sub(1)?).copied()
    }

    fn replace(&mut self, level: Level) {
        if let Some(top) = self
            .depth
            .checked_sub(1)
            .and_then(|at| self.stack.get_mut(at))
        {
            *top = level;
        }
    }

    fn push(&mut self, level: Level) -> Result<(), WireError> {
        let free = self.stack.get_mut(self.depth).ok_or(WireError::Malformed {
            what: "the nesting of a message",
            value: i64::MAX,
        })?;
        *free = level;
        self.depth += 1;
        Ok(())
    }
}

/// Walks a whole message whose body begins at `at` of `frame`.
pub fn walk<'a>(
    message: &Message,
    version: i16,
    frame: &'a [u8],
    at: usize,
    visitor: &mut impl Visitor<'a>,
) -> Result<(), WireError> {
    let mut walk = Walk::new(message, version, at)?;
    let mut rest = frame.get(at..).unwrap_or_default();
    while !walk.done() {
        let consumed = walk.step(rest, visitor)?;
        rest = rest.get(consumed..).unwrap_or_default();
    }
    match rest.len() {
        0 => Ok(()),
        count => Err(WireError::Trailing {
            what: message.name,
            count,
        }),
    }
}
