//! Figures: columns with units, medians, and how far the runs lie apart.

use serde::Serialize;

/// A column of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Column {
    /// What it is.
    pub name: &'static str,
    /// Its unit; empty for counts.
    pub unit: &'static str,
}

/// The figures of one variant in one column, over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The lowest.
    pub low: f64,
    /// The median; the mean of the two in the middle, if their number is even.
    pub median: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// The spread of these figures. None if there are none.
    #[must_use]
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (low, high) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) };
        Some(Self { low, median, high })
    }

    /// The median with three digits, and the spread where the runs differ.
    #[must_use]
    pub fn words(&self) -> String {
        let (low, median, high) = (rounded(self.low), rounded(self.median), rounded(self.high));
        if low == high { median } else { format!("{median} ({low} to {high})") }
    }
}

/// A figure with three digits; whole numbers stay whole.
pub(crate) fn rounded(figure: f64) -> String {
    let size = figure.abs();
    match size {
        _ if figure.fract() == 0.0 || size >= 100.0 => format!("{figure:.0}"),
        _ if size >= 10.0 => format!("{figure:.1}"),
        _ if size >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_and_both_ends() {
        let of = |figures: &[f64]| Spread::of(figures.to_vec()).map(|spread| (spread.low, spread.median, spread.high));
        assert_eq!(of(&[3.0, 9.0, 1.0]), Some((1.0, 3.0, 9.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), Some((1.0, 3.0, 9.0)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn figures_have_three_digits_and_a_spread_only_where_runs_differ() {
        let words = |figures: &[f64]| Spread::of(figures.to_vec()).unwrap().words();
        assert_eq!(words(&[4_000.0, 4_000.0]), "4000");
        assert_eq!(words(&[1.234, 15.55, 153.4]), "15.6 (1.23 to 153)");
        assert_eq!(words(&[0.012_34]), "0.012");
    }
}
