//! What a connection and the tasks of its streams share.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

use sallyport_http2::{Server, Signal};

use super::CONFIG;

/// A task that may be waiting.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waker: Option<Waker>,
    is_waiting: bool,
}

impl Waiting {
    /// The task waits from now on.
    pub(crate) fn wait(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
        self.is_waiting = true;
    }
}

impl Signal for Waiting {
    fn signal(&mut self) {
        if std::mem::take(&mut self.is_waiting)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

/// A connection's server, and who writes what it says.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<State>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) server: Server<Waiting>,
    pub(crate) connection: Waiting,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { server: Server::new(CONFIG), connection: Waiting::default() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the server, and has the connection write what that made it say.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Server<Waiting>) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state.server);
        if !state.server.output().is_empty() || state.server.is_over() {
            state.connection.signal();
        }
        result
    }
}
