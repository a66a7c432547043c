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

/// `frame` with its length before it.
#[must_use]
pub fn with_length(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).expect("frames are shorter than 2 GiB");
    let mut whole = Vec::with_capacity(4 + frame.len());
    whole.extend_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(frame);
    whole
}

/// A peer that speaks another protocol, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    /// Who sent `first`, the first bytes of a connection; four are enough. Ask
    /// when [`length`] refuses them: each reads as a length above 200 MB.
    pub fn recognise(first: &[u8]) -> Option<Self> {
        const METHODS: [&[u8]; 9] = [
            b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC",
        ];
        match first {
            // A record is its type (alert or handshake), then version 3.x.
            [0x15 | 0x16, 3, ..] => Some(Self::Tls),
            [b'P', b'R', b'I', b' ', ..] => Some(Self::Http2),
            [b'P', b'R', b'O', b'X', ..] | [0x0d, 0x0a, 0x0d, 0x0a, ..] => {
                Some(Self::ProxyProtocol)
            }
            [b'H', b'T', b'T', b'P', ..] => Some(Self::Http),
            _ if METHODS.iter().any(|method| first.starts_with(method)) => Some(Self::Http),
            _ => None,
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "the peer speaks TLS on a plaintext connection: one side's security protocol is wrong",
            Self::Http => "the peer speaks HTTP to a Kafka port: a browser, a health check or a wrong port",
            Self::Http2 => "the peer speaks HTTP/2 to a Kafka port: a gRPC client, a mesh or a wrong port",
            Self::ProxyProtocol => "the peer sends a PROXY protocol header: turn it off at the load balancer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_outside_the_limits_are_refused() {
        let check = |raw: i32, expected| assert_eq!(length(raw.to_be_bytes(), 8, 100), expected);
        check(8, Ok(8));
        check(100, Ok(100));
        check(-1, Err(FrameError::Negative(-1)));
        check(i32::MIN, Err(FrameError::Negative(i32::MIN)));
        check(7, Err(FrameError::TooShort { length: 7, min: 8 }));
        check(
            101,
            Err(FrameError::TooLong {
                length: 101,
                limit: 100,
            }),
        );
    }

    #[test]
    fn four_bytes_name_a_stranger() {
        let check = |first: &[u8], expected| {
            assert_eq!(Stranger::recognise(first), expected, "{first:?}");
        };
        check(&[0x16, 3, 1, 2], Some(Stranger::Tls));
        check(&[0x15, 3, 3, 0], Some(Stranger::Tls));
        check(b"GET ", Some(Stranger::Http));
        check(b"HTTP", Some(Stranger::Http));
        check(b"PRI ", Some(Stranger::Http2));
        check(b"PROX", Some(Stranger::ProxyProtocol));
        check(&[0x0d, 0x0a, 0x0d, 0x0a], Some(Stranger::ProxyProtocol));
        check(&[0, 0, 0, 60], None);
        check(&[0x16], None);
        check(&[], None);
    }
}
