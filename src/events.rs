//! The ring of recent events: what an operator would otherwise dig for.
//!
//! Recording an event gives it an id and a time, counts it, logs it and keeps
//! it among the newest [`RING`] for `/api/v1/events`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus::IntCounter;
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use crate::explain::{self, Explanation, ours};
use crate::ids::{Epoch, ProducerId, Sequence};
use crate::metrics::{EventName, FencedBy, GapKind, Labelled, Metrics, Original};

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
    /// A batch that the broker may have forgotten, or did, was found in the log.
    DuplicateResolved,
    /// The records of a batch came again under a new epoch.
    EpochResend(Original),
    /// Error 45 was shown as the error of the batch before it.
    Shielded,
    /// A client does not do what a policy of the topic requires.
    PolicyViolation,
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
            Self::DuplicateResolved => EventName::DuplicateResolved,
            Self::EpochResend(_) => EventName::EpochResend,
            Self::Shielded => EventName::Shielded,
            Self::PolicyViolation => EventName::PolicyViolation,
        }
    }

    /// The text of its name.
    pub fn label(self) -> &'static str {
        self.name().label()
    }

    /// The text of what its name does not say.
    pub fn detail(self) -> Option<&'static str> {
        match self {
            Self::Gap(kind) => Some(kind.label()),
            Self::FencedProducer(by) => Some(by.label()),
            Self::EpochResend(original) => Some(original.label()),
            Self::DuplicateAbsorbed
            | Self::DuplicateForwarded
            | Self::SequenceReuse
            | Self::Overlap
            | Self::StaleEpoch
            | Self::EpochBump
            | Self::Disagreement
            | Self::LogTruncated
            | Self::DuplicateResolved
            | Self::Shielded
            | Self::PolicyViolation => None,
        }
    }

    /// What it means and what to do.
    pub fn explanation(self) -> &'static Explanation {
        match self {
            Self::DuplicateAbsorbed => &ours::DUPLICATE_ABSORBED,
            Self::DuplicateForwarded => &ours::DUPLICATE_FORWARDED,
            Self::Gap(GapKind::PredecessorFailed) => &ours::PREDECESSOR_FAILED,
            Self::Gap(GapKind::NeverSeen) => &ours::NEVER_SEEN,
            Self::Gap(GapKind::NoBaseline) => &ours::NO_BASELINE,
            Self::Gap(GapKind::NewEpochMidway) => &ours::NEW_EPOCH_MIDWAY,
            Self::SequenceReuse => &ours::SEQUENCE_REUSE,
            Self::Overlap => &ours::OVERLAP,
            Self::StaleEpoch => &ours::STALE_EPOCH,
            Self::EpochBump => &ours::EPOCH_BUMP,
            Self::FencedProducer(_) => &ours::FENCED_PRODUCER,
            Self::Disagreement => &ours::DISAGREEMENT,
            Self::LogTruncated => &ours::LOG_TRUNCATED,
            Self::DuplicateResolved => &ours::DUPLICATE_RESOLVED,
            Self::EpochResend(_) => &ours::EPOCH_RESEND,
            Self::Shielded => &ours::SHIELDED,
            Self::PolicyViolation => &explain::POLICY_VIOLATION,
        }
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
    /// Where in the log the batch is, or may be, that this one repeats.
    pub original_offset: Option<i64>,
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
            original_offset: None,
            detail: Cow::Borrowed(""),
        }
    }

    fn detail_text(&self) -> Option<&str> {
        (!self.detail.is_empty()).then_some(&*self.detail)
    }
}

/// An event with its id and time.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    state: Mutex<State>,
    newest: watch::Sender<u64>,
    names: Labelled<EventName>,
    gaps: Labelled<GapKind>,
    fenced: Labelled<FencedBy>,
    epoch_bumps: IntCounter,
    resends: Labelled<Original>,
    shielded: IntCounter,
}

impl Events {
    /// An empty ring that counts in `metrics`.
    pub fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::default()),
            newest: watch::Sender::new(0),
            names: metrics.events.clone(),
            gaps: metrics.gaps.clone(),
            fenced: metrics.fenced_producers.clone(),
            epoch_bumps: metrics.producer_epoch_bumps.clone(),
            resends: metrics.epoch_resends.clone(),
            shielded: metrics.shielded_errors.clone(),
        })
    }

    /// Records an event: counts it, logs it and keeps it in the ring.
    ///
    /// It also counts `hapax_gaps_total`, `hapax_fenced_producers_total`,
    /// `hapax_producer_epoch_bumps_total`, `hapax_epoch_resends_total` and
    /// `hapax_shielded_errors_total`. It leaves missing records to the counters
    /// of the topic.
    pub fn record(&self, mut event: Event) {
        event.client_id = event.client_id.map(shorten);
        event.transactional_id = event.transactional_id.map(shorten);
        event.topic = event.topic.map(shorten);
        self.count(event.kind);

        let (now, time) = (Instant::now(), SystemTime::now());
        let (recorded, line) = self.state().push(event, now, time);
        self.newest.send_if_modified(|newest| {
            let newer = *newest < recorded.id;
            *newest = recorded.id.max(*newest);
            newer
        });
        line.write(&recorded);
    }

    /// The events after that id which the ring still has, oldest first.
    pub fn since(&self, id: u64) -> Vec<Arc<Recorded>> {
        let state = self.state();
        let Some(oldest) = state.ring.front() else {
            return Vec::new();
        };
        let seen = id.saturating_add(1).saturating_sub(oldest.id);
        let seen = usize::try_from(seen).unwrap_or(usize::MAX);
        state.ring.iter().skip(seen).cloned().collect()
    }

    /// The id of the newest event; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.state().newest
    }

    /// Follows the id of the newest event; 0 before the first.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn count(&self, kind: Kind) {
        self.names.with(kind.name()).inc();
        match kind {
            Kind::Gap(gap) => self.gaps.with(gap).inc(),
            Kind::FencedProducer(by) => self.fenced.with(by).inc(),
            Kind::EpochBump => self.epoch_bumps.inc(),
            Kind::EpochResend(original) => self.resends.with(original).inc(),
            Kind::Shielded => self.shielded.inc(),
            Kind::DuplicateAbsorbed
            | Kind::DuplicateForwarded
            | Kind::SequenceReuse
            | Kind::Overlap
            | Kind::StaleEpoch
            | Kind::Disagreement
            | Kind::LogTruncated
            | Kind::DuplicateResolved
            | Kind::PolicyViolation => {}
        }
    }

    /// A panic elsewhere leaves the ring whole: keep recording.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct State {
    /// `ring.len() <= RING`; ids rise by one, the last is `newest`.
    ring: VecDeque<Arc<Recorded>>,
    newest: u64,
    gates: [LogGate; EventName::ALL.len()],
}

impl State {
    fn push(&mut self, event: Event, now: Instant, time: SystemTime) -> (Arc<Recorded>, LogLine) {
        let line = self.gates[event.kind.name() as usize].admit(now);
        self.newest += 1;
        let recorded = Arc::new(Recorded {
            id: self.newest,
            time,
            event,
        });
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        self.ring.push_back(recorded.clone());
        (recorded, line)
    }
}

/// Lets [`LINES_PER_SECOND`] log lines of one kind through.
#[derive(Default)]
struct LogGate {
    second_began: Option<Instant>,
    /// `lines <= LINES_PER_SECOND`, in this second.
    lines: u32,
    /// Lines of this second that were not written.
    left_out: u64,
}

impl LogGate {
    fn admit(&mut self, now: Instant) -> LogLine {
        let mut left_out_before = 0;
        if self
            .second_began
            .is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1))
        {
            self.second_began = Some(now);
            self.lines = 0;
            left_out_before = mem::take(&mut self.left_out);
        }
        if self.lines < LINES_PER_SECOND {
            self.lines += 1;
            return LogLine::Write { left_out_before };
        }
        self.left_out += 1;
        if self.left_out == 1 {
            LogLine::Announce
        } else {
            LogLine::Skip
        }
    }
}

/// What an event puts into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogLine {
    /// Its own line, after one about the lines left out since the one before.
    Write { left_out_before: u64 },
    /// That lines are left out from here on.
    Announce,
    /// Nothing.
    Skip,
}

/// One line of an event: the message is constant for its kind. A warning ends
/// with the command that explains it.
macro_rules! event_line {
    (warn, $recorded:expr, $message:literal) => {
        event_line!(
            @fields warn, $recorded, $message,
            explain = %explain::command($recorded.event.kind.explanation()),
        )
    };
    (info, $recorded:expr, $message:literal) => {
        event_line!(@fields info, $recorded, $message,)
    };
    (@fields $level:ident, $recorded:expr, $message:literal, $($explain:tt)*) => {
        tracing::$level!(
            event = $recorded.event.kind.label(),
            kind = $recorded.event.kind.detail(),
            id = $recorded.id,
            producer_id = $recorded.event.producer.map(ProducerId::to_wire),
            epoch = $recorded.event.epoch.map(|epoch| epoch.0),
            first = $recorded.event.first.map(Sequence::to_wire),
            count = $recorded.event.count,
            topic = $recorded.event.topic.as_deref(),
            partition = $recorded.event.partition,
            client_id = $recorded.event.client_id.as_deref(),
            transactional_id = $recorded.event.transactional_id.as_deref(),
            expected = $recorded.event.expected.map(Sequence::to_wire),
            missing = $recorded.event.missing,
            original_offset = $recorded.event.original_offset,
            detail = $recorded.event.detail_text(),
            $($explain)*
            $message
        )
    };
}

impl LogLine {
    fn write(self, recorded: &Recorded) {
        let event = recorded.event.kind.label();
        match self {
            Self::Skip => {}
            Self::Announce => tracing::warn!(
                event,
                "more events of this kind in a second than are logged, see /api/v1/events"
            ),
            Self::Write { left_out_before } => {
                if left_out_before > 0 {
                    tracing::info!(event, lines = left_out_before, "event lines left out");
                }
                Self::write_event(recorded);
            }
        }
    }

    fn write_event(recorded: &Recorded) {
        match recorded.event.kind {
            Kind::DuplicateAbsorbed => event_line!(info, recorded, "duplicate absorbed"),
            Kind::DuplicateForwarded => event_line!(info, recorded, "duplicate forwarded"),
            Kind::Gap(GapKind::NeverSeen | GapKind::NewEpochMidway) => {
                event_line!(warn, recorded, "gap in a sequence");
            }
            Kind::Gap(GapKind::PredecessorFailed | GapKind::NoBaseline) => {
                event_line!(info, recorded, "gap in a sequence");
            }
            Kind::SequenceReuse => {
                event_line!(warn, recorded, "sequence used again with other bytes");
            }
            Kind::Overlap => event_line!(warn, recorded, "sequence overlaps acknowledged records"),
            Kind::StaleEpoch => event_line!(warn, recorded, "batch of an older epoch"),
            Kind::EpochBump => event_line!(warn, recorded, "epoch bumped by the client"),
            Kind::FencedProducer(_) => event_line!(warn, recorded, "producer fenced"),
            Kind::Disagreement => {
                event_line!(warn, recorded, "broker forgot what it acknowledged");
            }
            Kind::LogTruncated => event_line!(warn, recorded, "log of the broker was cut"),
            Kind::DuplicateResolved => event_line!(info, recorded, "duplicate found in the log"),
            Kind::EpochResend(_) => {
                event_line!(warn, recorded, "records sent again under a new epoch");
            }
            Kind::Shielded => event_line!(info, recorded, "error 45 shown as retriable"),
            Kind::PolicyViolation => event_line!(warn, recorded, "policy of a topic violated"),
        }
    }
}

impl Serialize for Recorded {
    /// One flat object; what is not known is left out.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = &self.event;
        let words = event.kind.explanation();
        Row {
            id: self.id,
            time: rfc3339(self.time),
            event: event.kind.label(),
            kind: event.kind.detail(),
            topic: event.topic.as_deref(),
            partition: event.partition,
            producer_id: event.producer.map(ProducerId::to_wire),
            epoch: event.epoch.map(|epoch| epoch.0),
            first: event.first.map(Sequence::to_wire),
            count: event.count,
            expected: event.expected.map(Sequence::to_wire),
            missing: event.missing,
            original_offset: event.original_offset,
            client_id: event.client_id.as_deref(),
            transactional_id: event.transactional_id.as_deref(),
            detail: event.detail_text(),
            sentence: words.says,
            hint: words.hint(),
            explain: words.name,
        }
        .serialize(serializer)
    }
}

/// The layout of an event in JSON, which is part of the API.
#[derive(Serialize)]
struct Row<'a> {
    id: u64,
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    producer_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transactional_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    /// What such an event means.
    sentence: &'static str,
    /// What to do first.
    hint: &'static str,
    /// What `hapax explain` calls it.
    explain: &'static str,
}

/// A client may send 32 KiB as its id; the ring keeps the start of it.
fn shorten(text: Arc<str>) -> Arc<str> {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into()
}

/// A time in UTC with milliseconds, such as `2026-11-29T18:21:03.250Z`.
fn rfc3339(time: SystemTime) -> String {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day, that many days after 1970-01-01. Counts in eras of 400
/// years that begin on a first of March, so that the leap day comes last
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Events that the ring keeps.
pub const RING: usize = 1024;
/// Log lines of one kind in a second; ring and counters see every event.
const LINES_PER_SECOND: u32 = 10;
/// As long as the longest topic name, and enough to recognise a client by.
const TEXT_BYTES_MAX: usize = 249;

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> (Arc<Metrics>, Arc<Events>) {
        let metrics = Metrics::new(1);
        let events = Events::new(&metrics);
        (metrics, events)
    }

    #[test]
    fn the_ring_keeps_the_newest_and_since_never_repeats() {
        let (_, events) = events();
        assert!(events.since(0).is_empty());
        for _ in 0..RING + 10 {
            events.record(Event::new(Kind::DuplicateForwarded));
        }
        let newest = events.newest();
        let ids = |after| events.since(after).iter().map(|e| e.id).collect::<Vec<_>>();
        assert_eq!(newest, 1034);
        assert_eq!(ids(0), (11..=1034).collect::<Vec<_>>());
        assert_eq!(ids(1032), [1033, 1034]);
        assert_eq!(ids(newest), [0; 0]);
        assert_eq!(ids(u64::MAX), [0; 0]);
        assert_eq!(*events.subscribe().borrow(), newest);
    }

    #[test]
    fn ids_stay_in_order_when_threads_record_at_once() {
        let (metrics, events) = events();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        events.record(Event::new(Kind::Overlap));
                    }
                });
            }
        });
        let ids: Vec<_> = events.since(0).iter().map(|e| e.id).collect();
        assert_eq!(ids, (1..=800).collect::<Vec<_>>());
        assert_eq!(*events.subscribe().borrow(), 800);
        assert_eq!(metrics.events.with(EventName::Overlap).get(), 800);
    }

    #[test]
    fn an_event_counts_in_every_family_it_belongs_to() {
        let (metrics, events) = events();
        events.record(Event::new(Kind::Gap(GapKind::NoBaseline)));
        events.record(Event::new(Kind::FencedProducer(FencedBy::Broker)));
        events.record(Event::new(Kind::EpochBump));
        events.record(Event::new(Kind::EpochResend(Original::Unknown)));
        events.record(Event::new(Kind::Shielded));
        assert_eq!(metrics.events.with(EventName::Gap).get(), 1);
        assert_eq!(metrics.gaps.with(GapKind::NoBaseline).get(), 1);
        assert_eq!(metrics.fenced_producers.with(FencedBy::Broker).get(), 1);
        assert_eq!(metrics.producer_epoch_bumps.get(), 1);
        assert_eq!(metrics.epoch_resends.with(Original::Unknown).get(), 1);
        assert_eq!(metrics.epoch_resends.with(Original::Acknowledged).get(), 0);
        assert_eq!(metrics.shielded_errors.get(), 1);
    }

    #[test]
    fn a_flood_of_one_kind_writes_ten_lines_a_second_and_says_what_it_left_out() {
        let mut gate = LogGate::default();
        let start = Instant::now();
        let write = |left_out_before| LogLine::Write { left_out_before };
        for _ in 0..LINES_PER_SECOND {
            assert_eq!(gate.admit(start), write(0));
        }
        assert_eq!(gate.admit(start), LogLine::Announce);
        for _ in 0..100 {
            assert_eq!(gate.admit(start), LogLine::Skip);
        }
        let next = start + Duration::from_secs(1);
        assert_eq!(gate.admit(next), write(101));
        assert_eq!(gate.admit(next), write(0));
    }

    #[test]
    fn json_is_flat_and_leaves_out_what_is_not_known() {
        let time = UNIX_EPOCH + Duration::from_millis(1_796_000_000_250);
        let mut state = State::default();
        let event = Event {
            producer: ProducerId::from_wire(7),
            first: Sequence::from_wire(12),
            missing: Some(2),
            topic: Some("orders".into()),
            ..Event::new(Kind::Gap(GapKind::NeverSeen))
        };
        let (recorded, _) = state.push(event, Instant::now(), time);
        assert_eq!(
            serde_json::to_string(&*recorded).unwrap(),
            r#"{"id":1,"time":"2026-11-30T00:53:20.250Z","event":"gap","kind":"never_seen","topic":"orders","producer_id":7,"first":12,"missing":2,"sentence":"Records before this batch never came this way; the broker lacks them too.","hint":"Look at the producer in the event: its log has the failed sends; update its client.","explain":"never_seen"}"#
        );
    }

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_786, (2026, 11, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil_date(days), date);
        }
    }

    #[test]
    fn an_endless_client_id_is_cut_at_a_character() {
        let (_, events) = events();
        events.record(Event {
            client_id: Some("é".repeat(10_000).into()),
            ..Event::new(Kind::Overlap)
        });
        let kept = events.since(0)[0].event.client_id.clone().unwrap();
        assert_eq!(kept.len(), 248);
    }
}
