//! Compares requests and responses of all tests with the API's description.
//!
//! Every response from a described path must be described: status, type, every field. So must every accepted request:
//! parameters and body.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::json_schema::wrong_with;

/// One exchange with the API.
pub(crate) struct Exchange<'a> {
    pub(crate) method: &'a str,
    /// The path with its query.
    pub(crate) target: &'a str,
    /// The body of the request; `None` if it is not checked.
    pub(crate) request: Option<&'a [u8]>,
    pub(crate) status: u16,
    pub(crate) content_type: &'a str,
    pub(crate) text: &'a str,
}

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&sallyport_control::openapi_json()).unwrap());

#[track_caller]
fn fits(place: &str, schema: &Value, value: &Value) {
    let mut wrong = Vec::new();
    wrong_with(&DESCRIPTION, schema, value, "", &mut wrong);
    assert!(wrong.is_empty(), "{place} is described otherwise: {wrong:#?}\n{value:#}");
}

/// The operation of a request, with its described path.
fn operation(method: &str, path: &str) -> Option<(&'static str, &'static Value)> {
    let fixed = |template: &str| template.split('/').filter(|part| !part.starts_with('{')).count();
    let asked: Vec<&str> = path.split('/').collect();
    let matches = |template: &str| {
        let parts: Vec<&str> = template.split('/').collect();
        let is_part = |(part, asked): (&&str, &&str)| part == asked || part.starts_with('{') && !asked.is_empty();
        parts.len() == asked.len() && parts.iter().zip(&asked).all(is_part)
    };
    let paths = DESCRIPTION["paths"].as_object().unwrap();
    let (template, operations) =
        paths.iter().filter(|(template, _)| matches(template)).max_by_key(|(template, _)| fixed(template))?;
    Some((template, operations.get(method.to_ascii_lowercase())?))
}

/// Fails the test if an exchange differs from the description. Other paths are ignored.
#[track_caller]
pub(crate) fn check(exchange: &Exchange<'_>) {
    let Exchange { method, target, request, status, content_type, text } = *exchange;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let Some((template, operation)) = operation(method, path) else {
        let is_ours =
            path.starts_with("/v1/") && (200..300).contains(&status) && !["HEAD", "OPTIONS"].contains(&method);
        assert!(!is_ours, "{method} {path} responds {status}, and is not described");
        return;
    };
    let place = format!("{method} {template}");
    let responses = operation["responses"].as_object().unwrap();
    let code = status.to_string();
    let assert_error = status >= 400;
    let response = responses.get(&code).or_else(|| responses.get("default").filter(|_| assert_error));
    let response = response.unwrap_or_else(|| panic!("{place} responds {status}, which is not described: {text}"));
    let kind = content_type.split(';').next().unwrap().trim();
    match response["content"].as_object() {
        None => assert!(text.is_empty(), "{place} responds {status} with a body that is not described: {text}"),
        Some(content) => {
            let described = content.get(kind);
            let described =
                described.unwrap_or_else(|| panic!("{place} responds {status} as {kind:?}, which is not described"));
            // Lines of JSON are values one by one.
            let lines = if kind == "application/x-ndjson" { text.lines().collect() } else { vec![text] };
            for text in lines {
                let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{place}: no JSON: {text}"));
                fits(&format!("the response {status} of {place}"), &described["schema"], &value);
            }
        }
    }
    if (200..300).contains(&status) {
        check_request(&place, operation, query, request);
    }
}

/// An accepted request must be described.
#[track_caller]
fn check_request(place: &str, operation: &Value, query: &str, body: Option<&[u8]>) {
    let empty = Vec::new();
    let parameters = operation["parameters"].as_array().unwrap_or(&empty);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let described = parameters.iter().find(|known| known["in"] == "query" && known["name"] == name);
        let described = described.unwrap_or_else(|| panic!("{place} takes ?{name}, which is not described"));
        let text = percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8().unwrap().into_owned();
        let schema = &described["schema"];
        // An array is written as several parameters of its name, one for each item.
        let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
        // Numbers and booleans are written plainly; everything else is a text.
        let is_text =
            schema["type"] == "string" || schema["type"].as_array().is_some_and(|t| t.contains(&json!("string")));
        let value = if is_text { json!(text) } else { serde_json::from_str(&text).unwrap_or(json!(text)) };
        fits(&format!("?{name} of {place}"), schema, &value);
    }
    let Some(body) = body else { return };
    let described = &operation["requestBody"];
    if body.is_empty() {
        assert!(
            described["required"] != true,
            "{place} accepts a request without the body that the description requires"
        );
        return;
    }
    if described.is_null() {
        // An unread body is no part of the request.
        return;
    }
    let value: Value = serde_json::from_slice(body).unwrap();
    fits(&format!("what {place} accepts"), &described["content"]["application/json"]["schema"], &value);
}

#[test]
fn what_deviates_from_the_description_is_found() {
    let info = serde_json::to_string(&json!({"domain": 3})).unwrap();
    let exchange = |status, content_type, text, request| Exchange {
        method: "PATCH",
        target: "/v1/ssh-authority",
        request,
        status,
        content_type,
        text,
    };
    let good = json!({"public_key": "k", "extensions": [], "mysocket_principal": false}).to_string();
    let more = json!({"public_key": "k", "extensions": [], "mysocket_principal": false, "more": 1}).to_string();
    let patch = Some(&b"{\"force_command\":null}"[..]);
    check(&exchange(200, "application/json", &good, patch));
    for (bad, why) in [
        (exchange(200, "application/json", &more, patch), "a field that is not described"),
        (exchange(200, "application/json", &info, patch), "another object"),
        (exchange(200, "text/plain", &good, patch), "another kind"),
        (exchange(201, "application/json", &good, patch), "another status"),
        (exchange(200, "application/json", &good, Some(b"")), "no body"),
        (exchange(200, "application/json", &good, Some(b"{\"extensions\":3}")), "a body of another form"),
    ] {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bad)));
        assert!(found.is_err(), "{why} was not found");
    }
    let unknown =
        Exchange { method: "GET", target: "/v1/nowhere", request: None, status: 200, content_type: "", text: "" };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&unknown))).is_err());
}
