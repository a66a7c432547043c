//! Points in time as a session compares them. Pure.

use std::time::Duration;

/// Nanoseconds since the ledger began: enough for 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment(u64);

impl Moment {
    pub(super) const START: Self = Self(0);
    /// Later than anything.
    pub(super) const NEVER: Self = Self(u64::MAX);

    /// The moment at which the ledger has this age.
    pub(super) fn of_age(age: Duration) -> Self {
        Self::START.after(age)
    }

    /// So much later, or as late as can be said.
    pub(super) fn after(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(span))
    }

    pub(super) fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Since the ledger began.
    pub(super) fn age(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}
