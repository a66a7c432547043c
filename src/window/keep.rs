//! What of a window outlives the process (SEMANTICS 7.5): its facts, which
//! stay true. Never what it expected next, what was on its way, or a gate.

use super::fact::Fact;
use super::{AckedBy, Realm, Rules, Time, Window};
use crate::ids::{Epoch, Sequence};

/// What the facts of a window share, and what an operator has seen of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The epoch of every fact.
    pub epoch: Epoch,
    /// Whose batches they are.
    pub realm: Realm,
    /// Where the log began, where the cluster said so.
    pub log_start: Option<i64>,
    /// Duplicates that were answered.
    pub absorbed: u32,
    /// Gaps that were flagged.
    pub gaps: u16,
}

/// A batch that all in-sync replicas acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptFact {
    /// Sequence of its first record.
    pub first: Sequence,
    /// Sequence numbers it takes, `1 <= count < 2^31`.
    pub count: u32,
    /// CRC-32C from its header.
    pub crc: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Offset of its first record.
    pub offset: i64,
    /// The broker's append time in milliseconds, −1 on CreateTime topics.
    pub append_time: i64,
    /// When it was acknowledged.
    pub at: Time,
}

impl Window {
    /// Puts the facts that can still answer a retry into `facts`, oldest
    /// first, in place of what is there. `None`: there are none.
    ///
    /// What a leader acknowledged alone is not among them: who leads after a
    /// restart is not known, so nothing could be answered from it.
    pub fn kept(&self, rules: &Rules, now: Time, facts: &mut Vec<KeptFact>) -> Option<Kept> {
        facts.clear();
        if self.notes().is_gone {
            return None;
        }
        let (epoch, realm) = (self.epoch?, self.acked.realm?);
        let usable = self.acked.iter().filter(|f| f.acked_by.is_all());
        let usable = usable.filter(|f| f.at.within(rules.ttl, now));
        facts.extend(usable.map(|f| KeptFact {
            first: f.first,
            count: f.count,
            crc: f.crc,
            len: f.len,
            offset: f.offset,
            append_time: f.append_time,
            at: f.at,
        }));
        facts.reverse();
        (!facts.is_empty()).then_some(Kept {
            epoch,
            realm,
            log_start: (self.acked.log_start >= 0).then_some(self.acked.log_start),
            absorbed: self.notes().absorbed,
            gaps: self.notes().gaps,
        })
    }

    /// A window with these facts, oldest first, and nothing else: its gate is
    /// closed, and no batch is missing because none of them tells of it.
    #[must_use]
    pub fn restored(kept: &Kept, facts: &[KeptFact], rules: &Rules) -> Self {
        let newest = facts.iter().map(|f| f.at).max();
        let mut window = Self::new(newest.unwrap_or(Time(0)));
        window.epoch = Some(kept.epoch);
        window.acked.realm = Some(kept.realm);
        window.acked.log_start = kept.log_start.unwrap_or(-1);
        for f in facts {
            let fact = Fact {
                first: f.first,
                count: f.count,
                crc: f.crc,
                len: f.len,
                offset: f.offset,
                append_time: f.append_time,
                at: f.at,
                acked_by: AckedBy::ALL_BEFORE,
            };
            window.acked.insert(fact, rules.window_batches);
        }
        if kept.absorbed > 0 || kept.gaps > 0 {
            let notes = window.notes_mut();
            notes.absorbed = kept.absorbed;
            notes.gaps = kept.gaps;
        }
        window
    }
}
