//! A window, given whatever may arrive and whatever may be answered, with numbers of every size; `tests/properties.rs` says
//! more of what it must do with small ones.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use hapax::cli::RunArgs;
use hapax::ids::{BatchId, Epoch, NodeId, ProducerId, Sequence};
use hapax::listen::share;
use hapax::window::{
    Ack, Acks, Action, Arrival, AttemptId, Class, Link, Mode, OPEN_MAX, Outcome, Realm, Rules,
    Sender, Time, Verdict, Window, classify,
};

use super::choices::Choices;

/// Codes that brokers answer, and two that they do not.
const CODES: [i16; 16] = [6, 19, 45, 7, 20, 3, 2, 10, 17, 29, 47, 87, 90, 100, 120, -1];
/// How often an answer may be made up for a batch.
const MIRRORS_MAX: u32 = 3;

/// What identifies a batch, in an order.
type Name = (i16, i32, u32, u32, u32);

struct World {
    window: Window,
    rules: Rules,
    now: u32,
    /// Where sequences begin, so that they are near each other.
    base: i32,
    flights: Vec<(AttemptId, Arrival)>,
    /// The offsets that were given to each batch.
    given: BTreeMap<Name, BTreeSet<i64>>,
    /// Errors that were made up for a batch since it was last forwarded.
    mirrors: BTreeMap<Name, u32>,
    /// Batches of which a copy was written: the window keeps no other one.
    written: BTreeSet<Name>,
}

/// What happens, step by step.
pub fn drive(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut rules = rules();
    rules.mode = choices.of(&[Mode::Absorb, Mode::Absorb, Mode::Enforce, Mode::Observe]);
    rules.window_batches = choices.of(&[5, 1, 32]);
    rules.absorb_transactional = choices.rarely(4);
    rules.shield45 = choices.rarely(4);
    let mut world = World {
        window: Window::new(Time(0)),
        rules,
        now: 0,
        base: choices.of(&[0, i32::MAX - 3, 1 << 30]),
        flights: Vec::new(),
        given: BTreeMap::new(),
        mirrors: BTreeMap::new(),
        written: BTreeSet::new(),
    };
    while !choices.is_empty() {
        world.step(&mut choices);
        world.check_bounds();
    }
    while !world.flights.is_empty() {
        world.settle(0, &mut Choices::new(&[250]));
    }
    let last = world.arrival(&mut Choices::new(&[]));
    let verdict = world.window.judge(&last, &world.rules);
    assert_ne!(verdict.action, Action::Hold, "nothing is on its way");
}

/// Those of a hapax that was told nothing.
pub fn rules() -> Rules {
    thread_local! {
        static RULES: Rules = {
            let args = RunArgs::from_flags(["--upstream=127.0.0.1:1"]).unwrap();
            let (settings, _) = args.settle_with(&|_| None);
            *share(settings.config().unwrap()).ledger.rules()
        };
    }
    RULES.with(|rules| *rules)
}

impl World {
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..8 => self.arrive(choices),
            8..13 if !self.flights.is_empty() => {
                let at = choices.below(self.flights.len());
                self.settle(at, choices);
            }
            13 => {
                let seconds = choices.of(&[1, 60, 300, 301, u32::MAX / 2]);
                self.now = self.now.saturating_add(seconds);
                // What was made up for a batch is forgotten with it.
                self.mirrors.clear();
            }
            14 => {
                self.window.forget();
                self.given.clear();
            }
            _ => {}
        }
    }

    fn arrival(&self, choices: &mut Choices<'_>) -> Arrival {
        let first = match choices.byte() {
            near @ 0..240 => self.base.wrapping_add(i32::from(near % 8)) & i32::MAX,
            _ => choices.number() as i32 & i32::MAX,
        };
        let count = match choices.byte() {
            small @ 0..240 => 1 + u32::from(small % 3),
            _ => (choices.number() as u32 & 0x7fff_ffff).max(1),
        };
        let crc = u32::from(choices.rarely(12));
        Arrival {
            batch: BatchId {
                producer: ProducerId::from_wire(7).unwrap(),
                epoch: Epoch(choices.of(&[0, 0, 0, 0, 0, 1, 2, -1, i16::MAX])),
                first: Sequence::from_wire(first).unwrap(),
                count,
                crc: crc ^ first.cast_unsigned(),
                len: 61 + count % 1000,
            },
            transactional: choices.rarely(12),
            acks: choices.of(&[Acks::All, Acks::All, Acks::All, Acks::Leader, Acks::None]),
            realm: NonZeroU32::new(choices.of(&[1, 1, 1, 1, 2, 0])).map(Realm),
            node: NodeId::from_wire(choices.of(&[1, 1, 1, 2, -1])),
            link: Link(NonZeroU32::new(choices.of(&[1, 1, 1, 2, u32::MAX])).unwrap()),
            now: Time(self.now),
            patient: !choices.rarely(8),
            old: choices.rarely(4),
        }
    }

    fn arrive(&mut self, choices: &mut Choices<'_>) {
        let arrival = self.arrival(choices);
        let name = name(&arrival.batch);
        let verdict = self.window.judge(&arrival, &self.rules);
        let before = format!("{:?}", self.window);
        assert_eq!(
            verdict,
            self.window.judge(&arrival, &self.rules),
            "judged again"
        );
        assert_eq!(
            before,
            format!("{:?}", self.window),
            "judging leaves a trace"
        );
        let free = self.rules.mode == Mode::Observe || arrival.acks == Acks::None;
        if free {
            assert_eq!(verdict.action, Action::Forward);
        }
        match verdict.action {
            Action::Forward => {
                if let Some(committed) = self.window.commit(&arrival, &verdict) {
                    self.flights.push((committed.id, arrival));
                    self.mirrors.clear();
                }
            }
            Action::Hold => {
                assert!(arrival.patient, "patience ends");
                assert!(!self.flights.is_empty(), "nothing is on its way");
                self.window.wait_for();
            }
            Action::Replay(ack) => {
                let given = self.given.get(&name);
                let given = given.is_some_and(|all| all.contains(&ack.offset));
                assert!(given, "{ack:?} was never given to {name:?}");
                assert!(
                    arrival.realm.is_some()
                        && (!arrival.transactional || self.rules.absorb_transactional)
                );
                self.window.absorbed(&arrival, &verdict);
            }
            Action::Mirror(code) => {
                assert!([3, 6, 19, 100].contains(&code), "{code}");
                let flying = self
                    .flights
                    .iter()
                    .any(|(_, other)| other.batch == arrival.batch);
                let flying = flying && !self.written.contains(&name);
                assert!(!flying, "{name:?} is on its way and said not to be written");
                let mirrors = self.mirrors.entry(name).or_default();
                *mirrors += 1;
                assert!(
                    *mirrors <= MIRRORS_MAX,
                    "{mirrors} errors made up for {name:?}"
                );
                self.window.mirrored(&arrival, &verdict, code);
                if self.is_full() {
                    self.mirrors.clear();
                }
            }
            Action::Defer => self.defer(&arrival, &verdict),
            Action::Refuse(code) => {
                assert_eq!((self.rules.mode, code), (Mode::Enforce, 47));
                self.window.refused(&arrival, &verdict);
            }
            Action::Resolve => self.look_up(&arrival, choices),
        }
    }

    /// A copy of it is on its way, and the broker may not know it for one.
    fn defer(&mut self, arrival: &Arrival, verdict: &Verdict) {
        let unanswered = [Class::DuplicateInFlight, Class::DuplicateUnknown];
        assert!(unanswered.contains(&verdict.class), "{verdict:?}");
        self.window.deferred(arrival, verdict);
        self.mirrors.clear();
    }

    /// The log is read for a batch, and shows it or not.
    fn look_up(&mut self, arrival: &Arrival, choices: &mut Choices<'_>) {
        if choices.rarely(2) {
            self.window.asked(&arrival.batch);
            let verdict = self.window.judge(arrival, &self.rules);
            assert_ne!(verdict.action, Action::Resolve, "it is looked for again");
            return;
        }
        let offset = choices.number() & i64::MAX;
        let ack = Ack {
            offset,
            append_time: -1,
            log_start: None,
        };
        let (verdict, _) = self.window.found(arrival, ack, &self.rules);
        assert!(matches!(verdict.action, Action::Replay(ack) if ack.offset == offset));
        let given = self.given.entry(name(&arrival.batch)).or_default();
        given.insert(offset);
        self.written.insert(name(&arrival.batch));
        self.window.absorbed(arrival, &verdict);
    }

    fn settle(&mut self, at: usize, choices: &mut Choices<'_>) {
        let (id, arrival) = self.flights.remove(at);
        let outcome = match choices.byte() {
            0..140 => classify(
                0,
                Some(choices.number()).filter(|o| *o >= 0),
                -1,
                Some(choices.number()),
            ),
            140..240 => classify(choices.of(&CODES), choices.rarely(3).then_some(5), -1, None),
            240..252 => Outcome::Unknown { candidate: None },
            _ => Outcome::Withheld,
        };
        if let Outcome::Written(Some(ack)) = outcome {
            self.given
                .entry(name(&arrival.batch))
                .or_default()
                .insert(ack.offset);
        }
        if matches!(outcome, Outcome::Written(_)) {
            self.written.insert(name(&arrival.batch));
        }
        let sender = Sender {
            acks: arrival.acks,
            node: arrival.node,
            realm: arrival.realm,
            link: arrival.link,
        };
        let now = Time(self.now);
        let _ = self
            .window
            .settle(id, &arrival.batch, &sender, outcome, &self.rules, now);
    }

    /// Whether the window has no room for another attempt: it may have
    /// forgotten one, and what it made up for it.
    fn is_full(&self) -> bool {
        format!("{:?}", self.window).contains(&format!("len: {OPEN_MAX},"))
    }

    fn check_bounds(&self) {
        let inside = format!("{:?}", self.window);
        let open = inside.matches("Attempt {").count();
        let facts = inside.matches("Fact {").count();
        assert!(open <= OPEN_MAX, "{open} open attempts");
        assert!(facts <= self.rules.window_batches, "{facts} facts");
    }
}

fn name(batch: &BatchId) -> Name {
    (
        batch.epoch.0,
        batch.first.to_wire(),
        batch.count,
        batch.crc,
        batch.len,
    )
}
