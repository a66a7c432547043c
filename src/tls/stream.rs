//! A connection, in plaintext or in TLS.
//!
//! What is sealed (encrypted) is read into a buffer that the connections of a
//! thread share and opened from there, so that an idle one keeps next to
//! nothing, and a read of many records is one system call:
//!
//! ```text
//! socket --> SEALED (shared) --> rustls --> the caller's buffer
//! socket <-- sealed records (at most 64 KiB) <-- rustls <-- the caller's bytes
//! ```

use super::fault::{HandshakeError, Peer, Reason};
use rustls::{Connection, ProtocolVersion};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What is read of a connection at once.
const SEALED_MAX: usize = 128 * 1024;
/// The least that is worth a read.
const SEALED_MIN: usize = 4 * 1024;
/// Enough to see by what a peer begins.
const FIRST: usize = 5;
/// The first byte of a TLS record: a handshake, or an alert.
const RECORDS: [u8; 2] = [0x16, 0x15];

thread_local! {
    static SEALED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection to a client or to a broker.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// In TLS.
    Tls(Box<Secured>),
}

/// A connection in TLS.
#[derive(Debug)]
pub struct Secured {
    tcp: TcpStream,
    tls: Connection,
    peer: Peer,
    /// What has been read of the socket and not been given to rustls.
    unopened: Vec<u8>,
    /// What has been opened before somebody asked for it.
    ahead: Vec<u8>,
    /// What ended the connection, told once all that came before it is read.
    failed: Option<rustls::Error>,
}

impl Stream {
    /// The socket.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(secured) => &secured.tcp,
        }
    }

    /// The socket, where its bytes are those of the connection.
    #[must_use]
    pub fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Tls(_) => None,
        }
    }

    /// Whether bytes that were taken have yet to reach the socket:
    /// [`AsyncWrite::poll_flush`] sends them.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(secured) => secured.tls.wants_write(),
        }
    }

    /// Waits until there is something to read, or nothing any more: whether
    /// the former.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub async fn readable(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(tcp) => Ok(tcp.peek(&mut [0]).await? > 0),
            Self::Tls(secured) => secured.readable().await,
        }
    }

    /// Says that no more will be sent, while answers are still awaited.
    ///
    /// TLS 1.2 has no such thing: whoever hears the end of the other side
    /// drops what it had to say. There the peer hears of it at the very end.
    pub fn poll_half_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(secured) if secured.is_1_2() => Poll::Ready(Ok(())),
            _ => Pin::new(self).poll_shutdown(cx),
        }
    }
}

// Plaintext costs a comparison: what TLS does is kept out of the way.
impl AsyncRead for Stream {
    #[inline(always)]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(secured) => secured.poll_read_into(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline(always)]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(secured) => secured.poll_write(cx, bytes),
        }
    }

    #[inline(always)]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(secured) => secured.poll_send(cx),
        }
    }

    /// Says goodbye: all that was taken is sent, and no more will be.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(secured) => {
                // Only the first one is sent.
                secured.tls.send_close_notify();
                ready!(secured.poll_send(cx))?;
                Pin::new(&mut secured.tcp).poll_shutdown(cx)
            }
        }
    }
}

impl Secured {
    pub(super) fn new(tcp: TcpStream, tls: Connection, peer: Peer) -> Self {
        Self {
            tcp,
            tls,
            peer,
            unopened: Vec::new(),
            ahead: Vec::new(),
            failed: None,
        }
    }

    /// Agrees with the peer on how to speak, and who it is.
    pub(super) async fn shake_hands(mut self) -> Result<Stream, HandshakeError> {
        let mut first = Vec::new();
        let shaken = poll_fn(|cx| self.poll_handshake(cx, &mut first)).await;
        let not_tls = first.first().is_some_and(|byte| !RECORDS.contains(byte));
        match shaken {
            Ok(()) => Ok(Stream::Tls(Box::new(self))),
            Err(_) if not_tls => Err(self.because(Reason::NotTls)),
            Err(reason) => Err(self.because(reason)),
        }
    }

    fn because(&self, reason: Reason) -> HandshakeError {
        HandshakeError::new(self.peer.clone(), reason)
    }

    fn is_1_2(&self) -> bool {
        self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_2)
    }

    fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut Vec<u8>,
    ) -> Poll<Result<(), Reason>> {
        let lost = |error: io::Error| match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => Reason::HungUp,
            _ => Reason::Other(error.to_string()),
        };
        loop {
            // A peer that hangs up may have said why before it did.
            let sent = match self.poll_send(cx) {
                Poll::Ready(sent) => sent,
                Poll::Pending => return Poll::Pending,
            };
            if sent.is_ok() && !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let more = ready!(self.poll_more(cx, SEALED_MIN, |own, sealed| {
                let missing = FIRST.saturating_sub(first.len()).min(sealed.len());
                first.extend_from_slice(&sealed[..missing]);
                own.open(sealed, &mut [])
            }));
            match more {
                Ok(_) => sent.map_err(lost)?,
                Err(error) => {
                    return Poll::Ready(Err(self.failed.take().map_or_else(
                        || match sent {
                            Ok(()) => lost(error),
                            Err(error) => lost(error),
                        },
                        Reason::from,
                    )));
                }
            }
        }
    }

    /// Reads some of the socket into the shared buffer, and gives that to `take`.
    fn poll_more<T>(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        take: impl FnOnce(&mut Self, &[u8]) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        SEALED.with_borrow_mut(|sealed| {
            if sealed.is_empty() {
                sealed.resize(SEALED_MAX, 0);
            }
            let wanted = wanted.clamp(SEALED_MIN, SEALED_MAX);
            let mut buffer = ReadBuf::new(&mut sealed[..wanted]);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                // An end that nobody announced: what was said may be cut.
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(take(self, buffer.filled()))
        })
    }

    /// Opens what is sealed into `out`, as far as that has room; what is left
    /// is kept. Returns how much was opened. During a handshake and with no
    /// room it stops as soon as something could be opened.
    fn open(&mut self, mut sealed: &[u8], out: &mut [u8]) -> io::Result<usize> {
        let shaking = self.tls.is_handshaking();
        let mut opened = 0;
        while !sealed.is_empty() && (opened < out.len() || shaking && self.tls.is_handshaking()) {
            // Nothing that was opened waits in it: it takes what it is given.
            if self.tls.read_tls(&mut sealed)? == 0 {
                // Nothing counts behind the peer's goodbye.
                sealed = &[];
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The peer is told why, if it can be.
                let _ = self.tls.write_tls(&mut Socket(&self.tcp));
                self.failed = Some(error);
                break;
            }
            opened += self.take_opened(&mut out[opened..]);
        }
        if self.failed.is_none() {
            self.unopened.extend_from_slice(sealed);
        }
        match &self.failed {
            Some(_) if opened == 0 => Err(self.failure()),
            _ => Ok(opened),
        }
    }

    /// What TLS has against the connection, as an error that says what to do.
    fn failure(&self) -> io::Error {
        match self.failed.clone() {
            Some(error) => self.because(error.into()).into(),
            None => ErrorKind::UnexpectedEof.into(),
        }
    }

    /// Takes what rustls has opened.
    fn take_opened(&mut self, out: &mut [u8]) -> usize {
        let mut taken = 0;
        while taken < out.len() {
            match self.tls.reader().read(&mut out[taken..]) {
                Ok(0) | Err(_) => break,
                Ok(read) => taken += read,
            }
        }
        taken
    }

    #[inline(never)]
    fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(self.poll_read(cx, buffer.initialize_unfilled()))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if !self.ahead.is_empty() {
            let some = out.len().min(self.ahead.len());
            out[..some].copy_from_slice(&self.ahead[..some]);
            if some == self.ahead.len() {
                self.ahead = Vec::new();
            } else {
                self.ahead.drain(..some);
            }
            return Poll::Ready(Ok(some));
        }
        loop {
            let mut read = self.take_opened(out);
            if read < out.len() && !self.unopened.is_empty() {
                let sealed = std::mem::take(&mut self.unopened);
                read += self.open(&sealed, &mut out[read..])?;
            }
            if read > 0 {
                return Poll::Ready(Ok(read));
            }
            if self.failed.is_some() {
                return Poll::Ready(Err(self.failure()));
            }
            if self.has_ended() {
                return Poll::Ready(Ok(0));
            }
            let wanted = out.len();
            let read = ready!(self.poll_more(cx, wanted, |own, sealed| own.open(sealed, out)))?;
            if read > 0 {
                return Poll::Ready(Ok(read));
            }
            // Not a whole record yet, or one that is for rustls alone: new
            // keys, whose receipt goes with what is written next.
        }
    }

    /// Whether the peer has said goodbye.
    fn has_ended(&mut self) -> bool {
        // It is told by the reader alone once everything before it was read.
        matches!(self.tls.reader().read(&mut [0]), Ok(0))
    }

    async fn readable(&mut self) -> io::Result<bool> {
        let mut ahead = vec![0; SEALED_MIN];
        let read = poll_fn(|cx| self.poll_read(cx, &mut ahead)).await?;
        ahead.truncate(read);
        self.ahead = ahead;
        Ok(read > 0)
    }

    /// Seals bytes and sends them. All of those that are taken are sealed,
    /// even where the socket does not take them all yet: see
    /// [`Stream::holds_back`].
    #[inline(never)]
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let taken = self.tls.writer().write(bytes)?;
        // Some may have left before an error, and what has left must never
        // pass for what has not: whoever flushes hears of the error.
        let _ = self.poll_send(cx);
        Poll::Ready(Ok(taken))
    }

    /// Sends what is sealed. `Ready` when nothing is any more.
    #[inline(never)]
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            ready!(self.tcp.poll_write_ready(cx))?;
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Whoever is left without a goodbye takes the connection for lost. It is not
/// waited for, and not said in the middle of a record.
impl Drop for Secured {
    fn drop(&mut self) {
        if self.tls.is_handshaking() || self.tls.wants_write() || self.failed.is_some() {
            return;
        }
        self.tls.send_close_notify();
        let _ = self.tls.write_tls(&mut Socket(&self.tcp));
    }
}

/// A socket for rustls to write to, as much as it takes at once.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tls;
    use super::*;
    use crate::config::{CertificateFiles, ListenTls, UpstreamTls};
    use crate::tls::Side;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Both ends of a connection in TLS: client, server.
    async fn connected() -> (Stream, Stream) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(path("crt"), own.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path("key"), mode).unwrap();
        let tls = Tls {
            upstream: Some(
                Side::load(UpstreamTls {
                    ca_file: Some(path("crt")),
                    ..UpstreamTls::default()
                })
                .unwrap(),
            ),
            listen: Some(
                Side::load(ListenTls {
                    certificate: CertificateFiles {
                        certificate: path("crt"),
                        key: path("key"),
                    },
                    client_ca_file: None,
                })
                .unwrap(),
            ),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (far, _) = listener.accept().await.unwrap();
        let (client, server) =
            tokio::join!(tls.connect(near.unwrap(), "localhost"), tls.accept(far));
        (client.unwrap(), server.unwrap())
    }

    #[tokio::test]
    async fn bytes_are_the_same_in_reads_of_every_size() {
        let (mut client, mut server) = connected().await;
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
        let sent = bytes.clone();
        let writer = tokio::spawn(async move {
            // Records of many lengths, some larger than what is read.
            for part in sent.chunks(70_001) {
                client.write_all(part).await.unwrap();
                client.flush().await.unwrap();
            }
            client.shutdown().await.unwrap();
            client
        });
        let mut read = Vec::new();
        for size in [1, 3, 4, 100, 5_000, 16_384, 16_385, 200_000]
            .into_iter()
            .cycle()
        {
            let mut buffer = vec![0; size];
            assert!(server.readable().await.is_ok());
            match server.read(&mut buffer).await.unwrap() {
                0 => break,
                some => read.extend_from_slice(&buffer[..some]),
            }
        }
        assert!(read == bytes, "other bytes were read");
        // The other direction is still open.
        let mut client = writer.await.unwrap();
        server.write_all(b"last words").await.unwrap();
        server.flush().await.unwrap();
        let mut heard = [0; 10];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"last words");
    }

    #[tokio::test]
    async fn an_end_without_a_goodbye_is_a_loss() {
        let (client, mut server) = connected().await;
        let Stream::Tls(secured) = &client else {
            panic!("it is TLS");
        };
        rustix::net::shutdown(&secured.tcp, rustix::net::Shutdown::Write).unwrap();
        let lost = server.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::UnexpectedEof);
        let (client, mut server) = connected().await;
        drop(client);
        assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
    }
}
