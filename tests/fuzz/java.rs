//! What hapax rewrites, read by Kafka's own classes: nothing is lost, and nothing is changed but what should be. The same
//! messages go through the protocol crate in the targets (`*_valid`).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use bytes::Bytes;
use hapax::wire::fetch;
use hapax::wire::produce::{self, Answer, NEWEST, OLDEST_FOLLOWED, TopicRef};
use hapax::wire::schema::{self, Message};
use hapax::wire::{addresses, api, api_versions, header, recode};
use serde_json::{Value, json};

use crate::hex;
use crate::mutate::Random;
use crate::targets::addresses::{Moved, unframed};
use crate::targets::{Choices, messages, produce as requests, versions};

/// Messages of each kind and version.
const EACH: usize = 24;

/// Frames for Kafka's classes, and what must be true of what they say.
#[derive(Default)]
struct Batch {
    lines: String,
    checks: Vec<Check>,
}

/// What Kafka's classes made of a message.
struct Read {
    json: Value,
    written: String,
}

/// What must be true of what Kafka's classes say.
type Look = dyn Fn(&[Value]);

/// Looks at those of its messages.
struct Check {
    what: String,
    /// The bodies of its frames.
    bodies: Vec<String>,
    of: Box<Look>,
}

impl Batch {
    /// Frames of one api and version, with where their bodies begin.
    fn add(
        &mut self,
        (direction, key, version): (&str, i16, i16),
        body: usize,
        frames: &[&[u8]],
        of: impl Fn(&[Value]) + 'static,
    ) {
        for frame in frames {
            self.lines += &format!("{direction} {key} {version} {}\n", hex(frame));
        }
        self.checks.push(Check {
            what: format!("{direction} of api {key} v{version}"),
            bodies: frames.iter().map(|frame| hex(&frame[body..])).collect(),
            of: Box::new(of),
        });
    }

    fn run(self) {
        let mut read = kafka_reads(self.lines).into_iter();
        for Check { what, bodies, of } in self.checks {
            let said: Vec<_> = read.by_ref().take(bodies.len()).collect();
            assert_eq!(said.len(), bodies.len(), "{what}");
            for (said, body) in said.iter().zip(&bodies) {
                assert_eq!(
                    &said.written, body,
                    "{what}: Kafka writes other bytes for {}",
                    said.json
                );
            }
            let json: Vec<_> = said.into_iter().map(|said| said.json).collect();
            of(&json);
        }
        assert_eq!(read.count(), 0);
    }
}

fn kafka_reads(lines: String) -> Vec<Read> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let jars = Command::new(tests.join("kafka/kafka"))
        .args(["jars", "4.4.0"])
        .output()
        .unwrap();
    assert!(jars.status.success(), "{jars:?}");
    let mut java = Command::new("java");
    java.args(["-Dlog4j2.level=error", "-XX:TieredStopAtLevel=1", "-cp"]);
    java.arg(format!(
        "{}/*",
        String::from_utf8(jars.stdout).unwrap().trim()
    ));
    java.arg(tests.join("fuzz/Parse.java"));
    java.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut java = java.spawn().unwrap();
    let mut stdin = java.stdin.take().unwrap();
    // It may end before it has read all, and then says why.
    let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = java.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    writer.join().unwrap().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let read = output.lines().map(|line| {
        let (json, written) = line.split_once('\t').unwrap();
        Read {
            json: serde_json::from_str(json).unwrap(),
            written: written.to_owned(),
        }
    });
    read.collect()
}

#[test]
fn kafka_reads_what_hapax_rewrites() {
    let _alone = crate::alone();
    let mut batch = Batch::default();
    let mut random = Random::of("java");
    for message in schema::ADDRESSED {
        for version in message.oldest.max(oldest(message.api_key))..=message.newest {
            for _ in 0..EACH {
                rewritten(&mut batch, message, version, &mut random);
            }
        }
    }
    for version in OLDEST_FOLLOWED..=NEWEST {
        for _ in 0..EACH {
            request(&mut batch, version, &mut random);
            response(&mut batch, version, &mut random);
        }
    }
    for version in 0..=api_versions::NEWEST {
        for _ in 0..EACH {
            clamped(&mut batch, version, &mut random);
        }
    }
    batch.run();
}

/// The oldest version that Kafka's client still has.
fn oldest(api_key: i16) -> i16 {
    match api_key {
        // Version 0 was an early access.
        api::SHARE_FETCH | api::SHARE_ACKNOWLEDGE => 1,
        _ => 0,
    }
}

/// What hapax asks by itself is what Kafka reads.
#[test]
fn kafka_reads_what_hapax_asks() {
    let _alone = crate::alone();
    let mut batch = Batch::default();
    let mut random = Random::of("questions");
    for _ in 0..EACH {
        questions(&mut batch, &mut random);
    }
    batch.run();
}

fn questions(batch: &mut Batch, random: &mut Random) {
    let bytes = random.bytes(60);
    let mut choices = Choices::new(&bytes);
    let (name, id) = (choices.text(), choices.array());
    let (partition, number) = (choices.number() as i32, choices.number());
    let (bytes_max, wait_ms) = (choices.number() as i32, choices.number() as i32);
    let wanted = fetch::Wanted {
        offset: number,
        bytes_max,
        wait_ms,
    };
    for topic in [TopicRef::Name(name.as_bytes()), TopicRef::Id(id)] {
        let version = fetch::version_for(topic);
        let asked = fetch::request(7, topic, partition, wanted).unwrap();
        let call = ("request", api::FETCH, version);
        let topic = match topic {
            TopicRef::Name(_) => ("topic", name.clone()),
            TopicRef::Id(id) => ("topicId", kafkas_id(id)),
        };
        question(batch, call, unframed(&asked), move |said| {
            assert_eq!(
                (&said["replicaId"], &said["maxWaitMs"]),
                (&json!(-1), &json!(wait_ms))
            );
            assert_eq!(said["isolationLevel"], 0);
            let topics = said["topics"].as_array().unwrap();
            assert_eq!((topics.len(), &topics[0][topic.0]), (1, &json!(topic.1)));
            let partitions = topics[0]["partitions"].as_array().unwrap();
            assert_eq!(partitions.len(), 1);
            assert_eq!(partitions[0]["partition"], partition);
            assert_eq!(partitions[0]["fetchOffset"], number);
            assert_eq!(partitions[0]["partitionMaxBytes"], bytes_max);
        });
    }
    let asked = fetch::list_request(7, name.as_bytes(), partition, number).unwrap();
    let call = ("request", api::LIST_OFFSETS, fetch::LIST_OFFSETS);
    question(batch, call, unframed(&asked), move |said| {
        let topics = said["topics"].as_array().unwrap();
        assert_eq!((topics.len(), &topics[0]["name"]), (1, &json!(name)));
        let partitions = topics[0]["partitions"].as_array().unwrap();
        assert_eq!(partitions.len(), 1);
        assert_eq!(partitions[0]["partitionIndex"], partition);
        assert_eq!(partitions[0]["timestamp"], number);
    });
}

fn question(
    batch: &mut Batch,
    call: (&str, i16, i16),
    frame: &[u8],
    of: impl Fn(&Value) + 'static,
) {
    let flexible = call.2 >= fetch::BY_ID;
    let body = header::body_at(frame, flexible).unwrap().unwrap();
    batch.add(call, body, &[frame], move |said| of(&said[0]));
}

/// What hapax only reads of coordinators is what Kafka reads.
#[test]
fn kafka_reads_what_hapax_reads() {
    let _alone = crate::alone();
    let mut batch = Batch::default();
    let mut random = Random::of("coordinators");
    for (all, direction) in [(schema::CLAIMS, "request"), (schema::OUTCOMES, "response")] {
        for message in all {
            for version in message.oldest..=message.newest {
                for _ in 0..EACH {
                    coordinator(&mut batch, message, version, direction, &mut random);
                }
            }
        }
    }
    batch.run();
}

fn rewritten(batch: &mut Batch, message: &'static Message, version: i16, random: &mut Random) {
    let bytes = random.bytes(300);
    let made = messages::response(message, version, &mut Choices::new(&bytes));
    let suffix = if bytes[0] & 1 == 0 { "-2" } else { Moved::LONG };
    let mut moved = Moved::by(suffix);
    let key = message.api_key;
    let whole = addresses::rewrite(key, version, &made.frame, &mut moved).unwrap();
    let after = whole.map_or_else(|| made.frame.clone(), |whole| unframed(&whole).to_vec());
    let call = ("response", key, version);
    batch.add(call, made.body, &[&made.frame, &after], move |said| {
        let mut wanted = said[0].clone();
        readdress(&mut wanted, &moved);
        assert_eq!(said[1], wanted);
    });
}

/// Moves whatever has a host and a port; Kafka's names for them.
fn readdress(json: &mut Value, moved: &Moved) {
    if json["endpointType"] == 2 {
        return;
    }
    match json {
        Value::Array(all) => all.iter_mut().for_each(|one| readdress(one, moved)),
        Value::Object(fields) => {
            if let (Some(host), Some(port)) = (fields.get("host"), fields.get("port"))
                && let (Some(host), Some(port)) = (host.as_str(), port.as_i64())
                && let Some((host, port)) = moved.moved(host, port)
            {
                fields.insert("host".to_owned(), json!(host));
                fields.insert("port".to_owned(), json!(port));
            }
            fields.values_mut().for_each(|one| readdress(one, moved));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn request(batch: &mut Batch, version: i16, random: &mut Random) {
    let bytes = random.bytes(300);
    let mut request = requests::made(version, &mut Choices::new(&bytes));
    for partition in request
        .topic_data
        .iter_mut()
        .flat_map(|topic| &mut topic.partition_data)
    {
        // Kafka's class for the request asks its records for their size.
        partition.records.get_or_insert_default();
    }
    let (frame, body) = requests::framed(version, &request);
    let kept = bytes[0];
    let keep = move |index: i32| kept & (1 << (index & 7)) != 0;
    let whole = produce::retain(version, &frame, |_, index| keep(index)).unwrap();
    let call = ("request", api::PRODUCE, version);
    batch.add(call, body, &[&frame, unframed(&whole)], move |said| {
        let mut wanted = said[0].clone();
        let topics = wanted["topicData"].as_array_mut().unwrap();
        topics.retain_mut(|topic| {
            let partitions = topic["partitionData"].as_array_mut().unwrap();
            let before = partitions.len();
            partitions.retain(|partition| keep(partition["index"].as_i64().unwrap() as i32));
            before == 0 || !partitions.is_empty()
        });
        assert_eq!(said[1], wanted);
    });
}

fn response(batch: &mut Batch, version: i16, random: &mut Random) {
    let bytes = random.bytes(300);
    let made = messages::response(
        &schema::PRODUCE_RESPONSE,
        version,
        &mut Choices::new(&bytes),
    );
    let code = |index: i32| (index & 1 == 0).then_some(1234);
    let recoded = recode::recode(version, &made.frame, |_, index| code(index)).unwrap();
    let mut seen = Vec::new();
    produce::replies(version, &made.frame, |reply| {
        seen.push(reply.topic.to_topic())
    })
    .unwrap();
    let answers = requests::answers(version, bytes[0], &seen);
    let merged = produce::merge(version, &made.frame, &answers).unwrap();
    let stands = move |index: i32| code(index).map(|_| (77, 5));
    let acknowledged =
        produce::acknowledge(version, &made.frame, |_, index| stands(index)).unwrap();
    let alone = produce::answer(version, 7, &answers);
    let call = ("response", api::PRODUCE, version);
    let frames = [
        &made.frame,
        unframed(&recoded),
        unframed(&merged),
        unframed(&acknowledged),
    ];
    let wanted = answers.clone();
    batch.add(call, made.body, &frames, move |said| {
        let mut changed = said[0].clone();
        for topic in changed["responses"].as_array_mut().unwrap() {
            for partition in topic["partitionResponses"].as_array_mut().unwrap() {
                let index = partition["index"].as_i64().unwrap() as i32;
                let Some(code) = code(index) else { continue };
                partition["errorCode"] = json!(code);
                if version >= 8 {
                    partition["errorMessage"] = Value::Null;
                }
            }
        }
        assert_eq!(said[1], changed);
        let mut added = said[0].clone();
        with_answers(&mut added, version, &wanted);
        assert_eq!(said[2], added);
        let mut stand = said[0].clone();
        for topic in stand["responses"].as_array_mut().unwrap() {
            for partition in topic["partitionResponses"].as_array_mut().unwrap() {
                let index = partition["index"].as_i64().unwrap() as i32;
                let Some((offset, time)) = stands(index) else {
                    continue;
                };
                succeed(partition, version, offset, time);
            }
        }
        assert_eq!(said[3], stand);
    });
    let body = if version >= 9 { 5 } else { 4 };
    batch.add(call, body, &[unframed(&alone)], move |said| {
        let mut wanted = said[0].clone();
        wanted["responses"] = json!([]);
        with_answers(&mut wanted, version, &answers);
        assert_eq!(said[0], wanted);
    });
}

/// Success, at an offset and of a time, and nothing of what was said before but where the log begins.
fn succeed(partition: &mut Value, version: i16, offset: i64, time: i64) {
    partition["errorCode"] = json!(0);
    partition["baseOffset"] = json!(offset);
    partition["logAppendTimeMs"] = json!(time);
    if version >= 5 {
        let start = partition["logStartOffset"].as_i64().unwrap().max(-1);
        partition["logStartOffset"] = json!(start);
    }
    if version >= 8 {
        partition["recordErrors"] = json!([]);
        partition["errorMessage"] = Value::Null;
    }
    partition.as_object_mut().unwrap().remove("currentLeader");
}

fn with_answers(json: &mut Value, version: i16, answers: &[Answer]) {
    let (field, name): (_, fn(&Answer) -> String) = if version >= 13 {
        ("topicId", |answer| match &answer.topic {
            produce::Topic::Id(id) => kafkas_id(*id),
            produce::Topic::Name(name) => panic!("{name:?} in a version of ids"),
        })
    } else {
        ("name", |answer| match &answer.topic {
            produce::Topic::Name(name) => text(name),
            produce::Topic::Id(id) => panic!("{id:?} in a version of names"),
        })
    };
    let topics = json["responses"].as_array_mut().unwrap();
    for answer in answers {
        let mut partition = json!({
            "index": answer.partition,
            "errorCode": answer.error,
            "baseOffset": answer.base_offset.unwrap_or(-1),
            "logAppendTimeMs": answer.log_append_time,
        });
        if version >= 5 {
            partition["logStartOffset"] = json!(answer.log_start_offset.unwrap_or(-1));
        }
        if version >= 8 {
            partition["recordErrors"] = json!([]);
            partition["errorMessage"] = json!(answer.message);
        }
        let place = topics.iter().position(|topic| topic[field] == name(answer));
        let place = place.unwrap_or_else(|| {
            topics.push(json!({ field: name(answer), "partitionResponses": [] }));
            topics.len() - 1
        });
        let partitions = topics[place]["partitionResponses"].as_array_mut();
        partitions.unwrap().push(partition);
    }
}

fn text(name: &Bytes) -> String {
    String::from_utf8(name.to_vec()).unwrap()
}

/// As Kafka writes ids: base 64 for addresses, without padding.
fn kafkas_id(id: [u8; 16]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from_be_bytes(id);
    let digit = |at: u32| match 122_u32.checked_sub(6 * at) {
        Some(shift) => bits >> shift & 63,
        // The last digit has only two bits of the id.
        None => bits << 4 & 63,
    };
    (0..22)
        .map(|at| char::from(DIGITS[digit(at) as usize]))
        .collect()
}

fn clamped(batch: &mut Batch, version: i16, random: &mut Random) {
    let bytes = random.bytes(200);
    let frame = versions::made(version, &mut Choices::new(&bytes));
    let mut after = frame.clone();
    let clamped = api_versions::clamp(version, &mut after).unwrap();
    let call = ("response", api::API_VERSIONS, version);
    batch.add(call, 4, &[&frame, &after], move |said| {
        let mut clamped = clamped.iter();
        let mut wanted = said[0].clone();
        for api in wanted["apiKeys"].as_array_mut().unwrap() {
            let key = api["apiKey"].as_i64().unwrap() as i16;
            let max = api["maxVersion"].as_i64().unwrap() as i16;
            if api_versions::newest(key).is_some_and(|newest| newest < max)
                && said[0]["errorCode"] != 35
            {
                let to = clamped.next().map(|clamped| clamped.to);
                assert_eq!(to, api_versions::newest(key));
                api["maxVersion"] = json!(to);
            }
        }
        assert_eq!(said[1], wanted);
        assert_eq!(clamped.next(), None);
    });
}

fn coordinator(
    batch: &mut Batch,
    message: &'static Message,
    version: i16,
    direction: &str,
    random: &mut Random,
) {
    use hapax::wire::transactions::{claim, outcome};
    let bytes = random.bytes(120);
    let mut choices = Choices::new(&bytes);
    let key = message.api_key;
    let call = (direction, key, version);
    if direction == "request" {
        let made = messages::request(message, version, &mut choices);
        let read = claim(key, version, &made.frame).unwrap().unwrap();
        batch.add(call, made.body, &[&made.frame], move |said| {
            let id = &any_of(&said[0], "transactionalId");
            assert_eq!(read.transactional_id.as_deref(), id.as_str(), "{}", said[0]);
            assert_eq!(
                read.producer
                    .map(|(id, epoch)| (id.to_wire(), i64::from(epoch.0))),
                announced(&said[0])
            );
        });
    } else {
        let made = messages::response(message, version, &mut choices);
        let read = outcome(key, version, &made.frame).unwrap().unwrap();
        batch.add(call, made.body, &[&made.frame], move |said| {
            let mut errors = Vec::new();
            codes(&said[0], &mut errors);
            let mut found = read.errors.clone();
            errors.sort_unstable();
            errors.dedup();
            found.sort_unstable();
            assert_eq!(found, errors, "{}", said[0]);
            assert_eq!(
                read.announced
                    .map(|(id, epoch)| (id.to_wire(), i64::from(epoch.0))),
                announced(&said[0])
            );
        });
    }
}

/// A field that AddPartitionsToTxn calls by another name.
fn any_of(json: &Value, name: &str) -> Value {
    let longer = format!("v3AndBelow{}{}", name[..1].to_uppercase(), &name[1..]);
    let found = json.get(name).or_else(|| json.get(&longer));
    found.cloned().unwrap_or(Value::Null)
}

/// The producer of a message that names one.
fn announced(json: &Value) -> Option<(i64, i64)> {
    let (id, epoch) = (any_of(json, "producerId"), any_of(json, "producerEpoch"));
    Some((id.as_i64().filter(|id| *id >= 0)?, epoch.as_i64()?))
}

/// All errors in a message.
fn codes(json: &Value, found: &mut Vec<i16>) {
    match json {
        Value::Array(all) => all.iter().for_each(|one| codes(one, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_i64() {
                    Some(code) if name.ends_with("rrorCode") && code != 0 => {
                        found.push(code as i16)
                    }
                    _ => codes(value, found),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
