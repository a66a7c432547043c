//! How long a client may be silent, or slow.
//!
//! A connection is idle when nothing is open on it and neither side says a
//! word. A request that has begun to arrive must go on arriving: a client that
//! sends a byte now and then would keep a place for ever. Both are looked at
//! when the session waits anyway, and cost a request nothing.

use super::end::End;
use super::moment::Moment;
use super::route::RequestStage;
use super::{CLIENT_OUT_MAX, Due, Leaving, Session};
use std::time::Duration;

/// Bytes of a request that must come in a second, on an average over
/// `timeouts.request`: less than any line carries that a client could use.
const LEAST_PACE: u128 = 1024;

/// What has come of a client, and when.
pub(super) struct Pace {
    /// When it last said anything.
    said: Moment,
    /// How many bytes have come.
    bytes: u64,
    /// Since when a request is awaited of which a part has come.
    awaited: Option<Awaited>,
}

/// A request that has begun to arrive.
#[derive(Clone, Copy)]
struct Awaited {
    since: Moment,
    /// How many bytes had come then, and how many requests.
    bytes: u64,
    requests: u64,
}

impl Pace {
    pub(super) fn from(now: Moment) -> Self {
        Self {
            said: now,
            bytes: 0,
            awaited: None,
        }
    }

    /// More bytes have come.
    pub(super) fn came(&mut self, bytes: usize, now: Moment) {
        self.bytes += bytes as u64;
        self.said = now;
    }

    fn awaited_since(&mut self, requests: u64, now: Moment) -> Awaited {
        if let Some(awaited) = self.awaited
            && awaited.requests == requests
        {
            return awaited;
        }
        let awaited = Awaited {
            since: now,
            bytes: self.bytes,
            requests,
        };
        self.awaited = Some(awaited);
        awaited
    }
}

impl Session {
    /// Until when the rest of a request may take at the pace of the client.
    pub(super) fn slow_due(&mut self) -> Option<(Moment, Due)> {
        let patience = self.config.timeouts.request;
        if !self.awaits_rest() || patience.is_zero() {
            // Only where there is one: most requests come whole.
            if self.pace.awaited.is_some() {
                self.pace.awaited = None;
            }
            return None;
        }
        let awaited = self.pace.awaited_since(self.requests, self.now);
        Some((awaited.since.after(patience), Due::Rest(patience)))
    }

    /// The client has had its time: ends the session unless enough has come.
    pub(super) fn look_at_pace(&mut self, patience: Duration) -> Result<(), End> {
        let Some(awaited) = self.pace.awaited.take() else {
            return Ok(());
        };
        let came = self.pace.bytes - awaited.bytes;
        if is_enough(came, patience) {
            return Ok(());
        }
        Err(End::Slow(patience))
    }

    /// Whether nothing but the client keeps a request from being served.
    fn awaits_rest(&self) -> bool {
        let unfinished = !self.inbox.is_empty() || !matches!(self.request, RequestStage::Head);
        let reads = || {
            self.blocked.is_none()
                && !self.client_eof
                && self.leaving != Leaving::Left
                && self.orphan.is_none()
                && self.to_upstream.is_empty()
                && self.to_client.len() < CLIENT_OUT_MAX
        };
        // One that was asked for before is served first.
        let alone = || self.pipeline.front().is_none_or(|owed| owed.sent.is_none());
        unfinished && reads() && alone()
    }

    /// Until when neither side may say anything, with nothing open.
    pub(super) fn idle_due(&self) -> Option<(Moment, Due)> {
        let patience = self.config.timeouts.idle;
        if patience.is_zero() || !self.has_nothing_open() {
            return None;
        }
        let said = self.pace.said.max(self.heard).max(self.taken);
        Some((said.after(patience), Due::Idle(patience)))
    }

    fn has_nothing_open(&self) -> bool {
        self.pipeline.is_empty()
            && self.inbox.is_empty()
            && matches!(self.request, RequestStage::Head)
            && self.blocked.is_none()
            && self.to_upstream.is_empty()
            && self.to_client.is_empty()
            && self.mail.is_empty()
            && self.reply.at_head()
            && self.readback.is_none()
            && self.orphan.is_none()
    }
}

/// Whether so many bytes are enough for that time.
fn is_enough(bytes: u64, time: Duration) -> bool {
    u128::from(bytes) * 1000 >= LEAST_PACE * time.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_a_second_is_too_slow_and_a_kibibyte_is_not() {
        let minute = Duration::from_secs(60);
        assert!(!is_enough(60, minute));
        assert!(!is_enough(60 * 1024 - 1, minute));
        assert!(is_enough(60 * 1024, minute));
        assert!(is_enough(1, Duration::ZERO));
    }

    #[test]
    fn each_request_has_its_own_time() {
        let at = |seconds| Moment::of_age(Duration::from_secs(seconds));
        let mut pace = Pace::from(at(0));
        pace.came(10, at(1));
        let first = pace.awaited_since(0, at(1));
        pace.came(10, at(2));
        assert!(pace.awaited_since(0, at(2)).since == first.since);
        let next = pace.awaited_since(1, at(3));
        assert!(next.since == at(3) && next.bytes == 20);
    }
}
