//! The generator: frames that the kernel sends from pages of its own or of this process, and a receiver of them.

mod layout;
mod live;
mod pinned;
mod receive;
mod run;
mod shared;
mod xsk;

use std::{sync::Arc, time::Duration};

use sallyport_packet_model::generate::{Pace, Recording, Traffic};

pub use layout::{MAX_RECORD_BYTES, MAX_RECORDS, MAX_SENDERS, has_generator};
pub use pinned::check_processors;
pub use receive::{Receipt, Receiver};
pub use run::{Engine, Generator, Progress};

/// What is sent.
#[derive(Debug, Clone)]
pub enum Source {
    /// Frames that the program makes.
    Traffic(Traffic),
    /// Frames of a file, one after the other.
    Records(Arc<Recording>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Records(Arc::default())
    }
}

/// A run.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What is sent.
    pub source: Source,
    /// The addresses of the link, from and to; frames of a file have their own without.
    pub macs: Option<([u8; 6], [u8; 6])>,
    /// The run, which its stamps bear. Its last bits number the senders: they are 0 here.
    pub run: u32,
    /// The most frames.
    pub count: Option<u64>,
    /// The longest time.
    pub duration: Option<Duration>,
    /// The pace at the start, of all senders together.
    pub pace: Pace,
    /// How many times as fast as in the file; `None` if the times of the file do not count.
    pub speed: Option<f64>,
}

impl Plan {
    /// The part of one of several senders; `None` if nothing is left for it.
    fn part(&self, sender: usize, senders: usize) -> Option<Self> {
        let (number, all) = (sender as u64, senders.max(1) as u64);
        let count = self.count.map(|count| count / all + u64::from(number < count % all));
        let source = match &self.source {
            Source::Traffic(traffic) => Source::Traffic(traffic.part(sender, senders)),
            Source::Records(recording) => Source::Records(Arc::clone(recording)),
        };
        let part = Self { source, count, run: self.run | number as u32, pace: self.pace.part(all), ..self.clone() };
        (count != Some(0)).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_share_a_run() {
        let pace = Pace { frame: 1_000, byte: 0 };
        let plan = Plan { count: Some(5), run: 64, pace, ..Plan::default() };
        let parts: Vec<_> = (0..3).filter_map(|sender| plan.part(sender, 3)).collect();
        let found: Vec<_> = parts.iter().map(|part| (part.count, part.run, part.pace.frame)).collect();
        assert_eq!(found, [(Some(2), 64, 3_000), (Some(2), 65, 3_000), (Some(1), 66, 3_000)]);
        assert!(Plan { count: Some(1), ..Plan::default() }.part(1, 2).is_none());
    }
}
