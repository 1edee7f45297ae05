//! The legs of one session: their number, and the signal that ends all of them with the session.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use parking_lot::Mutex;

/// The direction in which a task waits on a leg.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    Read = 0,
    Write = 1,
}

/// The end of the session as one leg sees it: a flag, and the wakers of tasks that wait on the leg.
#[derive(Default)]
pub(crate) struct LegLife {
    over: AtomicBool,
    wakers: Mutex<[Option<Waker>; 2]>,
}

impl LegLife {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Registers the task to be woken when the session ends. True: the session has ended already.
    pub(crate) fn wake_at_end(&self, waiting: Waiting, cx: &Context<'_>) -> bool {
        {
            let mut wakers = self.wakers.lock();
            let slot = &mut wakers[waiting as usize];
            if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *slot = Some(cx.waker().clone());
            }
        }
        self.is_over()
    }

    /// A waker of this task and the writing task; `None` if both are the same or no task writes.
    pub(crate) fn with_writer(&self, cx: &Context<'_>) -> Option<Waker> {
        let wakers = self.wakers.lock();
        let writer = wakers[Waiting::Write as usize].as_ref()?;
        (!writer.will_wake(cx.waker())).then(|| Waker::from(Arc::new(WakerPair([writer.clone(), cx.waker().clone()]))))
    }

    /// Wakes the task that waits to write, if there is one.
    pub(crate) fn wake_writer(&self) {
        let waker = self.wakers.lock()[Waiting::Write as usize].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Drops the wakers of the stream that has left the leg.
    pub(crate) fn forget_tasks(&self) {
        *self.wakers.lock() = [None, None];
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }
}

/// Wakes two tasks.
struct WakerPair([Waker; 2]);

impl Wake for WakerPair {
    fn wake(self: Arc<Self>) {
        for waker in &self.0 {
            waker.wake_by_ref();
        }
    }
}

/// Every leg of a session, idle or busy.
#[derive(Default)]
pub(crate) struct LegRegistry {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    lives: HashMap<u64, Arc<LegLife>>,
    /// Values that live as long as their leg; at most one entry for each leg.
    kept: HashMap<u64, Box<dyn Send>>,
    next: u64,
    over: bool,
}

impl LegRegistry {
    /// Registers one more leg; `None` if there are `max_legs` already or the session is over.
    pub(crate) fn admit(self: &Arc<Self>, max_legs: usize) -> Option<LegTicket> {
        let mut inner = self.inner.lock();
        if inner.over || inner.lives.len() >= max_legs {
            return None;
        }
        let number = inner.next;
        inner.next += 1;
        let life = Arc::new(LegLife::default());
        inner.lives.insert(number, life.clone());
        Some(LegTicket { registry: self.clone(), number, life })
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().lives.len()
    }

    /// Whether the session is over: no leg joins, and none is reused.
    pub(crate) fn is_over(&self) -> bool {
        self.inner.lock().over
    }

    /// Marks the session as over; legs that carry a stream may finish it.
    pub(crate) fn retire(&self) {
        self.inner.lock().over = true;
    }

    /// Ends every leg: waiting tasks are woken and close their legs.
    pub(crate) fn end_all(&self) {
        let lives: Vec<_> = {
            let mut inner = self.inner.lock();
            inner.over = true;
            inner.lives.values().cloned().collect()
        };
        for life in lives {
            life.end();
        }
    }
}

/// Registration of a leg in its session, removed when dropped.
pub(crate) struct LegTicket {
    registry: Arc<LegRegistry>,
    number: u64,
    pub(crate) life: Arc<LegLife>,
}

impl LegTicket {
    /// Keeps the value until the leg is dropped.
    pub(crate) fn keep(&self, kept: impl Send + 'static) {
        let kept: Box<dyn Send> = Box::new(kept);
        self.registry.inner.lock().kept.insert(self.number, kept);
    }
}

impl Drop for LegTicket {
    fn drop(&mut self) {
        let mut inner = self.registry.inner.lock();
        inner.lives.remove(&self.number);
        let kept = inner.kept.remove(&self.number);
        drop(inner);
        drop(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_given_back_and_end_with_the_session() {
        let registry = Arc::new(LegRegistry::default());
        let first = registry.admit(1).expect("room for one");
        assert!(registry.admit(1).is_none());
        drop(first);
        let second = registry.admit(1).expect("the registration was removed");
        registry.end_all();
        assert!(second.life.is_over());
        assert!(registry.admit(10).is_none(), "no leg joins a session that is over");
        drop(second);
        assert_eq!(registry.len(), 0);
    }
}
