//! Transactional batches: they pass untouched, and the broker judges them.

use std::io;
use std::time::Duration;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{AddPartitionsToTxnRequest, EndTxnRequest};

use crate::harness::{Case, World, free};
use crate::support::await_until;
use crate::support::batch::{Batch, CONTROL, TIMESTAMP, TRANSACTIONAL};
use crate::support::raw::{Answer, Produce, topic_name, transactional_id};

/// SEMANTICS.md 1.2 from "TV2 with empty state" on, and what 1.6 saw live.
pub fn all() -> Vec<Case> {
    vec![
        free(
            "1.6 a retry after its commit gets 48 on Produce v8",
            |world| retry_after_commit(world, 8, 48),
        ),
        free(
            "1.6 a retry after its commit gets 120 on Produce v11",
            |world| retry_after_commit(world, 11, 120),
        ),
        free(
            "1.6 a retry after its commit gets 47 on Produce v12, transaction version 2",
            second_version_commit,
        ),
        free(
            "1.2 transaction version 2 with empty state starts at 0",
            |world| {
                let mut txn = Transaction::begin(world)?;
                assert_eq!(txn.put(world, 12, 5)?.code, 45);
                assert_eq!(txn.put(world, 12, 0)?.offset, 0);
                txn.lines.push(format!("{:?}", world.log(0).len()));
                Ok(txn.lines)
            },
        ),
        free(
            "1.2 a marker of the same epoch keeps the sequence",
            same_epoch_marker,
        ),
        free(
            "1.2 a retry from the transaction before spoils the next batch",
            stale_retry,
        ),
        free(
            "1.2 a batch outside the open transaction of its producer gets 48",
            |world| {
                let mut txn = Transaction::begin(world)?;
                txn.add_partition(world)?;
                assert_eq!(txn.put(world, 8, 0)?.offset, 0);
                let plain = Batch::of(txn.producer, txn.epoch, 1, ["v1"]);
                let plain = Produce::to(&world.topic, 0, plain.bytes());
                for version in [8, 11, 12] {
                    let answer = world.client(0).produce(&plain.clone().version(version))?;
                    assert_eq!((answer.code, answer.offset), (48, -1), "v{version}");
                }
                txn.end(world, 3, true)?;
                Ok(txn.lines)
            },
        ),
        free(
            "a retry within its transaction is the broker's to recognise",
            |world| {
                let mut txn = Transaction::begin(world)?;
                for (version, add) in [(8, true), (11, false), (12, false)] {
                    if add {
                        txn.add_partition(world)?;
                        assert_eq!(txn.put(world, 8, 0)?.offset, 0);
                    }
                    let again = txn.put(world, version, 0)?;
                    let found = (again.code, again.offset, again.append_time);
                    assert_eq!(found, (0, 0, TIMESTAMP), "v{version}");
                }
                assert_eq!(txn.put(world, 8, 1)?.offset, 1);
                txn.end(world, 3, false)?;
                assert_eq!(world.log(0).len(), 3, "two batches and a marker");
                Ok(txn.lines)
            },
        ),
        free(
            "a batch without its partition added gets 48 on v8, 120 on v11",
            |world| {
                let mut txn = Transaction::begin(world)?;
                assert_eq!(txn.put(world, 8, 0)?.code, 48);
                assert_eq!(txn.put(world, 11, 0)?.code, 120);
                assert_eq!(world.log(0), []);
                Ok(txn.lines)
            },
        ),
        free("a fenced producer gets 47 on Produce", |world| {
            let mut old = Transaction::begin(world)?;
            assert_eq!(old.put(world, 12, 0)?.offset, 0);
            let new = Transaction::begin(world)?;
            assert_eq!(new.producer, old.producer);
            assert!(new.epoch > old.epoch);
            await_marker(world, 1);
            assert_eq!(old.put(world, 12, 1)?.code, 47);
            assert_eq!(world.log(0).len(), 2, "one batch and an abort marker");
            Ok(old.lines)
        }),
    ]
}

/// One transactional producer, named after the topic.
struct Transaction {
    id: String,
    producer: i64,
    epoch: i16,
    lines: Vec<String>,
}

impl Transaction {
    fn begin(world: &mut World<'_>) -> io::Result<Self> {
        let id = world.topic.name.clone();
        let (producer, epoch) = world.client(0).init_producer(4, Some(&id))?;
        Ok(Self {
            id,
            producer,
            epoch,
            lines: Vec::new(),
        })
    }

    fn add_partition(&mut self, world: &mut World<'_>) -> io::Result<()> {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(&world.topic.name))
            .with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(transactional_id(&self.id))
            .with_v3_and_below_producer_id(self.producer.into())
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![topic]);
        let mut code = 51;
        await_until("the transaction before", Duration::from_secs(10), || {
            let response = world.client(0).call(3, &request).unwrap();
            let topic = &response.results_by_topic_v3_and_below[0];
            code = topic.results_by_partition[0].partition_error_code;
            code != 51
        });
        assert_eq!(code, 0, "AddPartitionsToTxn");
        Ok(())
    }

    /// One transactional record; tried again while the transaction before ends.
    fn put(&mut self, world: &mut World<'_>, version: i16, sequence: i32) -> io::Result<Answer> {
        let batch = Batch {
            attributes: TRANSACTIONAL,
            ..Batch::of(
                self.producer,
                self.epoch,
                sequence,
                [format!("v{sequence}")],
            )
        };
        let produce = Produce::to(&world.topic, 0, batch.bytes()).version(version);
        let produce = produce.transactional(&self.id);
        let mut answer = world.client(0).produce(&produce)?;
        await_until("the transaction before", Duration::from_secs(10), || {
            // 51 before Produce v12 comes as 19.
            let wait = matches!(answer.code, 51 | 19);
            if wait {
                answer = world.client(0).produce(&produce).unwrap();
            }
            !wait
        });
        let (code, offset) = (answer.code, answer.offset);
        self.lines
            .push(format!("v{version} {sequence}: {code} at {offset}"));
        Ok(answer)
    }

    /// Ends the transaction and waits for its marker.
    fn end(&mut self, world: &mut World<'_>, version: i16, commit: bool) -> io::Result<()> {
        let markers = markers(world);
        let request = EndTxnRequest::default()
            .with_transactional_id(transactional_id(&self.id))
            .with_producer_id(self.producer.into())
            .with_producer_epoch(self.epoch)
            .with_committed(commit);
        let response = world.client(0).call(version, &request)?;
        assert_eq!(response.error_code, 0, "EndTxn");
        if version >= 5 {
            assert_eq!(response.producer_id.0, self.producer);
            assert_eq!(response.producer_epoch, self.epoch + 1);
            self.epoch = response.producer_epoch;
        }
        await_marker(world, markers + 1);
        Ok(())
    }
}

fn markers(world: &mut World<'_>) -> usize {
    let log = world.log(0);
    log.iter().filter(|b| b.attributes & CONTROL != 0).count()
}

fn await_marker(world: &mut World<'_>, number: usize) {
    await_until("a marker", Duration::from_secs(10), || {
        markers(world) >= number
    });
}

fn retry_after_commit(world: &mut World<'_>, version: i16, code: i16) -> io::Result<Vec<String>> {
    let mut txn = Transaction::begin(world)?;
    txn.add_partition(world)?;
    assert_eq!(txn.put(world, version, 0)?.offset, 0);
    assert_eq!(txn.put(world, version, 1)?.offset, 1);
    txn.end(world, 3, true)?;
    assert_eq!(txn.put(world, version, 0)?.code, code);
    let plain = Batch::of(txn.producer, txn.epoch, 2, ["plain"]);
    let plain = Produce::to(&world.topic, 0, plain.bytes()).version(version);
    let answer = world.client(0).produce(&plain)?;
    txn.lines.push(format!("plain: {}", answer.code));
    assert_eq!(answer.code, 45, "the next batch, outside a transaction");
    assert_eq!(world.log(0).len(), 3, "two batches and a marker");
    Ok(txn.lines)
}

fn second_version_commit(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut txn = Transaction::begin(world)?;
    assert_eq!(txn.put(world, 12, 0)?.offset, 0);
    assert_eq!(txn.put(world, 12, 0)?.append_time, TIMESTAMP);
    let old = txn.epoch;
    txn.end(world, 5, true)?;
    let new = std::mem::replace(&mut txn.epoch, old);
    assert_eq!(txn.put(world, 12, 0)?.code, 47, "a retry of the old epoch");
    assert_eq!(
        txn.put(world, 12, 1)?.code,
        47,
        "a late batch of the old epoch"
    );
    txn.epoch = new;
    // The marker left a state without batches, in the new epoch.
    assert_eq!(txn.put(world, 12, 3)?.code, 45, "not the first sequence");
    assert_eq!(txn.put(world, 12, 0)?.offset, 2);
    txn.end(world, 5, false)?;
    assert_eq!(world.log(0).len(), 4, "two batches and their markers");
    Ok(txn.lines)
}

fn same_epoch_marker(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut txn = Transaction::begin(world)?;
    txn.add_partition(world)?;
    assert_eq!(txn.put(world, 8, 0)?.offset, 0);
    txn.end(world, 3, true)?;
    txn.add_partition(world)?;
    assert_eq!(txn.put(world, 8, 1)?.offset, 2);
    txn.end(world, 3, true)?;
    assert_eq!(world.log(0).len(), 4, "two batches and their markers");
    Ok(txn.lines)
}

fn stale_retry(world: &mut World<'_>) -> io::Result<Vec<String>> {
    let mut txn = Transaction::begin(world)?;
    txn.add_partition(world)?;
    assert_eq!(txn.put(world, 8, 0)?.offset, 0);
    txn.end(world, 3, true)?;
    txn.add_partition(world)?;
    assert_eq!(txn.put(world, 8, 0)?.append_time, TIMESTAMP, "still known");
    assert_eq!(
        txn.put(world, 8, 1)?.code,
        45,
        "above the lowest sequence seen"
    );
    txn.end(world, 3, true)?;
    Ok(txn.lines)
}
