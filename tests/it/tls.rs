//! TLS on either side: the same promises as without, and what is said where
//! there is none.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::broker::{self, Upstream};
use crate::secure::{self, Ca, Files, Identity, VERSIONS};
use crate::support::await_until;
use crate::support::hapax::{self, Hapax};
use crate::support::raw::{Client, Produce};
use crate::world::{PORTS, Pair, SOON, World, metadata, of_epoch, opaque, orders, ping, produce};
use kafka_protocol::messages::MetadataRequest;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

/// Where hapax is reached, and so what its certificate is for.
const HERE: &str = "127.0.0.1";
type Versions = [&'static SupportedProtocolVersion];

/// Who speaks TLS, and what hapax is told of it.
struct Setting {
    ca: Ca,
    files: Files,
    flags: Vec<String>,
}

impl Setting {
    fn new() -> Self {
        Self {
            ca: Ca::new("CA of a test"),
            files: Files::new(),
            flags: Vec::new(),
        }
    }

    fn flag(&mut self, flag: &str, value: &str) {
        self.flags.push(format!("--{flag}={value}"));
    }

    /// hapax shows clients this certificate.
    fn listen_with(&mut self, identity: &Identity) {
        let certificate = self.files.write("listen.crt", &identity.certificate);
        let key = self.files.write("listen.key", &identity.key);
        self.flag("listen-tls-cert-file", &certificate);
        self.flag("listen-tls-key-file", &key);
    }

    fn listen(&mut self) {
        let identity = self.ca.issue(&[HERE]);
        self.listen_with(&identity);
    }

    /// hapax believes brokers of this CA.
    fn believe(&mut self, certificate: &str) {
        let ca = self.files.write("upstream-ca.crt", certificate);
        self.flag("upstream-tls-enabled", "true");
        self.flag("upstream-tls-ca-file", &ca);
    }

    fn believe_own(&mut self) {
        let certificate = self.ca.certificate.clone();
        self.believe(&certificate);
    }

    fn start(&self, upstream: &str) -> Hapax {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        hapax::start_with(upstream, "absorb", PORTS, &flags)
    }

    /// A broker behind TLS of these versions.
    fn broker(&self, versions: &Versions) -> (Upstream, String) {
        let broker = broker::start();
        let config = secure::server(&self.ca.issue(&[HERE]), None, versions);
        let address = secure::opening(&broker.address, config);
        (broker, address)
    }

    /// What clients in plaintext connect to, to speak TLS of these versions.
    fn front(&self, hapax: &Hapax, versions: &Versions) -> String {
        let config = secure::client(&self.ca, None, versions);
        secure::sealing(&hapax.bootstrap, config, HERE)
    }
}

/// A world whose two sides speak TLS of these versions, or plaintext.
fn world(client: Option<&Versions>, upstream: Option<&Versions>) -> (World, Setting) {
    let mut setting = Setting::new();
    if client.is_some() {
        setting.listen();
    }
    let (broker, address) = match upstream {
        Some(versions) => {
            setting.believe_own();
            setting.broker(versions)
        }
        None => {
            let broker = broker::start();
            let address = broker.address.clone();
            (broker, address)
        }
    };
    let mut hapax = setting.start(&address);
    if let Some(versions) = client {
        hapax.bootstrap = setting.front(&hapax, versions);
    }
    let upstream = broker;
    (World { upstream, hapax }, setting)
}

fn both() -> (World, Setting) {
    world(Some(&VERSIONS), Some(&VERSIONS))
}

fn large(sequence: i32, bytes: usize) -> Produce {
    let mut batch = of_epoch(0, sequence);
    batch.payload = Some((0..=250).cycle().take(bytes).collect());
    Produce::to(&orders(), 0, batch.bytes())
}

/// Requests and answers of every size pass as they are, and retries are
/// answered from the window.
fn check_traffic(world: &World) {
    let mut pair = world.pair();
    assert_eq!(pair.write(&produce(0), 7)[0].offset, 7);
    assert_eq!(pair.answered_here(&produce(0))[0].offset, 7);
    for (sequence, bytes) in [(1, 20_000), (2, 1 << 20), (3, 5 << 20)] {
        let request = large(sequence, bytes);
        let (owed, frame) = {
            let (correlation, frame) = pair.client.frame(request.version, &request.request());
            let version = request.version;
            (
                crate::world::Owed {
                    version,
                    correlation,
                },
                frame,
            )
        };
        let sent = frame.clone();
        let mut stream = pair.client.stream().try_clone().unwrap();
        let writer = thread::spawn(move || stream.write_all(&sent).unwrap());
        let asked = pair.broker.next();
        writer.join().unwrap();
        assert!(asked.frame == frame[4..], "other bytes were forwarded");
        pair.broker.ack(&asked, 10 + i64::from(sequence));
        assert_eq!(pair.receive_one(&owed).offset, 10 + i64::from(sequence));
    }
    for bytes in [1 << 10, 1 << 20, 5 << 20] {
        let correlation = ping(&mut pair.client);
        let asked = pair.broker.next();
        let body: Vec<u8> = (0..=248).cycle().take(bytes).collect();
        let answer = broker::framed(asked.correlation, &body);
        let mut stream = pair.broker.stream.try_clone().unwrap();
        let writer = thread::spawn(move || stream.write_all(&answer).unwrap());
        let received = pair.client.receive_frame().unwrap();
        writer.join().unwrap();
        assert_eq!(received[..4], correlation.to_be_bytes());
        assert!(received[4..] == body, "other bytes were answered");
    }
    // Many small ones at once.
    let sent: Vec<_> = (0..200)
        .map(|_| opaque(&mut pair.client, b"ping"))
        .collect();
    for correlation in &sent {
        let asked = pair.broker.next();
        assert_eq!(asked.correlation, *correlation);
        pair.broker.answer_raw(&asked, b"pong");
    }
    for correlation in sent {
        let answer = pair.client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
    }
    assert_eq!(world.verdicts("duplicate_absorbed"), 1.0);
}

#[test]
fn clients_of_tls_are_served_by_brokers_of_plaintext() {
    check_traffic(&world(Some(&VERSIONS), None).0);
}

#[test]
fn clients_of_plaintext_are_served_by_brokers_of_tls() {
    check_traffic(&world(None, Some(&VERSIONS)).0);
}

#[test]
fn tls_is_spoken_on_both_sides_in_every_version() {
    check_traffic(&both().0);
    check_traffic(&world(Some(&[&TLS12]), Some(&[&TLS13])).0);
    check_traffic(&world(Some(&[&TLS13]), Some(&[&TLS12])).0);
}

/// What a client that does not read, or a broker, costs.
#[test]
fn a_peer_of_tls_that_does_not_read_stops_the_other_side_and_loses_nothing() {
    let (world, _setting) = both();
    let mut pair = world.pair();
    let before = world.hapax.memory();
    let count = 64;
    let body = vec![9; 1 << 20];
    let mut stream = pair.client.stream().try_clone().unwrap();
    let frames: Vec<_> = (0..count)
        .map(|_| pair.client.frame_raw(broker::OPAQUE, 0, 1, &body))
        .collect();
    let correlations: Vec<_> = frames.iter().map(|(correlation, _)| *correlation).collect();
    let writer = thread::spawn(move || {
        stream
            .set_write_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        frames
            .iter()
            .for_each(|(_, frame)| stream.write_all(frame).unwrap());
    });
    let taken = || {
        world
            .hapax
            .metric("hapax_received_bytes_total", &["client"])
    };
    let mut last = -1.0;
    await_until("hapax to read no more", Duration::from_secs(30), || {
        let before = last;
        last = taken();
        crate::support::pause(Duration::from_millis(300));
        before == last && last > 0.0
    });
    assert!(taken() < 40_000_000.0, "hapax reads on without end");
    assert!(
        world.hapax.memory() < before + (16 << 20),
        "what nobody reads is kept"
    );
    for correlation in &correlations {
        let asked = pair.broker.next();
        assert_eq!(asked.correlation, *correlation);
        assert!(asked.frame.ends_with(&body));
        pair.broker.answer_raw(&asked, b"pong");
    }
    writer.join().unwrap();
    for correlation in &correlations {
        assert_eq!(
            pair.client.receive_frame().unwrap()[..4],
            correlation.to_be_bytes()
        );
    }
}

#[test]
fn an_acknowledgement_after_a_loss_of_tls_absorbs_the_retry() {
    let (world, _setting) = both();
    let mut pair = world.pair();
    pair.send(&produce(0));
    let Pair { client, mut broker } = pair;
    let asked = broker.next();
    // The relay ends without a goodbye.
    client.reset();
    await_until("an orphan", SOON, || {
        world.gauge("hapax_orphan_sessions") == 1.0
    });
    broker.ack(&asked, 33);
    broker.assert_ended();
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
}

#[test]
fn an_acknowledgement_after_a_goodbye_of_tls_absorbs_the_retry() {
    let (world, _setting) = both();
    let mut pair = world.pair();
    pair.send(&produce(0));
    let Pair { client, mut broker } = pair;
    let asked = broker.next();
    drop(client);
    broker.ack(&asked, 33);
    broker.assert_ended();
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
}

/// It is not written for certain: what follows it is told to wait.
#[test]
fn a_request_of_which_a_part_left_by_tls_counts_as_never_sent() {
    let (world, _setting) = both();
    let mut pair = world.pair();
    let request = large(0, 1 << 20);
    let (_, frame) = pair.client.frame(12, &request.request());
    pair.client.send_raw(&frame[..frame.len() / 2]).unwrap();
    let mut begun = vec![0; 64 << 10];
    pair.broker.stream.read_exact(&mut begun).unwrap();
    let Pair { client, broker } = pair;
    client.reset();
    drop(broker);
    await_until("the session's end", SOON, || {
        world.gauge("hapax_client_connections") == 0.0
    });
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(1))[0].code, 19);
    let owed = retry.send(&request);
    let asked = retry.broker.next();
    retry.broker.ack(&asked, 5);
    assert_eq!(retry.receive_one(&owed).offset, 5);
}

/// TLS 1.2 cannot say it to the broker before the answers are there; hapax
/// waits for them all the same.
#[test]
fn a_goodbye_of_a_client_lets_everything_received_through_and_every_answer_back() {
    for upstream in [&TLS12, &TLS13] {
        let (world, _setting) = world(Some(&VERSIONS), Some(&[upstream]));
        let mut pair = world.pair();
        let sent = [0, 1, 2].map(|_| ping(&mut pair.client));
        // Half a frame is no request.
        pair.client.send_raw(&[0, 0, 0, 99, 3, 231]).unwrap();
        pair.client.stream().shutdown(Shutdown::Write).unwrap();
        let asked = sent.map(|_| pair.broker.next());
        if upstream.version == rustls::ProtocolVersion::TLSv1_3 {
            pair.broker.assert_ended();
        }
        for asked in &asked {
            pair.broker.answer_raw(asked, b"pong");
        }
        for correlation in sent {
            let answer = pair.client.receive_frame().unwrap();
            assert_eq!(answer[..4], correlation.to_be_bytes());
        }
        assert!(pair.client.is_closed(SOON));
        pair.broker.assert_ended();
    }
}

#[test]
fn a_broker_lost_in_tls_closes_its_client_without_an_answer() {
    let (world, _setting) = both();
    let mut pair = world.pair();
    pair.send(&produce(0));
    pair.broker.next();
    drop(pair.broker);
    assert!(pair.client.is_closed(SOON));
}

/// Asks once, and expects to be closed.
fn closed(bootstrap: &str) {
    let mut client = Client::connect(bootstrap).unwrap();
    ping(&mut client);
    assert!(client.is_closed(SOON));
}

fn told(hapax: &Hapax, said: &str) {
    await_until(said, SOON, || hapax.output().contains(said));
}

/// hapax that believes `ca`, before a broker with that certificate.
fn check_broker(identity: &Identity, ca: &Ca, said: &str) {
    let mut setting = Setting::new();
    setting.believe(&ca.certificate);
    let broker = broker::start();
    let config = secure::server(identity, None, &VERSIONS);
    let hapax = setting.start(&secure::opening(&broker.address, config));
    closed(&hapax.bootstrap);
    told(&hapax, said);
    assert!(hapax.metric("hapax_upstream_connect_errors_total", &["tls"]) >= 1.0);
    assert!(hapax.page("/readyz").starts_with("HTTP/1.1 503"));
    broker.assert_idle();
}

#[test]
fn a_broker_of_an_unknown_ca_is_not_spoken_to() {
    let (ca, other) = (Ca::new("one"), Ca::new("other"));
    let said = "does not come from a CA that hapax believes: set upstream.tls.caFile";
    check_broker(&ca.issue(&[HERE]), &other, said);
}

#[test]
fn a_broker_of_another_name_is_not_spoken_to() {
    let ca = Ca::new("one");
    let said = "not for 127.0.0.1, but for kafka.example, 10.0.0.1: let the broker";
    check_broker(&ca.issue(&["kafka.example", "10.0.0.1"]), &ca, said);
}

#[test]
fn a_broker_whose_certificate_has_expired_is_not_spoken_to() {
    let ca = Ca::new("one");
    let said = "its certificate has expired (2020-01-01 00:00:00 UTC)";
    check_broker(&ca.issue_until(&[HERE], 2020), &ca, said);
}

#[test]
fn the_name_of_all_brokers_can_be_given() {
    let mut setting = Setting::new();
    setting.believe_own();
    setting.flag("upstream-tls-server-name", "kafka.example");
    let upstream = broker::start();
    let config = secure::server(&setting.ca.issue(&["kafka.example"]), None, &VERSIONS);
    let hapax = setting.start(&secure::opening(&upstream.address, config));
    World { upstream, hapax }.pair().barrier();
}

/// Its certificate is for what it advertises, wherever it is reached.
#[test]
fn a_broker_is_verified_by_the_name_that_it_advertises() {
    let mut setting = Setting::new();
    setting.believe_own();
    let (bootstrap, address) = setting.broker(&VERSIONS);
    let broker = broker::start();
    let config = secure::server(&setting.ca.issue(&["kafka-1.example"]), None, &VERSIONS);
    let reached = secure::opening(&broker.address, config);
    setting.flag(
        "upstream-address-map",
        &format!("kafka-1.example:9093={reached}"),
    );
    let hapax = setting.start(&address);
    let mut client = Client::connect(&hapax.bootstrap).unwrap();
    let correlation = client.send(12, &MetadataRequest::default()).unwrap();
    let mut there = bootstrap.accept();
    let asked = there.next();
    there.answer(&asked, &metadata(&[(1, "kafka-1.example", 9093)], None));
    let known = client.receive::<MetadataRequest>(12, correlation).unwrap();
    let port = known.brokers[0].port;
    let mut client = Client::connect(&format!("{HERE}:{port}")).unwrap();
    let correlation = ping(&mut client);
    let mut there = broker.accept();
    let asked = there.next();
    there.answer_raw(&asked, b"pong");
    assert_eq!(
        client.receive_frame().unwrap()[..4],
        correlation.to_be_bytes()
    );
}

#[test]
fn a_broker_in_plaintext_is_told_where_tls_is_configured() {
    let mut setting = Setting::new();
    setting.believe_own();
    // Hangs up on whoever connects, as Kafka does on a frame that is too large:
    // hapax's own look at it speaks TLS as well.
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // However it ends, it ends.
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    let hapax = setting.start(&address);
    let mut client = Client::connect(&hapax.bootstrap).unwrap();
    ping(&mut client);
    assert!(client.is_closed(SOON));
    told(
        &hapax,
        "is the listener PLAINTEXT (then set upstream.tls.enabled to false)",
    );
}

#[test]
fn a_client_in_plaintext_is_told_to_speak_tls() {
    let (mut world, setting) = world(Some(&VERSIONS), None);
    let front = std::mem::take(&mut world.hapax.bootstrap);
    let direct = format!("{HERE}:{}", world.hapax.first_port - 2);
    closed(&direct);
    told(
        &world.hapax,
        "the client speaks no TLS, and this listener does nothing else",
    );
    let bad = world.hapax.metric("hapax_bad_frames_total", &["plaintext"]);
    assert_eq!(bad, 1.0);
    let cut = world
        .hapax
        .metric("hapax_client_disconnects_total", &["tls"]);
    assert_eq!(cut, 1.0);
    world.hapax.bootstrap = front;
    world.pair().barrier();
    drop(setting);
}

#[test]
fn a_probe_of_the_port_is_no_warning_and_costs_the_broker_nothing() {
    let (world, _setting) = world(Some(&VERSIONS), None);
    let direct = format!("{HERE}:{}", world.hapax.first_port - 2);
    for _ in 0..5 {
        drop(TcpStream::connect(&direct).unwrap());
    }
    await_until("their end", SOON, || {
        world.gauge("hapax_client_connections") == 0.0
    });
    world.upstream.assert_idle();
    assert!(!world.hapax.output().contains("WARN"));
    assert!(!world.hapax.output().contains("\"level\":\"WARN\""));
}

#[test]
fn clients_need_a_certificate_of_the_ca_where_one_is_given() {
    let mut setting = Setting::new();
    setting.listen();
    let clients = Ca::new("CA of clients");
    let path = setting.files.write("clients.crt", &clients.certificate);
    setting.flag("listen-tls-client-ca-file", &path);
    let upstream = broker::start();
    let hapax = setting.start(&upstream.address);
    let direct = hapax.bootstrap.clone();
    let mut world = World { upstream, hapax };
    let front = |own: Option<&Identity>| {
        let config = secure::client(&setting.ca, own, &VERSIONS);
        secure::sealing(&direct, config, HERE)
    };
    closed(&front(None));
    told(
        &world.hapax,
        "the client shows no certificate, which listen.tls.clientCaFile asks for",
    );
    closed(&front(Some(&setting.ca.issue(&["stranger"]))));
    told(
        &world.hapax,
        "the client's certificate does not come from a CA of listen.tls.clientCaFile",
    );
    closed(&front(Some(&clients.issue_until(&["late"], 2020))));
    told(
        &world.hapax,
        "the client's certificate has expired (2020-01-01",
    );
    world.upstream.assert_idle();
    world.hapax.bootstrap = front(Some(&clients.issue(&["app"])));
    world.pair().barrier();
}

#[test]
fn a_client_that_does_not_believe_hapax_is_told_of() {
    let (world, _setting) = world(Some(&VERSIONS), None);
    let direct = format!("{HERE}:{}", world.hapax.first_port - 2);
    let config = secure::client(&Ca::new("another"), None, &VERSIONS);
    assert!(secure::handshake(&direct, config, HERE).is_err());
    told(
        &world.hapax,
        "the client refuses the certificate of hapax (UnknownCA)",
    );
}

#[test]
fn hapax_shows_brokers_the_certificate_that_they_want() {
    for version in [&TLS12, &TLS13] {
        let mut setting = Setting::new();
        setting.believe_own();
        let upstream = broker::start();
        let identity = setting.ca.issue(&[HERE]);
        let config = secure::server(&identity, Some(&setting.ca), &[version]);
        let address = secure::opening(&upstream.address, config);
        // Without one, in either version.
        let hapax = setting.start(&address);
        closed(&hapax.bootstrap);
        await_until("the reason", SOON, || {
            let output = hapax.output();
            output.contains("upstream.tls.certFile")
        });
        drop(hapax);
        let own = setting.ca.issue_until(&["hapax"], 2090);
        let certificate = setting.files.write("own.crt", &own.certificate);
        let key = setting.files.write("own.key", &own.key);
        setting.flag("upstream-tls-cert-file", &certificate);
        setting.flag("upstream-tls-key-file", &key);
        let hapax = setting.start(&address);
        let world = World { upstream, hapax };
        world.pair().barrier();
        let name = "hapax_tls_certificate_expiry_timestamp_seconds";
        assert_eq!(world.hapax.metric(name, &["upstream"]), 3_786_912_000.0);
        let page = world.hapax.page("/metrics");
        assert!(!page.contains(&format!("{name}{{side=\"client\"")));
    }
}

/// Connections go on with what they began with, and none is cut.
#[test]
fn new_certificates_are_taken_without_dropping_a_connection() {
    let mut setting = Setting::new();
    setting.listen();
    setting.believe_own();
    let (upstream, address) = setting.broker(&VERSIONS);
    let mut hapax = setting.start(&address);
    let direct = hapax.bootstrap.clone();
    hapax.bootstrap = setting.front(&hapax, &VERSIONS);
    let world = World { upstream, hapax };
    let mut old = world.pair();
    let config = || secure::client(&setting.ca, None, &VERSIONS);
    let first = secure::handshake(&direct, config(), HERE).unwrap();

    // A key that does not fit, and one for everyone: the old state stays.
    let new = setting.ca.issue_until(&[HERE], 2050);
    setting.files.write("listen.key", &new.key);
    world.hapax.signal("HUP");
    told(&world.hapax, "is not the key of the certificate in");
    setting.files.write_with_mode("listen.key", &new.key, 0o644);
    world.hapax.signal("HUP");
    told(
        &world.hapax,
        "can be read or written by everyone (mode 0644)",
    );
    assert!(secure::handshake(&direct, config(), HERE).unwrap() == first);
    old.barrier();

    // Without a signal, and the key has the contents that it had.
    setting.files.write("listen.key", &new.key);
    setting.files.write("listen.crt", &new.certificate);
    // The brokers' CA as well: it is theirs no more.
    let other = Ca::new("other");
    setting.files.write("upstream-ca.crt", &other.certificate);
    let expiry = || {
        let name = "hapax_tls_certificate_expiry_timestamp_seconds";
        world.hapax.metric(name, &["client"])
    };
    await_until("the new certificate", Duration::from_secs(30), || {
        expiry() == 2_524_608_000.0
    });
    assert!(secure::handshake(&direct, config(), HERE).unwrap() != first);
    old.barrier();
    assert_eq!(old.write(&produce(0), 4)[0].offset, 4);
    closed(&world.hapax.bootstrap);
    told(&world.hapax, "does not come from a CA that hapax believes");
    old.barrier();
    let both = format!("{}{}", other.certificate, setting.ca.certificate);
    setting.files.write("upstream-ca.crt", &both);
    await_until(
        "the CA to be believed again",
        Duration::from_secs(30),
        || {
            world.hapax.page("/readyz").starts_with("HTTP/1.1 200")
                && world
                    .hapax
                    .output()
                    .matches("read again, and in use")
                    .count()
                    == 3
        },
    );
    world.pair().barrier();
}

/// The first bytes of a handshake, and no more.
#[test]
fn a_slow_handshake_is_cut_and_holds_up_nobody() {
    let mut setting = Setting::new();
    setting.listen();
    setting.flag("timeouts-tls", "1s");
    setting.flag("workers", "1");
    let upstream = broker::start();
    let mut hapax = setting.start(&upstream.address);
    let direct = hapax.bootstrap.clone();
    hapax.bootstrap = setting.front(&hapax, &VERSIONS);
    let world = World { upstream, hapax };
    let mut slow: Vec<_> = (0..50)
        .map(|_| {
            let mut slow = TcpStream::connect(&direct).unwrap();
            slow.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
            slow.set_read_timeout(Some(SOON)).unwrap();
            slow
        })
        .collect();
    world.pair().barrier();
    for slow in &mut slow {
        let _ = slow.read_to_end(&mut Vec::new());
    }
    await_until("all to be counted", SOON, || {
        world
            .hapax
            .metric("hapax_client_disconnects_total", &["tls"])
            == 50.0
    });
    told(
        &world.hapax,
        "does not finish the TLS handshake within 1s (timeouts.tls)",
    );
}
