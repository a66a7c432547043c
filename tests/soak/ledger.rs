//! What is in the log, against what a producer was told.

use std::collections::HashMap;

use crate::cluster::{Batch, values};
use crate::producers::Produced;

/// One producer's account.
pub(crate) struct Account {
    pub(crate) produced: Produced,
    /// Records in the log.
    pub(crate) in_log: usize,
    /// Copies beyond the first.
    pub(crate) duplicates: usize,
    /// Acknowledged and not in the log.
    pub(crate) lost: usize,
    /// Records behind one with a higher number, on one partition.
    pub(crate) reordered: usize,
    /// Given up, and in the log all the same.
    pub(crate) failed_and_written: usize,
}

impl Account {
    pub(crate) fn of(produced: Produced, log: &[Batch]) -> Self {
        let by_partition = values(log);
        let mut copies: HashMap<u64, usize> = HashMap::new();
        let mut reordered = 0;
        for numbers in by_partition.values() {
            let mut highest = None;
            for number in numbers {
                let seen = copies.entry(*number).or_default();
                *seen += 1;
                // A copy is a duplicate, and not counted twice.
                reordered += usize::from(*seen == 1 && highest > Some(*number));
                highest = highest.max(Some(*number));
            }
        }
        let holds = |n: u32| copies.contains_key(&u64::from(n));
        let lost = produced.acknowledged.iter().filter(|n| !holds(**n)).count();
        let failed_and_written = produced.failures.iter().filter(|(n, _)| holds(*n)).count();
        Self {
            in_log: copies.values().sum(),
            duplicates: copies.values().map(|count| count - 1).sum(),
            lost,
            reordered,
            failed_and_written,
            produced,
        }
    }
}
