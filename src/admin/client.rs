//! The commands that ask a running hapax.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::ProducerRow;
use crate::cli::{DrainArgs, EventsArgs, LogLevelArgs, ProducersArgs, ReloadArgs, WaitArgs};
use crate::config::{HostPort, printable};

/// Prints the producers of a running hapax.
pub async fn producers(args: &ProducersArgs, out: &mut impl Write) -> Result<(), ClientError> {
    let path = format!("/api/v1/producers?limit={}", args.limit);
    let Producers { producers } = fetch(&args.client.asked.admin, &path).await?;
    if args.client.json {
        for row in &producers {
            let row = serde_json::to_string(row).expect("a row has string keys");
            writeln!(out, "{row}")?;
        }
        return Ok(());
    }
    out.write_all(table(&producers).as_bytes())?;
    Ok(())
}

/// Prints the events of a running hapax, and goes on when told to follow.
pub async fn events(args: &EventsArgs, out: &mut impl Write) -> Result<(), ClientError> {
    let admin = &args.client.asked.admin;
    let mut printer = Printer::new(args.client.json);
    if args.follow {
        return follow(admin, &mut printer, out).await;
    }
    let EventList { events } = fetch(admin, "/api/v1/events").await?;
    for event in &events {
        printer.print(event, out)?;
    }
    if events.is_empty() && !args.client.json && io::stderr().is_terminal() {
        eprintln!("no events yet");
    }
    Ok(())
}

/// Tells a running hapax to end, and waits for that as long as it is told to.
pub async fn drain(args: &DrainArgs, out: &mut impl Write) -> Result<(), ClientError> {
    let admin = &args.asked.admin;
    let told: Drained = post(admin, "/api/v1/drain", &Value::Null).await?;
    writeln!(
        out,
        "hapax at {admin} ends; connections open: {}",
        told.connections
    )?;
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    while started.elapsed() < args.max {
        if let Err(ClientError::Unreachable { .. }) = probe(admin, Wanted::Started).await {
            return Ok(());
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
    match args.max.is_zero() {
        true => Ok(()),
        false => Err(ClientError::Remains {
            admin: admin.clone(),
            max: args.max,
        }),
    }
}

/// Lets a running hapax read its configuration again.
pub async fn reload(args: &ReloadArgs, out: &mut impl Write) -> Result<(), ClientError> {
    let reloaded: Reloaded = post(&args.asked.admin, "/api/v1/reload", &Value::Null).await?;
    match reloaded.changed.as_slice() {
        [] => writeln!(out, "nothing changed")?,
        changed => writeln!(out, "changed: {}", printable(&changed.join(", ")))?,
    }
    Ok(())
}

/// Shows what a running hapax logs, or changes it.
pub async fn log_level(args: &LogLevelArgs, out: &mut impl Write) -> Result<(), ClientError> {
    let admin = &args.asked.admin;
    let path = "/api/v1/log-level";
    let LogLevel { level } = match &args.level {
        None => fetch(admin, path).await?,
        Some(level) => post(admin, path, &json!({ "level": level })).await?,
    };
    writeln!(out, "{}", printable(&level))?;
    Ok(())
}

/// Why a command got no answer, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody there.
    #[error(
        "no hapax answers at {admin} ({cause}): start hapax run, or give its --admin-listen address with --admin"
    )]
    Unreachable {
        /// Where it was looked for.
        admin: HostPort,
        /// What happened.
        cause: io::Error,
    },
    /// Somebody else, or a broken connection.
    #[error(
        "what answers at {admin} is no hapax, or went away ({cause}): give the --admin-listen address of hapax run with --admin"
    )]
    Broken {
        /// Where.
        admin: HostPort,
        /// What happened.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It answered with a refusal.
    #[error("hapax at {admin} refused with {status}: {sentence}")]
    Refused {
        /// Where.
        admin: HostPort,
        /// The status.
        status: u16,
        /// What it said.
        sentence: String,
    },
    /// It was told to end and has not.
    #[error(
        "hapax at {admin} is still there after {max:?}: clients are connected, or its drain.timeout is longer"
    )]
    Remains {
        /// Where.
        admin: HostPort,
        /// How long that was waited for.
        max: Duration,
    },
    /// The stream of events ended.
    #[error("hapax at {0} ended the stream: it has stopped")]
    Ended(HostPort),
    /// The output cannot be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

impl ClientError {
    /// Whether the reader of the output has had enough, as `head` has.
    pub fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == ErrorKind::BrokenPipe)
    }
}

#[derive(Deserialize)]
struct Producers {
    producers: Vec<ProducerRow>,
}

#[derive(Deserialize)]
struct Drained {
    connections: u64,
}

#[derive(Deserialize)]
struct Reloaded {
    changed: Vec<String>,
}

#[derive(Deserialize)]
struct LogLevel {
    level: String,
}

#[derive(Deserialize)]
struct EventList {
    events: Vec<Value>,
}

async fn follow(
    admin: &HostPort,
    printer: &mut Printer,
    out: &mut impl Write,
) -> Result<(), ClientError> {
    let mut stream = request(admin, "/api/v1/events", "text/event-stream").await?;
    let mut lines = Vec::new();
    while let Some(frame) = stream.body_mut().frame().await {
        let frame = frame.map_err(|error| broken(admin, error))?;
        lines.extend_from_slice(&frame.into_data().unwrap_or_default());
        if lines.len() > ANSWER_BYTES_MAX {
            return Err(broken(admin, "a line without end"));
        }
        let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else {
            continue;
        };
        let complete: Vec<u8> = lines.drain(..=end).collect();
        for line in String::from_utf8_lossy(&complete).lines() {
            if let Some(data) = line.strip_prefix("data: ") {
                let event = serde_json::from_str(data).map_err(|error| broken(admin, error))?;
                printer.print(&event, out)?;
            } else if let Some(missed) = line.strip_prefix(": dropped ") {
                eprintln!("{} events missed", printable(missed));
            }
        }
        out.flush()?;
    }
    Err(ClientError::Ended(admin.clone()))
}

async fn fetch<T: for<'de> Deserialize<'de>>(
    admin: &HostPort,
    path: &str,
) -> Result<T, ClientError> {
    let response = request(admin, path, "application/json").await?;
    let body = body(admin, response).await?;
    serde_json::from_slice(&body).map_err(|error| broken(admin, error))
}

async fn post<T: for<'de> Deserialize<'de>>(
    admin: &HostPort,
    path: &str,
    asked: &Value,
) -> Result<T, ClientError> {
    let asked = Bytes::from(asked.to_string());
    let response = send(admin, Method::POST, path, "application/json", asked).await?;
    let response = accepted(admin, response).await?;
    let body = body(admin, response).await?;
    serde_json::from_slice(&body).map_err(|error| broken(admin, error))
}

/// Whether a hapax has bound all of its ports, is ready for clients, or gets on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// `/startupz`.
    Started,
    /// `/readyz`.
    Ready,
    /// `/livez`.
    Live,
}

/// Waits until a running hapax is up. Tries at once, then ever more seldom up
/// to a second, and says in the end why it was in vain.
pub async fn wait(args: &WaitArgs) -> Result<(), WaitError> {
    let wanted = match (args.ready, args.live) {
        (true, _) => Wanted::Ready,
        (_, true) => Wanted::Live,
        _ => Wanted::Started,
    };
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let left = args.max.saturating_sub(started.elapsed());
        let asked = timeout(left.max(ONE_TRY), probe(&args.asked.admin, wanted)).await;
        let reason = match asked {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(reason))) => format!("hapax at {} says: {reason}", args.asked.admin),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("{} does not answer", args.asked.admin),
        };
        if started.elapsed() + pause >= args.max {
            return Err(WaitError {
                max: args.max,
                reason,
            });
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// A hapax that is not up in time.
#[derive(Debug, thiserror::Error)]
#[error("not up after {max:?}: {reason}")]
pub struct WaitError {
    max: Duration,
    reason: String,
}

/// Whether a hapax answers at an admin address; `false` where another program
/// does, or nobody in a short time.
pub async fn is_up(admin: SocketAddr) -> bool {
    // Whoever is bound to every address answers on loopback too.
    let host = match admin.ip() {
        ip if ip.is_unspecified() && ip.is_ipv6() => Ipv6Addr::LOCALHOST.to_string(),
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        ip => ip.to_string(),
    };
    let port = admin.port();
    let asked = timeout(ONE_TRY, probe(&HostPort { host, port }, Wanted::Started)).await;
    asked.is_ok_and(|asked| asked.is_ok())
}

/// Asks one of the probes; `Some` says why it fails.
pub async fn probe(admin: &HostPort, wanted: Wanted) -> Result<Option<String>, ClientError> {
    let path = match wanted {
        Wanted::Started => "/startupz",
        Wanted::Ready => "/readyz",
        Wanted::Live => "/livez",
    };
    let response = send(admin, Method::GET, path, "application/json", Bytes::new()).await?;
    let passes = response.status().is_success();
    let body = body(admin, response).await?;
    let health: Health = serde_json::from_slice(&body).map_err(|error| broken(admin, error))?;
    let reasons: Vec<_> = health.reasons.iter().map(|r| &*r.message).collect();
    Ok((!passes).then(|| match reasons.is_empty() {
        true => "it does not say why".to_owned(),
        false => printable(&reasons.join("; ")),
    }))
}

/// What a probe answers; no other program's answer reads like it.
#[derive(Deserialize)]
struct Health {
    #[serde(rename = "started")]
    _started: bool,
    #[serde(rename = "live")]
    _live: bool,
    #[serde(rename = "ready")]
    _ready: bool,
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

async fn request(
    admin: &HostPort,
    path: &str,
    accept: &str,
) -> Result<Response<Incoming>, ClientError> {
    let response = send(admin, Method::GET, path, accept, Bytes::new()).await?;
    accepted(admin, response).await
}

/// The response, unless it is a refusal.
async fn accepted(
    admin: &HostPort,
    response: Response<Incoming>,
) -> Result<Response<Incoming>, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = body(admin, response).await?;
    Err(ClientError::Refused {
        admin: admin.clone(),
        status: status.as_u16(),
        sentence: sentence(&body),
    })
}

/// Why it refused, as the body of the answer says.
fn sentence(body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).ok();
    let said = said.as_ref().and_then(|said| said["error"].as_str());
    said.map_or_else(|| "it does not say why".to_owned(), printable)
}

async fn send(
    admin: &HostPort,
    method: Method,
    path: &str,
    accept: &str,
    body: Bytes,
) -> Result<Response<Incoming>, ClientError> {
    let (stream, address) = connect(admin).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(admin, error))?;
    tokio::spawn(connection);
    // The address, not the name: whatever name was typed, it is not rebound.
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::ACCEPT, accept)
        .body(Full::new(body))
        .map_err(|error| broken(admin, error))?;
    timeout(ANSWER_WAIT, sender.send_request(request))
        .await
        .map_err(|error| broken(admin, error))?
        .map_err(|error| broken(admin, error))
}

async fn connect(admin: &HostPort) -> Result<(TcpStream, SocketAddr), ClientError> {
    let unreachable = |cause| ClientError::Unreachable {
        admin: admin.clone(),
        cause,
    };
    let connected = TcpStream::connect((&*admin.host, admin.port));
    let stream = timeout(CONNECT_WAIT, connected)
        .await
        .map_err(|elapsed| unreachable(elapsed.into()))?
        .map_err(unreachable)?;
    let address = stream.peer_addr().map_err(unreachable)?;
    Ok((stream, address))
}

async fn body(admin: &HostPort, response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
    let body = timeout(ANSWER_WAIT, body)
        .await
        .map_err(|error| broken(admin, error))?
        .map_err(|error| broken(admin, error))?;
    Ok(body.to_bytes())
}

fn broken(
    admin: &HostPort,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ClientError {
    ClientError::Broken {
        admin: admin.clone(),
        cause: cause.into(),
    }
}

/// Prints events, and behind the first of each kind what it means.
struct Printer {
    json: bool,
    /// Kinds whose meaning was printed; as bounded as hapax's kinds are.
    explained: HashSet<String>,
}

impl Printer {
    fn new(json: bool) -> Self {
        Self {
            json,
            explained: HashSet::new(),
        }
    }

    fn print(&mut self, event: &Value, out: &mut impl Write) -> io::Result<()> {
        if self.json {
            return writeln!(out, "{event}");
        }
        writeln!(out, "{}", event_line(event))?;
        let Some(name) = event["explain"].as_str() else {
            return Ok(());
        };
        if self.explained.len() < KINDS_MAX && self.explained.insert(name.to_owned()) {
            writeln!(out, "{}", meaning(event, name))?;
        }
        Ok(())
    }
}

/// What a kind of event means, what to do, and where to read on.
fn meaning(event: &Value, name: &str) -> String {
    let text = |key: &str| printable(event[key].as_str().unwrap_or_default());
    format!(
        "    {}\n    {}\n    More: hapax explain {}",
        text("sentence"),
        text("hint"),
        printable(name)
    )
}

/// `2026-11-29T18:21:03.250Z gap (never_seen) orders-0 producer_id=7 …`.
fn event_line(event: &Value) -> String {
    let text = |key: &str| printable(event[key].as_str().unwrap_or("?"));
    let mut line = format!("{} {}", text("time"), text("event"));
    if event["kind"].is_string() {
        let _ = write!(line, " ({})", text("kind"));
    }
    if event["topic"].is_string() {
        let _ = write!(line, " {}", text("topic"));
        if let Some(partition) = event["partition"].as_i64() {
            let _ = write!(line, "-{partition}");
        }
    }
    for key in EVENT_FIELDS {
        match &event[key] {
            Value::Null => {}
            Value::String(value) => {
                let _ = write!(line, " {key}={}", printable(value));
            }
            value => {
                let _ = write!(line, " {key}={}", printable(&value.to_string()));
            }
        }
    }
    line
}

fn table(producers: &[ProducerRow]) -> String {
    let cell = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = |row: &ProducerRow| {
        [
            row.producer_id.to_string(),
            row.epoch.to_string(),
            format!("{}-{}", printable(&row.topic), row.partition),
            cell(row.last_acked_sequence.map(|sequence| sequence.to_string())),
            cell(row.last_acked_offset.map(|offset| offset.to_string())),
            row.absorbed.to_string(),
            row.gaps.to_string(),
            format!("{:.0}s", row.age_seconds),
            cell(row.client_id.as_deref().map(printable)),
            cell(row.transactional_id.as_deref().map(printable)),
        ]
    };
    let mut rows = vec![TABLE_HEAD.map(str::to_owned)];
    rows.extend(producers.iter().map(row));

    let mut widths = [0; TABLE_HEAD.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

const TABLE_HEAD: [&str; 10] = [
    "PRODUCER",
    "EPOCH",
    "PARTITION",
    "SEQUENCE",
    "OFFSET",
    "ABSORBED",
    "GAPS",
    "AGE",
    "CLIENT",
    "TRANSACTIONAL",
];
const EVENT_FIELDS: [&str; 10] = [
    "producer_id",
    "epoch",
    "first",
    "count",
    "expected",
    "missing",
    "original_offset",
    "client_id",
    "transactional_id",
    "detail",
];
/// The first pause of who waits, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// What one try may take at least, however little time is left.
const ONE_TRY: Duration = Duration::from_secs(1);
/// More kinds of events than there will be.
const KINDS_MAX: usize = 100;
const CONNECT_WAIT: Duration = Duration::from_secs(5);
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Ten thousand rows with the longest names stay below it.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn producers_are_aligned_and_cannot_move_the_cursor() {
        let row = ProducerRow {
            producer_id: 7,
            epoch: 0,
            client_id: Some("app\u{1b}[2J".to_owned()),
            transactional_id: None,
            topic: "orders".to_owned(),
            partition: 3,
            last_acked_sequence: Some(41),
            last_acked_offset: Some(1041),
            absorbed: 2,
            gaps: 0,
            age_seconds: 1.4,
        };
        assert_eq!(
            table(&[row]),
            "\
PRODUCER  EPOCH  PARTITION  SEQUENCE  OFFSET  ABSORBED  GAPS  AGE  CLIENT        TRANSACTIONAL
7         0      orders-3   41        1041    2         0     1s   app\\u{1b}[2J  -
"
        );
    }

    #[test]
    fn nothing_that_is_said_can_move_the_cursor() {
        let refusal = json!({ "error": "no\u{1b}[2J" }).to_string();
        assert_eq!(sentence(refusal.as_bytes()), "no\\u{1b}[2J");
        assert_eq!(sentence(b"<html>"), "it does not say why");
        // JSON escapes some of them, and these not.
        let event = json!({ "time": "T", "event": "gap", "detail": ["\u{7f}", "\u{9b}2J"] });
        let line = event_line(&event);
        assert_eq!(line, r#"T gap detail=["\u{7f}","\u{9b}2J"]"#);
    }

    #[test]
    fn what_a_kind_of_event_means_is_said_once() {
        let event = json!({
            "time": "T", "event": "overlap", "sentence": "It says.", "hint": "Do\nthis.",
            "explain": "overlap",
        });
        let older = json!({ "time": "T", "event": "gap" });
        let mut said = Vec::new();
        let mut printer = Printer::new(false);
        for event in [&event, &older, &event] {
            printer.print(event, &mut said).unwrap();
        }
        assert_eq!(
            String::from_utf8(said).unwrap(),
            "\
T overlap
    It says.
    Do\\u{a}this.
    More: hapax explain overlap
T gap
T overlap
"
        );
    }

    #[test]
    fn an_event_is_one_line() {
        let event = json!({
            "id": 1, "time": "2026-11-29T18:21:03.250Z", "event": "gap", "kind": "never_seen",
            "topic": "orders", "partition": 0, "producer_id": 7, "missing": 2, "client_id": "a\nb",
        });
        assert_eq!(
            event_line(&event),
            "2026-11-29T18:21:03.250Z gap (never_seen) orders-0 producer_id=7 missing=2 client_id=a\\u{a}b"
        );
    }
}
