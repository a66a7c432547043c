//! From what people type or paste to an explanation.

use std::collections::BTreeSet;

use super::{Explanation, Subject, all, names_of};

/// Nothing of that name is explained.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unknown {
    /// No error of the producers' APIs has the code.
    #[error(
        "no response to a producer carries error {0}; hapax explain without a name lists those that do"
    )]
    Code(i64),
    /// No name is like it.
    #[error("nothing is called {typed}{}; hapax explain without a name lists everything", or_nearest(.nearest))]
    Name {
        /// What was typed.
        typed: String,
        /// Names that are like it, the nearest first.
        nearest: Vec<&'static str>,
    },
}

/// The explanation of a code, of a name in whatever spelling, of a client's
/// name for an error, or of the error that a pasted line names.
pub fn find(typed: &str) -> Result<&'static Explanation, Unknown> {
    let typed = typed.trim();
    if let Ok(code) = typed.parse::<i64>() {
        return by_code(code).ok_or(Unknown::Code(code));
    }
    by_name(typed)
        .or_else(|| in_line(typed))
        .ok_or_else(|| Unknown::Name {
            typed: shown(typed),
            nearest: nearest(&key(typed)),
        })
}

fn by_code(code: i64) -> Option<&'static Explanation> {
    all().find(|entry| {
        entry
            .code()
            .is_some_and(|error| i64::from(error.code) == code)
    })
}

fn by_name(name: &str) -> Option<&'static Explanation> {
    let spellings = spellings(name);
    // A name of its own wins over one that a client gives to something else.
    let own = all().find(|entry| spellings.contains(&key(entry.name)));
    own.or_else(|| all().find(|entry| names(entry).any(|alias| spellings.contains(&key(alias)))))
}

/// Every name of an explanation.
pub(super) fn names(entry: &'static Explanation) -> impl Iterator<Item = &'static str> {
    let clients = entry.code().map(|error| names_of(error.code));
    let clients = clients.into_iter().flat_map(|names| {
        let names: Vec<_> = names.iter().map(|(_, name)| name).collect();
        names
    });
    [entry.name]
        .into_iter()
        .chain(entry.aliases.iter().copied())
        .chain(clients)
}

/// What a line of a log or a stack trace is about: the first word that names
/// an error, else the number behind "code" or "error", else the first word that
/// names an event or verdict.
fn in_line(line: &str) -> Option<&'static Explanation> {
    let words: Vec<_> = line
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-')))
        .map(|word| word.trim_matches(['.', '-']))
        .filter(|word| word.len() >= WORD_MIN || word.parse::<i16>().is_ok())
        .collect();
    let named = |min: usize, wanted: fn(Subject) -> bool| {
        let words = words.iter().filter(|word| word.len() >= min);
        let mut named = words.filter_map(|word| by_name(word));
        named.find(|entry| wanted(entry.subject))
    };
    named(ERROR_WORD_MIN, |subject| {
        matches!(subject, Subject::Error(_))
    })
    .or_else(|| words.windows(2).find_map(numbered))
    .or_else(|| named(WORD_MIN, |subject| subject == Subject::Told))
}

/// `code 45`, `error=45`, `val=45`.
fn numbered(pair: &[&str]) -> Option<&'static Explanation> {
    let [before, code] = pair else { return None };
    let tells = ["code", "error", "errorcode", "val"];
    tells.contains(&key(before).as_str()).then_some(())?;
    by_code(code.parse().ok()?)
}

/// The keys under which a typed name may be found: as it is, without what
/// comes before its last dot, without what clients put around names.
fn spellings(typed: &str) -> BTreeSet<String> {
    let last = typed.rsplit(['.', ':']).next().unwrap_or(typed);
    let mut spellings = BTreeSet::new();
    for name in [key(typed), key(last)] {
        for prefix in ["rdkafkaresperr", "err", "kafkajs"] {
            let rest = name.strip_prefix(prefix);
            spellings.extend(rest.map(str::to_owned));
        }
        for suffix in ["exception", "error", "batches", "batch"] {
            let rest = name.strip_suffix(suffix);
            spellings.extend(rest.map(str::to_owned));
        }
        spellings.insert(name);
    }
    spellings.remove("");
    spellings
}

/// A name without case, dashes, underscores, dots and blanks.
fn key(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// What was typed, short and harmless enough to be said back.
fn shown(typed: &str) -> String {
    let shown = typed.chars().filter(|c| !c.is_control());
    shown.take(TYPED_SHOWN).collect()
}

fn or_nearest(nearest: &[&str]) -> String {
    match nearest {
        [] => String::new(),
        nearest => format!(", perhaps {}", nearest.join(", ")),
    }
}

/// Names that hold what was typed, or differ from it by a few letters.
fn nearest(typed: &str) -> Vec<&'static str> {
    if typed.is_empty() || typed.len() > TYPED_SHOWN {
        return Vec::new();
    }
    let mut found: Vec<(usize, &'static str)> = Vec::new();
    for entry in all() {
        let best = names(entry).map(key).filter_map(|name| {
            let within = typed.len() >= 3 && name.contains(typed);
            let far = if within { 1 } else { distance(typed, &name) };
            (far <= typed.len() / 3).then_some(far)
        });
        if let Some(far) = best.min() {
            found.push((far, entry.name));
        }
    }
    found.sort_by_key(|(far, _)| *far);
    found.truncate(NEAREST);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Letters to insert, remove or change to make one of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

/// Shorter words of a line name nothing.
const WORD_MIN: usize = 3;
/// "Unknown" and "fenced" are words that lines have for many things.
const ERROR_WORD_MIN: usize = 8;
const NEAREST: usize = 3;
/// As long as any name, and as much as a terminal's line has room for.
const TYPED_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(typed: &str, name: &str) {
        assert_eq!(find(typed).map(|entry| entry.name), Ok(name), "{typed}");
    }

    #[test]
    fn spelling_does_not_matter() {
        for typed in [
            "45",
            " 45 ",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "out-of-order-sequence-number",
            "out of order sequence number",
            "OutOfOrderSequenceException",
            "org.apache.kafka.common.errors.OutOfOrderSequenceException",
            "RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER",
            "ERR__OUT_OF_ORDER_SEQUENCE_NUMBER",
            "_OUT_OF_ORDER_SEQUENCE_NUMBER",
            "kerr.OutOfOrderSequenceNumber",
            "sarama.ErrOutOfOrderSequenceNumber",
            "KafkaError._OUT_OF_ORDER_SEQUENCE_NUMBER",
        ] {
            check(typed, "OUT_OF_ORDER_SEQUENCE_NUMBER");
        }
        check("-1", "UNKNOWN_SERVER_ERROR");
        check("RD_KAFKA_RESP_ERR__FENCED", "PRODUCER_FENCED");
        check("RD_KAFKA_RESP_ERR__TRANSPORT", "NETWORK_EXCEPTION");
        check("duplicate", "duplicate_absorbed");
        check("epoch bump", "epoch_bump");
        check("client.id", "producer-id");
    }

    #[test]
    fn a_pasted_line_is_understood() {
        check(
            "ERROR [Producer clientId=p] org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer",
            "PRODUCER_FENCED",
        );
        check(
            r#"KafkaError{code=NOT_ENOUGH_REPLICAS,val=19,str="Broker: Not enough in-sync replicas"}"#,
            "NOT_ENOUGH_REPLICAS",
        );
        check(
            "KafkaJSProtocolError: Unknown error code 90",
            "PRODUCER_FENCED",
        );
        check(
            r#"{"level":"WARN","event":"overlap","topic":"orders"}"#,
            "overlap",
        );
        check(
            "failed to produce: NOT_LEADER_FOR_PARTITION: This server is not the leader",
            "NOT_LEADER_OR_FOLLOWER",
        );
    }

    #[test]
    fn a_typing_error_gets_the_nearest_names() {
        let nearest = |typed| match find(typed) {
            Err(Unknown::Name { nearest, .. }) => nearest,
            other => panic!("{typed}: {other:?}"),
        };
        assert_eq!(nearest("PRODUCER_FENCD")[0], "PRODUCER_FENCED");
        assert_eq!(nearest("idempotance")[0], "idempotence");
        assert!(nearest("not_enough").contains(&"NOT_ENOUGH_REPLICAS"));
        assert_eq!(nearest("qqqqqqqqqq"), [""; 0]);
        assert_eq!(find("91").unwrap_err(), Unknown::Code(91));
        let endless = "x".repeat(100_000);
        assert!(find(&endless).unwrap_err().to_string().len() < 200);
        for nothing in ["", "_", "\u{1b}[2J"] {
            let said = find(nothing).unwrap_err().to_string();
            assert!(!said.contains('\u{1b}'), "{said}");
        }
    }
}
