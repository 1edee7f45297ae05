//! Networks of one address family as disjoint ranges, so that one binary search finds the narrowest network.

use std::net::IpAddr;

use crate::{Network, Rule};

/// Addresses from `first` to `last` inclusive, and their narrowest network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range<A> {
    first: A,
    last: A,
    rule: Rule,
}

/// The networks of a list: at most two sorted, disjoint ranges for each network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    v4: Box<[Range<u32>]>,
    v6: Box<[Range<u128>]>,
}

/// An address as a number.
trait Number: Copy + Ord {
    const MAX: Self;
    fn next(self) -> Option<Self>;
    fn previous(self) -> Self;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            const MAX: Self = <$type>::MAX;
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn previous(self) -> Self {
                self.saturating_sub(1)
            }
        }
    };
}
number!(u32);
number!(u128);

impl Ranges {
    /// The ranges of these networks, in any order.
    pub(crate) fn new(networks: impl Iterator<Item = Network>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            let rule = Rule::Network(network);
            match network.ends() {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    v4.push(Range { first: first.into(), last: last.into(), rule })
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    v6.push(Range { first: first.into(), last: last.into(), rule })
                }
                // Both ends of a network have the same family.
                _ => {}
            }
        }
        Self { v4: flatten(v4), v6: flatten(v6) }
    }

    /// The narrowest network that contains the address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<Rule> {
        match address.to_canonical() {
            IpAddr::V4(address) => find(&self.v4, address.into()),
            IpAddr::V6(address) => find(&self.v6, address.into()),
        }
    }

    /// Whether the networks cover this network.
    pub(crate) fn cover(&self, network: Network) -> bool {
        match network.ends() {
            (IpAddr::V4(first), IpAddr::V4(last)) => cover(&self.v4, first.into(), last.into()),
            (IpAddr::V6(first), IpAddr::V6(last)) => cover(&self.v6, first.into(), last.into()),
            _ => false,
        }
    }

    /// Whether the networks cover every address.
    pub(crate) fn cover_everything(&self) -> bool {
        cover(&self.v4, 0, u32::MAX) && cover(&self.v6, 0, u128::MAX)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

fn find<A: Number>(ranges: &[Range<A>], address: A) -> Option<Rule> {
    let range = ranges.get(ranges.partition_point(|range| range.last < address))?;
    (range.first <= address).then_some(range.rule)
}

fn cover<A: Number>(ranges: &[Range<A>], first: A, last: A) -> bool {
    let mut wanted = first;
    for range in &ranges[ranges.partition_point(|range| range.last < first)..] {
        if range.first > wanted {
            return false;
        }
        if range.last >= last {
            return true;
        }
        let Some(next) = range.last.next() else { return true };
        wanted = next;
    }
    false
}

/// Networks are either nested or disjoint. So, from the left, the open networks form a stack with the narrowest on top;
/// the top owns all addresses until the next network starts or the top ends.
fn flatten<A: Number>(mut networks: Vec<Range<A>>) -> Box<[Range<A>]> {
    networks.sort_by(|a, b| (a.first, b.last).cmp(&(b.first, a.last)));
    networks.dedup_by(|a, b| (a.first, a.last) == (b.first, b.last));
    let mut flat = Vec::with_capacity(networks.len().saturating_mul(2));
    let mut open: Vec<Range<A>> = Vec::new();
    // The first address without a range so far; `None` after the last address.
    let mut at: Option<A> = networks.first().map(|network| network.first);
    for network in networks {
        close(&mut open, &mut flat, &mut at, Some(network.first));
        if let (Some(outer), Some(from)) = (open.last(), at)
            && from < network.first
        {
            flat.push(Range { first: from, last: network.first.previous(), rule: outer.rule });
        }
        at = Some(network.first);
        open.push(network);
    }
    close(&mut open, &mut flat, &mut at, None);
    flat.into_boxed_slice()
}

/// Ends the networks that end before `until`, or all of them.
fn close<A: Number>(open: &mut Vec<Range<A>>, flat: &mut Vec<Range<A>>, at: &mut Option<A>, until: Option<A>) {
    while let Some(top) = open.pop_if(|top| until.is_none_or(|until| top.last < until)) {
        if let Some(from) = *at
            && from <= top.last
        {
            flat.push(Range { first: from, last: top.last, rule: top.rule });
        }
        *at = if top.last == A::MAX { None } else { top.last.next() };
    }
}
