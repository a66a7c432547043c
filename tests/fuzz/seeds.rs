//! Inputs to begin with: what Kafka's own classes wrote (`tests/golden`), valid messages of every api in every version
//! both ways, and choices at random.

use std::fs;

use hapax::wire::schema::{self, Message};
use serde_json::Value;

use crate::mutate::Random;
use crate::targets::{Choices, Target, messages};
use crate::unhex;

/// Those of one target.
pub fn of(target: &Target) -> Vec<Vec<u8>> {
    let mut random = Random::of(target.name);
    match target.name {
        "frames" => frames(),
        "headers" => headers(),
        "batches" => batches(),
        "sasl" => sasl(),
        "login" => login(),
        "produce_request" => {
            let requests = golden("ProduceRequest").into_iter();
            requests
                .map(|g| with(&[g.version, 40, 0, 0x55], &g.request()))
                .collect()
        }
        "produce_response" => {
            let responses = golden("ProduceResponse").into_iter();
            responses
                .map(|g| with(&[g.version, 0x55, 0x22], &g.response()))
                .collect()
        }
        "addresses" => addresses(&mut random),
        "coordinators" => coordinators(&mut random),
        "api_versions" => {
            let responses = golden("ApiVersionsResponse").into_iter();
            responses
                .map(|g| with(&[g.version], &g.response()))
                .collect()
        }
        "log" => log(&mut random),
        "snapshot" => vec![snapshot()],
        "snapshot_sealed" => {
            let whole = snapshot();
            vec![with(&[0, 0, 9], &whole[12..whole.len() - 12])]
        }
        "config_file" => config_file(),
        "config_values" => config_values(),
        "config_flags" => config_flags(),
        "dev_bytes" => dev_bytes(),
        // Much has to happen before something is in doubt.
        "session_reading" => (0..48).map(|_| random.bytes(500)).collect(),
        // The others are given choices.
        _ => (0..64).map(|_| some(&mut random, target.len_max)).collect(),
    }
}

fn some(random: &mut Random, len_max: usize) -> Vec<u8> {
    let len = random.below(len_max.min(256));
    random.bytes(len)
}

fn with(front: &[u8], rest: &[u8]) -> Vec<u8> {
    [front, rest].concat()
}

/// A message that Kafka wrote.
struct Golden {
    key: u8,
    version: u8,
    /// The version of its header.
    header: u64,
    body: Vec<u8>,
}

impl Golden {
    fn request(&self) -> Vec<u8> {
        let mut frame = vec![0, self.key, 0, self.version, 0, 0, 0, 9, 0, 1, b'c'];
        if self.header == 2 {
            frame.push(0);
        }
        with(&frame, &self.body)
    }

    fn response(&self) -> Vec<u8> {
        let header: &[u8] = if self.header == 1 {
            &[0, 0, 0, 9, 0]
        } else {
            &[0, 0, 0, 9]
        };
        with(header, &self.body)
    }
}

/// Those whose name ends so.
fn golden(name: &str) -> Vec<Golden> {
    let number = |value: &Value| value.as_u64().unwrap();
    let all = vectors("messages").into_iter();
    let all = all.filter(|vector| vector["message"].as_str().unwrap().ends_with(name));
    all.map(|vector| Golden {
        key: number(&vector["key"]) as u8,
        version: number(&vector["version"]) as u8,
        header: number(&vector["header"]),
        body: unhex(vector["hex"].as_str().unwrap()),
    })
    .collect()
}

fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn frames() -> Vec<Vec<u8>> {
    let first: [&[u8]; 9] = [
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"PROXY TCP4",
        b"\r\n\r\n\0\r\nQUIT\n",
        &[0x16, 3, 1, 2, 0, 1],
        &[0x15, 3, 3, 0, 2],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 8, 0, 3, 0, 1, 0, 0, 0, 7],
        &[6, 0x40, 0, 1],
    ];
    first.map(<[u8]>::to_vec).to_vec()
}

fn headers() -> Vec<Vec<u8>> {
    let requests = golden("Request").into_iter().map(|g| g.request());
    let short = requests.map(|mut frame| {
        frame.truncate(32);
        frame
    });
    short.collect()
}

fn batches() -> Vec<Vec<u8>> {
    let all = vectors("batches").into_iter();
    all.map(|vector| with(&[0], &unhex(vector["hex"].as_str().unwrap())))
        .collect()
}

fn sasl() -> Vec<Vec<u8>> {
    let mut all = vec![
        b"\x00\x00\0alice\0secret".to_vec(),
        b"\x00\x01n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL".to_vec(),
        b"\x00\x02y,a=a=2Cb=3D,n=a=2Cb=3D,r=1,x=y".to_vec(),
        b"\x00\x03n,,\x01auth=Bearer x\x01\x01".to_vec(),
        b"\x00\x04\x60\x82\x02\x03".to_vec(),
        b"\x00\x01r=nonce+more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".to_vec(),
        b"\x00\x01v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_vec(),
    ];
    all.extend(
        golden("SaslHandshakeRequest")
            .iter()
            .map(|g| with(&[g.version, 0], &g.body)),
    );
    all.extend(
        golden("SaslAuthenticateRequest")
            .iter()
            .map(|g| with(&[g.version, 0], &g.body)),
    );
    all.extend(
        golden("SaslHandshakeResponse")
            .iter()
            .map(|g| with(&[g.version, 0], &g.response())),
    );
    all.extend(
        golden("SaslAuthenticateResponse")
            .iter()
            .map(|g| with(&[g.version, 0], &g.response())),
    );
    all
}

/// Logins that are right, each by a mechanism and a framing; then requests that come too early.
fn login() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 0, 1, 2, 2, 0, 1, 1],
        vec![0, 0, 1, 1, 2, 1, 1, 1, 1, 2, 1, 2, 1, 1],
        vec![0, 0, 2, 1, 2, 0, 1, 1, 1, 2, 0, 3, 1, 1],
        vec![0, 0, 1, 0, 5, 1, 1, 1, 5, 2, 1, 1],
        vec![0, 0, 0, 0, 5, 0, 1, 1],
        vec![0, 6, 18, 3, 0, 0, 0, 1, 2, 1, 0, 1, 0, 0, 3],
        vec![1, 0, 1, 1, 6, 3, 1, 4, 0, 0, 0, 0],
        vec![2, 0, 0, 1],
    ]
}

fn addresses(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (number, message) in schema::ADDRESSED.iter().enumerate() {
        let front = |version: u8| [number as u8, version, 7, 1];
        for golden in golden("Response") {
            if i16::from(golden.key) == message.api_key {
                all.push(with(&front(golden.version), &golden.response()));
            }
        }
        for version in message.oldest..=message.newest {
            let choices = random.bytes(200);
            let made = messages::response(message, version, &mut Choices::new(&choices));
            all.push(with(&front(version as u8), &made.frame));
        }
    }
    all.retain(|input| input.len() <= 512);
    all
}

fn coordinators(random: &mut Random) -> Vec<Vec<u8>> {
    const KEYS: [i16; 5] = [22, 24, 25, 26, 28];
    let mut all = Vec::new();
    let mut add = |message: &Message, answered: bool| {
        let key = KEYS.iter().position(|key| *key == message.api_key).unwrap() as u8;
        for version in message.oldest..=message.newest {
            let choices = random.bytes(60);
            let mut choices = Choices::new(&choices);
            let made = if answered {
                messages::response(message, version, &mut choices)
            } else {
                messages::request(message, version, &mut choices)
            };
            all.push(with(&[key, version as u8, u8::from(answered)], &made.frame));
        }
    };
    schema::CLAIMS
        .iter()
        .for_each(|message| add(message, false));
    schema::OUTCOMES
        .iter()
        .for_each(|message| add(message, true));
    all
}

fn log(random: &mut Random) -> Vec<Vec<u8>> {
    // Batches as Kafka writes them, alone and one behind the other, and as the records of an answer.
    let all = vectors("batches").into_iter();
    let batches: Vec<_> = all
        .map(|vector| unhex(vector["hex"].as_str().unwrap()))
        .collect();
    let mut all: Vec<_> = batches.iter().map(|batch| with(&[2], batch)).collect();
    let pairs = batches.iter().zip(batches.iter().skip(1));
    all.extend(pairs.map(|(first, second)| with(&[2], &with(first, second))));
    for golden in golden("FetchResponse") {
        let place = [4, 13]
            .iter()
            .position(|version| *version == golden.version);
        all.extend(place.map(|place| with(&[place as u8], &golden.response())));
    }
    for golden in golden("ListOffsetsResponse") {
        all.push(with(&[2], &golden.response()));
    }
    let table = schema::ADDRESSED.iter().find(|table| table.api_key == 1);
    for (place, version) in [(0, 4), (1, 13)] {
        for _ in 0..8 {
            let choices = random.bytes(200);
            let made = messages::response(table.unwrap(), version, &mut Choices::new(&choices));
            all.push(with(&[place], &made.frame));
        }
    }
    all.retain(|input| input.len() <= 512);
    all
}

fn config_file() -> Vec<Vec<u8>> {
    let whole = include_str!("../../config/hapax.yaml");
    // Its sections one by one, without their comments.
    let plain: Vec<_> = whole
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
        .collect();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for line in plain {
        let line = format!("{line}\n");
        match all.last_mut() {
            Some(section) if line.starts_with(' ') => section.extend(line.bytes()),
            _ => all.push(line.into_bytes()),
        }
    }
    for text in [
        "upstream: {bootstrap: [a:1, \"[::1]:2\"], addressMap: {a:1: b:2}}\n",
        "listen:\n  nodeSlots: {1: 19093}\n  bootstrap: 127.0.0.1:9\n",
        "a: &x 1\nb: *x\n",
        "- 1\n- 2\n",
        "--- # one\nmode: absorb\n...\n",
        "log: {level: \"info,hapax=debug\"}\nlog: {}\n",
    ] {
        all.push(text.as_bytes().to_vec());
    }
    all
}

fn config_values() -> Vec<Vec<u8>> {
    use hapax::config::keys::KEYS;
    let defaults = KEYS.iter().enumerate().map(|(at, key)| {
        let text = [
            &[at as u8],
            key.default.as_bytes(),
            b"\n",
            &[at as u8],
            key.default.as_bytes(),
        ];
        text.concat()
    });
    let names =
        ["HAPAX_UPSTREM\nHAPAX_SERVICE_HOST\nHAPAX_GATEWAY_PORT\nHAPAX_GATEWAY_SERVICE_HOST"];
    defaults
        .chain(names.iter().map(|name| name.as_bytes().to_vec()))
        .collect()
}

fn config_flags() -> Vec<Vec<u8>> {
    use hapax::config::keys::KEYS;
    let one = KEYS
        .iter()
        .map(|key| format!("--{}={}", key.flag, key.default).into_bytes());
    let more = [
        "--upstream\na:1,b:2\n--mode\nobserve",
        "--help",
        "--upstream=a:1\n--upstream=b:2\n--nonsense",
    ];
    one.chain(more.map(|text| text.as_bytes().to_vec()))
        .collect()
}

fn dev_bytes() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for golden in golden("Request") {
        let frame = golden.request();
        let length = (frame.len() as u32).to_be_bytes();
        all.push(with(&length, &frame));
    }
    all.retain(|input| input.len() <= 400);
    all
}

fn snapshot() -> Vec<u8> {
    use hapax::ids::{Epoch, NodeId, ProducerId, Sequence, TopicId};
    use hapax::ledger::Identity;
    use hapax::snapshot::format::{Boot, FactRecord, Head, Stamp, TopicRecord, WindowRecord};
    use hapax::snapshot::{Record, Snapshot, encode};
    let fact = |first: i32, offset| FactRecord {
        first: Sequence::from_wire(first).unwrap(),
        count: 3,
        crc: 0xdead_beef,
        len: 100,
        offset,
        append_time: -1,
        age_s: 2,
    };
    let window = |topic, identity| WindowRecord {
        producer: ProducerId::from_wire(7).unwrap(),
        topic,
        partition: 1,
        identity,
        epoch: Epoch(2),
        log_start: Some(3),
        absorbed: 4,
        gaps: 5,
        facts: vec![fact(i32::MAX - 2, 40), fact(0, 43), fact(3, 46)],
    };
    let text = |text: &str| text.to_owned();
    let user = Identity::User {
        mechanism: text("PLAIN"),
        user: text("alice"),
    };
    let named = TopicRecord {
        name: Some(text("orders")),
        id: TopicId::from_wire([7; 16]),
    };
    let nameless = TopicRecord {
        name: Some(text("old")),
        id: None,
    };
    encode(&Snapshot {
        head: Head {
            written: Stamp {
                wall_ms: 1_700_000_000_000,
                boot: Some(Boot {
                    id: text("boot"),
                    up_ms: 99,
                }),
            },
            cluster_id: text("cluster"),
            listen: text("127.0.0.1:19092"),
            broker_ports: (19093, 19192),
            totals_since: 1,
            starts: 2,
        },
        records: vec![
            Record::Slot(NodeId::from_wire(1).unwrap(), 19093),
            Record::Total(text("absorbed"), 5),
            Record::Identity(Identity::Anonymous),
            Record::Identity(user),
            Record::Topic(named),
            Record::Topic(nameless),
            Record::Window(window(0, 0)),
            Record::Window(window(1, 1)),
        ],
    })
}
