//! What one edge writes, and when.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use sallyport_model::{HealthFailure, OriginHealth, TunnelId, TunnelPresence};

use crate::{BEAT, EdgeCard, HEALTH_PACE, Held, Lease, MAX_WRITES_ON_THE_WAY, REFRESH, SCHEMA, WRITE_AGAIN, words};

/// Something to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// The lease; whether it arrives need not be told.
    Lease(Lease),
    /// A tunnel: by [`Holder::handle_written`] or [`Holder::handle_not_written`] it is told what became of it.
    Held(Held),
}

#[derive(Debug)]
struct Entry {
    version: u64,
    presence: Option<TunnelPresence>,
    /// Before when another change of its health alone is not written.
    paced: Option<Instant>,
    /// Its health as it is now, when that is not written yet.
    waiting: Option<(OriginHealth, Option<HealthFailure>)>,
}

/// The tunnels of one edge, and what of them is to be written.
///
/// Turn by turn: hand in what happened, then take [`Holder::poll_tell`] until it has nothing more, then wait until
/// [`Holder::poll_timeout`] or until something happens.
#[derive(Debug)]
pub struct Holder {
    card: EdgeCard,
    epoch: u64,
    beat: u64,
    latest: u64,
    tunnels: u32,
    digest: u64,
    entries: HashMap<TunnelId, Entry>,
    /// What is to be written, in the order of versions.
    unwritten: BTreeSet<(u64, TunnelId)>,
    /// Tunnels of which nothing but the health is otherwise, and when that may be written; `None`: at once.
    waiting: BTreeSet<(Option<Instant>, TunnelId)>,
    on_the_way: usize,
    next_beat: Instant,
    next_refresh: Instant,
    /// No tunnel is written before this.
    held_back: Option<Instant>,
    is_over: bool,
}

impl Holder {
    /// An edge that begins a life now. The epoch is greater than in all its former lives.
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

    /// The edge says this of itself from now on: the next lease, which is due at once, has it.
    pub fn handle_card(&mut self, card: EdgeCard, now: Instant) {
        if self.card != card && !self.is_over {
            self.card = card;
            self.next_beat = now;
        }
    }

    /// The tunnel is up, or something of its presence has changed.
    ///
    /// A change of its health alone is written [`HEALTH_PACE`] after the one before at the earliest, and not at all when it is
    /// taken back until then.
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

    /// Takes over what has waited for its turn.
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

    /// The tunnel is gone.
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
                self.digest ^= words::digest(tunnel, former.version);
                self.tunnels -= 1;
            }
        }
        self.latest += 1;
        let version = self.latest;
        if presence.is_some() {
            self.digest ^= words::digest(tunnel, version);
            self.tunnels += 1;
        }
        self.entries.insert(tunnel, Entry { version, presence, paced, waiting: None });
        self.unwritten.insert((version, tunnel));
    }

    /// What [`Holder::poll_tell`] gave of this tunnel is in the bucket.
    pub fn handle_written(&mut self, tunnel: TunnelId, version: u64) {
        self.on_the_way = self.on_the_way.saturating_sub(1);
        if self.entries.get(&tunnel).is_some_and(|entry| entry.version == version && entry.presence.is_none()) {
            self.entries.remove(&tunnel);
        }
    }

    /// What [`Holder::poll_tell`] gave of this tunnel is not in the bucket, as far as is known: it is written again.
    pub fn handle_not_written(&mut self, tunnel: TunnelId, version: u64, now: Instant) {
        self.on_the_way = self.on_the_way.saturating_sub(1);
        self.held_back = Some(now + WRITE_AGAIN);
        if self.entries.get(&tunnel).is_some_and(|entry| entry.version == version) {
            self.unwritten.insert((version, tunnel));
        }
    }

    /// The bus was away, and what is in the bucket now is not known: everything is written again, the lease first.
    pub fn handle_bus_back(&mut self, now: Instant) {
        self.unwritten = self.entries.iter().map(|(tunnel, entry)| (entry.version, *tunnel)).collect();
        self.held_back = None;
        self.next_beat = now;
        self.next_refresh = now + REFRESH;
    }

    /// The edge ends: one last lease says so.
    pub fn handle_end(&mut self, now: Instant) {
        self.is_over = true;
        self.next_beat = now;
        self.unwritten.clear();
        self.waiting.clear();
    }

    /// What is to be written now.
    pub fn poll_tell(&mut self, now: Instant) -> Option<Tell> {
        if now >= self.next_beat && !(self.is_over && self.beat == u64::MAX) {
            return Some(Tell::Lease(self.beat(now)));
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
        Some(Tell::Held(Held { schema: SCHEMA, edge: self.card.edge, epoch: self.epoch, version, tunnel, presence }))
    }

    fn beat(&mut self, now: Instant) -> Lease {
        self.beat += 1;
        let beat = self.beat;
        if self.is_over {
            // Nothing is said after the last word.
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

    /// When [`Holder::poll_tell`] has something by itself.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let retry = self.held_back.filter(|_| !self.unwritten.is_empty());
        let waiting = self.waiting.first().and_then(|(due, _)| *due);
        [retry, waiting].into_iter().flatten().fold(self.next_beat, Instant::min)
    }

    /// The tunnels that it holds, in no order.
    pub fn held(&self) -> impl Iterator<Item = TunnelId> {
        self.entries.iter().filter(|(_, entry)| entry.presence.is_some()).map(|(tunnel, _)| *tunnel)
    }

    /// How many tunnels it holds.
    #[must_use]
    pub fn tunnels(&self) -> u32 {
        self.tunnels
    }

    /// How many entries wait to be written or are on their way.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.unwritten.len() + self.waiting.len() + self.on_the_way
    }
}
