//! Addresses of endpoints and what lies behind them, read strictly.

use std::net::IpAddr;

use ipnet::IpNet;

/// Why a text is no address or no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither an address nor a network.
    #[error("{0:?} is no address and no network such as 10.20.0.0/16")]
    Neither(String),
    /// A network where one address is meant.
    #[error("{0:?} is no address")]
    NotOne(String),
    /// Bits behind the prefix.
    #[error("{0} has bits behind its prefix: the network is {1}")]
    HostBits(IpNet, IpNet),
    /// An IPv4 address in IPv6 notation (RFC 4291 section 2.5.5.2).
    #[error("{0} is an IPv4 address in IPv6 notation: write it as IPv4")]
    Mapped(IpNet),
    /// No address of a machine.
    #[error("{0} is no address of a machine: {1}")]
    NotOfMachines(IpNet, &'static str),
}

/// An address of a machine.
///
/// # Errors
/// The text is no address, or no machine can have the address.
pub fn address(text: &str) -> Result<IpAddr, AddressError> {
    let address: IpAddr = text.parse().map_err(|_| AddressError::NotOne(text.to_owned()))?;
    machines(IpNet::from(address)).map(|net| net.addr())
}

/// A network of machines, or one address.
///
/// # Errors
/// The text is no network, or no machine can have its addresses.
pub fn network(text: &str) -> Result<IpNet, AddressError> {
    prefix(text).and_then(machines)
}

/// Any network, or one address.
///
/// # Errors
/// The text is no network.
pub fn prefix(text: &str) -> Result<IpNet, AddressError> {
    let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net: IpNet = net.map_err(|_| AddressError::Neither(text.to_owned()))?;
    if net.trunc() != net {
        return Err(AddressError::HostBits(net, net.trunc()));
    }
    let is_mapped = match net {
        IpNet::V4(_) => false,
        IpNet::V6(net) => net.prefix_len() >= 96 && net.addr().to_ipv4_mapped().is_some(),
    };
    if is_mapped { Err(AddressError::Mapped(net)) } else { Ok(net) }
}

/// Whether two networks have an address in common.
#[must_use]
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

/// Networks that no machine has an address of: what is wrong with one of their addresses, and with a network around.
const RESERVED: [(&str, &str, &str); 10] = [
    ("0.0.0.0/8", "it stands for none", "a part of it stands for none"),
    ("::/128", "it stands for none", "a part of it stands for none"),
    ("127.0.0.0/8", "it never leaves a machine", "a part of it never leaves a machine"),
    ("::1/128", "it never leaves a machine", "a part of it never leaves a machine"),
    ("169.254.0.0/16", "it holds on one link only", "a part of it holds on one link only"),
    ("fe80::/10", "it holds on one link only", "a part of it holds on one link only"),
    ("224.0.0.0/4", "it is of multicast", "a part of it is of multicast"),
    ("ff00::/8", "it is of multicast", "a part of it is of multicast"),
    ("255.255.255.255/32", "it is of broadcast", "a part of it is of broadcast"),
    ("::ffff:0:0/96", "it is IPv4 in IPv6 notation", "a part of it is IPv4 in IPv6 notation"),
];

fn machines(net: IpNet) -> Result<IpNet, AddressError> {
    let net = prefix(&net.to_string())?;
    if net.prefix_len() == 0 {
        return Err(AddressError::NotOfMachines(net, "every address is in it"));
    }
    for (reserved, whole, part) in RESERVED {
        let reserved: IpNet = reserved.parse().map_err(|_| AddressError::Neither(reserved.to_owned()))?;
        if overlap(&reserved, &net) {
            let reason = if reserved.contains(&net) { whole } else { part };
            return Err(AddressError::NotOfMachines(net, reason));
        }
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_can_have_is_refused_with_the_reason() {
        assert_eq!(address("10.20.0.1").unwrap().to_string(), "10.20.0.1");
        assert_eq!(network("fd00:20::/64").unwrap().to_string(), "fd00:20::/64");
        assert_eq!(network("10.20.0.1").unwrap().to_string(), "10.20.0.1/32");
        assert_eq!(prefix("0.0.0.0/0").unwrap().to_string(), "0.0.0.0/0");
        let said = |text: &str| network(text).unwrap_err().to_string();
        assert_eq!(said("10.20.0.1/16"), "10.20.0.1/16 has bits behind its prefix: the network is 10.20.0.0/16");
        assert!(said("::ffff:10.0.0.1").contains("write it as IPv4"));
        assert!(said("::ffff:10.0.0.0/104").contains("write it as IPv4"));
        assert!(said("0.0.0.0/0").contains("every address"));
        assert!(said("::").contains("stands for none"));
        assert!(said("224.0.0.5").contains("multicast"));
        assert!(said("ff02::/16").contains("multicast"));
        assert!(said("127.0.0.0/8").contains("never leaves"));
        assert!(said("169.254.0.0/16").contains("one link"));
        assert!(said("fe80::1").contains("one link"));
        assert!(said("255.255.255.255").contains("broadcast"));
        for around in ["126.0.0.0/7", "168.0.0.0/5", "192.0.0.0/2", "::/1", "8000::/1", "224.0.0.0/3"] {
            assert!(said(around).contains(": a part of it "), "{}", said(around));
        }
        assert!(said("web").contains("no address and no network"));
        assert_eq!(address("10.0.0.0/8"), Err(AddressError::NotOne("10.0.0.0/8".to_owned())));
    }
}
