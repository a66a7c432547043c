//! ApiVersions: what clients are offered.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use crate::world::{Pair, World};

/// Sends a request of `version`, has the broker answer `body`, gives the
/// client's answer.
fn asked(pair: &mut Pair, version: i16, body: &[u8]) -> Bytes {
    let Pair { client, broker } = pair;
    std::thread::scope(|scope| {
        let answered = scope.spawn(|| client.api_versions_raw(version).unwrap());
        let asked = broker.next();
        assert_eq!((asked.key, asked.version), (18, version));
        broker.answer_raw(&asked, body);
        answered.join().unwrap()
    })
}

fn api(key: i16, min: i16, max: i16) -> ApiVersion {
    ApiVersion::default()
        .with_api_key(key)
        .with_min_version(min)
        .with_max_version(max)
}

fn encoded(version: i16, response: &ApiVersionsResponse) -> Bytes {
    let mut body = BytesMut::new();
    response.encode(&mut body, version).unwrap();
    body.freeze()
}

/// A broker of the future: newer versions, unknown apis, unknown tagged fields.
fn future() -> ApiVersionsResponse {
    let supported = SupportedFeatureKey::default()
        .with_name(StrBytes::from_static_str("transaction.version"))
        .with_max_version(2);
    let finalized = FinalizedFeatureKey::default()
        .with_name(StrBytes::from_static_str("transaction.version"))
        .with_max_version_level(2);
    let tagged = api(0, 0, 14).with_unknown_tagged_field(7, Bytes::from_static(b"of an api"));
    ApiVersionsResponse::default()
        .with_api_keys(vec![
            tagged,
            api(1, 0, 99),
            api(3, 0, 99),
            api(11, 0, 99),
            api(18, 0, 6),
            api(1234, 5, 6),
        ])
        .with_supported_features(vec![supported])
        .with_finalized_features_epoch(9)
        .with_finalized_features(vec![finalized])
        .with_unknown_tagged_field(100, Bytes::from_static(b"who knows"))
}

/// What hapax makes of [`future`].
fn lowered() -> ApiVersionsResponse {
    let mut lowered = future();
    for (api, max) in lowered.api_keys.iter_mut().zip([13, 18, 13, 99, 5, 6]) {
        api.max_version = max;
    }
    lowered
}

/// The Java client of 4.4 asks by version 5, whose answer is laid out as 3.
#[test]
fn maxima_are_lowered_and_nothing_else_changes_up_to_version_5() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for version in [3, 4, 5] {
        let layout = version.min(4);
        let answer = asked(&mut pair, version, &encoded(layout, &future()));
        assert_eq!(answer, encoded(layout, &lowered()), "version {version}");
    }
    for version in 0..3 {
        let plain = |of: ApiVersionsResponse| {
            let keys = of.api_keys.iter();
            let keys = keys.map(|k| api(k.api_key, k.min_version, k.max_version));
            encoded(
                version,
                &ApiVersionsResponse::default().with_api_keys(keys.collect()),
            )
        };
        let answer = asked(&mut pair, version, &plain(future()));
        assert_eq!(answer, plain(lowered()), "version {version}");
    }
}

#[test]
fn an_answer_that_needs_no_change_is_relayed_as_it_is() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let old = ApiVersionsResponse::default().with_api_keys(vec![
        api(0, 3, 9),
        api(3, 0, 12),
        api(18, 0, 3),
    ]);
    for version in 0..=5 {
        let body = encoded(version.min(4), &old);
        assert_eq!(asked(&mut pair, version, &body), body);
    }
}

#[test]
fn an_old_brokers_refusal_is_relayed_as_it_is() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let refusal = ApiVersionsResponse::default()
        .with_error_code(35)
        .with_api_keys(vec![api(18, 0, 3), api(0, 0, 99)]);
    let body = encoded(0, &refusal);
    for version in 3..=5 {
        assert_eq!(asked(&mut pair, version, &body), body);
    }
}

#[test]
fn rebootstrap_required_is_relayed_as_it_is() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let body = encoded(4, &ApiVersionsResponse::default().with_error_code(129));
    assert_eq!(asked(&mut pair, 5, &body), body);
}

#[test]
fn a_version_above_5_is_refused_by_hapax_in_the_layout_of_0() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    for version in [6, 7, 32_767] {
        let mut answer = pair.client.api_versions_raw(version).unwrap();
        let refusal = ApiVersionsResponse::decode(&mut answer, 0).unwrap();
        assert!(answer.is_empty());
        assert_eq!(refusal.error_code, 35);
        assert_eq!(refusal.api_keys, [api(18, 0, 5)]);
        pair.barrier();
    }
}

/// An operator's first look: is the broker's answer counted, is ours?
#[test]
fn an_answer_of_our_own_counts_as_short_circuit() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    pair.client.api_versions_raw(6).unwrap();
    let labels = ["api=\"api_versions\"", "outcome=\"short_circuit\""];
    assert_eq!(world.hapax.metric("hapax_requests_total", &labels), 1.0);
}
