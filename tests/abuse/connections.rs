//! Many connections, and connections that never come to the point.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kafka_protocol::messages::HeartbeatRequest;

use crate::scene::{HERE, MIB, Outcome, PATIENCE, SLACK, Scale, Scene};
use crate::secure::{self, VERSIONS};
use crate::support::batch::Batch;
use crate::support::peer::ACKNOWLEDGED;
use crate::support::raw::{Client, Produce, Topic};
use crate::support::{await_until, pause};

/// What hapax says that a connection costs, in any state in which it keeps
/// nothing: src/memory.rs reserves it.
const CONNECTION: usize = 16 << 10;

/// The beginning of a Produce request of 100 MiB, of which `sent` bytes come.
pub(crate) fn announcement(sent: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sent);
    bytes.extend((100_u32 << 20).to_be_bytes()[..].iter().copied());
    // Within limits.frameBytes, its own length not counted.
    bytes[..4].copy_from_slice(&((100_u32 << 20) - 4).to_be_bytes());
    bytes.extend([0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b'a', 0]);
    // No transactional id, acks=all, a timeout, one topic, one partition.
    bytes.extend([0, 0xff, 0xff, 0, 0, 0x75, 0x30, 2, 2, b't', 2]);
    bytes.extend([0, 0, 0, 0]);
    bytes.resize(sent, 0);
    bytes
}

/// Writes as much as goes at once. Whether the other side is still there.
pub(crate) fn push(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Many that send next to nothing, and fifty that send all but one byte of what
/// would be passed on.
pub(crate) fn announcements(scale: Scale) -> Outcome {
    let scene = Scene::new(&[]);
    let count = scale.of(200, 1_000);
    let (heard, clients) = scene.in_silence(|| {
        let before = scene.peer.received();
        let sent = std::iter::repeat_n(10, count).chain([(64 << 10) - 1; 50]);
        let clients: Vec<_> = sent
            .map(|sent| {
                let mut client = scene.connect();
                client.write_all(&announcement(sent)).unwrap();
                client
            })
            .collect();
        let received = || scene.metric("hapax_received_bytes_total", &["side=\"client\""]);
        let all = count * 10 + 50 * ((64 << 10) - 1);
        await_until("all of it", PATIENCE, || received() >= all);
        scene.await_connections(count + 50);
        (scene.peer.received() - before, clients)
    });
    // hapax itself asks now and then whether the broker is there.
    assert!(heard < 1024, "the broker was told {heard} bytes of it");
    let outcome = scene
        .end(&format!(
            "{count} connections announce 100 MiB and send 10 bytes, 50 more send 64 KiB less one byte"
        ))
        .grew_by_at_most((count + 50) * CONNECTION + 50 * (128 << 10) + SLACK)
        .note("the broker heard of none".to_owned());
    drop(clients);
    outcome
}

/// More than fits is kept of nobody; who holds memory and moves nothing goes, so
/// that who behaves gets through with requests that do not fit beside that.
pub(crate) fn under_a_limit(scale: Scale) -> Outcome {
    let limit = scale.of(128, 256) * MIB;
    let flag = format!("--memory-limit={limit}");
    let scene = Scene::new(&[&flag, "--sequence-max-windows=1000"]);
    let count = scale.of(2_500, 5_000);
    let large = |sequence| {
        let batch = Batch::of(8, 0, sequence, [vec![b'x'; 60 << 10]]).bytes();
        Produce::to(&Topic::unknown("large"), 0, batch).version(9)
    };
    // Who comes later may find no room.
    let mut early = Client::connect(&scene.hapax.bootstrap).unwrap();
    early.client_id = Some(ACKNOWLEDGED.to_owned());
    early.set_patience(PATIENCE);
    assert_eq!(early.produce(&large(0)).unwrap().code, 0);
    let bytes = announcement(60 << 10);
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let client = scene.connect();
            client.set_nonblocking(true).unwrap();
            // It may have been closed.
            let _ = push(&client, &bytes);
            client
        })
        .collect();
    await_until("the limit", PATIENCE, || scene.refused_for_memory() > 0);
    scene.await_bystander();
    let open = scene.metric("hapax_client_connections", &[]) - 2;
    let cut = || scene.metric("hapax_client_disconnects_total", &["cause=\"memory\""]);
    await_until("room to be made", PATIENCE, || cut() > 0);
    let start = Instant::now();
    assert_eq!(early.produce(&large(1)).unwrap().code, 0);
    let took = start.elapsed();
    let (met, cut) = (scene.refused_for_memory(), cut());
    let outcome = scene.end(&format!(
        "{count} connections announce 100 MiB and send 60 KiB each under `memory.limit` {} MiB",
        limit / MIB
    ));
    assert!(outcome.peak < limit, "{} MiB", outcome.peak / MIB);
    drop((clients, early));
    outcome.note(format!(
        "{open} were open at once, {met} times there was no memory, {cut} were closed for it; then a request of 60 KiB took {took:.1?}"
    ))
}

/// Requests that are read whole, of which all are begun before the rest of any
/// comes: nothing of them was promised to anybody.
pub(crate) fn read_whole(scale: Scale) -> Outcome {
    const LEN: usize = 1_000_000;
    let limit = scale.of(96, 128) * MIB;
    let flag = format!("--memory-limit={limit}");
    let scene = Scene::new(&[&flag, "--sequence-max-windows=1000"]);
    let count = scale.of(300, 1_000);
    // InitProducerId of nobody.
    let mut bytes = u32::try_from(LEN - 4).unwrap().to_be_bytes().to_vec();
    bytes.extend([0, 22, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    bytes.resize(LEN, 0);
    let begun = 5 << 10;
    let mut clients: Vec<_> = (0..count)
        .map(|_| {
            let client = scene.connect();
            client.set_nonblocking(true).unwrap();
            let sent = push(&client, &bytes[..begun]).unwrap();
            (client, sent)
        })
        .collect();
    let received = || scene.metric("hapax_received_bytes_total", &["side=\"client\""]);
    await_until("a part of each", PATIENCE, || received() >= count * begun);
    // All but the last byte, all together.
    await_until("the limit", PATIENCE, || {
        for (client, sent) in &mut clients {
            let end = (*sent + (64 << 10)).min(LEN - 1);
            // It may have been closed.
            *sent += push(client, &bytes[*sent..end]).unwrap_or(0);
        }
        received() >= 2 * limit || scene.refused_for_memory() >= count / 2
    });
    scene.await_bystander();
    let met = scene.refused_for_memory();
    let outcome = scene.end(&format!(
        "{count} connections begin requests of {LEN} bytes that are read whole, and then send the rest, under `memory.limit` {} MiB",
        limit / MIB
    ));
    assert!(outcome.peak < limit, "{} MiB", outcome.peak / MIB);
    drop(clients);
    outcome.note(format!("{met} times there was no memory"))
}

pub(crate) fn idle(scale: Scale) -> Outcome {
    let scene = Scene::new(&["--limits-connections=20000"]);
    let count = scale.of(1_000, 10_000);
    let clients: Vec<_> = (0..count).map(|_| scene.connect()).collect();
    scene.await_connections(count);
    let each = scene.hapax.memory().saturating_sub(scene.before) / count;
    let outcome = scene
        .end(&format!("{count} connections that say nothing"))
        .grew_by_at_most(count * CONNECTION + SLACK / 4)
        .note(format!("{each} bytes each"));
    drop(clients);
    outcome
}

pub(crate) fn served_and_idle(scale: Scale) -> Outcome {
    let scene = Scene::new(&["--limits-connections=20000"]);
    let count = scale.of(500, 4_000);
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let mut client = Client::connect(&scene.hapax.bootstrap).unwrap();
            client.call(4, &HeartbeatRequest::default()).unwrap_err();
            client
        })
        .collect();
    scene.await_connections(count);
    let each = scene.hapax.memory().saturating_sub(scene.before) / count;
    let outcome = scene
        .end(&format!(
            "{count} connections that were answered and say no more"
        ))
        .grew_by_at_most(count * CONNECTION + SLACK / 4)
        .note(format!("{each} bytes each"));
    drop(clients);
    outcome
}

pub(crate) fn slowly(scale: Scale) -> Outcome {
    let scene = Scene::new(&[]);
    let bytes = announcement(64);
    let mut clients: Vec<_> = (0..scale.of(50, 500)).map(|_| scene.connect()).collect();
    let count = clients.len();
    for byte in bytes.iter().take(scale.of(3, 30)) {
        for client in &mut clients {
            client.write_all(&[*byte]).unwrap();
        }
        pause(Duration::from_secs(1));
    }
    scene.await_connections(count);
    let outcome = scene
        .end(&format!("{count} connections that send a byte a second"))
        .grew_by_at_most(count * CONNECTION + SLACK);
    drop(clients);
    outcome
}

pub(crate) fn random_bytes(scale: Scale) -> Outcome {
    let scene = Scene::new(&[]);
    let count = scale.of(200, 5_000);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    for _ in 0..count {
        let mut client = scene.connect();
        let bytes: Vec<u8> = (0..512).flat_map(|_| random()).collect();
        // It may be closed before all has come.
        let _ = client.write_all(&bytes);
        client
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let _ = client.read(&mut [0; 64]);
    }
    let bad = || scene.metric("hapax_bad_frames_total", &["side=\"client\""]);
    // Half of all lengths are negative, and most others beyond the limit.
    await_until("them to be told", PATIENCE, || bad() > count * 9 / 10);
    scene.await_connections(0);
    let lines = scene.hapax.output().lines().count();
    assert!(lines < 500, "{lines} lines are logged");
    let (bad, logged) = (bad(), scene.hapax.output().lines().count());
    scene
        .end(&format!("{count} connections that send random bytes"))
        .grew_by_at_most(2 * SLACK)
        .note(format!("{bad} were no frames, {logged} lines logged"))
}

pub(crate) fn handshakes(scale: Scale) -> Outcome {
    let (scene, secured) = Scene::in_tls(&[]);
    let count = scale.of(100, 3_000);
    let start = Instant::now();
    for n in 0..count {
        if n % 2 == 0 {
            // TLS 1.2 is the one that could be agreed on anew.
            let versions = [VERSIONS[n / 2 % 2]];
            let config = secure::client(&secured.ca, None, &versions);
            secure::handshake(&scene.hapax.bootstrap, config, HERE).unwrap();
            continue;
        }
        // The beginning of a hello, and no more.
        let mut client = scene.connect();
        client
            .write_all(&[0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc])
            .unwrap();
        let _ = client.write_all(&[0; 4096]);
    }
    let each = start.elapsed() / u32::try_from(count).unwrap();
    scene.await_connections(0);
    scene
        .end(&format!(
            "{count} handshakes one after the other, every second one given up half-way"
        ))
        .grew_by_at_most(2 * SLACK)
        .note(format!("{each:.1?} each; rustls agrees on nothing anew"))
}
