//! Tells a run against the log: what must never be, and what is counted.
//!
//! Never: a success that is not in the log at its offset, an answer out of
//! order, a wait without end, a client that changes its epoch or dies of an
//! error that hapax made up. Counted, and compared with the same seed without
//! hapax, is what a broker's forgetting or a client's own epochs can do.

use super::broker::Batch;
use super::clients::{Client, Kind, Lane};
use super::faults::Scenario;
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
    /// Given up by a patient client, and not in the log.
    pub given_up: u64,
    /// Clients that died of an error.
    pub died: u64,
    /// Epochs that clients began of their own accord.
    pub bumps: u64,
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
        self.died += other.died;
        self.bumps += other.bumps;
        self.endless += other.endless;
        self.written += other.written;
        self.time += other.time;
        self.counts.absorbed += other.counts.absorbed;
        self.counts.mirrored += other.counts.mirrored;
        self.counts.held += other.counts.held;
        self.counts.holds_expired += other.counts.holds_expired;
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

    /// That, with its names, here and without hapax.
    pub fn harms(&self, direct: &Self) -> [(&'static str, u64, u64); 6] {
        [
            ("doubled", self.doubled, direct.doubled),
            ("renumbered", self.renumbered, direct.renumbered),
            ("reordered", self.reordered, direct.reordered),
            ("lost", self.lost, direct.lost),
            ("given up", self.given_up, direct.given_up),
            ("died", self.died, direct.died),
        ]
    }

    /// What hapax promised for one run, and did not keep.
    pub fn broken_promises(&self, scenario: &Scenario, _between: Between) -> Vec<String> {
        let mut broken = Vec::new();
        if self.endless > 0 {
            broken.push(format!("{} clients wait for ever", self.endless));
        }
        for (what, number, _) in self.harms(self) {
            if number > 0 && scenario.cured.contains(&what) {
                broken.push(format!("{number} {what}"));
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
        ..Tally::default()
    };
    for proxy in &world.proxies {
        tally.counts.absorbed += proxy.counts.absorbed;
        tally.counts.mirrored += proxy.counts.mirrored;
        tally.counts.held += proxy.counts.held;
        tally.counts.holds_expired += proxy.counts.holds_expired;
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
    let patient = !matches!(client.kind, Kind::Hasty) && !client.dead;
    let given_up = lane.given_up.iter().filter(|_| patient);
    tally.given_up += given_up
        .map(|batch| u64::from(batch.count) - in_log(batch) as u64)
        .sum::<u64>();
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
        "| {name:<26} | {between:<11} | {:>7} | {:>7} | {:>7} | {:>5} | {:>7} | {:>5} | {:>6} | {:>7} | {:>7} | {:>6} | {:>5} |",
        t.doubled,
        t.renumbered,
        t.reordered,
        t.lost,
        t.given_up,
        t.died,
        t.bumps,
        t.counts.absorbed,
        t.counts.mirrored,
        t.counts.held,
        t.counts.holds_expired,
    )
}

pub fn header() -> String {
    let titles = format!(
        "| {:<26} | {:<11} | {:>7} | {:>7} | {:>7} | {:>5} | {:>7} | {:>5} | {:>6} | {:>7} | {:>7} | {:>6} | {:>5} |",
        "scenario",
        "through",
        "doubled",
        "renumb.",
        "reord.",
        "lost",
        "givenup",
        "died",
        "bumps",
        "absorb",
        "mirror",
        "held",
        "late"
    );
    let line = "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|";
    format!("{titles}\n{line}")
}
