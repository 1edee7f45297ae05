//! `/v1/info` and `/openapi.json`.

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header};
use sallyport_api::Info;

use crate::{
    request::{extract::json, via::Via},
    state::App,
};

/// Show what this installation is
#[utoipa::path(
    get, path = "/v1/info", tag = "info", operation_id = "get_info", security(()),
    responses(
        (status = 200, description = "The facts that a client needs before a login.", body = Info),
    )
)]
pub(crate) async fn get(State(app): State<App>, via: Via) -> Response {
    let info = Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        domain: app.config.domain.clone(),
        tunnel_host: app.config.tunnel_host.clone(),
        tunnel_port: via.port(&app).unwrap_or(app.config.public_port),
        tunnel_quic_port: app.config.quic_port,
        ca_fingerprint: app.config.ca_fingerprint.clone(),
        ca_pem: app.config.ca_pem.clone(),
        has_public_names: app.config.acme.is_some(),
    };
    json(StatusCode::OK, &info)
}

/// OpenAPI description of this API: JSON, the committed file, which a test holds to what the handlers give.
const DESCRIPTION: &str = include_str!("../../../../api/openapi.json");

/// `GET /openapi.json`.
pub(crate) async fn openapi() -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], DESCRIPTION).into_response()
}
