//! Whether compressed records are at least what their codec says: nothing
//! here opens them, but a broker that does refuses other bytes.

/// The codec bits of a batch's attributes.
pub(super) const CODEC: i16 = 0x07;
pub(super) const ZSTD: i16 = 4;

/// Whether `payload` begins as its codec does; for raw snappy, which has no
/// mark of its own, whether its elements add up.
pub(super) fn is_plausible(codec: i16, payload: &[u8]) -> bool {
    match codec {
        0 => true,
        1 => payload.starts_with(&[0x1f, 0x8b]),
        2 => payload.starts_with(b"\x82SNAPPY\0") || is_snappy(payload),
        3 => payload.starts_with(&[0x04, 0x22, 0x4d, 0x18]),
        ZSTD => payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
        _ => false,
    }
}

fn is_snappy(payload: &[u8]) -> bool {
    let mut rest = payload;
    let Some(announced) = varint(&mut rest) else {
        return false;
    };
    let mut length = 0;
    while !rest.is_empty() {
        let Some(element) = element(&mut rest) else {
            return false;
        };
        length += element;
    }
    length == announced
}

/// Passes a literal or a copy; gives how many bytes it stands for.
fn element(rest: &mut &[u8]) -> Option<u64> {
    let (tag, after) = rest.split_first()?;
    let size = u64::from(tag >> 2);
    let (length, passed) = match tag & 3 {
        0 if size < 60 => (size + 1, usize::try_from(size).ok()? + 1),
        0 => {
            let bytes = usize::try_from(size - 59).ok()?;
            let raw = after.get(..bytes)?.iter().rev();
            let length = raw.fold(0, |length, byte| length << 8 | u64::from(*byte)) + 1;
            (length, bytes + usize::try_from(length).ok()?)
        }
        1 => ((size & 7) + 4, 1),
        2 => (size + 1, 2),
        _ => (size + 1, 4),
    };
    *rest = after.get(passed..)?;
    Some(length)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_snappy_is_told_from_other_bytes() {
        // Eleven bytes: a literal of three, and a copy of eight.
        let whole = [11, 0b1000, b'a', b'b', b'c', 0b1_0001, 3];
        assert!(is_plausible(2, &whole));
        for end in 0..whole.len() {
            assert!(!is_plausible(2, &whole[..end]), "cut at {end}");
        }
        assert!(!is_plausible(2, b"neither snappy nor anything else"));
        assert!(!is_plausible(5, &whole), "no such codec");
    }
}
