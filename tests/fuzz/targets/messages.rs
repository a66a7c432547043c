//! Messages laid out as the tables of `wire::schema` say, which `tests/schemas.rs` holds to Kafka's own schemas: every
//! choice of values, lengths and tagged fields is a valid message.

use hapax::wire::api;
use hapax::wire::header;
use hapax::wire::schema::{self, Field, Kind, Message, Value, Visitor};
use std::ops::Range;

use super::choices::Choices;

/// A tag that no version of any message has.
pub const UNKNOWN_TAG: u32 = 120;

/// A leaf that was written or read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaf {
    Int(&'static str, i64),
    Uuid(&'static str, [u8; 16]),
    Bytes(&'static str, Option<Vec<u8>>),
}

/// A frame and what was written into it.
#[derive(Clone, Debug)]
pub struct Made {
    pub frame: Vec<u8>,
    /// Where its body begins.
    pub body: usize,
    /// Those that a walk tells, in its order.
    pub leaves: Vec<Leaf>,
}

/// A response frame.
pub fn response(message: &Message, version: i16, choices: &mut Choices<'_>) -> Made {
    let mut maker = Maker::new(message, version);
    maker.put(&i32::from_be_bytes(choices.array()).to_be_bytes());
    if maker.flexible && message.api_key != api::API_VERSIONS {
        maker.unknown_tags(choices);
    }
    maker.finish(message, choices)
}

/// A request frame.
pub fn request(message: &Message, version: i16, choices: &mut Choices<'_>) -> Made {
    let mut maker = Maker::new(message, version);
    maker.put(&message.api_key.to_be_bytes());
    maker.put(&version.to_be_bytes());
    maker.put(&[0, 0, 0, 7]);
    maker.put(&[0, 3]);
    maker.put(b"raw");
    if maker.flexible {
        maker.unknown_tags(choices);
    }
    maker.finish(message, choices)
}

struct Maker {
    version: i16,
    flexible: bool,
    out: Vec<u8>,
    leaves: Vec<Leaf>,
    /// Whether it is in a tagged field.
    tagged: bool,
}

impl Maker {
    fn new(message: &Message, version: i16) -> Self {
        let flexible = version >= message.flexible;
        assert_eq!(header::flexible(message.api_key, version), Some(flexible));
        Self {
            version,
            flexible,
            out: Vec::new(),
            leaves: Vec::new(),
            tagged: false,
        }
    }

    fn finish(mut self, message: &Message, choices: &mut Choices<'_>) -> Made {
        let body = self.out.len();
        self.fields(message.fields, choices);
        Made {
            frame: self.out,
            body,
            leaves: self.leaves,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn fields(&mut self, all: &'static [Field], choices: &mut Choices<'_>) {
        let version = self.version;
        let here = |f: &&Field| f.since <= version && version <= f.until;
        for field in all.iter().filter(here).filter(|f| f.tag.is_none()) {
            self.value(field, choices);
        }
        if !self.flexible {
            return;
        }
        let mut tagged: Vec<_> = all
            .iter()
            .filter(here)
            .filter(|f| f.tag.is_some())
            .collect();
        tagged.sort_by_key(|field| field.tag);
        tagged.retain(|_| choices.byte() & 1 == 1);
        let unknown = choices.rarely(4);
        let count = tagged.len() + usize::from(unknown);
        put_varint(&mut self.out, u32::try_from(count).unwrap());
        for field in tagged {
            self.tagged(field, choices);
        }
        if unknown {
            self.unknown_tag(choices);
        }
    }

    fn tagged(&mut self, field: &'static Field, choices: &mut Choices<'_>) {
        put_varint(&mut self.out, field.tag.unwrap());
        let before = std::mem::take(&mut self.out);
        match field.kind {
            // An empty one is not written.
            Kind::Array(inner) => self.array(inner, 1 + choices.below(3), choices),
            _ => {
                self.tagged = true;
                self.value(field, choices);
                self.tagged = false;
            }
        }
        let value = std::mem::replace(&mut self.out, before);
        put_varint(&mut self.out, u32::try_from(value.len()).unwrap());
        self.put(&value);
    }

    fn unknown_tags(&mut self, choices: &mut Choices<'_>) {
        let unknown = choices.rarely(4);
        self.put(&[u8::from(unknown)]);
        if unknown {
            self.unknown_tag(choices);
        }
    }

    fn unknown_tag(&mut self, choices: &mut Choices<'_>) {
        put_varint(&mut self.out, UNKNOWN_TAG);
        let content = choices.bytes(200);
        put_varint(&mut self.out, u32::try_from(content.len()).unwrap());
        self.put(content);
    }

    fn value(&mut self, field: &'static Field, choices: &mut Choices<'_>) {
        let name = field.name;
        match field.kind {
            Kind::Bool => self.int(name, i64::from(choices.byte() & 1), 1),
            Kind::Int8 => self.int(name, choices.number() as i8 as i64, 1),
            Kind::Int16 => self.int(name, choices.number() as i16 as i64, 2),
            Kind::Int32 => self.int(name, choices.number() as i32 as i64, 4),
            Kind::Int64 => self.int(name, choices.number(), 8),
            Kind::Uuid => {
                let id = choices.array();
                self.put(&id);
                self.leaves.push(Leaf::Uuid(name, id));
            }
            Kind::String => {
                let null = may_be_null(name) && choices.rarely(3);
                let empty = !null && choices.rarely(16);
                let text = if empty { String::new() } else { choices.text() };
                let text = (!null).then(|| text.into_bytes());
                self.string(text.as_deref());
                self.leaves.push(Leaf::Bytes(name, text));
            }
            Kind::Records => {
                let records = choices.bytes(200);
                self.count(records.len());
                self.put(records);
            }
            Kind::Int32s => {
                let count = choices.below(4);
                self.count(count);
                for _ in 0..count {
                    self.put(&(choices.number() as i32).to_be_bytes());
                }
            }
            Kind::Struct(inner) => self.fields(inner, choices),
            Kind::Array(inner) => {
                let count = if choices.rarely(64) {
                    130
                } else {
                    choices.below(4)
                };
                self.array(inner, if choices.is_empty() { 0 } else { count }, choices);
            }
        }
    }

    fn int(&mut self, name: &'static str, value: i64, width: usize) {
        // A tagged field of which all are -1, its defaults, is not written.
        let value = if self.tagged && value == -1 { 0 } else { value };
        self.put(&value.to_be_bytes()[8 - width..]);
        self.leaves.push(Leaf::Int(name, value));
    }

    fn array(&mut self, inner: &'static [Field], count: usize, choices: &mut Choices<'_>) {
        self.count(count);
        for _ in 0..count {
            self.fields(inner, choices);
        }
    }

    fn count(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap();
        if self.flexible {
            put_varint(&mut self.out, count + 1);
        } else {
            self.put(&count.to_be_bytes());
        }
    }

    fn string(&mut self, text: Option<&[u8]>) {
        match (text, self.flexible) {
            (None, true) => self.put(&[0]),
            (None, false) => self.put(&[0xff, 0xff]),
            (Some(text), true) => put_varint(&mut self.out, u32::try_from(text.len()).unwrap() + 1),
            (Some(text), false) => self.put(&u16::try_from(text.len()).unwrap().to_be_bytes()),
        }
        self.put(text.unwrap_or_default());
    }
}

/// The strings that are null in every version that has them, if they like.
fn may_be_null(name: &str) -> bool {
    ["Rack", "ErrorMessage", "BatchIndexErrorMessage"].contains(&name)
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The leaves that a walk finds in a frame.
pub fn leaves(message: &Message, version: i16, frame: &[u8], body: usize) -> Option<Vec<Leaf>> {
    let mut seen = Seen::default();
    schema::walk(message, version, frame, body, &mut seen).ok()?;
    Some(seen.0)
}

#[derive(Default)]
struct Seen(Vec<Leaf>);

impl<'a> Visitor<'a> for Seen {
    fn leaf(
        &mut self,
        field: &'static Field,
        _at: Range<usize>,
        value: Value<'a>,
    ) -> Result<(), hapax::wire::WireError> {
        self.0.push(match value {
            Value::Int(value) => Leaf::Int(field.name, value),
            Value::Uuid(id) => Leaf::Uuid(field.name, id),
            Value::Bytes(bytes) => Leaf::Bytes(field.name, bytes.map(<[u8]>::to_vec)),
        });
        Ok(())
    }
}
