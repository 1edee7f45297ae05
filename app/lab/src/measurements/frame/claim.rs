//! Claims: what a measurement must show, as a ratio of two figures. No claim has an absolute figure.

use serde::Serialize;

use super::{Column, Row, figures::rounded};

/// One figure of a report: the median of a variant in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The name of the variant.
    pub variant: &'static str,
    /// The name of the column.
    pub column: &'static str,
}

/// A sentence that holds if one figure over another is within bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// The sentence.
    pub sentence: &'static str,
    /// The figure that is divided.
    pub figure: Place,
    /// By which it is divided.
    pub by: Place,
    /// The least ratio that fits the sentence.
    pub at_least: f64,
    /// The greatest ratio that fits the sentence.
    pub at_most: f64,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// A figure is missing.
    NotJudged,
}

/// A judged claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The sentence.
    pub sentence: &'static str,
    /// The ratio; none if a figure is missing or the divisor is zero.
    pub ratio: Option<f64>,
    /// The least ratio that fits.
    pub at_least: f64,
    /// The greatest ratio that fits; none if there is no bound.
    pub at_most: Option<f64>,
    /// Whether the claim holds.
    pub outcome: Outcome,
}

impl Claim {
    /// The figure is at least so many times the other.
    pub(crate) const fn at_least(sentence: &'static str, figure: Place, by: Place, ratio: f64) -> Self {
        Self { sentence, figure, by, at_least: ratio, at_most: f64::INFINITY }
    }

    /// The figure is within these bounds of the other.
    pub(crate) const fn within(sentence: &'static str, figure: Place, by: Place, bounds: (f64, f64)) -> Self {
        Self { sentence, figure, by, at_least: bounds.0, at_most: bounds.1 }
    }

    /// Judges the claim by these rows.
    #[must_use]
    pub fn judge(&self, columns: &[Column], rows: &[Row]) -> Verdict {
        let median = |place: Place| {
            let column = columns.iter().position(|column| column.name == place.column)?;
            let row = rows.iter().find(|row| row.variant == place.variant)?;
            row.figures.get(column).map(|spread| spread.median)
        };
        let ratio = median(self.figure).zip(median(self.by).filter(|by| *by != 0.0)).map(|(figure, by)| figure / by);
        let outcome = match ratio {
            None => Outcome::NotJudged,
            Some(ratio) if (self.at_least..=self.at_most).contains(&ratio) => Outcome::Pass,
            Some(_) => Outcome::Fail,
        };
        Verdict {
            sentence: self.sentence,
            ratio,
            at_least: self.at_least,
            at_most: self.at_most.is_finite().then_some(self.at_most),
            outcome,
        }
    }
}

impl Verdict {
    /// The verdict in one line.
    #[must_use]
    pub fn words(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::NotJudged => return format!("not judged: {}", self.sentence),
        };
        let ratio = self.ratio.map_or_else(|| "-".to_owned(), rounded);
        let bounds = match self.at_most {
            Some(most) => format!("{} to {}", rounded(self.at_least), rounded(most)),
            None => format!("at least {}", rounded(self.at_least)),
        };
        format!("{outcome}: {} (ratio {ratio}, expected {bounds})", self.sentence)
    }
}
