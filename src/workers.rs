//! The threads that serve connections, each with a runtime of its own.
//!
//! A connection never leaves its worker: both of its directions run in one
//! task, so that nothing in it is locked or sent between threads.

use crate::session::{self, Door, Shared};
use crate::timers;
use prometheus::Histogram;
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
    pub fn give(&self, shared: &Shared, client: TcpStream, door: Door) {
        let Some(worker) = self
            .0
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
        else {
            return;
        };
        let given = client.into_std().and_then(|client| {
            worker.connections.fetch_add(1, Ordering::Relaxed);
            worker.queue.send((client, door)).map_err(|_| {
                worker.connections.fetch_sub(1, Ordering::Relaxed);
                io::Error::other("a worker is gone")
            })
        });
        if let Err(error) = given {
            shared.not_taken_over(&error);
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
                let delay = shared.metrics.worker_delay.clone();
                runtime.spawn_local(show_progress(beat, born, delay));
                runtime.block_on(work(shared, connections, arrivals));
            })?;
        let started = starts.recv().map_err(io::Error::other)?;
        started.map(|()| worker)
    }
}

/// What arrives waits for its worker as a tick does: how late ticks are is how
/// long hapax lets bytes wait, at no cost to any request.
async fn show_progress(beat: Arc<AtomicU64>, born: Instant, delay: Histogram) {
    let mut ticks = ticks(BEAT_EVERY);
    loop {
        let due = ticks.tick().await;
        delay.observe(due.elapsed().as_secs_f64());
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
            Err(error) => shared.not_taken_over(&error),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn worker(born: Instant, beat: u64) -> Worker {
        Worker {
            connections: Arc::default(),
            beat: Arc::new(AtomicU64::new(beat)),
            born,
            queue: mpsc::unbounded_channel().0,
        }
    }

    #[test]
    fn one_worker_that_stands_still_is_enough() {
        let minute = Duration::from_secs(60);
        let Some(born) = Instant::now().checked_sub(minute) else {
            panic!("this machine has just been started");
        };
        let moving = Workers(vec![worker(born, 60), worker(born, 59)].into());
        assert!(moving.stalled() < Duration::from_secs(30));
        for stuck in [[0, 60, 60], [60, 0, 60], [60, 60, 0]] {
            let stuck = stuck.map(|beat| worker(born, beat));
            assert!(Workers(stuck.into()).stalled() >= minute);
        }
    }

    #[test]
    fn a_thread_that_is_kept_busy_shows_no_progress_until_it_is_not() {
        let (free, busy) = std_mpsc::channel::<()>();
        let (beat, born) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let shown = Arc::clone(&beat);
        let metrics = Metrics::new(1);
        let seen = metrics.worker_delay.clone();
        let keeper = timers::keeper().unwrap();
        let thread = thread::spawn(move || {
            timers::keep_by(keeper);
            let runtime = local_runtime().unwrap();
            runtime.block_on(async {
                let progress =
                    tokio::task::spawn_local(show_progress(Arc::clone(&shown), born, seen));
                while shown.load(Ordering::Relaxed) == 0 {
                    timers::interval(BEAT_EVERY).tick().await;
                    tokio::task::yield_now().await;
                }
                // Nothing else of this thread runs meanwhile.
                busy.recv().unwrap();
                let then = shown.load(Ordering::Relaxed);
                while shown.load(Ordering::Relaxed) == then {
                    tokio::task::yield_now().await;
                }
                progress.abort();
            });
        });
        while beat.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        // A whole beat would have come in this time.
        let (wait, waited) = std_mpsc::channel::<()>();
        let _ = waited.recv_timeout(3 * BEAT_EVERY);
        drop(wait);
        let stood = beat.load(Ordering::Relaxed);
        assert!(born.elapsed().as_secs() > stood, "it showed progress");
        free.send(()).unwrap();
        thread.join().unwrap();
        assert!(beat.load(Ordering::Relaxed) > stood);
        let delayed = metrics.worker_delay.get_sample_sum();
        assert!(delayed >= BEAT_EVERY.as_secs_f64(), "{delayed}");
    }
}
