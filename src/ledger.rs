//! All windows: the only state that sessions share.
//!
//! Missing state never rejects anything: at the limit of windows, and for a
//! topic that has no key, batches are forwarded untracked.
//!
//! One lock at a time: a window is reached through its entry in the map and
//! nothing else is locked meanwhile.

mod producers;
mod realms;
mod topics;
mod versions;

use crate::ids::{BatchId, ProducerId, TopicKey};
use crate::window::{
    Ack, Action, Arrival, AttemptId, Kept, KeptFact, Original, Outcome, Rules, Sender, Settled,
    Time, Verdict, Window,
};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

pub use crate::window::{Link, Realm};
pub use producers::{Producer, UNSEEN_FENCE};
pub use realms::Identity;
pub use topics::{Topic, TopicName, Topics};

/// How long a window that saw no batch is remembered.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long a window keeps room for batches on their way when it has none.
const QUIET_AFTER: Duration = Duration::from_secs(30);

/// How long one is remembered, where room is short, of which the cluster never
/// acknowledged a batch.
const UNPROVEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a window lives: one producer on one partition of one topic incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowKey {
    /// The producer.
    pub producer: ProducerId,
    /// The topic.
    pub topic: TopicKey,
    /// The partition's index.
    pub partition: i32,
}

/// A batch on its way; whoever holds it must settle it.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The window it belongs to.
    pub key: WindowKey,
    /// The batch.
    pub batch: BatchId,
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    sender: Sender,
    id: AttemptId,
    gated: bool,
}

/// What became of a batch at the door.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// What it is, and what is to be done with it. Where that is
    /// [`Action::Forward`] it has been noted that it leaves.
    pub verdict: Verdict,
    /// What settles it; `None` if it does not leave, or leaves untracked.
    pub ticket: Option<Ticket>,
}

/// How keys are hashed that every batch looks up: seeded by chance, and several
/// times as fast as the standard library's hash.
pub type Hasher = foldhash::fast::RandomState;
type Map<K, V> = DashMap<K, V, Hasher>;

/// All windows, their producers and their topics.
pub struct Ledger {
    /// What sessions need to know of topics.
    pub topics: Topics,
    rules: versions::Versions,
    /// How far ahead of the process its time is: the TTL that it began with.
    head_start: Duration,
    windows_max: usize,
    windows: Map<WindowKey, Box<Window>>,
    windows_count: AtomicUsize,
    producers: producers::Producers,
    realms: realms::Realms,
    /// Held requests by the window they wait for.
    waiters: Map<WindowKey, Vec<Waker>>,
    cluster_id: std::sync::Mutex<Option<String>>,
    links: AtomicU32,
    started: Instant,
    /// Times that facts were dropped because the log is not what they say.
    withdrawn: AtomicU64,
}

/// What became of windows in a sweep.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Swept {
    /// Forgotten because no batch came for [`IDLE_TIMEOUT`].
    pub idle: u64,
    /// Forgotten because the limit was near and their facts were too old to use.
    pub limit: u64,
}

/// A window as an operator sees it.
#[derive(Clone, Debug)]
pub struct WindowRow {
    /// Where it lives.
    pub key: WindowKey,
    /// What is in it.
    pub summary: crate::window::Summary,
    /// Its age since the last batch, in seconds.
    pub age: u32,
}

impl Ledger {
    /// An empty ledger that holds `windows_max` windows.
    #[must_use]
    pub fn new(rules: Rules, windows_max: usize, topics_max: usize) -> Self {
        Self {
            topics: Topics::new(topics_max),
            head_start: rules.ttl,
            rules: versions::Versions::new(rules),
            windows_max,
            windows: Map::default(),
            windows_count: AtomicUsize::new(0),
            producers: producers::Producers::new(windows_max),
            realms: realms::Realms::default(),
            waiters: Map::default(),
            cluster_id: std::sync::Mutex::new(None),
            links: AtomicU32::new(1),
            started: Instant::now(),
            withdrawn: AtomicU64::new(0),
        }
    }

    /// The rules that its windows follow.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        self.rules.newest()
    }

    /// Lets its windows follow other rules from now on. Returns `false`, and
    /// changes nothing, where they have been changed too often.
    #[must_use]
    pub fn change_rules(&self, rules: Rules) -> bool {
        self.rules.change(rules)
    }

    /// How old the ledger is at an instant.
    #[must_use]
    pub fn age(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.started)
    }

    /// When it began.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The ledger's time for an instant.
    #[must_use]
    pub fn time(&self, instant: Instant) -> Time {
        self.time_at(self.age(instant))
    }

    /// The ledger's time when it has this age. It does not begin at 0: what
    /// was acknowledged before the process began, and can still be used, has a
    /// time as well.
    #[must_use]
    pub fn time_at(&self, age: Duration) -> Time {
        Time::of_age(age.saturating_add(self.head_start))
    }

    /// A name for a new upstream connection.
    #[must_use]
    pub fn link(&self) -> Link {
        loop {
            let raw = self.links.fetch_add(1, Ordering::Relaxed);
            if let Some(raw) = NonZeroU32::new(raw) {
                return Link(raw);
            }
        }
    }

    /// The realm of a client that has proven to be `identity`; `None` if
    /// nothing may be absorbed for it.
    #[must_use]
    pub fn realm(&self, identity: &Identity) -> Option<Realm> {
        self.realms.of(identity)
    }

    /// What is known of a producer id; `None` at the limit.
    #[must_use]
    pub fn producer(&self, id: ProducerId, now: Time) -> Option<std::sync::Arc<Producer>> {
        self.producers.of(id, now)
    }

    /// What is known of a producer id, if anything is.
    #[must_use]
    pub fn known_producer(&self, id: ProducerId) -> Option<std::sync::Arc<Producer>> {
        self.producers.known(id)
    }

    /// Judges a batch. Nothing changes by it.
    pub fn judge(&self, key: WindowKey, arrival: &Arrival) -> Verdict {
        match self.windows.get_mut(&key) {
            Some(mut window) => window.judge(arrival, self.rules()),
            None => Window::new(arrival.now).judge(arrival, self.rules()),
        }
    }

    /// Judges a batch and, if it is to be forwarded, notes that it leaves:
    /// [`Self::judge`] and [`Self::commit`] in one look, for a batch that
    /// nothing of its request can hold back any more.
    pub fn admit(&self, key: WindowKey, arrival: &Arrival) -> Admission {
        let Some(mut window) = self.windows.get_mut(&key) else {
            let verdict = Window::new(arrival.now).judge(arrival, self.rules());
            let ticket = match verdict.action {
                Action::Forward => self.commit(key, arrival, &verdict),
                Action::Hold
                | Action::Replay(_)
                | Action::Mirror(_)
                | Action::Refuse(_)
                | Action::Resolve
                | Action::Defer => None,
            };
            return Admission { verdict, ticket };
        };
        let verdict = window.judge(arrival, self.rules());
        let committed = match verdict.action {
            Action::Forward => window.commit(arrival, &verdict),
            Action::Hold
            | Action::Replay(_)
            | Action::Mirror(_)
            | Action::Refuse(_)
            | Action::Resolve
            | Action::Defer => None,
        };
        drop(window);
        Admission {
            verdict,
            ticket: committed.map(|committed| self.ticket(key, arrival, committed)),
        }
    }

    /// The batch of a former epoch that a judged batch has the records of.
    #[must_use]
    pub fn original(&self, key: &WindowKey, arrival: &Arrival) -> Option<Original> {
        self.windows.get(key)?.original(arrival, self.rules())
    }

    /// Whether a key has a window.
    #[must_use]
    pub fn has(&self, key: &WindowKey) -> bool {
        self.windows.contains_key(key)
    }

    /// Notes that a judged batch leaves. `None`: it leaves untracked.
    #[must_use]
    pub fn commit(&self, key: WindowKey, arrival: &Arrival, verdict: &Verdict) -> Option<Ticket> {
        let committed = self.window(key, arrival.now)?.commit(arrival, verdict)?;
        Some(self.ticket(key, arrival, committed))
    }

    /// Whether a batch that is held waits for nothing but what these tickets
    /// of its own connection stand for.
    pub fn waits_for_own<'a>(
        &self,
        key: WindowKey,
        arrival: &Arrival,
        own: &(impl Iterator<Item = &'a Ticket> + Clone),
    ) -> bool {
        let Some(window) = self.windows.get(&key) else {
            return false;
        };
        window.waits_for_own(&arrival.batch, arrival.link, |id| {
            let mut own = own.clone();
            own.any(|ticket| ticket.key == key && ticket.id == id)
        })
    }

    /// Notes that a judged batch was answered from its window.
    pub fn absorbed(&self, key: WindowKey, arrival: &Arrival, verdict: &Verdict) {
        if let Some(mut window) = self.windows.get_mut(&key) {
            window.absorbed(arrival, verdict);
        }
    }

    /// Notes that a judged batch was answered with a mirrored error.
    pub fn mirrored(&self, key: WindowKey, arrival: &Arrival, verdict: &Verdict, code: i16) {
        if let Some(mut window) = self.windows.get_mut(&key) {
            window.mirrored(arrival, verdict, code);
        }
    }

    /// From which offset on the log of its partition has a batch, if it has
    /// it; `None` where nothing that is known lies before it.
    #[must_use]
    pub fn whereabouts(&self, key: WindowKey, batch: &BatchId) -> Option<i64> {
        self.windows.get(&key)?.whereabouts(batch)
    }

    /// Whether a 45 for a batch on its way is worth looking into: settle it
    /// with [`Outcome::Found`] where the log has it, else as what it is.
    #[must_use]
    pub fn contested(&self, ticket: &Ticket) -> bool {
        let window = self.windows.get(&ticket.key);
        window.is_some_and(|w| w.contested(&ticket.batch, ticket.transactional, self.rules()))
    }

    /// Whether an earlier copy of a batch on its way may be in the log.
    #[must_use]
    pub fn may_be_written(&self, ticket: &Ticket) -> bool {
        let window = self.windows.get(&ticket.key);
        window.is_some_and(|w| w.may_be_written(&ticket.batch))
    }

    /// Notes that the log has a batch for which it was judged to be read
    /// ([`Action::Resolve`]), and says how it is answered; `None` where its
    /// window is gone.
    pub fn found(&self, key: WindowKey, arrival: &Arrival, ack: Ack) -> Option<(Verdict, Settled)> {
        let mut window = self.windows.get_mut(&key)?;
        let found = window.found(arrival, ack, self.rules());
        drop(window);
        if found.1.wake {
            self.wake(&key);
        }
        Some(found)
    }

    /// Notes that the log was read for a batch and did not show it, or could
    /// not be read. Judge it again.
    pub fn asked(&self, key: WindowKey, batch: &BatchId) {
        if let Some(mut window) = self.windows.get_mut(&key) {
            window.asked(batch);
        }
    }

    /// What becomes of a batch that was looked for in a log that could not be
    /// read: it is judged again, and this is done where it would be looked for
    /// again at once.
    pub fn unread(&self, key: WindowKey, arrival: &Arrival, action: Action) -> Option<Verdict> {
        let verdict = self.judge(key, arrival);
        (verdict.action == Action::Resolve).then_some(Verdict { action, ..verdict })
    }

    /// Notes that the broker hung up instead of showing a batch.
    pub fn cut_off(&self, key: WindowKey, batch: &BatchId) {
        if let Some(mut window) = self.windows.get_mut(&key) {
            window.cut_off(batch);
        }
    }

    /// Notes that a judged batch was put off.
    pub fn deferred(&self, key: WindowKey, arrival: &Arrival, verdict: &Verdict) {
        if let Some(mut window) = self.windows.get_mut(&key) {
            window.deferred(arrival, verdict);
        }
    }

    /// Notes that a judged batch was refused. Returns where the log began,
    /// where that is known.
    pub fn refused(&self, key: WindowKey, arrival: &Arrival, verdict: &Verdict) -> Option<i64> {
        let mut window = self.windows.get_mut(&key)?;
        window.refused(arrival, verdict)
    }

    /// Settles a batch that left, and wakes who waited for it.
    pub fn settle(&self, ticket: &Ticket, outcome: Outcome, now: Time) -> Settled {
        let settled = self
            .windows
            .get_mut(&ticket.key)
            .map(|mut window| {
                window.settle(
                    ticket.id,
                    &ticket.batch,
                    &ticket.sender,
                    outcome,
                    self.rules(),
                    now,
                )
            })
            .unwrap_or_default();
        let trouble = !matches!(outcome, Outcome::Written(_));
        if (trouble || ticket.gated)
            && let Some(producer) = self.producers.known(ticket.key.producer)
        {
            if ticket.gated {
                producer.gate_passed();
            }
            if trouble {
                producer.trouble(now, self.rules().ttl);
            }
        }
        if settled.disagreed {
            self.withdrawn.fetch_add(1, Ordering::Relaxed);
        }
        if settled.wake {
            self.wake(&ticket.key);
        }
        settled
    }

    /// Has `waker` woken when the window changes. Judge again afterwards:
    /// the change may have come in between, and if nothing else comes the
    /// waker stays until the window goes.
    pub fn wait(&self, key: WindowKey, waker: &Waker) {
        let mut waiters = self.waiters.entry(key).or_default();
        if !waiters.iter().any(|w| w.will_wake(waker)) {
            waiters.push(waker.clone());
        }
        drop(waiters);
        match self.windows.get_mut(&key) {
            Some(mut window) => window.wait_for(),
            None => self.wake(&key),
        }
    }

    /// Notes that a batch came whose request is held, until [`Self::unqueue`].
    pub fn queue(&self, key: WindowKey, arrival: &Arrival) {
        if let Some(mut window) = self.window(key, arrival.now) {
            window.queue(&arrival.batch, arrival.link);
        }
    }

    /// The request of this connection is held no more.
    pub fn unqueue(&self, key: WindowKey, link: Link) {
        let window = self.windows.get_mut(&key);
        if window.is_some_and(|mut window| window.unqueue(link)) {
            self.wake(&key);
        }
    }

    fn wake(&self, key: &WindowKey) {
        if let Some((_, waiters)) = self.waiters.remove(key) {
            waiters.into_iter().for_each(Waker::wake);
        }
    }

    /// The cluster said its id. Another one than before has other logs.
    pub fn cluster(&self, id: &str) -> bool {
        let mut known = self
            .cluster_id
            .lock()
            .expect("nothing panics while this is locked");
        if known.as_deref() == Some(id) {
            return false;
        }
        let changed = known.replace(id.to_owned()).is_some();
        drop(known);
        if changed {
            self.topics.retire_all();
            for mut window in self.windows.iter_mut() {
                window.forget();
            }
            self.withdrawn.fetch_add(1, Ordering::Relaxed);
        }
        changed
    }

    /// The cluster's id, once it is known.
    #[must_use]
    pub fn cluster_id(&self) -> Option<String> {
        let known = self.cluster_id.lock();
        known.expect("nothing panics while this is locked").clone()
    }

    /// Grows whenever facts were dropped because the cluster contradicted
    /// them: a copy of them that was made before says what is not so.
    #[must_use]
    pub fn withdrawn(&self) -> u64 {
        self.withdrawn
            .load(Ordering::Relaxed)
            .wrapping_add(self.topics.retired())
    }

    /// Where the windows live, in no order. No window is locked for longer
    /// than it takes to go over a part of them.
    #[must_use]
    pub fn keys(&self) -> Vec<WindowKey> {
        let mut keys = Vec::with_capacity(self.windows());
        keys.extend(self.windows.iter().map(|window| *window.key()));
        keys
    }

    /// Puts the facts of a window for a retry into `facts`, oldest first, in
    /// place of what is there. `None`: there are none.
    #[must_use]
    pub fn kept(&self, key: &WindowKey, now: Time, facts: &mut Vec<KeptFact>) -> Option<Kept> {
        self.windows.get(key)?.kept(self.rules(), now, facts)
    }

    /// The identity behind each realm.
    #[must_use]
    pub fn identities(&self) -> HashMap<Realm, Identity> {
        self.realms.all()
    }

    /// Brings back a window with these facts, oldest first, of which those are
    /// left out that can no longer be used. Returns how many it has: none
    /// where the key has a window already, or no room is left.
    pub fn restore(&self, key: WindowKey, kept: &Kept, facts: &[KeptFact], now: Time) -> usize {
        let usable = |f: &&KeptFact| f.at <= now && f.at.within(self.rules().ttl, now);
        let usable: Vec<KeptFact> = facts.iter().filter(usable).copied().collect();
        let held = usable.len().min(self.rules().window_batches);
        if held == 0 || self.windows() >= self.windows_max {
            return 0;
        }
        let Entry::Vacant(place) = self.windows.entry(key) else {
            return 0;
        };
        place.insert(Box::new(Window::restored(kept, &usable, self.rules())));
        self.windows_count.fetch_add(1, Ordering::Relaxed);
        // Whoever was cut off by the restart sends its batches again.
        if let Some(producer) = self.producers.of(key.producer, now) {
            producer.trouble(now, self.rules().ttl);
        }
        held
    }

    /// Forgets what can no longer be used. Call it every few seconds.
    pub fn sweep(&self, now: Time) -> Swept {
        let mut swept = Swept::default();
        let crowded = self.windows() >= self.windows_max;
        let mut written_to = HashSet::new();
        let mut gone = Vec::new();
        self.windows.retain(|key, window| {
            let span = if window.unproven() {
                UNPROVEN_TIMEOUT
            } else {
                self.rules().ttl
            };
            if window.idle(IDLE_TIMEOUT, now) {
                swept.idle += 1;
            } else if crowded && window.idle(span, now) {
                swept.limit += 1;
            } else {
                window.rest(QUIET_AFTER, now);
                written_to.insert(key.topic);
                return true;
            }
            gone.push(*key);
            false
        });
        self.windows_count.fetch_sub(gone.len(), Ordering::Relaxed);
        // No waiter outlives its window: nothing would wake it any more.
        gone.iter().for_each(|key| self.wake(key));
        self.producers.sweep(now);
        self.topics.sweep(&written_to);
        swept
    }

    /// How many windows there are.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.windows_count.load(Ordering::Relaxed)
    }

    /// How many producers are known.
    #[must_use]
    pub fn producers(&self) -> usize {
        self.producers.len()
    }

    /// Up to `limit` windows, in no order.
    #[must_use]
    pub fn rows(&self, limit: usize, now: Time) -> Vec<WindowRow> {
        self.windows
            .iter()
            .take(limit)
            .map(|entry| {
                let summary = entry.value().summary();
                WindowRow {
                    key: *entry.key(),
                    summary,
                    age: now.0.saturating_sub(summary.touched.0),
                }
            })
            .collect()
    }

    fn ticket(
        &self,
        key: WindowKey,
        arrival: &Arrival,
        committed: crate::window::Committed,
    ) -> Ticket {
        let gated = committed
            .gated
            .then(|| self.producers.of(key.producer, arrival.now))
            .flatten();
        if let Some(producer) = &gated {
            producer.gate_met();
        }
        Ticket {
            key,
            batch: arrival.batch,
            transactional: arrival.transactional,
            sender: Sender {
                acks: arrival.acks,
                node: arrival.node,
                realm: arrival.realm,
                link: arrival.link,
            },
            id: committed.id,
            gated: gated.is_some(),
        }
    }

    /// The window for a key, made if there is room for it.
    fn window(
        &self,
        key: WindowKey,
        now: Time,
    ) -> Option<dashmap::mapref::one::RefMut<'_, WindowKey, Box<Window>>> {
        if let Some(window) = self.windows.get_mut(&key) {
            return Some(window);
        }
        if self.windows() >= self.windows_max {
            return None;
        }
        let window = self.windows.entry(key).or_insert_with(|| {
            self.windows_count.fetch_add(1, Ordering::Relaxed);
            Box::new(Window::new(now))
        });
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Sequence};
    use crate::window::{Ack, Acks, Mode, classify};

    fn ledger(windows_max: usize) -> Ledger {
        let rules = Rules {
            mode: Mode::Absorb,
            ttl: Duration::from_secs(300),
            window_batches: 5,
            absorb_transactional: false,
            shield45: false,
        };
        Ledger::new(rules, windows_max, 100)
    }

    /// Sends the first batch of a producer and settles it.
    fn send(ledger: &Ledger, producer: i64, outcome: Outcome) -> bool {
        let key = WindowKey {
            producer: ProducerId::from_wire(producer).unwrap(),
            topic: TopicKey(0),
            partition: 0,
        };
        let arrival = Arrival {
            batch: BatchId {
                producer: key.producer,
                epoch: Epoch(0),
                first: Sequence::ZERO,
                count: 1,
                crc: 1,
                len: 70,
            },
            transactional: false,
            acks: Acks::All,
            realm: ledger.realm(&Identity::Anonymous),
            node: None,
            link: ledger.link(),
            now: Time(0),
            patient: true,
            old: false,
        };
        let verdict = ledger.judge(key, &arrival);
        let Some(ticket) = ledger.commit(key, &arrival, &verdict) else {
            return false;
        };
        let _ = ledger.settle(&ticket, outcome, Time(0));
        true
    }

    #[test]
    fn at_the_limit_windows_that_were_never_acknowledged_go_first() {
        let ledger = ledger(2);
        let written = Outcome::Written(Some(Ack {
            offset: 0,
            append_time: -1,
            log_start: None,
        }));
        assert!(send(&ledger, 1, written));
        assert!(send(&ledger, 2, classify(49, None, -1, None)));
        assert!(!send(&ledger, 3, written), "forwarded untracked");
        let swept = ledger.sweep(Time(11));
        assert_eq!((swept.idle, swept.limit, ledger.windows()), (0, 1, 1));
        assert!(send(&ledger, 3, written));
    }

    #[test]
    fn below_the_limit_windows_stay_until_they_are_idle() {
        let ledger = ledger(10);
        assert!(send(&ledger, 1, classify(49, None, -1, None)));
        assert_eq!(ledger.sweep(Time(3600)), Swept::default());
        assert_eq!(ledger.sweep(Time(3601)).idle, 1);
    }

    /// What was waited for may have come, and the window gone, before the
    /// waiter is in the table.
    #[test]
    fn no_waiter_outlives_its_window() {
        let ledger = ledger(10);
        let waker = Waker::noop();
        let key = WindowKey {
            producer: ProducerId::from_wire(1).unwrap(),
            topic: TopicKey(0),
            partition: 0,
        };
        ledger.wait(key, waker);
        assert!(ledger.waiters.is_empty(), "there is no window to wait for");
        assert!(send(&ledger, 1, classify(49, None, -1, None)));
        ledger.wait(key, waker);
        assert_eq!(ledger.waiters.len(), 1);
        assert_eq!(ledger.sweep(Time(3601)).idle, 1);
        assert!(ledger.waiters.is_empty());
    }

    /// A batch of one record, as a session tells of it.
    fn arrival(ledger: &Ledger, link: Link, first: u32) -> (WindowKey, Arrival) {
        let key = WindowKey {
            producer: ProducerId::from_wire(1).unwrap(),
            topic: TopicKey(0),
            partition: 0,
        };
        let batch = BatchId {
            producer: key.producer,
            epoch: Epoch(0),
            first: Sequence::ZERO.advance(first),
            count: 1,
            crc: first,
            len: 70,
        };
        let arrival = Arrival {
            batch,
            transactional: false,
            acks: Acks::All,
            realm: ledger.realm(&Identity::Anonymous),
            node: None,
            link,
            now: Time(0),
            patient: true,
            old: false,
        };
        (key, arrival)
    }

    #[test]
    fn a_batch_that_is_alone_is_judged_and_noted_in_one_look() {
        let [one, two] = [ledger(10), ledger(10)];
        let links = [one.link(), two.link()];
        // Two new ones, of which the second waits; both again; then the next.
        for first in [0, 1, 0, 1, 2] {
            let (key, arrival) = arrival(&one, links[0], first);
            let admission = one.admit(key, &arrival);
            let (_, other) = self::arrival(&two, links[1], first);
            let verdict = two.judge(key, &other);
            let ticket = match verdict.action {
                Action::Forward => two.commit(key, &other, &verdict),
                _ => None,
            };
            assert_eq!(admission.verdict, verdict);
            assert_eq!(admission.ticket.is_some(), ticket.is_some(), "{first}");
            let ack = Ack {
                offset: i64::from(first),
                append_time: -1,
                log_start: None,
            };
            let written = Outcome::Written(Some(ack));
            let mut settled = [(&one, admission.ticket), (&two, ticket)]
                .map(|(ledger, ticket)| ticket.map(|t| ledger.settle(&t, written, Time(0))));
            assert_eq!(settled[0].take(), settled[1].take());
        }
        assert_eq!(one.windows(), 1);
    }

    #[test]
    fn what_is_not_forwarded_is_not_noted() {
        let ledger = ledger(10);
        let link = ledger.link();
        let (key, first) = arrival(&ledger, link, 0);
        assert!(ledger.admit(key, &first).ticket.is_some());
        let (key, next) = arrival(&ledger, link, 1);
        let held = ledger.admit(key, &next);
        assert_eq!(held.verdict.action, Action::Hold);
        assert!(held.ticket.is_none());
        assert_eq!(ledger.judge(key, &next), held.verdict, "it left no trace");
    }

    #[test]
    fn another_cluster_is_another_log() {
        let ledger = ledger(10);
        assert!(!ledger.cluster("a"));
        assert!(!ledger.cluster("a"));
        assert!(ledger.cluster("b"));
    }
}
