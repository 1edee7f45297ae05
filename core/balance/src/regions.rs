//! Selects the region for a flow if the owner has dialed some of the regions down.
//!
//! The origins of a socket form groups by region, and each group has a [`Dial`]. The rule is that of the traffic dials
//! of AWS Global Accelerator (Developer Guide: "Adjusting traffic flow with traffic dials", "How failover works for
//! unhealthy endpoints"):
//!
//! - Flows reach the nearest group first. The group keeps the percentage of its dial, and the others go on to the next
//!   nearest, whose dial applies to the flows that reach it. The last group keeps all. With two groups at 50, half of
//!   the flows that enter near one of them stay, and half go to the other.
//! - A group without a usable origin is skipped, and its share goes to the others.
//! - A group at 0 gets nothing, unless no other group is usable: then the nearest of those at 0 takes the flow. Serving
//!   is better than refusing.
//!
//! Differences:
//!
//! - Distance is measured from the client's edge, not from the client.
//! - An unhealthy origin gets nothing, even if no other is left; Global Accelerator sends flows to it.
//!
//! Pure: the caller provides the order, the usable groups and the [roll](choose), which decides about one flow of many.
//! With the same roll and groups the choice is the same, and a dial that is turned up moves no flow that the group had.
//! So a roll derived from a client's address keeps that client in its region.

use std::{fmt, str::FromStr};

/// The dial that keeps everything, which is the default.
const FULL: u8 = 100;

/// The percentage of its flows that a group keeps: 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dial(u8);

/// The number is above 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a dial must be a whole number of percent from 0 to {FULL}: 0 takes nothing, {FULL} takes all that comes")]
pub struct DialError;

impl Dial {
    /// Keeps nothing while another group is usable.
    pub const CLOSED: Self = Self(0);
    /// Keeps everything.
    pub const FULL: Self = Self(FULL);

    /// The dial of this percentage.
    ///
    /// # Errors
    /// The percentage is above 100.
    pub fn new(percent: u8) -> Result<Self, DialError> {
        if percent > FULL { Err(DialError) } else { Ok(Self(percent)) }
    }

    /// The percentage.
    #[must_use]
    pub fn percent(self) -> u8 {
        self.0
    }
}

impl Default for Dial {
    fn default() -> Self {
        Self::FULL
    }
}

impl FromStr for Dial {
    type Err = DialError;

    fn from_str(text: &str) -> Result<Self, DialError> {
        text.parse().map_err(|_| DialError).and_then(Self::new)
    }
}

impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// The origins of one region, as seen by an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The share of its flows that the group keeps.
    pub dial: Dial,
    /// Whether one of its origins can serve the flow.
    pub is_usable: bool,
}

/// The index of the group for a flow; `None` if no group is usable. `groups` are sorted by distance. Every value of
/// `roll` must be equally likely ([`Rolls`], or a hash). Allocates nothing.
#[must_use]
pub fn choose(groups: &[Group], roll: u64) -> Option<usize> {
    let usable = || groups.iter().enumerate().filter(|(_, group)| group.is_usable);
    let mut open = usable().filter(|(_, group)| group.dial != Dial::CLOSED).peekable();
    if open.peek().is_none() {
        return usable().next().map(|(nearest, _)| nearest);
    }
    // Of all rolls from 0 to `left`, the group keeps the lowest ones; the others go on, counted from 0 again.
    let (mut roll, mut left) = (u128::from(roll), 1_u128 << 64);
    while let Some((place, group)) = open.next() {
        let kept = left * u128::from(group.dial.0) / u128::from(FULL);
        if roll < kept || open.peek().is_none() {
            return Some(place);
        }
        roll -= kept;
        left -= kept;
    }
    None
}

/// A low-discrepancy sequence of rolls: any few in a row are spread evenly. Of twenty flows, a dial of 20 keeps four,
/// give or take one, where random numbers would often keep one or nine. (Multiples of the golden ratio: Knuth, The Art
/// of Computer Programming, volume 3, section 6.4.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rolls(u64);

impl Rolls {
    /// 2^64 divided by the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// A sequence with this start, which should differ between edges.
    #[must_use]
    pub fn from(start: u64) -> Self {
        Self(start)
    }

    /// The next roll.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        self.0
    }
}
