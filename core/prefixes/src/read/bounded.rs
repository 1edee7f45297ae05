//! A bound for the texts of JSON, which its parser keeps in memory.

use std::io::{self, Read};

/// The bytes between two quotation marks of JSON, at most.
pub const MAX_TEXT_BYTES: usize = 65_536;

/// A reader that fails when a text of JSON has no end within [`MAX_TEXT_BYTES`].
pub(super) struct Bounded<R> {
    input: R,
    /// The bytes since the last quotation mark.
    run: usize,
    /// Whether a backslash stands before the next byte.
    is_escaped: bool,
}

impl<R> Bounded<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, run: 0, is_escaped: false }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        for byte in &buffer[..count] {
            self.run = if *byte == b'"' && !self.is_escaped { 0 } else { self.run + 1 };
            self.is_escaped = *byte == b'\\' && !self.is_escaped;
            if self.run > MAX_TEXT_BYTES {
                let text =
                    format!("more than {MAX_TEXT_BYTES} bytes without a quotation mark: this is no JSON of prefixes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(count)
    }
}
