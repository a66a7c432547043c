//! What a client says until it is known who it is. Pure.
//!
//! ```text
//! Start --SaslHandshake--> Chosen --SaslAuthenticate, or a bare token--> the end
//!                            |                                            ^
//!                            +--the first of SCRAM--> Proving --the last--+
//! ```
//!
//! Like a broker it answers nothing but ApiVersions and these two before. One
//! attempt is all that a connection has.

use super::credential::Credential;
use super::list::List;
use super::scram::{Exchange, Failed};
use crate::config::ClientMechanism;
use crate::scram::Hash;
use crate::wire::api_versions::{self, Offered};
use crate::wire::header::{self, RequestHead};
use crate::wire::{api, frame, sasl};
use bytes::Bytes;

/// The longest frame that a client may send before it is known: names,
/// passwords and proofs have a few hundred bytes.
pub const FRAME_MAX: usize = 8 * 1024;
/// Requests that it may send: those that are needed are four.
const REQUESTS_MAX: u8 = 16;
/// The newest ApiVersions that is answered before: [`Step::Versions`].
const VERSIONS_NEWEST: i16 = 4;

/// The apis by which clients authenticate, as hapax answers them.
pub const SASL_APIS: [Offered; 2] = [
    Offered {
        api_key: api::SASL_HANDSHAKE,
        min: 0,
        max: 1,
    },
    Offered {
        api_key: api::SASL_AUTHENTICATE,
        min: 0,
        max: 2,
    },
];

const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// What is to be done about a frame.
#[must_use]
pub enum Step {
    /// Answer this, and read on.
    Answer(Bytes),
    /// Answer what the broker answers to ApiVersions of this version.
    Versions(RequestHead),
    /// Look whether the claim holds, which takes a while; then say so to
    /// [`Login::checked`].
    Check(Claim),
    /// Answer this; it is this user.
    Admit {
        /// The user.
        user: String,
        /// The answer.
        answer: Bytes,
    },
    /// Answer this, where there is something to answer, and close.
    Refuse {
        /// Why.
        why: Refusal,
        /// The answer.
        answer: Option<Bytes>,
    },
}

/// A user's name, and what shall be the password.
pub struct Claim {
    user: String,
    exists: bool,
    credential: Credential,
    password: Vec<u8>,
}

impl Claim {
    /// Whether it is. Takes as long as the credential's iterations do, and as
    /// long for a user who does not exist.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.credential.is_of(&self.password) && self.exists
    }
}

/// Why a client is not let in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It has not proven to be who it says.
    #[error("the password is another one, or there is no such user")]
    Refused {
        /// Who that is, where there is such a user: anything else may be a
        /// password in the wrong place.
        user: Option<String>,
    },
    /// It asks for a mechanism that is not offered.
    #[error("the client asks for a SASL mechanism that is not among listen.sasl.mechanisms")]
    Mechanism,
    /// It asks for something else.
    #[error(
        "the client sent {} before it had authenticated: set its security.protocol to SASL_PLAINTEXT or SASL_SSL, with a user of listen.sasl.usersFile", api_name(*.0)
    )]
    Unauthenticated(i16),
    /// It is out of turn, or nothing that can be read.
    #[error("what the client sent to authenticate cannot be read, or came out of turn")]
    Malformed,
    /// It goes on and on.
    #[error("the client sent more than {REQUESTS_MAX} requests without authenticating")]
    TooMany,
}

fn api_name(key: i16) -> String {
    match api::name(key) {
        "other" => format!("a request of api {key}"),
        name => name.to_owned(),
    }
}

/// How the answer to a token looks.
#[derive(Clone, Copy)]
enum Form {
    /// Without a header (SaslHandshake v0).
    Bare,
    /// As a SaslAuthenticate response.
    Framed(RequestHead),
}

enum Stage {
    Start,
    Chosen {
        mechanism: ClientMechanism,
        bare: bool,
    },
    Proving {
        exchange: Box<Exchange>,
        bare: bool,
    },
    Checking {
        user: String,
        exists: bool,
        form: Form,
    },
    Over,
}

/// One client until it is known who it is.
pub struct Login<'a> {
    list: &'a List,
    mechanisms: &'a [ClientMechanism],
    stage: Stage,
    requests: u8,
    /// The mechanism that the client has chosen.
    mechanism: Option<ClientMechanism>,
}

impl<'a> Login<'a> {
    /// It has said nothing yet.
    #[must_use]
    pub fn new(list: &'a List, mechanisms: &'a [ClientMechanism]) -> Self {
        Self {
            list,
            mechanisms,
            stage: Stage::Start,
            requests: 0,
            mechanism: None,
        }
    }

    /// The mechanism that the client has chosen, if it has.
    #[must_use]
    pub fn mechanism(&self) -> Option<ClientMechanism> {
        self.mechanism
    }

    /// The shortest frame that may come next.
    #[must_use]
    pub fn frame_min(&self) -> usize {
        if self.expects_bare() {
            0
        } else {
            frame::MIN_REQUEST
        }
    }

    fn expects_bare(&self) -> bool {
        matches!(
            self.stage,
            Stage::Chosen { bare: true, .. } | Stage::Proving { bare: true, .. }
        )
    }

    /// What to do about the next frame, which has wholly come. `own_nonce` is
    /// random, and used once.
    pub fn frame(&mut self, bytes: &[u8], own_nonce: &str) -> Step {
        if self.expects_bare() {
            return self.token(Form::Bare, bytes, own_nonce);
        }
        self.requests += 1;
        let Some(head) = header::request_head(bytes) else {
            return self.refuse(Refusal::Malformed);
        };
        if self.requests > REQUESTS_MAX {
            return self.refuse(Refusal::TooMany);
        }
        let body = || {
            let flexible = header::flexible(head.api_key, head.api_version)?;
            let at = header::body_at(bytes, flexible).ok()??;
            bytes.get(at..)
        };
        match head.api_key {
            api::API_VERSIONS if head.api_version < 0 => self.refuse(Refusal::Malformed),
            api::API_VERSIONS if head.api_version > VERSIONS_NEWEST => Step::Answer(
                api_versions::unsupported_above(VERSIONS_NEWEST, head.correlation_id),
            ),
            api::API_VERSIONS => Step::Versions(head),
            api::SASL_HANDSHAKE => self.handshake(head, body()),
            api::SASL_AUTHENTICATE => {
                let token = body().and_then(|b| sasl::authenticate_token(head.api_version, b).ok());
                match token {
                    Some(token) => self.token(Form::Framed(head), token, own_nonce),
                    None => self.refuse(Refusal::Malformed),
                }
            }
            other => self.refuse(Refusal::Unauthenticated(other)),
        }
    }

    fn handshake(&mut self, head: RequestHead, body: Option<&[u8]>) -> Step {
        let asked = body.and_then(|b| sasl::handshake_mechanism(head.api_version, b).ok());
        let (Some(asked), Stage::Start) = (asked, &self.stage) else {
            return self.refuse(Refusal::Malformed);
        };
        let names: Vec<&str> = self.mechanisms.iter().map(|own| own.name()).collect();
        let own = self.mechanisms.iter().find(|own| own.name() == asked);
        let Some(&mechanism) = own else {
            let error = UNSUPPORTED_SASL_MECHANISM;
            let answer = sasl::handshake_response(head.correlation_id, error, &names);
            return self.refuse_with(Refusal::Mechanism, Some(answer));
        };
        self.mechanism = Some(mechanism);
        self.stage = Stage::Chosen {
            mechanism,
            bare: head.api_version == 0,
        };
        Step::Answer(sasl::handshake_response(head.correlation_id, 0, &names))
    }

    fn token(&mut self, form: Form, token: &[u8], own_nonce: &str) -> Step {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Chosen { mechanism, bare } if bare == form.is_bare() => match hash_of(mechanism)
            {
                None => self.password(form, token),
                Some(hash) => match Exchange::begin(self.list, hash, token, own_nonce) {
                    Some((exchange, answer)) => {
                        self.stage = Stage::Proving {
                            exchange: Box::new(exchange),
                            bare,
                        };
                        Step::Answer(form.token(answer.as_bytes()))
                    }
                    None => self.fail(form, Refusal::Malformed),
                },
            },
            Stage::Proving { exchange, bare } if bare == form.is_bare() => {
                match exchange.end(token) {
                    Ok(answer) => Step::Admit {
                        user: exchange.user,
                        answer: form.token(answer.as_bytes()),
                    },
                    Err(Failed::Malformed) => self.fail(form, Refusal::Malformed),
                    Err(Failed::Refused) => {
                        let user = exchange.exists().then_some(exchange.user);
                        self.fail(form, Refusal::Refused { user })
                    }
                }
            }
            Stage::Start
            | Stage::Chosen { .. }
            | Stage::Proving { .. }
            | Stage::Checking { .. }
            | Stage::Over => self.fail(form, Refusal::Malformed),
        }
    }

    fn password(&mut self, form: Form, token: &[u8]) -> Step {
        let user = sasl::user(ClientMechanism::Plain.name(), token);
        let password = token.rsplit(|byte| *byte == 0).next();
        let (Some(user), Some(password)) = (user, password) else {
            return self.fail(form, Refusal::Malformed);
        };
        let known = self.list.by_password(&user);
        self.stage = Stage::Checking {
            user: user.clone(),
            exists: known.exists,
            form,
        };
        Step::Check(Claim {
            user,
            exists: known.exists,
            credential: known.credential,
            password: password.to_vec(),
        })
    }

    /// A claim holds, or does not.
    pub fn checked(&mut self, claim: &Claim, holds: bool) -> Step {
        let Stage::Checking { user, exists, form } =
            std::mem::replace(&mut self.stage, Stage::Over)
        else {
            return self.refuse(Refusal::Malformed);
        };
        if holds && exists && claim.user == user {
            let answer = form.token(b"");
            return Step::Admit { user, answer };
        }
        let user = exists.then_some(user);
        self.fail(form, Refusal::Refused { user })
    }

    /// Refuses a token: what the client hears tells nobody who exists.
    fn fail(&mut self, form: Form, why: Refusal) -> Step {
        let mechanism = self.mechanism.map_or("SASL", ClientMechanism::name);
        let said = match why {
            Refusal::Refused { .. } => format!(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
            ),
            _ => format!("Authentication failed: the {mechanism} message cannot be read"),
        };
        let answer = form.refusal(&said);
        self.refuse_with(why, answer)
    }

    fn refuse(&mut self, why: Refusal) -> Step {
        self.refuse_with(why, None)
    }

    fn refuse_with(&mut self, why: Refusal, answer: Option<Bytes>) -> Step {
        self.stage = Stage::Over;
        Step::Refuse { why, answer }
    }
}

impl Form {
    fn is_bare(self) -> bool {
        matches!(self, Self::Bare)
    }

    fn token(self, token: &[u8]) -> Bytes {
        match self {
            Self::Bare => frame::with_length(token).into(),
            Self::Framed(head) => {
                sasl::token_response(head.api_version, head.correlation_id, token)
            }
        }
    }

    /// Bare tokens have no error: the end of the connection says it.
    fn refusal(self, why: &str) -> Option<Bytes> {
        let Self::Framed(head) = self else {
            return None;
        };
        let error = SASL_AUTHENTICATION_FAILED;
        Some(sasl::refusal_response(
            head.api_version,
            head.correlation_id,
            error,
            why,
        ))
    }
}

/// The hash of a SCRAM mechanism.
fn hash_of(mechanism: ClientMechanism) -> Option<Hash> {
    match mechanism {
        ClientMechanism::Plain => None,
        ClientMechanism::ScramSha256 => Some(Hash::Sha256),
        ClientMechanism::ScramSha512 => Some(Hash::Sha512),
    }
}
