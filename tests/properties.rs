//! The window against what is told of it: an independent account of every
//! batch that was forwarded, answered and settled, in any order that clients,
//! brokers and networks can bring about.

#![allow(
    clippy::unwrap_used,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared with other test binaries, each using its own part of it"
)]
#[path = "support/model.rs"]
mod model;

#[path = "properties/bumps.rs"]
mod bumps;

use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence};
use hapax::window::{
    Ack, Acks, Action, Arrival, AttemptId, Class, Kept, KeptFact, Link, Mode, OPEN_MAX, Outcome,
    Realm, Rules, Sender, Time, Verdict, Window, classify,
};
use model::{Decision, Model};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

const TTL_S: u32 = 300;
/// Where the sequences of half of the cases begin: just before the wrap.
const NEAR_WRAP: i32 = i32::MAX - 3;

/// One thing that happens to a window.
#[derive(Clone, Debug)]
enum Step {
    Arrive(Coming),
    /// The batch that came last comes again.
    Again,
    /// The `flight`th batch on its way is settled.
    Settle {
        flight: usize,
        end: End,
    },
    /// One that was settled is settled once more.
    SettleAgain {
        flight: usize,
        end: End,
    },
    Pass {
        seconds: u32,
    },
    Forget,
    /// What would outlive the process is written down.
    Save,
    /// The process is killed; the next one finds what was written down last,
    /// however long ago that was.
    Restart,
}

#[derive(Clone, Debug)]
struct Coming {
    epoch: i16,
    at: u32,
    count: u32,
    bytes: u32,
    transactional: bool,
    acks: Acks,
    realm: Option<u32>,
    node: Option<i32>,
    link: u32,
    patient: bool,
    old: bool,
    /// Whether the log shows it where that is looked into.
    shown: bool,
    /// Its request is withdrawn after it was judged.
    withdrawn: bool,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Acknowledged where a log that only grows puts it.
    Appended,
    /// Acknowledged at this offset, whatever was acknowledged before.
    Offset(i64, i64),
    Code(i16, Option<i64>),
    /// Refused with 45, and found in the log.
    Found,
    Lost,
    Withheld,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => coming().prop_map(Step::Arrive),
        5 => Just(Step::Again),
        8 => (0..8_usize, end()).prop_map(|(flight, end)| Step::Settle { flight, end }),
        1 => (0..8_usize, end()).prop_map(|(flight, end)| Step::SettleAgain { flight, end }),
        1 => prop_oneof![Just(1), Just(100), Just(TTL_S), Just(TTL_S + 1)]
            .prop_map(|seconds| Step::Pass { seconds }),
        1 => prop::bool::weighted(0.2).prop_map(|forget| if forget {
            Step::Forget
        } else {
            Step::Pass { seconds: 0 }
        }),
        1 => prop::bool::ANY.prop_map(|saves| if saves { Step::Save } else { Step::Restart }),
    ]
}

fn coming() -> impl Strategy<Value = Coming> {
    let place = (
        prop_oneof![8 => Just(0), 2 => Just(1), 1 => Just(2)],
        0..7_u32,
        prop_oneof![8 => Just(1), 1 => Just(2), 1 => Just(4)],
        prop_oneof![12 => Just(0), 1 => Just(1)],
    );
    let acks = prop_oneof![10 => Just(Acks::All), 3 => Just(Acks::Leader), 1 => Just(Acks::None)];
    let way = (
        prop::bool::weighted(0.08),
        acks,
        prop_oneof![10 => Just(Some(1)), 1 => Just(Some(2)), 1 => Just(None)],
        prop_oneof![6 => Just(Some(1)), 2 => Just(Some(2)), 1 => Just(None)],
        1..4_u32,
    );
    (
        place,
        way,
        prop::bool::weighted(0.9),
        (prop::bool::weighted(0.2), any::<bool>()),
        prop::bool::weighted(0.05),
    )
        .prop_map(
            |(
                (epoch, at, count, bytes),
                (transactional, acks, realm, node, link),
                patient,
                (old, shown),
                withdrawn,
            )| {
                Coming {
                    epoch,
                    at,
                    count,
                    bytes,
                    transactional,
                    acks,
                    realm,
                    node,
                    link,
                    patient,
                    old,
                    shown,
                    withdrawn,
                }
            },
        )
}

fn end() -> impl Strategy<Value = End> {
    let codes = prop::sample::select(vec![
        2, 3, 6, 7, 10, 13, 17, 19, 20, 21, 29, 31, 45, 46, 47, 48, 51, 56, 59, 76, 87, 90, 100,
        120, -1,
    ]);
    prop_oneof![
        8 => Just(End::Appended),
        1 => (0..20_i64, -1..3_i64).prop_map(|(offset, start)| End::Offset(offset, start)),
        6 => (codes, prop::option::of(0..20_i64)).prop_map(|(code, base)| End::Code(code, base)),
        1 => Just(End::Found),
        2 => Just(End::Lost),
        1 => Just(End::Withheld),
    ]
}

fn rules() -> impl Strategy<Value = Rules> {
    (
        prop_oneof![Just(5), Just(1), Just(32)],
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(Mode::Absorb), Just(Mode::Enforce)],
    )
        .prop_map(
            |(window_batches, absorb_transactional, shield45, mode)| Rules {
                mode,
                ttl: Duration::from_secs(u64::from(TTL_S)),
                window_batches,
                absorb_transactional,
                shield45,
            },
        )
}

/// A batch as the account tells them apart; no code of the window is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    epoch: i16,
    first: i32,
    count: u32,
    bytes: u32,
}

/// What an attempt came to, as far as the cluster said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Sent,
    Unknown,
    NotWritten,
}

/// A batch on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    id: AttemptId,
    name: Name,
    arrival: Arrival,
}

/// The newest word on an attempt, and when it came; a mirrored batch has no attempt.
#[derive(Clone, Copy, Debug)]
struct Told {
    fate: Fate,
    at: u32,
    id: Option<AttemptId>,
}

/// An acknowledgement that was given, until something speaks against it.
#[derive(Clone, Copy, Debug)]
struct Earned {
    name: Name,
    offset: i64,
    acks: Acks,
    realm: Option<Realm>,
    node: Option<NodeId>,
    at: u32,
}

/// What was told of a producer on a partition.
#[derive(Default)]
struct Account {
    /// What was told of each attempt, by batch.
    fates: BTreeMap<Name, Vec<Told>>,
    /// Batches of which an attempt ever ended without a word.
    doubted: BTreeSet<Name>,
    earned: Vec<Earned>,
    mirrors: BTreeMap<Name, u32>,
    epoch: Option<i16>,
    log_start: i64,
    end: i64,
    heard: bool,
    /// More was open once than a window keeps.
    crowded: bool,
}

/// How far sequence `a` lies ahead of `b`, the shorter way round.
fn ahead(a: i32, b: i32) -> i32 {
    let by = a.wrapping_sub(b) & i32::MAX;
    if by < 1 << 30 { by } else { by - i32::MAX - 1 }
}

impl Account {
    fn attempts(&self) -> usize {
        let of_one = |fates: &Vec<Told>| {
            let sent = fates.iter().filter(|told| told.fate == Fate::Sent).count();
            // Copies that are settled are one entry: the strongest word counts.
            sent + usize::from(fates.len() > sent)
        };
        self.fates.values().map(of_one).sum()
    }

    /// The window may hold no more than eight attempts: what is beyond may be forgotten.
    fn crowd(&mut self) {
        if self.attempts() > OPEN_MAX {
            self.crowded = true;
            self.mirrors.clear();
            for fates in self.fates.values_mut() {
                fates.retain(|told| told.fate == Fate::Sent);
            }
        }
    }

    fn expire(&mut self, now: u32) {
        for fates in self.fates.values_mut() {
            fates.retain(|told| told.fate == Fate::Sent || now - told.at <= TTL_S);
        }
        let known = &self.fates;
        self.mirrors
            .retain(|name, _| known.get(name).is_some_and(|fates| !fates.is_empty()));
    }

    fn forwarded(&mut self, name: Name, arrival: &Arrival, id: Option<AttemptId>) {
        for earned in &mut self.earned {
            let leads = earned.acks == Acks::All || earned.node == arrival.node;
            if id.is_some() && !leads {
                earned.node = None;
            }
        }
        if id.is_none() {
            return;
        }
        self.came_again(name);
        let fates = self.fates.entry(name).or_default();
        fates.retain(|told| told.fate != Fate::NotWritten);
        fates.push(Told {
            fate: Fate::Sent,
            at: arrival.now.0,
            id,
        });
        self.crowd();
    }

    /// A batch came: those behind it may be mirrored anew.
    fn came_again(&mut self, name: Name) {
        self.mirrors
            .retain(|n, _| n.epoch != name.epoch || ahead(n.first, name.first) <= 0);
    }

    fn mirrored(&mut self, name: Name, now: u32) {
        *self.mirrors.entry(name).or_default() += 1;
        let fates = self.fates.entry(name).or_default();
        fates.retain(|told| told.fate != Fate::NotWritten);
        fates.push(Told {
            fate: Fate::NotWritten,
            at: now,
            id: None,
        });
        self.crowd();
    }

    /// Error 45 to this batch was shown as `code`: the one before it is open.
    fn shielded(&mut self, name: Name, code: i16) {
        assert!([3, 6, 19, 100].contains(&code), "{code}");
        let before = |n: &Name| {
            let count = i32::try_from(n.count).unwrap();
            n.epoch == name.epoch && model::advance(n.first, count) == name.first
        };
        let open = |(n, fates): (&Name, &Vec<Told>)| before(n) && !fates.is_empty();
        assert!(self.crowded || self.fates.iter().any(open), "{name:?}");
        let mirrors = self.mirrors.entry(name).or_default();
        *mirrors += 1;
        assert!(*mirrors <= 3, "{mirrors} made-up errors for {name:?}");
    }

    /// What one answer says; an attempt that had one already is not open any more.
    fn settled(&mut self, flight: &Flight, outcome: Outcome, rules: &Rules, now: u32) {
        self.heard = true;
        let name = flight.name;
        let fates = self.fates.entry(name).or_default();
        let sent = |told: &&mut Told| told.fate == Fate::Sent && told.id == Some(flight.id);
        if let Some(told) = fates.iter_mut().find(sent) {
            told.at = now;
            told.fate = match outcome {
                Outcome::Unknown { .. } => Fate::Unknown,
                _ => Fate::NotWritten,
            };
        }
        match outcome {
            Outcome::Written(ack) => self.written(flight, ack, rules, now),
            Outcome::Found(ack) => self.found(flight, ack, rules, now),
            Outcome::OutOfOrder => {
                let newest = self.earned.iter().filter(|e| e.name.epoch == name.epoch);
                let behind_all = newest.clone().all(|e| ahead(name.first, e.name.first) > 0);
                let next = newest.into_iter().any(|e| {
                    ahead(name.first, e.name.first) == i32::try_from(e.name.count).unwrap()
                });
                let unknown = self.fates[&name]
                    .iter()
                    .any(|told| told.fate == Fate::Unknown);
                if behind_all && next && !unknown {
                    self.earned.clear();
                }
            }
            // A leader that could not keep the batch may not be leader any more.
            Outcome::Unknown { .. } => {
                self.doubted.insert(name);
                self.distrust();
            }
            Outcome::Failed(code) if code != 2 && code != 10 => self.distrust(),
            Outcome::Failed(_) | Outcome::Refused(_) | Outcome::Withheld => {}
        }
    }

    fn distrust(&mut self) {
        let alone = |earned: &&mut Earned| earned.acks != Acks::All;
        for earned in self.earned.iter_mut().filter(alone) {
            earned.node = None;
        }
    }

    /// What the log shows is on all in-sync replicas.
    fn found(&mut self, flight: &Flight, ack: Ack, rules: &Rules, now: u32) {
        let mut flight = *flight;
        flight.arrival.acks = Acks::All;
        self.written(&flight, Some(ack), rules, now);
    }

    fn written(&mut self, flight: &Flight, ack: Option<Ack>, rules: &Rules, now: u32) {
        let name = flight.name;
        self.fates.remove(&name);
        self.mirrors.remove(&name);
        if self.epoch.is_some_and(|epoch| name.epoch < epoch) {
            return;
        }
        self.epoch = Some(name.epoch);
        self.earned
            .retain(|e| e.name.epoch == name.epoch && e.realm == flight.arrival.realm);
        let Some(ack) = ack else { return };
        let start = ack.log_start.unwrap_or(self.log_start);
        let shrunk = start < self.log_start;
        self.log_start = start;
        let later = |e: &Earned| ahead(name.first, e.name.first) > 0 && ack.offset <= e.offset;
        // Evidence against a fact that gave way to others is not seen.
        if shrunk || (self.remembered(rules) && self.earned.iter().any(later)) {
            self.earned.clear();
        }
        self.end = self.end.max(ack.offset + i64::from(name.count));
        // Other bytes in the range of a batch that is still known teach
        // nothing: the broker may have thrown them away.
        let reused = |e: &Earned| {
            (e.name.first, e.name.count) == (name.first, name.count) && e.name.bytes != name.bytes
        };
        if self.remembered(rules) && self.earned.iter().any(reused) {
            return;
        }
        self.earned.push(Earned {
            name,
            offset: ack.offset,
            acks: flight.arrival.acks,
            realm: flight.arrival.realm,
            node: flight.arrival.node,
            at: now,
        });
    }

    /// Whether this answer was given before, to these bytes, and still stands.
    fn allows(&self, name: Name, arrival: &Arrival, rules: &Rules, ack: &Ack) -> bool {
        (!arrival.transactional || rules.absorb_transactional)
            && arrival.realm.is_some()
            && arrival.acks != Acks::None
            && self.earned.iter().any(|e| {
                e.name == name
                    && e.offset == ack.offset
                    && e.realm == arrival.realm
                    && arrival.now.0 - e.at <= TTL_S
                    && match e.acks {
                        Acks::All => true,
                        Acks::Leader => {
                            arrival.acks == Acks::Leader
                                && e.node.is_some()
                                && e.node == arrival.node
                        }
                        Acks::None => false,
                    }
            })
    }

    /// Whether the ring has room for all that was acknowledged.
    fn remembered(&self, rules: &Rules) -> bool {
        let ranges = self.earned.iter().map(|e| (e.name.first, e.name.count));
        ranges.collect::<BTreeSet<_>>().len() <= rules.window_batches
    }

    /// Whether a copy of it is or may be in the log, so far as can be known.
    fn may_be_written(&self, name: Name, rules: &Rules) -> bool {
        let open = self
            .fates
            .get(&name)
            .is_some_and(|fates| fates.iter().any(|told| told.fate != Fate::NotWritten));
        let remembered = self.remembered(rules);
        open || (remembered && self.earned.iter().any(|e| e.name == name))
    }

    fn is_sent(&self, name: Name) -> bool {
        let fates = self.fates.get(&name);
        fates.is_some_and(|fates| fates.iter().any(|told| told.fate == Fate::Sent))
    }

    fn lower_sent(&self, name: Name) -> bool {
        self.fates.iter().any(|(n, fates)| {
            fates.iter().any(|told| told.fate == Fate::Sent)
                && (n.epoch < name.epoch
                    || (n.epoch == name.epoch && ahead(name.first, n.first) > 0))
        })
    }
}

/// What was written down of a window, and what was earned by then.
#[derive(Clone)]
struct Saved {
    kept: Kept,
    facts: Vec<KeptFact>,
    earned: Vec<Earned>,
}

/// A window, and what is told of it.
struct World {
    window: Window,
    saved: Option<Saved>,
    rules: Rules,
    base: i32,
    now: u32,
    account: Account,
    flights: Vec<Flight>,
    landed: Vec<Flight>,
    last: Option<Coming>,
}

impl World {
    fn new(rules: Rules, base: i32) -> Self {
        Self {
            window: Window::new(Time(0)),
            saved: None,
            rules,
            base,
            now: 0,
            account: Account {
                log_start: -1,
                ..Account::default()
            },
            flights: Vec::new(),
            landed: Vec::new(),
            last: None,
        }
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            match step {
                Step::Arrive(coming) => {
                    self.last = Some(coming.clone());
                    self.arrive(coming)?;
                }
                Step::Again => {
                    if let Some(coming) = self.last.clone() {
                        self.arrive(&coming)?;
                    }
                }
                Step::Settle { flight, end } => self.settle(*flight, *end),
                Step::SettleAgain { flight, end } => self.settle_again(*flight, *end),
                Step::Pass { seconds } => self.now += seconds,
                Step::Forget => {
                    self.window.forget();
                    self.account.earned.clear();
                }
                Step::Save => self.save(),
                Step::Restart => self.restart(),
            }
            self.check_bounds()?;
        }
        Ok(())
    }

    fn save(&mut self) {
        let mut facts = Vec::new();
        let kept = self.window.kept(&self.rules, Time(self.now), &mut facts);
        self.saved = kept.map(|kept| Saved {
            kept,
            facts,
            earned: self.account.earned.clone(),
        });
    }

    /// No session of before is left, so nothing is settled any more. What was
    /// earned when it was written down stays earned, whatever came after.
    fn restart(&mut self) {
        self.flights.clear();
        self.landed.clear();
        self.account = Account {
            log_start: -1,
            end: self.account.end,
            ..Account::default()
        };
        let now = self.now;
        let Some(saved) = &mut self.saved else {
            self.window = Window::new(Time(now));
            return;
        };
        let fresh = |at: u32| now - at <= TTL_S;
        saved.facts.retain(|fact| fresh(fact.at.0));
        self.window = Window::restored(&saved.kept, &saved.facts, &self.rules);
        self.account.epoch = Some(saved.kept.epoch.0);
        self.account.log_start = saved.kept.log_start.unwrap_or(-1);
        let all = saved.earned.iter().filter(|e| e.acks == Acks::All);
        let all = all.filter(|e| fresh(e.at) && e.realm.is_some());
        self.account.earned = all.copied().collect();
    }

    fn arrival(&self, coming: &Coming) -> (Name, Arrival) {
        let first = model::advance(self.base, i32::try_from(coming.at).unwrap());
        // A higher epoch that did not wrap yet begins at 0.
        let first = if coming.epoch > 0 {
            coming.at.cast_signed()
        } else {
            first
        };
        let name = Name {
            epoch: coming.epoch,
            first,
            count: coming.count,
            bytes: coming.bytes,
        };
        let arrival = Arrival {
            batch: batch(name),
            transactional: coming.transactional,
            acks: coming.acks,
            realm: coming.realm.and_then(NonZeroU32::new).map(Realm),
            node: coming.node.and_then(NodeId::from_wire),
            link: Link(NonZeroU32::new(coming.link).unwrap()),
            now: Time(self.now),
            patient: coming.patient,
            old: coming.old,
        };
        (name, arrival)
    }

    fn arrive(&mut self, coming: &Coming) -> Result<(), TestCaseError> {
        let (name, arrival) = self.arrival(coming);
        self.account.expire(self.now);
        let mut verdict = self.judge_without_trace(&arrival)?;
        self.check(name, &arrival, &verdict)?;
        if coming.withdrawn {
            return Ok(());
        }
        if verdict.action == Action::Resolve {
            verdict = if coming.shown {
                self.found(name, &arrival)
            } else {
                self.window.asked(&arrival.batch);
                self.judge_without_trace(&arrival)?
            };
            self.check(name, &arrival, &verdict)?;
            let replayed = matches!(verdict.action, Action::Replay(_));
            prop_assert_eq!(replayed, coming.shown, "{:?}", verdict);
        }
        match verdict.action {
            Action::Hold => {
                self.window.wait_for();
                let impatient = Arrival {
                    patient: false,
                    ..arrival
                };
                let verdict = self.window.judge(&impatient, &self.rules);
                prop_assert_ne!(verdict.action, Action::Hold, "patience ends");
                self.check(name, &impatient, &verdict)?;
            }
            Action::Forward => self.forward(name, &arrival, &verdict),
            Action::Resolve => prop_assert!(false, "{name:?} is looked for again"),
            Action::Refuse(_) => {
                self.window.refused(&arrival, &verdict);
            }
            Action::Replay(_) => self.window.absorbed(&arrival, &verdict),
            Action::Defer => {
                self.window.deferred(&arrival, &verdict);
                self.account.came_again(name);
            }
            Action::Mirror(code) => {
                self.window.mirrored(&arrival, &verdict, code);
                self.account.mirrored(name, self.now);
                let mirrors = self.account.mirrors.get(&name).copied().unwrap_or(0);
                prop_assert!(mirrors <= 3, "{mirrors} mirrors of {name:?}");
            }
        }
        Ok(())
    }

    fn found(&mut self, name: Name, arrival: &Arrival) -> Verdict {
        let ack = Ack {
            offset: self.account.end,
            append_time: -1,
            log_start: None,
        };
        let (verdict, _) = self.window.found(arrival, ack, &self.rules);
        let flight = Flight {
            id: AttemptId::default(),
            name,
            arrival: *arrival,
        };
        self.account.found(&flight, ack, &self.rules, self.now);
        verdict
    }

    /// Judges twice, with others in between: what has expired goes by the
    /// first one, nothing may change by the others.
    fn judge_without_trace(&mut self, arrival: &Arrival) -> Result<Verdict, TestCaseError> {
        let verdict = self.window.judge(arrival, &self.rules);
        let before = format!("{:?}", self.window);
        for first in [0, 1, 3] {
            let batch = BatchId {
                first: Sequence::from_wire(model::advance(self.base, first)).unwrap(),
                ..arrival.batch
            };
            let other = Arrival { batch, ..*arrival };
            let _ = self.window.judge(&other, &self.rules);
        }
        let again = self.window.judge(arrival, &self.rules);
        prop_assert_eq!(before, format!("{:?}", self.window));
        prop_assert_eq!(verdict, again);
        Ok(verdict)
    }

    fn check(&self, name: Name, arrival: &Arrival, verdict: &Verdict) -> Result<(), TestCaseError> {
        let account = &self.account;
        match verdict.action {
            Action::Replay(ack) => prop_assert!(
                account.allows(name, arrival, &self.rules, &ack),
                "{ack:?} was not earned by {name:?}: {:?}",
                account.earned
            ),
            Action::Hold => {
                let waits = account.lower_sent(name) || account.is_sent(name);
                prop_assert!(waits, "{name:?} waits for nothing");
                prop_assert!(arrival.patient);
            }
            Action::Defer => {
                let unknown = account.doubted.contains(&name);
                prop_assert!(
                    account.is_sent(name) || unknown,
                    "{name:?} is put off for nothing"
                );
            }
            Action::Mirror(code) => {
                prop_assert!([3, 6, 19, 100].contains(&code), "{code}");
                prop_assert!(
                    !account.may_be_written(name, &self.rules),
                    "{name:?} is said not to be written: {:?}",
                    account.fates.get(&name)
                );
                prop_assert!(
                    account.heard || account.lower_sent(name),
                    "nothing is known, and nothing is refused"
                );
            }
            Action::Resolve => prop_assert!(
                account.doubted.contains(&name) || account.is_sent(name),
                "{name:?} is looked for without a reason"
            ),
            Action::Refuse(code) => {
                prop_assert_eq!(self.rules.mode, Mode::Enforce);
                prop_assert_eq!(code, 47);
                let proof = account.epoch.is_some_and(|epoch| name.epoch < epoch);
                prop_assert!(proof, "{name:?} is refused after {:?}", account.epoch);
            }
            Action::Forward => {}
        }
        if arrival.acks == Acks::None {
            prop_assert_eq!(verdict.action, Action::Forward);
        }
        Ok(())
    }

    fn forward(&mut self, name: Name, arrival: &Arrival, verdict: &Verdict) {
        let committed = self.window.commit(arrival, verdict);
        self.account
            .forwarded(name, arrival, committed.map(|c| c.id));
        if let Some(committed) = committed {
            self.flights.push(Flight {
                id: committed.id,
                name,
                arrival: *arrival,
            });
        }
    }

    fn outcome(&self, end: End) -> Outcome {
        match end {
            End::Appended => classify(0, Some(self.account.end), -1, Some(0)),
            End::Offset(offset, start) => {
                classify(0, Some(offset), -1, (start >= 0).then_some(start))
            }
            End::Code(code, base) => classify(code, base, -1, None),
            End::Found => Outcome::Found(Ack {
                offset: self.account.end,
                append_time: -1,
                log_start: None,
            }),
            End::Lost => Outcome::Unknown { candidate: None },
            End::Withheld => Outcome::Withheld,
        }
    }

    fn settle(&mut self, at: usize, end: End) {
        if at < self.flights.len() {
            let flight = self.flights.remove(at);
            self.settle_one(&flight, end);
            self.landed.push(flight);
        }
    }

    fn settle_again(&mut self, at: usize, end: End) {
        if let Some(flight) = self.landed.get(at).copied() {
            self.settle_one(&flight, end);
        }
    }

    fn settle_one(&mut self, flight: &Flight, end: End) {
        let outcome = self.outcome(end);
        let sender = Sender {
            acks: flight.arrival.acks,
            node: flight.arrival.node,
            realm: flight.arrival.realm,
            link: flight.arrival.link,
        };
        let batch = &flight.arrival.batch;
        let now = Time(self.now);
        let settled = self
            .window
            .settle(flight.id, batch, &sender, outcome, &self.rules, now);
        if let Some(code) = settled.shield {
            assert_eq!(outcome, Outcome::OutOfOrder);
            assert!(self.rules.shield45 && self.rules.mode != Mode::Observe);
            self.account.shielded(flight.name, code);
        }
        self.account.settled(flight, outcome, &self.rules, self.now);
    }

    fn check_bounds(&self) -> Result<(), TestCaseError> {
        let inside = format!("{:?}", self.window);
        let open = inside.matches("Attempt {").count();
        let facts = inside.matches("Fact {").count();
        prop_assert!(open <= OPEN_MAX, "{open} open attempts");
        prop_assert!(facts <= self.rules.window_batches, "{facts} facts");
        let former = inside.matches("Original {").count();
        let former_max = self.rules.window_batches + OPEN_MAX;
        prop_assert!(former <= former_max, "{former} batches of former epochs");
        Ok(())
    }
}

fn batch(name: Name) -> BatchId {
    BatchId {
        producer: ProducerId::from_wire(7).unwrap(),
        epoch: Epoch(name.epoch),
        first: Sequence::from_wire(name.first).unwrap(),
        count: name.count,
        crc: name.first.cast_unsigned() ^ (name.bytes << 16),
        len: 100 + name.count,
    }
}

fn base() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), Just(NEAR_WRAP)]
}

/// `PROPTEST_CASES` sets another number of cases.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases * 4,
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    /// Answers are earned, waits end, mirrored errors are true, all is bounded.
    #[test]
    fn a_window_never_says_more_than_it_was_told(
        rules in rules(),
        base in base(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        World::new(rules, base).run(&steps)?;
    }

    #[test]
    fn nothing_waits_once_all_is_settled(
        rules in rules(),
        base in base(),
        steps in prop::collection::vec(step(), 1..40),
        ends in prop::collection::vec(end(), 40),
        late in prop::collection::vec(coming(), 1..10),
    ) {
        let mut world = World::new(rules, base);
        world.run(&steps)?;
        for end in ends {
            world.settle(0, end);
        }
        prop_assert!(world.flights.is_empty());
        for coming in late {
            let (_, arrival) = world.arrival(&coming);
            let verdict = world.window.judge(&arrival, &world.rules);
            prop_assert_ne!(verdict.action, Action::Hold);
        }
    }

    #[test]
    fn observing_forwards_everything(
        rules in rules(),
        base in base(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(Rules { mode: Mode::Observe, ..rules }, base);
        for step in &steps {
            if let Step::Arrive(coming) = step {
                let (_, arrival) = world.arrival(coming);
                let verdict = world.window.judge(&arrival, &world.rules);
                prop_assert_eq!(verdict.action, Action::Forward);
            }
            world.run(std::slice::from_ref(step))?;
        }
    }

    /// Behind a window that loses nothing, a broker gets all that it would
    /// append, and a replay is what the broker would have answered.
    #[test]
    fn a_replay_is_what_the_broker_would_say(
        rules in rules(),
        base in base(),
        comings in prop::collection::vec(coming(), 1..60),
    ) {
        let mut world = World::new(rules, base);
        let mut broker = Model::default();
        for coming in comings {
            let (name, arrival) = world.arrival(&Coming {
                acks: Acks::All,
                realm: Some(1),
                transactional: false,
                // The broker compares no bytes: the window must not be asked to.
                bytes: 0,
                ..coming
            });
            let verdict = world.window.judge(&arrival, &world.rules);
            if let Action::Mirror(_) = verdict.action {
                world.window.mirrored(&arrival, &verdict, 19);
                continue;
            }
            let last = model::advance(name.first, i32::try_from(name.count).unwrap() - 1);
            let decision = broker.append(name.epoch, name.first, last);
            match verdict.action {
                Action::Replay(ack) => {
                    prop_assert_eq!(verdict.class, Class::Duplicate);
                    // A ring longer than the broker's answers what it forgot.
                    let forgotten = world.rules.window_batches > 5 && decision == Decision::Error(45);
                    prop_assert!(forgotten || decision == Decision::Duplicate(ack.offset), "{:?}", decision);
                    world.window.absorbed(&arrival, &verdict);
                }
                Action::Forward => {
                    let committed = world.window.commit(&arrival, &verdict).unwrap();
                    let flight = Flight { id: committed.id, name, arrival };
                    let end = match decision {
                        Decision::Accepted(offset) | Decision::Duplicate(offset) => End::Offset(offset, 0),
                        Decision::Error(code) => End::Code(code, None),
                    };
                    world.settle_one(&flight, end);
                }
                Action::Hold | Action::Mirror(_) | Action::Resolve | Action::Defer => prop_assert!(false, "{:?} with nothing on its way", verdict),
                Action::Refuse(code) => {
                    prop_assert_eq!(decision, Decision::Error(code), "{:?}", verdict);
                    world.window.refused(&arrival, &verdict);
                }
            }
        }
    }
}
