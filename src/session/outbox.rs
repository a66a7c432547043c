//! Bytes on their way to a socket.
//!
//! What can go at once goes straight from the read buffer; only what the
//! socket does not take is copied and kept. A direction is not read from
//! while its outbox holds anything: that is the back-pressure.

use super::splice::{Filled, HEAD_MAX};
use crate::tls::Stream;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// What TLS may hold of sealed bytes.
const SEALED_MAX: usize = 64 * 1024;

/// What has yet to be written to one socket, and how much has been.
#[derive(Default, Debug)]
pub(super) struct Outbox {
    /// What goes before the bytes in `pending`.
    first: First,
    pending: Vec<u8>,
    /// `sent <= pending.len()`: how much of `pending` has gone.
    sent: usize,
    /// Bytes ever meant for the socket; `written <= queued`.
    queued: u64,
    /// Bytes that the socket has taken.
    written: u64,
}

/// Bytes that have left the outbox's own memory, and not this process.
#[derive(Default, Debug)]
enum First {
    #[default]
    Nothing,
    /// They are in a pipe.
    Piped(Filled),
    /// They are sealed by TLS, and so count as written: they go as they are,
    /// or the connection is at its end.
    Sealed,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.first, First::Nothing) && self.sent == self.pending.len()
    }

    /// Bytes that wait in memory of ours.
    pub(super) fn len(&self) -> usize {
        self.pending.len() - self.sent
    }

    /// What all that waits takes, in memory and in a pipe.
    pub(super) fn kept(&self) -> usize {
        let first = match &self.first {
            First::Nothing => 0,
            First::Piped(piped) => piped.left(),
            First::Sealed => SEALED_MAX,
        };
        self.pending.capacity() + first
    }

    /// Bytes that the socket has taken, or TLS for it.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Where in the stream the next byte will stand.
    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.queued += bytes.len() as u64;
    }

    /// Whether `bytes` may wait a moment for the run that they begin.
    pub(super) fn takes_head(&self, bytes: usize) -> bool {
        self.is_empty() && bytes <= HEAD_MAX
    }

    /// What waits, where that may go by a pipe: at most `HEAD_MAX`.
    pub(super) fn head(&self) -> Option<&[u8]> {
        let waits = &self.pending[self.sent..];
        (matches!(self.first, First::Nothing) && waits.len() <= HEAD_MAX).then_some(waits)
    }

    /// The head is in this pipe, and more behind it.
    pub(super) fn push_piped(&mut self, filled: Filled) {
        debug_assert!(matches!(self.first, First::Nothing) && self.len() <= filled.left());
        self.queued += (filled.left() - self.len()) as u64;
        self.pending = Vec::new();
        self.sent = 0;
        self.first = First::Piped(filled);
    }

    /// Forgets what waits, but for `keep`: ranges of the stream in order.
    pub(super) fn withdraw(&mut self, keep: &[Range<u64>]) {
        let start = self.queued - self.len() as u64;
        if let First::Piped(piped) = &mut self.first {
            // Whole small frames, then a part of a large one.
            let mut end = self.written;
            for frame in keep {
                if frame.start <= end && end < frame.end && frame.end <= self.queued {
                    end = frame.end;
                }
            }
            if end < start {
                let left = usize::try_from(end - self.written).unwrap_or(0);
                piped.cut(left);
                let first = std::mem::take(&mut self.first);
                *self = Self {
                    first: if left > 0 { first } else { First::Nothing },
                    queued: end,
                    written: self.written,
                    ..Self::default()
                };
                return;
            }
        }
        let mut kept = Vec::new();
        let mut expected = start;
        for range in keep {
            // A frame of which a part has gone can be finished; after a hole
            // in the middle of another frame nothing can follow.
            if range.end <= start || range.start > expected {
                continue;
            }
            let from = usize::try_from(range.start.max(start) - start).unwrap_or(usize::MAX);
            let to = usize::try_from(range.end - start).unwrap_or(usize::MAX);
            if let Some(bytes) = self.pending.get(self.sent + from..self.sent + to) {
                kept.extend_from_slice(bytes);
                expected = range.end;
            }
        }
        self.queued = start + kept.len() as u64;
        self.pending = kept;
        self.sent = 0;
    }

    /// Writes what waits. `Ready` when nothing does any more.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Stream,
    ) -> Poll<io::Result<()>> {
        while let First::Piped(piped) = &mut self.first {
            self.written += ready!(piped.poll_drain(cx, socket.tcp()))? as u64;
            if piped.left() == 0 {
                self.first = First::Nothing;
            }
        }
        while self.sent < self.pending.len() {
            let written =
                ready!(Pin::new(&mut *socket).poll_write(cx, &self.pending[self.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
            self.written += written as u64;
        }
        if !self.pending.is_empty() {
            // An idle connection keeps no buffer.
            self.pending = Vec::new();
            self.sent = 0;
        }
        ready!(Pin::new(&mut *socket).poll_flush(cx))?;
        self.first = First::Nothing;
        Poll::Ready(Ok(()))
    }

    /// Writes `bytes` after what waits, and keeps what the socket does not take.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Stream,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        if self.is_empty() {
            while !bytes.is_empty() {
                match Pin::new(&mut *socket).poll_write(cx, bytes) {
                    Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(Ok(written)) => {
                        bytes = &bytes[written..];
                        self.queued += written as u64;
                        self.written += written as u64;
                    }
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => break,
                }
            }
            self.push(bytes);
            if socket.holds_back() {
                self.first = First::Sealed;
            }
            return Ok(());
        }
        self.push(bytes);
        match self.poll_flush(cx, socket) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }
}

/// One pass over the bytes of a read: which of them go on as they are.
///
/// The run of cleared bytes is written by one call at the end of the pass;
/// one write per frame would cost two and a half times the CPU.
pub(super) struct Pass<'a> {
    bytes: &'a [u8],
    /// Cleared bytes that have not been copied to the outbox; `run.end` is
    /// where the pass stands.
    run: Range<usize>,
    outbox: &'a mut Outbox,
}

impl<'a> Pass<'a> {
    pub(super) fn new(bytes: &'a [u8], outbox: &'a mut Outbox) -> Self {
        Self {
            bytes,
            run: 0..0,
            outbox,
        }
    }

    /// Bytes that the pass has not come to.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.run.end..]
    }

    /// Where in the outgoing stream the next byte will stand.
    pub(super) fn position(&self) -> u64 {
        self.outbox.queued + self.run.len() as u64
    }

    /// The next `n` bytes go on as they are.
    pub(super) fn keep(&mut self, n: usize) {
        self.run.end += n;
    }

    /// The next `n` bytes do not go on.
    pub(super) fn drop(&mut self, n: usize) {
        self.outbox.push(&self.bytes[self.run.clone()]);
        let at = self.run.end + n;
        self.run = at..at;
    }

    /// `instead` goes on in place of the next `n` bytes.
    pub(super) fn replace(&mut self, n: usize, instead: &[u8]) {
        self.drop(n);
        self.outbox.push(instead);
    }

    /// Ends the pass: how many bytes it came to, and the run to write.
    pub(super) fn finish(self) -> Range<usize> {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_keeps_drops_and_replaces_in_order() {
        let mut outbox = Outbox::default();
        let mut pass = Pass::new(b"aabbccdd", &mut outbox);
        pass.keep(2);
        pass.drop(2);
        assert_eq!(pass.position(), 2);
        pass.replace(2, b"XYZ");
        pass.keep(2);
        assert_eq!(pass.position(), 7);
        assert_eq!(pass.finish(), 6..8);
        assert_eq!(outbox.pending, b"aaXYZ");
    }

    #[test]
    fn withdrawing_keeps_only_whole_frames_that_are_asked_for() {
        let outbox = || {
            let mut outbox = Outbox::default();
            outbox.push(b"aaaabbbbcccc");
            outbox.sent = 2;
            outbox.written = 2;
            outbox
        };
        let check = |keep: &[(u64, u64)], left: &[u8]| {
            let mut outbox = outbox();
            let keep: Vec<_> = keep.iter().map(|(from, to)| *from..*to).collect();
            outbox.withdraw(&keep);
            assert_eq!(outbox.pending, left, "{keep:?}");
        };
        check(&[], b"");
        check(&[(0, 4)], b"aa");
        check(&[(0, 4), (4, 8)], b"aabbbb");
        check(&[(4, 8)], b"");
    }

    /// The pipe holds whole small frames and then a part of a large one, or
    /// only that part.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn withdrawing_keeps_of_a_pipe_only_frames_that_are_kept_whole() {
        use crate::session::splice::tests::{connected, filled};
        use std::future::poll_fn;
        use tokio::io::AsyncReadExt;
        let check = async |keep: &[(u64, u64)], left: &[u8]| {
            let mut outbox = Outbox {
                queued: 2,
                written: 2,
                ..Outbox::default()
            };
            outbox.push_piped(filled(b"aaa").await);
            outbox.push(b"abbbb");
            let keep: Vec<_> = keep.iter().map(|(from, to)| *from..*to).collect();
            outbox.withdraw(&keep);
            assert_eq!(outbox.queued, 2 + left.len() as u64, "{keep:?}");
            let (mut near, far) = connected().await;
            let mut far = Stream::Plain(far);
            poll_fn(|cx| outbox.poll_flush(cx, &mut far)).await.unwrap();
            assert_eq!(outbox.written(), outbox.queued, "{keep:?}");
            drop(far);
            let mut sent = Vec::new();
            near.read_to_end(&mut sent).await.unwrap();
            assert_eq!(sent, left, "{keep:?}");
        };
        check(&[], b"").await;
        check(&[(0, 6)], b"aaaa").await;
        check(&[(0, 6), (6, 10)], b"aaaabbbb").await;
        check(&[(0, 3), (3, 6)], b"aaaa").await;
        check(&[(0, 3)], b"a").await;
        check(&[(0, 3), (6, 10)], b"a").await;
        check(&[(0, 5), (6, 10)], b"aaa").await;
        check(&[(6, 10)], b"").await;
        check(&[(0, 11)], b"").await;
    }
}
