//! The HTTP server of a replica: /healthz, /readyz, /metrics. Uses no other room.

mod metrics;
mod readiness;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use sallyport_net::Shutdown;
use tokio::{net::TcpListener, sync::Semaphore};
use tracing::debug;

pub(crate) use self::{
    metrics::{Change, ClusterWrite, Metrics, Outcome},
    readiness::{Readiness, TunnelCount},
};

/// How many connections are served at once.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last.
const CONNECTION_TIME: Duration = Duration::from_secs(120);

/// What the server answers from.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The metrics.
    pub(crate) metrics: Metrics,
    /// The readiness.
    pub(crate) readiness: Readiness,
}

/// Binds the address.
///
/// # Errors
/// The address cannot be used.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} (--listen)"))
}

/// Serves until the shutdown.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.wait() => return,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
        let health = health.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = respond(&request, &health);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut builder = http1::Builder::new();
            let builder = builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIME, connection).await {
                debug!(%error, "a connection to the metrics ended early");
            }
            drop(slot);
        });
    }
}

fn respond(request: &Request<Incoming>, health: &Health) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => match health.readiness.why_not() {
            None => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{reason}\n")),
        },
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, METRICS, health.metrics.text()),
        (_, "/healthz" | "/readyz" | "/metrics") => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is answered here\n".to_owned())
        }
        _ => (StatusCode::NOT_FOUND, TEXT, "there are /healthz, /readyz and /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
