//! What goes to a broker to log in, and what is made of its answers.

use super::credentials::Secret;
use super::scram::{Challenged, First, Keys, Last, Salted, ScramError};
use super::token::Token;
use crate::config::{Mechanism, printable};
use crate::scram::Hash;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What is kept of a broker's words.
const SAID_MAX: usize = 300;
/// What the client answers where a token is refused (RFC 7628, 3.2.3).
const REFUSAL_TAKEN: &[u8] = b"\x01";

/// Why hapax is not logged in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The broker has other mechanisms.
    #[error(
        "it does not take {wanted}, but {}: set upstream.sasl.mechanism to what it takes, or turn {wanted} on there (sasl.enabled.mechanisms)",
        listed(offered)
    )]
    Mechanism {
        /// What hapax has.
        wanted: Mechanism,
        /// What the broker has.
        offered: Vec<String>,
    },
    /// The listener wants no login.
    #[error(
        "its listener wants no login (it is PLAINTEXT or SSL): set upstream.sasl.mechanism to none, or give the port of a listener that is SASL_PLAINTEXT or SASL_SSL"
    )]
    NotWanted,
    /// The broker has no SaslAuthenticate.
    #[error("it is older than Kafka 1.0 and cannot be logged in to")]
    TooOld,
    /// The broker refuses the credentials.
    #[error("it refuses the login by {mechanism} ({said}): {}", advice(*mechanism))]
    Refused {
        /// How hapax logged in.
        mechanism: Mechanism,
        /// What the broker says.
        said: String,
    },
    /// The broker's part of SCRAM is wrong.
    #[error("no login by SCRAM, since {0}")]
    Scram(#[from] ScramError),
    /// It hung up.
    #[error(
        "it hung up in the middle of the login: is it a listener that is SASL_PLAINTEXT (upstream.tls.enabled is for SASL_SSL), and are the credentials right?"
    )]
    HungUp,
    /// It does not answer.
    #[error("it does not finish the login within {0:?} (timeouts.sasl)")]
    Silent(Duration),
    /// What it says is no answer.
    #[error("its answer to the login is none: {0}")]
    Speech(String),
    /// There is no token to show.
    #[error("hapax has no token to log in by: {0}")]
    NoToken(String),
    /// The machine gives no random bytes, or no thread.
    #[error("the system lets nobody log in: {0}")]
    System(String),
    /// Nobody wants to log in.
    #[error("upstream.sasl.mechanism is none")]
    NotConfigured,
}

fn listed(mechanisms: &[String]) -> String {
    match mechanisms {
        [] => "no mechanism at all".to_owned(),
        some => printable(&some.join(", ")),
    }
}

fn advice(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::OauthBearer => {
            "look at whom the token is for and by whom, at its scope and at until when it is good"
        }
        Mechanism::None | Mechanism::Plain | Mechanism::ScramSha256 | Mechanism::ScramSha512 => {
            "look at upstream.sasl.username and at what is in upstream.sasl.passwordFile, and whether the broker has that user for this mechanism"
        }
    }
}

impl LoginError {
    /// A word for scripts.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Mechanism { .. } => "sasl_mechanism",
            Self::NotWanted | Self::TooOld => "sasl_not_wanted",
            Self::Refused { .. } => "sasl_refused",
            Self::Scram(_) => "sasl_scram",
            Self::HungUp => "sasl_closed",
            Self::Silent(_) => "sasl_silent",
            Self::Speech(_) => "sasl_speech",
            Self::NoToken(_) => "sasl_token",
            Self::System(_) | Self::NotConfigured => "sasl",
        }
    }

    /// Whether another try with the same credentials would end like this one,
    /// at any address of the cluster: brokers lock users out who try again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Mechanism { .. } | Self::Refused { .. } | Self::Scram(_) | Self::NoToken(_)
        )
    }
}

/// Who hapax is to the brokers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// How it proves that.
    pub mechanism: Mechanism,
    /// Its name.
    pub name: String,
}

/// One login. What it holds is secret.
pub struct Exchange {
    principal: Principal,
    /// What goes to the broker first.
    first: Vec<u8>,
    state: State,
    secret: Arc<Secret>,
    token: Option<Arc<Token>>,
}

enum State {
    /// Everything is in the first message.
    Shown,
    /// The broker says why it refuses the token, and waits for a word.
    Refused(String),
    /// The broker is to ask for a proof.
    Asked(First),
    /// Something of the password is to be worked out for it.
    Challenged(Box<Challenged>),
    /// The broker is to prove something itself.
    Proven(Last),
    /// It is over.
    Over,
}

/// What comes next.
pub enum Step {
    /// This goes to the broker.
    Send(Vec<u8>),
    /// Something has to be worked out, which takes a while;
    /// [`Exchange::derived`] goes on.
    Derive(Derivation),
    /// Nothing: hapax is logged in.
    Done,
}

/// Work that would keep other connections waiting.
pub struct Derivation {
    secret: Arc<Secret>,
    hash: Hash,
    salted: Salted,
}

/// What came of it.
pub struct Derived(Option<Arc<Keys>>);

impl Derivation {
    /// Does it.
    #[must_use]
    pub fn run(self) -> Derived {
        Derived(match &*self.secret {
            Secret::Password(own) => Some(own.make(self.hash, self.salted)),
            Secret::Token(_) | Secret::Client(_) => None,
        })
    }
}

impl Exchange {
    /// `token` is what was got for a client.
    pub(super) fn new(
        mechanism: Mechanism,
        secret: Arc<Secret>,
        token: Option<Arc<Token>>,
    ) -> Result<Self, LoginError> {
        let (name, first, state) = match (&*secret, &token) {
            (Secret::Password(own), _) => {
                let hash = match mechanism {
                    Mechanism::ScramSha256 => Some(Hash::Sha256),
                    Mechanism::ScramSha512 => Some(Hash::Sha512),
                    Mechanism::None | Mechanism::Plain | Mechanism::OauthBearer => None,
                };
                let (first, state) = match hash {
                    Some(hash) => {
                        let first = First::new(hash, &own.user, nonce()?);
                        (first.message(), State::Asked(first))
                    }
                    None => (format!("\0{}\0{}", own.user, own.password), State::Shown),
                };
                (own.user.clone(), first, state)
            }
            (Secret::Token(token), _) => {
                if token.has_ended(SystemTime::now()) {
                    return Err(LoginError::NoToken(ENDED.to_owned()));
                }
                (subject(token, "a token"), bearer(token), State::Shown)
            }
            (Secret::Client(own), Some(token)) => {
                (subject(token, &own.id), bearer(token), State::Shown)
            }
            (Secret::Client(_), None) => {
                return Err(LoginError::NoToken("none was got".to_owned()));
            }
        };
        Ok(Self {
            principal: Principal { mechanism, name },
            first: first.into_bytes(),
            state,
            secret,
            token,
        })
    }

    /// Who hapax logs in as.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What goes to the broker first.
    pub fn first(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.first)
    }

    /// The broker took the message, and answers this.
    ///
    /// # Errors
    ///
    /// Where that is no answer, or one that cannot be believed.
    pub fn answered(&mut self, message: &[u8]) -> Result<Step, LoginError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Shown if message.is_empty() => Ok(Step::Done),
            // RFC 7628: what refuses a token says why, and wants to be answered
            // before it gives its error. PLAIN has no such message.
            State::Shown if self.principal.mechanism == Mechanism::OauthBearer => {
                self.state = State::Refused(self.told(message));
                Ok(Step::Send(REFUSAL_TAKEN.to_vec()))
            }
            State::Shown => Ok(Step::Done),
            State::Asked(first) => {
                let challenged = first.challenged(message)?;
                let Secret::Password(own) = &*self.secret else {
                    return Err(LoginError::NotConfigured);
                };
                match own.made(&challenged.salted) {
                    Some(keys) => Ok(self.prove(challenged, &keys)),
                    None => {
                        let derivation = Derivation {
                            secret: Arc::clone(&self.secret),
                            hash: challenged.hash(),
                            salted: challenged.salted.clone(),
                        };
                        self.state = State::Challenged(Box::new(challenged));
                        Ok(Step::Derive(derivation))
                    }
                }
            }
            State::Proven(last) => {
                last.verify(message)?;
                Ok(Step::Done)
            }
            State::Refused(said) => Err(self.refusal(said)),
            State::Challenged(_) | State::Over => {
                Err(LoginError::Speech("it says too much".to_owned()))
            }
        }
    }

    /// Goes on with what was worked out.
    ///
    /// # Errors
    ///
    /// Where nobody had asked for that.
    pub fn derived(&mut self, derived: &Derived) -> Result<Step, LoginError> {
        match (std::mem::replace(&mut self.state, State::Over), &derived.0) {
            (State::Challenged(challenged), Some(keys)) => Ok(self.prove(*challenged, keys)),
            _ => Err(LoginError::NotConfigured),
        }
    }

    fn prove(&mut self, challenged: Challenged, keys: &Keys) -> Step {
        let (message, last) = challenged.proof(keys);
        self.state = State::Proven(last);
        Step::Send(message.into_bytes())
    }

    /// The broker answers with an error, and says this of it.
    #[must_use]
    pub fn refused(&self, error: i16, message: &[u8]) -> LoginError {
        let said = match (&self.state, message) {
            (State::Refused(said), _) => said.clone(),
            (_, []) => format!("error {error}"),
            (_, message) => self.told(message),
        };
        self.refusal(said)
    }

    fn refusal(&self, said: String) -> LoginError {
        LoginError::Refused {
            mechanism: self.principal.mechanism,
            said,
        }
    }

    /// The words of a broker, without what it may have been told by hapax.
    fn told(&self, message: &[u8]) -> String {
        let text = String::from_utf8_lossy(message);
        let token = self.token.as_ref().map(|token| &*token.text);
        let secret = match &*self.secret {
            Secret::Password(own) => Some(&*own.password),
            Secret::Token(token) => Some(&*token.text),
            Secret::Client(own) => Some(&*own.secret),
        };
        let hidden = [secret, token].into_iter().flatten();
        let text = hidden.fold(text.into_owned(), |text, secret| text.replace(secret, "…"));
        printable(&text.chars().take(SAID_MAX).collect::<String>())
    }
}

const ENDED: &str = "that of upstream.sasl.tokenFile has ended, and nobody has put a new one there";

fn subject(token: &Token, otherwise: &str) -> String {
    token
        .subject
        .clone()
        .unwrap_or_else(|| otherwise.to_owned())
}

/// RFC 7628, 3.1.
fn bearer(token: &Token) -> String {
    format!("n,,\x01auth=Bearer {}\x01\x01", token.text)
}

/// What nobody has said before.
fn nonce() -> Result<String, LoginError> {
    let mut bytes = [0; 24];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LoginError::System("it has no random bytes".to_owned()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
