//! `hapax check --connect` against real Kafka: what it says is what hapax does.

use std::process::Command;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::hapax::{Hapax, Ports};

/// The report and the exit code.
fn check(ports: &Ports, upstream: &str, more: &[&str]) -> (Value, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["check", "--connect", "--json", "--upstream", upstream])
        .args(["--listen", &format!("{}:{}", ports.host, ports.bootstrap)])
        .arg(format!(
            "--broker-ports={}-{}",
            ports.brokers.0, ports.brokers.1
        ))
        .args(["--admin-listen", &format!("127.0.0.1:{}", ports.admin)])
        .args(more)
        .output()
        .expect("hapax runs");
    let code = output.status.code().expect("it ends by itself");
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (report, code)
}

/// Node ids and the ports that they have.
fn ports_of(rows: &Value) -> Vec<(Value, Value)> {
    let rows = rows.as_array().expect("a list");
    let mut ports: Vec<_> = rows
        .iter()
        .map(|row| (row["node"].clone(), row["port"].clone()))
        .collect();
    ports.sort_by_key(|(node, _)| node.as_i64());
    ports
}

#[test]
fn the_ports_that_are_told_are_those_that_hapax_gives() {
    for cluster in [Cluster::one(), Cluster::three()] {
        let ports = Ports::free(8);
        let (report, code) = check(&ports, &cluster.bootstrap(), &[]);
        assert_eq!(code, 0, "{report:#}");
        assert_eq!(report["problems"], serde_json::json!([]));
        assert!(report["cluster"]["id"].is_string(), "{report:#}");
        assert!(report["cluster"]["controller"].is_number(), "{report:#}");
        assert_eq!(report["cluster"]["answers_like"], "4.1");
        let told = ports_of(&report["brokers"]);
        assert_eq!(told.len(), cluster.nodes());

        let upstream = cluster.bootstrap();
        let hapax = Hapax::start_on(ports.clone(), &["--upstream", &upstream]);
        let mut client = crate::raw::Connection::open(&hapax.bootstrap());
        client.leaders(&cluster.create_topic("checked", 1));
        assert_eq!(ports_of(&hapax.api("/api/v1/brokers")["brokers"]), told);
        let (report, code) = check(&ports, &cluster.bootstrap(), &[]);
        assert_eq!(code, 0, "beside a running hapax: {report:#}");
    }
}

#[test]
fn names_that_lead_nowhere_are_told_with_the_line_that_maps_them() {
    let (cluster, ports) = (Cluster::one(), Ports::free(2));
    let upstream = cluster.front_bootstrap();
    let (report, code) = check(&ports, &upstream, &[]);
    assert_eq!(code, 69, "{report:#}");
    let problem = &report["problems"][0];
    assert_eq!(problem["code"], "unresolved");
    let advice = problem["advice"].as_str().expect("a sentence");
    let (_, map) = advice
        .split_once("--upstream-address-map ")
        .expect("the line to type");
    let (report, code) = check(&ports, &upstream, &["--upstream-address-map", map]);
    assert_eq!(code, 0, "{report:#}");
    let advertised = cluster.fronts().next().expect("one").1;
    assert_eq!(report["brokers"][0]["advertised"], advertised);
}

#[test]
fn a_sasl_listener_is_told_with_its_mechanisms() {
    let (cluster, ports) = (Cluster::one(), Ports::free(2));
    let (report, code) = check(&ports, &cluster.sasl_bootstrap(), &[]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["clients"]["security_protocol"], "SASL_PLAINTEXT");
    let mechanisms = report["cluster"]["sasl_mechanisms"].to_string();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        assert!(mechanisms.contains(mechanism), "{mechanisms}");
    }
}

#[test]
fn a_controller_is_no_upstream() {
    let (cluster, ports) = (Cluster::one(), Ports::free(2));
    let (report, code) = check(&ports, &cluster.controller(), &[]);
    assert_eq!(code, 69, "{report:#}");
    assert_eq!(report["problems"][0]["code"], "controller");
}
