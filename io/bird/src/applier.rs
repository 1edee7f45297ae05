//! Many changes in few configurations.

use std::{path::PathBuf, time::Duration};

use sallyport_anycast::bird::{Batcher, EdgePart};

use crate::{Applied, ApplyError, Bird};

/// Applies the newest part of an edge: at once, and then at most once a second. What fails is tried again, ever less
/// often. Time is what has passed since any moment.
#[derive(Debug)]
pub struct Applier {
    bird: Bird,
    file: PathBuf,
    batcher: Batcher<EdgePart>,
}

impl Applier {
    /// One for this BIRD, which includes this file.
    #[must_use]
    pub fn new(bird: Bird, file: impl Into<PathBuf>) -> Self {
        Self { bird, file: file.into(), batcher: Batcher::new() }
    }

    /// The client, for looking.
    pub fn bird(&mut self) -> &mut Bird {
        &mut self.bird
    }

    /// This part is wanted. It takes the place of one that waits.
    pub fn want(&mut self, part: EdgePart) {
        self.batcher.want(part);
    }

    /// When [`Self::apply_due`] has something to do. None: when something is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.batcher.deadline()
    }

    /// Applies what is due. None if nothing is.
    ///
    /// The clock is read twice: before, and after BIRD took the configuration.
    pub async fn apply_due(&mut self, clock: impl Fn() -> Duration) -> Option<Result<Applied, ApplyError>> {
        let part = self.batcher.poll(clock())?;
        let result = self.bird.apply(&part, &self.file).await;
        self.batcher.finish(result.is_err().then_some(part), clock());
        Some(result)
    }
}
