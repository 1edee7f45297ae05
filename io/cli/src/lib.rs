//! What the command lines of Sallyport's programs share: how they print, fail, read spans of time, and end by signals.

pub mod duration;
pub mod failure;
pub mod files;
pub mod output;
pub mod program;
pub mod signals;
pub mod usage;
