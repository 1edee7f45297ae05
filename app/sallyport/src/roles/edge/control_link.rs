//! The link from an edge to control: requests over mutually authenticated TLS, on connections that are made on demand.
//! One connection carries the edge's own requests, another one its clients' requests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::RwLock;
use rustls::ClientConfig;
use sallyport_api::{MAX_BODY_BYTES, Problem};
use sallyport_edge::{ApiBody, ApiRequestBody, ApiService, BoxError};
use sallyport_net::{NODE_CLIENTS_ALPN, Outbound, connect_tls_by};
use sallyport_pki::CONTROL_NODE;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Mutex;

/// How long a connection to a control may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long the response to the edge's own request may take.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// The largest response to the edge's own request, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How long the body of a client's request may take to come.
const MAX_BODY_TIME: Duration = Duration::from_secs(10);
/// How long a connection may be silent before a ping, and how long the answer may take.
const PING: Duration = Duration::from_secs(5);
/// The header field with the address of the client.
const CLIENT: HeaderName = HeaderName::from_static("sallyport-client");
/// Header fields of the connection, not of the request (RFC 9110 section 7.6.1).
const OF_CONNECTION: [HeaderName; 5] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE, header::HOST];

type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why control has not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// No control can be reached.
    #[error("no control answers: {0}")]
    Unreachable(String),
    /// Control refuses.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The response cannot be parsed.
    #[error("the response of control cannot be understood: {0}")]
    Answer(String),
}

/// The controls: one in use, others as a fallback. Clones share the link.
#[derive(Clone)]
pub(super) struct ControlLink {
    /// The last reached one first.
    controls: Arc<RwLock<Vec<String>>>,
    tls: Arc<RwLock<Arc<ClientConfig>>>,
    lines: Arc<Connections>,
}

/// The sender of the requests of a connection: the edge itself, or clients of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requester {
    /// The edge's own.
    Own,
    /// Those of its clients.
    Clients,
}

/// The open connections.
#[derive(Default)]
struct Connections {
    own: ConnectionSlot,
    clients: ConnectionSlot,
}

type ConnectionSlot = Mutex<Option<http2::SendRequest<Body>>>;

impl Connections {
    fn of(&self, whose: Requester) -> &ConnectionSlot {
        match whose {
            Requester::Own => &self.own,
            Requester::Clients => &self.clients,
        }
    }
}

impl ControlLink {
    pub(super) fn new(controls: Vec<String>, tls: Arc<ClientConfig>) -> Self {
        let controls = Arc::new(RwLock::new(controls));
        Self { controls, tls: Arc::new(RwLock::new(tls)), lines: Arc::default() }
    }

    /// Sets the controls; the one in use stays in use if it is among them.
    pub(super) fn know(&self, controls: &[String]) {
        let mut known = self.controls.write();
        known.retain(|control| controls.contains(control));
        for control in controls {
            if !known.contains(control) {
                known.push(control.clone());
            }
        }
    }

    /// Uses this certificate from the next connection on.
    pub(super) async fn show(&self, tls: Arc<ClientConfig>) {
        *self.tls.write() = tls;
        self.lines.own.lock().await.take();
        self.lines.clients.lock().await.take();
    }

    /// A connection that accepts a request.
    async fn connected(&self, whose: Requester) -> Result<http2::SendRequest<Body>, LinkError> {
        let mut connection = self.lines.of(whose).lock().await;
        if let Some(standing) = connection.as_mut().filter(|standing| !standing.is_closed())
            && standing.ready().await.is_ok()
        {
            return Ok(standing.clone());
        }
        *connection = None;
        let mut why = "none is known".to_owned();
        let controls = self.controls.read().clone();
        for control in &controls {
            match self.connect(control, whose).await {
                Ok(new) => {
                    self.prefer(control);
                    return Ok(connection.insert(new).clone());
                }
                Err(error) => why = format!("{control}: {error}"),
            }
        }
        Err(LinkError::Unreachable(why))
    }

    /// Moves this control to the front.
    fn prefer(&self, control: &str) {
        let mut controls = self.controls.write();
        if let Some(at) = controls.iter().position(|other| other == control).filter(|at| *at > 0) {
            controls.rotate_left(at);
            tracing::info!(control, "requests go to this control from now on");
        }
    }

    async fn connect(&self, control: &str, whose: Requester) -> Result<http2::SendRequest<Body>, String> {
        let (host, port) = control.rsplit_once(':').ok_or_else(|| format!("{control} is no HOST:PORT"))?;
        let port = port.parse().map_err(|_| format!("{control} is no HOST:PORT"))?;
        let mut tls = self.tls.read().clone();
        if whose == Requester::Clients {
            Arc::make_mut(&mut tls).alpn_protocols = vec![NODE_CLIENTS_ALPN.to_vec()];
        }
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

    /// Sends a request. If it is lost, sends it again to another control, provided that nothing was sent or that the
    /// request is safe.
    async fn send(&self, request: Request<Body>, whose: Requester) -> Result<Response<Incoming>, LinkError> {
        let again = repetition(&request);
        match self.send_once(request, whose).await {
            Err((_, Some(unsent))) => self.send_once(unsent, whose).await.map_err(|(error, _)| error),
            Err((error, None)) => match again {
                Some(again) => self.send_once(again, whose).await.map_err(|(error, _)| error),
                None => Err(error),
            },
            Ok(answer) => Ok(answer),
        }
    }

    /// Sends a request once. Returns the request if nothing of it was sent.
    async fn send_once(
        &self,
        request: Request<Body>,
        whose: Requester,
    ) -> Result<Response<Incoming>, (LinkError, Option<Request<Body>>)> {
        let mut connection = self.connected(whose).await.map_err(|error| (error, None))?;
        connection.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message();
            let error = error.into_error();
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            (LinkError::Unreachable(reason), unsent)
        })
    }

    /// Sends a request of the edge itself.
    pub(super) async fn ask<T: DeserializeOwned>(&self, path: &str, value: &impl Serialize) -> Result<T, LinkError> {
        let wrong = |error: &dyn std::fmt::Display| LinkError::Answer(error.to_string());
        let body = serde_json::to_vec(value).map_err(|error| wrong(&error))?;
        let request = Request::post(format!("https://{CONTROL_NODE}{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync())
            .map_err(|error| wrong(&error))?;
        let answered = async {
            let answer = self.send(request, Requester::Own).await?;
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

    /// The service for requests to the API and the login host, which control answers.
    pub(super) fn api(&self) -> ApiService {
        let link = self.clone();
        Arc::new(move |request, client| {
            let link = link.clone();
            Box::pin(async move {
                let request = match whole(request).await {
                    Ok(request) => request,
                    Err(refusal) => return *refusal,
                };
                let answer = match passed_on(request, client.0) {
                    Ok(request) => link.send(request, Requester::Clients).await,
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

/// A copy of a safe request without a body, for a second try (RFC 9110 section 9.2.1).
fn repetition(request: &Request<Body>) -> Option<Request<Body>> {
    if !request.method().is_safe() || !request.body().is_end_stream() {
        return None;
    }
    let empty = http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut again = Request::new(empty);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.version_mut() = request.version();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

/// A client's request for control, with the client's address.
fn passed_on(mut request: Request<Body>, client: SocketAddr) -> Result<Request<Body>, LinkError> {
    let wrong = |error: &dyn std::fmt::Display| LinkError::Answer(error.to_string());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let authority = request.uri().authority().map(ToString::to_string).or(host).unwrap_or_default();
    // `OPTIONS *` concerns the server, and cannot be in a URI (RFC 9110 section 9.3.7).
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = if path == "*" { "/" } else { path };
    let uri: Uri = format!("https://{authority}{path}").parse().map_err(|error| wrong(&error))?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    OF_CONNECTION.iter().for_each(|name| drop(request.headers_mut().remove(name)));
    let client = HeaderValue::try_from(client.to_string()).map_err(|error| wrong(&error))?;
    request.headers_mut().insert(CLIENT, client);
    Ok(request)
}

/// The request with its whole body. Control gets only complete requests, so slow clients take no place on the
/// connection that all clients share.
async fn whole(request: Request<ApiRequestBody>) -> Result<Request<Body>, Box<Response<ApiBody>>> {
    let (parts, body) = request.into_parts();
    let too_large = || {
        let detail = format!("the body is too large: send at most {MAX_BODY_BYTES} bytes");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", &detail)
    };
    let body = match tokio::time::timeout(MAX_BODY_TIME, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(Box::new(too_large())),
        Ok(Err(_)) => {
            return Err(Box::new(refusal(StatusCode::BAD_REQUEST, "body-cut", "the body ended before its end")));
        }
        Err(_) => {
            let detail = "the body took too long to arrive";
            return Err(Box::new(refusal(StatusCode::REQUEST_TIMEOUT, "body-too-slow", detail)));
        }
    };
    Ok(Request::from_parts(parts, Full::new(body).map_err(|never| match never {}).boxed_unsync()))
}

/// The response to clients while no control answers.
fn away() -> Response<ApiBody> {
    let detail = "control cannot be reached from this edge: sockets are served, and nothing can be changed now; try \
                  again in a moment";
    let mut answer = refusal(StatusCode::SERVICE_UNAVAILABLE, "control-away", detail);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}

/// A response of the edge in control's place.
fn refusal(status: StatusCode, code: &str, detail: &str) -> Response<ApiBody> {
    let problem = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    let body = Full::new(Bytes::from(format!("{problem}\n"))).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}
