//! The association: datagrams, paths and packets together. Uses all other rooms.

mod interface;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

pub use self::interface::{AddPathError, Arrival, Config, Counts, Event, Refused, SendError, Setup, Transmit};
use crate::{
    packet::{AssociationId, Data, Frame, HEADER_BYTES, Header, Opener, PathId, Sealer, Side, frames},
    path::{PathSettings, PathState, PathStats},
};

/// The greatest datagram, in bytes.
pub(crate) const MAX_DATAGRAM_BYTES: usize = 65_535;
/// Paths that an association has at one time.
pub(crate) const MAX_PATHS: usize = 16;

/// One end of an association.
///
/// The driver calls these, in any order:
/// - [`send`](Self::send) with datagrams, until it is refused for want of room;
/// - [`handle`](Self::handle) with each packet that came by UDP;
/// - [`handle_timeout`](Self::handle_timeout) once [`poll_timeout`](Self::poll_timeout) has passed;
/// - afterwards [`poll_transmit`](Self::poll_transmit), [`receive`](Self::receive) and
///   [`poll_event`](Self::poll_event) until each has nothing more, then `poll_timeout`.
///
/// `now` never goes back.
pub struct Association {
    config: Config,
    side: Side,
    local: AssociationId,
    remote: AssociationId,
    sealer: Sealer,
    opener: Opener,
    next_path: u16,
    paths: BTreeMap<PathId, Path>,
    next_sequence: u64,
    queue: VecDeque<Bytes>,
    queue_bytes: usize,
    received: VecDeque<Bytes>,
    events: VecDeque<Event>,
    counts: Counts,
    is_closing: bool,
}

struct Path {
    settings: PathSettings,
    next_number: u64,
    expected: u64,
    sent_bytes: u64,
    received_packets: u64,
    received_bytes: u64,
}

impl Path {
    fn new(settings: PathSettings) -> Self {
        Self { settings, next_number: 0, expected: 0, sent_bytes: 0, received_packets: 0, received_bytes: 0 }
    }
}

impl Association {
    /// An association without paths.
    #[must_use]
    pub fn new(config: Config, setup: &Setup, _now: Instant) -> Self {
        Self {
            config,
            side: setup.side,
            local: setup.local,
            remote: setup.remote,
            sealer: setup.secret.sealer(setup.side),
            opener: setup.secret.opener(setup.side),
            next_path: 0,
            paths: BTreeMap::new(),
            next_sequence: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            received: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
            is_closing: false,
        }
    }

    /// Adds a path. Its first packet makes it known to the peer.
    ///
    /// # Errors
    /// This is the edge's side, there are too many paths, or all numbers of paths were used.
    pub fn add_path(&mut self, settings: PathSettings, _now: Instant) -> Result<PathId, AddPathError> {
        if self.side == Side::Edge {
            return Err(AddPathError::WrongSide);
        }
        if self.paths.len() == MAX_PATHS {
            return Err(AddPathError::TooMany);
        }
        let path = PathId(self.next_path);
        self.next_path = self.next_path.checked_add(1).ok_or(AddPathError::Exhausted)?;
        self.paths.insert(path, Path::new(settings));
        Ok(path)
    }

    /// Changes how a path is used; both sides may, and both wishes count. A path that is not there is ignored.
    pub fn set_path(&mut self, path: PathId, settings: PathSettings, _now: Instant) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.settings = settings;
        }
    }

    /// Ends a path. What it carried goes by the others.
    pub fn remove_path(&mut self, path: PathId, _now: Instant) {
        self.paths.remove(&path);
    }

    /// The paths that there are.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.paths.keys().copied()
    }

    /// A path in numbers; `None` if the path is not there.
    #[must_use]
    pub fn path_stats(&self, path: PathId) -> Option<PathStats> {
        let path = self.paths.get(&path)?;
        Some(PathStats {
            settings: path.settings,
            state: PathState::Active,
            round_trip: Duration::ZERO,
            min_round_trip: Duration::ZERO,
            rate: 0,
            window: 0,
            in_flight: 0,
            mtu: path.settings.max_payload_bytes,
            sent_packets: path.next_number,
            sent_bytes: path.sent_bytes,
            received_packets: path.received_packets,
            received_bytes: path.received_bytes,
            lost_packets: 0,
            spurious_losses: 0,
            suspicions: 0,
        })
    }

    /// What happened, in numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether [`send`](Self::send) takes a datagram now. After a refusal, [`Event::Room`] says when it does again.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue_bytes < self.config.send_queue_bytes
    }

    /// Queues a datagram.
    ///
    /// # Errors
    /// The queue is full, the datagram is too long, or the association is closed.
    pub fn send(&mut self, datagram: Bytes, _now: Instant) -> Result<(), SendError> {
        if datagram.len() > MAX_DATAGRAM_BYTES {
            return Err(SendError::TooLong);
        }
        if self.is_closing {
            return Err(SendError::Closed);
        }
        if !self.has_room() {
            return Err(SendError::Full);
        }
        self.queue_bytes += datagram.len();
        self.queue.push_back(datagram);
        Ok(())
    }

    /// Takes a UDP payload, which is decrypted in place. The driver notes the sender's address as that of the path if
    /// [`Arrival::is_newest`].
    ///
    /// # Errors
    /// The packet counts for nothing; the error says why, and is counted.
    pub fn handle(&mut self, packet: &mut [u8], _now: Instant) -> Result<Arrival, Refused> {
        let header = Header::parse(packet).filter(|header| header.association == self.local);
        let header = header.ok_or(Refused::Foreign)?;
        let length = packet.len();
        let opened = self.opener.open(&header, packet).ok_or(Refused::Unsealed)?;
        let found = frames(opened).map_err(|_| Refused::Malformed)?;
        let is_new = !self.paths.contains_key(&header.path);
        let path = self.paths.entry(header.path).or_insert_with(|| Path::new(PathSettings::default()));
        if header.number < path.expected {
            return Err(Refused::Replayed);
        }
        path.expected = header.number + 1;
        path.received_packets += 1;
        path.received_bytes += length as u64;
        if is_new {
            self.events.push_back(Event::PathOpened(header.path));
        }
        for frame in found {
            if let Frame::Data(data) = frame {
                self.received.push_back(data.bytes);
            }
        }
        Ok(Arrival { path: header.path, is_newest: true })
    }

    /// The next packet to send. The driver sends it by the link of its path, to the address of the path.
    pub fn poll_transmit(&mut self, _now: Instant) -> Option<Transmit> {
        let (&id, path) = self.paths.iter_mut().find(|(_, path)| path.settings.is_available)?;
        let bytes = self.queue.pop_front()?;
        self.queue_bytes -= bytes.len();
        let header = Header { association: self.remote, path: id, number: path.next_number };
        path.next_number += 1;
        let mut packet = Vec::with_capacity(HEADER_BYTES + Data::OVERHEAD + bytes.len() + 16);
        header.write(&mut packet);
        Data { sequence: self.next_sequence, offset: 0, is_last: true, bytes }.write(&mut packet);
        self.next_sequence += 1;
        self.sealer.seal(&header, &mut packet).ok()?;
        path.sent_bytes += packet.len() as u64;
        Some(Transmit { path: id, bytes: packet, is_probe: false })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` if nothing waits.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due at this time.
    pub fn handle_timeout(&mut self, _now: Instant) {}

    /// The next datagram of the peer, in the order in which the peer sent them.
    pub fn receive(&mut self) -> Option<Bytes> {
        self.received.pop_front()
    }

    /// What the driver should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the association: the peer is told by every path, and nothing more is sent.
    pub fn close(&mut self, _now: Instant) {
        self.is_closing = true;
    }
}
