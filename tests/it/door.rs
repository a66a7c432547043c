//! Clients authenticate to hapax: who is a user gets in, and nobody else says
//! anything to a broker.

use std::net::Shutdown;
use std::process::Command;
use std::time::Duration;

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;

use crate::broker::{self, OPAQUE};
use crate::scram::{self, Framing, Outcome, authenticate, handshake, login};
use crate::secure::{self, Ca, Files, VERSIONS};
use crate::support::hapax::{self, Hapax};
use crate::support::raw::Client;
use crate::support::{await_until, pause};
use crate::world::{ID, PORTS, Pair, SOON, World, batch, orders, ping, produce};

const ALICE: (&str, &str) = ("alice", "alice-secret");
const BOB: (&str, &str) = ("bob", "bob,=secret ü");
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
const ALL: &str = "--listen-sasl-mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512";
const FRAMINGS: [Framing; 4] = [
    Framing::Bare,
    Framing::Framed(0),
    Framing::Framed(1),
    Framing::Framed(2),
];

/// A world whose clients have to be alice or bob.
struct Guarded {
    world: World,
    files: Files,
}

impl Guarded {
    fn new(flags: &[&str]) -> Self {
        let files = Files::new();
        let path = files.write("users", &scram::users(&[ALICE, BOB]));
        let file = format!("--listen-sasl-users-file={path}");
        let all: Vec<&str> = [file.as_str(), ALL]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        let world = World::new(&all);
        Self { world, files }
    }

    fn client(&self) -> Client {
        self.world.client()
    }

    /// A client that is in, and its connection at the broker.
    fn pair(&self, mechanism: &str, (user, password): (&str, &str)) -> Pair {
        let mut client = self.client();
        let got = login(&mut client, Framing::Framed(2), mechanism, user, password);
        assert_eq!(got, Outcome::In);
        self.go_on(client)
    }

    fn go_on(&self, mut client: Client) -> Pair {
        let ping = ping(&mut client);
        let mut broker = self.world.upstream.accept();
        let asked = broker.next();
        assert_eq!((asked.key, asked.correlation), (OPAQUE, ping));
        broker.answer_raw(&asked, b"pong");
        assert_eq!(client.receive_frame().unwrap()[..4], ping.to_be_bytes());
        Pair { client, broker }
    }

    fn counted(&self, mechanism: &str, outcome: &str) -> f64 {
        let labels = [
            format!("mechanism=\"{mechanism}\""),
            format!("outcome=\"{outcome}\""),
        ];
        let labels = labels.each_ref().map(String::as_str);
        let hapax = &self.world.hapax;
        hapax.metric("hapax_client_authentications_total", &labels)
    }

    fn await_counted(&self, mechanism: &str, outcome: &str, times: f64) {
        await_until(outcome, SOON, || self.counted(mechanism, outcome) == times);
    }

    fn await_gauge(&self, name: &str, value: f64) {
        await_until(name, SOON, || self.world.gauge(name) == value);
    }

    /// The file of users is this one from now on; taking it has this outcome.
    fn reload(&self, text: &str, mode: u32, outcome: &str) {
        let hapax = &self.world.hapax;
        let label = format!("outcome=\"{outcome}\"");
        let reloads = || hapax.metric("hapax_config_reloads_total", &[&label]);
        let before = reloads();
        self.files.write_with_mode("users", text, mode);
        hapax.signal("HUP");
        await_until(outcome, SOON, || reloads() > before);
    }

    /// Nobody has said anything to the broker, and nobody's password is in the log.
    fn assert_untouched(&self) {
        self.world.upstream.assert_idle();
        assert_eq!(self.world.gauge("hapax_upstream_connections"), 0.0);
        self.assert_silent();
    }

    fn assert_silent(&self) {
        let output = self.world.hapax.output();
        assert!(!output.contains("secret"), "{output}");
        assert!(!output.contains("panicked"), "{output}");
    }

    fn users(&self) -> Vec<String> {
        let page = self.world.hapax.json("/api/v1/connections");
        let rows = page["connections"].as_array().unwrap().iter();
        rows.filter_map(|row| row["user"].as_str().map(str::to_owned))
            .collect()
    }
}

#[test]
fn a_user_gets_in_by_every_mechanism_and_framing() {
    let guarded = Guarded::new(&[]);
    let mut times = 0.0;
    for framing in FRAMINGS {
        times += 1.0;
        for mechanism in MECHANISMS {
            let mut client = guarded.client();
            let got = login(&mut client, framing, mechanism, BOB.0, BOB.1);
            assert_eq!(got, Outcome::In, "{mechanism} {framing:?}");
            // What was said until now is not for the broker.
            guarded.world.upstream.assert_idle();
            let mut pair = guarded.go_on(client);
            pair.barrier();
            assert_eq!(guarded.users(), ["bob"]);
            assert_eq!(guarded.counted(mechanism, "ok"), times);
            drop(pair);
            await_until("the end of it", SOON, || guarded.users().is_empty());
        }
    }
    guarded.assert_silent();
}

#[test]
fn a_wrong_password_and_a_user_who_is_none_are_refused_alike() {
    let guarded = Guarded::new(&[]);
    for mechanism in MECHANISMS {
        for framing in FRAMINGS {
            let got = [
                ("alice", "another-secret"),
                ("nobody-secret", "alice-secret"),
                ("alice", ""),
            ]
            .map(|(user, password)| {
                let mut client = guarded.client();
                let got = login(&mut client, framing, mechanism, user, password);
                assert!(client.is_closed(SOON));
                got
            });
            assert_eq!(got[0], got[1], "{mechanism} {framing:?}");
            assert_eq!(got[0], got[2], "{mechanism} {framing:?}");
            match framing {
                Framing::Bare => assert_eq!(got[0], Outcome::Closed),
                Framing::Framed(_) => {
                    let why = format!(
                        "Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
                    );
                    assert_eq!(got[0], Outcome::Refused(58, why));
                }
            }
        }
        guarded.await_counted(mechanism, "refused", 12.0);
    }
    let cause = "cause=\"sasl\"";
    let ended = guarded
        .world
        .hapax
        .metric("hapax_client_disconnects_total", &[cause]);
    assert_eq!(ended, 36.0);
    let output = guarded.world.hapax.output();
    assert!(output.contains("a client did not authenticate"), "{output}");
    guarded.assert_untouched();
}

/// The answer to a name must not show whether it is one.
#[test]
fn a_user_who_is_none_always_has_the_same_salt() {
    let guarded = Guarded::new(&[]);
    let answer = |user: &str| {
        let mut client = guarded.client();
        handshake(&mut client, 1, "SCRAM-SHA-256");
        let first = format!("n,,n={user},r=abc");
        let answer = authenticate(&mut client, 2, first.as_bytes()).unwrap();
        assert_eq!(answer.error_code, 0);
        let answer = String::from_utf8(answer.auth_bytes.to_vec()).unwrap();
        let (_, salt) = answer.split_once(",s=").unwrap();
        salt.to_owned()
    };
    let (alice, nobody) = (answer("alice"), answer("nobody"));
    assert_eq!(answer("nobody"), nobody);
    assert_eq!(answer("alice"), alice);
    assert_ne!(answer("somebody"), nobody);
    assert_eq!(alice.len(), nobody.len());
    guarded.assert_untouched();
}

/// Before the handshake, after it, and within an exchange.
#[test]
fn no_other_api_works_before_a_user_is_known() {
    let guarded = Guarded::new(&[]);
    let apis: Vec<i16> = (-1..=100).chain([OPAQUE, i16::MAX, i16::MIN]).collect();
    let mut refused = 0.0;
    for stage in 0..3 {
        for &key in apis.iter().filter(|key| ![17, 18, 36].contains(*key)) {
            let mut client = guarded.client();
            if stage > 0 {
                handshake(&mut client, 1, "SCRAM-SHA-256");
            }
            if stage > 1 {
                let answer = authenticate(&mut client, 2, b"n,,n=alice,r=abc").unwrap();
                assert_eq!(answer.error_code, 0);
            }
            let (_, frame) = client.frame_raw(key, 0, 1, b"\0\0\0\0");
            client.send_raw(&frame).unwrap();
            assert!(client.receive_frame().is_err(), "api {key} was answered");
            refused += 1.0;
        }
    }
    let all: f64 = ["none", "SCRAM-SHA-256"]
        .map(|mechanism| guarded.counted(mechanism, "unauthenticated"))
        .iter()
        .sum();
    assert_eq!(all, refused);
    let output = guarded.world.hapax.output();
    assert!(output.contains("before it had authenticated"), "{output}");
    guarded.assert_untouched();
}

#[test]
fn a_mechanism_that_is_not_offered_is_answered_with_those_that_are() {
    let files = Files::new();
    let path = files.write("users", &scram::users(&[ALICE]));
    let world = World::new(&[&format!("--listen-sasl-users-file={path}")]);
    let mut client = world.client();
    let offered = handshake(&mut client, 1, "PLAIN");
    assert_eq!(offered.error_code, 33);
    assert_eq!(
        offered.mechanisms,
        MECHANISMS[1..]
            .iter()
            .map(|m| StrBytes::from_static_str(m))
            .collect::<Vec<_>>()
    );
    assert!(client.is_closed(SOON));
    world.upstream.assert_idle();
}

#[test]
fn what_is_out_of_turn_or_no_token_is_refused() {
    let guarded = Guarded::new(&[]);
    let check = |what: &str, say: &dyn Fn(&mut Client)| {
        let mut client = guarded.client();
        say(&mut client);
        assert!(client.is_closed(SOON), "{what}");
    };
    check("a token before the handshake", &|client| {
        let answer = authenticate(client, 2, b"\0alice\0alice-secret").unwrap();
        assert_eq!(answer.error_code, 58);
    });
    check("two handshakes", &|client| {
        handshake(client, 1, "PLAIN");
        let again = SaslHandshakeRequest::default();
        client.send(1, &again).unwrap();
    });
    for token in [
        &b""[..],
        b"\0alice",
        b"\0\0alice-secret",
        b"root\0alice\0alice-secret",
        b"\xff\xff\xff",
    ] {
        check("no token of PLAIN", &|client| {
            handshake(client, 1, "PLAIN");
            assert_eq!(authenticate(client, 2, token).unwrap().error_code, 58);
        });
    }
    for token in [
        &b""[..],
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=root,n=alice,r=abc",
    ] {
        check("no token of SCRAM", &|client| {
            handshake(client, 1, "SCRAM-SHA-512");
            assert_eq!(authenticate(client, 2, token).unwrap().error_code, 58);
        });
    }
    check("a password in place of a proof", &|client| {
        handshake(client, 1, "SCRAM-SHA-256");
        authenticate(client, 2, b"n,,n=alice,r=abc").unwrap();
        assert_eq!(
            authenticate(client, 2, b"alice-secret").unwrap().error_code,
            58
        );
    });
    check("on and on", &|client| {
        for _ in 0..17 {
            client.send(0, &ApiVersionsRequest::default()).unwrap();
        }
    });
    guarded.assert_untouched();
}

#[test]
fn what_is_no_frame_ends_at_once() {
    let guarded = Guarded::new(&[]);
    let ended = |bytes: &[u8]| {
        let mut client = guarded.client();
        // It may be closed before all of it is written.
        let _ = client.send_raw(bytes);
        assert!(client.is_closed(SOON), "{bytes:?}");
    };
    ended(b"GET / HTTP/1.1\r\n\r\n");
    ended(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    ended(&[0, 0, 0, 7, 0, 18, 0, 0, 0, 0, 0]);
    ended(&[0xff; 64]);
    ended(&8193_u32.to_be_bytes());
    ended(&104_857_600_u32.to_be_bytes());
    guarded.await_counted("none", "malformed", 6.0);
    guarded.assert_untouched();
}

/// Half a frame, and then nothing; a byte at a time; and half a frame, and gone.
#[test]
fn what_is_slow_ends_in_time() {
    let guarded = Guarded::new(&["--timeouts-sasl=1s"]);
    let mut half = guarded.client();
    half.send_raw(&[0, 0, 0, 20, 0, 17]).unwrap();
    assert!(half.is_closed(SOON));
    let mut slow = guarded.client();
    slow.send_raw(&[0, 0, 0, 200]).unwrap();
    let begun = std::time::Instant::now();
    while slow.send_raw(&[0]).is_ok() && begun.elapsed() < SOON {
        pause(Duration::from_millis(50));
        if guarded.counted("none", "unfinished") == 2.0 {
            break;
        }
    }
    guarded.await_counted("none", "unfinished", 2.0);
    let mut hung_up = guarded.client();
    hung_up.send_raw(&[0, 0, 0, 20, 0, 17]).unwrap();
    hung_up.stream().shutdown(Shutdown::Write).unwrap();
    assert!(hung_up.is_closed(SOON));
    let output = guarded.world.hapax.output();
    assert!(output.contains("timeouts.sasl"), "{output}");
    guarded.assert_untouched();
}

/// A client keeps what it hears before it authenticates, so it has to be true
/// of the broker, and cost it next to nothing.
#[test]
fn what_the_broker_offers_is_asked_for_once_for_many() {
    let guarded = Guarded::new(&[]);
    let mut first = guarded.client();
    let correlation = first.send(3, &ApiVersionsRequest::default()).unwrap();
    let mut others: Vec<(Client, i32)> = (0..20)
        .map(|_| {
            let mut client = guarded.client();
            let correlation = client.send(3, &ApiVersionsRequest::default()).unwrap();
            (client, correlation)
        })
        .collect();
    let mut broker = guarded.world.upstream.accept();
    let asked = broker.next();
    assert_eq!((asked.key, asked.version), (18, 3));
    let api = |key, min, max| {
        ApiVersion::default()
            .with_api_key(key)
            .with_min_version(min)
            .with_max_version(max)
    };
    let mut offer = ApiVersionsResponse::default().with_api_keys(vec![
        api(0, 3, 99),
        api(18, 0, 4),
        api(36, 7, 9),
        api(999, 1, 2),
    ]);
    broker.answer(&asked, &offer);
    let expected = [(0, 3, 13), (18, 0, 4), (36, 0, 2), (999, 1, 2), (17, 0, 1)];
    others.push((first, correlation));
    for (client, correlation) in &mut others {
        let answer = client
            .receive::<ApiVersionsRequest>(3, *correlation)
            .unwrap();
        let got = answer
            .api_keys
            .iter()
            .map(|a| (a.api_key, a.min_version, a.max_version));
        assert_eq!(got.collect::<Vec<_>>(), expected);
    }
    broker.assert_ended();
    guarded.world.upstream.assert_idle();
    // The newest version is one that the answer does not have.
    let (mut client, _) = others.pop().unwrap();
    let (correlation, frame) = client.frame_raw(18, 5, 2, b"\x02x\x02x\0");
    client.send_raw(&frame).unwrap();
    let answer = client
        .receive::<ApiVersionsRequest>(0, correlation)
        .unwrap();
    assert_eq!(answer.error_code, 35);
    assert_eq!(answer.api_keys[0], api(18, 0, 4));
    // Known, it asks the broker itself, and hears of hapax's SASL still.
    assert_eq!(
        login(&mut client, Framing::Framed(1), "PLAIN", ALICE.0, ALICE.1),
        Outcome::In
    );
    let mut pair = guarded.go_on(client);
    let correlation = pair.client.send(3, &ApiVersionsRequest::default()).unwrap();
    let asked = pair.broker.next();
    offer.api_keys.truncate(2);
    pair.broker.answer(&asked, &offer);
    let answer = pair
        .client
        .receive::<ApiVersionsRequest>(3, correlation)
        .unwrap();
    let got = answer
        .api_keys
        .iter()
        .map(|a| (a.api_key, a.min_version, a.max_version));
    assert_eq!(
        got.collect::<Vec<_>>(),
        [(0, 3, 13), (18, 0, 4), (17, 0, 1), (36, 0, 2)]
    );
}

#[test]
fn a_broker_that_is_gone_ends_who_asks_what_it_offers() {
    let files = Files::new();
    let path = files.write("users", &scram::users(&[ALICE]));
    let hapax = hapax::start_with(
        "127.0.0.1:1",
        "absorb",
        PORTS,
        &[&format!("--listen-sasl-users-file={path}")],
    );
    let mut client = Client::connect(&hapax.bootstrap).unwrap();
    client.send(0, &ApiVersionsRequest::default()).unwrap();
    assert!(client.is_closed(SOON));
    let output = hapax.output();
    assert!(output.contains("cannot reach the broker"), "{output}");
    // The next one hears the same, and is not told of again.
    let mut again = Client::connect(&hapax.bootstrap).unwrap();
    again.send(0, &ApiVersionsRequest::default()).unwrap();
    assert!(again.is_closed(SOON));
    await_until("both to be counted", SOON, || {
        hapax.metric("hapax_client_disconnects_total", &["cause=\"upstream\""]) == 2.0
    });
    let name = "hapax_client_authentications_total";
    assert_eq!(hapax.metric(name, &[]), 0.0);
}

/// A broker that says nothing: it is known before the client's own time is over.
#[test]
fn a_broker_that_says_nothing_is_not_taken_for_a_client_that_does_not_log_in() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap().to_string();
    let files = Files::new();
    let path = files.write("users", &scram::users(&[ALICE]));
    let flags = [
        format!("--listen-sasl-users-file={path}"),
        "--timeouts-sasl=4s".to_owned(),
    ];
    let flags = flags.each_ref().map(|flag| &**flag);
    let hapax = hapax::start_with(&upstream, "absorb", PORTS, &flags);
    let mut client = Client::connect(&hapax.bootstrap).unwrap();
    client.send(0, &ApiVersionsRequest::default()).unwrap();
    assert!(client.is_closed(SOON));
    await_until("the broker to be named", SOON, || {
        hapax.output().contains("cannot reach the broker")
    });
    let cause = ["cause=\"upstream\""];
    await_until("the cause to be counted", SOON, || {
        hapax.metric("hapax_client_disconnects_total", &cause) == 1.0
    });
}

/// What comes in one piece with the last token is for the broker.
#[test]
fn requests_right_behind_the_login_reach_the_broker() {
    let guarded = Guarded::new(&[]);
    let mut client = guarded.client();
    let mut bytes = Vec::new();
    let name = StrBytes::from_static_str("PLAIN");
    let (_, frame) = client.frame(1, &SaslHandshakeRequest::default().with_mechanism(name));
    bytes.extend(frame);
    let (_, frame) = client.frame_raw(36, 1, 1, b"\0\0\0\x13\0alice\0alice-secret");
    bytes.extend(frame);
    let (ping, frame) = client.frame_raw(OPAQUE, 0, 1, b"ping");
    bytes.extend(frame);
    client.send_raw(&bytes).unwrap();
    let mut broker = guarded.world.upstream.accept();
    let asked = broker.next();
    assert_eq!((asked.key, asked.correlation), (OPAQUE, ping));
    broker.answer_raw(&asked, b"pong");
    for correlation in 1..=3_i32 {
        assert_eq!(
            client.receive_frame().unwrap()[..4],
            correlation.to_be_bytes()
        );
    }
}

/// As with a broker whose sessions do not end.
#[test]
fn nobody_becomes_somebody_else() {
    let guarded = Guarded::new(&[]);
    let mut pair = guarded.pair("SCRAM-SHA-256", ALICE);
    for version in 0..=1 {
        assert_eq!(handshake(&mut pair.client, version, "PLAIN").error_code, 34);
        pair.barrier();
    }
    for version in 0..=2 {
        let token = format!("\0{}\0{}", BOB.0, BOB.1);
        let answer = authenticate(&mut pair.client, version, token.as_bytes()).unwrap();
        assert_eq!(answer.error_code, 34);
        pair.barrier();
    }
    assert_eq!(guarded.users(), ["alice"]);
    guarded.assert_silent();
}

/// SEMANTICS A5: an acknowledgement answers a retry of the same user only.
#[test]
fn only_the_same_user_is_answered_from_the_window() {
    let guarded = Guarded::new(&[]);
    let mut first = guarded.pair("SCRAM-SHA-512", ALICE);
    first.learn(ID);
    assert_eq!(first.write(&produce(0), 7)[0].offset, 7);
    let mut again = guarded.pair("PLAIN", ALICE);
    assert_eq!(again.answered_here(&produce(0))[0].offset, 7);
    let mut other = guarded.pair("SCRAM-SHA-512", BOB);
    let (owed, asked) = other.forwarded(&produce(0));
    other.broker.ack(&asked, 7);
    assert_eq!(other.receive_one(&owed).offset, 7);
}

#[test]
fn a_new_file_of_users_counts_for_who_comes_and_not_for_who_is_here() {
    let guarded = Guarded::new(&[]);
    let mut here = guarded.pair("PLAIN", ALICE);
    let try_in = |(user, password): (&str, &str)| {
        let mut client = guarded.client();
        login(
            &mut client,
            Framing::Framed(2),
            "SCRAM-SHA-256",
            user,
            password,
        )
    };
    let reload = |text: &str, mode, outcome: &str| guarded.reload(text, mode, outcome);
    let carol = ("carol", "carol-secret");
    let users = scram::users(&[(ALICE.0, "new-secret"), carol]);
    reload(&users, 0o600, "applied");
    assert_eq!(try_in(carol), Outcome::In);
    assert_eq!(try_in((ALICE.0, "new-secret")), Outcome::In);
    assert!(matches!(try_in(ALICE), Outcome::Refused(58, _)));
    assert!(matches!(try_in(BOB), Outcome::Refused(58, _)));
    here.barrier();
    // What cannot be used leaves everything as it was.
    reload("alice:alice-secret\n", 0o600, "invalid");
    guarded.await_gauge("hapax_config_last_reload_successful", 0.0);
    reload("", 0o600, "invalid");
    reload(&users, 0o644, "invalid");
    assert_eq!(try_in(carol), Outcome::In);
    reload(&users, 0o600, "unchanged");
    guarded.await_gauge("hapax_config_last_reload_successful", 1.0);
    here.barrier();
    guarded.assert_silent();
}

/// What is open is answered, and nothing more of him reaches a broker.
#[test]
fn who_is_no_user_any_more_is_closed_between_two_requests() {
    let guarded = Guarded::new(&[]);
    let mut idle = guarded.pair("SCRAM-SHA-256", BOB);
    let mut busy = guarded.pair("PLAIN", BOB);
    let mut stays = guarded.pair("PLAIN", ALICE);
    let open = ping(&mut busy.client);
    let asked = busy.broker.next();
    guarded.reload(&scram::users(&[(ALICE.0, "new-secret")]), 0o600, "applied");
    assert!(idle.client.is_closed(SOON));
    ping(&mut busy.client);
    busy.broker.answer_raw(&asked, b"pong");
    let answer = busy.client.receive_frame().unwrap();
    assert_eq!(answer[..4], open.to_be_bytes());
    assert!(busy.client.is_closed(SOON));
    busy.broker.assert_ended();
    let cause = ["cause=\"sasl\""];
    await_until("both to be counted", SOON, || {
        let hapax = &guarded.world.hapax;
        hapax.metric("hapax_client_disconnects_total", &cause) == 2.0
    });
    let output = guarded.world.hapax.output();
    assert!(
        output.contains("not in listen.sasl.usersFile any more"),
        "{output}"
    );
    // Another password is no other user.
    stays.barrier();
    guarded.assert_silent();
}

/// The password of PLAIN is for nobody on the way.
#[test]
fn a_user_gets_in_through_tls() {
    const HERE: &str = "127.0.0.1";
    let (ca, keys) = (Ca::new("CA of a test"), Files::new());
    let identity = ca.issue(&[HERE]);
    let certificate = keys.write("listen.crt", &identity.certificate);
    let key = keys.write("listen.key", &identity.key);
    let flags = [
        format!("--listen-tls-cert-file={certificate}"),
        format!("--listen-tls-key-file={key}"),
    ];
    let mut guarded = Guarded::new(&flags.each_ref().map(String::as_str));
    let config = secure::client(&ca, None, &VERSIONS);
    let bootstrap = &mut guarded.world.hapax.bootstrap;
    *bootstrap = secure::sealing(bootstrap, config, HERE);
    for mechanism in MECHANISMS {
        let mut pair = guarded.pair(mechanism, ALICE);
        pair.barrier();
        let mut client = guarded.client();
        let got = login(&mut client, Framing::Framed(2), mechanism, ALICE.0, BOB.1);
        assert!(matches!(got, Outcome::Refused(58, _)), "{got:?}");
        assert!(client.is_closed(SOON));
    }
    let mut early = guarded.client();
    ping(&mut early);
    assert!(early.is_closed(SOON));
    guarded.assert_silent();
}

/// Who is on the way may read what PLAIN shows.
#[test]
fn a_password_in_the_clear_is_warned_of() {
    for (listen, mechanisms, warned) in [
        ("0.0.0.0:19092", "PLAIN", true),
        ("[::]:19092", "SCRAM-SHA-256,PLAIN", true),
        ("0.0.0.0:19092", "SCRAM-SHA-256,SCRAM-SHA-512", false),
        ("127.0.0.1:19092", "PLAIN", false),
    ] {
        // It ends right behind the warning: there is no such file.
        let done = Command::new(env!("CARGO_BIN_EXE_hapax"))
            .args(["run", "--upstream=kafka:9092", "--listen", listen])
            .args(["--listen-sasl-users-file=/nowhere/users"])
            .args(["--listen-sasl-mechanisms", mechanisms])
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(78));
        let output = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(output.contains("/nowhere/users cannot be read"), "{output}");
        let found = output.contains("whoever is on the way reads them");
        assert_eq!(found, warned, "{listen} {mechanisms}: {output}");
    }
}

/// How a hapax ends that must not start, and what it says.
fn refused(name: &str, text: &str, mode: u32) -> String {
    let files = Files::new();
    let path = files.write_with_mode(name, text, mode);
    let upstream = broker::start();
    let mut hapax: Hapax = hapax::spawn(
        &upstream.address,
        "absorb",
        hapax::free_range(PORTS + 2),
        PORTS,
        &[&format!("--listen-sasl-users-file={path}")],
    );
    assert_eq!(hapax.ended().code(), Some(78));
    hapax.output()
}

#[test]
fn a_file_that_is_no_secret_or_no_list_ends_the_start() {
    let users = scram::users(&[ALICE]);
    let open = refused("users", &users, 0o644);
    assert!(
        open.contains("can be read or written by everyone"),
        "{open}"
    );
    let empty = refused("users", "# nobody\n", 0o600);
    assert!(empty.contains("nobody could get in"), "{empty}");
    let plain = refused("users", "alice:alice-secret\n", 0o600);
    assert!(plain.contains("users:1: no credential"), "{plain}");
    assert!(!plain.contains("alice-secret"), "{plain}");
    let twice = refused("users", &format!("{users}{users}"), 0o600);
    assert!(
        twice.contains("users:3: this user already has a line"),
        "{twice}"
    );
}

/// What hapax keeps and shows of one client is neither what it writes nor how
/// it got in.
#[test]
fn nobody_sees_what_another_client_writes() {
    let guarded = Guarded::new(&["--log-level=trace"]);
    let mut alice = guarded.pair("PLAIN", ALICE);
    alice.learn(ID);
    let said = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    assert!(said(&batch(0), b"value 0"));
    alice.write(&produce(0), 7);
    alice.answered_here(&produce(0));
    // A gap and a batch that came again with other bytes make events.
    let (owed, asked) = alice.forwarded(&produce(5));
    alice.broker.ack(&asked, 12);
    alice.receive(&owed);
    let mut other = crate::world::of_epoch(0, 0);
    other.payload = Some(b"value of-a-secret".to_vec());
    let request = crate::support::raw::Produce::to(&orders(), 0, other.bytes());
    alice.send(&request);
    let correlation = ping(&mut guarded.pair("SCRAM-SHA-256", BOB).client);
    assert!(correlation > 0);
    let mut pages = String::new();
    for path in [
        "producers",
        "events",
        "connections",
        "brokers",
        "config",
        "report",
    ] {
        pages += &guarded.world.hapax.page(&format!("/api/v1/{path}"));
    }
    pages += &guarded.world.hapax.page("/metrics");
    pages += &guarded.world.hapax.output();
    assert!(pages.contains("orders") && pages.contains("gap"));
    for secret in [
        "value 0",
        "value 5",
        "of-a-secret",
        "alice-secret",
        "bob,=secret",
    ] {
        assert!(!pages.contains(secret), "{secret} is shown");
    }
}
