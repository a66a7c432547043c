//! Addresses and ports: clients see hapax only, every port leads where it should.

use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::fetch_response::{self, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::produce_response;
use kafka_protocol::messages::share_acknowledge_response;
use kafka_protocol::messages::share_fetch_response;
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, FetchRequest, FetchResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest,
    ShareFetchResponse,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, StrBytes};

use crate::broker::{self, Asked, failed};
use crate::support::hapax::{self, Hapax, free_range, start_with};
use crate::support::raw::Client;
use crate::support::{await_until, kafka};
use crate::world::{PORTS, Pair, SOON, World, metadata, ping, produce};

const HOST: &str = "broker-7.kafka.example";

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Sends a request, has the broker answer it, gives what the client got.
fn asked<R>(pair: &mut Pair, version: i16, request: &R, answer: &R::Response) -> R::Response
where
    R: Request,
    R::Response: Encodable + HeaderVersion,
{
    let correlation = pair.client.send(version, request).unwrap();
    let asked = pair.broker.next();
    pair.broker.answer(&asked, answer);
    pair.client.receive::<R>(version, correlation).unwrap()
}

/// Metadata that lists these brokers; gives what the client is told.
fn told(pair: &mut Pair, brokers: &[(i32, &str, u16)]) -> Vec<(i32, String, i32)> {
    let request = MetadataRequest::default();
    let answer = asked(pair, 12, &request, &metadata(brokers, None));
    listed(&answer)
}

fn listed(answer: &MetadataResponse) -> Vec<(i32, String, i32)> {
    let brokers = answer.brokers.iter();
    brokers
        .map(|b| (b.node_id.0, b.host.to_string(), b.port))
        .collect()
}

/// Where a node's slot is in the range of a world.
fn slot(hapax: &Hapax, node: u16) -> i32 {
    i32::from(hapax.first_port + node % PORTS)
}

/// Endpoint of node 7 as a broker gives it: (host, port), or as hapax does.
type Place<'a> = (&'a str, i32);

/// For every version, the client gets what `make` makes of our address.
fn check<R>(
    world: &World,
    pair: &mut Pair,
    versions: &[i16],
    make: impl Fn(i16, Place<'_>) -> R::Response,
) where
    R: Request + Default,
    R::Response: Encodable + HeaderVersion + PartialEq + std::fmt::Debug,
{
    let ours = slot(&world.hapax, 7);
    for version in versions {
        let real = make(*version, (HOST, 9092));
        let got = asked::<R>(pair, *version, &R::default(), &real);
        assert_eq!(
            got,
            make(*version, ("127.0.0.1", ours)),
            "version {version}"
        );
    }
}

#[test]
fn metadata_lists_local_ports() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for version in [0, 1, 8, 9, 12, 13] {
        let full = metadata(&[(7, HOST, 9092), (1, HOST, 9093)], None);
        let mut real = MetadataResponse::default().with_brokers(full.brokers);
        real.controller_id = if version >= 1 { 7.into() } else { (-1).into() };
        let request = MetadataRequest::default().with_topics(Some(vec![]));
        let got = asked(&mut pair, version, &request, &real);
        let ours = [7, 1].map(|node| {
            let port = slot(&world.hapax, node);
            (i32::from(node), "127.0.0.1".to_owned(), port)
        });
        assert_eq!(listed(&got), ours, "version {version}");
    }
}

#[test]
fn coordinators_are_at_local_ports() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    check::<FindCoordinatorRequest>(&world, &mut pair, &[0, 3], |_, (host, port)| {
        FindCoordinatorResponse::default()
            .with_node_id(7.into())
            .with_host(text(host))
            .with_port(port)
    });
    check::<FindCoordinatorRequest>(&world, &mut pair, &[4, 6], |_, (host, port)| {
        let coordinator = Coordinator::default()
            .with_key(text("group"))
            .with_node_id(7.into())
            .with_host(text(host))
            .with_port(port);
        FindCoordinatorResponse::default().with_coordinators(vec![coordinator])
    });
}

#[test]
fn described_brokers_are_at_local_ports() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    check::<DescribeClusterRequest>(&world, &mut pair, &[0, 1, 2], |_, (host, port)| {
        let broker = DescribeClusterBroker::default()
            .with_broker_id(7.into())
            .with_host(text(host))
            .with_port(port);
        DescribeClusterResponse::default()
            .with_cluster_id(text("scripted"))
            .with_brokers(vec![broker])
    });
}

#[test]
fn leaders_in_fetch_answers_are_at_local_ports() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    check::<FetchRequest>(&world, &mut pair, &[16, 17, 18], |_, (host, port)| {
        let leader = fetch_response::NodeEndpoint::default()
            .with_node_id(7.into())
            .with_host(text(host))
            .with_port(port);
        FetchResponse::default().with_node_endpoints(vec![leader])
    });
}

#[test]
fn leaders_in_share_answers_are_at_local_ports() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    check::<ShareFetchRequest>(&world, &mut pair, &[1], |_, (host, port)| {
        let leader = share_fetch_response::NodeEndpoint::default()
            .with_node_id(7.into())
            .with_host(text(host))
            .with_port(port);
        ShareFetchResponse::default().with_node_endpoints(vec![leader])
    });
    check::<ShareAcknowledgeRequest>(&world, &mut pair, &[1], |_, (host, port)| {
        let leader = share_acknowledge_response::NodeEndpoint::default()
            .with_node_id(7.into())
            .with_host(text(host))
            .with_port(port);
        ShareAcknowledgeResponse::default().with_node_endpoints(vec![leader])
    });
}

/// A NOT_LEADER answer that names the new leader (KIP-951).
fn moved(
    asked: &Asked,
    node: i32,
    host: &str,
    port: i32,
) -> kafka_protocol::messages::ProduceResponse {
    let mut answer = broker::produced(asked, |_| failed(6));
    answer.responses[0].partition_responses[0].current_leader =
        produce_response::LeaderIdAndEpoch::default()
            .with_leader_id(node.into())
            .with_leader_epoch(3);
    let leader = produce_response::NodeEndpoint::default()
        .with_node_id(node.into())
        .with_host(text(host))
        .with_port(port);
    answer.with_node_endpoints(vec![leader])
}

#[test]
fn leaders_in_produce_answers_are_at_local_ports() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for version in 10..=13 {
        let produce = crate::support::raw::Produce::to(
            &crate::world::orders(),
            version.into(),
            crate::world::batch(0),
        );
        let owed = pair.send(&produce.version(version));
        let asked = pair.broker.next();
        pair.broker.answer(&asked, &moved(&asked, 7, HOST, 9092));
        let got = pair
            .client
            .receive::<ProduceRequest>(version, owed.correlation)
            .unwrap();
        let ours = slot(&world.hapax, 7);
        assert_eq!(
            got,
            moved(&asked, 7, "127.0.0.1", ours),
            "version {version}"
        );
    }
}

/// A client that connects to this port of ours reaches that broker.
fn check_leads(port: i32, to: &broker::Upstream) {
    let client = Client::connect(&format!("127.0.0.1:{port}")).unwrap();
    Pair::of(client, to);
}

#[test]
fn the_port_of_a_leader_first_seen_in_a_produce_answer_leads_to_it() {
    let world = World::new(&[]);
    let leader = broker::start();
    let mut pair = world.pair();
    let owed = pair.send(&produce(0));
    let asked = pair.broker.next();
    let answer = moved(&asked, 5, "127.0.0.1", leader.port.into());
    pair.broker.answer(&asked, &answer);
    let got = pair
        .client
        .receive::<ProduceRequest>(12, owed.correlation)
        .unwrap();
    let endpoint = &got.node_endpoints[0];
    assert_eq!(endpoint.node_id.0, 5);
    assert_eq!(endpoint.host.as_str(), "127.0.0.1");
    assert_eq!(endpoint.port, slot(&world.hapax, 5));
    check_leads(endpoint.port, &leader);
}

#[test]
fn the_port_of_a_leader_first_seen_in_a_fetch_answer_leads_to_it() {
    let world = World::new(&[]);
    let leader = broker::start();
    let mut pair = world.pair();
    let endpoint = fetch_response::NodeEndpoint::default()
        .with_node_id(6.into())
        .with_host(text("localhost"))
        .with_port(leader.port.into());
    let answer = FetchResponse::default().with_node_endpoints(vec![endpoint]);
    let got = asked(&mut pair, 16, &FetchRequest::default(), &answer);
    check_leads(got.node_endpoints[0].port, &leader);
}

/// Its end is not read before its beginning has passed: the hint is left out.
#[test]
fn a_large_fetch_answer_streams_and_its_addresses_are_blanked() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let records = Bytes::from(vec![7; 3 << 20]);
    let partition = PartitionData::default()
        .with_records(Some(records))
        .with_current_leader(
            fetch_response::LeaderIdAndEpoch::default()
                .with_leader_id(7.into())
                .with_leader_epoch(3),
        );
    let topic = FetchableTopicResponse::default().with_partitions(vec![partition; 2]);
    let endpoint = fetch_response::NodeEndpoint::default()
        .with_node_id(7.into())
        .with_host(text(HOST))
        .with_port(9092);
    let answer = FetchResponse::default()
        .with_responses(vec![topic])
        .with_node_endpoints(vec![endpoint]);
    for version in [16, 17, 18] {
        let (correlation, frame) = pair.client.frame(version, &FetchRequest::default());
        pair.client.send_raw(&frame).unwrap();
        let asked = pair.broker.next();
        let whole = broker::answer(&asked, &answer);
        // The beginning passes before the end exists.
        pair.broker.send(&whole[..1 << 20]);
        let mut begun = vec![0; 512 << 10];
        std::io::Read::read_exact(&mut pair.client.stream(), &mut begun).unwrap();
        assert!(begun == whole[..512 << 10]);
        pair.broker.send(&whole[1 << 20..]);
        let mut rest = vec![0; whole.len() - begun.len()];
        std::io::Read::read_exact(&mut pair.client.stream(), &mut rest).unwrap();
        let whole_got: Bytes = [begun, rest].concat().into();
        assert!(!contains(&whole_got, HOST), "version {version}");
        assert_eq!(whole_got[4..8], correlation.to_be_bytes());
        let mut body = whole_got.slice(9..);
        let mut got =
            <FetchResponse as kafka_protocol::protocol::Decodable>::decode(&mut body, version)
                .unwrap();
        assert!(body.is_empty());
        assert_eq!(got.unknown_tagged_fields.len(), 1);
        got.unknown_tagged_fields.clear();
        let expected = answer.clone().with_node_endpoints(vec![]);
        assert!(got == expected, "version {version}");
    }
    pair.barrier();
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

#[test]
fn a_node_id_beyond_16_bits_has_a_port() {
    let world = World::new(&[]);
    let node = broker::start();
    let mut pair = world.pair();
    let told = told(&mut pair, &[(70_000, "127.0.0.1", node.port)]);
    let port = slot(
        &world.hapax,
        u16::try_from(70_000 % i32::from(PORTS)).unwrap(),
    );
    assert_eq!(told, [(70_000, "127.0.0.1".to_owned(), port)]);
    check_leads(port, &node);
}

#[test]
fn node_ids_that_collide_have_ports_of_their_own() {
    let world = World::new(&[]);
    let (a, b) = (broker::start(), broker::start());
    let mut pair = world.pair();
    for _ in 0..2 {
        let brokers = [(1, "127.0.0.1", a.port), (5, "127.0.0.1", b.port)];
        let told = told(&mut pair, &brokers);
        let ports: Vec<i32> = told.iter().map(|(_, _, port)| *port).collect();
        let (first, next) = (slot(&world.hapax, 1), slot(&world.hapax, 2));
        assert_eq!(ports, [first, next]);
    }
    check_leads(slot(&world.hapax, 1), &a);
    check_leads(slot(&world.hapax, 2), &b);
}

#[test]
fn a_broker_beyond_the_ports_gets_port_0_a_log_line_and_a_metric() {
    let world = World::new(&[]);
    let node = broker::start();
    let mut pair = world.pair();
    let brokers: Vec<_> = (0..5).map(|id| (id, "127.0.0.1", node.port)).collect();
    for _ in 0..2 {
        let told = told(&mut pair, &brokers);
        let ports: Vec<i32> = told.iter().map(|(_, _, port)| *port).collect();
        let ours = [0, 1, 2, 3].map(|id| slot(&world.hapax, id));
        assert_eq!(ports[..4], ours);
        assert_eq!(ports[4], 0);
    }
    assert_eq!(world.gauge("hapax_broker_slots_exhausted_total"), 1.0);
    assert_eq!(world.gauge("hapax_broker_slots_used"), 4.0);
    let output = world.hapax.output();
    let lines = output.lines().filter(|l| l.contains("no port left"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{output}");
    assert!(lines[0].contains("ERROR"), "{}", lines[0]);
    check_leads(slot(&world.hapax, 3), &node);
}

#[test]
fn the_port_of_a_vanished_broker_is_given_on_after_the_grace_time() {
    let world = World::new(&["--listen-slot-grace=0"]);
    let (old, new) = (broker::start(), broker::start());
    let mut pair = world.pair();
    let all = |first: i32, port: u16| {
        let ids = [first, 1, 2, 3];
        ids.map(|id| (id, "127.0.0.1", port))
    };
    told(&mut pair, &all(0, old.port));
    let listed = told(&mut pair, &all(8, new.port));
    // Node 8 came in the same answer that node 0 vanished by.
    assert_eq!(listed[0].2, 0);
    let listed = told(&mut pair, &all(8, new.port));
    assert_eq!(listed[0].2, slot(&world.hapax, 0));
    check_leads(listed[0].2, &new);
}

#[test]
fn a_broker_that_comes_back_elsewhere_keeps_its_port() {
    let world = World::new(&[]);
    let (old, new) = (broker::start(), broker::start());
    let mut pair = world.pair();
    let before = told(
        &mut pair,
        &[(1, "127.0.0.1", old.port), (2, "127.0.0.1", old.port)],
    );
    told(&mut pair, &[(1, "127.0.0.1", old.port)]);
    let present = |node: i64| {
        let page = world.hapax.json("/api/v1/brokers");
        let rows = page["brokers"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["node"] == node).cloned();
        row.unwrap()["present"].as_bool().unwrap()
    };
    assert!(present(1) && !present(2));
    let after = told(
        &mut pair,
        &[(1, "127.0.0.1", old.port), (2, "127.0.0.1", new.port)],
    );
    assert_eq!(before, after);
    assert!(present(2));
    check_leads(after[1].2, &new);
}

#[test]
fn a_port_without_a_broker_leads_to_the_bootstrap_servers() {
    let world = World::new(&[]);
    check_leads(slot(&world.hapax, 3), &world.upstream);
}

#[test]
fn the_address_map_leads_to_what_can_be_reached() {
    let node = broker::start();
    let map = format!("--upstream-address-map={HOST}:9092=127.0.0.1:{}", node.port);
    let world = World::new(&[&map]);
    let mut pair = world.pair();
    let told = told(&mut pair, &[(7, HOST, 9092)]);
    assert_eq!(told, [(7, "127.0.0.1".to_owned(), slot(&world.hapax, 7))]);
    check_leads(told[0].2, &node);
}

#[test]
fn a_name_that_does_not_resolve_is_logged_with_the_broker_and_the_value() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    told(&mut pair, &[(7, "no-such-host.invalid", 9092)]);
    let port = slot(&world.hapax, 7);
    let mut client = Client::connect(&format!("127.0.0.1:{port}")).unwrap();
    ping(&mut client);
    assert!(client.is_closed(SOON * 2));
    let output = world.hapax.output();
    let line = output
        .lines()
        .find(|l| l.contains("no-such-host.invalid:9092 does not resolve"));
    let line = line.unwrap_or_else(|| panic!("{output}"));
    assert!(line.contains("--upstream-address-map"), "{line}");
    assert!(line.contains("\"node\":7"), "{line}");
    let cause = ["cause=\"resolve\""];
    let errors = world
        .hapax
        .metric("hapax_upstream_connect_errors_total", &cause);
    assert_eq!(errors, 1.0);
}

/// Each has a line of its own: the operator has to map both.
#[test]
fn two_names_that_do_not_resolve_are_both_logged() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let brokers = [(1, "one.invalid", 9092), (2, "two.invalid", 9092)];
    told(&mut pair, &brokers);
    for node in [1, 2] {
        let port = slot(&world.hapax, node);
        let mut client = Client::connect(&format!("127.0.0.1:{port}")).unwrap();
        ping(&mut client);
        assert!(client.is_closed(SOON * 2));
    }
    let output = world.hapax.output();
    assert!(output.contains("one.invalid:9092 does not"), "{output}");
    assert!(output.contains("two.invalid:9092 does not"), "{output}");
}

#[test]
fn clients_are_told_the_advertised_host() {
    let world = World::new(&["--listen-advertised-host=kafka.local"]);
    let mut pair = world.pair();
    let told = told(&mut pair, &[(7, HOST, 9092)]);
    assert_eq!(told, [(7, "kafka.local".to_owned(), slot(&world.hapax, 7))]);
}

#[test]
fn clients_are_told_a_host_for_each_slot() {
    let world = World::new(&["--listen-advertised-host=broker-{slot}.kafka.local"]);
    let mut pair = world.pair();
    let told = told(&mut pair, &[(7, HOST, 9092), (8, HOST, 9093)]);
    let expected = [7, 8].map(|node| {
        let host = format!("broker-{}.kafka.local", node % PORTS);
        (i32::from(node), host, slot(&world.hapax, node))
    });
    assert_eq!(told, expected);
}

#[test]
fn a_broker_whose_port_another_one_has_is_refused_where_replicas_have_to_agree() {
    let world = World::new(&["--listen-slot-collisions=refuse"]);
    let mut pair = world.pair();
    let high = 7 + i32::from(PORTS);
    let told = told(&mut pair, &[(high, HOST, 9092), (7, HOST, 9093)]);
    let ports: Vec<_> = told.iter().map(|(node, _, port)| (*node, *port)).collect();
    assert_eq!(ports, [(high, 0), (7, slot(&world.hapax, 7))]);
    let refused = world
        .hapax
        .metric("hapax_broker_slots_exhausted_total", &[]);
    assert_eq!(refused, 1.0);
}

#[test]
fn an_upstream_that_is_hapax_itself_is_refused_at_start() {
    let first = free_range(4);
    for port in [first, first + 1, first + 3] {
        for host in ["127.0.0.1", "localhost"] {
            let upstream = format!("{host}:{port}");
            let mut hapax = hapax::spawn(&upstream, "absorb", first, 2, &[]);
            assert_eq!(hapax.ended().code(), Some(78), "{upstream}");
            let output = hapax.output();
            assert!(output.contains("is hapax itself"), "{output}");
        }
    }
}

#[test]
fn a_broker_that_advertises_our_own_address_is_a_loop() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let (_, own) = world.hapax.bootstrap.rsplit_once(':').unwrap();
    told(&mut pair, &[(7, "localhost", own.parse().unwrap())]);
    let port = slot(&world.hapax, 7);
    let mut client = Client::connect(&format!("127.0.0.1:{port}")).unwrap();
    ping(&mut client);
    assert!(client.is_closed(SOON));
    let cause = ["cause=\"loop\""];
    let errors = world
        .hapax
        .metric("hapax_upstream_connect_errors_total", &cause);
    assert_eq!(errors, 1.0);
    let output = world.hapax.output();
    assert!(output.contains("is hapax itself"), "{output}");
    pair.barrier();
}

/// Bound to every address, any of this machine's is its own.
#[test]
fn a_broker_that_advertises_an_address_of_a_wildcard_listener_is_a_loop() {
    let upstream = broker::start();
    let first = free_range(PORTS + 2);
    let own = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: this only chooses the address that would be used.
    own.connect("192.0.2.1:9")
        .expect("the test needs an address beside loopback");
    let own = own.local_addr().unwrap().ip().to_string();
    let listen = format!("0.0.0.0:{first}");
    let hapax = std::process::Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["run", "--upstream", &upstream.address, "--listen", &listen])
        .arg(format!("--broker-ports={}-{}", first + 2, first + 3))
        .arg(format!("--admin-listen=127.0.0.1:{}", first + 1))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _hapax = KillOnDrop(hapax);
    let bootstrap = format!("127.0.0.1:{first}");
    await_until("hapax to listen", SOON, || {
        TcpStream::connect(&bootstrap).is_ok()
    });
    let mut client = Client::connect(&bootstrap).unwrap();
    let correlation = client.send(12, &MetadataRequest::default()).unwrap();
    let mut conn = upstream.accept();
    let asked = conn.next();
    conn.answer(&asked, &metadata(&[(0, &own, first)], None));
    client.receive::<MetadataRequest>(12, correlation).unwrap();
    let mut looped = Client::connect(&format!("127.0.0.1:{}", first + 2)).unwrap();
    ping(&mut looped);
    assert!(looped.is_closed(SOON));
    upstream.assert_idle();
}

struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_upstream_that_is_down_at_start_is_waited_for() {
    let [port] = kafka::free_ports();
    let address = format!("127.0.0.1:{port}");
    let hapax = start_with(&address, "absorb", PORTS, &[]);
    let ready = || hapax.page("/readyz").starts_with("HTTP/1.1 200");
    assert!(!ready());
    assert!(hapax.page("/livez").starts_with("HTTP/1.1 200"));
    let mut early = Client::connect(&hapax.bootstrap).unwrap();
    ping(&mut early);
    assert!(early.is_closed(SOON));
    let upstream = broker::start_at(port);
    await_until("readiness", SOON, ready);
    check_bootstrap(&hapax, &upstream);
}

fn check_bootstrap(hapax: &Hapax, upstream: &broker::Upstream) {
    let (_, port) = hapax.bootstrap.rsplit_once(':').unwrap();
    check_leads(port.parse().unwrap(), upstream);
}

#[test]
fn the_next_bootstrap_server_is_tried_where_one_is_down() {
    let [down] = kafka::free_ports();
    let upstream = broker::start();
    let both = format!("127.0.0.1:{down},{}", upstream.address);
    let hapax = start_with(&both, "absorb", PORTS, &[]);
    for _ in 0..3 {
        check_bootstrap(&hapax, &upstream);
    }
}

/// The address that hapax cannot read is not one that it may leak.
#[test]
fn a_version_that_hapax_cannot_rewrite_closes_the_connection() {
    let world = World::new(&[]);
    for (key, version) in [
        (3, 14),
        (1, 19),
        (10, 7),
        (60, 3),
        (78, 3),
        (79, 3),
        (0, 14),
    ] {
        let mut pair = world.pair();
        let (_, frame) = pair.client.frame_raw(key, version, 2, b"who knows");
        pair.client.send_raw(&frame).unwrap();
        assert!(pair.client.is_closed(SOON), "api {key} version {version}");
        pair.broker.assert_ended();
    }
}

#[test]
fn a_connection_is_shown_with_its_port_its_node_and_its_broker() {
    let world = World::new(&[]);
    let node = broker::start();
    let mut pair = world.pair();
    let told = told(&mut pair, &[(1, "127.0.0.1", node.port)]);
    let mut client = Client::connect(&format!("127.0.0.1:{}", told[0].2)).unwrap();
    ping(&mut client);
    let mut conn = node.accept();
    conn.next();
    world.upstream.assert_idle();
    let shown = world.hapax.json("/api/v1/connections");
    let rows = shown["connections"].as_array().unwrap();
    let row = rows.iter().find(|row| row["node"] == 1).unwrap();
    assert_eq!(row["port"], told[0].2);
    assert_eq!(row["upstream"], node.address.as_str());
}

#[test]
fn unknown_tagged_fields_beside_addresses_are_kept() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let full = metadata(&[(7, HOST, 9092)], None);
    let unknown = Bytes::from_static(b"who knows");
    let real = full.with_unknown_tagged_field(99, unknown.clone());
    let got = asked(&mut pair, 12, &MetadataRequest::default(), &real);
    assert_eq!(got.unknown_tagged_fields.get(&99), Some(&unknown));
    let mut body = BytesMut::new();
    got.encode(&mut body, 12).unwrap();
    assert!(!contains(&body, HOST));
}

/// A broker port leads to the bootstrap servers until its broker is known. A
/// client that came in then must not be kept at the wrong broker for ever.
#[test]
fn a_client_led_to_a_bootstrap_server_by_a_broker_port_is_led_on() {
    let world = World::new(&[]);
    let node = broker::start();
    let port = world.hapax.first_port + 1;
    let mut client = Client::connect(&format!("127.0.0.1:{port}")).unwrap();
    let asked = client.send(12, &MetadataRequest::default()).unwrap();
    let mut wrong = world.upstream.accept();
    let got = wrong.next();
    wrong.answer(&got, &metadata(&[(1, "127.0.0.1", node.port)], None));
    client.receive::<MetadataRequest>(12, asked).unwrap();
    // Broker 1 is at this port by now; this batch is for it.
    let request = produce(0);
    client.send(request.version, &request.request()).unwrap();
    wrong
        .stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    assert!(
        wrong.try_next().is_err(),
        "a batch for broker 1 went to a bootstrap server although broker 1 is known"
    );
    assert!(client.is_closed(Duration::from_secs(5)));
}
