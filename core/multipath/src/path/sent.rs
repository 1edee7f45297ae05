//! Packets of a path that are in flight: which arrived, which are lost, and what they contained.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::model::Sample;
use crate::packet::{Ack, Data, PathId};

/// How long a lost packet is remembered, so that a late acknowledgement is known for one.
const REMEMBER_LOST: Duration = Duration::from_millis(600);

/// What has to be sent again if a packet is lost.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) pieces: Vec<Piece>,
    /// The paths whose status the packet told.
    pub(crate) statuses: Vec<PathId>,
    /// Whether the packet challenged the peer's address.
    pub(crate) has_challenge: bool,
}

/// A datagram or a part of one, with the time until which the receiver waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) data: Data,
    /// Known from the first transmission on.
    pub(crate) expires_at: Option<Instant>,
}

impl Piece {
    /// Takes the first `count` bytes off, as a piece of their own.
    pub(crate) fn split_to(&mut self, count: usize) -> Self {
        let bytes = self.data.bytes.split_to(count);
        let data = Data { sequence: self.data.sequence, offset: self.data.offset, is_last: false, bytes };
        self.data.offset += count as u16;
        Self { data, expires_at: self.expires_at }
    }
}

/// One packet that asks for an acknowledgement.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) bytes: u16,
    pub(crate) content: Content,
    pub(crate) sample: Sample,
    /// Whether the packet asks for the MTU.
    pub(crate) is_probe: bool,
    pub(crate) lost_at: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    /// The number of the first slot.
    base: u64,
    /// One slot for each number; empty for what needs no acknowledgement or was acknowledged.
    slots: VecDeque<Option<Sent>>,
    largest_acked: Option<u64>,
    pub(crate) in_flight: u64,
}

impl SentPackets {
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Records the packet with the next number; `None` if it asks for no acknowledgement.
    pub(crate) fn push(&mut self, sent: Option<Sent>) {
        self.in_flight += sent.as_ref().map_or(0, |sent| u64::from(sent.bytes));
        self.slots.push_back(sent);
        self.trim();
    }

    /// Whether every packet that this acknowledges was sent.
    pub(crate) fn has_sent(&self, ack: &Ack) -> bool {
        ack.ranges.first().is_none_or(|range| range.1 < self.next_number())
    }

    /// Takes what this acknowledges, the packet with the greatest number last. What was never sent is left out.
    pub(crate) fn take_acked(&mut self, ack: &Ack) -> Vec<Sent> {
        let largest = ack.ranges.first().map_or(0, |range| range.1);
        if !self.has_sent(ack) {
            return Vec::new();
        }
        self.largest_acked = Some(self.largest_acked.map_or(largest, |before| before.max(largest)));
        let mut acked = Vec::new();
        for &(first, last) in ack.ranges.iter().rev() {
            if last < self.base {
                continue;
            }
            let (from, to) = ((first.max(self.base) - self.base) as usize, (last - self.base) as usize);
            for slot in self.slots.range_mut(from..=to) {
                if let Some(sent) = slot.take() {
                    if sent.lost_at.is_none() {
                        self.in_flight -= u64::from(sent.bytes);
                    }
                    acked.push(sent);
                }
            }
        }
        self.trim();
        acked
    }

    /// The oldest packet after which none was acknowledged: the path owes for it. Probes do not count.
    pub(crate) fn owed_since(&self) -> Option<Instant> {
        let owed = self.slots.range(self.passed()..).flatten();
        owed.filter(|sent| sent.lost_at.is_none() && !sent.is_probe).map(|sent| sent.at).next()
    }

    /// When the next packet counts as lost: one before the greatest acknowledged, after `delay`.
    pub(crate) fn loss_at(&self, delay: Duration) -> Option<Instant> {
        self.slots.range(..self.passed()).flatten().find(|sent| sent.lost_at.is_none()).map(|sent| sent.at + delay)
    }

    /// How many slots come before the greatest number that was acknowledged.
    fn passed(&self) -> usize {
        let to = self.largest_acked.map_or(0, |largest| (largest + 1).saturating_sub(self.base) as usize);
        to.min(self.slots.len())
    }

    /// Marks what is lost by now: what is older than `delay`, or more than `threshold` numbers before the greatest that
    /// was acknowledged. `each` gets every such packet.
    pub(crate) fn mark_lost(
        &mut self,
        delay: Duration,
        threshold: Option<u64>,
        now: Instant,
        each: impl FnMut(&mut Sent),
    ) {
        let passed = self.passed();
        let overtaken = threshold.map_or(0, |threshold| passed.saturating_sub(threshold as usize));
        self.mark(passed, now, |at, sent| at < overtaken || sent.at + delay <= now, each);
    }

    /// Marks everything in flight as lost.
    pub(crate) fn mark_all_lost(&mut self, now: Instant, each: impl FnMut(&mut Sent)) {
        self.mark(self.slots.len(), now, |_, _| true, each);
    }

    /// Marks the probes that were sent at `before` or earlier as lost.
    pub(crate) fn mark_probes_lost(&mut self, before: Instant, now: Instant, each: impl FnMut(&mut Sent)) {
        self.mark(self.slots.len(), now, |_, sent| sent.is_probe && sent.at <= before, each);
    }

    /// Marks packets of the first `slots` as lost; `is_lost` gets the place of each, too.
    fn mark(
        &mut self,
        slots: usize,
        now: Instant,
        is_lost: impl Fn(usize, &Sent) -> bool,
        mut each: impl FnMut(&mut Sent),
    ) {
        for (at, slot) in self.slots.range_mut(..slots).enumerate() {
            let Some(sent) = slot else { continue };
            if sent.lost_at.is_none() && is_lost(at, sent) {
                sent.lost_at = Some(now);
                self.in_flight -= u64::from(sent.bytes);
                each(sent);
            }
        }
        self.forget(now);
    }

    fn forget(&mut self, now: Instant) {
        while let Some(Some(Sent { lost_at: Some(at), .. })) = self.slots.front() {
            if *at + REMEMBER_LOST > now {
                break;
            }
            self.slots.pop_front();
            self.base += 1;
            self.trim();
        }
    }

    fn trim(&mut self) {
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
    }
}
