//! Time: clients that are silent or slow, and brokers that hang up on silence.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use crate::broker::OPAQUE;
use crate::support::raw::Client;
use crate::support::{await_until, pause};
use crate::world::{Pair, SOON, World, ping, produce};

/// Client connections that this has ended.
fn ended(world: &World, cause: &str) -> f64 {
    let label = format!("cause=\"{cause}\"");
    let hapax = &world.hapax;
    hapax.metric("hapax_client_disconnects_total", &[&label])
}

/// An opaque frame of that size.
fn frame(client: &mut Client, size: usize) -> Bytes {
    client.frame_raw(OPAQUE, 0, 1, &vec![7; size]).1
}

/// How the client's connection ends, after what it is still told.
fn end(client: &mut Client) -> std::io::Result<()> {
    client.set_patience(SOON);
    let mut rest = Vec::new();
    client.stream().read_to_end(&mut rest).map(|_| ())
}

/// Sends a byte now and then until the connection is closed.
fn trickle(client: &mut Client, bytes: &[u8]) {
    let stream = client.stream();
    stream.set_nonblocking(true).unwrap();
    let mut stream = stream;
    for byte in bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
        pause(Duration::from_millis(50));
    }
    panic!(
        "all {} bytes have been taken, one after the other",
        bytes.len()
    );
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_is_closed_and_counted() {
    let world = World::new(&["--timeouts-request=1s"]);
    let mut bystander = world.pair();
    let mut slow = world.client();
    let frame = frame(&mut slow, 4000);
    trickle(&mut slow, &frame);
    assert_eq!(ended(&world, "slow"), 1.0);
    let output = world.hapax.output();
    let line = output.lines().find(|l| l.contains("timeouts.request"));
    let line = line.unwrap_or_else(|| panic!("{output}"));
    assert!(line.contains("WARN"), "{line}");
    bystander.barrier();
}

/// The broker has been given the beginning of it by then, and nothing else.
#[test]
fn a_large_request_that_stops_half_way_is_closed_on_both_sides() {
    let world = World::new(&["--timeouts-request=1s"]);
    let mut pair = world.pair();
    let frame = frame(&mut pair.client, 300_000);
    pair.client.send_raw(&frame[..200_000]).unwrap();
    let mut begun = vec![0; 200_000];
    pair.broker.stream.read_exact(&mut begun).unwrap();
    assert!(begun == frame[..200_000]);
    assert!(pair.client.is_closed(SOON));
    pair.broker.assert_ended();
    assert_eq!(ended(&world, "slow"), 1.0);
}

/// 16 KiB in a fifth of a second, for longer than `timeouts.request`.
#[test]
fn a_slow_upload_that_goes_on_is_not_closed() {
    let world = World::new(&["--timeouts-request=1s"]);
    let mut pair = world.pair();
    let frame = frame(&mut pair.client, 240_000);
    for part in frame.chunks(16 << 10) {
        pair.client.send_raw(part).unwrap();
        pause(Duration::from_millis(200));
    }
    let asked = pair.broker.next();
    assert!(asked.frame == frame[4..]);
    pair.broker.answer_raw(&asked, b"taken");
    assert_eq!(pair.client.receive_frame().unwrap()[4..], *b"taken");
    assert_eq!(ended(&world, "slow"), 0.0);
}

#[test]
fn a_request_that_the_broker_does_not_take_is_not_slow() {
    let world = World::new(&["--timeouts-request=1s"]);
    let Pair { mut client, broker } = world.pair();
    let mut broker = broker;
    let frame = frame(&mut client, 64 << 20);
    let sent = frame.clone();
    let sender = thread::spawn(move || {
        client.send_raw(&sent).unwrap();
        client
    });
    // Sockets take less of it than that.
    pause(Duration::from_secs(3));
    let asked = broker.next();
    assert!(asked.frame == frame[4..]);
    broker.answer_raw(&asked, b"taken");
    let mut client = sender.join().unwrap();
    assert_eq!(client.receive_frame().unwrap()[4..], *b"taken");
    assert_eq!(ended(&world, "slow"), 0.0);
}

/// A long poll is open, and part of the next request has come behind it.
#[test]
fn part_of_a_request_behind_one_that_is_open_is_not_slow() {
    let world = World::new(&["--timeouts-request=3s"]);
    let mut pair = world.pair();
    let poll = ping(&mut pair.client);
    let next = frame(&mut pair.client, 100);
    pair.client.send_raw(&next[..50]).unwrap();
    let asked = pair.broker.next();
    pause(Duration::from_secs(4));
    pair.broker.answer_raw(&asked, b"at last");
    assert_eq!(
        pair.client.receive_frame().unwrap()[..4],
        poll.to_be_bytes()
    );
    pair.client.send_raw(&next[50..]).unwrap();
    let asked = pair.broker.next();
    assert!(asked.frame == next[4..]);
    assert_eq!(ended(&world, "slow"), 0.0);
}

#[test]
fn an_idle_client_is_closed_in_good_order_and_counted() {
    let world = World::new(&["--timeouts-idle=1s"]);
    let mut pair = world.pair();
    for _ in 0..3 {
        pair.barrier();
    }
    end(&mut pair.client).expect("no reset");
    pair.broker.assert_ended();
    assert_eq!(ended(&world, "idle"), 1.0);
    let output = world.hapax.output();
    let said = output.lines().filter(|l| l.contains("connection closed"));
    assert_eq!(said.count(), 0, "{output}");
}

#[test]
fn no_client_is_idle_by_default() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pause(Duration::from_secs(2));
    pair.barrier();
    let config = world.hapax.json("/api/v1/config").to_string();
    assert!(config.contains("timeouts.idle"), "{config}");
    assert_eq!(ended(&world, "idle"), 0.0);
}

#[test]
fn a_long_poll_is_not_idle() {
    let world = World::new(&["--timeouts-idle=1s"]);
    let mut pair = world.pair();
    let poll = ping(&mut pair.client);
    let asked = pair.broker.next();
    pause(Duration::from_secs(3));
    pair.broker.answer_raw(&asked, b"at last");
    assert_eq!(
        pair.client.receive_frame().unwrap()[..4],
        poll.to_be_bytes()
    );
    // Its time begins anew.
    assert!(pair.client.is_closed(SOON));
    assert_eq!(ended(&world, "idle"), 1.0);
}

#[test]
fn a_held_batch_is_not_idle() {
    let world = World::new(&["--timeouts-idle=1s", "--sequence-hold-max=60s"]);
    let (mut first, mut second) = (world.informed(), world.informed());
    first.write(&produce(0), 0);
    let open = first.send(&produce(1));
    let asked = first.broker.next();
    let held = second.send(&produce(2));
    await_until("a held batch", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    pause(Duration::from_secs(3));
    first.broker.ack(&asked, 1);
    assert_eq!(first.receive_one(&open).offset, 1);
    let asked = second.broker.next();
    second.broker.ack(&asked, 2);
    assert_eq!(second.receive_one(&held).offset, 2);
}

/// As brokers do after connections.max.idle.ms: what a client sees of it is
/// what it would see without hapax, and nobody has to look into it.
#[test]
fn a_broker_that_closes_an_idle_connection_is_no_error() {
    let world = World::new(&[]);
    let Pair { mut client, broker } = world.informed();
    drop(broker);
    end(&mut client).expect("no reset");
    let output = world.hapax.output();
    let loud = output.lines().filter(|line| {
        let warns = line.contains("WARN") || line.contains("ERROR");
        warns || line.contains("ended with requests open")
    });
    assert_eq!(loud.count(), 0, "{output}");
    assert_eq!(ended(&world, "upstream"), 1.0);
    world.pair().barrier();
}

/// The client's batch and the broker's goodbye meet on the way. The client
/// cannot know whether it was written, and sends it again.
#[test]
fn a_batch_that_crosses_with_the_brokers_goodbye_is_written_by_its_retry() {
    // Nor is it looked for in the log, which is another matter.
    let world = World::new(&["--sequence-resolve=false"]);
    for sequence in 0..20 {
        let mut pair = world.informed();
        pair.broker
            .stream
            .shutdown(std::net::Shutdown::Write)
            .unwrap();
        let batch = produce(sequence);
        // Whether hapax has closed by now is chance.
        let _ = pair.client.send(batch.version, &batch.request());
        assert!(pair.client.is_closed(SOON));
        let mut retry = world.informed();
        let answers = retry.write(&batch, i64::from(sequence));
        assert_eq!((answers[0].code, answers[0].offset), (0, sequence.into()));
    }
    assert_eq!(world.verdicts("gap"), 0.0);
    assert_eq!(world.verdicts("overlap"), 0.0);
}

/// The timer of a connection, as the system shows it, by the ports of its ends:
/// 2 where it is for TCP to ask whether its peer is there.
fn tcp_timer(local: u16, remote: u16) -> u8 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = [local, remote].map(|port| format!("0100007F:{port:04X}"));
    let rows = table.lines().skip(1);
    let mut rows = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1..3] == ends);
    let row = row.unwrap_or_else(|| panic!("no {ends:?} in {table}"));
    let (timer, _) = row[5].split_once(':').unwrap();
    u8::from_str_radix(timer, 16).unwrap()
}

#[test]
fn tcp_asks_whether_silent_peers_are_there_on_both_sides() {
    for (flags, timer) in [(&[][..], 2), (&["--timeouts-keep-alive=0"], 0)] {
        let world = World::new(flags);
        let pair = world.pair();
        let client = pair.client.stream();
        let (client, hapax) = (client.local_addr(), client.peer_addr());
        let (client, hapax) = (client.unwrap().port(), hapax.unwrap().port());
        await_until("the client's timer", SOON, || {
            tcp_timer(hapax, client) == timer
        });
        let near = pair.broker.stream.peer_addr().unwrap().port();
        await_until("the broker's timer", SOON, || {
            tcp_timer(near, world.upstream.port) == timer
        });
    }
}
