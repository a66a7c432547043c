//! What a producer was told against what the log holds.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::log::{Log, Record};
use crate::producers::Line;

/// What a producer's process came to.
pub(crate) struct Told {
    /// The first record that it was asked for.
    pub(crate) first: u64,
    pub(crate) lines: Vec<Line>,
    /// None where it had to be killed.
    pub(crate) exit_code: Option<i32>,
    pub(crate) errors: String,
    /// By the row itself: it is no fault that it had no last word.
    pub(crate) was_killed: bool,
}

/// One producer's run, counted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) acked: u64,
    /// Records in the log more than once, beyond the first.
    pub(crate) duplicates: u64,
    /// Acknowledged, and not in the log.
    pub(crate) lost: u64,
    /// Records that stand before one that was sent earlier to the same partition.
    pub(crate) reordered: u64,
    /// Reported to the application as not written.
    pub(crate) given_up: u64,
    /// Those of them that are written all the same.
    pub(crate) given_up_in_log: u64,
    /// Of which the application was told nothing.
    pub(crate) untold: u64,
    /// Acknowledged at a place that holds another record.
    pub(crate) misplaced: u64,
    /// The client could not go on, or did not end.
    pub(crate) fatal: u64,
    /// The longest time without an acknowledgement from one partition.
    pub(crate) stall: Duration,
    /// The errors that records were given up with, and what a dead client said.
    pub(crate) reasons: Vec<String>,
}

impl Counts {
    /// Of many runs: sums, and the longest stall.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.acked += other.acked;
        self.duplicates += other.duplicates;
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.given_up += other.given_up;
        self.given_up_in_log += other.given_up_in_log;
        self.untold += other.untold;
        self.misplaced += other.misplaced;
        self.fatal += other.fatal;
        self.stall = self.stall.max(other.stall);
        for reason in &other.reasons {
            if !self.reasons.contains(reason) {
                self.reasons.push(reason.clone());
            }
        }
    }

    /// What must not happen, by name.
    pub(crate) fn faults(&self) -> [(&'static str, u64); 7] {
        [
            ("duplicates", self.duplicates),
            ("lost", self.lost),
            ("reordered", self.reordered),
            ("given up", self.given_up),
            ("not told of", self.untold),
            ("misplaced", self.misplaced),
            ("fatal errors", self.fatal),
        ]
    }

    /// Whether nothing of it happened.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults().iter().all(|(_, count)| *count == 0)
    }
}

/// What a client said of one record.
enum Word {
    Acked {
        partition: i64,
        offset: i64,
    },
    Failed,
    /// Acknowledged before it counts.
    Long,
}

/// Counts what one producer's processes were told, one after the other, against
/// the logs of its topics. Where it wrote to several, places are not compared.
/// What was acknowledged before `from` is not looked for.
pub(crate) fn judge(told: &[Told], from: Option<Instant>, logs: &[Log]) -> Counts {
    let mut counts = Counts::default();
    let words = words(told, from, &mut counts);
    count_log(logs, &mut counts);
    let written: HashSet<u64> = records(logs).map(|(_, record)| record.number).collect();
    let places: HashMap<(i64, i64), u64> = records(logs)
        .map(|(partition, record)| ((i64::from(partition), record.offset), record.number))
        .collect();
    for (number, word) in &words {
        match word {
            Word::Acked { partition, offset } => {
                counts.acked += 1;
                counts.lost += u64::from(!written.contains(number));
                let is_elsewhere = *offset >= 0
                    && logs.len() == 1
                    && places.get(&(*partition, *offset)) != Some(number);
                counts.misplaced += u64::from(is_elsewhere && written.contains(number));
            }
            Word::Long => counts.acked += 1,
            Word::Failed => {
                counts.given_up += 1;
                counts.given_up_in_log += u64::from(written.contains(number));
            }
        }
    }
    let numbers = written.iter().chain(words.keys());
    let seen = numbers.max().map_or(0, |last| last + 1);
    counts.sent = counts.sent.max(seen);
    counts.untold = counts.sent - counts.acked - counts.given_up;
    counts
}

/// The records of all partitions.
fn records(logs: &[Log]) -> impl Iterator<Item = (i32, Record)> {
    let partitions = logs.iter().flat_map(|log| log.iter());
    partitions.flat_map(|(partition, records)| records.iter().map(|record| (*partition, *record)))
}

/// What was said of each record; how it ended, and the longest stall.
fn words(told: &[Told], from: Option<Instant>, counts: &mut Counts) -> HashMap<u64, Word> {
    let mut words = HashMap::new();
    for process in told {
        count_end(process, counts);
    }
    let mut last_acks: HashMap<i64, Instant> = HashMap::new();
    for line in told.iter().flat_map(|process| &process.lines) {
        let value = &line.value;
        if let Some(fatal) = value["fatal"].as_str() {
            counts.fatal += 1;
            note(&mut counts.reasons, fatal);
        }
        let Some(number) = value["n"].as_u64() else {
            continue;
        };
        if let Some(error) = value["error"].as_str() {
            note(&mut counts.reasons, error);
            words.insert(number, Word::Failed);
            continue;
        }
        let partition = value["partition"].as_i64().unwrap_or(-1);
        if let Some(last) = last_acks.insert(partition, line.at) {
            counts.stall = counts.stall.max(line.at - last);
        }
        if from.is_some_and(|from| line.at < from) {
            words.insert(number, Word::Long);
            continue;
        }
        let place = |name: &str| value[name].as_i64().unwrap_or(-1);
        let (partition, offset) = (place("partition"), place("offset"));
        words.insert(number, Word::Acked { partition, offset });
    }
    words
}

/// Counts how many records a process sent, or that it died.
fn count_end(process: &Told, counts: &mut Counts) {
    let mut lines = process.lines.iter().rev();
    if let Some(sent) = lines.find_map(|line| line.value["sent"].as_u64()) {
        counts.sent = process.first + sent;
    } else if !process.was_killed {
        counts.fatal += 1;
        let mut errors = process.errors.lines();
        let last = errors.rfind(|line| !line.trim().is_empty());
        let stuck = "it did not end";
        note(
            &mut counts.reasons,
            process.exit_code.and(last).unwrap_or(stuck),
        );
    }
}

/// Keeps an error once, without what differs from record to record.
fn note(reasons: &mut Vec<String>, error: &str) {
    let reason: String = error
        .chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .take(160)
        .collect();
    if reasons.len() < 8 && !reasons.contains(&reason) {
        reasons.push(reason);
    }
}

fn count_log(logs: &[Log], counts: &mut Counts) {
    let mut seen = HashSet::new();
    for records in logs.iter().flat_map(|log| log.values()) {
        let mut last = None;
        for record in records {
            if !seen.insert(record.number) {
                counts.duplicates += 1;
                continue;
            }
            counts.reordered += u64::from(last > Some(record.number));
            last = Some(record.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What `lines` and the numbers in one partition's log are counted as.
    fn check(lines: &[Value], log: &[u64], expected: &Counts) {
        let at = Instant::now();
        let told = Told {
            first: 0,
            was_killed: false,
            lines: lines
                .iter()
                .map(|value| Line {
                    at,
                    value: value.clone(),
                })
                .collect(),
            exit_code: Some(0),
            errors: "a reason\n\n".to_owned(),
        };
        let records = (0..)
            .zip(log)
            .map(|(offset, number)| Record {
                offset,
                number: *number,
            })
            .collect();
        assert_eq!(
            judge(&[told], None, &[Log::from([(0, records)])]),
            *expected
        );
    }

    fn acked(n: u64, offset: i64) -> Value {
        json!({"n": n, "partition": 0, "offset": offset})
    }

    fn counts(sent: u64, acked: u64) -> Counts {
        Counts {
            sent,
            acked,
            ..Counts::default()
        }
    }

    #[test]
    fn what_is_acknowledged_and_there_once_in_order_is_clean() {
        let lines = [acked(0, 0), acked(1, 1), json!({"sent": 2})];
        check(&lines, &[0, 1], &counts(2, 2));
        assert!(counts(2, 2).is_clean());
    }

    #[test]
    fn a_record_written_twice_is_a_duplicate_and_no_disorder() {
        let lines = [acked(0, 0), acked(1, 1), json!({"sent": 2})];
        let expected = Counts {
            duplicates: 1,
            ..counts(2, 2)
        };
        check(&lines, &[0, 1, 0], &expected);
        assert!(!expected.is_clean());
    }

    #[test]
    fn an_acknowledged_record_that_is_not_there_is_lost() {
        let lines = [acked(0, 0), acked(1, 1), json!({"sent": 2})];
        let expected = Counts {
            lost: 1,
            ..counts(2, 2)
        };
        check(&lines, &[0], &expected);
    }

    #[test]
    fn a_record_before_an_earlier_one_is_disorder() {
        let lines = [acked(0, 1), acked(1, 0), json!({"sent": 2})];
        let expected = Counts {
            reordered: 1,
            ..counts(2, 2)
        };
        check(&lines, &[1, 0], &expected);
    }

    #[test]
    fn an_acknowledgement_must_name_the_right_place() {
        let lines = [acked(0, 0), acked(1, 0), json!({"sent": 2})];
        let expected = Counts {
            misplaced: 1,
            ..counts(2, 2)
        };
        check(&lines, &[0, 1], &expected);
        let lines = [acked(0, 0), acked(1, -1), json!({"sent": 2})];
        check(&lines, &[0, 1], &counts(2, 2));
    }

    #[test]
    fn a_record_given_up_may_be_written_and_one_not_told_of_is_counted() {
        let error = |n: u64| json!({"n": n, "error": "timed out after 3000 ms"});
        let lines = [acked(0, 0), error(1), error(2), json!({"sent": 4})];
        let expected = Counts {
            given_up: 2,
            given_up_in_log: 1,
            untold: 1,
            reasons: vec!["timed out after #### ms".to_owned()],
            ..counts(4, 1)
        };
        check(&lines, &[0, 1], &expected);
    }

    #[test]
    fn a_client_without_a_last_line_has_died() {
        let expected = Counts {
            fatal: 1,
            untold: 1,
            reasons: vec!["a reason".to_owned()],
            ..counts(2, 1)
        };
        check(&[acked(0, 0)], &[0, 1], &expected);
    }
}
