//! Answers of creations and of their repetitions.

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use crate::problem::ApiError;

/// The answer with the place of what was made.
pub(crate) fn located(mut response: Response, location: &str) -> Response {
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// The answer to a repetition whose first answer held a secret. Secrets are not stored, so it cannot be given again;
/// the client learns where the thing is, and what to do.
pub(crate) fn secret_already_shown(what: &str, way_out: &str, location: &str) -> ApiError {
    let detail =
        format!("the {what} was made by an earlier request with this key and its secret was shown then: {way_out}");
    let error = ApiError::new(StatusCode::CONFLICT, "secret-already-shown", detail);
    match HeaderValue::from_str(location) {
        Ok(location) => error.header(header::LOCATION, location),
        Err(_) => error,
    }
}
