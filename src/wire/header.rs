//! The headers of requests and responses.

use super::WireError;

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
pub fn request_head(_frame: &[u8]) -> Option<RequestHead> {
    todo!()
}

/// Whether requests of this version have header version 2, and responses
/// header version 1 (those of ApiVersions excepted: always 0). `None` for the
/// apis that hapax does not decode.
pub fn flexible(_api_key: i16, _api_version: i16) -> Option<bool> {
    todo!()
}

/// The client id of a request frame, header version 1 or 2.
pub fn client_id(_frame: &[u8]) -> Result<Option<&[u8]>, WireError> {
    todo!()
}

/// Where the body of a request begins; `None` while its header is not whole.
pub fn body_at(_frame: &[u8], _flexible: bool) -> Result<Option<usize>, WireError> {
    todo!()
}

/// Where the body of a response begins, after correlation id and tagged fields.
pub fn response_body_at(_api_key: i16, _version: i16, _frame: &[u8]) -> Result<usize, WireError> {
    todo!()
}
