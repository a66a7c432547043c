//! How a session ends: what is settled, what is still sent, what is told.

use super::Session;
use super::outbox::Outbox;
use super::pipeline::{Pipeline, Unpaired};
use super::route::RequestStage;
use super::settle::Sent;
use super::told::{Matter, several};
use crate::ids::NodeId;
use crate::metrics::{DisconnectCause, Limit, Side};
use crate::sasl::LoginError;
use crate::timers::timeout;
use crate::tls::HandshakeError;
use crate::upstream::of_upstream;
use crate::window::Outcome;
use crate::wire::WireError;
use crate::wire::frame::{FrameError, Stranger};
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
    #[error("neither side said anything for {0:?} (timeouts.idle)")]
    Idle(Duration),
    #[error("a request arrives at less than 1 KiB a second for {0:?} (timeouts.request)")]
    Slow(Duration),
    #[error("{1}")]
    Frame(Side, FrameError),
    #[error("{}", stranger(*.0, *.1))]
    Stranger(Side, Stranger),
    #[error("malformed: {1}")]
    Malformed(Side, WireError),
    #[error("{0}")]
    Unpaired(Unpaired),
    #[error("the client used {api} version {version}, which hapax does not know and did not offer")]
    UnknownVersion { api: &'static str, version: i16 },
    #[error("refused what cannot be answered: {0}")]
    Refused(&'static str),
    #[error("{0}: raise memory.limit, or find who does not read")]
    Memory(&'static str),
    #[error("hapax ends, and every request is answered")]
    Drained,
    #[error("the client's user is not in listen.sasl.usersFile any more")]
    Removed,
    #[error("the time that hapax had to end is over")]
    Cut,
    #[error("the broker of the client's port is known by now, and it is not this one")]
    Misled,
    #[error("hapax is not logged in to the broker any more: {0}")]
    LoggedOut(LoginError),
    #[error("hapax logs in to the brokers as another user by now")]
    Renamed,
}

impl End {
    /// Whose fault it was, where it was that of what one side said.
    fn side(&self) -> Side {
        match self {
            Self::Frame(side, _) | Self::Stranger(side, _) | Self::Malformed(side, _) => *side,
            Self::ClientClosed
            | Self::ClientLost(_)
            | Self::UnknownVersion { .. }
            | Self::Refused(_)
            | Self::Idle(_)
            | Self::Slow(_)
            | Self::Memory(_)
            | Self::Drained
            | Self::Removed
            | Self::Cut => Side::Client,
            Self::UpstreamClosed
            | Self::UpstreamLost(_)
            | Self::UpstreamSilent(_)
            | Self::Unpaired(_)
            | Self::Misled
            | Self::LoggedOut(_)
            | Self::Renamed => Side::Upstream,
        }
    }

    /// Whether TLS ended it, as it does when a peer takes back what it had agreed
    /// on: so a certificate is refused in TLS 1.3.
    fn is_of_tls(&self) -> bool {
        let (Self::ClientLost(error) | Self::UpstreamLost(error)) = self else {
            return false;
        };
        HandshakeError::within(error).is_some()
    }

    pub(super) fn cause(&self) -> DisconnectCause {
        match self {
            _ if self.is_of_tls() => DisconnectCause::Tls,
            Self::ClientClosed | Self::ClientLost(_) => DisconnectCause::Client,
            Self::UpstreamClosed
            | Self::UpstreamLost(_)
            | Self::UpstreamSilent(_)
            | Self::Misled
            | Self::LoggedOut(_)
            | Self::Renamed => DisconnectCause::Upstream,
            Self::Frame(..)
            | Self::Stranger(..)
            | Self::Malformed(..)
            | Self::Unpaired(_)
            | Self::UnknownVersion { .. } => DisconnectCause::Protocol,
            Self::Refused(_) => DisconnectCause::Policy,
            Self::Idle(_) => DisconnectCause::Idle,
            Self::Slow(_) => DisconnectCause::Slow,
            Self::Memory(_) => DisconnectCause::Memory,
            Self::Drained => DisconnectCause::Drain,
            Self::Removed => DisconnectCause::Sasl,
            Self::Cut => DisconnectCause::DrainTimeout,
        }
    }
}

impl Session {
    /// The client is gone without a word. Returns whether acknowledgements
    /// are owed that its retry could be answered from.
    pub(super) fn become_orphan(&mut self) -> bool {
        self.drop_read_back();
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
        let Some(presence) = self.shared.orphan(self.config.limits.orphans) else {
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
        self.queue = None;
        self.to_client = Outbox::default();
        self.withhold(written);
        self.orphan = Some((self.now.after(ORPHAN_PATIENCE), presence));
        true
    }

    /// Requests of which a part never left are not owed an answer.
    pub(super) fn withhold(&mut self, written: u64) {
        let mut kept = Pipeline::default();
        let mut kept_tickets = VecDeque::new();
        for owed in std::mem::take(&mut self.pipeline).drain() {
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
                self.answered(&owed, false);
            }
        }
        self.pipeline = kept;
        self.tickets = kept_tickets;
    }

    /// Whatever was not answered is unknown, unless it never wholly left.
    pub(super) fn settle_all(&mut self) {
        self.drop_read_back();
        let written = self.to_upstream.written();
        self.withhold(written);
        for sent in self.tickets.drain(..) {
            let unknown = Outcome::Unknown { candidate: None };
            let _ = self.shared.ledger.settle(&sent.ticket, unknown, self.time);
        }
        for owed in std::mem::take(&mut self.pipeline).drain() {
            self.answered(&owed, false);
        }
        let ttl = self.shared.ledger.rules().ttl;
        for producer in self.producers.values() {
            producer.trouble(self.time, ttl);
        }
        self.held = None;
        self.queue = None;
    }

    /// Sends the broker what the client sent whole and awaits no answer for.
    pub(super) async fn last_quiet_requests(&mut self) {
        self.to_upstream.withdraw(&self.quiet);
        let flushed = poll_fn(|cx| self.to_upstream.poll_flush(cx, &mut self.upstream));
        // A broker that does not take them has lost nothing it had.
        let _ = timeout(LAST_BYTES_PATIENCE, flushed).await;
    }

    /// Sends the client what is left for it, then says goodbye.
    pub(super) async fn last_bytes(&mut self) {
        let flushed = poll_fn(|cx| self.to_client.poll_flush(cx, &mut self.client));
        if timeout(LAST_BYTES_PATIENCE, flushed)
            .await
            .is_ok_and(|flushed| flushed.is_ok())
        {
            // The peer may be gone already, and that is all that this says.
            let _ = self.client.shutdown().await;
        }
    }

    /// One line about how the session ended, as loud as it deserves, and not
    /// for every try of a client that tries on.
    pub(super) fn tell(&self, end: &End, unanswered: usize) {
        let client = self.info.client;
        let client_id = self.info.client_id.get().map(|id| &**id);
        let node = self.node.map(NodeId::to_wire);
        let matter = self.matter(end, unanswered);
        let repeated = matter.and_then(|matter| self.shared.may_tell(matter));
        let Some(repeated) = repeated else {
            tracing::debug!(%client, client_id, node, unanswered, reason = %end, "connection ended");
            return;
        };
        let repeated = several(repeated);
        match end {
            End::UpstreamClosed | End::UpstreamLost(_) if !end.is_of_tls() => {
                tracing::info!(
                    %client, client_id, node, unanswered, repeated, reason = %end,
                    "broker connection ended with requests open, client closed"
                );
            }
            End::UpstreamSilent(_) => {
                tracing::warn!(
                    %client, client_id, node, repeated, reason = %end,
                    "broker connection ended"
                );
            }
            _ => {
                let side = end.side().label();
                tracing::warn!(
                    %client, client_id, node, side, repeated, reason = %end,
                    "connection closed"
                );
            }
        }
    }

    /// What of an end is worth telling, if anything.
    fn matter(&self, end: &End, unanswered: usize) -> Option<Matter> {
        match end {
            End::ClientLost(_) if end.is_of_tls() => Some(Matter::ClientTls(self.info.client.ip())),
            End::UpstreamLost(_) if end.is_of_tls() => Some(Matter::BrokerLost(self.node)),
            End::ClientClosed
            | End::ClientLost(_)
            | End::Idle(_)
            | End::Misled
            | End::Renamed
            | End::Drained
            | End::Cut => None,
            End::LoggedOut(_) => Some(Matter::Login(self.node)),
            End::Removed => Some(Matter::ClientSasl(self.info.client.ip())),
            End::UpstreamClosed | End::UpstreamLost(_) if unanswered == 0 => None,
            End::UpstreamClosed | End::UpstreamLost(_) | End::UpstreamSilent(_) => {
                Some(Matter::BrokerLost(self.node))
            }
            End::Memory(_) => Some(Matter::NoMemory),
            End::Stranger(Side::Client, stranger) => {
                Some(Matter::ClientStranger(self.info.client.ip(), *stranger))
            }
            End::Stranger(Side::Upstream, _) => Some(Matter::BrokerStranger(self.node)),
            End::Frame(..)
            | End::Malformed(..)
            | End::Unpaired(_)
            | End::UnknownVersion { .. }
            | End::Slow(_)
            | End::Refused(_) => Some(match end.side() {
                Side::Client => Matter::ClientSpeech(self.info.client.ip()),
                Side::Upstream => Matter::BrokerSpeech(self.node),
            }),
        }
    }
}

/// Who speaks another protocol, and what to do.
fn stranger(side: Side, stranger: Stranger) -> &'static str {
    match (side, stranger) {
        (Side::Upstream, stranger) => of_upstream(stranger),
        (Side::Client, Stranger::Tls) => {
            "the client speaks TLS, and this is a plaintext listener: set its security.protocol to PLAINTEXT, or to SASL_PLAINTEXT where it says SASL_SSL; or give hapax a certificate (listen.tls.certFile)"
        }
        (Side::Client, Stranger::Http | Stranger::Http2) => {
            "the client speaks HTTP, and this is a listener for Kafka's protocol: metrics, probes and the API are at --admin-listen"
        }
        (Side::Client, Stranger::ProxyProtocol) => {
            "a load balancer sends a PROXY protocol header: turn that off there"
        }
    }
}

/// A session that panics settles what it owes as well: batches that stay on
/// their way for ever would hold up those behind them.
impl Drop for Session {
    fn drop(&mut self) {
        self.settle_all();
        self.leave_room();
    }
}
