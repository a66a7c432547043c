//! A `hapax run` process, its admin pages and its memory.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::await_until;
use super::kafka::{free_pair, free_ports};

/// A running hapax; killed on drop.
pub struct Hapax {
    /// `127.0.0.1:port` of its bootstrap listener.
    pub bootstrap: String,
    admin: String,
    child: Child,
    dir: tempfile::TempDir,
}

/// Starts `hapax run` in front of `upstream` and waits until it listens.
pub fn start(upstream: &str, mode: &str, flags: &[&str]) -> Hapax {
    let [listen, admin] = free_ports();
    let first = free_pair();
    let dir = tempfile::tempdir().unwrap();
    // A range of two: one node, and one to spare.
    let brokers = [first, first + 1].map(|port| port.to_string()).join("-");
    let stderr = fs::File::create(dir.path().join("stderr")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["run", "--upstream", upstream, "--mode", mode])
        .arg(format!("--listen=127.0.0.1:{listen}"))
        .arg(format!("--broker-ports={brokers}"))
        .arg(format!("--admin-listen=127.0.0.1:{admin}"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(stderr.try_clone().unwrap())
        .stderr(stderr)
        .spawn()
        .expect("hapax runs");
    let mut hapax = Hapax {
        bootstrap: format!("127.0.0.1:{listen}"),
        admin: format!("127.0.0.1:{admin}"),
        child,
        dir,
    };
    await_until("hapax to listen", Duration::from_secs(20), || {
        if let Some(status) = hapax.child.try_wait().unwrap() {
            panic!("hapax ended with {status}: {}", hapax.output());
        }
        hapax.page("/startupz").starts_with("HTTP/1.1 200")
            && TcpStream::connect(&hapax.bootstrap).is_ok()
    });
    hapax
}

impl Hapax {
    /// What it has written to its standard output and error.
    pub fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("stderr")).unwrap()
    }

    /// An admin page with its status line and headers; empty when nobody answers.
    pub fn page(&self, path: &str) -> String {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(&self.admin) {
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            let _ = write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: hapax\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.read_to_string(&mut text);
        }
        text
    }

    /// The sum of a metric's series whose labels contain every one of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.page("/metrics");
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

    /// Resident memory in bytes.
    pub fn memory(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
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

impl Drop for Hapax {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
