//! The association: datagrams, paths and packets together. Uses all other rooms.

mod interface;
mod receive;
mod transmit;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

pub use self::interface::{AddPathError, Arrival, Config, Counts, Event, Refused, SendError, Setup, Transmit};
use crate::{
    packet::{AssociationId, Data, Opener, PathId, Sealer, Side, Status},
    path::{Content, Path, PathSettings, PathState, PathStats, Piece},
    reorder::Reorder,
};

/// The greatest datagram, in bytes.
const MAX_DATAGRAM_BYTES: usize = 65_535;
/// Paths that an association has at one time.
pub(crate) const MAX_PATHS: usize = 16;
/// Removed paths of which the peer is still told.
const MAX_FAREWELLS: usize = 64;
/// Removed paths that are told apart. Of those before, none opens any more.
const MAX_REMOVED: usize = 1024;
/// Bytes in flight on all paths. A peer that acknowledges what it never got cannot make the windows greater.
const MAX_IN_FLIGHT_BYTES: u64 = 64 << 20;
/// What the queue may hold at the rate of all paths, besides what slow paths need (see `schedule`).
const QUEUE_TIME: Duration = Duration::from_millis(40);
/// What the queue holds at any rate.
const MIN_QUEUE_BYTES: usize = 128 << 10;
/// What a datagram in the queue costs besides its bytes.
const ENTRY_BYTES: usize = 64;

/// One end of an association.
///
/// The driver calls these, in any order:
/// - [`send`](Self::send) with datagrams, until it is refused for want of room;
/// - [`handle`](Self::handle) with each packet that came by UDP;
/// - [`handle_timeout`](Self::handle_timeout) once [`poll_timeout`](Self::poll_timeout) has passed;
/// - afterwards [`poll_transmit`](Self::poll_transmit), [`receive`](Self::receive) and
///   [`poll_event`](Self::poll_event) until each has nothing more, then `poll_timeout`.
///
/// `now` is of a monotonic clock.
pub struct Association {
    config: Config,
    side: Side,
    local: AssociationId,
    remote: AssociationId,
    sealer: Sealer,
    opener: Opener,
    paths: BTreeMap<PathId, Path>,
    /// The next path that the connector adds; `None` once all numbers were used.
    next_path: Option<u16>,
    /// Paths that were removed, which no late packet opens again.
    removed: BTreeSet<PathId>,
    /// Paths below this one do not open any more.
    removed_below: u16,
    farewells: BTreeMap<PathId, Status>,
    /// Paths of whose status the peer has to be told.
    status_due: BTreeSet<PathId>,
    next_sequence: u64,
    queue: VecDeque<Piece>,
    queue_bytes: usize,
    /// What was lost and is sent again, the oldest first.
    again: BTreeMap<(u64, u16), Piece>,
    /// When the pace of a path allows the next datagram.
    pace_at: Option<Instant>,
    was_refused: bool,
    reorder: Reorder,
    events: VecDeque<Event>,
    counts: Counts,
    /// The paths that still have to tell the peer of the end.
    closing: Option<BTreeSet<PathId>>,
    is_closed: bool,
}

impl Association {
    /// An association without paths.
    #[must_use]
    pub fn new(config: Config, setup: &Setup, _now: Instant) -> Self {
        Self {
            config,
            side: setup.side,
            local: setup.local,
            remote: setup.remote,
            sealer: setup.secret.sealer(setup.side),
            opener: setup.secret.opener(setup.side),
            paths: BTreeMap::new(),
            next_path: Some(0),
            removed: BTreeSet::new(),
            removed_below: 0,
            farewells: BTreeMap::new(),
            status_due: BTreeSet::new(),
            next_sequence: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            again: BTreeMap::new(),
            pace_at: None,
            was_refused: false,
            reorder: Reorder::new(config.reorder_wait, config.reorder_bytes),
            events: VecDeque::new(),
            counts: Counts::default(),
            closing: None,
            is_closed: false,
        }
    }

    /// Adds a path. Its first packet makes it known to the peer.
    ///
    /// # Errors
    /// This is the edge's side, there are too many paths, or all numbers of paths were used.
    pub fn add_path(&mut self, settings: PathSettings, now: Instant) -> Result<PathId, AddPathError> {
        if self.side == Side::Edge {
            return Err(AddPathError::WrongSide);
        }
        if self.paths.len() == MAX_PATHS {
            return Err(AddPathError::TooMany);
        }
        let path = PathId(self.next_path.ok_or(AddPathError::Exhausted)?);
        self.next_path = path.0.checked_add(1);
        self.paths.insert(path, Path::new(path, PathSettings::default(), now));
        self.set_path(path, settings, now);
        Ok(path)
    }

    /// Changes how a path is used. Both sides may, and the stricter wish counts. A path that is not there is ignored.
    pub fn set_path(&mut self, path: PathId, settings: PathSettings, now: Instant) {
        let Some(found) = self.paths.get_mut(&path) else { return };
        let (before, mut lost) = (found.state, Vec::new());
        found.set(settings, now, &mut lost);
        let after = found.state;
        self.status_due.insert(path);
        self.requeue(lost, now);
        self.record_state(path, before, after);
    }

    /// Ends a path, and tells the peer. What the path carried goes by the others.
    pub fn remove_path(&mut self, path: PathId, now: Instant) {
        let Some(found) = self.paths.get(&path) else { return };
        let farewell = Status { sequence: u32::MAX, is_removed: true, ..found.status() };
        self.drop_path(path, now);
        self.farewells.insert(path, farewell);
        self.status_due.insert(path);
        if self.farewells.len() > MAX_FAREWELLS {
            self.farewells.pop_first();
        }
    }

    fn drop_path(&mut self, id: PathId, now: Instant) {
        if let Some(mut path) = self.paths.remove(&id) {
            self.record_removed(id);
            let mut lost = Vec::new();
            path.lose_all(now, &mut lost);
            self.requeue(lost, now);
        }
    }

    fn is_removed(&self, path: PathId) -> bool {
        path.0 < self.removed_below || self.removed.contains(&path)
    }

    fn record_removed(&mut self, path: PathId) {
        self.removed.insert(path);
        if self.removed.len() > MAX_REMOVED
            && let Some(oldest) = self.removed.pop_first()
        {
            self.removed_below = self.removed_below.max(oldest.0.saturating_add(1));
        }
    }

    /// The paths that there are.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.paths.keys().copied()
    }

    /// A path in numbers; `None` if the path is not there.
    #[must_use]
    pub fn path_stats(&self, path: PathId) -> Option<PathStats> {
        self.paths.get(&path).map(Path::stats)
    }

    /// What happened, in numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { delivered_datagrams: self.reorder.delivered(), given_up: self.reorder.given_up(), ..self.counts }
    }

    /// Whether [`send`](Self::send) takes a datagram now. After a refusal, [`Event::Room`] says when it does again.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue_bytes < self.queue_bound()
    }

    /// The queue holds what all paths carry in a short time, and what slow paths take in advance.
    fn queue_bound(&self) -> usize {
        let usable = || self.paths.values().filter(|path| path.state == PathState::Active);
        let rate: f64 = usable().map(Path::rate).sum();
        let delays = || usable().map(Path::delay);
        let spread = delays().max().unwrap_or_default() - delays().min().unwrap_or_default();
        let bytes = rate * (QUEUE_TIME + spread * 2).as_secs_f64();
        (bytes as usize).clamp(MIN_QUEUE_BYTES.min(self.config.send_queue_bytes), self.config.send_queue_bytes)
    }

    /// Queues a datagram.
    ///
    /// # Errors
    /// The queue is full, the datagram is too long, or the association is closed.
    pub fn send(&mut self, datagram: Bytes, _now: Instant) -> Result<(), SendError> {
        if datagram.len() > MAX_DATAGRAM_BYTES {
            return Err(SendError::TooLong);
        }
        if self.is_closed {
            return Err(SendError::Closed);
        }
        if !self.has_room() {
            self.was_refused = true;
            return Err(SendError::Full);
        }
        self.queue_bytes += datagram.len() + ENTRY_BYTES;
        let data = Data { sequence: self.next_sequence, offset: 0, is_last: true, bytes: datagram };
        self.queue.push_back(Piece { data, expires_at: None });
        self.next_sequence += 1;
        self.counts.sent_datagrams += 1;
        Ok(())
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` if nothing waits.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closed {
            return None;
        }
        let paths = self.paths.values().filter_map(Path::poll_timeout);
        paths.chain(self.pace_at).chain(self.reorder.poll_timeout()).min()
    }

    /// Does what is due at this time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.reorder.handle_timeout(now);
        let (mut lost, mut changes) = (Vec::new(), Vec::new());
        for path in self.paths.values_mut() {
            let before = path.state;
            path.handle_timeout(now, &mut lost);
            changes.push((path.id, before, path.state));
        }
        self.requeue(lost, now);
        for (path, before, after) in changes {
            self.record_state(path, before, after);
        }
    }

    /// The next datagram of the peer, in the order in which the peer sent them.
    pub fn receive(&mut self) -> Option<Bytes> {
        self.reorder.receive()
    }

    /// What the driver should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the association: the peer is told by every path, and nothing more is sent. The peer may not hear of it.
    pub fn close(&mut self, _now: Instant) {
        if !self.is_closed {
            self.is_closed = true;
            self.closing = Some(self.paths.keys().copied().collect());
        }
    }

    fn record_state(&mut self, path: PathId, before: PathState, after: PathState) {
        if before != after {
            self.record_event(Event::PathState(path, after));
        }
    }

    /// Keeps an event. A driver that reads none makes the oldest go.
    fn record_event(&mut self, event: Event) {
        const MAX_EVENTS: usize = 256;
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// What lost packets contained is sent again, if the receiver still waits for it.
    fn requeue(&mut self, lost: Vec<Content>, now: Instant) {
        for content in lost {
            self.status_due.extend(content.statuses);
            for piece in content.pieces {
                if piece.expires_at.is_some_and(|at| at <= now) {
                    self.counts.expired += 1;
                } else {
                    self.again.insert((piece.data.sequence, piece.data.offset), piece);
                }
            }
        }
    }
}
