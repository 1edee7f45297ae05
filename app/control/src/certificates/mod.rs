//! Orders of certificates at ACME servers: which names need one, the steps of each order, and the answers to challenges.
//!
//! May use: `service` and what that may use.

mod accounts;
mod checks;
mod gate;
mod order;
mod run;
mod solver;
mod wanted;

pub(crate) use run::run;
