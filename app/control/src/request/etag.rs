//! Entity tags, by which a client changes only what it has seen (RFC 9110 sections 8.8.3 and 13.1.1).

use axum::{extract::FromRequestParts, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;

use crate::{problem::ApiError, state::App};

/// How many tags a request may give.
const MAX_TAGS: usize = 8;
/// How many bytes of the hash a tag has.
const TAG_BYTES: usize = 16;

/// The tag of a thing: a hash of what its owner has set, with its quotation marks.
///
/// What edges report, such as the number of its tunnels that are up, is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityTag(String);

impl EntityTag {
    /// The tag of a thing that consists of these parts.
    pub(crate) fn of(app: &App, parts: &impl Serialize) -> Result<Self, ApiError> {
        let text = serde_json::to_vec(parts).map_err(ApiError::internal)?;
        // With a key, because a tag must tell nothing of a password's hash.
        let hash = app.tokens.keyed_hash(&text).map_err(ApiError::internal)?;
        let digits = hash.iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}"));
        Ok(Self(format!("\"{}\"", digits.collect::<String>())))
    }

    /// Whether the sender of a request has the thing with this tag (`If-None-Match`).
    pub(crate) fn is_known_to(&self, headers: &HeaderMap) -> bool {
        let given = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        given.take(MAX_TAGS).flat_map(|value| value.split(',')).any(|tag| tag.trim().trim_start_matches("W/") == self.0)
    }

    /// The response with this tag.
    pub(crate) fn on(&self, mut response: Response) -> Response {
        if let Ok(value) = HeaderValue::from_str(&self.0) {
            response.headers_mut().insert(header::ETAG, value);
        }
        response
    }
}

/// The tags of `If-Match`, one of which the thing must have; `None`: whatever it has.
#[derive(Debug, Clone)]
pub(crate) struct IfMatch(Option<Vec<String>>);

impl IfMatch {
    /// No condition.
    pub(crate) const ANY: Self = Self(None);

    /// Refuses a thing that has another tag.
    pub(crate) fn check(&self, current: impl FnOnce() -> Result<EntityTag, ApiError>) -> Result<(), ApiError> {
        let Some(tags) = &self.0 else { return Ok(()) };
        if tags.contains(&current()?.0) {
            return Ok(());
        }
        let detail = "it has changed since you read it: read it again, and send the change with the new ETag";
        Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "precondition-failed", detail))
    }
}

impl FromRequestParts<App> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        let mut tags = Vec::new();
        for value in parts.headers.get_all(header::IF_MATCH) {
            let Some(given) = value.to_str().ok().and_then(read).filter(|given| given.len() <= MAX_TAGS) else {
                let detail = format!("send in If-Match the ETag of a response, or *; at most {MAX_TAGS} tags");
                return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad-if-match", detail));
            };
            tags.extend(given);
        }
        let is_any = tags.is_empty() || tags.iter().any(|tag| tag == "*");
        Ok(Self((!is_any).then_some(tags)))
    }
}

/// The tags of a field value. A weak tag never matches, and is kept as it is.
fn read(value: &str) -> Option<Vec<String>> {
    let is_tag = |tag: &str| {
        let inner = tag.strip_prefix("W/").unwrap_or(tag);
        inner.len() >= 2 && inner.starts_with('"') && inner.ends_with('"') && !inner[1..inner.len() - 1].contains('"')
    };
    let tags: Vec<_> = value.split(',').map(|tag| tag.trim().to_owned()).collect();
    tags.iter().all(|tag| tag == "*" || is_tag(tag)).then_some(tags)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn tags_have_quotation_marks() {
        let tags = |value: &str| read(value).map(|tags| tags.join(" "));
        assert_eq!(tags("\"a\", W/\"b\",*").as_deref(), Some("\"a\" W/\"b\" *"));
        for value in ["", "a", "\"a", "\"a\" \"b\"", "\"", "\"a\",", "w/\"a\""] {
            assert_eq!(tags(value), None, "{value}");
        }
    }
}
