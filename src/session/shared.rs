//! What all sessions share, and what an operator sees of each.

use crate::config::Config;
use crate::events::Events;
use crate::ids::{NodeId, TopicKey};
use crate::ledger::{Identity, Ledger, Realm};
use crate::memory::{self, Budget, Division};
use crate::metrics::{
    self, BadFrame, ConnectError, DisconnectCause, Limit, Metrics, Presence, Side,
};
use crate::sasl::{LoginError, Sasl};
use crate::session::end::End;
use crate::session::greeting::Greetings;
use crate::session::leave::Stage;
use crate::session::told::{Matter, Told, several};
use crate::timers::timeout;
use crate::tls::{HandshakeError, LoadError, Reason, Stream, Tls};
use crate::upstream::{
    Backoff, Broker, Brokers, DialError, Dialled, Dialler, Learned, Own, ProbeError, Target, ask,
};
use crate::users::{self, Users};
use crate::window::Time;
use crate::wire::frame::{FrameError, Stranger};
use dashmap::DashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};

/// The port that a client came in by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Door {
    /// The bootstrap port.
    Bootstrap(u16),
    /// The port of a broker slot.
    Broker(u16),
}

impl Door {
    /// Its number.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Bootstrap(port) | Self::Broker(port) => port,
        }
    }
}

/// What all sessions share.
pub struct Shared {
    /// What the process was told to do when it began. What can change since
    /// is read from [`Shared::current`].
    pub config: Config,
    /// What it is told to do now.
    current: RwLock<Arc<Config>>,
    /// How often `current` or `stage` has changed: what a session compares,
    /// once in a wake-up.
    version: AtomicU32,
    /// How far the process is on its way to its end.
    stage: watch::Sender<Stage>,
    /// Notified when somebody asks for the end.
    pub told_to_end: Notify,
    /// All windows.
    pub ledger: Ledger,
    /// The slot table.
    pub brokers: Brokers,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// The event ring.
    pub events: Arc<Events>,
    /// The sessions that are open, by number.
    pub sessions: DashMap<u64, Arc<Info>>,
    /// Addresses that lead to hapax itself.
    pub own: Own,
    /// What TLS is spoken by, on either side.
    pub tls: Tls,
    /// What connections have of the memory.
    pub memory: Budget,
    /// What each of them costs.
    connection_bytes: usize,
    /// How many of them fit.
    connections_fit: usize,
    /// What hapax logs in to brokers by, where it does so itself.
    pub sasl: Sasl,
    /// Whom clients have to authenticate as, where they have to.
    pub users: Option<Users>,
    /// Passwords that may be looked at at once.
    pub(super) password_checks: Arc<Semaphore>,
    /// What brokers say to clients that nobody knows yet.
    pub(super) greetings: Greetings,
    sessions_made: AtomicU64,
    /// Bytes of unfinished requests that sessions have set out to collect.
    collected: AtomicUsize,
    /// Whether the last attempt to reach a broker succeeded.
    reachable: AtomicBool,
    /// Whether one ever has.
    reached: AtomicBool,
    /// The brokers that could not be reached just now.
    backoff: Backoff,
    told: Told,
    /// Records that are older, in milliseconds since 1970, may make a broker
    /// forget their producer at once.
    old_before: AtomicI64,
    /// Connections that read a log back.
    reading: AtomicUsize,
    /// When who was refused to read a topic.
    refused: DashMap<(Realm, TopicKey), Time>,
    /// Notified whenever a session ends.
    pub gone: Notify,
}

/// How the memory that the process may use is divided.
#[must_use]
pub fn division(config: &Config) -> Division {
    let sequence = &config.sequence;
    let window = memory::window_bytes(sequence.window_batches);
    Division::of(config.memory_limit, sequence.max_windows, window)
}

/// Refusals that are remembered.
const REFUSED_MAX: usize = 10_000;
/// For how long: somebody may have granted what was refused.
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// By how much the clocks of brokers and of this machine may differ, as a
/// divisor of the brokers' expiry, and by how much [`Shared::see_time`] may
/// come late.
const CLOCK_SHARE: u32 = 24;
const CLOCK_LATE: Duration = Duration::from_secs(10);

/// What hapax shows to whom, and whom it believes.
#[derive(Default)]
pub struct Trusted {
    /// TLS, on either side.
    pub tls: Tls,
    /// Its own logins to brokers.
    pub sasl: Sasl,
    /// Whom clients have to authenticate as.
    pub users: Option<Users>,
}

impl Shared {
    /// Everything at its beginning.
    #[must_use]
    pub fn new(
        config: Config,
        ledger: Ledger,
        (brokers, own): (Brokers, Own),
        metrics: Arc<Metrics>,
        events: Arc<Events>,
        Trusted { tls, sasl, users }: Trusted,
    ) -> Self {
        let division = division(&config);
        let secured = [tls.is_for_clients(), tls.is_for_brokers()];
        let secured = secured.into_iter().filter(|secured| *secured).count();
        let connection_bytes = memory::connection_bytes(secured);
        let shared = Self {
            memory: Budget::new(division.buffers),
            connection_bytes,
            connections_fit: division.connections(connection_bytes),
            password_checks: Arc::new(Semaphore::new(config.workers)),
            greetings: Greetings::default(),
            users,
            current: RwLock::new(Arc::new(config.clone())),
            version: AtomicU32::new(0),
            stage: watch::Sender::new(Stage::Serving),
            told_to_end: Notify::new(),
            config,
            ledger,
            brokers,
            metrics,
            events,
            sessions: DashMap::new(),
            own,
            tls,
            sasl,
            sessions_made: AtomicU64::new(0),
            collected: AtomicUsize::new(0),
            reachable: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            backoff: Backoff::default(),
            told: Told::default(),
            old_before: AtomicI64::new(i64::MIN),
            reading: AtomicUsize::new(0),
            refused: DashMap::new(),
            gone: Notify::new(),
        };
        shared.see_time();
        shared.show_certificates();
        shared
    }

    /// Takes new certificates and CAs, where the files of a side have changed.
    ///
    /// # Errors
    ///
    /// What is wrong with the files; hapax goes on with what it has.
    pub fn reload_tls(&self, side: Side) -> Result<bool, LoadError> {
        let reloaded = match side {
            Side::Client => self.tls.reload_to_clients(),
            Side::Upstream => self.tls.reload_to_brokers(),
        }?;
        self.show_certificates();
        Ok(reloaded)
    }

    fn show_certificates(&self) {
        let shown = self.tls.shown();
        let sides = [
            (Side::Client, shown.to_clients),
            (Side::Upstream, shown.to_brokers),
        ];
        for (side, validity) in sides {
            if let Some(validity) = validity {
                let expiry = &self.metrics.tls_certificate_expiry;
                expiry.with(side).set(validity.until);
            }
        }
    }

    /// What the process is told to do now.
    #[must_use]
    pub fn current(&self) -> Arc<Config> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells all sessions to do something else from their next request on.
    pub fn change(&self, config: Config) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(config);
        drop(current);
        self.version.fetch_add(1, Ordering::Release);
        self.see_time();
        // One that waits for nothing would not hear of a shorter time.
        self.nudge();
    }

    /// Reads the users again; who is none any more is let go.
    ///
    /// # Errors
    ///
    /// What is wrong with their file; all stays as it was.
    pub fn reload_users(&self) -> Result<bool, users::LoadError> {
        let reloaded = self.users.as_ref().map(Users::reload).transpose()?;
        let reloaded = reloaded.unwrap_or(false);
        if reloaded {
            self.version.fetch_add(1, Ordering::Release);
            self.nudge();
        }
        Ok(reloaded)
    }

    /// Whether this is a user that clients could once authenticate as to hapax.
    pub(super) fn has_removed(&self, user: Option<&str>) -> bool {
        let users = self.users.as_ref().zip(user);
        users.is_some_and(|(users, user)| !users.list().has(user))
    }

    /// How often there was news for sessions.
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// How far the process is on its way to its end.
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Takes the process on, on its way to its end.
    pub fn enter(&self, stage: Stage) {
        self.stage.send_replace(stage);
        self.version.fetch_add(1, Ordering::Release);
        self.nudge();
    }

    /// Wakes every session, so that it looks at the stage. One that comes just
    /// now may miss it: while it matters, call it again.
    pub fn nudge(&self) {
        for info in &self.sessions {
            if let Some(waker) = info.waker.get() {
                waker.wake_by_ref();
            }
        }
    }

    /// Waits until sessions are cut.
    pub(super) async fn cut(&self) {
        let mut stage = self.stage.subscribe();
        // The stages last as long as everything that is shared.
        let _ = stage.wait_for(|stage| *stage == Stage::Cut).await;
    }

    /// Waits until sessions are to end; returns why.
    pub(super) async fn end(&self) -> DisconnectCause {
        let mut stage = self.stage.subscribe();
        let stage = stage.wait_for(|stage| *stage != Stage::Serving).await;
        match stage.as_deref() {
            Ok(Stage::Cut) => DisconnectCause::DrainTimeout,
            // The stages last as long as everything that is shared.
            Ok(Stage::Serving | Stage::Leaving) | Err(_) => DisconnectCause::Drain,
        }
    }

    /// Looks at the clock on the wall, by which brokers forget producers. Call
    /// it every few seconds.
    pub fn see_time(&self) {
        let sequence = &self.current().sequence;
        if !sequence.resolve {
            self.old_before.store(i64::MIN, Ordering::Relaxed);
            return;
        }
        let expiry = sequence.broker_producer_expiry;
        let margin = expiry / CLOCK_SHARE + CLOCK_LATE;
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let old = since_1970.saturating_sub(expiry.saturating_sub(margin));
        let old = i64::try_from(old.as_millis()).unwrap_or(i64::MAX);
        self.old_before.store(old, Ordering::Relaxed);
    }

    /// Records that are older, in milliseconds since 1970, may make a broker
    /// forget their producer as soon as they are written.
    pub(super) fn old_before(&self) -> i64 {
        self.old_before.load(Ordering::Relaxed)
    }

    /// One more connection reads a log back, if there are fewer than `limit`.
    pub(super) fn read_log(self: &Arc<Self>, limit: usize) -> Option<Reads> {
        let before = self.reading.fetch_add(1, Ordering::Relaxed);
        let reads = Reads(Arc::clone(self));
        if before < limit {
            return Some(reads);
        }
        self.metrics.limit_reached.with(Limit::Resolves).inc();
        None
    }

    /// Whether somebody was refused to read a topic, not long ago.
    pub(super) fn is_refused(&self, realm: Realm, topic: TopicKey, now: Time) -> bool {
        let refused = self.refused.get(&(realm, topic));
        refused.is_some_and(|at| at.within(REFUSED_FOR, now))
    }

    /// Somebody was refused to read a topic.
    pub(super) fn refuse(&self, realm: Realm, topic: TopicKey, now: Time) {
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.insert((realm, topic), now);
    }

    /// Speaks TLS with a client, where it has to.
    pub(super) async fn welcome(&self, client: TcpStream) -> Result<Stream, Unwelcome> {
        let after = self.current().timeouts.tls;
        match timeout(after, self.tls.accept(client)).await {
            Ok(welcomed) => welcomed.map_err(Unwelcome::Tls),
            Err(_) => Err(Unwelcome::Silent(after)),
        }
    }

    pub(super) fn turned_away(&self, client: SocketAddr, why: &Unwelcome) {
        if let Unwelcome::Tls(HandshakeError {
            reason: Reason::NotTls,
            ..
        }) = why
        {
            self.metrics
                .bad_frames
                .with(Side::Client, BadFrame::Plaintext)
                .inc();
        }
        if let Some(repeated) = self.may_tell(Matter::ClientTls(client.ip())) {
            let repeated = several(repeated);
            tracing::warn!(%client, repeated, reason = %why, "no TLS with a client, client closed");
        }
    }

    /// Connects to a broker for a client, unless it could not be reached just
    /// now: see [`Backoff`].
    ///
    /// # Errors
    ///
    /// Those of [`Dialler::dial`], or that it is left alone.
    pub(super) async fn dial_for_client(&self, target: &Target) -> Result<Dialled, DialError> {
        let config = self.current().backoff;
        let leave = self.backoff.leave(target, config, Instant::now());
        let attempt = leave.map_err(DialError::LeftAlone)?;
        let dialled = self.dial(target).await;
        if dialled.is_err() {
            let now = Instant::now();
            self.backoff.failed(target, attempt, config, now);
        }
        dialled
    }

    /// Connects to a broker.
    ///
    /// # Errors
    ///
    /// Those of [`Dialler::dial`].
    pub async fn dial(&self, target: &Target) -> Result<Dialled, DialError> {
        let config = self.current();
        let dialler = Dialler {
            timeouts: &config.timeouts,
            own: &self.own,
            tls: &self.tls,
            sasl: &self.sasl,
        };
        let dialled = dialler.dial(target).await;
        match &dialled {
            Ok((_, Dialled { login: Some(_), .. })) => self.logged_in(metrics::Login::Ok),
            Err(DialError::Login { error, .. }) => self.not_logged_in(error),
            Ok(_) | Err(_) => {}
        }
        match (target.node, &dialled) {
            (None, Err(_)) => self.found(false),
            // Whether what took the connection is a Kafka, the probe finds out.
            (None, Ok((address, _))) => self.brokers.bootstrap_reached(address),
            (Some(_), Err(_)) => {}
            (Some(_), Ok(_)) => self.found(true),
        }
        if dialled.is_ok() {
            self.backoff.reached(target);
        }
        dialled.map(|(_, dialled)| dialled)
    }

    pub(super) fn logged_in(&self, how: metrics::Login) {
        self.metrics.upstream_logins.with(how).inc();
    }

    pub(super) fn not_logged_in(&self, error: &LoginError) {
        self.logged_in(match error {
            LoginError::Refused { .. } | LoginError::Mechanism { .. } | LoginError::Scram(_) => {
                metrics::Login::Refused
            }
            _ => metrics::Login::Failed,
        });
    }

    /// A client wants to log in where hapax does that itself.
    pub(super) fn logs_in_itself(&self, client: SocketAddr, client_id: Option<&str>) {
        if let Some(repeated) = self.may_tell(Matter::ClientLogin(client.ip())) {
            let repeated = several(repeated);
            tracing::warn!(
                %client, client_id, repeated,
                "a client wants to log in, and hapax logs in to the brokers itself (upstream.sasl.mechanism): set its security.protocol to PLAINTEXT, or to SSL where it says SASL_SSL; client refused with error 34"
            );
        }
    }

    /// Asks the upstream whether it is there, unless a client's connection
    /// shows that it is.
    ///
    /// # Errors
    ///
    /// Why no client could be served now.
    pub async fn probe(&self) -> Result<(), ProbeError> {
        let served = |info: dashmap::mapref::multiple::RefMulti<'_, u64, Arc<Info>>| {
            info.upstream.get().is_some()
        };
        if self.reachable() && self.sessions.iter().any(served) {
            return Ok(());
        }
        let asked = match self.dial(&self.brokers.bootstrap()).await {
            Ok(upstream) => ask(upstream.stream, self.current().timeouts.connect).await,
            Err(error) => Err(error.into()),
        };
        self.found(asked.is_ok());
        asked
    }

    /// A broker could, or could not, be reached.
    fn found(&self, reachable: bool) {
        self.reachable.store(reachable, Ordering::Relaxed);
        if reachable {
            self.reached.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a broker was ever reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Whether a broker could be reached when that was tried last.
    #[must_use]
    pub fn reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    pub(super) fn cannot_dial(&self, target: &Target, client: SocketAddr, error: &DialError) {
        let cause = match error {
            DialError::Resolve { .. } => ConnectError::Resolve,
            DialError::Refused { .. } => ConnectError::Refused,
            DialError::Timeout { .. } => ConnectError::Timeout,
            DialError::Loop { .. } => ConnectError::Loop,
            DialError::Tls { .. } | DialError::TlsTimeout { .. } => ConnectError::Tls,
            DialError::LeftAlone(_) => ConnectError::LeftAlone,
            DialError::Login { .. } => ConnectError::Sasl,
            DialError::Connect { .. } | DialError::Nothing => ConnectError::Other,
        };
        self.metrics.upstream_connect_errors.with(cause).inc();
        if let DialError::LeftAlone(_) = error {
            // Why it is was told when it was tried.
            let node = target.node.map(NodeId::to_wire);
            tracing::debug!(node, %client, reason = %error, "client closed");
            return;
        }
        if let Some(repeated) = self.may_tell(Matter::Unreachable(target.node)) {
            let repeated = several(repeated);
            let node = target.node.map(NodeId::to_wire);
            if self.has_vanished(target) {
                tracing::info!(
                    node, %client, repeated, reason = %error,
                    "cannot reach a broker that the cluster no longer lists, client closed"
                );
                return;
            }
            let advice = match error {
                // The reason says it.
                DialError::Tls { .. } | DialError::TlsTimeout { .. } | DialError::Login { .. } => {
                    String::new()
                }
                _ => self.advice(target),
            };
            tracing::error!(
                node, %client, repeated, reason = %error, advice,
                "cannot reach the broker, client closed"
            );
        }
    }

    /// Whether the cluster no longer lists the broker: clients that know it hear
    /// of that from another one.
    fn has_vanished(&self, target: &Target) -> bool {
        let mut brokers = self.brokers.all().into_iter();
        brokers.any(|broker| Some(broker.node) == target.node && broker.vanished)
    }

    /// What to do about a target that cannot be reached.
    fn advice(&self, target: &Target) -> String {
        let mut brokers = self.brokers.all().into_iter();
        let broker = brokers.find(|broker| Some(broker.node) == target.node);
        match broker {
            None => "correct --upstream: hapax check --connect says more".to_owned(),
            Some(Broker {
                address,
                reached_at,
                ..
            }) if address != reached_at => {
                format!("correct the entry {address}={reached_at} of --upstream-address-map")
            }
            Some(Broker { address, .. }) => format!(
                "the broker advertises {address}: let it advertise what hapax can reach (advertised.listeners), or start hapax with --upstream-address-map {address}=HOST:PORT"
            ),
        }
    }

    /// Whether it is time again to tell of something, and how often it has
    /// happened since.
    pub(super) fn may_tell(&self, matter: Matter) -> Option<u64> {
        self.told.may_tell(matter, Instant::now())
    }

    /// Connections that fit into `memory.limit`.
    #[must_use]
    pub fn connections_fit(&self) -> usize {
        self.connections_fit
    }

    /// Whether one more client may come where so many are; if not, that is
    /// told.
    pub fn may_come(&self, open: usize) -> bool {
        if open >= self.current().limits.connections {
            self.too_many(open);
            return false;
        }
        if open < self.connections_fit && self.memory.has(self.connection_bytes) {
            return true;
        }
        self.metrics.limit_reached.with(Limit::Memory).inc();
        if let Some(repeated) = self.may_tell(Matter::NoMemory) {
            let repeated = several(repeated);
            let used = self.memory.used();
            tracing::warn!(
                open,
                used,
                repeated,
                "no memory for another connection, client closed: raise memory.limit, or find who opens them or does not read (/api/v1/connections)"
            );
        }
        false
    }

    /// A client was closed because there are too many.
    fn too_many(&self, open: usize) {
        self.metrics.limit_reached.with(Limit::Connections).inc();
        if let Some(repeated) = self.may_tell(Matter::Full) {
            let repeated = several(repeated);
            tracing::warn!(
                open,
                repeated,
                "too many connections, client closed: raise --limits-connections, or find who opens them (/api/v1/connections)"
            );
        }
    }

    /// A client was closed because the system gives no room for it.
    pub fn not_taken_over(&self, error: &io::Error) {
        if let Some(repeated) = self.may_tell(Matter::NotTakenOver) {
            let repeated = several(repeated);
            tracing::error!(%error, repeated, "a connection cannot be served, client closed");
        }
    }

    /// The port that clients are told for a broker; 0 where none is left,
    /// which no client can mistake for a broker.
    pub(super) fn port_for(&self, node: NodeId, host: &str, port: u16) -> u16 {
        match self.brokers.learn(node, host, port, Instant::now()) {
            Learned::Port(port) => port,
            Learned::Forgotten => {
                self.metrics.limit_reached.with(Limit::Brokers).inc();
                0
            }
            Learned::Exhausted(news) => {
                if news {
                    self.metrics.broker_slots_exhausted.inc();
                }
                // Ids may change with every answer of an upstream gone wrong.
                if news && let Some(repeated) = self.may_tell(Matter::NoPort) {
                    let repeated = several(repeated);
                    tracing::error!(
                        %node,
                        host,
                        port,
                        repeated,
                        "no port left for this broker, or another one has it: widen --broker-ports, or set it by --listen-node-slots; clients cannot reach it"
                    );
                }
                0
            }
        }
    }

    /// The host that the clients of a connection are told.
    pub(super) fn advertised(&self, client: &TcpStream) -> Arc<str> {
        if let Some(host) = &self.config.advertised_host {
            return host.as_str().into();
        }
        let bound = self.config.listen.ip();
        let ip = if bound.is_unspecified() {
            client.local_addr().map_or(bound, |a| a.ip().to_canonical())
        } else {
            bound
        };
        ip.to_string().into()
    }

    /// Counts an orphan session, if there are fewer than `limit`.
    pub(super) fn orphan(&self, limit: usize) -> Option<Presence> {
        let gauge = &self.metrics.orphan_sessions;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        (gauge.get() < limit).then(|| Presence::of(gauge))
    }

    /// Sets room aside for a request that is to be collected, if there is any
    /// within `limit` and of the memory.
    pub(super) fn collect(self: &Arc<Self>, bytes: usize, limit: usize) -> Option<Collecting> {
        let before = self.collected.fetch_add(bytes, Ordering::Relaxed);
        let mut room = Collecting {
            shared: Arc::clone(self),
            bytes,
            memory: 0,
        };
        if before.saturating_add(bytes) > limit {
            self.metrics.limit_reached.with(Limit::CollectedBytes).inc();
            return None;
        }
        let memory = memory::in_steps(bytes.saturating_mul(memory::COPIES));
        // Who collects must not leave others with what is scarce.
        if !self.memory.try_take_spare(memory) {
            self.metrics.limit_reached.with(Limit::Memory).inc();
            return None;
        }
        room.memory = memory;
        Some(room)
    }

    pub(super) fn disconnected(&self, cause: DisconnectCause) {
        self.metrics.client_disconnects.with(cause).inc();
    }

    /// Counts bytes that are no Kafka frame; returns what they probably are.
    pub(super) fn bad_frame(&self, side: Side, first: &[u8], error: FrameError) -> End {
        let stranger = Stranger::recognise(first);
        let reason = match (stranger, error) {
            (Some(Stranger::Tls), _) => BadFrame::Tls,
            (Some(Stranger::Http | Stranger::Http2), _) => BadFrame::Http,
            (Some(Stranger::ProxyProtocol), _) => BadFrame::ProxyProtocol,
            (None, FrameError::Negative(_)) => BadFrame::Negative,
            (None, FrameError::TooShort { .. }) => BadFrame::Short,
            (None, FrameError::TooLong { .. }) => BadFrame::TooLong,
        };
        self.metrics.bad_frames.with(side, reason).inc();
        match stranger {
            Some(stranger) => End::Stranger(side, stranger),
            None => End::Frame(side, error),
        }
    }
}

/// Why a client is not spoken with.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwelcome {
    #[error(transparent)]
    Tls(HandshakeError),
    #[error("the client does not finish the TLS handshake within {0:?} (timeouts.tls)")]
    Silent(Duration),
}

/// A connection's turn to read a log back, for as long as it lives.
pub(super) struct Reads(Arc<Shared>);

impl Drop for Reads {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Room for a request that is collected, for as long as it lives.
pub(super) struct Collecting {
    shared: Arc<Shared>,
    bytes: usize,
    /// What it has of [`Shared::memory`].
    memory: usize,
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.shared
            .collected
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.shared.memory.give(self.memory);
    }
}

/// What an operator sees of a session.
#[derive(Debug)]
pub struct Info {
    /// The client's address.
    pub client: SocketAddr,
    /// The port it came in by.
    pub door: Door,
    /// Its client.id, once a request said it.
    pub client_id: OnceLock<Arc<str>>,
    /// The broker it leads to, where known.
    pub node: OnceLock<NodeId>,
    /// The broker's address.
    pub upstream: OnceLock<SocketAddr>,
    /// The user it authenticated as.
    pub user: Mutex<Option<String>>,
    /// Requests so far.
    pub requests: AtomicU64,
    /// Requests without an answer.
    pub in_flight: AtomicUsize,
    /// Whether a request of it is held.
    pub held: AtomicBool,
    /// Whether the client is gone and only acknowledgements are awaited.
    pub orphan: AtomicBool,
    /// Whether its end was counted.
    pub(super) counted: AtomicBool,
    /// When it came.
    pub since: Instant,
    /// What wakes it, once it has said something.
    pub(super) waker: OnceLock<Waker>,
}

impl Info {
    pub(super) fn new(client: &TcpStream, door: Door) -> Self {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            client: client.peer_addr().unwrap_or(unknown),
            door,
            client_id: OnceLock::new(),
            node: OnceLock::new(),
            upstream: OnceLock::new(),
            user: Mutex::new(None),
            requests: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            held: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            since: Instant::now(),
            waker: OnceLock::new(),
        }
    }

    pub(super) fn connected(&self, node: Option<NodeId>, upstream: &TcpStream) {
        if let Some(node) = node {
            self.node.get_or_init(|| node);
        }
        if let Ok(address) = upstream.peer_addr() {
            self.upstream.get_or_init(|| address);
        }
    }
}

impl Info {
    /// Whether its end was counted, or it has no client that could be.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Relaxed) || self.orphan.load(Ordering::Relaxed)
    }

    /// Shows where the session stands, each time that it waits.
    pub(super) fn show(&self, requests: u64, in_flight: usize) {
        self.requests.store(requests, Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Relaxed);
    }

    pub(super) fn set_user(&self, identity: &Identity) {
        let user = match identity {
            Identity::User { user, .. } => Some(user.clone()),
            Identity::Anonymous | Identity::Local { .. } | Identity::Unproven => None,
        };
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = user;
    }
}

/// A session's place in the list of sessions, for as long as it lives.
pub(super) struct Registered {
    shared: Arc<Shared>,
    number: u64,
    present: Option<Presence>,
}

impl Registered {
    pub(super) fn new(shared: &Arc<Shared>, info: &Arc<Info>) -> Self {
        let number = shared.sessions_made.fetch_add(1, Ordering::Relaxed);
        shared.sessions.insert(number, Arc::clone(info));
        shared.memory.take(shared.connection_bytes);
        Self {
            shared: Arc::clone(shared),
            number,
            present: Some(Presence::of(&shared.metrics.client_connections)),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.sessions.remove(&self.number);
        self.shared.memory.give(self.shared.connection_bytes);
        // Whoever is notified counts those that are left.
        self.present = None;
        self.shared.gone.notify_one();
    }
}
