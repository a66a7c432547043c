//! The thread that reads a snapshot when hapax starts, and writes one every
//! `state.interval` and at the end. Nobody waits for it but the end of the
//! process, and that for a bounded time.

use super::facts::{self, Poured, Survey};
use super::format::{Head, Record, Stamp};
use super::lifetime::Lifetime;
use super::store::{DirectoryError, Store};
use crate::session::Shared;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long clients wait at the door while hapax asks which cluster it is in
/// front of.
const INTRODUCTION_MAX: Duration = Duration::from_secs(2);
/// And while the facts of that cluster are brought back.
const LOADING_MAX: Duration = Duration::from_secs(5);
/// How often the thread looks around.
const GLANCE: Duration = Duration::from_secs(1);
/// How often while facts wait for the cluster's id.
const GLANCE_WAITING: Duration = Duration::from_millis(50);
/// The thread rests this many times longer than it wrote.
const REST: u32 = 9;
/// How often an error that stays the same is told.
const TOLD_EVERY: Duration = Duration::from_secs(600);
/// What a snapshot may have beside its windows: names and counters.
const NAMES_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The most that a window without facts takes, and a fact.
const WINDOW_BYTES_MAX: u64 = 80;
const FACT_BYTES_MAX: u64 = 64;
/// SIGXFSZ of Linux, macOS and the BSDs.
const FILE_TOO_LARGE: i32 = 25;
/// No cluster has a longer id.
const CLUSTER_ID_MAX: usize = 255;

/// What keeps snapshots of a running hapax.
pub struct Keeper {
    orders: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
    /// Whether facts wait for the cluster's id.
    waiting: watch::Receiver<bool>,
    /// Topics of those facts, to ask the cluster for.
    topics: Vec<String>,
    shared: Arc<Shared>,
}

impl Keeper {
    /// Reads what is there, and starts the thread; `None` where `state.dir` is
    /// not set.
    ///
    /// # Errors
    ///
    /// Where the directory is of no use.
    pub fn start(
        shared: &Arc<Shared>,
        lifetime: &Arc<Lifetime>,
    ) -> Result<Option<Self>, StartError> {
        let state = &shared.config.state;
        let Some(directory) = &state.directory else {
            return Ok(None);
        };
        let store = Store::open(directory)?;
        // A file beyond `ulimit -f` is an error then, and not the end of the
        // process: the handler stays when what it returns is dropped.
        let _ = signal(SignalKind::from_raw(FILE_TOO_LARGE))?;
        let (tell_waiting, waiting) = watch::channel(false);
        let (orders, taken) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let mut worker = Worker {
            store,
            shared: Arc::clone(shared),
            lifetime: Arc::clone(lifetime),
            pending: None,
            waiting: tell_waiting,
            due: Instant::now() + state.interval,
            rests_until: Instant::now(),
            withdrawn: 0,
            told: None,
            begun: false,
        };
        if worker.store.is_ours() {
            worker.begin();
        } else {
            let directory = directory.display();
            tracing::warn!(
                %directory,
                "another hapax keeps its state in state.dir: this one starts empty and takes over when that one ends; give each its own --state-dir"
            );
        }
        let topics = worker.pending.as_ref().map(|p| p.survey.topics.clone());
        thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                worker.work(&taken);
                // Nobody may be left to hear it.
                let _ = end.send(());
            })?;
        Ok(Some(Self {
            orders,
            ended,
            waiting,
            topics: topics.unwrap_or_default(),
            shared: Arc::clone(shared),
        }))
    }

    /// Brings the facts back before clients are welcome, if the cluster says
    /// who it is: a retry is often the first thing that a client sends.
    pub async fn settle(&mut self) {
        if !*self.waiting.borrow() {
            return;
        }
        let asked = self.shared.introduce(&self.topics);
        match timeout(INTRODUCTION_MAX, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot ask which cluster this is"),
            Err(_) => tracing::debug!("nobody said in time which cluster this is"),
        }
        if self.shared.ledger.cluster_id().is_some() {
            let done = self.waiting.wait_for(|waiting| !waiting);
            let _ = timeout(LOADING_MAX, done).await;
        }
    }

    /// Writes once more; waits no longer than `patience` for that.
    pub fn end(self, patience: Duration) {
        drop(self.orders);
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                ?patience,
                "the last snapshot is not written in time, the one before it stays"
            );
        }
    }
}

/// Why no snapshots can be kept.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory is of no use.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The system gives no thread.
    #[error("cannot start: {0}")]
    Thread(#[from] io::Error),
}

/// A snapshot whose facts wait for the cluster's id.
struct Pending {
    bytes: Vec<u8>,
    survey: Survey,
}

struct Worker {
    store: Store,
    shared: Arc<Shared>,
    lifetime: Arc<Lifetime>,
    pending: Option<Pending>,
    waiting: watch::Sender<bool>,
    /// When the next snapshot is to be written.
    due: Instant,
    /// Until when none is written: most of the time is not for writing.
    rests_until: Instant,
    /// What [`crate::ledger::Ledger::withdrawn`] said before the last one.
    withdrawn: u64,
    /// The error that was told last, and when.
    told: Option<(String, Instant)>,
    /// Whether what was there has been read.
    begun: bool,
}

impl Worker {
    fn work(&mut self, orders: &mpsc::Receiver<()>) {
        loop {
            let glance = match self.pending {
                Some(_) => GLANCE_WAITING,
                None => GLANCE.min(self.shared.config.state.interval),
            };
            let ends = orders.recv_timeout(glance) != Err(RecvTimeoutError::Timeout);
            self.take_over();
            self.settle();
            if ends || self.is_due(Instant::now()) {
                self.write();
            }
            if ends {
                return;
            }
        }
    }

    /// Whether it is time for another one, or the newest one says what the
    /// cluster has contradicted since.
    fn is_due(&self, now: Instant) -> bool {
        let stale = self.withdrawn != self.shared.ledger.withdrawn();
        now >= self.due || (stale && now >= self.rests_until)
    }

    /// Another hapax had the directory: has it ended?
    fn take_over(&mut self) {
        if self.begun {
            return;
        }
        // An error shows again when a snapshot is due.
        if self.store.acquire().unwrap_or(false) {
            tracing::info!("the other hapax has ended, its state is taken over");
            self.begin();
        }
    }

    /// Reads what is there.
    fn begin(&mut self) {
        self.begun = true;
        let file = self.store.file();
        let file = file.display();
        let bytes = match self.store.read(self.bytes_max()) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return tracing::info!(%file, "no snapshot yet, hapax starts empty"),
            Err(error) => return self.set_aside(&error),
        };
        let survey = match facts::survey(&bytes) {
            Ok(survey) => survey,
            Err(flaw) => return self.set_aside(&flaw),
        };
        self.keep_others(&survey);
        let age_seconds = self.age(&survey).map(|age| age.as_secs());
        let facts = survey.facts;
        tracing::info!(%file, facts, age_seconds, "snapshot read");
        if let Some(reason) = self.useless(&survey) {
            if facts > 0 {
                tracing::info!(facts, reason, "the facts of the snapshot are of no use");
            }
            return;
        }
        self.pending = Some(Pending { bytes, survey });
        self.waiting.send_replace(true);
    }

    /// More than this hapax would ever write.
    fn bytes_max(&self) -> u64 {
        let sequence = &self.shared.config.sequence;
        let facts = FACT_BYTES_MAX.saturating_mul(sequence.window_batches as u64);
        let windows = sequence.max_windows as u64;
        windows
            .saturating_mul(facts.saturating_add(WINDOW_BYTES_MAX))
            .saturating_add(NAMES_BYTES_MAX)
    }

    fn set_aside(&self, reason: &dyn Display) {
        self.shared.metrics.snapshots_set_aside.inc();
        let file = self.store.file();
        let file = file.display();
        match self.store.set_aside() {
            Ok(aside) => {
                let aside = aside.display();
                tracing::error!(
                    %file, %reason, %aside,
                    "the snapshot cannot be read, it is set aside and hapax starts empty"
                );
            }
            Err(error) => tracing::error!(
                %file, %reason, %error,
                "the snapshot cannot be read, nor set aside: hapax starts empty and writes over it"
            ),
        }
    }

    /// The ports of brokers and the totals are of use whatever the cluster is.
    fn keep_others(&self, survey: &Survey) {
        self.lifetime.go_on(&survey.head, &survey.others);
        let range = &self.shared.config.broker_ports;
        if survey.head.broker_ports != (*range.start(), *range.end()) {
            // Nodes have other ports of their own now, and replicas agree on those.
            return;
        }
        let slots = survey.others.iter().filter_map(|record| match record {
            Record::Slot(node, port) => Some((*node, *port)),
            _ => None,
        });
        let slots: Vec<_> = slots.collect();
        self.shared.brokers.keep(&slots, Instant::now());
    }

    /// How long ago it was written; `None` where the clock went backwards.
    fn age(&self, survey: &Survey) -> Option<Duration> {
        Stamp::now().since(&survey.head.written)
    }

    /// Why its facts can answer nothing, whatever the cluster is.
    fn useless(&self, survey: &Survey) -> Option<&'static str> {
        let ttl = self.shared.ledger.rules().ttl;
        if survey.facts == 0 {
            return Some("there are none");
        }
        if survey.head.listen != self.shared.config.listen.to_string() {
            return Some("listen.bootstrap was another address");
        }
        match self.age(survey) {
            None => Some("the clock went backwards, so that their age is not known"),
            Some(age) if age > ttl => Some("they are older than sequence.ttl"),
            Some(_) => None,
        }
    }

    /// Brings the facts back once it is known that the cluster is theirs.
    fn settle(&mut self) {
        let Some(pending) = &self.pending else { return };
        let useless = self.useless(&pending.survey);
        let ledger = &self.shared.ledger;
        let facts = pending.survey.facts;
        match (useless, ledger.cluster_id()) {
            (Some(reason), _) => {
                tracing::info!(facts, reason, "the facts of the snapshot are of no use");
            }
            (None, None) => return,
            (None, Some(cluster)) if cluster != pending.survey.head.cluster_id => {
                self.shared.brokers.keep_none();
                let before = &pending.survey.head.cluster_id;
                tracing::warn!(
                    facts,
                    before,
                    cluster,
                    "the snapshot is of another cluster, its facts are dropped"
                );
            }
            (None, Some(_)) => self.load(pending),
        }
        self.pending = None;
        self.waiting.send_replace(false);
    }

    fn load(&self, pending: &Pending) {
        let Some(elapsed) = self.age(&pending.survey) else {
            return;
        };
        let ledger = &self.shared.ledger;
        let now = ledger.time(Instant::now());
        match facts::load(&pending.bytes, ledger, elapsed, now) {
            Ok(loaded) => {
                let facts = i64::try_from(loaded.facts).unwrap_or(i64::MAX);
                self.shared.metrics.snapshot_loaded_facts.set(facts);
                tracing::info!(
                    facts,
                    windows = loaded.windows,
                    dropped = loaded.dropped,
                    age_seconds = elapsed.as_secs(),
                    "acknowledgements of before the restart can answer retries"
                );
            }
            // The checksum was right: whoever wrote it erred.
            Err(flaw) => tracing::error!(%flaw, "the snapshot cannot be loaded"),
        }
    }

    fn write(&mut self) {
        let began = Instant::now();
        let written = self.try_write();
        let took = began.elapsed();
        self.rests_until = Instant::now() + took.saturating_mul(REST);
        let interval = Instant::now() + self.shared.config.state.interval;
        self.due = interval.max(self.rests_until);
        match written {
            Ok(None) => {}
            Ok(Some(poured)) => self.wrote(poured, took),
            Err(error) => self.failed(&error),
        }
    }

    fn wrote(&mut self, poured: Poured, took: Duration) {
        let metrics = &self.shared.metrics;
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        metrics.snapshot_writes.inc();
        metrics.snapshot_bytes.set(gauge(poured.bytes));
        metrics.snapshot_facts.set(gauge(poured.facts));
        metrics
            .snapshot_last_success
            .set(gauge(Stamp::now().seconds()));
        tracing::debug!(?poured, ?took, "snapshot written");
        if self.told.take().is_some() {
            tracing::info!("snapshots can be written again");
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.shared.metrics.snapshot_failures.inc();
        let reason = error.to_string();
        let told = self.told.as_ref();
        if told.is_some_and(|(told, at)| *told == reason && at.elapsed() < TOLD_EVERY) {
            return;
        }
        let file = self.store.file();
        let file = file.display();
        tracing::error!(
            %file, reason,
            "the snapshot cannot be written, clients are served on: after a kill their retries are left to the broker"
        );
        self.told = Some((reason, Instant::now()));
    }

    /// Writes a snapshot. `None`: there is nothing to write yet, or it is not
    /// this process that writes.
    fn try_write(&mut self) -> io::Result<Option<Poured>> {
        if !self.store.acquire()? || !self.begun {
            return Ok(None);
        }
        let shared = Arc::clone(&self.shared);
        let ledger = &shared.ledger;
        // Whose facts these are has to be known. Until then the file that is
        // there stays: its facts may still be of use.
        let Some(cluster_id) = ledger.cluster_id().filter(|id| id.len() <= CLUSTER_ID_MAX) else {
            return Ok(None);
        };
        let withdrawn = ledger.withdrawn();
        // Nothing that is written below was acknowledged before this.
        let written = Stamp::now();
        let totals = self.lifetime.totals(&shared.metrics);
        let head = Head {
            written,
            cluster_id,
            listen: shared.config.listen.to_string(),
            broker_ports: (
                *shared.config.broker_ports.start(),
                *shared.config.broker_ports.end(),
            ),
            totals_since: totals.since,
            starts: totals.starts,
        };
        let slots = shared.brokers.ports().into_iter();
        let slots = slots.map(|(node, port)| Record::Slot(node, port));
        let counted = totals.totals.into_iter();
        let counted = counted.map(|(name, count)| Record::Total(name, count));
        let others: Vec<_> = slots.chain(counted).collect();
        let now = ledger.time(Instant::now());
        let mut poured = Poured::default();
        self.store.replace(|file: &mut File| {
            poured = facts::pour(ledger, &head, &others, now, file)?;
            if ledger.cluster_id().as_deref() != Some(&*head.cluster_id) {
                return Err(io::Error::other("the cluster became another one meanwhile"));
            }
            Ok(())
        })?;
        self.withdrawn = withdrawn;
        Ok(Some(poured))
    }
}
