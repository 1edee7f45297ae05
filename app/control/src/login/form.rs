//! Forms of the login pages.

use std::{collections::HashMap, time::Duration};

use axum::body::Body;
use http::{HeaderMap, StatusCode, header};

use super::{page::LoginError, start::parameters};
use crate::{problem::ApiError, request::extract, state::App};

/// The fields of a form, none twice. A form of another site is refused before it is read.
pub(super) async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<HashMap<String, String>, LoginError> {
    app.check_origin(headers)?;
    let body = extract::read(body).await?;
    std::str::from_utf8(&body).ok().and_then(|text| parameters(Some(text))).ok_or_else(not_valid)
}

/// The response to a form that no page here makes.
pub(super) fn not_valid() -> LoginError {
    LoginError::new(StatusCode::BAD_REQUEST, "That did not work", "The form does not come from a page of this server.")
        .next("Open the page again and send it from there.")
}

/// The response to too many attempts, the same for every person.
pub(super) fn later(wait: Duration) -> LoginError {
    limited(&ApiError::limited(wait))
}

/// The same, with the wait of the limit that was reached.
pub(super) fn limited(error: &ApiError) -> LoginError {
    let page = LoginError::new(StatusCode::TOO_MANY_REQUESTS, "Try again later", "There were too many tries.");
    let seconds = error.headers().find(|(name, _)| name == header::RETRY_AFTER).map(|(_, seconds)| seconds.clone());
    let Some(seconds) = seconds else { return page.next("Wait some minutes, and try again.") };
    let wait = seconds.to_str().unwrap_or_default().to_owned();
    page.next(&format!("Try again in {wait} seconds.")).header(header::RETRY_AFTER, seconds)
}
