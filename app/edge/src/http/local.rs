//! Requests to the edge's own name, `api.<domain>`: health, metrics, and the API.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderValue, Method, Request, Response, StatusCode, header::STRICT_TRANSPORT_SECURITY, request::Parts};
use sallyport_http::RequestHost;
use sallyport_model::ClientAddr;

use crate::{
    body::upload::{ApiRequestBody, UploadState},
    http::{
        connection::Client,
        error_page::{self, RequestError},
        response_body::{ResponseBody, Source},
        server::HttpServer,
    },
};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The paths that a monitoring system requests.
const MONITORING_PATHS: [&str; 3] = ["/metrics", "/healthz", "/readyz"];

/// Whether a monitoring system on this machine sends the request. Such systems may name the machine by its loopback
/// address, because some cannot set another host. No socket has such a name.
pub(crate) fn is_monitoring_request(client: &Client, head: &Parts, host: &RequestHost) -> bool {
    let name = host.name().trim_start_matches('[').trim_end_matches(']');
    MONITORING_PATHS.contains(&head.uri.path())
        && client.addr.ip().to_canonical().is_loopback()
        && name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// How long browsers use only TLS for the edge's own hosts: one year. Other hosts of the domain belong to the owners of
/// sockets.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Adds `Strict-Transport-Security` (RFC 6797), except under `localhost`. There another server may serve the same host
/// by plain HTTP at another port, and browsers would refuse it.
pub(crate) fn with_hsts(server: &HttpServer, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let domain = &server.state.config.domain;
    if domain != "localhost" && !domain.ends_with(".localhost") {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HSTS);
    }
    response
}

/// Responds to a request to the edge's own name.
pub(crate) async fn respond(
    server: &HttpServer,
    client: &Client,
    head: Parts,
    upload: Option<Arc<UploadState>>,
) -> Result<Response<ResponseBody>, RequestError> {
    let is_read = head.method == Method::GET || head.method == Method::HEAD;
    match head.uri.path() {
        "/healthz" if is_read => {
            let notes = server.health.get().map(|notes| notes()).unwrap_or_default();
            let notes = notes + &server.mesh_health.get().map(|notes| notes()).unwrap_or_default();
            let notes = notes + &server.steering_health.get().map(|notes| notes()).unwrap_or_default();
            let notes = notes + &server.anycast_health.get().map(|notes| notes()).unwrap_or_default();
            let notes = notes + &server.balanced_health.get().map(|notes| notes()).unwrap_or_default();
            let notes = notes + &server.egress_health.get().map(|notes| notes()).unwrap_or_default();
            Ok(error_page::plain(StatusCode::OK, TEXT, format!("ok\n{notes}")))
        }
        "/readyz" if is_read => Ok(match ready(server).await {
            Ok(()) => error_page::plain(StatusCode::OK, TEXT, "ready\n"),
            Err(reason) => {
                let text = format!("{{\"ready\":false,\"reason\":\"{reason}\"}}\n");
                error_page::plain(StatusCode::SERVICE_UNAVAILABLE, JSON, text)
            }
        }),
        "/metrics" if is_read => metrics(server, client).await,
        _ => Ok(call_api(server, client, head, upload).await),
    }
}

/// Passes a request to the API's handler, which also serves the login page.
pub(crate) async fn call_api(
    server: &HttpServer,
    client: &Client,
    head: Parts,
    upload: Option<Arc<UploadState>>,
) -> Response<ResponseBody> {
    let request = Request::from_parts(head, ApiRequestBody::new(upload));
    (server.api)(request, ClientAddr(client.addr)).await.map(|body| ResponseBody::new(Source::Api(body), None))
}

/// Whether new requests are welcome. The error is the reason, which needs no escape in JSON.
async fn ready(server: &HttpServer) -> Result<(), &'static str> {
    if server.state.sends_away() {
        return Err("draining");
    }
    match server.readiness.get() {
        Some(check) => check.ready().await,
        None => Ok(()),
    }
}

/// The metrics, for clients on this machine only: the metrics name every socket.
async fn metrics(server: &HttpServer, client: &Client) -> Result<Response<ResponseBody>, RequestError> {
    if !client.addr.ip().to_canonical().is_loopback() {
        return Err(RequestError::LocalOnly);
    }
    let text = server.exposition.text_aside().await.ok_or(RequestError::UnknownPath)?;
    Ok(error_page::plain(StatusCode::OK, METRICS, text))
}
