//! The README's lines for each client, run as they stand but for the address
//! and the topic: each writes a record, as an idempotent producer, through hapax.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cells::World;
use crate::programs::{installed, root};
use crate::report::readme_file;

/// What the README writes; a test has a port and a topic of its own.
const ADDRESS: &str = "localhost:19092";
const TOPIC: &str = "orders";

/// The snippets that a program here can run, by the README's mark, with the
/// records that each writes.
pub(crate) const QUICK: [(&str, u64); 7] = [
    ("java", 1),
    ("confluent-kafka", 1),
    ("kafka-python", 1),
    ("franz-go", 1),
    ("sarama", 1),
    ("kafkajs", 1),
    ("cli", 2),
];
/// The one whose client takes minutes to build.
pub(crate) const SLOW: [(&str, u64); 1] = [("rdkafka", 1)];
/// Those that nothing here can run: no .NET, and no Spring.
pub(crate) const NOT_RUN: [&str; 2] = ["dotnet", "spring"];

/// The lines after each `<!-- snippet NAME -->` of the README.
pub(crate) fn snippets() -> BTreeMap<String, String> {
    let readme = fs::read_to_string(readme_file()).expect("a readable README");
    let parts = readme.split("<!-- snippet ").skip(1);
    parts
        .map(|part| {
            let (name, rest) = part.split_once(" -->").expect("an end of the mark");
            let code = rest.split("```").nth(1).expect("a fenced block");
            let (_language, lines) = code.split_once('\n').expect("lines");
            (name.to_owned(), lines.trim_end().to_owned())
        })
        .collect()
}

/// Runs these snippets through hapax to a Kafka; says what went wrong.
pub(crate) fn run(names: &[(&str, u64)]) -> Vec<String> {
    let snippets = snippets();
    let world = World::start("4.4.0");
    let topic = |name: &str| format!("snippet-{name}");
    let topics: Vec<String> = names.iter().map(|(name, _)| topic(name)).collect();
    world.kafka.create_topics(&topics);
    let mut complaints = Vec::new();
    for (name, _) in names {
        let lines = snippets.get(*name).map_or("", String::as_str);
        let lines = lines
            .replace(ADDRESS, &world.hapax.bootstrap)
            .replace(TOPIC, &topic(name));
        let output = program(name, &lines, &topic(name)).output();
        let output = output.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            complaints.push(format!("{name} ended with {}: {errors}", output.status));
        }
    }
    let logs = world.kafka.logs();
    for (name, records) in names {
        let log = logs.get(&topic(name)).map_or(&[][..], Vec::as_slice);
        let written: usize = log.iter().map(|batch| batch.values.len()).sum();
        let followed = world.verdicts(&topic(name)).remove("forwarded");
        if written != usize::try_from(*records).expect("few")
            || log.iter().any(|batch| batch.producer_id < 0)
            || followed.is_none_or(|followed| followed < *records)
        {
            complaints.push(format!(
                "{name}: hapax followed {followed:?} batches, in the log are {log:?}"
            ));
        }
    }
    complaints
}

/// A program of the README's lines and what it takes around them.
fn program(name: &str, lines: &str, topic: &str) -> Command {
    let folder = root().join("target/tests/snippets").join(name);
    let file = |wrapper: &str| written(&folder.join(wrapper), wrapper, lines, topic);
    match name {
        "java" => {
            let mut command = Command::new("java");
            command
                .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"])
                .arg(installed("kafka-libs").join("*"))
                .arg(file("Java.java"));
            command
        }
        "confluent-kafka" => python(file("confluent.py")),
        "kafka-python" => python(file("kafka_python.py")),
        "franz-go" => go(file("franz.go")),
        "sarama" => go(file("sarama.go")),
        "kafkajs" => {
            let mut command = Command::new("node");
            command
                .env("NODE_PATH", installed("node/node_modules"))
                .arg(file("kafka.js"));
            command
        }
        "rdkafka" => rust(&folder, &file("rdkafka.rs")),
        "cli" => shell(lines),
        _ => panic!("no program runs the snippet {name}"),
    }
}

/// Writes the wrapper with the lines in place of its mark.
fn written(file: &PathBuf, wrapper: &str, lines: &str, topic: &str) -> PathBuf {
    let around = root().join("tests/clients/snippets").join(wrapper);
    let around = fs::read_to_string(around).expect("a readable wrapper");
    let mark = around
        .lines()
        .find(|line| line.ends_with(" SNIPPET"))
        .expect("a mark");
    let text = around.replace(TOPIC, topic).replace(mark, lines);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a writable folder");
    fs::write(file, text).expect("a writable file");
    file.clone()
}

fn python(file: PathBuf) -> Command {
    let mut command = Command::new(installed("venv/bin/python"));
    command.arg(file);
    command
}

/// In the module of the Go clients, which has what the snippets import.
fn go(file: PathBuf) -> Command {
    let mut command = Command::new("go");
    command
        .arg("run")
        .arg(file)
        .current_dir(root().join("tests/clients/go"));
    command
}

/// A package beside that of the Rust clients, with its dependencies as they are built.
fn rust(folder: &std::path::Path, file: &PathBuf) -> Command {
    for name in ["Cargo.toml", "Cargo.lock"] {
        let text = fs::read_to_string(root().join("tests/clients/rust").join(name));
        let text = text
            .expect("a readable package")
            .replace("client-rust", "snippet-rust");
        fs::write(folder.join(name), text).expect("a writable file");
    }
    fs::create_dir_all(folder.join("src")).expect("a writable folder");
    fs::copy(file, folder.join("src/main.rs")).expect("a writable file");
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--locked"])
        .env("CARGO_TARGET_DIR", root().join("target/tests/rust"))
        .current_dir(folder);
    command
}

/// The shell, with Kafka's console producer under the name that its archive gives it.
fn shell(lines: &str) -> Command {
    let libraries = installed("kafka-libs").join("*");
    let script = format!(
        "set -e\nkafka-console-producer.sh() {{ java -Xmx256m -cp '{}' org.apache.kafka.tools.ConsoleProducer \"$@\"; }}\n\
         export -f kafka-console-producer.sh\n{lines}\n",
        libraries.display()
    );
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", &script]);
    command
}
