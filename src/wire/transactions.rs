//! What requests to a transaction coordinator claim and what it answers: insight only.

use std::ops::Range;

use super::schema::{self, Field, Message, Role, Value, Visitor};
use super::{WireError, header};
use crate::ids::{Epoch, ProducerId};

/// Who a request says its sender is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its transactional id.
    pub transactional_id: Option<String>,
    /// Its producer id and epoch.
    pub producer: Option<(ProducerId, Epoch)>,
}

/// What a coordinator answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The distinct errors, none of them 0.
    pub errors: Vec<i16>,
    /// The producer id and epoch it announced (InitProducerId, EndTxn 5 and newer).
    pub announced: Option<(ProducerId, Epoch)>,
}

/// The claim of a request frame; `None` for apis and versions not read here
/// (AddPartitionsToTxn 4 and newer is sent by brokers only).
pub fn claim(api_key: i16, version: i16, frame: &[u8]) -> Result<Option<Claim>, WireError> {
    let Some(message) = message(schema::CLAIMS, api_key, version) else {
        return Ok(None);
    };
    let mut seen = Seen::default();
    let at = header::request_body_at(frame, version >= message.flexible)?;
    schema::walk(message, version, frame, at, &mut seen)?;
    let name = seen.transactional_id.map(str::from_utf8).transpose();
    let name = name.map_err(|error| WireError::Malformed {
        what: "the end of the valid part of a transactional id",
        value: i64::try_from(error.valid_up_to()).unwrap_or(i64::MAX),
    })?;
    Ok(Some(Claim {
        transactional_id: name.map(str::to_owned),
        producer: seen.producer(),
    }))
}

/// The outcome in a response frame; `None` for apis and versions not read here.
pub fn outcome(api_key: i16, version: i16, frame: &[u8]) -> Result<Option<Outcome>, WireError> {
    let Some(message) = message(schema::OUTCOMES, api_key, version) else {
        return Ok(None);
    };
    let mut seen = Seen::default();
    let at = header::response_body_at(api_key, version, frame)?;
    schema::walk(message, version, frame, at, &mut seen)?;
    Ok(Some(Outcome {
        announced: seen.producer(),
        errors: seen.errors,
    }))
}

fn message(
    all: &'static [&'static Message],
    api_key: i16,
    version: i16,
) -> Option<&'static Message> {
    let mut all = all.iter().filter(|message| message.api_key == api_key);
    let message = all.next()?;
    (message.oldest..=message.newest)
        .contains(&version)
        .then_some(message)
}

#[derive(Default)]
struct Seen<'a> {
    transactional_id: Option<&'a [u8]>,
    producer: Option<ProducerId>,
    epoch: Option<Epoch>,
    /// Distinct, none of them 0.
    errors: Vec<i16>,
}

impl Seen<'_> {
    fn producer(&self) -> Option<(ProducerId, Epoch)> {
        Some((self.producer?, self.epoch?))
    }
}

impl<'a> Visitor<'a> for Seen<'a> {
    fn leaf(
        &mut self,
        field: &'static Field,
        _at: Range<usize>,
        value: Value<'a>,
    ) -> Result<(), WireError> {
        match (field.role, value) {
            (Role::TransactionalId, Value::Bytes(id)) => self.transactional_id = id,
            (Role::Producer, Value::Int(raw)) => self.producer = ProducerId::from_wire(raw),
            (Role::Epoch, Value::Int(raw)) => self.epoch = i16::try_from(raw).ok().map(Epoch),
            (Role::Error, Value::Int(raw)) => {
                let error = i16::try_from(raw).unwrap_or(-1);
                if error != 0 && !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
