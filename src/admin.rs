//! The admin HTTP server.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | every metric, text format 0.0.4 |
//! | `/startupz` | 200 once every listener is bound, else 503; JSON says why |
//! | `/livez` | 200 while the workers make progress |
//! | `/readyz` | 200 while a broker can be reached and hapax does not drain |
//! | `/api/v1/producers?limit=` | windows: who wrote what, where, up to which sequence |
//! | `/api/v1/events?after=` | the newest events; with `Accept: text/event-stream` a stream of them |
//! | `/api/v1/connections?limit=` | client connections and their brokers |
//! | `/api/v1/brokers` | brokers and the local ports that lead to them |
//! | `/api/v1/totals` | what was counted over all processes that shared `state.dir` |
//! | `/api/v1/config` | the effective configuration, and who set each key |
//! | `/api/v1/log-level` | what is logged; POST `{"level": "debug"}` changes it |
//! | POST `/api/v1/reload` | reads the configuration file again, as SIGHUP does |
//! | POST `/api/v1/drain` | ends hapax, as SIGTERM does |
//! | `/` | this list |
//!
//! Metrics and probes answer everyone; the rest answers loopback peers, unless
//! `admin.api` is `any`. To such a peer it answers only under a `Host` that no
//! web page can make its own (DNS rebinding). POST is for loopback peers
//! whatever `admin.api` says, and not for web pages of others, which a browser
//! on this machine may show: it says so by `Sec-Fetch-Site` or `Origin`.
//!
//! Everything is bounded: [`CONNECTIONS_MAX`] connections, of which
//! [`FOLLOWERS_MAX`] may follow events; at the limit the one that has been
//! silent for longest makes room, so that probes are answered whoever holds
//! connections. A request's header has five seconds, its body as many and
//! [`BODY_BYTES_MAX`], and a peer that reads nothing is gone after thirty. A
//! follower that falls behind the ring skips ahead and is told how many events
//! it missed.

pub mod client;
mod follow;
mod places;
mod stall;
pub mod view;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time;

use crate::config::{ApiAccess, parse_level};
use crate::events::Events;
use crate::logging;
use crate::metrics::Metrics;
use crate::reload::Report;

use self::follow::Follow;
use self::places::{Activity, Places};
use self::stall::StallGuard;

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
    /// What was counted, before this process too.
    fn totals(&self) -> TotalsPage;
    /// The effective configuration and who set it.
    fn config(&self) -> ConfigPage;
    /// Reads files again; the answer comes when that is done.
    fn reload(&self) -> oneshot::Receiver<Report>;
    /// Begins to end the process; returns the connections that are open.
    fn drain(&self) -> usize;
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProducerRow {
    /// The producer id.
    pub producer_id: i64,
    /// Its newest epoch here.
    pub epoch: i16,
    /// What the client that used the producer id first calls itself.
    pub client_id: Option<String>,
    /// The transactional id, when it is known.
    pub transactional_id: Option<String>,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Last sequence of the newest acknowledged batch.
    pub last_acked_sequence: Option<i32>,
    /// Offset of that batch's last record.
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

/// What was counted over all processes that shared `state.dir`, or by this one
/// where it is not set. A kill loses what came after the last snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TotalsPage {
    /// Seconds since 1970 at which counting began.
    pub since_unix_seconds: u64,
    /// Processes that counted, this one included.
    pub starts: u64,
    /// The totals by series, as `/metrics` names them.
    pub totals: BTreeMap<String, u64>,
}

/// The effective configuration.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConfigPage {
    /// As a file has it.
    pub config: Value,
    /// Who set each key, by its path.
    pub origins: Value,
    /// What came of reading it again the last time; nothing before the first.
    pub reload: Option<Report>,
}

/// Serves until it is dropped, on a current-thread or any other runtime.
pub async fn serve(
    listener: TcpListener,
    api: ApiAccess,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    view: Arc<dyn View>,
) -> Infallible {
    let admin = Admin {
        api,
        metrics,
        events,
        view,
        followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
    };
    accept(listener, Arc::new(admin), PATIENCE).await
}

async fn accept(listener: TcpListener, admin: Arc<Admin>, patience: Patience) -> Infallible {
    let mut places = Places::new(CONNECTIONS_MAX);
    let mut connections = JoinSet::new();
    let mut told: Option<Instant> = None;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= ACCEPT_TOLD_EVERY) {
                    told = Some(Instant::now());
                    tracing::warn!(%error, "admin connection not accepted");
                }
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = places.place().await;
        while connections.try_join_next().is_some() {}
        let admin = admin.clone();
        let activity = Arc::new(Activity::new());
        let seen = Arc::clone(&activity);
        let task = connections.spawn(async move {
            admin.connection(stream, peer, patience, seen).await;
            drop(place);
        });
        places.taken(activity, task);
    }
}

struct Admin {
    api: ApiAccess,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    view: Arc<dyn View>,
    followers: Arc<Semaphore>,
}

type Answer = Response<Either<Full<Bytes>, Follow>>;

impl Admin {
    async fn connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        patience: Patience,
        activity: Arc<Activity>,
    ) {
        let answer = service_fn(|request: Request<Incoming>| {
            let activity = &activity;
            async move {
                let answer = self.answer(peer.ip(), request).await;
                if matches!(answer.body(), Either::Right(_)) {
                    activity.stay();
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(patience.header)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(
                TokioIo::new(StallGuard::new(stream, patience.stalled, activity.clone())),
                answer,
            )
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, %peer, "admin connection ended");
        }
    }

    async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if !OPEN_PATHS.contains(&path)
            && let Some(refusal) = self.refusal(peer, request.headers())
        {
            return failure(StatusCode::FORBIDDEN, refusal);
        }
        let reads = OPEN_PATHS.contains(&path) || API_PATHS.contains(&path);
        let writes = WRITE_PATHS.contains(&path);
        match *request.method() {
            _ if !reads && !writes => {
                failure(StatusCode::NOT_FOUND, "no such path: GET / lists them")
            }
            Method::GET if reads => self.dispatch(path, &request),
            Method::POST if writes => {
                if let Some(refusal) = write_refusal(peer, request.headers()) {
                    return failure(StatusCode::FORBIDDEN, refusal);
                }
                self.write(request).await
            }
            _ => {
                let (sentence, allow) = match (reads, writes) {
                    (true, true) => ("only GET and POST are answered here", "GET, POST"),
                    (false, true) => ("only POST is answered here", "POST"),
                    _ => ("only GET is answered here", "GET"),
                };
                let mut refusal = failure(StatusCode::METHOD_NOT_ALLOWED, sentence);
                let allow = HeaderValue::from_static(allow);
                refusal.headers_mut().insert(header::ALLOW, allow);
                refusal
            }
        }
    }

    /// Does what a POST asks for.
    async fn write(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
        let body = match time::timeout(BODY_PATIENCE, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                return failure(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the body is broken or too large",
                );
            }
            Err(_) => return failure(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"),
        };
        match &*path {
            "/api/v1/drain" => {
                let connections = self.view.drain();
                let mut told =
                    json_answer(&json!({ "draining": true, "connections": connections }));
                *told.status_mut() = StatusCode::ACCEPTED;
                told
            }
            "/api/v1/reload" => self.reload().await,
            _ => set_level(&body),
        }
    }

    async fn reload(&self) -> Answer {
        let Ok(Ok(report)) = time::timeout(RELOAD_PATIENCE, self.view.reload()).await else {
            return failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "the files are not read in time",
            );
        };
        if report.successful {
            return json_answer(&report);
        }
        let reasons = report.errors.iter().chain(&report.refused);
        let reasons: Vec<&str> = reasons.map(String::as_str).collect();
        let mut failure = json_answer(&json!({ "error": reasons.join("; "), "report": report }));
        *failure.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        failure
    }

    fn dispatch(&self, path: &str, request: &Request<Incoming>) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let limit = || number(query, "limit").map(|limit| limit.map_or(ROWS, clamp_rows));
        match path {
            "/metrics" => {
                self.view.refresh_gauges();
                answer(StatusCode::OK, METRICS_TYPE, self.metrics.render())
            }
            "/startupz" => self.probe(|health| health.started),
            "/livez" => self.probe(|health| health.live),
            "/readyz" => self.probe(|health| health.ready),
            "/api/v1/producers" => match limit() {
                Ok(limit) => list("producers", &self.view.producers(limit), limit),
                Err(bad) => failure(StatusCode::BAD_REQUEST, &bad),
            },
            "/api/v1/connections" => match limit() {
                Ok(limit) => list("connections", &self.view.connections(limit), limit),
                Err(bad) => failure(StatusCode::BAD_REQUEST, &bad),
            },
            "/api/v1/brokers" => json_answer(&json!({ "brokers": self.view.brokers() })),
            "/api/v1/totals" => json_answer(&self.view.totals()),
            "/api/v1/config" => json_answer(&self.view.config()),
            "/api/v1/log-level" => json_answer(&json!({ "level": logging::level() })),
            "/api/v1/events" => self.events(query, request.headers()),
            _ => answer(StatusCode::OK, TEXT_TYPE, INDEX.as_bytes().to_vec()),
        }
    }

    /// Why this peer may not read the API, if it may not.
    fn refusal(&self, peer: IpAddr, headers: &HeaderMap) -> Option<&'static str> {
        if self.api == ApiAccess::Any {
            return None;
        }
        if !peer.to_canonical().is_loopback() {
            return Some(
                "only /metrics and the probes answer beyond loopback; set admin.api to any to change that",
            );
        }
        let host = headers.get(header::HOST)?;
        match host.to_str() {
            Ok(host) if is_safe_host(host) => None,
            _ => Some("this Host is not one of hapax; use localhost or an address"),
        }
    }

    fn probe(&self, passes: impl Fn(&Health) -> bool) -> Answer {
        let health = self.view.health();
        let mut answer = json_answer(&health);
        if !passes(&health) {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        answer
    }

    fn events(&self, query: &str, headers: &HeaderMap) -> Answer {
        let after = match number(query, "after") {
            Ok(after) => after.unwrap_or(0),
            Err(bad) => return failure(StatusCode::BAD_REQUEST, &bad),
        };
        if accepts_stream(headers) {
            return self.follow(last_event_id(headers).unwrap_or(after));
        }
        // Read first: an event recorded meanwhile must not be skipped by who
        // polls with it next.
        let newest = self.events.newest();
        let events = self.events.since(after);
        let missed = match events.first() {
            Some(oldest) if after > 0 => oldest.id - after - 1,
            _ => 0,
        };
        self.metrics.events_dropped.inc_by(missed);
        let events: Vec<_> = events.iter().map(|event| &**event).collect();
        json_answer(&json!({
            "events": events,
            "newest": events.last().map_or(newest, |event| event.id),
            "dropped": missed,
        }))
    }

    fn follow(&self, after: u64) -> Answer {
        let Ok(place) = self.followers.clone().try_acquire_owned() else {
            return failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many followers; end one, or poll with ?after=ID",
            );
        };
        let dropped = self.metrics.events_dropped.clone();
        let stream = Follow::start(self.events.clone(), after, dropped, place);
        with_headers(StatusCode::OK, "text/event-stream", Either::Right(stream))
    }
}

/// Why this peer may not write, if it may not.
fn write_refusal(peer: IpAddr, headers: &HeaderMap) -> Option<&'static str> {
    if !peer.to_canonical().is_loopback() {
        return Some("only loopback peers may write: run hapax in the same Pod, or forward a port");
    }
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values
            .next()
            .map(|value| value.to_str().unwrap_or_default());
        (first, values.next().is_some())
    };
    let host = match only(header::HOST) {
        (Some(host), false) if is_safe_host(host) => host,
        _ => return Some("this Host is not one of hapax; use localhost or an address"),
    };
    let own = |origin: &str| {
        let rest = origin.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    };
    let same = match (only(SEC_FETCH_SITE), only(header::ORIGIN)) {
        ((_, true), _) | (_, (_, true)) => false,
        ((site, _), (origin, _)) => {
            matches!(site, None | Some("same-origin" | "none")) && origin.is_none_or(own)
        }
    };
    (!same).then_some("a web page of somebody else may not write")
}

/// Changes what is logged, as the body says.
fn set_level(body: &[u8]) -> Answer {
    let asked: Result<LevelAsked, _> = serde_json::from_slice(body);
    let Ok(LevelAsked { level }) = asked else {
        let sentence =
            "give {\"level\": \"debug\"}, or directives such as info,hapax::session=debug";
        return failure(StatusCode::BAD_REQUEST, sentence);
    };
    if let Err(bad) = parse_level(&level) {
        return failure(StatusCode::BAD_REQUEST, &bad.to_string());
    }
    let before = logging::level();
    logging::set_level(&level);
    // Both levels let it through, unless they let nothing through.
    tracing::warn!(before, level, "the log level was changed by the API");
    json_answer(&json!({ "level": level }))
}

/// The body of a POST to `/api/v1/log-level`.
#[derive(Deserialize)]
struct LevelAsked {
    level: String,
}

/// A name can be made to resolve to 127.0.0.1 by whoever owns it, and the page
/// that came from it may then read what it gets; an address and `localhost`
/// belong to no page.
fn is_safe_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_at(rest.find(']').map_or(0, |end| end + 1)),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    if let Some(address) = name.strip_suffix(']') {
        return host.starts_with('[') && address.parse::<Ipv6Addr>().is_ok();
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<Ipv4Addr>().is_ok()
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::to_str);
    matches!(accept, Some(Ok(types)) if types.contains("text/event-stream"))
}

/// Where a follower that was cut off goes on.
fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    let id = headers.get(LAST_EVENT_ID)?;
    id.to_str().ok()?.parse().ok()
}

/// The value of a key in a query, when it is there.
fn number(query: &str, key: &str) -> Result<Option<u64>, String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.find(|(name, _)| *name == key) else {
        return Ok(None);
    };
    let bad = |_| format!("{key} is `{value}`: give a whole number");
    value.parse().map(Some).map_err(bad)
}

fn clamp_rows(limit: u64) -> usize {
    usize::try_from(limit).map_or(ROWS_MAX, |limit| limit.min(ROWS_MAX))
}

fn list(name: &str, rows: &[impl Serialize], limit: usize) -> Answer {
    let rows = &rows[..rows.len().min(limit)];
    json_answer(&json!({ name: rows, "limit": limit }))
}

fn json_answer(value: &impl Serialize) -> Answer {
    let mut body = serde_json::to_vec(value).expect("rows have string keys");
    body.push(b'\n');
    answer(StatusCode::OK, JSON_TYPE, body)
}

fn failure(status: StatusCode, sentence: &str) -> Answer {
    let mut failure = json_answer(&json!({ "error": sentence }));
    *failure.status_mut() = status;
    failure
}

fn answer(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Answer {
    let body = Either::Left(Full::new(Bytes::from(body)));
    with_headers(status, content_type, body)
}

fn with_headers(
    status: StatusCode,
    content_type: &'static str,
    body: Either<Full<Bytes>, Follow>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// How long a peer may take.
#[derive(Clone, Copy)]
struct Patience {
    /// To send a request's header, also the first.
    header: Duration,
    /// To read anything of what is written to it.
    stalled: Duration,
}

/// Connections at a time; for more of them the most silent make room.
pub const CONNECTIONS_MAX: usize = 64;
/// Streams of events at a time.
pub const FOLLOWERS_MAX: usize = 16;
/// Rows of a list when no limit is given.
pub const ROWS: usize = 1000;
/// Rows of a list whatever limit is given.
pub const ROWS_MAX: usize = 10_000;

/// Bytes of the body of a POST.
pub const BODY_BYTES_MAX: usize = 4096;

/// How long the body of a POST may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// How long files may take to be read again.
const RELOAD_PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE: Patience = Patience {
    header: Duration::from_secs(5),
    stalled: Duration::from_secs(30),
};
/// File descriptors are short when accepting fails: give them time to return.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often that is told.
const ACCEPT_TOLD_EVERY: Duration = Duration::from_secs(5);
const HEADER_BYTES_MAX: usize = 16 * 1024;
const OPEN_PATHS: [&str; 4] = ["/metrics", "/startupz", "/livez", "/readyz"];
const WRITE_PATHS: [&str; 3] = ["/api/v1/drain", "/api/v1/log-level", "/api/v1/reload"];
const API_PATHS: [&str; 8] = [
    "/",
    "/api/v1/producers",
    "/api/v1/events",
    "/api/v1/connections",
    "/api/v1/brokers",
    "/api/v1/totals",
    "/api/v1/config",
    "/api/v1/log-level",
];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Nothing that is shown here loads, runs or is framed by anything.
const CONTENT_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const JSON_TYPE: &str = "application/json";
const INDEX: &str = "\
hapax

/metrics             every metric
/startupz            whether every listener is bound
/livez               whether the workers make progress
/readyz              whether a broker can be reached and hapax does not drain
/api/v1/producers    who wrote what, where, up to which sequence (?limit=N)
/api/v1/events       duplicates, gaps, fencing (?after=ID; Accept: text/event-stream follows)
/api/v1/connections  client connections and their brokers (?limit=N)
/api/v1/brokers      brokers and the local ports that lead to them
/api/v1/totals       what was counted over all processes that shared state.dir
/api/v1/config       the effective configuration, and who set each key
/api/v1/log-level    what is logged; POST {\"level\": \"debug\"} changes it
/api/v1/reload       POST reads the configuration file again, as SIGHUP does
/api/v1/drain        POST ends hapax, as SIGTERM does
";

#[cfg(test)]
mod tests;
