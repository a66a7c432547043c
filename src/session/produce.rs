//! Produce: judged on the way in, settled on the way out.
//!
//! All batches of a request are judged, then committed together: a request
//! that is held or withdrawn leaves no trace. A request goes on as the bytes
//! that came, unless some of its batches are answered here.

use super::outbox::Pass;
use super::pipeline::{Owed, Reply};
use super::route::{Frame, PREFIX, RequestStage};
use super::{Blocked, End, Session};
use crate::events::{Event, Kind};
use crate::ids::{BatchId, ProducerId, TopicId};
use crate::ledger::{Producer, Ticket, Topic, TopicName, WindowKey};
use crate::metrics::{self, FencedBy, Limit, Presence, Side, TopicMetrics};
use crate::window::{
    Ack, Acks, Action, Arrival, Class, Gap, GapKind, Mode, Outcome, Settled, Verdict, classify,
};
use crate::wire::batch::{Batch, Odd, Tracked};
use crate::wire::header::{self, RequestHead};
use crate::wire::produce::{self, Answer, Front, PartitionReply, Sink, TopicRef, Walk};
use crate::wire::{WireError, api};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// Topics whose look-up a connection keeps.
const TOPICS_CACHED: usize = 4096;
/// Producers whose look-up a connection keeps.
const PRODUCERS_CACHED: usize = 1024;
/// Partitions of a request that a connection keeps room for.
const PARTS_KEPT: usize = 64;
/// What a mirrored answer says where an offset or a time would stand.
const NO_TIME: i64 = -1;

/// A request that waits for a batch of another one.
pub(super) struct Held {
    pub deadline: Instant,
    _presence: Presence,
}

/// A batch on its way, and how the response will call its topic.
pub(super) struct Sent {
    pub ticket: Ticket,
    topic: Rc<Named>,
    /// Whether its request names the partition again: brokers answer once for
    /// both batches, and keep one of them.
    ambiguous: bool,
    settled: Cell<bool>,
}

/// A topic as this connection's requests call it.
pub(super) struct Named {
    raw: produce::Topic,
    key: Option<crate::ids::TopicKey>,
    known: Topic,
    metrics: Arc<TopicMetrics>,
}

/// The topics that a connection wrote to, so that a batch needs no look-up.
#[derive(Default)]
pub(super) struct TopicCache {
    /// The state of the ledger's topics that the cache was filled from.
    version: u32,
    names: HashMap<Box<[u8]>, Rc<Named>>,
    ids: HashMap<[u8; 16], Rc<Named>>,
}

/// What one Produce request is looked at with; kept to be used again.
#[derive(Default)]
pub(super) struct Scratch {
    parts: Vec<Part>,
    due: Vec<Sent>,
}

/// One partition of a request.
struct Part {
    topic: Rc<Named>,
    partition: i32,
    batch: Batch,
    /// What a window says of it; `None` where no window is asked.
    verdict: Option<(WindowKey, Arrival, Verdict)>,
}

/// A partition of a topic, as one connection's requests call it.
type Place = (*const Named, i32);

/// What the front of a request says of all of its batches.
#[derive(Clone, Copy)]
struct Terms {
    /// `None`: a value that brokers refuse.
    acks: Option<Acks>,
    timeout: Duration,
}

/// A large request whose batches are judged as they pass.
pub(super) struct Streamed {
    left: usize,
    walk: Walk,
    terms: Terms,
    /// The topic of the partitions that come next.
    topic: Option<Rc<Named>>,
    /// The partitions that have passed.
    seen: HashSet<Place>,
}

/// Collects what a walk finds.
struct Collector<'a> {
    session: &'a mut Session,
    parts: &'a mut Vec<Part>,
    topic: &'a mut Option<Rc<Named>>,
    front: Option<(Terms, usize)>,
    /// Partitions that the topic announced last.
    announced: usize,
}

impl Sink for Collector<'_> {
    fn front(&mut self, front: Front<'_>) {
        let terms = Terms {
            acks: Acks::from_wire(front.acks),
            timeout: Duration::from_millis(u64::try_from(front.timeout_ms).unwrap_or(0)),
        };
        self.front = Some((terms, front.topics));
    }

    fn topic(&mut self, topic: TopicRef<'_>, partitions: usize) {
        *self.topic = Some(self.session.named(topic));
        self.announced = partitions;
    }

    fn partition(&mut self, index: i32, batch: Batch) {
        if let Some(topic) = &*self.topic {
            self.parts.push(Part {
                topic: Rc::clone(topic),
                partition: index,
                batch,
                verdict: None,
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

        if version < produce::OLDEST_WALKED {
            return self.produce_unwalked(pass, frame, head, body);
        }
        let mut parts = std::mem::take(&mut self.scratch.parts);
        let done = self.produce_walked(pass, frame, head, body, &mut parts, waker);
        self.keep_room(parts);
        done
    }

    /// Keeps the room of a usual request for the next one.
    fn keep_room(&mut self, mut parts: Vec<Part>) {
        parts.clear();
        if parts.capacity() <= PARTS_KEPT {
            self.scratch.parts = parts;
        }
    }

    /// Asks for the rest of a frame; one that is whole has nothing to give.
    fn more(&mut self, frame: Frame<'_>) -> Result<bool, End> {
        if frame.whole() {
            let what = "a produce request";
            return Err(self.malformed(Side::Client, WireError::Truncated { what }));
        }
        Ok(self.want(frame.len))
    }

    /// Message formats before record batches have no sequences to follow.
    fn produce_unwalked(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        body: &[u8],
    ) -> Result<bool, End> {
        let acks = produce::acks(head.api_version, body)
            .map_err(|error| self.malformed(Side::Client, error))?;
        match acks {
            None => self.more(frame),
            Some(0) => {
                self.note_quiet(pass, frame);
                self.pass_on(pass, frame);
                Ok(true)
            }
            Some(_) => Ok(self.forward(pass, frame, head, Reply::Pass)),
        }
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
            front: None,
            announced: 0,
        };
        let walked = walk.advance(body, &mut collector);
        let (front, announced) = (collector.front, collector.announced);
        let walked = walked.map_err(|error| self.malformed(Side::Client, error))?;
        let Some((terms, topics)) = front else {
            return self.more(frame);
        };
        if frame.whole() && (!walk.done() || walked < body.len()) {
            let value = i64::try_from(body.len() - walked).unwrap_or(i64::MAX);
            let what = "a produce request";
            return Err(self.malformed(Side::Client, WireError::Malformed { what, value }));
        }
        let all_seen = walk.done() || (topics == 1 && announced == 1 && parts.len() == 1);
        if !all_seen && !self.may_stream(parts) {
            return self.more(frame);
        }
        if !self.judge(parts, terms, all_seen, waker) {
            return Ok(false);
        }
        let acts = |p: &Part| !matches!(p.action(), Action::Forward);
        if !all_seen && parts.iter().any(acts) {
            return self.more(frame);
        }
        if !parts.iter().any(acts) {
            let mut owed = self.owed(pass, frame, head, Reply::Produce(Vec::new()));
            owed.timeout = Some(terms.timeout);
            owed.tickets = self.commit(parts, terms);
            if terms.acks == Some(Acks::None) {
                self.note_quiet(pass, frame);
            } else {
                self.owe(owed);
            }
            if walk.done() || topics == 1 && announced == 1 {
                self.pass_on(pass, frame);
            } else {
                // What the walk has not taken in has to be seen again.
                let seen = frame.bytes.len() - body.len() + walked;
                pass.keep(PREFIX + seen);
                self.request = RequestStage::Walk(Box::new(Streamed {
                    left: frame.len - seen,
                    walk,
                    terms,
                    topic,
                    seen: parts.iter().map(Part::place).collect(),
                }));
            }
            return Ok(true);
        }
        if parts.iter().all(acts) {
            return Ok(self.answer_all(pass, frame, head, parts));
        }
        self.split(pass, frame, head, parts, terms)
    }

    /// Whether the rest of a large request may be judged as it passes.
    fn may_stream(&mut self, parts: &[Part]) -> bool {
        if self.shared.ledger.rules().mode == Mode::Observe {
            return true;
        }
        parts.iter().all(|part| match part.batch {
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
        let was_held = self.held.is_some();
        for attempt in 0..2 {
            let patient = all_seen
                && self
                    .held
                    .as_ref()
                    .is_none_or(|held| self.now < held.deadline);
            self.judge_once(parts, terms, patient);
            let waits_for = parts.iter().find_map(|p| match &p.verdict {
                Some((key, _, verdict)) if verdict.action == Action::Hold => Some(*key),
                _ => None,
            });
            let Some(key) = waits_for else {
                if was_held && !patient {
                    self.shared.metrics.holds_expired.inc();
                }
                self.release();
                return true;
            };
            if attempt == 0 {
                self.hold(terms);
                self.shared.ledger.wait(key, waker);
            }
        }
        false
    }

    fn judge_once(&mut self, parts: &mut [Part], terms: Terms, patient: bool) {
        if self.authentication.pending() {
            return;
        }
        for part in parts {
            let (Batch::Tracked(tracked), Some(topic), Some(acks)) =
                (part.batch, part.topic.key, terms.acks)
            else {
                continue;
            };
            let key = WindowKey {
                producer: tracked.id.producer,
                topic,
                partition: part.partition,
            };
            let arrival = self.arrival(&tracked, acks, patient);
            let verdict = self.shared.ledger.judge(key, &arrival);
            part.verdict = Some((key, arrival, verdict));
        }
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
        }
    }

    fn hold(&mut self, terms: Terms) {
        self.blocked = Some(Blocked::Held);
        if self.held.is_none() {
            let patience = self.shared.config.sequence.hold_max.min(terms.timeout / 4);
            self.info.held.store(true, Ordering::Relaxed);
            self.held = Some(Held {
                deadline: self.now + patience,
                _presence: Presence::of(&self.shared.metrics.held_requests),
            });
        }
    }

    pub(super) fn release(&mut self) {
        self.blocked = None;
        if self.held.take().is_some() {
            self.info.held.store(false, Ordering::Relaxed);
        }
    }

    /// Commits what is to be forwarded and counts it. Returns how many
    /// tickets that made.
    fn commit(&mut self, parts: &[Part], terms: Terms) -> usize {
        let before = self.tickets.len();
        for part in parts {
            if matches!(part.action(), Action::Forward) {
                self.commit_one(part, terms);
            }
        }
        self.tickets.len() - before
    }

    fn commit_one(&mut self, part: &Part, terms: Terms) {
        let Some((key, arrival, verdict)) = &part.verdict else {
            self.count_untracked(part);
            return;
        };
        let ticket = self.shared.ledger.commit(*key, arrival, verdict);
        let tracked = ticket.is_some() || terms.acks == Some(Acks::None);
        if let Some(ticket) = ticket {
            self.tickets.push_back(Sent {
                ticket,
                topic: Rc::clone(&part.topic),
                ambiguous: false,
                settled: Cell::new(false),
            });
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

    fn count_untracked(&self, part: &Part) {
        let records = match part.batch {
            Batch::Absent => return,
            Batch::Plain { records } => records,
            Batch::Tracked(tracked) => tracked.id.count,
            Batch::Odd(_) => 0,
        };
        let untracked = metrics::Verdict::Untracked;
        part.topic.metrics.batch(untracked, u64::from(records));
    }

    /// The answers to the batches that are not forwarded, which are noted.
    fn answers(&mut self, parts: &[Part]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for part in parts {
            let Some((key, arrival, verdict)) = &part.verdict else {
                continue;
            };
            let done = match verdict.action {
                Action::Forward | Action::Hold => continue,
                Action::Replay(ack) => {
                    self.shared.ledger.absorbed(*key, arrival, verdict);
                    answers.push(part.replayed(ack));
                    metrics::Verdict::DuplicateAbsorbed
                }
                Action::Mirror(code) => {
                    self.shared.ledger.mirrored(*key, arrival, verdict, code);
                    answers.push(part.refused(code));
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
        let mut in_order = parts.iter();
        let keep = |_: TopicRef<'_>, _: i32| {
            let part = in_order.next();
            part.is_none_or(|p| matches!(p.action(), Action::Forward))
        };
        let rebuilt = produce::retain(head.api_version, frame.bytes, keep)
            .map_err(|error| self.malformed(Side::Client, error))?;
        let answers = self.answers(parts);
        let mut owed = self.owed(pass, frame, head, Reply::Produce(answers));
        owed.end = pass.position() + rebuilt.len() as u64;
        owed.timeout = Some(terms.timeout);
        owed.tickets = self.commit(parts, terms);
        self.owe(owed);
        pass.replace(PREFIX + frame.len, &rebuilt);
        Ok(true)
    }

    /// Notes where a request stands that asks for no answer.
    fn note_quiet(&mut self, pass: &Pass<'_>, frame: Frame<'_>) {
        self.info.requests.fetch_add(1, Ordering::Relaxed);
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
        let mut parts = std::mem::take(&mut self.scratch.parts);
        let mut collector = Collector {
            session: self,
            parts: &mut parts,
            topic: &mut streamed.topic,
            front: None,
            announced: 0,
        };
        let walked = streamed.walk.advance(bytes, &mut collector);
        let walked = walked.map_err(|error| self.malformed(Side::Client, error))?;
        mark_repeated(&mut parts);
        self.mark_seen(&mut parts, &mut streamed.seen);
        self.judge_once(&mut parts, streamed.terms, false);
        for part in &mut parts {
            // Bytes have left: what is found now is forwarded and counted.
            if let Some((_, _, verdict)) = &mut part.verdict {
                verdict.action = Action::Forward;
            }
        }
        let tickets = self.commit(&parts, streamed.terms);
        self.pipeline.add_tickets(tickets);
        self.keep_room(parts);
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
    fn mark_seen(&mut self, parts: &mut [Part], seen: &mut HashSet<Place>) {
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

    /// Settles the batches that a response answers. Returns what the client
    /// gets in its place.
    pub(super) fn produce_reply(
        &mut self,
        owed: &Owed,
        frame: &[u8],
    ) -> Result<Option<Bytes>, End> {
        let version = owed.head.api_version;
        let mut due = std::mem::take(&mut self.scratch.due);
        due.extend(self.tickets.drain(..owed.tickets));
        let mut settling = Settling {
            session: self,
            due: &due,
            next: 0,
            places: HashMap::new(),
            ok: true,
            shields: Vec::new(),
        };
        let read = produce::replies(version, frame, |reply| settling.reply(&reply));
        let Settling { ok, shields, .. } = settling;
        self.settle_silent(&due);
        due.clear();
        if due.capacity() <= PARTS_KEPT {
            self.scratch.due = due;
        }
        self.shared.answered(owed, ok, self.now.into_std());
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
    fn settle_silent(&self, due: &[Sent]) {
        for sent in due.iter().filter(|sent| !sent.settled.get()) {
            let unknown = Outcome::Unknown { candidate: None };
            let _ = self.shared.ledger.settle(&sent.ticket, unknown, self.time);
        }
    }

    /// The topic that a request speaks of.
    fn named(&mut self, topic: TopicRef<'_>) -> Rc<Named> {
        let topics = &self.shared.ledger.topics;
        let version = topics.version();
        let cached = self.topics.names.len() + self.topics.ids.len();
        if self.topics.version != version || cached > TOPICS_CACHED {
            self.topics = TopicCache {
                version,
                ..TopicCache::default()
            };
        }
        let known = match topic {
            TopicRef::Name(name) => self.topics.names.get(name),
            TopicRef::Id(id) => self.topics.ids.get(&id),
        };
        if let Some(known) = known {
            return Rc::clone(known);
        }
        let key = match topic {
            TopicRef::Name(name) => topics.key(TopicName::Name(name)),
            TopicRef::Id(id) => TopicId::from_wire(id).and_then(|id| topics.key(TopicName::Id(id))),
        };
        if key.is_none() && topic != TopicRef::Id([0; 16]) {
            self.shared.metrics.limit_reached.with(Limit::Topics).inc();
        }
        let known = key.map(|key| topics.get(key)).unwrap_or_default();
        let label = known.name.as_deref().filter(|_| known.confirmed);
        let named = Rc::new(Named {
            raw: topic.to_topic(),
            key,
            metrics: self.shared.metrics.topic(label.unwrap_or(metrics::OTHER)),
            known,
        });
        let kept = Rc::clone(&named);
        match topic {
            TopicRef::Name(name) => self.topics.names.insert(name.into(), kept),
            TopicRef::Id(id) => self.topics.ids.insert(id, kept),
        };
        named
    }

    fn producer(&mut self, id: ProducerId) -> Option<&Arc<Producer>> {
        if !self.producers.contains_key(&id) {
            let producer = self.shared.ledger.producer(id, self.time)?;
            if let Some(name) = self.info.client_id.get() {
                producer.client_id.get_or_init(|| Arc::clone(name));
            }
            if self.producers.len() >= PRODUCERS_CACHED {
                let ttl = self.shared.ledger.rules().ttl;
                for (_, forgotten) in self.producers.drain() {
                    forgotten.trouble(self.time, ttl);
                }
            }
            self.producers.insert(id, producer);
        }
        self.producers.get(&id)
    }

    /// Counts a batch under its verdict and tells what is worth telling.
    fn tell_verdict(
        &mut self,
        part: &Part,
        arrival: &Arrival,
        verdict: &Verdict,
        counted: metrics::Verdict,
    ) {
        let batch = &arrival.batch;
        part.topic.metrics.batch(counted, u64::from(batch.count));
        let bumped = self
            .producer(batch.producer)
            .is_some_and(|producer| producer.bumps(batch.epoch));
        if bumped {
            self.record(part, batch, Event::new(Kind::EpochBump));
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
                    .missing_records
                    .inc_by(u64::from(gap.missing));
            }
        }
        if verdict.class == Class::NewEpochMidway {
            event.detail = "a new epoch does not begin at sequence 0".into();
        }
        self.record(part, batch, event);
    }

    fn record(&self, part: &Part, batch: &BatchId, event: Event) {
        self.record_for(&part.topic, part.partition, batch, event);
    }

    fn record_for(&self, topic: &Named, partition: i32, batch: &BatchId, event: Event) {
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

/// Settles the batches of one response while it is read.
struct Settling<'a> {
    session: &'a Session,
    due: &'a [Sent],
    /// Where the batch that follows the last one found would stand: brokers
    /// answer in the order of the request, but for the order of topics.
    next: usize,
    /// Where each batch stands, once an answer came out of that order.
    places: HashMap<(TopicRef<'a>, i32), usize>,
    ok: bool,
    shields: Vec<(produce::Topic, i32, i16)>,
}

impl<'a> Settling<'a> {
    /// The batch that an answer is about.
    fn find(&mut self, topic: TopicRef<'_>, partition: i32) -> Option<&'a Sent> {
        let is = |sent: &&Sent| {
            sent.ticket.key.partition == partition && sent.topic.raw.as_ref() == topic
        };
        if let Some(sent) = self.due.get(self.next).filter(is) {
            self.next += 1;
            return Some(sent);
        }
        if self.places.is_empty() {
            let places = self.due.iter().enumerate();
            self.places = places
                .map(|(at, sent)| ((sent.topic.raw.as_ref(), sent.ticket.key.partition), at))
                .collect();
        }
        let at = *self.places.get(&(topic, partition))?;
        self.next = at + 1;
        self.due.get(at)
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

impl Session {
    /// What the settling of a batch is worth telling.
    fn tell_settled(&self, sent: &Sent, error: i16, outcome: Outcome, settled: &Settled) {
        let Ticket { key, batch, .. } = &sent.ticket;
        let record = |event| self.record_for(&sent.topic, key.partition, batch, event);
        if error == 0 {
            self.shared.ledger.topics.confirm(key.topic);
        }
        sent.topic.metrics.broker_error(error);
        if error == 100 {
            self.shared.ledger.topics.retire(key.topic);
        }
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
        let fenced = matches!(error, 47 | 90) && sent.ticket.transactional;
        if fenced
            && self
                .producers
                .get(&batch.producer)
                .is_none_or(|producer| producer.fence(batch.epoch))
        {
            record(Event {
                detail: "revealed by produce; by an instance outside this hapax, or by its transaction's timeout".into(),
                ..Event::new(Kind::FencedProducer(FencedBy::Broker))
            });
        }
    }
}

impl Part {
    fn place(&self) -> Place {
        (Rc::as_ptr(&self.topic), self.partition)
    }

    /// What is done with it; what no window judges is forwarded.
    fn action(&self) -> Action {
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
        }
    }
}

/// A partition that a request names twice is left to the broker to judge.
fn mark_repeated(parts: &mut [Part]) {
    if parts.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(parts.len());
    let repeated: HashSet<Place> = parts
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

/// The verdict under which a forwarded batch is counted.
fn forwarded(class: Class) -> metrics::Verdict {
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
            Some(if counted == metrics::Verdict::DuplicateAbsorbed {
                Kind::DuplicateAbsorbed
            } else {
                Kind::DuplicateForwarded
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
        Class::FirstSeen if batch.first != crate::ids::Sequence::ZERO => {
            Some(Kind::Gap(metrics::GapKind::NoBaseline))
        }
        Class::NewEpochMidway => Some(Kind::Gap(metrics::GapKind::NoBaseline)),
        Class::FirstSeen | Class::InOrder | Class::Retry | Class::NewEpoch => None,
    }
}

fn without_length(whole: Option<&[u8]>) -> Option<&[u8]> {
    whole.and_then(|whole| whole.get(PREFIX..))
}
