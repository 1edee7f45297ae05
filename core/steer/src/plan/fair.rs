//! Max-min fairness: nobody gets more than they want, and what is scarce is shared evenly.

use crate::Amount;

/// The share of each of the wants in this amount.
pub(super) fn max_min(amount: Amount, wants: &[Amount]) -> Vec<Amount> {
    let mut shares = vec![0; wants.len()];
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_unstable_by_key(|at| wants[*at]);
    let mut left = amount;
    for (number, at) in order.iter().enumerate() {
        let share = wants[*at].min(left / (wants.len() - number) as u64);
        shares[*at] = share;
        left -= share;
    }
    shares
}

/// Splits an amount by weights; the parts add up to the amount, unless all weights are 0.
pub(super) fn split(amount: Amount, weights: &[u64]) -> Vec<Amount> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if total > u128::from(u64::MAX) {
        return split(amount, &weights.iter().map(|weight| weight >> 32).collect::<Vec<_>>());
    }
    if total == 0 {
        return vec![0; weights.len()];
    }
    let (mut given, mut passed) = (0, 0_u128);
    let parts = weights.iter().map(|weight| {
        passed += u128::from(*weight);
        let until = u64::try_from(u128::from(amount) * passed / total).unwrap_or(amount);
        let part = until - given;
        given = until;
        part
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_wants_are_met_and_large_ones_share_the_rest() {
        assert_eq!(max_min(100, &[10, 90, 60]), [10, 45, 45]);
        assert_eq!(max_min(100, &[10, 20]), [10, 20]);
        assert_eq!(max_min(0, &[10, 20]), [0, 0]);
        assert_eq!(max_min(5, &[]), Vec::<u64>::new());
        assert_eq!(split(100, &[1, 1, 1]), [33, 33, 34]);
        assert_eq!(split(7, &[0, 3, 0]), [0, 7, 0]);
        assert_eq!(split(7, &[0, 0]), [0, 0]);
        assert_eq!(split(u64::MAX, &[u64::MAX, u64::MAX]).iter().sum::<u64>(), u64::MAX);
    }
}
