//! One origin: a tunnel, and the HTTP connections that stand open through it.
//!
//! An HTTP/1.1 connection to an origin has no task of its own. Whoever exchanges a request over it polls it, and while
//! it is idle nobody does: that it ended is noticed when it is taken out again, or by [`Origin::sweep`]. So a request
//! runs from the client's socket to the tunnel's in one task. An HTTP/2 connection is shared and therefore has a task.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_net::ProxiedAddresses;
use sallyport_shards::ShardId;
use sallyport_tunnel::{Establishment, OpenError};
use sallyport_wire::{Open, StreamProtocol};

use crate::{
    body::{BoxError, Upload},
    exchange::Alarm,
    origin_standing::Standing,
    way::{Way, WayStream},
};

/// How many idle HTTP/1.1 connections are kept for one tunnel.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// How long an HTTP connection to an origin is kept while nothing is sent over it. Shorter than what common servers
/// keep theirs, so that ours is the side that lets go.
const MAX_IDLE: Duration = Duration::from_secs(45);
/// How long a connection may have been idle that gets a request which cannot be repeated: shorter than after what any
/// common server ends one, so that such a request does not cross the end of its connection.
const MAX_IDLE_UNREPEATABLE: Duration = Duration::from_secs(3);
/// How lately another shard must have used an idle connection to be thought to want it again.
const MAX_WANTED_ELSEWHERE: Duration = Duration::from_millis(100);
/// The longest answer that shares a connection with others at no loss, in bytes: measured, see
/// docs/adr/0027-requests-that-share-a-connection.md.
const MAX_SHORT_ANSWER_BYTES: u64 = 16 * 1024;
/// How many short answers must follow a long one before requests share a connection.
const SHORT_ANSWERS_TO_SHARE: u32 = 64;
/// How many requests run over one HTTP/2 connection before another is opened.
const MAX_REQUESTS_PER_H2_CONNECTION: u32 = 100;
/// How many HTTP/2 connections are opened through one tunnel.
const MAX_H2_CONNECTIONS: usize = 8;
/// How many header fields an origin's answer may have.
const MAX_RESPONSE_HEADERS: usize = 200;
/// How much of an origin's answer is read ahead, and the longest head it may have, in bytes.
const MAX_READ_AHEAD_BYTES: usize = 256 * 1024;
/// How much one HTTP/2 stream of an origin may send ahead of the client, in bytes.
const H2_STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// A tunnel as requests see it.
pub(crate) struct Origin {
    handle: Way,
    number: u64,
    in_flight: AtomicU32,
    /// How many short answers are to come before requests share connections again; see [`Origin::shares_well`].
    long_answers: AtomicU32,
    gone: AtomicBool,
    standing: Standing,
    #[expect(clippy::vec_box, reason = "a connection is large, and moves in and out with every request")]
    idle: Mutex<Vec<Box<H1Connection>>>,
    shared: tokio::sync::Mutex<Vec<H2Connection>>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("tunnel", &self.handle.tunnel()).finish_non_exhaustive()
    }
}

/// One request that an origin is busy with, counted until dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Origin>);

impl InFlight {
    /// Counts one more request of this origin.
    pub(crate) fn enter(origin: Arc<Origin>) -> Self {
        origin.in_flight.fetch_add(1, Ordering::Relaxed);
        origin.handle.request_began();
        Self(origin)
    }

    /// The origin.
    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.handle.request_ended();
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
    pub(crate) fn new(handle: Way) -> Arc<Self> {
        static ARRIVALS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            handle,
            number: ARRIVALS.fetch_add(1, Ordering::Relaxed),
            in_flight: AtomicU32::new(0),
            long_answers: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            standing: Standing::default(),
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
        })
    }

    /// Its place in the order of arrivals at this edge; no other origin has it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its tunnel.
    pub(crate) fn handle(&self) -> &Way {
        &self.handle
    }

    /// How it stands among the others.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// How many requests it is busy with.
    pub(crate) fn load(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether new requests may go to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up() && self.standing.is_fit()
    }

    /// Whether its tunnel is up.
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
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        drop(idle);
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.clear();
        }
    }

    fn open_stream(
        &self,
        protocol: StreamProtocol,
        client: std::net::SocketAddr,
        destination: Option<std::net::SocketAddr>,
        server_name: &str,
        shared: bool,
    ) -> Result<WayStream, ConnectError> {
        let opened_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let open = Open {
            tunnel: self.handle.tunnel(),
            protocol,
            client,
            destination,
            opened_at_us: u64::try_from(opened_at.as_micros()).unwrap_or(u64::MAX),
            server_name: server_name.to_owned(),
        };
        Ok(if shared { self.handle.open_shared(open) } else { self.handle.open(open) }?)
    }

    /// A stream for a client's connection that is passed on as it is. Nothing waits for the origin yet.
    pub(crate) fn open_flow(&self, ends: ProxiedAddresses, server_name: &str) -> Result<WayStream, ConnectError> {
        self.open_stream(StreamProtocol::Raw, ends.client, Some(ends.destination), server_name, false)
    }

    /// The most recently used idle connection that still stands, of this shard if there is one. `repeatable`: the request
    /// may be sent again when the connection turns out to end just now; otherwise those that were idle for long are left
    /// alone.
    pub(crate) fn take_idle(&self, repeatable: bool, shared: bool) -> Option<Box<H1Connection>> {
        let (mut skipped, here) = (0, ShardId::here());
        let fits = |connection: &H1Connection| {
            connection.is_shared == shared && (repeatable || connection.idle_since.elapsed() <= MAX_IDLE_UNREPEATABLE)
        };
        loop {
            let mut connection = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let unseen = &idle[..idle.len().checked_sub(skipped)?];
                let chosen = best(unseen, |connection| fits(connection), |connection| connection.shard == here)?;
                if self.has_better(&unseen[chosen]) {
                    return None;
                }
                idle.remove(chosen)
            };
            match connection.check_idle() {
                // One that was opened while legs were on their way: this request is better off on a leg of its own.
                Idleness::Ready if !shared && !connection.on_leg && self.handle.has_idle_leg() => {}
                Idleness::Ready => {
                    connection.come_here();
                    return Some(connection);
                }
                Idleness::Over => {}
                Idleness::Busy => {
                    skipped += 1;
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                }
            }
        }
    }

    /// Whether a new connection is better than this idle one: it was used in another shard just now, and will be again.
    /// Each shard has its own then, and none moves back and forth.
    fn has_better(&self, connection: &H1Connection) -> bool {
        let here = ShardId::here();
        connection.on_leg
            && here.is_shard()
            && connection.shard != here
            && connection.idle_since.elapsed() < MAX_WANTED_ELSEWHERE
            && self.handle.has_idle_leg()
    }

    /// Whether a request that brings no body had better share a connection of the tunnel with others than have a leg: there
    /// are many at once, and the answers were short lately.
    pub(crate) fn shares_well(&self) -> bool {
        self.long_answers.load(Ordering::Relaxed) == 0 && self.handle.shares_well()
    }

    /// A long answer came. Those that follow have legs for a while.
    fn answers_long(&self) {
        self.long_answers.store(SHORT_ANSWERS_TO_SHARE, Ordering::Relaxed);
    }

    /// A short answer came to its end.
    fn answered_short(&self) {
        // Two that come at once may count as one.
        let left = self.long_answers.load(Ordering::Relaxed);
        if left > 0 {
            self.long_answers.store(left - 1, Ordering::Relaxed);
        }
    }

    /// A new HTTP/1.1 connection through the tunnel, `shared`: multiplexed with others. Nothing waits for the origin yet.
    pub(crate) async fn connect_h1(
        &self,
        client: std::net::SocketAddr,
        server_name: &str,
        shared: bool,
    ) -> Result<Box<H1Connection>, ConnectError> {
        let stream = self.open_stream(StreamProtocol::Http1, client, None, server_name, shared)?;
        let (establishment, on_leg) = (stream.establishment(), stream.is_on_leg());
        let (sender, connection) = http1::Builder::new()
            .max_headers(MAX_RESPONSE_HEADERS)
            .max_buf_size(MAX_READ_AHEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ConnectError::Http2)?;
        let connection = Some(connection);
        Ok(Box::new(H1Connection {
            sender,
            connection,
            establishment,
            on_leg,
            is_shared: shared,
            shard: ShardId::here(),
            over: false,
            idle_since: Instant::now(),
            alarm: Alarm::default(),
        }))
    }

    /// Keeps the connection for the next request, when it can carry one.
    fn put_back(&self, mut connection: Box<H1Connection>) {
        if self.gone.load(Ordering::Acquire) || !matches!(connection.check_idle(), Idleness::Ready) {
            return;
        }
        // As in `take_idle`.
        if !connection.is_shared && !connection.on_leg && self.handle.has_idle_leg() {
            return;
        }
        connection.idle_since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
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
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(4 * H2_STREAM_WINDOW_BYTES)
            .max_header_list_size(64 * 1024)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = tokio::time::timeout(timeout, handshake)
            .await
            .map_err(|_| ConnectError::TimedOut)?
            .map_err(ConnectError::Http2)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
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
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let mut at = 0;
            while at < idle.len() {
                let connection = &mut idle[at];
                let old = now.saturating_duration_since(connection.idle_since) > MAX_IDLE;
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

/// What an idle connection turned out to be.
enum Idleness {
    /// It can carry a request.
    Ready,
    /// It still ends its last exchange.
    Busy,
    /// It has ended.
    Over,
}

/// An HTTP/1.1 connection to an origin.
pub(crate) struct H1Connection {
    sender: http1::SendRequest<Upload>,
    /// Gone once nothing more is to be had from it.
    connection: Option<http1::Connection<TokioIo<WayStream>, Upload>>,
    establishment: Establishment,
    /// Whether it has a leg for itself, or shares the control connection.
    on_leg: bool,
    /// Whether it was meant to share one.
    is_shared: bool,
    /// Where it was used last; its carrier went there where it can.
    shard: ShardId,
    over: bool,
    idle_since: Instant,
    alarm: Alarm,
}

impl H1Connection {
    /// Whether the origin took the connection.
    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// The half that requests go into.
    pub(crate) fn sender(&mut self) -> &mut http1::SendRequest<Upload> {
        &mut self.sender
    }

    /// What an exchange over it sets its bounds with.
    pub(crate) fn alarm(&mut self) -> &mut Alarm {
        &mut self.alarm
    }

    /// It is used in the caller's shard from now on.
    fn come_here(&mut self) {
        let here = ShardId::here();
        if here.is_shard() && here != self.shard {
            self.shard = here;
            // A timer stays with the scheduler that it was made in.
            self.alarm = Alarm::default();
        }
    }

    /// Moves bytes in both directions as far as they go. The waker is kept by whatever is waited for.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.over
            && let Some(connection) = &mut self.connection
            && let Poll::Ready(outcome) = Pin::new(connection).poll(cx)
        {
            self.over = true;
            if let Err(error) = outcome {
                tracing::debug!(%error, "a connection to an origin ended");
            }
        }
    }

    /// Whether the connection has ended; [`H1Connection::drive`] does nothing then.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Lets go of a connection that has ended. Whoever waits for it is then told, and gets back a request that it has
    /// not looked at.
    pub(crate) fn let_go(&mut self) {
        self.over = true;
        self.connection = None;
    }

    fn check_idle(&mut self) -> Idleness {
        self.drive(&mut Context::from_waker(Waker::noop()));
        if self.over || self.sender.is_closed() {
            Idleness::Over
        } else if self.sender.is_ready() {
            Idleness::Ready
        } else {
            Idleness::Busy
        }
    }

    /// The stream below, and what was read from it beyond the last answer's head: for a connection whose protocol
    /// was switched.
    pub(crate) fn into_stream(self) -> Option<(WayStream, Bytes)> {
        let parts = self.connection?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }
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

/// What carries an answer's body.
pub(crate) enum Carrier {
    /// A connection of its own, which goes back to its origin when the body has ended.
    H1(Box<H1Connection>),
    /// A place on a shared one.
    H2 {
        /// Kept for as long as the body comes.
        _place: H2Place,
    },
}

/// The body of an origin's answer.
///
/// Dropped before its end it takes its connection with it, which resets the stream: the origin learns that nobody
/// listens.
pub(crate) struct Download {
    body: Incoming,
    failed: Option<BoxError>,
    /// How much came.
    bytes: u64,
    carrier: Option<Carrier>,
    origin: Option<InFlight>,
}

impl Download {
    /// The body that this carrier brings.
    pub(crate) fn new(body: Incoming, carrier: Carrier, origin: InFlight) -> Self {
        if body.size_hint().lower() > MAX_SHORT_ANSWER_BYTES {
            origin.origin().answers_long();
        }
        let (failed, bytes, carrier, origin) = (None, 0, Some(carrier), Some(origin));
        let mut download = Self { body, failed, bytes, carrier, origin };
        if download.body.is_end_stream() {
            download.ended();
        }
        download
    }

    /// The next frame.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match &mut self.carrier {
            Some(Carrier::H1(connection)) => {
                connection.drive(cx);
                // Nothing but the connection moves this body, and the connection has the waker already.
                let mut quiet = Context::from_waker(Waker::noop());
                match Pin::new(&mut self.body).poll_frame(&mut quiet) {
                    Poll::Pending if connection.is_over() => {
                        connection.let_go();
                        ready!(Pin::new(&mut self.body).poll_frame(cx))
                    }
                    polled => ready!(polled),
                }
            }
            _ => ready!(Pin::new(&mut self.body).poll_frame(cx)),
        };
        let mut frame = frame;
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            sallyport_http::forward::trailers(trailers);
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.came(data.len());
        }
        match &frame {
            None => self.ended(),
            Some(Ok(_)) if self.body.is_end_stream() => self.ended(),
            Some(Ok(_)) => {}
            Some(Err(_)) => {
                self.carrier = None;
                self.origin = None;
            }
        }
        match frame {
            Some(Err(error)) => {
                // The server below drops what it has not sent yet when a body fails. It is given one more turn to send
                // what came before.
                self.failed = Some(error.into());
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
        }
    }

    /// So much more came.
    fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes > MAX_SHORT_ANSWER_BYTES
            && let Some(origin) = &self.origin
        {
            origin.origin().answers_long();
        }
    }

    fn ended(&mut self) {
        let origin = self.origin.take();
        if let Some(origin) = &origin
            && self.bytes <= MAX_SHORT_ANSWER_BYTES
        {
            origin.origin().answered_short();
        }
        if let (Some(Carrier::H1(connection)), Some(origin)) = (self.carrier.take(), origin) {
            origin.origin().put_back(connection);
        }
    }

    /// Whether there is no more frame.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    /// How long the rest of the body is.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
