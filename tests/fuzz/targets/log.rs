//! Reading a partition's log back: hapax's own questions, their answers, and the batches in them.

use bytes::Bytes;
use hapax::ids::{Epoch, ProducerId};
use hapax::wire::batch::{self, Batch};
use hapax::wire::fetch::{self, BY_ID, BY_NAME, Fetched, InLog, Listed};
use hapax::wire::produce::TopicRef;
use hapax::wire::schema::{self, Message};
use hapax::wire::{api, header};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::addresses::unframed;
use super::choices::Choices;
use super::messages::{self, UNKNOWN_TAG};
use super::second;

/// Bytes that may be anything: the version, and an answer or records.
pub fn any(input: &[u8]) {
    let mut choices = Choices::new(input);
    let version = choices.of(&[BY_NAME, BY_ID, 0, 12, 18]);
    let bytes = choices.rest();
    check_fetched(version, bytes);
    check_listed(bytes);
    check_batches(bytes);
}

/// Questions, and valid answers to them, made by choices.
pub fn valid(input: &[u8]) {
    let mut choices = Choices::new(input);
    check_questions(&mut choices);
    let version = choices.of(&[BY_NAME, BY_ID]);
    if choices.rarely(4) {
        // Of any number of topics and partitions, which is not what was asked for.
        let made = messages::response(table(), version, &mut choices);
        check_fetched(version, &made.frame);
        return;
    }
    let (records, written) = records(&mut choices);
    assert_eq!(read(&records), written);
    check_batches(&records);
    let response = answer(version, &records, &mut choices);
    let frame = framed(version, &second::encode(version, &response));
    let partition = &response.responses[0].partitions[0];
    let expected = Fetched {
        error: partition.error_code,
        high_watermark: partition.high_watermark,
        records: &records,
    };
    assert_eq!(fetch::fetched(version, &frame), Ok(expected));
    check_fetched(version, &frame);
    check_list_answer(&mut choices);
}

/// A batch whose checksum is right, sent again under other numbers: without them both are one (epoch bumps).
pub fn renumbered(input: &[u8]) {
    let mut choices = Choices::new(input);
    let numbers = |choices: &mut Choices<'_>| {
        let producer = choices.number() & i64::MAX;
        (
            producer,
            choices.number() as i16,
            choices.number() as i32 & i32::MAX,
        )
    };
    let (first, second) = (numbers(&mut choices), numbers(&mut choices));
    let (at, change) = (choices.byte(), choices.byte());
    let mut bytes = vec![0; batch::HEADER];
    bytes[21..43].copy_from_slice(&choices.array::<22>());
    // A control batch is not a client's.
    bytes[22] &= !0x20;
    bytes.extend_from_slice(choices.rest());
    bytes[16] = 2;
    bytes[23..27].fill(0);
    bytes[57..61].copy_from_slice(&1_i32.to_be_bytes());
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let zeros = sealed(&mut bytes, (0, 0, 0));
    for numbers in [first, second] {
        sealed(&mut bytes, numbers);
        let Batch::Tracked(tracked) = batch::batch(bytes.len(), &bytes[..batch::HEADER]) else {
            panic!("not tracked: {bytes:?}");
        };
        assert_eq!(Some(tracked.id.producer), ProducerId::from_wire(numbers.0));
        assert_eq!(tracked.id.epoch, Epoch(numbers.1));
        assert_eq!(tracked.id.neutral_crc(), zeros);
    }
    // CRC-32C tells every change of one byte.
    let at = 61 + usize::from(at);
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= change;
        assert_eq!(sealed(&mut bytes, (0, 0, 0)) == zeros, change == 0);
    }
}

/// Writes those numbers and the checksum, which it gives.
fn sealed(bytes: &mut [u8], (producer, epoch, first): (i64, i16, i32)) -> u32 {
    bytes[43..51].copy_from_slice(&producer.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&first.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    crc
}

fn table() -> &'static Message {
    let mut tables = schema::ADDRESSED.iter();
    tables.find(|table| table.api_key == api::FETCH).unwrap()
}

fn framed(version: i16, body: &[u8]) -> Vec<u8> {
    let header: &[u8] = if version >= BY_ID {
        &[0, 0, 0, 7, 0]
    } else {
        &[0, 0, 0, 7]
    };
    [header, body].concat()
}

/// What is asked is what the protocol crate reads.
fn check_questions(choices: &mut Choices<'_>) {
    let name = choices.text();
    let id = choices.array();
    let topic = if choices.byte() & 1 == 1 {
        TopicRef::Id(id)
    } else {
        TopicRef::Name(name.as_bytes())
    };
    let (correlation, partition) = (choices.number() as i32, choices.number() as i32);
    let (number, bytes_max) = (choices.number(), choices.number() as i32);
    let wait_ms = choices.number() as i32;
    let wanted = fetch::Wanted {
        offset: number,
        bytes_max,
        wait_ms,
    };
    let version = fetch::version_for(topic);
    let asked = fetch::request(correlation, topic, partition, wanted).unwrap();
    let asked = fetch_request(version, correlation, unframed(&asked));
    let expected = FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(i32::from(wait_ms > 0))
        .with_max_bytes(bytes_max)
        .with_session_epoch(-1)
        .with_topics(vec![expected_topic(topic, partition, number, bytes_max)]);
    assert_eq!(asked, expected);
    let asked = fetch::list_request(correlation, name.as_bytes(), partition, number).unwrap();
    let asked: ListOffsetsRequest =
        question(api::LIST_OFFSETS, fetch::LIST_OFFSETS, correlation, &asked);
    let asks = if number == fetch::LATEST { -2 } else { -1 };
    assert_eq!((asked.replica_id.0, asked.topics.len()), (asks, 1));
    assert_eq!(asked.topics[0].name.as_bytes(), name.as_bytes());
    let partitions = &asked.topics[0].partitions;
    assert_eq!(partitions.len(), 1);
    assert_eq!(
        (partitions[0].partition_index, partitions[0].timestamp),
        (partition, number)
    );
}

fn expected_topic(
    topic: TopicRef<'_>,
    partition: i32,
    offset: i64,
    bytes_max: i32,
) -> kafka_protocol::messages::fetch_request::FetchTopic {
    use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(bytes_max);
    let mut asked = FetchTopic::default().with_partitions(vec![partition]);
    match topic {
        TopicRef::Name(name) => {
            let name = str::from_utf8(name).unwrap().to_owned();
            asked.topic = TopicName(StrBytes::from_string(name));
        }
        TopicRef::Id(id) => asked.topic_id = Uuid::from_bytes(id),
    }
    asked
}

fn fetch_request(version: i16, correlation: i32, frame: &[u8]) -> FetchRequest {
    let whole = hapax::wire::frame::with_length(frame);
    let mut asked: FetchRequest = question(api::FETCH, version, correlation, &whole);
    assert_eq!(asked.replica_id.0, -1);
    // Older versions have none.
    asked.session_epoch = -1;
    asked
}

/// The body of a request of hapax's own, length first.
fn question<T: kafka_protocol::protocol::Decodable + kafka_protocol::protocol::Message>(
    api_key: i16,
    version: i16,
    correlation: i32,
    whole: &[u8],
) -> T {
    let frame = unframed(whole);
    let head = header::request_head(frame).unwrap();
    let told = (head.api_key, head.api_version, head.correlation_id);
    assert_eq!(told, (api_key, version, correlation));
    let body = header::body_at(frame, version >= BY_ID).unwrap().unwrap();
    second::certain(version, &frame[body..]).unwrap()
}

/// An answer about one partition.
fn answer(version: i16, records: &[u8], choices: &mut Choices<'_>) -> FetchResponse {
    let aborted = AbortedTransaction::default()
        .with_producer_id(choices.number().into())
        .with_first_offset(choices.number());
    let aborted = match choices.below(4) {
        0 => None,
        count => Some(vec![aborted; count - 1]),
    };
    let mut partition = PartitionData::default()
        .with_partition_index(choices.number() as i32)
        .with_error_code(choices.of(&[0, 0, 1, 3, 29]))
        .with_high_watermark(choices.number())
        .with_last_stable_offset(choices.number())
        .with_aborted_transactions(aborted)
        .with_records(Some(Bytes::copy_from_slice(records)));
    let mut topic = FetchableTopicResponse::default();
    if version >= BY_ID {
        topic.topic_id = Uuid::from_bytes(choices.array());
        partition.log_start_offset = choices.number();
        partition.preferred_read_replica = (choices.number() as i32).into();
        partition.current_leader.leader_id = (choices.number() as i32).into();
        if choices.rarely(3) {
            let content = Bytes::copy_from_slice(choices.bytes(140));
            let tag = UNKNOWN_TAG.cast_signed();
            partition.unknown_tagged_fields.insert(tag, content);
        }
    } else {
        topic.topic = TopicName(StrBytes::from_string(choices.text()));
    }
    FetchResponse::default()
        .with_throttle_time_ms(choices.number() as i32)
        .with_responses(vec![topic.with_partitions(vec![partition])])
}

/// What was written of records: the headers, and whether something that is no batch ends them.
type Written = (Vec<InLog>, bool);

/// Batches as a log has them, then perhaps something else, then perhaps a part of a batch.
fn records(choices: &mut Choices<'_>) -> (Vec<u8>, Written) {
    let (mut bytes, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..choices.below(5) {
        let (one, header) = logged(choices);
        bytes.extend(one);
        whole.push(header);
    }
    let odd = choices.rarely(3);
    if odd {
        let mut one = logged(choices).0;
        match choices.below(5) {
            // Of a time before batches had producers, or of one to come.
            0 => one[16] = choices.of(&[0, 1, 3, 0xff]),
            1 => one[8..12].copy_from_slice(&choices.of(&[-1, 0, 48, i32::MIN]).to_be_bytes()),
            2 => one[23] |= 0x80,
            3 => one[0] |= 0x80,
            _ => one[16] ^= 0x80,
        }
        bytes.extend(one);
        bytes.extend(logged(choices).0);
    } else {
        let one = logged(choices).0;
        let end = choices.below(one.len());
        bytes.extend_from_slice(&one[..end]);
    }
    (bytes, (whole, odd))
}

/// A batch in the log: of data or control, compressed or not, with the broker's time or the producer's.
fn logged(choices: &mut Choices<'_>) -> (Vec<u8>, InLog) {
    let payload = choices.bytes(20);
    let (attributes, delta) = (choices.byte(), choices.number() as i32 & i32::MAX);
    let header = InLog {
        base_offset: choices.number() & i64::MAX,
        last_offset_delta: delta,
        producer: choices.number(),
        epoch: choices.number() as i16,
        first: choices.number() as i32,
        append_time: (attributes & 8 != 0).then(|| choices.number()),
    };
    let mut bytes = vec![0; batch::HEADER];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &header.base_offset.to_be_bytes());
    let length = i32::try_from(batch::HEADER - 12 + payload.len()).unwrap();
    put(8, &length.to_be_bytes());
    put(16, &[2]);
    put(22, &[attributes]);
    put(23, &delta.to_be_bytes());
    put(35, &header.append_time.unwrap_or(5).to_be_bytes());
    put(43, &header.producer.to_be_bytes());
    put(51, &header.epoch.to_be_bytes());
    put(53, &header.first.to_be_bytes());
    bytes.extend_from_slice(payload);
    (bytes, header)
}

fn read(records: &[u8]) -> Written {
    let mut whole = Vec::new();
    let mut odd = false;
    for batch in fetch::batches(records) {
        assert!(!odd, "something after what is no batch");
        match batch {
            Ok(batch) => whole.push(batch),
            Err(_) => odd = true,
        }
    }
    (whole, odd)
}

/// The same, read in another way.
fn check_batches(records: &[u8]) {
    let number = |at: usize, width: usize| {
        let bytes = records[at..at + width].iter();
        let value = bytes.fold(0_i64, |value, byte| value << 8 | i64::from(*byte));
        let unused = 64 - 8 * u32::try_from(width).unwrap();
        value << unused >> unused
    };
    let (mut whole, mut odd, mut at) = (Vec::new(), false, 0);
    while records.len() - at >= batch::HEADER {
        let length = number(at + 8, 4);
        if number(at + 16, 1) != 2 || length < 49 {
            odd = true;
            break;
        }
        let end = at + 12 + usize::try_from(length).unwrap();
        if end > records.len() {
            break;
        }
        let header = InLog {
            base_offset: number(at, 8),
            last_offset_delta: number(at + 23, 4) as i32,
            producer: number(at + 43, 8),
            epoch: number(at + 51, 2) as i16,
            first: number(at + 53, 4) as i32,
            append_time: (number(at + 22, 1) & 8 != 0).then(|| number(at + 35, 8)),
        };
        if header.base_offset < 0 || header.last_offset_delta < 0 {
            odd = true;
            break;
        }
        assert!(header.end() > header.base_offset || header.base_offset == i64::MAX);
        whole.push(header);
        at = end;
    }
    assert_eq!(read(records), (whole, odd));
}

/// What hapax reads of a Fetch response is what the protocol crate reads.
fn check_fetched(version: i16, frame: &[u8]) {
    let ours = fetch::fetched(version, frame);
    if version != BY_NAME && version != BY_ID {
        assert!(ours.is_err());
        return;
    }
    if let Ok(fetched) = ours {
        assert!(fetched.records.len() < frame.len());
        check_batches(fetched.records);
    }
    let Ok(body) = header::response_body_at(api::FETCH, version, frame) else {
        assert!(ours.is_err());
        return;
    };
    // What was walked to its end, the crate may read.
    if messages::leaves(table(), version, frame, body).is_none() {
        return;
    }
    let Some(Ok(theirs)) = second::decode::<FetchResponse>(version, &frame[body..]) else {
        return;
    };
    let expected = match theirs.responses.as_slice() {
        _ if theirs.error_code != 0 => Fetched {
            error: theirs.error_code,
            high_watermark: -1,
            records: &[],
        },
        [topic] if topic.partitions.len() == 1 => Fetched {
            error: topic.partitions[0].error_code,
            high_watermark: topic.partitions[0].high_watermark,
            records: topic.partitions[0].records.as_deref().unwrap_or_default(),
        },
        _ => {
            assert!(ours.is_err(), "of other than one partition: {theirs:?}");
            return;
        }
    };
    assert_eq!(ours, Ok(expected));
}

fn check_list_answer(choices: &mut Choices<'_>) {
    let partition = ListOffsetsPartitionResponse::default()
        .with_partition_index(choices.number() as i32)
        .with_error_code(choices.of(&[0, 3, 29]))
        .with_timestamp(choices.number())
        .with_offset(choices.number());
    let topic = ListOffsetsTopicResponse::default()
        .with_name(TopicName(StrBytes::from_string(choices.text())))
        .with_partitions(vec![partition.clone()]);
    let body = ListOffsetsResponse::default().with_topics(vec![topic]);
    let frame = framed(BY_NAME, &second::encode(fetch::LIST_OFFSETS, &body));
    let expected = Listed {
        error: partition.error_code,
        offset: Some(partition.offset).filter(|offset| *offset >= 0),
    };
    assert_eq!(fetch::listed(&frame), Ok(expected));
    check_listed(&frame);
}

/// What hapax reads of a ListOffsets response is what the protocol crate reads.
fn check_listed(frame: &[u8]) {
    let Ok(listed) = fetch::listed(frame) else {
        return;
    };
    let version = fetch::LIST_OFFSETS;
    let read = second::decode::<ListOffsetsResponse>(version, &frame[4..]);
    // A name may be no text.
    let Some(Ok(read)) = read else { return };
    let [topic] = read.topics.as_slice() else {
        panic!("of other than one topic: {read:?}")
    };
    let [partition] = topic.partitions.as_slice() else {
        panic!("of other than one partition: {read:?}")
    };
    let offset = Some(partition.offset).filter(|offset| *offset >= 0);
    let error = partition.error_code;
    assert_eq!(listed, Listed { error, offset });
}
