//! Ranges for networks that name none. Uses addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::overlap;

/// The private blocks whose /24 networks are given out, the second one when the first is full: 10.0.0.0/8 (RFC 1918
/// section 3) and 100.64.0.0/10 (RFC 6598 section 7), with the number of their /24 networks.
const IPV4_BLOCKS: [(Ipv4Addr, u32); 2] =
    [(Ipv4Addr::new(10, 0, 0, 0), 65_536), (Ipv4Addr::new(100, 64, 0, 0), 16_384)];
/// The prefix of locally assigned IPv6 networks (RFC 4193 section 3.1).
const LOCAL_IPV6: u128 = 0xfd << 120;

/// A /24 of IPv4 and a /64 of IPv6 that overlap none of `taken`; `None` if there are none.
///
/// //= RFC 4193 section 3.2
/// "Locally assigned Global IDs MUST be generated with a pseudo-random algorithm": `random` has them.
#[must_use]
pub fn free_ranges(taken: &[IpNet], random: [u8; 16]) -> Option<[IpNet; 2]> {
    let random = u128::from_be_bytes(random);
    let is_free = |net: &IpNet| !taken.iter().any(|other| overlap(other, net));
    let start = (random >> 96) as u32;
    let mut ipv4 = IPV4_BLOCKS.into_iter().flat_map(|(first, count)| {
        (0..count).map(move |step| {
            let network = u32::from(first) + (((start % count + step) % count) << 8);
            net(IpAddr::V4(network.into()), 24)
        })
    });
    let ipv6 = (0..=taken.len() as u128).map(|step| {
        let global_id = (random & 0xffff_ffff).wrapping_add(step) | (random >> 32 & 0xff) << 32;
        net(IpAddr::V6(Ipv6Addr::from(LOCAL_IPV6 | (global_id & 0xff_ffff_ffff) << 80)), 64)
    });
    Some([ipv4.find(is_free)?, ipv6.into_iter().find(is_free)?])
}

fn net(first: IpAddr, prefix_len: u8) -> IpNet {
    IpNet::new_assert(first, prefix_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_full_block_leads_to_the_next_and_no_block_to_none() {
        let found = free_ranges(&nets(&["10.0.0.0/8"]), [7; 16]).unwrap();
        assert!(nets(&["100.64.0.0/10"])[0].contains(&found[0]), "{found:?}");
        assert_eq!(free_ranges(&nets(&["10.0.0.0/8", "100.64.0.0/10"]), [7; 16]), None);
        assert_eq!(free_ranges(&nets(&["fd00::/8"]), [7; 16]), None);
        assert_eq!(free_ranges(&[], [0; 16]).unwrap()[0].to_string(), "10.0.0.0/24");
    }

    #[test]
    fn found_ranges_are_private_and_overlap_none_before() {
        let mut taken: Vec<IpNet> = Vec::new();
        let (ten, local) = ("10.0.0.0/8".parse::<IpNet>().unwrap(), "fd00::/8".parse::<IpNet>().unwrap());
        // The same bits again and again, so that searches meet.
        for random in (0..40_u8).map(|number| number % 3) {
            let [one, other] = free_ranges(&taken, [random; 16]).unwrap();
            assert!(ten.contains(&one) && one.prefix_len() == 24, "{one}");
            assert!(local.contains(&other) && other.prefix_len() == 64, "{other}");
            assert!(!taken.iter().any(|net| overlap(net, &one) || overlap(net, &other)), "{one} {other}");
            taken.extend([one, other]);
        }
    }
}
