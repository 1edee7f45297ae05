//! Another edge, as this one knows it: where it is, the link to it, how far away it is.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use sallyport_bus::{EdgeCard, EdgeState};
use sallyport_model::{EdgeId, EdgeName};
use sallyport_tunnel::{EdgeLink, SessionId};

/// For how long an edge that was not reached is passed over where another one will do.
const MAX_DOUBT: Duration = Duration::from_secs(10);

/// Another edge.
pub(crate) struct Peer {
    edge: EdgeId,
    card: RwLock<Arc<EdgeCard>>,
    state: Mutex<State>,
    /// Whoever wants a link waits for whoever makes it.
    pub(crate) dialing: tokio::sync::Mutex<()>,
    /// A task makes one that nobody waits for.
    pub(crate) is_wanted: AtomicBool,
}

#[derive(Default)]
struct State {
    link: Option<EdgeLink>,
    /// When the link was last seen in use.
    used: Option<Instant>,
    /// Since when it is not reached, when it was last tried, and why it failed.
    failed: Option<Failed>,
    /// The round trip of a connection, and when it was measured.
    measured: Option<(Option<Duration>, Instant)>,
}

#[derive(Clone)]
struct Failed {
    since: Instant,
    last: Instant,
    why: Arc<str>,
}

impl Peer {
    pub(crate) fn new(card: Arc<EdgeCard>) -> Self {
        Self {
            edge: card.edge,
            card: RwLock::new(card),
            state: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            is_wanted: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn card(&self) -> Arc<EdgeCard> {
        self.card.read().clone()
    }

    /// What the edge says of itself now.
    pub(crate) fn says(&self, card: &Arc<EdgeCard>) {
        let is_known = *self.card.read() == *card;
        if !is_known {
            *self.card.write() = card.clone();
        }
    }

    pub(crate) fn edge(&self) -> EdgeId {
        self.edge
    }

    pub(crate) fn name(&self) -> EdgeName {
        self.card().name.clone()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.card().addresses.clone()
    }

    /// The link, when there is one that takes streams.
    pub(crate) fn link(&self) -> Option<EdgeLink> {
        self.state().link.clone().filter(EdgeLink::is_usable)
    }

    pub(crate) fn set_link(&self, link: EdgeLink) {
        let mut state = self.state();
        (state.link, state.used, state.failed) = (Some(link), Some(Instant::now()), None);
    }

    /// The link with this session is over.
    pub(crate) fn clear_link(&self, session: SessionId) {
        self.state().link.take_if(|link| link.session() == session);
    }

    /// The link, when nothing has used it for so long.
    pub(crate) fn idle_link(&self, longer_than: Duration) -> Option<EdgeLink> {
        let mut state = self.state();
        let link = state.link.clone()?;
        let now = Instant::now();
        if link.in_use() > 0 {
            state.used = Some(now);
        }
        state.used.is_none_or(|used| now.saturating_duration_since(used) > longer_than).then_some(link)
    }

    /// It was not reached.
    pub(crate) fn record_failure(&self, why: &str) {
        let now = Instant::now();
        let mut state = self.state();
        let since = state.failed.as_ref().map_or(now, |failed| failed.since);
        state.failed = Some(Failed { since, last: now, why: why.into() });
    }

    /// Why it was not reached, when it was tried at that time or later.
    pub(crate) fn failed_since(&self, asked: Instant) -> Option<Arc<str>> {
        self.state().failed.as_ref().filter(|failed| failed.last >= asked).map(|failed| failed.why.clone())
    }

    /// For how long it is not reached, when it was tried of late.
    pub(crate) fn unreached_for(&self) -> Option<Duration> {
        let failed = self.state().failed.clone().filter(|failed| failed.last.elapsed() < MAX_DOUBT)?;
        Some(failed.since.elapsed())
    }

    /// Whether another edge had better be asked: this one was not reached of late, does not say that it is there, or is being
    /// emptied.
    pub(crate) fn is_doubtful(&self) -> bool {
        let is_silent = || self.state().link.as_ref().is_some_and(EdgeLink::is_doubtful);
        self.card().state != EdgeState::Serving || self.unreached_for().is_some() || is_silent()
    }

    /// The round trip to it: over its link, else of the connection that was made to measure it.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let state = self.state();
        let of_link = state.link.as_ref().and_then(EdgeLink::smoothed_rtt);
        of_link.or_else(|| state.measured.and_then(|(round_trip, _)| round_trip))
    }

    /// Whether the round trip is to be measured, because no link does it and the last time is so long ago.
    pub(crate) fn wants_measure(&self, older_than: Duration) -> bool {
        let state = self.state();
        state.link.is_none() && state.measured.is_none_or(|(_, at)| at.elapsed() > older_than)
    }

    pub(crate) fn record_round_trip(&self, round_trip: Option<Duration>) {
        self.state().measured = Some((round_trip, Instant::now()));
    }

    pub(crate) fn has_link(&self) -> bool {
        self.state().link.is_some()
    }

    /// Whether nobody makes a link yet; from here on somebody does.
    pub(crate) fn begins_linking(&self) -> bool {
        !self.is_wanted.swap(true, Ordering::AcqRel)
    }
}
