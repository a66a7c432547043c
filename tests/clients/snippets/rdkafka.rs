//! Around the README's lines for rdkafka: one record.
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), rdkafka::error::KafkaError> {
    // SNIPPET
    let record = FutureRecord::<(), _>::to("orders").payload("1");
    let sent = producer.send(record, Duration::from_secs(30)).await;
    sent.map(|_| ()).map_err(|(error, _)| error)
}
