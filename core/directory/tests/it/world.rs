//! A simulated bucket, edges and readers. Writes fail or only seem to, messages are lost, duplicated, delayed and
//! reordered, edges die and come back, readers lose the bus.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use sallyport_directory::{BEAT, Change, DirectoryWrite, Holder, Lease, Reader, TunnelEntry};
use sallyport_model::{EdgeId, TunnelId};

use crate::{card, presence};

/// SplitMix64: the seed determines the schedule.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Frequency of faults.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Of messages to readers, in percent.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Of writes: they fail, half of them after taking effect.
    pub(crate) failed: u64,
    pub(crate) most_delay_ms: u64,
}

#[derive(Debug, Clone)]
enum Entry {
    Lease(Lease),
    TunnelEntry(TunnelEntry),
}

pub(crate) struct Node {
    pub(crate) holder: Option<Holder>,
    pub(crate) tunnels: BTreeSet<u8>,
    pub(crate) died: Option<Instant>,
    epoch: u64,
    pub(crate) has_bus: bool,
}

pub(crate) struct Listener {
    pub(crate) reader: Reader,
    pub(crate) known: BTreeMap<EdgeId, BTreeSet<TunnelId>>,
    pub(crate) has_bus: bool,
    /// Since when it has had the bus without interruption.
    pub(crate) since: Instant,
    /// When its own message returns to it next.
    echo: Instant,
    inbox: Vec<(Instant, u64, Entry)>,
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) weather: Weather,
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) listeners: Vec<Listener>,
    bucket: BTreeMap<(EdgeId, Option<TunnelId>), Entry>,
    sent: u64,
}

impl World {
    pub(crate) fn new(seed: u64, edges: usize, listeners: usize, begin: Instant) -> Self {
        let listener = |_| Listener {
            reader: Reader::new(begin),
            known: BTreeMap::new(),
            has_bus: true,
            since: begin,
            echo: begin,
            inbox: Vec::new(),
        };
        let node = |_| Node { holder: None, tunnels: BTreeSet::new(), died: None, epoch: 0, has_bus: true };
        let mut world = Self {
            dice: Dice(seed),
            weather: Weather::default(),
            now: begin,
            nodes: (0..edges).map(node).collect(),
            listeners: (0..listeners).map(listener).collect(),
            bucket: BTreeMap::new(),
            sent: 0,
        };
        (0..edges).for_each(|edge| world.start(edge));
        world
    }

    pub(crate) fn id(edge: usize) -> EdgeId {
        card(u8::try_from(edge).unwrap() + 1).edge
    }

    /// The edge starts a run; its connectors have yet to reconnect.
    pub(crate) fn start(&mut self, edge: usize) {
        let now = self.now;
        let node = &mut self.nodes[edge];
        node.epoch += 1;
        node.died = None;
        node.tunnels.clear();
        node.holder = Some(Holder::new(card(u8::try_from(edge).unwrap() + 1), node.epoch, now));
    }

    /// Another process takes over the edge: it is silent for `silence`, and then a later run has the same tunnels.
    pub(crate) fn take_over(&mut self, edge: usize, silent: Duration, mut meanwhile: impl FnMut(&Self)) {
        self.nodes[edge].holder = None;
        let end = self.now + silent;
        while self.now < end {
            self.run(Duration::from_millis(20));
            meanwhile(self);
        }
        let now = self.now;
        let node = &mut self.nodes[edge];
        node.epoch += 1;
        let mut holder = Holder::new(card(u8::try_from(edge).unwrap() + 1), node.epoch, now);
        node.tunnels.iter().for_each(|tunnel| holder.handle_up(presence(*tunnel, 9)));
        node.holder = Some(holder);
    }

    /// The edge dies silently.
    pub(crate) fn kill(&mut self, edge: usize) {
        let node = &mut self.nodes[edge];
        if node.holder.take().is_some() {
            node.died = Some(self.now);
            node.tunnels.clear();
        }
    }

    pub(crate) fn toggle(&mut self, edge: usize, tunnel: u8) {
        let since = i64::try_from(self.dice.below(1_000)).unwrap();
        let node = &mut self.nodes[edge];
        let Some(holder) = &mut node.holder else { return };
        if node.tunnels.remove(&tunnel) {
            holder.handle_down(presence(tunnel, 0).tunnel);
        } else {
            node.tunnels.insert(tunnel);
            holder.handle_up(presence(tunnel, since));
        }
    }

    /// The edge gets or loses the bus.
    pub(crate) fn set_node_bus(&mut self, edge: usize, has_bus: bool) {
        let now = self.now;
        let node = &mut self.nodes[edge];
        if has_bus
            && !node.has_bus
            && let Some(holder) = &mut node.holder
        {
            holder.handle_bus_back(now);
        }
        node.has_bus = has_bus;
    }

    /// The reader gets or loses the bus; when the bus is back, it reads the whole bucket.
    pub(crate) fn set_listener_bus(&mut self, at: usize, has_bus: bool) {
        let (now, listener) = (self.now, &mut self.listeners[at]);
        if has_bus && !listener.has_bus {
            listener.since = now;
            for entry in self.bucket.values().cloned() {
                match entry {
                    Entry::Lease(lease) => listener.reader.handle_lease(lease, false, now).unwrap(),
                    Entry::TunnelEntry(held) => listener.reader.handle_tunnel(held, false, now).unwrap(),
                }
            }
        }
        if !has_bus {
            listener.inbox.clear();
        }
        listener.has_bus = has_bus;
    }

    /// Advances the time.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(20);
            self.write();
            self.read();
        }
    }

    fn write(&mut self) {
        let now = self.now;
        for at in 0..self.nodes.len() {
            let mut write = Vec::new();
            if let Some(holder) = &mut self.nodes[at].holder {
                write.extend(std::iter::from_fn(|| holder.poll_write(now)));
            }
            for write in write {
                let fails = !self.nodes[at].has_bus || self.dice.percent(self.weather.failed);
                let is_done = self.nodes[at].has_bus && (!fails || self.dice.percent(50));
                let entry = match write {
                    DirectoryWrite::Lease(lease) => Entry::Lease(lease),
                    DirectoryWrite::TunnelEntry(entry) => {
                        let holder = self.nodes[at].holder.as_mut().unwrap();
                        if fails {
                            holder.handle_not_written(entry.tunnel, entry.version, now);
                        } else {
                            holder.handle_written(entry.tunnel, entry.version);
                        }
                        Entry::TunnelEntry(entry)
                    }
                };
                if is_done {
                    self.store(entry);
                }
            }
        }
    }

    fn store(&mut self, entry: Entry) {
        let key = match &entry {
            Entry::Lease(lease) => (lease.card.edge, None),
            Entry::TunnelEntry(entry) => (entry.edge, Some(entry.tunnel)),
        };
        self.bucket.insert(key, entry.clone());
        for listener in self.listeners.iter_mut().filter(|listener| listener.has_bus) {
            let copies = if self.dice.percent(self.weather.lost) { 0 } else { 1 };
            let copies = copies + u64::from(self.dice.percent(self.weather.doubled));
            for _ in 0..copies {
                let delay = Duration::from_millis(self.dice.below(self.weather.most_delay_ms + 1));
                self.sent += 1;
                listener.inbox.push((self.now + delay, self.sent, entry.clone()));
            }
        }
    }

    fn read(&mut self) {
        let (now, bucket) = (self.now, &self.bucket);
        for listener in &mut self.listeners {
            let (mut due, later) =
                std::mem::take(&mut listener.inbox).into_iter().partition::<Vec<_>, _>(|m| m.0 <= now);
            listener.inbox = later;
            due.sort_by_key(|(at, sent, _)| (*at, *sent));
            for (_, _, entry) in due {
                match entry {
                    Entry::Lease(lease) => listener.reader.handle_lease(lease, true, now).unwrap(),
                    Entry::TunnelEntry(entry) => listener.reader.handle_tunnel(entry, true, now).unwrap(),
                }
            }
            if listener.has_bus && now >= listener.echo {
                listener.echo = now + BEAT;
                listener.reader.handle_delivery(now);
            }
            while let Some(ask) = listener.reader.poll_ask() {
                if !listener.has_bus || self.dice.percent(self.weather.failed) {
                    continue;
                }
                let listed =
                    bucket.iter().filter(|((edge, _), _)| *edge == ask.edge).filter_map(|(_, entry)| match entry {
                        Entry::TunnelEntry(entry) => Some(entry.clone()),
                        Entry::Lease(_) => None,
                    });
                listener.reader.handle_listing(ask, listed.collect(), now).unwrap();
            }
            if listener.reader.poll_timeout(now).is_some_and(|at| at <= now) {
                listener.reader.handle_timeout(now);
            }
            listener.follow();
        }
    }
}

impl Listener {
    /// A consumer that only follows changes.
    fn follow(&mut self) {
        let mut is_other = false;
        while let Some(change) = self.reader.poll_change() {
            is_other = true;
            match change {
                Change::EdgeCame(card) => {
                    self.known.entry(card.edge).or_default();
                }
                Change::EdgeLeft(edge) => {
                    let left = self.known.remove(&edge).expect("only one that came leaves");
                    assert!(left.is_empty(), "its tunnels have left before");
                }
                Change::TunnelCame(edge, presence) => {
                    self.known.get_mut(&edge).expect("its edge has come before").insert(presence.tunnel);
                }
                Change::TunnelLeft(edge, tunnel) => {
                    let tunnels = self.known.get_mut(&edge).expect("its edge has come before");
                    assert!(tunnels.remove(&tunnel), "only one that came leaves");
                }
            }
        }
        if !is_other {
            return;
        }
        let current: BTreeMap<_, BTreeSet<_>> = self
            .reader
            .edges()
            .map(|edge| (edge.card.edge, self.reader.tunnels(edge.card.edge).map(|entry| entry.tunnel).collect()))
            .collect();
        assert_eq!(current, self.known, "changes and the present state say the same");
    }
}
