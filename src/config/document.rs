//! The configuration as a file to read: the effective one, and the commented
//! default that is `config/hapax.yaml`.

use std::fmt::Write;

use super::keys::{KEYS, Key, Kind};
use super::settings::{Setting, Settings};

/// The effective configuration as YAML, which `--config` reads back. With
/// `origins` each line says who set it.
pub fn effective(settings: &Settings, origins: bool) -> String {
    let mut text = String::new();
    let settings: Vec<_> = settings.iter().collect();
    by_section(
        &settings,
        |setting| setting.key,
        |section, settings| {
            let indent = head(&mut text, section);
            for Setting { key, value, origin } in settings {
                let _ = write!(text, "{indent}{}: {}", key.place().1, value.to_yaml());
                if origins {
                    let _ = write!(text, "  # {}", one_line(&origin.to_string()));
                }
                text.push('\n');
            }
        },
    );
    text
}

/// `config/hapax.yaml`: every key with its default and what it is for.
pub fn commented_default() -> String {
    let mut text = String::from(PREAMBLE);
    let keys: Vec<_> = KEYS.iter().collect();
    by_section(
        &keys,
        |key| key,
        |section, keys| {
            text.push('\n');
            let indent = head(&mut text, section);
            for (at, key) in keys.iter().enumerate() {
                if at > 0 {
                    text.push('\n');
                }
                for line in comment(key) {
                    let _ = writeln!(text, "{indent}# {line}");
                }
                let value = key.kind.parse_all(key.default);
                let value = value.expect("a test parses every default of the table");
                let _ = writeln!(text, "{indent}{}: {}", key.place().1, value.to_yaml());
            }
        },
    );
    text
}

/// What the file says above a key.
fn comment(key: &Key) -> Vec<String> {
    // One section deep; those within it are indented more.
    let columns = COLUMNS - 2 * key.path.matches('.').count().saturating_sub(1);
    let mut lines = wrap(key.doc, columns);
    lines.extend(wrap(&format!("Takes {}.", key.kind.expected()), columns));
    if let Kind::Choice(choices) = key.kind {
        for choice in choices() {
            let help = choice.get_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            lines.push(format!("- {}: {help}.", choice.get_name()));
        }
    }
    if key.changes_at_run_time() {
        lines.push("Takes effect while hapax runs, for open connections too.".to_owned());
    }
    lines.push(format!("--{}, {}", key.flag, key.variable()));
    lines
}

/// Writes the line that a section begins with; gives what its own lines begin
/// with. A section within another one stands right behind that one's keys.
fn head(text: &mut String, section: &str) -> String {
    if section.is_empty() {
        return String::new();
    }
    let depth = section.matches('.').count();
    let name = section.rsplit('.').next().unwrap_or(section);
    let _ = writeln!(text, "{}{name}:", "  ".repeat(depth));
    "  ".repeat(depth + 1)
}

/// Walks a list section by section, in the order in which they begin, those
/// within another one right after it.
fn by_section<T: Copy>(
    list: &[T],
    key_of: impl Fn(T) -> &'static Key,
    mut show: impl FnMut(&str, &[T]),
) {
    let mut sections: Vec<&str> = Vec::new();
    for &item in list {
        let section = key_of(item).place().0;
        if !sections.contains(&section) {
            let outer = section.split('.').next().unwrap_or(section);
            let at = sections
                .iter()
                .rposition(|other| other.split('.').next() == Some(outer));
            sections.insert(at.map_or(sections.len(), |at| at + 1), section);
        }
    }
    for section in sections {
        let of_section = list.iter().copied();
        let of_section = of_section.filter(|item| key_of(*item).place().0 == section);
        show(section, &of_section.collect::<Vec<_>>());
    }
}

/// A file's name may have a line break in it, and a comment may not.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const COLUMNS: usize = 96;
const PREAMBLE: &str = "\
# Every configuration key of hapax with its default.
#
#   hapax run --config hapax.yaml
#
# A flag wins over its environment variable, that over this file, and the file over the default.
# An empty variable is as one that is not set. A list or a map may also be written as its flag takes
# it, in one text: bootstrap: kafka-0:9092,kafka-1:9092. Unknown keys are errors.
#
#   hapax config print --origins    what holds, and who says so
#   hapax config schema             a JSON Schema of this file, for editors and CI
#
# This file is generated from the table in src/config/keys.rs; a test holds them equal.
";
