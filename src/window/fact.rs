//! What the cluster has acknowledged: the only thing a retry is answered from.

use super::Time;
use crate::ids::{BatchId, NodeId, Sequence};
use std::collections::VecDeque;

/// An acknowledgement as the cluster gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Offset of the batch's first record.
    pub offset: i64,
    /// The broker's append time in milliseconds, −1 on CreateTime topics.
    pub append_time: i64,
}

/// Who stands behind an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckedBy(u32);

impl AckedBy {
    /// All in-sync replicas (`acks=-1`).
    pub const ALL: Self = Self(0);
    /// A leader that is not known, or is no longer leader (`acks=1`).
    pub const NOBODY: Self = Self(1);

    /// The leader alone (`acks=1`).
    #[must_use]
    pub fn leader(node: Option<NodeId>) -> Self {
        node.map_or(Self::NOBODY, |n| {
            Self(n.to_wire().cast_unsigned().saturating_add(2))
        })
    }

    /// The same, unless a batch goes to another broker than this leader.
    pub(super) fn unless_moved_to(self, node: Option<NodeId>) -> Self {
        if self == Self::ALL || self == Self::leader(node) {
            self
        } else {
            Self::NOBODY
        }
    }
}

/// One acknowledged batch. 40 bytes: a window with five of them is meant to
/// cost less than 400, its place in the ledger included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub first: Sequence,
    pub count: u32,
    pub crc: u32,
    pub len: u32,
    pub offset: i64,
    pub append_time: i64,
    pub at: Time,
    pub acked_by: AckedBy,
}

const _: () = assert!(size_of::<Fact>() == 40);

impl Fact {
    pub(super) fn end(&self) -> Sequence {
        self.first.advance(self.count)
    }

    pub(super) fn last(&self) -> Sequence {
        self.first.advance(self.count - 1)
    }

    pub(super) fn last_offset(&self) -> i64 {
        self.offset.saturating_add(i64::from(self.count) - 1)
    }

    pub(super) fn same_range(&self, b: &BatchId) -> bool {
        self.first == b.first && self.count == b.count
    }

    pub(super) fn is(&self, b: &BatchId) -> bool {
        self.same_range(b) && self.crc == b.crc && self.len == b.len
    }
}

/// Facts of one epoch in sequence order, oldest first.
#[derive(Default, Debug)]
pub(super) struct Ring {
    facts: VecDeque<Fact>,
    /// Whether a fact had to give way: older batches may then be known to
    /// the cluster although the ring does not show them.
    forgot: bool,
}

impl Ring {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Fact> {
        self.facts.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Fact> {
        self.facts.iter_mut()
    }

    pub(super) fn clear(&mut self) {
        self.facts.clear();
        self.forgot = false;
    }

    pub(super) fn last(&self) -> Option<&Fact> {
        self.facts.back()
    }

    /// Whether `b` lies before everything remembered, and something was forgotten.
    pub(super) fn outran(&self, b: &BatchId) -> bool {
        self.forgot
            && self
                .facts
                .front()
                .is_some_and(|oldest| b.first.distance(oldest.first) < 0)
    }

    /// Adds a fact in its place; the oldest gives way when `limit` are held.
    /// A fact about the same range stays as it is, but is fresh again.
    pub(super) fn insert(&mut self, fact: Fact, limit: usize) {
        if self.facts.capacity() == 0 {
            self.facts.reserve_exact(limit.min(5));
        }
        let mut place = self.facts.len();
        while let Some(earlier) = place.checked_sub(1).and_then(|i| self.facts.get_mut(i)) {
            if earlier.first == fact.first && earlier.count == fact.count {
                if earlier.crc == fact.crc && earlier.len == fact.len {
                    *earlier = fact;
                }
                return;
            }
            if fact.first.distance(earlier.first) > 0 {
                break;
            }
            place -= 1;
        }
        if self.facts.len() >= limit {
            self.forgot = true;
            if place == 0 {
                return;
            }
            self.facts.pop_front();
            place -= 1;
        }
        self.facts.insert(place, fact);
    }
}
