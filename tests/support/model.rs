//! What a Kafka 4.4 leader decides about one producer's batches on one
//! partition: an independent model of `ProducerStateEntry`.

use std::collections::VecDeque;

/// What became of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Appended at this offset.
    Accepted(i64),
    /// One of the last five batches of the epoch, which is at this offset.
    Duplicate(i64),
    /// Refused with this error code.
    Error(i16),
}

/// The state of one producer on one partition, and the end of the log.
#[derive(Default)]
pub struct Model {
    epoch: Option<i16>,
    batches: VecDeque<(i32, i32, i64)>,
    end: i64,
}

impl Model {
    /// Appends the records `first..=last`, or says why not.
    pub fn append(&mut self, epoch: i16, first: i32, last: i32) -> Decision {
        // A producer without state counts as epoch −1, which has no sequence yet.
        let current = self.epoch.unwrap_or(-1);
        let same = self.epoch == Some(epoch);
        let retained = self.batches.iter().filter(|_| same);
        for &(known_first, known_last, offset) in retained {
            if (known_first, known_last) == (first, last) {
                return Decision::Duplicate(offset);
            }
        }
        if epoch < current {
            return Decision::Error(47);
        }
        let in_order = match self.batches.back() {
            _ if current == -1 => true,
            Some(&(_, newest, _)) if same => first == advance(newest, 1),
            Some(_) | None => first == 0,
        };
        if !in_order {
            return Decision::Error(45);
        }
        if !same {
            self.batches.clear();
        }
        self.epoch = Some(epoch);
        let offset = self.end;
        self.batches.push_back((first, last, offset));
        if self.batches.len() > 5 {
            self.batches.pop_front();
        }
        self.end += 1 + i64::from(last.wrapping_sub(first) & i32::MAX);
        Decision::Accepted(offset)
    }
}

/// The sequence `by` later; 0 follows the greatest.
pub fn advance(sequence: i32, by: i32) -> i32 {
    sequence.wrapping_add(by) & i32::MAX
}
