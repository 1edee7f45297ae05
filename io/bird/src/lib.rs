//! BIRD: its control socket, and the file that it includes.

mod applier;
mod apply;
mod client;
mod file;

pub use applier::Applier;
pub use apply::{Applied, ApplyError, Unheard};
pub use client::{Bird, BirdError, HUNG_AFTER};
pub use file::{FileError, MAX_FILE_BYTES, ensure_file};
