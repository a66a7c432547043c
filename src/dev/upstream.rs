//! The listener of the dev upstream, and its connections.
//!
//! As in Kafka, a connection's requests are served one after the other: the
//! next is looked at when the last one is answered.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::Decodable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time;

use super::apis::{self, Reply, Request};
use super::code::api;
use super::groups::Groups;
use super::log::Log;
use super::shape::{self, ShapeError};
use super::topics::{Named, Topics, random};

/// Bytes that all topics may hold; beyond it the oldest batches are dropped,
/// and the start of their log moves.
pub const RETENTION_BYTES: usize = 256 << 20;
/// Bytes of one request, and of one that is no Produce.
const FRAME_BYTES_MAX: usize = 16 << 20;
const OTHER_BYTES_MAX: usize = 1 << 20;
/// The least that has a header: api, version, correlation id.
const FRAME_BYTES_MIN: usize = 8;
const CONNECTIONS_MAX: usize = 512;
/// What a listener waits after a refusal of the system.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked which members of groups are late.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// A broker in memory.
#[derive(Clone)]
pub struct Upstream(Arc<Shared>);

pub(super) struct Shared {
    pub(super) address: SocketAddr,
    pub(super) cluster_id: String,
    pub(super) groups: Groups,
    topics: Mutex<Topics>,
    producers: AtomicI64,
    /// Told of each append.
    pub(super) appended: Notify,
}

impl Shared {
    pub(super) fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_producer(&self) -> i64 {
        self.producers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("a frame of {0} bytes: not Kafka's protocol, or larger than {FRAME_BYTES_MAX}")]
    Frame(i32),
    #[error("a request of api {0} with {1} bytes")]
    Large(i16, usize),
    #[error("{0}")]
    Shape(#[from] ShapeError),
    #[error("a request that cannot be read: {0}")]
    Unreadable(String),
    #[error("api {0} version {1} is not served")]
    Unserved(i16, i16),
    #[error("a batch with acks=0 was refused with error {0}")]
    Refused(i16),
}

impl Upstream {
    /// Binds a port of the loopback interface; 0 is any.
    ///
    /// # Errors
    ///
    /// Where the port cannot be bound.
    pub async fn bind(port: u16, retention_bytes: usize) -> io::Result<(Self, TcpListener)> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let shared = Shared {
            address: listener.local_addr()?,
            cluster_id: format!("hapax-dev-{:012x}", random() >> 16),
            groups: Groups::default(),
            topics: Mutex::new(Topics::new(retention_bytes)),
            producers: AtomicI64::new(1000),
            appended: Notify::new(),
        };
        Ok((Self(Arc::new(shared)), listener))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Serves for ever.
    pub async fn serve(self, listener: TcpListener) {
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut ticks = time::interval(TICK_EVERY);
            loop {
                ticks.tick().await;
                shared.groups.tick(Instant::now());
            }
        });
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Closed, not left waiting: nobody would know why.
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                        let limit = CONNECTIONS_MAX;
                        tracing::warn!(%peer, limit, "dev upstream is full and closes a connection");
                        continue;
                    };
                    let shared = Arc::clone(&self.0);
                    tokio::spawn(async move {
                        let _place = place;
                        match connection(&shared, stream).await {
                            Ok(()) => {}
                            Err(Closed::Io(reason)) => {
                                tracing::debug!(%peer, %reason, "a client of the dev upstream went");
                            }
                            Err(reason) => {
                                tracing::warn!(%peer, %reason, "dev upstream closes a connection");
                            }
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "dev upstream cannot accept connections");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Forgets every producer of a topic, as Kafka does when the times of
    /// their records are a day old.
    pub fn forget_producers(&self, topic: &str) {
        self.0.topics().forget_producers(topic);
    }

    /// The end of a topic's first partition.
    #[must_use]
    pub fn end(&self, topic: &str) -> i64 {
        let topics = self.0.topics();
        topics.log(Named::Name(topic), 0).map_or(0, Log::end)
    }
}

async fn connection(shared: &Arc<Shared>, mut stream: TcpStream) -> Result<(), Closed> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    while let Some(frame) = next_frame(&mut stream, &mut buffer).await? {
        let request = parse(frame)?;
        let (key, version) = (request.key, request.version);
        match apis::answer(shared, request).await {
            Ok(Reply::Frame(frame)) => stream.write_all(&frame).await?,
            Ok(Reply::Silence) => {}
            Ok(Reply::Refused(code)) => return Err(Closed::Refused(code)),
            // Kafka throws on null records, and never reads this connection again.
            Ok(Reply::Stuck) => while stream.read(&mut [0; 1024]).await? > 0 {},
            Ok(Reply::Unserved) => return Err(Closed::Unserved(key, version)),
            Err(error) => return Err(Closed::Unreadable(format!("{error:#}"))),
        }
    }
    Ok(())
}

/// The next frame without its length; `None` where the other side is done.
async fn next_frame(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
) -> Result<Option<Bytes>, Closed> {
    loop {
        if let Some(length) = buffer.first_chunk().copied().map(i32::from_be_bytes) {
            let size = usize::try_from(length).map_err(|_| Closed::Frame(length))?;
            if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&size) {
                return Err(Closed::Frame(length));
            }
            if buffer.len() >= 4 + size {
                buffer.advance(4);
                return Ok(Some(buffer.split_to(size).freeze()));
            }
        }
        // Grows with what arrives, not with what is announced.
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn parse(mut frame: Bytes) -> Result<Request, Closed> {
    let mut head = frame.clone();
    let (key, version) = (head.get_i16(), head.get_i16());
    let unserved = Closed::Unserved(key, version);
    let Some(served) = apis::served(key) else {
        return Err(unserved);
    };
    // The answer to an unknown ApiVersions is one that every client reads.
    if key == api::API_VERSIONS && !served.contains(&version) {
        return Ok(Request {
            key,
            version,
            correlation: head.get_i32(),
            client_id: String::new(),
            body: Bytes::new(),
        });
    }
    let header_version = ApiKey::try_from(key).map(|key| key.request_header_version(version));
    let (Ok(header_version), true) = (header_version, served.contains(&version)) else {
        return Err(unserved);
    };
    if key != api::PRODUCE && frame.len() > OTHER_BYTES_MAX {
        return Err(Closed::Large(key, frame.len()));
    }
    let header = RequestHeader::decode(&mut frame, header_version);
    let header = header.map_err(|error| Closed::Unreadable(format!("{error:#}")))?;
    shape::check(key, version, &frame)?;
    Ok(Request {
        key,
        version,
        correlation: header.correlation_id,
        client_id: header
            .client_id
            .map_or_else(String::new, |id| id.to_string()),
        body: frame,
    })
}
