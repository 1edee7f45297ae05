//! Request bodies: reading, and granting window to the client.

use bytes::Bytes;
use http::HeaderMap;

use crate::{
    code::ErrorCode,
    frame::kind,
    server::{Server, Signal, StreamId},
};

/// The next part of a request's body.
#[derive(Debug)]
pub enum Piece {
    /// Data.
    Data(Bytes),
    /// Trailers, which end the body.
    Trailers(HeaderMap),
    /// The end of the body.
    End,
    /// More bytes have to come first: [`Server::reader`] is signalled then.
    Missing,
    /// The stream was reset.
    Failed(ErrorCode),
}

impl<S: Signal> Server<S> {
    /// The signal of this stream's reader, called when more of the body has arrived.
    pub fn reader(&mut self, id: StreamId) -> Option<&mut S> {
        self.streams.get_mut(&id).map(|stream| &mut stream.upload.reader)
    }

    /// Takes the next part of the request's body.
    pub fn poll_body(&mut self, id: StreamId) -> Piece {
        let Some(stream) = self.streams.get_mut(&id) else { return Piece::Failed(ErrorCode::CANCEL) };
        if let Some(code) = stream.reset {
            return Piece::Failed(code);
        }
        let upload = &mut stream.upload;
        if let Some(piece) = upload.pop() {
            self.stream_was_taken(id, piece.len());
            self.was_taken(piece.len());
            return Piece::Data(piece);
        }
        if let Some(trailers) = upload.trailers.take() {
            return Piece::Trailers(trailers);
        }
        if upload.is_over {
            return Piece::End;
        }
        if std::mem::take(&mut upload.expects) && !stream.has_head {
            self.send_continue(id);
        }
        Piece::Missing
    }

    /// Whether the whole body was read.
    pub fn is_body_over(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.reset.is_none() && stream.upload.is_drained())
    }

    /// Bytes of the body still to come or to be read, if its length was declared.
    pub fn body_bytes_left(&self, id: StreamId) -> Option<u64> {
        let upload = &self.streams.get(&id)?.upload;
        Some(upload.left? + upload.waiting() as u64)
    }

    /// Releases the body; returns the number of received bytes that were not read.
    pub fn release_body(&mut self, id: StreamId) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        stream.upload.has_reader = false;
        let unread = stream.upload.clear();
        self.was_taken(unread);
        self.forget_unheld(id);
        unread
    }

    /// Records bytes read from a stream.
    pub(crate) fn stream_was_taken(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
        let upload = &mut stream.upload;
        // A window has at most 31 bits.
        upload.taken += bytes as u32;
        if should_grant(upload.taken, upload.window) && !upload.is_over {
            let more = std::mem::take(&mut upload.taken);
            upload.window += i64::from(more);
            self.control(kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes());
        }
    }

    /// Records bytes read from the connection.
    pub(crate) fn was_taken(&mut self, bytes: usize) {
        self.taken += bytes as u32;
        if should_grant(self.taken, self.window) {
            let more = std::mem::take(&mut self.taken);
            self.window += i64::from(more);
            self.control(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }
}

/// Whether to grant window now: if the amount is half of the remaining window, so that grants are rare while there is
/// room, and immediate when there is none.
fn should_grant(taken: u32, window: i64) -> bool {
    taken > 0 && i64::from(taken) * 2 >= window
}
