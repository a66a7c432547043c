//! The server's part of SCRAM (RFC 5802, 7677), without channel binding, which
//! Kafka has not. Pure.
//!
//! ```text
//! client  n,,n=alice,r=NONCE
//! server  r=NONCE+OURS,s=SALT,i=ITERATIONS
//! client  c=biws,r=NONCE+OURS,p=PROOF
//! server  v=SIGNATURE
//! ```

use super::list::{Known, List};
use crate::scram::Hash;
use crate::wire::sasl;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// An exchange that waits for the proof.
pub(super) struct Exchange {
    pub user: String,
    known: Known,
    /// What the client said of channel binding, as it has to repeat it.
    binding: String,
    nonce: String,
    /// The first message of each side, as they are signed.
    said: String,
}

impl Exchange {
    /// Begins one by the client's first message, with a nonce of hapax's own.
    /// Returns what to answer; `None` where the message is none.
    pub(super) fn begin(
        list: &List,
        hash: Hash,
        first: &[u8],
        own_nonce: &str,
    ) -> Option<(Self, String)> {
        let user = sasl::user(hash.mechanism(), first)?;
        let text = str::from_utf8(first).ok()?;
        let (binding, bare) = split_binding(text)?;
        let nonce = bare.split(',').nth(1)?.strip_prefix("r=")?;
        if !is_nonce(nonce) || bare.split(',').any(|part| part == "tokenauth=true") {
            return None;
        }
        let known = list.by_scram(&user, hash);
        let nonce = format!("{nonce}{own_nonce}");
        let salt = BASE64.encode(&known.credential.salt);
        let answer = format!("r={nonce},s={salt},i={}", known.credential.iterations);
        let said = format!("{bare},{answer}");
        let exchange = Self {
            user,
            known,
            binding: BASE64.encode(binding),
            nonce,
            said,
        };
        Some((exchange, answer))
    }

    /// Whether there is such a user.
    pub(super) fn exists(&self) -> bool {
        self.known.exists
    }

    /// Ends it by the client's last message: what to answer where that proves
    /// who the client is.
    pub(super) fn end(&self, last: &[u8]) -> Result<String, Failed> {
        let text = str::from_utf8(last).map_err(|_| Failed::Malformed)?;
        let (unproven, proof) = text.rsplit_once(",p=").ok_or(Failed::Malformed)?;
        let proof = BASE64.decode(proof).map_err(|_| Failed::Malformed)?;
        let mut parts = unproven.split(',');
        let binding = parts.next().and_then(|part| part.strip_prefix("c="));
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        let (Some(binding), Some(nonce)) = (binding, nonce) else {
            return Err(Failed::Malformed);
        };
        let exchange = format!("{},{unproven}", self.said);
        let accepted = self.known.credential.accepts(&proof, exchange.as_bytes());
        match accepted {
            Some(signature)
                if self.known.exists && binding == self.binding && nonce == self.nonce =>
            {
                Ok(format!("v={}", BASE64.encode(signature)))
            }
            _ => Err(Failed::Refused),
        }
    }
}

/// Why an exchange proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failed {
    /// It is none.
    Malformed,
    /// The password is another one, or there is no such user.
    Refused,
}

/// The header of a first message, its commas included, and the rest.
fn split_binding(text: &str) -> Option<(&str, &str)> {
    let (first, _) = text.match_indices(',').nth(1)?;
    text.split_at_checked(first + 1)
}

fn is_nonce(nonce: &str) -> bool {
    !nonce.is_empty() && nonce.bytes().all(|byte| (0x21..0x7f).contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::super::credential::Credential;
    use super::*;

    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OWN: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=";

    fn list() -> List {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let lines = Hash::ALL.map(|hash| {
            let made = Credential::of(hash, b"pencil", &salt, 4096);
            format!("user:{made}\n")
        });
        List::parse(lines.concat().as_bytes()).unwrap()
    }

    /// RFC 7677, section 3; for SHA-512 the same made by Python's hashlib.
    #[test]
    fn the_exchange_of_the_rfc_proves_the_user() {
        for (hash, proof, signature) in [
            (
                Hash::Sha256,
                "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ),
            (
                Hash::Sha512,
                "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
                "v=ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
            ),
        ] {
            let (exchange, answer) = Exchange::begin(&list(), hash, FIRST, OWN).unwrap();
            assert_eq!(
                answer,
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
            );
            let end = |last: &str| exchange.end(last.as_bytes());
            assert_eq!(end(&format!("{LAST}{proof}")), Ok(signature.to_owned()));
            // Another byte anywhere.
            let whole = format!("{LAST}{proof}");
            for at in 0..whole.len() {
                let mut bytes = whole.clone().into_bytes();
                bytes[at] ^= 1;
                assert!(exchange.end(&bytes).is_err(), "byte {at}");
                assert!(
                    exchange.end(&whole.as_bytes()[..at]).is_err(),
                    "cut at {at}"
                );
            }
        }
    }

    #[test]
    fn who_does_not_exist_gets_a_salt_and_no_way_in() {
        let first = b"n,,n=mallory,r=abc";
        let begun = || Exchange::begin(&list(), Hash::Sha256, first, "own").unwrap();
        let (exchange, answer) = begun();
        assert_eq!(begun().1, answer);
        assert!(answer.starts_with("r=abcown,s=") && answer.ends_with(",i=4096"));
        assert!(!exchange.exists());
        let last = format!("c=biws,r=abcown,p={}", BASE64.encode([0; 32]));
        assert_eq!(exchange.end(last.as_bytes()), Err(Failed::Refused));
    }

    #[test]
    fn a_first_message_that_is_none_begins_nothing() {
        for first in [
            &b""[..],
            b"n,,n=user",
            b"n,,n=user,r=",
            b"n,,n=user,r=\x01",
            b"p=tls-unique,,n=user,r=abc",
            b"n,a=root,n=user,r=abc",
            b"n,,n=user,r=abc,tokenauth=true",
            b"n,,m=x,n=user,r=abc",
            b"\xff",
        ] {
            let begun = Exchange::begin(&list(), Hash::Sha256, first, OWN);
            assert!(begun.is_none(), "{first:?}");
        }
    }
}
