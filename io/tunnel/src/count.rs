//! Counts streams, and waits until none is left.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use crate::share::ShareGuard;

/// A count that can be awaited to reach zero.
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

    /// Waits until the count is zero. Cancel safe.
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

/// Guard of one running stream: counts in one or two counters, and at the edge in its client's share.
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

    /// Adds the client's share to the guard.
    pub(crate) fn with(mut self, share: ShareGuard) -> Self {
        self.share = Some(share);
        self
    }
}

impl StreamCount {
    /// Sets the client to which the stream is counted; `None` while the stream is idle.
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
