//! The reading end: derives the state of all edges from their entries.

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

use sallyport_model::{EdgeId, TunnelId, TunnelPresence};

use crate::{ASK_AGAIN, EdgeCard, Lease, MAX_EDGES, MAX_TUNNELS_PER_EDGE, SILENCE, TERM, TunnelEntry, entry};

/// A change of the known state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An edge joined or changed its card; its tunnels follow.
    EdgeCame(EdgeCard),
    /// An edge left; the removal of its tunnels was reported before.
    EdgeLeft(EdgeId),
    /// An edge holds this tunnel.
    TunnelCame(EdgeId, TunnelPresence),
    /// An edge no longer holds this tunnel.
    TunnelLeft(EdgeId, TunnelId),
}

/// A request for all entries of an edge: pass them to [`Reader::handle_listing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The edge.
    pub edge: EdgeId,
    epoch: u64,
    latest: u64,
}

/// The limit of edges or tunnels is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the directory is full: it has {MAX_EDGES} edges, or {MAX_TUNNELS_PER_EDGE} tunnels of one edge")]
pub struct Refused;

/// The known state of an edge.
#[derive(Debug, Clone, Copy)]
pub struct EdgeView<'a> {
    /// The edge's card.
    pub card: &'a EdgeCard,
    /// Number of its known tunnels.
    pub tunnels: u32,
    /// Time of its latest beat.
    pub last_beat: Instant,
}

#[derive(Debug)]
struct Entry {
    version: u64,
    presence: Option<TunnelPresence>,
}

#[derive(Debug)]
struct Edge {
    epoch: u64,
    beat: u64,
    card: Option<EdgeCard>,
    /// End of its lease; `None`: the edge is not live, as far as known.
    until: Option<Instant>,
    last_beat: Instant,
    /// The tunnels and the removed tunnels, with their latest versions.
    entries: HashMap<TunnelId, Entry>,
    tunnels: u32,
    digest: u64,
    /// Tunnels of the former run that this run has not confirmed yet: a successor on the same machine confirms most of
    /// them one by one. They are removed once the known state agrees with the lease.
    inherited: HashMap<TunnelId, TunnelPresence>,
    /// The latest time of their removal.
    inherited_until: Option<Instant>,
    /// The greatest known version.
    latest: u64,
    /// All entries up to this version are known: contradicting ones are late.
    settled: u64,
    /// Whether the previous lease differed from the known state.
    differs: bool,
    asked: Option<Instant>,
}

impl Edge {
    fn new(epoch: u64, now: Instant) -> Self {
        Self {
            epoch,
            beat: 0,
            card: None,
            until: None,
            last_beat: now,
            entries: HashMap::new(),
            tunnels: 0,
            digest: 0,
            inherited: HashMap::new(),
            inherited_until: None,
            latest: 0,
            settled: 0,
            differs: false,
            asked: None,
        }
    }

    fn is_there(&self) -> bool {
        self.until.is_some()
    }

    /// Stores the entry, and returns whether the visible state changed.
    fn put(&mut self, tunnel: TunnelId, version: u64, presence: Option<TunnelPresence>) -> Option<bool> {
        match self.entries.get(&tunnel) {
            Some(known) if known.version >= version => return None,
            None if version <= self.settled => return None,
            _ => {}
        }
        self.latest = self.latest.max(version);
        let is_up = presence.is_some();
        let was_inherited = self.inherited.remove(&tunnel).is_some();
        let was_up = self.take(tunnel) || was_inherited;
        if is_up {
            self.tunnels += 1;
            self.digest ^= entry::digest(tunnel, version);
        }
        self.entries.insert(tunnel, Entry { version, presence });
        (was_up || is_up).then_some(is_up)
    }

    /// Removes the entry; returns whether the tunnel was held.
    fn take(&mut self, tunnel: TunnelId) -> bool {
        let Some(former) = self.entries.remove(&tunnel) else { return false };
        let was_up = former.presence.is_some();
        if was_up {
            self.tunnels -= 1;
            self.digest ^= entry::digest(tunnel, former.version);
        }
        was_up
    }

    /// Removes all tunnels; returns those that were held.
    fn clear(&mut self) -> Vec<TunnelId> {
        (self.tunnels, self.digest, self.latest, self.settled) = (0, 0, 0, 0);
        (self.differs, self.asked) = (false, None);
        let inherited = self.disinherit();
        let up = self.entries.drain().filter(|(_, entry)| entry.presence.is_some()).map(|(tunnel, _)| tunnel);
        up.chain(inherited).collect()
    }

    /// Drops the rest of the former run; returns the tunnels.
    fn disinherit(&mut self) -> Vec<TunnelId> {
        self.inherited_until = None;
        self.inherited.drain().map(|(tunnel, _)| tunnel).collect()
    }

    /// Starts a later run: held tunnels count as held for a while.
    fn begin(&mut self, epoch: u64, now: Instant) {
        let mut inherited = std::mem::take(&mut self.inherited);
        let entries = self.entries.drain();
        inherited.extend(entries.filter_map(|(tunnel, entry)| entry.presence.map(|presence| (tunnel, presence))));
        self.clear();
        (self.epoch, self.beat) = (epoch, 0);
        if self.is_there() {
            self.inherited = inherited;
            self.inherited_until = Some(now + TERM);
        }
    }
}

/// One machine's view of the directory.
///
/// Usage: pass received entries, take [`Reader::poll_change`] and [`Reader::poll_ask`] until they return `None`, and
/// call [`Reader::handle_timeout`] at the time of [`Reader::poll_timeout`].
#[derive(Debug)]
pub struct Reader {
    edges: HashMap<EdgeId, Edge>,
    changes: VecDeque<Change>,
    asks: VecDeque<Ask>,
    /// Time of the last message.
    last_message: Instant,
}

impl Reader {
    /// An empty reader.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { edges: HashMap::new(), changes: VecDeque::new(), asks: VecDeque::new(), last_message: now }
    }

    /// Records that the bus delivered a message when it was written. Leases that could not be renewed during a silence
    /// get a new term.
    pub fn handle_delivery(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last_message) > SILENCE {
            for edge in self.edges.values_mut() {
                edge.until = edge.until.map(|until| until.max(now + TERM));
            }
        }
        self.last_message = self.last_message.max(now);
    }

    /// Handles a lease. `is_live`: it was delivered when it was written, not read from the bucket.
    ///
    /// The limit of edges is reached.
    /// There are too many edges.
    pub fn handle_lease(&mut self, lease: Lease, is_live: bool, now: Instant) -> Result<(), Refused> {
        if is_live {
            self.handle_delivery(now);
        }
        let id = lease.card.edge;
        if !self.edges.contains_key(&id) && self.edges.len() >= MAX_EDGES && !self.forget_one() {
            return Err(Refused);
        }
        self.begin_epoch(id, lease.epoch, now);
        let Some(edge) = self.edges.get_mut(&id) else { return Ok(()) };
        if lease.epoch < edge.epoch || lease.beat <= edge.beat {
            return Ok(());
        }
        // A lease that was read may be old, and proves nothing until a later one is delivered. A delivered lease may be
        // the first one known of the edge, but was written just now.
        edge.beat = lease.beat;
        if !is_live {
            edge.card.get_or_insert(lease.card);
            return Ok(());
        }
        if lease.is_last {
            self.end(id);
            return Ok(());
        }
        edge.last_beat = now;
        let was_there = edge.until.replace(now + TERM).is_some();
        let is_other = edge.card.as_ref() != Some(&lease.card);
        if !was_there || is_other {
            self.changes.push_back(Change::EdgeCame(lease.card.clone()));
        }
        edge.card = Some(lease.card);
        if !was_there {
            let up = edge.entries.values().filter_map(|entry| entry.presence.clone());
            self.changes.extend(up.map(|presence| Change::TunnelCame(id, presence)));
        }
        edge.latest = edge.latest.max(lease.latest);
        // A reader that knows later changes cannot tell which were missing at the time of the lease.
        if edge.latest == lease.latest {
            self.compare(id, (lease.tunnels, lease.digest), now);
        }
        Ok(())
    }

    /// Compares the lease with the known state.
    fn compare(&mut self, id: EdgeId, lease: (u32, u64), now: Instant) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        if (edge.tunnels, edge.digest) == lease {
            edge.differs = false;
            edge.settled = edge.latest;
            let gone = edge.disinherit();
            self.changes.extend(gone.into_iter().map(|tunnel| Change::TunnelLeft(id, tunnel)));
            // Removed tunnels are remembered only to reject late entries.
            edge.entries.retain(|_, entry| entry.presence.is_some());
            return;
        }
        let may_ask = edge.asked.is_none_or(|asked| now >= asked + ASK_AGAIN);
        // A missing entry may still be in flight.
        if std::mem::replace(&mut edge.differs, true) && may_ask {
            edge.asked = Some(now);
            self.asks.push_back(Ask { edge: id, epoch: edge.epoch, latest: edge.latest });
        }
    }

    /// Handles a tunnel's entry. `is_live`: it was delivered when it was written, not read from the bucket.
    ///
    /// # Errors
    /// The limit of edges, or of this edge's tunnels, is reached.
    pub fn handle_tunnel(&mut self, entry: TunnelEntry, is_live: bool, now: Instant) -> Result<(), Refused> {
        if is_live {
            self.handle_delivery(now);
        }
        let id = entry.edge;
        if !self.edges.contains_key(&id) && self.edges.len() >= MAX_EDGES && !self.forget_one() {
            return Err(Refused);
        }
        self.begin_epoch(id, entry.epoch, now);
        self.put(entry)
    }

    fn put(&mut self, entry: TunnelEntry) -> Result<(), Refused> {
        let TunnelEntry { edge: id, epoch, version, tunnel, presence, .. } = entry;
        let Some(edge) = self.edges.get_mut(&id).filter(|edge| edge.epoch == epoch) else { return Ok(()) };
        if edge.entries.len() >= MAX_TUNNELS_PER_EDGE && !edge.entries.contains_key(&tunnel) {
            return Err(Refused);
        }
        let change = match (edge.put(tunnel, version, presence.clone()), presence) {
            (Some(true), Some(presence)) => Change::TunnelCame(id, presence),
            (Some(_), _) => Change::TunnelLeft(id, tunnel),
            (None, _) => return Ok(()),
        };
        if edge.is_there() {
            self.changes.push_back(change);
        }
        Ok(())
    }

    /// Handles all entries of an edge, the answer to [`Reader::poll_ask`].
    ///
    /// # Errors
    /// The limit of tunnels is reached.
    pub fn handle_listing(&mut self, ask: Ask, listed: Vec<TunnelEntry>, now: Instant) -> Result<(), Refused> {
        let newest = listed.iter().map(|entry| entry.epoch).max();
        if let Some(newest) = newest {
            self.begin_epoch(ask.edge, newest, now);
        }
        let Some(edge) = self.edges.get_mut(&ask.edge) else { return Ok(()) };
        // The bucket drops removed entries only by age, so an absent tunnel was removed long ago.
        if edge.epoch == ask.epoch {
            let known =
                edge.entries.iter().filter(|(_, entry)| entry.version <= ask.latest && entry.presence.is_some());
            let missing: Vec<_> = known
                .map(|(tunnel, _)| *tunnel)
                .filter(|tunnel| !listed.iter().any(|entry| entry.tunnel == *tunnel && entry.epoch == ask.epoch))
                .collect();
            for tunnel in missing {
                edge.take(tunnel);
                if edge.is_there() {
                    self.changes.push_back(Change::TunnelLeft(ask.edge, tunnel));
                }
            }
        }
        // The listing overrides the settled state.
        edge.settled = 0;
        listed.into_iter().filter(|entry| entry.edge == ask.edge).try_for_each(|entry| self.put(entry))
    }

    /// Makes room for an edge by removing one that is not live.
    fn forget_one(&mut self) -> bool {
        let gone = self.edges.iter().filter(|(_, edge)| !edge.is_there()).min_by_key(|(_, edge)| edge.last_beat);
        let Some(gone) = gone.map(|(id, _)| *id) else { return false };
        self.edges.remove(&gone).is_some()
    }

    /// Starts a later run of the edge, if this is one; tunnels of the former run may still be held.
    fn begin_epoch(&mut self, id: EdgeId, epoch: u64, now: Instant) {
        let edge = self.edges.entry(id).or_insert_with(|| Edge::new(epoch, now));
        if epoch <= edge.epoch {
            return;
        }
        edge.begin(epoch, now);
    }

    fn end(&mut self, id: EdgeId) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let gone = edge.clear();
        if edge.until.take().is_some() {
            self.changes.extend(gone.into_iter().map(|tunnel| Change::TunnelLeft(id, tunnel)));
            self.changes.push_back(Change::EdgeLeft(id));
        }
    }

    /// Ends expired leases, except while the bus is lost.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.stale_since(now).is_some() {
            return;
        }
        let over = self.edges.iter().filter(|(_, edge)| edge.until.is_some_and(|until| now >= until));
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.end(id));
        for (id, edge) in self.edges.iter_mut().filter(|(_, edge)| edge.inherited_until.is_some_and(|at| now >= at)) {
            let gone = edge.disinherit();
            self.changes.extend(gone.into_iter().map(|tunnel| Change::TunnelLeft(*id, tunnel)));
        }
    }

    /// When the next lease expires; `None` if none does.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.stale_since(now).is_some() {
            return None;
        }
        self.edges.values().flat_map(|edge| [edge.until, edge.inherited_until]).flatten().min()
    }

    /// The next change, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// The next request for an edge's entries.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// Time of the last message, if longer ago than [`SILENCE`]: the state may be outdated.
    #[must_use]
    pub fn stale_since(&self, now: Instant) -> Option<Instant> {
        (now.saturating_duration_since(self.last_message) > SILENCE).then_some(self.last_message)
    }

    /// The live edges, in no order.
    pub fn edges(&self) -> impl Iterator<Item = EdgeView<'_>> {
        self.edges.values().filter(|edge| edge.is_there()).filter_map(|edge| {
            let inherited = u32::try_from(edge.inherited.len()).unwrap_or(u32::MAX);
            let (tunnels, last_beat) = (edge.tunnels.saturating_add(inherited), edge.last_beat);
            edge.card.as_ref().map(|card| EdgeView { card, tunnels, last_beat })
        })
    }

    /// The known tunnels of an edge, live or not, in no order.
    pub fn known(&self, edge: EdgeId) -> impl Iterator<Item = TunnelId> {
        let up = |edge: &Edge| -> Vec<TunnelId> {
            edge.entries.iter().filter(|(_, entry)| entry.presence.is_some()).map(|(tunnel, _)| *tunnel).collect()
        };
        self.edges.get(&edge).map(up).unwrap_or_default().into_iter()
    }

    /// The tunnels of a live edge, in no order.
    pub fn tunnels(&self, edge: EdgeId) -> impl Iterator<Item = &TunnelPresence> {
        let edge = self.edges.get(&edge).filter(|edge| edge.is_there());
        edge.into_iter().flat_map(|edge| {
            edge.entries.values().filter_map(|entry| entry.presence.as_ref()).chain(edge.inherited.values())
        })
    }
}
