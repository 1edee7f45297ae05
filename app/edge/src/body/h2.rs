//! The body of an HTTP/2 request, and the server of its connection, which the tasks of all streams share.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use sallyport_http2::{Config, ErrorCode, Piece, Server, Signal, StreamId};

use super::{upload::BoxError, upload_meter::UploadMeter};

/// The waker of a task, with a flag for a waiting task.
#[derive(Debug, Default)]
pub(crate) struct TaskWaker {
    waker: Option<Waker>,
    is_waiting: bool,
}

impl TaskWaker {
    /// Marks the task as waiting.
    pub(crate) fn wait(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
        self.is_waiting = true;
    }
}

impl Signal for TaskWaker {
    fn signal(&mut self) {
        if std::mem::take(&mut self.is_waiting)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

/// The HTTP/2 server of one connection, with the waker of the task that writes its output.
#[derive(Debug)]
pub(crate) struct Http2Server(Mutex<Http2State>);

#[derive(Debug)]
pub(crate) struct Http2State {
    pub(crate) server: Server<TaskWaker>,
    pub(crate) connection: TaskWaker,
}

impl Http2Server {
    /// A new server with these bounds.
    pub(crate) fn new(config: Config) -> Self {
        Self(Mutex::new(Http2State { server: Server::new(config), connection: TaskWaker::default() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Http2State> {
        self.0.lock()
    }

    /// Calls `act` on the server, and wakes the connection if there is output to write.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Server<TaskWaker>) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state.server);
        if !state.server.output().is_empty() || state.server.is_over() {
            state.connection.signal();
        }
        result
    }
}

/// The body of an HTTP/2 request. Once dropped, the server discards the rest of the body.
#[derive(Debug)]
pub(crate) struct Http2Body {
    shared: Arc<Http2Server>,
    stream: StreamId,
    /// Counts the bytes in memory, of this body and of others.
    meter: Option<Arc<UploadMeter>>,
    has_failed: bool,
}

impl Http2Body {
    pub(crate) fn new(shared: Arc<Http2Server>, stream: StreamId, meter: Option<Arc<UploadMeter>>) -> Self {
        Self { shared, stream, meter, has_failed: false }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let stream = self.stream;
        let read = self.shared.with(|server| {
            let read = server.poll_body(stream);
            if let (Piece::Missing, Some(reader)) = (&read, server.reader(stream)) {
                reader.wait(cx);
            }
            read
        });
        Poll::Ready(match read {
            Piece::Data(data) => Some(Ok(Frame::data(data))),
            Piece::Trailers(fields) => Some(Ok(Frame::trailers(fields))),
            Piece::End => None,
            Piece::Missing => return Poll::Pending,
            Piece::Failed(code) => {
                self.has_failed = true;
                Some(Err(stream_error(code)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_failed || self.shared.lock().server.is_body_over(self.stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.lock().server.body_bytes_left(self.stream).map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        let unread = self.shared.with(|server| server.release_body(self.stream));
        if let Some(meter) = &self.meter {
            meter.record_taken(unread);
        }
    }
}

fn stream_error(code: ErrorCode) -> BoxError {
    format!("the client's stream broke off: {code}").into()
}
