//! One origin: its transport, and the HTTP connections that are open through it.
//!
//! An HTTP/1.1 connection has no task of its own. The request on it polls it, so that a request runs in one task from
//! client to tunnel. While the connection is idle, it is not polled: its end is noticed when it is taken for a request,
//! or by [`Origin::sweep`]. An HTTP/2 connection is shared, and therefore has a task.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::{client::conn::http2, rt::Executor};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sallyport_net::ProxiedAddresses;
use sallyport_shards::ShardId;
use sallyport_tunnel::{Establishment, OpenError};
use sallyport_wire::StreamProtocol;

use crate::{
    body::upload::{self, Upload},
    origins::{
        connection_limits::{OpeningPlace, Openings},
        health_state::OriginHealthState,
        http::{
            h1::{H1Connection, Idleness},
            tls_detection::TlsDetection,
        },
        locality::Place,
        quotas::QuotaUse,
        transport::{OriginStream, OriginTransport, StreamRequest, direct::Lane},
    },
};

/// How many idle HTTP/1.1 connections are kept for one tunnel: as many as the requests that may share its control
/// connection.
const MAX_IDLE_CONNECTIONS: usize = 1_024;
/// How long an idle HTTP connection to an origin is kept. Shorter than the keepalive timeout of common servers, so that
/// the edge closes first.
const MAX_IDLE: Duration = Duration::from_secs(45);
/// How long a connection may have been idle that gets a request which cannot be repeated. Shorter than the keepalive
/// timeout of any common server, so that the request does not cross a close.
const MAX_IDLE_UNREPEATABLE: Duration = Duration::from_secs(3);
/// If another shard used an idle connection within this time, that shard probably needs the connection again.
const MAX_WANTED_ELSEWHERE: Duration = Duration::from_millis(100);
/// How long an idle connection counts as open without another check. A repeatable request is sent again if the
/// connection has closed.
const MAX_UNSEEN: Duration = Duration::from_millis(2);
/// The longest response that shares a connection with others without loss, in bytes: measured, see
/// docs/adr/0001-legs-and-a-control-connection.md.
pub(crate) const MAX_SHORT_ANSWER_BYTES: u64 = 16 * 1024;
/// How many short responses must follow a long one before requests share a connection.
const SHORT_RESPONSES_TO_SHARE: u32 = 64;
/// How many requests run over one HTTP/2 connection before another is opened.
const MAX_REQUESTS_PER_H2_CONNECTION: u32 = 100;
/// How many HTTP/2 connections are opened through one tunnel.
const MAX_H2_CONNECTIONS: usize = 8;
/// The window of one HTTP/2 stream, in bytes: how far the origin may run ahead of the client.
const H2_STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// An origin with its connections, load and health.
pub(crate) struct Origin {
    handle: OriginTransport,
    place: Place,
    number: u64,
    in_flight: AtomicU32,
    /// How many of these are relayed for other edges.
    relayed: AtomicU32,
    /// Whether each request gets a stream of its own, because the connector spreads streams over several endpoints.
    spreads: bool,
    /// How many short responses must come before requests share connections again; see [`Origin::prefers_shared`].
    long_responses: AtomicU32,
    openings: Arc<Openings>,
    gone: AtomicBool,
    health_state: OriginHealthState,
    tls_detection: TlsDetection,
    #[expect(clippy::vec_box, reason = "a connection is large, and moves in and out with every request")]
    idle: Mutex<Vec<Box<H1Connection>>>,
    shared: tokio::sync::Mutex<Vec<H2Connection>>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("origin", &self.handle.origin()).finish_non_exhaustive()
    }
}

/// One request in the load of an origin, counted until dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    origin: Arc<Origin>,
    is_relayed: bool,
    /// The request's use of a quota, if the socket has limits.
    quota: Option<QuotaUse>,
}

impl InFlight {
    /// Counts a request.
    pub(crate) fn enter(origin: Arc<Origin>) -> Self {
        origin.in_flight.fetch_add(1, Ordering::Relaxed);
        origin.handle.request_began();
        Self { origin, is_relayed: false, quota: None }
    }

    /// Counts a request that is relayed for another edge.
    pub(crate) fn enter_relayed(origin: Arc<Origin>) -> Self {
        origin.relayed.fetch_add(1, Ordering::Relaxed);
        let mut entered = Self::enter(origin);
        entered.is_relayed = true;
        entered
    }

    /// The request uses a quota.
    pub(crate) fn with_quota(self, quota: QuotaUse) -> Self {
        let mut entered = self;
        entered.quota = Some(quota);
        entered
    }

    /// Records the first answer of the origin, or its failure.
    pub(crate) fn record_answer(&self, is_failed: bool) {
        if let Some(quota) = &self.quota {
            quota.record_answer(is_failed);
        }
    }

    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.is_relayed {
            self.origin.relayed.fetch_sub(1, Ordering::Relaxed);
        }
        self.origin.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.origin.handle.request_ended();
    }
}

/// Why there is no connection to an origin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The tunnel takes no more streams.
    #[error("the tunnel opens no stream: {0}")]
    Tunnel(#[from] OpenError),
    /// HTTP/2 did not start.
    #[error("HTTP/2 did not start with the origin: {0}")]
    Http2(hyper::Error),
    /// The origin did not accept in time.
    #[error("the origin did not take the connection in time")]
    TimedOut,
}

impl Origin {
    /// The origin behind this transport.
    pub(crate) fn new(handle: OriginTransport, place: Place) -> Arc<Self> {
        static ARRIVALS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            spreads: handle.spreads_streams(),
            handle,
            place,
            number: ARRIVALS.fetch_add(1, Ordering::Relaxed),
            in_flight: AtomicU32::new(0),
            relayed: AtomicU32::new(0),
            long_responses: AtomicU32::new(0),
            openings: Arc::default(),
            gone: AtomicBool::new(false),
            health_state: OriginHealthState::default(),
            tls_detection: TlsDetection::default(),
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
        })
    }

    /// Its unique number, in the order of arrival at this edge.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its transport.
    pub(crate) fn handle(&self) -> &OriginTransport {
        &self.handle
    }

    /// Its location.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Its weight, checks and failures.
    pub(crate) fn health_state(&self) -> &OriginHealthState {
        &self.health_state
    }

    /// Whether the origin speaks TLS, as found out by a ClientHello.
    pub(crate) fn tls_detection(&self) -> &TlsDetection {
        &self.tls_detection
    }

    /// Its load: the requests that this edge knows of, relayed ones included.
    pub(crate) fn load(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The requests that came to this edge.
    pub(crate) fn own_load(&self) -> u32 {
        self.load().saturating_sub(self.relayed.load(Ordering::Relaxed))
    }

    /// Whether new requests may go to the origin.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up() && self.health_state.is_fit() && !self.is_reported_down()
    }

    /// Whether the edge that holds its tunnel reports it as down. Reports from before a loss of the bus do not count:
    /// they may be outdated, and that edge decides.
    fn is_reported_down(&self) -> bool {
        self.health_state.is_reported_down() && !self.handle.may_be_outdated()
    }

    /// Whether its tunnel is up. A direct origin counts as up.
    pub(crate) fn is_up(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && self.handle.is_usable()
    }

    /// Whether its tunnel has left for good.
    pub(crate) fn has_left(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The tunnel left: idle connections close at once, busy ones after their requests.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        if let OriginTransport::Direct(transport) = &self.handle {
            transport.leave();
        }
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.clear();
        }
    }

    /// Waits for a place among the client's connections that this origin has not accepted yet.
    pub(crate) async fn opening_place(&self, client: std::net::IpAddr) -> OpeningPlace {
        self.openings.enter(client).await
    }

    fn open_stream(
        &self,
        protocol: StreamProtocol,
        client: std::net::SocketAddr,
        destination: Option<std::net::SocketAddr>,
        server_name: &str,
        shared: bool,
    ) -> Result<OriginStream, ConnectError> {
        let wanted = StreamRequest { protocol, client, destination, server_name };
        Ok(if shared { self.handle.open_shared(wanted) } else { self.handle.open(wanted) }?)
    }

    /// Opens a stream for a client's connection. Does not wait for the origin.
    pub(crate) fn open_flow(&self, ends: ProxiedAddresses, server_name: &str) -> Result<OriginStream, ConnectError> {
        self.open_stream(StreamProtocol::Raw, ends.client, Some(ends.destination), server_name, false)
    }

    /// Takes the most recently used idle connection that is open, preferably one of this shard. `repeatable` requests
    /// may be sent again if the connection closes meanwhile; for others, connections that were idle for long are left
    /// alone.
    pub(crate) fn take_idle(
        &self,
        client: std::net::SocketAddr,
        repeatable: bool,
        shared: bool,
    ) -> Option<Box<H1Connection>> {
        let here = ShardId::here();
        let (may_have_leg, lane) = (self.handle.has_leg_for(client), self.handle.lane(client));
        let fits = |connection: &H1Connection| {
            connection.is_shared() == shared
                && connection.lane() == lane
                && (may_have_leg || !connection.is_on_leg())
                && (repeatable || connection.idle_since().elapsed() <= MAX_IDLE_UNREPEATABLE)
        };
        loop {
            let mut connection = {
                let mut idle = self.idle.lock();
                let chosen = best(&idle, |connection| fits(connection), |connection| connection.shard() == here)?;
                if self.has_better(&idle[chosen]) {
                    return None;
                }
                idle.remove(chosen)
            };
            let is_fresh = repeatable && connection.idle_since().elapsed() < MAX_UNSEEN;
            match if is_fresh { Idleness::Ready } else { connection.check_idle() } {
                // The connection was opened while no leg was ready: this request is better off on a leg of its own.
                Idleness::Ready if !shared && !connection.is_on_leg() && may_have_leg && self.handle.has_idle_leg() => {
                }
                Idleness::Ready => {
                    connection.move_to_this_shard();
                    connection.set_client(Some(client));
                    return Some(connection);
                }
                Idleness::Over => {}
            }
        }
    }

    /// Whether a new connection is better than this idle one, because another shard has just used it. Each shard then
    /// gets its own, and none moves back and forth.
    fn has_better(&self, connection: &H1Connection) -> bool {
        let here = ShardId::here();
        connection.is_on_leg()
            && here.is_shard()
            && connection.shard() != here
            && connection.idle_since().elapsed() < MAX_WANTED_ELSEWHERE
            && self.handle.has_idle_leg()
    }

    /// Whether a request without a body should share a connection of the tunnel instead of taking a leg: many run at
    /// once, and recent responses were short.
    pub(crate) fn prefers_shared(&self) -> bool {
        self.long_responses.load(Ordering::Relaxed) == 0 && self.handle.prefers_shared()
    }

    /// A long response came: the requests that follow get legs for a while.
    pub(crate) fn record_long_response(&self) {
        self.long_responses.store(SHORT_RESPONSES_TO_SHARE, Ordering::Relaxed);
    }

    /// A short response has ended.
    pub(crate) fn record_short_response(&self) {
        // Two at once may count as one, which does no harm.
        let left = self.long_responses.load(Ordering::Relaxed);
        if left > 0 {
            self.long_responses.store(left - 1, Ordering::Relaxed);
        }
    }

    /// Opens an HTTP/1.1 connection through the tunnel. `shared` multiplexes it with others on one connection. Does not
    /// wait for the origin.
    pub(crate) fn connect_h1(
        &self,
        client: std::net::SocketAddr,
        server_name: &str,
        shared: bool,
    ) -> Result<Box<H1Connection>, ConnectError> {
        let stream = self.open_stream(StreamProtocol::Http1, client, None, server_name, shared)?;
        Ok(Box::new(H1Connection::new(stream, shared)))
    }

    /// Keeps the connection for the next request, if it can carry one.
    pub(crate) fn put_back(&self, mut connection: Box<H1Connection>) {
        // As in `take_idle`.
        let has_better = || !connection.is_shared() && !connection.is_on_leg() && self.handle.has_idle_leg();
        let is_unwanted = self.spreads || self.gone.load(Ordering::Acquire) || has_better();
        if is_unwanted || matches!(connection.check_idle(), Idleness::Over) {
            connection.close();
            return;
        }
        connection.rest();
        connection.set_client(None);
        let mut idle = self.idle.lock();
        // Checked again under the lock, because `leave` may have emptied the list meanwhile.
        if idle.len() < MAX_IDLE_CONNECTIONS && !self.gone.load(Ordering::Acquire) {
            idle.push(connection);
        }
    }

    /// A place on an HTTP/2 connection: on an open one with room, else on a new one. Where the connector spreads
    /// streams, each request has its own connection: a shared one would take requests of all clients to one endpoint.
    pub(crate) async fn connect_h2(
        &self,
        client: std::net::SocketAddr,
        server_name: &str,
        timeout: Duration,
    ) -> Result<H2Place, ConnectError> {
        if self.spreads {
            return Ok(self.open_h2(client, server_name, timeout).await?.enter(false));
        }
        let mut shared = self.shared.lock().await;
        let lane = self.handle.lane(client);
        shared.retain(|connection| !connection.sender.is_closed() && !connection.lane.is_before(lane));
        let full = shared.len() >= MAX_H2_CONNECTIONS;
        let same_lane = shared.iter_mut().filter(|connection| connection.lane == lane);
        let least = same_lane.min_by_key(|connection| connection.load());
        if let Some(connection) = least.filter(|c| full || c.load() < MAX_REQUESTS_PER_H2_CONNECTION) {
            return Ok(connection.enter(true));
        }
        let mut connection = self.open_h2(client, server_name, timeout).await?;
        let place = connection.enter(false);
        if !self.gone.load(Ordering::Acquire) && !full {
            shared.push(connection);
        }
        Ok(place)
    }

    /// Opens an HTTP/2 connection, which ends with its last sender.
    async fn open_h2(
        &self,
        client: std::net::SocketAddr,
        server_name: &str,
        timeout: Duration,
    ) -> Result<H2Connection, ConnectError> {
        let stream = self.open_stream(StreamProtocol::Http2, client, None, server_name, false)?;
        let (establishment, lane) = (stream.establishment(), stream.lane());
        let handshake = http2::Builder::new(BodyExecutor)
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(4 * H2_STREAM_WINDOW_BYTES)
            .max_header_list_size(64 * 1024)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = tokio::time::timeout(timeout, handshake)
            .await
            .map_err(|_| ConnectError::TimedOut)?
            .map_err(ConnectError::Http2)?;
        sallyport_shards::spawn_near(async move {
            if let Err(error) = looks_at_its_own(connection).await {
                tracing::debug!(%error, "an HTTP/2 connection to an origin ended");
            }
        });
        Ok(H2Connection { sender, establishment, lane, requests: Arc::default(), used: Instant::now() })
    }

    /// Removes connections that have closed or were idle for too long.
    pub(crate) fn sweep(&self, now: Instant) {
        let (gone, current) = (self.gone.load(Ordering::Acquire), self.handle.newest_lane());
        let mut over = Vec::new();
        {
            let mut idle = self.idle.lock();
            let mut at = 0;
            while at < idle.len() {
                let connection = &mut idle[at];
                let old = now.saturating_duration_since(connection.idle_since()) > MAX_IDLE
                    || connection.lane().is_before(current);
                if gone || old || matches!(connection.check_idle(), Idleness::Over) {
                    over.push(idle.remove(at));
                } else {
                    at += 1;
                }
            }
        }
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.retain(|connection| {
                let is_old = now.saturating_duration_since(connection.used) > MAX_IDLE;
                let unused = connection.load() == 0 && (is_old || connection.lane.is_before(current));
                !gone && !unused && !connection.sender.is_closed()
            });
        }
    }
}

/// The position of the last element that fits and is near, else of the last that fits.
fn best<T>(all: &[T], fits: impl Fn(&T) -> bool, is_near: impl Fn(&T) -> bool) -> Option<usize> {
    all.iter().rposition(|one| fits(one) && is_near(one)).or_else(|| all.iter().rposition(fits))
}

/// Runs the tasks that an HTTP/2 connection starts for each request: one sends the body, one waits for the response.
///
/// A task that sends a body waits for flow control, and notices nothing else. Without this executor, a request to an
/// origin that reads no body could not end early.
#[derive(Debug, Clone)]
struct BodyExecutor;

impl<F> Executor<F> for BodyExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, work: F) {
        let work = looks_at_its_own(async move { drop(work.await) });
        match upload::take_first_polled() {
            Some(upload) => drop(tokio::spawn(async move {
                tokio::select! {
                    () = work => {}
                    () = upload.until_given_up() => {}
                }
            })),
            None => drop(tokio::spawn(work)),
        }
    }
}

/// Clears the upload that this work has registered in its own poll and that the work has not taken. The assignment of
/// uploads to tasks then does not depend on hyper's order of polls.
async fn looks_at_its_own<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        drop(upload::take_first_polled());
        polled
    })
    .await
}

/// A shared HTTP/2 connection to an origin.
struct H2Connection {
    sender: http2::SendRequest<Upload>,
    establishment: Establishment,
    lane: Lane,
    requests: Arc<AtomicU32>,
    used: Instant,
}

impl H2Connection {
    fn load(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    fn enter(&mut self, reused: bool) -> H2Place {
        self.used = Instant::now();
        self.requests.fetch_add(1, Ordering::Relaxed);
        H2Place {
            sender: self.sender.clone(),
            establishment: self.establishment.clone(),
            requests: self.requests.clone(),
            reused,
        }
    }
}

/// The place of one request on a shared HTTP/2 connection, released when dropped.
pub(crate) struct H2Place {
    sender: http2::SendRequest<Upload>,
    establishment: Establishment,
    requests: Arc<AtomicU32>,
    reused: bool,
}

impl H2Place {
    /// The half that sends requests.
    pub(crate) fn sender(&mut self) -> &mut http2::SendRequest<Upload> {
        &mut self.sender
    }

    /// Whether the origin accepted the connection.
    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// Whether the connection was open before this request.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }
}

impl Drop for H2Place {
    fn drop(&mut self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_far_away_is_better_than_what_does_not_fit_nearby() {
        let (fits, is_near) = (|one: &(bool, bool)| one.0, |one: &(bool, bool)| one.1);
        for (all, chosen) in [
            (&[(true, true), (true, false), (false, true)][..], Some(0)),
            (&[(true, false), (true, false), (false, true)], Some(1)),
            (&[(true, true), (true, true), (true, false)], Some(1)),
            (&[(false, true), (false, false)], None),
            (&[], None),
        ] {
            assert_eq!(best(all, fits, is_near), chosen, "{all:?}");
        }
    }
}
