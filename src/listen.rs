//! The life of the process: ports, workers, signals, and the end.
//!
//! Every port is bound before the upstream is contacted, so that a client
//! never meets a port that is not there yet. One acceptor hands each
//! connection to the worker with the fewest.

use crate::admin::{self, client, view::ProxyView};
use crate::config::{self, Config};
use crate::drain::drain;
use crate::events::Events;
use crate::ledger::Ledger;
use crate::metrics::{EvictionReason, Metrics, OauthToken};
use crate::ports;
use crate::reload::{self, Certificates, ConfigFile, Credentials, Reloadable, Reloader, UsersFile};
use crate::sasl::{self, Granted, Sasl, TokenError};
use crate::session::{Door, Shared, Trusted, division};
use crate::snapshot::{Keeper, Lifetime, StartError};
use crate::socket;
use crate::tls::{LoadError, Tls};
use crate::upstream::{Brokers, Own};
use crate::users::{self, Users};
use crate::window::{Mode, Rules};
use crate::workers::{Workers, new_runtime, ticks};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time;

pub use crate::drain::Exit;

/// How often windows that can no longer be used are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How often an idle hapax asks whether a broker can be reached.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether certificates are still valid.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(10);
/// Topic incarnations that have windows; those beyond pass untracked.
const TOPICS_MAX: usize = 100_000;
/// What a listener waits after a refusal of the system (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often such a refusal is told, for each port.
const ACCEPT_TOLD_EVERY: Duration = Duration::from_secs(5);
/// How long the end waits for the last snapshot.
const LAST_SNAPSHOT_MAX: Duration = Duration::from_secs(10);
/// The same for an end that is to be at once.
const LAST_SNAPSHOT_MAX_FORCED: Duration = Duration::from_secs(1);

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An address could not be bound.
    #[error("cannot listen on {address} ({source}): {advice}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
        /// What to do.
        advice: String,
    },
    /// The operating system refused what every process needs.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// What TLS is to be spoken by cannot be used.
    #[error(transparent)]
    Tls(#[from] LoadError),
    /// What is to be logged in by cannot be used.
    #[error(transparent)]
    Sasl(#[from] sasl::LoadError),
    /// The users that clients authenticate as cannot be read.
    #[error(transparent)]
    Users(#[from] users::LoadError),
    /// State cannot be kept where the configuration says.
    #[error(transparent)]
    State(#[from] StartError),
}

/// A proxy that welcomes clients.
pub struct Started {
    /// Where clients bootstrap.
    pub listen: SocketAddr,
    /// Where the admin pages are.
    pub admin: SocketAddr,
    /// What it counts.
    pub metrics: Arc<Metrics>,
}

/// Runs the proxy until a signal tells it to end.
///
/// # Errors
///
/// Where a port cannot be bound, a thread cannot be made or state not be kept.
pub fn run(config: Config) -> Result<Exit, RunError> {
    let runtime = new_runtime()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let hang_ups = signal(SignalKind::hangup())?;
        serve_and_reload(
            config,
            Some(hang_ups),
            |_| {},
            async || {
                signals.next().await;
            },
        )
        .await
    })
}

/// Serves clients until `end` returns; when it does again, while they are
/// served to their end, that is forced. Tells `begun` where it listens.
///
/// # Errors
///
/// Where a port cannot be bound or a thread cannot be made.
pub async fn serve(
    config: Config,
    begun: impl FnOnce(Started),
    end: impl AsyncFnMut(),
) -> Result<Exit, RunError> {
    serve_and_reload(config, None, begun, end).await
}

async fn serve_and_reload(
    mut config: Config,
    hang_ups: Option<Signal>,
    begun: impl FnOnce(Started),
    mut end: impl AsyncFnMut(),
) -> Result<Exit, RunError> {
    make_room_for_connections(config.limits.connections);
    let tls = Tls::load(&config)?;
    let sasl = Sasl::load(&config)?;
    let users = Users::load(&config)?;
    let admin_address = config.admin.listen;
    let bootstrap = bind(config.listen, "--listen", admin_address).await?;
    config.listen = bootstrap.local_addr()?;
    let mut doors = vec![(bootstrap, Door::Bootstrap(config.listen.port()))];
    for port in config.broker_ports.clone() {
        let address = SocketAddr::new(config.listen.ip(), port);
        let listener = bind(address, "--broker-ports", admin_address).await?;
        doors.push((listener, Door::Broker(port)));
    }
    let admin = bind(admin_address, "--admin-listen", admin_address).await?;
    let admin_address = admin.local_addr()?;
    tracing::info!(address = %admin_address, "admin listens");

    let shared = Arc::new(share_with(config, Trusted { tls, sasl, users }));
    tell_what_does_not_fit(&shared);
    let lifetime = Arc::new(Lifetime::default());
    let mut keeper = Keeper::start(&shared, &lifetime)?;
    let workers = Workers::start(&shared)?;
    let metrics = Arc::clone(&shared.metrics);
    let reloader = Reloader::start(metrics, reloadables(&shared), reload::LOOK_EVERY)?;
    let hang_up_reloader = reloader.clone();
    let view = ProxyView::new(Arc::clone(&shared), workers.clone(), lifetime, reloader);
    let view = Arc::new(view);
    let mut tasks = JoinSet::new();
    let (metrics, events) = (Arc::clone(&shared.metrics), Arc::clone(&shared.events));
    let api = shared.config.admin.api;
    let served = Arc::clone(&view);
    tasks.spawn(async move { match admin::serve(admin, api, metrics, events, served).await {} });
    if let Some(keeper) = &mut keeper {
        keeper.settle().await;
    }
    let mut ports = JoinSet::new();
    for (listener, door) in doors {
        ports.spawn(accept(Arc::clone(&shared), workers.clone(), listener, door));
    }
    tasks.spawn(sweep(Arc::clone(&shared)));
    tasks.spawn(watch_upstream(Arc::clone(&shared)));
    tasks.spawn(tell_invalid_certificates(Arc::clone(&shared)));
    tasks.spawn(keep_token(Arc::clone(&shared)));
    tasks.spawn(reload_on(hang_ups, hang_up_reloader));
    view.started();
    let address = shared.config.listen;
    tracing::info!(%address, "clients are welcome");
    begun(Started {
        listen: address,
        admin: admin_address,
        metrics: Arc::clone(&shared.metrics),
    });

    tokio::select! {
        () = end() => {}
        () = shared.told_to_end.notified() => tracing::info!("told to end by the API"),
    }
    let exit = drain(&shared, &workers, ports, end).await;
    if let Some(keeper) = keeper {
        keeper.end(match exit {
            Exit::Drained => LAST_SNAPSHOT_MAX,
            Exit::Forced => LAST_SNAPSHOT_MAX_FORCED,
        });
    }
    Ok(exit)
}

/// Raises the soft limit of file descriptors to the hard one, and says where
/// that is still less than `connections` may take: two each.
fn make_room_for_connections(connections: usize) {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    // Systems that refuse what they call unlimited leave it as it was.
    let after = setrlimit(Resource::Nofile, raised).map_or(before, |()| raised);
    let needed = u64::try_from(connections).unwrap_or(u64::MAX) * 2;
    if let Some(descriptors) = after.current.filter(|current| *current < needed) {
        tracing::warn!(
            descriptors,
            connections,
            "file descriptors will be short before limits.connections is reached: two are needed for each; raise `ulimit -Hn`, or lower the limit"
        );
    }
}

/// Says what was asked for and does not fit into `memory.limit`.
fn tell_what_does_not_fit(shared: &Shared) {
    let config = &shared.config;
    let limit = config.memory_limit;
    let division = division(config);
    if division.too_little {
        tracing::warn!(
            limit,
            "memory.limit is less than hapax needs: it will take more; give it 64 MiB or more"
        );
    }
    let (windows, asked) = (division.windows, config.sequence.max_windows);
    if windows < asked {
        tracing::warn!(
            limit,
            windows,
            asked,
            "fewer windows fit into half of memory.limit than sequence.maxWindows asks for: raise the one or lower the other"
        );
    }
    let (connections, asked) = (shared.connections_fit(), config.limits.connections);
    if connections < asked {
        tracing::info!(
            limit,
            connections,
            asked,
            "fewer connections fit into memory.limit than limits.connections allows; more are closed"
        );
    }
}

/// Binds what `flag` says; where that fails, looks whether another hapax is
/// the reason, which would answer at the same admin address.
async fn bind(address: SocketAddr, flag: &str, admin: SocketAddr) -> Result<TcpListener, RunError> {
    let source = match bind_any(address).await {
        Ok(listener) => return Ok(listener),
        Err(source) => source,
    };
    let advice = match source.kind() {
        ErrorKind::AddrInUse if client::is_up(admin).await => format!(
            "another hapax is already running here (its admin page answers at {admin}); end it, or give this one other ports by --listen, --broker-ports and --admin-listen"
        ),
        kind => ports::advice(flag, address, kind),
    };
    Err(RunError::Bind {
        address,
        source,
        advice,
    })
}

/// Binds `address`. `[::]` is every address of the machine, which are those of
/// IPv4 alone where its kernel knows no IPv6.
async fn bind_any(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// What is read again while clients are served, each of its own accord.
fn reloadables(shared: &Arc<Shared>) -> Vec<Box<dyn Reloadable>> {
    let mut all: Vec<Box<dyn Reloadable>> = vec![Box::new(ConfigFile::new(shared))];
    for certificates in Certificates::all(shared) {
        all.push(Box::new(certificates));
    }
    if let Some(credentials) = Credentials::of(shared) {
        all.push(Box::new(credentials));
    }
    if let Some(users) = UsersFile::of(shared) {
        all.push(Box::new(users));
    }
    all
}

/// Reads everything again whenever SIGHUP comes.
async fn reload_on(hang_ups: Option<Signal>, reloader: Reloader) {
    let Some(mut hang_ups) = hang_ups else { return };
    while hang_ups.recv().await.is_some() {
        // The log says what comes of it.
        drop(reloader.ask());
    }
}

/// Everything that sessions share, at its beginning, without TLS.
#[doc(hidden)]
#[must_use]
pub fn share(config: Config) -> Shared {
    share_with(config, Trusted::default())
}

fn share_with(config: Config, trusted: Trusted) -> Shared {
    let sequence = &config.sequence;
    let rules = Rules {
        mode: match config.mode {
            config::Mode::Observe => Mode::Observe,
            config::Mode::Absorb => Mode::Absorb,
            config::Mode::Enforce => Mode::Enforce,
        },
        ttl: sequence.ttl,
        window_batches: sequence.window_batches,
        absorb_transactional: sequence.absorb_transactional,
        shield45: sequence.shield45,
    };
    let division = division(&config);
    let ledger = Ledger::new(rules, division.windows, TOPICS_MAX);
    let brokers = Brokers::new(
        config.upstream.clone(),
        config.address_map.clone(),
        &config.broker_ports,
        &config.node_slots,
        config.slot_grace,
    );
    let metrics = Metrics::new(config.metrics_max_topics);
    let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    metrics.windows_limit.set(gauge(division.windows));
    metrics.memory_limit.set(gauge(config.memory_limit));
    metrics.memory_buffers_limit.set(gauge(division.buffers));
    let events = Events::new(&metrics);
    let ip = config.listen.ip();
    let ports = std::iter::once(config.listen.port()).chain(config.broker_ports.clone());
    let own = Own::new(ip, ports);
    Shared::new(config, ledger, (brokers, own), metrics, events, trusted)
}

/// Takes connections at one port for ever.
async fn accept(shared: Arc<Shared>, workers: Workers, listener: TcpListener, door: Door) {
    let mut told: Option<Instant> = None;
    loop {
        let (client, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= ACCEPT_TOLD_EVERY) {
                    told = Some(Instant::now());
                    tracing::error!(%error, port = door.port(), "cannot accept connections");
                }
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !shared.may_come(workers.connections()) {
            continue;
        }
        shared.metrics.client_connections_accepted.inc();
        let keep_alive = shared.current().timeouts.keep_alive;
        if let Err(error) = socket::prepare(&client, keep_alive) {
            tracing::debug!(%peer, %error, "cannot set what every connection is set to, for a client");
        }
        workers.give(&shared, client, door);
    }
}

/// Forgets windows that can no longer be used.
async fn sweep(shared: Arc<Shared>) {
    let mut ticks = ticks(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        shared.see_time();
        let swept = shared.ledger.sweep(shared.ledger.time(Instant::now()));
        let evictions = &shared.metrics.window_evictions;
        evictions.with(EvictionReason::Idle).inc_by(swept.idle);
        evictions.with(EvictionReason::Limit).inc_by(swept.limit);
    }
}

/// Keeps the readiness probe true while no client shows whether a broker can
/// be reached.
async fn watch_upstream(shared: Arc<Shared>) {
    let mut ticks = ticks(PROBE_EVERY);
    let mut told: Option<String> = None;
    loop {
        ticks.tick().await;
        match shared.probe().await {
            Ok(()) => {
                if told.take().is_some() {
                    tracing::info!("the upstream can be reached again");
                }
            }
            Err(error) => {
                // Told again when the reason is another one.
                let reason = error.to_string();
                if told.as_ref() != Some(&reason) {
                    tracing::warn!(
                        reason,
                        "the upstream cannot be reached; clients are closed until it can: hapax check --connect says more"
                    );
                    told = Some(reason);
                }
            }
        }
    }
}

/// Gets tokens by which hapax logs in, where it gets them itself.
async fn keep_token(shared: Arc<Shared>) {
    let mut told: Option<String> = None;
    let patience = || shared.current().timeouts.sasl;
    let tell = |got: &Result<Granted, TokenError>| {
        let tokens = &shared.metrics.oauth_tokens;
        match got {
            Ok(granted) => {
                tokens.with(OauthToken::Ok).inc();
                let ends = granted.ends.unwrap_or(SystemTime::UNIX_EPOCH);
                let ends = ends.duration_since(SystemTime::UNIX_EPOCH);
                let ends = i64::try_from(ends.unwrap_or_default().as_secs());
                shared
                    .metrics
                    .oauth_token_expiry
                    .set(ends.unwrap_or(i64::MAX));
                if told.take().is_some() {
                    tracing::info!("a token to log in by is got again");
                }
            }
            Err(error) => {
                tokens.with(OauthToken::Failed).inc();
                let reason = error.to_string();
                // Told again when the reason is another one.
                if told.as_ref() != Some(&reason) {
                    tracing::warn!(
                        reason,
                        "upstream.sasl.oauth.tokenEndpoint gives no token; the last one is used until it ends, and it is asked again"
                    );
                    told = Some(reason);
                }
            }
        }
    };
    shared.sasl.keep_fresh(patience, tell).await;
}

/// Tells once of each certificate that is not valid any more, or not yet.
async fn tell_invalid_certificates(shared: Arc<Shared>) {
    let mut ticks = ticks(CERTIFICATES_EVERY);
    let mut told = Vec::new();
    loop {
        ticks.tick().await;
        let invalid: Vec<_> = shared.tls.shown().invalid(SystemTime::now()).collect();
        if invalid != told {
            for reason in &invalid {
                tracing::error!(reason, "a certificate is not valid");
            }
            told = invalid;
        }
    }
}

/// What ends the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
