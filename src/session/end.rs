//! How a session ends: what is settled, what is still sent, what is told.

use super::Session;
use super::outbox::Outbox;
use super::pipeline::{Pipeline, Unpaired};
use super::route::RequestStage;
use super::settle::Sent;
use crate::ids::NodeId;
use crate::metrics::{DisconnectCause, Limit, Side};
use crate::window::Outcome;
use crate::wire::WireError;
use crate::wire::frame::FrameError;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// How long an orphan session waits for what it is owed.
pub(super) const ORPHAN_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take for its last bytes once its broker is gone.
const LAST_BYTES_PATIENCE: Duration = Duration::from_secs(5);

/// How a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the client hung up")]
    ClientClosed,
    #[error("the connection to the client was lost: {0}")]
    ClientLost(io::Error),
    #[error("the broker closed the connection")]
    UpstreamClosed,
    #[error("the connection to the broker was lost: {0}")]
    UpstreamLost(io::Error),
    #[error("the broker did not answer within {0:?}")]
    UpstreamSilent(Duration),
    #[error("{1}")]
    Frame(Side, FrameError),
    #[error("malformed: {1}")]
    Malformed(Side, WireError),
    #[error("{0}")]
    Unpaired(Unpaired),
    #[error("the client used {api} version {version}, which hapax does not know and did not offer")]
    UnknownVersion { api: &'static str, version: i16 },
    #[error("the broker of the client's port is known by now, and it is not this one")]
    Misled,
}

impl End {
    pub(super) fn cause(&self) -> DisconnectCause {
        match self {
            Self::ClientClosed | Self::ClientLost(_) => DisconnectCause::Client,
            Self::UpstreamClosed
            | Self::UpstreamLost(_)
            | Self::UpstreamSilent(_)
            | Self::Misled => DisconnectCause::Upstream,
            Self::Frame(..)
            | Self::Malformed(..)
            | Self::Unpaired(_)
            | Self::UnknownVersion { .. } => DisconnectCause::Protocol,
        }
    }
}

impl Session {
    /// The client is gone without a word. Returns whether acknowledgements
    /// are owed that its retry could be answered from.
    pub(super) fn become_orphan(&mut self) -> bool {
        let written = self.to_upstream.written();
        let mut tickets = self.tickets.iter();
        let worth_it = self.pipeline.iter().any(|owed| {
            let mut own = tickets.by_ref().take(owed.tickets);
            let worth_it = own.any(|sent| !sent.ticket.transactional);
            own.for_each(drop);
            worth_it && owed.end <= written
        });
        if !worth_it {
            return false;
        }
        let Some(presence) = self.shared.orphan() else {
            self.shared.metrics.limit_reached.with(Limit::Orphans).inc();
            return false;
        };
        self.info.orphan.store(true, Ordering::Relaxed);
        tracing::debug!("client lost, waiting for acknowledgements");
        self.to_upstream.withdraw(&self.quiet);
        self.quiet.clear();
        self.inbox = Vec::new();
        self.collecting = None;
        self.request = RequestStage::Head;
        self.release();
        self.to_client = Outbox::default();
        self.withhold(written);
        self.orphan = Some((self.now + ORPHAN_PATIENCE, presence));
        true
    }

    /// Requests of which a part never left are not owed an answer.
    pub(super) fn withhold(&mut self, written: u64) {
        let mut kept = Pipeline::default();
        let mut kept_tickets = VecDeque::new();
        for owed in self.pipeline.drain() {
            let own: Vec<Sent> = self.tickets.drain(..owed.tickets).collect();
            if owed.end <= written {
                kept_tickets.extend(own);
                kept.push(owed);
            } else {
                for sent in own {
                    let _ = self
                        .shared
                        .ledger
                        .settle(&sent.ticket, Outcome::Withheld, self.time);
                }
                self.shared.answered(&owed, false, self.now.into_std());
            }
        }
        self.pipeline = kept;
        self.tickets = kept_tickets;
    }

    /// Whatever was not answered is unknown, unless it never wholly left.
    pub(super) fn settle_all(&mut self) {
        let written = self.to_upstream.written();
        self.withhold(written);
        for sent in self.tickets.drain(..) {
            let unknown = Outcome::Unknown { candidate: None };
            let _ = self.shared.ledger.settle(&sent.ticket, unknown, self.time);
        }
        for owed in self.pipeline.drain() {
            self.shared.answered(&owed, false, self.now.into_std());
        }
        let ttl = self.shared.ledger.rules().ttl;
        for producer in self.producers.values() {
            producer.trouble(self.time, ttl);
        }
        self.held = None;
    }

    /// Sends the broker what the client sent whole and awaits no answer for.
    pub(super) async fn last_quiet_requests(&mut self) {
        self.to_upstream.withdraw(&self.quiet);
        let flushed = poll_fn(|cx| self.to_upstream.poll_flush(cx, &mut self.upstream));
        // A broker that does not take them has lost nothing it had.
        let _ = tokio::time::timeout(LAST_BYTES_PATIENCE, flushed).await;
    }

    /// Sends the client what is left for it, then says goodbye.
    pub(super) async fn last_bytes(&mut self) {
        let flushed = poll_fn(|cx| self.to_client.poll_flush(cx, &mut self.client));
        if tokio::time::timeout(LAST_BYTES_PATIENCE, flushed)
            .await
            .is_ok_and(|flushed| flushed.is_ok())
        {
            // The peer may be gone already, and that is all that this says.
            let _ = self.client.shutdown().await;
        }
    }

    /// One line about how the session ended, as loud as it deserves.
    pub(super) fn tell(&self, end: &End, unanswered: usize) {
        let client = self.info.client;
        let client_id = self.info.client_id.get().map(|id| &**id);
        let node = self.node.map(NodeId::to_wire);
        match end {
            End::ClientClosed | End::ClientLost(_) | End::Misled => {
                tracing::debug!(%client, client_id, node, reason = %end, "client connection ended");
            }
            End::UpstreamClosed | End::UpstreamLost(_) if unanswered == 0 => {
                tracing::debug!(%client, client_id, node, reason = %end, "broker connection ended");
            }
            End::UpstreamClosed | End::UpstreamLost(_) => {
                tracing::info!(
                    %client, client_id, node, unanswered, reason = %end,
                    "broker connection ended with requests open, client closed"
                );
            }
            End::UpstreamSilent(_) => {
                tracing::warn!(%client, client_id, node, reason = %end, "broker connection ended");
            }
            End::Frame(side, _) | End::Malformed(side, _) => {
                let side = side.label();
                tracing::warn!(%client, client_id, node, side, reason = %end, "connection closed");
            }
            End::Unpaired(_) | End::UnknownVersion { .. } => {
                tracing::warn!(%client, client_id, node, reason = %end, "connection closed");
            }
        }
    }
}

/// A session that panics settles what it owes as well: batches that stay on
/// their way for ever would hold up those behind them.
impl Drop for Session {
    fn drop(&mut self) {
        self.settle_all();
    }
}
