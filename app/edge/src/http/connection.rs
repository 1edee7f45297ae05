//! The state that the requests of one client connection share, and how such connections end.

use std::{
    future::{Future, poll_fn},
    net::{IpAddr, SocketAddr},
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
    access::Whereabouts,
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
/// How long, and how many bytes, a closing connection is still read. Unread bytes would reset the connection, and the
/// client could lose the response (RFC 9112 section 9.6).
const MAX_LINGER: Duration = Duration::from_secs(30);
pub(crate) const MAX_LINGER_BYTES: u64 = 1024 * 1024 * 1024;
/// How long the client of a closing connection may send nothing.
const MAX_LINGER_SILENCE: Duration = Duration::from_secs(5);
/// How many discarded bytes are read at once.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// A client's connection below HTTP/1.
pub(crate) type ClientStream = Box<SendBound<ClientTls>>;

/// The state that the requests of one connection share.
pub(crate) struct Client {
    /// The client's address.
    pub(crate) addr: SocketAddr,
    /// The header fields that tell origins about the client.
    pub(crate) fields: ClientFields,
    /// The state that requests share with the reading side of the connection.
    pub(crate) wire: Arc<WireState>,
    /// Whether requests of the connection run at the same time, over HTTP/2 or HTTP/3.
    pub(crate) is_multiplexed: bool,
    /// How long the client may take no bytes, or send none within a body.
    pub(crate) send_timeout: Duration,
    /// Counts the memory of uploads; `None` for HTTP/1.
    pub(crate) uploads: Option<Arc<UploadMeter>>,
    /// The client certificate of the connection, if the client presented one.
    pub(crate) certificate: Option<Box<ClientCertificate>>,
    /// Another address from which the client sends without a proof that it receives there. Requests must be admitted
    /// at both.
    pub(crate) claimed: Option<IpAddr>,
    /// Where the client moves; `None` if it cannot move.
    pub(crate) moves: Option<watch::Receiver<Whereabouts>>,
    requests: AtomicU64,
    /// The route of the last request. The next request mostly has the same.
    last_route: Mutex<Option<LastRoute>>,
    /// The connection's place within the bounds, kept by a WebSocket that outlives the HTTP on the connection.
    _place: Option<ConnectionPlace>,
}

/// The route of a connection's last request.
struct LastRoute {
    /// The host, copied: the header field lies in the request's read buffer.
    host: RequestHost,
    /// The version of the routing table in which the route was found.
    version: u64,
    route: Arc<SocketRoute>,
}

impl Client {
    pub(crate) fn new(
        server: &HttpServer,
        addr: SocketAddr,
        is_multiplexed: bool,
        place: Option<ConnectionPlace>,
        certificate: Option<Box<ClientCertificate>>,
    ) -> Arc<Self> {
        Arc::new(Self::at(server, addr, is_multiplexed, place, certificate))
    }

    /// The client of an HTTP/3 connection, which may move.
    pub(crate) fn moving(
        server: &HttpServer,
        addr: SocketAddr,
        claimed: Option<IpAddr>,
        place: Option<ConnectionPlace>,
        moves: watch::Receiver<Whereabouts>,
    ) -> Arc<Self> {
        Arc::new(Self { claimed, moves: Some(moves), ..Self::at(server, addr, true, place, None) })
    }

    fn at(
        server: &HttpServer,
        addr: SocketAddr,
        is_multiplexed: bool,
        place: Option<ConnectionPlace>,
        certificate: Option<Box<ClientCertificate>>,
    ) -> Self {
        let fields = ClientFields::new(addr, "https", server.state.config.public_port);
        let send_timeout = server.state.config.send_timeout;
        let uploads = is_multiplexed.then(|| server.uploads.meter(addr.ip()));
        let (wire, requests, last_route) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Self {
            addr,
            fields,
            wire,
            is_multiplexed,
            send_timeout,
            uploads,
            certificate,
            claimed: None,
            moves: None,
            requests,
            last_route,
            _place: place,
        }
    }

    /// The route to this host. Returns the last request's route if the host is the same and the routing table has not
    /// changed; otherwise calls `find`.
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

    /// The host of the last request.
    pub(crate) fn last_host(&self) -> Option<RequestHost> {
        self.last_route.lock().as_ref().map(|last| last.host.clone())
    }

    /// Counts one more request.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the connection has carried as many requests as the configuration allows.
    pub(crate) fn has_reached_max_requests(&self, server: &HttpServer) -> bool {
        self.requests.load(Ordering::Relaxed) >= server.state.config.max_requests_per_connection
    }

    /// Whether an HTTP/1 connection closes behind this request.
    pub(crate) fn is_last_request(&self, server: &HttpServer) -> bool {
        !self.is_multiplexed && (server.state.sends_away() || self.has_reached_max_requests(server))
    }
}

/// Bounds the time for which a closing connection is read.
pub(crate) struct LingerTimer {
    over: Pin<Box<Sleep>>,
    silence: IdleTimer,
}

impl LingerTimer {
    /// A timer that starts now.
    pub(crate) fn new() -> Self {
        Self { over: Box::pin(tokio::time::sleep(MAX_LINGER)), silence: IdleTimer::new(MAX_LINGER_SILENCE) }
    }

    /// Records that bytes came.
    pub(crate) fn mark_progress(&mut self) {
        self.silence.moved = true;
    }

    /// Ready when the time is over. To be polled while more bytes are awaited.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.over.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { self.silence.poll_over(cx) }
    }
}

/// Reads and discards, within bounds, what the client still sends.
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

/// An event beside the requests of a connection.
pub(crate) enum ConnectionEvent {
    /// This phase, or a later one, is reached.
    PhaseReached(Phase),
    /// The time of the next check has come.
    CheckDue,
}

/// Resolves with the next event: `wanted` is reached, or `check_at` has come. Events are rare while a busy connection
/// is polled often, so the future is polled only when woken.
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
