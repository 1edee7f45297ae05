//! The receiver's order: datagrams go out in the order in which they were sent, within a bound of time and one of
//! bytes. Uses `packet`.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::packet::Data;

/// What a datagram that waits costs besides its bytes.
const ENTRY_BYTES: usize = 128;

/// Arrivals that are kept although their datagrams were delivered, besides one for each that waits.
const SPARE_ARRIVALS: usize = 64;

/// How far a sequence number may be ahead of the next one.
const MAX_AHEAD: u64 = 1 << 32;

/// A part contradicts another part of its datagram, or its datagram is too far ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contradiction;

/// What became of a part of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    Kept,
    /// It had come, or had been given up.
    Duplicate,
}

#[derive(Debug)]
pub(crate) struct Reorder {
    wait: Duration,
    max_bytes: usize,
    /// The datagram to deliver next.
    next: u64,
    pending: BTreeMap<u64, Pending>,
    /// When the first part of each came, the oldest first. Datagrams that wait no more are taken off the front.
    arrivals: VecDeque<(Instant, u64)>,
    bytes: usize,
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    given_up: u64,
    delivered: u64,
}

/// A datagram that waits for another one, or for parts of its own.
#[derive(Debug)]
enum Pending {
    Whole(Bytes),
    /// Parts by offset, and the length once the last part is there.
    Parts {
        parts: BTreeMap<u16, Bytes>,
        length: Option<usize>,
        have: usize,
    },
}

/// What the parts of a datagram say of its length.
#[derive(Debug, Default, Clone, Copy)]
struct Extent {
    /// Where the part ends that reaches furthest.
    reach: usize,
    length: Option<usize>,
}

impl Extent {
    fn add(self, data: &Data) -> Result<Self, Contradiction> {
        let end = usize::from(data.offset) + data.bytes.len();
        let reach = self.reach.max(end);
        let length = if data.is_last { Some(end) } else { self.length };
        let is_other = data.is_last && self.length.is_some_and(|length| length != end);
        if is_other || length.is_some_and(|length| reach > length) {
            return Err(Contradiction);
        }
        Ok(Self { reach, length })
    }
}

impl Pending {
    fn cost(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Whole(bytes) => bytes.len(),
                Self::Parts { parts, have, .. } => have + parts.len() * ENTRY_BYTES,
            }
    }

    fn extent(&self) -> Extent {
        match self {
            Self::Whole(bytes) => Extent { reach: bytes.len(), length: Some(bytes.len()) },
            Self::Parts { parts, length, .. } => {
                let reach = parts.last_key_value().map_or(0, |(&offset, part)| usize::from(offset) + part.len());
                Extent { reach, length: *length }
            }
        }
    }
}

impl Reorder {
    pub(crate) fn new(wait: Duration, max_bytes: usize) -> Self {
        Self {
            wait,
            max_bytes,
            next: 0,
            pending: BTreeMap::new(),
            arrivals: VecDeque::new(),
            bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            given_up: 0,
            delivered: 0,
        }
    }

    /// Whether all parts of a packet fit to each other and to what came before. A packet has its datagrams in order.
    /// Nothing changes.
    pub(crate) fn check<'d>(&self, parts: impl Iterator<Item = &'d Data>) -> Result<(), Contradiction> {
        let mut last: Option<(u64, Extent)> = None;
        for data in parts.filter(|data| data.sequence >= self.next) {
            let extent = match last {
                Some((sequence, _)) if sequence > data.sequence => return Err(Contradiction),
                Some((sequence, extent)) if sequence == data.sequence => extent,
                _ => self.pending.get(&data.sequence).map(Pending::extent).unwrap_or_default(),
            };
            if data.sequence - self.next > MAX_AHEAD {
                return Err(Contradiction);
            }
            last = Some((data.sequence, extent.add(data)?));
        }
        Ok(())
    }

    /// Takes a part of a datagram that [`check`](Self::check) has accepted.
    pub(crate) fn insert(&mut self, data: Data, now: Instant) -> Placed {
        if data.sequence < self.next {
            return Placed::Duplicate;
        }
        let is_whole = data.offset == 0 && data.is_last;
        if is_whole && data.sequence == self.next && self.pending.is_empty() {
            self.deliver(data.bytes);
            return Placed::Kept;
        }
        let sequence = data.sequence;
        let mut pending = match self.pending.remove(&sequence) {
            Some(pending) => {
                self.bytes -= pending.cost();
                pending
            }
            None => {
                self.arrivals.push_back((now, sequence));
                Pending::Parts { parts: BTreeMap::new(), length: None, have: 0 }
            }
        };
        let placed = pending.add(data);
        self.bytes += pending.cost();
        self.pending.insert(sequence, pending);
        self.deliver_ready();
        // What the receiver's program leaves lying counts too, so that memory has one bound.
        while self.bytes > self.max_bytes.saturating_sub(self.ready_bytes) && self.give_up() {}
        self.forget_arrivals();
        placed
    }

    /// When the datagram that has waited longest waits no more.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.arrivals.front().map(|(since, _)| *since + self.wait)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|at| at <= now) && self.give_up() {
            self.forget_arrivals();
        }
    }

    fn forget_arrivals(&mut self) {
        if self.arrivals.len() > 2 * self.pending.len() + SPARE_ARRIVALS {
            self.arrivals.retain(|(_, sequence)| *sequence >= self.next);
        }
        while self.arrivals.front().is_some_and(|(_, sequence)| *sequence < self.next) {
            self.arrivals.pop_front();
        }
    }

    pub(crate) fn receive(&mut self) -> Option<Bytes> {
        let bytes = self.ready.pop_front()?;
        self.ready_bytes -= bytes.len() + ENTRY_BYTES;
        Some(bytes)
    }

    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    fn deliver(&mut self, bytes: Bytes) {
        self.next += 1;
        self.delivered += 1;
        self.ready_bytes += bytes.len() + ENTRY_BYTES;
        self.ready.push_back(bytes);
    }

    fn deliver_ready(&mut self) {
        while let Some(entry) = self.pending.first_entry().filter(|entry| *entry.key() == self.next) {
            if !matches!(entry.get(), Pending::Whole(_)) {
                return;
            }
            let pending = entry.remove();
            self.bytes -= pending.cost();
            if let Pending::Whole(bytes) = pending {
                self.deliver(bytes);
            }
        }
    }

    /// Stops waiting for what is missing before the first datagram that waits, or for its parts. Returns whether
    /// something was given up.
    fn give_up(&mut self) -> bool {
        let Some(entry) = self.pending.first_entry() else { return false };
        let sequence = *entry.key();
        self.given_up += sequence - self.next;
        self.next = sequence;
        if !matches!(entry.get(), Pending::Whole(_)) {
            self.bytes -= entry.remove().cost();
            self.given_up += 1;
            self.next += 1;
        }
        self.deliver_ready();
        true
    }
}

impl Pending {
    fn add(&mut self, data: Data) -> Placed {
        let Self::Parts { parts, length, have } = self else { return Placed::Duplicate };
        let end = usize::from(data.offset) + data.bytes.len();
        if data.is_last {
            *length = Some(end);
        }
        // A part that was split again on its second way overlaps; what is there already is cut off.
        let mut offset = data.offset;
        let mut bytes = data.bytes;
        let before = parts.range(..=offset).next_back().map(|(&at, part)| usize::from(at) + part.len());
        if let Some(covered) = before.filter(|&covered| covered > usize::from(offset)) {
            let cut = (covered - usize::from(offset)).min(bytes.len());
            bytes = bytes.slice(cut..);
            offset += cut as u16;
        }
        let mut is_new = data.is_last && end == 0;
        while !bytes.is_empty() {
            let next = parts.range(offset..).next().map(|(&at, part)| (at, part.len()));
            let room = next.map_or(bytes.len(), |(at, _)| usize::from(at - offset).min(bytes.len()));
            if room > 0 {
                parts.insert(offset, bytes.slice(..room));
                *have += room;
                is_new = true;
            }
            let cut = (room + next.map_or(0, |(_, length)| length)).min(bytes.len());
            bytes = bytes.slice(cut..);
            offset = offset.saturating_add(cut as u16);
        }
        if *length == Some(*have) {
            let whole = match parts.len() {
                1 => parts.pop_first().map(|(_, part)| part).unwrap_or_default(),
                _ => parts.values().flatten().copied().collect(),
            };
            *self = Self::Whole(whole);
        }
        if is_new { Placed::Kept } else { Placed::Duplicate }
    }
}
