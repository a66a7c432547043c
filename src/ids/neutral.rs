//! The checksum that a batch would have without its producer.
//!
//! A client that bumps its epoch sends what it still holds under new numbers.
//! Producer id, epoch and sequence are under the checksum of a batch, so that
//! it differs; what it would be with those bytes at zero does not, and follows
//! from the header alone, because a CRC is linear:
//!
//! ```text
//!        21 ………… 43 …………………………… 57 ……………………………… len
//!        │ same  │ id, epoch, first │ same: count, records │
//! crc ^  │   0   │ those bytes      │ 0 … 0                │  ->  the checksum with zeros there
//! ```

use super::BatchId;

/// Bytes from the producer id to the end of the base sequence.
const NUMBERS: usize = 14;
/// Where in a batch those end.
const NUMBERS_END: u32 = 57;
/// CRC-32C's polynomial (Castagnoli), the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// 1 as a polynomial.
const ONE: u32 = 1 << 31;

impl BatchId {
    /// The batch's CRC-32C as it would be with producer id, epoch and base
    /// sequence at zero: equal for the same records, times and attributes.
    #[must_use]
    pub fn neutral_crc(&self) -> u32 {
        let mut numbers = [0; NUMBERS];
        numbers[..8].copy_from_slice(&self.producer.to_wire().to_be_bytes());
        numbers[8..10].copy_from_slice(&self.epoch.0.to_be_bytes());
        numbers[10..].copy_from_slice(&self.first.to_wire().to_be_bytes());
        // The inversions at a CRC's beginning and end are in both.
        let difference = crc32c::crc32c(&numbers) ^ crc32c::crc32c(&[0; NUMBERS]);
        self.crc ^ behind(difference, self.len.saturating_sub(NUMBERS_END))
    }
}

/// What a difference becomes in a checksum that `bytes` more bytes follow.
///
/// The `crc32c` crate's own way squares a matrix for each bit of the length,
/// some microseconds; the squares are always the same.
fn behind(difference: u32, bytes: u32) -> u32 {
    let places = BYTE_POWERS.iter().enumerate();
    let powers = places.filter(|(bit, _)| bytes >> bit & 1 == 1);
    powers.fold(difference, |crc, (_, power)| times(*power, crc))
}

/// x to the 8 · 2^n, for each bit of a length in bytes.
const BYTE_POWERS: [u32; 32] = {
    let mut powers = [0; 32];
    // x to the 8: one byte.
    let mut power = ONE >> 8;
    let mut bit = 0;
    while bit < powers.len() {
        powers[bit] = power;
        power = times(power, power);
        bit += 1;
    }
    powers
};

/// The product of two polynomials modulo that of the checksum.
const fn times(a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut shifted = b;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= shifted;
        }
        shifted = if shifted & 1 == 1 {
            shifted >> 1 ^ POLYNOMIAL
        } else {
            shifted >> 1
        };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, ProducerId, Sequence};

    /// The bytes of a batch from the attributes on, as chance would have them.
    fn checked(numbers: &mut impl FnMut() -> u64, len: usize) -> Vec<u8> {
        (0..len).map(|_| numbers().to_be_bytes()[0]).collect()
    }

    /// The id of a batch with that content under those numbers.
    fn id(content: &mut [u8], producer: i64, epoch: i16, first: i32) -> BatchId {
        content[22..30].copy_from_slice(&producer.to_be_bytes());
        content[30..32].copy_from_slice(&epoch.to_be_bytes());
        content[32..36].copy_from_slice(&first.to_be_bytes());
        BatchId {
            producer: ProducerId::from_wire(producer).unwrap(),
            epoch: Epoch(epoch),
            first: Sequence::from_wire(first).unwrap(),
            count: 1,
            crc: crc32c::crc32c(content),
            len: u32::try_from(21 + content.len()).unwrap(),
        }
    }

    #[test]
    fn it_is_the_checksum_of_the_whole_batch_with_zeros() {
        let mut seed = 4953_u64;
        let mut numbers = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005) + 1;
            seed
        };
        for round in 0..200 {
            let len = match round {
                0 => 40,
                1 => 1 << 20,
                _ => 40 + usize::try_from(numbers() >> 51).unwrap(),
            };
            let mut content = checked(&mut numbers, len);
            let mut small = || i32::try_from(numbers() >> 33).unwrap();
            let (producer, first) = (i64::from(small()) << 20, small());
            let epoch = i16::try_from(small() >> 16).unwrap();
            let batch = id(&mut content, producer, epoch, first);
            let neutral = batch.neutral_crc();
            let bumped = id(&mut content, producer, epoch.wrapping_add(1), 0);
            assert_eq!(bumped.neutral_crc(), neutral, "{len}");
            content[22..36].fill(0);
            assert_eq!(neutral, crc32c::crc32c(&content), "{len}");
            // A bit of the records, or of the timestamps, makes another one.
            content[38] ^= 1;
            let other = id(&mut content, producer, epoch, first);
            assert_ne!(other.neutral_crc(), neutral);
        }
    }
}
