//! A set of addresses of one family.

use std::cmp::Reverse;

use super::Address;

/// A set of addresses: ranges from a first to a last address, sorted, with a gap between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges<A> {
    ranges: Vec<(A, A)>,
}

impl<A> Default for Ranges<A> {
    fn default() -> Self {
        Self { ranges: Vec::new() }
    }
}

/// How often a list names what it has named before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repeats {
    /// Blocks that are there again.
    pub(crate) duplicates: u64,
    /// Blocks inside a larger block.
    pub(crate) nested: u64,
}

/// Counts the repeats, and sorts the blocks for it.
pub(crate) fn repeats<A: Address>(blocks: &mut [(A, A)]) -> Repeats {
    blocks.sort_unstable_by_key(|(first, last)| (*first, Reverse(*last)));
    let mut found = Repeats::default();
    let mut before: Option<(A, A)> = None;
    let mut reached: Option<A> = None;
    for block in blocks {
        if before == Some(*block) {
            found.duplicates += 1;
        } else if reached.is_some_and(|reached| block.1 <= reached) {
            found.nested += 1;
        }
        before = Some(*block);
        reached = reached.max(Some(block.1));
    }
    found
}

impl<A: Address> Ranges<A> {
    /// The set of these blocks, each from a first to a last address, in any order.
    #[must_use]
    pub fn new(mut blocks: Vec<(A, A)>) -> Self {
        blocks.sort_unstable();
        let mut kept = 0_usize;
        for at in 0..blocks.len() {
            let (first, last) = blocks[at];
            if let Some((_, end)) = kept.checked_sub(1).and_then(|at| blocks.get_mut(at))
                && end.next().is_none_or(|after| first <= after)
            {
                *end = (*end).max(last);
                continue;
            }
            blocks[kept] = (first, last);
            kept += 1;
        }
        blocks.truncate(kept);
        blocks.shrink_to_fit();
        Self { ranges: blocks }
    }

    /// The ranges, from a first to a last address.
    #[must_use]
    pub fn ranges(&self) -> &[(A, A)] {
        &self.ranges
    }

    /// Whether there is no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many addresses there are; all of IPv6 are one more than the result says.
    #[must_use]
    pub fn size(&self) -> u128 {
        let sizes = self.ranges.iter().map(|(first, last)| (last.number() - first.number()).saturating_add(1));
        sizes.fold(0, u128::saturating_add)
    }

    /// What this set or the other has.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new([self.ranges.as_slice(), &other.ranges].concat())
    }

    /// What both sets have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some((from, to)), Some((other_from, other_to))) = (left.peek(), right.peek()) {
            let (first, last) = ((*from).max(*other_from), (*to).min(*other_to));
            if first <= last {
                ranges.push((first, last));
            }
            if to <= other_to {
                left.next()
            } else {
                right.next()
            };
        }
        Self { ranges }
    }

    /// What this set has and the other lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// All other addresses of the family.
    fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        let mut from = Some(A::MIN);
        for (first, last) in &self.ranges {
            if let (Some(from), Some(to)) = (from, first.previous())
                && from <= to
            {
                ranges.push((from, to));
            }
            from = last.next();
        }
        ranges.extend(from.map(|from| (from, A::MAX)));
        Self { ranges }
    }

    /// The fewest prefixes that have exactly these addresses, in order, each with its length.
    pub fn prefixes(&self) -> impl Iterator<Item = (A, u8)> + '_ {
        self.ranges.iter().flat_map(|(first, last)| A::prefixes(*first, *last))
    }

    /// The texts of [`prefixes`](Self::prefixes).
    pub fn prefix_texts(&self) -> impl Iterator<Item = String> + '_ {
        self.prefixes().map(|(first, length)| first.prefix_text(length))
    }
}
