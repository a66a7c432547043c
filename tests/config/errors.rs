//! Every way in which a file can be wrong: one clear line each, exit 78.

use crate::support::{File, hapax, told};

/// What `hapax run` says about a file, a line an error, without its path.
fn refused(content: &[u8]) -> Vec<String> {
    let file = File::new(content);
    let run = [
        "run",
        "--log-format=json",
        "--upstream=a:1",
        "-c",
        file.name(),
    ];
    let (code, output, errors) = told(&mut hapax(&run));
    assert_eq!((code, &*output), (78, ""), "{errors}");
    let lines = errors.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["message"], "configuration is not valid");
        let error = line["error"].as_str().unwrap();
        error.replace(file.name(), "hapax.yaml")
    });
    lines.collect()
}

fn check(content: impl AsRef<[u8]>, expected: &[&str]) {
    let content = content.as_ref();
    let found = refused(content);
    let shown = String::from_utf8_lossy(&content[..content.len().min(200)]);
    assert_eq!(found.len(), expected.len(), "{shown}: {found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{shown}: {found}");
    }
}

#[test]
fn a_key_that_there_is_not_is_told_with_the_nearest() {
    check(
        "sequence:\n  windowBatchs: 5\n",
        &["hapax.yaml:2: unknown key sequence.windowBatchs: did you mean sequence.windowBatches?"],
    );
    check(
        "log:\n  levle: info\n  colour: true\n",
        &[
            "hapax.yaml:2: unknown key log.levle: did you mean log.level?",
            "hapax.yaml:3: unknown key log.colour: expected one of level, format",
        ],
    );
}

#[test]
fn a_policy_that_is_none_is_told_with_its_line_and_the_way_out() {
    check(
        "policies:\n  - topics: payments.*\n    require: [idempotence, acks]\n  - topics: ^audit$\n    require: acks_all\n  - topic: a\n    require: acks_all\n  - topics: a\n  - topics: a\n    topics: b\n    require: acks_all\n  - [a]\n",
        &[
            "hapax.yaml:3: policies: there is no requirement `acks`: give idempotence, acks_all or transactional; did you mean acks_all?",
            "hapax.yaml:4: policies: `^audit$` is no pattern of topics: write a name in which * stands for anything",
            "hapax.yaml:6: unknown key policies: topic: did you mean topics?",
            "hapax.yaml:8: policies: a policy requires nothing: give idempotence, acks_all or transactional",
            "hapax.yaml:10: policies: topics is here again: it is in line 9 already",
            "hapax.yaml:12: policies is a list: give a list of policies, such as [{topics: payments.*, require: ",
        ],
    );
}

#[test]
fn everything_is_told_at_once_in_the_order_of_the_lines() {
    check(
        "sequence:\n  mode: absorbing\n  ttl: 5\nlimits:\n  connections: 0\n  orphans: [1]\nworkers: 1\nworkers: 2\n",
        &[
            "hapax.yaml:2: sequence.mode: there is no `absorbing`: give observe, absorb or enforce; did you mean absorb?",
            "hapax.yaml:3: sequence.ttl: `5` is no time",
            "hapax.yaml:6: limits.orphans is a list: give a whole number from 0 to 1000000",
            "hapax.yaml:8: workers is here again: it is in line 7 already",
            "limits.connections is 0 (hapax.yaml:5): give a whole number from 1 to 1000000",
        ],
    );
}

#[test]
fn values_that_make_no_sense_together_say_where_they_come_from() {
    check(
        "listen:\n  bootstrap: 127.0.0.1:19100\n",
        &[
            "listen.bootstrap has port 19100, which listen.brokerPorts 19093-19192 contains: move one of them (listen.bootstrap: hapax.yaml:2; listen.brokerPorts: default)",
        ],
    );
}

#[test]
fn what_is_no_configuration_at_all_is_one_line() {
    check("- a\n- b\n", &["hapax.yaml:1: the file is a list"]);
    check(
        "sequence:\n\tmode: observe\n",
        &["hapax.yaml:2: a tab indents this line"],
    );
    check(
        b"workers: 1\nlog: {level: \xff}\n",
        &["hapax.yaml:2: the file is not UTF-8"],
    );
    check("{", &["hapax.yaml:"]);
    check(b"\x7fELF\x02\x01\x01\x00\x00", &["hapax.yaml:1: "]);
    check(
        "workers: 1\n---\nworkers: 2\n",
        &["hapax.yaml:2: a second document begins"],
    );
    let mut laughs = String::from("a0: &a0 [lol, lol]\n");
    for n in 1..30 {
        laughs += &format!("a{n}: &a{n} [*a{m}, *a{m}, *a{m}]\n", m = n - 1);
    }
    check(laughs, &["hapax.yaml:1: anchors and aliases"]);
    check(
        "x".repeat(2 << 20),
        &["hapax.yaml: the configuration file cannot be read: it has more than 1048576 bytes"],
    );
}

#[test]
fn a_file_full_of_mistakes_does_not_fill_the_log() {
    let mistakes: String = (0..500).map(|n| format!("key{n}: value\n")).collect();
    let found = refused(mistakes.as_bytes());
    assert_eq!(found.len(), 21, "{found:#?}");
    assert_eq!(found[20], "hapax.yaml: and 480 more errors");
}

#[test]
fn a_file_that_is_not_there_or_is_none_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.yaml");
    for (path, said) in [
        (missing.to_str().unwrap(), "No such file or directory"),
        (folder.path().to_str().unwrap(), "Is a directory"),
    ] {
        for command in [&["run"][..], &["config", "print"]] {
            let mut hapax = hapax(command);
            let (code, output, errors) = told(hapax.args(["--upstream=a:1", "-c", path]));
            assert_eq!((code, &*output), (78, ""), "{errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
            assert!(errors.contains(path) && errors.contains(said), "{errors}");
        }
    }
}

#[test]
fn a_file_that_sets_nothing_is_no_error() {
    for content in [
        "",
        "# nothing\n",
        "---\n",
        "upstream:\nlog:\n",
        "\u{feff}{}",
    ] {
        let file = File::new(content);
        let print = ["config", "print", "--upstream=a:1", "-c", file.name()];
        let (code, _, errors) = told(&mut hapax(&print));
        assert_eq!((code, &*errors), (0, ""), "{content:?}");
    }
}

#[test]
fn a_file_without_upstream_is_told_what_to_write_and_exits_78() {
    let file = File::new("workers: 1\n");
    let (code, _, errors) = told(&mut hapax(&["run", "-c", file.name()]));
    assert_eq!(code, 78);
    for way in ["--upstream", "HAPAX_UPSTREAM", "upstream.bootstrap"] {
        assert!(errors.contains(way), "{errors}");
    }
}

#[test]
fn the_log_keys_of_a_broken_file_already_count() {
    let file = File::new("log: {format: text}\nworker: 1\n");
    let (code, _, errors) = told(&mut hapax(&["run", "-c", file.name()]));
    assert_eq!(code, 78);
    assert!(
        errors.contains("ERROR") && !errors.contains('{'),
        "{errors}"
    );
    assert!(errors.contains("did you mean workers?"), "{errors}");
}
