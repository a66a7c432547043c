//! Clients, connections, two brokers, and the time between them.
//!
//! Everything that happens is an event; events of one time happen in the
//! order in which they were thought of, so that a seed tells one story.

use super::broker::{Batch, NOT_ENOUGH_REPLICAS, Partition};
use super::client::{Client, Kind, REQUEST_TIMEOUT};
use super::proxy::{Proxy, Session};
use super::rng::{Rng, hash};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What stands between clients and brokers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// Nothing.
    Direct,
    /// hapax.
    Absorb,
    /// hapax that neither holds nor mirrors.
    NoGate,
    /// hapax that mirrors, but never holds.
    NoHold,
    /// hapax that remembers 32 batches.
    Wide,
    /// hapax with `shield45`.
    Shield,
    /// hapax that waits for no answer whose client is gone.
    NoOrphan,
    /// hapax that stops to wait for them once their batches have a new epoch.
    OrphanUntilBump,
    /// hapax that takes a batch that was sent for one that was acknowledged.
    SentAsAcked,
}

/// What goes wrong, in events or per thousand requests.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub kinds: &'static [Kind],
    pub partitions: usize,
    pub batches: u32,
    /// Answers lost with their connection.
    pub lost: u64,
    /// Connections on which no answer comes any more, while requests still go.
    pub stalled: u64,
    /// Batches appended, or answered, after the client gave up.
    pub slow: u64,
    /// Requests of which a part arrives.
    pub partial: u64,
    /// 19 (not appended), 7 and 20 (appended).
    pub errors: u64,
    pub restarts: u64,
    pub moves: u64,
    pub expiries: u64,
    /// Leaders that do not know yet that they are.
    pub fresh: bool,
}

/// What befalls one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    None,
    /// The answer is lost with the client's connection.
    LoseNear,
    /// The answer is lost with the broker's connection.
    LoseFar,
    /// From here on no answer reaches the client.
    StallNear,
    /// From here on no answer of the broker arrives.
    StallFar,
    SlowAppend(u64),
    SlowAnswer(u64),
    /// The client is cut off in the middle of it.
    Partial,
    /// It is answered with this error.
    Error(i16),
}

#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub parts: Vec<Batch>,
    pub fate: Fate,
    pub whole: bool,
    /// Large enough to be judged in parts.
    pub large: bool,
}

/// What is said of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub partition: usize,
    /// The epoch that the batch was sent with.
    pub epoch: i16,
    pub error: i16,
    pub offset: i64,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub request: u64,
    pub answers: Vec<Answer>,
    pub fate: Fate,
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
    Replicate(usize),
    Fault(Fault),
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Restart {
        broker: usize,
        down: u64,
        leads_on: bool,
    },
    Started(usize),
    Move(usize),
    Expire(usize),
}

/// One client connection to one broker, with what lies between.
pub struct Conn {
    pub client: usize,
    pub broker: usize,
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

pub struct World {
    pub now: u64,
    pub rng: Rng,
    seed: u64,
    pub scenario: Scenario,
    pub between: Between,
    pub proxy: Proxy,
    pub clients: Vec<Client>,
    pub conns: Vec<Conn>,
    pub partitions: Vec<Partition>,
    down: [bool; 2],
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    bodies: Vec<Option<Event>>,
    story: Option<VecDeque<String>>,
    /// What must never happen, as it was found.
    pub wrongs: Vec<String>,
}

/// No run is longer.
const END: u64 = 600_000;
const STORY: usize = 100_000;
/// Lines of it that a failure shows.
const SHOWN: usize = 120;

impl World {
    pub fn new(seed: u64, scenario: Scenario, between: Between, told: bool) -> Self {
        let mut world = Self {
            now: 0,
            rng: Rng::new(hash(&[seed, 1])),
            seed,
            scenario,
            between,
            proxy: Proxy::new(between),
            clients: Vec::new(),
            conns: Vec::new(),
            partitions: Vec::new(),
            down: [false; 2],
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            story: told.then(VecDeque::new),
            wrongs: Vec::new(),
        };
        world.people();
        world.faults();
        world
    }

    fn people(&mut self) {
        let mut rng = Rng::new(hash(&[self.seed, 2]));
        for _ in 0..self.scenario.partitions {
            let late = if self.scenario.fresh {
                rng.between(0, 120)
            } else {
                0
            };
            let mut partition = Partition::default();
            partition.leads_from = late;
            self.partitions.push(partition);
        }
        for (who, kind) in self.scenario.kinds.iter().enumerate() {
            let Scenario {
                partitions,
                batches,
                ..
            } = self.scenario;
            self.clients.push(Client::new(*kind, partitions, batches));
            self.at(rng.between(0, 50), Event::Pump(who));
        }
    }

    fn faults(&mut self) {
        let mut rng = Rng::new(hash(&[self.seed, 3]));
        let s = self.scenario;
        let horizon = if s.slow > 0 { 40_000 } else { 3_000 };
        for _ in 0..s.restarts {
            let fault = Fault::Restart {
                broker: usize::from(rng.chance(200)),
                down: rng.between(20, 400),
                leads_on: rng.chance(600),
            };
            self.at(rng.between(50, horizon), Event::Fault(fault));
        }
        for _ in 0..s.moves {
            let partition = usize::try_from(rng.between(0, s.partitions as u64)).unwrap();
            self.at(
                rng.between(50, horizon),
                Event::Fault(Fault::Move(partition)),
            );
        }
        for _ in 0..s.expiries {
            let partition = usize::try_from(rng.between(0, s.partitions as u64)).unwrap();
            self.at(
                rng.between(50, horizon),
                Event::Fault(Fault::Expire(partition)),
            );
        }
    }

    /// What befalls this attempt, whatever stands between.
    pub fn fate(&self, batch: Batch, attempt: u64) -> Fate {
        let place = (batch.client * 16 + batch.partition) as u64;
        let mut rng = Rng::new(hash(&[self.seed, place, u64::from(batch.number), attempt]));
        let s = self.scenario;
        let late = REQUEST_TIMEOUT + rng.between(0, 5_000);
        let mut draw = rng.between(0, 1000);
        for (odds, fate) in [
            (s.lost / 2, Fate::LoseNear),
            (s.lost / 2, Fate::LoseFar),
            (s.stalled / 2, Fate::StallNear),
            (s.stalled / 2, Fate::StallFar),
            (s.slow / 2, Fate::SlowAppend(late)),
            (s.slow / 2, Fate::SlowAnswer(late)),
            (s.partial, Fate::Partial),
            (s.errors / 2, Fate::Error(NOT_ENOUGH_REPLICAS)),
            (s.errors / 4, Fate::Error(7)),
            (s.errors / 4, Fate::Error(20)),
        ] {
            if draw < odds {
                return fate;
            }
            draw -= odds;
        }
        Fate::None
    }

    pub fn at(&mut self, after: u64, event: Event) {
        let body = self.bodies.len();
        self.bodies.push(Some(event));
        self.events
            .push(Reverse((self.now + after, body as u64, body)));
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
            story.push_back(format!("{now:>7} {}", line()));
            if story.len() > STORY {
                story.pop_front();
            }
        }
    }

    /// The last of what happened, to one client's partition if one is given.
    pub fn story(&self, of: Option<(usize, usize)>) -> String {
        let about = |line: &&String| {
            of.is_none_or(|(client, partition)| {
                line.contains(&format!("client: {client}, partition: {partition},"))
                    || line.contains(&format!("client {client} gives up"))
                    || line.contains("Fault")
                    || (line.contains("on connection") && line.contains("broker"))
            })
        };
        let lines: Vec<_> = self.story.iter().flatten().filter(about).cloned().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    pub fn wrong(&mut self, what: String) {
        self.trace(|| format!("WRONG {what}"));
        self.wrongs.push(what);
    }

    pub fn run(&mut self) {
        while let Some(Reverse((time, _, body))) = self.events.pop() {
            self.now = time;
            if time > END {
                self.wrong("no end".to_owned());
                return;
            }
            let event = self.bodies[body].take().expect("an event happens once");
            if !matches!(event, Event::Pump(_) | Event::Look(_)) {
                self.trace(|| format!("{event:?}"));
            }
            self.happen(event);
            while let Some(session) = self.proxy.woken() {
                self.at(0, Event::Look(session));
            }
            if self.wrongs.len() > 3 {
                return;
            }
        }
        for conn in 0..self.conns.len() {
            if self.conns[conn].session.waits() {
                self.wrong(format!("session {conn} waits for ever"));
            }
        }
        for who in 0..self.clients.len() {
            if !self.clients[who].done() {
                self.wrong(format!("client {who} waits for ever"));
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
            Event::Replicate(partition) => self.partitions[partition].replicate(),
            Event::Fault(fault) => self.fault(fault),
        }
    }

    // The client's end.

    pub fn connect(&mut self, client: usize, broker: usize) -> usize {
        let conn = self.conns.len();
        let session = self.proxy.session(conn);
        let up = !self.down[broker];
        self.conns.push(Conn {
            client,
            broker,
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
        if !up {
            self.broker_hangs_up(conn);
        }
        conn
    }

    pub fn client_sends(&mut self, conn: usize, request: Request) {
        let now = self.now;
        self.conns[conn].asked.push_back((request.id, now));
        let partial = !request.whole;
        if self.between == Between::Direct {
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
        if self.between == Between::Direct {
            self.send(conn, TO_BROKER, Event::PeerGone(conn));
        } else {
            self.send(conn, TO_PROXY, Event::ClientGone(conn, fin));
        }
    }

    /// The network cuts the client off.
    pub fn cut_client(&mut self, conn: usize) {
        self.send(conn, TO_CLIENT, Event::Closed(conn));
        if self.between == Between::Direct {
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
        let mut answers = Vec::new();
        for batch in &request.parts {
            let partition = &mut self.partitions[batch.partition];
            let (mut error, mut offset) = match request.fate {
                Fate::Error(NOT_ENOUGH_REPLICAS) => (NOT_ENOUGH_REPLICAS, -1),
                _ => partition.append(broker, batch, self.now),
            };
            if let (0, Fate::Error(code)) = (error, request.fate) {
                error = code;
                let later = self.rng.between(1, 50);
                self.at(later, Event::Replicate(batch.partition));
            }
            if error != 0 && !matches!(error, 7 | 20) {
                offset = -1;
            }
            answers.push(Answer {
                partition: batch.partition,
                epoch: batch.epoch,
                error,
                offset,
            });
        }
        self.trace(|| format!("broker {broker} on connection {conn}: {answers:?}"));
        if let Some((_, kept)) = &mut self.conns[conn].serving {
            *kept = answers;
        }
        let wait = match request.fate {
            Fate::SlowAnswer(time) => time,
            _ => self.rng.between(0, 4),
        };
        self.at(wait, Event::Respond(conn));
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
            let partition = &mut self.partitions[answer.partition];
            let there = partition
                .log
                .iter()
                .any(|(o, b)| *o == answer.offset && b == batch);
            if answer.error != 0 {
                continue;
            }
            if partition.leader != broker || !there {
                // It lost its leadership while it waited for the follower.
                answer.error = super::broker::NOT_LEADER;
            } else {
                partition.replicate();
            }
        }
        let response = Response {
            request: request.id,
            answers,
            fate: request.fate,
        };
        self.conns[conn].stalled_far |= response.fate == Fate::StallFar;
        let stalled = self.conns[conn].stalled_far
            || (self.between == Between::Direct && response.fate == Fate::StallNear);
        self.conns[conn].stalled_far = stalled;
        if !self.conns[conn].broker_open {
            // The first answer that cannot be written shows it.
            if self.rng.chance(500) {
                self.conns[conn].queue.clear();
            }
        } else if stalled {
        } else if response.fate == Fate::LoseFar {
            self.broker_hangs_up(conn);
        } else if self.between == Between::Direct {
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
        if self.between == Between::Direct {
            self.send(conn, TO_CLIENT, Event::Closed(conn));
        } else {
            self.send(conn, FROM_BROKER, Event::UpstreamGone(conn));
        }
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Restart { broker, .. } if self.down[broker] => {}
            Fault::Restart {
                broker,
                down,
                leads_on,
            } => {
                self.down[broker] = true;
                for conn in 0..self.conns.len() {
                    if self.conns[conn].broker == broker && self.conns[conn].broker_open {
                        self.broker_hangs_up(conn);
                    }
                }
                for partition in &mut self.partitions {
                    if partition.leader == broker && !leads_on {
                        partition.elect_other();
                    }
                }
                self.at(down, Event::Fault(Fault::Started(broker)));
            }
            Fault::Started(broker) => {
                self.down[broker] = false;
                for partition in &mut self.partitions {
                    partition.restarted(broker);
                }
            }
            Fault::Move(partition) => {
                if !self.down[1 - self.partitions[partition].leader] {
                    let late = self.now + self.rng.between(0, 60);
                    self.partitions[partition].elect_other();
                    self.partitions[partition].leads_from = late;
                }
            }
            Fault::Expire(partition) => self.partitions[partition].expire(),
        }
    }
}
