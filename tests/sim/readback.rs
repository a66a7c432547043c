//! The read-back of the log: what hapax looks up before it forwards a retry
//! of unknown outcome, and before it believes a 45 (SEMANTICS 7.6).
//!
//! It reads at one time and acts at a later one: the log moves in between, a
//! high watermark lags behind the leader's end, a leader is not there.

use super::broker::Batch;
use super::proxy::Counts;
use super::world::{Event, Response, World};
use hapax::ledger::WindowKey;
use hapax::window::{Ack, Arrival, Verdict};

/// The leader may take this long to be asked, and as long to answer.
const DELAY: u64 = 8;
/// Of reads, those that come to no end in time, per thousand.
const TIMEOUTS: u64 = 30;
/// After which the log is not waited for.
const READ_MAX: u64 = 2_000;

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub batch: Batch,
    pub key: WindowKey,
    /// How it came, for one that waits to be forwarded.
    pub arrival: Option<Arrival>,
    pub from: i64,
    found: Option<i64>,
    /// The log was read.
    read: bool,
}

impl Wanted {
    pub fn new(batch: Batch, key: WindowKey, arrival: Option<Arrival>, from: i64) -> Self {
        Self {
            batch,
            key,
            arrival,
            from,
            found: None,
            read: false,
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
        if self.rng.chance(TIMEOUTS) {
            self.at(READ_MAX, Event::ReadDone(conn, for_request));
        } else {
            let delay = self.rng.between(1, DELAY);
            self.at(delay, Event::Read(conn, for_request));
        }
    }

    /// The leader answers the Fetch: what is below its high watermark.
    pub fn read(&mut self, conn: usize, for_request: bool) {
        let mut readings = std::mem::take(&mut self.conns[conn].session.readings);
        let wanted = if for_request {
            readings.request.as_mut()
        } else {
            readings.response.as_mut().map(|(_, wanted)| wanted)
        };
        for wanted in wanted.into_iter().flatten() {
            let leader = self.partitions[wanted.batch.partition].leader;
            if !self.is_down(leader) {
                wanted.read = true;
                let partition = &self.partitions[wanted.batch.partition];
                wanted.found = partition.find(&wanted.batch, wanted.from);
            }
        }
        self.conns[conn].session.readings = readings;
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
            if !wanted.read {
                self.proxy(conn).counts.blind += u64::from(wanted.batch.count);
            }
            let ledger = self.proxy(conn).ledger();
            let found = wanted
                .found
                .and_then(|offset| ledger.found(wanted.key, &arrival, ack(offset)));
            match found {
                Some((verdict, _)) => {
                    let place = wanted.batch.partition;
                    self.proxy(conn).counts.found += 1;
                    let readings = &mut self.conns[conn].session.readings;
                    readings.verdicts.push((place, verdict));
                }
                None => ledger.asked(wanted.key, &arrival.batch),
            }
        }
        self.take_requests(conn);
    }

    fn response_read(&mut self, conn: usize) {
        let readings = &mut self.conns[conn].session.readings;
        let Some((response, wanted)) = readings.response.take() else {
            return;
        };
        let found: Vec<(usize, i64)> = (wanted.iter())
            .filter_map(|w| Some((w.batch.partition, w.found?)))
            .collect();
        self.proxy(conn).counts.found += found.len() as u64;
        self.deal_with(conn, response, &found);
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
