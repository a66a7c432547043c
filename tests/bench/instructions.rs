//! What a request costs hapax in instructions, counted by callgrind: the same
//! on a busy machine as on an idle one. The figures are recorded beside this
//! file, so that a change of cost shows in a diff, and a cost more than 5%
//! above its record fails.
//!
//! `tests/run bench instructions` compares what `cargo install` makes,
//! `tests/run bench instructions --record` writes the record, another argument
//! runs the scenario of that name or those whose name has it as a part.
//! `cargo bench --bench instructions` looks at a build of its own, whose tokio
//! has the tests' features too. callgrind_annotate reads
//! target/tmp/callgrind.out, which the last run leaves.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made must fail"
)]

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::{Decodable, Encodable};
use support::batch::Batch;
use support::raw::{Client, Produce, Topic, topic_name};
use support::{await_until, hapax};

/// Requests of the short and of the long run: their difference has no start
/// and no end in it.
const RUNS: [u32; 2] = [1_000, 6_000];
/// Growth that fails, in percent of the record.
const TOLERANCE: u64 = 5;
const VERSION: i16 = 12;
const TOPIC: &str = "bench";

struct Scenario {
    name: &'static str,
    /// Requests that the client writes at once and then waits for.
    burst: u32,
    /// Partitions in each request.
    partitions: i32,
    /// Bytes of the one value in each batch.
    value: usize,
    /// Whether each burst begins with the last request of the burst before.
    repeat: bool,
    mode: &'static str,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "produce 1 KB, 5 in flight",
        ..PLAIN
    },
    Scenario {
        name: "produce 1 KB, 1 in flight",
        burst: 1,
        ..PLAIN
    },
    Scenario {
        name: "produce 1 KB, 5 in flight, observe",
        mode: "observe",
        ..PLAIN
    },
    Scenario {
        name: "produce 1 KB, 5 in flight and a retry",
        repeat: true,
        ..PLAIN
    },
    Scenario {
        name: "produce 10 x 1 KB, 2 in flight",
        burst: 2,
        partitions: 10,
        ..PLAIN
    },
    Scenario {
        name: "produce 16 KB, 2 in flight",
        burst: 2,
        value: 16_300,
        ..PLAIN
    },
];

const PLAIN: Scenario = Scenario {
    name: "",
    burst: 5,
    partitions: 1,
    value: 940,
    repeat: false,
    mode: "absorb",
};

fn main() {
    let mut record = false;
    let mut binary = PathBuf::from(env!("CARGO_BIN_EXE_hapax"));
    let mut only = None;
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--record" => record = true,
            "--hapax" => binary = args.next().expect("a path").into(),
            "--bench" => {}
            _ => only = Some(arg),
        }
    }
    assert!(!record || only.is_none(), "the record has every scenario");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/instructions.txt");
    let before = fs::read_to_string(&file).unwrap_or_default();
    let recorded = read(&before);
    let mut text =
        String::from("# Instructions a request, by tests/run bench instructions --record\n");
    let mut grown = Vec::new();
    let exact = SCENARIOS.iter().any(|s| Some(s.name) == only.as_deref());
    let wanted = |s: &&Scenario| {
        only.as_ref()
            .is_none_or(|only| s.name == only || !exact && s.name.contains(only))
    };
    for scenario in SCENARIOS.iter().filter(wanted) {
        let [short, long] = RUNS.map(|requests| count(&binary, scenario, requests));
        let cost = (long - short) / u64::from(RUNS[1] - RUNS[0]);
        writeln!(text, "{cost:>6}  {}", scenario.name).unwrap();
        let before = recorded.get(scenario.name);
        println!("{cost:>6}  {:<50} recorded: {before:?}", scenario.name);
        if before.is_none_or(|before| cost * 100 > before * (100 + TOLERANCE)) {
            grown.push(scenario.name);
        }
    }
    if record {
        fs::write(file, text).unwrap();
        return;
    }
    assert!(
        grown.is_empty(),
        "more than {TOLERANCE}% above the record: {grown:?}"
    );
}

fn read(text: &str) -> BTreeMap<&str, u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.trim().split_once("  "))
        .map(|(cost, name)| (name, cost.parse().unwrap()))
        .collect()
}

/// All instructions of a hapax that this many requests go through.
fn count(binary: &Path, scenario: &Scenario, requests: u32) -> u64 {
    let upstream = null_upstream();
    let first = hapax::free_range(6);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("callgrind.out");
    let mut child = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(binary)
        .args(["run", "--upstream", &upstream, "--mode", scenario.mode])
        .arg(format!("--listen=127.0.0.1:{first}"))
        .arg(format!("--admin-listen=127.0.0.1:{}", first + 1))
        .arg(format!("--broker-ports={}-{}", first + 2, first + 5))
        .args(["--workers=1", "--log-level=error"])
        .stdin(Stdio::null())
        .spawn()
        .expect("valgrind runs; tests/run install installs it");
    let bootstrap = format!("127.0.0.1:{first}");
    await_until("hapax to listen", Duration::from_secs(60), || {
        assert!(child.try_wait().unwrap().is_none(), "hapax ended");
        TcpStream::connect(&bootstrap).is_ok()
    });
    drive(&bootstrap, scenario, requests);
    let term = Command::new("kill").arg(child.id().to_string()).status();
    assert!(term.unwrap().success());
    assert!(child.wait().unwrap().success(), "hapax drains");
    let text = fs::read_to_string(out).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total.expect("callgrind counted").trim().parse().unwrap()
}

/// One connection of one producer.
fn drive(bootstrap: &str, scenario: &Scenario, requests: u32) {
    let mut client = Client::connect(bootstrap).unwrap();
    let topic = Topic::unknown(TOPIC);
    let value = vec![7; scenario.value];
    let mut last: Option<Bytes> = None;
    for burst in 0..requests / scenario.burst {
        let mut bytes = Vec::new();
        let mut owed = 0;
        if let Some(again) = last.take().filter(|_| scenario.repeat) {
            bytes.extend_from_slice(&again);
            owed += 1;
        }
        for n in burst * scenario.burst..(burst + 1) * scenario.burst {
            let sequence = i32::try_from(n).unwrap();
            let batch = Batch::of(4711, 0, sequence, [value.clone()]).bytes();
            let partitions = (0..scenario.partitions).map(|p| (p, Some(batch.clone())));
            let produce = Produce::of(vec![(topic.clone(), partitions.collect())]);
            let (_, frame) = client.frame(VERSION, &produce.request());
            bytes.extend_from_slice(&frame);
            owed += 1;
            last = Some(frame);
        }
        client.send_raw(&bytes).unwrap();
        for _ in 0..owed {
            client.receive_frame().unwrap();
        }
    }
}

/// A broker that acknowledges every Produce request.
fn null_upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || acknowledge(stream.unwrap()));
        }
    });
    address
}

fn acknowledge(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut inbox = BytesMut::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let Ok(read @ 1..) = stream.read(&mut chunk) else {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        };
        inbox.extend_from_slice(&chunk[..read]);
        let mut answers = BytesMut::new();
        while let Some(length) = inbox.first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if inbox.len() < 4 + length {
                break;
            }
            inbox.advance(4);
            answer(&inbox.split_to(length).freeze(), &mut answers);
        }
        if stream.write_all(&answers).is_err() {
            return;
        }
    }
}

/// Answers a request: the readiness probe, or Produce with one topic.
fn answer(frame: &Bytes, out: &mut BytesMut) {
    let mut frame = frame.clone();
    let (key, version, correlation) = (frame.get_i16(), frame.get_i16(), frame.get_i32());
    let mut body = BytesMut::new();
    if key == 0 {
        assert_eq!(version, VERSION);
        let client_id = usize::from(frame.get_u16());
        frame.advance(client_id + 1);
        let request = ProduceRequest::decode(&mut frame, version).unwrap();
        // The tags of the response header.
        body.put_u8(0);
        acknowledgement(&request)
            .encode(&mut body, version)
            .unwrap();
    } else {
        body.put_bytes(0, 6);
    }
    out.put_u32(u32::try_from(body.len() + 4).unwrap());
    out.put_i32(correlation);
    out.extend_from_slice(&body);
}

fn acknowledgement(request: &ProduceRequest) -> ProduceResponse {
    let topics = request.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            let records = partition.records.as_ref().unwrap();
            PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_base_offset((&records[53..57]).get_i32().into())
                .with_log_append_time_ms(-1)
                .with_log_start_offset(0)
        });
        TopicProduceResponse::default()
            .with_name(topic_name(TOPIC))
            .with_partition_responses(partitions.collect())
    });
    ProduceResponse::default().with_responses(topics.collect())
}
