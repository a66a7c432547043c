//! Configuration: the file, the values of flags and variables, the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use hapax::cli::{RunArgs, unknown_variables};
use hapax::config::keys::{KEYS, Key};
use hapax::config::settings::{Settings, Sources, settle};
use hapax::config::value::Value;
use hapax::config::{document, file};

/// What stands in a file.
pub fn files(input: &[u8]) {
    let contents = file::parse(input);
    for (line, error) in &contents.errors {
        assert!(*line >= 1, "line {line} of {error}");
        assert!(
            !error.to_string().contains(char::is_control),
            "one line each: {error:?}"
        );
    }
    for (at, (key, ..)) in contents.values.iter().enumerate() {
        let before = &contents.values[..at];
        assert!(
            before.iter().all(|(other, ..)| other.path != key.path),
            "{} twice",
            key.path
        );
    }
    let flags = contents
        .values
        .into_iter()
        .map(|(key, value, _)| (key, value));
    check(flags.collect(), &|_| None);
}

/// Texts of values: a key and its text, in turn from a variable and from a flag.
pub fn values(input: &[u8]) {
    let (mut flags, mut variables) = (Vec::new(), Vec::new());
    for (number, part) in input.split(|byte| *byte == b'\n').enumerate() {
        let Some((first, text)) = part.split_first() else {
            continue;
        };
        let key = &KEYS[usize::from(*first) % KEYS.len()];
        match str::from_utf8(text) {
            Ok(text) if number % 2 == 0 => flags.extend(read(key, text)),
            _ => variables.push((key.variable(), OsString::from_vec(text.to_vec()))),
        }
    }
    let names: Vec<_> = input
        .split(|byte| *byte == b'\n')
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect();
    for unknown in unknown_variables(&names) {
        assert!(unknown.name.starts_with("HAPAX_"), "{unknown:?}");
    }
    flags.dedup_by_key(|(key, _)| key.path);
    check(flags, &|name| {
        let mut given = variables.iter().filter(|(variable, _)| variable == name);
        given.next().map(|(_, value)| value.clone())
    });
}

fn read(key: &'static Key, text: &str) -> Option<(&'static Key, Value)> {
    match key.kind.parse_all(text) {
        Ok(value) => {
            // What is shown of it is what was meant.
            let _ = (value.to_yaml(), value.to_json());
            Some((key, value))
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// The command line of `hapax run`, a word a line. Files are not read.
pub fn command_line(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    match RunArgs::from_flags(text.split('\n')) {
        Ok(args) if !text.contains("-c") => {
            let (settings, _) = args.settle_with(&|_| None);
            check_settings(&settings);
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check(flags: Vec<(&'static Key, Value)>, variable: &dyn Fn(&str) -> Option<OsString>) {
    let (settings, errors) = settle(Sources {
        flags,
        variable,
        file: None,
    });
    for error in errors {
        assert!(!error.to_string().is_empty());
    }
    check_settings(&settings);
}

/// What is printed of a configuration is a file that means the same.
fn check_settings(settings: &Settings) {
    match settings.config() {
        Ok(config) => assert!(!config.upstream.is_empty() && config.workers > 0),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
    let printed = document::effective(settings, true);
    let again = file::parse(printed.as_bytes());
    assert!(again.errors.is_empty(), "{:?} in {printed}", again.errors);
    for setting in settings.iter() {
        let mut read = again
            .values
            .iter()
            .filter(|(key, ..)| key.path == setting.key.path);
        let value = read.next().map(|(_, value, _)| value);
        assert_eq!(
            value,
            Some(&setting.value),
            "{} in {printed}",
            setting.key.path
        );
    }
}
