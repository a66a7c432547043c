//! Produce responses: the batches that they settle, and what the client gets.

use super::Session;
use super::end::End;
use super::pipeline::Owed;
use super::route::PREFIX;
use super::topics::Named;
use crate::events::{Event, Kind};
use crate::ledger::{Ticket, UNSEEN_FENCE};
use crate::metrics::{self, FencedBy, Side};
use crate::window::{Ack, Gap, Outcome, REQUEST_TIMED_OUT, Settled, classify};
use crate::wire::api;
use crate::wire::produce::{self, PartitionReply, TopicRef};
use crate::wire::recode;
use bytes::Bytes;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// A batch on its way, and how the response will call its topic.
pub(super) struct Sent {
    pub ticket: Ticket,
    pub topic: Rc<Named>,
    /// The time of its newest record.
    pub newest: i64,
    /// Whether its request names the partition again: brokers answer once for
    /// both batches, and keep one of them.
    pub ambiguous: bool,
    settled: Cell<bool>,
}

impl Sent {
    pub(super) fn new(ticket: Ticket, topic: Rc<Named>, newest: i64) -> Self {
        Self {
            ticket,
            topic,
            newest,
            ambiguous: false,
            settled: Cell::new(false),
        }
    }

    fn edit(&self, told: Told) -> Edit {
        Edit {
            topic: self.topic.raw.clone(),
            partition: self.ticket.key.partition,
            told,
        }
    }
}

/// A partition of a response that the client gets otherwise than it came.
pub(super) struct Edit {
    topic: produce::Topic,
    partition: i32,
    told: Told,
}

/// What the client is told of it.
#[derive(Clone, Copy)]
enum Told {
    /// This error.
    Error(i16),
    /// Success at this offset and time.
    Written(i64, i64),
}

/// A response that waits until the log was read.
pub(super) struct Answered {
    pub owed: Owed,
    pub frame: Vec<u8>,
    pub endpoints: bool,
    /// Whether it says no error, but for the doubts.
    pub ok: bool,
    pub edits: Vec<Edit>,
    /// The batches that it refuses and the log may have, by their place among
    /// the session's tickets.
    pub doubts: VecDeque<usize>,
}

const OUT_OF_ORDER: i16 = 45;

impl Session {
    /// Settles the batches that a response answers. Returns what the client
    /// gets in its place: nothing, where it has to wait for the log to be read.
    pub(super) fn produce_reply(&mut self, owed: Owed, frame: &[u8]) -> Result<Option<Bytes>, End> {
        let version = owed.head.api_version;
        let mut settling = Settling {
            reads: self.may_read_back(),
            session: self,
            due: owed.tickets,
            next: 0,
            places: None,
            ok: true,
            edits: Vec::new(),
            doubts: Vec::new(),
        };
        let read = produce::replies(version, frame, |reply| settling.reply(&reply));
        let Settling {
            ok, edits, doubts, ..
        } = settling;
        match read {
            Ok(endpoints) if !doubts.is_empty() => {
                self.wait_for_log(Answered {
                    frame: frame.to_vec(),
                    owed,
                    endpoints,
                    ok,
                    edits,
                    doubts: doubts.into(),
                });
                Ok(Some(Bytes::new()))
            }
            Ok(endpoints) => {
                self.all_settled(&owed, ok);
                if !endpoints && edits.is_empty() && owed.joined_by().is_empty() {
                    return Ok(None);
                }
                self.changed(&owed, frame, endpoints, &edits)
            }
            Err(error) => {
                for doubt in doubts {
                    let _ = self.refused(doubt);
                }
                self.all_settled(&owed, ok);
                Err(self.malformed(Side::Upstream, error))
            }
        }
    }

    /// All that the response says has been taken in.
    pub(super) fn all_settled(&mut self, owed: &Owed, ok: bool) {
        for _ in 0..owed.tickets {
            let sent = self.tickets.pop_front();
            if let Some(sent) = sent.filter(|sent| !sent.settled.get()) {
                self.settle_silent(&sent);
            }
        }
        self.answered(owed, ok);
    }

    /// A batch that was refused as out of order, and that the log does not
    /// have or cannot be asked for. Returns what the client is told instead.
    pub(super) fn refused(&self, doubt: usize) -> Option<Edit> {
        let sent = self.tickets.get(doubt)?;
        let outcome = Outcome::OutOfOrder;
        let settled = self.shared.ledger.settle(&sent.ticket, outcome, self.time);
        self.tell_settled(sent, OUT_OF_ORDER, outcome, &settled);
        let shield = settled.shield.map(Told::Error);
        shield.map(|told| sent.edit(told))
    }

    /// A batch that was refused as out of order stands in the log. Returns
    /// what the client is told instead.
    pub(super) fn found(&self, doubt: usize, ack: Ack) -> Option<Edit> {
        let sent = self.tickets.get(doubt)?;
        let outcome = Outcome::Found(ack);
        let settled = self.shared.ledger.settle(&sent.ticket, outcome, self.time);
        self.tell_settled(sent, OUT_OF_ORDER, outcome, &settled);
        let Ticket { key, batch, .. } = &sent.ticket;
        let event = Event {
            detail: "the broker refused it as out of order (45)".into(),
            ..Event::new(Kind::DuplicateResolved)
        };
        self.record_for(&sent.topic, key.partition, batch, event);
        Some(sent.edit(Told::Written(ack.offset, ack.append_time)))
    }

    /// A batch was refused as out of order, and the log does not show yet
    /// whether it has an earlier copy. Returns what the client is told instead.
    pub(super) fn left_open(&self, doubt: usize) -> Option<Edit> {
        let sent = self.tickets.get(doubt)?;
        if !self.shared.ledger.may_be_written(&sent.ticket) {
            return self.refused(doubt);
        }
        let outcome = Outcome::Unknown { candidate: None };
        let settled = self.shared.ledger.settle(&sent.ticket, outcome, self.time);
        self.tell_settled(sent, OUT_OF_ORDER, outcome, &settled);
        Some(sent.edit(Told::Error(REQUEST_TIMED_OUT)))
    }

    /// The response as the client gets it, if it is not as it came.
    pub(super) fn changed(
        &self,
        owed: &Owed,
        frame: &[u8],
        endpoints: bool,
        edits: &[Edit],
    ) -> Result<Option<Bytes>, End> {
        let version = owed.head.api_version;
        let malformed = |error| self.malformed(Side::Upstream, error);
        let mut whole = None;
        if !edits.is_empty() {
            let told = |topic: TopicRef<'_>, partition: i32| {
                let mut edits = edits.iter();
                let edit = edits.find(|e| e.partition == partition && e.topic.as_ref() == topic)?;
                Some(edit.told)
            };
            let recoded = recode::recode(version, frame, |topic, partition| {
                match told(topic, partition)? {
                    Told::Error(code) => Some(code),
                    Told::Written(..) => None,
                }
            });
            let recoded = recoded.map_err(malformed)?;
            let frame = recoded.get(PREFIX..).unwrap_or_default();
            let acknowledged =
                produce::acknowledge(version, frame, |topic, partition| {
                    match told(topic, partition)? {
                        Told::Written(offset, time) => Some((offset, time)),
                        Told::Error(_) => None,
                    }
                });
            whole = Some(acknowledged.map_err(malformed)?);
        }
        let answers = owed.joined_by();
        if !answers.is_empty() {
            let frame = without_length(whole.as_deref()).unwrap_or(frame);
            whole = Some(produce::merge(version, frame, answers).map_err(malformed)?);
        }
        if endpoints {
            let frame = without_length(whole.as_deref()).unwrap_or(frame);
            let rewritten = self.rewritten(api::PRODUCE, version, frame)?;
            whole = rewritten.or(whole);
        }
        Ok(whole)
    }

    /// A response that does not speak of a batch leaves its outcome unknown.
    #[cold]
    fn settle_silent(&self, sent: &Sent) {
        let unknown = Outcome::Unknown { candidate: None };
        let _ = self.shared.ledger.settle(&sent.ticket, unknown, self.time);
    }

    /// What the settling of a batch is worth telling.
    fn tell_settled(&self, sent: &Sent, error: i16, outcome: Outcome, settled: &Settled) {
        let Ticket { key, batch, .. } = &sent.ticket;
        let record = |event| self.record_for(&sent.topic, key.partition, batch, event);
        if error == 0 {
            self.shared.ledger.topics.confirm(key.topic);
        }
        sent.topic.metrics.shared.broker_error(error);
        if settled.disagreed {
            let kind = if outcome == Outcome::OutOfOrder {
                Kind::Disagreement
            } else {
                Kind::LogTruncated
            };
            record(Event::new(kind));
        }
        if let Some(code) = settled.shield {
            record(Event {
                detail: format!("shown as {code}").into(),
                ..Event::new(Kind::Shielded)
            });
        }
        if let Some(Gap {
            kind: _,
            expected,
            missing,
        }) = settled.gap
        {
            record(Event {
                expected: Some(expected),
                missing: Some(missing),
                detail: "the cluster took this batch although one before it is still open".into(),
                ..Event::new(Kind::Gap(metrics::GapKind::PredecessorFailed))
            });
        }
        let producer = self.producers.get(&batch.producer);
        let fenced = matches!(error, 47 | 90) && sent.ticket.transactional;
        if fenced && producer.is_none_or(|producer| producer.fence(batch.epoch)) {
            let by = producer.map_or(UNSEEN_FENCE, |producer| producer.fenced_by(batch.epoch));
            record(Event {
                detail: format!("revealed by produce; {by}").into(),
                ..Event::new(Kind::FencedProducer(FencedBy::Broker))
            });
        }
    }
}

/// Settles the batches of one response while it is read.
struct Settling<'a> {
    session: &'a Session,
    /// How many of the session's tickets the response answers.
    due: usize,
    /// Where the batch that follows the last one found would stand: brokers
    /// answer in the order of the request, but for the order of topics.
    next: usize,
    /// Where each batch stands, once an answer came out of that order.
    places: Option<HashMap<(TopicRef<'a>, i32), usize>>,
    ok: bool,
    edits: Vec<Edit>,
    /// Whether the log may be read back.
    reads: bool,
    doubts: Vec<usize>,
}

impl<'a> Settling<'a> {
    /// The batch that an answer is about.
    fn find(&mut self, topic: TopicRef<'_>, partition: i32) -> Option<&'a Sent> {
        let is = |sent: &&Sent| {
            sent.ticket.key.partition == partition && sent.topic.raw.as_ref() == topic
        };
        let tickets = &self.session.tickets;
        let next = tickets.get(self.next).filter(|_| self.next < self.due);
        if let Some(sent) = next.filter(is) {
            self.next += 1;
            return Some(sent);
        }
        let places = self.places.get_or_insert_with(|| {
            let places = tickets.iter().take(self.due).enumerate();
            places
                .map(|(at, sent)| ((sent.topic.raw.as_ref(), sent.ticket.key.partition), at))
                .collect()
        });
        let at = *places.get(&(topic, partition))?;
        self.next = at + 1;
        tickets.get(at)
    }

    fn reply(&mut self, reply: &PartitionReply<'_>) {
        let Some(sent) = self.find(reply.topic, reply.partition) else {
            self.ok &= reply.error == 0;
            return;
        };
        sent.settled.set(true);
        if reply.error == OUT_OF_ORDER && self.reads && self.session.doubts(sent) {
            // `find` has just gone past it.
            self.doubts.push(self.next - 1);
            return;
        }
        self.ok &= reply.error == 0;
        let outcome = if sent.ambiguous {
            Outcome::Unknown { candidate: None }
        } else {
            classify(
                reply.error,
                reply.base_offset,
                reply.log_append_time,
                reply.log_start_offset,
            )
        };
        let session = self.session;
        let mut settled = session
            .shared
            .ledger
            .settle(&sent.ticket, outcome, session.time);
        // Nobody is shown what an orphan session is told.
        settled.shield = settled.shield.filter(|_| session.orphan.is_none());
        if reply.error == 0 && sent.topic.known.confirmed && settled == Settled::default() {
            return;
        }
        session.tell_settled(sent, reply.error, outcome, &settled);
        if let Some(code) = settled.shield {
            self.edits.push(sent.edit(Told::Error(code)));
        }
    }
}

fn without_length(whole: Option<&[u8]>) -> Option<&[u8]> {
    whole.and_then(|whole| whole.get(PREFIX..))
}
