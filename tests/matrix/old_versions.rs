//! Every version of the calls that name brokers or versions, asked of one
//! Kafka direct and through hapax: the same answers, but for hapax's addresses.
//!
//! Old clients still use the first versions; a library decodes them here, not hapax.

use std::time::Duration;

use kafka_protocol::messages::find_coordinator_response::FindCoordinatorResponse;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::{Message, StrBytes};

use crate::cells::World;
use crate::support::await_until;
use crate::support::raw::{Client as Raw, topic_name};

const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;

/// What differs, in words.
pub(crate) fn complaints(world: &World, topic: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut direct = Raw::connect(&world.kafka.bootstrap()).expect("Kafka serves");
    let mut hapax = Raw::connect(&world.hapax.bootstrap).expect("hapax serves");
    let offered = direct.api_versions(0).expect("ApiVersions is answered");
    let versions = |api_key, known: i16| {
        let api = offered.api_keys.iter().find(|api| api.api_key == api_key);
        let api = api.expect("an api of every broker");
        api.min_version..=api.max_version.min(known)
    };

    let lowered = hapax.api_versions(0).expect("ApiVersions is answered") != offered;
    for version in 0..=5 {
        let ours = hapax.api_versions_raw(version).expect("an answer");
        let theirs = direct.api_versions_raw(version).expect("an answer");
        if ours.len() != theirs.len() || (!lowered && ours != theirs) {
            complaints.push(format!("ApiVersions {version}: {theirs:?} is {ours:?}"));
        }
    }
    for version in versions(METADATA, MetadataResponse::VERSIONS.max) {
        let mut ours = metadata(&mut hapax, version, topic);
        let mut theirs = metadata(&mut direct, version, topic);
        for broker in &ours.brokers {
            if !is_ours(world, &broker.host, broker.port) {
                complaints.push(format!("Metadata {version} names {broker:?}"));
            }
        }
        for broker in ours.brokers.iter_mut().chain(&mut theirs.brokers) {
            (broker.host, broker.port) = (StrBytes::default(), 0);
        }
        if ours != theirs {
            complaints.push(format!("Metadata {version}: {theirs:?} is {ours:?}"));
        }
    }
    await_until("a coordinator", Duration::from_secs(30), || {
        coordinator(&mut direct, 0).0.error_code == 0
    });
    for version in versions(FIND_COORDINATOR, FindCoordinatorResponse::VERSIONS.max) {
        let ours = coordinator(&mut hapax, version);
        let theirs = coordinator(&mut direct, version);
        for (host, port) in &ours.1 {
            if !is_ours(world, host, *port) {
                complaints.push(format!("FindCoordinator {version} names {host}:{port}"));
            }
        }
        if ours.0 != theirs.0 || ours.1.len() != theirs.1.len() {
            complaints.push(format!("FindCoordinator {version}: {theirs:?} is {ours:?}"));
        }
    }
    complaints
}

fn metadata(raw: &mut Raw, version: i16, topic: &str) -> MetadataResponse {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    raw.call(version, &request).expect("an answer")
}

/// An answer without addresses, and the addresses.
fn coordinator(raw: &mut Raw, version: i16) -> (FindCoordinatorResponse, Vec<(StrBytes, i32)>) {
    let group = StrBytes::from_static_str("a group");
    let request = match version {
        0..4 => FindCoordinatorRequest::default().with_key(group),
        _ => FindCoordinatorRequest::default().with_coordinator_keys(vec![group]),
    };
    let mut answer = raw.call(version, &request).expect("an answer");
    let mut addresses = Vec::new();
    if version < 4 {
        addresses.push((std::mem::take(&mut answer.host), answer.port));
        answer.port = 0;
    }
    for coordinator in &mut answer.coordinators {
        addresses.push((std::mem::take(&mut coordinator.host), coordinator.port));
        coordinator.port = 0;
    }
    (answer, addresses)
}

fn is_ours(world: &World, host: &str, port: i32) -> bool {
    let first = i32::from(world.hapax.first_port);
    host == "127.0.0.1" && (first..first + 2).contains(&port)
}
