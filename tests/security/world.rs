//! A real Kafka that speaks everything, the certificates for it, and what
//! clients and hapax are told to reach it.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{CreateAclsRequest, DescribeAclsRequest};
use kafka_protocol::protocol::StrBytes;

use crate::clients::{Client, Running};
use crate::cluster::{Cluster, Options, Secure};
use crate::hapax::{Hapax, Ports, user_lines};
use crate::oidc::{endpoint, token};
use crate::raw::Connection;
use crate::secure::{Ca, Files, VERSIONS, client_of, opening, sealing, server};
use crate::tools::wait_for;

/// For whatever ends by itself; no claim about how soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// TLS towards clients; towards brokers; and of a client.
pub(crate) const DOOR_TLS: &str =
    "--listen-tls-cert-file CERTS/hapax.crt --listen-tls-key-file CERTS/hapax.key";
pub(crate) const UPSTREAM_TLS: &str =
    "--upstream-tls-enabled=true --upstream-tls-ca-file CERTS/ca.crt";
pub(crate) const CLIENT_TLS: &str = "--tls-ca CERTS/ca.crt";

/// The user of hapax, and the secret of the brokers' one that it may be.
const CAROL: (&str, &str) = ("carol", "carol-secret");
const ALICE_SECRET: &str = "alice-secret";
/// Longer than all the tests take.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The last line of a key holds.
const PROPERTIES: &str = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";";

/// Some nodes with listeners of every kind, and an authorizer: who shows no
/// certificate and no user may everything, everybody else what is granted.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) files: Files,
    pub(crate) ca: Ca,
    /// The token that hapax may show brokers: alice's.
    token: String,
    /// Where it can get others of hers.
    endpoint: String,
}

/// Who may what: principal, resource type and name, operation.
pub(crate) type Grant<'a> = (&'a str, i8, &'a str, i8);

pub(crate) const TOPIC: i8 = 2;
pub(crate) const GROUP: i8 = 3;
pub(crate) const CLUSTER: i8 = 4;
pub(crate) const TRANSACTIONAL_ID: i8 = 5;
pub(crate) const ALL: i8 = 2;
pub(crate) const WRITE: i8 = 4;
pub(crate) const DESCRIBE: i8 = 8;
pub(crate) const IDEMPOTENT_WRITE: i8 = 12;
const LITERAL: i8 = 3;
const ALLOW: i8 = 3;

impl World {
    /// One node, for every test that leaves it as it was. Alice and whoever has
    /// the certificate of `hapax` may everything but rule the cluster.
    pub(crate) fn one() -> &'static Self {
        static ONE: OnceLock<World> = OnceLock::new();
        ONE.get_or_init(|| {
            let world = Self::start(1, &[]);
            let granted = ["User:alice", "User:CN=hapax"].map(|who| {
                [
                    (who, TOPIC, "*", ALL),
                    (who, GROUP, "*", ALL),
                    (who, TRANSACTIONAL_ID, "*", ALL),
                    (who, CLUSTER, "kafka-cluster", IDEMPOTENT_WRITE),
                ]
            });
            world.grant(granted.as_flattened());
            world
        })
    }

    /// `more` are further CAs that brokers believe of clients.
    pub(crate) fn start(nodes: usize, more: &[&Ca]) -> Self {
        let (files, ca) = (Files::new(), Ca::new("hapax tests"));
        files.write("ca.crt", &ca.certificate);
        for node in 1..=nodes {
            let own = ca.issue(&["localhost", "127.0.0.1"]);
            files.write(&format!("node-{node}.pem"), &(own.key + &own.certificate));
        }
        let others = more.iter().map(|ca| ca.certificate.as_str());
        let clients: String = [ca.certificate.as_str()]
            .into_iter()
            .chain(others)
            .collect();
        files.write("clients.pem", &clients);
        let hosts = ["localhost", "127.0.0.1", "127.0.0.9"];
        for (who, names) in [("hapax", &hosts[..]), ("client", &["client.example"])] {
            let own = ca.issue_to(who, names);
            files.write(&format!("{who}.crt"), &own.certificate);
            files.write(&format!("{who}.key"), &own.key);
        }
        files.write("users", &user_lines(CAROL.0, CAROL.1));
        files.write("password", ALICE_SECRET);
        let token = token("alice", TOKEN_LIFETIME);
        files.write("token", &token);
        let endpoint = endpoint("alice", TOKEN_LIFETIME);
        let own = ca.issue(&["127.0.0.1"]);
        let endpoint = opening(&endpoint, server(&own, None, &VERSIONS));
        let cluster = Cluster::start(Options {
            nodes,
            properties: PROPERTIES.to_owned(),
            secure: Some(Secure {
                folder: files.folder().to_owned(),
                hosts: vec!["localhost"; nodes],
            }),
            heap: "384m",
            ..Options::default()
        });
        Self {
            cluster,
            files,
            ca,
            token,
            endpoint: format!("https://{endpoint}/token"),
        }
    }

    /// Grants, and waits until the broker goes by them.
    pub(crate) fn grant(&self, grants: &[Grant<'_>]) {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let creations = grants.iter().map(|(who, kind, name, operation)| {
            AclCreation::default()
                .with_resource_type(*kind)
                .with_resource_name(text(name))
                .with_resource_pattern_type(LITERAL)
                .with_principal(text(who))
                .with_host(text("*"))
                .with_operation(*operation)
                .with_permission_type(ALLOW)
        });
        let request = CreateAclsRequest::default().with_creations(creations.collect());
        let mut broker = self.cluster.connect(0);
        let answer = broker.call(3, &request);
        assert!(
            answer.results.iter().all(|result| result.error_code == 0),
            "{answer:?}"
        );
        // The broker learns of it from the controller, the last one last.
        let any = 1;
        let (who, kind, name, operation) = grants.last().expect("a grant");
        let filter = DescribeAclsRequest::default()
            .with_resource_type_filter(*kind)
            .with_resource_name_filter(Some(text(name)))
            .with_pattern_type_filter(LITERAL)
            .with_principal_filter(Some(text(who)))
            .with_host_filter(None)
            .with_operation(*operation)
            .with_permission_type(any);
        wait_for("the grants", PATIENCE, || {
            (!broker.call(2, &filter).resources.is_empty()).then_some(())
        });
    }

    /// What no hapax may show.
    pub(crate) fn secrets(&self) -> [&str; 3] {
        [CAROL.1, ALICE_SECRET, &self.token]
    }

    /// Words with `CERTS` made the folder of the certificates, and `ENDPOINT`
    /// where tokens are given.
    pub(crate) fn words(&self, text: &str) -> Vec<String> {
        let folder = self.files.folder().to_str().expect("a plain path");
        let words = text.split_whitespace();
        let words = words.map(|word| word.replace("CERTS", folder));
        words
            .map(|word| word.replace("ENDPOINT", &self.endpoint))
            .collect()
    }

    /// hapax with these flags, in which `CERTS` is the folder of the certificates.
    pub(crate) fn hapax(&self, upstream: &str, flags: &str) -> Hapax {
        self.hapax_on(Ports::free(8), upstream, flags)
    }

    /// The same on ports that are known.
    pub(crate) fn hapax_on(&self, ports: Ports, upstream: &str, flags: &str) -> Hapax {
        let flags = self.words(&format!("--upstream {upstream} {flags}"));
        Hapax::start_on(ports, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A client at work; likewise.
    pub(crate) fn client(
        &self,
        client: Client,
        operation: &str,
        bootstrap: &str,
        arguments: &str,
    ) -> Running {
        let arguments = self.words(arguments);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        client.start(operation, bootstrap, &arguments)
    }

    /// A producer that sends 500 records a second until it is finished.
    pub(crate) fn producer(
        &self,
        client: Client,
        bootstrap: &str,
        topic: &str,
        more: &str,
    ) -> Running {
        let paced = "--rate 500 --until-input-ends --linger-ms 5 --backoff-ms 50";
        self.client(
            client,
            "produce",
            bootstrap,
            &format!("--topic {topic} {paced} {more}"),
        )
    }

    /// A raw connection by TLS to who has a certificate for localhost.
    pub(crate) fn connect(&self, bootstrap: &str) -> Connection {
        let config = client_of(&self.ca.certificate, None, &VERSIONS);
        Connection::open(&sealing(bootstrap, config, "localhost"))
    }
}

/// What a producer sent, all of it acknowledged.
#[track_caller]
pub(crate) fn finished(producer: Running) -> u64 {
    let produced = producer.finish();
    let sent = produced.summary["sent"].as_u64().expect("a count");
    assert_eq!(produced.summary["acked"], sent, "{}", produced.summary);
    sent
}

/// Sends a process a signal.
pub(crate) fn signal(hapax: &Hapax, name: &str) {
    let kill = Command::new("kill")
        .args([format!("-{name}"), hapax.pid().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
}
