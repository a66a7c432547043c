//! What is measured: every combination that the questions need.

use std::fmt;

/// What the producer asks of Kafka.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    AcksOne,
    AcksAll,
    Idempotent,
    Transactional,
}

/// How its bytes get there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Route {
    Direct,
    Hapax,
    /// A program that only copies bytes.
    Limit,
}

/// How much it sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Load {
    /// As much as Kafka takes, by ProducerPerformance.
    Flood,
    /// At a fixed rate, each record sent at once.
    Paced,
    /// The project's own generator: one-record batches, forty in flight.
    Raw(Batch),
}

/// How large the batches of the project's own generator are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Batch {
    Kilobyte,
    SixteenKilobytes,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cell {
    pub(crate) load: Load,
    pub(crate) nodes: usize,
    pub(crate) kind: Kind,
    pub(crate) route: Route,
}

/// How much of each load makes a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Records of a flood of one broker; three, which take longer, get half.
    pub(crate) flood: u32,
    /// Records of a flood whose speed does not count.
    pub(crate) warmup: u32,
    /// Records per second of a paced load.
    pub(crate) rate: u32,
    pub(crate) paced_s: u32,
    /// Seconds of the project's own generator that count.
    pub(crate) raw_s: f64,
}

/// Bytes of a record's value.
pub(crate) const RECORD: u32 = 1024;
pub(crate) const PARTITIONS: u32 = 3;
/// How long a transaction lasts.
pub(crate) const COMMIT_MS: u32 = 100;

impl Sizes {
    pub(crate) const FULL: Self = Self {
        flood: 240_000,
        warmup: 20_000,
        rate: 2_000,
        paced_s: 4,
        raw_s: 2.0,
    };
    pub(crate) const SMOKE: Self = Self {
        flood: 600,
        warmup: 100,
        rate: 300,
        paced_s: 1,
        raw_s: 0.2,
    };

    /// Records of the flood of so many brokers.
    pub(crate) fn flood(self, nodes: usize) -> u32 {
        if nodes == 1 {
            self.flood
        } else {
            self.flood / 2
        }
    }
}

pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for load in [Load::Flood, Load::Paced] {
        for nodes in [1, 3] {
            for kind in Kind::ALL {
                for route in routes(kind) {
                    cells.push(Cell {
                        load,
                        nodes,
                        kind,
                        route: *route,
                    });
                }
            }
        }
    }
    for batch in [Batch::Kilobyte, Batch::SixteenKilobytes] {
        cells.extend(Route::ALL.map(|route| Cell {
            load: Load::Raw(batch),
            nodes: 1,
            kind: Kind::Idempotent,
            route,
        }));
    }
    cells
}

/// The limit does not know one kind from another: two tell what is a proxy's
/// doing, whichever it is, with followers to wait for and without.
fn routes(kind: Kind) -> &'static [Route] {
    match kind {
        Kind::AcksOne | Kind::Idempotent => &Route::ALL,
        Kind::AcksAll | Kind::Transactional => &[Route::Direct, Route::Hapax],
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self::AcksOne,
        Self::AcksAll,
        Self::Idempotent,
        Self::Transactional,
    ];

    /// The producer's configuration, apart from a transactional id.
    pub(crate) fn properties(self) -> [&'static str; 2] {
        match self {
            Self::AcksOne => ["acks=1", "enable.idempotence=false"],
            Self::AcksAll => ["acks=all", "enable.idempotence=false"],
            Self::Idempotent | Self::Transactional => ["acks=all", "enable.idempotence=true"],
        }
    }
}

impl Route {
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Hapax, Self::Limit];
}

impl Cell {
    pub(crate) fn by(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// What every row of its table is compared with.
    pub(crate) fn baseline(self) -> Self {
        Self {
            kind: Kind::AcksAll,
            route: Route::Direct,
            ..self
        }
    }
}

impl Batch {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Kilobyte => 1 << 10,
            Self::SixteenKilobytes => 16 << 10,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AcksOne => "plain, acks=1",
            Self::AcksAll => "plain, acks=all",
            Self::Idempotent => "idempotent",
            Self::Transactional => "transactional",
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Hapax => "hapax",
            Self::Limit => "limit",
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flood => "flood",
            Self::Paced => "paced",
            Self::Raw(Batch::Kilobyte) => "raw-1k",
            Self::Raw(Batch::SixteenKilobytes) => "raw-16k",
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}x {} {}",
            self.load, self.nodes, self.kind, self.route
        )
    }
}
