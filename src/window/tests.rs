//! The rows of SEMANTICS 7.3 and 7.4, one claim each.

mod bumps;
mod resolve;

use super::*;
use crate::ids::ProducerId;

const RULES: Rules = Rules {
    mode: Mode::Absorb,
    ttl: Duration::from_secs(300),
    window_batches: 5,
    absorb_transactional: false,
    shield45: false,
};

fn realm(n: u32) -> Option<Realm> {
    NonZeroU32::new(n).map(Realm)
}

fn link(n: u32) -> Link {
    Link(NonZeroU32::new(n).unwrap())
}

fn batch(epoch: i16, first: i32, count: u32) -> BatchId {
    BatchId {
        producer: ProducerId::from_wire(7).unwrap(),
        epoch: Epoch(epoch),
        first: Sequence::from_wire(first).unwrap(),
        count,
        crc: first.cast_unsigned() ^ 0xabcd,
        len: 100 + count,
    }
}

/// A window with the hands of a session.
struct World {
    window: Window,
    rules: Rules,
    now: Time,
    offset: i64,
}

/// One batch on its way: what settles it.
#[derive(Clone, Copy)]
struct Flight {
    id: AttemptId,
    batch: BatchId,
    sender: Sender,
}

impl World {
    fn new() -> Self {
        Self {
            window: Window::new(Time(0)),
            rules: RULES,
            now: Time(0),
            offset: 0,
        }
    }

    fn arrival(&self, batch: BatchId) -> Arrival {
        Arrival {
            batch,
            transactional: false,
            acks: Acks::All,
            realm: realm(1),
            node: NodeId::from_wire(1),
            link: link(1),
            now: self.now,
            patient: true,
            old: false,
        }
    }

    fn judge(&mut self, batch: BatchId) -> Verdict {
        let arrival = self.arrival(batch);
        self.window.judge(&arrival, &self.rules)
    }

    fn action(&mut self, batch: BatchId) -> Action {
        self.judge(batch).action
    }

    fn class(&mut self, batch: BatchId) -> Class {
        self.judge(batch).class
    }

    /// Judges, expects Forward, commits.
    fn send_as(&mut self, arrival: Arrival) -> Flight {
        let verdict = self.window.judge(&arrival, &self.rules);
        assert_eq!(verdict.action, Action::Forward, "{verdict:?}");
        let committed = self.window.commit(&arrival, &verdict).unwrap();
        Flight {
            id: committed.id,
            batch: arrival.batch,
            sender: Sender {
                acks: arrival.acks,
                node: arrival.node,
                realm: arrival.realm,
                link: arrival.link,
            },
        }
    }

    fn send(&mut self, batch: BatchId) -> Flight {
        self.send_as(self.arrival(batch))
    }

    /// Mirrors as a session does, and returns the code.
    fn mirror(&mut self, batch: BatchId) -> i16 {
        let arrival = self.arrival(batch);
        let verdict = self.window.judge(&arrival, &self.rules);
        let Action::Mirror(code) = verdict.action else {
            panic!("{verdict:?}")
        };
        self.window.mirrored(&arrival, &verdict, code);
        code
    }

    /// What comes is answered with 19 three times, and leaves then.
    fn leaves_after_three_mirrors(&mut self, arrival: &Arrival) {
        for _ in 0..3 {
            let verdict = self.window.judge(arrival, &RULES);
            assert_eq!(verdict.action, Action::Mirror(19));
            self.window.mirrored(arrival, &verdict, 19);
        }
        assert_eq!(self.window.judge(arrival, &RULES).action, Action::Forward);
    }

    fn settle(&mut self, flight: Flight, outcome: Outcome) -> Settled {
        let Flight { id, batch, sender } = flight;
        self.window
            .settle(id, &batch, &sender, outcome, &self.rules, self.now)
    }

    fn ack(&mut self, flight: Flight) -> Ack {
        let ack = Ack {
            offset: self.offset,
            append_time: -1,
            log_start: Some(0),
        };
        self.offset += i64::from(flight.batch.count);
        let _ = self.settle(flight, Outcome::Written(Some(ack)));
        ack
    }

    fn fail(&mut self, flight: Flight, code: i16) -> Settled {
        self.settle(flight, classify(code, None, -1, None))
    }

    /// Sends and acknowledges batches of ten, one after another.
    fn acked(&mut self, batches: i32) -> Vec<Ack> {
        (0..batches)
            .map(|i| {
                let flight = self.send(batch(0, i * 10, 10));
                self.ack(flight)
            })
            .collect()
    }
}

#[test]
fn retry_after_ack_is_answered_from_the_window() {
    let mut w = World::new();
    let acks = w.acked(2);
    assert_eq!(w.class(batch(0, 0, 10)), Class::Duplicate);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Replay(acks[0]));
    assert_eq!(w.action(batch(0, 10, 10)), Action::Replay(acks[1]));
}

#[test]
fn a_sent_batch_is_never_taken_for_an_acknowledged_one() {
    let mut w = World::new();
    w.acked(1);
    let _flight = w.send(batch(0, 10, 10));
    assert_eq!(w.class(batch(0, 10, 10)), Class::DuplicateInFlight);
    assert_eq!(w.action(batch(0, 10, 10)), Action::Forward);
}

#[test]
fn absorbing_needs_equal_bytes() {
    let mut w = World::new();
    w.acked(1);
    for other in [
        BatchId {
            crc: 1,
            ..batch(0, 0, 10)
        },
        BatchId {
            len: 1,
            ..batch(0, 0, 10)
        },
    ] {
        let verdict = w.judge(other);
        assert_eq!(verdict.class, Class::SequenceReuse);
        assert_eq!(verdict.action, Action::Forward);
    }
}

#[test]
fn sequence_reuse_is_flagged_once_per_other_batch_and_teaches_nothing() {
    let mut w = World::new();
    let acks = w.acked(1);
    let other = BatchId {
        crc: 1,
        ..batch(0, 0, 10)
    };
    assert!(w.judge(other).first_time);
    let flight = w.send(other);
    let _ = w.settle(flight, Outcome::Written(Some(acks[0])));
    let again = w.judge(other);
    assert_eq!(
        (again.class, again.first_time),
        (Class::SequenceReuse, false)
    );
    assert_eq!(w.action(batch(0, 0, 10)), Action::Replay(acks[0]));
    assert!(w.judge(BatchId { crc: 2, ..other }).first_time);
}

#[test]
fn absorbing_ends_with_the_ttl() {
    let mut w = World::new();
    let acks = w.acked(1);
    w.now = Time(300);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Replay(acks[0]));
    w.now = Time(301);
    assert_eq!(w.class(batch(0, 0, 10)), Class::Duplicate);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Forward);
}

#[test]
fn absorbing_needs_the_same_client() {
    let mut w = World::new();
    w.acked(1);
    for realm in [realm(2), None] {
        let arrival = Arrival {
            realm,
            ..w.arrival(batch(0, 0, 10))
        };
        let verdict = w.window.judge(&arrival, &RULES);
        assert_eq!(
            (verdict.class, verdict.action),
            (Class::Duplicate, Action::Forward)
        );
    }
    let arrival = Arrival {
        realm: None,
        ..w.arrival(batch(0, 10, 10))
    };
    let flight = w.send_as(arrival);
    w.ack(flight);
    let verdict = w.window.judge(&arrival, &RULES);
    assert_eq!(
        verdict.action,
        Action::Forward,
        "nobody's facts answer nobody"
    );
}

#[test]
fn transactional_duplicates_are_left_to_the_broker_unless_asked() {
    let mut w = World::new();
    let acks = w.acked(1);
    let arrival = Arrival {
        transactional: true,
        ..w.arrival(batch(0, 0, 10))
    };
    assert_eq!(w.window.judge(&arrival, &RULES).action, Action::Forward);
    let opted_in = Rules {
        absorb_transactional: true,
        ..RULES
    };
    assert_eq!(
        w.window.judge(&arrival, &opted_in).action,
        Action::Replay(acks[0])
    );
}

#[test]
fn an_ack_by_the_leader_alone_answers_only_the_same_leader() {
    let mut w = World::new();
    let leader = Arrival {
        acks: Acks::Leader,
        ..w.arrival(batch(0, 0, 10))
    };
    let flight = w.send_as(leader);
    let ack = w.ack(flight);
    let action = |w: &mut World, a: Arrival| w.window.judge(&a, &RULES).action;
    assert_eq!(action(&mut w, leader), Action::Replay(ack));
    assert_eq!(
        action(
            &mut w,
            Arrival {
                acks: Acks::All,
                ..leader
            }
        ),
        Action::Forward
    );
    let moved = Arrival {
        node: NodeId::from_wire(2),
        ..leader
    };
    assert_eq!(action(&mut w, moved), Action::Forward);
    let unknown = Arrival {
        node: None,
        ..leader
    };
    assert_eq!(action(&mut w, unknown), Action::Forward);
    let flight = w.send_as(Arrival {
        batch: batch(0, 10, 10),
        ..moved
    });
    w.ack(flight);
    assert_eq!(
        action(&mut w, leader),
        Action::Forward,
        "leadership went away and came back"
    );
}

#[test]
fn observing_changes_nothing_and_sees_the_same() {
    let mut w = World::new();
    w.acked(1);
    w.rules.mode = Mode::Observe;
    let verdict = w.judge(batch(0, 0, 10));
    assert_eq!(
        (verdict.class, verdict.action),
        (Class::Duplicate, Action::Forward)
    );
    let _head = w.send(batch(0, 10, 10));
    let other_link = Arrival {
        link: link(2),
        ..w.arrival(batch(0, 20, 10))
    };
    assert_eq!(
        w.window.judge(&other_link, &w.rules).action,
        Action::Forward
    );
}

#[test]
fn the_first_batches_of_a_partition_go_one_by_one_then_freely() {
    let mut w = World::new();
    assert_eq!(w.class(batch(0, 0, 10)), Class::FirstSeen);
    let first = w.send(batch(0, 0, 10));
    assert_eq!(w.action(batch(0, 10, 10)), Action::Hold);
    w.ack(first);
    let _second = w.send(batch(0, 10, 10));
    let _third = w.send(batch(0, 20, 10));
    assert_eq!(w.action(batch(0, 30, 10)), Action::Forward);
}

#[test]
fn an_absorbed_batch_closes_the_gate() {
    let mut w = World::new();
    w.acked(1);
    let arrival = w.arrival(batch(0, 0, 10));
    let verdict = w.window.judge(&arrival, &RULES);
    w.window.absorbed(&arrival, &verdict);
    let _next = w.send(batch(0, 10, 10));
    assert_eq!(w.action(batch(0, 20, 10)), Action::Hold);
}

#[test]
fn another_connection_waits_for_what_is_on_its_way() {
    let mut w = World::new();
    w.acked(1);
    let flight = w.send(batch(0, 10, 10));
    let other = Arrival {
        link: link(2),
        ..w.arrival(batch(0, 20, 10))
    };
    assert_eq!(w.window.judge(&other, &RULES).action, Action::Hold);
    w.window.wait_for();
    let settled = w.settle(
        flight,
        Outcome::Written(Some(Ack {
            offset: 10,
            append_time: -1,
            log_start: Some(0),
        })),
    );
    assert!(settled.wake);
    assert_eq!(w.window.judge(&other, &RULES).action, Action::Forward);
}

#[test]
fn patience_ends_and_the_batch_is_not_written_three_times_then_it_leaves() {
    let mut w = World::new();
    let _flight = w.send(batch(0, 0, 10));
    let tired = Arrival {
        patient: false,
        ..w.arrival(batch(0, 10, 10))
    };
    w.leaves_after_three_mirrors(&tired);
}

#[test]
fn patience_ends_and_a_broker_that_knows_the_producer_judges() {
    let mut w = World::new();
    let flight = w.send(batch(0, 0, 10));
    w.ack(flight);
    let _flight = w.send(batch(0, 10, 10));
    let tired = |w: &World, first| Arrival {
        patient: false,
        link: link(2),
        ..w.arrival(batch(0, first, 10))
    };
    for first in [20, 40] {
        let tired = tired(&w, first);
        assert_eq!(w.window.judge(&tired, &RULES).action, Action::Forward);
    }
}

#[test]
fn behind_a_failed_batch_a_broker_that_knows_the_producer_judges_sooner() {
    let mut w = World::new();
    let flight = w.send(batch(0, 0, 10));
    w.ack(flight);
    let head = w.send(batch(0, 10, 10));
    let _ = w.fail(head, 6);
    assert_eq!(w.mirror(batch(0, 20, 10)), 6);
    assert_eq!(w.action(batch(0, 20, 10)), Action::Forward);
}

/// A retry of what was acknowledged before the topic went is not said to be
/// unwritten, whatever is on its way before it.
#[test]
fn what_was_acknowledged_before_error_100_is_never_mirrored() {
    let mut w = World::new();
    let second = w.send(batch(0, 10, 10));
    let tired = Arrival {
        patient: false,
        ..w.arrival(batch(0, 10, 10))
    };
    let copy = w.send_as(tired);
    let _first = w.send(batch(0, 0, 10));
    w.ack(second);
    let _ = w.fail(copy, 100);
    // And no success of before answers it.
    assert_eq!(w.window.judge(&tired, &RULES).action, Action::Forward);
}

/// A request with the partition's first batch is held for another partition.
#[test]
fn what_follows_a_queued_batch_on_another_connection_waits_for_it() {
    let mut w = World::new();
    w.window.queue(&batch(0, 0, 2), link(1));
    let later = Arrival {
        link: link(2),
        ..w.arrival(batch(0, 2, 1))
    };
    let verdict = w.window.judge(&later, &RULES);
    assert_eq!(verdict.action, Action::Hold);
    w.window.queue(&batch(0, 2, 1), link(2));
    assert!(!w.window.waits_for_own(&later.batch, link(2), |_| true));
    // What came first does not wait for what came after it.
    assert_eq!(w.action(batch(0, 0, 2)), Action::Forward);
    w.window.wait_for();
    assert!(w.window.unqueue(link(1)), "the second is woken");
    assert_eq!(w.window.judge(&later, &RULES).action, Action::Forward);
}

#[test]
fn patience_with_a_queued_batch_ends() {
    let mut w = World::new();
    w.window.queue(&batch(0, 0, 2), link(1));
    let tired = Arrival {
        link: link(2),
        patient: false,
        ..w.arrival(batch(0, 2, 1))
    };
    w.leaves_after_three_mirrors(&tired);
}

#[test]
fn a_copy_of_a_queued_batch_and_what_follows_an_acknowledged_one_do_not_wait() {
    let mut w = World::new();
    w.window.queue(&batch(0, 0, 2), link(1));
    let elsewhere = |w: &World, first, count| Arrival {
        link: link(2),
        ..w.arrival(batch(0, first, count))
    };
    let copy = elsewhere(&w, 0, 2);
    let copy = w.send_as(copy);
    w.ack(copy);
    let next = elsewhere(&w, 2, 1);
    assert_eq!(w.window.judge(&next, &RULES).action, Action::Forward);
}

#[test]
fn what_a_batch_waits_for_is_its_own_connections_or_anothers() {
    let mut w = World::new();
    let own = w.send(batch(0, 0, 10));
    let next = batch(0, 10, 10);
    assert!(w.window.waits_for_own(&next, link(1), |id| id == own.id));
    assert!(!w.window.waits_for_own(&next, link(1), |_| false));
    let _ = w.fail(own, 6);
    assert!(
        w.window.waits_for_own(&next, link(1), |_| false),
        "it waits for nothing"
    );
}

#[test]
fn a_failed_batch_keeps_all_that_follow_it_until_one_of_them_is_acknowledged() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let _ = w.fail(head, 6);
    assert_eq!(w.mirror(batch(0, 30, 10)), 6);
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let later = Arrival {
        acks: Acks::All,
        ..w.arrival(batch(0, 10, 10))
    };
    let _ = w.fail(head, 6);
    for _ in 0..3 {
        w.mirror(batch(0, 10, 10));
    }
    let later = w.send_as(later);
    w.ack(later);
    assert_eq!(w.action(batch(0, 30, 10)), Action::Forward);
}

#[test]
fn copies_of_one_batch_never_wait_for_each_other() {
    let mut w = World::new();
    let first = w.send(batch(0, 0, 10));
    let copy = Arrival {
        link: link(2),
        ..w.arrival(batch(0, 0, 10))
    };
    let copy = w.send_as(copy);
    w.ack(first);
    assert!(matches!(w.action(batch(0, 0, 10)), Action::Replay(_)));
    let _ = w.settle(copy, Outcome::Unknown { candidate: None });
    assert!(matches!(w.action(batch(0, 0, 10)), Action::Replay(_)));
}

#[test]
fn followers_of_a_failed_batch_are_given_its_error_three_times() {
    for (code, shown) in [
        (6, 6),
        (3, 3),
        (100, 100),
        (19, 19),
        (51, 19),
        (10, 19),
        (2, 19),
    ] {
        let mut w = World::new();
        let head = w.send(batch(0, 0, 10));
        let _ = w.fail(head, code);
        for _ in 0..3 {
            assert_eq!(w.mirror(batch(0, 10, 10)), shown);
        }
        assert_eq!(w.action(batch(0, 10, 10)), Action::Forward);
        let _head = w.send(batch(0, 0, 10));
        assert_eq!(w.action(batch(0, 10, 10)), Action::Hold, "the head is back");
    }
}

#[test]
fn copies_of_a_follower_share_its_three_mirrors() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let _ = w.fail(head, 6);
    for _ in 0..3 {
        w.mirror(batch(0, 10, 10));
    }
    let copies = [w.send(batch(0, 10, 10)), w.send(batch(0, 10, 10))];
    for copy in copies {
        let _ = w.fail(copy, 19);
    }
    assert_eq!(w.action(batch(0, 10, 10)), Action::Forward);
}

#[test]
fn the_head_coming_back_renews_the_patience_with_its_followers() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let _ = w.fail(head, 6);
    for _ in 0..3 {
        w.mirror(batch(0, 10, 10));
    }
    let head = w.send(batch(0, 0, 10));
    let _ = w.fail(head, 6);
    assert_eq!(w.mirror(batch(0, 10, 10)), 6);
}

#[test]
fn a_mirrored_batch_counts_as_never_sent() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let _ = w.fail(head, 6);
    w.mirror(batch(0, 10, 10));
    assert_eq!(w.mirror(batch(0, 20, 10)), 6);
    assert_eq!(w.class(batch(0, 10, 10)), Class::Retry);
}

#[test]
fn a_failed_batch_is_one_gap_however_many_follow_it() {
    let mut w = World::new();
    w.acked(1);
    let head = w.send(batch(0, 10, 10));
    let _ = w.fail(head, 19);
    let verdict = w.judge(batch(0, 20, 10));
    let gap = Gap {
        kind: GapKind::PredecessorFailed,
        expected: Sequence::from_wire(10).unwrap(),
        missing: 10,
    };
    assert_eq!(verdict.class, Class::Gap(gap));
    assert!(verdict.first_time);
    w.mirror(batch(0, 20, 10));
    let next = w.judge(batch(0, 30, 10));
    assert!(matches!(next.class, Class::Gap(_)));
    assert!(!next.first_time);
}

#[test]
fn a_gap_never_seen_is_flagged_once_not_once_per_retry() {
    let mut w = World::new();
    w.acked(1);
    let verdict = w.judge(batch(0, 13, 1));
    let gap = Gap {
        kind: GapKind::NeverSeen,
        expected: Sequence::from_wire(10).unwrap(),
        missing: 3,
    };
    assert_eq!((verdict.class, verdict.first_time), (Class::Gap(gap), true));
    for _ in 0..4 {
        let flight = w.send(batch(0, 13, 1));
        let _ = w.fail(flight, 45);
        assert_eq!(w.class(batch(0, 13, 1)), Class::Retry);
        assert!(!w.judge(batch(0, 13, 1)).first_time);
    }
    assert_eq!(w.window.summary().gaps, 1);
    assert_eq!(w.class(batch(1, 0, 1)), Class::NewEpoch);
}

#[test]
fn no_baseline_is_no_gap() {
    let mut w = World::new();
    assert_eq!(w.class(batch(3, 500, 10)), Class::FirstSeen);
    let flight = w.send(batch(3, 500, 10));
    w.ack(flight);
    assert_eq!(w.class(batch(3, 510, 10)), Class::InOrder);
    assert_eq!(
        w.class(batch(3, 490, 10)),
        Class::InOrder,
        "nothing was forgotten yet"
    );
}

#[test]
fn a_success_past_an_open_batch_is_a_gap() {
    let mut w = World::new();
    w.rules.mode = Mode::Observe;
    let a = w.send(batch(0, 0, 17));
    let b = w.send(batch(0, 17, 5));
    let _ = w.fail(a, 6);
    let settled = w.settle(
        b,
        Outcome::Written(Some(Ack {
            offset: 0,
            append_time: -1,
            log_start: Some(0),
        })),
    );
    let gap = settled.gap.unwrap();
    assert_eq!(
        (gap.kind, gap.expected.to_wire(), gap.missing),
        (GapKind::PredecessorFailed, 0, 17)
    );
}

#[test]
fn a_hole_waits_for_what_is_on_its_way() {
    let mut w = World::new();
    w.acked(1);
    let flight = w.send(batch(0, 10, 10));
    let verdict = w.judge(batch(0, 30, 10));
    assert!(matches!(verdict.class, Class::Gap(_)));
    assert_eq!(verdict.action, Action::Hold);
    w.ack(flight);
    assert_eq!(w.action(batch(0, 30, 10)), Action::Forward);
}

#[test]
fn behind_an_unknown_batch_only_a_candidate_offset_lets_through() {
    let mut w = World::new();
    w.acked(1);
    let head = w.send(batch(0, 10, 10));
    let _ = w.settle(head, Outcome::Unknown { candidate: None });
    assert_eq!(w.mirror(batch(0, 20, 10)), 19);

    let mut w = World::new();
    w.acked(1);
    let head = w.send(batch(0, 10, 10));
    let _ = w.settle(head, classify(7, Some(10), -1, None));
    assert_eq!(w.action(batch(0, 20, 10)), Action::Forward);
}

/// The leader appended it, and leads no more: the next one may not have it, and
/// would take whatever comes first.
#[test]
fn behind_what_a_former_leader_appended_nothing_goes_to_the_next_one() {
    for code in [3, 6, 100] {
        let mut w = World::new();
        let head = w.send(batch(0, 0, 3));
        let _ = w.settle(head, classify(code, Some(0), -1, None));
        assert_eq!(w.mirror(batch(0, 3, 3)), 19, "{code}");
        // What lies between them waits elsewhere.
        assert_eq!(w.mirror(batch(0, 7, 4)), 19, "{code}");
        let again = w.send(batch(0, 0, 3));
        w.ack(again);
        assert_eq!(w.action(batch(0, 3, 3)), Action::Forward);
    }
}

#[test]
fn a_hole_behind_an_unknown_batch_waits_until_that_was_sent_again() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 3));
    let _ = w.settle(head, Outcome::Unknown { candidate: None });
    assert_eq!(w.mirror(batch(0, 7, 4)), 19);
    let again = w.send(batch(0, 0, 3));
    assert_eq!(w.action(batch(0, 7, 4)), Action::Hold);
    w.ack(again);
    assert_eq!(w.action(batch(0, 7, 4)), Action::Forward);
}

#[test]
fn a_batch_that_was_forwarded_is_never_told_that_it_was_not() {
    let mut w = World::new();
    w.acked(1);
    let head = w.send(batch(0, 10, 10));
    let tail = w.send(batch(0, 20, 10));
    let _ = w.settle(head, Outcome::Unknown { candidate: None });
    let _ = w.settle(tail, Outcome::Unknown { candidate: None });
    assert_eq!(w.class(batch(0, 20, 10)), Class::DuplicateUnknown);
    assert_eq!(w.action(batch(0, 20, 10)), Action::Forward);
}

#[test]
fn an_acknowledged_batch_is_never_told_that_it_was_not_written() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let arrival = Arrival {
        transactional: true,
        patient: false,
        ..w.arrival(batch(0, 10, 10))
    };
    for _ in 0..3 {
        let verdict = w.window.judge(&arrival, &RULES);
        assert_eq!(verdict.action, Action::Mirror(19));
        w.window.mirrored(&arrival, &verdict, 19);
    }
    let follower = w.send_as(arrival);
    w.ack(follower);
    let _ = w.fail(head, 6);
    let verdict = w.window.judge(&arrival, &w.rules);
    assert_eq!(verdict.class, Class::Duplicate);
    assert_eq!(verdict.action, Action::Forward);
}

#[test]
fn an_unknown_outcome_outlives_the_certain_failure_of_a_retry() {
    let mut w = World::new();
    w.acked(1);
    let first = w.send(batch(0, 10, 10));
    let _ = w.settle(first, Outcome::Unknown { candidate: None });
    let second = w.send(batch(0, 10, 10));
    let _ = w.fail(second, 19);
    assert_eq!(w.class(batch(0, 10, 10)), Class::DuplicateUnknown);
}

#[test]
fn overlaps_are_flagged_and_leave_at_once() {
    let mut w = World::new();
    w.acked(2);
    for part in [
        batch(0, 10, 3),
        batch(0, 13, 7),
        batch(0, 10, 20),
        batch(0, 15, 10),
    ] {
        let verdict = w.judge(part);
        assert_eq!(
            (verdict.class, verdict.action),
            (Class::Overlap, Action::Forward)
        );
    }
}

#[test]
fn older_than_the_ring_is_an_overlap() {
    let mut w = World::new();
    w.acked(6);
    assert_eq!(w.class(batch(0, 0, 10)), Class::Overlap);
    assert_eq!(w.class(batch(0, 10, 10)), Class::Duplicate);
}

#[test]
fn a_longer_ring_answers_older_retries() {
    let mut w = World::new();
    w.rules.window_batches = 32;
    let acks = w.acked(9);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Replay(acks[0]));
}

#[test]
fn a_split_batch_replaces_its_parent() {
    let mut w = World::new();
    w.acked(1);
    let parent = w.send(batch(0, 10, 10));
    let _ = w.fail(parent, 10);
    assert_eq!(w.class(batch(0, 10, 5)), Class::Retry);
    let half = w.send(batch(0, 10, 5));
    assert_eq!(w.action(batch(0, 15, 5)), Action::Hold);
    w.ack(half);
    assert_eq!(w.class(batch(0, 15, 5)), Class::InOrder);
    assert_eq!(w.action(batch(0, 15, 5)), Action::Forward);
}

#[test]
fn stale_epochs_are_flagged_and_forwarded() {
    let mut w = World::new();
    let flight = w.send(batch(4, 0, 10));
    w.ack(flight);
    let verdict = w.judge(batch(3, 0, 10));
    assert_eq!(
        (verdict.class, verdict.action),
        (Class::StaleEpoch, Action::Forward)
    );
    let flight = w.send(batch(3, 0, 10));
    let _ = w.fail(flight, 47);
    assert!(!w.judge(batch(3, 0, 10)).first_time);
}

#[test]
fn enforcing_refuses_what_is_older_than_a_success_and_nothing_else() {
    let mut w = World::new();
    w.rules.mode = Mode::Enforce;
    let first = w.send(batch(0, 0, 1));
    w.ack(first);
    // A higher epoch on its way proves nothing yet.
    let flight = w.send(batch(1, 0, 1));
    assert_ne!(w.action(batch(0, 1, 1)), Action::Refuse(47));
    let _ = w.fail(flight, 45);
    assert_ne!(w.action(batch(0, 1, 1)), Action::Refuse(47));
    let flight = w.send(batch(1, 0, 1));
    w.ack(flight);
    for stale in [batch(0, 0, 1), batch(0, 1, 1), batch(0, 9, 3)] {
        let verdict = w.judge(stale);
        assert_eq!(verdict.class, Class::StaleEpoch);
        assert_eq!(verdict.action, Action::Refuse(47));
        assert!(verdict.first_time);
        let arrival = w.arrival(stale);
        w.window.refused(&arrival, &verdict);
        assert!(!w.judge(stale).first_time, "one occurrence, however often");
    }
    assert!(matches!(w.action(batch(1, 0, 1)), Action::Replay(_)));
    assert_eq!(w.action(batch(1, 1, 1)), Action::Forward);
    assert_eq!(w.action(batch(2, 0, 1)), Action::Forward);
    let mut quiet = w.arrival(batch(0, 2, 1));
    quiet.acks = Acks::None;
    let verdict = w.window.judge(&quiet, &w.rules);
    assert_eq!(verdict.action, Action::Forward, "it cannot be answered");
    for mode in [Mode::Absorb, Mode::Observe] {
        w.rules.mode = mode;
        assert_eq!(w.action(batch(0, 2, 1)), Action::Forward);
    }
}

#[test]
fn a_new_epoch_forgets_the_old_one_when_it_succeeds() {
    let mut w = World::new();
    w.acked(2);
    assert_eq!(w.class(batch(1, 5, 1)), Class::NewEpochMidway);
    assert_eq!(w.class(batch(1, 0, 10)), Class::NewEpoch);
    let flight = w.send(batch(1, 0, 10));
    assert_eq!(w.class(batch(1, 10, 10)), Class::InOrder);
    assert_eq!(w.action(batch(1, 10, 10)), Action::Hold);
    assert!(
        matches!(w.action(batch(0, 10, 10)), Action::Replay(_)),
        "not accepted yet"
    );
    w.ack(flight);
    assert_eq!(w.class(batch(0, 10, 10)), Class::StaleEpoch);
    assert_eq!(w.action(batch(1, 10, 10)), Action::Forward);
}

#[test]
fn a_lower_offset_proves_a_truncated_log() {
    let mut w = World::new();
    w.acked(2);
    let flight = w.send(batch(0, 20, 10));
    let settled = w.settle(
        flight,
        Outcome::Written(Some(Ack {
            offset: 0,
            append_time: -1,
            log_start: Some(0),
        })),
    );
    assert!(settled.disagreed);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Forward);
    assert!(matches!(w.action(batch(0, 20, 10)), Action::Replay(_)));
}

#[test]
fn a_45_for_the_next_batch_proves_a_forgetful_broker() {
    let mut w = World::new();
    w.acked(2);
    let flight = w.send(batch(0, 20, 10));
    assert!(w.fail(flight, 45).disagreed);
    assert_eq!(w.action(batch(0, 10, 10)), Action::Forward);
}

#[test]
fn a_45_behind_an_unknown_attempt_proves_nothing() {
    let mut w = World::new();
    w.acked(2);
    let first = w.send(batch(0, 20, 10));
    let _ = w.settle(first, Outcome::Unknown { candidate: None });
    let again = w.send(batch(0, 20, 10));
    assert!(!w.fail(again, 45).disagreed);
    assert!(matches!(w.action(batch(0, 10, 10)), Action::Replay(_)));
}

#[test]
fn acks_0_is_no_predecessor_and_is_never_touched() {
    let mut w = World::new();
    let quiet = |w: &World, b| Arrival {
        acks: Acks::None,
        ..w.arrival(b)
    };
    for first in [0, 10] {
        let arrival = quiet(&w, batch(0, first, 10));
        let verdict = w.window.judge(&arrival, &RULES);
        assert_eq!(verdict.action, Action::Forward);
        assert!(w.window.commit(&arrival, &verdict).is_none());
    }
    let verdict = w.judge(batch(0, 20, 10));
    assert_eq!(
        (verdict.class, verdict.action),
        (Class::InOrder, Action::Forward)
    );
}

#[test]
fn a_duplicate_success_of_a_fact_keeps_the_window_bounded() {
    let mut w = World::new();
    w.acked(5);
    w.now = Time(1000);
    for i in 0..5 {
        let flight = w.send(batch(0, i * 10, 10));
        let _ = w.settle(
            flight,
            Outcome::Written(Some(Ack {
                offset: i64::from(i) * 10,
                append_time: 5,
                log_start: Some(0),
            })),
        );
    }
    assert!(
        matches!(w.action(batch(0, 0, 10)), Action::Replay(_)),
        "fresh again"
    );
    assert_eq!(w.window.acked.iter().count(), 5);
}

#[test]
fn a_ninth_attempt_is_forwarded_untracked() {
    let mut w = World::new();
    w.acked(1);
    for first in 10..18 {
        let _flight = w.send(batch(0, first, 1));
    }
    let ninth = w.arrival(batch(0, 18, 1));
    let verdict = w.window.judge(&ninth, &RULES);
    assert!(w.window.commit(&ninth, &verdict).is_none());
}

#[test]
fn sequences_are_followed_across_the_wrap() {
    let mut w = World::new();
    let flight = w.send(batch(0, i32::MAX - 4, 10));
    let ack = w.ack(flight);
    assert_eq!(w.class(batch(0, 5, 10)), Class::InOrder);
    assert_eq!(w.action(batch(0, i32::MAX - 4, 10)), Action::Replay(ack));
    assert!(matches!(
        w.class(batch(0, 6, 1)),
        Class::Gap(Gap { missing: 1, .. })
    ));
}

/// Anybody can announce that many records; the short way of judging must not
/// take them for less than they span.
#[test]
fn batches_that_span_half_the_sequence_space_are_known_again() {
    let half = 1 << 30;
    let mut w = World::new();
    w.acked(5);
    let _ = w.send(batch(0, 50, half - 45));
    assert_eq!(w.class(batch(0, 5 + half.cast_signed(), 1)), Class::Overlap);

    let mut w = World::new();
    w.acked(1);
    let _ = w.send(batch(0, 10, half));
    let _ = w.send(batch(0, 10 + half.cast_signed(), half));
    assert_eq!(w.class(batch(0, 10, half)), Class::DuplicateInFlight);
}

#[test]
fn a_withdrawn_request_leaves_no_trace() {
    let mut w = World::new();
    w.acked(1);
    let before = format!("{:?}", w.window);
    let _ = w.judge(batch(0, 10, 10));
    let _ = w.judge(batch(0, 50, 10));
    assert_eq!(format!("{:?}", w.window), before);
}

#[test]
fn error_codes_mean_what_the_broker_did() {
    let cases = [
        (6, None, Outcome::Failed(6)),
        (6, Some(4), Outcome::Unknown { candidate: None }),
        (20, Some(9), Outcome::Unknown { candidate: Some(9) }),
        (7, None, Outcome::Unknown { candidate: None }),
        (56, None, Outcome::Unknown { candidate: None }),
        (-1, None, Outcome::Unknown { candidate: None }),
        (999, None, Outcome::Unknown { candidate: None }),
        (45, None, Outcome::OutOfOrder),
        (46, None, Outcome::Written(None)),
        (87, None, Outcome::Refused(87)),
        (47, None, Outcome::Refused(47)),
        (51, None, Outcome::Failed(51)),
    ];
    for (code, offset, outcome) in cases {
        assert_eq!(classify(code, offset, -1, None), outcome, "{code}");
    }
}

/// What may be written of an epoch is forgotten once a later one has begun.
#[test]
fn a_batch_of_an_epoch_that_was_left_is_not_said_to_be_unwritten() {
    let mut w = World::new();
    let newer = w.send(batch(1, 0, 1));
    let lost = w.send(batch(0, 4, 1));
    let _ = w.settle(lost, Outcome::Unknown { candidate: None });
    let again = w.send(batch(0, 4, 1));
    let _ = w.ack(newer);
    let _ = w.fail(again, 2);
    let _head = w.send(batch(0, 0, 1));
    let arrival = Arrival {
        patient: false,
        link: link(2),
        ..w.arrival(batch(0, 4, 1))
    };
    let verdict = w.window.judge(&arrival, &w.rules);
    assert_eq!(verdict.action, Action::Forward);
}

/// Two connections judge a copy each; one commits before the other has noted
/// its mirrored answer.
#[test]
fn a_mirrored_copy_does_not_hide_one_that_left_meanwhile() {
    let mut w = World::new();
    let head = w.send(batch(0, 0, 10));
    let _ = w.fail(head, 6);
    let next = batch(0, 10, 10);
    let arrival = w.arrival(next);
    let verdict = w.window.judge(&arrival, &w.rules);
    assert_eq!(verdict.action, Action::Mirror(6));
    for _ in 0..3 {
        w.mirror(next);
    }
    let other = Arrival {
        link: link(2),
        ..arrival
    };
    let flight = w.send_as(other);
    w.window.mirrored(&arrival, &verdict, 6);
    assert_eq!(w.class(next), Class::DuplicateInFlight, "it is on its way");
    let _ = w.settle(flight, Outcome::Unknown { candidate: None });
    assert_eq!(w.class(next), Class::DuplicateUnknown, "it may be written");
}

/// The window as a process after this one has it, `seconds` later.
fn restarted(w: &World, seconds: u32) -> World {
    let now = Time(w.now.0 + seconds);
    let mut facts = Vec::new();
    let kept = w.window.kept(&w.rules, w.now, &mut facts).unwrap();
    World {
        window: Window::restored(&kept, &facts, &w.rules),
        rules: w.rules,
        now,
        offset: w.offset,
    }
}

#[test]
fn a_restored_fact_answers_its_retry_and_nothing_else() {
    let mut before = World::new();
    let acks = before.acked(3);
    let mut w = restarted(&before, 10);
    assert_eq!(w.action(batch(0, 20, 10)), Action::Replay(acks[2]));
    let mut other = batch(0, 20, 10);
    other.crc += 1;
    assert_eq!(w.judge(other).class, Class::SequenceReuse);
    assert_eq!(w.action(other), Action::Forward);
    let stranger = Arrival {
        realm: realm(2),
        ..w.arrival(batch(0, 20, 10))
    };
    assert_eq!(
        w.window.judge(&stranger, &RULES).action,
        Action::Forward,
        "whose batch it was still counts"
    );
}

#[test]
fn a_restored_fact_is_as_old_as_it_was() {
    let mut before = World::new();
    let acks = before.acked(1);
    let mut w = restarted(&before, 300);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Replay(acks[0]));
    let mut w = restarted(&before, 301);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Forward);
    let mut facts = Vec::new();
    assert_eq!(before.window.kept(&RULES, Time(301), &mut facts), None);
}

#[test]
fn nothing_but_facts_is_kept() {
    let mut before = World::new();
    before.acked(1);
    let _on_its_way = before.send(batch(0, 10, 10));
    let lost = before.send(batch(0, 20, 10));
    let _ = before.settle(lost, Outcome::Unknown { candidate: None });
    let mut w = restarted(&before, 1);
    assert_eq!(w.class(batch(0, 10, 10)), Class::InOrder, "not in flight");
    let first = w.send(batch(0, 10, 10));
    assert_eq!(
        w.action(batch(0, 20, 10)),
        Action::Hold,
        "the gate is closed"
    );
    w.ack(first);
    assert_eq!(w.action(batch(0, 20, 10)), Action::Forward);
}

#[test]
fn a_batch_that_an_old_snapshot_does_not_lead_to_is_no_gap() {
    let mut before = World::new();
    before.acked(2);
    let mut w = restarted(&before, 5);
    w.offset = 500;
    let far = w.send(batch(0, 500, 10));
    assert_eq!(w.class(batch(0, 510, 10)), Class::InOrder);
    w.ack(far);
    assert_eq!(
        w.class(batch(0, 200, 10)),
        Class::InOrder,
        "nor the one between"
    );
    let expected = Class::Gap(Gap {
        kind: GapKind::NeverSeen,
        expected: Sequence::from_wire(510).unwrap(),
        missing: 10,
    });
    assert_eq!(w.class(batch(0, 520, 10)), expected, "what was seen counts");
    assert_eq!(w.class(batch(0, 10, 10)), Class::Duplicate);
}

#[test]
fn a_gap_behind_a_failed_batch_is_measured_from_it_after_a_restart() {
    let mut before = World::new();
    before.acked(2);
    let mut w = restarted(&before, 5);
    let failed = w.send(batch(0, 500, 10));
    let _ = w.fail(failed, 19);
    let Class::Gap(gap) = w.class(batch(0, 510, 10)) else {
        panic!("no gap");
    };
    assert_eq!((gap.expected.to_wire(), gap.missing), (500, 10));
}

#[test]
fn a_45_behind_a_restored_fact_contradicts_nobody_and_the_fact_is_dropped() {
    let mut before = World::new();
    before.acked(1);
    let mut w = restarted(&before, 5);
    let next = w.send(batch(0, 10, 10));
    assert!(!w.fail(next, 45).disagreed);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Forward);
}

#[test]
fn an_offset_that_contradicts_a_restored_fact_drops_it() {
    let mut before = World::new();
    before.acked(3);
    let mut w = restarted(&before, 5);
    w.offset = 7;
    let next = w.send(batch(0, 30, 10));
    w.ack(next);
    assert_eq!(w.action(batch(0, 20, 10)), Action::Forward);
}

#[test]
fn a_restored_epoch_is_a_success_that_was_seen() {
    let mut before = World::new();
    before.acked(1);
    let bumped = before.send(batch(1, 0, 10));
    before.ack(bumped);
    let mut w = restarted(&before, 5);
    assert_eq!(w.class(batch(0, 0, 10)), Class::StaleEpoch);
    assert_eq!(w.class(batch(2, 0, 10)), Class::NewEpoch);
    assert!(!w.window.unproven());
}

/// The producer went on after the snapshot was written, and hapax was killed.
#[test]
fn a_snapshot_of_the_epoch_before_answers_what_was_acknowledged_in_it() {
    let mut before = World::new();
    let acks = before.acked(2);
    let mut w = restarted(&before, 1);
    let bumped = before.send(batch(1, 0, 10));
    before.ack(bumped);
    assert_eq!(w.action(batch(0, 10, 10)), Action::Replay(acks[1]));
    assert_eq!(w.action(batch(0, 20, 10)), Action::Forward);
    assert_eq!(w.class(batch(1, 0, 10)), Class::NewEpoch);
    w.offset = before.offset;
    let again = w.send(batch(1, 0, 10));
    w.ack(again);
    assert_eq!(
        w.action(batch(0, 10, 10)),
        Action::Forward,
        "it is stale now"
    );
    assert_eq!(w.class(batch(0, 10, 10)), Class::StaleEpoch);
}

/// Who leads after a restart is not known.
#[test]
fn what_a_leader_acknowledged_alone_is_not_kept() {
    let mut before = World::new();
    let arrival = Arrival {
        acks: Acks::Leader,
        ..before.arrival(batch(0, 0, 10))
    };
    let flight = before.send_as(arrival);
    before.ack(flight);
    let mut facts = Vec::new();
    assert_eq!(before.window.kept(&RULES, Time(0), &mut facts), None);
}

#[test]
fn a_restored_fact_that_is_acknowledged_again_is_as_good_as_new() {
    let mut before = World::new();
    before.acked(1);
    let mut w = restarted(&before, 301);
    w.offset = 0;
    let again = w.send(batch(0, 0, 10));
    let ack = w.ack(again);
    assert_eq!(w.action(batch(0, 0, 10)), Action::Replay(ack));
    assert!(matches!(w.class(batch(0, 20, 10)), Class::Gap(_)));
}
