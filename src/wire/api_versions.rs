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

/// The response `frame` to a request of `version`, with these ranges in place
/// of the broker's, or behind its own where it has none: what hapax answers
/// itself. `None` for a response that lists nothing, or has them all.
pub fn with_own(version: i16, frame: &[u8], own: &[Offered]) -> Result<Option<Vec<u8>>, WireError> {
    let flexible = version >= FLEXIBLE;
    let mut cursor = Cursor::new(frame);
    cursor.int32("a correlation id")?;
    if cursor.int16("an error code")? != 0 {
        return Ok(None);
    }
    let count_at = cursor.at();
    let count = cursor.count(flexible, "api keys")?.unwrap_or(0);
    let listed_at = cursor.at();
    let mut missing = own.to_vec();
    let mut changed = frame.to_vec();
    for _ in 0..count {
        let api_key = cursor.int16("an api key")?;
        let range_at = cursor.at();
        cursor.int16("a minimum version")?;
        cursor.int16("a maximum version")?;
        if flexible {
            cursor.tags()?;
        }
        let Some(at) = missing.iter().position(|own| own.api_key == api_key) else {
            continue;
        };
        let Offered { min, max, .. } = missing.swap_remove(at);
        let [a, b] = min.to_be_bytes();
        let [c, d] = max.to_be_bytes();
        let range = changed.get_mut(range_at..);
        if let Some(range) = range.and_then(<[u8]>::first_chunk_mut) {
            *range = [a, b, c, d];
        }
    }
    let listed_to = cursor.at();
    if missing.is_empty() {
        return Ok((changed != frame).then_some(changed));
    }
    let part = |range: std::ops::Range<usize>| changed.get(range).unwrap_or_default();
    let mut out = part(0..count_at).to_vec();
    cursor::put_count(&mut out, flexible, count + missing.len());
    out.extend(part(listed_at..listed_to));
    for Offered { api_key, min, max } in missing {
        for value in [api_key, min, max] {
            out.extend(value.to_be_bytes());
        }
        if flexible {
            out.push(0);
        }
    }
    out.extend(part(listed_to..changed.len()));
    Ok(Some(out))
}

/// The versions of one api that a broker has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offered {
    /// Which api.
    pub api_key: i16,
    /// Its oldest version.
    pub min: i16,
    /// Its newest version.
    pub max: i16,
}

/// What the response `frame` to a request of version 0 offers.
pub fn offered(frame: &[u8]) -> Result<Vec<Offered>, WireError> {
    let mut cursor = Cursor::new(frame);
    cursor.int32("a correlation id")?;
    let error = cursor.int16("an error code")?;
    if error != 0 {
        return Err(WireError::Malformed {
            what: "the error of an answer to ApiVersions",
            value: error.into(),
        });
    }
    let count = cursor.count(false, "api keys")?.unwrap_or(0);
    let mut offered = Vec::new();
    for _ in 0..count {
        offered.push(Offered {
            api_key: cursor.int16("an api key")?,
            min: cursor.int16("a minimum version")?,
            max: cursor.int16("a maximum version")?,
        });
    }
    Ok(offered)
}

/// A whole response, length first, to a version above [`NEWEST`]: what a broker
/// answers, in the layout of version 0, with the range of ApiVersions alone
/// (KIP-511).
pub fn unsupported(correlation_id: i32) -> Bytes {
    unsupported_above(NEWEST, correlation_id)
}

/// The same where `newest` is the newest version that is answered.
pub fn unsupported_above(newest: i16, correlation_id: i32) -> Bytes {
    let mut out = vec![0; 4];
    out.extend(correlation_id.to_be_bytes());
    out.extend(UNSUPPORTED_VERSION.to_be_bytes());
    cursor::put_count(&mut out, false, 1);
    for value in [api::API_VERSIONS, 0, newest] {
        out.extend(value.to_be_bytes());
    }
    cursor::seal(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{UNKNOWN, decode, response, text, unframed};
    use kafka_protocol::messages::ApiVersionsResponse;
    use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};
    use proptest::prelude::*;

    fn response_of(version: i16) -> ApiVersionsResponse {
        let (tag, value) = UNKNOWN;
        let mut offered = ApiVersionsResponse::default();
        for (key, min, max) in [
            (0, 0, 14),
            (18, 0, 5),
            (1, 4, 18),
            (3, 14, 15),
            (9, 0, 99),
            (999, 1, 2),
        ] {
            let mut api = ApiVersion::default()
                .with_api_key(key)
                .with_min_version(min)
                .with_max_version(max);
            if version >= FLEXIBLE {
                api.unknown_tagged_fields.insert(tag, value.clone());
            }
            offered.api_keys.push(api);
        }
        if version >= 1 {
            offered.throttle_time_ms = 3;
        }
        if version >= FLEXIBLE {
            offered.unknown_tagged_fields.insert(tag, value);
            offered.finalized_features_epoch = 8;
            offered.finalized_features =
                vec![FinalizedFeatureKey::default().with_name(text("transaction.version"))];
        }
        offered
    }

    #[test]
    fn only_the_maxima_of_decoded_apis_are_lowered() {
        // The response of version 5 has the layout of version 3.
        for version in 0..=NEWEST {
            let known = version.min(4);
            let before = response(18, known, &response_of(known));
            let mut frame = before.clone();
            let clamped = clamp(version, &mut frame).unwrap();
            let of = |api_key, from, to| Clamped { api_key, from, to };
            assert_eq!(clamped, [of(0, 14, 13), of(3, 15, 13)]);
            assert_eq!(frame.len(), before.len());
            let mut expected = response_of(known);
            expected.api_keys[0].max_version = 13;
            expected.api_keys[3].max_version = 13;
            assert_eq!(decode::<ApiVersionsResponse>(18, known, &frame), expected);
            assert_eq!(clamp(version, &mut frame), Ok(vec![]));
            for end in 0..frame.len() {
                let _ = clamp(version, &mut before[..end].to_vec());
            }
        }
        assert!(clamp(6, &mut [0; 64]).is_err());
    }

    #[test]
    fn what_is_offered_is_read_whole_or_not_at_all() {
        let frame = response(18, 0, &response_of(0));
        let read = offered(&frame).unwrap();
        assert_eq!(read.len(), 6);
        let (api_key, min, max) = (1, 4, 18);
        assert_eq!(read[2], Offered { api_key, min, max });
        for end in 0..frame.len() {
            assert!(offered(&frame[..end]).is_err());
        }
        let refusal = response_of(0).with_error_code(UNSUPPORTED_VERSION);
        assert!(offered(&response(18, 0, &refusal)).is_err());
    }

    #[test]
    fn what_hapax_answers_itself_is_listed_once() {
        let of = |api_key, min, max| Offered { api_key, min, max };
        let own = [of(17, 0, 1), of(36, 0, 2), of(9, 3, 4)];
        for version in 0..=4 {
            let mut before = response_of(version);
            if version == 1 {
                // A broker that has them all.
                for own in own {
                    let api = ApiVersion::default().with_api_key(own.api_key);
                    before.api_keys.push(api);
                }
                before.api_keys.swap_remove(4);
            }
            let frame = response(18, version, &before);
            let changed = with_own(version, &frame, &own).unwrap().unwrap();
            let after: ApiVersionsResponse = decode(18, version, &changed);
            for own in own {
                let listed = after.api_keys.iter().filter(|a| a.api_key == own.api_key);
                let ranges: Vec<_> = listed.map(|a| (a.min_version, a.max_version)).collect();
                assert_eq!(ranges, [(own.min, own.max)], "version {version}");
            }
            let others = |of: &ApiVersionsResponse| {
                let mut others = of.clone();
                others
                    .api_keys
                    .retain(|a| own.iter().all(|own| own.api_key != a.api_key));
                others
            };
            assert_eq!(others(&after), others(&before));
            assert_eq!(with_own(version, &changed, &own), Ok(None));
            for end in 0..frame.len() {
                let _ = with_own(version, &frame[..end], &own);
            }
        }
        let refusal = response_of(0).with_error_code(UNSUPPORTED_VERSION);
        assert_eq!(with_own(3, &response(18, 0, &refusal), &own), Ok(None));
    }

    #[test]
    fn an_older_brokers_refusal_is_relayed_as_it_is() {
        let refusal = response_of(0).with_error_code(UNSUPPORTED_VERSION);
        let before = response(18, 0, &refusal);
        let mut frame = before.clone();
        assert_eq!(clamp(3, &mut frame), Ok(vec![]));
        assert_eq!(frame, before);
    }

    #[test]
    fn rebootstrap_required_is_relayed_as_it_is() {
        let before = response(18, 4, &ApiVersionsResponse::default().with_error_code(129));
        let mut frame = before.clone();
        assert_eq!(clamp(5, &mut frame), Ok(vec![]));
        assert_eq!(frame, before);
    }

    #[test]
    fn a_version_from_the_future_is_refused_as_a_broker_does() {
        let whole = unsupported(7);
        let refusal: ApiVersionsResponse = decode(18, 0, unframed(&whole));
        let own = ApiVersion::default()
            .with_api_key(18)
            .with_max_version(NEWEST);
        let expected = ApiVersionsResponse::default().with_api_keys(vec![own]);
        assert_eq!(refusal, expected.with_error_code(UNSUPPORTED_VERSION));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100), version in -1i16..7,
        ) {
            let own = [Offered { api_key: 17, min: 0, max: 1 }];
            let _ = with_own(version, &bytes, &own);
            let mut frame = bytes.clone();
            let clamped = clamp(version, &mut frame).unwrap_or_default();
            prop_assert!(clamped.len() <= bytes.len());
            prop_assert!(offered(&bytes).unwrap_or_default().len() <= bytes.len());
            prop_assert_eq!(frame.len(), bytes.len());
        }
    }
}
