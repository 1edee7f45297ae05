//! `/v1/info` and `/openapi.json`.

use std::sync::LazyLock;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
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
    };
    json(StatusCode::OK, &info)
}

/// The description of the API, as it is committed: making it anew would take half a megabyte of program. `build.rs`
/// packs it.
const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.deflate"));
const MAX_DESCRIPTION_BYTES: usize = 4 << 20;

/// The description of the API.
pub(crate) async fn openapi() -> Response {
    static UNPACKED: LazyLock<Option<Bytes>> = LazyLock::new(|| {
        let unpacked = miniz_oxide::inflate::decompress_to_vec_with_limit(DESCRIPTION, MAX_DESCRIPTION_BYTES);
        unpacked.ok().map(Bytes::from)
    });
    match &*UNPACKED {
        Some(text) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], text.clone()).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
