//! A scripted broker: each connection is handed to the test, frame by frame.
//!
//! Only hapax's readiness probe is answered unseen.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ApiKey, ProduceRequest, ProduceResponse, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};

use crate::support::await_until;
use crate::support::raw::{Answer, PATIENCE};

/// The api key of requests that hapax knows nothing of.
pub const OPAQUE: i16 = 999;

/// Where the scripted broker listens.
pub struct Upstream {
    /// `127.0.0.1:port`, or another address than that.
    pub address: String,
    /// Its port.
    pub port: u16,
    arrivals: Receiver<Conn>,
    ends: Arc<AtomicBool>,
}

/// Starts it on a free port.
pub fn start() -> Upstream {
    start_at(0)
}

/// Starts it on that port.
pub fn start_at(port: u16) -> Upstream {
    start_on(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Starts it on that address.
pub fn start_on(address: SocketAddr) -> Upstream {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let (hand_over, arrivals) = mpsc::channel();
    let ends = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ends);
    thread::spawn(move || {
        for stream in listener.incoming() {
            if ended.load(Ordering::SeqCst) {
                return;
            }
            let hand_over = hand_over.clone();
            thread::spawn(move || receive(stream.unwrap(), &hand_over));
        }
    });
    Upstream {
        address: address.to_string(),
        port: address.port(),
        arrivals,
        ends,
    }
}

impl Upstream {
    /// The next connection on which something was said.
    pub fn accept(&self) -> Conn {
        let arrived = self.arrivals.recv_timeout(PATIENCE);
        arrived.expect("hapax connects")
    }

    /// Nobody listens here any more.
    pub fn close(&self) {
        self.ends.store(true, Ordering::SeqCst);
        await_until("the end of the listener", PATIENCE, || {
            TcpStream::connect(&self.address).is_err()
        });
    }

    /// Nobody else has connected and said something.
    pub fn assert_idle(&self) {
        let arrived = self.arrivals.recv_timeout(Duration::from_millis(50));
        assert!(matches!(arrived, Err(RecvTimeoutError::Timeout)));
    }
}

/// Answers the probe; anything else is for the test.
fn receive(mut stream: TcpStream, hand_over: &mpsc::Sender<Conn>) {
    const PROBE: &[u8] = b"\0\0\0\x0f\0\x12\0\0\0\0\0\0\0\x05hapax";
    let mut first = [0; PROBE.len()];
    loop {
        match stream.peek(&mut first) {
            Ok(0) | Err(_) => return,
            Ok(n) if first[..n] != PROBE[..n] => break,
            Ok(n) if n == PROBE.len() => {
                stream.read_exact(&mut first).unwrap();
                let _ = stream.write_all(b"\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0");
                return;
            }
            Ok(_) => thread::yield_now(),
        }
    }
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // A test that has ended wants nobody.
    let _ = hand_over.send(Conn { stream });
}

/// A connection of hapax.
pub struct Conn {
    /// Its socket, for what only a socket can do.
    pub stream: TcpStream,
}

/// A request as it reached the broker.
#[derive(Debug)]
pub struct Asked {
    /// Its api.
    pub key: i16,
    /// Its version.
    pub version: i16,
    /// Its correlation id.
    pub correlation: i32,
    /// All of it, without the length.
    pub frame: Bytes,
    body: Bytes,
}

impl Conn {
    /// The next request, which must come.
    pub fn next(&mut self) -> Asked {
        self.try_next().expect("a request arrives")
    }

    /// The next request.
    pub fn try_next(&mut self) -> io::Result<Asked> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame)?;
        Ok(Asked::of(frame.into()))
    }

    /// A frame that is no request, such as a bare token.
    pub fn next_bare(&mut self) -> Bytes {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame).unwrap();
        frame.into()
    }

    /// Nothing arrives for a moment.
    pub fn assert_silent(&mut self) {
        let moment = Some(Duration::from_millis(150));
        self.stream.set_read_timeout(moment).unwrap();
        let got = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let kind = got.map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::WouldBlock));
    }

    /// hapax sends no more.
    pub fn assert_ended(&mut self) {
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest);
        let reset = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionReset;
        assert!(
            ended.is_ok() || ended.as_ref().is_err_and(reset),
            "{ended:?}"
        );
        assert_eq!(rest, [] as [u8; 0]);
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Answers with a message.
    pub fn answer<M: Encodable + HeaderVersion>(&mut self, asked: &Asked, message: &M) {
        self.send(&answer(asked, message));
    }

    /// Answers with these bytes after the correlation id.
    pub fn answer_raw(&mut self, asked: &Asked, body: &[u8]) {
        self.send(&framed(asked.correlation, body));
    }

    /// Acknowledges every batch of a Produce request at `offset`.
    pub fn ack(&mut self, asked: &Asked, offset: i64) {
        self.reply(asked, |_| ok(offset));
    }

    /// Answers each partition of a Produce request.
    pub fn reply(&mut self, asked: &Asked, answer: impl Fn(i32) -> Answer) {
        let response = produced(asked, answer);
        self.answer(asked, &response);
    }
}

impl Asked {
    /// A request that a test has read by itself.
    pub fn of(frame: Bytes) -> Self {
        let key = i16::from_be_bytes(frame[..2].try_into().unwrap());
        let version = i16::from_be_bytes(frame[2..4].try_into().unwrap());
        let correlation = i32::from_be_bytes(frame[4..8].try_into().unwrap());
        let header = ApiKey::try_from(key)
            .ok()
            .filter(|_| (key, version) != (18, 5))
            .map_or(1, |api| api.request_header_version(version));
        let mut body = frame.clone();
        RequestHeader::decode(&mut body, header).unwrap();
        Self {
            key,
            version,
            correlation,
            frame,
            body,
        }
    }

    /// The body of a Produce request.
    pub fn produce(&self) -> ProduceRequest {
        assert_eq!(self.key, 0, "a Produce request was expected");
        ProduceRequest::decode(&mut self.body.clone(), self.version).unwrap()
    }

    /// Partition and base sequence of each batch of a Produce request.
    pub fn sequences(&self) -> Vec<(i32, i32)> {
        let request = self.produce();
        let partitions = request.topic_data.iter().flat_map(|t| &t.partition_data);
        partitions
            .map(|partition| {
                let records = partition.records.as_ref().unwrap();
                (partition.index, (&records[53..57]).get_i32())
            })
            .collect()
    }
}

/// A success at `offset`.
pub fn ok(offset: i64) -> Answer {
    Answer {
        partition: 0,
        code: 0,
        offset,
        append_time: -1,
        log_start: 0,
    }
}

/// A failure before the append.
pub fn failed(code: i16) -> Answer {
    Answer {
        code,
        log_start: -1,
        ..ok(-1)
    }
}

/// The response that gives each partition of a request its answer.
pub fn produced(asked: &Asked, answer: impl Fn(i32) -> Answer) -> ProduceResponse {
    let request = asked.produce();
    let topics = request.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            let answer = answer(partition.index);
            PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_error_code(answer.code)
                .with_base_offset(answer.offset)
                .with_log_append_time_ms(answer.append_time)
                .with_log_start_offset(if asked.version >= 5 {
                    answer.log_start
                } else {
                    -1
                })
        });
        TopicProduceResponse::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions.collect())
    });
    ProduceResponse::default().with_responses(topics.collect())
}

/// The whole frame of an answer.
pub fn answer<M: Encodable + HeaderVersion>(asked: &Asked, message: &M) -> Bytes {
    let mut body = BytesMut::new();
    if M::header_version(asked.version) >= 1 {
        body.extend([0]);
    }
    message.encode(&mut body, asked.version).unwrap();
    framed(asked.correlation, &body)
}

/// A response frame of these bytes after its correlation id.
pub fn framed(correlation: i32, body: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(body.len() + 8);
    frame.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    frame.extend(correlation.to_be_bytes());
    frame.extend_from_slice(body);
    frame.into()
}
