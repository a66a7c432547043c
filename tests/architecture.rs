//! The direction of `use` between modules, and what pure modules may not touch.

#![expect(
    clippy::unwrap_used,
    reason = "a source that cannot be read must fail the test"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Which modules each module may use. Nothing points up.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["hapax"]),
    ("lib", &["listen"]),
    (
        "cli",
        &["config", "explain", "metrics", "scram", "snippet", "users"],
    ),
    ("config", &["ids", "memory", "policy"]),
    ("logging", &["config"]),
    ("ids", &[]),
    ("memory", &[]),
    ("policy", &[]),
    ("ports", &[]),
    ("window", &["ids"]),
    ("wire", &["ids"]),
    ("ledger", &["ids", "window"]),
    ("metrics", &["ids"]),
    ("explain", &[]),
    ("exposure", &[]),
    ("snippet", &["config"]),
    ("events", &["explain", "ids", "metrics"]),
    // What the proxy is tried against has none of its code: neither how it
    // reads bytes, nor what it decides about them.
    ("dev", &["cli", "config", "listen", "metrics"]),
    ("timers", &[]),
    ("socket", &[]),
    ("tls", &["config", "exposure"]),
    ("scram", &[]),
    ("sasl", &["config", "scram", "timers", "tls"]),
    ("users", &["config", "exposure", "scram", "wire"]),
    (
        "upstream",
        &["config", "ids", "sasl", "socket", "timers", "tls", "wire"],
    ),
    (
        "session",
        &[
            "config", "events", "ids", "ledger", "memory", "metrics", "policy", "sasl", "socket",
            "timers", "tls", "upstream", "users", "window", "wire",
        ],
    ),
    ("workers", &["metrics", "session", "timers"]),
    (
        "snapshot",
        &["ids", "ledger", "metrics", "session", "window"],
    ),
    (
        "admin",
        &[
            "cli", "config", "events", "ids", "logging", "memory", "metrics", "reload", "session",
            "snapshot", "window", "workers",
        ],
    ),
    ("drain", &["config", "metrics", "session", "workers"]),
    (
        "reload",
        &["config", "logging", "metrics", "session", "window"],
    ),
    (
        "check",
        &[
            "admin", "cli", "config", "ids", "ports", "sasl", "snapshot", "tls", "upstream",
            "users", "wire",
        ],
    ),
    (
        "listen",
        &[
            "admin", "config", "drain", "events", "ledger", "memory", "metrics", "ports", "reload",
            "sasl", "session", "snapshot", "socket", "tls", "upstream", "users", "window",
            "workers",
        ],
    ),
];

/// Sources that decide without a clock, a socket, a lock, chance or a log.
const PURE: &[&str] = &[
    "src/ids.rs",
    "src/ids/",
    "src/policy.rs",
    "src/scram.rs",
    "src/window.rs",
    "src/window/",
    "src/wire.rs",
    "src/wire/",
    "src/session/moment.rs",
    "src/session/pipeline.rs",
    "src/session/identity.rs",
    "src/session/scan.rs",
    "src/snapshot/format.rs",
    "src/users/",
];
const IMPURE: &[&str] = &[
    "tokio",
    "tracing",
    "prometheus",
    "dashmap",
    "Instant::now",
    "SystemTime",
    "Mutex",
    "RwLock",
    "Atomic",
    "std::net",
    "std::fs",
    "std::io",
    "std::env",
    "crate::metrics",
    "RandomState",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every source below `src`, by its path from the root, without its tests and
/// comments.
fn read_all() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    sources(&root.join("src"), &mut found);
    assert!(found.len() > 30, "the sources are not where they were");
    found
        .into_iter()
        .filter(|path| path.file_name().is_none_or(|name| name != "tests.rs"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            (name.to_owned(), lines.collect::<Vec<_>>().join("\n"))
        })
        .collect()
}

/// The module that a path or a `crate::` path belongs to.
fn module_of(path: &str) -> &str {
    let name = path.trim_start_matches("src/");
    name.split(['/', '.']).next().unwrap()
}

/// The modules that a source names by `crate::` or, in main, by `hapax::`.
fn used(code: &str, module: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        assert!(
            !name.is_empty(),
            "write one use a module, so that this test can read it"
        );
        if name != module {
            used.insert(name);
        }
    }
    used
}

#[test]
fn nothing_points_up() {
    for (path, code) in read_all() {
        let module = module_of(&path);
        let allowed = MAY_USE
            .iter()
            .find(|(name, _)| *name == module)
            .unwrap_or_else(|| panic!("{path}: give its module a place in MAY_USE"))
            .1;
        for name in used(&code, module) {
            assert!(allowed.contains(&name.as_str()), "{path} uses {name}");
        }
    }
}

#[test]
fn pure_modules_touch_nothing() {
    let mut seen = 0;
    for (path, code) in read_all() {
        if !PURE.iter().any(|pure| path.starts_with(pure)) {
            continue;
        }
        seen += 1;
        for word in IMPURE {
            let found = code.lines().find(|line| line.contains(word));
            assert!(
                found.is_none(),
                "{path} is pure and says: {}",
                found.unwrap_or_default()
            );
        }
    }
    assert!(seen >= 15, "the pure modules are not where they were");
}

/// What a reload changes is not read from what the process began with.
#[test]
fn what_can_change_is_read_from_what_holds_now() {
    let sections = ["limits", "timeouts", "policies", "drain", "log", "metrics"];
    for (path, code) in read_all() {
        let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
        // `self` is what all sessions share, in one source.
        let owner = match &*path {
            "src/session/shared.rs" => "self",
            _ => "shared",
        };
        for section in sections {
            let old = format!("{owner}.config.{section}");
            assert!(!code.contains(&old), "{path} reads {old}");
        }
    }
}
