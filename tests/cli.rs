//! The binary as a user meets it: exit codes, what it says where something is
//! wrong, the commands that ask a running hapax, completion and manual page.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

use clap::CommandFactory;
use hapax::cli::Cli;
use hapax::config::keys::KEYS;
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

/// On free ports, before an upstream that is not there.
fn run() -> String {
    format!(
        "run --upstream 127.0.0.1:9 --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
         --broker-ports {} --log-format json",
        broker_port()
    )
}

/// A range of one port that is free.
fn broker_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    format!("{port}-{port}")
}

/// A running hapax, ended when it is dropped.
struct Running {
    process: Child,
    admin: String,
}

impl Running {
    fn start() -> Self {
        Self::of(&mut hapax(&run()))
    }

    fn of(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
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

impl Running {
    /// How it ended, once it has.
    fn ended(mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
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
    check(
        "run",
        64,
        "--upstream, HAPAX_UPSTREAM, or upstream.bootstrap",
    );
    check("run --upstream kafka", 64, "`kafka` has no port");
    check("run --upstream a:1 --sequence-ttl 5", 64, "`5` is no time");
    check("fly", 64, "unrecognized subcommand");
    check("--help", 0, "Run the proxy");
    check("run --help", 0, "HAPAX_SEQUENCE_TTL");
    check("--version", 0, env!("CARGO_PKG_VERSION"));
    check("config", 64, "Usage:");
    check("completion ksh", 64, "possible values: bash");
}

#[test]
fn a_mistyped_variable_is_named_where_its_value_is_missing() {
    let output = hapax("run").env("HAPAX_UPSTRAEM", "a:1").output().unwrap();
    expect(&output, 64, "no upstream");
    expect(&output, 64, "did you mean HAPAX_UPSTREAM?");
}

#[test]
fn an_output_that_takes_no_more_is_an_error() {
    for arguments in [
        "config print --upstream a:1",
        "config schema",
        "check --upstream a:1",
        "explain 45",
        "completion bash",
        "man",
        "version",
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = hapax(arguments).stdout(full).output().unwrap();
        expect(&output, 1, "cannot print: No space left");
    }
}

#[test]
fn every_descriptor_that_the_system_gives_is_used() {
    let program = env!("CARGO_BIN_EXE_hapax");
    let limited = |limit: &str| {
        let mut shell = Command::new("bash");
        shell.args([
            "-c",
            &format!("ulimit {limit} 300; exec {program} {}", run()),
        ]);
        shell
    };
    let hapax = Running::of(&mut limited("-Sn"));
    let limits = format!("/proc/{}/limits", hapax.process.id());
    let limits = std::fs::read_to_string(limits).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut files = files.unwrap().split_whitespace().skip(3);
    assert_eq!(files.next(), files.next(), "{limits}");

    let mut hapax = limited("-n").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(hapax.stderr.take().unwrap()).lines();
    let short = lines.find(|line| line.as_ref().unwrap().contains("file descriptors"));
    assert!(short.unwrap().unwrap().contains("\"descriptors\":300"));
    hapax.kill().unwrap();
    hapax.wait().unwrap();
}

/// As many containers run it: some uid, a root that is read only, and nothing
/// but `HAPAX_` variables. A file that it wrote to would kill it (`ulimit -f`).
#[test]
fn any_user_may_run_it_from_its_variables_where_nothing_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hapax");
    std::fs::copy(env!("CARGO_BIN_EXE_hapax"), &program).unwrap();
    for path in [folder.path(), &*program] {
        std::fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
    }
    let mut command = Command::new("bash");
    let run = format!("ulimit -f 0; exec {} run", program.display());
    command
        .args(["-c", &run])
        .env_clear()
        .current_dir(folder.path())
        .envs([
            ("HAPAX_UPSTREAM", "127.0.0.1:9"),
            ("HAPAX_LISTEN", "127.0.0.1:0"),
            ("HAPAX_BROKER_PORTS", &broker_port()),
            ("HAPAX_ADMIN_LISTEN", "127.0.0.1:0"),
            ("HAPAX_LOG_FORMAT", "json"),
            // What other programs read.
            ("RUST_LOG", "trace"),
            ("HOME", "/nowhere"),
            ("TMPDIR", "/nowhere"),
        ]);
    if rustix::process::geteuid().is_root() {
        command.uid(54_321).gid(54_321);
    }
    let running = Running::of(&mut command);
    let status = format!("/proc/{}/status", running.process.id());
    let status = std::fs::read_to_string(status).unwrap();
    let mut uids = status.lines().filter_map(|line| line.strip_prefix("Uid:"));
    assert!(
        !uids
            .next()
            .unwrap()
            .split_whitespace()
            .any(|uid| uid == "0"),
        "{status}"
    );
    let admin = &running.admin;
    check(&format!("wait --max 20s --admin {admin}"), 0, "");
    check(&format!("log-level --admin {admin}"), 0, "info");
    check(
        &format!("drain --max 20s --admin {admin}"),
        0,
        "connections open: 0",
    );
    assert_eq!(running.ended(), Some(0));
}

/// The kernel ignores signals to PID 1 that it does not handle itself.
#[test]
fn as_pid_1_it_reads_again_on_sighup_and_drains_on_sigterm() {
    let program = env!("CARGO_BIN_EXE_hapax");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", program]);
    command.env_clear().args(run().split_whitespace());
    let running = Running::of(&mut command);
    let unshare = running.process.id();
    let children = format!("/proc/{unshare}/task/{unshare}/children");
    let pid = std::fs::read_to_string(children).unwrap().trim().to_owned();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut pids = status
        .lines()
        .filter_map(|line| line.strip_prefix("NSpid:"));
    assert!(pids.next().unwrap().ends_with("\t1"), "{status}");
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    };
    signal("-HUP");
    check(&format!("wait --max 20s --admin {}", running.admin), 0, "");
    signal("-TERM");
    assert_eq!(running.ended(), Some(0));
}

#[test]
fn explain_of_nothing_is_the_list() {
    let output = hapax("explain").arg("").output().unwrap();
    expect(&output, 0, "Errors of the protocol");
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
fn an_error_in_a_variable_names_it_and_exits_78() {
    for (variable, value, said) in [
        ("HAPAX_SEQUENCE_SHIELD45", "perhaps", "`perhaps` is neither"),
        ("HAPAX_SEQUENCE_TTL", "5", "`5` is no time"),
        ("HAPAX_UPSTREAM", "a:1,b", "`b` has no port"),
        ("HAPAX_MODE", "absorbs", "did you mean absorb?"),
        (
            "HAPAX_WORKERS",
            "1025",
            "workers is 1025 (environment HAPAX_WORKERS)",
        ),
        (
            "HAPAX_CONFIG",
            "/no/such/file",
            "/no/such/file: the configuration file cannot be read",
        ),
    ] {
        let output = hapax("run").env(variable, value).output().unwrap();
        expect(&output, 78, said);
        if variable != "HAPAX_CONFIG" {
            expect(&output, 78, variable);
        }
    }
    let own = hapax("run")
        .env("HAPAX_UPSTREAM", "127.0.0.1:19092")
        .output();
    expect(
        &own.unwrap(),
        78,
        "is hapax itself: give the address of the cluster",
    );
}

#[test]
fn a_variable_of_another_command_is_named_too_unless_its_flag_is_typed() {
    let asked = |arguments| {
        let mut command = hapax(arguments);
        command.env("HAPAX_ADMIN", "nowhere").output().unwrap()
    };
    expect(&asked("producers"), 78, "the value is that of HAPAX_ADMIN");
    let typed = asked("producers --admin nowhere");
    expect(&typed, 64, "`nowhere` has no port");
    assert!(!String::from_utf8_lossy(&typed.stderr).contains("HAPAX_ADMIN"));
}

#[test]
fn an_empty_variable_is_as_one_that_is_not_set_in_every_command() {
    for (command, variable) in [
        ("producers", "HAPAX_ADMIN"),
        ("events", "HAPAX_ADMIN"),
        ("wait --max 0", "HAPAX_ADMIN"),
        ("dev", "HAPAX_LISTEN"),
        ("dev", "HAPAX_ADMIN_LISTEN"),
        ("dev", "HAPAX_LOG_LEVEL"),
    ] {
        // Where dev refuses to run, its values have been read.
        let kubernetes = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        let output = hapax(command).envs([(variable, ""), kubernetes]).output();
        let error = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(!error.contains("invalid value"), "{variable}: {error}");
        if command == "dev" {
            assert!(error.contains("not for Kubernetes"), "{error}");
        }
    }
}

#[test]
fn an_empty_variable_is_as_one_that_is_not_set() {
    let output = hapax("config print --origins --upstream a:1")
        .env("HAPAX_MODE", "")
        .env("HAPAX_CONFIG", "")
        .output()
        .unwrap();
    expect(&output, 0, "mode: absorb  # default");
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
    expect(
        &output,
        78,
        r#""name":"HAPAX_UPSTREAMS","nearest":"HAPAX_UPSTREAM""#,
    );
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        text.matches("unknown environment variable").count(),
        1,
        "{text}"
    );
}

#[test]
fn config_print_warns_of_an_unknown_variable_too() {
    let output = hapax("config print --upstream a:1")
        .env("HAPAX_LOGLEVEL", "debug")
        .env("HAPAX_SERVICE_HOST", "10.0.0.1")
        .output()
        .unwrap();
    expect(&output, 0, "bootstrap: [a:1]");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "hapax: warning: HAPAX_LOGLEVEL is no variable of hapax: did you mean HAPAX_LOG_LEVEL?\n"
    );
}

#[test]
fn nobody_at_the_admin_address_is_one_line_and_exit_1() {
    for command in [
        "producers",
        "events",
        "events --follow",
        "drain",
        "reload",
        "log-level",
        "log-level debug",
    ] {
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
    check(&format!("log-level --admin {admin}"), 0, "info");
    check(&format!("log-level warn --admin {admin}"), 0, "warn");
    check(&format!("log-level --admin {admin}"), 0, "warn");
    check(&format!("reload --admin {admin}"), 0, "nothing changed");
    check("log-level loud", 64, "`loud`");
    check("version", 0, "hapax 0");
    check("version --json", 0, r#""revision":"#);
}

/// Every flag that some command has.
fn flags() -> Vec<String> {
    fn of(command: &clap::Command, found: &mut Vec<String>) {
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        found.extend(flags.map(str::to_owned));
        command.get_subcommands().for_each(|own| of(own, found));
    }
    let mut found = Vec::new();
    let mut command = Cli::command();
    command.build();
    of(&command, &mut found);
    assert!(found.len() > KEYS.len());
    found
}

/// Gives text to a command and wants it content and silent.
fn feed(program: &str, arguments: &[&str], text: &[u8]) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error} (tests/run install)"));
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&text));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && error.is_empty(),
        "{program}: {error}"
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_know_every_flag() {
    for shell in ["bash", "zsh", "fish"] {
        let output = hapax(&format!("completion {shell}")).output().unwrap();
        expect(&output, 0, "hapax");
        let script = String::from_utf8(output.stdout).unwrap();
        for flag in flags() {
            // Fish writes `-l flag`.
            let known =
                script.contains(&format!("--{flag}")) || script.contains(&format!("-l {flag} "));
            assert!(known, "{shell}: {flag}");
        }
    }
}

#[test]
fn bash_loads_its_completion_and_completes() {
    let script = hapax("completion bash").output().unwrap().stdout;
    let typed = "\nCOMP_WORDS=(hapax run --sequence-w); COMP_CWORD=2; \
                 _hapax hapax --sequence-w run; printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    let script = [&script, typed.as_bytes()].concat();
    let completed = feed("bash", &["--norc", "-eu"], &script);
    assert_eq!(completed, "--sequence-window-batches\n");
}

#[test]
fn the_manual_page_renders_and_names_every_flag() {
    let page = hapax("man").output().unwrap().stdout;
    // Its style is clap's; errors are ours.
    let warnings = feed("mandoc", &["-T", "lint", "-W", "error"], &page);
    assert_eq!(warnings, "");
    let shown = feed("mandoc", &["-T", "utf8", "-O", "width=200"], &page);
    // Bold is struck over.
    let mut plain = String::new();
    for c in shown.chars() {
        match c {
            '\u{8}' => drop(plain.pop()),
            c => plain.push(c),
        }
    }
    for flag in flags() {
        assert!(plain.contains(&format!("--{flag}")), "{flag}: {plain}");
    }
    for key in KEYS {
        assert!(plain.contains(&key.variable()), "{}", key.path);
    }
    assert!(plain.contains("HOST:PORT,..."));
}
