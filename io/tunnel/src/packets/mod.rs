//! Packet carriers: the packets of one machine of a network, both ways. Used by the room `edge`, and by connectors.
//!
//! A carrier delivers in order and without loss, so it is never faster than its path. What the path does not take waits
//! in a [`PacketQueue`], which has a bound: further packets are dropped, as a router does, and counted by the caller.

mod driver;
mod join;

use std::{collections::VecDeque, mem};

use parking_lot::Mutex;
use sallyport_wire::{
    FrameHeader, FrameType, NetworkJoined, Refusal, Violation,
    frame::MAX_PACKETS_BYTES,
    packets::{self, Parcels, bytes_of, is_parcel},
};
use tokio::sync::Notify;

pub use self::{
    driver::{PacketsEnd, carry_packets},
    join::{NetworkRefused, join_network},
};

/// How much may wait for a carrier, in bytes.
pub const MAX_QUEUED_BYTES: usize = 1_048_576;
/// How much of PING and PONG may wait, in bytes. A peer that does not read its answers gets no more of them.
const MAX_PROBE_BYTES: usize = 1_024;

/// Takes what comes on a packet carrier. The calls must be quick.
pub trait PacketHandler: Send {
    /// Takes the parcels of one frame.
    ///
    /// # Errors
    /// The frame is wrong.
    fn packets(&mut self, parcels: Parcels<'_>) -> Result<(), Violation>;

    /// Takes the place of the machine, which has changed (connector's side).
    fn place(&mut self, place: NetworkJoined) {
        let _ = place;
    }
}

/// What waits to be sent on a packet carrier.
#[derive(Debug, Default)]
pub struct PacketQueue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    parcels: VecDeque<Vec<u8>>,
    /// What the parcels take in PACKETS.
    bytes: usize,
    place: Option<NetworkJoined>,
    probes: Vec<u8>,
    end: Option<Option<Refusal>>,
}

/// What a carrier is to do next.
#[derive(Debug)]
enum Next {
    /// Send these bytes.
    Send,
    /// Send these bytes, then end.
    End,
    /// Wait.
    Wait,
}

impl PacketQueue {
    /// Adds a parcel. False: the queue is full, or this is no parcel.
    #[must_use]
    pub fn push(&self, parcel: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        let bytes = bytes_of(parcel.len());
        if !is_parcel(parcel.len()) || waiting.bytes + bytes > MAX_QUEUED_BYTES {
            return false;
        }
        waiting.bytes += bytes;
        waiting.parcels.push_back(parcel.to_vec());
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// Tells the machine its place, before further packets (edge's side).
    pub fn tell(&self, place: NetworkJoined) {
        self.waiting.lock().place = Some(place);
        self.changed.notify_one();
    }

    /// Ends the carrier, after its last frame: the refusal, if there is one (edge's side).
    pub fn end(&self, refusal: Option<Refusal>) {
        self.waiting.lock().end.get_or_insert(refusal);
        self.changed.notify_one();
    }

    /// Adds a PING or PONG.
    fn probe(&self, kind: FrameType, number: [u8; 8]) {
        let mut waiting = self.waiting.lock();
        if waiting.probes.len() < MAX_PROBE_BYTES {
            waiting.probes.extend_from_slice(&FrameHeader { kind, len: 8 }.encode());
            waiting.probes.extend_from_slice(&number);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// Appends what is sent next: at most one PACKETS frame, so that what is told later does not wait for long.
    fn take(&self, out: &mut Vec<u8>) -> Next {
        let mut waiting = self.waiting.lock();
        out.append(&mut waiting.probes);
        if let Some(end) = waiting.end.take() {
            if let Some(refusal) = end {
                refusal.encode(out);
            }
            return Next::End;
        }
        if let Some(place) = waiting.place.take() {
            place.encode(out);
        }
        let mut bytes = 0;
        let mut fits = |parcel: &Vec<u8>| {
            bytes += bytes_of(parcel.len());
            bytes <= MAX_PACKETS_BYTES
        };
        let count = waiting.parcels.iter().take_while(|parcel| fits(parcel)).count();
        if count > 0 {
            let rest = waiting.parcels.split_off(count);
            let taken = mem::replace(&mut waiting.parcels, rest);
            waiting.bytes -= taken.iter().map(|parcel| bytes_of(parcel.len())).sum::<usize>();
            drop(waiting);
            packets::encode(taken.iter().map(Vec::as_slice), out);
        }
        if out.is_empty() { Next::Wait } else { Next::Send }
    }
}

#[cfg(test)]
mod tests {
    use sallyport_wire::{Carrier, frame::HEADER_BYTES};

    use super::*;

    /// The types of the frames that are sent next, and how many parcels they have.
    fn sent(queue: &PacketQueue) -> Vec<(FrameType, usize)> {
        let mut out = Vec::new();
        queue.take(&mut out);
        let (mut frames, mut rest) = (Vec::new(), out.as_slice());
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let header = FrameHeader::decode(*header, Carrier::Packets).unwrap();
            let (payload, after) = after.split_at(header.len as usize);
            let parcels = if header.kind == FrameType::Packets { Parcels::of(payload).count() } else { 0 };
            frames.push((header.kind, parcels));
            rest = after;
        }
        frames
    }

    #[test]
    fn a_full_queue_drops_and_what_it_has_leaves_in_order_and_whole() {
        let queue = PacketQueue::default();
        let train = vec![1; packets::MAX_PARCEL_BYTES];
        let taken = (0..100).take_while(|_| queue.push(&train)).count();
        assert_eq!(taken, MAX_QUEUED_BYTES / bytes_of(train.len()));
        assert!(queue.push(&[2; 100]) && !queue.push(&[2; 5]) && !queue.push(&vec![0; packets::MAX_PARCEL_BYTES + 1]));
        for _ in 1..taken {
            assert_eq!(sent(&queue), [(FrameType::Packets, 1)], "one train is more than half of a frame");
        }
        assert_eq!(sent(&queue), [(FrameType::Packets, 2)], "the last train, and the small packet");
        assert!(sent(&queue).is_empty() && queue.push(&train), "there is room again");
    }

    #[test]
    fn a_peer_that_asks_without_end_gets_few_answers_and_the_end_comes_last() {
        let queue = PacketQueue::default();
        (0..10_000).for_each(|_| queue.probe(FrameType::Pong, [7; 8]));
        assert!(queue.push(&[2; 100]));
        queue.end(Some(Refusal::new("removed", "the machine was removed", false)));
        queue.end(None);
        let frames = sent(&queue);
        assert!(frames.len() < 100, "{}", frames.len());
        assert_eq!(frames.last(), Some(&(FrameType::Refused, 0)), "the first end counts");
    }
}
