//! Ranges of local ports: the one that a caller asks for, and the one of the network namespace.

use std::{fmt, fs, io, str::FromStr};

use crate::ConnectError;

/// The range from which the kernel takes local ports.
const NAMESPACE_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The ports that the kernel never takes by itself.
const RESERVED_PORTS: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// A range of local ports, both ends included. No range is empty, and none has port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    low: u16,
    high: u16,
}

/// Why two numbers are no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of ports: write the first and the last port, such as 40000-42047")]
pub struct InvalidPortRange(String);

impl PortRange {
    /// The range from `low` to `high`.
    ///
    /// # Errors
    /// `low` is 0 or above `high`.
    pub fn new(low: u16, high: u16) -> Result<Self, InvalidPortRange> {
        if low == 0 || low > high {
            return Err(InvalidPortRange(format!("{low}-{high}")));
        }
        Ok(Self { low, high })
    }

    /// The first port.
    #[must_use]
    pub fn low(self) -> u16 {
        self.low
    }

    /// The last port.
    #[must_use]
    pub fn high(self) -> u16 {
        self.high
    }

    /// How many ports the range has.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.high) - u32::from(self.low) + 1
    }

    /// Whether the port is in the range.
    #[must_use]
    pub fn has_port(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }

    /// Whether all ports of the other range are in this one.
    #[must_use]
    pub fn has_range(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// The range from which the kernel takes local ports in this network namespace (`net.ipv4.ip_local_port_range`).
    ///
    /// # Errors
    /// The file under `/proc` cannot be read.
    pub fn of_namespace() -> Result<Self, ConnectError> {
        let unreadable = |why: String| ConnectError::NoNamespaceRange { path: NAMESPACE_RANGE, why };
        let text = fs::read_to_string(NAMESPACE_RANGE).map_err(|error| unreadable(error.to_string()))?;
        let mut numbers = text.split_whitespace().map(u16::from_str);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(low)), Some(Ok(high))) => Self::new(low, high).map_err(|error| unreadable(error.to_string())),
            _ => Err(unreadable(format!("its text is {text:?}"))),
        }
    }

    /// Refuses a range that the kernel would ignore, because it is not inside the range of the namespace.
    pub(crate) fn check(self) -> Result<(), ConnectError> {
        let namespace = Self::of_namespace()?;
        if !namespace.has_range(self) {
            return Err(ConnectError::OutsideNamespace { ports: self, namespace });
        }
        Ok(())
    }

    /// The number for IP_LOCAL_PORT_RANGE (ip(7)): the last port in the upper half, the first in the lower half.
    pub(crate) fn as_option(self) -> u32 {
        u32::from(self.high) << 16 | u32::from(self.low)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high { write!(f, "{}", self.low) } else { write!(f, "{}-{}", self.low, self.high) }
    }
}

impl FromStr for PortRange {
    type Err = InvalidPortRange;

    fn from_str(text: &str) -> Result<Self, InvalidPortRange> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) => Self::new(low, high),
            _ => Err(InvalidPortRange(text.to_owned())),
        }
    }
}

/// The ports that the kernel never takes by itself (`net.ipv4.ip_local_reserved_ports`).
pub(crate) fn reserved() -> io::Result<Vec<PortRange>> {
    Ok(parse_reserved(&fs::read_to_string(RESERVED_PORTS)?))
}

fn parse_reserved(text: &str) -> Vec<PortRange> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        // The list may have port 0, which no socket gets.
        PortRange::new(low.parse::<u16>().ok()?.max(1), high.parse().ok()?).ok()
    };
    text.trim().split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written() {
        let range: PortRange = "40000-42047".parse().unwrap();
        assert_eq!((range.low(), range.high(), range.count()), (40_000, 42_047, 2_048));
        assert_eq!(range.to_string(), "40000-42047");
        assert_eq!("53".parse::<PortRange>().unwrap().to_string(), "53");
        for text in ["", "0", "0-5", "5-4", "1-70000", "a-b", "1-2-3", "-"] {
            let error = text.parse::<PortRange>().unwrap_err().to_string();
            assert!(error.contains("is no range of ports"), "{text}: {error}");
        }
    }

    #[test]
    fn a_range_is_inside_another_with_both_ends() {
        let outer = PortRange::new(100, 200).unwrap();
        for (low, high, inside) in [(100, 200, true), (99, 150, false), (150, 201, false), (120, 130, true)] {
            assert_eq!(outer.has_range(PortRange::new(low, high).unwrap()), inside, "{low}-{high}");
        }
        assert!(outer.has_port(100) && outer.has_port(200) && !outer.has_port(99) && !outer.has_port(201));
    }

    #[test]
    fn the_option_has_the_last_port_above_the_first() {
        assert_eq!(PortRange::new(0x1111, 0x2222).unwrap().as_option(), 0x2222_1111);
    }

    #[test]
    fn reserved_ports_are_ports_and_ranges() {
        assert_eq!(parse_reserved("\n"), []);
        let expected = ["8080".parse().unwrap(), "9000-9010".parse().unwrap()];
        assert_eq!(parse_reserved("8080,9000-9010\n"), expected);
        // The kernel takes port 0 into the list.
        assert_eq!(parse_reserved("0,0-5000\n"), ["1-5000".parse().unwrap()]);
    }
}
