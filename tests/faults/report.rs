//! The results as Markdown: `tests/results/faults.md`, and its table in the README.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::judge::Counts;
use crate::producers::Client;
use crate::rows::Case;
use crate::scene::Way;

const BEGIN: &str = "<!-- faults:begin -->\n";
const END: &str = "<!-- faults:end -->";
const NEWEST: &str = "4.4.0";
const SECTION: &str = "## Where Kafka forgets";

/// All runs of one cell.
#[derive(Debug)]
pub(crate) struct Sum {
    pub(crate) case: Case,
    pub(crate) kafka: &'static str,
    pub(crate) client: Client,
    pub(crate) way: Way,
    pub(crate) runs: u32,
    pub(crate) counts: Counts,
    /// The date, and what was run.
    pub(crate) made: String,
}

const MADE: &str = " Run on ";

/// The file of results.
pub(crate) fn results_file() -> PathBuf {
    root().join("tests/results/faults.md")
}

/// The README.
pub(crate) fn readme_file() -> PathBuf {
    root().join("README.md")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Everything that was counted; `head` says when and with what.
pub(crate) fn results(head: &str, sums: &[Sum]) -> String {
    let mut text = format!("# The fault matrix\n\n{head}\n\n{METHOD}\n");
    let _ = write!(text, "\n{BEGIN}{}{END}\n", table(sums));
    for (case, kafka) in rows(sums) {
        let made = of(sums, case, kafka).next().map_or("", |sum| &sum.made);
        let _ = write!(
            text,
            "\n## {}, Kafka {kafka}\n\n{}.{MADE}{made}.\n\n\
            | client | way | runs | sent | acknowledged | duplicates | lost | reordered | given up | … in the log | not told of | misplaced | fatal | longest silence |\n\
            |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            case.id(),
            case.title(),
        );
        for sum in of(sums, case, kafka) {
            let counts = &sum.counts;
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                sum.client.title(),
                sum.way.title(),
                sum.runs,
                counts.sent,
                counts.acked,
                counts.duplicates,
                counts.lost,
                counts.reordered,
                counts.given_up,
                counts.given_up_in_log,
                counts.untold,
                counts.misplaced,
                counts.fatal,
                seconds(counts.stall),
            );
        }
        for sum in of(sums, case, kafka) {
            for reason in &sum.counts.reasons {
                let (client, way) = (sum.client.id(), sum.way.title());
                let _ = writeln!(text, "\n{client}, {way}: `{}`", reason.replace('`', "'"));
            }
        }
    }
    text
}

/// What an earlier page says of rows that were not run again.
pub(crate) fn earlier(page: &str, sums: &[Sum]) -> Vec<Sum> {
    let mut earlier: Vec<Sum> = Vec::new();
    for section in page.split("\n## ").skip(1) {
        let name = section.lines().next().unwrap_or_default();
        let all = Case::all().into_iter();
        let mut all = all.flat_map(|case| case.kafkas().iter().map(move |kafka| (case, *kafka)));
        let named = all.find(|(case, kafka)| name == format!("{}, Kafka {kafka}", case.id()));
        let Some((case, kafka)) = named else { continue };
        if of(sums, case, kafka).next().is_some() {
            continue;
        }
        let made = section.split_once(MADE).map_or("", |(_, rest)| rest);
        let made = made.split_once(".\n").map_or("", |(made, _)| made);
        let lines = section.lines();
        earlier.extend(lines.filter_map(|line| line_of(line, case, kafka, made)));
        for line in section.lines() {
            let known = earlier
                .iter_mut()
                .filter(|sum| (sum.case, sum.kafka) == (case, kafka));
            for sum in known {
                let head = format!("{}, {}: `", sum.client.id(), sum.way.title());
                let reason = line
                    .strip_prefix(&head)
                    .and_then(|line| line.strip_suffix('`'));
                sum.counts.reasons.extend(reason.map(str::to_owned));
            }
        }
    }
    earlier
}

/// The sum that a line of a section's table has been made of.
fn line_of(line: &str, case: Case, kafka: &'static str, made: &str) -> Option<Sum> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, client, way, numbers @ .., stall, _] = cells.as_slice() else {
        return None;
    };
    let mut clients = Client::ALL.into_iter().chain([Client::Raw]);
    let client = clients.find(|known| known.title() == *client)?;
    let way = Way::ALL.into_iter().find(|known| known.title() == *way)?;
    let numbers: Vec<u64> = numbers.iter().map_while(|n| n.parse().ok()).collect();
    let &[
        runs,
        sent,
        acked,
        duplicates,
        lost,
        reordered,
        given_up,
        given_up_in_log,
        untold,
        misplaced,
        fatal,
    ] = numbers.as_slice()
    else {
        return None;
    };
    let stall = Duration::from_secs_f64(stall.strip_suffix(" s")?.parse().ok()?);
    let counts = Counts {
        sent,
        acked,
        duplicates,
        lost,
        reordered,
        given_up,
        given_up_in_log,
        untold,
        misplaced,
        fatal,
        stall,
        reasons: Vec::new(),
    };
    Some(Sum {
        case,
        kafka,
        client,
        way,
        runs: u32::try_from(runs).ok()?,
        counts,
        made: made.to_owned(),
    })
}

/// A line for each row: what went wrong on each way, by client.
fn table(sums: &[Sum]) -> String {
    let ways: BTreeSet<Way> = sums.iter().map(|sum| sum.way).collect();
    let mut text = "| what happens |".to_owned();
    for way in &ways {
        let _ = write!(text, " {} |", way.title());
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(ways.len()));
    for case in Case::all() {
        for kafka in case.kafkas() {
            let note = match *kafka {
                NEWEST => String::new(),
                older => format!(" (Kafka {older})"),
            };
            let _ = write!(text, "| {}{note} |", case.title());
            for way in &ways {
                let cells = of(sums, case, kafka).filter(|sum| sum.way == *way);
                let _ = write!(text, " {} |", cell(&cells.collect::<Vec<_>>()));
            }
            text += "\n";
        }
    }
    text
}

/// What went wrong of one row on one way, and the longest silence.
fn cell(sums: &[&Sum]) -> String {
    if sums.is_empty() {
        return "–".to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    for sum in sums.iter().filter(|sum| !sum.counts.is_clean()) {
        let faults = sum.counts.faults().into_iter();
        let said: Vec<String> = faults
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let (client, sent) = (sum.client.id(), sum.counts.sent);
        parts.push(format!("{client}: {} of {sent}", said.join(", ")));
    }
    if parts.is_empty() {
        let sent: u64 = sums.iter().map(|sum| sum.counts.sent).sum();
        parts.push(format!("clean, of {sent}"));
    }
    let silences = sums.iter().map(|sum| sum.counts.stall);
    let silence = silences.max().unwrap_or_default();
    format!(
        "{}; silent for {} at most",
        parts.join("; "),
        seconds(silence)
    )
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn rows(sums: &[Sum]) -> Vec<(Case, &'static str)> {
    let mut rows = Vec::new();
    for sum in sums {
        if !rows.contains(&(sum.case, sum.kafka)) {
            rows.push((sum.case, sum.kafka));
        }
    }
    rows
}

fn of<'a>(sums: &'a [Sum], case: Case, kafka: &'a str) -> impl Iterator<Item = &'a Sum> {
    let chosen = move |sum: &&Sum| (sum.case, sum.kafka) == (case, kafka);
    sums.iter().filter(chosen)
}

/// What stands between the markers.
pub(crate) fn block(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (block, _) = rest.split_once(END)?;
    Some(block)
}

/// The README with the table of the results.
pub(crate) fn with_block(readme: &str, results: &str) -> String {
    let new = block(results).expect("results have a table");
    let old = block(readme).unwrap_or_else(|| panic!("{SECTION} has no table"));
    let (old, new) = (format!("{BEGIN}{old}{END}"), format!("{BEGIN}{new}{END}"));
    readme.replace(&old, &new)
}

const METHOD: &str = "\
A run of a row has fresh topics on a cluster of three nodes (replication 3, `min.insync.replicas` 2), a fresh hapax in front of it, \
and every client at work twice at the same time, direct and through hapax, with a topic of three partitions each: \
120 numbered records a second (kafka-python 40), several small batches in flight. Further ways, with Java and librdkafka alone, are hapaxes of \
their own on the same cluster: with `sequence.shield45`, and where the ACLs of the topic let its producer write and not read. On fresh \
partitions two clients work at a time: with all of them brokers on two cores answer later than clients wait, and the machine is compared. The row's faults strike both ways at once. \
Then everything is counted from the log itself, read from its leaders, against what the client was told of each record.\n\n\
Duplicates: records in the log again. Lost: acknowledged, and not in the log. Reordered: in the log before one that was \
sent earlier to the same partition. Given up: reported to the application as not written; some may be written all the same. \
Not told of: neither acknowledged nor given up. Misplaced: acknowledged at an offset that holds another record. \
Fatal: the client could not go on. A dash: not run, or there is no such thing that way. The longest silence is the longest time between two acknowledgements of one partition \
(a shared machine's: compare within a row).\n\n\
What a run need not show. On a fresh partition hapax orders what it has read: where a client sends a partition's first batch on a busy connection and the next on another one, \
the second can be read first, and of a producer that hapax does not know yet any batch may be the first.";
