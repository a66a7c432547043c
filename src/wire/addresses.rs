//! Broker addresses in responses, replaced or blanked.

use std::sync::Arc;

use bytes::Bytes;

use super::WireError;
use crate::ids::{NodeId, TopicId};

/// Who knows where clients should go, and is told what responses say.
pub trait Directory {
    /// Where clients should go for this broker; replaces its host and port.
    fn broker(&mut self, node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16);
    /// The cluster's id (Metadata, DescribeCluster).
    fn cluster_id(&mut self, _id: &str) {}
    /// The response listed every broker of the cluster, and at least one.
    fn brokers_complete(&mut self) {}
    /// A topic that Metadata lists without an error.
    fn topic(&mut self, _name: Option<&str>, _id: Option<TopicId>) {}
}

/// Whether responses of this version may carry broker addresses.
pub fn rewrites(_api_key: i16, _version: i16) -> bool {
    todo!()
}

/// The newest version of an api whose responses are rewritten; −1 for others.
pub const fn newest(_api_key: i16) -> i16 {
    todo!()
}

/// The response `frame` with the addresses that `directory` gives; whole, length
/// first; `None` where nothing changes. All other bytes are kept.
pub fn rewrite(
    _api_key: i16,
    _version: i16,
    _frame: &[u8],
    _directory: &mut dyn Directory,
) -> Result<Option<Bytes>, WireError> {
    todo!()
}

/// Finds the node endpoints at the end of a Fetch (16 and newer) or ShareFetch
/// response whose bytes arrive in pieces.
#[derive(Clone, Debug)]
pub struct EndpointScan {}

impl EndpointScan {
    /// A scan at the beginning of a frame (its correlation id).
    pub fn new(_api_key: i16, _version: i16) -> Result<Self, WireError> {
        todo!()
    }

    /// Consumes whole elements; returns how many bytes were, which may be
    /// forwarded. Consumes nothing once at the tail.
    pub fn advance(&mut self, _bytes: &[u8]) -> Result<usize, WireError> {
        todo!()
    }

    /// Whether the rest of the frame has to be collected whole, for [`blank`].
    pub fn at_tail(&self) -> bool {
        todo!()
    }
}

/// Blanks the endpoints in `tail`, the end of a frame from where an
/// [`EndpointScan`] stopped, without changing its length.
pub fn blank(_api_key: i16, _version: i16, _tail: &mut [u8]) -> Result<(), WireError> {
    todo!()
}
