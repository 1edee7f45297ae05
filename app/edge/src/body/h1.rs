//! The body of an HTTP/1 request: an inbox that the connection fills and the request path empties.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};

use super::upload::BoxError;

/// The inbox of one body, shared by the connection, which reads the body, and its consumer.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The frame that was read and not yet consumed.
    pub(crate) frame: Option<Frame<Bytes>>,
    /// Whether the body has ended behind `frame`.
    pub(crate) is_complete: bool,
    /// Why the body ended early.
    pub(crate) error: Option<BoxError>,
    /// How many bytes are not yet consumed; `None` for a chunked body.
    pub(crate) bytes_left: Option<u64>,
    /// Whether the consumer waits for a frame.
    pub(crate) is_wanted: bool,
    /// Whether the consumer has dropped the body.
    pub(crate) is_dropped: bool,
    /// The waker of the task that consumes the body.
    pub(crate) consumer_waker: Option<Waker>,
    /// The waker of the connection's task.
    pub(crate) reader_waker: Option<Waker>,
}

impl State {
    /// Whether no further frame is put into the inbox.
    pub(crate) fn is_over(&self) -> bool {
        self.is_complete || self.error.is_some()
    }
}

impl Inbox {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Wakes the task behind `slot`, unless that task is the caller.
pub(crate) fn wake_other(slot: Option<&Waker>, cx: &Context<'_>) {
    if let Some(waker) = slot.filter(|waker| !waker.will_wake(cx.waker())) {
        waker.wake_by_ref();
    }
}

/// Stores the waker of the caller's task in `slot`.
pub(crate) fn store_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

/// The body of an HTTP/1 request, as its consumer sees it.
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
        // The connection's task reads the inbox after each poll of the request, and needs no wake.
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
