//! The same words for a terminal, for tools and as a Markdown page.

use std::fmt::{self, Write};

use serde::Serialize;

use super::find::names;
use super::{Api, ErrorCode, Explanation, PerClient, Settles, Subject, all, names_of};

/// One explanation for a terminal of 80 columns.
#[must_use]
pub fn text(entry: &Explanation) -> String {
    let mut text = Text::default();
    text.head(entry);
    text.paragraph("", entry.says);
    text.line("");
    if let Some(error) = entry.code() {
        text.paragraph("Carried by", &carried_by(error.carriers));
    }
    let labels = labels(entry);
    text.paragraph(labels.raised, entry.raised);
    text.items(labels.causes, entry.causes);
    for (client, does) in entry.clients.iter() {
        text.paragraph(client, does);
    }
    text.paragraph("hapax", &does(entry));
    text.items("Do", entry.advice);
    if let Some(belief) = &entry.belief {
        let belief = format!("\"{}\" {}", belief.said, belief.truth);
        text.paragraph("Not true", &belief);
    }
    text.queries("Watch", entry.promql);
    if !entry.see.is_empty() {
        let see = format!("{} (hapax explain NAME)", entry.see.join(", "));
        text.paragraph("More", &see);
    }
    text.0
}

/// Everything that can be explained, a line each.
#[must_use]
pub fn list() -> String {
    let mut list = String::new();
    let mut heading = "";
    for entry in all() {
        let group = group(entry);
        if group != heading {
            let space = if heading.is_empty() { "" } else { "\n" };
            let _ = writeln!(list, "{space}{group}");
            heading = group;
        }
        let _ = match entry.code() {
            Some(error) => {
                let (code, retry) = (error.code, error.retry.label());
                writeln!(list, "{code:>5}  {:<37}  {retry}", entry.name)
            }
            None => writeln!(list, "  {:<19}  {}", entry.name, entry.says),
        };
    }
    list.push_str("\nhapax explain CODE|NAME says more of each.\n");
    list
}

/// One explanation for tools.
#[must_use]
pub fn json(entry: &'static Explanation) -> String {
    serde_json::to_string(&Row::of(entry)).expect("a row has string keys")
}

/// Every explanation for tools, a line each.
#[must_use]
pub fn list_json() -> String {
    all().fold(String::new(), |list, entry| list + &json(entry) + "\n")
}

/// The page `ERRORS.md`.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(PREAMBLE);
    let mut heading = "";
    for entry in all() {
        let group = group(entry);
        if group != heading {
            let _ = writeln!(page, "\n## {group}");
            heading = group;
        }
        markdown(entry, &mut page);
    }
    page
}

/// The command that explains an entry, for a log line.
pub fn command(entry: &Explanation) -> impl fmt::Display {
    let (code, name) = (entry.code().map(|error| error.code), entry.name);
    fmt::from_fn(move |f| match code {
        Some(code) => write!(f, "hapax explain {code}"),
        None => write!(f, "hapax explain {name}"),
    })
}

/// What hapax does: what the window makes of the code, then the rest.
fn does(entry: &Explanation) -> String {
    let first = match entry.code() {
        Some(error) if error.carriers.is_empty() => String::new(),
        Some(error) => answered(error),
        None => String::new(),
    };
    [first.as_str(), entry.hapax].join(" ").trim().to_owned()
}

/// What becomes of an answer with the error.
fn answered(error: &ErrorCode) -> String {
    let Some(settles) = error.settles else {
        return "Relays the answer unchanged.".to_owned();
    };
    let settled = settled(settles, mirrored_as(error.code));
    if error.carriers.len() == 1 {
        return settled;
    }
    format!("Produce: {settled} Other answers: relays them unchanged.")
}

/// The code with which batches behind one of this code are answered.
fn mirrored_as(code: i16) -> i16 {
    if matches!(code, 3 | 6 | 100) {
        code
    } else {
        19
    }
}

fn settled(settles: Settles, mirrored: i16) -> String {
    let held_back = format!(
        "Batches behind it that were never sent get {mirrored} until it comes again: once, or \
         three times at most where it begins an epoch."
    );
    match settles {
        Settles::Written => "Relays it; the batch counts as written.".to_owned(),
        Settles::ToRetry => {
            format!("Relays it; the batch counts as not written, to be retried. {held_back}")
        }
        Settles::ToRetryUnlessAppended => format!(
            "Relays it; the batch counts as not written, to be retried (with an offset in the \
             answer: as perhaps written). {held_back}"
        ),
        Settles::Refused => "Relays it; the batch counts as not written. Batches behind it go \
                             on to the broker."
            .to_owned(),
        Settles::OutOfOrder => "Relays it; this copy counts as not written, an earlier one may \
                                be. If the batch was the next in turn, what was known of the \
                                producer there is dropped (disagreement)."
            .to_owned(),
        Settles::Unknown => format!(
            "Relays it; the batch counts as perhaps written, and its retry goes to the broker. \
             Without an offset in the answer: {}",
            held_back.replacen("Batches", "batches", 1)
        ),
    }
}

fn carried_by(carriers: &[Api]) -> String {
    if carriers.is_empty() {
        return "no answer to a write or a transaction".to_owned();
    }
    if carriers.len() == Api::ALL.len() {
        return "Produce and all requests of transactions".to_owned();
    }
    let names: Vec<_> = carriers.iter().map(|api| api.name()).collect();
    names.join(", ")
}

/// How an entry's paragraphs are headed.
struct Labels {
    raised: &'static str,
    causes: &'static str,
}

fn labels(entry: &Explanation) -> Labels {
    match entry.subject {
        Subject::Error(_) | Subject::Told => Labels {
            raised: "Raised by",
            causes: "Causes",
        },
        Subject::General => Labels {
            raised: "How",
            causes: "Facts",
        },
    }
}

fn group(entry: &Explanation) -> &'static str {
    match entry.subject {
        Subject::Error(_) => "Errors of the protocol",
        Subject::Told => "Events and verdicts of hapax",
        Subject::General => "Subjects",
    }
}

/// Lines of at most [`WIDTH`] columns.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: &str) {
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    fn head(&mut self, entry: &Explanation) {
        match entry.code() {
            Some(error) => {
                let left = format!("{}  {}", error.code, entry.name);
                let right = error.retry.label();
                let width = WIDTH - left.len();
                self.line(&format!("{left}{right:>width$}"));
            }
            None => self.line(entry.name),
        }
    }

    fn paragraph(&mut self, label: &str, words: &str) {
        self.wrapped(label, "", words);
    }

    fn items(&mut self, label: &str, items: &[&str]) {
        let mut label = label;
        for item in items {
            self.wrapped(label, "- ", item);
            label = "";
        }
    }

    /// A query is not wrapped: it is there to be copied.
    fn queries(&mut self, label: &str, queries: &[&str]) {
        let mut label = label;
        for query in queries {
            self.line(&format!("{label:<LABEL$}{query}"));
            label = "";
        }
    }

    fn wrapped(&mut self, label: &str, bullet: &str, words: &str) {
        let indent = if label.is_empty() && bullet.is_empty() {
            0
        } else {
            LABEL
        };
        let room = WIDTH - indent - bullet.len();
        let mut before = format!("{label:<indent$}{bullet}");
        let mut line = String::new();
        for word in words.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > room {
                self.line(&format!("{before}{line}"));
                before = " ".repeat(indent + bullet.len());
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.line(&format!("{before}{line}"));
        }
    }
}

/// The layout of an explanation in JSON.
#[derive(Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i16>,
    name: &'static str,
    kind: &'static str,
    names: Vec<&'static str>,
    says: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<&'static str>,
    carried_by: Vec<&'static str>,
    raised: &'static str,
    causes: &'static [&'static str],
    clients: Vec<Reaction>,
    hapax: String,
    advice: &'static [&'static str],
    promql: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    not_true: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<&'static str>,
    see: &'static [&'static str],
}

#[derive(Serialize)]
struct Reaction {
    client: &'static str,
    does: &'static str,
}

impl Row {
    fn of(entry: &'static Explanation) -> Self {
        let carriers = entry.code().map_or(&[][..], |error| error.carriers);
        let reactions = entry.clients.iter();
        Self {
            code: entry.code().map(|error| error.code),
            name: entry.name,
            kind: match entry.subject {
                Subject::Error(_) => "error",
                Subject::Told => "told",
                Subject::General => "subject",
            },
            names: names(entry).collect(),
            says: entry.says,
            retry: entry.code().map(|error| error.retry.label()),
            carried_by: carriers.iter().map(|api| api.name()).collect(),
            raised: entry.raised,
            causes: entry.causes,
            clients: reactions
                .map(|(client, does)| Reaction { client, does })
                .collect(),
            hapax: does(entry),
            advice: entry.advice,
            promql: entry.promql,
            not_true: entry.belief.map(|belief| belief.said),
            truth: entry.belief.map(|belief| belief.truth),
            see: entry.see,
        }
    }
}

fn markdown(entry: &Explanation, page: &mut String) {
    let title = match entry.code() {
        Some(error) => format!("{} {}", error.code, entry.name),
        None => entry.name.to_owned(),
    };
    let _ = write!(page, "\n### {title}\n\n{}", escaped(entry.says));
    if let Some(error) = entry.code() {
        let _ = write!(page, " *{}*", upper_first(error.retry.label()));
        let _ = write!(page, "; carried by {}.", carried_by(error.carriers));
    }
    let labels = labels(entry);
    let _ = write!(page, "\n\n{}: {}\n", labels.raised, escaped(entry.raised));
    bullets(labels.causes, entry.causes, page);
    reactions(entry, page);
    let _ = write!(page, "\nhapax: {}\n", escaped(&does(entry)));
    bullets("Do", entry.advice, page);
    if let Some(belief) = &entry.belief {
        let (said, truth) = (escaped(belief.said), escaped(belief.truth));
        let _ = write!(page, "\n**Not true:** *{said}* {truth}\n");
    }
    if !entry.promql.is_empty() {
        let _ = write!(page, "\n```promql\n{}\n```\n", entry.promql.join("\n"));
    }
}

fn reactions(entry: &Explanation, page: &mut String) {
    if entry.clients == PerClient::NONE {
        return;
    }
    page.push_str("\n| client | calls it | does |\n|---|---|---|\n");
    let called = entry
        .code()
        .map_or(PerClient::NONE, |error| names_of(error.code));
    for (client, does) in entry.clients.iter() {
        let name = called.iter().find(|(of, _)| *of == client);
        let name = name.map_or_else(String::new, |(_, name)| format!("`{name}`"));
        let _ = writeln!(page, "| {client} | {name} | {} |", escaped(does));
    }
}

fn bullets(label: &str, items: &[&str], page: &mut String) {
    if items.is_empty() {
        return;
    }
    let _ = write!(page, "\n{label}:\n\n");
    for item in items {
        let _ = writeln!(page, "- {}", escaped(item));
    }
}

/// Names with underscores and asterisks are no emphasis.
fn escaped(words: &str) -> String {
    words
        .replace('_', "\\_")
        .replace('*', "\\*")
        .replace('|', "\\|")
}

fn upper_first(words: &str) -> String {
    let (first, rest) = words.split_at(1);
    first.to_uppercase() + rest
}

const WIDTH: usize = 80;
/// Room for the longest label, librdkafka.
const LABEL: usize = 12;
const PREAMBLE: &str = "\
# Errors, events and verdicts

Generated from the words of `hapax explain`; a test holds it equal to them. What is said of
clients was read in their sources (Java 4.4.0, librdkafka 2.15, franz-go `adb3a18`, sarama
`bd98b3a`, KafkaJS `55b0b41`), what is said of brokers in those of Kafka 4.4.0 and 4.0. What hapax
makes of an error concerns batches with idempotence that it follows, in mode `absorb`.

On the command line: `hapax explain 45`, `hapax explain OutOfOrderSequenceException`, or a line of a
log in quotes.
";
