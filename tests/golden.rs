//! Golden vectors, made by Kafka's own classes (`tests/golden/Golden.java`).

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

mod support;
#[path = "golden/wire.rs"]
mod wire;

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::batch;
use support::model::{Decision, Model};

#[test]
fn the_model_decides_as_kafka_did() {
    let mut decided = [0; 3];
    for scenario in vectors("decisions") {
        let mut model = Model::default();
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let [epoch, first, last] = [0, 1, 2].map(|at| step[at].as_i64().unwrap());
            let detail = step[4].as_i64().unwrap();
            let expected = match step[3].as_str().unwrap() {
                "accepted" => Decision::Accepted(detail),
                "duplicate" => Decision::Duplicate(detail),
                "error" => Decision::Error(detail.try_into().unwrap()),
                other => panic!("unknown decision {other}"),
            };
            decided[match expected {
                Decision::Accepted(_) => 0,
                Decision::Duplicate(_) => 1,
                Decision::Error(_) => 2,
            }] += 1;
            let actual = model.append(
                epoch.try_into().unwrap(),
                first.try_into().unwrap(),
                last.try_into().unwrap(),
            );
            let scenario = &scenario["scenario"];
            assert_eq!(actual, expected, "scenario {scenario}, step {number}");
        }
    }
    assert!(decided.iter().all(|count| *count > 500), "{decided:?}");
}

#[test]
fn the_tests_read_batches_as_kafka_wrote_them() {
    for vector in vectors("batches") {
        let name = vector["batch"].as_str().unwrap();
        let bytes = hex(&vector);
        let stored = batch::stored(&bytes);
        let fields = &vector["fields"];
        assert_eq!(stored.len(), 1, "{name}");
        assert_eq!(stored[0].producer, fields["producer"].as_i64().unwrap());
        assert_eq!(
            i64::from(stored[0].epoch),
            fields["epoch"].as_i64().unwrap()
        );
        assert_eq!(
            i64::from(stored[0].sequence),
            fields["first"].as_i64().unwrap()
        );
        assert_eq!(
            i64::from(stored[0].count - 1),
            fields["last_offset_delta"].as_i64().unwrap()
        );
        assert_eq!(u64::from(stored[0].crc), fields["crc"].as_u64().unwrap());
        assert_eq!(crc32c::crc32c(&bytes[21..]), stored[0].crc, "{name}");
        if fields["compression"] == "none" && fields["control"] == false {
            let records = usize::try_from(fields["records"].as_u64().unwrap()).unwrap();
            assert_eq!(stored[0].values().len(), records, "{name}");
        }
    }
}

/// Needs Java and Maven, and fails without them.
#[test]
fn the_committed_vectors_are_what_the_generator_makes() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/generate.sh");
    let output = Command::new(script).arg("--check").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The lines of a vector file.
fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The bytes of a vector.
fn hex(vector: &Value) -> Vec<u8> {
    let text = vector["hex"].as_str().unwrap();
    let bytes = text.as_bytes().chunks(2);
    bytes
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
