//! The end of a hapax that has clients, as a pod's end is.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiVersionsRequest;
use serde_json::Value;

use crate::clients::{Client, Running};
use crate::cluster::assert_once_in_order;
use crate::hapax::{Hapax, Ports};
use crate::raw::{Connection, batch};
use crate::report::say;
use crate::tools::{free_ports, wait_for};
use crate::world::{CLIENT_TLS, DOOR_TLS, PATIENCE, UPSTREAM_TLS, World, finished};

const CLIENTS: [Client; 2] = [Client::Java, Client::Confluent];

/// Some clients at work, and their topics.
struct Load<'a> {
    world: &'a World,
    topics: Vec<String>,
    producers: Vec<Running>,
    sent: Vec<u64>,
}

impl<'a> Load<'a> {
    /// At work already.
    fn start(world: &'a World, bootstrap: &str) -> Self {
        let mut load = Self {
            world,
            topics: Vec::new(),
            producers: Vec::new(),
            sent: Vec::new(),
        };
        for client in CLIENTS {
            let topic = world.cluster.create_topic("drained", 1);
            load.producers
                .push(world.producer(client, bootstrap, &topic, CLIENT_TLS));
            load.topics.push(topic);
        }
        load.go_on(300);
        load
    }

    /// Each gets so many acknowledgements more.
    fn go_on(&self, count: usize) {
        let printed: Vec<_> = self.producers.iter().map(Running::printed).collect();
        for (producer, printed) in self.producers.iter().zip(printed) {
            producer.wait_for_lines(printed + count);
        }
    }

    /// Clients that start only now send some records and end.
    fn newcomers(&mut self, bootstrap: &str) {
        for client in CLIENTS {
            let topic = self.world.cluster.create_topic("newcomer", 1);
            let arguments = format!("--topic {topic} --count 200 --rate 500 {CLIENT_TLS}");
            let produced = self.world.client(client, "produce", bootstrap, &arguments);
            assert_eq!(finished(produced), 200);
            self.topics.push(topic);
        }
    }

    /// Everybody ends; nobody has heard of an error.
    fn finish(&mut self) {
        let producers = self.producers.drain(..);
        self.sent = producers.map(finished).collect();
        say(format!("sent and acknowledged: {:?}", self.sent));
    }

    /// Everything is in the logs, once and in order.
    fn check(self) {
        let topics: Vec<_> = self.topics.iter().map(String::as_str).collect();
        let newcomers = [200].into_iter().cycle();
        let sent = self.sent.into_iter().chain(newcomers);
        for (log, sent) in self.world.cluster.logs(&topics).iter().zip(sent) {
            assert_once_in_order(log, sent);
        }
    }
}

fn hapax(world: &World, ports: Ports, more: &str) -> Hapax {
    let at = world.cluster.ssl_bootstrap();
    world.hapax_on(ports, &at, &format!("{DOOR_TLS} {UPSTREAM_TLS} {more}"))
}

/// Has hapax drain, and waits until it says so.
fn drain(hapax: &Hapax) {
    hapax.sigterm();
    wait_for("a draining hapax", PATIENCE, || {
        hapax.probe("/readyz").filter(|status| *status == 503)
    });
}

/// A sidecar serves the application to its end, and clients that it starts
/// meanwhile; then it ends.
pub(crate) fn until_connections(world: &World) {
    let mut hapax = hapax(world, Ports::free(8), "--drain-timeout 10m");
    let mut load = Load::start(world, &hapax.bootstrap());
    drain(&hapax);
    load.newcomers(&hapax.bootstrap());
    load.go_on(500);
    assert!(!hapax.has_ended(), "clients are still there");
    load.finish();
    let closed = Instant::now();
    assert_eq!(hapax.exit_code(PATIENCE), Some(0));
    say(format!(
        "until connections: exit 0, {:?} after the last client",
        closed.elapsed()
    ));
    assert_eq!(logged(&hapax, "the time to drain is over"), None);
    load.check();
}

/// A gateway answers what has come and leaves; its clients find another replica
/// at the same address.
pub(crate) fn until_requests(world: &World) {
    let first = free_ports(10);
    let replica = |host: &str| Ports {
        host: host.to_owned(),
        bootstrap: first,
        brokers: (first + 1, first + 8),
        admin: free_ports(1),
    };
    let flags = "--drain-until requests --drain-timeout 10m --listen-advertised-host 127.0.0.9";
    let mut leaving = hapax(world, replica("127.0.0.2"), flags);
    let staying = hapax(world, replica("127.0.0.3"), flags);
    balance(first..=first + 8);
    let service = format!("127.0.0.9:{first}");
    let mut load = Load::start(world, &service);
    let start = Instant::now();
    drain(&leaving);
    let code = leaving.exit_code(PATIENCE);
    say(format!(
        "until requests: exit {code:?}, {:?} after SIGTERM",
        start.elapsed()
    ));
    assert_eq!(code, Some(0));
    assert_eq!(logged(&leaving, "the time to drain is over"), None);
    load.newcomers(&service);
    load.go_on(500);
    assert!(staying.metric("hapax_verdicts_total", &[("verdict", "forwarded")]) > 0.0);
    load.finish();
    load.check();
}

/// What stands before the replicas of a gateway: whoever takes a connection gets it.
fn balance(ports: std::ops::RangeInclusive<u16>) {
    for port in ports {
        let listener = TcpListener::bind(("127.0.0.9", port)).expect("a free port");
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a listener accepts");
                let far = ["127.0.0.2", "127.0.0.3"]
                    .iter()
                    .find_map(|host| TcpStream::connect((*host, port)).ok());
                let far = far.expect("one replica stays");
                for (mut from, mut to) in [
                    (
                        near.try_clone().expect("a second handle"),
                        far.try_clone().expect("one"),
                    ),
                    (far, near),
                ] {
                    thread::spawn(move || {
                        // However it ends, the other side hears of it.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
    }
}

/// Clients that stay are cut in the middle of their work when the time is over;
/// the next hapax takes them up.
pub(crate) fn cut_under_load(world: &World) {
    let ports = Ports::free(8);
    let mut old = hapax(world, ports.clone(), "--drain-timeout 1s");
    let mut load = Load::start(world, &old.bootstrap());
    let connections = old.metric("hapax_client_connections", &[]);
    drain(&old);
    assert_eq!(old.exit_code(PATIENCE), Some(0));
    let cut = logged(&old, "the time to drain is over").expect("it says what it cut");
    say(format!(
        "cut under load: {} connections with {} requests open",
        cut["connections"], cut["requests"]
    ));
    assert_eq!(cut["connections"].as_f64(), Some(connections), "{cut}");
    let _new = hapax(world, ports, "");
    load.go_on(500);
    load.finish();
    load.check();
}

/// What was cut is counted to a request: what hapax says is what its clients
/// wait for in vain.
pub(crate) fn the_cut_is_counted(world: &World, until: &str) {
    const IDLE: usize = 2;
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 3;
    let flags = format!("--drain-until {until} --drain-timeout 1s");
    let mut hapax = hapax(world, Ports::free(8), &flags);
    let topic = world.cluster.create_topic("cut", 1);
    let connect = || world.connect(&hapax.bootstrap());
    let mut idle: Vec<_> = (0..IDLE).map(|_| connect()).collect();
    for connection in &mut idle {
        connection.call(0, &ApiVersionsRequest::default());
    }
    let mut clients: Vec<(Connection, i64)> = Vec::new();
    for client in 0..CLIENTS {
        let mut connection = connect();
        let producer = connection.init_producer_id();
        // Half of them have an acknowledgement; the others' second request waits for the first.
        if client % 2 == 0 {
            let answer = connection.produce(&topic, &batch(producer, 0, 0, "0"));
            assert_eq!(answer.error_code, 0);
        }
        clients.push((connection, producer));
    }
    let asleep = Asleep::new(world);
    for (client, (connection, producer)) in clients.iter_mut().enumerate() {
        for request in 0..REQUESTS {
            let sequence = i32::try_from(request + (client + 1) % 2).expect("few");
            connection.send_produce(&topic, &batch(*producer, sequence, 0, "0"));
        }
    }
    let connections = idle
        .iter()
        .chain(clients.iter().map(|(connection, _)| connection));
    let bytes: usize = connections.map(Connection::bytes_sent).sum();
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let bytes = bytes as f64;
    wait_for("the requests", PATIENCE, || {
        let received = hapax.metric("hapax_received_bytes_total", &[("side", "client")]);
        (received >= bytes).then_some(())
    });
    drain(&hapax);
    let code = hapax.exit_code(PATIENCE);
    drop(asleep);
    assert_eq!(code, Some(0));
    let unanswered = clients
        .iter_mut()
        .map(|(connection, _)| {
            assert!(connection.is_ended(), "the broker was asleep");
            REQUESTS
        })
        .sum::<usize>();
    for mut connection in idle {
        assert!(connection.is_ended());
    }
    let cut = logged(&hapax, "the time to drain is over").expect("it says what it cut");
    say(format!(
        "until {until}: {unanswered} requests went unanswered, hapax counted {}",
        cut["requests"]
    ));
    assert_eq!(cut["requests"], unanswered, "{cut}");
    let left = if until == "connections" {
        CLIENTS + IDLE
    } else {
        CLIENTS
    };
    assert_eq!(cut["connections"], left, "{cut}");
    // The broker is well again for whoever comes next.
    wait_for("the broker", Duration::from_secs(60), || {
        let next = world.cluster.connect(0).init_producer_id();
        (next >= 0).then_some(())
    });
}

/// A broker that does nothing; it wakes up when dropped, by a failure too.
struct Asleep<'a>(&'a World);

impl<'a> Asleep<'a> {
    fn new(world: &'a World) -> Self {
        world.cluster.freeze(0);
        Self(world)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.cluster.thaw(0);
    }
}

/// The fields of the log line with this message.
fn logged(hapax: &Hapax, message: &str) -> Option<Value> {
    let log = hapax.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut lines = lines.filter(|line| {
        let said = line["message"].as_str().unwrap_or_default();
        said.starts_with(message)
    });
    lines.next()
}
