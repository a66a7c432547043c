//! Every Produce request and its answer, as lines: `TRACE=file` in the
//! environment says where to. For a human who wants to know why.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion};

use crate::batch::stored;

static TRACE: LazyLock<Option<(Instant, Mutex<File>)>> = LazyLock::new(|| {
    let path = std::env::var_os("TRACE")?;
    let file = File::create(path).expect("the trace can be written");
    Some((Instant::now(), Mutex::new(file)))
});

/// The version of a Produce request, to read its answer by.
pub(crate) fn version(frame: &Bytes) -> i16 {
    i16::from_be_bytes([frame[6], frame[7]])
}

pub(crate) fn request(name: &str, link: usize, frame: &Bytes) {
    if TRACE.is_none() {
        return;
    }
    let version = version(frame);
    let mut body = frame.slice(4..);
    let header = RequestHeader::decode(&mut body, ProduceRequest::header_version(version));
    let header = header.expect("a request header");
    let request = ProduceRequest::decode(&mut body, version).expect("a Produce request");
    let mut text = format!("{:?}", header.client_id.map(|id| id.to_string()));
    for topic in &request.topic_data {
        for partition in &topic.partition_data {
            let batches = stored(partition.records.as_deref().unwrap_or(&[]));
            for batch in batches {
                let _ = write!(
                    text,
                    " {}{}-{}:{}/{}/{}+{}",
                    &topic.name.0,
                    &topic.topic_id.to_string()[..8],
                    partition.index,
                    batch.producer,
                    batch.epoch,
                    batch.sequence,
                    batch.count
                );
            }
        }
    }
    line(name, link, "->", header.correlation_id, &text);
}

pub(crate) fn answer(name: &str, link: usize, version: i16, frame: &Bytes) {
    if TRACE.is_none() {
        return;
    }
    let mut body = frame.slice(4..);
    let header = ResponseHeader::decode(&mut body, ProduceResponse::header_version(version));
    let header = header.expect("a response header");
    let response = ProduceResponse::decode(&mut body, version).expect("a Produce response");
    let mut text = String::new();
    for topic in &response.responses {
        for partition in &topic.partition_responses {
            let _ = write!(
                text,
                " {}{}-{}={}@{}",
                &topic.name.0,
                &topic.topic_id.to_string()[..8],
                partition.index,
                partition.error_code,
                partition.base_offset
            );
        }
    }
    line(name, link, "<-", header.correlation_id, &text);
}

fn line(name: &str, link: usize, arrow: &str, correlation: i32, text: &str) {
    if let Some((start, file)) = &*TRACE {
        let at = start.elapsed().as_secs_f64();
        let mut file = file.lock().expect("no holder panics");
        writeln!(file, "{at:9.3} {name} #{link} {arrow} {correlation}{text}").expect("a trace");
    }
}
