//! hapax logs in to Kafka by its own credentials; clients have none.
//!
//! The broker gives every login an end (`connections.max.reauth.ms`), so that
//! each of these claims holds over several of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::clients::Client;
use crate::cluster::{Cluster, Options, assert_once_in_order};
use crate::hapax::Hapax;
use crate::oidc::{endpoint, token};
use crate::tools::{free_ports, wait_for};

/// How long a login lasts.
const LIFETIME: Duration = Duration::from_secs(4);

fn cluster() -> &'static Cluster {
    static ONE: OnceLock<Cluster> = OnceLock::new();
    ONE.get_or_init(|| {
        let lifetime = LIFETIME.as_millis();
        // The last line of a key holds.
        let properties = format!(
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n\
             listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"kafka\";\n\
             connections.max.reauth.ms={lifetime}\n"
        );
        Cluster::start(Options {
            properties,
            ..Options::default()
        })
    })
}

/// A hapax that logs in, and what it must not show.
struct Setting {
    hapax: Hapax,
    secret: String,
    _dir: tempfile::TempDir,
}

fn file(dir: &tempfile::TempDir, name: &str, contents: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, contents).expect("a temporary file");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, mode).expect("it is ours");
    path
}

fn with_password(mechanism: &str, password: &str) -> Setting {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = file(&dir, "password", password);
    let hapax = Hapax::start(&[
        "--upstream",
        &cluster().sasl_bootstrap(),
        &format!("--upstream-sasl-mechanism={mechanism}"),
        "--upstream-sasl-username=alice",
        &format!("--upstream-sasl-password-file={}", path.display()),
    ]);
    Setting {
        hapax,
        secret: password.to_owned(),
        _dir: dir,
    }
}

fn with_token_file() -> Setting {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let token = token("hapax", Duration::from_secs(3600));
    let path = file(&dir, "token", &token);
    let hapax = Hapax::start(&[
        "--upstream",
        &cluster().sasl_bootstrap(),
        "--upstream-sasl-mechanism=OAUTHBEARER",
        &format!("--upstream-sasl-token-file={}", path.display()),
    ]);
    Setting {
        hapax,
        secret: token,
        _dir: dir,
    }
}

fn with_endpoint() -> Setting {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let secret = "endpoint-secret";
    let path = file(&dir, "secret", secret);
    let hapax = Hapax::start(&[
        "--upstream",
        &cluster().sasl_bootstrap(),
        "--upstream-sasl-mechanism=OAUTHBEARER",
        &format!(
            "--upstream-sasl-oauth-token-endpoint=http://{}/token",
            endpoint("hapax", LIFETIME * 2)
        ),
        "--upstream-sasl-oauth-client-id=hapax",
        &format!(
            "--upstream-sasl-oauth-client-secret-file={}",
            path.display()
        ),
    ]);
    Setting {
        hapax,
        secret: secret.to_owned(),
        _dir: dir,
    }
}

/// Clients without credentials write and read.
fn serves(setting: &Setting) {
    let Setting { hapax, secret, .. } = setting;
    for client in [Client::Java, Client::Confluent] {
        let topic = cluster().create_topic("login", 1);
        let topic_arguments = ["--topic", topic.as_str(), "--count", "20"];
        let produced = client.run("produce", &hapax.bootstrap(), &topic_arguments);
        assert_eq!(produced.summary["acked"], 20, "{client:?}");
        let mut arguments = topic_arguments.to_vec();
        arguments.extend(["--group", "login"]);
        let consumed = client.run("consume", &hapax.bootstrap(), &arguments);
        assert_eq!(consumed.lines.len(), 20, "{client:?}");
        assert_once_in_order(&cluster().log(&topic), 20);
        assert!(hapax.batches(&topic, "forwarded") > 0, "{client:?}");
    }
    let ok = hapax.metric("hapax_upstream_logins_total", &[("outcome", "ok")]);
    assert!(ok >= 2.0);
    for outcome in ["refused", "failed"] {
        let count = hapax.metric("hapax_upstream_logins_total", &[("outcome", outcome)]);
        assert_eq!(count, 0.0, "{outcome}");
    }
    let shown = [hapax.log(), hapax.scrape()];
    let config = hapax.api("/api/v1/config").to_string();
    let mut shown = shown.iter().chain([&config]);
    assert!(shown.all(|text| !text.contains(secret)), "hapax shows it");
}

/// A producer goes on over three logins, and nothing it sends fails.
fn goes_on(setting: &Setting) {
    let Setting { hapax, .. } = setting;
    let renewed = || hapax.metric("hapax_upstream_logins_total", &[("outcome", "renewed")]);
    let before = renewed();
    let topic = cluster().create_topic("renewed", 1);
    let arguments = [
        "--topic",
        topic.as_str(),
        "--until-input-ends",
        "--rate",
        "200",
    ];
    let producer = Client::Java.start("produce", &hapax.bootstrap(), &arguments);
    wait_for("three renewals", LIFETIME * 20, || {
        (renewed() >= before + 3.0).then_some(())
    });
    let outcome = producer.finish();
    assert_eq!(outcome.summary["failed"], 0, "{}", hapax.log());
    let acked = outcome.summary["acked"].as_u64().expect("a number");
    assert!(acked > 0);
    assert_once_in_order(&cluster().log(&topic), acked);
    let cut = hapax.metric("hapax_client_disconnects_total", &[("cause", "upstream")]);
    assert_eq!(cut, 0.0, "{}", hapax.log());
    let retried = hapax.metric(
        "hapax_verdicts_total",
        &[("verdict", "duplicate_forwarded")],
    );
    assert_eq!(retried, 0.0);
}

#[test]
fn clients_need_no_credentials_where_hapax_logs_in_by_plain() {
    let setting = with_password("PLAIN", "alice-secret");
    serves(&setting);
    goes_on(&setting);
}

#[test]
fn clients_need_no_credentials_where_hapax_logs_in_by_scram_sha_256() {
    serves(&with_password("SCRAM-SHA-256", "alice-secret"));
}

#[test]
fn clients_need_no_credentials_where_hapax_logs_in_by_scram_sha_512() {
    let setting = with_password("SCRAM-SHA-512", "alice-secret");
    serves(&setting);
    goes_on(&setting);
}

#[test]
fn clients_need_no_credentials_where_hapax_shows_a_token() {
    serves(&with_token_file());
}

/// Each token ends within two logins, so that new ones are shown.
#[test]
fn clients_need_no_credentials_where_hapax_gets_tokens() {
    let setting = with_endpoint();
    serves(&setting);
    goes_on(&setting);
    let got = setting
        .hapax
        .metric("hapax_oauth_tokens_total", &[("outcome", "ok")]);
    assert!(got >= 2.0);
}

#[test]
fn check_logs_in_and_says_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let right = file(&dir, "right", "alice-secret");
    let wrong = file(&dir, "wrong", "alice-mistake");
    let first = free_ports(4);
    let ports = format!("{first}-{}", first + 3);
    let check = |upstream: &str, mechanism: &str, password: &PathBuf, code: i32, words: &str| {
        let checked = Command::new(env!("CARGO_BIN_EXE_hapax"))
            .args(["check", "--connect", "--upstream", upstream])
            .args(["--listen", "127.0.0.1:0", "--broker-ports", &ports])
            .args(["--admin-listen", "127.0.0.1:0"])
            .arg(format!("--upstream-sasl-mechanism={mechanism}"))
            .arg("--upstream-sasl-username=alice")
            .arg(format!(
                "--upstream-sasl-password-file={}",
                password.display()
            ))
            .output()
            .expect("hapax starts");
        let said = String::from_utf8_lossy(&checked.stdout);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(checked.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words}: {said}");
        assert!(!said.contains("alice-mistake") && !said.contains("alice-secret"));
    };
    let sasl = cluster().sasl_bootstrap();
    check(&sasl, "PLAIN", &right, 0, "as alice by PLAIN");
    check(
        &sasl,
        "SCRAM-SHA-512",
        &right,
        0,
        "as alice by SCRAM-SHA-512",
    );
    check(&sasl, "PLAIN", &wrong, 69, "it refuses the login by PLAIN");
    check(
        &sasl,
        "SCRAM-SHA-256",
        &wrong,
        69,
        "it refuses the login by SCRAM-SHA-256",
    );
    let plaintext = cluster().bootstrap();
    check(
        &plaintext,
        "PLAIN",
        &right,
        69,
        "its listener wants no login",
    );
}
