//! A scripted broker, hapax before it, and pairs of a client and its broker side.

use bytes::Bytes;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, ProduceRequest};
use kafka_protocol::protocol::StrBytes;
use std::time::Duration;

use crate::broker::{self, Asked, Conn, OPAQUE, Upstream};
use crate::support::batch::Batch;
use crate::support::hapax::{self, Hapax};
use crate::support::raw::{Answer, Client, Produce, Topic, topic_name};

/// How long something may take that does happen.
pub const SOON: Duration = Duration::from_secs(10);
/// The producer id of most tests.
pub const PRODUCER: i64 = 4711;
/// The id of the topic `orders`.
pub const ID: &str = "01010101-0202-4303-8404-050505050505";
/// Another id of it.
pub const NEW_ID: &str = "11111111-2222-4333-8444-555555555555";
/// Broker ports of a world.
pub const PORTS: u16 = 4;

/// A scripted broker and a hapax before it.
pub struct World {
    /// The broker.
    pub upstream: Upstream,
    /// The proxy.
    pub hapax: Hapax,
}

impl World {
    /// With these flags.
    pub fn new(flags: &[&str]) -> Self {
        Self::of("absorb", flags)
    }

    /// In this mode, with these flags.
    pub fn of(mode: &str, flags: &[&str]) -> Self {
        let upstream = broker::start();
        let hapax = hapax::start_with(&upstream.address, mode, PORTS, flags);
        Self { upstream, hapax }
    }

    /// A client that has said nothing yet.
    pub fn client(&self) -> Client {
        Client::connect(&self.hapax.bootstrap).unwrap()
    }

    /// A client and its connection at the broker.
    pub fn pair(&self) -> Pair {
        Pair::of(self.client(), &self.upstream)
    }

    /// A pair that has seen the metadata of `orders`.
    pub fn informed(&self) -> Pair {
        let mut pair = self.pair();
        pair.learn(ID);
        pair
    }

    /// The events so far, as (event, kind).
    pub fn events(&self) -> Vec<(String, String)> {
        let page = self.hapax.json("/api/v1/events");
        let events = page["events"].as_array().unwrap().iter();
        events
            .map(|event| {
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                (text("event"), text("kind"))
            })
            .collect()
    }

    /// The only connection whose client has said its name.
    pub fn connection(&self) -> serde_json::Value {
        let page = self.hapax.json("/api/v1/connections");
        let mut rows = page["connections"].as_array().unwrap().iter();
        let row = rows.find(|row| row["client_id"] == "raw").cloned();
        row.unwrap_or_else(|| panic!("no connection in {page}"))
    }

    /// Batches that got this verdict.
    pub fn verdicts(&self, verdict: &str) -> f64 {
        let label = format!("verdict=\"{verdict}\"");
        self.hapax.metric("hapax_verdicts_total", &[&label])
    }

    /// The value of a metric without labels.
    pub fn gauge(&self, name: &str) -> f64 {
        self.hapax.metric(name, &[])
    }
}

/// A client and its connection at the broker.
pub struct Pair {
    /// The client.
    pub client: Client,
    /// What the broker sees of it.
    pub broker: Conn,
}

impl Pair {
    /// A client that has just connected, and its connection at this broker.
    pub fn of(mut client: Client, at: &Upstream) -> Self {
        let ping = ping(&mut client);
        let mut broker = at.accept();
        let asked = broker.next();
        assert_eq!(asked.key, OPAQUE);
        broker.answer_raw(&asked, b"pong");
        let answer = client.receive_frame().unwrap();
        assert_eq!(answer[..4], ping.to_be_bytes());
        assert_eq!(answer[4..], *b"pong");
        Self { client, broker }
    }

    /// A request and its answer go through, so that nothing else is on the way
    /// in either direction.
    pub fn barrier(&mut self) {
        let correlation = ping(&mut self.client);
        let asked = self.broker.next();
        let got = (asked.key, asked.correlation);
        assert_eq!(got, (OPAQUE, correlation), "something else was forwarded");
        self.broker.answer_raw(&asked, b"pong");
        let answer = self.client.receive_frame().unwrap();
        assert_eq!(answer[..4], correlation.to_be_bytes());
    }

    /// The client sends, and waits for nothing.
    pub fn send(&mut self, produce: &Produce) -> Owed {
        let correlation = self.client.send(produce.version, &produce.request());
        Owed {
            version: produce.version,
            correlation: correlation.unwrap(),
        }
    }

    /// The client's next answer is to this request.
    pub fn receive(&mut self, owed: &Owed) -> Vec<Answer> {
        let response = self
            .client
            .receive::<ProduceRequest>(owed.version, owed.correlation);
        Answer::all(&response.unwrap())
    }

    /// The client's next answer has one partition.
    pub fn receive_one(&mut self, owed: &Owed) -> Answer {
        let answers = self.receive(owed);
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    /// The request reaches the broker, which acknowledges it at `offset`.
    pub fn write(&mut self, produce: &Produce, offset: i64) -> Vec<Answer> {
        let owed = self.send(produce);
        let asked = self.broker.next();
        self.broker.ack(&asked, offset);
        self.receive(&owed)
    }

    /// The request is answered, and nothing of it reaches the broker.
    pub fn answered_here(&mut self, produce: &Produce) -> Vec<Answer> {
        let owed = self.send(produce);
        let answers = self.receive(&owed);
        self.barrier();
        answers
    }

    /// The request reaches the broker as the client sent it; not answered yet.
    pub fn forwarded(&mut self, produce: &Produce) -> (Owed, Asked) {
        let (correlation, frame) = self.client.frame(produce.version, &produce.request());
        self.client.send_raw(&frame).unwrap();
        let asked = self.broker.next();
        assert!(asked.frame == frame[4..], "another frame was forwarded");
        let version = produce.version;
        (
            Owed {
                version,
                correlation,
            },
            asked,
        )
    }

    /// The cluster says which id `orders` has.
    pub fn learn(&mut self, id: &str) {
        let request = MetadataRequest::default();
        let correlation = self.client.send(12, &request).unwrap();
        let asked = self.broker.next();
        let metadata = metadata(&[(1, "kafka-1.example", 9092)], Some(id));
        self.broker.answer(&asked, &metadata);
        let answer = self.client.receive::<MetadataRequest>(12, correlation);
        answer.unwrap();
    }
}

/// A Produce request that has not been answered.
#[derive(Clone, Copy)]
pub struct Owed {
    pub version: i16,
    pub correlation: i32,
}

/// Sends an opaque request; gives its correlation id.
pub fn ping(client: &mut Client) -> i32 {
    opaque(client, b"ping")
}

/// Sends an opaque request with this body.
pub fn opaque(client: &mut Client, body: &[u8]) -> i32 {
    let (correlation, frame) = client.frame_raw(OPAQUE, 0, 1, body);
    client.send_raw(&frame).unwrap();
    correlation
}

/// The topic of most tests.
pub fn orders() -> Topic {
    Topic::of("orders", ID)
}

/// The one-record batch with this sequence.
pub fn batch(sequence: i32) -> Bytes {
    of_epoch(0, sequence).bytes()
}

/// The same in another epoch, to be changed.
pub fn of_epoch(epoch: i16, sequence: i32) -> Batch {
    Batch::of(PRODUCER, epoch, sequence, [format!("value {sequence}")])
}

/// A request with that batch for partition 0.
pub fn produce(sequence: i32) -> Produce {
    Produce::to(&orders(), 0, batch(sequence))
}

/// A request with batches for several partitions, as (partition, sequence).
pub fn produce_all(batches: &[(i32, i32)]) -> Produce {
    let partitions = batches.iter().map(|(partition, sequence)| {
        // Partitions do not share bytes.
        let value = format!("value {partition}/{sequence}");
        let batch = Batch::of(PRODUCER, 0, *sequence, [value]);
        (*partition, Some(batch.bytes()))
    });
    Produce::of(vec![(orders(), partitions.collect())])
}

/// A Metadata answer that lists brokers, and `orders` with four partitions.
pub fn metadata(brokers: &[(i32, &str, u16)], id: Option<&str>) -> MetadataResponse {
    let listed = brokers.iter().map(|(node, host, port)| {
        MetadataResponseBroker::default()
            .with_node_id((*node).into())
            .with_host(StrBytes::from_string((*host).to_owned()))
            .with_port(i32::from(*port))
    });
    let partitions = (0..4).map(|index| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(1.into())
    });
    let mut topic = MetadataResponseTopic::default()
        .with_name(Some(topic_name("orders")))
        .with_partitions(partitions.collect());
    if let Some(id) = id {
        topic.topic_id = id.parse().unwrap();
    }
    MetadataResponse::default()
        .with_brokers(listed.collect())
        .with_cluster_id(Some(StrBytes::from_static_str("scripted")))
        .with_topics(vec![topic])
}
