//! What an operator asks of producers, topic by topic.
//!
//! Pure: a name and a batch in, what is missing out. What is done about it is
//! the session's affair.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Something that every batch written to a topic has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// A producer id, so that the cluster recognises a retry.
    Idempotence,
    /// `acks=all`: every in-sync replica has the batch before it is acknowledged.
    AcksAll,
    /// It belongs to a transaction.
    Transactional,
}

impl Requirement {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Idempotence, Self::AcksAll, Self::Transactional];

    /// As the configuration has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idempotence => "idempotence",
            Self::AcksAll => "acks_all",
            Self::Transactional => "transactional",
        }
    }

    /// What a client is told that does not meet it: the setting, by the names
    /// that clients have for it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Idempotence => {
                "set enable.idempotence=true (Java, librdkafka; sarama: Producer.Idempotent=true; \
                 franz-go: leave out kgo.DisableIdempotentWrite)"
            }
            Self::AcksAll => {
                "set acks=all (Java, librdkafka; sarama: Producer.RequiredAcks=sarama.WaitForAll; \
                 franz-go: kgo.RequiredAcks(kgo.AllISRAcks()))"
            }
            Self::Transactional => {
                "set transactional.id and write within a transaction (Java, librdkafka; \
                 sarama: Producer.Transaction.ID; franz-go: kgo.TransactionalID)"
            }
        }
    }
}

/// Several requirements, or none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Requirements(u8);

impl Requirements {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// These and that one.
    #[must_use]
    pub fn with(self, requirement: Requirement) -> Self {
        Self(self.0 | 1 << requirement as u8)
    }

    /// These and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These but for those.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Requirement> {
        let has = move |one: &Requirement| self.0 & 1 << *one as u8 != 0;
        Requirement::ALL.into_iter().filter(has)
    }

    /// What a client is told whose batch lacks these.
    #[must_use]
    pub fn message(self) -> Cow<'static, str> {
        let advice: Vec<&str> = self.iter().map(Requirement::advice).collect();
        format!("a policy of hapax for this topic: {}", advice.join("; ")).into()
    }
}

/// Topic names as a policy has them.
///
/// `*` stands for any run of characters, `?` for one; a `!` before it takes
/// topics out again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicPattern {
    glob: Box<str>,
    excludes: bool,
}

impl TopicPattern {
    fn matches(&self, topic: &str) -> bool {
        matches(self.glob.as_bytes(), topic.as_bytes())
    }

    /// Whether it speaks of every topic there can be.
    fn is_any(&self) -> bool {
        self.glob.bytes().all(|byte| byte == b'*')
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.excludes { "!" } else { "" };
        write!(f, "{mark}{}", self.glob)
    }
}

impl FromStr for TopicPattern {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let (glob, excludes) = match text.strip_prefix('!') {
            Some(glob) => (glob, true),
            None => (text, false),
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-*?".contains(c);
        if glob.is_empty() || glob.len() > PATTERN_BYTES_MAX || !glob.chars().all(fits) {
            return Err(BadPolicy::Pattern(text.to_owned()));
        }
        Ok(Self {
            glob: glob.into(),
            excludes,
        })
    }
}

/// Whether a glob matches a name: on a mismatch the newest `*` takes one byte
/// more, which is at most the product of both lengths.
fn matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => {
                g += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                (g, n) = (at + 1, taken + 1);
            }
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

/// What batches for certain topics have to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// At least one that does not exclude.
    pub topics: Vec<TopicPattern>,
    /// At least one.
    pub require: Requirements,
}

impl Policy {
    /// A policy, where it speaks of topics and asks for something.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn new(topics: Vec<TopicPattern>, require: Requirements) -> Result<Self, BadPolicy> {
        if topics.iter().all(|topic| topic.excludes) {
            return Err(BadPolicy::NoTopics);
        }
        if require.is_empty() {
            return Err(BadPolicy::NoRequirement);
        }
        Ok(Self { topics, require })
    }

    fn applies_to(&self, topic: &str) -> bool {
        let excluded = |excludes: bool| {
            let mut of_kind = self.topics.iter().filter(|t| t.excludes == excludes);
            of_kind.any(|pattern| pattern.matches(topic))
        };
        excluded(false) && !excluded(true)
    }

    /// Whether it speaks of every topic there can be.
    fn is_of_all(&self) -> bool {
        self.topics.iter().any(TopicPattern::is_any) && !self.topics.iter().any(|t| t.excludes)
    }
}

impl fmt::Display for Policy {
    /// As a flag has it: `payments.*+!payments.test=idempotence+acks_all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics: Vec<String> = self.topics.iter().map(ToString::to_string).collect();
        let require: Vec<&str> = self.require.iter().map(Requirement::name).collect();
        write!(f, "{}={}", topics.join("+"), require.join("+"))
    }
}

impl FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let bad = || BadPolicy::Shape(text.to_owned());
        let (topics, require) = text.trim().split_once('=').ok_or_else(bad)?;
        let topics = topics.split('+').map(|topic| topic.trim().parse());
        let topics: Vec<TopicPattern> = topics.collect::<Result<_, _>>()?;
        let mut all = Requirements::NONE;
        for name in require.split('+') {
            all = all.with(parse_requirement(name)?);
        }
        Self::new(topics, all)
    }
}

/// A requirement by its name.
///
/// # Errors
///
/// When there is none of that name.
pub fn parse_requirement(name: &str) -> Result<Requirement, BadPolicy> {
    let own = |one: &Requirement| one.name() == name.trim();
    let found = Requirement::ALL.into_iter().find(own);
    found.ok_or_else(|| BadPolicy::Requirement {
        text: name.trim().to_owned(),
        nearest: nearest(name.trim()),
    })
}

/// What somebody may have meant: the names that clients have for it count too.
fn nearest(name: &str) -> Option<&'static str> {
    let folded: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let meant = MEANT.iter().map(|(word, requirement)| {
        let far = strsim::osa_distance(&folded, word);
        (far, *requirement)
    });
    let (far, requirement) = meant.min_by_key(|(far, _)| *far)?;
    (far <= 2).then_some(requirement.name())
}

/// What requirements are called elsewhere, without marks.
const MEANT: [(&str, Requirement); 9] = [
    ("idempotence", Requirement::Idempotence),
    ("idempotent", Requirement::Idempotence),
    ("enableidempotence", Requirement::Idempotence),
    ("acksall", Requirement::AcksAll),
    ("acks", Requirement::AcksAll),
    ("requiredacks", Requirement::AcksAll),
    ("transactional", Requirement::Transactional),
    ("transaction", Requirement::Transactional),
    ("transactionalid", Requirement::Transactional),
];

/// Every policy.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policies(Vec<Policy>);

/// What is asked of one topic.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asked {
    /// Everything that may be asked.
    pub require: Requirements,
    /// What of it would only be certain if the topic's name were known.
    pub uncertain: Requirements,
}

impl Policies {
    /// All of them.
    #[must_use]
    pub fn new(policies: Vec<Policy>) -> Self {
        Self(policies)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is asked of a topic, by every policy that speaks of it. `None` is
    /// a topic whose name is not known here, as Produce requests since version
    /// 13 carry ids.
    #[must_use]
    pub fn of(&self, topic: Option<&str>) -> Asked {
        let sum = |applies: &dyn Fn(&Policy) -> bool| {
            let of_topic = self.0.iter().filter(|policy| applies(policy));
            of_topic.fold(Requirements::NONE, |all, policy| all.and(policy.require))
        };
        let Some(topic) = topic else {
            let require = sum(&|_| true);
            let uncertain = require.without(sum(&Policy::is_of_all));
            return Asked { require, uncertain };
        };
        Asked {
            require: sum(&|policy| policy.applies_to(topic)),
            uncertain: Requirements::NONE,
        }
    }
}

/// A policy that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPolicy {
    /// Neither topics nor requirements can be told.
    #[error(
        "`{0}` is no policy: write TOPICS=REQUIREMENTS, such as payments.*=idempotence+acks_all"
    )]
    Shape(String),
    /// A pattern that is none.
    #[error(
        "`{0}` is no pattern of topics: write a name in which * stands for anything and ? for one character, such as payments.*; it is no regular expression, and a ! before it takes topics out"
    )]
    Pattern(String),
    /// A requirement that there is not.
    #[error("there is no requirement `{text}`: give idempotence, acks_all or transactional{}", nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    Requirement {
        /// What was given.
        text: String,
        /// What may have been meant.
        nearest: Option<&'static str>,
    },
    /// No topic can match.
    #[error(
        "a policy names no topics: give at least one pattern without !, such as payments.* or *"
    )]
    NoTopics,
    /// It asks for nothing.
    #[error("a policy requires nothing: give idempotence, acks_all or transactional")]
    NoRequirement,
}

/// Kafka's own limit of a topic's name.
const PATTERN_BYTES_MAX: usize = 249;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policies(texts: &[&str]) -> Policies {
        Policies::new(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn asked(policies: &Policies, topic: Option<&str>) -> (String, String) {
        let asked = policies.of(topic);
        let names = |r: Requirements| {
            r.iter()
                .map(Requirement::name)
                .collect::<Vec<_>>()
                .join("+")
        };
        (names(asked.require), names(asked.uncertain))
    }

    #[test]
    fn a_glob_is_all_of_a_name() {
        for (glob, name, expected) in [
            ("*", "", true),
            ("*", "orders", true),
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("order?", "orders", true),
            ("order?", "order", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("orders.*", "ordersXeu", false),
            ("*.eu", "orders.eu", true),
            ("*.eu", "orders.eu.", false),
            ("*a*b*c", "xxaybyybzc", true),
            ("*a*b*c", "xxaybyybz", false),
            ("**", "x", true),
        ] {
            assert_eq!(
                matches(glob.as_bytes(), name.as_bytes()),
                expected,
                "{glob} {name}"
            );
        }
    }

    #[test]
    fn what_is_asked_of_a_topic_is_the_sum_of_its_policies() {
        let all = policies(&[
            "*+!connect-*=idempotence",
            "payments.*+audit=acks_all",
            "ledger=transactional+acks_all",
        ]);
        for (topic, expected) in [
            ("clicks", "idempotence"),
            ("connect-offsets", ""),
            ("payments.eu", "idempotence+acks_all"),
            ("ledger", "idempotence+acks_all+transactional"),
        ] {
            assert_eq!(
                asked(&all, Some(topic)),
                (expected.to_owned(), String::new())
            );
        }
        assert!(Policies::default().of(Some("clicks")).require.is_empty());
    }

    #[test]
    fn of_a_topic_without_a_name_only_what_holds_for_all_is_certain() {
        let all = policies(&["*=idempotence", "payments=acks_all+idempotence"]);
        let expected = ("idempotence+acks_all".to_owned(), "acks_all".to_owned());
        assert_eq!(asked(&all, None), expected);
        let but_one = policies(&["*+!metrics=idempotence"]);
        let expected = ("idempotence".to_owned(), "idempotence".to_owned());
        assert_eq!(asked(&but_one, None), expected);
    }

    #[test]
    fn what_is_no_policy_is_told_with_the_way_out() {
        for (text, said) in [
            ("payments", "write TOPICS=REQUIREMENTS"),
            ("=acks_all", "`` is no pattern of topics"),
            ("^pay.*$=acks_all", "it is no regular expression"),
            ("pay(1)=acks_all", "no pattern"),
            ("!pay=acks_all", "names no topics"),
            ("pay=", "there is no requirement ``"),
            ("pay=acks", "did you mean acks_all?"),
            ("pay=enable.idempotence", "did you mean idempotence?"),
            ("pay=Transactional.id", "did you mean transactional?"),
            (
                "pay=compression",
                "give idempotence, acks_all or transactional",
            ),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_message_names_every_setting_that_is_missing() {
        let all = Requirements::NONE
            .with(Requirement::Idempotence)
            .with(Requirement::AcksAll);
        let message = all.message();
        for setting in ["enable.idempotence=true", "Producer.Idempotent", "acks=all"] {
            assert!(message.contains(setting), "{message}");
        }
        assert!(!message.contains("transactional.id"), "{message}");
    }

    /// The plainest matcher there is.
    fn plainly(glob: &[u8], name: &[u8]) -> bool {
        match glob.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| plainly(rest, &name[at..])),
            Some((byte, rest)) => name.split_first().is_some_and(|(first, others)| {
                (byte == first || *byte == b'?') && plainly(rest, others)
            }),
        }
    }

    proptest! {
        #[test]
        fn a_glob_matches_as_the_plainest_matcher_says(glob in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(
                matches(glob.as_bytes(), name.as_bytes()),
                plainly(glob.as_bytes(), name.as_bytes())
            );
        }

        #[test]
        fn a_policy_is_read_as_it_is_written(text in "[!]?[a-z.*?-]{1,6}([+][!]?[a-z*]{1,4}){0,2}=(idempotence|acks_all[+]transactional)") {
            if let Ok(policy) = text.parse::<Policy>() {
                prop_assert_eq!(policy.to_string().parse::<Policy>(), Ok(policy));
            }
        }
    }
}
