//! What the requests of one client's connection have in common, and how such connections end.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_bus::Routes;
use sallyport_http::{RequestHost, forward::ClientFields};
use sallyport_model::SocketRoute;
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::watch,
    time::{Instant, Sleep},
};

use crate::{
    body::upload_meter::UploadMeter,
    client::{certificate::ClientCertificate, tls::ClientTls},
    http::{send_bound::SendBound, server::HttpServer, wire_state::WireState},
    lifecycle::{
        counts::ConnectionPlace,
        phase::{self, Phase},
    },
    util::{idle_timer::IdleTimer, wake_gated::WakeGated},
};

/// How long the end of a connection may take to be written.
pub(crate) const MAX_CLOSE: Duration = Duration::from_secs(2);
/// How long, and how much in bytes, is read and dropped of what a client sends that nobody wants, so that the answer is not lost
/// to a reset (RFC 9112 section 9.6).
const MAX_LINGER: Duration = Duration::from_secs(30);
pub(crate) const MAX_LINGER_BYTES: u64 = 1024 * 1024 * 1024;
/// How long such a client may send nothing.
const MAX_LINGER_SILENCE: Duration = Duration::from_secs(5);
/// How much is read at once of what is dropped, in bytes.
const LINGER_READ_BYTES: usize = 16 * 1024;

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
    pub(crate) certificate: Option<Box<ClientCertificate>>,
    requests: AtomicU64,
    /// What its last request was for: the next one mostly is for the same.
    last_route: Mutex<Option<LastRoute>>,
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
        server: &HttpServer,
        addr: SocketAddr,
        http2: bool,
        place: Option<ConnectionPlace>,
        certificate: Option<Box<ClientCertificate>>,
    ) -> Arc<Self> {
        let fields = ClientFields::new(addr, "https", server.state.config.public_port);
        let send_timeout = server.state.config.send_timeout;
        let uploads = http2.then(|| server.uploads.meter(addr.ip()));
        let (wire, requests, last_route) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Arc::new(Self {
            addr,
            fields,
            wire,
            http2,
            send_timeout,
            uploads,
            certificate,
            requests,
            last_route,
            _place: place,
        })
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
        let mut last = self.last_route.lock();
        if let Some(cached) = last.as_ref().filter(|cached| cached.version == version && cached.host == *host) {
            return Some(cached.route.clone());
        }
        let route = find()?;
        *last = Some(LastRoute { host: host.detached(), version, route: route.clone() });
        Some(route)
    }

    /// The host that its last request was for.
    pub(crate) fn last_host(&self) -> Option<RequestHost> {
        self.last_route.lock().as_ref().map(|last| last.host.clone())
    }

    /// One more request came.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether as many requests came as may on one connection.
    pub(crate) fn has_reached_max_requests(&self, server: &HttpServer) -> bool {
        self.requests.load(Ordering::Relaxed) >= server.state.config.max_requests_per_connection
    }

    /// Whether no request should follow this one on an HTTP/1 connection.
    pub(crate) fn is_last_request(&self, server: &HttpServer) -> bool {
        !self.http2 && (server.state.sends_away() || self.has_reached_max_requests(server))
    }
}

/// How long a client is heard whose bytes nobody wants.
pub(crate) struct LingerTimer {
    over: Pin<Box<Sleep>>,
    silence: IdleTimer,
}

impl LingerTimer {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self { over: Box::pin(tokio::time::sleep(MAX_LINGER)), silence: IdleTimer::new(MAX_LINGER_SILENCE) }
    }

    /// Something came.
    pub(crate) fn mark_progress(&mut self) {
        self.silence.moved = true;
    }

    /// To be called while more is waited for: ready when the time is over.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.over.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { self.silence.poll_over(cx) }
    }
}

/// Reads, within bounds, what the client still sends, and drops it.
pub(crate) async fn linger(mut io: impl AsyncRead + Unpin) {
    let mut scrap = vec![0; LINGER_READ_BYTES];
    let (mut rest, mut timer) = (MAX_LINGER_BYTES, LingerTimer::new());
    while rest > 0 {
        let read = poll_fn(|cx| {
            let mut room = ReadBuf::new(&mut scrap);
            match Pin::new(&mut io).poll_read(cx, &mut room) {
                Poll::Ready(read) => Poll::Ready(read.map_or(0, |()| room.filled().len())),
                Poll::Pending => timer.poll_over(cx).map(|()| 0),
            }
        });
        match read.await {
            0 => return,
            bytes => rest = rest.saturating_sub(bytes as u64),
        }
        timer.mark_progress();
    }
}

/// What a connection is looked at for beside its requests.
pub(crate) enum ConnectionEvent {
    /// This phase, or a later one, is reached.
    PhaseReached(Phase),
    /// It is time.
    CheckDue,
}

/// The next call. It hardly ever comes, and a connection is woken for every request.
pub(crate) fn next_event(
    phase: &watch::Receiver<Phase>,
    wanted: Phase,
    check_at: Option<Instant>,
) -> WakeGated<ConnectionEvent> {
    let mut phase = phase.clone();
    WakeGated::new(async move {
        let check = async {
            match check_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = phase::reached(&mut phase, wanted) => ConnectionEvent::PhaseReached(wanted),
            () = check => ConnectionEvent::CheckDue,
        }
    })
}
