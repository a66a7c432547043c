//! rdkafka, which is librdkafka.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::Message;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer};
use serde_json::json;

use crate::{Failure, Options, line};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(options: &Options) -> Result<ClientConfig, Failure> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", options.text("bootstrap")?);
    config.set("client.id", "rdkafka");
    Ok(config)
}

pub(crate) async fn produce(options: &Options) -> Result<(), Failure> {
    let mut config = config(options)?;
    config.set("enable.idempotence", options.is_idempotent().to_string());
    config.set("linger.ms", options.number("linger-ms", 0)?.to_string());
    let batch = options.number("batch-bytes", 16_384)?;
    config.set("batch.size", batch.to_string());
    let producer: FutureProducer = config.create()?;
    let records = options.records()?;
    let mut deliveries = Vec::new();
    for (n, partition) in &records {
        deliveries.push((n, send(&producer, options, *n, *partition)?));
    }
    let mut failed = 0;
    for (n, delivery) in deliveries {
        match delivery.await? {
            Ok(at) => line(&json!({"n": n, "partition": at.partition, "offset": at.offset})),
            Err((error, _)) => {
                failed += 1;
                line(&json!({"n": n, "error": error.to_string()}));
            }
        }
    }
    let sent = records.len();
    line(&json!({"sent": sent, "acked": sent - failed, "failed": failed}));
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} records were not delivered").into()),
    }
}

/// Three transactions of `--count` records: committed, aborted, committed.
pub(crate) async fn transact(options: &Options) -> Result<(), Failure> {
    let mut config = config(options)?;
    config.set("transactional.id", options.text("transactional-id")?);
    let producer: FutureProducer = config.create()?;
    producer.init_transactions(PATIENCE)?;
    let records = options.records()?;
    let count = records.len();
    for (round, commits) in [true, false, true].into_iter().enumerate() {
        producer.begin_transaction()?;
        for (n, _) in &records {
            let n = n + u64::try_from(round * count)?;
            let partition = i32::try_from(n % options.number("partitions", 1)?)?;
            let delivery = send(&producer, options, n, partition)?.await?;
            let at = delivery.map_err(|(error, _)| error)?;
            line(&json!({
                "n": n, "partition": at.partition, "offset": at.offset, "committed": commits
            }));
        }
        match commits {
            true => producer.commit_transaction(PATIENCE)?,
            false => producer.abort_transaction(PATIENCE)?,
        }
    }
    line(&json!({"committed": 2 * count, "aborted": count}));
    Ok(())
}

fn send(
    producer: &FutureProducer,
    options: &Options,
    n: u64,
    partition: i32,
) -> Result<DeliveryFuture, Failure> {
    let value = n.to_string();
    let record = FutureRecord::<(), _>::to(options.text("topic")?)
        .partition(partition)
        .payload(&value);
    Ok(producer.send_result(record).map_err(|(error, _)| error)?)
}

pub(crate) async fn consume(options: &Options) -> Result<(), Failure> {
    let isolation = match options.has("read-committed") {
        true => "read_committed",
        false => "read_uncommitted",
    };
    let mut config = config(options)?;
    config.set("group.id", options.text("group")?);
    config.set("auto.offset.reset", "earliest");
    config.set("enable.auto.commit", "false");
    config.set("isolation.level", isolation);
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[options.text("topic")?])?;
    let count = options.number("count", 1)?;
    let patience = Duration::from_millis(options.number("timeout-ms", 30_000)?);
    let read = async {
        for _ in 0..count {
            let message = consumer.recv().await?;
            let value = std::str::from_utf8(message.payload().unwrap_or_default())?;
            let n: u64 = value.parse()?;
            line(&json!({"n": n, "partition": message.partition(), "offset": message.offset()}));
        }
        Ok::<_, Failure>(())
    };
    tokio::time::timeout(patience, read).await??;
    consumer.commit_consumer_state(CommitMode::Sync)?;
    line(&json!({"consumed": count}));
    Ok(())
}
