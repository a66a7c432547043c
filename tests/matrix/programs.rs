//! The client programs: what each is, what it offers, how it is started.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::support::await_until;

/// Longer than any client works that is not stuck.
const PATIENCE: Duration = Duration::from_secs(90);

/// A client library of one version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client {
    Java4,
    Java3,
    ConfluentPython,
    Kcat,
    ConfluentGo,
    FranzGo,
    Sarama,
    KafkaGo,
    KafkaPython,
    Aiokafka,
    KafkaJs,
    Rdkafka,
    Rskafka,
    /// KafkaJS with a timestamp on each message, which its retries keep.
    KafkaJsStamped,
    /// kcat as it was with Kafka 0.9: no ApiVersions, Produce 1, messages of format 0.
    Kcat09,
}

/// What is asked of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Operation {
    /// A producer with idempotence turned off.
    Plain,
    Idempotent,
    /// The same, when an acknowledgement is lost and the connection with it.
    LostAck,
    /// Three transactions: committed, aborted, committed.
    Transactional,
    /// A group that reads, commits, and goes on where it was.
    Group,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] = [
        Self::Plain,
        Self::Idempotent,
        Self::LostAck,
        Self::Transactional,
        Self::Group,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Idempotent => "idempotent",
            Self::LostAck => "lost-acknowledgement",
            Self::Transactional => "transactional",
            Self::Group => "group",
        }
    }
}

impl Client {
    /// The rows of the table.
    pub(crate) const ALL: [Self; 13] = [
        Self::Java4,
        Self::Java3,
        Self::ConfluentPython,
        Self::Kcat,
        Self::ConfluentGo,
        Self::FranzGo,
        Self::Sarama,
        Self::KafkaGo,
        Self::KafkaPython,
        Self::Aiokafka,
        Self::KafkaJs,
        Self::Rdkafka,
        Self::Rskafka,
    ];

    /// For topics, groups and the command line.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Java4 => "java-4",
            Self::Java3 => "java-3",
            Self::ConfluentPython => "confluent-kafka",
            Self::Kcat => "kcat",
            Self::ConfluentGo => "confluent-kafka-go",
            Self::FranzGo => "franz-go",
            Self::Sarama => "sarama",
            Self::KafkaGo => "kafka-go",
            Self::KafkaPython => "kafka-python",
            Self::Aiokafka => "aiokafka",
            Self::KafkaJs => "kafkajs",
            Self::Rdkafka => "rdkafka",
            Self::Rskafka => "rskafka",
            Self::KafkaJsStamped => "kafkajs-stamped",
            Self::Kcat09 => "kcat-0.9",
        }
    }

    /// For the table: the library and its version.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Java4 => "Java kafka-clients 4.4.0",
            Self::Java3 => "Java kafka-clients 3.9.1",
            Self::ConfluentPython => "confluent-kafka (Python) 2.16.1, librdkafka 2.16",
            Self::Kcat => "kcat 1.7.1, librdkafka 2.0",
            Self::ConfluentGo => "confluent-kafka-go 2.11.1, librdkafka 2.11",
            Self::FranzGo => "franz-go 1.22.3",
            Self::Sarama => "sarama 1.61.1",
            Self::KafkaGo => "kafka-go 0.4.51",
            Self::KafkaPython => "kafka-python 3.0.12",
            Self::Aiokafka => "aiokafka 0.14.0",
            Self::KafkaJs => "KafkaJS 2.2.4",
            Self::Rdkafka => "rdkafka (Rust) 0.39.0, librdkafka 2.12",
            Self::Rskafka => "rskafka 0.6.0",
            Self::KafkaJsStamped => "KafkaJS with timestamps",
            Self::Kcat09 => "kcat speaking as of Kafka 0.9",
        }
    }

    /// A line of a file under the package that pins this version.
    pub(crate) fn pin(self) -> (&'static str, &'static str) {
        let packages = "tests/lib/packages.sh";
        let go = "tests/clients/go/go.mod";
        let rust = "tests/clients/rust/Cargo.lock";
        match self {
            Self::Java4 => (packages, "KAFKA_VERSION=4.4.0"),
            Self::Java3 => (packages, "KAFKA_JAVA_3=3.9.1"),
            Self::ConfluentPython => (packages, "confluent-kafka==2.16.1"),
            Self::Kcat | Self::Kcat09 => (packages, "kcat"),
            Self::ConfluentGo => (go, "confluent-kafka-go/v2 v2.11.1"),
            Self::FranzGo => (go, "franz-go v1.22.3"),
            Self::Sarama => (go, "sarama v1.61.1"),
            Self::KafkaGo => (go, "segmentio/kafka-go v0.4.51"),
            Self::KafkaPython => (packages, "kafka-python==3.0.12"),
            Self::Aiokafka => (packages, "aiokafka==0.14.0"),
            Self::KafkaJs | Self::KafkaJsStamped => {
                ("tests/clients/node/package.json", r#""kafkajs": "2.2.4""#)
            }
            Self::Rdkafka => (rust, "name = \"rdkafka\"\nversion = \"0.39.0\""),
            Self::Rskafka => (rust, "name = \"rskafka\"\nversion = \"0.6.0\""),
        }
    }

    pub(crate) fn offers(self, operation: Operation) -> bool {
        let has_idempotence = !matches!(self, Self::KafkaGo | Self::Rskafka | Self::Kcat09);
        match operation {
            Operation::Plain => true,
            Operation::Idempotent => has_idempotence,
            // kcat ends when its last connection is cut.
            Operation::LostAck => has_idempotence && self != Self::Kcat,
            Operation::Transactional => has_idempotence && self != Self::Kcat,
            Operation::Group => self != Self::Rskafka,
        }
    }

    /// Whether its acknowledgements say where the records are.
    pub(crate) fn tells_offsets(self) -> bool {
        !matches!(self, Self::Kcat | Self::Kcat09)
    }

    /// Whether a batch that it sends again has the bytes of the first time.
    /// KafkaJS stamps the records anew: only the broker knows such a retry.
    pub(crate) fn repeats_bytes(self) -> bool {
        self != Self::KafkaJs
    }

    /// Whether it takes minutes to build, and is left to the whole matrix.
    pub(crate) fn is_slow_to_build(self) -> bool {
        matches!(self, Self::Rdkafka | Self::Rskafka)
    }

    /// Runs the program to its end; what it has to say is an error, or lines.
    pub(crate) fn run(self, bootstrap: &str, arguments: &[&str]) -> Result<Vec<Value>, String> {
        let (operation, options) = arguments.split_first().expect("an operation");
        let mut child = self
            .command()
            .arg(operation)
            .args(["--bootstrap", bootstrap])
            .args(options)
            .args(self.variant())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{self:?} does not start: {error}"));
        let output = collect(child.stdout.take());
        let errors = collect(child.stderr.take());
        let mut status = None;
        let patience = std::time::Instant::now() + PATIENCE;
        await_until(self.id(), 2 * PATIENCE, || {
            if std::time::Instant::now() > patience {
                let _ = child.kill(); // It may have ended a moment ago.
            }
            status = child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        let (output, errors) = (joined(output), joined(errors));
        match status.as_ref().map(ExitStatus::success) {
            Some(true) => output.lines().map(parsed).collect(),
            _ => Err(reason(&output, &errors)),
        }
    }

    fn variant(self) -> &'static [&'static str] {
        match self {
            Self::Kcat09 => &["--speak-as", "0.9.0.1"],
            Self::KafkaJsStamped => &["--timestamps"],
            _ => &[],
        }
    }

    fn command(self) -> Command {
        match self {
            Self::Java4 => java("kafka-libs"),
            Self::Java3 => java("kafka-libs-3"),
            Self::ConfluentPython => python("client.py"),
            Self::KafkaPython => python("kafka_python.py"),
            Self::Aiokafka => python("aiokafka_client.py"),
            Self::Kcat | Self::Kcat09 => Command::new(source("kcat/client")),
            Self::FranzGo => Command::new(installed("client-go")),
            Self::Sarama => Command::new(installed("client-sarama")),
            Self::KafkaGo => Command::new(installed("client-kafka-go")),
            Self::ConfluentGo => Command::new(installed("client-confluent-go")),
            Self::KafkaJs | Self::KafkaJsStamped => {
                let mut command = Command::new("node");
                command
                    .env("NODE_PATH", installed("node/node_modules"))
                    .arg(source("node/client.js"));
                command
            }
            Self::Rdkafka | Self::Rskafka => {
                let mut command = Command::new(installed("rust/debug/client-rust"));
                command.arg(self.id());
                command
            }
        }
    }
}

fn java(libraries: &str) -> Command {
    let path = [installed("java"), installed(libraries).join("*")];
    let mut command = Command::new("java");
    command
        .args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
        ])
        .arg(std::env::join_paths(path).expect("paths without a colon"))
        .arg("Client");
    command
}

fn python(program: &str) -> Command {
    let mut command = Command::new(installed("venv/bin/python"));
    command.arg(source("python").join(program));
    command
}

/// A file that `tests/run install` puts under `target/tests`.
pub(crate) fn installed(path: &str) -> PathBuf {
    let path = root().join("target/tests").join(path);
    let (here, at) = (path.exists(), path.display());
    assert!(
        here,
        "{at} is missing: run `tests/run install`, for Rust `tests/run clients`"
    );
    path
}

fn source(path: &str) -> PathBuf {
    root().join("tests/clients").join(path)
}

/// The package's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    let mut pipe = pipe.expect("it is piped");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn joined(thread: JoinHandle<String>) -> String {
    thread.join().expect("a pipe is read to its end")
}

fn parsed(line: &str) -> Result<Value, String> {
    serde_json::from_str(line).map_err(|error| format!("{error} in {line:?}"))
}

/// The line that says most about why a client ended: of its errors the last
/// that names one, else the first record that it could not deliver.
fn reason(output: &str, errors: &str) -> String {
    let tells = |line: &&str| {
        let line = line.to_lowercase();
        ["error", "exception", "gave up", "client:", "not "]
            .iter()
            .any(|word| line.contains(word))
    };
    let undelivered = output
        .lines()
        .filter_map(|line| parsed(line).ok()?["error"].as_str().map(str::to_owned))
        .next();
    let told = errors
        .lines()
        .rfind(tells)
        .or_else(|| errors.lines().last());
    let text = undelivered.or_else(|| told.map(str::to_owned));
    let text = text.unwrap_or_else(|| "ended without a word".to_owned());
    text.trim().chars().take(200).collect()
}
