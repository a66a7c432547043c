//! Kafka's bytes and the views that the proxy needs of them, without copying.
//!
//! A *frame* is what follows the four length bytes, a *body* what follows the
//! header of a frame. Nothing here waits, logs or allocates by a length that
//! the peer announced: every function sees bytes that have already arrived.

#![warn(clippy::indexing_slicing)]

pub mod addresses;
pub mod api_versions;
pub mod batch;
mod cursor;
pub mod fetch;
pub mod frame;
pub mod header;
pub mod login;
pub mod metadata;
pub mod produce;
pub mod recode;
pub mod sasl;
pub mod schema;
#[cfg(test)]
mod testing;
pub mod transactions;

/// Bytes that are not what the protocol says they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes end inside `what`.
    #[error("the bytes end inside {what}")]
    Truncated {
        /// The element that is not whole.
        what: &'static str,
    },
    /// `what` has a value that it cannot have.
    #[error("{what} cannot be {value}")]
    Malformed {
        /// The element.
        what: &'static str,
        /// What it says.
        value: i64,
    },
    /// Bytes are left after the end of the message.
    #[error("{count} bytes follow the end of {what}")]
    Trailing {
        /// The message.
        what: &'static str,
        /// How many bytes are left.
        count: usize,
    },
    /// A version that is not walked here.
    #[error("version {version} of {} is not one that hapax reads", api::name(*api_key))]
    Unsupported {
        /// Its api key.
        api_key: i16,
        /// Its version.
        version: i16,
    },
}

/// The api keys that hapax looks into.
pub mod api {
    #![allow(missing_docs, reason = "the names are Kafka's")]
    pub const PRODUCE: i16 = 0;
    pub const FETCH: i16 = 1;
    pub const LIST_OFFSETS: i16 = 2;
    pub const METADATA: i16 = 3;
    pub const FIND_COORDINATOR: i16 = 10;
    pub const SASL_HANDSHAKE: i16 = 17;
    pub const API_VERSIONS: i16 = 18;
    pub const INIT_PRODUCER_ID: i16 = 22;
    pub const ADD_PARTITIONS_TO_TXN: i16 = 24;
    pub const ADD_OFFSETS_TO_TXN: i16 = 25;
    pub const END_TXN: i16 = 26;
    pub const TXN_OFFSET_COMMIT: i16 = 28;
    pub const SASL_AUTHENTICATE: i16 = 36;
    pub const DESCRIBE_CLUSTER: i16 = 60;
    pub const SHARE_FETCH: i16 = 78;
    pub const SHARE_ACKNOWLEDGE: i16 = 79;

    /// A label for metrics: the api's name, or `other` for all but the commonest.
    pub fn name(key: i16) -> &'static str {
        match key {
            PRODUCE => "produce",
            FETCH => "fetch",
            METADATA => "metadata",
            FIND_COORDINATOR => "find_coordinator",
            API_VERSIONS => "api_versions",
            INIT_PRODUCER_ID => "init_producer_id",
            ADD_PARTITIONS_TO_TXN => "add_partitions_to_txn",
            ADD_OFFSETS_TO_TXN => "add_offsets_to_txn",
            END_TXN => "end_txn",
            TXN_OFFSET_COMMIT => "txn_offset_commit",
            _ => "other",
        }
    }
}
