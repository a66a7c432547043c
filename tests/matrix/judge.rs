//! PURE: whether what a client said, what the log holds and what hapax
//! counted are what the operation promises.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::kafka::{Batch, PARTITIONS};
use crate::programs::{Client, Operation};

/// Records of a producer without transactions.
pub(crate) const RECORDS: u64 = 300;
/// Records of each of the three transactions.
pub(crate) const TRANSACTION: u64 = 10;

/// (record, partition, offset) of each line that tells them.
fn places(lines: &[Value]) -> Vec<(u64, i64, i64)> {
    let place = |line: &Value| {
        Some((
            line["n"].as_u64()?,
            line["partition"].as_i64()?,
            line["offset"].as_i64()?,
        ))
    };
    lines.iter().filter_map(place).collect()
}

/// A producer's acknowledgements and the log agree, and the log is what it promised.
pub(crate) fn produced(
    client: Client,
    operation: Operation,
    lines: &[Value],
    log: &[Batch],
) -> Result<(), String> {
    let records = match operation {
        Operation::Transactional => 3 * TRANSACTION,
        Operation::Plain | Operation::Idempotent | Operation::LostAck | Operation::Group => RECORDS,
    };
    let written = written(log)?;
    let each = (0..records).map(|n| written.iter().filter(|(_, m)| **m == n).count());
    let (lost, twice) = each.fold((0, 0), |(lost, twice), count| match count {
        0 => (lost + 1, twice),
        1 => (lost, twice),
        _ => (lost, twice + 1),
    });
    if lost > 0 || twice > 0 {
        return Err(format!("{lost} records lost, {twice} in the log twice"));
    }
    if written.len() != size(records) {
        return Err(format!("{} records, not {records}", written.len()));
    }
    for ((partition, offset), n) in &written {
        if n % PARTITIONS.unsigned_abs() as u64 != partition.unsigned_abs() {
            return Err(format!("record {n} is on partition {partition}"));
        }
        let before = written.range((*partition, 0)..(*partition, *offset)).last();
        if before.is_some_and(|(_, before)| before >= n) {
            return Err(format!("record {n} is out of order"));
        }
    }
    marked(operation, log)?;
    if client.tells_offsets() {
        let acked: BTreeMap<_, _> = places(lines)
            .into_iter()
            .map(|(n, partition, offset)| ((partition, offset), n))
            .collect();
        if acked != written {
            return Err("the acknowledged offsets are not those of the log".to_owned());
        }
    }
    let summary = lines.last().unwrap_or(&Value::Null);
    let acked = match operation {
        Operation::Transactional => [&summary["committed"], &summary["aborted"]],
        Operation::Plain | Operation::Idempotent | Operation::LostAck | Operation::Group => {
            [&summary["acked"], &summary["failed"]]
        }
    };
    let total: Option<u64> = acked.iter().map(|count| count.as_u64()).sum();
    match total == Some(records) {
        true => Ok(()),
        false => Err(format!("the client says {summary}")),
    }
}

/// The records by partition and offset.
fn written(log: &[Batch]) -> Result<BTreeMap<(i64, i64), u64>, String> {
    let mut records = BTreeMap::new();
    for batch in log {
        for (offset, n) in (batch.offset..).zip(&batch.values) {
            if records.insert((batch.partition, offset), *n).is_some() {
                return Err(format!("two records at offset {offset}"));
            }
        }
    }
    Ok(records)
}

/// The batches carry what the operation puts on them.
fn marked(operation: Operation, log: &[Batch]) -> Result<(), String> {
    let mut data = log.iter().filter(|batch| !batch.is_control);
    let wrong = data.find(|batch| {
        let is_idempotent = batch.producer_id >= 0 && batch.base_sequence >= 0;
        let (idempotent, transactional) = match operation {
            Operation::Plain => (false, false),
            Operation::Idempotent | Operation::LostAck | Operation::Group => (true, false),
            Operation::Transactional => (true, true),
        };
        is_idempotent != idempotent || batch.is_transactional != transactional
    });
    match wrong {
        Some(batch) => Err(format!("not {}: {batch:?}", operation.name())),
        None => Ok(()),
    }
}

/// A reader of committed records saw the first and the third transaction.
pub(crate) fn committed(lines: &[Value]) -> Result<(), String> {
    let expected = (0..TRANSACTION).chain(2 * TRANSACTION..3 * TRANSACTION);
    read(lines, &expected.collect())
}

/// A consumer read these records, each once and in order.
pub(crate) fn consumed(lines: &[Value], first: u64, count: u64) -> Result<(), String> {
    read(lines, &(first..first + count).collect())
}

fn read(lines: &[Value], expected: &BTreeSet<u64>) -> Result<(), String> {
    let places = places(lines);
    let mut next: BTreeMap<i64, i64> = BTreeMap::new();
    for (n, partition, offset) in &places {
        let last = next.insert(*partition, *offset);
        if last.is_some_and(|last| last >= *offset) {
            return Err(format!("record {n} was read out of order"));
        }
    }
    let numbers: BTreeSet<u64> = places.iter().map(|(n, ..)| *n).collect();
    if numbers.len() != places.len() {
        return Err("a record was read twice".to_owned());
    }
    match numbers == *expected {
        true => Ok(()),
        false => Err(format!(
            "{} of {} records were read, and {} others",
            numbers.intersection(expected).count(),
            expected.len(),
            numbers.difference(expected).count(),
        )),
    }
}

/// What hapax counted of a topic, by verdict: every batch followed, or for a
/// plain producer none, and nothing out of the ordinary. Tells how many, where
/// an acknowledgement was lost how many retries hapax knew.
pub(crate) fn counted(
    client: Client,
    operation: Operation,
    verdicts: &BTreeMap<String, u64>,
    log: &[Batch],
) -> Result<u64, String> {
    let expected: &[&str] = match operation {
        Operation::Plain => &["untracked"],
        Operation::LostAck if client.repeats_bytes() => &["duplicate_absorbed", "forwarded"],
        Operation::LostAck => &["sequence_reuse", "forwarded"],
        Operation::Idempotent | Operation::Transactional | Operation::Group => &["forwarded"],
    };
    let of = |verdict: &str| verdicts.get(verdict).copied().unwrap_or(0);
    let others: Vec<String> = verdicts
        .iter()
        .filter(|(name, count)| !expected.contains(&name.as_str()) && **count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    if !others.is_empty() {
        return Err(format!("hapax counted {}", others.join(", ")));
    }
    if let Some(verdict) = expected.iter().find(|verdict| of(verdict) == 0) {
        return Err(format!("hapax counted no batch as {verdict}"));
    }
    let written = log.iter().filter(|batch| !batch.is_control).count();
    let followed: u64 = expected.iter().map(|verdict| of(verdict)).sum();
    match size(followed) >= written {
        true => Ok(of(expected[0])),
        false => Err(format!("hapax counted {followed} of {written} batches")),
    }
}

fn size(count: u64) -> usize {
    usize::try_from(count).expect("few")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What an idempotent producer leaves behind that did all it should.
    fn good() -> (Vec<Value>, Vec<Batch>) {
        let mut log = Vec::new();
        let mut lines = Vec::new();
        for partition in 0..i64::from(PARTITIONS) {
            let first = partition.unsigned_abs();
            let values: Vec<u64> = (first..RECORDS).step_by(3).collect();
            for (offset, n) in values.iter().enumerate() {
                lines.push(json!({"n": n, "partition": partition, "offset": offset}));
            }
            log.push(Batch {
                partition,
                values,
                ..Batch::default()
            });
        }
        lines.push(json!({"sent": RECORDS, "acked": RECORDS, "failed": 0}));
        (lines, log)
    }

    #[track_caller]
    fn check(change: impl Fn(&mut Vec<Value>, &mut Vec<Batch>), expected: &str) {
        let (mut lines, mut log) = good();
        change(&mut lines, &mut log);
        let judged = produced(Client::FranzGo, Operation::Idempotent, &lines, &log);
        match expected {
            "" => assert_eq!(judged, Ok(())),
            text => assert!(
                judged.as_ref().is_err_and(|e| e.contains(text)),
                "{judged:?}"
            ),
        }
    }

    #[test]
    fn a_log_is_good_only_when_nothing_is_missing_doubled_moved_or_unmarked() {
        check(|_, _| {}, "");
        check(|_, log| log[0].values.truncate(99), "1 records lost, 0 in");
        check(
            |_, log| {
                let again = Batch {
                    offset: 100,
                    ..log[1].clone()
                };
                log.push(again);
            },
            "0 records lost, 100 in the log twice",
        );
        check(|_, log| log[2].values.swap(0, 1), "out of order");
        check(|_, log| log[2].producer_id = -1, "not idempotent");
        check(|_, log| log[2].is_transactional = true, "not idempotent");
        check(|_, log| log[2].partition = 0, "two records at offset 0");
        check(
            |lines, _| lines[0] = json!({"n": 0, "partition": 0, "offset": 7}),
            "acknowledged offsets",
        );
        check(|lines, _| drop(lines.pop()), "the client says");
    }

    #[test]
    fn a_read_is_good_only_in_order_once_and_of_the_committed() {
        let line = |n: u64| json!({"n": n, "partition": 0, "offset": n});
        let read = |numbers: Vec<u64>| -> Vec<Value> { numbers.into_iter().map(line).collect() };
        assert_eq!(committed(&read((0..10).chain(20..30).collect())), Ok(()));
        assert!(committed(&read((0..20).collect())).is_err());
        assert_eq!(consumed(&read((5..9).collect()), 5, 4), Ok(()));
        assert!(consumed(&read(vec![5, 6, 8, 7]), 5, 4).is_err());
        assert!(consumed(&read(vec![5, 6, 6, 7]), 5, 3).is_err());
        assert!(consumed(&read(vec![5, 6]), 5, 3).is_err());
    }

    #[test]
    fn hapax_must_have_followed_every_batch_and_found_nothing() {
        let (_, log) = good();
        let check = |verdicts: &[(&str, u64)]| {
            let verdicts = verdicts.iter().map(|(name, n)| ((*name).to_owned(), *n));
            counted(
                Client::FranzGo,
                Operation::Idempotent,
                &verdicts.collect(),
                &log,
            )
        };
        assert_eq!(check(&[("forwarded", 3), ("gap", 0)]), Ok(3));
        assert!(check(&[("forwarded", 2)]).is_err());
        assert!(check(&[("forwarded", 3), ("gap", 1)]).is_err());
        assert!(check(&[("untracked", 3)]).is_err());
    }
}
