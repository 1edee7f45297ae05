//! Variable-length integers (RFC 9000 section 16), and the header of frames (RFC 9114 section 7.1).

/// The longest integer, in bytes.
pub(crate) const MAX_INTEGER_BYTES: usize = 8;
/// The longest frame header, in bytes: type and length.
const MAX_HEAD_BYTES: usize = 2 * MAX_INTEGER_BYTES;

/// Types of frames (RFC 9114 section 7.2, RFC 9218 section 7.2).
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0x0;
    pub(crate) const HEADERS: u64 = 0x1;
    pub(crate) const CANCEL_PUSH: u64 = 0x3;
    pub(crate) const SETTINGS: u64 = 0x4;
    pub(crate) const PUSH_PROMISE: u64 = 0x5;
    pub(crate) const GOAWAY: u64 = 0x7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
    /// Of a request.
    pub(crate) const PRIORITY_UPDATE: u64 = 0xf0700;
    /// Of a push.
    pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;
    /// The first of the types that every receiver ignores.
    pub(crate) const IGNORED: u64 = 0x21;
    /// Types of HTTP/2 without a counterpart: PRIORITY, PING, WINDOW_UPDATE, CONTINUATION.
    pub(crate) const RESERVED: [u64; 4] = [0x2, 0x6, 0x8, 0x9];
}

/// The length of the integer that starts with this byte, in bytes.
fn integer_len(first: u8) -> usize {
    1 << (first >> 6)
}

/// Reads an integer; returns it and the rest. `None` if it is cut off.
pub(crate) fn read_integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (integer, rest) = bytes.split_at_checked(integer_len(*bytes.first()?))?;
    let (first, more) = integer.split_first()?;
    let value = more.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, rest))
}

/// Reads a payload that is one integer.
pub(crate) fn only_integer(payload: &[u8]) -> Option<u64> {
    read_integer(payload).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// Appends an integer of at most 62 bits, in its shortest form.
pub(crate) fn write_integer(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let (len, pattern) = match value {
        0..0x40 => (1, 0x00),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let at = out.len();
    out.extend_from_slice(bytes.get(MAX_INTEGER_BYTES - len..).unwrap_or_default());
    if let Some(first) = out.get_mut(at) {
        *first |= pattern;
    }
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) kind: u64,
    /// Length of the payload in bytes.
    pub(crate) length: u64,
}

/// Collects the bytes of consecutive integers that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct HeadBuffer {
    bytes: [u8; MAX_HEAD_BYTES],
    len: usize,
}

impl HeadBuffer {
    /// Whether nothing was collected.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a frame header from the front of `input`. `None` if more bytes have to come.
    pub(crate) fn frame(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        self.take(input, |bytes| {
            let (kind, rest) = read_integer(bytes)?;
            let (length, rest) = read_integer(rest)?;
            Some((FrameHead { kind, length }, rest))
        })
    }

    /// Takes one integer from the front of `input`. `None` if more bytes have to come.
    pub(crate) fn integer(&mut self, input: &mut &[u8]) -> Option<u64> {
        self.take(input, read_integer)
    }

    fn take<T>(&mut self, input: &mut &[u8], read: impl Fn(&[u8]) -> Option<(T, &[u8])>) -> Option<T> {
        if self.is_empty()
            && let Some((value, rest)) = read(input)
        {
            *input = rest;
            return Some(value);
        }
        while let Some((byte, rest)) = input.split_first() {
            *input = rest;
            // A complete header is taken at once, so there is room.
            if let Some(room) = self.bytes.get_mut(self.len) {
                *room = *byte;
                self.len += 1;
            }
            if let Some((value, _)) = read(self.bytes.get(..self.len)?) {
                self.len = 0;
                return Some(value);
            }
        }
        None
    }
}
