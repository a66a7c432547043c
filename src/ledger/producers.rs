//! What is known of a producer id across its partitions.

use super::Map;
use crate::ids::{Epoch, ProducerId};
use crate::window::Time;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// No epoch: below every epoch that the wire can carry.
const NO_EPOCH: i32 = i32::MIN;

/// What fenced a producer where nothing of it was seen.
pub const UNSEEN_FENCE: &str = "by an instance outside this hapax, or by its transaction's timeout";

/// One producer id: who uses it, which epochs were announced, whether it is calm.
#[derive(Debug)]
pub struct Producer {
    /// The client.id that first used it.
    pub client_id: OnceLock<Arc<str>>,
    /// Its transactional id, if it has one.
    pub transactional_id: OnceLock<Arc<str>>,
    /// The highest epoch that an InitProducerId or EndTxn answer announced,
    /// or that was used first.
    known_epoch: AtomicI32,
    /// The highest epoch that a coordinator's answer announced for its
    /// transactional id: every lower one is fenced.
    granted_epoch: AtomicI32,
    fenced_epoch: AtomicI32,
    /// Batches on their way that left behind a closed gate.
    gated: AtomicU32,
    /// Until when it is not calm.
    restless_until: AtomicU32,
    touched: AtomicU32,
}

impl Producer {
    fn new(now: Time) -> Self {
        Self {
            client_id: OnceLock::new(),
            transactional_id: OnceLock::new(),
            known_epoch: AtomicI32::new(NO_EPOCH),
            granted_epoch: AtomicI32::new(NO_EPOCH),
            fenced_epoch: AtomicI32::new(NO_EPOCH),
            gated: AtomicU32::new(0),
            restless_until: AtomicU32::new(0),
            touched: AtomicU32::new(now.0),
        }
    }

    /// Whether a multi-partition request of it may leave before all of its
    /// batches were seen: nothing waits behind a closed gate, and nothing
    /// went wrong for as long as a retry may come.
    #[must_use]
    pub fn calm(&self, now: Time) -> bool {
        self.gated.load(Ordering::Relaxed) == 0
            && self.restless_until.load(Ordering::Relaxed) <= now.0
            && self.known_epoch.load(Ordering::Relaxed) != NO_EPOCH
    }

    /// Something went wrong: a retry may come within `span`.
    pub fn trouble(&self, now: Time, span: Duration) {
        let span = u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        self.restless_until
            .fetch_max(now.0.saturating_add(span), Ordering::Relaxed);
    }

    /// The coordinator announced this epoch.
    pub fn announce(&self, epoch: Epoch) {
        self.known_epoch
            .fetch_max(i32::from(epoch.0), Ordering::Relaxed);
    }

    /// The coordinator announced this epoch for a transactional id.
    pub fn grant(&self, epoch: Epoch) {
        self.granted_epoch
            .fetch_max(i32::from(epoch.0), Ordering::Relaxed);
    }

    /// Whether the coordinator has granted a higher epoch than this one.
    #[must_use]
    pub fn outranks(&self, epoch: Epoch) -> bool {
        self.granted_epoch.load(Ordering::Relaxed) > i32::from(epoch.0)
    }

    /// A batch of this epoch came. Returns whether that is a bump that nobody
    /// announced; each is reported once, on whichever partition it shows first.
    #[must_use]
    pub fn bumps(&self, epoch: Epoch) -> bool {
        let epoch = i32::from(epoch.0);
        let known = self.known_epoch.load(Ordering::Relaxed);
        if epoch <= known {
            return false;
        }
        let before = self.known_epoch.fetch_max(epoch, Ordering::Relaxed);
        before != NO_EPOCH && before < epoch
    }

    /// How the producer came to be fenced in this epoch, as far as was seen here.
    #[must_use]
    pub fn fenced_by(&self, epoch: Epoch) -> &'static str {
        if self.known_epoch.load(Ordering::Relaxed) > i32::from(epoch.0) {
            "by an instance with a newer epoch, which was seen here"
        } else {
            UNSEEN_FENCE
        }
    }

    /// The producer is fenced in this epoch. Returns whether that is news.
    #[must_use]
    pub fn fence(&self, epoch: Epoch) -> bool {
        let epoch = i32::from(epoch.0);
        self.fenced_epoch.fetch_max(epoch, Ordering::Relaxed) < epoch
    }

    pub(super) fn gate_met(&self) {
        self.gated.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn gate_passed(&self) {
        // It was raised when the ticket was made; a producer that was
        // forgotten and made anew meanwhile must not go below nothing.
        let _ = self
            .gated
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }
}

/// Every known producer id, up to a limit.
pub(super) struct Producers {
    limit: usize,
    map: Map<ProducerId, Arc<Producer>>,
}

impl Producers {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            map: Map::default(),
        }
    }

    pub(super) fn of(&self, id: ProducerId, now: Time) -> Option<Arc<Producer>> {
        if let Some(known) = self.map.get(&id) {
            known.touched.store(now.0, Ordering::Relaxed);
            return Some(Arc::clone(&known));
        }
        if self.map.len() >= self.limit {
            return None;
        }
        let made = self
            .map
            .entry(id)
            .or_insert_with(|| Arc::new(Producer::new(now)));
        Some(Arc::clone(&made))
    }

    pub(super) fn known(&self, id: ProducerId) -> Option<Arc<Producer>> {
        self.map.get(&id).map(|p| Arc::clone(&p))
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn sweep(&self, now: Time) {
        self.map.retain(|_, p| {
            Arc::strong_count(p) > 1
                || p.gated.load(Ordering::Relaxed) > 0
                || Time(p.touched.load(Ordering::Relaxed)).within(super::IDLE_TIMEOUT, now)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bump_is_one_that_nobody_announced_and_counts_once() {
        let p = Producer::new(Time(0));
        assert!(!p.bumps(Epoch(3)), "the first epoch seen is no bump");
        assert!(!p.bumps(Epoch(3)));
        assert!(p.bumps(Epoch(4)));
        assert!(!p.bumps(Epoch(4)));
        p.announce(Epoch(9));
        assert!(!p.bumps(Epoch(9)));
        assert!(!p.bumps(Epoch(4)));
    }

    #[test]
    fn only_a_coordinators_grant_outranks_an_epoch() {
        let p = Producer::new(Time(0));
        assert!(!p.outranks(Epoch(0)));
        p.announce(Epoch(7));
        let _ = p.bumps(Epoch(9));
        assert!(!p.outranks(Epoch(0)), "a client's own word fences nobody");
        p.grant(Epoch(3));
        assert!(p.outranks(Epoch(2)));
        assert!(!p.outranks(Epoch(3)));
        p.grant(Epoch(1));
        assert!(p.outranks(Epoch(2)), "a late answer takes nothing back");
    }

    #[test]
    fn fenced_once_per_epoch() {
        let p = Producer::new(Time(0));
        assert!(p.fence(Epoch(0)));
        assert!(!p.fence(Epoch(0)));
        assert!(p.fence(Epoch(1)));
    }

    #[test]
    fn a_culprit_is_named_only_where_it_was_seen() {
        let p = Producer::new(Time(0));
        p.announce(Epoch(4));
        assert_eq!(p.fenced_by(Epoch(4)), UNSEEN_FENCE);
        p.announce(Epoch(5));
        assert_ne!(p.fenced_by(Epoch(4)), UNSEEN_FENCE);
    }

    #[test]
    fn calm_needs_a_known_epoch_an_open_gate_and_quiet() {
        let p = Producer::new(Time(0));
        assert!(!p.calm(Time(0)));
        assert!(!p.bumps(Epoch(0)));
        assert!(p.calm(Time(0)));
        p.gate_met();
        assert!(!p.calm(Time(0)));
        p.gate_passed();
        p.trouble(Time(10), Duration::from_secs(300));
        assert!(!p.calm(Time(309)));
        assert!(p.calm(Time(310)));
    }
}
