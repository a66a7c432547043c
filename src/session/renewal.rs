//! Logging in again on a connection that is open (KIP-368).
//!
//! A broker says for how long a login is good, and closes the connection at
//! the first request behind that. So hapax logs in again, before the first
//! request after four fifths of that time:
//!
//! ```text
//!  from the client  … R1 R2 │ R3 …
//!  to the broker    … R1 R2 │        SaslHandshake  SaslAuthenticate …  R3 …
//!  from the broker  … R1  R2 answered │          answered         answered
//! ```
//!
//! A broker takes nothing but tokens between the two, so R3 waits; and it
//! deals with a connection's requests in turn, so everything before is
//! answered first, and no answer of a client's ever stands between hapax's own.
//!
//! A connection on which nothing is asked is left alone: a broker takes a
//! login behind the end of the last one too, and ten thousand idle connections
//! need not wake up for it.

use super::Session;
use super::end::End;
use super::moment::Moment;
use super::pipeline::{Owed, Reply};
use super::route::RequestStage;
use crate::config::Mechanism;
use crate::ledger::Identity;
use crate::metrics;
use crate::sasl::{Derived, Exchange, LoginError, Principal, Step};
use crate::upstream::Login;
use crate::wire::header::RequestHead;
use crate::wire::{WireError, api, login, sasl};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_blocking};

/// A broker takes no two logins within a second.
const APART: Duration = Duration::from_millis(1100);
/// What is left of a login, where another try is worth it.
const WORTH_ANOTHER: Duration = Duration::from_secs(1);

/// A login that ends, and the one after it.
pub(super) struct Renewal {
    principal: Principal,
    /// The version of SaslAuthenticate.
    version: i16,
    /// When the login ends.
    ends: Moment,
    stage: Stage,
}

enum Stage {
    /// Nothing is on its way.
    Idle,
    /// This is to go to the broker.
    Ready(Box<Exchange>, RequestHead, Bytes),
    /// The broker is to answer it.
    Asked(Box<Exchange>),
    /// Something is being worked out.
    Working(Box<Exchange>, JoinHandle<Derived>),
}

/// When to log in again, if ever.
pub(super) fn planned(login: Option<Login>, now: Moment) -> (Option<Box<Renewal>>, Moment) {
    let Some(Login {
        principal,
        lifetime: Some(lifetime),
        version,
    }) = login
    else {
        return (None, Moment::NEVER);
    };
    let renewal = Renewal {
        principal,
        version,
        ends: now.after(lifetime),
        stage: Stage::Idle,
    };
    (Some(Box::new(renewal)), now.after(early(lifetime)))
}

fn early(lifetime: Duration) -> Duration {
    (lifetime / 5 * 4).max(APART)
}

/// Who every client is to a broker that hapax has logged in to.
pub(super) fn identity(principal: &Principal) -> Identity {
    Identity::User {
        mechanism: principal.mechanism.name().to_owned(),
        user: principal.name.clone(),
    }
}

impl Session {
    /// Whether the next request has to wait until hapax has logged in again.
    /// What is held, or looked for in the log, comes first.
    pub(super) fn must_renew(&self) -> bool {
        self.renewal.is_some() && self.held.is_none() && self.readback.is_none()
    }

    /// Goes on with it. Returns whether anything moved.
    pub(super) fn renew(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while self.renew_step(cx)? {
            moved = true;
        }
        Ok(moved)
    }

    fn renew_step(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let quiet = self.pipeline.is_empty()
            && self.to_upstream.is_empty()
            && self.reply.at_head()
            && matches!(self.request, RequestStage::Head);
        let Some(renewal) = &mut self.renewal else {
            return Ok(false);
        };
        match std::mem::replace(&mut renewal.stage, Stage::Idle) {
            Stage::Idle if !quiet || self.now < self.renew_at => Ok(false),
            Stage::Idle => self.begin_renewal(),
            Stage::Ready(exchange, head, bytes) => {
                renewal.stage = Stage::Asked(exchange);
                self.ask_broker(cx, head, Reply::Login, &bytes)?;
                Ok(true)
            }
            Stage::Asked(exchange) => {
                renewal.stage = Stage::Asked(exchange);
                Ok(false)
            }
            Stage::Working(mut exchange, mut work) => match Pin::new(&mut work).poll(cx) {
                Poll::Pending => {
                    renewal.stage = Stage::Working(exchange, work);
                    Ok(false)
                }
                Poll::Ready(done) => {
                    let step = done
                        .map_err(|error| LoginError::System(error.to_string()))
                        .and_then(|derived| exchange.derived(&derived));
                    let step = step.map_err(|error| self.logged_out(error))?;
                    self.login_goes_on(exchange, step, None)?;
                    Ok(true)
                }
            },
        }
    }

    fn begin_renewal(&mut self) -> Result<bool, End> {
        let Some(renewal) = &mut self.renewal else {
            return Ok(false);
        };
        let exchange = match self.shared.sasl.exchange_now() {
            Ok(exchange) => exchange,
            // The old login is good for a while, and a token may come.
            Err(error @ LoginError::NoToken(_)) => {
                let left = renewal.ends.nanoseconds_since(self.now);
                let left = Duration::from_nanos(left);
                if left < WORTH_ANOTHER {
                    return Err(self.logged_out(error));
                }
                self.renew_at = self.now.after(left / 2);
                return Ok(true);
            }
            Err(error) => return Err(self.logged_out(error)),
        };
        // No broker takes another user on an open connection.
        if *exchange.principal() != renewal.principal {
            return Err(End::Renamed);
        }
        let mechanism = exchange.principal().mechanism;
        let head = own_head(&mut self.questions, api::SASL_HANDSHAKE, login::HANDSHAKE);
        let bytes = login::handshake(head.correlation_id, mechanism.name());
        renewal.stage = Stage::Ready(Box::new(exchange), head, bytes);
        Ok(true)
    }

    /// The broker answered a request of this login.
    pub(super) fn login_answered(&mut self, owed: &Owed, frame: &[u8]) -> Result<(), End> {
        let stage = self
            .renewal
            .as_mut()
            .map(|renewal| std::mem::replace(&mut renewal.stage, Stage::Idle));
        let Some(Stage::Asked(mut exchange)) = stage else {
            return Ok(());
        };
        if owed.head.api_key == api::SASL_HANDSHAKE {
            let error = sasl::handshake_error(frame).map_err(|error| self.of_login(error))?;
            if error != 0 {
                let error = handshake_refused(error, exchange.principal().mechanism, frame);
                return Err(self.logged_out(error));
            }
            let first = exchange.first();
            return self.login_goes_on(exchange, Step::Send(first), None);
        }
        let answer = login::answered(owed.head.api_version, frame);
        let answer = answer.map_err(|error| self.of_login(error))?;
        if answer.error != 0 {
            self.shared.sasl.refused();
            let error = exchange.refused(answer.error, answer.message);
            return Err(self.logged_out(error));
        }
        let step = exchange.answered(answer.token);
        let step = step.map_err(|error| self.logged_out(error))?;
        self.login_goes_on(exchange, step, answer.lifetime)
    }

    fn login_goes_on(
        &mut self,
        exchange: Box<Exchange>,
        step: Step,
        lifetime: Option<Duration>,
    ) -> Result<(), End> {
        let Some(renewal) = &mut self.renewal else {
            return Ok(());
        };
        match step {
            Step::Send(token) => {
                let version = renewal.version;
                let head = own_head(&mut self.questions, api::SASL_AUTHENTICATE, version);
                let bytes = login::authenticate(version, head.correlation_id, &token);
                renewal.stage = Stage::Ready(exchange, head, bytes);
            }
            Step::Derive(work) => {
                let work = spawn_blocking(move || work.run());
                renewal.stage = Stage::Working(exchange, work);
            }
            Step::Done => {
                self.shared.logged_in(metrics::Login::Renewed);
                let login = Login {
                    principal: renewal.principal.clone(),
                    lifetime,
                    version: renewal.version,
                };
                (self.renewal, self.renew_at) = planned(Some(login), self.now);
            }
        }
        Ok(())
    }

    fn of_login(&self, error: WireError) -> End {
        self.logged_out(LoginError::Speech(error.to_string()))
    }

    fn logged_out(&self, error: LoginError) -> End {
        self.shared.not_logged_in(&error);
        End::LoggedOut(error)
    }
}

fn own_head(questions: &mut i32, api_key: i16, api_version: i16) -> RequestHead {
    *questions = questions.wrapping_add(1);
    RequestHead {
        api_key,
        api_version,
        correlation_id: *questions,
    }
}

fn handshake_refused(error: i16, wanted: Mechanism, frame: &[u8]) -> LoginError {
    match error {
        login::UNSUPPORTED_SASL_MECHANISM => LoginError::Mechanism {
            wanted,
            offered: sasl::handshake_mechanisms(frame).unwrap_or_default(),
        },
        login::ILLEGAL_SASL_STATE => {
            LoginError::Speech("it takes no login on this connection now (error 34)".to_owned())
        }
        error => LoginError::Speech(format!("error {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_renewed_before_it_ends_and_not_at_once() {
        let check = |seconds, milliseconds| {
            let early = early(Duration::from_secs(seconds));
            assert_eq!(early, Duration::from_millis(milliseconds));
        };
        check(3600, 2_880_000);
        check(3, 2400);
        check(1, 1100);
    }
}
