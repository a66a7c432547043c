//! Bytes through the proxy: pairing, order, back-pressure, memory, ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProduceRequest};

use crate::broker::{self, OPAQUE, failed, framed};
use crate::support::batch::Batch;
use crate::support::hapax;
use crate::support::raw::{Client, Produce};
use crate::support::{await_until, pause};
use crate::world::{Pair, SOON, World, batch, of_epoch, opaque, orders, ping, produce};

const MIB: usize = 1 << 20;
/// What both kernels' socket buffers may take on a loopback connection.
const BUFFERS: usize = 40 * MIB;
/// What hapax may keep of a stream.
const KEPT: usize = 8 * MIB;

#[test]
fn each_client_connection_has_its_own_broker_connection() {
    let world = World::new(&[]);
    let (mut a, mut b) = (world.pair(), world.pair());
    for _ in 0..3 {
        a.barrier();
        b.barrier();
    }
    world.upstream.assert_idle();
}

#[test]
fn pipelined_requests_reach_the_broker_at_once_and_are_answered_in_order() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let sent: Vec<i32> = (0..50).map(|_| ping(&mut pair.client)).collect();
    let asked: Vec<_> = (0..50).map(|_| pair.broker.next()).collect();
    let answers = asked.iter().zip(0_u8..);
    let answers: BytesMut = answers
        .flat_map(|(asked, n)| framed(asked.correlation, &[n]))
        .collect();
    pair.broker.send(&answers);
    for (correlation, n) in sent.iter().zip(0_u8..) {
        let answer = pair.client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
        assert_eq!(answer[4..], [n]);
    }
}

/// `ours` is answered by hapax itself between two answers of the broker.
fn check_turn(pair: &mut Pair, ours: impl FnOnce(&mut Pair) -> i32) {
    let first = ping(&mut pair.client);
    let own = ours(pair);
    let last = ping(&mut pair.client);
    let (a, b) = (pair.broker.next(), pair.broker.next());
    assert_eq!((a.correlation, b.correlation), (first, last));
    pair.broker.answer_raw(&a, b"a");
    pair.broker.answer_raw(&b, b"b");
    for correlation in [first, own, last] {
        let answer = pair.client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
    }
    pair.barrier();
}

#[test]
fn an_absorbed_answer_leaves_in_its_turn() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 7);
    check_turn(&mut pair, |pair| pair.send(&produce(0)).correlation);
}

#[test]
fn a_mirrored_answer_leaves_in_its_turn() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let first = pair.send(&produce(0));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| failed(6));
    assert_eq!(pair.receive_one(&first).code, 6);
    check_turn(&mut pair, |pair| pair.send(&produce(1)).correlation);
}

#[test]
fn the_refusal_of_a_future_api_versions_leaves_in_its_turn() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    check_turn(&mut pair, |pair| {
        let (correlation, frame) = pair.client.frame_raw(18, 6, 2, b"\x01\x01\0");
        pair.client.send_raw(&frame).unwrap();
        correlation
    });
}

/// Several of our own answers in a row, behind one of the broker's.
#[test]
fn own_answers_keep_their_order_among_themselves() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 7);
    pair.write(&produce(1), 8);
    let first = ping(&mut pair.client);
    let asked = pair.broker.next();
    let owed = [0, 1, 0].map(|sequence| pair.send(&produce(sequence)));
    pair.broker.answer_raw(&asked, b"a");
    let answer = pair.client.receive_frame().unwrap();
    assert_eq!(answer[..4], first.to_be_bytes());
    let offsets = owed.map(|owed| pair.receive_one(&owed).offset);
    assert_eq!(offsets, [7, 8, 7]);
}

/// Writes `bytes` in the background and counts what went.
fn write_slowly(mut to: TcpStream, bytes: Bytes) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    to.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let writer = thread::spawn(move || {
        for part in bytes.chunks(64 << 10) {
            to.write_all(part).unwrap();
            counter.fetch_add(part.len(), Ordering::Relaxed);
        }
    });
    (written, writer)
}

/// Waits until a counter stands still for a while.
fn stands_still(counter: &AtomicUsize) -> usize {
    let mut seen = (counter.load(Ordering::Relaxed), Instant::now());
    while seen.1.elapsed() < Duration::from_millis(400) {
        pause(Duration::from_millis(20));
        let now = counter.load(Ordering::Relaxed);
        if now != seen.0 {
            seen = (now, Instant::now());
        }
    }
    seen.0
}

#[test]
fn a_client_that_does_not_read_stops_its_broker_and_costs_no_memory() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let before = world.hapax.memory();
    for _ in 0..128 {
        ping(&mut pair.client);
    }
    let asked: Vec<_> = (0..128).map(|_| pair.broker.next()).collect();
    let body = vec![7; MIB];
    let answers: Vec<Bytes> = asked.iter().map(|a| framed(a.correlation, &body)).collect();
    let stream = pair.broker.stream.try_clone().unwrap();
    let (written, writer) = write_slowly(stream, answers.concat().into());
    let taken = stands_still(&written);
    assert!(taken < BUFFERS, "{taken} bytes were taken");
    let grown = world.hapax.memory_peak().saturating_sub(before);
    assert!(grown < KEPT, "{grown} bytes were kept");
    for asked in &asked {
        let answer = pair.client.receive_frame().unwrap();
        assert_eq!(answer[..4], asked.correlation.to_be_bytes());
        assert_eq!(answer.len(), MIB + 4);
    }
    writer.join().unwrap();
    pair.barrier();
}

#[test]
fn a_broker_that_does_not_read_stops_its_client_and_costs_no_memory() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let before = world.hapax.memory();
    let body = vec![7; MIB];
    let frames: Vec<Bytes> = (0..128)
        .map(|_| pair.client.frame_raw(OPAQUE, 0, 1, &body).1)
        .collect();
    let stream = pair.client.stream().try_clone().unwrap();
    let (written, writer) = write_slowly(stream, frames.concat().into());
    let taken = stands_still(&written);
    assert!(taken < BUFFERS, "{taken} bytes were taken");
    let grown = world.hapax.memory_peak().saturating_sub(before);
    assert!(grown < KEPT, "{grown} bytes were kept");
    for frame in &frames {
        let asked = pair.broker.next();
        assert!(asked.frame == frame[4..]);
        pair.broker.answer_raw(&asked, b"pong");
    }
    writer.join().unwrap();
    for _ in &frames {
        pair.client.receive_frame().unwrap();
    }
    pair.barrier();
}

/// A frame just below the limit of 100 MiB comes through whole, and is not kept.
fn check_large_fetch(version: i16, answer: impl FnOnce(&broker::Asked) -> Bytes) {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let before = world.hapax.memory();
    let request = FetchRequest::default();
    let (correlation, frame) = pair.client.frame(version, &request);
    pair.client.send_raw(&frame).unwrap();
    let asked = pair.broker.next();
    let whole = answer(&asked);
    assert!(whole.len() > 99 * MIB);
    let stream = pair.broker.stream.try_clone().unwrap();
    let (_, writer) = write_slowly(stream, whole.clone());
    let got = pair.client.receive_frame().unwrap();
    assert_eq!(got[..4], correlation.to_be_bytes());
    assert!(got == whole[4..], "v{version}: other bytes arrived");
    writer.join().unwrap();
    let grown = world.hapax.memory_peak().saturating_sub(before);
    assert!(grown < KEPT, "v{version}: {grown} bytes were kept");
    pair.barrier();
}

fn records() -> Bytes {
    vec![7; 100 * MIB - 1000].into()
}

#[test]
fn a_fetch_response_of_100_mib_streams() {
    check_large_fetch(12, |asked| framed(asked.correlation, &records()));
}

#[test]
fn a_fetch_response_of_100_mib_that_may_carry_addresses_streams() {
    check_large_fetch(17, |asked| {
        let partition = PartitionData::default().with_records(Some(records()));
        let topic = FetchableTopicResponse::default().with_partitions(vec![partition]);
        broker::answer(asked, &FetchResponse::default().with_responses(vec![topic]))
    });
}

#[test]
fn a_produce_request_of_100_mib_streams() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let before = world.hapax.memory();
    let mut large = Batch::of(1, 0, 0, ["v"]);
    large.payload = Some(records().to_vec());
    large.crc = Some(1);
    let produce = Produce::to(&orders(), 0, large.bytes());
    let (correlation, frame) = pair.client.frame(12, &produce.request());
    let stream = pair.client.stream().try_clone().unwrap();
    let (_, writer) = write_slowly(stream, frame.clone());
    let asked = pair.broker.next();
    assert!(asked.frame == frame[4..], "other bytes arrived");
    writer.join().unwrap();
    let grown = world.hapax.memory_peak().saturating_sub(before);
    assert!(grown < KEPT, "{grown} bytes were kept");
    pair.broker.ack(&asked, 9);
    let owed = crate::world::Owed {
        version: 12,
        correlation,
    };
    assert_eq!(pair.receive_one(&owed).offset, 9);
}

#[test]
fn a_frame_is_announced_to_the_broker_once_64_kib_or_all_of_it_came() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let (_, small) = pair.client.frame_raw(OPAQUE, 0, 1, &[7; 1000]);
    let (_, large) = pair.client.frame_raw(OPAQUE, 0, 1, &vec![7; MIB]);
    let (most, last) = small.split_at(small.len() - 1);
    pair.client.send_raw(most).unwrap();
    pair.broker.assert_silent();
    pair.client.send_raw(last).unwrap();
    assert!(pair.broker.next().frame == small[4..]);

    let first_part = 4 + (64 << 10);
    pair.client.send_raw(&large[..first_part - 1]).unwrap();
    pair.broker.assert_silent();
    pair.client
        .send_raw(&large[first_part - 1..first_part])
        .unwrap();
    let mut begun = vec![0; first_part];
    pair.broker.stream.read_exact(&mut begun).unwrap();
    assert!(begun == large[..first_part]);
    pair.client.send_raw(&large[first_part..]).unwrap();
    let mut rest = vec![0; large.len() - first_part];
    pair.broker.stream.read_exact(&mut rest).unwrap();
    assert!(rest == large[first_part..]);
}

#[test]
fn requests_with_acks_0_take_no_slot() {
    let world = World::new(&["--limits-in-flight=1"]);
    let mut pair = world.pair();
    for sequence in 0..3 {
        pair.send(&produce(sequence).acks(0));
    }
    let correlation = ping(&mut pair.client);
    for sequence in 0..3 {
        assert_eq!(pair.broker.next().sequences(), [(0, sequence)]);
    }
    let asked = pair.broker.next();
    pair.broker.answer_raw(&asked, b"pong");
    let answer = pair.client.receive_frame().unwrap();
    assert_eq!(answer[..4], correlation.to_be_bytes());
    assert_eq!(world.gauge("hapax_requests_in_flight"), 0.0);
}

#[test]
fn requests_in_flight_are_limited() {
    let world = World::new(&["--limits-in-flight=2"]);
    let mut pair = world.pair();
    let sent: Vec<i32> = (0..5).map(|_| ping(&mut pair.client)).collect();
    let first = pair.broker.next();
    let mut last = pair.broker.next();
    pair.broker.assert_silent();
    let limit = ["limit=\"in_flight\""];
    assert!(world.hapax.metric("hapax_limit_reached_total", &limit) >= 1.0);
    pair.broker.answer_raw(&first, b"pong");
    for _ in 2..5 {
        let next = pair.broker.next();
        pair.broker.assert_silent();
        pair.broker.answer_raw(&last, b"pong");
        last = next;
    }
    pair.broker.answer_raw(&last, b"pong");
    for correlation in sent {
        let answer = pair.client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
    }
}

#[test]
fn a_fin_lets_everything_received_through_and_every_answer_back() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let sent = [0, 1, 2].map(|_| ping(&mut pair.client));
    // Half a frame is no request.
    pair.client.send_raw(&[0, 0, 0, 99, 3, 231]).unwrap();
    pair.client.stream().shutdown(Shutdown::Write).unwrap();
    let asked = sent.map(|_| pair.broker.next());
    pair.broker.assert_ended();
    for asked in &asked {
        pair.broker.answer_raw(asked, b"pong");
    }
    for correlation in sent {
        let answer = pair.client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
    }
    assert!(pair.client.is_closed(SOON));
}

#[test]
fn a_held_request_before_a_fin_is_forwarded_when_its_turn_comes() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let (r1, r2) = (pair.send(&produce(0)), pair.send(&produce(1)));
    pair.client.stream().shutdown(Shutdown::Write).unwrap();
    let asked = pair.broker.next();
    pair.broker.assert_silent();
    pair.broker.ack(&asked, 0);
    let asked = pair.broker.next();
    assert_eq!(asked.sequences(), [(0, 1)]);
    pair.broker.assert_ended();
    pair.broker.ack(&asked, 1);
    assert_eq!(pair.receive_one(&r1).offset, 0);
    assert_eq!(pair.receive_one(&r2).offset, 1);
    assert!(pair.client.is_closed(SOON));
}

#[test]
fn a_reset_ends_the_broker_connection_where_no_acknowledgement_is_owed() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    ping(&mut pair.client);
    pair.broker.next();
    pair.client.reset();
    pair.broker.assert_ended();
}

/// What hapax had wholly received of requests without an answer goes on; a
/// request that is cut short would spoil the one before it.
#[test]
fn a_reset_leaves_whole_frames_with_acks_0() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    ping(&mut pair.client);
    let owed = pair.broker.next();
    let mut small = Batch::of(-1, -1, -1, ["v"]);
    small.payload = Some(vec![7; 40 << 10]);
    let produce = Produce::to(&orders(), 0, small.bytes()).acks(0);
    let frames: Vec<Bytes> = (0..1600)
        .map(|_| pair.client.frame(12, &produce.request()).1)
        .collect();
    let mut stream = pair.client.stream().try_clone().unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(400)))
        .unwrap();
    let all = frames.concat();
    let mut sent = 0;
    while let Ok(n) = stream.write(&all[sent..]) {
        sent += n;
    }
    assert!(sent < all.len(), "the broker reads nothing");
    drop(stream);
    pair.client.reset();
    pair.broker.answer_raw(&owed, b"pong");
    // The loss is noticed by that answer, before the broker reads on; a
    // session that has more to send does not end by it.
    let cause = ["cause=\"client\""];
    for _ in 0..25 {
        if world.hapax.metric("hapax_client_disconnects_total", &cause) >= 2.0 {
            break;
        }
        pause(Duration::from_millis(20));
    }
    let mut forwarded = Vec::new();
    pair.broker.stream.read_to_end(&mut forwarded).unwrap();
    let cut = forwarded.len() % frames[0].len();
    assert_eq!(cut, 0, "the stream ends after {cut} bytes of a frame");
}

#[test]
fn a_broker_that_closes_half_way_through_an_answer_closes_its_client_there() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let correlation = ping(&mut pair.client);
    ping(&mut pair.client);
    let asked = pair.broker.next();
    let answer = framed(asked.correlation, &[7; 1000]);
    pair.broker.send(&answer[..500]);
    drop(pair.broker);
    let mut came = Vec::new();
    pair.client.stream().read_to_end(&mut came).unwrap();
    assert_eq!(came[4..8], correlation.to_be_bytes());
    assert_eq!(came, answer[..500]);
}

#[test]
fn a_lost_broker_connection_closes_its_client_without_an_answer_and_no_other() {
    let world = World::new(&[]);
    let (mut pair, mut other) = (world.pair(), world.pair());
    pair.send(&produce(0));
    pair.broker.next();
    drop(pair.broker);
    let mut came = Vec::new();
    pair.client.stream().read_to_end(&mut came).unwrap();
    assert_eq!(came, [] as [u8; 0]);
    other.barrier();
}

#[test]
fn a_silent_broker_is_a_lost_one() {
    let world = World::new(&["--timeouts-upstream-response=300ms"]);
    let mut pair = world.pair();
    let start = Instant::now();
    pair.send(&produce(0).timeout(100));
    pair.broker.next();
    assert!(pair.client.receive_frame().is_err());
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(400), "after {took:?}");
    assert!(took < SOON, "after {took:?}");
    pair.broker.assert_ended();
    let cause = ["cause=\"upstream\""];
    let lost = || world.hapax.metric("hapax_client_disconnects_total", &cause) == 1.0;
    await_until("the disconnect to be counted", SOON, lost);
}

#[test]
fn a_null_client_id_and_a_large_opaque_request_pass_as_they_are() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.client.client_id = None;
    let body: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
    opaque(&mut pair.client, &body);
    let asked = pair.broker.next();
    assert!(asked.frame.ends_with(&body));
    pair.broker.answer_raw(&asked, &body);
    let answer = pair.client.receive_frame().unwrap();
    assert!(answer[4..] == body);
}

#[test]
fn a_batch_is_forwarded_byte_for_byte() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for version in 3..=13 {
        let sequence = i32::from(version - 3);
        let produce = Produce::to(&orders(), version.into(), batch(0)).version(version);
        let (owed, asked) = pair.forwarded(&produce);
        pair.broker.ack(&asked, i64::from(sequence));
        assert_eq!(pair.receive_one(&owed).offset, i64::from(sequence));
    }
}

/// A broker that hangs (not dead: its kernel answers) while its clients give
/// up one after another.
#[test]
fn clients_that_gave_up_on_a_hanging_broker_cost_nothing() {
    let world = World::new(&["--timeouts-upstream-response=1s"]);
    let mut brokers = Vec::new();
    for _ in 0..5 {
        let mut client = world.client();
        ping(&mut client);
        let mut broker = world.upstream.accept();
        broker.next();
        brokers.push(broker);
        // A request timeout: the client closes.
        drop(client);
    }
    await_until("the sessions to end", Duration::from_secs(20), || {
        world.gauge("hapax_client_connections") == 0.0
    });
}

/// The same while a large request is on its way.
#[test]
fn clients_that_gave_up_on_a_broker_that_does_not_read_cost_nothing() {
    let world = World::new(&["--timeouts-upstream-response=1s"]);
    let mut pair = world.pair();
    let mut large = of_epoch(0, 0);
    large.payload = Some(vec![7; 32 << 20]);
    let request = Produce::to(&orders(), 0, large.bytes()).timeout(500);
    let (_, frame) = pair.client.frame(12, &request.request());
    pair.client
        .stream()
        .set_write_timeout(Some(Duration::from_millis(1000)))
        .unwrap();
    let _ = pair.client.send_raw(&frame);
    let Pair { client, broker } = pair;
    drop(client);
    await_until("the session to end", Duration::from_secs(20), || {
        world.gauge("hapax_client_connections") == 0.0
    });
    drop(broker);
}

/// The broker answers strictly in turn: what it has not begun cannot be late.
#[test]
fn a_batch_behind_a_slow_request_has_its_own_time() {
    let world = World::new(&["--timeouts-upstream-response=300ms"]);
    let mut pair = world.pair();
    let slow = ping(&mut pair.client);
    let owed = pair.send(&produce(0).timeout(100));
    let first = pair.broker.next();
    let second = pair.broker.next();
    pause(Duration::from_millis(1000));
    pair.broker.answer_raw(&first, b"pong");
    assert_eq!(
        pair.client.receive_frame().unwrap()[..4],
        slow.to_be_bytes()
    );
    pause(Duration::from_millis(50));
    pair.broker.ack(&second, 3);
    let got = pair
        .client
        .receive::<ProduceRequest>(12, owed.correlation)
        .expect("hapax killed a connection whose broker is on time");
    assert_eq!(got.responses[0].partition_responses[0].base_offset, 3);
}

fn varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.put_u8(value.to_le_bytes()[0]);
}

/// Every read must not start over with all the tags that came before.
#[test]
fn a_frame_of_tags_does_not_stop_its_worker() {
    const TAGS: usize = 4 << 20;
    let world = World::new(&["--workers=1"]);
    let mut other = world.pair();
    let mut client = world.client();
    let records = Batch::of(-1, -1, -1, [vec![b'x'; 70_000]]).bytes();
    let mut body = BytesMut::new();
    varint(&mut body, 0);
    body.put_i16(-1);
    body.put_i32(15_000);
    varint(&mut body, 2);
    varint(&mut body, 7);
    body.put_slice(b"orders");
    varint(&mut body, 3);
    body.put_i32(0);
    varint(&mut body, records.len() + 1);
    body.put_slice(&records);
    varint(&mut body, TAGS);
    body.resize(body.len() + 2 * TAGS - 100, 0);
    let (_, frame) = client.frame_raw(0, 12, 2, &body);
    let mut stream = client.stream().try_clone().unwrap();
    // Announce a little more, so that it never ends.
    let mut frame = frame.to_vec();
    let longer = u32::try_from(frame.len() + 1000).unwrap().to_be_bytes();
    frame[..4].copy_from_slice(&longer);
    let sender = thread::spawn(move || {
        let _ = stream.write_all(&frame);
    });
    let start = Instant::now();
    while !sender.is_finished() {
        other.barrier();
        pause(Duration::from_millis(5));
    }
    for _ in 0..10 {
        other.barrier();
    }
    let took = start.elapsed();
    // It took twice that when each read began with the first tag.
    assert!(took < Duration::from_secs(12), "{took:?}");
}

/// Clients try again where nobody listens; of an end in good order before the
/// first answer franz-go thinks that it should speak TLS, and gives up.
#[test]
fn a_client_is_reset_where_the_broker_cannot_be_reached() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let hapax = hapax::start_with(&address, "absorb", 1, &[]);
    let mut client = Client::connect(&hapax.bootstrap).unwrap();
    ping(&mut client);
    let error = client.receive_frame().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}
