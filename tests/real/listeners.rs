//! Where a relay takes clients, and whom it connects them with.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The listeners of a relay; they end when dropped.
#[derive(Default)]
pub(crate) struct Listeners {
    ended: Arc<AtomicBool>,
    threads: Vec<(SocketAddr, JoinHandle<()>)>,
}

impl Listeners {
    /// Connects clients at `from` with `to`, and has `relay` do the rest. The
    /// number that it gets is another one for each connection.
    pub(crate) fn add(
        &mut self,
        from: &str,
        to: &str,
        relay: impl Fn(u64, TcpStream, TcpStream) + Send + 'static,
    ) {
        let listener = TcpListener::bind(from)
            .unwrap_or_else(|error| panic!("cannot listen on {from}: {error}"));
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let (ended, to) = (self.ended.clone(), to.to_owned());
        let thread = std::thread::spawn(move || {
            for id in 1.. {
                let (near, _) = listener.accept().expect("a listener accepts");
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // Nobody there: the client is turned away, as it would be without a relay.
                // An end in good order before a first answer tells some clients more than that.
                let Ok(far) = TcpStream::connect(&to) else {
                    let at_once = Some(std::time::Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(&near, at_once)
                        .expect("a socket takes linger");
                    continue;
                };
                near.set_nodelay(true).expect("a socket takes nodelay");
                far.set_nodelay(true).expect("a socket takes nodelay");
                relay(u64::from(address.port()) << 32 | id, near, far);
            }
        });
        self.threads.push((address, thread));
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for (address, thread) in self.threads.drain(..) {
            drop(TcpStream::connect(address));
            // A relay that failed has said so; the test fails by its counts.
            let _ = thread.join();
        }
    }
}
