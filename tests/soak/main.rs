//! Half an hour of faults: three brokers behind one hapax, eight producers of
//! four client libraries, and something going wrong every few seconds.
//!
//! ```text
//! tests/run soak                 30 minutes, the report in tests/results/soak.md
//! tests/run soak --minutes 3     printed only: under ten minutes are no soak
//! tests/run soak --seed 7        the same faults in the same order
//! tests/run soak --mode enforce -- --sequence-shield45    with other flags of hapax, printed only
//! ```
//!
//! Producers reach hapax, and hapax the brokers, by relays whose connections
//! can be cut. At the end the log is read whole by Kafka's own tool, and hapax
//! has to be as it began: no connection, no descriptor, no held request more,
//! and no memory that grew with time.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

#[path = "../real/clients.rs"]
#[allow(dead_code, reason = "the soak takes the part it needs")]
mod clients;
#[path = "../real/cluster.rs"]
#[allow(dead_code, reason = "the soak takes the part it needs")]
mod cluster;
#[path = "../real/hapax.rs"]
#[allow(dead_code, reason = "the soak takes the part it needs")]
mod hapax;
#[path = "../real/raw.rs"]
#[allow(dead_code, reason = "the soak takes the part it needs")]
mod raw;
#[path = "../real/tools.rs"]
#[allow(dead_code, reason = "the soak takes the part it needs")]
mod tools;

mod faults;
mod ledger;
mod producers;
mod relay;
mod report;
mod watch;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use clients::Client;
use cluster::{Cluster, Options};
use faults::Trouble;
use hapax::{Hapax, Ports};
use ledger::Account;
use producers::Producer;
use relay::Relay;
use report::{End, Report};
use tools::{Random, free_ports};
use watch::Watch;

/// Two of each.
const CLIENTS: [Client; 8] = [
    Client::Java,
    Client::Confluent,
    Client::FranzGo,
    Client::Sarama,
    Client::Java,
    Client::Confluent,
    Client::FranzGo,
    Client::Sarama,
];
/// The default of hapax.
const MODE: &str = "absorb";
/// Shorter runs are tries, and leave the committed report as it is.
const REPORT_FROM_MINUTES: u64 = 10;
/// What an orphan session may wait, and something on top.
const QUIET_WITHIN: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// How long faults are made.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Which faults; chosen by the clock where it is left out.
    #[arg(long)]
    seed: Option<u64>,
    /// Records that each producer sends in a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// The mode of hapax.
    #[arg(long, default_value = MODE)]
    mode: String,
    /// Further flags of hapax.
    #[arg(last = true)]
    flags: Vec<String>,
}

impl Arguments {
    /// Whether the committed report is that of this run.
    fn is_report(&self) -> bool {
        self.minutes >= REPORT_FROM_MINUTES && self.mode == MODE && self.flags.is_empty()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments
        .seed
        .unwrap_or_else(|| Random::from_clock().below(1 << 32));
    println!("{} minutes, --seed {seed}", arguments.minutes);
    let report = soak(&arguments, seed);
    let text = report.markdown();
    println!("\n{text}");
    if arguments.is_report() {
        let file = tools::source("results/soak.md");
        std::fs::write(file, &text).expect("a writable file of results");
    }
    let complaints = report.complaints();
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    match complaints.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn soak(arguments: &Arguments, seed: u64) -> Report {
    let cluster = Cluster::start(Options {
        nodes: 3,
        ..Options::default()
    });
    let (clients, brokers) = (Relay::default(), Relay::default());
    let (hapax, bootstrap) = between(&cluster, &clients, &brokers, arguments);
    let mut watch = Watch::new(&hapax);
    let before = watch.sample();

    let topics: Vec<String> = CLIENTS
        .iter()
        .map(|client| {
            let prefix = format!("soak-{client:?}").to_lowercase();
            let partitions = i32::try_from(producers::PARTITIONS).expect("few partitions");
            cluster.create_topic(&prefix, partitions)
        })
        .collect();
    let mut producers: Vec<Producer> = CLIENTS
        .iter()
        .zip(&topics)
        .map(|(client, topic)| Producer::start(*client, &bootstrap, topic, arguments.rate))
        .collect();
    for producer in &producers {
        let what = format!("the first records of {:?}", producer.client);
        let patience = Duration::from_secs(120);
        tools::wait_for(&what, patience, || (producer.told() >= 100).then_some(()));
    }

    let mut trouble = Trouble {
        cluster: &cluster,
        clients: &clients,
        brokers: &brokers,
        topics: &topics,
        random: Random::new(seed),
        made: BTreeMap::new(),
    };
    let end = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    trouble.until(end, || watch.look());
    let made = trouble.made;

    producers.iter_mut().for_each(Producer::stop);
    let produced: Vec<_> = producers.into_iter().map(Producer::produced).collect();
    let after = quiet(&hapax, &watch, before.descriptors);
    let metrics = hapax.metrics();
    let accounts = produced.into_iter().map(|produced| {
        let log = cluster.log(&produced.topic);
        Account::of(produced, &log)
    });
    Report {
        minutes: arguments.minutes,
        seed,
        rate: arguments.rate,
        mode: arguments.mode.clone(),
        flags: arguments.flags.clone(),
        accounts: accounts.collect(),
        made,
        watch,
        end: End {
            before,
            after,
            metrics,
            log: hapax.log(),
        },
    }
}

/// hapax with a relay on either side, and where clients bootstrap.
///
/// ```text
/// producers -> relay on 127.0.0.1 -> hapax on 127.0.0.2, the same ports -> relay -> broker
/// ```
fn between(
    cluster: &Cluster,
    clients: &Relay,
    brokers: &Relay,
    arguments: &Arguments,
) -> (Hapax, String) {
    let mut ports = Ports::free(6);
    ports.host = "127.0.0.2".to_owned();
    for port in ports.bootstrap..=ports.brokers.1 {
        clients.lead(&format!("127.0.0.1:{port}"), &format!("127.0.0.2:{port}"));
    }
    let mut upstream = Vec::new();
    let mut map = Vec::new();
    for (real, advertised) in cluster.fronts() {
        let relay = format!("127.0.0.1:{}", free_ports(1));
        brokers.lead(&relay, &real);
        map.push(format!("{advertised}={relay}"));
        upstream.push(relay);
    }
    let (upstream, map) = (upstream.join(","), map.join(","));
    let bootstrap = format!("127.0.0.1:{}", ports.bootstrap);
    let mut flags = vec!["--listen-advertised-host", "127.0.0.1"];
    flags.extend(["--upstream", &upstream, "--upstream-address-map", &map]);
    flags.extend(["--mode", &arguments.mode]);
    flags.extend(arguments.flags.iter().map(String::as_str));
    (Hapax::start_on(ports, &flags), bootstrap)
}

/// Waits until hapax is as it was before the first client, or for as long as
/// it may take: the report says what is left.
fn quiet(hapax: &Hapax, watch: &Watch, descriptors: usize) -> watch::Sample {
    let start = Instant::now();
    loop {
        let busy = report::GONE
            .iter()
            .any(|gauge| hapax.metric(gauge, &[]) > 0.0);
        let sample = watch.sample();
        if (!busy && sample.descriptors <= descriptors) || start.elapsed() > QUIET_WITHIN {
            return sample;
        }
        faults::pause(Duration::from_millis(500));
    }
}
