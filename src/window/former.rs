//! Batches of former epochs, which may come again under a new one.
//!
//! A client that raises its epoch by itself sends what it still holds under
//! new numbers. Where the first copy was written, or may have been, the log
//! has or may get the records twice; nobody but hapax can tell. It tells, and
//! never absorbs: a new epoch has to begin with what the client says it
//! begins with.

use super::attempt::{Attempt, OPEN_MAX, State};
use super::fact::Fact;
use super::{Ack, Arrival, Rules, Time, Window};
use crate::ids::{BatchId, Epoch, ProducerId, Sequence};

/// What is known of a batch that came again under a new epoch; the surer first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resent {
    /// The cluster acknowledged it: the records are in the log twice.
    Acknowledged,
    /// It may be in the log: the records may be there twice.
    Unknown,
}

/// A batch of a former epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Original {
    /// Its epoch.
    pub epoch: Epoch,
    /// Sequence of its first record.
    pub first: Sequence,
    /// Sequence numbers that it took.
    pub count: u32,
    /// What is known of it.
    pub outcome: Resent,
    /// Where in the log it is, or may be.
    pub offset: Option<i64>,
}

/// An original, and what its records are known by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    original: Original,
    /// [`BatchId::neutral_crc`]
    neutral: u32,
    len: u32,
    /// The last second in which it may explain a re-send.
    until: Time,
}

/// What a window keeps of the epochs before its own, oldest first; most
/// windows never have a former epoch.
///
/// `len() <= window_batches + OPEN_MAX`
#[derive(Default, Debug)]
pub(super) struct Former {
    kept: Vec<Kept>,
    /// The producer raises its epoch by itself: what it sent is worth keeping.
    /// A transactional one gets its epochs from the coordinator, which has
    /// settled by then what came of its batches.
    bumps: bool,
}

impl Former {
    pub(super) const NONE: Self = Self {
        kept: Vec::new(),
        bumps: false,
    };

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.kept = Vec::new();
    }

    fn expire(&mut self, now: Time) {
        self.kept.retain(|kept| kept.until >= now);
        if self.kept.is_empty() {
            self.clear();
        }
    }

    fn keep(&mut self, kept: Kept, rules: &Rules) {
        if self.kept.len() >= rules.window_batches + OPEN_MAX {
            self.kept.remove(0);
        }
        self.kept.push(kept);
    }
}

impl Window {
    /// Notes that a batch leaves, if its epoch is one that the producer has raised.
    #[cold]
    pub(super) fn note_bump(&mut self, arrival: &Arrival) {
        if !arrival.transactional && self.has_former(arrival.batch.epoch) {
            self.notes_mut().former.bumps = true;
        }
    }

    /// Whether there is anything that a batch in its turn could repeat.
    pub(super) fn keeps_former(&self) -> bool {
        let notes = self.notes.as_ref();
        notes.is_some_and(|notes| !notes.former.is_empty())
    }

    /// Drops what is too old to explain a re-send: then nothing is looked for.
    #[cold]
    pub(super) fn expire_former(&mut self, now: Time) {
        if let Some(notes) = &mut self.notes {
            notes.former.expire(now);
        }
    }

    /// The epoch changes: keeps what is known of the one before.
    #[cold]
    pub(super) fn leave_epoch(
        &mut self,
        left: Option<Epoch>,
        batch: &BatchId,
        rules: &Rules,
        now: Time,
    ) {
        let bumps = self
            .notes
            .as_mut()
            .is_some_and(|notes| std::mem::take(&mut notes.former.bumps));
        if !bumps {
            return;
        }
        let facts = self.acked.iter();
        let mut kept: Vec<Kept> = facts
            .filter_map(|fact| Some(Kept::of_fact(&fact, left?, batch.producer, rules)))
            .collect();
        kept.reverse();
        kept.extend(
            self.lost_before(batch.epoch)
                .filter(|a| !a.is_sent())
                .map(|a| Kept::of_attempt(&a, batch.producer, rules, now)),
        );
        let former = &mut self.notes_mut().former;
        former.expire(now);
        for kept in kept.into_iter().filter(|kept| kept.until >= now) {
            former.keep(kept, rules);
        }
    }

    /// A batch of a former epoch was acknowledged after all.
    #[cold]
    pub(super) fn acknowledged_late(
        &mut self,
        batch: &BatchId,
        ack: Option<Ack>,
        rules: &Rules,
        now: Time,
    ) {
        if !self.keeps_former() {
            return;
        }
        let offset = ack.map(|ack| ack.offset);
        let original = Original::of(batch, Resent::Acknowledged, offset);
        let kept = Kept::of(original, batch, now, rules);
        self.notes_mut().former.keep(kept, rules);
    }

    /// The batch of a former epoch that has the same records, if one is known;
    /// one that is certainly in the log before one that may be.
    #[must_use]
    pub fn original(&self, arrival: &Arrival, rules: &Rules) -> Option<Original> {
        let batch = &arrival.batch;
        let any = self.keeps_former() || self.has_former(batch.epoch);
        // What a transaction wrote before may have been aborted.
        if arrival.transactional || !any {
            return None;
        }
        let (producer, now) = (batch.producer, arrival.now);
        let left = self.epoch.filter(|epoch| *epoch < batch.epoch);
        let alike = |len, count| len == batch.len && count == batch.count;
        let facts = left.into_iter().flat_map(|epoch| {
            let facts = self.acked.iter().filter(|f| alike(f.len, f.count));
            facts.map(move |fact| Kept::of_fact(&fact, epoch, producer, rules))
        });
        let kept = self.notes().former.kept.iter().rev().copied();
        let open = self.lost_before(batch.epoch);
        let open = open.filter(|a| alike(a.batch.len, a.batch.count));
        let open = open.map(|a| Kept::of_attempt(&a, producer, rules, now));
        let mut neutral = None;
        let same = facts.chain(kept).chain(open).filter(|kept| {
            alike(kept.len, kept.original.count)
                && kept.original.epoch < batch.epoch
                && kept.until >= now
                && kept.neutral == *neutral.get_or_insert_with(|| batch.neutral_crc())
        });
        let originals = same.map(|kept| kept.original);
        originals.min_by_key(|original| original.outcome)
    }

    /// Whether anything here is of an epoch before this one.
    fn has_former(&self, epoch: Epoch) -> bool {
        self.epoch.is_some_and(|known| known < epoch) || !self.open.all(|a| a.batch.epoch >= epoch)
    }

    /// Attempts of epochs before this one that may be in the log.
    fn lost_before(&self, epoch: Epoch) -> impl Iterator<Item = Attempt> + '_ {
        let open = self.open.iter().filter(move |a| a.batch.epoch < epoch);
        open.filter(|a| !matches!(a.state, State::NotWritten { .. }))
    }
}

impl Kept {
    fn of(original: Original, batch: &BatchId, at: Time, rules: &Rules) -> Self {
        let ttl = u32::try_from(rules.ttl.as_secs()).unwrap_or(u32::MAX);
        Self {
            original,
            neutral: batch.neutral_crc(),
            len: batch.len,
            until: Time(at.0.saturating_add(ttl)),
        }
    }

    fn of_fact(fact: &Fact, epoch: Epoch, producer: ProducerId, rules: &Rules) -> Self {
        let batch = BatchId {
            producer,
            epoch,
            first: fact.first,
            count: fact.count,
            crc: fact.crc,
            len: fact.len,
        };
        let original = Original::of(&batch, Resent::Acknowledged, Some(fact.offset));
        Self::of(original, &batch, fact.at, rules)
    }

    fn of_attempt(a: &Attempt, producer: ProducerId, rules: &Rules, now: Time) -> Self {
        let (offset, at) = match a.state {
            State::Unknown { candidate, at, .. } => (candidate, at),
            State::Sent { .. } | State::NotWritten { .. } => (None, now),
        };
        let batch = BatchId {
            producer,
            epoch: a.batch.epoch,
            first: a.batch.first,
            count: a.batch.count,
            crc: a.batch.crc,
            len: a.batch.len,
        };
        let original = Original::of(&batch, Resent::Unknown, offset);
        Self::of(original, &batch, at, rules)
    }
}

impl Original {
    /// Sequence of its last record.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.first.advance(self.count - 1)
    }

    fn of(batch: &BatchId, outcome: Resent, offset: Option<i64>) -> Self {
        Self {
            epoch: batch.epoch,
            first: batch.first,
            count: batch.count,
            outcome,
            offset,
        }
    }
}
