//! The identifiers that Kafka's wire carries, each a type of its own.
//!
//! None of them keeps a sentinel: what the wire writes as −1 or null is an
//! `Option` by the time it is one of these.

mod neutral;

use std::fmt;
use std::num::NonZeroU32;

/// A producer id handed out by a transaction coordinator; never negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProducerId(i64);

impl ProducerId {
    /// The producer id of a batch, or `None` where the wire says there is none.
    pub fn from_wire(raw: i64) -> Option<Self> {
        (raw >= 0).then_some(Self(raw))
    }

    /// As the wire writes it.
    pub fn to_wire(self) -> i64 {
        self.0
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A producer epoch. Epochs of one producer id are ordered on each partition;
/// a broker accepts negative ones from a producer it does not know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub i16);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record sequence number, `0..=i32::MAX`, wrapping to 0 after the last.
/// `Option<Sequence>` is four bytes.
///
/// Sequences have no order (they wrap): [`Sequence::advance`] and
/// [`Sequence::distance`] are the only arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sequence(
    /// One more than the wire says: `1..=2^31`.
    NonZeroU32,
);

impl Sequence {
    /// The first sequence of an epoch.
    pub const ZERO: Self = Self(NonZeroU32::MIN);
    const MODULUS: u32 = 1 << 31;

    /// The sequence of a batch, or `None` where the wire says there is none.
    pub fn from_wire(raw: i32) -> Option<Self> {
        u32::try_from(raw).ok().map(Self::new)
    }

    /// As the wire writes it.
    pub fn to_wire(self) -> i32 {
        i32::try_from(self.raw()).expect("a sequence is below 2^31")
    }

    /// The sequence `records` later.
    #[must_use]
    pub fn advance(self, records: u32) -> Self {
        Self::new(self.raw().wrapping_add(records))
    }

    /// How far ahead of `earlier` this one lies, `-2^30..2^30`; negative when
    /// it lies behind. The shorter way round the wrap is taken.
    pub fn distance(self, earlier: Self) -> i64 {
        let ahead = self.raw().wrapping_sub(earlier.raw()) % Self::MODULUS;
        if ahead < Self::MODULUS / 2 {
            i64::from(ahead)
        } else {
            i64::from(ahead) - i64::from(Self::MODULUS)
        }
    }

    fn new(raw: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(raw % Self::MODULUS))
    }

    fn raw(self) -> u32 {
        self.0.get() - 1
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw().fmt(f)
    }
}

/// A broker's node id, `0..=i32::MAX`. `Option<NodeId>` is four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(NonZeroU32);

impl NodeId {
    /// The node id, or `None` where the wire says there is none.
    pub fn from_wire(raw: i32) -> Option<Self> {
        let raw = u32::try_from(raw).ok()?;
        NonZeroU32::new(raw + 1).map(Self)
    }

    /// As the wire writes it.
    pub fn to_wire(self) -> i32 {
        i32::try_from(self.0.get() - 1).expect("a node id came from an i32")
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_wire().fmt(f)
    }
}

/// A topic's id (KIP-516), never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TopicId([u8; 16]);

impl TopicId {
    /// The topic id, or `None` where the wire says there is none.
    pub fn from_wire(raw: [u8; 16]) -> Option<Self> {
        (raw != [0; 16]).then_some(Self(raw))
    }

    /// As the wire writes it.
    pub fn to_wire(self) -> [u8; 16] {
        self.0
    }
}

/// One incarnation of a topic, as the ledger numbers them: a topic that was
/// deleted and created again has another key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TopicKey(pub u32);

/// What identifies a batch: who sent it, its place in the sequence, its bytes.
///
/// Two batches are the same exactly when all of this is equal; the broker
/// compares only epoch, first and last sequence (KIP-98).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BatchId {
    /// Its producer.
    pub producer: ProducerId,
    /// The producer's epoch.
    pub epoch: Epoch,
    /// Sequence of its first record.
    pub first: Sequence,
    /// Sequence numbers it takes, `1 <= count`; last offset delta plus one.
    pub count: u32,
    /// CRC-32C from its header, which covers everything from the attributes on.
    pub crc: u32,
    /// Its length in bytes, header included.
    pub len: u32,
}

impl BatchId {
    /// The sequence that the next batch of this epoch starts with.
    pub fn end(&self) -> Sequence {
        self.first.advance(self.count)
    }

    /// Sequence of its last record.
    pub fn last(&self) -> Sequence {
        self.first.advance(self.count - 1)
    }

    /// Whether `other` takes exactly the same sequence numbers of the epoch.
    pub fn same_range(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.first == other.first && self.count == other.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(raw: i32) -> Sequence {
        Sequence::from_wire(raw).unwrap()
    }

    #[test]
    fn sequences_wrap_to_zero_after_the_last() {
        assert_eq!(sequence(i32::MAX).advance(1), Sequence::ZERO);
        assert_eq!(sequence(i32::MAX - 1).advance(5), sequence(3));
        assert_eq!(Sequence::from_wire(-1), None);
    }

    #[test]
    fn distance_takes_the_shorter_way_round() {
        assert_eq!(sequence(7).distance(sequence(2)), 5);
        assert_eq!(sequence(2).distance(sequence(7)), -5);
        assert_eq!(sequence(1).distance(sequence(i32::MAX)), 2);
        assert_eq!(sequence(i32::MAX).distance(sequence(1)), -2);
    }

    #[test]
    fn every_node_id_fits_and_its_option_costs_nothing() {
        for raw in [0, 1, 70_000, i32::MAX] {
            assert_eq!(NodeId::from_wire(raw).unwrap().to_wire(), raw);
        }
        assert_eq!(NodeId::from_wire(-1), None);
        assert_eq!(size_of::<Option<NodeId>>(), 4);
        assert_eq!(size_of::<Option<Sequence>>(), 4);
    }
}
