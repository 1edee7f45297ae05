//! Ranges of addresses and ports.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;

/// Addresses of one family, from the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub first: IpAddr,
    /// How many there are.
    pub span: u32,
}

/// Ports from the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// How many there are: up to 65,536.
    pub span: u32,
}

impl AddressRange {
    /// One address.
    #[must_use]
    pub fn one(address: IpAddr) -> Self {
        Self { first: address, span: 1 }
    }

    /// The address of this place in the range.
    #[must_use]
    pub fn at(&self, place: u32) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().wrapping_add(place)).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits().wrapping_add(u128::from(place))).into(),
        }
    }
}

impl PortRange {
    /// One port.
    #[must_use]
    pub fn one(port: u16) -> Self {
        Self { first: port, span: 1 }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    /// Reads `A`, `A-B` or a prefix.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected an address, a range A-B or a prefix, not `{text}`");
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let (first, last) = if text.contains('/') {
            let network: IpNet = text.parse().map_err(|_| wrong())?;
            (network.network(), network.broadcast())
        } else {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let read = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
            (read(first)?, read(last)?)
        };
        if first.is_ipv4() != last.is_ipv4() {
            return Err(format!("`{text}` has addresses of two families of IP"));
        }
        let span = bits(last).checked_sub(bits(first)).ok_or_else(|| format!("`{text}` ends before it starts"))?;
        // One less than the most of 32 bits, so that the number of addresses has 32 bits, too.
        let span = u32::try_from(span).ok().and_then(|span| span.checked_add(1));
        let span = span.ok_or_else(|| format!("`{text}` has more than {} addresses", u32::MAX))?;
        if first.is_ipv6() && bits(first) >> 64 != bits(last) >> 64 {
            return Err(format!("`{text}` has addresses of two networks of 64 bits"));
        }
        Ok(Self { first, span })
    }
}

impl FromStr for PortRange {
    type Err = String;

    /// Reads `A` or `A-B`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a port or a range A-B, not `{text}`");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let read = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
        let (first, last) = (read(first)?, read(last)?);
        let span = last.checked_sub(first).ok_or_else(|| format!("`{text}` ends before it starts"))?;
        Ok(Self { first, span: u32::from(span) + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_counted() {
        let read = |text: &str| text.parse::<AddressRange>().map(|range| (range.first.to_string(), range.span));
        assert_eq!(read("10.0.0.1"), Ok(("10.0.0.1".to_owned(), 1)));
        assert_eq!(read("10.0.0.9-10.0.1.8"), Ok(("10.0.0.9".to_owned(), 256)));
        assert_eq!(read("10.1.2.3/16"), Ok(("10.1.0.0".to_owned(), 65_536)));
        assert_eq!(read("fd00::1-fd00::ffff"), Ok(("fd00::1".to_owned(), 65_535)));
        for (text, words) in [
            ("10.0.0.2-10.0.0.1", "ends before it starts"),
            ("10.0.0.2-fd00::1", "two families"),
            ("0.0.0.0/0", "more than 4294967295 addresses"),
            ("fd00::/64", "more than 4294967295 addresses"),
            ("fd00::ffff:ffff:ffff:ffff-fd00:0:0:1::1", "two networks"),
            ("10.0.0", "expected an address"),
        ] {
            assert!(read(text).unwrap_err().contains(words), "{text}: {:?}", read(text));
        }
        let ports = |text: &str| text.parse::<PortRange>().map(|range| (range.first, range.span));
        assert_eq!((ports("53"), ports("0-65535")), (Ok((53, 1)), Ok((0, 65_536))));
        assert!(ports("9-8").unwrap_err().contains("ends before it starts"));
        assert!(ports("65536").unwrap_err().contains("expected a port"));
    }

    #[test]
    fn a_place_is_an_address() {
        let range: AddressRange = "fd00::ffff:ffff-fd00::1:0:8".parse().unwrap();
        assert_eq!(range.at(range.span - 1).to_string(), "fd00::1:0:8");
        assert_eq!("10.0.0.250-10.0.1.9".parse::<AddressRange>().unwrap().at(10).to_string(), "10.0.1.4");
    }
}
