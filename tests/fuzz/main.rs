//! The short run of the fuzz targets, without an engine: the corpora that are kept, messages that Kafka and the tables
//! make, and as many changes of both as fit into a minute. The same every time; `tests/run fuzz` goes on from there.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    unreachable_pub,
    missing_docs,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

mod java;
mod mutate;
mod seeds;
mod targets;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

use mutate::Mutator;
use peak_alloc::PeakAlloc;
use targets::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The inputs that are kept for a target: hexadecimal, one a line.
fn corpus(target: &Target) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus");
    PathBuf::from(folder).join(target.name)
}

fn kept(target: &Target) -> Vec<Vec<u8>> {
    let path = corpus(target);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(unhex).collect()
}

pub fn unhex(line: &str) -> Vec<u8> {
    let pairs = line.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Runs one input, and says which it was where it fails: that line, added to the corpus, is its regression test.
fn run(target: &Target, input: &[u8]) {
    let ran = catch_unwind(AssertUnwindSafe(|| target.run(input, &ALLOCATOR)));
    if let Err(panic) = ran {
        eprintln!("target {} fails with {}", target.name, hex(input));
        resume_unwind(panic);
    }
}

/// Memory is counted for the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that is kept for a target and like it does no harm. With `HAPAX_TESTS_WRITE` set the seeds are added to the
/// corpus instead, for the engine to choose from.
fn check(name: &str) {
    let _alone = alone();
    let target = Target::of(name).unwrap();
    let seeds = seeds::of(target);
    if env::var_os("HAPAX_TESTS_WRITE").is_some() {
        return add(target, &seeds);
    }
    let mut inputs = kept(target);
    assert!(!inputs.is_empty(), "{name} has no corpus");
    inputs.extend(seeds);
    for input in &inputs {
        run(target, input);
    }
    let mut mutator = Mutator::new(name, target.len_max);
    for _ in 0..target.short {
        run(target, &mutator.next(&inputs));
    }
}

macro_rules! short_runs {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_target_is_run() {
            let run = [$(stringify!($name)),*];
            let all = TARGETS.iter().map(|target| target.name);
            assert_eq!(all.collect::<Vec<_>>(), run);
        }
    };
}

short_runs! {
    frames headers batches sasl login
    produce_request produce_request_valid produce_response produce_response_valid
    addresses addresses_valid coordinators coordinators_valid api_versions api_versions_valid
    log log_valid renumbered
    window snapshot snapshot_sealed
    config_file config_values config_flags
    session session_reading admin_requests admin_answers dev_requests dev_bytes
}

fn add(target: &Target, seeds: &[Vec<u8>]) {
    let path = corpus(target);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut lines: BTreeSet<_> = before.lines().map(str::to_owned).collect();
    lines.extend(
        seeds
            .iter()
            .map(|seed| hex(seed))
            .filter(|line| !line.is_empty()),
    );
    let text: String = lines.into_iter().map(|line| line + "\n").collect();
    fs::write(path, text).unwrap();
}

/// A corpus that nobody runs is a mistake in its name.
#[test]
fn every_corpus_is_of_a_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(Target::of(&name).is_some(), "no target is called {name}");
    }
}

/// The engine is another package with a lock file of its own, in which hapax must have the dependencies that it has here,
/// or `tests/run fuzz` does not build.
#[test]
fn the_engine_is_built_with_what_hapax_is_built_with() {
    let [ours, theirs] = ["Cargo.lock", "tests/fuzz/Cargo.lock"].map(|path| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(path).unwrap()
    });
    let advice = "run `cargo update --workspace` in tests/fuzz";
    let manifest = include_str!("../../Cargo.toml");
    let (_, dependencies) = manifest.split_once("[dependencies]\n").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    let names = dependencies
        .lines()
        .filter_map(|line| line.split_once(" = "));
    let names: BTreeSet<_> = names.map(|(name, _)| name).collect();
    let hapax = packages(&theirs).find(|(name, _, _)| *name == "hapax");
    let (_, _, block) = hapax.unwrap();
    let locked = block.lines().filter_map(|line| line.strip_prefix(" \""));
    let locked = locked.map(|line| line.split(['"', ' ']).next().unwrap());
    assert_eq!(locked.collect::<BTreeSet<_>>(), names, "{advice}");
    let versions: BTreeSet<_> = packages(&ours)
        .map(|(name, version, _)| (name, version))
        .collect();
    for (name, version, _) in packages(&theirs).filter(|(name, ..)| names.contains(name)) {
        assert!(
            versions.contains(&(name, version)),
            "{name} {version}: {advice}"
        );
    }
}

/// The packages of a lock file: name, version, and all that is said of them.
fn packages(lock: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    lock.split("[[package]]").skip(1).map(|block| {
        let mut fields = block.lines().filter_map(|line| line.split_once(" = "));
        let mut field = || fields.next().unwrap().1.trim_matches('"');
        (field(), field(), block)
    })
}
