//! Rounds: every variant runs once a round, so that what changes on the machine meets all of them.

use super::{Claim, Column, Row, Spread, Verdict};

/// How much processor time of others disturbs a run, in processors.
const DISTURBING: f64 = 0.25;

/// What a measurement compares.
#[derive(Debug, Clone, Default)]
pub struct Design {
    /// What each run yields.
    pub columns: Vec<Column>,
    /// What is compared, in the order of a round.
    pub variants: Vec<String>,
    /// What the figures must show.
    pub claims: Vec<Claim>,
    /// How often each variant runs, unless another number is asked for.
    pub rounds: u32,
}

/// A measurement.
pub trait Measurement {
    /// What it compares.
    fn design(&self) -> Design;

    /// Runs a variant of the design once, by its place there. Returns one figure for each column.
    ///
    /// # Errors
    /// The machine lacks something, or the run failed. The other variants still run.
    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError>;

    /// A drawing that shows more than the bars of the first column, as SVG.
    fn drawing(&self) -> Option<String> {
        None
    }
}

/// Why a variant has no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A program or a feature of the kernel is not there.
    #[error("{what} is not there: {how}")]
    Missing {
        /// Which.
        what: String,
        /// How to get it.
        how: &'static str,
    },
    /// The run failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The laboratory failed.
    #[error(transparent)]
    Lab(#[from] crate::error::LabError),
    /// The figures cannot be right.
    #[error("{0}")]
    Unfit(String),
}

impl RunError {
    /// Wraps an error of this operation.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Processor time of other programs since some moment, and the time since then, both in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    /// The processor time of others.
    pub others_us: u64,
    /// The time.
    pub at_us: u64,
}

impl Load {
    /// Whether others used much of the machine since `earlier`.
    fn is_disturbing_since(self, earlier: Self) -> bool {
        let (others, time) =
            (self.others_us.saturating_sub(earlier.others_us), self.at_us.saturating_sub(earlier.at_us));
        others as f64 > time as f64 * DISTURBING
    }
}

/// Runs all variants in rounds, and judges the claims.
///
/// `load` reads the present load. A run that others disturbed is repeated once, and its repetition counts. A variant
/// that failed does not run again. `tell` hears of each run.
pub fn measure(
    measurement: &mut dyn Measurement,
    rounds: u32,
    load: &mut dyn FnMut() -> Load,
    tell: &mut dyn FnMut(&str),
) -> (Vec<Row>, Vec<Verdict>) {
    let Design { columns, variants, claims, .. } = measurement.design();
    let mut runs: Vec<Vec<Vec<f64>>> = vec![Vec::new(); variants.len()];
    let mut rows: Vec<Row> = variants
        .into_iter()
        .map(|variant| Row { variant, figures: Vec::new(), is_disturbed: false, missing: None })
        .collect();
    for round in 1..=rounds {
        let left = rows.iter_mut().zip(&mut runs).enumerate().filter(|(_, (row, _))| row.missing.is_none());
        for (variant, (row, runs)) in left {
            tell(&format!("round {round} of {rounds}: {}", row.variant));
            match undisturbed(measurement, variant, load) {
                Ok((figures, is_disturbed)) => {
                    row.is_disturbed |= is_disturbed;
                    runs.push(figures);
                }
                Err(error) => row.missing = Some(error.to_string()),
            }
        }
    }
    for (row, runs) in rows.iter_mut().zip(runs).filter(|(row, _)| row.missing.is_none()) {
        let of_column = |column| Spread::of(runs.iter().filter_map(|run| run.get(column).copied()).collect());
        row.figures = (0..columns.len()).map_while(of_column).collect();
    }
    let verdicts = claims.iter().map(|claim| claim.judge(&columns, &rows)).collect();
    (rows, verdicts)
}

/// Runs a variant, and once more if others disturbed it. Returns the figures, and whether the last run was disturbed.
fn undisturbed(
    measurement: &mut dyn Measurement,
    variant: usize,
    load: &mut dyn FnMut() -> Load,
) -> Result<(Vec<f64>, bool), RunError> {
    let mut run = || {
        let before = load();
        let figures = measurement.run(variant)?;
        Ok((figures, load().is_disturbing_since(before)))
    };
    match run()? {
        (_, true) => run(),
        quiet => Ok(quiet),
    }
}
