//! New certificates while everybody is at work.

use std::time::Instant;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::clients::Client;
use crate::cluster::assert_once_in_order;
use crate::hapax::Hapax;
use crate::raw::{Connection, batch};
use crate::report::say;
use crate::secure::{Ca, Identity, VERSIONS, client_of, handshake, sealing};
use crate::tools::wait_for;
use crate::volume::Volume;
use crate::world::{
    ALL, CLUSTER, DESCRIBE, GROUP, IDEMPOTENT_WRITE, PATIENCE, TOPIC, World, finished, signal,
};

/// How often.
const TIMES: usize = 10;
/// One of so many is found by hapax itself, which takes it up to ten seconds;
/// the others are told by SIGHUP.
const FOUND_ONE_IN: usize = 5;
/// Why a connection ends that is nobody's fault but its client's.
const BY_ITSELF: &str = "hapax_client_disconnects_total{cause=\"client\"}";

/// A CA of its own for every time, and what it has signed.
struct Generation {
    ca: Ca,
    own: Identity,
    /// What only this one's bearer sees.
    topic: String,
}

/// Each of ten times hapax gets a new certificate of a new CA for clients and
/// for brokers, and new CAs to believe: nobody who works notices, and who is
/// new meets the new one, on both sides.
pub(crate) fn ten_times_under_load() {
    let cas: Vec<Ca> = (0..=TIMES).map(|i| Ca::new(&format!("ca {i}"))).collect();
    let world = World::start(1, &cas.iter().collect::<Vec<_>>());
    let generations: Vec<Generation> = cas
        .into_iter()
        .enumerate()
        .map(|(i, ca)| Generation {
            own: ca.issue_to(&format!("hapax-{i}"), &["127.0.0.1", "localhost"]),
            ca,
            topic: world.cluster.create_topic(&format!("only-{i}"), 1),
        })
        .collect();
    let load = [Client::Java, Client::Confluent, Client::FranzGo]
        .map(|client| (client, world.cluster.create_topic("rotated", 2)));
    let fresh = world.cluster.create_topic("fresh", 1);
    grant(&world, &generations, &load, &fresh);

    let believed: String = generations
        .iter()
        .map(|one| one.ca.certificate.as_str())
        .collect();
    world.files.write("believed.crt", &believed);
    let client = world.ca.issue_to("client", &["client.example"]);
    let mut volume = Volume::new(world.files.folder().join("volume"));
    put(&mut volume, &world, &generations[0]);
    let path = |name: &str| volume.path(name);
    let (own, key, cas) = (path("tls.crt"), path("tls.key"), path("ca.crt"));
    let hapax = world.hapax(
        &world.cluster.mtls_bootstrap(),
        &format!(
            "--listen-tls-cert-file {own} --listen-tls-key-file {key} --listen-tls-client-ca-file {cas} \
             --upstream-tls-enabled=true --upstream-tls-ca-file {cas} \
             --upstream-tls-cert-file {own} --upstream-tls-key-file {key}"
        ),
    );
    let with = "--tls-ca CERTS/believed.crt --tls-cert CERTS/client.crt --tls-key CERTS/client.key";
    let producers = load.clone().map(|(program, topic)| {
        let more = format!("--partitions 2 {with}");
        world.producer(program, &hapax.bootstrap(), &topic, &more)
    });
    for producer in &producers {
        producer.wait_for_lines(100);
    }
    let before = connections(&hapax);
    let config = client_of(&believed, Some(&client), &VERSIONS);
    let connect = || {
        let front = sealing(&hapax.bootstrap(), config.clone(), "localhost");
        Connection::open(&front)
    };
    let shown =
        || handshake(&hapax.bootstrap(), config.clone(), "localhost").expect("hapax is believed");
    let producer = connect().init_producer_id();
    for (i, now) in generations.iter().enumerate().skip(1) {
        let printed: Vec<_> = producers
            .iter()
            .map(|producer| producer.printed())
            .collect();
        put(&mut volume, &world, now);
        let start = Instant::now();
        let is_found = i % FOUND_ONE_IN == 0;
        if !is_found {
            signal(&hapax, "HUP");
        }
        let new = CertificateDer::from_pem_slice(now.own.certificate.as_bytes()).unwrap();
        wait_for("the new certificate", PATIENCE, || {
            (shown() == new).then_some(())
        });
        let by = if is_found { "found" } else { "SIGHUP" };
        say(format!(
            "certificate {i} shown after {:?} ({by})",
            start.elapsed()
        ));
        // Brokers see it too, since each may see a topic of its own; hapax
        // reads the files of one side after those of the other.
        let seen = |connection: &mut Connection, one: &Generation| {
            let topics = connection.metadata(&[&one.topic]).topics;
            topics[0].error_code
        };
        let mut connection = wait_for("the new certificate for brokers", PATIENCE, || {
            let mut connection = connect();
            (seen(&mut connection, now) == 0).then_some(connection)
        });
        assert_eq!(
            seen(&mut connection, &generations[i - 1]),
            29,
            "the old one"
        );
        let sequence = i32::try_from(i - 1).expect("few");
        let records = batch(producer, sequence, now_ms(), &sequence.to_string());
        assert_eq!(connection.produce(&fresh, &records).error_code, 0);
        for (producer, printed) in producers.iter().zip(printed) {
            producer.wait_for_lines(printed + 300);
        }
    }
    assert_eq!(connections(&hapax), before, "a connection was dropped");
    let metrics = hapax.metrics();
    let ends: Vec<_> = metrics
        .iter()
        .filter(|(series, _)| series.starts_with("hapax_client_disconnects_total"))
        .filter(|(series, value)| series.as_str() != BY_ITSELF && **value > 0.0)
        .collect();
    assert!(ends.is_empty(), "{ends:?}");
    assert_eq!(
        hapax.metric("hapax_upstream_connect_errors_total", &[]),
        0.0
    );
    let applied = hapax.metric("hapax_config_reloads_total", &[("outcome", "applied")]);
    assert!(applied >= 10.0, "{applied} were applied");
    assert_eq!(
        hapax.metric("hapax_config_last_reload_successful", &[]),
        1.0
    );

    let sent = producers.map(finished);
    say(format!("{sent:?} records sent and acknowledged meanwhile"));
    let topics: Vec<_> = load.iter().map(|(_, topic)| topic.as_str()).collect();
    for (log, sent) in world.cluster.logs(&topics).iter().zip(sent) {
        assert_once_in_order(log, sent);
    }
    let count = u64::try_from(TIMES).expect("few");
    assert_once_in_order(&world.cluster.log(&fresh), count);
}

/// Each certificate's bearer may see a topic of its own, and everybody works on the others.
fn grant(world: &World, generations: &[Generation], load: &[(Client, String)], fresh: &str) {
    let names: Vec<String> = (0..generations.len())
        .map(|i| format!("User:CN=hapax-{i}"))
        .collect();
    let mut grants: Vec<_> = names
        .iter()
        .zip(generations)
        .map(|(who, one)| (who.as_str(), TOPIC, one.topic.as_str(), DESCRIBE))
        .collect();
    let topics = load.iter().map(|(_, topic)| topic.as_str()).chain([fresh]);
    grants.extend(topics.map(|topic| ("User:*", TOPIC, topic, ALL)));
    grants.push(("User:*", GROUP, "*", ALL));
    grants.push(("User:*", CLUSTER, "kafka-cluster", IDEMPOTENT_WRITE));
    world.grant(&grants);
}

fn put(volume: &mut Volume, world: &World, one: &Generation) {
    // The brokers' CA and the clients' stays; the other one is new every time.
    let cas = format!("{}{}", world.ca.certificate, one.ca.certificate);
    volume.put(&[
        ("tls.crt", &one.own.certificate),
        ("tls.key", &one.own.key),
        ("ca.crt", &cas),
    ]);
}

/// Where the clients that stay come from.
fn connections(hapax: &Hapax) -> Vec<String> {
    let page = hapax.api("/api/v1/connections");
    let all = page["connections"].as_array().expect("a list").clone();
    let stay = all.iter().filter(|one| one["client_id"] != "raw");
    let mut clients: Vec<_> = stay.map(|one| one["client"].to_string()).collect();
    clients.sort();
    clients
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    i64::try_from(now.expect("after 1970").as_millis()).expect("milliseconds")
}
