//! What is kept of a password (RFC 5802): enough to see whether somebody knows
//! it, and not enough to show it to anybody else. Pure.
//!
//! ```text
//! password --PBKDF2(salt, iterations)--> salted
//! salted --HMAC "Client Key"--> client key --hash--> stored key   kept
//! salted --HMAC "Server Key"---------------------> server key     kept
//! ```

use crate::scram::{Hash, ITERATIONS};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::str::FromStr;
use subtle::ConstantTimeEq as _;

/// The most that Kafka's own tools make. Every login costs the client as much.
pub const ITERATIONS_DEFAULT: u32 = 16_384;
const SALT_MAX: usize = 64;

/// What is kept of one password by one hash.
///
/// As text: `SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY`, in base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The hash.
    pub hash: Hash,
    /// Within [`ITERATIONS`].
    pub iterations: u32,
    /// Random, 1 to 64 bytes.
    pub salt: Vec<u8>,
    /// As many bytes as the hash gives.
    stored_key: Vec<u8>,
    /// The same.
    server_key: Vec<u8>,
}

/// What anybody sees of a credential, or can measure, who says the name of its user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Look {
    /// The hash.
    pub hash: Hash,
    /// How often it is applied.
    pub iterations: u32,
    /// Bytes of the salt.
    pub salt_len: usize,
}

/// Nothing of it is for a log.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hash.mechanism())
    }
}

impl Credential {
    /// That of a password.
    #[must_use]
    pub fn of(hash: Hash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let often = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let salted = hash.salted(password, salt, often);
        let client_key = hash.client_key(&salted);
        Self {
            hash,
            iterations,
            salt: salt.to_vec(),
            stored_key: hash.digest(client_key.as_ref()).as_ref().to_vec(),
            server_key: hash.server_key(&salted).as_ref().to_vec(),
        }
    }

    /// What is seen of it.
    #[must_use]
    pub fn look(&self) -> Look {
        Look {
            hash: self.hash,
            iterations: self.iterations,
            salt_len: self.salt.len(),
        }
    }

    /// That of a user who does not exist: always the same one for a name, and
    /// met by no password. `self` is the secret that it is made by.
    #[must_use]
    pub fn pretended(&self, look: Look, name: &str) -> Self {
        let Look {
            hash, iterations, ..
        } = look;
        let of = |what: &str| self.about(&format!("{what} {}", hash.mechanism()), name);
        let mut salt = of("salt");
        salt.truncate(look.salt_len);
        let key = |what| of(what).into_iter().take(hash.output_len()).collect();
        Self {
            hash,
            iterations,
            salt,
            stored_key: key("stored key"),
            server_key: key("server key"),
        }
    }

    /// Where in `0..total` a name stands, which looks like chance and always is
    /// the same; for another `total` nearly the same share of it.
    pub(super) fn place(&self, name: &str, total: u64) -> u64 {
        let bytes = self.about("place", name);
        let (number, _) = bytes.split_first_chunk().expect("a hash has 64 bytes");
        let share = u128::from(u64::from_be_bytes(*number)) * u128::from(total);
        u64::try_from(share >> 64).expect("a share is less than the whole")
    }

    /// Bytes about a name that only who knows the file can tell.
    fn about(&self, what: &str, name: &str) -> Vec<u8> {
        let secret = self.hash.sign(&self.server_key, b"of nobody");
        let what = format!("{what} {name}");
        let bytes = Hash::Sha512.sign(secret.as_ref(), what.as_bytes());
        bytes.as_ref().to_vec()
    }

    /// Orders credentials in a way that a new one seldom changes the least.
    pub(super) fn rank(&self) -> &[u8] {
        &self.server_key
    }

    /// Whether this is the password. Takes as long as the iterations do.
    #[must_use]
    pub fn is_of(&self, password: &[u8]) -> bool {
        let offered = Self::of(self.hash, password, &self.salt, self.iterations);
        self.stored_key.ct_eq(&offered.stored_key).into()
    }

    /// What proves to a client that it speaks with who knows this credential,
    /// where its own proof shows that it knows the password.
    #[must_use]
    pub fn accepts(&self, proof: &[u8], exchange: &[u8]) -> Option<Vec<u8>> {
        let signature = self.hash.sign(&self.stored_key, exchange);
        // What is too short or too long meets no stored key.
        let client_key: Vec<u8> = signature
            .as_ref()
            .iter()
            .zip(proof)
            .map(|(signed, proven)| signed ^ proven)
            .collect();
        let stored_key = self.hash.digest(&client_key);
        let same = self.stored_key.ct_eq(stored_key.as_ref());
        let signed = self.hash.sign(&self.server_key, exchange);
        (bool::from(same) && proof.len() == self.hash.output_len())
            .then(|| signed.as_ref().to_vec())
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}${}:{}${}:{}",
            self.hash.mechanism(),
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(&self.stored_key),
            BASE64.encode(&self.server_key),
        )
    }
}

/// Why text is no credential. It says nothing of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadCredential {
    /// Something is missing, or of another kind.
    #[error(
        "it is not MECHANISM$ITERATIONS:SALT$STORED-KEY:SERVER-KEY, the mechanism SCRAM-SHA-256 or SCRAM-SHA-512"
    )]
    Shape,
    /// Clients would refuse it.
    #[error("its iterations are not from {} to {}", ITERATIONS.start(), ITERATIONS.end())]
    Iterations,
    /// It was cut, or is of another hash.
    #[error("its salt or a key has not the length that it should, or is no base64: was it cut?")]
    Length,
}

impl FromStr for Credential {
    type Err = BadCredential;

    fn from_str(text: &str) -> Result<Self, BadCredential> {
        let mut parts = text.split('$');
        let (Some(mechanism), Some(cost), Some(keys), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BadCredential::Shape);
        };
        let hash = Hash::ALL.into_iter().find(|h| h.mechanism() == mechanism);
        let hash = hash.ok_or(BadCredential::Shape)?;
        let (iterations, salt) = cost.split_once(':').ok_or(BadCredential::Shape)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or(BadCredential::Shape)?;
        let iterations = iterations.parse().map_err(|_| BadCredential::Shape)?;
        if !ITERATIONS.contains(&iterations) {
            return Err(BadCredential::Iterations);
        }
        let decoded = |text: &str, len: RangeInclusive<usize>| {
            let bytes = BASE64.decode(text).map_err(|_| BadCredential::Length)?;
            len.contains(&bytes.len())
                .then_some(bytes)
                .ok_or(BadCredential::Length)
        };
        let len = hash.output_len()..=hash.output_len();
        Ok(Self {
            hash,
            iterations,
            salt: decoded(salt, 1..=SALT_MAX)?,
            stored_key: decoded(stored_key, len.clone())?,
            server_key: decoded(server_key, len)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";

    /// RFC 7677 for SHA-256; for SHA-512 the same made by Python's hashlib.
    #[test]
    fn a_credential_is_that_of_the_rfc() {
        let salt = BASE64.decode(SALT).unwrap();
        for (hash, keys) in [
            (
                Hash::Sha256,
                "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
            ),
            (
                Hash::Sha512,
                "6AAub3065EYRmyFpM2RNwqK+eGnrkYuEWbXn19LsEmBqzu8QaCXNc1FwpnX9NhH2hK/60dzj9DoO5DvVkOHbvg==:jZHbYjC1aHh0/hKbxyBuGFjDrgjgKTT1esA7awWiKcRZ0o/0b1yWEebBeSVkkCFewf91nLDfKF24mvD5nmE6rA==",
            ),
        ] {
            let made = Credential::of(hash, b"pencil", &salt, 4096);
            let text = format!("{}$4096:{SALT}${keys}", hash.mechanism());
            assert_eq!(made.to_string(), text);
            assert_eq!(text.parse(), Ok(made.clone()));
            assert!(made.is_of(b"pencil"));
            assert!(!made.is_of(b"pencil "));
            assert_eq!(format!("{made:?}"), hash.mechanism());
        }
    }

    #[test]
    fn nobody_looks_like_somebody_and_has_no_password() {
        let real = Credential::of(Hash::Sha256, b"pencil", b"0123456789abcdef", 5000);
        let look = Look {
            hash: Hash::Sha512,
            ..real.look()
        };
        let nobody = real.pretended(look, "mallory");
        assert_eq!(nobody, real.pretended(look, "mallory"));
        assert_ne!(nobody.salt, real.pretended(look, "eve").salt);
        assert_eq!(nobody.look(), look);
        assert_eq!(nobody.to_string().parse(), Ok(nobody.clone()));
        assert!(!nobody.is_of(b"pencil"));
    }

    #[test]
    fn a_proof_of_another_length_is_none() {
        let real = Credential::of(Hash::Sha256, b"pencil", b"salt", 4096);
        for len in [0, 31, 32, 33, 64] {
            assert_eq!(real.accepts(&vec![0; len], b"exchange"), None);
        }
    }

    #[test]
    fn what_is_no_credential_is_told_without_its_text() {
        let good = Credential::of(Hash::Sha256, b"pencil", b"salt", 4096).to_string();
        for (text, error) in [
            ("", BadCredential::Shape),
            ("pencil", BadCredential::Shape),
            ("SCRAM-SHA-1$4096:c2FsdA==$YQ==:YQ==", BadCredential::Shape),
            (
                "SCRAM-SHA-256$4096:c2FsdA==$YQ==:YQ==",
                BadCredential::Length,
            ),
            (&good.replace("4096", "4095"), BadCredential::Iterations),
            (&good.replace("4096", "1000001"), BadCredential::Iterations),
            (&good.replace("4096", "-1"), BadCredential::Shape),
            (&good.replace("c2FsdA==", ""), BadCredential::Length),
            (&good[..good.len() - 4], BadCredential::Length),
            (&format!("{good}$"), BadCredential::Shape),
        ] {
            assert_eq!(text.parse::<Credential>(), Err(error), "{text}");
        }
    }
}
