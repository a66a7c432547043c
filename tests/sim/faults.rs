//! What goes wrong: scenarios, and what befalls one request or one machine.

use super::broker::{Batch, NOT_ENOUGH_REPLICAS};
use super::clients::Kind;
use super::rng::{Rng, hash};

/// What goes wrong, in events or per thousand requests.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub kinds: &'static [Kind],
    pub partitions: usize,
    pub batches: u32,
    /// The time in which all is sent, and in which faults come.
    pub horizon: u64,
    /// Instances of hapax between which a client may change.
    pub instances: usize,
    /// Answers lost with their connection.
    pub lost: u64,
    /// Connections on which no answer comes any more, while requests still go.
    pub stalled: u64,
    /// Batches appended, or answered, after the client gave up.
    pub slow: u64,
    /// Requests of which a part arrives.
    pub partial: u64,
    /// 19 (not appended), 7 and 20 (appended).
    pub errors: u64,
    /// 10, for batches that can be split.
    pub too_large: u64,
    pub clean_restarts: u64,
    pub broker_kills: u64,
    /// With fewer than two replicas, nothing is acknowledged.
    pub min_isr: bool,
    pub moves: u64,
    pub expiries: u64,
    /// Elections that lose what was acknowledged.
    pub unclean: u64,
    /// The topic is deleted, and created anew.
    pub recreations: u64,
    pub hapax_kills: u64,
    /// What dies at one step of the run, whichever it is.
    pub kill: Option<Part>,
    /// Leaders that do not know yet that they are.
    pub fresh: bool,
    /// What hapax does not let happen in any run; what else where it may read
    /// the log; and what else with `shield45`. The rest is counted, and held
    /// to be no worse than without hapax.
    pub cured: &'static [Harm],
    pub by_reading: &'static [Harm],
    pub by_shield: &'static [Harm],
}

/// What a user would call wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// In the log again, under the same epoch and sequence.
    Doubled,
    /// In the log again, under another epoch.
    Renumbered,
    /// Behind a later one.
    Reordered,
    /// Acknowledged, and not in the log.
    Lost,
    /// Given up by a client that is patient, and not in the log.
    GivenUp,
    /// Given up by sarama, whose retries are few, and not in the log.
    Refused,
    /// Clients that died of an error.
    Died,
}

use Harm::{Died, Doubled, GivenUp, Lost, Renumbered, Reordered};

/// What can be killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Client,
    Hapax,
    Broker,
}

/// Steps of a run within which something is killed: about as many as it has.
const STEPS: u64 = 2_000;

const NONE: Scenario = Scenario {
    name: "nothing",
    kinds: &[Kind::Java, Kind::Librdkafka, Kind::Franz, Kind::Sarama],
    partitions: 2,
    batches: 12,
    horizon: 2_000,
    instances: 1,
    lost: 0,
    stalled: 0,
    slow: 0,
    partial: 0,
    errors: 0,
    too_large: 0,
    clean_restarts: 0,
    broker_kills: 0,
    min_isr: false,
    moves: 0,
    expiries: 0,
    unclean: 0,
    recreations: 0,
    hapax_kills: 0,
    kill: None,
    fresh: false,
    cured: &[Doubled, Renumbered, Reordered, Lost, GivenUp, Died],
    by_reading: &[],
    by_shield: &[],
};
pub const LOST: Scenario = Scenario {
    name: "lost answers",
    lost: 60,
    partial: 20,
    ..NONE
};
const SLOW: Scenario = Scenario {
    name: "slow and stalled answers",
    horizon: 60_000,
    lost: 30,
    stalled: 20,
    slow: 20,
    ..NONE
};
const ERRORS: Scenario = Scenario {
    name: "errors 7, 19, 20",
    lost: 30,
    errors: 80,
    // A 45 that follows from a failed predecessor makes librdkafka begin a new
    // epoch on all partitions.
    cured: &[Doubled, Reordered, Lost, GivenUp, Died],
    by_shield: &[Renumbered],
    ..NONE
};
const SPLIT: Scenario = Scenario {
    name: "batches that are split",
    kinds: &[Kind::Java, Kind::Java],
    lost: 60,
    too_large: 100,
    ..NONE
};
pub const FRESH: Scenario = Scenario {
    name: "fresh partitions",
    horizon: 300,
    fresh: true,
    ..NONE
};
pub const MOVES: Scenario = Scenario {
    name: "leaders that move",
    lost: 40,
    errors: 20,
    moves: 4,
    fresh: true,
    // A 45 that follows from a failed predecessor makes librdkafka begin a new
    // epoch on all partitions.
    cured: &[Doubled, Reordered, Lost, GivenUp, Died],
    by_shield: &[Renumbered],
    ..NONE
};
const CLEAN: Scenario = Scenario {
    name: "clean broker restarts",
    lost: 60,
    clean_restarts: 6,
    cured: &[Doubled, Reordered, Lost],
    by_reading: &[Renumbered, GivenUp, Died],
    ..NONE
};
const KILLS: Scenario = Scenario {
    name: "brokers killed",
    lost: 60,
    broker_kills: 6,
    cured: &[Doubled, Reordered, Lost],
    by_reading: &[Renumbered, GivenUp, Died],
    ..NONE
};
const MIN_ISR: Scenario = Scenario {
    name: "too few replicas",
    lost: 30,
    clean_restarts: 2,
    broker_kills: 3,
    min_isr: true,
    cured: &[Doubled, Reordered, Lost],
    by_reading: &[GivenUp, Died],
    by_shield: &[Renumbered],
    ..NONE
};
pub const EXPIRY: Scenario = Scenario {
    name: "old timestamps, expiry",
    lost: 60,
    expiries: 12,
    // Of an expiry nobody is told.
    cured: &[],
    by_reading: &[Doubled, Renumbered, Reordered, Lost, GivenUp, Died],
    ..NONE
};
pub const UNCLEAN: Scenario = Scenario {
    name: "unclean elections",
    lost: 60,
    unclean: 4,
    // A broker that lost what it acknowledged is right to say 45.
    cured: &[Doubled, Lost],
    ..NONE
};
pub const RECREATED: Scenario = Scenario {
    name: "topic re-created",
    lost: 60,
    recreations: 3,
    // The new topic is another log, whose first batch nothing of the old one
    // holds back (KAFKA-15591).
    cured: &[Doubled],
    ..NONE
};
const HASTY: Scenario = Scenario {
    name: "abandoned batches",
    kinds: &[Kind::Hasty, Kind::Hasty],
    horizon: 60_000,
    lost: 40,
    stalled: 20,
    slow: 20,
    errors: 60,
    // What is given up on the way may come after what its client does next.
    cured: &[Doubled, Lost],
    ..NONE
};
pub const INSTANCES: Scenario = Scenario {
    name: "hapax killed, three of it",
    instances: 3,
    lost: 60,
    hapax_kills: 6,
    ..NONE
};
const KILL_CLIENT: Scenario = Scenario {
    name: "client killed at a step",
    lost: 40,
    kill: Some(Part::Client),
    ..NONE
};
const KILL_HAPAX: Scenario = Scenario {
    name: "hapax killed at a step",
    lost: 40,
    instances: 2,
    kill: Some(Part::Hapax),
    ..NONE
};
const KILL_BROKER: Scenario = Scenario {
    name: "broker killed at a step",
    lost: 40,
    kill: Some(Part::Broker),
    cured: &[Doubled, Reordered, Lost],
    by_reading: &[Renumbered, GivenUp, Died],
    ..NONE
};
const EVERYTHING: Scenario = Scenario {
    name: "everything",
    kinds: &[
        Kind::Java,
        Kind::Librdkafka,
        Kind::Franz,
        Kind::Sarama,
        Kind::Hasty,
    ],
    horizon: 40_000,
    instances: 2,
    lost: 40,
    stalled: 10,
    slow: 10,
    partial: 10,
    errors: 40,
    clean_restarts: 2,
    broker_kills: 2,
    moves: 3,
    expiries: 2,
    hapax_kills: 2,
    fresh: true,
    // Expiries, and no memory across hapax's own death.
    cured: &[],
    ..NONE
};

pub const ALL: [Scenario; 18] = [
    LOST,
    SLOW,
    ERRORS,
    SPLIT,
    FRESH,
    MOVES,
    CLEAN,
    KILLS,
    MIN_ISR,
    EXPIRY,
    UNCLEAN,
    RECREATED,
    HASTY,
    INSTANCES,
    KILL_CLIENT,
    KILL_HAPAX,
    KILL_BROKER,
    EVERYTHING,
];

/// The scenario of a name.
pub fn scenario(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|s| s.name == name)
}

/// What befalls one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    None,
    /// The answer is lost with the client's connection.
    LoseNear,
    /// The answer is lost with the broker's connection.
    LoseFar,
    /// From here on no answer reaches the client.
    StallNear,
    /// From here on no answer of the broker arrives.
    StallFar,
    SlowAppend(u64),
    SlowAnswer(u64),
    /// The client is cut off in the middle of it.
    Partial,
    /// It is answered with this error.
    Error(i16),
}

/// What befalls a machine or a partition.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Stop {
        broker: usize,
        down: u64,
        clean: bool,
        leads_on: bool,
    },
    Started(usize),
    Move(usize),
    /// A segment is full: each replica writes what it knows of producers.
    Roll(usize),
    Expire(usize),
    Unclean(usize),
    Recreate,
    StopHapax {
        instance: usize,
        down: u64,
    },
    HapaxStarted(usize),
    /// Each hapax writes down what it knows.
    Snapshot,
    KillClient(usize),
}

impl Scenario {
    /// What befalls this attempt, whatever stands between.
    pub fn fate(&self, seed: u64, kind: Kind, batch: Batch, attempt: u64) -> Fate {
        let place = (batch.client * 16 + batch.partition) as u64;
        let mut rng = Rng::new(hash(&[seed, place, u64::from(batch.from), attempt]));
        let late = kind.patience() + rng.between(0, 5_000);
        let mut draw = rng.between(0, 1000);
        for (odds, fate) in [
            (self.lost / 2, Fate::LoseNear),
            (self.lost / 2, Fate::LoseFar),
            (self.stalled / 2, Fate::StallNear),
            (self.stalled / 2, Fate::StallFar),
            (self.slow / 2, Fate::SlowAppend(late)),
            (self.slow / 2, Fate::SlowAnswer(late)),
            (self.partial, Fate::Partial),
            (self.errors / 2, Fate::Error(NOT_ENOUGH_REPLICAS)),
            (self.errors / 4, Fate::Error(7)),
            (self.errors / 4, Fate::Error(20)),
        ] {
            if draw < odds {
                return fate;
            }
            draw -= odds;
        }
        Fate::None
    }

    /// Whether the topic takes no batch of this size.
    pub fn too_large(&self, seed: u64, batch: &Batch) -> bool {
        let place = (batch.client * 16 + batch.partition) as u64;
        let size = [
            seed,
            5,
            place,
            u64::from(batch.from),
            u64::from(batch.count),
        ];
        batch.count > 1 && Rng::new(hash(&size)).chance(self.too_large)
    }

    /// What befalls machines and partitions, and when.
    pub fn faults(&self, seed: u64) -> Vec<(u64, Fault)> {
        let mut rng = Rng::new(hash(&[seed, 3]));
        let mut faults = Vec::new();
        let mut some = |number, make: &dyn Fn(&mut Rng) -> Fault| {
            for _ in 0..number {
                let fault = make(&mut rng);
                faults.push((rng.between(20, self.horizon), fault));
            }
        };
        let partitions = self.partitions as u64;
        let partition = |rng: &mut Rng| rng.below(partitions);
        for (number, clean) in [(self.clean_restarts, true), (self.broker_kills, false)] {
            some(number, &|rng| Fault::Stop {
                broker: usize::from(rng.chance(200)),
                down: rng.between(20, 400),
                clean,
                leads_on: rng.chance(600),
            });
        }
        some(self.moves, &|rng| Fault::Move(partition(rng)));
        some(self.expiries, &|rng| Fault::Expire(partition(rng)));
        some(self.unclean, &|rng| Fault::Unclean(partition(rng)));
        some(self.recreations, &|_| Fault::Recreate);
        some(self.hapax_kills, &|rng| Fault::StopHapax {
            instance: rng.below(self.instances as u64),
            down: rng.between(1, 400),
        });
        if self.hapax_kills > 0 || self.kill == Some(Part::Hapax) {
            some(12, &|_| Fault::Snapshot);
        }
        if self.broker_kills > 0 {
            some(2 * partitions, &|rng| Fault::Roll(partition(rng)));
        }
        faults
    }

    /// What is killed at which step of the run.
    pub fn kill_at(&self, seed: u64) -> Option<(u64, Fault)> {
        let mut rng = Rng::new(hash(&[seed, 4]));
        let fault = match self.kill? {
            Part::Client => Fault::KillClient(rng.below(self.kinds.len() as u64)),
            Part::Hapax => Fault::StopHapax {
                instance: rng.below(self.instances as u64),
                down: rng.between(1, 400),
            },
            Part::Broker => Fault::Stop {
                broker: usize::from(rng.chance(200)),
                down: rng.between(20, 400),
                clean: false,
                leads_on: rng.chance(600),
            },
        };
        Some((rng.between(1, STEPS), fault))
    }
}
