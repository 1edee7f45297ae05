//! The listener of the inspector, and its guards: which requests are looked at at all.

use std::{convert::Infallible, net::SocketAddr, pin::Pin, sync::Arc, task, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use sallyport_inspect::answer::Problem;
use sha2::{Digest as _, Sha256};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, broadcast, mpsc},
};

use super::{Shared, page, routes};

/// How many connections there may be.
const MAX_CONNECTIONS: usize = 128;
/// The longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// How long a browser may take to send a head.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How often an idle stream of events shows that it lives.
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How many events may wait for one page.
const MAX_WAITING: usize = 256;

/// The body of an answer.
pub(super) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;
/// An answer.
pub(super) type Answer = Response<AnswerBody>;

/// The server.
pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    /// The names by which the page may be asked for.
    hosts: Vec<String>,
    key: [u8; 32],
}

/// Serves until the program ends.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, key: String) {
    let Ok(address) = listener.local_addr() else { return };
    let key = Sha256::digest(key.as_bytes()).into();
    let server = Arc::new(Server { shared, hosts: hosts(address), key });
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // The process may be out of files for a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let server = server.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD_BYTES);
            // A browser that goes away is no failure.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

fn hosts(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let mut hosts = vec![address.to_string(), format!("localhost:{port}")];
    if port == 80 {
        hosts.extend([address.ip().to_string(), "localhost".to_owned()]);
    }
    hosts
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let mut answer = match self.refusal(&request) {
            Some(refusal) => problem(&refusal),
            None if path == "/api" || path.starts_with("/api/") => routes::answer(&self, request).await,
            None => match (request.method(), page::file(&path)) {
                (&Method::GET | &Method::HEAD, Some((kind, content))) => of_page(kind, content),
                (_, Some(_)) => problem(&refused(StatusCode::METHOD_NOT_ALLOWED, "Files of the page are only read.")),
                (_, None) => problem(&refused(StatusCode::NOT_FOUND, "There is nothing at this address.")),
            },
        };
        let headers = answer.headers_mut();
        let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
        set(header::CACHE_CONTROL, "no-store");
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(header::REFERRER_POLICY, "no-referrer");
        set(header::X_FRAME_OPTIONS, "DENY");
        set(http::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        set(http::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        headers
            .entry(header::CONTENT_SECURITY_POLICY)
            .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"));
        answer
    }

    /// Why a request is not looked at.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Problem> {
        let headers = request.headers();
        // A page whose name leads to this machine has its own name in the field (DNS rebinding), and so has a tunnel
        // that leads here.
        let host = only(headers, header::HOST.as_str()).unwrap_or_default();
        if request.uri().authority().is_some() || !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            let detail = format!("Ask for the inspector by its address, http://{}/.", self.hosts[0]);
            return Some(refused(StatusCode::MISDIRECTED_REQUEST, &detail));
        }
        if !request.uri().path().starts_with("/api") {
            return None;
        }
        let site = only(headers, "sec-fetch-site");
        let origin = only(headers, header::ORIGIN.as_str());
        let is_same_site = !headers.contains_key("sec-fetch-site") || site == Some("same-origin");
        let is_same_origin = !headers.contains_key(header::ORIGIN)
            || origin
                .and_then(|origin| origin.strip_prefix("http://"))
                .is_some_and(|found| found.eq_ignore_ascii_case(host));
        if !is_same_site || !is_same_origin {
            return Some(refused(StatusCode::FORBIDDEN, "Only the inspector's own page may ask."));
        }
        let given = only(headers, header::AUTHORIZATION.as_str()).and_then(|field| field.strip_prefix("Bearer "));
        // Digests are compared, so that the time says nothing about the key.
        if given.is_none_or(|given| <[u8; 32]>::from(Sha256::digest(given.as_bytes())) != self.key) {
            let detail = "The key is missing or wrong: open the address that the program has printed.";
            return Some(refused(StatusCode::UNAUTHORIZED, detail));
        }
        let is_unsafe = !matches!(*request.method(), Method::GET | Method::HEAD);
        let content_type = only(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if is_unsafe && !essence.eq_ignore_ascii_case("application/json") {
            return Some(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Send application/json."));
        }
        None
    }
}

/// The value of a field that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// A refusal with this status.
pub(super) fn refused(status: StatusCode, detail: &str) -> Problem {
    let title = status.canonical_reason().unwrap_or_default().to_owned();
    Problem { status: status.as_u16(), title, detail: detail.to_owned(), needs_confirmation: false }
}

/// The answer of a problem.
pub(super) fn problem(problem: &Problem) -> Answer {
    let mut answer = json(problem);
    *answer.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}

/// An answer of JSON.
pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    with_type("application/json", serde_json::to_vec(value).unwrap_or_default())
}

/// An answer of this type.
pub(super) fn with_type(kind: &'static str, content: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(content.into()).boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn of_page(kind: &'static str, content: &'static [u8]) -> Answer {
    let mut answer = with_type(kind, Bytes::from_static(content));
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    answer
}

/// The stream of events, for as long as the page reads it. It ends for a page that reads too slowly, which begins anew.
pub(super) fn events(server: &Server) -> Answer {
    let mut events = server.shared.events.subscribe();
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let state = serde_json::to_string(&server.shared.state()).unwrap_or_default();
    tokio::spawn(async move {
        let mut next: Arc<str> = format!("event: state\ndata: {state}\n\n").into();
        while sender.send(Bytes::copy_from_slice(next.as_bytes())).await.is_ok() {
            next = tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => event,
                    Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed) => return,
                },
                () = tokio::time::sleep(ALIVE_INTERVAL) => ": alive\n\n".into(),
                () = sender.closed() => return,
            };
        }
    });
    let mut answer = Response::new(EventBody(receiver).boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

struct EventBody(mpsc::Receiver<Bytes>);

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
