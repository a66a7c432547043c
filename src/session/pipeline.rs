//! What a client is owed, in which order. Pure.
//!
//! Kafka answers each connection strictly in order, and so does hapax: an
//! answer of its own waits until everything before it has been answered.

use super::moment::Moment;
use crate::wire::header::RequestHead;
use crate::wire::produce::Answer;
use crate::wire::transactions::Claim;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// What is to happen with the response to a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// It passes as it comes.
    Pass,
    /// It is a SASL token without any header.
    Token,
    /// It may carry broker addresses.
    Addresses,
    /// It offers API versions.
    ApiVersions,
    /// It settles the tickets of a Produce request; these answers join it.
    Produce(Vec<Answer>),
    /// It tells of a producer.
    Insight(Box<Claim>),
    /// It answers a SaslHandshake.
    Handshake,
    /// It answers a SaslAuthenticate.
    Authenticate,
    /// It is hapax's own, and whole.
    Ready(Bytes),
    /// It answers a question of hapax's own, and no client gets it.
    ReadBack,
    /// It answers a login of hapax's own, and no client gets it.
    Login,
}

impl Reply {
    /// Whether no client waits for it.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::ReadBack | Self::Login)
    }
}

/// A request that has not been answered.
#[derive(Debug)]
pub(super) struct Owed {
    pub head: RequestHead,
    pub reply: Reply,
    /// How many of the session's tickets it settles; they are the oldest ones.
    pub tickets: usize,
    /// Where its last byte stands in the stream to the broker.
    pub end: u64,
    /// When it came.
    pub at: Moment,
    /// When the last of it came.
    pub sent: Option<Moment>,
    /// How long the broker may take by the request's own word.
    pub timeout: Option<Duration>,
}

impl Owed {
    /// How long its answer is, where that is hapax's own.
    fn ready_bytes(&self) -> usize {
        match &self.reply {
            Reply::Ready(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// The answers of hapax's own that join the response.
    pub(super) fn joined_by(&self) -> &[Answer] {
        match &self.reply {
            Reply::Produce(answers) => answers,
            _ => &[],
        }
    }
}

/// A response that answers nothing that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Unpaired {
    #[error("a response came although no request is open")]
    Unasked,
    #[error("a response came before its request had wholly come")]
    Early,
    #[error("the response {got} came where {expected} was owed")]
    OutOfOrder { expected: i32, got: i32 },
}

/// The unanswered requests of one connection, oldest first.
#[derive(Debug)]
pub(super) struct Pipeline {
    owed: VecDeque<Owed>,
    /// Bytes of the answers of hapax's own in it.
    ready: usize,
}

impl Default for Pipeline {
    /// With room for the one request at a time that most connections send.
    fn default() -> Self {
        Self {
            owed: VecDeque::with_capacity(1),
            ready: 0,
        }
    }
}

impl Pipeline {
    pub(super) fn len(&self) -> usize {
        self.owed.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Bytes of answers of hapax's own that wait for their turn.
    pub(super) fn ready_bytes(&self) -> usize {
        self.ready
    }

    pub(super) fn push(&mut self, owed: Owed) {
        self.ready += owed.ready_bytes();
        self.owed.push_back(owed);
    }

    /// The newest request settles this many tickets more.
    pub(super) fn add_tickets(&mut self, tickets: usize) {
        if let Some(newest) = self.owed.back_mut() {
            newest.tickets += tickets;
        }
    }

    /// All of the newest request has come.
    pub(super) fn newest_came(&mut self, now: Moment) {
        if let Some(newest) = self.owed.back_mut() {
            newest.sent.get_or_insert(now);
        }
    }

    /// The request that the broker answers next.
    pub(super) fn front(&self) -> Option<&Owed> {
        self.owed.front()
    }

    /// Takes the request that a response with this correlation id answers.
    pub(super) fn take(&mut self, correlation_id: i32) -> Result<Owed, Unpaired> {
        let front = self.owed.front().ok_or(Unpaired::Unasked)?;
        let expected = front.head.correlation_id;
        if expected != correlation_id {
            return Err(Unpaired::OutOfOrder {
                expected,
                got: correlation_id,
            });
        }
        let owed = self.owed.pop_front().ok_or(Unpaired::Unasked)?;
        self.ready -= owed.ready_bytes();
        Ok(owed)
    }

    /// Takes the token exchange that is owed next, if one is.
    pub(super) fn take_token(&mut self) -> Option<Owed> {
        matches!(self.owed.front()?.reply, Reply::Token)
            .then(|| self.owed.pop_front())
            .flatten()
    }

    /// Takes an answer of hapax's own whose turn has come: no client waits for
    /// what is before it.
    pub(super) fn take_ready(&mut self) -> Option<(Owed, Bytes)> {
        let at = if self.owed.front()?.reply.is_own() {
            self.owed.iter().position(|owed| !owed.reply.is_own())?
        } else {
            // Nearly always.
            0
        };
        if !matches!(self.owed.get(at)?.reply, Reply::Ready(_)) {
            return None;
        }
        let mut owed = self.owed.remove(at)?;
        match std::mem::replace(&mut owed.reply, Reply::Pass) {
            Reply::Ready(bytes) => {
                self.ready -= bytes.len();
                Some((owed, bytes))
            }
            _ => None,
        }
    }

    /// The request at this place, 0 being the front.
    pub(super) fn nth(&self, place: usize) -> Option<&Owed> {
        self.owed.get(place)
    }

    /// Takes the request at this place, whose answer came out of turn: only
    /// one of hapax's own may.
    pub(super) fn take_nth(&mut self, place: usize) -> Option<Owed> {
        self.owed.remove(place)
    }

    /// Takes all that is left, oldest first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Owed> + '_ {
        self.ready = 0;
        self.owed.drain(..)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Owed> {
        self.owed.iter()
    }
}

/// A pipeline as the benchmarks see it: requests that pass as they come.
#[doc(hidden)]
#[derive(Default, Debug)]
pub struct Pairing(Pipeline);

impl Pairing {
    /// A request has come.
    pub fn ask(&mut self, head: RequestHead) {
        self.0.push(Owed {
            head,
            reply: Reply::Produce(Vec::new()),
            tickets: 1,
            end: 0,
            at: Moment::START,
            sent: Some(Moment::START),
            timeout: None,
        });
    }

    /// A response has come. Returns the tickets that it settles, if it is the
    /// one that is owed next.
    pub fn answer(&mut self, correlation_id: i32) -> Option<usize> {
        let owed = self.0.take(correlation_id).ok()?;
        Some(owed.tickets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(correlation_id: i32, reply: Reply) -> Owed {
        Owed {
            head: RequestHead {
                api_key: 3,
                api_version: 0,
                correlation_id,
            },
            reply,
            tickets: 0,
            end: 0,
            at: Moment::START,
            sent: None,
            timeout: None,
        }
    }

    #[test]
    fn an_own_answer_waits_for_its_turn() {
        let mut pipeline = Pipeline::default();
        pipeline.push(owed(1, Reply::Pass));
        pipeline.push(owed(2, Reply::Ready(Bytes::from_static(b"two"))));
        assert!(pipeline.take_ready().is_none());
        pipeline.take(1).unwrap();
        assert_eq!(pipeline.ready_bytes(), 3);
        assert_eq!(pipeline.take_ready().unwrap().1, "two");
        assert_eq!(pipeline.ready_bytes(), 0);
        assert!(pipeline.is_empty());
    }

    /// A question that a broker does not answer keeps no client waiting.
    #[test]
    fn an_own_answer_does_not_wait_for_an_own_question() {
        let mut pipeline = Pipeline::default();
        pipeline.push(owed(1, Reply::ReadBack));
        pipeline.push(owed(2, Reply::Ready(Bytes::from_static(b"two"))));
        pipeline.push(owed(3, Reply::Pass));
        pipeline.push(owed(4, Reply::Ready(Bytes::from_static(b"four"))));
        assert_eq!(pipeline.take_ready().unwrap().1, "two");
        assert!(pipeline.take_ready().is_none(), "a client waits for 3");
        pipeline.take(1).unwrap();
        pipeline.take(3).unwrap();
        assert_eq!(pipeline.take_ready().unwrap().1, "four");
    }

    #[test]
    fn a_response_that_was_not_asked_for_is_refused() {
        let mut pipeline = Pipeline::default();
        assert_eq!(pipeline.take(1).unwrap_err(), Unpaired::Unasked);
        pipeline.push(owed(1, Reply::Pass));
        let wrong = pipeline.take(2).unwrap_err();
        assert_eq!(
            wrong,
            Unpaired::OutOfOrder {
                expected: 1,
                got: 2
            }
        );
        assert_eq!(pipeline.len(), 1, "it is still owed");
    }
}
