//! The README says what is true: its metrics are those of the code.

#![expect(
    clippy::unwrap_used,
    reason = "a README that cannot be read must fail the test"
)]

use hapax::metrics::{Metrics, Side};
use std::collections::{BTreeMap, BTreeSet};

fn readme() -> String {
    file("README.md")
}

fn file(path: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    std::fs::read_to_string(format!("{root}/{path}")).unwrap()
}

/// Labels by metric, from the table of the README.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = readme();
    let rows = text.lines().filter(|line| line.starts_with("| `hapax_"));
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let name = cells.next().unwrap().trim_matches('`').to_owned();
        let labels = cells.next().unwrap().split(", ").map(str::to_owned);
        (name, labels.filter(|label| !label.is_empty()).collect())
    })
    .collect()
}

/// Labels by metric, from a scrape after a topic was seen.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = Metrics::new(10);
    let _topic = metrics.topic("orders");
    let _node = metrics.upstream_connections_of(None);
    metrics.show_dev_upstream();
    metrics.tls_certificate_expiry.with(Side::Client).set(1);
    let text = String::from_utf8(metrics.render()).unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("hapax_")) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            name.strip_suffix(suffix)
                .filter(|n| n.ends_with("_seconds"))
        });
        let labels = labels.trim_end_matches('}').split(',');
        let names = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        found
            .entry(family.unwrap_or(name).to_owned())
            .or_default()
            .extend(names.filter(|label| label != "le"));
    }
    found
}

#[test]
fn the_metrics_table_is_that_of_the_code() {
    let (documented, exported) = (documented(), exported());
    assert!(documented.len() > 30, "the table is not where it was");
    assert_eq!(documented, exported);
}

#[test]
fn the_experiments_are_quoted_as_they_were_printed() {
    let readme = readme();
    let (_, rest) = readme.split_once("<!-- experiments:begin -->\n").unwrap();
    let (quoted, _) = rest.split_once("<!-- experiments:end -->").unwrap();
    let printed = file("tests/results/experiments.md");
    assert_eq!(quoted, printed, "run `tests/run experiments`");
    for n in 1..=5 {
        let heading = format!("\n### {n}. ");
        assert_eq!(printed.matches(&heading).count(), 1, "experiment {n}");
    }
}

#[test]
fn the_load_benchmark_is_quoted_as_it_was_printed() {
    let readme = readme();
    let (_, rest) = readme.split_once("<!-- bench:begin -->\n").unwrap();
    let (quoted, _) = rest.split_once("<!-- bench:end -->").unwrap();
    let report = file("tests/results/bench.md");
    let (printed, details) = report.split_once("\n## Every row\n").unwrap();
    assert_eq!(quoted, printed, "run `tests/run bench`");
    assert!(details.contains("| produce 1 KB, 8 connections x 5 | "));
}

#[test]
fn the_rows_on_errors_are_those_of_hapax_explain() {
    let readme = readme();
    let (_, section) = readme.split_once("## When something is wrong").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section
        .lines()
        .filter(|row| row.starts_with("| ") && row.contains('`'));
    let mut seen = 0;
    for row in rows {
        let code = row[2..].split(' ').next().unwrap();
        let entry = hapax::explain::find(code).unwrap();
        let expected = format!(
            "| {code} `{}` | {} | {} |",
            entry.name,
            entry.says,
            entry.hint()
        );
        assert_eq!(row, expected);
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}
