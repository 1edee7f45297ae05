//! Another edge, as this one knows it: its card, the link to it, and the round trip.

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

/// For how long an unreachable edge is avoided if another one will do.
const FAILURE_TTL: Duration = Duration::from_secs(10);

/// Another edge.
pub(crate) struct Peer {
    edge: EdgeId,
    card: RwLock<Arc<EdgeCard>>,
    state: Mutex<State>,
    /// Locked by the task that makes a link; others wait for the result.
    pub(crate) dialing: tokio::sync::Mutex<()>,
    /// A task makes a link without a caller that waits.
    pub(crate) is_wanted: AtomicBool,
}

#[derive(Default)]
struct State {
    link: Option<EdgeLink>,
    /// When the link was last seen in use.
    used: Option<Instant>,
    /// The last failure: since when, last tried when, and why.
    failed: Option<Failed>,
    /// Since when the edge has neither a link nor a lease.
    absent_since: Option<Instant>,
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

    /// The last known card.
    pub(crate) fn card(&self) -> Arc<EdgeCard> {
        self.card.read().clone()
    }

    /// Sets the card of the edge.
    pub(crate) fn set_card(&self, card: &Arc<EdgeCard>) {
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

    /// The link, if there is one that takes streams.
    pub(crate) fn link(&self) -> Option<EdgeLink> {
        self.state().link.clone().filter(EdgeLink::is_usable)
    }

    pub(crate) fn set_link(&self, link: EdgeLink) {
        let mut state = self.state();
        (state.link, state.used, state.failed) = (Some(link), Some(Instant::now()), None);
    }

    /// The link of this session ended.
    pub(crate) fn clear_link(&self, session: SessionId) {
        self.state().link.take_if(|link| link.session() == session);
    }

    /// The link, if it was unused for this long.
    pub(crate) fn idle_link(&self, longer_than: Duration) -> Option<EdgeLink> {
        let mut state = self.state();
        let link = state.link.clone()?;
        let now = Instant::now();
        if link.in_use() > 0 {
            state.used = Some(now);
        }
        state.used.is_none_or(|used| now.saturating_duration_since(used) > longer_than).then_some(link)
    }

    /// Records whether the edge has a link or a lease. Returns for how long it has had neither.
    pub(crate) fn record_presence(&self, is_there: bool) -> Duration {
        let mut state = self.state();
        state.absent_since = (!is_there).then(|| state.absent_since.unwrap_or_else(Instant::now));
        state.absent_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Records that the edge could not be reached.
    pub(crate) fn record_failure(&self, why: &str) {
        let now = Instant::now();
        let mut state = self.state();
        let since = state.failed.as_ref().map_or(now, |failed| failed.since);
        state.failed = Some(Failed { since, last: now, why: why.into() });
    }

    /// Why the edge could not be reached, if that was tried at this time or later.
    pub(crate) fn failed_since(&self, at: Instant) -> Option<Arc<str>> {
        self.state().failed.as_ref().filter(|failed| failed.last >= at).map(|failed| failed.why.clone())
    }

    /// For how long the edge has been unreachable, if that was tried lately.
    pub(crate) fn unreached_for(&self) -> Option<Duration> {
        let failed = self.state().failed.clone().filter(|failed| failed.last.elapsed() < FAILURE_TTL)?;
        Some(failed.since.elapsed())
    }

    /// Whether another edge is preferable: this one was unreachable lately, does not report, or drains.
    pub(crate) fn is_unresponsive(&self) -> bool {
        let is_silent = || self.state().link.as_ref().is_some_and(EdgeLink::is_unresponsive);
        self.card().state != EdgeState::Serving || self.unreached_for().is_some() || is_silent()
    }

    /// The round trip: that of the link, else that of the last measuring connection.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let state = self.state();
        let of_link = state.link.as_ref().and_then(EdgeLink::smoothed_rtt);
        of_link.or_else(|| state.measured.and_then(|(round_trip, _)| round_trip))
    }

    /// The round trip of the link, if there is one.
    pub(crate) fn link_round_trip(&self) -> Option<Duration> {
        self.state().link.as_ref().filter(|link| link.is_usable()).and_then(EdgeLink::smoothed_rtt)
    }

    /// Whether the round trip is due to be measured: no link measures it, and the last measurement is older than this.
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

    /// Marks that a link is being made. Returns false if that was marked before.
    pub(crate) fn begins_linking(&self) -> bool {
        !self.is_wanted.swap(true, Ordering::AcqRel)
    }
}
