//! From the start to the end of a process: what is served meanwhile, what the
//! probes say, and what is cut when the time is over.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use serde_json::Value;

use crate::broker::OPAQUE;
use crate::support::raw::Client;
use crate::support::{await_until, hapax};
use crate::world::{PORTS, Pair, SOON, World, ping, produce};

/// hapax has been told to end, and says so.
fn draining(world: &World) {
    await_until("hapax to drain", SOON, || {
        world.hapax.page("/readyz").starts_with("HTTP/1.1 503")
    });
    assert_eq!(world.gauge("hapax_draining"), 1.0);
    let health = world.hapax.json("/readyz");
    assert!(checks(&health).contains(&"draining"), "{health}");
    // The others stay as they are.
    for path in ["/startupz", "/livez"] {
        assert!(world.hapax.page(path).starts_with("HTTP/1.1 200"), "{path}");
    }
}

/// What the reasons of a probe are about.
fn checks(health: &Value) -> Vec<&str> {
    let reasons = health["reasons"].as_array().unwrap().iter();
    reasons
        .map(|reason| reason["check"].as_str().unwrap())
        .collect()
}

/// The connection ends between two frames, and not by a reset.
fn closed(client: &mut Client) {
    let mut byte = [0];
    let end = client.stream().read(&mut byte);
    assert!(matches!(end, Ok(0)), "{end:?}");
}

/// Nobody listens there any more.
fn refuses(address: &str) {
    await_until("the port to be closed", SOON, || {
        let error = TcpStream::connect(address).err();
        error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
}

fn ended(mut world: World) -> (Option<i32>, String) {
    let code = world.hapax.ended().code();
    (code, world.hapax.output())
}

/// A field of the log line with this message.
fn logged(output: &str, message: &str) -> Value {
    let lines = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let mut lines = lines.filter(|line: &Value| {
        let said = line["message"].as_str().unwrap_or_default();
        said.starts_with(message)
    });
    lines
        .next()
        .unwrap_or_else(|| panic!("no such line: {output}"))
}

#[test]
fn until_requests_answers_what_has_come_and_closes_between_two_frames() {
    let world = World::new(&["--drain-until=requests", "--drain-timeout=60s"]);
    let mut silent = world.client();
    let mut idle = world.pair();
    let mut busy = world.pair();
    let owed = busy.send(&produce(0));
    let asked = busy.broker.next();
    world.hapax.signal("TERM");
    draining(&world);
    refuses(&world.hapax.bootstrap);
    closed(&mut silent);
    closed(&mut idle.client);
    idle.broker.assert_ended();
    // What is open keeps its connection until it is answered.
    busy.broker.assert_silent();
    busy.broker.ack(&asked, 7);
    assert_eq!(busy.receive_one(&owed).offset, 7);
    closed(&mut busy.client);
    drop((silent, idle, busy));
    let (code, output) = ended(world);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("drained"), "{output}");
}

/// A client sends on, since it cannot know. What it sends later reaches no
/// broker, and does not cost it the answers that it has earned.
#[test]
fn until_requests_forwards_nothing_that_comes_too_late() {
    let world = World::new(&["--drain-until=requests", "--drain-timeout=60s"]);
    let mut pair = world.pair();
    let owed = pair.send(&produce(0));
    let asked = pair.broker.next();
    // Half a frame: the broker does not hear of it.
    let (_, half) = pair.client.frame_raw(OPAQUE, 0, 1, &[7; 500]);
    pair.client.send_raw(&half[..300]).unwrap();
    world.hapax.signal("TERM");
    draining(&world);
    refuses(&world.hapax.bootstrap);
    // It has left by the time it has no port: everything after this is late.
    pair.client.send_raw(&half[300..]).unwrap();
    ping(&mut pair.client);
    pair.broker.assert_silent();
    pair.broker.ack(&asked, 7);
    assert_eq!(pair.receive_one(&owed).offset, 7);
    closed(&mut pair.client);
    pair.broker.assert_ended();
    drop(pair);
    assert_eq!(ended(world).0, Some(0));
}

#[test]
fn until_requests_serves_a_held_request_too() {
    let world = World::new(&["--drain-until=requests", "--drain-timeout=60s"]);
    let (mut first, mut second) = (world.pair(), world.pair());
    let first_owed = first.send(&produce(0));
    let asked = first.broker.next();
    let second_owed = second.send(&produce(1));
    await_until("the hold", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    world.hapax.signal("TERM");
    draining(&world);
    first.broker.ack(&asked, 0);
    assert_eq!(first.receive_one(&first_owed).offset, 0);
    let asked = second.broker.next();
    second.broker.ack(&asked, 1);
    assert_eq!(second.receive_one(&second_owed).offset, 1);
    closed(&mut second.client);
    drop((first, second));
    assert_eq!(ended(world).0, Some(0));
}

#[test]
fn until_connections_serves_new_clients_too_and_ends_with_the_last() {
    let world = World::new(&["--drain-timeout=60s"]);
    let mut old = world.pair();
    world.hapax.signal("TERM");
    draining(&world);
    old.write(&produce(0), 0);
    let mut new = world.pair();
    drop(old);
    new.write(&produce(1), 1);
    await_until("the old client to be gone", SOON, || {
        world.gauge("hapax_client_connections") == 1.0
    });
    new.write(&produce(2), 2);
    drop(new);
    assert_eq!(ended(world).0, Some(0));
}

#[test]
fn a_delay_serves_everything_as_before_but_for_readiness() {
    let world = World::new(&[
        "--drain-until=requests",
        "--drain-min-delay=60s",
        "--drain-timeout=120s",
    ]);
    world.hapax.signal("TERM");
    draining(&world);
    let mut new = world.pair();
    new.write(&produce(0), 0);
    drop(new);
    // Not its own time, but somebody's patience ends it.
    world.hapax.signal("TERM");
    let (code, output) = ended(world);
    assert_eq!(code, Some(1), "{output}");
}

#[test]
fn when_the_time_is_over_what_is_cut_is_counted_one_by_one() {
    for until in ["connections", "requests"] {
        let until = format!("--drain-until={until}");
        let world = World::new(&[&until, "--drain-timeout=2s", "--log-level=info"]);
        let mut pairs = [world.pair(), world.pair(), world.pair()];
        for (pair, open) in pairs.iter_mut().zip([3, 1, 2]) {
            for _ in 0..open {
                ping(&mut pair.client);
                pair.broker.next();
            }
        }
        // One is answered and does not count.
        let [first, ..] = &mut pairs;
        ping(&mut first.client);
        let asked = first.broker.next();
        world.hapax.signal("TERM");
        draining(&world);
        drop(asked);
        // The client reads its connection's end, whatever it waits for.
        for pair in &mut pairs {
            closed(&mut pair.client);
        }
        drop(pairs);
        let (code, output) = ended(world);
        assert_eq!(code, Some(0), "{output}");
        let line = logged(&output, "the time to drain is over");
        assert_eq!(
            (&line["connections"], &line["requests"]),
            (&3.into(), &7.into())
        );
    }
}

/// A request that waits for another one's answer was never forwarded.
#[test]
fn a_held_request_is_cut_and_counted() {
    let world = World::new(&["--drain-timeout=2s", "--sequence-hold-max=60s"]);
    let (mut first, mut second) = (world.pair(), world.pair());
    first.send(&produce(0));
    let _asked = first.broker.next();
    second.send(&produce(1));
    await_until("the hold", SOON, || {
        world.gauge("hapax_held_requests") == 1.0
    });
    let silent = world.client();
    world.hapax.signal("TERM");
    let (code, output) = ended(world);
    drop((first, second, silent));
    assert_eq!(code, Some(0), "{output}");
    let line = logged(&output, "the time to drain is over");
    assert_eq!(
        (&line["connections"], &line["requests"]),
        (&3.into(), &2.into())
    );
}

#[test]
fn the_api_and_the_command_end_it_as_sigterm_does() {
    let world = World::new(&["--drain-timeout=60s"]);
    let Pair { client, mut broker } = world.pair();
    let admin = world.hapax.admin.clone();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.args(arguments).env("HAPAX_ADMIN", &admin);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, said) = command(&["drain"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("connections open: 1"), "{said}");
    draining(&world);
    // Asking again does not force it, unlike a second signal.
    let (code, said) = command(&["drain", "--max", "100ms"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is still there"), "{said}");
    let waiting = std::thread::spawn({
        let admin = admin.clone();
        move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
            let command = command.args(["drain", "--max", "60s", "--admin", &admin]);
            command.output().unwrap().status.code()
        }
    });
    drop(client);
    broker.assert_ended();
    let (code, output) = ended(world);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("told to end by the API"), "{output}");
    let waited = waiting.join().unwrap();
    // Where it asked too late nobody was there to be told.
    assert!(matches!(waited, Some(0 | 1)), "{waited:?}");
}

/// A broker that is there once, and then no more.
#[test]
fn started_means_a_broker_too_where_that_is_asked_for_and_stays_so() {
    let port = hapax::free_range(1);
    let upstream = format!("127.0.0.1:{port}");
    let first = hapax::free_range(PORTS + 2);
    let flags = ["--startup-require-upstream"];
    let hapax = hapax::spawn(&upstream, "absorb", first, PORTS, &flags);
    // Clients can connect before that.
    await_until("the ports", SOON, || {
        TcpStream::connect(&hapax.bootstrap).is_ok()
    });
    await_until("the listeners' check", SOON, || {
        let health = hapax.json("/startupz");
        checks(&health) == ["upstream", "startup"] || checks(&health) == ["startup", "upstream"]
    });
    assert!(hapax.page("/startupz").starts_with("HTTP/1.1 503"));
    let listener = TcpListener::bind(&upstream).unwrap();
    let (mut probe, _) = listener.accept().unwrap();
    probe.read_exact(&mut [0; 19]).unwrap();
    probe.write_all(b"\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0").unwrap();
    await_until("the start", SOON, || {
        hapax.page("/startupz").starts_with("HTTP/1.1 200")
    });
    drop((probe, listener));
    await_until("the loss", 2 * SOON, || {
        hapax.page("/readyz").starts_with("HTTP/1.1 503")
    });
    assert_eq!(checks(&hapax.json("/readyz")), ["upstream"]);
    assert!(hapax.page("/startupz").starts_with("HTTP/1.1 200"));
    assert!(hapax.page("/livez").starts_with("HTTP/1.1 200"));
}
