//! A token of OAUTHBEARER: what it says of itself, where it is a JWT.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use std::time::{Duration, SystemTime};

/// A token. Its text is a secret.
pub(super) struct Token {
    pub(super) text: String,
    /// Until when it is good, where it says so.
    pub(super) ends: Option<SystemTime>,
    /// Who it is for, where it says so.
    pub(super) subject: Option<String>,
}

/// What is read of a JWT's claims (RFC 7519). Nothing is verified here: that is
/// for the broker.
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
    sub: Option<String>,
}

/// Later than this nothing is meant.
const YEARS_MAX: f64 = 1e11;

impl Token {
    /// `None` where it has what no token has (RFC 6750: b64token).
    pub(super) fn new(text: &str) -> Option<Self> {
        let sound = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let claims = || {
            let payload = text.split('.').nth(1)?;
            let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
            serde_json::from_slice::<Claims>(&payload).ok()
        };
        let claims = claims();
        let ends = claims.as_ref().and_then(|claims| claims.exp);
        let ends = ends.filter(|ends| (0.0..YEARS_MAX).contains(ends));
        sound.then(|| Self {
            text: text.to_owned(),
            ends: ends
                .and_then(|ends| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs_f64(ends))),
            subject: claims.and_then(|claims| claims.sub),
        })
    }

    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwt_says_who_and_until_when() {
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sub":"hapax","exp":1700000000,"scope":["a"]}"#);
        let token = Token::new(&format!("e30.{payload}.")).unwrap();
        assert_eq!(token.subject.as_deref(), Some("hapax"));
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(token.ends, Some(end));
        assert!(token.has_ended(end));
        assert!(!token.has_ended(end - Duration::from_secs(1)));
    }

    #[test]
    fn a_token_may_be_anything_that_a_header_can_have() {
        for text in ["opaque", "a.b.c", "a.bm90IGpzb24.c"] {
            let token = Token::new(text).unwrap();
            assert!(token.ends.is_none() && token.subject.is_none(), "{text}");
        }
        for bad in ["", "a b", "a\nb", "a\u{1}b", "é"] {
            assert!(Token::new(bad).is_none(), "{bad:?}");
        }
        let huge = URL_SAFE_NO_PAD.encode(r#"{"exp":1e300}"#);
        assert!(Token::new(&format!("a.{huge}.")).unwrap().ends.is_none());
    }
}
