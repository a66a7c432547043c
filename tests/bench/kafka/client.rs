//! The Java client: one warm JVM, which `Load.java` describes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::cells::{COMMIT_MS, Cell, Kind, PARTITIONS, RECORD, Sizes};
use crate::support::kafka;
use crate::tools::{source, unique};

/// Killed when dropped.
pub(crate) struct Client {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    complaints: PathBuf,
}

/// What the client says of one load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Records that it sent, and those that were acknowledged.
    pub(crate) sent: u32,
    pub(crate) acknowledged: u32,
    /// Records per second.
    pub(crate) rate: f64,
    /// Latency, without a figure where the load floods: it is then the length
    /// of the client's own queue.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Requests that carried them, with the few others of a producer.
    pub(crate) requests: f64,
    /// Records sent again, and records given up.
    pub(crate) resent: f64,
    pub(crate) errors: f64,
}

/// A cell that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(300);

impl Client {
    pub(crate) fn start() -> Self {
        let logs = source("../target/tests/logs");
        fs::create_dir_all(&logs).unwrap();
        let complaints = logs.join(unique("kafka-bench"));
        let logging = source("kafka/tools-log4j2.properties");
        let mut child = Command::new("java")
            .arg("-Xmx512m")
            .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
            .arg("-cp")
            .arg(kafka::jars().join("*"))
            .arg(source("bench/kafka/Load.java"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&complaints).unwrap())
            .spawn()
            .expect("java runs");
        let commands = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            commands,
            lines,
            complaints,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Warnings and errors so far, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.complaints).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn create_topic(&mut self, bootstrap: &str, topic: &str, replicas: usize) {
        let [partitions, replicas] = [PARTITIONS.to_string(), replicas.to_string()];
        self.command(&["create", bootstrap, topic, &partitions, &replicas]);
    }

    pub(crate) fn delete_topic(&mut self, bootstrap: &str, topic: &str) {
        self.command(&["delete", bootstrap, topic]);
    }

    /// The records in the log, with a marker a partition for each commit; waits
    /// for as many as were acknowledged, since with acks=1 they may still be on
    /// their way to the followers.
    pub(crate) fn end_offsets(&mut self, bootstrap: &str, topic: &str, said: &Said) -> i64 {
        let [partitions, least] = [PARTITIONS, said.acknowledged].map(|n| n.to_string());
        let lines = self.command(&["end", bootstrap, topic, &partitions, &least]);
        number(&lines.join(" "), "end=")
    }

    pub(crate) fn flood(&mut self, cell: Cell, sizes: Sizes, bootstrap: &str, topic: &str) -> Said {
        let sent = sizes.flood(cell.nodes);
        let [records, warmup, record, commit] =
            [sent, sizes.warmup, RECORD, COMMIT_MS].map(|n| n.to_string());
        #[rustfmt::skip]
        let mut words = vec![
            "perf", "--bootstrap-server", bootstrap, "--topic", topic,
            "--num-records", &records, "--warmup-records", &warmup, "--record-size", &record,
            "--throughput", "-1", "--reporting-interval", "3600000", "--print-metrics",
        ];
        if cell.kind == Kind::Transactional {
            words.extend(["--transactional-id", topic]);
            words.extend(["--transaction-duration-ms", &commit]);
        }
        words.push("--command-property");
        words.extend(cell.kind.properties());
        let lines = self.command(&words);
        let line = |part: &str| {
            let found = lines.iter().find(|line| line.contains(part));
            found.unwrap_or_else(|| panic!("no {part:?} in {lines:?}"))
        };
        let all = line(" records sent, ");
        let steady = line(" steady state records sent, ");
        let (_, rate) = steady.split_once("sent, ").unwrap();
        Said {
            sent,
            acknowledged: first_number(all),
            rate: first_number(rate),
            p50_us: f64::NAN,
            p99_us: f64::NAN,
            requests: producer_metric(&lines, "request-total"),
            resent: producer_metric(&lines, "record-retry-total"),
            errors: producer_metric(&lines, "record-error-total"),
        }
    }

    pub(crate) fn pace(&mut self, kind: Kind, sizes: Sizes, bootstrap: &str, topic: &str) -> Said {
        let (servers, id) = (
            format!("bootstrap.servers={bootstrap}"),
            format!("transactional.id={topic}"),
        );
        let commit_ms = match kind {
            Kind::Transactional => COMMIT_MS,
            Kind::AcksOne | Kind::AcksAll | Kind::Idempotent => 0,
        };
        let [rate, seconds, record, commit] =
            [sizes.rate, sizes.paced_s, RECORD, commit_ms].map(|n| n.to_string());
        let mut words = vec!["paced", topic, &rate, &seconds, &record, &commit];
        words.extend([servers.as_str(), "linger.ms=0"]);
        words.extend(kind.properties());
        if kind == Kind::Transactional {
            words.push(&id);
        }
        let lines = self.command(&words);
        let line = lines.iter().find(|line| line.starts_with("sent="));
        let line = line.expect("the outcome of a paced load");
        let sent = number(line, "sent=");
        Said {
            sent,
            acknowledged: sent - number::<u32>(line, "failed="),
            rate: f64::from(sizes.rate),
            p50_us: number(line, "p50="),
            p99_us: number(line, "p99="),
            requests: producer_metric(&lines, "request-total"),
            resent: producer_metric(&lines, "record-retry-total"),
            errors: producer_metric(&lines, "record-error-total"),
        }
    }

    /// What it printed in answer.
    fn command(&mut self, words: &[&str]) -> Vec<String> {
        writeln!(self.commands, "{}", words.join("\t")).expect("the Java client runs");
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| {
                panic!("{words:?}: {error}, {lines:?}, {:?}", self.complaints())
            });
            match line.strip_prefix("= ") {
                Some("ok") => return lines,
                Some(why) => panic!("{words:?}: {why}: {:?}", self.complaints()),
                None => lines.push(line),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after this word.
fn number<T: std::str::FromStr>(line: &str, word: &str) -> T {
    let found = line.split_once(word).map(|(_, rest)| rest);
    first_number(found.unwrap_or_else(|| panic!("no {word:?} in {line:?}")))
}

/// The number that a text begins with.
fn first_number<T: std::str::FromStr>(text: &str) -> T {
    let word = text.split_whitespace().next().unwrap_or_default();
    let number = word.parse().ok();
    number.unwrap_or_else(|| panic!("no number before {text:?}"))
}

/// Of lines such as `producer-metrics:record-retry-total:{client-id=c} : 0.000`.
fn producer_metric(lines: &[String], name: &str) -> f64 {
    let head = format!("producer-metrics:{name}:");
    let line = lines.iter().find(|line| line.starts_with(&head));
    let line = line.unwrap_or_else(|| panic!("no {name} in {lines:?}"));
    let (_, value) = line.rsplit_once(" : ").expect("NAME : VALUE");
    value.trim().parse().expect("a number")
}
