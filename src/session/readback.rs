//! Reading the log back over the producer's own connection, so that its own
//! user asks (SEMANTICS 7.6).
//!
//! Two things wait for that: a request with a retry that the broker may have
//! forgotten ([`Action::Resolve`](crate::window::Action)), and a response
//! that refuses, as out of order, a batch that may be written. One batch is
//! looked for at a time.
//!
//! ```text
//!  to the broker    … R1 R2 │ Fetch
//!  from the broker  … R1: 45 │ R2: 45 │ Fetch │ …
//!                     waits    waits     taken out of turn
//! ```
//!
//! The responses behind the one that waits are not looked at before it has
//! gone to the client: that R1 is written decides what a 45 for R2 means, and
//! the client must hear of R1 first. Only the answer to hapax's own question
//! is taken from among them.
//!
//! When a batch is looked for, the connection on which its fate was lost is
//! over: an attempt is unknown once its session has ended, or once the broker
//! itself has answered that it does not know. A broker may still be working
//! on a request of a connection that is gone: it has then written the batch,
//! and waits for replicas. So the log is read up to its end, and where that
//! takes too long the client is told that time ran out, which is true, and
//! that it may try again. "Absent" says no more than "let the broker judge",
//! and never that something was not written.

use super::Session;
use super::end::End;
use super::moment::Moment;
use super::pipeline::{Owed, Reply};
use super::produce::Part;
use super::reply::ReplyStage;
use super::route::{PREFIX, RequestStage};
use super::scan::{Finding, Next, Question, Scan};
use super::settle::{Answered, Sent};
use super::shared::Reads;
use super::topics::Named;
use crate::events::{Event, Kind};
use crate::ids::{BatchId, TopicKey};
use crate::ledger::WindowKey;
use crate::metrics;
use crate::window::{Action, Arrival, Verdict};
use crate::wire::batch::Batch;
use crate::wire::fetch;
use crate::wire::frame;
use crate::wire::header::RequestHead;
use crate::wire::{api, produce};
use bytes::Bytes;
use std::ops::Range;
use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

/// The longest answer that is taken in: a broker sends one batch even where it
/// is larger than what was asked for.
pub(super) const ANSWER_MAX: usize = 2 * 1024 * 1024;
/// What may wait of a broker's words, that answer included.
const MAIL_MAX: usize = ANSWER_MAX + 1024 * 1024;
/// How long a broker waits at a time for records that it may show: what is
/// behind the question waits too, also when nobody wants the answer any more.
const WAIT_MS: i32 = 100;
/// Topics of which a connection without a proven user remembers that it may
/// not read them.
const REFUSED_MAX: usize = 1024;

/// What a session looks for in the log, and what waits for that.
#[derive(Default)]
pub(super) struct ReadBack {
    reading: Option<Reading>,
    request: Option<Request>,
    response: Option<Response>,
}

/// A search for one batch.
struct Reading {
    scan: Scan,
    question: Question,
    /// The correlation id of the question, once it is on its way.
    asked: Option<i32>,
    topic: Rc<Named>,
    key: WindowKey,
    deadline: Moment,
    /// The retry it is for; `None`: for the first doubt of the response.
    retry: Option<Arrival>,
    _turn: Reads,
}

/// What may be spent on one request or response.
#[derive(Clone, Copy)]
struct Budget {
    deadline: Moment,
    bytes: usize,
}

/// The request that waits.
struct Request {
    budget: Budget,
    /// How its batches are answered that the log has, or may yet show.
    found: Vec<(WindowKey, BatchId, Verdict)>,
}

/// The response that waits.
struct Response {
    answered: Answered,
    budget: Budget,
    /// Bytes of `Session::mail`, all of whole frames, that were gone past in
    /// the search for the answer.
    seen: usize,
    /// The place in the pipeline of what the next frame answers.
    place: usize,
}

/// Whether a request has to wait for the log.
pub(super) enum Look {
    /// Until something was read.
    Wait,
    /// No: judge again.
    JudgeAgain,
    /// Nothing in it is to be looked for.
    Nothing,
}

impl ReadBack {
    /// Until when the answer may come.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.reading.as_ref().map(|reading| reading.deadline)
    }

    /// Whether anything is being looked for, or has to be.
    pub(super) fn busy(&self) -> bool {
        self.reading.is_some() || self.response.is_some()
    }
}

impl Session {
    /// Whether questions of hapax's own may go to the broker.
    pub(super) fn may_read_back(&self) -> bool {
        self.reads_log && self.orphan.is_none() && !self.upstream_shut
    }

    /// Whether a 45 for a batch is not to be believed before the log was read.
    pub(super) fn doubts(&self, sent: &Sent) -> bool {
        !sent.ambiguous
            && self.shared.ledger.contested(&sent.ticket)
            && !self.is_refused(sent.ticket.key.topic)
    }

    /// Looks for the first batch of a request that is to be looked for.
    pub(super) fn look(&mut self, parts: &[Part], timeout: Duration) -> Look {
        let resolves = |part: &&Part| part.resolves().is_some();
        let Some(part) = parts.iter().find(resolves) else {
            return Look::Nothing;
        };
        let (Some((key, arrival)), Batch::Tracked(tracked)) = (part.resolves(), part.batch) else {
            return Look::Nothing;
        };
        if self.is_refused(key.topic) {
            self.shared.ledger.asked(key, &arrival.batch);
            return Look::JudgeAgain;
        }
        let fresh = self.budget(timeout);
        let readback = self.readback.get_or_insert_default();
        let request = readback.request.get_or_insert_with(|| Request {
            budget: fresh,
            found: Vec::new(),
        });
        let budget = request.budget;
        if readback.busy() {
            return Look::Wait;
        }
        let topic = Rc::clone(&part.topic);
        self.begin(key, topic, tracked.max_timestamp, budget, Ok(arrival));
        match &self.readback {
            Some(readback) if readback.reading.is_some() => Look::Wait,
            _ => Look::JudgeAgain,
        }
    }

    /// The verdict on a batch of the request that waited, if the log gave one.
    pub(super) fn found_verdict(&self, key: WindowKey, batch: &BatchId) -> Option<Verdict> {
        let request = self.readback.as_ref()?.request.as_ref()?;
        let mut found = request.found.iter();
        let found = found.find(|(k, b, _)| *k == key && b == batch)?;
        Some(found.2)
    }

    /// The request waits no more.
    pub(super) fn request_goes(&mut self) {
        if let Some(readback) = &mut self.readback {
            readback.request = None;
            if !readback.busy() {
                self.readback = None;
            }
        }
    }

    /// A response waits until the log was read.
    pub(super) fn wait_for_log(&mut self, answered: Answered) {
        let timeout = answered.owed.timeout.unwrap_or_default();
        let budget = self.budget(timeout);
        let readback = self.readback.get_or_insert_default();
        readback.response = Some(Response {
            answered,
            budget,
            seen: 0,
            place: 0,
        });
        self.reply = ReplyStage::Waits;
    }

    fn budget(&self, timeout: Duration) -> Budget {
        let sequence = &self.config.sequence;
        Budget {
            deadline: self.now.after(sequence.resolve_timeout.min(timeout / 2)),
            bytes: sequence.resolve_bytes,
        }
    }

    /// Begins to look for a batch; where that is over at once, it is told.
    fn begin(
        &mut self,
        key: WindowKey,
        topic: Rc<Named>,
        newest: i64,
        budget: Budget,
        retry: Result<Arrival, BatchId>,
    ) {
        let (batch, retry) = match retry {
            Ok(arrival) => (arrival.batch, Some(arrival)),
            Err(batch) => (batch, None),
        };
        let from = self.shared.ledger.whereabouts(key, &batch);
        let scan = Scan::new(batch, from, newest, budget.bytes);
        let limit = self.config.limits.resolves;
        let may_read = self.may_read_back();
        let Next::Ask(question) = scan.first() else {
            return self.conclude(key, retry, Finding::GaveUp);
        };
        let in_time = may_read && self.now < budget.deadline;
        let turn = in_time.then(|| self.shared.read_log(limit)).flatten();
        let Some(turn) = turn else {
            let in_vain = match limit {
                0 => Finding::GaveUp,
                _ if may_read => Finding::Late,
                _ => Finding::Cut,
            };
            return self.conclude(key, retry, in_vain);
        };
        let readback = self.readback.get_or_insert_default();
        readback.reading = Some(Reading {
            scan,
            question,
            asked: None,
            topic,
            key,
            deadline: budget.deadline,
            retry,
            _turn: turn,
        });
    }

    /// Goes on with what is looked for. Returns whether anything moved.
    pub(super) fn read_on(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while self.readback.is_some() && self.read_step(cx)? {
            moved = true;
        }
        Ok(moved)
    }

    fn read_step(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let Some(readback) = &self.readback else {
            return Ok(false);
        };
        let Some(reading) = &readback.reading else {
            return self.next_doubt(cx);
        };
        let too_much = readback.response.is_some() && self.mail.len() > MAIL_MAX;
        if !self.may_read_back() {
            self.end_reading(Finding::Cut);
            return Ok(true);
        }
        if too_much {
            self.end_reading(Finding::GaveUp);
            return Ok(true);
        }
        if self.now >= reading.deadline {
            self.end_reading(Finding::Late);
            return Ok(true);
        }
        if reading.asked.is_none() {
            return self.ask(cx);
        }
        Ok(self.answer_in_mail())
    }

    /// Turns to the next batch that the response leaves in doubt, or lets it go.
    fn next_doubt(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let response = self.readback.as_ref().and_then(|r| r.response.as_ref());
        let Some(response) = response else {
            return Ok(false);
        };
        let budget = response.budget;
        let sent = response
            .answered
            .doubts
            .front()
            .map(|doubt| self.tickets.get(*doubt));
        match sent {
            Some(Some(sent)) => {
                let ticket = &sent.ticket;
                let (key, batch) = (ticket.key, ticket.batch);
                let (topic, newest) = (Rc::clone(&sent.topic), sent.newest);
                self.begin(key, topic, newest, budget, Err(batch));
            }
            Some(None) | None => self.let_response_go(cx)?,
        }
        Ok(true)
    }

    /// The client gets the response that waited, and what waited behind it.
    fn let_response_go(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let response = self.readback.as_mut().and_then(|r| r.response.take());
        let Some(Response { answered, .. }) = response else {
            return Ok(());
        };
        if let Some(readback) = &self.readback
            && readback.request.is_none()
        {
            self.readback = None;
        }
        let Answered {
            owed,
            frame,
            endpoints,
            ok,
            edits,
            ..
        } = answered;
        self.all_settled(&owed, ok);
        self.reply = ReplyStage::Head;
        match self.changed(&owed, &frame, endpoints, &edits)? {
            Some(bytes) => self.to_client.push(&bytes),
            None => self.to_client.push(&frame::with_length(&frame)),
        }
        self.answer_ready();
        self.open_mail(cx)
    }

    /// Looks at responses that waited.
    pub(super) fn open_mail(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        self.mail_wanted = 0;
        let bytes = std::mem::take(&mut self.mail);
        let taken = self.take_replies(cx, &bytes)?;
        self.mail = super::keep_rest(bytes, taken);
        Ok(())
    }

    /// Sends the question, unless a part of a client's request has gone that
    /// it would stand in the middle of.
    fn ask(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let Some(readback) = &mut self.readback else {
            return Ok(false);
        };
        let Some(reading) = &mut readback.reading else {
            return Ok(false);
        };
        if !matches!(self.request, RequestStage::Head) || self.authentication.pending() {
            return Ok(false);
        }
        self.questions = self.questions.wrapping_add(1);
        let Some((head, bytes)) = reading.request(self.questions) else {
            self.end_reading(Finding::GaveUp);
            return Ok(true);
        };
        reading.asked = Some(head.correlation_id);
        self.ask_broker(cx, head, Reply::ReadBack, &bytes)?;
        Ok(true)
    }

    /// Takes the answer out of what waits behind a response, if all of it is
    /// there.
    fn answer_in_mail(&mut self) -> bool {
        match self.find_answer() {
            Ok(Some((place, range))) => {
                let frame: Vec<u8> = self.mail.drain(range).skip(PREFIX).collect();
                if let Some(owed) = self.pipeline.take_nth(place) {
                    self.answer_came(&owed, &frame);
                }
                true
            }
            Ok(None) => false,
            Err(NotFollowed) => {
                self.end_reading(Finding::GaveUp);
                true
            }
        }
    }

    /// Where the answer stands, in the pipeline and in the mail; `None` while
    /// more has to come.
    fn find_answer(&mut self) -> Result<Option<(usize, Range<usize>)>, NotFollowed> {
        let readback = self.readback.as_mut();
        let Some(response) = readback.and_then(|readback| readback.response.as_mut()) else {
            return Ok(None);
        };
        loop {
            let owed = self.pipeline.nth(response.place).ok_or(NotFollowed)?;
            match owed.reply {
                // No frame of the broker belongs to it.
                Reply::Ready(_) => {
                    response.place += 1;
                    continue;
                }
                Reply::Token => return Err(NotFollowed),
                _ => {}
            }
            let rest = self.mail.get(response.seen..).unwrap_or_default();
            let Some((prefix, rest)) = rest.split_first_chunk::<PREFIX>() else {
                return Ok(None);
            };
            let len = frame::length(*prefix, frame::MIN_RESPONSE, MAIL_MAX);
            let len = len.map_err(|_| NotFollowed)?;
            let Some(frame) = rest.get(..len) else {
                return Ok(None);
            };
            if !frame.starts_with(&owed.head.correlation_id.to_be_bytes()) {
                return Err(NotFollowed);
            }
            let range = response.seen..response.seen + PREFIX + len;
            if matches!(owed.reply, Reply::ReadBack) {
                return Ok(Some((response.place, range)));
            }
            response.seen = range.end;
            response.place += 1;
        }
    }

    /// The broker answered a question, in its turn or out of it.
    pub(super) fn answer_came(&mut self, owed: &Owed, frame: &[u8]) {
        let reading = self.readback.as_mut().and_then(|r| r.reading.as_mut());
        // Else nobody waits for it any more.
        if let Some(reading) = reading
            && reading.asked == Some(owed.head.correlation_id)
        {
            reading.asked = None;
            let next = match reading.question {
                Question::ByTime(_) => reading.scan.listed(fetch::listed(frame)),
                Question::End => reading.scan.ended(fetch::listed(frame)),
                Question::From { .. } => {
                    let version = owed.head.api_version;
                    reading.scan.fetched(fetch::fetched(version, frame))
                }
            };
            match next {
                Next::Ask(question) => reading.question = question,
                Next::Done(finding) => self.end_reading(finding),
            }
        }
    }

    /// The answer is longer than what is taken in.
    pub(super) fn too_large(&mut self, owed: &Owed) {
        let reading = self.readback.as_ref().and_then(|r| r.reading.as_ref());
        if reading.is_some_and(|reading| reading.asked == Some(owed.head.correlation_id)) {
            self.end_reading(Finding::GaveUp);
        }
    }

    fn end_reading(&mut self, finding: Finding) {
        let Some(readback) = &mut self.readback else {
            return;
        };
        let Some(reading) = readback.reading.take() else {
            return;
        };
        let left = reading.scan.bytes_left();
        if reading.retry.is_none() {
            if let Some(response) = &mut readback.response {
                response.budget.bytes = left;
            }
        } else if let Some(request) = &mut readback.request {
            request.budget.bytes = left;
        }
        self.conclude(reading.key, reading.retry, finding);
    }

    /// What is done about a batch that was looked for.
    fn conclude(&mut self, key: WindowKey, retry: Option<Arrival>, finding: Finding) {
        let outcome = match finding {
            Finding::Found(_) => metrics::Resolve::Found,
            Finding::Absent => metrics::Resolve::Absent,
            Finding::Refused => metrics::Resolve::Refused,
            Finding::Late | Finding::Elsewhere => metrics::Resolve::Late,
            Finding::Cut | Finding::GaveUp => metrics::Resolve::GaveUp,
        };
        self.shared.metrics.resolves.with(outcome).inc();
        if finding == Finding::Refused {
            self.refuse(key.topic);
        }
        match retry {
            Some(arrival) => self.conclude_retry(key, &arrival, finding),
            None => self.conclude_doubt(finding),
        }
    }

    fn conclude_retry(&mut self, key: WindowKey, arrival: &Arrival, finding: Finding) {
        let ledger = &self.shared.ledger;
        let found = match finding {
            Finding::Found(ack) => ledger.found(key, arrival, ack),
            Finding::Late => {
                let verdict = ledger.unread(key, arrival, Action::Defer);
                return self.answer_request(key, arrival, verdict);
            }
            // It says the same of the batch, and the client asks who has it.
            Finding::Elsewhere => {
                let verdict = ledger.unread(key, arrival, Action::Forward);
                return self.answer_request(key, arrival, verdict);
            }
            Finding::Cut => {
                ledger.cut_off(key, &arrival.batch);
                let verdict = ledger.unread(key, arrival, Action::Forward);
                return self.answer_request(key, arrival, verdict);
            }
            Finding::Absent | Finding::Refused | Finding::GaveUp => None,
        };
        let Some((verdict, settled)) = found else {
            return ledger.asked(key, &arrival.batch);
        };
        if settled.disagreed {
            self.shared.events.record(Event {
                producer: Some(key.producer),
                epoch: Some(arrival.batch.epoch),
                first: Some(arrival.batch.first),
                count: Some(arrival.batch.count),
                topic: ledger.topics.get(key.topic).name,
                partition: Some(key.partition),
                client_id: self.info.client_id.get().cloned(),
                ..Event::new(Kind::LogTruncated)
            });
        }
        self.answer_request(key, arrival, Some(verdict));
    }

    /// Keeps the verdict for the request that waits.
    fn answer_request(&mut self, key: WindowKey, arrival: &Arrival, verdict: Option<Verdict>) {
        let request = self.readback.as_mut().and_then(|r| r.request.as_mut());
        if let (Some(request), Some(verdict)) = (request, verdict) {
            request.found.push((key, arrival.batch, verdict));
        }
    }

    fn conclude_doubt(&mut self, finding: Finding) {
        let response = self.readback.as_mut().and_then(|r| r.response.as_mut());
        let doubt = response.and_then(|response| response.answered.doubts.pop_front());
        let Some(doubt) = doubt else { return };
        let edit = match finding {
            Finding::Found(ack) => self.found(doubt, ack),
            Finding::Late | Finding::Elsewhere => self.left_open(doubt),
            Finding::Absent | Finding::Refused | Finding::Cut | Finding::GaveUp => {
                self.refused(doubt)
            }
        };
        if let Some(response) = self.readback.as_mut().and_then(|r| r.response.as_mut()) {
            response.answered.ok &= matches!(finding, Finding::Found(_));
            response.answered.edits.extend(edit);
        }
    }

    /// The broker is gone: nothing is asked any more, and the client gets what
    /// it would have got without a question.
    pub(super) fn stop_reading(&mut self, cx: &mut Context<'_>) {
        self.reads_log = false;
        // Whatever end this comes to, there is one already.
        let _ = self.read_on(cx);
    }

    /// Nobody waits for the log any more.
    pub(super) fn drop_read_back(&mut self) {
        self.reads_log = false;
        let Some(readback) = self.readback.take() else {
            return;
        };
        let gave_up = self.shared.metrics.resolves.with(metrics::Resolve::GaveUp);
        match readback.response {
            Some(Response { answered, .. }) => {
                gave_up.inc_by(answered.doubts.len() as u64);
                for doubt in answered.doubts {
                    let _ = self.refused(doubt);
                }
                self.all_settled(&answered.owed, false);
            }
            None => gave_up.inc_by(u64::from(readback.reading.is_some())),
        }
        if matches!(self.reply, ReplyStage::Waits) {
            self.reply = ReplyStage::Head;
            self.mail_wanted = 0;
        }
    }

    fn is_refused(&self, topic: TopicKey) -> bool {
        match self.realm {
            Some(realm) => self.shared.is_refused(realm, topic, self.time),
            None => self.refused.contains(&topic),
        }
    }

    fn refuse(&mut self, topic: TopicKey) {
        match self.realm {
            Some(realm) => self.shared.refuse(realm, topic, self.time),
            None if self.refused.len() < REFUSED_MAX => self.refused.push(topic),
            None => {}
        }
    }
}

/// The broker's words are not those that were asked for.
struct NotFollowed;

impl Reading {
    /// The question as a request of its own; `None` where the topic's name is
    /// needed and not known.
    fn request(&self, correlation_id: i32) -> Option<(RequestHead, Bytes)> {
        let partition = self.key.partition;
        let topic = self.topic.raw.as_ref();
        let (api_key, api_version, bytes) = match self.question {
            Question::ByTime(time) => self.list(correlation_id, time)?,
            Question::End => self.list(correlation_id, fetch::LATEST)?,
            Question::From {
                offset,
                bytes_max,
                waits,
            } => {
                let range = fetch::Wanted {
                    offset,
                    bytes_max: i32::try_from(bytes_max).unwrap_or(i32::MAX),
                    wait_ms: if waits { WAIT_MS } else { 0 },
                };
                let bytes = fetch::request(correlation_id, topic, partition, range)?;
                (api::FETCH, fetch::version_for(topic), bytes)
            }
        };
        let head = RequestHead {
            api_key,
            api_version,
            correlation_id,
        };
        Some((head, bytes))
    }

    /// A question for an offset by its time, or for the end.
    fn list(&self, correlation_id: i32, time: i64) -> Option<(i16, i16, Bytes)> {
        let name = match &self.topic.raw {
            produce::Topic::Name(name) => name,
            produce::Topic::Id(_) => self.topic.known.name.as_deref()?.as_bytes(),
        };
        let bytes = fetch::list_request(correlation_id, name, self.key.partition, time)?;
        Some((api::LIST_OFFSETS, fetch::LIST_OFFSETS, bytes))
    }
}
