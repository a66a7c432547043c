//! Two relays around hapax that lose acknowledgements and know which retries
//! hapax must absorb.
//!
//! ```text
//! client ── tap A ── hapax ── tap B ── Kafka
//! ```
//!
//! Tap A takes the place of hapax towards clients, tap B that of Kafka towards
//! hapax. Both read Produce requests and their answers frame by frame and share
//! one [`State`] under one lock, taken while a frame is noted *and* written, so
//! that there is one order of events.
//!
//! A retry is a batch that tap A has passed on before. It stays at tap A until
//! its fate is certain:
//!
//! - an earlier copy's success was passed to hapax by tap B: wait until hapax
//!   shows that it has taken it (an answer to the client, or its admin API),
//!   then pass the retry on. hapax must absorb it: `expected_absorbed`.
//! - tap B holds the success back: either release it first (the case above), or
//!   pass the retry on first and release once tap B has seen it come out of
//!   hapax. hapax must then have forwarded it.
//! - earlier copies are dead (their connections ended unanswered): pass it on.
//!   hapax must forward it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion};

use crate::listeners::Listeners;
use crate::raw::read_frame;
use crate::tools::Random;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a batch is to hapax: who, where, which sequences, which bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BatchKey {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// The name, or the id where the request carries one.
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) first: i32,
    pub(crate) count: i32,
    pub(crate) crc: u32,
}

/// How an acknowledgement is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    /// Tap A: hapax has answered, the client's connection is cut.
    CutAfterHapax,
    /// Tap B: Kafka has answered, the connection to hapax is cut.
    CutBeforeHapax,
    /// Tap B: held until the client has given up; hapax gets it before the retry.
    DelayThenRelease,
    /// Tap B: held until the client has given up; hapax gets the retry first.
    DelayPastRetry,
}

/// What the taps ask of hapax.
pub(crate) trait Oracle: Send + Sync + 'static {
    /// Whether hapax has taken every answer that tap B passed on for the client
    /// at this address: it owes that client no more than tap B owes hapax.
    fn has_taken(&self, client: SocketAddr, owed: usize) -> bool;
    /// Whether hapax has read that many requests of the client at this address.
    fn has_read(&self, client: SocketAddr, requests: u64) -> bool;
    /// Whether hapax holds a request of the client at this address.
    fn holds(&self, client: SocketAddr) -> bool;
    /// Whether hapax has noticed that the client at this address is gone.
    fn has_noticed_end(&self, client: SocketAddr) -> bool;
    /// What hapax shows, for a human.
    fn report(&self) -> String;
}

#[derive(Default, Debug)]
struct Batch {
    /// Copies that tap A passed on and hapax was to forward.
    passed_on: u32,
    /// Copies that tap B saw.
    seen: u32,
    /// Copies that tap B saw and whose answer it has not passed on.
    outstanding: u32,
    /// Tap A's address towards hapax on the link of the newest copy.
    passed_by: Option<SocketAddr>,
    /// The connection of tap B that the newest copy came on, and the one its success went by.
    seen_on: u64,
    acked_on: u64,
    /// Whether a success was passed to hapax.
    acked: bool,
    /// Whether hapax has shown that it took that success.
    taken: bool,
    /// What happened to it, for a human.
    story: Vec<String>,
}

#[derive(Debug)]
struct Pending {
    version: i16,
    keys: Vec<BatchKey>,
    /// Those of `keys` that hapax must answer on its own.
    absorbed: Vec<BatchKey>,
}

#[derive(Default, Debug)]
struct LinkState {
    pending: HashMap<i32, Pending>,
    /// Tap A's address towards hapax.
    address: Option<SocketAddr>,
    /// Requests of any kind that were passed on.
    requests: u64,
    /// The client is to be cut off once everything passed on has been answered.
    cutting: bool,
}

/// An answer kept back, and with it every later one of its connection.
struct Hold {
    connection: u64,
    /// Whether a retry goes first.
    past_retry: bool,
    /// The request that did: link and correlation id. Any other waits for the release.
    passed: Option<(u64, i32)>,
    released: bool,
}

/// A connection of tap B.
#[derive(Default, Debug)]
struct Upstream {
    /// The client that hapax has it for, as far as a Produce request has shown.
    client: Option<SocketAddr>,
    /// Requests whose answer has not been passed on.
    owed: usize,
}

/// What both taps know, and what they count.
pub(crate) struct State {
    random: Random,
    /// Faults that are still to be made.
    pub(crate) budget: u32,
    /// One fault at a time.
    active: bool,
    batches: HashMap<BatchKey, Batch>,
    links: HashMap<u64, LinkState>,
    upstreams: HashMap<u64, Upstream>,
    hold: Option<Hold>,
    /// Clients' ends that hapax may not have noticed yet.
    ending: Vec<SocketAddr>,
    pub(crate) faults: BTreeMap<Fault, u32>,
    /// Produce requests that reached Kafka and whose answer never reached the client on that connection.
    pub(crate) lost_acks: u32,
    /// Batches that came to tap A again.
    pub(crate) retries: u64,
    /// Retries whose acknowledgement had reached hapax before them.
    pub(crate) expected_absorbed: u64,
    /// Error codes that clients were answered with, and that Kafka answered with.
    pub(crate) errors_to_client: BTreeMap<i16, u32>,
    pub(crate) errors_from_kafka: BTreeMap<i16, u32>,
    /// Batches that hapax forwarded though it was to absorb them: their stories.
    pub(crate) surprises: Vec<String>,
    /// Retries that hapax may absorb or not, because it holds them or an earlier
    /// copy has no answer yet: nobody can say which it gets first.
    pub(crate) perhaps: u64,
}

struct World {
    state: Mutex<State>,
    changed: Condvar,
    oracle: Box<dyn Oracle>,
}

/// Both taps; they end when dropped.
pub(crate) struct Taps {
    world: Arc<World>,
    listeners: Listeners,
}

impl Taps {
    pub(crate) fn new(seed: u64, budget: u32, oracle: Box<dyn Oracle>) -> Self {
        let state = State {
            random: Random::new(seed),
            budget,
            active: false,
            batches: HashMap::new(),
            links: HashMap::new(),
            upstreams: HashMap::new(),
            hold: None,
            ending: Vec::new(),
            faults: BTreeMap::new(),
            lost_acks: 0,
            retries: 0,
            expected_absorbed: 0,
            errors_to_client: BTreeMap::new(),
            errors_from_kafka: BTreeMap::new(),
            surprises: Vec::new(),
            perhaps: 0,
        };
        let world = World {
            state: Mutex::new(state),
            changed: Condvar::new(),
            oracle,
        };
        Self {
            world: Arc::new(world),
            listeners: Listeners::default(),
        }
    }

    /// Relays clients at `from` to hapax at `to`.
    pub(crate) fn tap_a(&mut self, from: &str, to: &str) {
        self.listen(from, to, a::relay);
    }

    /// Relays hapax at `from` to Kafka at `to`.
    pub(crate) fn tap_b(&mut self, from: &str, to: &str) {
        self.listen(from, to, b::relay);
    }

    /// Waits until the budget is used up and the last fault is over.
    pub(crate) fn wait_for_faults(&self, patience: Duration) {
        let start = Instant::now();
        let mut state = self.world.lock();
        while state.budget > 0 || state.active {
            assert!(
                start.elapsed() < patience,
                "{} faults are still to come after {patience:?}",
                state.budget
            );
            state = self.world.wait(state);
        }
    }

    /// What they counted.
    pub(crate) fn tally(&self) -> MutexGuard<'_, State> {
        self.world.lock()
    }

    fn listen(&mut self, from: &str, to: &str, relay: fn(&Arc<World>, u64, TcpStream, TcpStream)) {
        let world = self.world.clone();
        self.listeners
            .add(from, to, move |id, near, far| relay(&world, id, near, far));
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no tap panicked")
    }

    /// Until something changes, or a moment has passed.
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let (state, _) = self
            .changed
            .wait_timeout(state, Duration::from_millis(2))
            .expect("no tap panicked");
        state
    }

    /// Before this connection is cut, which ends its client's link too: lets
    /// hapax read what that link was given, and gives it no more. What hapax
    /// has not read when it closes a client, it has not judged. Returns `false`
    /// where hapax holds a request until this very connection answers.
    fn doom_link(&self, state: &mut State, connection: u64) -> bool {
        let client = state.upstreams[&connection].client;
        let start = Instant::now();
        for link in state.links.values_mut() {
            let Some(address) = link.address.filter(|_| link.address == client) else {
                continue;
            };
            while !self.oracle.has_read(address, link.requests) {
                if self.oracle.holds(address) {
                    return false;
                }
                assert!(
                    start.elapsed() < PATIENCE,
                    "hapax does not read from {address}"
                );
            }
            link.cutting = true;
        }
        true
    }

    /// Holds a retry until its fate is certain; says whether hapax must absorb
    /// it, or nothing where its own connection is cut meanwhile.
    fn settle<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        request: (u64, i32),
        key: &BatchKey,
    ) -> (MutexGuard<'a, State>, Option<bool>) {
        let start = Instant::now();
        loop {
            if state.links.get(&request.0).is_none_or(|link| link.cutting) {
                return (state, None);
            }
            state
                .ending
                .retain(|client| !self.oracle.has_noticed_end(*client));
            let batch = &state.batches[key];
            let holds = state.hold.as_ref().filter(|hold| hold.keeps(batch));
            if batch.acked {
                let is_held = holds.is_some();
                let upstream = state.upstreams.get(&batch.acked_on);
                let shows = |upstream: &Upstream| {
                    let client = upstream.client.expect("a Produce request came on it");
                    self.oracle.has_taken(client, upstream.owed)
                };
                let taken = batch.taken || upstream.is_some_and(shows);
                if is_held {
                    // Another copy's success reached hapax meanwhile; this retry is what the hold waited for.
                    state.hold.as_mut().expect("it holds").released = true;
                    self.changed.notify_all();
                } else if taken && state.ending.is_empty() {
                    state.batches.get_mut(key).expect("it was there").taken = true;
                    return (state, Some(true));
                }
                assert!(
                    start.elapsed() < PATIENCE,
                    "hapax does not show the acknowledgement of {key:?} ({:?}), or the end of {:?}: {}",
                    state.batches[key],
                    state.ending,
                    self.oracle.report(),
                );
            } else if let Some(past_retry) = holds.map(|hold| hold.past_retry) {
                let hold = state.hold.as_mut().expect("it holds");
                if !past_retry {
                    hold.released = true;
                    self.changed.notify_all();
                } else if *hold.passed.get_or_insert(request) == request {
                    return (state, Some(false));
                }
            } else if batch.outstanding == 0 && batch.seen >= batch.passed_on {
                return (state, Some(false));
            } else if start.elapsed() > Duration::from_secs(2) {
                // hapax holds the earlier copy, or its answer waits behind another that is kept back.
                state.perhaps += 1;
                return (state, Some(false));
            }
            state = self.wait(state);
        }
    }
}

impl Batch {
    fn note(&mut self, what: String) {
        self.story.push(what);
    }
}

impl Hold {
    /// Whether this batch's answer is kept back.
    fn keeps(&self, batch: &Batch) -> bool {
        !self.released && batch.outstanding > 0 && batch.seen_on == self.connection
    }
}

impl State {
    /// A request is over: a copy that tap B has not seen by now (hapax mirrored
    /// an error, or was cut off) it never will.
    fn write_off(&mut self, pending: &Pending, why: &str) {
        for key in pending
            .keys
            .iter()
            .filter(|key| !pending.absorbed.contains(key))
        {
            let batch = self.batches.get_mut(key).expect("it was passed on");
            if batch.passed_on > batch.seen {
                batch.note(format!("written off: {why}"));
                batch.passed_on -= 1;
            }
        }
    }

    /// Whether this fault is made now.
    fn strikes(&mut self, one_in: u64, fault: Fault) -> bool {
        if self.budget == 0 || self.active || !self.random.one_in(one_in) {
            return false;
        }
        self.budget -= 1;
        self.active = true;
        *self.faults.entry(fault).or_default() += 1;
        true
    }

    /// The fault is not made after all.
    fn spare(&mut self, fault: Fault) {
        self.budget += 1;
        self.active = false;
        *self.faults.entry(fault).or_default() -= 1;
    }
}

mod a {
    //! Between client and hapax.

    use super::*;

    struct Link {
        id: u64,
        client: TcpStream,
        hapax: TcpStream,
    }

    pub(super) fn relay(world: &Arc<World>, id: u64, client: TcpStream, hapax: TcpStream) {
        let state = LinkState {
            address: hapax.local_addr().ok(),
            ..LinkState::default()
        };
        world.lock().links.insert(id, state);
        let link = Arc::new(Link { id, client, hapax });
        let (up_world, up_link) = (world.clone(), link.clone());
        std::thread::spawn(move || up(&up_world, &up_link));
        let world = world.clone();
        std::thread::spawn(move || down(&world, &link));
    }

    fn up(world: &World, link: &Link) {
        while let Ok(Some(frame)) = read_frame(&mut &link.client) {
            let request = produce_request(&frame);
            let mut state = world.lock();
            // Everything from here to the write happens in one order with tap B.
            let mut absorbed = Vec::new();
            if let Some((correlation, _, keys)) = &request {
                for key in keys {
                    if state.batches.contains_key(key) {
                        let expected;
                        (state, expected) = world.settle(state, (link.id, *correlation), key);
                        let Some(expected) = expected else { return };
                        if expected {
                            absorbed.push(key.clone());
                        }
                    }
                }
            }
            if state.links.get(&link.id).is_none_or(|this| this.cutting) {
                return;
            }
            if let Some((correlation, version, keys)) = request {
                for key in &keys {
                    let is_absorbed = absorbed.contains(key);
                    let is_retry = state.batches.contains_key(key);
                    state.retries += u64::from(is_retry);
                    state.expected_absorbed += u64::from(is_absorbed);
                    let batch = state.batches.entry(key.clone()).or_default();
                    batch.passed_on += u32::from(!is_absorbed);
                    batch.passed_by = link.hapax.local_addr().ok();
                    batch.note(format!("passed on {:x} absorbed {is_absorbed}", link.id));
                }
                let pending = Pending {
                    version,
                    keys,
                    absorbed,
                };
                state
                    .links
                    .get_mut(&link.id)
                    .expect("it was there")
                    .pending
                    .insert(correlation, pending);
            }
            if let Some(this) = state.links.get_mut(&link.id) {
                this.requests += 1;
            }
            let written = (&link.hapax).write_all(&frame);
            drop(state);
            world.changed.notify_all();
            if written.is_err() {
                break;
            }
        }
        client_is_gone(world, link);
    }

    /// Lets hapax know, once it has read everything it was given and tap B has
    /// seen what it is to forward.
    fn client_is_gone(world: &World, link: &Link) {
        let start = Instant::now();
        let mut state = world.lock();
        loop {
            let Some(this) = state.links.get(&link.id).filter(|this| !this.cutting) else {
                return;
            };
            let arrived = |pending: &Pending| {
                pending.keys.iter().all(|key| {
                    let batch = &state.batches[key];
                    pending.absorbed.contains(key) || batch.seen >= batch.passed_on
                })
            };
            let is_read = || {
                let client = link.hapax.local_addr();
                client.is_ok_and(|client| world.oracle.has_read(client, this.requests))
            };
            // A reset would throw away what hapax has not read: retries that count as absorbed.
            let is_over = this.pending.values().all(arrived) && is_read();
            if is_over {
                break;
            }
            if start.elapsed() > Duration::from_secs(1) {
                let keys = this.pending.values().flat_map(|pending| &pending.keys);
                let left = keys.filter(|key| {
                    let batch = &state.batches[key];
                    batch.seen < batch.passed_on
                });
                state.perhaps += u64::try_from(left.count()).expect("few");
                break;
            }
            state = world.wait(state);
        }
        let unanswered = state
            .links
            .get(&link.id)
            .map_or(0, |this| this.pending.len());
        state.lost_acks += u32::try_from(unanswered).expect("few");
        let resets = state.random.one_in(2);
        if resets {
            reset_hapax(&mut state, link);
        } else {
            // The answers that hapax still owes are read, and show that it has them.
            let _ = link.hapax.shutdown(Shutdown::Write);
        }
    }

    fn down(world: &World, link: &Link) {
        while let Ok(Some(frame)) = read_frame(&mut &link.hapax) {
            let correlation = (&frame[4..]).get_i32();
            let mut state = world.lock();
            let answered = state
                .links
                .get_mut(&link.id)
                .and_then(|this| this.pending.remove(&correlation));
            let mut is_success = false;
            if let Some(pending) = answered {
                state.write_off(&pending, "hapax answered");
                for key in successes(
                    &frame,
                    pending.version,
                    &pending.keys,
                    &mut state.errors_to_client,
                ) {
                    is_success = true;
                    if let Some(batch) = state.batches.get_mut(&key) {
                        batch.taken = batch.acked;
                    }
                }
                world.changed.notify_all();
            }
            let is_cutting = state.links.get(&link.id).is_some_and(|this| this.cutting);
            if is_cutting || (is_success && state.strikes(4, Fault::CutAfterHapax)) {
                state.lost_acks += u32::from(is_success);
                let this = state
                    .links
                    .get_mut(&link.id)
                    .expect("links live as long as their relay");
                this.cutting = true;
                if this.pending.is_empty() {
                    cut(world, state, link);
                    return;
                }
                continue;
            }
            drop(state);
            if (&link.client).write_all(&frame).is_err() {
                // The client is gone, and the other direction sees it; what hapax still answers is read on.
                continue;
            }
        }
        hapax_is_gone(world, link);
    }

    /// Everything that hapax was given is answered, and no answer was passed on.
    fn cut<'a>(world: &'a World, mut state: MutexGuard<'a, State>, link: &Link) {
        if state.random.one_in(2) {
            set_reset(&link.client);
        }
        let resets = state.random.one_in(2);
        end(&link.client);
        if resets {
            reset_hapax(&mut state, link);
        } else {
            let _ = link.hapax.shutdown(Shutdown::Write);
            drop(state);
            while let Ok(Some(_)) = read_frame(&mut &link.hapax) {}
            state = world.lock();
        }
        state.links.remove(&link.id);
        state.active = false;
        drop(state);
        world.changed.notify_all();
    }

    fn reset_hapax(state: &mut State, link: &Link) {
        state.ending.extend(link.hapax.local_addr().ok());
        set_reset(&link.hapax);
        end(&link.hapax);
    }

    /// What hapax was given here and has not forwarded, it never will.
    fn hapax_is_gone(world: &World, link: &Link) {
        let mut state = world.lock();
        if let Some(this) = state.links.remove(&link.id) {
            state.lost_acks += u32::try_from(this.pending.len()).expect("few");
            for pending in this.pending.values() {
                state.write_off(pending, "the connection ended");
            }
            if this.cutting {
                state.active = false;
            }
        }
        drop(state);
        let _ = link.client.shutdown(Shutdown::Both);
        world.changed.notify_all();
    }
}

mod b {
    //! Between hapax and Kafka.

    use super::*;

    struct Connection {
        id: u64,
        hapax: TcpStream,
        kafka: TcpStream,
        pending: Mutex<HashMap<i32, (i16, Vec<BatchKey>)>>,
        /// Set under the world's lock: nothing that comes later is noted.
        over: AtomicBool,
    }

    pub(super) fn relay(world: &Arc<World>, id: u64, hapax: TcpStream, kafka: TcpStream) {
        let connection = Arc::new(Connection {
            id,
            hapax,
            kafka,
            pending: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let (up_world, up_connection) = (world.clone(), connection.clone());
        std::thread::spawn(move || up(&up_world, &up_connection));
        let world = world.clone();
        std::thread::spawn(move || down(&world, &connection));
    }

    fn up(world: &World, connection: &Connection) {
        let end = loop {
            let frame = match read_frame(&mut &connection.hapax) {
                Ok(Some(frame)) => frame,
                end => break end,
            };
            let mut state = world.lock();
            if connection.over.load(Ordering::Relaxed) {
                return;
            }
            // Produce with acks=0, which has no answer, no client here sends.
            state.upstreams.entry(connection.id).or_default().owed += 1;
            if let Some((correlation, version, keys)) = produce_request(&frame) {
                for key in &keys {
                    // The retry that a hold waits for has come out of hapax.
                    let State {
                        hold,
                        batches,
                        upstreams,
                        surprises,
                        expected_absorbed,
                        ..
                    } = &mut *state;
                    let batch = batches
                        .get_mut(key)
                        .expect("hapax forwards what it was given");
                    if let Some(hold) = hold
                        && hold.past_retry
                        && hold.keeps(batch)
                    {
                        hold.released = true;
                    }
                    batch.note(format!("seen on {:x}", connection.id));
                    let is_surprise = batch.acked && batch.seen >= batch.passed_on;
                    let story = is_surprise.then(|| format!("{key:?}: {:?}", batch.story));
                    batch.seen += 1;
                    batch.outstanding += 1;
                    batch.seen_on = connection.id;
                    let upstream = upstreams.entry(connection.id).or_default();
                    upstream.client = upstream.client.or(batch.passed_by);
                    match story {
                        Some(_) if is_forgotten(batches, key) => *expected_absorbed -= 1,
                        Some(story) => surprises.push(story),
                        None => {}
                    }
                }
                connection
                    .pending
                    .lock()
                    .expect("no tap panicked")
                    .insert(correlation, (version, keys));
            }
            let written = (&connection.kafka).write_all(&frame);
            drop(state);
            world.changed.notify_all();
            if written.is_err() {
                return;
            }
        };
        match end {
            Ok(_) => drop(connection.kafka.shutdown(Shutdown::Write)),
            Err(_) => {
                set_reset(&connection.kafka);
                super::end(&connection.kafka);
                // A hold on this connection has nobody to answer any more.
                let mut state = world.lock();
                if let Some(hold) = state
                    .hold
                    .as_mut()
                    .filter(|hold| hold.connection == connection.id)
                {
                    hold.released = true;
                }
                drop(state);
                world.changed.notify_all();
            }
        }
    }

    /// Whether five later batches were acknowledged, which are all that hapax
    /// keeps: a retry that a client left behind may come after them.
    fn is_forgotten(batches: &HashMap<BatchKey, Batch>, key: &BatchKey) -> bool {
        let is_later = |(other, batch): &(&BatchKey, &Batch)| {
            let same = (other.producer_id, other.epoch, other.partition);
            same == (key.producer_id, key.epoch, key.partition)
                && other.topic == key.topic
                && other.first > key.first
                && batch.acked
        };
        batches.iter().filter(is_later).count() >= 5
    }

    fn down(world: &World, connection: &Connection) {
        while let Ok(Some(frame)) = read_frame(&mut &connection.kafka) {
            let correlation = (&frame[4..]).get_i32();
            let produced = connection
                .pending
                .lock()
                .expect("no tap panicked")
                .get(&correlation)
                .cloned();
            let mut state = world.lock();
            let mut acked = Vec::new();
            if let Some((version, keys)) = &produced {
                acked = successes(&frame, *version, keys, &mut state.errors_from_kafka);
                // Only where the client still waits for just this copy.
                let is_awaited = |key| {
                    let batch: &Batch = &state.batches[key];
                    !batch.acked && batch.outstanding == 1 && batch.seen >= batch.passed_on
                };
                if !acked.is_empty() && acked.iter().all(is_awaited) {
                    if state.strikes(8, Fault::CutBeforeHapax) {
                        if world.doom_link(&mut state, connection.id) {
                            drop(state);
                            break;
                        }
                        state.spare(Fault::CutBeforeHapax);
                    }
                    let past_retry = state.random.one_in(2);
                    let fault = if past_retry {
                        Fault::DelayPastRetry
                    } else {
                        Fault::DelayThenRelease
                    };
                    if state.strikes(6, fault) {
                        state = hold(world, state, connection.id, &acked, past_retry);
                    }
                }
            }
            let written = (&connection.hapax).write_all(&frame);
            let upstream = state.upstreams.entry(connection.id).or_default();
            upstream.owed -= usize::from(written.is_ok());
            if let (Ok(()), Some((_, keys))) = (&written, produced) {
                connection
                    .pending
                    .lock()
                    .expect("no tap panicked")
                    .remove(&correlation);
                for key in keys {
                    let batch = state.batches.get_mut(&key).expect("tap B saw it");
                    batch.outstanding -= 1;
                    batch.note(format!("answered on {:x}", connection.id));
                    if acked.contains(&key) && !batch.acked {
                        batch.acked = true;
                        batch.acked_on = connection.id;
                    }
                }
            }
            drop(state);
            world.changed.notify_all();
            if written.is_err() {
                break;
            }
        }
        is_over(world, connection);
    }

    /// Keeps an answer until it is released.
    fn hold<'a>(
        world: &'a World,
        mut state: MutexGuard<'a, State>,
        connection: u64,
        keys: &[BatchKey],
        past_retry: bool,
    ) -> MutexGuard<'a, State> {
        state.hold = Some(Hold {
            connection,
            past_retry,
            passed: None,
            released: false,
        });
        let start = Instant::now();
        while !state.hold.as_ref().expect("only this takes it").released {
            if start.elapsed() > Duration::from_secs(1) && is_held_for_it(world, &mut state) {
                break;
            }
            if start.elapsed() > PATIENCE {
                let stories = keys.iter().map(|key| &state.batches[key].story);
                panic!(
                    "no client retries {keys:?} {:?} (passed {:?}); ends not noticed {:?}, {}",
                    stories.collect::<Vec<_>>(),
                    state.hold.as_ref().and_then(|hold| hold.passed),
                    state.ending,
                    world.oracle.report(),
                );
            }
            state = world.wait(state);
        }
        state.hold = None;
        state.active = false;
        state
    }

    /// Whether the retry came on the connection whose answer is kept back, and
    /// hapax holds it for just that answer: nobody knows which it gets first.
    fn is_held_for_it(world: &World, state: &mut State) -> bool {
        let hold = state.hold.as_ref().expect("only this takes it");
        let (Some((link, correlation)), connection) = (hold.passed, hold.connection) else {
            return false;
        };
        let client = state.upstreams[&connection].client;
        let Some(link) = state.links.get(&link).filter(|l| l.address == client) else {
            return false;
        };
        let Some(pending) = link.pending.get(&correlation) else {
            return false;
        };
        let keys = u64::try_from(pending.keys.len()).expect("few");
        let is_held = client.is_some_and(|client| world.oracle.holds(client));
        state.perhaps += if is_held { keys } else { 0 };
        is_held
    }

    /// Neither side will hear of the other again.
    fn is_over(world: &World, connection: &Connection) {
        let mut state = world.lock();
        connection.over.store(true, Ordering::Relaxed);
        let pending = std::mem::take(&mut *connection.pending.lock().expect("no tap panicked"));
        for key in pending.into_values().flat_map(|(_, keys)| keys) {
            state
                .batches
                .get_mut(&key)
                .expect("tap B saw it")
                .outstanding -= 1;
        }
        end(&connection.hapax);
        end(&connection.kafka);
        // A hold or a cut of this connection ends with it.
        state.active = state.hold.is_some() || state.links.values().any(|link| link.cutting);
        drop(state);
        world.changed.notify_all();
    }
}

/// Closing this socket will send a reset.
fn set_reset(stream: &TcpStream) {
    let socket = stream
        .try_clone()
        .map(tokio::net::TcpSocket::from_std_stream);
    // A socket that is gone needs no reset.
    let _ = socket.map(|socket| socket.set_zero_linger());
}

/// Ends both directions, and the read of whoever waits on it. A socket with
/// `set_reset` is only closed for reading: its last owner's close is the reset.
fn end(stream: &TcpStream) {
    let resets = stream
        .try_clone()
        .map(tokio::net::TcpSocket::from_std_stream)
        .and_then(|socket| socket.linger());
    let how = if matches!(resets, Ok(Some(_))) {
        Shutdown::Read
    } else {
        Shutdown::Both
    };
    let _ = stream.shutdown(how);
}

/// Correlation id, version and batches of a Produce request that is answered.
pub(crate) fn produce_request(frame: &Bytes) -> Option<(i32, i16, Vec<BatchKey>)> {
    let mut body = frame.slice(4..);
    let api = (&body[..]).get_i16();
    let version = (&body[2..]).get_i16();
    if api != 0 {
        return None;
    }
    let header = RequestHeader::decode(&mut body, ProduceRequest::header_version(version))
        .expect("a request header");
    let request = ProduceRequest::decode(&mut body, version).expect("a Produce request");
    if request.acks == 0 {
        return None;
    }
    let mut keys = Vec::new();
    for topic in request.topic_data {
        let name = if version >= 13 {
            topic.topic_id.to_string()
        } else {
            topic.name.to_string()
        };
        for partition in topic.partition_data {
            let records = partition.records.expect("clients send records");
            keys.push(BatchKey {
                producer_id: (&records[43..]).get_i64(),
                epoch: (&records[51..]).get_i16(),
                topic: name.clone(),
                partition: partition.index,
                first: (&records[53..]).get_i32(),
                count: (&records[57..]).get_i32(),
                crc: (&records[17..]).get_u32(),
            });
        }
    }
    Some((header.correlation_id, version, keys))
}

/// Those of the request's batches that were answered with success.
pub(crate) fn successes(
    frame: &Bytes,
    version: i16,
    keys: &[BatchKey],
    errors: &mut BTreeMap<i16, u32>,
) -> Vec<BatchKey> {
    let mut body = frame.slice(4..);
    ResponseHeader::decode(&mut body, ProduceResponse::header_version(version))
        .expect("a response header");
    let response = ProduceResponse::decode(&mut body, version).expect("a Produce response");
    let mut acked = Vec::new();
    for topic in response.responses {
        let name = if version >= 13 {
            topic.topic_id.to_string()
        } else {
            topic.name.to_string()
        };
        for partition in &topic.partition_responses {
            if partition.error_code != 0 {
                *errors.entry(partition.error_code).or_default() += 1;
                continue;
            }
            acked.extend(
                keys.iter()
                    .find(|key| key.topic == name && key.partition == partition.index)
                    .cloned(),
            );
        }
    }
    acked
}

/// Relays bytes and ends alike, in place of hapax: the baseline for what the taps do.
pub(crate) fn plain_relay(from: &str, to: &str) {
    let listener =
        TcpListener::bind(from).unwrap_or_else(|error| panic!("cannot listen on {from}: {error}"));
    let to = to.to_owned();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.expect("a listener accepts");
            let Ok(far) = TcpStream::connect(&to) else {
                continue;
            };
            near.set_nodelay(true).expect("a socket takes nodelay");
            far.set_nodelay(true).expect("a socket takes nodelay");
            let (near, far) = (Arc::new(near), Arc::new(far));
            let (near_again, far_again) = (near.clone(), far.clone());
            std::thread::spawn(move || copy(&near, &far));
            std::thread::spawn(move || copy(&far_again, &near_again));
        }
    });
}

fn copy(from: &TcpStream, to: &TcpStream) {
    match io::copy(&mut &*from, &mut &*to) {
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => {
            set_reset(to);
            end(to);
        }
    }
}
