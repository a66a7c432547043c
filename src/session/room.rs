//! What a session keeps in memory, and may keep.
//!
//! It accounts for what it keeps beyond the guaranteed amounts after the fact,
//! which is one comparison for a session that keeps nothing. Where memory is
//! scarce it reads in pieces of the guaranteed amount, and more only of what it
//! could reserve as a whole: then it waits for nothing but its peer. Whoever
//! holds memory then and moves nothing, or waits for too long, is closed.

use super::end::End;
use super::moment::Moment;
use super::route::RequestStage;
use super::settle::Sent;
use super::topics::TopicCache;
use super::{CLIENT_OUT_MAX, FIRST_PART, HELD_READ_MAX, Session};
use crate::memory::{COPIES, GUARANTEED, in_steps};
use crate::metrics::Limit;
use std::time::Duration;

/// What the price of a connection contains: both directions.
const FREE: usize = 2 * GUARANTEED;
/// What is collected of a frame without asking whether there is room, as long
/// as memory is not scarce.
const SMALL: usize = 1024 * 1024;
/// How long one may hold memory that others need and move next to nothing.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// How long one waits for memory.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often it is looked whether there is some.
const GLANCE: Duration = Duration::from_millis(50);
/// What a look-up that is kept takes, of a topic and of a producer.
const TOPIC: usize = 512;
const PRODUCER: usize = 64;

/// A session's part of the memory.
#[derive(Default)]
pub(super) struct Room {
    /// What is accounted for beyond the guaranteed amounts.
    share: usize,
    /// What of that was reserved for a frame before it came.
    promised: Parts,
    /// How much of a frame was wanted when it was last accounted for as a whole.
    accounted: Parts,
    /// Since when it waits for memory.
    waits_since: Option<Moment>,
    /// When to look for memory again.
    look: Option<Moment>,
    /// When it was last looked whether it moves anything, and how much it had
    /// moved by then.
    moved: Option<(Moment, u64)>,
}

impl Room {
    /// Whether there is nothing to look at again.
    pub(super) fn is_quiet(&self) -> bool {
        self.look.is_none() && self.moved.is_none()
    }
}

#[derive(Default)]
struct Parts {
    client: usize,
    upstream: usize,
}

/// What a direction has read of a frame, and what it wants of it.
#[derive(Clone, Copy)]
struct Frame {
    carried: usize,
    wanted: usize,
    promised: usize,
    accounted: usize,
    /// What it costs to have it whole.
    whole: usize,
}

impl Session {
    /// How much may be read of the client; `None` where nothing may.
    #[inline]
    pub(super) fn client_allowance(&mut self) -> Option<usize> {
        if self.inbox_wanted <= SMALL && !self.shared.memory.is_scarce() {
            return Some(usize::MAX);
        }
        self.scarce_of_client()
    }

    /// The same of the broker.
    #[inline]
    pub(super) fn upstream_allowance(&mut self) -> Option<usize> {
        if self.mail_wanted <= SMALL && !self.shared.memory.is_scarce() {
            return Some(usize::MAX);
        }
        self.scarce_of_upstream()
    }

    #[cold]
    fn scarce_of_client(&mut self) -> Option<usize> {
        let carried = self.inbox.len();
        if self.collecting.is_some() {
            // There is room for all of it.
            return Some(self.inbox_wanted.saturating_sub(carried).max(GUARANTEED));
        }
        if self.blocked.is_some() {
            return Some(self.held_read_max().saturating_sub(carried)).filter(|left| *left > 0);
        }
        let wanted = self.inbox_wanted;
        let frame = Frame {
            carried,
            wanted,
            promised: self.room.promised.client,
            accounted: self.room.accounted.client,
            whole: wanted,
        };
        let (left, promised) = self.allow(frame);
        self.room.promised.client = promised;
        left
    }

    #[cold]
    fn scarce_of_upstream(&mut self) -> Option<usize> {
        let carried = self.mail.len();
        let (wanted, whole) = match self.mail_wanted {
            // Whatever comes until the log has been read, which has an end.
            usize::MAX => (carried + FIRST_PART, carried + FIRST_PART),
            wanted if wanted > SMALL => (wanted, wanted.saturating_mul(COPIES)),
            wanted => (wanted, wanted),
        };
        let frame = Frame {
            carried,
            wanted,
            promised: self.room.promised.upstream,
            accounted: self.room.accounted.upstream,
            whole,
        };
        let (left, promised) = self.allow(frame);
        self.room.promised.upstream = promised;
        left
    }

    /// How much may be read of a frame, and what is promised to it then.
    fn allow(&mut self, frame: Frame) -> (Option<usize>, usize) {
        let Frame {
            carried,
            wanted,
            promised,
            accounted,
            whole,
        } = frame;
        // What was kept when there was plenty is accounted for as a whole.
        let own = promised >= whole || (carried > GUARANTEED && wanted <= accounted);
        if own && wanted > carried {
            return (Some(wanted - carried), promised);
        }
        if wanted > carried.max(GUARANTEED) {
            let more = in_steps(whole).saturating_sub(promised);
            if self.shared.memory.try_take(more) {
                self.room.share += more;
                (self.room.look, self.room.waits_since) = (None, None);
                return (Some(wanted - carried), promised + more);
            }
        }
        if carried < GUARANTEED {
            return (Some(GUARANTEED - carried), promised);
        }
        self.wait_for_room();
        (None, promised)
    }

    fn wait_for_room(&mut self) {
        if self.room.waits_since.is_none() {
            self.room.waits_since = Some(self.now);
            self.shared.metrics.limit_reached.with(Limit::Memory).inc();
        }
        self.room.look = Some(self.now.after(GLANCE));
    }

    /// What may be read behind a held request.
    pub(super) fn held_read_max(&self) -> usize {
        if self.shared.memory.is_scarce() {
            GUARANTEED
        } else {
            HELD_READ_MAX
        }
    }

    /// Whether the client has to read some of its answers first.
    pub(super) fn owes_reading(&self) -> bool {
        let waits = self.to_client.len() + self.pipeline.ready_bytes();
        waits > 0
            && (waits >= CLIENT_OUT_MAX || (waits >= GUARANTEED && self.shared.memory.is_scarce()))
    }

    /// Accounts for what is kept.
    #[inline]
    pub(super) fn account(&mut self) {
        let Room {
            share,
            waits_since,
            moved,
            ..
        } = &self.room;
        let active = *share > 0 || waits_since.is_some() || moved.is_some();
        // What is collected has a share of its own, and must move too.
        if active || self.collecting.is_some() || self.kept() > FREE {
            self.account_for_all();
        }
    }

    #[cold]
    fn account_for_all(&mut self) {
        if self.room.look.is_none() {
            self.room.waits_since = None;
        }
        if self.inbox.is_empty() {
            self.room.promised.client = 0;
        }
        if self.mail.is_empty() {
            self.room.promised.upstream = 0;
        }
        // A request that streams is still compared with them.
        let streams = matches!(self.request, RequestStage::Walk(_));
        if self.shared.memory.is_scarce() && !streams {
            // Only look-ups, which can be made again.
            self.topics = TopicCache::default();
        }
        let inbox = reserved(&self.inbox, self.inbox_wanted, self.room.promised.client);
        let mail = reserved(&self.mail, self.mail_wanted, self.room.promised.upstream);
        let needs = self.kept() + inbox + mail;
        let share = if needs > FREE { in_steps(needs) } else { 0 };
        let memory = &self.shared.memory;
        match share.checked_sub(self.room.share) {
            Some(more) => memory.take(more),
            None => memory.give(self.room.share - share),
        }
        self.room.share = share;
        self.room.accounted = match share {
            0 => Parts::default(),
            _ => Parts {
                client: whole(&self.inbox, self.inbox_wanted),
                upstream: whole(&self.mail, self.mail_wanted),
            },
        };
        if share == 0 && self.collecting.is_none() {
            self.room.moved = None;
        } else if self.room.moved.is_none() {
            self.room.moved = Some((self.now, self.moved()));
        }
    }

    /// Bytes that are kept, for which there has to be room.
    fn kept(&self) -> usize {
        let topics = self.topics.len() * TOPIC;
        let producers = self.producers.len() * PRODUCER;
        let tickets = self.tickets.capacity() * size_of::<Sent>();
        self.buffered() + topics + producers + tickets
    }

    fn buffered(&self) -> usize {
        let inbox = match self.collecting {
            Some(_) => 0,
            None => self.inbox.capacity(),
        };
        let out = self.to_upstream.kept() + self.to_client.kept();
        inbox + self.mail.capacity() + out + self.pipeline.ready_bytes()
    }

    /// A measure of what the session has moved.
    fn moved(&self) -> u64 {
        let written = self.to_upstream.written() + self.to_client.written();
        let kept = self.inbox.len() + self.mail.len();
        written + kept as u64 + self.requests * GUARANTEED as u64
    }

    /// When to look at the memory next.
    pub(super) fn room_due(&self) -> Option<Moment> {
        let hold = self.room.moved.map(|(since, _)| since.after(HOLD_MAX));
        self.room.look.into_iter().chain(hold).min()
    }

    /// Looks at the memory.
    pub(super) fn look_at_room(&mut self) -> Result<(), End> {
        if self.room.look.is_some_and(|look| look <= self.now) {
            self.room.look = None;
            let since = self.room.waits_since;
            if since.is_some_and(|since| since.after(WAIT_MAX) <= self.now) {
                return Err(End::Memory(NEVER_CAME));
            }
        }
        let Some((since, before)) = self.room.moved else {
            return Ok(());
        };
        if since.after(HOLD_MAX) > self.now {
            return Ok(());
        }
        let moved = self.moved();
        let stands = moved.saturating_sub(before) < GUARANTEED as u64;
        let holds = self.collecting.is_some() || self.buffered() > FREE;
        if stands && holds && self.shared.memory.is_scarce() {
            return Err(End::Memory(STOOD_STILL));
        }
        self.room.moved = Some((self.now, moved));
        Ok(())
    }

    /// Gives everything back.
    pub(super) fn leave_room(&mut self) {
        self.shared
            .memory
            .give(std::mem::take(&mut self.room.share));
    }
}

/// What has to be there for a frame beyond what its buffer has.
fn reserved(buffer: &Vec<u8>, wanted: usize, promised: usize) -> usize {
    let wanted = whole(buffer, wanted);
    wanted.max(promised).saturating_sub(buffer.capacity())
}

/// The frame that is accounted for as a whole since a part of it is kept.
fn whole(buffer: &[u8], wanted: usize) -> usize {
    let known = buffer.len() > GUARANTEED && wanted <= SMALL;
    if known { wanted } else { 0 }
}

const NEVER_CAME: &str =
    "memory.limit was reached, and there was no memory for its next frame within 30 s";
const STOOD_STILL: &str =
    "memory.limit was reached, and it held memory for 10 s without sending or reading anything";
