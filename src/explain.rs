//! What errors, events and verdicts mean, in plain words.
//!
//! One table ([`all`]) is the source of `hapax explain`, of the words in the
//! events API and of `explain/ERRORS.md`, whose head names the sources that
//! the clients' behaviour is read from; what could not be verified is not said.

mod coordinator;
mod find;
mod general;
mod names;
pub mod ours;
mod produce;
mod render;

pub use find::{Unknown, find};
pub use produce::POLICY_VIOLATION;
pub use render::{command, json, list, list_json, page, text};

/// What can be said of one error, event, verdict or subject.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// What it is about.
    pub subject: Subject,
    /// Its name, as Kafka or hapax calls it.
    pub name: &'static str,
    /// Other names, beside those that clients give to an error's code.
    pub aliases: &'static [&'static str],
    /// What it means: one sentence.
    pub says: &'static str,
    /// Who raises it, and when.
    pub raised: &'static str,
    /// What usually lies behind it.
    pub causes: &'static [&'static str],
    /// What clients do with it; empty where it was not verified.
    pub clients: PerClient,
    /// What hapax does, beside what [`Settles`] says.
    pub hapax: &'static str,
    /// What to set or do; the first is a sentence that stands alone.
    pub advice: &'static [&'static str],
    /// Where a metric shows it.
    pub promql: &'static [&'static str],
    /// What articles say of it, and what is true.
    pub belief: Option<Belief>,
    /// What to read next: names of explanations.
    pub see: &'static [&'static str],
}

impl Explanation {
    /// The base of a struct update.
    const BLANK: Self = Self {
        subject: Subject::General,
        name: "",
        aliases: &[],
        says: "",
        raised: "",
        causes: &[],
        clients: PerClient::NONE,
        hapax: "",
        advice: &[],
        promql: &[],
        belief: None,
        see: &[],
    };

    /// An error of which nothing more is known.
    const fn error(code: i16, name: &'static str, retry: Retry, carriers: &'static [Api]) -> Self {
        let error = ErrorCode {
            code,
            retry,
            carriers,
            settles: None,
        };
        Self {
            subject: Subject::Error(error),
            name,
            ..Self::BLANK
        }
    }

    /// The error that it explains.
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        match &self.subject {
            Subject::Error(code) => Some(code),
            Subject::Told | Subject::General => None,
        }
    }

    /// What to do first: a sentence that stands alone.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        self.advice.first().copied().unwrap_or_default()
    }

    /// What `hapax explain` and the events API call it.
    #[must_use]
    pub fn key(&self) -> String {
        match self.code() {
            Some(error) => error.code.to_string(),
            None => self.name.to_owned(),
        }
    }
}

/// What an explanation is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// An error code of the protocol.
    Error(ErrorCode),
    /// An event or a verdict of hapax.
    Told,
    /// What several of them have in common.
    General,
}

/// An error code of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode {
    /// The code on the wire.
    pub code: i16,
    /// Whether sending again helps.
    pub retry: Retry,
    /// The APIs whose responses carry it.
    pub carriers: &'static [Api],
    /// What hapax takes it to mean in a Produce response, where it may stand.
    pub settles: Option<Settles>,
}

/// Whether sending again helps. Retriable is what Kafka's own client calls so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// The same request may succeed later.
    Again,
    /// The same request would fail again.
    Never,
    /// The transaction has to be aborted; then the producer goes on.
    Abort,
    /// The producer has to be closed and made anew.
    Renew,
}

impl Retry {
    /// In two or three words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Again => "retriable",
            Self::Never => "not retriable",
            Self::Abort => "abort the transaction",
            Self::Renew => "fatal to the producer",
        }
    }
}

/// An API of producers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// Key 0.
    Produce,
    /// Key 22.
    InitProducerId,
    /// Key 24.
    AddPartitionsToTxn,
    /// Key 25.
    AddOffsetsToTxn,
    /// Key 28.
    TxnOffsetCommit,
    /// Key 26.
    EndTxn,
}

impl Api {
    /// Every one of them.
    pub const ALL: [Self; 6] = [
        Self::Produce,
        Self::InitProducerId,
        Self::AddPartitionsToTxn,
        Self::AddOffsetsToTxn,
        Self::TxnOffsetCommit,
        Self::EndTxn,
    ];

    /// Kafka's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "Produce",
            Self::InitProducerId => "InitProducerId",
            Self::AddPartitionsToTxn => "AddPartitionsToTxn",
            Self::AddOffsetsToTxn => "AddOffsetsToTxn",
            Self::TxnOffsetCommit => "TxnOffsetCommit",
            Self::EndTxn => "EndTxn",
        }
    }
}

/// What hapax takes an error of a followed batch to mean. `tests/explain.rs`
/// holds each claim to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settles {
    /// In the log.
    Written,
    /// Not in the log, to be sent again.
    ToRetry,
    /// Not in the log, to be sent again; but perhaps in it where the answer
    /// has an offset.
    ToRetryUnlessAppended,
    /// Not in the log, and not to be sent again.
    Refused,
    /// This attempt is not in the log, an earlier one may be.
    OutOfOrder,
    /// Perhaps in the log.
    Unknown,
}

/// The same thing of each client; empty where there is nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerClient {
    /// Kafka's Java client.
    pub java: &'static str,
    /// librdkafka, and what is built on it.
    pub librdkafka: &'static str,
    /// franz-go.
    pub franz_go: &'static str,
    /// sarama.
    pub sarama: &'static str,
    /// KafkaJS.
    pub kafkajs: &'static str,
}

impl PerClient {
    const NONE: Self = Self {
        java: "",
        librdkafka: "",
        franz_go: "",
        sarama: "",
        kafkajs: "",
    };

    /// By the client's name, without those of which nothing is said.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            ("Java", self.java),
            ("librdkafka", self.librdkafka),
            ("franz-go", self.franz_go),
            ("sarama", self.sarama),
            ("KafkaJS", self.kafkajs),
        ];
        all.into_iter().filter(|(_, text)| !text.is_empty())
    }
}

/// What people read, and what is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Belief {
    /// The sentence that goes round.
    pub said: &'static str,
    /// What is true.
    pub truth: &'static str,
}

/// Every explanation: errors by code, then what hapax tells, then subjects.
pub fn all() -> impl Iterator<Item = &'static Explanation> {
    let mut errors: Vec<_> = produce::ALL.iter().chain(coordinator::ALL).collect();
    errors.sort_by_key(|entry| entry.code().map(|error| error.code));
    errors
        .into_iter()
        .chain(ours::ALL.iter().copied())
        .chain(general::ALL)
}

/// What clients call an error: Java's exception, librdkafka's constant without
/// `RD_KAFKA_RESP_ERR_`, the variables of franz-go and sarama, KafkaJS's type.
#[must_use]
pub fn names_of(code: i16) -> PerClient {
    let mut all = names::ALL.iter();
    all.find(|(of, _)| *of == code)
        .map_or(PerClient::NONE, |(_, names)| *names)
}
