//! The part of a command line that the programs of Sallyport share: output, failures, spans of time, and signals.

pub mod duration;
pub mod failure;
pub mod files;
pub mod output;
pub mod program;
pub mod signals;
pub mod usage;
