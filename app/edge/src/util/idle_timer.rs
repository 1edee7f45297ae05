//! An idle timer that costs nothing while bytes move.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// A timer that is set again only when it fires; progress sets a flag.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    bound: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether something moved since the timer was set.
    pub(crate) moved: bool,
}

impl IdleTimer {
    /// Fires after `bound` without progress.
    pub(crate) fn new(bound: Duration) -> Self {
        Self { bound, timer: None, moved: false }
    }

    /// Starts the timer again at the next [`IdleTimer::poll_over`].
    pub(crate) fn restart(&mut self) {
        self.timer = None;
    }

    /// Ready when nothing has moved for the bound. To be polled while the caller waits.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let bound = self.bound;
        let timer = self.timer.get_or_insert_with(|| {
            self.moved = false;
            Box::pin(tokio::time::sleep(bound))
        });
        loop {
            ready!(timer.as_mut().poll(cx));
            if !std::mem::take(&mut self.moved) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + bound);
        }
    }
}
