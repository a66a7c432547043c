//! How brokers are reached: those that are dead, come back, or move, and IPv6.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use kafka_protocol::messages::MetadataRequest;

use crate::broker::{self, Upstream};
use crate::support::hapax::{self, Hapax, start_with};
use crate::support::raw::Client;
use crate::support::{await_until, kafka};
use crate::world::{PORTS, Pair, SOON, World, metadata, ping};

/// Longer than a test lasts: nobody is tried twice by accident.
const LONG: [&str; 2] = [
    "--upstream-reconnect-backoff=1h",
    "--upstream-reconnect-backoff-max=1h",
];

/// Clients that met a failure of this cause.
fn errors(hapax: &Hapax, cause: &str) -> f64 {
    let label = format!("cause=\"{cause}\"");
    hapax.metric("hapax_upstream_connect_errors_total", &[&label])
}

/// A client at this address gets to that broker.
fn check_leads(address: &str, to: &Upstream) {
    Pair::of(Client::connect(address).unwrap(), to);
}

/// A client at this address is reset, as by a port that nobody listens on.
fn check_reset(address: &str) {
    let mut client = Client::connect(address).unwrap();
    ping(&mut client);
    let answer = client.receive_frame().map_err(|error| error.kind());
    assert_eq!(answer, Err(ErrorKind::ConnectionReset));
}

/// The answer to Metadata lists these brokers; gives what the client is told.
fn told(pair: &mut Pair, brokers: &[(i32, &str, u16)]) -> Vec<(i32, String, i32)> {
    let request = MetadataRequest::default();
    let correlation = pair.client.send(12, &request).unwrap();
    let asked = pair.broker.next();
    pair.broker.answer(&asked, &metadata(brokers, None));
    let answer = pair.client.receive::<MetadataRequest>(12, correlation);
    let listed = answer.unwrap().brokers.into_iter();
    listed
        .map(|b| (b.node_id.0, b.host.to_string(), b.port))
        .collect()
}

#[test]
fn a_dead_bootstrap_server_is_not_dialled_for_every_client_and_found_once_it_is_back() {
    let [port] = kafka::free_ports();
    let hapax = start_with(&format!("127.0.0.1:{port}"), "absorb", PORTS, &LONG);
    for _ in 0..30 {
        check_reset(&hapax.bootstrap);
    }
    let (refused, left_alone) = (errors(&hapax, "refused"), errors(&hapax, "left_alone"));
    assert!(refused <= 1.0, "{refused} clients were dialled for");
    assert_eq!(refused + left_alone, 30.0);
    let upstream = broker::start_at(port);
    // The readiness probe finds it, however long clients have to wait.
    await_until("readiness", SOON, || {
        hapax.page("/readyz").starts_with("HTTP/1.1 200")
    });
    for _ in 0..3 {
        check_leads(&hapax.bootstrap, &upstream);
    }
}

#[test]
fn a_dead_broker_is_not_dialled_for_every_client_and_found_once_it_is_back() {
    let [port] = kafka::free_ports();
    let world = World::new(&[
        "--upstream-reconnect-backoff=300ms",
        "--upstream-reconnect-backoff-max=300ms",
    ]);
    let mut pair = world.pair();
    let told = told(&mut pair, &[(1, "127.0.0.1", port)]);
    let address = format!("127.0.0.1:{}", told[0].2);
    let mut clients = 0.0;
    await_until("three tries", SOON, || {
        check_reset(&address);
        clients += 1.0;
        errors(&world.hapax, "refused") >= 3.0
    });
    let left_alone = errors(&world.hapax, "left_alone");
    assert_eq!(errors(&world.hapax, "refused") + left_alone, clients);
    let node = broker::start_at(port);
    let mut found = None;
    await_until("the broker to be found", SOON, || {
        let mut client = Client::connect(&address).unwrap();
        ping(&mut client);
        client.set_patience(Duration::from_millis(200));
        let answer = client.receive_frame().map_err(|error| error.kind());
        found = (answer != Err(ErrorKind::ConnectionReset)).then(|| node.accept());
        found.is_some()
    });
    check_leads(&address, &node);
    pair.barrier();
}

/// Where it is elsewhere by now, that nobody reached it there says nothing.
#[test]
fn a_broker_that_moves_is_reached_at_once() {
    let [dead] = kafka::free_ports();
    let world = World::new(&LONG);
    let mut pair = world.pair();
    let ours = told(&mut pair, &[(1, "127.0.0.1", dead)]);
    let address = format!("127.0.0.1:{}", ours[0].2);
    check_reset(&address);
    check_reset(&address);
    assert_eq!(errors(&world.hapax, "left_alone"), 1.0);
    let node = broker::start();
    let again = told(&mut pair, &[(1, "127.0.0.1", node.port)]);
    assert_eq!(again, ours, "clients are told what they were told");
    check_leads(&address, &node);
}

/// Brokers are replaced one by one for as long as hapax runs; a client that
/// starts then knows nobody but hapax.
#[test]
fn listed_brokers_stand_in_for_bootstrap_servers_that_are_gone() {
    let world = World::new(&[]);
    let node = broker::start();
    let mut pair = world.pair();
    told(&mut pair, &[(2, "127.0.0.1", node.port)]);
    world.upstream.close();
    check_leads(&world.hapax.bootstrap, &node);
}

/// Clients that still know it come for a while, and nobody has to act on it.
#[test]
fn a_broker_that_has_left_is_no_error() {
    let [gone] = kafka::free_ports();
    let world = World::new(&[]);
    let mut pair = world.pair();
    let brokers = [
        (1, "127.0.0.1", gone),
        (2, "127.0.0.1", world.upstream.port),
    ];
    let ours = told(&mut pair, &brokers);
    told(&mut pair, &brokers[1..]);
    check_reset(&format!("127.0.0.1:{}", ours[0].2));
    assert_eq!(errors(&world.hapax, "refused"), 1.0);
    let output = world.hapax.output();
    assert!(
        output.contains("no longer lists, client closed"),
        "{output}"
    );
    assert!(!output.contains("ERROR"), "{output}");
}

/// A broker that is replaced under another node id where it was.
#[test]
fn two_node_ids_at_one_address_are_both_reached_there() {
    let world = World::new(&[]);
    let node = broker::start();
    let mut pair = world.pair();
    let old = told(&mut pair, &[(1, "127.0.0.1", node.port)]);
    let new = told(&mut pair, &[(6, "127.0.0.1", node.port)]);
    assert_eq!((old[0].0, new[0].0), (1, 6));
    assert_ne!(old[0].2, new[0].2);
    for port in [old[0].2, new[0].2] {
        check_leads(&format!("127.0.0.1:{port}"), &node);
    }
}

/// Addresses change one after the other, and brokers that have not heard of it
/// tell the old ones: nobody's connection ends by that, and no port changes.
#[test]
fn brokers_that_are_advertised_anew_one_by_one_keep_ports_and_clients() {
    let world = World::new(&[]);
    let old = [broker::start(), broker::start()];
    let new = [broker::start(), broker::start()];
    let mut pair = world.pair();
    let listed = |a: &Upstream, b: &Upstream| [(1, "127.0.0.1", a.port), (2, "127.0.0.1", b.port)];
    let ours = told(&mut pair, &listed(&old[0], &old[1]));
    let address = |n: usize| format!("127.0.0.1:{}", ours[n].2);
    let mut client = Client::connect(&address(0)).unwrap();
    ping(&mut client);
    let mut broker = old[0].accept();
    let asked = broker.next();
    for (a, b) in [(&new[0], &old[1]), (&old[0], &old[1]), (&new[0], &new[1])] {
        assert_eq!(told(&mut pair, &listed(a, b)), ours);
        check_leads(&address(0), a);
        check_leads(&address(1), b);
    }
    broker.answer_raw(&asked, b"still here");
    assert_eq!(client.receive_frame().unwrap()[4..], *b"still here");
}

/// An address that swallows whoever connects, as a dead machine does.
struct BlackHole {
    address: SocketAddr,
    _full: (TcpListener, TcpStream),
}

impl BlackHole {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        // One waits to be accepted; the next ones are not answered.
        let waits = TcpStream::connect(address).unwrap();
        let next = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        assert_eq!(next.unwrap_err().kind(), ErrorKind::TimedOut);
        Self {
            address,
            _full: (listener, waits),
        }
    }
}

/// A client would have given up long before `timeouts.connect`.
#[test]
fn bootstrap_servers_that_are_dead_or_swallow_everything_hide_no_other() {
    let (hole, upstream) = (BlackHole::new(), broker::start());
    let [dead] = kafka::free_ports();
    let all = [
        hole.address.to_string(),
        format!("127.0.0.1:{dead}"),
        "no-such-host.invalid:9092".to_owned(),
        upstream.address.clone(),
    ];
    let flags = ["--timeouts-connect=10m"];
    let hapax = start_with(&all.join(","), "absorb", PORTS, &flags);
    for _ in 0..3 {
        check_leads(&hapax.bootstrap, &upstream);
    }
}

/// Of a broker that swallows everything each client hears by itself, and the
/// others are served.
#[test]
fn a_broker_that_swallows_everything_keeps_no_client_of_another() {
    let world = World::new(&["--timeouts-connect=1s"]);
    let (hole, node) = (BlackHole::new(), broker::start());
    let mut pair = world.pair();
    let brokers = [
        (1, "127.0.0.1", hole.address.port()),
        (2, "127.0.0.1", node.port),
    ];
    let ours = told(&mut pair, &brokers);
    check_reset(&format!("127.0.0.1:{}", ours[0].2));
    assert_eq!(errors(&world.hapax, "timeout"), 1.0);
    check_leads(&format!("127.0.0.1:{}", ours[1].2), &node);
}

fn on_six() -> Upstream {
    broker::start_on(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))
}

#[test]
fn clients_admin_and_brokers_may_all_be_on_ipv6() {
    let (upstream, node, mapped) = (on_six(), on_six(), on_six());
    let map = format!(
        "--upstream-address-map=[2001:db8::7]:9092=[::1]:{}",
        mapped.port
    );
    let hapax = hapax::start_at("[::1]", &upstream.address, "absorb", PORTS, &[&map]);
    await_until("readiness", SOON, || {
        hapax.page("/readyz").starts_with("HTTP/1.1 200")
    });
    let client = Client::connect(&hapax.bootstrap).unwrap();
    let mut pair = Pair::of(client, &upstream);
    let brokers = [(1, "::1", node.port), (7, "2001:db8::7", 9092)];
    let ours = told(&mut pair, &brokers);
    let slot = |node: u16| i32::from(hapax.first_port + node % PORTS);
    let expected = [(1, slot(1)), (7, slot(7))].map(|(id, port)| (id, "::1".to_owned(), port));
    assert_eq!(ours, expected);
    check_leads(&format!("[::1]:{}", ours[0].2), &node);
    check_leads(&format!("[::1]:{}", ours[1].2), &mapped);
    let page = hapax.json("/api/v1/brokers").to_string();
    assert!(page.contains("[2001:db8::7]:9092"), "{page}");
}

#[test]
fn an_upstream_that_is_hapax_itself_is_found_out_on_ipv6() {
    let node = on_six();
    let hapax = hapax::start_at("[::1]", &node.address, "absorb", PORTS, &[]);
    let client = Client::connect(&hapax.bootstrap).unwrap();
    let mut pair = Pair::of(client, &node);
    let (_, own) = hapax.bootstrap.rsplit_once(':').unwrap();
    let ours = told(&mut pair, &[(1, "::1", own.parse().unwrap())]);
    check_reset(&format!("[::1]:{}", ours[0].2));
    assert_eq!(errors(&hapax, "loop"), 1.0);
}

/// Each client is told the address by which it came.
#[test]
fn a_listener_for_both_families_tells_each_client_its_own() {
    let upstream = broker::start();
    let hapax = hapax::start_at("[::]", &upstream.address, "absorb", PORTS, &[]);
    let (_, port) = hapax.bootstrap.rsplit_once(':').unwrap();
    for (host, told_host) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
        let client = Client::connect(&format!("{host}:{port}")).unwrap();
        let mut pair = Pair::of(client, &upstream);
        let ours = told(&mut pair, &[(1, "127.0.0.1", upstream.port)]);
        assert_eq!(ours[0].1, told_host);
        check_leads(&format!("{host}:{}", ours[0].2), &upstream);
    }
}
