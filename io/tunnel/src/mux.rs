//! A session and the streams multiplexed on its control connection, shared by the driver and the streams' users.
//!
//! One lock, held only briefly, guards everything. Users copy their bytes into and out of the session; the
//! [driver](crate::driver) moves them between the session and the carrier.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{FlowRecord, HealthRecord, LinkReport, RequestRecord, TunnelId};
use sallyport_shards::{ShardId, wake_at};
use sallyport_wire::{
    Attach, ByNumber, Event, Neighbours, Open, OpenError, OpenFailure, Read, Refusal, ResetCode, Session, StreamError,
    StreamId,
};
use tokio::{io::ReadBuf, runtime::Handle};

use crate::{count::StreamCount, establishment::Establishment};

/// Number of shared streams up to which a stream shares the control connection although it could have a leg.
const MAX_SHARED_STREAMS: usize = 1_024;
/// Number of consecutive requests from one other shard, with none from the own shard, after which a connection moves
/// there.
const MOVES_AFTER: u32 = 256;

/// The current time of the sessions, which tests can pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The session of one control connection.
pub(crate) struct Mux {
    state: Mutex<State>,
    /// Whether the state holds a new shard for the driver.
    is_called: AtomicBool,
    /// Copy of the session's flag.
    is_unresponsive: AtomicBool,
}

struct State {
    session: Session,
    streams: ByNumber<StreamId, Slot>,
    /// Waker of the driver's task while the driver waits.
    driver: Option<Waker>,
    /// Whether the carrier accepts no data now, so that the driver need not be woken for output.
    is_blocked: bool,
    /// Whether the carrier has taken all frames that the driver took.
    is_flushed: bool,
    /// Tasks that wait until all frames have left.
    flush_waiters: Vec<Waker>,
    /// The shard that drives the connection.
    shard: ShardId,
    /// Number of consecutive requests from other shards.
    far: u32,
    /// The shard that shall drive the connection from now on.
    moves_to: Option<Handle>,
    /// Reason to close the connection once everything is sent.
    closing: Option<Arc<str>>,
    /// Reason why the session is over.
    over: Option<Arc<str>>,
}

/// A waiting task and its shard.
struct Waiting(ShardId, Waker);

impl Waiting {
    fn wake(self) {
        wake_at(self.0, self.1);
    }
}

#[derive(Default)]
struct Slot {
    establishment: Establishment,
    read: Option<Waiting>,
    write: Option<Waiting>,
}

impl Slot {
    fn wake_all(&mut self) {
        [self.read.take(), self.write.take()].into_iter().flatten().for_each(Waiting::wake);
    }
}

/// Work for the driver.
pub(crate) struct Work {
    /// Events of the session, except those of existing streams.
    pub(crate) events: Vec<Event>,
    /// The latest time of the next call.
    pub(crate) deadline: Option<Instant>,
    /// Set when everything was sent and the connection is to be closed, with the reason.
    pub(crate) finished: Option<Arc<str>>,
}

impl Mux {
    pub(crate) fn new(session: Session) -> Arc<Self> {
        let state = State {
            session,
            streams: ByNumber::default(),
            driver: None,
            is_blocked: false,
            is_flushed: true,
            flush_waiters: Vec::new(),
            shard: ShardId::here(),
            far: 0,
            moves_to: None,
            closing: None,
            over: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            is_called: AtomicBool::new(false),
            is_unresponsive: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Runs an action on the session and wakes the driver if there is something to send.
    fn act<T>(&self, action: impl FnOnce(&mut Session) -> T) -> T {
        let mut state = self.lock();
        let result = action(&mut state.session);
        state.wake_driver();
        result
    }

    pub(crate) fn attach(&self, attach: Attach) {
        self.act(|session| session.attach(attach));
    }

    pub(crate) fn detach(&self, tunnel: TunnelId, code: &str, message: &str) {
        self.act(|session| session.detach(tunnel, code, message));
    }

    pub(crate) fn accept_attach(&self, tunnel: TunnelId, url: String, datagrams: bool) {
        self.act(
            |session| {
                if datagrams { session.accept_datagrams(tunnel, url) } else { session.accept_attach(tunnel, url) }
            },
        );
    }

    pub(crate) fn refuse_attach(&self, tunnel: TunnelId, refusal: Refusal) {
        self.act(|session| session.refuse_attach(tunnel, refusal));
    }

    pub(crate) fn refuse(&self, refusal: Refusal) {
        let why = refusal.to_string();
        self.act(|session| session.refuse(refusal));
        self.close(&why);
    }

    pub(crate) fn ask_for_legs(&self, count: u16) {
        self.act(|session| session.ask_for_legs(count));
    }

    pub(crate) fn announce_edges(&self, neighbours: &Neighbours) {
        self.act(|session| session.announce_edges(neighbours));
    }

    pub(crate) fn report_links(&self, links: Vec<LinkReport>) {
        self.act(|session| session.report_links(links));
    }

    pub(crate) fn go_away(&self, code: &str, message: &str) {
        self.act(|session| session.go_away(code, message));
    }

    pub(crate) fn send_request_log(&self, record: &RequestRecord) -> bool {
        self.act(|session| session.send_request_log(record))
    }

    pub(crate) fn send_flow_log(&self, record: &FlowRecord) -> bool {
        self.act(|session| session.send_flow_log(record))
    }

    pub(crate) fn send_health_log(&self, record: &HealthRecord) -> bool {
        self.act(|session| session.send_health_log(record))
    }

    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.lock().session.smoothed_rtt()
    }

    /// Whether the session is over; its last frames may still be unsent.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().session.is_over()
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.lock().session.stream_count()
    }

    /// Whether there is room for a further stream that could have a leg. If a single other shard asks for a while, the
    /// connection moves to that shard: incoming bytes then wake no other thread.
    pub(crate) fn has_room_for_shared(&self) -> bool {
        let here = ShardId::here();
        let mut state = self.lock();
        state.far = if state.shard == here { 0 } else { state.far + 1 };
        if state.far >= MOVES_AFTER
            && here.is_shard()
            && !here.is_for_bulk()
            && let Ok(handle) = Handle::try_current()
        {
            state.far = 0;
            state.moves_to = Some(handle);
            self.is_called.store(true, Ordering::Release);
            state.call_driver();
        }
        state.streams.len() < MAX_SHARED_STREAMS && state.session.has_room()
    }

    /// The shard that shall drive the connection from now on; returned once.
    pub(crate) fn moves_to(&self) -> Option<Handle> {
        if !self.is_called.load(Ordering::Acquire) {
            return None;
        }
        self.is_called.store(false, Ordering::Release);
        self.lock().moves_to.take()
    }

    /// Opens a stream (edge's side).
    pub(crate) fn open(
        self: &Arc<Self>,
        open: Open,
        count: StreamCount,
        establishment: Establishment,
    ) -> Result<MuxStream, OpenError> {
        let mut state = self.lock();
        let id = state.session.open(open)?;
        let slot = Slot { establishment: establishment.clone(), ..Slot::default() };
        state.streams.insert(id, slot);
        state.wake_driver();
        drop(state);
        Ok(MuxStream::new(self.clone(), id, establishment, count))
    }

    /// Accepts a stream that the edge opened (connector's side).
    pub(crate) fn accept(self: &Arc<Self>, id: StreamId, count: StreamCount) -> MuxStream {
        let establishment = self.lock().streams.entry(id).or_default().establishment.clone();
        MuxStream::new(self.clone(), id, establishment, count)
    }

    /// Closes the connection once everything queued is sent.
    pub(crate) fn close(&self, why: &str) {
        let mut state = self.lock();
        state.closing.get_or_insert_with(|| why.into());
        state.call_driver();
    }

    /// Waits until the carrier has taken every queued frame, or the connection is over. Cancel safe.
    pub(crate) async fn flushed(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.over.is_some() || (state.is_flushed && !state.session.wants_transmit()) {
                return Poll::Ready(());
            }
            state.flush_waiters.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Takes output into `out`, if `out` is set, and returns the work for the driver.
    pub(crate) fn take_work(&self, out: Option<&mut Vec<u8>>, max_bytes: usize, waker: &Waker) -> Work {
        let mut state = self.lock();
        if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(waker)) {
            state.driver = Some(waker.clone());
        }
        state.shard = ShardId::here();
        state.is_blocked = out.is_none();
        let sent = out.map(|out| match state.session.wants_transmit() {
            true => state.session.poll_transmit(out, max_bytes, now()),
            // The clock is not read for nothing: every turn ends here.
            false => 0,
        });
        // The driver asks for output only when the carrier has taken the last one.
        if let Some(bytes) = sent {
            state.is_flushed = bytes == 0;
            if state.is_flushed {
                state.flush_waiters.drain(..).for_each(Waker::wake);
            }
        }
        let events = state.take_events();
        let finished = if sent == Some(0) { state.closing.clone() } else { None };
        Work { events, deadline: state.session.poll_timeout().map(|(at, _)| at), finished }
    }

    /// Records that the carrier accepts no data now.
    pub(crate) fn set_blocked(&self) {
        self.lock().is_blocked = true;
    }

    pub(crate) fn handle_input(&self, bytes: &[u8]) -> Result<(), sallyport_wire::Violation> {
        let mut state = self.lock();
        let taken = state.session.handle_input(bytes, now());
        if self.is_unresponsive() {
            self.is_unresponsive.store(state.session.is_unresponsive(), Ordering::Relaxed);
        }
        taken
    }

    /// Probes the peer because a stream waits for its answer.
    pub(crate) fn check_liveness(&self) {
        let mut state = self.lock();
        state.session.check_liveness(now());
        // Also while the carrier accepts no data, because deadlines are earlier from now on.
        state.call_driver();
    }

    /// Whether the peer was probed a second ago and has been silent since.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.is_unresponsive.load(Ordering::Relaxed)
    }

    pub(crate) fn handle_timeout(&self) {
        let mut state = self.lock();
        let now = now();
        if state.session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            state.session.handle_timeout(now);
            self.is_unresponsive.store(state.session.is_unresponsive(), Ordering::Relaxed);
        }
    }

    /// Fails all streams because the carrier ended.
    pub(crate) fn end(&self, why: &str) {
        let mut state = self.lock();
        if state.over.is_some() {
            return;
        }
        state.session.carrier_lost();
        state.over = Some(why.into());
        state.driver = None;
        state.flush_waiters.drain(..).for_each(Waker::wake);
        for slot in state.streams.values_mut() {
            slot.establishment.lose(why);
            slot.wake_all();
        }
        state.streams.clear();
    }
}

impl State {
    /// Wakes the driver if there is something to send and the driver is not running already.
    fn wake_driver(&mut self) {
        if !self.is_blocked && self.driver.is_some() && self.session.wants_transmit() {
            self.call_driver();
        }
    }

    fn call_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            wake_at(self.shard, driver);
        }
    }

    /// Takes the session's events: those of streams wake their users, the others go to the driver.
    fn take_events(&mut self) -> Vec<Event> {
        let mut rest = Vec::new();
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::StreamOpened(id) => {
                    if let Some(slot) = self.streams.get(&id) {
                        slot.establishment.succeed();
                    }
                }
                Event::StreamFailed(id, failure) => {
                    if let Some(slot) = self.streams.get_mut(&id) {
                        slot.establishment.fail(failure);
                        slot.wake_all();
                    }
                }
                Event::StreamReset(id, _) => {
                    if let Some(slot) = self.streams.get_mut(&id) {
                        slot.establishment.lose("the connector reset the stream");
                        slot.wake_all();
                    }
                }
                Event::Readable(id) => {
                    if let Some(waker) = self.streams.get_mut(&id).and_then(|slot| slot.read.take()) {
                        waker.wake();
                    }
                }
                Event::Writable(id) => {
                    if let Some(waker) = self.streams.get_mut(&id).and_then(|slot| slot.write.take()) {
                        waker.wake();
                    }
                }
                Event::StreamClosed(id) => {
                    if let Some(mut slot) = self.streams.remove(&id) {
                        slot.wake_all();
                    }
                }
                Event::StreamOpen(id, open) => {
                    self.streams.insert(id, Slot::default());
                    rest.push(Event::StreamOpen(id, open));
                }
                other => rest.push(other),
            }
        }
        rest
    }

    fn lost(&self) -> Option<io::Error> {
        let why = self.over.as_ref()?;
        Some(io::Error::new(io::ErrorKind::ConnectionReset, format!("the tunnel was lost: {why}")))
    }

    fn error(&self, error: StreamError) -> io::Error {
        let kind = match &error {
            StreamError::Failed(failure) => {
                return io::Error::new(io::ErrorKind::ConnectionRefused, failure.clone());
            }
            StreamError::Down => match self.lost() {
                Some(lost) => return lost,
                None => io::ErrorKind::ConnectionReset,
            },
            StreamError::Reset(_) => io::ErrorKind::ConnectionReset,
            StreamError::Closed | StreamError::Finished => io::ErrorKind::BrokenPipe,
            StreamError::NotOpened => io::ErrorKind::NotConnected,
        };
        io::Error::new(kind, error)
    }
}

/// One stream multiplexed on a control connection.
pub(crate) struct MuxStream {
    mux: Arc<Mux>,
    id: StreamId,
    establishment: Establishment,
    read_ended: bool,
    finished: bool,
    count: Option<StreamCount>,
}

impl MuxStream {
    fn new(mux: Arc<Mux>, id: StreamId, establishment: Establishment, count: StreamCount) -> Self {
        let count = Some(count);
        Self { mux, id, establishment, read_ended: false, finished: false, count }
    }

    /// Sets the client to which the stream is counted.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        if let Some(count) = &mut self.count {
            count.set_client(client);
        }
    }

    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    pub(crate) fn send_opened(&mut self) {
        self.mux.act(|session| session.opened(self.id));
        self.establishment.succeed();
    }

    pub(crate) fn send_failed(mut self, failure: OpenFailure) {
        self.finished = true;
        self.read_ended = true;
        self.mux.act(|session| session.failed(self.id, failure));
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read_ended || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.mux.lock();
        match state.session.read_to(self.id, buf.remaining(), now, |bytes| buf.put_slice(bytes)) {
            Ok(Read::Bytes(_)) => {
                state.wake_driver();
                Poll::Ready(Ok(()))
            }
            Ok(Read::Blocked) => {
                if let Some(error) = state.lost() {
                    return Poll::Ready(Err(error));
                }
                if let Some(slot) = state.streams.get_mut(&self.id) {
                    remember(&mut slot.read, cx);
                }
                Poll::Pending
            }
            Ok(Read::End) => {
                self.read_ended = true;
                state.wake_driver();
                drop(state);
                self.settle();
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(state.error(error))),
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut state = self.mux.lock();
        if let Some(error) = state.lost() {
            return Poll::Ready(Err(error));
        }
        match state.session.write(self.id, data) {
            Ok(0) => {
                if let Some(slot) = state.streams.get_mut(&self.id) {
                    remember(&mut slot.write, cx);
                }
                Poll::Pending
            }
            Ok(n) => {
                state.wake_driver();
                Poll::Ready(Ok(n))
            }
            Err(error) => Poll::Ready(Err(state.error(error))),
        }
    }

    /// Like [`Self::poll_write`], one slice after the other.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            match self.poll_write(cx, buf) {
                Poll::Ready(Ok(n)) => {
                    taken += n;
                    if n < buf.len() {
                        break;
                    }
                }
                // Accepted bytes count; the next write meets the error again.
                Poll::Ready(Err(_)) | Poll::Pending if taken > 0 => break,
                other => return other,
            }
        }
        Poll::Ready(Ok(taken))
    }

    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !self.read_ended || self.finished {
            return Poll::Pending;
        }
        let mut state = self.mux.lock();
        if let Some(error) = state.lost() {
            return Poll::Ready(error);
        }
        if let Some(error) = state.session.write_error(self.id) {
            return Poll::Ready(state.error(error));
        }
        if let Some(slot) = state.streams.get_mut(&self.id) {
            remember(&mut slot.read, cx);
        }
        Poll::Pending
    }

    pub(crate) fn poll_flush(&mut self) -> Poll<io::Result<()>> {
        Poll::Ready(match self.mux.lock().lost() {
            Some(error) if !(self.finished && self.read_ended) => Err(error),
            _ => Ok(()),
        })
    }

    pub(crate) fn poll_shutdown(&mut self) -> Poll<io::Result<()>> {
        if !self.finished {
            self.finished = true;
            self.mux.act(|session| session.finish(self.id));
            self.settle();
        }
        self.poll_flush()
    }

    /// Resets the stream, unless it is over.
    pub(crate) fn reset(&mut self, code: ResetCode) {
        let mut state = self.mux.lock();
        if state.over.is_none() && !(self.finished && self.read_ended) {
            state.session.reset(self.id, code);
            state.wake_driver();
        }
        state.streams.remove(&self.id);
        drop(state);
        self.finished = true;
        self.read_ended = true;
        self.establishment.lose("the stream was reset");
        self.count = None;
    }

    /// Stops counting a stream that ended in both directions.
    fn settle(&mut self) {
        if self.finished && self.read_ended {
            self.count = None;
        }
    }
}

impl Drop for MuxStream {
    fn drop(&mut self) {
        self.reset(ResetCode::Cancelled);
    }
}

fn remember(slot: &mut Option<Waiting>, cx: &Context<'_>) {
    let here = ShardId::here();
    if !slot.as_ref().is_some_and(|Waiting(shard, waker)| *shard == here && waker.will_wake(cx.waker())) {
        *slot = Some(Waiting(here, cx.waker().clone()));
    }
}
