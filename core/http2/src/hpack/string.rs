//! Strings, plain or with the Huffman code (RFC 7541 section 5.2).

use super::{DecodeError, huffman, integer::Input};

/// Huffman-coded strings up to this decoded length are decoded on the stack.
const SHORT_STRING_BYTES: usize = 256;

/// Reads strings, with buffers for decoded ones.
#[derive(Debug, Default)]
pub struct Strings {
    /// Created with the first string that needs it.
    short: Option<[u8; SHORT_STRING_BYTES]>,
    long: Vec<u8>,
}

impl Strings {
    /// No buffer yet.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self { short: None, long: Vec::new() }
    }

    /// The next string (RFC 7541 section 5.2).
    ///
    /// # Errors
    /// The string is cut off, or its Huffman code is invalid.
    #[inline]
    pub fn next<'a, 'block: 'a>(&'a mut self, input: &mut Input<'block>) -> Result<&'a [u8], DecodeError> {
        let first = input.byte()?;
        self.after(first, 0x7f, input)
    }

    /// The string whose first byte was consumed: its length has the prefix `first & mask`, and the bit above the mask
    /// is that of the Huffman code (RFC 9204 section 4.1.2).
    ///
    /// # Errors
    /// The string is cut off, or its Huffman code is invalid.
    #[inline]
    pub fn after<'a, 'block: 'a>(
        &'a mut self,
        first: u8,
        mask: u8,
        input: &mut Input<'block>,
    ) -> Result<&'a [u8], DecodeError> {
        let len = input.integer(first, mask)?;
        let encoded = input.take(len)?;
        if first & (mask + 1) == 0 { Ok(encoded) } else { self.decoded(encoded) }
    }

    fn decoded(&mut self, encoded: &[u8]) -> Result<&[u8], DecodeError> {
        let max = huffman::max_decoded_len(encoded.len());
        let out = if max <= SHORT_STRING_BYTES {
            &mut self.short.get_or_insert([0; SHORT_STRING_BYTES])[..]
        } else {
            if self.long.len() < max {
                self.long.resize(max, 0);
            }
            &mut self.long[..]
        };
        let len = huffman::decode(encoded, out)?;
        Ok(out.get(..len).unwrap_or_default())
    }
}
