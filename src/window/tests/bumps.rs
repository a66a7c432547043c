//! Raised epochs: the records that come again, and the 45 that need not raise one.

use super::*;

/// A batch whose records, times and attributes are `content`.
fn of(content: u32, epoch: i16, first: i32, count: u32) -> BatchId {
    let bare = BatchId {
        crc: 0,
        len: 200,
        ..batch(epoch, first, count)
    };
    BatchId {
        crc: content ^ bare.neutral_crc(),
        ..bare
    }
}

impl World {
    fn resent(&mut self, batch: BatchId) -> Option<Resent> {
        self.judge(batch).resent
    }

    fn original(&self, batch: BatchId) -> Option<Original> {
        self.window.original(&self.arrival(batch), &self.rules)
    }

    fn write(&mut self, batch: BatchId) -> Ack {
        let flight = self.send(batch);
        self.ack(flight)
    }

    fn lose(&mut self, batch: BatchId, candidate: Option<i64>) {
        let flight = self.send(batch);
        let _ = self.settle(flight, Outcome::Unknown { candidate });
    }

    fn former(&self) -> usize {
        format!("{:?}", self.window).matches("Original {").count()
    }
}

#[test]
fn the_records_of_an_acknowledged_batch_are_known_under_a_new_epoch() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 78));
    let ack = w.write(of(2, 0, 78, 3));
    let again = of(2, 1, 0, 3);
    let verdict = w.judge(again);
    assert_eq!(
        (verdict.class, verdict.action, verdict.resent),
        (Class::NewEpoch, Action::Forward, Some(Resent::Acknowledged))
    );
    let original = w.original(again).unwrap();
    assert_eq!(
        (original.epoch, original.first.to_wire(), original.last()),
        (Epoch(0), 78, Sequence::from_wire(80).unwrap())
    );
    assert_eq!(original.offset, Some(ack.offset));
}

#[test]
fn the_records_of_a_lost_batch_may_be_in_the_log() {
    let mut w = World::new();
    w.lose(of(1, 0, 0, 3), None);
    assert_eq!(
        w.resent(of(1, 1, 0, 3)),
        Some(Resent::Unknown),
        "no success"
    );

    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    w.lose(of(2, 0, 3, 3), Some(40));
    let again = of(2, 1, 0, 3);
    assert_eq!(w.resent(again), Some(Resent::Unknown));
    assert_eq!(w.original(again).unwrap().offset, Some(40));
}

#[test]
fn other_records_and_other_counts_are_not_the_same() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    assert_eq!(w.resent(of(2, 1, 0, 3)), None);
    assert_eq!(w.resent(of(1, 1, 0, 4)), None);
    let longer = BatchId {
        len: 201,
        ..of(1, 1, 0, 3)
    };
    assert_eq!(w.resent(longer), None);
    assert_eq!(w.resent(of(1, 0, 3, 3)), None, "no new epoch");
}

#[test]
fn what_failed_for_certain_is_no_original() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    let failed = w.send(of(2, 0, 3, 3));
    let _ = w.fail(failed, 6);
    assert_eq!(w.resent(of(2, 1, 0, 3)), None);
}

#[test]
fn all_batches_that_come_again_are_told_once_each() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    w.write(of(2, 0, 3, 3));
    w.lose(of(3, 0, 6, 3), None);
    for (content, first, resent) in [
        (1, 0, Resent::Acknowledged),
        (2, 3, Resent::Acknowledged),
        (3, 6, Resent::Unknown),
    ] {
        let again = of(content, 1, first, 3);
        assert_eq!(w.resent(again), Some(resent), "{content}");
        let flight = w.send(again);
        assert_eq!(w.resent(again), None, "it is on its way");
        w.ack(flight);
        assert_eq!(w.resent(again), None, "it is a duplicate");
    }
    let next = w.judge(of(4, 1, 9, 3));
    assert_eq!((next.class, next.resent), (Class::InOrder, None));
}

#[test]
fn batches_that_come_again_while_the_first_is_on_its_way_are_known_too() {
    let mut w = World::new();
    w.rules.mode = Mode::Observe;
    w.write(of(1, 0, 0, 3));
    w.write(of(2, 0, 3, 3));
    let first = w.send(of(1, 1, 0, 3));
    assert_eq!(w.resent(of(2, 1, 3, 3)), Some(Resent::Acknowledged));
    let _ = w.fail(first, 6);
    assert_eq!(w.resent(of(1, 1, 0, 3)), None, "told when it came");
}

#[test]
fn records_that_come_again_under_a_second_new_epoch_are_known() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    w.write(of(2, 1, 0, 3));
    w.write(of(1, 2, 0, 3));
    assert_eq!(w.resent(of(2, 2, 3, 3)), Some(Resent::Acknowledged));
    let of_both = w.original(of(1, 3, 0, 3)).unwrap();
    assert_eq!(of_both.epoch, Epoch(2), "the newest");
}

#[test]
fn a_batch_that_is_still_on_its_way_is_waited_for() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    let flight = w.send(of(2, 0, 3, 3));
    let again = of(2, 1, 0, 3);
    assert_eq!(w.judge(again).action, Action::Hold);
    let ack = w.ack(flight);
    assert_eq!(w.resent(again), Some(Resent::Acknowledged));
    assert_eq!(w.original(again).unwrap().offset, Some(ack.offset));
}

#[test]
fn an_acknowledgement_after_the_new_epoch_began_still_counts() {
    let mut w = World::new();
    w.rules.mode = Mode::Observe;
    w.write(of(1, 0, 0, 3));
    let late = w.send(of(2, 0, 3, 3));
    w.write(of(1, 1, 0, 3));
    assert_eq!(w.resent(of(2, 1, 3, 3)), Some(Resent::Unknown));
    let ack = w.ack(late);
    let original = w.original(of(2, 1, 3, 3)).unwrap();
    assert_eq!(original.outcome, Resent::Acknowledged);
    assert_eq!(original.offset, Some(ack.offset));
}

#[test]
fn transactions_are_left_out() {
    let mut w = World::new();
    let transactional = |w: &World, batch| Arrival {
        transactional: true,
        ..w.arrival(batch)
    };
    for epoch in 0..3 {
        let arrival = transactional(&w, of(1, epoch, 0, 3));
        let verdict = w.window.judge(&arrival, &w.rules);
        assert_eq!(verdict.resent, None, "it may have been aborted");
        let flight = w.send_as(arrival);
        w.ack(flight);
    }
    assert_eq!(w.former(), 0, "and costs no memory");
}

#[test]
fn what_is_too_old_is_forgotten_and_costs_nothing_more() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    w.now = Time(10);
    w.write(of(2, 1, 0, 3));
    assert_eq!(w.former(), 1);
    w.now = Time(300);
    assert_eq!(w.resent(of(1, 1, 3, 3)), Some(Resent::Acknowledged));
    w.now = Time(301);
    assert_eq!(w.resent(of(1, 1, 3, 3)), None);
    assert_eq!(w.former(), 0);

    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    w.write(of(2, 1, 0, 3));
    w.window.rest(Duration::from_secs(30), Time(301));
    assert_eq!(w.former(), 0, "the sweep does it for a quiet window");
}

#[test]
fn another_log_has_no_former_epochs() {
    let mut w = World::new();
    w.write(of(1, 0, 0, 3));
    w.write(of(2, 1, 0, 3));
    w.window.forget();
    assert_eq!(w.resent(of(1, 1, 3, 3)), None);
}

#[test]
fn a_producer_that_raises_its_epoch_for_every_batch_keeps_a_bounded_number() {
    let mut w = World::new();
    for epoch in 0..100_i16 {
        w.write(of(epoch.unsigned_abs().into(), epoch, 0, 3));
    }
    assert_eq!(w.former(), RULES.window_batches + OPEN_MAX);
    assert_eq!(w.resent(of(98, 99, 3, 3)), Some(Resent::Acknowledged));
    assert_eq!(w.resent(of(60, 99, 3, 3)), None);
}

/// A window with an acknowledged batch, one of each state behind it, and the
/// next one on its way.
fn behind(settle: impl Fn(&mut World, Flight)) -> (World, Flight) {
    let mut w = World::new();
    w.rules.shield45 = true;
    w.acked(1);
    let head = w.send(batch(0, 10, 10));
    let tail = w.send(batch(0, 20, 10));
    settle(&mut w, head);
    (w, tail)
}

#[test]
fn a_45_that_follows_from_the_batch_before_is_shown_as_its_error() {
    for (code, shown) in [
        (3, 3),
        (6, 6),
        (100, 100),
        (19, 19),
        (51, 19),
        (2, 19),
        (10, 19),
    ] {
        let (mut w, tail) = behind(|w, head| {
            let _ = w.fail(head, code);
        });
        assert_eq!(w.fail(tail, 45).shield, Some(shown), "{code}");
    }
    let (mut w, tail) = behind(|w, head| {
        let _ = w.settle(head, Outcome::Unknown { candidate: None });
    });
    assert_eq!(w.fail(tail, 45).shield, Some(19), "it may be written");
    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 6);
        let _again = w.send(batch(0, 10, 10));
    });
    assert_eq!(w.fail(tail, 45).shield, Some(19), "it is on its way again");
}

#[test]
fn a_45_that_does_not_follow_is_never_hidden() {
    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 87);
    });
    assert_eq!(w.fail(tail, 45).shield, None, "nobody sends it again");

    let (mut w, tail) = behind(|w, head| {
        w.ack(head);
    });
    let settled = w.fail(tail, 45);
    assert_eq!((settled.shield, settled.disagreed), (None, true));

    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 45);
    });
    assert_eq!(
        w.fail(tail, 45).shield,
        None,
        "the head's own is not hidden"
    );

    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 6);
    });
    w.rules.shield45 = false;
    assert_eq!(w.fail(tail, 45).shield, None);
}

#[test]
fn observing_hides_nothing() {
    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 6);
    });
    w.rules.mode = Mode::Observe;
    assert_eq!(w.fail(tail, 45).shield, None);
}

#[test]
fn all_followers_are_shown_the_error_of_the_head() {
    let mut w = World::new();
    w.rules.shield45 = true;
    w.acked(1);
    let flights = [10, 20, 30, 40, 50].map(|first| w.send(batch(0, first, 10)));
    let _ = w.fail(flights[0], 6);
    for flight in &flights[1..] {
        assert_eq!(w.fail(*flight, 45).shield, Some(6));
    }
    for first in [10, 20, 30, 40, 50] {
        w.write(batch(0, first, 10));
    }
}

#[test]
fn a_batch_is_shielded_three_times_until_the_head_comes_again() {
    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 6);
    });
    let next = batch(0, 20, 10);
    assert_eq!(w.fail(tail, 45).shield, Some(6));
    for _ in 0..2 {
        let tail = w.send(next);
        assert_eq!(w.fail(tail, 45).shield, Some(6));
    }
    let tail = w.send(next);
    assert_eq!(w.fail(tail, 45).shield, None, "the client gave the head up");
    let tail = w.send(next);
    assert_eq!(w.fail(tail, 45).shield, None, "and hears of it each time");

    let head = w.send(batch(0, 10, 10));
    let _ = w.fail(head, 6);
    assert_eq!(w.mirror(next), 6, "the head was here again");
}

#[test]
fn copies_of_a_batch_share_its_three_shields() {
    let (mut w, tail) = behind(|w, head| {
        let _ = w.fail(head, 6);
    });
    let impatient = Arrival {
        patient: false,
        ..w.arrival(batch(0, 20, 10))
    };
    let copies = [
        tail,
        w.send_as(impatient),
        w.send_as(impatient),
        w.send_as(impatient),
    ];
    let shown = copies.map(|copy| w.fail(copy, 45).shield);
    assert_eq!(shown, [Some(6), Some(6), Some(6), None]);
}

#[test]
fn transactional_batches_are_shielded_like_others() {
    let mut w = World::new();
    w.rules.shield45 = true;
    w.acked(1);
    let transactional = |w: &World, first| Arrival {
        transactional: true,
        ..w.arrival(batch(0, first, 10))
    };
    let head = w.send_as(transactional(&w, 10));
    let tail = w.send_as(transactional(&w, 20));
    let _ = w.fail(head, 51);
    assert_eq!(w.fail(tail, 45).shield, Some(19));
}
