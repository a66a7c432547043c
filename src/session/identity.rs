//! Who the client of a session has proven to be. Pure.
//!
//! Only a finished exchange proves anything: after its first SCRAM message a
//! client has shown a name and no more. PLAIN, SCRAM and OAUTHBEARER end with
//! an answer that can be told; the end of any other mechanism is seen by what
//! follows it, since a broker answers nothing but ApiVersions and SASL before.

use crate::ledger::Identity;
use crate::wire::sasl::TokenAnswer;
use crate::wire::{api, sasl};

/// Where the authentication of a session stands.
#[derive(Debug)]
pub(super) struct Authentication {
    stage: Stage,
    /// Whether the listener is on loopback, where any user of this machine
    /// counts as one.
    loopback: bool,
    /// Whether hapax itself has found out who the client is: then it stays so,
    /// and no broker is asked.
    settled: bool,
}

#[derive(Debug)]
enum Stage {
    /// No SaslHandshake yet.
    Anonymous,
    /// A SaslHandshake is on its way.
    Asked { mechanism: String, bare: bool },
    /// Tokens go back and forth.
    Exchange(Exchange),
    /// The broker answered what it answers to authenticated clients only.
    Proven(Identity),
    /// The broker refused, or it cannot be told whom it accepts.
    Failed,
}

#[derive(Debug)]
struct Exchange {
    mechanism: String,
    /// Whether tokens come without a header (SaslHandshake v0).
    bare: bool,
    user: Option<String>,
    sent: u8,
    answered: u8,
}

impl Authentication {
    pub(super) fn new(loopback: bool) -> Self {
        Self {
            stage: Stage::Anonymous,
            loopback,
            settled: false,
        }
    }

    /// The client of a session on which hapax has logged in itself: to the
    /// broker all of them are that one user.
    pub(super) fn of_hapax(loopback: bool, user: Identity) -> Self {
        Self {
            stage: Stage::Proven(user),
            loopback,
            settled: false,
        }
    }

    /// hapax itself has found out who the client is.
    pub(super) fn settled_as(identity: Identity) -> Self {
        Self {
            stage: Stage::Proven(identity),
            loopback: false,
            settled: true,
        }
    }

    /// Whether it did.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// As which user, if it did.
    pub(super) fn settled_user(&self) -> Option<&str> {
        match &self.stage {
            Stage::Proven(Identity::User { user, .. }) if self.settled => Some(user),
            _ => None,
        }
    }

    /// A SaslHandshake request went out.
    pub(super) fn handshake(&mut self, mechanism: &str, version: i16) {
        self.stage = Stage::Asked {
            mechanism: mechanism.to_owned(),
            bare: version == 0,
        };
    }

    /// The answer to it.
    pub(super) fn handshake_answered(&mut self, error: i16) {
        if let Stage::Asked { mechanism, bare } = &mut self.stage
            && error == 0
        {
            self.stage = Stage::Exchange(Exchange {
                mechanism: std::mem::take(mechanism),
                bare: *bare,
                user: None,
                sent: 0,
                answered: 0,
            });
        }
    }

    /// Whether the next frame of the client is a token without a header.
    pub(super) fn expects_bare_token(&self, frame: &[u8]) -> bool {
        let Stage::Exchange(exchange) = &self.stage else {
            return false;
        };
        exchange.bare
            && match sasl::rounds(&exchange.mechanism) {
                Some(rounds) => exchange.sent < rounds,
                None => !sasl::looks_like_request(frame),
            }
    }

    /// A token of the client went out.
    pub(super) fn token(&mut self, token: &[u8]) {
        match &mut self.stage {
            Stage::Exchange(exchange) => {
                if exchange.sent == 0 {
                    exchange.user = sasl::user(&exchange.mechanism, token);
                }
                exchange.sent = exchange.sent.saturating_add(1);
            }
            // Its answer would be taken for that to a token which comes later.
            Stage::Asked { .. } => self.stage = Stage::Failed,
            Stage::Anonymous | Stage::Proven(_) | Stage::Failed => {}
        }
    }

    /// The answer to it.
    pub(super) fn token_answered(&mut self, answer: TokenAnswer) {
        let Stage::Exchange(exchange) = &mut self.stage else {
            return;
        };
        if answer.error != 0 {
            self.stage = Stage::Failed;
            return;
        }
        exchange.answered = exchange.answered.saturating_add(1);
        if sasl::is_end(&exchange.mechanism, exchange.answered, answer) {
            self.proven();
        }
    }

    /// A request was answered. Returns whether that proves who the client is.
    pub(super) fn answered(&mut self, api_key: i16) -> bool {
        let before_proof = [
            api::API_VERSIONS,
            api::SASL_HANDSHAKE,
            api::SASL_AUTHENTICATE,
        ];
        let Stage::Exchange(exchange) = &self.stage else {
            return false;
        };
        if before_proof.contains(&api_key) || exchange.answered == 0 {
            return false;
        }
        self.proven();
        true
    }

    /// Whether an exchange has begun and has not ended: whoever that is gets
    /// what the broker gives.
    pub(super) fn pending(&self) -> bool {
        matches!(
            self.stage,
            Stage::Asked { .. } | Stage::Exchange(_) | Stage::Failed
        )
    }

    fn proven(&mut self) {
        let Stage::Exchange(exchange) = &mut self.stage else {
            return;
        };
        let mechanism = std::mem::take(&mut exchange.mechanism);
        let identity = match exchange.user.take() {
            Some(user) => Identity::User { mechanism, user },
            None if self.loopback => Identity::Local { mechanism },
            None => Identity::Unproven,
        };
        self.stage = Stage::Proven(identity);
    }

    /// Who the client has proven to be by now.
    pub(super) fn identity(&self) -> Identity {
        match &self.stage {
            Stage::Anonymous => Identity::Anonymous,
            Stage::Asked { .. } | Stage::Exchange(_) | Stage::Failed => Identity::Unproven,
            Stage::Proven(identity) => identity.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: TokenAnswer = TokenAnswer {
        error: 0,
        is_empty: true,
    };
    /// The broker goes on, or says why it does not.
    const TOLD: TokenAnswer = TokenAnswer {
        error: 0,
        is_empty: false,
    };

    fn exchanged(loopback: bool, mechanism: &str, tokens: &[&[u8]]) -> Authentication {
        let mut a = Authentication::new(loopback);
        a.handshake(mechanism, 1);
        a.handshake_answered(0);
        for token in tokens {
            a.token(token);
            a.token_answered(TAKEN);
        }
        a
    }

    fn user(mechanism: &str, user: &str) -> Identity {
        Identity::User {
            mechanism: mechanism.to_owned(),
            user: user.to_owned(),
        }
    }

    #[test]
    fn a_name_alone_proves_nothing() {
        let mut a = exchanged(true, "SCRAM-SHA-256", &[b"n,,n=alice,r=x"]);
        assert_eq!(a.identity(), Identity::Unproven);
        assert!(a.pending());
        assert!(!a.answered(api::API_VERSIONS));
        a.token(b"c=biws,r=x,p=y");
        a.token_answered(TOLD);
        assert_eq!(a.identity(), user("SCRAM-SHA-256", "alice"));
        assert!(!a.pending());
    }

    #[test]
    fn a_refused_client_stays_unproven() {
        let mut a = exchanged(true, "PLAIN", &[]);
        a.token(b"\0alice\0secret");
        a.token_answered(TokenAnswer { error: 58, ..TAKEN });
        assert!(!a.answered(api::METADATA));
        assert_eq!(a.identity(), Identity::Unproven);
    }

    #[test]
    fn an_unreadable_user_counts_on_loopback_only() {
        let mut far = exchanged(false, "OAUTHBEARER", &[b"token"]);
        far.answered(api::METADATA);
        assert_eq!(far.identity(), Identity::Unproven);
        let mut near = exchanged(true, "OAUTHBEARER", &[b"token"]);
        near.answered(api::METADATA);
        let mechanism = "OAUTHBEARER".to_owned();
        assert_eq!(near.identity(), Identity::Local { mechanism });
    }

    /// What comes right behind the exchange is that of somebody who is known.
    #[test]
    fn a_bearer_is_proven_by_an_answer_that_says_nothing() {
        let mut a = exchanged(true, "OAUTHBEARER", &[b"token"]);
        let mechanism = "OAUTHBEARER".to_owned();
        assert_eq!(a.identity(), Identity::Local { mechanism });
        assert!(!a.pending());
        // Signing in again: refused, which the broker says without an error.
        a.handshake("OAUTHBEARER", 1);
        a.handshake_answered(0);
        a.token(b"a stale token");
        a.token_answered(TOLD);
        assert_eq!(a.identity(), Identity::Unproven);
        assert!(a.pending());
        a.token(b"\x01");
        a.token_answered(TAKEN);
        assert!(a.pending());
    }

    #[test]
    fn other_mechanisms_are_proven_by_what_follows() {
        let mut a = exchanged(true, "AWS_MSK_IAM", &[b"token"]);
        assert!(a.pending());
        a.answered(api::METADATA);
        assert!(!a.pending());
    }

    #[test]
    fn bare_tokens_end_with_the_mechanisms_rounds() {
        let mut a = Authentication::new(true);
        assert!(!a.expects_bare_token(b""));
        a.handshake("PLAIN", 0);
        a.handshake_answered(0);
        assert!(a.expects_bare_token(b""));
        a.token(b"\0alice\0secret");
        assert!(!a.expects_bare_token(b""));
        a.token_answered(TAKEN);
        assert_eq!(a.identity(), user("PLAIN", "alice"));
    }

    #[test]
    fn authenticating_again_starts_over() {
        let mut a = exchanged(true, "PLAIN", &[b"\0alice\0secret"]);
        assert_eq!(a.identity(), user("PLAIN", "alice"));
        a.handshake("PLAIN", 1);
        assert_eq!(a.identity(), Identity::Unproven);
    }
}
