//! What idempotence gives and what it does not: five experiments, directly and
//! through hapax. Each leaves its table under `target/tests/experiments`, from
//! which `tests/run experiments` makes the report that the README quotes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};

use crate::clients::{Client, Outcome};
use crate::cluster::{Batch, Cluster, Options, Snapshot, assert_once_in_order, values};
use crate::hapax::{Hapax, Ports, Route};
use crate::line::{Line, Tally, Weather};
use crate::raw::{Connection, batch, batch_in_epoch, topic_name};
use crate::tools::{Random, free_ports};

const MESSAGES: u64 = 10_000;
const PARTITIONS: i32 = 4;

#[test]
fn ten_thousand_java_messages_over_a_rough_line_are_written_once_in_order() {
    check_rough_line(Client::Java, "500", "1a");
}

#[test]
fn ten_thousand_librdkafka_messages_over_a_rough_line_are_written_once_in_order() {
    check_rough_line(Client::Confluent, "1500", "1b");
}

/// The control: were no acknowledgement lost, nothing would be written twice here.
#[test]
fn without_idempotence_the_same_line_makes_duplicates() {
    let mut table = Table::new("Java, `enable.idempotence=false`, the same line");
    for way in Way::compared() {
        let setting = Setting::new(way, rough());
        let topic = setting.cluster.create_topic("control", PARTITIONS);
        let more = ["--idempotence", "false", "--batch-bytes", "500"];
        produce_over_line(Client::Java, &setting, &topic, &more);
        let (tally, log) = (setting.line.tally(), setting.cluster.log(&topic));
        let written = Written::of(&log);
        assert!(tally.retries_of_acked > 0, "{tally:?}");
        assert!(
            log.iter().all(|batch| batch.producer_id < 0),
            "no idempotence"
        );
        assert_eq!(written.keys, MESSAGES, "nothing is lost");
        assert!(written.duplicates() > 0, "{tally:?}");
        rough_line_rows(&mut table, way, &tally, &written);
        if let Some(hapax) = &setting.hapax {
            assert_eq!(verdict(hapax, "untracked"), tally.batches);
            table.add("`untracked` by hapax", way, tally.batches);
        }
    }
    table.report("1c", "");
}

#[test]
fn clients_refuse_idempotence_with_acks_1_and_some_drop_it_in_silence() {
    let cluster = Cluster::one();
    let mut text = String::from(
        "### 2. Idempotence with `acks=1`\n\n\
        | client | `acks=1` with idempotence asked for | `acks=1` alone |\n|---|---|---|\n",
    );
    for (client, words) in [
        (Client::Java, "ConfigException: Must set acks to all"),
        (Client::Confluent, "`acks` must be set to `all`"),
        (Client::Kcat, "`acks` must be set to `all`"),
        (Client::FranzGo, "idempotency requires acks=all"),
        (Client::Sarama, "Idempotent producer requires"),
    ] {
        let (refusal, alone) = produce_with_acks_1(client, words, cluster);
        let _ = writeln!(text, "| {} | {refusal} | {alone} |", client_name(client));
    }
    check_that_kafka_takes_acks_1(cluster);
    let _ = writeln!(
        text,
        "\nThe rule is the clients' own: Kafka 4.4.0 takes an idempotent batch with `acks=1`."
    );
    report("2", &text);
}

/// What a client says to `acks=1`, with idempotence asked for and without.
fn produce_with_acks_1(client: Client, words: &str, cluster: &Cluster) -> (String, &'static str) {
    let hapax = (Route::chosen() == Route::Hapax).then(|| Hapax::in_front_of(cluster, &[]));
    let bootstrap = hapax
        .as_ref()
        .map_or_else(|| cluster.bootstrap(), Hapax::bootstrap);
    let topic = cluster.create_topic("acks", 1);
    let start = |idempotence| {
        let arguments = [
            "--topic",
            &topic,
            "--count",
            "20",
            "--acks",
            "1",
            "--idempotence",
            idempotence,
        ];
        client.start("produce", &bootstrap, &arguments)
    };
    let refusal = sentence(&start("true").fails(), words);
    if let Some(hapax) = &hapax {
        let batches = hapax.metric("hapax_verdicts_total", &[]);
        assert_eq!(count(batches), 0, "it is refused before a word to Kafka");
    }
    if client == Client::FranzGo {
        let again = sentence(&start("unset").fails(), words);
        assert_eq!(again, refusal, "idempotence is its default");
        assert!(cluster.log(&topic).is_empty());
        return (refusal, "refused alike: idempotence is the default");
    }
    assert_eq!(start("unset").finish().summary["acked"], 20);
    let log = cluster.log(&topic);
    assert_eq!(Written::of(&log).records, 20, "these alone");
    assert!(log.iter().all(|batch| batch.producer_id < 0), "{log:?}");
    if let Some(hapax) = &hapax {
        assert!(verdict(hapax, "untracked") >= size(log.len()));
        let ids = hapax.metric("hapax_producer_ids_issued_total", &[]);
        assert_eq!(count(ids), 0, "no idempotence");
    }
    match client {
        Client::Java => (
            refusal,
            "written, idempotence (its default) is dropped; hapax: `untracked`",
        ),
        _ => (
            refusal,
            "written, idempotence is not the default; hapax: `untracked`",
        ),
    }
}

/// The rule is the clients' alone.
fn check_that_kafka_takes_acks_1(cluster: &Cluster) {
    let topic = cluster.create_topic("acks", 1);
    let mut connection = cluster.connect(0);
    let producer_id = connection.init_producer_id();
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(batch(producer_id, 0, 0, "0")));
    let data = TopicProduceData::default()
        .with_name(topic_name(&topic))
        .with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(1)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![data]);
    let answer = connection.call(9, &request);
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(cluster.log(&topic)[0].producer_id, producer_id);
}

#[test]
fn the_producer_snapshot_of_kafka_agrees_with_the_producers_api() {
    if Route::chosen() == Route::Direct {
        return; // about hapax alone
    }
    let cluster = Cluster::start(Options::default());
    let hapax = Hapax::in_front_of(&cluster, &[]);
    let topic = cluster.create_topic("snapshot", 3);
    for (client, count) in [
        (Client::Java, "1000"),
        (Client::Confluent, "2000"),
        (Client::FranzGo, "2999"),
    ] {
        let arguments = ["--topic", &topic, "--partitions", "3", "--count", count];
        client.run("produce", &hapax.bootstrap(), &arguments);
    }
    produce_in_a_second_epoch(&hapax, &topic);
    let arguments = ["--topic", &topic, "--partitions", "3", "--count", "100"];
    let arguments = [&arguments[..], &["--transactional-id", "x"]].concat();
    Client::Java.run("transact", &hapax.bootstrap(), &arguments);
    cluster.stop(0);

    let mut of_kafka = cluster.snapshots(&topic, 3);
    of_kafka.sort();
    let mut of_hapax = producers(&hapax, &topic);
    of_hapax.sort();
    let by_id = |rows: &[(Snapshot, String)], id: i64| {
        let rows = rows.iter().filter(|(row, _)| row.producer_id == id);
        rows.cloned().collect::<Vec<_>>()
    };
    let (ended, plain): (Vec<Snapshot>, Vec<Snapshot>) = of_kafka
        .into_iter()
        .partition(|row| row.last_sequence.is_none());
    let transactional = by_id(&of_hapax, ended[0].producer_id);
    of_hapax.retain(|(row, _)| row.producer_id != ended[0].producer_id);
    assert_eq!(
        plain.len(),
        10,
        "three producers on three partitions, and one on one"
    );
    let rows: Vec<Snapshot> = of_hapax.iter().map(|(row, _)| row.clone()).collect();
    assert_eq!(plain, rows);
    // 1,000, 2,000 and 2,999 records over three partitions, and one in a second epoch.
    let last: BTreeSet<_> = plain
        .iter()
        .map(|row| (row.epoch, row.last_sequence))
        .collect();
    let expected = [
        (0, 332),
        (0, 333),
        (0, 665),
        (0, 666),
        (0, 998),
        (0, 999),
        (1, 0),
    ];
    assert_eq!(
        last,
        expected.map(|(epoch, last)| (epoch, Some(last))).into()
    );
    // Kafka raises the epoch at a transaction's end, which is not the producer's doing.
    assert_eq!((ended.len(), transactional.len()), (3, 3));
    for (kafka, (ours, _)) in ended.iter().zip(&transactional) {
        assert_eq!(
            (kafka.partition, kafka.epoch),
            (ours.partition, ours.epoch + 1)
        );
        assert!(ours.last_sequence.is_some());
    }

    let mut text = String::from(
        "### 3. Kafka's producer snapshot and `/api/v1/producers`\n\n\
        Producer id, epoch, and the last sequence on each partition; from the snapshots of a broker that SIGTERM ended, as `DumpLogSegments` reads them, and from hapax.\n\n\
        | client | snapshot | `/api/v1/producers` |\n|---|---|---|\n",
    );
    let kafka: Vec<Snapshot> = plain.into_iter().chain(ended).collect();
    let ours: Vec<Snapshot> = of_hapax
        .iter()
        .chain(&transactional)
        .map(|(row, _)| row.clone())
        .collect();
    for id in kafka
        .iter()
        .map(|row| row.producer_id)
        .collect::<BTreeSet<_>>()
    {
        let (_, client) = of_hapax
            .iter()
            .chain(&transactional)
            .find(|(row, _)| row.producer_id == id)
            .expect("a row");
        let _ = writeln!(
            text,
            "| {client} | {} | {} |",
            cell(&kafka, id),
            cell(&ours, id)
        );
    }
    let _ = writeln!(
        text,
        "\nThe last is a transactional producer: Kafka raises the epoch at a transaction's end, and hapax shows the last batch that the producer wrote."
    );
    report("3", &text);
}

/// A producer id, its epoch, and its last sequences by partition.
fn cell(rows: &[Snapshot], id: i64) -> String {
    let ours = rows.iter().filter(|row| row.producer_id == id);
    let (epochs, last): (BTreeSet<i16>, Vec<String>) = ours
        .map(|row| {
            let last = row.last_sequence.map(|last| last.to_string());
            (row.epoch, last.unwrap_or_else(|| "none".to_owned()))
        })
        .unzip();
    format!("{id}, {epochs:?}, {}", last.join(" ")).replace(['{', '}'], "")
}

/// What hapax shows of a topic's producers, with their client ids.
fn producers(hapax: &Hapax, topic: &str) -> Vec<(Snapshot, String)> {
    let rows = hapax.api("/api/v1/producers?limit=1000")["producers"].clone();
    let rows = rows.as_array().expect("a list").iter();
    let ours = rows.filter(|row| row["topic"] == *topic);
    ours.map(|row| {
        let number = |name: &str| {
            row[name]
                .as_i64()
                .unwrap_or_else(|| panic!("no {name} in {row}"))
        };
        let small = |name: &str| i32::try_from(number(name)).expect("a small number");
        let shown = Snapshot {
            partition: small("partition"),
            producer_id: number("producer_id"),
            epoch: i16::try_from(number("epoch")).expect("an epoch"),
            last_sequence: Some(small("last_acked_sequence")),
        };
        (
            shown,
            row["client_id"].as_str().expect("a client id").to_owned(),
        )
    })
    .collect()
}

fn produce_in_a_second_epoch(hapax: &Hapax, topic: &str) {
    let mut client = Connection::open(&hapax.bootstrap());
    let id = client.init_producer_id();
    for (epoch, sequence) in [(0, 0), (0, 1), (1, 0)] {
        let batch = batch_in_epoch(epoch, id, sequence, 1_700_000_000_000, "0");
        assert_eq!(client.produce(topic, &batch).error_code, 0);
    }
}

#[test]
fn two_producers_with_equal_keys_are_both_written() {
    let mut table =
        Table::new("Java and franz-go, started together, the same 2,000 keys and values");
    for way in Way::compared() {
        let setting = Setting::new(way, Weather::default());
        let topic = setting.cluster.create_topic("equal", PARTITIONS);
        let arguments = [
            "--topic",
            &topic,
            "--partitions",
            "4",
            "--count",
            "2000",
            "--keys",
        ];
        let producers = [Client::Java, Client::FranzGo]
            .map(|client| client.start("produce", &setting.bootstrap, &arguments));
        for producer in producers {
            assert_eq!(producer.finish().summary["acked"], 2000);
        }
        let log = setting.cluster.log(&topic);
        let written = Written::of(&log);
        assert_eq!(
            (written.records, written.keys, written.most),
            (4000, 2000, 2)
        );
        let producers = keys_by_producer(&log);
        assert_eq!(producers.len(), 2);
        assert!(producers.values().all(|keys| keys.len() == 2000));
        table.add("producer ids", way, size(producers.len()));
        table.add("records in the log", way, written.records);
        table.add("keys in the log twice", way, written.duplicates());
        if let Some(hapax) = &setting.hapax {
            assert_eq!(verdict(hapax, "duplicate_absorbed"), 0);
            assert_eq!(verdict(hapax, "duplicate_forwarded"), 0);
            assert_eq!(hapax.metric("hapax_producer_ids_issued_total", &[]), 2.0);
            table.add("absorbed by hapax", way, 0);
        }
        check_equal_bytes(&setting);
    }
    table.report("4", "### 4. Two producers with equal keys\n\nKafka and hapax go by producer ids and sequences, not by keys.");
}

/// Two batches that differ in nothing but their producer's id.
fn check_equal_bytes(setting: &Setting) {
    let topic = setting.cluster.create_topic("bytes", 1);
    let mut client = Connection::open(&setting.bootstrap);
    client.metadata(&[&topic]);
    for offset in 0..2 {
        let producer_id = client.init_producer_id();
        let batch = batch(producer_id, 0, 1_700_000_000_000, "0");
        let answer = client.produce(&topic, &batch);
        assert_eq!((answer.error_code, answer.base_offset), (0, offset));
    }
    assert_eq!(setting.cluster.log(&topic).len(), 2);
    if let Some(hapax) = &setting.hapax {
        assert_eq!(hapax.batches(&topic, "forwarded"), 2);
    }
}

#[test]
fn java_killed_half_way_and_restarted_from_the_start_writes_duplicates() {
    check_restart(Client::Java, Restart::FromTheStart, "5a");
}

#[test]
fn java_killed_half_way_and_restarted_where_it_was_writes_duplicates() {
    check_restart(Client::Java, Restart::WhereItWas, "5b");
}

#[test]
fn librdkafka_killed_half_way_and_restarted_where_it_was_writes_duplicates() {
    check_restart(Client::Confluent, Restart::WhereItWas, "5c");
}

/// What the application does after its producer was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Restart {
    /// It sends everything again.
    FromTheStart,
    /// It goes on with the first message that it has no acknowledgement of.
    WhereItWas,
}

/// A new process has a new producer id, so neither Kafka nor hapax can know
/// that it sends what another one sent.
fn check_restart(client: Client, restart: Restart, name: &str) {
    let title = match restart {
        Restart::FromTheStart => "started again from `msg-0`",
        Restart::WhereItWas => "started again at its first message without acknowledgement",
    };
    let mut table = Table::new(&format!("{}, {title}", client_name(client)));
    for way in Way::compared() {
        let weather = Weather {
            holds_after: Some(MESSAGES / 2),
            ..Weather::default()
        };
        let setting = Setting::new(way, weather);
        let topic = setting.cluster.create_topic("killed", PARTITIONS);
        let produce = |first: u64| {
            let (count, first) = ((MESSAGES - first).to_string(), first.to_string());
            let arguments = [
                "--topic",
                &topic,
                "--partitions",
                "4",
                "--keys",
                "--first",
                &first,
                "--count",
                &count,
                "--linger-ms",
                "5",
                "--batch-bytes",
                "1000",
            ];
            client.start("produce", &setting.bootstrap, &arguments)
        };

        let producer = produce(0);
        // From here on Kafka writes what the producer will never hear of.
        let acked = setting.line.wait_for_hold();
        producer.wait_for_lines(usize::try_from(acked).expect("few"));
        let acked: BTreeSet<u64> = producer
            .kill()
            .iter()
            .map(|line| line["n"].as_u64().expect("an acknowledgement"))
            .collect();
        setting.line.wait_until_idle();
        setting.line.release();
        let position = match restart {
            Restart::FromTheStart => 0,
            Restart::WhereItWas => (0..).find(|n| !acked.contains(n)).expect("it was killed"),
        };
        let produced = produce(position).finish();
        assert_eq!(produced.summary["acked"], MESSAGES - position);

        let log = setting.cluster.log(&topic);
        let written = Written::of(&log);
        let producers = keys_by_producer(&log);
        let [first, second] = &producers.into_values().collect::<Vec<_>>()[..] else {
            panic!("two producer ids, one of each process");
        };
        let key = |n: u64| format!("msg-{n}");
        assert!(
            acked.iter().all(|n| first.contains(&key(*n))),
            "acknowledged is written"
        );
        assert!((0..MESSAGES).all(|n| first.contains(&key(n)) || second.contains(&key(n))));
        let again = (position..MESSAGES).filter(|n| first.contains(&key(*n)));
        let again = size(again.count());
        assert_eq!((written.keys, written.most), (MESSAGES, 2));
        assert_eq!(written.duplicates(), again, "what both processes wrote");
        let held = setting.line.tally().held_records;
        assert!(held > 0 && again >= held, "{again} twice, {held} held");

        table.add("acknowledged before kill -9", way, size(acked.len()));
        table.add("written before kill -9", way, size(first.len()));
        table.add("the second process starts with message", way, position);
        table.add("records in the log", way, written.records);
        table.add("keys in the log at least once", way, written.keys);
        table.add("keys in the log twice", way, written.duplicates());
        if let Some(hapax) = &setting.hapax {
            check_what_hapax_says(hapax, &topic);
            table.add("absorbed by hapax", way, 0);
            table.add("producer ids of this client id at hapax", way, 2);
        }
    }
    let heading = "### 5. Ten thousand keys, the producer killed half-way\n\nA new process has a new producer id: Kafka does not know its messages again, and hapax does not yet. What hapax shows is the second producer id of one client id, in `hapax producers` and by `hapax_producer_ids_issued_total`.";
    table.report(name, if name == "5a" { heading } else { "" });
}

/// It takes nothing for a duplicate, and shows one client with two producer ids.
fn check_what_hapax_says(hapax: &Hapax, topic: &str) {
    assert_eq!(verdict(hapax, "duplicate_absorbed"), 0);
    assert_eq!(verdict(hapax, "duplicate_forwarded"), 0);
    assert_eq!(hapax.metric("hapax_producer_ids_issued_total", &[]), 2.0);
    let rows = producers(hapax, topic);
    let ids: BTreeSet<i64> = rows.iter().map(|(row, _)| row.producer_id).collect();
    let client_ids: BTreeSet<&String> = rows.iter().map(|(_, client_id)| client_id).collect();
    assert_eq!((ids.len(), client_ids.len()), (2, 1), "{rows:?}");
}

/// Java puts a batch of each partition into a request, librdkafka one batch.
fn check_rough_line(client: Client, batch_bytes: &str, name: &str) {
    let mut table = Table::new(client_name(client));
    // One look at a hapax that only looks on is enough.
    let ways = Way::all().filter(|way| *way != Way::Observe || client == Client::Java);
    for way in ways {
        let setting = Setting::new(way, rough());
        let topic = setting.cluster.create_topic("rough", PARTITIONS);
        let produced = produce_over_line(client, &setting, &topic, &["--batch-bytes", batch_bytes]);
        let (tally, log) = (setting.line.tally(), setting.cluster.log(&topic));
        println!("{client:?} {way:?}: {tally:?}");
        assert!(tally.cuts > 0 && tally.darks > 0, "{tally:?}");
        assert!(tally.retries_of_acked > 0, "{tally:?}");
        assert_once_in_order(&log, MESSAGES);
        check_acknowledgements(&produced, &log);
        assert!(log.iter().all(Batch::is_idempotent));
        let written = Written::of(&log);
        rough_line_rows(&mut table, way, &tally, &written);
        match (&setting.hapax, &setting.behind) {
            (Some(hapax), Some(behind)) => {
                let mode_absorbs = way == Way::Hapax;
                let absorbed = check_retries(hapax, &tally, &behind.tally(), mode_absorbs);
                table.add("batches that Kafka received", way, behind.tally().batches);
                table.add("`duplicate_absorbed` by hapax", way, absorbed);
                let forwarded = verdict(hapax, "duplicate_forwarded");
                table.add("`duplicate_forwarded` by hapax", way, forwarded);
            }
            _ => table.add("batches that Kafka received", way, tally.batches),
        }
    }
    let heading = "### 1. Ten thousand messages under delay and jitter\n\nEach way takes 5 to 25 ms. Every so often the client does not hear of an acknowledgement: its connection is cut, or silent for a second. Kafka recognises these retries too, as long as it remembers the producer's last five batches; through hapax they do not reach it, and are counted.";
    table.report(name, if name == "1a" { heading } else { "" });
}

/// Each record is where its acknowledgement, an absorbed one too, says it is.
fn check_acknowledgements(produced: &Outcome, log: &[Batch]) {
    let places = log.iter().flat_map(|batch| {
        let offsets = batch.offset..;
        let partition = i64::from(batch.partition);
        let values = offsets.zip(&batch.values);
        values.map(move |(offset, value)| ((partition, offset), value.as_str()))
    });
    let places: HashMap<(i64, i64), &str> = places.collect();
    let acknowledged = produced.records();
    let numbers: HashSet<u64> = acknowledged.iter().map(|(n, ..)| *n).collect();
    assert_eq!(size(numbers.len()), MESSAGES, "each is acknowledged");
    for (n, partition, offset) in acknowledged {
        let found = places.get(&(partition, offset)).copied();
        let place = format!("offset {offset} of partition {partition}");
        assert_eq!(found, Some(n.to_string().as_str()), "{place}");
    }
}

/// What hapax counts is what the lines before and behind it saw: how many
/// retries it absorbed.
fn check_retries(hapax: &Hapax, before: &Tally, behind: &Tally, absorbs: bool) -> u64 {
    let absorbed = verdict(hapax, "duplicate_absorbed");
    let forwarded = verdict(hapax, "duplicate_forwarded");
    let all = count(hapax.metric("hapax_verdicts_total", &[]));
    assert_eq!(all, before.batches, "a verdict for each batch");
    assert_eq!(behind.batches, before.batches - absorbed, "{behind:?}");
    assert_eq!(behind.retries, before.retries - absorbed, "{behind:?}");
    let recognised = absorbed + forwarded;
    assert!(
        (before.retries_of_acked..=before.retries).contains(&recognised),
        "{recognised} recognised, {before:?}"
    );
    if absorbs {
        assert!(
            absorbed >= before.retries_of_acked,
            "{absorbed}, {before:?}"
        );
    } else {
        assert_eq!(absorbed, 0);
    }
    absorbed
}

fn rough() -> Weather {
    let seed = std::env::var("SEED").map_or_else(
        |_| Random::from_clock().below(1 << 32),
        |text| text.parse().expect("SEED is a number"),
    );
    println!("SEED={seed}");
    Weather {
        seed,
        delay_ms: 5,
        jitter_ms: 20,
        loses_one_in: 12,
        holds_after: None,
    }
}

fn produce_over_line(client: Client, setting: &Setting, topic: &str, more: &[&str]) -> Outcome {
    let arguments = [
        "--topic",
        topic,
        "--partitions",
        "4",
        "--count",
        "10000",
        "--keys",
        "--linger-ms",
        "5",
        "--in-flight",
        "5",
        "--request-timeout-ms",
        "1000",
        "--backoff-ms",
        "10",
    ];
    let arguments = [&arguments[..], more].concat();
    let produced = client.run("produce", &setting.bootstrap, &arguments);
    assert_eq!(produced.summary["acked"], MESSAGES);
    setting.line.wait_until_idle();
    produced
}

fn rough_line_rows(table: &mut Table, way: Way, tally: &Tally, written: &Written) {
    table.add("acknowledgements that never arrived", way, tally.lost_acks);
    table.add("batches sent again", way, tally.retries);
    table.add(
        "… after they had been acknowledged",
        way,
        tally.retries_of_acked,
    );
    table.add("records in the log", way, written.records);
    table.add("duplicates", way, written.duplicates());
    table.add("out of order", way, written.out_of_order);
}

/// How a client reaches Kafka.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Direct,
    Hapax,
    /// Through a hapax that only looks on.
    Observe,
}

impl Way {
    /// Direct alone where `TEST_ROUTE=direct` asks for the baseline.
    fn compared() -> impl Iterator<Item = Self> {
        Self::all().filter(|way| *way != Self::Observe)
    }

    fn all() -> impl Iterator<Item = Self> {
        let all = [Self::Direct, Self::Hapax, Self::Observe].into_iter();
        all.filter(|way| *way == Self::Direct || Route::chosen() == Route::Hapax)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hapax => "through hapax",
            Self::Observe => "through `--mode observe`",
        }
    }
}

/// client → line on 127.0.0.1 → hapax on 127.0.0.2, the same ports → a line that does nothing → Kafka;
/// or client → line → Kafka.
struct Setting {
    cluster: &'static Cluster,
    bootstrap: String,
    line: Line,
    hapax: Option<Hapax>,
    /// Between hapax and Kafka, to see what hapax forwards; does nothing.
    behind: Option<Line>,
    _turn: MutexGuard<'static, ()>,
}

impl Setting {
    fn new(way: Way, weather: Weather) -> Self {
        // The port that the cluster advertises for the line is one.
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (cluster, advertised) = cluster_behind_a_line();
        let mut line = Line::new(weather);
        let (kafka, _) = cluster.fronts().next().expect("one node");
        let mode = match way {
            Way::Direct => {
                line.leads(advertised, &kafka);
                return Self {
                    cluster,
                    bootstrap: advertised.clone(),
                    line,
                    hapax: None,
                    behind: None,
                    _turn: turn,
                };
            }
            Way::Hapax => "absorb",
            Way::Observe => "observe",
        };
        let ports = Ports {
            host: "127.0.0.2".to_owned(),
            ..Ports::free(2)
        };
        for port in ports.bootstrap..=ports.brokers.1 {
            line.leads(&format!("127.0.0.1:{port}"), &format!("127.0.0.2:{port}"));
        }
        let bootstrap = format!("127.0.0.1:{}", ports.bootstrap);
        let upstream = format!("127.0.0.1:{}", free_ports(1));
        let mut behind = Line::new(Weather::default());
        behind.leads(&upstream, &kafka);
        let map = format!("{advertised}={upstream}");
        let mut arguments = vec!["--upstream", &upstream, "--upstream-address-map", &map];
        arguments.extend(["--listen-advertised-host", "127.0.0.1", "--mode", mode]);
        let hapax = Hapax::start_on(ports, &arguments);
        Self {
            cluster,
            bootstrap,
            line,
            hapax: Some(hapax),
            behind: Some(behind),
            _turn: turn,
        }
    }
}

/// One node that advertises where a line is to listen.
fn cluster_behind_a_line() -> &'static (Cluster, String) {
    static CLUSTER: OnceLock<(Cluster, String)> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let advertised = format!("127.0.0.1:{}", free_ports(1));
        let cluster = Cluster::start(Options {
            front_advertised: vec![advertised.clone()],
            ..Options::default()
        });
        (cluster, advertised)
    })
}

/// What a log holds.
struct Written {
    records: u64,
    keys: u64,
    /// The most records of one key.
    most: u64,
    /// Records behind a later one of their partition, or behind their own copy.
    out_of_order: u64,
}

impl Written {
    fn of(log: &[Batch]) -> Self {
        let mut copies: HashMap<&str, u64> = HashMap::new();
        for key in log.iter().flat_map(|batch| &batch.keys) {
            *copies.entry(key).or_default() += 1;
        }
        let out_of_order = |numbers: &Vec<u64>| {
            let pairs = numbers.windows(2);
            size(pairs.filter(|pair| pair[0] >= pair[1]).count())
        };
        Self {
            records: copies.values().sum(),
            keys: size(copies.len()),
            most: copies.values().copied().max().unwrap_or(0),
            out_of_order: values(log).values().map(out_of_order).sum(),
        }
    }

    fn duplicates(&self) -> u64 {
        self.records - self.keys
    }
}

/// The keys that each producer id wrote; ids rise in the order in which they were given out.
fn keys_by_producer(log: &[Batch]) -> BTreeMap<i64, HashSet<String>> {
    let mut keys: BTreeMap<i64, HashSet<String>> = BTreeMap::new();
    for batch in log {
        let ours = keys.entry(batch.producer_id).or_default();
        ours.extend(batch.keys.iter().cloned());
    }
    keys
}

/// Batches with that verdict, of all topics.
fn verdict(hapax: &Hapax, verdict: &str) -> u64 {
    count(hapax.metric("hapax_verdicts_total", &[("verdict", verdict)]))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter is a whole number"
)]
fn count(counter: f64) -> u64 {
    counter as u64
}

fn size(length: usize) -> u64 {
    u64::try_from(length).expect("few")
}

fn client_name(client: Client) -> &'static str {
    match client {
        Client::Java => "Java 4.4.0",
        Client::Confluent | Client::Steps => "librdkafka 2.16",
        Client::FranzGo => "franz-go 1.22.3",
        Client::Sarama => "sarama 1.61.1",
        Client::Kcat => "librdkafka 2.0 (kcat)",
    }
}

/// The sentence with these words, out of what a client prints as it ends.
#[track_caller]
fn sentence(stderr: &str, words: &str) -> String {
    let found = stderr
        .lines()
        .find_map(|line| Some(&line[line.find(words)?..]));
    let sentence = found.unwrap_or_else(|| panic!("no {words:?} in {stderr}"));
    sentence.trim_end_matches(['"', '}', ')']).to_owned()
}

/// A table with a column for each way.
struct Table {
    title: String,
    rows: Vec<(String, BTreeMap<Way, String>)>,
}

impl Table {
    fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            rows: Vec::new(),
        }
    }

    fn add(&mut self, name: &str, way: Way, value: u64) {
        let index = self.rows.iter().position(|row| row.0 == name);
        let index = index.unwrap_or_else(|| {
            self.rows.push((name.to_owned(), BTreeMap::new()));
            self.rows.len() - 1
        });
        self.rows[index].1.insert(way, value.to_string());
    }

    /// Leaves it for the report, below a heading where there is one.
    fn report(&self, name: &str, heading: &str) {
        let ways: BTreeSet<Way> = self
            .rows
            .iter()
            .flat_map(|row| row.1.keys().copied())
            .collect();
        let mut text = String::new();
        if !heading.is_empty() {
            let _ = writeln!(text, "{heading}\n");
        }
        let titles: Vec<&str> = ways.iter().map(|way| way.title()).collect();
        let _ = writeln!(text, "| {} | {} |", self.title, titles.join(" | "));
        let _ = writeln!(text, "|---|{}", "--:|".repeat(ways.len()));
        for (name, cells) in &self.rows {
            let cells: Vec<&str> = ways
                .iter()
                .map(|way| cells.get(way).map_or("", String::as_str))
                .collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
        report(name, &text);
    }
}

fn report(name: &str, text: &str) {
    println!("{text}");
    if Route::chosen() == Route::Direct {
        return; // half of it
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tests/experiments");
    fs::create_dir_all(&folder).expect("target is writable");
    fs::write(folder.join(format!("{name}.md")), text).expect("target is writable");
}
