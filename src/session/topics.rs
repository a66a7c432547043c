//! Topics as one connection's requests call them, so that a batch needs no look-up.

use super::Session;
use crate::ids::{TopicId, TopicKey};
use crate::ledger::{Hasher, Topic, TopicName};
use crate::metrics::{self, Limit, TopicTally};
use crate::policy::{Asked, Requirements};
use crate::wire::produce::{self, TopicRef};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Topics whose look-up a connection keeps.
const TOPICS_CACHED: usize = 4096;

/// Bytes of the name of a topic, as brokers have it.
const NAME_MAX: usize = 249;

/// A topic as this connection's requests call it.
pub(super) struct Named {
    pub raw: produce::Topic,
    pub key: Option<TopicKey>,
    pub known: Topic,
    pub metrics: Rc<TopicTally>,
    /// What the operator's policies ask of its batches.
    pub asked: Asked,
    /// The violations of them that were told.
    pub told: Cell<Requirements>,
}

/// The topics that a connection wrote to, so that a batch needs no look-up.
#[derive(Default)]
pub(super) struct TopicCache {
    /// The state of the ledger's topics that the cache was filled from.
    version: u32,
    last: Option<Rc<Named>>,
    names: HashMap<Box<[u8]>, Rc<Named>, Hasher>,
    ids: HashMap<[u8; 16], Rc<Named>, Hasher>,
}

impl TopicCache {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.names.len() + self.ids.len()
    }
}

impl Session {
    /// The topic that a request speaks of.
    pub(super) fn named(&mut self, topic: TopicRef<'_>) -> Rc<Named> {
        let topics = &self.shared.ledger.topics;
        let version = topics.version();
        if self.topics.version != version || self.topics.len() > TOPICS_CACHED {
            self.topics = TopicCache {
                version,
                ..TopicCache::default()
            };
        }
        let last = self.topics.last.as_ref();
        if let Some(last) = last.filter(|last| last.raw.as_ref() == topic) {
            return Rc::clone(last);
        }
        let known = match topic {
            TopicRef::Name(name) => self.topics.names.get(name),
            TopicRef::Id(id) => self.topics.ids.get(&id),
        };
        if let Some(known) = known {
            self.topics.last = Some(Rc::clone(known));
            return Rc::clone(known);
        }
        // Who has not proven anything is not followed, and makes no keys.
        // Nor has any broker a topic of such a name.
        let unproven = self.authentication.pending()
            || matches!(topic, TopicRef::Name(name) if name.len() > NAME_MAX);
        let key = match topic {
            _ if unproven => None,
            TopicRef::Name(name) => topics.key(TopicName::Name(name)),
            TopicRef::Id(id) => TopicId::from_wire(id).and_then(|id| topics.key(TopicName::Id(id))),
        };
        if key.is_none() && !unproven && topic != TopicRef::Id([0; 16]) {
            self.shared.metrics.limit_reached.with(Limit::Topics).inc();
        }
        let known = key.map(|key| topics.get(key)).unwrap_or_default();
        let label = known.name.as_deref().filter(|_| known.confirmed);
        let named = Rc::new(Named {
            raw: topic.to_topic(),
            key,
            metrics: self
                .tally
                .topic(&self.shared.metrics.topic(label.unwrap_or(metrics::OTHER))),
            asked: self.asked(topic, key, &known),
            told: Cell::default(),
            known,
        });
        if unproven {
            return named;
        }
        let kept = Rc::clone(&named);
        match topic {
            TopicRef::Name(name) => self.topics.names.insert(name.into(), kept),
            TopicRef::Id(id) => self.topics.ids.insert(id, kept),
        };
        named
    }

    /// What the policies ask of a topic. Where only its id is known, they may
    /// ask for more than is certain.
    fn asked(&self, topic: TopicRef<'_>, key: Option<TopicKey>, known: &Topic) -> Asked {
        let policies = &self.config.policies;
        let id = match topic {
            _ if policies.is_empty() => return Asked::default(),
            // A name that is no text is no topic.
            TopicRef::Name(name) => return policies.of(Some(&String::from_utf8_lossy(name))),
            TopicRef::Id(id) => TopicId::from_wire(id),
        };
        let named = || id.and_then(|id| self.shared.ledger.topics.name_of(id));
        let asked = policies.of(known.name.clone().or_else(named).as_deref());
        if key.is_some() || self.authentication.pending() {
            return asked;
        }
        // Where there is no room for the topic its name will never be known.
        Asked {
            require: asked.require.without(asked.uncertain),
            uncertain: Requirements::NONE,
        }
    }
}
