//! What the machine gives: installed programs, free ports, patience.

use std::collections::HashSet;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Where hapax listens unless it is told otherwise: some tests, and the
/// README's commands, leave it there.
const DEFAULTS: RangeInclusive<u16> = 19_092..=19_192;

/// The first of `size` ports in a row that are free and, lying below the
/// range of ephemeral ports, stay so.
pub(crate) fn free_ports(size: u16) -> u16 {
    static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    let mut taken = TAKEN.lock().expect("no holder panics");
    let mut random = Random::from_clock();
    loop {
        let first = 10_000 + u16::try_from(random.below(22_000)).expect("below 22,000");
        let ports = first..first + size;
        let free = |port| {
            !DEFAULTS.contains(&port)
                && !taken.contains(&port)
                && ["127.0.0.1", "127.0.0.2"]
                    .iter()
                    .all(|host| TcpListener::bind((*host, port)).is_ok())
        };
        if ports.clone().all(free) {
            taken.extend(ports);
            return first;
        }
    }
}

/// A file that a stage of `tests/run install` puts under `target/tests`.
pub(crate) fn installed(path: &str, stage: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/tests")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing: run `tests/run install` (stage {stage})",
        path.display()
    );
    path
}

/// A file of this folder's neighbours.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(path)
}

/// Runs `tests/kafka/kafka` for the cluster in `folder`; returns what it prints.
pub(crate) fn kafka(folder: &Path, arguments: &[&str], more: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(source("kafka/kafka"));
    command.args(arguments).env("CLUSTER_DIR", folder);
    more(&mut command);
    let output = command.output().expect("tests/kafka/kafka starts");
    assert!(
        output.status.success(),
        "kafka {arguments:?} failed (Java and Maven are needed): {}",
        String::from_utf8_lossy(&output.stderr),
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Waits until `ready` returns something; for events of other processes that
/// cannot be awaited but only asked about.
pub(crate) fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(
            start.elapsed() < patience,
            "gave up after {patience:?} waiting for {what}"
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "another process is polled, with a growing pause"
        )]
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// A seeded generator (splitmix64): the same seed, the same faults.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded differently in every process and at every call.
    pub(crate) fn from_clock() -> Self {
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("after 1970");
        Self(u64::from(now.subsec_nanos()) << 32 | u64::from(std::process::id()))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A name that no other test of this machine uses.
pub(crate) fn unique(prefix: &str) -> String {
    format!("{prefix}-{:08x}", Random::from_clock().below(1 << 32))
}
