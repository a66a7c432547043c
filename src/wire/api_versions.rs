//! ApiVersions responses, lowered in place to what hapax can read.

use bytes::Bytes;

use super::cursor::{self, Cursor};
use super::{WireError, addresses, api, produce};

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

/// The newest version of an api that clients are offered; `None` for the apis
/// that hapax never looks into, all of whose versions pass.
pub const fn newest(api_key: i16) -> Option<i16> {
    Some(match api_key {
        api::API_VERSIONS => NEWEST,
        api::SASL_HANDSHAKE => 1,
        api::SASL_AUTHENTICATE => 2,
        api::ADD_OFFSETS_TO_TXN => 4,
        api::INIT_PRODUCER_ID | api::ADD_PARTITIONS_TO_TXN | api::END_TXN => 5,
        api::TXN_OFFSET_COMMIT => 6,
        _ => match addresses::newest(api_key) {
            -1 => return None,
            newest => newest,
        },
    })
}

// Below 12 the feature transaction.version would have to be taken from the
// response too: its clients no longer send AddPartitionsToTxn (KIP-890).
const _: () = assert!(produce::NEWEST >= 12 && produce::NEWEST == addresses::newest(api::PRODUCE));

const UNSUPPORTED_VERSION: i16 = 35;
const FLEXIBLE: i16 = 3;

/// Lowers the maxima of the apis that hapax decodes, in the response `frame`
/// to a request of `version`. Minima and the length never change.
///
/// An answer with UNSUPPORTED_VERSION has the layout of version 0 whatever was
/// asked for, and is left alone: all it says is which version to ask for. So
/// is REBOOTSTRAP_REQUIRED (KIP-1242), whose list is empty. Where a minimum is
/// above what hapax reads, the range becomes empty: the client sees no version
/// in common, as it would with a broker of another age.
pub fn clamp(version: i16, frame: &mut [u8]) -> Result<Vec<Clamped>, WireError> {
    if !(0..=NEWEST).contains(&version) {
        return Err(WireError::Unsupported {
            api_key: api::API_VERSIONS,
            version,
        });
    }
    let flexible = version >= FLEXIBLE;
    let mut clamped = Vec::new();
    let mut cursor = Cursor::new(frame);
    cursor.int32("a correlation id")?;
    if cursor.int16("an error code")? == UNSUPPORTED_VERSION {
        return Ok(clamped);
    }
    let count = cursor.count(flexible, "api keys")?.unwrap_or(0);
    let mut at = cursor.at();
    for _ in 0..count {
        let mut cursor = Cursor::starting(frame, at);
        let api_key = cursor.int16("an api key")?;
        cursor.int16("a minimum version")?;
        let max_at = cursor.at();
        let from = cursor.int16("a maximum version")?;
        if flexible {
            cursor.tags()?;
        }
        at = cursor.at();
        let Some(to) = newest(api_key).filter(|newest| *newest < from) else {
            continue;
        };
        if let Some(max) = frame.get_mut(max_at..).and_then(<[u8]>::first_chunk_mut) {
            *max = to.to_be_bytes();
        }
        clamped.push(Clamped { api_key, from, to });
    }
    Ok(clamped)
}

/// A whole response, length first, to a version above [`NEWEST`]: what a broker
/// answers, in the layout of version 0, with the range of ApiVersions alone
/// (KIP-511).
pub fn unsupported(correlation_id: i32) -> Bytes {
    let mut out = vec![0; 4];
    out.extend(correlation_id.to_be_bytes());
    out.extend(UNSUPPORTED_VERSION.to_be_bytes());
    cursor::put_count(&mut out, false, 1);
    for value in [api::API_VERSIONS, 0, NEWEST] {
        out.extend(value.to_be_bytes());
    }
    cursor::seal(out)
}
