//! A partition and its two replicas, after SEMANTICS 1.2 to 1.4.

use std::collections::{BTreeMap, VecDeque};

/// Batches that a leader remembers of a producer.
const REMEMBERED: usize = 5;

pub const NOT_LEADER: i16 = 6;
pub const NOT_ENOUGH_REPLICAS: i16 = 19;
pub const OUT_OF_ORDER: i16 = 45;
pub const STALE_EPOCH: i16 = 47;

/// A batch; what a client sends of its own records, under one stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The client that made it; its producer id.
    pub client: usize,
    pub partition: usize,
    /// Which of the client's batches on this partition it is: what the
    /// sequence stands for, and outlives every epoch.
    pub number: u32,
    pub count: u32,
    pub epoch: i16,
    pub first: i32,
}

impl Batch {
    fn last(&self) -> i32 {
        advance(self.first, self.count - 1)
    }
}

/// The sequence `by` later.
pub fn advance(sequence: i32, by: u32) -> i32 {
    sequence.wrapping_add(by.cast_signed()) & i32::MAX
}

/// What one replica remembers of one producer.
#[derive(Clone, Debug)]
struct Memory {
    epoch: i16,
    batches: VecDeque<(i32, i32, i64)>,
}

#[derive(Default)]
pub struct Partition {
    pub leader: usize,
    /// Until then its leader does not know that it is one.
    pub leads_from: u64,
    pub log: Vec<(i64, Batch)>,
    end: i64,
    /// Entries that both replicas have; nothing takes them back.
    replicated: usize,
    memory: [BTreeMap<usize, Memory>; 2],
}

impl Partition {
    /// What the leader says of a batch: an error code and a base offset.
    pub fn append(&mut self, broker: usize, batch: &Batch, now: u64) -> (i16, i64) {
        if broker != self.leader || now < self.leads_from {
            return (NOT_LEADER, -1);
        }
        if let Some(known) = self.memory[broker].get(&batch.client) {
            let same = known.epoch == batch.epoch;
            let range = (batch.first, batch.last());
            let copy = known.batches.iter().find(|b| (b.0, b.1) == range);
            if let Some(copy) = copy.filter(|_| same) {
                return (0, copy.2);
            }
            if batch.epoch < known.epoch {
                return (STALE_EPOCH, -1);
            }
            let next = known.batches.back().map(|b| advance(b.1, 1));
            if (same && next != Some(batch.first)) || (!same && batch.first != 0) {
                return (OUT_OF_ORDER, -1);
            }
        }
        let offset = self.end;
        self.log.push((offset, *batch));
        self.end += i64::from(batch.count);
        remember(&mut self.memory[broker], batch, offset);
        (0, offset)
    }

    /// The follower catches up.
    pub fn replicate(&mut self) {
        let follower = 1 - self.leader;
        for (offset, batch) in &self.log[self.replicated..] {
            remember(&mut self.memory[follower], batch, *offset);
        }
        self.replicated = self.log.len();
    }

    /// The other replica leads; what it did not have is lost.
    pub fn elect_other(&mut self) {
        self.log.truncate(self.replicated);
        self.end = self.log.last().map_or(0, |(o, b)| o + i64::from(b.count));
        let old = self.leader;
        self.leader = 1 - old;
        self.memory[old] = self.memory[self.leader].clone();
    }

    /// A restarted replica has read its snapshot: one batch a producer.
    pub fn restarted(&mut self, broker: usize) {
        for memory in self.memory[broker].values_mut() {
            let newest = memory.batches.pop_back();
            memory.batches = newest.into_iter().collect();
        }
    }

    /// Producers whose records are old are forgotten.
    pub fn expire(&mut self) {
        self.memory = [BTreeMap::new(), BTreeMap::new()];
    }
}

fn remember(memory: &mut BTreeMap<usize, Memory>, batch: &Batch, offset: i64) {
    let of = memory.entry(batch.client).or_insert_with(|| Memory {
        epoch: batch.epoch,
        batches: VecDeque::new(),
    });
    if of.epoch != batch.epoch {
        of.epoch = batch.epoch;
        of.batches.clear();
    }
    of.batches.push_back((batch.first, batch.last(), offset));
    if of.batches.len() > REMEMBERED {
        of.batches.pop_front();
    }
}
