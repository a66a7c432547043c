//! The client programs at work: what was asked of them and what they were told.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tools::{installed, source};

/// A client library of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client {
    Java,
    Librdkafka,
    FranzGo,
    Sarama,
    KafkaPython,
    /// Requests made by hand.
    Raw,
}

impl Client {
    pub(crate) const ALL: [Self; 5] = [
        Self::Java,
        Self::Librdkafka,
        Self::FranzGo,
        Self::Sarama,
        Self::KafkaPython,
    ];

    /// For topics and the command line.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Librdkafka => "librdkafka",
            Self::FranzGo => "franz-go",
            Self::Sarama => "sarama",
            Self::KafkaPython => "kafka-python",
            Self::Raw => "raw",
        }
    }

    /// For the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Java => "Java 4.4.0",
            Self::Librdkafka => "librdkafka 2.16 (confluent-kafka 2.16.1)",
            Self::FranzGo => "franz-go 1.22.3",
            Self::Sarama => "sarama 1.61.1",
            Self::KafkaPython => "kafka-python 3.0.12",
            Self::Raw => "raw requests",
        }
    }

    /// Whether its program can run one transaction after another.
    pub(crate) fn is_transactional(self) -> bool {
        matches!(self, Self::Java | Self::Librdkafka | Self::FranzGo)
    }

    /// Records a second, where it is not to have those of all others: it takes
    /// more of a machine's time for them than the brokers do.
    pub(crate) fn rate(self) -> Option<&'static str> {
        (self == Self::KafkaPython).then_some("40")
    }

    fn command(self) -> Command {
        match self {
            Self::Java => {
                let classes = installed("java", "clients");
                let libraries = installed("kafka-libs", "kafka");
                let mut command = Command::new("java");
                command
                    .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
                    .args(["-XX:+UseSerialGC", "-Xshare:auto", "-cp"])
                    .arg(format!("{}:{}/*", classes.display(), libraries.display()))
                    .arg("Client");
                command
            }
            Self::Librdkafka => python("client.py"),
            Self::KafkaPython => python("kafka_python.py"),
            Self::FranzGo => Command::new(installed("client-go", "go")),
            Self::Sarama => Command::new(installed("client-sarama", "go")),
            Self::Raw => unreachable!("it has no program"),
        }
    }
}

fn python(program: &str) -> Command {
    let mut command = Command::new(installed("venv/bin/python", "python"));
    command.arg(source("clients/python").join(program));
    command
}

/// What a client printed, and when it was heard.
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) value: Value,
}

/// A producer at work; killed when dropped.
pub(crate) struct Producer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<Line>>>,
    readers: Vec<JoinHandle<()>>,
    errors: Arc<Mutex<String>>,
}

impl Producer {
    pub(crate) fn start(
        client: Client,
        operation: &str,
        bootstrap: &str,
        arguments: &[String],
    ) -> Self {
        let mut command = client.command();
        command
            .arg(operation)
            .args(["--bootstrap", bootstrap, "--until-input-ends"])
            .args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{client:?} does not start: {error}"));
        let (lines, errors) = (Arc::<Mutex<_>>::default(), Arc::<Mutex<_>>::default());
        let output = child.stdout.take().expect("stdout is piped");
        let mut complaints = child.stderr.take().expect("stderr is piped");
        let (heard, said) = (lines.clone(), errors.clone());
        let readers = vec![
            std::thread::spawn(move || collect(BufReader::new(output), &heard)),
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                // A killed client's pipe ends like any other's.
                let _ = complaints.read_to_end(&mut bytes);
                *said.lock().expect("no holder panics") =
                    String::from_utf8_lossy(&bytes).into_owned();
            }),
        ];
        Self {
            input: child.stdin.take(),
            child,
            lines,
            readers,
            errors,
        }
    }

    /// How many lines it has printed.
    pub(crate) fn printed(&self) -> usize {
        self.lines().len()
    }

    /// Whether its process is still there.
    pub(crate) fn runs(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("a child can be waited for").is_none()
    }

    /// Writes a line to its input; one that has ended does not read it.
    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Ends its input, which is the end of its work.
    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// What it printed until its end, which must have come; its exit code, if
    /// it had one, and its stderr.
    pub(crate) fn end(mut self) -> (Vec<Line>, Option<i32>, String) {
        let status = self.child.wait().expect("a child can be waited for");
        for reader in self.readers.drain(..) {
            reader.join().expect("a pipe is read to its end");
        }
        let lines = std::mem::take(&mut *self.lines());
        let errors = std::mem::take(&mut *self.errors.lock().expect("no holder panics"));
        (lines, status.code(), errors)
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().expect("no holder panics")
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(output: impl BufRead, lines: &Mutex<Vec<Line>>) {
    for line in output.split(b'\n') {
        let Ok(line) = line else { return };
        let at = Instant::now();
        // The last line of a killed client may be half a line.
        if let Ok(value) = serde_json::from_slice(&line) {
            let mut lines = lines.lock().expect("no holder panics");
            lines.push(Line { at, value });
        }
    }
}

/// The longest that a producer may take to its end once its input has ended.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(330);
