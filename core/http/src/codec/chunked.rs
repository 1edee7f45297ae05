//! A body in chunks (RFC 9112 section 7.1), taken apart where it lies.

use bytes::{Buf, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{AnswerError, LAST_CHUNK_END, Piece, end_of_lines};
use crate::guard::{
    MAX_BODY_BYTES, MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, MAX_TRAILER_COUNT,
    is_value_byte,
};

/// The hexadecimal digits of a chunk's size at most: those of 64 bits.
const MAX_SIZE_DIGITS: usize = 16;

/// How far a body in chunks was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    step: Step,
    /// How long the extensions of all chunks were, in bytes.
    extension_bytes: usize,
    /// How much of what follows was looked through for its end in vain, in bytes.
    searched: usize,
}

/// What comes next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The line with a chunk's size.
    #[default]
    Size,
    /// So much of a chunk's data.
    Data(u64),
    /// What ends a chunk.
    DataEnd,
    /// The trailers, and the empty line behind them.
    Trailers,
    /// Nothing.
    Over,
}

impl Chunks {
    pub(super) fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// Takes the next piece out of what came.
    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Result<Piece, AnswerError> {
        loop {
            match self.step {
                Step::Size => match self.take_size(buf)? {
                    Some(0) => self.step = Step::Trailers,
                    Some(size) => self.step = Step::Data(size),
                    None => return Ok(Piece::Missing),
                },
                Step::Data(_) if buf.is_empty() => return Ok(Piece::Missing),
                Step::Data(left) => return Ok(self.take_data(left, buf)),
                Step::DataEnd => match buf[..] {
                    [b'\r', b'\n', ..] => {
                        buf.advance(2);
                        self.step = Step::Size;
                    }
                    [] | [b'\r'] => return Ok(Piece::Missing),
                    _ => return Err(AnswerError::ChunkEnd),
                },
                Step::Trailers => return self.take_trailers(buf),
                Step::Over => return Ok(Piece::End),
            }
        }
    }

    /// The size of the next chunk, when its line has come.
    fn take_size(&mut self, buf: &mut BytesMut) -> Result<Option<u64>, AnswerError> {
        let Some(found) = memchr::memchr(b'\n', &buf[self.searched..]) else {
            self.searched = buf.len();
            // What is no size at all is not waited for until its line ends.
            let is_size = buf.first().is_none_or(u8::is_ascii_hexdigit);
            return match buf.len() {
                _ if !is_size => Err(AnswerError::ChunkSize),
                // Of its end the first byte may be there.
                length if length <= MAX_CHUNK_LINE_BYTES + usize::from(buf.ends_with(b"\r")) => Ok(None),
                _ => Err(AnswerError::ChunkLineLong),
            };
        };
        let end = std::mem::take(&mut self.searched) + found;
        let line = buf[..end].strip_suffix(b"\r").ok_or(AnswerError::ChunkSize)?;
        if line.len() > MAX_CHUNK_LINE_BYTES {
            return Err(AnswerError::ChunkLineLong);
        }
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, rest) = line.split_at(digits);
        if !(1..=MAX_SIZE_DIGITS).contains(&digits) || !is_extension(rest) {
            return Err(AnswerError::ChunkSize);
        }
        self.extension_bytes += rest.len();
        if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
            return Err(AnswerError::ChunkLineLong);
        }
        let size = size.iter().fold(0u64, |size, digit| (size << 4) | u64::from(hex(*digit)));
        if size > MAX_BODY_BYTES {
            return Err(AnswerError::ChunkSize);
        }
        buf.advance(end + 1);
        Ok(Some(size))
    }

    /// Data of a chunk of which so much is left.
    fn take_data(&mut self, left: u64, buf: &mut BytesMut) -> Piece {
        let taken = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let data = buf.split_to(taken).freeze();
        self.step = match left - taken as u64 {
            0 if buf.starts_with(LAST_CHUNK_END) => {
                // Mostly the end is there already: whoever gets the last piece can know that it is.
                buf.advance(LAST_CHUNK_END.len());
                Step::Over
            }
            0 => Step::DataEnd,
            left => Step::Data(left),
        };
        Piece::Data(data)
    }

    /// The trailers, when all of them have come.
    fn take_trailers(&mut self, buf: &mut BytesMut) -> Result<Piece, AnswerError> {
        if buf.starts_with(b"\r\n") {
            buf.advance(2);
            self.step = Step::Over;
            return Ok(Piece::End);
        }
        let Some(end) = end_of_lines(buf, self.searched) else {
            self.searched = buf.len();
            return if buf.len() > MAX_TRAILER_BYTES { Err(AnswerError::TrailersLong) } else { Ok(Piece::Missing) };
        };
        self.searched = 0;
        // The very last byte is not counted, as the guard does not.
        if end > MAX_TRAILER_BYTES + 1 {
            return Err(AnswerError::TrailersLong);
        }
        let trailers = read_trailers(&buf[..end])?;
        buf.advance(end);
        self.step = Step::Over;
        Ok(Piece::Trailers(trailers))
    }
}

/// Whether this may stand between a chunk's size and the end of its line.
fn is_extension(rest: &[u8]) -> bool {
    let starts_well = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
    starts_well && rest.iter().all(|byte| is_value_byte(*byte))
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn read_trailers(lines: &[u8]) -> Result<HeaderMap, AnswerError> {
    let has_bare_line_feed =
        memchr::memchr_iter(b'\n', lines).any(|at| at.checked_sub(1).is_none_or(|before| lines[before] != b'\r'));
    if has_bare_line_feed {
        return Err(AnswerError::Trailers);
    }
    let mut room = [httparse::EMPTY_HEADER; MAX_TRAILER_COUNT];
    let fields = match httparse::parse_headers(lines, &mut room) {
        Ok(httparse::Status::Complete((length, fields))) if length == lines.len() => fields,
        Err(httparse::Error::TooManyHeaders) => return Err(AnswerError::TrailersLong),
        _ => return Err(AnswerError::Trailers),
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| AnswerError::Trailers)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| AnswerError::Trailers)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}
