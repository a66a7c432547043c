//! What is read back from the log (SEMANTICS 7.6), one claim each.

use super::*;

/// What the log shows of a batch.
fn at(offset: i64) -> Ack {
    Ack {
        offset,
        append_time: -1,
        log_start: None,
    }
}

/// A retry whose records are so old that its producer may be forgotten.
fn old(w: &World, batch: BatchId) -> Arrival {
    Arrival {
        old: true,
        ..w.arrival(batch)
    }
}

/// Two batches are acknowledged, a third is on its way.
fn sent_third() -> (World, BatchId, Flight) {
    let mut w = World::new();
    w.offset = 100;
    w.acked(2);
    let third = batch(0, 20, 10);
    let flight = w.send(third);
    (w, third, flight)
}

/// Two batches are acknowledged, of a third nobody heard again.
fn lost_third() -> (World, BatchId) {
    let (mut w, third, flight) = sent_third();
    let _ = w.settle(flight, Outcome::Unknown { candidate: None });
    (w, third)
}

fn judge(w: &mut World, arrival: Arrival) -> Verdict {
    w.window.judge(&arrival, &w.rules)
}

#[test]
fn an_old_retry_of_unknown_outcome_is_looked_for_and_a_young_one_forwarded() {
    let (mut w, third) = lost_third();
    assert_eq!(w.action(third), Action::Forward);
    let arrival = old(&w, third);
    let verdict = judge(&mut w, arrival);
    assert_eq!(verdict.class, Class::DuplicateUnknown);
    assert_eq!(verdict.action, Action::Resolve);
}

#[test]
fn what_is_known_to_be_written_or_not_is_not_looked_for() {
    let mut w = World::new();
    let acks = w.acked(1);
    let written = old(&w, batch(0, 0, 10));
    assert_eq!(judge(&mut w, written).action, Action::Replay(acks[0]));
    let next = old(&w, batch(0, 10, 10));
    assert_eq!(judge(&mut w, next).action, Action::Forward);
    let flight = w.send_as(next);
    let _ = w.fail(flight, 19);
    assert_eq!(judge(&mut w, next).class, Class::Retry);
    assert_eq!(judge(&mut w, next).action, Action::Forward);
}

/// Its answer may be lost behind hapax, which then waits longer than its client.
#[test]
fn an_old_retry_of_one_on_its_way_is_looked_for_once() {
    let (mut w, third, flight) = sent_third();
    assert_eq!(w.action(third), Action::Forward);
    let arrival = old(&w, third);
    let verdict = judge(&mut w, arrival);
    assert_eq!(verdict.class, Class::DuplicateInFlight);
    assert_eq!(verdict.action, Action::Resolve);
    w.window.asked(&third);
    assert_eq!(judge(&mut w, arrival).action, Action::Hold);
    let (verdict, _) = w.window.found(&arrival, at(140), &w.rules);
    assert!(matches!(verdict.action, Action::Replay(_)));
    let _ = w.settle(flight, Outcome::Unknown { candidate: None });
    assert_eq!(judge(&mut w, arrival).action, verdict.action, "it stays so");
}

/// The first copy may wait its turn at the broker, behind a batch whose
/// replicas are slow: what the log does not have yet it can get at any time.
#[test]
fn an_old_retry_never_leaves_while_a_copy_is_on_its_way() {
    let (mut w, third, flight) = sent_third();
    w.window.asked(&third);
    let arrival = old(&w, third);
    assert_eq!(judge(&mut w, arrival).action, Action::Hold);
    let elsewhere = |_| false;
    assert!(!w.window.waits_for_own(&third, arrival.link, elsewhere));
    let impatient = Arrival {
        patient: false,
        ..arrival
    };
    for _ in 0..10 {
        let verdict = judge(&mut w, impatient);
        assert_eq!(verdict.action, Action::Defer);
        w.window.deferred(&impatient, &verdict);
    }
    let _ = w.settle(flight, Outcome::Unknown { candidate: None });
    let verdict = judge(&mut w, impatient);
    assert_eq!(verdict.action, Action::Resolve, "its connection is over");
}

#[test]
fn a_copy_that_is_acknowledged_answers_the_old_retry_that_waits() {
    let (mut w, third, flight) = sent_third();
    w.window.asked(&third);
    let arrival = old(&w, third);
    assert_eq!(judge(&mut w, arrival).action, Action::Hold);
    w.window.wait_for();
    let settled = w.settle(flight, Outcome::Written(Some(at(120))));
    assert!(settled.wake);
    let Action::Replay(told) = judge(&mut w, arrival).action else {
        panic!("it is forwarded")
    };
    assert_eq!(told.offset, 120);
}

/// A broker that forgets its producers takes any sequence: nothing passes a
/// batch that was put off, each time that it comes.
#[test]
fn what_follows_a_batch_that_was_put_off_waits_for_it() {
    let (mut w, third) = lost_third();
    let third = old(&w, third);
    let fourth = old(&w, batch(0, 30, 10));
    for _ in 0..5 {
        let verdict = judge(&mut w, third);
        assert_eq!(verdict.action, Action::Resolve);
        w.window.deferred(&third, &verdict);
        // An earlier batch is acknowledged only now.
        w.window.gate = Some(fourth.link);
        let verdict = judge(&mut w, fourth);
        assert_eq!(verdict.action, Action::Mirror(19));
        w.window.mirrored(&fourth, &verdict, 19);
    }
    assert_eq!(judge(&mut w, fourth).action, Action::Forward, "given up");
}

#[test]
fn an_old_retry_passes_no_other_that_was_put_off() {
    let mut w = World::new();
    w.acked(2);
    let (third, fourth) = (old(&w, batch(0, 20, 10)), old(&w, batch(0, 30, 10)));
    for flight in [w.send_as(third), w.send_as(fourth)] {
        let _ = w.settle(flight, Outcome::Unknown { candidate: None });
    }
    for _ in 0..5 {
        let verdict = judge(&mut w, third);
        w.window.deferred(&third, &verdict);
        w.window.asked(&fourth.batch);
        let verdict = judge(&mut w, fourth);
        assert_eq!(verdict.action, Action::Defer);
        w.window.deferred(&fourth, &verdict);
    }
    assert_eq!(judge(&mut w, fourth).action, Action::Forward, "given up");
}

#[test]
fn where_the_broker_hangs_up_it_is_looked_for_three_times() {
    let (mut w, third) = lost_third();
    let arrival = old(&w, third);
    for _ in 0..3 {
        assert_eq!(judge(&mut w, arrival).action, Action::Resolve);
        w.window.cut_off(&third);
    }
    assert_eq!(judge(&mut w, arrival).action, Action::Forward);
    let again = w.send_as(arrival);
    let _ = w.settle(again, Outcome::Unknown { candidate: None });
    assert_eq!(judge(&mut w, arrival).action, Action::Resolve);
}

#[test]
fn what_is_found_answers_the_retry_and_closes_the_gate() {
    let (mut w, third) = lost_third();
    let arrival = old(&w, third);
    let found = Ack {
        append_time: 7,
        ..at(140)
    };
    w.window.wait_for();
    let (verdict, settled) = w.window.found(&arrival, found, &w.rules);
    assert!(settled.wake && !settled.disagreed);
    let Action::Replay(ack) = verdict.action else {
        panic!("{verdict:?}")
    };
    assert_eq!(judge(&mut w, arrival).action, verdict.action, "it stays so");
    assert_eq!((ack.offset, ack.append_time), (140, 7));
    assert_eq!(ack.log_start, Some(0), "the newest that the cluster said");
    // The next batch goes, and the one after it waits until that is in order.
    let _next = w.send(batch(0, 30, 10));
    assert_eq!(w.action(batch(0, 40, 10)), Action::Hold);
}

/// Everything below the high watermark is on all in-sync replicas.
#[test]
fn what_is_found_answers_acks_1_and_acks_all_after_a_move() {
    let (mut w, third) = lost_third();
    let _ = w.window.found(&old(&w, third), at(140), &w.rules);
    for acks in [Acks::All, Acks::Leader] {
        let moved = Arrival {
            acks,
            node: NodeId::from_wire(2),
            ..w.arrival(third)
        };
        assert!(matches!(judge(&mut w, moved).action, Action::Replay(_)));
    }
}

#[test]
fn what_is_not_found_is_forwarded_and_asked_for_once_an_attempt() {
    let (mut w, third) = lost_third();
    let arrival = old(&w, third);
    w.window.asked(&third);
    assert_eq!(judge(&mut w, arrival).action, Action::Forward);
    let again = w.send_as(arrival);
    let _ = w.fail(again, 19);
    assert_eq!(judge(&mut w, arrival).class, Class::DuplicateUnknown);
    assert_eq!(
        judge(&mut w, arrival).action,
        Action::Forward,
        "nothing that could have written it came in between"
    );
    let again = w.send_as(arrival);
    let _ = w.settle(again, Outcome::Unknown { candidate: None });
    assert_eq!(judge(&mut w, arrival).action, Action::Resolve);
}

/// Kafka expires a producer by the time of its newest batch.
#[test]
fn an_old_batch_makes_young_ones_of_its_producer_worth_reading() {
    let (mut w, third) = lost_third();
    let fourth = old(&w, batch(0, 30, 10));
    let verdict = judge(&mut w, fourth);
    assert_eq!(verdict.action, Action::Mirror(19), "a predecessor is open");
    w.window.mirrored(&fourth, &verdict, 19);
    assert_eq!(w.action(third), Action::Resolve);
    w.now = Time(299);
    assert_eq!(w.action(third), Action::Resolve);
}

#[test]
fn a_retry_waits_for_its_predecessor_before_it_is_looked_for() {
    let (mut w, third) = lost_third();
    let fourth = batch(0, 30, 10);
    let flight = w.send_as(Arrival {
        patient: false,
        ..w.arrival(third)
    });
    let arrival = old(&w, fourth);
    let before = judge(&mut w, arrival);
    assert_eq!(before.action, Action::Hold, "the third is on its way");
    let _ = w.settle(flight, Outcome::Unknown { candidate: None });
    let copy = w.window.commit(&arrival, &before).unwrap();
    w.window.asked(&third);
    let copy = Flight {
        id: copy.id,
        batch: fourth,
        sender: w.send(third).sender,
    };
    let _ = w.settle(copy, Outcome::Unknown { candidate: None });
    assert_eq!(judge(&mut w, arrival).action, Action::Hold);
    let impatient = Arrival {
        patient: false,
        ..arrival
    };
    assert_eq!(judge(&mut w, impatient).action, Action::Resolve);
}

#[test]
fn nothing_is_looked_for_without_an_owner_a_mode_or_an_answer() {
    let (mut w, third) = lost_third();
    let arrival = old(&w, third);
    let forwards = |w: &mut World, arrival| {
        assert_eq!(judge(w, arrival).action, Action::Forward, "{arrival:?}");
    };
    for realm in [None, realm(2)] {
        forwards(&mut w, Arrival { realm, ..arrival });
    }
    let acks = Acks::None;
    forwards(&mut w, Arrival { acks, ..arrival });
    let transactional = true;
    forwards(
        &mut w,
        Arrival {
            transactional,
            ..arrival
        },
    );
    w.rules.absorb_transactional = true;
    let transactional = Arrival {
        transactional,
        ..arrival
    };
    assert_eq!(judge(&mut w, transactional).action, Action::Resolve);
    w.rules.mode = Mode::Observe;
    forwards(&mut w, arrival);
    assert!(!w.window.contested(&third, false, &w.rules));
}

#[test]
fn it_would_lie_at_the_brokers_word_or_behind_what_was_acknowledged() {
    let (mut w, third) = lost_third();
    let whereabouts = |w: &World, batch| w.window.whereabouts(&batch);
    assert_eq!(whereabouts(&w, third), Some(120));
    assert_eq!(whereabouts(&w, batch(0, 0, 10)), Some(100));
    assert_eq!(whereabouts(&w, batch(0, 0, 5)), None, "nothing before it");
    assert_eq!(whereabouts(&w, batch(1, 0, 10)), Some(120), "a new epoch");
    let flight = w.send(third);
    let _ = w.settle(
        flight,
        Outcome::Unknown {
            candidate: Some(130),
        },
    );
    assert_eq!(whereabouts(&w, third), Some(130));
    assert_eq!(World::new().window.whereabouts(&third), None);
}

/// A later one that was told to wait as often as it may be.
fn overtaking(w: &mut World) -> Flight {
    while w.action(batch(0, 40, 10)) != Action::Forward {
        assert_eq!(w.mirror(batch(0, 40, 10)), 19);
    }
    w.send(batch(0, 40, 10))
}

/// What is acknowledged behind it lies behind it in the log as well.
#[test]
fn a_batch_that_others_overtook_lies_before_them() {
    let (mut w, third) = lost_third();
    let later = overtaking(&mut w);
    w.offset = 200;
    w.ack(later);
    assert_eq!(w.window.whereabouts(&third), Some(120));
}

#[test]
fn a_45_is_contested_where_the_log_may_have_the_batch() {
    let (mut w, third) = lost_third();
    let contested = |w: &World, batch| w.window.contested(&batch, false, &w.rules);
    let retry = w.send(third);
    assert!(contested(&w, third), "an earlier attempt is unknown");
    let _ = w.ack(retry);
    assert!(contested(&w, third), "it was acknowledged");
    assert!(contested(&w, batch(0, 30, 10)), "it follows on that");
    assert!(!contested(&w, batch(0, 40, 10)), "a gap");
    assert!(!contested(&w, batch(1, 30, 10)), "another epoch");
    assert!(!w.window.contested(&third, true, &w.rules), "transactional");
    let other = BatchId { crc: 1, ..third };
    assert!(!contested(&w, other), "other bytes");
    let mut fresh = World::new();
    let first = fresh.send(third);
    assert!(!contested(&fresh, third), "nothing is known of it");
    let _ = fresh.fail(first, 45);
    assert!(!contested(&fresh, third), "it was refused before");
}

#[test]
fn a_45_that_the_log_contradicts_settles_the_batch_as_written() {
    let (mut w, third) = lost_third();
    let retry = w.send(third);
    let settled = w.settle(retry, Outcome::Found(at(140)));
    assert!(!settled.disagreed);
    assert_eq!(w.class(third), Class::Duplicate);
    assert!(matches!(w.action(third), Action::Replay(_)));
    assert!(
        matches!(w.action(batch(0, 0, 10)), Action::Replay(_)),
        "what was known stays"
    );
    let _next = w.send(batch(0, 30, 10));
    assert_eq!(
        w.action(batch(0, 40, 10)),
        Action::Hold,
        "the gate is closed"
    );
}

#[test]
fn what_is_found_before_what_was_acknowledged_earlier_shows_a_cut_log() {
    let (mut w, third) = lost_third();
    let (_, settled) = w.window.found(&old(&w, third), at(110), &w.rules);
    assert!(settled.disagreed, "offset 110 was taken");
    assert_eq!(w.class(third), Class::Duplicate);
    assert_ne!(w.class(batch(0, 0, 10)), Class::Duplicate, "dropped");
}

/// A client with more in flight than the ring has room for.
#[test]
fn what_the_ring_has_no_room_for_is_answered_all_the_same() {
    let (mut w, third) = lost_third();
    w.rules.window_batches = 1;
    let later = overtaking(&mut w);
    w.offset = 200;
    w.ack(later);
    let (verdict, _) = w.window.found(&old(&w, third), at(140), &w.rules);
    assert!(matches!(verdict.action, Action::Replay(_)), "{verdict:?}");
}

#[test]
fn a_retry_of_an_epoch_that_is_over_is_left_to_the_broker() {
    let (mut w, third) = lost_third();
    let arrival = old(&w, third);
    let newer = w.send(batch(1, 0, 10));
    let overtaken = w.send(third);
    w.ack(newer);
    let _ = w.settle(overtaken, Outcome::Unknown { candidate: None });
    assert_eq!(judge(&mut w, arrival).class, Class::DuplicateUnknown);
    assert_eq!(judge(&mut w, arrival).action, Action::Forward);
}
