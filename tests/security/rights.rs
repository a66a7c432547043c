//! Who may not do something hears it from the broker, word for word.

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, CreateTopicsRequest, DescribeAclsRequest, FindCoordinatorRequest,
    GroupId, InitProducerIdRequest, JoinGroupRequest, ListOffsetsRequest, ProducerId,
    SaslAuthenticateRequest, SaslHandshakeRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use serde_json::Value;

use crate::clients::Client;
use crate::raw::{Connection, batch_in_epoch, topic_name};
use crate::report::say;
use crate::world::{DESCRIBE, DOOR_TLS, TOPIC, UPSTREAM_TLS, World};

const BOB: &str = "--sasl-mechanism PLAIN --sasl-user bob --sasl-password bob-secret";

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Has bob log in.
fn log_in(connection: &mut Connection, password: &str) -> String {
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(connection.call(1, &handshake).error_code, 0);
    let bytes = Bytes::from(format!("\0bob\0{password}"));
    let request = SaslAuthenticateRequest::default().with_auth_bytes(bytes);
    format!("{:?}", connection.try_call(2, &request))
}

/// What the broker answers to bob, who may see one topic and do nothing.
fn answers(at: &mut Connection, hidden: &str, seen: &str) -> Vec<String> {
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("after 1970");
    let now = i64::try_from(now.as_millis()).expect("milliseconds");
    let mut answers = Vec::new();
    let metadata = at.metadata(&[hidden, seen]);
    answers.push(format!("metadata: {:?}", metadata.topics));
    for topic in [hidden, seen] {
        // Of nobody, and of an idempotent producer.
        for producer in [-1, 4711] {
            let sequence = if producer < 0 { -1 } else { 0 };
            let epoch = if producer < 0 { -1 } else { 0 };
            let records = batch_in_epoch(epoch, producer, sequence, now, "1");
            answers.push(format!("produce: {:?}", at.produce(topic, &records)));
        }
    }
    let init = |id: Option<&str>| {
        InitProducerIdRequest::default()
            .with_transactional_id(id.map(|id| TransactionalId(text(id))))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    };
    answers.push(format!("idempotence: {:?}", at.call(4, &init(None))));
    answers.push(format!(
        "a transaction: {:?}",
        at.call(4, &init(Some("bob-id")))
    ));
    let partitions = AddPartitionsToTxnTopic::default()
        .with_name(topic_name(hidden))
        .with_partitions(vec![0]);
    let add = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(TransactionalId(text("bob-id")))
        .with_v3_and_below_producer_id(ProducerId(4711))
        .with_v3_and_below_topics(vec![partitions]);
    answers.push(format!("a partition of one: {:?}", at.call(3, &add)));
    for (kind, key) in [(0, "bob-group"), (1, "bob-id")] {
        let find = FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text(key)]);
        answers.push(format!("a coordinator: {:?}", at.call(4, &find)));
    }
    let join = JoinGroupRequest::default()
        .with_group_id(GroupId(text("bob-group")))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"));
    answers.push(format!("a group: {:?}", at.call(5, &join)));
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let listed = ListOffsetsTopic::default()
        .with_name(topic_name(hidden))
        .with_partitions(vec![partition]);
    let list = ListOffsetsRequest::default().with_topics(vec![listed]);
    answers.push(format!("offsets: {:?}", at.call(5, &list)));
    let topic = CreatableTopic::default()
        .with_name(topic_name("of-bob"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let create = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(20_000);
    answers.push(format!("a topic: {:?}", at.call(5, &create)));
    let acls = DescribeAclsRequest::default()
        .with_resource_type_filter(1)
        .with_resource_name_filter(None)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_pattern_type_filter(1)
        .with_operation(1)
        .with_permission_type(1);
    // Its message names the connection.
    let code = at.call(2, &acls).error_code;
    answers.push(format!("rights: error_code: {code}"));
    answers
}

/// A client who may not do something gets the broker's answers, not a byte of them another one.
pub(crate) fn the_brokers_answers_pass(world: &World) {
    let (hidden, seen) = (
        world.cluster.create_topic("hidden", 1),
        world.cluster.create_topic("seen", 1),
    );
    world.grant(&[("User:bob", TOPIC, &seen, DESCRIBE)]);
    let at = world.cluster.sasl_ssl_bootstrap();
    let hapax = world.hapax(&at, &format!("{DOOR_TLS} {UPSTREAM_TLS}"));
    let [direct, through] = [at, hapax.bootstrap()].map(|bootstrap| {
        let mut connection = world.connect(&bootstrap);
        let mut said = vec![log_in(&mut connection, "bob-secret")];
        said.extend(answers(&mut connection, &hidden, &seen));
        said.push(log_in(&mut world.connect(&bootstrap), "a wrong one"));
        said
    });
    for (direct, through) in direct.iter().zip(&through) {
        println!("{direct}");
        assert_eq!(through, direct);
    }
    say(format!(
        "{} answers to a raw client without rights, the same with and without hapax",
        direct.len()
    ));
    let told = direct.join("\n");
    // Topic, cluster, transactional id and group: none of them is bob's.
    for code in ["29", "30", "31", "53", "58"] {
        let field = format!("error_code: {code}");
        assert!(told.contains(&field), "{field} was not given: {told}");
    }
    for batch in world.cluster.logs(&[&hidden, &seen]) {
        assert!(batch.is_empty(), "{batch:?}");
    }
}

/// The same of clients as they are: what they tell their application.
pub(crate) fn clients_tell_the_same(world: &World, clients: &[Client]) {
    let hidden = world.cluster.create_topic("hidden", 1);
    let at = world.cluster.sasl_ssl_bootstrap();
    let hapax = world.hapax(&at, &format!("{DOOR_TLS} {UPSTREAM_TLS}"));
    for client in clients {
        let [direct, through] = [at.clone(), hapax.bootstrap()].map(|bootstrap| {
            let arguments = format!("--topic {hidden} --count 1 --tls-ca CERTS/ca.crt {BOB}");
            // Without idempotence it comes as far as the topic.
            let plain = format!("{arguments} --idempotence false");
            let produced = world.client(*client, "produce", &bootstrap, &plain);
            let produced = produced.gives_up();
            let idempotent = format!("{arguments} --delivery-timeout-ms 31000");
            let idempotent = world.client(*client, "produce", &bootstrap, &idempotent);
            [produced, idempotent.gives_up()]
        });
        let words = direct.each_ref().map(|lines| errors(lines));
        say(format!(
            "{client:?} tells its application the same with and without hapax: without idempotence {}, with it {}",
            words[0], words[1]
        ));
        assert_eq!(through, direct, "{client:?}");
        assert!(!words[0].is_empty(), "{client:?}: {direct:?}");
    }
}

/// What went wrong by these lines of a client.
fn errors(lines: &[Value]) -> String {
    let errors = lines.iter().filter_map(|line| line["error"].as_str());
    errors.map(|error| format!("`{error}`")).collect()
}
