//! What is to become of a batch: first what it is, then whether it may leave.
//!
//! The rows are those of SEMANTICS 7.3. [`Window::classify`] is rows 2 to 9
//! and 14: they only say what a batch *is*. [`Window::order`] is rows 10 to
//! 12: whether a batch that is to be forwarded leaves now, waits, or is
//! answered with its predecessor's error.

use super::attempt::{Attempt, AttemptId, Identity, State};
use super::{Acks, Action, Arrival, Class, Gap, GapKind, Link, Mode, Rules, Verdict, Window};
use crate::ids::{BatchId, Sequence};

/// Times a batch is answered with the error of a predecessor that has not
/// come again. A client that gave the predecessor up must get through.
pub(super) const MIRRORS_MAX: u8 = 3;

/// The same where the broker knows the producer, and so keeps the order itself:
/// each more could be the last retry of a client whose predecessor was written
/// by way of another instance.
const MIRRORS_KNOWN_MAX: u8 = 1;

/// Times a batch is put off for one before it that has not come again.
const PUT_OFF_MAX: u8 = 1;

/// A batch of an older epoch than the cluster has seen.
pub const INVALID_PRODUCER_EPOCH: i16 = 47;

/// What is known of the batch that ends just before another.
enum Predecessor {
    /// It is in the log, or there is nothing before to be known.
    Settled,
    /// It is on its way.
    Sent,
    /// It may be in the log.
    Unknown {
        candidate: Option<i64>,
        /// It came again and was answered here: the client sends it once more.
        put_off: bool,
    },
    /// It is not in the log, and a correct client sends it again first.
    Failed { code: i16 },
    /// It is not in the log, and nobody will send it again.
    GivenUp,
    /// Earlier batches of the epoch are known, it is not.
    Missing,
    /// It is not known, and one before it came that has not left yet.
    Queued,
}

/// What the order of batches asks for.
enum Order {
    Leave,
    Wait,
    Mirror(i16),
}

impl Window {
    /// Says what the batch is and what to do with it.
    ///
    /// Nothing but what has expired changes: a request whose batches are
    /// judged and that is then withdrawn leaves no trace.
    pub fn judge(&mut self, arrival: &Arrival, rules: &Rules) -> Verdict {
        if self.keeps_former() {
            self.expire_former(arrival.now);
        }
        if self.is_next(&arrival.batch) {
            let verdict = self.next(arrival, rules);
            // Every test run in debug mode holds the short way to the long one.
            debug_assert_eq!(verdict, self.judge_any(arrival, rules));
            return verdict;
        }
        self.judge_any(arrival, rules)
    }

    /// Whether the batch follows on the batches that are on their way, which
    /// follow on what was acknowledged last: nothing is known that it could
    /// repeat, overlap or leave out. Nearly every batch is such a one.
    fn is_next(&self, batch: &BatchId) -> bool {
        let Some(last) = self.acked.last() else {
            return false;
        };
        if self.epoch != Some(batch.epoch) {
            return false;
        }
        // Also false of what lies half the sequence space away or more.
        let behind = |first, count| batch.first.distance(first) >= i64::from(count);
        let mut end = last.end();
        let in_a_row = self.open.all(|attempt| {
            let sent = &attempt.batch;
            let follows = attempt.is_sent()
                && sent.epoch == batch.epoch
                && sent.first == end
                && behind(sent.first, sent.count);
            end = sent.end();
            follows
        });
        // A cluster that forgot may have taken overlapping batches.
        in_a_row && end == batch.first && self.acked.ranges_are_all(behind)
    }

    /// The verdict on a batch that [`Self::is_next`]: what [`Self::judge_any`]
    /// would say of it.
    fn next(&self, arrival: &Arrival, rules: &Rules) -> Verdict {
        let acts = rules.mode != Mode::Observe && arrival.acks != Acks::None;
        let waits = acts && arrival.patient && !self.open.is_empty() && !self.gate_open(arrival);
        Verdict {
            class: Class::InOrder,
            action: if waits { Action::Hold } else { Action::Forward },
            first_time: true,
            resent: if self.keeps_former() {
                self.resent(arrival, rules)
            } else {
                None
            },
        }
    }

    #[cold]
    fn resent(&self, arrival: &Arrival, rules: &Rules) -> Option<super::Resent> {
        let original = self.original(arrival, rules)?;
        Some(original.outcome)
    }

    fn judge_any(&mut self, arrival: &Arrival, rules: &Rules) -> Verdict {
        self.expire(arrival, rules);
        let batch = &arrival.batch;
        let known = self.open.iter().any(|a| a.is(batch));
        let predecessor = self.predecessor(batch, arrival.link);
        let class = self.classify(batch, &predecessor, rules);
        let first_time = match class {
            Class::SequenceReuse => !known && self.notes().flagged_crc != batch.crc,
            Class::Gap(gap) => !known && self.notes().flagged_gap != Some(gap.expected),
            _ => !known,
        };
        let action = if rules.mode == Mode::Observe || arrival.acks == Acks::None {
            Action::Forward
        } else if rules.mode == Mode::Enforce && self.is_stale(batch) {
            // Whatever else is known of it: the cluster has accepted a higher
            // epoch here, so no copy of it can be written any more.
            return Verdict {
                class: Class::StaleEpoch,
                action: Action::Refuse(INVALID_PRODUCER_EPOCH),
                first_time: self.notes().refused_crc != batch.crc,
                resent: None,
            };
        } else if let (Class::Duplicate, Some(ack)) = (class, self.absorbable(arrival, rules)) {
            Action::Replay(ack)
        } else {
            self.act(arrival, class, &predecessor, rules)
        };
        let known = known || matches!(class, Class::Duplicate | Class::SequenceReuse);
        Verdict {
            class,
            action,
            first_time,
            resent: if known {
                None
            } else {
                self.resent(arrival, rules)
            },
        }
    }

    /// Whether the broker has taken a batch of this epoch, so that it takes no
    /// later one before its turn: one was acknowledged here, or the beginning
    /// of the epoch is not what is missing.
    fn is_known_to_broker(&self, batch: &BatchId) -> bool {
        let begins = |epoch, first| epoch == batch.epoch && first == Sequence::ZERO;
        let open = |a: Attempt| begins(a.batch.epoch, a.batch.first);
        let queued = |q: &super::Queued| begins(q.epoch, q.first);
        self.epoch == Some(batch.epoch) && self.acked.last().is_some()
            || !(self.open.iter().any(open) || self.notes().queued.iter().any(queued))
    }

    /// S1 of SEMANTICS 7.7. S2 is that this is the window of the topic's
    /// present id, S3 that the facts of a window are those of its epoch only.
    fn is_stale(&self, batch: &BatchId) -> bool {
        self.epoch.is_some_and(|epoch| batch.epoch < epoch)
    }

    fn act(
        &self,
        arrival: &Arrival,
        class: Class,
        predecessor: &Predecessor,
        rules: &Rules,
    ) -> Action {
        if matches!(
            class,
            Class::SequenceReuse | Class::Overlap | Class::StaleEpoch
        ) {
            return Action::Forward;
        }
        let mut order = self.order(arrival, predecessor);
        let is_impatient = matches!(order, Order::Wait) && !arrival.patient;
        if is_impatient && !self.is_known_to_broker(&arrival.batch) {
            // Were it sent on, a broker that knows nothing of the producer
            // would take it, and never again the one before it (KAFKA-15591).
            order = self.mirror(&arrival.batch, super::outcome::NOT_ENOUGH_REPLICAS);
        }
        match order {
            Order::Wait if arrival.patient => Action::Hold,
            Order::Leave | Order::Wait => {
                let unanswered =
                    matches!(class, Class::DuplicateUnknown | Class::DuplicateInFlight);
                if !unanswered || !self.may_be_forgotten(arrival, rules) {
                    Action::Forward
                } else if self.worth_reading(arrival) {
                    Action::Resolve
                } else {
                    self.again(arrival, class)
                }
            }
            Order::Mirror(code) => Action::Mirror(code),
        }
    }

    /// What is done with a batch that comes again and is not in the log, where
    /// the broker may know neither it nor the ones before it.
    fn again(&self, arrival: &Arrival, class: Class) -> Action {
        if class == Class::DuplicateInFlight {
            // The copy may wait its turn at the broker, which would write it
            // however late that comes.
            return if arrival.patient {
                Action::Hold
            } else {
                Action::Defer
            };
        }
        let mut copies = self.open.iter().filter(|a| a.is(&arrival.batch));
        let was_put_off = copies.any(|a| a.mirrors >= PUT_OFF_MAX);
        if self.passes_another(arrival) && !was_put_off {
            Action::Defer
        } else {
            Action::Forward
        }
    }

    /// Whether a batch before this one may not be in the log, and may come
    /// there behind it.
    fn passes_another(&self, arrival: &Arrival) -> bool {
        self.open.iter().any(|a| {
            let is_open = match a.state {
                State::Sent { .. } => !self.gate_open(arrival),
                State::Unknown { .. } => true,
                State::NotWritten { retriable, .. } => retriable,
            };
            is_open && self.is_ahead_of(&a, &arrival.batch)
        })
    }

    /// Whether an attempt is before the batch in its epoch, and nothing behind
    /// it was acknowledged.
    fn is_ahead_of(&self, a: &Attempt, batch: &BatchId) -> bool {
        let is_before = a.batch.epoch == batch.epoch && batch.first.distance(a.batch.first) > 0;
        let in_epoch = self.epoch == Some(batch.epoch);
        let mut acked = self.acked.iter().filter(|_| in_epoch);
        is_before && !acked.any(|fact| fact.first.distance(a.batch.first) >= 0)
    }

    /// Open attempts that are not on their way are forgotten with the TTL.
    fn expire(&mut self, arrival: &Arrival, rules: &Rules) {
        self.open.retain(|a| a.counts(rules, arrival.now));
    }

    fn classify(&self, batch: &BatchId, predecessor: &Predecessor, rules: &Rules) -> Class {
        if let Some(class) = self.known_range(batch) {
            return class;
        }
        match self.epoch {
            Some(epoch) if batch.epoch < epoch => return Class::StaleEpoch,
            Some(epoch) if batch.epoch > epoch => {
                if batch.first == Sequence::ZERO {
                    return Class::NewEpoch;
                }
                if !self.open.iter().any(|a| a.batch.epoch == batch.epoch) {
                    return Class::NewEpochMidway;
                }
            }
            None if self.open.is_empty() && self.notes().blind_end.is_none() => {
                return Class::FirstSeen;
            }
            _ => {}
        }
        if self.overlaps(batch, rules) {
            return Class::Overlap;
        }
        let kind = match predecessor {
            Predecessor::Failed { .. } | Predecessor::GivenUp => GapKind::PredecessorFailed,
            Predecessor::Missing => GapKind::NeverSeen,
            _ => return Class::InOrder,
        };
        let expected = self.expected(batch).unwrap_or(Sequence::ZERO);
        Class::Gap(Gap {
            kind,
            expected,
            missing: u32::try_from(batch.first.distance(expected)).unwrap_or(0),
        })
    }

    /// Rows 2 to 5: a batch whose exact range is known, or a part of one that
    /// was never written.
    fn known_range(&self, batch: &BatchId) -> Option<Class> {
        let in_epoch = self.epoch == Some(batch.epoch);
        if let Some(fact) = self.acked.iter().find(|f| in_epoch && f.same_range(batch)) {
            let same = fact.is(batch);
            return Some(if same {
                Class::Duplicate
            } else {
                Class::SequenceReuse
            });
        }
        let mut best = None;
        for attempt in self.open.iter() {
            let class = match attempt.state {
                State::NotWritten { .. } if attempt.batch.contains(batch) => Class::Retry,
                _ if !attempt.batch.same_range(batch) => continue,
                _ if !attempt.is(batch) => Class::SequenceReuse,
                State::Sent { .. } => return Some(Class::DuplicateInFlight),
                State::Unknown { .. } => Class::DuplicateUnknown,
                State::NotWritten { .. } => Class::Retry,
            };
            if best != Some(Class::DuplicateUnknown) {
                best = Some(class);
            }
        }
        best
    }

    fn overlaps(&self, batch: &BatchId, rules: &Rules) -> bool {
        let in_epoch = self.epoch == Some(batch.epoch);
        let acked = self
            .acked
            .iter()
            .any(|f| super::attempt::ranges_overlap(f.first, f.count, batch.first, batch.count));
        let open = self
            .open
            .iter()
            .any(|a| !matches!(a.state, State::NotWritten { .. }) && a.batch.overlaps(batch));
        (in_epoch && (acked || self.acked.outran(batch, rules.window_batches))) || open
    }

    /// The sequence after the newest batch of the epoch that the cluster has
    /// or may have.
    fn expected(&self, batch: &BatchId) -> Option<Sequence> {
        let acked = self
            .acked
            .last()
            .filter(|f| self.epoch == Some(batch.epoch) && !f.is_restored())
            .map(|f| f.end());
        self.open
            .iter()
            .filter(|a| a.batch.epoch == batch.epoch)
            .filter(|a| !matches!(a.state, State::NotWritten { .. }))
            .map(|a| a.batch.end())
            .chain(acked)
            .filter(|end| batch.first.distance(*end) >= 0)
            .min_by_key(|end| batch.first.distance(*end))
            .or_else(|| self.oldest_failed(batch))
    }

    fn oldest_failed(&self, batch: &BatchId) -> Option<Sequence> {
        self.open
            .iter()
            .filter(|a| a.batch.epoch == batch.epoch)
            .map(|a| a.batch.first)
            .filter(|first| batch.first.distance(*first) > 0)
            .max_by_key(|first| batch.first.distance(*first))
    }

    fn predecessor(&self, batch: &BatchId, link: Link) -> Predecessor {
        let in_epoch = self.epoch == Some(batch.epoch);
        let begins_epoch = !in_epoch && batch.first == Sequence::ZERO;
        if begins_epoch || self.notes().blind_end == Some(batch.first) {
            return Predecessor::Settled;
        }
        if in_epoch && self.acked.iter().any(|f| f.end() == batch.first) {
            return Predecessor::Settled;
        }
        let mut found = None;
        // What came after a restored fact may have come before this process.
        let before = |f: &super::fact::Fact| batch.first.distance(f.first) > 0 && !f.is_restored();
        let mut earlier = in_epoch && self.acked.iter().any(|f| before(&f));
        for a in self.open.iter().filter(|a| a.batch.epoch == batch.epoch) {
            earlier |= batch.first.distance(a.batch.first) > 0;
            if a.batch.end() != batch.first {
                continue;
            }
            found = match (a.state, found) {
                (State::Sent { .. }, _) => return Predecessor::Sent,
                (State::Unknown { candidate, .. }, _) => Some(Predecessor::Unknown {
                    candidate,
                    put_off: a.mirrors > 0,
                }),
                (_, Some(unknown @ Predecessor::Unknown { .. })) => Some(unknown),
                (
                    State::NotWritten {
                        code,
                        retriable: true,
                        ..
                    },
                    _,
                ) => Some(Predecessor::Failed { code }),
                (State::NotWritten { .. }, found) => found.or(Some(Predecessor::GivenUp)),
            };
        }
        match found {
            Some(found) => found,
            None if self.earlier_queued(batch, link) => Predecessor::Queued,
            None if earlier => Predecessor::Missing,
            None => Predecessor::Settled,
        }
    }

    /// Whether a lower batch of the epoch came before this one, on another
    /// connection, in a request that is held.
    fn earlier_queued(&self, batch: &BatchId, link: Link) -> bool {
        let queued = self.notes().queued.iter();
        let mut before = queued.take_while(|q| q.link != link);
        before.any(|q| q.epoch == batch.epoch && batch.first.distance(q.first) > 0)
    }

    fn order(&self, arrival: &Arrival, predecessor: &Predecessor) -> Order {
        let batch = &arrival.batch;
        let wait_for_earlier = |gate_matters: bool| {
            if !(gate_matters && self.gate_open(arrival)) && self.earlier_outstanding(batch) {
                Order::Wait
            } else {
                Order::Leave
            }
        };
        match *predecessor {
            Predecessor::Settled | Predecessor::Sent => wait_for_earlier(true),
            Predecessor::GivenUp => wait_for_earlier(false),
            Predecessor::Queued => Order::Wait,
            Predecessor::Missing => match self.failed_before(arrival) {
                Some(code) if !self.earlier_outstanding(batch) => {
                    self.mirror(batch, super::outcome::mirrored(code))
                }
                _ => wait_for_earlier(false),
            },
            Predecessor::Unknown { candidate, put_off } => {
                if candidate.is_some() || self.gate_open(arrival) && !put_off {
                    Order::Leave
                } else {
                    self.mirror(batch, super::outcome::NOT_ENOUGH_REPLICAS)
                }
            }
            Predecessor::Failed { code } => self.mirror(batch, super::outcome::mirrored(code)),
        }
    }

    /// The error of a batch before this one that a correct client sends again
    /// first: what lies between them may be held for another connection. One of
    /// unknown outcome is such a batch too, unless its leader has it and leads.
    fn failed_before(&self, arrival: &Arrival) -> Option<i16> {
        self.open.iter().find_map(|a| {
            let code = match a.state {
                State::NotWritten {
                    code,
                    retriable: true,
                    ..
                } => code,
                State::Unknown {
                    candidate: None, ..
                } if a.mirrors > 0 || !self.gate_open(arrival) => {
                    super::outcome::NOT_ENOUGH_REPLICAS
                }
                _ => return None,
            };
            self.is_ahead_of(&a, &arrival.batch).then_some(code)
        })
    }

    /// Whether a batch that has waited as long as it may waits for nothing but
    /// what `is_own` names: batches that left before it on its own connection.
    /// A broker deals with a connection's requests in turn, so they delay it
    /// no more here than there; that connection's answers come, or it ends.
    pub fn waits_for_own(
        &self,
        batch: &BatchId,
        link: Link,
        is_own: impl Fn(AttemptId) -> bool,
    ) -> bool {
        if let Predecessor::Queued = self.predecessor(batch, link) {
            return false;
        }
        let waits_for_copy = !self.earlier_outstanding(batch);
        self.open
            .iter()
            .filter(|a| Self::is_before(a, batch) || waits_for_copy && a.is(batch))
            .all(|a| match a.state {
                State::Sent { id } => is_own(id),
                State::Unknown { .. } | State::NotWritten { .. } => true,
            })
    }

    /// "Not forwarded, try again": true only of a batch that never was.
    fn mirror(&self, batch: &BatchId, code: i16) -> Order {
        let in_epoch = self.epoch == Some(batch.epoch);
        // Of an epoch that was left it is not known what may be written.
        if self.is_stale(batch)
            || self.notes().has_forgotten
            || in_epoch && self.acked.iter().any(|f| f.is(batch))
        {
            return Order::Leave;
        }
        let mut mirrors = 0;
        for attempt in self.open.iter().filter(|a| a.is(batch)) {
            if !matches!(attempt.state, State::NotWritten { .. }) {
                return Order::Leave;
            }
            mirrors = attempt.mirrors;
        }
        let most = if self.is_known_to_broker(batch) {
            MIRRORS_KNOWN_MAX
        } else {
            MIRRORS_MAX
        };
        if mirrors < most {
            Order::Mirror(code)
        } else {
            Order::Leave
        }
    }

    /// Whether a batch lower in (epoch, sequence) is on its way. Copies of
    /// one identity are not lower than each other: they never wait.
    fn earlier_outstanding(&self, batch: &BatchId) -> bool {
        let mut open = self.open.iter();
        open.any(|a| a.is_sent() && Self::is_before(&a, batch))
    }

    /// Whether an attempt is lower in (epoch, sequence).
    fn is_before(attempt: &Attempt, batch: &BatchId) -> bool {
        let Identity { epoch, first, .. } = attempt.batch;
        epoch < batch.epoch || (epoch == batch.epoch && batch.first.distance(first) > 0)
    }

    /// A1 to A5: the acknowledgement that this retry may be given.
    fn absorbable(&self, arrival: &Arrival, rules: &Rules) -> Option<super::Ack> {
        if arrival.transactional && !rules.absorb_transactional {
            return None;
        }
        if arrival.realm.is_none() || arrival.realm != self.acked.realm || self.notes().is_gone {
            return None;
        }
        let fact = self.acked.iter().find(|f| f.is(&arrival.batch))?;
        let durable = fact.acked_by.is_all()
            || (arrival.acks == Acks::Leader
                && fact.acked_by != super::AckedBy::NOBODY
                && fact.acked_by == super::AckedBy::leader(arrival.node));
        let fresh = fact.at.within(rules.ttl, arrival.now);
        (durable && fresh).then_some(super::Ack {
            offset: fact.offset,
            append_time: fact.append_time,
            log_start: (self.acked.log_start >= 0).then_some(self.acked.log_start),
        })
    }
}
