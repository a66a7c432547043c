//! What transaction coordinators are asked and what they answer.

use hapax::ids::{Epoch, ProducerId};
use hapax::wire::schema::{self, Message};
use hapax::wire::transactions::{claim, outcome};

use super::choices::Choices;
use super::messages::{self, Leaf, Made};

/// Which api, its version, which direction, and a frame.
pub fn any(input: &[u8]) {
    let mut choices = Choices::new(input);
    let (key, version) = (
        choices.of(&[22, 24, 25, 26, 28, 0]),
        i16::from(choices.byte() as i8),
    );
    let answered = choices.byte() & 1 == 1;
    let frame = choices.rest();
    if answered {
        if let Ok(Some(outcome)) = outcome(key, version, frame) {
            assert!(outcome.errors.len() * 2 <= frame.len());
            assert!(!outcome.errors.contains(&0));
        }
    } else if let Ok(Some(claim)) = claim(key, version, frame) {
        assert!(claim.transactional_id.unwrap_or_default().len() <= frame.len());
    }
}

/// A valid message, made by choices, is read as it was written.
pub fn valid(input: &[u8]) {
    let mut choices = Choices::new(input);
    let answered = choices.byte() & 1 == 1;
    let all = if answered {
        schema::OUTCOMES
    } else {
        schema::CLAIMS
    };
    let message = choices.of(all);
    let versions = usize::try_from(message.newest - message.oldest + 1).unwrap();
    let version = message.oldest + i16::try_from(choices.below(versions)).unwrap();
    if answered {
        let made = messages::response(message, version, &mut choices);
        check_outcome(message, version, &made);
    } else {
        let made = messages::request(message, version, &mut choices);
        check_claim(message, version, &made);
    }
}

fn check_claim(message: &Message, version: i16, made: &Made) {
    let read = claim(message.api_key, version, &made.frame);
    let read = read.unwrap().expect("every version of the table is read");
    let id = made.leaves.iter().rev().find_map(|leaf| match leaf {
        Leaf::Bytes("TransactionalId" | "V3AndBelowTransactionalId", id) => Some(id.clone()),
        _ => None,
    });
    let id = id.flatten().map(|id| String::from_utf8(id).unwrap());
    assert_eq!(read.transactional_id, id, "{} v{version}", message.name);
    assert_eq!(
        read.producer,
        producer(&made.leaves),
        "{} v{version}",
        message.name
    );
}

fn check_outcome(message: &Message, version: i16, made: &Made) {
    let read = outcome(message.api_key, version, &made.frame);
    let read = read.unwrap().expect("every version of the table is read");
    let mut errors = Vec::new();
    for leaf in &made.leaves {
        if let Leaf::Int("ErrorCode" | "PartitionErrorCode", code @ (..=-1 | 1..)) = leaf {
            let code = i16::try_from(*code).unwrap();
            if !errors.contains(&code) {
                errors.push(code);
            }
        }
    }
    assert_eq!(read.errors, errors, "{} v{version}", message.name);
    assert_eq!(
        read.announced,
        producer(&made.leaves),
        "{} v{version}",
        message.name
    );
}

/// The producer that a message names.
fn producer(leaves: &[Leaf]) -> Option<(ProducerId, Epoch)> {
    let (mut id, mut epoch) = (None, None);
    for leaf in leaves {
        match leaf {
            Leaf::Int("ProducerId" | "V3AndBelowProducerId", value) => {
                id = ProducerId::from_wire(*value)
            }
            Leaf::Int("ProducerEpoch" | "V3AndBelowProducerEpoch", value) => {
                epoch = Some(Epoch(i16::try_from(*value).unwrap()));
            }
            _ => {}
        }
    }
    Some((id?, epoch?))
}
