//! Tells a run against the log: what must never be, and what is counted.
//!
//! Never: a success that is not in the log at its offset, an answer out of
//! order, a wait without end, a client that changes its epoch or dies of an
//! error that hapax made up. Counted, and compared with the same seed without
//! hapax, is what a broker's forgetting or a client's own epochs can do.

use super::broker::Batch;
use super::clients::{Client, Kind, Lane};
use super::faults::{Harm, Scenario};
use super::mutants::Between;
use super::proxy::Counts;
use super::world::World;
use std::ops::AddAssign;

/// What a run came to, in records unless it says otherwise.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// In the log again, under the same epoch and sequence.
    pub doubled: u64,
    /// In the log again, under another epoch.
    pub renumbered: u64,
    /// Behind a later one.
    pub reordered: u64,
    /// Acknowledged, and not in the log.
    pub lost: u64,
    /// Given up by a client that is patient, and not in the log.
    pub given_up: u64,
    /// Given up by sarama, whose retries are few, and not in the log.
    pub refused: u64,
    /// Clients that died of an error.
    pub died: u64,
    /// Epochs that clients began of their own accord.
    pub bumps: u64,
    /// Batches of sarama that hapax's own errors cost the last retry, although
    /// the broker would have taken them: the batch before it was settled
    /// through another instance of hapax.
    pub misled: u64,
    /// Successes of hapax's own for what an unclean election had lost.
    pub outlived: u64,
    /// Clients that came to no end.
    pub endless: u64,
    pub written: u64,
    /// When the last client was done, in virtual milliseconds.
    pub time: u64,
    pub counts: Counts,
    /// The client and the partition where something was wrong first.
    pub culprit: Option<(usize, usize)>,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.doubled += other.doubled;
        self.renumbered += other.renumbered;
        self.reordered += other.reordered;
        self.lost += other.lost;
        self.given_up += other.given_up;
        self.refused += other.refused;
        self.died += other.died;
        self.bumps += other.bumps;
        self.misled += other.misled;
        self.outlived += other.outlived;
        self.endless += other.endless;
        self.written += other.written;
        self.time += other.time;
        self.counts.absorbed += other.counts.absorbed;
        self.counts.mirrored += other.counts.mirrored;
        self.counts.deferred += other.counts.deferred;
        self.counts.held += other.counts.held;
        self.counts.holds_expired += other.counts.holds_expired;
        self.counts.asked += other.counts.asked;
        self.counts.contested += other.counts.contested;
        self.counts.found += other.counts.found;
        self.counts.blind += other.counts.blind;
        self.counts.restored += other.counts.restored;
        self.culprit = self.culprit.or(other.culprit);
    }
}

impl Tally {
    pub fn duplicates(&self) -> u64 {
        self.doubled + self.renumbered
    }

    /// What a user would call wrong.
    fn harm(&self) -> u64 {
        self.duplicates() + self.reordered + self.lost + self.given_up + self.died
    }

    /// That, by kind.
    pub fn harms(&self) -> [(Harm, u64); 7] {
        [
            (Harm::Doubled, self.doubled),
            (Harm::Renumbered, self.renumbered),
            (Harm::Reordered, self.reordered),
            (Harm::Lost, self.lost),
            (Harm::GivenUp, self.given_up),
            (Harm::Refused, self.refused),
            (Harm::Died, self.died),
        ]
    }

    /// What hapax promised for one run, and did not keep.
    pub fn broken_promises(&self, scenario: &Scenario, between: Between) -> Vec<String> {
        let mut promised = scenario.cured.to_vec();
        if between.reads() {
            promised.extend(scenario.by_reading);
        }
        if between == Between::Shield {
            promised.extend(scenario.by_shield);
        }
        let mut broken = Vec::new();
        if self.endless > 0 {
            broken.push(format!("{} clients wait for ever", self.endless));
        }
        for (harm, number) in self.harms() {
            // What could not be looked up is left to the broker.
            let unseen = if harm == Harm::Doubled {
                self.counts.blind
            } else {
                0
            };
            if number > unseen && promised.contains(&harm) {
                broken.push(format!("{number} {harm:?}"));
            }
        }
        broken
    }
}

/// A run, told.
pub struct Told {
    pub tally: Tally,
    /// What must never be.
    pub findings: Vec<String>,
    pub world: World,
}

/// Runs one seed to its end and tells it against the log.
pub fn run(seed: u64, scenario: Scenario, between: Between, told: bool) -> Told {
    let mut world = World::new(seed, scenario, between, told);
    world.run();
    let mut tally = Tally {
        time: world.done_at,
        misled: world.misled,
        outlived: world.outlived,
        ..Tally::default()
    };
    for proxy in &world.proxies {
        tally.counts.absorbed += proxy.counts.absorbed;
        tally.counts.mirrored += proxy.counts.mirrored;
        tally.counts.deferred += proxy.counts.deferred;
        tally.counts.held += proxy.counts.held;
        tally.counts.holds_expired += proxy.counts.holds_expired;
        tally.counts.asked += proxy.counts.asked;
        tally.counts.contested += proxy.counts.contested;
        tally.counts.found += proxy.counts.found;
        tally.counts.blind += proxy.counts.blind;
        tally.counts.restored += proxy.counts.restored;
    }
    let mut findings = std::mem::take(&mut world.wrongs);
    for (who, client) in world.clients.iter().enumerate() {
        tally.died += u64::from(client.dead);
        tally.bumps += client.bumps;
        if !client.done() {
            tally.endless += 1;
            tally.culprit = tally.culprit.or(Some((who, 0)));
        }
        for lane in &client.lanes {
            let before = tally.harm();
            tell_lane(&world, who, client, lane, &mut tally, &mut findings);
            if tally.harm() > before || !findings.is_empty() {
                tally.culprit = tally.culprit.or(Some((who, lane.partition)));
            }
        }
    }
    Told {
        tally,
        findings,
        world,
    }
}

fn tell_lane(
    world: &World,
    who: usize,
    client: &Client,
    lane: &Lane,
    tally: &mut Tally,
    findings: &mut Vec<String>,
) {
    let partition = &world.partitions[lane.partition];
    // Under what each record came first.
    let mut seen: Vec<Option<(i16, i32)>> = vec![None; lane.records() as usize];
    let mut newest = None;
    for (_, batch) in partition.log.iter().filter(|(_, b)| b.client == who) {
        for record in batch.records() {
            let stamp = (
                batch.epoch,
                batch.first + (record - batch.from).cast_signed(),
            );
            tally.written += 1;
            match seen[record as usize] {
                Some(first) if first == stamp => tally.doubled += 1,
                Some(_) => tally.renumbered += 1,
                None => {
                    seen[record as usize] = Some(stamp);
                    tally.reordered += u64::from(newest > Some(record));
                    newest = newest.max(Some(record));
                }
            }
        }
    }
    let in_log = |batch: &Batch| {
        batch
            .records()
            .filter(|r| seen[*r as usize].is_some())
            .count()
    };
    for told in &lane.acked {
        let missing = told.batch.count - u32::try_from(in_log(&told.batch)).unwrap();
        if missing == 0 && told.offset.is_none() {
            continue;
        }
        let earned = partition.ever_held(world.topic, &told.batch, told.offset);
        if missing > 0 && !earned {
            tally.lost += u64::from(missing);
        }
        if told.offset.is_some() && !earned {
            findings.push(format!("{} is not at {:?}", told.batch, told.offset));
        }
    }
    let missing = |batch: &Batch| u64::from(batch.count) - in_log(batch) as u64;
    let given_up = lane.given_up.iter().map(missing).sum::<u64>();
    match client.kind {
        // One that died is counted as such.
        _ if client.dead => {}
        Kind::Hasty => {}
        Kind::Sarama => tally.refused += given_up,
        Kind::Java | Kind::Librdkafka | Kind::Franz => tally.given_up += given_up,
    }
}

impl World {
    /// Holds a success of hapax's own to the log, at the time it is given.
    pub fn hold_to_log(&mut self, topic: u32, batch: &Batch, offset: i64) {
        let partition = &self.partitions[batch.partition];
        if partition.holds(topic, batch, Some(offset)) {
            return;
        }
        if topic == self.topic && partition.held(batch, Some(offset)) {
            // An unclean election took it, of which nobody was told.
            self.outlived += 1;
        } else {
            self.wrong(format!("{batch} was never at {offset}, and is absorbed"));
        }
    }
}

/// One row of a table.
pub fn row(name: &str, between: &str, t: &Tally) -> String {
    format!(
        "| {name:<26} | {between:<14} | {:>7} | {:>7} | {:>7} | {:>5} | {:>7} | {:>7} | {:>6} | {:>5} | {:>6} | {:>7} | {:>7} | {:>6} | {:>5} | {:>5} | {:>5} |",
        t.doubled,
        t.renumbered,
        t.reordered,
        t.lost,
        t.given_up,
        t.refused,
        t.misled,
        t.died,
        t.bumps,
        t.counts.absorbed,
        t.counts.mirrored,
        t.counts.held,
        t.counts.holds_expired,
        t.counts.asked + t.counts.contested,
        t.counts.found,
    )
}

/// What the columns of [`row`] count.
pub fn columns() -> &'static str {
    "Records: *doubled* (twice in the log under one epoch), *renumb.* (again under another), \
     *reord.* (behind a later one), *lost* (acknowledged, not in the log), *givenup* (not in the \
     log, by a patient client), *refused* (the same by sarama, which has three retries). \
     *misled*: batches of sarama whose last retry got an error of hapax's own though the broker \
     would have taken them. Clients: *died* (of a fatal error), *bumps* (epochs that they began \
     themselves). hapax: batches absorbed, mirrored and held, holds that ended without what they \
     waited for (*late*), reads of the log and batches found there. \"everything\" mixes all \
     faults with three instances of hapax that share no state."
}

pub fn header() -> String {
    let titles = format!(
        "| {:<26} | {:<14} | {:>7} | {:>7} | {:>7} | {:>5} | {:>7} | {:>7} | {:>6} | {:>5} | {:>6} | {:>7} | {:>7} | {:>6} | {:>5} | {:>5} | {:>5} |",
        "scenario",
        "through",
        "doubled",
        "renumb.",
        "reord.",
        "lost",
        "givenup",
        "refused",
        "misled",
        "died",
        "bumps",
        "absorb",
        "mirror",
        "held",
        "late",
        "read",
        "found"
    );
    let line =
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|";
    format!("{titles}\n{line}")
}
