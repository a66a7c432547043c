//! SASL passes through: clients log in to the broker, not to hapax.

use crate::clients::Client;
use crate::cluster::{Cluster, assert_once_in_order};
use crate::hapax::Front;

#[test]
fn clients_log_in_with_plain() {
    check("PLAIN", "bob", "bob-secret");
}

#[test]
fn clients_log_in_with_scram_sha_256() {
    check("SCRAM-SHA-256", "alice", "alice-secret");
}

fn check(mechanism: &str, user: &str, password: &str) {
    let cluster = Cluster::one();
    let front = Front::of_sasl(cluster);
    for client in Client::FULL {
        let topic = cluster.create_topic("sasl", 1);
        let login = [
            "--sasl-mechanism",
            mechanism,
            "--sasl-user",
            user,
            "--sasl-password",
            password,
        ];
        let with = |arguments: &[&'static str]| {
            let mut all = vec!["--topic", topic.as_str()];
            all.extend(login);
            all.extend(arguments);
            all.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<String>>()
        };
        let run = |operation: &str, arguments: &[&'static str]| {
            let arguments = with(arguments);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            client.run(operation, &front.bootstrap, &arguments)
        };
        assert_eq!(run("produce", &["--count", "20"]).summary["acked"], 20);
        assert_eq!(
            run("consume", &["--count", "20", "--group", "sasl"])
                .lines
                .len(),
            20
        );
        assert_once_in_order(&cluster.log(&topic), 20);
        if let Some(hapax) = &front.hapax {
            assert!(
                hapax.batches(&topic, "forwarded") > 0,
                "{client:?} went past hapax"
            );
            assert!(!hapax.log().contains(password), "hapax logged a password");
        }
    }
}
