//! Produce: judged on the way in, settled on the way out.
//!
//! All batches of a request are judged, then committed together: a request
//! that is held or withdrawn leaves no trace. A request goes on as the bytes
//! that came, unless some of its batches are answered here.

use super::end::End;
use super::moment::Moment;
use super::outbox::Pass;
use super::pipeline::Reply;
use super::readback::Look;
use super::refuse::{Refusal, lacking};
use super::route::{Frame, PREFIX, RequestStage};
use super::settle::Sent;
use super::shared::Shared;
use super::telling::forwarded;
use super::topics::Named;
use super::{Blocked, FIRST_PART, Session};
use crate::config::Mode;
use crate::ids::ProducerId;
use crate::ledger::{Hasher, Link, Producer, Ticket, WindowKey};
use crate::metrics::{self, Api, Limit, Presence, Side};
use crate::policy::Requirements;
use crate::window::{Ack, Acks, Action, Arrival, Class, REQUEST_TIMED_OUT, Verdict};
use crate::wire::batch::{Batch, Odd, Tracked};
use crate::wire::header::{self, RequestHead};
use crate::wire::produce::{self, Answer, Front, Sink, TopicRef, Walk};
use crate::wire::{WireError, api};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// Producers whose look-up a connection keeps.
const PRODUCERS_CACHED: usize = 1024;
/// Partitions of a request that a worker keeps room for.
const PARTS_KEPT: usize = 64;
/// What a mirrored answer says where an offset or a time would stand.
const NO_TIME: i64 = -1;

/// A request that waits for a batch of another one.
pub(super) struct Held {
    pub deadline: Moment,
    _presence: Presence,
}

/// The batches of a request that waits: what follows them on other connections
/// waits too, until this is dropped.
pub(super) struct Queue {
    shared: Arc<Shared>,
    link: Link,
    keys: Vec<WindowKey>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        for key in &self.keys {
            self.shared.ledger.unqueue(*key, self.link);
        }
    }
}

thread_local! {
    /// What the worker looked at the last Produce request with, emptied.
    static PARTS: Cell<Vec<Part>> = const { Cell::new(Vec::new()) };
}

/// One partition of a request.
pub(super) struct Part {
    pub topic: Rc<Named>,
    pub partition: i32,
    pub batch: Batch,
    /// What policies require of it that it has not.
    pub lacks: Requirements,
    /// What a window says of it; `None` where no window is asked.
    pub verdict: Option<(WindowKey, Arrival, Verdict)>,
    /// Why it is not for the broker, whatever its window says.
    pub refusal: Option<Refusal>,
    /// What it leaves with, once it is noted that it leaves.
    ticket: Option<Option<Ticket>>,
    /// Whether the log was read for it and has it.
    found: bool,
}

/// A partition of a topic, as one connection's requests call it.
type Place = (*const Named, i32);
type Places = HashSet<Place, Hasher>;

/// What the front of a request says of all of its batches.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// `None`: a value that brokers refuse.
    pub acks: Option<Acks>,
    pub timeout: Duration,
}

/// A large request whose batches are judged as they pass.
pub(super) struct Streamed {
    left: usize,
    walk: Walk,
    terms: Terms,
    /// The topic of the partitions that come next.
    topic: Option<Rc<Named>>,
    /// The partitions that have passed.
    seen: Places,
}

impl Streamed {
    /// How many of the next bytes are records.
    pub(super) fn unseen(&self) -> usize {
        // Records that do not end with their request are the walk's to refuse.
        let skip = self.walk.skip();
        if skip <= self.left { skip } else { 0 }
    }

    /// `bytes` of those have passed, `bytes <= self.unseen()`.
    pub(super) fn passed(&mut self, bytes: usize) {
        self.walk.skipped(bytes);
        self.left -= bytes;
    }
}

/// Collects what a walk finds.
struct Collector<'a> {
    session: &'a mut Session,
    parts: &'a mut Vec<Part>,
    topic: &'a mut Option<Rc<Named>>,
    terms: Option<Terms>,
    /// Topics that the front announced.
    topics: usize,
    /// Partitions that the topic announced last.
    announced: usize,
}

impl Sink for Collector<'_> {
    fn front(&mut self, front: Front<'_>) {
        self.terms = Some(Terms {
            acks: Acks::from_wire(front.acks),
            timeout: Duration::from_millis(u64::try_from(front.timeout_ms).unwrap_or(0)),
        });
        self.topics = front.topics;
    }

    fn topic(&mut self, topic: TopicRef<'_>, partitions: usize) {
        *self.topic = Some(self.session.named(topic));
        self.announced = partitions;
    }

    fn partition(&mut self, index: i32, batch: Batch) {
        if let Some(topic) = &*self.topic {
            let require = topic.asked.require;
            let lacks = if require.is_empty() {
                require
            } else {
                lacking(require, &batch, self.terms.and_then(|terms| terms.acks))
            };
            self.parts.push(Part {
                topic: Rc::clone(topic),
                partition: index,
                batch,
                lacks,
                verdict: None,
                refusal: None,
                ticket: None,
                found: false,
            });
        }
    }
}

impl Session {
    /// Deals with a Produce request at the head of a pass. Returns `false`
    /// where more bytes, or another batch, must come first.
    pub(super) fn produce(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        waker: &Waker,
    ) -> Result<bool, End> {
        let version = head.api_version;
        if version > produce::NEWEST {
            let api = api::name(api::PRODUCE);
            return Err(End::UnknownVersion { api, version });
        }
        let flexible = header::flexible(api::PRODUCE, version).unwrap_or_default();
        let body_at = header::body_at(frame.bytes, flexible)
            .map_err(|error| self.malformed(Side::Client, error))?;
        let Some(body) = body_at.and_then(|at| frame.bytes.get(at..)) else {
            return self.more(frame);
        };

        let mut parts = PARTS.take();
        let done = self.produce_walked(pass, frame, head, body, &mut parts, waker);
        keep_room(parts);
        if self.queue.is_some() && !matches!(done, Ok(false)) {
            // It has left, or is answered.
            self.queue = None;
        }
        done
    }

    /// Asks for the rest of a frame; one that is whole has nothing to give.
    pub(super) fn more(&mut self, frame: Frame<'_>) -> Result<bool, End> {
        if frame.whole() {
            let what = "a produce request";
            return Err(self.malformed(Side::Client, WireError::Truncated { what }));
        }
        let first_part = frame.len.min(FIRST_PART);
        Ok(self.want(if frame.bytes.len() < first_part {
            first_part
        } else {
            frame.len
        }))
    }

    /// Whether there is room to collect the rest of a request; if not it
    /// streams, and what is found later is forwarded.
    fn may_collect(&mut self, frame: Frame<'_>) -> bool {
        if self.collecting.is_none() {
            self.collecting = self
                .shared
                .collect(frame.len, self.config.limits.collected_bytes);
        }
        self.collecting.is_some()
    }

    fn produce_walked(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        body: &[u8],
        parts: &mut Vec<Part>,
        waker: &Waker,
    ) -> Result<bool, End> {
        let mut walk = Walk::new(head.api_version);
        let mut topic = None;
        let mut collector = Collector {
            session: self,
            parts,
            topic: &mut topic,
            terms: None,
            topics: 0,
            announced: 0,
        };
        let walked = walk.advance(body, &mut collector);
        let (terms, topics, announced) = (collector.terms, collector.topics, collector.announced);
        let walked = walked.map_err(|error| self.malformed(Side::Client, error))?;
        let Some(terms) = terms else {
            return self.more(frame);
        };
        if frame.whole() && (!walk.done() || walked < body.len()) {
            let value = i64::try_from(body.len() - walked).unwrap_or(i64::MAX);
            let what = "a produce request";
            return Err(self.malformed(Side::Client, WireError::Malformed { what, value }));
        }
        let all_seen = walk.done() || (topics == 1 && announced == 1 && parts.len() == 1);
        if !all_seen && frame.bytes.len() < frame.len.min(FIRST_PART) {
            return self.more(frame);
        }
        let streams = all_seen
            || (self.may_stream(parts) && self.meets_policies(topics, topic.as_deref(), terms));
        if !streams && self.may_collect(frame) {
            return self.more(frame);
        }
        if !self.judge(parts, terms, all_seen, waker) {
            return Ok(false);
        }
        let acts = |p: &Part| !p.forwards();
        if !all_seen && parts.iter().any(acts) {
            if self.may_collect(frame) {
                return self.more(frame);
            }
            if parts.iter().any(Part::refuses) {
                return Err(self.cut(parts));
            }
            parts.iter_mut().for_each(Part::forward);
        }
        if !parts.iter().any(acts) {
            let rest = (!all_seen).then(|| {
                // What the walk has not taken in has to be seen again.
                let seen = frame.bytes.len() - body.len() + walked;
                Box::new(Streamed {
                    left: frame.len - seen,
                    walk,
                    terms,
                    topic,
                    seen: parts.iter().map(Part::place).collect(),
                })
            });
            self.send_on(pass, frame, head, parts, terms, rest);
            return Ok(true);
        }
        let refused = parts.iter().any(Part::refuses);
        if refused && terms.acks == Some(Acks::None) {
            return self.refuse_quietly(pass, frame, head, parts, terms);
        }
        if refused && head.api_version < produce::OLDEST_FOLLOWED {
            // Answers so old are not merged: what came with it comes again.
            parts.iter_mut().for_each(Part::send_back);
        }
        if parts.iter().all(acts) {
            return Ok(self.answer_all(pass, frame, head, parts));
        }
        self.split(pass, frame, head, parts, terms)
    }

    /// Commits a request that goes on as it came; `rest` is what has yet to
    /// be seen of it.
    fn send_on(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        parts: &[Part],
        terms: Terms,
        rest: Option<Box<Streamed>>,
    ) {
        let reply = match head.api_version {
            ..produce::OLDEST_FOLLOWED => Reply::Pass,
            _ => Reply::Produce(Vec::new()),
        };
        let mut owed = self.owed(pass, frame, head, reply);
        owed.timeout = Some(terms.timeout);
        owed.tickets = self.commit(parts, terms);
        if terms.acks == Some(Acks::None) {
            self.note_quiet(pass, frame);
        } else {
            self.owe(owed);
        }
        if let Some(rest) = rest {
            pass.keep(PREFIX + frame.len - rest.left);
            self.request = RequestStage::Walk(rest);
        } else {
            self.pass_on(pass, frame);
        }
    }

    /// Whether the rest of a large request may be judged as it passes.
    fn may_stream(&mut self, parts: &[Part]) -> bool {
        if self.config.mode == Mode::Observe || self.authentication.pending() {
            return true;
        }
        // Before its first batch nobody knows whose request it is.
        !parts.is_empty()
            && parts.iter().all(|part| match part.batch {
                Batch::Tracked(tracked) => {
                    let time = self.time;
                    let producer = self.producer(tracked.id.producer);
                    producer.is_some_and(|producer| producer.calm(time))
                }
                Batch::Absent | Batch::Plain { .. } | Batch::Odd(_) => true,
            })
    }

    /// Judges every batch. Returns `false` where the request has to wait.
    fn judge(&mut self, parts: &mut [Part], terms: Terms, all_seen: bool, waker: &Waker) -> bool {
        mark_repeated(parts);
        let mut patient = all_seen;
        let expired = self
            .held
            .as_ref()
            .is_some_and(|held| self.now >= held.deadline);
        let mut registered = None;
        loop {
            match parts {
                [part] if all_seen => self.admit(part, terms, patient),
                _ => self.judge_once(parts, terms, patient),
            }
            if parts.iter().all(Part::forwards) {
                // Nearly always: nothing waits, nothing is to be looked for.
                self.release();
                return true;
            }
            let waits_for = parts.iter().find_map(|p| match &p.verdict {
                Some((key, _, verdict)) if verdict.action == Action::Hold => Some(*key),
                _ => None,
            });
            let Some(key) = waits_for else {
                if all_seen {
                    match self.look(parts, terms.timeout) {
                        Look::Wait => {
                            self.blocked = Some(Blocked::Reading);
                            self.queue(parts);
                            return false;
                        }
                        Look::JudgeAgain => continue,
                        Look::Nothing => {}
                    }
                }
                self.release();
                return true;
            };
            if expired && !self.waits_for_own(parts) {
                self.shared.metrics.holds_expired.inc();
                patient = false;
                continue;
            }
            if registered == Some(key) {
                self.queue(parts);
                return false;
            }
            // The window may have changed before it was asked to wake us.
            self.hold(parts, terms);
            self.shared.ledger.wait(key, waker);
            registered = Some(key);
        }
    }

    /// Whether every batch that is held waits for nothing but what left before
    /// it on this connection.
    fn waits_for_own(&self, parts: &[Part]) -> bool {
        let own = self.tickets.iter().map(|sent| &sent.ticket);
        parts.iter().all(|part| match &part.verdict {
            Some((key, arrival, verdict)) if verdict.action == Action::Hold => {
                let ledger = &self.shared.ledger;
                ledger.waits_for_own(*key, arrival, &own)
            }
            _ => true,
        })
    }

    fn judge_once(&mut self, parts: &mut [Part], terms: Terms, patient: bool) {
        let enforces = self.enforces();
        for part in parts {
            if let Some((key, arrival)) = self.question(part, terms, patient) {
                let found = self.found_verdict(key, &arrival.batch);
                part.found = found.is_some();
                let verdict = found.unwrap_or_else(|| self.shared.ledger.judge(key, &arrival));
                part.verdict = Some((key, arrival, verdict));
            }
            if enforces {
                part.doubt();
                part.refusal = self.refusal(part);
            }
        }
    }

    /// Judges the only batch of a request, and commits it if it is forwarded:
    /// no other batch can keep it back.
    fn admit(&mut self, part: &mut Part, terms: Terms, patient: bool) {
        if self.readback.is_some() || self.suspects(part) {
            return self.judge_once(std::slice::from_mut(part), terms, patient);
        }
        if let Some((key, arrival)) = self.question(part, terms, patient) {
            let admission = self.shared.ledger.admit(key, &arrival);
            part.verdict = Some((key, arrival, admission.verdict));
            if part.doubt() {
                return;
            }
            part.ticket = part.forwards().then_some(admission.ticket);
        }
    }

    /// What the ledger is asked of a batch, if it can say anything of it.
    fn question(&self, part: &Part, terms: Terms, patient: bool) -> Option<(WindowKey, Arrival)> {
        if self.authentication.pending() {
            return None;
        }
        let Batch::Tracked(tracked) = part.batch else {
            return None;
        };
        let key = WindowKey {
            producer: tracked.id.producer,
            topic: part.topic.key?,
            partition: part.partition,
        };
        Some((key, self.arrival(&tracked, terms.acks?, patient)))
    }

    fn arrival(&self, tracked: &Tracked, acks: Acks, patient: bool) -> Arrival {
        Arrival {
            batch: tracked.id,
            transactional: tracked.transactional,
            acks,
            realm: self.realm,
            node: self.node,
            link: self.link,
            now: self.time,
            patient,
            old: tracked.max_timestamp < self.shared.old_before(),
        }
    }

    fn hold(&mut self, parts: &[Part], terms: Terms) {
        self.blocked = Some(Blocked::Held);
        let patience = if parts.iter().all(Part::may_leave_or_is_copy) {
            // The client waits for its broker as long, and what comes of it
            // then is one more retry.
            terms.timeout / 4 * 3
        } else {
            self.config.sequence.hold_max.min(terms.timeout / 4)
        };
        let deadline = self.now.after(patience);
        match &mut self.held {
            Some(held) if self.now >= held.deadline => held.deadline = deadline,
            Some(_) => {}
            None => {
                self.info.held.store(true, Ordering::Relaxed);
                self.held = Some(Held {
                    deadline,
                    _presence: Presence::of(&self.shared.metrics.held_requests),
                });
            }
        }
    }

    /// Lets the windows of a request that waits know what came with it.
    fn queue(&mut self, parts: &[Part]) {
        if self.queue.is_some() {
            return;
        }
        let verdicts = parts.iter().filter_map(|part| part.verdict.as_ref());
        let keys = verdicts.map(|(key, arrival, _)| {
            self.shared.ledger.queue(*key, arrival);
            *key
        });
        self.queue = Some(Queue {
            shared: Arc::clone(&self.shared),
            link: self.link,
            keys: keys.collect(),
        });
    }

    pub(super) fn release(&mut self) {
        self.blocked = None;
        self.request_goes();
        if self.held.take().is_some() {
            self.info.held.store(false, Ordering::Relaxed);
        }
    }

    /// Commits what is to be forwarded and counts it. Returns how many
    /// tickets that made.
    pub(super) fn commit(&mut self, parts: &[Part], terms: Terms) -> usize {
        let before = self.tickets.len();
        for part in parts {
            if part.forwards() {
                self.commit_one(part, terms);
            }
        }
        self.tickets.len() - before
    }

    fn commit_one(&mut self, part: &Part, terms: Terms) {
        if !part.lacks.is_empty() {
            self.note_lacking(part);
        }
        let Some((key, arrival, verdict)) = &part.verdict else {
            self.count_untracked(part);
            return;
        };
        let ticket = part
            .ticket
            .unwrap_or_else(|| self.shared.ledger.commit(*key, arrival, verdict));
        let tracked = ticket.is_some() || terms.acks == Some(Acks::None);
        if let Some(ticket) = ticket {
            let newest = match part.batch {
                Batch::Tracked(tracked) => tracked.max_timestamp,
                Batch::Absent | Batch::Plain { .. } | Batch::Odd(_) => NO_TIME,
            };
            self.tickets
                .push_back(Sent::new(ticket, Rc::clone(&part.topic), newest));
        }
        if tracked {
            self.tell_verdict(part, arrival, verdict, forwarded(verdict.class));
        } else {
            let limit = if self.shared.ledger.has(key) {
                Limit::Attempts
            } else {
                Limit::Windows
            };
            self.shared.metrics.limit_reached.with(limit).inc();
            self.count_untracked(part);
        }
    }

    /// The answers to the batches that are not forwarded, which are noted.
    fn answers(&mut self, parts: &[Part]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for part in parts {
            if let Action::Refuse(code) = part.action() {
                let log_start_offset = self.note_refused(part);
                answers.push(Answer {
                    log_start_offset,
                    ..part.refused(code)
                });
                continue;
            }
            let Some((key, arrival, verdict)) = &part.verdict else {
                continue;
            };
            let done = match verdict.action {
                Action::Forward | Action::Hold | Action::Resolve | Action::Refuse(_) => continue,
                Action::Replay(ack) => {
                    self.shared.ledger.absorbed(*key, arrival, verdict);
                    answers.push(part.replayed(ack));
                    if part.found {
                        metrics::Verdict::DuplicateResolved
                    } else {
                        metrics::Verdict::DuplicateAbsorbed
                    }
                }
                Action::Mirror(code) => {
                    self.shared.ledger.mirrored(*key, arrival, verdict, code);
                    answers.push(part.refused(code));
                    metrics::Verdict::Mirrored
                }
                Action::Defer => {
                    self.shared.ledger.deferred(*key, arrival, verdict);
                    answers.push(part.refused(REQUEST_TIMED_OUT));
                    metrics::Verdict::Mirrored
                }
            };
            self.tell_verdict(part, arrival, verdict, done);
        }
        answers
    }

    /// Every batch is answered here.
    fn answer_all(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        parts: &[Part],
    ) -> bool {
        let answers = self.answers(parts);
        let answer = produce::answer(head.api_version, head.correlation_id, &answers);
        self.answer_here(pass, frame, head, answer)
    }

    /// Some batches are answered here: the others go on in a request of
    /// their own, and its response is merged with the answers.
    fn split(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        parts: &[Part],
        terms: Terms,
    ) -> Result<bool, End> {
        if !frame.whole() {
            return self.more(frame);
        }
        let rebuilt = self.rebuilt(frame, head, parts)?;
        let answers = self.answers(parts);
        let mut owed = self.owed(pass, frame, head, Reply::Produce(answers));
        owed.end = pass.position() + rebuilt.len() as u64;
        owed.timeout = Some(terms.timeout);
        owed.tickets = self.commit(parts, terms);
        self.owe(owed);
        pass.replace(PREFIX + frame.len, &rebuilt);
        Ok(true)
    }

    /// The request without what is answered here.
    pub(super) fn rebuilt(
        &self,
        frame: Frame<'_>,
        head: RequestHead,
        parts: &[Part],
    ) -> Result<Bytes, End> {
        let mut in_order = parts.iter();
        let keep = |_: TopicRef<'_>, _: i32| {
            let part = in_order.next();
            part.is_none_or(Part::forwards)
        };
        produce::retain(head.api_version, frame.bytes, keep)
            .map_err(|error| self.malformed(Side::Client, error))
    }

    /// Notes where a request stands that asks for no answer.
    fn note_quiet(&mut self, pass: &Pass<'_>, frame: Frame<'_>) {
        self.requests += 1;
        self.tally.unanswered(Api::Produce);
        let start = pass.position();
        self.quiet.push(start..start + (PREFIX + frame.len) as u64);
    }

    /// Sees more of a large request pass. Returns whether it has ended.
    pub(super) fn walk_on(&mut self, pass: &mut Pass<'_>) -> Result<bool, End> {
        let stage = std::mem::replace(&mut self.request, RequestStage::Head);
        let RequestStage::Walk(mut streamed) = stage else {
            self.request = stage;
            return Ok(true);
        };
        let rest = pass.rest();
        let bytes = rest
            .get(..streamed.left.min(rest.len()))
            .unwrap_or_default();
        let mut parts = PARTS.take();
        let mut collector = Collector {
            session: self,
            parts: &mut parts,
            topic: &mut streamed.topic,
            terms: Some(streamed.terms),
            topics: 0,
            announced: 0,
        };
        let walked = streamed.walk.advance(bytes, &mut collector);
        let walked = walked.map_err(|error| self.malformed(Side::Client, error))?;
        mark_repeated(&mut parts);
        self.mark_seen(&mut parts, &mut streamed.seen);
        self.judge_once(&mut parts, streamed.terms, false);
        if parts.iter().any(Part::refuses) {
            return Err(self.cut(&parts));
        }
        // Bytes have left: what is found now is forwarded and counted.
        parts.iter_mut().for_each(Part::forward);
        let tickets = self.commit(&parts, streamed.terms);
        self.pipeline.add_tickets(tickets);
        keep_room(parts);
        pass.keep(walked);
        streamed.left -= walked;
        let stuck = walked < bytes.len() && bytes.len() == streamed.left + walked;
        if stuck || (streamed.left == 0) != streamed.walk.done() {
            let value = i64::try_from(streamed.left).unwrap_or(i64::MAX);
            let what = "a produce request";
            return Err(self.malformed(Side::Client, WireError::Malformed { what, value }));
        }
        if streamed.left == 0 {
            return Ok(true);
        }
        if walked < bytes.len() {
            // Twice as much, so that what is cut off is not seen with each read.
            let cut_off = bytes.len() - walked;
            self.inbox_wanted = streamed.left.min(2 * cut_off);
        }
        self.request = RequestStage::Walk(streamed);
        Ok(false)
    }

    /// A partition that a streamed request names again is left to the broker,
    /// and so is what it named before.
    fn mark_seen(&mut self, parts: &mut [Part], seen: &mut Places) {
        for part in parts {
            if seen.insert(part.place()) {
                continue;
            }
            part.batch = Batch::Odd(Odd::ManyBatches);
            let place = part.place();
            let mut newest_first = self.tickets.iter_mut().rev();
            if let Some(sent) = newest_first
                .find(|sent| (Rc::as_ptr(&sent.topic), sent.ticket.key.partition) == place)
            {
                sent.ambiguous = true;
            }
        }
    }

    pub(super) fn producer(&mut self, id: ProducerId) -> Option<&Arc<Producer>> {
        if self.producers.len() >= PRODUCERS_CACHED && !self.producers.contains_key(&id) {
            let ttl = self.shared.ledger.rules().ttl;
            self.epoch_seen = None;
            for (_, forgotten) in self.producers.drain() {
                forgotten.trouble(self.time, ttl);
            }
        }
        match self.producers.entry(id) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let producer = self.shared.ledger.producer(id, self.time)?;
                if let Some(name) = self.info.client_id.get() {
                    producer.client_id.get_or_init(|| Arc::clone(name));
                }
                Some(place.insert(producer))
            }
        }
    }
}

impl Part {
    /// Whether it goes on to the broker.
    pub(super) fn forwards(&self) -> bool {
        matches!(self.action(), Action::Forward)
    }

    /// What it is looked for in the log as, if it has to be.
    pub(super) fn resolves(&self) -> Option<(WindowKey, Arrival)> {
        match &self.verdict {
            Some((key, arrival, verdict)) if verdict.action == Action::Resolve => {
                Some((*key, *arrival))
            }
            _ => None,
        }
    }

    /// Whether it is held for nothing but a copy of it that is on its way, if
    /// it is held.
    fn may_leave_or_is_copy(&self) -> bool {
        self.verdict.as_ref().is_none_or(|(_, arrival, verdict)| {
            let is_copy = arrival.old && verdict.class == Class::DuplicateInFlight;
            is_copy || verdict.action != Action::Hold
        })
    }

    /// Whether it is answered with an error for good.
    pub(super) fn refuses(&self) -> bool {
        matches!(self.action(), Action::Refuse(_))
    }

    /// A window's proof holds for the topic with this id (S2 of SEMANTICS
    /// 7.7): without one the broker has to judge. Returns whether it has to.
    fn doubt(&mut self) -> bool {
        let unproven = self.refuses() && self.topic.known.id.is_none();
        if unproven {
            self.forward();
        }
        unproven
    }

    /// Has the client send it again, if it was to be forwarded.
    fn send_back(&mut self) {
        if self.forwards() {
            self.refusal = Some(Refusal::Companion);
        }
    }

    /// Sends it on whatever it is.
    fn forward(&mut self) {
        if let Some((_, _, verdict)) = &mut self.verdict {
            verdict.action = Action::Forward;
        }
    }

    /// The window that judged it.
    pub(super) fn key(&self) -> Option<&WindowKey> {
        self.verdict.as_ref().map(|(key, _, _)| key)
    }

    fn place(&self) -> Place {
        (Rc::as_ptr(&self.topic), self.partition)
    }

    /// What is done with it; what no window judges is forwarded.
    fn action(&self) -> Action {
        if let Some(refusal) = self.refusal {
            return Action::Refuse(refusal.code());
        }
        match &self.verdict {
            Some((_, _, verdict)) => verdict.action,
            None => Action::Forward,
        }
    }

    fn replayed(&self, ack: Ack) -> Answer {
        Answer {
            topic: self.topic.raw.clone(),
            partition: self.partition,
            error: 0,
            base_offset: Some(ack.offset),
            log_append_time: ack.append_time,
            log_start_offset: ack.log_start,
            message: None,
        }
    }

    fn refused(&self, code: i16) -> Answer {
        Answer {
            topic: self.topic.raw.clone(),
            partition: self.partition,
            error: code,
            base_offset: None,
            log_append_time: NO_TIME,
            log_start_offset: None,
            message: self.refusal.and_then(Refusal::message),
        }
    }
}

/// Keeps the room of a usual request for the next one.
fn keep_room(mut parts: Vec<Part>) {
    parts.clear();
    if parts.capacity() <= PARTS_KEPT {
        PARTS.set(parts);
    }
}

/// Whether partitions rise from each to the next, and from the last to the
/// first, but at one place: then none comes twice. Clients begin with another
/// partition each time, and go on from the highest to the lowest.
fn rise_in_a_circle(parts: &[Part]) -> bool {
    let next = parts.iter().skip(1).chain(parts.first());
    let pairs = parts.iter().zip(next);
    pairs.filter(|(a, b)| a.place() >= b.place()).count() <= 1
}

/// A partition that a request names twice is left to the broker to judge.
fn mark_repeated(parts: &mut [Part]) {
    if parts.len() < 2 || rise_in_a_circle(parts) {
        return;
    }
    let mut seen = Places::with_capacity_and_hasher(parts.len(), Hasher::default());
    let repeated: Places = parts
        .iter()
        .map(Part::place)
        .filter(|place| !seen.insert(*place))
        .collect();
    for part in parts {
        if repeated.contains(&part.place()) {
            part.batch = Batch::Odd(Odd::ManyBatches);
            part.verdict = None;
        }
    }
}
