//! Frames, headers, batch headers and SASL: what is read from few bytes.

use bytes::Bytes;
use hapax::ids::{Epoch, Sequence};
use hapax::wire::batch::{self, Batch, Odd};
use hapax::wire::frame::{self, FrameError, Stranger};
use hapax::wire::header;
use hapax::wire::{login, sasl};
use kafka_protocol::messages::{
    RequestHeader, ResponseHeader, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::Decodable;

use super::choices::Choices;
use super::second;

/// The first bytes of a connection.
pub fn frames(input: &[u8]) {
    let Some(prefix) = input.first_chunk::<4>() else {
        let _ = Stranger::recognise(input);
        return;
    };
    let limit = 100 << 20;
    let stranger = Stranger::recognise(input);
    match frame::length(*prefix, frame::MIN_REQUEST, limit) {
        Ok(length) => {
            assert!((frame::MIN_REQUEST..=limit).contains(&length));
            assert_eq!(length.to_be_bytes()[4..], *prefix);
            assert_eq!(stranger, None, "a frame that is taken for another protocol");
        }
        Err(FrameError::Negative(value)) => assert!(value < 0),
        Err(FrameError::TooShort { length, min }) => assert!(length < min),
        Err(FrameError::TooLong { length, limit }) => assert!(length > limit),
    }
    let _ = stranger.map(|stranger| stranger.to_string());
    let whole = frame::with_length(input);
    let length = whole
        .first_chunk()
        .map(|prefix| frame::length(*prefix, 0, usize::MAX));
    assert_eq!(length, Some(Ok(input.len())));
    assert_eq!(whole[4..], *input);
}

/// The headers of requests and responses, as the protocol crate reads them.
pub fn headers(input: &[u8]) {
    let head = header::request_head(input);
    assert_eq!(head.is_some(), input.len() >= 8);
    let Some(head) = head else { return };
    let (key, version) = (head.api_key, head.api_version);
    for (flexible, header_version) in [(false, 1), (true, 2)] {
        let at = header::body_at(input, flexible);
        let Ok(Some(at)) = at else { continue };
        let mut bytes = Bytes::copy_from_slice(input);
        let Ok(read) = RequestHeader::decode(&mut bytes, header_version) else {
            continue;
        };
        assert_eq!(input.len() - bytes.len(), at, "where the body begins");
        let client = header::client_id(input).unwrap();
        assert_eq!(client, read.client_id.as_ref().map(|id| id.as_bytes()));
        let told = (
            read.request_api_key,
            read.request_api_version,
            read.correlation_id,
        );
        assert_eq!(told, (key, version, head.correlation_id));
    }
    let Ok(at) = header::response_body_at(key, version, input) else {
        return;
    };
    let flexible =
        header::flexible(key, version) == Some(true) && key != hapax::wire::api::API_VERSIONS;
    let mut bytes = Bytes::copy_from_slice(input);
    if ResponseHeader::decode(&mut bytes, i16::from(flexible)).is_ok() {
        assert_eq!(input.len() - bytes.len(), at, "where the body begins");
    }
}

/// The length of records, and their first bytes.
pub fn batches(input: &[u8]) {
    let (extra, records) = input.split_first().unwrap_or((&0, &[]));
    // Mostly the length is right.
    let length = records.len() + usize::from(extra.saturating_sub(250));
    let head = &records[..records.len().min(batch::HEADER)];
    if length > records.len() && head.len() < batch::HEADER {
        return;
    }
    let number = |at: usize, width: usize| {
        let bytes = head[at..at + width].iter();
        let value = bytes.fold(0_i64, |value, byte| value << 8 | i64::from(*byte));
        let unused = 64 - 8 * u32::try_from(width).unwrap();
        value << unused >> unused
    };
    let expected = match head.len() {
        0 => Batch::Absent,
        1..batch::HEADER => Batch::Odd(Odd::Short),
        _ if number(16, 1) != 2 => Batch::Odd(Odd::Magic),
        _ if number(8, 4) + 12 != i64::try_from(length).unwrap() => Batch::Odd(Odd::ManyBatches),
        _ if number(21, 2) & 0x20 != 0 => Batch::Odd(Odd::Control),
        _ if number(43, 8) < 0 => Batch::Plain {
            records: u32::try_from(number(57, 4)).unwrap_or(0),
        },
        _ if number(53, 4) < 0 => Batch::Odd(Odd::NegativeSequence),
        _ if number(57, 4) < 1 || number(23, 4) + 1 != number(57, 4) => {
            Batch::Odd(Odd::CountMismatch)
        }
        _ => {
            let Batch::Tracked(tracked) = batch::batch(length, head) else {
                panic!("not tracked: {head:?}");
            };
            let id = tracked.id;
            assert_eq!(id.producer.to_wire(), number(43, 8));
            assert_eq!(id.epoch, Epoch(i16::try_from(number(51, 2)).unwrap()));
            assert_eq!(
                Some(id.first),
                Sequence::from_wire(i32::try_from(number(53, 4)).unwrap())
            );
            assert_eq!(i64::from(id.count), number(57, 4));
            assert_eq!(id.crc, u32::try_from(number(17, 4) & 0xffff_ffff).unwrap());
            assert_eq!(usize::try_from(id.len), Ok(length));
            assert_eq!(tracked.max_timestamp, number(35, 8));
            assert_eq!(tracked.transactional, number(21, 2) & 0x10 != 0);
            let last = (i64::from(id.first.to_wire()) + i64::from(id.count) - 1) % (1 << 31);
            assert_eq!(i64::from(id.last().to_wire()), last);
            return;
        }
    };
    assert_eq!(batch::batch(length, head), expected);
}

/// Handshakes, tokens and who they name.
pub fn sasl(input: &[u8]) {
    let mut choices = Choices::new(input);
    let version = i16::from(choices.byte() as i8) % 4;
    let mechanism = choices.of(&[
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "OAUTHBEARER",
        "GSSAPI",
        "",
    ]);
    let bytes = choices.rest();
    if let Ok(mechanism) = sasl::handshake_mechanism(version, bytes) {
        let taken = 2 + mechanism.len();
        let read = second::certain::<SaslHandshakeRequest>(version, &bytes[..taken]).unwrap();
        assert_eq!(read.mechanism.as_str(), mechanism);
    }
    let _ = sasl::handshake_error(bytes);
    if let Ok(mechanisms) = sasl::handshake_mechanisms(bytes) {
        assert!(mechanisms.len() * 2 <= bytes.len());
    }
    if let Ok(token) = sasl::authenticate_token(version, bytes) {
        if let Some(Ok(read)) = second::decode::<SaslAuthenticateRequest>(version, bytes) {
            assert_eq!(read.auth_bytes, *token);
        }
        assert!(token.len() < bytes.len());
    }
    let said = sasl::authenticate_answer(version, bytes);
    if let Ok(answer) = login::answered(version, bytes) {
        let is_empty = answer.token.is_empty();
        let error = answer.error;
        assert_eq!(said, Ok(sasl::TokenAnswer { error, is_empty }));
        assert!(answer.token.len() + answer.message.len() < bytes.len());
    }
    hapax::sasl::hear(bytes);
    if sasl::looks_like_request(bytes) {
        assert!(bytes.len() >= 10 && sasl::rounds("GSSAPI").is_none());
    }
    let Some(user) = sasl::user(mechanism, bytes) else {
        return;
    };
    assert!(!user.is_empty());
    match mechanism {
        "PLAIN" => assert!(!user.contains('\0') && contains(bytes, user.as_bytes())),
        scram => {
            assert!(scram.starts_with("SCRAM-"), "nobody can read who that is");
            let escaped = user.replace('=', "=3D").replace(',', "=2C");
            assert!(
                contains(bytes, format!("n={escaped},r=").as_bytes()),
                "{user}"
            );
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
