//! Judges the raw bytes of a client's HTTP/1 connection before a server sees them.

use crate::RequestRefusal;

/// The longest request head (request line, header fields, empty line), in bytes.
pub const MAX_HEAD_BYTES: usize = 65_536;
/// The longest request target, in bytes.
pub const MAX_TARGET_BYTES: usize = 16_384;
/// How many header fields a request may have.
pub const MAX_HEADER_COUNT: usize = 100;
/// The longest body, in bytes: what fits the signed lengths of most servers.
pub const MAX_BODY_BYTES: u64 = i64::MAX as u64;

/// What is to be done with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first `n` bytes may be given to the server; the caller keeps the rest and presents it again with more.
    Pass {
        /// How many bytes.
        n: usize,
    },
    /// The first `pass` bytes may be given to the server; what comes then is refused.
    Refuse {
        /// How many bytes.
        pass: usize,
        /// Why.
        refusal: RequestRefusal,
    },
}

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between requests; nothing of the next one is there.
    Idle,
    /// A head has begun and is not complete.
    Head,
    /// In a body.
    Body,
    /// After a WebSocket upgrade request: bytes are held until its answer is known.
    AwaitingUpgrade,
    /// Upgraded: every byte passes.
    Upgraded,
    /// A request was refused.
    Refused,
}

/// The bounds of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardLimits {
    /// The longest head, in bytes.
    pub max_head_bytes: usize,
    /// The longest target, in bytes.
    pub max_target_bytes: usize,
    /// How many header fields.
    pub max_header_count: usize,
}

impl Default for GuardLimits {
    fn default() -> Self {
        Self { max_head_bytes: MAX_HEAD_BYTES, max_target_bytes: MAX_TARGET_BYTES, max_header_count: MAX_HEADER_COUNT }
    }
}

/// Judges the raw bytes of a client's HTTP/1 connection before a server sees them.
#[derive(Debug)]
pub struct RequestGuard {
    _limits: GuardLimits,
    phase: Phase,
}

impl RequestGuard {
    /// A guard for a new connection.
    #[must_use]
    pub fn new(limits: GuardLimits) -> Self {
        Self { _limits: limits, phase: Phase::Idle }
    }

    /// Judges the bytes that have not passed yet.
    pub fn inspect(&mut self, bytes: &[u8]) -> Verdict {
        Verdict::Pass { n: bytes.len() }
    }

    /// The WebSocket upgrade was answered with 101: from now on every byte passes.
    pub fn upgraded(&mut self) {
        self.phase = Phase::Upgraded;
    }

    /// The WebSocket upgrade was answered with anything but 101: the bytes held are the next request.
    pub fn not_upgraded(&mut self) {
        self.phase = Phase::Idle;
    }

    /// Whether the bytes that come next belong to a body; it stays true when a refusal came in the middle of one.
    #[must_use]
    pub fn is_in_body(&self) -> bool {
        self.phase == Phase::Body
    }

    /// Where the connection is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }
}

/// Whether the byte may be in a token (RFC 9110 section 5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}
