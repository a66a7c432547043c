//! ApiVersions responses, lowered in place to what hapax can read.

use bytes::Bytes;

use super::WireError;

/// The newest version of ApiVersions itself that is walked.
pub const NEWEST: i16 = 5;

/// A maximum version that was lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clamped {
    /// Which api.
    pub api_key: i16,
    /// What the broker said.
    pub from: i16,
    /// What the client is told.
    pub to: i16,
}

/// Lowers the maxima of the apis that hapax decodes, in the response `frame`
/// to a request of `version`. Minima and the length never change.
pub fn clamp(_version: i16, _frame: &mut [u8]) -> Result<Vec<Clamped>, WireError> {
    todo!()
}

/// A whole response, length first, to a version above [`NEWEST`].
pub fn unsupported(_correlation_id: i32) -> Bytes {
    todo!()
}
