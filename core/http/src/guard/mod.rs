//! Judges the raw bytes of a client's HTTP/1 connection before a server sees them.
//!
//! HTTP servers are lenient where a front door must not be: they take bare line feeds for line ends and make sense of
//! contradicting lengths. Whoever disagrees with the next server on where a request ends lets clients smuggle requests.
//! [`RequestGuard`] therefore reads along, by the letter of RFC 9112, and passes on only what has one meaning:
//!
//! ```text
//!  client ── bytes ──> inspect() ──┬─ Pass { n } ──────> the first n bytes go to the server, the rest is kept
//!                                  └─ Refuse { pass } ─> the first `pass` bytes go to the server, the rest nowhere
//! ```
//!
//! A head passes only when it is complete and judged, so the caller keeps what did not pass and presents it again with
//! more bytes behind it. Bodies pass as they come. The guard keeps no bytes itself and allocates nothing; each byte is
//! looked at once, however small the pieces are.
//!
//! After a head that asks for a WebSocket (the rule is that of
//! [`is_websocket_upgrade`](crate::forward::is_websocket_upgrade)), nothing passes until the caller says how the request was answered: [`upgraded`](RequestGuard::upgraded) or
//! [`not_upgraded`](RequestGuard::not_upgraded). Meanwhile a caller that holds [`GuardLimits::max_held_bytes`] reads no
//! more from the client.

mod chunked;
mod head;
pub(crate) mod lengths;

use chunked::ChunkScan;
use head::{Framing, HeadScan};

use crate::RequestRefusal;

/// The longest request head (request line, header fields, empty line), in bytes.
pub const MAX_HEAD_BYTES: usize = 65_536;
/// The longest method, in bytes.
pub const MAX_METHOD_BYTES: usize = 32;
/// The longest request target, in bytes.
pub const MAX_TARGET_BYTES: usize = 16_384;
/// How many header fields a request may have.
pub const MAX_HEADER_COUNT: usize = 100;
/// The longest body that a Content-Length or a chunk's size may announce, in bytes: what fits the signed lengths of
/// most servers.
pub const MAX_BODY_BYTES: u64 = i64::MAX as u64;
/// The longest line that announces a chunk, in bytes, without its line end.
pub const MAX_CHUNK_LINE_BYTES: usize = 1_024;
/// All chunk extensions of one body together, in bytes. They mean nothing to anybody (RFC 9112 section 7.1.1).
pub const MAX_CHUNK_EXTENSION_BYTES: usize = 8_192;
/// The longest trailer section, in bytes.
pub const MAX_TRAILER_BYTES: usize = 8_192;
/// How many trailer fields a body may have.
pub const MAX_TRAILER_COUNT: usize = 64;

/// What is to be done with the bytes presented to [`RequestGuard::inspect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first `n` bytes may be given to the server. The caller keeps the rest, which is the beginning of a head (or
    /// what follows a WebSocket upgrade request), and presents it again with more bytes behind it.
    Pass {
        /// How many bytes.
        n: usize,
    },
    /// The first `pass` bytes may be given to the server; what comes then is refused, and nothing after it is looked
    /// at. When a head is refused, that is where its message begins; when a body is
    /// ([`is_in_body`](RequestGuard::is_in_body)), it is the byte that is wrong, and the server waits for more.
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

/// The bounds of a guard that programs may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardLimits {
    /// The longest head, in bytes; longer ones are answered with 431.
    pub max_head_bytes: usize,
    /// The longest target, in bytes; longer ones are answered with 414.
    pub max_target_bytes: usize,
    /// How many header fields a request may have; more are answered with 431.
    pub max_header_count: usize,
}

impl GuardLimits {
    /// How many bytes a caller ever has to keep, besides those of its latest read.
    #[must_use]
    pub fn max_held_bytes(&self) -> usize {
        self.max_head_bytes
    }
}

impl Default for GuardLimits {
    fn default() -> Self {
        Self { max_head_bytes: MAX_HEAD_BYTES, max_target_bytes: MAX_TARGET_BYTES, max_header_count: MAX_HEADER_COUNT }
    }
}

/// The guard of one client connection; see the [module](self) for its use.
#[derive(Debug)]
pub struct RequestGuard {
    limits: GuardLimits,
    state: State,
}

#[derive(Debug)]
enum State {
    Head(HeadScan),
    Length { left: u64 },
    Chunked { scan: ChunkScan },
    AwaitingUpgrade,
    Upgraded,
    Refused { refusal: RequestRefusal, in_body: bool },
}

impl RequestGuard {
    /// A guard for a new connection.
    #[must_use]
    pub fn new(limits: GuardLimits) -> Self {
        Self { limits, state: State::Head(HeadScan::default()) }
    }

    /// Judges the bytes that have not passed yet: those kept since the last call, unchanged, with new ones behind them.
    ///
    /// How the bytes are split over calls makes no difference to what passes in the end.
    pub fn inspect(&mut self, bytes: &[u8]) -> Verdict {
        let mut at = 0;
        // Every turn takes bytes or ends the loop.
        loop {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Head(scan) => match scan.advance(rest, &self.limits) {
                    Ok(None) => return Verdict::Pass { n: at },
                    Ok(Some(head)) => {
                        at += head.bytes;
                        self.state = match head.framing {
                            Framing::Nothing if head.websocket => State::AwaitingUpgrade,
                            Framing::Nothing => State::Head(HeadScan::default()),
                            Framing::Length(left) => State::Length { left },
                            Framing::Chunked => State::Chunked { scan: ChunkScan::default() },
                        };
                    }
                    Err(refusal) => return self.refuse(at, refusal, false),
                },
                State::Length { left } => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    at += taken;
                    *left -= taken as u64;
                    if *left > 0 {
                        return Verdict::Pass { n: at };
                    }
                    self.state = State::Head(HeadScan::default());
                }
                State::Chunked { scan } => {
                    let (taken, outcome) = scan.advance(rest);
                    at += taken;
                    match outcome {
                        Ok(true) => self.state = State::Head(HeadScan::default()),
                        Ok(false) => return Verdict::Pass { n: at },
                        Err(refusal) => return self.refuse(at, refusal, true),
                    }
                }
                State::AwaitingUpgrade => return Verdict::Pass { n: at },
                State::Upgraded => return Verdict::Pass { n: bytes.len() },
                State::Refused { refusal, .. } => return Verdict::Refuse { pass: at, refusal: *refusal },
            }
        }
    }

    fn refuse(&mut self, pass: usize, refusal: RequestRefusal, in_body: bool) -> Verdict {
        self.state = State::Refused { refusal, in_body };
        Verdict::Refuse { pass, refusal }
    }

    /// The WebSocket upgrade request was answered with 101: from now on every byte passes. The caller presents what it
    /// holds again.
    pub fn upgraded(&mut self) {
        if !matches!(self.state, State::Refused { .. }) {
            self.state = State::Upgraded;
        }
    }

    /// The WebSocket upgrade request was answered with anything but 101: what the caller holds is the next request,
    /// and is presented again. Only to be called for the answer to a request that
    /// [asked for a WebSocket](crate::forward::is_websocket_upgrade), never for that of an earlier one.
    pub fn not_upgraded(&mut self) {
        if matches!(self.state, State::AwaitingUpgrade) {
            self.state = State::Head(HeadScan::default());
        }
    }

    /// Whether the bytes that come next belong to a body; it stays true when a refusal came in the middle of one.
    #[must_use]
    pub fn is_in_body(&self) -> bool {
        matches!(self.state, State::Length { .. } | State::Chunked { .. } | State::Refused { in_body: true, .. })
    }

    /// Where the connection is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Head(scan) if scan.has_begun() => Phase::Head,
            State::Head(_) => Phase::Idle,
            State::Length { .. } | State::Chunked { .. } => Phase::Body,
            State::AwaitingUpgrade => Phase::AwaitingUpgrade,
            State::Upgraded => Phase::Upgraded,
            State::Refused { .. } => Phase::Refused,
        }
    }
}

/// Whether the byte may be in a token (RFC 9110 section 5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

/// Whether the byte may be in a field's value (RFC 9110 section 5.5): no control character but the tab.
pub(crate) const fn is_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..=0xff)
}

/// Why a byte that is neither a value byte nor a proper line end is refused.
const fn misplaced(byte: u8) -> RequestRefusal {
    match byte {
        b'\n' => RequestRefusal::BareLineFeed,
        b'\r' => RequestRefusal::BareCarriageReturn,
        _ => RequestRefusal::ControlCharacter,
    }
}
