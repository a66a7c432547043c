//! hapax logs in to the broker by its own credentials, and clients need none.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{
    ApiVersionsResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use ring::{digest, hmac, pbkdf2};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::broker::{Asked, Conn, OPAQUE, ok, produced};
use crate::secure::{self, Ca, Files, Identity, VERSIONS};
use crate::support::await_until;
use crate::support::hapax::{self, Hapax, binary};
use crate::support::raw::{Answer, Client, PATIENCE};
use crate::world::{PORTS, SOON, ping, produce};

const USER: &str = "hapax,the=proxy";
const SECRET: &str = "s3cr€t of hapax";

/// What a broker does, and what it saw.
struct Script {
    mechanisms: Vec<&'static str>,
    /// The newest SaslAuthenticate that it has.
    version: i16,
    /// The password or token of [`USER`].
    secret: Mutex<String>,
    /// For how long a login is good; 0 where that has no end.
    lifetime_ms: i64,
    misdeed: Misdeed,
    /// Each login that succeeded.
    logins: Mutex<Vec<String>>,
    /// What no Kafka would have taken.
    violations: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Misdeed {
    None,
    /// Does not answer the handshake.
    Silent,
    /// Does not know the password, and says that all is well.
    WrongSignature,
    /// Wants no SASL.
    Plaintext,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            mechanisms: vec!["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
            version: 2,
            secret: Mutex::new(SECRET.to_owned()),
            lifetime_ms: 0,
            misdeed: Misdeed::None,
            logins: Mutex::default(),
            violations: Mutex::default(),
        }
    }
}

/// A broker that wants a login, and a hapax that has one.
struct World {
    script: Arc<Script>,
    hapax: Hapax,
    dir: tempfile::TempDir,
}

impl World {
    fn new(script: Script, mechanism: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self::within(dir, script, mechanism, flags)
    }

    fn within(
        dir: tempfile::TempDir,
        script: Script,
        mechanism: &str,
        mut flags: Vec<String>,
    ) -> Self {
        let file = secret_file(&dir, SECRET);
        flags.push(format!("--upstream-sasl-mechanism={mechanism}"));
        let has_tokens = flags.iter().any(|flag| flag.contains("oauth"));
        match mechanism {
            "OAUTHBEARER" if has_tokens => {}
            "OAUTHBEARER" => {
                flags.push(format!("--upstream-sasl-token-file={}", file.display()));
            }
            _ => {
                flags.push(format!("--upstream-sasl-username={USER}"));
                flags.push(format!("--upstream-sasl-password-file={}", file.display()));
            }
        }
        let script = Arc::new(script);
        let address = serve(&script);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let hapax = hapax::start_with(&address, "absorb", PORTS, &flags);
        Self { script, hapax, dir }
    }

    fn client(&self) -> Client {
        Client::connect(&self.hapax.bootstrap).unwrap()
    }

    fn logins(&self, outcome: &str) -> f64 {
        let label = format!("outcome=\"{outcome}\"");
        self.hapax.metric("hapax_upstream_logins_total", &[&label])
    }

    /// A client is closed, and the log says why.
    fn refuses(&self, words: &[&str]) {
        let mut client = self.client();
        ping(&mut client);
        assert!(client.is_closed(SOON), "the client is served");
        let said = || {
            let log = self.hapax.output();
            words.iter().all(|word| log.contains(word))
        };
        await_until(&format!("the log to say {words:?}"), SOON, said);
    }

    fn assert_no_secret(&self) {
        let shown = [
            self.hapax.output(),
            self.hapax.page("/api/v1/config"),
            self.hapax.page("/metrics"),
            self.hapax.page("/api/v1/connections"),
        ];
        let encoded = STANDARD.encode(format!("\0{USER}\0{SECRET}"));
        for text in shown {
            assert!(!text.contains("s3cr") && !text.contains(&encoded), "{text}");
        }
    }
}

fn secret_file(dir: &tempfile::TempDir, secret: &str) -> PathBuf {
    let path = dir.path().join("secret");
    fs::write(&path, format!("{secret}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A request goes through, and its answer comes back.
fn pong(client: &mut Client) {
    let correlation = ping(client);
    let answer = client.receive_frame().unwrap();
    assert_eq!(answer[..4], correlation.to_be_bytes());
}

/// Starts the broker; its threads end with the test.
fn serve(script: &Arc<Script>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let script = Arc::clone(script);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let script = Arc::clone(&script);
            thread::spawn(move || Broker::new(stream.unwrap(), script).run());
        }
    });
    address
}

/// One connection of it, as strict as Kafka's.
struct Broker {
    conn: Conn,
    script: Arc<Script>,
    stage: Stage,
    offset: i64,
}

enum Stage {
    /// Nobody has logged in.
    New,
    /// Tokens are awaited.
    Login(&'static str, Option<Scram>),
    /// Requests are answered, until then.
    In(Option<Instant>),
}

impl Broker {
    fn new(stream: TcpStream, script: Arc<Script>) -> Self {
        stream.set_nodelay(true).unwrap();
        let stage = match script.misdeed {
            Misdeed::Plaintext => Stage::In(None),
            _ => Stage::New,
        };
        Self {
            conn: Conn { stream },
            script,
            stage,
            offset: 0,
        }
    }

    fn run(mut self) {
        while let Ok(asked) = self.conn.try_next() {
            if !self.answer(&asked) {
                return;
            }
        }
    }

    fn violated(&self, what: &str) -> bool {
        self.script.violations.lock().unwrap().push(what.to_owned());
        false
    }

    /// Returns whether the connection goes on.
    fn answer(&mut self, asked: &Asked) -> bool {
        match (asked.key, &self.stage) {
            (18, Stage::New | Stage::In(_)) => {
                let api = |key, max| {
                    ApiVersion::default()
                        .with_api_key(key)
                        .with_max_version(max)
                };
                let apis = vec![
                    api(0, 11),
                    api(3, 12),
                    api(17, 1),
                    api(18, 3),
                    api(36, self.script.version),
                ];
                let answer = ApiVersionsResponse::default().with_api_keys(apis);
                self.conn.answer(asked, &answer);
                true
            }
            (17, Stage::New | Stage::In(_)) => self.handshake(asked),
            (36, Stage::Login(..)) => self.token(asked),
            (_, Stage::In(Some(until))) if *until < Instant::now() => {
                self.violated("a request behind the end of the login")
            }
            (OPAQUE, Stage::In(_)) => {
                self.conn.answer_raw(asked, b"pong");
                true
            }
            (0, Stage::In(_)) => {
                let offset = self.offset;
                self.offset += 1;
                let answer = produced(asked, |_| ok(offset));
                self.conn.answer(asked, &answer);
                true
            }
            (key, _) => self.violated(&format!(
                "api {key} before the login, or in the midst of it"
            )),
        }
    }

    fn handshake(&mut self, asked: &Asked) -> bool {
        let mut body = asked.frame.slice(8 + 2 + 5..);
        let request = SaslHandshakeRequest::decode(&mut body, asked.version).unwrap();
        let mut answer = SaslHandshakeResponse::default();
        match self.script.misdeed {
            Misdeed::Silent => return true,
            Misdeed::Plaintext => answer.error_code = 34,
            Misdeed::None | Misdeed::WrongSignature => {
                let mut known = self.script.mechanisms.iter();
                match known.find(|mechanism| **mechanism == &*request.mechanism) {
                    Some(mechanism) => self.stage = Stage::Login(mechanism, None),
                    None => answer.error_code = 33,
                }
                let names = self.script.mechanisms.iter();
                answer.mechanisms = names.map(|name| StrBytes::from_static_str(name)).collect();
            }
        }
        self.conn.answer(asked, &answer);
        true
    }

    fn token(&mut self, asked: &Asked) -> bool {
        let header = 8 + 2 + 5 + usize::from(asked.version >= 2);
        let mut body = asked.frame.slice(header..);
        let request = SaslAuthenticateRequest::decode(&mut body, asked.version).unwrap();
        let token = String::from_utf8(request.auth_bytes.to_vec()).unwrap();
        let secret = self.script.secret.lock().unwrap().clone();
        let Stage::Login(mechanism, scram) = &mut self.stage else {
            return false;
        };
        let mechanism = *mechanism;
        let answer = match (mechanism, scram.take()) {
            ("PLAIN", _) => (token == format!("\0{USER}\0{secret}")).then(|| (String::new(), true)),
            ("OAUTHBEARER", _) if token == "\x01" => None,
            ("OAUTHBEARER", _) if token == format!("n,,\x01auth=Bearer {secret}\x01\x01") => {
                Some((String::new(), true))
            }
            ("OAUTHBEARER", _) => Some((r#"{"status":"invalid_token"}"#.to_owned(), false)),
            (_, None) => {
                let (begun, first) = Scram::challenge(mechanism, &token);
                *scram = Some(begun);
                Some((first, false))
            }
            (_, Some(begun)) => {
                let wrong = self.script.misdeed == Misdeed::WrongSignature;
                begun.last(&token, &secret, wrong).map(|last| (last, true))
            }
        };
        let mut response = SaslAuthenticateResponse::default();
        match answer {
            Some((token, done)) => {
                response.auth_bytes = Bytes::from(token);
                if done {
                    self.logged_in(mechanism, &mut response);
                }
            }
            None => {
                response.error_code = 58;
                // A broker that repeats what it was told.
                let message = format!("Authentication failed: {token}");
                response.error_message = Some(StrBytes::from_string(message));
            }
        }
        if asked.version == 0 {
            response.session_lifetime_ms = 0;
        }
        let refused = response.error_code != 0;
        self.conn.answer(asked, &response);
        !refused
    }

    fn logged_in(&mut self, mechanism: &str, response: &mut SaslAuthenticateResponse) {
        let lifetime = self.script.lifetime_ms;
        response.session_lifetime_ms = lifetime;
        let until = Duration::from_millis(lifetime.unsigned_abs());
        self.stage = Stage::In((lifetime > 0).then(|| Instant::now() + until));
        self.script
            .logins
            .lock()
            .unwrap()
            .push(mechanism.to_owned());
    }
}

/// The server's side of SCRAM.
struct Scram {
    long: bool,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl Scram {
    const SALT: &[u8] = b"salt of the test";

    fn challenge(mechanism: &str, token: &str) -> (Self, String) {
        let bare = token.strip_prefix("n,,").unwrap();
        let (user, nonce) = bare.split_once(",r=").unwrap();
        assert_eq!(user, "n=hapax=2Cthe=3Dproxy");
        let nonce = format!("{nonce}more");
        let first = format!("r={nonce},s={},i=4096", STANDARD.encode(Self::SALT));
        let begun = Self {
            long: mechanism == "SCRAM-SHA-512",
            client_first: bare.to_owned(),
            server_first: first.clone(),
            nonce,
        };
        (begun, first)
    }

    fn last(&self, token: &str, secret: &str, wrong: bool) -> Option<String> {
        let (algorithm, mac, hash) = match self.long {
            true => (
                pbkdf2::PBKDF2_HMAC_SHA512,
                hmac::HMAC_SHA512,
                &digest::SHA512,
            ),
            false => (
                pbkdf2::PBKDF2_HMAC_SHA256,
                hmac::HMAC_SHA256,
                &digest::SHA256,
            ),
        };
        let mut salted = vec![0; hash.output_len()];
        let iterations = NonZeroU32::new(4096).unwrap();
        pbkdf2::derive(
            algorithm,
            iterations,
            Self::SALT,
            secret.as_bytes(),
            &mut salted,
        );
        let sign = |key: &[u8], text: &[u8]| {
            let tag = hmac::sign(&hmac::Key::new(mac, key), text);
            tag.as_ref().to_vec()
        };
        let (without, proof) = token.split_once(",p=").unwrap();
        assert_eq!(without, format!("c=biws,r={}", self.nonce));
        let message = format!("{},{},{without}", self.client_first, self.server_first);
        let stored = digest::digest(hash, &sign(&salted, b"Client Key"));
        let proof = STANDARD.decode(proof).unwrap();
        let signature = sign(stored.as_ref(), message.as_bytes());
        let key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let right = digest::digest(hash, &key).as_ref() == stored.as_ref();
        let server_key = sign(if wrong { b"nothing" } else { &salted }, b"Server Key");
        let last = format!(
            "v={}",
            STANDARD.encode(sign(&server_key, message.as_bytes()))
        );
        right.then_some(last)
    }
}

fn check(mechanism: &str, secret: &str, version: i16) {
    let script = Script {
        version,
        secret: Mutex::new(secret.to_owned()),
        ..Script::default()
    };
    let world = World::new(script, mechanism, &[]);
    pong(&mut world.client());
    pong(&mut world.client());
    let logins = world.script.logins.lock().unwrap().clone();
    assert!(logins.iter().all(|login| login == mechanism), "{logins:?}");
    assert!(logins.len() >= 2);
    assert!(world.logins("ok") >= 2.0);
    assert_eq!(*world.script.violations.lock().unwrap(), [] as [String; 0]);
    world.assert_no_secret();
}

#[test]
fn plain_is_spoken_in_every_version_that_brokers_have() {
    for version in 0..=2 {
        check("PLAIN", SECRET, version);
    }
}

#[test]
fn scram_is_spoken_with_both_hashes() {
    check("SCRAM-SHA-256", SECRET, 2);
    check("SCRAM-SHA-512", SECRET, 1);
}

/// A token as a file has it is no secret with blanks.
#[test]
fn a_token_of_a_file_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let token = secret_token();
    let path = dir.path().join("token");
    fs::write(&path, &token).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let script = Script {
        secret: Mutex::new(token),
        ..Script::default()
    };
    let script = Arc::new(script);
    let address = serve(&script);
    let file = format!("--upstream-sasl-token-file={}", path.display());
    let flags = ["--upstream-sasl-mechanism=OAUTHBEARER", file.as_str()];
    let hapax = hapax::start_with(&address, "absorb", PORTS, &flags);
    let world = World { script, hapax, dir };
    pong(&mut world.client());
    world.assert_no_secret();

    // Another one is not taken, and the broker says why.
    *world.script.secret.lock().unwrap() = "another".to_owned();
    world.refuses(&["refuses the login by OAUTHBEARER", "invalid_token"]);
    world.assert_no_secret();
}

fn secret_token() -> String {
    let claims = r#"{"sub":"hapax","note":"s3cr"}"#;
    format!("e30.{}.s3cr", URL_SAFE_NO_PAD.encode(claims))
}

#[test]
fn a_wrong_password_is_named_and_nobody_is_served() {
    for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
        let script = Script {
            secret: Mutex::new("another".to_owned()),
            ..Script::default()
        };
        let world = World::new(script, mechanism, &[]);
        let words = format!("refuses the login by {mechanism}");
        world.refuses(&[&words, "upstream.sasl.passwordFile"]);
        assert!(world.logins("refused") >= 1.0);
        let errors = world
            .hapax
            .metric("hapax_upstream_connect_errors_total", &["cause=\"sasl\""]);
        assert!(errors >= 1.0);
        assert_eq!(world.logins("ok"), 0.0);
        assert!(world.hapax.page("/readyz").starts_with("HTTP/1.1 503"));
        world.assert_no_secret();
    }
}

#[test]
fn a_broker_without_the_mechanism_is_told_with_those_it_has() {
    let script = Script {
        mechanisms: vec!["GSSAPI", "SCRAM-SHA-256"],
        ..Script::default()
    };
    let world = World::new(script, "PLAIN", &[]);
    world.refuses(&["does not take PLAIN, but GSSAPI, SCRAM-SHA-256"]);
}

#[test]
fn a_broker_that_does_not_know_the_password_itself_is_not_believed() {
    let script = Script {
        misdeed: Misdeed::WrongSignature,
        ..Script::default()
    };
    let world = World::new(script, "SCRAM-SHA-256", &[]);
    world.refuses(&["its signature is wrong"]);
    assert_eq!(world.logins("ok"), 0.0);
}

#[test]
fn a_broker_that_never_answers_keeps_nobody_for_ever() {
    let script = Script {
        misdeed: Misdeed::Silent,
        ..Script::default()
    };
    let world = World::new(script, "PLAIN", &["--timeouts-sasl=200ms"]);
    world.refuses(&["does not finish the login within 200ms (timeouts.sasl)"]);
    assert!(world.logins("failed") >= 1.0);
}

#[test]
fn a_listener_that_wants_no_login_is_told() {
    let script = Script {
        misdeed: Misdeed::Plaintext,
        ..Script::default()
    };
    let world = World::new(script, "PLAIN", &[]);
    world.refuses(&["its listener wants no login"]);
}

/// The broker closes at the first request behind the end of a login, and at
/// any that comes between two tokens.
#[test]
fn a_login_is_renewed_under_pipelined_requests_and_no_answer_is_out_of_turn() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        let script = Script {
            lifetime_ms: 1500,
            ..Script::default()
        };
        let world = World::new(script, mechanism, &[]);
        let mut client = world.client();
        let until = Instant::now() + PATIENCE * 4;
        while world.logins("renewed") < 3.0 {
            assert!(Instant::now() < until, "{}", world.hapax.output());
            let sent: Vec<i32> = (0..50).map(|_| ping(&mut client)).collect();
            for correlation in sent {
                let answer = client.receive_frame().unwrap();
                assert_eq!(answer[..4], correlation.to_be_bytes());
                assert_eq!(&answer[4..], b"pong");
            }
        }
        assert_eq!(*world.script.violations.lock().unwrap(), [] as [String; 0]);
        let cut = world
            .hapax
            .metric("hapax_client_disconnects_total", &["cause=\"upstream\""]);
        assert_eq!(cut, 0.0);
        drop(client);
        world.assert_no_secret();
    }
}

#[test]
fn a_connection_that_was_idle_beyond_its_login_is_logged_in_before_its_next_request() {
    let script = Script {
        lifetime_ms: 1000,
        ..Script::default()
    };
    let world = World::new(script, "SCRAM-SHA-512", &[]);
    let mut client = world.client();
    pong(&mut client);
    let idle_until = Instant::now() + Duration::from_millis(1500);
    await_until("the login to end", SOON, || Instant::now() >= idle_until);
    assert_eq!(
        world.logins("renewed"),
        0.0,
        "an idle connection is left alone"
    );
    pong(&mut client);
    await_until("the renewal to be counted", SOON, || {
        world.logins("renewed") == 1.0
    });
    assert_eq!(*world.script.violations.lock().unwrap(), [] as [String; 0]);
}

#[test]
fn a_renewal_that_is_refused_ends_the_connection_between_two_requests() {
    let script = Script {
        lifetime_ms: 1200,
        ..Script::default()
    };
    let world = World::new(script, "PLAIN", &[]);
    let mut client = world.client();
    pong(&mut client);
    *world.script.secret.lock().unwrap() = "another".to_owned();
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        ping(&mut client);
        if client.receive_frame().is_err() {
            break;
        }
    }
    let told = || {
        let log = world.hapax.output();
        log.contains("not logged in to the broker any more")
            && log.contains("refuses the login by PLAIN")
    };
    await_until("the log to say why", SOON, told);
    world.assert_no_secret();
}

#[test]
fn a_password_that_rotates_is_taken_and_open_connections_go_on() {
    let world = World::new(Script::default(), "SCRAM-SHA-256", &[]);
    let mut open = world.client();
    pong(&mut open);
    *world.script.secret.lock().unwrap() = "the next one".to_owned();
    world.refuses(&["refuses the login by SCRAM-SHA-256"]);
    secret_file(&world.dir, "the next one");
    world.hapax.signal("HUP");
    let applied = || {
        let outcome = ["outcome=\"applied\""];
        world.hapax.metric("hapax_config_reloads_total", &outcome) >= 1.0
    };
    await_until("the new password to be taken", SOON, applied);
    pong(&mut world.client());
    pong(&mut open);
    assert!(!world.hapax.output().contains("the next one"));

    // What cannot be used leaves what was.
    secret_file(&world.dir, "");
    world.hapax.signal("HUP");
    let refused = || {
        let outcome = ["outcome=\"invalid\""];
        world.hapax.metric("hapax_config_reloads_total", &outcome) >= 1.0
    };
    await_until("the empty file to be refused", SOON, refused);
    pong(&mut world.client());
}

#[test]
fn a_client_that_logs_in_itself_is_told_not_to() {
    let world = World::new(Script::default(), "PLAIN", &[]);
    let before = || world.script.logins.lock().unwrap().len();
    for version in 0..=1 {
        let mut client = world.client();
        let name = StrBytes::from_static_str("SCRAM-SHA-256");
        let request = SaslHandshakeRequest::default().with_mechanism(name);
        let answer = client.call(version, &request).unwrap();
        assert_eq!((answer.error_code, answer.mechanisms.len()), (34, 0));
        let logins = before();
        let request = SaslAuthenticateRequest::default();
        let answer = client.call(1, &request).unwrap();
        assert_eq!(answer.error_code, 34);
        let message = answer.error_message.unwrap();
        assert!(message.contains("security.protocol"), "{message:?}");
        pong(&mut client);
        assert!(before() <= logins + 1, "a login of a client went on");
    }
    let log = world.hapax.output();
    assert!(
        log.contains("a client wants to log in, and hapax logs in"),
        "{log}"
    );
    assert_eq!(*world.script.violations.lock().unwrap(), [] as [String; 0]);
}

/// To the broker all clients are one user, so that a retry is one of the same
/// user whichever connection it comes by.
#[test]
fn a_retry_is_absorbed_whoever_of_hapax_s_clients_sends_it() {
    let world = World::new(Script::default(), "PLAIN", &[]);
    let request = produce(0).version(9);
    let send = |client: &mut Client| -> Answer { client.produce(&request).unwrap() };
    assert_eq!(send(&mut world.client()).offset, 0);
    assert_eq!(send(&mut world.client()).offset, 0);
    let absorbed = ["verdict=\"duplicate_absorbed\""];
    assert_eq!(world.hapax.metric("hapax_verdicts_total", &absorbed), 1.0);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_dialled() {
    let dir = tempfile::tempdir().unwrap();
    let file = secret_file(&dir, SECRET);
    let open = dir.path().join("open");
    fs::write(&open, SECRET).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let (file, open) = (file.display().to_string(), open.display().to_string());
    let check = |flags: &[&str], words: &str| {
        let checked = Command::new(binary())
            .args(["check", "--upstream", "127.0.0.1:1"])
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(checked.status.code(), Some(78), "{said}");
        assert!(said.contains(words), "{words}: {said}");
        assert!(!said.contains("s3cr"), "{said}");
    };
    let plain = "--upstream-sasl-mechanism=PLAIN";
    let bearer = "--upstream-sasl-mechanism=OAUTHBEARER";
    let user = "--upstream-sasl-username=me";
    let password = format!("--upstream-sasl-password-file={file}");
    let token = format!("--upstream-sasl-token-file={file}");
    check(&[plain], "upstream.sasl.username is not");
    check(&[plain, user], "upstream.sasl.passwordFile is not");
    check(&[user], "upstream.sasl.mechanism is not");
    check(
        &[plain, user, &password, &token],
        "upstream.sasl.tokenFile is set",
    );
    check(&[bearer], "upstream.sasl.tokenFile is not");
    check(&[bearer, &token, user], "has no use for it");
    check(
        &[bearer, "--upstream-sasl-oauth-client-id=x"],
        "upstream.sasl.oauth.tokenEndpoint is not",
    );
    check(
        &[bearer, "--upstream-sasl-oauth-token-endpoint=kafka:1"],
        "upstream.sasl.oauth.tokenEndpoint is kafka:1",
    );
    check(
        &[
            bearer,
            "--upstream-sasl-oauth-token-endpoint=https://me:s3cr3t@idp.example/token",
        ],
        "upstream.sasl.oauth.tokenEndpoint is idp.example/token",
    );
    let everyone = format!("--upstream-sasl-password-file={open}");
    check(
        &[plain, user, &everyone],
        "can be read or written by everyone",
    );
    check(
        &[plain, user, &password, "--listen=0.0.0.0:19092"],
        "would serve each of them with its own credentials (upstream.sasl.mechanism)",
    );
    check(&[bearer, &token], "has no token");
}

/// An endpoint that gives tokens.
struct Endpoint {
    url: String,
    /// What it gives, and what it was asked.
    token: Arc<Mutex<Option<String>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

fn endpoint(token: &str, lifetime: u32) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/oauth/token", listener.local_addr().unwrap());
    let token = Arc::new(Mutex::new(Some(token.to_owned())));
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (gives, notes) = (Arc::clone(&token), Arc::clone(&asked));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut some = [0; 4096];
            while !String::from_utf8_lossy(&request).contains("grant_type=") {
                match stream.read(&mut some) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend(&some[..read]),
                }
            }
            notes
                .lock()
                .unwrap()
                .push(String::from_utf8(request).unwrap());
            let (status, body) = match &*gives.lock().unwrap() {
                Some(token) => (
                    "200 OK",
                    format!(r#"{{"access_token":"{token}","expires_in":{lifetime}}}"#),
                ),
                None => (
                    "401 Unauthorized",
                    r#"{"error":"invalid_client"}"#.to_owned(),
                ),
            };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
        }
    });
    Endpoint { url, token, asked }
}

fn of_endpoint(endpoint: &Endpoint, token: &str) -> World {
    at_endpoint(&endpoint.url, token, &[])
}

fn at_endpoint(url: &str, token: &str, more: &[String]) -> World {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("client-secret");
    fs::write(&secret, "s3cr/et").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let script = Script {
        secret: Mutex::new(token.to_owned()),
        ..Script::default()
    };
    let mut flags = vec![
        format!("--upstream-sasl-oauth-token-endpoint={url}"),
        "--upstream-sasl-oauth-client-id=hapax".to_owned(),
        format!(
            "--upstream-sasl-oauth-client-secret-file={}",
            secret.display()
        ),
        "--upstream-sasl-oauth-scope=kafka produce".to_owned(),
    ];
    flags.extend(more.iter().cloned());
    World::within(dir, script, "OAUTHBEARER", flags)
}

#[test]
fn a_token_is_got_by_client_credentials_and_replaced_before_it_ends() {
    let endpoint = endpoint("s3cr-first", 4);
    let world = of_endpoint(&endpoint, "s3cr-first");
    pong(&mut world.client());
    let asked = endpoint.asked.lock().unwrap()[0].clone();
    assert!(
        asked.starts_with("POST /oauth/token HTTP/1.1\r\n"),
        "{asked}"
    );
    let basic = STANDARD.encode("hapax:s3cr%2Fet");
    assert!(
        asked.contains(&format!("authorization: Basic {basic}\r\n")),
        "{asked}"
    );
    assert!(
        asked.ends_with("grant_type=client_credentials&scope=kafka+produce"),
        "{asked}"
    );
    assert!(
        world
            .hapax
            .metric("hapax_oauth_token_expiry_timestamp_seconds", &[])
            > 1e9
    );

    // One request at a time is made, whoever waits for it.
    *endpoint.token.lock().unwrap() = Some("s3cr-second".to_owned());
    let got = || {
        let ok = ["outcome=\"ok\""];
        world.hapax.metric("hapax_oauth_tokens_total", &ok) >= 2.0
    };
    await_until("a second token", SOON, got);
    *world.script.secret.lock().unwrap() = "s3cr-second".to_owned();
    pong(&mut world.client());
    world.assert_no_secret();
}

#[test]
fn an_endpoint_that_gives_nothing_is_named_and_asked_again() {
    let endpoint = endpoint("s3cr-first", 300);
    *endpoint.token.lock().unwrap() = None;
    let world = of_endpoint(&endpoint, "s3cr-first");
    world.refuses(&[
        "hapax has no token to log in by",
        "401 Unauthorized: invalid_client",
    ]);
    *endpoint.token.lock().unwrap() = Some("s3cr-first".to_owned());
    let got = || {
        let ok = ["outcome=\"ok\""];
        world.hapax.metric("hapax_oauth_tokens_total", &ok) >= 1.0
    };
    await_until("a token", PATIENCE * 2, got);
    pong(&mut world.client());
    world.assert_no_secret();
}

impl Endpoint {
    /// Where it is in TLS, with this certificate.
    fn in_tls(&self, identity: &Identity) -> String {
        let (_, rest) = self.url.split_once("://").unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let secured = secure::opening(address, secure::server(identity, None, &VERSIONS));
        format!("https://{secured}/{path}")
    }
}

/// The files of a hapax that believes an endpoint of this CA.
fn believing(ca: &Ca) -> (Files, String) {
    let files = Files::new();
    let path = files.write("endpoint-ca.crt", &ca.certificate);
    (files, format!("--upstream-sasl-oauth-ca-file={path}"))
}

#[test]
fn an_endpoint_is_asked_by_https_where_its_certificate_is_of_the_given_ca() {
    let (ca, endpoint) = (Ca::new("CA of an endpoint"), endpoint("s3cr-first", 300));
    let url = endpoint.in_tls(&ca.issue(&["127.0.0.1"]));
    let (_files, flag) = believing(&ca);
    let world = at_endpoint(&url, "s3cr-first", &[flag]);
    pong(&mut world.client());
    let asked = endpoint.asked.lock().unwrap()[0].clone();
    let (_, authority) = url.split_once("://").unwrap();
    let authority = authority.split('/').next().unwrap();
    assert!(asked.contains(&format!("host: {authority}\r\n")), "{asked}");
    world.assert_no_secret();
}

/// Whoever is in its place must not get the secret.
#[test]
fn an_endpoint_that_is_not_believed_is_told_nothing_and_named() {
    let (ca, other) = (Ca::new("CA of an endpoint"), Ca::new("CA of nobody"));
    let here = ["127.0.0.1"];
    #[rustfmt::skip]
    let rows = [
        (other.issue(&here), "does not come from a CA that hapax believes: set upstream.sasl.oauth.caFile to its CA"),
        (ca.issue(&["idp.example"]), "is not for 127.0.0.1, but for idp.example"),
        (ca.issue_until(&here, 2020), "its certificate has expired (2020-01-01"),
    ];
    for (identity, words) in rows {
        let endpoint = endpoint("s3cr-first", 300);
        let (_files, flag) = believing(&ca);
        let world = at_endpoint(&endpoint.in_tls(&identity), "s3cr-first", &[flag]);
        world.refuses(&["hapax has no token to log in by", words]);
        let failed = ["outcome=\"failed\""];
        let failed = world.hapax.metric("hapax_oauth_tokens_total", &failed);
        assert!(failed >= 1.0, "{words}");
        assert_eq!(*endpoint.asked.lock().unwrap(), [] as [String; 0]);
        world.assert_no_secret();
    }
}

#[test]
fn a_new_ca_of_the_endpoint_is_taken_without_a_restart() {
    let (ca, old) = (Ca::new("CA of an endpoint"), Ca::new("CA of before"));
    let endpoint = endpoint("s3cr-first", 300);
    let url = endpoint.in_tls(&ca.issue(&["127.0.0.1"]));
    let (files, flag) = believing(&old);
    let world = at_endpoint(&url, "s3cr-first", &[flag]);
    world.refuses(&["upstream.sasl.oauth.caFile"]);
    files.write("endpoint-ca.crt", &ca.certificate);
    world.hapax.signal("HUP");
    let got = || {
        let ok = ["outcome=\"ok\""];
        world.hapax.metric("hapax_oauth_tokens_total", &ok) >= 1.0
    };
    await_until("a token", PATIENCE * 2, got);
    pong(&mut world.client());
}
