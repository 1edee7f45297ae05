//! The number behind an address of either family.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Subnets, Ipv6Subnets};

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + std::fmt::Debug {
    /// The bits of an address.
    const BITS: u8;
    /// The lowest address.
    const MIN: Self;
    /// The highest address.
    const MAX: Self;
    /// The next address; `None` after the highest.
    fn next(self) -> Option<Self>;
    /// The address before; `None` before zero.
    fn previous(self) -> Option<Self>;
    /// The number.
    fn number(self) -> u128;
    /// The address with zeros behind this length.
    #[must_use]
    fn masked(self, length: u8) -> Self;
    /// The text of a prefix of this length.
    fn prefix_text(self, length: u8) -> String;
    /// The fewest prefixes from a first to a last address, each with its length.
    fn prefixes(first: Self, last: Self) -> impl Iterator<Item = (Self, u8)>;
}

impl Address for u32 {
    const BITS: u8 = 32;
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }

    fn number(self) -> u128 {
        u128::from(self)
    }

    fn masked(self, length: u8) -> Self {
        self & Self::MAX.checked_shl(u32::from(<Self as Address>::BITS - length)).unwrap_or(0)
    }

    fn prefix_text(self, length: u8) -> String {
        format!("{}/{length}", Ipv4Addr::from_bits(self))
    }

    fn prefixes(first: Self, last: Self) -> impl Iterator<Item = (Self, u8)> {
        Ipv4Subnets::new(Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last), 0)
            .map(|net| (net.network().to_bits(), net.prefix_len()))
    }
}

impl Address for u128 {
    const BITS: u8 = 128;
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }

    fn number(self) -> u128 {
        self
    }

    fn masked(self, length: u8) -> Self {
        self & Self::MAX.checked_shl(u32::from(<Self as Address>::BITS - length)).unwrap_or(0)
    }

    fn prefix_text(self, length: u8) -> String {
        format!("{}/{length}", Ipv6Addr::from_bits(self))
    }

    fn prefixes(first: Self, last: Self) -> impl Iterator<Item = (Self, u8)> {
        Ipv6Subnets::new(Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last), 0)
            .map(|net| (net.network().to_bits(), net.prefix_len()))
    }
}
