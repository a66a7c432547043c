//! Reading and writing the primitive types of the protocol.

use super::WireError;

/// A place in bytes that have arrived. Every read is whole or changes nothing
/// but the place, which the caller drops when it gets `Truncated`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    /// What lies ahead.
    rest: &'a [u8],
    /// How many bytes there are in all, `rest.len() <= len`.
    len: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            len: bytes.len(),
        }
    }

    /// At `at`, or at the end where the bytes are fewer.
    pub(super) fn starting(bytes: &'a [u8], at: usize) -> Self {
        let rest = bytes.get(at..).unwrap_or_default();
        let len = bytes.len();
        Self { rest, len }
    }

    pub(super) fn at(&self) -> usize {
        self.len - self.rest.len()
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The bytes must end here.
    pub(super) fn end(&self, what: &'static str) -> Result<(), WireError> {
        match self.left() {
            0 => Ok(()),
            count => Err(WireError::Trailing { what, count }),
        }
    }

    #[inline(always)]
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(WireError::Truncated { what })?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline(always)]
    pub(super) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], WireError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(WireError::Truncated { what })?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn int8(&mut self, what: &'static str) -> Result<i8, WireError> {
        self.array(what).map(i8::from_be_bytes)
    }

    #[inline]
    pub(super) fn int16(&mut self, what: &'static str) -> Result<i16, WireError> {
        self.array(what).map(i16::from_be_bytes)
    }

    #[inline]
    pub(super) fn int32(&mut self, what: &'static str) -> Result<i32, WireError> {
        self.array(what).map(i32::from_be_bytes)
    }

    #[inline]
    pub(super) fn int64(&mut self, what: &'static str) -> Result<i64, WireError> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// An unsigned varint; at most five bytes and 32 bits.
    #[inline(always)]
    pub(super) fn varint(&mut self, what: &'static str) -> Result<u32, WireError> {
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u32::from(*byte));
        }
        self.long_varint(what)
    }

    #[inline(never)]
    fn long_varint(&mut self, what: &'static str) -> Result<u32, WireError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| malformed(what, value));
            }
        }
        Err(malformed(what, value))
    }

    /// The length of an array or of records; `None` for null, which Kafka
    /// reads from every negative length.
    #[inline(always)]
    pub(super) fn count(
        &mut self,
        flexible: bool,
        what: &'static str,
    ) -> Result<Option<usize>, WireError> {
        if flexible {
            return self.compact(what);
        }
        Ok(usize::try_from(self.int32(what)?).ok())
    }

    #[inline(always)]
    fn compact(&mut self, what: &'static str) -> Result<Option<usize>, WireError> {
        let raw = self.varint(what)?;
        // Kafka's lengths are signed: one above i32::MAX cannot be meant.
        if i32::try_from(raw).is_err() {
            return Err(malformed(what, u64::from(raw)));
        }
        Ok(usize::try_from(raw).ok().and_then(|raw| raw.checked_sub(1)))
    }

    /// The length of a string.
    #[inline(always)]
    pub(super) fn string_len(
        &mut self,
        flexible: bool,
        what: &'static str,
    ) -> Result<Option<usize>, WireError> {
        if flexible {
            return self.compact(what);
        }
        Ok(usize::try_from(self.int16(what)?).ok())
    }

    #[inline(always)]
    pub(super) fn string(
        &mut self,
        flexible: bool,
        what: &'static str,
    ) -> Result<Option<&'a [u8]>, WireError> {
        match self.string_len(flexible, what)? {
            Some(len) => self.take(len, what).map(Some),
            None => Ok(None),
        }
    }

    /// The next `N` bytes, which are not passed; `None` where there are fewer.
    #[inline(always)]
    pub(super) fn ahead<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.rest.first_chunk()
    }

    /// Passes `len` bytes that were looked at.
    #[inline(always)]
    pub(super) fn pass(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }

    /// Passes a section of tagged fields if it is an empty one.
    #[inline(always)]
    pub(super) fn no_tags(&mut self) -> bool {
        let [0, rest @ ..] = self.rest else {
            return false;
        };
        self.rest = rest;
        true
    }

    /// Passes a section of tagged fields.
    #[inline(always)]
    pub(super) fn tags(&mut self) -> Result<(), WireError> {
        // Nearly always there are none.
        if self.no_tags() {
            return Ok(());
        }
        self.some_tags()
    }

    #[cold]
    fn some_tags(&mut self) -> Result<(), WireError> {
        for _ in 0..self.varint("a tag count")? {
            self.tag()?;
        }
        Ok(())
    }

    /// One tagged field: its tag and its content.
    pub(super) fn tag(&mut self) -> Result<(u32, &'a [u8]), WireError> {
        let tag = self.varint("a tag")?;
        let size = self.varint("the size of a tagged field")?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Ok((tag, self.take(size, "a tagged field")?))
    }
}

/// The `N` bytes at `AT` of `LEN` bytes; all three are checked when this is compiled.
#[inline(always)]
pub(super) fn field<const AT: usize, const N: usize, const LEN: usize>(
    bytes: &[u8; LEN],
) -> [u8; N] {
    const { assert!(AT + N <= LEN) };
    let bytes = bytes.get(AT..).and_then(<[u8]>::first_chunk);
    *bytes.expect("asserted above")
}

fn malformed(what: &'static str, value: u64) -> WireError {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    WireError::Malformed { what, value }
}

/// The bytes of a varint that says `value`.
pub(super) fn varint_len(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

/// The length of an array; `len` counts elements that exist in memory.
pub(super) fn put_count(out: &mut Vec<u8>, flexible: bool, len: usize) {
    let len = i32::try_from(len).expect("a message has fewer than 2^31 elements");
    if flexible {
        put_varint(out, len.unsigned_abs() + 1);
    } else {
        out.extend(len.to_be_bytes());
    }
}

pub(super) fn put_string(
    out: &mut Vec<u8>,
    flexible: bool,
    string: &[u8],
    what: &'static str,
) -> Result<(), WireError> {
    let Ok(len) = i16::try_from(string.len()) else {
        let value = i64::try_from(string.len()).unwrap_or(i64::MAX);
        return Err(WireError::Malformed { what, value });
    };
    if flexible {
        put_varint(out, u32::from(len.unsigned_abs()) + 1);
    } else {
        out.extend(len.to_be_bytes());
    }
    out.extend_from_slice(string);
    Ok(())
}

/// The length prefix over a whole frame, whose first four bytes are free for it.
pub(super) fn seal(mut frame: Vec<u8>) -> bytes::Bytes {
    if let Some((prefix, rest)) = frame.split_first_chunk_mut::<4>() {
        let len = i32::try_from(rest.len()).expect("a frame is shorter than 2^31 bytes");
        *prefix = len.to_be_bytes();
    }
    frame.into()
}

/// A copy of a frame with some of its bytes replaced, front to back.
#[derive(Debug)]
pub(super) struct Splice<'a> {
    frame: &'a [u8],
    /// Empty until the first replacement; then four bytes for the length and
    /// the new form of `frame[..copied]`.
    out: Vec<u8>,
    copied: usize,
}

impl<'a> Splice<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self {
            frame,
            out: Vec::new(),
            copied: 0,
        }
    }

    /// Drops `range` and returns the place to write what replaces it. Ranges
    /// ascend.
    pub(super) fn replace(&mut self, range: std::ops::Range<usize>) -> &mut Vec<u8> {
        if self.out.is_empty() {
            self.out.reserve(self.frame.len() + 64);
            self.out.extend([0; 4]);
        }
        let kept = self.frame.get(self.copied..range.start).unwrap_or_default();
        self.out.extend_from_slice(kept);
        self.copied = range.end;
        &mut self.out
    }

    /// The whole frame, length first; `None` where nothing was replaced.
    pub(super) fn finish(mut self) -> Option<bytes::Bytes> {
        if self.out.is_empty() {
            return None;
        }
        let end = self.frame.len();
        self.replace(end..end);
        Some(seal(self.out))
    }
}
