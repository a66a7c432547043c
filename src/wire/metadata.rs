//! What a Metadata response says of the cluster: its brokers and their addresses.

use std::ops::Range;

use super::schema::{self, Field, Role, Value, Visitor};
use super::{WireError, api, header};
use crate::ids::NodeId;

/// The newest version whose response is read here.
pub const NEWEST: i16 = 12;
/// The oldest: in version 0 an empty list of topics asks for all of them.
pub const OLDEST: i16 = 1;

/// A cluster as one of its brokers describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    /// Its id, from version 2 on.
    pub id: Option<String>,
    /// The controller, or what passes for one with KRaft.
    pub controller: Option<NodeId>,
    /// The brokers in the order of the answer.
    pub brokers: Vec<Listed>,
}

/// A broker and what it advertises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its node id.
    pub node: NodeId,
    /// The host, which nothing promises to be a sound one.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Reads the whole response `frame`. Brokers without a node id, a host or a
/// port of `1..=65535` are none.
pub fn cluster(version: i16, frame: &[u8]) -> Result<Cluster, WireError> {
    let api_key = api::METADATA;
    let unsupported = WireError::Unsupported { api_key, version };
    if !(OLDEST..=NEWEST).contains(&version) {
        return Err(unsupported);
    }
    let mut all = schema::ADDRESSED.iter();
    let message = all.find(|message| message.api_key == api_key);
    let at = header::response_body_at(api_key, version, frame)?;
    let mut reader = Reader::default();
    schema::walk(message.ok_or(unsupported)?, version, frame, at, &mut reader)?;
    Ok(reader.cluster)
}

#[derive(Default)]
struct Reader {
    cluster: Cluster,
    node: Option<NodeId>,
    host: String,
}

impl<'a> Visitor<'a> for Reader {
    fn leaf(
        &mut self,
        field: &'static Field,
        _at: Range<usize>,
        value: Value<'a>,
    ) -> Result<(), WireError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let node = |raw| i32::try_from(raw).ok().and_then(NodeId::from_wire);
        match (field.role, value) {
            (Role::Node, Value::Int(raw)) => self.node = node(raw),
            (Role::Host, Value::Bytes(host)) => self.host = text(host.unwrap_or_default()),
            (Role::Port, Value::Int(port)) => {
                let host = std::mem::take(&mut self.host);
                if let (Some(node), Ok(port @ 1..), false) =
                    (self.node, u16::try_from(port), host.is_empty())
                {
                    self.cluster.brokers.push(Listed { node, host, port });
                }
            }
            (Role::ClusterId, Value::Bytes(id)) => self.cluster.id = id.map(text),
            (Role::Other, Value::Int(raw)) if field.name == "ControllerId" => {
                self.cluster.controller = node(raw);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{response, text};
    use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
    use kafka_protocol::messages::{BrokerId, MetadataResponse};
    use proptest::prelude::*;

    fn broker(node: i32, host: &str, port: i32) -> MetadataResponseBroker {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(node))
            .with_host(text(host))
            .with_port(port)
    }

    #[test]
    fn every_version_lists_the_brokers_that_have_an_address() {
        for version in OLDEST..=NEWEST {
            let mut answer = MetadataResponse::default()
                .with_controller_id(BrokerId(7))
                .with_brokers(vec![
                    broker(7, "kafka-7", 9092),
                    broker(70_000, "::1", 1),
                    broker(8, "", 9092),
                    broker(9, "kafka-9", 0),
                    broker(-1, "kafka", 9092),
                ]);
            if version >= 2 {
                answer.cluster_id = Some(text("cluster"));
            }
            let frame = response(api::METADATA, version, &answer);
            let read = cluster(version, &frame).unwrap();
            let listed = |id, host: &str, port| Listed {
                node: NodeId::from_wire(id).unwrap(),
                host: host.to_owned(),
                port,
            };
            let expected = Cluster {
                id: (version >= 2).then(|| "cluster".to_owned()),
                controller: NodeId::from_wire(7),
                brokers: vec![listed(7, "kafka-7", 9092), listed(70_000, "::1", 1)],
            };
            assert_eq!(read, expected, "version {version}");
            for end in 0..frame.len() {
                assert!(cluster(version, &frame[..end]).is_err());
            }
        }
        assert!(cluster(0, &[0; 64]).is_err());
        assert!(cluster(NEWEST + 1, &[0; 64]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), version in -1i16..15,
        ) {
            let read = cluster(version, &bytes).unwrap_or_default();
            prop_assert!(read.brokers.len() <= bytes.len());
        }
    }
}
