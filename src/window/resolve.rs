//! What the log shows of a batch whose outcome nobody answered (SEMANTICS 7.6).
//!
//! A batch that is found below the high watermark is written. One that is not
//! found may be written all the same, above it or later: both "absent" and
//! "could not be read" only mean that the broker judges, as it would have.

use super::attempt::State;
use super::{
    Ack, AckedBy, Action, Arrival, Class, Mode, Realm, Rules, Settled, Time, Verdict, Window,
};
use crate::ids::BatchId;

impl Window {
    /// Whether a retry of unknown outcome, or of one whose answer has not come,
    /// is to be looked for in the log before the broker gets it.
    ///
    /// Only record times make a broker forget what it wrote *and* write it
    /// again: its expiry counts from them, and a producer without state may
    /// start at any sequence. A restart does not: its snapshot keeps the last
    /// batch of each producer, so that a retry of an earlier one is refused
    /// with 45, which is looked into when it comes ([`Self::contested`]).
    ///
    /// The newest batch decides when the producer is forgotten, so that old
    /// records in a later one count for all.
    pub(super) fn worth_reading(&self, arrival: &Arrival, rules: &Rules) -> bool {
        let batch = &arrival.batch;
        let old = self.notes().old_at;
        let may_be_forgotten =
            arrival.old || old.is_some_and(|at| at.within(rules.ttl, arrival.now));
        // What is found answers who is somebody, by facts that are theirs, and
        // no epoch that is over (A4 and A5 of SEMANTICS 7.3).
        let owner =
            arrival.realm.is_some() && (self.epoch.is_none() || self.acked.realm == arrival.realm);
        may_be_forgotten
            && owner
            && self.epoch.is_none_or(|epoch| epoch <= batch.epoch)
            && resolves(arrival.transactional, rules)
            && self.open.iter().any(|attempt| {
                attempt.is(batch)
                    && match attempt.state {
                        State::Unknown { asked, .. } => !asked,
                        State::Sent { .. } => self.notes().asked_crc != batch.crc,
                        State::NotWritten { .. } => false,
                    }
            })
    }

    /// Whether a 45 for this batch is worth looking into before it is believed:
    /// an earlier attempt may have been written, or was acknowledged, or the
    /// batch follows on what the cluster acknowledged last.
    #[must_use]
    pub fn contested(&self, batch: &BatchId, transactional: bool, rules: &Rules) -> bool {
        let in_epoch = self.epoch == Some(batch.epoch);
        let maybe_written = || {
            self.open
                .iter()
                .any(|a| a.is(batch) && matches!(a.state, State::Unknown { .. }))
        };
        let acked = || in_epoch && self.acked.iter().any(|fact| fact.is(batch));
        let next = || in_epoch && self.acked.last().map(|fact| fact.end()) == Some(batch.first);
        resolves(transactional, rules) && (maybe_written() || acked() || next())
    }

    /// The offset from which on the log has this batch, if it has it; `None`
    /// where nothing that is known lies before it.
    #[must_use]
    pub fn whereabouts(&self, batch: &BatchId) -> Option<i64> {
        let in_epoch = self.epoch == Some(batch.epoch);
        if let Some(fact) = self.acked.iter().find(|f| in_epoch && f.is(batch)) {
            return Some(fact.offset);
        }
        let candidate = self.open.iter().find_map(|attempt| match attempt.state {
            State::Unknown { candidate, .. } if attempt.is(batch) => candidate,
            _ => None,
        });
        let before = || {
            let mut facts = self.acked.iter();
            let lower = |first| self.epoch < Some(batch.epoch) || batch.first.distance(first) > 0;
            facts
                .find(|fact| lower(fact.first))
                .map(|fact| fact.last_offset().saturating_add(1))
        };
        candidate.or_else(before)
    }

    /// The log has the batch that arrived, as all replicas do: it is a
    /// duplicate of an acknowledged one from here on, and the verdict says so
    /// even where the ring has no room for it.
    pub fn found(&mut self, arrival: &Arrival, ack: Ack, rules: &Rules) -> (Verdict, Settled) {
        let disagreed = self.read(&arrival.batch, arrival.realm, ack, rules, arrival.now);
        let log_start = (self.acked.log_start >= 0).then_some(self.acked.log_start);
        let verdict = Verdict {
            class: Class::Duplicate,
            action: Action::Replay(Ack { log_start, ..ack }),
            first_time: false,
            resent: None,
        };
        let settled = Settled {
            wake: self.take_waited_for(),
            disagreed,
            ..Settled::default()
        };
        (verdict, settled)
    }

    /// The log was read and did not show the batch, or could not be read: the
    /// broker judges it, and it is not looked for again before that.
    pub fn asked(&mut self, batch: &BatchId) {
        self.notes_mut().asked_crc = batch.crc;
        while let Some(attempt) = self.open.find_mut(|attempt| {
            attempt.is(batch) && matches!(attempt.state, State::Unknown { asked: false, .. })
        }) {
            if let State::Unknown { asked, .. } = &mut attempt.state {
                *asked = true;
            }
        }
    }

    /// Takes in what the log shows. The broker may not know it, so the next
    /// batch must again prove that it is in order there. Returns whether the
    /// offset proves that the log lost batches that were acknowledged before.
    pub(super) fn read(
        &mut self,
        batch: &BatchId,
        realm: Option<Realm>,
        ack: Ack,
        rules: &Rules,
        now: Time,
    ) -> bool {
        let truncated = self.written(batch, realm, AckedBy::ALL, Some(ack), rules, now);
        self.gate = None;
        truncated
    }
}

/// Whether the log may answer for a batch at all.
fn resolves(transactional: bool, rules: &Rules) -> bool {
    rules.mode != Mode::Observe && (!transactional || rules.absorb_transactional)
}
