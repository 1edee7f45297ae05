//! What happens to a packet, and the reason.

use crate::parse::Malformed;

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The changed frame leaves by this port: the index of a device.
    Forward {
        /// Index of the device.
        port: u32,
    },
    /// The packet vanishes.
    Drop(DropReason),
    /// The kernel has the frame, unchanged.
    Pass(PassReason),
}

/// The reason for which a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum DropReason {
    /// The frame or the IP header cannot be read.
    #[error("{0}")]
    Malformed(Malformed),
    /// The source cannot be that of a packet on a network (RFC 1812, section 5.3.7; RFC 4291).
    #[error("the source address is not that of a host")]
    MartianSource,
    /// No route leads back to the source (RFC 3704).
    #[error("no route leads back to the source by this interface")]
    SpoofedSource,
    /// The route is a black hole.
    #[error("the route is a black hole")]
    BlackHole,
    /// A rule of the policy refuses the packet.
    #[error("a rule of the policy refuses the packet")]
    Policy,
    /// The NAT lets only known peers in.
    #[error("the NAT has no session with this sender")]
    NatFiltered,
    /// The NAT has no free port.
    #[error("every port of the NAT's address that was tried is in use")]
    NatPortsExhausted,
    /// The user or the NAT has too many sessions.
    #[error("there are too many sessions")]
    NatSessionsExhausted,
    /// The packet belongs to no session, and begins none.
    #[error("the packet belongs to no session and cannot begin one")]
    NatNoSession,
}

/// The reason for which the kernel gets the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum PassReason {
    /// The port or VLAN is not routed here.
    #[error("the port or VLAN is not routed here")]
    NotRouted,
    /// The frame has no IP packet.
    #[error("the frame has no IP packet")]
    NotIp,
    /// The frame is for another station, or for many.
    #[error("the frame is not for the router's own hardware address")]
    NotForRouter,
    /// Routers have to look at options.
    #[error("the packet has options for routers")]
    RouterOptions,
    /// The destination is a multicast or broadcast address.
    #[error("the destination is a multicast or broadcast address")]
    Multicast,
    /// An address is valid on one link only.
    #[error("an address is valid on one link only")]
    LinkLocal,
    /// The destination is this machine.
    #[error("the destination is this machine")]
    Local,
    /// No route: the kernel answers.
    #[error("there is no route; the kernel answers")]
    NoRoute,
    /// A prohibit route: the kernel answers.
    #[error("the route is forbidden; the kernel answers")]
    Prohibit,
    /// An unreachable route: the kernel answers.
    #[error("the route is unreachable; the kernel answers")]
    Unreachable,
    /// The hop limit ends here: the kernel answers.
    #[error("the hop limit ends here; the kernel answers")]
    HopLimit,
    /// The packet is too big for the way out: the kernel answers or fragments.
    #[error("the packet is bigger than the way out; the kernel answers or fragments")]
    TooBig,
    /// The kernel has to find the neighbour.
    #[error("the hardware address of the neighbor is not known; the kernel asks")]
    NoNeighbor,
    /// The way out is an interface without a program.
    #[error("the interface of the way out is not served here")]
    OtherInterface,
    /// A fragment whose first one the NAT has not translated.
    #[error("the first fragment of the packet is not known; the kernel puts the packet together")]
    NatFragment,
    /// The NAT does not translate the protocol.
    #[error("the NAT does not translate this protocol")]
    NatProtocol,
    /// A rule refuses the packet, and the kernel answers.
    #[error("a rule of the policy rejects the packet; the kernel answers")]
    PolicyReject,
    /// A packet to an address of the NAT has no mapping: it may be for this machine.
    #[error("no mapping of the NAT has this destination")]
    NatNoMapping,
    /// The destination is loopback, reserved or none: networks that use such addresses have the kernel's routes.
    #[error("the destination address is not that of a host")]
    MartianDestination,
}

impl DropReason {
    /// The number of the reason's counter: bad frames from 1 in the order of [`Malformed`], other reasons from 32.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Malformed(malformed) => 1 + malformed as u32,
            Self::MartianSource => 32,
            Self::SpoofedSource => 34,
            Self::BlackHole => 35,
            Self::Policy => 36,
            Self::NatFiltered => 37,
            Self::NatPortsExhausted => 38,
            Self::NatSessionsExhausted => 39,
            Self::NatNoSession => 40,
        }
    }
}

impl PassReason {
    /// The number of the reason's counter: from 64, in the order of the reasons.
    #[must_use]
    pub fn number(self) -> u32 {
        64 + self as u32
    }
}
