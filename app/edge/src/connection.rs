//! One client's HTTP connection, from the end of its handshake to its close.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use sallyport_bus::Routes;
use sallyport_http::{RequestHost, forward::ClientFields, guard::MAX_HEADER_COUNT};
use sallyport_model::SocketRoute;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::watch,
    time::Instant,
};

use crate::{
    Edge,
    body::ClientBody,
    client_tls::ClientTls,
    drain::{self, Phase},
    guarded_io::{GuardedIo, Silence, WireState},
    identity::Shown,
    limits::ConnectionPlace,
    rarely::Rarely,
    request,
    send_bound::SendBound,
    upload_meter::UploadMeter,
};

/// hyper reads no more than 100 header fields when it is not told how many, and then has room for them at hand; told a
/// number, it makes room anew for each head. The guard refuses what it would.
const _: () = assert!(MAX_HEADER_COUNT <= 100);
/// How much of a client's HTTP/1 connection is read ahead, in bytes. More than the longest head.
const MAX_READ_AHEAD_BYTES: usize = 256 * 1024;
/// How long an HTTP/1 connection rests before it gives up what only requests need; how often a busy one is looked at.
const REST_AFTER: Duration = Duration::from_millis(100);
const BUSY_PERIOD: Duration = Duration::from_secs(1);
/// How long, and how much, is read from a client after our last answer, so that the answer is not lost to a reset.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 1024 * 1024;

/// A client's connection below HTTP/1, as `listener` makes it.
pub(crate) type ClientStream = Box<SendBound<ClientTls>>;

/// What the requests of one connection have in common.
pub(crate) struct Client {
    /// Its address.
    pub(crate) addr: SocketAddr,
    /// What origins are told of it.
    pub(crate) fields: ClientFields,
    /// What its reading side says.
    pub(crate) wire: Arc<WireState>,
    /// Whether it speaks HTTP/2.
    pub(crate) http2: bool,
    /// How long it may stand still in the middle of something.
    pub(crate) send_timeout: Duration,
    /// What it holds of uploads, when it speaks HTTP/2.
    pub(crate) uploads: Option<Arc<UploadMeter>>,
    /// The client certificate that it was opened with, where there was one.
    pub(crate) shown: Option<Box<Shown>>,
    requests: AtomicU64,
    /// What its last request was for: the next one mostly is for the same.
    last: Mutex<Option<LastRoute>>,
    /// Its connection's place: kept by whatever outlives the HTTP on it, such as a WebSocket.
    _place: Option<ConnectionPlace>,
}

/// Where the requests of a connection go.
struct LastRoute {
    /// A copy: the field itself lies in the buffer that its request was read into.
    host: RequestHost,
    /// Of the routes when it was found.
    version: u64,
    route: Arc<SocketRoute>,
}

impl Client {
    pub(crate) fn new(
        edge: &Edge,
        addr: SocketAddr,
        http2: bool,
        place: Option<ConnectionPlace>,
        shown: Option<Box<Shown>>,
    ) -> Arc<Self> {
        let fields = ClientFields::new(addr, "https", edge.config.public_port);
        let send_timeout = edge.config.send_timeout;
        let uploads = http2.then(|| edge.uploads.meter(addr.ip()));
        let (wire, requests, last) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Arc::new(Self { addr, fields, wire, http2, send_timeout, uploads, shown, requests, last, _place: place })
    }

    /// The route to this host: as it was for the request before, when that was for the same and no route has changed; else
    /// what is found.
    pub(crate) fn route_of(
        &self,
        routes: &Routes,
        host: &RequestHost,
        find: impl FnOnce() -> Option<Arc<SocketRoute>>,
    ) -> Option<Arc<SocketRoute>> {
        let version = routes.version();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.version == version && known.host == *host) {
            return Some(known.route.clone());
        }
        let route = find()?;
        *last = Some(LastRoute { host: host.detached(), version, route: route.clone() });
        Some(route)
    }

    /// The host that its last request was for.
    pub(crate) fn last_host(&self) -> Option<RequestHost> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|last| last.host.clone())
    }

    /// One more request came.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether as many requests came as may on one connection.
    pub(crate) fn has_had_its_requests(&self, edge: &Edge) -> bool {
        self.requests.load(Ordering::Relaxed) >= edge.config.max_requests_per_connection
    }

    /// Whether no request should follow this one on an HTTP/1 connection.
    pub(crate) fn is_last_request(&self, edge: &Edge) -> bool {
        !self.http2 && (edge.sends_away() || self.has_had_its_requests(edge))
    }
}

/// Serves HTTP/1 on this connection until it ends. An idle connection has its [`GuardedIo`] and nothing else: the server
/// with its buffers, several times as large, comes with the first byte of a request and goes when the connection rests.
pub(crate) async fn serve_http1(
    edge: Arc<Edge>,
    io: ClientStream,
    addr: SocketAddr,
    place: Option<ConnectionPlace>,
    shown: Option<Box<Shown>>,
) {
    let client = Client::new(&edge, addr, false, place, shown);
    let silence = Silence { idle: edge.config.idle_timeout, head: edge.config.header_timeout };
    let io = GuardedIo::new(io, client.wire.clone(), edge.refusal_path.clone(), silence);
    let mut io = io.over(|stream| stream.socket());
    let mut phase = edge.phase.subscribe();
    loop {
        let waited = tokio::select! {
            biased;
            waited = io.wait() => waited,
            () = drain::reached(&mut phase, Phase::Draining) => Ok(false),
        };
        match waited {
            Ok(true) => {}
            Ok(false) => {
                let _ = tokio::time::timeout(MAX_LINGER, io.shutdown()).await;
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "an HTTP/1 connection broke off");
                return;
            }
        }
        match Box::pin(serve_until_rest(&edge, &client, io, &mut phase)).await {
            Some(rested) => io = rested,
            None => return,
        }
    }
}

/// Serves HTTP/1 until the connection ends, or has been at rest for [`REST_AFTER`]: then it is given back.
async fn serve_until_rest(
    edge: &Arc<Edge>,
    client: &Arc<Client>,
    io: GuardedIo<ClientStream>,
    phase: &mut watch::Receiver<Phase>,
) -> Option<GuardedIo<ClientStream>> {
    let service = service_fn({
        let (edge, client) = (edge.clone(), client.clone());
        move |request: Request<Incoming>| {
            client.count_request();
            let (edge, client) = (edge.clone(), client.clone());
            async move { Ok::<_, Infallible>(request::serve(edge, client, request.map(ClientBody::Http1)).await) }
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The guard watches the time itself, and can tell a slow head from an idle connection.
        .header_read_timeout(None)
        .max_buf_size(MAX_READ_AHEAD_BYTES)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let mut called = call(phase, Phase::Draining, Some(Instant::now() + REST_AFTER));
    loop {
        let call_again = tokio::select! {
            biased;
            outcome = &mut connection => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "an HTTP/1 connection ended early");
                }
                break;
            }
            called = &mut called => match called {
                Call::Reached(Phase::Cut) => return None,
                Call::Reached(_) => {
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                    call(phase, Phase::Cut, None)
                }
                Call::Look => {
                    let now = Instant::now();
                    let quiet_until = client.wire.quiet_until(REST_AFTER);
                    if client.wire.is_at_rest() && quiet_until.is_some_and(|due| due <= now) {
                        let parts = connection.into_parts()?;
                        let mut io = parts.io.into_inner();
                        io.put_back(&parts.read_buf);
                        return Some(io);
                    }
                    let look_at = quiet_until.filter(|due| *due > now).unwrap_or(now + BUSY_PERIOD);
                    call(phase, Phase::Draining, Some(look_at))
                }
            },
        };
        called = call_again;
    }
    if client.wire.is_unread()
        && let Some(parts) = connection.into_parts()
    {
        linger(parts.io.into_inner().into_unguarded()).await;
    }
    None
}

/// Ends an HTTP/1 connection behind its last answer.
pub(crate) async fn end(mut io: impl AsyncRead + AsyncWrite + Unpin, client: &Client) {
    let _ = tokio::time::timeout(MAX_LINGER, io.shutdown()).await;
    if client.wire.is_unread() {
        linger(io).await;
    }
}

/// Reads, within bounds, what the client still sends, and drops it.
pub(crate) async fn linger(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let mut scrap = vec![0; 4_096];
    let mut rest = MAX_LINGER_BYTES;
    let drain = async {
        while rest > 0 {
            match io.read(&mut scrap).await {
                Ok(0) | Err(_) => break,
                Ok(n) => rest = rest.saturating_sub(n),
            }
        }
    };
    let _ = tokio::time::timeout(MAX_LINGER, drain).await;
}

/// What a connection is looked at for beside its requests.
pub(crate) enum Call {
    /// This phase, or a later one, is reached.
    Reached(Phase),
    /// It is time.
    Look,
}

/// The next call. It hardly ever comes, and a connection is woken for every request.
pub(crate) fn call(phase: &watch::Receiver<Phase>, wanted: Phase, look_at: Option<Instant>) -> Rarely<Call> {
    let mut phase = phase.clone();
    Rarely::new(async move {
        let look = async {
            match look_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = drain::reached(&mut phase, wanted) => Call::Reached(wanted),
            () = look => Call::Look,
        }
    })
}
