//! The limits of one socket: concurrent flows, flows a second, bytes a second, and a queue for flows beyond.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_balance::limits::{MAX_PER_SECOND, Outcome, Queue, QueueConfig, RateLimit, Ticket, TokenBucket};
use sallyport_model::Limits;
use sallyport_net::Pace;
use tokio::{sync::oneshot, time::Sleep};

/// How long a flow waits in the queue.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The limits of one socket, and their use.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// Whether flows are limited; if not, no lock is taken.
    counts_flows: AtomicBool,
    /// Whether bytes are limited.
    counts_bytes: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    limits: Limits,
    /// Kept when its limit is removed, because running flows still release their places.
    places: Option<Queue>,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
    flows: Option<TokenBucket>,
    bytes: Option<TokenBucket>,
}

/// There is no room now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// After how long another try may succeed.
    pub(crate) retry_after: Duration,
}

/// The place of one flow, released when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Bounds>);

impl Bounds {
    /// Sets the limits. Running flows continue.
    pub(crate) fn set(&self, limits: Limits) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.limits == limits {
            return;
        }
        let waits = limits.queue.map_or(0, |queue| queue as usize);
        let config = match limits.max_connections {
            Some(max) if waits > 0 => QueueConfig { max_at_once: max as usize, max_waiting: waits, max_wait: MAX_WAIT },
            Some(max) => QueueConfig::refusing(max as usize),
            None => QueueConfig::refusing(usize::MAX),
        };
        match &mut state.places {
            Some(places) => places.set_config(config),
            None if limits.max_connections.is_some() => state.places = Some(Queue::new(config)),
            None => {}
        }
        let bucket = |old: Option<TokenBucket>, per_second: Option<u64>| {
            let limit = per_second.and_then(|n| RateLimit::new(n.min(MAX_PER_SECOND), n.min(MAX_PER_SECOND)).ok())?;
            Some(old.filter(|bucket| bucket.limit() == limit).unwrap_or_else(|| TokenBucket::new(limit, now)))
        };
        state.flows = bucket(state.flows.take(), limits.requests_per_second.map(u64::from));
        state.bytes = bucket(state.bytes.take(), limits.bytes_per_second);
        state.limits = limits;
        self.counts_flows.store(state.flows.is_some() || limits.max_connections.is_some(), Ordering::Relaxed);
        self.counts_bytes.store(state.bytes.is_some(), Ordering::Relaxed);
        while let Some(ticket) = state.places.as_mut().and_then(|places| places.admit_next(now)) {
            state.call(ticket);
        }
    }

    /// A place for one more flow, perhaps after a wait in the queue. `None` without a limit.
    ///
    /// # Errors
    /// There is no room, and the queue is full or too slow.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Option<Place>, Full> {
        if !self.counts_flows.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Box::pin(self.enter_counted()).await
    }

    async fn enter_counted(self: &Arc<Self>) -> Result<Option<Place>, Full> {
        let place = self.take_place().await?;
        let turn = {
            let mut state = self.lock();
            let max_waiting = state.limits.queue.map_or(0, |queue| queue as usize);
            let max_wait = if max_waiting > 0 { MAX_WAIT } else { Duration::ZERO };
            state.flows.as_mut().map(|flows| flows.reserve(1, Instant::now(), max_wait, max_waiting))
        };
        match turn {
            None | Some(Outcome::Admit) => {}
            Some(Outcome::Wait(until)) => tokio::time::sleep_until(until.into()).await,
            Some(Outcome::Refuse { retry_after }) => return Err(Full { retry_after }),
        }
        Ok(place)
    }

    /// A place for one more flow, without waiting. A flow that the rate limit refuses is not charged. If all places are
    /// taken, `make_way` may release one.
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn enter_now(self: &Arc<Self>, make_way: impl FnOnce() -> bool) -> Result<Option<Place>, Full> {
        if !self.counts_flows.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(flows) = &mut self.lock().flows {
            flows.take(1, Instant::now()).map_err(|retry_after| Full { retry_after })?;
        }
        match self.take_free_place() {
            Err(_) if make_way() => self.take_free_place(),
            place => place,
        }
    }

    fn take_free_place(self: &Arc<Self>) -> Result<Option<Place>, Full> {
        let mut state = self.lock();
        let Some(places) = &mut state.places else { return Ok(None) };
        match places.arrive(Instant::now()) {
            Outcome::Admit => Ok(Some(Place(self.clone()))),
            Outcome::Refuse { retry_after } => Err(Full { retry_after }),
            Outcome::Wait(ticket) => {
                places.give_up(ticket);
                Err(Full { retry_after: MAX_WAIT })
            }
        }
    }

    async fn take_place(self: &Arc<Self>) -> Result<Option<Place>, Full> {
        let (mut waiting, called) = {
            let mut state = self.lock();
            match state.places.as_mut().map(|places| places.arrive(Instant::now())) {
                None => return Ok(None),
                Some(Outcome::Admit) => return Ok(Some(Place(self.clone()))),
                Some(Outcome::Refuse { retry_after }) => return Err(Full { retry_after }),
                Some(Outcome::Wait(ticket)) => {
                    let (sender, called) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    (Waiting { bounds: self, ticket, is_admitted: false }, called)
                }
            }
        };
        match tokio::time::timeout_at(waiting.ticket.until.into(), called).await {
            Ok(Ok(())) => {
                waiting.is_admitted = true;
                Ok(Some(Place(self.clone())))
            }
            _ => Err(Full { retry_after: MAX_WAIT }),
        }
    }

    fn leave(&self) {
        let mut state = self.lock();
        if let Some(ticket) = state.places.as_mut().and_then(|places| places.leave(Instant::now())) {
            state.call(ticket);
        }
    }

    /// Charges this many bytes.
    fn charge(&self, bytes: usize) {
        if let Some(bucket) = &mut self.lock().bytes {
            bucket.charge(bytes as u64, Instant::now());
        }
    }

    /// How long until the rate limit covers the charged bytes.
    fn owed(&self) -> Duration {
        self.lock().bytes.as_mut().map_or(Duration::ZERO, |bucket| bucket.charge(0, Instant::now()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Gives a place to a flow that waits. If the flow has just gone, its [`Waiting`] releases the place.
    fn call(&mut self, ticket: Ticket) {
        if let Some(sender) = self.waiting.remove(&ticket) {
            let _ = sender.send(());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A flow that waits in the queue.
struct Waiting<'a> {
    bounds: &'a Bounds,
    ticket: Ticket,
    is_admitted: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_admitted {
            return;
        }
        let waited_still = {
            let mut state = self.bounds.lock();
            state.waiting.remove(&self.ticket);
            state.places.as_mut().is_none_or(|places| places.give_up(self.ticket))
        };
        if !waited_still {
            self.bounds.leave();
        }
    }
}

/// Counts the bytes of one flow, and delays them while the limit is exceeded.
#[derive(Debug)]
pub(crate) struct Meter {
    bounds: Arc<Bounds>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Meter {
    /// For a flow of the socket with these limits.
    pub(crate) fn new(bounds: Arc<Bounds>) -> Self {
        Self { bounds, pause: None }
    }
}

impl Clone for Meter {
    fn clone(&self) -> Self {
        Self::new(self.bounds.clone())
    }
}

impl Pace for Meter {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            if !self.bounds.counts_bytes.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            // Other flows may have been charged meanwhile.
            let owed = self.bounds.owed();
            if owed.is_zero() {
                return Poll::Ready(());
            }
            self.pause = Some(Box::pin(tokio::time::sleep(owed)));
        }
    }

    fn moved(&mut self, bytes: usize) {
        if self.bounds.counts_bytes.load(Ordering::Relaxed) {
            self.bounds.charge(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(limits: Limits) -> Arc<Bounds> {
        let bounds = Arc::new(Bounds::default());
        bounds.set(limits);
        bounds
    }

    #[tokio::test]
    async fn a_request_without_a_place_waits_in_the_queue_or_is_refused() {
        let bounds = bounds(Limits { max_connections: Some(1), queue: Some(1), ..Limits::default() });
        let first = bounds.enter().await.unwrap();
        let second = tokio::spawn({
            let bounds = bounds.clone();
            async move { bounds.enter().await }
        });
        tokio::task::yield_now().await;
        assert_eq!(bounds.enter().await.unwrap_err().retry_after, MAX_WAIT, "the queue is full");
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(second.is_some());
        drop(second);
        assert!(bounds.enter().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_no_entry_in_the_queue() {
        let bounds = bounds(Limits { max_connections: Some(1), queue: Some(5), ..Limits::default() });
        let first = bounds.enter().await.unwrap();
        let gone = tokio::spawn({
            let bounds = bounds.clone();
            async move { drop(bounds.enter().await) }
        });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        assert!(bounds.lock().waiting.is_empty());
        drop(first);
        assert!(bounds.enter().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_refused_attempt_without_waiting_uses_no_rate() {
        let bounds = bounds(Limits { requests_per_second: Some(1), queue: Some(1_000), ..Limits::default() });
        assert!(bounds.enter_now(|| false).is_ok());
        for _ in 0..100 {
            assert!(bounds.enter_now(|| false).unwrap_err().retry_after <= Duration::from_secs(1));
        }
        assert_eq!(bounds.lock().places.as_ref().map_or(0, Queue::waiting), 0);
    }

    #[tokio::test]
    async fn an_attempt_without_waiting_takes_a_place_that_another_releases() {
        let bounds = bounds(Limits { max_connections: Some(1), queue: Some(5), ..Limits::default() });
        let mut first = bounds.enter_now(|| panic!("there is room")).unwrap();
        assert!(bounds.enter_now(|| false).is_err());
        let second = bounds.enter_now(|| first.take().is_some());
        assert!(second.unwrap().is_some());
        assert_eq!(bounds.lock().places.as_ref().map_or(0, Queue::waiting), 0);
    }

    #[tokio::test]
    async fn places_survive_a_change_of_their_bound() {
        let bounds = bounds(Limits { max_connections: Some(2), ..Limits::default() });
        let (_first, second) = (bounds.enter().await.unwrap(), bounds.enter().await.unwrap());
        bounds.set(Limits::default());
        assert!(bounds.enter().await.unwrap().is_none(), "no bound, no place");
        bounds.set(Limits { max_connections: Some(1), ..Limits::default() });
        assert!(bounds.enter().await.is_err());
        drop(second);
        assert!(bounds.enter().await.is_err(), "the first is still there");
    }
}
