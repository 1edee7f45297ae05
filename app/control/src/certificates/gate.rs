//! Lets orders begin one after the other, at the pace of [`Pacer`].

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_acme_schedule::{Pacer, PacerConfig, PacerWait};
use tokio::sync::Notify;

/// How long a waiting order sleeps at most before it asks again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The gate that every order passes before it begins.
pub(super) struct OrderGate {
    pacer: Mutex<Pacer>,
    has_room: Notify,
}

/// The place of an order that runs; dropped at its end.
pub(super) struct OrderPlace<'a>(&'a OrderGate);

impl OrderGate {
    pub(super) fn new(config: PacerConfig) -> Self {
        Self { pacer: Mutex::new(Pacer::new(config)), has_room: Notify::new() }
    }

    /// Waits until an order may begin.
    pub(super) async fn enter(&self) -> OrderPlace<'_> {
        loop {
            let now = Instant::now();
            let started = self.pacer.lock().start(now);
            let wait = match started {
                Ok(()) => return OrderPlace(self),
                Err(PacerWait::Full) => ASK_AGAIN,
                Err(PacerWait::Until(at)) => at.saturating_duration_since(now),
            };
            tokio::select! {
                () = self.has_room.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

impl Drop for OrderPlace<'_> {
    fn drop(&mut self) {
        self.0.pacer.lock().end();
        self.0.has_room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_order_waits_for_a_place_and_gets_one_that_another_leaves() {
        let gate = OrderGate::new(PacerConfig { max_running: 1, max_starts_per_minute: 6_000_000 });
        let first = gate.enter().await;
        let second = gate.enter();
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut second).await.is_err());
        drop(first);
        let _second = second.await;
    }
}
