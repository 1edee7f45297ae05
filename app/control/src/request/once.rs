//! Creations that happen once for each idempotency key, although their transactions do not know the key.

use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_model::AccountId;
use sallyport_store::{IdempotencyKey, Reservation};
use serde::{Deserialize, Serialize};

use super::{
    creation::{located, secret_already_shown},
    extract::{json, json_text},
};
use crate::{problem::ApiError, state::App};

/// Marks the repetition of an earlier response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What was made: its place, and the body of the response.
pub(crate) struct Made<T> {
    /// The path of the thing, if it has one.
    pub(crate) location: Option<String>,
    /// The body of the response.
    pub(crate) body: T,
}

/// The secret in the response of a creation, which is shown only once.
pub(crate) struct ShownSecret {
    /// The thing with the secret.
    pub(crate) what: &'static str,
    /// What a client does that lacks the secret.
    pub(crate) way_out: &'static str,
}

/// The stored answer for repetitions; the body is absent if it had a secret.
#[derive(Serialize, Deserialize)]
struct StoredResponse {
    location: Option<String>,
    body: Option<String>,
}

impl App {
    /// Makes a thing, once for each key, and gives the response.
    ///
    /// A repetition gets the first response again, or 409 where that had a secret. A refused request makes nothing, and
    /// leaves its key free.
    pub(crate) async fn once<T: Serialize>(
        &self,
        organisation: AccountId,
        keyed: Option<&IdempotencyKey>,
        secret: Option<ShownSecret>,
        make: impl Future<Output = Result<Made<T>, ApiError>>,
    ) -> Result<Response, ApiError> {
        let Some(keyed) = keyed else { return Ok(response(&make.await?)) };
        match self.store.reserve_key(organisation, keyed).await? {
            Reservation::Reserved => {}
            Reservation::Pending => {
                let detail = "an earlier request with this key has not ended, or its end is unknown: look whether it \
                              made the thing, and send the request with another key if not";
                return Err(ApiError::new(StatusCode::CONFLICT, "request-pending", detail));
            }
            Reservation::Settled(answer) => return repeated(&answer, secret),
        }
        let made = match make.await {
            Ok(made) => made,
            Err(error) => {
                self.store.release_key(organisation, &keyed.key).await?;
                return Err(error);
            }
        };
        let body = serde_json::to_string(&made.body).map_err(ApiError::internal)?;
        let stored = StoredResponse { location: made.location.clone(), body: secret.is_none().then_some(body) };
        let stored = serde_json::to_string(&stored).map_err(ApiError::internal)?;
        self.store.settle_key(organisation, &keyed.key, &stored).await?;
        Ok(response(&made))
    }
}

fn response<T: Serialize>(made: &Made<T>) -> Response {
    let response = json(StatusCode::CREATED, &made.body);
    match &made.location {
        Some(location) => located(response, location),
        None => response,
    }
}

fn repeated(answer: &str, secret: Option<ShownSecret>) -> Result<Response, ApiError> {
    let StoredResponse { location, body } = serde_json::from_str(answer).map_err(ApiError::internal)?;
    let location = location.unwrap_or_default();
    let Some(body) = body else {
        let ShownSecret { what, way_out } =
            secret.ok_or_else(|| ApiError::internal("a response without a secret was not stored"))?;
        return Err(secret_already_shown(what, way_out, &location));
    };
    let mut response = json_text(StatusCode::CREATED, body);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(if location.is_empty() { response } else { located(response, &location) })
}
