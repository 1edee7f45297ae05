//! Integers with a prefix (RFC 7541 section 5.1, RFC 9204 section 4.1.1).

use super::DecodeError;

/// Bound on bytes after the prefix: five have 35 bits, and no valid number here has more than 32.
//= RFC 7541 section 5.1
//# Integer encodings that exceed implementation limits -- in value or octet length -- MUST be treated as decoding
//# errors.
const MAX_CONTINUATION_BYTES: usize = 5;

/// The rest of a block.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte, without consuming it.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next byte.
    ///
    /// # Errors
    /// Nothing is left.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// Fewer are left.
    #[inline]
    pub fn take(&mut self, len: u32) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(len as usize).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The number whose first byte was consumed: its prefix is `first & mask`.
    ///
    /// # Errors
    /// The number is cut off, or too large.
    #[inline]
    pub fn integer(&mut self, first: u8, mask: u8) -> Result<u32, DecodeError> {
        let prefix = first & mask;
        if prefix < mask { Ok(u32::from(prefix)) } else { self.long_integer(prefix) }
    }

    fn long_integer(&mut self, prefix: u8) -> Result<u32, DecodeError> {
        let mut value = u64::from(prefix);
        for n in 0..MAX_CONTINUATION_BYTES {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << (7 * n);
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| DecodeError::IntegerOverflow);
            }
        }
        Err(DecodeError::IntegerOverflow)
    }
}

/// Writes a number after the bits of `pattern`; `mask` has the bits of the prefix.
#[inline]
pub fn write(out: &mut Vec<u8>, pattern: u8, mask: u8, value: usize) {
    if value < usize::from(mask) {
        out.push(pattern | value as u8);
    } else {
        write_long(out, pattern | mask, value - usize::from(mask));
    }
}

#[inline(never)]
fn write_long(out: &mut Vec<u8>, first: u8, mut rest: usize) {
    out.push(first);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
