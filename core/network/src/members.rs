//! The members of a network: leases of addresses, groups, and routes to what lies behind them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use crate::{
    address::overlap,
    name::Name,
    policy::{Endpoint, MAX_ENDPOINTS, MAX_LIST},
};

/// The most bytes of a name in DNS (RFC 1035 section 2.3.4).
const MAX_DNS_BYTES: usize = 253;

/// The most routes of a machine. With its addresses, it is an endpoint of a policy.
const MAX_ROUTES: usize = MAX_LIST - 2;

/// A machine of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// One address of each range.
    pub addresses: Vec<IpAddr>,
    /// Groups that policies name.
    pub groups: BTreeSet<Name>,
    /// Networks that others reach through the machine.
    pub routes: Vec<IpNet>,
}

/// Ranges of addresses with the machines that have leases there.
#[derive(Debug, Clone)]
pub struct Members {
    network: Name,
    ranges: Vec<Range>,
    members: BTreeMap<Name, Member>,
}

/// A range, and where the search for a free address begins.
#[derive(Debug, Clone)]
struct Range {
    net: IpNet,
    next: u128,
    leased: BTreeSet<IpAddr>,
}

/// Why a network cannot have these ranges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// No range.
    #[error("a network needs a range of addresses")]
    None,
    /// Two ranges of one family.
    #[error("{0} and {1} are of one family, and a network has one range of each")]
    SameFamily(IpNet, IpNet),
    /// No room.
    #[error("{0} has no room for two machines")]
    Small(IpNet),
}

/// Why a machine cannot join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The name is taken.
    #[error("{0} is in the network already")]
    SameName(Name),
    /// No address is left.
    #[error("every address of {0} is leased: remove a machine, or make a network with a larger range")]
    Full(IpNet),
    /// A machine and a group of one name, which no rule could tell apart.
    #[error("{0} would be the name of a machine and of a group")]
    SharedName(Name),
    /// Too many machines.
    #[error("a network has at most {MAX_ENDPOINTS} machines")]
    TooMany,
    /// Too many routes.
    #[error("a machine has at most {MAX_ROUTES} routes and {MAX_LIST} groups")]
    LongList,
    /// A route into the network's own range.
    #[error("the route {route} and the range {range} of the network have addresses in common")]
    OverlapsRange {
        /// The route.
        route: IpNet,
        /// The range.
        range: IpNet,
    },
    /// A route that another route has.
    #[error("the route {route} and the route {other} of {member} have addresses in common")]
    OverlapsRoute {
        /// The route.
        route: IpNet,
        /// The other.
        other: IpNet,
        /// Whose it is.
        member: Name,
    },
    /// A route that the tunnel itself needs.
    #[error("the route {route} has {address}, by which the tunnel itself goes: the tunnel would swallow itself")]
    Swallows {
        /// The route.
        route: IpNet,
        /// An address of the way out.
        address: IpAddr,
    },
}

impl Members {
    /// A network without machines.
    ///
    /// # Errors
    /// The ranges are none, too small, or two of one family.
    pub fn new(network: Name, ranges: Vec<IpNet>) -> Result<Self, RangeError> {
        if ranges.is_empty() {
            return Err(RangeError::None);
        }
        for (place, net) in ranges.iter().enumerate() {
            let is_same = |other: &&IpNet| other.addr().is_ipv4() == net.addr().is_ipv4();
            if let Some(other) = ranges[..place].iter().find(is_same) {
                return Err(RangeError::SameFamily(*other, *net));
            }
            if net.max_prefix_len() - net.prefix_len() < 2 {
                return Err(RangeError::Small(*net));
            }
        }
        let range = |net: IpNet| Range { net: net.trunc(), next: 1, leased: BTreeSet::new() };
        Ok(Self { network, ranges: ranges.into_iter().map(range).collect(), members: BTreeMap::new() })
    }

    /// A network with these machines. `next` has the address of each range at which the search for a free one begins.
    ///
    /// # Errors
    /// The ranges are none, too small, or two of one family.
    pub fn restore(
        network: Name,
        ranges: Vec<IpNet>,
        members: BTreeMap<Name, Member>,
        next: &[IpAddr],
    ) -> Result<Self, RangeError> {
        let mut restored = Self::new(network, ranges)?;
        for range in &mut restored.ranges {
            let leased = members.values().flat_map(|member| &member.addresses).copied();
            range.leased = leased.filter(|address| range.net.contains(address)).collect();
            range.next = next.iter().find_map(|address| range.offset(*address)).unwrap_or(range.next);
        }
        restored.members = members;
        Ok(restored)
    }

    /// The address of each range at which the search for a free one begins.
    pub fn next(&self) -> impl Iterator<Item = IpAddr> {
        self.ranges.iter().map(|range| range.address(range.next))
    }

    /// Leases addresses to a machine. `way_out` has the addresses that the machine's own tunnel goes to.
    ///
    /// # Errors
    /// The name is taken, no address is left, or a route overlaps what is there.
    pub fn join(
        &mut self,
        name: Name,
        groups: BTreeSet<Name>,
        routes: Vec<IpNet>,
        way_out: &[IpAddr],
    ) -> Result<&Member, JoinError> {
        if self.members.contains_key(&name) {
            return Err(JoinError::SameName(name));
        }
        if self.members.len() >= MAX_ENDPOINTS {
            return Err(JoinError::TooMany);
        }
        if routes.len() > MAX_ROUTES || groups.len() > MAX_LIST {
            return Err(JoinError::LongList);
        }
        self.check_names(&name, &groups)?;
        for (place, route) in routes.iter().enumerate() {
            self.check_route(&name, route, &routes[..place], way_out)?;
        }
        // All ranges have room, or nothing is leased.
        if let Some(full) = self.ranges.iter().find(|range| range.free().is_none()) {
            return Err(JoinError::Full(full.net));
        }
        let addresses = self.ranges.iter_mut().filter_map(Range::lease).collect();
        Ok(self.members.entry(name).or_insert(Member { addresses, groups, routes }))
    }

    fn check_names(&self, name: &Name, groups: &BTreeSet<Name>) -> Result<(), JoinError> {
        let is_group = groups.contains(name) || self.members.values().any(|member| member.groups.contains(name));
        let shared = if is_group { Some(name) } else { groups.iter().find(|group| self.members.contains_key(*group)) };
        shared.map_or(Ok(()), |shared| Err(JoinError::SharedName(shared.clone())))
    }

    fn check_route(&self, name: &Name, route: &IpNet, before: &[IpNet], way_out: &[IpAddr]) -> Result<(), JoinError> {
        let route = route.trunc();
        if let Some(range) = self.ranges.iter().map(|range| range.net).find(|range| overlap(range, &route)) {
            return Err(JoinError::OverlapsRange { route, range });
        }
        if let Some(address) = way_out.iter().copied().find(|address| route.contains(address)) {
            return Err(JoinError::Swallows { route, address });
        }
        let of_others = self.members.iter().flat_map(|(name, one)| one.routes.iter().map(move |other| (name, other)));
        let own = before.iter().map(|other| (name, other));
        match of_others.chain(own).find(|(_, other)| overlap(other, &route)) {
            Some((member, other)) => Err(JoinError::OverlapsRoute { route, other: *other, member: member.clone() }),
            None => Ok(()),
        }
    }

    /// Takes a machine out. Its addresses are leased again after all others.
    pub fn leave(&mut self, name: &Name) -> Option<Member> {
        let member = self.members.remove(name)?;
        for address in &member.addresses {
            for range in &mut self.ranges {
                range.leased.remove(address);
            }
        }
        Some(member)
    }

    /// The machines.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<Name, Member> {
        &self.members
    }

    /// The machines as endpoints of a policy.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.members.iter().map(|(name, member)| Endpoint {
            name: name.clone(),
            networks: member
                .addresses
                .iter()
                .map(|address| IpNet::from(*address))
                .chain(member.routes.clone())
                .collect(),
            groups: member.groups.clone(),
            device: None,
        })
    }

    /// The name of a machine in DNS, `machine.network.domain`; `None` if it is too long there.
    #[must_use]
    pub fn dns_name(&self, machine: &Name, domain: &str) -> Option<String> {
        let name = format!("{machine}.{}.{domain}", self.network);
        (name.len() <= MAX_DNS_BYTES).then_some(name)
    }
}

impl Range {
    /// Offsets of addresses from 1 to this are leased: neither the first address, which names the network in IPv4 and
    /// is anycast in IPv6 (RFC 4291 section 2.6.1), nor the last one, to which IPv4 broadcasts.
    fn last(&self) -> u128 {
        let host_bits = u32::from(self.net.max_prefix_len() - self.net.prefix_len());
        1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1) - 1
    }

    /// Offset of the next free address.
    fn free(&self) -> Option<u128> {
        let last = self.last();
        if self.leased.len() as u128 >= last {
            return None;
        }
        // At most one step for each lease, and one more.
        let offsets = (self.next..=last).chain(1..self.next);
        offsets.into_iter().find(|offset| !self.leased.contains(&self.address(*offset)))
    }

    /// The offset of an address that may be leased.
    fn offset(&self, address: IpAddr) -> Option<u128> {
        let offset = match (address, self.net.network()) {
            (IpAddr::V4(address), IpAddr::V4(first)) => u32::from(address).checked_sub(u32::from(first))?.into(),
            (IpAddr::V6(address), IpAddr::V6(first)) => u128::from(address).checked_sub(u128::from(first))?,
            _ => return None,
        };
        (1..=self.last()).contains(&offset).then_some(offset)
    }

    fn address(&self, offset: u128) -> IpAddr {
        match self.net.network() {
            IpAddr::V4(first) => IpAddr::V4((u32::from(first).wrapping_add(offset as u32)).into()),
            IpAddr::V6(first) => IpAddr::V6((u128::from(first).wrapping_add(offset)).into()),
        }
    }

    fn lease(&mut self) -> Option<IpAddr> {
        let offset = self.free()?;
        self.next = if offset == self.last() { 1 } else { offset + 1 };
        let address = self.address(offset);
        self.leased.insert(address);
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn office() -> Members {
        Members::new(name("office"), nets(&["10.20.0.0/29", "fd00:20::/64"])).unwrap()
    }

    fn join(members: &mut Members, machine: &str, routes: &[&str]) -> Result<Vec<String>, String> {
        let way_out = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let joined = members.join(name(machine), BTreeSet::new(), nets(routes), &way_out);
        joined
            .map(|member| member.addresses.iter().map(ToString::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn machines_get_addresses_of_both_families_until_none_is_left() {
        let mut office = office();
        for number in 1..=6 {
            let addresses = join(&mut office, &format!("m{number}"), &[]).unwrap();
            assert_eq!(addresses, [format!("10.20.0.{number}"), format!("fd00:20::{number}")]);
        }
        assert!(join(&mut office, "m7", &[]).unwrap_err().contains("every address of 10.20.0.0/29 is leased"));
        assert_eq!(office.members().len(), 6, "nothing of the other family was leased");
        assert!(office.leave(&name("m7")).is_none());
        office.leave(&name("m3")).unwrap();
        assert_eq!(join(&mut office, "m7", &[]).unwrap(), ["10.20.0.3", "fd00:20::7"]);
        assert!(join(&mut office, "m7", &[]).unwrap_err().contains("m7 is in the network already"));
        assert_eq!(office.dns_name(&name("m7"), "example.com").unwrap(), "m7.office.example.com");
        assert_eq!(office.dns_name(&name("m7"), &"a.".repeat(125)), None);
    }

    #[test]
    fn an_address_that_is_given_back_is_leased_last() {
        let mut office = office();
        join(&mut office, "a", &[]).unwrap();
        office.leave(&name("a")).unwrap();
        assert_eq!(join(&mut office, "b", &[]).unwrap(), ["10.20.0.2", "fd00:20::2"]);
    }

    #[test]
    fn a_restored_network_goes_on_where_it_was() {
        let mut office = office();
        join(&mut office, "a", &[]).unwrap();
        join(&mut office, "b", &[]).unwrap();
        office.leave(&name("b")).unwrap();
        let next: Vec<_> = office.next().collect();
        let ranges = nets(&["10.20.0.0/29", "fd00:20::/64"]);
        let restore =
            |next: &[IpAddr]| Members::restore(name("office"), ranges.clone(), office.members().clone(), next).unwrap();
        assert_eq!(join(&mut restore(&next), "c", &[]).unwrap(), ["10.20.0.3", "fd00:20::3"]);
        assert_eq!(join(&mut restore(&[]), "c", &[]).unwrap(), ["10.20.0.2", "fd00:20::2"], "the first free ones");
        let foreign: Vec<IpAddr> = vec!["10.20.0.7".parse().unwrap(), "fd00:21::1".parse().unwrap()];
        assert_eq!(join(&mut restore(&foreign), "c", &[]).unwrap(), ["10.20.0.2", "fd00:20::2"]);
    }

    #[test]
    fn no_name_is_of_a_machine_and_of_a_group() {
        let mut office = office();
        let mut join_groups = |machine: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| name(group)).collect();
            office.join(name(machine), groups, Vec::new(), &[]).map(drop).map_err(|error| error.to_string())
        };
        join_groups("web-1", &["web"]).unwrap();
        for (machine, groups) in [("web", vec![]), ("x", vec!["x"]), ("x", vec!["web-1"])] {
            assert!(join_groups(machine, &groups).unwrap_err().contains("of a machine and of a group"), "{machine}");
        }
    }

    #[test]
    fn routes_overlap_nothing() {
        let mut office = office();
        join(&mut office, "gate", &["10.30.0.0/16", "fd00:30::/48"]).unwrap();
        let said = |office: &mut Members, route: &str| join(office, "x", &[route]).unwrap_err();
        assert!(said(&mut office, "10.0.0.0/8").contains("the range 10.20.0.0/29 of the network"));
        assert!(said(&mut office, "10.30.9.0/24").contains("the route 10.30.0.0/16 of gate"));
        assert!(said(&mut office, "fd00:30::1/128").contains("the route fd00:30::/48 of gate"));
        assert!(said(&mut office, "192.0.2.0/24").contains("has 192.0.2.1, by which the tunnel itself goes"));
        assert!(said(&mut office, "2000::/3").contains("has 2001:db8::1, by which the tunnel itself goes"));
        let twice = join(&mut office, "x", &["10.40.0.0/16", "10.40.1.0/24"]).unwrap_err();
        assert!(twice.contains("the route 10.40.0.0/16 of x"), "{twice}");
        assert_eq!(office.members().len(), 1);
        let endpoints: Vec<_> = office.endpoints().collect();
        assert_eq!(endpoints[0].networks, nets(&["10.20.0.1/32", "fd00:20::1/128", "10.30.0.0/16", "fd00:30::/48"]));
    }

    #[test]
    fn ranges_have_room_and_a_family_each() {
        let wrong = |ranges: &[&str]| Members::new(name("x"), nets(ranges)).unwrap_err().to_string();
        assert!(wrong(&[]).contains("needs a range"));
        assert!(wrong(&["10.0.0.0/24", "10.1.0.0/24"]).contains("of one family"));
        assert!(wrong(&["10.0.0.0/31"]).contains("no room for two machines"));
        assert!(wrong(&["fd00::/128"]).contains("no room for two machines"));
        assert!(Members::new(name("x"), nets(&["10.0.0.0/30"])).is_ok());
        let mut all = Members::new(name("x"), nets(&["::/0"])).unwrap();
        assert_eq!(join(&mut all, "a", &[]).unwrap(), ["::1"]);
    }

    proptest! {
        #[test]
        fn no_address_is_leased_twice(steps in prop::collection::vec((any::<bool>(), 0_usize..20), 1..200)) {
            let mut members = Members::new(name("x"), nets(&["10.20.0.0/28", "fd00::/124"])).unwrap();
            for (joins, number) in steps {
                let machine = name(&format!("m{number}"));
                let (count, is_member) = (members.members().len(), members.members().contains_key(&machine));
                if joins {
                    let joined = members.join(machine, BTreeSet::new(), vec![], &[]).is_ok();
                    prop_assert_eq!(joined, !is_member && count < 14);
                } else {
                    prop_assert_eq!(members.leave(&machine).is_some(), is_member);
                }
                let all: Vec<_> = members.members().values().flat_map(|member| &member.addresses).collect();
                let distinct: BTreeSet<_> = all.iter().collect();
                prop_assert_eq!(distinct.len(), all.len());
                let ranges = nets(&["10.20.0.0/28", "fd00::/124"]);
                prop_assert!(all.iter().all(|one| ranges.iter().any(|net| net.contains(*one) && net.network() != **one)));
            }
        }
    }
}
