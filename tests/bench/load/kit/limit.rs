//! The limit: a proxy that only copies bytes.

use std::net::SocketAddr;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;

use super::process::{self, Listener};

const BUFFER: usize = 256 * 1024;

/// Starts one in front of `upstream`.
pub fn start(upstream: SocketAddr) -> Listener {
    Listener::part(&[super::LIMIT, &upstream.to_string()])
}

/// Prints where it listens and copies until it is killed.
pub(super) fn run(upstream: SocketAddr) {
    process::raise_file_limit();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tokio::spawn(forward(client, upstream));
        }
    });
}

async fn forward(mut client: TcpStream, upstream: SocketAddr) {
    let mut broker = TcpStream::connect(upstream).await.unwrap();
    client.set_nodelay(true).unwrap();
    broker.set_nodelay(true).unwrap();
    // A side that hangs up ends the copying; that is no error here.
    let _ = copy_bidirectional_with_sizes(&mut client, &mut broker, BUFFER, BUFFER).await;
}
