//! What clients only announce costs a broker nothing: brokers take memory for
//! a frame once they have heard its length.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::{Cluster, Options};
use crate::hapax::{Hapax, Route};
use crate::raw::{Connection, batch};
use crate::tools::wait_for;

/// More than the heap of a test's broker has room for, ten times over.
const CLIENTS: usize = 50;
/// The largest frame that a broker takes by default.
const FRAME: i32 = 100 << 20;

#[test]
fn fifty_announcements_of_100_mib_leave_a_broker_of_512_mib_alone() {
    if Route::chosen() == Route::Direct {
        // Kafka alone runs out of memory.
        return;
    }
    let cluster = Cluster::start(Options::default());
    let topic = cluster.create_topic("beside", 1);
    let hapax = Hapax::in_front_of(&cluster, &[]);
    let mut client = Connection::open(&hapax.bootstrap());
    client.metadata(&[&topic]);
    let producer = client.init_producer_id();

    let begun = [&FRAME.to_be_bytes()[..], &[0, 0, 0, 9, 0, 0, 0, 1, 0, 0]].concat();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(hapax.bootstrap()).expect("a connection");
            stream.write_all(&begun).expect("ten bytes are taken");
            stream
        })
        .collect();
    wait_for("hapax to hear all of them", Duration::from_secs(30), || {
        let heard = hapax.metric("hapax_received_bytes_total", &[("side", "client")]);
        (heard > (CLIENTS * begun.len()) as f64).then_some(())
    });

    for first in 0..20 {
        let answer = client.produce(&topic, &batch(producer, first, 1_700_000_000_000, "beside"));
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, i64::from(first))
        );
    }
    assert_eq!(cluster.log(&topic).len(), 20);
    assert_eq!(cluster.connect(0).metadata(&[&topic]).brokers.len(), 1);
    drop(clients);
}
