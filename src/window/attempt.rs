//! One attempt to write a batch, from the moment it leaves until it is settled.

use super::{Rules, Time};
use crate::ids::{BatchId, Epoch, Sequence};

/// Open attempts a window keeps at most. A correct client has five batches of
/// a partition in flight (KIP-98); the rest is room for copies of them.
pub const OPEN_MAX: usize = 8;

/// Names one attempt within its window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AttemptId(u32);

impl AttemptId {
    pub(super) fn take(&mut self) -> Self {
        let id = *self;
        self.0 = self.0.wrapping_add(1);
        id
    }
}

/// A batch without its producer, which the window's key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub epoch: Epoch,
    pub first: Sequence,
    pub count: u32,
    pub crc: u32,
    pub len: u32,
}

impl From<BatchId> for Identity {
    fn from(b: BatchId) -> Self {
        Self {
            epoch: b.epoch,
            first: b.first,
            count: b.count,
            crc: b.crc,
            len: b.len,
        }
    }
}

impl Identity {
    pub(super) fn end(&self) -> Sequence {
        self.first.advance(self.count)
    }

    pub(super) fn same_range(&self, b: &BatchId) -> bool {
        self.epoch == b.epoch && self.first == b.first && self.count == b.count
    }

    /// Whether `b` lies within this range of the same epoch.
    pub(super) fn contains(&self, b: &BatchId) -> bool {
        let offset = b.first.distance(self.first);
        self.epoch == b.epoch && offset >= 0 && offset + i64::from(b.count) <= i64::from(self.count)
    }

    pub(super) fn overlaps(&self, b: &BatchId) -> bool {
        self.epoch == b.epoch && ranges_overlap(self.first, self.count, b.first, b.count)
    }
}

/// Whether two ranges of one epoch share a sequence number.
pub(super) fn ranges_overlap(a: Sequence, a_count: u32, b: Sequence, b_count: u32) -> bool {
    let offset = b.distance(a);
    offset < i64::from(a_count) && -offset < i64::from(b_count)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// All of it left, or will; nothing came back. It is settled by `id`.
    Sent { id: AttemptId },
    /// It may be in the log; the broker named the offset it gave it, if any.
    /// `asked`: how often the log was read since, in vain.
    Unknown {
        candidate: Option<i64>,
        at: Time,
        asked: u8,
    },
    /// It is not in the log. `retriable`: a correct client sends it again,
    /// so what follows it must wait.
    NotWritten {
        code: i16,
        retriable: bool,
        at: Time,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub batch: Identity,
    pub state: State,
    /// Times its error was made up for it since the batch before it last came.
    pub mirrors: u8,
}

const _: () = assert!(size_of::<Attempt>() == 48);

impl Attempt {
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, State::Sent { .. })
    }

    /// Whether it is on its way, or was settled so short ago that it matters.
    pub(super) fn counts(&self, rules: &Rules, now: Time) -> bool {
        match self.state {
            State::Sent { .. } => true,
            State::Unknown { at, .. } | State::NotWritten { at, .. } => at.within(rules.ttl, now),
        }
    }

    pub(super) fn is(&self, b: &BatchId) -> bool {
        self.batch == Identity::from(*b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_across_the_wrap() {
        let at = |s| Sequence::from_wire(s).unwrap();
        assert!(ranges_overlap(at(0), 5, at(4), 1));
        assert!(!ranges_overlap(at(0), 5, at(5), 1));
        assert!(ranges_overlap(at(i32::MAX - 1), 4, at(1), 3));
        assert!(!ranges_overlap(at(i32::MAX - 1), 2, at(0), 3));
    }
}
