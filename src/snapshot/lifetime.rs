//! Counters' totals over all processes that shared a directory.
//!
//! They are shown beside the counters of `/metrics`, never in them: those
//! begin at 0 with each process, which is what Prometheus expects. A counter
//! that went on from a snapshot would fall behind its last scrape after a
//! kill, be taken for one that began anew, and the whole of its past would
//! count as an increase: an alert on gaps would go off at each restart.

use super::format::{Head, Record, Stamp};
use crate::metrics::Metrics;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Totals that are kept: those of another version of hapax go on, too.
const TOTALS_MAX: usize = 1024;

/// What was counted before this process, and since when.
pub struct Lifetime(Mutex<State>);

struct State {
    /// Seconds since 1970.
    since: u64,
    starts: u64,
    before: BTreeMap<String, u64>,
}

/// Totals as an operator sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Seconds since 1970 at which counting began.
    pub since: u64,
    /// Processes that counted, this one included.
    pub starts: u64,
    /// The totals by series.
    pub totals: BTreeMap<String, u64>,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self(Mutex::new(State {
            since: Stamp::now().seconds(),
            starts: 1,
            before: BTreeMap::new(),
        }))
    }
}

impl Lifetime {
    /// Goes on from what a snapshot says.
    pub(super) fn go_on(&self, head: &Head, records: &[Record]) {
        let mut state = self.state();
        state.since = head.totals_since.min(state.since);
        state.starts = head.starts.saturating_add(1);
        let totals = records.iter().filter_map(|record| match record {
            Record::Total(name, count) => Some((name.clone(), *count)),
            _ => None,
        });
        state.before = totals.take(TOTALS_MAX).collect();
    }

    /// What it has come to.
    #[must_use]
    pub fn totals(&self, metrics: &Metrics) -> Totals {
        let state = self.state();
        let mut totals = state.before.clone();
        for (name, count) in metrics.totals() {
            let total = totals.entry(name).or_default();
            *total = total.saturating_add(count);
        }
        Totals {
            since: state.since,
            starts: state.starts,
            totals,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
