//! hapax: a Kafka proxy sidecar that makes "written exactly once" true and visible.

#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{BrokerRow, ConnectionRow, Health, ProducerRow, View};
use crate::config::Config;
use crate::events::Events;
use crate::metrics::Metrics;

pub mod admin;
pub mod cli;
pub mod config;
pub mod events;
pub mod ids;
pub mod logging;
pub mod metrics;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Every client was served to its end, or the time for it was over.
    Drained,
    /// A second signal ended it at once.
    Forced,
}

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An address could not be bound.
    #[error("cannot listen on {address} ({source}): free the port, or choose another")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// The operating system refused what every process needs.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Runs the proxy until it is told to end.
pub fn run(config: Config) -> Result<Exit, RunError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve_admin(config))
}

async fn serve_admin(config: Config) -> Result<Exit, RunError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let address = config.admin.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Bind { address, source })?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "admin listens");
    let metrics = Metrics::new(config.metrics_max_topics);
    let events = Events::new(&metrics);
    let serve = admin::serve(
        listener,
        config.admin.api,
        metrics,
        events,
        Arc::new(Nothing),
    );
    tokio::select! {
        never = serve => match never {},
        _ = terminate.recv() => Ok(Exit::Drained),
    }
}

/// The view of a process without a data path.
struct Nothing;

impl View for Nothing {
    fn health(&self) -> Health {
        Health::default()
    }

    fn producers(&self, _limit: usize) -> Vec<ProducerRow> {
        Vec::new()
    }

    fn connections(&self, _limit: usize) -> Vec<ConnectionRow> {
        Vec::new()
    }

    fn brokers(&self) -> Vec<BrokerRow> {
        Vec::new()
    }

    fn refresh_gauges(&self) {}
}
