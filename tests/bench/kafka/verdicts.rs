//! Whether hapax did anything but forward, by its own metrics.

use std::collections::BTreeMap;

use crate::cells::Kind;

/// `name{labels}` to value.
pub(crate) type Scrape = BTreeMap<String, f64>;

pub(crate) fn scrape(page: &str) -> Scrape {
    assert!(page.starts_with("HTTP/1.1 200"), "no metrics: {page}");
    let (_, text) = page.split_once("\r\n\r\n").expect("a body");
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
        .collect()
}

/// The series that moved, and by how much.
pub(crate) fn moved(before: &Scrape, after: &Scrape) -> Scrape {
    after
        .iter()
        .map(|(series, value)| {
            let by = value - before.get(series).unwrap_or(&0.0);
            (series.clone(), by)
        })
        .filter(|(_, by)| *by != 0.0)
        .collect()
}

/// Batches with this verdict among what moved.
pub(crate) fn batches(moved: &Scrape, verdict: &str) -> f64 {
    let series = format!("hapax_verdicts_total{{verdict=\"{verdict}\"}}");
    moved.get(&series).copied().unwrap_or_default()
}

/// Batches with any verdict but these.
pub(crate) fn batches_but(moved: &Scrape, verdicts: &[&str]) -> f64 {
    let all = moved.iter();
    let verdict = all.filter(|(series, _)| series.starts_with("hapax_verdicts_total{"));
    let all: f64 = verdict.map(|(_, by)| by).sum();
    all - verdicts
        .iter()
        .map(|verdict| batches(moved, verdict))
        .sum::<f64>()
}

/// The verdict that each batch of a healthy producer gets.
pub(crate) fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::AcksOne | Kind::AcksAll => "untracked",
        Kind::Idempotent | Kind::Transactional => "forwarded",
    }
}

/// What moved though nothing went wrong that could have moved it.
pub(crate) fn odd(moved: &Scrape, kind: Kind) -> Scrape {
    let verdict = format!("verdict=\"{}\"", expected(kind));
    let is_odd = |series: &str| {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        match name {
            "hapax_verdicts_total" => !labels.contains(&verdict),
            // Brokers refuse it while their coordinator loads.
            "hapax_requests_total" if labels.contains("api=\"init_producer_id\"") => false,
            "hapax_requests_total" => !labels.contains("outcome=\"ok\""),
            "hapax_client_disconnects_total" => !labels.contains("cause=\"client\""),
            _ => !HARMLESS.iter().any(|harmless| name.starts_with(harmless)),
        }
    };
    moved
        .iter()
        .filter(|(series, _)| is_odd(series))
        .map(|(series, by)| (series.clone(), *by))
        .collect()
}

/// Series that traffic without incidents moves.
const HARMLESS: &[&str] = &[
    "process_",
    // By topic what hapax_verdicts_total has without.
    "hapax_produce_",
    "hapax_received_bytes_total",
    "hapax_sent_bytes_total",
    "hapax_request_duration_seconds",
    "hapax_worker_delay_seconds",
    "hapax_memory_buffers_bytes",
    "hapax_client_connections",
    "hapax_upstream_connections",
    "hapax_broker_slots_used",
    "hapax_producers",
    "hapax_producer_ids_issued_total",
    "hapax_windows",
    "hapax_windows_bytes",
];
