//! A message's body, taken out of the bytes that came.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::chunked::{ChunkError, ChunkedDecoder, Rules};

/// How a body ends (RFC 9112 section 6.3). That of a request never ends with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes.
    Length(u64),
    /// After the last chunk and the trailers.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// The next part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Data, in the memory that it was read into.
    Data(Bytes),
    /// The fields behind the body. Nothing follows.
    Trailers(HeaderMap),
    /// The body is over.
    End,
    /// More bytes have to come first.
    Missing,
}

/// Takes one body out of the bytes of its connection.
#[derive(Debug)]
pub struct BodyDecoder(State);

#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl BodyDecoder {
    /// A decoder for a request's body, by strict rules: a second reading of the bytes must be impossible.
    pub(crate) fn of_request(framing: Framing) -> Self {
        Self::new(framing, Rules::Strict)
    }

    /// A decoder for a response's body. Origins pad the sizes of chunks, and leave extensions empty.
    #[must_use]
    pub fn of_response(framing: Framing) -> Self {
        Self::new(framing, Rules::Lenient)
    }

    fn new(framing: Framing, rules: Rules) -> Self {
        Self(match framing {
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::Chunked(ChunkedDecoder::new(rules)),
            Framing::UntilClose => State::UntilClose,
        })
    }

    /// Takes the next piece out of `buf`. What is left in `buf` behind [`Piece::End`] is not of this message.
    ///
    /// # Errors
    /// The body is malformed: `buf` begins at the wrong byte, and nothing more can be read from the connection.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Piece, ChunkError> {
        match &mut self.0 {
            State::Length(0) => Ok(Piece::End),
            State::Length(_) | State::UntilClose if buf.is_empty() => Ok(Piece::Missing),
            State::Length(left) => {
                let taken = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
                *left -= taken as u64;
                Ok(Piece::Data(buf.split_to(taken).freeze()))
            }
            State::Chunked(chunks) => chunks.next(buf),
            State::UntilClose => Ok(Piece::Data(buf.split().freeze())),
        }
    }

    /// Records that the connection ended, and returns whether the body is whole. The caller has taken all that came.
    pub fn set_connection_ended(&mut self) -> bool {
        if matches!(self.0, State::UntilClose) {
            self.0 = State::Length(0);
        }
        self.is_over()
    }

    /// Whether nothing follows. Where trailers may follow, this is known only when they have come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.0 {
            State::Length(left) => *left == 0,
            State::Chunked(chunks) => chunks.is_over(),
            State::UntilClose => false,
        }
    }

    /// How many bytes are left, where the framing says so.
    #[must_use]
    pub fn bytes_left(&self) -> Option<u64> {
        match &self.0 {
            State::Length(left) => Some(*left),
            State::Chunked(_) | State::UntilClose => None,
        }
    }
}
