//! One channel (RFC 4254 section 5): its windows, its unread data, and its end.

use std::collections::VecDeque;

use crate::{
    error::{Error, Result},
    limits::{FIRST_WINDOW_BYTES, JOINED_BYTES, MAX_DATA_BYTES, MAX_WINDOW_BYTES},
};

/// The opener and the purpose of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `forwarded-tcpip`, opened by the server.
    Forwarded,
    /// `session`, opened by the client.
    Session,
}

/// The client's side of a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) id: u32,
    /// The client's remaining window, in bytes.
    pub(crate) window: u32,
    /// The longest data of one packet that the client accepts, in bytes.
    pub(crate) max_data: u32,
}

/// How the client's direction has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Eof,
    /// Closed without an EOF.
    Broken,
}

/// One channel of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) kind: Kind,
    /// Set once the channel is open.
    pub(crate) peer: Option<Peer>,
    pub(crate) has_sent_eof: bool,
    pub(crate) has_sent_close: bool,
    pub(crate) has_received_close: bool,
    /// Whether the channel's user was dropped: it neither reads nor writes.
    pub(crate) is_released: bool,
    pub(crate) writer_waits: bool,
    pub(crate) inbound: Inbound,
}

impl Channel {
    pub(crate) fn new(kind: Kind, peer: Option<Peer>) -> Self {
        Self {
            kind,
            peer,
            has_sent_eof: false,
            has_sent_close: false,
            has_received_close: false,
            is_released: false,
            writer_waits: false,
            inbound: Inbound::new(),
        }
    }

    /// Whether both sides have closed the channel, and its user was dropped.
    pub(crate) fn is_over(&self) -> bool {
        self.is_released && self.has_sent_close && self.has_received_close
    }

    /// Adds to the client's window.
    pub(crate) fn widen(&mut self, bytes: u32) {
        if let Some(peer) = &mut self.peer {
            peer.window = peer.window.saturating_add(bytes);
        }
    }

    /// How much of `bytes` can be sent in one packet now.
    pub(crate) fn sendable(&self, bytes: usize) -> u32 {
        let Some(peer) = self.peer else { return 0 };
        let most = peer.window.min(peer.max_data).min(MAX_DATA_BYTES);
        u32::try_from(bytes).unwrap_or(u32::MAX).min(most)
    }
}

/// Unread data from the client: at most a window.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Size of the window when everything has been read, in bytes.
    window: u32,
    /// The client's remaining window, in bytes.
    credit: u32,
    /// Bytes read since the last window adjustment.
    ungranted: u32,
    /// Whether the reader has waited for data since the last window adjustment.
    has_waited: bool,
    pub(crate) reader_waits: bool,
    chunks: VecDeque<Chunk>,
    pub(crate) end: End,
}

/// Unread bytes.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Start of the unread part.
    start: usize,
}

/// The window adjustment after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Bytes read since the last one.
    pub(crate) read: u32,
    /// Bytes by which the window may grow, because the reader waits for data.
    pub(crate) growth: u32,
}

impl Inbound {
    fn new() -> Self {
        Self {
            window: FIRST_WINDOW_BYTES,
            credit: FIRST_WINDOW_BYTES,
            ungranted: 0,
            has_waited: false,
            reader_waits: false,
            chunks: VecDeque::new(),
            end: End::Open,
        }
    }

    /// Deducts data from the window, whether the data is stored or not.
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<()> {
        let too_much = Error::Protocol("more data than the channel's window");
        let bytes = u32::try_from(bytes).map_err(|_| too_much)?;
        self.credit = self.credit.checked_sub(bytes).ok_or(too_much)?;
        Ok(())
    }

    /// Stores data for the reader.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if self.end != End::Open || data.is_empty() {
            return;
        }
        match self.chunks.back_mut() {
            Some(last) if last.bytes.len() + data.len() <= JOINED_BYTES => last.bytes.extend_from_slice(data),
            _ => self.chunks.push_back(Chunk { bytes: data.to_vec(), start: 0 }),
        }
    }

    /// Reads available data into `target`; returns the number of bytes.
    pub(crate) fn take(&mut self, target: &mut [u8]) -> usize {
        let mut taken = 0;
        while taken < target.len()
            && let Some(chunk) = self.chunks.front_mut()
        {
            let rest = &chunk.bytes[chunk.start..];
            let count = rest.len().min(target.len() - taken);
            target[taken..taken + count].copy_from_slice(&rest[..count]);
            taken += count;
            if count == rest.len() {
                self.chunks.pop_front();
            } else {
                chunk.start += count;
            }
        }
        taken
    }

    /// Records that bytes were used; returns the window adjustment if it is worth a message.
    pub(crate) fn used(&mut self, bytes: usize) -> Option<Grant> {
        // A read is at most a window.
        self.ungranted = self.ungranted.saturating_add(u32::try_from(bytes).unwrap_or(MAX_WINDOW_BYTES));
        if self.ungranted < self.window / 4 || self.end != End::Open {
            return None;
        }
        let can_grow = std::mem::take(&mut self.has_waited) && self.window < MAX_WINDOW_BYTES;
        let growth = if can_grow { self.window.min(MAX_WINDOW_BYTES - self.window) } else { 0 };
        Some(Grant { read: std::mem::take(&mut self.ungranted), growth })
    }

    /// Records a window adjustment, with `growth` of the window.
    pub(crate) fn granted(&mut self, bytes: u32, growth: u32) {
        self.credit = self.credit.saturating_add(bytes);
        self.window += growth;
    }

    /// Records that the reader waits for data.
    pub(crate) fn wait(&mut self) {
        (self.has_waited, self.reader_waits) = (true, true);
    }

    /// Total growth of the window, in bytes.
    pub(crate) fn growth(&self) -> usize {
        self.window.saturating_sub(FIRST_WINDOW_BYTES) as usize
    }

    /// Drops unread data after the reader was dropped.
    pub(crate) fn discard(&mut self) {
        self.chunks = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: usize = 32 * 1_024;

    fn read(inbound: &mut Inbound, bytes: usize) -> Vec<u8> {
        let mut memory = vec![0; bytes];
        let count = inbound.take(&mut memory);
        memory.truncate(count);
        memory
    }

    #[test]
    fn a_window_grows_for_a_reader_that_has_waited_and_for_no_other() {
        let mut inbound = Inbound::new();
        for _ in 0..2 {
            inbound.push(&[1; PACKET_BYTES]);
            assert_eq!(read(&mut inbound, 2 * PACKET_BYTES).len(), PACKET_BYTES);
        }
        assert_eq!(inbound.used(PACKET_BYTES), None);
        assert_eq!(inbound.used(PACKET_BYTES), Some(Grant { read: 65_536, growth: 0 }));
        inbound.wait();
        assert_eq!(inbound.used(2 * PACKET_BYTES), Some(Grant { read: 65_536, growth: FIRST_WINDOW_BYTES }));
        inbound.granted(65_536 + FIRST_WINDOW_BYTES, FIRST_WINDOW_BYTES);
        assert_eq!(inbound.growth(), FIRST_WINDOW_BYTES as usize);
        assert_eq!(inbound.used(3 * PACKET_BYTES), None, "a quarter of the larger window");
    }

    #[test]
    fn a_window_ends_at_its_largest() {
        let mut inbound = Inbound::new();
        for _ in 0..20 {
            inbound.wait();
            let grant = inbound.used(inbound.window as usize).unwrap();
            inbound.granted(grant.growth, grant.growth);
        }
        assert_eq!(inbound.window, MAX_WINDOW_BYTES);
    }

    #[test]
    fn packets_large_and_small_are_read_in_their_order_and_in_any_pieces() {
        let mut inbound = Inbound::new();
        for (value, bytes) in [(1, PACKET_BYTES), (2, 10), (3, 20), (4, PACKET_BYTES)] {
            inbound.push(&vec![value; bytes]);
        }
        let mut all = Vec::new();
        loop {
            let piece = read(&mut inbound, 1_000);
            if piece.is_empty() {
                break;
            }
            all.extend(piece);
        }
        let expected = [vec![1; PACKET_BYTES], vec![2; 10], vec![3; 20], vec![4; PACKET_BYTES]].concat();
        assert!(all == expected, "{} bytes", all.len());
    }

    #[test]
    fn more_than_the_window_is_a_fault() {
        let mut inbound = Inbound::new();
        assert_eq!(inbound.spend(FIRST_WINDOW_BYTES as usize), Ok(()));
        assert!(inbound.spend(1).is_err());
        inbound.granted(1, 0);
        assert_eq!(inbound.spend(1), Ok(()));
    }
}
