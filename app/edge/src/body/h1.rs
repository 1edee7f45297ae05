//! The body of a request that came over HTTP/1: where its connection puts it, and where it is taken from.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};

use super::upload::BoxError;

/// What a connection and whoever takes the body have in common.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// What came and was not taken yet.
    pub(crate) frame: Option<Frame<Bytes>>,
    /// Nothing follows it.
    pub(crate) is_complete: bool,
    /// Nothing follows it, and something should.
    pub(crate) error: Option<BoxError>,
    /// How much was not taken yet, where that is known.
    pub(crate) bytes_left: Option<u64>,
    /// Whoever takes the body waits for more of it.
    pub(crate) is_wanted: bool,
    /// Nobody takes it any more.
    pub(crate) is_dropped: bool,
    /// The task that takes the body.
    pub(crate) consumer_waker: Option<Waker>,
    /// The task of the connection.
    pub(crate) reader_waker: Option<Waker>,
}

impl State {
    /// Whether nothing is put in any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_complete || self.error.is_some()
    }
}

impl Inbox {
    /// The state, for as long as the guard lives.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Wakes whoever waits, unless it is the caller.
pub(crate) fn wake_other(slot: Option<&Waker>, cx: &Context<'_>) {
    if let Some(waker) = slot.filter(|waker| !waker.will_wake(cx.waker())) {
        waker.wake_by_ref();
    }
}

/// Has this task woken when something changes.
pub(crate) fn store_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

/// A request's body, for whoever takes it.
#[derive(Debug)]
pub(crate) struct Http1Body(pub(crate) Arc<Inbox>);

impl Body for Http1Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let state = &mut *self.0.lock();
        if let Some(frame) = state.frame.take() {
            if let (Some(left), Some(data)) = (&mut state.bytes_left, frame.data_ref()) {
                *left = left.saturating_sub(data.len() as u64);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = state.error.take() {
            state.is_complete = true;
            return Poll::Ready(Some(Err(error)));
        }
        if state.is_complete {
            return Poll::Ready(None);
        }
        state.is_wanted = true;
        store_waker(&mut state.consumer_waker, cx);
        // A connection that polls this itself looks by itself.
        wake_other(state.reader_waker.as_ref(), cx);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock();
        state.is_complete && state.frame.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().bytes_left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        let state = &mut *self.0.lock();
        state.is_dropped = true;
        state.frame = None;
        if let Some(reader_waker) = state.reader_waker.take().filter(|_| !state.is_over()) {
            reader_waker.wake();
        }
    }
}
