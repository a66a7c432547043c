//! Responses: which pass, which are read, which are changed.

use super::end::End;
use super::outbox::Pass;
use super::pipeline::{Owed, Reply, Unpaired};
use super::readback::ANSWER_MAX;
use super::route::{NAME_KEPT_MAX, PREFIX};
use super::splice::RUN_MIN;
use super::told::{Matter, several};
use super::{FIRST_PART, Session};
use crate::config::{Collisions, told_host};
use crate::events::{Event, Kind};
use crate::ids::{NodeId, TopicId};
use crate::ledger::UNSEEN_FENCE;
use crate::metrics::{BadFrame, FencedBy, Outcome, Side};
use crate::session::shared::Shared;
use crate::users::SASL_APIS;
use crate::wire::addresses::{self, Directory, EndpointScan};
use crate::wire::transactions::{self, Claim};
use crate::wire::{WireError, api, api_versions, frame, sasl};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// What may have to be collected of a response behind its streamed part.
const TAIL_MAX: usize = 1024 * 1024;

/// Where in the responses of a broker a session stands.
pub(super) enum ReplyStage {
    /// Between two frames.
    Head,
    /// In a frame of which `left` bytes pass unseen.
    Pass { left: usize },
    /// In a frame of which `left` bytes are dropped: an answer to hapax that
    /// nobody waits for any more.
    Drop { left: usize },
    /// Between two frames, of which the first waits for the log to be read:
    /// nothing may overtake it.
    Waits,
    /// In a large frame that ends in broker addresses; `left` bytes of it
    /// have not passed.
    Scan {
        left: usize,
        scan: Box<EndpointScan>,
        api_key: i16,
        version: i16,
    },
}

impl ReplyStage {
    pub(super) fn at_head(&self) -> bool {
        matches!(self, Self::Head)
    }

    /// How many of the next bytes nobody has to see.
    pub(super) fn unseen(&self) -> usize {
        match self {
            Self::Pass { left } => *left,
            // Records that do not end with their response are refused there.
            Self::Scan { left, scan, .. } if scan.skip() <= *left => scan.skip(),
            Self::Scan { .. } | Self::Head | Self::Drop { .. } | Self::Waits => 0,
        }
    }

    /// Whether those are worth a pipe.
    pub(super) fn begins_run(&self) -> bool {
        self.unseen() >= RUN_MIN
    }

    /// `bytes` of those have passed, `bytes <= self.unseen()`.
    pub(super) fn passed(&mut self, bytes: usize) {
        match self {
            Self::Pass { left } => *left -= bytes,
            Self::Scan { left, scan, .. } => {
                scan.skipped(bytes);
                *left -= bytes;
            }
            Self::Head | Self::Drop { .. } | Self::Waits => {}
        }
    }
}

impl Session {
    /// Deals with as many bytes as it can.
    pub(super) fn replies(&mut self, pass: &mut Pass<'_>) -> Result<(), End> {
        self.mail_wanted = 0;
        loop {
            let available = pass.rest().len();
            let done = match &mut self.reply {
                ReplyStage::Head => {
                    if !self.reply_head(pass)? {
                        return Ok(());
                    }
                    self.reply.at_head()
                }
                ReplyStage::Waits => {
                    self.mail_wanted = usize::MAX;
                    return Ok(());
                }
                ReplyStage::Drop { left } => {
                    let n = available.min(*left);
                    pass.drop(n);
                    *left -= n;
                    if *left > 0 {
                        return Ok(());
                    }
                    true
                }
                ReplyStage::Pass { left } => {
                    let n = available.min(*left);
                    pass.keep(n);
                    *left -= n;
                    if *left > 0 {
                        return Ok(());
                    }
                    true
                }
                ReplyStage::Scan { .. } => {
                    if !self.scan_on(pass)? {
                        return Ok(());
                    }
                    true
                }
            };
            if done {
                self.reply = ReplyStage::Head;
                self.answer_in_turn(pass);
            }
        }
    }

    /// Answers of hapax's own go between those of the broker.
    fn answer_in_turn(&mut self, pass: &mut Pass<'_>) {
        while let Some((owed, bytes)) = self.pipeline.take_ready() {
            pass.replace(0, &bytes);
            self.done(&owed, Outcome::ShortCircuit);
        }
    }

    /// Deals with the head of a frame. Returns `false` where more bytes must
    /// come first.
    fn reply_head(&mut self, pass: &mut Pass<'_>) -> Result<bool, End> {
        let rest = pass.rest();
        let Some((prefix, rest)) = rest.split_first_chunk::<PREFIX>() else {
            return Ok(false);
        };
        let token = self
            .pipeline
            .front()
            .is_some_and(|owed| matches!(owed.reply, Reply::Token));
        let min = if token { 0 } else { frame::MIN_RESPONSE };
        let limit = self.config.limits.frame_bytes;
        let len = frame::length(*prefix, min, limit)
            .map_err(|error| self.shared.bad_frame(Side::Upstream, pass.rest(), error))?;
        if token {
            return Ok(self.token_reply(pass, len));
        }
        let Some(correlation_id) = rest.first_chunk::<4>() else {
            return Ok(false);
        };
        let front = self.pipeline.front();
        let whole_needed = front.is_some_and(|owed| needs_whole(owed, len));
        if whole_needed && rest.len() < len {
            self.mail_wanted = PREFIX + len;
            return Ok(false);
        }
        if front.is_some_and(|owed| owed.sent.is_none()) {
            return Err(self.unpaired(Unpaired::Early));
        }
        let correlation_id = i32::from_be_bytes(*correlation_id);
        let taken = self.pipeline.take(correlation_id);
        let owed = taken.map_err(|unpaired| self.unpaired(unpaired))?;
        if self.authentication.answered(owed.head.api_key) {
            self.prove();
        }
        if whole_needed {
            let frame = rest.get(..len).unwrap_or_default();
            let replaced = match owed.reply {
                Reply::Produce(_) => self.produce_reply(owed, frame)?,
                _ => self.read_reply(&owed, frame)?,
            };
            match replaced {
                Some(bytes) => pass.replace(PREFIX + len, &bytes),
                None => pass.keep(PREFIX + len),
            }
            return Ok(true);
        }
        if matches!(owed.reply, Reply::ReadBack) {
            self.too_large(&owed);
            pass.drop(PREFIX);
            self.reply = ReplyStage::Drop { left: len };
            return Ok(true);
        }
        self.answered(&owed, true);
        self.stream_reply(pass, &owed, len)?;
        Ok(true)
    }

    fn unpaired(&self, unpaired: Unpaired) -> End {
        let bad = &self.shared.metrics.bad_frames;
        bad.with(Side::Upstream, BadFrame::Unpaired).inc();
        End::Unpaired(unpaired)
    }

    /// Lets a response pass that need not be read whole.
    fn stream_reply(&mut self, pass: &mut Pass<'_>, owed: &Owed, len: usize) -> Result<(), End> {
        let (api_key, version) = (owed.head.api_key, owed.head.api_version);
        pass.keep(PREFIX);
        self.reply = if matches!(owed.reply, Reply::Addresses) {
            let scan = EndpointScan::new(api_key, version)
                .map_err(|error| self.malformed(Side::Upstream, error))?;
            ReplyStage::Scan {
                left: len,
                scan: Box::new(scan),
                api_key,
                version,
            }
        } else {
            ReplyStage::Pass { left: len }
        };
        Ok(())
    }

    /// Lets a large response pass up to its addresses, and blanks those.
    fn scan_on(&mut self, pass: &mut Pass<'_>) -> Result<bool, End> {
        let ReplyStage::Scan {
            left,
            scan,
            api_key,
            version,
        } = &mut self.reply
        else {
            return Ok(true);
        };
        let (api_key, version) = (*api_key, *version);
        let rest = pass.rest();
        let frame = rest.get(..(*left).min(rest.len())).unwrap_or_default();
        let scanned = scan.advance(frame);
        let at_tail = scan.at_tail();
        let passed = match scanned {
            Ok(passed) => passed,
            Err(error) => return Err(self.malformed(Side::Upstream, error)),
        };
        *left -= passed;
        let left = *left;
        pass.keep(passed);
        if left == 0 {
            return Ok(true);
        }
        if !at_tail {
            // An element that is not whole: come back with more.
            let whole_and_stuck = frame.len() - passed == left;
            if whole_and_stuck {
                let what = "a response with addresses";
                return Err(self.malformed(Side::Upstream, WireError::Truncated { what }));
            }
            self.mail_wanted = (frame.len() - passed) + 1;
            return Ok(false);
        }
        if left > TAIL_MAX {
            let value = i64::try_from(left).unwrap_or(i64::MAX);
            let what = "the end of a response with addresses";
            return Err(self.malformed(Side::Upstream, WireError::Malformed { what, value }));
        }
        let Some(tail) = pass.rest().get(..left) else {
            self.mail_wanted = left;
            return Ok(false);
        };
        let mut tail = tail.to_vec();
        addresses::blank(api_key, version, &mut tail)
            .map_err(|error| self.malformed(Side::Upstream, error))?;
        pass.replace(left, &tail);
        Ok(true)
    }

    fn token_reply(&mut self, pass: &mut Pass<'_>, len: usize) -> bool {
        if let Some(owed) = self.pipeline.take_token() {
            self.authentication.token_answered(sasl::TokenAnswer {
                error: 0,
                is_empty: len == 0,
            });
            self.prove();
            self.answered(&owed, true);
        }
        pass.keep(PREFIX);
        self.reply = ReplyStage::Pass { left: len };
        true
    }

    /// Reads a whole response. Returns what the client gets in its place.
    fn read_reply(&mut self, owed: &Owed, frame: &[u8]) -> Result<Option<Bytes>, End> {
        let (api_key, version) = (owed.head.api_key, owed.head.api_version);
        let malformed = |error| self.malformed(Side::Upstream, error);
        let (ok, replaced) = match &owed.reply {
            Reply::ReadBack => {
                self.answer_came(owed, frame);
                return Ok(Some(Bytes::new()));
            }
            Reply::Login => {
                self.login_answered(owed, frame)?;
                return Ok(Some(Bytes::new()));
            }
            Reply::Addresses => (true, self.rewritten(api_key, version, frame)?),
            Reply::ApiVersions => {
                let mut copy = frame.to_vec();
                let clamped = api_versions::clamp(version, &mut copy).map_err(malformed)?;
                let mut changed = !clamped.is_empty();
                if self.authentication.is_settled()
                    && let Some(own) =
                        api_versions::with_own(version, &copy, &SASL_APIS).map_err(malformed)?
                {
                    (copy, changed) = (own, true);
                }
                (true, changed.then(|| frame::with_length(&copy).into()))
            }
            Reply::Handshake => {
                let error = sasl::handshake_error(frame).map_err(malformed)?;
                self.authentication.handshake_answered(error);
                (error == 0, None)
            }
            Reply::Authenticate => {
                let answer = sasl::authenticate_answer(version, frame).map_err(malformed)?;
                self.authentication.token_answered(answer);
                self.prove();
                (answer.error == 0, None)
            }
            Reply::Insight(claim) => (self.insight(api_key, version, claim, frame), None),
            Reply::Produce(_) | Reply::Pass | Reply::Token | Reply::Ready(_) => (true, None),
        };
        self.answered(owed, ok);
        Ok(replaced)
    }

    /// The response with our addresses in place of the brokers'.
    pub(super) fn rewritten(
        &self,
        api_key: i16,
        version: i16,
        frame: &[u8],
    ) -> Result<Option<Bytes>, End> {
        let rewrite = || {
            let mut guide = Guide::new(&self.shared, &self.advertised);
            addresses::rewrite(api_key, version, frame, &mut guide)
        };
        let mut rewritten = rewrite();
        if self.config.slot_collisions == Collisions::Refuse {
            // A broker may have lost its port to one that the same answer
            // names later.
            rewritten = rewrite();
        }
        rewritten.map_err(|error| self.malformed(Side::Upstream, error))
    }

    /// What a coordinator's answer tells of a producer. Returns whether it
    /// was one without an error.
    fn insight(&self, api_key: i16, version: i16, claim: &Claim, frame: &[u8]) -> bool {
        let outcome = match transactions::outcome(api_key, version, frame) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return true,
            Err(error) => {
                tracing::debug!(%error, "cannot read a coordinator's answer");
                return true;
            }
        };
        let transactional_id: Option<Arc<str>> = claim
            .transactional_id
            .as_deref()
            .map(|id| id[..id.floor_char_boundary(NAME_KEPT_MAX)].into());
        if let Some((id, epoch)) = outcome.announced {
            if let Some(producer) = self.shared.ledger.producer(id, self.time) {
                producer.announce(epoch);
                if let Some(name) = &transactional_id {
                    producer.grant(epoch);
                    producer.transactional_id.get_or_init(|| Arc::clone(name));
                }
                if let Some(name) = self.info.client_id.get() {
                    producer.client_id.get_or_init(|| Arc::clone(name));
                }
            }
            if api_key == api::INIT_PRODUCER_ID {
                self.shared.metrics.producer_ids_issued.inc();
            }
        }
        let fenced = outcome.errors.iter().any(|e| matches!(e, 47 | 90));
        if fenced && transactional_id.is_some() {
            self.fenced(claim, transactional_id, api_key);
        }
        outcome.errors.is_empty()
    }

    fn fenced(&self, claim: &Claim, transactional_id: Option<Arc<str>>, api_key: i16) {
        let known = claim.producer.and_then(|(id, epoch)| {
            let producer = self.shared.ledger.producer(id, self.time)?;
            Some((producer, epoch))
        });
        if known
            .as_ref()
            .is_some_and(|(producer, epoch)| !producer.fence(*epoch))
        {
            return;
        }
        let by = known.map_or(UNSEEN_FENCE, |(producer, epoch)| producer.fenced_by(epoch));
        self.shared.events.record(Event {
            producer: claim.producer.map(|(id, _)| id),
            epoch: claim.producer.map(|(_, epoch)| epoch),
            client_id: self.info.client_id.get().cloned(),
            transactional_id,
            detail: format!("revealed by {}; {by}", api::name(api_key)).into(),
            ..Event::new(Kind::FencedProducer(FencedBy::Broker))
        });
    }
}

/// Whether a response has to be read whole before any of it may pass.
fn needs_whole(owed: &Owed, len: usize) -> bool {
    match owed.reply {
        Reply::Pass | Reply::Token | Reply::Ready(_) => false,
        Reply::ReadBack => len <= ANSWER_MAX,
        Reply::Addresses => {
            let large_api = matches!(owed.head.api_key, api::FETCH | api::SHARE_FETCH);
            !(large_api && len > FIRST_PART)
        }
        Reply::ApiVersions
        | Reply::Produce(_)
        | Reply::Insight(_)
        | Reply::Handshake
        | Reply::Authenticate
        | Reply::Login => true,
    }
}

/// Shows clients the way, and learns it.
pub(super) struct Guide<'a> {
    shared: &'a Shared,
    host: &'a Arc<str>,
    nodes: Vec<NodeId>,
}

impl<'a> Guide<'a> {
    /// One that tells clients this host.
    pub(super) fn new(shared: &'a Shared, host: &'a Arc<str>) -> Self {
        Self {
            shared,
            host,
            nodes: Vec::new(),
        }
    }

    /// The host that clients are told with this port of a broker.
    fn host_for(&self, port: Option<u16>) -> Arc<str> {
        let first = *self.shared.config.broker_ports.start();
        let slot = port.and_then(|port| port.checked_sub(first));
        match told_host(self.host, slot) {
            Cow::Borrowed(_) => Arc::clone(self.host),
            Cow::Owned(host) => host.into(),
        }
    }
}

impl Directory for Guide<'_> {
    fn broker(&mut self, node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16) {
        let Some(node) = node else {
            return (self.host_for(None), self.shared.config.listen.port());
        };
        self.nodes.push(node);
        let port = self.shared.port_for(node, host, port);
        (self.host_for(Some(port)), port)
    }

    fn cluster_id(&mut self, id: &str) {
        if self.shared.ledger.cluster(id)
            && let Some(repeated) = self.shared.may_tell(Matter::OtherCluster)
        {
            let repeated = several(repeated);
            tracing::warn!(
                id,
                repeated,
                "the cluster is another one, everything known of its logs is dropped: if this repeats, --upstream names servers of two clusters"
            );
        }
    }

    fn brokers_complete(&mut self) {
        self.shared.brokers.listed(&self.nodes, Instant::now());
    }

    fn topic(&mut self, name: Option<&str>, id: Option<TopicId>) {
        let topics = &self.shared.ledger.topics;
        match (name, id) {
            (Some(name), Some(id)) => topics.learn(name, id),
            (Some(name), None) => topics.listed(name),
            (None, _) => {}
        }
    }
}
