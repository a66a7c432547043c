//! librdkafka (`rd_kafka_handle_Produce_error`, `rd_kafka_idemp_drain_epoch_bump`).

use super::super::broker::{NOT_ENOUGH_REPLICAS, NOT_LEADER, OUT_OF_ORDER, TOO_FEW_AFTER_APPEND};
use super::super::broker::{UNKNOWN_TOPIC_ID, advance};
use super::{Answered, Client, Lane, Told};

/// After an error all of a partition comes back before anything goes again.
pub(super) fn may_leave(client: &Client, lane: &Lane) -> bool {
    let coming_back = lane.draining && !lane.idle();
    !(client.bump || lane.unresolved || coming_back)
}

/// The new epoch begins on all partitions once nothing is on its way.
pub(super) fn settle(client: &mut Client) {
    let unresolved = client.lanes.iter().any(|lane| lane.unresolved);
    if (client.bump || unresolved) && client.lanes.iter().all(Lane::idle) {
        client.bump = false;
        let epoch = client.new_epoch();
        for lane in &mut client.lanes {
            lane.restamp(epoch);
        }
    }
}

pub(super) fn answered(client: &mut Client, answered: Answered) {
    let Answered { lane, at, answer } = answered;
    let of = &mut client.lanes[lane];
    let batch = of.items[at].batch;
    match answer.error {
        0 => {
            of.acked_end = advance(batch.first, batch.count);
            // A later success is taken to acknowledge what was before it.
            for item in of.items.drain(..at) {
                of.acked.push(Told {
                    batch: item.batch,
                    offset: None,
                });
            }
            client.acked(Answered { at: 0, ..answered });
        }
        OUT_OF_ORDER if batch.first == of.acked_end => client.die(),
        OUT_OF_ORDER => {
            of.draining = true;
            client.bump = true;
        }
        3 | 7 | NOT_LEADER | NOT_ENOUGH_REPLICAS | TOO_FEW_AFTER_APPEND | UNKNOWN_TOPIC_ID => {
            of.draining = true;
        }
        _ => {
            of.give_up(at);
            client.bump = true;
        }
    }
}
