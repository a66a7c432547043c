//! A Kafka of any version: topics, and its log as its own tool prints it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};

use crate::programs::root;
use crate::support::await_until;
use crate::support::hapax::free_range;
use crate::support::raw::{Client as Raw, topic_name};

/// Partitions of every topic.
pub(crate) const PARTITIONS: i32 = 3;

/// One node; taken down when dropped, or when this process ends.
pub(crate) struct Kafka {
    folder: PathBuf,
    port: u16,
}

/// A batch in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) partition: i64,
    pub(crate) offset: i64,
    pub(crate) producer_id: i64,
    pub(crate) base_sequence: i64,
    pub(crate) is_transactional: bool,
    pub(crate) is_control: bool,
    /// The records' values.
    pub(crate) values: Vec<u64>,
}

impl Kafka {
    /// Starts it, telling clients this host.
    pub(crate) fn start(version: &str, host: &str) -> Self {
        let port = free_range(6);
        let kafka = Self {
            folder: root()
                .join("target/tests/clusters")
                .join(format!("matrix-{port}")),
            port,
        };
        kafka.script(&["up"], |command| {
            command
                .env("KAFKA_VERSION", version)
                .env("NODE_PORTS", port.to_string())
                .env("ADVERTISED", format!("{host}:{port}"))
                .env("OWNER_PID", std::process::id().to_string());
        });
        kafka
    }

    /// Where clients reach it directly.
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The listener for hapax: what it advertises leads nowhere, so that a
    /// client cannot have come past hapax.
    pub(crate) fn front(&self) -> String {
        format!("127.0.0.1:{}", self.port + 2)
    }

    /// `NAME:PORT=REAL` of what that listener advertises.
    pub(crate) fn address_map(&self) -> String {
        format!("{}={}", self.front_advertised(), self.front())
    }

    fn front_advertised(&self) -> String {
        format!("kafka.invalid:{}", self.port)
    }

    /// Creates topics and waits until all partitions are led.
    pub(crate) fn create_topics(&self, names: &[String]) {
        let mut raw = Raw::connect(&self.bootstrap()).expect("Kafka serves");
        // A started broker is not yet one that the controller knows.
        await_until("a registered broker", Duration::from_secs(30), || {
            has_brokers(&mut raw)
        });
        let topic = |name: &String| {
            CreatableTopic::default()
                .with_name(topic_name(name))
                .with_num_partitions(PARTITIONS)
                .with_replication_factor(1)
        };
        let request = CreateTopicsRequest::default()
            .with_topics(names.iter().map(topic).collect())
            .with_timeout_ms(60_000);
        let response = raw.call(5, &request).expect("CreateTopics is answered");
        for topic in &response.topics {
            assert_eq!(topic.error_code, 0, "{topic:?}");
        }
        for name in names {
            await_until("leaders", Duration::from_secs(30), || {
                let led = raw.leads(name, PARTITIONS);
                led.expect("ListOffsets is answered")
            });
        }
    }

    /// The batches of every topic that has any, in log order by partition.
    pub(crate) fn logs(&self) -> BTreeMap<String, Vec<Batch>> {
        let data = self.folder.join("n1/data");
        let mut files: Vec<String> = Vec::new();
        for entry in fs::read_dir(&data).expect("a data folder") {
            let partition = entry.expect("a readable folder").path();
            if !partition.is_dir() || is_internal(&partition) {
                continue;
            }
            let segments = fs::read_dir(&partition).expect("a readable folder");
            files.extend(
                segments
                    .map(|entry| entry.expect("a readable folder").path())
                    .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
                    .map(|path| path.display().to_string()),
            );
        }
        files.sort();
        parse_dump(&self.script(&["dump", &files.join(",")], |_| {}))
    }

    fn script(&self, arguments: &[&str], more: impl FnOnce(&mut Command)) -> String {
        let mut command = Command::new(root().join("tests/kafka/kafka"));
        command
            .args(arguments)
            .env("CLUSTER_DIR", &self.folder)
            .env("FRONT_ADVERTISED", self.front_advertised());
        more(&mut command);
        let output = command.output().expect("tests/kafka/kafka starts");
        assert!(
            output.status.success(),
            "kafka {:?} failed (Java and Maven are needed): {}",
            arguments.first(),
            String::from_utf8_lossy(&output.stderr),
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.script(&["down"], |_| {});
    }
}

/// Kafka's own topics are no client's.
fn is_internal(partition: &Path) -> bool {
    partition
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("__"))
}

fn has_brokers(raw: &mut Raw) -> bool {
    let request = MetadataRequest::default().with_topics(Some(Vec::new()));
    let response = raw.call(4, &request).expect("Metadata is answered");
    !response.brokers.is_empty()
}

/// Reads `Dumping …/TOPIC-PARTITION/….log`, `baseOffset: 0 …` and `| offset: 0 … payload: 5`.
fn parse_dump(text: &str) -> BTreeMap<String, Vec<Batch>> {
    let mut logs: BTreeMap<String, Vec<Batch>> = BTreeMap::new();
    let (mut topic, mut partition) = (String::new(), 0);
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("Dumping ") {
            let folder = Path::new(path).parent().and_then(Path::file_name);
            let folder = folder.expect("a partition's folder").to_string_lossy();
            let (name, number) = folder.rsplit_once('-').expect("TOPIC-PARTITION");
            (topic, partition) = (name.to_owned(), number.parse().expect("a number"));
        } else if line.starts_with("baseOffset: ") {
            logs.entry(topic.clone()).or_default().push(Batch {
                partition,
                offset: field(line, "baseOffset"),
                producer_id: field(line, "producerId"),
                base_sequence: field(line, "baseSequence"),
                is_transactional: field(line, "isTransactional"),
                is_control: field(line, "isControl"),
                values: Vec::new(),
            });
        } else if let (true, Some((_, value))) = (
            line.starts_with("| offset: "),
            line.split_once(" payload: "),
        ) {
            let batch = logs.get_mut(&topic).and_then(|batches| batches.last_mut());
            let values = &mut batch.expect("records follow their batch").values;
            values.push(value.parse().expect("records hold numbers"));
        }
    }
    logs
}

fn field<T: std::str::FromStr>(line: &str, name: &str) -> T {
    line.split_once(&format!("{name}: "))
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {line:?}"))
}
