//! The addresses by which this machine reaches others.

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Addresses to which the default routes lead (RFC 5737, RFC 3849). Nothing is sent there.
const FAR_AWAY: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// The addresses of this machine for others, where a server listens at this address: the address itself, or for a
/// wildcard those of the default routes. Empty if they are not known.
pub(super) fn own_addresses(listening: IpAddr) -> Vec<IpAddr> {
    if !listening.is_unspecified() {
        return vec![listening];
    }
    let own = FAR_AWAY.iter().filter_map(|far| own_address(far));
    own.filter(|own| own.is_ipv4() || listening.is_ipv6()).collect()
}

/// The local address of the route to this address. Nothing is sent.
fn own_address(far: &str) -> Option<IpAddr> {
    let far: SocketAddr = far.parse().ok()?;
    let any: SocketAddr = if far.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified() && !own.is_loopback()).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_address_is_the_own_one() {
        let given: IpAddr = "192.0.2.7".parse().unwrap();
        assert_eq!(own_addresses(given), [given]);
        assert!(own_addresses("0.0.0.0".parse().unwrap()).iter().all(IpAddr::is_ipv4));
    }
}
