//! What the admin server shows of the proxy.

use super::{BrokerRow, ConfigPage, ConnectionRow, Health, ProducerRow, Reason, TotalsPage, View};

use crate::memory;
use crate::reload::{Reloader, Report};
use crate::session::{Info, Shared};
use crate::snapshot::Lifetime;
use crate::window::Time;
use crate::workers::Workers;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a worker may make no progress before the process counts as dead.
const STALLED_MAX: Duration = Duration::from_secs(10);

/// The proxy as the admin server sees it.
pub struct ProxyView {
    shared: Arc<Shared>,
    workers: Workers,
    bound: AtomicBool,
    lifetime: Arc<Lifetime>,
    reloader: Reloader,
}

impl ProxyView {
    /// A view of a proxy that has not bound its ports yet.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        workers: Workers,
        lifetime: Arc<Lifetime>,
        reloader: Reloader,
    ) -> Self {
        Self {
            shared,
            workers,
            bound: AtomicBool::new(false),
            lifetime,
            reloader,
        }
    }

    /// Every port is bound.
    pub fn started(&self) {
        self.bound.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> Time {
        self.shared.ledger.time(Instant::now())
    }
}

impl View for ProxyView {
    fn health(&self) -> Health {
        let bound = self.bound.load(Ordering::Relaxed);
        // Both stay true once they are.
        let reached = !self.shared.config.require_upstream || self.shared.reached();
        let started = bound && reached;
        let stalled = self.workers.stalled();
        let live = stalled < STALLED_MAX;
        let reachable = self.shared.reachable();
        let draining = self.shared.metrics.draining.get() != 0;
        let mut reasons = Vec::new();
        let mut reason = |fails: bool, check, message: String| {
            if fails {
                reasons.push(Reason { check, message });
            }
        };
        reason(!bound, "listeners", "not every port is bound yet".into());
        reason(
            !reached,
            "startup",
            "startup.requireUpstream is set, and no broker has been reached yet".into(),
        );
        reason(
            !live,
            "workers",
            format!("a worker has made no progress for {stalled:?}"),
        );
        reason(
            !reachable,
            "upstream",
            "no broker could be reached; the log says why".into(),
        );
        reason(
            draining,
            "draining",
            "hapax was told to end; clients are served to their end".into(),
        );
        Health {
            started,
            live,
            ready: started && live && reachable && !draining,
            reasons,
        }
    }

    fn producers(&self, limit: usize) -> Vec<ProducerRow> {
        let now = self.now();
        let ledger = &self.shared.ledger;
        let mut rows = ledger.rows(usize::MAX, now);
        rows.sort_by_key(|row| row.age);
        rows.truncate(limit);
        rows.into_iter()
            .map(|row| {
                let (sequence, offset) = row.summary.last_acked.unzip();
                let producer = ledger.known_producer(row.key.producer);
                let text = |name: Option<&Arc<str>>| name.map(|name| name.to_string());
                let producer = producer.as_deref();
                ProducerRow {
                    producer_id: row.key.producer.to_wire(),
                    epoch: row.summary.epoch.map_or(0, |epoch| epoch.0),
                    client_id: text(producer.and_then(|p| p.client_id.get())),
                    transactional_id: text(producer.and_then(|p| p.transactional_id.get())),
                    topic: ledger.topics.display(row.key.topic),
                    partition: row.key.partition,
                    last_acked_sequence: sequence.map(crate::ids::Sequence::to_wire),
                    last_acked_offset: offset,
                    absorbed: u64::from(row.summary.absorbed),
                    gaps: u64::from(row.summary.gaps),
                    age_seconds: f64::from(row.age),
                }
            })
            .collect()
    }

    fn connections(&self, limit: usize) -> Vec<ConnectionRow> {
        let sessions = self.shared.sessions.iter();
        sessions.take(limit).map(|info| connection(&info)).collect()
    }

    fn brokers(&self) -> Vec<BrokerRow> {
        let brokers = self.shared.brokers.all();
        brokers
            .into_iter()
            .map(|broker| BrokerRow {
                node: broker.node.to_wire(),
                upstream: broker.reached_at.to_string(),
                advertised: broker.address.to_string(),
                port: broker.port,
                present: !broker.vanished,
            })
            .collect()
    }

    fn totals(&self) -> TotalsPage {
        let lifetime = self.lifetime.totals(&self.shared.metrics);
        TotalsPage {
            since_unix_seconds: lifetime.since,
            starts: lifetime.starts,
            totals: lifetime.totals,
        }
    }

    fn config(&self) -> ConfigPage {
        let settings = &self.shared.current().settings;
        ConfigPage {
            config: settings.to_json(),
            origins: settings.origins(),
            reload: self.reloader.newest(),
        }
    }

    fn reload(&self) -> oneshot::Receiver<Report> {
        self.reloader.ask()
    }

    fn drain(&self) -> usize {
        self.shared.told_to_end.notify_one();
        self.workers.connections()
    }

    fn refresh_gauges(&self) {
        let metrics = &self.shared.metrics;
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let windows = self.shared.ledger.windows();
        let batches = self.shared.config.sequence.window_batches;
        metrics.windows.set(gauge(windows));
        metrics
            .windows_bytes
            .set(gauge(windows.saturating_mul(memory::window_bytes(batches))));
        metrics.memory_buffers.set(gauge(self.shared.memory.used()));
        metrics.producers.set(gauge(self.shared.ledger.producers()));
        let slots = self.shared.brokers.all().into_iter();
        metrics
            .broker_slots_used
            .set(gauge(slots.filter(|broker| broker.port.is_some()).count()));
    }
}

fn connection(info: &Info) -> ConnectionRow {
    let user = info.user.lock().unwrap_or_else(PoisonError::into_inner);
    ConnectionRow {
        client: info.client.to_string(),
        client_id: info.client_id.get().map(ToString::to_string),
        port: info.door.port(),
        node: info.node.get().map(|node| node.to_wire()),
        upstream: info.upstream.get().map(ToString::to_string),
        user: user.clone(),
        requests: info.requests.load(Ordering::Relaxed),
        in_flight: info.in_flight.load(Ordering::Relaxed),
        held: info.held.load(Ordering::Relaxed),
        orphan: info.orphan.load(Ordering::Relaxed),
        age_seconds: info.since.elapsed().as_secs_f64(),
    }
}
