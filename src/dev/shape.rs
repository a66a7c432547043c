//! The shapes of requests, walked before they are decoded.
//!
//! The decoder of the protocol crate reserves memory for as many elements as
//! an array announces, and a process without memory ends. So each frame is
//! first walked by a few letters that say how its fields are laid out: every
//! element must really be there, and there may only be so many of them.

use super::code::api;

/// Elements of all arrays of one request, nested ones included.
const ELEMENTS_MAX: usize = 200_000;

/// The layout of an api's requests: its key, its first flexible version, and
/// its fields in the order of the wire.
///
/// `c h i l u` are integers of 1, 2, 4, 8 and 16 bytes, `s` a string, `b`
/// bytes, `I` and `S` arrays of int32 and of strings, `[ … ]` an array of
/// structs; `3+`, `-12` and `3-5` are the versions that have a field. Tagged
/// fields are passed by their size.
const SHAPES: &[(i16, i16, &str)] = &[
    (api::PRODUCE, 9, "s3+ h i [ s-12 u13+ [ i b ] ]"),
    (
        api::FETCH,
        12,
        "i-14 i i i3+ c4+ i7+ i7+ [ s-12 u13+ [ i i9+ l i12+ l5+ i ] ] [7+ s-12 u13+ I ] s11+",
    ),
    (api::LIST_OFFSETS, 6, "i c2+ [ s [ i i4+ l ] ] i10+"),
    (api::METADATA, 9, "[ u10+ s ] c4+ c8-10 c8+"),
    (
        api::OFFSET_COMMIT,
        8,
        "s i1+ s1+ s7+ l2-4 [ s [ i l i6+ s ] ]",
    ),
    (
        api::OFFSET_FETCH,
        6,
        "s-7 [-7 s I ] [8+ s s9+ i9+ [ s I ] ] c7+",
    ),
    (api::FIND_COORDINATOR, 3, "s-3 c1+ S4+"),
    (api::JOIN_GROUP, 6, "s i i1+ s s5+ s [ s b ] s8+"),
    (api::HEARTBEAT, 4, "s i s s3+"),
    (api::LEAVE_GROUP, 4, "s s-2 [3+ s s s5+ ]"),
    (api::SYNC_GROUP, 4, "s i s s3+ s5+ s5+ [ s b ]"),
    (api::CREATE_TOPICS, 5, "[ s i h [ i I ] [ s s ] ] i c1+"),
    (api::DELETE_TOPICS, 4, "[6+ s u ] S-5 i"),
    (api::INIT_PRODUCER_ID, 2, "s i l3+ h3+"),
    (api::DESCRIBE_CONFIGS, 4, "[ c s S ] c1+ c3+"),
    (api::DESCRIBE_CLUSTER, 0, "c c1+ c2+"),
];

/// A request that is not laid out as its api and version say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ShapeError {
    #[error("the request ends inside a field")]
    Truncated,
    #[error("{0} bytes follow the end of the request")]
    Trailing(usize),
    #[error("a length of {0}")]
    Length(i64),
    #[error("more than {ELEMENTS_MAX} elements")]
    TooMany,
    #[error("tagged field {0}, which only brokers send")]
    Tag(u32),
}

/// Whether `body` is laid out as a request of this api and version; apis
/// without a shape are those whose body is not read.
pub(super) fn check(api_key: i16, version: i16, body: &[u8]) -> Result<(), ShapeError> {
    let Some((_, flexible, shape)) = SHAPES.iter().find(|(key, ..)| *key == api_key) else {
        return Ok(());
    };
    let mut walk = Walk {
        rest: body,
        version,
        flexible: version >= *flexible,
        // The decoder reads the tagged fields that it knows without looking at
        // their size. Of these apis only Fetch has any, and clients send none.
        tags_from: if api_key == api::FETCH { 2 } else { 0 },
        elements: 0,
    };
    walk.fields(shape)?;
    match walk.rest.len() {
        0 => Ok(()),
        count => Err(ShapeError::Trailing(count)),
    }
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    tags_from: u32,
    elements: usize,
}

impl Walk<'_> {
    fn fields(&mut self, shape: &str) -> Result<(), ShapeError> {
        let mut shape = shape.trim();
        while !shape.is_empty() {
            let (token, rest) = shape.split_once(' ').unwrap_or((shape, ""));
            shape = rest.trim_start();
            let (kind, versions) = token.split_at(1);
            let here = covers(versions, self.version);
            if kind == "[" {
                let (inner, rest) = shape.split_at(closing(shape));
                shape = rest[1..].trim_start();
                if here {
                    self.array(|walk| walk.fields(inner))?;
                }
            } else if here {
                self.field(kind)?;
            }
        }
        if self.flexible { self.tags() } else { Ok(()) }
    }

    fn field(&mut self, kind: &str) -> Result<(), ShapeError> {
        match kind {
            "c" => self.skip(1),
            "h" => self.skip(2),
            "i" => self.skip(4),
            "l" => self.skip(8),
            "u" => self.skip(16),
            "I" => self.array(|walk| walk.skip(4)),
            "S" => self.array(Self::string),
            "s" => self.string(),
            _ => {
                let length = self.count()?.unwrap_or(0);
                self.skip(length)
            }
        }
    }

    fn string(&mut self) -> Result<(), ShapeError> {
        let length = if self.flexible {
            self.count()?
        } else {
            let raw = i16::from_be_bytes(self.take()?);
            length(raw.into())?
        };
        self.skip(length.unwrap_or(0))
    }

    fn array(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), ShapeError>,
    ) -> Result<(), ShapeError> {
        for _ in 0..self.count()?.unwrap_or(0) {
            self.elements += 1;
            if self.elements > ELEMENTS_MAX {
                return Err(ShapeError::TooMany);
            }
            element(self)?;
        }
        Ok(())
    }

    fn tags(&mut self) -> Result<(), ShapeError> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            if tag < self.tags_from {
                return Err(ShapeError::Tag(tag));
            }
            let size = self.varint()?;
            self.skip(usize::try_from(size).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }

    /// The length of an array or of bytes, `None` being null.
    fn count(&mut self) -> Result<Option<usize>, ShapeError> {
        if self.flexible {
            let raw = i64::from(self.varint()?);
            return length(raw - 1);
        }
        let raw = i32::from_be_bytes(self.take()?);
        length(raw.into())
    }

    fn varint(&mut self) -> Result<u32, ShapeError> {
        let mut value = 0_u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| ShapeError::Length(i64::MAX));
            }
        }
        Err(ShapeError::Length(i64::MAX))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ShapeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(ShapeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn skip(&mut self, count: usize) -> Result<(), ShapeError> {
        self.rest = self.rest.get(count..).ok_or(ShapeError::Truncated)?;
        Ok(())
    }
}

fn length(raw: i64) -> Result<Option<usize>, ShapeError> {
    match raw {
        -1 => Ok(None),
        raw => usize::try_from(raw)
            .map(Some)
            .map_err(|_| ShapeError::Length(raw)),
    }
}

/// Whether `3+`, `-12`, `3-5` or nothing at all covers a version.
fn covers(versions: &str, version: i16) -> bool {
    let number = |text: &str| text.parse::<i16>().ok();
    if let Some(since) = versions.strip_suffix('+') {
        return number(since).is_some_and(|since| since <= version);
    }
    let Some((since, until)) = versions.split_once('-') else {
        return true;
    };
    number(since).is_none_or(|since| since <= version)
        && number(until).is_some_and(|until| version <= until)
}

/// Where the array ends that has just been opened.
fn closing(shape: &str) -> usize {
    let mut depth = 1;
    for (at, letter) in shape.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    unreachable!("every shape is closed: a test walks each of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_closed_and_ends_where_its_bytes_do() {
        for (key, ..) in SHAPES {
            for version in 0..20 {
                assert_ne!(check(*key, version, &[0; 4096]), Ok(()), "{key} v{version}");
            }
        }
    }

    #[test]
    fn elements_must_be_there_and_may_be_only_so_many() {
        // Metadata v0: an array of names, each of them empty.
        let metadata = |announced: usize, there: usize| {
            let mut body = u32::try_from(announced).unwrap().to_be_bytes().to_vec();
            body.resize(4 + 2 * there, 0);
            check(api::METADATA, 0, &body)
        };
        assert_eq!(metadata(ELEMENTS_MAX, ELEMENTS_MAX), Ok(()));
        assert_eq!(metadata(3, 2), Err(ShapeError::Truncated));
        assert_eq!(metadata(2, 3), Err(ShapeError::Trailing(2)));
        let more = ELEMENTS_MAX + 1;
        assert_eq!(metadata(more, more), Err(ShapeError::TooMany));
        let huge = i32::MAX.to_be_bytes();
        assert_eq!(check(api::METADATA, 0, &huge), Err(ShapeError::Truncated));
        let negative = (-2_i32).to_be_bytes();
        let length = Err(ShapeError::Length(-2));
        assert_eq!(check(api::METADATA, 0, &negative), length);
    }

    #[test]
    fn a_tagged_field_is_passed_by_its_size_unless_the_decoder_would_read_it() {
        // Metadata v9: no topics, three booleans, then tagged fields.
        let metadata = |tag| check(api::METADATA, 9, &[1, 0, 0, 0, 1, tag, 2, 0, 0]);
        assert_eq!(metadata(0), Ok(()));
        assert_eq!(metadata(99), Ok(()));
        // Fetch v12 without topics; tag 0 is a cluster id.
        let fetch = |tag| {
            let mut body = [0; 25].to_vec();
            body.extend([1, 1, 1, 1, tag, 2, 0, 0]);
            check(api::FETCH, 12, &body)
        };
        assert_eq!(fetch(9), Ok(()));
        assert_eq!(fetch(0), Err(ShapeError::Tag(0)));
    }
}
