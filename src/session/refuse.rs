//! Batches that are not for the broker, by a policy or by a proof.
//!
//! Only mode `enforce` refuses; the others count what it would refuse.

use super::end::End;
use super::outbox::Pass;
use super::produce::{Part, Terms};
use super::route::{Frame, PREFIX};
use super::telling::records;
use super::told::Matter;
use super::topics::Named;
use super::{Blocked, Session};
use crate::config::Mode;
use crate::events::{Event, Kind};
use crate::metrics::{self, FencedBy};
use crate::policy::{Requirement, Requirements};
use crate::window::{Acks, Action, Class, INVALID_PRODUCER_EPOCH, Verdict};
use crate::wire::batch::{Batch, Odd};
use crate::wire::header::RequestHead;
use crate::wire::produce;
use std::borrow::Cow;

/// The topic's leader is elsewhere, or unknown: ask for metadata and try again.
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// It was not written: try again.
const NOT_ENOUGH_REPLICAS: i16 = 19;
/// An operator's policy forbids it.
const POLICY_VIOLATION: i16 = 44;

/// Why a batch is not for the broker, whatever its window says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It lacks what policies require.
    Policy(Requirements),
    /// It may lack it: the topic's name has to be known first, which the
    /// client's next question for metadata tells.
    Unnamed,
    /// The coordinator granted a higher epoch to its transactional id.
    Outranked,
    /// Nothing is wrong with it: another batch of its request is refused, and
    /// the two cannot be told apart any more once one has left.
    Companion,
}

impl Refusal {
    /// What the client is told beside the code.
    pub(super) fn message(self) -> Option<Cow<'static, str>> {
        match self {
            Self::Policy(lacks) => Some(lacks.message()),
            Self::Unnamed | Self::Outranked | Self::Companion => None,
        }
    }

    pub(super) fn code(self) -> i16 {
        match self {
            Self::Policy(_) => POLICY_VIOLATION,
            Self::Unnamed => NOT_LEADER_OR_FOLLOWER,
            Self::Outranked => INVALID_PRODUCER_EPOCH,
            Self::Companion => NOT_ENOUGH_REPLICAS,
        }
    }
}

/// What a batch lacks of what is required of it.
pub(super) fn lacking(require: Requirements, batch: &Batch, acks: Option<Acks>) -> Requirements {
    let idempotent = Requirements::NONE.with(Requirement::Idempotence);
    let has = match batch {
        // Nothing is written.
        Batch::Absent => return Requirements::NONE,
        Batch::Tracked(tracked) if !tracked.transactional => idempotent,
        // Nor is an odd one with a producer id: every broker refuses it, and
        // says better why.
        Batch::Tracked(_)
        | Batch::Odd(Odd::Control | Odd::NegativeSequence | Odd::CountMismatch) => {
            idempotent.with(Requirement::Transactional)
        }
        Batch::Plain { .. } | Batch::Odd(Odd::Magic | Odd::ManyBatches | Odd::Short) => {
            Requirements::NONE
        }
    };
    require.without(has.and(granted(acks)))
}

/// What the front of a request says of all of its batches.
fn granted(acks: Option<Acks>) -> Requirements {
    match acks {
        Some(Acks::All) => Requirements::NONE.with(Requirement::AcksAll),
        Some(Acks::Leader | Acks::None) | None => Requirements::NONE,
    }
}

impl Session {
    pub(super) fn enforces(&self) -> bool {
        self.config.mode == Mode::Enforce
    }

    /// Whether no policy can refuse what has yet to be seen of a request of so
    /// many topics, of which this one came last.
    pub(super) fn meets_policies(
        &self,
        topics: usize,
        topic: Option<&Named>,
        terms: Terms,
    ) -> bool {
        let policies = &self.config.policies;
        if !self.enforces() || policies.is_empty() {
            return true;
        }
        let asked = match topic {
            Some(topic) if topics == 1 => topic.asked,
            _ => policies.of(None),
        };
        asked.require.without(granted(terms.acks)).is_empty()
    }

    /// Whether a batch may have to be refused for more than its window knows.
    pub(super) fn suspects(&mut self, part: &Part) -> bool {
        self.enforces() && (!part.lacks.is_empty() || self.outranked(part))
    }

    /// Why a batch that its window has judged is not for the broker, in mode
    /// enforce. Policies hold for clients that have not proven anything as well: a handshake
    /// that a plaintext listener refuses would be the way around them.
    pub(super) fn refusal(&mut self, part: &Part) -> Option<Refusal> {
        if let Some((_, _, verdict)) = &part.verdict
            && matches!(verdict.action, Action::Replay(_) | Action::Refuse(_))
        {
            // A retry of an acknowledged batch writes nothing.
            return None;
        }
        if part.lacks.is_empty() {
            return self.outranked(part).then_some(Refusal::Outranked);
        }
        let certain = part.lacks.without(part.topic.asked.uncertain);
        Some(if certain.is_empty() {
            Refusal::Unnamed
        } else {
            Refusal::Policy(certain)
        })
    }

    /// Whether a coordinator granted a higher epoch: S1 of SEMANTICS 7.7 for
    /// transactions. S3: an acknowledged batch is left to the broker.
    fn outranked(&mut self, part: &Part) -> bool {
        let Batch::Tracked(tracked) = part.batch else {
            return false;
        };
        let judged = part.verdict.as_ref();
        if !tracked.transactional
            || self.authentication.pending()
            || judged.is_some_and(|(_, arrival, verdict)| {
                arrival.acks == Acks::None || verdict.class == Class::Duplicate
            })
        {
            return false;
        }
        let producer = self.producer(tracked.id.producer);
        producer.is_some_and(|producer| producer.outranks(tracked.id.epoch))
    }

    /// Counts a refused batch and tells of it. Returns where the log begins,
    /// as far as that is known and a broker would say it.
    pub(super) fn note_refused(&mut self, part: &Part) -> Option<i64> {
        if let Some(Refusal::Policy(lacks)) = part.refusal {
            self.tell_violation(part, lacks, true);
        }
        let stale = match (part.refusal, &part.verdict) {
            (None | Some(Refusal::Outranked), Some((key, arrival, verdict))) => {
                let verdict = Verdict {
                    class: Class::StaleEpoch,
                    action: Action::Refuse(INVALID_PRODUCER_EPOCH),
                    ..*verdict
                };
                Some((*key, *arrival, verdict))
            }
            _ => None,
        };
        let refused = metrics::Verdict::Refused;
        let Some((key, arrival, verdict)) = stale else {
            part.topic.metrics.batch(refused, records(&part.batch));
            return None;
        };
        let log_start = self.shared.ledger.refused(key, &arrival, &verdict);
        self.tell_verdict(part, &arrival, &verdict, refused);
        let batch = &arrival.batch;
        let news = arrival.transactional
            && self
                .producer(batch.producer)
                .is_some_and(|producer| producer.fence(batch.epoch));
        if news {
            let event = Event {
                detail: "revealed by produce; hapax saw a higher epoch of it".into(),
                ..Event::new(Kind::FencedProducer(FencedBy::Proxy))
            };
            self.record_for(&part.topic, part.partition, batch, event);
        }
        log_start
    }

    /// Counts what a forwarded batch lacks: mode enforce would refuse it.
    pub(super) fn note_lacking(&mut self, part: &Part) {
        let certain = part.lacks.without(part.topic.asked.uncertain);
        if !certain.is_empty() && !self.enforces() {
            self.tell_violation(part, certain, false);
        }
    }

    fn tell_violation(&mut self, part: &Part, lacks: Requirements, refused: bool) {
        let topic = &part.topic;
        for requirement in lacks.iter() {
            topic.metrics.violation(match requirement {
                Requirement::Idempotence => metrics::Policy::Idempotence,
                Requirement::AcksAll => metrics::Policy::AcksAll,
                Requirement::Transactional => metrics::Policy::Transactional,
            });
        }
        // Each batch counts; what a connection does wrong is told once.
        let told = topic.told.get();
        let matter = Matter::Policy(self.info.client.ip(), topic.key);
        if lacks.without(told).is_empty() || self.shared.may_tell(matter).is_none() {
            return;
        }
        topic.told.set(told.and(lacks));
        let mut detail = lacks.message().into_owned();
        if !refused {
            detail.push_str("; forwarded, as only mode enforce refuses");
        }
        let event = Event {
            detail: detail.into(),
            ..Event::new(Kind::PolicyViolation)
        };
        if let Batch::Tracked(tracked) = part.batch {
            self.record_for(topic, part.partition, &tracked.id, event);
            return;
        }
        self.shared.events.record(Event {
            topic: topic.known.name.clone(),
            partition: Some(part.partition),
            client_id: self.info.client_id.get().cloned(),
            ..event
        });
    }

    /// Ends a session whose request cannot be answered any more: a part of it
    /// has left, or could not be collected. The broker gets no whole frame of
    /// it, and the client's next try is collected.
    pub(super) fn cut(&mut self, parts: &[Part]) -> End {
        for part in parts.iter().filter(|part| part.refuses()) {
            self.note_refused(part);
        }
        End::Refused("a batch of a large request, of which nothing was written")
    }

    /// Refuses batches that ask for no answer as a broker does: what it takes
    /// of the request is written, and the connection ends. What was asked
    /// before is answered first.
    pub(super) fn refuse_quietly(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        parts: &[Part],
        terms: Terms,
    ) -> Result<bool, End> {
        if !self.pipeline.is_empty() {
            self.blocked = Some(Blocked::Full);
            return Ok(false);
        }
        let followed = head.api_version >= produce::OLDEST_FOLLOWED;
        if followed && parts.iter().any(Part::forwards) {
            if !frame.whole() {
                return self.more(frame);
            }
            let rebuilt = self.rebuilt(frame, head, parts)?;
            let start = pass.position();
            self.quiet.push(start..start + rebuilt.len() as u64);
            // They ask for no answer, so nothing will be settled.
            self.commit(parts, terms);
            pass.replace(PREFIX + frame.len, &rebuilt);
        }
        for part in parts.iter().filter(|part| part.refuses()) {
            self.note_refused(part);
        }
        Err(End::Refused(
            "a batch with acks=0 lacks what a policy of its topic requires",
        ))
    }
}
