//! A partition and its two replicas, after SEMANTICS 1.2 to 1.4.

use std::collections::{BTreeMap, VecDeque};

/// Batches that a leader remembers of a producer.
const REMEMBERED: usize = 5;

pub const NOT_LEADER: i16 = 6;
pub const TOO_LARGE: i16 = 10;
pub const NOT_ENOUGH_REPLICAS: i16 = 19;
pub const TOO_FEW_AFTER_APPEND: i16 = 20;
pub const OUT_OF_ORDER: i16 = 45;
pub const STALE_EPOCH: i16 = 47;
pub const UNKNOWN_TOPIC_ID: i16 = 100;

/// A batch; what a client sends of its own records, under one stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The client that made it; its producer id.
    pub client: usize,
    pub partition: usize,
    /// Which of the client's records on this partition it begins with: what
    /// its sequence stands for, and what outlives every epoch.
    pub from: u32,
    pub count: u32,
    pub epoch: i16,
    pub first: i32,
}

impl Batch {
    fn last(&self) -> i32 {
        advance(self.first, self.count - 1)
    }

    /// The client's records in it.
    pub fn records(&self) -> std::ops::Range<u32> {
        self.from..self.from + self.count
    }

    fn same_range(&self, other: &Self) -> bool {
        self.client == other.client
            && (self.epoch, self.first, self.count) == (other.epoch, other.first, other.count)
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

enum Judgement {
    Next,
    Copy(i64),
    Refused(i16),
}

impl Memory {
    fn judge(&self, batch: &Batch) -> Judgement {
        let same = self.epoch == batch.epoch;
        let range = (batch.first, batch.last());
        let copy = self.batches.iter().find(|b| (b.0, b.1) == range);
        if let Some(copy) = copy.filter(|_| same) {
            return Judgement::Copy(copy.2);
        }
        if batch.epoch < self.epoch {
            return Judgement::Refused(STALE_EPOCH);
        }
        let next = self.batches.back().map(|b| advance(b.1, 1));
        if (same && next != Some(batch.first)) || (!same && batch.first != 0) {
            return Judgement::Refused(OUT_OF_ORDER);
        }
        Judgement::Next
    }
}

/// What one replica remembers of all producers.
#[derive(Clone, Default, Debug)]
struct Memories(BTreeMap<usize, Memory>);

impl Memories {
    fn note(&mut self, batch: &Batch, offset: i64) {
        let of = self.0.entry(batch.client).or_insert_with(|| Memory {
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

    /// A snapshot keeps the last batch of each producer.
    fn snapshot(&self) -> Self {
        let mut kept = self.clone();
        for memory in kept.0.values_mut() {
            let newest = memory.batches.pop_back();
            memory.batches = newest.into_iter().collect();
        }
        kept
    }
}

/// One replica: what it remembers, and what it wrote down of that.
#[derive(Default)]
struct Replica {
    memories: Memories,
    /// The snapshot, and how many entries of the log it is about.
    written: (usize, Memories),
}

impl Replica {
    /// Reads the snapshot and, after it, the log.
    fn recover(&mut self, log: &[(i64, Batch)]) {
        let (upto, snapshot) = &self.written;
        let (upto, mut memories) = if *upto <= log.len() {
            (*upto, snapshot.clone())
        } else {
            (0, Memories::default())
        };
        for (offset, batch) in &log[upto..] {
            memories.note(batch, *offset);
        }
        self.memories = memories;
    }
}

#[derive(Default)]
pub struct Partition {
    pub leader: usize,
    /// Until then its leader does not know that it is one.
    pub leads_from: u64,
    pub log: Vec<(i64, Batch)>,
    /// What was acknowledged, and then lost by an unclean election.
    burnt: Vec<(i64, Batch)>,
    /// What was in the log when the topic was deleted, once for each time.
    deleted: Vec<Vec<(i64, Batch)>>,
    end: i64,
    /// Entries that both replicas have: what a consumer sees, and what no
    /// clean election takes back.
    pub replicated: usize,
    replicas: [Replica; 2],
}

impl Partition {
    /// What the leader says of a batch: an error code and a base offset.
    pub fn append(&mut self, broker: usize, batch: &Batch, now: u64) -> (i16, i64) {
        if broker != self.leader || now < self.leads_from {
            return (NOT_LEADER, -1);
        }
        if let Some(known) = self.replicas[broker].memories.0.get(&batch.client) {
            match known.judge(batch) {
                Judgement::Next => {}
                Judgement::Copy(offset) => return (0, offset),
                Judgement::Refused(error) => return (error, -1),
            }
        }
        let offset = self.end;
        self.log.push((offset, *batch));
        self.end += i64::from(batch.count);
        self.replicas[broker].memories.note(batch, offset);
        (0, offset)
    }

    /// Whether the leader, if it knows the producer, takes this batch now.
    pub fn would_take(&self, batch: &Batch) -> bool {
        let known = self.replicas[self.leader].memories.0.get(&batch.client);
        known.is_some_and(|known| !matches!(known.judge(batch), Judgement::Refused(_)))
    }

    /// Whether the batch, or one of the same range, stands at this offset.
    pub fn has(&self, offset: i64, batch: &Batch) -> bool {
        let place = self.log.binary_search_by_key(&offset, |(o, _)| *o);
        place.is_ok_and(|place| self.log[place].1.same_range(batch))
    }

    /// Where the range of this batch stands from this offset on, as a consumer
    /// of the leader sees it.
    pub fn find(&self, batch: &Batch, from: i64) -> Option<i64> {
        let seen = self.log[..self.replicated].iter().rev();
        let seen = seen.take_while(|(offset, _)| *offset >= from);
        let mut same = seen.filter(|(_, b)| b.same_range(batch));
        same.next().map(|(offset, _)| *offset)
    }

    /// Whether nothing is in the log that a consumer does not see yet.
    pub fn shows_all(&self) -> bool {
        self.replicated == self.log.len()
    }

    /// Whether a batch of the topic's first, second … incarnation is in its
    /// log, at this offset if one is given, with these records.
    pub fn holds(&self, topic: u32, batch: &Batch, offset: Option<i64>) -> bool {
        let log = self.deleted.get(topic as usize).unwrap_or(&self.log);
        match offset {
            Some(offset) => log
                .binary_search_by_key(&offset, |(o, _)| *o)
                .is_ok_and(|place| log[place].1 == *batch),
            None => log.iter().any(|(_, b)| b == batch),
        }
    }

    /// Whether it was there, until an unclean election.
    pub fn held(&self, batch: &Batch, offset: Option<i64>) -> bool {
        let is = |(o, b): &(i64, Batch)| b == batch && offset.is_none_or(|offset| *o == offset);
        self.burnt.iter().any(is)
    }

    /// Whether it was ever in a log.
    pub fn ever_held(&self, topics: u32, batch: &Batch, offset: Option<i64>) -> bool {
        self.held(batch, offset) || (0..=topics).any(|topic| self.holds(topic, batch, offset))
    }

    /// The follower catches up.
    pub fn replicate(&mut self) {
        let follower = &mut self.replicas[1 - self.leader];
        for (offset, batch) in &self.log[self.replicated..] {
            follower.memories.note(batch, *offset);
        }
        self.replicated = self.log.len();
    }

    /// The other replica leads; what it did not have is lost.
    pub fn elect_other(&mut self) {
        self.truncate(self.replicated);
        let old = self.leader;
        self.leader = 1 - old;
        self.replicas[old].memories = self.replicas[self.leader].memories.clone();
    }

    /// A replica leads that lacks some of what was acknowledged.
    pub fn elect_unclean(&mut self, lacks: usize) {
        let kept = self.replicated.saturating_sub(lacks);
        let lost = &self.log[kept..self.replicated];
        self.burnt.extend_from_slice(lost);
        self.truncate(kept);
        self.replicated = kept;
        self.leader = 1 - self.leader;
        for replica in &mut self.replicas {
            replica.recover(&self.log);
        }
    }

    fn truncate(&mut self, kept: usize) {
        self.log.truncate(kept);
        self.end = self.log.last().map_or(0, |(o, b)| o + i64::from(b.count));
        for replica in &mut self.replicas {
            if replica.written.0 > kept {
                replica.written = (0, Memories::default());
            }
        }
    }

    /// A segment is full.
    pub fn roll(&mut self) {
        self.replicate();
        let upto = self.log.len();
        for replica in &mut self.replicas {
            replica.written = (upto, replica.memories.snapshot());
        }
    }

    /// A replica stops in good order, or is killed.
    pub fn stopped(&mut self, broker: usize, clean: bool) {
        if clean {
            let upto = if broker == self.leader {
                self.log.len()
            } else {
                self.replicated
            };
            let replica = &mut self.replicas[broker];
            replica.written = (upto, replica.memories.snapshot());
        }
    }

    pub fn started(&mut self, broker: usize) {
        let known = if broker == self.leader {
            self.log.len()
        } else {
            self.replicated
        };
        self.replicas[broker].recover(&self.log[..known]);
    }

    /// Producers whose records are old are forgotten.
    pub fn expire(&mut self) {
        for replica in &mut self.replicas {
            replica.memories = Memories::default();
            replica.written = (self.log.len(), Memories::default());
        }
    }

    /// The topic is deleted and created anew.
    pub fn recreate(&mut self) {
        self.deleted.push(std::mem::take(&mut self.log));
        self.end = 0;
        self.replicated = 0;
        self.replicas = Default::default();
    }
}
