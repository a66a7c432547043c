//! The JSON Schema of the configuration file, draft 2020-12.

use clap::builder::PossibleValue;
use serde_json::{Map, Value as Json, json};

use super::keys::{KEYS, Key, Kind};
use crate::policy::Requirement;

/// The schema of the whole file.
pub fn schema() -> Json {
    let mut top = Map::new();
    for key in KEYS {
        let (section, name) = key.place();
        if section.is_empty() {
            top.insert(name.to_owned(), of_key(key));
            continue;
        }
        // A section whose every line is commented out is null.
        let new = || json!({ "type": ["object", "null"], "additionalProperties": false, "properties": {} });
        let mut names = section.split('.');
        let mut at = top
            .entry(names.next().unwrap_or(section))
            .or_insert_with(new);
        for name in names {
            let within = at["properties"].as_object_mut();
            let within = within.expect("every section has properties");
            at = within.entry(name).or_insert_with(new);
        }
        at["properties"][name] = of_key(key);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hapax configuration",
        "description": "The file that hapax run --config reads.",
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": top,
    })
}

fn of_key(key: &Key) -> Json {
    let mut schema = of_kind(&key.kind);
    let value = key.kind.parse_all(key.default);
    let value = value.expect("a test parses every default of the table");
    schema["default"] = value.to_json();
    schema["description"] = format!("{} --{}, {}.", key.doc, key.flag, key.variable()).into();
    schema
}

fn of_kind(kind: &Kind) -> Json {
    let text = json!({ "type": "string" });
    match kind {
        Kind::Servers => json!({ "anyOf": [
            { "type": "array", "items": { "type": "string", "pattern": format!("^{SERVER}$") } },
            { "type": "string", "pattern": format!("^{SERVER}(,{SERVER})*$") },
        ]}),
        Kind::Mappings => json!({ "anyOf": [
            { "type": "object", "additionalProperties": text },
            { "type": "string", "pattern": "^[^,=]+=[^,=]+(,[^,=]+=[^,=]+)*$" },
        ]}),
        Kind::Slots => json!({ "anyOf": [
            {
                "type": "object",
                "propertyNames": { "pattern": "^[0-9]+$" },
                "additionalProperties": port(),
            },
            { "type": "string", "pattern": "^[0-9]+=[0-9]+(,[0-9]+=[0-9]+)*$" },
        ]}),
        Kind::Policies => json!({ "anyOf": [
            { "type": "array", "items": { "anyOf": [
                policy(),
                { "type": "string", "pattern": format!("^{POLICY}$") },
            ]}},
            { "type": "string", "pattern": format!("^{POLICY}(,{POLICY})*$") },
        ]}),
        Kind::Listen => json!({ "type": "string", "pattern": LISTEN }),
        Kind::Ports => json!({ "anyOf": [
            { "type": "string", "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$" },
            port(),
        ]}),
        Kind::Host | Kind::Text | Kind::Directory | Kind::File => {
            json!({ "type": ["string", "null"] })
        }
        Kind::Time => json!({ "anyOf": [
            { "type": "string", "pattern": "^([0-9]+(ms|s|m|h)|0)$" },
            { "const": 0 },
        ]}),
        Kind::Wait => json!({ "type": "string", "pattern": "^0*[1-9][0-9]*(ms|s|m|h)$" }),
        Kind::Count(range) | Kind::Bytes(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Choice(choices) => {
            let choices = choices();
            let names = choices.iter().map(PossibleValue::get_name);
            json!({ "enum": names.collect::<Vec<_>>() })
        }
        Kind::Choices(choices) => {
            let choices = choices();
            let names = choices.iter().map(PossibleValue::get_name);
            let names: Vec<_> = names.collect();
            let any = names.join("|");
            json!({ "anyOf": [
                { "type": "array", "items": { "enum": names }, "minItems": 1 },
                { "type": "string", "pattern": format!("^({any})(,({any}))*$") },
            ]})
        }
        Kind::Level => json!({ "type": "string", "minLength": 1 }),
    }
}

/// One policy, as the file has it.
fn policy() -> Json {
    let names: Vec<&str> = Requirement::ALL.map(Requirement::name).to_vec();
    let topic = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    // One that takes topics out leaves none by itself.
    let topics = json!({ "anyOf": [
        topic(&format!("^{TOPIC}$")),
        {
            "type": "array",
            "items": topic(&format!("^!?{TOPIC}$")),
            "contains": topic("^[^!]"),
        },
    ]});
    let requirement = json!({ "enum": names });
    let require = json!({ "anyOf": [
        requirement,
        { "type": "array", "items": requirement, "minItems": 1 },
    ]});
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["topics", "require"],
        "properties": {
            "topics": topics,
            "require": require,
        },
    })
}

fn port() -> Json {
    json!({ "type": "integer", "minimum": 1, "maximum": 65535 })
}

const TOPIC: &str = r"[A-Za-z0-9._*?-]{1,249}";
const POLICY: &str = r"!?[A-Za-z0-9._*?-]+(\+!?[A-Za-z0-9._*?-]+)*=(idempotence|acks_all|transactional)(\+(idempotence|acks_all|transactional))*";
const SERVER: &str = r"(\[[0-9A-Fa-f:.]+\]|[^\[\]/,=:\s]+):[0-9]{1,5}";
const LISTEN: &str = r"^(\[[0-9A-Fa-f:.%]+\]|[0-9.]+|localhost):[0-9]{1,5}$";
