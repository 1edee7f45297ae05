//! Server-sent events, taken out of the body of a response.

use crate::{
    conn::RawFrame,
    message::{FrameKind, From},
    store::MAX_FRAME_BYTES,
};

/// A body of type `text/event-stream` as it comes.
#[derive(Debug, Default)]
pub(crate) struct Events {
    block: Vec<u8>,
    bytes: u64,
    line_bytes: usize,
    is_truncated: bool,
    was_return: bool,
}

impl Events {
    /// Takes bytes of the body, and passes each whole event on.
    pub(crate) fn bytes(&mut self, data: &[u8], mut out: impl FnMut(RawFrame)) {
        for byte in data {
            let (is_return, is_feed) = (*byte == b'\r', *byte == b'\n');
            // CR LF is one end of a line.
            if is_feed && std::mem::take(&mut self.was_return) {
                continue;
            }
            self.was_return = is_return;
            self.bytes += 1;
            if !is_return && !is_feed {
                self.line_bytes += 1;
                self.keep(*byte);
                continue;
            }
            if std::mem::take(&mut self.line_bytes) > 0 {
                self.keep(b'\n');
                continue;
            }
            let mut block = std::mem::take(&mut self.block);
            if block.last() == Some(&b'\n') {
                block.pop();
            }
            let (bytes, is_truncated) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.is_truncated));
            if !block.is_empty() {
                let (from, kind) = (From::Service, FrameKind::Event);
                out(RawFrame { from, kind, data: block, bytes, is_truncated, problem: None });
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.block.len() < MAX_FRAME_BYTES {
            self.block.push(byte);
        } else {
            self.is_truncated = true;
        }
    }
}
