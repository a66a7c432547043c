//! Which targets are left alone for a while because they could not be reached.
//!
//! Each client of a dead broker tries again by itself, so without this a broker
//! that is starting would be dialled as often as all clients together try. Of
//! those that come while it is left alone none is dialled for; the first one
//! after that is the next try, and the others do not wait for what comes of it.

use super::Target;
use crate::config::{BackoffConfig, HostPort};
use crate::ids::NodeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Targets that are remembered; beyond that those go that may be tried again.
const TARGETS_MAX: usize = 1024;

/// The targets that could not be reached.
#[derive(Default)]
pub struct Backoff {
    failing: Mutex<HashMap<Option<NodeId>, Failing>>,
    chance: RandomState,
}

struct Failing {
    /// Where it was tried: somewhere else it may be reached.
    addresses: Vec<HostPort>,
    /// At least 1, each of which was begun after the one before it was known.
    failures: u32,
    /// When the last one was known.
    since: Instant,
    /// When it may be tried again.
    until: Instant,
}

/// Leave to dial a target.
#[must_use]
pub struct Attempt {
    begun: Instant,
}

impl Backoff {
    /// Whether a target may be dialled now; otherwise for how long it is left
    /// alone.
    ///
    /// # Errors
    ///
    /// That time.
    pub fn leave(
        &self,
        target: &Target,
        config: BackoffConfig,
        now: Instant,
    ) -> Result<Attempt, Duration> {
        let mut failing = self.failing();
        if let Some(known) = failing.get_mut(&target.node)
            && !config.first.is_zero()
            && known.is_at(target)
        {
            if now < known.until {
                return Err(known.until - now);
            }
            // This is the next try. One that is not answered does not keep
            // others back for as long as it lasts.
            known.until = now + config.max;
        }
        Ok(Attempt { begun: now })
    }

    /// A target was reached.
    pub fn reached(&self, target: &Target) {
        self.failing().remove(&target.node);
    }

    /// A target could not be reached.
    #[expect(clippy::needless_pass_by_value, reason = "an attempt comes to one end")]
    pub fn failed(&self, target: &Target, attempt: Attempt, config: BackoffConfig, now: Instant) {
        if config.first.is_zero() {
            return;
        }
        let mut failing = self.failing();
        if failing.len() >= TARGETS_MAX {
            failing.retain(|_, known| known.until > now);
        }
        let known = failing.get(&target.node);
        let known = known.filter(|known| known.is_at(target));
        // Those that were dialled at the same time fail by the same cause.
        if known.is_some_and(|known| attempt.begun < known.since) {
            return;
        }
        let failures = known.map_or(0, |known| known.failures).saturating_add(1);
        let pause = pause(config, failures, self.chance.hash_one(now));
        let known = Failing {
            addresses: target.addresses.clone(),
            failures,
            since: now,
            until: now + pause,
        };
        failing.insert(target.node, known);
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<Option<NodeId>, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failing {
    fn is_at(&self, target: &Target) -> bool {
        // The bootstrap servers are the same ones, tried in another order.
        target.node.is_none() || self.addresses == target.addresses
    }
}

/// How long a target is left alone after so many failures: from half of what
/// doubling gives, so that many hapax do not come back at once.
fn pause(config: BackoffConfig, failures: u32, chance: u64) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1));
    let whole = config.first.saturating_mul(doubled.unwrap_or(u32::MAX));
    let half = whole.min(config.max) / 2;
    // The quotient is below `half`, whatever the chance.
    let part = half.as_nanos() * u128::from(chance) / (u128::from(u64::MAX) + 1);
    half + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: BackoffConfig = BackoffConfig {
        first: Duration::from_millis(50),
        max: Duration::from_secs(1),
    };

    fn target(node: Option<i32>, host: &str) -> Target {
        Target {
            node: node.map(|id| NodeId::from_wire(id).unwrap()),
            addresses: vec![format!("{host}:9092").parse().unwrap()],
            advertised_host: None,
            others: Vec::new(),
        }
    }

    fn fails(backoff: &Backoff, target: &Target, now: Instant) {
        let attempt = backoff.leave(target, CONFIG, now);
        let attempt = attempt.unwrap_or_else(|left| panic!("left alone for {left:?}"));
        backoff.failed(target, attempt, CONFIG, now);
    }

    fn may_dial(backoff: &Backoff, target: &Target, now: Instant) -> bool {
        backoff.leave(target, CONFIG, now).is_ok()
    }

    #[test]
    fn it_is_left_alone_twice_as_long_each_time_up_to_the_longest() {
        let whole = [50, 100, 200, 400, 800, 1000, 1000];
        for (failures, whole) in (1..).zip(whole) {
            let whole = Duration::from_millis(whole);
            assert_eq!(pause(CONFIG, failures, 0), whole / 2);
            let longest = pause(CONFIG, failures, u64::MAX);
            assert!(longest < whole && longest > whole * 9 / 10, "{longest:?}");
        }
        assert_eq!(pause(CONFIG, u32::MAX, 0), CONFIG.max / 2);
    }

    #[test]
    fn no_client_is_dialled_for_while_it_is_left_alone_and_one_thereafter() {
        let backoff = Backoff::default();
        let (dead, start) = (target(Some(1), "a"), Instant::now());
        fails(&backoff, &dead, start);
        assert!(!may_dial(&backoff, &dead, start));
        let later = start + CONFIG.first;
        assert!(may_dial(&backoff, &dead, later), "the next try");
        assert!(!may_dial(&backoff, &dead, later), "while that lasts");
        // It hangs, so there is another one.
        assert!(may_dial(&backoff, &dead, later + CONFIG.max));
    }

    #[test]
    fn others_are_dialled_meanwhile() {
        let backoff = Backoff::default();
        let start = Instant::now();
        fails(&backoff, &target(Some(1), "a"), start);
        assert!(may_dial(&backoff, &target(Some(2), "a"), start));
        assert!(may_dial(&backoff, &target(None, "a"), start));
        assert!(may_dial(&backoff, &target(Some(1), "b"), start), "it moved");
    }

    #[test]
    fn what_was_dialled_at_once_fails_once() {
        let backoff = Backoff::default();
        let (dead, start) = (target(None, "a"), Instant::now());
        let at_once: Vec<_> = (0..500)
            .map(|_| {
                backoff
                    .leave(&dead, CONFIG, start)
                    .unwrap_or_else(|_| panic!())
            })
            .collect();
        let known = start + Duration::from_millis(1);
        for attempt in at_once {
            backoff.failed(&dead, attempt, CONFIG, known);
        }
        assert!(may_dial(&backoff, &dead, known + CONFIG.first));
    }

    #[test]
    fn all_are_dialled_for_once_it_is_back() {
        let backoff = Backoff::default();
        let (dead, start) = (target(Some(1), "a"), Instant::now());
        for n in 0..10 {
            fails(&backoff, &dead, start + CONFIG.max * n);
        }
        let back = start + CONFIG.max * 10;
        assert!(may_dial(&backoff, &dead, back));
        assert!(!may_dial(&backoff, &dead, back));
        backoff.reached(&dead);
        assert!(may_dial(&backoff, &dead, back));
        assert!(may_dial(&backoff, &dead, back));
        fails(&backoff, &dead, back);
        assert!(may_dial(&backoff, &dead, back + CONFIG.first), "anew");
    }

    #[test]
    fn it_can_be_turned_off() {
        let backoff = Backoff::default();
        let (dead, start) = (target(Some(1), "a"), Instant::now());
        fails(&backoff, &dead, start);
        let off = BackoffConfig {
            first: Duration::ZERO,
            ..CONFIG
        };
        for _ in 0..2 {
            let attempt = backoff.leave(&dead, off, start);
            let attempt = attempt.unwrap_or_else(|_| panic!());
            backoff.failed(&dead, attempt, off, start);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let backoff = Backoff::default();
        let start = Instant::now();
        for id in 0..5000 {
            fails(
                &backoff,
                &target(Some(id), "a"),
                start + CONFIG.max * u32::try_from(id).unwrap(),
            );
        }
        assert!(backoff.failing().len() <= TARGETS_MAX);
    }
}
