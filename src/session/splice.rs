//! Large runs of bytes that nobody has to see, moved by the kernel.
//!
//! The records of a streamed Produce request and of a Fetch response are
//! only counted here. Where many of them are still to come they go from
//! socket to socket through a pipe, by splice(2), which passes the pages on
//! instead of copying them twice:
//!
//! ```text
//! socket --poll_fill--> pipe --poll_drain--> socket
//! ```
//!
//! A pipe is filled only when nothing but the head of the run waits in its
//! direction, which is put into it first, and is not filled again before it is
//! empty: that is the back-pressure, and it makes clear which socket "would
//! block" speaks of. What is in a pipe belongs to the `Outbox` of its
//! direction: whole small frames, then a part of a large one. A worker lends its pipes out for as long
//! as they hold anything, so that an idle connection has none. Where there
//! is none to be had, or the system has no splice, bytes go the usual way.

use super::end::End;
use super::{FIRST_PART, Session};
use crate::metrics::Side;
use crate::tls::Stream;
use crate::wire::api;
use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, ready};
use system::Pipe;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The shortest run that is worth a pipe: below it, two more system calls cost
/// what two copies do.
pub(super) const RUN_MIN: usize = 64 * 1024;
/// The most that is in one pipe, and so the memory of a connection whose other
/// side does not read.
const FILL_MAX: usize = 1024 * 1024;
/// What one session may move before others of its worker have their turn.
const TURN_MAX: usize = 4 * 1024 * 1024;
/// Pipes of a worker that hold anything; connections beyond go the usual way.
const PIPES_MAX: usize = 64;
/// Empty pipes that a worker keeps.
const IDLE_MAX: usize = 4;
/// What is read to see where the next large run begins.
const HEAD_READ: usize = 4 * 1024;
/// What goes into a pipe before a run, so that both leave at once.
pub(super) const HEAD_MAX: usize = 2 * HEAD_READ;

thread_local! {
    static PIPES: RefCell<Pipes> = const { RefCell::new(Pipes::new()) };
}

/// The pipes of a worker.
struct Pipes {
    idle: Vec<Pipe>,
    /// `lent <= PIPES_MAX`
    lent: usize,
    /// The system has no splice for sockets.
    unsupported: bool,
}

impl Pipes {
    const fn new() -> Self {
        Self {
            idle: Vec::new(),
            lent: 0,
            unsupported: false,
        }
    }

    fn lend(&mut self) -> Option<Filled> {
        if self.unsupported || self.lent >= PIPES_MAX {
            return None;
        }
        // No descriptors, or pipes too small by the limit of a user: the
        // next run may have more luck.
        let pipe = self.idle.pop().or_else(|| Pipe::new(FILL_MAX, RUN_MIN))?;
        self.lent += 1;
        Some(Filled {
            pipe: Some(pipe),
            left: 0,
            cut: false,
        })
    }

    fn take_back(&mut self, pipe: Option<Pipe>, empty: bool) {
        self.lent -= 1;
        if empty && self.idle.len() < IDLE_MAX {
            self.idle.extend(pipe);
        }
    }
}

/// Bytes in a pipe; the pipe goes back to its worker when they have gone.
#[derive(Debug)]
pub(super) struct Filled {
    /// `Some` until it is dropped.
    pipe: Option<Pipe>,
    left: usize,
    /// More is in the pipe than is left to go.
    cut: bool,
}

/// What became of an attempt to fill a pipe.
enum Taken {
    Bytes(Filled),
    /// The socket has said its last.
    End,
    /// There is no pipe.
    Nothing,
}

impl Filled {
    /// Bytes that have not gone.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Nothing goes beyond the next `len` bytes.
    pub(super) fn cut(&mut self, len: usize) {
        self.cut |= len < self.left;
        self.left = self.left.min(len);
    }

    /// Moves some of what is left to a socket; returns how much.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
    ) -> Poll<io::Result<usize>> {
        let Some(pipe) = &self.pipe else {
            return Poll::Ready(Ok(0));
        };
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_io(Interest::WRITABLE, || pipe.drain(socket, self.left)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(moved) => {
                    self.left -= moved;
                    return Poll::Ready(Ok(moved));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let (pipe, empty) = (self.pipe.take(), self.left == 0 && !self.cut);
        // A worker that ends has no more use for it.
        let _ = PIPES.try_with(|pipes| pipes.borrow_mut().take_back(pipe, empty));
    }
}

/// Takes up to `run` bytes of a socket into a pipe, behind `head`.
fn poll_fill(
    cx: &mut Context<'_>,
    socket: &TcpStream,
    head: &[u8],
    run: usize,
) -> Poll<io::Result<Taken>> {
    loop {
        ready!(socket.poll_read_ready(cx))?;
        let Some(mut filled) = PIPES.with_borrow_mut(Pipes::lend) else {
            return Poll::Ready(Ok(Taken::Nothing));
        };
        let Some(pipe) = &filled.pipe else {
            return Poll::Ready(Ok(Taken::Nothing));
        };
        if !head.is_empty() {
            // A pipe with a head that goes another way is not lent again.
            filled.left = head.len();
            if pipe.write(head).ok() != Some(head.len()) {
                return Poll::Ready(Ok(Taken::Nothing));
            }
        }
        match socket.try_io(Interest::READABLE, || pipe.fill(socket, run.min(FILL_MAX))) {
            Ok(0) => return Poll::Ready(Ok(Taken::End)),
            Ok(moved) => {
                filled.left += moved;
                return Poll::Ready(Ok(Taken::Bytes(filled)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !head.is_empty() {
                    return Poll::Ready(Ok(Taken::Bytes(filled)));
                }
            }
            Err(error) if means_unsupported(&error) => {
                PIPES.with_borrow_mut(|pipes| pipes.unsupported = true);
                return Poll::Ready(Ok(Taken::Nothing));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Whether a refusal is about the call and not about the connection: sandboxes
/// answer so.
fn means_unsupported(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
    )
}

/// What a session knows of its large runs.
#[derive(Default)]
pub(super) struct Runs {
    /// Both sides are plaintext: what is sealed has to be seen.
    possible: bool,
    /// Bytes moved in this poll.
    moved: usize,
    /// The last frames of a side were large: the next ones may be, and what
    /// is read of them is copied.
    from_client: bool,
    from_upstream: bool,
}

impl Runs {
    /// What two sides may have of them.
    pub(super) fn between(client: &Stream, upstream: &Stream) -> Self {
        Self {
            possible: client.plain().is_some() && upstream.plain().is_some(),
            ..Self::default()
        }
    }

    /// Others of the worker have had their turn.
    pub(super) fn begin(&mut self) {
        self.moved = 0;
    }

    /// Whether it is the others' turn; then this session is called again.
    fn over(&self, cx: &Context<'_>) -> bool {
        let over = self.moved >= TURN_MAX;
        if over {
            cx.waker().wake_by_ref();
        }
        over
    }
}

impl Session {
    /// Whether what comes next of the client may go by a pipe.
    pub(super) fn client_run_begins(&self) -> bool {
        self.request.begins_run() && self.runs.possible
    }

    /// The same of the broker.
    pub(super) fn upstream_run_begins(&self) -> bool {
        self.reply.begins_run() && self.runs.possible
    }

    /// Moves what is unseen of a request, which is a run. `None` where bytes have to be read.
    pub(super) fn splice_client(&mut self, cx: &mut Context<'_>) -> Result<Option<bool>, End> {
        if self.shared.memory.is_scarce() {
            return Ok(None);
        }
        let run = self.request.unseen();
        let waits = !self.inbox.is_empty() || self.blocked.is_some() || self.client_eof;
        let head = self.to_upstream.head();
        let Some(head) = head.filter(|_| !waits) else {
            return Ok(None);
        };
        if self.runs.over(cx) {
            return Ok(Some(false));
        }
        let filled = match poll_fill(cx, self.client.tcp(), head, run) {
            Poll::Pending => return Ok(Some(false)),
            Poll::Ready(Err(error)) => return Err(End::ClientLost(error)),
            Poll::Ready(Ok(Taken::Nothing)) => return Ok(None),
            Poll::Ready(Ok(Taken::End)) => {
                self.client_eof = true;
                return Ok(Some(true));
            }
            Poll::Ready(Ok(Taken::Bytes(filled))) => filled,
        };
        let moved = filled.left() - head.len();
        self.runs.from_client |= moved > 0;
        self.pace.came(moved, self.now);
        self.moved_unseen(Side::Client, moved);
        self.request.passed(moved);
        self.to_upstream.push_piped(filled);
        // Sends it, and sees whether the frame has ended.
        self.take_requests(cx, &[])?;
        Ok(Some(true))
    }

    /// Moves what is unseen of a response, which is a run. `None` where bytes have to be read.
    pub(super) fn splice_upstream(&mut self, cx: &mut Context<'_>) -> Result<Option<bool>, End> {
        if self.shared.memory.is_scarce() {
            return Ok(None);
        }
        let run = self.reply.unseen();
        let waits = !self.mail.is_empty() || self.orphan.is_some();
        let head = self.to_client.head();
        let Some(head) = head.filter(|_| !waits) else {
            return Ok(None);
        };
        if self.runs.over(cx) {
            return Ok(Some(false));
        }
        let filled = match poll_fill(cx, self.upstream.tcp(), head, run) {
            Poll::Pending => return Ok(Some(false)),
            Poll::Ready(Err(error)) => return Err(End::UpstreamLost(error)),
            Poll::Ready(Ok(Taken::Nothing)) => return Ok(None),
            Poll::Ready(Ok(Taken::End)) => return Err(End::UpstreamClosed),
            Poll::Ready(Ok(Taken::Bytes(filled))) => filled,
        };
        let moved = filled.left() - head.len();
        if moved > 0 {
            self.runs.from_upstream = true;
            self.heard = self.now;
        }
        self.moved_unseen(Side::Upstream, moved);
        self.reply.passed(moved);
        self.to_client.push_piped(filled);
        self.take_replies(cx, &[])?;
        Ok(Some(true))
    }

    fn moved_unseen(&mut self, from: Side, bytes: usize) {
        self.runs.moved += bytes;
        self.tally.received(from, bytes);
        let spliced = self.shared.metrics.spliced_bytes.with(from);
        spliced.inc_by(bytes as u64);
    }

    /// How much to read of the client: not much more than the head of the
    /// next frame where that may be a large one.
    pub(super) fn client_room(&self) -> usize {
        // Nor is a held request looked at for every few bytes behind it.
        if !self.runs.from_client || self.blocked.is_some() {
            return usize::MAX;
        }
        let carried = self.inbox.len();
        let head = self.inbox_wanted.saturating_sub(carried).max(HEAD_READ);
        self.request.unseen() + head
    }

    /// The same of the broker.
    pub(super) fn upstream_room(&self) -> usize {
        if !self.runs.from_upstream {
            return usize::MAX;
        }
        let carried = self.mail.len();
        let head = self.mail_wanted.saturating_sub(carried).max(HEAD_READ);
        self.reply.unseen() + head
    }

    /// Whether enough of a large request has come to announce it to the
    /// broker, although most of that has not been read: it need not be copied.
    pub(super) fn may_begin(&self, read: &[u8], len: usize) -> bool {
        let known = self.runs.from_client && read.len() >= HEAD_READ / 2;
        let large = len.saturating_sub(read.len()) >= RUN_MIN;
        known
            && large
            && read.starts_with(&api::PRODUCE.to_be_bytes())
            && read.len() + system::waiting(self.client.tcp()) >= len.min(FIRST_PART)
    }

    /// Frames of the client that fill the room are no large ones.
    pub(super) fn client_filled_room(&mut self) {
        let waits_for_more = self.inbox_wanted >= FIRST_PART;
        self.runs.from_client &= self.request.begins_run() || waits_for_more;
    }

    /// The same of the broker.
    pub(super) fn upstream_filled_room(&mut self) {
        self.runs.from_upstream &= self.reply.begins_run();
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::io::{ioctl_fionread, retry_on_intr, write};
    use rustix::pipe::{
        PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
    };
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use tokio::net::TcpStream;

    /// Both ends of a pipe.
    #[derive(Debug)]
    pub(super) struct Pipe {
        exit: OwnedFd,
        entry: OwnedFd,
    }

    impl Pipe {
        /// A pipe of `size`, or what the system gives, but no less than `least`.
        pub(super) fn new(size: usize, least: usize) -> Option<Self> {
            let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
            let (exit, entry) = pipe_with(flags).ok()?;
            // Refused above fs.pipe-max-size, and beyond what a user may have.
            let _ = fcntl_setpipe_size(&entry, size);
            let capacity = fcntl_getpipe_size(&entry).ok()?;
            (capacity >= least).then_some(Self { exit, entry })
        }

        pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(retry_on_intr(|| write(&self.entry, bytes))?)
        }

        pub(super) fn fill(&self, from: &TcpStream, len: usize) -> io::Result<usize> {
            moved(from, &self.entry, len)
        }

        pub(super) fn drain(&self, to: &TcpStream, len: usize) -> io::Result<usize> {
            moved(&self.exit, to, len)
        }
    }

    /// Bytes that a socket has received and nobody has read.
    pub(super) fn waiting(socket: &TcpStream) -> usize {
        let waiting = ioctl_fionread(socket).unwrap_or(0);
        usize::try_from(waiting).unwrap_or(usize::MAX)
    }

    fn moved(from: impl AsFd, to: impl AsFd, len: usize) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = retry_on_intr(|| splice(&from, None, &to, None, len, flags))?;
        Ok(moved)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use tokio::net::TcpStream;

    /// There is none.
    #[derive(Debug)]
    pub(super) enum Pipe {}

    impl Pipe {
        pub(super) fn new(_: usize, _: usize) -> Option<Self> {
            None
        }

        pub(super) fn write(&self, _: &[u8]) -> io::Result<usize> {
            match *self {}
        }

        pub(super) fn fill(&self, _: &TcpStream, _: usize) -> io::Result<usize> {
            match *self {}
        }

        pub(super) fn drain(&self, _: &TcpStream, _: usize) -> io::Result<usize> {
            match *self {}
        }
    }

    /// Nobody asks where there are no pipes.
    pub(super) fn waiting(_: &TcpStream) -> usize {
        0
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Both ends of a connection.
    pub(in crate::session) async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    async fn taken(from: &TcpStream, head: &[u8], run: usize) -> Taken {
        poll_fn(|cx| poll_fill(cx, from, head, run)).await.unwrap()
    }

    /// These bytes in a pipe.
    pub(in crate::session) async fn filled(bytes: &[u8]) -> Filled {
        let (mut peer, socket) = connected().await;
        peer.write_all(bytes).await.unwrap();
        let Taken::Bytes(filled) = taken(&socket, &[], bytes.len()).await else {
            panic!("there is a pipe");
        };
        assert_eq!(filled.left(), bytes.len());
        filled
    }

    /// Empties a pipe; gives what was in it.
    async fn drained(mut filled: Filled) -> Vec<u8> {
        let (mut near, far) = connected().await;
        while filled.left() > 0 {
            poll_fn(|cx| filled.poll_drain(cx, &far)).await.unwrap();
        }
        drop((filled, far));
        let mut bytes = Vec::new();
        near.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    /// Pipes that lie ready, and pipes that are lent.
    fn pipes() -> (usize, usize) {
        PIPES.with_borrow(|pipes| (pipes.idle.len(), pipes.lent))
    }

    #[tokio::test]
    async fn a_pipe_is_kept_when_it_is_empty_and_closed_when_it_is_not() {
        let first = filled(b"first").await;
        let second = filled(b"second").await;
        assert_eq!(pipes(), (0, 2));
        assert_eq!(drained(first).await, b"first");
        assert_eq!(pipes(), (1, 1));
        drop(second);
        assert_eq!(pipes(), (1, 0));
        assert_eq!(drained(filled(b"third").await).await, b"third");
        assert_eq!(pipes(), (1, 0));
    }

    #[tokio::test]
    async fn only_a_few_empty_pipes_are_kept() {
        let mut all = Vec::new();
        for _ in 0..2 * IDLE_MAX {
            all.push(filled(b"bytes").await);
        }
        for filled in all {
            drained(filled).await;
        }
        assert_eq!(pipes(), (IDLE_MAX, 0));
    }

    #[tokio::test]
    async fn a_head_goes_before_its_run_and_no_more_than_the_run_is_taken() {
        let (mut peer, mut socket) = connected().await;
        peer.write_all(b"a runand more").await.unwrap();
        let Taken::Bytes(filled) = taken(&socket, b"head of ", 5).await else {
            panic!("there is a pipe");
        };
        assert_eq!(drained(filled).await, b"head of a run");
        let mut rest = [0; 8];
        socket.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"and more");
    }

    /// It must not wait for a run that stays out.
    #[tokio::test]
    async fn a_head_goes_alone_where_nothing_of_its_run_has_come() {
        let (mut peer, mut socket) = connected().await;
        peer.write_all(b"x").await.unwrap();
        socket.read_exact(&mut [0]).await.unwrap();
        // It passes for readable until a read finds nothing.
        let Taken::Bytes(filled) = taken(&socket, b"head", 5).await else {
            panic!("there is a pipe");
        };
        assert_eq!(drained(filled).await, b"head");
    }

    #[tokio::test]
    async fn the_end_of_a_socket_is_told() {
        let (peer, socket) = connected().await;
        drop(peer);
        assert!(matches!(taken(&socket, &[], 5).await, Taken::End));
        assert_eq!(pipes(), (1, 0));
        assert!(matches!(taken(&socket, b"head", 5).await, Taken::End));
        assert_eq!(pipes(), (0, 0), "a head is in it");
    }

    #[tokio::test]
    async fn without_a_pipe_nothing_is_taken() {
        let (mut peer, mut socket) = connected().await;
        peer.write_all(b"bytes").await.unwrap();
        PIPES.with_borrow_mut(|pipes| pipes.lent = PIPES_MAX);
        assert!(matches!(taken(&socket, b"head", 5).await, Taken::Nothing));
        PIPES.with_borrow_mut(|pipes| {
            pipes.lent = 0;
            pipes.unsupported = true;
        });
        assert!(matches!(taken(&socket, b"head", 5).await, Taken::Nothing));
        let mut bytes = [0; 5];
        socket.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"bytes");
    }

    #[test]
    fn a_system_that_gives_small_pipes_gives_none() {
        assert!(Pipe::new(64 * 1024, 64 * 1024).is_some());
        assert!(Pipe::new(4096, 64 * 1024).is_none());
    }
}
