//! The slices of an address.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use sallyport_packet_model::layout::SLICES;
use serde::{Deserialize, Serialize};

/// Number of ports of a slice.
pub use sallyport_packet_model::layout::SLICE_PORTS;

/// How many slices of an address are handed out. The first one has the ports of services.
pub const HANDED_OUT: usize = SLICES - 1;

/// A slice of an address that is handed out: 1 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Slice(u8);

/// The number is no slice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no slice: use 1 to {HANDED_OUT}, of which slice N begins at port N x {SLICE_PORTS}")]
pub struct SliceError(String);

impl Slice {
    /// All slices, the first one first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=HANDED_OUT).filter_map(|number| u8::try_from(number).ok()).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// The first port.
    #[must_use]
    pub fn first_port(self) -> u16 {
        u16::from(self.0) * SLICE_PORTS
    }

    /// The last port.
    #[must_use]
    pub fn last_port(self) -> u16 {
        self.first_port() + (SLICE_PORTS - 1)
    }

    /// The ports.
    #[must_use]
    pub fn ports(self) -> RangeInclusive<u16> {
        self.first_port()..=self.last_port()
    }

    /// The slice that has a port; `None` for the ports of services.
    #[must_use]
    pub fn of_port(port: u16) -> Option<Self> {
        let number = u8::try_from(port / SLICE_PORTS).ok()?;
        (number > 0).then_some(Self(number))
    }
}

impl TryFrom<u8> for Slice {
    type Error = SliceError;
    fn try_from(number: u8) -> Result<Self, SliceError> {
        let is_one = (1..=HANDED_OUT).contains(&usize::from(number));
        is_one.then_some(Self(number)).ok_or_else(|| SliceError(number.to_string()))
    }
}

impl From<Slice> for u8 {
    fn from(slice: Slice) -> Self {
        slice.0
    }
}

impl FromStr for Slice {
    type Err = SliceError;
    fn from_str(text: &str) -> Result<Self, SliceError> {
        let shown = || SliceError(text.chars().take(16).collect());
        text.parse::<u8>().map_err(|_| shown())?.try_into().map_err(|_| shown())
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use sallyport_packet_model::balance::PortSlices;

    use super::*;

    #[test]
    fn slices_are_those_of_the_packet_path() {
        let all: Vec<_> = Slice::all().collect();
        assert_eq!((all.len(), all[0].ports(), all[30].ports()), (31, 2_048..=4_095, 63_488..=65_535));
        for slice in all {
            assert_eq!(PortSlices::ports(usize::from(slice.number())), Some(slice.ports()));
            assert_eq!(slice.ports().map(Slice::of_port).collect::<Vec<_>>(), vec![Some(slice); 2_048]);
        }
        assert_eq!((Slice::of_port(0), Slice::of_port(2_047)), (None, None));
    }

    #[test]
    fn other_numbers_are_refused_with_a_sentence() {
        for bad in ["0", "32", "255", "256", "-1", "x", "", "1.5"] {
            let error = bad.parse::<Slice>().unwrap_err().to_string();
            assert!(error.contains("is no slice: use 1 to 31"), "{error}");
        }
        assert_eq!("31".parse::<Slice>().map(Slice::number), Ok(31));
    }
}
