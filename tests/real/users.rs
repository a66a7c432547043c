//! Clients authenticate to hapax; the brokers behind it want no SASL.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::clients::Client;
use crate::cluster::{Cluster, assert_once_in_order};
use crate::hapax::{Hapax, user_lines};

const USER: (&str, &str) = ("carol", "carol-secret");

#[test]
fn clients_authenticate_to_hapax_with_plain() {
    check("PLAIN");
}

#[test]
fn clients_authenticate_to_hapax_with_scram_sha_256() {
    check("SCRAM-SHA-256");
}

#[test]
fn clients_authenticate_to_hapax_with_scram_sha_512() {
    check("SCRAM-SHA-512");
}

/// What a client calls a password that is refused.
fn words_of(client: Client) -> Option<&'static str> {
    match client {
        Client::Java => Some("SaslAuthenticationException"),
        Client::FranzGo => Some("SASL_AUTHENTICATION_FAILED"),
        // librdkafka says it to a callback, and lets the record time out.
        _ => None,
    }
}

fn check(mechanism: &str) {
    let cluster = Cluster::one();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    fs::write(&path, user_lines(USER.0, USER.1)).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let file = format!("--listen-sasl-users-file={}", path.display());
    let mechanisms = format!("--listen-sasl-mechanisms={mechanism}");
    let hapax = Hapax::in_front_of(cluster, &[&file, &mechanisms]);
    let login = |password: &'static str| {
        [
            "--sasl-mechanism".to_owned(),
            mechanism.to_owned(),
            "--sasl-user".to_owned(),
            USER.0.to_owned(),
            "--sasl-password".to_owned(),
            password.to_owned(),
        ]
    };
    for client in Client::FULL {
        let topic = cluster.create_topic("users", 1);
        let with = |password: &'static str, more: &[&str]| {
            let mut all = vec!["--topic".to_owned(), topic.clone()];
            all.extend(login(password));
            all.extend(more.iter().map(|text| (*text).to_owned()));
            all
        };
        let run = |operation: &str, more: &[&str]| {
            let all = with(USER.1, more);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            client.run(operation, &hapax.bootstrap(), &all)
        };
        assert_eq!(run("produce", &["--count", "20"]).summary["acked"], 20);
        let consumed = run("consume", &["--count", "20", "--group", "users"]);
        assert_eq!(consumed.lines.len(), 20);
        assert_once_in_order(&cluster.log(&topic), 20);
        assert!(hapax.batches(&topic, "forwarded") > 0, "{client:?}");

        // A wrong password is what each client calls that.
        let counted = |outcome: &str| {
            let labels = [("mechanism", mechanism), ("outcome", outcome)];
            hapax.metric("hapax_client_authentications_total", &labels)
        };
        let refused = counted("refused");
        let all = with(
            "wrong-secret",
            &[
                "--count",
                "1",
                "--delivery-timeout-ms",
                "5000",
                "--request-timeout-ms",
                "2000",
            ],
        );
        let done = client
            .command()
            .args(["produce", "--bootstrap", &hapax.bootstrap()])
            .args(all)
            .stdin(Stdio::null())
            .output()
            .expect("the client starts");
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(counted("refused") > refused, "{client:?}: {said}");
        assert!(!said.contains("\"offset\""), "{client:?}: {said}");
        if let Some(words) = words_of(client) {
            assert!(said.contains(words), "{client:?}: {said}");
        }
        assert_once_in_order(&cluster.log(&topic), 20);
    }
    let log = hapax.log();
    assert!(!log.contains("secret"), "hapax logged a password");
    assert!(log.contains("a client did not authenticate"), "{log}");
}
