//! One producer on one partition: what it sent, what the cluster said of it,
//! and what is to become of its next batch.
//!
//! Pure: no clock, no socket, no lock. The ledger keeps windows and hands in
//! the time; sessions ask [`Window::judge`], and tell what they did by
//! [`Window::commit`], [`Window::mirrored`], [`Window::absorbed`],
//! [`Window::deferred`] and [`Window::settle`], and what they read in the log
//! by [`Window::found`] and [`Window::asked`].
//!
//! ```text
//!             judge: Forward            settle: written
//!  (arrives) ───────────────▶ Sent ───────────────────────▶ a Fact in the ring
//!      │                       │ │
//!      │ judge: Mirror         │ └── 7, 20, a lost connection ──▶ Unknown
//!      ▼                       │                                    │
//!  NotWritten ◀── 6, 19, 45 … ─┘          WRITTEN ≻ UNKNOWN ≻ NOT_WRITTEN
//! ```
//!
//! Outcomes add up per identity: that a second attempt failed for certain
//! says nothing of the first, so an Unknown attempt stays Unknown beside it.

mod attempt;
mod fact;
mod former;
mod judge;
mod keep;
mod open;
mod outcome;
mod resolve;
mod settle;
mod shield;

#[cfg(test)]
mod tests;

use crate::ids::{BatchId, Epoch, NodeId, Sequence};
use attempt::{Attempt, State};
use fact::Ring;
use former::Former;
use open::Open;
use std::num::NonZeroU32;
use std::time::Duration;

pub use attempt::{AttemptId, OPEN_MAX};
pub use fact::{Ack, AckedBy};
pub use former::{Original, Resent};
pub use judge::INVALID_PRODUCER_EPOCH;
pub use keep::{Kept, KeptFact};
pub use outcome::{Outcome, REQUEST_TIMED_OUT, classify};
pub use settle::{Sender, Settled};

/// Seconds since a while before the process started; all the time a window needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub u32);

impl Time {
    /// The time at which the process has this age.
    #[must_use]
    pub fn of_age(age: Duration) -> Self {
        Self(u32::try_from(age.as_secs()).unwrap_or(u32::MAX))
    }

    /// Whether `self` lies no more than `span` before `now`.
    #[must_use]
    pub fn within(self, span: Duration, now: Self) -> bool {
        u64::from(now.0.saturating_sub(self.0)) <= span.as_secs()
    }
}

/// The upstream connection a batch goes to; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link(pub NonZeroU32);

/// Who a client has proven to be; equal for two sessions exactly when one may
/// be given the answers that the other earned (SEMANTICS 7.3, A5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Realm(pub NonZeroU32);

/// How many replicas must have a batch before the broker answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// `acks=-1`: all in-sync replicas.
    All,
    /// `acks=1`: the leader.
    Leader,
    /// `acks=0`: nobody, and no answer comes.
    None,
}

impl Acks {
    /// The acks of a request, or `None` for a value that brokers refuse (21).
    #[must_use]
    pub fn from_wire(raw: i16) -> Option<Self> {
        match raw {
            -1 => Some(Self::All),
            0 => Some(Self::None),
            1 => Some(Self::Leader),
            _ => None,
        }
    }
}

/// Whether hapax only counts, or also acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Every batch is forwarded as it comes.
    Observe,
    /// Duplicates are absorbed, order is kept.
    Absorb,
    /// The same, and a batch is refused that is proven stale.
    Enforce,
}

/// The operator's choices that windows follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Whether hapax acts on what it sees.
    pub mode: Mode,
    /// How long a fact may answer a retry and an open attempt may shape one.
    pub ttl: Duration,
    /// Facts kept, `1..=1024`.
    pub window_batches: usize,
    /// Whether duplicates of transactional batches are absorbed as well.
    pub absorb_transactional: bool,
    /// Whether a 45 that only follows from an open predecessor is shown to
    /// the client as the predecessor's error.
    pub shield45: bool,
}

/// A batch at the door, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Which batch it is.
    pub batch: BatchId,
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    /// What its request asks for.
    pub acks: Acks,
    /// Who sends it; `None` where that cannot be told, which forbids absorbing.
    pub realm: Option<Realm>,
    /// The broker it is addressed to, where known.
    pub node: Option<NodeId>,
    /// The connection it would leave on.
    pub link: Link,
    /// When it came.
    pub now: Time,
    /// Whether it may still wait for another batch.
    pub patient: bool,
    /// Whether its records are so old that a broker may forget its producer
    /// as soon as they are written, and the log can be read back.
    pub old: bool,
}

/// What a batch is (SEMANTICS 7.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The next one, or one that nothing known speaks against.
    InOrder,
    /// The first that this window sees of its producer (row 9).
    FirstSeen,
    /// Equal to an acknowledged batch (row 2).
    Duplicate,
    /// Equal to a batch that is on its way (row 3).
    DuplicateInFlight,
    /// Equal to a batch of unknown outcome (row 4).
    DuplicateUnknown,
    /// One that was never written, or a part of it, again (row 5).
    Retry,
    /// The sequence range of another batch with other bytes (row 2′).
    SequenceReuse,
    /// Parts of known batches, or older than all that is remembered (row 14).
    Overlap,
    /// Of an epoch below one that the cluster has accepted (row 6).
    StaleEpoch,
    /// The first batch of a higher epoch (row 7).
    NewEpoch,
    /// Of a higher epoch that did not begin here (row 8).
    NewEpochMidway,
    /// Sequence numbers are missing before it (rows 11 to 13).
    Gap(Gap),
}

/// Missing sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Whether the missing batch was seen to fail, or never seen.
    pub kind: GapKind,
    /// The sequence that should have come.
    pub expected: Sequence,
    /// How many sequence numbers are missing.
    pub missing: u32,
}

/// Why sequence numbers are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GapKind {
    /// The batch before it failed and has not come again.
    PredecessorFailed,
    /// The batch before it never came this way.
    NeverSeen,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send it on.
    Forward,
    /// Keep it until an earlier batch of the window is settled.
    Hold,
    /// Answer it with the cluster's earlier acknowledgement.
    Replay(Ack),
    /// Answer it with this error code; it was not forwarded.
    Mirror(i16),
    /// Look for it in the log: the broker may have forgotten it, and would
    /// write it a second time. [`Window::found`] says what is done then; else
    /// tell [`Window::asked`] and judge it again.
    Resolve,
    /// Answer it with this error code, for good: it is proven wrong.
    Refuse(i16),
    /// Answer it with [`REQUEST_TIMED_OUT`]: a copy of it may be written, or
    /// may yet be, and the broker would not know this one for a copy.
    Defer,
}

/// A judgement: what the batch is, and what is to be done.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What it is.
    pub class: Class,
    /// What is to be done.
    pub action: Action,
    /// Whether this occurrence is seen for the first time: retries of a
    /// flagged batch are not flagged again.
    pub first_time: bool,
    /// Whether it has the records of a batch of a former epoch, when it comes
    /// for the first time. See [`Window::original`].
    pub resent: Option<Resent>,
}

const _: () = assert!(size_of::<Verdict>() == 48);

/// What is known of one producer on one partition.
///
/// At most [`OPEN_MAX`] open attempts and `window_batches` facts.
#[derive(Debug)]
pub struct Window {
    /// The highest epoch in which the cluster acknowledged a batch here; every
    /// fact in `acked` is of it.
    epoch: Option<Epoch>,
    acked: Ring,
    open: Open,
    /// The connection whose batches may follow each other without waiting:
    /// the one on which the newest success came, until anything goes wrong.
    gate: Option<Link>,
    next_attempt: AttemptId,
    touched: Time,
    notes: Option<Box<Notes>>,
}

// With a million windows every field counts: of 224 bytes malloc leaves 216.
const _: () = assert!(size_of::<Window>() <= 216);

/// What there is to say of few windows only.
#[derive(Default, Debug)]
struct Notes {
    /// End of the newest batch sent with acks=0, after which nothing is known.
    blind_end: Option<Sequence>,
    /// CRC of the batch whose sequence re-use was flagged last.
    flagged_crc: u32,
    /// CRC of the batch that was refused last.
    refused_crc: u32,
    /// The missing sequence that was flagged last in this epoch.
    flagged_gap: Option<Sequence>,
    absorbed: u32,
    /// What was last looked for in the log: not again while it is on its way.
    asked_crc: u32,
    /// When a batch with old records last came.
    old_at: Option<Time>,
    /// Saturates; nobody counts further.
    gaps: u16,
    /// Whether a held request waits for this window to change.
    waited_for: bool,
    /// Batches in requests that are held, in the order in which they came.
    queued: Vec<Queued>,
    former: Former,
    /// Whether the topic was said to be gone, and not to be there since.
    is_gone: bool,
    /// Whether a batch was sent that is not in `open` any more, unsettled: of
    /// none can be said that it was not.
    has_forgotten: bool,
}

/// A batch that came and has not left: its request is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Queued {
    link: Link,
    epoch: Epoch,
    first: Sequence,
}

/// The notes of a window that has none.
static NO_NOTES: Notes = Notes {
    blind_end: None,
    flagged_crc: 0,
    refused_crc: 0,
    flagged_gap: None,
    absorbed: 0,
    asked_crc: 0,
    old_at: None,
    gaps: 0,
    waited_for: false,
    queued: Vec::new(),
    former: Former::NONE,
    is_gone: false,
    has_forgotten: false,
};

impl Window {
    /// A window that knows nothing.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            epoch: None,
            acked: Ring::default(),
            open: Open::default(),
            gate: None,
            next_attempt: AttemptId::default(),
            touched: now,
            notes: None,
        }
    }

    /// Notes that the batch leaves, and returns what to settle it by.
    ///
    /// `None`: it is forwarded untracked, because it asks for no answer or
    /// [`OPEN_MAX`] attempts are already on their way.
    #[must_use]
    pub fn commit(&mut self, arrival: &Arrival, verdict: &Verdict) -> Option<Committed> {
        let batch = arrival.batch;
        self.note(arrival, verdict);
        if self.epoch != Some(batch.epoch) {
            self.note_bump(arrival);
        }
        if self.gate != Some(arrival.link) {
            self.gate = None;
        }
        if arrival.acks == Acks::None {
            self.notes_mut().blind_end = Some(batch.end());
            return None;
        }
        self.acked.trust_only_leader(arrival.node);
        let trouble = !self.open.all(Attempt::is_sent);
        if trouble {
            self.drop_split_parent(&batch);
        }
        self.open.renew_patience_behind(batch.epoch, batch.first);
        let id = self.next_attempt.take();
        let gated = !self.gate_open(arrival);
        let sent = Attempt {
            batch: batch.into(),
            state: State::Sent { id },
            mirrors: 0,
        };
        let not_written = |a: &Attempt| matches!(a.state, State::NotWritten { .. });
        if trouble && let Some(again) = self.open.find_mut(|a| a.is(&batch) && not_written(a)) {
            *again = Attempt {
                mirrors: again.mirrors,
                ..sent
            };
        } else {
            if !self.has_room() {
                return None;
            }
            self.open.push(sent);
        }
        Some(Committed { id, gated })
    }

    /// Notes that the batch was answered with a mirrored error.
    pub fn mirrored(&mut self, arrival: &Arrival, verdict: &Verdict, code: i16) {
        self.note(arrival, verdict);
        let state = State::NotWritten {
            code,
            retriable: true,
            at: arrival.now,
        };
        if let Some(known) = self.open.find_mut(|a| a.is(&arrival.batch)) {
            known.mirrors = known.mirrors.saturating_add(1);
            // Another connection's copy may have left since this was judged.
            if matches!(known.state, State::NotWritten { .. }) {
                known.state = state;
            }
            return;
        }
        if self.has_room() {
            self.open.push(Attempt {
                batch: arrival.batch.into(),
                state,
                mirrors: 1,
            });
        }
    }

    /// Notes that the batch was answered from the ring. The broker did not
    /// see it, so the next batch must again prove that it is in order there.
    pub fn absorbed(&mut self, arrival: &Arrival, verdict: &Verdict) {
        self.note(arrival, verdict);
        let notes = self.notes_mut();
        notes.absorbed = notes.absorbed.saturating_add(1);
        self.gate = None;
    }

    /// Notes that the batch came and was put off. Clients send it again, and
    /// before what follows it.
    pub fn deferred(&mut self, arrival: &Arrival, verdict: &Verdict) {
        self.note(arrival, verdict);
        let BatchId { epoch, first, .. } = arrival.batch;
        self.open.renew_patience_behind(epoch, first);
        let settled = |a: &Attempt| a.is(&arrival.batch) && !a.is_sent();
        if let Some(copy) = self.open.find_mut(settled) {
            copy.mirrors = copy.mirrors.saturating_add(1);
        }
        self.gate = None;
    }

    /// Notes that the batch was refused, which says nothing of any other.
    /// Returns where the log began, which brokers say beside the error.
    pub fn refused(&mut self, arrival: &Arrival, verdict: &Verdict) -> Option<i64> {
        self.note(arrival, verdict);
        self.notes_mut().refused_crc = arrival.batch.crc;
        (self.acked.log_start >= 0).then_some(self.acked.log_start)
    }

    /// Forgets every fact: the log is not the one they were about.
    pub fn forget(&mut self) {
        self.acked.clear();
        if let Some(notes) = &mut self.notes {
            notes.former.clear();
        }
        self.gate = None;
    }

    /// Notes that a batch came whose request is held: what follows it on other
    /// connections, and came later, waits until the request leaves. A
    /// connection holds one request at a time.
    pub fn queue(&mut self, batch: &BatchId, link: Link) {
        let queued = &mut self.notes_mut().queued;
        if !queued.iter().any(|q| q.link == link) {
            queued.push(Queued {
                link,
                epoch: batch.epoch,
                first: batch.first,
            });
        }
    }

    /// The request of this connection is held no more. Returns whether others
    /// wait for this window to change.
    pub fn unqueue(&mut self, link: Link) -> bool {
        let Some(notes) = &mut self.notes else {
            return false;
        };
        notes.queued.retain(|q| q.link != link);
        self.take_waited_for()
    }

    /// Whether nothing pins this window and no fact in it can be used again.
    #[must_use]
    pub fn idle(&self, span: Duration, now: Time) -> bool {
        !self.touched.within(span, now) && !self.open.iter().any(|a| a.is_sent())
    }

    /// Gives back room that a window has no use for which saw no batch for
    /// so long: there are many more windows than batches on their way.
    pub fn rest(&mut self, span: Duration, now: Time) {
        if !self.touched.within(span, now) {
            self.open.give_back_room();
        }
        if self.keeps_former() {
            self.expire_former(now);
        }
    }

    /// Whether the cluster has never acknowledged a batch here: anybody can
    /// send batches that it refuses.
    #[must_use]
    pub fn unproven(&self) -> bool {
        self.epoch.is_none()
    }

    /// A held request waits for this window to change.
    pub fn wait_for(&mut self) {
        self.notes_mut().waited_for = true;
    }

    /// What an operator sees of it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            epoch: self
                .epoch
                .or_else(|| self.open.iter().next_back().map(|a| a.batch.epoch)),
            last_acked: self.acked.last().map(|f| (f.last(), f.last_offset())),
            absorbed: self.notes().absorbed,
            gaps: u32::from(self.notes().gaps),
            touched: self.touched,
        }
    }

    #[inline]
    fn note(&mut self, arrival: &Arrival, verdict: &Verdict) {
        self.touched = arrival.now;
        if arrival.old {
            self.notes_mut().old_at = Some(arrival.now);
        }
        match verdict.class {
            Class::SequenceReuse => self.notes_mut().flagged_crc = arrival.batch.crc,
            Class::Gap(gap) if verdict.first_time => self.flag_gap(gap.expected),
            _ => {}
        }
    }

    fn flag_gap(&mut self, expected: Sequence) {
        let notes = self.notes_mut();
        notes.flagged_gap = Some(expected);
        notes.gaps = notes.gaps.saturating_add(1);
    }

    /// Whether a held request waited for this window, which none does from now on.
    fn take_waited_for(&mut self) -> bool {
        let notes = self.notes.as_mut();
        notes.is_some_and(|notes| std::mem::take(&mut notes.waited_for))
    }

    fn notes(&self) -> &Notes {
        self.notes.as_deref().unwrap_or(&NO_NOTES)
    }

    fn notes_mut(&mut self) -> &mut Notes {
        self.notes.get_or_insert_default()
    }

    /// Whether there is room for one more attempt, and notes if one is
    /// forgotten for it, or is not remembered, that may be in the log.
    #[inline]
    fn has_room(&mut self) -> bool {
        let forgotten = self.open.make_room();
        if !matches!(forgotten, Some(None | Some(State::NotWritten { .. }))) {
            self.notes_mut().has_forgotten = true;
        }
        forgotten.is_some()
    }

    fn gate_open(&self, arrival: &Arrival) -> bool {
        self.gate == Some(arrival.link) && self.epoch == Some(arrival.batch.epoch)
    }

    /// A part of a batch that was never written replaces it (Java splits a
    /// batch that is too large, keeping its sequence range).
    fn drop_split_parent(&mut self, part: &BatchId) {
        let parent = |a: &Attempt| {
            matches!(a.state, State::NotWritten { .. })
                && a.batch.contains(part)
                && !a.batch.same_range(part)
        };
        self.open.retain(|a| !parent(a));
    }
}

/// What [`Window::commit`] leaves in the sender's hands.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Settle the attempt by this.
    pub id: AttemptId,
    /// Whether the batch left behind a closed gate: until it is settled its
    /// producer is not calm.
    pub gated: bool,
}

/// What an operator sees of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The epoch it is in.
    pub epoch: Option<Epoch>,
    /// Sequence and offset of the last record of the newest acknowledged batch.
    pub last_acked: Option<(Sequence, i64)>,
    /// Duplicates answered from here.
    pub absorbed: u32,
    /// Gaps flagged here.
    pub gaps: u32,
    /// When its last batch came.
    pub touched: Time,
}
