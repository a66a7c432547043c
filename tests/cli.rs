//! The binary as a user meets it: exit codes, precedence, the commands that
//! ask a running hapax.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn hapax(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.env_clear().args(arguments.split_whitespace());
    command
}

fn check(arguments: &str, code: i32, said: &str) {
    let output = hapax(arguments).output().unwrap();
    expect(&output, code, said);
}

fn expect(output: &Output, code: i32, said: &str) {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(said), "{text}");
}

/// A running hapax, ended when it is dropped.
struct Running {
    process: Child,
    admin: String,
}

impl Running {
    fn start() -> Self {
        let mut process = hapax("run --upstream 127.0.0.1:9 --listen 127.0.0.1:0")
            .args(["--admin-listen", "127.0.0.1:0", "--log-format", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let admin = lines.find_map(|line| {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let address = line["address"].as_str()?;
            (line["message"] == "admin listens").then(|| address.to_owned())
        });
        // What it logs from here on must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            admin: admin.unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn usage_errors_exit_64_and_help_exits_0() {
    check("", 64, "Usage:");
    check("run", 64, "--upstream");
    check("run --upstream kafka", 64, "`kafka` has no port");
    check("run --upstream a:1 --sequence-ttl 5", 64, "`5` is no time");
    check("fly", 64, "unrecognized subcommand");
    check("--help", 0, "Run the proxy");
    check("run --help", 0, "HAPAX_SEQUENCE_TTL");
    check("--version", 0, env!("CARGO_PKG_VERSION"));
}

#[test]
fn configuration_errors_exit_78_with_the_value_and_the_way_out() {
    check(
        "run --upstream localhost:19092",
        78,
        "upstream localhost:19092 is hapax itself",
    );
    check(
        "run --upstream a:1 --sequence-window-batches 9999 --log-format text",
        78,
        "sequence.windowBatches is 9999",
    );
}

#[test]
fn a_flag_wins_over_its_environment_variable_and_that_over_the_default() {
    let bad = "1025";
    let variable = "HAPAX_SEQUENCE_WINDOW_BATCHES";
    let run = "run --upstream a:1";
    expect(&hapax(run).env(variable, bad).output().unwrap(), 78, bad);
    let flag = format!("{run} --sequence-window-batches 1026");
    expect(
        &hapax(&flag).env(variable, bad).output().unwrap(),
        78,
        "1026",
    );
    let own = hapax("run")
        .env("HAPAX_UPSTREAM", "127.0.0.1:19092")
        .output();
    expect(&own.unwrap(), 78, "is hapax itself");
    let shield = "HAPAX_SEQUENCE_SHIELD45";
    expect(
        &hapax(run).env(shield, "perhaps").output().unwrap(),
        64,
        "perhaps",
    );
}

#[test]
fn an_unknown_variable_is_a_warning_and_those_of_a_service_are_not() {
    let output = hapax("run --upstream 127.0.0.1:19092")
        .env("HAPAX_UPSTREAMS", "x")
        .env("HAPAX_SERVICE_HOST", "10.0.0.1")
        .env("HAPAX_PORT", "tcp://10.0.0.1:19092")
        .env("HAPAX_PORT_19092_TCP_ADDR", "10.0.0.1")
        .output()
        .unwrap();
    expect(&output, 78, r#""name":"HAPAX_UPSTREAMS""#);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        text.matches("unknown environment variable").count(),
        1,
        "{text}"
    );
}

#[test]
fn nobody_at_the_admin_address_is_one_line_and_exit_1() {
    for command in ["producers", "events", "events --follow"] {
        let output = hapax(&format!("{command} --admin 127.0.0.1:1"))
            .output()
            .unwrap();
        expect(
            &output,
            1,
            "start hapax run, or give its --admin-listen address",
        );
        assert_eq!(
            output.stderr.iter().filter(|byte| **byte == b'\n').count(),
            1
        );
    }
}

#[test]
fn the_commands_ask_a_running_hapax() {
    let running = Running::start();
    let admin = &running.admin;
    check(&format!("producers --admin {admin}"), 0, "PRODUCER  EPOCH");
    let output = hapax(&format!("producers --json --admin {admin}"))
        .output()
        .unwrap();
    expect(&output, 0, "");
    assert!(output.stdout.is_empty());
    check(&format!("events --admin {admin}"), 0, "");
    check("version", 0, "hapax 0");
    check("version --json", 0, r#""revision":"#);
}
