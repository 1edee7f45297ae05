//! The way from an edge to control: requests over mutually authenticated TLS, on one connection that is made when it is needed.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt as _, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use sallyport_api::Problem;
use sallyport_edge::{ApiBody, ApiService, BoxError};
use sallyport_net::{Outbound, connect_tls_by};
use sallyport_pki::CONTROL_NODE;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Mutex;

/// How long it may take to reach a control.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long an answer to what the edge itself asks may take.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// The largest answer to what the edge itself asks, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How often a quiet connection is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(5);
/// Whose request it is.
const CLIENT: HeaderName = HeaderName::from_static("sallyport-client");
/// What belongs to the client's connection and not to its request (RFC 9110 section 7.6.1).
const OF_CONNECTION: [HeaderName; 5] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE, header::HOST];

type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why control has not answered as it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// No control is reached.
    #[error("no control answers: {0}")]
    Unreachable(String),
    /// It says no.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// It says something else.
    #[error("control answers what is not understood: {0}")]
    Answer(String),
}

/// The way to control. Clones share it.
#[derive(Clone)]
pub(super) struct ControlLink {
    controls: Vec<String>,
    tls: Arc<RwLock<Arc<ClientConfig>>>,
    connection: Arc<Mutex<Option<http2::SendRequest<Body>>>>,
}

impl ControlLink {
    pub(super) fn new(controls: Vec<String>, tls: Arc<ClientConfig>) -> Self {
        Self { controls, tls: Arc::new(RwLock::new(tls)), connection: Arc::default() }
    }

    /// Shows this certificate from the next connection on.
    pub(super) async fn show(&self, tls: Arc<ClientConfig>) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        self.connection.lock().await.take();
    }

    /// A connection that takes a request.
    async fn connected(&self) -> Result<http2::SendRequest<Body>, LinkError> {
        let mut connection = self.connection.lock().await;
        if let Some(standing) = connection.as_mut().filter(|standing| !standing.is_closed())
            && standing.ready().await.is_ok()
        {
            return Ok(standing.clone());
        }
        let mut why = "none is known".to_owned();
        for control in &self.controls {
            match self.connect(control).await {
                Ok(new) => return Ok(connection.insert(new).clone()),
                Err(error) => why = error,
            }
        }
        *connection = None;
        Err(LinkError::Unreachable(why))
    }

    async fn connect(&self, control: &str) -> Result<http2::SendRequest<Body>, String> {
        let (host, port) = control.rsplit_once(':').ok_or_else(|| format!("{control} is no HOST:PORT"))?;
        let port = port.parse().map_err(|_| format!("{control} is no HOST:PORT"))?;
        let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = connect_tls_by(&Outbound::default(), host, port, CONTROL_NODE, tls, CONNECT_TIME).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING).keep_alive_while_idle(true);
        let (send, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to control ended");
            }
        });
        Ok(send)
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, LinkError> {
        let mut connection = self.connected().await?;
        connection.send_request(request).await.map_err(|error| {
            let told = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            LinkError::Unreachable(told)
        })
    }

    /// Asks control something as the edge itself.
    pub(super) async fn ask<T: DeserializeOwned>(&self, path: &str, value: &impl Serialize) -> Result<T, LinkError> {
        let wrong = |error: &dyn std::fmt::Display| LinkError::Answer(error.to_string());
        let body = serde_json::to_vec(value).map_err(|error| wrong(&error))?;
        let request = Request::post(format!("https://{CONTROL_NODE}{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync())
            .map_err(|error| wrong(&error))?;
        let answered = async {
            let answer = self.send(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| wrong(&error))?.to_bytes();
            if status.is_success() {
                return serde_json::from_slice(&body).map_err(|error| wrong(&error));
            }
            let problem = serde_json::from_slice::<Problem>(&body);
            Err(problem.map_or_else(|_| wrong(&status), |problem| LinkError::Refused(Box::new(problem))))
        };
        match tokio::time::timeout(ANSWER_TIME, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(LinkError::Unreachable(format!("no answer within {ANSWER_TIME:?}"))),
        }
    }

    /// Requests to the API and to the place of the login, which control answers.
    pub(super) fn api(&self) -> ApiService {
        let link = self.clone();
        Arc::new(move |request, client| {
            let link = link.clone();
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let request = passed_on(Request::from_parts(parts, body.boxed_unsync()), client.0);
                let answer = match request {
                    Ok(request) => link.send(request).await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(answer) => answer.map(|body| body.map_err(Into::into).boxed_unsync()),
                    Err(error) => {
                        tracing::warn!(%error, "a request to the API is not answered");
                        away()
                    }
                }
            })
        })
    }
}

/// A client's request as it goes to control.
fn passed_on(mut request: Request<Body>, client: SocketAddr) -> Result<Request<Body>, LinkError> {
    let wrong = |error: &dyn std::fmt::Display| LinkError::Answer(error.to_string());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let authority = request.uri().authority().map(ToString::to_string).or(host).unwrap_or_default();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri = format!("https://{authority}{path}").parse().map_err(|error| wrong(&error))?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    OF_CONNECTION.iter().for_each(|name| drop(request.headers_mut().remove(name)));
    let client = HeaderValue::try_from(client.to_string()).map_err(|error| wrong(&error))?;
    request.headers_mut().insert(CLIENT, client);
    Ok(request)
}

/// What clients are told while no control answers.
fn away() -> Response<ApiBody> {
    let body = "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"code\":\"control-away\",\
                \"detail\":\"control cannot be reached from this edge: sockets are served, and nothing can be changed \
                now; try again in a moment\"}\n";
    let mut answer = Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}
