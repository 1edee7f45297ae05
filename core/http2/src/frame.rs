//! The frame header (RFC 9113 section 4.1).

/// Its length in bytes.
pub(crate) const HEAD_BYTES: usize = 9;
/// The longest payload that is accepted and sent, in bytes: the initial SETTINGS_MAX_FRAME_SIZE.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 16_384;
/// The bits of a stream id; the one above is reserved.
pub(crate) const STREAM_BITS: u32 = 0x7fff_ffff;

/// Types of frames (RFC 9113 section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
}

/// Flags of frames (RFC 9113 section 6).
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// Length of the payload in bytes.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    pub(crate) fn read(bytes: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & STREAM_BITS }
    }

    pub(crate) fn bytes(self) -> [u8; HEAD_BYTES] {
        // No sent payload exceeds MAX_PAYLOAD_BYTES, which fits in three bytes.
        let [.., a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
