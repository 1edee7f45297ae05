//! Which region's origins take a flow, where the owner has dialed some of them down.
//!
//! The origins of a socket stand in groups, one for each region, and each group has a [`Dial`]. The rule is that of the
//! traffic dials of AWS Global Accelerator (its Developer Guide: "Adjusting traffic flow with traffic dials", "How
//! failover works for unhealthy endpoints"):
//!
//! - Flows come to the nearest group first. It keeps as many of those that come to it as its dial says, and the rest goes
//!   on to the next nearest, whose dial is about what comes to it and not about all flows. The last one keeps all: with two
//!   groups at 50 each, half of what enters near one of them is served there and half by the other.
//! - A group of which no origin can take the flow is passed over, and what would have been its share goes to the others.
//! - A group at 0 gets nothing, unless no other one can take the flow: then the nearest of those at 0 takes it, as if its
//!   dial was not there. A flow is rather served than refused.
//!
//! Where this differs:
//!
//! - Nearness is counted from the edge that the client has come to, and not from the client.
//! - An origin that is not well gets nothing, also when no other one is left; Global Accelerator sends it flows then.
//!
//! Pure: who is near and who can take a flow is said by the caller, and so is the [roll](choose), which decides where one
//! flow of many goes. With the same roll and the same groups the choice is the same, and a dial that is turned up moves
//! none of the flows that the group had: so a roll made of a client's address keeps that client in its region.

use std::{fmt, str::FromStr};

/// A dial that keeps everything: what a group has unless said otherwise.
const FULL: u8 = 100;

/// How many of the flows that come to a group it keeps, in percent: 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dial(u8);

/// The number is no dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a dial is a whole number of percent from 0 to {FULL}: 0 takes nothing, {FULL} takes all that comes")]
pub struct DialError;

impl Dial {
    /// Nothing, as long as another group takes it.
    pub const CLOSED: Self = Self(0);
    /// All that comes.
    pub const FULL: Self = Self(FULL);

    /// The dial of so many percent.
    ///
    /// # Errors
    /// When that is more than 100.
    pub fn new(percent: u8) -> Result<Self, DialError> {
        if percent > FULL { Err(DialError) } else { Ok(Self(percent)) }
    }

    /// In percent.
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

/// The origins of one region, as an edge sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// How much of what comes to it it keeps.
    pub dial: Dial,
    /// Whether one of its origins can take the flow.
    pub is_usable: bool,
}

/// The place of the group that a flow goes to, `None` when no group can take it: `groups` in the order of nearness, and a
/// `roll` of which every value is equally likely ([`Rolls`], or a hash). Allocates nothing.
#[must_use]
pub fn choose(groups: &[Group], roll: u64) -> Option<usize> {
    let usable = || groups.iter().enumerate().filter(|(_, group)| group.is_usable);
    let mut open = usable().filter(|(_, group)| group.dial != Dial::CLOSED).peekable();
    if open.peek().is_none() {
        return usable().next().map(|(nearest, _)| nearest);
    }
    // Of all rolls from 0 to `left`, the group keeps the lowest ones; those above go on, counted from 0 again.
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

/// Rolls of which any few in a row are spread over all that there are: of twenty flows, a dial of 20 keeps four, give or
/// take one, where dice would often keep one or nine. (Multiples of the golden ratio: Knuth, The Art of Computer
/// Programming, volume 3, section 6.4.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rolls(u64);

impl Rolls {
    /// 2^64 divided by the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Rolls that begin here: anywhere, and best not in the same place on every edge.
    #[must_use]
    pub fn from(start: u64) -> Self {
        Self(start)
    }

    /// The next one.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        self.0
    }
}
