//! The rules of a ledger, which an operator may change while batches follow them.

use crate::window::Rules;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rules that one process may have had. Each stays where it is, so that a batch
/// follows the newest ones without a lock, a count or a copy.
const VERSIONS_MAX: usize = 64;

/// Every version of the rules so far, none of them twice.
pub(super) struct Versions {
    all: [OnceLock<Rules>; VERSIONS_MAX],
    /// The place of those that hold; it is filled before it is named.
    newest: AtomicUsize,
}

impl Versions {
    pub(super) fn new(rules: Rules) -> Self {
        let versions = Self {
            all: [const { OnceLock::new() }; VERSIONS_MAX],
            newest: AtomicUsize::new(0),
        };
        versions.all[0].get_or_init(|| rules);
        versions
    }

    pub(super) fn newest(&self) -> &Rules {
        // The remainder tells the compiler that there is such a place.
        let newest = self.newest.load(Ordering::Acquire) % VERSIONS_MAX;
        let newest = self.all[newest].get();
        newest.expect("a place is filled before it is named")
    }

    /// Lets these rules hold from now on. Returns whether there was a place
    /// left for them.
    pub(super) fn change(&self, rules: Rules) -> bool {
        let place = |version: &OnceLock<Rules>| *version.get_or_init(|| rules) == rules;
        let Some(place) = self.all.iter().position(place) else {
            return false;
        };
        self.newest.store(place, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Mode;
    use std::time::Duration;

    fn rules(seconds: u64) -> Rules {
        Rules {
            mode: Mode::Absorb,
            ttl: Duration::from_secs(seconds),
            window_batches: 5,
            absorb_transactional: false,
            shield45: false,
        }
    }

    #[test]
    fn the_newest_rules_hold_however_often_they_change_back() {
        let versions = Versions::new(rules(0));
        for _ in 0..VERSIONS_MAX {
            for seconds in [1, 2, 0] {
                assert!(versions.change(rules(seconds)));
                assert_eq!(*versions.newest(), rules(seconds));
            }
        }
    }

    #[test]
    fn rules_that_find_no_place_change_nothing() {
        let versions = Versions::new(rules(0));
        let last = VERSIONS_MAX as u64 - 1;
        assert!((1..=last).all(|seconds| versions.change(rules(seconds))));
        assert!(!versions.change(rules(last + 1)));
        assert_eq!(*versions.newest(), rules(last));
        assert!(versions.change(rules(3)));
        assert_eq!(*versions.newest(), rules(3));
    }
}
