//! Java (`Sender`, `RecordAccumulator`, `TransactionManager`).

use super::super::broker::{NOT_ENOUGH_REPLICAS, NOT_LEADER, OUT_OF_ORDER, TOO_FEW_AFTER_APPEND};
use super::super::broker::{TOO_LARGE, UNKNOWN_TOPIC_ID, advance};
use super::{Answered, Client, Lane, split, to_split};

/// `shouldStopDrainBatchesForPartition`: a batch that was sent before goes
/// only if it is the lowest in flight; a new one only if nothing is unknown
/// and no batch of an older epoch is left.
pub(super) fn may_leave(client: &Client, lane: &Lane, at: usize) -> bool {
    if lane.items[at].stamped {
        return at == 0;
    }
    let outdated = lane.epoch != client.epoch && lane.items.iter().any(|i| i.stamped);
    !outdated && !lane.unresolved
}

/// `maybeUpdateProducerIdAndEpoch`: a partition without batches in flight
/// joins the newest epoch.
pub(super) fn before_send(client: &mut Client, lane: usize, at: usize) {
    let epoch = client.epoch;
    let lane = &mut client.lanes[lane];
    if lane.items[at].stamped {
        return;
    }
    if lane.epoch != epoch {
        lane.restamp(epoch);
    }
    lane.stamp(at);
}

/// `maybeResolveSequences`: batches that wait to be sent again count as being
/// in flight.
pub(super) fn settle(client: &mut Client) {
    for at in 0..client.lanes.len() {
        let lane = &mut client.lanes[at];
        if !lane.unresolved || lane.items.iter().any(|item| item.stamped) {
            continue;
        }
        if lane.next_first == lane.acked_end {
            lane.unresolved = false;
        } else {
            bump(client, at);
        }
    }
}

/// `requestIdempotentEpochBumpForPartition`: what is in flight on the
/// partition is stamped anew, and sent again as it fails.
fn bump(client: &mut Client, lane: usize) {
    let epoch = client.new_epoch();
    client.lanes[lane].restamp(epoch);
}

pub(super) fn answered(client: &mut Client, answered: Answered) {
    let Answered { lane, at, answer } = answered;
    let of = &mut client.lanes[lane];
    match answer.error {
        0 => {
            let item = client.acked(answered);
            // `lastAckedSequence` is that of the batch as it is stamped now.
            let of = &mut client.lanes[lane];
            let end = advance(item.batch.first, item.batch.count);
            if item.batch.epoch == of.epoch {
                of.acked_end = of.acked_end.max(end);
            }
        }
        OUT_OF_ORDER => {
            let item = &of.items[at];
            let next = item.batch.first == of.acked_end;
            if of.unresolved || (next && !item.reset) {
                bump(client, lane);
            }
        }
        TOO_LARGE if to_split(&of.items[at], answer.error) => split(of, at),
        3 | 7 | NOT_LEADER | NOT_ENOUGH_REPLICAS | TOO_FEW_AFTER_APPEND | UNKNOWN_TOPIC_ID => {}
        _ => {
            of.give_up(at);
            bump(client, lane);
        }
    }
}
