//! A `hapax run` process, its admin pages and its memory.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::await_until;

/// A running hapax; killed on drop.
pub struct Hapax {
    /// `127.0.0.1:port` of its bootstrap listener.
    pub bootstrap: String,
    /// The first of its broker ports.
    pub first_port: u16,
    /// `127.0.0.1:port` of its admin pages.
    pub admin: String,
    child: Child,
    dir: tempfile::TempDir,
}

/// Starts `hapax run` in front of `upstream` and waits until it listens.
pub fn start(upstream: &str, mode: &str, flags: &[&str]) -> Hapax {
    // A range of two: one node, and one to spare.
    start_with(upstream, mode, 2, flags)
}

/// The same with this many broker ports.
pub fn start_with(upstream: &str, mode: &str, ports: u16, flags: &[&str]) -> Hapax {
    let mut hapax = spawn(upstream, mode, free_range(ports + 2), ports, flags);
    await_until("hapax to listen", Duration::from_secs(20), || {
        if let Some(status) = hapax.child.try_wait().unwrap() {
            panic!("hapax ended with {status}: {}", hapax.output());
        }
        hapax.page("/startupz").starts_with("HTTP/1.1 200")
            && TcpStream::connect(&hapax.bootstrap).is_ok()
    });
    hapax
}

/// Starts `hapax run`, from `first` on: bootstrap, admin and broker ports.
pub fn spawn(upstream: &str, mode: &str, first: u16, ports: u16, flags: &[&str]) -> Hapax {
    let (listen, admin, broker) = (first, first + 1, first + 2);
    let dir = tempfile::tempdir().unwrap();
    let stderr = fs::File::create(dir.path().join("stderr")).unwrap();
    let child = Command::new(binary())
        .args(["run", "--upstream", upstream, "--mode", mode])
        .arg(format!("--listen=127.0.0.1:{listen}"))
        .arg(format!("--broker-ports={broker}-{}", broker + ports - 1))
        .arg(format!("--admin-listen=127.0.0.1:{admin}"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(stderr.try_clone().unwrap())
        .stderr(stderr)
        .spawn()
        .expect("hapax runs");
    Hapax {
        bootstrap: format!("127.0.0.1:{listen}"),
        first_port: broker,
        admin: format!("127.0.0.1:{admin}"),
        child,
        dir,
    }
}

/// The first of `count` free ports in a row: above hapax's defaults, below
/// those that the system hands out to connections, and never given twice by
/// one process.
pub fn free_range(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FROM: u16 = 20_000;
    const BLOCK: u16 = 8;
    const BLOCKS: u16 = 1_500;
    assert!(count <= BLOCK);
    // Another process begins elsewhere.
    let offset = u16::try_from(process::id() * 331 % u32::from(BLOCKS)).unwrap();
    loop {
        let block = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(block < BLOCKS, "no ports are left");
        let first = FROM + BLOCK * ((block + offset) % BLOCKS);
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + count).all(free) {
            return first;
        }
    }
}

impl Hapax {
    /// What it has written to its standard output and error.
    pub fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("stderr")).unwrap()
    }

    /// An admin page with its status line and headers; empty when nobody answers.
    pub fn page(&self, path: &str) -> String {
        page(&self.admin, path)
    }

    /// The sum of a metric's series whose labels contain every one of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.page("/metrics");
        metric_of(&page, name, labels)
    }

    /// The JSON of an admin page.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let page = self.page(path);
        let (_, body) = page.split_once("\r\n\r\n").expect("a page");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {page}"))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.expect("kill runs").success());
    }

    /// How the process ended, once it does.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        await_until("hapax to end", Duration::from_secs(20), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    /// The most that was ever resident, in bytes.
    pub fn memory_peak(&self) -> usize {
        self.status("VmHWM:")
    }

    /// Its open file descriptors.
    pub fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.unwrap().count()
    }

    fn status(&self, name: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<usize>().unwrap() * 1024
    }

    /// Panics unless the process is alive and has not panicked.
    pub fn assert_well(&mut self) {
        let ended = self.child.try_wait().unwrap();
        let output = self.output();
        assert!(ended.is_none(), "hapax ended with {ended:?}: {output}");
        assert!(!output.contains("panicked"), "{output}");
    }
}

/// A page of whoever has these admin pages.
pub fn page(admin: &str, path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(admin) {
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let _ = write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.read_to_string(&mut text);
    }
    text
}

/// The sum of those series of a metrics page whose labels contain every one of
/// `labels`.
pub fn metric_of(page: &str, name: &str, labels: &[&str]) -> f64 {
    assert!(page.starts_with("HTTP/1.1 200"), "no metrics: {page}");
    page.lines()
        .filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .map(|line| {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap()
        })
        .sum()
}

impl Drop for Hapax {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The hapax to start: the one in `TEST_HAPAX`, or that of this build.
pub fn binary() -> std::ffi::OsString {
    std::env::var_os("TEST_HAPAX").unwrap_or_else(|| env!("CARGO_BIN_EXE_hapax").into())
}
