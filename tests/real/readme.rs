//! Every command of the README, in its order, as a reader would type it: with
//! a Kafka on 9092 and the hapax that `cargo install` made.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::cluster::{Cluster, Options};
use crate::raw::{Connection, batch};
use crate::tools::{installed, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_command_does_what_it_is_there_for() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    let commands = commands(&readme);
    assert!(commands.len() > 20, "the commands are not where they were");
    let _kafka = Cluster::start(Options {
        first_port: Some(9092),
        ..Options::default()
    });
    let reader = Reader::new();
    let mut running: Option<Running> = None;
    for command in commands {
        eprintln!("$ {command}");
        match Kind::of(command) {
            Kind::Elsewhere => {}
            Kind::Ends => {
                let said = reader.run(command);
                if command.ends_with(" dev --once") {
                    assert!(
                        readme.contains(&said),
                        "the README shows another demo: {said}"
                    );
                }
            }
            Kind::Serves => {
                // The next one wants the same ports.
                drop(running.take());
                let hapax = reader.start(command);
                hapax.wait_for_line("clients are welcome");
                running = Some(hapax);
            }
            Kind::Follows => {
                let follower = reader.start(command);
                send_twice();
                follower.wait_for_line("duplicate_absorbed");
            }
        }
    }
}

/// What becomes of a command.
enum Kind {
    /// It ends, with 0.
    Ends,
    /// It serves until it is told to end.
    Serves,
    /// It shows what happens.
    Follows,
    /// `tests/run` has run it before this test: it is a stage, or itself.
    Elsewhere,
}

impl Kind {
    fn of(command: &str) -> Self {
        if command == "tests/run" || command.starts_with("cargo install ") {
            Self::Elsewhere
        } else if command.starts_with("hapax run ") && !command.contains("--help") {
            Self::Serves
        } else if command.contains("--follow") {
            Self::Follows
        } else {
            Self::Ends
        }
    }
}

/// The lines of all blocks marked `sh`.
fn commands(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.flat_map(str::lines).collect()
}

/// A retry of an acknowledged batch.
fn send_twice() {
    let mut client = Connection::open("127.0.0.1:19092");
    client.create_topic("twice", 1, 1, &[]);
    let batch = batch(client.init_producer_id(), 0, 1_700_000_000_000, "0");
    let first = client.produce("twice", &batch);
    assert_eq!(first.error_code, 0);
    assert_eq!(client.produce("twice", &batch), first);
}

/// Somebody with a shell: an own folder, and the programs of the README.
struct Reader {
    folder: tempfile::TempDir,
    path: String,
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).expect("a folder");
        let producer = programs.join("kafka-console-producer.sh");
        let jars = installed("kafka-libs", "kafka");
        let class = "org.apache.kafka.tools.ConsoleProducer";
        let script = format!(
            "#!/bin/sh\nexec java -Xmx256m -cp '{}/*' {class} \"$@\"\n",
            jars.display()
        );
        fs::write(&producer, script).expect("a script");
        fs::set_permissions(&producer, fs::Permissions::from_mode(0o755)).expect("a script");
        let hapax = installed("cargo/bin/hapax", "hapax");
        let hapax = hapax.parent().expect("its folder").display();
        let path = std::env::var("PATH").expect("a PATH");
        let path = format!("{hapax}:{}:{path}", programs.display());
        Self { folder, path }
    }

    fn shell(&self, command: &str) -> Command {
        // A test in the background may have been started deaf to Ctrl-C, and
        // what it starts would be.
        let mut shell = Command::new("env");
        // cargo wants the checkout; what is written belongs elsewhere.
        let folder = if command.starts_with("cargo ") {
            root().to_owned()
        } else {
            self.folder.path().to_owned()
        };
        // A signal must reach the command itself.
        let exec = if command.contains('|') { "" } else { "exec " };
        shell
            .args(["--default-signal=INT", "bash", "-o", "pipefail", "-c"])
            .arg(format!("{exec}{command}"))
            .current_dir(folder)
            .env("PATH", &self.path)
            .stdin(Stdio::null());
        shell
    }

    /// Returns what it printed.
    fn run(&self, command: &str) -> String {
        let done = self.shell(command).output().expect("bash runs");
        let said = String::from_utf8_lossy(&done.stdout);
        let complained = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "{command}: {}\n{said}\n{complained}",
            done.status
        );
        said.into_owned()
    }

    fn start(&self, command: &str) -> Running {
        let output = tempfile::NamedTempFile::new_in(&self.folder).expect("a file");
        let file = output.reopen().expect("a file");
        let child = self
            .shell(command)
            .stdout(file.try_clone().expect("a file"))
            .stderr(file)
            .spawn()
            .expect("bash runs");
        Running { child, output }
    }
}

/// A command that does not end by itself.
struct Running {
    child: Child,
    output: tempfile::NamedTempFile,
}

impl Running {
    fn wait_for_line(&self, part: &str) {
        wait_for(part, PATIENCE, || {
            let output = self.output.reopen().expect("a file");
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .find(|line| line.contains(part))
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let ended = self.child.wait();
        let ended = ended.map(|status| status.success() || status.code().is_none());
        if !std::thread::panicking() {
            assert!(matches!(ended, Ok(true)), "Ctrl-C did not end it well");
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
