//! The rows: what happens to a cluster, its network and hapax while producers work.

use std::time::Duration;

use crate::judge::Counts;
use crate::producers::{Client, LAST_WORDS};
use crate::relay::Weather;
use crate::scene::{Plan, Scene, Side, Way};
use crate::{partition, raw_rows};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Row {
    LostResponses,
    SlowBroker,
    BrokerKilled,
    /// The network fails before hapax, and behind it.
    CleanRestart,
    CleanRestartBehind,
    OldTimestamps,
    FreshPartitions,
    LeaderMoves,
    BrokerCutOff,
    RollingRestart,
    HapaxKilled,
    HapaxReplaced,
    ClientKilled,
    TopicRecreated,
    LastEpoch,
    SequenceWrap,
}

/// What producers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    Idempotent,
    Transactional,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) row: Row,
    pub(crate) load: Load,
}

/// One producer's counts in a run of a case.
pub(crate) struct Cell {
    pub(crate) client: Client,
    pub(crate) way: Way,
    pub(crate) counts: Counts,
    /// How often hapax looked into the log of this way, could not tell, and
    /// left it to the broker.
    pub(crate) looks_in_vain: f64,
}

impl Row {
    const ALL: [Self; 16] = [
        Self::LostResponses,
        Self::SlowBroker,
        Self::BrokerKilled,
        Self::CleanRestart,
        Self::CleanRestartBehind,
        Self::OldTimestamps,
        Self::FreshPartitions,
        Self::LeaderMoves,
        Self::BrokerCutOff,
        Self::RollingRestart,
        Self::HapaxKilled,
        Self::HapaxReplaced,
        Self::ClientKilled,
        Self::TopicRecreated,
        Self::LastEpoch,
        Self::SequenceWrap,
    ];

    fn id(self) -> &'static str {
        match self {
            Self::LostResponses => "lost-responses",
            Self::SlowBroker => "slow-broker",
            Self::BrokerKilled => "broker-killed",
            Self::CleanRestart => "clean-restart",
            Self::CleanRestartBehind => "clean-restart-behind",
            Self::OldTimestamps => "old-timestamps",
            Self::FreshPartitions => "fresh-partitions",
            Self::LeaderMoves => "leader-moves",
            Self::BrokerCutOff => "broker-cut-off",
            Self::RollingRestart => "rolling-restart",
            Self::HapaxKilled => "hapax-killed",
            Self::HapaxReplaced => "hapax-replaced",
            Self::ClientKilled => "client-killed",
            Self::TopicRecreated => "topic-recreated",
            Self::LastEpoch => "last-epoch",
            Self::SequenceWrap => "sequence-wrap",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::LostResponses => "one answer in about 40 is lost, its connection cut or silent",
            Self::SlowBroker => {
                "a broker stands still for longer than the request timeout, three times"
            }
            Self::BrokerKilled => "a broker is killed with -9 and restarted, twice",
            Self::CleanRestart => {
                "clients lose their network, every broker is restarted cleanly, then what was in flight is sent again"
            }
            Self::CleanRestartBehind => {
                "the same, where it is hapax that loses its network to the brokers"
            }
            Self::OldTimestamps => {
                "records 26 h old, producers forgotten after 5 s, one answer in about 40 is lost"
            }
            Self::FreshPartitions => "four new topics of 8 partitions, whose leaders move at once",
            Self::LeaderMoves => "leaders moved by reassignment every second",
            Self::BrokerCutOff => "a broker is cut off from the other two, not from clients, twice",
            Self::RollingRestart => "every broker is restarted cleanly, one after the other",
            Self::HapaxKilled => "hapax is killed with -9 and restarted, three times",
            Self::HapaxReplaced => "hapax is drained, ends, and another takes its place, twice",
            Self::ClientKilled => {
                "the client is killed with -9, its connection stays half open, a new process resumes after the last acknowledgement"
            }
            Self::TopicRecreated => "the topic is deleted and created again (counted from then on)",
            Self::LastEpoch => {
                "a producer at epoch 32767, answers lost, then a new producer id (raw requests)"
            }
            Self::SequenceWrap => {
                "a producer's sequence passes 2147483647, answers lost (raw requests)"
            }
        }
    }

    /// What can be asked of clients under it.
    fn loads(self) -> &'static [Load] {
        match self {
            Self::LostResponses
            | Self::SlowBroker
            | Self::BrokerKilled
            | Self::CleanRestart
            | Self::CleanRestartBehind
            | Self::LeaderMoves
            | Self::BrokerCutOff
            | Self::RollingRestart
            | Self::HapaxKilled
            | Self::HapaxReplaced => &[Load::Idempotent, Load::Transactional],
            Self::OldTimestamps
            | Self::FreshPartitions
            | Self::ClientKilled
            | Self::TopicRecreated
            | Self::LastEpoch
            | Self::SequenceWrap => &[Load::Idempotent],
        }
    }
}

impl Case {
    pub(crate) fn idempotent(row: Row) -> Self {
        let load = Load::Idempotent;
        Self { row, load }
    }

    pub(crate) fn all() -> Vec<Self> {
        let load = |load: Load| {
            let rows = Row::ALL.into_iter();
            let rows = rows.filter(move |row| row.loads().contains(&load));
            rows.map(move |row| Self { row, load })
        };
        load(Load::Idempotent)
            .chain(load(Load::Transactional))
            .collect()
    }

    /// For the command line.
    pub(crate) fn id(self) -> String {
        match self.load {
            Load::Idempotent => self.row.id().to_owned(),
            Load::Transactional => format!("{}+transactions", self.row.id()),
        }
    }

    /// For the table: what happens.
    pub(crate) fn title(self) -> String {
        match self.load {
            Load::Idempotent => self.row.title().to_owned(),
            Load::Transactional => format!("transactions: {}", self.row.title()),
        }
    }

    /// The versions of Kafka that it is run with: the newest, and 3.9 where
    /// that one does something else.
    pub(crate) fn kafkas(self) -> &'static [&'static str] {
        match self {
            Self {
                row: Row::CleanRestart | Row::OldTimestamps | Row::FreshPartitions,
                ..
            }
            | Self {
                row: Row::LostResponses,
                load: Load::Transactional,
            } => &["4.4.0", "3.9.1"],
            Self { .. } => &["4.4.0"],
        }
    }

    /// How many clients are at work at once.
    pub(crate) fn at_once(self) -> usize {
        match self.row {
            // Each has four topics of eight partitions. All of them are more than brokers on two
            // cores answer in time, and then the machine is what is compared.
            Row::FreshPartitions => 2,
            _ => Client::ALL.len(),
        }
    }

    /// The ways that are run where none are asked for.
    pub(crate) fn ways(self) -> &'static [Way] {
        match self {
            // Where a log may be read back, and where it may not.
            Self {
                row: Row::CleanRestartBehind,
                load: Load::Idempotent,
            } => &[Way::Direct, Way::Hapax, Way::Shield, Way::WriteOnly],
            Self {
                row: Row::OldTimestamps,
                ..
            } => &[Way::Direct, Way::Hapax, Way::WriteOnly],
            Self {
                row: Row::FreshPartitions,
                ..
            } => &[Way::Direct, Way::Hapax, Way::Shield],
            Self { .. } => &[Way::Direct, Way::Hapax],
        }
    }

    /// Whether this is as good as it must be through hapax.
    pub(crate) fn allows(self, counts: &Counts) -> bool {
        let mut counts = counts.clone();
        match self.row {
            // A new process knows nothing of what the old one had in flight.
            Row::ClientKilled => (counts.duplicates, counts.untold) = (0, 0),
            // franz-go keeps to the id of the topic that it has written to.
            Row::TopicRecreated => (counts.given_up, counts.fatal) = (0, 0),
            _ => {}
        }
        counts.is_clean()
    }

    /// What clients, hapax and cluster are to be for it.
    fn plan(self, seed: u64, kafka: &'static str, clients: &[Client], ways: &[Way]) -> Plan {
        let mut plan = Plan {
            seed,
            kafka,
            clients: clients.to_vec(),
            ways: ways.to_vec(),
            load: self.load,
            forgets_producers: false,
            client_arguments: &[],
            hapax_arguments: &[],
        };
        if !matches!(
            self.row,
            Row::CleanRestart | Row::CleanRestartBehind | Row::OldTimestamps
        ) {
            // Elsewhere nothing is to be read back.
            plan.ways.retain(|way| *way != Way::WriteOnly);
        }
        if self.load == Load::Transactional {
            plan.clients.retain(|client| client.is_transactional());
        }
        match self.row {
            Row::SlowBroker => plan.client_arguments = &["--request-timeout-ms", "1000"],
            Row::OldTimestamps => {
                plan.forgets_producers = true;
                plan.client_arguments = &["--age-ms", "93600000"];
            }
            // They wait for all of it.
            Row::CleanRestart | Row::CleanRestartBehind => {
                plan.client_arguments = &["--delivery-timeout-ms", "300000"];
            }
            // What is stuck is given up within a row's time.
            Row::FreshPartitions => plan.client_arguments = &["--delivery-timeout-ms", "45000"],
            Row::HapaxKilled => plan.ways.retain(|way| *way != Way::Direct),
            Row::HapaxReplaced => {
                plan.ways.retain(|way| *way != Way::Direct);
                plan.hapax_arguments = &["--drain-timeout", "3s"];
            }
            Row::LastEpoch | Row::SequenceWrap => plan.clients.clear(),
            Row::LostResponses
            | Row::BrokerKilled
            | Row::BrokerCutOff
            | Row::LeaderMoves
            | Row::RollingRestart
            | Row::ClientKilled
            | Row::TopicRecreated => {}
        }
        plan
    }

    /// Runs it once: every client on every way, all at the same time.
    pub(crate) fn run(
        self,
        seed: u64,
        kafka: &'static str,
        clients: &[Client],
        ways: &[Way],
    ) -> Vec<Cell> {
        println!("{} Kafka {kafka}: SEED={seed}", self.id());
        let plan = self.plan(seed, kafka, clients, ways);
        let mut scene = Scene::set(&plan);
        scene.start_producers(&plan);
        match self.row {
            Row::LostResponses => lose_responses(&scene, 1),
            Row::SlowBroker => slow_broker(&mut scene),
            Row::BrokerKilled => kill_brokers(&mut scene),
            Row::CleanRestart => restart_behind_silence(&scene, Side::Before),
            Row::CleanRestartBehind => restart_behind_silence(&scene, Side::Behind),
            Row::OldTimestamps => lose_responses(&scene, 4),
            Row::FreshPartitions => fresh_partitions(&mut scene),
            Row::LeaderMoves => move_leaders(&mut scene),
            Row::BrokerCutOff => cut_off_brokers(&mut scene),
            Row::RollingRestart => restart_all(&scene),
            Row::HapaxKilled => kill_hapax(&mut scene),
            Row::HapaxReplaced => replace_hapax(&mut scene),
            Row::ClientKilled => kill_clients(&mut scene),
            Row::TopicRecreated => recreate_topics(&mut scene),
            Row::LastEpoch => raw_rows::last_epoch(&mut scene),
            Row::SequenceWrap => raw_rows::sequence_wrap(&mut scene),
        }
        scene.go_on(Duration::from_secs(2));
        scene.end_producers(LAST_WORDS);
        scene.report();
        let cells = scene.judge().into_iter();
        let cells = cells.map(|(client, way, counts)| Cell {
            client,
            way,
            counts,
            looks_in_vain: scene.looks_in_vain(way),
        });
        let cells = cells.collect();
        scene.leave();
        cells
    }
}

/// Half of the time answers get lost before hapax, half of it behind.
fn lose_responses(scene: &Scene, dark_in_four: u64) {
    for side in [Side::Before, Side::Behind] {
        let weather = Weather::Losing {
            one_in: 40,
            dark_in_four,
        };
        scene.set_weather(side, weather);
        scene.go_on(Duration::from_secs(8));
        scene.set_weather(side, Weather::Calm);
    }
}

fn slow_broker(scene: &mut Scene) {
    for _ in 0..3 {
        let node = scene.any_node();
        scene.cluster.freeze(node);
        scene.go_on(Duration::from_millis(2300));
        scene.cluster.thaw(node);
        scene.go_on(Duration::from_secs(2));
    }
}

fn kill_brokers(scene: &mut Scene) {
    for _ in 0..2 {
        let node = scene.any_node();
        scene.cluster.kill(node);
        scene.go_on(Duration::from_secs(4));
        scene.cluster.restart(node);
        scene.go_on(Duration::from_secs(2));
    }
}

/// What is in flight is written and not acknowledged. Before it is sent again
/// every broker has been stopped cleanly, and has written down the last batch
/// of each producer alone.
fn restart_behind_silence(scene: &Scene, side: Side) {
    scene.set_weather(side, Weather::Silent);
    scene.wait_until_silent(side);
    scene.set_weather(side, Weather::Closed);
    restart_all(scene);
    scene.set_weather(side, Weather::Calm);
    scene.go_on(Duration::from_secs(5));
}

fn restart_all(scene: &Scene) {
    for node in 0..scene.cluster.nodes() {
        scene.cluster.stop(node);
        scene.cluster.restart(node);
        scene.wait_until_in_sync();
    }
}

/// The first batches of a producer on partitions whose leader is not settled.
fn fresh_partitions(scene: &mut Scene) {
    const PARTITIONS: i32 = 8;
    for round in 0..4 {
        for index in 0..scene.lanes.len() {
            let topic = scene.create_unsettled(&format!("fresh-{round}"), PARTITIONS);
            let lane = &mut scene.lanes[index];
            lane.tell_topic(&topic, PARTITIONS);
            scene.move_all_leaders(&topic, PARTITIONS);
        }
        scene.go_on(Duration::from_secs(3));
    }
}

fn move_leaders(scene: &mut Scene) {
    let topics = scene.lanes.iter().map(|lane| lane.topics[0].clone());
    let topics: Vec<String> = topics.collect();
    for _ in 0..8 {
        for topic in &topics {
            scene.move_all_leaders(topic, 3);
        }
        scene.go_on(Duration::from_secs(1));
    }
}

/// Long enough for the other two to elect leaders without it, while clients
/// still reach it.
fn cut_off_brokers(scene: &mut Scene) {
    for _ in 0..2 {
        let node = scene.any_node();
        let cut = partition::cut_off(&scene.cluster, node);
        scene.go_on(Duration::from_secs(8));
        drop(cut);
        scene.go_on(Duration::from_secs(5));
    }
}

fn kill_hapax(scene: &mut Scene) {
    for _ in 0..3 {
        for road in &mut scene.roads {
            road.kill_hapax();
        }
        scene.go_on(Duration::from_secs(1));
        for road in &mut scene.roads {
            road.start_hapax();
        }
        scene.go_on(Duration::from_secs(4));
    }
}

fn replace_hapax(scene: &mut Scene) {
    for _ in 0..2 {
        for road in &mut scene.roads {
            road.drain_hapax();
            road.start_hapax();
        }
        scene.go_on(Duration::from_secs(4));
    }
}

fn kill_clients(scene: &mut Scene) {
    scene.go_on(Duration::from_secs(4));
    for road in &scene.roads {
        road.near.set_half_open(true);
    }
    for lane in &mut scene.lanes {
        lane.kill_and_resume();
    }
    scene.wait_for_acks("acknowledgements again", 20, Duration::from_secs(120));
    scene.go_on(Duration::from_secs(5));
    for road in &scene.roads {
        road.near.set_half_open(false);
    }
}

fn recreate_topics(scene: &mut Scene) {
    scene.go_on(Duration::from_secs(2));
    for index in 0..scene.lanes.len() {
        scene.recreate_topic(index);
    }
    scene.go_on(Duration::from_secs(10));
}
