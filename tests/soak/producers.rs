//! The producers: eight programs of four client libraries, and what they were told.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clients::Client;
use crate::tools::wait_for;

/// Partitions of each producer's own topic.
pub(crate) const PARTITIONS: u32 = 3;
/// Longer than a record may take: a node that was killed is up again by then.
const DELIVERY_TIMEOUT_MS: &str = "240000";
/// How long a producer may take to its end once it is asked.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program that writes 0, 1, 2 … to a topic of its own until its input ends.
pub(crate) struct Producer {
    pub(crate) client: Client,
    pub(crate) topic: String,
    child: Child,
    input: Option<ChildStdin>,
    told: Arc<Told>,
    reader: Option<JoinHandle<()>>,
    errors: Option<JoinHandle<String>>,
}

/// What a producer printed.
#[derive(Default)]
struct Told {
    acknowledged: Mutex<Vec<u32>>,
    failures: Mutex<Vec<(u32, String)>>,
    count: AtomicU64,
    sent: AtomicU64,
}

/// What a producer came to.
pub(crate) struct Produced {
    pub(crate) client: Client,
    pub(crate) topic: String,
    pub(crate) sent: u64,
    /// Numbers of records, in no order.
    pub(crate) acknowledged: Vec<u32>,
    /// Records that were given up, with what the client said.
    pub(crate) failures: Vec<(u32, String)>,
    /// Why it ended badly for another reason than those.
    pub(crate) crash: Option<String>,
}

impl Producer {
    pub(crate) fn start(client: Client, bootstrap: &str, topic: &str, rate: u32) -> Self {
        let mut command = client.command();
        command
            .arg("produce")
            .args(["--bootstrap", bootstrap, "--topic", topic])
            .args(["--partitions", &PARTITIONS.to_string()])
            .args(["--rate", &rate.to_string(), "--until-input-ends"])
            .args(["--linger-ms", "10", "--batch-bytes", "1000"])
            .args(["--request-timeout-ms", "5000", "--backoff-ms", "50"])
            .args(["--delivery-timeout-ms", DELIVERY_TIMEOUT_MS]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{client:?} does not start: {error}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let told = Arc::<Told>::default();
        let own = Arc::clone(&told);
        Self {
            client,
            topic: topic.to_owned(),
            input: child.stdin.take(),
            child,
            told,
            reader: Some(thread::spawn(move || {
                let lines = BufReader::new(stdout).lines();
                lines.for_each(|line| own.take(&line.expect("UTF-8")));
            })),
            errors: Some(thread::spawn(move || {
                let mut text = Vec::new();
                stderr.read_to_end(&mut text).expect("a pipe can be read");
                String::from_utf8_lossy(&text).into_owned()
            })),
        }
    }

    /// Records that it was told of so far.
    pub(crate) fn told(&self) -> u64 {
        self.told.count.load(Ordering::Relaxed)
    }

    /// Asks it to end, once what it has sent is told of.
    pub(crate) fn stop(&mut self) {
        self.input = None;
    }

    /// What it came to, once it has ended.
    pub(crate) fn produced(mut self) -> Produced {
        self.stop();
        let what = format!("the end of {:?}", self.client);
        let child = &mut self.child;
        let status = wait_for(&what, PATIENCE, || child.try_wait().expect("a child"));
        self.reader.take().map(JoinHandle::join);
        let errors = self.errors.take().map(JoinHandle::join);
        let errors = errors.and_then(Result::ok).unwrap_or_default();
        let take = |list: &Mutex<Vec<u32>>| {
            std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let failures = std::mem::take(
            &mut *self
                .told
                .failures
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        Produced {
            client: self.client,
            topic: self.topic.clone(),
            sent: self.told.sent.load(Ordering::Relaxed),
            acknowledged: take(&self.told.acknowledged),
            crash: (!status.success() && failures.is_empty())
                .then(|| format!("{status}: {errors}")),
            failures,
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Told {
    fn take(&self, line: &str) {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        if let Some(sent) = line["sent"].as_u64() {
            return self.sent.store(sent, Ordering::Relaxed);
        }
        let n = line["n"].as_u64().expect("the number of a record");
        let n = u32::try_from(n).expect("fewer records than that");
        self.count.fetch_add(1, Ordering::Relaxed);
        match line["error"].as_str() {
            None => {
                let mut all = self
                    .acknowledged
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                all.push(n);
            }
            Some(error) => {
                let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((n, error.to_owned()));
            }
        }
    }
}
