//! Counting streams, and waiting until there are none.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

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

/// One stream, counted by one or two counters for as long as it lives.
pub(crate) struct Held {
    first: Arc<Counter>,
    second: Option<Arc<Counter>>,
}

impl Held {
    pub(crate) fn new(first: &Arc<Counter>, second: Option<&Arc<Counter>>) -> Self {
        first.add();
        if let Some(second) = second {
            second.add();
        }
        Self { first: first.clone(), second: second.cloned() }
    }
}

impl Drop for Held {
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
        let one = Held::new(&counter, None);
        let two = Held::new(&counter, None);
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
