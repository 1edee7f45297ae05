//! Counting streams, and waiting until there are none.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use crate::share::ShareGuard;

/// How many there are of something.
#[derive(Default)]
pub(crate) struct Counter {
    count: AtomicUsize,
    changed: Notify,
}

impl Counter {
    pub(crate) fn get(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn add(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.changed.notify_waiters();
        }
    }

    /// Waits until there are none. Cancel safe.
    pub(crate) async fn zero(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// One stream, counted by one or two counters for as long as it lives, and at the edge as what its client has.
pub(crate) struct StreamCount {
    first: Arc<Counter>,
    second: Option<Arc<Counter>>,
    share: Option<ShareGuard>,
}

impl StreamCount {
    pub(crate) fn new(first: &Arc<Counter>, second: Option<&Arc<Counter>>) -> Self {
        first.add();
        if let Some(second) = second {
            second.add();
        }
        Self { first: first.clone(), second: second.cloned(), share: None }
    }

    /// The same, with what the stream has of a share.
    pub(crate) fn with(mut self, share: ShareGuard) -> Self {
        self.share = Some(share);
        self
    }
}

impl StreamCount {
    /// Whose stream it is from now on; `None`: nobody's, as long as it rests.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        if let Some(share) = &mut self.share {
            share.set_client(client);
        }
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.first.remove();
        if let Some(second) = &self.second {
            second.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_ends_with_the_last_one() {
        let counter = Arc::new(Counter::default());
        counter.zero().await;
        let one = StreamCount::new(&counter, None);
        let two = StreamCount::new(&counter, None);
        let waiting = tokio::spawn({
            let counter = counter.clone();
            async move { counter.zero().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(two);
        waiting.await.unwrap();
    }
}
