//! The fault broker `tests/kfaked`: franz-go's kfake as a process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::hapax::http;
use crate::tools::{free_ports, installed};

/// A running fault broker; killed when dropped.
pub(crate) struct Kfaked {
    child: Child,
    ports: Vec<u16>,
    admin: String,
}

impl Kfaked {
    /// `nodes` brokers with a topic of one partition.
    pub(crate) fn start(nodes: u16, topic: &str) -> Self {
        Self::with_partitions(nodes, topic, 1)
    }

    /// The same with more partitions.
    pub(crate) fn with_partitions(nodes: u16, topic: &str, partitions: u32) -> Self {
        let first = free_ports(nodes + 1);
        let ports: Vec<u16> = (first..first + nodes).collect();
        let list: Vec<String> = ports.iter().map(u16::to_string).collect();
        let admin = format!("127.0.0.1:{}", first + nodes);
        let mut child = Command::new(installed("kfaked", "go"))
            .args([
                "-ports",
                &list.join(","),
                "-admin",
                &admin,
                "-topic",
                &format!("{topic}:{partitions}"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kfaked starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a pipe can be read");
        assert!(line.starts_with("ready "), "kfaked says {line:?}");
        Self {
            child,
            ports,
            admin,
        }
    }

    pub(crate) fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self
            .ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        addresses.join(",")
    }

    /// The next `count` requests of an API are applied, their answers lost.
    pub(crate) fn lose(&self, key: i16, count: u32) {
        self.post("/lose", &json!({ "key": key, "count": count }));
    }

    /// The connection is closed before the request is applied.
    pub(crate) fn cut(&self, key: i16, count: u32) {
        self.post("/cut", &json!({ "key": key, "count": count }));
    }

    /// The answer is held back.
    pub(crate) fn delay(&self, key: i16, count: u32, ms: u32) {
        self.post("/delay", &json!({ "key": key, "count": count, "ms": ms }));
    }

    /// Produce to the topic is answered with an error.
    pub(crate) fn fail_produce(&self, topic: &str, error: &str, count: u32) {
        self.post(
            "/fault",
            &json!({ "keys": [0], "topic": topic, "err": error, "count": count }),
        );
    }

    /// The same for one of its partitions.
    pub(crate) fn fail_partition(&self, topic: &str, partition: u32, error: &str, count: u32) {
        self.post(
            "/fault",
            &json!({ "keys": [0], "topic": topic, "partitions": [partition], "err": error, "count": count }),
        );
    }

    /// Another node leads the partition.
    pub(crate) fn lead(&self, topic: &str, partition: u32, node: u32) {
        self.post(
            &format!("/move?topic={topic}&partition={partition}&node={node}"),
            &json!({}),
        );
    }

    /// Records in a partition.
    pub(crate) fn records(&self, topic: &str, partition: u32) -> u64 {
        let answer = self.call(
            "GET",
            &format!("/partition?topic={topic}&partition={partition}"),
            "",
        );
        answer["HighWatermark"].as_u64().expect("a high watermark")
    }

    /// Requests of an API so far.
    pub(crate) fn seen(&self, key: i16) -> u64 {
        self.call("GET", &format!("/seen?key={key}"), "")["seen"]
            .as_u64()
            .expect("a count")
    }

    fn post(&self, path: &str, body: &Value) {
        self.call("POST", path, &body.to_string());
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, answer) = http(method, &self.admin, path, body).expect("kfaked answers");
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str(&answer).expect("kfaked answers in JSON")
    }
}

impl Drop for Kfaked {
    fn drop(&mut self) {
        // It ends with the test, however it fares.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
