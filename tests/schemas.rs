//! The tables of `wire::schema` against the schemas of Kafka's newest client,
//! and every address in a response against a rule or a named exception.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use hapax::wire::schema::{self, Field, Kind, Message, Role};
use hapax::wire::{addresses, api, api_versions, header};
use serde::Deserialize;

/// Responses with a host, a port or an endpoint in them that hapax leaves alone.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "BeginQuorumEpochResponse",
        "between quorum members: no client sends it",
    ),
    (
        "EndQuorumEpochResponse",
        "between quorum members: no client sends it",
    ),
    (
        "FetchSnapshotResponse",
        "between quorum members: no client sends it",
    ),
    ("VoteResponse", "between quorum members: no client sends it"),
    (
        "UpdateRaftVoterResponse",
        "between quorum members: no client sends it",
    ),
    (
        "DescribeQuorumResponse",
        "lists controllers, for a reader's eyes: no client connects to them",
    ),
    (
        "DescribeGroupsResponse",
        "the host of each member, which is a client",
    ),
    (
        "ConsumerGroupDescribeResponse",
        "the host of each member, which is a client",
    ),
    (
        "ShareGroupDescribeResponse",
        "the host of each member, which is a client",
    ),
    (
        "StreamsGroupDescribeResponse",
        "hosts and user endpoints of members, which are clients",
    ),
    (
        "StreamsGroupHeartbeatResponse",
        "user endpoints of members, which are clients",
    ),
    ("DescribeAclsResponse", "a pattern of client hosts"),
    ("DeleteAclsResponse", "a pattern of client hosts"),
];

/// Apis of which hapax reads fewer versions than the client has.
const BEHIND: &[(i16, &str)] = &[(
    api::INIT_PRODUCER_ID,
    "version 6 (two-phase commit) is not stable",
)];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    api_key: Option<i16>,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    valid_versions: String,
    #[serde(default = "none")]
    flexible_versions: String,
    #[serde(default)]
    fields: Vec<Spec>,
    #[serde(default)]
    common_structs: Vec<Common>,
}

#[derive(Deserialize)]
struct Common {
    name: String,
    fields: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    versions: String,
    #[serde(default = "none")]
    nullable_versions: String,
    #[serde(default = "none")]
    tagged_versions: String,
    tag: Option<u32>,
    #[serde(default)]
    fields: Vec<Self>,
}

fn none() -> String {
    "none".to_owned()
}

/// The versions that `3`, `3-5`, `3+` or `none` means.
fn range(text: &str) -> Option<(i16, i16)> {
    if text == "none" {
        return None;
    }
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("version {text}"));
    if let Some(since) = text.strip_suffix('+') {
        return Some((number(since), i16::MAX));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((number(first), number(last)))
}

fn has(text: &str, version: i16) -> bool {
    range(text).is_some_and(|(first, last)| (first..=last).contains(&version))
}

fn jar() -> PathBuf {
    if let Some(path) = std::env::var_os("KAFKA_CLIENTS_JAR") {
        return path.into();
    }
    let home = std::env::var("HOME").expect("HOME is set");
    let folder = Path::new(&home).join(".m2/repository/org/apache/kafka/kafka-clients");
    let versions = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let parts: Option<Vec<u32>> = name.split('.').map(|part| part.parse().ok()).collect();
            let jar = entry.path().join(format!("kafka-clients-{name}.jar"));
            jar.exists().then_some((parts?, jar))
        })
        .max();
    let Some((_, jar)) = newest else {
        panic!(
            "no kafka-clients jar below {}: run `mvn dependency:get \
             -Dartifact=org.apache.kafka:kafka-clients:4.4.0`, or set KAFKA_CLIENTS_JAR",
            folder.display()
        );
    };
    jar
}

fn schemas() -> BTreeMap<String, Schema> {
    let jar = jar();
    let unzip = Command::new("unzip")
        .arg("-p")
        .arg(&jar)
        .arg("common/message/*.json")
        .output()
        .expect("unzip is installed (apt-get install unzip)");
    assert!(
        unzip.status.success(),
        "unzip {}: {}",
        jar.display(),
        String::from_utf8_lossy(&unzip.stderr)
    );
    let text = String::from_utf8(unzip.stdout).expect("schemas are UTF-8");
    let plain = without_comments(&text);
    let all: BTreeMap<_, _> = serde_json::Deserializer::from_str(&plain)
        .into_iter::<serde_json::Value>()
        .map(|value| value.expect("a schema is JSON"))
        // The client carries schemas of records and headers too.
        .filter(|value| matches!(value["type"].as_str(), Some("request" | "response")))
        .map(|value| serde_json::from_value::<Schema>(value).expect("a schema"))
        .map(|schema| (schema.name.clone(), schema))
        .collect();
    assert!(
        all.len() > 150,
        "only {} schemas in {}",
        all.len(),
        jar.display()
    );
    all
}

/// JSON without its `//` comments, which may not be taken out of strings.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            '"' => quoted = !quoted,
            '/' if !quoted && chars.peek() == Some(&'/') => {
                chars.find(|c| *c == '\n');
            }
            _ => {}
        }
        if quoted || c != '/' {
            out.push(c);
        }
    }
    out
}

impl Schema {
    /// The fields of a field's struct, which may be defined elsewhere.
    fn inner<'a>(&'a self, spec: &'a Spec) -> &'a [Spec] {
        if !spec.fields.is_empty() {
            return &spec.fields;
        }
        let name = spec.kind.trim_start_matches("[]");
        let mut common = self.common_structs.iter().filter(|c| c.name == name);
        common.next().map_or(&[], |common| &common.fields)
    }

    fn newest(&self) -> Option<i16> {
        range(&self.valid_versions).map(|(_, newest)| newest)
    }
}

#[test]
fn every_table_is_kafkas_in_every_version() {
    let schemas = schemas();
    let tables = [schema::ADDRESSED, schema::CLAIMS, schema::OUTCOMES].concat();
    for table in tables {
        let schema = &schemas[table.name];
        assert_eq!(schema.api_key, Some(table.api_key), "{}", table.name);
        for version in table.oldest..=table.newest {
            let at = format!("{} {version}", table.name);
            let flexible = has(&schema.flexible_versions, version);
            assert_eq!(version >= table.flexible, flexible, "{at} is flexible");
            check(schema, &schema.fields, table.fields, version, &at);
        }
    }
}

fn check(schema: &Schema, specs: &[Spec], fields: &[Field], version: i16, at: &str) {
    let specs: Vec<_> = specs.iter().filter(|s| has(&s.versions, version)).collect();
    let fields: Vec<_> = fields
        .iter()
        .filter(|f| (f.since..=f.until).contains(&version))
        .collect();
    let names = |all: &mut dyn Iterator<Item = &str>| all.collect::<Vec<_>>().join(", ");
    assert_eq!(
        names(&mut fields.iter().map(|f| f.name)),
        names(&mut specs.iter().map(|s| s.name.as_str())),
        "fields of {at}"
    );
    for (spec, field) in specs.into_iter().zip(fields) {
        let at = format!("{at} {}", spec.name);
        let tag = spec.tag.filter(|_| has(&spec.tagged_versions, version));
        assert_eq!(field.tag, tag, "tag of {at}");
        let inner = schema.inner(spec);
        match (field.kind, spec.kind.as_str()) {
            (Kind::Bool, "bool")
            | (Kind::Int8, "int8")
            | (Kind::Int16, "int16")
            | (Kind::Int32, "int32")
            | (Kind::Int64, "int64")
            | (Kind::Uuid, "uuid")
            | (Kind::String, "string")
            | (Kind::Records, "records")
            | (Kind::Int32s, "[]int32") => {}
            (Kind::Array(fields), kind) if kind.starts_with("[]") && !inner.is_empty() => {
                check(schema, inner, fields, version, &at);
            }
            (Kind::Struct(fields), kind) if !kind.starts_with("[]") && !inner.is_empty() => {
                assert!(!has(&spec.nullable_versions, version), "{at} may be null");
                check(schema, inner, fields, version, &at);
            }
            (kind, said) => panic!("{at} is {said}, not {kind:?}"),
        }
        let role = match spec.name.as_str() {
            "Host" => Role::Host,
            "Port" => Role::Port,
            "NodeEndpoints" => Role::Endpoints,
            "Brokers" => Role::Brokers,
            "ClusterId" => Role::ClusterId,
            "EndpointType" => Role::EndpointType,
            _ => field.role,
        };
        assert_eq!(field.role, role, "{at}");
    }
}

#[test]
fn every_address_in_a_response_has_a_rule_or_an_exception() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for schema in schemas().into_values().filter(|s| s.kind == "response") {
        let mut here = BTreeSet::new();
        addressed(&schema, &schema.fields, &mut here);
        for common in &schema.common_structs {
            addressed(&schema, &common.fields, &mut here);
        }
        if !here.is_empty() && schema.newest().is_some() {
            found.insert(schema.name, here);
        }
    }
    let ruled: BTreeSet<_> = schema::ADDRESSED.iter().map(|m| m.name).collect();
    let excepted: BTreeSet<_> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    for (name, fields) in &found {
        let covered = ruled.contains(name.as_str()) || excepted.contains(name.as_str());
        assert!(
            covered,
            "{name} has addresses that nobody rewrites: {fields:?}"
        );
    }
    for name in ruled.union(&excepted) {
        assert!(found.contains_key(*name), "{name} has no address any more");
        let both = ruled.contains(name) && excepted.contains(name);
        assert!(!both, "{name} is both rewritten and excepted");
    }
}

fn addressed(schema: &Schema, specs: &[Spec], found: &mut BTreeSet<String>) {
    const NAMES: [&str; 9] = [
        "host",
        "hostname",
        "port",
        "endpoint",
        "endpoints",
        "address",
        "addresses",
        "listener",
        "listeners",
    ];
    const TYPES: [&str; 5] = ["endpoint", "broker", "listener", "address", "node"];
    for spec in specs {
        let words = words(&spec.name);
        let named = words
            .last()
            .is_some_and(|last| NAMES.contains(&last.as_str()));
        let inner = schema.inner(spec);
        let kind = spec.kind.to_lowercase();
        if named || (!inner.is_empty() && TYPES.iter().any(|part| kind.contains(part))) {
            found.insert(spec.name.clone());
        }
        addressed(schema, inner, found);
    }
}

/// `ClientHost` is `client`, `host`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => words.push(c.to_lowercase().collect()),
        }
    }
    words
}

#[test]
fn rewritten_responses_cover_every_version_that_has_addresses() {
    let schemas = schemas();
    for table in schema::ADDRESSED {
        let Message {
            name,
            api_key,
            newest,
            ..
        } = *table;
        assert_eq!(schemas[*name].newest(), Some(*newest), "newest {name}");
        assert_eq!(addresses::newest(*api_key), *newest);
        for version in table.oldest..=*newest {
            let carries = has_host(table.fields, version);
            assert_eq!(
                addresses::rewrites(*api_key, version),
                carries,
                "{name} {version}"
            );
        }
    }
}

fn has_host(fields: &[Field], version: i16) -> bool {
    let here = |field: &&Field| (field.since..=field.until).contains(&version);
    fields.iter().filter(here).any(|field| match field.kind {
        Kind::Array(inner) | Kind::Struct(inner) => has_host(inner, version),
        Kind::Bool
        | Kind::Int8
        | Kind::Int16
        | Kind::Int32
        | Kind::Int64
        | Kind::Uuid
        | Kind::String
        | Kind::Records
        | Kind::Int32s => field.role == Role::Host,
    })
}

#[test]
fn what_clients_are_offered_is_all_that_kafka_has() {
    let mut decoded = BTreeSet::new();
    for schema in schemas().values().filter(|s| s.kind == "request") {
        let (Some(key), Some(newest)) = (schema.api_key, schema.newest()) else {
            continue;
        };
        let flexible = header::flexible(key, newest);
        assert_eq!(
            flexible.is_some(),
            api_versions::newest(key).is_some(),
            "{}",
            schema.name
        );
        let Some(offered) = api_versions::newest(key) else {
            continue;
        };
        decoded.insert(key);
        let behind = BEHIND.iter().any(|(late, _)| *late == key);
        assert_eq!(
            offered < newest,
            behind,
            "{}: {offered} of {newest}",
            schema.name
        );
        for version in 0..=newest {
            let expected = has(&schema.flexible_versions, version);
            assert_eq!(
                header::flexible(key, version),
                Some(expected),
                "{} {version}",
                schema.name
            );
        }
    }
    assert_eq!(decoded.len(), 15);
}

/// The layouts of `wire::fetch` are of these versions, by these fields.
#[test]
fn the_log_is_asked_for_in_versions_that_kafka_has() {
    use hapax::wire::fetch::{BY_ID, BY_NAME, LIST_OFFSETS};
    let schemas = schemas();
    let check = |name: &str, version: i16, expected: &str| {
        let schema = &schemas[name];
        assert!(has(&schema.valid_versions, version), "{name} {version}");
        let mut found = Vec::new();
        in_place(schema, &schema.fields, version, &mut found);
        assert_eq!(found.join(" "), expected, "{name} {version}");
    };
    check(
        "FetchRequest",
        BY_NAME,
        "ReplicaId MaxWaitMs MinBytes MaxBytes IsolationLevel Topics Topic Partitions Partition \
         FetchOffset PartitionMaxBytes",
    );
    check(
        "FetchRequest",
        BY_ID,
        "ReplicaId MaxWaitMs MinBytes MaxBytes IsolationLevel SessionId SessionEpoch Topics \
         TopicId Partitions Partition CurrentLeaderEpoch FetchOffset LastFetchedEpoch \
         LogStartOffset PartitionMaxBytes ForgottenTopicsData TopicId Partitions RackId",
    );
    check(
        "ListOffsetsRequest",
        LIST_OFFSETS,
        "ReplicaId Topics Name Partitions PartitionIndex Timestamp",
    );
    check(
        "ListOffsetsResponse",
        LIST_OFFSETS,
        "Topics Name Partitions PartitionIndex ErrorCode Timestamp Offset",
    );
}

/// The fields that a version writes in place, outer before inner.
fn in_place<'s>(schema: &'s Schema, specs: &'s [Spec], version: i16, found: &mut Vec<&'s str>) {
    for spec in specs.iter().filter(|spec| has(&spec.versions, version)) {
        if has(&spec.tagged_versions, version) {
            continue;
        }
        found.push(&spec.name);
        in_place(schema, schema.inner(spec), version, found);
    }
}
