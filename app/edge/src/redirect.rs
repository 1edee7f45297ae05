//! The plain HTTP port: everything under the domain is told to come by HTTPS.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, LOCATION},
};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use sallyport_http::refuse;
use tokio::net::TcpStream;

use crate::{
    Edge,
    drain::{self, Phase},
    guarded_io::{GuardedIo, Refused, Silence, WireState},
};

/// How much of a plain connection is read ahead, in bytes. More than the longest head.
const MAX_READ_AHEAD_BYTES: usize = 128 * 1024;

/// A TCP connection to the plain port.
pub(crate) fn take_plain(edge: &Arc<Edge>, stream: TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else { return };
    let edge = edge.clone();
    tokio::spawn(async move {
        let _place = place;
        serve(edge, stream).await;
    });
}

async fn serve(edge: Arc<Edge>, stream: TcpStream) {
    let wire = Arc::<WireState>::default();
    // A redirect is one request: an idle connection need not be kept.
    let silence = Silence { idle: edge.config.header_timeout, head: edge.config.header_timeout };
    let io = GuardedIo::new(stream, wire.clone(), edge.refusal_path.clone(), silence);
    let service = service_fn({
        let edge = edge.clone();
        move |request: Request<Incoming>| {
            let answer = redirect(&edge, &wire, &request);
            async move { Ok::<_, Infallible>(answer) }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(MAX_READ_AHEAD_BYTES)
        .serve_connection(TokioIo::new(io), service);
    let mut phase = edge.phase.subscribe();
    tokio::select! {
        outcome = connection => {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a plain HTTP connection ended early");
            }
        }
        () = drain::reached(&mut phase, Phase::Draining) => {}
    }
}

/// 308 for names under the domain, which keeps method and body (RFC 9110 section 15.4.9); 404 for others, so that
/// nobody is sent to a place of a stranger's choice.
fn redirect(edge: &Edge, wire: &WireState, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    match wire.refused() {
        Some(Refused::HeadTimeout) => return say(StatusCode::REQUEST_TIMEOUT, "the request came too slowly\n".into()),
        Some(Refused::Malformed(refusal)) => return say(refusal.status(), format!("{refusal}\n")),
        None => {}
    }
    let host = match refuse::check_request(request.method(), request.uri(), request.version(), request.headers(), None)
    {
        Ok(host) => host,
        Err(refusal) => return say(refusal.status(), format!("{refusal}\n")),
    };
    if !host.is(&edge.config.domain) && host.label_under(&edge.config.domain).is_none() {
        return say(StatusCode::NOT_FOUND, format!("{} is not a name of this server\n", host.name()));
    }
    let port = if edge.config.public_port == 443 { String::new() } else { format!(":{}", edge.config.public_port) };
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let target = if target.starts_with('/') { target } else { "/" };
    let location = format!("https://{}{port}{target}", host.name().to_ascii_lowercase());
    let mut answer = say(StatusCode::PERMANENT_REDIRECT, format!("moved to {location}\n"));
    if let Ok(location) = HeaderValue::try_from(location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

fn say(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
