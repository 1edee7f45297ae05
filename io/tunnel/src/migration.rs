//! Moves a session's driver to another shard when all of its requests come from there.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use tokio::{runtime::Handle, task::JoinSet};

use crate::mux::Mux;

/// The future that drives a session's connection.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The end of a stay in one shard.
enum Stay<T> {
    Over(T),
    Moves(Work<T>, Handle),
}

/// Runs the work in the caller's task, and moves it when [`Mux::has_room_for_shared`] asks for another shard. After a
/// move the new shard polls those resources that move along, as connections do; timers stay in their old shard. `None`
/// if the shard that the work moved to has ended. Dropping the future ends the work.
pub(crate) async fn follow_requests<T: Send + 'static>(work: Work<T>, mux: Arc<Mux>) -> Option<T> {
    let mut tasks = JoinSet::new();
    let mut stay = stay(work, mux.clone()).await;
    loop {
        match stay {
            Stay::Over(value) => return Some(value),
            Stay::Moves(work, to) => {
                tasks.spawn_on(self::stay(work, mux.clone()), &to);
                stay = tasks.join_next().await?.ok()?;
            }
        }
    }
}

async fn stay<T>(work: Work<T>, mux: Arc<Mux>) -> Stay<T> {
    let mut work = Some(work);
    poll_fn(move |cx| {
        if let Some(to) = mux.moves_to()
            && let Some(work) = work.take()
        {
            return Poll::Ready(Stay::Moves(work, to));
        }
        match &mut work {
            Some(work) => work.as_mut().poll(cx).map(Stay::Over),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use sallyport_shards::{ShardId, Shards};
    use sallyport_wire::{Session, SessionConfig};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::mux::now;

    #[tokio::test]
    async fn work_moves_to_the_calling_shard_and_ends_when_no_task_waits_for_it() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let mux = Mux::new(Session::edge(SessionConfig::default(), [1; 16], [2; 32], now()));
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let (keep, ended) = oneshot::channel::<()>();
        let work = poll_fn({
            let mux = mux.clone();
            move |cx| {
                mux.take_work(None, 0, cx.waker());
                assert!(!keep.is_closed());
                sender.send(ShardId::here()).unwrap();
                Poll::<()>::Pending
            }
        });
        let mut tasks = JoinSet::new();
        let roaming = follow_requests(Box::pin(work), mux.clone());
        shards.spawn_among(&mut tasks, async move { assert!(roaming.await.is_none()) });
        let first = receiver.recv().await.unwrap();
        let (found, asked) = oneshot::channel();
        let asking = mux.clone();
        // Moves the work exactly once to the caller's shard; the other shards get work in turn.
        shards.spawn(async move {
            for _ in 0..256 {
                asking.has_room_for_shared();
            }
            let _ = found.send(ShardId::here());
        });
        let second = tokio::time::timeout(std::time::Duration::from_secs(20), asked).await.unwrap().unwrap();
        assert_ne!(first, second);
        assert_eq!(receiver.recv().await, Some(second));
        drop(tasks);
        assert!(tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.unwrap().is_err());
    }
}
