//! Encoding and decoding of the data types of RFC 4251 section 5.

use crate::error::{Error, Result};

/// Appends values to a payload.
pub(crate) trait Put {
    fn put_u32(&mut self, value: u32);
    fn put_bool(&mut self, value: bool);
    fn put_string(&mut self, value: impl AsRef<[u8]>);
    /// A non-negative number, from its big-endian bytes.
    fn put_mpint(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_bool(&mut self, value: bool) {
        self.push(u8::from(value));
    }

    fn put_string(&mut self, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.put_u32(length(value.len()));
        self.extend_from_slice(value);
    }

    fn put_mpint(&mut self, bytes: &[u8]) {
        let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        let bytes = &bytes[start..];
        let has_sign_byte = bytes.first().is_some_and(|byte| *byte >= 0x80);
        self.put_u32(length(bytes.len() + usize::from(has_sign_byte)));
        if has_sign_byte {
            self.push(0);
        }
        self.extend_from_slice(bytes);
    }
}

/// A length as encoded. Nothing here is longer than a packet.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads values from the start of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// The unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, rest) =
            self.rest.split_at_checked(count).ok_or(Error::Protocol("a message is shorter than its fields"))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.string()?).map_err(|_| Error::Protocol("a text is not UTF-8"))
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Protocol("a message is longer than its fields")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_the_rfc_has_them() {
        // The examples of RFC 4251 section 5.
        for (bytes, wire) in [
            (&[0][..], &[0, 0, 0, 0][..]),
            (&[0x09, 0xa3, 0x78, 0xf9], &[0, 0, 0, 4, 0x09, 0xa3, 0x78, 0xf9]),
            (&[0, 0, 0x80], &[0, 0, 0, 2, 0, 0x80]),
        ] {
            let mut out = Vec::new();
            out.put_mpint(bytes);
            assert_eq!(out, wire);
        }
    }

    #[test]
    fn what_was_put_is_read() {
        let mut out = Vec::new();
        out.put_u32(7);
        out.put_bool(true);
        out.put_string("text");
        let mut reader = Reader::new(&out);
        assert_eq!((reader.u32(), reader.bool(), reader.text()), (Ok(7), Ok(true), Ok("text")));
        assert_eq!(reader.end(), Ok(()));
        assert!(reader.u8().is_err());
        let mut long = Reader::new(&[0, 0, 0, 9, 1]);
        assert!(long.string().is_err());
        assert!(Reader::new(&[0, 0, 0, 1, 0xff]).text().is_err());
    }
}
