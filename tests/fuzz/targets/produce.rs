//! Produce requests and responses, valid and not.

use bytes::Bytes;
use hapax::wire::batch::{self, Batch};
use hapax::wire::produce::{
    self, Answer, Front, NEWEST, OLDEST_FOLLOWED, Sink, Topic, TopicRef, Walk,
};
use hapax::wire::schema::PRODUCE_RESPONSE;
use hapax::wire::{WireError, header, recode};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::addresses::unframed;
use super::choices::Choices;
use super::messages::{self, UNKNOWN_TAG};
use super::second;

/// The version, how the pieces are cut, which partitions stay, and a request frame.
pub fn any_request(input: &[u8]) {
    let mut choices = Choices::new(input);
    let version = i16::from(choices.byte() as i8) % 16;
    let (cuts, kept) = (choices.array(), choices.byte());
    let frame = choices.rest();
    if let Ok(Some(body)) = header::body_at(frame, version >= 9) {
        check_walk(version, frame.get(body..).unwrap_or_default(), cuts);
    }
    check_retain(version, frame, kept);
}

/// A valid request, made by choices.
pub fn valid_request(input: &[u8]) {
    let mut choices = Choices::new(input);
    let versions = usize::try_from(NEWEST - OLDEST_FOLLOWED + 1).unwrap();
    let version = OLDEST_FOLLOWED + i16::try_from(choices.below(versions)).unwrap();
    let (cuts, kept) = (choices.array(), choices.byte());
    let request = made(version, &mut choices);
    let (frame, body) = framed(version, &request);
    check_walk(version, &frame[body..], cuts);
    let mut told = Told::default();
    let mut walk = Walk::new(version);
    let walked = walk.advance(&frame[body..], &mut told);
    assert_eq!((walked, walk.done()), (Ok(frame.len() - body), true));
    assert_eq!(told.0, telling(version, &request));
    check_retained(version, &frame, body, request, kept);
}

/// Values of a request: each partition's records are bytes, some of them a batch.
pub fn made(version: i16, choices: &mut Choices<'_>) -> ProduceRequest {
    let mut request = ProduceRequest::default()
        .with_acks(choices.of(&[-1, 1, 0, 7]))
        .with_timeout_ms(choices.number() as i32);
    if choices.rarely(3) {
        let id = TransactionalId(StrBytes::from_string(choices.text()));
        request.transactional_id = Some(id);
    }
    for number in 0..choices.below(4) {
        let mut topic = TopicProduceData::default();
        if version >= 13 {
            topic.topic_id = Uuid::from_bytes(choices.array());
        } else {
            // Two topics of one name would be two to hapax and one to Kafka's maps.
            let name = format!("{number}-{}", choices.text());
            topic.name = TopicName(StrBytes::from_string(name));
        }
        for _ in 0..choices.below(4) {
            let mut partition = PartitionProduceData::default()
                .with_index(choices.number() as i32)
                .with_records(records(choices));
            tag(version, choices, &mut partition.unknown_tagged_fields);
            topic.partition_data.push(partition);
        }
        tag(version, choices, &mut topic.unknown_tagged_fields);
        request.topic_data.push(topic);
    }
    tag(version, choices, &mut request.unknown_tagged_fields);
    request
}

type Tags = std::collections::BTreeMap<i32, Bytes>;

fn tag(version: i16, choices: &mut Choices<'_>, tags: &mut Tags) {
    if version >= 9 && choices.rarely(4) {
        let content = Bytes::copy_from_slice(choices.bytes(140));
        tags.insert(UNKNOWN_TAG.cast_signed(), content);
    }
}

/// Null, anything, or a batch of which anything may be wrong.
fn records(choices: &mut Choices<'_>) -> Option<Bytes> {
    match choices.below(4) {
        0 => Some(batch_bytes(choices)),
        1 => Some(Bytes::copy_from_slice(choices.bytes(120))),
        2 => Some(Bytes::new()),
        _ => None,
    }
}

/// The header of a batch and some bytes, one field in a while being none that a client sends.
pub fn batch_bytes(choices: &mut Choices<'_>) -> Bytes {
    let payload = choices.bytes(20);
    let count = 1 + i32::try_from(choices.below(3)).unwrap();
    let mut bytes = vec![0; batch::HEADER];
    let length = i32::try_from(batch::HEADER - 12 + payload.len()).unwrap();
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(8, &length.to_be_bytes());
    put(16, &[2]);
    put(17, &choices.array::<4>());
    put(22, &[choices.of(&[0, 0, 0x10, 0, 0x20, 0x30])]);
    put(23, &(count - 1).to_be_bytes());
    put(35, &choices.number().to_be_bytes());
    put(43, &choices.of(&[7_i64, 7, 8, -1, i64::MIN]).to_be_bytes());
    put(51, &(choices.below(3) as i16).to_be_bytes());
    put(53, &(choices.number() as i32).to_be_bytes());
    put(57, &count.to_be_bytes());
    if choices.rarely(8) {
        put(choices.below(batch::HEADER), &[choices.byte()]);
    }
    bytes.extend_from_slice(payload);
    bytes.into()
}

/// A request as a frame, and where its body begins.
pub fn framed(version: i16, request: &ProduceRequest) -> (Vec<u8>, usize) {
    let mut frame = [0i16.to_be_bytes(), version.to_be_bytes()].concat();
    frame.extend([0, 0, 0, 7, 0, 3]);
    frame.extend(b"raw");
    if version >= 9 {
        frame.extend([1, UNKNOWN_TAG as u8, 1, 9]);
    }
    let body = frame.len();
    frame.extend(second::encode(version, request));
    (frame, body)
}

/// What a walk tells, in its order.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Front(Option<Vec<u8>>, i16, i32, usize),
    Topic(Topic, usize),
    Partition(i32, Batch),
}

#[derive(Default, Debug)]
struct Told(Vec<Part>);

impl Sink for Told {
    fn front(&mut self, front: Front<'_>) {
        let id = front.transactional_id.map(<[u8]>::to_vec);
        let part = Part::Front(id, front.acks, front.timeout_ms, front.topics);
        self.0.push(part);
    }

    fn topic(&mut self, topic: TopicRef<'_>, partitions: usize) {
        self.0.push(Part::Topic(topic.to_topic(), partitions));
    }

    fn partition(&mut self, index: i32, batch: Batch) {
        self.0.push(Part::Partition(index, batch));
    }
}

/// What a walk over that request must tell.
fn telling(version: i16, request: &ProduceRequest) -> Vec<Part> {
    let id = request.transactional_id.as_ref();
    let id = id.map(|id| id.as_bytes().to_vec());
    let topics = request.topic_data.len();
    let mut parts = vec![Part::Front(id, request.acks, request.timeout_ms, topics)];
    for topic in &request.topic_data {
        parts.push(Part::Topic(
            topic_of(version, topic),
            topic.partition_data.len(),
        ));
        for partition in &topic.partition_data {
            let records = partition.records.clone().unwrap_or_default();
            let head = &records[..records.len().min(batch::HEADER)];
            parts.push(Part::Partition(
                partition.index,
                batch::batch(records.len(), head),
            ));
        }
    }
    parts
}

fn topic_of(version: i16, topic: &TopicProduceData) -> Topic {
    if version >= 13 {
        Topic::Id(*topic.topic_id.as_bytes())
    } else {
        Topic::Name(Bytes::copy_from_slice(topic.name.as_bytes()))
    }
}

/// A walk that gets the bytes in pieces tells the same and ends where it would.
fn check_walk(version: i16, body: &[u8], cuts: [u8; 2]) {
    let whole = walked(version, body, body.len().max(1), false);
    let pieces = walked(
        version,
        body,
        usize::from(cuts[0]) % 96 + 1,
        cuts[1] & 1 == 1,
    );
    assert_eq!(whole, pieces, "version {version}, cut by {cuts:?}");
}

/// Where a walk stops, whether at the end, and what it still has to skip.
type Ended = Result<(usize, bool, usize), WireError>;

/// How a walk ends, and what it told until then. With `apart`, records pass elsewhere.
fn walked(version: i16, body: &[u8], piece: usize, apart: bool) -> (Ended, Vec<Part>) {
    let mut walk = Walk::new(version);
    let mut told = Told::default();
    let (mut at, mut end) = (0, 0);
    loop {
        if apart {
            let skipped = walk.skip().min(body.len() - at);
            walk.skipped(skipped);
            at += skipped;
            end = end.max(at);
        }
        match walk.advance(&body[at..end], &mut told) {
            Ok(count) => at += count,
            Err(error) => return (Err(error), told.0),
        }
        assert!(at <= end, "more was consumed than there was");
        if end == body.len() {
            return (Ok((at, walk.done(), walk.skip())), told.0);
        }
        end = body.len().min(end + piece);
    }
}

/// What stays of a request that may be anything.
fn check_retain(version: i16, frame: &[u8], kept: u8) {
    let keep = |index: i32| kept & (1 << (index & 7)) != 0;
    let mut asked = 0;
    let Ok(whole) = produce::retain(version, frame, |_, index| {
        asked += 1;
        keep(index)
    }) else {
        return;
    };
    let body = header::body_at(frame, version >= 9).unwrap().unwrap();
    let (before, after) = (&frame[body..], &unframed(&whole)[body..]);
    assert_eq!(frame[..body], unframed(&whole)[..body]);
    // The walk has read it, so the crate may.
    let (end, parts) = walked(version, before, before.len().max(1), false);
    assert_eq!(end, Ok((before.len(), true, 0)), "retained, but not walked");
    let partitions = parts
        .iter()
        .filter(|part| matches!(part, Part::Partition(..)));
    assert_eq!(partitions.count(), asked);
    let again = produce::retain(version, unframed(&whole), |_, index| {
        assert!(keep(index), "it was dropped");
        true
    });
    let rewalked = walked(version, after, after.len().max(1), false);
    assert_eq!(rewalked.1, thinned(&parts, keep));
    assert_eq!(rewalked.0, Ok((after.len(), true, 0)));
    assert!(again.is_ok());
    if let Some(Ok(request)) = second::decode::<ProduceRequest>(version, before) {
        let found = second::certain::<ProduceRequest>(version, after).unwrap();
        assert_eq!(found, thin(request, keep));
    }
}

/// The parts of a walk without the partitions that go, and without the topics that this empties.
fn thinned(parts: &[Part], keep: impl Fn(i32) -> bool) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    let mut emptied = 0;
    let mut at = 0;
    while let Some(part) = parts.get(at) {
        at += 1;
        let Part::Topic(topic, count) = part else {
            out.push(part.clone());
            continue;
        };
        let partitions = &parts[at..at + count];
        at += count;
        let stay = |part: &&Part| matches!(part, Part::Partition(index, _) if keep(*index));
        let stay: Vec<_> = partitions.iter().filter(stay).cloned().collect();
        if stay.is_empty() && *count > 0 {
            emptied += 1;
            continue;
        }
        out.push(Part::Topic(topic.clone(), stay.len()));
        out.extend(stay);
    }
    if let Some(Part::Front(.., topics)) = out.first_mut() {
        *topics -= emptied;
    }
    out
}

fn thin(mut request: ProduceRequest, keep: impl Fn(i32) -> bool) -> ProduceRequest {
    request.topic_data.retain_mut(|topic| {
        let before = topic.partition_data.len();
        topic
            .partition_data
            .retain(|partition| keep(partition.index));
        before == 0 || !topic.partition_data.is_empty()
    });
    request
}

/// What stays of a valid request is that request, less what went.
fn check_retained(version: i16, frame: &[u8], body: usize, request: ProduceRequest, kept: u8) {
    let keep = |index: i32| kept & (1 << (index & 7)) != 0;
    let whole = produce::retain(version, frame, |_, index| keep(index)).unwrap();
    let rest = unframed(&whole);
    assert_eq!(rest[..body], frame[..body]);
    let wanted = second::encode(version, &thin(request, keep));
    assert_eq!(rest[body..], wanted);
}

/// The version, which errors change, which answers are added, and a response frame.
pub fn any_response(input: &[u8]) {
    let mut choices = Choices::new(input);
    let version = i16::from(choices.byte() as i8) % 16;
    let (changed, added) = (choices.byte(), choices.byte());
    check_response(version, choices.rest(), changed, added);
}

/// A valid response, made by choices.
pub fn valid_response(input: &[u8]) {
    let mut choices = Choices::new(input);
    let versions = usize::try_from(NEWEST - OLDEST_FOLLOWED + 1).unwrap();
    let version = OLDEST_FOLLOWED + i16::try_from(choices.below(versions)).unwrap();
    let (changed, added) = (choices.byte(), choices.byte());
    let made = messages::response(&PRODUCE_RESPONSE, version, &mut choices);
    let known = check_response(version, &made.frame, changed, added);
    assert!(known, "a valid response is read");
}

fn check_response(version: i16, frame: &[u8], changed: u8, added: u8) -> bool {
    let mut seen = Vec::new();
    let read = produce::replies(version, frame, |reply| {
        let (offset, start) = (reply.base_offset, reply.log_start_offset);
        seen.push((
            reply.topic.to_topic(),
            reply.partition,
            reply.error,
            offset.unwrap_or(-1),
            reply.log_append_time,
            start.unwrap_or(-1),
        ));
    });
    let unchanged = produce::merge(version, frame, &[]);
    let Ok(unchanged) = unchanged else {
        return false;
    };
    let body = header::response_body_at(0, version, frame).unwrap();
    // Its walk looks into the tagged fields, too: what it reads the other one reads as well.
    assert!(read.is_ok(), "merged, but not read: {read:?}");
    let code =
        |index: i32| (changed & (1 << (index & 7)) != 0).then_some(1000 + (index & 7) as i16);
    let recoded = recode::recode(version, frame, |_, index| code(index)).unwrap();
    let topics: Vec<_> = seen.iter().map(|(topic, ..)| topic.clone()).collect();
    let answers = answers(version, added, &topics);
    let merged = produce::merge(version, frame, &answers).unwrap();
    let stands = |index| code(index).map(|code| (i64::from(code) << 40, i64::from(added) - 1));
    let acknowledged = produce::acknowledge(version, frame, |_, index| stands(index)).unwrap();
    let Some(Ok(response)) = second::decode::<ProduceResponse>(version, &frame[body..]) else {
        return true;
    };
    let again = |whole: &Bytes| {
        second::certain::<ProduceResponse>(version, &unframed(whole)[body..]).unwrap()
    };
    let listed: Vec<_> = response
        .responses
        .iter()
        .flat_map(|topic| {
            topic.partition_responses.iter().map(|p| {
                (
                    response_topic(version, topic),
                    p.index,
                    p.error_code,
                    p.base_offset.max(-1),
                    p.log_append_time_ms,
                    p.log_start_offset.max(-1),
                )
            })
        })
        .collect();
    assert_eq!(seen, listed);
    assert_eq!(again(&unchanged), response);
    let mut expected = response.clone();
    for partition in expected
        .responses
        .iter_mut()
        .flat_map(|topic| &mut topic.partition_responses)
    {
        if let Some(code) = code(partition.index) {
            partition.error_code = code;
            partition.error_message = None;
        }
    }
    assert_eq!(again(&recoded), expected);
    assert_eq!(
        again(&acknowledged),
        with_successes(version, response.clone(), stands)
    );
    assert_eq!(again(&merged), with_answers(version, response, &answers));
    let alone = produce::answer(version, 7, &answers);
    let body = if version >= 9 { 5 } else { 4 };
    let alone = second::certain::<ProduceResponse>(version, &unframed(&alone)[body..]).unwrap();
    assert_eq!(
        alone,
        with_answers(version, ProduceResponse::default(), &answers)
    );
    true
}

/// The response with success for the partitions that stand in the log, at an offset and of a time.
fn with_successes(
    version: i16,
    mut response: ProduceResponse,
    stands: impl Fn(i32) -> Option<(i64, i64)>,
) -> ProduceResponse {
    let topics = response.responses.iter_mut();
    for partition in topics.flat_map(|topic| &mut topic.partition_responses) {
        let Some((offset, time)) = stands(partition.index) else {
            continue;
        };
        let start = if version >= 5 {
            partition.log_start_offset.max(-1)
        } else {
            -1
        };
        *partition = PartitionProduceResponse::default()
            .with_index(partition.index)
            .with_base_offset(offset)
            .with_log_append_time_ms(time)
            .with_log_start_offset(start);
    }
    response
}

fn response_topic(version: i16, topic: &TopicProduceResponse) -> Topic {
    if version >= 13 {
        Topic::Id(*topic.topic_id.as_bytes())
    } else {
        Topic::Name(Bytes::copy_from_slice(topic.name.as_bytes()))
    }
}

/// Answers for topics that are there and for others, in turn.
pub fn answers(version: i16, added: u8, seen: &[Topic]) -> Vec<Answer> {
    let other = |number: u8| {
        if version >= 13 {
            Topic::Id([number; 16])
        } else {
            Topic::Name(Bytes::from(format!("added-{number}")))
        }
    };
    let here = seen.iter().cloned();
    let here = here.take(usize::from(added >> 4 & 3));
    let topics = here
        .chain((0..added & 3).map(other))
        .chain([other(9), other(0)]);
    let answer = |(number, topic): (usize, Topic)| Answer {
        topic,
        partition: i32::try_from(number).unwrap(),
        error: if number == 1 { 19 } else { 0 },
        base_offset: (number != 1).then_some(i64::from(added) << 30),
        log_append_time: -1,
        log_start_offset: (version >= 5).then_some(3),
        message: (number == 1).then(|| "try again".into()),
    };
    topics.enumerate().map(answer).collect()
}

/// The response with those answers: with the first topic that is theirs where there is one, else behind all others.
pub fn with_answers(
    version: i16,
    mut response: ProduceResponse,
    answers: &[Answer],
) -> ProduceResponse {
    for answer in answers {
        let partition = PartitionProduceResponse::default()
            .with_index(answer.partition)
            .with_error_code(answer.error)
            .with_base_offset(answer.base_offset.unwrap_or(-1))
            .with_log_append_time_ms(answer.log_append_time)
            .with_log_start_offset(answer.log_start_offset.unwrap_or(-1))
            .with_error_message(
                answer
                    .message
                    .as_ref()
                    .filter(|_| version >= 8)
                    .map(|message| StrBytes::from_string(message.to_string())),
            );
        let there = response
            .responses
            .iter()
            .position(|topic| response_topic(version, topic) == answer.topic);
        let at = there.unwrap_or_else(|| {
            let mut topic = TopicProduceResponse::default();
            match &answer.topic {
                Topic::Id(id) => topic.topic_id = Uuid::from_bytes(*id),
                Topic::Name(name) => {
                    let name = StrBytes::from_utf8(name.clone()).unwrap();
                    topic.name = TopicName(name);
                }
            }
            response.responses.push(topic);
            response.responses.len() - 1
        });
        response.responses[at].partition_responses.push(partition);
    }
    response
}
