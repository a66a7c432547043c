//! For whom and how long an acknowledgement may be given again, and what bounds it.

use std::time::{Duration, Instant};

use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::support::batch::Batch;
use crate::support::pause;
use crate::support::raw::{Client, Produce, Topic};
use crate::world::{ID, PRODUCER, Pair, World, batch, orders, produce};

/// One request of the exchange is answered with success.
fn token(pair: &mut Pair, bytes: &[u8]) {
    token_and_answer(pair, bytes, b"");
}

/// The same with something to read in the answer.
fn token_and_answer(pair: &mut Pair, token: &[u8], answer: &'static [u8]) {
    let request =
        SaslAuthenticateRequest::default().with_auth_bytes(bytes::Bytes::copy_from_slice(token));
    let correlation = pair.client.send(2, &request).unwrap();
    let asked = pair.broker.next();
    let answer = SaslAuthenticateResponse::default().with_auth_bytes(answer.into());
    pair.broker.answer(&asked, &answer);
    pair.client
        .receive::<SaslAuthenticateRequest>(2, correlation)
        .unwrap();
}

/// A connection on which this much of an exchange went well. Nothing else was
/// asked on it: the exchange comes first.
pub fn authenticated(world: &World, mechanism: &str, tokens: &[&[u8]]) -> Pair {
    let mut client = world.client();
    let name = StrBytes::from_string(mechanism.to_owned());
    let request = SaslHandshakeRequest::default().with_mechanism(name);
    let correlation = client.send(1, &request).unwrap();
    let mut broker = world.upstream.accept();
    let asked = broker.next();
    broker.answer(&asked, &SaslHandshakeResponse::default());
    client
        .receive::<SaslHandshakeRequest>(1, correlation)
        .unwrap();
    let mut pair = Pair { client, broker };
    for bytes in tokens {
        token(&mut pair, bytes);
    }
    pair
}

pub fn alice(world: &World) -> Pair {
    let mut pair = authenticated(world, "PLAIN", &[b"\0alice\0secret"]);
    pair.learn(ID);
    pair
}

/// The broker gets the request as it is.
fn left_to_the_broker(pair: &mut Pair, request: &Produce) {
    let (owed, asked) = pair.forwarded(request);
    pair.broker.ack(&asked, 7);
    pair.receive(&owed);
}

#[test]
fn the_same_user_is_absorbed_on_another_connection() {
    let world = World::new(&[]);
    alice(&world).write(&produce(0), 7);
    let mut again = alice(&world);
    assert_eq!(again.answered_here(&produce(0))[0].offset, 7);
}

/// A producer's first request to a broker is often the batch itself.
#[test]
fn a_client_that_begins_with_produce_is_proven_by_its_exchange() {
    let world = World::new(&[]);
    let tokens: [&[u8]; 2] = [b"n,,n=alice,r=x", b"c=biws,r=xy,p=cHJvb2Y="];
    authenticated(&world, "SCRAM-SHA-256", &tokens).write(&produce(0), 7);
    let mut again = authenticated(&world, "SCRAM-SHA-256", &tokens);
    assert_eq!(again.answered_here(&produce(0))[0].offset, 7);
}

/// What was untracked before the proof is followed after it.
#[track_caller]
fn followed_from_the_first_answer_on(world: &World, mut pair: Pair) {
    pair.write(&produce(0), 7);
    pair.write(&produce(1), 8);
    assert_eq!(world.verdicts("untracked"), 1.0);
    assert_eq!(world.verdicts("forwarded"), 1.0);
    assert_eq!(pair.answered_here(&produce(1))[0].offset, 8);
    let topics = ["limit=\"topics\""];
    assert_eq!(
        world.hapax.metric("hapax_limit_reached_total", &topics),
        0.0
    );
}

#[test]
fn a_client_proven_by_an_answer_is_followed_from_then_on() {
    let world = World::new(&[]);
    let pair = authenticated(&world, "AWS_MSK_IAM", &[b"token"]);
    followed_from_the_first_answer_on(&world, pair);
}

/// Its only answer is empty, and a refusal is not: Kafka gives the reason
/// first, without an error.
#[test]
fn a_client_of_oauthbearer_is_proven_by_its_exchange() {
    let world = World::new(&[]);
    authenticated(&world, "OAUTHBEARER", &[b"token"]).write(&produce(0), 7);
    let mut again = authenticated(&world, "OAUTHBEARER", &[b"token"]);
    assert_eq!(again.answered_here(&produce(0))[0].offset, 7);
    assert_eq!(world.verdicts("untracked"), 0.0);
}

#[test]
fn a_client_of_oauthbearer_that_hears_why_not_has_proven_nothing() {
    let world = World::new(&[]);
    authenticated(&world, "OAUTHBEARER", &[b"token"]).write(&produce(0), 7);
    let mut refused = authenticated(&world, "OAUTHBEARER", &[]);
    let why = br#"{"status":"invalid_token"}"#;
    token_and_answer(&mut refused, b"a stale token", why);
    let (_, asked) = refused.forwarded(&produce(0));
    assert_eq!(asked.key, 0);
    assert_eq!(world.verdicts("untracked"), 1.0);
}

#[test]
fn another_user_is_left_to_the_broker() {
    let world = World::new(&[]);
    alice(&world).write(&produce(0), 7);
    let mut bob = authenticated(&world, "PLAIN", &[b"\0bob\0secret"]);
    bob.learn(ID);
    left_to_the_broker(&mut bob, &produce(0));
}

#[test]
fn a_user_of_another_mechanism_is_left_to_the_broker() {
    let world = World::new(&[]);
    alice(&world).write(&produce(0), 7);
    let tokens: [&[u8]; 2] = [b"n,,n=alice,r=x", b"c=biws,r=xy,p=cHJvb2Y="];
    let mut scram = authenticated(&world, "SCRAM-SHA-256", &tokens);
    scram.learn(ID);
    left_to_the_broker(&mut scram, &produce(0));
}

#[test]
fn a_client_without_sasl_is_left_to_the_broker() {
    let world = World::new(&[]);
    alice(&world).write(&produce(0), 7);
    let mut anonymous = world.informed();
    left_to_the_broker(&mut anonymous, &produce(0));
}

#[test]
fn a_user_gets_nothing_that_was_acknowledged_to_nobody_in_particular() {
    let world = World::new(&[]);
    world.informed().write(&produce(0), 7);
    let mut user = alice(&world);
    left_to_the_broker(&mut user, &produce(0));
}

#[test]
fn nothing_is_absorbed_before_the_exchange_is_proven() {
    let world = World::new(&[]);
    alice(&world).write(&produce(0), 7);
    let mut asked = authenticated(&world, "PLAIN", &[]);
    left_to_the_broker(&mut asked, &produce(0));
}

#[test]
fn a_first_scram_message_proves_nothing() {
    let world = World::new(&[]);
    let tokens: [&[u8]; 2] = [b"n,,n=alice,r=x", b"c=biws,r=xy,p=cHJvb2Y="];
    let mut proven = authenticated(&world, "SCRAM-SHA-256", &tokens);
    proven.learn(ID);
    proven.write(&produce(0), 7);
    let mut named = authenticated(&world, "SCRAM-SHA-256", &tokens[..1]);
    named.forwarded(&produce(0));
    // A broker does not answer that.
    drop(named);
    let mut again = authenticated(&world, "SCRAM-SHA-256", &tokens);
    again.learn(ID);
    assert_eq!(again.answered_here(&produce(0))[0].offset, 7);
}

#[test]
fn a_token_whose_user_acts_for_another_is_not_that_user() {
    let world = World::new(&[]);
    alice(&world).write(&produce(0), 7);
    let mut acting = authenticated(&world, "PLAIN", &[b"bob\0alice\0secret"]);
    acting.learn(ID);
    left_to_the_broker(&mut acting, &produce(0));
}

#[test]
fn an_acknowledgement_answers_no_retry_after_its_time() {
    let world = World::new(&["--sequence-ttl=1s"]);
    let mut pair = world.pair();
    let start = Instant::now();
    pair.write(&produce(0), 7);
    assert_eq!(pair.answered_here(&produce(0))[0].offset, 7);
    // Whole seconds are counted, so one second may last nearly two.
    pause(Duration::from_millis(2100).saturating_sub(start.elapsed()));
    left_to_the_broker(&mut pair, &produce(0));
    assert_eq!(world.verdicts("duplicate_forwarded"), 1.0);
}

#[test]
fn a_failure_shapes_nothing_after_its_time() {
    let world = World::new(&["--sequence-ttl=1s"]);
    let mut pair = world.pair();
    let start = Instant::now();
    let owed = pair.send(&produce(0));
    let asked = pair.broker.next();
    pair.broker.reply(&asked, |_| crate::broker::failed(6));
    pair.receive_one(&owed);
    assert_eq!(pair.answered_here(&produce(1))[0].code, 6);
    pause(Duration::from_millis(2600).saturating_sub(start.elapsed()));
    left_to_the_broker(&mut pair, &produce(1));
}

#[test]
fn keys_beyond_the_limit_of_windows_pass_untracked() {
    let world = World::new(&["--sequence-max-windows=1"]);
    let mut pair = world.informed();
    pair.write(&produce(0), 7);
    assert_eq!(pair.answered_here(&produce(0))[0].offset, 7);
    let partition_1 = Produce::to(&orders(), 1, batch(0));
    left_to_the_broker(&mut pair, &partition_1);
    left_to_the_broker(&mut pair, &partition_1);
    let other = Batch::of(PRODUCER + 1, 0, 0, ["v"]);
    left_to_the_broker(&mut pair, &Produce::to(&orders(), 0, other.bytes()));
    assert_eq!(world.verdicts("untracked"), 3.0);
    assert_eq!(world.gauge("hapax_windows"), 1.0);
    assert_eq!(world.gauge("hapax_windows_limit"), 1.0);
    let limit = ["limit=\"windows\""];
    assert_eq!(world.hapax.metric("hapax_limit_reached_total", &limit), 3.0);
    // Nothing waits behind what is not followed.
    pair.send(&Produce::to(&orders(), 1, batch(1)));
    pair.send(&Produce::to(&orders(), 1, batch(2)));
    pair.broker.next();
    pair.broker.next();
    // The one window works on.
    let mut first = world.pair();
    assert_eq!(first.answered_here(&produce(0))[0].offset, 7);
}

/// Eight attempts of one key, and a ninth: it passes, and is not followed.
#[test]
fn a_ninth_open_attempt_passes_untracked() {
    let world = World::of("observe", &[]);
    let mut pair = world.pair();
    for sequence in 0..9 {
        pair.send(&produce(sequence));
        pair.broker.next();
    }
    assert_eq!(world.verdicts("untracked"), 1.0);
    let limit = ["limit=\"attempts\""];
    assert_eq!(world.hapax.metric("hapax_limit_reached_total", &limit), 1.0);
}

/// The key has its window; it is its attempts that are too many.
#[test]
fn a_ninth_open_attempt_at_the_limit_of_windows_is_still_one_of_attempts() {
    let world = World::of("observe", &["--sequence-max-windows=1"]);
    let mut pair = world.pair();
    for sequence in 0..9 {
        pair.send(&produce(sequence));
        pair.broker.next();
    }
    let reached = |limit| world.hapax.metric("hapax_limit_reached_total", &[limit]);
    assert_eq!(reached("limit=\"attempts\""), 1.0);
    assert_eq!(reached("limit=\"windows\""), 0.0);
}

/// What no topic can be called reaches no limit of topics.
#[test]
fn a_topic_id_of_zeros_passes_untracked_and_reaches_no_limit() {
    let world = World::new(&[]);
    let mut pair = world.pair();
    let nothing = Topic::of("nothing", "00000000-0000-0000-0000-000000000000");
    let request = Produce::to(&nothing, 0, batch(0)).version(13);
    left_to_the_broker(&mut pair, &request);
    left_to_the_broker(&mut pair, &request);
    assert_eq!(world.verdicts("untracked"), 2.0);
    let limit = ["limit=\"topics\""];
    assert_eq!(world.hapax.metric("hapax_limit_reached_total", &limit), 0.0);
}

fn sasl_token(client: &mut Client, token: &[u8]) -> i32 {
    let request =
        SaslAuthenticateRequest::default().with_auth_bytes(bytes::Bytes::copy_from_slice(token));
    client.send(2, &request).unwrap()
}

/// bob sends his token before the handshake is answered, and alice's name
/// after that: the success of the former is taken for the latter.
#[test]
fn a_name_that_was_sent_after_the_proven_token_proves_nothing() {
    let world = World::new(&[]);
    let handshake =
        SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));

    let mut client = world.client();
    let asked = client.send(1, &handshake).unwrap();
    let mut broker = world.upstream.accept();
    let got = broker.next();
    broker.answer(&got, &SaslHandshakeResponse::default());
    client.receive::<SaslHandshakeRequest>(1, asked).unwrap();
    let asked = sasl_token(&mut client, b"\0alice\0secret");
    let got = broker.next();
    broker.answer(&got, &SaslAuthenticateResponse::default());
    client.receive::<SaslAuthenticateRequest>(2, asked).unwrap();
    let mut alice = Pair { client, broker };
    alice.write(&produce(0), 7);

    let mut client = world.client();
    let asked = client.send(1, &handshake).unwrap();
    let bobs = sasl_token(&mut client, b"\0bob\0bobs-secret");
    let mut broker = world.upstream.accept();
    let (first, second) = (broker.next(), broker.next());
    broker.answer(&first, &SaslHandshakeResponse::default());
    client.receive::<SaslHandshakeRequest>(1, asked).unwrap();
    let alices = sasl_token(&mut client, b"\0alice\0a-guess");
    let third = broker.next();
    broker.answer(&second, &SaslAuthenticateResponse::default());
    client.receive::<SaslAuthenticateRequest>(2, bobs).unwrap();
    // A broker refuses it (34) and keeps the connection, which is bob's.
    let refused = SaslAuthenticateResponse::default().with_error_code(34);
    broker.answer(&third, &refused);
    client
        .receive::<SaslAuthenticateRequest>(2, alices)
        .unwrap();
    let mut bob = Pair { client, broker };
    let owed = bob.send(&produce(0));
    bob.broker
        .stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let asked = bob
        .broker
        .try_next()
        .expect("bob was given the acknowledgement that alice earned");
    bob.broker.reply(&asked, |_| crate::broker::failed(29));
    assert_eq!(bob.receive_one(&owed).code, 29);
}
