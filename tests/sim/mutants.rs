//! What stands between clients and brokers: nothing, hapax, or hapax with a
//! fault that the oracle must see.

use super::broker::{Batch, advance};
use super::proxy::Proxy;
use hapax::window::{Ack, Action, Class, Outcome, Verdict};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// Nothing.
    Direct,
    /// hapax, where it may not read the log.
    Absorb,
    /// hapax.
    Resolve,
    /// hapax with `shield45`.
    Shield,
    /// hapax that neither holds nor mirrors.
    NoGate,
    /// hapax that mirrors, but never holds.
    NoHold,
    /// hapax that takes a batch that was sent for one that was acknowledged.
    SentAsAcked,
    /// hapax that absorbs by any fact it ever had, in whichever log.
    StaleFacts,
    /// hapax that rejects what does not follow on an old snapshot.
    StaleRejects,
    /// hapax that takes a batch whose answer was lost for a written one.
    UnsettledAsWritten,
}

impl Between {
    /// What a table compares.
    pub const COMPARED: [Self; 4] = [Self::Direct, Self::Absorb, Self::Resolve, Self::Shield];

    const ALL: [Self; 10] = [
        Self::Direct,
        Self::Absorb,
        Self::Resolve,
        Self::Shield,
        Self::NoGate,
        Self::NoHold,
        Self::SentAsAcked,
        Self::StaleFacts,
        Self::StaleRejects,
        Self::UnsettledAsWritten,
    ];

    /// Whether it may read the log.
    pub fn reads(self) -> bool {
        matches!(self, Self::Resolve | Self::Shield)
    }

    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|b| format!("{b:?}") == name)
    }

    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "nothing",
            Self::Absorb => "hapax, no READ",
            Self::Resolve => "hapax",
            Self::Shield => "+ shield45",
            Self::NoGate => "mutant: no gate",
            Self::NoHold => "mutant: no hold",
            Self::SentAsAcked => "mutant: sent is acked",
            Self::StaleFacts => "mutant: stale facts",
            Self::StaleRejects => "mutant: stale snapshot rejects",
            Self::UnsettledAsWritten => "mutant: unsettled is written",
        }
    }
}

type Stamp = (usize, usize, i16, i32);

fn stamp(batch: &Batch) -> Stamp {
    (batch.client, batch.partition, batch.epoch, batch.first)
}

/// What a faulty hapax knows besides.
#[derive(Default)]
pub struct Spoiled {
    /// Where it takes a batch that was sent to stand.
    sent: BTreeMap<Stamp, i64>,
    /// Where the next batch of a partition should stand.
    guess: BTreeMap<usize, i64>,
    /// All that was ever acknowledged.
    facts: BTreeMap<(Stamp, u32), i64>,
    /// What followed the newest success, as of the last snapshot, in which
    /// every third success is missing.
    snapshot: BTreeMap<(usize, usize), (i16, i32)>,
    successes: u64,
    /// It was restarted, and trusts its snapshot.
    restarted: bool,
}

impl Spoiled {
    pub fn restart(self) -> Self {
        Self {
            facts: self.facts,
            snapshot: self.snapshot,
            restarted: true,
            ..Self::default()
        }
    }

    pub fn note_sent(&mut self, batch: &Batch) {
        let guess = self.guess.entry(batch.partition).or_default();
        self.sent.entry(stamp(batch)).or_insert(*guess);
        *guess += i64::from(batch.count);
    }

    pub fn note_written(&mut self, batch: &Batch, offset: i64) {
        let end = offset + i64::from(batch.count);
        self.guess.insert(batch.partition, end);
        self.facts.insert((stamp(batch), batch.from), offset);
        self.successes += 1;
        if !self.successes.is_multiple_of(3) {
            let next = (batch.epoch, advance(batch.first, batch.count));
            self.snapshot.insert((batch.client, batch.partition), next);
        }
    }
}

fn replay(verdict: &mut Verdict, offset: i64) {
    verdict.class = Class::Duplicate;
    verdict.action = Action::Replay(Ack {
        offset,
        append_time: -1,
        log_start: Some(0),
    });
}

impl Proxy {
    /// How a faulty hapax decides otherwise.
    pub fn spoil(&mut self, batch: &Batch, verdict: &mut Verdict) {
        let spoiled = &mut self.spoiled;
        match (self.between, verdict.action) {
            (Between::NoGate, Action::Hold | Action::Mirror(_))
            | (Between::NoHold, Action::Hold) => verdict.action = Action::Forward,
            (Between::SentAsAcked, _) => {
                if let Some(offset) = spoiled.sent.get(&stamp(batch)) {
                    replay(verdict, *offset);
                }
            }
            (Between::StaleFacts, _) => {
                if let Some(offset) = spoiled.facts.get(&(stamp(batch), batch.from)) {
                    replay(verdict, *offset);
                }
            }
            (Between::StaleRejects, _) if spoiled.restarted => {
                let key = (batch.client, batch.partition);
                let known = spoiled.snapshot.remove(&key);
                if known.is_some_and(|next| next != (batch.epoch, batch.first)) {
                    verdict.action = Action::Mirror(45);
                }
            }
            _ => {}
        }
    }

    /// What a batch comes to whose answer was lost.
    pub fn unsettled(&self, batch: &Batch) -> Outcome {
        let offset = self.spoiled.sent.get(&stamp(batch));
        match (self.between, offset) {
            (Between::UnsettledAsWritten, Some(offset)) => Outcome::Written(Some(Ack {
                offset: *offset,
                append_time: -1,
                log_start: Some(0),
            })),
            _ => Outcome::Unknown { candidate: None },
        }
    }
}
