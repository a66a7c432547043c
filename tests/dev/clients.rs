//! The clients that people use, against `hapax dev --no-demo`: each writes,
//! reads with a group, commits, and goes on where it was.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest};
use serde_json::Value;

use crate::process::Dev;
use crate::support::hapax::{metric_of, page};
use crate::support::raw::{Client, topic_name};
use crate::upstream::text;

/// Messages of each producer; then one more by another one.
const COUNT: u64 = 20;
const TOPIC: &str = "orders";
const GROUP: &str = "readers";

/// A client program: what it runs to write messages `first..first + count`,
/// and to read `count` messages with the group, printing value and offset of each.
struct Programs {
    produce: fn(bootstrap: &str, first: u64, count: u64) -> Ran,
    consume: fn(bootstrap: &str, count: u64) -> Ran,
}

/// A command, and what it gets on its standard input.
struct Ran(Command, String);

#[track_caller]
fn check(programs: &Programs) {
    let mut dev = Dev::start("--no-demo");
    let addresses = dev.addresses();
    let at = addresses.clients.as_str();
    // The topic is made by whoever asks for it first.
    run((programs.produce)(at, 0, COUNT));
    let wanted: Vec<_> = (0..COUNT).map(|n| (n, n)).collect();
    assert_eq!(read((programs.consume)(at, COUNT)), wanted);
    assert_eq!(committed(at), Some(20), "what it has read is committed");
    // A second consumer of the group has nothing left but what comes then.
    run((programs.produce)(at, COUNT, 1));
    assert_eq!(read((programs.consume)(at, 1)), [(COUNT, COUNT)]);
    assert_eq!(committed(at), Some(21));
    let metrics = page(&addresses.admin, "/metrics");
    let verdicts = |verdict: &str| metric_of(&metrics, "hapax_verdicts_total", &[verdict]);
    assert!(verdicts("forwarded") > 0.0, "it went through hapax");
    assert_eq!(verdicts("untracked"), 0.0, "its producer is idempotent");
    assert_eq!(verdicts("gap") + verdicts("overlap"), 0.0);
}

/// Runs it to its end, which must be good; gives its standard output.
#[track_caller]
fn run(Ran(mut command, input): Ran) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The messages and offsets that a consumer prints, as two numbers or as JSON.
#[track_caller]
fn read(consumer: Ran) -> Vec<(u64, u64)> {
    let output = run(consumer);
    let of_json = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        Some((line["n"].as_u64()?, line["offset"].as_u64()?))
    };
    let of_words = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let lines = output.lines();
    lines
        .filter_map(|line| of_json(line).or_else(|| of_words(line)))
        .collect()
}

/// How far the group is, as the broker keeps it.
fn committed(bootstrap: &str) -> Option<i64> {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name(TOPIC))
        .with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text(GROUP)))
        .with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default().with_groups(vec![group]);
    let response = Client::connect(bootstrap)
        .unwrap()
        .call(8, &request)
        .unwrap();
    let topic = response.groups[0].topics.first()?;
    Some(topic.partitions[0].committed_offset)
}

fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/tests")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing: run `tests/run install`",
        path.display()
    );
    path
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(path)
}

fn lines(first: u64, count: u64) -> String {
    (first..first + count).map(|n| format!("{n}\n")).collect()
}

/// One of Kafka's own command line tools.
fn kafka(class: &str) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(format!(
            "-Dlog4j2.configurationFile={}",
            source("kafka/tools-log4j2.properties").display()
        ))
        .arg("-cp")
        .arg(installed("kafka-libs").join("*"))
        .arg(class);
    command
}

#[test]
fn kafkas_console_producer_and_consumer() {
    check(&Programs {
        produce: |bootstrap, first, count| {
            let mut command = kafka("org.apache.kafka.tools.ConsoleProducer");
            command.args(["--bootstrap-server", bootstrap, "--topic", TOPIC]);
            Ran(command, lines(first, count))
        },
        consume: |bootstrap, count| {
            let mut command = kafka("org.apache.kafka.tools.consumer.ConsoleConsumer");
            command
                .args(["--bootstrap-server", bootstrap, "--topic", TOPIC])
                .args([
                    "--group",
                    GROUP,
                    "--from-beginning",
                    "--timeout-ms",
                    "60000",
                ])
                .args(["--max-messages", &count.to_string()])
                .args(["--formatter-property", "print.offset=true"]);
            // "Offset:0<tab>0" becomes "0 0", the value being equal to the offset.
            let mut shell = Command::new("bash");
            shell.args([
                "-c",
                "set -o pipefail; \"$@\" | sed -E 's/^Offset:([0-9]+)\\t(.*)/\\2 \\1/'",
                "-",
            ]);
            shell.arg(command.get_program()).args(command.get_args());
            Ran(shell, String::new())
        },
    });
}

#[test]
fn kcat() {
    check(&Programs {
        produce: |bootstrap, first, count| {
            let mut command = Command::new("kcat");
            command.args([
                "-b",
                bootstrap,
                "-P",
                "-t",
                TOPIC,
                "-X",
                "enable.idempotence=true",
            ]);
            Ran(command, lines(first, count))
        },
        consume: |bootstrap, count| {
            let mut command = Command::new("kcat");
            command
                .args(["-b", bootstrap, "-G", GROUP, "-q", "-f", "%s %o\n"])
                .args([
                    "-c",
                    &count.to_string(),
                    "-X",
                    "auto.offset.reset=earliest",
                    TOPIC,
                ]);
            Ran(command, String::new())
        },
    });
}

/// A program of `tests/clients`, which all take one command line.
fn common(mut command: Command, operation: &str, bootstrap: &str, count: u64) -> Command {
    command
        .args([operation, "--bootstrap", bootstrap, "--topic", TOPIC])
        .args(["--count", &count.to_string()]);
    command
}

fn produces(command: Command, bootstrap: &str, first: u64, count: u64) -> Ran {
    // Not each of them makes the topics that it writes to.
    let made = Client::connect(bootstrap)
        .unwrap()
        .create_topic(TOPIC, 1, &[]);
    assert_eq!(made.is_ok(), first == 0);
    let mut command = common(command, "produce", bootstrap, count);
    command.args(["--partitions", "1", "--first", &first.to_string()]);
    Ran(command, String::new())
}

fn consumes(command: Command, bootstrap: &str, count: u64) -> Ran {
    let mut command = common(command, "consume", bootstrap, count);
    command.args(["--group", GROUP]);
    Ran(command, String::new())
}

fn franz() -> Command {
    Command::new(installed("client-go"))
}

fn node() -> Command {
    let mut command = Command::new("node");
    command
        .env("NODE_PATH", installed("node/node_modules"))
        .arg(source("clients/node/client.js"));
    command
}

fn python() -> Command {
    let mut command = Command::new(installed("venv/bin/python"));
    command.arg(source("clients/python/kafka_python.py"));
    command
}

#[test]
fn franz_go() {
    check(&Programs {
        produce: |bootstrap, first, count| produces(franz(), bootstrap, first, count),
        consume: |bootstrap, count| consumes(franz(), bootstrap, count),
    });
}

#[test]
fn kafkajs() {
    check(&Programs {
        produce: |bootstrap, first, count| produces(node(), bootstrap, first, count),
        consume: |bootstrap, count| consumes(node(), bootstrap, count),
    });
}

#[test]
fn kafka_python() {
    check(&Programs {
        produce: |bootstrap, first, count| produces(python(), bootstrap, first, count),
        consume: |bootstrap, count| consumes(python(), bootstrap, count),
    });
}
