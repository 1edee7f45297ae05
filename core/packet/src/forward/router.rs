//! What a router knows besides its routes: interfaces and neighbors.

use std::{collections::HashMap, net::IpAddr};

use crate::{
    parse::{Mac, Tags},
    route::{Cells, Fib},
};

/// The most interfaces of a router.
pub const MAX_INTERFACES: usize = 4_096;
/// The most neighbors of a router.
pub const MAX_NEIGHBORS: usize = 65_536;

/// Whether a route has to lead back to the source of a packet (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// Any source.
    #[default]
    Off,
    /// Some route leads to the source.
    Loose,
    /// The route to the source leaves by the interface that the packet came by.
    Strict,
}

/// A routed interface: a device, or a VLAN of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Index of the device.
    pub port: u32,
    /// The VLAN, or no tags.
    pub tags: Tags,
    /// Hardware address.
    pub mac: Mac,
    /// The most bytes of an IP packet that leaves.
    pub mtu: usize,
    /// The check of sources.
    pub reverse_path: ReversePath,
}

/// A router. The index of an interface is the kernel's, so that of a VLAN is that of its own device.
#[derive(Debug, Clone)]
pub struct Router<C> {
    /// The routes.
    pub fib: Fib<C>,
    /// The seed of the hash that chooses among equal next hops.
    pub seed: u32,
    interfaces: HashMap<u32, Interface>,
    by_tags: HashMap<(u32, Tags), u32>,
    neighbors: HashMap<(u32, IpAddr), Mac>,
}

/// A change that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    /// The table is full.
    #[error("a router has at most {MAX_INTERFACES} interfaces")]
    TooManyInterfaces,
    /// The table is full.
    #[error("a router has at most {MAX_NEIGHBORS} neighbors")]
    TooManyNeighbors,
    /// Another interface has the VLAN of the device.
    #[error("interface {0} already has this device and VLAN")]
    SameTags(u32),
}

impl<C: Cells> Router<C> {
    /// A router without interfaces.
    #[must_use]
    pub fn new(fib: Fib<C>, seed: u32) -> Self {
        Self { fib, seed, interfaces: HashMap::new(), by_tags: HashMap::new(), neighbors: HashMap::new() }
    }

    /// Adds or replaces an interface.
    ///
    /// # Errors
    /// There are too many, or another one has its device and VLAN.
    pub fn set_interface(&mut self, index: u32, interface: Interface) -> Result<(), RouterError> {
        let key = (interface.port, interface.tags);
        match self.by_tags.get(&key) {
            Some(other) if *other != index => return Err(RouterError::SameTags(*other)),
            _ => {}
        }
        if self.interfaces.len() >= MAX_INTERFACES && !self.interfaces.contains_key(&index) {
            return Err(RouterError::TooManyInterfaces);
        }
        self.remove_interface(index);
        self.by_tags.insert(key, index);
        self.interfaces.insert(index, interface);
        Ok(())
    }

    /// Removes an interface. Its neighbors stay, as in the kernel's table, until they are removed.
    pub fn remove_interface(&mut self, index: u32) {
        if let Some(interface) = self.interfaces.remove(&index) {
            self.by_tags.remove(&(interface.port, interface.tags));
        }
    }

    /// Adds or replaces the hardware address of a neighbor.
    ///
    /// # Errors
    /// There are too many.
    pub fn set_neighbor(&mut self, interface: u32, address: IpAddr, mac: Mac) -> Result<(), RouterError> {
        if self.neighbors.len() >= MAX_NEIGHBORS && !self.neighbors.contains_key(&(interface, address)) {
            return Err(RouterError::TooManyNeighbors);
        }
        self.neighbors.insert((interface, address), mac);
        Ok(())
    }

    /// Removes a neighbor.
    pub fn remove_neighbor(&mut self, interface: u32, address: IpAddr) {
        self.neighbors.remove(&(interface, address));
    }

    /// An interface.
    #[must_use]
    pub fn interface(&self, index: u32) -> Option<&Interface> {
        self.interfaces.get(&index)
    }

    /// The index of the interface of a device and VLAN.
    #[must_use]
    pub fn interface_of(&self, port: u32, tags: Tags) -> Option<u32> {
        self.by_tags.get(&(port, tags)).copied()
    }

    /// The hardware address of a neighbor.
    #[must_use]
    pub fn neighbor(&self, interface: u32, address: IpAddr) -> Option<Mac> {
        self.neighbors.get(&(interface, address)).copied()
    }
}
