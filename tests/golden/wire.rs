//! hapax reads and rewrites what Kafka's classes wrote.

use std::sync::Arc;

use bytes::Bytes;
use hapax::ids::{Epoch, NodeId, ProducerId};
use hapax::wire::addresses::{self, Directory};
use hapax::wire::batch::{Batch, Odd, batch};
use hapax::wire::produce::{self, Front, Sink, TopicRef, Walk};
use hapax::wire::{api, api_versions, transactions};
use serde_json::Value;

use super::{hex, vectors};

#[test]
fn batch_headers_are_read_as_kafka_wrote_them() {
    for vector in vectors("batches") {
        let bytes = hex(&vector);
        let fields = &vector["fields"];
        let name = vector["batch"].as_str().unwrap();
        let read = batch(bytes.len(), &bytes[..61]);
        match name {
            "no producer" => assert_eq!(read, Batch::Plain { records: 2 }),
            "emptied by compaction" => assert_eq!(read, Batch::Odd(Odd::CountMismatch)),
            _ if name.starts_with("control") => assert_eq!(read, Batch::Odd(Odd::Control)),
            _ => {
                let Batch::Tracked(read) = read else {
                    panic!("{name}: {read:?}");
                };
                let id = read.id;
                let found = [
                    id.producer.to_wire(),
                    i64::from(id.epoch.0),
                    i64::from(id.first.to_wire()),
                    i64::from(id.last().to_wire()),
                    i64::from(id.count),
                    i64::from(id.crc),
                    i64::from(id.len),
                    read.max_timestamp,
                ];
                let wanted = [
                    "producer",
                    "epoch",
                    "first",
                    "last",
                    "records",
                    "crc",
                    "size",
                    "max_timestamp",
                ]
                .map(|field| fields[field].as_i64().unwrap());
                assert_eq!(found, wanted, "{name}");
                assert_eq!(Value::from(read.transactional), fields["transactional"]);
                let mut bare = bytes.clone();
                bare[43..57].fill(0);
                let whole = crc32c::crc32c(&bare[21..]);
                assert_eq!(id.neutral_crc(), whole, "{name}");
            }
        }
    }
}

/// What a walk told, in its order.
#[derive(Default)]
struct Told(Vec<String>);

impl Sink for Told {
    fn front(&mut self, front: Front<'_>) {
        let id = front.transactional_id.map(String::from_utf8_lossy);
        let (acks, timeout) = (front.acks, front.timeout_ms);
        self.0
            .push(format!("{id:?} {acks} {timeout} {}", front.topics));
    }
    fn topic(&mut self, topic: TopicRef<'_>, partitions: usize) {
        self.0.push(format!("{} {partitions}", topic_text(topic)));
    }
    fn partition(&mut self, index: i32, batch: Batch) {
        let Batch::Tracked(tracked) = batch else {
            panic!("{batch:?}");
        };
        let id = tracked.id;
        self.0
            .push(format!("{index} {} {} {}", id.producer, id.epoch, id.count));
    }
}

#[test]
fn produce_requests_are_walked_whole_and_byte_by_byte() {
    let mut seen = 0;
    for vector in messages("ProduceRequest") {
        let version = version(&vector);
        let fields = &vector["fields"];
        let topics = fields["topicData"].as_array().unwrap();
        let id = fields["transactionalId"].as_str();
        let (acks, timeout) = (&fields["acks"], &fields["timeoutMs"]);
        let mut wanted = vec![format!("{id:?} {acks} {timeout} {}", topics.len())];
        for topic in topics {
            let partitions = topic["partitionData"].as_array().unwrap();
            wanted.push(format!("{} {}", topic_json(topic), partitions.len()));
            for partition in partitions {
                wanted.push(format!("{} 7 1 2", partition["index"]));
            }
        }
        let bytes = hex(&vector);
        for piece in [bytes.len(), 1, 7, 64] {
            let mut walk = Walk::new(version);
            let mut told = Told::default();
            let mut at = 0;
            let mut end = 0;
            while end < bytes.len() {
                end = bytes.len().min(end + piece);
                at += walk.advance(&bytes[at..end], &mut told).unwrap();
            }
            assert!(walk.done() && at == bytes.len(), "v{version} by {piece}");
            assert_eq!(told.0, wanted, "v{version} by {piece}");
        }
        seen += 1;
    }
    assert_eq!(seen, 22, "two shapes of versions 3 to 13");
}

#[test]
fn produce_responses_are_read_as_kafka_wrote_them() {
    for vector in messages("ProduceResponse") {
        let version = version(&vector);
        let fields = &vector["fields"];
        let mut wanted = Vec::new();
        for topic in fields["responses"].as_array().unwrap() {
            for partition in topic["partitionResponses"].as_array().unwrap() {
                let number = |field: &str| partition[field].as_i64();
                wanted.push((
                    topic_json(topic),
                    number("index").unwrap(),
                    number("errorCode").unwrap(),
                    number("baseOffset"),
                    number("logAppendTimeMs").unwrap(),
                    number("logStartOffset"),
                ));
            }
        }
        let frame = frame(&vector);
        let mut found = Vec::new();
        let endpoints = produce::replies(version, &frame, |reply| {
            found.push((
                topic_text(reply.topic),
                i64::from(reply.partition),
                i64::from(reply.error),
                reply.base_offset,
                reply.log_append_time,
                reply.log_start_offset,
            ));
        });
        assert_eq!(found, wanted, "v{version}");
        let wanted = fields["nodeEndpoints"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        assert_eq!(endpoints, Ok(wanted), "v{version}");
    }
}

/// Gives each broker another address, and notes what it was asked.
struct Moved {
    seen: Vec<(i64, String, u16)>,
    to: fn(&str, u16) -> (String, u16),
}

impl Directory for Moved {
    fn broker(&mut self, node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16) {
        let node = node.map_or(-1, |node| i64::from(node.to_wire()));
        self.seen.push((node, host.to_owned(), port));
        let (host, port) = (self.to)(host, port);
        (host.into(), port)
    }
}

#[test]
fn addresses_are_rewritten_and_nothing_else() {
    let mut rewritten = 0;
    let all = vectors("messages").into_iter();
    for vector in all.filter(|vector| vector["message"].as_str().unwrap().ends_with("Response")) {
        let (key, version) = (key(&vector), version(&vector));
        let what = format!("{} v{version} {}", vector["message"], vector["shape"]);
        let frame = frame(&vector);
        let mut wanted = Vec::new();
        endpoints(&vector["fields"], &mut wanted);
        if !addresses::rewrites(key, version) {
            assert_eq!(wanted, [], "{what} has addresses");
            continue;
        }
        let run = |frame: &[u8], to: fn(&str, u16) -> (String, u16)| {
            let mut moved = Moved {
                seen: Vec::new(),
                to,
            };
            let result = addresses::rewrite(key, version, frame, &mut moved).unwrap();
            (result, moved.seen)
        };
        // The same length: the bytes can be compared with a plain replacement.
        let (result, mut seen) = run(&frame, |host, port| (host.to_uppercase(), port + 5000));
        if vector["shape"] == "least" {
            assert_eq!(result, None, "{what}");
            continue;
        }
        let result = result.unwrap_or_else(|| panic!("{what}: nothing was rewritten"));
        let mut replaced = frame.clone();
        for (_, host, port) in &wanted {
            let at = find(&replaced, host.as_bytes());
            replaced[at..at + host.len()].make_ascii_uppercase();
            let at = at + host.len();
            assert_eq!(
                replaced[at..at + 4],
                u32::from(*port).to_be_bytes(),
                "{what}"
            );
            replaced[at..at + 4].copy_from_slice(&u32::from(port + 5000).to_be_bytes());
        }
        assert_eq!(result[4..], replaced, "{what}");
        seen.sort();
        wanted.sort();
        assert_eq!(seen, wanted, "{what}");
        // Another length: there and back again, past one-byte lengths of the flexible versions.
        let (longer, _) = run(&frame, |host, port| {
            (format!("{host}{:->200}", ""), port + 1)
        });
        let longer = longer.unwrap();
        assert_eq!(longer.len(), length(&longer) + 4, "{what}");
        let (back, _) = run(&longer[4..], |host, port| {
            (host.trim_end_matches('-').to_owned(), port - 1)
        });
        assert_eq!(back.unwrap()[4..], frame, "{what}");
        rewritten += 1;
    }
    // Produce 10-13, Metadata 0-13, FindCoordinator 0-6, DescribeCluster 0-2, Fetch 16-18, ShareFetch 1-2, ShareAcknowledge 1-2.
    assert_eq!(rewritten, 4 + 14 + 7 + 3 + 3 + 2 + 2);
}

#[test]
fn api_versions_are_lowered_in_place() {
    let mut seen = 0;
    for vector in messages("ApiVersionsResponse") {
        let version = version(&vector);
        let mut frame = frame(&vector);
        let before = frame.clone();
        let mut wanted = Vec::new();
        for api in vector["fields"]["apiKeys"].as_array().unwrap() {
            let key = i16::try_from(api["apiKey"].as_i64().unwrap()).unwrap();
            let from = api["maxVersion"].as_i64().unwrap();
            let to = match key {
                api::PRODUCE | api::METADATA => 13,
                api::INIT_PRODUCER_ID => 5,
                other => {
                    assert_eq!(other, 12, "Heartbeat");
                    continue;
                }
            };
            wanted.push((key, from, to));
        }
        let clamped = api_versions::clamp(version, &mut frame).unwrap();
        let found: Vec<_> = clamped
            .iter()
            .map(|c| (c.api_key, i64::from(c.from), c.to))
            .collect();
        assert_eq!(found, wanted, "v{version}");
        let changed = before.iter().zip(&frame).filter(|(a, b)| a != b).count();
        assert_eq!(changed, wanted.len(), "v{version}: one byte each");
        assert_eq!(before.len(), frame.len());
        assert_eq!(api_versions::clamp(version, &mut frame), Ok(Vec::new()));
        seen += wanted.len();
    }
    assert_eq!(seen, 6 * 3);
}

#[test]
fn coordinators_are_understood() {
    let mut announced = 0;
    for vector in vectors("messages") {
        let (key, version) = (key(&vector), version(&vector));
        let message = vector["message"].as_str().unwrap();
        let what = format!("{message} v{version} {}", vector["shape"]);
        let fields = &vector["fields"];
        let producer = |fields: &Value| {
            let id = fields["producerId"]
                .as_i64()
                .and_then(ProducerId::from_wire);
            let epoch = fields["producerEpoch"].as_i64();
            let epoch = epoch.map(|epoch| Epoch(epoch.try_into().unwrap()));
            id.zip(epoch)
        };
        let read = match key {
            api::INIT_PRODUCER_ID => version <= 5,
            api::ADD_PARTITIONS_TO_TXN => version <= 3,
            api::ADD_OFFSETS_TO_TXN | api::END_TXN | api::TXN_OFFSET_COMMIT => true,
            _ => false,
        };
        if message.ends_with("Request") && read {
            let mut frame = vec![0; 8];
            frame[..2].copy_from_slice(&key.to_be_bytes());
            frame[2..4].copy_from_slice(&version.to_be_bytes());
            frame.extend([0, 3]);
            frame.extend(b"raw");
            if vector["header"] == 2 {
                frame.push(0);
            }
            frame.extend(hex(&vector));
            let claim = transactions::claim(key, version, &frame).unwrap();
            let claim = claim.unwrap_or_else(|| panic!("{what} is not read"));
            let fields = flat(fields);
            let id = fields["transactionalId"].as_str();
            assert_eq!(claim.transactional_id.as_deref(), id, "{what}");
            assert_eq!(claim.producer, producer(&fields), "{what}");
        } else if message.ends_with("Response") && read {
            let outcome = transactions::outcome(key, version, &frame(&vector)).unwrap();
            let outcome = outcome.unwrap_or_else(|| panic!("{what} is not read"));
            let mut errors = Vec::new();
            error_codes(fields, &mut errors);
            errors.sort_unstable();
            errors.dedup();
            let mut found = outcome.errors;
            found.sort_unstable();
            assert_eq!(found, errors, "{what}");
            assert_eq!(outcome.announced, producer(fields), "{what}");
            announced += usize::from(outcome.announced.is_some());
        }
    }
    assert_eq!(announced, 7, "InitProducerId 0 to 5, EndTxn 5");
}

fn messages(name: &str) -> impl Iterator<Item = Value> {
    let all = vectors("messages").into_iter();
    all.filter(move |vector| vector["message"] == name)
}

fn key(vector: &Value) -> i16 {
    vector["key"].as_i64().unwrap().try_into().unwrap()
}

fn version(vector: &Value) -> i16 {
    vector["version"].as_i64().unwrap().try_into().unwrap()
}

/// A response frame without its length: correlation id, tags if any, body.
fn frame(vector: &Value) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 9];
    if vector["header"] == 1 {
        frame.push(0);
    }
    frame.extend(hex(vector));
    frame
}

fn length(frame: &Bytes) -> usize {
    u32::from_be_bytes(frame[..4].try_into().unwrap())
        .try_into()
        .unwrap()
}

/// Every node, host and port of a message.
fn endpoints(fields: &Value, into: &mut Vec<(i64, String, u16)>) {
    match fields {
        Value::Object(object) => {
            if let Some(host) = object.get("host") {
                let node = object.get("nodeId").or_else(|| object.get("brokerId"));
                let port = object["port"].as_i64().unwrap();
                let host = host.as_str().unwrap();
                if !host.is_empty() {
                    into.push((
                        node.unwrap().as_i64().unwrap(),
                        host.to_owned(),
                        port.try_into().unwrap(),
                    ));
                }
            }
            object.values().for_each(|value| endpoints(value, into));
        }
        Value::Array(array) => array.iter().for_each(|value| endpoints(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Every error code of a message that is not 0.
fn error_codes(fields: &Value, into: &mut Vec<i16>) {
    match fields {
        Value::Object(object) => {
            for (name, value) in object {
                if name == "errorCode" || name == "partitionErrorCode" {
                    let code = i16::try_from(value.as_i64().unwrap()).unwrap();
                    into.extend((code != 0).then_some(code));
                }
                error_codes(value, into);
            }
        }
        Value::Array(array) => array.iter().for_each(|value| error_codes(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fields by the names that newer versions give them.
fn flat(fields: &Value) -> Value {
    let object = fields.as_object().unwrap().iter();
    let renamed = object.map(|(name, value)| {
        let name = name.strip_prefix("v3AndBelow").unwrap_or(name);
        let (first, rest) = name.split_at(1);
        (first.to_lowercase() + rest, value.clone())
    });
    Value::Object(renamed.collect())
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    let mut found = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(part));
    let at = found.next().unwrap();
    assert_eq!(found.next(), None, "twice");
    at
}

fn topic_text(topic: TopicRef<'_>) -> String {
    match topic {
        TopicRef::Name(name) => String::from_utf8_lossy(name).into_owned(),
        TopicRef::Id(id) => base64(&id),
    }
}

fn topic_json(topic: &Value) -> String {
    let name = topic.get("name").or_else(|| topic.get("topicId")).unwrap();
    name.as_str().unwrap().to_owned()
}

/// An id as Kafka prints it.
fn base64(id: &[u8; 16]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from_be_bytes(*id);
    (0..22_u32)
        .map(|at| {
            let shift = 122_i64 - 6 * i64::from(at);
            let six = if shift >= 0 {
                bits >> shift
            } else {
                bits << -shift
            };
            char::from(LETTERS[usize::try_from(six & 63).unwrap()])
        })
        .collect()
}
