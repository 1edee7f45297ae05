//! The body of an HTTP/1 request, on the side of its connection: a piece is read when the last one was consumed.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use http_body::Frame;
use sallyport_http1::{Framing, Piece, server::Server};
use tokio::io::AsyncRead;

use crate::{
    body::{
        h1::{Http1Body, Inbox, store_waker, wake_other},
        upload::BoxError,
    },
    http::{connection::MAX_LINGER_BYTES, wire_state::WireState},
};

use super::io::ServerIo;

/// How many bytes of a body are read at once: one TLS record, or more of a long body.
const READ_BYTES: usize = 16 * 1024;
const MAX_READ_BYTES: usize = 64 * 1024;

/// Gives the consumer an error, because the rest of the body is lost with its connection.
impl Drop for Upload {
    fn drop(&mut self) {
        let state = &mut *self.inbox.lock();
        if !state.is_over() && !state.is_dropped {
            state.error = Some("the client's connection ended".into());
            if let Some(consumer_waker) = state.consumer_waker.take() {
                consumer_waker.wake();
            }
        }
    }
}

/// What a poll of a body did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// A part of the body was read.
    Part,
    /// The whole body was read.
    Complete,
    /// The rest of the body will not be read, so no request can follow.
    Abandoned,
}

/// A request body, on the side of the connection that reads it.
pub(super) struct Upload {
    inbox: Arc<Inbox>,
    /// How many bytes were discarded since the consumer dropped the body.
    dropped: u64,
}

impl Upload {
    /// The body of the request that began. Its first bytes may be in the server.
    pub(super) fn new<S>(framing: Framing, io: &mut ServerIo<S>) -> (Http1Body, Option<Self>) {
        let inbox = Arc::<Inbox>::default();
        if let Framing::Length(bytes) = framing {
            inbox.lock().bytes_left = Some(bytes);
        }
        let upload = Self { inbox: inbox.clone(), dropped: 0 };
        let (server, wire) = io.server_and_state();
        let progress = if server.unread_bytes() > 0 { upload.give_piece(server, wire) } else { None };
        let is_over = matches!(progress, Some(Progress::Complete | Progress::Abandoned));
        (Http1Body(inbox), (!is_over).then_some(upload))
    }

    /// Whether the consumer waits for a frame.
    pub(super) fn is_wanted(&self) -> bool {
        self.inbox.lock().is_wanted
    }

    /// Reads while the consumer waits. Ready when the consumer can proceed.
    pub(super) fn poll<S: AsyncRead + Unpin>(&mut self, io: &mut ServerIo<S>, cx: &mut Context<'_>) -> Poll<Progress> {
        loop {
            {
                let state = &mut *self.inbox.lock();
                if state.is_dropped {
                    break;
                }
                store_waker(&mut state.reader_waker, cx);
                if state.frame.is_some() || !state.is_wanted {
                    return Poll::Pending;
                }
            }
            let (server, wire) = io.server_and_state();
            if let Some(progress) = self.give_piece(server, wire) {
                wake_other(self.inbox.lock().consumer_waker.as_ref(), cx);
                return Poll::Ready(progress);
            }
            let room = read_room(server);
            let failed: BoxError = match ready!(io.poll_read(room, cx)) {
                Ok(true) => continue,
                Ok(false) => "the client closed the connection within its request".into(),
                Err(error) => error.into(),
            };
            let state = &mut *self.inbox.lock();
            state.error = Some(failed);
            wake_other(state.consumer_waker.as_ref(), cx);
            return Poll::Ready(Progress::Abandoned);
        }
        self.poll_unwanted(io, cx)
    }

    /// Whether the consumer has dropped the body.
    pub(super) fn is_unwanted(&self) -> bool {
        self.inbox.lock().is_dropped
    }

    /// Puts the next piece of the read bytes into the inbox; `None` if more bytes are needed.
    fn give_piece(&self, server: &mut Server, wire: &WireState) -> Option<Progress> {
        let piece = server.poll_body();
        if let Err(refusal) = &piece {
            // Set before the body fails, so that the error page names the refusal.
            wire.set_refused(*refusal);
        }
        let state = &mut *self.inbox.lock();
        match piece {
            Ok(Piece::Missing) => return None,
            Ok(Piece::Data(data)) => {
                (state.frame, state.is_wanted) = (Some(Frame::data(data)), false);
                state.is_complete = server.is_body_over();
            }
            Ok(Piece::Trailers(trailers)) => (state.frame, state.is_complete) = (Some(Frame::trailers(trailers)), true),
            Ok(Piece::End) => state.is_complete = true,
            Err(refusal) => {
                state.error = Some(refusal.into());
                return Some(Progress::Abandoned);
            }
        }
        Some(if state.is_complete { Progress::Complete } else { Progress::Part })
    }

    /// Discards a body without a consumer, within a bound. Ready when a part was read, or no more will be.
    fn poll_unwanted<S: AsyncRead + Unpin>(&mut self, io: &mut ServerIo<S>, cx: &mut Context<'_>) -> Poll<Progress> {
        loop {
            let (server, wire) = io.server_and_state();
            match server.poll_body() {
                Ok(Piece::Data(data)) => self.dropped += data.len() as u64,
                Ok(Piece::Trailers(_) | Piece::End) => return Poll::Ready(Progress::Complete),
                Ok(Piece::Missing) => {
                    let Ok(true) = ready!(io.poll_read(READ_BYTES, cx)) else {
                        return Poll::Ready(Progress::Abandoned);
                    };
                    continue;
                }
                Err(refusal) => {
                    wire.set_refused(refusal);
                    return Poll::Ready(Progress::Abandoned);
                }
            }
            return Poll::Ready(match server.is_body_over() {
                true => Progress::Complete,
                false if self.dropped > MAX_LINGER_BYTES => Progress::Abandoned,
                false => Progress::Part,
            });
        }
    }
}

/// How many bytes are read at once.
fn read_room(server: &Server) -> usize {
    let left = server.body_bytes_left().map_or(READ_BYTES, |left| usize::try_from(left).unwrap_or(usize::MAX));
    left.clamp(READ_BYTES, MAX_READ_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::{pin::Pin, task::Waker};

    use bytes::Bytes;
    use http_body::Body;

    use super::*;
    use crate::http::h1::io::tests::connected;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl std::task::Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(body: &mut Http1Body, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
    }

    /// A connection that has read the head and the first bytes of a body.
    fn begun(length: u64, received: &str) -> ServerIo<tokio::io::DuplexStream> {
        let (_, mut io) = connected();
        io.server.handle_input(
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{received}").as_bytes(),
        );
        assert!(io.server.poll_request().unwrap().is_ok());
        io
    }

    #[tokio::test]
    async fn bytes_behind_the_head_are_available_at_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut io = begun(5, "helloGET");
        let (mut body, rest) = Upload::new(Framing::Length(5), &mut io);
        assert!(rest.is_none());
        assert_eq!(io.server.unread_bytes(), 3);
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (false, Some(5)));
        assert!(matches!(take(&mut body, &mut cx), Poll::Ready(Some(Ok(data))) if data == "hello"));
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
        assert!(matches!(take(&mut body, &mut cx), Poll::Ready(None)));
    }

    #[tokio::test]
    async fn the_consumer_gets_an_error_when_the_connection_ends() {
        let wakes = Arc::new(WakeCount::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        for received in ["", "part"] {
            let (mut body, rest) = Upload::new(Framing::Length(9), &mut begun(9, received));
            if !received.is_empty() {
                assert!(matches!(take(&mut body, &mut cx), Poll::Ready(Some(Ok(data))) if data == received));
            }
            assert!(take(&mut body, &mut cx).is_pending());
            let before = wakes.0.load(Ordering::Relaxed);
            drop(rest);
            assert_eq!(wakes.0.load(Ordering::Relaxed), before + 1);
            assert!(matches!(take(&mut body, &mut cx), Poll::Ready(Some(Err(_)))));
            assert!(matches!(take(&mut body, &mut cx), Poll::Ready(None)));
        }
    }
}
