//! The client programs of `tests/clients`, run with one command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::tools::{installed, source, wait_for};

/// Longer than any client of the tests works.
const PATIENCE: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    Java,
    Confluent,
    /// librdkafka too, told each step by [`Running::tell`].
    Steps,
    FranzGo,
    Sarama,
    Kcat,
}

impl Client {
    /// Those that can do everything.
    pub(crate) const FULL: [Self; 3] = [Self::Java, Self::Confluent, Self::FranzGo];

    /// Runs an operation to its end; one that fails fails the test.
    #[track_caller]
    pub(crate) fn run(self, operation: &str, bootstrap: &str, arguments: &[&str]) -> Outcome {
        self.start(operation, bootstrap, arguments).finish()
    }

    /// Starts an operation.
    pub(crate) fn start(self, operation: &str, bootstrap: &str, arguments: &[&str]) -> Running {
        let mut command = self.command();
        command
            .arg(operation)
            .args(["--bootstrap", bootstrap])
            .args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{self:?} does not start: {error}"));
        let lines = Arc::new(Lines::default());
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let collected = lines.clone();
        Running {
            client: self,
            what: format!("{operation} {arguments:?}"),
            input: child.stdin.take(),
            child,
            reader: Some(std::thread::spawn(move || {
                collected.collect(BufReader::new(stdout))
            })),
            errors: Some(std::thread::spawn(move || {
                let mut text = Vec::new();
                stderr.read_to_end(&mut text).expect("a pipe can be read");
                String::from_utf8_lossy(&text).into_owned()
            })),
            lines,
        }
    }

    pub(crate) fn command(self) -> Command {
        match self {
            Self::Java => {
                let classes = installed("java", "clients");
                let libraries = installed("kafka-libs", "kafka");
                let mut command = Command::new("java");
                command
                    .args([
                        "-Xmx256m",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        // Its errors would stand between the lines of the output.
                        "-Dlog4j2.level=OFF",
                        "-cp",
                    ])
                    .arg(format!("{}:{}/*", classes.display(), libraries.display()))
                    .arg("Client");
                command
            }
            Self::Confluent => python("clients/python/client.py"),
            Self::Steps => python("clients/python/steps.py"),
            Self::FranzGo => Command::new(installed("client-go", "go")),
            Self::Sarama => Command::new(installed("client-sarama", "go")),
            Self::Kcat => Command::new(source("clients/kcat/client")),
        }
    }
}

fn python(program: &str) -> Command {
    let mut command = Command::new(installed("venv/bin/python", "python"));
    command.arg(source(program));
    command
}

/// What a client has printed so far.
#[derive(Default)]
struct Lines {
    all: Mutex<Vec<Value>>,
    grown: Condvar,
}

impl Lines {
    fn collect(&self, output: impl BufRead) {
        for line in output.lines() {
            let line = line.expect("UTF-8");
            let value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
            self.all.lock().expect("no holder panics").push(value);
            self.grown.notify_all();
        }
    }
}

/// A client at work; killed when dropped.
pub(crate) struct Running {
    client: Client,
    what: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Lines>,
    reader: Option<JoinHandle<()>>,
    errors: Option<JoinHandle<String>>,
}

impl Running {
    /// Waits until it has printed that many lines.
    #[track_caller]
    pub(crate) fn wait_for_lines(&self, count: usize) {
        let all = self.lines.all.lock().expect("no holder panics");
        let (all, _) = self
            .lines
            .grown
            .wait_timeout_while(all, PATIENCE, |all| all.len() < count)
            .expect("no holder panics");
        assert!(
            all.len() >= count,
            "{:?} {} printed {} lines, not {count}",
            self.client,
            self.what,
            all.len()
        );
    }

    /// Writes a line to its input.
    pub(crate) fn tell(&mut self, step: &str) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{step}").expect("it reads its input");
    }

    /// How many lines it has printed.
    pub(crate) fn printed(&self) -> usize {
        self.lines.all.lock().expect("no holder panics").len()
    }

    /// Ends its input, which ends `produce --until-input-ends`, and waits for
    /// its end; anything but exit code 0 fails the test.
    #[track_caller]
    pub(crate) fn finish(self) -> Outcome {
        let (client, what) = (self.client, self.what.clone());
        let (status, mut lines, errors) = self.end();
        assert!(
            status.success(),
            "{client:?} {what} ended with {status}: {errors}\n{lines:?}"
        );
        let summary = lines.pop().expect("a summary is the last line");
        Outcome { lines, summary }
    }

    /// Ends its input and waits for its end, whichever that is.
    #[track_caller]
    pub(crate) fn outcome(self) -> Outcome {
        let (client, what) = (self.client, self.what.clone());
        let (_, mut lines, errors) = self.end();
        let summary = lines.pop();
        Outcome {
            summary: summary.unwrap_or_else(|| panic!("{client:?} {what}: {errors}")),
            lines,
        }
    }

    /// Waits for its end, which must not be a good one: what it says on stderr.
    #[track_caller]
    pub(crate) fn fails(self) -> String {
        let (client, what) = (self.client, self.what.clone());
        let (status, lines, errors) = self.end();
        assert!(!status.success(), "{client:?} {what} succeeds: {lines:?}");
        errors
    }

    /// Waits for its end, which must not be a good one: the lines that it printed.
    #[track_caller]
    pub(crate) fn gives_up(self) -> Vec<Value> {
        let (client, what) = (self.client, self.what.clone());
        let (status, lines, errors) = self.end();
        assert!(
            !status.success(),
            "{client:?} {what} succeeds: {lines:?} {errors}"
        );
        lines
    }

    /// kill -9: what it had printed.
    pub(crate) fn kill(mut self) -> Vec<Value> {
        self.child.kill().expect("a child that runs can be killed");
        self.end().1
    }

    /// Its exit code, the lines it has printed, and its stderr.
    #[track_caller]
    fn end(mut self) -> (ExitStatus, Vec<Value>, String) {
        self.input = None;
        let child = &mut self.child;
        let status = wait_for(
            &format!("{:?} {}", self.client, self.what),
            PATIENCE,
            || child.try_wait().expect("a child can be waited for"),
        );
        let errors = self
            .errors
            .take()
            .map(|thread| thread.join().expect("stderr is read"))
            .unwrap_or_default();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("stdout is lines of JSON");
        }
        let lines = std::mem::take(&mut *self.lines.all.lock().expect("no holder panics"));
        (status, lines, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a client printed.
pub(crate) struct Outcome {
    pub(crate) lines: Vec<Value>,
    pub(crate) summary: Value,
}

impl Outcome {
    /// (record, partition, offset) of each line.
    pub(crate) fn records(&self) -> Vec<(u64, i64, i64)> {
        self.lines
            .iter()
            .map(|line| {
                let number = |name: &str| {
                    line[name]
                        .as_i64()
                        .unwrap_or_else(|| panic!("no {name} in {line}"))
                };
                (
                    number("n").unsigned_abs(),
                    number("partition"),
                    number("offset"),
                )
            })
            .collect()
    }

    /// The records that carry `"committed": true`.
    pub(crate) fn committed(&self) -> Vec<u64> {
        let committed = self.lines.iter().filter(|line| line["committed"] == true);
        committed
            .map(|line| line["n"].as_u64().expect("a record number"))
            .collect()
    }
}
