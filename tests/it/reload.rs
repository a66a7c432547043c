//! What changes while clients are connected: the configuration and the log level.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::support::await_until;
use crate::support::batch::Batch;
use crate::support::raw::Produce;
use crate::world::{SOON, World, opaque, orders, produce};

/// A hapax with a configuration file beside the flags of a test.
struct Configured {
    world: World,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Configured {
    fn new(mode: &str, text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hapax.yaml");
        fs::write(&path, text).unwrap();
        let flag = format!("--config={}", path.display());
        let world = World::of(mode, &[&flag]);
        Self {
            world,
            path,
            _dir: dir,
        }
    }

    fn count(&self, outcome: &str) -> f64 {
        let label = format!("outcome=\"{outcome}\"");
        let hapax = &self.world.hapax;
        hapax.metric("hapax_config_reloads_total", &[&label])
    }

    /// The file says this from now on, and SIGHUP says so; that has this outcome.
    fn reload(&self, text: &str, outcome: &str) {
        let before = self.count(outcome);
        fs::write(&self.path, text).unwrap();
        self.world.hapax.signal("HUP");
        await_until(outcome, SOON, || self.count(outcome) == before + 1.0);
    }

    fn gauge(&self) -> f64 {
        self.world.gauge("hapax_config_last_reload_successful")
    }
}

/// Nothing else would ever wake a session on which nothing is open.
#[test]
fn a_client_that_says_nothing_hears_of_a_shorter_idle_time() {
    let configured = Configured::new("absorb", "timeouts: {idle: 0}\n");
    let mut silent = configured.world.pair();
    configured.reload("timeouts: {idle: 1s}\n", "applied");
    assert!(silent.client.is_closed(SOON));
    let idle = ["cause=\"idle\""];
    let hapax = &configured.world.hapax;
    let ended = hapax.metric("hapax_client_disconnects_total", &idle);
    assert_eq!(ended, 1.0);
    configured.reload("timeouts: {idle: 1h}\n", "applied");
    configured.world.pair().barrier();
}

/// The answer to a POST, from its status on.
fn post(admin: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(admin).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

#[test]
fn an_open_connection_follows_the_new_file_and_is_not_dropped() {
    const POLICY_VIOLATION: i16 = 44;
    let configured = Configured::new("enforce", "limits: {frameBytes: 1000000}\n");
    let mut pair = configured.world.informed();
    let plain = Produce::to(&orders(), 0, Batch::of(-1, -1, -1, ["a"]).bytes());
    pair.write(&plain, 0);
    let policy = "policies: [{topics: orders, require: idempotence}]\nlimits: {frameBytes: 2000}\n";
    configured.reload(policy, "applied");
    let answers = pair.answered_here(&plain);
    assert_eq!(answers[0].code, POLICY_VIOLATION);
    pair.write(&produce(0), 1);
    // Its limit is the new one, too.
    opaque(&mut pair.client, &[0; 5000]);
    pair.broker.assert_ended();
    let hapax = &configured.world.hapax;
    assert_eq!(hapax.metric("hapax_bad_frames_total", &["too_long"]), 1.0);
    // And back.
    configured.reload("", "applied");
    let mut pair = configured.world.informed();
    pair.write(&plain, 2);
}

#[test]
fn a_file_that_cannot_be_used_leaves_everything_and_is_told_in_three_places() {
    let configured = Configured::new("absorb", "limits: {orphans: 7}\n");
    let mut pair = configured.world.informed();
    assert_eq!(configured.gauge(), 1.0);
    let began = configured
        .world
        .gauge("hapax_config_last_reload_success_timestamp_seconds");
    assert!(began > 0.0);
    let hapax = &configured.world.hapax;
    let orphans = || hapax.json("/api/v1/config")["config"]["limits"]["orphans"].clone();

    configured.reload("limits: {orphans: 8}\nsequense: {}\n", "invalid");
    assert_eq!((configured.gauge(), orphans()), (0.0, 7.into()));
    let report = &hapax.json("/api/v1/config")["reload"];
    assert_eq!(report["successful"], false);
    let error = report["errors"][0].as_str().unwrap();
    assert!(error.contains("hapax.yaml:2: "), "{error}");
    assert!(hapax.output().contains("hapax goes on as it was"));

    let fixed = "limits: {orphans: 8}\nsequence: {windowBatches: 9}\n";
    configured.reload(fixed, "refused");
    assert_eq!((configured.gauge(), orphans()), (0.0, 7.into()));
    let report = &hapax.json("/api/v1/config")["reload"];
    let refused = report["refused"][0].as_str().unwrap();
    assert!(
        refused.starts_with("sequence.windowBatches is 9"),
        "{refused}"
    );
    assert!(hapax.output().contains("only a restart can change this"));
    let (status, told) = post(&hapax.admin, "/api/v1/reload", "");
    assert_eq!(status, 422, "{told}");
    assert!(
        told["error"]
            .as_str()
            .unwrap()
            .contains("sequence.windowBatches")
    );

    configured.reload("limits: {orphans: 8}\n", "applied");
    assert_eq!((configured.gauge(), orphans()), (1.0, 8.into()));
    assert_eq!(
        hapax.json("/api/v1/config")["reload"]["errors"],
        Value::Array(Vec::new())
    );
    pair.write(&produce(0), 0);
}

/// As Kubernetes swaps a ConfigMap, and nobody sends a signal.
#[test]
fn a_file_that_changes_is_found_without_a_signal() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    for (version, orphans) in [("..1", 7), ("..2", 8)] {
        fs::create_dir(dir.path().join(version)).unwrap();
        let file = dir.path().join(version).join("hapax.yaml");
        fs::write(file, format!("limits: {{orphans: {orphans}}}\n")).unwrap();
    }
    symlink("..1", dir.path().join("..data")).unwrap();
    symlink("..data/hapax.yaml", dir.path().join("hapax.yaml")).unwrap();
    let flag = format!("--config={}", dir.path().join("hapax.yaml").display());
    let world = World::new(&[&flag]);
    let orphans = || world.hapax.json("/api/v1/config")["config"]["limits"]["orphans"].clone();
    assert_eq!(orphans(), 7);
    symlink("..2", dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("..data")).unwrap();
    await_until("the new file", Duration::from_secs(40), || orphans() == 8);
}

#[test]
fn the_log_level_changes_at_run_time_by_the_api_and_by_the_file() {
    let configured = Configured::new("absorb", "log: {level: info}\n");
    let hapax = &configured.world.hapax;
    let debug = || hapax.output().matches("\"level\":\"DEBUG\"").count();
    let connect = || drop(configured.world.pair());
    connect();
    assert_eq!(debug(), 0);
    let (status, told) = post(&hapax.admin, "/api/v1/log-level", r#"{"level": "debug"}"#);
    assert_eq!((status, &told["level"]), (200, &"debug".into()));
    assert_eq!(hapax.json("/api/v1/log-level")["level"], "debug");
    connect();
    await_until("debug lines", SOON, || debug() > 0);
    // A file that says what it said leaves what the API set.
    configured.reload("log: {level: info}\nlimits: {orphans: 9}\n", "applied");
    assert_eq!(hapax.json("/api/v1/log-level")["level"], "debug");
    configured.reload("log: {level: error}\n", "applied");
    assert_eq!(hapax.json("/api/v1/log-level")["level"], "error");
    let (status, told) = post(&hapax.admin, "/api/v1/log-level", r#"{"level": "loud"}"#);
    assert_eq!(status, 400, "{told}");
    assert_eq!(hapax.json("/api/v1/log-level")["level"], "error");
}

#[test]
fn sighup_without_a_file_ends_nothing() {
    let mut world = World::new(&[]);
    world.hapax.signal("HUP");
    await_until("the answer to SIGHUP", SOON, || {
        world.hapax.output().contains("nothing changed")
    });
    world.informed().write(&produce(0), 0);
    world.hapax.assert_well();
}
