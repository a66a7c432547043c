//! hapax, as far as the order of things goes: the real ledger behind a driver
//! that follows `session/produce.rs` and `session.rs` step by step.

use super::broker::Batch;
use super::client::REQUEST_TIMEOUT;
use super::rng::hash;
use super::world::{Answer, Between, Event, Fate, Request, Response, TO_BROKER, TO_CLIENT, World};
use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence, TopicKey};
use hapax::ledger::{Identity, Ledger, Link, Realm, Ticket, TopicName, WindowKey};
use hapax::window::{
    Ack, Acks, Action, Arrival, Class, Mode, Outcome, Rules, Time, Verdict, classify,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

/// What a held request may wait: `holdMax`, or a quarter of its own timeout.
const HOLD_MAX: u64 = if 5_000 < REQUEST_TIMEOUT / 4 {
    5_000
} else {
    REQUEST_TIMEOUT / 4
};
const ORPHAN_PATIENCE: u64 = 30_000;
const UPSTREAM_PATIENCE: u64 = REQUEST_TIMEOUT + 30_000;

type Woken = Arc<Mutex<VecDeque<usize>>>;

struct Knock {
    session: usize,
    woken: Woken,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push_back(self.session);
    }
}

/// What all sessions share.
pub struct Proxy {
    ledger: Ledger,
    topic: TopicKey,
    realm: Option<Realm>,
    woken: Woken,
    /// For the window that is wrong on purpose.
    sent: BTreeMap<(usize, usize, i16, i32), i64>,
    guess: BTreeMap<usize, i64>,
    pub absorbed: u64,
    pub mirrored: u64,
    pub held: u64,
    pub holds_expired: u64,
}

impl Proxy {
    pub fn new(between: Between) -> Self {
        let rules = Rules {
            mode: Mode::Absorb,
            ttl: Duration::from_secs(300),
            window_batches: if between == Between::Wide { 32 } else { 5 },
            absorb_transactional: false,
            shield45: between == Between::Shield,
        };
        let ledger = Ledger::new(rules, 1000, 10);
        Self {
            topic: ledger.topics.key(TopicName::Name(b"t")).unwrap(),
            realm: ledger.realm(&Identity::Anonymous),
            ledger,
            woken: Woken::default(),
            sent: BTreeMap::new(),
            guess: BTreeMap::new(),
            absorbed: 0,
            mirrored: 0,
            held: 0,
            holds_expired: 0,
        }
    }

    pub fn session(&self, number: usize) -> Session {
        let knock = Knock {
            session: number,
            woken: Arc::clone(&self.woken),
        };
        Session {
            link: self.ledger.link(),
            waker: Waker::from(Arc::new(knock)),
            inbox: VecDeque::new(),
            held: None,
            pipeline: VecDeque::new(),
            tickets: VecDeque::new(),
            producers: BTreeSet::new(),
            client_eof: false,
            client_silent: false,
            orphan: None,
            ended: false,
        }
    }

    pub fn woken(&self) -> Option<usize> {
        self.woken.lock().unwrap().pop_front()
    }

    /// How a wrong proxy differs.
    fn spoil(&self, between: Between, batch: &Batch, verdict: &mut Verdict) {
        let stamp = (batch.client, batch.partition, batch.epoch, batch.first);
        match (between, verdict.action) {
            (Between::NoGate, Action::Hold | Action::Mirror(_))
            | (Between::NoHold, Action::Hold) => verdict.action = Action::Forward,
            (Between::SentAsAcked, _) if self.sent.contains_key(&stamp) => {
                verdict.class = Class::Duplicate;
                verdict.action = Action::Replay(Ack {
                    offset: self.sent[&stamp],
                    append_time: -1,
                    log_start: Some(0),
                });
            }
            _ => {}
        }
    }

    fn note_sent(&mut self, batch: &Batch) {
        let guess = self.guess.entry(batch.partition).or_default();
        let stamp = (batch.client, batch.partition, batch.epoch, batch.first);
        self.sent.entry(stamp).or_insert(*guess);
        *guess += i64::from(batch.count);
    }
}

/// What is owed to the client for one request.
struct Owed {
    request: Request,
    /// It is hapax's own, and whole.
    ready: bool,
    answers: Vec<Answer>,
    tickets: usize,
    /// All of it left.
    whole: bool,
    at: u64,
}

pub struct Session {
    link: Link,
    waker: Waker,
    inbox: VecDeque<Request>,
    /// Until when the head of the inbox may wait.
    held: Option<u64>,
    pipeline: VecDeque<Owed>,
    tickets: VecDeque<Ticket>,
    producers: BTreeSet<usize>,
    client_eof: bool,
    /// It was written to although nobody is there.
    client_silent: bool,
    orphan: Option<u64>,
    ended: bool,
}

impl Session {
    /// Whether anybody waits for it.
    pub fn waits(&self) -> bool {
        !self.ended && (self.held.is_some() || !self.pipeline.is_empty())
    }
}

struct Judged {
    batch: Batch,
    key: WindowKey,
    arrival: Arrival,
    verdict: Verdict,
}

impl Judged {
    fn acts(&self) -> bool {
        self.verdict.action != Action::Forward
    }
}

impl World {
    fn time(&self) -> Time {
        Time(u32::try_from(self.now / 1000).unwrap())
    }

    pub fn request_came(&mut self, conn: usize, request: Request) {
        let session = &mut self.conns[conn].session;
        if !session.ended && session.orphan.is_none() {
            session.inbox.push_back(request);
            self.take_requests(conn);
        }
    }

    /// Looks again: something changed, or time passed.
    pub fn look(&mut self, conn: usize) {
        let now = self.now;
        let session = &self.conns[conn].session;
        if session.ended {
            return;
        }
        let late = session
            .pipeline
            .front()
            .is_some_and(|o| !o.ready && o.at + UPSTREAM_PATIENCE <= now);
        if late || session.orphan.is_some_and(|until| until <= now) {
            self.end_session(conn);
            return;
        }
        if session.held.is_some_and(|until| now > until) {
            self.wrong(format!("session {conn} held a request for too long"));
        }
        self.take_requests(conn);
    }

    fn take_requests(&mut self, conn: usize) {
        while let Some(request) = self.conns[conn].session.inbox.front().cloned() {
            if !self.produce(conn, &request) {
                break;
            }
            self.conns[conn].session.inbox.pop_front();
        }
        self.answer_ready(conn);
        self.half_close(conn);
    }

    /// `Session::produce_walked`.
    fn produce(&mut self, conn: usize, request: &Request) -> bool {
        let several = request.parts.len() > 1;
        let mut seen = request.parts.len();
        if several && request.large && self.calm(&request.parts[0]) {
            seen = 1;
        } else if several && !request.whole {
            return false;
        }
        let all_seen = seen == request.parts.len();
        let Some(mut parts) = self.judge(conn, &request.parts[..seen], all_seen) else {
            return false;
        };
        if !all_seen && parts.iter().any(Judged::acts) {
            if !request.whole {
                return false;
            }
            match self.judge(conn, &request.parts, true) {
                Some(all) => parts = all,
                None => return false,
            }
        }
        let streams = parts.len() < request.parts.len();
        let answers = self.answers(conn, &parts);
        if parts.iter().all(Judged::acts) {
            // A frame that is dropped is answered once the last of it came.
            if request.whole {
                self.owe(conn, request, answers, 0, true);
            }
            return true;
        }
        if !answers.is_empty() && !request.whole {
            return false;
        }
        let mut tickets = self.commit(conn, &parts);
        if streams {
            let mut rest = self.judge_once(conn, &request.parts[seen..], false);
            for part in &mut rest {
                part.verdict.action = Action::Forward;
            }
            tickets += self.commit(conn, &rest);
            parts.extend(rest);
        }
        self.owe(conn, request, answers, tickets, false);
        if request.whole {
            let left = parts.iter().filter(|p| !p.acts()).map(|p| p.batch);
            let rebuilt = Request {
                parts: left.collect(),
                ..request.clone()
            };
            self.send(conn, TO_BROKER, Event::ToBroker(conn, rebuilt));
        }
        true
    }

    fn owe(
        &mut self,
        conn: usize,
        request: &Request,
        answers: Vec<Answer>,
        tickets: usize,
        ready: bool,
    ) {
        let at = self.now;
        self.conns[conn].session.pipeline.push_back(Owed {
            request: request.clone(),
            ready,
            answers,
            tickets,
            whole: request.whole,
            at,
        });
        self.at(UPSTREAM_PATIENCE, Event::Look(conn));
    }

    fn calm(&self, batch: &Batch) -> bool {
        let time = self.time();
        let producer = self.proxy.ledger.producer(producer(batch), time);
        producer.is_some_and(|producer| producer.calm(time))
    }

    /// `None`: the request has to wait.
    fn judge(&mut self, conn: usize, batches: &[Batch], all_seen: bool) -> Option<Vec<Judged>> {
        let was_held = self.conns[conn].session.held.is_some();
        for attempt in 0..2 {
            let held = self.conns[conn].session.held;
            let patient = all_seen && held.is_none_or(|until| self.now < until);
            let parts = self.judge_once(conn, batches, patient);
            let waits = parts.iter().find(|p| p.verdict.action == Action::Hold);
            let Some(key) = waits.map(|p| p.key) else {
                if was_held && !patient {
                    self.proxy.holds_expired += 1;
                }
                self.conns[conn].session.held = None;
                return Some(parts);
            };
            if attempt == 0 {
                if held.is_none() {
                    self.proxy.held += 1;
                    self.conns[conn].session.held = Some(self.now + HOLD_MAX);
                    self.at(HOLD_MAX, Event::Look(conn));
                }
                self.proxy.ledger.wait(key, &self.conns[conn].session.waker);
            }
        }
        None
    }

    fn judge_once(&mut self, conn: usize, batches: &[Batch], patient: bool) -> Vec<Judged> {
        let now = self.time();
        let link = self.conns[conn].session.link;
        let node = NodeId::from_wire(i32::try_from(self.conns[conn].broker).unwrap());
        let mut parts = Vec::new();
        for batch in batches {
            let key = WindowKey {
                producer: producer(batch),
                topic: self.proxy.topic,
                partition: i32::try_from(batch.partition).unwrap(),
            };
            let arrival = Arrival {
                batch: identity(batch),
                transactional: false,
                acks: Acks::All,
                realm: self.proxy.realm,
                node,
                link,
                now,
                patient,
                old: false,
            };
            let mut verdict = self.proxy.ledger.judge(key, &arrival);
            self.proxy.spoil(self.between, batch, &mut verdict);
            self.trace(|| format!("session {conn} on {batch:?}: {verdict:?}"));
            parts.push(Judged {
                batch: *batch,
                key,
                arrival,
                verdict,
            });
        }
        parts
    }

    fn met(&mut self, conn: usize, batch: &Batch) {
        self.conns[conn].session.producers.insert(batch.client);
        if let Some(known) = self.proxy.ledger.producer(producer(batch), self.time()) {
            let _ = known.bumps(Epoch(batch.epoch));
        }
    }

    fn commit(&mut self, conn: usize, parts: &[Judged]) -> usize {
        let before = self.conns[conn].session.tickets.len();
        for part in parts.iter().filter(|part| !part.acts()) {
            let ticket = self
                .proxy
                .ledger
                .commit(part.key, &part.arrival, &part.verdict);
            self.conns[conn].session.tickets.extend(ticket);
            if self.between == Between::OrphanUntilBump {
                self.end_outdated(part);
            }
            self.proxy.note_sent(&part.batch);
            self.met(conn, &part.batch);
        }
        self.conns[conn].session.tickets.len() - before
    }

    /// Ends the orphans that wait for an older epoch of this batch's sequence.
    fn end_outdated(&mut self, part: &Judged) {
        for conn in 0..self.conns.len() {
            let session = &self.conns[conn].session;
            let outdated =
                |t: &Ticket| t.key == part.key && t.batch.epoch < part.arrival.batch.epoch;
            if session.orphan.is_some() && !session.ended && session.tickets.iter().any(outdated) {
                self.end_session(conn);
            }
        }
    }

    fn answers(&mut self, conn: usize, parts: &[Judged]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for Judged {
            batch,
            key,
            arrival,
            verdict,
        } in parts
        {
            let (error, offset) = match verdict.action {
                Action::Forward | Action::Hold | Action::Resolve => continue,
                Action::Replay(ack) => {
                    self.proxy.absorbed += 1;
                    self.proxy.ledger.absorbed(*key, arrival, verdict);
                    (0, ack.offset)
                }
                Action::Mirror(code) => {
                    self.proxy.mirrored += 1;
                    self.proxy.ledger.mirrored(*key, arrival, verdict, code);
                    (code, -1)
                }
                Action::Refuse(code) => {
                    self.proxy.ledger.refused(*key, arrival, verdict);
                    (code, -1)
                }
            };
            answers.push(Answer {
                partition: batch.partition,
                epoch: batch.epoch,
                error,
                offset,
            });
            self.met(conn, batch);
        }
        answers
    }

    /// `Session::produce_reply`.
    pub fn response_came(&mut self, conn: usize, mut response: Response) {
        let now = self.time();
        let session = &mut self.conns[conn].session;
        if session.ended {
            return;
        }
        let Some(owed) = session.pipeline.pop_front() else {
            self.wrong(format!("{response:?} was not asked for"));
            return;
        };
        let due: Vec<Ticket> = session.tickets.drain(..owed.tickets).collect();
        if owed.request.id != response.request || owed.ready {
            self.wrong(format!("{response:?} answers {:?}", owed.request));
        }
        for answer in &mut response.answers {
            let partition = i32::try_from(answer.partition).unwrap();
            let Some(ticket) = due.iter().find(|t| t.key.partition == partition) else {
                continue;
            };
            let offset = (answer.offset >= 0).then_some(answer.offset);
            let outcome = classify(answer.error, offset, -1, Some(0));
            let settled = self.proxy.ledger.settle(ticket, outcome, now);
            if let Some(code) = settled.shield {
                answer.error = code;
            }
            if answer.error == 0 {
                let (_, batch) = owed_batch(&owed.request, answer.partition);
                let end = answer.offset + i64::from(batch.count);
                self.proxy.guess.insert(answer.partition, end);
            }
        }
        let answers = [owed.answers, response.answers].concat();
        self.conns[conn].stalled_near |= response.fate == Fate::StallNear;
        let lose = response.fate == Fate::LoseNear;
        let merged = Response {
            answers,
            ..response
        };
        self.hand_back(conn, merged, lose);
        self.answer_ready(conn);
        self.take_requests(conn);
        let session = &self.conns[conn].session;
        if session.orphan.is_some() && session.tickets.is_empty() {
            self.end_session(conn);
        }
    }

    fn answer_ready(&mut self, conn: usize) {
        while self.conns[conn]
            .session
            .pipeline
            .front()
            .is_some_and(|o| o.ready)
        {
            let owed = self.conns[conn].session.pipeline.pop_front().unwrap();
            let response = Response {
                request: owed.request.id,
                answers: owed.answers,
                fate: Fate::None,
            };
            self.hand_back(conn, response, false);
        }
    }

    fn hand_back(&mut self, conn: usize, response: Response, lose: bool) {
        let session = &mut self.conns[conn].session;
        if session.orphan.is_some() || session.ended {
            return;
        }
        if session.client_eof {
            // Nobody reads any more, which the next write is told.
            if !std::mem::replace(&mut session.client_silent, true) {
                self.at(1, Event::ClientGone(conn, false));
            }
        } else if self.conns[conn].stalled_near {
        } else if lose {
            self.cut_client(conn);
        } else {
            self.send(conn, TO_CLIENT, Event::ToClient(conn, response));
        }
    }

    pub fn client_gone(&mut self, conn: usize, fin: bool) {
        let session = &mut self.conns[conn].session;
        if session.ended || session.orphan.is_some() {
            return;
        }
        if fin {
            session.client_eof = true;
            self.half_close(conn);
        } else if !self.become_orphan(conn) {
            self.end_session(conn);
        }
    }

    /// All that a client sent before its FIN is forwarded and answered.
    fn half_close(&mut self, conn: usize) {
        let session = &self.conns[conn].session;
        let done = session.client_eof && session.held.is_none() && session.pipeline.is_empty();
        if done && !session.ended && session.orphan.is_none() {
            self.end_session(conn);
        }
    }

    fn become_orphan(&mut self, conn: usize) -> bool {
        let session = &mut self.conns[conn].session;
        let worth_it = session.pipeline.iter().any(|o| o.tickets > 0 && o.whole);
        if !worth_it || self.between == Between::NoOrphan {
            return false;
        }
        session.inbox.clear();
        session.held = None;
        session.orphan = Some(self.now + ORPHAN_PATIENCE);
        self.at(ORPHAN_PATIENCE, Event::Look(conn));
        self.withhold(conn);
        // Answers of hapax's own have nobody to go to.
        self.answer_ready(conn);
        true
    }

    fn withhold(&mut self, conn: usize) {
        let now = self.time();
        let session = &mut self.conns[conn].session;
        for owed in std::mem::take(&mut session.pipeline) {
            let own: Vec<Ticket> = session.tickets.drain(..owed.tickets).collect();
            if owed.whole {
                session.tickets.extend(own);
                session.pipeline.push_back(owed);
                continue;
            }
            for ticket in own {
                let _ = self.proxy.ledger.settle(&ticket, Outcome::Withheld, now);
            }
        }
    }

    pub fn upstream_gone(&mut self, conn: usize) {
        if !self.conns[conn].session.ended {
            self.end_session(conn);
        }
    }

    /// `Session::settle_all`, and both sides are closed.
    fn end_session(&mut self, conn: usize) {
        let now = self.time();
        self.withhold(conn);
        let session = &mut self.conns[conn].session;
        session.ended = true;
        session.inbox.clear();
        session.pipeline.clear();
        session.held = None;
        let tickets = std::mem::take(&mut session.tickets);
        let met = std::mem::take(&mut session.producers);
        for ticket in tickets {
            let unknown = Outcome::Unknown { candidate: None };
            let _ = self.proxy.ledger.settle(&ticket, unknown, now);
        }
        let ttl = self.proxy.ledger.rules().ttl;
        for client in met {
            let id = ProducerId::from_wire(i64::try_from(client).unwrap()).unwrap();
            if let Some(known) = self.proxy.ledger.known_producer(id) {
                known.trouble(now, ttl);
            }
        }
        self.send(conn, TO_BROKER, Event::PeerGone(conn));
        self.send(conn, TO_CLIENT, Event::Closed(conn));
    }
}

/// Where in a request, and which, the batch for a partition is.
fn owed_batch(request: &Request, partition: usize) -> (usize, Batch) {
    let mut parts = request.parts.iter().copied().enumerate();
    parts
        .find(|(_, batch)| batch.partition == partition)
        .expect("it was asked for")
}

fn producer(batch: &Batch) -> ProducerId {
    ProducerId::from_wire(i64::try_from(batch.client).unwrap()).unwrap()
}

/// The checksum covers what the batch is stamped with.
fn identity(batch: &Batch) -> BatchId {
    let stamp = [
        u64::from(batch.epoch.cast_unsigned()),
        u64::from(batch.first.cast_unsigned()),
        u64::from(batch.number),
        batch.client as u64,
    ];
    BatchId {
        producer: producer(batch),
        epoch: Epoch(batch.epoch),
        first: Sequence::from_wire(batch.first).unwrap(),
        count: batch.count,
        crc: u32::try_from(hash(&stamp) >> 32).unwrap(),
        len: 100 + batch.count,
    }
}
