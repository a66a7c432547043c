//! sarama (`asyncProducer.retryBatch`, `returnErrors`).

use super::super::broker::{NOT_ENOUGH_REPLICAS, NOT_LEADER, TOO_FEW_AFTER_APPEND};
use super::super::broker::{UNKNOWN_TOPIC_ID, advance};
use super::{Answered, Client};

/// `Producer.Retry.Max`
const RETRIES_MAX: u32 = 3;

pub(super) fn answered(client: &mut Client, answered: Answered) {
    let Answered { lane, at, answer } = answered;
    let of = &mut client.lanes[lane];
    match answer.error {
        0 => {
            let batch = of.items[at].batch;
            of.acked_end = advance(batch.first, batch.count);
            client.acked(answered);
        }
        // It names topics: the last of these is a 3 to it.
        7 | NOT_LEADER | NOT_ENOUGH_REPLICAS | TOO_FEW_AFTER_APPEND | UNKNOWN_TOPIC_ID => {
            retried(client, lane, at);
        }
        _ => fail(client, lane, at),
    }
}

/// A batch failed, and is sent again if it may.
pub(super) fn retried(client: &mut Client, lane: usize, at: usize) {
    if client.lanes[lane].items[at].retries > RETRIES_MAX {
        fail(client, lane, at);
    }
}

/// The application is told of an error, and all sequences begin anew. What
/// was sent keeps its place: a batch is numbered as it leaves.
fn fail(client: &mut Client, lane: usize, at: usize) {
    client.lanes[lane].give_up(at);
    let epoch = client.new_epoch();
    for lane in &mut client.lanes {
        lane.epoch = epoch;
        lane.next_first = 0;
        lane.acked_end = 0;
    }
}
