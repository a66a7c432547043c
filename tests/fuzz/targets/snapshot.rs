//! The bytes of a snapshot: of another, of a damaged one, and of one whose checksum is right whatever it says.

use std::time::Duration;

use hapax::ledger::Ledger;
use hapax::snapshot::facts::{self, survey};
use hapax::snapshot::format::VERSION;
use hapax::snapshot::{Record, Snapshot, decode, encode};
use hapax::window::Time;

use super::choices::Choices;
use super::window;

const NOW: Time = Time(1000);

/// Bytes as they are.
pub fn any(input: &[u8]) {
    check(input, 0);
}

/// How old it is, which bit is damaged, and what stands between its version and its end.
pub fn sealed(input: &[u8]) {
    let mut choices = Choices::new(input);
    let elapsed_s = choices.of(&[0, 1, 60, 300, 1 << 40]);
    let damaged = usize::from(u16::from_be_bytes(choices.array()));
    let mut bytes = b"HAPAXSNP".to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(choices.rest());
    let length = u64::try_from(bytes.len() + 12).unwrap();
    bytes.extend(length.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    check(&bytes, elapsed_s);
    let bit = damaged % (8 * bytes.len());
    bytes[bit / 8] ^= 1 << (bit % 8);
    assert!(decode(&bytes).is_err(), "a damaged snapshot is read");
    bytes.truncate(damaged % bytes.len());
    assert!(decode(&bytes).is_err(), "a part of a snapshot is read");
}

fn check(bytes: &[u8], elapsed_s: u64) {
    let ledger = Ledger::new(window::rules(), 64, 16);
    let loaded = facts::load(bytes, &ledger, Duration::from_secs(elapsed_s), NOW);
    match decode(bytes) {
        Ok(snapshot) => {
            assert_eq!(decode(&encode(&snapshot)).as_ref(), Ok(&snapshot));
            let facts = snapshot.records.iter().map(facts_of).sum::<usize>();
            let survey = survey(bytes).unwrap();
            assert_eq!(usize::try_from(survey.facts), Ok(facts));
            let loaded = loaded.unwrap();
            assert_eq!(usize::try_from(loaded.facts + loaded.dropped), Ok(facts));
            check_loaded(&snapshot, &ledger, elapsed_s);
        }
        Err(flaw) => {
            assert_eq!(survey(bytes), Err(flaw));
            assert_eq!(loaded, Err(flaw));
            assert!(!flaw.to_string().is_empty());
        }
    }
}

fn facts_of(record: &Record) -> usize {
    match record {
        Record::Window(window) => window.facts.len(),
        Record::Slot(..) | Record::Total(..) | Record::Identity(_) | Record::Topic(_) => 0,
    }
}

/// What a ledger has of a snapshot stood in it, and is no younger.
fn check_loaded(snapshot: &Snapshot, ledger: &Ledger, elapsed_s: u64) {
    let taken = decode(&facts::take(ledger, &snapshot.head, NOW)).unwrap();
    let windows = |record| match record {
        Record::Window(window) => Some(window),
        _ => None,
    };
    let before: Vec<_> = snapshot
        .records
        .iter()
        .cloned()
        .filter_map(windows)
        .collect();
    for window in taken.records.into_iter().filter_map(windows) {
        for fact in &window.facts {
            let stood = before.iter().filter(|other| {
                (other.producer, other.partition, other.epoch)
                    == (window.producer, window.partition, window.epoch)
            });
            let mut stood = stood.flat_map(|other| &other.facts);
            let same = stood.any(|other| {
                let age_s = u64::from(other.age_s) + elapsed_s;
                let aged = hapax::snapshot::format::FactRecord {
                    age_s: other.age_s,
                    ..*fact
                };
                aged == *other && u64::from(fact.age_s) >= age_s
            });
            assert!(same, "{fact:?} of {window:?} came from nowhere");
        }
    }
}
