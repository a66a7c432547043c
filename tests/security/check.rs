//! `hapax check --connect` in front of each kind of listener.

use std::process::Command;

use serde_json::Value;

use crate::hapax::Ports;
use crate::report::say;
use crate::secure::{Ca, VERSIONS, opening, server};
use crate::world::World;

/// The report, and the exit code.
fn check(world: &World, upstream: &str, flags: &str) -> (Value, i32) {
    let ports = Ports::free(2);
    let output = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["check", "--connect", "--json", "--upstream", upstream])
        .args(["--listen", &format!("127.0.0.1:{}", ports.bootstrap)])
        .arg(format!(
            "--broker-ports={}-{}",
            ports.brokers.0, ports.brokers.1
        ))
        .args(["--admin-listen", &format!("127.0.0.1:{}", ports.admin)])
        .args(world.words(flags))
        .output()
        .expect("hapax runs");
    let code = output.status.code().expect("it ends by itself");
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (report, code)
}

const TLS: &str = "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt";

/// What is right is found right, and tells clients how to come.
pub(crate) fn what_is_right(world: &World) {
    let cluster = &world.cluster;
    let own = "--upstream-tls-cert-file CERTS/hapax.crt --upstream-tls-key-file CERTS/hapax.key";
    let mtls = format!("{TLS} {own}");
    let door = "--listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key";
    let doors = format!("{door} {TLS}");
    let login = "--upstream-sasl-mechanism PLAIN --upstream-sasl-username alice --upstream-sasl-password-file CERTS/password";
    let users = "--listen-sasl-users-file CERTS/users";
    let logging_in = format!("{TLS} {login}");
    let both = format!("{users} {doors} {login}");
    #[rustfmt::skip]
    let rows = [
        (cluster.bootstrap(), "", "PLAINTEXT"),
        (cluster.ssl_bootstrap(), TLS, "PLAINTEXT"),
        (cluster.mtls_bootstrap(), &mtls, "PLAINTEXT"),
        (cluster.sasl_ssl_bootstrap(), TLS, "SASL_PLAINTEXT"),
        (cluster.ssl_bootstrap(), &doors, "SSL"),
        (cluster.sasl_ssl_bootstrap(), &doors, "SASL_SSL"),
        (cluster.sasl_ssl_bootstrap(), &logging_in, "PLAINTEXT"),
        (cluster.bootstrap(), users, "SASL_PLAINTEXT"),
        (cluster.sasl_ssl_bootstrap(), &both, "SASL_SSL"),
    ];
    for (upstream, flags, protocol) in rows {
        let (report, code) = check(world, &upstream, flags);
        assert_eq!(code, 0, "{flags}: {report:#}");
        assert_eq!(
            report["clients"]["security_protocol"], protocol,
            "{flags}: {report:#}"
        );
    }
    say("What is set right is found right at every listener, with what clients have to set.");
    let (report, _) = check(world, &cluster.sasl_ssl_bootstrap(), TLS);
    let mechanisms = report["cluster"]["sasl_mechanisms"].to_string();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] {
        assert!(mechanisms.contains(mechanism), "{mechanisms}");
    }
}

/// What is wrong has its code, and the words that say what to set.
pub(crate) fn what_is_wrong(world: &World) {
    let cluster = &world.cluster;
    world
        .files
        .write("other.crt", &Ca::new("another one").certificate);
    let wrong_ca = "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/other.crt";
    let wrong_name = format!("{TLS} --upstream-tls-server-name kafka.example");
    let old = world.ca.issue_until(&["127.0.0.1"], 2020);
    let expired = opening(&cluster.bootstrap(), server(&old, None, &VERSIONS));
    #[rustfmt::skip]
    let rows = [
        (expired, TLS, "tls_expired", "renew it"),
        (cluster.ssl_bootstrap(), "", "tls", "--upstream-tls-enabled=true"),
        (cluster.sasl_ssl_bootstrap(), "", "tls", "--upstream-tls-enabled=true"),
        (cluster.bootstrap(), TLS, "plaintext", "--upstream-tls-enabled"),
        (cluster.sasl_bootstrap(), TLS, "plaintext", "--upstream-tls-enabled"),
        (cluster.ssl_bootstrap(), wrong_ca, "tls_ca", "upstream.tls.caFile"),
        (cluster.ssl_bootstrap(), &wrong_name, "tls_name", "not for kafka.example, but for localhost, 127.0.0.1"),
        (cluster.mtls_bootstrap(), TLS, "tls_certificate", "it wants a certificate (ssl.client.auth=required): set upstream.tls.certFile"),
    ];
    let mut named = Vec::new();
    for (upstream, flags, code, says) in rows {
        let (report, exit) = check(world, &upstream, flags);
        let said = report["problems"].to_string();
        println!("{code}: {said}");
        named.push(code);
        assert_eq!(exit, 69, "{flags}: {report:#}");
        assert_eq!(report["problems"][0]["code"], code, "{flags}: {said}");
        assert!(said.contains(says), "{flags}: {said}");
    }
    say(format!(
        "{} wrong settings, each with its code and what to set: {}",
        named.len(),
        named.join(", ")
    ));
}
