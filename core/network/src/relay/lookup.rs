//! Which machine has an address.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;
use sallyport_model::MachineId;

use crate::route::NetworkRoute;

/// The machines of a network by their addresses and routes. The longest prefix wins.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    owners: HashMap<IpNet, MachineId>,
    /// Lengths of prefixes that are there, the longest first, of IPv4 and of IPv6.
    lengths: [Vec<u8>; 2],
    ranges: Vec<IpNet>,
    /// The machine through which all other addresses are reached.
    exit: Option<MachineId>,
}

impl Lookup {
    pub(super) fn of(network: &NetworkRoute) -> Self {
        let mut lookup = Self { ranges: network.ranges.clone(), ..Self::default() };
        for machine in &network.machines {
            let addresses = machine.addresses.iter().map(|address| IpNet::from(*address));
            for net in addresses.chain(machine.routes.iter().map(IpNet::trunc)) {
                lookup.owners.insert(net, machine.id);
                lookup.lengths[family(net.addr())].push(net.prefix_len());
            }
            if machine.is_exit {
                lookup.exit = lookup.exit.or(Some(machine.id));
            }
        }
        for lengths in &mut lookup.lengths {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
        }
        lookup
    }

    /// The machine that has the address, or by which the address is reached, if need be as the exit.
    pub(super) fn owner(&self, address: IpAddr) -> Option<MachineId> {
        let is_outside = || is_outside(address) && !self.is_in_range(address);
        self.member(address).or_else(|| self.exit.filter(|_| is_outside()))
    }

    /// The machine that has the address, or a route to the address.
    pub(super) fn member(&self, address: IpAddr) -> Option<MachineId> {
        let nets = self.lengths[family(address)].iter().filter_map(|length| IpNet::new(address, *length).ok());
        nets.filter_map(|net| self.owners.get(&net.trunc())).next().copied()
    }

    /// Whether an address is one of a group, or the one to which a range of IPv4 broadcasts.
    pub(super) fn is_for_many(&self, address: IpAddr) -> bool {
        let is_last = |range: &IpNet| matches!(range, IpNet::V4(range) if IpAddr::V4(range.broadcast()) == address);
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        is_broadcast || address.is_multicast() || self.ranges.iter().any(is_last)
    }

    fn is_in_range(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}

/// Whether an address may be one of a machine outside of the network.
fn is_outside(address: IpAddr) -> bool {
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_of_link || address.is_unspecified() || address.is_loopback())
}

fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}
