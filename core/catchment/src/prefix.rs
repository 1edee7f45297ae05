//! The network of a client.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The length of prefixes in IPv4, in bits.
const V4_BITS: u32 = 24;
/// The length of prefixes in IPv6, in bits.
const V6_BITS: u32 = 48;

/// The network of a client: 24 bits of an IPv4 address, 48 bits of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(IpAddr);

impl Prefix {
    /// The network of this address. An IPv4 address within IPv6 (`::ffff:192.0.2.1`) counts as IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << (32 - V4_BITS))).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - V6_BITS))).into(),
        })
    }

    /// The first address of the network.
    #[must_use]
    pub fn first(self) -> IpAddr {
        self.0
    }

    /// The length, in bits.
    fn bits(self) -> u32 {
        if self.0.is_ipv4() { V4_BITS } else { V6_BITS }
    }
}

/// The text is no network of a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no network of clients: use ADDRESS/24 in IPv4 or ADDRESS/48 in IPv6, with zeros behind")]
pub struct PrefixError {
    /// The text, cut to 64 characters.
    text: String,
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let read = || {
            let (address, bits) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let prefix = Self::of(address);
            (prefix.0 == address && bits == prefix.bits().to_string()).then_some(prefix)
        };
        read().ok_or_else(|| PrefixError { text: text.chars().take(64).collect() })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_cut() {
        for (address, prefix) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("255.255.255.255", "255.255.255.0/24"),
            ("0.0.0.0", "0.0.0.0/24"),
            ("::ffff:192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::/48"),
            ("::1", "::/48"),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff::/48"),
        ] {
            assert_eq!(Prefix::of(address.parse().unwrap()).to_string(), prefix, "{address}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for text in ["192.0.2.0/24", "0.0.0.0/24", "2001:db8:1::/48", "::/48"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        for bad in ["", "192.0.2.0", "192.0.2.1/24", "192.0.2.0/25", "192.0.2.0/024", "2001:db8:1:1::/48", "::/24"] {
            let error = bad.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains("is no network of clients"), "{error}");
        }
    }
}
