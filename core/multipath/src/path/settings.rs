//! How a path is to be used, what state it is in, and its numbers: the types of the interface.

use std::time::Duration;

/// How a path is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSettings {
    /// Percent of the path's rate that datagrams may take: 1 to 100.
    pub weight: u8,
    /// Whether the path carries datagrams only if no path without this mark can.
    pub is_standby: bool,
    /// Whether each byte costs: such a path comes after all standby paths.
    pub is_metered: bool,
    /// Whether the link is there. A path that is not available sends nothing.
    pub is_available: bool,
    /// The greatest UDP payload, in bytes, that the link itself can carry: its MTU without the headers of IP and UDP.
    pub max_payload_bytes: u16,
}

impl Default for PathSettings {
    fn default() -> Self {
        Self { weight: 100, is_standby: false, is_metered: false, is_available: true, max_payload_bytes: 1472 }
    }
}

/// What an association knows about the state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// No answer has come yet.
    Opening,
    /// Packets are acknowledged.
    Active,
    /// The path owes acknowledgements for too long; it carries probes only.
    Suspected,
    /// The settings of this side or of the peer say that the link is not there.
    Unavailable,
}

/// A path in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStats {
    /// The settings of this side.
    pub settings: PathSettings,
    /// The state now.
    pub state: PathState,
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// The shortest round trip of the last ten seconds.
    pub min_round_trip: Duration,
    /// The rate that the path has shown, in bytes a second.
    pub rate: u64,
    /// Bytes that may be in flight.
    pub window: u64,
    /// Bytes that are in flight.
    pub in_flight: u64,
    /// The greatest UDP payload that has arrived, in bytes.
    pub mtu: u16,
    /// UDP payloads sent, in packets and bytes.
    pub sent_packets: u64,
    /// See `sent_packets`.
    pub sent_bytes: u64,
    /// UDP payloads received and believed, in packets and bytes.
    pub received_packets: u64,
    /// See `received_packets`.
    pub received_bytes: u64,
    /// Packets that this side holds for lost.
    pub lost_packets: u64,
    /// Packets that were held for lost and were acknowledged afterwards.
    pub spurious_losses: u64,
    /// How often the path came under suspicion.
    pub suspicions: u64,
}
