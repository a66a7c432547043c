//! What both sides of SCRAM (RFC 5802, RFC 7677) make of a password: hapax is
//! the client of brokers and the server of its own clients. Pure.

use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// How often a password may be hashed. Fewer make a stolen exchange too easy to
/// guess from (RFC 7677), and clients of Kafka refuse them; more would keep a
/// thread busy for seconds. Kafka's own tools make 16,384 at most.
pub const ITERATIONS: RangeInclusive<u32> = 4096..=1_000_000;

/// What the two sides hash with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The mechanism that it is for.
    #[must_use]
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Signs a message.
    #[must_use]
    pub fn sign(self, key: &[u8], message: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key(key), message)
    }

    /// Whether that is the signature of a message; takes the same time whatever
    /// it is.
    #[must_use]
    pub fn verifies(self, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.key(key), message, signature).is_ok()
    }

    /// The digest of these bytes.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(self.algorithm(), bytes)
    }

    /// The bytes of a key, a digest and a signature.
    #[must_use]
    pub fn output_len(self) -> usize {
        self.algorithm().output_len()
    }

    /// The password, salted. This takes the time of so many iterations.
    #[must_use]
    pub fn salted(self, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.output_len()];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }

    /// The key by which a client proves itself.
    #[must_use]
    pub fn client_key(self, salted: &[u8]) -> hmac::Tag {
        self.sign(salted, b"Client Key")
    }

    /// The key by which a server does.
    #[must_use]
    pub fn server_key(self, salted: &[u8]) -> hmac::Tag {
        self.sign(salted, b"Server Key")
    }

    fn key(self, key: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, key)
    }

    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }
}
