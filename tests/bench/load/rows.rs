//! What is measured: one load a row, and who is measured under it.

use crate::kit::generator::{Load, Pace};
use crate::peers::Peer;

/// One line of the report.
pub(crate) struct Row {
    /// What `--rows` calls it.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) load: Load,
    pub(crate) field: Field,
    pub(crate) goal: Goal,
    /// Flags that hapax needs beyond its defaults.
    pub(crate) flags: &'static [&'static str],
}

/// Who is compared with whom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// hapax and every other peer with the limit.
    All,
    /// hapax alone with the limit: what the row varies is nothing to others.
    Limit,
    /// hapax with itself under the same load without repetitions.
    WithoutRepetitions,
    /// `--mode observe` with `--mode absorb`.
    Observe,
}

/// What hapax is to reach, as ratios.
#[derive(Clone, Copy, Default)]
pub(crate) struct Goal {
    /// At most.
    pub(crate) cpu: Option<f64>,
    /// At least.
    pub(crate) throughput: Option<f64>,
    /// At most.
    pub(crate) p50: Option<f64>,
    /// At most.
    pub(crate) p99: Option<f64>,
}

/// One of those that a row compares.
#[derive(Clone)]
pub(crate) struct Contestant {
    pub(crate) label: String,
    /// The label of the one that is the measure of this one.
    pub(crate) measure: Option<String>,
    pub(crate) peer: Peer,
    pub(crate) load: Load,
}

impl Row {
    fn new(name: &'static str, title: &'static str, load: Load) -> Self {
        Self {
            name,
            title,
            load,
            field: Field::All,
            goal: Goal::default(),
            flags: &[],
        }
    }

    fn against(mut self, field: Field) -> Self {
        self.field = field;
        self
    }

    fn goal(mut self, cpu: f64, throughput: f64) -> Self {
        self.goal.cpu = Some(cpu);
        self.goal.throughput = Some(throughput);
        self
    }

    /// Those compared, measures before what they measure.
    pub(crate) fn contestants(&self, peers: &[Peer]) -> Vec<Contestant> {
        let one = |label: &str, measure: Option<&str>, peer: &Peer, load: &Load| Contestant {
            label: label.to_owned(),
            measure: measure.map(str::to_owned),
            peer: peer.clone(),
            load: Load {
                version: peer.produce_version().unwrap_or(load.version),
                follow: peer.rewrites_addresses(),
                ..load.clone()
            },
        };
        let load = &self.load;
        let hapaxes = || peers.iter().filter(|peer| peer.is_hapax());
        match self.field {
            Field::All | Field::Limit => {
                let mut all = vec![
                    one(LIMIT, None, &Peer::Limit, load),
                    one(LIMIT_AGAIN, Some(LIMIT), &Peer::Limit, load),
                ];
                let wanted =
                    |peer: &&Peer| (self.field == Field::All || peer.is_hapax()) && peer.can(load);
                let others = peers.iter().filter(wanted);
                all.extend(others.map(|peer| one(peer.name(), Some(LIMIT), peer, load)));
                all
            }
            Field::WithoutRepetitions => hapaxes()
                .flat_map(|peer| {
                    let plain = Load {
                        again: 0,
                        ..load.clone()
                    };
                    let (name, without) = (peer.name(), format!("{} without", peer.name()));
                    [
                        one(&without, None, peer, &plain),
                        one(name, Some(&without), peer, load),
                    ]
                })
                .collect(),
            Field::Observe => hapaxes()
                .flat_map(|peer| {
                    let (name, observe) = (peer.name(), format!("{} observe", peer.name()));
                    [
                        one(name, None, peer, load),
                        one(&observe, Some(name), &peer.observing(), load),
                    ]
                })
                .collect(),
        }
    }
}

/// The copying proxy, and the same once more: how far apart two runs of one
/// program are is the noise of the machine.
pub(crate) const LIMIT: &str = "limit";
pub(crate) const LIMIT_AGAIN: &str = "limit again";

/// Rows that are not there yet, and what they wait for.
pub(crate) const LATER: &[(&str, &str)] = &[
    ("produce 1 KB, TLS upstream", "not measured yet"),
    ("produce 1 KB, TLS on both sides", "not measured yet"),
];

/// Every row.
pub(crate) fn all() -> Vec<Row> {
    let load = Load::default();
    let connections = |producers, depth| Load {
        producers,
        depth,
        ..load.clone()
    };
    let batches = |batch_bytes, producers, depth| Load {
        batch_bytes,
        ..connections(producers, depth)
    };
    let fan_out = |fan_out| Load {
        fan_out,
        ..load.clone()
    };
    let again = |again| Load {
        again,
        ..load.clone()
    };
    let windows = |windows| Load {
        windows,
        ..connections(10, 4)
    };
    let mut rows = vec![
        Row::new(
            "produce-1k",
            "produce 1 KB, 8 connections x 5",
            load.clone(),
        )
        .goal(1.0, 1.05),
        Row::new(
            "produce-1k-256",
            "produce 1 KB, 256 connections",
            connections(256, 1),
        )
        .goal(0.95, 1.05),
        Row::new(
            "produce-1k-1",
            "produce 1 KB, 1 connection x 5",
            connections(1, 5),
        ),
        Row::new(
            "produce-1k-2000",
            "produce 1 KB, 2,000 connections",
            connections(2000, 1),
        ),
        Row::new(
            "produce-16k",
            "produce 16 KB, 8 x 5",
            batches(16 * 1024, 8, 5),
        )
        .goal(1.0, 1.0),
        Row::new(
            "produce-1m",
            "produce 1 MB, 4 x 2",
            batches(1024 * 1024, 4, 2),
        )
        .goal(0.85, 1.0),
        Row::new(
            "fan-out-10",
            "produce 10 partitions x 1 KB, 8 x 5",
            fan_out(10),
        )
        .goal(1.15, 0.95),
        Row::new(
            "fan-out-100",
            "produce 100 partitions x 1 KB, 8 x 5",
            fan_out(100),
        ),
        Row::new("fetch-1m", "fetch 1 MB, 8 consumers", consumers(8, 0)).goal(0.9, 1.0),
        Row::new(
            "mixed",
            "produce 16 KB, 4 x 5, and as many bytes fetched by 4",
            consumers(4, 4),
        ),
        Row::new("acks-0", "produce 1 KB, acks=0, 8 connections", silent()),
        Row::new(
            "topic-ids",
            "produce 1 KB, 8 x 5, topic ids (version 13)",
            topic_ids(),
        ),
        Row::new("paced", "paced 2,000/s, one in flight", paced()),
        Row::new("again-1", "1% duplicates", again(1)).against(Field::WithoutRepetitions),
        Row::new("again-50", "50% duplicates", again(50)).against(Field::WithoutRepetitions),
        Row::new("windows-10", "10 windows, 10 x 4", windows(10)).against(Field::Limit),
        Row::new("windows-10k", "10,000 windows at random", windows(10_000)).against(Field::Limit),
        Row::new(
            "windows-1m",
            "1,000,000 windows at random",
            windows(1_000_000),
        )
        .against(Field::Limit),
        Row::new("observe", "observe against absorb", load).against(Field::Observe),
    ];
    for row in &mut rows {
        match row.name {
            "paced" => {
                row.goal.p50 = Some(1.2);
                row.goal.p99 = Some(1.5);
            }
            "again-1" => row.goal.cpu = Some(1.05),
            "observe" => row.goal.cpu = Some(1.02),
            "windows-1m" => row.flags = &["--sequence-max-windows=1100000"],
            _ => {}
        }
    }
    rows
}

fn consumers(consumers: usize, producers: usize) -> Load {
    Load {
        consumers,
        producers,
        batch_bytes: 16 * 1024,
        ..Load::default()
    }
}

fn silent() -> Load {
    Load {
        acks: 0,
        idempotent: false,
        ..Load::default()
    }
}

fn topic_ids() -> Load {
    Load {
        version: 13,
        ..Load::default()
    }
}

fn paced() -> Load {
    Load {
        pace: Pace::Paced(2000),
        ..Load::default()
    }
}

/// The load in small: for a run that only proves that everything works.
pub(crate) fn shorten(load: &mut Load) {
    load.warm_up = 0.05;
    load.seconds = 0.15;
    load.windows = load.windows.min(10_000);
    load.producers = load.producers.min(64);
}
