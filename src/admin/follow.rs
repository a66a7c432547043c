//! The body of an event stream (`text/event-stream`).

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use prometheus::IntCounter;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::sleep;

use crate::events::Events;

/// Chunks of the stream, which end with the connection.
pub(super) struct Follow(mpsc::Receiver<Bytes>);

impl Follow {
    /// Starts a stream of the events after that id; 0 is all that the ring
    /// has. `place` is given back when the stream ends.
    pub(super) fn start(
        events: Arc<Events>,
        after: u64,
        dropped: IntCounter,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let (chunks, stream) = mpsc::channel(CHUNKS_QUEUED);
        let feeder = Feeder {
            last: first_to_skip(&events, after),
            events,
            dropped,
            chunks,
        };
        tokio::spawn(async move {
            feeder.feed().await;
            drop(place);
        });
        Self(stream)
    }
}

impl Body for Follow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.0.poll_recv(context);
        chunk.map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// An id beyond the newest was given out by an earlier process: start over.
fn first_to_skip(events: &Events, after: u64) -> u64 {
    if after > 0 && after <= events.newest() {
        return after;
    }
    let oldest = events.since(0).first().map(|event| event.id);
    oldest.map_or(0, |oldest| oldest - 1)
}

struct Feeder {
    events: Arc<Events>,
    /// The newest event that was sent.
    last: u64,
    dropped: IntCounter,
    chunks: mpsc::Sender<Bytes>,
}

impl Feeder {
    /// Reads from the ring when there is room, so that a slow reader costs
    /// nothing but the events it misses.
    async fn feed(mut self) {
        let mut newest = self.events.subscribe();
        let mut chunk = String::from(": events of hapax\n\n");
        loop {
            newest.mark_unchanged();
            if chunk.is_empty() {
                chunk = self.next_chunk();
            }
            while !chunk.is_empty() {
                if self.chunks.send(Bytes::from(chunk)).await.is_err() {
                    return;
                }
                chunk = self.next_chunk();
            }
            tokio::select! {
                changed = newest.changed() => if changed.is_err() {
                    return;
                },
                () = self.chunks.closed() => return,
                () = sleep(HEARTBEAT) => chunk.push_str(": still here\n\n"),
            }
        }
    }

    /// What comes next, empty when there is nothing.
    fn next_chunk(&mut self) -> String {
        let mut chunk = String::new();
        for event in self.events.since(self.last).iter().take(EVENTS_A_CHUNK) {
            let missed = event.id - self.last - 1;
            if missed > 0 {
                self.dropped.inc_by(missed);
                let _ = write!(chunk, ": dropped {missed}\n\n");
            }
            self.last = event.id;
            let json = serde_json::to_string(&**event).expect("an event has string keys");
            let _ = write!(chunk, "id: {}\ndata: {json}\n\n", event.id);
        }
        chunk
    }
}

const CHUNKS_QUEUED: usize = 2;
const EVENTS_A_CHUNK: usize = 64;
/// A peer that is gone is found when something is written to it.
const HEARTBEAT: Duration = Duration::from_secs(15);
