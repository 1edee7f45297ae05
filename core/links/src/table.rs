//! The state machine of links: up, silent, down, and back again.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::Link;

/// The most links that are remembered, with those that are down.
pub const MAX_REMEMBERED: usize = 64;

/// Whether a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The link carries.
    Up,
    /// The device is there, and nothing comes back by it.
    Silent,
    /// The device or its address is gone.
    Down,
}

/// What happened to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEventKind {
    /// A link that was not known carries.
    Added,
    /// The link has another device or other addresses. Sockets from before must be closed.
    Moved,
    /// Nothing comes back by the link.
    Silent,
    /// The link is gone. Its sockets must be closed.
    Down,
    /// The link carries again.
    Back,
}

/// An event of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEvent {
    /// The name of the link.
    pub link: String,
    /// What happened.
    pub kind: LinkEventKind,
}

/// A link with its state.
#[derive(Debug)]
struct Entry {
    link: Link,
    state: LinkState,
    since: Instant,
    /// Since when something that was sent has no answer.
    waiting_since: Option<Instant>,
}

/// The links of a connector and their states.
///
/// After each call, take the events by [`Self::poll_event`] until none is left. Then call [`Self::handle_timeout`] at
/// the time that [`Self::poll_timeout`] names.
#[derive(Debug)]
pub struct LinkTable {
    silence: Duration,
    entries: Vec<Entry>,
    events: VecDeque<LinkEvent>,
}

impl LinkTable {
    /// A table without links. A link is silent if something that was sent has no answer for `silence`.
    #[must_use]
    pub fn new(silence: Duration) -> Self {
        Self { silence, entries: Vec::new(), events: VecDeque::new() }
    }

    /// Takes the links that are there now. Links that are missing are down.
    pub fn update(&mut self, links: Vec<Link>, now: Instant) {
        for entry in &mut self.entries {
            if entry.state != LinkState::Down && !links.iter().any(|link| link.name == entry.link.name) {
                entry.turn(LinkState::Down, now);
                self.events.push_back(entry.event(LinkEventKind::Down));
            }
        }
        for link in links {
            self.take(link, now);
        }
        while self.entries.len() > MAX_REMEMBERED {
            let down = self.entries.iter().enumerate().filter(|(_, entry)| entry.state == LinkState::Down);
            let Some((oldest, _)) = down.min_by_key(|(_, entry)| entry.since) else { break };
            self.entries.remove(oldest);
        }
    }

    fn take(&mut self, link: Link, now: Instant) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.link.name == link.name) else {
            let entry = Entry { link, state: LinkState::Up, since: now, waiting_since: None };
            self.events.push_back(entry.event(LinkEventKind::Added));
            self.entries.push(entry);
            return;
        };
        let is_moved = entry.link.index != link.index || entry.link.addresses != link.addresses;
        let was_down = entry.state == LinkState::Down;
        entry.link = link;
        // What was silent before may carry from its new address.
        if was_down || is_moved {
            entry.turn(LinkState::Up, now);
            let kind = if was_down { LinkEventKind::Back } else { LinkEventKind::Moved };
            self.events.push_back(entry.event(kind));
        }
    }

    /// Notes that something was sent by the link that the other end answers.
    pub fn record_sent(&mut self, link: &str, now: Instant) {
        if let Some(entry) = self.entry(link)
            && entry.state == LinkState::Up
        {
            entry.waiting_since.get_or_insert(now);
        }
    }

    /// Notes that something came back by the link. A silent link carries again.
    pub fn record_heard(&mut self, link: &str, now: Instant) {
        let Some(entry) = self.entry(link) else { return };
        entry.waiting_since = None;
        if entry.state == LinkState::Silent {
            entry.turn(LinkState::Up, now);
            let event = entry.event(LinkEventKind::Back);
            self.events.push_back(event);
        }
    }

    /// The time at which a link becomes silent if nothing comes back; `None` if all that was sent is answered.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.entries.iter().filter_map(|entry| entry.waiting_since).min().map(|since| since + self.silence)
    }

    /// Marks the links as silent whose answers are overdue.
    pub fn handle_timeout(&mut self, now: Instant) {
        for entry in &mut self.entries {
            let is_overdue =
                entry.waiting_since.is_some_and(|since| now.saturating_duration_since(since) >= self.silence);
            if is_overdue {
                entry.turn(LinkState::Silent, now);
                self.events.push_back(entry.event(LinkEventKind::Silent));
            }
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// The links with their states, and since when they have them.
    pub fn links(&self) -> impl Iterator<Item = (&Link, LinkState, Instant)> {
        self.entries.iter().map(|entry| (&entry.link, entry.state, entry.since))
    }

    /// The link for the next connection; `None` if all links are down. `connections` says how many a link has.
    ///
    /// Links share connections by their weights. Standby links come after others, metered links after these, and
    /// silent links last of all.
    #[must_use]
    pub fn pick(&self, connections: impl Fn(&str) -> usize) -> Option<&Link> {
        let mut best: Option<(u8, u64, &Link)> = None;
        for entry in self.entries.iter().filter(|entry| entry.state != LinkState::Down) {
            let (rank, link) = (entry.rank(), &entry.link);
            let after = connections(&link.name) as u64 + 1;
            let is_better = best.is_none_or(|(best_rank, best_after, other)| {
                // Compares connections for each unit of weight, without fractions.
                let load = after.saturating_mul(u64::from(other.properties.weight));
                let best_load = best_after.saturating_mul(u64::from(link.properties.weight));
                (rank, load) < (best_rank, best_load)
            });
            if is_better {
                best = Some((rank, after, link));
            }
        }
        best.map(|(_, _, link)| link)
    }

    fn entry(&mut self, link: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.link.name == link)
    }
}

impl Entry {
    fn turn(&mut self, state: LinkState, now: Instant) {
        (self.state, self.since, self.waiting_since) = (state, now, None);
    }

    fn event(&self, kind: LinkEventKind) -> LinkEvent {
        LinkEvent { link: self.link.name.clone(), kind }
    }

    /// The order in which links are used: the lowest first.
    fn rank(&self) -> u8 {
        let properties = self.link.properties;
        u8::from(self.state == LinkState::Silent) << 2
            | u8::from(properties.is_metered) << 1
            | u8::from(properties.is_standby)
    }
}
