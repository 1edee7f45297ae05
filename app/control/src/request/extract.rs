//! Extractors for handlers: the body, the page, the idempotency key. Every refusal is an [`ApiError`].

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Query, Request},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sallyport_api::{
    DEFAULT_PAGE_ITEMS, FieldError, IDEMPOTENCY_KEY, MAX_BODY_BYTES, MAX_IDEMPOTENCY_KEY_BYTES, MAX_PAGE_ITEMS,
    ORGANISATION, Page,
};
use sallyport_model::{LabelError, LabelSelector};
use sallyport_store::{IdempotencyKey, MAX_LABEL_SELECTORS, Position};
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

use super::strict_json::{ReadError, Strict};
use crate::{problem::ApiError, state::App};

/// How much of an invalid input an error shows, in characters.
const MAX_SHOWN_CHARS: usize = 64;
/// How long a body may take to arrive.
const MAX_BODY_TIME: Duration = Duration::from_secs(10);

/// A JSON body. A request without a body is refused.
pub(crate) struct Input<T> {
    pub(crate) value: T,
    /// The idempotency key with the hash of the whole request, if the request has one.
    pub(crate) keyed: Option<IdempotencyKey>,
}

/// A JSON body of optional fields. An absent body reads as `{}`.
pub(crate) struct OptionalInput<T> {
    pub(crate) value: T,
    /// As in [`Input`].
    pub(crate) keyed: Option<IdempotencyKey>,
}

impl<T: DeserializeOwned> FromRequest<App> for Input<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (body, keyed) = read_body(request, app).await?;
        let body = body.ok_or_else(|| ApiError::field("", "the body is missing: send a JSON object"))?;
        Ok(Self { value: read_type(body)?, keyed })
    }
}

impl<T: DeserializeOwned> FromRequest<App> for OptionalInput<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (body, keyed) = read_body(request, app).await?;
        Ok(Self { value: read_type(body.unwrap_or_else(|| Strict::Object(Vec::new())))?, keyed })
    }
}

/// The JSON of the body, if there is one, and the idempotency key.
async fn read_body(request: Request, app: &App) -> Result<(Option<Strict>, Option<IdempotencyKey>), ApiError> {
    let (parts, body) = request.into_parts();
    let key = idempotency_key(&parts.headers)?;
    let body = read(body).await?;
    let object = if body.is_empty() {
        None
    } else {
        check_content_type(&parts.headers)?;
        Some(parse(&body)?)
    };
    let Some(key) = key else { return Ok((object, None)) };
    // The organisation is part of the hash: the same body for another one is another request.
    let organisation = parts.headers.get(ORGANISATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let (method, path) = (parts.method.as_str().as_bytes(), parts.uri.path().as_bytes());
    let json = if body.is_empty() { &b"{}"[..] } else { &body[..] };
    let request_hash = app.tokens.keyed_hash(&[method, path, organisation, json].join(&b'\n'));
    let request_hash = request_hash.map_err(ApiError::internal)?;
    Ok((object, Some(IdempotencyKey { key, request_hash, now: app.clock.now().unix_seconds })))
}

/// Reads a body up to [`MAX_BODY_BYTES`].
pub(crate) async fn read(body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(MAX_BODY_TIME, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is too large: send at most {MAX_BODY_BYTES} bytes");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail))
        }
        Ok(Err(_)) => Err(ApiError::new(StatusCode::BAD_REQUEST, "body-cut", "the body ended before its end")),
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow", "the body took too long to arrive")),
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" {
        return Ok(());
    }
    let detail = "the body must be JSON: send it with Content-Type: application/json";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail))
}

/// Parses a JSON object.
fn parse(json: &[u8]) -> Result<Strict, ApiError> {
    // serde would take an array for the fields of a struct.
    if json.trim_ascii_start().first().is_some_and(|first| b"[\"-0123456789tfn".contains(first)) {
        serde_json::from_slice::<IgnoredAny>(json).map_err(|error| not_json(&error))?;
        return Err(ApiError::field("", "the body must be a JSON object: {...}"));
    }
    serde_json::from_slice(json).map_err(|error| not_json(&error))
}

/// Reads a type from the object. The error names the wrong field.
fn read_type<T: DeserializeOwned>(object: Strict) -> Result<T, ApiError> {
    object.read().map_err(wrong_field)
}

fn wrong_field(refused: ReadError) -> ApiError {
    ApiError::fields(vec![explain(&refused.path, &refused.error.to_string())])
}

fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "bad-json", format!("the body is not JSON: {error}"))
}

/// The field and the sentence of an error about the content.
fn explain(path: &str, message: &str) -> FieldError {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let quoted = |prefix: &str| message.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
    let parent = |name: &str| match path.rsplit_once('.') {
        Some((parent, _)) if !parent.is_empty() => format!("{parent}.{name}"),
        _ => name.to_owned(),
    };
    if let Some((name, rest)) = quoted("unknown field `") {
        let known = rest.trim_start_matches(", expected ").trim_start_matches("one of ").replace('`', "");
        let known =
            if known.contains("no fields") { "there are none here".to_owned() } else { format!("known are {known}") };
        return FieldError { field: parent(name), detail: format!("there is no such field; {known}") };
    }
    if let Some((name, _)) = quoted("missing field `") {
        let field = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        return FieldError { field, detail: "it is missing".to_owned() };
    }
    if let Some((name, _)) = quoted("duplicate field `") {
        let field = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        return FieldError { field, detail: "it is given twice".to_owned() };
    }
    FieldError { field: path.to_owned(), detail: message.to_owned() }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().map(str::trim).filter(|key| {
        (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
    });
    match (key, values.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad-idempotency-key",
            format!("send one Idempotency-Key of 1 to {MAX_IDEMPOTENCY_KEY_BYTES} visible ASCII characters"),
        )),
    }
}

/// The requested page of a list.
pub(crate) struct PageOf {
    pub(crate) after: Position,
    pub(crate) limit: u32,
}

/// The requested page of a list, and the labels of its things.
pub(crate) struct Labelled {
    pub(crate) page: PageOf,
    pub(crate) labels: Vec<LabelSelector>,
}

impl FromRequestParts<App> for PageOf {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        Self::read(parts, None)
    }
}

impl FromRequestParts<App> for Labelled {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        let mut labels = Vec::new();
        let page = PageOf::read(parts, Some(&mut labels))?;
        Ok(Self { page, labels })
    }
}

impl PageOf {
    /// Reads the query, in which there may be labels if `labels` is there.
    fn read(parts: &Parts, mut labels: Option<&mut Vec<LabelSelector>>) -> Result<Self, ApiError> {
        let invalid = |detail: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail);
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|rejection| invalid(format!("the query is not valid: {}", rejection.body_text())))?;
        let (mut limit, mut after) = (None, None);
        for (name, value) in pairs {
            let place = match name.as_str() {
                "limit" => &mut limit,
                "after" => &mut after,
                "label" if labels.is_some() => {
                    let selector = value.parse().map_err(|error: LabelError| invalid(format!("label: {error}")))?;
                    let Some(labels) = labels.as_deref_mut().filter(|labels| labels.len() < MAX_LABEL_SELECTORS) else {
                        return Err(invalid(format!("label is given more than {MAX_LABEL_SELECTORS} times")));
                    };
                    labels.push(selector);
                    continue;
                }
                _ => {
                    let name: String = name.chars().take(MAX_SHOWN_CHARS).collect();
                    let known = if labels.is_some() { "limit, after and label" } else { "limit and after" };
                    return Err(invalid(format!("there is no parameter {name:?}: known are {known}")));
                }
            };
            if place.replace(value).is_some() {
                return Err(invalid(format!("{name} is given twice")));
            }
        }
        let limit = match limit {
            None => DEFAULT_PAGE_ITEMS,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_PAGE_ITEMS).contains(limit))
                .ok_or_else(|| invalid(format!("limit must be a whole number from 1 to {MAX_PAGE_ITEMS}")))?,
        };
        // The cursor of the first page is empty.
        let after = match after.filter(|cursor| !cursor.is_empty()) {
            None => 0,
            Some(cursor) => position(&cursor)
                .ok_or_else(|| invalid("after must be the `next` of a page of this list".to_owned()))?,
        };
        Ok(Self { after, limit })
    }

    /// How many rows to read: one more than the page has, to see whether there is a next page.
    pub(crate) fn rows(&self) -> u32 {
        self.limit + 1
    }

    /// The page of these rows.
    pub(crate) fn page<R, T>(&self, mut rows: Vec<(Position, R)>, item: impl Fn(R) -> T) -> Page<T> {
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let next = rows.last().filter(|_| more).map(|(position, _)| cursor(*position));
        Page { items: rows.into_iter().map(|(_, row)| item(row)).collect(), next }
    }
}

/// The first byte of a cursor: its version.
const CURSOR_VERSION: u8 = 1;

fn cursor(position: Position) -> String {
    let mut bytes = vec![CURSOR_VERSION];
    bytes.extend(position.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn position(cursor: &str) -> Option<Position> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (&CURSOR_VERSION, position) = bytes.split_first()? else { return None };
    Some(Position::from_be_bytes(position.try_into().ok()?)).filter(|position| *position >= 0)
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(body) => json_text(status, body),
        Err(error) => ApiError::internal(error).into_response(),
    }
}

/// An answer that is JSON already.
pub(crate) fn json_text(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_type<T: DeserializeOwned>(json: &[u8]) -> Result<T, ApiError> {
        parse(json).and_then(read_type)
    }

    fn refusal<T: DeserializeOwned>(json: &str) -> (String, String) {
        let error = parse_type::<T>(json.as_bytes()).err().expect("refused");
        let FieldError { field, detail } =
            serde_json::from_slice::<sallyport_api::Problem>(&body(error)).unwrap().errors.remove(0);
        (field, detail)
    }

    fn body(error: ApiError) -> Bytes {
        let response = error.render("/", "id");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(response.into_body().collect()).unwrap().to_bytes()
    }

    #[test]
    fn wrong_fields_are_named() {
        type Socket = sallyport_api::CreateSocket;
        let (field, detail) = refusal::<Socket>(r#"{"name":"a","portocol":1}"#);
        assert_eq!(field, "portocol");
        assert!(detail.starts_with("there is no such field; known are name, type, origin_protocol, protected,"));
        assert_eq!(refusal::<Socket>("{}"), ("name".to_owned(), "it is missing".to_owned()));
        let (field, detail) = refusal::<Socket>(r#"{"name":"a","protected":{"username":"u"}}"#);
        assert_eq!((field.as_str(), detail.as_str()), ("protected.password", "it is missing"));
        let (field, _) = refusal::<Socket>(r#"{"name":"a","protected":{"username":"u","pass":"x"}}"#);
        assert_eq!(field, "protected.pass");
        let (field, detail) = refusal::<Socket>(r#"{"name":"a\nb"}"#);
        assert!(
            field == "name" && detail.starts_with("a name is one line of 1 to 100 characters"),
            "{field}: {detail}"
        );
        assert_eq!(refusal::<Socket>("{\"name\":\"a\u{202e}b\"}").0, "name");
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        assert_eq!(refusal::<Nothing>(r#"{"a":1}"#).1, "there is no such field; there are none here");
        let (field, detail) = refusal::<Socket>(r#"{"name":"a","limits":{"max":1}}"#);
        assert_eq!((field.as_str(), detail.contains("max_connections")), ("limits.max", true), "{detail}");
    }

    #[test]
    fn only_an_object_is_a_body() {
        type Socket = sallyport_api::CreateSocket;
        for json in [r#"["a","http","auto",null]"#, "[]", " null", "3", "\"a\"", "true"] {
            let (field, detail) = refusal::<Socket>(json);
            assert_eq!((field.as_str(), detail.as_str()), ("", "the body must be a JSON object: {...}"), "{json}");
        }
        let deep = "[".repeat(60_000);
        for json in ["[", "nul", deep.as_str()] {
            let error = parse_type::<Socket>(json.as_bytes()).expect_err("refused");
            let problem: sallyport_api::Problem = serde_json::from_slice(&body(error)).unwrap();
            assert_eq!((problem.status, problem.code.as_str()), (400, "bad-json"), "{json:.20}");
        }
    }

    #[test]
    fn nothing_stands_for_a_word_or_an_object() {
        type Socket = sallyport_api::CreateSocket;
        let cases = [
            (r#"{"name":"a","type":5}"#, "type", "invalid type: integer `5`, expected a string"),
            (r#"{"name":"a","type":null}"#, "type", "invalid type: null, expected a string"),
            (r#"{"name":"a","type":{"http":null}}"#, "type", "invalid type: map, expected a string"),
            (
                r#"{"name":"a","origin_protocol":["auto"]}"#,
                "origin_protocol",
                "invalid type: sequence, expected a string",
            ),
            (r#"{"name":"a","protected":["u","p"]}"#, "protected", "invalid type: sequence, expected an object"),
            (
                r#"{"name":"a","protected":{"username":1,"password":"b"}}"#,
                "protected.username",
                "invalid type: integer `1`",
            ),
            (r#"{"name":"a","name":"b"}"#, "name", "it is given twice"),
        ];
        for (json, field, detail) in cases {
            let error = refusal::<Socket>(json);
            assert!(error.0 == field && error.1.starts_with(detail), "{json}: {error:?}");
        }
        let error = parse_type::<Socket>(br#"{"name":"a","type":gopher}"#).expect_err("refused");
        let problem: sallyport_api::Problem = serde_json::from_slice(&body(error)).unwrap();
        assert_eq!((problem.status, problem.code.as_str()), (400, "bad-json"));
        let open = r#"{"name":"a","type":"https","protected":null}"#;
        assert!(parse_type::<Socket>(open.as_bytes()).unwrap().protected.is_none());
    }

    #[test]
    fn cursors_are_opaque_and_checked() {
        assert_eq!(position(&cursor(42)), Some(42));
        for bad in ["", "42", "AAAA", "!", &cursor(-1), &format!("{}A", cursor(1))] {
            assert_eq!(position(bad), None, "{bad}");
        }
    }
}
