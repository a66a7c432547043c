//! What clients and upstreams may send that they must not: each gets a defined
//! answer, hurts nobody else, costs no memory, and is named in a metric and a
//! log line.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "../support/mod.rs"]
mod support;

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{FetchRequest, MetadataRequest};
use support::batch::{Batch, CONTROL, legacy_message_set};
use support::hapax::{self, Hapax};
use support::peer::{self, Misdeed, Peer};
use support::raw::{Client, Produce, Topic};
use support::{await_until, pause};

const MIB: usize = 1 << 20;
/// A small limit, so that a test need not send much to pass it.
const FRAME_LIMIT: u32 = 4 << 20;
/// What a handful of connections may cost: read buffers, and what malloc keeps.
const SLACK: usize = 48 * MIB;
const SOON: Duration = Duration::from_secs(10);

/// An upstream, hapax before it, and a client that must not notice anything.
struct World {
    peer: Peer,
    hapax: Hapax,
    bystander: Client,
    memory: usize,
}

impl World {
    fn new() -> Self {
        let peer = peer::start();
        let limit = format!("--limits-frame-bytes={FRAME_LIMIT}");
        let hapax = hapax::start(&peer.address, "absorb", &[&limit]);
        let mut bystander = Client::connect(&hapax.bootstrap).unwrap();
        bystander.metadata(12, &["t"]).unwrap();
        let memory = hapax.memory();
        Self {
            peer,
            hapax,
            bystander,
            memory,
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.hapax.bootstrap).unwrap()
    }

    fn bad_frames(&self, side: &str, reason: &str) -> f64 {
        let labels = [format!("side=\"{side}\""), format!("reason=\"{reason}\"")];
        self.hapax
            .metric("hapax_bad_frames_total", &labels.each_ref().map(|l| &**l))
    }

    fn all_bad_frames(&self) -> f64 {
        self.hapax.metric("hapax_bad_frames_total", &[])
    }

    /// Alive, serving, not larger than before by more than `grown` bytes.
    fn assert_well(&mut self, grown: usize) {
        self.hapax.assert_well();
        self.bystander.metadata(12, &["t"]).unwrap();
        self.client().metadata(12, &["t"]).unwrap();
        let memory = self.hapax.memory();
        let most = self.memory + grown;
        assert!(memory < most, "{memory} bytes, {most} at most");
    }
}

/// Sends `bytes`; the connection closes and the counter of `reason` says why.
fn check_client_bytes(world: &mut World, bytes: &[u8], reason: &str, says: &str) {
    let before = world.bad_frames("client", reason);
    let all = world.all_bad_frames();
    let mut client = world.client();
    client.send_raw(bytes).unwrap();
    assert!(client.is_closed(SOON), "{reason}: still open");
    await_until(reason, SOON, || world.bad_frames("client", reason) > before);
    assert_eq!(world.all_bad_frames(), all + 1.0, "{reason}: counted once");
    let output = world.hapax.output();
    let line = output.lines().rev().find(|line| line.contains(says));
    assert!(
        line.is_some(),
        "{reason}: no line says {says:?} in {output}"
    );
    world.assert_well(SLACK);
}

#[test]
fn lengths_that_no_request_has_close_the_connection() {
    let mut world = World::new();
    let over = FRAME_LIMIT + 1;
    for (length, reason, says) in [
        (0x8000_0000, "negative", "-2147483648"),
        (0xffff_ffff, "negative", "-1"),
        (0, "short", "shorter"),
        (7, "short", "shorter"),
        (0x7fff_ffff, "too_long", "2147483647"),
        (over, "too_long", &over.to_string()),
    ] {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend([0; 20]);
        check_client_bytes(&mut world, &bytes, reason, says);
    }
}

#[test]
fn strangers_are_named() {
    let mut world = World::new();
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    check_client_bytes(&mut world, tls, "tls", "TLS");
    for http in [
        "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        check_client_bytes(&mut world, http.as_bytes(), "http", "HTTP");
    }
    let v1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n";
    check_client_bytes(&mut world, v1, "proxy_protocol", "PROXY");
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\xdc\x04\x01\xbb";
    check_client_bytes(&mut world, v2, "proxy_protocol", "PROXY");
}

#[test]
fn a_truncated_request_is_not_forwarded_whole_and_hurts_nobody() {
    let mut world = World::new();
    let mut client = world.client();
    let (_, frame) = client.frame(12, &produce(b"v").request());
    for cut in [1, 3, 4, 11, frame.len() - 1] {
        let mut client = world.client();
        client.send_raw(&frame[..cut]).unwrap();
        client.stream().shutdown(Shutdown::Write).unwrap();
        assert!(client.is_closed(SOON), "cut after {cut} bytes");
    }
    assert_eq!(world.peer.frames(), [] as [Bytes; 0]);
    world.assert_well(SLACK);
}

/// As a kubelet's TCP probe does.
#[test]
fn a_connection_that_says_nothing_leaves_no_warning() {
    let mut world = World::new();
    let before = world.hapax.output();
    for _ in 0..20 {
        drop(world.client());
    }
    world.assert_well(SLACK);
    let output = world.hapax.output();
    let new = &output[before.len()..];
    let loud = new.contains("WARN") || new.contains("ERROR");
    assert!(!loud, "{new}");
    assert_eq!(world.all_bad_frames(), 0.0);
}

#[test]
fn a_thousand_announcements_of_much_cost_little() {
    const CONNECTIONS: usize = 1000;
    let peer = peer::start();
    let hapax = hapax::start(&peer.address, "absorb", &[]);
    let mut world = World {
        memory: hapax.memory(),
        bystander: Client::connect(&hapax.bootstrap).unwrap(),
        peer,
        hapax,
    };
    world.assert_well(SLACK);
    let before = world.peer.received();
    let mut bytes = (100_u32 << 20).to_be_bytes().to_vec();
    // Produce v12: what a large request begins with, so only its size is odd.
    bytes.extend([0, 0, 0, 12, 0, 0, 0, 1, 0, 3]);
    let clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = world.client();
            client.send_raw(&bytes).unwrap();
            client
        })
        .collect();
    world.assert_well(128 * MIB);
    pause(Duration::from_millis(500));
    world.assert_well(128 * MIB);
    let open = world.hapax.metric("hapax_client_connections", &[]);
    assert!(open >= 1000.0, "{open} connections: the others were closed");
    // Only the two Metadata of each `assert_well` have reached the upstream.
    let forwarded = world.peer.received() - before;
    assert!(
        forwarded < 1000,
        "{forwarded} bytes of announcements forwarded"
    );
    drop(clients);
    world.assert_well(128 * MIB);
}

#[test]
fn a_client_that_never_reads_stops_its_own_upstream_only() {
    let mut world = World::new();
    let limit = "--limits-frame-bytes=104857600";
    world.hapax = hapax::start(&world.peer.address, "absorb", &[limit]);
    world.bystander = world.client();
    world.memory = world.hapax.memory();
    let mut client = world.client();
    client.client_id = Some(Misdeed::LargeAnswer.name());
    // 32 answers of 8 MiB.
    let requests: BytesMut = (0..32)
        .flat_map(|_| client.frame(12, &FetchRequest::default()).1)
        .collect();
    client.send_raw(&requests).unwrap();
    for _ in 0..10 {
        pause(Duration::from_millis(100));
        world.assert_well(SLACK);
    }
    // It may still read, and gets all of it.
    for _ in 0..32 {
        assert_eq!(client.receive_frame().unwrap().len(), (8 << 20) + 4);
    }
    world.assert_well(SLACK);
}

#[test]
fn an_upstream_that_never_reads_stops_its_own_client_only() {
    let mut world = World::new();
    let mut client = world.client();
    client.client_id = Some(Misdeed::Deaf.name());
    let (_, frame) = client.frame(12, &produce(&vec![7; MIB]).request());
    client
        .stream()
        .set_write_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let sent = (0..256).take_while(|_| client.stream().write_all(&frame).is_ok());
    let sent = sent.count();
    assert!(sent < 64, "{sent} MiB were taken for a deaf upstream");
    world.assert_well(SLACK);
}

/// A Fetch or Metadata is answered wrongly; the connection closes, nothing is invented.
fn check_upstream(misdeed: Misdeed, reason: Option<&str>) {
    let mut world = World::new();
    let before = reason.map(|reason| world.bad_frames("upstream", reason));
    let mut client = world.client();
    client.client_id = Some(misdeed.name());
    if misdeed == Misdeed::GarbledBody {
        client.send(12, &MetadataRequest::default()).unwrap();
    } else {
        client.send(12, &FetchRequest::default()).unwrap();
    }
    let answer = client.receive_frame();
    assert!(answer.is_err(), "{misdeed:?}: an answer arrived");
    assert!(client.is_closed(SOON), "{misdeed:?}: still open");
    if let (Some(reason), Some(before)) = (reason, before) {
        await_until(reason, SOON, || {
            world.bad_frames("upstream", reason) > before
        });
        let output = world.hapax.output();
        assert!(output.contains("WARN"), "{misdeed:?}: {output}");
    }
    world.assert_well(SLACK);
}

#[test]
fn an_answer_to_nobody_closes_the_connection() {
    check_upstream(Misdeed::UnknownCorrelation, Some("unpaired"));
}

#[test]
fn half_an_answer_is_no_answer() {
    check_upstream(Misdeed::HalfAnAnswer, None);
}

#[test]
fn lengths_that_no_answer_has_close_the_connection() {
    check_upstream(Misdeed::HugeAnswer, Some("too_long"));
    check_upstream(Misdeed::NegativeAnswer, Some("negative"));
    check_upstream(Misdeed::ShortAnswer, Some("short"));
}

#[test]
fn an_upstream_that_speaks_tls_is_named() {
    check_upstream(Misdeed::TlsAlert, Some("tls"));
}

/// An address that cannot be read cannot be rewritten, and must not leak.
#[test]
fn metadata_that_cannot_be_read_is_not_passed_on() {
    check_upstream(Misdeed::GarbledBody, Some("malformed"));
}

/// hapax judges none of these: the same bytes reach the broker, which does.
#[test]
fn produce_requests_that_a_broker_refuses_reach_it_untouched() {
    let mut world = World::new();
    let good = Batch::of(1, 0, 0, ["v"]);
    let forced = |force: fn(&mut Batch)| {
        let mut batch = good.clone();
        force(&mut batch);
        Some(batch.bytes())
    };
    let twice: Bytes = [good.bytes(), good.bytes()].concat().into();
    let mut stray = good.bytes().to_vec();
    stray.push(0);
    let records = [
        Some(Bytes::new()),
        Some(twice),
        Some(stray.into()),
        Some(good.bytes().slice(..30)),
        Some(legacy_message_set(0, b"v")),
        Some(legacy_message_set(1, b"v")),
        forced(|b| b.sequence = -1),
        forced(|b| b.attributes = CONTROL),
        forced(|b| b.count = Some(9)),
        forced(|b| b.last_offset_delta = Some(9)),
        forced(|b| b.last_offset_delta = Some(i32::MAX)),
        forced(|b| b.last_offset_delta = Some(-2)),
        forced(|b| b.crc = Some(1)),
        forced(|b| b.length = Some(i32::MAX)),
        forced(|b| b.length = Some(-1)),
        forced(|b| b.epoch = i16::MIN),
        forced(|b| b.producer = i64::MIN),
        forced(|b| b.values.clear()),
        None,
    ];
    let mut sent = Vec::new();
    let mut client = world.client();
    for version in [3, 8, 9, 12, 13] {
        for topic in ["t", "", &"t".repeat(249)] {
            let topic = Topic::unknown(topic);
            for records in &records {
                let one = vec![(0, records.clone())];
                let both = vec![(0, records.clone()), (0, records.clone())];
                for partitions in [one, both] {
                    let produce = Produce::of(vec![(topic.clone(), partitions)]);
                    let request = produce.version(version).request();
                    let (correlation, frame) = client.frame(version, &request);
                    client.send_raw(&frame).unwrap();
                    let answer = client.receive_frame().unwrap();
                    assert_eq!(answer[..4], correlation.to_be_bytes());
                    sent.push(frame.slice(4..));
                }
            }
        }
    }
    let arrived = world.peer.frames();
    assert_eq!(arrived.len(), sent.len());
    for (number, (arrived, sent)) in arrived.iter().zip(&sent).enumerate() {
        assert_eq!(arrived, sent, "request {number}");
    }
    world.assert_well(SLACK);
}

#[test]
fn apis_and_versions_from_the_future_pass_untouched() {
    let mut world = World::new();
    let mut client = world.client();
    for (key, version) in [(999, 0), (32_767, 3), (-5, 1)] {
        let (correlation, frame) = client.frame_raw(key, version, 1, b"who knows");
        client.send_raw(&frame).unwrap();
        let answer = client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
        assert_eq!(answer[4..], *b"of an unknown api");
        assert_eq!(world.peer.frames().last(), Some(&frame.slice(4..)));
    }
    world.assert_well(SLACK);
}

/// A Produce that ends inside its own fields: forwarded as it is, or the
/// connection closes; nothing waits for ever, nothing else happens.
#[test]
fn a_produce_request_that_is_not_one_is_no_danger() {
    let mut world = World::new();
    for version in [3, 9, 13] {
        let mut maker = world.client();
        let header = if version >= 9 { 2 } else { 1 };
        let (_, whole) = maker.frame(version, &produce(b"value").request());
        // Length, api, version, correlation id, "raw"; flexible: no tagged field.
        let front = if header == 2 { 18 } else { 17 };
        let body = &whole[front..];
        for cut in 0..body.len() {
            let mut client = world.client();
            let (_, frame) = client.frame_raw(0, version, header, &body[..cut]);
            client.send_raw(&frame).unwrap();
            client.stream().shutdown(Shutdown::Write).unwrap();
            assert!(client.is_closed(SOON), "v{version} cut at {cut}");
        }
    }
    world.assert_well(SLACK);
}

/// The same seed, the same bytes.
#[test]
fn noise_is_no_danger() {
    let mut world = World::new();
    let mut state = 0x5eed_u64;
    for _ in 0..300 {
        let mut noise = Vec::new();
        for _ in 0..64 {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.extend(state.to_be_bytes());
        }
        // Half of it as a frame of a right length.
        if state & 1 == 0 {
            noise.splice(..6, [0, 0, 1, 0xfc, 0, state.to_be_bytes()[1] & 3]);
        }
        let mut client = world.client();
        // hapax may close before all of it is written.
        let _ = client.send_raw(&noise);
        let _ = client.stream().shutdown(Shutdown::Write);
        assert!(client.is_closed(SOON));
    }
    world.assert_well(SLACK);
}

fn produce(value: &[u8]) -> Produce {
    let batch = Batch::of(1, 0, 0, [value.to_vec()]);
    Produce::to(&Topic::unknown("t"), 0, batch.bytes())
}
