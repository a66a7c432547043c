//! hapax asks for itself what it otherwise hears in answers to clients: which
//! cluster this is, its brokers, and which ids topics have.

use super::reply::Guide;
use super::shared::Shared;
use crate::upstream::{Conversation, ProbeError};
use crate::wire::{addresses, api, metadata};
use std::sync::Arc;

/// Topics that one request asks for: their partitions must fit in an answer.
const TOPICS_AT_A_TIME: usize = 50;
/// Metadata answers have the ids of topics from here on (KIP-516).
const WITH_IDS: i16 = 10;

impl Shared {
    /// Asks a bootstrap server. One that wants SASL tells nobody else, and hapax
    /// only where it logs in itself.
    ///
    /// # Errors
    ///
    /// Where no sound answer comes in time; what was learned by then stays.
    pub async fn introduce(&self, topics: &[String]) -> Result<(), ProbeError> {
        let upstream = self.dial(&self.brokers.bootstrap()).await?;
        let mut broker = Conversation::new(upstream.stream, self.current().timeouts.connect);
        let offered = broker.api_versions().await?;
        let offered = offered.iter().find(|api| api.api_key == api::METADATA);
        let Some(version) = offered.map(|api| api.max.min(metadata::NEWEST)) else {
            return Ok(());
        };
        if version < metadata::OLDEST {
            return Ok(());
        }
        let host = Arc::from("localhost");
        // Without topics first: that shows the cluster.
        let topics = if version < WITH_IDS { &[] } else { topics };
        for some in std::iter::once(&[][..]).chain(topics.chunks(TOPICS_AT_A_TIME)) {
            let frame = broker.describe(version, some).await?;
            let mut guide = Guide::new(self, &host);
            addresses::rewrite(api::METADATA, version, &frame, &mut guide)?;
        }
        Ok(())
    }
}
