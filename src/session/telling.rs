//! What a verdict is counted as, and what of it is worth an event.

use super::Session;
use super::produce::Part;
use super::topics::Named;
use crate::events::{Event, Kind};
use crate::ids::{BatchId, Sequence};
use crate::metrics;
use crate::window::{Arrival, Class, GapKind, Resent, Verdict};
use crate::wire::batch::Batch;

impl Session {
    pub(super) fn count_untracked(&self, part: &Part) {
        if part.batch != Batch::Absent {
            let untracked = metrics::Verdict::Untracked;
            part.topic.metrics.batch(untracked, records(&part.batch));
        }
    }

    /// Counts a batch under its verdict and tells what is worth telling.
    pub(super) fn tell_verdict(
        &mut self,
        part: &Part,
        arrival: &Arrival,
        verdict: &Verdict,
        counted: metrics::Verdict,
    ) {
        let batch = &arrival.batch;
        part.topic.metrics.batch(counted, u64::from(batch.count));
        if self.epoch_seen != Some((batch.producer, batch.epoch)) {
            self.see_epoch(part, batch);
        }
        if let Some(resent) = verdict.resent {
            self.tell_resent(part, arrival, resent);
        }
        let Some(kind) = flag(verdict, counted, batch) else {
            return;
        };
        let mut event = Event::new(kind);
        if let Class::Gap(gap) = verdict.class {
            event.expected = Some(gap.expected);
            event.missing = Some(gap.missing);
            if gap.kind == GapKind::NeverSeen {
                part.topic
                    .metrics
                    .shared
                    .missing_records
                    .inc_by(u64::from(gap.missing));
            }
        }
        self.record(part, batch, event);
    }

    /// A batch is of another epoch, or producer, than the one before it.
    #[inline(never)]
    fn see_epoch(&mut self, part: &Part, batch: &BatchId) {
        let Some(producer) = self.producer(batch.producer) else {
            return;
        };
        let bumped = producer.bumps(batch.epoch);
        self.epoch_seen = Some((batch.producer, batch.epoch));
        if bumped {
            self.record(part, batch, Event::new(Kind::EpochBump));
        }
    }

    /// The records are known from a batch of a former epoch.
    #[cold]
    fn tell_resent(&self, part: &Part, arrival: &Arrival, resent: Resent) {
        let original = part
            .key()
            .and_then(|key| self.shared.ledger.original(key, arrival));
        let outcome = original.map_or(resent, |original| original.outcome);
        let kind = Kind::EpochResend(match outcome {
            Resent::Acknowledged => metrics::Original::Acknowledged,
            Resent::Unknown => metrics::Original::Unknown,
        });
        let detail = original.map(|original| {
            let (first, last) = (original.first, original.last());
            let epoch = original.epoch;
            match outcome {
                Resent::Acknowledged => {
                    format!("sequences {first} to {last} of epoch {epoch}, which was acknowledged")
                }
                Resent::Unknown => {
                    format!("sequences {first} to {last} of epoch {epoch}, which may be in the log")
                }
            }
        });
        let event = Event {
            original_offset: original.and_then(|original| original.offset),
            detail: detail.unwrap_or_default().into(),
            ..Event::new(kind)
        };
        self.record(part, &arrival.batch, event);
    }

    fn record(&self, part: &Part, batch: &BatchId, event: Event) {
        self.record_for(&part.topic, part.partition, batch, event);
    }

    pub(super) fn record_for(&self, topic: &Named, partition: i32, batch: &BatchId, event: Event) {
        let producer = self.producers.get(&batch.producer);
        self.shared.events.record(Event {
            producer: Some(batch.producer),
            epoch: Some(batch.epoch),
            first: Some(batch.first),
            count: Some(batch.count),
            topic: topic.known.name.clone(),
            partition: Some(partition),
            client_id: self.info.client_id.get().cloned(),
            transactional_id: producer.and_then(|p| p.transactional_id.get().cloned()),
            ..event
        });
    }
}

/// The records of a batch, where it says how many they are.
pub(super) fn records(batch: &Batch) -> u64 {
    u64::from(match batch {
        Batch::Plain { records } => *records,
        Batch::Tracked(tracked) => tracked.id.count,
        Batch::Absent | Batch::Odd(_) => 0,
    })
}

/// The verdict under which a forwarded batch is counted.
pub(super) fn forwarded(class: Class) -> metrics::Verdict {
    match class {
        Class::InOrder
        | Class::FirstSeen
        | Class::Retry
        | Class::NewEpoch
        | Class::NewEpochMidway => metrics::Verdict::Forwarded,
        Class::Duplicate | Class::DuplicateInFlight | Class::DuplicateUnknown => {
            metrics::Verdict::DuplicateForwarded
        }
        Class::SequenceReuse => metrics::Verdict::SequenceReuse,
        Class::Overlap => metrics::Verdict::Overlap,
        Class::StaleEpoch => metrics::Verdict::StaleEpoch,
        Class::Gap(_) => metrics::Verdict::Gap,
    }
}

/// The event that a verdict is worth, one per occurrence.
fn flag(verdict: &Verdict, counted: metrics::Verdict, batch: &BatchId) -> Option<Kind> {
    match verdict.class {
        Class::Duplicate | Class::DuplicateInFlight | Class::DuplicateUnknown => {
            Some(match counted {
                metrics::Verdict::DuplicateAbsorbed => Kind::DuplicateAbsorbed,
                metrics::Verdict::DuplicateResolved => Kind::DuplicateResolved,
                _ => Kind::DuplicateForwarded,
            })
        }
        _ if !verdict.first_time => None,
        Class::SequenceReuse => Some(Kind::SequenceReuse),
        Class::Overlap => Some(Kind::Overlap),
        Class::StaleEpoch => Some(Kind::StaleEpoch),
        Class::Gap(gap) => Some(Kind::Gap(match gap.kind {
            GapKind::PredecessorFailed => metrics::GapKind::PredecessorFailed,
            GapKind::NeverSeen => metrics::GapKind::NeverSeen,
        })),
        Class::FirstSeen if batch.first != Sequence::ZERO => {
            Some(Kind::Gap(metrics::GapKind::NoBaseline))
        }
        Class::NewEpochMidway => Some(Kind::Gap(metrics::GapKind::NewEpochMidway)),
        Class::FirstSeen | Class::InOrder | Class::Retry | Class::NewEpoch => None,
    }
}
