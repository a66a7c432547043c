//! The rows: what happens to a cluster, its network and hapax while producers work.

use std::time::Duration;

use crate::judge::Counts;
use crate::producers::{Client, LAST_WORDS};
use crate::relay::Weather;
use crate::scene::{Plan, Scene, Side, Way};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Row {
    LostResponses,
    SlowBroker,
    BrokerKilled,
    CleanRestart,
    OldTimestamps,
    FreshPartitions,
    LeaderMoves,
}

/// One producer's counts in a run of a row.
pub(crate) struct Cell {
    pub(crate) client: Client,
    pub(crate) way: Way,
    pub(crate) counts: Counts,
}

impl Row {
    pub(crate) const ALL: [Self; 7] = [
        Self::LostResponses,
        Self::SlowBroker,
        Self::BrokerKilled,
        Self::CleanRestart,
        Self::OldTimestamps,
        Self::FreshPartitions,
        Self::LeaderMoves,
    ];

    /// For the command line.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::LostResponses => "lost-responses",
            Self::SlowBroker => "slow-broker",
            Self::BrokerKilled => "broker-killed",
            Self::CleanRestart => "clean-restart",
            Self::OldTimestamps => "old-timestamps",
            Self::FreshPartitions => "fresh-partitions",
            Self::LeaderMoves => "leader-moves",
        }
    }

    /// For the table: what happens.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::LostResponses => "one answer in about 40 is lost, its connection cut or silent",
            Self::SlowBroker => {
                "a broker stands still for longer than the request timeout, three times"
            }
            Self::BrokerKilled => "a broker is killed with -9 and restarted, twice",
            Self::CleanRestart => {
                "the network fails, every broker is restarted cleanly, all in flight is sent again"
            }
            Self::OldTimestamps => "records 26 h old, producers forgotten after 5 s, answers lost",
            Self::FreshPartitions => "new topics of 16 partitions, whose leaders move at once",
            Self::LeaderMoves => "leaders moved by reassignment every second",
        }
    }

    /// What clients, hapax and cluster are to be for it.
    fn plan(self, seed: u64, kafka: &'static str, clients: &[Client], ways: &[Way]) -> Plan {
        let mut plan = Plan {
            seed,
            kafka,
            clients: clients.to_vec(),
            ways: ways.to_vec(),
            forgets_producers: false,
            client_arguments: &[],
            hapax_arguments: &[],
        };
        match self {
            Self::SlowBroker => plan.client_arguments = &["--request-timeout-ms", "1000"],
            Self::OldTimestamps => {
                plan.forgets_producers = true;
                plan.client_arguments = &["--age-ms", "93600000"];
            }
            Self::LostResponses
            | Self::BrokerKilled
            | Self::CleanRestart
            | Self::FreshPartitions
            | Self::LeaderMoves => {}
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
        println!("{}: SEED={seed}", self.id());
        let plan = self.plan(seed, kafka, clients, ways);
        let mut scene = Scene::set(&plan);
        scene.start_producers(&plan);
        match self {
            Self::LostResponses => lose_responses(&mut scene, 1),
            Self::SlowBroker => slow_broker(&mut scene),
            Self::BrokerKilled => kill_brokers(&mut scene),
            Self::CleanRestart => restart_behind_silence(&mut scene),
            Self::OldTimestamps => lose_responses(&mut scene, 4),
            Self::FreshPartitions => fresh_partitions(&mut scene),
            Self::LeaderMoves => move_leaders(&mut scene),
        }
        scene.go_on(Duration::from_secs(2));
        scene.end_producers(LAST_WORDS);
        scene.report();
        let cells = scene.judge().into_iter();
        cells
            .map(|(client, way, counts)| Cell {
                client,
                way,
                counts,
            })
            .collect()
    }
}

/// Half of the answers get lost before hapax, half behind it.
fn lose_responses(scene: &mut Scene, dark_in_four: u64) {
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
/// every broker has been stopped cleanly, of which it remembers the last batch
/// of each producer alone.
fn restart_behind_silence(scene: &mut Scene) {
    let side = match scene.random.one_in(2) {
        true => Side::Before,
        false => Side::Behind,
    };
    println!("the network fails {side:?} hapax");
    scene.set_weather(side, Weather::Silent);
    scene.wait_until_silent(side);
    scene.set_weather(side, Weather::Closed);
    for node in 0..scene.cluster.nodes() {
        scene.cluster.stop(node);
        scene.cluster.restart(node);
    }
    scene.set_weather(side, Weather::Calm);
    scene.go_on(Duration::from_secs(5));
}

/// The first batches of a producer on partitions whose leader is not settled.
fn fresh_partitions(scene: &mut Scene) {
    const PARTITIONS: i32 = 16;
    for round in 0..5 {
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
    let topics: Vec<String> = scene
        .lanes
        .iter()
        .map(|lane| lane.topics[0].clone())
        .collect();
    for _ in 0..12 {
        for topic in &topics {
            scene.move_all_leaders(topic, 3);
        }
        scene.go_on(Duration::from_secs(1));
    }
}
