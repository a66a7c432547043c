//! Logging in to a broker, on a connection that has just been made.

use super::probe::{Conversation, ProbeError, explain, of_upstream};
use crate::sasl::{LoginError, Principal, Sasl, Step};
use crate::timers::timeout;
use crate::tls::Stream;
use crate::wire::api_versions::Offered;
use crate::wire::{WireError, api, login, sasl as wire};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Messages of hapax in one login; SCRAM has two.
const ROUNDS_MAX: usize = 4;

/// As whom hapax is logged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// Who.
    pub principal: Principal,
    /// For how long, where that has an end (KIP-368).
    pub lifetime: Option<Duration>,
    /// The version of SaslAuthenticate that the broker has.
    pub version: i16,
}

/// Logs in, within `patience`.
///
/// # Errors
///
/// Why hapax is not logged in.
pub async fn log_in(
    broker: Stream,
    sasl: &Sasl,
    patience: Duration,
) -> Result<(Stream, Login), LoginError> {
    let address = broker.tcp().peer_addr();
    let plain = broker.plain().is_some();
    let mut conversation = Conversation::new(broker, patience);
    let begun = timeout(patience, begin(&mut conversation, sasl)).await;
    let begun = begun.unwrap_or(Err(Failed::Login(LoginError::Silent(patience))));
    let error = match begun {
        Ok(login) => return Ok((conversation.into_stream(), login)),
        Err(Failed::Login(error)) => return Err(error),
        Err(Failed::First(error)) => error,
    };
    // It says nothing at all: it may wait for TLS.
    Err(match address {
        Ok(address) if plain => explain(error, address).await.into(),
        _ => error.into(),
    })
}

enum Failed {
    /// At the first request, which any Kafka answers.
    First(ProbeError),
    Login(LoginError),
}

impl<E: Into<LoginError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Login(error.into())
    }
}

async fn begin(broker: &mut Conversation, sasl: &Sasl) -> Result<Login, Failed> {
    let offered = broker.api_versions().await.map_err(Failed::First)?;
    let version = version(&offered)?;
    Ok(exchange(broker, sasl, version).await?)
}

/// The newest version of SaslAuthenticate that both have.
fn version(offered: &[Offered]) -> Result<i16, LoginError> {
    let newest = |api_key| {
        let mut offered = offered.iter();
        let found = offered.find(|offered| offered.api_key == api_key);
        found.map(|offered| offered.max)
    };
    match (newest(api::SASL_HANDSHAKE), newest(api::SASL_AUTHENTICATE)) {
        (Some(login::HANDSHAKE..), Some(newest)) => Ok(newest.min(login::AUTHENTICATE)),
        _ => Err(LoginError::TooOld),
    }
}

async fn exchange(
    broker: &mut Conversation,
    sasl: &Sasl,
    version: i16,
) -> Result<Login, LoginError> {
    let mut exchange = sasl.exchange().await?;
    let principal = exchange.principal().clone();
    let mechanism = principal.mechanism;
    let frame = broker
        .answer(&login::handshake(0, mechanism.name()))
        .await?;
    match wire::handshake_error(&frame)? {
        0 => {}
        login::UNSUPPORTED_SASL_MECHANISM => {
            return Err(LoginError::Mechanism {
                wanted: mechanism,
                offered: wire::handshake_mechanisms(&frame)?,
            });
        }
        login::ILLEGAL_SASL_STATE => return Err(LoginError::NotWanted),
        error => return Err(LoginError::Speech(format!("error {error}"))),
    }
    let mut token = exchange.first();
    for _ in 0..ROUNDS_MAX {
        let request = login::authenticate(version, 0, &token);
        let frame = broker.answer(&request).await?;
        let answer = login::answered(version, &frame)?;
        if answer.error != 0 {
            sasl.refused();
            return Err(exchange.refused(answer.error, answer.message));
        }
        let mut step = exchange.answered(answer.token)?;
        if let Step::Derive(work) = step {
            let derived = spawn_blocking(move || work.run()).await;
            let derived = derived.map_err(|error| LoginError::System(error.to_string()))?;
            step = exchange.derived(&derived)?;
        }
        match step {
            Step::Send(next) => token = next,
            Step::Derive(_) => break,
            Step::Done => {
                return Ok(Login {
                    principal,
                    lifetime: answer.lifetime,
                    version,
                });
            }
        }
    }
    Err(LoginError::Speech("it goes on without an end".to_owned()))
}

impl From<ProbeError> for LoginError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::HungUp => Self::HungUp,
            ProbeError::Silent(after) => Self::Silent(after),
            ProbeError::Stranger(stranger) => Self::Speech(of_upstream(stranger).to_owned()),
            error => Self::Speech(error.to_string()),
        }
    }
}

impl From<WireError> for LoginError {
    fn from(error: WireError) -> Self {
        Self::Speech(error.to_string())
    }
}
