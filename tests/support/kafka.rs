//! A real one-node Kafka 4.4.0, started from Maven-resolved jars.

use std::fmt::Write;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::await_until;

/// The version whose jars are used.
pub const VERSION: &str = "4.4.0";

/// A running broker; killed and its data removed on drop.
pub struct Broker {
    /// `127.0.0.1:port` of its plaintext listener.
    pub bootstrap: String,
    child: Child,
    dir: tempfile::TempDir,
}

/// Starts a broker that is its own controller, with these lines added to its
/// properties, and waits until it serves.
pub fn start(options: &[(&str, &str)]) -> Broker {
    let libs = jars();
    let dir = tempfile::tempdir().unwrap();
    let [client, controller] = free_ports();
    let properties = dir.path().join("server.properties");
    let log = dir.path().join("server.log");
    fs::write(&properties, text(dir.path(), client, controller, options)).unwrap();
    fs::write(dir.path().join("log4j2.properties"), LOG4J).unwrap();

    let format = java(&libs, dir.path(), "128m")
        .args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"])
        .arg(&properties)
        .output()
        .expect("java runs");
    assert!(format.status.success(), "kafka-storage format: {format:?}");
    let child = java(&libs, dir.path(), "512m")
        .arg("kafka.Kafka")
        .arg(&properties)
        .stdin(Stdio::null())
        .stdout(fs::File::create(dir.path().join("stdout.log")).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .expect("java runs");
    let mut broker = Broker {
        bootstrap: format!("127.0.0.1:{client}"),
        child,
        dir,
    };
    await_until("Kafka to start", Duration::from_secs(120), || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if let Some(status) = broker.child.try_wait().unwrap() {
            panic!("Kafka ended with {status}: {text}");
        }
        text.contains("Kafka Server started") && TcpStream::connect(&broker.bootstrap).is_ok()
    });
    broker
}

impl Broker {
    /// The broker's own log, for a failure's message.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of Kafka's jars.
pub fn jars() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka/kafka");
    let output = Command::new(script)
        .args(["jars", VERSION])
        .output()
        .expect("tests/kafka/kafka runs");
    assert!(
        output.status.success(),
        "tests/kafka/kafka jars: {output:?}"
    );
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Ports that were free a moment ago.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The first of two ports in a row that were free a moment ago.
pub fn free_pair() -> u16 {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut tried = (0..100).map(|_| free_ports::<1>()[0]);
    let found = tried.find(|first| {
        first
            .checked_add(1)
            .is_some_and(|next| free(*first) && free(next))
    });
    found.expect("two free ports in a row")
}

fn java(libs: &Path, dir: &Path, heap: &str) -> Command {
    let mut command = Command::new("java");
    command
        .arg(format!("-Xmx{heap}"))
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(format!(
            "-Dlog4j2.configurationFile={}",
            dir.join("log4j2.properties").display()
        ))
        .arg(format!(
            "-Dkafka.log.file={}",
            dir.join("server.log").display()
        ))
        .arg("-cp")
        .arg(libs.join("*"));
    command
}

fn text(dir: &Path, client: u16, controller: u16, options: &[(&str, &str)]) -> String {
    let mut text = format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
log.dirs={}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
controller.quorum.election.timeout.ms=500
",
        dir.join("data").display()
    );
    for (key, value) in options {
        writeln!(text, "{key}={value}").unwrap();
    }
    text
}

const CLUSTER_ID: &str = "aGFwYXgtdGVzdC1jbHVzdA";
const LOG4J: &str = "status=error
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
appender.file.type=File
appender.file.name=file
appender.file.fileName=${sys:kafka.log.file}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n%xEx
";
