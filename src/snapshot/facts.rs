//! Between a ledger and the records of a snapshot. No file, no clock.

use super::format::{
    Decoder, Encoder, FactRecord, Flaw, Head, Record, Snapshot, TopicRecord, WindowRecord,
};
use crate::ids::{Epoch, ProducerId, TopicKey};
use crate::ledger::{Ledger, Realm, WindowKey};
use crate::window::{Kept, KeptFact, Time};
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

/// Bytes that are gathered before they are written.
const CHUNK: usize = 256 * 1024;

/// What a snapshot holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Poured {
    /// Windows with facts.
    pub windows: u64,
    /// Their facts.
    pub facts: u64,
    /// Bytes of the whole.
    pub bytes: u64,
}

/// What became of a snapshot's facts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loaded {
    /// Windows that were brought back.
    pub windows: u64,
    /// Facts in them.
    pub facts: u64,
    /// Facts that were not: too old, for another topic, or no room was left.
    pub dropped: u64,
}

/// Writes a snapshot of the ledger's facts at `now`, after the records of
/// `others`. Nothing is locked while `sink` is written to.
///
/// # Errors
///
/// Those of `sink`.
pub fn pour(
    ledger: &Ledger,
    head: &Head,
    others: &[Record],
    now: Time,
    sink: &mut dyn Write,
) -> io::Result<Poured> {
    let mut encoder = Encoder::new(head);
    for record in others {
        let _ = encoder.record(record);
    }
    let mut poured = Poured::default();
    let mut names = Names::new(ledger);
    let mut record = blank();
    let (mut facts, mut chunk) = (Vec::new(), Vec::new());
    for key in ledger.keys() {
        let Some(kept) = ledger.kept(&key, now, &mut facts) else {
            continue;
        };
        let topic = names.topic(key.topic, &mut encoder);
        let identity = names.identity(kept.realm, &mut encoder);
        let (Some(topic), Some(identity)) = (topic, identity) else {
            continue;
        };
        fill(&mut record, &key, &kept, &facts, now);
        (record.topic, record.identity) = (topic, identity);
        if encoder.window(&record) {
            poured.windows += 1;
            poured.facts += facts.len() as u64;
        }
        if encoder.waiting() >= CHUNK {
            encoder.take(&mut chunk);
            sink.write_all(&chunk)?;
            poured.bytes += chunk.len() as u64;
        }
    }
    let rest = encoder.finish();
    sink.write_all(&rest)?;
    poured.bytes += rest.len() as u64;
    Ok(poured)
}

/// Brings back the facts of a snapshot, of which the ledger's cluster is known
/// to be the one that acknowledged them. `elapsed` has passed since it was
/// written.
///
/// # Errors
///
/// Where it cannot be read; a snapshot that was read once can.
pub fn load(bytes: &[u8], ledger: &Ledger, elapsed: Duration, now: Time) -> Result<Loaded, Flaw> {
    let mut decoder = Decoder::new(bytes)?;
    let mut loaded = Loaded::default();
    // A number's topic or realm is found when a window needs it: those of
    // windows that are too old take no room.
    let mut topics: Vec<(TopicRecord, Option<Option<TopicKey>>)> = Vec::new();
    let mut identities = Vec::new();
    let mut facts = Vec::new();
    while let Some(record) = decoder.record()? {
        match record {
            Record::Topic(topic) => topics.push((topic, None)),
            Record::Identity(identity) => identities.push(identity),
            Record::Slot(..) | Record::Total(..) => {}
            Record::Window(window) => {
                facts.clear();
                facts.extend(
                    window
                        .facts
                        .iter()
                        .filter_map(|fact| aged(fact, elapsed, now, ledger.rules().ttl)),
                );
                let held = restore(ledger, &window, &facts, &mut topics, &identities, now);
                let held = held.unwrap_or(0) as u64;
                loaded.windows += u64::from(held > 0);
                loaded.facts += held;
                loaded.dropped += window.facts.len() as u64 - held;
            }
        }
    }
    Ok(loaded)
}

fn restore(
    ledger: &Ledger,
    window: &WindowRecord,
    facts: &[KeptFact],
    topics: &mut [(TopicRecord, Option<Option<TopicKey>>)],
    identities: &[crate::ledger::Identity],
    now: Time,
) -> Option<usize> {
    if facts.is_empty() {
        return None;
    }
    let (topic, found) = topics.get_mut(window.topic)?;
    let topic = (*found.get_or_insert_with(|| {
        let name = topic.name.as_deref();
        ledger.topics.restore(name, topic.id)
    }))?;
    let kept = Kept {
        epoch: window.epoch,
        realm: ledger.realm(identities.get(window.identity)?)?,
        log_start: window.log_start,
        absorbed: window.absorbed,
        gaps: window.gaps,
    };
    let key = WindowKey {
        producer: window.producer,
        topic,
        partition: window.partition,
    };
    Some(ledger.restore(key, &kept, facts, now))
}

/// The fact, if it can still be used; never younger than it is.
fn aged(fact: &FactRecord, elapsed: Duration, now: Time, ttl: Duration) -> Option<KeptFact> {
    let elapsed = elapsed.as_secs() + u64::from(elapsed.subsec_nanos() > 0);
    let age = u64::from(fact.age_s).checked_add(elapsed)?;
    if age > ttl.as_secs() {
        return None;
    }
    let at = Time(now.0.checked_sub(u32::try_from(age).ok()?)?);
    Some(KeptFact {
        first: fact.first,
        count: fact.count,
        crc: fact.crc,
        len: fact.len,
        offset: fact.offset,
        append_time: fact.append_time,
        at,
    })
}

/// What a snapshot says, besides its facts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Survey {
    /// Its head.
    pub head: Head,
    /// The ports of brokers and the counters.
    pub others: Vec<Record>,
    /// Names of topics that have an id as well.
    pub topics: Vec<String>,
    /// How many facts there are.
    pub facts: u64,
}

/// Reads a snapshot from its first byte to its last.
///
/// # Errors
///
/// Where it is none.
pub fn survey(bytes: &[u8]) -> Result<Survey, Flaw> {
    let mut decoder = Decoder::new(bytes)?;
    let mut survey = Survey {
        head: decoder.head().clone(),
        ..Survey::default()
    };
    while let Some(record) = decoder.record()? {
        match record {
            Record::Topic(topic) if topic.id.is_some() => survey.topics.extend(topic.name),
            Record::Window(window) => survey.facts += window.facts.len() as u64,
            Record::Topic(_) | Record::Identity(_) => {}
            other => survey.others.push(other),
        }
    }
    Ok(survey)
}

/// A snapshot of the ledger's facts as a whole, for tests and tools.
#[must_use]
pub fn take(ledger: &Ledger, head: &Head, now: Time) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A vector takes everything.
    let _ = pour(ledger, head, &[], now, &mut bytes);
    bytes
}

/// The numbers that topics and identities have in a snapshot, given when the
/// first window needs them. `None`: it cannot be told after a restart.
struct Names<'a> {
    ledger: &'a Ledger,
    realms: HashMap<Realm, crate::ledger::Identity>,
    identities: HashMap<Realm, Option<usize>>,
    identities_written: usize,
    topics: HashMap<TopicKey, Option<usize>>,
    topics_written: usize,
}

impl<'a> Names<'a> {
    fn new(ledger: &'a Ledger) -> Self {
        Self {
            ledger,
            realms: ledger.identities(),
            identities: HashMap::new(),
            identities_written: 0,
            topics: HashMap::new(),
            topics_written: 0,
        }
    }

    fn topic(&mut self, key: TopicKey, encoder: &mut Encoder) -> Option<usize> {
        *self.topics.entry(key).or_insert_with(|| {
            let known = self.ledger.topics.get(key);
            let record = TopicRecord {
                name: known.name.map(|name| name.to_string()),
                id: known.id,
            };
            let written = encoder.record(&Record::Topic(record));
            next(written, &mut self.topics_written)
        })
    }

    fn identity(&mut self, realm: Realm, encoder: &mut Encoder) -> Option<usize> {
        *self.identities.entry(realm).or_insert_with(|| {
            let identity = self.realms.get(&realm)?.clone();
            let written = encoder.record(&Record::Identity(identity));
            next(written, &mut self.identities_written)
        })
    }
}

fn next(written: bool, count: &mut usize) -> Option<usize> {
    let number = *count;
    *count += usize::from(written);
    written.then_some(number)
}

/// One record for all windows, so that its list of facts is made once.
fn blank() -> WindowRecord {
    WindowRecord {
        producer: ProducerId::from_wire(0).expect("0 is a producer id"),
        topic: 0,
        partition: 0,
        identity: 0,
        epoch: Epoch(0),
        log_start: None,
        absorbed: 0,
        gaps: 0,
        facts: Vec::new(),
    }
}

fn fill(record: &mut WindowRecord, key: &WindowKey, kept: &Kept, facts: &[KeptFact], now: Time) {
    record.producer = key.producer;
    record.partition = key.partition;
    record.epoch = kept.epoch;
    record.log_start = kept.log_start;
    record.absorbed = kept.absorbed;
    record.gaps = kept.gaps;
    record.facts.clear();
    record.facts.extend(facts.iter().map(|fact| FactRecord {
        first: fact.first,
        count: fact.count,
        crc: fact.crc,
        len: fact.len,
        offset: fact.offset,
        append_time: fact.append_time,
        // Both times are whole seconds, rounded down.
        age_s: now.0.saturating_sub(fact.at.0).saturating_add(1),
    }));
}

impl Snapshot {
    /// Its windows.
    pub fn windows(&self) -> impl Iterator<Item = &WindowRecord> {
        self.records.iter().filter_map(|record| match record {
            Record::Window(window) => Some(window),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{Stamp, decode};
    use super::*;
    use crate::ids::{BatchId, NodeId, Sequence, TopicId};
    use crate::ledger::{Identity, TopicName};
    use crate::window::{Ack, Acks, Action, Arrival, Mode, Outcome, Rules};

    const TTL: u64 = 300;

    fn ledger_of(windows_max: usize, topics_max: usize) -> Ledger {
        let rules = Rules {
            mode: Mode::Absorb,
            ttl: Duration::from_secs(TTL),
            window_batches: 5,
            absorb_transactional: false,
            shield45: false,
        };
        Ledger::new(rules, windows_max, topics_max)
    }

    fn ledger() -> Ledger {
        ledger_of(100, 1000)
    }

    fn id(n: u8) -> TopicId {
        TopicId::from_wire([n; 16]).unwrap()
    }

    fn user(name: &str) -> Identity {
        Identity::User {
            mechanism: "PLAIN".to_owned(),
            user: name.to_owned(),
        }
    }

    /// A producer's batches of one record.
    struct Client<'a> {
        ledger: &'a Ledger,
        identity: Identity,
        topic: TopicName<'a>,
        producer: i64,
        acks: Acks,
    }

    impl<'a> Client<'a> {
        fn of(ledger: &'a Ledger) -> Self {
            Self {
                ledger,
                identity: Identity::Anonymous,
                topic: TopicName::Id(id(1)),
                producer: 7,
                acks: Acks::All,
            }
        }

        fn arrival(&self, sequence: u32, now: Time) -> (WindowKey, Arrival) {
            let producer = ProducerId::from_wire(self.producer).unwrap();
            let key = WindowKey {
                producer,
                topic: self.ledger.topics.key(self.topic).unwrap(),
                partition: 3,
            };
            let arrival = Arrival {
                batch: BatchId {
                    producer,
                    epoch: Epoch(4),
                    first: Sequence::ZERO.advance(sequence),
                    count: 1,
                    crc: sequence,
                    len: 70,
                },
                transactional: false,
                acks: self.acks,
                realm: self.ledger.realm(&self.identity),
                node: NodeId::from_wire(1),
                link: self.ledger.link(),
                now,
                patient: true,
            };
            (key, arrival)
        }

        fn write(&self, sequence: u32, now: Time) {
            let (key, arrival) = self.arrival(sequence, now);
            let ticket = self.ledger.admit(key, &arrival).ticket.unwrap();
            let ack = Ack {
                offset: i64::from(sequence) + 1000,
                append_time: -1,
                log_start: Some(0),
            };
            let _ = self
                .ledger
                .settle(&ticket, Outcome::Written(Some(ack)), now);
        }

        /// The offset that a retry is answered with here.
        fn absorbed(&self, sequence: u32, now: Time) -> Option<i64> {
            let (key, arrival) = self.arrival(sequence, now);
            match self.ledger.judge(key, &arrival).action {
                Action::Replay(ack) => Some(ack.offset),
                _ => None,
            }
        }
    }

    const NOW: Time = Time(1000);

    fn taken(ledger: &Ledger) -> Vec<u8> {
        take(ledger, &Head::default(), NOW)
    }

    /// A ledger after a restart that took so many seconds.
    fn restarted(bytes: &[u8], seconds: u64) -> (Ledger, Loaded) {
        let after = ledger();
        let loaded = load(bytes, &after, Duration::from_secs(seconds), NOW).unwrap();
        (after, loaded)
    }

    #[test]
    fn a_retry_is_answered_after_a_restart() {
        let before = ledger();
        (0..7).for_each(|sequence| Client::of(&before).write(sequence, NOW));
        let (after, loaded) = restarted(&taken(&before), 10);
        let expected = Loaded {
            windows: 1,
            facts: 5,
            dropped: 0,
        };
        assert_eq!(loaded, expected);
        let client = Client::of(&after);
        assert_eq!(client.absorbed(6, NOW), Some(1006));
        assert_eq!(client.absorbed(2, NOW), Some(1002));
        assert_eq!(client.absorbed(1, NOW), None, "the fifth is the oldest");
        assert_eq!(client.absorbed(7, NOW), None);
    }

    #[test]
    fn a_fact_ages_while_no_process_runs() {
        let before = ledger();
        Client::of(&before).write(0, Time(NOW.0 - 100));
        let bytes = taken(&before);
        for (seconds, usable) in [(0, true), (199, true), (200, false), (u64::MAX, false)] {
            let (after, loaded) = restarted(&bytes, seconds);
            assert_eq!(loaded.facts == 1, usable, "{seconds}");
            assert_eq!(Client::of(&after).absorbed(0, NOW).is_some(), usable);
        }
        // A part of a second counts as one.
        let after = ledger();
        let loaded = load(&bytes, &after, Duration::from_millis(199_001), NOW).unwrap();
        assert_eq!(loaded.facts, 0);
        // What is left of its time goes on.
        let (after, _) = restarted(&bytes, 100);
        let client = Client::of(&after);
        assert!(client.absorbed(0, Time(NOW.0 + 99)).is_some());
        assert!(client.absorbed(0, Time(NOW.0 + 100)).is_none());
    }

    #[test]
    fn a_fact_that_is_older_than_the_process_has_a_time() {
        let before = ledger();
        Client::of(&before).write(0, NOW);
        let bytes = taken(&before);
        let after = ledger();
        let start = after.time_at(Duration::ZERO);
        let loaded = load(&bytes, &after, Duration::from_secs(TTL - 1), start).unwrap();
        assert_eq!(loaded.facts, 1);
        assert!(Client::of(&after).absorbed(0, start).is_some());
        let later = after.time_at(Duration::from_secs(1));
        assert!(Client::of(&after).absorbed(0, later).is_none());
    }

    #[test]
    fn identities_are_told_apart_after_a_restart() {
        let before = ledger();
        let of = |ledger, identity, producer| Client {
            identity,
            producer,
            ..Client::of(ledger)
        };
        of(&before, user("alice"), 1).write(0, NOW);
        of(&before, user("bob"), 2).write(0, NOW);
        of(&before, Identity::Anonymous, 3).write(0, NOW);
        of(&before, Identity::Unproven, 4).write(0, NOW);
        let (after, loaded) = restarted(&taken(&before), 1);
        assert_eq!(loaded.windows, 3, "nobody in particular is not kept");
        let mut told = Vec::new();
        for identity in [user("bob"), Identity::Anonymous, user("alice")] {
            let absorbed = (1..=4).map(|producer| {
                let client = of(&after, identity.clone(), producer);
                client.absorbed(0, NOW).is_some()
            });
            told.push(absorbed.collect::<Vec<_>>());
        }
        let expected = [
            [false, true, false, false],
            [false, false, true, false],
            [true, false, false, false],
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_topic_that_was_made_again_is_another_one() {
        let before = ledger();
        before.topics.learn("orders", id(1));
        Client::of(&before).write(0, NOW);
        let (after, _) = restarted(&taken(&before), 1);
        let named = Client {
            topic: TopicName::Name(b"orders"),
            ..Client::of(&after)
        };
        assert_eq!(
            named.absorbed(0, NOW),
            None,
            "whose name it is is not known"
        );
        after.topics.learn("orders", id(2));
        assert_eq!(named.absorbed(0, NOW), None, "it is another topic's");
        after.topics.learn("orders", id(1));
        assert_eq!(named.absorbed(0, NOW), Some(1000));
    }

    #[test]
    fn a_topic_known_by_name_alone_counts_for_the_ttl() {
        let before = ledger();
        let of = |ledger| Client {
            topic: TopicName::Name(b"orders"),
            ..Client::of(ledger)
        };
        of(&before).write(0, NOW);
        let bytes = taken(&before);
        let (after, _) = restarted(&bytes, 1);
        assert_eq!(of(&after).absorbed(0, NOW), Some(1000));
        let (after, loaded) = restarted(&bytes, TTL);
        assert_eq!((of(&after).absorbed(0, NOW), loaded.dropped), (None, 1));
    }

    #[test]
    fn what_a_leader_acknowledged_alone_is_not_in_it() {
        let before = ledger();
        let client = Client {
            acks: Acks::Leader,
            ..Client::of(&before)
        };
        client.write(0, NOW);
        assert_eq!(decode(&taken(&before)).unwrap().windows().count(), 0);
    }

    #[test]
    fn windows_of_today_and_the_limits_are_respected() {
        let before = ledger();
        for producer in 1..=9 {
            let client = Client {
                producer,
                ..Client::of(&before)
            };
            client.write(0, NOW);
        }
        let bytes = taken(&before);
        let after = ledger_of(4, 1000);
        let today = Client::of(&after);
        today.write(1, NOW);
        let loaded = load(&bytes, &after, Duration::from_secs(1), NOW).unwrap();
        assert_eq!((loaded.windows, loaded.dropped), (3, 6));
        assert_eq!(after.windows(), 4);
        assert_eq!(today.absorbed(0, NOW), None, "its window is as it was");
        let full = ledger_of(100, 0);
        let loaded = load(&bytes, &full, Duration::from_secs(1), NOW).unwrap();
        assert_eq!((loaded.windows, full.windows()), (0, 0));
    }

    /// Its multi-partition requests are collected, so that a retry in one is
    /// found before any of it has left.
    #[test]
    fn a_restored_producer_is_not_calm_until_its_retries_must_have_come() {
        let before = ledger();
        Client::of(&before).write(0, NOW);
        let (after, _) = restarted(&taken(&before), 1);
        let producer = ProducerId::from_wire(7).unwrap();
        let producer = after.known_producer(producer).unwrap();
        assert!(!producer.bumps(Epoch(4)), "the first epoch seen is no bump");
        assert!(!producer.calm(Time(NOW.0 + 299)));
        assert!(producer.calm(Time(NOW.0 + 300)));
    }

    #[test]
    fn a_survey_says_what_is_in_it() {
        let before = ledger();
        before.topics.learn("orders", id(1));
        Client::of(&before).write(0, NOW);
        let named = Client {
            topic: TopicName::Name(b"by name"),
            ..Client::of(&before)
        };
        named.write(0, NOW);
        let head = Head {
            written: Stamp {
                wall_ms: 5,
                boot: None,
            },
            cluster_id: "c".to_owned(),
            ..Head::default()
        };
        let others = [
            Record::Slot(NodeId::from_wire(3).unwrap(), 19093),
            Record::Total("gaps".to_owned(), 4),
        ];
        let mut bytes = Vec::new();
        let poured = pour(&before, &head, &others, NOW, &mut bytes).unwrap();
        assert_eq!(poured.bytes, bytes.len() as u64);
        let survey = survey(&bytes).unwrap();
        assert_eq!(survey.head, head);
        assert_eq!(survey.others, others);
        assert_eq!(survey.topics, ["orders"]);
        assert_eq!((survey.facts, poured.facts, poured.windows), (2, 2, 2));
    }
}
