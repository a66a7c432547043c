//! What came of it, in Markdown, and what of it must not be.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use crate::clients::Client;
use crate::faults::Fault;
use crate::ledger::Account;
use crate::watch::{Sample, Watch};

/// What must be at 0 once every client has gone.
pub(crate) const GONE: [&str; 5] = [
    "hapax_client_connections",
    "hapax_upstream_connections",
    "hapax_requests_in_flight",
    "hapax_held_requests",
    "hapax_orphan_sessions",
];
/// Memory may move by so much after the first third of the time, in KiB: an
/// allocator's pages, not a leak of something for each of thousands of faults.
const RSS_MAY_GROW: u64 = 4 * 1024;

/// Everything that a soak shows.
pub(crate) struct Report {
    pub(crate) minutes: u64,
    pub(crate) seed: u64,
    pub(crate) rate: u32,
    pub(crate) mode: String,
    pub(crate) flags: Vec<String>,
    pub(crate) accounts: Vec<Account>,
    pub(crate) made: BTreeMap<Fault, u32>,
    pub(crate) watch: Watch,
    pub(crate) end: End,
}

/// hapax before the first client and after the last.
pub(crate) struct End {
    pub(crate) before: Sample,
    pub(crate) after: Sample,
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) log: String,
}

impl Report {
    /// What is wrong; nothing where it is as it should be.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for account in &self.accounts {
            let of = format!("{:?} {}", account.produced.client, account.produced.topic);
            let mut check = |count: usize, what: &str| {
                if count > 0 {
                    wrong.push(format!("{of}: {count} {what}"));
                }
            };
            check(account.lost, "acknowledged records are not in the log");
            check(account.duplicates, "records are in the log again");
            check(account.reordered, "records are out of order");
            if gives_nothing_up(account.produced.client) {
                check(account.produced.failures.len(), "records were given up");
            }
            if let Some(crash) = &account.produced.crash {
                wrong.push(format!("{of} ended: {crash}"));
            }
            let told = account.produced.acknowledged.len() + account.produced.failures.len();
            if told as u64 != account.produced.sent {
                wrong.push(format!(
                    "{of}: {told} of {} records were told of",
                    account.produced.sent
                ));
            }
        }
        for gauge in GONE {
            let left = self.sum(gauge, "");
            if left > 0.0 {
                wrong.push(format!("{gauge} is {left} although no client is left"));
            }
        }
        let (accepted, ended) = self.connections();
        if accepted > ended {
            wrong.push(format!(
                "{accepted} connections were accepted and {ended} ended"
            ));
        }
        let End { before, after, .. } = &self.end;
        if after.descriptors > before.descriptors {
            wrong.push(format!(
                "{} descriptors are open, {} were before the first client",
                after.descriptors, before.descriptors
            ));
        }
        if after.threads > before.threads {
            wrong.push(format!(
                "{} threads run, {} ran before",
                after.threads, before.threads
            ));
        }
        let (early, late) = self.memory();
        if late > early + RSS_MAY_GROW {
            wrong.push(format!("memory grew from {early} to {late} KiB"));
        }
        let refused = self.sum("hapax_verdicts_total", "verdict=\"refused\"");
        if refused > 0.0 {
            wrong.push(format!(
                "{refused} batches of correct producers were refused"
            ));
        }
        if self.end.log.contains("panicked") {
            wrong.push("hapax panicked, see its log".to_owned());
        }
        wrong
    }

    /// Median memory in the second third of the time, and in the last tenth.
    fn memory(&self) -> (u64, u64) {
        (
            self.watch.median_rss(33, 66),
            self.watch.median_rss(90, 100),
        )
    }

    /// Client connections accepted, and ended.
    fn connections(&self) -> (f64, f64) {
        (
            self.sum("hapax_client_connections_accepted_total", ""),
            self.sum("hapax_client_disconnects_total", ""),
        )
    }

    /// The sum over all series of a metric that carry this label.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let series = self.end.metrics.iter();
        let series = series.filter(|(series, _)| series.split('{').next() == Some(name));
        let series = series.filter(|(series, _)| series.contains(label));
        series.map(|(_, value)| value).sum()
    }

    /// Values above 0 of a metric by its only label.
    fn by_label(&self, name: &str) -> String {
        let series = self.end.metrics.iter();
        let series = series
            .filter(|(series, value)| series.split('{').next() == Some(name) && **value > 0.0);
        let named = series.map(|(series, value)| {
            let label = series.split('"').nth(1).unwrap_or_default();
            format!("{label} {value}")
        });
        named.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn markdown(&self) -> String {
        let complaints = self.complaints();
        let mut text = format!(
            "Made by `tests/run soak` on {}, hapax {} at {}, {} minutes, `--seed {}`, on {} cores.\n",
            said("date", &["-u", "+%Y-%m-%d"]),
            env!("CARGO_PKG_VERSION"),
            said("git", &["rev-parse", "--short", "HEAD"]),
            self.minutes,
            self.seed,
            std::thread::available_parallelism().map_or(1, usize::from),
        );
        let flags = self.flags.iter().map(|flag| format!(" {flag}"));
        let _ = writeln!(
            text,
            "Three brokers (Kafka 4.4.0, `min.insync.replicas` 2) behind one hapax in mode {}{}, eight idempotent producers at {} records a second each, every one with three partitions of its own.\n",
            self.mode,
            flags.collect::<String>(),
            self.rate,
        );
        let _ = match complaints.as_slice() {
            [] => writeln!(text, "Everything held.\n"),
            wrong => writeln!(text, "What did not hold:\n\n- {}\n", wrong.join("\n- ")),
        };
        self.put_producers(&mut text);
        self.put_faults(&mut text);
        self.put_hapax(&mut text);
        text
    }

    fn put_producers(&self, text: &mut String) {
        text.push_str("## The log, read whole\n\n");
        text.push_str("| producer | sent | acknowledged | given up | in the log | lost | twice | out of order |\n");
        text.push_str("|---|--:|--:|--:|--:|--:|--:|--:|\n");
        for account in &self.accounts {
            let produced = &account.produced;
            let given_up = match account.failed_and_written {
                0 => produced.failures.len().to_string(),
                written => format!("{} ({written} written)", produced.failures.len()),
            };
            let _ = writeln!(
                text,
                "| {:?} | {} | {} | {given_up} | {} | {} | {} | {} |",
                produced.client,
                produced.sent,
                produced.acknowledged.len(),
                account.in_log,
                account.lost,
                account.duplicates,
                account.reordered,
            );
        }
        text.push_str(
            "\nsarama gives records up by itself where no broker answers its metadata requests in time, with and without a proxy (`circuit breaker is open`); of it only what it was told is held to the log.\n",
        );
        for account in &self.accounts {
            let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
            for (_, reason) in &account.produced.failures {
                // Ports differ from one connection to the next.
                let kind = reason.split("->").next().unwrap_or(reason);
                let kind = kind.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
                *reasons.entry(kind).or_default() += 1;
            }
            for (reason, count) in reasons {
                let _ = writeln!(
                    text,
                    "\n{:?} gave up {count}: {reason}",
                    account.produced.client
                );
            }
        }
    }

    fn put_faults(&self, text: &mut String) {
        text.push_str("\n## What went wrong meanwhile\n\n| fault | times |\n|---|--:|\n");
        for (fault, times) in &self.made {
            let _ = writeln!(text, "| {} | {times} |", fault.words());
        }
    }

    fn put_hapax(&self, text: &mut String) {
        let End { before, after, .. } = &self.end;
        let (early, late) = self.memory();
        let (accepted, ended) = self.connections();
        text.push_str("\n## hapax\n\n| | before the first client | most | after the last |\n|---|--:|--:|--:|\n");
        let most = |of: fn(&Sample) -> u64| self.watch.samples.iter().map(of).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "| resident memory, KiB | {} | {} | {} |",
            before.rss,
            most(|s| s.rss),
            after.rss
        );
        let _ = writeln!(
            text,
            "| descriptors | {} | {} | {} |",
            before.descriptors,
            most(|s| s.descriptors as u64),
            after.descriptors
        );
        let _ = writeln!(
            text,
            "| threads | {} | {} | {} |",
            before.threads,
            most(|s| s.threads),
            after.threads
        );
        let _ = writeln!(
            text,
            "\nMemory, median of the second third of the time: {early} KiB; of the last tenth: {late} KiB. Ten looks, one for each tenth: {}.",
            (0..10)
                .map(|tenth| self
                    .watch
                    .median_rss(10 * tenth, 10 * tenth + 10)
                    .to_string())
                .collect::<Vec<_>>()
                .join(", ")
        );
        let _ = writeln!(
            text,
            "\nConnections of clients: {accepted} accepted, {ended} ended ({}). Left: {}.",
            self.by_label("hapax_client_disconnects_total"),
            GONE.map(|gauge| format!("`{gauge}` {}", self.sum(gauge, "")))
                .join(", "),
        );
        let _ = writeln!(
            text,
            "\nBatches: {}.",
            self.by_label("hapax_verdicts_total")
        );
        let _ = writeln!(
            text,
            "\nSequence errors of brokers: {}. Events: {}. Gaps: {}. Epoch bumps: {}. Holds that expired: {}.",
            or_none(self.by_label("hapax_sequence_errors_total")),
            or_none(self.by_label("hapax_events_total")),
            or_none(self.by_label("hapax_gaps_total")),
            self.sum("hapax_producer_epoch_bumps_total", ""),
            self.sum("hapax_holds_expired_total", ""),
        );
    }
}

/// Whether a client tries again for as long as its delivery timeout lets it.
/// sarama does not: where no broker answers its metadata requests in time it
/// fails what it has, and what comes within ten seconds unsent.
fn gives_nothing_up(client: Client) -> bool {
    client != Client::Sarama
}

fn or_none(text: String) -> String {
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
