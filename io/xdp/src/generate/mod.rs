//! The generator: frames that the kernel sends from pages of its own, and a receiver that counts them.

mod layout;
mod receive;
mod run;

use std::time::Duration;

use sallyport_packet_model::generate::{Pace, Traffic};

pub use layout::{MAX_RECORD_BYTES, MAX_RECORDS, has_generator};
pub use receive::{Receipt, Receiver};
pub use run::{Generator, Progress};

/// What is sent.
#[derive(Debug, Clone)]
pub enum Source {
    /// Frames that the program makes.
    Traffic(Traffic),
    /// Frames of a file, one after the other, without the check sequence.
    Records(Vec<Vec<u8>>),
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is sent.
    pub source: Source,
    /// The addresses of the link, from and to; frames of a file have their own without.
    pub macs: Option<([u8; 6], [u8; 6])>,
    /// The run, which its stamps bear.
    pub run: u32,
    /// The most frames.
    pub count: Option<u64>,
    /// The longest time.
    pub duration: Option<Duration>,
    /// The pace at the start.
    pub pace: Pace,
}
