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
    /// Where the log began, where the cluster said so.
    pub log_start: Option<i64>,
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
pub(super) struct Ring(VecDeque<Fact>);

impl Ring {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Fact> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Fact> {
        self.0.iter_mut()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn last(&self) -> Option<&Fact> {
        self.0.back()
    }

    /// Whether `b` lies before everything remembered by a full ring: the
    /// cluster may know it although the ring does not show it.
    pub(super) fn outran(&self, b: &BatchId, limit: usize) -> bool {
        self.0.len() >= limit
            && self
                .0
                .front()
                .is_some_and(|oldest| b.first.distance(oldest.first) < 0)
    }

    /// Adds a fact in its place; the oldest gives way when `limit` are held.
    /// A fact about the same range stays as it is, but is fresh again.
    pub(super) fn insert(&mut self, fact: Fact, limit: usize) {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(limit.min(5));
        }
        let mut place = self.0.len();
        while let Some(earlier) = place.checked_sub(1).and_then(|i| self.0.get_mut(i)) {
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
        if self.0.len() >= limit {
            if place == 0 {
                return;
            }
            self.0.pop_front();
            place -= 1;
        }
        if place == self.0.len() {
            self.0.push_back(fact);
        } else {
            self.0.insert(place, fact);
        }
    }
}
