//! The threads that serve connections, each with a runtime of its own.
//!
//! A connection never leaves its worker: both of its directions run in one
//! task, so that nothing in it is locked or sent between threads.

use crate::session::{self, Door, Shared};
use crate::timers;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use std::{io, thread};
use tokio::net::TcpStream;
use tokio::runtime::{self, LocalOptions, LocalRuntime, Runtime};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

/// How often a worker shows that it makes progress.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// The threads that serve connections.
#[derive(Clone)]
pub struct Workers(Arc<[Worker]>);

struct Worker {
    connections: Arc<AtomicUsize>,
    /// Seconds since `born` at which the worker last made progress.
    beat: Arc<AtomicU64>,
    born: Instant,
    queue: mpsc::UnboundedSender<(std::net::TcpStream, Door)>,
}

impl Workers {
    /// Starts as many as the configuration says.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread or no event queue.
    pub fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let workers: io::Result<Vec<_>> = (0..shared.config.workers)
            .map(|number| Worker::start(number, shared))
            .collect();
        Ok(Self(workers?.into()))
    }

    /// Hands a connection to the worker with the fewest.
    pub fn give(&self, client: TcpStream, door: Door) {
        let Some(worker) = self
            .0
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
        else {
            return;
        };
        match client.into_std() {
            Ok(client) => {
                worker.connections.fetch_add(1, Ordering::Relaxed);
                if worker.queue.send((client, door)).is_err() {
                    tracing::error!("a worker is gone, client closed");
                }
            }
            Err(error) => tracing::error!(%error, "cannot hand over a connection"),
        }
    }

    /// Connections that were given and have not ended.
    #[must_use]
    pub fn connections(&self) -> usize {
        let connections = self.0.iter().map(|worker| &worker.connections);
        connections.map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// The longest time that a worker has made no progress.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        let stalled = self.0.iter().map(|worker| {
            let beat = Duration::from_secs(worker.beat.load(Ordering::Relaxed));
            worker.born.elapsed().saturating_sub(beat)
        });
        stalled.max().unwrap_or_default()
    }
}

impl Worker {
    fn start(number: usize, shared: &Arc<Shared>) -> io::Result<Self> {
        let (queue, arrivals) = mpsc::unbounded_channel();
        let worker = Self {
            connections: Arc::default(),
            beat: Arc::default(),
            born: Instant::now(),
            queue,
        };
        let shared = Arc::clone(shared);
        let connections = Arc::clone(&worker.connections);
        let (beat, born) = (Arc::clone(&worker.beat), worker.born);
        let (started, starts) = std_mpsc::sync_channel(1);
        let keeper = timers::keeper()?;
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                timers::keep_by(keeper);
                // A local runtime stays on the thread that makes it.
                let runtime = match local_runtime() {
                    Ok(runtime) => runtime,
                    Err(error) => return started.send(Err(error)).unwrap_or_default(),
                };
                started.send(Ok(())).unwrap_or_default();
                runtime.spawn_local(show_progress(beat, born));
                runtime.block_on(work(shared, connections, arrivals));
            })?;
        let started = starts.recv().map_err(io::Error::other)?;
        started.map(|()| worker)
    }
}

async fn show_progress(beat: Arc<AtomicU64>, born: Instant) {
    let mut ticks = ticks(BEAT_EVERY);
    loop {
        ticks.tick().await;
        beat.store(born.elapsed().as_secs(), Ordering::Relaxed);
    }
}

async fn work(
    shared: Arc<Shared>,
    connections: Arc<AtomicUsize>,
    mut arrivals: mpsc::UnboundedReceiver<(std::net::TcpStream, Door)>,
) {
    let tally = Rc::new(shared.metrics.tally());
    while let Some((client, door)) = arrivals.recv().await {
        let served = Served(Arc::clone(&connections));
        let (shared, tally) = (Arc::clone(&shared), Rc::clone(&tally));
        match TcpStream::from_std(client) {
            Ok(client) => {
                tokio::task::spawn_local(async move {
                    let _served = served;
                    session::serve(shared, tally, client, door).await;
                });
            }
            Err(error) => tracing::error!(%error, "cannot take over a connection"),
        }
    }
}

/// Counts a connection out of its worker.
struct Served(Arc<AtomicUsize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A runtime of one thread.
///
/// # Errors
///
/// Where the system gives no event queue.
pub fn new_runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// A runtime of this thread, whose tasks need no lock to be woken by it. It
/// keeps no timers: see [`timers`].
fn local_runtime() -> io::Result<LocalRuntime> {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_io().build_local(LocalOptions::default())
}

/// A tick `every` so often, later ones moving on after a late one.
#[must_use]
pub fn ticks(every: Duration) -> Interval {
    let mut ticks = timers::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
