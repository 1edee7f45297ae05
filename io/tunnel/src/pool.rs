//! The edge's legs of one session: the idle ones, and the number to keep.

use std::{
    future::poll_fn,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_shards::{ShardId, spawn_near};
use sallyport_wire::LegDemand;
use tokio::runtime::Handle;

use crate::{leg::Leg, leg_stream::LegHome, life::LegRegistry, mux::now};

/// Time after which requested legs that have not arrived no longer count.
const REQUEST_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// Delay of a stream's terminal frame, which may travel with the opening of the next stream on its leg. Consecutive
/// streams save a packet each; no peer waits for the frame, because the peer has sent its own.
const TERMINAL_FRAME_DELAY: Duration = Duration::from_millis(1);
/// Timeout of sending a terminal frame that does not leave at once.
const TERMINAL_FRAME_TIMEOUT: Duration = Duration::from_secs(2);

/// The legs of one session at the edge.
pub(crate) struct LegPool {
    /// All legs, busy and idle.
    pub(crate) registry: Arc<LegRegistry>,
    max_legs: usize,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The last one is the most recently used.
    idle: Vec<Leg>,
    demand: LegDemand,
    requested: usize,
    requested_at: Instant,
    /// Whether a task waits to send terminal frames.
    is_sending: bool,
}

impl LegPool {
    pub(crate) fn new(ready_legs: usize, max_legs: usize) -> Self {
        let demand = LegDemand::new(ready_legs, max_legs);
        Self {
            registry: Arc::default(),
            max_legs,
            inner: Mutex::new(Inner { idle: Vec::new(), demand, requested: 0, requested_at: now(), is_sending: false }),
        }
    }

    pub(crate) fn max_legs(&self) -> usize {
        self.max_legs
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.lock().idle.len()
    }

    /// Counts the legs that the connector opens by itself when a tunnel is attached.
    pub(crate) fn expect_first_legs(&self) {
        let mut inner = self.lock();
        inner.requested = usize::from(inner.demand.at_start());
        inner.requested_at = now();
    }

    /// Takes an idle leg for a new stream, preferably one of the caller's shard. Also returns how many legs to request
    /// from the connector.
    pub(crate) fn take(&self) -> (Option<Leg>, u16) {
        let mut dead = Vec::new();
        let mut inner = self.lock();
        let mut leg = None;
        let here = ShardId::here();
        while let Some(last) = inner.idle.len().checked_sub(1) {
            let nearest = inner.idle.iter().rposition(|leg| leg.shard() == here).unwrap_or(last);
            let mut candidate = inner.idle.remove(nearest);
            if candidate.is_alive() {
                leg = Some(candidate);
                break;
            }
            dead.push(candidate);
        }
        let idle_before = inner.idle.len() + usize::from(leg.is_some());
        let open_total = self.registry.len().saturating_sub(dead.len());
        let now = inner.forget_old_requests();
        let requested = inner.requested;
        let ask = inner.demand.on_open(idle_before, open_total, requested, now);
        inner.ask(ask, now);
        drop(inner);
        (leg, ask)
    }

    /// Adds a leg that joined.
    pub(crate) fn joined(&self, leg: Leg) {
        let mut inner = self.lock();
        inner.requested = inner.requested.saturating_sub(1);
        inner.idle.push(leg);
    }

    /// Closes legs that died or are too many; returns how many to request instead.
    pub(crate) fn tend(&self) -> u16 {
        let mut gone = Vec::new();
        let mut inner = self.lock();
        let mut kept = Vec::with_capacity(inner.idle.len());
        for mut leg in std::mem::take(&mut inner.idle) {
            if leg.is_alive() { kept.push(leg) } else { gone.push(leg) }
        }
        inner.idle = kept;
        let died = gone.len();
        let now = inner.forget_old_requests();
        let open_total = self.registry.len().saturating_sub(died);
        let idle = inner.idle.len();
        let excess = inner.demand.on_timeout(idle, open_total, now).min(idle);
        // The legs at the front were unused for the longest time.
        gone.extend(inner.idle.drain(..excess));
        let requested = inner.requested;
        let ask = if died > 0 { inner.demand.on_leg_lost(open_total - excess, requested, now) } else { 0 };
        inner.ask(ask, now);
        drop(inner);
        flush_terminal_frames(&mut gone);
        ask
    }

    /// Closes the idle legs. Busy legs fail, or after a `clean` end of the session finish their streams.
    pub(crate) fn close(&self, clean: bool) {
        if clean {
            self.registry.retire();
        } else {
            self.registry.end_all();
        }
        let mut idle = std::mem::take(&mut self.lock().idle);
        flush_terminal_frames(&mut idle);
        drop(idle);
    }

    /// After [`TERMINAL_FRAME_DELAY`], sends the terminal frames that did not travel with an opening.
    async fn send_terminal_frames(self: Arc<Self>) {
        tokio::time::sleep(TERMINAL_FRAME_DELAY).await;
        let mut slow = Vec::new();
        let mut inner = self.lock();
        inner.is_sending = false;
        for mut leg in std::mem::take(&mut inner.idle) {
            match leg.flush_now() {
                Poll::Ready(Ok(())) => inner.idle.push(leg),
                Poll::Ready(Err(_)) => {}
                Poll::Pending => slow.push(leg),
            }
        }
        drop(inner);
        for mut leg in slow {
            let pool = self.clone();
            tokio::spawn(async move {
                let sent = tokio::time::timeout(TERMINAL_FRAME_TIMEOUT, poll_fn(|cx| leg.poll_flush(cx))).await;
                if let Ok(Ok(())) = sent {
                    pool.take_back(leg);
                }
            });
        }
    }
}

/// Sends the queued terminal frames of these legs as far as possible without waiting.
fn flush_terminal_frames(legs: &mut [Leg]) {
    for leg in legs {
        // The leg is closed in any case, which also ends the stream.
        drop(leg.flush_now());
    }
}

impl Inner {
    fn forget_old_requests(&mut self) -> Instant {
        let now = now();
        if now.saturating_duration_since(self.requested_at) > REQUEST_FORGOTTEN_AFTER {
            self.requested = 0;
        }
        now
    }

    fn ask(&mut self, count: u16, now: Instant) {
        if count > 0 {
            self.requested += usize::from(count);
            self.requested_at = now;
        }
    }
}

impl LegHome for LegPool {
    fn take_back(self: Arc<Self>, mut leg: Leg) {
        leg.was_used_here();
        let has_unsent = leg.has_unsent();
        let mut inner = self.lock();
        // Checked under the lock, which `close` takes after ending the registry.
        if self.registry.is_over() {
            drop(inner);
            flush_terminal_frames(std::slice::from_mut(&mut leg));
            return;
        }
        inner.idle.push(leg);
        // Streams end where there is a runtime. At the runtime's own end nothing can be sent any more.
        if has_unsent && !inner.is_sending && Handle::try_current().is_ok() {
            inner.is_sending = true;
            drop(inner);
            spawn_near(self.send_terminal_frames());
        }
    }

    fn sends_terminal_frames(&self) -> bool {
        true
    }
}
