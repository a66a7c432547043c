//! What every connection is set to, of a client or to a broker.

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// How often TCP asks a silent peer before it gives it up.
const QUESTIONS: u32 = 4;
/// The longest silence that systems can be told.
const SILENCE_MAX: Duration = Duration::from_secs(32_767);

/// Prepares a new connection; after a silence of `keep_alive` TCP asks whether
/// the peer is still there.
///
/// # Errors
///
/// What the system does not do. The connection can be used all the same.
pub fn prepare(stream: &TcpStream, keep_alive: Duration) -> io::Result<()> {
    // Kafka frames are written whole: Nagle would only delay them.
    stream.set_nodelay(true)?;
    keep_alive_after(stream, keep_alive)
}

/// After a silence of `idle` TCP asks whether the peer is still there, a few
/// times; one that does not answer is lost. It never asks where `idle` is zero.
///
/// # Errors
///
/// What the system does not do.
pub fn keep_alive_after(stream: &TcpStream, idle: Duration) -> io::Result<()> {
    if idle.is_zero() {
        return Ok(sockopt::set_socket_keepalive(stream, false)?);
    }
    let seconds = |span: Duration| {
        let rounded = Duration::from_secs(span.as_secs());
        rounded.clamp(Duration::from_secs(1), SILENCE_MAX)
    };
    sockopt::set_tcp_keepidle(stream, seconds(idle))?;
    sockopt::set_tcp_keepintvl(stream, seconds(idle / QUESTIONS))?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_silent_peer_is_asked_for_as_often_as_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let check = |idle, expected: Option<(u64, u64)>| {
            prepare(&stream, idle).unwrap();
            let on = sockopt::socket_keepalive(&stream).unwrap();
            let set = on.then(|| {
                let idle = sockopt::tcp_keepidle(&stream).unwrap();
                let interval = sockopt::tcp_keepintvl(&stream).unwrap();
                (idle.as_secs(), interval.as_secs())
            });
            assert_eq!(set, expected, "{idle:?}");
            assert!(stream.nodelay().unwrap());
        };
        check(Duration::from_secs(60), Some((60, 15)));
        check(Duration::from_millis(300), Some((1, 1)));
        check(Duration::from_secs(86_400), Some((32_767, 21_600)));
        check(Duration::ZERO, None);
    }
}
