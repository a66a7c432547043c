//! Topics by name and by id, and which incarnation of a topic is meant.
//!
//! Names come from Produce up to version 12, ids from version 13 on; Metadata
//! answers say which id a name has. A name that gets another id, and an id
//! that the cluster no longer knows, get a new key: their windows start empty.

use super::Map;
use crate::ids::{TopicId, TopicKey};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The share of the limit that topics may take which no broker has confirmed,
/// as a divisor.
const UNCONFIRMED_SHARE: usize = 10;
/// The same for topics that a process before this one knew.
const RESTORED_SHARE: usize = 20;

/// A topic as a request names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicName<'a> {
    /// Its name.
    Name(&'a [u8]),
    /// Its id.
    Id(TopicId),
}

/// What is known of one topic incarnation.
#[derive(Clone, Default, Debug)]
pub struct Topic {
    /// Its name, where known.
    pub name: Option<Arc<str>>,
    /// Its id, where known.
    pub id: Option<TopicId>,
    /// Whether the cluster has it: any client can write to a name.
    pub confirmed: bool,
}

/// Every topic incarnation seen, up to a limit.
pub struct Topics {
    limit: usize,
    by_name: Map<Box<[u8]>, TopicKey>,
    by_id: Map<TopicId, TopicKey>,
    known: RwLock<Known>,
    version: AtomicU32,
    retired: AtomicU64,
}

/// The topics that have a key. Keys are never given twice.
#[derive(Default)]
struct Known {
    by_key: HashMap<TopicKey, Topic>,
    /// How many of them no broker has confirmed: any client can make those up.
    unconfirmed: usize,
    next: u32,
    /// Keys from here on were given since the last sweep.
    unswept: u32,
}

impl Topics {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            by_name: Map::default(),
            by_id: Map::default(),
            known: RwLock::default(),
            version: AtomicU32::new(0),
            retired: AtomicU64::new(0),
        }
    }

    /// Changes whenever a key that was handed out may no longer be the right
    /// one, or its name became known.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// The key of a topic; `None` at the limit, or for a name that is no text.
    #[must_use]
    pub fn key(&self, topic: TopicName<'_>) -> Option<TopicKey> {
        match topic {
            TopicName::Id(id) => {
                if let Some(key) = self.by_id.get(&id) {
                    return Some(*key);
                }
                let new = self.add(Topic {
                    id: Some(id),
                    ..Topic::default()
                })?;
                Some(*self.by_id.entry(id).or_insert(new))
            }
            TopicName::Name(name) => {
                if let Some(key) = self.by_name.get(name) {
                    return Some(*key);
                }
                let new = self.add(Topic {
                    name: Some(std::str::from_utf8(name).ok()?.into()),
                    ..Topic::default()
                })?;
                Some(*self.by_name.entry(name.into()).or_insert(new))
            }
        }
    }

    /// What is known of a topic incarnation.
    #[must_use]
    pub fn get(&self, key: TopicKey) -> Topic {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_key.get(&key).cloned().unwrap_or_default()
    }

    /// A topic as an operator knows it: its name, else its id.
    #[must_use]
    pub fn display(&self, key: TopicKey) -> String {
        let topic = self.get(key);
        match (topic.name, topic.id) {
            (Some(name), _) => name.to_string(),
            (None, Some(id)) => format!("{:032x}", u128::from_be_bytes(id.to_wire())),
            (None, None) => "(gone)".to_owned(),
        }
    }

    /// The key of a topic that a process before this one wrote to; `None` where
    /// it cannot be the one that is meant today, or no room is left.
    ///
    /// A topic with an id is found by its id alone: its name may be another
    /// topic's by now, and leads here once a Metadata answer says so.
    pub fn restore(&self, name: Option<&str>, id: Option<TopicId>) -> Option<TopicKey> {
        let topic = Topic {
            name: name.map(Into::into),
            id,
            confirmed: false,
        };
        match (id, name) {
            (Some(id), _) => {
                if let Some(key) = self.by_id.get(&id) {
                    return Some(*key);
                }
                let new = self.add_restored(topic)?;
                Some(*self.by_id.entry(id).or_insert(new))
            }
            (None, Some(name)) => {
                if let Some(key) = self.by_name.get(name.as_bytes()).map(|key| *key) {
                    return self.get(key).id.is_none().then_some(key);
                }
                let new = self.add_restored(topic)?;
                Some(*self.by_name.entry(name.as_bytes().into()).or_insert(new))
            }
            (None, None) => None,
        }
    }

    /// Grows whenever an incarnation of a topic is found to be gone.
    pub(super) fn retired(&self) -> u64 {
        self.retired.load(Ordering::Relaxed)
    }

    /// A Metadata answer said that this name has this id.
    pub fn learn(&self, name: &str, id: TopicId) {
        let known = self.by_id.get(&id).map(|key| *key);
        let key = match known {
            Some(key) => key,
            None => {
                let Some(new) = self.add(Topic {
                    name: Some(name.into()),
                    id: Some(id),
                    confirmed: true,
                }) else {
                    return;
                };
                *self.by_id.entry(id).or_insert(new)
            }
        };
        self.name(key, name);
        let current = self.by_name.get(name.as_bytes()).map(|key| *key);
        if current != Some(key) {
            self.by_name.insert(name.as_bytes().into(), key);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// A Metadata answer listed this name, without an id.
    pub fn listed(&self, name: &str) {
        if let Some(key) = self.key(TopicName::Name(name.as_bytes())) {
            self.confirm(key);
        }
    }

    /// The cluster has this topic.
    pub fn confirm(&self, key: TopicKey) {
        self.update(key, |topic| !std::mem::replace(&mut topic.confirmed, true));
    }

    /// This incarnation of the topic is gone: the next batch for it starts a
    /// new one.
    pub fn retire(&self, key: TopicKey) {
        if self.give_up(key) {
            self.retired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether there was such a topic.
    fn give_up(&self, key: TopicKey) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(topic) = known.by_key.remove(&key) else {
            return false;
        };
        known.unconfirmed -= usize::from(!topic.confirmed);
        drop(known);
        if let Some(name) = topic.name {
            self.by_name.remove_if(name.as_bytes(), |_, k| *k == key);
        }
        if let Some(id) = topic.id {
            self.by_id.remove_if(&id, |_, k| *k == key);
        }
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// All of them are gone: this is another cluster.
    pub(super) fn retire_all(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.by_key.clear();
        known.unconfirmed = 0;
        drop(known);
        self.by_name.clear();
        self.by_id.clear();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Gives back what unconfirmed topics take that nobody writes to. The
    /// first batch for a topic may come while `written_to` is gathered: what
    /// the sweep before this one has not seen stays.
    pub(super) fn sweep(&self, written_to: &HashSet<TopicKey>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let unused: Vec<TopicKey> = known
            .by_key
            .iter()
            .filter(|(key, _)| key.0 < known.unswept && !written_to.contains(key))
            .filter(|(_, topic)| !topic.confirmed)
            .map(|(key, _)| *key)
            .collect();
        known.unswept = known.next;
        drop(known);
        for key in unused {
            self.give_up(key);
        }
    }

    fn name(&self, key: TopicKey, name: &str) {
        self.update(key, |topic| {
            let news = !topic.confirmed || topic.name.as_deref() != Some(name);
            if news {
                topic.name = Some(name.into());
                topic.confirmed = true;
            }
            news
        });
    }

    /// Changes what is known of a topic; `change` says whether it did.
    fn update(&self, key: TopicKey, change: impl Fn(&mut Topic) -> bool) {
        // Nearly always there is nothing to change, and readers go on.
        if !change(&mut self.get(key)) {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(topic) = known.by_key.get_mut(&key) else {
            return;
        };
        let before = topic.confirmed;
        let changed = change(topic);
        let confirmed = usize::from(!before && topic.confirmed);
        known.unconfirmed -= confirmed;
        drop(known);
        if changed {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Leaves room for the topics that are written to today.
    fn add_restored(&self, topic: Topic) -> Option<TopicKey> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let unconfirmed = known.unconfirmed;
        drop(known);
        (unconfirmed <= self.limit / RESTORED_SHARE)
            .then(|| self.add(topic))
            .flatten()
    }

    fn add(&self, topic: Topic) -> Option<TopicKey> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let full = known.by_key.len() >= self.limit;
        let made_up = known.unconfirmed > self.limit / UNCONFIRMED_SHARE;
        if full || (made_up && !topic.confirmed) {
            return None;
        }
        let key = TopicKey(known.next);
        known.next = known.next.checked_add(1)?;
        known.unconfirmed += usize::from(!topic.confirmed);
        known.by_key.insert(key, topic);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> TopicId {
        TopicId::from_wire([n; 16]).unwrap()
    }

    #[test]
    fn name_and_id_of_one_topic_share_a_key() {
        let topics = Topics::new(10);
        topics.learn("orders", id(1));
        let key = topics.key(TopicName::Id(id(1)));
        assert_eq!(topics.key(TopicName::Name(b"orders")), key);
        assert_eq!(topics.get(key.unwrap()).name.as_deref(), Some("orders"));
    }

    #[test]
    fn a_new_id_under_the_old_name_starts_a_new_incarnation() {
        let topics = Topics::new(10);
        topics.learn("orders", id(1));
        let before = (topics.key(TopicName::Name(b"orders")), topics.version());
        topics.learn("orders", id(2));
        assert_ne!(topics.key(TopicName::Name(b"orders")), before.0);
        assert_ne!(topics.version(), before.1);
    }

    #[test]
    fn an_id_seen_before_its_name_keeps_its_key_and_gets_the_name() {
        let topics = Topics::new(10);
        let key = topics.key(TopicName::Id(id(1))).unwrap();
        assert_eq!(topics.get(key).name, None);
        let version = topics.version();
        topics.learn("orders", id(1));
        assert_eq!(topics.key(TopicName::Id(id(1))), Some(key));
        assert_eq!(topics.get(key).name.as_deref(), Some("orders"));
        assert_ne!(topics.version(), version);
    }

    #[test]
    fn a_retired_topic_starts_empty() {
        let topics = Topics::new(10);
        topics.learn("orders", id(1));
        let key = topics.key(TopicName::Id(id(1))).unwrap();
        topics.retire(key);
        assert_ne!(topics.key(TopicName::Id(id(1))), Some(key));
        assert_ne!(topics.key(TopicName::Name(b"orders")), Some(key));
    }

    #[test]
    fn at_the_limit_topics_have_no_key() {
        let topics = Topics::new(2);
        topics.learn("a", id(1));
        topics.learn("b", id(2));
        assert!(topics.key(TopicName::Name(b"c")).is_none());
        assert!(topics.key(TopicName::Name(b"a")).is_some());
    }

    #[test]
    fn made_up_names_leave_room_for_real_ones_and_are_given_back() {
        let topics = Topics::new(20);
        let names = (0..10u8).filter(|n| topics.key(TopicName::Name(&[b'a' + n])).is_some());
        assert_eq!(names.count(), 3);
        topics.learn("orders", id(1));
        assert!(topics.key(TopicName::Name(b"orders")).is_some());
        topics.sweep(&HashSet::new());
        assert!(topics.key(TopicName::Name(b"other")).is_none());
        topics.sweep(&HashSet::new());
        assert!(topics.key(TopicName::Name(b"other")).is_some());
        assert!(topics.key(TopicName::Name(b"orders")).is_some());
    }

    #[test]
    fn a_topic_stays_whose_first_batch_came_during_a_sweep() {
        let topics = Topics::new(10);
        let key = topics.key(TopicName::Name(b"orders")).unwrap();
        topics.sweep(&HashSet::new());
        assert_eq!(topics.key(TopicName::Name(b"orders")), Some(key));
        topics.sweep(&HashSet::from([key]));
        assert_eq!(topics.key(TopicName::Name(b"orders")), Some(key));
    }

    #[test]
    fn a_restored_topic_with_an_id_is_found_by_that_id_alone() {
        let topics = Topics::new(100);
        let restored = topics.restore(Some("orders"), Some(id(1))).unwrap();
        assert_eq!(topics.key(TopicName::Id(id(1))), Some(restored));
        assert_ne!(topics.key(TopicName::Name(b"orders")), Some(restored));
        topics.learn("orders", id(1));
        assert_eq!(topics.key(TopicName::Name(b"orders")), Some(restored));
        topics.learn("orders", id(2));
        assert_ne!(topics.key(TopicName::Name(b"orders")), Some(restored));
    }

    #[test]
    fn a_restored_topic_without_an_id_is_another_one_once_the_name_has_an_id() {
        let topics = Topics::new(100);
        let restored = topics.restore(Some("orders"), None).unwrap();
        assert_eq!(topics.key(TopicName::Name(b"orders")), Some(restored));
        topics.learn("orders", id(1));
        assert_ne!(topics.key(TopicName::Name(b"orders")), Some(restored));
        assert_eq!(topics.restore(Some("orders"), None), None);
        assert_eq!(topics.restore(None, None), None);
    }

    #[test]
    fn restored_topics_leave_room_for_those_of_today() {
        let topics = Topics::new(100);
        let made = |n: u8| topics.restore(Some("t"), Some(id(n))).is_some();
        assert_eq!((1..=100).filter(|n| made(*n)).count(), 6);
        assert!(topics.key(TopicName::Name(b"today")).is_some());
    }

    #[test]
    fn a_topic_that_is_gone_is_counted_and_one_that_nobody_writes_to_is_not() {
        let topics = Topics::new(100);
        let key = topics.key(TopicName::Name(b"orders")).unwrap();
        assert!(topics.key(TopicName::Name(b"other")).is_some());
        topics.retire(key);
        topics.retire(key);
        topics.sweep(&HashSet::new());
        topics.sweep(&HashSet::new());
        assert_eq!(topics.retired(), 1);
    }

    /// A topic is deleted while its producer goes on: every answer 100.
    #[test]
    fn incarnations_that_are_gone_take_no_room() {
        let topics = Topics::new(10);
        for round in 0..30 {
            let key = topics.key(TopicName::Id(id(1)));
            assert!(key.is_some(), "round {round}");
            topics.retire(key.unwrap());
        }
    }
}
