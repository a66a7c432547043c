//! The figures as Markdown: medians over the rounds, and of ratios the
//! quartiles too, since one round's absolute figures say little on a busy machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::cells::{COMMIT_MS, Cell, Kind, Load, PARTITIONS, RECORD, Route, Sizes};
use crate::spread::{median, summary};
use crate::verdicts;
use crate::world::Outcome;

/// Rounds of outcomes, and how they were made.
pub(crate) struct Report {
    rounds: Vec<Vec<Outcome>>,
    versions: String,
    sizes: Sizes,
    start: Instant,
    /// The load averages at the start and after each round, of one minute.
    loads: Vec<f64>,
}

type Figure = fn(&Outcome) -> f64;

impl Report {
    pub(crate) fn new(versions: String, sizes: Sizes) -> Self {
        Self {
            rounds: Vec::new(),
            versions,
            sizes,
            start: Instant::now(),
            loads: vec![load_average()],
        }
    }

    pub(crate) fn add(&mut self, round: Vec<Outcome>) {
        self.rounds.push(round);
        self.loads.push(load_average());
    }

    pub(crate) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.rounds.iter().flatten()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = self.head();
        text.push_str(&self.answers());
        for (load, nodes) in self.groups() {
            text.push_str(&self.table(load, nodes));
        }
        text.push_str(&self.conduct());
        text
    }

    fn head(&self) -> String {
        let Sizes {
            flood,
            warmup,
            rate,
            paced_s,
            raw_s,
        } = self.sizes;
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let loads: Vec<String> = self.loads.iter().map(f64::to_string).collect();
        format!(
            "# What idempotence costs, and what hapax adds to it

Made by `tests/run bench kafka --write` on {date}: {versions}, on {cores} cores that the client, the brokers and hapax share. {rounds} rounds after one that warms, each with the tables below, and the rows of each, in a new random order, {minutes} minutes in all; load averages at the start and after each round {loads}.

One warm client JVM (`-Xmx512m`) sends records of {RECORD} bytes to {PARTITIONS} partitions of a fresh topic, with the client's defaults but for what a row names; three brokers means replication factor 3 and `min.insync.replicas=2`. *Unlimited* is Kafka's own ProducerPerformance, {flood} records (with three brokers half as many) of which the first {warmup} do not count. *Paced* is {rate} records a second for {paced_s} s with `linger.ms=0`, and latency counts from when a record was due until its acknowledgement. The project's own generator keeps five idempotent batches of one record in flight on each of eight connections for {raw_s} s. Transactions are committed every {COMMIT_MS} ms. hapax runs in absorb mode as it comes; *limit* is a program that only copies bytes.

Figures are medians of the rounds. Ratios are taken within a round; behind their median are the quartiles, and bold are those where every round agrees that it is above 1, or below. CPU is that of the whole process by /proc, for a record (of the project's own generator a batch), for a request, or for a GB (10^9 bytes) of values.
",
            date = date(),
            versions = self.versions,
            rounds = self.rounds.len(),
            minutes = self.start.elapsed().as_secs() / 60,
            loads = loads.join(", "),
        )
    }

    /// What was measured together.
    fn groups(&self) -> Vec<(Load, usize)> {
        let cells = self.outcomes();
        let mut groups: Vec<_> = cells
            .map(|outcome| (outcome.cell.load, outcome.cell.nodes))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// What is asked of such a benchmark, each question on a line of its own.
    fn answers(&self) -> String {
        // Of so many coins thrown together, all fall alike once in so many throws.
        let alike = 1 << self.rounds.len().saturating_sub(1).min(30);
        let mut text = format!(
            "
## The answers

Ratios of records/s and of the median latency, as medians of the rounds with their quartiles. Bold is where every round says the same of which is larger, as chance alone would in one case of {alike}; the others are within the noise.

| | records/s, one broker | three brokers | p50 paced, one broker | three brokers |
|---|--:|--:|--:|--:|
"
        );
        for (question, cells) in questions() {
            let answers = [
                (Load::Flood, 1),
                (Load::Flood, 3),
                (Load::Paced, 1),
                (Load::Paced, 3),
            ]
            .map(|(load, nodes)| {
                let [of, to] = cells.map(|(kind, route)| Cell {
                    load,
                    nodes,
                    kind,
                    route,
                });
                self.ratio(of, to, pace(load))
            });
            writeln!(text, "| {question} | {} |", answers.join(" | ")).unwrap();
        }
        text
    }

    fn table(&self, load: Load, nodes: usize) -> String {
        let mut text = format!("\n## {}\n\n{}", title(load, nodes), columns(load));
        for kind in Kind::ALL {
            for route in Route::ALL {
                let cell = Cell {
                    load,
                    nodes,
                    kind,
                    route,
                };
                if self.figures(cell, |_| 0.0).is_empty() {
                    continue;
                }
                let mut row = self.speed(cell);
                row.extend(self.cpu(cell));
                writeln!(text, "| {kind} | {route} | {} |", row.join(" | ")).unwrap();
            }
        }
        text
    }

    fn speed(&self, cell: Cell) -> Vec<String> {
        let direct = cell.by(Route::Direct);
        let rate: Figure = |o| o.said.rate;
        let [p50, p99]: [Figure; 2] = [|o| o.said.p50_us, |o| o.said.p99_us];
        let milliseconds = |figure| format!("{:.2}", median(&self.figures(cell, figure)) / 1e3);
        match cell.load {
            Load::Flood => vec![
                format!("{:.0}", median(&self.figures(cell, rate))),
                self.ratio(cell, cell.baseline(), rate),
                self.ratio(cell, direct, rate),
            ],
            Load::Raw(_) => vec![
                format!("{:.0}", median(&self.figures(cell, rate))),
                self.ratio(cell, direct, rate),
                self.ratio(cell, cell.by(Route::Limit), rate),
            ],
            Load::Paced => vec![
                milliseconds(p50),
                milliseconds(p99),
                self.ratio(cell, cell.baseline(), p50),
                self.ratio(cell, direct, p50),
                self.ratio(cell, direct, p99),
            ],
        }
    }

    /// Microseconds a record of the client and the brokers, records a request,
    /// and then what concerns proxies only.
    fn cpu(&self, cell: Cell) -> Vec<String> {
        let figures: [Figure; 4] = [
            |o| o.per_record_us(o.used.client_cpu),
            |o| o.per_record_us(o.used.broker_cpu),
            Outcome::records_per_request,
            Outcome::proxy_us_per_request,
        ];
        let mut row: Vec<String> = figures
            .map(|figure| format!("{:.1}", median(&self.figures(cell, figure))))
            .into();
        let limit = cell.by(Route::Limit);
        row.push(self.ratio(cell, limit, Outcome::proxy_us_per_request));
        let per_gigabyte = self.figures(cell, Outcome::proxy_s_per_gigabyte);
        row.push(format!("{:.2}", median(&per_gigabyte)));
        if cell.route == Route::Direct {
            row[3..].fill(String::new());
        }
        row
    }

    fn figures(&self, cell: Cell, figure: Figure) -> Vec<f64> {
        let outcomes = self.rounds.iter().filter_map(|round| find(round, cell));
        outcomes.map(figure).collect()
    }

    /// The ratio within each round, as median and quartiles.
    fn ratio(&self, cell: Cell, to: Cell, figure: Figure) -> String {
        if cell == to {
            return "1".to_owned();
        }
        let within =
            |round: &Vec<Outcome>| Some(figure(find(round, cell)?) / figure(find(round, to)?));
        let ratios: Vec<f64> = self.rounds.iter().filter_map(within).collect();
        match ratios.is_empty() {
            true => String::new(),
            false => summary(&ratios),
        }
    }

    /// Whether anything but sending and acknowledging happened.
    fn conduct(&self) -> String {
        let mut text = String::from(
            "\n## What else happened\n\nOf the Java client in all rounds. Batches are those that hapax gave a verdict; `forwarded` and `untracked` (no idempotence) are what a healthy producer gets.\n\n| | | records | sent again | given up | in the log beyond those acknowledged | batches forwarded | untracked | any other verdict |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for kind in Kind::ALL {
            for route in Route::ALL {
                let all = self.outcomes();
                let these: Vec<&Outcome> = all
                    .filter(|o| o.cell.kind == kind && o.cell.route == route)
                    .filter(|o| !matches!(o.cell.load, Load::Raw(_)))
                    .collect();
                if !these.is_empty() {
                    let row = conduct_row(&these, route);
                    writeln!(text, "| {kind} | {route} | {} |", row.join(" | ")).unwrap();
                }
            }
        }
        text.push_str(&self.incidents());
        text
    }

    fn incidents(&self) -> String {
        let mut counts: BTreeMap<(String, Cell), f64> = BTreeMap::new();
        for outcome in self.outcomes() {
            for (incident, count) in outcome.incidents() {
                *counts.entry((incident, outcome.cell)).or_default() += count;
            }
        }
        let mut text = String::from(
            "\nWhat a run without any incident would not show, summed over the rounds:\n\n",
        );
        for ((incident, cell), count) in &counts {
            writeln!(text, "- {cell}: `{incident}`, {count}").unwrap();
        }
        if counts.is_empty() {
            text.push_str("- nothing\n");
        }
        text
    }
}

fn title(load: Load, nodes: usize) -> String {
    let brokers = if nodes == 1 {
        "one broker"
    } else {
        "three brokers"
    };
    match load {
        Load::Flood => format!("Unlimited, {brokers}"),
        Load::Paced => format!("Paced, {brokers}"),
        Load::Raw(batch) => format!(
            "The project's own generator, batches of {} bytes, {brokers}",
            batch.bytes()
        ),
    }
}

/// The head of a table.
fn columns(load: Load) -> String {
    let speed: &[&str] = match load {
        Load::Flood => &[
            "records/s",
            "to plain acks=all direct",
            "to the same direct",
        ],
        Load::Raw(_) => &["batches/s", "to direct", "to the limit"],
        Load::Paced => &[
            "p50 ms",
            "p99 ms",
            "p50 to plain acks=all direct",
            "p50 to the same direct",
            "p99 to the same direct",
        ],
    };
    let cpu = [
        "client CPU µs",
        "broker CPU µs",
        "records a request",
        "proxy CPU µs a request",
        "to the limit",
        "proxy CPU s/GB",
    ];
    let columns = [speed, &cpu].concat();
    format!(
        "| | | {} |\n|---|---|{}\n",
        columns.join(" | "),
        "--:|".repeat(columns.len())
    )
}

/// What a load is judged by.
fn pace(load: Load) -> Figure {
    match load {
        Load::Flood | Load::Raw(_) => |o| o.said.rate,
        Load::Paced => |o| o.said.p50_us,
    }
}

/// Each as what is divided by what.
fn questions() -> Vec<(String, [(Kind, Route); 2])> {
    let direct = |kind| (kind, Route::Direct);
    let mut questions = vec![
        (
            "acks=all instead of acks=1, direct".to_owned(),
            [Kind::AcksAll, Kind::AcksOne].map(direct),
        ),
        (
            "idempotence added to acks=all, direct".to_owned(),
            [Kind::Idempotent, Kind::AcksAll].map(direct),
        ),
        (
            "transactions added to idempotence, direct".to_owned(),
            [Kind::Transactional, Kind::Idempotent].map(direct),
        ),
    ];
    questions.extend(Kind::ALL.map(|kind| {
        let routes = [Route::Hapax, Route::Direct];
        (
            format!("hapax instead of direct, {kind}"),
            routes.map(|route| (kind, route)),
        )
    }));
    for kind in [Kind::AcksOne, Kind::Idempotent] {
        questions.extend([
            (
                format!("the limit instead of direct, {kind}"),
                [(kind, Route::Limit), (kind, Route::Direct)],
            ),
            (
                format!("hapax instead of the limit, {kind}"),
                [(kind, Route::Hapax), (kind, Route::Limit)],
            ),
        ]);
    }
    questions
}

fn conduct_row(outcomes: &[&Outcome], route: Route) -> Vec<String> {
    let sum = |figure: Figure| outcomes.iter().map(|o| figure(o)).sum::<f64>();
    let mut row = vec![
        sum(|o| f64::from(o.said.sent)),
        sum(|o| o.said.resent),
        sum(|o| o.said.errors),
        sum(|o| f64::from(o.surplus)),
    ];
    if route == Route::Hapax {
        let known = ["forwarded", "untracked"];
        row.extend([
            sum(|o| verdicts::batches(&o.moved, "forwarded")),
            sum(|o| verdicts::batches(&o.moved, "untracked")),
            outcomes
                .iter()
                .map(|o| verdicts::batches_but(&o.moved, &known))
                .sum(),
        ]);
    }
    let mut texts: Vec<String> = row.iter().map(|figure| format!("{figure:.0}")).collect();
    texts.resize(7, String::new());
    texts
}

fn find(round: &[Outcome], cell: Cell) -> Option<&Outcome> {
    round.iter().find(|outcome| outcome.cell == cell)
}

/// Of the last minute.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|load| load.parse().ok());
    first.unwrap_or(f64::NAN)
}

fn date() -> String {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let output = output.expect("date runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
