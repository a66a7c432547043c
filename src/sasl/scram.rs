//! SCRAM (RFC 5802, RFC 7677), the client's side. Pure but for the hashes.
//!
//! ```text
//!  client                                         server
//!    n,,n=user,r=NONCE                     -->
//!                                          <--  r=NONCE+MORE,s=salt,i=iterations
//!    c=biws,r=NONCE+MORE,p=proof           -->
//!                                          <--  v=signature | e=error
//! ```
//!
//! The proof shows that the client knows the password, the signature that the
//! server knows what was made of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::num::NonZeroU32;

use crate::config::printable;
use crate::scram::{Hash, ITERATIONS};

const SALT_MAX: usize = 1024;

/// What is wrong with what a server says.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScramError {
    /// It is no message of SCRAM.
    #[error("its answer is no message of SCRAM")]
    Malformed,
    /// It answers somebody else.
    #[error("its nonce does not begin with that of hapax")]
    Nonce,
    /// Too few iterations, or too many.
    #[error("it asks for {0} iterations: {start} to {end} are taken", start = ITERATIONS.start(), end = ITERATIONS.end())]
    Iterations(u32),
    /// It says so.
    #[error("it says: {0}")]
    Said(String),
    /// It does not know the password.
    #[error(
        "its signature is wrong: it does not know the password of this user, and may not be the broker that it seems to be"
    )]
    Signature,
}

/// What both sides make of a password.
pub(super) struct Keys {
    client: Vec<u8>,
    server: Vec<u8>,
}

impl Keys {
    /// This takes the time of so many iterations.
    pub(super) fn derive(hash: Hash, password: &[u8], salted: &Salted) -> Self {
        let salted = hash.salted(password, &salted.salt, salted.iterations);
        Self {
            client: hash.client_key(&salted).as_ref().to_vec(),
            server: hash.server_key(&salted).as_ref().to_vec(),
        }
    }
}

/// How a server keeps a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Salted {
    salt: Vec<u8>,
    iterations: NonZeroU32,
}

/// What the client said first.
pub(super) struct First {
    hash: Hash,
    /// Without `n,,`.
    bare: String,
    nonce: String,
}

/// What the server answered to it.
pub(super) struct Challenged {
    first: First,
    server_first: String,
    nonce: String,
    pub(super) salted: Salted,
}

/// What the server has to know.
pub(super) struct Last {
    hash: Hash,
    server_key: Vec<u8>,
    auth_message: String,
}

impl First {
    /// `nonce` is of printable characters without a comma.
    pub(super) fn new(hash: Hash, user: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            hash,
            bare: format!("n={user},r={nonce}"),
            nonce,
        }
    }

    pub(super) fn message(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Reads the server's first message.
    pub(super) fn challenged(self, message: &[u8]) -> Result<Challenged, ScramError> {
        let message = str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
        let mut parts = message.split(',');
        let mut part = |name| field(parts.next(), name);
        let (nonce, salt, iterations) = (part("r=")?, part("s=")?, part("i=")?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::Nonce);
        }
        let salt = STANDARD.decode(salt).map_err(|_| ScramError::Malformed)?;
        if salt.is_empty() || salt.len() > SALT_MAX {
            return Err(ScramError::Malformed);
        }
        let iterations: u32 = iterations.parse().map_err(|_| ScramError::Malformed)?;
        let iterations = NonZeroU32::new(iterations)
            .filter(|iterations| ITERATIONS.contains(&iterations.get()))
            .ok_or(ScramError::Iterations(iterations))?;
        Ok(Challenged {
            nonce: nonce.to_owned(),
            server_first: message.to_owned(),
            salted: Salted { salt, iterations },
            first: self,
        })
    }
}

impl Challenged {
    pub(super) fn hash(&self) -> Hash {
        self.first.hash
    }

    /// The client's proof, and what the server has to answer to it.
    pub(super) fn proof(self, keys: &Keys) -> (String, Last) {
        let hash = self.first.hash;
        // biws is the base64 of n,, : no binding to the channel.
        let without_proof = format!("c=biws,r={}", self.nonce);
        let auth_message = format!("{},{},{without_proof}", self.first.bare, self.server_first);
        let stored = hash.digest(&keys.client);
        let signature = hash.sign(stored.as_ref(), auth_message.as_bytes());
        let pairs = keys.client.iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let message = format!("{without_proof},p={}", STANDARD.encode(proof));
        let last = Last {
            hash,
            server_key: keys.server.clone(),
            auth_message,
        };
        (message, last)
    }
}

impl Last {
    /// Whether the server's last message shows that it knows the password.
    pub(super) fn verify(&self, message: &[u8]) -> Result<(), ScramError> {
        let message = str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
        let part = message.split(',').next();
        if let Some(error) = part.and_then(|part| part.strip_prefix("e=")) {
            return Err(ScramError::Said(printable(error)));
        }
        let signature = STANDARD
            .decode(field(part, "v=")?)
            .map_err(|_| ScramError::Malformed)?;
        let signed = self.auth_message.as_bytes();
        match self.hash.verifies(&self.server_key, signed, &signature) {
            true => Ok(()),
            false => Err(ScramError::Signature),
        }
    }
}

/// Nothing makes it panic, no challenge is of another client, and no signature
/// is right by chance.
pub(super) fn hear(message: &[u8]) {
    const NONCE: &str = "nonce";
    let first = First::new(Hash::Sha256, "user", NONCE.to_owned());
    if let Ok(challenged) = first.challenged(message) {
        assert!(challenged.nonce.starts_with(NONCE));
        assert!(ITERATIONS.contains(&challenged.salted.iterations.get()));
    }
    let last = Last {
        hash: Hash::Sha512,
        server_key: vec![7; 64],
        auth_message: NONCE.to_owned(),
    };
    assert!(last.verify(message).is_err());
}

fn field<'m>(part: Option<&'m str>, name: &str) -> Result<&'m str, ScramError> {
    part.and_then(|part| part.strip_prefix(name))
        .ok_or(ScramError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn first(hash: Hash) -> First {
        First::new(hash, "user", NONCE.to_owned())
    }

    fn last(hash: Hash, password: &str) -> (String, Last) {
        let challenged = first(hash).challenged(SERVER_FIRST.as_bytes());
        let challenged = challenged.ok().unwrap();
        let keys = Keys::derive(hash, password.as_bytes(), &challenged.salted);
        challenged.proof(&keys)
    }

    #[test]
    fn the_exchange_of_rfc_7677_is_the_same_to_the_byte() {
        assert_eq!(
            first(Hash::Sha256).message(),
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        );
        let (message, last) = last(Hash::Sha256, "pencil");
        assert_eq!(message, FINAL);
        assert_eq!(last.verify(SERVER_FINAL), Ok(()));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_believed() {
        let (message, last) = last(Hash::Sha256, "Pencil");
        assert_ne!(message, FINAL);
        assert_eq!(last.verify(SERVER_FINAL), Err(ScramError::Signature));
        assert_eq!(last.verify(b"v="), Err(ScramError::Signature));
        assert_eq!(last.verify(b""), Err(ScramError::Malformed));
        let said = Err(ScramError::Said("other-error".to_owned()));
        assert_eq!(last.verify(b"e=other-error"), said);
    }

    /// Whether it is right, a real Kafka says (`tests/real/login.rs`).
    #[test]
    fn the_longer_hash_differs_in_length_alone() {
        let (message, _) = last(Hash::Sha512, "pencil");
        let proof = message.rsplit("p=").next().unwrap();
        assert_eq!(STANDARD.decode(proof).unwrap().len(), 64);
    }

    #[test]
    fn names_are_written_without_what_separates() {
        let first = First::new(Hash::Sha256, "a=b,c", "n".to_owned());
        assert_eq!(first.message(), "n,,n=a=3Db=2Cc,r=n");
    }

    #[test]
    fn a_challenge_that_is_none_is_refused() {
        let check = |message: &str, expected: ScramError| {
            let read = first(Hash::Sha256).challenged(message.as_bytes());
            assert_eq!(read.err(), Some(expected), "{message}");
        };
        check("", ScramError::Malformed);
        check("r=other,s=QQ==,i=4096", ScramError::Nonce);
        check("r=rOprNGfwEbeRWgbNEkqO,s=QQ==,i=4096", ScramError::Nonce);
        let with = |rest: &str| format!("r={NONCE}x,{rest}");
        check(&with("s=QQ==,i=4095"), ScramError::Iterations(4095));
        check(
            &with("s=QQ==,i=4294967295"),
            ScramError::Iterations(u32::MAX),
        );
        check(&with("s=QQ==,i=0"), ScramError::Iterations(0));
        check(&with("s=,i=4096"), ScramError::Malformed);
        check(&with("s=?,i=4096"), ScramError::Malformed);
        check(&with("s=QQ==,i=x"), ScramError::Malformed);
        check(&with("i=4096,s=QQ=="), ScramError::Malformed);
        check(&format!("m=x,r={NONCE}x"), ScramError::Malformed);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = first(Hash::Sha256).challenged(&bytes);
            let last = Last { hash: Hash::Sha256, server_key: vec![1], auth_message: String::new() };
            let _ = last.verify(&bytes);
        }
    }
}
