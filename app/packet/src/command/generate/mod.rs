//! `packet generate`: sends packets, counts what arrives, and finds the rate without loss.

mod args;
mod next_hop;
mod recorded;
mod run;
mod search;
mod view;

pub(crate) use args::{EXAMPLES, GenerateArgs};
pub(crate) use run::generate;
