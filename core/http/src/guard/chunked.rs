//! A chunked body (RFC 9112 section 7.1), read byte by byte where it has syntax and skipped where it has data.

use super::{
    MAX_BODY_BYTES, MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, MAX_TRAILER_COUNT,
    is_token_byte, is_value_byte, misplaced,
};
use crate::RequestRefusal;

/// The hexadecimal digits of a chunk's size at most: those of 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;
/// Names that a trailer field cannot have: they frame or route a message, and that is decided by now
/// (RFC 9110 section 6.5.1).
const FORBIDDEN_TRAILERS: [&[u8]; 3] = [b"transfer-encoding", b"content-length", b"host"];
/// The longest of [`FORBIDDEN_TRAILERS`], in bytes.
const MAX_FORBIDDEN_BYTES: usize = 17;

/// How far a chunked body was read.
#[derive(Debug, Default)]
pub(super) struct ChunkScan {
    step: Step,
    /// The size of this chunk, then what is left of its data.
    size: u64,
    digits: u8,
    line_bytes: usize,
    extension_bytes: usize,
    trailer_bytes: usize,
    trailer_count: usize,
    /// The start of the trailer field's name that is being read, in lower case.
    name: [u8; MAX_FORBIDDEN_BYTES],
    name_bytes: usize,
}

/// What is expected next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A digit of the size, or what ends it.
    #[default]
    Size,
    /// White space before a semicolon, which RFC 9112 lets pass there.
    SizeSpace,
    /// The first byte of an extension's name.
    ExtensionStart,
    /// The rest of the line.
    Extension,
    /// The line feed behind the size or extensions.
    SizeLineFeed,
    /// Data.
    Data,
    /// The carriage return behind the data.
    DataReturn,
    /// The line feed behind the data.
    DataLineFeed,
    /// The first byte of a trailer line, which may be the carriage return of the last, empty one.
    TrailerStart,
    /// A trailer field's name.
    TrailerName,
    /// A trailer field's value.
    TrailerValue,
    /// The line feed behind a trailer field.
    TrailerLineFeed,
    /// The line feed that ends the body.
    LastLineFeed,
}

impl ChunkScan {
    /// Reads on: how many bytes are fine, and whether the body ends behind them. A refusal concerns the byte there.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, Result<bool, RequestRefusal>) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.step == Step::Data {
                let rest = bytes.len() - at;
                let taken = usize::try_from(self.size).map_or(rest, |left| left.min(rest));
                at += taken;
                self.size -= taken as u64;
                if self.size == 0 {
                    self.step = Step::DataReturn;
                }
                continue;
            }
            match self.take(byte) {
                Ok(step) => self.step = step,
                Err(refusal) => return (at, Err(refusal)),
            }
            at += 1;
            if self.step == Step::LastLineFeed && byte == b'\n' {
                return (at, Ok(true));
            }
        }
        (at, Ok(false))
    }

    /// Takes one byte of syntax and says what is expected after it; the body is over when that is the last line feed
    /// and the byte was it.
    fn take(&mut self, byte: u8) -> Result<Step, RequestRefusal> {
        match self.step {
            Step::Size | Step::SizeSpace | Step::ExtensionStart | Step::Extension => {
                self.line_bytes += 1;
                if self.line_bytes > MAX_CHUNK_LINE_BYTES && byte != b'\r' {
                    return Err(RequestRefusal::ChunkLineLong);
                }
                self.take_size_line(byte)
            }
            Step::SizeLineFeed if byte == b'\n' => {
                self.line_bytes = 0;
                self.digits = 0;
                Ok(if self.size == 0 { Step::TrailerStart } else { Step::Data })
            }
            Step::DataReturn if byte == b'\r' => Ok(Step::DataLineFeed),
            Step::DataLineFeed if byte == b'\n' => Ok(Step::Size),
            Step::SizeLineFeed => Err(RequestRefusal::BareCarriageReturn),
            Step::Data | Step::DataReturn | Step::DataLineFeed => Err(RequestRefusal::ChunkEnd),
            Step::TrailerStart | Step::TrailerName | Step::TrailerValue | Step::TrailerLineFeed => {
                self.trailer_bytes += 1;
                if self.trailer_bytes > MAX_TRAILER_BYTES {
                    return Err(RequestRefusal::TrailersLong);
                }
                self.take_trailer(byte)
            }
            Step::LastLineFeed if byte == b'\n' => Ok(Step::LastLineFeed),
            Step::LastLineFeed => Err(RequestRefusal::BareCarriageReturn),
        }
    }

    /// Takes a byte of the line that announces a chunk, and counts it when it is none of the size's.
    fn take_size_line(&mut self, byte: u8) -> Result<Step, RequestRefusal> {
        let next = self.next_in_size_line(byte)?;
        if !matches!(next, Step::Size | Step::SizeLineFeed) {
            self.extension_bytes += 1;
            if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
                return Err(RequestRefusal::ChunkLineLong);
            }
        }
        Ok(next)
    }

    fn next_in_size_line(&mut self, byte: u8) -> Result<Step, RequestRefusal> {
        match (self.step, byte) {
            (Step::Size, b'\r') if self.digits > 0 => Ok(Step::SizeLineFeed),
            (Step::Size | Step::SizeSpace, b';') if self.digits > 0 => Ok(Step::ExtensionStart),
            (Step::Size | Step::SizeSpace, b' ' | b'\t') if self.digits > 0 => Ok(Step::SizeSpace),
            (Step::Size, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(RequestRefusal::ChunkSize)?;
                self.size = if self.digits == 0 { 0 } else { self.size } << 4 | u64::from(digit);
                self.digits += 1;
                if self.digits > MAX_SIZE_DIGITS || self.size > MAX_BODY_BYTES {
                    return Err(RequestRefusal::ChunkSize);
                }
                Ok(Step::Size)
            }
            (Step::ExtensionStart, b' ' | b'\t') => Ok(Step::ExtensionStart),
            (Step::ExtensionStart, byte) if is_token_byte(byte) => Ok(Step::Extension),
            (Step::Extension, b'\r') => Ok(Step::SizeLineFeed),
            (Step::Extension, byte) if is_value_byte(byte) => Ok(Step::Extension),
            (Step::Extension, byte) => Err(misplaced(byte)),
            _ => Err(RequestRefusal::ChunkSize),
        }
    }

    fn take_trailer(&mut self, byte: u8) -> Result<Step, RequestRefusal> {
        match (self.step, byte) {
            (Step::TrailerStart, b'\r') => Ok(Step::LastLineFeed),
            (Step::TrailerStart, byte) if is_token_byte(byte) => {
                self.trailer_count += 1;
                if self.trailer_count > MAX_TRAILER_COUNT {
                    return Err(RequestRefusal::TrailersLong);
                }
                self.name_bytes = 0;
                self.keep_name_byte(byte);
                Ok(Step::TrailerName)
            }
            (Step::TrailerName, b':') => {
                let name = self.name.get(..self.name_bytes).unwrap_or_default();
                if FORBIDDEN_TRAILERS.contains(&name) {
                    return Err(RequestRefusal::Trailer);
                }
                Ok(Step::TrailerValue)
            }
            (Step::TrailerName, byte) if is_token_byte(byte) => {
                self.keep_name_byte(byte);
                Ok(Step::TrailerName)
            }
            (Step::TrailerValue, b'\r') => Ok(Step::TrailerLineFeed),
            (Step::TrailerValue, byte) if is_value_byte(byte) => Ok(Step::TrailerValue),
            (Step::TrailerValue, byte) => Err(misplaced(byte)),
            (Step::TrailerLineFeed, b'\n') => Ok(Step::TrailerStart),
            (Step::TrailerLineFeed, _) => Err(RequestRefusal::BareCarriageReturn),
            _ => Err(RequestRefusal::Trailer),
        }
    }

    /// Keeps the byte of a name; a name too long to be forbidden is only counted.
    fn keep_name_byte(&mut self, byte: u8) {
        if let Some(slot) = self.name.get_mut(self.name_bytes) {
            *slot = byte.to_ascii_lowercase();
        }
        self.name_bytes += 1;
    }
}
