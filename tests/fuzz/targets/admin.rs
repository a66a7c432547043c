//! The admin server by its socket, and the commands that read what such a server says.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use hapax::admin::{
    self, BrokerRow, ConfigPage, ConnectionRow, Health, ProducerRow, TotalsPage, View, client,
};
use hapax::cli::{
    AdminArgs, ClientArgs, DrainArgs, EventsArgs, LogLevelArgs, ProducersArgs, ReloadArgs,
};
use hapax::config::{ApiAccess, HostPort};
use hapax::events::{Event, Events, Kind};
use hapax::metrics::Metrics;
use hapax::reload::Report;
use serde_json::{Value, json};
use tokio::runtime;
use tokio::sync::oneshot;

use super::choices::Choices;

/// Far more than an answer takes, even on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
const PATHS: [&str; 14] = [
    "/",
    "/metrics",
    "/startupz",
    "/livez",
    "/readyz",
    "/api/v1/producers",
    "/api/v1/connections",
    "/api/v1/brokers",
    "/api/v1/totals",
    "/api/v1/config",
    "/api/v1/events",
    "/api/v1/drain",
    "/api/v1/log-level",
    "/api/v1/reload",
];
/// Those that any web page may make a browser ask for.
const OPEN: usize = 5;

/// Requests of parts, and bytes as they are.
pub fn requests(input: &[u8]) {
    let mut choices = Choices::new(input);
    if choices.rarely(4) {
        let _ = talk(choices.rest(), true);
        check_alive();
        return;
    }
    let at = choices.below(PATHS.len());
    let foreign = choices.rarely(3);
    let host = if foreign {
        choices.of(&[
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:9",
            "[::1",
            "[::1]evil.example",
            "127.0.0.1:evil",
            "é",
            "a@localhost",
        ])
    } else {
        choices.of(&[
            "localhost",
            "LOCALHOST.:9180",
            "127.0.0.1:9180",
            "[::1]:9180",
            "a.localhost",
        ])
    };
    let method = choices.of(&["GET", "GET", "GET", "POST", "HEAD"]);
    let query = text(choices.bytes(40));
    let more = text(choices.bytes(60));
    let line = match choices.below(4) {
        0 => String::new(),
        1 => format!("?{query}"),
        2 => format!("?limit={query}"),
        _ => format!("?after={query}"),
    };
    let request = format!(
        "{method} {}{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nX-More: {more}\r\n\r\n",
        PATHS[at]
    );
    let answer = talk(request.as_bytes(), false);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).unwrap_or_default();
    let known = ["200", "202", "400", "403", "405", "503", "414"];
    assert!(
        known.contains(&status),
        "{request:?} is answered {answer:?}"
    );
    if foreign && !(1..OPEN).contains(&at) {
        assert!(
            status != "200" && status != "503",
            "{request:?} is answered"
        );
    }
    let json = head.contains("application/json");
    if json && method != "HEAD" {
        assert!(serde_json::from_str::<Value>(body).is_ok(), "{answer:?}");
    }
    check_alive();
}

/// Bytes as text that does not end a part of a request.
fn text(bytes: &[u8]) -> String {
    let printable = |byte: &&u8| byte.is_ascii_graphic() && **byte != b'#';
    bytes
        .iter()
        .filter(printable)
        .map(|byte| char::from(*byte))
        .collect()
}

/// What the server says until it hangs up. It answers nobody who has `ended` and gone.
fn talk(bytes: &[u8], ended: bool) -> String {
    let mut stream = TcpStream::connect(server()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    if ended {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(
            error.kind() == std::io::ErrorKind::ConnectionReset,
            "neither answered nor closed: {error}"
        );
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn check_alive() {
    let answer = talk(
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        false,
    );
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
}

struct Fixed;

impl View for Fixed {
    fn health(&self) -> Health {
        Health {
            started: true,
            live: true,
            ready: false,
            reasons: Vec::new(),
        }
    }

    fn producers(&self, limit: usize) -> Vec<ProducerRow> {
        vec![row("orders"); limit.min(3)]
    }

    fn connections(&self, _limit: usize) -> Vec<ConnectionRow> {
        Vec::new()
    }

    fn brokers(&self) -> Vec<BrokerRow> {
        Vec::new()
    }

    fn totals(&self) -> TotalsPage {
        TotalsPage {
            since_unix_seconds: 1,
            starts: 1,
            totals: BTreeMap::new(),
        }
    }

    fn config(&self) -> ConfigPage {
        ConfigPage {
            config: json!({}),
            origins: json!({}),
            reload: None,
        }
    }

    /// It is never done.
    fn reload(&self) -> oneshot::Receiver<Report> {
        oneshot::channel().1
    }

    fn drain(&self) -> usize {
        3
    }

    fn refresh_gauges(&self) {}
}

fn row(name: &str) -> ProducerRow {
    ProducerRow {
        producer_id: 7,
        epoch: 1,
        client_id: Some(name.to_owned()),
        transactional_id: Some(name.to_owned()),
        topic: name.to_owned(),
        partition: 3,
        last_acked_sequence: Some(41),
        last_acked_offset: None,
        absorbed: 2,
        gaps: 1,
        age_seconds: 1.5,
    }
}

/// One server for the life of the process, on a thread of its own.
fn server() -> SocketAddr {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Metrics::new(2);
        let events = Events::new(&metrics);
        for _ in 0..3 {
            events.record(Event::new(Kind::LogTruncated));
        }
        let served = admin::serve(
            listener,
            ApiAccess::Loopback,
            metrics,
            events,
            Arc::new(Fixed),
        );
        thread::spawn(move || runtime.block_on(served));
        address
    })
}

/// What a server may say to `hapax producers`, `hapax events` and the probes: nothing of it moves a terminal's cursor.
pub fn answers(input: &[u8]) {
    let mut choices = Choices::new(input);
    let asked = choices.below(7);
    let answer = match choices.below(4) {
        0 => choices.rest().to_vec(),
        kind => http(asked, kind, &mut choices),
    };
    let mut out = Vec::new();
    let error = ask(asked, answer, &mut out);
    for text in [String::from_utf8(out).unwrap(), error.unwrap_or_default()] {
        let moves = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(moves), "{text:?}");
    }
}

/// An answer in which the texts may be anything.
fn http(asked: usize, kind: usize, choices: &mut Choices<'_>) -> Vec<u8> {
    let status = choices.of(&[
        "200 OK",
        "200 OK",
        "403 Forbidden",
        "503 Service Unavailable",
    ]);
    let text = |choices: &mut Choices<'_>| String::from_utf8_lossy(choices.bytes(24)).into_owned();
    let value = |choices: &mut Choices<'_>| match choices.below(6) {
        0 => json!(choices.number()),
        1 => Value::Null,
        2 => json!([text(choices)]),
        3 => json!({ text(choices): text(choices) }),
        _ => json!(text(choices)),
    };
    let event = |choices: &mut Choices<'_>| {
        let mut event = json!({ "time": value(choices), "event": value(choices) });
        for key in [
            "kind",
            "topic",
            "partition",
            "client_id",
            "detail",
            "explain",
            "sentence",
            "hint",
        ] {
            if choices.byte() & 1 == 1 {
                event[key] = value(choices);
            }
        }
        event
    };
    let body = match asked {
        _ if kind == 1 => json!({ "error": value(choices) }).to_string(),
        0 => json!({ "producers": [row(&text(choices)), row(&text(choices))] }).to_string(),
        1 => json!({ "events": [event(choices), event(choices)] }).to_string(),
        2 => format!(
            "data: {}\n\n: dropped {}\n\ndata: {}\n\n",
            event(choices),
            text(choices),
            event(choices)
        ),
        3 => json!({ "draining": value(choices), "connections": value(choices) }).to_string(),
        4 => json!({
            "successful": value(choices), "changed": [text(choices)],
            "errors": [text(choices)], "refused": [text(choices)],
        })
        .to_string(),
        5 => json!({ "level": value(choices) }).to_string(),
        _ => json!({
            "started": true, "live": true, "ready": false,
            "reasons": [{ "check": text(choices), "message": text(choices) }],
        })
        .to_string(),
    };
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes();
    if choices.rarely(8) {
        let at = choices.below(answer.len().min(256));
        answer[at] = choices.byte();
    }
    answer
}

/// Asks a server that answers that; gives what is said where it fails.
fn ask(command: usize, answer: Vec<u8>, out: &mut Vec<u8>) -> Option<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(&answer);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let admin = HostPort {
        host: "127.0.0.1".to_owned(),
        port,
    };
    let asked = AdminArgs {
        admin: admin.clone(),
    };
    let client = ClientArgs {
        asked: asked.clone(),
        json: false,
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let said = runtime.block_on(async {
        match command {
            0 => client::producers(&ProducersArgs { client, limit: 5 }, out)
                .await
                .err(),
            1 | 2 => {
                let follow = command == 2;
                client::events(&EventsArgs { client, follow }, out)
                    .await
                    .err()
            }
            3 => {
                let max = Duration::ZERO;
                client::drain(&DrainArgs { asked, max }, out).await.err()
            }
            4 => client::reload(&ReloadArgs { asked }, out).await.err(),
            5 => {
                let level = None;
                let args = LogLevelArgs { asked, level };
                client::log_level(&args, out).await.err()
            }
            _ => match client::probe(&admin, client::Wanted::Ready).await {
                Ok(reason) => {
                    out.extend(reason.unwrap_or_default().bytes());
                    None
                }
                Err(error) => Some(error),
            },
        }
    });
    drop(runtime);
    server.join().unwrap();
    said.map(|error| error.to_string())
}
