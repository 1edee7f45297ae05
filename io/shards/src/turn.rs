//! Bounds the bytes that a task moves before other tasks run.

use std::task::{Context, Poll};

use tokio::task::coop;

use crate::weigh;

/// Bytes that a task moves in one turn. A smaller value costs bulk on a long path some percent.
const MAX_TURN_BYTES: usize = 512 * 1024;
/// Socket operations that tokio allows a task in one turn. They alone allow some megabytes, while every other task of
/// the shard waits.
const OPERATIONS: usize = 128;

/// Counts bytes against tokio's operation budget. After 512 KiB the task's sockets are not ready until all other ready
/// tasks have run and the kernel was polled. So the task need not yield explicitly, nor does any layer between the task
/// and its sockets. Few bytes count as nothing.
pub fn carried(cx: &mut Context<'_>, bytes: usize) {
    weigh(bytes);
    for _ in 0..bytes / (MAX_TURN_BYTES / OPERATIONS) {
        // When the budget is used up, tokio would wake the task even without further work.
        if !coop::has_budget_remaining() {
            return;
        }
        if let Poll::Ready(operation) = coop::poll_proceed(cx) {
            operation.made_progress();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Number of pieces that a task moves from a connection with endless data in one turn.
    async fn pieces_in_a_turn(bytes: usize) -> usize {
        let pieces = Arc::new(AtomicUsize::new(0));
        let counted = pieces.clone();
        let bulk = tokio::spawn(async move {
            let mut endless = tokio::io::repeat(0);
            let mut piece = vec![0; 16];
            loop {
                endless.read_exact(&mut piece).await.unwrap();
                poll_fn(|cx| {
                    carried(cx, bytes);
                    Poll::Ready(())
                })
                .await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        while pieces.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let before = pieces.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        let in_a_turn = pieces.load(Ordering::Relaxed) - before;
        bulk.abort();
        in_a_turn
    }

    #[tokio::test]
    async fn a_task_that_carries_much_lets_others_have_their_turn() {
        let long = pieces_in_a_turn(64 * 1024).await;
        assert!((1..=MAX_TURN_BYTES / (64 * 1024)).contains(&long), "{long} of 64 KiB");
        assert!(pieces_in_a_turn(100).await > 64, "small ones count as what they are");
    }

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_task_that_has_carried_its_last_is_not_woken() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        carried(&mut Context::from_waker(&woken.clone().into()), 1 << 30);
        assert!(!coop::has_budget_remaining());
        tokio::task::yield_now().await;
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    }
}
