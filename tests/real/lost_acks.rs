//! A thousand lost acknowledgements: nothing is written twice, nothing is lost,
//! and hapax absorbs the retries it can answer.

use std::net::SocketAddr;
use std::time::Duration;

use crate::clients::Client;
use crate::cluster::{Cluster, Options, assert_once_in_order, values};
use crate::hapax::{Hapax, Ports, Route, http};
use crate::tap::{self, Oracle, Taps};
use crate::tools::{Random, free_ports};

#[test]
fn java_loses_334_acknowledgements_and_nothing_else() {
    check(Client::Java, 334);
}

#[test]
fn confluent_kafka_loses_333_acknowledgements_and_nothing_else() {
    check(Client::Confluent, 333);
}

#[test]
fn franz_go_loses_333_acknowledgements_and_nothing_else() {
    check(Client::FranzGo, 333);
}

fn check(client: Client, faults: u32) {
    let seed = std::env::var("SEED").map_or_else(
        |_| Random::from_clock().below(1 << 32),
        |text| text.parse().expect("SEED is a number"),
    );
    println!("{client:?}: SEED={seed}");
    let setting = Setting::new(seed, faults);
    let topic = setting.cluster().create_topic("lost", 3);

    let producer = client.start(
        "produce",
        &setting.bootstrap,
        &[
            "--topic",
            &topic,
            "--partitions",
            "3",
            "--rate",
            "1500",
            "--until-input-ends",
            // A second of records waits in the client: several small batches are always in flight.
            "--linger-ms",
            "5",
            "--batch-bytes",
            "300",
            "--in-flight",
            "5",
            "--request-timeout-ms",
            "250",
            "--delivery-timeout-ms",
            "120000",
            "--backoff-ms",
            "10",
        ],
    );
    setting.taps.wait_for_faults(Duration::from_secs(200));
    let produced = producer.finish();
    let tally = setting.taps.tally();
    println!(
        "{client:?}: errors to the client {:?}, from Kafka {:?}",
        tally.errors_to_client, tally.errors_from_kafka,
    );
    println!(
        "{client:?}: faults {:?}, {} acknowledgements lost, {} retries, {} to be absorbed, {} perhaps, {}",
        tally.faults,
        tally.lost_acks,
        tally.retries,
        tally.expected_absorbed,
        tally.perhaps,
        produced.summary,
    );

    assert_eq!(produced.summary["failed"], 0);
    let sent = produced.summary["sent"].as_u64().expect("a count");
    let log = setting.cluster().log(&topic);
    assert_once_in_order(&log, sent);
    let values = values(&log);
    assert_eq!(values.len(), 3);
    for (n, partition, _) in produced.records() {
        let partition = i32::try_from(partition).expect("a small number");
        assert!(
            values[&partition].binary_search(&n).is_ok(),
            "acknowledged record {n} is not where it should be"
        );
    }
    assert!(
        tally.lost_acks >= faults,
        "each fault loses an acknowledgement"
    );
    assert!(
        tally.faults.len() == 4,
        "every kind of fault was made: {:?}",
        tally.faults
    );
    assert!(tally.retries > 0);
    if let Some(hapax) = &setting.hapax {
        let absorbed = hapax.batches(&topic, "duplicate_absorbed");
        let expected = tally.expected_absorbed;
        assert!(
            tally.perhaps < expected / 20,
            "nearly every retry's fate is certain: {} of {expected}",
            tally.perhaps,
        );
        // The taps see what passes and not when hapax judges it: on a busy machine
        // one in a thousand is another way round. What came of each is in the log.
        assert!(
            absorbed.abs_diff(expected) <= tally.perhaps + expected / 100,
            "{absorbed}, expected {expected} and perhaps {} more: {:?}",
            tally.perhaps,
            tally.surprises,
        );
    }
}

/// client → tap A on 127.0.0.1 → hapax on 127.0.0.2, the same ports → tap B → Kafka.
struct Setting {
    bootstrap: String,
    taps: Taps,
    hapax: Option<Hapax>,
    own: Option<Cluster>,
}

impl Setting {
    fn new(seed: u64, faults: u32) -> Self {
        match Route::chosen() {
            Route::Hapax => Self::with_hapax(seed, faults),
            Route::Direct => Self::with_relay(seed, faults),
        }
    }

    fn cluster(&self) -> &Cluster {
        match &self.own {
            Some(own) => own,
            None => Cluster::one(),
        }
    }

    fn with_hapax(seed: u64, faults: u32) -> Self {
        let cluster = Cluster::one();
        let ports = Ports {
            host: "127.0.0.2".to_owned(),
            ..Ports::free(2)
        };
        let oracle = Admin(format!("127.0.0.1:{}", ports.admin));
        let mut taps = Taps::new(seed, faults, Box::new(oracle));
        for port in ports.bootstrap..=ports.brokers.1 {
            taps.tap_a(&format!("127.0.0.1:{port}"), &format!("127.0.0.2:{port}"));
        }
        let (kafka, advertised) = cluster.fronts().next().expect("one node");
        let tap_b = format!("127.0.0.1:{}", free_ports(1));
        taps.tap_b(&tap_b, &kafka);
        let map = format!("{advertised}={tap_b}");
        let bootstrap = format!("127.0.0.1:{}", ports.bootstrap);
        let hapax = Hapax::start_on(
            ports,
            &[
                "--listen-advertised-host",
                "127.0.0.1",
                "--upstream",
                &tap_b,
                "--upstream-address-map",
                &map,
            ],
        );
        Self {
            bootstrap,
            taps,
            hapax: Some(hapax),
            own: None,
        }
    }

    /// A relay in place of hapax: Kafka alone must make the same of the same faults.
    fn with_relay(seed: u64, faults: u32) -> Self {
        let port = free_ports(1);
        let near = format!("127.0.0.1:{port}");
        let cluster = Cluster::start(Options {
            front_advertised: vec![near.clone()],
            ..Options::default()
        });
        let (kafka, _) = cluster.fronts().next().expect("one node");
        let mut taps = Taps::new(seed, faults, Box::new(Nothing));
        let (middle, tap_b) = (
            format!("127.0.0.2:{port}"),
            format!("127.0.0.1:{}", free_ports(1)),
        );
        taps.tap_a(&near, &middle);
        taps.tap_b(&tap_b, &kafka);
        tap::plain_relay(&middle, &tap_b);
        Self {
            bootstrap: near,
            taps,
            hapax: None,
            own: Some(cluster),
        }
    }
}

/// hapax, by what its admin API shows.
struct Admin(String);

impl Admin {
    fn rows(&self, list: &str) -> Vec<serde_json::Value> {
        let path = format!("/api/v1/{list}?limit=1000");
        let (status, body) = http("GET", &self.0, &path, "").expect("hapax answers");
        assert_eq!(status, 200, "{path}: {body}");
        let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        answer[list].as_array().expect("a list").clone()
    }
}

impl Oracle for Admin {
    fn has_taken(&self, client: SocketAddr, owed: usize) -> bool {
        let client = client.to_string();
        let rows = self.rows("connections");
        let row = rows.iter().find(|row| row["client"] == *client);
        row.is_none_or(|row| row["in_flight"].as_u64() <= u64::try_from(owed).ok())
    }

    fn has_read(&self, client: SocketAddr, requests: u64) -> bool {
        let client = client.to_string();
        let rows = self.rows("connections");
        let row = rows.iter().find(|row| row["client"] == *client);
        row.is_none_or(|row| row["requests"].as_u64() >= Some(requests))
    }

    fn holds(&self, client: SocketAddr) -> bool {
        let client = client.to_string();
        let mut rows = self.rows("connections").into_iter();
        rows.any(|row| row["client"] == *client && row["held"] == true)
    }

    fn has_noticed_end(&self, client: SocketAddr) -> bool {
        let client = client.to_string();
        !self
            .rows("connections")
            .iter()
            .any(|row| row["client"] == *client && row["orphan"] == false)
    }

    fn report(&self) -> String {
        let mut connections = self.rows("connections");
        connections.retain(|row| row["in_flight"] != 0 || row["held"] == true);
        format!("{:?} {connections:?}", self.rows("producers"))
    }
}

/// No hapax, nothing to wait for.
struct Nothing;

impl Oracle for Nothing {
    fn has_taken(&self, _: SocketAddr, _: usize) -> bool {
        true
    }

    fn has_read(&self, _: SocketAddr, _: u64) -> bool {
        true
    }

    fn holds(&self, _: SocketAddr) -> bool {
        false
    }

    fn has_noticed_end(&self, _: SocketAddr) -> bool {
        true
    }

    fn report(&self) -> String {
        String::new()
    }
}
