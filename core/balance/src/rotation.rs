//! Least-loaded selection by weight, with ties in turn.

use std::{cmp::Ordering, fmt, str::FromStr};

/// The greatest weight.
pub const MAX_WEIGHT: u16 = 1_000;

/// The share of an origin relative to the others: with weights 3 and 1, three requests of four. Weight 0 takes nothing
/// new, so that an origin drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(u16);

/// The number is above [`MAX_WEIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a weight must be a whole number from 0 to {MAX_WEIGHT}: 0 takes no new requests, 1 is usual")]
pub struct WeightError;

impl Weight {
    /// Takes nothing new.
    pub const ZERO: Self = Self(0);
    /// The default weight.
    pub const ONE: Self = Self(1);

    /// The weight of this number.
    ///
    /// # Errors
    /// The number is above [`MAX_WEIGHT`].
    pub fn new(weight: u16) -> Result<Self, WeightError> {
        if weight > MAX_WEIGHT { Err(WeightError) } else { Ok(Self(weight)) }
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        text.parse().map_err(|_| WeightError).and_then(Self::new)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Selects the least loaded candidate; among equally loaded ones the next in turn.
///
/// The candidates form a ring in the order of their keys. The turn goes from the last chosen key to the next one up,
/// whatever came, left or was unusable in between. While loads are equal, the counts of two candidates that stay usable
/// never differ by more than one. A choice costs at most one pass over the candidates, and no memory.
///
/// With differing [weights](Self::choose_weighted), the least loaded is the one with the fewest requests for its
/// weight, as in nginx's `least_conn`. Ties go by smooth weighted round robin: each tied candidate gains its weight;
/// the one with the greatest gain is chosen and pays the sum of all weights. This takes one number for each candidate.
#[derive(Debug, Clone, Default)]
pub struct Rotation<K> {
    last: Option<K>,
    /// Index of that candidate.
    place: usize,
    /// The gain of each key, sorted by key.
    gains: Vec<(K, i64)>,
    /// Reused memory.
    tied: Vec<Weighted>,
}

impl<K: Ord + Clone> Rotation<K> {
    /// A rotation without a last choice.
    #[must_use]
    pub fn new() -> Self {
        Self { last: None, place: 0, gains: Vec::new(), tied: Vec::new() }
    }

    /// The index of the chosen candidate; `None` if no candidate is usable. The candidates must be sorted by distinct
    /// keys.
    ///
    /// The first usable candidate in the ring without load is chosen at once. So with more candidates than load, a
    /// choice costs the same for any number of candidates.
    pub fn choose<T>(
        &mut self,
        candidates: &[T],
        key: impl Fn(&T) -> K,
        load: impl Fn(&T) -> u32,
        usable: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        debug_assert!(candidates.is_sorted_by(|one, next| key(one) < key(next)), "candidates must be sorted by key");
        let turn = self.turn(candidates, &key);
        let (mut least, mut best) = (u64::MAX, None);
        let (before, after) = candidates.split_at(turn);
        for (part, first) in [(after, turn), (before, 0)] {
            for (place, candidate) in part.iter().enumerate() {
                let load = u64::from(load(candidate));
                // `usable` is called rarely: only for candidates that are better than all before.
                if load < least && usable(candidate) {
                    (least, best) = (load, Some(first + place));
                    if load == 0 {
                        break;
                    }
                }
            }
            if least == 0 {
                break;
            }
        }
        let index = best?;
        (self.last, self.place) = (Some(key(&candidates[index])), index);
        Some(index)
    }

    /// Index of the first candidate after the last chosen key.
    fn turn<T>(&self, candidates: &[T], key: &impl Fn(&T) -> K) -> usize {
        let Some(last) = &self.last else { return 0 };
        // Mostly the last chosen candidate still has its index.
        if candidates.get(self.place).is_some_and(|candidate| key(candidate) == *last) {
            return self.place + 1;
        }
        candidates.partition_point(|candidate| key(candidate) <= *last)
    }

    /// Like [`choose`](Self::choose), by weight. Candidates of weight 0 are not usable. While all others have the same
    /// weight, the choice equals that of [`choose`](Self::choose).
    pub fn choose_weighted<T>(
        &mut self,
        candidates: &[T],
        key: impl Fn(&T) -> K,
        load: impl Fn(&T) -> u32,
        weight: impl Fn(&T) -> Weight,
        usable: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        let takes = |candidate: &T| weight(candidate) != Weight::ZERO && usable(candidate);
        let mut weights = candidates.iter().filter(|candidate| takes(candidate)).map(&weight);
        let first = weights.next()?;
        if weights.all(|weight| weight == first) {
            return self.choose(candidates, key, load, takes);
        }
        let mut tied = std::mem::take(&mut self.tied);
        tied.clear();
        for (index, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| takes(candidate)) {
            let weighted = Weighted { index, load: load(candidate), weight: weight(candidate).0 };
            // Tied candidates compare alike, so the first stands for all.
            match tied.first().map_or(Ordering::Less, |best: &Weighted| weighted.compare(best)) {
                Ordering::Greater => continue,
                Ordering::Equal => {}
                Ordering::Less => tied.clear(),
            }
            tied.push(weighted);
        }
        let index = self.take_turn(candidates, &key, &tied);
        self.tied = tied;
        self.last = index.map(|index| key(&candidates[index])).or(self.last.take());
        index
    }

    /// Smooth weighted round robin among the tied candidates.
    fn take_turn<T>(&mut self, candidates: &[T], key: &impl Fn(&T) -> K, tied: &[Weighted]) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, usize, i64)> = None;
        for Weighted { index, weight, .. } in tied {
            let key = key(&candidates[*index]);
            let place = match self.gains.binary_search_by(|(known, _)| known.cmp(&key)) {
                Ok(place) => place,
                Err(place) => {
                    self.gains.insert(place, (key, 0));
                    // The earlier result moved up with the insertion.
                    best = best.map(|(index, at, gain)| (index, at + usize::from(at >= place), gain));
                    place
                }
            };
            let weight = i64::from(*weight);
            total += weight;
            let gain = &mut self.gains[place].1;
            *gain += weight;
            let is_better = best.is_none_or(|(_, at, most)| (*gain, at) > (most, place));
            if is_better {
                best = Some((*index, place, *gain));
            }
        }
        let (index, place, _) = best?;
        self.gains[place].1 -= total;
        if self.gains.len() > candidates.len() {
            self.gains.retain(|(known, _)| candidates.iter().any(|candidate| key(candidate) == *known));
        }
        Some(index)
    }
}

#[derive(Debug, Clone, Copy)]
struct Weighted {
    index: usize,
    load: u32,
    weight: u16,
}

impl Weighted {
    /// Compares load divided by weight, without dividing.
    fn compare(&self, other: &Self) -> Ordering {
        let cross = |load: u32, weight: u16| u64::from(load) * u64::from(weight);
        cross(self.load, other.weight).cmp(&cross(other.load, self.weight))
    }
}
