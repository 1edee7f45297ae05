//! One origin: the way to it, and the HTTP connections that stand open through that.
//!
//! An HTTP/1.1 connection to an origin has no task of its own. Whoever exchanges a request over it polls it, and while
//! it is idle nobody does: that it ended is noticed when it is taken out again, or by [`Origin::sweep`]. So a request
//! runs from the client's socket to the tunnel's in one task. An HTTP/2 connection is shared and therefore has a task.

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
        http::h1::{H1Connection, Idleness},
        locality::Place,
        transport::{OriginStream, OriginTransport, StreamRequest, tls_detection::TlsDetection},
    },
};

/// How many idle HTTP/1.1 connections are kept for one tunnel: as many as requests share its control connection at most.
const MAX_IDLE_CONNECTIONS: usize = 1_024;
/// How long an HTTP connection to an origin is kept while nothing is sent over it. Shorter than what common servers
/// keep theirs, so that ours is the side that lets go.
const MAX_IDLE: Duration = Duration::from_secs(45);
/// How long a connection may have been idle that gets a request which cannot be repeated: shorter than after what any
/// common server ends one, so that such a request does not cross the end of its connection.
const MAX_IDLE_UNREPEATABLE: Duration = Duration::from_secs(3);
/// How lately another shard must have used an idle connection to be thought to want it again.
const MAX_WANTED_ELSEWHERE: Duration = Duration::from_millis(100);
/// For how long an idle connection that stood is taken to stand without another look. A request that may be repeated is,
/// over a new one, when it has ended since.
const MAX_UNSEEN: Duration = Duration::from_millis(2);
/// The longest answer that shares a connection with others at no loss, in bytes: measured, see
/// docs/adr/0001-legs-and-a-control-connection.md.
pub(crate) const MAX_SHORT_ANSWER_BYTES: u64 = 16 * 1024;
/// How many short answers must follow a long one before requests share a connection.
const SHORT_ANSWERS_TO_SHARE: u32 = 64;
/// How many requests run over one HTTP/2 connection before another is opened.
const MAX_REQUESTS_PER_H2_CONNECTION: u32 = 100;
/// How many HTTP/2 connections are opened through one tunnel.
const MAX_H2_CONNECTIONS: usize = 8;
/// How much one HTTP/2 stream of an origin may send ahead of the client, in bytes.
const H2_STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// An origin as requests see it.
pub(crate) struct Origin {
    handle: OriginTransport,
    place: Place,
    number: u64,
    in_flight: AtomicU32,
    /// How many of these came to other edges.
    relayed: AtomicU32,
    /// How many short answers are to come before requests share connections again; see [`Origin::shares_well`].
    long_answers: AtomicU32,
    openings: Arc<Openings>,
    gone: AtomicBool,
    health_state: OriginHealthState,
    greeted: TlsDetection,
    #[expect(clippy::vec_box, reason = "a connection is large, and moves in and out with every request")]
    idle: Mutex<Vec<Box<H1Connection>>>,
    shared: tokio::sync::Mutex<Vec<H2Connection>>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("origin", &self.handle.origin()).finish_non_exhaustive()
    }
}

/// One request that an origin is busy with, counted until dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    origin: Arc<Origin>,
    is_relayed: bool,
}

impl InFlight {
    /// Counts one more request of this origin.
    pub(crate) fn enter(origin: Arc<Origin>) -> Self {
        origin.in_flight.fetch_add(1, Ordering::Relaxed);
        origin.handle.request_began();
        Self { origin, is_relayed: false }
    }

    /// The same, of a request that came to another edge.
    pub(crate) fn enter_relayed(origin: Arc<Origin>) -> Self {
        origin.relayed.fetch_add(1, Ordering::Relaxed);
        let mut entered = Self::enter(origin);
        entered.is_relayed = true;
        entered
    }

    /// The origin.
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
    /// The connector did not answer in time.
    #[error("the origin did not take the connection in time")]
    TimedOut,
}

impl Origin {
    /// The origin behind this tunnel.
    pub(crate) fn new(handle: OriginTransport, place: Place) -> Arc<Self> {
        static ARRIVALS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            handle,
            place,
            number: ARRIVALS.fetch_add(1, Ordering::Relaxed),
            in_flight: AtomicU32::new(0),
            relayed: AtomicU32::new(0),
            long_answers: AtomicU32::new(0),
            openings: Arc::default(),
            gone: AtomicBool::new(false),
            health_state: OriginHealthState::default(),
            greeted: TlsDetection::default(),
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
        })
    }

    /// Its place in the order of arrivals at this edge; no other origin has it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The way to it.
    pub(crate) fn handle(&self) -> &OriginTransport {
        &self.handle
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// How it stands among the others.
    pub(crate) fn health_state(&self) -> &OriginHealthState {
        &self.health_state
    }

    /// What it answered to a greeting of TLS.
    pub(crate) fn greeted(&self) -> &TlsDetection {
        &self.greeted
    }

    /// How many requests it is busy with, as far as this edge knows: those included that came to others and are relayed here.
    pub(crate) fn load(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How many of these came to this edge.
    pub(crate) fn own_load(&self) -> u32 {
        self.load().saturating_sub(self.relayed.load(Ordering::Relaxed))
    }

    /// Whether new requests may go to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up() && self.health_state.is_fit() && !self.is_said_down()
    }

    /// Whether the edge that holds its tunnel says that it is not well. What was said before the bus was lost may be otherwise by
    /// now: that edge is asked then.
    fn is_said_down(&self) -> bool {
        self.health_state.is_said_down() && !self.handle.is_hearsay()
    }

    /// Whether its tunnel is up; one that the edge dials itself is, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && self.handle.is_usable()
    }

    /// Whether its tunnel has left for good.
    pub(crate) fn has_left(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The tunnel left: idle connections are let go at once, busy ones when they are done.
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

    /// A place among the connections that the origin is asked for, once the client has not got too many there.
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

    /// A stream for a client's connection that is passed on as it is. Nothing waits for the origin yet.
    pub(crate) fn open_flow(&self, ends: ProxiedAddresses, server_name: &str) -> Result<OriginStream, ConnectError> {
        self.open_stream(StreamProtocol::Raw, ends.client, Some(ends.destination), server_name, false)
    }

    /// The most recently used idle connection that still stands, of this shard if there is one. `repeatable`: the request
    /// may be sent again when the connection turns out to end just now; otherwise those that were idle for long are left
    /// alone.
    pub(crate) fn take_idle(
        &self,
        client: std::net::SocketAddr,
        repeatable: bool,
        shared: bool,
    ) -> Option<Box<H1Connection>> {
        let here = ShardId::here();
        let may_have_leg = self.handle.has_leg_for(client);
        let fits = |connection: &H1Connection| {
            connection.is_shared() == shared
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
                // One that was opened while legs were on their way: this request is better off on a leg of its own.
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

    /// Whether a new connection is better than this idle one: it was used in another shard just now, and will be again.
    /// Each shard has its own then, and none moves back and forth.
    fn has_better(&self, connection: &H1Connection) -> bool {
        let here = ShardId::here();
        connection.is_on_leg()
            && here.is_shard()
            && connection.shard() != here
            && connection.idle_since().elapsed() < MAX_WANTED_ELSEWHERE
            && self.handle.has_idle_leg()
    }

    /// Whether a request that brings no body had better share a connection of the tunnel with others than have a leg: there
    /// are many at once, and the answers were short lately.
    pub(crate) fn shares_well(&self) -> bool {
        self.long_answers.load(Ordering::Relaxed) == 0 && self.handle.shares_well()
    }

    /// A long answer came. Those that follow have legs for a while.
    pub(crate) fn answers_long(&self) {
        self.long_answers.store(SHORT_ANSWERS_TO_SHARE, Ordering::Relaxed);
    }

    /// A short answer came to its end.
    pub(crate) fn answered_short(&self) {
        // Two that come at once may count as one.
        let left = self.long_answers.load(Ordering::Relaxed);
        if left > 0 {
            self.long_answers.store(left - 1, Ordering::Relaxed);
        }
    }

    /// A new HTTP/1.1 connection through the tunnel, `shared`: multiplexed with others. Nothing waits for the origin yet.
    pub(crate) fn connect_h1(
        &self,
        client: std::net::SocketAddr,
        server_name: &str,
        shared: bool,
    ) -> Result<Box<H1Connection>, ConnectError> {
        let stream = self.open_stream(StreamProtocol::Http1, client, None, server_name, shared)?;
        Ok(Box::new(H1Connection::new(stream, shared)))
    }

    /// Keeps the connection for the next request, when it can carry one.
    pub(crate) fn put_back(&self, mut connection: Box<H1Connection>) {
        // As in `take_idle`.
        let has_better = || !connection.is_shared() && !connection.is_on_leg() && self.handle.has_idle_leg();
        let is_unwanted = self.gone.load(Ordering::Acquire) || has_better();
        if is_unwanted || matches!(connection.check_idle(), Idleness::Over) {
            connection.close();
            return;
        }
        connection.rest();
        connection.set_client(None);
        let mut idle = self.idle.lock();
        // Looked at again under the lock, so that `leave` cannot have emptied the list in between.
        if idle.len() < MAX_IDLE_CONNECTIONS && !self.gone.load(Ordering::Acquire) {
            idle.push(connection);
        }
    }

    /// A place on an HTTP/2 connection: on one that stands and has room, else on a new one.
    pub(crate) async fn connect_h2(
        &self,
        client: std::net::SocketAddr,
        server_name: &str,
        timeout: Duration,
    ) -> Result<H2Place, ConnectError> {
        let mut shared = self.shared.lock().await;
        shared.retain(|connection| !connection.sender.is_closed());
        let full = shared.len() >= MAX_H2_CONNECTIONS;
        let least = shared.iter_mut().min_by_key(|connection| connection.load());
        if let Some(connection) = least.filter(|c| full || c.load() < MAX_REQUESTS_PER_H2_CONNECTION) {
            return Ok(connection.enter(true));
        }
        let stream = self.open_stream(StreamProtocol::Http2, client, None, server_name, false)?;
        let establishment = stream.establishment();
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
        let requests = Arc::new(AtomicU32::new(0));
        let mut connection = H2Connection { sender, establishment, requests, used: Instant::now() };
        let place = connection.enter(false);
        if !self.gone.load(Ordering::Acquire) {
            shared.push(connection);
        }
        Ok(place)
    }

    /// Lets go of connections that ended or were idle for long.
    pub(crate) fn sweep(&self, now: Instant) {
        let gone = self.gone.load(Ordering::Acquire);
        let mut over = Vec::new();
        {
            let mut idle = self.idle.lock();
            let mut at = 0;
            while at < idle.len() {
                let connection = &mut idle[at];
                let old = now.saturating_duration_since(connection.idle_since()) > MAX_IDLE;
                if gone || old || matches!(connection.check_idle(), Idleness::Over) {
                    over.push(idle.remove(at));
                } else {
                    at += 1;
                }
            }
        }
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.retain(|connection| {
                let unused = connection.load() == 0 && now.saturating_duration_since(connection.used) > MAX_IDLE;
                !gone && !unused && !connection.sender.is_closed()
            });
        }
    }
}

/// The place of the last one that fits and is near, else of the last one that fits.
fn best<T>(all: &[T], fits: impl Fn(&T) -> bool, is_near: impl Fn(&T) -> bool) -> Option<usize> {
    all.iter().rposition(|one| fits(one) && is_near(one)).or_else(|| all.iter().rposition(fits))
}

/// Runs what an HTTP/2 connection starts beside itself, for each request: what sends its body, and what waits for its answer.
///
/// What sends a body waits for room that the origin gives, and notices nothing else meanwhile. An origin that reads nothing of a
/// body would not hear that the request is over, and nor would its client, whose body is kept.
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

/// What is looked at in one turn of this work and taken by nobody in it is none of the next one's business: which work is tied to
/// which body would otherwise rest on the order in which hyper does things.
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

/// A place for one request on a shared HTTP/2 connection; given back when dropped.
pub(crate) struct H2Place {
    sender: http2::SendRequest<Upload>,
    establishment: Establishment,
    requests: Arc<AtomicU32>,
    reused: bool,
}

impl H2Place {
    /// The half that requests go into.
    pub(crate) fn sender(&mut self) -> &mut http2::SendRequest<Upload> {
        &mut self.sender
    }

    /// Whether the origin took the connection.
    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// Whether the connection stood before this request came.
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
