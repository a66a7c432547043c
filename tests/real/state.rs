//! hapax is killed and started again over one `state.dir`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use kafka_protocol::messages::DescribeProducersRequest;
use kafka_protocol::messages::describe_producers_request::TopicRequest;

use crate::clients::Client;
use crate::cluster::{Cluster, Options, assert_once_in_order, values};
use crate::hapax::{Hapax, Ports, Route};
use crate::raw::{Connection, batch, topic_name};
use crate::tools::{Random, unique, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A hapax on known ports, over one directory or none.
struct Pod<'a> {
    cluster: &'a Cluster,
    ports: Ports,
    directory: Option<PathBuf>,
    hapax: Option<Hapax>,
}

impl<'a> Pod<'a> {
    fn new(cluster: &'a Cluster, keeps_state: bool) -> Self {
        let directory = std::env::temp_dir().join(unique("hapax-state"));
        let mut pod = Self {
            cluster,
            ports: Ports::free(8),
            directory: keeps_state.then_some(directory),
            hapax: None,
        };
        pod.start();
        pod
    }

    fn start(&mut self) {
        let state = self.directory.as_ref().map(|directory| {
            let directory = directory.display();
            [
                format!("--state-dir={directory}"),
                "--state-interval=20ms".to_owned(),
            ]
        });
        let flags: Vec<&str> = state.iter().flatten().map(String::as_str).collect();
        let ports = self.ports.clone();
        self.hapax = Some(Hapax::on_ports_in_front_of(ports, self.cluster, &flags));
    }

    fn file(&self) -> PathBuf {
        let directory = self.directory.as_ref().expect("it keeps state");
        directory.join("hapax.snapshot")
    }

    fn hapax(&self) -> &Hapax {
        self.hapax.as_ref().expect("it runs")
    }

    fn kill(&mut self) {
        // Dropping it is kill -9.
        self.hapax = None;
    }

    fn wait_for_snapshots(&self, count: f64) {
        wait_for("snapshots", PATIENCE, || {
            let written = self.hapax().metric("hapax_snapshot_writes_total", &[]);
            (written >= count).then_some(())
        });
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        self.kill();
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// The producer has expired at the broker, hapax was killed, and the first
/// thing that the client sends is the retry: no metadata before it.
#[test]
fn a_retry_that_kafka_has_forgotten_is_absorbed_by_a_hapax_that_was_killed_meanwhile() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let cluster = Cluster::start(Options {
        fast_pid: true,
        ..Options::default()
    });
    assert_eq!(written_again(&cluster, false), 2, "hapax forgot as well");
    assert_eq!(written_again(&cluster, true), 1);
}

/// How often the log has the batch.
fn written_again(cluster: &Cluster, keeps_state: bool) -> usize {
    let mut pod = Pod::new(cluster, keeps_state);
    let topic = cluster.create_topic("killed", 1);
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let yesterday = now - Duration::from_secs(26 * 3600);
    let yesterday = i64::try_from(yesterday.as_millis()).expect("a time of this age");
    let mut client = Connection::open(&pod.hapax().bootstrap());
    client.metadata(&[&topic]);
    let batch = batch(client.init_producer_id(), 0, yesterday, "0");
    let first = client.produce(&topic, &batch);
    assert_eq!((first.error_code, first.base_offset), (0, 0));
    wait_until_forgotten(cluster, &topic);
    if keeps_state {
        let written = pod.hapax().metric("hapax_snapshot_writes_total", &[]);
        pod.wait_for_snapshots(written + 2.0);
    }
    pod.kill();
    drop(client);
    pod.start();
    let retry = Connection::open(&pod.hapax().bootstrap()).produce(&topic, &batch);
    assert_eq!(retry.error_code, 0);
    if keeps_state {
        assert_eq!(retry, first, "the answer is the first acknowledgement");
        let absorbed = ("verdict", "duplicate_absorbed");
        let absorbed = pod.hapax().metric("hapax_verdicts_total", &[absorbed]);
        assert!((absorbed - 1.0).abs() < f64::EPSILON);
    }
    cluster.log(&topic).len()
}

/// Kafka forgets a producer by the time of its last record.
fn wait_until_forgotten(cluster: &Cluster, topic: &str) {
    let mut connection = cluster.connect(0);
    let topic = TopicRequest::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    wait_for("the producer's expiry", PATIENCE, || {
        let response = connection.call(0, &request);
        let partition = &response.topics[0].partitions[0];
        partition.active_producers.is_empty().then_some(())
    });
}

#[test]
fn java_loses_and_doubles_nothing_while_hapax_is_killed_again_and_again() {
    check_killed(Client::Java);
}

#[test]
fn confluent_kafka_loses_and_doubles_nothing_while_hapax_is_killed_again_and_again() {
    check_killed(Client::Confluent);
}

#[test]
fn franz_go_loses_and_doubles_nothing_while_hapax_is_killed_again_and_again() {
    check_killed(Client::FranzGo);
}

/// Snapshots are written all the time, so that most kills meet one being
/// written. Every other restart finds the snapshot of the kill before, as
/// after a volume that was brought back.
fn check_killed(client: Client) {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let seed = std::env::var("SEED").map_or_else(
        |_| Random::from_clock().below(1 << 32),
        |text| text.parse().expect("SEED is a number"),
    );
    println!("{client:?}: SEED={seed}");
    let mut random = Random::new(seed);
    let cluster = Cluster::one();
    let topic = cluster.create_topic("hapax-killed", 3);
    let mut pod = Pod::new(cluster, true);
    let producer = client.start(
        "produce",
        &pod.hapax().bootstrap(),
        &[
            "--topic",
            &topic,
            "--partitions",
            "3",
            "--rate",
            "1000",
            "--until-input-ends",
            "--linger-ms",
            "5",
            "--batch-bytes",
            "400",
            "--in-flight",
            "5",
            "--request-timeout-ms",
            "2000",
            "--delivery-timeout-ms",
            "120000",
            "--backoff-ms",
            "20",
        ],
    );
    let mut loaded = 0.0;
    let mut absorbed = 0;
    let mut old = None;
    for round in 0..KILLS {
        let lines = usize::try_from(100 + random.below(700)).expect("a small number");
        producer.wait_for_lines(producer.printed() + lines);
        absorbed += pod.hapax().batches(&topic, "duplicate_absorbed");
        pod.kill();
        let newest = fs::read(pod.file()).expect("a whole snapshot at any time");
        if let Some(old) = old.replace(newest)
            && round % 2 == 1
        {
            fs::write(pod.file(), old).expect("the directory is writable");
        }
        pod.start();
        loaded += pod.hapax().metric("hapax_snapshot_loaded_facts", &[]);
        let broken = pod.hapax().metric("hapax_snapshots_set_aside_total", &[]);
        assert!(broken < 1.0, "{}", pod.hapax().log());
    }
    producer.wait_for_lines(producer.printed() + 300);
    absorbed += pod.hapax().batches(&topic, "duplicate_absorbed");
    let produced = producer.finish();
    println!(
        "{client:?}: {KILLS} kills, {loaded} acknowledgements loaded, {absorbed} retries absorbed, {}",
        produced.summary
    );
    assert!(loaded > 0.0);
    let sent = produced.summary["sent"].as_u64().expect("a count");
    assert_eq!(produced.summary["acked"], sent);
    let log = cluster.log(&topic);
    assert_once_in_order(&log, sent);
    let values = values(&log);
    for (n, partition, _) in produced.records() {
        let partition = i32::try_from(partition).expect("a small number");
        assert!(
            values[&partition].binary_search(&n).is_ok(),
            "acknowledged record {n} is not where it should be"
        );
    }
}

const KILLS: usize = 8;
