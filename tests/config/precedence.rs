//! Flag over environment over file over default, for every key of the table.

use std::collections::BTreeMap;

use hapax::config::keys::{KEYS, Key};
use hapax::config::value::Value;

use crate::support::{file_of, hapax, read_printed, samples, told};

/// What `config print --origins` says while a key is set at the first `levels`
/// levels: in a file, in the environment, by a flag.
fn printed(key: &'static Key, levels: usize) -> BTreeMap<String, (String, String)> {
    let [in_file, in_environment, by_flag] = samples(key);
    let file = file_of(key, in_file.1);
    let flag = format!("--{}={}", key.flag, by_flag.0);
    let mut arguments = vec!["config", "print", "--origins"];
    if levels > 0 {
        arguments.extend(["--config", file.name()]);
    }
    if levels > 2 {
        arguments.push(&flag);
    }
    let mut command = hapax(&arguments);
    if levels > 1 {
        command.env(key.variable(), in_environment.0);
    }
    let (_, text, errors) = told(&mut command);
    assert!(!text.is_empty(), "{}: {errors}", key.path);
    read_printed(&text.replace(file.name(), "hapax.yaml"))
}

fn default_of(key: &Key) -> String {
    let value = key.kind.parse_all(key.default).unwrap();
    Value::to_yaml(&value)
}

#[test]
fn the_highest_level_that_sets_a_key_wins_and_is_named() {
    for key in KEYS {
        let [in_file, in_environment, by_flag] = samples(key);
        let (variable, flag) = (key.variable(), key.flag);
        // Behind the line of a comment, or one for each section.
        let line = 1 + key.path.matches('.').count().max(1);
        let expected = [
            (default_of(key), "default".to_owned()),
            (in_file.1.to_owned(), format!("hapax.yaml:{line}")),
            (
                in_environment.1.to_owned(),
                format!("environment {variable}"),
            ),
            (by_flag.1.to_owned(), format!("flag --{flag}")),
        ];
        for (levels, expected) in expected.iter().enumerate() {
            let lower = expected_below(&samples(key), key, levels);
            assert_ne!(Some(&expected.0), lower.as_ref(), "{}", key.path);
            let mut printed = printed(key, levels);
            let found = printed.remove(key.path);
            assert_eq!(found.as_ref(), Some(expected), "{} at {levels}", key.path);
            // And nothing else moved.
            assert_eq!(printed.len(), KEYS.len() - 1);
            for (path, (value, origin)) in printed {
                let other = Key::at(&path).unwrap();
                assert_eq!((value, &*origin), (default_of(other), "default"), "{path}");
            }
        }
    }
}

/// What the level below shows: a level must not look like it by chance.
fn expected_below(
    samples: &[(&'static str, &'static str); 3],
    key: &Key,
    levels: usize,
) -> Option<String> {
    match levels {
        0 => None,
        1 => Some(default_of(key)),
        _ => Some(samples[levels - 2].1.to_owned()),
    }
}

#[test]
fn the_file_may_be_named_by_a_variable_and_a_flag_wins_over_it() {
    let key = Key::at("workers").unwrap();
    let (one, other) = (file_of(key, "3"), file_of(key, "4"));
    let print = ["config", "print", "--upstream=a:1"];
    let named = told(hapax(&print).env("HAPAX_CONFIG", one.name()));
    assert!(named.1.contains("\nworkers: 3\n"), "{named:?}");
    let mut typed = hapax(&print);
    typed
        .args(["-c", other.name()])
        .env("HAPAX_CONFIG", one.name());
    let typed = told(&mut typed);
    assert!(typed.1.contains("\nworkers: 4\n"), "{typed:?}");
}

#[test]
fn every_key_is_a_flag_of_run_and_run_has_no_other() {
    let command = <hapax::cli::Cli as clap::CommandFactory>::command();
    let run = command.find_subcommand("run").unwrap();
    let mut flags: Vec<_> = run
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let mut expected: Vec<_> = KEYS.iter().map(|key| key.flag).chain(["config"]).collect();
    flags.retain(|flag| *flag != "help");
    flags.sort_unstable();
    expected.sort_unstable();
    assert_eq!(flags, expected);
}
