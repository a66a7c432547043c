//! A raw client that logs in to hapax: SCRAM as RFC 5802 has it, by code that
//! shares nothing with hapax's own.

use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use ring::{digest, hmac, pbkdf2};

use crate::support::raw::Client;

/// How tokens go: bare after SaslHandshake v0, or in SaslAuthenticate of a version.
#[derive(Clone, Copy, Debug)]
pub enum Framing {
    Bare,
    Framed(i16),
}

/// What came of a login.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    In,
    /// The code and the text of the refusal.
    Refused(i16, String),
    /// The connection ended without one.
    Closed,
}

/// The lines of these users, as `hapax user` makes them.
pub fn users(users: &[(&str, &str)]) -> String {
    users
        .iter()
        .map(|(name, password)| lines(name, password, &[]))
        .collect()
}

/// The lines of one, with more flags.
pub fn lines(name: &str, password: &str, flags: &[&str]) -> String {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["user", name, "--iterations", "4096"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// SaslHandshake.
pub fn handshake(client: &mut Client, version: i16, mechanism: &str) -> SaslHandshakeResponse {
    let name = StrBytes::from_string(mechanism.to_owned());
    let request = SaslHandshakeRequest::default().with_mechanism(name);
    client.call(version, &request).unwrap()
}

/// SaslAuthenticate.
pub fn authenticate(
    client: &mut Client,
    version: i16,
    token: &[u8],
) -> std::io::Result<SaslAuthenticateResponse> {
    let token = bytes::Bytes::copy_from_slice(token);
    let request = SaslAuthenticateRequest::default().with_auth_bytes(token);
    client.call(version, &request)
}

/// A whole login.
pub fn login(
    client: &mut Client,
    framing: Framing,
    mechanism: &str,
    user: &str,
    password: &str,
) -> Outcome {
    let version = match framing {
        Framing::Bare => 0,
        Framing::Framed(_) => 1,
    };
    let offered = handshake(client, version, mechanism);
    assert_eq!(offered.error_code, 0, "{offered:?}");
    if mechanism == "PLAIN" {
        let token = format!("\0{user}\0{password}");
        return token_of(client, framing, token.as_bytes()).map_or_else(|end| end, |_| Outcome::In);
    }
    let bare = format!("n={user},r=nonce-of-a-client");
    let first = format!("n,,{bare}");
    let answer = match token_of(client, framing, first.as_bytes()) {
        Ok(answer) => String::from_utf8(answer).unwrap(),
        Err(end) => return end,
    };
    let (last, signature) = prove(mechanism, password, &bare, &answer);
    match token_of(client, framing, last.as_bytes()) {
        Ok(answer) => {
            assert_eq!(answer, format!("v={signature}").as_bytes());
            Outcome::In
        }
        Err(end) => end,
    }
}

fn token_of(client: &mut Client, framing: Framing, token: &[u8]) -> Result<Vec<u8>, Outcome> {
    match framing {
        Framing::Bare => {
            let mut frame = u32::try_from(token.len()).unwrap().to_be_bytes().to_vec();
            frame.extend(token);
            client.send_raw(&frame).unwrap();
            let answer = client.receive_frame().map_err(|_| Outcome::Closed)?;
            Ok(answer.to_vec())
        }
        Framing::Framed(version) => {
            let answer = authenticate(client, version, token).map_err(|_| Outcome::Closed)?;
            assert_eq!(answer.session_lifetime_ms, 0);
            if answer.error_code != 0 {
                let why = answer.error_message.map(|why| why.to_string());
                return Err(Outcome::Refused(answer.error_code, why.unwrap_or_default()));
            }
            Ok(answer.auth_bytes.to_vec())
        }
    }
}

/// The last message of a client, and the signature that it then expects.
pub fn prove(mechanism: &str, password: &str, bare: &str, answer: &str) -> (String, String) {
    let part = |name: &str| {
        let part = answer.split(',').find_map(|part| part.strip_prefix(name));
        part.unwrap_or_else(|| panic!("no {name} in {answer}"))
            .to_owned()
    };
    let (iterations, salt) = (part("i=").parse().unwrap(), STANDARD.decode(part("s=")));
    let (mac, kdf, hash) = match mechanism {
        "SCRAM-SHA-256" => (
            hmac::HMAC_SHA256,
            pbkdf2::PBKDF2_HMAC_SHA256,
            &digest::SHA256,
        ),
        _ => (
            hmac::HMAC_SHA512,
            pbkdf2::PBKDF2_HMAC_SHA512,
            &digest::SHA512,
        ),
    };
    let signed = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(mac, key), text.as_bytes());
    let mut salted = vec![0; hash.output_len()];
    pbkdf2::derive(
        kdf,
        iterations,
        &salt.unwrap(),
        password.as_bytes(),
        &mut salted,
    );
    let client_key = signed(&salted, "Client Key");
    let stored_key = digest::digest(hash, client_key.as_ref());
    let unproven = format!("c=biws,r={}", part("r="));
    let exchange = format!("{bare},{answer},{unproven}");
    let signature = signed(stored_key.as_ref(), &exchange);
    let pairs = client_key.as_ref().iter().zip(signature.as_ref());
    let proof: Vec<u8> = pairs.map(|(key, signed)| key ^ signed).collect();
    let server_key = signed(&salted, "Server Key");
    let expected = STANDARD.encode(signed(server_key.as_ref(), &exchange));
    (format!("{unproven},p={}", STANDARD.encode(proof)), expected)
}
