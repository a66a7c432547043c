//! rskafka, which has neither idempotence nor transactions nor groups.

use std::collections::BTreeMap;

use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::record::Record;
use serde_json::json;

use crate::{Failure, Options, line};

/// Records that go in one request.
const BATCH: usize = 10;

pub(crate) async fn produce(options: &Options) -> Result<(), Failure> {
    if options.is_idempotent() {
        return Err("rskafka has no idempotence: produce wants --idempotence false".into());
    }
    let bootstrap = options.text("bootstrap")?.split(',').map(str::to_owned);
    let client = ClientBuilder::new(bootstrap.collect())
        .client_id("rskafka")
        .build()
        .await?;
    let mut by_partition: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
    let records = options.records()?;
    for (n, partition) in &records {
        by_partition.entry(*partition).or_default().push(*n);
    }
    for (partition, numbers) in by_partition {
        let leader = client
            .partition_client(
                options.text("topic")?,
                partition,
                UnknownTopicHandling::Retry,
            )
            .await?;
        for numbers in numbers.chunks(BATCH) {
            let records = numbers.iter().map(record).collect();
            let written = leader.produce(records, Compression::NoCompression).await?;
            for (n, offset) in numbers.iter().zip(written) {
                line(&json!({"n": n, "partition": partition, "offset": offset}));
            }
        }
    }
    let sent = records.len();
    line(&json!({"sent": sent, "acked": sent, "failed": 0}));
    Ok(())
}

fn record(n: &u64) -> Record {
    Record {
        key: None,
        value: Some(n.to_string().into_bytes()),
        headers: BTreeMap::new(),
        timestamp: chrono::Utc::now(),
    }
}
