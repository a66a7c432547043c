//! The cells of one Kafka version: clients and operations, each direct and
//! through hapax, run against one cluster.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

use crate::judge::{self, RECORDS, TRANSACTION};
use crate::kafka::{Batch, Kafka};
use crate::old_versions;
use crate::programs::{Client, Operation};
use crate::support::hapax::{self, Hapax};

/// The versions, newest first.
pub(crate) const KAFKAS: [&str; 5] = ["4.4.0", "4.0.2", "3.9.1", "3.3.2", "2.8.2"];

/// What groups read, written by one client that goes direct.
const SEED: &str = "seed";
/// So small that producers which heed it have several batches in flight.
const SMALL_BATCH: &str = "512";
/// How many records are added before a group goes on.
const MORE: u64 = 30;

/// A client and an operation, run both ways against one Kafka.
pub(crate) struct Cell {
    pub(crate) kafka: &'static str,
    pub(crate) client: Client,
    pub(crate) operation: Operation,
    pub(crate) direct: Outcome,
    pub(crate) hapax: Outcome,
    /// Batches of this cell that hapax counted as it should.
    pub(crate) counted: u64,
}

/// Nothing to say, or what went wrong.
pub(crate) type Outcome = Result<(), String>;

impl Cell {
    pub(crate) fn is_good(&self) -> bool {
        self.direct.is_ok() && self.hapax.is_ok()
    }

    /// What must not be: the ways differ, or both fail and nobody knows why.
    pub(crate) fn complaint(&self) -> Option<String> {
        let cell = format!(
            "{}, {}, Kafka {}",
            self.client.title(),
            self.operation.name(),
            self.kafka
        );
        match (&self.direct, &self.hapax) {
            (Ok(()), Ok(())) => None,
            (Ok(()), Err(error)) => Some(format!("{cell}: only through hapax: {error}")),
            (Err(error), Ok(())) => Some(format!("{cell}: only direct: {error}")),
            (Err(error), Err(_)) => match self.known() {
                Some(_) => None,
                None => Some(format!("{cell}: both ways, for no known reason: {error}")),
            },
        }
    }

    /// Why the client and this Kafka do not go together, with or without hapax.
    pub(crate) fn known(&self) -> Option<&'static str> {
        None
    }
}

/// The cells of these clients and operations that the clients offer.
pub(crate) fn offered(clients: &[Client], operations: &[Operation]) -> Vec<(Client, Operation)> {
    let pairs = clients
        .iter()
        .flat_map(|client| operations.iter().map(|operation| (*client, *operation)));
    pairs
        .filter(|(client, operation)| client.offers(*operation))
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Direct,
    Hapax,
}

/// What a cell's run on one route gave so far.
struct Run {
    client: Client,
    operation: Operation,
    route: Route,
    lines: Result<Vec<Value>, String>,
}

impl Run {
    fn topic(&self) -> String {
        topic(self.client, self.operation, self.route)
    }
}

fn topic(client: Client, operation: Operation, route: Route) -> String {
    let route = match route {
        Route::Direct => "direct",
        Route::Hapax => "hapax",
    };
    format!("{}-{}-{route}", client.id(), operation.name())
}

/// Boots a Kafka and hapax and runs the cells; gives them with what differs
/// in the answers that no cell shows.
pub(crate) fn run(kafka: &'static str, cells: &[(Client, Operation)]) -> (Vec<Cell>, Vec<String>) {
    let start = Instant::now();
    let world = World::start(kafka);
    world.create_topics(cells);
    world.seed(0, RECORDS);
    println!("Kafka {kafka} serves after {:.0?}", start.elapsed());
    let mut runs: Vec<Run> = Vec::new();
    for (client, operation) in cells {
        let begun = Instant::now();
        runs.extend(world.both(*client, *operation, 0, RECORDS));
        println!(
            "  {:<20} {:<14} {:.1?}",
            client.id(),
            operation.name(),
            begun.elapsed()
        );
    }
    world.seed(RECORDS, MORE);
    world.resume(&mut runs);
    let cells = world.judge(kafka, runs);
    let mut complaints: Vec<String> = cells.iter().filter_map(Cell::complaint).collect();
    let differing = old_versions::complaints(&world, SEED);
    complaints.extend(
        differing
            .iter()
            .map(|text| format!("Kafka {kafka}: {text}")),
    );
    println!(
        "Kafka {kafka}: {} cells, {:.0?}",
        cells.len(),
        start.elapsed()
    );
    (cells, complaints)
}

/// A Kafka and hapax in front of it.
pub(crate) struct World {
    pub(crate) kafka: Kafka,
    pub(crate) hapax: Hapax,
}

impl World {
    pub(crate) fn start(version: &str) -> Self {
        let kafka = Kafka::start(version);
        let flags = [
            "--upstream-address-map",
            &kafka.address_map(),
            "--metrics-max-topics",
            "500",
        ];
        let hapax = hapax::start(&kafka.front(), "absorb", &flags);
        Self { kafka, hapax }
    }

    fn bootstrap(&self, route: Route) -> String {
        match route {
            Route::Direct => self.kafka.bootstrap(),
            Route::Hapax => self.hapax.bootstrap.clone(),
        }
    }

    fn create_topics(&self, cells: &[(Client, Operation)]) {
        let mut names = vec![SEED.to_owned()];
        for (client, operation) in cells {
            if *operation != Operation::Group {
                names.push(topic(*client, *operation, Route::Direct));
                names.push(topic(*client, *operation, Route::Hapax));
            }
        }
        self.kafka.create_topics(&names);
    }

    fn seed(&self, first: u64, count: u64) {
        let arguments = [
            "produce",
            "--topic",
            SEED,
            "--partitions",
            "3",
            "--first",
            &first.to_string(),
            "--count",
            &count.to_string(),
        ];
        let seeded = Client::ConfluentPython.run(&self.kafka.bootstrap(), &arguments);
        seeded.expect("the records for the groups are written");
    }

    /// A cell on both routes at once.
    fn both(&self, client: Client, operation: Operation, first: u64, count: u64) -> [Run; 2] {
        let run = |route| Run {
            client,
            operation,
            route,
            lines: self.one(client, operation, route, first, count),
        };
        std::thread::scope(|scope| {
            let direct = scope.spawn(|| run(Route::Direct));
            let hapax = run(Route::Hapax);
            [direct.join().expect("the other route's run"), hapax]
        })
    }

    fn one(
        &self,
        client: Client,
        operation: Operation,
        route: Route,
        first: u64,
        count: u64,
    ) -> Result<Vec<Value>, String> {
        let name = topic(client, operation, route);
        let count = count.to_string();
        let transaction = TRANSACTION.to_string();
        let arguments: &[&str] = match operation {
            Operation::Plain => &["produce", "--count", &count, "--idempotence", "false"],
            Operation::Idempotent => &["produce", "--count", &count],
            Operation::Transactional => &[
                "transact",
                "--count",
                &transaction,
                "--transactional-id",
                &name,
            ],
            Operation::Group => &["consume", "--count", &count, "--group", &name],
        };
        let mut all = arguments.to_vec();
        match operation {
            Operation::Group => all.extend(["--topic", SEED]),
            Operation::Plain | Operation::Idempotent | Operation::Transactional => {
                all.extend(["--topic", &name, "--partitions", "3"]);
                all.extend(["--batch-bytes", SMALL_BATCH]);
            }
        }
        let lines = client.run(&self.bootstrap(route), &all)?;
        if operation == Operation::Group {
            judge::consumed(&lines, first, count.parse().expect("a number"))?;
        }
        Ok(lines)
    }

    /// The groups that have read everything read what came since.
    fn resume(&self, runs: &mut [Run]) {
        for pair in runs.chunks_mut(2) {
            let (client, operation) = (pair[0].client, pair[0].operation);
            if operation == Operation::Group && pair.iter().all(|run| run.lines.is_ok()) {
                for (run, again) in pair
                    .iter_mut()
                    .zip(self.both(client, operation, RECORDS, MORE))
                {
                    run.lines = again.lines.map_err(|error| format!("second run: {error}"));
                }
            }
        }
    }

    fn judge(&self, kafka: &'static str, runs: Vec<Run>) -> Vec<Cell> {
        let logs = self.kafka.logs();
        let mut cells = Vec::new();
        let mut runs = runs.into_iter();
        while let (Some(direct), Some(hapax)) = (runs.next(), runs.next()) {
            let (client, operation) = (direct.client, direct.operation);
            let log = logs.get(&hapax.topic()).map_or(&[][..], Vec::as_slice);
            let mut through = self.outcome(&hapax, &logs);
            let mut counted = 0;
            if through.is_ok() && operation != Operation::Group {
                match judge::counted(operation, &self.verdicts(&hapax.topic()), log) {
                    Ok(count) => counted = count,
                    Err(error) => through = Err(error),
                }
            }
            cells.push(Cell {
                kafka,
                client,
                operation,
                direct: self.outcome(&direct, &logs),
                hapax: through,
                counted,
            });
        }
        cells
    }

    fn outcome(&self, run: &Run, logs: &BTreeMap<String, Vec<Batch>>) -> Outcome {
        let lines = run.lines.as_ref().map_err(Clone::clone)?;
        let topic = run.topic();
        if run.operation == Operation::Group {
            return Ok(()); // judged as it was read
        }
        let log = logs.get(&topic).ok_or("nothing is in the log")?;
        judge::produced(run.client, run.operation, lines, log)?;
        if run.operation == Operation::Transactional {
            judge::committed(&self.read_committed(&topic)?)?;
        }
        Ok(())
    }

    /// What one client, direct, reads of a topic that wants committed records.
    fn read_committed(&self, topic: &str) -> Result<Vec<Value>, String> {
        let count = (2 * TRANSACTION).to_string();
        let arguments = [
            "consume",
            "--topic",
            topic,
            "--group",
            topic,
            "--count",
            &count,
            "--read-committed",
        ];
        Client::FranzGo.run(&self.kafka.bootstrap(), &arguments)
    }

    /// hapax's counts of a topic's batches.
    pub(crate) fn verdicts(&self, topic: &str) -> BTreeMap<String, u64> {
        let page = self.hapax.page("/metrics");
        let series = format!("hapax_produce_batches_total{{topic=\"{topic}\",verdict=\"");
        let ours = page.lines().filter_map(|line| line.strip_prefix(&series));
        ours.map(|rest| {
            let (verdict, value) = rest.split_once("\"} ").expect("VERDICT\"} VALUE");
            (verdict.to_owned(), value.parse().expect("a whole number"))
        })
        .collect()
    }
}
