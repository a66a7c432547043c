//! What the log shows of a batch whose outcome nobody answered (SEMANTICS 7.6).
//!
//! A batch that is found below the high watermark is written. One that is not
//! found up to the end of the log may be written later all the same: both
//! "absent" and "could not be read" only mean that the broker judges, as it
//! would have. While a copy of it is on its way, or stands where the log cannot
//! be read yet, it is put off instead: a broker that has forgotten its producer
//! would write it twice.

use super::attempt::{Attempt, State};
use super::{
    Ack, AckedBy, Action, Arrival, Class, Mode, Realm, Rules, Settled, Time, Verdict, Window,
};
use crate::ids::BatchId;

/// Times that a batch is looked for, since it may have been written, where the
/// broker hangs up on the question.
const ASKED_MAX: u8 = 3;

impl Window {
    /// Whether the broker may have forgotten a batch that comes again, and the
    /// log may answer for it.
    ///
    /// Only record times make a broker forget what it wrote *and* write it
    /// again: its expiry counts from them, and a producer without state may
    /// start at any sequence. A restart does not: its snapshot keeps the last
    /// batch of each producer, so that a retry of an earlier one is refused
    /// with 45, which is looked into when it comes ([`Self::contested`]).
    ///
    /// The newest batch decides when the producer is forgotten, so that old
    /// records in a later one count for all.
    pub(super) fn may_be_forgotten(&self, arrival: &Arrival, rules: &Rules) -> bool {
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
    }

    /// Whether a retry of unknown outcome, or of one whose answer has not come,
    /// is to be looked for in the log before the broker gets it: where the log
    /// was not read since that could change what it shows.
    pub(super) fn worth_reading(&self, arrival: &Arrival) -> bool {
        let batch = &arrival.batch;
        self.open.iter().any(|attempt| {
            attempt.is(batch)
                && match attempt.state {
                    State::Unknown { asked, .. } => asked < ASKED_MAX,
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
        let next = || in_epoch && self.acked.last().map(|fact| fact.end()) == Some(batch.first);
        resolves(transactional, rules) && (self.may_be_written(batch) || next())
    }

    /// Whether an earlier attempt may have been written, or was acknowledged.
    #[must_use]
    pub fn may_be_written(&self, batch: &BatchId) -> bool {
        let in_epoch = self.epoch == Some(batch.epoch);
        let unknown = |a: Attempt| a.is(batch) && matches!(a.state, State::Unknown { .. });
        self.open.iter().any(unknown) || in_epoch && self.acked.iter().any(|fact| fact.is(batch))
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
        self.count_asked(batch, ASKED_MAX);
    }

    /// The broker hung up instead of showing it: it may have died, or do so
    /// whenever it is asked.
    pub fn cut_off(&mut self, batch: &BatchId) {
        self.count_asked(batch, 1);
    }

    fn count_asked(&mut self, batch: &BatchId, times: u8) {
        for attempt in self.open.settled_mut().filter(|a| a.is(batch)) {
            if let State::Unknown { asked, .. } = &mut attempt.state {
                *asked = asked.saturating_add(times);
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
