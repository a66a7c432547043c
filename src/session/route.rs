//! Requests: which may pass, which are looked at, which are answered here.

use super::end::End;
use super::outbox::Pass;
use super::pipeline::{Owed, Reply};
use super::splice::RUN_MIN;
use super::{Blocked, Door, FIRST_PART, Session};
use crate::metrics::{BadFrame, Limit, Side};
use crate::wire::header::{self, RequestHead};
use crate::wire::{WireError, addresses, api, api_versions, frame, login, sasl, transactions};
use bytes::Bytes;
use std::task::Waker;

use super::produce::Streamed;

/// The largest SASL or coordinator request that is read. Brokers accept SASL
/// tokens of up to half of that.
const READ_WHOLE_MAX: usize = 1024 * 1024;
/// Bytes of a name that a client has chosen which are kept, to be shown.
pub(super) const NAME_KEPT_MAX: usize = 512;
/// What a client is told that wants to log in where hapax does so itself.
const LOGS_IN_ITSELF: &str = "hapax logs in to the brokers itself: set security.protocol to PLAINTEXT, or to SSL where hapax speaks TLS";
/// What a client hears that authenticates again where no session ends.
const ILLEGAL_SASL_STATE: i16 = 34;
/// Bytes of the length before a frame.
pub(super) const PREFIX: usize = 4;

/// Where in the requests of a client a session stands.
pub(super) enum RequestStage {
    /// Between two frames.
    Head,
    /// In a frame of which `left` bytes pass unseen.
    Pass { left: usize },
    /// In a frame of which `left` bytes are dropped; then this is owed.
    Drop { left: usize, owed: Box<Owed> },
    /// In a Produce request whose batches are seen as they pass.
    Walk(Box<Streamed>),
}

impl RequestStage {
    /// How many of the next bytes nobody has to see.
    pub(super) fn unseen(&self) -> usize {
        match self {
            Self::Pass { left } => *left,
            Self::Walk(streamed) => streamed.unseen(),
            Self::Head | Self::Drop { .. } => 0,
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
            Self::Walk(streamed) => streamed.passed(bytes),
            Self::Head | Self::Drop { .. } => {}
        }
    }
}

/// A frame at the head of a pass.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    /// What has arrived of it, without its length.
    pub bytes: &'a [u8],
    /// How long it is, without its length.
    pub len: usize,
}

impl Frame<'_> {
    pub(super) fn whole(&self) -> bool {
        self.bytes.len() == self.len
    }

    /// How many bytes of a pass it takes, as far as it has arrived.
    pub(super) fn arrived(&self) -> usize {
        PREFIX + self.bytes.len()
    }

    pub(super) fn left(&self) -> usize {
        self.len - self.bytes.len()
    }
}

impl Session {
    /// Deals with as many bytes as it can.
    pub(super) fn route(&mut self, pass: &mut Pass<'_>, waker: &Waker) -> Result<(), End> {
        self.inbox_wanted = 0;
        let was_full = self.blocked.take() == Some(Blocked::Full);
        let routed = self.route_frames(pass, waker);
        let limit = self.config.limits.in_flight;
        if self.pipeline.len() >= limit && self.blocked == Some(Blocked::Full) && !was_full {
            self.shared
                .metrics
                .limit_reached
                .with(Limit::InFlight)
                .inc();
        }
        routed
    }

    fn route_frames(&mut self, pass: &mut Pass<'_>, waker: &Waker) -> Result<(), End> {
        loop {
            let available = pass.rest().len();
            let moved_on = match &mut self.request {
                RequestStage::Head => {
                    let routed = self.route_head(pass, waker)?;
                    if routed {
                        self.collecting = None;
                    }
                    routed
                }
                RequestStage::Pass { left } => {
                    let n = available.min(*left);
                    pass.keep(n);
                    *left -= n;
                    *left == 0
                }
                RequestStage::Drop { left, .. } => {
                    let n = available.min(*left);
                    pass.drop(n);
                    *left -= n;
                    *left == 0
                }
                RequestStage::Walk(_) => self.walk_on(pass)?,
            };
            if !moved_on {
                return Ok(());
            }
            match std::mem::replace(&mut self.request, RequestStage::Head) {
                RequestStage::Drop { left: 0, owed } => self.owe(*owed),
                RequestStage::Head | RequestStage::Pass { left: 0 } => {
                    self.pipeline.newest_came(self.now);
                }
                unfinished => self.request = unfinished,
            }
        }
    }

    /// Deals with the head of a frame. Returns `false` where more bytes, or
    /// another event, must come first.
    fn route_head(&mut self, pass: &mut Pass<'_>, waker: &Waker) -> Result<bool, End> {
        let rest = pass.rest();
        let Some((prefix, rest)) = rest.split_first_chunk::<PREFIX>() else {
            return Ok(false);
        };
        let limit = self.config.limits.frame_bytes;
        let token = self.authentication.expects_bare_token(rest);
        let min = if token { 0 } else { frame::MIN_REQUEST };
        let len = frame::length(*prefix, min, limit)
            .map_err(|error| self.shared.bad_frame(Side::Client, pass.rest(), error))?;
        let first_part = len.min(FIRST_PART);
        if rest.len() < first_part && !self.may_begin(rest, len) {
            return Ok(self.want(first_part));
        }
        if self.pipeline.len() >= self.config.limits.in_flight {
            self.blocked = Some(Blocked::Full);
            return Ok(false);
        }
        if self.is_removed {
            self.blocked = Some(Blocked::Full);
            return Ok(false);
        }
        if self.misled() {
            if self.pipeline.is_empty() {
                return Err(End::Misled);
            }
            self.blocked = Some(Blocked::Full);
            return Ok(false);
        }
        if self.now >= self.renew_at && self.must_renew() {
            self.blocked = Some(Blocked::Login);
            return Ok(false);
        }
        let frame = Frame {
            bytes: &rest[..rest.len().min(len)],
            len,
        };
        if token {
            return self.route_token(pass, frame);
        }
        let head = header::request_head(frame.bytes).ok_or_else(|| {
            self.malformed(Side::Client, WireError::Truncated { what: "a request" })
        })?;
        self.introduce(frame.bytes);
        self.route_api(pass, frame, head, waker)
    }

    /// Whether it leads to a bootstrap server because nobody knew the broker
    /// of the client's port, which is known by now. The client takes the one
    /// for the other for as long as it is connected.
    fn misled(&self) -> bool {
        match self.info.door {
            Door::Broker(port) if self.node.is_none() => {
                self.shared.brokers.target(port).node.is_some()
            }
            _ => false,
        }
    }

    fn route_api(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        waker: &Waker,
    ) -> Result<bool, End> {
        let version = head.api_version;
        match head.api_key {
            api::PRODUCE => self.produce(pass, frame, head, waker),
            api::API_VERSIONS if version > api_versions::NEWEST => {
                let answer = api_versions::unsupported(head.correlation_id);
                Ok(self.answer_here(pass, frame, head, answer))
            }
            api::API_VERSIONS => Ok(self.forward(pass, frame, head, Reply::ApiVersions)),
            api::SASL_HANDSHAKE | api::SASL_AUTHENTICATE => self.route_sasl(pass, frame, head),
            api::INIT_PRODUCER_ID
            | api::ADD_PARTITIONS_TO_TXN
            | api::ADD_OFFSETS_TO_TXN
            | api::TXN_OFFSET_COMMIT
            | api::END_TXN => self.route_insight(pass, frame, head),
            key if addresses::newest(key) >= 0 && version > addresses::newest(key) => {
                Err(End::UnknownVersion {
                    api: api::name(key),
                    version,
                })
            }
            key if addresses::rewrites(key, version) => {
                Ok(self.forward(pass, frame, head, Reply::Addresses))
            }
            _ => Ok(self.forward(pass, frame, head, Reply::Pass)),
        }
    }

    /// Sends the frame on as it comes, its reply being owed.
    pub(super) fn forward(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        reply: Reply,
    ) -> bool {
        let owed = self.owed(pass, frame, head, reply);
        self.owe(owed);
        self.pass_on(pass, frame);
        true
    }

    /// Sends the frame on as it comes.
    pub(super) fn pass_on(&mut self, pass: &mut Pass<'_>, frame: Frame<'_>) {
        pass.keep(frame.arrived());
        self.request = RequestStage::Pass { left: frame.left() };
    }

    /// Drops the frame and answers it here.
    pub(super) fn answer_here(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        answer: Bytes,
    ) -> bool {
        let owed = self.owed(pass, frame, head, Reply::Ready(answer));
        pass.drop(frame.arrived());
        self.request = RequestStage::Drop {
            left: frame.left(),
            owed: Box::new(owed),
        };
        true
    }

    pub(super) fn owed(
        &self,
        pass: &Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
        reply: Reply,
    ) -> Owed {
        Owed {
            head,
            reply,
            tickets: 0,
            end: pass.position() + (PREFIX + frame.len) as u64,
            at: self.now,
            sent: None,
            timeout: None,
        }
    }

    pub(super) fn owe(&mut self, owed: Owed) {
        self.requests += 1;
        self.tally.asked();
        self.pipeline.push(owed);
    }

    /// Asks for `len` bytes of the frame before it is looked at again.
    pub(super) fn want(&mut self, len: usize) -> bool {
        self.inbox_wanted = PREFIX + len;
        false
    }

    /// Asks for the rest of a frame; one that nobody would send that large
    /// passes unread.
    fn want_or_pass(&mut self, pass: &mut Pass<'_>, frame: Frame<'_>, head: RequestHead) -> bool {
        if frame.len > READ_WHOLE_MAX {
            return self.forward(pass, frame, head, Reply::Pass);
        }
        self.want(frame.len)
    }

    fn route_token(&mut self, pass: &mut Pass<'_>, frame: Frame<'_>) -> Result<bool, End> {
        if !frame.whole() {
            if frame.len > READ_WHOLE_MAX {
                let value = i64::try_from(frame.len).unwrap_or(i64::MAX);
                let what = "the length of a SASL token";
                return Err(self.malformed(Side::Client, WireError::Malformed { what, value }));
            }
            return Ok(self.want(frame.len));
        }
        self.authentication.token(frame.bytes);
        let head = RequestHead {
            api_key: api::SASL_AUTHENTICATE,
            api_version: 0,
            correlation_id: 0,
        };
        Ok(self.forward(pass, frame, head, Reply::Token))
    }

    fn route_sasl(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
    ) -> Result<bool, End> {
        if self.authentication.is_settled() {
            return self.stay_settled(pass, frame, head);
        }
        if self.shared.sasl.is_on() {
            return self.refuse_login(pass, frame, head);
        }
        if !frame.whole() {
            return Ok(self.want_or_pass(pass, frame, head));
        }
        let version = head.api_version;
        let Some(flexible) = header::flexible(head.api_key, version) else {
            return Ok(self.forward(pass, frame, head, Reply::Pass));
        };
        let malformed = |error| self.malformed(Side::Client, error);
        let at = header::body_at(frame.bytes, flexible)
            .map_err(malformed)?
            .unwrap_or(frame.len);
        let body = frame.bytes.get(at..).unwrap_or_default();
        let reply = if head.api_key == api::SASL_HANDSHAKE {
            let mechanism = sasl::handshake_mechanism(version, body).map_err(malformed)?;
            self.authentication.handshake(mechanism, version);
            Reply::Handshake
        } else {
            let token = sasl::authenticate_token(version, body).map_err(malformed)?;
            self.authentication.token(token);
            Reply::Authenticate
        };
        self.prove();
        Ok(self.forward(pass, frame, head, reply))
    }

    /// Answers a client that wants to log in where hapax does so itself. The
    /// broker, to whom the client would be hapax, hears nothing of it: it would
    /// take a login for a change of users, and close.
    fn refuse_login(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
    ) -> Result<bool, End> {
        let (id, version) = (head.correlation_id, head.api_version);
        let answer = match (head.api_key, version) {
            (api::SASL_HANDSHAKE, 0..=1) => login::no_sasl(id),
            (api::SASL_AUTHENTICATE, 0..=login::AUTHENTICATE) => {
                login::no_token(version, id, LOGS_IN_ITSELF)
            }
            (key, version) => {
                let api = api::name(key);
                return Err(End::UnknownVersion { api, version });
            }
        };
        let client_id = self.info.client_id.get().map(|id| &**id);
        self.shared.logs_in_itself(self.info.client, client_id);
        Ok(self.answer_here(pass, frame, head, answer))
    }

    /// Answers who has authenticated to hapax and begins to do so again, as a
    /// broker does whose sessions do not end (KIP-368): nobody becomes somebody
    /// else.
    fn stay_settled(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
    ) -> Result<bool, End> {
        let RequestHead {
            api_key,
            api_version: version,
            correlation_id,
        } = head;
        if api_versions::newest(api_key).is_none_or(|newest| !(0..=newest).contains(&version)) {
            let api = api::name(api_key);
            return Err(End::UnknownVersion { api, version });
        }
        let answer = if api_key == api::SASL_HANDSHAKE {
            sasl::handshake_response(correlation_id, ILLEGAL_SASL_STATE, &[])
        } else {
            let why = "the connection is authenticated, and does not end by itself";
            sasl::refusal_response(version, correlation_id, ILLEGAL_SASL_STATE, why)
        };
        Ok(self.answer_here(pass, frame, head, answer))
    }

    fn route_insight(
        &mut self,
        pass: &mut Pass<'_>,
        frame: Frame<'_>,
        head: RequestHead,
    ) -> Result<bool, End> {
        if !frame.whole() {
            return Ok(self.want_or_pass(pass, frame, head));
        }
        let claim = transactions::claim(head.api_key, head.api_version, frame.bytes);
        let reply = match claim {
            Ok(Some(claim)) => Reply::Insight(Box::new(claim)),
            Ok(None) => Reply::Pass,
            Err(error) => {
                // What cannot be read costs insight, never the request.
                tracing::debug!(%error, "cannot read a request to a coordinator");
                Reply::Pass
            }
        };
        Ok(self.forward(pass, frame, head, reply))
    }

    /// What the client has proven may have changed.
    pub(super) fn prove(&mut self) {
        let identity = self.authentication.identity();
        self.realm = self.shared.ledger.realm(&identity);
        self.info.set_user(&identity);
    }

    /// Keeps what the client calls itself.
    fn introduce(&self, frame: &[u8]) {
        if self.info.client_id.get().is_some() {
            return;
        }
        if let Ok(Some(client_id)) = header::client_id(frame) {
            let client_id = &client_id[..client_id.len().min(NAME_KEPT_MAX)];
            let client_id = String::from_utf8_lossy(client_id);
            self.info.client_id.get_or_init(|| client_id.into());
        }
    }

    pub(super) fn malformed(&self, side: Side, error: WireError) -> End {
        let malformed = self
            .shared
            .metrics
            .bad_frames
            .with(side, BadFrame::Malformed);
        malformed.inc();
        End::Malformed(side, error)
    }
}
