//! Who authenticates, without what they authenticate with; and what hapax
//! answers where they authenticate to it.

use super::cursor::{self, Cursor};
use super::{WireError, api, header};
use bytes::Bytes;

/// The mechanism that a SaslHandshake request body asks for.
pub fn handshake_mechanism(version: i16, body: &[u8]) -> Result<&str, WireError> {
    if !(0..=1).contains(&version) {
        return Err(unsupported(api::SASL_HANDSHAKE, version));
    }
    let what = "the length of a SASL mechanism";
    let malformed = WireError::Malformed { what, value: -1 };
    let mechanism = Cursor::new(body).string(false, "a SASL mechanism")?;
    str::from_utf8(mechanism.ok_or(malformed)?).map_err(|_| malformed)
}

/// The error of a SaslHandshake response.
pub fn handshake_error(frame: &[u8]) -> Result<i16, WireError> {
    let at = header::response_body_at(api::SASL_HANDSHAKE, 0, frame)?;
    Cursor::starting(frame, at).int16("an error code")
}

/// The mechanisms that a SaslHandshake response lists: those the broker has.
pub fn handshake_mechanisms(frame: &[u8]) -> Result<Vec<String>, WireError> {
    let at = header::response_body_at(api::SASL_HANDSHAKE, 0, frame)?;
    let mut cursor = Cursor::starting(frame, at);
    cursor.int16("an error code")?;
    let count = cursor.count(false, "SASL mechanisms")?.unwrap_or(0);
    let mut mechanisms = Vec::new();
    for _ in 0..count {
        let mechanism = cursor.string(false, "a SASL mechanism")?;
        let mechanism = String::from_utf8_lossy(mechanism.unwrap_or_default());
        mechanisms.push(mechanism.into_owned());
    }
    Ok(mechanisms)
}

const FLEXIBLE: i16 = 2;
const NEWEST: i16 = 2;

/// The token in a SaslAuthenticate request body.
pub fn authenticate_token(version: i16, body: &[u8]) -> Result<&[u8], WireError> {
    if !(0..=NEWEST).contains(&version) {
        return Err(unsupported(api::SASL_AUTHENTICATE, version));
    }
    let mut cursor = Cursor::new(body);
    let len = cursor.count(version >= FLEXIBLE, "a SASL token")?;
    cursor.take(len.unwrap_or(0), "a SASL token")
}

/// What a broker answers to a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenAnswer {
    /// 0 where it goes on, or went well.
    pub error: i16,
    /// Whether there is nothing in it for the client to answer.
    pub is_empty: bool,
}

/// What a SaslAuthenticate response says.
pub fn authenticate_answer(version: i16, frame: &[u8]) -> Result<TokenAnswer, WireError> {
    if !(0..=NEWEST).contains(&version) {
        return Err(unsupported(api::SASL_AUTHENTICATE, version));
    }
    let at = header::response_body_at(api::SASL_AUTHENTICATE, version, frame)?;
    let mut cursor = Cursor::starting(frame, at);
    let error = cursor.int16("an error code")?;
    cursor.string(version >= FLEXIBLE, "an error message")?;
    let len = cursor.count(version >= FLEXIBLE, "a SASL token")?;
    Ok(TokenAnswer {
        error,
        is_empty: len.unwrap_or(0) == 0,
    })
}

/// A whole response to SaslHandshake, length first: the error, and the
/// mechanisms that there are.
#[must_use]
pub fn handshake_response(correlation_id: i32, error: i16, mechanisms: &[&str]) -> Bytes {
    let mut out = begin(correlation_id, false);
    out.extend(error.to_be_bytes());
    cursor::put_count(&mut out, false, mechanisms.len());
    for mechanism in mechanisms {
        put_text(&mut out, false, mechanism);
    }
    cursor::seal(out)
}

/// A whole response to SaslAuthenticate, length first: a token, without an end
/// of the session.
#[must_use]
pub fn token_response(version: i16, correlation_id: i32, token: &[u8]) -> Bytes {
    authenticate_response(version, correlation_id, 0, None, token)
}

/// The same that refuses, and says why.
#[must_use]
pub fn refusal_response(version: i16, correlation_id: i32, error: i16, why: &str) -> Bytes {
    authenticate_response(version, correlation_id, error, Some(why), b"")
}

fn authenticate_response(
    version: i16,
    correlation_id: i32,
    error: i16,
    message: Option<&str>,
    token: &[u8],
) -> Bytes {
    let flexible = version >= FLEXIBLE;
    let mut out = begin(correlation_id, flexible);
    out.extend(error.to_be_bytes());
    match message {
        Some(message) => put_text(&mut out, flexible, message),
        None if flexible => out.push(0),
        None => out.extend((-1_i16).to_be_bytes()),
    }
    cursor::put_count(&mut out, flexible, token.len());
    out.extend_from_slice(token);
    if version >= 1 {
        // 0: the session does not end by itself (KIP-368).
        out.extend(0_i64.to_be_bytes());
    }
    if flexible {
        out.push(0);
    }
    cursor::seal(out)
}

/// The beginning of a response: room for its length, and its header.
fn begin(correlation_id: i32, flexible: bool) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(correlation_id.to_be_bytes());
    if flexible {
        out.push(0);
    }
    out
}

fn put_text(out: &mut Vec<u8>, flexible: bool, text: &str) {
    cursor::put_string(out, flexible, text.as_bytes(), "a text of hapax's own")
        .expect("a mechanism or a reason has a few words");
}

fn unsupported(api_key: i16, version: i16) -> WireError {
    WireError::Unsupported { api_key, version }
}

/// The user that the first token of an exchange names; `None` where it cannot
/// be read or an authorization id differs from it.
///
/// ```text
/// PLAIN (RFC 4616)   [authzid] NUL user NUL password
/// SCRAM (RFC 5802)   n,[a=authzid],[m=...,]n=user,r=nonce[,...]
/// ```
pub fn user(mechanism: &str, first_token: &[u8]) -> Option<String> {
    let (authorization, user) = if mechanism == PLAIN {
        plain(first_token)?
    } else if mechanism.starts_with(SCRAM) {
        scram(first_token)?
    } else {
        return None;
    };
    let own = authorization.is_empty() || authorization == user;
    (own && !user.is_empty()).then_some(user)
}

const PLAIN: &str = "PLAIN";
const SCRAM: &str = "SCRAM-";
const OAUTHBEARER: &str = "OAUTHBEARER";

fn plain(token: &[u8]) -> Option<(String, String)> {
    let mut parts = token.split(|byte| *byte == 0);
    let (authorization, user, _password) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let text = |part: &[u8]| str::from_utf8(part).ok().map(str::to_owned);
    Some((text(authorization)?, text(user)?))
}

fn scram(token: &[u8]) -> Option<(String, String)> {
    let mut parts = str::from_utf8(token).ok()?.split(',');
    // Channel binding: Kafka has none; a client may say that it could.
    if !matches!(parts.next()?, "n" | "y") {
        return None;
    }
    let authorization = match parts.next()? {
        "" => String::new(),
        part => unescape(part.strip_prefix("a=")?)?,
    };
    let user = match parts.next()? {
        // Mandatory extensions would change the meaning of what follows.
        part if part.starts_with("m=") => return None,
        part => unescape(part.strip_prefix("n=")?)?,
    };
    parts.next()?.strip_prefix("r=")?;
    Some((authorization, user))
}

/// A SCRAM name: `=2C` is a comma, `=3D` an equals sign, no other `=` is allowed.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = part.split_at_checked(2)?;
        plain.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        plain.push_str(rest);
    }
    Some(plain)
}

/// Whether the broker's answer to the last of so many tokens is the end of an
/// exchange that went well. For mechanisms not known here nothing is.
///
/// A broker that refuses a bearer's token says why in an answer without an
/// error, and with it once the client has confirmed that (RFC 7628, 3.2.3).
pub fn is_end(mechanism: &str, tokens: u8, answer: TokenAnswer) -> bool {
    answer.error == 0
        && rounds(mechanism) == Some(tokens)
        && (mechanism != OAUTHBEARER || answer.is_empty)
}

/// Client tokens in a successful exchange; `None` for mechanisms not known here.
pub fn rounds(mechanism: &str) -> Option<u8> {
    match mechanism {
        PLAIN | OAUTHBEARER => Some(1),
        _ if mechanism.starts_with(SCRAM) => Some(2),
        _ => None,
    }
}

/// Whether a frame after SaslHandshake v0 is a request and no longer a token.
///
/// A guess, for mechanisms whose number of tokens is not known: the api key and
/// version are plausible and the client id ends inside the frame. GSSAPI tokens
/// begin with 0x60 and wrapped ones with 0x05 0x04, neither of which is a
/// plausible key.
pub fn looks_like_request(frame: &[u8]) -> bool {
    let Some(head) = header::request_head(frame) else {
        return false;
    };
    let plausible =
        (0..=MAX_KEY).contains(&head.api_key) && (0..=MAX_VERSION).contains(&head.api_version);
    plausible && header::client_id(frame).is_ok()
}

/// Kafka 4.4 ends at 94.
const MAX_KEY: i16 = 100;
/// Kafka 4.4 ends at 18 (Fetch).
const MAX_VERSION: i16 = 25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{decode, request, response, text, unframed};
    use kafka_protocol::messages::{
        SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
        SaslHandshakeResponse,
    };
    use proptest::prelude::*;

    #[test]
    fn sasl_messages_agree_with_the_crate() {
        for version in 0..=1 {
            let asked = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
            let (frame, at) = request(17, version, &asked);
            assert_eq!(handshake_mechanism(version, &frame[at..]), Ok("PLAIN"));
            assert!(handshake_mechanism(version, &frame[at..frame.len() - 1]).is_err());
            let frame = response(
                17,
                version,
                &SaslHandshakeResponse::default().with_error_code(33),
            );
            assert_eq!(handshake_error(&frame), Ok(33));
        }
        for version in 0..=2 {
            let token = Bytes::from_static(b"\0user\0secret");
            let sent = SaslAuthenticateRequest::default().with_auth_bytes(token.clone());
            let (frame, at) = request(36, version, &sent);
            assert_eq!(authenticate_token(version, &frame[at..]), Ok(&token[..]));
            assert!(authenticate_token(version, &frame[at..at + 9]).is_err());
            let refused = SaslAuthenticateResponse::default().with_error_code(58);
            let frame = response(36, version, &refused);
            let refused = TokenAnswer {
                error: 58,
                is_empty: true,
            };
            assert_eq!(authenticate_answer(version, &frame), Ok(refused));
            assert!(authenticate_answer(version, &frame[..4]).is_err());
        }
        assert!(authenticate_token(3, &[0; 9]).is_err());
    }

    #[test]
    fn answers_of_hapax_agree_with_the_crate() {
        for version in 0..=1 {
            let whole = handshake_response(7, 33, &["PLAIN", "SCRAM-SHA-256"]);
            let answer: SaslHandshakeResponse = decode(17, version, unframed(&whole));
            let expected = SaslHandshakeResponse::default()
                .with_error_code(33)
                .with_mechanisms(vec![text("PLAIN"), text("SCRAM-SHA-256")]);
            assert_eq!(answer, expected);
        }
        for version in 0..=2 {
            let whole = token_response(version, 7, b"r=abc");
            let answer: SaslAuthenticateResponse = decode(36, version, unframed(&whole));
            let token = SaslAuthenticateResponse::default()
                .with_error_message(None)
                .with_auth_bytes(Bytes::from_static(b"r=abc"));
            assert_eq!(answer, token);
            let whole = refusal_response(version, 7, 58, "no");
            let answer: SaslAuthenticateResponse = decode(36, version, unframed(&whole));
            let refusal = SaslAuthenticateResponse::default()
                .with_error_code(58)
                .with_error_message(Some(text("no")));
            assert_eq!(answer, refusal);
        }
    }

    #[test]
    fn the_user_is_read_only_where_it_is_plain_who_acts() {
        let check = |mechanism, token: &str, expected: Option<&str>| {
            let user = user(mechanism, token.as_bytes());
            assert_eq!(user.as_deref(), expected, "{mechanism} {token:?}");
        };
        check("PLAIN", "\0alice\0secret", Some("alice"));
        check("PLAIN", "alice\0alice\0secret", Some("alice"));
        check("PLAIN", "root\0alice\0secret", None);
        check("PLAIN", "\0\0secret", None);
        check("PLAIN", "alice", None);
        check("PLAIN", "\0alice\0se\0cret", None);
        check("SCRAM-SHA-256", "n,,n=alice,r=abc", Some("alice"));
        check("SCRAM-SHA-512", "y,,n=a=2Cb=3Dc,r=abc", Some("a,b=c"));
        check(
            "SCRAM-SHA-512",
            "n,a=alice,n=alice,r=abc,tokenauth=true",
            Some("alice"),
        );
        check("SCRAM-SHA-512", "n,a=root,n=alice,r=abc", None);
        check("SCRAM-SHA-512", "n,,n=a=2cb,r=abc", None);
        check("SCRAM-SHA-512", "n,,n=a=,r=abc", None);
        check("SCRAM-SHA-512", "p=tls-unique,,n=alice,r=abc", None);
        check("SCRAM-SHA-512", "n,,m=x,n=alice,r=abc", None);
        check("SCRAM-SHA-512", "n,,n=alice", None);
        check("GSSAPI", "\0alice\0secret", None);
        check("plain", "\0alice\0secret", None);
        assert_eq!(user("PLAIN", b"\0al\xffice\0secret"), None);
    }

    #[test]
    fn exchanges_that_are_known_have_a_length() {
        let mechanisms = ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-512", "GSSAPI"];
        assert_eq!(mechanisms.map(rounds), [Some(1), Some(1), Some(2), None]);
    }

    #[test]
    fn requests_are_told_from_tokens() {
        let (frame, _) = request(17, 0, &SaslHandshakeRequest::default());
        assert!(looks_like_request(&frame));
        assert!(!looks_like_request(&frame[..9]));
        // GSSAPI: an initial token, a wrapped one, an empty one; SCRAM; PLAIN.
        assert!(!looks_like_request(&[
            0x60, 0x82, 2, 3, 6, 9, 0x2a, 0x86, 0x48, 0x86
        ]));
        assert!(!looks_like_request(&[
            5, 4, 0, 0xff, 0, 12, 0, 0, 0, 0, 0, 0
        ]));
        assert!(!looks_like_request(b""));
        assert!(!looks_like_request(b"n,,n=alice,r=abcdef"));
        assert!(!looks_like_request(b"\0alice\0secret"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64), version in -1i16..4,
        ) {
            let _ = handshake_mechanism(version, &bytes);
            let _ = handshake_error(&bytes);
            let _ = authenticate_token(version, &bytes);
            let _ = authenticate_answer(version, &bytes);
            let _ = user("PLAIN", &bytes);
            let _ = user("SCRAM-SHA-256", &bytes);
            let _ = looks_like_request(&bytes);
        }
        #[test]
        fn no_text_makes_it_panic(token in "[ny],(a=|)[a=2CD3,é]*n=[a=2CD3é]*,r=.*") {
            let _ = user("SCRAM-SHA-256", token.as_bytes());
        }
    }
}
