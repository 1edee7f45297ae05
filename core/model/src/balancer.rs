//! The balancers of sites: virtual addresses that edges of a site share.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{EdgeName, RegionName};

/// The most virtual addresses of a site.
pub const MAX_VIRTUAL_ADDRESSES: usize = 16;
/// The most balancers of a site.
pub const MAX_BALANCERS: usize = 32;
/// The most sites with balancers.
pub const MAX_BALANCED_SITES: usize = 64;
/// The most weights of a site.
pub const MAX_BALANCED_EDGES: usize = 1_000;

/// How a balancer sends packets on to edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// A second IP header (RFC 2003, RFC 2473).
    Ipip,
    /// IP, UDP and a header of four octets, by which the second edge is named too.
    #[default]
    Gue,
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipip => "ipip",
            Self::Gue => "gue",
        })
    }
}

/// The text is no encapsulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an encapsulation is ipip or gue")]
pub struct UnknownEncapsulation;

impl FromStr for Encapsulation {
    type Err = UnknownEncapsulation;
    fn from_str(text: &str) -> Result<Self, UnknownEncapsulation> {
        match text {
            "ipip" => Ok(Self::Ipip),
            "gue" => Ok(Self::Gue),
            _ => Err(UnknownEncapsulation),
        }
    }
}

/// The balancer of a site: what control publishes to edges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteBalancer {
    /// The site, which is a region.
    pub site: RegionName,
    /// The virtual addresses, which the edges share.
    pub addresses: Vec<IpAddr>,
    /// How packets get to edges.
    pub encapsulation: Encapsulation,
    /// The addresses of the machines that balance. Edges take encapsulated packets from them.
    pub balancers: Vec<IpAddr>,
    /// The shares of edges. An edge that is not here has [`USUAL_SHARE`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<EdgeName, u16>,
}

/// Why a balancer of a site cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteBalancerError {
    /// There is no virtual address.
    #[error("a site needs a virtual address, which its edges share")]
    NoAddress,
    /// There are too many virtual addresses.
    #[error("a site has at most {MAX_VIRTUAL_ADDRESSES} virtual addresses")]
    TooManyAddresses,
    /// There is no balancer.
    #[error("a site needs the address of a balancer: edges take encapsulated packets from nobody else")]
    NoBalancer,
    /// There are too many balancers.
    #[error("a site has at most {MAX_BALANCERS} balancers")]
    TooManyBalancers,
    /// There are too many weights.
    #[error("a site has at most {MAX_BALANCED_EDGES} weights")]
    TooManyWeights,
    /// A virtual address that nobody can have.
    #[error("{0} cannot be a virtual address: it is {1}")]
    BadAddress(IpAddr, &'static str),
    /// A balancer that cannot be there.
    #[error("{0} cannot be the address of a balancer: it is {1}")]
    BadBalancer(IpAddr, &'static str),
    /// A virtual address is there twice.
    #[error("the virtual address {0} is named twice")]
    AddressTwice(IpAddr),
    /// A balancer is there twice.
    #[error("the balancer {0} is named twice")]
    BalancerTwice(IpAddr),
    /// A balancer has a virtual address.
    #[error("{0} is a virtual address and a balancer: a balancer needs an address of its own")]
    BalancerIsVirtual(IpAddr),
    /// A share is too large.
    #[error("the weight of {0} must be a whole number from 0 to {MAX_SHARE}")]
    BadWeight(EdgeName),
}

/// The share of an edge for which none was set.
pub const USUAL_SHARE: u16 = 100;
/// The largest share of an edge.
pub const MAX_SHARE: u16 = crate::MAX_WEIGHT;

impl SiteBalancerError {
    /// The field of a request that the error is about.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::NoAddress | Self::TooManyAddresses | Self::BadAddress(..) | Self::AddressTwice(_) => "addresses",
            Self::NoBalancer
            | Self::TooManyBalancers
            | Self::BadBalancer(..)
            | Self::BalancerTwice(_)
            | Self::BalancerIsVirtual(_) => "balancers",
            Self::TooManyWeights | Self::BadWeight(_) => "weights",
        }
    }
}

/// Why no machine of a network is found at an address; `None` if one may be.
fn no_host(address: IpAddr) -> Option<&'static str> {
    let is_multicast = address.is_multicast();
    let kinds = match address {
        IpAddr::V4(v4) => [
            (v4.octets()[0] == 0, "of no machine"),
            (v4.is_loopback(), "a loopback address"),
            (v4.is_link_local(), "a link-local address"),
            (is_multicast, "a multicast address"),
            (v4 == Ipv4Addr::BROADCAST || v4.octets()[0] >= 240, "of no machine"),
        ],
        IpAddr::V6(v6) => [
            (v6 == Ipv6Addr::UNSPECIFIED, "of no machine"),
            (v6.is_loopback(), "a loopback address"),
            (v6.is_unicast_link_local(), "a link-local address"),
            (is_multicast, "a multicast address"),
            (v6.to_ipv4_mapped().is_some(), "an IPv4 address in another form"),
        ],
    };
    kinds.into_iter().find(|(is_so, _)| *is_so).map(|(_, what)| what)
}

/// The first that is there twice.
fn twice(addresses: &[IpAddr]) -> Option<IpAddr> {
    addresses.iter().enumerate().find(|(at, one)| addresses[..*at].contains(one)).map(|(_, one)| *one)
}

impl SiteBalancer {
    /// Checks what the balancer says by itself.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), SiteBalancerError> {
        use SiteBalancerError as E;
        if self.addresses.is_empty() {
            return Err(E::NoAddress);
        }
        if self.addresses.len() > MAX_VIRTUAL_ADDRESSES {
            return Err(E::TooManyAddresses);
        }
        if self.balancers.is_empty() {
            return Err(E::NoBalancer);
        }
        if self.balancers.len() > MAX_BALANCERS {
            return Err(E::TooManyBalancers);
        }
        if self.weights.len() > MAX_BALANCED_EDGES {
            return Err(E::TooManyWeights);
        }
        let bad = |all: &[IpAddr]| all.iter().find_map(|one| no_host(*one).map(|why| (*one, why)));
        if let Some((address, why)) = bad(&self.addresses) {
            return Err(E::BadAddress(address, why));
        }
        if let Some((address, why)) = bad(&self.balancers) {
            return Err(E::BadBalancer(address, why));
        }
        if let Some(address) = twice(&self.addresses) {
            return Err(E::AddressTwice(address));
        }
        if let Some(address) = twice(&self.balancers) {
            return Err(E::BalancerTwice(address));
        }
        if let Some(address) = self.balancers.iter().find(|one| self.addresses.contains(one)) {
            return Err(E::BalancerIsVirtual(*address));
        }
        let is_too_much = |(_, weight): &(&EdgeName, &u16)| **weight > MAX_SHARE;
        match self.weights.iter().find(is_too_much) {
            Some((edge, _)) => Err(E::BadWeight(edge.clone())),
            None => Ok(()),
        }
    }

    /// The share of an edge.
    #[must_use]
    pub fn weight(&self, edge: &EdgeName) -> u16 {
        self.weights.get(edge).copied().unwrap_or(USUAL_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(addresses: &[&str], balancers: &[&str]) -> SiteBalancer {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        SiteBalancer {
            site: "eu".parse().unwrap(),
            addresses: all(addresses),
            encapsulation: Encapsulation::Gue,
            balancers: all(balancers),
            weights: BTreeMap::new(),
        }
    }

    #[test]
    fn addresses_that_no_machine_has_are_refused() {
        site(&["198.51.100.1", "2001:db8::1", "10.0.0.1"], &["192.0.2.1"]).check().unwrap();
        for (addresses, balancers, says) in [
            (&[][..], &["192.0.2.1"][..], "needs a virtual address"),
            (&["198.51.100.1"], &[], "needs the address of a balancer"),
            (&["127.0.0.1"], &["192.0.2.1"], "127.0.0.1 cannot be a virtual address: it is a loopback"),
            (&["0.0.0.0"], &["192.0.2.1"], "of no machine"),
            (&["255.255.255.255"], &["192.0.2.1"], "of no machine"),
            (&["fe80::1"], &["192.0.2.1"], "link-local"),
            (&["ff02::1"], &["192.0.2.1"], "multicast"),
            (&["::ffff:192.0.2.7"], &["192.0.2.1"], "another form"),
            (&["198.51.100.1"], &["224.0.0.1"], "224.0.0.1 cannot be the address of a balancer"),
            (&["198.51.100.1", "198.51.100.1"], &["192.0.2.1"], "named twice"),
            (&["198.51.100.1"], &["192.0.2.1", "192.0.2.1"], "named twice"),
            (&["198.51.100.1"], &["198.51.100.1"], "is a virtual address and a balancer"),
            (&["198.51.100.1"; MAX_VIRTUAL_ADDRESSES + 1], &["192.0.2.1"], "at most 16"),
            (&["198.51.100.1"], &["192.0.2.1"; MAX_BALANCERS + 1], "at most 32"),
        ] {
            let error = site(addresses, balancers).check().unwrap_err().to_string();
            assert!(error.contains(says), "{addresses:?} {balancers:?}: {error}");
        }
        let mut heavy = site(&["198.51.100.1"], &["192.0.2.1"]);
        heavy.weights.insert("eu-1".parse().unwrap(), MAX_SHARE + 1);
        assert_eq!(heavy.check().unwrap_err().field(), "weights");
        assert_eq!(heavy.weight(&"eu-2".parse().unwrap()), 100);
    }
}
