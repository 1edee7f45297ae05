//! The types of the interface: configuration, results, events, counters.

use std::time::Duration;

use crate::packet::{AssociationId, PathId, Secret, Side};
use crate::path::PathState;

/// What both ends agreed upon in their TLS session.
pub struct Setup {
    /// Which end this is.
    pub side: Side,
    /// The id by which packets find this end.
    pub local: AssociationId,
    /// The id of the other end.
    pub remote: AssociationId,
    /// The secret, from which both ends derive their keys.
    pub secret: Secret,
}

/// The bounds of an association.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of datagrams that wait for their first transmission, at most.
    pub send_queue_bytes: usize,
    /// How long the receiver waits for a missing datagram before it delivers those after it. The sender sends a lost
    /// datagram again for as long.
    pub reorder_wait: Duration,
    /// Bytes of datagrams that wait for a missing one, at most.
    pub reorder_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { send_queue_bytes: 4 << 20, reorder_wait: Duration::from_millis(500), reorder_bytes: 32 << 20 }
    }
}

/// A UDP payload to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The path by whose link the packet goes.
    pub path: PathId,
    /// The UDP payload.
    pub bytes: Vec<u8>,
    /// Whether the packet asks for the MTU: the driver must not let it be fragmented, and an error of the kernel that
    /// the packet is too long is no fault.
    pub is_probe: bool,
}

/// A packet that was believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The path by which the peer sent the packet.
    pub path: PathId,
    /// Whether no packet of the path with a greater number came before. Answers go to the address of such a packet.
    pub is_newest: bool,
}

/// Something for the driver to act upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a path.
    PathOpened(PathId),
    /// A path has another state.
    PathState(PathId, PathState),
    /// The peer ended a path.
    PathRemoved(PathId),
    /// The queue has room again after a refusal.
    Room,
    /// The peer ended the association.
    Closed,
}

/// Why a path could not be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddPathError {
    /// Only the connector knows links.
    #[error("only the connector's side of an association adds paths")]
    WrongSide,
    /// The bound of paths is reached.
    #[error("the association has 16 paths already")]
    TooMany,
    /// Each number of a path is used once, because nonces contain it.
    #[error("the association has had 65,536 paths: open another association")]
    Exhausted,
}

/// Why a datagram was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The paths carry less than what is sent.
    #[error("the send queue is full")]
    Full,
    /// UDP has no longer datagrams.
    #[error("a datagram has at most 65,535 bytes")]
    TooLong,
    /// One of the ends closed the association.
    #[error("the association is closed")]
    Closed,
}

/// Why a packet counts for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No packet of this association.
    #[error("the packet is not of this association")]
    Foreign,
    /// The bytes were changed, or another key sealed them.
    #[error("the seal does not fit")]
    Unsealed,
    /// The number of the packet came before, or is too old to say.
    #[error("the packet came before")]
    Replayed,
    /// The frames do not follow the format, although the peer sealed them.
    #[error("the frames are malformed")]
    Malformed,
    /// The path was removed, or there are too many paths.
    #[error("the path is not of this association")]
    NoPath,
}

/// What happened in an association, in numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that `send` took.
    pub sent_datagrams: u64,
    /// Datagrams that `receive` gave or will give.
    pub delivered_datagrams: u64,
    /// Parts of datagrams that were sent again.
    pub retransmissions: u64,
    /// Parts of datagrams that this side gave up, because the receiver no longer waits for them.
    pub expired: u64,
    /// Missing datagrams that this side stopped waiting for.
    pub given_up: u64,
    /// Parts of datagrams that came although they had come or had been given up.
    pub duplicates: u64,
    /// Packets refused as [`Refused::Foreign`].
    pub refused_foreign: u64,
    /// Packets refused as [`Refused::Unsealed`].
    pub refused_unsealed: u64,
    /// Packets refused as [`Refused::Replayed`].
    pub refused_replayed: u64,
    /// Packets refused as [`Refused::Malformed`].
    pub refused_malformed: u64,
    /// Packets refused as [`Refused::NoPath`].
    pub refused_no_path: u64,
}
