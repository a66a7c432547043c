//! ApiVersions responses.

use bytes::Bytes;
use hapax::wire::api_versions::{NEWEST, clamp, newest, offered};
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use super::choices::Choices;
use super::messages::UNKNOWN_TAG;
use super::second;

/// The version, and a frame.
pub fn any(input: &[u8]) {
    let mut choices = Choices::new(input);
    let version = i16::from(choices.byte() as i8);
    let frame = choices.rest();
    check(version, frame);
    if let Ok(offered) = offered(frame) {
        assert!(offered.len() * 6 <= frame.len());
    }
}

/// A valid response, made by choices.
pub fn valid(input: &[u8]) {
    let mut choices = Choices::new(input);
    let version = i16::try_from(choices.below(usize::try_from(NEWEST + 1).unwrap())).unwrap();
    let frame = made(version, &mut choices);
    let response = second::certain::<ApiVersionsResponse>(version.min(4), &frame[4..]).unwrap();
    let lowered = check(version, &frame).expect("a valid response is read");
    let found = second::certain::<ApiVersionsResponse>(version.min(4), &lowered[4..]);
    let mut expected = response;
    if expected.error_code != 35 {
        for api in &mut expected.api_keys {
            let limit = newest(api.api_key).unwrap_or(i16::MAX);
            api.max_version = api.max_version.min(limit);
        }
    }
    assert_eq!(found, Some(expected));
}

/// The frame after clamping, which changes nothing but what it says, and nothing the second time.
fn check(version: i16, frame: &[u8]) -> Option<Vec<u8>> {
    let mut lowered = frame.to_vec();
    let clamped = clamp(version, &mut lowered).ok()?;
    assert_eq!(lowered.len(), frame.len());
    for clamped in &clamped {
        assert!(clamped.to < clamped.from && newest(clamped.api_key) == Some(clamped.to));
    }
    let changed = lowered.iter().zip(frame).filter(|(a, b)| a != b).count();
    assert!(changed <= 2 * clamped.len(), "{changed} bytes changed");
    assert_eq!(clamp(version, &mut lowered.clone()), Ok(Vec::new()));
    Some(lowered)
}

/// The frame of a valid response.
pub fn made(version: i16, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut response = ApiVersionsResponse::default().with_error_code(choices.of(&[0, 0, 35, 129]));
    for _ in 0..choices.byte() {
        let key = choices.of(&[
            0, 1, 3, 10, 17, 18, 22, 24, 25, 26, 28, 36, 60, 78, 79, 12, -1, 9999,
        ]);
        let mut api = ApiVersion::default()
            .with_api_key(key)
            .with_min_version(choices.number() as i16)
            .with_max_version(choices.number() as i16);
        if version >= 3 && choices.rarely(8) {
            let content = Bytes::copy_from_slice(choices.bytes(140));
            api.unknown_tagged_fields
                .insert(UNKNOWN_TAG.cast_signed(), content);
        }
        response.api_keys.push(api);
    }
    if version >= 1 {
        response.throttle_time_ms = choices.number() as i32;
    }
    if version >= 3 && choices.rarely(2) {
        response.finalized_features_epoch = choices.number();
        response.zk_migration_ready = choices.rarely(2);
    }
    let mut frame = vec![0, 0, 0, 7];
    // Version 5 is laid out as version 4.
    frame.extend(second::encode(version.min(4), &response));
    frame
}
