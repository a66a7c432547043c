//! The fault broker behind hapax: answers lost, connections cut, leaders moved.

use crate::clients::Client;
use crate::hapax::{Hapax, Route};
use crate::kfaked::Kfaked;

const PRODUCE: i16 = 0;
const TOPIC: &str = "faulty";

#[test]
fn a_lost_answer_is_not_written_twice() {
    let seen = check(|broker| broker.lose(PRODUCE, 1));
    assert_eq!(
        seen, 2,
        "the retry reaches the broker: hapax never had the answer"
    );
}

#[test]
fn a_request_cut_before_it_is_applied_is_written_once() {
    assert_eq!(check(|broker| broker.cut(PRODUCE, 1)), 2);
}

#[test]
fn a_late_answer_is_waited_for() {
    assert_eq!(check(|broker| broker.delay(PRODUCE, 1, 300)), 1);
}

#[test]
fn a_batch_appended_but_not_replicated_is_not_written_twice() {
    assert_eq!(
        check(|broker| broker.fail_produce(TOPIC, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 1)),
        2
    );
}

#[test]
fn a_moved_leader_is_found() {
    check(|broker| broker.lead(TOPIC, 0, 1));
    check(|broker| broker.lead(TOPIC, 0, 2));
}

/// One batch of 20 records under a fault, each of three clients: how many
/// Produce requests the broker saw for the last of them.
fn check(fault: impl Fn(&Kfaked)) -> u64 {
    let broker = Kfaked::start(3, TOPIC);
    let hapax = (Route::chosen() == Route::Hapax)
        .then(|| Hapax::start(&["--upstream", &broker.bootstrap()]));
    let bootstrap = hapax
        .as_ref()
        .map_or_else(|| broker.bootstrap(), Hapax::bootstrap);
    let mut requests = 0;
    for (clients, client) in (1..).zip(Client::FULL) {
        let before = broker.seen(PRODUCE);
        fault(&broker);
        let arguments = [
            "--topic",
            TOPIC,
            "--count",
            "20",
            "--linger-ms",
            "200",
            "--backoff-ms",
            "10",
        ];
        let produced = client.run("produce", &bootstrap, &arguments);
        assert_eq!(produced.summary["acked"], 20, "{client:?}");
        assert_eq!(broker.records(TOPIC, 0), clients * 20, "{client:?}");
        requests = broker.seen(PRODUCE) - before;
    }
    if let Some(hapax) = &hapax {
        assert_eq!(
            hapax.batches(TOPIC, "duplicate_absorbed"),
            0,
            "hapax had no answer to give again"
        );
    }
    requests
}
