//! The writing end of one edge: which entries to write, and when.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use sallyport_model::{HealthFailure, OriginHealth, TunnelId, TunnelPresence};

use crate::{
    BEAT, EdgeCard, HEALTH_PACE, Lease, MAX_WRITES_ON_THE_WAY, REFRESH, SCHEMA, TunnelEntry, WRITE_AGAIN, entry,
};

/// An entry to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryWrite {
    /// A lease; its delivery need not be reported.
    Lease(Lease),
    /// A tunnel; report the result by [`Holder::handle_written`] or [`Holder::handle_not_written`].
    TunnelEntry(TunnelEntry),
}

#[derive(Debug)]
struct Entry {
    version: u64,
    presence: Option<TunnelPresence>,
    /// Time before which no further change of only the health is written.
    paced: Option<Instant>,
    /// The current health, if it is not written yet.
    waiting: Option<(OriginHealth, Option<HealthFailure>)>,
}

/// The tunnels of one edge, and the entries to write.
///
/// Usage: report events, then take [`Holder::poll_write`] until it returns `None`, then wait until
/// [`Holder::poll_timeout`] or the next event.
#[derive(Debug)]
pub struct Holder {
    card: EdgeCard,
    epoch: u64,
    beat: u64,
    latest: u64,
    tunnels: u32,
    digest: u64,
    entries: HashMap<TunnelId, Entry>,
    /// Entries to write, in the order of versions.
    unwritten: BTreeSet<(u64, TunnelId)>,
    /// Tunnels of which only the health changed, and when that may be written; `None`: at once.
    waiting: BTreeSet<(Option<Instant>, TunnelId)>,
    on_the_way: usize,
    next_beat: Instant,
    next_refresh: Instant,
    /// No tunnel is written before this time.
    held_back: Option<Instant>,
    is_over: bool,
}

impl Holder {
    /// An edge that starts now. The epoch must be greater than those of all its former runs.
    #[must_use]
    pub fn new(card: EdgeCard, epoch: u64, now: Instant) -> Self {
        Self {
            card,
            epoch,
            beat: 0,
            latest: 0,
            tunnels: 0,
            digest: 0,
            entries: HashMap::new(),
            unwritten: BTreeSet::new(),
            waiting: BTreeSet::new(),
            on_the_way: 0,
            next_beat: now,
            next_refresh: now + REFRESH,
            held_back: None,
            is_over: false,
        }
    }

    /// Changes the edge's card; the next lease, due at once, carries it.
    pub fn handle_card(&mut self, card: EdgeCard, now: Instant) {
        if self.card != card && !self.is_over {
            self.card = card;
            self.next_beat = now;
        }
    }

    /// Adds a tunnel, or changes its presence.
    ///
    /// A change of only the health is written [`HEALTH_PACE`] after the previous one at the earliest, and not at all if
    /// it is reverted before that.
    pub fn handle_up(&mut self, presence: TunnelPresence) {
        let tunnel = presence.tunnel;
        let Some(entry) = self.entries.get_mut(&tunnel) else { return self.change(tunnel, Some(presence)) };
        let is_same_but_health = entry.presence.as_ref().is_some_and(|known| {
            let (health, failure) = (known.health, known.failure.clone());
            presence != *known && TunnelPresence { health, failure, ..presence.clone() } == *known
        });
        if is_same_but_health {
            entry.waiting = Some((presence.health, presence.failure));
            self.waiting.insert((entry.paced, tunnel));
        } else {
            self.forget_waiting(tunnel);
            self.change(tunnel, Some(presence));
        }
    }

    fn forget_waiting(&mut self, tunnel: TunnelId) {
        if let Some(entry) = self.entries.get_mut(&tunnel)
            && entry.waiting.take().is_some()
        {
            self.waiting.remove(&(entry.paced, tunnel));
        }
    }

    /// Queues health changes whose time has come.
    fn take_waiting(&mut self, now: Instant) {
        while let Some((due, tunnel)) = self.waiting.first().copied()
            && due.is_none_or(|due| due <= now)
        {
            self.waiting.pop_first();
            let Some(entry) = self.entries.get_mut(&tunnel) else { continue };
            entry.paced = Some(now + HEALTH_PACE);
            let (Some(waiting), Some(presence)) = (entry.waiting.take(), entry.presence.clone()) else { continue };
            let (health, failure) = waiting;
            self.change(tunnel, Some(TunnelPresence { health, failure, ..presence }));
        }
    }

    /// Removes a tunnel.
    pub fn handle_down(&mut self, tunnel: TunnelId) {
        if self.entries.get(&tunnel).is_some_and(|entry| entry.presence.is_some()) {
            self.forget_waiting(tunnel);
            self.change(tunnel, None);
        }
    }

    fn change(&mut self, tunnel: TunnelId, presence: Option<TunnelPresence>) {
        let mut paced = None;
        if let Some(former) = self.entries.get(&tunnel) {
            paced = former.paced;
            if former.presence == presence {
                return;
            }
            self.unwritten.remove(&(former.version, tunnel));
            if former.presence.is_some() {
                self.digest ^= entry::digest(tunnel, former.version);
                self.tunnels -= 1;
            }
        }
        self.latest += 1;
        let version = self.latest;
        if presence.is_some() {
            self.digest ^= entry::digest(tunnel, version);
            self.tunnels += 1;
        }
        self.entries.insert(tunnel, Entry { version, presence, paced, waiting: None });
        self.unwritten.insert((version, tunnel));
    }

    /// Reports that the entry of [`Holder::poll_write`] is in the bucket.
    pub fn handle_written(&mut self, tunnel: TunnelId, version: u64) {
        self.on_the_way = self.on_the_way.saturating_sub(1);
        if self.entries.get(&tunnel).is_some_and(|entry| entry.version == version && entry.presence.is_none()) {
            self.entries.remove(&tunnel);
        }
    }

    /// Reports that the entry of [`Holder::poll_write`] may not be in the bucket: it is written again.
    pub fn handle_not_written(&mut self, tunnel: TunnelId, version: u64, now: Instant) {
        self.on_the_way = self.on_the_way.saturating_sub(1);
        self.held_back = Some(now + WRITE_AGAIN);
        if self.entries.get(&tunnel).is_some_and(|entry| entry.version == version) {
            self.unwritten.insert((version, tunnel));
        }
    }

    /// Reports that the bus is back and the bucket's state unknown: everything is written again, the lease first.
    pub fn handle_bus_back(&mut self, now: Instant) {
        self.unwritten = self.entries.iter().map(|(tunnel, entry)| (entry.version, *tunnel)).collect();
        self.held_back = None;
        self.next_beat = now;
        self.next_refresh = now + REFRESH;
    }

    /// Reports that the edge stops: a last lease announces it.
    pub fn handle_end(&mut self, now: Instant) {
        self.is_over = true;
        self.next_beat = now;
        self.unwritten.clear();
        self.waiting.clear();
    }

    /// The next entry to write.
    pub fn poll_write(&mut self, now: Instant) -> Option<DirectoryWrite> {
        if now >= self.next_beat && !(self.is_over && self.beat == u64::MAX) {
            return Some(DirectoryWrite::Lease(self.beat(now)));
        }
        self.take_waiting(now);
        if now >= self.next_refresh {
            self.next_refresh = now + REFRESH;
            self.unwritten.extend(self.entries.iter().map(|(tunnel, entry)| (entry.version, *tunnel)));
        }
        if self.on_the_way >= MAX_WRITES_ON_THE_WAY || self.held_back.is_some_and(|until| now < until) {
            return None;
        }
        self.held_back = None;
        let (version, tunnel) = self.unwritten.pop_first()?;
        let presence = self.entries.get(&tunnel)?.presence.clone();
        self.on_the_way += 1;
        Some(DirectoryWrite::TunnelEntry(TunnelEntry {
            schema: SCHEMA,
            edge: self.card.edge,
            epoch: self.epoch,
            version,
            tunnel,
            presence,
        }))
    }

    fn beat(&mut self, now: Instant) -> Lease {
        self.beat += 1;
        let beat = self.beat;
        if self.is_over {
            // Nothing is written after the last lease.
            self.beat = u64::MAX;
        }
        self.next_beat = now + BEAT;
        Lease {
            schema: SCHEMA,
            card: self.card.clone(),
            epoch: self.epoch,
            beat,
            latest: self.latest,
            tunnels: self.tunnels,
            digest: self.digest,
            is_last: self.is_over,
        }
    }

    /// When [`Holder::poll_write`] has an entry without another event.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let retry = self.held_back.filter(|_| !self.unwritten.is_empty());
        let waiting = self.waiting.first().and_then(|(due, _)| *due);
        [retry, waiting].into_iter().flatten().fold(self.next_beat, Instant::min)
    }

    /// The tunnels, in no order.
    pub fn tunnel_ids(&self) -> impl Iterator<Item = TunnelId> {
        self.entries.iter().filter(|(_, entry)| entry.presence.is_some()).map(|(tunnel, _)| *tunnel)
    }

    /// Number of tunnels.
    #[must_use]
    pub fn tunnels(&self) -> u32 {
        self.tunnels
    }

    /// Number of entries that wait to be written or are being written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.unwritten.len() + self.waiting.len() + self.on_the_way
    }
}
