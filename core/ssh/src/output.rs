//! Output: sealed packets, and messages that wait for the end of a key exchange.

use crate::{
    cipher::Sealing,
    error::{Error, Result},
    limits::{DEFERRED_OVERHEAD_BYTES, MAX_DEFERRED_BYTES, MAX_WAITING_BYTES},
    packet::Sealer,
};

/// The server's packets in order.
pub(crate) struct Output {
    buffer: Vec<u8>,
    sealer: Sealer,
    /// Whether a key exchange runs: from the server's KEXINIT to its NEWKEYS only its messages may be sent (RFC 4253
    /// section 7.1).
    is_exchanging: bool,
    deferred: Vec<Vec<u8>>,
    deferred_bytes: usize,
    failure: Option<Error>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            sealer: Sealer::new(),
            is_exchanging: false,
            deferred: Vec::new(),
            deferred_bytes: 0,
            failure: None,
        }
    }

    /// Appends a line outside of packets: the version.
    pub(crate) fn put_line(&mut self, line: &str) {
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Seals a message of about `hint` bytes at once, also during a key exchange.
    pub(crate) fn send_at_once(&mut self, hint: usize, payload: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        if let Err(error) = self.sealer.seal(&mut self.buffer, hint, payload) {
            self.buffer.truncate(start);
            self.failure.get_or_insert(error);
        }
    }

    /// Sends a message, after a running key exchange.
    pub(crate) fn send(&mut self, payload: impl FnOnce(&mut Vec<u8>)) {
        if !self.is_exchanging {
            return self.send_at_once(0, payload);
        }
        let mut deferred = Vec::new();
        payload(&mut deferred);
        self.deferred_bytes += deferred.len() + DEFERRED_OVERHEAD_BYTES;
        if self.deferred_bytes > MAX_DEFERRED_BYTES {
            self.failure.get_or_insert(Error::Protocol("too many messages wait for the end of a key exchange"));
        } else {
            self.deferred.push(deferred);
        }
    }

    /// Whether channels may send data now.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_exchanging && self.buffer.len() <= MAX_WAITING_BYTES
    }

    /// Sends the server's KEXINIT.
    pub(crate) fn begin_exchange(&mut self, init: &[u8]) {
        self.is_exchanging = true;
        self.send_at_once(init.len(), |out| out.extend_from_slice(init));
    }

    /// Changes the keys, after the server's NEWKEYS.
    pub(crate) fn set_keys(&mut self, sealing: Sealing, is_strict: bool) {
        self.sealer.set_keys(sealing, is_strict);
    }

    /// Ends the key exchange; waiting messages are sent first.
    pub(crate) fn end_exchange(&mut self) {
        self.is_exchanging = false;
        self.deferred_bytes = 0;
        for deferred in std::mem::take(&mut self.deferred) {
            self.send_at_once(deferred.len(), |out| out.extend_from_slice(&deferred));
        }
    }

    /// Number of unwritten bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes and packets sealed with these keys.
    pub(crate) fn used(&self) -> (u64, u64) {
        (self.sealer.bytes, self.sealer.packets)
    }

    /// Swaps the output into a buffer that has been written.
    pub(crate) fn swap(&mut self, written: &mut Vec<u8>) {
        written.clear();
        std::mem::swap(&mut self.buffer, written);
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.buffer.shrink_to_fit();
    }

    /// The failure of an earlier send, if any.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}
