//! Bytes that are no request: they cost their connection, and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use hapax::dev::RETENTION_BYTES;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{FetchRequest, JoinGroupRequest, MetadataRequest};

use crate::support::batch::Batch;
use crate::support::raw::{Client, PATIENCE, Produce, topic_name};
use crate::upstream::{start, text};

/// splitmix64: the same seed, the same bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        // The extremes, where counts and lengths go wrong, more often.
        match self.below(4) {
            0 => [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
            _ => self.next().to_be_bytes()[0],
        }
    }
}

/// Sends bytes, says that no more come, and waits until the other side is done.
fn throw(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A reset on the way is an answer, too.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut sink = Vec::new();
    if let Err(error) = stream.read_to_end(&mut sink) {
        let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!late, "still open after {bytes:02x?}");
    }
}

/// Sends bytes and is gone.
fn toss(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(bytes);
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_be_bytes()[..], body].concat()
}

#[track_caller]
fn assert_alive(address: &str) {
    let mut client = Client::connect(address).unwrap();
    let offered = client.api_versions(3).unwrap();
    assert!(offered.api_keys.len() > 10);
}

#[test]
fn counts_of_what_is_not_there_cost_their_connection() {
    let (address, _) = start(RETENTION_BYTES);
    let offered = Client::connect(&address).unwrap().api_versions(3).unwrap();
    for api in offered.api_keys {
        for version in api.min_version..=api.max_version {
            // After the header: 2^31-1, 2^24 and the like, wherever a count may be.
            for filler in [[0x7f, 0xff, 0xff, 0xff], [0, 0xff, 0xff, 0xff], [0xff; 4]] {
                for before in 0..12 {
                    let mut body = Vec::new();
                    body.extend(api.api_key.to_be_bytes());
                    body.extend(version.to_be_bytes());
                    body.extend([0, 0, 0, 1, 0xff, 0xff]);
                    body.extend(std::iter::repeat_n(0, before));
                    body.extend(filler.repeat(3));
                    throw(&address, &frame(&body));
                }
            }
        }
    }
    assert_alive(&address);
}

#[test]
fn requests_with_other_bytes_in_them_cost_their_connection() {
    let (address, _) = start(RETENTION_BYTES);
    let mut client = Client::connect(&address).unwrap();
    let topic = client.create_topic("orders", 2, &[]).unwrap();
    let mut requests = Vec::new();
    for version in [3, 9, 13] {
        let batch = Batch::of(7, 0, 0, ["a", "b", "c"]).bytes();
        let produce = Produce::to(&topic, 1, batch).version(version);
        requests.push(client.frame(version, &produce.request()).1);
    }
    let named = |name| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    let metadata =
        MetadataRequest::default().with_topics(Some(vec![named("orders"), named("new")]));
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata("topics".into());
    let join = JoinGroupRequest::default()
        .with_group_id(kafka_protocol::messages::GroupId(text("readers")))
        .with_session_timeout_ms(10)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default().with_partitions(vec![partition]);
    for version in [4, 11, 12, 18] {
        let wanted = match version {
            18 => wanted.clone(),
            _ => wanted.clone().with_topic(topic_name("orders")),
        };
        let fetch = FetchRequest::default().with_topics(vec![wanted]);
        requests.push(client.frame(version, &fetch).1);
    }
    for version in [4, 8, 12] {
        requests.push(client.frame(version, &metadata).1);
    }
    for version in [4, 9] {
        requests.push(client.frame(version, &join).1);
    }
    let mut random = Random(4);
    for _ in 0..3000 {
        let mut bytes = BytesMut::from(&requests[random.below(requests.len())][..]);
        for _ in 0..=random.below(3) {
            // The length stays true, and the api; the version may change.
            let at = 6 + random.below(bytes.len() - 6);
            bytes[at] = random.byte();
        }
        // Another byte may have made a long wait of a Fetch or JoinGroup.
        match bytes[5] {
            1 | 11 => toss(&address, &bytes),
            _ => throw(&address, &bytes),
        }
    }
    assert_alive(&address);
}

#[test]
fn noise_and_other_protocols_cost_their_connection() {
    let (address, _) = start(RETENTION_BYTES);
    let mut random = Random(40);
    for _ in 0..500 {
        let noise: Vec<u8> = (0..random.below(300)).map(|_| random.byte()).collect();
        throw(&address, &noise);
        throw(&address, &frame(&noise));
    }
    throw(&address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    throw(&address, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    assert_alive(&address);
}

#[test]
fn a_frame_that_is_announced_and_does_not_come_costs_nothing() {
    let (address, _) = start(RETENTION_BYTES);
    for length in [i32::MAX, 100 << 20, -1, i32::MIN, 0, 7] {
        let mut client = Client::connect(&address).unwrap();
        client.send_raw(&length.to_be_bytes()).unwrap();
        assert!(client.is_closed(Duration::from_secs(20)), "{length}");
    }
    // One that is allowed, many times: what is taken grows with what arrives.
    let before = address_space();
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| {
            let mut client = Client::connect(&address).unwrap();
            client.send_raw(&FRAME.to_be_bytes()).unwrap();
            client
        })
        .collect();
    assert_alive(&address);
    let grown = address_space().saturating_sub(before);
    let announced = waiting.len() * usize::try_from(FRAME).unwrap();
    assert!(grown < announced / 2, "{grown} of {announced} bytes");
}

/// The largest frame that the broker takes, and how many of them are announced:
/// so much that what other tests of this process take does not matter.
const FRAME: i32 = 16 << 20;
const WAITING: usize = 300;

/// What this process, the broker's too, has asked the system for. What is
/// reserved and never written to is not resident, but would show here.
fn address_space() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() * 1024
}
