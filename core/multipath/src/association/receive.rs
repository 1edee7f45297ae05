//! Packets that come in.

use std::time::Instant;

use super::{Arrival, Association, Event, MAX_PATHS, Refused};
use crate::{
    packet::{Ack, Frame, Header, PathId, Side, Status, frames},
    path::{Path, PathSettings},
    reorder::Placed,
};

/// After this many packets whose seal does not fit, the association ends (RFC 9001 section 6.6).
const MAX_UNSEALED: u64 = 1 << 36;

impl Association {
    /// Takes a UDP payload, which is decrypted in place. The driver notes the sender's address as that of the path if
    /// [`Arrival::is_newest`].
    ///
    /// # Errors
    /// The packet counts for nothing; the error says why, and is counted.
    pub fn handle(&mut self, packet: &mut [u8], now: Instant) -> Result<Arrival, Refused> {
        let result = self.take(packet, now);
        if let Err(refused) = result {
            let count = match refused {
                Refused::Foreign => &mut self.counts.refused_foreign,
                Refused::Unsealed => &mut self.counts.refused_unsealed,
                Refused::Replayed => &mut self.counts.refused_replayed,
                Refused::Malformed => &mut self.counts.refused_malformed,
                Refused::NoPath => &mut self.counts.refused_no_path,
            };
            *count += 1;
            if self.counts.refused_unsealed == MAX_UNSEALED {
                self.end();
            }
        }
        result
    }

    fn take(&mut self, packet: &mut [u8], now: Instant) -> Result<Arrival, Refused> {
        let header = Header::parse(packet).filter(|header| header.association == self.local && !self.is_closed);
        let header = header.ok_or(Refused::Foreign)?;
        let is_known = self.paths.get(&header.path).map(|path| path.received.has(header.number));
        if is_known == Some(true) {
            return Err(Refused::Replayed);
        }
        if is_known.is_none() && !self.may_open(header.path) {
            return Err(Refused::NoPath);
        }
        let bytes = packet.len() as u64;
        let opened = self.opener.open(&header, packet).ok_or(Refused::Unsealed)?;
        let found = frames(opened).map_err(|_| Refused::Malformed)?;
        self.check(&found)?;
        if is_known.is_none() {
            self.open_path(header.path, now);
        }
        let asks_for_ack = found.iter().any(Frame::asks_for_ack);
        let path = self.paths.get_mut(&header.path).ok_or(Refused::NoPath)?;
        let is_newest = path.received.record(header.number, asks_for_ack, now);
        if is_newest {
            path.validation.record_received(bytes);
        }
        path.numbers.received_packets += 1;
        path.numbers.received_bytes += bytes;
        for frame in found {
            self.take_frame(frame, header.path, now);
        }
        Ok(Arrival { path: header.path, is_newest })
    }

    /// Whether the peer could have sent these frames. A packet with one that it could not counts for nothing, and no
    /// frame of it is taken.
    fn check(&self, found: &[Frame]) -> Result<(), Refused> {
        let parts = found.iter().filter_map(|frame| match frame {
            Frame::Data(data) => Some(data),
            _ => None,
        });
        self.reorder.check(parts).map_err(|_| Refused::Malformed)?;
        let is_of_sent = |frame: &Frame| match frame {
            Frame::Ack(ack) => self.paths.get(&ack.path).is_none_or(|path| path.sent.has_sent(ack)),
            _ => true,
        };
        if found.iter().all(is_of_sent) { Ok(()) } else { Err(Refused::Malformed) }
    }

    fn take_frame(&mut self, frame: Frame, by: PathId, now: Instant) {
        match frame {
            _ if self.is_closed => {}
            Frame::Ping => {}
            Frame::Data(data) => {
                if self.reorder.insert(data, now) == Placed::Duplicate {
                    self.counts.duplicates += 1;
                }
            }
            Frame::Ack(ack) => self.take_ack(&ack, now),
            Frame::PathStatus(status) => self.take_status(status, now),
            Frame::Close => self.end(),
            Frame::PathChallenge(challenge) => {
                if let Some(path) = self.paths.get_mut(&by) {
                    path.response = Some(challenge);
                }
            }
            Frame::PathResponse(challenge) => {
                if let Some(path) = self.paths.get_mut(&by) {
                    path.validation.on_response(&challenge);
                }
            }
        }
    }

    /// Says that the packets of a path come from an address that was not heard before. `challenge` is random: until the
    /// peer has repeated it, the path sends at most three times the `received` bytes that came from there (RFC 9000
    /// section 8.1), so that nobody can direct a stream to an address of others.
    pub fn validate(&mut self, path: PathId, challenge: [u8; 8], received: usize, now: Instant) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.validate(challenge, received as u64, now);
        }
    }

    /// Says that the packets of a path come from an address again that was validated before.
    pub fn set_validated(&mut self, path: PathId) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.validation.end();
        }
    }

    /// Whether the peer has answered the challenge, or none was sent.
    #[must_use]
    pub fn is_validated(&self, path: PathId) -> bool {
        self.paths.get(&path).is_some_and(|path| path.validation.is_complete())
    }

    /// Whether the peer may open this path.
    fn may_open(&self, path: PathId) -> bool {
        self.side == Side::Edge && self.paths.len() < MAX_PATHS && !self.is_removed(path)
    }

    fn open_path(&mut self, id: PathId, now: Instant) {
        self.paths.insert(id, Path::new(id, PathSettings::default(), now));
        self.record_event(Event::PathOpened(id));
    }

    fn take_ack(&mut self, ack: &Ack, now: Instant) {
        // A path that was removed meanwhile owes nothing.
        let Some(path) = self.paths.get_mut(&ack.path) else { return };
        let (before, mut lost) = (path.state, Vec::new());
        path.on_ack(ack, now, &mut lost);
        let after = path.state;
        self.requeue(lost, now);
        self.record_state(ack.path, before, after);
    }

    fn take_status(&mut self, status: Status, now: Instant) {
        if status.is_removed {
            if self.paths.contains_key(&status.path) {
                self.drop_path(status.path, now);
                self.record_event(Event::PathRemoved(status.path));
            } else if self.side == Side::Edge {
                self.record_removed(status.path);
            }
            return;
        }
        if !self.paths.contains_key(&status.path) {
            if !self.may_open(status.path) {
                return;
            }
            self.open_path(status.path, now);
        }
        let Some(path) = self.paths.get_mut(&status.path) else { return };
        let (before, mut lost) = (path.state, Vec::new());
        path.set_peer(status, now, &mut lost);
        let after = path.state;
        self.requeue(lost, now);
        self.record_state(status.path, before, after);
    }

    /// The association is over, and the peer need not be told.
    fn end(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.record_event(Event::Closed);
        }
    }
}
