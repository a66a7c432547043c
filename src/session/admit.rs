//! A client that has to authenticate to hapax before anything of it reaches a
//! broker.
//!
//! Nothing is dialled for it, and what it may send, cost and take is bounded: a
//! few small frames, one attempt, `timeouts.sasl`.

use super::greeting::NoOffer;
use super::leave::drop_what_comes;
use super::route::PREFIX;
use super::shared::{Info, Shared};
use super::told::{Matter, several};
use crate::config::ClientMechanism;
use crate::ledger::Identity;
use crate::metrics::{Authentication, BadFrame, DisconnectCause, SaslMechanism, Side, Tally};
use crate::timers::{sleep_until, timeout};
use crate::tls::Stream;
use crate::upstream::{DialError, Target};
use crate::users::{self, Claim, FRAME_MAX, Login, Refusal, Step, Users};
use crate::wire::frame;
use crate::wire::header::RequestHead;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// How long a client waits that was refused, so that guessing takes time: that
/// of brokers (connection.failed.authentication.delay.ms).
const REFUSAL_DELAY: Duration = Duration::from_millis(100);

/// Why a client does not get in.
enum Denied {
    /// By what it said.
    Refused(Refusal, Option<Bytes>),
    /// By bytes that are no frame.
    NoFrame(String),
    /// Its connection is gone.
    Lost,
    /// hapax ends.
    Ended(DisconnectCause),
    /// It takes too long.
    Slow(Duration),
    /// What the broker offers cannot be told: why, where nobody has said it yet.
    Broker(Option<DialError>),
    /// The system does not let it be told.
    System(io::Error),
}

/// Lets a client in that is a user: as whom.
pub(super) async fn admit(
    shared: &Arc<Shared>,
    users: &Users,
    tally: &Tally,
    info: &Info,
    target: &Target,
    client: &mut Stream,
) -> Result<Identity, DisconnectCause> {
    let list = users.list();
    let mut login = Login::new(&list, &users.settings().mechanisms);
    let patience = shared.current().timeouts.sasl;
    let admitted = async {
        tokio::select! {
            biased;
            admitted = converse(shared, tally, target, client, &mut login) => admitted,
            cause = shared.end() => Err(Denied::Ended(cause)),
        }
    };
    let admitted = timeout(patience, admitted).await;
    let mechanism = label(login.mechanism());
    let count = |outcome| {
        let counted = &shared.metrics.client_authentications;
        counted.with(mechanism, outcome).inc();
    };
    match admitted.unwrap_or(Err(Denied::Slow(patience))) {
        Ok(user) => {
            count(Authentication::Ok);
            let mechanism = "hapax".to_owned();
            Ok(Identity::User { mechanism, user })
        }
        Err(denied) => {
            if let Some(outcome) = denied.outcome() {
                count(outcome);
            }
            Err(turn_away(shared, info, target, client, login.mechanism(), denied).await)
        }
    }
}

async fn converse(
    shared: &Arc<Shared>,
    tally: &Tally,
    target: &Target,
    client: &mut Stream,
    login: &mut Login<'_>,
) -> Result<String, Denied> {
    let mut frame = Vec::new();
    loop {
        read_frame(shared, client, login.frame_min(), &mut frame).await?;
        tally.received(Side::Client, PREFIX + frame.len());
        let nonce = users::random::<18>().map_err(Denied::System)?;
        let mut step = login.frame(&frame, &STANDARD_NO_PAD.encode(nonce));
        if let Step::Check(claim) = step {
            let (claim, holds) = check(shared, claim).await?;
            step = login.checked(&claim, holds);
        }
        match step {
            Step::Answer(answer) => send(client, &answer).await?,
            Step::Versions(head) => {
                let answer = versions(shared, target, head).await?;
                send(client, &answer).await?;
            }
            Step::Admit { user, answer } => {
                send(client, &answer).await?;
                return Ok(user);
            }
            Step::Refuse { why, answer } => return Err(Denied::Refused(why, answer)),
            // It was checked, and a check asks for no other one.
            Step::Check(_) => return Err(Denied::Refused(Refusal::Malformed, None)),
        }
    }
}

/// Reads one frame, of which no more is kept than has come.
async fn read_frame(
    shared: &Shared,
    client: &mut Stream,
    min: usize,
    frame: &mut Vec<u8>,
) -> Result<(), Denied> {
    let mut prefix = [0; PREFIX];
    client.read_exact(&mut prefix).await.map_err(lost)?;
    let length = frame::length(prefix, min, FRAME_MAX).map_err(|error| {
        let no_frame = shared.bad_frame(Side::Client, &prefix, error);
        Denied::NoFrame(no_frame.to_string())
    })?;
    frame.clear();
    let mut limited = client.take(length as u64);
    if limited.read_to_end(frame).await.map_err(lost)? < length {
        return Err(Denied::Lost);
    }
    Ok(())
}

async fn send(client: &mut Stream, bytes: &[u8]) -> Result<(), Denied> {
    client.write_all(bytes).await.map_err(lost)?;
    client.flush().await.map_err(lost)
}

fn lost(_: io::Error) -> Denied {
    Denied::Lost
}

/// Looks whether a password is right, on another thread: it takes
/// milliseconds, in which a worker would serve nobody. How many are looked at
/// at once is bounded, and the others wait in turn.
async fn check(shared: &Arc<Shared>, claim: Claim) -> Result<(Claim, bool), Denied> {
    let turn = Arc::clone(&shared.password_checks).acquire_owned().await;
    let turn = turn.map_err(|closed| Denied::System(io::Error::other(closed)))?;
    let checked = spawn_blocking(move || {
        let holds = claim.holds();
        // Who gave up waiting does not make room for another one before that.
        drop(turn);
        (claim, holds)
    });
    checked.await.map_err(|error| Denied::System(error.into()))
}

/// What the client's broker offers, as far as hapax lets it, with hapax's own
/// versions of what is between them alone.
async fn versions(
    shared: &Arc<Shared>,
    target: &Target,
    head: RequestHead,
) -> Result<Bytes, Denied> {
    let offered = shared.offers(target, head.api_version).await;
    let offered = offered.map_err(|error| match error {
        NoOffer::Dial(error) => Denied::Broker(Some(error)),
        NoOffer::Known => Denied::Broker(None),
    })?;
    let mut whole = frame::with_length(&offered);
    if let Some(place) = whole.get_mut(PREFIX..PREFIX + 4) {
        place.copy_from_slice(&head.correlation_id.to_be_bytes());
    }
    Ok(whole.into())
}

/// Tells the client, the log and the metrics; returns why its connection ends.
async fn turn_away(
    shared: &Shared,
    info: &Info,
    target: &Target,
    client: &mut Stream,
    mechanism: Option<ClientMechanism>,
    denied: Denied,
) -> DisconnectCause {
    let mechanism = mechanism.map(ClientMechanism::name);
    let tell = |user: Option<&str>, reason: &dyn std::fmt::Display| {
        if let Some(repeated) = shared.may_tell(Matter::ClientSasl(info.client.ip())) {
            let (client, repeated) = (info.client, several(repeated));
            tracing::warn!(%client, mechanism, user, repeated, %reason, "a client did not authenticate, client closed");
        }
    };
    match denied {
        Denied::Refused(why, answer) => {
            let user = match &why {
                Refusal::Refused { user } => user.as_deref(),
                _ => None,
            };
            tell(user, &why);
            if why == Refusal::Malformed {
                let bad = &shared.metrics.bad_frames;
                bad.with(Side::Client, BadFrame::Malformed).inc();
            }
            sleep_until(Instant::now() + REFUSAL_DELAY).await;
            if let Some(answer) = answer
                && send(client, &answer).await.is_ok()
            {
                // A client that has sent more must not lose the answer by it.
                let _ = client.shutdown().await;
                drop_what_comes(client).await;
            }
            DisconnectCause::Sasl
        }
        Denied::NoFrame(why) => {
            tell(None, &why);
            DisconnectCause::Protocol
        }
        Denied::Slow(after) => {
            tell(
                None,
                &format!("it took more than {after:?} (timeouts.sasl)"),
            );
            DisconnectCause::Sasl
        }
        Denied::System(error) => {
            tell(None, &error);
            DisconnectCause::Sasl
        }
        Denied::Lost => DisconnectCause::Client,
        Denied::Ended(cause) => cause,
        Denied::Broker(error) => {
            if let Some(error) = error {
                shared.cannot_dial(target, info.client, &error);
            }
            let _ = client.tcp().set_zero_linger();
            DisconnectCause::Upstream
        }
    }
}

impl Denied {
    /// How it counts; `None` where it says nothing of the client.
    fn outcome(&self) -> Option<Authentication> {
        Some(match self {
            Self::Refused(Refusal::Refused { .. }, _) => Authentication::Refused,
            Self::Refused(Refusal::Mechanism, _) => Authentication::Unsupported,
            Self::Refused(Refusal::Unauthenticated(_), _) => Authentication::Unauthenticated,
            Self::Refused(Refusal::Malformed | Refusal::TooMany, _) | Self::NoFrame(_) => {
                Authentication::Malformed
            }
            Self::Lost | Self::Slow(_) => Authentication::Unfinished,
            Self::Ended(_) | Self::Broker(_) | Self::System(_) => return None,
        })
    }
}

fn label(mechanism: Option<ClientMechanism>) -> SaslMechanism {
    match mechanism {
        Some(ClientMechanism::Plain) => SaslMechanism::Plain,
        Some(ClientMechanism::ScramSha256) => SaslMechanism::ScramSha256,
        Some(ClientMechanism::ScramSha512) => SaslMechanism::ScramSha512,
        None => SaslMechanism::None,
    }
}
