//! Tokens that hapax gets itself: one at a time, and a new one well before the
//! last one ends.

use super::credentials::{LoadError, Secret};
use super::endpoint::{Answer, TokenError, ask};
use super::exchange::LoginError;
use super::token::Token;
use crate::config::Oauth;
use crate::timers::timeout;
use crate::tls::Trust;
use ring::rand::{SecureRandom, SystemRandom};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, watch};

/// How soon a token of which nobody says when it ends is replaced.
const UNTOLD: Duration = Duration::from_secs(300);
/// A token is replaced after at most this share of its time, in hundredths,
/// and at most [`SPREAD`] earlier: not all replicas ask at once.
const SHARE: u32 = 80;
const SPREAD: u32 = 10;
/// How long a token is used at least that somebody wants to have replaced: where
/// brokers refuse every token, each connection would ask for one.
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// How long the first try waits that follows one that failed, at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// How long a try waits that follows many that failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What an endpoint gives, and who waits for it.
pub(super) struct Tokens {
    oauth: Oauth,
    trust: Option<Trust>,
    held: watch::Sender<Held>,
    wanted: Notify,
}

#[derive(Default)]
struct Held {
    token: Option<Arc<Got>>,
    /// Why there is no newer one.
    failure: Option<String>,
}

struct Got {
    token: Arc<Token>,
    until: Option<Instant>,
}

/// A token was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// For how long it is good; where nobody says so the broker knows.
    pub lifetime: Option<Duration>,
    /// Until when.
    pub ends: Option<SystemTime>,
}

impl Tokens {
    pub(super) fn new(oauth: Oauth) -> Result<Self, LoadError> {
        let trust = match oauth.endpoint.secure {
            true => Some(Trust::load(
                "upstream.sasl.oauth.caFile",
                oauth.ca_file.clone(),
            )?),
            false => None,
        };
        Ok(Self {
            oauth,
            trust,
            held: watch::Sender::default(),
            wanted: Notify::new(),
        })
    }

    /// Reads the CAs again. Returns whether they are others.
    pub(super) fn reload(&self) -> Result<bool, LoadError> {
        let reloaded = self.trust.as_ref().map(Trust::reload).transpose()?;
        Ok(reloaded.unwrap_or(false))
    }

    /// A new token is wanted before its time.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until there is a token, or a reason that there is none.
    pub(super) async fn ready(&self) {
        let mut held = self.held.subscribe();
        let there = |held: &Held| held.failure.is_some() || held.usable().is_some();
        // What is waited for lasts as long as this.
        let _ = held.wait_for(there).await;
    }

    pub(super) fn usable(&self) -> Result<Arc<Token>, LoginError> {
        let held = self.held.borrow();
        held.usable().ok_or_else(|| {
            let reason = held.failure.clone();
            LoginError::NoToken(reason.unwrap_or_else(|| "the first one is being got".to_owned()))
        })
    }

    pub(super) async fn keep_fresh(
        &self,
        secret: impl Fn() -> Arc<Secret>,
        patience: impl Fn() -> Duration,
        mut told: impl FnMut(&Result<Granted, TokenError>),
    ) {
        let mut failures = 0;
        loop {
            let got = self.get(&secret(), patience()).await;
            told(&got);
            let pause = match &got {
                Ok(granted) => {
                    failures = 0;
                    before_its_end(granted.lifetime)
                }
                Err(_) => {
                    failures += 1;
                    after_failures(failures)
                }
            };
            let at_least = pause.min(PAUSE_MIN);
            timeout(at_least, pending::<()>()).await.ok();
            timeout(pause - at_least, self.wanted.notified()).await.ok();
        }
    }

    /// Gets one.
    pub(super) async fn get(
        &self,
        secret: &Secret,
        patience: Duration,
    ) -> Result<Granted, TokenError> {
        let Secret::Client(client) = secret else {
            return Err(TokenError::Answer("nobody is to ask for it"));
        };
        let asked = ask(&self.oauth, client, self.trust.as_ref());
        let asked = timeout(patience, asked).await;
        let answer = asked.unwrap_or(Err(TokenError::Silent(patience)));
        match answer.and_then(|answer| granted(&answer)) {
            Ok((got, granted)) => {
                self.held.send_replace(Held {
                    token: Some(Arc::new(got)),
                    failure: None,
                });
                Ok(granted)
            }
            Err(error) => {
                let failure = format!("{} {error}", self.oauth.endpoint);
                self.held.send_modify(|held| held.failure = Some(failure));
                Err(error)
            }
        }
    }
}

impl Held {
    /// The newest token, unless it has ended.
    fn usable(&self) -> Option<Arc<Token>> {
        let got = self.token.as_ref()?;
        let ended = got.until.is_some_and(|until| until <= Instant::now());
        (!ended).then(|| Arc::clone(&got.token))
    }
}

/// How long what an endpoint said is good. Its own word wins over the token's,
/// which is by its clock.
fn granted(answer: &Answer) -> Result<(Got, Granted), TokenError> {
    let Some(token) = Token::new(&answer.token) else {
        return Err(TokenError::Answer("its access_token is no token"));
    };
    let now = SystemTime::now();
    let by_itself = || {
        token
            .ends
            .map(|ends| ends.duration_since(now).unwrap_or_default())
    };
    let lifetime = answer.lifetime.or_else(by_itself);
    if lifetime.is_some_and(|lifetime| lifetime.is_zero()) {
        return Err(TokenError::Answer(
            "its token has ended already: look at the clocks",
        ));
    }
    let granted = Granted {
        lifetime,
        ends: lifetime.and_then(|lifetime| now.checked_add(lifetime)),
    };
    let got = Got {
        token: Arc::new(token),
        until: lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime)),
    };
    Ok((got, granted))
}

fn before_its_end(lifetime: Option<Duration>) -> Duration {
    let Some(lifetime) = lifetime else {
        return UNTOLD;
    };
    (lifetime / 100 * (SHARE - chance(SPREAD))).max(PAUSE_FIRST)
}

/// Twice as long after each, and by a part of it less, so that those who failed
/// together do not try together.
fn after_failures(failures: u32) -> Duration {
    let full = PAUSE_FIRST * 2_u32.saturating_pow(failures.saturating_sub(1).min(8));
    full.min(PAUSE_MAX) / 100 * (100 - chance(50))
}

/// A number below `bound`.
fn chance(bound: u32) -> u32 {
    let mut byte = [0];
    // Without chance all do the same, which is no worse than before.
    let _ = SystemRandom::new().fill(&mut byte);
    u32::from(byte[0]) * bound / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_replaced_well_before_it_ends() {
        for _ in 0..100 {
            let pause = before_its_end(Some(Duration::from_secs(100)));
            assert!((Duration::from_secs(70)..=Duration::from_secs(80)).contains(&pause));
        }
        assert_eq!(before_its_end(None), UNTOLD);
        // Whatever an endpoint says, it is not asked more often than after a failure.
        let short = Duration::from_millis(10);
        assert_eq!(before_its_end(Some(short)), PAUSE_FIRST);
    }

    #[test]
    fn tries_that_fail_come_less_and_less_often() {
        for failures in 1..100 {
            let full = Duration::from_secs(60).min(Duration::from_secs(1 << (failures - 1).min(6)));
            let pause = after_failures(failures);
            assert!((full / 2..=full).contains(&pause), "{failures}: {pause:?}");
        }
    }
}
