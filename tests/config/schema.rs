//! The schema says what hapax says, as another validator reads both.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use hapax::config::keys::KEYS;
use serde_json::{Value, json};

use crate::support::{File, hapax, samples, told};

fn schema() -> Value {
    let (code, text, _) = told(&mut hapax(&["config", "schema"]));
    assert_eq!(code, 0);
    serde_json::from_str(&text).unwrap()
}

/// Whether each document is valid, by a validator and a YAML reader that are
/// not ours.
fn judged(documents: &[String]) -> Vec<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("target/tests/venv/bin/python");
    let mut child = Command::new(&python)
        .arg(root.join("tests/config/validate.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{python:?}: {error} (tests/run install)"));
    let asked = json!({ "schema": schema(), "documents": documents }).to_string();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether hapax reads a document.
fn is_read(document: &str) -> bool {
    let file = File::new(document);
    let (_, printed, _) = told(&mut hapax(&["config", "print", "-c", file.name()]));
    !printed.is_empty()
}

#[test]
fn files_that_hapax_reads_are_valid() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/config/hapax.yaml");
    let mut documents = vec![std::fs::read_to_string(default).unwrap()];
    for n in 0..3 {
        let flags = KEYS
            .iter()
            .map(|key| format!("--{}={}", key.flag, samples(key)[n].0));
        let (_, printed, _) = told(hapax(&["config", "print"]).args(flags));
        documents.push(printed);
    }
    for document in [
        "",
        "upstream:\n",
        "upstream: {bootstrap: \"a:1,[::1]:2\"}",
        "upstream: {addressMap: \"a=b,c:1=d:2\"}",
        "listen: {nodeSlots: \"1=19093\", brokerPorts: 19093}",
        "listen: {slotGrace: 0}",
        "listen: {bootstrap: localhost:1}",
        "policies:\n  - topics: payments.*\n    require: acks_all\n",
        "policies: [{topics: [\"*\", \"!a-?\"], require: [idempotence, transactional]}, b=acks_all]",
        "policies: a.*+!a.b=idempotence+acks_all,c=transactional",
    ] {
        documents.push(document.to_owned());
    }
    for (document, valid) in documents.iter().zip(judged(&documents)) {
        assert!(valid && is_read(document), "{document}");
    }
}

#[test]
fn files_that_hapax_refuses_are_not_valid() {
    let documents = [
        "- a",
        "kafka:9092",
        "upstream: kafka:9092",
        "mode: observe",
        "sequence.mode: observe",
        "sequence: {windowBatchs: 5}",
        "sequence: {windowBatches: 0}",
        "sequence: {windowBatches: 1025}",
        "sequence: {windowBatches: [5]}",
        "sequence: {windowBatches: 1.5}",
        "sequence: {windowBatches: }",
        "sequence: {ttl: 5}",
        "sequence: {ttl: 0s}",
        "sequence: {ttl: 5 s}",
        "sequence: {mode: refuse}",
        "policies: payments",
        "policies: {topics: a, require: acks_all}",
        "policies: [{topics: a}]",
        "policies: [{require: acks_all}]",
        "policies: [{topics: [], require: acks_all}]",
        "policies: [{topics: a, require: []}]",
        "policies: [{topics: \"!a\", require: acks_all}]",
        "policies: [{topics: [\"!a\"], require: acks_all}]",
        "policies: [{topics: \"^a$\", require: acks_all}]",
        "policies: [{topics: a, require: acks}]",
        "policies: [{topics: a, requires: acks_all}]",
        "policies: [[a, acks_all]]",
        "sequence: {shield45: perhaps}",
        "upstream: {bootstrap: [a]}",
        "upstream: {bootstrap: [[\"a:1\"]]}",
        "upstream: {bootstrap: {a: 1}}",
        "upstream: {bootstrap: \"a:1,b\"}",
        "upstream: {bootstrap: [\"PLAINTEXT://kafka:9092\"]}",
        "upstream: {addressMap: [a]}",
        "upstream: {addressMap: {a: [b]}}",
        "listen: {bootstrap: kafka:19092}",
        "listen: {bootstrap: 19092}",
        "listen: {brokerPorts: [1, 2]}",
        "listen: {nodeSlots: {x: 1}}",
        "listen: {nodeSlots: {1: 70000}}",
        "listen: {nodeSlots: [1]}",
        "listen: {advertisedHost: [a]}",
        "drain: {timeout: never}",
        "workers: -1",
        "workers: many",
        "log: {format: xml}",
        "log: {level: [info]}",
    ]
    .map(str::to_owned);
    for (document, valid) in documents.iter().zip(judged(&documents)) {
        assert!(!is_read(document), "hapax reads {document}");
        assert!(!valid, "the schema takes {document}");
    }
}

#[test]
fn every_key_has_a_description_and_its_default_there() {
    let schema = schema();
    for key in KEYS {
        let (section, name) = key.place();
        let at = match section {
            "" => format!("/properties/{name}"),
            section => {
                let section = section.replace('.', "/properties/");
                format!("/properties/{section}/properties/{name}")
            }
        };
        let found = schema.pointer(&at).unwrap_or_else(|| panic!("{at}"));
        let description = found["description"].as_str().unwrap();
        assert!(description.contains(key.doc) && description.contains(key.flag));
        assert!(found.get("default").is_some(), "{at}");
    }
}
