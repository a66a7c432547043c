//! The upstream of `hapax dev`, and the cases that it cannot have.

use std::thread;

use hapax::dev::{RETENTION_BYTES, Upstream};
use hapax::workers::new_runtime;

use crate::harness::Case;

const TRANSACTIONAL: &str = "it has no transactions";
/// Every case runs on the dev upstream, except these.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "1.6 a retry after its commit gets 48 on Produce v8",
        TRANSACTIONAL,
    ),
    (
        "1.6 a retry after its commit gets 120 on Produce v11",
        TRANSACTIONAL,
    ),
    (
        "1.6 a retry after its commit gets 47 on Produce v12, transaction version 2",
        TRANSACTIONAL,
    ),
    (
        "1.2 transaction version 2 with empty state starts at 0",
        TRANSACTIONAL,
    ),
    (
        "1.2 a marker of the same epoch keeps the sequence",
        TRANSACTIONAL,
    ),
    (
        "1.2 a retry from the transaction before spoils the next batch",
        TRANSACTIONAL,
    ),
    (
        "1.2 a batch outside the open transaction of its producer gets 48",
        TRANSACTIONAL,
    ),
    (
        "a retry within its transaction is the broker's to recognise",
        TRANSACTIONAL,
    ),
    (
        "a batch without its partition added gets 48 on v8, 120 on v11",
        TRANSACTIONAL,
    ),
    ("a fenced producer gets 47 on Produce", TRANSACTIONAL),
];

/// Why a case is not for the dev upstream, if it is not.
pub fn left_out(name: &str) -> Option<&'static str> {
    let found = LEFT_OUT.iter().find(|(case, _)| *case == name);
    found.map(|(_, reason)| *reason)
}

/// Panics where the table names a case that there is not.
pub fn check_names(cases: &[Case]) {
    for (left_out, _) in LEFT_OUT {
        assert!(
            cases.iter().any(|case| case.name == *left_out),
            "no case `{left_out}`"
        );
    }
}

/// Starts it on a thread that lives as long as the process; gives its address.
pub fn start() -> String {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        new_runtime().unwrap().block_on(async {
            let (upstream, listener) = Upstream::bind(0, RETENTION_BYTES).await.unwrap();
            tell.send(upstream.address().to_string()).unwrap();
            upstream.serve(listener).await;
        });
    });
    told.recv().unwrap()
}
