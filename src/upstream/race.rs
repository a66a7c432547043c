//! Several addresses of a broker, tried so that one which does not answer hides
//! none of the others.
//!
//! ```text
//! names: a, b      a resolves to a1, a2
//! a1 -----------------------------------------------> no answer in its time
//!    |- PACE -> a2 --> refused
//!                       |-> b resolves to b1 --> connected: this is the one
//! ```
//!
//! The next one is tried as soon as one has failed, or has not answered for a
//! while; the one that answers first wins (RFC 8305 calls this happy eyeballs).
//! Names are looked up when their turn comes, so each time anew.

use super::Own;
use super::dial::{DialError, connect, resolve};
use crate::config::HostPort;
use crate::timers::timeout;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an attempt has before the next one begins beside it.
const PACE: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 32;

/// What is tried.
enum Candidate {
    Name(HostPort),
    Address(HostPort, SocketAddr),
}

/// What came of that.
enum Tried {
    Resolved(HostPort, Vec<SocketAddr>),
    Connected(HostPort, TcpStream),
    Failed(DialError),
}

type Attempt<'a> = Pin<Box<dyn Future<Output = Tried> + Send + 'a>>;

/// The attempts at one target.
pub(super) struct Race<'a> {
    waiting: VecDeque<Candidate>,
    running: Vec<Attempt<'a>>,
    /// How long each may take.
    patience: Duration,
    own: &'a Own,
}

impl<'a> Race<'a> {
    pub(super) fn new(
        names: impl IntoIterator<Item = HostPort>,
        patience: Duration,
        own: &'a Own,
    ) -> Self {
        Self {
            waiting: names.into_iter().map(Candidate::Name).collect(),
            running: Vec::new(),
            patience,
            own,
        }
    }

    /// The next connection that there is, or the next failure; `None` once all
    /// have been tried. Whoever can use a connection stops here.
    pub(super) async fn next(&mut self) -> Option<Result<(HostPort, TcpStream), DialError>> {
        loop {
            if self.running.is_empty() && !self.begin() {
                return None;
            }
            match self.finished().await {
                None => {
                    self.begin();
                }
                Some(Tried::Resolved(name, addresses)) => {
                    let addresses = addresses.into_iter().take(ADDRESSES_MAX).rev();
                    for address in addresses {
                        let address = Candidate::Address(name.clone(), address);
                        self.waiting.push_front(address);
                    }
                    self.begin();
                }
                Some(Tried::Connected(name, stream)) => return Some(Ok((name, stream))),
                Some(Tried::Failed(error)) => {
                    self.begin();
                    return Some(Err(error));
                }
            }
        }
    }

    /// Begins with the next candidate, where there is one.
    fn begin(&mut self) -> bool {
        let (patience, own) = (self.patience, self.own);
        let attempt: Attempt<'a> = match self.waiting.pop_front() {
            None => return false,
            Some(Candidate::Name(name)) => Box::pin(async move {
                match resolve(&name, patience).await {
                    Ok(addresses) => Tried::Resolved(name, addresses),
                    Err(error) => Tried::Failed(error),
                }
            }),
            Some(Candidate::Address(name, address)) => Box::pin(async move {
                match connect(&name, address, patience, own).await {
                    Ok(stream) => Tried::Connected(name, stream),
                    Err(error) => Tried::Failed(error),
                }
            }),
        };
        self.running.push(attempt);
        true
    }

    /// What one of the running attempts has come to; `None` where it is time
    /// for another one beside them.
    async fn finished(&mut self) -> Option<Tried> {
        let running = &mut self.running;
        let finished = poll_fn(|cx| poll_first(running, cx));
        if self.waiting.is_empty() {
            return Some(finished.await);
        }
        timeout(PACE, finished).await.ok()
    }
}

fn poll_first(running: &mut Vec<Attempt<'_>>, cx: &mut Context<'_>) -> Poll<Tried> {
    for at in 0..running.len() {
        if let Poll::Ready(tried) = running[at].as_mut().poll(cx) {
            drop(running.swap_remove(at));
            return Poll::Ready(tried);
        }
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener as StdListener, TcpStream as StdStream};
    use tokio::net::TcpListener;

    /// An address that swallows whoever connects, as a dead machine does.
    struct BlackHole {
        address: SocketAddr,
        _full: (StdListener, StdStream),
    }

    impl BlackHole {
        fn new() -> Self {
            let listener = StdListener::bind("127.0.0.1:0").unwrap();
            rustix::net::listen(&listener, 0).unwrap();
            let address = listener.local_addr().unwrap();
            // One waits to be accepted; the next ones are not answered.
            let waits = StdStream::connect(address).unwrap();
            Self {
                address,
                _full: (listener, waits),
            }
        }
    }

    async fn live(ip: impl Into<std::net::IpAddr>) -> TcpListener {
        TcpListener::bind((ip.into(), 0)).await.unwrap()
    }

    async fn dead() -> SocketAddr {
        live(Ipv4Addr::LOCALHOST).await.local_addr().unwrap()
    }

    /// A race among the addresses of one name, none of which may take long.
    fn race(own: &Own, addresses: Vec<SocketAddr>) -> Race<'_> {
        let name: HostPort = "several:9092".parse().unwrap();
        let patience = Duration::from_secs(3600);
        let mut race = Race::new([], patience, own);
        let addresses = addresses.into_iter();
        race.waiting = addresses
            .map(|address| Candidate::Address(name.clone(), address))
            .collect();
        race
    }

    /// The address that wins, and how many failed before.
    async fn won(addresses: Vec<SocketAddr>) -> (Option<SocketAddr>, usize) {
        let own = Own::new(Ipv4Addr::LOCALHOST.into(), []);
        let mut race = race(&own, addresses);
        let mut failed = 0;
        while let Some(tried) = race.next().await {
            match tried {
                Ok((_, stream)) => return (Some(stream.peer_addr().unwrap()), failed),
                Err(_) => failed += 1,
            }
        }
        (None, failed)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_hides_no_other() {
        let (hole, other) = (BlackHole::new(), BlackHole::new());
        let there = live(Ipv4Addr::LOCALHOST).await;
        let there = there.local_addr().unwrap();
        let all = vec![hole.address, dead().await, other.address, there];
        let (winner, failed) = won(all).await;
        assert_eq!(winner, Some(there));
        assert_eq!(failed, 1, "the one that refused");
    }

    #[tokio::test]
    async fn both_families_are_tried() {
        let four = live(Ipv4Addr::LOCALHOST).await;
        let six = live(Ipv6Addr::LOCALHOST).await;
        let (four, six) = (four.local_addr().unwrap(), six.local_addr().unwrap());
        let dead_six = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), dead().await.port());
        assert_eq!(won(vec![dead().await, six]).await, (Some(six), 1));
        assert_eq!(won(vec![dead_six, four]).await, (Some(four), 1));
        assert_eq!(won(vec![six, four]).await, (Some(six), 0), "in their order");
    }

    #[tokio::test]
    async fn what_cannot_be_used_gives_way_to_the_others() {
        let own = Own::new(Ipv4Addr::LOCALHOST.into(), []);
        let (a, b) = (
            live(Ipv4Addr::LOCALHOST).await,
            live(Ipv4Addr::LOCALHOST).await,
        );
        let all = vec![a.local_addr().unwrap(), b.local_addr().unwrap()];
        let mut race = race(&own, all);
        assert!(matches!(race.next().await, Some(Ok(_))));
        assert!(matches!(race.next().await, Some(Ok(_))));
        assert!(race.next().await.is_none());
    }

    #[tokio::test]
    async fn the_next_name_is_looked_up_where_one_leads_nowhere() {
        let own = Own::new(Ipv4Addr::LOCALHOST.into(), []);
        let there = live(Ipv4Addr::LOCALHOST).await;
        let names = [dead().await, there.local_addr().unwrap()];
        let names = names.map(|address| format!("localhost:{}", address.port()));
        let names = names.iter().map(|name| name.parse().unwrap());
        let mut race = Race::new(names, Duration::from_secs(60), &own);
        let mut reached = None;
        while let (None, Some(tried)) = (&reached, race.next().await) {
            reached = tried.ok();
        }
        let (name, stream) = reached.expect("the second name is reached");
        assert_eq!(name.port, there.local_addr().unwrap().port());
        assert_eq!(stream.peer_addr().unwrap().port(), name.port);
    }
}
