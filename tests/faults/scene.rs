//! A cluster, the ways to it, and producers at work: what a row's faults strike.
//!
//! ```text
//! client ── relay ── Kafka                        direct
//! client ── relay ── hapax ── relay ── Kafka      through hapax
//! ```

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::admin::{self, Replicas};
use crate::cluster::{Cluster, Options};
use crate::hapax::{Hapax, Ports};
use crate::judge::{Counts, Told, judge};
use crate::log;
use crate::producers::{Client, Producer};
use crate::relay::{Relay, Weather};
use crate::rows::Load;
use crate::tools::{Random, free_ports, unique, wait_for};

/// How clients reach the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    Direct,
    Hapax,
    /// hapax with `sequence.shield45`.
    Shield,
    /// hapax, where the producer's user may not read the topic.
    WriteOnly,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Hapax, Self::Shield, Self::WriteOnly];

    /// For topics and the command line.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hapax => "hapax",
            Self::Shield => "shield45",
            Self::WriteOnly => "write-only",
        }
    }

    /// For the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hapax => "through hapax",
            Self::Shield => "through hapax, `shield45`",
            Self::WriteOnly => "through hapax, without READ",
        }
    }

    /// Whether this client goes it: the ways beside the two of every row show
    /// what a setting does, for which two clients are enough.
    fn has(self, client: Client) -> bool {
        match self {
            Self::Direct | Self::Hapax => true,
            Self::Shield | Self::WriteOnly => matches!(client, Client::Java | Client::Librdkafka),
        }
    }

    /// What its clients log in with.
    fn login(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Direct | Self::Hapax | Self::Shield => &[],
            Self::WriteOnly => &[
                ("--sasl-mechanism", "PLAIN"),
                ("--sasl-user", WRITER),
                ("--sasl-password", "bob-secret"),
            ],
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Direct | Self::Hapax | Self::WriteOnly => &[],
            Self::Shield => &["--sequence-shield45=true"],
        }
    }
}

/// What a row asks for.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kafka: &'static str,
    pub(crate) clients: Vec<Client>,
    pub(crate) ways: Vec<Way>,
    pub(crate) load: Load,
    /// Producer ids are forgotten 5 s after their last record's time.
    pub(crate) forgets_producers: bool,
    /// Further arguments of every client.
    pub(crate) client_arguments: &'static [&'static str],
    /// Further arguments of hapax.
    pub(crate) hapax_arguments: &'static [&'static str],
}

/// One way to the cluster.
pub(crate) struct Road {
    pub(crate) way: Way,
    bootstrap: String,
    /// Before the brokers directly, or before hapax.
    pub(crate) near: Relay,
    /// Between hapax and the brokers.
    pub(crate) far: Option<Relay>,
    pub(crate) hapax: Option<Hapax>,
    ports: Option<Ports>,
    hapax_arguments: Vec<String>,
}

/// One client's producer on one way.
pub(crate) struct Lane {
    pub(crate) client: Client,
    pub(crate) way: Way,
    operation: &'static str,
    arguments: Vec<String>,
    bootstrap: String,
    pub(crate) topics: Vec<String>,
    pub(crate) producer: Option<Producer>,
    /// The first record of its process.
    first: u64,
    /// What was acknowledged before is not looked for in the log.
    counts_from: Option<Instant>,
    /// Of the processes that have ended.
    told: Vec<Told>,
}

/// Everything of one run of a row.
pub(crate) struct Scene {
    pub(crate) random: Random,
    pub(crate) roads: Vec<Road>,
    pub(crate) lanes: Vec<Lane>,
    kafka: &'static str,
    forgets_producers: bool,
    /// Where the nodes say that they are reached.
    advertised: Vec<String>,
    /// Last, so that it is there until everything else has ended.
    pub(crate) cluster: Cluster,
}

/// What every producer is asked for: small batches, several in flight.
const PRODUCER: [(&str, &str); 8] = [
    ("--partitions", "3"),
    ("--rate", "120"),
    ("--linger-ms", "20"),
    ("--batch-bytes", "400"),
    ("--in-flight", "5"),
    ("--request-timeout-ms", "3000"),
    ("--delivery-timeout-ms", "120000"),
    ("--backoff-ms", "100"),
];

impl Scene {
    /// Starts the cluster and all ways to it.
    pub(crate) fn set(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let (cluster, advertised) = Standing::take(plan.kafka, plan.forgets_producers);
        let fronts: Vec<String> = cluster.fronts().map(|(real, _)| real).collect();
        let logins = cluster.sasl_bootstrap();
        let logins: Vec<String> = logins.split(',').map(str::to_owned).collect();
        let roads = plan.ways.iter().map(|way| {
            let seed = random.below(u64::MAX);
            match way {
                Way::Direct => Road::direct(seed, &advertised, &fronts),
                Way::Hapax | Way::Shield => {
                    Road::through(*way, seed, &advertised, &fronts, plan.hapax_arguments)
                }
                Way::WriteOnly => Road::through(*way, seed, &logins, &logins, plan.hapax_arguments),
            }
        });
        let roads = roads.collect();
        Self {
            random,
            roads,
            lanes: Vec::new(),
            kafka: plan.kafka,
            forgets_producers: plan.forgets_producers,
            advertised,
            cluster,
        }
    }

    /// The end of a run that went well: its cluster is for the next one, without its topics.
    pub(crate) fn leave(self) {
        let topics = self.lanes.iter().flat_map(|lane| &lane.topics);
        admin::drop_topics(&mut self.cluster.connect(0), topics);
        Standing::leave(Standing {
            kafka: self.kafka,
            forgets_producers: self.forgets_producers,
            advertised: self.advertised,
            cluster: self.cluster,
        });
    }

    /// Starts a producer for each client on each way, and waits until all work.
    pub(crate) fn start_producers(&mut self, plan: &Plan) {
        for road in &self.roads {
            for client in plan.clients.iter().filter(|client| road.way.has(**client)) {
                let name = format!("{}-{}", client.id(), road.way.id());
                let topic = self.cluster.create_topic(&name, 3);
                if road.way == Way::WriteOnly {
                    admin::allow_writing_alone(&mut self.cluster.connect(0), &topic, WRITER);
                }
                let mut arguments = vec!["--topic".to_owned(), topic.clone()];
                let operation = match plan.load {
                    Load::Idempotent => "produce",
                    Load::Transactional => {
                        arguments.extend(["--transactional-id".to_owned(), topic.clone()]);
                        arguments.extend(["--count".to_owned(), "20".to_owned()]);
                        "transactions"
                    }
                };
                let own = plan.client_arguments.chunks(2);
                let own = own.map(|pair| (pair[0], pair[1]));
                let own = own.chain(client.rate().map(|rate| ("--rate", rate)));
                let own = own.chain(road.way.login().iter().copied());
                for (name, value) in PRODUCER.into_iter().chain(own) {
                    arguments.extend([name.to_owned(), value.to_owned()]);
                }
                let mut lane = Lane {
                    client: *client,
                    way: road.way,
                    operation,
                    arguments,
                    bootstrap: road.bootstrap.clone(),
                    topics: vec![topic],
                    producer: None,
                    first: 0,
                    counts_from: None,
                    told: Vec::new(),
                };
                lane.start(0);
                self.lanes.push(lane);
            }
        }
        self.wait_for_acks("the first acknowledgements", 20, Duration::from_secs(120));
    }

    /// Waits until every producer was told of so many more records.
    pub(crate) fn wait_for_acks(&mut self, what: &str, more: usize, patience: Duration) {
        for lane in &mut self.lanes {
            let what = format!("{what} of {:?} {:?}", lane.client, lane.way);
            let producer = lane.producer.as_mut().expect("it was started");
            let before = producer.printed();
            wait_for(&what, patience, || {
                // One that has died is for the judge.
                let goes_on = producer.runs() && producer.printed() < before + more;
                (!goes_on).then_some(())
            });
        }
    }

    /// Lets everything go on as it is.
    pub(crate) fn go_on(&self, time: Duration) {
        pause(time);
    }

    /// What becomes of answers between clients and brokers: before or behind
    /// hapax, or, of a direct way, on the one line there is.
    pub(crate) fn set_weather(&self, side: Side, weather: Weather) {
        for road in &self.roads {
            road.on(side).set(weather);
        }
    }

    /// Waits until nothing has been acknowledged for a while: all that may be
    /// in flight is.
    pub(crate) fn wait_until_silent(&self, side: Side) {
        let mut last = (0, Instant::now());
        wait_for(
            "requests to stay unanswered",
            Duration::from_secs(60),
            || {
                let relays = self.roads.iter().map(|road| road.on(side));
                let lost: u64 = relays.map(|relay| relay.tally().lost).sum();
                if lost != last.0 {
                    last = (lost, Instant::now());
                }
                (lost > 0 && last.1.elapsed() > Duration::from_millis(700)).then_some(())
            },
        );
    }

    pub(crate) fn any_node(&mut self) -> usize {
        usize::try_from(self.random.below(3)).expect("a small number")
    }

    /// Creates a topic, and does not wait until anyone leads it.
    pub(crate) fn create_unsettled(&mut self, prefix: &str, partitions: i32) -> String {
        let name = unique(prefix);
        let replicas = (0..partitions).map(|_| self.any_replicas());
        let replicas: Vec<Replicas> = replicas.collect();
        admin::create_topic(&mut self.cluster.connect(0), &name, &replicas);
        name
    }

    /// Has every partition of a topic led by another node.
    pub(crate) fn move_all_leaders(&mut self, topic: &str, partitions: i32) {
        let replicas = (0..partitions).map(|_| self.any_replicas());
        let replicas: Vec<Replicas> = replicas.collect();
        admin::lead_by(&mut self.cluster.connect(0), topic, &replicas);
    }

    /// The nodes in any order.
    fn any_replicas(&mut self) -> Replicas {
        let mut replicas = vec![1, 2, 3];
        let first = self.any_node();
        replicas.rotate_left(first);
        replicas
    }

    /// Deletes a producer's topic and creates it again; counts from then on.
    pub(crate) fn recreate_topic(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let mut connection = self.cluster.connect(0);
        admin::delete_topic(&mut connection, &lane.topics[0]);
        connection.create_topic(&lane.topics[0], 3, 3, &[]);
        // An acknowledgement of the old one's may still be on its way through the client.
        lane.counts_from = Some(Instant::now() + Duration::from_secs(2));
    }

    /// Waits until no partition lacks a replica: an operator's rolling restart does.
    pub(crate) fn wait_until_in_sync(&self) {
        wait_for("replicas in sync", Duration::from_secs(60), || {
            let topics = self.lanes.iter().flat_map(|lane| &lane.topics);
            let topics: Vec<&str> = topics.map(String::as_str).collect();
            let response = self.cluster.connect(0).metadata(&topics);
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            let mut in_sync = partitions.map(|partition| partition.isr_nodes.len());
            in_sync.all(|count| count == 3).then_some(())
        });
    }

    /// Prints what was done to answers, and what hapax counted.
    pub(crate) fn report(&self) {
        for road in &self.roads {
            let far = road.far.as_ref().map(Relay::tally);
            println!("{:?}: {:?} {far:?}", road.way, road.near.tally());
            let Some(hapax) = &road.hapax else { continue };
            let counted = hapax.metrics().into_iter().filter(|(series, value)| {
                let told = [
                    "hapax_verdicts_total",
                    "hapax_sequence_errors_total",
                    "hapax_resolves_total",
                ];
                *value > 0.0 && told.iter().any(|name| series.starts_with(name))
            });
            for (series, value) in counted {
                println!("  {series} {value}");
            }
        }
    }

    /// How often the hapax of a way looked into the log, could not tell, and left
    /// it to the broker.
    pub(crate) fn looks_in_vain(&self, way: Way) -> f64 {
        let mut of_way = self.roads.iter().filter(|road| road.way == way);
        let Some(hapax) = of_way.next().and_then(|road| road.hapax.as_ref()) else {
            return 0.0;
        };
        hapax.metric("hapax_resolves_total", &[("outcome", "gave_up")])
    }

    /// Ends the producers' work, and waits until they have ended.
    pub(crate) fn end_producers(&mut self, patience: Duration) {
        for lane in &mut self.lanes {
            if let Some(producer) = &mut lane.producer {
                producer.end_input();
            }
        }
        let start = Instant::now();
        for lane in &mut self.lanes {
            let Some(producer) = lane.producer.as_mut() else {
                continue;
            };
            while producer.runs() {
                if start.elapsed() > patience {
                    eprintln!("{:?} {:?} did not end", lane.client, lane.way);
                    producer.kill();
                    break;
                }
                pause(Duration::from_millis(20));
            }
            lane.end(false);
        }
    }

    /// Counts what each producer was told against the log.
    pub(crate) fn judge(&self) -> Vec<(Client, Way, Counts)> {
        let lanes = self.lanes.iter().map(|lane| {
            let logs: Vec<log::Log> = lane
                .topics
                .iter()
                .map(|topic| log::read(&self.cluster, topic))
                .collect();
            (
                lane.client,
                lane.way,
                judge(&lane.told, lane.counts_from, &logs),
            )
        });
        lanes.collect()
    }

    /// The first `hapax` that is in the way.
    pub(crate) fn hapaxes(&self) -> impl Iterator<Item = (Way, &Hapax)> {
        let roads = self.roads.iter();
        roads.filter_map(|road| Some((road.way, road.hapax.as_ref()?)))
    }
}

/// A cluster between two runs: to start three nodes takes longer than most rows do.
struct Standing {
    kafka: &'static str,
    forgets_producers: bool,
    advertised: Vec<String>,
    cluster: Cluster,
}

static STANDING: Mutex<Option<Standing>> = Mutex::new(None);

impl Standing {
    /// The one that was left, if it is of that kind; a new one otherwise.
    fn take(kafka: &'static str, forgets_producers: bool) -> (Cluster, Vec<String>) {
        let left = STANDING.lock().expect("no holder panics").take();
        let fits = |left: &Self| (left.kafka, left.forgets_producers) == (kafka, forgets_producers);
        if let Some(left) = left.filter(fits) {
            return (left.cluster, left.advertised);
        }
        let nodes = 3;
        let advertised = addresses(free_ports(nodes), nodes);
        let cluster = Cluster::start(Options {
            nodes: usize::from(nodes),
            version: kafka,
            fast_pid: forgets_producers,
            // Whoever else runs this can do all but cut a node off.
            has_users: is_root(),
            front_advertised: advertised.clone(),
            properties: PROPERTIES.to_owned(),
            ..Options::default()
        });
        (cluster, advertised)
    }

    fn leave(left: Self) {
        *STANDING.lock().expect("no holder panics") = Some(left);
    }
}

fn is_root() -> bool {
    let process = std::fs::metadata("/proc/self");
    process.is_ok_and(|process| process.uid() == 0)
}

/// Where answers get lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Before,
    Behind,
}

impl Lane {
    /// One whose work is done.
    pub(crate) fn ended(client: Client, way: Way, topic: String, told: Told) -> Self {
        Self {
            client,
            way,
            operation: "",
            arguments: Vec::new(),
            bootstrap: String::new(),
            topics: vec![topic],
            producer: None,
            first: 0,
            counts_from: None,
            told: vec![told],
        }
    }

    /// kill -9, and another process that goes on after the last record that
    /// was acknowledged before any that was not.
    pub(crate) fn kill_and_resume(&mut self) {
        self.producer.as_mut().expect("it was started").kill();
        self.end(true);
        let lines = self.told.iter().flat_map(|told| &told.lines);
        let numbers = lines.filter(|line| line.value["error"].is_null());
        let acked: HashSet<u64> = numbers
            .filter_map(|line| line.value["n"].as_u64())
            .collect();
        let first = (0..).find(|n| !acked.contains(n)).expect("it was killed");
        self.start(first);
    }

    /// Has its producer write to another topic from now on.
    pub(crate) fn tell_topic(&mut self, topic: &str, partitions: i32) {
        self.topics.push(topic.to_owned());
        let producer = self.producer.as_mut().expect("it was started");
        producer.tell(&format!("topic {topic} {partitions}"));
    }

    /// Starts its producer with this record.
    pub(crate) fn start(&mut self, first: u64) {
        let mut arguments = self.arguments.clone();
        arguments.extend(["--first".to_owned(), first.to_string()]);
        let producer = Producer::start(self.client, self.operation, &self.bootstrap, &arguments);
        self.producer = Some(producer);
        self.first = first;
    }

    /// Takes what its process said, which has ended.
    fn end(&mut self, was_killed: bool) {
        let producer = self.producer.take().expect("it was started");
        let (lines, exit_code, errors) = producer.end();
        self.told.push(Told {
            first: self.first,
            lines,
            exit_code,
            errors,
            was_killed,
        });
    }
}

impl Road {
    fn direct(seed: u64, advertised: &[String], fronts: &[String]) -> Self {
        Self {
            way: Way::Direct,
            bootstrap: advertised.join(","),
            near: Relay::start("direct", seed, &pairs(advertised, fronts)),
            far: None,
            hapax: None,
            ports: None,
            hapax_arguments: Vec::new(),
        }
    }

    /// hapax is on 127.0.0.2; before it, on the same ports of 127.0.0.1, is a relay.
    fn through(
        way: Way,
        seed: u64,
        advertised: &[String],
        fronts: &[String],
        more: &[&str],
    ) -> Self {
        let ports = Ports {
            host: "127.0.0.2".to_owned(),
            ..Ports::free(4)
        };
        let numbers = ports.bootstrap..=ports.brokers.1;
        let listening =
            numbers.map(|port| (format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}")));
        let near = Relay::start(
            &format!("{}.near", way.id()),
            seed,
            &listening.collect::<Vec<_>>(),
        );
        let nodes = u16::try_from(fronts.len()).expect("few nodes");
        let behind = addresses(free_ports(nodes), nodes);
        let far = Relay::start(
            &format!("{}.far", way.id()),
            seed.rotate_left(32),
            &pairs(&behind, fronts),
        );
        let map: Vec<String> = pairs(advertised, &behind)
            .into_iter()
            .map(|(named, reached)| format!("{named}={reached}"))
            .collect();
        let fixed = [
            ("--listen-advertised-host", "127.0.0.1".to_owned()),
            ("--upstream", behind.join(",")),
            ("--upstream-address-map", map.join(",")),
        ];
        let fixed = fixed.into_iter();
        let mut hapax_arguments: Vec<String> = fixed
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        let more = way.arguments().iter().chain(more);
        hapax_arguments.extend(more.map(|argument| (*argument).to_owned()));
        let mut road = Self {
            way,
            bootstrap: format!("127.0.0.1:{}", ports.bootstrap),
            near,
            far: Some(far),
            hapax: None,
            ports: Some(ports),
            hapax_arguments,
        };
        road.start_hapax();
        road
    }

    /// Starts hapax, again on the same ports where it has ended.
    pub(crate) fn start_hapax(&mut self) {
        let Some(ports) = self.ports.clone() else {
            return;
        };
        let arguments: Vec<&str> = self.hapax_arguments.iter().map(String::as_str).collect();
        self.hapax = Some(Hapax::start_on(ports, &arguments));
    }

    /// kill -9.
    pub(crate) fn kill_hapax(&mut self) {
        self.hapax = None;
    }

    /// SIGTERM, and its end with exit code 0.
    pub(crate) fn drain_hapax(&mut self) {
        let Some(mut hapax) = self.hapax.take() else {
            return;
        };
        hapax.sigterm();
        assert_eq!(hapax.exit_code(Duration::from_secs(60)), Some(0));
    }

    /// One of the addresses that clients are given.
    pub(crate) fn first_address(&self) -> &str {
        let mut addresses = self.bootstrap.split(',');
        addresses.next().expect("an address")
    }

    /// The relay where answers get lost.
    pub(crate) fn on(&self, side: Side) -> &Relay {
        match (side, &self.far) {
            (Side::Behind, Some(far)) => far,
            _ => &self.near,
        }
    }
}

/// Lets other processes go on.
#[expect(
    clippy::disallowed_methods,
    reason = "a fault lasts as long as it does, and other processes are polled"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn addresses(first: u16, count: u16) -> Vec<String> {
    (first..first + count)
        .map(|port| format!("127.0.0.1:{port}"))
        .collect()
}

fn pairs(from: &[String], to: &[String]) -> Vec<(String, String)> {
    from.iter().cloned().zip(to.iter().cloned()).collect()
}

/// Who may do nothing with its topic but write, where that is a way.
const WRITER: &str = "bob";

/// Topics come into being only when they are made, and a leader that has come
/// back does not take over by itself in the midst of a row. Who does not log in
/// may do everything.
const PROPERTIES: &str = "auto.create.topics.enable=false
auto.leader.rebalance.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true";
