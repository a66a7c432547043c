//! What a restart finds in `state.dir`, and what happens where there is nothing
//! to be found, or nothing can be written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::broker::{self, Upstream};
use crate::support::batch::Batch;
use crate::support::raw::Produce;
use crate::support::{await_until, hapax, pause};
use crate::trust::{alice, authenticated};
use crate::world::{ID, NEW_ID, PORTS, Pair, SOON, World, batch, metadata, orders, produce};
use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::protocol::StrBytes;
use std::time::Duration;

/// A hapax that is started again on the ports it had, over one directory.
struct Pod {
    world: Option<World>,
    first_port: u16,
    root: tempfile::TempDir,
    flags: Vec<String>,
}

impl Pod {
    fn new(flags: &[&str]) -> Self {
        Self::writing_every("50ms", flags)
    }

    fn writing_every(interval: &str, flags: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let state = format!("--state-dir={}", root.path().join("state").display());
        let mut all = vec![state, format!("--state-interval={interval}")];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut pod = Self {
            world: None,
            first_port: hapax::free_range(PORTS + 2),
            root,
            flags: all,
        };
        let upstream = broker::start();
        pod.start(upstream);
        pod
    }

    fn start(&mut self, upstream: Upstream) {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        let hapax = hapax::spawn(&upstream.address, "absorb", self.first_port, PORTS, &flags);
        self.world = Some(World { upstream, hapax });
        let world = self.world();
        await_until("hapax to listen", SOON, || {
            world.hapax.page("/startupz").starts_with("HTTP/1.1 200")
        });
    }

    fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    fn file(&self) -> PathBuf {
        self.state().join("hapax.snapshot")
    }

    /// One snapshot is begun and ended from now on.
    fn snapshot(&self) {
        let writes = || self.world().gauge("hapax_snapshot_writes_total");
        let before = writes();
        // The first of them may have begun before.
        await_until("two snapshots", SOON, || writes() >= before + 2.0);
    }

    /// kill -9, and another process.
    fn kill_and_start(&mut self) {
        let World { upstream, hapax } = self.world.take().unwrap();
        drop(hapax);
        self.start(upstream);
    }

    /// SIGTERM, the end, and another process.
    fn drain_and_start(&mut self) {
        let World {
            upstream,
            mut hapax,
        } = self.world.take().unwrap();
        hapax.signal("TERM");
        assert_eq!(hapax.ended().code(), Some(0));
        drop(hapax);
        self.start(upstream);
    }

    fn output(&self) -> String {
        self.world().hapax.output()
    }

    /// The facts of before the restart were brought back, or found useless.
    fn loaded(&self, facts: f64) {
        await_until("the facts", SOON, || {
            self.world().gauge("hapax_snapshot_loaded_facts") == facts
        });
    }
}

/// The broker gets the request as it is.
fn left_to_the_broker(pair: &mut Pair, request: &Produce) {
    let (owed, asked) = pair.forwarded(request);
    pair.broker.ack(&asked, 700);
    pair.receive(&owed);
}

/// An acknowledgement that is lost on the way to its client: the client goes
/// before it reads it.
fn write_and_lose(world: &World, request: &Produce, offset: i64) {
    let mut pair = world.informed();
    pair.send(request);
    let asked = pair.broker.next();
    let Pair { client, mut broker } = pair;
    client.reset();
    broker.ack(&asked, offset);
    broker.assert_ended();
}

#[test]
fn a_retry_after_a_kill_is_absorbed_and_without_state_it_is_forwarded() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    pod.kill_and_start();
    let mut retry = pod.world().informed();
    pod.loaded(1.0);
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
    assert_eq!(pod.world().verdicts("duplicate_absorbed"), 1.0);
    assert!(
        pod.output()
            .contains("acknowledgements of before the restart")
    );

    drop(retry);
    fs::remove_dir_all(pod.state()).unwrap();
    pod.kill_and_start();
    let mut retry = pod.world().informed();
    left_to_the_broker(&mut retry, &produce(0));
    assert!(pod.output().contains("no snapshot yet"));
}

/// The interval is longer than the test: only the end writes.
#[test]
fn a_drain_writes_what_no_timer_did() {
    let mut pod = Pod::writing_every("1h", &[]);
    write_and_lose(pod.world(), &produce(0), 33);
    assert!(!pod.file().exists());
    pod.drain_and_start();
    let mut retry = pod.world().informed();
    pod.loaded(1.0);
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
}

#[test]
fn a_batch_beyond_an_old_snapshot_is_no_gap_and_is_absorbed_from_then_on() {
    let mut pod = Pod::new(&[]);
    let mut pair = pod.world().informed();
    pair.write(&produce(0), 0);
    pod.snapshot();
    let old = fs::read(pod.file()).unwrap();
    for sequence in 1..30 {
        pair.write(&produce(sequence), i64::from(sequence));
    }
    drop(pair);
    let World { upstream, hapax } = pod.world.take().unwrap();
    drop(hapax);
    fs::write(pod.file(), old).unwrap();
    pod.start(upstream);
    let mut pair = pod.world().informed();
    pod.loaded(1.0);
    pair.write(&produce(30), 30);
    assert_eq!(pod.world().verdicts("gap"), 0.0);
    assert_eq!(pair.answered_here(&produce(30))[0].offset, 30);
    assert_eq!(pair.answered_here(&produce(0))[0].offset, 0);
    left_to_the_broker(&mut pair, &produce(29));
}

#[test]
fn facts_wait_for_the_clusters_id() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    pod.kill_and_start();
    let mut early = pod.world().pair();
    left_to_the_broker(&mut early, &produce(0));
    assert_eq!(pod.world().gauge("hapax_snapshot_loaded_facts"), 0.0);
    // Nor is the file replaced by one that knows less.
    drop(early);
    pod.kill_and_start();
    let mut retry = pod.world().informed();
    pod.loaded(1.0);
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
}

#[test]
fn another_clusters_facts_are_dropped() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    pod.kill_and_start();
    let mut pair = pod.world().pair();
    let correlation = pair.client.send(12, &MetadataRequest::default()).unwrap();
    let asked = pair.broker.next();
    let mut answer = metadata(&[(1, "kafka-1.example", 9092)], Some(ID));
    answer.cluster_id = Some(StrBytes::from_static_str("another"));
    pair.broker.answer(&asked, &answer);
    pair.client
        .receive::<MetadataRequest>(12, correlation)
        .unwrap();
    await_until("the log line", SOON, || {
        pod.output().contains("the snapshot is of another cluster")
    });
    left_to_the_broker(&mut pair, &produce(0));
}

#[test]
fn a_topic_that_was_made_again_meanwhile_is_left_to_the_broker() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    pod.kill_and_start();
    let mut pair = pod.world().pair();
    pair.learn(NEW_ID);
    pod.loaded(1.0);
    left_to_the_broker(&mut pair, &produce(0));
}

/// Their names are in the file, which is how they are known again; no password is.
#[test]
fn users_are_told_apart_after_a_restart_and_no_password_is_kept() {
    let mut pod = Pod::new(&[]);
    alice(pod.world()).write(&produce(0), 7);
    pod.snapshot();
    let file = fs::read(pod.file()).unwrap();
    let holds = |text: &[u8]| file.windows(text.len()).any(|part| part == text);
    assert!(holds(b"alice") && !holds(b"secret"));
    pod.kill_and_start();
    let mut bob = authenticated(pod.world(), "PLAIN", &[b"\0bob\0secret"]);
    bob.learn(ID);
    pod.loaded(1.0);
    let mut anonymous = pod.world().informed();
    let mut again = alice(pod.world());
    assert_eq!(again.answered_here(&produce(0))[0].offset, 7);
    // Whoever writes the sequence anew takes it over: the others come last.
    left_to_the_broker(&mut bob, &produce(0));
    left_to_the_broker(&mut anonymous, &produce(0));
}

#[test]
fn facts_older_than_the_ttl_are_of_no_use() {
    let mut pod = Pod::new(&["--sequence-ttl=1s"]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    let World { upstream, hapax } = pod.world.take().unwrap();
    drop(hapax);
    // Time passes while nothing runs.
    pause(Duration::from_millis(1100));
    pod.start(upstream);
    let mut retry = pod.world().informed();
    left_to_the_broker(&mut retry, &produce(0));
    assert!(pod.output().contains("of no use"));
}

/// The broker of the scripted world has nodes 3 and 7, which share a home of
/// the four ports.
fn learn_nodes(pair: &mut Pair, nodes: &[i32]) {
    let correlation = pair.client.send(12, &MetadataRequest::default()).unwrap();
    let asked = pair.broker.next();
    let listed: Vec<_> = nodes.iter().map(|n| (*n, "kafka.example", 9092)).collect();
    pair.broker.answer(&asked, &metadata(&listed, Some(ID)));
    pair.client
        .receive::<MetadataRequest>(12, correlation)
        .unwrap();
}

fn ports(world: &World) -> Vec<(i64, i64)> {
    let page = world.hapax.json("/api/v1/brokers");
    let rows = page["brokers"].as_array().unwrap().iter();
    let mut ports: Vec<_> = rows
        .map(|row| (row["node"].as_i64().unwrap(), row["port"].as_i64().unwrap()))
        .collect();
    ports.sort_unstable();
    ports
}

#[test]
fn nodes_that_collide_keep_their_ports_over_a_restart() {
    let mut pod = Pod::new(&[]);
    learn_nodes(&mut pod.world().pair(), &[7, 3]);
    let before = ports(pod.world());
    pod.snapshot();
    pod.kill_and_start();
    learn_nodes(&mut pod.world().pair(), &[3, 7]);
    assert_eq!(ports(pod.world()), before);
    pod.snapshot();
    pod.drain_and_start();
    learn_nodes(&mut pod.world().pair(), &[3]);
    learn_nodes(&mut pod.world().pair(), &[3, 7]);
    assert_eq!(ports(pod.world()), before);

    // Without state who is heard of first has the port.
    fs::remove_file(pod.file()).unwrap();
    pod.kill_and_start();
    learn_nodes(&mut pod.world().pair(), &[3, 7]);
    assert_ne!(ports(pod.world()), before);
}

#[test]
fn totals_go_on_and_counters_begin_anew() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    pod.kill_and_start();
    let mut pair = pod.world().informed();
    pod.loaded(1.0);
    pair.write(&produce(1), 34);
    let totals = pod.world().hapax.json("/api/v1/totals");
    let forwarded = "hapax_verdicts_total{verdict=\"forwarded\"}";
    assert_eq!(totals["totals"][forwarded], 2);
    assert_eq!(totals["starts"], 2);
    assert_eq!(pod.world().verdicts("forwarded"), 1.0);
}

fn set_aside(state: &Path) -> usize {
    let names = fs::read_dir(state).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".bad-")).count()
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside_and_hapax_starts_empty() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    let sound = fs::read(pod.file()).unwrap();
    let mut changed = sound.clone();
    *changed.last_mut().unwrap() ^= 1;
    let mut future = sound.clone();
    future[8] = 2;
    let cut = sound[..sound.len() / 2].to_vec();
    let cases = [
        (changed, "its checksum is not that of its contents"),
        (future, "it has format 2, and this hapax reads format 1"),
        (cut, "bytes and was written with"),
        (
            b"PK\x03\x04 of somebody else".to_vec(),
            "no snapshot of hapax",
        ),
        (Vec::new(), "it ends after 0 bytes"),
    ];
    for (nth, (bytes, reason)) in cases.into_iter().enumerate() {
        let World { upstream, hapax } = pod.world.take().unwrap();
        drop(hapax);
        fs::write(pod.file(), &bytes).unwrap();
        pod.start(upstream);
        let output = pod.output();
        assert!(output.contains(reason), "{output}");
        assert!(output.contains("hapax.snapshot.bad-1"), "{output}");
        assert_eq!(set_aside(&pod.state()), (nth + 1).min(3));
        assert_eq!(pod.world().gauge("hapax_snapshots_set_aside_total"), 1.0);
        assert!(!pod.file().exists());
        let mut retry = pod.world().informed();
        left_to_the_broker(&mut retry, &produce(0));
    }
    pod.world.as_mut().unwrap().hapax.assert_well();
}

/// A run that ends before it listens.
fn refused(state: &Path) -> (Option<i32>, String) {
    let state = format!("--state-dir={}", state.display());
    let first = hapax::free_range(3);
    let mut hapax = hapax::spawn("127.0.0.1:9", "absorb", first, 1, &[&state]);
    let code = hapax.ended().code();
    (code, hapax.output())
}

#[test]
fn a_directory_that_is_of_no_use_ends_the_start_and_the_check_with_78() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let (code, output) = refused(&file.join("below"));
    assert_eq!(code, Some(78), "{output}");
    assert!(output.contains("make it, mount the volume, or correct --state-dir"));
    let check = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["check", "--upstream=127.0.0.1:9", "--state-dir"])
        .arg(file.join("below"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(78));
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(said.contains("mount the volume"), "{said}");
    let fine = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["check", "--upstream=127.0.0.1:9", "--state-dir"])
        .arg(root.path().join("to/be/made"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(fine.status.code(), Some(0));
    assert_eq!(
        fs::read_dir(root.path()).unwrap().count(),
        1,
        "nothing stays"
    );
}

#[test]
fn a_second_hapax_starts_empty_and_takes_over_when_the_first_is_killed() {
    let mut pod = Pod::new(&[]);
    write_and_lose(pod.world(), &produce(0), 33);
    pod.snapshot();
    let second = Pod {
        world: None,
        first_port: hapax::free_range(PORTS + 2),
        root: tempfile::tempdir().unwrap(),
        flags: pod.flags.clone(),
    };
    let mut second = second;
    second.start(broker::start());
    let output = second.output();
    assert!(output.contains("another hapax keeps its state"), "{output}");
    let mut pair = second.world().informed();
    pair.write(&produce(0), 5);
    assert_eq!(second.world().gauge("hapax_snapshot_writes_total"), 0.0);
    let writes = pod.world().gauge("hapax_snapshot_writes_total");
    assert!(writes > 0.0);
    drop(pod.world.take());
    await_until("the second to write", SOON, || {
        second.world().gauge("hapax_snapshot_writes_total") > 0.0
    });
    assert!(second.output().contains("is taken over"));
    // The listener is another one: only totals and ports are of use.
    assert_eq!(pair.answered_here(&produce(0))[0].offset, 5);
    assert_eq!(second.world().hapax.json("/api/v1/totals")["starts"], 2);
}

#[test]
fn a_directory_that_goes_is_told_once_and_clients_are_served_on() {
    let pod = Pod::new(&[]);
    let mut pair = pod.world().informed();
    pair.write(&produce(0), 0);
    pod.snapshot();
    fs::remove_dir_all(pod.state()).unwrap();
    let failures = || pod.world().gauge("hapax_snapshot_failures_total");
    await_until("failures", SOON, || failures() >= 3.0);
    for sequence in 1..20 {
        pair.write(&produce(sequence), i64::from(sequence));
    }
    assert_eq!(pair.answered_here(&produce(19))[0].offset, 19);
    let told = "the snapshot cannot be written";
    assert_eq!(pod.output().matches(told).count(), 1, "{}", pod.output());
    fs::create_dir(pod.state()).unwrap();
    pod.snapshot();
    assert!(pod.output().contains("snapshots can be written again"));
    assert!(pod.file().exists());
}

/// A limit on the size of files stands for a disk that is full.
#[test]
fn a_full_disk_leaves_the_newest_whole_snapshot_and_clients_are_served_on() {
    let mut pod = Pod::new(&["--log-level=error"]);
    let mut pair = pod.world().informed();
    pair.write(&produce(0), 0);
    pod.snapshot();
    let pid = pod.world().hapax.pid();
    let limit = |bytes: &str| {
        let limited = Command::new("prlimit")
            .args(["--pid", &pid.to_string(), &format!("--fsize={bytes}")])
            .status();
        assert!(limited.expect("prlimit of util-linux").success());
    };
    limit("4096:unlimited");
    // A window for each of these producers: more than fits.
    for producer in 0..600 {
        let batch = Batch::of(10_000 + producer, 0, 0, ["value"]).bytes();
        pair.write(&Produce::to(&orders(), 0, batch), producer + 1);
    }
    let failures = || pod.world().gauge("hapax_snapshot_failures_total");
    await_until("a failure", SOON, || failures() >= 1.0);
    assert_eq!(
        pair.answered_here(&Produce::to(&orders(), 0, batch(0)))[0].offset,
        0
    );
    limit("unlimited:unlimited");
    pod.snapshot();
    drop(pair);
    pod.world.as_mut().unwrap().hapax.assert_well();
    pod.kill_and_start();
    let mut retry = pod.world().informed();
    await_until("the facts", SOON, || {
        pod.world().gauge("hapax_snapshot_loaded_facts") >= 601.0
    });
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 0);
}
