//! The headers of requests and responses.
//!
//! ```text
//! request   0       2       4               8
//!           | key   | vers. | correlation   | client id, nullable: 2 + n | tags |
//! response  0               4
//!           | correlation   | tags |
//!           tags: only in flexible versions; ApiVersions responses never
//! ```

use super::cursor::Cursor;
use super::{WireError, api};

/// The first eight bytes of a request frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// Which api.
    pub api_key: i16,
    /// Which version of it.
    pub api_version: i16,
    /// What the response will carry.
    pub correlation_id: i32,
}

/// The head of a request frame; `None` for fewer than eight bytes.
pub fn request_head(frame: &[u8]) -> Option<RequestHead> {
    let [k0, k1, v0, v1, c0, c1, c2, c3] = *frame.first_chunk()?;
    Some(RequestHead {
        api_key: i16::from_be_bytes([k0, k1]),
        api_version: i16::from_be_bytes([v0, v1]),
        correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
    })
}

/// Whether requests of this version have header version 2, and responses
/// header version 1 (those of ApiVersions excepted: always 0). `None` for the
/// apis that hapax does not decode.
pub fn flexible(api_key: i16, api_version: i16) -> Option<bool> {
    let since = match api_key {
        api::PRODUCE | api::METADATA => 9,
        api::FETCH => 12,
        api::FIND_COORDINATOR
        | api::API_VERSIONS
        | api::ADD_PARTITIONS_TO_TXN
        | api::ADD_OFFSETS_TO_TXN
        | api::END_TXN
        | api::TXN_OFFSET_COMMIT => 3,
        api::INIT_PRODUCER_ID | api::SASL_AUTHENTICATE => 2,
        api::DESCRIBE_CLUSTER | api::SHARE_FETCH | api::SHARE_ACKNOWLEDGE => 0,
        api::SASL_HANDSHAKE => return Some(false),
        _ => return None,
    };
    Some(api_version >= since)
}

const CLIENT_ID: usize = 8;

/// The client id of a request frame, header version 1 or 2.
pub fn client_id(frame: &[u8]) -> Result<Option<&[u8]>, WireError> {
    // KIP-482 left the client id as it was: an int16 length in both versions.
    Cursor::starting(frame, CLIENT_ID).string(false, "a client id")
}

/// Where the body of a request begins; `None` while its header is not whole.
pub fn body_at(frame: &[u8], flexible: bool) -> Result<Option<usize>, WireError> {
    match request_body_at(frame, flexible) {
        Ok(at) => Ok(Some(at)),
        Err(WireError::Truncated { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where the body of a request begins whose header must be whole.
pub(super) fn request_body_at(frame: &[u8], flexible: bool) -> Result<usize, WireError> {
    let mut cursor = Cursor::starting(frame, CLIENT_ID);
    cursor.string(false, "a client id")?;
    if flexible {
        cursor.tags()?;
    }
    Ok(cursor.at())
}

/// Where the body of a response begins, after correlation id and tagged fields.
pub fn response_body_at(api_key: i16, version: i16, frame: &[u8]) -> Result<usize, WireError> {
    let flexible = flexible(api_key, version).ok_or(WireError::Unsupported { api_key, version })?;
    let mut cursor = Cursor::new(frame);
    cursor.int32("a correlation id")?;
    if flexible && api_key != api::API_VERSIONS {
        cursor.tags()?;
    }
    Ok(cursor.at())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{request, response};
    use kafka_protocol::messages::{ApiKey, EndTxnRequest, EndTxnResponse};
    use proptest::prelude::*;

    #[test]
    fn flexible_versions_are_those_of_the_crate() {
        for key in 0..100 {
            let Some(_) = flexible(key, 0) else { continue };
            let api = ApiKey::try_from(key).unwrap();
            let range = api.valid_versions();
            for version in range.min..=range.max {
                let flexible = flexible(key, version).unwrap();
                assert_eq!(
                    api.request_header_version(version) == 2,
                    flexible,
                    "{api:?} {version}"
                );
                let response = flexible && key != api::API_VERSIONS;
                assert_eq!(
                    api.response_header_version(version) == 1,
                    response,
                    "{api:?} {version}"
                );
            }
        }
    }

    #[test]
    fn headers_are_read_whole_or_not_at_all() {
        for version in [2, 3] {
            let flexible = flexible(api::END_TXN, version).unwrap();
            let (frame, at) = request(api::END_TXN, version, &EndTxnRequest::default());
            let head = RequestHead {
                api_key: api::END_TXN,
                api_version: version,
                correlation_id: 7,
            };
            assert_eq!(request_head(&frame), Some(head));
            assert_eq!(client_id(&frame), Ok(Some(b"client".as_slice())));
            for end in 0..frame.len() {
                let expected = (end >= at).then_some(at);
                assert_eq!(body_at(&frame[..end], flexible), Ok(expected));
                assert_eq!(request_head(&frame[..end]).is_some(), end >= 8);
            }
        }
        assert_eq!(client_id(&[0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff]), Ok(None));
    }

    #[test]
    fn response_bodies_follow_the_tagged_fields() {
        for version in [2, 3] {
            let frame = response(api::END_TXN, version, &EndTxnResponse::default());
            let at = response_body_at(api::END_TXN, version, &frame).unwrap();
            let tags = if version == 3 { 1 } else { 0 };
            assert_eq!(frame.len() - at, 6 + tags);
            assert!(response_body_at(api::END_TXN, version, &frame[..at - 1]).is_err());
        }
        let unsupported = response_body_at(4, 0, &[0; 9]);
        let (api_key, version) = (4, 0);
        assert_eq!(
            unsupported,
            Err(WireError::Unsupported { api_key, version })
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64), key in -1i16..90, version in -1i16..20,
        ) {
            let _ = request_head(&bytes);
            let _ = client_id(&bytes);
            let _ = body_at(&bytes, true);
            let _ = body_at(&bytes, false);
            let _ = response_body_at(key, version, &bytes);
        }
    }
}
