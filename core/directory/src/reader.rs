//! What everybody concludes from what edges write.

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

use sallyport_model::{EdgeId, TunnelId, TunnelPresence};

use crate::{ASK_AGAIN, EdgeCard, Held, Lease, MAX_EDGES, MAX_TUNNELS_PER_EDGE, SILENCE, TERM, words};

/// Something that is otherwise from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An edge is there that was not, or says something else of itself; its tunnels follow.
    EdgeCame(EdgeCard),
    /// An edge is gone; that its tunnels are gone was told before.
    EdgeLeft(EdgeId),
    /// An edge holds this tunnel.
    TunnelCame(EdgeId, TunnelPresence),
    /// An edge does not hold this tunnel any more.
    TunnelLeft(EdgeId, TunnelId),
}

/// All entries of an edge are wanted: they are handed to [`Reader::handle_listing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Whose entries.
    pub edge: EdgeId,
    epoch: u64,
    latest: u64,
}

/// There are more edges or tunnels than are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the directory is full: it knows {MAX_EDGES} edges, or {MAX_TUNNELS_PER_EDGE} tunnels of one")]
pub struct Refused;

/// An edge as it is known now.
#[derive(Debug, Clone, Copy)]
pub struct EdgeView<'a> {
    /// What it says of itself.
    pub card: &'a EdgeCard,
    /// How many tunnels of it are known.
    pub tunnels: u32,
    /// When the latest beat of it was heard.
    pub heard: Instant,
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
    /// When its lease ends; `None`: it is not there, as far as is known.
    until: Option<Instant>,
    heard: Instant,
    /// The tunnels and those that are gone, by their latest versions.
    entries: HashMap<TunnelId, Entry>,
    tunnels: u32,
    digest: u64,
    /// The tunnels of its former life that nothing has been heard of in this one: a successor on the same machine has most of them,
    /// and one by one it says so. They go when what is known agrees with its lease.
    inherited: HashMap<TunnelId, TunnelPresence>,
    /// When they go at the latest.
    inherited_until: Option<Instant>,
    /// The greatest version that was heard of.
    latest: u64,
    /// Up to this version all is known: what says otherwise is late.
    settled: u64,
    /// Whether the lease before counted otherwise than this reader.
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
            heard: now,
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

    /// Puts the entry in its place, and tells whether that is seen.
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
            self.digest ^= words::digest(tunnel, version);
        }
        self.entries.insert(tunnel, Entry { version, presence });
        (was_up || is_up).then_some(is_up)
    }

    /// Takes the entry away; gives whether the tunnel was up.
    fn take(&mut self, tunnel: TunnelId) -> bool {
        let Some(former) = self.entries.remove(&tunnel) else { return false };
        let was_up = former.presence.is_some();
        if was_up {
            self.tunnels -= 1;
            self.digest ^= words::digest(tunnel, former.version);
        }
        was_up
    }

    /// Forgets all tunnels; gives those that were up.
    fn clear(&mut self) -> Vec<TunnelId> {
        (self.tunnels, self.digest, self.latest, self.settled) = (0, 0, 0, 0);
        (self.differs, self.asked) = (false, None);
        let inherited = self.disinherit();
        let up = self.entries.drain().filter(|(_, entry)| entry.presence.is_some()).map(|(tunnel, _)| tunnel);
        up.chain(inherited).collect()
    }

    /// Forgets what is left of the former life; gives the tunnels.
    fn disinherit(&mut self) -> Vec<TunnelId> {
        self.inherited_until = None;
        self.inherited.drain().map(|(tunnel, _)| tunnel).collect()
    }

    /// A later life begins: what was up is taken to be up still, for a while.
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

/// The directory as one machine knows it.
///
/// Turn by turn: hand in what arrived, take [`Reader::poll_change`] and [`Reader::poll_ask`] until they have nothing more, and
/// call [`Reader::handle_timeout`] when [`Reader::poll_timeout`] has come.
#[derive(Debug)]
pub struct Reader {
    edges: HashMap<EdgeId, Edge>,
    changes: VecDeque<Change>,
    asks: VecDeque<Ask>,
    /// When anything was last told.
    heard: Instant,
}

impl Reader {
    /// A reader that knows nothing yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { edges: HashMap::new(), changes: VecDeque::new(), asks: VecDeque::new(), heard: now }
    }

    /// Something was told by the bus as it was written: it works. Leases that could not be heard in the meantime get a new term.
    pub fn handle_heard(&mut self, now: Instant) {
        if now.saturating_duration_since(self.heard) > SILENCE {
            for edge in self.edges.values_mut() {
                edge.until = edge.until.map(|until| until.max(now + TERM));
            }
        }
        self.heard = self.heard.max(now);
    }

    /// A lease; `is_told`: it was written just now, and not read from the bucket.
    ///
    /// # Errors
    /// There are too many edges.
    pub fn handle_lease(&mut self, lease: Lease, is_told: bool, now: Instant) -> Result<(), Refused> {
        if is_told {
            self.handle_heard(now);
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
        // One that is read may have been written long ago: it proves nothing until a later one is told. One that is
        // told may be the first that is heard of, but then it was written just now.
        edge.beat = lease.beat;
        if !is_told {
            edge.card.get_or_insert(lease.card);
            return Ok(());
        }
        if lease.is_last {
            self.end(id);
            return Ok(());
        }
        edge.heard = now;
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
        // Whoever has heard of later changes cannot tell what was missing at the lease's.
        if edge.latest == lease.latest {
            self.compare(id, (lease.tunnels, lease.digest), now);
        }
        Ok(())
    }

    /// Compares what the lease counts with what is known.
    fn compare(&mut self, id: EdgeId, said: (u32, u64), now: Instant) {
        let Some(edge) = self.edges.get_mut(&id) else { return };
        if (edge.tunnels, edge.digest) == said {
            edge.differs = false;
            edge.settled = edge.latest;
            let gone = edge.disinherit();
            self.changes.extend(gone.into_iter().map(|tunnel| Change::TunnelLeft(id, tunnel)));
            // Those that are gone are remembered only against what is late.
            edge.entries.retain(|_, entry| entry.presence.is_some());
            return;
        }
        let may_ask = edge.asked.is_none_or(|asked| now >= asked + ASK_AGAIN);
        // What is missing may only be on its way still.
        if std::mem::replace(&mut edge.differs, true) && may_ask {
            edge.asked = Some(now);
            self.asks.push_back(Ask { edge: id, epoch: edge.epoch, latest: edge.latest });
        }
    }

    /// A tunnel's entry; `is_told`: it was written just now, and not read from the bucket.
    ///
    /// # Errors
    /// There are too many edges, or tunnels of this one.
    pub fn handle_held(&mut self, held: Held, is_told: bool, now: Instant) -> Result<(), Refused> {
        if is_told {
            self.handle_heard(now);
        }
        let id = held.edge;
        if !self.edges.contains_key(&id) && self.edges.len() >= MAX_EDGES && !self.forget_one() {
            return Err(Refused);
        }
        self.begin_epoch(id, held.epoch, now);
        self.put(held)
    }

    fn put(&mut self, held: Held) -> Result<(), Refused> {
        let Held { edge: id, epoch, version, tunnel, presence, .. } = held;
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

    /// All entries that the bucket has of an edge, in answer to [`Reader::poll_ask`].
    ///
    /// # Errors
    /// There are too many tunnels.
    pub fn handle_listing(&mut self, ask: Ask, listed: Vec<Held>, now: Instant) -> Result<(), Refused> {
        let newest = listed.iter().map(|held| held.epoch).max();
        if let Some(newest) = newest {
            self.begin_epoch(ask.edge, newest, now);
        }
        let Some(edge) = self.edges.get_mut(&ask.edge) else { return Ok(()) };
        // The bucket forgets by age alone what is gone, so what is not in it has been gone for long.
        if edge.epoch == ask.epoch {
            let known =
                edge.entries.iter().filter(|(_, entry)| entry.version <= ask.latest && entry.presence.is_some());
            let missing: Vec<_> = known
                .map(|(tunnel, _)| *tunnel)
                .filter(|tunnel| !listed.iter().any(|held| held.tunnel == *tunnel && held.epoch == ask.epoch))
                .collect();
            for tunnel in missing {
                edge.take(tunnel);
                if edge.is_there() {
                    self.changes.push_back(Change::TunnelLeft(ask.edge, tunnel));
                }
            }
        }
        // What counts is the bucket, not what was settled before.
        edge.settled = 0;
        listed.into_iter().filter(|held| held.edge == ask.edge).try_for_each(|held| self.put(held))
    }

    /// Makes room for an edge, of those that are not there.
    fn forget_one(&mut self) -> bool {
        let gone = self.edges.iter().filter(|(_, edge)| !edge.is_there()).min_by_key(|(_, edge)| edge.heard);
        let Some(gone) = gone.map(|(id, _)| *id) else { return false };
        self.edges.remove(&gone).is_some()
    }

    /// Begins a later life of the edge, if this is one: what it held before it may hold still.
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

    /// Ends the leases that are over. While the bus is lost none is.
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

    /// When a lease ends next, if nothing is heard; `None` when none does.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.stale_since(now).is_some() {
            return None;
        }
        self.edges.values().flat_map(|edge| [edge.until, edge.inherited_until]).flatten().min()
    }

    /// The next of the changes, in the order in which they came to be.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Whose entries are wanted next.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// Since when nothing was heard, when that is longer than [`SILENCE`]: what is known may have changed since.
    #[must_use]
    pub fn stale_since(&self, now: Instant) -> Option<Instant> {
        (now.saturating_duration_since(self.heard) > SILENCE).then_some(self.heard)
    }

    /// The edges that are there, in no order.
    pub fn edges(&self) -> impl Iterator<Item = EdgeView<'_>> {
        self.edges.values().filter(|edge| edge.is_there()).filter_map(|edge| {
            let inherited = u32::try_from(edge.inherited.len()).unwrap_or(u32::MAX);
            let (tunnels, heard) = (edge.tunnels.saturating_add(inherited), edge.heard);
            edge.card.as_ref().map(|card| EdgeView { card, tunnels, heard })
        })
    }

    /// The tunnels that are known of an edge, whether it is there or not, in no order.
    pub fn known(&self, edge: EdgeId) -> impl Iterator<Item = TunnelId> {
        let up = |edge: &Edge| -> Vec<TunnelId> {
            edge.entries.iter().filter(|(_, entry)| entry.presence.is_some()).map(|(tunnel, _)| *tunnel).collect()
        };
        self.edges.get(&edge).map(up).unwrap_or_default().into_iter()
    }

    /// The tunnels of an edge that is there, in no order.
    pub fn tunnels(&self, edge: EdgeId) -> impl Iterator<Item = &TunnelPresence> {
        let edge = self.edges.get(&edge).filter(|edge| edge.is_there());
        edge.into_iter().flat_map(|edge| {
            edge.entries.values().filter_map(|entry| entry.presence.as_ref()).chain(edge.inherited.values())
        })
    }
}
