//! Plain HTTP requests: the redirect at the plain port, and the error page at the TLS port.

use std::{net::SocketAddr, sync::Arc};

use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, LOCATION},
};
use sallyport_http::{RequestHost, RequestRefusal, refuse};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    body::upload::ClientBody,
    edge::Edge,
    http::{
        h1::{
            self,
            io::{ClientTimeouts, ServerIo},
        },
        response_body::{ResponseBody, Source},
        wire_state::WireState,
    },
};

/// The start of an HTTP/1 request line: the registered methods (RFC 9110 section 9.1, RFC 5789).
const BEGINNINGS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH "];

/// Makes the response to a plain HTTP request.
type Respond = fn(&Edge, &WireState, &Request<ClientBody>) -> Response<ResponseBody>;

/// Serves a TCP connection to the plain port.
pub(crate) fn take_plain(edge: &Arc<Edge>, stream: TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else { return };
    let edge = edge.clone();
    tokio::spawn(async move {
        let _place = place;
        serve(edge, Box::new(stream), redirect).await;
    });
}

/// Whether these bytes begin an HTTP/1 request. `None` if there are too few bytes to decide.
pub(crate) fn detect_http(bytes: &[u8]) -> Option<bool> {
    if BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning)) {
        return Some(true);
    }
    if BEGINNINGS.iter().any(|beginning| beginning.starts_with(bytes)) { None } else { Some(false) }
}

/// Responds to a plain HTTP request at the TLS port with 400 and the `https` URL. Returns whether the response was
/// written: the client may have left before.
pub(crate) async fn respond_at_tls_port(edge: Arc<Edge>, io: impl PlainIo + 'static) -> bool {
    serve(edge, Box::new(io), wrong_scheme).await
}

/// A connection without TLS, at either port. A trait object, because such connections are rare and need no copy of the
/// code each.
pub(crate) trait PlainIo: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> PlainIo for S {}

/// Serves a connection to its end. Returns whether a response was written.
async fn serve(edge: Arc<Edge>, stream: Box<dyn PlainIo>, respond: Respond) -> bool {
    let wire = Arc::<WireState>::default();
    // A redirect takes one request, so the connection is never kept alive.
    let timeouts = ClientTimeouts { idle: edge.state.config.header_timeout, head: edge.state.config.header_timeout };
    let io = ServerIo::new(stream, wire.clone(), timeouts);
    let mut phase = edge.state.phase.subscribe();
    tokio::select! {
        has_responded = h1::respond_once(io, &wire, |request| respond(&edge, &wire, request)) => has_responded,
        () = edge.state.phase.idle_must_close(&mut phase) => false,
    }
}

/// Answers ACME servers. Redirects names that this edge serves with 308, which keeps method and body (RFC 9110 section 15.4.9). Other names get
/// 404, because an open redirect would send browsers to a host of the attacker's choice.
fn redirect(edge: &Edge, wire: &WireState, request: &Request<ClientBody>) -> Response<ResponseBody> {
    if let Some(refusal) = wire.refused() {
        return text_response(refusal.status(), format!("{refusal}\n"));
    }
    if let Some(answer) = challenge_answer(edge, request) {
        return text_response(StatusCode::OK, answer);
    }
    let host = match host_of(request) {
        Ok(host) => host,
        Err(refusal) => return text_response(refusal.status(), format!("{refusal}\n")),
    };
    let Some(place) = place_of(edge, &host) else {
        return text_response(StatusCode::NOT_FOUND, format!("{} is not a name of this server\n", host.name()));
    };
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let target = if target.starts_with('/') { target } else { "/" };
    let location = format!("{place}{target}");
    let mut response = text_response(StatusCode::PERMANENT_REDIRECT, format!("moved to {location}\n"));
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// The answer to an ACME server that verifies a name, if an order waits for it (RFC 8555 section 8.3).
fn challenge_answer(edge: &Edge, request: &Request<ClientBody>) -> Option<String> {
    let token = request.uri().path().strip_prefix("/.well-known/acme-challenge/")?;
    edge.state.config.challenges.http_answer(token)
}

/// Responds with 400. The body repeats the requested host only if the host is under the domain.
fn wrong_scheme(edge: &Edge, wire: &WireState, request: &Request<ClientBody>) -> Response<ResponseBody> {
    let host = if wire.refused().is_some() { None } else { host_of(request).ok() };
    let text = match host.and_then(|host| place_of(edge, &host)) {
        Some(place) => format!("This port speaks HTTPS: use {place}/\n"),
        None => "This port speaks HTTPS: use https:// in place of http://\n".to_owned(),
    };
    text_response(StatusCode::BAD_REQUEST, text)
}

/// The host that the request names.
fn host_of(request: &Request<ClientBody>) -> Result<RequestHost, RequestRefusal> {
    refuse::check_request(request.method(), request.uri(), request.version(), request.headers(), None)
}

/// The `https` URL of this host without a path; `None` if this edge does not serve the host.
fn place_of(edge: &Edge, host: &RequestHost) -> Option<String> {
    let domain = &edge.state.config.domain;
    if !host.is(domain) && host.label_under(domain).is_none() && edge.state.route_of_host(host.name()).is_none() {
        return None;
    }
    let port = if edge.state.config.public_port == 443 {
        String::new()
    } else {
        format!(":{}", edge.state.config.public_port)
    };
    Some(format!("https://{}{port}", host.name().to_ascii_lowercase()))
}

fn text_response(status: StatusCode, text: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(Source::Own(text.into()), None));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
