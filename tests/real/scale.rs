//! A cluster that grows and shrinks under load, its brokers replaced meanwhile,
//! and hapax killed and started again in the middle of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::clients::{Client, Running};
use crate::cluster::{Cluster, Options, assert_once_in_order};
use crate::hapax::{Hapax, Ports, Route};
use crate::tools::{free_ports, unique, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
/// Partitions of each topic.
const PARTITIONS: usize = 5;
/// The broker that stays: it is the controller too.
const FIRST: i32 = 1;

/// What the brokers at this port advertise to hapax: it leads nowhere.
fn front(port: u16) -> String {
    format!("kafka.invalid:{port}")
}

/// A cluster of one, places for others, and a hapax that finds them all.
struct World {
    cluster: Cluster,
    /// The first ports of brokers that are to come.
    places: [u16; 4],
    ports: Ports,
    flags: Vec<String>,
    hapax: Option<Hapax>,
    state: PathBuf,
}

impl World {
    fn new() -> Self {
        let first = free_ports(6);
        let places = [(); 4].map(|()| free_ports(6));
        let cluster = Cluster::start(Options {
            first_port: Some(first),
            node_ids: vec![FIRST],
            front_advertised: vec![front(first)],
            ..Options::default()
        });
        let state = std::env::temp_dir().join(unique("hapax-state"));
        let all = std::iter::once(&first).chain(&places);
        let map = all.map(|port| format!("{}=127.0.0.1:{}", front(*port), port + 2));
        let map: Vec<_> = map.collect();
        // One of the bootstrap servers is not there yet.
        let upstream = format!("127.0.0.1:{},127.0.0.1:{}", places[1] + 2, first + 2);
        let flags = vec![
            format!("--upstream={upstream}"),
            format!("--upstream-address-map={}", map.join(",")),
            format!("--state-dir={}", state.display()),
            "--state-interval=1s".to_owned(),
            "--listen-slot-grace=10s".to_owned(),
        ];
        let mut world = Self {
            cluster,
            places,
            ports: Ports::free(8),
            flags,
            hapax: None,
            state,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.hapax = Some(Hapax::start_on(self.ports.clone(), &flags));
    }

    fn hapax(&self) -> &Hapax {
        self.hapax.as_ref().expect("it runs")
    }

    /// Brokers with these ids come to these places.
    fn join(&mut self, brokers: &[(i32, usize)]) {
        let brokers = brokers.iter().map(|(id, place)| {
            let port = self.places[*place];
            (*id, port, front(port))
        });
        let brokers: Vec<_> = brokers.collect();
        self.cluster.join(&brokers);
    }

    /// Each partition of the topics goes to the broker that is named for it.
    fn move_to(&self, topics: &[String], nodes: [i32; PARTITIONS]) {
        for topic in topics {
            self.cluster.connect(0).move_partitions(topic, &nodes);
        }
        for topic in topics {
            wait_for("the partitions to move", PATIENCE, || {
                (self.cluster.connect(0).leaders(topic) == nodes).then_some(())
            });
        }
    }

    /// A clean end of a broker that has nothing any more.
    fn leave(&self, id: i32) {
        self.cluster.stop(self.cluster.node(id));
    }

    /// The ports of the brokers that are there, as hapax shows them.
    fn shown(&self) -> Vec<(i64, u64)> {
        let brokers = self.hapax().api("/api/v1/brokers");
        let rows = brokers["brokers"].as_array().expect("a list").iter();
        let mut shown: Vec<_> = rows
            .filter(|row| row["present"] == true)
            .map(|row| {
                let number = |name: &str| row[name].as_i64().expect("a number");
                (number("node"), number("port").unsigned_abs())
            })
            .collect();
        shown.sort_unstable();
        shown
    }

    /// Waits until hapax shows these brokers and no others.
    fn wait_for_brokers(&self, ids: &[i64]) -> Vec<(i64, u64)> {
        wait_for("hapax to show the brokers", PATIENCE, || {
            let shown = self.shown();
            let nodes = shown.iter().map(|(node, _)| *node);
            nodes.eq(ids.iter().copied()).then_some(shown)
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.hapax = None;
        let _ = fs::remove_dir_all(&self.state);
    }
}

/// Each of them gets this many records further.
fn go_on(producers: &[Running]) {
    for producer in producers {
        producer.wait_for_lines(producer.printed() + 300);
    }
}

fn start(client: Client, world: &World, topic: &str) -> Running {
    let arguments = [
        "--topic",
        topic,
        "--partitions",
        "5",
        "--rate",
        "200",
        "--until-input-ends",
        "--linger-ms",
        "5",
        "--backoff-ms",
        "50",
    ];
    client.start("produce", &world.hapax().bootstrap(), &arguments)
}

#[test]
fn brokers_come_go_and_are_replaced_under_load_and_no_client_notices() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let mut world = World::new();
    let clients = [Client::Java, Client::FranzGo];
    let partitions = i32::try_from(PARTITIONS).expect("few");
    let topics = clients.map(|_| world.cluster.create_topic("scale", partitions));
    let producers: Vec<_> = clients
        .iter()
        .zip(&topics)
        .map(|(client, topic)| start(*client, &world, topic))
        .collect();
    let group = unique("group");
    let bootstrap = world.hapax().bootstrap();
    let consume = [
        "--topic",
        &topics[0],
        "--group",
        &group,
        "--count",
        "1000000",
        "--timeout-ms",
        "600000",
    ];
    let consumer = Client::Confluent.start("consume", &bootstrap, &consume);
    go_on(&producers);

    world.join(&[(102, 0), (203, 1), (304, 2), (405, 3)]);
    world.move_to(&topics, [FIRST, 102, 203, 304, 405]);
    go_on(&producers);
    let before = world.wait_for_brokers(&[1, 102, 203, 304, 405]);

    // kill -9, and the same ports lead to the same brokers again.
    wait_for("a snapshot", PATIENCE, || {
        let written = world.hapax().metric("hapax_snapshot_writes_total", &[]);
        (written >= 3.0).then_some(())
    });
    world.hapax = None;
    world.start();
    go_on(&producers);
    let same = world.wait_for_brokers(&[1, 102, 203, 304, 405]);
    assert_eq!(same, before);

    // Broker 102 is replaced by 502, at the same address.
    world.move_to(&topics, [FIRST, 203, 203, 304, 405]);
    world.leave(102);
    world.join(&[(502, 0)]);
    world.move_to(&topics, [502, 203, FIRST, 304, 405]);
    go_on(&producers);
    world.wait_for_brokers(&[1, 203, 304, 405, 502]);

    world.move_to(&topics, [FIRST; PARTITIONS]);
    for id in [203, 304, 405, 502] {
        world.leave(id);
    }
    go_on(&producers);
    world.wait_for_brokers(&[1]);

    let mut sent_to_first = 0;
    for (producer, topic) in producers.into_iter().zip(&topics) {
        let produced = producer.finish();
        let sent = produced.summary["sent"].as_u64().expect("a count");
        assert_eq!(produced.summary["acked"], sent, "{}", produced.summary);
        assert_once_in_order(&world.cluster.log(topic), sent);
        println!("{topic}: {sent} records, each once and in order");
        if topic == &topics[0] {
            sent_to_first = sent;
        }
    }
    consumer.wait_for_lines(usize::try_from(sent_to_first).expect("few"));
    let consumed: BTreeSet<_> = consumer
        .kill()
        .iter()
        .map(|line| line["n"].as_u64().expect("a record number"))
        .collect();
    assert!(consumed.into_iter().eq(0..sent_to_first));
    let absent = world
        .hapax()
        .metric("hapax_broker_slots_exhausted_total", &[]);
    assert_eq!(absent, 0.0, "each broker had a port");
}
