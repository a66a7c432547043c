//! The report: medians of ratios within rounds, with how far they spread.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use crate::kit::generator::{Outcome, Pace};
use crate::measure::{Cell, Plan, Standing};
use crate::peers::Peer;
use crate::rows::{Field, LATER, LIMIT, LIMIT_AGAIN, Row};

/// What was measured, as Markdown.
pub(crate) struct Report {
    /// For the README.
    short: String,
    /// What the whole report says beyond that.
    details: String,
    own_failures: Vec<String>,
}

const BEGIN: &str = "<!-- bench:begin -->\n";
const END: &str = "<!-- bench:end -->";
/// Above the part of the file that the README does not quote.
const DETAILS: &str = "\n## Every row\n";

impl Report {
    pub(crate) fn new(plan: &Plan, cells: &[Cell], standing: &[Standing]) -> Self {
        let figures = Figures::of(plan, cells);
        let mut short = head(plan, cells, &figures);
        short += &overview(plan, &figures);
        short += &standing_table(standing);
        short += &windows_line(cells);
        let mut details = String::from(DETAILS);
        details += &own_table(plan, &figures);
        details += &others_table(plan, &figures);
        details += &footing(plan, cells);
        let own = |cell: &&Cell| cell.result.is_err() && is_own(plan, &cell.label);
        let own_failures = cells.iter().filter(own).map(failure).collect();
        Self {
            short,
            details,
            own_failures,
        }
    }

    pub(crate) fn full(&self) -> String {
        format!("{}{}", self.short, self.details)
    }

    /// What went wrong with hapax or the limit.
    pub(crate) fn own_failures(&self) -> &[String] {
        &self.own_failures
    }

    /// Puts it where it is kept.
    pub(crate) fn write(&self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::write(root.join("tests/results/bench.md"), self.full()).unwrap();
        let path = root.join("README.md");
        let readme = fs::read_to_string(&path).unwrap();
        let (before, rest) = readme.split_once(BEGIN).expect("where it begins");
        let (_, after) = rest.split_once(END).expect("where it ends");
        let short = &self.short;
        fs::write(path, format!("{before}{BEGIN}{short}{END}{after}")).unwrap();
    }
}

fn is_own(plan: &Plan, label: &str) -> bool {
    let hapax = plan.peers.iter().filter(|peer| peer.is_hapax());
    label.starts_with(LIMIT) || hapax.into_iter().any(|peer| label.starts_with(peer.name()))
}

fn failure(cell: &Cell) -> String {
    let error = cell.result.as_ref().err().map_or("", String::as_str);
    let line = error.lines().next().unwrap_or_default();
    format!(
        "{}, {}, round {}: {line}",
        cell.row,
        cell.label,
        cell.round + 1
    )
}

/// Ratios of all rounds.
#[derive(Default)]
struct Spread(Vec<f64>);

impl Spread {
    fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            return Some(sorted[middle]);
        }
        (middle > 0).then(|| f64::midpoint(sorted[middle - 1], sorted[middle]))
    }

    fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    fn short(&self) -> String {
        or_dash(self.median().map(|median| format!("{median:.2}")))
    }

    fn long(&self) -> String {
        if self.0.is_empty() {
            return "–".into();
        }
        format!("{} ({:.2}–{:.2})", self.short(), self.least(), self.most())
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// A contestant's ratios to its measure.
#[derive(Default)]
struct Ratios {
    cpu: Spread,
    throughput: Spread,
    p50: Spread,
    p99: Spread,
}

/// By row and label.
struct Figures<'a> {
    ratios: BTreeMap<(&'a str, String), Ratios>,
    /// Absolute figures: CPU microseconds a request, requests a second.
    absolute: BTreeMap<(&'a str, String), (Spread, Spread)>,
}

impl<'a> Figures<'a> {
    fn of(plan: &'a Plan, cells: &[Cell]) -> Self {
        let found = |row: &str, round, label: &str| {
            let same = |cell: &&Cell| cell.row == row && cell.round == round && cell.label == label;
            cells.iter().find(same)?.result.as_ref().ok()
        };
        let mut all = Self {
            ratios: BTreeMap::new(),
            absolute: BTreeMap::new(),
        };
        for row in &plan.rows {
            for contestant in row.contestants(&plan.peers) {
                let key = (row.name, contestant.label.clone());
                for round in 0..plan.rounds {
                    let Some(own) = found(row.name, round, &contestant.label) else {
                        continue;
                    };
                    let (cpu, throughput) = all.absolute.entry(key.clone()).or_default();
                    cpu.0.push(cpu_of(own));
                    throughput.0.push(throughput_of(own));
                    let measure = contestant.measure.as_deref();
                    let Some(measure) = measure.and_then(|of| found(row.name, round, of)) else {
                        continue;
                    };
                    let ratios = all.ratios.entry(key.clone()).or_default();
                    ratios.cpu.0.push(cpu_of(own) / cpu_of(measure));
                    let more = throughput_of(own) / throughput_of(measure);
                    ratios.throughput.0.push(more);
                    if matches!(row.load.pace, Pace::Paced(_)) {
                        ratios.p50.0.push(own.p50 / measure.p50);
                        ratios.p99.0.push(own.p99 / measure.p99);
                    }
                }
            }
        }
        all
    }

    fn ratios(&self, row: &'a Row, label: &str) -> Option<&Ratios> {
        self.ratios.get(&(row.name, label.to_owned()))
    }

    fn median_of(&self, row: &'a Row, label: &str) -> Option<(f64, f64)> {
        let (cpu, throughput) = self.absolute.get(&(row.name, label.to_owned()))?;
        Some((cpu.median()?, throughput.median()?))
    }
}

fn cpu_of(outcome: &Outcome) -> f64 {
    outcome.cpu[0] as f64 / 1e3 / outcome.requests as f64
}

fn throughput_of(outcome: &Outcome) -> f64 {
    outcome.requests as f64 / outcome.seconds
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn head(plan: &Plan, cells: &[Cell], figures: &Figures<'_>) -> String {
    let (date, kernel) = (said("date", &["-u", "+%F"]), said("uname", &["-r"]));
    let cores = available_parallelism().unwrap();
    let load = Spread(cells.iter().map(|cell| cell.load_average).collect());
    let noise: Vec<f64> = figures
        .ratios
        .iter()
        .filter(|((_, label), _)| label == LIMIT_AGAIN)
        .flat_map(|(_, ratios)| ratios.cpu.0.iter().map(|ratio| (ratio - 1.0).abs()))
        .collect();
    let noise = Spread(noise).median().unwrap_or_default() * 100.0;
    let versions: Vec<String> = plan.peers.iter().map(Peer::version).collect();
    format!(
        "Made by `tests/run bench` on {date}: {}; {cores} cores, Linux {kernel}, load average {:.1} \
         to {:.1}; {} rounds of {} s, interleaved in random order, all over loopback. Noise: two runs \
         of the limit in one round differ by {noise:.0}% in CPU per request (median).\n\n",
        versions.join("; "),
        load.least(),
        load.most(),
        plan.rounds,
        plan.seconds,
    )
}

/// Figures of proxies that no registry has, measured in the same manner:
/// against the same limit, CPU and throughput, where paced p50 and p99.
const DATED: &[(&str, &str, &str)] = &[
    ("produce-1k", "15.10, 0.11", "18.90, 0.23"),
    ("produce-1k-256", "3.94, 0.41", "3.59, 0.74"),
    ("produce-16k", "9.38, 0.13", "11.48, 0.30"),
    ("produce-1m", "4.26, 0.37", "7.98, 0.18"),
    ("paced", "2.44, 2.46", "1.47, 1.58"),
];

/// hapax and the others in the rows that all take part in.
fn overview(plan: &Plan, figures: &Figures<'_>) -> String {
    let mut text = String::from(
        "Ratios to a program that only copies bytes, on the same load in the same round (medians): \
         CPU of the proxy per request, throughput.\n\n| |",
    );
    for peer in &plan.peers {
        write!(text, " {} |", peer.name()).unwrap();
    }
    text += " kafka-proxy ¹ | Kroxylicious ¹ |\n|---|";
    text += &"--:|".repeat(plan.peers.len() + 2);
    text += "\n";
    for row in plan.rows.iter().filter(|row| row.field == Field::All) {
        write!(text, "| {} |", row.title).unwrap();
        for peer in &plan.peers {
            let pair = or_dash(figures.ratios(row, peer.name()).map(pair));
            write!(text, " {pair} |").unwrap();
        }
        let dated = DATED.iter().find(|(name, _, _)| *name == row.name);
        let (_, first, second) = dated.unwrap_or(&("", "–", "–"));
        writeln!(text, " {first} | {second} |").unwrap();
    }
    text += "\nIn the paced row: time to the answer, p50 and p99. haproxy and Envoy forward TCP; \
             shotover gets Produce version 9, at 12 it writes an error to its log for every message. \
             ¹ No registry has them: kafka-proxy 0.4.3 and Kroxylicious 0.23.0 as measured on \
             2026-11-29 in this manner, on another day and against an equal limit.\n\n";
    text
}

fn pair(ratios: &Ratios) -> String {
    if ratios.p50.0.is_empty() {
        format!("{}, {}", ratios.cpu.short(), ratios.throughput.short())
    } else {
        format!("{}, {}", ratios.p50.short(), ratios.p99.short())
    }
}

fn standing_table(standing: &[Standing]) -> String {
    let mut text = String::from(
        "| | start to first connection | idle memory | memory of 1,000 connections ² | program, stripped |\n\
         |---|--:|--:|--:|--:|\n",
    );
    for one in standing {
        let start = Spread(one.start.clone()).median().unwrap_or_default();
        let mib = |mib: &f64| format!("{mib:.1} MiB");
        let connections = or_dash(one.connections_mib.as_ref().ok().map(mib));
        let program = or_dash(one.program_mib.as_ref().map(mib));
        let (name, idle) = (&one.name, one.idle_mib);
        writeln!(
            text,
            "| {name} | {start:.0} ms | {idle:.1} MiB | {connections} | {program} |"
        )
        .unwrap();
    }
    text += "\n² Each has sent one request of 1 KB.\n";
    text
}

/// What a million windows take, where that row was measured.
fn windows_line(cells: &[Cell]) -> String {
    let of_row = cells
        .iter()
        .filter(|cell| cell.row == "windows-1m" && cell.label == "hapax");
    let grown = of_row.filter_map(|cell| {
        let outcome = cell.result.as_ref().ok()?;
        let (now, then) = (outcome.resident[0], outcome.resident_before[0]);
        Some((now as f64 - then as f64) / 1024.0)
    });
    let grown = Spread(grown.collect()).median();
    let line = grown.map(|mib| format!("\nA million windows take hapax {mib:.0} MiB.\n"));
    line.unwrap_or_default()
}

/// hapax in every row, with what it was to reach.
fn own_table(plan: &Plan, figures: &Figures<'_>) -> String {
    let mut text = String::from(
        "\nMedians of the ratios of every round, in brackets the least and the greatest. The measure is \
         the limit, unless the row says another.\n\n\
         | | CPU per request | throughput | to reach | limit against itself: CPU | the measure: CPU, requests/s |\n\
         |---|--:|--:|---|--:|--:|\n",
    );
    for row in &plan.rows {
        for contestant in row.contestants(&plan.peers) {
            let Some(measure) = contestant.measure.filter(|_| contestant.peer.is_hapax()) else {
                continue;
            };
            let Some(ratios) = figures.ratios(row, &contestant.label) else {
                continue;
            };
            let mut title = row.title.to_owned();
            if contestant.label != "hapax" {
                title = format!("{title}: {}", contestant.label);
            }
            if measure != LIMIT {
                title = format!("{title} (to {measure})");
            }
            let mut values = [ratios.cpu.long(), ratios.throughput.long()];
            if !ratios.p50.0.is_empty() {
                let [p50, p99] = [ratios.p50.long(), ratios.p99.long()];
                values[1] = format!("p50 {p50}, p99 {p99}");
            }
            let again = figures.ratios(row, LIMIT_AGAIN);
            let again = or_dash(again.map(|again| again.cpu.long()));
            let absolute = figures.median_of(row, &measure);
            let absolute =
                or_dash(absolute.map(|(cpu, throughput)| format!("{cpu:.2} µs, {throughput:.0}")));
            let [cpu, throughput] = values;
            let goal = goal(row, ratios);
            writeln!(
                text,
                "| {title} | {cpu} | {throughput} | {goal} | {again} | {absolute} |"
            )
            .unwrap();
        }
    }
    for (title, waits) in LATER {
        writeln!(text, "| {title} | – | – | {waits} | – | – |").unwrap();
    }
    text
}

/// The goal of a row, and whether it was missed.
fn goal(row: &Row, ratios: &Ratios) -> String {
    let all = [
        ("CPU", "≤", row.goal.cpu, &ratios.cpu),
        ("throughput", "≥", row.goal.throughput, &ratios.throughput),
        ("p50", "≤", row.goal.p50, &ratios.p50),
        ("p99", "≤", row.goal.p99, &ratios.p99),
    ];
    let mut parts = Vec::new();
    for (what, sign, goal, ratios) in all {
        let (Some(goal), Some(reached)) = (goal, ratios.median()) else {
            continue;
        };
        let missed = if sign == "≤" {
            reached > goal
        } else {
            reached < goal
        };
        let verdict = if missed { " **missed**" } else { "" };
        parts.push(format!("{what} {sign} {goal:.2}{verdict}"));
    }
    parts.join(", ")
}

/// The others with their spread.
fn others_table(plan: &Plan, figures: &Figures<'_>) -> String {
    let others: Vec<&Peer> = plan.peers.iter().filter(|peer| !peer.is_hapax()).collect();
    if others.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## The others\n\nCPU per request; throughput, or p50 and p99 where paced.\n\n| |",
    );
    for peer in &others {
        write!(text, " {} |", peer.name()).unwrap();
    }
    text += "\n|---|";
    text += &"--:|".repeat(others.len());
    text += "\n";
    for row in plan.rows.iter().filter(|row| row.field == Field::All) {
        write!(text, "| {} |", row.title).unwrap();
        for peer in &others {
            let Some(ratios) = figures.ratios(row, peer.name()) else {
                text += " – |";
                continue;
            };
            let cpu = ratios.cpu.long();
            let more = if ratios.p50.0.is_empty() {
                ratios.throughput.long()
            } else {
                format!("{}, {}", ratios.p50.long(), ratios.p99.long())
            };
            write!(text, " {cpu}; {more} |").unwrap();
        }
        text += "\n";
    }
    text
}

fn footing(plan: &Plan, cells: &[Cell]) -> String {
    let mut text = String::from(
        "\n## How\n\n\
         The load generator, the upstream and the limit are processes of `tests/bench/load`; the upstream \
         acknowledges and drops records in the kernel where they are 8 KiB or more. Every answer is checked: \
         order, error code, partition, offset, for a repetition the offset of the first; the upstream's count \
         of batches must be what was sent less what was absorbed. CPU is the scheduler's sum over the proxy's \
         threads between the warm-up and the end. The limit is tokio's `copy_bidirectional_with_sizes` with \
         256 KiB each way on two workers. hapax runs as it is released, `absorb` and metrics on, with its \
         defaults but for ports",
    );
    for row in plan.rows.iter().filter(|row| !row.flags.is_empty()) {
        write!(text, ", and `{}` in \"{}\"", row.flags.join(" "), row.title).unwrap();
    }
    text += ". With acks=0 one request in 64 asks for an answer. Of a mixed load, consumers get as many bytes \
             as producers have sent.\n";
    let failures: Vec<String> = cells
        .iter()
        .filter(|cell| cell.result.is_err())
        .map(failure)
        .collect();
    if !failures.is_empty() {
        text += "\nLeft out, because an answer was wrong or missing:\n\n";
        for failure in failures {
            writeln!(text, "- {failure}").unwrap();
        }
    }
    text
}
