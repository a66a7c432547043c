//! The four length bytes before each frame, and who is speaking when they are none.

use std::fmt;

/// The shortest request: api key, version, correlation id.
pub const MIN_REQUEST: usize = 8;

/// The shortest response: a correlation id.
pub const MIN_RESPONSE: usize = 4;

/// A length prefix that no frame of this listener has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A negative length.
    #[error("a frame cannot be {0} bytes long")]
    Negative(i32),
    /// Too short for a header.
    #[error("a frame of {length} bytes is shorter than the least, {min}")]
    TooShort {
        /// What it says.
        length: usize,
        /// The least allowed.
        min: usize,
    },
    /// Longer than the configured limit.
    #[error("a frame of {length} bytes is longer than the limit, {limit}")]
    TooLong {
        /// What it says.
        length: usize,
        /// The most allowed.
        limit: usize,
    },
}

/// The length that `prefix` announces, `min <= length <= limit`.
pub fn length(prefix: [u8; 4], min: usize, limit: usize) -> Result<usize, FrameError> {
    let raw = i32::from_be_bytes(prefix);
    let length = usize::try_from(raw).map_err(|_| FrameError::Negative(raw))?;
    if length < min {
        return Err(FrameError::TooShort { length, min });
    }
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    Ok(length)
}

/// A peer that speaks another protocol, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// A TLS handshake record or alert.
    Tls,
    /// HTTP/1.
    Http,
    /// The HTTP/2 preface.
    Http2,
    /// A PROXY protocol header, version 1 or 2.
    ProxyProtocol,
}

impl Stranger {
    /// Who sent `first`, the first bytes of a connection, if not a Kafka peer.
    pub fn recognise(_first: &[u8]) -> Option<Self> {
        todo!()
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
