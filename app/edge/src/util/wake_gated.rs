//! A future that is polled only after it was woken.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;

/// Polls its inner future only after that future has called its waker.
///
/// A task with several sources of work is polled for each of them, and every poll of an idle channel costs hundreds of
/// instructions.
pub(crate) struct WakeGated<T> {
    inner: Pin<Box<dyn Future<Output = T> + Send + Sync>>,
    call: Arc<Call>,
    /// The waker of the inner future.
    waker: Waker,
    /// The waker of the task, which `call` has too.
    task: Option<Waker>,
}

struct Call {
    has_called: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_called.store(true, Ordering::Release);
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<T> WakeGated<T> {
    /// Gates this future.
    pub(crate) fn new(inner: impl Future<Output = T> + Send + Sync + 'static) -> Self {
        let call = Arc::new(Call { has_called: AtomicBool::new(true), task: Mutex::new(None) });
        Self { inner: Box::pin(inner), waker: call.clone().into(), call, task: None }
    }
}

impl<T> Future for WakeGated<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if !this.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            this.task = Some(cx.waker().clone());
            *this.call.task.lock() = this.task.clone();
        }
        // A call after this point wakes the task, because its waker is stored by now.
        if !this.call.has_called.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        this.inner.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::atomic::AtomicUsize};

    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn it_is_looked_at_once_and_then_when_it_has_called() {
        let (sender, mut receiver) = watch::channel(0);
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let mut changed =
            Box::pin(async move { receiver.wait_for(|value| *value == 2).await.map(|value| *value).ok() });
        let mut rarely = WakeGated::new(poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            changed.as_mut().poll(cx)
        }));
        for _ in 0..100 {
            assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut rarely).poll(cx))).await.is_pending());
        }
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        sender.send_replace(1);
        assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut rarely).poll(cx))).await.is_pending());
        assert_eq!(looks.load(Ordering::Relaxed), 2);
        sender.send_replace(2);
        assert_eq!(rarely.await, Some(2));
    }

    #[tokio::test]
    async fn a_call_reaches_the_task_that_it_has_moved_to() {
        let (sender, mut receiver) = watch::channel(false);
        let mut rarely = WakeGated::new(async move { receiver.wait_for(|value| *value).await.map(|_| ()).ok() });
        assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut rarely).poll(cx))).await.is_pending());
        let task = tokio::spawn(rarely);
        tokio::task::yield_now().await;
        sender.send_replace(true);
        assert_eq!(task.await.unwrap(), Some(()));
    }
}
