//! The addresses of a name.

use std::{
    collections::VecDeque,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// The most addresses of one name.
pub const MAX_ADDRESSES: usize = 16;

/// The addresses of a host. An IP address is itself, and `localhost` and its subdomains are this machine (RFC 6761
/// section 6.3). Any other name is resolved by the system. The two families alternate (RFC 8305 section 4), the
/// system's first choice first.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when the name has no address.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if is_localhost(host) {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    let unknown = |reason: &dyn fmt::Display| {
        io::Error::new(io::ErrorKind::NotFound, format!("the name {host} has no address: {reason}"))
    };
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| unknown(&error))?;
    let addresses = alternate_families(found);
    if addresses.is_empty() { Err(unknown(&"none was found")) } else { Ok(addresses) }
}

fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    last.eq_ignore_ascii_case("localhost")
}

fn alternate_families(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut first = VecDeque::new();
    let mut second = VecDeque::new();
    for address in found {
        let same = first.front().is_none_or(|front: &SocketAddr| front.is_ipv4() == address.is_ipv4());
        let family = if same { &mut first } else { &mut second };
        if !family.contains(&address) && first.len() + second.len() < MAX_ADDRESSES {
            if same { first.push_back(address) } else { second.push_back(address) }
        }
    }
    let mut addresses = Vec::with_capacity(first.len() + second.len());
    while let Some(address) = first.pop_front() {
        addresses.push(address);
        addresses.extend(second.pop_front());
    }
    addresses.extend(second);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_need_no_name_server() {
        for name in ["localhost", "LOCALHOST", "api.localhost", "a.b.localhost", "x.localhost."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in ["", ".", "localhost.example", "notlocalhost", "localhost.."] {
            assert!(!is_localhost(name), "{name}");
        }
    }

    #[test]
    fn the_families_alternate_families_and_none_comes_twice() {
        let (four, six) = (
            |n: u8| SocketAddr::from(([10, 0, 0, n], 1)),
            |n: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, n], 1)),
        );
        let found = vec![six(1), six(2), six(1), six(3), four(1), four(2), four(1)];
        assert_eq!(alternate_families(found.into_iter()), [six(1), four(1), six(2), four(2), six(3)]);
        assert_eq!(alternate_families((0..=255).map(four)).len(), MAX_ADDRESSES);
        assert!(alternate_families(std::iter::empty()).is_empty());
    }
}
