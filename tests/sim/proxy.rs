//! hapax, as far as the order of things goes: the real ledger behind a driver
//! that follows `session/produce.rs` and `session.rs` step by step.

use super::broker::{Batch, OUT_OF_ORDER};
use super::faults::Fate;
use super::mutants::{Between, Spoiled};
use super::readback::{Readings, Shown, Wanted, ack};
use super::rng::hash;
use super::world::{Answer, Event, Request, Response, TO_BROKER, TO_CLIENT, World};
use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence, TopicId, TopicKey};
use hapax::ledger::{Identity, Ledger, Link, Realm, Ticket, TopicName, WindowKey};
use hapax::window::{
    Acks, Action, Arrival, Class, Kept, KeptFact, Mode, Outcome, REQUEST_TIMED_OUT, Rules, Time,
    Verdict, classify,
};
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

/// `holdMax`
const HOLD_MAX: u64 = 5_000;
const ORPHAN_PATIENCE: u64 = 30_000;
/// What a request may take beyond its own timeout.
const UPSTREAM_PATIENCE: u64 = 30_000;

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

/// How often hapax did what it does.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub absorbed: u64,
    pub mirrored: u64,
    /// Retries that were put off.
    pub deferred: u64,
    pub held: u64,
    pub holds_expired: u64,
    /// Times that the log was read for a retry, and for a 45, and batches
    /// that it had.
    pub asked: u64,
    pub contested: u64,
    pub found: u64,
    /// Records that were forwarded because the log could not be read for them.
    pub blind: u64,
    /// Facts that a restart kept.
    pub restored: u64,
}

/// One instance of hapax: what all its sessions share.
pub struct Proxy {
    pub between: Between,
    ledger: Ledger,
    realm: Option<Realm>,
    woken: Woken,
    pub spoiled: Spoiled,
    pub counts: Counts,
    /// What is on its disk: the oldest snapshot, and the newest.
    snapshots: [Snapshot; 2],
}

/// Facts by the incarnation of their topic.
type Snapshot = Vec<(u32, WindowKey, Kept, Vec<KeptFact>)>;

/// What a hapax that was killed starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    Empty,
    Oldest,
    Newest,
}

fn new_ledger(between: Between) -> Ledger {
    let rules = Rules {
        mode: Mode::Absorb,
        ttl: Duration::from_secs(300),
        window_batches: 5,
        absorb_transactional: false,
        shield45: between == Between::Shield,
    };
    Ledger::new(rules, 1000, 1000)
}

impl Proxy {
    pub fn new(between: Between) -> Self {
        let ledger = new_ledger(between);
        Self {
            between,
            realm: ledger.realm(&Identity::Anonymous),
            ledger,
            woken: Woken::default(),
            spoiled: Spoiled::default(),
            counts: Counts::default(),
            snapshots: Default::default(),
        }
    }

    /// Its process is killed, and starts again.
    pub fn restart(&mut self, start: Start, now: Time) {
        let old = std::mem::replace(self, Self::new(self.between));
        self.counts = old.counts;
        self.spoiled = old.spoiled.restart();
        self.snapshots = old.snapshots;
        let from = match start {
            Start::Empty => return,
            Start::Oldest => &self.snapshots[0],
            Start::Newest => &self.snapshots[1],
        };
        let realm = self.realm.expect("everybody is somebody");
        for (topic, key, kept, facts) in from {
            let key = WindowKey {
                topic: self.topic(*topic),
                ..*key
            };
            let kept = Kept { realm, ..*kept };
            self.counts.restored += self.ledger.restore(key, &kept, facts, now) as u64;
        }
    }

    /// Writes down what it knows.
    pub fn snapshot(&mut self, now: Time) {
        let mut snapshot = Snapshot::new();
        for key in self.ledger.keys() {
            let mut facts = Vec::new();
            let kept = self.ledger.kept(&key, now, &mut facts);
            let id = self.ledger.topics.get(key.topic).id;
            if let (Some(kept), Some(id)) = (kept, id) {
                snapshot.push((incarnation(id), key, kept, facts));
            }
        }
        if self.snapshots[0].is_empty() {
            self.snapshots[0].clone_from(&snapshot);
        }
        self.snapshots[1] = snapshot;
    }

    pub fn session(&self, number: usize) -> Session {
        let knock = Knock {
            session: number,
            woken: Arc::clone(&self.woken),
        };
        Session::new(self.ledger.link(), Waker::from(Arc::new(knock)))
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn woken(&self) -> Option<usize> {
        self.woken.lock().unwrap().pop_front()
    }

    /// A topic by the id that Produce v13 carries.
    fn topic(&self, incarnation: u32) -> TopicKey {
        let mut id = [1; 16];
        id[..4].copy_from_slice(&incarnation.to_be_bytes());
        let id = TopicId::from_wire(id).unwrap();
        self.ledger.topics.key(TopicName::Id(id)).unwrap()
    }
}

fn incarnation(id: TopicId) -> u32 {
    let [a, b, c, d, ..] = id.to_wire();
    u32::from_be_bytes([a, b, c, d])
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

/// A batch on its way, and the client's records that it stands for.
#[derive(Clone, Copy)]
struct Sent {
    ticket: Ticket,
    batch: Batch,
}

pub struct Session {
    link: Link,
    waker: Waker,
    inbox: VecDeque<Request>,
    /// Until when the head of the inbox may wait.
    held: Option<u64>,
    /// What came with it.
    queued: Vec<WindowKey>,
    pipeline: VecDeque<Owed>,
    tickets: VecDeque<Sent>,
    producers: BTreeSet<usize>,
    client_eof: bool,
    /// It was written to although nobody is there.
    client_silent: bool,
    orphan: Option<u64>,
    pub readings: Readings,
    ended: bool,
}

impl Session {
    fn new(link: Link, waker: Waker) -> Self {
        Self {
            link,
            waker,
            inbox: VecDeque::new(),
            held: None,
            queued: Vec::new(),
            pipeline: VecDeque::new(),
            tickets: VecDeque::new(),
            producers: BTreeSet::new(),
            client_eof: false,
            client_silent: false,
            orphan: None,
            readings: Readings::default(),
            ended: false,
        }
    }

    /// For a connection that does not go through hapax.
    pub fn none() -> Self {
        let mut none = Self::new(Link(NonZeroU32::MIN), Waker::noop().clone());
        none.ended = true;
        none
    }

    /// Whether anybody waits for it.
    pub fn waits(&self) -> bool {
        !self.ended && (self.held.is_some() || !self.pipeline.is_empty())
    }

    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Its process is no more: nothing is settled.
    pub fn vanish(&mut self) {
        self.ended = true;
        self.inbox.clear();
        self.pipeline.clear();
        self.tickets.clear();
        self.held = None;
        self.queued.clear();
        self.readings = Readings::default();
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
    pub fn time(&self) -> Time {
        Time(u32::try_from(self.now / 1000).unwrap())
    }

    pub fn proxy(&mut self, conn: usize) -> &mut Proxy {
        &mut self.proxies[self.conns[conn].instance]
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
            .is_some_and(|o| !o.ready && o.at + o.request.timeout + UPSTREAM_PATIENCE <= now);
        if late || session.orphan.is_some_and(|until| until <= now) {
            self.end_session(conn);
            return;
        }
        self.take_requests(conn);
    }

    pub fn take_requests(&mut self, conn: usize) {
        while let Some(request) = self.conns[conn].session.inbox.pop_front() {
            if !self.produce(conn, &request) {
                self.conns[conn].session.inbox.push_front(request);
                break;
            }
            self.unqueue(conn);
        }
        self.answer_ready(conn);
        self.half_close(conn);
    }

    /// `Session::produce_walked`.
    fn produce(&mut self, conn: usize, request: &Request) -> bool {
        if self.conns[conn].session.readings.request.is_some() {
            return false;
        }
        let several = request.parts.len() > 1;
        let mut seen = request.parts.len();
        if several && request.large && self.calm(conn, &request.parts[0]) {
            seen = 1;
        } else if several && !request.whole {
            return false;
        }
        let all_seen = seen == request.parts.len();
        let Some(mut parts) = self.judge(conn, request, seen, all_seen) else {
            return false;
        };
        if !all_seen && parts.iter().any(Judged::acts) {
            if !request.whole {
                return false;
            }
            match self.judge(conn, request, request.parts.len(), true) {
                Some(all) => parts = all,
                None => return false,
            }
        }
        if parts.iter().any(|p| p.verdict.action == Action::Resolve) {
            self.look_up(conn, &parts);
            return false;
        }
        self.conns[conn].session.readings.verdicts.clear();
        let streams = parts.len() < request.parts.len();
        if parts.iter().all(Judged::acts) {
            // A frame that is dropped is answered once the last of it came.
            let answers = self.answers(conn, request.topic, &parts);
            if request.whole {
                self.owe(conn, request, answers, 0, true);
            }
            return true;
        }
        if parts.iter().any(Judged::acts) && !request.whole {
            return false;
        }
        let answers = self.answers(conn, request.topic, &parts);
        let mut tickets = self.commit(conn, &parts);
        if streams {
            let rest = &request.parts[seen..];
            let mut rest = self.judge_once(conn, request.topic, rest, false);
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

    /// Reads the log for the batches that are to be looked for.
    fn look_up(&mut self, conn: usize, parts: &[Judged]) {
        let mut wanted = Vec::new();
        for part in parts.iter().filter(|p| p.verdict.action == Action::Resolve) {
            let ledger = &self.proxy(conn).ledger;
            let from = ledger.whereabouts(part.key, &part.arrival.batch);
            wanted.push(Wanted::new(part.batch, part.key, Some(part.arrival), from));
        }
        self.queue(conn, parts);
        self.conns[conn].session.readings.request = Some(wanted);
        self.begin_read(conn, true, |counts| counts.asked += 1);
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
        let patience = request.timeout + UPSTREAM_PATIENCE;
        self.at(patience, Event::Look(conn));
    }

    fn calm(&mut self, conn: usize, batch: &Batch) -> bool {
        let time = self.time();
        let producer = self.proxy(conn).ledger.producer(producer(batch), time);
        producer.is_some_and(|producer| producer.calm(time))
    }

    /// `None`: the request has to wait.
    fn judge(
        &mut self,
        conn: usize,
        request: &Request,
        seen: usize,
        all_seen: bool,
    ) -> Option<Vec<Judged>> {
        let expired = self.conns[conn]
            .session
            .held
            .is_some_and(|until| self.now >= until);
        let mut patient = all_seen;
        let mut waits_already = false;
        loop {
            let batches = &request.parts[..seen];
            let parts = self.judge_once(conn, request.topic, batches, patient);
            let waits = parts.iter().find(|p| p.verdict.action == Action::Hold);
            let Some(key) = waits.map(|p| p.key) else {
                self.conns[conn].session.held = None;
                return Some(parts);
            };
            if expired && !self.waits_for_own(conn, &parts) {
                self.proxy(conn).counts.holds_expired += 1;
                patient = false;
                continue;
            }
            if waits_already {
                self.queue(conn, &parts);
                return None;
            }
            if self.conns[conn].session.held.is_none() {
                let copies = parts
                    .iter()
                    .filter(|p| p.verdict.action == Action::Hold)
                    .all(|p| p.arrival.old && p.verdict.class == Class::DuplicateInFlight);
                let patience = if copies {
                    request.timeout / 4 * 3
                } else {
                    HOLD_MAX.min(request.timeout / 4)
                };
                self.proxy(conn).counts.held += 1;
                self.conns[conn].session.held = Some(self.now + patience);
                self.at(patience, Event::Look(conn));
            }
            let proxy = &self.proxies[self.conns[conn].instance];
            proxy.ledger.wait(key, &self.conns[conn].session.waker);
            waits_already = true;
        }
    }

    /// `Session::queue`.
    fn queue(&mut self, conn: usize, parts: &[Judged]) {
        if !self.conns[conn].session.queued.is_empty() {
            return;
        }
        for part in parts {
            self.proxy(conn).ledger.queue(part.key, &part.arrival);
            self.conns[conn].session.queued.push(part.key);
        }
    }

    /// A `Queue` is dropped.
    fn unqueue(&mut self, conn: usize) {
        let session = &mut self.conns[conn].session;
        let link = session.link;
        for key in std::mem::take(&mut session.queued) {
            self.proxy(conn).ledger.unqueue(key, link);
        }
    }

    /// Whether every held batch waits for nothing but what left before it on
    /// this connection.
    fn waits_for_own(&self, conn: usize, parts: &[Judged]) -> bool {
        let conn = &self.conns[conn];
        let own = conn.session.tickets.iter().map(|sent| &sent.ticket);
        let ledger = &self.proxies[conn.instance].ledger;
        parts
            .iter()
            .filter(|part| part.verdict.action == Action::Hold)
            .all(|part| ledger.waits_for_own(part.key, &part.arrival, &own))
    }

    fn judge_once(
        &mut self,
        conn: usize,
        topic: u32,
        batches: &[Batch],
        patient: bool,
    ) -> Vec<Judged> {
        let now = self.time();
        let link = self.conns[conn].session.link;
        let node = NodeId::from_wire(i32::try_from(self.conns[conn].broker).unwrap());
        // Records older than the expiry, and a log that may be read.
        let old = self.scenario.expiries > 0 && self.between.reads();
        let mut parts = Vec::new();
        for batch in batches {
            let proxy = self.proxy(conn);
            let key = WindowKey {
                producer: producer(batch),
                topic: proxy.topic(topic),
                partition: i32::try_from(batch.partition).unwrap(),
            };
            let arrival = Arrival {
                batch: identity(batch),
                transactional: false,
                acks: Acks::All,
                realm: proxy.realm,
                node,
                link,
                now,
                patient,
                old,
            };
            let mut verdict = proxy.ledger.judge(key, &arrival);
            proxy.spoil(batch, &mut verdict);
            let found = &self.conns[conn].session.readings.verdicts;
            if let Some((_, found)) = found.iter().find(|(place, _)| *place == batch.partition) {
                verdict = *found;
            }
            self.trace(|| {
                let Verdict { class, action, .. } = verdict;
                format!("hapax on {conn} of {batch}: {class:?}, {action:?}")
            });
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
        let time = self.time();
        self.conns[conn].session.producers.insert(batch.client);
        if let Some(known) = self.proxy(conn).ledger.producer(producer(batch), time) {
            let _ = known.bumps(Epoch(batch.epoch));
        }
    }

    fn commit(&mut self, conn: usize, parts: &[Judged]) -> usize {
        let before = self.conns[conn].session.tickets.len();
        for part in parts.iter().filter(|part| !part.acts()) {
            let proxy = self.proxy(conn);
            let ticket = proxy.ledger.commit(part.key, &part.arrival, &part.verdict);
            proxy.spoiled.note_sent(&part.batch);
            let sent = ticket.map(|ticket| Sent {
                ticket,
                batch: part.batch,
            });
            self.conns[conn].session.tickets.extend(sent);
            self.met(conn, &part.batch);
        }
        self.conns[conn].session.tickets.len() - before
    }

    fn answers(&mut self, conn: usize, topic: u32, parts: &[Judged]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for Judged {
            batch,
            key,
            arrival,
            verdict,
        } in parts
        {
            let proxy = self.proxy(conn);
            let (error, offset) = match verdict.action {
                Action::Forward | Action::Hold | Action::Resolve => continue,
                Action::Replay(ack) => {
                    proxy.counts.absorbed += 1;
                    proxy.ledger.absorbed(*key, arrival, verdict);
                    self.hold_to_log(topic, batch, ack.offset);
                    (0, ack.offset)
                }
                Action::Mirror(code) => {
                    proxy.counts.mirrored += 1;
                    proxy.ledger.mirrored(*key, arrival, verdict, code);
                    (code, -1)
                }
                Action::Defer => {
                    proxy.counts.deferred += 1;
                    proxy.ledger.deferred(*key, arrival, verdict);
                    (REQUEST_TIMED_OUT, -1)
                }
                Action::Refuse(code) => {
                    proxy.ledger.refused(*key, arrival, verdict);
                    (code, -1)
                }
            };
            answers.push(Answer {
                by_hapax: true,
                undue: error != 0 && self.partitions[batch.partition].would_take(batch),
                ..Answer::to(batch, error, offset)
            });
            self.met(conn, batch);
        }
        answers
    }

    /// A response has come: it may have to wait for the log.
    pub fn response_came(&mut self, conn: usize, response: Response) {
        let session = &mut self.conns[conn].session;
        if session.ended {
            return;
        }
        if session.readings.response.is_some() {
            session.readings.responses.push_back(response);
            return;
        }
        let contested = self.contested(conn, &response);
        if contested.is_empty() {
            self.deal_with(conn, response, &[]);
            return;
        }
        self.conns[conn].session.readings.response = Some((response, contested));
        self.begin_read(conn, false, |counts| counts.contested += 1);
    }

    /// The batches of which a 45 is not believed before the log was read.
    fn contested(&self, conn: usize, response: &Response) -> Vec<Wanted> {
        let session = &self.conns[conn].session;
        let (Some(owed), true) = (session.pipeline.front(), self.between.reads()) else {
            return Vec::new();
        };
        let refused = |sent: &&Sent| {
            let mut answers = response.answers.iter();
            answers.any(|a| a.partition == sent.batch.partition && a.error == OUT_OF_ORDER)
        };
        let ledger = &self.proxies[self.conns[conn].instance].ledger;
        let refused = session.tickets.iter().take(owed.tickets).filter(refused);
        refused
            .filter(|sent| ledger.contested(&sent.ticket))
            .map(|sent| {
                let ticket = &sent.ticket;
                let from = ledger.whereabouts(ticket.key, &ticket.batch);
                Wanted::new(sent.batch, ticket.key, None, from)
            })
            .collect()
    }

    /// `Session::produce_reply`; `shown` is what the log said of which batch.
    pub fn deal_with(&mut self, conn: usize, mut response: Response, shown: &[(usize, Shown)]) {
        let session = &mut self.conns[conn].session;
        let Some(owed) = session.pipeline.pop_front() else {
            self.wrong(format!("{response} was not asked for"));
            return;
        };
        let due: Vec<Sent> = session.tickets.drain(..owed.tickets).collect();
        if owed.request.id != response.request || owed.ready {
            self.wrong(format!("{response} answers {}", owed.request));
        }
        for answer in &mut response.answers {
            let of_it = shown.iter().find(|(place, _)| *place == answer.partition);
            let shown = of_it.map(|(_, shown)| *shown);
            self.settle(conn, owed.request.topic, &due, answer, shown);
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

    fn settle(
        &mut self,
        conn: usize,
        topic: u32,
        due: &[Sent],
        answer: &mut Answer,
        shown: Option<Shown>,
    ) {
        let now = self.time();
        let Some(sent) = due.iter().find(|s| s.batch.partition == answer.partition) else {
            return;
        };
        let offset = (answer.offset >= 0).then_some(answer.offset);
        let outcome = match shown {
            Some(Shown::At(offset)) => Outcome::Found(ack(offset)),
            Some(Shown::NotYet) => Outcome::Unknown { candidate: None },
            Some(Shown::Absent | Shown::Nothing) | None => {
                classify(answer.error, offset, -1, Some(0))
            }
        };
        let proxy = self.proxy(conn);
        let settled = proxy.ledger.settle(&sent.ticket, outcome, now);
        if answer.error == 0 {
            proxy.ledger.topics.confirm(sent.ticket.key.topic);
            proxy.spoiled.note_written(&sent.batch, answer.offset);
        }
        if let Some(code) = settled.shield {
            answer.error = code;
            answer.by_hapax = true;
        }
        match shown {
            Some(Shown::At(offset)) => {
                answer.error = 0;
                answer.offset = offset;
                answer.by_hapax = true;
                self.hold_to_log(topic, &sent.batch, offset);
            }
            Some(Shown::NotYet) => {
                answer.error = REQUEST_TIMED_OUT;
                answer.by_hapax = true;
            }
            Some(Shown::Absent | Shown::Nothing) | None => {}
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
        let done = session.client_eof && session.inbox.is_empty() && session.pipeline.is_empty();
        if done && !session.ended && session.orphan.is_none() {
            self.end_session(conn);
        }
    }

    fn become_orphan(&mut self, conn: usize) -> bool {
        let session = &mut self.conns[conn].session;
        let worth_it = session.pipeline.iter().any(|o| o.tickets > 0 && o.whole);
        if !worth_it {
            return false;
        }
        session.inbox.clear();
        session.held = None;
        session.readings.request = None;
        session.orphan = Some(self.now + ORPHAN_PATIENCE);
        self.at(ORPHAN_PATIENCE, Event::Look(conn));
        self.unqueue(conn);
        self.withhold(conn);
        // Answers of hapax's own have nobody to go to.
        self.answer_ready(conn);
        true
    }

    /// What has not left as a whole was never sent.
    fn withhold(&mut self, conn: usize) {
        let now = self.time();
        let session = &mut self.conns[conn].session;
        let mut withheld = Vec::new();
        for owed in std::mem::take(&mut session.pipeline) {
            let own: Vec<Sent> = session.tickets.drain(..owed.tickets).collect();
            if owed.whole {
                session.tickets.extend(own);
                session.pipeline.push_back(owed);
            } else {
                withheld.extend(own);
            }
        }
        for sent in withheld {
            let ledger = &self.proxy(conn).ledger;
            let _ = ledger.settle(&sent.ticket, Outcome::Withheld, now);
        }
    }

    pub fn upstream_gone(&mut self, conn: usize) {
        let session = &mut self.conns[conn].session;
        if session.readings.response.is_some() {
            session.readings.upstream_gone = true;
        } else if !session.ended {
            self.end_session(conn);
        }
    }

    /// `Session::settle_all`, and both sides are closed.
    fn end_session(&mut self, conn: usize) {
        let now = self.time();
        self.unqueue(conn);
        self.withhold(conn);
        let session = &mut self.conns[conn].session;
        let tickets = std::mem::take(&mut session.tickets);
        let met = std::mem::take(&mut session.producers);
        session.vanish();
        let proxy = self.proxy(conn);
        for sent in tickets {
            let outcome = proxy.unsettled(&sent.batch);
            let _ = proxy.ledger.settle(&sent.ticket, outcome, now);
        }
        let ttl = proxy.ledger.rules().ttl;
        for client in met {
            let id = ProducerId::from_wire(i64::try_from(client).unwrap()).unwrap();
            if let Some(known) = proxy.ledger.known_producer(id) {
                known.trouble(now, ttl);
            }
        }
        self.send(conn, TO_BROKER, Event::PeerGone(conn));
        self.send(conn, TO_CLIENT, Event::Closed(conn));
    }
}

fn producer(batch: &Batch) -> ProducerId {
    ProducerId::from_wire(i64::try_from(batch.client).unwrap()).unwrap()
}

/// The checksum covers what the batch is stamped with.
fn identity(batch: &Batch) -> BatchId {
    let stamp = [
        u64::from(batch.epoch.cast_unsigned()),
        u64::from(batch.first.cast_unsigned()),
        u64::from(batch.from),
        u64::from(batch.count),
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
