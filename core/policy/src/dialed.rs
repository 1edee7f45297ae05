//! The networks that edges may be made to dial by owners of sockets.
//!
//! The owner of a direct origin makes an edge connect to an address in the edge's own network. So only networks that
//! the operator has listed may be dialed, and some addresses only if they are listed specifically: a rule for all of
//! IPv4 does not open the machine itself, nor the metadata service with its credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::Network;

/// Networks that need a specific rule: this machine, link-local addresses, and metadata services of clouds
/// (169.254.169.254 is link-local).
const ONLY_WHEN_NAMED: [IpNet; 9] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0), 32)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 100, 100, 200), 32)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 192), 32)),
];

/// The networks that may be dialed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DialedNetworks(Vec<Network>);

impl DialedNetworks {
    /// Permits only these networks.
    #[must_use]
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Whether nothing may be dialed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address may be dialed. An IPv4-mapped address counts as its IPv4 address (`::ffff:0:0/96`); if an
    /// IPv6 address leads to an IPv4 one by translation, both must be permitted.
    #[must_use]
    pub fn permit(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let leads_on = match address {
            IpAddr::V6(six) => embedded(six).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        !is_unassigned(address)
            && self.is_named(address)
            && leads_on.is_none_or(|four| !is_unassigned(four) && self.is_named(four))
    }

    fn is_named(&self, address: IpAddr) -> bool {
        let special = ONLY_WHEN_NAMED.iter().find(|net| net.contains(&address));
        let means = |network: &Network| special.is_none_or(|special| special.contains(&network.net()));
        self.0.iter().any(|network| network.contains(address) && means(network))
    }
}

/// Whether the address belongs to no machine: unspecified (which some systems take for themselves), multicast, or
/// reserved.
fn is_unassigned(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.octets()[0] == 0 || four.octets()[0] >= 224,
        IpAddr::V6(six) => six.is_unspecified() || six.is_multicast(),
    }
}

/// The IPv4 address that an IPv6 address leads to: NAT64 (RFC 6052 and RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380),
/// and deprecated compatible addresses (RFC 4291 section 2.5.5.1).
fn embedded(six: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = six.segments();
    let four = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => Some(four(high, low)),
        [0x2002, high, low, ..] => Some(four(high, low)),
        [0x2001, 0, .., high, low] => Some(four(!high, !low)),
        // ::1 is this machine.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) != (0, 1) => Some(four(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> DialedNetworks {
        DialedNetworks::new(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn permits(named: &[&str], address: &str) -> bool {
        networks(named).permit(address.parse().unwrap())
    }

    #[test]
    fn nothing_may_be_dialed_that_was_not_named() {
        assert!(networks(&[]).is_empty() && !permits(&[], "192.0.2.1"));
        assert!(permits(&["10.0.0.0/8"], "10.1.2.3") && !permits(&["10.0.0.0/8"], "11.1.2.3"));
        assert!(permits(&["fd00:1::/32"], "fd00:1::7") && !permits(&["10.0.0.0/8"], "fd00:1::7"));
        assert!(permits(&["0.0.0.0/0"], "192.0.2.1") && !permits(&["::/0"], "192.0.2.1"));
    }

    #[test]
    fn this_machine_and_its_links_have_to_be_meant() {
        let everything = ["0.0.0.0/0", "::/0"];
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            assert!(!permits(&everything, address), "{address}");
        }
        assert!(permits(&["127.0.0.0/8"], "127.0.0.1") && permits(&["::1"], "::1"));
        assert!(permits(&["127.0.0.1"], "127.0.0.1") && !permits(&["127.0.0.1"], "127.0.0.2"));
        assert!(permits(&["169.254.7.0/24"], "169.254.7.1") && !permits(&["169.254.7.0/24"], "169.254.169.254"));
        assert!(!permits(&["126.0.0.0/7"], "127.0.0.1"), "wider than what is special");
    }

    #[test]
    fn an_address_in_disguise_is_what_it_is() {
        for address in [
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "2001::8000:fffe",
            "::",
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
        ] {
            assert!(!permits(&["0.0.0.0/0", "::/0"], address), "{address}");
        }
        assert!(permits(&["10.0.0.0/8"], "::ffff:10.0.0.1"), "one address, two spellings");
        assert!(permits(&["::/0", "10.0.0.0/8"], "64:ff9b::10.0.0.1") && !permits(&["::/0"], "64:ff9b::10.0.0.1"));
    }

    proptest! {
        #[test]
        fn no_ipv6_spelling_reaches_an_ipv4_address_that_is_not_allowed(four in any::<u32>()) {
            let (allowed, four) = (networks(&["::/0", "10.0.0.0/8"]), Ipv4Addr::from(four));
            prop_assume!(four.octets()[0] != 10);
            let [a, b, c, d] = four.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            prop_assume!((high, low) != (0, 1));
            for six in [
                four.to_ipv6_mapped(),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !high, !low),
            ] {
                prop_assert!(!allowed.permit(six.into()), "{six}");
            }
        }
    }
}
