//! A part of the client matrix, small enough for every run of the tests:
//! every client that needs no long build, with the newest Kafka and the oldest.
//! `tests/run clients` runs all of it.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]
#![allow(dead_code, reason = "the whole matrix uses these modules too")]

#[path = "../support/mod.rs"]
mod support;

mod cells;
mod judge;
mod kafka;
mod old_versions;
mod programs;
mod relay;
mod report;
mod snippets;

use crate::cells::offered;
use crate::programs::{Client, Operation, root};

#[test]
fn clients_do_all_they_offer_with_the_newest_kafka() {
    let mut cells = offered(&quickly_built(), &Operation::ALL);
    cells.push((Client::KafkaJsStamped, Operation::LostAck));
    check("4.4.0", &cells);
}

/// Those with protocol versions of their own do everything.
#[test]
fn clients_write_once_and_groups_go_on_with_the_oldest_kafka() {
    let mut cells = offered(&quickly_built(), &[Operation::Idempotent, Operation::Group]);
    let particular = [Client::Sarama, Client::KafkaPython, Client::KafkaJs];
    cells.extend(offered(
        &particular,
        &[Operation::Plain, Operation::Transactional],
    ));
    cells.extend(offered(&[Client::Kcat09], &Operation::ALL));
    check("2.8.2", &cells);
}

fn quickly_built() -> Vec<Client> {
    let all = Client::ALL.into_iter();
    all.filter(|client| !client.is_slow_to_build()).collect()
}

#[track_caller]
fn check(kafka: &'static str, cells: &[(Client, Operation)]) {
    let (run, complaints) = cells::run(kafka, cells);
    assert_eq!(run.len(), cells.len());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_versions_that_the_table_names_are_those_that_are_installed() {
    for client in Client::ALL {
        let (file, line) = client.pin();
        let text = std::fs::read_to_string(root().join(file)).expect("a readable file");
        assert!(text.contains(line), "{line} is not in {file}");
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        let separators = [' ', '=', 'v', '"', ','];
        let named = client.title().split(separators).find(is_number);
        let pinned = line.split(separators).rfind(is_number);
        if client != Client::Kcat {
            assert_eq!(named, pinned, "{client:?}");
        }
    }
    let packages = std::fs::read_to_string(root().join("tests/lib/packages.sh"));
    let packages = packages.expect("a readable file");
    for kafka in cells::KAFKAS {
        assert!(packages.contains(kafka), "Kafka {kafka} is not installed");
    }
}

#[test]
fn the_readme_has_the_table_of_the_results() {
    let read = |file| std::fs::read_to_string(file).expect("a readable file");
    let (readme, results) = (read(report::readme_file()), read(report::results_file()));
    assert_eq!(report::block(&readme), report::block(&results));
    let rows = report::block(&results)
        .lines()
        .filter(|line| line.contains("| "));
    assert_eq!(rows.count(), Client::ALL.len() + 1, "a row a client");
}

#[test]
fn the_readmes_lines_for_a_client_make_it_an_idempotent_producer_through_hapax() {
    let complaints = snippets::run(&snippets::QUICK);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_readme_has_two_lines_for_each_of_ten_clients() {
    let run = snippets::QUICK.iter().chain(&snippets::SLOW);
    let mut expected: Vec<&str> = run.map(|(name, _)| *name).collect();
    expected.extend(snippets::NOT_RUN);
    expected.sort_unstable();
    let snippets = snippets::snippets();
    assert_eq!(snippets.keys().collect::<Vec<_>>(), expected);
    for (name, lines) in snippets {
        assert_eq!(lines.lines().count(), 2, "{name}");
        assert!(lines.contains("localhost:19092"), "{name}");
    }
}
