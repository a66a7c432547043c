//! Raw HTTP over loopback: every endpoint and every refusal.

use std::sync::Mutex;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::cli::{AdminArgs, ClientArgs, EventsArgs};
use crate::events::{Event, Kind, RING};
use crate::metrics::GapKind;

#[derive(Default)]
struct Fixed {
    health: Mutex<Health>,
    metrics: Mutex<Option<Arc<Metrics>>>,
    /// What comes of reading files again.
    report: Mutex<Option<Report>>,
    /// How often it was told to end.
    drains: Mutex<usize>,
}

impl View for Fixed {
    fn health(&self) -> Health {
        self.health.lock().unwrap().clone()
    }

    fn producers(&self, limit: usize) -> Vec<ProducerRow> {
        let row = ProducerRow {
            producer_id: 7,
            epoch: 1,
            client_id: Some("app".to_owned()),
            transactional_id: None,
            topic: "orders".to_owned(),
            partition: 3,
            last_acked_sequence: Some(41),
            last_acked_offset: Some(1041),
            absorbed: 2,
            gaps: 1,
            age_seconds: 1.5,
        };
        vec![row; limit.min(2000)]
    }

    fn connections(&self, _limit: usize) -> Vec<ConnectionRow> {
        vec![ConnectionRow {
            client: "127.0.0.1:5".to_owned(),
            client_id: None,
            port: 19_093,
            node: Some(1),
            upstream: Some("kafka:9092".to_owned()),
            user: None,
            requests: 9,
            in_flight: 1,
            held: false,
            orphan: false,
            age_seconds: 2.0,
        }]
    }

    fn brokers(&self) -> Vec<BrokerRow> {
        vec![BrokerRow {
            node: 1,
            advertised: "kafka:9092".to_owned(),
            upstream: "kafka:9092".to_owned(),
            port: Some(19_093),
            present: true,
        }]
    }

    fn totals(&self) -> TotalsPage {
        TotalsPage {
            since_unix_seconds: 1_700_000_000,
            starts: 2,
            totals: [("hapax_gaps_total".to_owned(), 3)].into(),
        }
    }

    fn config(&self) -> ConfigPage {
        ConfigPage {
            config: json!({ "workers": 3 }),
            origins: json!({ "workers": "flag --workers" }),
            reload: None,
        }
    }

    fn reload(&self) -> oneshot::Receiver<Report> {
        let (answer, answered) = oneshot::channel();
        if let Some(report) = self.report.lock().unwrap().clone() {
            answer.send(report).unwrap();
        }
        answered
    }

    fn drain(&self) -> usize {
        *self.drains.lock().unwrap() += 1;
        3
    }

    fn refresh_gauges(&self) {
        if let Some(metrics) = &*self.metrics.lock().unwrap() {
            metrics.windows.set(42);
        }
    }
}

struct World {
    admin: Arc<Admin>,
    view: Arc<Fixed>,
    address: SocketAddr,
}

impl World {
    async fn new(api: ApiAccess) -> Self {
        Self::with_patience(api, PATIENCE).await
    }

    async fn with_patience(api: ApiAccess, patience: Patience) -> Self {
        let metrics = Metrics::new(2);
        let view = Arc::new(Fixed::default());
        *view.metrics.lock().unwrap() = Some(metrics.clone());
        let admin = Arc::new(Admin {
            api,
            events: Events::new(&metrics),
            metrics,
            view: view.clone(),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, admin.clone(), patience));
        Self {
            admin,
            view,
            address,
        }
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Head and body of the answer to a request that has these header lines.
    async fn ask(&self, line: &str, headers: &str) -> (String, String) {
        let request = format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        let mut stream = self.send(&request).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    async fn status(&self, line: &str, headers: &str) -> u16 {
        let (head, _) = self.ask(line, headers).await;
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    async fn json(&self, path: &str) -> Value {
        let (head, body) = self.ask(&format!("GET {path}"), LOCAL).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str(&body).unwrap()
    }

    fn record(&self, events: usize) {
        for _ in 0..events {
            let gap = Kind::Gap(GapKind::NeverSeen);
            self.admin.events.record(Event::new(gap));
        }
    }

    async fn follow(&self, headers: &str) -> Stream {
        let request = format!(
            "GET /api/v1/events HTTP/1.1\r\n{LOCAL}Accept: text/event-stream\r\n{headers}\r\n"
        );
        Stream {
            socket: self.send(&request).await,
            seen: String::new(),
        }
    }
}

struct Stream {
    socket: TcpStream,
    seen: String,
}

impl Stream {
    /// Reads on until `text` has come, and forgets all up to its end.
    async fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).await.unwrap();
            assert!(read > 0, "ended before {text:?}: {}", self.seen);
            self.seen
                .push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }
}

/// What a command prints, line by line.
struct Lines(tokio::sync::mpsc::UnboundedSender<String>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let gone = |_| std::io::ErrorKind::BrokenPipe.into();
        self.0.send(text).map(|()| bytes.len()).map_err(gone)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const LOCAL: &str = "Host: localhost:9180\r\n";

#[tokio::test]
async fn a_scrape_refreshes_the_gauges_first() {
    let world = World::new(ApiAccess::Loopback).await;
    let (head, body) = world.ask("GET /metrics", LOCAL).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(body.contains("\nhapax_windows 42\n"), "{body}");
    assert!(body.contains("\nprocess_open_fds "), "{body}");
}

#[tokio::test]
async fn each_probe_says_its_own_part_of_the_health() {
    let world = World::new(ApiAccess::Loopback).await;
    *world.view.health.lock().unwrap() = Health {
        started: true,
        live: true,
        ready: false,
        reasons: vec![Reason {
            check: "upstream",
            message: "no broker can be reached".to_owned(),
        }],
    };
    assert_eq!(world.status("GET /startupz", LOCAL).await, 200);
    assert_eq!(world.status("GET /livez", LOCAL).await, 200);
    let (head, body) = world.ask("GET /readyz", LOCAL).await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(
        body,
        "{\"started\":true,\"live\":true,\"ready\":false,\"reasons\":[{\"check\":\"upstream\",\"message\":\"no broker can be reached\"}]}\n"
    );
}

#[tokio::test]
async fn lists_are_json_and_bounded() {
    let world = World::new(ApiAccess::Loopback).await;
    let producers = world.json("/api/v1/producers?limit=2").await;
    assert_eq!(producers["producers"].as_array().unwrap().len(), 2);
    let row = &producers["producers"][0];
    assert_eq!(row["producer_id"], 7);
    assert_eq!(row["last_acked_offset"], 1041);
    assert_eq!(row["transactional_id"], Value::Null);
    let by_default = world.json("/api/v1/producers").await;
    assert_eq!(by_default["producers"].as_array().unwrap().len(), ROWS);
    let most = world.json("/api/v1/producers?limit=99999999999").await;
    assert_eq!(most["limit"], ROWS_MAX);

    let connections = world.json("/api/v1/connections").await;
    assert_eq!(connections["connections"][0]["in_flight"], 1);
    let brokers = world.json("/api/v1/brokers").await;
    assert_eq!(brokers["brokers"][0]["port"], 19_093);
    let totals = world.json("/api/v1/totals").await;
    assert_eq!(
        (&totals["starts"], &totals["totals"]["hapax_gaps_total"]),
        (&2.into(), &3.into())
    );
    let config = world.json("/api/v1/config").await;
    assert_eq!(config["config"]["workers"], 3);
    assert_eq!(config["origins"]["workers"], "flag --workers");
    let (_, index) = world.ask("GET /", LOCAL).await;
    for path in OPEN_PATHS.iter().chain(&API_PATHS).chain(&WRITE_PATHS) {
        assert!(index.contains(path), "{path}");
    }
}

#[tokio::test]
async fn events_come_after_an_id_and_say_what_was_missed() {
    let world = World::new(ApiAccess::Loopback).await;
    let none = world.json("/api/v1/events").await;
    assert_eq!(none, json!({ "events": [], "newest": 0, "dropped": 0 }));
    world.record(3);
    let events = world.json("/api/v1/events?after=2").await;
    assert_eq!(events["events"][0]["id"], 3);
    assert_eq!(events["events"][0]["kind"], "never_seen");
    assert_eq!(events["newest"], 3);
    world.record(RING);
    let events = world.json("/api/v1/events?after=1").await;
    assert_eq!(events["dropped"], 2);
    assert_eq!(events["events"].as_array().unwrap().len(), RING);
    assert_eq!(world.admin.metrics.events_dropped.get(), 2);
}

#[tokio::test]
async fn what_cannot_be_answered_is_refused_with_a_sentence() {
    let world = World::new(ApiAccess::Loopback).await;
    for (line, expected) in [
        ("GET /nothing", 404),
        ("GET /api/v1/nothing", 404),
        ("POST /nothing", 404),
        ("POST /metrics", 405),
        ("HEAD /livez", 405),
        ("DELETE /api/v1/producers", 405),
        ("GET /api/v1/drain", 405),
        ("GET /api/v1/reload", 405),
        ("DELETE /api/v1/log-level", 405),
        ("GET /api/v1/producers?limit=x", 400),
        ("GET /api/v1/producers?limit=-1", 400),
        ("GET /api/v1/events?after=", 400),
    ] {
        let (head, body) = world.ask(line, LOCAL).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {expected}")),
            "{line}: {head}"
        );
        if !line.starts_with("HEAD") {
            let body: Value = serde_json::from_str(&body).unwrap();
            assert!(body["error"].is_string(), "{line}: {body}");
        }
    }
}

#[tokio::test]
async fn a_host_that_a_web_page_can_own_gets_metrics_and_probes_only() {
    let world = World::new(ApiAccess::Loopback).await;
    *world.view.health.lock().unwrap() = Health {
        live: true,
        ..Health::default()
    };
    let evil = "Host: evil.example:9180\r\n";
    assert_eq!(world.status("GET /api/v1/producers", evil).await, 403);
    assert_eq!(world.status("GET /api/v1/config", evil).await, 403);
    assert_eq!(world.status("GET /", evil).await, 403);
    assert_eq!(world.status("GET /livez", evil).await, 200);
    assert_eq!(world.status("GET /metrics", evil).await, 200);
    let any = World::new(ApiAccess::Any).await;
    assert_eq!(any.status("GET /api/v1/producers", evil).await, 200);
}

#[test]
fn a_safe_host_is_localhost_or_an_address() {
    for (host, safe) in [
        ("localhost", true),
        ("LocalHost:9180", true),
        ("localhost.:9180", true),
        ("127.0.0.1:9180", true),
        ("[::1]:9180", true),
        ("10.1.2.3", true),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example:9180", false),
        ("evil.example", false),
        ("::1", false),
        ("[::1]", true),
        ("[::1", false),
        ("[::1]evil.example", false),
        ("[::1]:evil", false),
        ("[::1]9180", false),
        ("::1]", false),
        ("[localhost", false),
        ("[127.0.0.1]", false),
        ("127.0.0.1:evil", false),
        ("localhost:9180:1", false),
        ("[evil]", false),
        ("", false),
    ] {
        assert_eq!(is_safe_host(host), safe, "{host}");
    }
}

#[tokio::test]
async fn beyond_loopback_the_api_answers_only_when_told_to() {
    let headers = HeaderMap::new();
    for (api, peer, refused) in [
        (ApiAccess::Loopback, "10.0.0.9", true),
        (ApiAccess::Loopback, "::ffff:10.0.0.9", true),
        (ApiAccess::Loopback, "127.0.0.1", false),
        (ApiAccess::Loopback, "::ffff:127.0.0.1", false),
        (ApiAccess::Loopback, "::1", false),
        (ApiAccess::Any, "10.0.0.9", false),
    ] {
        let world = World::new(api).await;
        let refusal = world.admin.refusal(peer.parse().unwrap(), &headers);
        assert_eq!(refusal.is_some(), refused, "{api:?} {peer}");
    }
}

#[tokio::test]
async fn a_follower_gets_what_was_and_then_what_happens() {
    let world = World::new(ApiAccess::Loopback).await;
    world.record(2);
    let mut stream = world.follow("").await;
    let head = stream.until("\r\n\r\n").await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    stream.until("id: 1\ndata: {\"id\":1,").await;
    stream.until("id: 2\n").await;
    for id in 3..200 {
        world.record(1);
        stream
            .until(&format!("id: {id}\ndata: {{\"id\":{id},"))
            .await;
        stream.until("\n\n").await;
    }
}

#[tokio::test]
async fn a_follower_goes_on_where_it_was_cut_off() {
    let world = World::new(ApiAccess::Loopback).await;
    world.record(5);
    let mut stream = world.follow("Last-Event-ID: 3\r\n").await;
    let before = stream.until("id: 4\n").await;
    assert!(!before.contains("id: 3\n"), "{before}");
    // An id from before a restart is none of this process's.
    let mut stream = world.follow("Last-Event-ID: 900\r\n").await;
    stream.until("id: 1\n").await;
}

#[tokio::test]
async fn a_follower_that_falls_behind_is_told_what_it_missed() {
    let world = World::new(ApiAccess::Loopback).await;
    world.record(2);
    let mut stream = world.follow("Last-Event-ID: 1\r\n").await;
    stream.until("id: 2\n").await;
    // Nobody runs between these: the ring turns over before it is read.
    world.record(RING + 10);
    stream.until(": dropped 10\n\nid: 13\n").await;
    assert_eq!(world.admin.metrics.events_dropped.get(), 10);
    stream.until(&format!("id: {}\n", RING + 12)).await;
}

#[tokio::test]
async fn followers_are_bounded_and_give_their_place_back() {
    let world = World::new(ApiAccess::Loopback).await;
    let mut streams = Vec::new();
    for _ in 0..FOLLOWERS_MAX {
        let mut stream = world.follow("").await;
        stream.until(": events of hapax").await;
        streams.push(stream);
    }
    world.follow("").await.until("HTTP/1.1 503").await;
    assert_eq!(world.status("GET /metrics", LOCAL).await, 200);
    drop(streams);
    let all = u32::try_from(FOLLOWERS_MAX).unwrap();
    let places = world.admin.followers.acquire_many(all).await;
    drop(places);
    world.follow("").await.until("HTTP/1.1 200").await;
}

#[tokio::test]
async fn whoever_sends_no_header_is_gone() {
    let patience = Patience {
        header: Duration::from_millis(20),
        ..PATIENCE
    };
    let world = World::with_patience(ApiAccess::Loopback, patience).await;
    for part in ["", "GET /metr"] {
        let mut stream = world.send(part).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
}

#[tokio::test]
async fn whoever_reads_nothing_is_gone() {
    let patience = Patience {
        stalled: Duration::from_millis(20),
        ..PATIENCE
    };
    let world = World::with_patience(ApiAccess::Loopback, patience).await;
    let request = format!("GET /api/v1/producers?limit=2000 HTTP/1.1\r\n{LOCAL}\r\n");
    let mut stream = world.send("").await;
    // Writing fails once the server has closed: it answers until nothing fits.
    while stream.write_all(request.as_bytes()).await.is_ok() {}
}

#[tokio::test]
async fn whoever_is_silent_for_longest_makes_room_and_followers_stay() {
    let world = World::new(ApiAccess::Loopback).await;
    let mut streams = Vec::new();
    for _ in 0..FOLLOWERS_MAX {
        let mut stream = world.follow("").await;
        stream.until(": events of hapax").await;
        streams.push(stream);
    }
    let mut held = Vec::new();
    for _ in 0..3 * CONNECTIONS_MAX {
        held.push(world.send("").await);
    }
    // Where nobody made room these would wait for the header's time.
    for _ in 0..10 {
        assert_eq!(world.status("GET /livez", LOCAL).await, 503);
    }
    let ended = held[0].read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "the first one has gone");
    world.record(1);
    for stream in &mut streams {
        stream.until("id: 1\n").await;
    }
}

/// A POST with this body and these header lines.
impl World {
    async fn post(&self, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let headers = format!("{headers}Content-Length: {}\r\n", body.len());
        let line = format!("POST {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n{body}");
        let mut stream = self.send(&line).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

#[tokio::test]
async fn a_post_drains_and_says_how_many_are_served() {
    let world = World::new(ApiAccess::Loopback).await;
    let (status, told) = world.post("/api/v1/drain", LOCAL, "").await;
    assert_eq!(status, 202);
    assert_eq!(told, json!({ "draining": true, "connections": 3 }));
    assert_eq!(*world.view.drains.lock().unwrap(), 1);
}

#[tokio::test]
async fn only_a_page_of_hapax_itself_may_write() {
    for api in [ApiAccess::Loopback, ApiAccess::Any] {
        let world = World::new(api).await;
        for (headers, status) in [
            ("Host: localhost:9180\r\n", 202),
            (
                "Host: 127.0.0.1:9180\r\nSec-Fetch-Site: same-origin\r\nOrigin: http://127.0.0.1:9180\r\n",
                202,
            ),
            ("Host: localhost:9180\r\nSec-Fetch-Site: none\r\n", 202),
            (
                "Host: localhost:9180\r\nSec-Fetch-Site: cross-site\r\n",
                403,
            ),
            ("Host: localhost:9180\r\nSec-Fetch-Site: same-site\r\n", 403),
            (
                "Host: localhost:9180\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n",
                403,
            ),
            (
                "Host: localhost:9180\r\nOrigin: http://evil.example\r\n",
                403,
            ),
            // Another program on this machine shows this page.
            (
                "Host: localhost:9180\r\nOrigin: http://localhost:3000\r\n",
                403,
            ),
            ("Host: localhost:9180\r\nOrigin: null\r\n", 403),
            ("Host: evil.example:9180\r\n", 403),
            ("Host: localhost\r\nHost: evil.example\r\n", 403),
            ("Host: localhost.evil.example\r\n", 403),
        ] {
            let before = *world.view.drains.lock().unwrap();
            let (got, _) = world.post("/api/v1/drain", headers, "").await;
            assert_eq!(got, status, "{api:?} {headers}");
            let drained = *world.view.drains.lock().unwrap() - before;
            assert_eq!(drained, usize::from(status == 202), "{api:?} {headers}");
        }
    }
}

#[test]
fn nobody_beyond_loopback_may_write() {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    for (peer, refused) in [
        ("127.0.0.1", false),
        ("::1", false),
        ("::ffff:127.0.0.1", false),
        ("10.0.0.9", true),
        ("::ffff:10.0.0.9", true),
    ] {
        let refusal = write_refusal(peer.parse().unwrap(), &headers);
        assert_eq!(refusal.is_some(), refused, "{peer}");
    }
    let nameless = write_refusal(Ipv4Addr::LOCALHOST.into(), &HeaderMap::new());
    assert!(nameless.is_some(), "whoever says no Host is refused");
}

#[tokio::test]
async fn a_level_that_is_none_is_refused_and_a_body_is_bounded() {
    let world = World::new(ApiAccess::Loopback).await;
    let path = "/api/v1/log-level";
    let (status, told) = world.post(path, LOCAL, r#"{"level": "debug"}"#).await;
    assert_eq!((status, told), (200, json!({ "level": "debug" })));
    for body in ["", "debug", "[]", r#"{"level": 3}"#, r#"{"level": "loud"}"#] {
        let (status, told) = world.post(path, LOCAL, body).await;
        assert_eq!(status, 400, "{body}");
        assert!(told["error"].is_string(), "{body}");
    }
    let (status, _) = world
        .post(path, LOCAL, &" ".repeat(BODY_BYTES_MAX + 1))
        .await;
    assert_eq!(status, 413);
    // Announced and not sent: nobody waits for it.
    let large = format!("GET /livez HTTP/1.1\r\n{LOCAL}Content-Length: 1000000000\r\n\r\n");
    let mut stream = world.send(&large).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test]
async fn reading_again_says_what_changed_or_what_is_wrong() {
    let world = World::new(ApiAccess::Loopback).await;
    let report = Report {
        successful: true,
        at_unix_seconds: 1,
        changed: vec!["log.level".to_owned()],
        errors: Vec::new(),
        refused: Vec::new(),
    };
    let set = |report: Option<Report>| *world.view.report.lock().unwrap() = report;
    set(Some(report.clone()));
    let (status, told) = world.post("/api/v1/reload", LOCAL, "").await;
    assert_eq!((status, &told["changed"][0]), (200, &json!("log.level")));
    set(Some(Report {
        successful: false,
        errors: vec!["a".to_owned()],
        refused: vec!["b".to_owned()],
        ..report
    }));
    let (status, told) = world.post("/api/v1/reload", LOCAL, "").await;
    assert_eq!((status, &told["error"]), (422, &json!("a; b")));
    assert_eq!(told["report"]["refused"][0], "b");
    set(None);
    let (status, _) = world.post("/api/v1/reload", LOCAL, "").await;
    assert_eq!(status, 503);
}

#[tokio::test]
async fn no_page_may_frame_embed_or_keep_an_answer() {
    let world = World::new(ApiAccess::Loopback).await;
    for path in ["/", "/metrics", "/livez", "/api/v1/config", "/nothing"] {
        let (head, _) = world.ask(&format!("GET {path}"), LOCAL).await;
        for header in [
            "content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
        assert!(
            !head.to_lowercase().contains("access-control-allow"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn whoever_says_nothing_after_an_answer_is_gone_too() {
    let patience = Patience {
        header: Duration::from_millis(50),
        ..PATIENCE
    };
    let world = World::with_patience(ApiAccess::Loopback, patience).await;
    let mut stream = world
        .send(&format!("GET /livez HTTP/1.1\r\n{LOCAL}\r\n"))
        .await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test]
async fn the_follow_command_prints_each_event_as_it_happens() {
    let world = World::new(ApiAccess::Loopback).await;
    let args = EventsArgs {
        client: ClientArgs {
            asked: AdminArgs {
                admin: world.address.to_string().parse().unwrap(),
            },
            json: false,
        },
        follow: true,
    };
    let (lines, mut printed) = tokio::sync::mpsc::unbounded_channel();
    let command = tokio::spawn(async move { client::events(&args, &mut Lines(lines)).await });
    let mut printed_next = async || {
        let mut text = String::new();
        while !text.ends_with('\n') {
            text.push_str(&printed.recv().await.unwrap());
        }
        text
    };
    for first in [true, false, false] {
        world.record(1);
        let line = printed_next().await;
        assert!(line.ends_with("Z gap (never_seen)\n"), "{line}");
        if first {
            let meaning = printed_next().await;
            assert!(meaning.ends_with("hapax explain never_seen\n"), "{meaning}");
        }
    }
    drop(printed);
    world.record(1);
    let ended = command.await.unwrap().unwrap_err();
    assert!(ended.is_closed_output(), "{ended}");
}

#[tokio::test]
async fn a_command_says_what_was_refused_and_by_whom() {
    let world = World::new(ApiAccess::Loopback).await;
    let _all = world.admin.followers.acquire_many(16).await.unwrap();
    let args = EventsArgs {
        client: ClientArgs {
            asked: AdminArgs {
                admin: world.address.to_string().parse().unwrap(),
            },
            json: true,
        },
        follow: true,
    };
    let error = client::events(&args, &mut Vec::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "hapax at {} refused with 503: too many followers; end one, or poll with ?after=ID",
            world.address
        )
    );
}
