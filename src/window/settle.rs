//! What an attempt's outcome teaches the window (SEMANTICS 7.4).

use super::attempt::{Attempt, AttemptId, State};
use super::fact::Fact;
use super::{Ack, AckedBy, Acks, Gap, GapKind, Link, Outcome, Realm, Rules, Time, Window, outcome};
use crate::ids::{BatchId, NodeId};

/// Who is told what, once an attempt is settled.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Settled {
    /// Held requests wait for this window: wake them.
    pub wake: bool,
    /// The answer contradicted what the window knew; its facts are gone.
    pub disagreed: bool,
    /// Show the client this error in place of 45.
    pub shield: Option<i16>,
    /// The cluster took the batch although one before it is still open.
    pub gap: Option<Gap>,
}

/// What a settled attempt was sent with.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The acks of its request.
    pub acks: Acks,
    /// The broker that answered, where known.
    pub node: Option<NodeId>,
    /// Whose batch it is.
    pub realm: Option<Realm>,
    /// The connection it left on.
    pub link: Link,
}

impl Window {
    /// Settles an attempt. One that is no longer open (another copy of the
    /// batch succeeded first) changes nothing but what its success proves.
    pub fn settle(
        &mut self,
        id: AttemptId,
        batch: &BatchId,
        sender: &Sender,
        outcome: Outcome,
        rules: &Rules,
        now: Time,
    ) -> Settled {
        let mut settled = Settled {
            wake: self.take_waited_for(),
            ..Settled::default()
        };
        let attempt = self.open.take(id);
        match outcome {
            Outcome::Written(ack) => {
                let acked_by = match sender.acks {
                    Acks::All => AckedBy::ALL,
                    Acks::Leader | Acks::None => AckedBy::leader(sender.node),
                };
                settled.disagreed = self.written(batch, sender.realm, acked_by, ack, rules, now);
                settled.gap = self.left_behind(batch);
                let newest = attempt.is_some() && self.epoch == Some(batch.epoch);
                self.gate = newest.then_some(sender.link);
            }
            Outcome::Found(ack) => {
                settled.disagreed = self.read(batch, sender.realm, ack, rules, now);
                settled.gap = self.left_behind(batch);
            }
            Outcome::OutOfOrder => {
                let mut attempt = attempt;
                settled.shield = self.shield(batch, attempt.as_mut(), rules);
                if self.contradicts(batch) {
                    // After a restored fact this may be a batch that came long ago.
                    settled.disagreed = self.acked.last().is_some_and(|f| !f.is_restored());
                    self.acked.clear();
                }
                let shown = settled
                    .shield
                    .unwrap_or(outcome::OUT_OF_ORDER_SEQUENCE_NUMBER);
                self.failed(attempt, shown, settled.shield.is_some(), now);
            }
            Outcome::Failed(code) => {
                if code != 2 && code != 10 {
                    self.distrust_leaders();
                }
                if code == outcome::UNKNOWN_TOPIC_ID {
                    // Gone, or so new that this broker has not heard of it yet:
                    // what was acknowledged answers nobody until another
                    // success, and what has failed there still goes first.
                    self.notes_mut().is_gone = true;
                }
                self.failed(attempt, code, true, now);
            }
            Outcome::Refused(code) => self.failed(attempt, code, false, now),
            Outcome::Withheld => self.failed(attempt, outcome::NOT_ENOUGH_REPLICAS, true, now),
            Outcome::Unknown { candidate } => {
                self.distrust_leaders();
                self.unknown(attempt, candidate, now);
            }
        }
        settled
    }

    /// The cluster has the batch. Returns whether its offset proves that the
    /// log lost batches that were acknowledged before it.
    pub(super) fn written(
        &mut self,
        batch: &BatchId,
        realm: Option<Realm>,
        acked_by: AckedBy,
        ack: Option<Ack>,
        rules: &Rules,
        now: Time,
    ) -> bool {
        if !self.open.is_empty() {
            self.open.retain(|a| !a.is(batch));
        }
        match self.epoch {
            Some(epoch) if batch.epoch < epoch => {
                self.acknowledged_late(batch, ack, rules, now);
                return false;
            }
            Some(epoch) if batch.epoch == epoch => {}
            _ => {
                let left = self.epoch.replace(batch.epoch);
                if left.is_some()
                    && let Some(notes) = &mut self.notes
                {
                    notes.flagged_gap = None;
                }
                self.leave_epoch(left, batch, rules, now);
                self.acked.clear();
                self.open
                    .retain(|a| a.is_sent() || a.batch.epoch >= batch.epoch);
            }
        }
        if self.acked.realm != realm {
            self.acked.clear();
            self.acked.realm = realm;
        }
        if let Some(notes) = &mut self.notes {
            notes.is_gone = false;
        }
        let Some(ack) = ack else { return false };
        // A log only grows at its end and only shrinks at its start. An answer
        // that was long on its way may tell of an earlier start: then facts
        // are dropped that were true, which only means "forward".
        let log_start = ack.log_start.unwrap_or(self.acked.log_start);
        let truncated =
            log_start < self.acked.log_start || self.acked.contradicts(batch.first, ack.offset);
        self.acked.log_start = log_start;
        if truncated {
            self.forget();
        }
        let fact = Fact {
            first: batch.first,
            count: batch.count,
            crc: batch.crc,
            len: batch.len,
            offset: ack.offset,
            append_time: ack.append_time,
            at: now,
            acked_by,
        };
        self.acked.insert(fact, rules.window_batches);
        truncated
    }

    /// The failed batch that this success went past, the first time it does.
    fn left_behind(&mut self, batch: &BatchId) -> Option<Gap> {
        if self.open.all(Attempt::is_sent) {
            return None;
        }
        let expected = self
            .open
            .iter()
            .filter(|a| a.batch.epoch == batch.epoch)
            .filter(|a| {
                matches!(
                    a.state,
                    State::NotWritten {
                        retriable: true,
                        ..
                    }
                )
            })
            .map(|a| a.batch.first)
            .find(|first| batch.first.distance(*first) > 0)?;
        if self.notes().flagged_gap == Some(expected) {
            return None;
        }
        self.flag_gap(expected);
        Some(Gap {
            kind: GapKind::PredecessorFailed,
            expected,
            missing: u32::try_from(batch.first.distance(expected)).unwrap_or(0),
        })
    }

    /// A 45 for the very next batch means that the broker no longer knows
    /// what it acknowledged, unless that batch may itself be in the log.
    fn contradicts(&self, batch: &BatchId) -> bool {
        let next = self.epoch == Some(batch.epoch)
            && self.acked.last().map(|f| f.end()) == Some(batch.first);
        let maybe_written = self
            .open
            .iter()
            .any(|a| a.is(batch) && matches!(a.state, State::Unknown { .. }));
        next && !maybe_written
    }

    /// This attempt is not in the log. Another copy of it says more, if there is one.
    fn failed(&mut self, attempt: Option<Attempt>, code: i16, retriable: bool, now: Time) {
        self.gate = None;
        let Some(attempt) = attempt else { return };
        let state = State::NotWritten {
            code,
            retriable,
            at: now,
        };
        if let Some(copy) = self.copy_of(&attempt) {
            copy.mirrors = copy.mirrors.max(attempt.mirrors);
            if matches!(copy.state, State::NotWritten { .. }) {
                copy.state = state;
            }
            return;
        }
        self.open.push(Attempt { state, ..attempt });
    }

    fn unknown(&mut self, attempt: Option<Attempt>, candidate: Option<i64>, now: Time) {
        self.gate = None;
        let Some(attempt) = attempt else { return };
        let state = |candidate| State::Unknown {
            candidate,
            at: now,
            asked: 0,
        };
        if let Some(copy) = self.copy_of(&attempt)
            && !copy.is_sent()
        {
            let candidate = match copy.state {
                State::Unknown {
                    candidate: known, ..
                } => candidate.or(known),
                _ => candidate,
            };
            copy.state = state(candidate);
            return;
        }
        self.open.push(Attempt {
            state: state(candidate),
            ..attempt
        });
    }

    fn copy_of(&mut self, attempt: &Attempt) -> Option<&mut Attempt> {
        self.open.find_mut(|a| a.batch == attempt.batch)
    }

    /// A leader that fails may no longer be one: what it acknowledged alone
    /// may be lost.
    fn distrust_leaders(&mut self) {
        self.acked.trust_only_leader(None);
    }
}
