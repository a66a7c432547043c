//! A whole session, driven from both sides: valid requests and answers, retries, other bytes, and ends at any moment.
//!
//! The sockets are real ones of the loopback interface; both of their far ends are here. While both sides keep to the
//! protocol it is held that the broker gets the requests in their order and as they were sent (a Produce request perhaps
//! without some of its partitions), that the client gets its answers in the order of its requests, that no answer names
//! a broker's own address, and that every success was given by the broker to the same bytes, or read back from its log,
//! of which the broker may say anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use hapax::cli::RunArgs;
use hapax::config::Config;
use hapax::metrics::Tally;
use hapax::session::{self, Door, Shared};
use hapax::wire::fetch::{self, BY_ID};
use hapax::wire::produce::NEWEST;
use hapax::wire::{api, schema};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiVersionsResponse, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataResponse, ProduceRequest, ProduceResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable, Message, StrBytes};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::{self, JoinHandle};
use uuid::Uuid;

use super::choices::Choices;
use super::{messages, second};

/// An api that hapax does not look into.
const OPAQUE: i16 = 12;
/// Steps of one input.
const STEPS_MAX: usize = 48;
/// How long the ends may take once every far end is closed, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// A host that only a broker says.
const SECRET: &str = "broker-1.internal.example";

thread_local! {
    static WORLD: World = World::new();
}

struct World {
    runtime: LocalRuntime,
    config: Config,
    /// The same, but that it reads the log back.
    reading: Config,
    clients: TcpListener,
    brokers: TcpListener,
}

impl World {
    fn new() -> Self {
        // The driver is asked each time that a task gives way.
        let mut builder = Builder::new_current_thread();
        builder.enable_all().event_interval(1);
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (clients, brokers) = (listen(), listen());
        brokers.set_nonblocking(true).unwrap();
        let upstream = format!("--upstream={}", brokers.local_addr().unwrap());
        let config = |resolve| {
            let flags = [
                &upstream,
                "--listen=127.0.0.1:1",
                "--broker-ports=2-9",
                "--sequence-hold-max=1ms",
                resolve,
            ];
            let args = RunArgs::from_flags(flags).unwrap();
            let (settings, errors) = args.settle_with(&|_| None);
            assert!(errors.is_empty(), "{errors:?}");
            settings.config().unwrap()
        };
        Self {
            runtime: builder.build_local(LocalOptions::default()).unwrap(),
            config: config("--sequence-resolve=false"),
            reading: config("--sequence-resolve=true"),
            clients,
            brokers,
        }
    }
}

/// What happens, step by step.
pub fn drive(input: &[u8]) {
    run(input, false);
}

/// The same where hapax reads the log back.
pub fn drive_reading(input: &[u8]) {
    run(input, true);
}

fn run(input: &[u8], reads: bool) {
    WORLD.with(|world| {
        let config = if reads { &world.reading } else { &world.config };
        let shared = Arc::new(hapax::listen::share(config.clone()));
        let tally = Rc::new(shared.metrics.tally());
        let mut run = Run {
            world,
            shared,
            tally,
            pairs: Vec::new(),
            sessions: Vec::new(),
            reads,
            acked: BTreeMap::new(),
            log: BTreeMap::new(),
            shown: BTreeSet::new(),
        };
        world.runtime.block_on(run.all(Choices::new(input)));
    });
}

struct Run<'w> {
    world: &'w World,
    shared: Arc<Shared>,
    tally: Rc<Tally>,
    pairs: Vec<Pair>,
    sessions: Vec<JoinHandle<()>>,
    /// The offsets that the broker gave each batch, by partition and bytes.
    acked: BTreeMap<(Vec<u8>, i32, Bytes), BTreeSet<i64>>,
    /// Whether hapax reads the log back.
    reads: bool,
    /// What the broker has written, by partition: a record each.
    log: BTreeMap<i32, Vec<Bytes>>,
    /// What it has shown of its log, true or not.
    shown: BTreeSet<Shown>,
}

/// A batch that the broker said to be in the log of a partition, at an offset.
type Shown = (i32, Identity, i64);

/// Producer, epoch, first sequence and count.
type Identity = (i64, i16, i32, i32);

/// A client, and what the broker sees of it.
struct Pair {
    client: Option<TcpStream>,
    broker: Option<TcpStream>,
    /// Bytes that the client and the broker have read, and not yet dealt with.
    to_client: Vec<u8>,
    to_broker: Vec<u8>,
    correlation: i32,
    /// Of the batch that was sent last.
    sequence: u8,
    /// Everything that was sent.
    history: Vec<Sent>,
    /// Requests that the broker may still see, in their order.
    sent: VecDeque<Sent>,
    /// Those that the client may still get answers to.
    awaited: VecDeque<(i32, i16, i16)>,
    /// Those that the broker has not answered.
    asked: VecDeque<Sent>,
    /// Whether each side has kept to the protocol so far.
    strict: bool,
}

#[derive(Clone)]
struct Sent {
    correlation: i32,
    key: i16,
    version: i16,
    frame: Vec<u8>,
}

impl Run<'_> {
    async fn all(&mut self, mut choices: Choices<'_>) {
        self.connect(&mut choices).await;
        for _ in 0..STEPS_MAX {
            if choices.is_empty() {
                break;
            }
            self.step(&mut choices).await;
            self.look().await;
        }
        self.pairs.clear();
        let begun = Instant::now();
        for session in std::mem::take(&mut self.sessions) {
            while !session.is_finished() {
                assert!(begun.elapsed() < PATIENCE, "a session does not end");
                task::yield_now().await;
            }
            session.await.unwrap();
        }
        assert!(self.shared.sessions.is_empty(), "a session is still listed");
    }

    /// A client that says something, upon which its broker is dialled.
    async fn connect(&mut self, choices: &mut Choices<'_>) {
        let client = TcpStream::connect(self.world.clients.local_addr().unwrap()).unwrap();
        let (served, _) = self.world.clients.accept().unwrap();
        client.set_nodelay(true).unwrap();
        for side in [&client, &served] {
            side.set_nonblocking(true).unwrap();
        }
        let served = tokio::net::TcpStream::from_std(served).unwrap();
        let (shared, tally) = (Arc::clone(&self.shared), Rc::clone(&self.tally));
        let session = session::serve(shared, tally, served, Door::Bootstrap(1));
        self.sessions.push(task::spawn_local(session));
        let mut pair = Pair {
            client: Some(client),
            broker: None,
            to_client: Vec::new(),
            to_broker: Vec::new(),
            correlation: 0,
            sequence: 0,
            history: Vec::new(),
            sent: VecDeque::new(),
            awaited: VecDeque::new(),
            asked: VecDeque::new(),
            strict: true,
        };
        let first = choices.below(8);
        match first {
            0 => {
                pair.say(choices);
                pair.write_client(&[0]);
            }
            1 => pair.ask(choices),
            // Most clients know which id the topic has.
            _ => pair.send(api::METADATA, 12, b"", true, &mut Choices::new(&[])),
        }
        let begun = Instant::now();
        let broker = loop {
            task::yield_now().await;
            match self.world.brokers.accept() {
                Ok((broker, _)) => break broker,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(begun.elapsed() < PATIENCE, "the broker is not dialled");
        };
        broker.set_nonblocking(true).unwrap();
        pair.broker = Some(broker);
        self.pairs.push(pair);
        self.look().await;
        if first > 1 {
            self.answer(self.pairs.len() - 1, &mut Choices::new(&[]));
            self.look().await;
        }
    }

    async fn step(&mut self, choices: &mut Choices<'_>) {
        let at = choices.below(self.pairs.len());
        if self.reads && !choices.rarely(16) {
            return self.doubtful_step(at, choices).await;
        }
        let pair = &mut self.pairs[at];
        match choices.below(20) {
            0..6 => pair.produce(choices),
            6 | 7 => pair.ask(choices),
            8..14 => self.answer(at, choices),
            14 => pair.say(choices),
            15 => pair.sasl(choices),
            16 => pair.interrupt(choices),
            17 => pair.hang_up(choices),
            18 if self.pairs.len() < 3 => self.connect(choices).await,
            _ => {}
        }
    }

    /// One of those after which hapax does not know what was written.
    async fn doubtful_step(&mut self, at: usize, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..3 => self.pairs[at].produce(choices),
            3..5 => self.answer(at, choices),
            5..11 => {
                self.pairs[at].produce(choices);
                self.look().await;
                self.answer(at, choices);
            }
            11..14 => {
                for at in 0..self.pairs.len() {
                    self.answer(at, choices);
                    self.look().await;
                    self.answer(at, choices);
                }
            }
            14 => self.pairs[at].hang_up(choices),
            _ if self.pairs.len() < 6 => self.connect(choices).await,
            _ => {}
        }
    }

    /// Lets the sessions work, and reads what they wrote.
    async fn look(&mut self) {
        for _ in 0..8 {
            task::yield_now().await;
            for at in 0..self.pairs.len() {
                self.pairs[at].read();
                self.requests(at);
                self.answers(at);
            }
        }
    }

    /// What the broker got.
    fn requests(&mut self, at: usize) {
        let pair = &mut self.pairs[at];
        while pair.strict
            && let Some(frame) = next_frame(&mut pair.to_broker)
        {
            let correlation = i32::from_be_bytes(frame[4..8].try_into().unwrap());
            if let Some(question) = question(&frame) {
                assert!(self.reads, "hapax asks, though it is not to");
                pair.asked.push_back(question);
                continue;
            }
            // Those before it were answered here.
            while pair
                .sent
                .front()
                .is_some_and(|sent| sent.correlation != correlation)
            {
                let passed = pair.sent.pop_front();
                let passed = passed.filter(|sent| sent.key == api::PRODUCE);
                assert!(passed.is_some(), "a request did not reach the broker");
            }
            let sent = pair.sent.pop_front();
            let sent =
                sent.unwrap_or_else(|| panic!("out of order, twice, or never sent: {frame:?}"));
            if frame != sent.frame {
                assert_eq!(sent.key, api::PRODUCE, "changed on its way");
                check_part(&frame, &sent);
            }
            let quiet = sent.key == api::PRODUCE && frame_request(&frame, sent.version).acks == 0;
            if !quiet {
                pair.asked.push_back(Sent { frame, ..sent });
            }
        }
    }

    /// What the client got.
    fn answers(&mut self, at: usize) {
        let pair = &mut self.pairs[at];
        while pair.strict
            && let Some(frame) = next_frame(&mut pair.to_client)
        {
            let correlation = i32::from_be_bytes(frame[..4].try_into().unwrap());
            let awaited = pair.awaited.pop_front();
            let (expected, key, version) = awaited.expect("an answer to nothing");
            assert_eq!(correlation, expected, "answers out of order");
            let leaks = frame
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes());
            assert!(
                !leaks,
                "a broker's own address in an answer of api {key} v{version}"
            );
            if key != api::PRODUCE {
                continue;
            }
            let body = if version >= 9 { 5 } else { 4 };
            let response = second::certain::<ProduceResponse>(version, &frame[body..]).unwrap();
            let request = pair.produced(correlation);
            for (topic, partition) in partitions(&response) {
                if partition.error_code == 0 {
                    let batch = batch_of(&request, &topic, partition.index);
                    let given = self.acked.get(&(topic, partition.index, batch.clone()));
                    let given = given.is_some_and(|all| all.contains(&partition.base_offset));
                    let shown = identity(&batch)
                        .map(|identity| (partition.index, identity, partition.base_offset));
                    let shown = shown.is_some_and(|shown| self.shown.contains(&shown));
                    assert!(
                        given || shown,
                        "a success that the broker never gave: {partition:?}"
                    );
                }
            }
        }
    }

    /// The broker answers what was asked first.
    fn answer(&mut self, at: usize, choices: &mut Choices<'_>) {
        let Some(asked) = self.pairs[at].asked.pop_front() else {
            return;
        };
        let mut frame = asked.correlation.to_be_bytes().to_vec();
        match asked.key {
            api::PRODUCE => {
                let response = self.produce_response(&asked, choices);
                if asked.version >= 9 {
                    frame.push(0);
                }
                frame.extend(second::encode(asked.version, &response));
            }
            api::API_VERSIONS => {
                let response = ApiVersionsResponse::default();
                frame.extend(second::encode(asked.version.min(4), &response));
            }
            api::METADATA => {
                if asked.version >= 9 {
                    frame.push(0);
                }
                frame.extend(second::encode(asked.version, &metadata(asked.version)));
            }
            OPAQUE => frame.extend(choices.bytes(40)),
            api::FETCH if question(&asked.frame).is_some() => {
                frame = self.fetch_answer(&asked, frame, choices);
            }
            api::LIST_OFFSETS if question(&asked.frame).is_some() => {
                frame.extend(list_answer(&asked, choices));
            }
            key => {
                let all = [schema::ADDRESSED, schema::OUTCOMES].concat();
                let message = all.iter().find(|message| message.api_key == key).unwrap();
                let made = messages::response(message, asked.version, choices);
                frame.extend_from_slice(&made.frame[4..]);
            }
        }
        // Now and then in two writes.
        let cut = if choices.rarely(3) {
            choices.below(frame.len())
        } else {
            frame.len()
        };
        let pair = &mut self.pairs[at];
        let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
        pair.write_broker(&length);
        pair.write_broker(&frame[..cut]);
        pair.write_broker(&frame[cut..]);
    }

    fn produce_response(&mut self, asked: &Sent, choices: &mut Choices<'_>) -> ProduceResponse {
        let request = frame_request(&asked.frame, asked.version);
        let mut response = ProduceResponse::default();
        for topic in &request.topic_data {
            let mut answered = TopicProduceResponse::default()
                .with_name(topic.name.clone())
                .with_topic_id(topic.topic_id);
            for partition in &topic.partition_data {
                let code = match choices.byte() {
                    0..160 => 0,
                    other if self.reads => [45, 45, 45, 7, 20, 45, 6, 19][usize::from(other) % 8],
                    other => [6, 19, 7, 45, 47, 3, 10, 87][usize::from(other) % 8],
                };
                let mut reply = PartitionProduceResponse::default()
                    .with_index(partition.index)
                    .with_error_code(code);
                reply.base_offset = -1;
                let records = partition.records.clone().unwrap_or_default();
                // A failure may come behind the write.
                if code == 0 || self.reads && choices.byte() & 1 == 1 {
                    let log = self.log.entry(partition.index).or_default();
                    let offset = i64::try_from(log.len()).unwrap();
                    log.push(records.clone());
                    if code == 0 {
                        reply.base_offset = offset;
                        let key = (topic_key(topic), partition.index, records);
                        self.acked.entry(key).or_default().insert(offset);
                    }
                }
                answered.partition_responses.push(reply);
            }
            response.responses.push(answered);
        }
        response
    }
}

impl Run<'_> {
    /// What the broker says of its log: mostly the truth.
    fn fetch_answer(
        &mut self,
        asked: &Sent,
        mut frame: Vec<u8>,
        choices: &mut Choices<'_>,
    ) -> Vec<u8> {
        let request: FetchRequest = body(asked);
        let topic = &request.topics[0];
        let from = &topic.partitions[0];
        let log = self.log.get(&from.partition).map_or(&[][..], Vec::as_slice);
        let mut partition = PartitionData::default()
            .with_partition_index(from.partition)
            .with_high_watermark(i64::try_from(log.len()).unwrap());
        let first = usize::try_from(from.fetch_offset).unwrap_or(usize::MAX);
        let mut records = Vec::new();
        for (offset, batch) in log.iter().enumerate().skip(first) {
            let at = records.len();
            records.extend_from_slice(batch);
            if let Some(base) = records.get_mut(at..at + 8) {
                base.copy_from_slice(&i64::try_from(offset).unwrap().to_be_bytes());
            }
        }
        let told = choices.below(16);
        match told {
            0 => partition.error_code = choices.of(&[1, 3, 6, 29, 31, 58, 100, -1]),
            1 => partition.high_watermark = choices.number(),
            2 => records.truncate(choices.below(records.len().clamp(1, 256))),
            3 if !records.is_empty() => {
                let at = choices.below(records.len().min(256));
                records[at] = choices.byte();
            }
            4 => records = choices.bytes(120).to_vec(),
            _ => {}
        }
        partition.records = Some(records.into());
        let topic = FetchableTopicResponse::default()
            .with_topic(topic.topic.clone())
            .with_topic_id(topic.topic_id)
            .with_partitions(vec![partition]);
        let mut response = FetchResponse::default().with_responses(vec![topic]);
        match told {
            5 if asked.version >= BY_ID => response.error_code = choices.of(&[29, 70, 71]),
            6 => response.responses.clear(),
            7 => response.responses.push(FetchableTopicResponse::default()),
            _ => {}
        }
        if asked.version >= BY_ID {
            frame.push(0);
        }
        frame.extend(second::encode(asked.version, &response));
        match told {
            8 => frame.truncate(4 + choices.below(frame.len() - 3)),
            9 => {
                let at = 4 + choices.below((frame.len() - 4).min(256));
                frame[at] = choices.byte();
            }
            10 => {
                frame.truncate(4);
                frame.extend(choices.bytes(120));
            }
            _ => {}
        }
        if let Ok(fetched) = fetch::fetched(asked.version, &frame) {
            for batch in fetch::batches(fetched.records).flatten() {
                let count = batch.last_offset_delta.saturating_add(1);
                let identity = (batch.producer, batch.epoch, batch.first, count);
                let shown = (from.partition, identity, batch.base_offset);
                self.shown.insert(shown);
            }
        }
        frame
    }
}

/// Where the broker says that records of a time begin.
fn list_answer(asked: &Sent, choices: &mut Choices<'_>) -> Vec<u8> {
    let request: ListOffsetsRequest = body(asked);
    let topic = &request.topics[0];
    let mut partition = ListOffsetsPartitionResponse::default()
        .with_partition_index(topic.partitions[0].partition_index)
        .with_timestamp(1)
        .with_offset(0);
    let told = choices.below(8);
    match told {
        0 => partition.error_code = choices.of(&[1, 3, 6, 29, 31, 58, 100, -1]),
        1 => partition.offset = choices.number(),
        2 => return choices.bytes(60).to_vec(),
        _ => {}
    }
    let topic = ListOffsetsTopicResponse::default()
        .with_name(topic.name.clone())
        .with_partitions(vec![partition]);
    let response = ListOffsetsResponse::default().with_topics(vec![topic]);
    let mut answer = second::encode(asked.version, &response);
    if told == 3 {
        answer.truncate(choices.below(answer.len()));
    }
    answer
}

/// A question of hapax's own.
fn question(frame: &[u8]) -> Option<Sent> {
    let head = hapax::wire::header::request_head(frame)?;
    let client = hapax::wire::header::client_id(frame).ok()?;
    let own = client == Some(b"hapax") && [api::FETCH, api::LIST_OFFSETS].contains(&head.api_key);
    own.then(|| Sent {
        correlation: head.correlation_id,
        key: head.api_key,
        version: head.api_version,
        frame: frame.to_vec(),
    })
}

/// The body of a request of the version that it has.
fn body<T: Decodable + Message>(sent: &Sent) -> T {
    let at = hapax::wire::header::body_at(&sent.frame, sent.version >= BY_ID)
        .unwrap()
        .unwrap();
    second::certain(sent.version, &sent.frame[at..]).unwrap()
}

/// Who wrote a batch, and which it is.
fn identity(batch: &Bytes) -> Option<Identity> {
    let head = batch.first_chunk::<61>()?;
    let mut fields = &head[43..];
    let producer = fields.get_i64();
    let (epoch, first) = (fields.get_i16(), fields.get_i32());
    Some((producer, epoch, first, fields.get_i32()))
}

/// What comes of a topic in requests of its version.
fn topic_key(topic: &TopicProduceData) -> Vec<u8> {
    let name = topic.name.as_bytes();
    // A client may ask by name and again by id.
    if name.is_empty() {
        b"t0".to_vec()
    } else {
        name.to_vec()
    }
}

fn partitions(
    response: &ProduceResponse,
) -> impl Iterator<Item = (Vec<u8>, &PartitionProduceResponse)> {
    response.responses.iter().flat_map(|topic| {
        let name = topic.name.as_bytes();
        let key = if name.is_empty() {
            b"t0".to_vec()
        } else {
            name.to_vec()
        };
        topic
            .partition_responses
            .iter()
            .map(move |partition| (key.clone(), partition))
    })
}

fn batch_of(request: &ProduceRequest, topic: &[u8], index: i32) -> Bytes {
    let topic = request
        .topic_data
        .iter()
        .find(|t| topic_key(t) == topic)
        .expect("an answer for a topic that was sent");
    let partition = topic.partition_data.iter().find(|p| p.index == index);
    partition
        .expect("an answer for a partition that was sent")
        .records
        .clone()
        .unwrap_or_default()
}

/// A part of what was sent, each partition as it was.
fn check_part(frame: &[u8], sent: &Sent) {
    let (part, whole) = (
        frame_request(frame, sent.version),
        frame_request(&sent.frame, sent.version),
    );
    assert_eq!(
        (part.acks, part.timeout_ms, &part.transactional_id),
        (whole.acks, whole.timeout_ms, &whole.transactional_id)
    );
    let mut topics = whole.topic_data.iter();
    for topic in &part.topic_data {
        let mut partitions = topics
            .find(|t| topic_key(t) == topic_key(topic))
            .expect("a topic in its place")
            .partition_data
            .iter();
        for partition in &topic.partition_data {
            assert!(
                partitions.any(|p| p == partition),
                "a partition that was not sent"
            );
        }
    }
}

fn frame_request(frame: &[u8], version: i16) -> ProduceRequest {
    let body = hapax::wire::header::body_at(frame, version >= 9)
        .unwrap()
        .unwrap();
    second::certain(version, &frame[body..]).unwrap()
}

fn metadata(version: i16) -> MetadataResponse {
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    let broker = MetadataResponseBroker::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_static_str(SECRET))
        .with_port(9092);
    let partition = MetadataResponsePartition::default().with_leader_id(1.into());
    let mut topic = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str("t0"))))
        .with_partitions(vec![partition]);
    if version >= 10 {
        topic.topic_id = TOPIC_ID;
    }
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_topics(vec![topic])
}

const TOPIC_ID: Uuid = Uuid::from_bytes([7; 16]);

impl Pair {
    /// A Produce request of one or two partitions, whose batches are of few producers and sequences, so that many are sent
    /// again.
    fn produce(&mut self, choices: &mut Choices<'_>) {
        let version = choices.of(&[3, 7, 9, 11, 12, NEWEST, NEWEST]);
        let mut topic = TopicProduceData::default();
        if version >= 13 {
            topic.topic_id = TOPIC_ID;
        } else {
            topic.name = TopicName(StrBytes::from_static_str("t0"));
        }
        for index in 0..=i32::from(choices.rarely(3)) {
            let records = batch(
                self.sequence(choices),
                choices.rarely(16),
                choices.rarely(16),
            );
            let partition = PartitionProduceData::default()
                .with_index(index)
                .with_records(Some(records));
            topic.partition_data.push(partition);
        }
        let request = ProduceRequest::default()
            .with_acks(choices.of(&[-1, -1, -1, 1, 0]))
            .with_timeout_ms(1000)
            .with_topic_data(vec![topic]);
        let body = second::encode(version, &request);
        self.send(api::PRODUCE, version, &body, request.acks != 0, choices);
    }

    /// The next one, the last one again, or another.
    fn sequence(&mut self, choices: &mut Choices<'_>) -> u8 {
        self.sequence = match choices.below(8) {
            0..4 => self.sequence.wrapping_add(1),
            4..7 => self.sequence,
            _ => choices.byte() % 8,
        };
        self.sequence
    }

    /// Another request that keeps to the protocol.
    fn ask(&mut self, choices: &mut Choices<'_>) {
        let (key, version): (i16, i16) = choices.of(&[
            (api::API_VERSIONS, 3),
            (api::API_VERSIONS, 0),
            (api::METADATA, 12),
            (api::METADATA, 4),
            (OPAQUE, 0),
            (api::FETCH, 16),
            (api::FETCH, 11),
            (api::FIND_COORDINATOR, 4),
            (api::DESCRIBE_CLUSTER, 1),
            (api::SHARE_FETCH, 1),
            (api::INIT_PRODUCER_ID, 4),
            (api::END_TXN, 3),
            (api::ADD_PARTITIONS_TO_TXN, 3),
        ]);
        let claim = schema::CLAIMS.iter().find(|message| message.api_key == key);
        let body = match claim {
            Some(message) => {
                let made = messages::request(message, version, choices);
                made.frame[made.body..].to_vec()
            }
            None => choices.bytes(30).to_vec(),
        };
        self.send(key, version, &body, true, choices);
    }

    fn send(
        &mut self,
        key: i16,
        version: i16,
        body: &[u8],
        answered: bool,
        choices: &mut Choices<'_>,
    ) {
        self.correlation += 1;
        let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
        frame.extend(self.correlation.to_be_bytes());
        frame.extend([0, 1, b'c']);
        if hapax::wire::header::flexible(key, version) == Some(true) {
            frame.push(0);
        }
        frame.extend_from_slice(body);
        let sent = Sent {
            correlation: self.correlation,
            key,
            version,
            frame,
        };
        if answered {
            self.awaited.push_back((sent.correlation, key, version));
        }
        let length = u32::try_from(sent.frame.len()).unwrap().to_be_bytes();
        let bytes = [&length, sent.frame.as_slice()].concat();
        let cut = if choices.rarely(3) {
            choices.below(bytes.len())
        } else {
            bytes.len()
        };
        self.write_client(&bytes[..cut]);
        self.write_client(&bytes[cut..]);
        self.history.push(sent.clone());
        self.sent.push_back(sent);
    }

    fn produced(&self, correlation: i32) -> ProduceRequest {
        let sent = self
            .history
            .iter()
            .find(|sent| sent.correlation == correlation)
            .unwrap();
        frame_request(&sent.frame, sent.version)
    }

    /// Bytes of the client that are nothing in particular.
    fn say(&mut self, choices: &mut Choices<'_>) {
        self.strict = false;
        self.write_client(choices.bytes(64));
    }

    /// Who the client says it is; afterwards frames may have no headers.
    fn sasl(&mut self, choices: &mut Choices<'_>) {
        self.strict = false;
        let (key, version, body) = match choices.below(3) {
            0 => (
                api::SASL_HANDSHAKE,
                choices.of(&[0, 1]),
                b"\0\x05PLAIN".to_vec(),
            ),
            1 => (api::SASL_AUTHENTICATE, 1, b"\0\0\0\x04\0a\0b".to_vec()),
            _ => {
                let token = choices.bytes(40);
                let length = u32::try_from(token.len()).unwrap().to_be_bytes();
                self.write_client(&length);
                self.write_client(token);
                return;
            }
        };
        self.send(key, version, &body, true, choices);
    }

    /// Bytes of the broker that are nothing in particular.
    fn interrupt(&mut self, choices: &mut Choices<'_>) {
        self.strict = false;
        let bytes = choices.bytes(64);
        self.write_broker(bytes);
    }

    fn hang_up(&mut self, choices: &mut Choices<'_>) {
        match choices.below(4) {
            0 => {
                let _ = self
                    .client
                    .as_ref()
                    .map(|client| client.shutdown(Shutdown::Write));
            }
            1 => self.client = None,
            2 => self.broker = None,
            _ => {
                let _ = self
                    .broker
                    .as_ref()
                    .map(|broker| broker.shutdown(Shutdown::Write));
            }
        }
        // A side that is gone says nothing more.
        self.strict &= self.client.is_some() && self.broker.is_some();
    }

    fn write_client(&mut self, bytes: &[u8]) {
        let _ = self.client.as_ref().map(|mut client| client.write(bytes));
    }

    fn write_broker(&mut self, bytes: &[u8]) {
        let _ = self.broker.as_ref().map(|mut broker| broker.write(bytes));
    }

    fn read(&mut self) {
        read_all(&mut self.client, &mut self.to_client);
        read_all(&mut self.broker, &mut self.to_broker);
    }
}

/// A batch that some of the others are: the third byte is the sequence.
fn batch(sequence: u8, other: bool, epoch: bool) -> Bytes {
    let mut bytes = vec![0; 61];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(8, &53_i32.to_be_bytes());
    put(16, &[2, sequence, u8::from(other), u8::from(epoch), 1]);
    put(35, &1_700_000_000_000_i64.to_be_bytes());
    put(43, &7_i64.to_be_bytes());
    put(51, &i16::from(epoch).to_be_bytes());
    put(53, &i32::from(sequence).to_be_bytes());
    put(57, &1_i32.to_be_bytes());
    bytes.extend([sequence, u8::from(other), 0, 0]);
    bytes.into()
}

fn read_all(from: &mut Option<TcpStream>, to: &mut Vec<u8>) {
    let Some(stream) = from else { return };
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => to.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                *from = None;
                return;
            }
        }
    }
}

/// A frame that has arrived whole, without its length.
fn next_frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::try_from(u32::from_be_bytes(*bytes.first_chunk()?)).unwrap();
    if bytes.len() < 4 + length {
        return None;
    }
    let rest = bytes.split_off(4 + length);
    let frame = std::mem::replace(bytes, rest);
    Some(frame[4..].to_vec())
}
