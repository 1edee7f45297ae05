//! Addresses that routers treat apart (RFC 1812, section 5.3.7; RFC 4291; RFC 6890).

use std::net::{IpAddr, Ipv6Addr};

/// Whether no host of a network may send from this address: loopback, multicast, broadcast, unspecified, reserved.
pub(super) fn is_martian_source(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            first == 0 || first == 127 || first >= 224
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || is_v4_mapped(v6),
    }
}

/// Whether packets to this address never leave a machine.
pub(super) fn is_martian_destination(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            first == 0 || first == 127
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || is_v4_mapped(v6),
    }
}

/// Whether the address is that of many.
pub(super) fn is_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

/// Whether the address is valid on one link only (RFC 3927, section 2.7; RFC 4291, section 2.5.6).
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Whether the address is a reserved one of IPv4 (RFC 1112, section 4).
pub(super) fn is_reserved(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets()[0] >= 240 && !v4.is_broadcast())
}

/// Whether this is IPv4 in an address of IPv6, which no packet has (RFC 6890). A policy would take it for IPv4.
fn is_v4_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}
