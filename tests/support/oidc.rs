//! Tokens as Kafka's own unsecured login makes them, which nobody has signed,
//! and an endpoint that gives them.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test binary that includes this code uses its own part of it"
)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// One of this user that is good for so long.
pub fn token(user: &str, lifetime: Duration) -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let (issued, ends) = (now.as_secs(), (now + lifetime).as_secs());
    let claims = format!(r#"{{"sub":"{user}","iat":{issued},"exp":{ends}}}"#);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.", part(r#"{"alg":"none"}"#), part(&claims))
}

/// An endpoint that gives whoever asks by client credentials such a token;
/// its address.
pub fn endpoint(user: &str, lifetime: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let user = user.to_owned();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut some = [0; 4096];
            while !request.ends_with(b"grant_type=client_credentials") {
                match stream.read(&mut some) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend(&some[..read]),
                }
            }
            let (token, seconds) = (token(&user, lifetime), lifetime.as_secs());
            let body = format!(r#"{{"access_token":"{token}","expires_in":{seconds}}}"#);
            let length = body.len();
            // Who has gone needs none.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}
