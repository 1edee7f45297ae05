//! Requests of other pages are refused.
//!
//! Every socket is a sibling host of the desk, so its pages are of the same site, and browsers send `SameSite` cookies
//! with their requests. What tells them apart is the origin (Fetch Metadata, RFC 6454).

use axum::{body::Body, extract::Request};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::problem::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request that the desk's own page did not send, and a change that is not in JSON.
pub(super) fn check(request: &Request<Body>) -> Result<(), ApiError> {
    let (headers, is_safe) = (request.headers(), request.method().is_safe());
    let host = request.uri().authority().map(|authority| authority.as_str());
    let host = host.or_else(|| headers.get(header::HOST)?.to_str().ok()).unwrap_or_default();
    if !is_own(headers, host, is_safe) {
        let detail = "only the desk's own page may send this request: open the desk, or use the API with a token";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "cross-origin", detail));
    }
    if !is_safe && !is_json(headers) {
        let detail = "the desk takes changes in JSON: send them with Content-Type: application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail));
    }
    Ok(())
}

/// Whether the browser says that a page of this host sent the request. Requests that change nothing may also come from
/// the address bar, or from a client that says nothing about pages.
fn is_own(headers: &HeaderMap, host: &str, is_safe: bool) -> bool {
    let (Ok(site), Ok(origin)) = (one(headers, &SEC_FETCH_SITE), one(headers, &header::ORIGIN)) else { return false };
    let is_our_origin = origin.is_some_and(|origin| {
        let found = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://"));
        found.is_some_and(|found| found.eq_ignore_ascii_case(host))
    });
    if origin.is_some() && !is_our_origin {
        return false;
    }
    match site.map(HeaderValue::as_bytes) {
        Some(b"same-origin") => true,
        Some(b"none") => is_safe,
        Some(_) => false,
        None => is_safe || is_our_origin,
    }
}

/// The only value of a field; an error if there are two.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() { Err(()) } else { Ok(first) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = one(headers, &header::CONTENT_TYPE).ok().flatten().and_then(|value| value.to_str().ok());
    let essence = given.and_then(|value| value.split(';').next()).map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "desk.localhost:8443";

    /// Whether a request with these fields may read, and whether it may change something.
    fn may(fields: &[(&'static str, &str)]) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        (is_own(&headers, HOST, true), is_own(&headers, HOST, false))
    }

    #[test]
    fn only_the_own_origin_changes_anything() {
        let (site, origin) = ("sec-fetch-site", "origin");
        for (fields, expected) in [
            (vec![(site, "same-origin")], (true, true)),
            (vec![(site, "same-origin"), (origin, "https://desk.localhost:8443")], (true, true)),
            (vec![(origin, "https://DESK.localhost:8443")], (true, true)),
            (vec![], (true, false)),
            (vec![(site, "none")], (true, false)),
            (vec![(site, "same-site")], (false, false)),
            (vec![(site, "same-site"), (origin, "https://shop.localhost:8443")], (false, false)),
            (vec![(site, "cross-site")], (false, false)),
            (vec![(site, "same-site"), (origin, "https://desk.localhost:8443")], (false, false)),
            (vec![(site, "same-origin"), (origin, "https://shop.localhost:8443")], (false, false)),
            (vec![(site, "same-origin"), (site, "same-origin")], (false, false)),
            (vec![(origin, "https://desk.localhost:8443"), (origin, "https://desk.localhost:8443")], (false, false)),
            (vec![(origin, "http://desk.localhost:8443")], (false, false)),
            (vec![(origin, "https://desk.localhost")], (false, false)),
            (vec![(origin, "https://desk.localhost:8443.evil.example")], (false, false)),
            (vec![(origin, "null")], (false, false)),
            (vec![(origin, "")], (false, false)),
        ] {
            assert_eq!(may(&fields), expected, "{fields:?}");
        }
    }
}
