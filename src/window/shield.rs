//! An error 45 that only follows from the batch before it.
//!
//! Clients have several batches of a partition on their way. When one of them
//! fails the broker answers 45 to those behind it, and librdkafka raises the
//! epoch of all its partitions for that: what it holds is sent again under
//! new numbers, and is written twice where only an answer was lost. The error
//! of the batch before says all there is to say: not written, try again.

use super::attempt::{Attempt, State};
use super::judge::MIRRORS_MAX;
use super::{Mode, Rules, Window, outcome};
use crate::ids::BatchId;

impl Window {
    /// The error that is shown in place of a 45 to `batch`, which is counted
    /// on its attempt.
    pub(super) fn shield(
        &self,
        batch: &BatchId,
        attempt: Option<&mut Attempt>,
        rules: &Rules,
    ) -> Option<i16> {
        let attempt = attempt?;
        let acts = rules.shield45 && rules.mode != Mode::Observe;
        if !acts || attempt.mirrors >= MIRRORS_MAX || self.disagrees(batch) {
            return None;
        }
        let code = self.error_before(batch)?;
        attempt.mirrors += 1;
        Some(code)
    }

    /// Whether 45 contradicts an acknowledgement: of the batch before, or of
    /// the batch itself.
    fn disagrees(&self, batch: &BatchId) -> bool {
        self.epoch == Some(batch.epoch)
            && self
                .acked
                .iter()
                .any(|fact| fact.end() == batch.first || fact.is(batch))
    }

    /// The retriable error of the batch that ends just before this one; 19
    /// where its outcome is open: it is unknown, or it is on its way again.
    fn error_before(&self, batch: &BatchId) -> Option<i16> {
        let before = |a: &Attempt| a.batch.epoch == batch.epoch && a.batch.end() == batch.first;
        let before = self.open.iter().filter(before);
        let codes = before.filter_map(|a| match a.state {
            State::NotWritten {
                code, retriable, ..
            } => retriable.then(|| outcome::mirrored(code)),
            State::Unknown { .. } | State::Sent { .. } => Some(outcome::NOT_ENOUGH_REPLICAS),
        });
        // What a copy of it got says more than that another is on its way.
        codes.min_by_key(|code| *code == outcome::NOT_ENOUGH_REPLICAS)
    }
}
