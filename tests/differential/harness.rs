//! Runs each case direct, through `observe`, `absorb` and `enforce` and on the dev
//! upstream, and prints a table.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::dev;
use crate::support;
use crate::support::batch::{Batch, Stored};
use crate::support::hapax::{self, Hapax};
use crate::support::kafka;
use crate::support::raw::{Answer, Client, Produce, Topic};

/// The way the bytes take to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    Direct,
    Observe,
    Absorb,
    /// As in `absorb`, but a stale epoch is refused by hapax, as the broker would.
    Enforce,
    /// The upstream of `hapax dev`, in place of Kafka.
    Dev,
}

impl Route {
    /// Whether hapax answers what it can.
    pub fn acts(self) -> bool {
        matches!(self, Self::Absorb | Self::Enforce)
    }
}

/// One line of the table.
pub struct Case {
    /// What it claims.
    pub name: String,
    /// The rule by which hapax may differ from the broker behind it, if it may.
    pub exception: Option<&'static str>,
    /// Settings of its topic.
    pub configs: Vec<(&'static str, &'static str)>,
    /// Partitions of its topic.
    pub partitions: i32,
    /// What it does.
    pub script: Script,
    /// By how much counters must grow.
    pub growths: Vec<Growth>,
}

/// A counter of hapax, and by how much the case makes it grow.
pub struct Growth {
    metric: &'static str,
    label: String,
    observe: u32,
    absorb: u32,
}

/// What a case does.
pub enum Script {
    /// Batches for partition 0, each with its answer.
    Steps(Vec<Step>),
    /// Anything; panics when something is wrong. What it returns must be equal on every route.
    Free(fn(&mut World<'_>) -> io::Result<Vec<String>>),
}

/// One Produce request and the answer it must get.
pub struct Step {
    epoch: i16,
    first: i32,
    last: i32,
    connection: u8,
    producer: usize,
    version: i16,
    acks: i16,
    variant: usize,
    edit: fn(Batch) -> Batch,
    records: fn(&Batch) -> Bytes,
    expected: [Outcome; 5],
}

/// What one answer must be, and whether the batch is then in the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Appended(i64),
    /// The broker's answer to a duplicate: with a time, even if the topic keeps the record's.
    Duplicate(i64),
    /// The first answer again, as it was.
    Replayed(i64),
    Refused(i16),
    /// acks=0: nothing comes back, and the batch is at this offset.
    Silent(i64),
}

/// A batch of one partition, sequences `first..=last` of epoch `epoch`.
pub fn put(epoch: i16, first: i32, last: i32) -> Step {
    Step {
        epoch,
        first,
        last,
        connection: 0,
        producer: 0,
        version: 12,
        acks: -1,
        variant: 0,
        edit: |batch| batch,
        records: Batch::bytes,
        expected: [Outcome::Refused(-1); 5],
    }
}

impl Step {
    pub fn appended(self, offset: i64) -> Self {
        self.is(Outcome::Appended(offset))
    }
    pub fn refused(self, code: i16) -> Self {
        self.is(Outcome::Refused(code))
    }
    /// Recognised by the broker, on every route.
    pub fn duplicate(self, offset: i64) -> Self {
        self.is(Outcome::Duplicate(offset))
    }
    /// Recognised by the broker, and in `absorb` by hapax.
    pub fn absorbed(self, offset: i64) -> Self {
        self.is(Outcome::Duplicate(offset))
            .but(Outcome::Replayed(offset))
    }
    pub fn silent(self, offset: i64) -> Self {
        self.is(Outcome::Silent(offset))
    }
    /// Refused by hapax in `absorb`, whatever the broker would have said.
    pub fn but_mirrored(self, code: i16) -> Self {
        self.but(Outcome::Refused(code))
    }
    /// Appended elsewhere, or at all, in `absorb`.
    pub fn but_appended(self, offset: i64) -> Self {
        self.but(Outcome::Appended(offset))
    }
    /// Answered by hapax in `absorb`, whatever the broker would have said.
    pub fn but_absorbed(self, offset: i64) -> Self {
        self.but(Outcome::Replayed(offset))
    }
    pub fn on(mut self, connection: u8) -> Self {
        self.connection = connection;
        self
    }
    pub fn by(mut self, producer: usize) -> Self {
        self.producer = producer;
        self
    }
    pub fn version(mut self, version: i16) -> Self {
        self.version = version;
        self
    }
    pub fn acks(mut self, acks: i16) -> Self {
        self.acks = acks;
        self
    }
    /// The same sequences with other values.
    pub fn variant(mut self, variant: usize) -> Self {
        self.variant = variant;
        self
    }
    /// The batch with some fields forced.
    pub fn edited(mut self, edit: fn(Batch) -> Batch) -> Self {
        self.edit = edit;
        self
    }
    /// The bytes sent in place of the batch.
    pub fn sent_as(mut self, records: fn(&Batch) -> Bytes) -> Self {
        self.records = records;
        self
    }
    fn is(mut self, outcome: Outcome) -> Self {
        self.expected = [outcome; 5];
        self
    }
    /// What hapax makes of it where it acts.
    fn but(mut self, outcome: Outcome) -> Self {
        self.expected[Route::Absorb as usize] = outcome;
        self.expected[Route::Enforce as usize] = outcome;
        self
    }
}

/// A case of steps.
pub fn case(name: impl Into<String>, steps: Vec<Step>) -> Case {
    Case {
        name: name.into(),
        exception: None,
        configs: Vec::new(),
        partitions: 1,
        script: Script::Steps(steps),
        growths: Vec::new(),
    }
}

/// A case of its own.
pub fn free(name: impl Into<String>, run: fn(&mut World<'_>) -> io::Result<Vec<String>>) -> Case {
    let mut case = case(name, Vec::new());
    case.script = Script::Free(run);
    case
}

impl Case {
    pub fn configs(mut self, configs: &[(&'static str, &'static str)]) -> Self {
        self.configs = configs.to_vec();
        self
    }
    pub fn partitions(mut self, partitions: i32) -> Self {
        self.partitions = partitions;
        self
    }
    pub fn verdict(self, name: &'static str, observe: u32, absorb: u32) -> Self {
        let label = format!("verdict=\"{name}\"");
        self.grows("hapax_verdicts_total", label, observe, absorb)
    }
    pub fn grows(
        mut self,
        metric: &'static str,
        label: impl Into<String>,
        observe: u32,
        absorb: u32,
    ) -> Self {
        self.growths.push(Growth {
            metric,
            label: label.into(),
            observe,
            absorb,
        });
        self
    }
    pub fn exception(mut self, rule: &'static str) -> Self {
        self.exception = Some(rule);
        self
    }
}

/// What a case works with: one route, its topic, its producers and connections.
pub struct World<'a> {
    pub route: Route,
    /// Where this route's clients connect.
    pub address: String,
    /// On the way, unless direct.
    pub hapax: Option<&'a Hapax>,
    /// A client that does not pass hapax.
    pub admin: Client,
    pub topic: Topic,
    connections: HashMap<u8, Client>,
    producers: Vec<i64>,
}

impl World<'_> {
    /// One of the route's connections.
    pub fn client(&mut self, number: u8) -> &mut Client {
        let address = &self.address;
        self.connections
            .entry(number)
            .or_insert_with(|| Client::connect(address).unwrap())
    }

    /// One of the case's producer ids.
    pub fn producer(&mut self, number: usize) -> i64 {
        while self.producers.len() <= number {
            let (id, epoch) = self.admin.init_producer(4, None).unwrap();
            assert_eq!(epoch, 0);
            self.producers.push(id);
        }
        self.producers[number]
    }

    /// The log of a partition of the topic.
    pub fn log(&mut self, partition: i32) -> Vec<Stored> {
        self.admin.log(&self.topic.name, partition).unwrap()
    }

    fn play(&mut self, steps: &[Step]) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut log: Vec<(i64, Batch)> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let producer = self.producer(step.producer);
            let batch = (step.edit)(step.batch(producer));
            let produce = Produce::to(&self.topic, 0, (step.records)(&batch))
                .version(step.version)
                .acks(step.acks);
            let expected = step.expected[self.route as usize];
            let client = self.client(step.connection);
            if let Outcome::Silent(offset) = expected {
                client.send(produce.version, &produce.request())?;
                // The answer to another request proves that this one was taken.
                client.metadata(12, &[])?;
                log.push((offset, batch));
                continue;
            }
            let answer = client.produce(&produce)?;
            let mut wanted = expected.answer(step.version, &batch);
            if answer.code != 0 {
                // −1 or the real one, by where the broker refused: equal on each route, see `lines`.
                wanted.log_start = answer.log_start;
            }
            assert_eq!(answer, wanted, "step {number}");
            if let Outcome::Appended(offset) = expected {
                log.push((offset, batch));
            }
            lines.push(format!(
                "{} at {}, log starts at {}",
                answer.code, answer.offset, answer.log_start
            ));
        }
        let stored = self.log(0);
        let found: Vec<_> = stored.iter().map(|batch| batch.offset).collect();
        let wanted: Vec<_> = log.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(found, wanted, "the offsets of the log's batches");
        for (found, (offset, batch)) in stored.iter().zip(&log) {
            assert_eq!(found, &as_stored(*offset, batch));
        }
        Ok(lines)
    }
}

impl Step {
    fn batch(&self, producer: i64) -> Batch {
        let count = (self.last.wrapping_sub(self.first) & i32::MAX) + 1;
        let values = (0..count).map(|at| {
            let sequence = self.first.wrapping_add(at) & i32::MAX;
            format!("v{sequence}.{}", self.variant)
        });
        Batch::of(producer, self.epoch, self.first, values)
    }
}

impl Outcome {
    fn answer(self, version: i16, batch: &Batch) -> Answer {
        let (code, offset, append_time) = match self {
            Self::Appended(offset) | Self::Replayed(offset) => (0, offset, -1),
            Self::Duplicate(offset) => (0, offset, batch.greatest_timestamp()),
            Self::Refused(code) => (code, -1, -1),
            Self::Silent(_) => unreachable!("acks=0 has no answer"),
        };
        Answer {
            partition: 0,
            code,
            offset,
            append_time,
            log_start: if version >= 5 && code == 0 { 0 } else { -1 },
        }
    }
}

/// A batch as the broker must have stored it: its bytes, at an offset.
fn as_stored(offset: i64, batch: &Batch) -> Stored {
    let mut sent = support::batch::stored(&batch.bytes());
    assert_eq!(sent.len(), 1);
    let mut batch = sent.remove(0);
    batch.offset = offset;
    batch
}

/// Runs the cases and prints the table; fails when one of them does.
pub fn run(cases: &[Case]) -> ExitCode {
    if cases.is_empty() {
        return ExitCode::SUCCESS;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let broker = kafka::start(&[("log.message.timestamp.after.max.ms", "9223372036854775807")]);
    let only = std::env::var("DIFFERENTIAL_ROUTE").ok();
    let mut routes = vec![(Route::Direct, None)];
    if only.is_none() {
        for (route, mode) in [
            (Route::Observe, "observe"),
            (Route::Absorb, "absorb"),
            (Route::Enforce, "enforce"),
        ] {
            routes.push((route, Some(hapax::start(&broker.bootstrap, mode, &[]))));
        }
    }
    let dev = dev::start();
    if only.as_deref() != Some("direct") {
        routes.push((Route::Dev, None));
    }
    let behind = |route| match route {
        Route::Dev => &dev,
        Route::Direct | Route::Observe | Route::Absorb | Route::Enforce => &broker.bootstrap,
    };
    let mut addresses = Vec::new();
    for (route, hapax) in &routes {
        let broker = behind(*route);
        let address = broker_address(hapax.as_ref().map_or(broker, |h| &h.bootstrap));
        let direct = address == *broker;
        assert_eq!(direct, hapax.is_none(), "{route:?} leads to {address}");
        addresses.push(address);
    }
    let mut failed = 0;
    for (number, case) in cases.iter().enumerate() {
        let start = Instant::now();
        let mut results: Vec<Result<Vec<String>, String>> = Vec::new();
        let left_out = dev::left_out(&case.name);
        for ((route, hapax), address) in routes.iter_mut().zip(&addresses) {
            if *route == Route::Dev && left_out.is_some() {
                continue;
            }
            let topic = format!("case-{number}-{route:?}");
            let logged = hapax.as_ref().map_or(0, |hapax| hapax.output().len());
            let way = Way {
                route: *route,
                hapax: hapax.as_ref(),
                address,
                broker: behind(*route),
            };
            let mut result = attempt(case, &way, &topic);
            if let (Some(hapax), Err(error)) = (hapax.as_ref(), &mut result) {
                let output = hapax.output();
                let lines = output[logged..].lines().rev().take(5);
                error.extend(lines.flat_map(|line| ["\n      hapax: ", line]));
            }
            if let Some(hapax) = hapax {
                hapax.assert_well();
            }
            results.push(result);
        }
        let same = results.iter().zip(&routes).all(|(result, (route, _))| {
            // The exceptions are hapax's: the dev upstream answers as Kafka does.
            case.exception.is_some() && *route != Route::Dev
                || result.as_ref().ok() == results[0].as_ref().ok()
        });
        let verdict = |result: &Result<Vec<String>, String>| match result {
            Ok(_) => "ok",
            Err(_) => "FAILED",
        };
        let mut cells: Vec<_> = results.iter().map(verdict).collect();
        cells.extend((results.len() < routes.len()).then_some("--"));
        println!(
            "{:<78} {:<29} {:>6} ms  {}",
            case.name,
            cells.join(" "),
            start.elapsed().as_millis(),
            match (same, case.exception, left_out) {
                (false, ..) => "ROUTES DIFFER".to_owned(),
                (true, rule, Some(reason)) => {
                    format!("{} not on dev: {reason}", rule.unwrap_or(""))
                }
                (true, rule, None) => rule.unwrap_or("").to_owned(),
            },
        );
        for ((route, _), result) in routes.iter().zip(&results) {
            if let Err(error) = result {
                println!("    {route:?}: {error}");
            } else if !same {
                println!("    {route:?}: {:?}", result.as_ref().unwrap());
            }
        }
        if !same || results.iter().any(Result::is_err) {
            failed += 1;
        }
    }
    println!(
        "{} cases on {} routes, {failed} failed",
        cases.len(),
        routes.len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How an attempt reaches the broker.
struct Way<'a> {
    route: Route,
    hapax: Option<&'a Hapax>,
    /// Where the clients connect.
    address: &'a str,
    /// The broker itself.
    broker: &'a str,
}

/// Where a client is sent by the Metadata it gets at `bootstrap`.
fn broker_address(bootstrap: &str) -> String {
    let mut client = Client::connect(bootstrap).unwrap();
    let metadata = client.metadata(12, &[]).unwrap();
    assert_eq!(metadata.brokers.len(), 1);
    let broker = &metadata.brokers[0];
    format!("{}:{}", broker.host.as_str(), broker.port)
}

fn attempt(case: &Case, way: &Way<'_>, topic: &str) -> Result<Vec<String>, String> {
    let Way {
        route,
        hapax,
        address,
        broker,
    } = *way;
    let run = || {
        let mut admin = Client::connect(broker)?;
        let topic = admin.create_topic(topic, case.partitions, &case.configs)?;
        let before: Vec<f64> = hapax.map_or_else(Vec::new, |hapax| {
            case.growths
                .iter()
                .map(|growth| growth.value(hapax, route))
                .collect()
        });
        let mut world = World {
            route,
            address: address.to_owned(),
            hapax,
            admin,
            topic,
            connections: HashMap::new(),
            producers: Vec::new(),
        };
        if route == Route::Enforce {
            // Only of a topic whose id is known a stale epoch is proven.
            Client::connect(address)?.metadata(12, &[&world.topic.name])?;
        }
        let lines = match &case.script {
            Script::Steps(steps) => world.play(steps),
            Script::Free(run) => run(&mut world),
        }?;
        for (growth, before) in case.growths.iter().zip(before) {
            let wanted = match route {
                Route::Absorb | Route::Enforce => growth.absorb,
                Route::Direct | Route::Observe | Route::Dev => growth.observe,
            };
            let wanted = before + f64::from(wanted);
            let now = || growth.value(hapax.expect("only hapax has counters"), route);
            // A counter may move a moment after the answer has left.
            let late = Instant::now() + Duration::from_millis(500);
            while now() < wanted && Instant::now() < late {
                support::pause(Duration::from_millis(10));
            }
            let name = format!("{} {}", growth.metric, growth.label);
            assert_eq!(now() - before, wanted - before, "growth of {name}");
        }
        Ok::<_, io::Error>(lines)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(message(panic.as_ref())),
    }
}

impl Growth {
    fn value(&self, hapax: &Hapax, route: Route) -> f64 {
        let value = hapax.metric(self.metric, &[&self.label]);
        if route == Route::Enforce && self.label == "verdict=\"stale_epoch\"" {
            // What was done wins over what the batch was.
            return value + hapax.metric(self.metric, &["verdict=\"refused\""]);
        }
        value
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
