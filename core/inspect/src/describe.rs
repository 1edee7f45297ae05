//! The description of the local API. Its functions stand for the paths that the program serves.

use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use crate::answer::{
    Details, Diff, ExchangePage, Frame, FrameEvent, FramePage, ListQuery, Problem, Replay, Replayed, State, Summary,
    View,
};

/// The API of the inspector: `http://127.0.0.1:4040`, with the key that the program prints.
#[derive(OpenApi)]
#[openapi(
    info(title = "Sallyport inspector", version = "1", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    servers((url = "http://127.0.0.1:4040")),
    paths(
        exchanges, exchange, body, shown, frames, stream, replay, curl, har, har_of_one, diff, clear, state,
    ),
    components(schemas(Frame, FrameEvent, Summary, Problem)),
    modifiers(&Key),
    security(("key" = []))
)]
struct Api;

struct Key;

impl Modify for Key {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("The printed key")).build();
        openapi.components.get_or_insert_default().add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// The description as JSON.
#[must_use]
pub fn openapi_json() -> String {
    let mut text = Api::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Exchanges, the newest first.
#[utoipa::path(get, path = "/api/exchanges", params(ListQuery), responses(
    (status = 200, body = ExchangePage), (status = 422, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn exchanges() {}

/// All of an exchange but its bodies.
#[utoipa::path(get, path = "/api/exchanges/{id}", params(("id" = u64, Path)), responses(
    (status = 200, body = Details), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn exchange() {}

/// A body, as it passed or without its content coding.
#[utoipa::path(get, path = "/api/exchanges/{id}/{side}/body",
    params(("id" = u64, Path), ("side" = String, Path, description = "request or response"),
        ("form" = Option<String>, Query, description = "raw (default) or decoded")),
    responses((status = 200, body = [u8], content_type = "application/octet-stream"), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn body() {}

/// A body for reading.
#[utoipa::path(get, path = "/api/exchanges/{id}/{side}/view",
    params(("id" = u64, Path), ("side" = String, Path, description = "request or response")),
    responses((status = 200, body = View), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn shown() {}

/// The messages of a WebSocket, of server-sent events or of gRPC.
#[utoipa::path(get, path = "/api/exchanges/{id}/frames",
    params(("id" = u64, Path), ("after" = Option<u64>, Query, description = "only frames after this number")),
    responses((status = 200, body = FramePage), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn frames() {}

/// Server-sent events: `exchange` (`Exchange`), `frame` (`FrameEvent`), `cleared`, `state` (`State`).
#[utoipa::path(get, path = "/api/stream", responses((status = 200, body = String, content_type = "text/event-stream")))]
#[expect(dead_code, reason = "it stands for a path")]
fn stream() {}

/// Sends a request again, directly to the service.
#[utoipa::path(post, path = "/api/exchanges/{id}/replay", params(("id" = u64, Path)), request_body = Replay, responses(
    (status = 201, body = Replayed), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn replay() {}

/// The request as a command of curl.
#[utoipa::path(get, path = "/api/exchanges/{id}/curl", params(("id" = u64, Path)), responses(
    (status = 200, body = String, content_type = "text/plain"), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn curl() {}

/// Exchanges as an HTTP archive.
#[utoipa::path(get, path = "/api/har", params(("filter" = Option<String>, Query)), responses(
    (status = 200, body = serde_json::Value), (status = 422, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn har() {}

/// One exchange as an HTTP archive.
#[utoipa::path(get, path = "/api/exchanges/{id}/har", params(("id" = u64, Path)), responses(
    (status = 200, body = serde_json::Value), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn har_of_one() {}

/// Two exchanges, compared.
#[utoipa::path(get, path = "/api/exchanges/{a}/diff/{b}", params(("a" = u64, Path), ("b" = u64, Path)), responses(
    (status = 200, body = Diff), (status = 404, body = Problem)))]
#[expect(dead_code, reason = "it stands for a path")]
fn diff() {}

/// Drops all exchanges.
#[utoipa::path(delete, path = "/api/exchanges", responses((status = 204)))]
#[expect(dead_code, reason = "it stands for a path")]
fn clear() {}

/// The state of the tunnels and of the inspector.
#[utoipa::path(get, path = "/api/state", responses((status = 200, body = State)))]
#[expect(dead_code, reason = "it stands for a path")]
fn state() {}
