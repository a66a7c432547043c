//! The admin pages under a flood, and what thousands of clients make of them.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use crate::scene::{Outcome, SLACK, Scale, Scene};
use crate::support::batch::Batch;
use crate::support::hapax;
use crate::support::peer::ACKNOWLEDGED;
use crate::support::raw::{Client, Produce, Topic};

/// Series of `/metrics` with `metrics.maxTopics` at its default, as the README
/// has it.
const SERIES_MAX: usize = 2_500;

pub(crate) fn flood(scale: Scale) -> Outcome {
    let scene = Scene::new(&[]);
    let count = scale.of(300, 1_000);
    let mut open = Vec::new();
    for n in 0..count {
        let mut client = TcpStream::connect(&scene.hapax.admin).unwrap();
        let header = "x".repeat(60 << 10);
        let request = match n % 4 {
            0 => format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nx: {header}\r\n\r\n"),
            1 => "POST /api/v1/log-level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n{"
                .to_owned(),
            2 => "POST /api/v1/drain HTTP/1.1\r\n".to_owned(),
            // Answers that nobody reads.
            _ => "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20),
        };
        // Whoever is in the way of others is closed.
        let _ = client.write_all(request.as_bytes());
        open.push(client);
    }
    for path in ["/livez", "/startupz", "/metrics"] {
        let page = scene.hapax.page(path);
        assert!(page.starts_with("HTTP/1.1 200"), "{path}: {page}");
    }
    let descriptors = scene.hapax.descriptors();
    assert!(descriptors < 300, "{descriptors} descriptors are open");
    let outcome = scene
        .end(&format!(
            "{count} admin connections: headers of 60 KiB, bodies that do not come, answers not read"
        ))
        .grew_by_at_most(4 * SLACK)
        .note(format!("{descriptors} descriptors were open"));
    drop(open);
    outcome
}

pub(crate) fn client_ids(scale: Scale) -> Outcome {
    let scene = Scene::new(&[]);
    let (count, topics) = (scale.of(500, 10_000), 50);
    let names: Vec<_> = (0..topics).map(|n| format!("topic-{n}")).collect();
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    let mut first = Client::connect(&scene.hapax.bootstrap).unwrap();
    for n in 0..count {
        if n == topics {
            // From now on they are known to exist.
            first.metadata(9, &all).unwrap();
        }
        let mut client = Client::connect(&scene.hapax.bootstrap).unwrap();
        client.client_id = Some(format!("{ACKNOWLEDGED}-{n}"));
        let producer = i64::try_from(1000 + n).unwrap();
        let batch = Batch::of(producer, 0, 0, ["value"]).bytes();
        let topic = Topic::unknown(&names[n % topics]);
        let answer = client.produce(&Produce::to(&topic, 0, batch).version(9));
        assert_eq!(answer.unwrap().code, 0);
    }
    let start = Instant::now();
    let page = scene.hapax.page("/metrics");
    let took = start.elapsed();
    let series = page
        .lines()
        .filter(|line| line.starts_with("hapax_"))
        .count();
    // One of the fifty is the bystander's.
    assert!(page.contains("topic-48"), "its topics are named");
    assert!(!page.contains("topic-49"), "more than fifty are named");
    assert!(!page.contains(ACKNOWLEDGED), "a client id is a label");
    assert!(series <= SERIES_MAX, "{series} series");
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let rows = hapax::page(&scene.hapax.admin, "/api/v1/producers?limit=100000");
    assert!(rows.starts_with("HTTP/1.1 200"));
    scene
        .end(&format!(
            "{count} client ids write to {topics} topics, a producer each"
        ))
        .grew_by_at_most(count * 2048 + 2 * SLACK)
        .note(format!(
            "{series} series in {} KiB, scraped in {took:.0?}",
            page.len() >> 10
        ))
}
