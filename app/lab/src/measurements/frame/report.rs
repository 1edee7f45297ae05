//! What a measurement reports.

use serde::Serialize;

use super::{Column, Outcome, Spread, Verdict};

/// The article that a measurement repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Article {
    /// Its subject and year.
    pub title: &'static str,
    /// What it said.
    pub said: &'static str,
}

/// The machine of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The day, such as 2026-11-28.
    pub date: String,
    /// The kernel's release.
    pub kernel: String,
    /// The model of the processors.
    pub processor: String,
    /// How many of them.
    pub processors: usize,
    /// The programs that took part, with their versions.
    pub versions: Vec<String>,
}

/// One variant of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub variant: String,
    /// A figure for each column; none if the variant did not run.
    pub figures: Vec<Spread>,
    /// Whether other load was on the machine, in the repeated run too.
    pub is_disturbed: bool,
    /// Why it did not run, and what to do.
    pub missing: Option<String>,
}

/// A finished measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Its name.
    pub name: &'static str,
    /// The article.
    pub article: Article,
    /// Where it ran.
    pub machine: Machine,
    /// Whether it was a quick run, with fewer and shorter runs.
    pub is_quick: bool,
    /// How many rounds there were.
    pub rounds: u32,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its variants.
    pub rows: Vec<Row>,
    /// Its judged claims.
    pub verdicts: Vec<Verdict>,
    /// Its drawing, as SVG.
    #[serde(skip)]
    pub drawing: String,
}

impl Report {
    /// Fail if a claim does not hold, pass if all hold, and not judged otherwise.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let has = |outcome| self.verdicts.iter().any(|verdict| verdict.outcome == outcome);
        match (has(Outcome::Fail), has(Outcome::NotJudged)) {
            (true, _) => Outcome::Fail,
            (false, true) => Outcome::NotJudged,
            (false, false) => Outcome::Pass,
        }
    }
}

impl Row {
    /// What stands beside the figures: why there are none, or that other load was there.
    #[must_use]
    pub fn note(&self) -> &str {
        match &self.missing {
            Some(why) => why,
            None if self.is_disturbed => "disturbed",
            None => "",
        }
    }
}

impl Machine {
    /// The machine in one line.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { date, kernel, processor, processors, versions } = self;
        format!("{date}, Linux {kernel}, {processors} x {processor}; {}", versions.join(", "))
    }
}
