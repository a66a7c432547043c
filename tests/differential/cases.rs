//! The cases that are a list of batches and answers.

use bytes::Bytes;

use crate::harness::{Case, case, put};
use crate::support::batch::{Batch, CONTROL, legacy_message_set};

/// SEMANTICS.md 1.2, 1.3 and 1.6, and the reports P02, P03, P05, P07 and P10.
pub fn all() -> Vec<Case> {
    let mut cases = decision_table();
    cases.extend(acknowledgements());
    cases.extend(bad_batches());
    cases.extend(reports());
    cases.extend(versions());
    cases
}

const MAX: i32 = i32::MAX;

fn decision_table() -> Vec<Case> {
    vec![
        case(
            "1.2 an exact retry of a retained batch succeeds and appends nothing",
            vec![
                put(0, 0, 2).appended(0),
                put(0, 3, 4).appended(3),
                put(0, 0, 2).absorbed(0),
                put(0, 3, 4).absorbed(3).on(1),
                put(0, 5, 5).appended(5),
                put(0, 0, 2).absorbed(0),
            ],
        )
        .verdict("duplicate_absorbed", 0, 3)
        .verdict("duplicate_forwarded", 3, 0)
        .exception("7.3 row 2: the answer is the first one, append time included"),
        case(
            "1.2 five batches are retained, a sixth is forgotten",
            vec![
                put(0, 0, 0).appended(0),
                put(0, 1, 1).appended(1),
                put(0, 2, 2).appended(2),
                put(0, 3, 3).appended(3),
                put(0, 4, 4).appended(4),
                put(0, 5, 5).appended(5),
                put(0, 1, 1).absorbed(1),
                put(0, 0, 0).refused(45),
            ],
        )
        .exception("7.3 row 2: the answer is the first one, append time included"),
        case(
            "1.2 an older epoch is refused, even for a batch it has written",
            vec![
                put(0, 0, 0).appended(0),
                put(1, 0, 0).appended(1),
                put(0, 1, 1).refused(47),
                put(0, 0, 0).refused(47),
            ],
        )
        .verdict("stale_epoch", 2, 2),
        case(
            "1.2 a newer epoch starts at 0 and may jump",
            vec![
                put(0, 0, 0).appended(0),
                put(0, 1, 1).appended(1),
                put(7, 0, 3).appended(2),
                put(7, 4, 4).appended(6),
                put(i16::MAX, 0, 0).appended(7),
                put(i16::MAX, 1, 1).appended(8),
            ],
        ),
        case(
            "1.2 a newer epoch that does not start at 0 is refused",
            vec![
                put(0, 0, 0).appended(0),
                put(1, 1, 1).refused(45),
                put(1, 5, 5).refused(45),
                put(0, 1, 1).appended(1),
            ],
        ),
        case(
            "1.2 sequence 0 follows 2147483647",
            vec![
                put(0, MAX - 1, MAX).appended(0),
                put(0, 0, 1).appended(2),
                put(0, MAX - 1, MAX).absorbed(0),
                put(0, 2, 2).appended(4),
            ],
        )
        .exception("7.3 row 2: the answer is the first one, append time included"),
        case(
            "1.2 a batch may straddle the wrap, and is recognised",
            vec![
                put(0, MAX - 1, 1).appended(0),
                put(0, MAX - 1, 1).absorbed(0),
                put(0, 2, 2).appended(4),
                put(0, MAX, 1).refused(45),
            ],
        )
        .exception("7.3 row 2: the answer is the first one, append time included"),
        case(
            "1.2 a gap is refused",
            vec![
                put(0, 0, 0).appended(0),
                put(0, 2, 2).refused(45),
                put(0, 1, 1).appended(1),
                put(0, 2, 2).appended(2),
            ],
        )
        .verdict("gap", 1, 1),
        case(
            "1.2 sequence 0 is nothing special within an epoch",
            vec![put(0, 0, 4).appended(0), put(0, 0, 0).refused(45)],
        ),
        case(
            "1.2 an unknown producer may start anywhere",
            vec![
                put(0, 42, 43).appended(0),
                put(0, 0, 0).refused(45),
                put(0, 44, 44).appended(2),
                put(3, 7, 7).appended(3).by(1),
                put(3, 8, 8).appended(4).by(1),
            ],
        ),
        case(
            "1.6 an unknown producer may even have epoch -1, but not -32768",
            vec![
                put(-1, 5, 5).appended(0),
                put(-1, 9, 9).appended(1),
                put(i16::MIN, 0, 0).refused(47).by(1),
                put(i16::MIN, 0, 0).refused(47),
            ],
        ),
        case(
            "1.2 producers do not disturb each other",
            vec![
                put(0, 0, 0).appended(0),
                put(0, 0, 0).appended(1).by(1),
                put(5, 0, 0).appended(2).by(2).on(1),
                put(0, 1, 1).appended(3),
                put(0, 1, 1).appended(4).by(1),
                put(0, 2, 2).refused(47).by(2),
            ],
        ),
        case(
            "1.3 the answer to a retry carries the batch's greatest time",
            vec![
                put(0, 0, 1).appended(0).edited(later),
                put(0, 0, 1).absorbed(0).edited(later),
            ],
        )
        .exception("7.3 row 2: the answer is the first one, append time included"),
    ]
}

fn acknowledgements() -> Vec<Case> {
    vec![
        case(
            "1.3 acks=1 with a producer id is accepted and deduplicated",
            vec![
                put(0, 0, 0).appended(0).acks(1),
                put(0, 0, 0).absorbed(0).acks(1),
                put(0, 1, 1).appended(1).acks(1),
                put(0, 1, 1).duplicate(1).acks(-1),
            ],
        )
        .exception("7.3 A2: an acks=1 answer may serve an acks=1 retry"),
        case(
            "acks other than -1, 0 and 1 are refused",
            vec![
                put(0, 0, 0).refused(21).acks(2),
                put(0, 0, 0).refused(21).acks(-2).version(3),
                put(0, 0, 0).appended(0),
                put(0, 0, 0).refused(21).acks(2).version(13),
            ],
        ),
        case(
            "acks=0 is forwarded and never answered; its retry is the broker's to judge",
            vec![
                put(0, 0, 0).silent(0).acks(0),
                put(0, 0, 0).duplicate(0),
                put(0, 1, 1).silent(1).acks(0),
                put(0, 2, 2).appended(2),
                put(0, 1, 1).duplicate(1).acks(1),
            ],
        ),
    ]
}

fn bad_batches() -> Vec<Case> {
    let mut cases = vec![
        case(
            "1.6 one batch and a stray byte is accepted, and so is its retry",
            vec![
                put(0, 0, 0).appended(0).sent_as(stray_byte),
                put(0, 0, 0).duplicate(0).sent_as(stray_byte),
                put(0, 1, 1).appended(1),
            ],
        ),
        case(
            "1.6 a damaged retry under the unchanged checksum",
            vec![
                put(0, 0, 0).appended(0),
                put(0, 0, 0)
                    .refused(2)
                    .but_absorbed(0)
                    .sent_as(damaged_payload),
            ],
        )
        .exception("1.6: hapax trusts the checksum in the header"),
        case(
            "KAFKA-15591: the second batch of a fresh partition after the first was refused",
            vec![
                put(0, 0, 0).refused(2).sent_as(damaged_payload),
                put(0, 1, 1).appended(0).but_mirrored(19),
                put(0, 0, 0).refused(45).but_appended(0),
                put(0, 1, 1).duplicate(0).but_appended(1),
            ],
        )
        .exception("7.3 row 12: not forwarded while its predecessor was refused"),
        case(
            "a batch without a producer is appended each time",
            vec![
                put(-1, -1, -1).appended(0).edited(no_producer),
                put(-1, -1, -1).appended(1).edited(no_producer),
            ],
        )
        .verdict("untracked", 2, 2),
        case(
            "a record too large is refused",
            vec![put(0, 0, 9).refused(10), put(0, 0, 0).appended(0)],
        )
        .configs(&[("max.message.bytes", "100")]),
        case(
            "a time before the topic's limit is refused",
            vec![put(0, 0, 0).refused(32)],
        )
        .configs(&[("message.timestamp.before.max.ms", "1000")]),
        case(
            "a record without a key is refused on a compacted topic",
            vec![put(0, 0, 0).refused(87)],
        )
        .configs(&[("cleanup.policy", "compact")]),
    ];
    type Bad = (&'static str, fn(&Batch) -> Bytes, i16);
    let refused: [Bad; 12] = [
        ("empty records", |_| Bytes::new(), 87),
        ("two batches", |batch| twice(&batch.bytes()), 87),
        ("magic 0", |_| legacy_message_set(0, b"old"), 87),
        ("magic 1", |_| legacy_message_set(1, b"old"), 87),
        ("magic 3", |batch| forced(batch, |b| b.magic = 3), 2),
        ("a wrong checksum", damaged_payload, 2),
        (
            "a base offset",
            |batch| forced(batch, |b| b.base_offset = 1),
            87,
        ),
        (
            "a negative sequence",
            |batch| forced(batch, |b| b.sequence = -1),
            87,
        ),
        (
            "a control batch",
            |batch| forced(batch, |b| b.attributes = CONTROL),
            87,
        ),
        (
            "a count too great",
            |batch| forced(batch, |b| b.count = Some(3)),
            87,
        ),
        (
            "a last offset delta too great",
            |batch| forced(batch, |b| b.last_offset_delta = Some(3)),
            87,
        ),
        (
            "no records in the batch",
            |batch| forced(batch, |b| b.values.clear()),
            87,
        ),
    ];
    for (what, records, code) in refused {
        cases.push(case(
            format!("a batch with {what} is refused"),
            vec![
                put(0, 0, 0).appended(0),
                put(0, 1, 2).refused(code).sent_as(records),
            ],
        ));
    }
    cases.push(case(
        "zstd needs Produce v7",
        vec![put(0, 0, 0).refused(76).version(6).edited(|batch| Batch {
            attributes: 4,
            ..batch
        })],
    ));
    cases
}

fn reports() -> Vec<Case> {
    let mut cases = vec![
        case(
            "P02 the second batch before the first, on a fresh partition",
            vec![
                put(0, 17, 21).appended(0).on(1),
                put(0, 0, 16).refused(45),
                put(0, 0, 16).refused(45),
                put(0, 22, 22).appended(5).on(1),
            ],
        ),
        case(
            "P03 the same sequence with other bytes: acknowledged by the broker, and lost",
            (0..20)
                .map(|at| match at {
                    0 => put(0, 0, 0).appended(0),
                    _ => put(0, 0, 0).duplicate(0).variant(at),
                })
                .collect(),
        )
        .verdict("sequence_reuse", 19, 19)
        .verdict("duplicate_absorbed", 0, 0),
        case(
            "P10 a gap that the client made, five times, then a new epoch",
            vec![
                put(0, 0, 9).appended(0),
                put(0, 13, 14).refused(45),
                put(0, 13, 14).refused(45),
                put(0, 13, 14).refused(45),
                put(0, 13, 14).refused(45),
                put(0, 13, 14).refused(45),
                put(1, 0, 0).appended(10),
            ],
        )
        .grows("hapax_events_total", "event=\"gap\"", 1, 1)
        .grows("hapax_gaps_total", "kind=\"never_seen\"", 1, 1)
        .grows("hapax_missing_records_total", "topic=", 3, 3),
    ];
    let state = || vec![put(1, 0, 40).appended(0), put(1, 41, 41).appended(41)];
    // {epoch N-1, N, N+1} x {sequence 0, last, last+1, last+5}, with what hapax counts.
    for (epoch, first, code, verdict) in [
        (0, 0, 47, Some("stale_epoch")),
        (0, 41, 47, Some("stale_epoch")),
        (0, 42, 47, Some("stale_epoch")),
        (0, 46, 47, Some("stale_epoch")),
        (1, 0, 45, Some("overlap")),
        (1, 41, 0, None),
        (1, 42, 0, Some("forwarded")),
        (1, 46, 45, Some("gap")),
        (2, 0, 0, Some("forwarded")),
        (2, 41, 45, None),
        (2, 42, 45, None),
        (2, 46, 45, None),
    ] {
        let step = put(epoch, first, first);
        let mut steps = state();
        steps.push(match (epoch, first) {
            (1, 41) => step.absorbed(41),
            (1, 42) | (2, 0) => step.appended(42),
            _ => step.refused(code),
        });
        let mut cell = case(
            format!("P05 state (epoch 1, last 41), incoming (epoch {epoch}, sequence {first})"),
            steps,
        );
        if let Some(verdict) = verdict {
            let prior = if verdict == "forwarded" { 2 } else { 0 };
            cell = cell.verdict(verdict, prior + 1, prior + 1);
        }
        if (epoch, first) == (1, 41) {
            cell = cell.exception("7.3 row 2: the answer is the first one, append time included");
        }
        cases.push(cell);
    }
    for (first, last) in [(10, 12), (13, 14), (11, 13), (10, 16), (5, 14), (12, 16)] {
        cases.push(
            case(
                format!("P07 (10..14) was written, incoming ({first}..{last})"),
                vec![
                    put(0, 0, 9).appended(0),
                    put(0, 10, 14).appended(10),
                    put(0, first, last).refused(45),
                    put(0, 15, 15).appended(15),
                ],
            )
            .verdict("overlap", 1, 1)
            .verdict("gap", 0, 0),
        );
    }
    cases
}

fn versions() -> Vec<Case> {
    let steps = |version: i16| {
        vec![
            put(0, 0, 1).appended(0).version(version),
            put(0, 2, 2).appended(2).version(version).acks(1),
            put(0, 3, 3).silent(3).version(version).acks(0),
            put(0, 4, 4).appended(4).version(version),
            put(0, 0, 1).absorbed(0).version(version),
            put(0, 2, 2).duplicate(2).version(version),
            put(0, 3, 3).duplicate(3).version(version).on(1),
            put(0, 9, 9).refused(45).version(version),
        ]
    };
    let cases = (3..=13).map(|version| {
        case(
            format!("Produce v{version}: acks all, 1 and 0, retries, a gap"),
            steps(version),
        )
        .exception("7.3 row 2: the answer is the first one, append time included")
    });
    cases.collect()
}

fn later(batch: Batch) -> Batch {
    Batch {
        spacing_ms: 5,
        ..batch
    }
}

fn no_producer(batch: Batch) -> Batch {
    Batch {
        producer: -1,
        values: vec![b"plain".to_vec()],
        ..batch
    }
}

fn stray_byte(batch: &Batch) -> Bytes {
    let mut bytes = batch.bytes().to_vec();
    bytes.push(0);
    bytes.into()
}

fn damaged_payload(batch: &Batch) -> Bytes {
    let mut bytes = batch.bytes().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    bytes.into()
}

fn twice(bytes: &[u8]) -> Bytes {
    [bytes, bytes].concat().into()
}

fn forced(batch: &Batch, force: fn(&mut Batch)) -> Bytes {
    let mut batch = batch.clone();
    force(&mut batch);
    batch.bytes()
}
