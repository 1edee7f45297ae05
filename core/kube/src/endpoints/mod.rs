//! The pods of a port, from all EndpointSlices of its Service.

use std::{
    collections::{BTreeMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use crate::{AddressType, Endpoint, EndpointSlice, IpFamily, Target};

/// The most endpoints of a pool; of more, those with the lowest addresses are taken, on every replica the same.
pub const MAX_POOL: usize = 1_000;

/// An endpoint of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMember {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it is on its way out, and still answers: it takes requests only if no other one is left.
    pub is_draining: bool,
    /// Its node.
    pub node_name: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
}

/// The endpoints of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// The endpoints, by address.
    pub members: Vec<PoolMember>,
    /// How many more there are than a pool may have.
    pub left_out: usize,
}

impl Pool {
    /// The addresses that take requests: the ready endpoints, or else those that still answer.
    #[must_use]
    pub fn active(&self) -> Vec<SocketAddr> {
        let is_any_ready = self.members.iter().any(|member| !member.is_draining);
        let takes = |member: &&PoolMember| !(is_any_ready && member.is_draining);
        self.members.iter().filter(takes).map(|member| member.address).collect()
    }

    /// The addresses on their way out.
    #[must_use]
    pub fn draining(&self) -> Vec<SocketAddr> {
        self.members.iter().filter(|member| member.is_draining).map(|member| member.address).collect()
    }

    /// Whether there is no endpoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// How an endpoint takes part: `None` if it does not.
fn draining(endpoint: &Endpoint, publishes_not_ready: bool) -> Option<bool> {
    if endpoint.is_ready() || publishes_not_ready {
        return Some(false);
    }
    (endpoint.is_serving() && endpoint.is_terminating()).then_some(true)
}

fn family(address: IpAddr) -> IpFamily {
    if address.is_ipv4() { IpFamily::Ipv4 } else { IpFamily::Ipv6 }
}

/// The pool of a port. Slices of other Services and of other ports are left out. Endpoints in several slices count once,
/// and are ready if one of them says so. Of a Service with both families the first one counts, unless it has no
/// endpoint.
#[must_use]
pub fn pool<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>, target: &Target) -> Pool {
    let mut all: BTreeMap<SocketAddr, PoolMember> = BTreeMap::new();
    for slice in slices {
        let is_of_service = slice.namespace == target.service.namespace && slice.service == target.service.name;
        if !is_of_service || slice.address_type == AddressType::Fqdn {
            continue;
        }
        // Pods may differ in the number of a named port: then their slices differ.
        let ports: HashSet<u16> = slice
            .ports
            .iter()
            .filter(|port| port.name == target.port_name && port.protocol == target.protocol)
            .filter_map(|port| port.port.filter(|port| *port > 0))
            .collect();
        for (endpoint, port) in slice.endpoints.iter().flat_map(|one| ports.iter().map(move |port| (one, *port))) {
            let Some(is_draining) = draining(endpoint, target.publishes_not_ready) else { continue };
            let Some(Ok(address)) = endpoint.addresses.first().map(|text| text.parse::<IpAddr>()) else { continue };
            let is_usable = !(address.is_loopback() || address.is_unspecified() || address.is_multicast());
            if !is_usable || !is_of(slice.address_type, address) {
                continue;
            }
            let member = PoolMember {
                address: SocketAddr::new(address, port),
                is_draining,
                node_name: endpoint.node_name.clone(),
                zone: endpoint.zone.clone(),
            };
            let there = all.entry(member.address).or_insert_with(|| member.clone());
            if there.is_draining && !is_draining {
                *there = member;
            }
        }
    }
    bounded(all.into_values().collect(), &target.families)
}

fn is_of(address_type: AddressType, address: IpAddr) -> bool {
    match address_type {
        AddressType::Ipv4 => address.is_ipv4(),
        AddressType::Ipv6 => address.is_ipv6(),
        AddressType::Fqdn => false,
    }
}

/// The members of the preferred family that has a ready one, as many as a pool may have.
fn bounded(all: Vec<PoolMember>, families: &[IpFamily]) -> Pool {
    let present = |wanted: IpFamily, ready_only: bool| {
        all.iter().any(|member| family(member.address.ip()) == wanted && !(ready_only && member.is_draining))
    };
    let order: Vec<IpFamily> = families.iter().copied().chain([IpFamily::Ipv4, IpFamily::Ipv6]).collect();
    let ready = order.iter().find(|wanted| present(**wanted, true));
    let Some(chosen) = ready.or_else(|| order.iter().find(|wanted| present(**wanted, false))).copied() else {
        return Pool::default();
    };
    let (mut members, drained): (Vec<_>, Vec<_>) =
        all.into_iter().filter(|member| family(member.address.ip()) == chosen).partition(|member| !member.is_draining);
    members.extend(drained);
    let left_out = members.len().saturating_sub(MAX_POOL);
    members.truncate(MAX_POOL);
    members.sort_by_key(|member| member.address);
    Pool { members, left_out }
}
