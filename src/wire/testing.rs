//! Messages for the tests of this module, encoded by the protocol crate.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A tagged field that nobody knows, inserted by `with_unknown_tagged_field`.
pub(super) const UNKNOWN: (i32, Bytes) = (99, Bytes::from_static(b"kept as it is"));

/// A request frame and where its body begins.
pub(super) fn request(key: i16, version: i16, body: &impl Encodable) -> (Vec<u8>, usize) {
    let api = ApiKey::try_from(key).unwrap();
    let header = RequestHeader::default()
        .with_request_api_key(key)
        .with_request_api_version(version)
        .with_correlation_id(7)
        .with_client_id(Some(text("client")));
    let mut out = BytesMut::new();
    header
        .encode(&mut out, api.request_header_version(version))
        .unwrap();
    let at = out.len();
    body.encode(&mut out, version).unwrap();
    (out.to_vec(), at)
}

/// The body of a request frame, decoded to its last byte.
pub(super) fn decode_request<T: Decodable>(key: i16, version: i16, frame: &[u8]) -> T {
    let api = ApiKey::try_from(key).unwrap();
    let mut bytes = Bytes::copy_from_slice(frame);
    RequestHeader::decode(&mut bytes, api.request_header_version(version)).unwrap();
    let body = T::decode(&mut bytes, version).unwrap();
    assert_eq!(bytes.remaining(), 0);
    body
}

/// A response frame.
pub(super) fn response(key: i16, version: i16, body: &impl Encodable) -> Vec<u8> {
    let api = ApiKey::try_from(key).unwrap();
    let mut out = BytesMut::new();
    let header_version = api.response_header_version(version);
    let mut header = ResponseHeader::default().with_correlation_id(7);
    if header_version > 0 {
        let (tag, value) = UNKNOWN;
        header = header.with_unknown_tagged_field(tag, value);
    }
    header.encode(&mut out, header_version).unwrap();
    body.encode(&mut out, version).unwrap();
    out.to_vec()
}

/// The body of a response frame, decoded to its last byte.
pub(super) fn decode<T: Decodable>(key: i16, version: i16, frame: &[u8]) -> T {
    let api = ApiKey::try_from(key).unwrap();
    let mut bytes = Bytes::copy_from_slice(frame);
    ResponseHeader::decode(&mut bytes, api.response_header_version(version)).unwrap();
    let body = T::decode(&mut bytes, version).unwrap();
    assert_eq!(bytes.remaining(), 0);
    body
}

/// Strips the length of a whole frame, which must be right.
pub(super) fn unframed(whole: &[u8]) -> &[u8] {
    let (prefix, frame) = whole.split_first_chunk().unwrap();
    let length = usize::try_from(i32::from_be_bytes(*prefix)).unwrap();
    assert_eq!(length, frame.len());
    frame
}
