//! What a session does when the process is told to do something else, or to end.
//!
//! ```text
//!  No --> Asked --> Left --> the end, once everything is answered
//!           |
//!           +- until a moment at which no frame has begun and nothing has come:
//!              what came before that is answered, what comes later is not read
//! ```
//!
//! Kafka has no word for "send no more": a client hears of it when the
//! connection ends between two frames, and sends what is open elsewhere. The
//! broker has seen nothing of that.

use super::end::End;
use super::route::{PREFIX, RequestStage};
use super::topics::TopicCache;
use super::{BUFFER, Blocked, Session, poll_read};
use crate::config::Mode;
use crate::socket;
use crate::timers::timeout;
use crate::tls::Stream;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a client may take to see that its connection has ended.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// How far the process is on its way to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Clients are served.
    Serving,
    /// What has come is answered, then each connection is closed.
    Leaving,
    /// The time for that is over.
    Cut,
}

/// How far a session is on its way to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// It serves.
    No,
    /// It serves what has come.
    Asked,
    /// It reads no more, and answers what it has read.
    Left,
}

impl Session {
    /// Does from now on what the process is told to do. Returns how the
    /// session ends, where it does so at once.
    pub(super) fn catch_up(&mut self, cx: &Context<'_>) -> Option<End> {
        // A session stays in its task, whose waker is always the same.
        self.info.waker.get_or_init(|| cx.waker().clone());
        let version = self.shared.version();
        match self.shared.stage() {
            Stage::Serving => {}
            Stage::Leaving if self.leaving == Leaving::No => self.leaving = Leaving::Asked,
            Stage::Leaving => {}
            Stage::Cut if self.orphan.is_some() => return Some(End::ClientClosed),
            Stage::Cut => return Some(End::Cut),
        }
        let config = self.shared.current();
        if self.config.policies != config.policies {
            self.topics = TopicCache::default();
        }
        let keep_alive = config.timeouts.keep_alive;
        if keep_alive != self.config.timeouts.keep_alive {
            self.keep_alive_after(keep_alive);
        }
        self.config = config;
        self.is_removed = self.shared.has_removed(self.authentication.settled_user());
        // What is looked for in the log is looked for to its end.
        if self.readback.is_none() {
            let sequence = &self.config.sequence;
            self.reads_log = sequence.resolve && self.config.mode != Mode::Observe;
            self.seen = Some(version);
        }
        None
    }

    fn keep_alive_after(&self, silence: Duration) {
        for stream in [&self.client, &self.upstream] {
            if let Err(error) = socket::keep_alive_after(stream.tcp(), silence) {
                tracing::debug!(%error, "cannot change when TCP asks for a peer");
            }
        }
    }

    /// Takes the next step towards the end. Returns whether that moved anything.
    pub(super) fn leave(&mut self) -> Result<bool, End> {
        let between = matches!(self.request, RequestStage::Head) && self.blocked.is_none();
        let sent = self.to_upstream.is_empty() && self.readback.is_none();
        if self.leaving == Leaving::Asked && between && sent && self.dry.client {
            self.leaving = Leaving::Left;
            // The beginning of a frame of which the broker knows nothing.
            self.inbox = Vec::new();
            self.collecting = None;
        }
        let answered = self.pipeline.is_empty() && self.reply.at_head();
        let is_over = sent && answered && self.to_client.is_empty();
        if self.leaving == Leaving::Left && is_over {
            return Err(End::Drained);
        }
        if self.is_removed && self.takes_no_more() && is_over {
            return Err(End::Removed);
        }
        Ok(false)
    }

    /// Whether nothing of the client is on its way in, and nothing more gets in.
    fn takes_no_more(&self) -> bool {
        matches!(self.request, RequestStage::Head)
            && matches!(self.blocked, None | Some(Blocked::Full))
    }

    /// Counts the requests that get no answer.
    pub(super) fn count_cut(&self) {
        let owed = self.pipeline.iter().filter(|owed| !owed.reply.is_own());
        // One whose answer has begun, or waits for the log, is not owed any more.
        let begun = usize::from(!self.reply.at_head());
        let waiting = match self.request {
            RequestStage::Head => whole_frames(&self.inbox),
            RequestStage::Pass { .. } | RequestStage::Drop { .. } | RequestStage::Walk(_) => 0,
        };
        let cut = owed.count() + begun + waiting;
        self.shared.metrics.drain_cut_requests.inc_by(cut as u64);
    }

    /// Reads on until the client has seen the end: what it has sent meanwhile
    /// would make a reset of it, which may take answers with it.
    pub(super) async fn linger(&mut self) {
        drop_what_comes(&mut self.client).await;
    }
}

/// Reads until the client closes, for a moment at most.
pub(super) async fn drop_what_comes(client: &mut Stream) {
    let seen = poll_fn(|cx| {
        BUFFER.with_borrow_mut(|buffer| {
            // In turns: a client that never stops must not keep the worker.
            match poll_read(cx, client, buffer) {
                Poll::Ready(Ok(1..)) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        })
    });
    // Whoever does not close is closed.
    let _ = timeout(LINGER_MAX, seen).await;
}

/// How many frames at the beginning of these bytes are whole.
fn whole_frames(mut bytes: &[u8]) -> usize {
    let mut frames = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<PREFIX>()
        && let Ok(length) = usize::try_from(i32::from_be_bytes(*length))
        && let Some(rest) = rest.get(length..)
    {
        frames += 1;
        bytes = rest;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_that_have_wholly_come_count() {
        let one = b"\0\0\0\x03abc";
        for (bytes, frames) in [
            (&b""[..], 0),
            (b"\0\0\0", 0),
            (one, 1),
            (b"\0\0\0\x03abc\0\0\0\x02a", 1),
            (b"\0\0\0\x03abc\0\0\0\0", 2),
            (b"\xff\xff\xff\xff\0\0\0\0", 0),
        ] {
            assert_eq!(whole_frames(bytes), frames, "{bytes:?}");
        }
    }
}
