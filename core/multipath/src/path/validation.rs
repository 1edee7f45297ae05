//! Whether the peer gets packets at the address of a path (RFC 9000 section 8): until then, little goes there.

use crate::packet::{Ack, Challenge, Frame, HEADER_BYTES, TAG_BYTES};

/// What may be sent to an address that is not validated, for each byte that came from the address.
const AMPLIFICATION: u64 = 3;

/// The longest packet without datagrams that a path must be able to send: an acknowledgement, a question, a challenge
/// and an answer.
pub(crate) const SMALLEST_PACKET_BYTES: usize =
    HEADER_BYTES + Ack::BYTES + Frame::PING_BYTES + 2 * Frame::CHALLENGE_BYTES + TAG_BYTES;

/// The validation of one path's address. A path begins with an address that is trusted.
#[derive(Debug, Default)]
pub(crate) struct Validation(Option<Pending>);

#[derive(Debug)]
struct Pending {
    challenge: Challenge,
    /// Bytes that may still be sent.
    left: u64,
}

impl Validation {
    /// The address is new: `received` bytes came from there.
    pub(crate) fn begin(&mut self, challenge: Challenge, received: u64) {
        self.0 = Some(Pending { challenge, left: received * AMPLIFICATION });
    }

    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    /// The peer answers a challenge. Another answer than the last challenge's changes nothing.
    pub(crate) fn on_response(&mut self, response: &Challenge) {
        if self.0.as_ref().is_some_and(|pending| pending.challenge == *response) {
            self.0 = None;
        }
    }

    pub(crate) fn record_received(&mut self, bytes: u64) {
        if let Some(pending) = &mut self.0 {
            pending.left = pending.left.saturating_add(bytes * AMPLIFICATION);
        }
    }

    pub(crate) fn record_sent(&mut self, bytes: u64) {
        if let Some(pending) = &mut self.0 {
            pending.left = pending.left.saturating_sub(bytes);
        }
    }

    /// The challenge that waits for its answer.
    pub(crate) fn challenge(&self) -> Option<Challenge> {
        self.0.as_ref().map(|pending| pending.challenge)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.0.is_none()
    }

    /// The longest packet that may be sent.
    pub(crate) fn room(&self) -> usize {
        self.0.as_ref().map_or(usize::MAX, |pending| usize::try_from(pending.left).unwrap_or(usize::MAX))
    }
}
