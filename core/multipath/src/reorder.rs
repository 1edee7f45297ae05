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

/// How far a sequence number may be ahead of the next one.
const MAX_AHEAD: u64 = 1 << 32;

/// What became of a part of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    Kept,
    /// It had come, or had been given up.
    Duplicate,
    /// It contradicts another part of its datagram.
    Contradiction,
}

#[derive(Debug)]
pub(crate) struct Reorder {
    wait: Duration,
    max_bytes: usize,
    /// The datagram to deliver next.
    next: u64,
    pending: BTreeMap<u64, Pending>,
    bytes: usize,
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    given_up: u64,
    delivered: u64,
}

/// A datagram that waits for another one, or for parts of its own.
#[derive(Debug)]
struct Pending {
    since: Instant,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Whole(Bytes),
    /// Parts by offset, and the length once the last part is there.
    Parts {
        parts: BTreeMap<u16, Bytes>,
        length: Option<usize>,
        have: usize,
    },
}

impl Pending {
    fn cost(&self) -> usize {
        ENTRY_BYTES
            + match &self.body {
                Body::Whole(bytes) => bytes.len(),
                Body::Parts { parts, have, .. } => have + parts.len() * ENTRY_BYTES,
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
            bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            given_up: 0,
            delivered: 0,
        }
    }

    /// Takes a part of a datagram.
    pub(crate) fn insert(&mut self, data: Data, now: Instant) -> Placed {
        if data.sequence < self.next {
            return Placed::Duplicate;
        }
        if data.sequence - self.next > MAX_AHEAD {
            return Placed::Contradiction;
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
            None => Pending { since: now, body: Body::Parts { parts: BTreeMap::new(), length: None, have: 0 } },
        };
        let placed = pending.add(data);
        if pending.cost() > ENTRY_BYTES || placed == Placed::Kept {
            self.bytes += pending.cost();
            self.pending.insert(sequence, pending);
        }
        self.deliver_ready();
        // What the receiver's program leaves lying counts too, so that memory has one bound.
        while self.bytes > self.max_bytes.saturating_sub(self.ready_bytes) && self.give_up() {}
        placed
    }

    /// When the datagram that is missing is given up.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(_, pending)| pending.since + self.wait)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|at| at <= now) && self.give_up() {}
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
            if !matches!(entry.get().body, Body::Whole(_)) {
                return;
            }
            let pending = entry.remove();
            self.bytes -= pending.cost();
            if let Body::Whole(bytes) = pending.body {
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
        if !matches!(entry.get().body, Body::Whole(_)) {
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
        let Body::Parts { parts, length, have } = &mut self.body else { return Placed::Duplicate };
        let end = usize::from(data.offset) + data.bytes.len();
        if length.is_some_and(|length| end > length || (data.is_last && end != length)) {
            return Placed::Contradiction;
        }
        if data.is_last {
            if parts.last_key_value().is_some_and(|(&offset, part)| usize::from(offset) + part.len() > end) {
                return Placed::Contradiction;
            }
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
            self.body = Body::Whole(whole);
        }
        if is_new { Placed::Kept } else { Placed::Duplicate }
    }
}
