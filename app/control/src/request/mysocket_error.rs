//! Errors in the form of the original clients (`mysocketctl`): `{"error_message", "status_code"}`.

use axum::response::{IntoResponse as _, Response};
use http::header;
use serde::Serialize;

use crate::problem::ApiError;

/// What the paths begin with.
const FIRST_SEGMENTS: [&str; 5] = ["user", "login", "connect", "socket", "mtls-ca"];

/// An error.
#[derive(Debug, Serialize)]
struct Error {
    error_message: String,
    status_code: u16,
}

/// Whether the path is one of the original clients', whose errors have their own form.
pub(crate) fn is_path(path: &str) -> bool {
    path.strip_prefix('/').and_then(|path| path.split('/').next()).is_some_and(|first| FIRST_SEGMENTS.contains(&first))
}

/// The error as these clients read it.
pub(crate) fn render(error: &ApiError) -> Response {
    let status = error.status();
    let body = Error { error_message: error.sentence().to_owned(), status_code: status.as_u16() };
    let body = serde_json::to_string(&body).unwrap_or_default();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    let wait = error.headers().filter(|(name, _)| *name == header::RETRY_AFTER);
    response.headers_mut().extend(wait.map(|(name, value)| (Some(name.clone()), value.clone())));
    response
}
