//! Messages of gRPC, taken out of the bodies of a call.

use crate::{
    conn::RawFrame,
    decode::decode,
    message::{FrameKind, From},
    store::MAX_FRAME_BYTES,
};

/// The bytes before each message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// One direction of a call.
#[derive(Debug)]
pub(crate) struct Messages {
    from: From,
    encoding: String,
    prefix: Vec<u8>,
    data: Vec<u8>,
    left: u64,
    bytes: u64,
    is_truncated: bool,
}

impl Messages {
    /// A direction with this `grpc-encoding`.
    pub(crate) fn new(from: From, encoding: String) -> Self {
        Self { from, encoding, prefix: Vec::new(), data: Vec::new(), left: 0, bytes: 0, is_truncated: false }
    }

    /// Takes bytes of the body, and passes each whole message on.
    pub(crate) fn bytes(&mut self, mut input: &[u8], mut out: impl FnMut(RawFrame)) {
        while !input.is_empty() {
            if self.prefix.len() < PREFIX_BYTES {
                let taken = input.len().min(PREFIX_BYTES - self.prefix.len());
                self.prefix.extend_from_slice(&input[..taken]);
                input = &input[taken..];
                if self.prefix.len() < PREFIX_BYTES {
                    return;
                }
                self.left = self.prefix[1..].iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
                self.bytes = self.left;
            }
            let taken = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
            let room = MAX_FRAME_BYTES.saturating_sub(self.data.len()).min(taken);
            self.data.extend_from_slice(&input[..room]);
            self.is_truncated |= room < taken;
            self.left -= taken as u64;
            input = &input[taken..];
            if self.left == 0 {
                out(self.whole());
            }
        }
    }

    fn whole(&mut self) -> RawFrame {
        let is_compressed = self.prefix.first().is_some_and(|flag| flag & 1 == 1);
        self.prefix.clear();
        let (mut data, mut is_truncated) = (std::mem::take(&mut self.data), std::mem::take(&mut self.is_truncated));
        let mut problem = None;
        if is_compressed {
            let decoded = decode(&self.encoding, &data, MAX_FRAME_BYTES);
            (data, problem) = (decoded.bytes, decoded.problem);
            is_truncated |= decoded.is_truncated;
        }
        RawFrame { from: self.from, kind: FrameKind::Grpc, data, bytes: self.bytes, is_truncated, problem }
    }
}
