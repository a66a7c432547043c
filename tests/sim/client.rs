//! Idempotent producers, as far as order, retries and epochs go (SEMANTICS 2.2).

use super::broker::{Batch, NOT_LEADER, OUT_OF_ORDER, STALE_EPOCH, advance};
use super::world::{Answer, Event, Fate, Request, World};
use std::collections::VecDeque;

const IN_FLIGHT_MAX: usize = 5;
/// The request timeout, which is also what a request allows the broker.
pub const REQUEST_TIMEOUT: u64 = 8_000;
const DELIVERY_TIMEOUT: u64 = 90_000;
const HASTY_DELIVERY_TIMEOUT: u64 = 12_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Five in flight; after an error the lowest sequence goes alone.
    Java,
    /// After an error all comes back before anything goes again.
    Librdkafka,
    /// Java, giving a batch up while it may still be executing.
    Hasty,
}

/// A batch that has no final answer.
struct Item {
    batch: Batch,
    stamped: bool,
    attempts: u64,
    /// The request it is in, if it is on its way.
    request: Option<(usize, u64)>,
    not_before: u64,
    born: u64,
}

/// One client on one partition.
pub struct Lane {
    partition: usize,
    items: VecDeque<Item>,
    made: u32,
    epoch: i16,
    next_first: i32,
    /// What follows the newest acknowledged batch of the epoch.
    acked_end: i32,
    /// librdkafka: waits until nothing is on its way.
    draining: bool,
    /// Java: a batch that was sent has been given up.
    unresolved: bool,
    leader: usize,
    learn_at: u64,
    /// What the application was told.
    pub acked: Vec<(u32, Option<i64>)>,
    pub given_up: Vec<u32>,
}

pub struct Client {
    kind: Kind,
    pub lanes: Vec<Lane>,
    conns: [Option<usize>; 2],
    connect_at: [u64; 2],
    epoch: i16,
    bump: bool,
    dead: bool,
    batches: u32,
    requests: u64,
}

impl Client {
    pub fn new(kind: Kind, partitions: usize, batches: u32) -> Self {
        let lane = |partition| Lane {
            partition,
            items: VecDeque::new(),
            made: 0,
            epoch: 0,
            next_first: 0,
            acked_end: 0,
            draining: false,
            unresolved: false,
            leader: 0,
            learn_at: 0,
            acked: Vec::new(),
            given_up: Vec::new(),
        };
        Self {
            kind,
            lanes: (0..partitions).map(lane).collect(),
            conns: [None; 2],
            connect_at: [0; 2],
            epoch: 0,
            bump: false,
            dead: false,
            batches,
            requests: 0,
        }
    }

    pub fn hasty(&self) -> bool {
        self.kind == Kind::Hasty
    }

    pub fn done(&self) -> bool {
        let all = |lane: &Lane| lane.made == self.batches && lane.items.is_empty();
        self.dead || self.lanes.iter().all(all)
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

    /// A new epoch for the lane: what is left is stamped anew from 0.
    fn restamp(lane: &mut Lane, epoch: i16) {
        lane.epoch = epoch;
        lane.next_first = 0;
        lane.acked_end = 0;
        lane.unresolved = false;
        for item in lane.items.iter_mut().filter(|item| item.stamped) {
            item.batch.epoch = epoch;
            item.batch.first = lane.next_first;
            lane.next_first = advance(lane.next_first, item.batch.count);
        }
    }

    fn bump_lane(&mut self, at: usize) {
        self.epoch += 1;
        Self::restamp(&mut self.lanes[at], self.epoch);
    }

    fn fail_all(&mut self) {
        self.dead = true;
        for lane in &mut self.lanes {
            lane.given_up
                .extend(lane.items.drain(..).map(|item| item.batch.number));
        }
    }

    fn give_up_late(&mut self, now: u64) {
        let patience = match self.kind {
            Kind::Hasty => HASTY_DELIVERY_TIMEOUT,
            Kind::Java | Kind::Librdkafka => DELIVERY_TIMEOUT,
        };
        for lane in &mut self.lanes {
            while lane.items.front().is_some_and(|i| i.born + patience < now) {
                let item = lane.items.pop_front().expect("it was looked at");
                lane.given_up.push(item.batch.number);
                lane.unresolved |= item.attempts > 0;
            }
        }
    }

    /// Epochs that had to wait until nothing is on its way.
    fn resolve(&mut self) {
        let idle = |lane: &Lane| lane.items.iter().all(|item| item.request.is_none());
        if self.kind == Kind::Librdkafka {
            let unresolved = self.lanes.iter().any(|lane| lane.unresolved);
            if (self.bump || unresolved) && self.lanes.iter().all(idle) {
                self.bump = false;
                self.epoch += 1;
                for lane in &mut self.lanes {
                    Self::restamp(lane, self.epoch);
                }
            }
            return;
        }
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            // Batches that wait to be sent again count as being in flight.
            if !lane.unresolved || lane.items.iter().any(|item| item.stamped) {
                continue;
            }
            if lane.next_first == lane.acked_end {
                lane.unresolved = false;
            } else {
                self.bump_lane(at);
            }
        }
    }

    /// The batch of a lane that may leave now.
    fn ready(&self, lane: &Lane, now: u64) -> Option<usize> {
        let on_its_way = lane.items.iter().filter(|i| i.request.is_some()).count();
        let at = lane.items.iter().position(|item| item.request.is_none())?;
        let item = &lane.items[at];
        if on_its_way >= IN_FLIGHT_MAX || item.not_before > now {
            return None;
        }
        let may = match self.kind {
            Kind::Librdkafka => {
                !(self.bump || lane.unresolved || (lane.draining && on_its_way > 0))
            }
            Kind::Java | Kind::Hasty => {
                if item.stamped {
                    at == 0
                } else {
                    !lane.unresolved
                }
            }
        };
        may.then_some(at)
    }
}

impl World {
    /// Lets a client do what it can, and come back.
    pub fn pump(&mut self, who: usize) {
        let now = self.now;
        if self.clients[who].done() {
            return;
        }
        self.make(who);
        self.clients[who].give_up_late(now);
        self.drop_silent(who);
        self.clients[who].resolve();
        for lane in &mut self.clients[who].lanes {
            if lane.learn_at <= now {
                lane.leader = self.partitions[lane.partition].leader;
                lane.learn_at = u64::MAX;
            }
        }
        for broker in 0..2 {
            while self.send_one(who, broker) {}
        }
        let pause = self.rng.between(5, 15);
        self.at(pause, Event::Pump(who));
    }

    fn make(&mut self, who: usize) {
        let client = &mut self.clients[who];
        for lane in &mut client.lanes {
            let room = lane.items.len() < IN_FLIGHT_MAX + 2 && lane.made < client.batches;
            if room && self.rng.chance(500) {
                lane.items.push_back(Item {
                    batch: Batch {
                        client: who,
                        partition: lane.partition,
                        number: lane.made,
                        count: 1 + lane.made % 3,
                        epoch: 0,
                        first: 0,
                    },
                    stamped: false,
                    attempts: 0,
                    request: None,
                    not_before: 0,
                    born: self.now,
                });
                lane.made += 1;
            }
        }
    }

    /// Gives up on connections that do not answer.
    fn drop_silent(&mut self, who: usize) {
        for broker in 0..2 {
            let Some(conn) = self.clients[who].conns[broker] else {
                continue;
            };
            if self.conns[conn]
                .asked
                .front()
                .is_some_and(|(_, at)| at + REQUEST_TIMEOUT < self.now)
            {
                self.trace(|| format!("client {who} gives up on connection {conn}"));
                self.client_closes(conn);
                self.lost_connection(who, conn);
            }
        }
    }

    fn send_one(&mut self, who: usize, broker: usize) -> bool {
        let now = self.now;
        let client = &self.clients[who];
        let full = client.conns[broker].is_some_and(|c| client.in_flight(c) >= IN_FLIGHT_MAX);
        if full || (client.conns[broker].is_none() && client.connect_at[broker] > now) {
            return false;
        }
        let ready: Vec<(usize, usize)> = (client.lanes.iter().enumerate())
            .filter(|(_, lane)| lane.leader == broker)
            .filter_map(|(at, lane)| client.ready(lane, now).map(|item| (at, item)))
            .collect();
        if ready.is_empty() {
            return false;
        }
        let conn = match self.clients[who].conns[broker] {
            Some(conn) => conn,
            None => self.connect(who, broker),
        };
        let client = &mut self.clients[who];
        client.conns[broker] = Some(conn);
        client.requests += 1;
        let id = client.requests;
        let mut parts = Vec::new();
        for (lane, item) in ready {
            let lane = &mut client.lanes[lane];
            let item = &mut lane.items[item];
            if !item.stamped {
                item.stamped = true;
                item.batch.epoch = lane.epoch;
                item.batch.first = lane.next_first;
                lane.next_first = advance(lane.next_first, item.batch.count);
            }
            lane.draining = false;
            item.attempts += 1;
            item.request = Some((conn, id));
            parts.push((item.batch, item.attempts));
        }
        let fate = self.fate(parts[0].0, parts[0].1);
        let large = self.rng.chance(300);
        let parts = parts.into_iter().map(|(batch, _)| batch).collect();
        let request = Request {
            id,
            parts,
            fate,
            whole: fate != Fate::Partial,
            large,
        };
        self.trace(|| format!("client {who} sends {request:?} on connection {conn}"));
        self.client_sends(conn, request);
        true
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
        for lane in &mut client.lanes {
            for item in &mut lane.items {
                if item.request.is_some_and(|(c, _)| c == conn) {
                    item.request = None;
                    item.not_before = self.now + wait;
                    lane.draining = true;
                }
            }
            if lane.leader == broker {
                lane.learn_at = lane.learn_at.min(self.now + wait);
            }
        }
    }

    /// An answer has come.
    pub fn answered(&mut self, who: usize, conn: usize, request: u64, answers: &[Answer]) {
        for answer in answers {
            self.answer(who, (conn, request), answer);
        }
    }

    fn answer(&mut self, who: usize, request: (usize, u64), answer: &Answer) {
        let now = self.now;
        let wait = self.rng.between(20, 150);
        let client = &mut self.clients[who];
        let Some(lane_at) = (client.lanes.iter()).position(|l| l.partition == answer.partition)
        else {
            return;
        };
        let kind = client.kind;
        let lane = &mut client.lanes[lane_at];
        let Some(at) = (lane.items.iter()).position(|item| item.request == Some(request)) else {
            return;
        };
        lane.items[at].request = None;
        lane.items[at].not_before = now + wait * lane.items[at].attempts.min(8);
        let batch = lane.items[at].batch;
        let restamped = batch.epoch != answer.epoch;
        match answer.error {
            0 => {
                lane.acked.push((batch.number, Some(answer.offset)));
                if !restamped {
                    lane.acked_end = advance(batch.first, batch.count);
                }
                lane.items.remove(at);
                if kind == Kind::Librdkafka && !restamped {
                    // A later success is taken to acknowledge what was before it.
                    for item in lane.items.drain(..at) {
                        lane.acked.push((item.batch.number, None));
                    }
                }
            }
            OUT_OF_ORDER if restamped => {}
            OUT_OF_ORDER => {
                let head = batch.first == lane.acked_end;
                match kind {
                    Kind::Librdkafka if head => client.fail_all(),
                    Kind::Librdkafka => {
                        lane.draining = true;
                        client.bump = true;
                    }
                    Kind::Java | Kind::Hasty if head || lane.unresolved => {
                        client.bump_lane(lane_at)
                    }
                    Kind::Java | Kind::Hasty => {}
                }
            }
            STALE_EPOCH if restamped => {}
            STALE_EPOCH => {
                lane.given_up.push(batch.number);
                lane.items.remove(at);
                client.bump_lane(lane_at);
            }
            code => {
                lane.draining = true;
                if code == NOT_LEADER {
                    lane.learn_at = lane.learn_at.min(now + wait);
                }
            }
        }
    }
}
