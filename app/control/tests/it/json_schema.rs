//! Checks values by the part of JSON Schema (draft 2020-12) that the API's description uses.
//!
//! An unknown keyword fails the test. (An external validator would turn on features of `serde_json` and `regex` in the
//! whole program.)

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Keywords without effect on values. A `pattern` is for people; its rules have tests of their own.
const SAYS_NOTHING: [&str; 7] = ["description", "title", "example", "examples", "default", "deprecated", "pattern"];

/// Adds the faults of a value by this schema. Unknown fields are faults if the schema names fields.
pub(crate) fn wrong_with(description: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let known = check(description, schema, value, at, wrong);
    if let (Some(known), Some(fields)) = (known, value.as_object()) {
        let strange = fields.keys().filter(|name| !known.contains(name.as_str()));
        wrong.extend(strange.map(|name| format!("{at}/{name} is not described")));
    }
}

/// Checks everything except unknown fields. Returns the known fields if others are not allowed.
fn check<'a>(
    description: &'a Value,
    schema: &'a Value,
    value: &Value,
    at: &str,
    wrong: &mut Vec<String>,
) -> Option<BTreeSet<&'a str>> {
    let Some(words) = schema.as_object() else {
        assert!(schema.as_bool() == Some(true), "{at}: no schema: {schema}");
        return None;
    };
    let mut known: Option<BTreeSet<&str>> = None;
    let mut names = |more: BTreeSet<&'a str>| known.get_or_insert_default().extend(more);
    for (word, says) in words {
        match word.as_str() {
            "$ref" => {
                let target = says.as_str().unwrap().trim_start_matches('#');
                let target = description.pointer(target).unwrap_or_else(|| panic!("{at}: there is no {says}"));
                check(description, target, value, at, wrong).into_iter().for_each(&mut names);
            }
            "allOf" => {
                for part in says.as_array().unwrap() {
                    check(description, part, value, at, wrong).into_iter().for_each(&mut names);
                }
            }
            "oneOf" | "anyOf" => {
                let parts = says.as_array().unwrap();
                let tried: Vec<_> = parts.iter().map(|part| one_way(description, part, value, at)).collect();
                let fits = tried.iter().filter(|wrong| wrong.is_empty()).count();
                if fits == 0 || (word == "oneOf" && fits > 1) {
                    wrong.push(format!("{at} fits {fits} of {}: {tried:?}", parts.len()));
                }
            }
            "properties" => {
                let properties = says.as_object().unwrap();
                names(properties.keys().map(String::as_str).collect());
                for (name, schema) in properties {
                    if let Some(value) = value.get(name) {
                        wrong_with(description, schema, value, &format!("{at}/{name}"), wrong);
                    }
                }
            }
            "additionalProperties" => {
                let is_named = |name: &str| words.get("properties").is_some_and(|named| named.get(name).is_some());
                for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| !is_named(name)) {
                    if *says == Value::Bool(false) {
                        wrong.push(format!("{at}/{name} is not described"));
                    } else {
                        wrong_with(description, says, value, &format!("{at}/{name}"), wrong);
                    }
                }
            }
            "propertyNames" => {
                for name in value.as_object().into_iter().flat_map(Map::keys) {
                    let name = Value::from(name.as_str());
                    wrong_with(description, says, &name, &format!("{at}: the name {name}"), wrong);
                }
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    wrong_with(description, says, item, &format!("{at}/{number}"), wrong);
                }
            }
            "required" => {
                let missing = |name: &&Value| value.is_object() && value.get(name.as_str().unwrap()).is_none();
                wrong.extend(says.as_array().unwrap().iter().filter(missing).map(|name| format!("{at} lacks {name}")));
            }
            _ => simple(word, says, value, at, wrong),
        }
    }
    known.filter(|_| !words.contains_key("additionalProperties"))
}

/// The faults of a value by one of several schemas.
fn one_way(description: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    wrong_with(description, schema, value, at, &mut wrong);
    wrong
}

/// Checks a keyword of a value without parts.
fn simple(word: &str, says: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let bound = says.as_f64().unwrap_or_default();
    let length = |length: Option<usize>| length.map(|length| f64::from(u32::try_from(length).unwrap()));
    let text_length = || length(value.as_str().map(|text| text.chars().count()));
    let list_length = || length(value.as_array().map(Vec::len));
    let is_good = match word {
        "type" => match says {
            Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind.as_str().unwrap(), value)),
            kind => is_of(kind.as_str().unwrap(), value),
        },
        "enum" => says.as_array().unwrap().contains(value),
        "format" => value.as_str().is_none_or(|text| is_in_format(says.as_str().unwrap(), text)),
        "minimum" => value.as_f64().is_none_or(|number| number >= bound),
        "maximum" => value.as_f64().is_none_or(|number| number <= bound),
        "minLength" => text_length().is_none_or(|length| length >= bound),
        "maxLength" => text_length().is_none_or(|length| length <= bound),
        "minItems" => list_length().is_none_or(|length| length >= bound),
        "maxItems" => list_length().is_none_or(|length| length <= bound),
        word if SAYS_NOTHING.contains(&word) => true,
        word => panic!("{at}: the description uses {word}, which this check does not know"),
    };
    if !is_good {
        wrong.push(format!("{at} is {value}, and its {word} is {says}"));
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        kind => panic!("there is no type {kind}"),
    }
}

fn is_in_format(format: &str, text: &str) -> bool {
    match format {
        "uuid" => uuid::Uuid::parse_str(text).is_ok() && text.len() == 36,
        "date-time" => time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).is_ok(),
        "email" => text.split_once('@').is_some_and(|(before, behind)| !before.is_empty() && !behind.is_empty()),
        // Formats of numbers and texts, which type and bounds cover.
        "double" | "int32" | "int64" | "password" => true,
        format => panic!("this check does not know the format {format}"),
    }
}

#[test]
fn values_are_held_against_schemas() {
    let description = serde_json::json!({"components": {"schemas": {
        "Base": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "format": "uuid"}}},
        "More": {"allOf": [{"$ref": "#/components/schemas/Base"},
                           {"type": "object", "properties": {"n": {"type": ["integer", "null"], "minimum": 1}}}]},
        "Map": {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"maxLength": 2}},
        "Word": {"oneOf": [{"type": "null"}, {"type": "string", "enum": ["a", "b"]}]},
    }}});
    let wrong = |name: &str, value: Value| {
        one_way(&description, &serde_json::json!({"$ref": format!("#/components/schemas/{name}")}), &value, "")
    };
    let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
    for (name, good) in [
        ("More", serde_json::json!({"id": id, "n": null})),
        ("More", serde_json::json!({"id": id, "n": 3})),
        ("Map", serde_json::json!({"a": 1, "b": 2})),
        ("Word", Value::Null),
        ("Word", "b".into()),
    ] {
        let found = wrong(name, good.clone());
        assert!(found.is_empty(), "{name}: {good}: {found:?}");
    }
    for (name, bad) in [
        ("More", serde_json::json!({"n": 3})),
        ("More", serde_json::json!({"id": id, "n": 0})),
        ("More", serde_json::json!({"id": "x"})),
        ("More", serde_json::json!({"id": id, "other": 1})),
        ("More", serde_json::json!([])),
        ("Map", serde_json::json!({"a": "1"})),
        ("Map", serde_json::json!({"abc": 1})),
        ("Word", "c".into()),
    ] {
        assert!(!wrong(name, bad.clone()).is_empty(), "{name}: {bad}");
    }
}
