//! `hapax explain`: nothing that a producer may meet is missing, and what is
//! said of hapax is what the window does.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use hapax::events::Kind;
use hapax::explain::{self, Api, Explanation, PerClient, Retry, Settles};
use hapax::ids::{BatchId, Epoch, ProducerId, Sequence};
use hapax::metrics::{EventName, FencedBy, GapKind, Metrics, Original, SequenceError, Verdict};
use hapax::window::{
    Acks, Action, Arrival, Link, Mode, Outcome, Realm, Rules, Sender, Time, Window, classify,
};
use serde_json::{Value, json};

/// The codes that a response may carry. Sources: the list above each class
/// `org.apache.kafka.common.requests.*Response` of Kafka 4.0; the comments in
/// `TxnOffsetCommitResponse.json` of 4.4.0; the errors that the classes of
/// 4.4.0 refer to where they answer (ReplicaManager, Partition, UnifiedLog,
/// LogValidator, ProducerAppendInfo, DelayedProduce, KafkaApis,
/// TransactionCoordinator, TransactionStateManager, TransactionMetadata,
/// GroupCoordinatorService, ClassicGroup, AddPartitionsToTxnManager). 46 and
/// 59 are those of older brokers, 44 that of proxies with a policy.
const CARRIED: &[(Api, &[i16])] = &[
    (
        Api::Produce,
        &[
            -1, 2, 3, 6, 7, 10, 17, 18, 19, 20, 21, 29, 31, 32, 43, 44, 45, 46, 47, 48, 49, 51, 53,
            56, 59, 76, 87, 90, 100, 120,
        ],
    ),
    (
        Api::InitProducerId,
        &[-1, 14, 15, 16, 31, 35, 42, 47, 50, 51, 53, 90, 120],
    ),
    (
        Api::AddPartitionsToTxn,
        &[-1, 3, 14, 15, 16, 29, 42, 47, 48, 49, 51, 53, 55, 90, 120],
    ),
    (
        Api::AddOffsetsToTxn,
        &[-1, 14, 15, 16, 30, 42, 47, 48, 49, 51, 53, 90, 120],
    ),
    (
        Api::TxnOffsetCommit,
        &[
            -1, 3, 7, 12, 14, 15, 16, 22, 24, 25, 28, 29, 30, 43, 47, 48, 49, 51, 53, 69, 82, 90,
            100, 113, 120,
        ],
    ),
    (
        Api::EndTxn,
        &[-1, 14, 15, 16, 42, 47, 48, 49, 51, 53, 90, 120],
    ),
];

fn hapax(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.env_clear().args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = hapax(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_error_of_a_response_is_explained_with_the_apis_that_carry_it() {
    for (api, codes) in CARRIED {
        let explained: BTreeSet<i16> = explain::all()
            .filter_map(Explanation::code)
            .filter(|error| error.carriers.contains(api))
            .map(|error| error.code)
            .collect();
        let carried: BTreeSet<i16> = codes.iter().copied().collect();
        assert_eq!(explained, carried, "{api:?}");
        for code in carried {
            assert_eq!(
                explain::find(&code.to_string()).unwrap().key(),
                code.to_string()
            );
        }
    }
}

/// Name, exception and retriability of each code, from Kafka's own client.
fn kafkas_errors() -> BTreeMap<i16, (String, String, bool)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let jars = run(Command::new(tests.join("kafka/kafka")).args(["jars", "4.4.0"]));
    let mut java = Command::new("java");
    java.arg("-cp").arg(format!("{}/*", jars.trim()));
    let listed = run(java.arg(tests.join("explain/ListErrors.java")));
    let errors = listed.lines().map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [code, name, exception, retriable] = fields[..] else {
            panic!("{line}");
        };
        let retriable = retriable.parse().unwrap();
        let error = (name.to_owned(), exception.to_owned(), retriable);
        (code.parse().unwrap(), error)
    });
    errors.collect()
}

#[test]
fn names_and_retriable_are_those_of_kafkas_client() {
    let kafkas = kafkas_errors();
    assert!(kafkas.len() > 100, "{}", kafkas.len());
    for entry in explain::all() {
        let Some(error) = entry.code() else { continue };
        let (name, exception, retriable) = &kafkas[&error.code];
        assert_eq!(entry.name, name);
        assert_eq!(explain::names_of(error.code).java, exception);
        assert_eq!(error.retry == Retry::Again, *retriable, "{name}");
    }
}

#[test]
fn what_hapax_tells_is_explained() {
    let labels = EventName::ALL.iter().map(|name| name.label());
    let labels = labels
        .chain(Verdict::ALL.iter().map(|verdict| verdict.label()))
        .chain(GapKind::ALL.iter().map(|kind| kind.label()))
        .chain(SequenceError::ALL.iter().map(|error| error.label()));
    for label in labels {
        let entry = explain::find(label).unwrap_or_else(|unknown| panic!("{label}: {unknown}"));
        assert_eq!(entry.name.to_lowercase(), label);
    }
}

#[test]
fn an_event_leads_to_its_own_explanation() {
    let mut kinds = vec![
        Kind::DuplicateAbsorbed,
        Kind::DuplicateForwarded,
        Kind::SequenceReuse,
        Kind::Overlap,
        Kind::StaleEpoch,
        Kind::EpochBump,
        Kind::Disagreement,
        Kind::LogTruncated,
        Kind::DuplicateResolved,
        Kind::Shielded,
        Kind::PolicyViolation,
    ];
    kinds.extend(
        Original::ALL
            .iter()
            .map(|original| Kind::EpochResend(*original)),
    );
    kinds.extend(GapKind::ALL.iter().map(|kind| Kind::Gap(*kind)));
    kinds.extend(FencedBy::ALL.iter().map(|by| Kind::FencedProducer(*by)));
    let names: BTreeSet<_> = kinds.iter().map(|kind| kind.label()).collect();
    assert_eq!(names.len(), EventName::ALL.len(), "a kind is missing here");
    for kind in kinds {
        let entry = kind.explanation();
        let gap = matches!(kind, Kind::Gap(_));
        let expected = if gap {
            kind.detail().unwrap()
        } else {
            kind.label()
        };
        // An event may be named by an error.
        assert_eq!(entry.name.to_lowercase(), expected);
        let found = explain::find(entry.name).unwrap();
        assert_eq!(found.says, entry.says);
        assert!(entry.says.ends_with('.') && entry.hint().ends_with('.'));
    }
}

#[test]
fn every_name_leads_to_its_explanation_in_every_spelling() {
    let mut own: Vec<(String, &str)> = Vec::new();
    for entry in explain::all() {
        let mut names = vec![entry.name.to_owned(), entry.key()];
        names.extend(entry.aliases.iter().map(|alias| (*alias).to_owned()));
        if let Some(error) = entry.code() {
            let PerClient {
                java,
                librdkafka,
                franz_go,
                sarama,
                kafkajs,
            } = explain::names_of(error.code);
            assert!(!java.is_empty(), "{} has no name in Java", error.code);
            names.push(format!("org.apache.kafka.common.errors.{java}"));
            names.push(java.to_owned());
            let prefixed = [
                ("RD_KAFKA_RESP_ERR_", librdkafka),
                ("ERR_", librdkafka),
                ("kerr.", franz_go),
                ("sarama.", sarama),
                ("", kafkajs),
            ];
            for (prefix, name) in prefixed {
                if !name.is_empty() {
                    names.push(format!("{prefix}{name}"));
                }
            }
        }
        own.extend(names.into_iter().map(|name| (name, entry.name)));
    }
    assert!(own.len() > 300, "{}", own.len());
    for (name, expected) in own {
        for spelling in [
            name.clone(),
            name.to_lowercase(),
            name.to_uppercase(),
            name.replace('_', "-"),
        ] {
            let found = explain::find(&spelling).map(|entry| entry.name);
            assert_eq!(found, Ok(expected), "{spelling}");
        }
    }
}

#[test]
fn nothing_is_left_open_and_a_screen_is_enough() {
    let known: BTreeSet<String> = explain::all().map(Explanation::key).collect();
    for entry in explain::all() {
        let name = entry.name;
        assert!(!entry.says.is_empty() && !entry.raised.is_empty(), "{name}");
        assert!(!entry.causes.is_empty(), "{name}");
        assert!(!entry.advice.is_empty(), "{name}: what is to be done?");
        let carried = entry.code().is_some_and(|error| !error.carriers.is_empty());
        if carried {
            assert!(!entry.clients.java.is_empty(), "{name}");
        }
        for see in entry.see {
            assert!(known.contains(*see), "{name} leads to {see}");
        }
        let text = explain::text(entry);
        let lines = text.lines().count();
        assert!(lines <= 40, "{name} has {lines} lines:\n{text}");
        for line in text.lines() {
            let copied = entry.promql.iter().any(|query| line.ends_with(query));
            let most = if copied { 100 } else { 80 };
            assert!(line.chars().count() <= most, "{name}: {line}");
        }
    }
    for line in explain::list().lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn every_query_names_series_that_exist() {
    let metrics = Metrics::new(10);
    let _topic = metrics.topic("orders");
    let scrape = String::from_utf8(metrics.render()).unwrap();
    let mut queries = 0;
    for query in explain::all().flat_map(|entry| entry.promql) {
        queries += 1;
        let at = query.find("hapax_").unwrap();
        let rest = &query[at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let name = &rest[..end.unwrap_or(rest.len())];
        let labels = rest
            .split_once('{')
            .filter(|_| rest[name.len()..].starts_with('{'));
        let labels = labels.map_or("", |(_, labels)| labels.split_once('}').unwrap().0);
        let wanted: Vec<_> = labels
            .split(',')
            .filter(|label| !label.is_empty())
            .collect();
        let found = scrape.lines().any(|line| {
            let series = line.strip_prefix(name);
            series.is_some_and(|series| {
                series.starts_with(['{', ' ']) && wanted.iter().all(|label| series.contains(label))
            })
        });
        assert!(found, "{query}");
    }
    assert!(queries > 40, "{queries}");
}

#[test]
fn prometheus_takes_every_query() {
    let queries: BTreeSet<&str> = explain::all()
        .flat_map(|entry| entry.promql.iter().copied())
        .collect();
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| json!({ "record": format!("q{at}"), "expr": query }))
        .collect();
    // JSON is YAML.
    let file = json!({ "groups": [{ "name": "explained", "rules": rules }] });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, file.to_string()).unwrap();
    let output = Command::new("promtool")
        .args(["check", "rules"])
        .arg(&path)
        .output()
        .expect("promtool runs: apt-get install prometheus");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(&format!("{} rules found", queries.len())),
        "{said}"
    );
}

const RULES: Rules = Rules {
    mode: Mode::Absorb,
    ttl: Duration::from_secs(300),
    window_batches: 5,
    absorb_transactional: false,
    shield45: false,
};

fn arrival(first: i32) -> Arrival {
    Arrival {
        batch: BatchId {
            producer: ProducerId::from_wire(7).unwrap(),
            epoch: Epoch(0),
            first: Sequence::from_wire(first).unwrap(),
            count: 1,
            crc: first.unsigned_abs(),
            len: 80,
        },
        transactional: false,
        acks: Acks::All,
        realm: Some(Realm(NonZeroU32::MIN)),
        node: None,
        link: Link(NonZeroU32::MIN),
        now: Time(0),
        patient: true,
        old: false,
    }
}

/// What becomes of a batch behind one that was answered with `code`.
fn follower_of(code: i16, base_offset: Option<i64>) -> Action {
    window_after(code, base_offset)
        .judge(&arrival(2), &RULES)
        .action
}

/// How often a batch that begins with `first` is answered in the broker's place.
fn answers_to(first: i32, mut window: Window) -> usize {
    let mut answers = 0;
    loop {
        let verdict = window.judge(&arrival(first), &RULES);
        let Action::Mirror(code) = verdict.action else {
            return answers;
        };
        window.mirrored(&arrival(first), &verdict, code);
        answers += 1;
    }
}

/// A window with a batch that was written and one that was answered with `code`.
fn window_after(code: i16, base_offset: Option<i64>) -> Window {
    window_of(&[(0, 0, Some(0)), (1, code, base_offset)])
}

/// A window with batches that were answered with a code and an offset.
fn window_of(answered: &[(i32, i16, Option<i64>)]) -> Window {
    let mut window = Window::new(Time(0));
    let sender = Sender {
        acks: Acks::All,
        node: None,
        realm: Some(Realm(NonZeroU32::MIN)),
        link: arrival(0).link,
    };
    for &(first, code, offset) in answered {
        let arrival = arrival(first);
        let verdict = window.judge(&arrival, &RULES);
        assert_eq!(verdict.action, Action::Forward);
        let attempt = window.commit(&arrival, &verdict).unwrap().id;
        let outcome = classify(code, offset, -1, None);
        let _ = window.settle(attempt, &arrival.batch, &sender, outcome, &RULES, Time(0));
    }
    window
}

#[test]
fn what_is_said_of_hapax_is_what_the_window_does() {
    for entry in explain::all() {
        let Some(error) = entry.code() else { continue };
        let code = error.code;
        let produced = error.carriers.contains(&Api::Produce);
        assert_eq!(error.settles.is_some(), produced, "{code}");
        let Some(settles) = error.settles else {
            continue;
        };
        let outcome = |offset| classify(code, offset, -1, None);
        let (without, with) = (outcome(None), outcome(Some(5)));
        let unknown = Outcome::Unknown { candidate: Some(5) };
        let follower = follower_of(code, None);
        let words = explain::text(entry)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if let Action::Mirror(_) = follower {
            assert_eq!(answers_to(2, window_after(code, None)), 1, "{code}");
            assert_eq!(answers_to(1, window_of(&[(0, code, None)])), 3, "{code}");
            assert!(words.contains("once, or three times"), "{code}: {words}");
        }
        match settles {
            Settles::Written => {
                assert_eq!(without, Outcome::Written(None), "{code}");
                assert_eq!(follower, Action::Forward, "{code}");
            }
            Settles::ToRetry | Settles::ToRetryUnlessAppended => {
                let Action::Mirror(mirrored) = follower else {
                    panic!("{code}: {follower:?}");
                };
                assert_eq!(without, Outcome::Failed(code));
                let may_be_appended = settles == Settles::ToRetryUnlessAppended;
                let expected = if may_be_appended {
                    Outcome::Unknown { candidate: None }
                } else {
                    Outcome::Failed(code)
                };
                assert_eq!(with, expected, "{code}");
                let said = format!("never sent get {mirrored} until");
                assert!(words.contains(&said), "{code}: {words}");
            }
            Settles::Refused => {
                assert_eq!(
                    (without, with),
                    (Outcome::Refused(code), Outcome::Refused(code))
                );
                assert_eq!(follower, Action::Forward, "{code}");
            }
            Settles::OutOfOrder => {
                assert_eq!((without, with), (Outcome::OutOfOrder, Outcome::OutOfOrder));
                assert_eq!(follower, Action::Forward, "{code}");
            }
            Settles::Unknown => {
                assert_eq!(without, Outcome::Unknown { candidate: None }, "{code}");
                assert_eq!(with, unknown, "{code}");
                assert_eq!(follower, Action::Mirror(19), "{code}");
                assert_eq!(follower_of(code, Some(5)), Action::Forward, "{code}");
                assert!(words.contains("Without an offset"), "{code}: {words}");
                assert!(words.contains("never sent get 19 until"), "{code}: {words}");
            }
        }
    }
}

#[test]
fn the_page_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explain/ERRORS.md");
    let page = explain::page();
    if std::env::var_os("HAPAX_TESTS_WRITE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "src/explain/ERRORS.md is not what the code says: run this test with HAPAX_TESTS_WRITE=1"
    );
    for line in page.lines() {
        assert_eq!(line.trim_end(), line);
    }
}

#[test]
fn the_command_explains_lists_and_refuses() {
    let text = printed(&["explain", "45"]);
    assert!(
        text.starts_with("45  OUT_OF_ORDER_SEQUENCE_NUMBER"),
        "{text}"
    );
    for word in [
        "Java",
        "librdkafka",
        "franz-go",
        "sarama",
        "KafkaJS",
        "hapax",
    ] {
        assert!(text.contains(&format!("\n{word} ")), "{word}: {text}");
    }
    assert_eq!(
        printed(&["explain", "out", "of", "order", "sequence", "number"]),
        text
    );
    assert_eq!(printed(&["explain", "ErrOutOfOrderSequenceNumber"]), text);
    assert!(printed(&["explain", "-1"]).starts_with("-1  UNKNOWN_SERVER_ERROR"));

    let list = printed(&["explain"]);
    for entry in explain::all() {
        assert!(list.contains(entry.name), "{}", entry.name);
    }

    let row: Value = serde_json::from_str(&printed(&["explain", "--json", "gap"])).unwrap();
    assert_eq!(row["name"], "gap");
    assert!(row["advice"][0].is_string(), "{row}");
    let rows = printed(&["explain", "--json"]);
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), explain::all().count());

    for (typed, said) in [
        ("PRODUCER_FENCD", "perhaps PRODUCER_FENCED"),
        ("99", "error 99"),
        ("no such thing", "nothing is called no such thing"),
    ] {
        let output = hapax(&["explain", typed]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{typed}");
        assert!(stderr.contains(said), "{typed}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn three_beliefs_are_put_right_where_people_look() {
    for (typed, truth) in [
        ("46", "five for each producer id and partition"),
        ("45", "five for each producer id and partition"),
        ("idempotence", "five for each producer id and partition"),
        ("59", "Each start gets a new one, whatever client.id says"),
        (
            "client.id",
            "Each start gets a new one, whatever client.id says",
        ),
        ("PRODUCER_FENCED", "A producer may be shared by threads"),
        ("fencing", "A producer may be shared by threads"),
    ] {
        let text = explain::text(explain::find(typed).unwrap());
        let words: Vec<_> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(truth), "{typed}: {text}");
    }
}
