//! A `hapax dev` process.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::support::await_until;

/// `hapax dev`, with nothing of this test's environment.
pub(crate) fn hapax(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command
        .env_clear()
        .arg("dev")
        .args(arguments.split_whitespace());
    command
}

/// A running one; killed when it is dropped.
pub(crate) struct Dev {
    child: Child,
    /// `None` once nobody reads any more.
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

/// Where its parts listen.
pub(crate) struct Addresses {
    /// For clients, through hapax.
    pub(crate) clients: String,
    /// The broker, without hapax.
    pub(crate) upstream: String,
    /// The admin pages.
    pub(crate) admin: String,
}

impl Dev {
    /// Starts it on ports that are free.
    pub(crate) fn start(arguments: &str) -> Self {
        Self::start_at(arguments, "127.0.0.1:0")
    }

    /// The same with its admin pages at `admin`.
    pub(crate) fn start_at(arguments: &str, admin: &str) -> Self {
        let mut child = hapax(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .env("HAPAX_ADMIN_LISTEN", admin)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines: Some(lines),
        }
    }

    /// The next line that contains `text`.
    pub(crate) fn line(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        for line in self.lines.as_mut().unwrap() {
            let line = line.unwrap();
            if line.contains(text) {
                return line;
            }
            read.push(line);
        }
        panic!("no `{text}` in {read:#?}");
    }

    /// The addresses that it prints.
    pub(crate) fn addresses(&mut self) -> Addresses {
        let mut word = |label: &str| {
            let line = self.line(label);
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        let clients = word("clients ");
        let upstream = word("upstream ");
        let metrics = word("metrics ");
        let admin = metrics.strip_prefix("http://").unwrap();
        Addresses {
            clients,
            upstream,
            admin: admin.strip_suffix("/metrics").unwrap().to_owned(),
        }
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(killed.success());
    }

    /// What it still prints, and how it ends.
    pub(crate) fn finish(mut self) -> (Vec<String>, ExitStatus) {
        let rest = self.lines.take().unwrap().map(Result::unwrap).collect();
        (rest, self.ended())
    }

    /// Reads no more: the pipe is closed.
    pub(crate) fn close_output(&mut self) {
        self.lines = None;
    }

    /// How it ends.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        await_until("hapax dev to end", Duration::from_secs(20), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
