//! A body, taken out of what came.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::{AnswerError, chunked::Chunks};

/// How a body ends. That of a request never ends with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With a chunk of no bytes.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What was taken out of what came.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part of the body, as it lay there.
    Data(Bytes),
    /// The fields behind the body. Nothing follows.
    Trailers(HeaderMap),
    /// The body is over.
    End,
    /// More has to come first.
    Missing,
}

/// How far a body was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyReader(State);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

impl BodyReader {
    /// A body that nothing was read of.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::Chunked(Chunks::default()),
            Framing::UntilClose => State::UntilClose,
        })
    }

    /// Takes the next piece out of what came. What is left in `buf` behind [`Piece::End`] is not of this message.
    ///
    /// # Errors
    /// The body is malformed: nothing more is to be read from the connection.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Piece, AnswerError> {
        match &mut self.0 {
            State::Length(0) => Ok(Piece::End),
            _ if buf.is_empty() => Ok(if self.is_over() { Piece::End } else { Piece::Missing }),
            State::Length(left) => {
                let taken = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
                *left -= taken as u64;
                Ok(Piece::Data(buf.split_to(taken).freeze()))
            }
            State::Chunked(chunks) => chunks.next(buf),
            State::UntilClose => Ok(Piece::Data(buf.split().freeze())),
        }
    }

    /// The connection ended, and all that came was taken.
    ///
    /// # Errors
    /// The body was to go on.
    pub fn connection_ended(&mut self) -> Result<(), AnswerError> {
        if self.0 == State::UntilClose {
            self.0 = State::Length(0);
        }
        if self.is_over() { Ok(()) } else { Err(AnswerError::BrokenOff) }
    }

    /// Whether nothing follows. Where trailers may, this is only known when they have come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.0 {
            State::Length(left) => *left == 0,
            State::Chunked(chunks) => chunks.is_over(),
            State::UntilClose => false,
        }
    }

    /// How much is left, where that is known.
    #[must_use]
    pub fn bytes_left(&self) -> Option<u64> {
        match &self.0 {
            State::Length(left) => Some(*left),
            State::Chunked(_) | State::UntilClose => None,
        }
    }
}
