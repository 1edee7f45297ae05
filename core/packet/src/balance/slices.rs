//! Slices of ports: servers that share one address each have their own local ports.

use std::ops::RangeInclusive;

use crate::{
    layout::{SLICE_PORTS, SLICES},
    parse::{IcmpMessage, Packet, Transport},
};

/// The owners of the slices of one address. The first slice has the ports of services, and is never handed out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortSlices {
    cells: [u32; SLICES],
}

/// A slice that cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// All slices have owners.
    #[error("every slice of {SLICE_PORTS} ports has an owner")]
    NoneFree,
    /// Another server has the slice, or it is none.
    #[error("slice {0} is not free")]
    NotFree(usize),
    /// The number of a server is too large for a cell.
    #[error("the number of a server is less than 2^32 - 1")]
    BadServer,
}

impl PortSlices {
    /// Gives a server a free slice: its number.
    ///
    /// # Errors
    /// No slice is free.
    pub fn take(&mut self, server: u32) -> Result<usize, SliceError> {
        let free = (1..SLICES).find(|slice| self.cells[*slice] == 0).ok_or(SliceError::NoneFree)?;
        self.take_slice(server, free)?;
        Ok(free)
    }

    /// Gives a server a certain slice. It may have the slice already.
    ///
    /// # Errors
    /// The slice is not free.
    pub fn take_slice(&mut self, server: u32, slice: usize) -> Result<(), SliceError> {
        let cell = server.checked_add(1).ok_or(SliceError::BadServer)?;
        match self.cells.get_mut(slice) {
            Some(owner) if slice != 0 && (*owner == 0 || *owner == cell) => {
                *owner = cell;
                Ok(())
            }
            _ => Err(SliceError::NotFree(slice)),
        }
    }

    /// Ends the ownership of all slices of a server. Returns their number.
    pub fn release(&mut self, server: u32) -> usize {
        let owned = self.cells.iter_mut().filter(|cell| **cell != 0 && **cell - 1 == server);
        owned.map(|cell| *cell = 0).count()
    }

    /// The server that has a port.
    #[must_use]
    pub fn owner(&self, port: u16) -> Option<u32> {
        self.cells[usize::from(port / SLICE_PORTS)].checked_sub(1)
    }

    /// The server that gets a packet to the shared address; `None` if it is the kernel's.
    #[must_use]
    pub fn server(&self, packet: &Packet) -> Option<u32> {
        self.owner(steering_port(packet)?)
    }

    /// The ports of a slice.
    #[must_use]
    pub fn ports(slice: usize) -> Option<RangeInclusive<u16>> {
        let first = u16::try_from(slice).ok().filter(|_| slice < SLICES)? * SLICE_PORTS;
        Some(first..=first + (SLICE_PORTS - 1))
    }

    /// The cells of `slice_owners`.
    #[must_use]
    pub fn cells(&self) -> &[u32; SLICES] {
        &self.cells
    }
}

/// The local port that a packet is for: its destination port, of an echo reply the identifier, and of an error the
/// source port of the quoted packet. Fragments, echo requests and other protocols have none.
#[must_use]
pub fn steering_port(packet: &Packet) -> Option<u16> {
    if packet.ip?.fragment.is_some() {
        return None;
    }
    match packet.transport {
        Transport::Tcp(tcp) => Some(tcp.destination),
        Transport::Udp(udp) => Some(udp.destination),
        Transport::Icmp(icmp) => match icmp.message {
            IcmpMessage::EchoReply(identifier) => Some(identifier),
            IcmpMessage::Error(quoted) => Some(quoted.source).filter(|port| *port != 0),
            IcmpMessage::EchoRequest(_) | IcmpMessage::Other => None,
        },
        Transport::LaterFragment | Transport::Other | Transport::Malformed(_) => None,
    }
}
