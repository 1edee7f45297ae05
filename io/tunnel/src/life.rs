//! The legs of one session: how many there are, and the signal that ends them all with it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use parking_lot::Mutex;

/// Which direction of a leg waits.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    Read = 0,
    Write = 1,
}

/// The end of the session as one leg sees it: a flag to look at, and a wake-up for who waits on the leg.
#[derive(Default)]
pub(crate) struct LegLife {
    over: AtomicBool,
    wakers: Mutex<[Option<Waker>; 2]>,
}

impl LegLife {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Has the task woken when the session ends. True: it is over already.
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

    /// Wakes this task as well as the one that waits to write; none when they are the same or nobody waits.
    pub(crate) fn with_writer(&self, cx: &Context<'_>) -> Option<Waker> {
        let wakers = self.wakers.lock();
        let writer = wakers[Waiting::Write as usize].as_ref()?;
        (!writer.will_wake(cx.waker())).then(|| Waker::from(Arc::new(WakerPair([writer.clone(), cx.waker().clone()]))))
    }

    /// Wakes the task that waits to write, when there is one.
    pub(crate) fn wake_writer(&self) {
        let waker = self.wakers.lock()[Waiting::Write as usize].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Forgets the tasks of the stream that is done with the leg.
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

/// Two tasks that wait for the same.
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
    /// What is to live as long as a leg; at most one entry for each.
    kept: HashMap<u64, Box<dyn Send>>,
    next: u64,
    over: bool,
}

impl LegRegistry {
    /// A place for one more leg; none when there are `max_legs` already or the session is over.
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

    /// Whether the session is over: no leg joins it, and none is used again.
    pub(crate) fn is_over(&self) -> bool {
        self.inner.lock().over
    }

    /// The session is over; legs that carry a stream may finish it.
    pub(crate) fn retire(&self) {
        self.inner.lock().over = true;
    }

    /// Ends every leg: those that wait are woken and close.
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

/// A leg's place in its session, given back when dropped.
pub(crate) struct LegTicket {
    registry: Arc<LegRegistry>,
    number: u64,
    pub(crate) life: Arc<LegLife>,
}

impl LegTicket {
    /// Keeps this until the leg is gone.
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
        let second = registry.admit(1).expect("the place was given back");
        registry.end_all();
        assert!(second.life.is_over());
        assert!(registry.admit(10).is_none(), "no leg joins a session that is over");
        drop(second);
        assert_eq!(registry.len(), 0);
    }
}
