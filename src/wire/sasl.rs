//! Who authenticates, without what they authenticate with.

use super::WireError;

/// The mechanism that a SaslHandshake request body asks for.
pub fn handshake_mechanism(_version: i16, _body: &[u8]) -> Result<&str, WireError> {
    todo!()
}

/// The error of a SaslHandshake response.
pub fn handshake_error(_frame: &[u8]) -> Result<i16, WireError> {
    todo!()
}

/// The token in a SaslAuthenticate request body.
pub fn authenticate_token(_version: i16, _body: &[u8]) -> Result<&[u8], WireError> {
    todo!()
}

/// The error of a SaslAuthenticate response.
pub fn authenticate_error(_version: i16, _frame: &[u8]) -> Result<i16, WireError> {
    todo!()
}

/// The user that the first token of an exchange names; `None` where it cannot
/// be read or an authorization id differs from it.
pub fn user(_mechanism: &str, _first_token: &[u8]) -> Option<String> {
    todo!()
}

/// Client tokens in a successful exchange; `None` for mechanisms not known here.
pub fn rounds(_mechanism: &str) -> Option<u8> {
    todo!()
}

/// Whether a frame after SaslHandshake v0 is a request and no longer a token.
pub fn looks_like_request(_frame: &[u8]) -> bool {
    todo!()
}
