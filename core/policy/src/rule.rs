//! A rule of an access list, and its text form.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Country, CountryError};

/// Characters of an invalid text that its error repeats.
const MAX_QUOTED_CHARS: usize = 64;
/// Prefix length of IPv4-mapped addresses, `::ffff:0:0/96` (RFC 4291 section 2.5.5.2).
const MAPPED_PREFIX_BITS: u8 = 96;

/// A set of clients: those of a network, a country or an autonomous system.
///
/// Written as `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`, `country:CH` or `asn:64500`, in text and in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Addresses in the network.
    Network(Network),
    /// Addresses in the country, as far as known.
    Country(Country),
    /// Addresses announced by the autonomous system, as far as known.
    Asn(Asn),
}

/// Addresses with a common prefix.
///
/// IPv4-mapped addresses (`::ffff:192.0.2.1`) are IPv4 addresses: a network of them is the IPv4 network, and shorter
/// prefixes such as `::/0` concern only IPv6 clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(IpNet);

/// The number of an autonomous system (RFC 6793) that may announce addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asn(u32);

/// The text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// An unknown kind of rule.
    #[error("{text:?} is not an access rule: give a network such as 10.0.0.0/8, country:CH or asn:64500")]
    Unknown {
        /// The text, cut to 64 characters.
        text: String,
    },
    /// An invalid network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// An invalid country.
    #[error(transparent)]
    Country(#[from] CountryError),
    /// An invalid autonomous system.
    #[error(transparent)]
    Asn(#[from] AsnError),
}

/// The text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is malformed.
    #[error("{text:?} is not a network: give an address, or one with its prefix length, such as 10.0.0.0/8")]
    Syntax {
        /// The text, cut to 64 characters.
        text: String,
    },
    /// The prefix is longer than an address.
    #[error("{text:?} is not a network: a prefix of {address} has at most {max_bits} bits")]
    TooLong {
        /// The text.
        text: String,
        /// The address.
        address: IpAddr,
        /// The length of such an address in bits.
        max_bits: u8,
    },
    /// The address has bits after the prefix, probably by mistake.
    #[error("{text:?} has address bits after its prefix: write {meant} for that network")]
    HostBits {
        /// The text.
        text: String,
        /// The network of the address.
        meant: IpNet,
    },
}

/// The text is not a number of an autonomous system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an autonomous system: give its number, such as 64500; 0, 65535 and 4294967295 are reserved")]
pub struct AsnError {
    text: String,
}

fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

/// The networks among the rules.
pub(crate) fn networks(rules: &[Rule]) -> impl Iterator<Item = Network> {
    rules.iter().filter_map(|rule| if let Rule::Network(network) = rule { Some(*network) } else { None })
}

/// A decimal number without leading zeros: some programs read `010` as eight.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

impl Network {
    /// The lowest and the highest address.
    pub(crate) fn ends(&self) -> (IpAddr, IpAddr) {
        (self.0.network(), self.0.broadcast())
    }

    /// The network, in the family of its addresses.
    #[must_use]
    pub fn net(&self) -> IpNet {
        self.0
    }

    /// Whether the network contains the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl From<IpNet> for Network {
    /// The network, without bits after its prefix.
    fn from(net: IpNet) -> Self {
        let net = net.trunc();
        let IpNet::V6(v6) = net else { return Self(net) };
        let bits = v6.prefix_len().checked_sub(MAPPED_PREFIX_BITS);
        let mapped = bits.zip(v6.network().to_ipv4_mapped());
        Self(mapped.and_then(|(bits, v4)| Ipv4Net::new(v4, bits).ok()).map_or(net, IpNet::V4))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(IpNet::from(address.to_canonical()))
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let syntax = || NetworkError::Syntax { text: quoted(text) };
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        let Some(prefix) = prefix else { return Ok(Self::from(address)) };
        let max_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = number::<u32>(prefix).map(|bits| u8::try_from(bits).unwrap_or(u8::MAX)).ok_or_else(syntax)?;
        let net =
            IpNet::new(address, bits).map_err(|_| NetworkError::TooLong { text: quoted(text), address, max_bits })?;
        if net.trunc() != net {
            return Err(NetworkError::HostBits { text: quoted(text), meant: net.trunc() });
        }
        Ok(Self::from(net))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() { self.0.addr().fmt(f) } else { self.0.fmt(f) }
    }
}

impl Asn {
    /// Reserved numbers: RFC 7607 (0) and RFC 7300 (the last of 16 and of 32 bits).
    const RESERVED: [u32; 3] = [0, 65_535, u32::MAX];

    /// The autonomous system with this number; `None` if the number is reserved.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (!Self::RESERVED.contains(&number)).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

impl FromStr for Asn {
    type Err = AsnError;

    fn from_str(text: &str) -> Result<Self, AsnError> {
        number(text).and_then(Self::new).ok_or_else(|| AsnError { text: quoted(text) })
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if let Some(country) = text.strip_prefix("country:") {
            return Ok(Self::Country(country.parse()?));
        }
        if let Some(asn) = text.strip_prefix("asn:") {
            return Ok(Self::Asn(asn.parse()?));
        }
        // A text without a slash or an address is more likely a misspelt word than a network.
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        if !text.contains('/') && address.parse::<IpAddr>().is_err() {
            return Err(RuleError::Unknown { text: quoted(text) });
        }
        Ok(Self::Network(text.parse()?))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Country(country) => write!(f, "country:{country}"),
            Self::Asn(asn) => write!(f, "asn:{asn}"),
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<Rule>().unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_comes_back() {
        for text in ["10.0.0.0/8", "192.0.2.7", "0.0.0.0/0", "::/0", "2001:db8::/32", "::1", "country:CH", "asn:64500"]
        {
            assert_eq!(rule(text).to_string(), text);
            let json = serde_json::to_string(&rule(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Rule>(&json).unwrap(), rule(text));
        }
        assert_eq!(rule("192.0.2.7/32").to_string(), "192.0.2.7");
        assert_eq!(rule("country:ch"), rule("country:CH"));
        assert_eq!(rule("2001:DB8:0:0::/32"), rule("2001:db8::/32"));
    }

    #[test]
    fn ipv4_within_ipv6_is_ipv4() {
        assert_eq!(rule("::ffff:10.0.0.0/104"), rule("10.0.0.0/8"));
        assert_eq!(rule("::ffff:0:0/96"), rule("0.0.0.0/0"));
        assert_eq!(rule("::ffff:192.0.2.1"), rule("192.0.2.1"));
        let net = Network::from(IpAddr::from([192, 0, 2, 1]));
        assert!(net.contains("::ffff:192.0.2.1".parse().unwrap()) && !net.contains("::1".parse().unwrap()));
        let six: Network = "::/0".parse().unwrap();
        assert!(!six.contains("::ffff:192.0.2.1".parse().unwrap()) && six.contains("::1".parse().unwrap()));
    }

    #[test]
    fn a_typo_gets_a_suggestion() {
        assert!(error("10.1.2.3/8").contains("write 10.0.0.0/8 for that network"), "{}", error("10.1.2.3/8"));
        assert!(error("2001:db8::1/32").contains("write 2001:db8::/32"));
        assert!(error("10.0.0.0/33").contains("a prefix of 10.0.0.0 has at most 32 bits"));
        assert!(error("10.0.0.0/999999").contains("at most 32 bits"));
        assert!(error("::/129").contains("at most 128 bits"));
        for text in ["10.0.0.0/", "10.0.0.0/08", "10.0.0.0/+8", "10.0.0/8", "/8", "010.0.0.0/8", "fe80::%1/64", "1/2/3"]
        {
            assert!(error(text).contains("is not a network"), "{text}: {}", error(text));
        }
        for text in ["", "CH", "localhost", "nation:CH", "Country:CH", "10.0.0.256", "\u{1F980}"] {
            assert!(error(text).contains("is not an access rule"), "{text}: {}", error(text));
        }
        for text in ["asn:", "asn:0", "asn:65535", "asn:4294967295", "asn:4294967296", "asn:AS1", "asn:007", "asn:-1"] {
            assert!(error(text).contains("is not an autonomous system"), "{text}: {}", error(text));
        }
        assert!(error("country:UK").contains("is not a country"));
        assert!(error(&"x".repeat(10_000)).len() < 200, "long nonsense is cut");
        assert!(error(&format!("10.0.0.0/{}", "9".repeat(10_000))).len() < 200);
        assert!(serde_json::from_str::<Rule>("7").is_err());
    }
}
