//! The end of a process: what clients have begun is brought to its end.

use crate::config::DrainUntil;
use crate::metrics::DisconnectCause;
use crate::session::{Shared, Stage};
use crate::workers::{Workers, ticks};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time;

/// How long a process without connections waits for one more, where it has had
/// one since it was told to end: an application may close one connection
/// before it opens the one by which it says its last.
const QUIET: Duration = Duration::from_millis(500);
/// How often it is looked at, since a connection ends a moment after it has
/// said that it does.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often sessions that are to end are woken, of which one may have missed it.
const NUDGE_EVERY: Duration = Duration::from_millis(400);
/// How long connections that are cut may take to end.
const CUT_PATIENCE: Duration = Duration::from_secs(1);

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Every client was served to its end, or the time for it was over.
    Drained,
    /// A second signal ended it at once.
    Forced,
}

/// Serves clients to their end, as the configuration says; `ports` are the
/// tasks that accept connections. When `end` returns it is forced.
pub async fn drain(
    shared: &Shared,
    workers: &Workers,
    ports: JoinSet<()>,
    mut end: impl AsyncFnMut(),
) -> Exit {
    let drain = shared.current().drain.clone();
    let deadline = time::Instant::now() + drain.timeout;
    shared.metrics.draining.set(1);
    let connections = workers.connections();
    if connections > 0 || !drain.min_delay.is_zero() {
        let (timeout, min_delay) = (drain.timeout, drain.min_delay);
        match drain.until {
            DrainUntil::Connections => tracing::info!(
                connections,
                ?timeout,
                ?min_delay,
                "draining: clients are served until they hang up; a second signal ends at once"
            ),
            DrainUntil::Requests => tracing::info!(
                connections,
                ?timeout,
                ?min_delay,
                "draining: requests that have come are answered, then clients are closed; a second signal ends at once"
            ),
        }
    }
    let served = async {
        time::sleep(drain.min_delay).await;
        serve_to_the_end(shared, workers, drain.until, ports).await;
    };
    tokio::select! {
        biased;
        () = served => Exit::Drained,
        () = end() => Exit::Forced,
        () = time::sleep_until(deadline) => {
            cut(shared, workers).await;
            Exit::Drained
        }
    }
}

async fn serve_to_the_end(
    shared: &Shared,
    workers: &Workers,
    until: DrainUntil,
    mut ports: JoinSet<()>,
) {
    if until == DrainUntil::Requests {
        // A client that finds no port goes elsewhere.
        ports.shutdown().await;
        shared.enter(Stage::Leaving);
        return all_gone(shared, workers).await;
    }
    while workers.connections() > 0 {
        all_gone(shared, workers).await;
        let quiet_since = Instant::now();
        let mut looks = ticks(LOOK_EVERY);
        while workers.connections() == 0 && quiet_since.elapsed() < QUIET {
            looks.tick().await;
        }
    }
}

/// Waits until no connection is left.
async fn all_gone(shared: &Shared, workers: &Workers) {
    let (mut looks, mut nudges) = (ticks(LOOK_EVERY), ticks(NUDGE_EVERY));
    while workers.connections() > 0 {
        tokio::select! {
            () = shared.gone.notified() => {}
            _ = looks.tick() => {}
            _ = nudges.tick() => if shared.stage() != Stage::Serving {
                shared.nudge();
            }
        }
    }
}

/// Ends what is left, and says what that was.
async fn cut(shared: &Shared, workers: &Workers) {
    shared.enter(Stage::Cut);
    let metrics = &shared.metrics;
    let cut = metrics
        .client_disconnects
        .with(DisconnectCause::DrainTimeout);
    let gone = time::timeout(CUT_PATIENCE, all_gone(shared, workers)).await;
    if gone.is_err() {
        // Each counts itself, but for those whose worker is stuck.
        let left = shared
            .sessions
            .iter()
            .filter(|info| !info.is_counted())
            .count();
        cut.inc_by(left as u64);
    }
    let (connections, requests) = (cut.get(), metrics.drain_cut_requests.get());
    tracing::warn!(
        connections,
        requests,
        "the time to drain is over, clients are cut: those with requests open send them again"
    );
}
