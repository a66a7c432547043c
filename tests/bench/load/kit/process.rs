//! Other processes: started, watched by way of /proc, and ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::generator::{Load, Outcome};

/// A process that listens; killed on drop.
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    /// From its start to the first connection that it accepted.
    pub started_in: Duration,
    child: Child,
}

impl Listener {
    /// Starts a part of this binary that listens on a port of the system's
    /// choice and prints it.
    pub fn part(arguments: &[&str]) -> Self {
        let start = Instant::now();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let address = first_line(child.stdout.take().unwrap()).parse().unwrap();
        Self {
            address,
            started_in: start.elapsed(),
            child,
        }
    }

    /// Starts a program that will listen there, its output going to `log`.
    pub fn program(command: &mut Command, address: SocketAddr, log: &Path) -> Self {
        let output = fs::File::create(log).unwrap();
        let start = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        while TcpStream::connect(address).is_err() {
            let ended = child.try_wait().unwrap();
            let said = || fs::read_to_string(log).unwrap_or_default();
            assert!(ended.is_none(), "{command:?} ended: {}", said());
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "{command:?} does not listen: {}", said());
            rest(Duration::from_micros(500));
        }
        Self {
            address,
            started_in: start.elapsed(),
            child,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_line(output: ChildStdout) -> String {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Runs the generator; an error is what it says where it found anything wrong.
pub fn generate(load: &Load) -> Result<Outcome, String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg(super::GENERATOR)
        .arg(serde_json::to_string(load).unwrap())
        // What went wrong is one line.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .expect("this binary runs");
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    // Of a panic only its message.
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("thread ") && !line.starts_with("note: "));
    let message: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    Err(format!("the generator failed: {}", message.join(" ")))
}

/// The CPU time that all threads of a process have had, in nanoseconds.
///
/// The scheduler's own sum, finer than the clock ticks of `stat`; it lacks
/// threads that have ended, of which proxies have none.
pub fn cpu_nanoseconds(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).ok())
        .map(|text| {
            let on_cpu = text.split_whitespace().next().unwrap();
            on_cpu.parse::<u64>().unwrap()
        })
        .sum()
}

/// Resident memory in KiB.
pub fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// Lets other processes go on for a while.
#[expect(
    clippy::disallowed_methods,
    reason = "a process that measures others; no async worker runs here"
)]
pub fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// As many open files as the system allows.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}
