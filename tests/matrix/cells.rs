//! The cells of one Kafka version: clients and operations, each direct and
//! through hapax, run against one cluster.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

use crate::judge::{self, RECORDS, TRANSACTION};
use crate::kafka::{Batch, Kafka};
use crate::old_versions;
use crate::programs::{Client, Operation};
use crate::relay::{self, Relay};
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

    /// What must not be. A client that cannot do with some Kafka what it does
    /// with others has none here: nothing fails both ways.
    fn complaint(&self) -> Option<String> {
        let error = match (&self.direct, &self.hapax) {
            (Ok(()), Ok(())) => return None,
            (Ok(()), Err(error)) => format!("only through hapax: {error}"),
            (Err(error), Ok(())) => format!("only direct: {error}"),
            (Err(direct), Err(hapax)) => format!("direct: {direct}; through hapax: {hapax}"),
        };
        let (client, operation) = (self.client.title(), self.operation.name());
        Some(format!(
            "{client}, {operation}, Kafka {}: {error}",
            self.kafka
        ))
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

/// Runs the cells of one Kafka; gives them with what is wrong, also in the
/// answers that no cell shows.
pub(crate) fn run(kafka: &'static str, cells: &[(Client, Operation)]) -> (Vec<Cell>, Vec<String>) {
    let of_loss = |cell: &&(Client, Operation)| cell.1 == Operation::LostAck;
    let (lossy, sound): (Vec<_>, Vec<_>) = cells.iter().partition(of_loss);
    let mut done = Vec::new();
    let mut complaints = Vec::new();
    if !sound.is_empty() {
        let world = World::start(kafka);
        done.extend(world.run(kafka, &sound));
        let differing = old_versions::complaints(&world, SEED).into_iter();
        complaints.extend(differing.map(|text| format!("Kafka {kafka}: {text}")));
    }
    if !lossy.is_empty() {
        done.extend(World::lossy(kafka).run(kafka, &lossy));
    }
    complaints.extend(done.iter().filter_map(Cell::complaint));
    (done, complaints)
}

/// A Kafka and hapax in front of it.
pub(crate) struct World {
    pub(crate) kafka: Kafka,
    pub(crate) hapax: Hapax,
    relays: Option<Relays>,
}

/// Between clients and Kafka, and between clients and hapax.
struct Relays {
    direct: Relay,
    hapax: Relay,
}

impl World {
    pub(crate) fn start(version: &str) -> Self {
        let kafka = Kafka::start(version, LOOPBACK);
        let hapax = hapax_of(&kafka, LOOPBACK);
        let relays = None;
        Self {
            kafka,
            hapax,
            relays,
        }
    }

    /// With relays that can lose an acknowledgement.
    fn lossy(version: &str) -> Self {
        let kafka = Kafka::start(version, relay::HOST);
        let hapax = hapax_of(&kafka, relay::HOST);
        let direct = Relay::start(&[port(&kafka.bootstrap())]);
        let first = hapax.first_port;
        let front = Relay::start(&[port(&hapax.bootstrap), first, first + 1]);
        let relays = Some(Relays {
            direct,
            hapax: front,
        });
        Self {
            kafka,
            hapax,
            relays,
        }
    }

    fn bootstrap(&self, route: Route) -> String {
        let bootstrap = match route {
            Route::Direct => self.kafka.bootstrap(),
            Route::Hapax => self.hapax.bootstrap.clone(),
        };
        match &self.relays {
            Some(_) => format!("{}:{}", relay::HOST, port(&bootstrap)),
            None => bootstrap,
        }
    }

    fn relay(&self, route: Route) -> Option<&Relay> {
        let relays = self.relays.as_ref()?;
        Some(match route {
            Route::Direct => &relays.direct,
            Route::Hapax => &relays.hapax,
        })
    }

    fn run(&self, kafka: &'static str, cells: &[&(Client, Operation)]) -> Vec<Cell> {
        self.create_topics(cells);
        self.seed(0, RECORDS);
        println!("Kafka {kafka}:");
        let start = Instant::now();
        let mut runs: Vec<Run> = Vec::new();
        for (client, operation) in cells {
            let begun = Instant::now();
            runs.extend(self.both(*client, *operation, 0, RECORDS));
            let (id, name, time) = (client.id(), operation.name(), begun.elapsed());
            println!("  {id:<20} {name:<20} {time:.1?}");
        }
        self.seed(RECORDS, MORE);
        self.resume(&mut runs);
        let cells = self.judge(kafka, runs);
        println!("  {} cells in {:.0?}", cells.len(), start.elapsed());
        cells
    }

    fn create_topics(&self, cells: &[&(Client, Operation)]) {
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
            Operation::Idempotent | Operation::LostAck => &["produce", "--count", &count],
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
            Operation::Plain
            | Operation::Idempotent
            | Operation::LostAck
            | Operation::Transactional => {
                all.extend(["--topic", &name, "--partitions", "3"]);
                all.extend(["--batch-bytes", SMALL_BATCH]);
            }
        }
        let relay = self.relay(route);
        if let Some(relay) = relay {
            relay.lose_one();
        }
        let lines = client.run(&self.bootstrap(route), &all)?;
        if relay.is_some_and(|relay| !relay.has_lost()) {
            return Err("no acknowledgement was lost".to_owned());
        }
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
                match judge::counted(client, operation, &self.verdicts(&hapax.topic()), log) {
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

/// Where clients find what no relay is in front of.
const LOOPBACK: &str = "127.0.0.1";

/// hapax in front of a Kafka, telling clients this host.
fn hapax_of(kafka: &Kafka, host: &str) -> Hapax {
    let flags = [
        "--upstream-address-map",
        &kafka.address_map(),
        "--metrics-max-topics",
        "500",
        "--listen-advertised-host",
        host,
    ];
    hapax::start(&kafka.front(), "absorb", &flags)
}

fn port(address: &str) -> u16 {
    let (_, port) = address.rsplit_once(':').expect("HOST:PORT");
    port.parse().expect("a port")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(direct: Outcome, hapax: Outcome) -> Option<String> {
        let cell = Cell {
            kafka: "2.8.2",
            client: Client::Sarama,
            operation: Operation::Plain,
            direct,
            hapax,
            counted: 0,
        };
        cell.complaint()
    }

    #[test]
    fn a_cell_that_fails_or_differs_is_complained_of() {
        let failed = || Err("timed out".to_owned());
        assert_eq!(complaint(Ok(()), Ok(())), None);
        for (direct, hapax, text) in [
            (Ok(()), failed(), "only through hapax: timed out"),
            (failed(), Ok(()), "only direct: timed out"),
            (
                failed(),
                failed(),
                "direct: timed out; through hapax: timed out",
            ),
        ] {
            let said = complaint(direct, hapax).unwrap();
            assert!(said.contains("sarama") && said.ends_with(text), "{said}");
        }
    }
}
