//! The report for a human.

use std::fmt::Write;

use crate::cli::exit;
use crate::config::printable;

use super::report::{BrokerRow, ClusterRow, PortRow, Reach, Report, Server, Severity};

/// The whole report. What came from the network cannot move a terminal's cursor.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    let state = match report.valid {
        true => "✓ valid",
        false => "✗ not valid",
    };
    line(&mut text, "configuration", state);
    servers(&mut text, &report.upstream);
    if let Some(cluster) = &report.cluster {
        line(&mut text, "cluster", &cluster_line(cluster));
    }
    if let Some(logged_in) = &report.logged_in {
        line(&mut text, "logged in", &format!("✓ as {logged_in}"));
    }
    brokers(&mut text, &report.brokers);
    ports(&mut text, &report.ports);
    if let Some(clients) = &report.clients {
        let servers = format!("bootstrap.servers={}", clients.bootstrap_servers);
        line(&mut text, "clients set", &servers);
        if let Some(protocol) = clients.security_protocol {
            line(&mut text, "", &format!("security.protocol={protocol}"));
        }
        for hint in &clients.hints {
            wrapped(&mut text, "", &format!("({hint})"));
        }
    }
    if report.valid && report.upstream.is_empty() {
        let not_tried = "the upstream, its brokers and the local ports: add --connect";
        line(&mut text, "not tried", not_tried);
    }
    problems(&mut text, report);
    if !report.upstream.is_empty() {
        text.push('\n');
        line(&mut text, "result", result(report));
    }
    text
}

fn result(report: &Report) -> &'static str {
    let cluster = report.cluster.as_ref();
    let sasl = cluster.is_some_and(|cluster| cluster.sasl_mechanisms.is_some());
    match report.exit_code {
        exit::DONE if sasl => "✓ nothing is wrong, as far as can be told without credentials",
        exit::DONE => "✓ clients get through to every broker",
        exit::UNAVAILABLE if report.brokers.is_empty() => {
            "✗ clients would not get through (exit 69)"
        }
        exit::UNAVAILABLE => "✗ clients would not get through to every broker (exit 69)",
        _ => "✗ hapax could not serve every client from here (exit 78)",
    }
}

fn servers(text: &mut String, servers: &[Server]) {
    let width = servers.iter().map(|s| s.address.chars().count()).max();
    let width = width.unwrap_or(0);
    for (at, server) in servers.iter().enumerate() {
        let head = if at == 0 { "upstream" } else { "" };
        let said = format!(
            "{:<width$}  {}",
            server.address,
            reach(&server.address, &server.reach)
        );
        line(text, head, &said);
    }
}

fn cluster_line(cluster: &ClusterRow) -> String {
    let mut said = match (&cluster.id, &cluster.sasl_mechanisms) {
        (Some(id), _) => format!("id {id}, "),
        (None, Some(_)) => "not told before authentication, ".to_owned(),
        (None, None) => String::new(),
    };
    if let Some(controller) = cluster.controller {
        let _ = write!(said, "controller {controller}, ");
    }
    let _ = write!(said, "answers like Kafka {} or newer", cluster.answers_like);
    said
}

fn brokers(text: &mut String, brokers: &[BrokerRow]) {
    if brokers.is_empty() {
        return;
    }
    let mut rows = vec![
        [
            "ID",
            "ADVERTISES",
            "HAPAX CONNECTS TO",
            "PORT OF HAPAX",
            "STATE",
        ]
        .map(str::to_owned),
    ];
    rows.extend(brokers.iter().map(|broker| {
        let port = broker
            .port
            .map_or_else(|| "none".to_owned(), |port| port.to_string());
        [
            broker.node.to_string(),
            printable(&broker.advertised),
            printable(&broker.reached_at),
            port,
            reach(&broker.reached_at, &broker.reach),
        ]
    }));
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for (at, row) in rows.iter().enumerate() {
        let mut cells = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(cells, "{cell:<width$}  ");
        }
        line(text, if at == 0 { "brokers" } else { "" }, &cells);
    }
}

fn ports(text: &mut String, ports: &[PortRow]) {
    let width = ports.iter().map(|p| p.address.chars().count()).max();
    let width = width.unwrap_or(0);
    for (at, port) in ports.iter().enumerate() {
        let state = match port.state {
            "free" => "✓ free".to_owned(),
            "hapax" => "✓ in use by the hapax that runs here".to_owned(),
            _ => format!("✗ taken: {}", list(&port.taken)),
        };
        let said = format!("{:<width$}  {state} ({})", port.address, port.flag);
        line(text, if at == 0 { "local ports" } else { "" }, &said);
    }
}

fn list(ports: &[u16]) -> String {
    const SHOWN: usize = 5;
    let shown = ports.iter().take(SHOWN).map(u16::to_string);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match ports.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

fn reach(address: &str, reach: &Reach) -> String {
    let resolved = resolved(address, reach);
    if let Some(fault) = &reach.fault {
        return format!("✗ {fault}{resolved}");
    }
    let at = reach.reached.as_deref().unwrap_or("?");
    let ms = |ms: Option<u128>| ms.unwrap_or(0);
    let sasl = match reach.state {
        "sasl" => ", wants SASL",
        _ => "",
    };
    format!(
        "✓ ok at {at}, connected in {} ms, answered in {} ms{sasl}{resolved}",
        ms(reach.connected_ms),
        ms(reach.answered_ms)
    )
}

/// What a name resolves to; nothing for an address.
fn resolved(address: &str, reach: &Reach) -> String {
    let host = address.trim_start_matches('[');
    match reach.resolved.as_slice() {
        [] => String::new(),
        [only] if host.starts_with(&**only) => String::new(),
        all => format!(" (resolves to {})", all.join(", ")),
    }
}

fn problems(text: &mut String, report: &Report) {
    for problem in &report.problems {
        let kind = match problem.severity {
            Severity::Warning => "warning",
            Severity::Unreachable | Severity::Configuration => "✗ problem",
        };
        text.push('\n');
        wrapped(text, kind, &problem.message);
        if !problem.advice.is_empty() {
            wrapped(text, "do", &problem.advice);
        }
    }
}

/// A sentence on as many lines as it needs. An option stays with its value, so
/// that it can be copied.
fn wrapped(text: &mut String, head: &str, sentence: &str) {
    let sentence = printable(sentence);
    let mut rows: Vec<String> = Vec::new();
    let mut last = "";
    for word in sentence.split(' ') {
        match rows.last_mut() {
            Some(row)
                if last.starts_with("--") || row.chars().count() + word.chars().count() < WIDTH =>
            {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
        last = word;
    }
    for (at, row) in rows.iter().enumerate() {
        line(text, if at == 0 { head } else { "" }, row);
    }
}

/// How wide a sentence is, beside its head.
const WIDTH: usize = 85;

/// A head and what it heads, in columns.
fn line(text: &mut String, head: &str, said: &str) {
    let line = format!("{head:<13}  {}", printable(said));
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_wrapped_and_an_option_stays_with_its_value() {
        let mut text = String::new();
        let value = "x".repeat(60);
        wrapped(
            &mut text,
            "do",
            &format!(
                "{} --upstream-address-map {value} and\u{1b} more",
                "word ".repeat(15).trim()
            ),
        );
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("do             word"), "{text}");
        assert!(
            lines[1]
                .trim_start()
                .starts_with("--upstream-address-map x"),
            "{text}"
        );
        assert!(lines[2].ends_with(r"and\u{1b} more"), "{text}");
    }
}
