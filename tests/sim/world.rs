//! Clients, connections, two brokers, hapax, and the time between them.
//!
//! Everything that happens is an event; events of one time happen in the
//! order in which they were thought of, so that a seed tells one story.

use super::broker::{Batch, NOT_ENOUGH_REPLICAS, NOT_LEADER, Partition};
use super::broker::{TOO_FEW_AFTER_APPEND, TOO_LARGE, UNKNOWN_TOPIC_ID};
use super::clients::Client;
use super::faults::{Fate, Fault, Scenario};
use super::mutants::Between;
use super::proxy::{Proxy, Session, Start};
use super::rng::{Rng, hash};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;

#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    /// The incarnation of the topic that its client knows.
    pub topic: u32,
    pub parts: Vec<Batch>,
    pub fate: Fate,
    /// What it allows the broker.
    pub timeout: u64,
    pub whole: bool,
    /// Large enough to be judged in parts.
    pub large: bool,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.id)?;
        for b in &self.parts {
            write!(f, ", {b}")?;
        }
        if self.fate != Fate::None {
            write!(f, ", {:?}", self.fate)?;
        }
        Ok(())
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            partition,
            from,
            count,
            epoch,
            first,
        } = self;
        let to = from + count - 1;
        write!(
            f,
            "c{client}p{partition} records {from}-{to} at {epoch}:{first}"
        )
    }
}

/// What is said of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub client: usize,
    pub partition: usize,
    /// What the batch was sent with.
    pub epoch: i16,
    pub first: i32,
    pub error: i16,
    pub offset: i64,
    pub by_hapax: bool,
    /// It is an error of hapax's own, and the broker would have taken the batch.
    pub undue: bool,
}

impl Answer {
    pub fn to(batch: &Batch, error: i16, offset: i64) -> Self {
        Self {
            client: batch.client,
            partition: batch.partition,
            epoch: batch.epoch,
            first: batch.first,
            error,
            offset,
            by_hapax: false,
            undue: false,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client, partition, ..
        } = self;
        write!(f, "c{client}p{partition} {}:{}", self.epoch, self.first)?;
        match self.error {
            0 => write!(f, " is at offset {}", self.offset)?,
            error => write!(f, " got {error} (offset {})", self.offset)?,
        }
        f.write_str(if self.by_hapax { " of hapax" } else { "" })
    }
}

#[derive(Clone, Debug)]
pub struct Response {
    pub request: u64,
    pub answers: Vec<Answer>,
    pub fate: Fate,
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "response {}", self.request)?;
        self.answers.iter().try_for_each(|a| write!(f, ", {a}"))
    }
}

#[derive(Debug)]
pub enum Event {
    Pump(usize),
    ToProxy(usize, Request),
    ToBroker(usize, Request),
    Append(usize),
    Respond(usize),
    FromBroker(usize, Response),
    ToClient(usize, Response),
    /// The proxy learns that the client is gone; `bool`: with a FIN.
    ClientGone(usize, bool),
    UpstreamGone(usize),
    /// The broker learns that its peer is gone.
    PeerGone(usize),
    /// The client learns that its connection is gone.
    Closed(usize),
    Look(usize),
    /// The log is read for a session's request, or for its response.
    Read(usize, bool),
    ReadDone(usize, bool),
    Replicate(usize),
    Fault(Fault),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToProxy(conn, request) => write!(f, "hapax on {conn} gets {request}"),
            Self::ToBroker(conn, request) => write!(f, "broker on {conn} gets {request}"),
            Self::FromBroker(conn, response) => write!(f, "hapax on {conn} gets {response}"),
            Self::ToClient(conn, response) => write!(f, "client on {conn} gets {response}"),
            event => write!(f, "{event:?}"),
        }
    }
}

/// One client connection to one broker, with what lies between.
pub struct Conn {
    pub client: usize,
    pub broker: usize,
    /// The instance of hapax that it goes through.
    pub instance: usize,
    pub client_open: bool,
    pub broker_open: bool,
    /// What the client waits for, and since when.
    pub asked: VecDeque<(u64, u64)>,
    /// When the newest message of each direction arrives.
    arrivals: [u64; 4],
    queue: VecDeque<Request>,
    /// Answers are lost on the way to hapax, or to the client.
    pub stalled_far: bool,
    pub stalled_near: bool,
    serving: Option<(Request, Vec<Answer>)>,
    pub session: Session,
}

pub const TO_PROXY: usize = 0;
pub const TO_BROKER: usize = 1;
pub const FROM_BROKER: usize = 2;
pub const TO_CLIENT: usize = 3;

/// An event and when it happens; `order` is unique.
struct Due {
    time: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub seed: u64,
    pub scenario: Scenario,
    pub between: Between,
    pub proxies: Vec<Proxy>,
    pub clients: Vec<Client>,
    pub conns: Vec<Conn>,
    pub partitions: Vec<Partition>,
    /// The topic's incarnation.
    pub topic: u32,
    down: [bool; 2],
    /// Instances of hapax that do not run; without it, paths that are cut.
    paths_down: Vec<bool>,
    /// When the last client was done.
    pub done_at: u64,
    events: BinaryHeap<Reverse<Due>>,
    ordered: u64,
    /// How much has happened.
    pub steps: u64,
    kill_at: Option<(u64, Fault)>,
    story: Option<Vec<String>>,
    /// What must never happen, as it was found.
    pub wrongs: Vec<String>,
    /// Successes by hapax for what an unclean election lost.
    pub outlived: u64,
    /// Batches that sarama gave up after errors of hapax's own, which the
    /// broker would have taken.
    pub misled: u64,
}

/// No run is longer.
pub const END: u64 = 1_500_000;

impl World {
    pub fn new(seed: u64, scenario: Scenario, between: Between, told: bool) -> Self {
        let mut world = Self {
            now: 0,
            rng: Rng::new(hash(&[seed, 1])),
            seed,
            scenario,
            between,
            proxies: Vec::new(),
            clients: Vec::new(),
            conns: Vec::new(),
            partitions: Vec::new(),
            topic: 0,
            down: [false; 2],
            paths_down: vec![false; scenario.instances],
            done_at: 0,
            events: BinaryHeap::new(),
            ordered: 0,
            steps: 0,
            kill_at: scenario.kill_at(seed),
            story: told.then(Vec::new),
            wrongs: Vec::new(),
            outlived: 0,
            misled: 0,
        };
        if between != Between::Direct {
            world.proxies = (0..scenario.instances)
                .map(|_| Proxy::new(between))
                .collect();
        }
        world.people();
        for (time, fault) in scenario.faults(seed) {
            world.at(time, Event::Fault(fault));
        }
        world
    }

    fn people(&mut self) {
        let mut rng = Rng::new(hash(&[self.seed, 2]));
        let s = self.scenario;
        for _ in 0..s.partitions {
            let mut partition = Partition::default();
            if s.fresh {
                partition.leads_from = rng.between(0, 120);
            }
            self.partitions.push(partition);
        }
        // Bursts of three, and a batch of a lane in this time.
        let pace = (3 * s.horizon / u64::from(s.batches)).max(2);
        for (who, kind) in s.kinds.iter().enumerate() {
            let instance = who % s.instances;
            let client = Client::new(*kind, s.partitions, s.batches, pace, instance);
            self.clients.push(client);
            self.rouse(who, rng.between(0, 50));
        }
    }

    pub fn at(&mut self, after: u64, event: Event) {
        self.ordered += 1;
        self.events.push(Reverse(Due {
            time: self.now + after,
            order: self.ordered,
            event,
        }));
    }

    /// Sends a message after those that went the same way before it.
    pub fn send(&mut self, conn: usize, way: usize, event: Event) {
        let delay = self.rng.between(0, 4);
        let arrival = (self.now + delay).max(self.conns[conn].arrivals[way]);
        self.conns[conn].arrivals[way] = arrival;
        self.at(arrival - self.now, event);
    }

    pub fn trace(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            story.push(format!("{now:>7} {}", line()));
        }
    }

    /// What happened, to one client's partition if one is given.
    pub fn story(&self, of: Option<(usize, usize)>) -> String {
        let about = |line: &&String| {
            of.is_none_or(|(client, partition)| {
                line.contains(&format!("c{client}p{partition} "))
                    || line.contains(&format!("client {client} "))
                    || line.contains("Fault")
                    || line.contains("WRONG")
            })
        };
        let lines: Vec<_> = self.story.iter().flatten().filter(about).cloned().collect();
        lines.join("\n")
    }

    pub fn wrong(&mut self, what: String) {
        self.trace(|| format!("WRONG {what}"));
        self.wrongs.push(what);
    }

    pub fn run(&mut self) {
        while let Some(Reverse(due)) = self.events.pop() {
            self.now = due.time;
            if due.time > END {
                break;
            }
            self.steps += 1;
            if let Some((step, fault)) = self.kill_at
                && self.steps == step
            {
                self.trace(|| format!("{:?}", Event::Fault(fault)));
                self.fault(fault);
            }
            if !matches!(due.event, Event::Pump(_) | Event::Look(_)) {
                self.trace(|| due.event.to_string());
            }
            self.happen(due.event);
            for instance in 0..self.proxies.len() {
                while let Some(session) = self.proxies[instance].woken() {
                    self.at(0, Event::Look(session));
                }
            }
            if self.wrongs.len() > 3 {
                return;
            }
        }
        for conn in 0..self.conns.len() {
            if self.now <= END && self.conns[conn].session.waits() {
                self.wrong(format!("session {conn} waits for ever"));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Pump(who) => self.pump(who),
            Event::ToProxy(conn, request) => self.request_came(conn, request),
            Event::ToBroker(conn, request) => {
                if self.conns[conn].broker_open {
                    self.conns[conn].queue.push_back(request);
                    self.serve(conn);
                }
            }
            Event::Append(conn) => self.append(conn),
            Event::Respond(conn) => self.respond(conn),
            Event::FromBroker(conn, response) => self.response_came(conn, response),
            Event::ToClient(conn, response) => self.client_hears(conn, &response),
            Event::ClientGone(conn, fin) => self.client_gone(conn, fin),
            Event::UpstreamGone(conn) => self.upstream_gone(conn),
            Event::PeerGone(conn) => self.conns[conn].broker_open = false,
            Event::Closed(conn) => {
                let open = std::mem::replace(&mut self.conns[conn].client_open, false);
                if open {
                    self.lost_connection(self.conns[conn].client, conn);
                }
            }
            Event::Look(conn) => self.look(conn),
            Event::Read(conn, for_request) => self.read(conn, for_request),
            Event::ReadDone(conn, for_request) => self.read_done(conn, for_request),
            Event::Replicate(partition) => self.partitions[partition].replicate(),
            Event::Fault(fault) => self.fault(fault),
        }
    }

    pub fn is_down(&self, broker: usize) -> bool {
        self.down[broker]
    }

    fn direct(&self) -> bool {
        self.between == Between::Direct
    }

    // The client's end.

    pub fn connect(&mut self, client: usize, broker: usize, instance: usize) -> usize {
        let conn = self.conns.len();
        let session = match self.proxies.get(instance) {
            Some(proxy) => proxy.session(conn),
            None => Session::none(),
        };
        let up = !self.down[broker];
        self.conns.push(Conn {
            client,
            broker,
            instance,
            client_open: true,
            broker_open: up,
            asked: VecDeque::new(),
            arrivals: [0; 4],
            queue: VecDeque::new(),
            stalled_far: false,
            stalled_near: false,
            serving: None,
            session,
        });
        if self.paths_down[instance] {
            self.conns[conn].session.vanish();
            self.conns[conn].broker_open = false;
            self.send(conn, TO_CLIENT, Event::Closed(conn));
        } else if !up {
            self.broker_hangs_up(conn);
        }
        conn
    }

    pub fn client_sends(&mut self, conn: usize, request: Request) {
        let now = self.now;
        self.conns[conn].asked.push_back((request.id, now));
        let partial = !request.whole;
        if self.direct() {
            if !partial {
                self.send(conn, TO_BROKER, Event::ToBroker(conn, request));
            }
        } else {
            self.send(conn, TO_PROXY, Event::ToProxy(conn, request));
        }
        if partial {
            self.cut_client(conn);
        }
    }

    /// The client closes: with a FIN, or, where bytes come that it did not
    /// read, as if it had been cut off.
    pub fn client_closes(&mut self, conn: usize) {
        self.conns[conn].client_open = false;
        let fin = self.rng.chance(500);
        if self.direct() {
            self.send(conn, TO_BROKER, Event::PeerGone(conn));
        } else {
            self.send(conn, TO_PROXY, Event::ClientGone(conn, fin));
        }
    }

    /// The network cuts the client off.
    pub fn cut_client(&mut self, conn: usize) {
        self.send(conn, TO_CLIENT, Event::Closed(conn));
        if self.direct() {
            self.send(conn, TO_BROKER, Event::PeerGone(conn));
        } else {
            self.send(conn, TO_PROXY, Event::ClientGone(conn, false));
        }
    }

    fn client_hears(&mut self, conn: usize, response: &Response) {
        if !self.conns[conn].client_open {
            return;
        }
        let asked = self.conns[conn].asked.pop_front();
        if asked.map(|(id, _)| id) != Some(response.request) {
            self.wrong(format!("{response:?} answers {asked:?}"));
        }
        let who = self.conns[conn].client;
        self.answered(who, conn, response.request, &response.answers);
    }

    // The broker's end.

    fn serve(&mut self, conn: usize) {
        if self.conns[conn].serving.is_some() {
            return;
        }
        let Some(request) = self.conns[conn].queue.pop_front() else {
            return;
        };
        let work = match request.fate {
            Fate::SlowAppend(time) => time,
            _ => self.rng.between(1, 5),
        };
        self.conns[conn].serving = Some((request, Vec::new()));
        self.at(work, Event::Append(conn));
    }

    fn append(&mut self, conn: usize) {
        let broker = self.conns[conn].broker;
        let Some((request, _)) = &self.conns[conn].serving else {
            return;
        };
        if self.down[broker] {
            self.conns[conn].serving = None;
            return;
        }
        let request = request.clone();
        let answers: Vec<Answer> = (request.parts.iter())
            .map(|batch| self.append_one(broker, &request, batch))
            .collect();
        self.trace(|| {
            let said: Vec<_> = answers.iter().map(Answer::to_string).collect();
            format!("broker {broker} on {conn}: {}", said.join(", "))
        });
        if let Some((_, kept)) = &mut self.conns[conn].serving {
            *kept = answers;
        }
        let wait = match request.fate {
            Fate::SlowAnswer(time) => time,
            _ => self.rng.between(0, 4),
        };
        self.at(wait, Event::Respond(conn));
    }

    fn append_one(&mut self, broker: usize, request: &Request, batch: &Batch) -> Answer {
        let none = |error| Answer::to(batch, error, -1);
        let alone = self.scenario.min_isr && self.down[1 - broker];
        let partition = &mut self.partitions[batch.partition];
        if request.topic != self.topic {
            return none(UNKNOWN_TOPIC_ID);
        }
        match request.fate {
            Fate::Error(NOT_ENOUGH_REPLICAS) => return none(NOT_ENOUGH_REPLICAS),
            _ if self.scenario.too_large(self.seed, batch) => return none(TOO_LARGE),
            _ if alone && broker == partition.leader => return none(NOT_ENOUGH_REPLICAS),
            _ => {}
        }
        let (error, offset) = partition.append(broker, batch, self.now);
        match (error, request.fate) {
            (0, Fate::Error(code @ (7 | TOO_FEW_AFTER_APPEND))) => {
                let later = self.rng.between(1, 50);
                self.at(later, Event::Replicate(batch.partition));
                Answer::to(batch, code, offset)
            }
            _ => Answer::to(batch, error, offset),
        }
    }

    /// What became of a batch that was appended, once it could have been
    /// replicated.
    fn replicated(&mut self, broker: usize, request: &Request, batch: &Batch, answer: &mut Answer) {
        if answer.error != 0 {
            return;
        }
        let alone = self.scenario.min_isr && self.down[1 - broker];
        let partition = &mut self.partitions[answer.partition];
        let there = request.topic == self.topic && partition.has(answer.offset, batch);
        if partition.leader != broker || !there {
            // It lost its leadership while it waited for the follower.
            answer.error = NOT_LEADER;
        } else if alone {
            answer.error = TOO_FEW_AFTER_APPEND;
        } else {
            partition.replicate();
        }
    }

    fn respond(&mut self, conn: usize) {
        let broker = self.conns[conn].broker;
        let Some((request, mut answers)) = self.conns[conn].serving.take() else {
            return;
        };
        if self.down[broker] {
            return;
        }
        for (answer, batch) in answers.iter_mut().zip(&request.parts) {
            self.replicated(broker, &request, batch, answer);
        }
        let response = Response {
            request: request.id,
            answers,
            fate: request.fate,
        };
        let direct = self.direct();
        self.conns[conn].stalled_far |=
            response.fate == Fate::StallFar || (direct && response.fate == Fate::StallNear);
        if !self.conns[conn].broker_open {
            // The first answer that cannot be written shows it.
            if self.rng.chance(500) {
                self.conns[conn].queue.clear();
            }
        } else if self.conns[conn].stalled_far {
        } else if response.fate == Fate::LoseFar {
            self.broker_hangs_up(conn);
        } else if direct {
            if response.fate == Fate::LoseNear {
                self.cut_client(conn);
            } else {
                self.send(conn, TO_CLIENT, Event::ToClient(conn, response));
            }
        } else {
            self.send(conn, FROM_BROKER, Event::FromBroker(conn, response));
        }
        self.serve(conn);
    }

    fn broker_hangs_up(&mut self, conn: usize) {
        self.conns[conn].broker_open = false;
        self.conns[conn].queue.clear();
        if self.direct() {
            self.send(conn, TO_CLIENT, Event::Closed(conn));
        } else {
            self.send(conn, FROM_BROKER, Event::UpstreamGone(conn));
        }
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Stop {
                broker,
                down,
                clean,
                leads_on,
            } => {
                if !self.down[broker] {
                    self.stop_broker(broker, clean, leads_on);
                    self.at(down, Event::Fault(Fault::Started(broker)));
                }
            }
            Fault::Started(broker) => {
                self.down[broker] = false;
                for partition in &mut self.partitions {
                    partition.started(broker);
                }
            }
            Fault::Move(partition) => {
                if !self.down[1 - self.partitions[partition].leader] {
                    let late = self.now + self.rng.between(0, 60);
                    self.partitions[partition].elect_other();
                    self.partitions[partition].leads_from = late;
                }
            }
            Fault::Roll(partition) => self.partitions[partition].roll(),
            Fault::Expire(partition) => self.partitions[partition].expire(),
            Fault::Unclean(partition) => {
                let lacks = self.rng.below(4);
                self.partitions[partition].elect_unclean(lacks);
            }
            Fault::Recreate => {
                self.topic += 1;
                for partition in &mut self.partitions {
                    partition.recreate();
                }
            }
            Fault::StopHapax { instance, down } => self.stop_hapax(instance, down),
            Fault::HapaxStarted(instance) => {
                self.paths_down[instance] = false;
            }
            Fault::Snapshot => {
                let time = self.time();
                self.proxies.iter_mut().for_each(|p| p.snapshot(time));
            }
            Fault::KillClient(who) => self.kill_client(who),
        }
    }

    fn stop_broker(&mut self, broker: usize, clean: bool, leads_on: bool) {
        self.down[broker] = true;
        for conn in 0..self.conns.len() {
            if self.conns[conn].broker == broker && self.conns[conn].broker_open {
                self.broker_hangs_up(conn);
            }
        }
        for partition in &mut self.partitions {
            partition.stopped(broker, clean);
            if partition.leader == broker && !leads_on && !self.down[1 - broker] {
                partition.elect_other();
            }
        }
    }

    /// Its connections end as a process's do: what it wrote arrives. Without
    /// hapax the same connections are cut, so that runs can be compared.
    fn stop_hapax(&mut self, instance: usize, down: u64) {
        if std::mem::replace(&mut self.paths_down[instance], true) {
            return;
        }
        let starts = [Start::Empty, Start::Oldest, Start::Newest];
        let start = starts[self.rng.below(3)];
        let time = self.time();
        if let Some(proxy) = self.proxies.get_mut(instance) {
            proxy.restart(start, time);
        }
        for conn in 0..self.conns.len() {
            let there = &self.conns[conn];
            let gone = !there.client_open && there.session.ended();
            if there.instance != instance || gone {
                continue;
            }
            self.conns[conn].session.vanish();
            self.send(conn, TO_BROKER, Event::PeerGone(conn));
            self.send(conn, TO_CLIENT, Event::Closed(conn));
        }
        self.at(down, Event::Fault(Fault::HapaxStarted(instance)));
    }

    /// Its connections end with a reset, or nobody is told that they did.
    fn kill_client(&mut self, who: usize) {
        self.clients[who].killed = true;
        let told = self.rng.chance(500);
        for conn in 0..self.conns.len() {
            if self.conns[conn].client != who || !self.conns[conn].client_open {
                continue;
            }
            if told {
                self.client_closes(conn);
            }
            self.conns[conn].client_open = false;
        }
    }
}
