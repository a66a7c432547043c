//! The cases that need more than a list of batches.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, ProduceRequest};

use crate::harness::{Case, World, free};
use crate::support::batch::{self, Batch, TIMESTAMP};
use crate::support::raw::{Answer, Client, Produce, Topic, topic_name};

const REPLAYED: &str = "7.3 row 2: the answer is the first one, append time included";

pub fn all() -> Vec<Case> {
    vec![
        free(
            "P22 acks=0, acks=0, Metadata, acks=all in one write, each version",
            p22,
        ),
        free(
            "P22 an error under acks=0 closes the connection",
            acks_0_error,
        ),
        free("P22 100,000 requests with acks=0, then one Metadata", flood),
        free(
            "one request with 10,000 partitions, and its retry",
            ten_thousand,
        )
        .partitions(100)
        .exception(REPLAYED),
        free(
            "a request with a retry, a gap and a new batch, each version",
            mixed,
        )
        .partitions(3)
        .exception(REPLAYED),
        free("compressed batches are opaque", compressed).exception(REPLAYED),
        free(
            "a payload that is not what its compression says",
            miscompressed,
        ),
        free(
            "P25 v12: a topic created again keeps nothing of the old one",
            recreated_by_name,
        ),
        free(
            "P25 v13: a topic created again keeps nothing of the old one",
            recreated_by_id,
        ),
        free(
            "1.6 null records are never answered, and only their connection is stuck",
            null_records,
        ),
        free(
            "five batches in one write on a fresh partition, answered in order",
            pipelined,
        ),
        free("the same partition twice in a request", partition_twice),
        free(
            "topics that are unknown, empty or of 249 letters",
            topic_names,
        ),
        free(
            "append time of the log: the retry's answer is the first one",
            append_time,
        )
        .configs(&[("message.timestamp.type", "LogAppendTime")]),
        free("a request in pieces of any size, each layout", dribble)
            .partitions(3)
            .exception(REPLAYED),
        free(
            "batches larger than any buffer, alone and in company",
            large,
        )
        .partitions(3)
        .exception(REPLAYED),
        free(
            "apis and versions that the broker does not know",
            unknown_versions,
        ),
        free(
            "acks=1 through the bootstrap listener is the broker's to recognise",
            bootstrap_acks_1,
        ),
        free(
            "a producer id asked for on the way, each version",
            producer_ids,
        ),
        free("ApiVersions, known and from the future", api_versions),
    ]
}

/// The answer of a single-partition request as a line.
fn line(answer: &Answer) -> String {
    let Answer {
        partition,
        code,
        offset,
        append_time,
        log_start,
    } = answer;
    format!("{partition}: {code} at {offset}, time {append_time}, start {log_start}")
}

/// What the log of a partition holds, by what tells its batches apart.
fn log(world: &mut World<'_>, partition: i32) -> Vec<(i64, i16, i32, i32)> {
    let stored = world.log(partition);
    let shapes = stored
        .iter()
        .map(|b| (b.offset, b.epoch, b.sequence, b.count));
    shapes.collect()
}

fn p22(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut offset = 0;
    let mut number = 0;
    for version in [3, 8, 9, 11, 13] {
        for (client_id, tag) in [
            (Some("x".repeat(20_000)), false),
            (Some(String::new()), true),
            (None, false),
            (Some("raw".to_owned()), true),
        ] {
            number += 1;
            let producer = world.producer(usize::from(number));
            let topic = world.topic.clone();
            let name = topic.name.clone();
            let client = world.client(number);
            client.client_id = client_id;
            client.unknown_tag = tag.then(|| (99, Bytes::from_static(b"tag")));
            let put = |sequence, acks| {
                let batch = Batch::of(producer, 0, sequence, [format!("v{sequence}")]);
                let produce = Produce::to(&topic, 0, batch.bytes());
                produce.version(version).acks(acks).request()
            };
            let metadata = MetadataRequest::default()
                .with_topics(Some(vec![
                    MetadataRequestTopic::default().with_name(Some(topic_name(&name))),
                ]))
                .with_allow_auto_topic_creation(false);
            let mut bytes = BytesMut::new();
            for (sequence, acks) in [(0, 0), (1, 0)] {
                bytes.extend(client.frame(version, &put(sequence, acks)).1);
            }
            let (asked, frame) = client.frame(12, &metadata);
            bytes.extend(frame);
            let (put, frame) = client.frame(version, &put(2, -1));
            bytes.extend(frame);
            client.send_raw(&bytes)?;
            let metadata = client.receive::<MetadataRequest>(12, asked)?;
            assert_eq!(metadata.topics[0].error_code, 0);
            let answer = client.receive::<ProduceRequest>(version, put)?;
            let answer = Answer::all(&answer)[0];
            assert_eq!((answer.code, answer.offset), (0, offset + 2), "v{version}");
            offset += 3;
            lines.push(line(&answer));
        }
    }
    let log = log(world, 0);
    let sequences: Vec<i32> = log.iter().map(|(_, _, sequence, _)| *sequence).collect();
    assert_eq!(sequences, [0, 1, 2].repeat(20));
    Ok(lines)
}

fn acks_0_error(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let producer = world.producer(0);
    let put = |topic: &Topic, sequence, acks| {
        let batch = Batch::of(producer, 0, sequence, ["v"]);
        Produce::to(topic, 0, batch.bytes()).acks(acks)
    };
    let topic = world.topic.clone();
    let answer = world.client(0).produce(&put(&topic, 0, -1))?;
    assert_eq!((answer.code, answer.offset), (0, 0));
    let client = world.client(0);
    client.send(12, &put(&topic, 5, 0).request())?;
    assert!(
        client.is_closed(Duration::from_secs(10)),
        "closed by error 45"
    );
    assert_eq!(log(world, 0), [(0, 0, 0, 1)]);
    Ok(Vec::new())
}

fn flood(world: &mut World<'_>) -> io::Result<Vec<String>> {
    const REQUESTS: i32 = 100_000;
    let producer = world.producer(0);
    let topic = world.topic.clone();
    let before = world.hapax.map_or(0, |hapax| hapax.memory());
    let hapax = world.hapax;
    let client = world.client(0);
    client.set_patience(Duration::from_secs(180));
    client
        .stream()
        .set_write_timeout(Some(Duration::from_secs(180)))?;
    let mut most = before;
    for first in (0..REQUESTS).step_by(1000) {
        let mut bytes = BytesMut::new();
        for sequence in first..first + 1000 {
            let batch = Batch::of(producer, 0, sequence, ["v"]);
            let produce = Produce::to(&topic, 0, batch.bytes()).acks(0);
            bytes.extend(client.frame(12, &produce.request()).1);
        }
        client.send_raw(&bytes)?;
        most = most.max(hapax.map_or(0, |hapax| hapax.memory()));
    }
    let metadata = client.metadata(12, &[&topic.name])?;
    assert_eq!(metadata.topics[0].error_code, 0);
    let grown = most.saturating_sub(before);
    assert!(grown < 32 << 20, "hapax grew by {grown} bytes");
    let end = world.admin.end_offset(&topic.name, 0)?;
    assert_eq!(end, i64::from(REQUESTS), "every one is in the log");
    Ok(Vec::new())
}

fn ten_thousand(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let producer = world.producer(0);
    let records = Some(Batch::of(producer, 0, 0, ["a", "b"]).bytes());
    let all = || (0..100).map(|at| (at, records.clone())).collect();
    let mut topics = vec![(world.topic.clone(), all())];
    for number in 0..99 {
        topics.push((Topic::unknown(&format!("unknown-{number}")), all()));
    }
    let produce = Produce::of(topics).version(12);
    let route = world.route;
    let known = topic_name(&world.topic.name);
    let mut lines = Vec::new();
    for append_time in [-1, if route.acts() { -1 } else { TIMESTAMP }] {
        let response = world.client(0).call(12, &produce.request())?;
        assert_eq!(response.responses.len(), 100);
        for topic in &response.responses {
            let mut partitions: Vec<_> = topic
                .partition_responses
                .iter()
                .map(|p| (p.index, p.error_code, p.base_offset, p.log_append_time_ms))
                .collect();
            partitions.sort_unstable();
            let wanted = if topic.name == known {
                (0, 0, append_time)
            } else {
                (3, -1, -1)
            };
            let wanted: Vec<_> = (0..100)
                .map(|at| (at, wanted.0, wanted.1, wanted.2))
                .collect();
            assert_eq!(partitions, wanted, "{:?}", topic.name);
        }
        lines.push(format!("{} topics", response.responses.len()));
    }
    for partition in [0, 50, 99] {
        assert_eq!(log(world, partition), [(0, 0, 0, 2)]);
    }
    Ok(lines)
}

fn mixed(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let topic = world.topic.clone();
    let absorb = world.route.acts();
    let mut lines = Vec::new();
    for version in 3..=13_i16 {
        let number = usize::try_from(version).unwrap();
        let producer = world.producer(number);
        let put = |sequence| Some(Batch::of(producer, 0, sequence, ["v"]).bytes());
        let turn = i64::from(version - 3);
        let client = world.client(0);
        let mut send = |partitions: Vec<(i32, Option<Bytes>)>| -> io::Result<Vec<Answer>> {
            let produce = Produce::of(vec![(topic.clone(), partitions)]).version(version);
            let response = client.call(version, &produce.request())?;
            let mut answers = Answer::all(&response);
            answers.sort_unstable_by_key(|answer| answer.partition);
            Ok(answers)
        };
        let first = send(vec![(0, put(0)), (1, put(0))])?;
        let second = send(vec![(0, put(0)), (1, put(4)), (2, put(0))])?;
        let short = |answers: &[Answer]| -> Vec<(i16, i64, i64)> {
            let short = answers.iter().map(|a| (a.code, a.offset, a.append_time));
            short.collect()
        };
        assert_eq!(short(&first), [(0, turn, -1), (0, turn, -1)], "v{version}");
        let again = if absorb { -1 } else { TIMESTAMP };
        let wanted = [(0, turn, again), (45, -1, -1), (0, turn, -1)];
        assert_eq!(short(&second), wanted, "v{version}");
        let third = send(vec![(0, put(0)), (1, put(0)), (2, put(0))])?;
        let wanted = [(0, turn, again); 3];
        assert_eq!(short(&third), wanted, "v{version}, each of them a retry");
        lines.extend(first.iter().map(line));
    }
    for partition in 0..3 {
        assert_eq!(log(world, partition).len(), 11);
    }
    Ok(lines)
}

fn compressed(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/batches.jsonl");
    let text = std::fs::read_to_string(path)?;
    let mut lines = Vec::new();
    for (number, name) in ["gzip", "snappy", "lz4", "zstd"].into_iter().enumerate() {
        let wanted = format!("\"idempotent {name}\"");
        let vector = text.lines().find(|line| line.contains(&wanted)).unwrap();
        let vector: serde_json::Value = serde_json::from_str(vector)?;
        let hex = vector["hex"].as_str().unwrap().as_bytes().chunks(2);
        let mut bytes: Vec<u8> = hex
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        bytes[43..51].copy_from_slice(&world.producer(number).to_be_bytes());
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let produce = Produce::to(&world.topic, 0, bytes.clone().into());
        let offset = i64::try_from(number).unwrap() * 20;
        let first = world.client(0).produce(&produce)?;
        assert_eq!((first.code, first.offset), (0, offset), "{name}");
        let again = world.client(0).produce(&produce)?;
        assert_eq!((again.code, again.offset), (0, offset), "{name} again");
        let mut sent = batch::stored(&bytes);
        sent[0].offset = offset;
        assert_eq!(world.log(0).last(), sent.last(), "{name} in the log");
        lines.push(line(&first));
    }
    assert_eq!(world.log(0).len(), 4);
    Ok(lines)
}

fn miscompressed(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for attributes in 1..=5 {
        let batch = Batch {
            attributes,
            count: Some(1),
            last_offset_delta: Some(0),
            payload: Some(b"neither gzip nor anything else".to_vec()),
            ..Batch::of(world.producer(0), 0, 0, ["v"])
        };
        let produce = Produce::to(&world.topic, 0, batch.bytes());
        let answer = world.client(0).produce(&produce)?;
        assert_ne!(answer.code, 0);
        lines.push(format!("{attributes}: {}", line(&answer)));
    }
    assert_eq!(log(world, 0), []);
    Ok(lines)
}

/// The client learns of the new topic by Metadata, then sends its last batch
/// again, whose acknowledgement it never saw.
fn recreated_by_name(world: &mut World<'_>) -> io::Result<Vec<String>> {
    recreated(world, 12, 3)
}

fn recreated_by_id(world: &mut World<'_>) -> io::Result<Vec<String>> {
    recreated(world, 13, 100)
}

fn recreated(world: &mut World<'_>, version: i16, gone: i16) -> io::Result<Vec<String>> {
    let producer = world.producer(0);
    let put = |topic: &Topic, sequence: i32| {
        let batch = Batch::of(producer, 0, sequence, [format!("v{sequence}")]);
        Produce::to(topic, 0, batch.bytes()).version(version)
    };
    let old = world.topic.clone();
    let name = old.name.clone();
    world.client(0).metadata(12, &[&name])?;
    for sequence in 0..3 {
        let answer = world.client(0).produce(&put(&old, sequence))?;
        assert_eq!((answer.code, answer.offset), (0, i64::from(sequence)));
    }
    world.admin.delete_topic(&name)?;
    let answer = world.client(0).produce(&put(&old, 3))?;
    assert_eq!(answer.code, gone, "while the topic is gone");
    world.topic = world.admin.create_topic(&name, 1, &[])?;
    world.client(0).metadata(12, &[&name])?;
    let new = world.topic.clone();
    let mut lines = vec![line(&answer)];
    for (sequence, code, offset) in [(2, 0, 0), (3, 0, 1), (1, 45, -1), (0, 45, -1)] {
        let answer = world.client(0).produce(&put(&new, sequence))?;
        let wanted = (code, offset, -1);
        let found = (answer.code, answer.offset, answer.append_time);
        assert_eq!(found, wanted, "sequence {sequence} on the new topic");
        lines.push(line(&answer));
    }
    assert_eq!(log(world, 0), [(0, 0, 2, 1), (1, 0, 3, 1)]);
    Ok(lines)
}

fn null_records(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut produce = Produce::of(vec![(world.topic.clone(), vec![(0, None)])]);
    for (number, version) in [(0, 8), (1, 12), (2, 13)] {
        produce = produce.version(version);
        let client = world.client(number);
        client.set_patience(Duration::from_millis(800));
        client.send(version, &produce.request())?;
        client.send(12, &MetadataRequest::default())?;
        let error = client.receive_frame().expect_err("no answer");
        let waited = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(waited, "still open, not {error}");
        world.client(9).metadata(12, &[])?;
    }
    assert_eq!(log(world, 0), []);
    Ok(Vec::new())
}

fn pipelined(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let producer = world.producer(0);
    let topic = world.topic.clone();
    let client = world.client(0);
    let mut bytes = BytesMut::new();
    let mut owed = Vec::new();
    for sequence in 0..5 {
        let batch = Batch::of(producer, 0, sequence, [format!("v{sequence}")]);
        let produce = Produce::to(&topic, 0, batch.bytes());
        let (correlation, frame) = client.frame(12, &produce.request());
        bytes.extend(frame);
        owed.push(correlation);
    }
    client.send_raw(&bytes)?;
    let mut lines = Vec::new();
    for (offset, correlation) in (0..).zip(owed) {
        let response = client.receive::<ProduceRequest>(12, correlation)?;
        let answer = Answer::all(&response)[0];
        assert_eq!((answer.code, answer.offset), (0, offset));
        lines.push(line(&answer));
    }
    let offsets: Vec<_> = (0..5).map(|at| (i64::from(at), 0, at, 1)).collect();
    assert_eq!(log(world, 0), offsets);
    Ok(lines)
}

fn partition_twice(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for (number, version) in [(0, 8), (1, 12), (2, 13)] {
        let producer = world.producer(number);
        let put = |sequence: i32| Some(Batch::of(producer, 0, sequence, ["v"]).bytes());
        let partitions = vec![(0, put(0)), (0, put(1))];
        let produce = Produce::of(vec![(world.topic.clone(), partitions)]).version(version);
        let response = world.client(0).call(version, &produce.request())?;
        lines.extend(Answer::all(&response).iter().map(line));
    }
    lines.push(format!("{:?}", log(world, 0)));
    Ok(lines)
}

fn topic_names(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let producer = world.producer(0);
    let records = Batch::of(producer, 0, 0, ["v"]).bytes();
    let mut lines = Vec::new();
    let long = format!("{:-<249}", world.topic.name);
    let known = world.admin.create_topic(&long, 1, &[])?;
    for version in [3, 9, 12] {
        for name in ["never-made", "", "not/valid"] {
            let produce = Produce::to(&Topic::unknown(name), 0, records.clone());
            let answer = world.client(0).produce(&produce.version(version))?;
            lines.push(format!("{name:?} {}", line(&answer)));
            assert_eq!(answer.code, 3, "{name:?} on v{version}");
        }
    }
    let produce = Produce::to(&Topic::unknown(""), 0, records.clone()).version(13);
    let answer = world.client(0).produce(&produce)?;
    assert_eq!(answer.code, 100);
    lines.push(line(&answer));
    let answer = world
        .client(0)
        .produce(&Produce::to(&known, 0, records.clone()))?;
    assert_eq!((answer.code, answer.offset), (0, 0), "249 letters");
    let answer = world.client(0).produce(&Produce::to(&known, 7, records))?;
    assert_eq!(answer.code, 3, "a partition that is not there");
    lines.push(line(&answer));
    Ok(lines)
}

fn append_time(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let producer = world.producer(0);
    let produce = Produce::to(&world.topic, 0, Batch::of(producer, 0, 0, ["v"]).bytes());
    let first = world.client(0).produce(&produce)?;
    assert!(first.append_time > TIMESTAMP, "the broker's time");
    let again = world.client(0).produce(&produce)?;
    assert_eq!(first, again);
    assert_eq!(log(world, 0), [(0, 0, 0, 1)]);
    Ok(Vec::new())
}

/// One byte a segment, then pieces that cut batches anywhere.
fn dribble(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let topic = world.topic.clone();
    let mut lines = Vec::new();
    for (turn, (version, piece)) in [(3, 1), (8, 7), (9, 1), (12, 61), (13, 100)]
        .into_iter()
        .enumerate()
    {
        let producer = world.producer(turn);
        let again = if world.route.acts() { -1 } else { TIMESTAMP };
        let put = |partition, sequence| {
            let batch = Batch::of(producer, 0, sequence, [vec![7; 100], vec![8; 100]]);
            (partition, Some(batch.bytes()))
        };
        let offset = i64::try_from(turn).unwrap();
        for (partitions, wanted) in [
            (
                vec![put(0, 0), put(1, 0)],
                vec![(0, offset * 2, -1), (0, offset * 4, -1)],
            ),
            (
                vec![put(0, 0), put(1, 2), put(2, 0)],
                vec![
                    (0, offset * 2, again),
                    (0, offset * 4 + 2, -1),
                    (0, offset * 2, -1),
                ],
            ),
        ] {
            let produce = Produce::of(vec![(topic.clone(), partitions)]).version(version);
            let client = world.client(0);
            let (correlation, frame) = client.frame(version, &produce.request());
            for piece in frame.chunks(piece) {
                client.send_raw(piece)?;
            }
            let response = client.receive::<ProduceRequest>(version, correlation)?;
            let mut answers = Answer::all(&response);
            answers.sort_unstable_by_key(|answer| answer.partition);
            let found: Vec<_> = answers
                .iter()
                .map(|a| (a.code, a.offset, a.append_time))
                .collect();
            assert_eq!(found, wanted, "v{version}");
            lines.push(format!("{version}: {}", found.len()));
        }
    }
    for (partition, batches) in [(0, 5), (1, 10), (2, 5)] {
        assert_eq!(log(world, partition).len(), batches);
    }
    Ok(lines)
}

/// Larger than any buffer on the way, and cut by a small batch before and after.
fn large(world: &mut World<'_>) -> io::Result<Vec<String>> {
    const SIZE: usize = 900_000;
    let producer = world.producer(0);
    let topic = world.topic.clone();
    let value = |seed: u8| {
        (0..SIZE)
            .map(|at| u8::try_from(at % 251).unwrap() ^ seed)
            .collect::<Vec<u8>>()
    };
    let put = |partition, sequence, value| {
        let batch = Batch::of(producer, 0, sequence, [value]);
        (partition, Some(batch.bytes()))
    };
    let again = if world.route.acts() { -1 } else { TIMESTAMP };
    let mut lines = Vec::new();
    let single = vec![put(0, 0, value(1))];
    let many = vec![put(0, 1, value(2)), put(1, 0, vec![9]), put(2, 0, value(3))];
    for (partitions, offsets) in [(single, vec![0]), (many, vec![1, 0, 0])] {
        let produce = Produce::of(vec![(topic.clone(), partitions)]);
        for append_time in [-1, again] {
            let response = world.client(0).call(12, &produce.request())?;
            let mut answers = Answer::all(&response);
            answers.sort_unstable_by_key(|answer| answer.partition);
            let found: Vec<_> = answers
                .iter()
                .map(|a| (a.code, a.offset, a.append_time))
                .collect();
            let wanted: Vec<_> = offsets.iter().map(|at| (0, *at, append_time)).collect();
            assert_eq!(found, wanted);
            lines.push(format!("{} answers", found.len()));
        }
    }
    let log = world.log(0);
    assert_eq!(log.len(), 2);
    assert!(log[0].values() == [value(1)] && log[1].values() == [value(2)]);
    assert!(world.log(2)[0].values() == [value(3)]);
    Ok(lines)
}

/// A broker closes the connection: it cannot know how to answer.
fn unknown_versions(world: &mut World<'_>) -> io::Result<Vec<String>> {
    for (key, version, header) in [(0, 14, 2), (0, 2, 1), (0, -1, 1), (3, 99, 2), (999, 0, 1)] {
        let mut client = Client::connect(&world.address)?;
        let (_, frame) = client.frame_raw(key, version, header, &[0; 8]);
        client.send_raw(&frame)?;
        let closed = client.is_closed(Duration::from_secs(10));
        assert!(closed, "api {key} v{version}");
    }
    Ok(Vec::new())
}

/// Which node answers there is not known, so neither is whether it still leads.
fn bootstrap_acks_1(world: &mut World<'_>) -> io::Result<Vec<String>> {
    if let Some(hapax) = world.hapax {
        world.address.clone_from(&hapax.bootstrap);
    }
    let producer = world.producer(0);
    let batch = Batch::of(producer, 0, 0, ["v"]);
    let produce = Produce::to(&world.topic, 0, batch.bytes()).acks(1);
    let mut lines = Vec::new();
    for append_time in [-1, TIMESTAMP] {
        let answer = world.client(0).produce(&produce)?;
        let found = (answer.code, answer.offset, answer.append_time);
        assert_eq!(found, (0, 0, append_time));
        lines.push(line(&answer));
    }
    assert_eq!(log(world, 0), [(0, 0, 0, 1)]);
    Ok(lines)
}

fn producer_ids(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let topic = world.topic.clone();
    for (offset, version) in (0..).zip(0..=5) {
        let (producer, epoch) = world.client(0).init_producer(version, None)?;
        assert_eq!(epoch, 0);
        let batch = Batch::of(producer, 0, 0, ["v"]);
        let answer = world
            .client(0)
            .produce(&Produce::to(&topic, 0, batch.bytes()))?;
        assert_eq!((answer.code, answer.offset), (0, offset));
    }
    assert_eq!(log(world, 0).len(), 6);
    Ok(Vec::new())
}

fn api_versions(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for version in 0..=7 {
        let mut client = Client::connect(&world.address)?;
        let answer = client.api_versions_raw(version)?;
        let code = i16::from_be_bytes(answer[..2].try_into().unwrap());
        assert_eq!(code, if version <= 5 { 0 } else { 35 }, "v{version}");
        let mut produce = BTreeMap::new();
        if code == 0 && version <= 4 {
            for api in client.api_versions(version)?.api_keys {
                produce.insert(api.api_key, (api.min_version, api.max_version));
            }
            lines.push(format!("v{version}: Produce {:?}", produce[&0]));
            assert_eq!(produce[&0], (0, 13), "v{version}");
        }
    }
    Ok(lines)
}
