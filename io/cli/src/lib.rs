//! The shared part of Sallyport's command lines: output, failures and their exit codes, durations, and signals.

pub mod duration;
pub mod failure;
pub mod files;
pub mod output;
pub mod program;
pub mod signals;
pub mod usage;
