//! The body of a request over HTTP/1, as its connection reads it: a piece when the last one was taken.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use http_body::Frame;
use sallyport_http::codec::{BodyReader, Framing, Piece};
use tokio::io::AsyncRead;

use crate::{
    body::{
        h1::{Http1Body, Inbox, wait, wake_other},
        upload::BoxError,
    },
    http::{connection::MAX_LINGER_BYTES, guarded_io::GuardedIo},
};

/// How much room is made for what comes, in bytes: a record of TLS. More where a body is known to be long.
const READ_BYTES: usize = 16 * 1024;
const MAX_READ_BYTES: usize = 64 * 1024;
/// The longest rest of a body that nobody wants which is waited for, in bytes, so that the next request has the connection. A
/// client that has more to send is told that the connection closes, and may stop.
const MAX_AWAITED_REST_BYTES: u64 = 1024 * 1024;

/// A connection that ends takes what is left of the body along, and whoever takes that in another task hears of it.
impl Drop for Upload {
    fn drop(&mut self) {
        let state = &mut *self.inbox.lock();
        if !state.is_over() && !state.is_left {
            state.failed = Some("the client's connection ended".into());
            if let Some(taker) = state.taker.take() {
                taker.wake();
            }
        }
    }
}

/// What became of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// Something of it came.
    On,
    /// All of it has been read.
    Whole,
    /// The rest of it will not be: no request can follow.
    Given,
}

/// A request's body, for the connection that reads it.
pub(super) struct Upload {
    inbox: Arc<Inbox>,
    body: BodyReader,
    /// The client waits for `100 Continue`.
    is_awaited: bool,
    /// How much was read since nobody wanted it, in bytes.
    dropped: u64,
}

impl Upload {
    /// The body that follows, of which `read` may have the beginning.
    pub(super) fn new(framing: Framing, is_awaited: bool, read: &mut BytesMut) -> (Http1Body, Option<Self>) {
        let inbox = Arc::<Inbox>::default();
        let mut upload = Self { inbox: inbox.clone(), body: BodyReader::new(framing), is_awaited, dropped: 0 };
        if let Framing::Length(bytes) = framing {
            inbox.lock().left = Some(bytes);
        }
        let is_whole = !read.is_empty() && upload.give_piece(read) == Some(Moved::Whole);
        (Http1Body(inbox), (!is_whole).then_some(upload))
    }

    /// Whether the client waits to hear that its body is wanted, and it is. Asked once.
    pub(super) fn has_to_say_continue(&mut self, read: &BytesMut) -> bool {
        // A client that did not wait needs no word.
        self.is_awaited &= read.is_empty();
        let is_wanted = self.is_awaited && self.inbox.lock().is_wanted;
        self.is_awaited &= !is_wanted;
        is_wanted
    }

    /// The answer begins, and nothing is said before it any more. Whether the client still waits for a word.
    pub(super) fn is_answered(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    /// Reads on where that is wanted: ready when whoever takes the body has something new, or nobody does.
    pub(super) fn poll<S: AsyncRead + Unpin>(
        &mut self,
        io: &mut GuardedIo<S>,
        read: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<Moved> {
        loop {
            {
                let state = &mut *self.inbox.lock();
                if state.is_left {
                    break;
                }
                wait(&mut state.giver, cx);
                if state.frame.is_some() || !state.is_wanted {
                    return Poll::Pending;
                }
            }
            if let Some(moved) = self.give_piece(read) {
                wake_other(self.inbox.lock().taker.as_ref(), cx);
                return Poll::Ready(moved);
            }
            let failed: BoxError = match ready!(io.poll_passed(read, self.room(), cx)) {
                Ok(true) => continue,
                Ok(false) => "the client ended its request before its end".into(),
                Err(error) => error.into(),
            };
            let state = &mut *self.inbox.lock();
            state.failed = Some(failed);
            wake_other(state.taker.as_ref(), cx);
            return Poll::Ready(Moved::Given);
        }
        self.poll_unwanted(io, read, cx)
    }

    /// Whether nobody takes it any more.
    pub(super) fn is_unwanted(&self) -> bool {
        self.inbox.lock().is_left
    }

    /// Whether its end is worth waiting for, should nobody take the rest: that is short, or may be.
    pub(super) fn has_short_rest(&self) -> bool {
        self.body.bytes_left().is_none_or(|left| left <= MAX_AWAITED_REST_BYTES)
    }

    /// How much is read at once.
    fn room(&self) -> usize {
        let left = self.body.bytes_left().map_or(READ_BYTES, |left| usize::try_from(left).unwrap_or(usize::MAX));
        left.clamp(READ_BYTES, MAX_READ_BYTES)
    }

    /// Gives out the next piece of what was read; none when more has to come first.
    fn give_piece(&mut self, read: &mut BytesMut) -> Option<Moved> {
        let piece = self.body.next(read);
        let state = &mut *self.inbox.lock();
        match piece {
            Ok(Piece::Missing) => return None,
            Ok(Piece::Data(data)) => {
                (state.frame, state.is_wanted) = (Some(Frame::data(data)), false);
                state.is_whole = self.body.is_over();
            }
            Ok(Piece::Trailers(trailers)) => (state.frame, state.is_whole) = (Some(Frame::trailers(trailers)), true),
            Ok(Piece::End) => state.is_whole = true,
            // The guard passes nothing that this is said of.
            Err(error) => {
                state.failed = Some(error.into());
                return Some(Moved::Given);
            }
        }
        Some(if state.is_whole { Moved::Whole } else { Moved::On })
    }

    /// Reads of a body that nobody wants, within a bound: ready when something of it came, or nothing more will.
    fn poll_unwanted<S: AsyncRead + Unpin>(
        &mut self,
        io: &mut GuardedIo<S>,
        read: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<Moved> {
        loop {
            match self.body.next(read) {
                Ok(Piece::Data(data)) => self.dropped += data.len() as u64,
                Ok(Piece::Trailers(_) | Piece::End) => return Poll::Ready(Moved::Whole),
                Ok(Piece::Missing) => {
                    let Ok(true) = ready!(io.poll_passed(read, READ_BYTES, cx)) else {
                        return Poll::Ready(Moved::Given);
                    };
                    // A client that did not wait needs no word.
                    self.is_awaited = false;
                    continue;
                }
                Err(_) => return Poll::Ready(Moved::Given),
            }
            return Poll::Ready(match self.body.is_over() {
                true => Moved::Whole,
                false if self.dropped > MAX_LINGER_BYTES => Moved::Given,
                false => Moved::On,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::{pin::Pin, task::Waker};

    use bytes::Bytes;
    use http_body::Body;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(body: &mut Http1Body, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
    }

    #[test]
    fn what_came_with_the_head_is_there_at_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = BytesMut::from("helloGET");
        let (mut body, rest) = Upload::new(Framing::Length(5), false, &mut read);
        assert!(rest.is_none() && read == "GET");
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (false, Some(5)));
        assert!(matches!(take(&mut body, &mut cx), Poll::Ready(Some(Ok(data))) if data == "hello"));
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
        assert!(matches!(take(&mut body, &mut cx), Poll::Ready(None)));
    }

    #[test]
    fn whoever_takes_a_body_hears_that_its_connection_has_ended() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        for came in ["", "part"] {
            let (mut body, rest) = Upload::new(Framing::Length(9), false, &mut BytesMut::from(came));
            if !came.is_empty() {
                assert!(matches!(take(&mut body, &mut cx), Poll::Ready(Some(Ok(data))) if data == came));
            }
            assert!(take(&mut body, &mut cx).is_pending());
            let before = woken.0.load(Ordering::Relaxed);
            drop(rest);
            assert_eq!(woken.0.load(Ordering::Relaxed), before + 1);
            assert!(matches!(take(&mut body, &mut cx), Poll::Ready(Some(Err(_)))));
            assert!(matches!(take(&mut body, &mut cx), Poll::Ready(None)));
        }
    }
}
