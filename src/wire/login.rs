//! Logging in to a broker: hapax's own SaslHandshake and SaslAuthenticate
//! requests, and what brokers answer. Walked by hand.
//!
//! ```text
//! SaslAuthenticate response    0, 1            2
//!                              error 2         error 2
//!                              message 2+n     message, compact
//!                              token 4+n       token, compact
//!                              lifetime 8      lifetime 8        (from 1 on)
//!                                              tags
//! ```

use bytes::Bytes;
use std::time::Duration;

use super::cursor::{self, Cursor};
use super::{WireError, api, fetch, header};

/// The version of SaslHandshake after which tokens come in requests; every
/// broker since Kafka 1.0 has it (KIP-152).
pub const HANDSHAKE: i16 = 1;
/// The newest version of SaslAuthenticate that is spoken here.
pub const AUTHENTICATE: i16 = 2;
const FLEXIBLE: i16 = 2;
/// From here on a broker says for how long a login is good (KIP-368).
const WITH_LIFETIME: i16 = 1;

/// The broker has SASL, but not this mechanism.
pub const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
/// The broker wants no SASL here, or not now.
pub const ILLEGAL_SASL_STATE: i16 = 34;

/// A SaslHandshake request that asks for a mechanism.
#[must_use]
pub fn handshake(correlation_id: i32, mechanism: &str) -> Bytes {
    let mut out = fetch::head(api::SASL_HANDSHAKE, HANDSHAKE, correlation_id);
    cursor::put_string(&mut out, false, mechanism.as_bytes(), "a mechanism").expect("it is short");
    cursor::seal(out)
}

/// A SaslAuthenticate request with a token.
#[must_use]
pub fn authenticate(version: i16, correlation_id: i32, token: &[u8]) -> Bytes {
    let flexible = version >= FLEXIBLE;
    let mut out = fetch::head(api::SASL_AUTHENTICATE, version, correlation_id);
    if flexible {
        out.push(0);
    }
    cursor::put_count(&mut out, flexible, token.len());
    out.extend_from_slice(token);
    if flexible {
        out.push(0);
    }
    cursor::seal(out)
}

/// What a broker answers to a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// 0 for success.
    pub error: i16,
    /// What it says of the error.
    pub message: &'a [u8],
    /// Its own token.
    pub token: &'a [u8],
    /// For how long the login is good, where that has an end.
    pub lifetime: Option<Duration>,
}

/// Reads the response `frame` to [`authenticate`].
pub fn answered(version: i16, frame: &[u8]) -> Result<Answer<'_>, WireError> {
    let api_key = api::SASL_AUTHENTICATE;
    if !(0..=AUTHENTICATE).contains(&version) {
        return Err(WireError::Unsupported { api_key, version });
    }
    let flexible = version >= FLEXIBLE;
    let at = header::response_body_at(api_key, version, frame)?;
    let mut cursor = Cursor::starting(frame, at);
    let error = cursor.int16("an error code")?;
    let message = cursor.string(flexible, "an error message")?;
    let len = cursor.count(flexible, "a SASL token")?;
    let token = cursor.take(len.unwrap_or(0), "a SASL token")?;
    let lifetime = match version >= WITH_LIFETIME {
        true => cursor.int64("a session lifetime")?,
        false => 0,
    };
    let lifetime = u64::try_from(lifetime).ok().filter(|ms| *ms > 0);
    Ok(Answer {
        error,
        message: message.unwrap_or_default(),
        token,
        lifetime: lifetime.map(Duration::from_millis),
    })
}

/// The SaslHandshake response to a client that is not to authenticate: 34, and
/// no mechanism, as a broker's own listener without SASL answers.
#[must_use]
pub fn no_sasl(correlation_id: i32) -> Bytes {
    let mut out = response(correlation_id, false);
    out.extend(ILLEGAL_SASL_STATE.to_be_bytes());
    cursor::put_count(&mut out, false, 0);
    cursor::seal(out)
}

/// The SaslAuthenticate response to such a client.
#[must_use]
pub fn no_token(version: i16, correlation_id: i32, message: &str) -> Bytes {
    let flexible = version >= FLEXIBLE;
    let mut out = response(correlation_id, flexible);
    out.extend(ILLEGAL_SASL_STATE.to_be_bytes());
    cursor::put_string(&mut out, flexible, message.as_bytes(), "a message").expect("it is short");
    cursor::put_count(&mut out, flexible, 0);
    if version >= WITH_LIFETIME {
        out.extend(0_i64.to_be_bytes());
    }
    if flexible {
        out.push(0);
    }
    cursor::seal(out)
}

fn response(correlation_id: i32, flexible: bool) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(correlation_id.to_be_bytes());
    if flexible {
        out.push(0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{request, response, text};
    use kafka_protocol::messages::{
        SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
        SaslHandshakeResponse,
    };
    use kafka_protocol::protocol::Decodable;
    use proptest::prelude::*;

    const MESSAGE: &str = "hapax logs in itself";

    #[test]
    fn what_is_asked_is_what_the_crate_asks() {
        let wanted = SaslHandshakeRequest::default().with_mechanism(text("SCRAM-SHA-256"));
        let (frame, at) = request(17, HANDSHAKE, &wanted);
        let own = handshake(7, "SCRAM-SHA-256");
        assert!(own.ends_with(&frame[at..]));
        assert_eq!(
            own[..4],
            u32::try_from(own.len() - 4).unwrap().to_be_bytes()
        );
        for version in 0..=AUTHENTICATE {
            let token = Bytes::from_static(b"\0user\0secret");
            let wanted = SaslAuthenticateRequest::default().with_auth_bytes(token.clone());
            let (frame, at) = request(36, version, &wanted);
            let own = authenticate(version, 7, &token);
            assert!(own.ends_with(&frame[at..]), "version {version}");
            let read = header::request_head(&own[4..]).unwrap();
            assert_eq!((read.api_key, read.correlation_id), (36, 7));
            let flexible = version >= FLEXIBLE;
            let body = header::body_at(&own[4..], flexible).unwrap();
            assert_eq!(own[4 + body.unwrap()..], frame[at..]);
        }
    }

    #[test]
    fn what_is_answered_is_read_as_the_crate_writes_it() {
        for version in 0..=AUTHENTICATE {
            let answer = SaslAuthenticateResponse::default()
                .with_error_code(58)
                .with_error_message(Some(text("no")))
                .with_auth_bytes(Bytes::from_static(b"v=abc"))
                .with_session_lifetime_ms(if version > 0 { 3000 } else { 0 });
            let frame = response(36, version, &answer);
            let expected = Answer {
                error: 58,
                message: b"no",
                token: b"v=abc",
                lifetime: (version > 0).then_some(Duration::from_secs(3)),
            };
            assert_eq!(answered(version, &frame), Ok(expected));
            assert!(answered(version, &frame[..frame.len() - 9]).is_err());
        }
        let frame = response(36, 2, &SaslAuthenticateResponse::default());
        assert_eq!(answered(2, &frame).unwrap().lifetime, None);
        assert!(answered(3, &frame).is_err());
    }

    #[test]
    fn whoever_is_not_to_log_in_is_told_so_in_words_that_the_crate_reads() {
        for version in 0..=1 {
            let frame = no_sasl(7);
            let mut body = frame.slice(8..);
            let read = SaslHandshakeResponse::decode(&mut body, version).unwrap();
            assert_eq!((read.error_code, read.mechanisms.len()), (34, 0));
            assert!(body.is_empty());
        }
        for version in 0..=2 {
            let frame = no_token(version, 7, MESSAGE);
            let mut body = frame.slice(if version < 2 { 8 } else { 9 }..);
            let read = SaslAuthenticateResponse::decode(&mut body, version).unwrap();
            let message = read.error_message.unwrap();
            assert_eq!((read.error_code, &*message), (34, MESSAGE));
            assert!(body.is_empty());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64), version in -1i16..4,
        ) {
            let _ = answered(version, &bytes);
        }
    }
}
