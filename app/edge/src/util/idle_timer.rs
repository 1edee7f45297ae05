//! A timer for what must keep moving.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// A timer that is set to its bound again only when it fires, so that progress costs nothing.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    bound: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether something moved since the timer was set.
    pub(crate) moved: bool,
}

impl IdleTimer {
    /// For so long.
    pub(crate) fn new(bound: Duration) -> Self {
        Self { bound, timer: None, moved: false }
    }

    /// Begins anew with the next call of [`IdleTimer::poll_over`].
    pub(crate) fn restart(&mut self) {
        self.timer = None;
    }

    /// To be called while something is waited for: ready when nothing moved for the bound.
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
