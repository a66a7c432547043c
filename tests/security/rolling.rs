//! A rolling restart of three brokers, TLS on both sides of hapax, and the same
//! clients without hapax beside it.

use std::collections::HashMap;
use std::time::Instant;

use crate::clients::{Client, Running};
use crate::cluster::values;
use crate::report::say;
use crate::tools::wait_for;
use crate::world::{CLIENT_TLS, DOOR_TLS, PATIENCE, UPSTREAM_TLS, World};

/// A producer's way, and where its records go.
struct Lane {
    client: Client,
    is_direct: bool,
    topic: String,
}

/// What became of a lane's records.
#[derive(Debug)]
struct Counts {
    sent: u64,
    failed: u64,
    lost: usize,
    doubled: usize,
    out_of_order: usize,
}

/// What a client gives its application on the way is no error: it tries again
/// by itself. Through hapax nothing is lost, doubled, out of order or given up;
/// direct is what it is.
pub(crate) fn under_load() {
    let world = World::start(3, &[]);
    let at = world.cluster.ssl_bootstrap();
    let hapax = world.hapax(&at, &format!("{DOOR_TLS} {UPSTREAM_TLS}"));
    let mut lanes = Vec::new();
    for client in [Client::Java, Client::Confluent] {
        for is_direct in [true, false] {
            let topic = world.cluster.create_topic("rolled", 3);
            lanes.push(Lane {
                client,
                is_direct,
                topic,
            });
        }
    }
    let mut producers: Vec<Running> = Vec::new();
    for lane in &lanes {
        let bootstrap = if lane.is_direct {
            at.clone()
        } else {
            hapax.bootstrap()
        };
        let more = format!("--partitions 3 {CLIENT_TLS}");
        producers.push(world.producer(lane.client, &bootstrap, &lane.topic, &more));
    }
    let go_on = |count: usize| {
        let printed: Vec<_> = producers.iter().map(Running::printed).collect();
        for (producer, printed) in producers.iter().zip(printed) {
            producer.wait_for_lines(printed + count);
        }
    };
    go_on(500);
    for node in 0..world.cluster.nodes() {
        let start = Instant::now();
        world.cluster.stop(node);
        world.cluster.restart(node);
        in_sync(&world, &lanes);
        say(format!(
            "node {} restarted within {:?}",
            node + 1,
            start.elapsed()
        ));
        go_on(500);
    }
    let outcomes: Vec<_> = producers.into_iter().map(Running::outcome).collect();
    let topics: Vec<_> = lanes.iter().map(|lane| lane.topic.as_str()).collect();
    let logs = world.cluster.logs(&topics);
    let mut complaints = Vec::new();
    for ((lane, outcome), log) in lanes.iter().zip(&outcomes).zip(&logs) {
        let counts = count(&outcome.summary, &values(log));
        let way = if lane.is_direct { "direct" } else { "hapax" };
        say(format!("{:?} {way}: {counts:?}", lane.client));
        let is_right = (counts.failed, counts.lost) == (0, 0)
            && (counts.doubled, counts.out_of_order) == (0, 0);
        if !lane.is_direct && !is_right {
            complaints.push(format!("{:?}: {counts:?}", lane.client));
        }
    }
    assert!(
        complaints.is_empty(),
        "{complaints:?}\n{:#?}",
        hapax.events()
    );
}

fn count(summary: &serde_json::Value, log: &HashMap<i32, Vec<u64>>) -> Counts {
    let number = |name: &str| summary[name].as_u64().expect("a count");
    let mut all: Vec<u64> = log.values().flatten().copied().collect();
    all.sort_unstable();
    let written = all.len();
    all.dedup();
    let sent = number("sent");
    let pairs = log.values().flat_map(|values| values.windows(2));
    Counts {
        sent,
        failed: number("failed"),
        lost: usize::try_from(sent)
            .expect("few")
            .saturating_sub(all.len()),
        doubled: written - all.len(),
        out_of_order: pairs.filter(|pair| pair[0] > pair[1]).count(),
    }
}

/// As an operator's rolling restart waits between two nodes.
fn in_sync(world: &World, lanes: &[Lane]) {
    let topics: Vec<_> = lanes.iter().map(|lane| lane.topic.as_str()).collect();
    wait_for("replicas in sync", PATIENCE, || {
        let response = world.cluster.connect(0).metadata(&topics);
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let mut in_sync = partitions.map(|partition| partition.isr_nodes.len());
        in_sync.all(|count| count == 3).then_some(())
    });
}
