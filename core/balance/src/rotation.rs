//! Least loaded, ties in turn.

/// Chooses the least loaded candidate; among equally loaded ones the next in turn.
///
/// The candidates stand in a ring, in the order of their keys, and the turn goes from the key chosen last to the next
/// one up, whatever came, left or was unusable in between. So while loads are equal, two candidates that are there and
/// usable all the time are never chosen more than once apart, and a choice costs one pass over the candidates, no memory.
#[derive(Debug, Clone, Default)]
pub struct Rotation<K> {
    last: Option<K>,
}

impl<K: Ord + Clone> Rotation<K> {
    /// A rotation in which nothing was chosen yet.
    #[must_use]
    pub fn new() -> Self {
        Self { last: None }
    }

    /// The index of the candidate whose turn it is; None when no candidate is usable. Keys are different from each
    /// other; the order of the candidates does not matter.
    pub fn choose<T>(
        &mut self,
        candidates: &[T],
        key: impl Fn(&T) -> K,
        load: impl Fn(&T) -> u32,
        usable: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        let mut best: Option<Choice<K>> = None;
        for (index, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| usable(candidate)) {
            let load = load(candidate);
            if best.as_ref().is_some_and(|best| best.load < load) {
                continue;
            }
            let key = key(candidate);
            // Those behind the last one chosen have to wait until the ring is through.
            let waits = self.last.as_ref().is_some_and(|last| key <= *last);
            let choice = Choice { load, waits, key, index };
            if best.as_ref().is_none_or(|best| choice.is_before(best)) {
                best = Some(choice);
            }
        }
        let best = best?;
        self.last = Some(best.key);
        Some(best.index)
    }
}

struct Choice<K> {
    load: u32,
    waits: bool,
    key: K,
    index: usize,
}

impl<K: Ord> Choice<K> {
    fn is_before(&self, other: &Self) -> bool {
        (self.load, self.waits, &self.key) < (other.load, other.waits, &other.key)
    }
}
