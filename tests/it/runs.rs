//! Large runs of records, which go from socket to socket unseen.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{
    FetchableTopicResponse, NodeEndpoint, PartitionData,
};
use kafka_protocol::protocol::{Decodable, StrBytes};

use crate::broker::{self, Asked, framed};
use crate::support::batch::Batch;
use crate::support::raw::Produce;
use crate::support::{await_until, pause};
use crate::world::{Owed, PRODUCER, Pair, SOON, World, orders, produce};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// More than all socket buffers between two ends take.
const ENDLESS: usize = 64 * MIB;
/// Two for each pipe that a worker keeps although nothing is in it.
const KEPT_DESCRIPTORS: usize = 2 * 4;

/// Numbers that only look like chance.
struct Chance(u64);

impl Chance {
    /// `0 <= number < below`
    fn number(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % below
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len / 8 + 1).flat_map(|_| {
            self.number(2);
            self.0.to_le_bytes()
        });
        words.take(len).collect()
    }

    /// Cuts into pieces of which some are tiny.
    fn pieces<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let most = [10, 5 * KIB, 80 * KIB, 400 * KIB][self.number(4)];
            let (piece, rest) = bytes.split_at((1 + self.number(most)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// Writes in pieces, in the background.
fn write_in_pieces(mut to: TcpStream, bytes: Bytes, seed: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for piece in Chance(seed).pieces(&bytes) {
            to.write_all(piece).unwrap();
        }
    })
}

/// Reads as many bytes, in pieces.
fn read_in_pieces(mut from: &TcpStream, len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    for piece in Chance(seed).pieces(&vec![0; len]) {
        from.read_exact(&mut bytes[at..at + piece.len()]).unwrap();
        at += piece.len();
    }
    bytes
}

fn large_batch(partition: i32, sequence: i32, payload: Vec<u8>) -> (i32, Option<Bytes>) {
    let mut batch = Batch::of(PRODUCER, 0, sequence, ["v"]);
    batch.payload = Some(payload);
    (partition, Some(batch.bytes()))
}

fn large(sequence: i32, payload: Vec<u8>) -> Produce {
    Produce::of(vec![(orders(), vec![large_batch(0, sequence, payload)])])
}

fn spliced(world: &World, side: &str) -> f64 {
    let side = format!("side=\"{side}\"");
    world.hapax.metric("hapax_spliced_bytes_total", &[&side])
}

/// Writes until nobody takes any more.
fn write_what_fits(mut to: &TcpStream, mut bytes: &[u8]) {
    to.set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    while let Ok(written) = to.write(bytes) {
        bytes = &bytes[written..];
        assert!(!bytes.is_empty(), "all of it was taken");
    }
}

/// Nothing more passes: what fits into the buffers between two ends is there.
/// On a slow machine nothing may have begun to pass for longer than that.
fn await_standstill(world: &World, name: &str, side: &str) {
    let side = format!("side=\"{side}\"");
    let mut last = -1.0;
    await_until("the stream to stand still", SOON, || {
        pause(Duration::from_millis(200));
        let now = world.hapax.metric(name, &[&side]);
        let has_begun = now > 1e6;
        std::mem::replace(&mut last, now) == now && has_begun
    });
}

/// A request reaches the broker as it was sent, and its answer the client.
fn check_request(pair: &mut Pair, produce: &Produce, seed: u64) {
    let (correlation, frame) = pair.client.frame(produce.version, &produce.request());
    let client = pair.client.stream().try_clone().unwrap();
    let writer = write_in_pieces(client, frame.clone(), seed);
    let got = read_in_pieces(&pair.broker.stream, frame.len(), seed + 1);
    assert!(got == frame, "seed {seed}: other bytes arrived");
    writer.join().unwrap();
    let asked = Asked::of(Bytes::from(got).slice(4..));
    pair.broker.ack(&asked, 7);
    let version = produce.version;
    let answers = pair.receive(&Owed {
        version,
        correlation,
    });
    assert_eq!(answers.len(), produce.topics[0].1.len());
}

#[test]
fn produced_records_arrive_as_they_were_sent_in_whatever_pieces() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let mut chance = Chance(0x5eed);
    let mut sent = 0;
    for sequence in 0..24 {
        let len = [90 * KIB, 300 * KIB, 3 * MIB][chance.number(3)];
        let payload = chance.number(len) + 60 * KIB;
        let request = large(sequence, chance.bytes(payload));
        let seed = 1 + chance.number(1 << 40) as u64;
        check_request(&mut pair, &request, seed);
        sent += payload;
    }
    let moved = spliced(&world, "client");
    assert!(moved > 0.0, "nothing was spliced");
    assert!(moved < sent as f64, "heads were not read");
    pair.barrier();
    assert_eq!(world.verdicts("forwarded"), 24.0);
}

/// The walk goes on exactly where each partition's records end: every batch
/// of the request is known afterwards.
#[test]
fn every_batch_of_a_large_request_of_many_partitions_is_seen() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    // A producer is trusted to stream once its first request went well.
    pair.write(&produce(0), 0);
    let mut chance = Chance(0xfeed);
    for round in 0..6 {
        let partitions = (1..5).map(|partition| {
            let len = chance.number(500 * KIB) + 10 * KIB;
            large_batch(partition, round, chance.bytes(len))
        });
        let version = [7, 9, 12][usize::try_from(round).unwrap() % 3];
        let request = Produce::of(vec![(orders(), partitions.collect())]).version(version);
        let seed = 1 + chance.number(1 << 40) as u64;
        check_request(&mut pair, &request, seed);
        let owed = pair.send(&request);
        let absorbed = pair.receive(&owed);
        assert_eq!(absorbed.len(), 4);
        assert!(absorbed.iter().all(|answer| answer.offset == 7));
    }
    assert!(spliced(&world, "client") > 0.0, "nothing was spliced");
    assert_eq!(world.verdicts("forwarded"), 1.0 + 6.0 * 4.0);
    assert_eq!(world.verdicts("duplicate_absorbed"), 6.0 * 4.0);
    pair.barrier();
}

fn fetched(chance: &mut Chance) -> FetchResponse {
    let partitions = (0..3).map(|index| {
        let len = chance.number(900 * KIB) + 60 * KIB;
        PartitionData::default()
            .with_partition_index(index)
            .with_records(Some(chance.bytes(len).into()))
    });
    let topic = FetchableTopicResponse::default().with_partitions(partitions.collect());
    FetchResponse::default().with_responses(vec![topic])
}

fn with_endpoint(answer: FetchResponse) -> FetchResponse {
    let endpoint = NodeEndpoint::default()
        .with_node_id(7.into())
        .with_host(StrBytes::from_static_str("kafka-7.example"))
        .with_port(9092);
    answer.with_node_endpoints(vec![endpoint])
}

#[test]
fn fetched_records_arrive_as_they_were_sent_in_whatever_pieces() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let mut chance = Chance(0xbeef);
    for version in [12, 16, 17, 12, 18, 17, 16, 12] {
        let expected = fetched(&mut chance);
        let answer = match version {
            16.. => with_endpoint(expected.clone()),
            _ => expected.clone(),
        };
        let request = FetchRequest::default();
        let correlation = pair.client.send(version, &request).unwrap();
        let asked = pair.broker.next();
        let whole = broker::answer(&asked, &answer);
        let stream = pair.broker.stream.try_clone().unwrap();
        let seed = 1 + chance.number(1 << 40) as u64;
        let writer = write_in_pieces(stream, whole.clone(), seed);
        let got = read_in_pieces(pair.client.stream(), whole.len(), seed + 1);
        writer.join().unwrap();
        assert_eq!(got[4..8], correlation.to_be_bytes());
        let mut body = Bytes::from(got).slice(9..);
        let mut got = FetchResponse::decode(&mut body, version).unwrap();
        assert!(body.is_empty());
        // Blanked addresses leave a field that nobody knows.
        got.unknown_tagged_fields.clear();
        assert!(got == expected, "v{version}, seed {seed}");
        pair.barrier();
    }
    assert!(spliced(&world, "upstream") > 0.0, "nothing was spliced");
}

#[test]
fn spliced_bytes_are_counted_like_all_others() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let counted = |name: &str, side: &str| {
        let side = format!("side=\"{side}\"");
        world.hapax.metric(name, &[&side])
    };
    let names = ["hapax_received_bytes_total", "hapax_sent_bytes_total"];
    let before = names.map(|name| ["client", "upstream"].map(|side| counted(name, side)));
    let request = large(0, vec![7; 3 * MIB]);
    let (_, frame) = pair.client.frame(request.version, &request.request());
    let (owed, asked) = pair.forwarded(&request);
    let answer = broker::answer(&asked, &broker::produced(&asked, |_| broker::ok(7)));
    pair.broker.send(&answer);
    pair.receive_one(&owed);
    let after = names.map(|name| ["client", "upstream"].map(|side| counted(name, side)));
    let (request, answer) = (frame.len() as f64, answer.len() as f64);
    assert_eq!(after[0][0] - before[0][0], request, "from the client");
    assert_eq!(after[1][1] - before[1][1], request, "to the broker");
    assert_eq!(after[0][1] - before[0][1], answer, "from the broker");
    assert_eq!(after[1][0] - before[1][0], answer, "to the client");
    assert!(spliced(&world, "client") > 2.0 * MIB as f64);
}

/// All that the other side got, once it got no more.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => rest,
    }
}

#[test]
fn a_reset_within_a_run_forwards_nothing_more_and_the_batch_was_not_written() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 0);
    let request = large(1, vec![7; ENDLESS]);
    let (_, frame) = pair.client.frame(request.version, &request.request());
    write_what_fits(pair.client.stream(), &frame);
    assert!(spliced(&world, "client") > 0.0, "nothing was spliced");
    let Pair { client, mut broker } = pair;
    client.reset();
    let got = rest(&mut broker.stream);
    assert!(got.len() < frame.len(), "all of it was forwarded");
    assert!(got == frame[..got.len()], "other bytes arrived");
    await_until("the session to end", SOON, || {
        world.gauge("hapax_client_connections") == 0.0
    });
    let mut retry = world.pair();
    let small = large(1, vec![7; 100 * KIB]);
    assert_eq!(retry.write(&small, 1)[0].offset, 1);
    let events = world.events();
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn a_broker_lost_within_a_run_ends_the_client_and_the_retry_is_forwarded() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 0);
    let request = large(1, vec![7; ENDLESS]);
    let (_, frame) = pair.client.frame(request.version, &request.request());
    let mut stream = pair.client.stream().try_clone().unwrap();
    let writer = thread::spawn(move || {
        let _ = stream.write_all(&frame);
    });
    let mut begun = vec![0; 2 * MIB];
    pair.broker.stream.read_exact(&mut begun).unwrap();
    assert!(spliced(&world, "client") > 0.0, "nothing was spliced");
    let Pair { mut client, broker } = pair;
    drop(broker);
    assert!(client.is_closed(SOON));
    writer.join().unwrap();
    let mut retry = world.pair();
    let small = large(1, vec![7; 100 * KIB]);
    assert_eq!(retry.write(&small, 1)[0].offset, 1);
}

#[test]
fn a_client_that_ends_within_a_run_has_all_it_sent_forwarded() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let request = large(0, vec![7; 3 * MIB]);
    let (_, frame) = pair.client.frame(request.version, &request.request());
    let part = &frame[..2 * MIB + 77];
    pair.client.send_raw(part).unwrap();
    pair.client.stream().shutdown(Shutdown::Write).unwrap();
    let got = rest(&mut pair.broker.stream);
    assert!(got == part, "{} bytes arrived", got.len());
    assert!(spliced(&world, "client") > 0.0, "nothing was spliced");
}

/// The client is lost while it does not read, and its broker speaks on.
#[test]
fn an_acknowledgement_behind_a_large_answer_counts_after_a_reset() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let request = FetchRequest::default();
    pair.client.send(12, &request).unwrap();
    let fetch = pair.broker.next();
    pair.send(&produce(0));
    let produced = pair.broker.next();
    let answer = framed(fetch.correlation, &vec![7; ENDLESS]);
    let mut stream = pair.broker.stream.try_clone().unwrap();
    let writer = thread::spawn(move || stream.write_all(&answer).unwrap());
    await_standstill(&world, "hapax_sent_bytes_total", "client");
    assert!(spliced(&world, "upstream") > 0.0, "nothing was spliced");
    let Pair { client, mut broker } = pair;
    client.reset();
    writer.join().unwrap();
    broker.ack(&produced, 33);
    broker.assert_ended();
    let mut retry = world.pair();
    assert_eq!(retry.answered_here(&produce(0))[0].offset, 33);
}

/// An answer of hapax's own waits behind what is in a pipe.
#[test]
fn an_absorbed_answer_leaves_behind_a_large_one_that_the_client_has_not_read() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.write(&produce(0), 33);
    let correlation = pair.client.send(12, &FetchRequest::default()).unwrap();
    let fetch = pair.broker.next();
    let body = vec![7; ENDLESS];
    let answer = framed(fetch.correlation, &body);
    let mut stream = pair.broker.stream.try_clone().unwrap();
    let writer = thread::spawn(move || stream.write_all(&answer).unwrap());
    await_standstill(&world, "hapax_sent_bytes_total", "client");
    let owed = pair.send(&produce(0));
    let got = pair.client.receive_frame().unwrap();
    assert_eq!(got[..4], correlation.to_be_bytes());
    assert!(got[4..] == body, "other bytes arrived");
    writer.join().unwrap();
    assert_eq!(pair.receive_one(&owed).offset, 33);
    pair.barrier();
}

#[test]
fn a_connection_with_large_requests_leaves_others_of_its_worker_their_turn() {
    let world = World::new(&["--workers=1"]);
    let (mut greedy, mut modest) = (world.pair(), world.pair());
    let over = Arc::new(AtomicBool::new(false));
    let (_, frame) = greedy
        .client
        .frame_raw(broker::OPAQUE, 0, 1, &vec![7; 8 * MIB]);
    let mut stream = greedy.client.stream().try_clone().unwrap();
    let (ended, bytes) = (Arc::clone(&over), frame.clone());
    let writer = thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            stream.write_all(&bytes).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
    });
    // Answered, since a client may have only so many requests open.
    let mut broker = greedy.broker.stream.try_clone().unwrap();
    let length = frame.len();
    let answering = thread::spawn(move || {
        let mut frame = vec![0; length];
        while broker.read_exact(&mut frame).is_ok() {
            let answer = [&[0, 0, 0, 8], &frame[8..12], b"pong"].concat();
            broker.write_all(&answer).unwrap();
        }
    });
    let mut answers = greedy.client.stream().try_clone().unwrap();
    let reader = thread::spawn(move || io::copy(&mut answers, &mut io::sink()).unwrap());
    for _ in 0..200 {
        modest.barrier();
    }
    over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    answering.join().unwrap();
    // hapax hangs up once the last answer is there.
    drop(greedy.broker);
    reader.join().unwrap();
    assert!(spliced(&world, "client") > 0.0, "nothing was spliced");
}

/// More streams stand still at once than a worker has pipes; none is lost.
#[test]
fn pipes_are_bounded_and_given_back() {
    const CLIENTS: usize = 80;
    const LARGE: usize = 8 * MIB;
    let world = World::new(&["--workers=1"]);
    let mut pairs: Vec<Pair> = (0..CLIENTS).map(|_| world.pair()).collect();
    let idle = world.hapax.descriptors();
    let mut writers = Vec::new();
    let mut frames = Vec::new();
    for pair in &mut pairs {
        let (_, frame) = pair.client.frame_raw(broker::OPAQUE, 0, 1, &vec![7; LARGE]);
        let mut stream = pair.client.stream().try_clone().unwrap();
        let bytes = frame.clone();
        writers.push(thread::spawn(move || stream.write_all(&bytes).unwrap()));
        frames.push(frame);
    }
    await_standstill(&world, "hapax_sent_bytes_total", "upstream");
    let busy = world.hapax.descriptors();
    assert!(busy <= idle + 2 * 64 + KEPT_DESCRIPTORS, "{idle}, {busy}");
    for (pair, frame) in pairs.iter_mut().zip(&frames) {
        let asked = pair.broker.next();
        assert!(asked.frame == frame[4..], "other bytes arrived");
        pair.broker.answer_raw(&asked, b"pong");
        pair.client.receive_frame().unwrap();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(spliced(&world, "client") > 0.0, "nothing was spliced");
    // A metrics page may not have been closed yet.
    await_until("the pipes to be given back", SOON, || {
        world.hapax.descriptors() <= idle + KEPT_DESCRIPTORS
    });
    drop(pairs);
    await_until("all connections to be closed", SOON, || {
        world.hapax.descriptors() <= idle - 2 * CLIENTS + KEPT_DESCRIPTORS
    });
}
