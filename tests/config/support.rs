//! A binary to run in an environment of its own, and values for every key.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use hapax::config::keys::{Key, Kind};

/// The binary, with no environment but what the test gives.
pub fn hapax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.env_clear().args(arguments);
    command
}

/// What a command writes and how it exits.
pub fn told(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A folder with one file in it.
pub struct File {
    _folder: tempfile::TempDir,
    /// Where the file is.
    pub path: PathBuf,
}

impl File {
    /// A file with this in it.
    pub fn new(content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hapax.yaml");
        fs::write(&path, content).unwrap();
        Self {
            _folder: folder,
            path,
        }
    }

    /// Its path as an argument.
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Values and origins by path, read from what `config print --origins` wrote.
pub fn read_printed(text: &str) -> BTreeMap<String, (String, String)> {
    let mut sections: Vec<&str> = Vec::new();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let line_text = line.trim_start();
        sections.truncate((line.len() - line_text.len()) / 2);
        if let Some(name) = line_text.strip_suffix(':') {
            sections.push(name);
            continue;
        }
        let (name, rest) = line.split_once(": ").unwrap();
        let (value, origin) = rest.split_once("  # ").unwrap();
        let path = [&*sections, &[name.trim_start()]].concat().join(".");
        let value = (value.to_owned(), origin.to_owned());
        assert!(found.insert(path, value).is_none(), "{line}");
    }
    found
}

/// A value of a key: as it is typed, and as the file has it.
pub type Sample = (&'static str, &'static str);

/// Values for file, environment and flag. Each differs from the one before it,
/// and the first from the default.
pub fn samples(key: &Key) -> [Sample; 3] {
    match &key.kind {
        Kind::Servers => [
            ("f-1:1,f-2:2", "[f-1:1, f-2:2]"),
            ("[::1]:9092", "[\"[::1]:9092\"]"),
            ("g:3", "[g:3]"),
        ],
        Kind::Mappings => [
            ("a:1=b:2", "{a:1: b:2}"),
            ("a=b,c=d", "{a: b, c: d}"),
            ("x=10.0.0.1", "{x: 10.0.0.1}"),
        ],
        Kind::Listen => [
            ("0.0.0.0:17001", "0.0.0.0:17001"),
            ("[::1]:17002", "\"[::1]:17002\""),
            ("127.0.0.9:17003", "127.0.0.9:17003"),
        ],
        Kind::Ports => [
            ("18001-18009", "18001-18009"),
            ("18011-18019", "18011-18019"),
            ("18021-18029", "18021-18029"),
        ],
        Kind::Host => [
            ("file.internal", "file.internal"),
            ("null", "\"null\""),
            ("flag.internal", "flag.internal"),
        ],
        Kind::Text => [
            ("of the file", "\"of the file\""),
            ("null", "\"null\""),
            ("of the flag", "\"of the flag\""),
        ],
        Kind::Directory => [
            ("file/state", "file/state"),
            ("/var/lib/hapax", "\"/var/lib/hapax\""),
            ("a b", "\"a b\""),
        ],
        Kind::File => [
            ("file/tls.pem", "file/tls.pem"),
            ("/etc/hapax/tls.pem", "\"/etc/hapax/tls.pem\""),
            ("a b.pem", "\"a b.pem\""),
        ],
        Kind::Slots => [
            ("7=19107", "{7: 19107}"),
            ("10=19110,9=19109", "{9: 19109, 10: 19110}"),
            ("8=19108", "{8: 19108}"),
        ],
        Kind::Policies => [
            (
                "payments.*=idempotence+acks_all",
                "[{topics: [\"payments.*\"], require: [idempotence, acks_all]}]",
            ),
            (
                "*+!logs=acks_all,audit=transactional",
                "[{topics: [\"*\", \"!logs\"], require: [acks_all]}, {topics: [audit], require: [transactional]}]",
            ),
            (
                "ledger-?=transactional",
                "[{topics: [\"ledger-?\"], require: [transactional]}]",
            ),
        ],
        Kind::Time | Kind::Wait => [("61s", "61s"), ("120s", "2m"), ("1500ms", "1500ms")],
        Kind::Count(_) => [("7", "7"), ("8", "8"), ("9", "9")],
        Kind::Bytes(_) => [("4097", "4097"), ("4098", "4098"), ("4099", "4099")],
        Kind::Switch if key.default == "true" => {
            [("false", "false"), ("on", "true"), ("no", "false")]
        }
        Kind::Switch => [("true", "true"), ("off", "false"), ("yes", "true")],
        Kind::Choice(choices) => {
            let choices = choices();
            let names = choices.iter().map(|choice| {
                let name = choice.get_name().to_owned();
                &*String::leak(name)
            });
            let mut others = names.filter(|name| *name != key.default).cycle();
            let first = others.next().unwrap();
            let third = others.next().unwrap();
            [(first, first), (key.default, key.default), (third, third)]
        }
        Kind::Choices(_) => [
            ("PLAIN", "[PLAIN]"),
            ("SCRAM-SHA-512,PLAIN", "[SCRAM-SHA-512, PLAIN]"),
            ("SCRAM-SHA-256", "[SCRAM-SHA-256]"),
        ],
        Kind::Level => [
            ("debug", "debug"),
            ("warn,hapax::session=trace", "\"warn,hapax::session=trace\""),
            ("error", "error"),
        ],
    }
}

/// A file that sets one key.
pub fn file_of(key: &Key, yaml: &str) -> File {
    let (section, name) = key.place();
    File::new(match section {
        "" => format!("# a comment\n{name}: {yaml}\n"),
        section => {
            let mut text = String::new();
            let mut indent = String::new();
            for name in section.split('.') {
                text += &format!("{indent}{name}:\n");
                indent += "  ";
            }
            text + &format!("{indent}{name}: {yaml}\n")
        }
    })
}
