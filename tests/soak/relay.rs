//! A relay whose connections can be cut all at once, as by a network that fails.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Connections of one side of hapax, until the process ends.
#[derive(Clone, Default)]
pub(crate) struct Relay(Arc<Mutex<Vec<TcpStream>>>);

impl Relay {
    /// Leads from one address to the other.
    pub(crate) fn lead(&self, from: &str, to: &str) {
        let listener = TcpListener::bind(from).unwrap_or_else(|error| panic!("{from}: {error}"));
        let (relay, to) = (self.clone(), to.to_owned());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let (relay, to) = (relay.clone(), to.clone());
                // A broker that is stopped takes its time.
                spawn(move || {
                    // Where nobody listens the other side is closed, as it would be there.
                    if let Ok(far) = TcpStream::connect(&to) {
                        relay.link(&near, &far);
                    }
                });
            }
        });
    }

    fn link(&self, near: &TcpStream, far: &TcpStream) {
        for socket in [near, far] {
            // Without it every answer waits for a timer.
            let _ = socket.set_nodelay(true);
        }
        let share = |socket: &TcpStream| socket.try_clone().expect("a socket can be shared");
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|socket| socket.peer_addr().is_ok());
        open.push(share(near));
        open.push(share(far));
        drop(open);
        for (mut from, mut to) in [(share(near), share(far)), (share(far), share(near))] {
            spawn(move || {
                let mut bytes = [0; 16 << 10];
                while let Ok(read @ 1..) = from.read(&mut bytes) {
                    if to.write_all(&bytes[..read]).is_err() {
                        break;
                    }
                }
                // One of them may be closed already.
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }

    /// Ends every connection, whatever is on its way. Returns how many there were.
    pub(crate) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for socket in &open {
            let _ = socket.shutdown(Shutdown::Both);
        }
        open.len() / 2
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(128 << 10);
    thread.spawn(work).expect("a thread more");
}
