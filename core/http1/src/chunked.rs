//! The chunked transfer coding (RFC 9112 section 7.1): syntax byte by byte, data in one step.

use bytes::{Buf, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use sallyport_http::syntax::{is_token_byte, is_value_byte};

use crate::{
    body::Piece,
    chunk_encode::LAST_CHUNK_END,
    limits::{MAX_BODY_BYTES, MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, MAX_TRAILER_COUNT},
};

/// The greatest number of hexadecimal digits in a chunk's size: those of 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;
/// Trailer fields that a request cannot have. They frame or route a message, and by then both are decided (RFC 9110
/// section 6.5.1).
const FORBIDDEN_TRAILERS: [&[u8]; 3] = [b"transfer-encoding", b"content-length", b"host"];

/// Why a chunked body is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// A chunk does not begin with its size in hexadecimal digits.
    Size,
    /// A wrong byte in the line before a chunk.
    SizeLine(LineError),
    /// The line before a chunk is too long, or the extensions of the body are.
    LineLong,
    /// A chunk does not end where its size says.
    End,
    /// A trailer field has no valid name, or one that a trailer cannot have.
    Trailer,
    /// A wrong byte in a trailer field, or behind the last one.
    TrailerLine(LineError),
    /// The trailer fields are too many or too long.
    TrailersLong,
}

/// Why a byte cannot stand in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineError {
    /// A line feed without a carriage return before it.
    BareLineFeed,
    /// A carriage return without a line feed behind it.
    BareCarriageReturn,
    /// Another control character.
    ControlCharacter,
}

impl LineError {
    /// The error for a byte that is neither a byte of a value nor part of a line end.
    pub(crate) const fn of_byte(byte: u8) -> Self {
        match byte {
            b'\n' => Self::BareLineFeed,
            b'\r' => Self::BareCarriageReturn,
            _ => Self::ControlCharacter,
        }
    }
}

/// How exact a sender has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// By the letter of the RFC.
    Strict,
    /// White space may follow a size, an extension may be empty, and a trailer may have any name.
    Lenient,
}

/// The state of one chunked body.
#[derive(Debug)]
pub(crate) struct ChunkedDecoder {
    rules: Rules,
    step: Step,
    /// The size of this chunk, then the rest of its data, in bytes.
    size: u64,
    digits: u8,
    line_bytes: usize,
    extension_bytes: usize,
    /// The trailer section, as far as it came.
    trailers: Vec<u8>,
    trailer_count: usize,
    /// Where the name of the trailer field under way begins in `trailers`.
    name_start: usize,
}

/// The syntax that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A digit of the size, or the byte behind the last digit.
    Size,
    /// White space before a semicolon.
    SizeSpace,
    /// The first byte of an extension's name.
    ExtensionStart,
    /// The rest of the line.
    Extension,
    /// The line feed behind the size or the extensions.
    SizeLineFeed,
    /// Data.
    Data,
    /// The carriage return behind the data.
    DataReturn,
    /// The line feed behind the data.
    DataLineFeed,
    /// The first byte of a trailer line: the carriage return of the last, empty line is one.
    TrailerStart,
    /// A trailer field's name.
    TrailerName,
    /// A trailer field's value.
    TrailerValue,
    /// The line feed behind a trailer field.
    TrailerLineFeed,
    /// The line feed that ends the body.
    LastLineFeed,
    /// Nothing.
    Over,
}

impl ChunkedDecoder {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            step: Step::Size,
            size: 0,
            digits: 0,
            line_bytes: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
            trailer_count: 0,
            name_start: 0,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// Takes the next piece out of `buf`. After an error `buf` begins at the wrong byte.
    pub(crate) fn next(&mut self, buf: &mut BytesMut) -> Result<Piece, ChunkError> {
        if self.step == Step::Over {
            return Ok(Piece::End);
        }
        let mut at = 0;
        while self.step != Step::Data {
            let Some(&byte) = buf.get(at) else {
                buf.clear();
                return Ok(Piece::Missing);
            };
            match self.take(byte) {
                Ok(step) => self.step = step,
                Err(error) => {
                    buf.advance(at);
                    return Err(error);
                }
            }
            at += 1;
            if self.step == Step::Over {
                buf.advance(at);
                return Ok(self.end());
            }
        }
        buf.advance(at);
        if buf.is_empty() { Ok(Piece::Missing) } else { Ok(self.take_data(buf)) }
    }

    /// Takes data of a chunk. `buf` has some.
    fn take_data(&mut self, buf: &mut BytesMut) -> Piece {
        let taken = usize::try_from(self.size).map_or(buf.len(), |left| left.min(buf.len()));
        let data = buf.split_to(taken).freeze();
        self.size -= taken as u64;
        if self.size == 0 {
            self.step = Step::DataReturn;
            // The end of most bodies lies behind their last data: the caller learns that this piece is the last.
            if buf.starts_with(LAST_CHUNK_END) {
                buf.advance(LAST_CHUNK_END.len());
                self.step = Step::Over;
            }
        }
        Piece::Data(data)
    }

    /// The last piece: the trailers, where there are some. The syntax of each line was checked byte by byte.
    fn end(&mut self) -> Piece {
        let lines = std::mem::take(&mut self.trailers);
        if self.trailer_count == 0 {
            return Piece::End;
        }
        let mut trailers = HeaderMap::with_capacity(self.trailer_count);
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (HeaderName::from_bytes(&line[..colon]), line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                trailers.append(name, value);
            }
        }
        Piece::Trailers(trailers)
    }

    /// Takes one byte of syntax. Returns the step behind it.
    fn take(&mut self, byte: u8) -> Result<Step, ChunkError> {
        match self.step {
            Step::Size | Step::SizeSpace | Step::ExtensionStart | Step::Extension => {
                self.line_bytes += 1;
                if self.line_bytes > MAX_CHUNK_LINE_BYTES && byte != b'\r' {
                    return Err(ChunkError::LineLong);
                }
                self.take_size_line(byte)
            }
            Step::SizeLineFeed if byte == b'\n' => {
                self.line_bytes = 0;
                self.digits = 0;
                Ok(if self.size == 0 { Step::TrailerStart } else { Step::Data })
            }
            Step::SizeLineFeed => Err(ChunkError::SizeLine(LineError::BareCarriageReturn)),
            Step::DataReturn if byte == b'\r' => Ok(Step::DataLineFeed),
            Step::DataLineFeed if byte == b'\n' => Ok(Step::Size),
            Step::Data | Step::DataReturn | Step::DataLineFeed | Step::Over => Err(ChunkError::End),
            Step::TrailerStart | Step::TrailerName | Step::TrailerValue | Step::TrailerLineFeed => {
                if self.trailers.len() == MAX_TRAILER_BYTES {
                    return Err(ChunkError::TrailersLong);
                }
                let step = self.take_trailer(byte)?;
                if step != Step::LastLineFeed {
                    self.trailers.push(byte);
                }
                Ok(step)
            }
            Step::LastLineFeed if byte == b'\n' => Ok(Step::Over),
            Step::LastLineFeed => Err(ChunkError::TrailerLine(LineError::BareCarriageReturn)),
        }
    }

    /// Takes a byte of the line before a chunk, and counts the bytes of extensions.
    fn take_size_line(&mut self, byte: u8) -> Result<Step, ChunkError> {
        let next = self.next_in_size_line(byte)?;
        if !matches!(next, Step::Size | Step::SizeLineFeed) {
            self.extension_bytes += 1;
            if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
                return Err(ChunkError::LineLong);
            }
        }
        Ok(next)
    }

    fn next_in_size_line(&mut self, byte: u8) -> Result<Step, ChunkError> {
        let is_lenient = self.rules == Rules::Lenient;
        match (self.step, byte) {
            (Step::Size, b'\r') if self.digits > 0 => Ok(Step::SizeLineFeed),
            (Step::SizeSpace | Step::ExtensionStart, b'\r') if is_lenient => Ok(Step::SizeLineFeed),
            (Step::Size | Step::SizeSpace, b';') if self.digits > 0 => Ok(Step::ExtensionStart),
            (Step::Size | Step::SizeSpace, b' ' | b'\t') if self.digits > 0 => Ok(Step::SizeSpace),
            (Step::Size, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Size)?;
                self.size = if self.digits == 0 { 0 } else { self.size } << 4 | u64::from(digit);
                self.digits += 1;
                if self.digits > MAX_SIZE_DIGITS || self.size > MAX_BODY_BYTES {
                    return Err(ChunkError::Size);
                }
                Ok(Step::Size)
            }
            (Step::ExtensionStart, b' ' | b'\t') => Ok(Step::ExtensionStart),
            (Step::ExtensionStart, byte) if is_token_byte(byte) || (is_lenient && is_value_byte(byte)) => {
                Ok(Step::Extension)
            }
            (Step::Extension, b'\r') => Ok(Step::SizeLineFeed),
            (Step::Extension, byte) if is_value_byte(byte) => Ok(Step::Extension),
            (Step::Extension, byte) => Err(ChunkError::SizeLine(LineError::of_byte(byte))),
            _ => Err(ChunkError::Size),
        }
    }

    fn take_trailer(&mut self, byte: u8) -> Result<Step, ChunkError> {
        match (self.step, byte) {
            (Step::TrailerStart, b'\r') => Ok(Step::LastLineFeed),
            (Step::TrailerStart, byte) if is_token_byte(byte) => {
                self.trailer_count += 1;
                if self.trailer_count > MAX_TRAILER_COUNT {
                    return Err(ChunkError::TrailersLong);
                }
                self.name_start = self.trailers.len();
                Ok(Step::TrailerName)
            }
            (Step::TrailerName, b':') => {
                let name = self.trailers.get(self.name_start..).unwrap_or_default();
                let is_forbidden = FORBIDDEN_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden));
                if is_forbidden && self.rules == Rules::Strict {
                    return Err(ChunkError::Trailer);
                }
                Ok(Step::TrailerValue)
            }
            (Step::TrailerName, byte) if is_token_byte(byte) => Ok(Step::TrailerName),
            (Step::TrailerValue, b'\r') => Ok(Step::TrailerLineFeed),
            (Step::TrailerValue, byte) if is_value_byte(byte) => Ok(Step::TrailerValue),
            (Step::TrailerValue, byte) => Err(ChunkError::TrailerLine(LineError::of_byte(byte))),
            (Step::TrailerLineFeed, b'\n') => Ok(Step::TrailerStart),
            (Step::TrailerLineFeed, _) => Err(ChunkError::TrailerLine(LineError::BareCarriageReturn)),
            _ => Err(ChunkError::Trailer),
        }
    }
}
