//! The read-back of the log: what hapax looks up before it forwards a retry
//! of unknown outcome, and before it believes a 45 (SEMANTICS 7.6).
//!
//! It reads at one time and acts at a later one: the log moves in between, a
//! high watermark lags behind the leader's end and is waited for, a leader is
//! not there.

use super::broker::Batch;
use super::proxy::Counts;
use super::world::{Event, Response, World};
use hapax::ledger::WindowKey;
use hapax::window::{Ack, Action, Arrival, Verdict};

/// The leader may take this long to be asked, and as long to answer.
const DELAY: u64 = 8;
/// Of reads, those that come to no end in time, per thousand.
const TIMEOUTS: u64 = 30;
/// After which the log is not waited for.
const READ_MAX: u64 = 2_000;
/// A broker waits so long for more to show.
const WAIT: u64 = 100;

/// What the log showed of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    At(i64),
    Absent,
    /// It may stand above the high watermark.
    NotYet,
    /// There was no leader to be asked.
    Nothing,
}

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub batch: Batch,
    pub key: WindowKey,
    /// How it came, for one that waits to be forwarded.
    pub arrival: Option<Arrival>,
    /// Where nothing is known before it, it is found by the time of its records.
    pub from: Option<i64>,
    pub shown: Shown,
}

impl Wanted {
    pub fn new(batch: Batch, key: WindowKey, arrival: Option<Arrival>, from: Option<i64>) -> Self {
        Self {
            batch,
            key,
            arrival,
            from,
            shown: Shown::NotYet,
        }
    }
}

/// One side of a session that waits for the log.
#[derive(Default)]
pub struct Readings {
    /// For the request at the head.
    pub request: Option<Vec<Wanted>>,
    /// How the head's batches are answered that were found.
    pub verdicts: Vec<(usize, Verdict)>,
    /// For a response that has come, and those behind it.
    pub response: Option<(Response, Vec<Wanted>)>,
    pub responses: std::collections::VecDeque<Response>,
    /// The broker's end was closed behind them.
    pub upstream_gone: bool,
    /// When either is waited for no more.
    until: u64,
}

/// What an acknowledgement says that was read in the log.
pub fn ack(offset: i64) -> Ack {
    Ack {
        offset,
        append_time: -1,
        log_start: None,
    }
}

impl World {
    /// Begins to read for the request at the head of a session, or for a
    /// response that it was sent.
    pub fn begin_read(&mut self, conn: usize, for_request: bool, counts: fn(&mut Counts)) {
        counts(&mut self.proxy(conn).counts);
        self.conns[conn].session.readings.until = self.now + READ_MAX;
        if self.rng.chance(TIMEOUTS) {
            self.at(READ_MAX, Event::ReadDone(conn, for_request));
        } else {
            let delay = self.rng.between(1, DELAY);
            self.at(delay, Event::Read(conn, for_request));
        }
    }

    /// The leader answers the Fetch: what is below its high watermark; and
    /// says whether there is more.
    pub fn read(&mut self, conn: usize, for_request: bool) {
        let mut readings = std::mem::take(&mut self.conns[conn].session.readings);
        let wanted = if for_request {
            readings.request.as_mut()
        } else {
            readings.response.as_mut().map(|(_, wanted)| wanted)
        };
        let mut is_late = false;
        for wanted in wanted.into_iter().flatten() {
            let partition = &self.partitions[wanted.batch.partition];
            wanted.shown = match partition.find(&wanted.batch, wanted.from.unwrap_or(0)) {
                _ if self.is_down(partition.leader) => Shown::Nothing,
                Some(offset) => Shown::At(offset),
                None if partition.shows_all() => Shown::Absent,
                None => Shown::NotYet,
            };
            is_late |= wanted.shown == Shown::NotYet;
        }
        let waits = is_late && self.now + WAIT < readings.until;
        self.conns[conn].session.readings = readings;
        if waits {
            self.at(WAIT, Event::Read(conn, for_request));
            return;
        }
        let delay = self.rng.between(1, DELAY);
        self.at(delay, Event::ReadDone(conn, for_request));
    }

    /// What was read reaches the session.
    pub fn read_done(&mut self, conn: usize, for_request: bool) {
        if for_request {
            self.request_read(conn);
        } else {
            self.response_read(conn);
        }
    }

    fn request_read(&mut self, conn: usize) {
        let Some(wanted) = self.conns[conn].session.readings.request.take() else {
            return;
        };
        for wanted in wanted {
            let arrival = wanted.arrival.expect("a request waits to be forwarded");
            let counts = &mut self.proxy(conn).counts;
            counts.found += u64::from(matches!(wanted.shown, Shown::At(_)));
            if wanted.shown == Shown::Nothing {
                counts.blind += u64::from(wanted.batch.count);
            }
            let ledger = self.proxy(conn).ledger();
            let verdict = match wanted.shown {
                Shown::At(offset) => {
                    let found = ledger.found(wanted.key, &arrival, ack(offset));
                    found.map(|(verdict, _)| verdict)
                }
                Shown::NotYet => ledger.unread(wanted.key, &arrival, Action::Defer),
                Shown::Nothing => ledger.unread(wanted.key, &arrival, Action::Forward),
                Shown::Absent => {
                    ledger.asked(wanted.key, &arrival.batch);
                    None
                }
            };
            let place = wanted.batch.partition;
            let readings = &mut self.conns[conn].session.readings;
            readings
                .verdicts
                .extend(verdict.map(|verdict| (place, verdict)));
        }
        self.take_requests(conn);
    }

    fn response_read(&mut self, conn: usize) {
        let readings = &mut self.conns[conn].session.readings;
        let Some((response, wanted)) = readings.response.take() else {
            return;
        };
        let shown: Vec<(usize, Shown)> = (wanted.iter())
            .map(|wanted| (wanted.batch.partition, wanted.shown))
            .collect();
        let found = shown.iter().filter(|(_, s)| matches!(s, Shown::At(_)));
        self.proxy(conn).counts.found += found.count() as u64;
        self.deal_with(conn, response, &shown);
        while self.conns[conn].session.readings.response.is_none() {
            let Some(next) = self.conns[conn].session.readings.responses.pop_front() else {
                break;
            };
            self.response_came(conn, next);
        }
        let readings = &self.conns[conn].session.readings;
        if readings.upstream_gone && readings.response.is_none() {
            self.upstream_gone(conn);
        }
    }
}
