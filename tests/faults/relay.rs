//! A network that fails when told to: everything passes, answers to Produce
//! requests get lost, or nobody gets through.
//!
//! An answer is lost after the far side gave it, so that what it acknowledges
//! is written: its connection is cut, or stays open and brings nothing more,
//! until the client gives up on it.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::listeners::Listeners;
use crate::raw::read_frame;
use crate::tools::Random;
use crate::trace;

const PRODUCE: [u8; 2] = [0, 0];

/// What becomes of what passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weather {
    Calm,
    /// One in about `one_in` answers to Produce requests is lost; `dark_in_four`
    /// of four such connections stay open, the others are cut.
    Losing {
        one_in: u64,
        dark_in_four: u64,
    },
    /// Every answer to a Produce request is lost, and its connection stays open.
    Silent,
    /// Every connection is cut and every new one turned away.
    Closed,
}

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) lost: u64,
    /// Answers to Produce requests that passed.
    pub(crate) passed: u64,
}

struct State {
    weather: Weather,
    random: Random,
    /// A client that is gone leaves its connection to the far side open.
    is_half_open: bool,
    links: Vec<Arc<Link>>,
    tally: Tally,
    /// For the trace.
    name: String,
    connections: usize,
}

/// Listens until dropped.
pub(crate) struct Relay {
    state: Arc<Mutex<State>>,
    _listeners: Listeners,
}

impl Relay {
    /// Connects clients at the first of each pair with the second.
    pub(crate) fn start(name: &str, seed: u64, pairs: &[(String, String)]) -> Self {
        let state = Arc::new(Mutex::new(State {
            weather: Weather::Calm,
            random: Random::new(seed),
            is_half_open: false,
            links: Vec::new(),
            tally: Tally::default(),
            name: name.to_owned(),
            connections: 0,
        }));
        let mut listeners = Listeners::default();
        for (from, to) in pairs {
            let state = state.clone();
            listeners.add(from, to, move |_, near, far| link(&state, near, far));
        }
        Self {
            state,
            _listeners: listeners,
        }
    }

    pub(crate) fn set(&self, weather: Weather) {
        let mut state = lock(&self.state);
        state.weather = weather;
        if weather == Weather::Closed {
            state.links.drain(..).for_each(|link| link.cut());
        }
    }

    /// From now on a client that is gone leaves its connection to the far side open, or no longer.
    pub(crate) fn set_half_open(&self, is_half_open: bool) {
        let mut state = lock(&self.state);
        state.is_half_open = is_half_open;
        if !is_half_open {
            let ended = |link: &Arc<Link>| link.has_ended.load(Ordering::Relaxed);
            state
                .links
                .iter()
                .filter(|link| ended(link))
                .for_each(|link| link.cut());
        }
    }

    /// Cuts connections that bring nothing more, as a client does that gives up.
    pub(crate) fn cut_dark(&self) {
        let state = lock(&self.state);
        let is_dark = |link: &&Arc<Link>| link.is_dark.load(Ordering::Relaxed);
        state
            .links
            .iter()
            .filter(is_dark)
            .for_each(|link| link.cut());
    }

    pub(crate) fn tally(&self) -> Tally {
        lock(&self.state).tally
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no relay panicked")
}

/// A client's connection and the one made for it.
struct Link {
    near: TcpStream,
    far: TcpStream,
    /// Of the relay, and of its connections: for the trace.
    name: String,
    id: usize,
    /// Of requests that were passed on and have no answer yet, oldest first: versions of Produce requests.
    /// Ids do not tell them apart: hapax has questions of its own.
    pending: Mutex<VecDeque<Option<i16>>>,
    is_dark: AtomicBool,
    /// The client is gone.
    has_ended: AtomicBool,
}

impl Link {
    fn cut(&self) {
        // Either may have been closed already.
        let _ = self.near.shutdown(Shutdown::Both);
        let _ = self.far.shutdown(Shutdown::Both);
    }
}

fn link(state: &Arc<Mutex<State>>, near: TcpStream, far: TcpStream) {
    let link = {
        let mut state = lock(state);
        state.connections += 1;
        let link = Arc::new(Link {
            near,
            far,
            name: state.name.clone(),
            id: state.connections,
            pending: Mutex::default(),
            is_dark: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        if state.weather == Weather::Closed {
            return link.cut();
        }
        state.links.push(link.clone());
        link
    };
    let (up_state, up_link) = (state.clone(), link.clone());
    std::thread::spawn(move || up(&up_state, &up_link));
    let state = state.clone();
    std::thread::spawn(move || {
        down(&state, &link);
        lock(&state)
            .links
            .retain(|other| !Arc::ptr_eq(other, &link));
    });
}

fn up(state: &Mutex<State>, link: &Link) {
    while let Ok(Some(frame)) = read_frame(&mut &link.near) {
        let is_produce = part(&frame, 4) == Some(PRODUCE);
        let version = is_produce.then(|| trace::version(&frame));
        let mut pending = link.pending.lock().expect("no relay panicked");
        pending.push_back(version);
        drop(pending);
        if is_produce {
            trace::request(&link.name, link.id, &frame);
        }
        if (&link.far).write_all(&frame).is_err() {
            return link.cut();
        }
    }
    link.has_ended.store(true, Ordering::Relaxed);
    if !lock(state).is_half_open {
        // What the far side has yet to say may still be heard.
        let _ = link.far.shutdown(Shutdown::Write);
    }
}

fn down(state: &Mutex<State>, link: &Link) {
    while let Ok(Some(frame)) = read_frame(&mut &link.far) {
        let mut pending = link.pending.lock().expect("no relay panicked");
        let version = pending.pop_front().flatten();
        drop(pending);
        let passes = match version {
            Some(version) => {
                trace::answer(&link.name, link.id, version, &frame);
                passes(&mut lock(state), link)
            }
            None => !link.is_dark.load(Ordering::Relaxed),
        };
        if passes && (&link.near).write_all(&frame).is_err() && !lock(state).is_half_open {
            break;
        }
    }
    link.cut();
}

/// Whether the answer to a Produce request reaches the client.
fn passes(state: &mut State, link: &Link) -> bool {
    if link.is_dark.load(Ordering::Relaxed) {
        state.tally.lost += 1;
        return false;
    }
    let goes_dark = match state.weather {
        Weather::Losing {
            one_in,
            dark_in_four,
        } if state.random.one_in(one_in) => state.random.below(4) < dark_in_four,
        Weather::Silent => true,
        Weather::Calm | Weather::Losing { .. } | Weather::Closed => {
            state.tally.passed += 1;
            return true;
        }
    };
    state.tally.lost += 1;
    if goes_dark {
        link.is_dark.store(true, Ordering::Relaxed);
    } else {
        link.cut();
    }
    false
}

fn part<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at + N)?.try_into().ok()
}
