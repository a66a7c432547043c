//! A line with delay, jitter and lost acknowledgements, for machines on which
//! the kernel's own (`tc netem`) cannot be had.
//!
//! ```text
//! client ── line ── hapax ── Kafka      or      client ── line ── Kafka
//! ```
//!
//! Every frame of either direction waits for a seeded time and keeps its place
//! behind the frames before it, as TCP would have it. An acknowledgement is lost
//! after the far side gave it: its connection is cut, or goes dark in that
//! direction until the client gives up. What was still under way on the line is
//! lost with a cut; what the far side has been given, it reads.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use crate::listeners::Listeners;
use crate::raw::read_frame;
use crate::tap::{BatchKey, produce_request, successes};
use crate::tools::Random;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a line does to what passes.
#[derive(Clone, Default)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    /// How long a frame takes each way, at least, and how much longer at most.
    pub(crate) delay_ms: u64,
    pub(crate) jitter_ms: u64,
    /// One in about so many acknowledged requests is not heard of; 0 for none.
    pub(crate) loses_one_in: u64,
    /// Once so many records were acknowledged no further acknowledgement passes.
    pub(crate) holds_after: Option<u64>,
}

/// What a line has seen.
#[derive(Default, Debug, Clone)]
pub(crate) struct Tally {
    /// Connections cut, and connections gone dark, as an acknowledgement came.
    pub(crate) cuts: u64,
    pub(crate) darks: u64,
    /// Produce requests that were acknowledged without the client hearing of it.
    pub(crate) lost_acks: u64,
    /// Batches given to the far side, any copy.
    pub(crate) batches: u64,
    /// Those that had been given to it before.
    pub(crate) retries: u64,
    /// Retries of batches that the far side had acknowledged before.
    pub(crate) retries_of_acked: u64,
    /// Records whose acknowledgement was let through.
    pub(crate) acked_records: u64,
    /// Records whose acknowledgement is held back.
    pub(crate) held_records: u64,
    /// Errors that clients were answered with.
    pub(crate) errors: std::collections::BTreeMap<i16, u32>,
}

struct State {
    weather: Weather,
    random: Random,
    /// Acknowledgements until the next one is lost.
    until_loss: u64,
    /// Whether the far side has acknowledged a batch that it was given.
    batches: HashMap<BatchKey, bool>,
    links: usize,
    tally: Tally,
}

struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// A line; it ends when dropped.
pub(crate) struct Line {
    world: Arc<World>,
    listeners: Listeners,
}

impl Line {
    pub(crate) fn new(weather: Weather) -> Self {
        let mut random = Random::new(weather.seed);
        let until_loss = next_loss(&mut random, weather.loses_one_in);
        let state = State {
            weather,
            random,
            until_loss,
            batches: HashMap::new(),
            links: 0,
            tally: Tally::default(),
        };
        Self {
            world: Arc::new(World {
                state: Mutex::new(state),
                changed: Condvar::new(),
            }),
            listeners: Listeners::default(),
        }
    }

    /// Clients at `from` reach `to`.
    pub(crate) fn leads(&mut self, from: &str, to: &str) {
        let world = self.world.clone();
        self.listeners
            .add(from, to, move |_, near, far| relay(&world, near, far));
    }

    pub(crate) fn tally(&self) -> Tally {
        self.world.lock().tally.clone()
    }

    /// Waits until an acknowledgement is held back: how many records the
    /// client was told of before.
    pub(crate) fn wait_for_hold(&self) -> u64 {
        let held = |state: &State| state.tally.held_records > 0;
        let state = self.world.wait_until("an acknowledgement to hold", held);
        state.tally.acked_records
    }

    /// Holds nothing back any more.
    pub(crate) fn release(&self) {
        self.world.lock().weather.holds_after = None;
    }

    /// Waits until nobody is connected, and the far side has dealt with
    /// everything that it was given.
    pub(crate) fn wait_until_idle(&self) {
        let idle = |state: &State| state.links == 0;
        drop(self.world.wait_until("the last connection's end", idle));
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no line panicked")
    }

    fn wait_until(&self, what: &str, ready: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let (state, timeout) = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, |state| !ready(state))
            .expect("no line panicked");
        assert!(
            !timeout.timed_out(),
            "gave up waiting for {what}: {:?}",
            state.tally
        );
        state
    }
}

/// What becomes of an answer.
enum Fate {
    Passes,
    Cut,
    Dark,
}

impl State {
    /// Notes a request as it is given to the far side.
    fn give(&mut self, keys: &[BatchKey]) {
        for key in keys {
            self.tally.batches += 1;
            match self.batches.get(key) {
                None => {
                    self.batches.insert(key.clone(), false);
                }
                Some(was_acked) => {
                    self.tally.retries += 1;
                    self.tally.retries_of_acked += u64::from(*was_acked);
                }
            }
        }
    }

    /// Notes an answer as it comes from the far side.
    fn take(&mut self, acked: &[BatchKey], is_dark: bool) -> Fate {
        for key in acked {
            self.batches.insert(key.clone(), true);
        }
        let counts = acked.iter().map(|key| u64::from(key.count.unsigned_abs()));
        let records: u64 = counts.sum();
        let limit = self.weather.holds_after;
        if records > 0 && limit.is_some_and(|limit| self.tally.acked_records >= limit) {
            self.tally.held_records += records;
            return Fate::Dark;
        }
        if is_dark {
            return Fate::Dark;
        }
        if acked.is_empty() {
            return Fate::Passes;
        }
        self.until_loss -= 1;
        if self.until_loss > 0 {
            self.tally.acked_records += records;
            return Fate::Passes;
        }
        self.until_loss = next_loss(&mut self.random, self.weather.loses_one_in);
        if (self.tally.cuts + self.tally.darks) % 4 == 3 {
            self.tally.darks += 1;
            return Fate::Dark;
        }
        self.tally.cuts += 1;
        Fate::Cut
    }

    fn delay(&mut self) -> Duration {
        let jitter = self.random.below(self.weather.jitter_ms * 1000 + 1);
        Duration::from_micros(self.weather.delay_ms * 1000 + jitter)
    }
}

/// Acknowledgements up to the next that is lost.
fn next_loss(random: &mut Random, one_in: u64) -> u64 {
    match one_in {
        0 => u64::MAX,
        _ => one_in / 2 + random.below(one_in) + 1,
    }
}

/// A client's connection and the one made for it.
struct Link {
    near: TcpStream,
    far: TcpStream,
    /// Requests that were given to the far side and have no answer yet.
    pending: Mutex<HashMap<i32, (i16, Vec<BatchKey>)>>,
    /// No answer passes any more.
    is_dark: AtomicBool,
    /// Nor does a request.
    is_cut: AtomicBool,
}

/// A frame on its way.
struct Frame {
    /// When it is there.
    due: Instant,
    bytes: Bytes,
    is_ack: bool,
}

fn relay(world: &Arc<World>, near: TcpStream, far: TcpStream) {
    world.lock().links += 1;
    let link = Arc::new(Link {
        near,
        far,
        pending: Mutex::default(),
        is_dark: AtomicBool::new(false),
        is_cut: AtomicBool::new(false),
    });
    spawn(world, &link, |world, link| {
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || send_off(world, &link.near, &sender));
            give(world, link, &receiver);
        });
    });
    spawn(world, &link, |world, link| {
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || pass_back(world, link, &receiver));
            take(world, link, &sender);
            drop(sender);
        });
        let _ = link.near.shutdown(Shutdown::Both);
        world.lock().links -= 1;
        world.changed.notify_all();
    });
}

fn spawn(world: &Arc<World>, link: &Arc<Link>, run: fn(&World, &Link)) {
    let (world, link) = (world.clone(), link.clone());
    std::thread::spawn(move || run(&world, &link));
}

/// Puts every request on its way.
fn send_off(world: &World, near: &TcpStream, line: &Sender<Frame>) {
    let mut last = Instant::now();
    while let Ok(Some(frame)) = read_frame(&mut &*near) {
        last = last.max(Instant::now() + world.lock().delay());
        let frame = Frame {
            due: last,
            bytes: frame,
            is_ack: false,
        };
        if line.send(frame).is_err() {
            return;
        }
    }
}

/// Gives requests to the far side as they arrive.
fn give(world: &World, link: &Link, line: &Receiver<Frame>) {
    for Frame { due, bytes, .. } in line {
        wait_until(due);
        if link.is_cut.load(Ordering::Relaxed) {
            break;
        }
        if let Some((correlation, version, keys)) = produce_request(&bytes) {
            world.lock().give(&keys);
            let mut pending = link.pending.lock().expect("no line panicked");
            pending.insert(correlation, (version, keys));
        }
        if (&link.far).write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = link.far.shutdown(Shutdown::Write);
}

/// Takes answers from the far side, to its last, whether they pass or not.
fn take(world: &World, link: &Link, line: &Sender<Frame>) {
    let mut last = Instant::now();
    while let Ok(Some(bytes)) = read_frame(&mut &link.far) {
        let correlation = (&bytes[4..]).get_i32();
        let mut pending = link.pending.lock().expect("no line panicked");
        let answered = pending.remove(&correlation);
        drop(pending);
        let mut state = world.lock();
        let acked = answered.map_or_else(Vec::new, |(version, keys)| {
            successes(&bytes, version, &keys, &mut state.tally.errors)
        });
        let is_ack = !acked.is_empty();
        match state.take(&acked, link.is_dark.load(Ordering::Relaxed)) {
            Fate::Passes => {
                last = last.max(Instant::now() + state.delay());
                let frame = Frame {
                    due: last,
                    bytes,
                    is_ack,
                };
                line.send(frame).expect("its other end waits for this one");
            }
            Fate::Dark => {
                state.tally.lost_acks += u64::from(is_ack);
                link.is_dark.store(true, Ordering::Relaxed);
            }
            Fate::Cut => {
                state.tally.lost_acks += 1;
                link.is_dark.store(true, Ordering::Relaxed);
                link.is_cut.store(true, Ordering::Relaxed);
                let _ = link.near.shutdown(Shutdown::Both);
            }
        }
        drop(state);
        world.changed.notify_all();
    }
}

/// Passes answers to the client as they arrive.
fn pass_back(world: &World, link: &Link, line: &Receiver<Frame>) {
    for Frame { due, bytes, is_ack } in line {
        wait_until(due);
        let is_lost =
            link.is_cut.load(Ordering::Relaxed) || (&link.near).write_all(&bytes).is_err();
        world.lock().tally.lost_acks += u64::from(is_lost && is_ack);
    }
}

fn wait_until(due: Instant) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the time that a frame takes is what this is for"
    )]
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}
