//! SASL passes through: bare tokens after SaslHandshake v0, framed ones after v1.

use kafka_protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_protocol::protocol::StrBytes;

use crate::world::{Pair, World};

/// SaslHandshake v0 for a mechanism, accepted by the broker.
fn handshake(pair: &mut Pair, mechanism: &str) {
    let name = StrBytes::from_string(mechanism.to_owned());
    let request = SaslHandshakeRequest::default().with_mechanism(name);
    let correlation = pair.client.send(0, &request).unwrap();
    let asked = pair.broker.next();
    assert_eq!(asked.key, 17);
    pair.broker
        .answer(&asked, &SaslHandshakeResponse::default());
    let answer = pair
        .client
        .receive::<SaslHandshakeRequest>(0, correlation)
        .unwrap();
    assert_eq!(answer.error_code, 0);
}

/// A token and its answer pass without a header.
fn round(pair: &mut Pair, token: &[u8], answer: &[u8]) {
    let mut frame = u32::try_from(token.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(token);
    pair.client.send_raw(&frame).unwrap();
    assert_eq!(pair.broker.next_bare(), token);
    let mut frame = u32::try_from(answer.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(answer);
    pair.broker.send(&frame);
    assert_eq!(pair.client.receive_frame().unwrap(), answer);
}

#[test]
fn plain_is_one_bare_round_with_an_empty_answer() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    handshake(&mut pair, "PLAIN");
    round(&mut pair, b"\0alice\0secret", b"");
    pair.barrier();
    pair.barrier();
}

#[test]
fn scram_is_two_bare_rounds() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    handshake(&mut pair, "SCRAM-SHA-512");
    round(
        &mut pair,
        b"n,,n=alice,r=nonce",
        b"r=nonceX,s=c2FsdA==,i=4096",
    );
    round(&mut pair, b"c=biws,r=nonceX,p=cHJvb2Y=", b"v=c2ln");
    pair.barrier();
}

/// Shorter than any request, and empty: both are tokens here.
#[test]
fn a_bare_token_may_be_short() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    handshake(&mut pair, "SCRAM-SHA-256");
    round(&mut pair, b"n", b"x");
    round(&mut pair, b"", b"");
    pair.barrier();
}

/// GSSAPI has as many rounds as it likes, its last answer being the security layer.
#[test]
fn tokens_of_an_unknown_mechanism_end_where_a_request_comes() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    handshake(&mut pair, "GSSAPI");
    round(&mut pair, b"\x60\x82\x01\x02ticket", b"\x60answer");
    round(&mut pair, b"", b"\x05\x04layer");
    round(&mut pair, b"\x05\x04\x05\xff\0\0\0\0chosen", b"");
    let correlation = pair
        .client
        .send(0, &SaslHandshakeRequest::default())
        .unwrap();
    let asked = pair.broker.next();
    assert_eq!((asked.key, asked.correlation), (17, correlation));
}

#[test]
fn the_user_of_a_connection_is_shown_once_it_is_proven() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let user = || world.connection()["user"].clone();
    handshake(&mut pair, "PLAIN");
    assert!(user().is_null());
    round(&mut pair, b"\0alice\0secret", b"");
    assert_eq!(user(), "alice");
    let output = world.hapax.output();
    assert!(!output.contains("secret"), "{output}");
}
