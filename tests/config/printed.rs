//! What is printed can be fed back, and `config/hapax.yaml` is the table.

use std::{env, fs};

use hapax::config::document;
use hapax::config::keys::KEYS;

use crate::support::{File, hapax, samples, told};

/// Every key set by a flag, to the n-th of its samples.
fn all_flags(n: usize) -> Vec<String> {
    let flag = |key: &hapax::config::keys::Key| format!("--{}={}", key.flag, samples(key)[n].0);
    KEYS.iter().map(flag).collect()
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    for n in 0..3 {
        let mut first = hapax(&["config", "print"]);
        let (_, printed, errors) = told(first.args(all_flags(n)));
        assert!(!printed.is_empty(), "{errors}");
        let file = File::new(&printed);
        let (_, again, _) = told(&mut hapax(&["config", "print", "-c", file.name()]));
        assert_eq!(again, printed);
        // Comments change nothing.
        let mut first = hapax(&["config", "print", "--origins"]);
        let (_, origins, _) = told(first.args(all_flags(n)));
        assert!(origins.contains("  # flag --workers\n"), "{origins}");
        let file = File::new(&origins);
        let (_, again, _) = told(&mut hapax(&["config", "print", "-c", file.name()]));
        assert_eq!(again, printed);
    }
}

#[test]
fn what_cannot_run_is_printed_with_what_is_wrong() {
    let (code, printed, errors) = told(&mut hapax(&["config", "print"]));
    assert_eq!(code, 78);
    assert!(printed.contains("  bootstrap: []\n"), "{printed}");
    assert!(errors.contains("no upstream"), "{errors}");
    let (code, printed, errors) = told(&mut hapax(&["config", "print", "--upstream=a:1"]));
    assert_eq!((code, &*errors), (0, ""));
    assert!(printed.contains("  bootstrap: [a:1]\n"), "{printed}");
}

#[test]
fn the_default_file_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/hapax.yaml");
    let expected = document::commented_default();
    if env::var_os("UPDATE_CONFIG").is_some() {
        fs::write(path, &expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap();
    assert!(
        found == expected,
        "config/hapax.yaml is not what the table says: UPDATE_CONFIG=1 cargo test --test config"
    );
    // It sets every key, and each to its default.
    let (_, defaults, _) = told(&mut hapax(&["config", "print"]));
    let (_, of_file, _) = told(&mut hapax(&["config", "print", "-c", path]));
    assert_eq!(of_file, defaults);
    let (_, origins, _) = told(&mut hapax(&["config", "print", "--origins", "-c", path]));
    assert_eq!(origins.matches("hapax.yaml:").count(), KEYS.len());
    for key in KEYS {
        for named in [format!("--{}", key.flag), key.variable()] {
            assert!(found.contains(&named), "{named}");
        }
    }
    assert!(found.lines().all(|line| line.len() <= 100), "{found}");
}
