//! The topics, and how much all of them may hold.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;

use uuid::Uuid;

use super::code;
use super::log::{Ack, Log, Refusal, Rules};

/// Partitions of all topics together.
const PARTITIONS_MAX: usize = 20_000;
/// Bytes of a topic's settings.
const SETTINGS_BYTES_MAX: usize = 16 << 10;

/// Every topic.
pub(super) struct Topics {
    by_name: BTreeMap<String, Topic>,
    names: HashMap<Uuid, String>,
    partitions: usize,
    /// The partition of each stored batch, in the order of their arrival.
    order: VecDeque<(Uuid, i32)>,
    bytes: usize,
    bytes_max: usize,
}

/// One topic.
pub(super) struct Topic {
    pub(super) id: Uuid,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) partitions: Vec<Log>,
    rules: Rules,
}

/// How a request names a topic.
#[derive(Clone, Copy)]
pub(super) enum Named<'a> {
    Name(&'a str),
    Id(Uuid),
}

impl Named<'_> {
    /// The error where there is no such topic.
    pub(super) fn unknown(self) -> i16 {
        match self {
            Self::Name(_) => code::UNKNOWN_TOPIC_OR_PARTITION,
            Self::Id(_) => code::UNKNOWN_TOPIC_ID,
        }
    }
}

impl Topics {
    /// No topics, which may hold so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            by_name: BTreeMap::new(),
            names: HashMap::new(),
            partitions: 0,
            order: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Creates a topic, or says which error that is and why.
    pub(super) fn create(
        &mut self,
        name: &str,
        partitions: i32,
        settings: BTreeMap<String, String>,
    ) -> Result<&Topic, (i16, String)> {
        if !is_valid(name) {
            let why = format!("`{name}` is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -");
            return Err((code::INVALID_TOPIC, why));
        }
        if self.by_name.contains_key(name) {
            let why = format!("topic `{name}` already exists");
            return Err((code::TOPIC_ALREADY_EXISTS, why));
        }
        // -1 asks for the broker's default.
        let count = if partitions == -1 { 1 } else { partitions };
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
            let why = format!("{partitions} partitions");
            return Err((code::INVALID_PARTITIONS, why));
        };
        if count > PARTITIONS_MAX.saturating_sub(self.partitions) {
            let why = format!("hapax dev holds at most {PARTITIONS_MAX} partitions");
            return Err((code::POLICY_VIOLATION, why));
        }
        let size: usize = settings.iter().map(|(k, v)| k.len() + v.len()).sum();
        if size > SETTINGS_BYTES_MAX {
            let why = format!("settings of {size} bytes");
            return Err((code::INVALID_CONFIG, why));
        }
        let rules = rules(&settings).map_err(|why| (code::INVALID_CONFIG, why))?;
        let topic = Topic {
            id: Uuid::from_u64_pair(random(), random()),
            settings,
            partitions: (0..count).map(|_| Log::default()).collect(),
            rules,
        };
        self.partitions += count;
        self.names.insert(topic.id, name.to_owned());
        Ok(self.by_name.entry(name.to_owned()).or_insert(topic))
    }

    /// Deletes a topic; gives its name and id.
    pub(super) fn delete(&mut self, named: Named<'_>) -> Option<(String, Uuid)> {
        let name = self.name(named)?.to_owned();
        let topic = self.by_name.remove(&name)?;
        self.names.remove(&topic.id);
        self.partitions -= topic.partitions.len();
        self.order.retain(|(id, _)| *id != topic.id);
        let logs = topic.partitions.into_iter();
        self.bytes -= logs.map(|mut log| drop_all(&mut log)).sum::<usize>();
        Some((name, topic.id))
    }

    fn name<'a>(&'a self, named: Named<'a>) -> Option<&'a str> {
        match named {
            Named::Name(name) => Some(name),
            Named::Id(id) => self.names.get(&id).map(String::as_str),
        }
    }

    /// A topic with its name.
    pub(super) fn find(&self, named: Named<'_>) -> Option<(&str, &Topic)> {
        let name = self.name(named)?;
        let (name, topic) = self.by_name.get_key_value(name)?;
        Some((name, topic))
    }

    /// Every topic with its name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.by_name
            .iter()
            .map(|(name, topic)| (name.as_str(), topic))
    }

    /// A partition's log, or the error where there is none.
    pub(super) fn log(&self, named: Named<'_>, partition: i32) -> Result<&Log, i16> {
        let (_, topic) = self.find(named).ok_or_else(|| named.unknown())?;
        let index = usize::try_from(partition).ok();
        index
            .and_then(|index| topic.partitions.get(index))
            .ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)
    }

    /// Appends to a partition; what that makes too much is dropped, oldest
    /// first, wherever it is. Gives the start of the log, too.
    pub(super) fn append(
        &mut self,
        named: Named<'_>,
        partition: i32,
        records: &[u8],
        version: i16,
        now_ms: i64,
    ) -> Result<(Ack, i64), (i16, i64)> {
        let unknown = || (named.unknown(), -1);
        let name = self.name(named).ok_or_else(unknown)?.to_owned();
        let topic = self.by_name.get_mut(&name).ok_or_else(unknown)?;
        let index = usize::try_from(partition).ok();
        let log = index.and_then(|index| topic.partitions.get_mut(index));
        let log = log.ok_or((code::UNKNOWN_TOPIC_OR_PARTITION, -1))?;
        let refused = |log: &Log, refusal: Refusal| {
            let start = if refusal.with_start { log.start() } else { -1 };
            (refusal.code, start)
        };
        let ack = match log.append(records, version, &topic.rules, now_ms) {
            Ok(ack) => ack,
            Err(refusal) => return Err(refused(log, refusal)),
        };
        let start = log.start();
        if ack.bytes > 0 {
            self.order.push_back((topic.id, partition));
            self.bytes += ack.bytes;
            self.retain();
        }
        Ok((ack, start))
    }

    fn retain(&mut self) {
        while self.bytes > self.bytes_max {
            let Some((id, partition)) = self.order.pop_front() else {
                return;
            };
            let topic = self.names.get(&id).and_then(|n| self.by_name.get_mut(n));
            let index = usize::try_from(partition).unwrap_or(usize::MAX);
            if let Some(log) = topic.and_then(|topic| topic.partitions.get_mut(index)) {
                self.bytes -= log.drop_oldest();
            }
        }
    }

    /// Makes every partition of a topic forget its producers.
    pub(super) fn forget_producers(&mut self, name: &str) {
        if let Some(topic) = self.by_name.get_mut(name) {
            topic.partitions.iter_mut().for_each(Log::forget_producers);
        }
    }
}

fn drop_all(log: &mut Log) -> usize {
    std::iter::from_fn(|| Some(log.drop_oldest()).filter(|bytes| *bytes > 0)).sum()
}

fn is_valid(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && !matches!(name, "." | "..") && name.chars().all(letter)
}

/// What is done about a topic's settings; the others are kept and shown.
fn rules(settings: &BTreeMap<String, String>) -> Result<Rules, String> {
    fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
        let bad = |_| format!("{name} cannot be `{value}`");
        value.parse().map_err(bad)
    }
    let mut rules = Rules::default();
    for (name, value) in settings {
        match name.as_str() {
            "max.message.bytes" => rules.message_bytes_max = number(name, value)?,
            "message.timestamp.before.max.ms" => rules.before_ms_max = number(name, value)?,
            "message.timestamp.after.max.ms" => rules.after_ms_max = number(name, value)?,
            "cleanup.policy" => rules.compacted = value.contains("compact"),
            "message.timestamp.type" => rules.append_time = value == "LogAppendTime",
            _ => {}
        }
    }
    Ok(rules)
}

/// A number that another process does not have.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
