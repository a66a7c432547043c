//! PEM files: read whole, bounded, and keys only where not everyone can.

use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::exposure;

/// A bundle of every CA there is has less than a tenth of it.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What is wrong with a file. Its path and key are told by whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot be read ({0})")]
    Read(io::Error),
    /// It is too large to be meant.
    #[error("has more than {BYTES_MAX} bytes, which is no certificate or key")]
    TooLarge,
    /// It is no PEM, or one without what is looked for.
    #[error("has no {wanted}: {advice}")]
    Nothing {
        /// What was looked for.
        wanted: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// It is broken.
    #[error("is a broken PEM file ({0}): was it cut, or edited?")]
    Broken(pem::Error),
    /// Its key has a passphrase.
    #[error(
        "has a key with a passphrase, which hapax has no way to be told: openssl pkey -in KEY -out KEY-WITHOUT"
    )]
    Encrypted,
    /// Everyone can read the key.
    #[error("can be read or written by everyone (mode {mode:04o}): chmod o-rw")]
    Open {
        /// The mode of the file.
        mode: u32,
    },
}

/// The bytes of a file with certificates.
pub(super) fn certificates(path: &Path) -> Result<Vec<u8>, FileError> {
    Ok(read(path)?.0)
}

/// The bytes of a file with a key, which not everyone may read.
pub(super) fn key(path: &Path) -> Result<Vec<u8>, FileError> {
    let (bytes, metadata) = read(path)?;
    match exposure::open_mode(path, &metadata) {
        Some(mode) => Err(FileError::Open { mode }),
        None => Ok(bytes),
    }
}

fn read(path: &Path) -> Result<(Vec<u8>, Metadata), FileError> {
    let file = File::open(path).map_err(FileError::Read)?;
    let metadata = file.metadata().map_err(FileError::Read)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(FileError::Read)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > BYTES_MAX) {
        return Err(FileError::TooLarge);
    }
    Ok((bytes, metadata))
}

/// The certificates in a PEM file: at least one.
pub(super) fn parse_certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let found = found.map_err(FileError::Broken)?;
    if found.is_empty() {
        let wanted = "certificate (-----BEGIN CERTIFICATE-----)";
        let advice = advice(bytes);
        return Err(FileError::Nothing { wanted, advice });
    }
    Ok(found)
}

/// The first private key in a PEM file.
pub(super) fn parse_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, FileError> {
    match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) if contains(bytes, b"BEGIN ENCRYPTED PRIVATE KEY") => {
            Err(FileError::Encrypted)
        }
        Err(pem::Error::NoItemsFound) => Err(FileError::Nothing {
            wanted: "private key (-----BEGIN PRIVATE KEY-----)",
            advice: advice(bytes),
        }),
        // RFC 1421's passphrase, which is no part of the key's bytes.
        Err(_) if contains(bytes, b"Proc-Type: 4,ENCRYPTED") => Err(FileError::Encrypted),
        Err(error) => Err(FileError::Broken(error)),
    }
}

/// What the file is instead, and how it is made one that can be read.
fn advice(bytes: &[u8]) -> &'static str {
    let sections = || {
        let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes);
        sections.filter_map(Result::ok).map(|(kind, _)| kind)
    };
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) {
        return "it is a Java keystore: keytool -importkeystore to PKCS12, then openssl pkcs12 -nodes -in FILE";
    }
    if bytes.first() == Some(&0x30) {
        return "it is binary (DER or PKCS12): openssl x509 -inform der -in FILE, or openssl pkcs12 -nodes -in FILE";
    }
    if bytes.is_empty() {
        return "it is empty";
    }
    if sections().any(|kind| kind == SectionKind::Certificate) {
        return "it has certificates alone: are the two files swapped?";
    }
    if sections().next().is_some() || contains(bytes, b"PRIVATE KEY") {
        return "it has something else: are the two files swapped?";
    }
    "give a PEM file"
}

fn contains(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|window| window == words)
}

/// A file that a key of the configuration names, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{key} {path} {error}", path = path.display())]
pub struct Named {
    /// The key.
    pub key: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub error: FileError,
}

/// Says which file an error is about.
pub(super) fn named(key: &'static str, path: &Path) -> impl Fn(FileError) -> Named {
    move |error| Named {
        key,
        path: path.to_owned(),
        error,
    }
}
