//! Logging in to brokers by hapax's own credentials, which come from files and
//! are read again while it runs.
//!
//! An [`Exchange`] says what goes to a broker and judges what comes back; it
//! touches no socket. PLAIN and SCRAM show, or prove, a password. OAUTHBEARER
//! shows a token: that of a file, or one that is got from an endpoint and
//! replaced well before it ends ([`Sasl::keep_fresh`]).
//!
//! No SASL library does this: Kafka prepares no password (RFC 4013), which
//! they do, so that some passwords would be refused; and none bounds by how
//! many iterations a peer may keep a thread busy. What is hard to write right
//! is `ring`'s, which TLS brings along.

mod credentials;
mod endpoint;
mod exchange;
mod scram;
mod token;
mod tokens;

use crate::config::{Config, SaslCredentials, UpstreamSasl};
use credentials::Secret;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokens::Tokens;

pub use credentials::LoadError;
pub use endpoint::TokenError;
pub use exchange::{Derivation, Derived, Exchange, LoginError, Principal, Step};
pub use scram::ScramError;
pub use tokens::Granted;

/// What hapax logs in to brokers by, where it does.
#[derive(Default)]
pub struct Sasl(Option<Own>);

struct Own {
    config: UpstreamSasl,
    current: RwLock<Arc<Secret>>,
    /// Where tokens are got, where they are.
    tokens: Option<Tokens>,
}

impl Sasl {
    /// What the files of the configuration say.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with them.
    pub fn load(config: &Config) -> Result<Self, LoadError> {
        let Some(config) = config.upstream_sasl.clone() else {
            return Ok(Self(None));
        };
        let secret = Secret::read(&config)?;
        let tokens = match &config.credentials {
            SaslCredentials::Client(oauth) => Some(Tokens::new(oauth.clone())?),
            SaslCredentials::Password { .. } | SaslCredentials::Token(_) => None,
        };
        Ok(Self(Some(Own {
            config,
            current: RwLock::new(Arc::new(secret)),
            tokens,
        })))
    }

    /// Whether hapax logs in by itself.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether tokens are got from an endpoint.
    #[must_use]
    pub fn gets_tokens(&self) -> bool {
        self.0.as_ref().is_some_and(|own| own.tokens.is_some())
    }

    /// Reads the files again, and logs in by what they say from now on.
    /// Returns whether that is anything new.
    ///
    /// # Errors
    ///
    /// What is wrong with the files; all stays as it was.
    pub fn reload(&self) -> Result<bool, LoadError> {
        let Some(own) = &self.0 else {
            return Ok(false);
        };
        let mut changed = own.tokens.as_ref().map_or(Ok(false), Tokens::reload)?;
        let read = Secret::read(&own.config)?;
        if read.digest() != own.current().digest() {
            let mut current = own.current.write().unwrap_or_else(PoisonError::into_inner);
            *current = Arc::new(read);
            changed = true;
        }
        if changed && let Some(tokens) = &own.tokens {
            tokens.want();
        }
        Ok(changed)
    }

    /// Begins to log in. Waits for the first token, where one is being got.
    ///
    /// # Errors
    ///
    /// Where there is nothing to log in by.
    pub async fn exchange(&self) -> Result<Exchange, LoginError> {
        let own = self.0.as_ref().ok_or(LoginError::NotConfigured)?;
        if let Some(tokens) = &own.tokens {
            tokens.ready().await;
        }
        self.exchange_now()
    }

    /// The same by what there is at this moment.
    ///
    /// # Errors
    ///
    /// Where there is nothing to log in by.
    pub fn exchange_now(&self) -> Result<Exchange, LoginError> {
        let own = self.0.as_ref().ok_or(LoginError::NotConfigured)?;
        let token = own.tokens.as_ref().map(Tokens::usable).transpose()?;
        Exchange::new(own.config.mechanism, own.current(), token)
    }

    /// A broker refused what hapax logged in by: a token may have been
    /// revoked, and another one is got before its time.
    pub fn refused(&self) {
        if let Some(tokens) = self.0.as_ref().and_then(|own| own.tokens.as_ref()) {
            tokens.want();
        }
    }

    /// Gets a token, where tokens are got, and a new one well before each
    /// ends; for ever. `patience` is how long getting one may take; `told` is
    /// called with what comes of it.
    pub async fn keep_fresh(
        &self,
        patience: impl Fn() -> Duration,
        told: impl FnMut(&Result<Granted, TokenError>),
    ) {
        if let Some(own) = &self.0
            && let Some(tokens) = &own.tokens
        {
            tokens.keep_fresh(|| own.current(), patience, told).await;
        }
    }

    /// Gets one token, where tokens are got.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn get_token(&self, patience: Duration) -> Result<(), TokenError> {
        match &self.0 {
            Some(own) => match &own.tokens {
                Some(tokens) => tokens.get(&own.current(), patience).await.map(drop),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}

/// What a broker may say in SCRAM, whatever it is: for the fuzz targets.
#[doc(hidden)]
pub fn hear(message: &[u8]) {
    scram::hear(message);
}

impl Own {
    fn current(&self) -> Arc<Secret> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }
}
