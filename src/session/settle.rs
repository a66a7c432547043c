//! Produce responses: the batches that they settle, and what the client gets.

use super::Session;
use super::end::End;
use super::pipeline::{Owed, Reply};
use super::route::PREFIX;
use super::topics::Named;
use crate::events::{Event, Kind};
use crate::ledger::{Ticket, UNSEEN_FENCE};
use crate::metrics::{self, FencedBy, Side};
use crate::window::{Gap, Outcome, Settled, classify};
use crate::wire::api;
use crate::wire::produce::{self, PartitionReply, TopicRef};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// A batch on its way, and how the response will call its topic.
pub(super) struct Sent {
    pub ticket: Ticket,
    pub topic: Rc<Named>,
    /// Whether its request names the partition again: brokers answer once for
    /// both batches, and keep one of them.
    pub ambiguous: bool,
    settled: Cell<bool>,
}

impl Sent {
    pub(super) fn new(ticket: Ticket, topic: Rc<Named>) -> Self {
        Self {
            ticket,
            topic,
            ambiguous: false,
            settled: Cell::new(false),
        }
    }
}

impl Session {
    /// Settles the batches that a response answers. Returns what the client
    /// gets in its place.
    pub(super) fn produce_reply(
        &mut self,
        owed: &Owed,
        frame: &[u8],
    ) -> Result<Option<Bytes>, End> {
        let version = owed.head.api_version;
        let mut settling = Settling {
            session: self,
            due: owed.tickets,
            next: 0,
            places: None,
            ok: true,
            shields: Vec::new(),
        };
        let read = produce::replies(version, frame, |reply| settling.reply(&reply));
        let Settling { ok, shields, .. } = settling;
        self.settle_silent(owed.tickets);
        self.tickets.drain(..owed.tickets);
        self.answered(owed, ok);
        let endpoints = read.map_err(|error| self.malformed(Side::Upstream, error))?;
        self.changed(owed, frame, endpoints, &shields)
    }

    /// The response as the client gets it, if it is not as it came.
    fn changed(
        &self,
        owed: &Owed,
        frame: &[u8],
        endpoints: bool,
        shields: &[(produce::Topic, i32, i16)],
    ) -> Result<Option<Bytes>, End> {
        let version = owed.head.api_version;
        let malformed = |error| self.malformed(Side::Upstream, error);
        let mut whole = None;
        if !shields.is_empty() {
            let recoded = produce::recode(version, frame, |topic, partition| {
                let shield = shields
                    .iter()
                    .find(|(t, p, _)| *p == partition && t.as_ref() == topic)?;
                Some(shield.2)
            });
            whole = Some(recoded.map_err(malformed)?);
        }
        if let Reply::Produce(answers) = &owed.reply
            && !answers.is_empty()
        {
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
    fn settle_silent(&self, due: usize) {
        let due = self.tickets.iter().take(due);
        for sent in due.filter(|sent| !sent.settled.get()) {
            let unknown = Outcome::Unknown { candidate: None };
            let _ = self.shared.ledger.settle(&sent.ticket, unknown, self.time);
        }
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
    shields: Vec<(produce::Topic, i32, i16)>,
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
        self.ok &= reply.error == 0;
        let Some(sent) = self.find(reply.topic, reply.partition) else {
            return;
        };
        sent.settled.set(true);
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
        let settled = session
            .shared
            .ledger
            .settle(&sent.ticket, outcome, session.time);
        if reply.error == 0 && sent.topic.known.confirmed && settled == Settled::default() {
            return;
        }
        session.tell_settled(sent, reply.error, outcome, &settled);
        if let Some(code) = settled.shield {
            self.shields
                .push((sent.topic.raw.clone(), reply.partition, code));
        }
    }
}

fn without_length(whole: Option<&[u8]>) -> Option<&[u8]> {
    whole.and_then(|whole| whole.get(PREFIX..))
}
