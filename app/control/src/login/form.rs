//! Forms that pages of ours send.

use std::collections::HashMap;

use axum::body::Body;
use http::{HeaderMap, StatusCode};

use super::{page::LoginError, start::parameters};
use crate::{App, extract};

/// What a form of ours says; no field twice. One that another site sent is refused before it is read.
pub(super) async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<HashMap<String, String>, LoginError> {
    app.check_origin(headers)?;
    let body = extract::read(body).await?;
    std::str::from_utf8(&body).ok().and_then(|text| parameters(Some(text))).ok_or_else(not_valid)
}

/// The answer to a form that no page of ours makes.
pub(super) fn not_valid() -> LoginError {
    LoginError::new(StatusCode::BAD_REQUEST, "That did not work", "The form is not one that a page of ours makes.")
        .next("Open the page again and send it from there.")
}

/// The answer to who has tried too often, whoever they are and whoever they want to be.
pub(super) fn later() -> LoginError {
    LoginError::new(StatusCode::TOO_MANY_REQUESTS, "Try again later", "There were too many tries.")
        .next("Wait some minutes, and try again.")
}
