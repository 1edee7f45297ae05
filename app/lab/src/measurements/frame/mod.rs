//! The frame of every measurement: variants run in turn, medians with their spread, and claims about ratios. Pure.

mod claim;
mod figures;
mod report;
mod rounds;

#[cfg(test)]
mod tests;

pub use claim::{Claim, Outcome, Place, Verdict};
pub use figures::{Column, Spread};
pub use report::{Article, Machine, Report, Row};
pub use rounds::{Design, Load, Measurement, RunError, measure};
