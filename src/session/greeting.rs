//! What brokers offer, for clients that have not authenticated to hapax yet.
//!
//! Each broker is asked once in a while for all of them together, so that
//! clients nobody knows cost the cluster next to nothing however many they are.

use super::shared::Shared;
use crate::ids::NodeId;
use crate::timers::timeout;
use crate::upstream::{Conversation, DialError, ProbeError, Target};
use crate::users::SASL_APIS;
use crate::wire::api_versions;
use dashmap::DashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How old an answer may be. A client keeps what it heard for as long as it is
/// connected.
const FRESH: Duration = Duration::from_secs(10);
/// For how long a broker that has no answer is not asked again.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// What came of a broker that says nothing for so long.
fn silent(target: &Target, after: Duration) -> DialError {
    let address = target.addresses.first().cloned();
    address.map_or(DialError::Nothing, |address| DialError::Timeout {
        address,
        after,
    })
}

type Answer = Arc<Mutex<Option<(Instant, Option<Arc<[u8]>>)>>>;

/// What brokers offered lately, by node and version of ApiVersions.
#[derive(Default)]
pub(super) struct Greetings(DashMap<(Option<NodeId>, i16), Answer>);

impl Greetings {
    /// Where the answer of a broker is; nothing of the map is locked by it.
    fn of(&self, node: Option<NodeId>, version: i16) -> Answer {
        Arc::clone(&self.0.entry((node, version)).or_default())
    }
}

/// Why it is not known what a broker offers.
pub(super) enum NoOffer {
    /// It cannot be reached.
    Dial(DialError),
    /// That was found out, and told, a moment ago.
    Known,
}

impl Shared {
    /// The broker's answer to ApiVersions of this version, lowered to what
    /// hapax reads, with hapax's own SASL.
    pub(super) async fn offers(&self, target: &Target, version: i16) -> Result<Arc<[u8]>, NoOffer> {
        let place = self.greetings.of(target.node, version);
        // Whoever comes meanwhile waits for this one's answer.
        let mut known = place.lock().await;
        match &*known {
            Some((at, Some(answer))) if at.elapsed() < FRESH => return Ok(Arc::clone(answer)),
            Some((at, None)) if at.elapsed() < FAILED_FOR => return Err(NoOffer::Known),
            _ => {}
        }
        // Before the client's own time is over, so that what comes of it is known to the next one.
        let patience = self.current().timeouts.sasl / 2;
        let asked = timeout(patience, self.ask_offers(target, version)).await;
        let asked = asked.unwrap_or_else(|_| Err(NoOffer::Dial(silent(target, patience))));
        let answer = asked.as_ref().ok().map(Arc::clone);
        *known = Some((Instant::now(), answer));
        asked
    }

    async fn ask_offers(&self, target: &Target, version: i16) -> Result<Arc<[u8]>, NoOffer> {
        let broker = self.dial(target).await.map_err(NoOffer::Dial)?;
        let patience = self.current().timeouts.connect;
        let mut broker = Conversation::new(broker.stream, patience);
        let answer = broker.api_versions_in(version).await;
        let answer = answer.and_then(|mut answer| {
            api_versions::clamp(version, &mut answer)?;
            let own = api_versions::with_own(version, &answer, &SASL_APIS)?;
            Ok::<_, ProbeError>(own.unwrap_or(answer))
        });
        answer.map(Arc::from).map_err(|error| {
            let node = target.node.map(NodeId::to_wire);
            tracing::warn!(node, reason = %error, "a broker does not say what it offers, clients cannot authenticate");
            NoOffer::Known
        })
    }
}
