//! The command as a person meets it.

use std::fs::File;
use std::net::{TcpListener, TcpStream};

use crate::process::{Dev, hapax};
use crate::support::await_until;
use crate::support::hapax as support;
use crate::support::hapax::free_range;
use crate::support::raw::{Client, PATIENCE};

/// The numbers of a row of the tally: sent, retried, absorbed, written,
/// duplicates. A dash is no number.
#[track_caller]
fn row(output: &[String], way: &str) -> Vec<Option<u64>> {
    let rows = output.iter().rev();
    let mut rows = rows.filter_map(|line| line.trim().strip_prefix(way));
    let row = rows
        .next()
        .unwrap_or_else(|| panic!("no {way} in {output:#?}"));
    row.split_whitespace()
        .map(|cell| cell.parse().ok())
        .collect()
}

/// Both rows, of which every number must follow from the others.
#[track_caller]
fn check_tally(output: &[String]) -> u64 {
    let (without, with) = (row(output, "without hapax"), row(output, "with hapax"));
    let [
        Some(sent),
        Some(retried),
        Some(absorbed),
        Some(written),
        Some(duplicates),
    ] = with[..]
    else {
        panic!("{with:?}");
    };
    assert!(retried > 0 && sent > retried, "{output:#?}");
    assert_eq!((absorbed, written, duplicates), (retried, sent, 0));
    let [
        same_sent,
        same_retried,
        None,
        Some(written),
        Some(duplicates),
    ] = without[..]
    else {
        panic!("{without:?}");
    };
    assert_eq!((same_sent, same_retried), (Some(sent), Some(retried)));
    assert_eq!(written, sent + duplicates);
    duplicates
}

#[test]
fn once_ends_with_a_tally_whose_numbers_follow_from_each_other() {
    let mut dev = Dev::start("--once");
    dev.line("DEV UPSTREAM: in memory, not Kafka");
    let (output, status) = dev.finish();
    assert_eq!(status.code(), Some(0), "{output:#?}");
    let duplicates = check_tally(&output);
    assert!(duplicates > 0, "without hapax something is written twice");
    assert!(!output.concat().contains('\x1b'), "no colours in a pipe");
}

#[test]
fn the_demo_goes_on_until_ctrl_c_and_ends_with_its_tally() {
    let mut dev = Dev::start("");
    let addresses = dev.addresses();
    dev.line("acknowledgement lost");
    dev.line("absorbed");
    // Somebody's client that stays connected does not hold it up.
    let _idle = TcpStream::connect(&addresses.clients).unwrap();
    dev.interrupt();
    let (output, status) = dev.finish();
    check_tally(&output);
    assert_eq!(status.code(), Some(0));
}

#[test]
fn without_a_demo_it_says_how_to_point_a_client_at_it_and_ends_at_ctrl_c() {
    let mut dev = Dev::start("--no-demo");
    let addresses = dev.addresses();
    for client in ["kafka-console-producer.sh", "kcat", "Python", "Node", "Go"] {
        let line = dev.line(client);
        assert!(line.contains(&addresses.clients), "{line}");
    }
    assert!(dev.line("hapax events").contains(&addresses.admin));
    dev.line("Ctrl-C");
    dev.interrupt();
    let (_, status) = dev.finish();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_reader_who_has_seen_enough_ends_it_without_a_complaint() {
    let mut dev = Dev::start("");
    dev.line("DEV UPSTREAM");
    dev.close_output();
    assert_eq!(dev.ended().code(), Some(0));
}

#[test]
fn an_output_that_takes_no_more_is_an_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = hapax("--once --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0")
        .stdout(full)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot print"), "{error}");
}

#[test]
fn a_connection_for_which_there_is_no_place_is_closed() {
    let mut dev = Dev::start("--no-demo");
    let upstream = dev.addresses().upstream;
    let connect = || Client::connect(&upstream).unwrap();
    // Served, so that each has its place before the next one comes.
    let served: Vec<_> = (0..512)
        .map(|_| {
            let mut client = connect();
            client.api_versions(3).unwrap();
            client
        })
        .collect();
    assert!(connect().is_closed(PATIENCE));
    drop(served);
    await_until("a place to be free again", PATIENCE, || {
        connect().api_versions(3).is_ok()
    });
}

#[track_caller]
fn check_refusal(arguments: &str, variables: &[(&str, &str)], code: i32, said: &[&str]) {
    let output = hapax(arguments)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for text in said {
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn it_does_not_run_in_kubernetes() {
    let variables = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
    let said = ["not for Kubernetes", "hapax run --upstream"];
    for arguments in ["", "--once", "--no-demo"] {
        check_refusal(arguments, &variables, 78, &said);
    }
}

#[test]
fn nobody_else_can_reach_it() {
    for (arguments, said) in [
        ("--listen 0.0.0.0:19092", "--listen 0.0.0.0:19092"),
        ("--listen [::]:19092", "--listen [::]:19092"),
        (
            "--once --admin-listen 192.0.2.1:9180",
            "--admin-listen 192.0.2.1:9180",
        ),
    ] {
        check_refusal(arguments, &[], 78, &[said, "127.0.0.1"]);
    }
    let variables = [("HAPAX_LISTEN", "0.0.0.0:19092")];
    check_refusal("--no-demo", &variables, 78, &["0.0.0.0:19092"]);
}

/// An image sets every address, for `hapax run`.
#[test]
fn an_admin_page_for_every_address_is_for_this_machine_alone() {
    for every in ["[::]:0", "0.0.0.0:0"] {
        let mut dev = Dev::start_at("--no-demo", every);
        let admin = dev.addresses().admin;
        assert!(admin.starts_with("127.0.0.1:"), "{every}: {admin}");
    }
}

#[test]
fn a_taken_port_is_one_line_with_the_flag_that_moves_it() {
    let first = free_range(3);
    for (taken, flag) in [(0, "--listen"), (1, "--listen"), (2, "--admin-listen")] {
        let _taken = TcpListener::bind(("127.0.0.1", first + taken)).unwrap();
        let (listen, admin) = (first, first + 2);
        let arguments =
            format!("--once --listen 127.0.0.1:{listen} --admin-listen 127.0.0.1:{admin}");
        let address = format!("127.0.0.1:{} is taken", first + taken);
        check_refusal(&arguments, &[], 1, &[&address, &format!("{flag} moves it")]);
    }
}

#[test]
fn once_and_no_demo_exclude_each_other() {
    let output = hapax("--once --no-demo").output().unwrap();
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn only_under_dev_a_metric_says_so() {
    let mut dev = Dev::start("--no-demo");
    let admin = dev.addresses().admin;
    let metric = "hapax_dev_upstream_info 1";
    let page = support::page(&admin, "/metrics");
    assert!(page.contains(metric), "{page}");
    let run = support::start("127.0.0.1:9", "absorb", &[]);
    let page = run.page("/metrics");
    assert!(page.starts_with("HTTP/1.1 200") && !page.contains("dev_upstream"));
}
