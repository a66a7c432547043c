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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::api;
    use crate::wire::testing::{UNKNOWN, request, response, text};
    use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
    use kafka_protocol::messages::add_partitions_to_txn_response::{
        AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
    };
    use kafka_protocol::messages::txn_offset_commit_request::{
        TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    };
    use kafka_protocol::messages::txn_offset_commit_response::{
        TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
    };
    use kafka_protocol::messages::{
        AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
        InitProducerIdResponse, ProducerId as WireProducer, TopicName, TransactionalId,
        TxnOffsetCommitRequest, TxnOffsetCommitResponse,
    };
    use kafka_protocol::protocol::Encodable;
    use proptest::prelude::*;

    fn check_claim(key: i16, version: i16, body: &impl Encodable, producer: bool) {
        let (frame, _) = request(key, version, body);
        let expected = Claim {
            transactional_id: Some("tx".to_owned()),
            producer: producer.then(announced),
        };
        assert_eq!(
            claim(key, version, &frame),
            Ok(Some(expected)),
            "{key} {version}"
        );
        for end in 0..frame.len() {
            assert!(claim(key, version, &frame[..end]).is_err());
        }
    }

    fn announced() -> (ProducerId, Epoch) {
        (ProducerId::from_wire(42).unwrap(), Epoch(3))
    }

    #[test]
    fn claims_agree_with_the_crate() {
        let id = || TransactionalId(text("tx"));
        let producer = WireProducer(42);
        let (tag, unknown) = UNKNOWN;
        for version in 0..=5 {
            let mut init = InitProducerIdRequest::default().with_transactional_id(Some(id()));
            if version >= 3 {
                init = init.with_producer_id(producer).with_producer_epoch(3);
            }
            if version >= 2 {
                init.unknown_tagged_fields.insert(tag, unknown.clone());
            }
            check_claim(api::INIT_PRODUCER_ID, version, &init, version >= 3);
        }
        for version in 0..=3 {
            let topic = AddPartitionsToTxnTopic::default()
                .with_name(TopicName(text("topic")))
                .with_partitions(vec![1, 2]);
            let add = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(id())
                .with_v3_and_below_producer_id(producer)
                .with_v3_and_below_producer_epoch(3)
                .with_v3_and_below_topics(vec![topic]);
            check_claim(api::ADD_PARTITIONS_TO_TXN, version, &add, true);
        }
        for version in 0..=4 {
            let add = AddOffsetsToTxnRequest::default()
                .with_transactional_id(id())
                .with_producer_id(producer)
                .with_producer_epoch(3);
            check_claim(api::ADD_OFFSETS_TO_TXN, version, &add, true);
        }
        for version in 0..=5 {
            let end = EndTxnRequest::default()
                .with_transactional_id(id())
                .with_producer_id(producer)
                .with_producer_epoch(3);
            check_claim(api::END_TXN, version, &end, true);
            let topic = TxnOffsetCommitRequestTopic::default()
                .with_name(TopicName(text("topic")))
                .with_partitions(vec![TxnOffsetCommitRequestPartition::default()]);
            let commit = TxnOffsetCommitRequest::default()
                .with_transactional_id(id())
                .with_producer_id(producer)
                .with_producer_epoch(3)
                .with_topics(vec![topic]);
            check_claim(api::TXN_OFFSET_COMMIT, version, &commit, true);
        }
    }

    #[test]
    fn a_producer_without_transactions_claims_nothing() {
        let init = InitProducerIdRequest::default().with_transactional_id(None);
        let (frame, _) = request(api::INIT_PRODUCER_ID, 4, &init);
        let claim = claim(api::INIT_PRODUCER_ID, 4, &frame).unwrap().unwrap();
        assert_eq!((claim.transactional_id, claim.producer), (None, None));
    }

    #[test]
    fn what_is_not_read_passes() {
        for (key, version) in [
            (api::ADD_PARTITIONS_TO_TXN, 4),
            (api::INIT_PRODUCER_ID, 6),
            (0, 9),
        ] {
            assert_eq!(claim(key, version, &[]), Ok(None));
        }
        assert_eq!(outcome(api::END_TXN, 6, &[]), Ok(None));
    }

    fn check_outcome(key: i16, version: i16, body: &impl Encodable, errors: &[i16], known: bool) {
        let frame = response(key, version, body);
        let expected = Outcome {
            errors: errors.to_vec(),
            announced: known.then(announced),
        };
        assert_eq!(
            outcome(key, version, &frame),
            Ok(Some(expected)),
            "{key} {version}"
        );
        for end in 0..frame.len() {
            assert!(outcome(key, version, &frame[..end]).is_err());
        }
    }

    #[test]
    fn outcomes_agree_with_the_crate() {
        let producer = WireProducer(42);
        for version in 0..=5 {
            let init = InitProducerIdResponse::default()
                .with_producer_id(producer)
                .with_producer_epoch(3);
            check_outcome(api::INIT_PRODUCER_ID, version, &init, &[], true);
            let refused = InitProducerIdResponse::default()
                .with_error_code(90)
                .with_producer_id(WireProducer(-1));
            check_outcome(api::INIT_PRODUCER_ID, version, &refused, &[90], false);

            let mut end = EndTxnResponse::default().with_error_code(51);
            if version >= 5 {
                end = end.with_producer_id(producer).with_producer_epoch(3);
            }
            check_outcome(api::END_TXN, version, &end, &[51], version >= 5);

            let results = [47, 0, 48, 47].map(|error| {
                AddPartitionsToTxnPartitionResult::default().with_partition_error_code(error)
            });
            let topic = AddPartitionsToTxnTopicResult::default()
                .with_name(TopicName(text("topic")))
                .with_results_by_partition(results.to_vec());
            let added = AddPartitionsToTxnResponse::default();
            if version >= 4 {
                let result = AddPartitionsToTxnResult::default().with_topic_results(vec![topic]);
                let added = added
                    .with_results_by_transaction(vec![result])
                    .with_error_code(31);
                check_outcome(
                    api::ADD_PARTITIONS_TO_TXN,
                    version,
                    &added,
                    &[31, 47, 48],
                    false,
                );
            } else {
                let added = added.with_results_by_topic_v3_and_below(vec![topic]);
                check_outcome(
                    api::ADD_PARTITIONS_TO_TXN,
                    version,
                    &added,
                    &[47, 48],
                    false,
                );
            }

            let partition = TxnOffsetCommitResponsePartition::default().with_error_code(16);
            let topic = TxnOffsetCommitResponseTopic::default().with_partitions(vec![partition]);
            let commit = TxnOffsetCommitResponse::default().with_topics(vec![topic]);
            check_outcome(api::TXN_OFFSET_COMMIT, version, &commit, &[16], false);
        }
        for version in 0..=4 {
            let added = AddOffsetsToTxnResponse::default().with_error_code(15);
            check_outcome(api::ADD_OFFSETS_TO_TXN, version, &added, &[15], false);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100), key in 20i16..30, version in 0i16..8,
        ) {
            let _ = claim(key, version, &bytes);
            if let Ok(Some(outcome)) = outcome(key, version, &bytes) {
                prop_assert!(outcome.errors.len() <= bytes.len());
            }
        }
    }
}
