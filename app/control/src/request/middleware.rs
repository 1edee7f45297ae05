//! The parts that every answer has: request id, security headers, a problem as the body of an error. Requests are
//! counted here.

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tracing::Instrument;

use super::mysocket_error;
use crate::{audit::Trail, problem::ApiError, security::random, state::App};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest request id that is taken over from the edge.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// Runs the request to its end and finishes the answer.
///
/// The handler runs in a task of its own: a client that goes away cannot stop a change between the store and the edges.
pub(crate) async fn finish(State(app): State<App>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let request_id = request_id(request.headers());
    let trail = Trail::of(&request, &request_id);
    let handling = tokio::spawn(trail.clone().around(next.run(request)).in_current_span());
    let mut response = match handling.await {
        Ok(response) => response,
        Err(error) => axum::response::IntoResponse::into_response(ApiError::internal(error)),
    };
    let status = response.status();
    trail.ends(&app, &method, route.as_ref().map(MatchedPath::as_str), &response);
    let error = response.extensions_mut().remove::<ApiError>().or_else(|| refused_by_router(status));
    if let Some(error) = error {
        if let Some(inside) = error.inner() {
            tracing::error!(request_id, %method, path, status = status.as_u16(), error = inside, "request failed");
        }
        let allow = response.headers_mut().remove(header::ALLOW);
        response = if mysocket_error::is_path(&path) {
            mysocket_error::render(&error)
        } else {
            error.render(&path, &request_id)
        };
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    app.metrics.request(route.as_ref(), &method, response.status());
    secure(response.headers_mut(), &request_id);
    response
}

/// The header fields of every answer of the API and of every refusal: no cache stores it, and no browser renders it.
pub(crate) fn secure(headers: &mut HeaderMap, request_id: &str) {
    // Responses hold secrets and private data: caches must not store them.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Pages have a policy of their own.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
}

/// The answer to a path that does not exist.
pub(crate) async fn no_such_path() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no-such-path", "there is nothing at this path: see /openapi.json")
}

/// Refusals of the router itself.
fn refused_by_router(status: StatusCode) -> Option<ApiError> {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            let detail = "this path does not take this method: see the Allow header";
            Some(ApiError::new(status, "method-not-allowed", detail))
        }
        status if status.is_client_error() => {
            Some(ApiError::new(status, "bad-request", "the request is not valid: check its path"))
        }
        status if status.is_server_error() => Some(ApiError::internal("a response without its reason")),
        _ => None,
    }
}

/// The id that the edge gave the request, or a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    });
    match given {
        Some(id) => id.to_owned(),
        None => random::bytes::<12>().map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).unwrap_or_default(),
    }
}
