//! Protocols with ports, as in `tcp/443`.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde::Deserialize;

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// A protocol, with ports of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Service {
    /// TCP, to any port without a range.
    Tcp(Option<RangeInclusive<u16>>),
    /// UDP, to any port without a range.
    Udp(Option<RangeInclusive<u16>>),
    /// ICMP of both families.
    Icmp,
}

/// Why a text is no service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// Another protocol.
    #[error("{0:?} is no service: expected tcp, udp or icmp, with a port as in tcp/443 or tcp/8000-8999")]
    Protocol(String),
    /// No port.
    #[error("{0:?} has no port from 1 to 65535")]
    Port(String),
    /// A range that ends before it begins.
    #[error("the range of ports of {0:?} ends before it begins")]
    Backwards(String),
    /// ICMP has no ports.
    #[error("{0:?} has a port, and ICMP has none")]
    PortOfIcmp(String),
}

impl Service {
    /// Whether a packet with this protocol and this port of the destination matches.
    #[must_use]
    pub fn matches(&self, protocol: u8, port: u16) -> bool {
        let has = |ports: &Option<RangeInclusive<u16>>| ports.as_ref().is_none_or(|ports| ports.contains(&port));
        match self {
            Self::Tcp(ports) => protocol == TCP && has(ports),
            Self::Udp(ports) => protocol == UDP && has(ports),
            Self::Icmp => protocol == ICMP || protocol == ICMPV6,
        }
    }
}

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let (protocol, ports) = match text.split_once('/') {
            Some((protocol, ports)) => (protocol, Some(ports)),
            None => (text, None),
        };
        let range = |ports: &str| {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let port =
                |word: &str| word.parse().ok().filter(|port| *port != 0).ok_or(ServiceError::Port(text.to_owned()));
            let range = port(first)?..=port(last)?;
            if range.is_empty() { Err(ServiceError::Backwards(text.to_owned())) } else { Ok(range) }
        };
        match protocol {
            "tcp" => Ok(Self::Tcp(ports.map(range).transpose()?)),
            "udp" => Ok(Self::Udp(ports.map(range).transpose()?)),
            "icmp" if ports.is_some() => Err(ServiceError::PortOfIcmp(text.to_owned())),
            "icmp" => Ok(Self::Icmp),
            _ => Err(ServiceError::Protocol(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Service {
    type Error = ServiceError;

    fn try_from(text: String) -> Result<Self, ServiceError> {
        text.parse()
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, ports) = match self {
            Self::Tcp(ports) => ("tcp", ports.as_ref()),
            Self::Udp(ports) => ("udp", ports.as_ref()),
            Self::Icmp => ("icmp", None),
        };
        match ports.map(|ports| (ports.start(), ports.end())) {
            None => f.write_str(protocol),
            Some((first, last)) if first == last => write!(f, "{protocol}/{first}"),
            Some((first, last)) => write!(f, "{protocol}/{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_as_they_are_written() {
        for text in ["tcp", "udp", "icmp", "tcp/443", "udp/5000-5100", "tcp/1-65535"] {
            assert_eq!(text.parse::<Service>().unwrap().to_string(), text);
        }
        let said = |text: &str| text.parse::<Service>().unwrap_err().to_string();
        for text in ["tcp/0", "udp/0-9", "tcp/65536", "tcp/", "tcp/http", "tcp/-1", "tcp/1-"] {
            assert!(said(text).ends_with("has no port from 1 to 65535"), "{text}");
        }
        assert!(said("tcp/9-8").contains("ends before it begins"));
        assert!(said("icmp/8").contains("ICMP has none"));
        assert!(said("tpc/80").contains("expected tcp, udp or icmp"));
        assert!(said("").contains("expected tcp, udp or icmp"));
    }
}
