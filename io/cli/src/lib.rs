//! The shared part of Sallyport's command lines: output, failures and their exit codes, durations, signals, completion
//! and manual pages.

pub mod companion;
pub mod completion;
pub mod duration;
pub mod failure;
pub mod files;
pub mod manual;
pub mod output;
pub mod program;
pub mod signals;
pub mod usage;
