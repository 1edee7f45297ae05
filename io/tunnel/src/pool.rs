//! The edge's legs of one session: the idle ones, and how many there should be.

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

/// After how long legs that were asked for and did not come are forgotten.
const REQUEST_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// How long the last word of a stream waits for the opening of the next one on its leg, to travel with it. Where streams
/// follow one another this saves a packet for each; nobody waits for that word, since the other side has said its own.
const LAST_WORD_TIME: Duration = Duration::from_millis(1);
/// How long a last word that does not leave at once may take.
const LAST_WORD_SEND_TIME: Duration = Duration::from_secs(2);

/// The legs of one session at the edge.
pub(crate) struct LegPool {
    /// All of them, busy and idle.
    pub(crate) registry: Arc<LegRegistry>,
    max_legs: usize,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The most recently used one is the last.
    idle: Vec<Leg>,
    demand: LegDemand,
    requested: usize,
    requested_at: Instant,
    /// A task waits to send last words.
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

    /// The connector opens its first legs by itself when a tunnel is attached.
    pub(crate) fn expect_first_legs(&self) {
        let mut inner = self.lock();
        inner.requested = usize::from(inner.demand.at_start());
        inner.requested_at = now();
    }

    /// An idle leg for a new stream, when there is one, from the caller's shard if that has one, and how many more to ask
    /// the connector for.
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

    /// A leg joined.
    pub(crate) fn joined(&self, leg: Leg) {
        let mut inner = self.lock();
        inner.requested = inner.requested.saturating_sub(1);
        inner.idle.push(leg);
    }

    /// Closes legs that died or that are too many; says how many to ask for instead.
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
        // Those at the front were not used for the longest time.
        gone.extend(inner.idle.drain(..excess));
        let requested = inner.requested;
        let ask = if died > 0 { inner.demand.on_leg_lost(open_total - excess, requested, now) } else { 0 };
        inner.ask(ask, now);
        drop(inner);
        say_last_words(&mut gone);
        ask
    }

    /// Closes the idle legs. The busy ones fail, or after a `clean` end of the session come to their own.
    pub(crate) fn close(&self, clean: bool) {
        if clean {
            self.registry.retire();
        } else {
            self.registry.end_all();
        }
        let mut idle = std::mem::take(&mut self.lock().idle);
        say_last_words(&mut idle);
        drop(idle);
    }

    /// After a while, sends the last words that did not travel with an opening.
    async fn send_last_words(self: Arc<Self>) {
        tokio::time::sleep(LAST_WORD_TIME).await;
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
                let sent = tokio::time::timeout(LAST_WORD_SEND_TIME, poll_fn(|cx| leg.poll_flush(cx))).await;
                if let Ok(Ok(())) = sent {
                    pool.take_back(leg);
                }
            });
        }
    }
}

/// Sends what the streams of these legs still have to say, as far as that can be done at once.
fn say_last_words(legs: &mut [Leg]) {
    for leg in legs {
        // It is closed anyway: who does not hear the word hears that.
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
        // Looked at under the lock, which `close` takes after it has ended the registry.
        if self.registry.is_over() {
            drop(inner);
            say_last_words(std::slice::from_mut(&mut leg));
            return;
        }
        inner.idle.push(leg);
        // Streams end where there is a runtime; at its own end nobody hears anything any more.
        if has_unsent && !inner.is_sending && Handle::try_current().is_ok() {
            inner.is_sending = true;
            drop(inner);
            spawn_near(self.send_last_words());
        }
    }

    fn sends_last_words(&self) -> bool {
        true
    }
}
