//! A Produce response with other errors than the broker's.

use super::cursor::Splice;
use super::produce::{self, OLDEST_FOLLOWED, TopicRef};
use super::schema::{self, Field, Role, Value, Visitor};
use super::{WireError, api, frame, header};
use bytes::Bytes;
use std::ops::Range;

/// The first version in which lengths are varints.
const FLEXIBLE: i16 = 9;

/// The response `frame` with other errors for the partitions that `code` names
/// one for; whole, length first. What the broker said in words of the error
/// that was there goes with it; everything else is kept byte for byte.
pub fn recode(
    version: i16,
    frame: &[u8],
    code: impl FnMut(TopicRef<'_>, i32) -> Option<i16>,
) -> Result<Bytes, WireError> {
    produce::check_version(version, OLDEST_FOLLOWED)?;
    let mut recoder = Recoder {
        code,
        splice: Splice::new(frame),
        flexible: version >= FLEXIBLE,
        topic: None,
        partition: 0,
        recoded: false,
    };
    schema::walk(
        &schema::PRODUCE_RESPONSE,
        version,
        frame,
        header::response_body_at(api::PRODUCE, version, frame)?,
        &mut recoder,
    )?;
    let changed = recoder.splice.finish();
    Ok(changed.unwrap_or_else(|| frame::with_length(frame).into()))
}

struct Recoder<'a, F> {
    code: F,
    splice: Splice<'a>,
    flexible: bool,
    topic: Option<TopicRef<'a>>,
    partition: i32,
    /// Whether the partition's error was replaced.
    recoded: bool,
}

impl<'a, F: FnMut(TopicRef<'_>, i32) -> Option<i16>> Visitor<'a> for Recoder<'a, F> {
    fn leaf(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        value: Value<'a>,
    ) -> Result<(), WireError> {
        match (field.name, field.role, value) {
            (_, Role::TopicName, Value::Bytes(Some(name))) => {
                self.topic = Some(TopicRef::Name(name));
            }
            (_, Role::TopicId, Value::Uuid(id)) => self.topic = Some(TopicRef::Id(id)),
            ("Index", _, Value::Int(index)) => {
                self.partition = i32::try_from(index).unwrap_or(-1);
                self.recoded = false;
            }
            ("ErrorCode", ..) => {
                let topic = self.topic;
                let code = topic.and_then(|topic| (self.code)(topic, self.partition));
                if let Some(code) = code {
                    self.splice.replace(at).extend(code.to_be_bytes());
                    self.recoded = true;
                }
            }
            ("ErrorMessage", _, Value::Bytes(Some(_))) if self.recoded => {
                let out = self.splice.replace(at);
                if self.flexible {
                    out.push(0);
                } else {
                    out.extend((-1_i16).to_be_bytes());
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
    use crate::wire::produce::NEWEST;
    use crate::wire::testing::{decode, response, text, unframed};
    use kafka_protocol::messages::produce_response::{
        LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{BrokerId, ProduceResponse, TopicName};

    const ID: &str = "00000000-0000-0000-0000-000000000007";

    /// Two partitions that got 45 and 0, in words where the version has them.
    fn answered(version: i16) -> ProduceResponse {
        let partition = |index, error| {
            let mut partition = PartitionProduceResponse::default()
                .with_index(index)
                .with_error_code(error)
                .with_base_offset(if error == 0 { 12 } else { -1 });
            if version >= 8 && error != 0 {
                partition.error_message = Some(text("out of order"));
            }
            if version >= 10 {
                partition.current_leader = LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(3))
                    .with_leader_epoch(4);
            }
            partition
        };
        let mut topic = TopicProduceResponse::default().with_partition_responses(vec![
            partition(0, 45),
            partition(1, 0),
            partition(2, 45),
        ]);
        if version >= 13 {
            topic.topic_id = ID.parse().unwrap();
        } else {
            topic.name = TopicName(text("t"));
        }
        ProduceResponse::default().with_responses(vec![topic])
    }

    #[test]
    fn only_the_named_partition_changes_and_its_words_go() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let mut expected = answered(version);
            let frame = response(0, version, &expected);
            let whole = recode(version, &frame, |_, partition| {
                (partition == 0).then_some(6)
            });
            let changed = &mut expected.responses[0].partition_responses[0];
            changed.error_code = 6;
            changed.error_message = None;
            let decoded: ProduceResponse = decode(0, version, unframed(&whole.unwrap()));
            assert_eq!(decoded, expected, "{version}");
        }
    }

    #[test]
    fn where_nothing_is_named_nothing_changes() {
        for version in OLDEST_FOLLOWED..=NEWEST {
            let frame = response(0, version, &answered(version));
            let whole = recode(version, &frame, |_, _| None).unwrap();
            assert_eq!(unframed(&whole), frame, "{version}");
            for end in 0..frame.len() {
                assert!(recode(version, &frame[..end], |_, _| Some(6)).is_err());
            }
        }
    }
}
