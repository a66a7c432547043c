//! A relay that loses one acknowledgement: the answer to a Produce request is
//! swallowed and its connection cut, as by a network that fails at the wrong
//! moment. Everything else passes.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Where the relay listens, on the ports of those that it leads to on 127.0.0.1.
pub(crate) const HOST: &str = "127.0.0.2";

const PRODUCE: [u8; 2] = [0, 0];

/// Listens until the process ends.
pub(crate) struct Relay {
    /// How many Produce answers pass before one is lost; negative: all pass.
    left: Arc<AtomicI32>,
}

impl Relay {
    pub(crate) fn start(ports: &[u16]) -> Self {
        let left = Arc::new(AtomicI32::new(-1));
        for port in ports.iter().copied() {
            let listener = TcpListener::bind((HOST, port));
            let listener = listener.unwrap_or_else(|error| panic!("{HOST}:{port}: {error}"));
            let left = left.clone();
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    // Where nobody listens the client is closed, as it would be there.
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                        link(&client, &server, &left);
                    }
                }
            });
        }
        Self { left }
    }

    /// From now on the second answer to a Produce request is lost.
    pub(crate) fn lose_one(&self) {
        self.left.store(1, Ordering::SeqCst);
    }

    /// Whether it was, since [`Self::lose_one`].
    pub(crate) fn has_lost(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }
}

fn link(client: &TcpStream, server: &TcpStream, left: &Arc<AtomicI32>) {
    let produced = Arc::new(Mutex::new(HashSet::new()));
    for (from, to) in [(client, server), (server, client)] {
        let is_answer = std::ptr::eq(from, server);
        let ends = from
            .try_clone()
            .and_then(|from| Ok((from, to.try_clone()?)));
        let (mut from, mut to) = ends.expect("a socket can be shared");
        let (produced, left) = (produced.clone(), left.clone());
        thread::spawn(move || {
            while let Ok(frame) = read_frame(&mut from) {
                let passes = match is_answer {
                    true => !is_lost(&frame, &produced, &left),
                    false => {
                        note(&frame, &produced);
                        true
                    }
                };
                if !passes || to.write_all(&frame).is_err() {
                    break;
                }
            }
            // One of them may be closed already.
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Remembers the correlation id of a Produce request.
fn note(frame: &[u8], produced: &Mutex<HashSet<[u8; 4]>>) {
    if let (Some(PRODUCE), Some(correlation)) = (part(frame, 4), part(frame, 8)) {
        let mut produced = produced.lock().expect("no holder panics");
        produced.insert(correlation);
    }
}

fn is_lost(frame: &[u8], produced: &Mutex<HashSet<[u8; 4]>>, left: &AtomicI32) -> bool {
    let correlation = part(frame, 4).unwrap_or_default();
    let mut produced = produced.lock().expect("no holder panics");
    produced.remove(&correlation) && left.fetch_sub(1, Ordering::SeqCst) == 0
}

fn part<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at + N)?.try_into().ok()
}

/// A frame with its four bytes of length.
fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame)?;
    let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
    frame.resize(4 + usize::try_from(length).expect("a wide usize"), 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(frame)
}
