//! What no real client can be brought to in minutes: a producer at the last
//! epoch, and one at the last sequence. Raw requests, sent again on a new
//! connection when their answers are lost, as a client does.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use crate::batch::Batch;
use crate::judge::Told;
use crate::producers::{Client, Line};
use crate::raw::Connection;
use crate::relay::Weather;
use crate::scene::{Lane, Road, Scene, Side};

/// Batches that a producer sends, and records of each.
const BATCHES: i32 = 120;
const RECORDS: i32 = 5;
/// Of the last epoch there are so many, before the producer takes a new id.
const IN_LAST_EPOCH: i32 = 60;

/// The epoch after 32767 does not exist: the producer takes a new id.
pub(crate) fn last_epoch(scene: &mut Scene) {
    run(scene, |ids, index| {
        let in_last = index < IN_LAST_EPOCH;
        let (id, epoch, first) = match in_last {
            true => (ids[0], i16::MAX, index),
            false => (ids[1], 0, index - IN_LAST_EPOCH),
        };
        (id, epoch, first * RECORDS)
    });
}

/// A producer that the broker knows nothing of may start anywhere: two records
/// before the last sequence of a batch in the middle.
pub(crate) fn sequence_wrap(scene: &mut Scene) {
    let start = i32::MAX - (BATCHES / 2) * RECORDS - 2;
    run(scene, move |ids, index| {
        let first = i64::from(start) + i64::from(index * RECORDS);
        let first = first % (i64::from(i32::MAX) + 1);
        (ids[0], 0, i32::try_from(first).expect("below 2^31"))
    });
}

/// Sends all batches on each way; every fourth answer on an average is lost.
fn run(scene: &mut Scene, batch: impl Fn(&[i64; 2], i32) -> (i64, i16, i32)) {
    for index in 0..scene.roads.len() {
        let topic = scene.cluster.create_topic("raw", 1);
        let mut random = scene.random.clone();
        let road = &scene.roads[index];
        let mut connection = connect(road, &topic);
        let ids = [(); 2].map(|()| connection.init_producer_id());
        let mut lines = Vec::new();
        for index in 0..BATCHES {
            let (id, epoch, first) = batch(&ids, index);
            let numbers = (index * RECORDS..).take(5);
            let values = numbers.map(|number| number.to_string());
            let bytes = Batch::of(id, epoch, first, values).bytes();
            let side = match random.below(8) {
                0 => Some(Side::Before),
                1 => Some(Side::Behind),
                _ => None,
            };
            let answer = deliver(road, &mut connection, &topic, &bytes, side);
            for n in 0..RECORDS {
                let (number, at) = (index * RECORDS + n, Instant::now());
                let value = match answer {
                    Ok(offset) => {
                        json!({"n": number, "partition": 0, "offset": offset + i64::from(n)})
                    }
                    Err(code) => json!({"n": number, "error": format!("error {code}")}),
                };
                lines.push(Line { at, value });
            }
        }
        let at = Instant::now();
        let value = json!({"sent": BATCHES * RECORDS});
        lines.push(Line { at, value });
        let told = Told {
            first: 0,
            lines,
            exit_code: Some(0),
            errors: String::new(),
            was_killed: false,
        };
        scene
            .lanes
            .push(Lane::ended(Client::Raw, road.way, topic, told));
    }
}

/// The offset that a batch is acknowledged with, on its first way or on a
/// later one, or the error of the last.
fn deliver(
    road: &Road,
    connection: &mut Connection,
    topic: &str,
    batch: &Bytes,
    lost: Option<Side>,
) -> Result<i64, i16> {
    let mut code = 0;
    if let Some(side) = lost {
        road.on(side).set(Weather::Losing {
            one_in: 1,
            dark_in_four: 0,
        });
    }
    for _ in 0..20 {
        match connection.try_produce(topic, batch) {
            Ok(answer) if answer.error_code == 0 => return Ok(answer.base_offset),
            Ok(answer) => {
                code = answer.error_code;
                // Time for what an error such as 6 or 19 asks for.
                crate::scene::pause(Duration::from_millis(50));
            }
            Err(_) => {
                for side in [Side::Before, Side::Behind] {
                    road.on(side).set(Weather::Calm);
                }
                *connection = connect(road, topic);
            }
        }
    }
    Err(code)
}

/// A connection to the leader of the topic's only partition, on this way.
fn connect(road: &Road, topic: &str) -> Connection {
    let response = Connection::open(road.first_address()).metadata(&[topic]);
    let leader = response.topics[0].partitions[0].leader_id;
    let mut brokers = response.brokers.iter();
    let broker = brokers.find(|broker| broker.node_id == leader);
    let broker = broker.expect("the leader is a broker");
    Connection::open(&format!("{}:{}", broker.host, broker.port))
}
