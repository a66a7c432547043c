//! Responses with broker addresses, valid and not: what is rewritten, found in pieces, blanked.

use std::sync::Arc;

use hapax::ids::NodeId;
use hapax::wire::addresses::{self, Directory, EndpointScan};
use hapax::wire::schema::{self, Message};
use hapax::wire::{WireError, api, header, metadata};
use kafka_protocol::protocol::StrBytes;

use super::choices::Choices;
use super::messages::{self, Leaf, Made};
use super::second::{self, Addressed, Asker};

/// Gives every broker another address: longer by a few letters, or by so many that the length of a flexible version takes
/// two bytes.
pub struct Moved {
    pub suffix: &'static str,
    pub asked: Vec<(Option<NodeId>, String, u16)>,
}

impl Moved {
    pub const LONG: &'static str = "-moved-moved-moved-moved-moved-moved-moved-moved-moved-moved-moved\
        -moved-moved-moved-moved-moved-moved-moved-moved-moved-moved-moved-moved-moved";

    pub fn by(suffix: &'static str) -> Self {
        Self {
            suffix,
            asked: Vec::new(),
        }
    }

    /// The new address, where there is an old one.
    pub fn moved(&self, host: &str, port: i64) -> Option<(String, u16)> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| (format!("{host}{}", self.suffix), port ^ 0x8000 | 1))
    }
}

impl Directory for Moved {
    fn broker(&mut self, node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16) {
        self.asked.push((node, host.to_owned(), port));
        let (host, port) = self
            .moved(host, port.into())
            .expect("only addresses are asked for");
        (host.into(), port)
    }
}

/// Moves nothing.
struct Still;

impl Directory for Still {
    fn broker(&mut self, _node: Option<NodeId>, host: &str, port: u16) -> (Arc<str>, u16) {
        (host.into(), port)
    }
}

/// Bytes that may be anything: the message, the version, how the pieces are cut, the frame.
pub fn any_response(input: &[u8]) {
    let mut choices = Choices::new(input);
    let message = choices.of(schema::ADDRESSED);
    let version = i16::from(choices.byte() as i8);
    let cuts = choices.array();
    check(message, version, choices.rest(), cuts);
}

/// Valid responses, made by choices.
pub fn valid_response(input: &[u8]) {
    let mut choices = Choices::new(input);
    let message = choices.of(schema::ADDRESSED);
    let versions = usize::try_from(message.newest - message.oldest + 1).unwrap();
    let version = message.oldest + i16::try_from(choices.below(versions)).unwrap();
    let cuts = choices.array();
    let long = choices.byte() & 1 == 1;
    let made = messages::response(message, version, &mut choices);
    check(message, version, &made.frame, cuts);
    check_made(
        message,
        version,
        &made,
        if long { Moved::LONG } else { "-2" },
    );
}

/// What holds of a valid response.
pub fn check_made(message: &'static Message, version: i16, made: &Made, suffix: &'static str) {
    let frame = &made.frame;
    let read = messages::leaves(message, version, frame, made.body);
    assert_eq!(
        read.as_ref(),
        Some(&made.leaves),
        "{} v{version}",
        message.name
    );
    let mut moved = Moved::by(suffix);
    let rewritten = addresses::rewrite(message.api_key, version, frame, &mut moved).unwrap();
    let rewritten = rewritten.map_or_else(|| frame.clone(), |whole| unframed(&whole).to_vec());
    if addresses::rewrites(message.api_key, version) {
        let found = messages::leaves(message, version, &rewritten, made.body).unwrap();
        assert_eq!(
            found,
            readdressed(&made.leaves, &moved),
            "{} v{version}",
            message.name
        );
    } else {
        assert_eq!(&rewritten, frame);
    }
    let api_key = message.api_key;
    second::ask(
        api_key,
        Agrees {
            version,
            before: &frame[made.body..],
            after: &rewritten[made.body..],
            moved: &moved,
        },
    );
    if let Ok(scan) = EndpointScan::new(api_key, version)
        && can_be_blanked(api_key, version)
    {
        let blanked = Blanked {
            api_key,
            version,
            scan,
            made,
        };
        second::ask(api_key, blanked);
    }
}

fn can_be_blanked(api_key: i16, version: i16) -> bool {
    matches!(
        api_key,
        api::FETCH | api::SHARE_FETCH | api::SHARE_ACKNOWLEDGE
    ) && addresses::rewrites(api_key, version)
}

/// The leaves with their addresses moved, by the names that Kafka gives them.
fn readdressed(leaves: &[Leaf], moved: &Moved) -> Vec<Leaf> {
    let controllers = leaves.contains(&Leaf::Int("EndpointType", 2));
    let mut out = leaves.to_vec();
    for at in 1..out.len() {
        if let ([.., Leaf::Bytes("Host", Some(host))], Leaf::Int("Port", port)) =
            (&leaves[..at], &leaves[at])
            && let Some((host, port)) = moved.moved(str::from_utf8(host).unwrap(), *port)
            && !controllers
        {
            out[at - 1] = Leaf::Bytes("Host", Some(host.into_bytes()));
            out[at] = Leaf::Int("Port", port.into());
        }
    }
    out
}

/// The protocol crate reads both and finds other addresses, nothing else; and it writes the bytes that it read.
struct Agrees<'a> {
    version: i16,
    before: &'a [u8],
    after: &'a [u8],
    moved: &'a Moved,
}

impl Asker for Agrees<'_> {
    type Answer = ();

    fn ask<T: Addressed>(self) {
        let Some(mut expected) = second::certain::<T>(self.version, self.before) else {
            return;
        };
        assert_eq!(
            second::encode(self.version, &expected),
            self.before,
            "{expected:?}"
        );
        if self.before != self.after {
            expected.readdress(&mut |_, host: &mut StrBytes, port: &mut i32| {
                if let Some((new, to)) = self.moved.moved(host, (*port).into()) {
                    *host = StrBytes::from_string(new);
                    *port = to.into();
                }
            });
        }
        let found = second::certain::<T>(self.version, self.after).unwrap();
        assert_eq!(found, expected);
        assert_eq!(second::encode(self.version, &found), self.after);
    }
}

/// Once blanked, a response of the same length says the same without endpoints.
struct Blanked<'a> {
    api_key: i16,
    version: i16,
    scan: EndpointScan,
    made: &'a Made,
}

impl Asker for Blanked<'_> {
    type Answer = ();

    fn ask<T: Addressed>(mut self) {
        let mut frame = self.made.frame.clone();
        let mut at = 0;
        while !self.scan.at_tail() {
            let consumed = self.scan.advance(&frame[at..]).unwrap();
            assert!(
                consumed > 0 || self.scan.at_tail(),
                "no way to the tail of {frame:?}"
            );
            at += consumed;
        }
        addresses::blank(self.api_key, self.version, &mut frame[at..]).unwrap();
        let Some(mut expected) =
            second::certain::<T>(self.version, &self.made.frame[self.made.body..])
        else {
            return;
        };
        let mut found = second::certain::<T>(self.version, &frame[self.made.body..]).unwrap();
        let mut endpoints = 0;
        found.readdress(&mut |_, _: &mut StrBytes, _: &mut i32| endpoints += 1);
        assert_eq!(endpoints, 0, "endpoints are left: {found:?}");
        found.without_endpoints();
        expected.without_endpoints();
        assert_eq!(found, expected);
    }
}

/// What holds of any bytes.
fn check(message: &'static Message, version: i16, frame: &[u8], cuts: [u8; 2]) {
    let api_key = message.api_key;
    let mut moved = Moved::by("-2");
    let rewritten = addresses::rewrite(api_key, version, frame, &mut moved);
    if let Ok(Some(whole)) = &rewritten {
        check_rewritten(message, version, frame, unframed(whole), &moved);
    }
    if api_key == api::METADATA
        && rewritten.is_ok()
        && let Ok(cluster) = metadata::cluster(version, frame)
    {
        let listed = cluster.brokers.into_iter();
        let listed: Vec<_> = listed.map(|b| (Some(b.node), b.host, b.port)).collect();
        let asked = moved.asked.into_iter();
        let asked: Vec<_> = asked.filter(|(node, ..)| node.is_some()).collect();
        assert_eq!(listed, asked, "two readers of the same frame");
    }
    let still = addresses::rewrite(api_key, version, frame, &mut Still);
    assert_eq!(still, rewritten.map(|_| None), "nothing to change");
    check_scan(message, version, frame, cuts);
}

/// A rewritten frame is a message again, with other addresses and nothing else changed; the protocol crate agrees wherever
/// it can read the frame that came.
fn check_rewritten(
    message: &'static Message,
    version: i16,
    before: &[u8],
    after: &[u8],
    moved: &Moved,
) {
    let body = header::response_body_at(message.api_key, version, before).unwrap();
    let leaves = messages::leaves(message, version, before, body).unwrap();
    let found = messages::leaves(message, version, after, body).unwrap();
    assert_eq!(found, readdressed(&leaves, moved));
    second::ask(
        message.api_key,
        Reads {
            version,
            before: &before[body..],
            after: &after[body..],
        },
    );
}

/// What the protocol crate can read it can still read.
struct Reads<'a> {
    version: i16,
    before: &'a [u8],
    after: &'a [u8],
}

impl Asker for Reads<'_> {
    type Answer = ();

    fn ask<T: Addressed>(self) {
        if let Some(Ok(_)) = second::decode::<T>(self.version, self.before) {
            second::certain::<T>(self.version, self.after).unwrap();
        }
    }
}

/// Wherever the frame is cut, the scan comes to the same.
fn check_scan(message: &Message, version: i16, frame: &[u8], cuts: [u8; 2]) {
    let Ok(scan) = EndpointScan::new(message.api_key, version) else {
        return;
    };
    let whole = scan_in(scan.clone(), frame, frame.len().max(1), false);
    let pieces = scan_in(scan, frame, usize::from(cuts[0]) % 64 + 1, cuts[1] & 1 == 1);
    assert_eq!(whole, pieces, "cut by {cuts:?}");
    if let Ok((at, true)) = whole
        && can_be_blanked(message.api_key, version)
    {
        let mut tail = frame[at..].to_vec();
        if addresses::blank(message.api_key, version, &mut tail).is_ok() {
            let blanked = [&frame[..at], &tail].concat();
            let mut moved = Moved::by("-2");
            let rewritten = addresses::rewrite(message.api_key, version, &blanked, &mut moved);
            assert_eq!(moved.asked, [], "endpoints are left");
            let before = addresses::rewrite(message.api_key, version, frame, &mut Still);
            assert!(
                rewritten.is_ok() || before.is_err(),
                "blanked: {rewritten:?}"
            );
        }
    }
}

/// Where a scan stops that gets the frame in pieces, and whether that is the tail. With `apart`, what it wants to skip goes
/// another way, as large records do.
fn scan_in(
    mut scan: EndpointScan,
    frame: &[u8],
    piece: usize,
    apart: bool,
) -> Result<(usize, bool), WireError> {
    let (mut at, mut end) = (0, 0);
    loop {
        if apart {
            let skipped = scan.skip().min(frame.len() - at);
            scan.skipped(skipped);
            at += skipped;
            end = end.max(at);
        }
        at += scan.advance(&frame[at..end])?;
        if end == frame.len() {
            // Nothing more comes, but what it has may be told in steps.
            let more = scan.advance(&frame[at..end])?;
            assert_eq!(
                more, 0,
                "the scan stopped before the end of what it could read"
            );
            return Ok((at, scan.at_tail()));
        }
        end = frame.len().min(end + piece);
    }
}

/// A whole frame without its length, which must be right.
pub fn unframed(whole: &[u8]) -> &[u8] {
    let (prefix, frame) = whole.split_first_chunk().unwrap();
    assert_eq!(
        usize::try_from(i32::from_be_bytes(*prefix)),
        Ok(frame.len())
    );
    frame
}
