//! The configuration file: YAML, read into values of the table's keys.
//!
//! Everything that is wrong with a file is told at once, each with its line.
//! Anchors, aliases and tags are refused: no key needs one, and without them a
//! file means no more than it says.

mod tree;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::keys::{self, KEYS, Key, Kind};
use super::value::Value;
use super::{ParseError, printable};
use crate::policy::{BadPolicy, Policy, Requirements, parse_requirement};
use tree::{Content, EMPTY, Node};

/// What a file sets, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Contents {
    /// The keys it sets, each once, with the line.
    pub values: Vec<(&'static Key, Value, usize)>,
    /// What is wrong, in the order of the lines.
    pub errors: Vec<(usize, FileError)>,
}

/// Reads a file that should be a configuration.
pub fn read(path: &Path) -> Result<Contents, io::Error> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > BYTES_MAX) {
        let large = format!("it has more than {BYTES_MAX} bytes, which is no configuration");
        return Err(io::Error::other(large));
    }
    Ok(parse(&bytes))
}

/// What the bytes of a file say.
pub fn parse(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            contents.errors.push((line, FileError::NotUtf8));
            return contents;
        }
    };
    match tree::read(text) {
        Ok(Some(root)) => contents.section("", &root),
        // An empty file sets nothing.
        Ok(None) => {}
        Err((line, error)) => contents.errors.push((line, error)),
    }
    contents.errors.sort_by_key(|(line, _)| *line);
    contents
}

impl Contents {
    fn error(&mut self, node: &Node, error: FileError) {
        self.errors.push((node.line, error));
    }

    /// What a section says, or the whole file, whose path is empty.
    fn section(&mut self, path: &str, node: &Node) {
        let entries = match &node.content {
            Content::Map(entries) => entries,
            // A section whose every line is commented out.
            Content::Null => return,
            content @ (Content::List(_) | Content::Text(_)) => {
                let (path, found) = (path.to_owned(), content.describe());
                return self.error(node, FileError::NoSection { path, found });
            }
        };
        let mut seen: Vec<(&str, usize)> = Vec::new();
        for (name, value) in entries {
            let Content::Text(text) = &name.content else {
                let found = name.content.describe();
                self.error(name, FileError::KeyNotText(found));
                continue;
            };
            let below = join(path, text);
            if let Some((_, first)) = seen.iter().find(|(other, _)| other == text) {
                let (path, first) = (below, *first);
                self.error(name, FileError::Twice { path, first });
                continue;
            }
            seen.push((text, name.line));
            let nested = !text.contains('.');
            if let Some(key) = Key::at(&below).filter(|_| nested) {
                self.key(key, name, value);
            } else if nested && is_section(&below) {
                self.section(&below, value);
            } else {
                let error = unknown(path, below);
                self.error(name, error);
            }
        }
    }

    fn key(&mut self, key: &'static Key, name: &Node, node: &Node) {
        let mut items = Vec::new();
        let mut all = key.kind.none();
        match (&node.content, &key.kind) {
            (Content::Text(text), kind) => match kind.parse_all(text) {
                Ok(value) => all = value,
                Err(error) => return self.error(node, FileError::Value(key.path, error)),
            },
            (Content::Null, Kind::Host | Kind::Text | Kind::Directory | Kind::File) => {}
            (Content::List(list), Kind::Servers | Kind::Choices(_)) => {
                items = list.iter().map(item).collect();
            }
            (Content::Map(map), Kind::Slots | Kind::Mappings) => {
                items = map.iter().map(pair).collect();
                self.repeated(key, map);
            }
            (Content::List(list), Kind::Policies) => {
                for item in list {
                    match self.policy(key, item) {
                        Ok(policy) => all.append(policy),
                        Err((line, error)) => self.errors.push((line, error)),
                    }
                }
            }
            (content, _) => {
                let found = content.describe();
                return self.error(name, FileError::wrong(key, found));
            }
        }
        for (line, text) in items {
            let error = match text.map(|text| key.kind.parse(&text)) {
                Ok(Ok(value)) => {
                    all.append(value);
                    continue;
                }
                Ok(Err(error)) => FileError::Value(key.path, error),
                Err(found) => FileError::wrong(key, found),
            };
            self.errors.push((line, error));
        }
        self.values.push((key, all, name.line));
    }

    /// One policy: a map of `topics` and `require`, or as a flag has it.
    fn policy(&mut self, key: &'static Key, node: &Node) -> Result<Value, (usize, FileError)> {
        let read = |line, read: Result<Value, ParseError>| {
            read.map_err(|error| (line, FileError::Value(key.path, error)))
        };
        let wrong = |node: &Node| (node.line, FileError::wrong(key, node.content.describe()));
        let entries = match &node.content {
            Content::Text(text) => return read(node.line, key.kind.parse(text)),
            Content::Map(entries) => entries,
            Content::List(_) | Content::Null => return Err(wrong(node)),
        };
        self.repeated(key, entries);
        let (mut topics, mut require) = (Vec::new(), Requirements::NONE);
        for (name, value) in entries {
            let one_or_several = match &value.content {
                Content::List(list) => list.as_slice(),
                _ => std::slice::from_ref(value),
            };
            let name_text = name.text().map_err(|_| wrong(name))?;
            for item in one_or_several {
                let text = item.text().map_err(|_| wrong(item))?;
                let bad = |error: BadPolicy| {
                    let error = FileError::Value(key.path, error.into());
                    (item.line, error)
                };
                match name_text {
                    "topics" => topics.push(text.parse().map_err(bad)?),
                    "require" => require = require.with(parse_requirement(text).map_err(bad)?),
                    _ => {
                        let path = format!("{}: {name_text}", key.path);
                        let names = ["topics", "require"];
                        let advice = match keys::nearest(name_text, names) {
                            Some(nearest) => format!("did you mean {nearest}?"),
                            None => format!("expected one of {}", names.join(", ")),
                        };
                        return Err((name.line, FileError::Unknown { path, advice }));
                    }
                }
            }
        }
        let policy = Policy::new(topics, require).map_err(ParseError::from);
        read(
            node.line,
            policy.map(|policy| Value::Policies(vec![policy])),
        )
    }

    /// Keys that a map has twice.
    fn repeated(&mut self, key: &'static Key, map: &[(Node, Node)]) {
        for (at, (name, _)) in map.iter().enumerate() {
            let same = |(other, _): &&(Node, Node)| other.content == name.content;
            if let Some((first, _)) = map[..at].iter().find(same) {
                let name_text = name.text().unwrap_or_default();
                let path = format!("{}: {name_text}", key.path);
                let first = first.line;
                self.error(name, FileError::Twice { path, first });
            }
        }
    }
}

fn item(node: &Node) -> (usize, Result<String, &'static str>) {
    (node.line, node.text().map(str::to_owned))
}

/// An entry of a map as a flag has it: `NAME=VALUE`.
fn pair((name, value): &(Node, Node)) -> (usize, Result<String, &'static str>) {
    let text = name.text().and_then(|name| {
        let value = value.text()?;
        Ok(format!("{name}={value}"))
    });
    (name.line, text)
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

fn is_section(path: &str) -> bool {
    KEYS.iter().any(|key| below(path, key.place().0).is_some())
}

/// The rest of a path that is this section, or below it.
fn below<'p>(section: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(section)?;
    match rest.strip_prefix('.') {
        Some(rest) => Some(rest),
        None => (rest.is_empty() || section.is_empty()).then_some(rest),
    }
}

/// The names that a section has, and the file itself for an empty path.
fn names_in(path: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    for key in KEYS {
        let Some(rest) = below(path, key.path) else {
            continue;
        };
        let name = rest.split('.').next().unwrap_or(rest);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// How the first key of a section is written, or that of the file.
fn section_example(path: &str) -> String {
    let mut keys = KEYS.iter().map(Key::place);
    let first = keys.find(|(section, _)| path.is_empty() || *section == path);
    first.map_or_else(String::new, |(section, name)| {
        format!("`{name}:` below `{section}:`")
    })
}

fn unknown(section: &str, path: String) -> FileError {
    let names = names_in(section);
    let name = path.strip_prefix(section).unwrap_or(&path);
    let name = name.trim_start_matches('.');
    let sibling = keys::nearest(name, names.iter().copied());
    let nearest = match Key::at(&path) {
        Some(key) => Some(key.path.to_owned()),
        None => sibling
            .map(|name| join(section, name))
            .or_else(|| keys::nearest_path(&path).map(str::to_owned)),
    };
    let advice = match nearest {
        Some(nearest) => match nearest.rsplit_once('.') {
            // It is there already, and written in one word.
            Some((section, name)) if nearest == path => {
                format!("write `{name}:` below `{section}:`")
            }
            Some((below, name)) if below != section => {
                format!("did you mean {nearest}, which is `{name}:` below `{below}:`?")
            }
            _ => format!("did you mean {nearest}?"),
        },
        None => format!("expected one of {}", names.join(", ")),
    };
    FileError::Unknown { path, advice }
}

/// What is wrong at a line of a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// Bytes that are no text.
    #[error("the file is not UTF-8: save it as UTF-8")]
    NotUtf8,
    /// Text that is no YAML.
    #[error("this is no YAML: {}", printable(.0))]
    Syntax(String),
    /// A tab where spaces belong.
    #[error("a tab indents this line: YAML wants spaces")]
    Tab,
    /// A second document.
    #[error("a second document begins: a configuration is one, without further `---`")]
    SecondDocument,
    /// An anchor or an alias.
    #[error("anchors and aliases (& and *) are not read here: write the value out")]
    Anchor,
    /// A tag.
    #[error("tags (!) are not read here: leave it out, or quote a text that begins with !")]
    Tag,
    /// A list or text where keys belong.
    #[error("{} {found}: give keys and values, such as {}", if path.is_empty() { "the file is".to_owned() } else { format!("{path} is") }, section_example(path))]
    NoSection {
        /// The section, empty for the file.
        path: String,
        /// What it is instead.
        found: &'static str,
    },
    /// A key that is a list or a map.
    #[error("a key is {0}: give a name")]
    KeyNotText(&'static str),
    /// A key that there is not.
    #[error("unknown key {}: {advice}", printable(path))]
    Unknown {
        /// What was written.
        path: String,
        /// What may have been meant.
        advice: String,
    },
    /// A key for the second time.
    #[error("{} is here again: it is in line {first} already", printable(path))]
    Twice {
        /// The key.
        path: String,
        /// Where it is for the first time.
        first: usize,
    },
    /// A value of the wrong type.
    #[error("{path} is {found}: give {expected}{}", if *found == EMPTY { ", or leave the line out" } else { "" })]
    Type {
        /// The key.
        path: &'static str,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: String,
    },
    /// A value that cannot be read.
    #[error("{}: {}", .0, printable(&.1.to_string()))]
    Value(&'static str, ParseError),
}

impl FileError {
    fn wrong(key: &Key, found: &'static str) -> Self {
        Self::Type {
            path: key.path,
            found,
            expected: key.kind.expected(),
        }
    }
}

/// No configuration is that long; what is may be a device or a log.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::value::scalar;

    fn errors(text: &str) -> Vec<String> {
        let errors = parse(text.as_bytes()).errors;
        let lines = errors
            .iter()
            .map(|(line, error)| format!("{line}: {error}"));
        lines.collect()
    }

    /// The one thing that is wrong with a text.
    fn check(text: &str, line: usize, said: &str) {
        let errors = errors(text);
        let [error] = errors.as_slice() else {
            panic!("{text:?}: {errors:#?}");
        };
        assert!(error.starts_with(&format!("{line}: ")), "{error}");
        assert!(error.contains(said), "{text:?}: {error}");
    }

    /// The values of a text that is valid, as YAML, by path.
    fn values(text: &str) -> Vec<(&'static str, String, usize)> {
        assert_eq!(errors(text), [""; 0]);
        let values = parse(text.as_bytes()).values.into_iter();
        let values = values.map(|(key, value, line)| (key.path, value.to_yaml(), line));
        values.collect()
    }

    #[test]
    fn every_way_to_write_a_list_or_a_map_means_the_same() {
        for text in [
            "upstream:\n  bootstrap: [a:1, b:2]",
            "upstream:\n  bootstrap:\n    - a:1\n    - b:2",
            "upstream: {bootstrap: [\"a:1\", 'b:2']}",
            "upstream:\r\n  bootstrap: a:1,b:2\r\n",
        ] {
            let line = if text.starts_with("upstream: {") {
                1
            } else {
                2
            };
            let expected = [("upstream.bootstrap", "[a:1, b:2]".to_owned(), line)];
            assert_eq!(values(text), expected);
        }
        for text in [
            "listen: {nodeSlots: {1: 101, 2: 102}}",
            "listen: {nodeSlots: \"1=101,2=102\"}",
            "listen: {nodeSlots: {\"2\": \"102\", \"1\": 101}}",
        ] {
            let expected = [("listen.nodeSlots", "{1: 101, 2: 102}".to_owned(), 1)];
            assert_eq!(values(text), expected);
        }
        let text = "upstream:\n  addressMap:\n    kafka-0.svc:9092: localhost:9092\n";
        let expected = "{kafka-0.svc:9092: localhost:9092}".to_owned();
        assert_eq!(values(text), [("upstream.addressMap", expected, 2)]);
    }

    #[test]
    fn a_file_that_sets_nothing_is_valid() {
        for text in [
            "",
            "\n",
            "# nothing\n",
            "---\n",
            "~",
            "{}",
            "sequence:\n",
            "\u{feff}",
        ] {
            assert_eq!(values(text), []);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_the_way_out() {
        for (text, line, said) in [
            (
                "\nsequence:\n  windowBatchs: 5",
                3,
                "unknown key sequence.windowBatchs: did you mean sequence.windowBatches?",
            ),
            (
                "mode: observe",
                1,
                "did you mean sequence.mode, which is `mode:` below `sequence:`?",
            ),
            (
                "sequence.mode: observe",
                1,
                "write `mode:` below `sequence:`",
            ),
            ("sequences:\n  mode: observe", 1, "did you mean sequence?"),
            (
                "upstream:\n  brokers: [a:1]",
                2,
                "expected one of bootstrap, addressMap, reconnectBackoff, reconnectBackoffMax, tls",
            ),
            (
                "listen:\n  broker_ports: 1-2",
                2,
                "did you mean listen.brokerPorts?",
            ),
            ("sequence:\n  ttl: 5", 2, "sequence.ttl: `5` is no time"),
            (
                "sequence:\n  ttl: [5m]",
                2,
                "sequence.ttl is a list: give a time above 0",
            ),
            (
                "sequence:\n  ttl:\n    a: 5m",
                2,
                "sequence.ttl is a map: give a time",
            ),
            (
                "sequence:\n  ttl:",
                2,
                "sequence.ttl is empty: give a time above 0, such as 300ms, 5s, 10m or 1h, or leave the line out",
            ),
            (
                "sequence:\n  mode: absorbs",
                2,
                "there is no `absorbs`: give observe, absorb or enforce; did you mean absorb?",
            ),
            (
                "sequence:\n  shield45: perhaps",
                2,
                "`perhaps` is neither true nor false",
            ),
            (
                "workers: many",
                1,
                "`many` is no number: give a whole number from 0 to 1024",
            ),
            ("workers: -1", 1, "`-1` is no number"),
            (
                "upstream:\n  bootstrap:\n    - a:1\n    - b",
                4,
                "`b` has no port",
            ),
            (
                "upstream:\n  bootstrap:\n    - [a:1]",
                3,
                "upstream.bootstrap is a list",
            ),
            (
                "upstream:\n  bootstrap: {a: 1}",
                2,
                "upstream.bootstrap is a map: give a list of HOST:PORT",
            ),
            (
                "listen:\n  nodeSlots: [1]",
                2,
                "listen.nodeSlots is a list: give a map of ID: PORT",
            ),
            (
                "listen:\n  nodeSlots:\n    1: 5\n    1: 6",
                4,
                "listen.nodeSlots: 1 is here again: it is in line 3 already",
            ),
            (
                "listen:\n  nodeSlots:\n    1: [5]",
                3,
                "listen.nodeSlots is a list",
            ),
            (
                "workers: 1\nlog: {level: info}\nworkers: 1",
                3,
                "workers is here again: it is in line 1 already",
            ),
            ("workers: 1\n? [a]\n: b", 2, "a key is a list"),
            ("- a\n- b", 1, "the file is a list: give keys and values"),
            ("kafka:9092", 1, "the file is text"),
            (
                "upstream: kafka:9092",
                1,
                "upstream is text: give keys and values, such as `bootstrap:` below `upstream:`",
            ),
            ("sequence:\n\tmode: observe", 2, "a tab indents this line"),
            ("sequence:\n  mode: observe\n ttl: 5m", 3, "this is no YAML"),
            (
                "upstream:\n bootstrap: kafka:9092\n  addressMap: {}",
                3,
                "is the line indented like its neighbours?",
            ),
            ("listen:\n  bootstrap: [::]:19092", 2, "wants quotes"),
            ("workers: 1\n---\nworkers: 2", 2, "a second document"),
            ("a: &x [1]\nb: *x", 1, "anchors and aliases"),
            ("workers: *x", 1, "anchors and aliases"),
            ("workers: !!int 5", 1, "tags"),
            ("log:\n  level: \"info", 2, "this is no YAML"),
        ] {
            check(text, line, said);
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for (text, said) in [
            ("\"a\\nb\": 1", "unknown key a\\u{a}b:"),
            (
                "upstream: {bo\r\rot: 1}",
                "unknown key upstream.bo\\u{a}ot:",
            ),
            ("workers: \"1\\e[2J\"", "`1\\u{1b}[2J` is no number"),
            ("policies: [{\"a\\nb\": 1}]", "a\\u{a}b"),
            ("{\"a\\nb\": 1, \"a\\nb\": 2}", "a\\u{a}b is here again"),
        ] {
            let errors = errors(text);
            let moves = |error: &String| error.contains(char::is_control);
            assert!(!errors.iter().any(moves), "{text:?}: {errors:?}");
            assert!(
                errors.iter().any(|error| error.contains(said)),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = "mod: x\nsequence:\n  ttl: 5\n  holdMax: []\nworkers: x\nlisten: []\n";
        let lines: Vec<_> = errors(text)
            .iter()
            .map(|error| error.split_once(':').unwrap().0.to_owned())
            .collect();
        assert_eq!(lines, ["1", "3", "4", "5", "6"]);
    }

    #[test]
    fn what_is_not_text_is_told_with_its_line() {
        let errors = parse(b"workers: 1\nlog:\n  level: \xff").errors;
        assert_eq!(errors, [(3, FileError::NotUtf8)]);
    }

    #[test]
    fn a_file_that_is_made_to_hurt_does_not() {
        let mut laughs = String::from("a0: &a0 [x, x]\n");
        for n in 1..40 {
            laughs += &format!("a{n}: &a{n} [*a{m}, *a{m}]\n", m = n - 1);
        }
        check(&laughs, 1, "anchors and aliases");
        check(&"[".repeat(500_000), 1, "this is no YAML");
        check(&"{a: ".repeat(100_000), 1, "this is no YAML");
        check(&"- ".repeat(200_000), 1, "this is no YAML");
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }

        #[test]
        fn nothing_like_yaml_is_a_panic(
            text in "([a-z]{1,3}|sequence|mode|nodeSlots|listen|[:?\\-]|[ \n\t]|[\\[\\]{}&*!|>'\"%@`,#~0-9])*",
        ) {
            for (line, error) in parse(text.as_bytes()).errors {
                prop_assert!(line >= 1 && !error.to_string().contains('\n'), "{line}: {error}");
            }
        }

        #[test]
        fn text_that_is_written_is_read_as_it_was(text in any::<String>()) {
            let yaml = format!("[{0}, {{{0}: {0}}}]", scalar(&text));
            let root = tree::read(&yaml).unwrap().unwrap().content;
            let node = || Node { line: 1, content: Content::Text(text.clone()) };
            let map = Node { line: 1, content: Content::Map(vec![(node(), node())]) };
            prop_assert_eq!(root, Content::List(vec![node(), map]));
        }
    }
}
