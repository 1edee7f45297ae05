//! The exchanges that are kept: the newest ones, within bounds of count and memory.

use std::collections::VecDeque;

use crate::message::Exchange;

/// How many bytes of a body are kept.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How many bytes of a message of a WebSocket, of server-sent events or of gRPC are kept.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;
/// How many such messages of one exchange are kept: the last ones.
pub const MAX_FRAMES: usize = 1_000;
/// How many bytes of such messages of one exchange are kept.
pub(crate) const MAX_FRAMES_BYTES: usize = 4 * 1024 * 1024;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The greatest number of exchanges.
    pub exchanges: usize,
    /// The most memory for them, in bytes.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { exchanges: 500, bytes: 50 * 1024 * 1024 }
    }
}

/// The exchanges in the order in which they came. When a bound is reached, the oldest ones go.
#[derive(Debug)]
pub struct Store {
    bounds: Bounds,
    kept: VecDeque<Exchange>,
    bytes: usize,
    next_id: u64,
    dropped: u64,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, kept: VecDeque::new(), bytes: 0, next_id: 1, dropped: 0 }
    }

    /// Its bounds.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The memory of what is kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many exchanges were dropped to keep the bounds.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many exchanges are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The exchange with this id, if it is still kept.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Exchange> {
        self.kept.get(self.place(id)?)
    }

    /// The kept exchanges, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Exchange> {
        self.kept.iter().rev()
    }

    /// Those that came before the one with this id, the newest first.
    pub fn before(&self, id: Option<u64>) -> impl Iterator<Item = &Exchange> {
        let first = self.kept.front().map_or(self.next_id, |oldest| oldest.id);
        let count = id.map_or(self.kept.len(), |id| id.saturating_sub(first).min(self.kept.len() as u64) as usize);
        self.kept.iter().take(count).rev()
    }

    /// Keeps a new exchange, and returns the id that it gets.
    pub(crate) fn add(&mut self, mut exchange: Exchange) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        exchange.id = id;
        exchange.size = exchange.measured();
        self.bytes += exchange.size;
        self.kept.push_back(exchange);
        self.keep_bounds();
        id
    }

    /// Changes an exchange, if it is still kept. Returns whether it is.
    pub(crate) fn update(&mut self, id: u64, change: impl FnOnce(&mut Exchange)) -> bool {
        let Some(place) = self.place(id) else { return false };
        let exchange = &mut self.kept[place];
        change(exchange);
        let size = exchange.measured();
        let before = std::mem::replace(&mut exchange.size, size);
        self.bytes = self.bytes - before + size;
        self.keep_bounds();
        true
    }

    /// Changes a part of an exchange that takes no memory, such as a count.
    pub(crate) fn touch(&mut self, id: u64, change: impl FnOnce(&mut Exchange)) {
        if let Some(place) = self.place(id) {
            change(&mut self.kept[place]);
        }
    }

    /// Drops all. Ids go on.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }

    /// The ids of what is kept have no holes.
    fn place(&self, id: u64) -> Option<usize> {
        let place = id.checked_sub(self.kept.front()?.id)? as usize;
        (place < self.kept.len()).then_some(place)
    }

    fn keep_bounds(&mut self) {
        let is_over = |store: &Self| store.kept.len() > store.bounds.exchanges || store.bytes > store.bounds.bytes;
        while self.kept.len() > 1 && is_over(self) {
            if let Some(oldest) = self.kept.pop_front() {
                self.bytes -= oldest.size;
                self.dropped += 1;
            }
        }
    }
}
