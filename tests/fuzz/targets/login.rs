//! What a stranger says before he is known: whatever it is, nobody gets in who does not show that he knows the password.

use std::sync::OnceLock;

use hapax::config::ClientMechanism;
use hapax::users::{FRAME_MAX, List, Login, Step};

use super::choices::Choices;

/// The user of RFC 7677, for both hashes.
const USERS: &str = "user:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=
user:SCRAM-SHA-512$4096:W22ZaJ0SNY7soEsUEjb6gQ==$6AAub3065EYRmyFpM2RNwqK+eGnrkYuEWbXn19LsEmBqzu8QaCXNc1FwpnX9NhH2hK/60dzj9DoO5DvVkOHbvg==:jZHbYjC1aHh0/hKbxyBuGFjDrgjgKTT1esA7awWiKcRZ0o/0b1yWEebBeSVkkCFewf91nLDfKF24mvD5nmE6rA==
";
const OWN_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const LAST_256: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const LAST_512: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==";
const PASSWORD: &[u8] = b"\0user\0pencil";
const MECHANISMS: [ClientMechanism; 3] = [
    ClientMechanism::Plain,
    ClientMechanism::ScramSha256,
    ClientMechanism::ScramSha512,
];

fn list() -> &'static List {
    static LIST: OnceLock<List> = OnceLock::new();
    LIST.get_or_init(|| List::parse(USERS.as_bytes()).unwrap())
}

/// A connection: frames that are right, nearly right, or anything.
pub fn frames(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mechanisms = &MECHANISMS[usize::from(choices.byte()) % 3..];
    let mut login = Login::new(list(), mechanisms);
    for said in 0..24 {
        let frame = frame(&mut choices);
        assert!(frame.len() <= FRAME_MAX);
        if frame.len() < login.frame_min() {
            return;
        }
        let proves = [PASSWORD, LAST_256, LAST_512].map(|right| frame.ends_with(right));
        let mut step = login.frame(&frame, OWN_NONCE);
        if let Step::Check(claim) = step {
            let holds = claim.holds();
            assert_eq!(holds, proves[0], "another password holds");
            step = login.checked(&claim, holds);
        }
        match step {
            Step::Answer(answer) => {
                let (length, rest) = answer.split_first_chunk().unwrap();
                assert_eq!(u32::from_be_bytes(*length) as usize, rest.len());
                assert!(said < 20, "a stranger is listened to for ever");
            }
            Step::Versions(head) => assert!((0..=4).contains(&head.api_version)),
            Step::Check(_) => panic!("one check asks for another"),
            Step::Admit { user, .. } => {
                assert_eq!(user, "user");
                let chosen = login.mechanism().unwrap();
                let at = MECHANISMS.iter().position(|own| *own == chosen).unwrap();
                assert!(proves[at], "in by {chosen:?} without a proof");
                assert!(mechanisms.contains(&chosen));
                return;
            }
            Step::Refuse { .. } => {
                // It stays so.
                let again = login.frame(&frame, OWN_NONCE);
                assert!(!matches!(again, Step::Admit { .. } | Step::Check(_)));
                return;
            }
        }
    }
}

fn frame(choices: &mut Choices<'_>) -> Vec<u8> {
    match choices.byte() % 8 {
        0 | 1 => {
            let name = choices.of(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"]);
            let mut body = vec![0, u8::try_from(name.len()).unwrap()];
            body.extend(name.as_bytes());
            request(17, choices.byte() % 3, &body)
        }
        2..5 => {
            let version = choices.byte() % 3;
            let token = token(choices);
            let length = u8::try_from(token.len()).unwrap();
            let mut body = match version {
                // One byte more than the length, in a varint; then no tags.
                2 if length < 127 => vec![0, length + 1],
                2 => vec![0, (length + 1) | 0x80, 1 + (length == 255) as u8],
                _ => vec![0, 0, 0, length],
            };
            body.extend(token);
            request(36, version, &body)
        }
        5 => token(choices),
        6 => request(choices.byte(), choices.byte() % 8, &some(choices)),
        _ => some(choices),
    }
}

fn token(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut token = choices.of(&[PASSWORD, FIRST, LAST_256, LAST_512]).to_vec();
    if choices.byte().is_multiple_of(4) {
        return some(choices);
    }
    if choices.byte().is_multiple_of(2) {
        let at = usize::from(choices.byte()) % token.len();
        token[at] ^= choices.byte() % 4;
    }
    token
}

fn some(choices: &mut Choices<'_>) -> Vec<u8> {
    let length = choices.byte() % 64;
    (0..length).map(|_| choices.byte()).collect()
}

fn request(key: u8, version: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, key, 0, version, 0, 0, 0, 9, 0, 1, b'c'];
    frame.extend(body);
    frame
}
