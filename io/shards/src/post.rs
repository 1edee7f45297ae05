//! Batches wake-ups of tasks in other shards.
//!
//! Waking a task of another thread costs a system call, and mostly another one there to sleep again. Under load a shard
//! has many tasks to wake at once: those whose responses arrived in one TLS record. So each shard has a task that runs
//! after the others, sends the gathered wake-ups to the other shards, and wakes the local tasks that other shards asked
//! for: one system call for all.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::ShardId;

/// The shards that accept wake-ups.
static BOXES: RwLock<BTreeMap<ShardId, Arc<Inbox>>> = RwLock::new(BTreeMap::new());

thread_local! {
    static OUT: RefCell<Outbox> = const { RefCell::new(Outbox { letters: Vec::new(), postman: None, is_open: false }) };
}

/// Wake-ups for other shards.
struct Outbox {
    letters: Vec<(ShardId, Waker)>,
    /// Waker of the shard's delivery task while it waits.
    postman: Option<Waker>,
    /// Whether the delivery task runs.
    is_open: bool,
}

/// Wake-ups from other shards.
#[derive(Default)]
struct Inbox(Mutex<InboxState>);

#[derive(Default)]
struct InboxState {
    wakers: Vec<Waker>,
    /// Waker of the shard's delivery task while it waits.
    postman: Option<Waker>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.0.lock()
    }
}

/// Wakes a task that waits in this shard. From another shard, the wake-up is batched with all others for the same shard
/// in this turn.
pub fn wake_at(shard: ShardId, waker: Waker) {
    let here = ShardId::here();
    if shard == here || !shard.is_shard() || !here.is_shard() {
        return waker.wake();
    }
    let wakes = OUT.with_borrow_mut(|out| {
        if !out.is_open {
            return Some(waker);
        }
        out.letters.push((shard, waker));
        out.postman.take()
    });
    if let Some(waker) = wakes {
        waker.wake();
    }
}

/// Delivers wake-ups between this shard and the others, as long as the shard lives.
pub(crate) async fn serve(here: ShardId) {
    let inbox = Arc::<Inbox>::default();
    boxes_mut().insert(here, inbox.clone());
    OUT.with_borrow_mut(|out| out.is_open = true);
    let _presence = Presence(here);
    let (mut came, mut letters) = (Vec::new(), Vec::new());
    poll_fn(|cx| {
        take_in(&inbox, &mut came, cx);
        take_out(&mut letters, cx);
        Poll::<()>::Pending
    })
    .await;
}

/// Wakes all tasks in the inbox. `wakers` is empty before and after; its memory is reused.
fn take_in(inbox: &Inbox, wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    let mut came = inbox.lock();
    came.postman = Some(cx.waker().clone());
    std::mem::swap(&mut came.wakers, wakers);
    drop(came);
    wakers.drain(..).for_each(Waker::wake);
}

/// Delivers the wake-ups for other shards. `letters` is reused as in [`take_in`].
fn take_out(letters: &mut Vec<(ShardId, Waker)>, cx: &Context<'_>) {
    OUT.with_borrow_mut(|out| {
        out.postman = Some(cx.waker().clone());
        std::mem::swap(&mut out.letters, letters);
    });
    if letters.is_empty() {
        return;
    }
    letters.sort_by_key(|(shard, _)| *shard);
    let boxes = BOXES.read();
    let mut letters = letters.drain(..).peekable();
    while let Some((shard, waker)) = letters.next() {
        let same = std::iter::from_fn(|| letters.next_if(|(other, _)| *other == shard)).map(|(_, waker)| waker);
        let wakers = std::iter::once(waker).chain(same);
        let Some(inbox) = boxes.get(&shard) else {
            // The shard has ended, and its tasks with it.
            wakers.for_each(Waker::wake);
            continue;
        };
        let mut came = inbox.lock();
        came.wakers.extend(wakers);
        let postman = came.postman.take();
        drop(came);
        if let Some(postman) = postman {
            postman.wake();
        }
    }
}

fn boxes_mut() -> parking_lot::RwLockWriteGuard<'static, BTreeMap<ShardId, Arc<Inbox>>> {
    BOXES.write()
}

/// A shard's registered inbox, removed when the shard ends.
struct Presence(ShardId);

impl Drop for Presence {
    fn drop(&mut self) {
        let inbox = boxes_mut().remove(&self.0);
        // The remaining wake-ups are for tasks that end with the shard or have left it.
        let wakers = inbox.map(|inbox| std::mem::take(&mut inbox.lock().wakers)).unwrap_or_default();
        wakers.into_iter().for_each(Waker::wake);
        let letters = OUT.with_borrow_mut(|out| {
            out.is_open = false;
            std::mem::take(&mut out.letters)
        });
        letters.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroU16,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::Shards;

    /// Waits in a shard until it was woken twice.
    fn sleeper(shards: &Shards, tell: mpsc::UnboundedSender<(ShardId, Waker)>) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        shards.spawn(async move {
            let mut woken = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut woken, true) {
                    return Poll::Ready(());
                }
                tell.send((ShardId::here(), cx.waker().clone())).unwrap();
                Poll::Pending
            })
            .await;
            let _ = done.send(());
        });
        is_done
    }

    #[tokio::test]
    async fn tasks_of_every_shard_are_woken_from_every_shard_and_from_none() {
        let shards = Shards::start(NonZeroU16::new(3).unwrap()).unwrap();
        for _ in 0..4 {
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let sleeping: Vec<_> = (0..30).map(|_| sleeper(&shards, sender.clone())).collect();
            let mut wakers = Vec::new();
            for _ in 0..30 {
                wakers.push(receiver.recv().await.unwrap());
            }
            let woken = Arc::new(AtomicUsize::new(0));
            let (last, rest) = (wakers.split_off(25), wakers);
            let count = woken.clone();
            shards.spawn(async move {
                for (shard, waker) in rest {
                    wake_at(shard, waker);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            for (shard, waker) in last {
                wake_at(shard, waker);
            }
            for done in sleeping {
                tokio::time::timeout(Duration::from_secs(20), done).await.unwrap().unwrap();
            }
            assert_eq!(woken.load(Ordering::Relaxed), 25);
        }
    }

    #[tokio::test]
    async fn what_ends_with_its_shard_still_wakes_those_of_others() {
        struct Wakes(Option<(ShardId, Waker)>);
        impl Drop for Wakes {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(|(shard, waker)| wake_at(shard, waker));
            }
        }
        let (ending, staying) = (Shards::start(NonZeroU16::MIN).unwrap(), Shards::start(NonZeroU16::MIN).unwrap());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let sleeping: Vec<_> = (0..8).map(|_| sleeper(&staying, sender.clone())).collect();
        for _ in 0..8 {
            let wakes = Wakes(receiver.recv().await);
            ending.spawn(async move {
                let _wakes = wakes;
                std::future::pending::<()>().await;
            });
        }
        drop(ending);
        for done in sleeping {
            tokio::time::timeout(Duration::from_secs(20), done).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_wake_at_an_ended_shard_does_no_harm() {
        let (ending, staying) = (Shards::start(NonZeroU16::MIN).unwrap(), Shards::start(NonZeroU16::MIN).unwrap());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let done = sleeper(&ending, sender);
        let (shard, waker) = receiver.recv().await.unwrap();
        drop(ending);
        assert!(tokio::time::timeout(Duration::from_secs(20), done).await.unwrap().is_err());
        let (sent, is_sent) = oneshot::channel();
        staying.spawn(async move {
            wake_at(shard, waker);
            tokio::task::yield_now().await;
            let _ = sent.send(());
        });
        tokio::time::timeout(Duration::from_secs(20), is_sent).await.unwrap().unwrap();
    }
}
