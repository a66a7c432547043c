//! Idempotent producers, as far as order, retries and epochs go (SEMANTICS 2.2
//! and 3): what they share. How each of them differs stands in a file of its own.

mod franz;
mod java;
mod librdkafka;
mod sarama;

use super::broker::{Batch, NOT_LEADER, OUT_OF_ORDER, TOO_LARGE, UNKNOWN_TOPIC_ID, advance};
use super::faults::Fate;
use super::world::{Answer, Request, World};
use std::collections::VecDeque;

pub const IN_FLIGHT_MAX: usize = 5;
/// Batches of a lane that an application makes ahead.
const AHEAD: usize = IN_FLIGHT_MAX + 2;
const BATCH_RECORDS_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Five in flight; after an error the lowest sequence goes alone; epochs
    /// of its own making, partition by partition.
    Java,
    /// Java with short timeouts: it gives batches up that may still be executing.
    Hasty,
    /// After an error all comes back before anything goes again; one epoch
    /// for all partitions; dies of a 45 for its next batch.
    Librdkafka,
    /// More than one in flight only after a success; only the answer to the
    /// first batch counts.
    Franz,
    /// One in flight, three retries; what fails is an error and a new epoch.
    Sarama,
}

impl Kind {
    /// What a request allows the broker.
    pub fn timeout(self) -> u64 {
        match self {
            Self::Java | Self::Librdkafka => 30_000,
            Self::Franz | Self::Sarama => 10_000,
            Self::Hasty => 8_000,
        }
    }

    /// How long the client waits for an answer.
    pub fn patience(self) -> u64 {
        match self {
            Self::Java | Self::Librdkafka | Self::Sarama => 30_000,
            Self::Franz => 20_000,
            Self::Hasty => 8_000,
        }
    }

    /// How long a batch may take.
    fn delivery(self) -> Option<u64> {
        match self {
            Self::Java => Some(120_000),
            Self::Hasty => Some(12_000),
            Self::Librdkafka => Some(300_000),
            Self::Franz | Self::Sarama => None,
        }
    }

    /// Whether it splits a batch that is too large.
    pub fn splits(self) -> bool {
        matches!(self, Self::Java | Self::Hasty)
    }

    fn in_flight_max(self) -> usize {
        match self {
            Self::Sarama => 1,
            _ => IN_FLIGHT_MAX,
        }
    }
}

/// A batch that has no final answer.
#[derive(Clone, Copy)]
pub struct Item {
    pub batch: Batch,
    /// It has a sequence, which it keeps until its epoch ends.
    pub stamped: bool,
    pub attempts: u64,
    /// The request it is in, if it is on its way.
    pub request: Option<(usize, u64)>,
    not_before: u64,
    born: u64,
    /// Java: it has another sequence than it was sent with.
    reset: bool,
    /// Errors that count against its retries, and those of them that hapax
    /// made up for a batch that the broker would have taken.
    retries: u32,
    retries_undue: u32,
}

/// What the application was told of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub batch: Batch,
    /// Where it is said to stand; librdkafka infers some successes.
    pub offset: Option<i64>,
}

/// One client on one partition.
pub struct Lane {
    pub partition: usize,
    pub items: VecDeque<Item>,
    made: u32,
    next_record: u32,
    pub epoch: i16,
    pub next_first: i32,
    /// What follows the newest acknowledged batch of the epoch.
    pub acked_end: i32,
    /// librdkafka: waits until nothing is on its way.
    draining: bool,
    /// Java: a batch that was sent has been given up.
    unresolved: bool,
    /// franz-go: a success came from the leader, and no error since.
    fine: bool,
    /// franz-go: the next first batch begins a new epoch.
    begin_anew: bool,
    /// The leader, and the topic's incarnation, as far as is known.
    leader: usize,
    topic: u32,
    learn_at: u64,
    next_make: u64,
    /// What the application was told.
    pub acked: Vec<Told>,
    pub given_up: Vec<Batch>,
}

impl Lane {
    fn new(partition: usize) -> Self {
        Self {
            partition,
            items: VecDeque::new(),
            made: 0,
            next_record: 0,
            epoch: 0,
            next_first: 0,
            acked_end: 0,
            draining: false,
            unresolved: false,
            fine: false,
            begin_anew: false,
            leader: 0,
            topic: 0,
            learn_at: u64::MAX,
            next_make: 0,
            acked: Vec::new(),
            given_up: Vec::new(),
        }
    }

    pub fn idle(&self) -> bool {
        self.items.iter().all(|item| item.request.is_none())
    }

    /// Records that the application made.
    pub fn records(&self) -> u32 {
        self.next_record
    }

    fn on_their_way(&self) -> usize {
        self.items.iter().filter(|i| i.request.is_some()).count()
    }

    /// Gives a batch its place in the sequence.
    fn stamp(&mut self, at: usize) {
        let item = &mut self.items[at];
        item.stamped = true;
        item.batch.epoch = self.epoch;
        item.batch.first = self.next_first;
        self.next_first = advance(self.next_first, item.batch.count);
    }

    /// A new epoch: what has a sequence gets another one, from 0.
    fn restamp(&mut self, epoch: i16) {
        self.epoch = epoch;
        self.next_first = 0;
        self.acked_end = 0;
        self.unresolved = false;
        for at in 0..self.items.len() {
            if self.items[at].stamped {
                self.stamp(at);
                self.items[at].reset = true;
            }
        }
    }

    fn give_up(&mut self, at: usize) -> Item {
        let item = self.items.remove(at).expect("it was looked at");
        self.given_up.push(item.batch);
        item
    }
}

pub struct Client {
    pub kind: Kind,
    pub lanes: Vec<Lane>,
    conns: [Option<usize>; 2],
    connect_at: [u64; 2],
    instance: usize,
    pub epoch: i16,
    /// librdkafka: a new epoch as soon as nothing is on its way.
    bump: bool,
    /// It died of an error.
    pub dead: bool,
    /// Its process was killed.
    pub killed: bool,
    batches: u32,
    requests: u64,
    /// Epochs that it began.
    pub bumps: u64,
    pace: u64,
    wake_at: u64,
}

impl Client {
    pub fn new(kind: Kind, partitions: usize, batches: u32, pace: u64, instance: usize) -> Self {
        Self {
            kind,
            lanes: (0..partitions).map(Lane::new).collect(),
            conns: [None; 2],
            connect_at: [0; 2],
            instance,
            epoch: 0,
            bump: false,
            dead: false,
            killed: false,
            batches,
            requests: 0,
            bumps: 0,
            pace,
            wake_at: u64::MAX,
        }
    }

    pub fn done(&self) -> bool {
        let all = |lane: &Lane| lane.made == self.batches && lane.items.is_empty();
        self.dead || self.killed || self.lanes.iter().all(all)
    }

    fn in_flight(&self, conn: usize) -> usize {
        let mut requests: Vec<u64> = Vec::new();
        for item in self.lanes.iter().flat_map(|lane| &lane.items) {
            if let Some((c, request)) = item.request
                && c == conn
                && !requests.contains(&request)
            {
                requests.push(request);
            }
        }
        requests.len()
    }

    fn new_epoch(&mut self) -> i16 {
        self.bumps += 1;
        self.epoch += 1;
        self.epoch
    }

    /// It never sends again, and tells its application so.
    fn die(&mut self) {
        self.dead = true;
        for lane in &mut self.lanes {
            while !lane.items.is_empty() {
                lane.give_up(0);
            }
        }
    }

    fn give_up_late(&mut self, now: u64) {
        let Some(patience) = self.kind.delivery() else {
            return;
        };
        for lane in &mut self.lanes {
            while lane.items.front().is_some_and(|i| i.born + patience < now) {
                let item = lane.give_up(0);
                lane.unresolved |= item.attempts > 0;
            }
        }
    }

    /// The batch of a lane that may leave now.
    fn ready(&self, lane: &Lane, now: u64) -> Option<usize> {
        let at = lane.items.iter().position(|item| item.request.is_none())?;
        if lane.on_their_way() >= IN_FLIGHT_MAX || lane.items[at].not_before > now {
            return None;
        }
        let may = match self.kind {
            Kind::Java | Kind::Hasty => java::may_leave(self, lane, at),
            Kind::Librdkafka => librdkafka::may_leave(self, lane),
            Kind::Franz => franz::may_leave(lane, at),
            Kind::Sarama => at == 0,
        };
        may.then_some(at)
    }

    /// Epochs that had to wait until nothing is on its way.
    fn settle(&mut self) {
        match self.kind {
            Kind::Java | Kind::Hasty => java::settle(self),
            Kind::Librdkafka => librdkafka::settle(self),
            Kind::Franz | Kind::Sarama => {}
        }
    }

    /// When it has something to do of its own accord.
    fn next_look(&self, now: u64, oldest_asked: Option<u64>) -> u64 {
        let mut next = oldest_asked.map_or(u64::MAX, |at| at + self.kind.patience() + 1);
        let mut later = |time: u64| {
            if time > now {
                next = next.min(time);
            }
        };
        for time in self.connect_at {
            later(time);
        }
        for lane in &self.lanes {
            later(lane.learn_at);
            if lane.made < self.batches {
                later(lane.next_make);
            }
            if let (Some(item), Some(patience)) = (lane.items.front(), self.kind.delivery()) {
                later(item.born + patience + 1);
            }
            for item in lane.items.iter().filter(|item| item.request.is_none()) {
                later(item.not_before);
            }
        }
        next
    }
}

impl World {
    /// A client looks again at this time at the latest.
    pub fn rouse(&mut self, who: usize, time: u64) {
        let time = time.max(self.now);
        if time < self.clients[who].wake_at {
            self.clients[who].wake_at = time;
            self.at(time - self.now, super::world::Event::Pump(who));
        }
    }

    /// Lets a client do what it can, and come back.
    pub fn pump(&mut self, who: usize) {
        let now = self.now;
        if self.clients[who].wake_at != now {
            return;
        }
        self.clients[who].wake_at = u64::MAX;
        if self.clients[who].done() {
            self.done_at = self.done_at.max(now);
            return;
        }
        self.make(who);
        self.clients[who].give_up_late(now);
        self.drop_silent(who);
        self.clients[who].settle();
        for lane in &mut self.clients[who].lanes {
            if lane.learn_at <= now {
                lane.leader = self.partitions[lane.partition].leader;
                lane.topic = self.topic;
                lane.learn_at = u64::MAX;
            }
        }
        for broker in 0..2 {
            while self.send_one(who, broker) {}
        }
        let client = &self.clients[who];
        let asked = |conn: &usize| self.conns[*conn].asked.front().map(|(_, at)| *at);
        let oldest = client.conns.iter().flatten().filter_map(asked).min();
        let next = client.next_look(now, oldest);
        if next < u64::MAX {
            self.rouse(who, next);
        }
    }

    fn make(&mut self, who: usize) {
        let client = &mut self.clients[who];
        for lane in &mut client.lanes {
            if lane.next_make > self.now || lane.made == client.batches {
                continue;
            }
            // Applications send in bursts.
            lane.next_make = self.now + self.rng.between(1, 2 * client.pace);
            let burst = self.rng.between(1, 6);
            for _ in 0..burst {
                if lane.items.len() >= AHEAD || lane.made == client.batches {
                    break;
                }
                let count = 1 + lane.made % BATCH_RECORDS_MAX;
                lane.items.push_back(Item {
                    batch: Batch {
                        client: who,
                        partition: lane.partition,
                        from: lane.next_record,
                        count,
                        epoch: 0,
                        first: 0,
                    },
                    stamped: false,
                    attempts: 0,
                    request: None,
                    not_before: 0,
                    born: self.now,
                    reset: false,
                    retries: 0,
                    retries_undue: 0,
                });
                lane.next_record += count;
                lane.made += 1;
            }
        }
    }

    /// Gives up on connections that do not answer.
    fn drop_silent(&mut self, who: usize) {
        let patience = self.clients[who].kind.patience();
        for broker in 0..2 {
            let Some(conn) = self.clients[who].conns[broker] else {
                continue;
            };
            let oldest = self.conns[conn].asked.front().map(|(_, at)| *at);
            if oldest.is_some_and(|at| at + patience < self.now) {
                self.trace(|| format!("client {who} gives up on connection {conn}"));
                self.client_closes(conn);
                self.lost_connection(who, conn);
            }
        }
    }

    fn send_one(&mut self, who: usize, broker: usize) -> bool {
        let now = self.now;
        let client = &self.clients[who];
        let most = client.kind.in_flight_max();
        let full = client.conns[broker].is_some_and(|c| client.in_flight(c) >= most);
        if full || (client.conns[broker].is_none() && client.connect_at[broker] > now) {
            return false;
        }
        let ready: Vec<(usize, usize)> = (client.lanes.iter().enumerate())
            .filter(|(_, lane)| lane.leader == broker)
            .filter_map(|(at, lane)| client.ready(lane, now).map(|item| (at, item)))
            .collect();
        let Some((first, _)) = ready.first() else {
            return false;
        };
        // One request calls a topic by one id.
        let topic = client.lanes[*first].topic;
        let ready: Vec<(usize, usize)> = (ready.into_iter())
            .filter(|(lane, _)| client.lanes[*lane].topic == topic)
            .collect();
        let conn = self.connection(who, broker);
        let client = &mut self.clients[who];
        client.requests += 1;
        let id = client.requests;
        let mut parts = Vec::new();
        for (lane, at) in ready {
            client.before_send(lane, at);
            let item = &mut client.lanes[lane].items[at];
            item.reset = false;
            item.attempts += 1;
            item.request = Some((conn, id));
            parts.push((item.batch, item.attempts));
        }
        let kind = client.kind;
        let fate = self.scenario.fate(self.seed, kind, parts[0].0, parts[0].1);
        let request = Request {
            id,
            topic,
            parts: parts.into_iter().map(|(batch, _)| batch).collect(),
            fate,
            timeout: kind.timeout(),
            whole: fate != Fate::Partial,
            large: self.rng.chance(300),
        };
        self.trace(|| format!("client {who} sends on connection {conn}: {request}"));
        self.client_sends(conn, request);
        true
    }

    fn connection(&mut self, who: usize, broker: usize) -> usize {
        if let Some(conn) = self.clients[who].conns[broker] {
            return conn;
        }
        let instances = self.scenario.instances;
        if instances > 1 && self.rng.chance(400) {
            self.clients[who].instance = self.rng.below(instances as u64);
        }
        let conn = self.connect(who, broker, self.clients[who].instance);
        self.clients[who].conns[broker] = Some(conn);
        conn
    }

    /// Everything on this connection is to be sent again.
    pub fn lost_connection(&mut self, who: usize, conn: usize) {
        let broker = self.conns[conn].broker;
        let wait = self.rng.between(20, 200);
        let client = &mut self.clients[who];
        if client.conns[broker] != Some(conn) {
            return;
        }
        client.conns[broker] = None;
        client.connect_at[broker] = self.now + wait;
        for lane in 0..client.lanes.len() {
            let mut failed = Vec::new();
            for (at, item) in client.lanes[lane].items.iter_mut().enumerate() {
                if item.request.is_some_and(|(c, _)| c == conn) {
                    item.request = None;
                    item.not_before = self.now + wait;
                    item.retries += 1;
                    failed.push(at);
                }
            }
            let of = &mut client.lanes[lane];
            if of.leader == broker {
                of.learn_at = of.learn_at.min(self.now + wait);
            }
            if failed.is_empty() {
                continue;
            }
            of.draining = true;
            of.fine = false;
            if client.kind == Kind::Sarama {
                sarama::retried(client, lane, failed[0]);
            }
        }
        self.rouse(who, self.now);
    }

    /// An answer has come.
    pub fn answered(&mut self, who: usize, conn: usize, request: u64, answers: &[Answer]) {
        for answer in answers {
            let told = self.answer(who, (conn, request), answer);
            if let Some(what) = told {
                self.wrong(what);
            }
        }
        self.rouse(who, self.now);
    }

    /// Returns what hapax made the client do that it must not.
    fn answer(&mut self, who: usize, request: (usize, u64), answer: &Answer) -> Option<String> {
        let now = self.now;
        let wait = self.rng.between(20, 150);
        let client = &mut self.clients[who];
        let lane_at = (client.lanes.iter()).position(|l| l.partition == answer.partition)?;
        let lane = &mut client.lanes[lane_at];
        let at = (lane.items.iter()).position(|item| item.request == Some(request))?;
        let item = &mut lane.items[at];
        item.request = None;
        item.not_before = now + wait * item.attempts.min(8);
        if answer.error != 0 {
            item.retries += 1;
            item.retries_undue += u32::from(answer.undue);
            if matches!(answer.error, NOT_LEADER | UNKNOWN_TOPIC_ID) {
                lane.learn_at = lane.learn_at.min(now + wait);
            }
        }
        let undue = lane.items[at].retries_undue > 0;
        let before = (client.bumps, client.dead);
        let answered = Answered {
            lane: lane_at,
            at,
            answer: *answer,
        };
        match client.kind {
            Kind::Java | Kind::Hasty => java::answered(client, answered),
            Kind::Librdkafka => librdkafka::answered(client, answered),
            Kind::Franz => franz::answered(client, answered),
            Kind::Sarama => sarama::answered(client, answered),
        }
        if before == (client.bumps, client.dead) {
            return None;
        }
        // Where retries are few, each of them can be the one too many.
        if client.kind == Kind::Sarama {
            self.misled += u64::from(undue && answer.error != OUT_OF_ORDER);
            return None;
        }
        let what = || format!("client {who} was moved by {answer:?}");
        answer.by_hapax.then(what)
    }
}

/// An answer, and the batch that it is about.
#[derive(Clone, Copy)]
struct Answered {
    lane: usize,
    at: usize,
    answer: Answer,
}

impl Client {
    /// The batch leaves: it gets its place in the sequence if it has none.
    fn before_send(&mut self, lane: usize, at: usize) {
        match self.kind {
            Kind::Java | Kind::Hasty => java::before_send(self, lane, at),
            Kind::Franz => franz::before_send(self, lane, at),
            Kind::Librdkafka | Kind::Sarama => {
                if !self.lanes[lane].items[at].stamped {
                    self.lanes[lane].stamp(at);
                }
            }
        }
        self.lanes[lane].draining = false;
    }

    /// The batch is acknowledged.
    fn acked(&mut self, answered: Answered) -> Item {
        let lane = &mut self.lanes[answered.lane];
        let item = lane.items.remove(answered.at).expect("it was looked at");
        let sent = Batch {
            epoch: answered.answer.epoch,
            first: answered.answer.first,
            ..item.batch
        };
        lane.acked.push(Told {
            batch: sent,
            offset: Some(answered.answer.offset),
        });
        item
    }
}

/// The two halves of a batch that is too large, in its place.
fn split(lane: &mut Lane, at: usize) {
    let item = lane.items.remove(at).expect("it was looked at");
    let head = item.batch.count / 2;
    let halves = [(0, head), (head, item.batch.count - head)];
    for (place, (skip, count)) in halves.into_iter().enumerate() {
        let part = Item {
            batch: Batch {
                from: item.batch.from + skip,
                first: advance(item.batch.first, skip),
                count,
                ..item.batch
            },
            ..item
        };
        lane.items.insert(at + place, part);
    }
}

/// Whether this error is about the size of a batch that can be split.
fn to_split(item: &Item, error: i16) -> bool {
    error == TOO_LARGE && item.batch.count > 1
}
