//! The first minute of a user: `hapax check`, `hapax wait`, and what `hapax run`
//! says when something is not as it should be. Each says what to do.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "support/secure.rs"]
mod secure;
#[path = "support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{
    ApiVersionsResponse, MetadataResponse, ResponseHeader, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use secure::{Ca, Files, VERSIONS};
use serde_json::Value;
use support::hapax::{self, free_range};
use support::raw::Client;
use support::{await_until, peer};

const SOON: Duration = Duration::from_secs(20);
const API_VERSIONS: &[u8] = b"\0\0\0\x0f\0\x12\0\0\0\0\0\0\0\x05hapax";

/// What `hapax` makes of these arguments.
fn run(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hapax"))
        .env_clear()
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Own ports of a hapax: listen, admin, and `brokers` of brokers from the third on.
struct Ports {
    first: u16,
    brokers: u16,
}

impl Ports {
    fn free(brokers: u16) -> Self {
        Self {
            first: free_range(brokers + 2),
            brokers,
        }
    }

    fn flags(&self) -> String {
        let Self { first, brokers } = self;
        format!(
            "--listen 127.0.0.1:{first} --admin-listen 127.0.0.1:{} --broker-ports {}-{}",
            first + 1,
            first + 2,
            first + 1 + brokers
        )
    }

    fn broker(&self, at: u16) -> u16 {
        self.first + 2 + at
    }
}

/// `hapax check --connect --json` on free ports, and its exit code.
fn connect(flags: &str) -> (Value, i32) {
    connect_on(&Ports::free(4), flags)
}

fn connect_on(ports: &Ports, flags: &str) -> (Value, i32) {
    let output = run(&format!("check --connect --json {} {flags}", ports.flags()));
    let said = text(&output);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let code = output.status.code().unwrap();
    assert_eq!(report["exit_code"], code);
    (report, code)
}

/// The one problem of a report has this code, and its texts say these things.
#[track_caller]
fn expect_problem(report: &Value, code: &str, says: &[&str]) {
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{report:#}");
    let problem = &problems[0];
    assert_eq!(problem["code"], code, "{problem}");
    for words in says {
        let said = problem.to_string();
        assert!(said.contains(words), "{said} does not say {words:?}");
    }
}

/// What an upstream does with the frame of a request: answers, or closes.
type Script = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// An upstream by script; it ends with the test.
fn upstream(script: impl Fn(u16) -> Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = std::sync::Arc::new(script(address.port()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, script) = (stream.unwrap(), script.clone());
            thread::spawn(move || {
                let mut prefix = [0; 4];
                while stream.read_exact(&mut prefix).is_ok() {
                    let length = usize::try_from(u32::from_be_bytes(prefix)).unwrap();
                    let mut frame = prefix.to_vec();
                    if prefix[0] == 0 {
                        frame.resize(4 + length, 0);
                        stream.read_exact(&mut frame[4..]).unwrap();
                    }
                    match script(&frame) {
                        Some(answer) => stream.write_all(&answer).unwrap(),
                        None => return,
                    }
                }
            });
        }
    });
    address.to_string()
}

/// An upstream that says the same to everyone, whatever they ask.
fn parrot(answer: &'static [u8]) -> String {
    upstream(|_| Box::new(move |_| Some(answer.to_vec())))
}

fn key_of(frame: &[u8]) -> i16 {
    i16::from_be_bytes(frame[4..6].try_into().unwrap())
}

fn answer<M: Encodable + HeaderVersion>(asked: &[u8], message: &M) -> Vec<u8> {
    let version = i16::from_be_bytes(asked[6..8].try_into().unwrap());
    let correlation = i32::from_be_bytes(asked[8..12].try_into().unwrap());
    let mut frame = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(correlation)
        .encode(&mut frame, M::header_version(version))
        .unwrap();
    message.encode(&mut frame, version).unwrap();
    let mut whole = u32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
    whole.extend(frame);
    whole
}

fn api_versions(asked: &[u8], keys: &[(i16, i16)]) -> Vec<u8> {
    let keys = keys.iter().map(|(key, max)| {
        ApiVersion::default()
            .with_api_key(*key)
            .with_max_version(*max)
    });
    answer(
        asked,
        &ApiVersionsResponse::default().with_api_keys(keys.collect()),
    )
}

/// A broker's api versions: Produce, Fetch, Metadata, SaslHandshake.
const BROKER: [(i16, i16); 4] = [(0, 13), (1, 18), (3, 13), (17, 1)];

/// A broker of cluster `id` that lists these; port 0 stands for its own.
fn kafka(id: &'static str, brokers: &[(i32, &str, u16)]) -> String {
    let brokers: Vec<(i32, String, u16)> = brokers
        .iter()
        .map(|(node, host, port)| (*node, (*host).to_owned(), *port))
        .collect();
    upstream(|own| {
        let listed = brokers.iter().map(|(node, host, port)| {
            MetadataResponseBroker::default()
                .with_node_id((*node).into())
                .with_host(StrBytes::from_string(host.clone()))
                .with_port(i32::from(if *port == 0 { own } else { *port }))
        });
        let cluster = MetadataResponse::default()
            .with_cluster_id(Some(StrBytes::from_static_str(id)))
            .with_controller_id(1.into())
            .with_brokers(listed.collect());
        Box::new(move |frame| {
            Some(match key_of(frame) {
                18 => api_versions(frame, &BROKER),
                3 => answer(frame, &cluster),
                _ => return None,
            })
        })
    })
}

#[test]
fn options_are_checked_without_opening_anything() {
    let output = run("check --upstream nowhere.invalid:9092");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = text(&output);
    for words in [
        "✓ valid",
        "bootstrap.servers=127.0.0.1:19092",
        "add --connect",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn options_that_hapax_does_not_take_exit_78_with_the_way_out() {
    let wrong = "check --upstream localhost:19092";
    let output = run(wrong);
    assert_eq!(output.status.code(), Some(78));
    assert!(
        text(&output).contains("localhost:19092 is hapax itself"),
        "{}",
        text(&output)
    );
    let output = run(&format!("{wrong} --json"));
    assert_eq!(output.status.code(), Some(78));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["valid"], false);
    expect_problem(&report, "configuration", &["hapax itself"]);
    assert_eq!(run("check --upstream kafka").status.code(), Some(64));
}

#[test]
fn each_mistake_in_the_file_is_a_problem_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hapax.yaml");
    let text = "upstraem: a:1\nadmin:\n  lisen: 127.0.0.1:1\n";
    std::fs::write(&file, text).unwrap();
    let output = run(&format!("check --json --config {}", file.display()));
    assert_eq!(output.status.code(), Some(78));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems: Vec<_> = report["problems"].as_array().unwrap().iter().collect();
    for (line, meant) in [(1, "upstream"), (3, "admin.listen")] {
        let at = format!("hapax.yaml:{line}:");
        let says = |problem: &&&Value| problem["message"].to_string().contains(&at);
        let found = problems.iter().find(says).expect(&at).to_string();
        assert!(found.contains(&format!("did you mean {meant}?")), "{found}");
    }
}

#[test]
fn a_good_cluster_is_told_with_the_port_of_each_broker() {
    let upstream = kafka(
        "first",
        &[
            (1, "127.0.0.1", 0),
            (70_002, "localhost", 0),
            (3, "127.0.0.1", 0),
        ],
    );
    let ports = Ports::free(4);
    let (report, code) = connect_on(&ports, &format!("--upstream {upstream}"));
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["cluster"]["id"], "first");
    assert_eq!(report["cluster"]["controller"], 1);
    assert_eq!(report["cluster"]["answers_like"], "4.1");
    let own = |at: u16| Value::from(ports.broker(at));
    let told: Vec<_> = report["brokers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| (b["node"].clone(), b["port"].clone(), b["state"].clone()))
        .collect();
    // 1 mod 4, 3 mod 4, 70002 mod 4.
    let expected = [(1, own(1)), (3, own(3)), (70_002, own(2))]
        .map(|(node, port)| (Value::from(node), port, Value::from("ok")));
    assert_eq!(told, expected);
    let clients = &report["clients"];
    let listen = format!("127.0.0.1:{}", ports.first);
    assert_eq!(clients["bootstrap_servers"], listen);
    assert_eq!(clients["security_protocol"], "PLAINTEXT");

    let output = run(&format!(
        "check --connect {} --upstream {upstream}",
        ports.flags()
    ));
    let said = text(&output);
    assert!(
        said.contains(&format!("bootstrap.servers={listen}")),
        "{said}"
    );
    let row = said.lines().find(|line| line.contains("70002")).unwrap();
    assert!(row.contains(&ports.broker(2).to_string()), "{row}");
    let resolved = &report["brokers"][2]["resolved"];
    assert!(resolved.as_array().unwrap().contains(&"127.0.0.1".into()));
    assert!(row.contains("(resolves to"), "{row}");
    assert!(said.contains("✓ clients get through"), "{said}");
}

#[test]
fn an_upstream_that_serves_no_clients_is_named_for_what_it_is() {
    let quiet = TcpListener::bind("127.0.0.1:0").unwrap();
    let quiet_address = quiet.local_addr().unwrap().to_string();
    // Hangs up on plaintext, as many a TLS server does, and answers a hello.
    let tls = upstream(|_| {
        Box::new(|frame| (frame[0] == 0x16).then(|| b"\x16\x03\x03\0\x31\x02".to_vec()))
    });
    let controller =
        upstream(|_| Box::new(|frame| Some(api_versions(frame, &[(1, 18), (18, 4), (60, 2)]))));
    let inner =
        upstream(|_| Box::new(|frame| (key_of(frame) == 18).then(|| api_versions(frame, &BROKER))));
    let huge = b"\0\0\0\x0c\0\0\0\0\0\0\x7f\xff\xff\xff\0\x12";
    for (address, code, says) in [
        (
            "127.0.0.1:9".to_owned(),
            "refused",
            "start the broker, or give the port",
        ),
        (
            "nowhere.invalid:9092".to_owned(),
            "unresolved",
            "correct the name",
        ),
        (
            parrot(b"\x15\x03\x03\0\x02\x02\x46"),
            "tls",
            "--upstream-tls-enabled=true",
        ),
        (
            tls,
            "tls",
            "speaks TLS, and upstream.tls.enabled is not set",
        ),
        (
            parrot(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "http",
            "the port of a Kafka listener",
        ),
        (
            upstream(|_| Box::new(|_| None)),
            "closed",
            "a listener that is for clients",
        ),
        (quiet_address, "silent", "port-forward"),
        (
            parrot(b"SSH-2.0-x\r\n"),
            "not_kafka",
            "the port of a Kafka listener",
        ),
        (parrot(huge), "not_kafka", "the bytes end"),
        (controller, "controller", "a broker's listener"),
        (inner, "reserved", "a listener that is for clients"),
    ] {
        let (report, exit) = connect(&format!("--upstream {address} --timeouts-connect 500ms"));
        assert_eq!(exit, 69, "{code}: {report:#}");
        expect_problem(&report, code, &[&address, says]);
        assert_eq!(report["upstream"][0]["state"], code);
    }
    drop(quiet);
}

#[test]
fn a_broker_that_advertises_an_unknown_name_is_mapped_by_the_line_that_is_told() {
    let upstream = kafka("cluster", &[(7, "kafka-7.invalid", 9092)]);
    let (report, code) = connect(&format!("--upstream {upstream}"));
    assert_eq!(code, 69);
    let line = format!("--upstream-address-map kafka-7.invalid:9092={upstream}");
    expect_problem(
        &report,
        "unresolved",
        &[
            "broker 7 advertises kafka-7.invalid:9092",
            "advertised.listeners",
            &line,
        ],
    );
    let (report, code) = connect(&format!("--upstream {upstream} {line}"));
    assert_eq!(code, 0, "{report:#}");
    let broker = &report["brokers"][0];
    assert_eq!(broker["advertised"], "kafka-7.invalid:9092");
    assert_eq!(broker["reached_at"], *upstream);
    let wrong = "--upstream-address-map kafka-7.invalid:9092=127.0.0.1:9";
    let (report, code) = connect(&format!("--upstream {upstream} {wrong}"));
    assert_eq!(code, 69);
    expect_problem(
        &report,
        "refused",
        &["correct the entry kafka-7.invalid:9092=127.0.0.1:9"],
    );
}

#[test]
fn one_broker_that_cannot_be_reached_exits_69_and_the_others_are_told() {
    let upstream = kafka("cluster", &[(1, "127.0.0.1", 0), (2, "127.0.0.1", 9)]);
    let (report, code) = connect(&format!("--upstream {upstream}"));
    assert_eq!(code, 69);
    expect_problem(
        &report,
        "refused",
        &["broker 2", "--upstream-address-map 127.0.0.1:9=HOST:PORT"],
    );
    assert_eq!(report["brokers"][0]["state"], "ok");
}

#[test]
fn a_broker_that_advertises_hapax_is_told_to_advertise_itself() {
    let ports = Ports::free(4);
    let listen = ports.first;
    let upstream = kafka("cluster", &[(1, "127.0.0.1", listen), (2, "127.0.0.1", 0)]);
    let (report, code) = connect_on(&ports, &format!("--upstream {upstream}"));
    assert_eq!(code, 69);
    expect_problem(
        &report,
        "itself",
        &["broker 1 advertises", "let Kafka advertise its own address"],
    );
    let upstream = kafka("cluster", &[(1, "me.invalid", listen)]);
    let named = "--listen-advertised-host me.invalid";
    let (report, code) = connect_on(&ports, &format!("--upstream {upstream} {named}"));
    assert_eq!(code, 69);
    expect_problem(&report, "itself", &["me.invalid"]);
}

#[test]
fn an_advertised_address_of_another_cluster_is_noticed() {
    let other = kafka("second", &[(1, "127.0.0.1", 0)]);
    let port = other.rsplit(':').next().unwrap().parse().unwrap();
    let upstream = kafka("first", &[(1, "127.0.0.1", port)]);
    let (report, code) = connect(&format!("--upstream {upstream}"));
    assert_eq!(code, 69);
    expect_problem(&report, "other_cluster", &["broker 1", "another cluster"]);
}

#[test]
fn more_brokers_than_ports_exit_78() {
    let brokers: Vec<_> = (0..3).map(|node| (node, "127.0.0.1", 0)).collect();
    let upstream = kafka("cluster", &brokers);
    let (report, code) = connect_on(&Ports::free(2), &format!("--upstream {upstream}"));
    assert_eq!(code, 78);
    let problems = report["problems"].as_array().unwrap();
    let problem = problems.iter().find(|p| p["code"] == "no_port").unwrap();
    assert!(
        problem["advice"]
            .as_str()
            .unwrap()
            .contains("widen --broker-ports")
    );
    let homeless = |b: &&Value| b["port"].is_null();
    let rows = report["brokers"].as_array().unwrap();
    assert_eq!(rows.iter().filter(homeless).count(), 1);
}

#[test]
fn a_listener_that_wants_sasl_is_told_with_its_mechanisms() {
    let upstream = upstream(|_| {
        Box::new(|frame| match key_of(frame) {
            18 => Some(api_versions(frame, &BROKER)),
            17 => {
                let mechanisms = ["SCRAM-SHA-512", "PLAIN"].map(StrBytes::from_static_str);
                let answered = SaslHandshakeResponse::default().with_mechanisms(mechanisms.into());
                Some(answer(frame, &answered))
            }
            _ => None,
        })
    });
    let (report, code) = connect(&format!("--upstream {upstream}"));
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["upstream"][0]["state"], "sasl");
    assert_eq!(report["clients"]["security_protocol"], "SASL_PLAINTEXT");
    let mechanisms = &report["cluster"]["sasl_mechanisms"];
    assert_eq!(*mechanisms, serde_json::json!(["SCRAM-SHA-512", "PLAIN"]));
    let output = run(&format!(
        "check --connect {} --upstream {upstream}",
        Ports::free(1).flags()
    ));
    // However it is wrapped.
    let said = text(&output);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("wants SASL"), "{said}");
    assert!(said.contains("cannot list the brokers"), "{said}");

    // With users of hapax's own nobody would log in to it.
    let files = Files::new();
    let users = files.write("users", &user_line(&files));
    let (report, code) = connect(&format!(
        "--upstream {upstream} --listen-sasl-users-file={users}"
    ));
    assert_eq!(code, 69, "{report:#}");
    let said = [
        "unreachable",
        "SCRAM-SHA-512, PLAIN",
        "upstream.sasl.mechanism",
    ];
    expect_problem(&report, "nobody_logs_in", &said);
}

/// A line of a users file, as `hapax user` makes it.
fn user_line(files: &Files) -> String {
    let password = files.write("p", "secret");
    let made = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args([
            "user",
            "alice",
            "--iterations=4096",
            "--password-file",
            &password,
        ])
        .output()
        .unwrap();
    String::from_utf8(made.stdout).unwrap()
}

#[test]
fn one_of_two_bootstrap_servers_is_enough() {
    let upstream = kafka("cluster", &[(1, "127.0.0.1", 0)]);
    let (report, code) = connect(&format!("--upstream 127.0.0.1:9,{upstream}"));
    assert_eq!(code, 0);
    expect_problem(&report, "refused", &["warning", "127.0.0.1:9"]);
    assert_eq!(report["brokers"].as_array().unwrap().len(), 1);
}

#[test]
fn a_taken_port_is_told_with_its_flag_unless_hapax_has_it() {
    let upstream = kafka("cluster", &[(1, "127.0.0.1", 0)]);
    for (at, flag) in [
        (0, "--listen"),
        (1, "--admin-listen"),
        (3, "--broker-ports"),
    ] {
        let ports = Ports::free(4);
        let taken = TcpListener::bind(("127.0.0.1", ports.first + at)).unwrap();
        let (report, code) = connect_on(
            &ports,
            &format!("--upstream {upstream} --timeouts-connect 2s"),
        );
        assert_eq!(code, 78);
        let address = taken.local_addr().unwrap().to_string();
        expect_problem(&report, "port_taken", &[&address, &format!("move {flag}")]);
    }
    let ports = Ports::free(4);
    let _running = hapax::spawn(&upstream, "absorb", ports.first, 4, &[]);
    let up = format!("wait --admin 127.0.0.1:{}", ports.first + 1);
    assert_eq!(run(&up).status.code(), Some(0));
    let (report, code) = connect_on(&ports, &format!("--upstream {upstream}"));
    assert_eq!(code, 0, "{report:#}");
    for row in report["ports"].as_array().unwrap() {
        assert_eq!(row["state"], "hapax");
    }
}

#[test]
fn what_a_broker_says_cannot_move_the_cursor() {
    let upstream = kafka("\u{1b}[2Jid", &[(1, "\u{1b}[2J.invalid", 1)]);
    let flags = Ports::free(1).flags();
    let output = run(&format!("check --connect {flags} --upstream {upstream}"));
    let said = text(&output);
    assert!(said.contains(r"\u{1b}[2J.invalid"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_misspelt_variable_is_a_warning() {
    let output = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .env_clear()
        .env("HAPAX_UPSTREAMS", "x")
        .args(["check", "--upstream", "a:1", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let says = ["HAPAX_UPSTREAMS", "warning", "did you mean HAPAX_UPSTREAM?"];
    expect_problem(&report, "unknown_variable", &says);
}

#[test]
fn wait_ends_when_hapax_is_up() {
    let ports = Ports::free(1);
    let admin = format!("127.0.0.1:{}", ports.first + 1);
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["wait", "--admin", &admin])
        .spawn()
        .unwrap();
    let upstream = kafka("cluster", &[]);
    let mut hapax = hapax::spawn(&upstream, "absorb", ports.first, 1, &[]);
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    let ready = format!("wait --ready --admin {admin}");
    assert_eq!(run(&ready).status.code(), Some(0));
    hapax.assert_well();
}

/// A process whose workers stand still has started all the same.
#[test]
fn wait_asks_what_it_was_told_to() {
    for (flag, question) in [
        ("", "GET /startupz "),
        ("--ready", "GET /readyz "),
        ("--live", "GET /livez "),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap();
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let len = stream.read(&mut request).unwrap();
            let body = r#"{"started":true,"live":false,"ready":false,"reasons":[{"message":"it stands still"}]}"#;
            write!(
                stream,
                "HTTP/1.1 503 no\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            String::from_utf8_lossy(&request[..len]).into_owned()
        });
        let output = run(&format!("wait {flag} --max 0 --admin {admin}"));
        assert_eq!(output.status.code(), Some(69), "{}", text(&output));
        assert!(text(&output).contains("it stands still"));
        let asked = asked.join().unwrap();
        assert!(asked.starts_with(question), "{asked}");
    }
    assert_eq!(run("wait --live --ready").status.code(), Some(64));
}

#[test]
fn wait_exits_69_with_the_last_reason() {
    let output = run("wait --max 100ms --admin 127.0.0.1:9");
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output).contains("no hapax answers at 127.0.0.1:9"));
    let page = parrot(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let output = run(&format!("wait --max 0 --admin {page}"));
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
}

#[test]
fn an_upstream_that_speaks_tls_is_told_and_not_ready() {
    let tls = parrot(b"\x15\x03\x03\0\x02\x02\x46");
    let hapax = hapax::start(&tls, "absorb", &[]);
    let said =
        "the upstream port speaks TLS: set upstream.tls.enabled (--upstream-tls-enabled=true)";
    await_until("the cause to be told", SOON, || {
        hapax.output().contains(said)
    });
    let mut client = TcpStream::connect(&hapax.bootstrap).unwrap();
    client.write_all(API_VERSIONS).unwrap();
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert_eq!(rest, b"", "a client sees its connection closed");
    let ready = format!("wait --ready --max 0 --admin {}", hapax.admin);
    let output = run(&ready);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
    assert!(text(&output).contains("no broker could be reached"));
}

#[test]
fn a_broker_that_cannot_be_reached_is_told_with_the_option_to_set() {
    let upstream = kafka("cluster", &[(1, "kafka-1.invalid", 9092)]);
    for (map, says) in [
        (
            "--drain-timeout=1s",
            "start hapax with --upstream-address-map kafka-1.invalid:9092=HOST:PORT",
        ),
        (
            "--upstream-address-map=kafka-1.invalid:9092=127.0.0.1:9",
            "correct the entry kafka-1.invalid:9092=127.0.0.1:9",
        ),
    ] {
        let hapax = hapax::start(&upstream, "absorb", &[map]);
        let mut client = Client::connect(&hapax.bootstrap).unwrap();
        client.metadata(12, &["t"]).unwrap();
        // Node 1 of two ports has the second.
        let mut client = TcpStream::connect(("127.0.0.1", hapax.first_port + 1)).unwrap();
        client.write_all(API_VERSIONS).unwrap();
        await_until(says, SOON, || hapax.output().contains(says));
    }
}

#[test]
fn a_wrong_upstream_port_is_told_without_a_client() {
    let hapax = hapax::start("127.0.0.1:9", "absorb", &[]);
    await_until("the cause to be told", SOON, || {
        let output = hapax.output();
        output.contains("nothing listens at 127.0.0.1:9")
            && output.contains("start the broker, or correct the port")
    });
}

#[test]
fn a_client_that_speaks_tls_or_http_is_told_what_to_set() {
    let peer = peer::start();
    let hapax = hapax::start(&peer.address, "absorb", &[]);
    for (bytes, says) in [
        (&b"\x16\x03\x01\x02\0\x01"[..], "set its security.protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "are at --admin-listen"),
    ] {
        let mut client = Client::connect(&hapax.bootstrap).unwrap();
        client.send_raw(bytes).unwrap();
        await_until(says, SOON, || hapax.output().contains(says));
    }
}

#[test]
fn a_client_that_tries_tls_again_and_again_does_not_fill_the_log() {
    let peer = peer::start();
    let hapax = hapax::start(&peer.address, "absorb", &[]);
    for _ in 0..100 {
        let mut client = TcpStream::connect(&hapax.bootstrap).unwrap();
        client.write_all(b"\x16\x03\x01\x02\0\x01").unwrap();
        let _ = client.read(&mut [0; 1]);
    }
    let refused = || hapax.metric("hapax_bad_frames_total", &["tls"]);
    await_until("every try to be counted", SOON, || refused() >= 100.0);
    let lines = hapax.output().matches("the client speaks TLS").count();
    assert!((1..=20).contains(&lines), "{lines} lines");
}

#[test]
fn a_client_that_tries_again_and_again_does_not_fill_the_log() {
    let hapax = hapax::start("127.0.0.1:9", "absorb", &[]);
    // Most of them come while the broker is left alone.
    let errors = || hapax.metric("hapax_upstream_connect_errors_total", &[]);
    for _ in 0..300 {
        let mut client = TcpStream::connect(&hapax.bootstrap).unwrap();
        client.write_all(API_VERSIONS).unwrap();
        let _ = client.read(&mut [0; 1]);
    }
    await_until("every try to be counted", SOON, || errors() >= 300.0);
    let output = hapax.output();
    let lines = output.matches("cannot reach the broker").count();
    assert!((1..=30).contains(&lines), "{lines} lines: {output}");
}

#[test]
fn clients_that_an_upstream_hangs_up_on_do_not_fill_the_log() {
    let closes = upstream(|_| Box::new(|_| None));
    let hapax = hapax::start(&closes, "absorb", &[]);
    for _ in 0..300 {
        let mut client = TcpStream::connect(&hapax.bootstrap).unwrap();
        client.write_all(API_VERSIONS).unwrap();
        let _ = client.read(&mut [0; 1]);
    }
    let ended = || hapax.metric("hapax_client_disconnects_total", &["upstream"]);
    await_until("every end to be counted", SOON, || ended() >= 300.0);
    let output = hapax.output();
    let lines = output.matches("broker connection ended").count();
    assert!((1..=100).contains(&lines), "{lines} lines: {output}");
}

#[test]
fn a_port_in_use_is_told_with_the_flag_to_move() {
    for (at, flag) in [
        (0, "--listen"),
        (1, "--admin-listen"),
        (2, "--broker-ports"),
    ] {
        let ports = Ports::free(1);
        let taken = TcpListener::bind(("127.0.0.1", ports.first + at)).unwrap();
        let output = run(&format!("run --upstream 127.0.0.1:9 {}", ports.flags()));
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output);
        let address = taken.local_addr().unwrap();
        assert!(
            said.contains(&format!("cannot listen on {address}")),
            "{said}"
        );
        assert!(said.contains(&format!("move {flag} to another")), "{said}");
    }
}

#[test]
fn a_second_hapax_says_that_one_is_running() {
    let first = hapax::start("127.0.0.1:9", "absorb", &[]);
    let port = first.bootstrap.rsplit(':').next().unwrap();
    let flags = format!(
        "--listen 127.0.0.1:{port} --admin-listen {} --broker-ports {}",
        first.admin, first.first_port
    );
    let output = run(&format!("run --upstream 127.0.0.1:9 {flags}"));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(
        said.contains("another hapax is already running here"),
        "{said}"
    );
}

#[test]
fn ctrl_c_ends_an_idle_hapax_with_one_line() {
    let mut hapax = hapax::start("127.0.0.1:9", "absorb", &[]);
    let count = |output: &str| output.lines().count();
    // Its first look at the upstream is over.
    await_until("the first warning", SOON, || {
        hapax.output().contains("cannot be reached")
    });
    let before = count(&hapax.output());
    hapax.signal("INT");
    assert_eq!(hapax.ended().code(), Some(0));
    let output = hapax.output();
    assert_eq!(count(&output), before + 1, "{output}");
    assert!(output.contains("drained"), "{output}");
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_the_first_says_so() {
    let peer = peer::start();
    let mut hapax = hapax::start(&peer.address, "absorb", &[]);
    let mut client = Client::connect(&hapax.bootstrap).unwrap();
    client.metadata(12, &["t"]).unwrap();
    hapax.signal("INT");
    await_until("the drain to be told", SOON, || {
        hapax.output().contains("a second signal ends at once")
    });
    hapax.signal("INT");
    assert_eq!(hapax.ended().code(), Some(1));
}

#[test]
fn a_typing_error_is_answered_with_what_was_meant() {
    for (typed, meant) in [
        ("prodcers", "producers"),
        ("chek", "check"),
        ("run --upstraem a:1", "--upstream"),
        ("check --upstream a:1 --conect", "--connect"),
        ("wait --maxx 1s", "--max"),
    ] {
        let output = run(typed);
        assert_eq!(output.status.code(), Some(64), "{typed}");
        let said = text(&output);
        assert!(said.contains(&format!("'{meant}'")), "{typed}: {said}");
    }
}

/// What `hapax check` says of files, without a network: the one problem.
#[track_caller]
fn expect_of_files(flags: &str, code: &str, says: &[&str]) {
    let output = run(&format!("check --json --upstream kafka:9093 {flags}"));
    let said = text(&output);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(output.status.code(), Some(78), "{report:#}");
    expect_problem(&report, code, says);
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_told_without_a_network() {
    let (ca, files) = (Ca::new("one"), Files::new());
    let (one, other) = (ca.issue(&["hapax"]), ca.issue(&["hapax"]));
    let late = ca.issue_until(&["hapax"], 2020);
    let certificate = files.write("tls.crt", &one.certificate);
    let key = files.write("tls.key", &one.key);
    let other = files.write("other.key", &other.key);
    let open = files.write_with_mode("open.key", &one.key, 0o644);
    let shared = files.write_with_mode("shared.key", &one.key, 0o440);
    let broken = files.write("broken.crt", &one.certificate[..200]);
    let binary = files.write("binary.crt", "0\u{2}");
    let passphrase =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = files.write("encrypted.key", passphrase);
    let expired = files.write("expired.crt", &late.certificate);
    let expired_key = files.write("expired.key", &late.key);
    let own = format!(
        "--upstream-tls-enabled=true --upstream-tls-ca-file={certificate} --upstream-tls-cert-file={certificate} --upstream-tls-key-file={key}"
    );
    let listen = |certificate: &str, key: &str| {
        format!("--listen-tls-cert-file={certificate} --listen-tls-key-file={key}")
    };
    for (flags, code, says) in [
        (
            listen(&certificate, "/nowhere/tls.key"),
            "tls",
            [
                "listen.tls.keyFile /nowhere/tls.key cannot be read",
                "No such file",
            ],
        ),
        (
            listen(&certificate, &other),
            "tls",
            ["listen.tls.keyFile", "is not the key of the certificate in"],
        ),
        (
            listen(&certificate, &open),
            "tls",
            [
                "can be read or written by everyone (mode 0644)",
                "chmod o-rw",
            ],
        ),
        (
            listen(&certificate, &encrypted),
            "tls",
            ["has a key with a passphrase", "openssl pkey"],
        ),
        (
            listen(&key, &certificate),
            "tls",
            ["listen.tls.certFile", "are the two files swapped?"],
        ),
        (
            listen(&broken, &key),
            "tls",
            ["broken.crt", "is a broken PEM file"],
        ),
        (
            listen(&binary, &key),
            "tls",
            ["it is binary", "openssl x509"],
        ),
        (
            listen(&expired, &expired_key),
            "tls_expired",
            [
                "the certificate of listen.tls.certFile was valid until 2020-01-01",
                "without a restart",
            ],
        ),
        (
            format!("--upstream-tls-enabled=true --upstream-tls-ca-file={key}"),
            "tls",
            ["upstream.tls.caFile", "has no certificate"],
        ),
        (
            format!("--upstream-tls-ca-file={certificate}"),
            "configuration",
            [
                "upstream.tls.caFile is set, and upstream.tls.enabled is not",
                "set that to true",
            ],
        ),
        (
            format!("--listen-tls-cert-file={certificate}"),
            "configuration",
            [
                "listen.tls.certFile is set, and listen.tls.keyFile is not",
                "give both",
            ],
        ),
        (
            format!("--listen-tls-client-ca-file={certificate}"),
            "configuration",
            [
                "listen.tls.clientCaFile is set, and listen.tls.certFile is not",
                "certificate of its own",
            ],
        ),
        (
            format!("--listen 0.0.0.0:19092 {own}"),
            "configuration",
            [
                "would serve each of them with its own credentials",
                "allowOpenListener",
            ],
        ),
    ] {
        expect_of_files(&flags, code, &says);
    }
    for flags in [
        // A secret of Kubernetes, which a group may read.
        listen(&certificate, &shared),
        own.clone(),
        format!("--listen 0.0.0.0:19092 --allow-open-listener=true {own}"),
        format!(
            "--listen 0.0.0.0:19092 {own} {} --listen-tls-client-ca-file={certificate}",
            listen(&certificate, &key)
        ),
    ] {
        let output = run(&format!("check --upstream kafka:9093 {flags}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

/// hapax's own credentials, by who can reach it and what clients have to prove.
#[test]
fn own_credentials_are_nobodys_beyond_this_machine_who_proves_nothing() {
    let (ca, files) = (Ca::new("one"), Files::new());
    let identity = ca.issue(&["127.0.0.1"]);
    let certificate = files.write("tls.crt", &identity.certificate);
    let key = files.write("tls.key", &identity.key);
    let users = files.write("users", &user_line(&files));
    let own = format!(
        "--upstream-tls-enabled=true --upstream-tls-cert-file={certificate} --upstream-tls-key-file={key}"
    );
    let tls = format!("--listen-tls-cert-file={certificate} --listen-tls-key-file={key}");
    let shown = format!("{tls} --listen-tls-client-ca-file={certificate}");
    let named = format!("--listen-sasl-users-file={users}");
    for (listen, local) in [
        ("127.0.0.1:19092", true),
        ("127.0.0.2:19092", true),
        ("[::1]:19092", true),
        ("0.0.0.0:19092", false),
        ("[::]:19092", false),
        ("10.0.0.1:19092", false),
    ] {
        for (credentials, has) in [("", false), (&*own, true)] {
            for (clients, proven) in [
                ("", false),
                (&*tls, false),
                (&*shown, true),
                (&*named, true),
            ] {
                for (allowed, open) in [("", false), ("--allow-open-listener=true", true)] {
                    let flags = format!("--listen {listen} {credentials} {clients} {allowed}");
                    let output = run(&format!("check --upstream kafka:9093 {flags}"));
                    let fine = local || !has || proven || open;
                    let said = text(&output);
                    let expected = if fine { 0 } else { 78 };
                    assert_eq!(output.status.code(), Some(expected), "{flags}: {said}");
                    let explained = said.contains("listen.sasl.usersFile")
                        && said.contains("allowOpenListener");
                    assert!(fine || explained, "{flags}: {said}");
                }
            }
        }
    }
}

#[test]
fn a_file_of_users_that_cannot_be_used_is_a_problem_of_the_configuration() {
    let files = Files::new();
    let users = files.write("users", "alice:secret\n");
    let flags = format!("--listen-sasl-users-file={users}");
    let says = ["listen.sasl.usersFile", "users:1: no credential"];
    expect_of_files(&flags, "users", &says);
    let says = [
        "listen.sasl.mechanisms is set, and listen.sasl.usersFile is not",
        "give the file",
    ];
    expect_of_files("--listen-sasl-mechanisms=PLAIN", "configuration", &says);
}

#[test]
fn a_hapax_without_usable_certificates_does_not_start() {
    let output = run(
        "run --upstream kafka:9093 --listen-tls-cert-file=/nowhere/tls.crt --listen-tls-key-file=/nowhere/tls.key",
    );
    assert_eq!(output.status.code(), Some(78), "{}", text(&output));
    assert!(text(&output).contains("listen.tls.certFile /nowhere/tls.crt cannot be read"));
}

#[test]
fn brokers_of_tls_are_examined_in_tls() {
    let (ca, files) = (Ca::new("one"), Files::new());
    let config = secure::server(
        &ca.issue(&["127.0.0.1", "kafka-1.example"]),
        None,
        &VERSIONS,
    );
    // What the broker says is fixed before it is known where it is reached.
    let plain = kafka("cluster", &[(1, "kafka-1.example", 9093)]);
    let address = secure::opening(&plain, config);
    let ca_file = files.write("ca.crt", &ca.certificate);
    let map = format!("--upstream-address-map kafka-1.example:9093={address}");
    let tls = format!("--upstream-tls-enabled=true --upstream-tls-ca-file={ca_file}");
    let (report, code) = connect(&format!("--upstream {address} {map} {tls}"));
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["brokers"][0]["state"], "ok");
    assert_eq!(report["clients"]["security_protocol"], "PLAINTEXT");

    let (report, code) = connect(&format!("--upstream {plain} {tls}"));
    assert_eq!(code, 69, "{report:#}");
    expect_problem(&report, "plaintext", &["leave --upstream-tls-enabled out"]);
    let stranger = files.write("stranger.crt", &Ca::new("other").certificate);
    let tls = format!("--upstream-tls-enabled=true --upstream-tls-ca-file={stranger}");
    let (report, code) = connect(&format!("--upstream {address} {tls}"));
    assert_eq!(code, 69, "{report:#}");
    expect_problem(
        &report,
        "tls_ca",
        &["set upstream.tls.caFile to the CA of the brokers"],
    );
    let (report, code) = connect(&format!("--upstream {address}"));
    assert_eq!(code, 69, "{report:#}");
    expect_problem(&report, "tls", &["--upstream-tls-enabled=true"]);
}
