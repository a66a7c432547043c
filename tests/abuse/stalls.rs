//! Whoever takes nothing of what it is sent.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::HeartbeatRequest;

use crate::connections::push;
use crate::scene::{MIB, Outcome, PATIENCE, Scale, Scene};
use crate::support::batch::Batch;
use crate::support::peer::Misdeed;
use crate::support::raw::{Client, Produce, Topic};
use crate::support::{await_until, pause};

/// As little as hapax can keep to.
const LIMIT: usize = 64 * MIB;

/// A client whose kernel takes next to nothing for it.
fn small(to: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let client = socket.connect(to.parse().unwrap()).await;
        client.unwrap().into_std().unwrap()
    })
}

/// A Heartbeat of this client.
fn heartbeat(client_id: &str) -> Vec<u8> {
    let mut body = BytesMut::new();
    kafka_protocol::protocol::Encodable::encode(&HeartbeatRequest::default(), &mut body, 0)
        .unwrap();
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(10 + client_id.len() + body.len()).unwrap());
    frame.put_slice(&[0, 12, 0, 0, 0, 0, 0, 1]);
    frame.put_u16(u16::try_from(client_id.len()).unwrap());
    frame.put_slice(client_id.as_bytes());
    frame.put_slice(&body);
    frame.to_vec()
}

/// Waits until hapax takes no more of brokers: nothing moves for a while.
fn await_standstill(scene: &Scene) {
    let moved = || scene.metric("hapax_received_bytes_total", &["side=\"upstream\""]);
    let mut seen = (moved(), Instant::now());
    await_until("a standstill", PATIENCE, || {
        let now = moved();
        // The bystander goes on, whose answers are short.
        if now > seen.0 + MIB {
            seen = (now, Instant::now());
        }
        seen.1.elapsed() > Duration::from_secs(1)
    });
}

pub(crate) fn clients_that_do_not_read(scale: Scale) -> Outcome {
    let scene = Scene::new(&[&format!("--memory-limit={LIMIT}")]);
    let bootstrap = scene.hapax.bootstrap.clone();
    they_do_not_read(scale, scene, &bootstrap, "")
}

/// What waits for them waits in records that are sealed already.
pub(crate) fn clients_in_tls_that_do_not_read(scale: Scale) -> Outcome {
    let (scene, secured) = Scene::in_tls(&[&format!("--memory-limit={LIMIT}")]);
    they_do_not_read(scale, scene, &secured.front, " in TLS")
}

fn they_do_not_read(scale: Scale, scene: Scene, bootstrap: &str, how: &str) -> Outcome {
    let count = scale.of(30, 300);
    let ask = heartbeat(&Misdeed::LargeAnswer.name());
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let client = small(bootstrap);
            push(&client, &ask).unwrap();
            client
        })
        .collect();
    await_standstill(&scene);
    scene.await_bystander();
    let held = scene.metric("hapax_memory_buffers_bytes", &[]);
    let outcome = scene.end(&format!(
        "{count} clients{how} ask for 8 MiB and read nothing, under `memory.limit` {} MiB",
        LIMIT / MIB
    ));
    assert!(outcome.peak < LIMIT, "{} MiB", outcome.peak / MIB);
    drop(clients);
    outcome.note(format!("{} MiB were accounted for", held / MIB))
}

pub(crate) fn brokers_that_do_not_read(scale: Scale) -> Outcome {
    let scene = Scene::new(&[&format!("--memory-limit={LIMIT}")]);
    let count = scale.of(20, 60);
    let batch = Batch::of(99, 0, 0, [vec![b'x'; 16 * MIB]]).bytes();
    let produce = Produce::to(&Topic::unknown("deaf"), 0, batch);
    let mut first = Client::connect(&scene.hapax.bootstrap).unwrap();
    let (_, frame) = first.frame(9, &produce.request());
    let ask = heartbeat(&Misdeed::Deaf.name());
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let client = scene.connect();
            client.set_nonblocking(true).unwrap();
            push(&client, &ask).unwrap();
            client
        })
        .collect();
    let mut sent = vec![0; count];
    let mut quiet = 0;
    while quiet < 10 {
        let mut moved = 0;
        for (client, sent) in clients.iter().zip(&mut sent) {
            moved += push(client, &frame[*sent..]).unwrap_or(0).min(1);
            *sent += push(client, &frame[*sent..]).unwrap_or(0);
        }
        quiet = if moved > 0 { 0 } else { quiet + 1 };
        pause(Duration::from_millis(50));
    }
    scene.await_bystander();
    let held = scene.metric("hapax_memory_buffers_bytes", &[]);
    let outcome = scene.end(&format!(
        "{count} clients send 16 MiB to brokers that read nothing, under `memory.limit` {} MiB",
        LIMIT / MIB
    ));
    assert!(outcome.peak < LIMIT, "{} MiB", outcome.peak / MIB);
    drop((clients, first));
    outcome.note(format!("{} MiB were accounted for", held / MIB))
}
