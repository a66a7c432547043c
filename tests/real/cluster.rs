//! Real Kafka nodes, started by `tests/kafka/kafka`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::raw::Connection;
use crate::tools::{free_ports, kafka, unique};

/// What a cluster may differ in.
pub(crate) struct Options {
    /// 1 or 3.
    pub(crate) nodes: usize,
    pub(crate) version: &'static str,
    /// Of the nodes in order; 1, 2, 3 where empty.
    pub(crate) node_ids: Vec<i32>,
    /// Producer ids are forgotten 5 s after their last record's time.
    pub(crate) fast_pid: bool,
    /// What FRONT listeners advertise; names that do not resolve where empty.
    pub(crate) front_advertised: Vec<String>,
    /// The first port of the first node; a free one where `None`.
    pub(crate) first_port: Option<u16>,
    /// Further lines of the nodes' properties.
    pub(crate) properties: String,
    /// Each node runs as a user of its own, by which its packets can be told.
    pub(crate) has_users: bool,
    /// Listeners that speak TLS, too.
    pub(crate) secure: Option<Secure>,
    /// Of a node, as Java takes it.
    pub(crate) heap: &'static str,
}

/// What listeners that speak TLS need.
pub(crate) struct Secure {
    /// Holds `node-1.pem` and so on, keys with their certificates, and
    /// `clients.pem`, the CAs of clients.
    pub(crate) folder: PathBuf,
    /// What the nodes advertise.
    pub(crate) hosts: Vec<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 1,
            version: "4.4.0",
            node_ids: Vec::new(),
            fast_pid: false,
            front_advertised: Vec::new(),
            first_port: None,
            properties: String::new(),
            has_users: false,
            secure: None,
            heap: "512m",
        }
    }
}

/// A running cluster; taken down when dropped, or when this process ends.
pub(crate) struct Cluster {
    folder: PathBuf,
    ports: Vec<u16>,
    node_ids: Vec<i32>,
    front_advertised: Vec<String>,
}

/// Where clusters keep their data: `TEST_CLUSTERS` in the environment names the
/// folder, which is in memory where `tests/run` finds room for it.
fn clusters() -> PathBuf {
    std::env::var_os("TEST_CLUSTERS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tests/clusters"),
        PathBuf::from,
    )
}

/// Ports that a node takes.
const PORTS: u16 = 9;

impl Cluster {
    pub(crate) fn start(options: Options) -> Self {
        let ports: Vec<u16> = (0..options.nodes)
            .map(|_| options.first_port.unwrap_or_else(|| free_ports(PORTS)))
            .collect();
        let node_ids = match options.node_ids.is_empty() {
            true => (1..).take(options.nodes).collect(),
            false => options.node_ids,
        };
        let front_advertised = match options.front_advertised.is_empty() {
            true => ports
                .iter()
                .enumerate()
                .map(|(i, port)| format!("kafka-{i}.invalid:{port}"))
                .collect(),
            false => options.front_advertised,
        };
        let cluster = Self {
            folder: clusters().join(unique("kafka")),
            ports,
            node_ids,
            front_advertised,
        };
        let users: Vec<u32> = (0..options.nodes).map(Self::user).collect();
        cluster.script(&["up"], |command| {
            command
                .env("KAFKA_VERSION", options.version)
                .env("NODE_PORTS", spaced(&cluster.ports))
                .env("NODE_IDS", spaced(&cluster.node_ids))
                .env("FRONT_ADVERTISED", cluster.front_advertised.join(" "))
                .env("FAST_PID", if options.fast_pid { "1" } else { "0" })
                .env("EXTRA", &options.properties)
                .env("HEAP", options.heap)
                .env(
                    "NODE_USERS",
                    if options.has_users {
                        spaced(&users)
                    } else {
                        String::new()
                    },
                )
                .env("OWNER_PID", std::process::id().to_string());
            if let Some(secure) = &options.secure {
                command
                    .env("SECURE", &secure.folder)
                    .env("SECURE_HOSTS", secure.hosts.join(" "));
            }
        });
        cluster
    }

    /// One node, with an id above any port, for every test that leaves it as it was.
    pub(crate) fn one() -> &'static Self {
        static ONE: OnceLock<Cluster> = OnceLock::new();
        ONE.get_or_init(|| {
            Self::start(Options {
                node_ids: vec![70_000],
                ..Options::default()
            })
        })
    }

    /// Three nodes, for every test that leaves all of them running.
    pub(crate) fn three() -> &'static Self {
        static THREE: OnceLock<Cluster> = OnceLock::new();
        THREE.get_or_init(|| {
            Self::start(Options {
                nodes: 3,
                ..Options::default()
            })
        })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.ports.len()
    }

    /// The user that a node runs as, where each has its own.
    pub(crate) fn user(node: usize) -> u32 {
        61_000 + u32::try_from(node).expect("few nodes")
    }

    /// The ports of a node that only nodes connect to.
    pub(crate) fn ports_between_nodes(&self, node: usize) -> Vec<u16> {
        [3, 4].map(|listener| self.ports[node] + listener).to_vec()
    }

    /// Where clients reach the nodes directly.
    pub(crate) fn bootstrap(&self) -> String {
        self.addresses(0)
    }

    /// The same for the listeners that ask for SASL.
    pub(crate) fn sasl_bootstrap(&self) -> String {
        self.addresses(1)
    }

    /// The listeners for clients that come another way: what they advertise leads nowhere.
    pub(crate) fn front_bootstrap(&self) -> String {
        self.addresses(2)
    }

    /// The listeners that speak TLS.
    pub(crate) fn ssl_bootstrap(&self) -> String {
        self.addresses(6)
    }

    /// Those that also want a certificate.
    pub(crate) fn mtls_bootstrap(&self) -> String {
        self.addresses(7)
    }

    /// Those that speak TLS and ask for SASL.
    pub(crate) fn sasl_ssl_bootstrap(&self) -> String {
        self.addresses(8)
    }

    /// The listener of the first node's controller, which is for nodes.
    pub(crate) fn controller(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0] + 4)
    }

    /// The real addresses of the FRONT listeners with what they advertise.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = (String, String)> {
        self.ports
            .iter()
            .zip(&self.front_advertised)
            .map(|(port, advertised)| (format!("127.0.0.1:{}", port + 2), advertised.clone()))
    }

    fn addresses(&self, listener: u16) -> String {
        let addresses: Vec<String> = self
            .ports
            .iter()
            .map(|port| format!("127.0.0.1:{}", port + listener))
            .collect();
        addresses.join(",")
    }

    /// A raw connection to node `i`, past any proxy.
    pub(crate) fn connect(&self, i: usize) -> Connection {
        Connection::open(&format!("127.0.0.1:{}", self.ports[i]))
    }

    /// Creates a topic of that name with a suffix of its own, on all nodes.
    pub(crate) fn create_topic(&self, prefix: &str, partitions: i32) -> String {
        let name = unique(prefix);
        let replication = i16::try_from(self.nodes()).expect("few nodes");
        self.connect(0)
            .create_topic(&name, partitions, replication, &[]);
        name
    }

    /// The index of the node that leads a partition.
    pub(crate) fn leader(&self, topic: &str, partition: usize) -> usize {
        self.node(self.connect(0).leaders(topic)[partition])
    }

    /// The index of the node with this id.
    pub(crate) fn node(&self, id: i32) -> usize {
        let mut ids = self.node_ids.iter();
        ids.position(|node| *node == id).expect("the id of a node")
    }

    /// SIGSTOP.
    pub(crate) fn freeze(&self, i: usize) {
        self.script(&["kill", &(i + 1).to_string(), "STOP"], |_| {});
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self, i: usize) {
        self.script(&["kill", &(i + 1).to_string(), "CONT"], |_| {});
    }

    /// kill -9.
    pub(crate) fn kill(&self, i: usize) {
        self.script(&["kill", &(i + 1).to_string()], |_| {});
    }

    /// A clean stop, by SIGTERM: the node writes down what it knows of its producers.
    pub(crate) fn stop(&self, i: usize) {
        self.signal(i, "TERM");
    }

    /// Sends a node a signal; unless that is STOP or CONT, waits for its end.
    pub(crate) fn signal(&self, i: usize, name: &str) {
        self.script(&["kill", &(i + 1).to_string(), name], |_| {});
    }

    /// Starts a killed node on its data.
    pub(crate) fn restart(&self, i: usize) {
        self.script(&["restart", &(i + 1).to_string()], |_| {});
    }

    /// Adds brokers, all at once: the id of each, its first port, and what its
    /// FRONT listener advertises.
    pub(crate) fn join(&mut self, brokers: &[(i32, u16, String)]) {
        let before = self.nodes();
        for (id, port, front) in brokers {
            self.ports.push(*port);
            self.node_ids.push(*id);
            self.front_advertised.push(front.clone());
        }
        let cluster = &*self;
        std::thread::scope(|scope| {
            for (node, (id, port, front)) in (before + 1..).zip(brokers) {
                let [node, port, id] = [node.to_string(), port.to_string(), id.to_string()];
                scope.spawn(move || cluster.script(&["join", &node, &port, &id, front], |_| {}));
            }
        });
    }

    /// What the leaders' logs hold, as Kafka's own tool reads them.
    pub(crate) fn log(&self, topic: &str) -> Vec<Batch> {
        self.logs(&[topic]).remove(0)
    }

    /// The same of several topics, in their order.
    pub(crate) fn logs(&self, topics: &[&str]) -> Vec<Vec<Batch>> {
        let files = topics.iter().flat_map(|topic| self.log_files(topic));
        let files: Vec<String> = files.collect();
        let text = self.dump(&["--deep-iteration", "--print-data-log"], &files);
        let of = |topic: &&str| {
            let folder = format!("/data/{topic}-");
            let parts = text.split_inclusive('\n');
            let mut is_its = false;
            let lines = parts.filter(|line| {
                if line.starts_with("Dumping ") {
                    is_its = line.contains(&folder);
                }
                is_its
            });
            parse_dump(&lines.collect::<String>())
        };
        topics.iter().map(of).collect()
    }

    fn log_files(&self, topic: &str) -> Vec<String> {
        let leaders = self.connect(0).leaders(topic);
        let mut files = Vec::new();
        for (partition, leader) in leaders.iter().enumerate() {
            let node = self.node(*leader);
            files.append(&mut self.files(node, topic, partition, ".log"));
        }
        files
    }

    /// What the first node last wrote down of the producers of a topic, as
    /// Kafka's own tool reads it.
    pub(crate) fn snapshots(&self, topic: &str, partitions: usize) -> Vec<Snapshot> {
        let newest = |partition| {
            let files = self.files(0, topic, partition, ".snapshot");
            files.last().expect("a node that was stopped").clone()
        };
        let files: Vec<String> = (0..partitions).map(newest).collect();
        parse_snapshots(&self.dump(&[], &files))
    }

    /// A partition's files on a node, in the order of their offsets.
    fn files(&self, node: usize, topic: &str, partition: usize, suffix: &str) -> Vec<String> {
        let folder = self
            .folder
            .join(format!("n{}/data/{topic}-{partition}", node + 1));
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("a readable folder")
                    .path()
                    .display()
                    .to_string()
            })
            .filter(|path| path.ends_with(suffix))
            .collect();
        files.sort();
        files
    }

    fn dump(&self, options: &[&str], files: &[String]) -> String {
        let files = files.join(",");
        let mut arguments = vec!["tool", "org.apache.kafka.tools.DumpLogSegments"];
        arguments.extend(options);
        arguments.extend(["--files", &files]);
        self.script(&arguments, |_| {})
    }

    fn script(&self, arguments: &[&str], more: impl FnOnce(&mut Command)) -> String {
        kafka(&self.folder, arguments, more)
    }
}

impl Batch {
    /// Whether an idempotent producer wrote it.
    pub(crate) fn is_idempotent(&self) -> bool {
        let last = i64::from(self.base_sequence) + i64::try_from(self.count).expect("few") - 1;
        self.producer_id >= 0
            && self.epoch >= 0
            && self.base_sequence >= 0
            && i64::from(self.last_sequence) == last
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script(&["down"], |_| {});
    }
}

/// A batch in a log.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) count: usize,
    pub(crate) is_control: bool,
    /// The records' keys; empty where they have none.
    pub(crate) keys: Vec<String>,
    /// The records' values.
    pub(crate) values: Vec<String>,
}

/// What a node wrote down of a producer on a partition.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Snapshot {
    pub(crate) partition: i32,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// None where the newest entry is a transaction's end.
    pub(crate) last_sequence: Option<i32>,
}

/// The values of a topic's records, by partition, in log order.
pub(crate) fn values(log: &[Batch]) -> HashMap<i32, Vec<u64>> {
    let mut values: HashMap<i32, Vec<u64>> = HashMap::new();
    for batch in log.iter().filter(|batch| !batch.is_control) {
        let numbers = batch
            .values
            .iter()
            .map(|value| value.parse::<u64>().expect("records hold numbers"));
        values.entry(batch.partition).or_default().extend(numbers);
    }
    values
}

/// Asserts that a log holds the records 0 to `count` once each, and in order
/// on each partition.
#[track_caller]
pub(crate) fn assert_once_in_order(log: &[Batch], count: u64) {
    for batch in log {
        assert_eq!(
            batch.values.len(),
            if batch.is_control { 0 } else { batch.count },
            "{batch:?}"
        );
    }
    for pair in log
        .windows(2)
        .filter(|pair| pair[0].partition == pair[1].partition)
    {
        assert!(
            pair[0].offset < pair[1].offset,
            "batches in log order: {pair:?}"
        );
    }
    let values = values(log);
    let mut all: Vec<u64> = Vec::new();
    for (partition, numbers) in &values {
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] >= pair[1]) {
            panic!(
                "partition {partition} holds {} right before {}",
                pair[0], pair[1]
            );
        }
        all.extend(numbers);
    }
    all.sort_unstable();
    let missing: Vec<u64> = (0..count)
        .filter(|n| all.binary_search(n).is_err())
        .collect();
    assert!(
        missing.is_empty(),
        "{} records are lost: {missing:?}",
        missing.len()
    );
    assert_eq!(
        u64::try_from(all.len()).expect("few"),
        count,
        "records are in the log twice, or were never sent"
    );
}

/// Reads the lines `baseOffset: 0 lastOffset: 9 count: 10 …` and `| offset: 0 … payload: 5`.
fn parse_dump(text: &str) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut partition = 0;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("Dumping ") {
            partition = partition_of(path);
        } else if line.starts_with("baseOffset: ") {
            batches.push(Batch {
                partition,
                offset: field(line, "baseOffset"),
                producer_id: field(line, "producerId"),
                epoch: field(line, "producerEpoch"),
                base_sequence: field(line, "baseSequence"),
                last_sequence: field(line, "lastSequence"),
                count: field(line, "count"),
                is_control: field(line, "isControl"),
                keys: Vec::new(),
                values: Vec::new(),
            });
        } else if let (true, Some((head, value))) = (
            line.starts_with("| offset: "),
            line.split_once(" payload: "),
        ) {
            let batch = batches.last_mut().expect("records follow their batch");
            let key = head.split_once(" key: ").map_or("", |(_, key)| key);
            batch.keys.push(key.to_owned());
            batch.values.push(value.to_owned());
        }
    }
    batches
}

/// Reads the lines `producerId: 7 producerEpoch: 0 … lastSequence: 9 …`.
fn parse_snapshots(text: &str) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    let mut partition = 0;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("Dumping ") {
            partition = partition_of(path);
        } else if line.starts_with("producerId: ") {
            snapshots.push(Snapshot {
                partition,
                producer_id: field(line, "producerId"),
                epoch: field(line, "producerEpoch"),
                last_sequence: line
                    .contains("lastSequence: ")
                    .then(|| field(line, "lastSequence")),
            });
        }
    }
    snapshots
}

/// The partition of a file in its log folder, TOPIC-PARTITION.
fn partition_of(path: &str) -> i32 {
    let folder = Path::new(path)
        .parent()
        .and_then(Path::file_name)
        .expect("a partition's folder");
    let (_, number) = folder
        .to_str()
        .and_then(|name| name.rsplit_once('-'))
        .expect("TOPIC-PARTITION");
    number.parse().expect("a partition number")
}

fn field<T: std::str::FromStr>(line: &str, name: &str) -> T {
    let value = line
        .split_once(&format!("{name}: "))
        .and_then(|(_, rest)| rest.split(' ').next())
        .unwrap_or_else(|| panic!("no {name} in {line:?}"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} in {line:?}"))
}

fn spaced<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}
