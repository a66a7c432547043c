//! The broker of `hapax dev`, by its socket: whatever comes, it answers or hangs up, and goes on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use hapax::dev::Upstream;
use tokio::runtime;

use super::choices::Choices;
use super::produce;

/// Far more than anything of it takes, even on a machine that has much else to do; Fetch and JoinGroup may wait, by what
/// the request says.
const PATIENCE: Duration = Duration::from_secs(60);
/// So small that the oldest batches go all the time.
const RETENTION_BYTES: usize = 64 << 10;

/// Requests: an api, a version and a body each.
pub fn requests(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut bytes = Vec::new();
    let mut waits = false;
    while !choices.is_empty() {
        let frame = if choices.rarely(4) {
            let version = choices.of(&[3, 8, 9, 12, 13]);
            produce::framed(version, &produce::made(version, &mut choices)).0
        } else {
            let (key, version) = (choices.byte(), choices.byte() % 16);
            let mut frame = vec![0, key % 64, 0, version, 0, 0, 0, 1, 0, 1, b'c'];
            if choices.byte() & 1 == 1 {
                frame.push(0);
            }
            frame.extend_from_slice(choices.bytes(200));
            waits |= matches!(key % 64, 1 | 11 | 14);
            frame
        };
        bytes.extend(u32::try_from(frame.len()).unwrap().to_be_bytes());
        bytes.extend(frame);
    }
    talk(&bytes, waits);
}

/// Bytes as they are.
pub fn bytes(input: &[u8]) {
    talk(input, true);
}

fn talk(bytes: &[u8], waits: bool) {
    let mut stream = TcpStream::connect(broker()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may hang up before it has read all.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    if !waits {
        let end = stream.read_to_end(&mut Vec::new());
        let hung_up = end
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(
            end.is_ok() || hung_up,
            "neither answered nor closed: {end:?}"
        );
    }
    drop(stream);
    check_alive();
}

/// Another client is served: ApiVersions of version 0.
fn check_alive() {
    let mut stream = TcpStream::connect(broker()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff])
        .unwrap();
    let mut head = [0; 8];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[4..], [0, 0, 0, 9]);
}

/// One broker for the life of the process, on a thread of its own.
fn broker() -> SocketAddr {
    static BROKER: OnceLock<SocketAddr> = OnceLock::new();
    *BROKER.get_or_init(|| {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (upstream, listener) = runtime
            .block_on(Upstream::bind(0, RETENTION_BYTES))
            .unwrap();
        let address = upstream.address();
        thread::spawn(move || runtime.block_on(upstream.serve(listener)));
        address
    })
}
