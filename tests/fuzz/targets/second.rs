//! The second opinion: what the protocol crate makes of a message. It reserves memory by announced counts, so it is only
//! asked about messages that hapax has walked to their end.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use hapax::wire::api;
use kafka_protocol::messages::{
    ApiVersionsResponse, DescribeClusterResponse, FetchResponse, FindCoordinatorResponse,
    MetadataResponse, ProduceRequest, ProduceResponse, ShareAcknowledgeResponse,
    ShareFetchResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, Message, StrBytes};

/// The body of a message, decoded to its last byte; `None` for versions that the crate does not have.
pub fn decode<T: Decodable + Message>(version: i16, body: &[u8]) -> Option<Result<T, String>> {
    if !(T::VERSIONS.min..=T::VERSIONS.max).contains(&version) {
        return None;
    }
    let mut bytes = Bytes::copy_from_slice(body);
    let decoded = T::decode(&mut bytes, version).map_err(|error| error.to_string());
    Some(match decoded {
        Ok(_) if !bytes.is_empty() => Err(format!("{} bytes are left", bytes.len())),
        decoded => decoded,
    })
}

/// The same for bytes that must be one.
pub fn certain<T: Decodable + Message>(version: i16, body: &[u8]) -> Option<T> {
    let decoded = decode(version, body)?;
    Some(decoded.unwrap_or_else(|error| panic!("version {version}: {error}: {body:?}")))
}

/// The bytes of a message.
pub fn encode<T: Encodable>(version: i16, message: &T) -> Vec<u8> {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).unwrap();
    out.to_vec()
}

/// A message with broker addresses in it.
pub trait Addressed: Decodable + Encodable + Message + Debug + PartialEq {
    /// Changes each address in the order of the wire; not those of controllers.
    fn readdress(&mut self, change: &mut dyn FnMut(i32, &mut StrBytes, &mut i32));

    /// Takes the node endpoints out, and whatever tagged fields stand in their place.
    fn without_endpoints(&mut self) {}
}

macro_rules! endpoints {
    ($($name:ident)*) => {$(
        impl Addressed for $name {
            fn readdress(&mut self, change: &mut dyn FnMut(i32, &mut StrBytes, &mut i32)) {
                for node in &mut self.node_endpoints {
                    change(node.node_id.0, &mut node.host, &mut node.port);
                }
            }

            fn without_endpoints(&mut self) {
                self.node_endpoints.clear();
                self.unknown_tagged_fields.clear();
            }
        }
    )*};
}
endpoints!(ProduceResponse FetchResponse ShareFetchResponse ShareAcknowledgeResponse);

impl Addressed for MetadataResponse {
    fn readdress(&mut self, change: &mut dyn FnMut(i32, &mut StrBytes, &mut i32)) {
        for broker in &mut self.brokers {
            change(broker.node_id.0, &mut broker.host, &mut broker.port);
        }
    }
}

impl Addressed for FindCoordinatorResponse {
    fn readdress(&mut self, change: &mut dyn FnMut(i32, &mut StrBytes, &mut i32)) {
        change(self.node_id.0, &mut self.host, &mut self.port);
        for found in &mut self.coordinators {
            change(found.node_id.0, &mut found.host, &mut found.port);
        }
    }
}

impl Addressed for DescribeClusterResponse {
    fn readdress(&mut self, change: &mut dyn FnMut(i32, &mut StrBytes, &mut i32)) {
        // KIP-919: they may be controllers.
        if self.endpoint_type == 2 {
            return;
        }
        for broker in &mut self.brokers {
            change(broker.broker_id.0, &mut broker.host, &mut broker.port);
        }
    }
}

/// Who is asked about a message, by its api.
pub trait Asker {
    type Answer;
    fn ask<T: Addressed>(self) -> Self::Answer;
}

pub fn ask<A: Asker>(api_key: i16, asker: A) -> A::Answer {
    match api_key {
        api::PRODUCE => asker.ask::<ProduceResponse>(),
        api::FETCH => asker.ask::<FetchResponse>(),
        api::METADATA => asker.ask::<MetadataResponse>(),
        api::FIND_COORDINATOR => asker.ask::<FindCoordinatorResponse>(),
        api::DESCRIBE_CLUSTER => asker.ask::<DescribeClusterResponse>(),
        api::SHARE_FETCH => asker.ask::<ShareFetchResponse>(),
        api::SHARE_ACKNOWLEDGE => asker.ask::<ShareAcknowledgeResponse>(),
        other => panic!("no message of api {other} has addresses"),
    }
}

/// Those whose type says which message it is.
pub type Request = ProduceRequest;
pub type Response = ProduceResponse;
pub type Versions = ApiVersionsResponse;
