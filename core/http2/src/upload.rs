//! The bodies of requests: what came is taken, and the client told how much more it may send.

use bytes::Bytes;
use http::HeaderMap;

use crate::{
    code::ErrorCode,
    frame::kind,
    server::{Server, Signal, StreamId},
};

/// What is next of a request's body.
#[derive(Debug)]
pub enum Read {
    /// A piece of it.
    Data(Bytes),
    /// What follows it; then it is over.
    Trailers(HeaderMap),
    /// It is over.
    End,
    /// Nothing before [`Server::reader`] is signalled.
    Later,
    /// It broke off.
    Failed(ErrorCode),
}

impl<S: Signal> Server<S> {
    /// Who takes the body of this stream's request, to be signalled when more of it has come.
    pub fn reader(&mut self, id: StreamId) -> Option<&mut S> {
        self.streams.get_mut(&id).map(|stream| &mut stream.upload.reader)
    }

    /// Takes what is next of the request's body.
    pub fn read(&mut self, id: StreamId) -> Read {
        let Some(stream) = self.streams.get_mut(&id) else { return Read::Failed(ErrorCode::CANCEL) };
        if let Some(code) = stream.reset {
            return Read::Failed(code);
        }
        let upload = &mut stream.upload;
        if let Some(piece) = upload.pop() {
            self.stream_was_taken(id, piece.len());
            self.was_taken(piece.len());
            return Read::Data(piece);
        }
        if let Some(trailers) = upload.trailers.take() {
            return Read::Trailers(trailers);
        }
        if upload.is_over {
            return Read::End;
        }
        if std::mem::take(&mut upload.expects) && !stream.has_head {
            self.send_continue(id);
        }
        Read::Later
    }

    /// Whether all of the request's body was taken.
    pub fn is_read(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.reset.is_none() && stream.upload.is_drained())
    }

    /// How much of the body is still to come or to be taken, where its head said how long it is, in bytes.
    pub fn unread_bytes(&self, id: StreamId) -> Option<u64> {
        let upload = &self.streams.get(&id)?.upload;
        Some(upload.left? + upload.waiting() as u64)
    }

    /// Nobody takes the body any more; how many bytes of it had come and were not taken.
    pub fn leave_upload(&mut self, id: StreamId) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        stream.upload.has_reader = false;
        let unread = stream.upload.clear();
        self.was_taken(unread);
        self.forget_unheld(id);
        unread
    }

    /// So much of a stream was taken.
    pub(crate) fn stream_was_taken(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
        let upload = &mut stream.upload;
        // What a window lets in fits in 31 bits.
        upload.taken += bytes as u32;
        if is_worth_telling(upload.taken, upload.window) && !upload.is_over {
            let more = std::mem::take(&mut upload.taken);
            upload.window += i64::from(more);
            self.control(kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes());
        }
    }

    /// So much of the connection was taken.
    pub(crate) fn was_taken(&mut self, bytes: usize) {
        self.taken += bytes as u32;
        if is_worth_telling(self.taken, self.window) {
            let more = std::mem::take(&mut self.taken);
            self.window += i64::from(more);
            self.control(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }
}

/// Whether the client is told that so much was taken: when that is half of what it may send without, so that it is told
/// seldom while it has room, and at once when it has none, whatever others hold of the window.
fn is_worth_telling(taken: u32, window: i64) -> bool {
    taken > 0 && i64::from(taken) * 2 >= window
}
