//! The clusters, what leads to them, and the clients, for one cell after the other.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::cells::{Batch, Cell, Kind, Load, RECORD, Route, Sizes};
use crate::client::{Client, Said};
use crate::cluster::Cluster;
use crate::cpu;
use crate::kit::generator;
use crate::kit::process::generate;
use crate::support::hapax::{self, Hapax};
use crate::support::kafka::VERSION;
use crate::tools::unique;
use crate::verdicts::{self, Scrape};

pub(crate) struct World {
    sizes: Sizes,
    client: Client,
    places: BTreeMap<usize, Place>,
}

/// A cluster and what stands before it.
struct Place {
    // Before the cluster, so that it ends first.
    hapax: Hapax,
    cluster: Cluster,
}

/// What one cell gave.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) cell: Cell,
    pub(crate) said: Said,
    pub(crate) used: Used,
    /// Records in the log beyond those acknowledged. 0 for transactions, whose
    /// log has markers too, and for the project's own generator, which counts
    /// only what it sent after its warm-up.
    pub(crate) surplus: i32,
    /// What moved in hapax's metrics.
    pub(crate) moved: Scrape,
    /// What the client logged at warning level and above.
    pub(crate) complaints: Vec<String>,
}

/// What a load took.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub(crate) wall: Duration,
    pub(crate) client_cpu: Duration,
    pub(crate) broker_cpu: Duration,
    /// Of the proxy on the way, if any.
    pub(crate) proxy_cpu: Duration,
}

impl World {
    /// With a cluster for each number of nodes that the cells ask for.
    pub(crate) fn start(cells: &[Cell], sizes: Sizes) -> Self {
        let mut places = BTreeMap::new();
        for cell in cells {
            places
                .entry(cell.nodes)
                .or_insert_with(|| Place::start(cell.nodes));
        }
        Self {
            sizes,
            client: Client::start(),
            places,
        }
    }

    /// Runs a cell on a topic of its own.
    pub(crate) fn measure(&mut self, cell: Cell) -> Outcome {
        let place = &self.places[&cell.nodes];
        let client = &mut self.client;
        let direct = place.cluster.bootstrap();
        let topic = unique("bench");
        client.create_topic(&direct, &topic, cell.nodes);
        let complaints = client.complaints().len();
        let scrape = || verdicts::scrape(&place.hapax.page("/metrics"));
        let scraped = scrape();
        let (said, used) = match cell.load {
            Load::Flood | Load::Paced => place.java(client, cell, self.sizes, &topic),
            Load::Raw(batch) => place.raw(cell, batch, self.sizes, &topic),
        };
        let moved = verdicts::moved(&scraped, &scrape());
        let logged = client.end_offsets(&direct, &topic, &said);
        let complaints = client.complaints().split_off(complaints);
        client.delete_topic(&direct, &topic);
        let counts_records =
            cell.kind != Kind::Transactional && matches!(cell.load, Load::Flood | Load::Paced);
        Outcome {
            cell,
            surplus: match counts_records {
                true => i32::try_from(logged - i64::from(said.acknowledged)).unwrap(),
                false => 0,
            },
            said,
            used,
            moved,
            complaints,
        }
    }

    /// What was measured, in words.
    pub(crate) fn versions(&self) -> String {
        format!(
            "Kafka {VERSION} and its Java client, hapax {}",
            env!("CARGO_PKG_VERSION")
        )
    }
}

impl Place {
    fn start(nodes: usize) -> Self {
        let cluster = Cluster::start(nodes);
        // As it comes, but for the ports.
        let hapax = hapax::start_with(&cluster.bootstrap(), "absorb", 6, &[]);
        Self { hapax, cluster }
    }

    fn bootstrap(&self, route: Route) -> String {
        match route {
            Route::Direct => self.cluster.bootstrap(),
            Route::Hapax => self.hapax.bootstrap.clone(),
            Route::Limit => self.cluster.limit_bootstrap(),
        }
    }

    fn proxies(&self, route: Route) -> Vec<u32> {
        match route {
            Route::Direct => Vec::new(),
            Route::Hapax => vec![self.hapax.pid()],
            Route::Limit => self.cluster.limit_pids(),
        }
    }

    fn java(&self, client: &mut Client, cell: Cell, sizes: Sizes, topic: &str) -> (Said, Used) {
        let bootstrap = self.bootstrap(cell.route);
        let before = self.used(cell.route, client, Duration::ZERO);
        let start = Instant::now();
        let said = match cell.load {
            Load::Paced => client.pace(cell.kind, sizes, &bootstrap, topic),
            Load::Flood | Load::Raw(_) => client.flood(cell, sizes, &bootstrap, topic),
        };
        let after = self.used(cell.route, client, start.elapsed());
        (said, after.since(&before))
    }

    /// CPU time so far of everyone on the way.
    fn used(&self, route: Route, client: &Client, wall: Duration) -> Used {
        Used {
            wall,
            client_cpu: cpu::of_processes(&[client.pid()]),
            broker_cpu: cpu::of_processes(&self.cluster.pids()),
            proxy_cpu: cpu::of_threads(&self.proxies(route)),
        }
    }

    fn raw(&self, cell: Cell, batch: Batch, sizes: Sizes, topic: &str) -> (Said, Used) {
        let brokers = self.cluster.pids();
        let mut watch = brokers.clone();
        watch.extend(self.proxies(cell.route));
        let outcome = generate(&generator::Load {
            target: self.bootstrap(cell.route).parse().unwrap(),
            follow: true,
            topic: topic.to_owned(),
            exact: false,
            batch_bytes: batch.bytes(),
            seconds: sizes.raw_s,
            watch,
            ..generator::Load::default()
        });
        let outcome = outcome.unwrap_or_else(|why| panic!("{cell}: {why}"));
        let (of_brokers, of_proxies) = outcome.cpu.split_at(brokers.len());
        let nanoseconds = |all: &[u64]| Duration::from_nanos(all.iter().sum());
        let sent = u32::try_from(outcome.requests).unwrap();
        let said = Said {
            sent,
            acknowledged: sent,
            rate: f64::from(sent) / outcome.seconds,
            p50_us: f64::NAN,
            p99_us: f64::NAN,
            requests: f64::from(sent),
            ..Said::default()
        };
        let used = Used {
            wall: Duration::from_secs_f64(outcome.seconds),
            client_cpu: Duration::from_nanos(outcome.own_cpu),
            broker_cpu: nanoseconds(of_brokers),
            proxy_cpu: nanoseconds(of_proxies),
        };
        (said, used)
    }
}

impl Used {
    fn since(&self, before: &Self) -> Self {
        Self {
            wall: self.wall - before.wall,
            client_cpu: self.client_cpu - before.client_cpu,
            broker_cpu: self.broker_cpu - before.broker_cpu,
            proxy_cpu: self.proxy_cpu - before.proxy_cpu,
        }
    }
}

impl Outcome {
    /// Seconds of the proxy's CPU for each GB of values, or of batches where
    /// the project's own generator made them.
    pub(crate) fn proxy_s_per_gigabyte(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most 16 KB")]
        let bytes = match self.cell.load {
            Load::Flood | Load::Paced => f64::from(RECORD),
            Load::Raw(batch) => batch.bytes() as f64,
        };
        self.used.proxy_cpu.as_secs_f64() / (f64::from(self.said.sent) * bytes / 1e9)
    }

    /// Microseconds of CPU for each record.
    pub(crate) fn per_record_us(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / f64::from(self.said.sent)
    }

    /// Records in each request.
    pub(crate) fn records_per_request(&self) -> f64 {
        f64::from(self.said.sent) / self.said.requests
    }

    /// Microseconds of the proxy's CPU for each request: by the record a proxy
    /// looks the cheaper the slower it is, since the client then puts more
    /// records into a request.
    pub(crate) fn proxy_us_per_request(&self) -> f64 {
        self.used.proxy_cpu.as_secs_f64() * 1e6 / self.said.requests
    }

    /// What should not have happened on a healthy way to a healthy Kafka, and
    /// how often it did.
    pub(crate) fn incidents(&self) -> BTreeMap<String, f64> {
        let mut incidents = self.failures();
        for complaint in &self.complaints {
            *incidents.entry(without_particulars(complaint)).or_default() += 1.0;
        }
        if self.cell.route == Route::Hapax {
            incidents.extend(verdicts::odd(&self.moved, self.cell.kind));
        }
        let resent = ("records sent again".to_owned(), self.said.resent);
        incidents.extend([resent].into_iter().filter(|(_, count)| *count != 0.0));
        incidents
    }

    /// Those that no Kafka excuses.
    fn failures(&self) -> BTreeMap<String, f64> {
        let said = &self.said;
        let counts = [
            (
                "records without acknowledgement",
                f64::from(said.sent - said.acknowledged),
            ),
            ("records given up", said.errors),
            (
                "records in the log beyond those acknowledged",
                f64::from(self.surplus),
            ),
        ];
        counts
            .into_iter()
            .filter(|(_, count)| *count != 0.0)
            .map(|(what, count)| (what.to_owned(), count))
            .collect()
    }

    /// # Panics
    /// When anything went wrong. A transaction that begins while the markers of
    /// the one before are written gets CONCURRENT_TRANSACTIONS from Kafka, and
    /// its batches come again: that is not counted. Nor is an InitProducerId
    /// that a broker which has just started has no id for yet.
    pub(crate) fn assert_well(&self) {
        let mut wrong = match self.cell.kind {
            Kind::Transactional => self.failures(),
            Kind::AcksOne | Kind::AcksAll | Kind::Idempotent => self.incidents(),
        };
        wrong.remove(r#"hapax_requests_total{api="init_producer_id",outcome="error"}"#);
        assert!(wrong.is_empty(), "{self}");
        if self.cell.route == Route::Hapax {
            let expected = verdicts::batches(&self.moved, verdicts::expected(self.cell.kind));
            assert!(expected > 0.0, "hapax saw no batch: {self}");
        }
    }
}

/// A line of the client's log without what differs each time.
fn without_particulars(complaint: &str) -> String {
    if let Some((_, error)) = complaint.split_once("attempts left). Error: ") {
        let error = error.split(' ').next().unwrap_or_default();
        return format!("the client tries again after {error}");
    }
    let (_, text) = complaint.split_once("] ").unwrap_or(("", complaint));
    let text: Vec<&str> = text
        .split(' ')
        .filter(|word| !word.contains("bench-") && !word.contains("clientId="))
        .collect();
    format!("the client logs {}", text.join(" "))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (said, used) = (&self.said, &self.used);
        write!(f, "{:<40} {:>8.0}/s", self.cell.to_string(), said.rate)?;
        if self.cell.load == Load::Paced {
            write!(f, " p50 {:>6.0} p99 {:>7.0} us", said.p50_us, said.p99_us)?;
        }
        let [client, broker, proxy] =
            [used.client_cpu, used.broker_cpu, used.proxy_cpu].map(|cpu| self.per_record_us(cpu));
        write!(
            f,
            " in {:.1} s, CPU us a record: client {client:.1} broker {broker:.1} proxy {proxy:.2}",
            used.wall.as_secs_f64()
        )?;
        for (incident, count) in self.incidents() {
            write!(f, "\n    {incident}: {count}")?;
        }
        Ok(())
    }
}
