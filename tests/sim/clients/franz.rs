//! franz-go (`sink.handleReqRespBatch`, `sink.createReq`).

use super::super::broker::{NOT_ENOUGH_REPLICAS, NOT_LEADER, OUT_OF_ORDER, STALE_EPOCH};
use super::super::broker::{TOO_FEW_AFTER_APPEND, UNKNOWN_TOPIC_ID, advance};
use super::{Answered, Client, Lane};

/// More than one is on its way only after a success, and none before a new
/// epoch begins.
pub(super) fn may_leave(lane: &Lane, at: usize) -> bool {
    // What went out behind a batch that failed comes back unseen.
    let later = lane.items.iter().skip(at).any(|i| i.request.is_some());
    let busy = !lane.idle();
    !(later || (busy && (lane.begin_anew || !lane.fine)))
}

/// A batch keeps the epoch that it was first sent with, unless the broker
/// refused it; the first one that may changes all behind it.
pub(super) fn before_send(client: &mut Client, lane: usize, at: usize) {
    let epoch = client.epoch;
    let lane = &mut client.lanes[lane];
    if at == 0 && lane.begin_anew && !lane.items[0].stamped {
        lane.begin_anew = false;
        lane.epoch = epoch;
        lane.next_first = 0;
        lane.acked_end = 0;
        for item in &mut lane.items {
            item.stamped = false;
        }
    }
    if !lane.items[at].stamped {
        lane.stamp(at);
    }
}

pub(super) fn answered(client: &mut Client, answered: Answered) {
    let Answered { lane, at, answer } = answered;
    let of = &mut client.lanes[lane];
    if at > 0 {
        // Something before it failed: it comes again, whatever this says.
        return;
    }
    let batch = of.items[at].batch;
    match answer.error {
        0 => {
            of.fine = true;
            of.acked_end = advance(batch.first, batch.count);
            client.acked(answered);
        }
        OUT_OF_ORDER | STALE_EPOCH => {
            of.fine = false;
            of.items[at].stamped = false;
            // Another partition may have begun the epoch already.
            if batch.epoch == client.epoch {
                client.new_epoch();
                for lane in &mut client.lanes {
                    lane.begin_anew = true;
                }
            }
        }
        3 | 7 | NOT_LEADER | NOT_ENOUGH_REPLICAS | TOO_FEW_AFTER_APPEND | UNKNOWN_TOPIC_ID => {
            of.fine = false;
        }
        _ => {
            of.give_up(at);
        }
    }
}
