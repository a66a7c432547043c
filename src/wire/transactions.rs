//! What requests to a transaction coordinator claim and what it answers: insight only.

use super::WireError;
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
pub fn claim(_api_key: i16, _version: i16, _frame: &[u8]) -> Result<Option<Claim>, WireError> {
    todo!()
}

/// The outcome in a response frame; `None` for apis and versions not read here.
pub fn outcome(_api_key: i16, _version: i16, _frame: &[u8]) -> Result<Option<Outcome>, WireError> {
    todo!()
}
