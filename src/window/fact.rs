//! What the cluster has acknowledged: the only thing a retry is answered from.

use super::{Realm, Time};
use crate::ids::{BatchId, NodeId, Sequence};
use std::collections::VecDeque;

/// Facts that a window has room for in itself: what a correct client can
/// still retry (KIP-98).
const NEAR: usize = 5;
/// The append time of a batch on a CreateTime topic.
const NO_TIME: i64 = -1;

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
    /// All in-sync replicas, as a process before this one was told: batches
    /// may have followed of which nothing is known here.
    pub const ALL_BEFORE: Self = Self(u32::MAX);

    /// The leader alone (`acks=1`).
    #[must_use]
    pub fn leader(node: Option<NodeId>) -> Self {
        node.map_or(Self::NOBODY, |n| {
            Self(n.to_wire().cast_unsigned().saturating_add(2))
        })
    }

    /// Whether no failover loses the batch.
    pub(super) fn is_all(self) -> bool {
        self == Self::ALL || self == Self::ALL_BEFORE
    }

    /// The same, unless a batch goes to another broker than this leader.
    pub(super) fn unless_moved_to(self, node: Option<NodeId>) -> Self {
        if self.is_all() || self == Self::leader(node) {
            self
        } else {
            Self::NOBODY
        }
    }
}

/// One acknowledged batch.
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

    /// Whether a process before this one learned it: what came after it may
    /// not be known here, so that nothing is missing because it is not.
    pub(super) fn is_restored(&self) -> bool {
        self.acked_by == AckedBy::ALL_BEFORE
    }

    /// Whether it says nothing that a [`Kept`] leaves out.
    fn is_plain(&self) -> bool {
        self.append_time == NO_TIME && self.acked_by.is_all()
    }
}

/// A fact as a window keeps it: acknowledged by all replicas and without an
/// append time, unless [`Rare`] says otherwise.
#[derive(Clone, Copy, Debug)]
struct Kept {
    first: Sequence,
    /// The count, and [`RESTORED`] where the fact is a restored one.
    count_and_origin: u32,
    crc: u32,
    len: u32,
    at: Time,
    /// An `i64` in parts, which asks for no padding.
    offset: [u8; 8],
}

const _: () = assert!(size_of::<Option<Kept>>() == 28);

/// No batch has so many records: the wire's count is an `i32`.
const RESTORED: u32 = 1 << 31;

impl Kept {
    fn of(fact: &Fact) -> Self {
        Self {
            first: fact.first,
            count_and_origin: fact.count | if fact.is_restored() { RESTORED } else { 0 },
            crc: fact.crc,
            len: fact.len,
            at: fact.at,
            offset: fact.offset.to_ne_bytes(),
        }
    }

    fn count(&self) -> u32 {
        self.count_and_origin & !RESTORED
    }

    fn fact(&self, append_time: i64, acked_by: AckedBy) -> Fact {
        Fact {
            first: self.first,
            count: self.count(),
            crc: self.crc,
            len: self.len,
            offset: i64::from_ne_bytes(self.offset),
            append_time,
            at: self.at,
            acked_by: if self.count_and_origin & RESTORED == 0 {
                acked_by
            } else {
                AckedBy::ALL_BEFORE
            },
        }
    }
}

/// What the facts of most windows do not need: topics with the broker's time,
/// `acks=1`, and more than [`NEAR`] facts.
#[derive(Debug)]
struct Rare {
    append_times: [i64; NEAR],
    acked_by: [AckedBy; NEAR],
    older: Option<Box<Older>>,
}

impl Default for Rare {
    fn default() -> Self {
        Self {
            append_times: [NO_TIME; NEAR],
            acked_by: [AckedBy::ALL; NEAR],
            older: None,
        }
    }
}

/// The facts beyond the first [`NEAR`], newest first.
#[derive(Default, Debug)]
struct Older {
    facts: VecDeque<Fact>,
}

/// Facts of one epoch in sequence order, and what they share.
///
/// The newest ones stand in the window itself, so that it is one block of
/// memory.
#[derive(Debug)]
pub(super) struct Ring {
    /// Newest first; no `Some` follows a `None`.
    newest: [Option<Kept>; NEAR],
    /// Whose batches the facts are.
    pub realm: Option<Realm>,
    rare: Option<Box<Rare>>,
    /// Where the log began when the newest fact came; −1 where the cluster
    /// did not say.
    pub log_start: i64,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            newest: [None; NEAR],
            realm: None,
            rare: None,
            log_start: -1,
        }
    }
}

impl Ring {
    /// All facts, newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Fact> + '_ {
        let near = self.newest.iter().enumerate().map_while(|(place, kept)| {
            let kept = kept.as_ref()?;
            Some(self.whole(place, kept))
        });
        near.chain(self.older().into_iter().flatten().copied())
    }

    pub(super) fn clear(&mut self) {
        self.newest = [None; NEAR];
        self.rare = None;
    }

    /// The newest fact.
    pub(super) fn last(&self) -> Option<Fact> {
        self.at(0)
    }

    /// Whether `b` lies before everything remembered by a full ring: the
    /// cluster may know it although the ring does not show it.
    pub(super) fn outran(&self, b: &BatchId, limit: usize) -> bool {
        self.is_full(limit)
            && self
                .iter()
                .last()
                .is_some_and(|oldest| b.first.distance(oldest.first) < 0)
    }

    /// Adds a fact in its place; the oldest gives way when `limit` are held.
    /// A fact about the same range stays as it is, but is fresh again.
    pub(super) fn insert(&mut self, fact: Fact, limit: usize) {
        let same_range = |known: &Fact| known.first == fact.first && known.count == fact.count;
        let newer = |known: &Kept| fact.first.distance(known.first) > 0;
        let place = if self.newest[0].as_ref().is_none_or(newer) {
            0
        } else {
            self.iter()
                .position(|known| same_range(&known) || fact.first.distance(known.first) > 0)
                .unwrap_or_else(|| self.len())
        };
        let known = self.at(place);
        if let Some(known) = known.filter(same_range) {
            if known.crc == fact.crc && known.len == fact.len {
                self.set(place, &fact);
            }
            return;
        }
        if self.is_full(limit) {
            if known.is_none() {
                return;
            }
            self.drop_oldest();
        }
        self.put(place, &fact);
    }

    /// A batch goes to `node`: what another leader acknowledged alone is no
    /// longer sure.
    pub(super) fn trust_only_leader(&mut self, node: Option<NodeId>) {
        let Some(rare) = &mut self.rare else { return };
        for acked_by in &mut rare.acked_by {
            *acked_by = acked_by.unless_moved_to(node);
        }
        for fact in rare.older.iter_mut().flat_map(|older| &mut older.facts) {
            fact.acked_by = fact.acked_by.unless_moved_to(node);
        }
    }

    /// Whether `is` says so of each fact's first sequence and count.
    pub(super) fn ranges_are_all(&self, is: impl Fn(Sequence, u32) -> bool) -> bool {
        let mut near = self.newest.iter().map_while(Option::as_ref);
        let mut older = self.older().into_iter().flatten();
        near.all(|f| is(f.first, f.count())) && older.all(|f| is(f.first, f.count))
    }

    /// Whether a fact about a lower sequence has this offset or a higher one.
    pub(super) fn contradicts(&self, first: Sequence, offset: i64) -> bool {
        let lower = |known: Sequence| first.distance(known) > 0;
        let mut near = self.newest.iter().map_while(Option::as_ref);
        let mut older = self.older().into_iter().flatten();
        near.any(|f| lower(f.first) && i64::from_ne_bytes(f.offset) >= offset)
            || older.any(|f| lower(f.first) && f.offset >= offset)
    }

    /// Whether it holds `limit` facts, `1 <= limit`.
    fn is_full(&self, limit: usize) -> bool {
        self.at(limit.saturating_sub(1)).is_some()
    }

    fn len(&self) -> usize {
        let near = self.newest.iter().flatten().count();
        near + self.older().map_or(0, VecDeque::len)
    }

    fn older(&self) -> Option<&VecDeque<Fact>> {
        let older = self.rare.as_ref()?.older.as_ref()?;
        Some(&older.facts)
    }

    fn older_mut(&mut self) -> &mut VecDeque<Fact> {
        let rare = self.rare.get_or_insert_default();
        &mut rare.older.get_or_insert_default().facts
    }

    fn at(&self, place: usize) -> Option<Fact> {
        match self.newest.get(place) {
            Some(kept) => kept.as_ref().map(|kept| self.whole(place, kept)),
            None => self.older()?.get(place - NEAR).copied(),
        }
    }

    fn whole(&self, place: usize, kept: &Kept) -> Fact {
        match &self.rare {
            Some(rare) => kept.fact(
                *rare.append_times.get(place).unwrap_or(&NO_TIME),
                *rare.acked_by.get(place).unwrap_or(&AckedBy::NOBODY),
            ),
            None => kept.fact(NO_TIME, AckedBy::ALL),
        }
    }

    fn set(&mut self, place: usize, fact: &Fact) {
        let Some(kept) = self.newest.get_mut(place) else {
            self.older_mut()[place - NEAR] = *fact;
            return;
        };
        *kept = Some(Kept::of(fact));
        if !fact.is_plain() {
            self.rare.get_or_insert_default();
        }
        if let Some(rare) = &mut self.rare {
            rare.append_times[place] = fact.append_time;
            rare.acked_by[place] = fact.acked_by;
        }
    }

    fn drop_oldest(&mut self) {
        let older = self.rare.as_mut().and_then(|rare| rare.older.as_mut());
        if older.is_some_and(|older| older.facts.pop_back().is_some()) {
            return;
        }
        if let Some(oldest) = self.newest.iter_mut().rfind(|kept| kept.is_some()) {
            *oldest = None;
        }
    }

    /// Adds a fact at `place`; what stands there and after it moves on by one.
    fn put(&mut self, place: usize, fact: &Fact) {
        if place >= NEAR {
            self.older_mut().insert(place - NEAR, *fact);
            return;
        }
        if let Some(pushed) = self.at(NEAR - 1) {
            self.older_mut().push_front(pushed);
        }
        self.newest.copy_within(place..NEAR - 1, place + 1);
        if let Some(rare) = &mut self.rare {
            rare.append_times.copy_within(place..NEAR - 1, place + 1);
            rare.acked_by.copy_within(place..NEAR - 1, place + 1);
        }
        self.set(place, fact);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The facts that a ring of any length has to show, oldest first.
    #[derive(Default)]
    struct Plain(Vec<Fact>);

    impl Plain {
        fn insert(&mut self, fact: Fact, limit: usize) {
            let same_range = |f: &&mut Fact| f.first == fact.first && f.count == fact.count;
            if let Some(known) = self.0.iter_mut().find(same_range) {
                if (known.crc, known.len) == (fact.crc, fact.len) {
                    *known = fact;
                }
                return;
            }
            self.0.push(fact);
            self.0.sort_by_key(|f| f.first.to_wire());
            if self.0.len() > limit {
                self.0.remove(0);
            }
        }
    }

    /// Numbers that look like chance and are the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (self.0 >> 33) % limit
        }
    }

    fn fact(numbers: &mut Numbers) -> Fact {
        let nth = u32::try_from(numbers.below(40)).unwrap();
        let node = i32::try_from(numbers.below(3)).unwrap();
        Fact {
            first: Sequence::ZERO.advance(nth * 10),
            count: 10,
            crc: u32::try_from(numbers.below(4)).unwrap() / 3,
            len: 100,
            offset: i64::MAX - i64::try_from(numbers.below(1000)).unwrap(),
            append_time: [-1, -1, 0, i64::MAX][usize::try_from(numbers.below(4)).unwrap()],
            at: Time(u32::try_from(numbers.below(9)).unwrap()),
            acked_by: match numbers.below(6) {
                0 => AckedBy::NOBODY,
                2 => AckedBy::ALL_BEFORE,
                1 => AckedBy::leader(NodeId::from_wire(node)),
                _ => AckedBy::ALL,
            },
        }
    }

    fn shown(facts: impl Iterator<Item = Fact>) -> Vec<String> {
        facts.map(|fact| format!("{fact:?}")).collect()
    }

    #[test]
    fn a_ring_of_any_length_keeps_the_newest_facts_whole() {
        for limit in [1, 2, 4, 5, 6, 7, 32] {
            let mut numbers = Numbers(limit as u64);
            let mut ring = Ring::default();
            let mut plain = Plain::default();
            for round in 0..2000 {
                let fact = fact(&mut numbers);
                ring.insert(fact, limit);
                plain.insert(fact, limit);
                if round % 7 == 0 {
                    let node = NodeId::from_wire(1);
                    ring.trust_only_leader(node);
                    for fact in &mut plain.0 {
                        fact.acked_by = fact.acked_by.unless_moved_to(node);
                    }
                }
                if round % 300 == 0 {
                    ring.clear();
                    plain.0.clear();
                }
                let whole = shown(ring.iter());
                assert_eq!(whole, shown(plain.0.iter().rev().copied()), "{limit}");
                assert_eq!(ring.len(), whole.len());
                assert_eq!(
                    ring.last().map(|f| f.first),
                    plain.0.last().map(|f| f.first)
                );
            }
        }
    }
}
