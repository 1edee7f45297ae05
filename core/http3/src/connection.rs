//! What the streams of one connection share.

use crate::{
    code::{ErrorCode, Fault},
    frame::{kind, write_integer},
    settings, unidirectional,
};

/// A stream id (RFC 9000 section 2.1).
pub type StreamId = u64;

/// Requests that a client may give up before their response; beyond it, the client may give up half of the requests it
/// makes (CVE-2023-44487). Requests that end because of a violation count too (CVE-2025-8671).
const MAX_GIVEN_UP_EARLY: u64 = 500;
/// What a client may send that is skipped or changes nothing: frames and their payloads, in bytes.
const MAX_SKIPPED_BYTES: u64 = 64 * 1024;
/// How much more that is for each request, in bytes: browsers send a frame of priorities with each.
const MAX_SKIPPED_BYTES_PER_REQUEST: u64 = 256;
/// What unfinished heads and trailers of all requests may hold, in bytes. Most arrive in one packet.
const MAX_HELD_BYTES: usize = 256 * 1024;
/// The id of the first GOAWAY, above that of every request.
//= RFC 9114 section 5.2
//# An endpoint that is attempting to gracefully shut down a connection can send a GOAWAY frame with a value set to the
//# maximum possible value (2^62-4 for servers, 2^62-1 for clients).
const LAST_STREAM: StreamId = (1 << 62) - 4;
/// The distance between the ids of requests: client-initiated bidirectional streams.
const STREAM_STEP: StreamId = 4;

/// How the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    /// It does not end.
    No,
    /// A first GOAWAY was sent; requests in flight are still accepted.
    Announced,
    /// Requests from this id on are refused.
    Before(StreamId),
}

/// The state that the streams of one connection share.
#[derive(Debug)]
pub struct Connection {
    /// Which of the client's critical streams exist.
    pub(crate) critical: unidirectional::Critical,
    /// The last MAX_PUSH_ID.
    pub(crate) max_push_id: u64,
    /// The id of the client's last GOAWAY.
    pub(crate) client_goes: Option<u64>,
    going: Going,
    /// The id of the next request.
    next: StreamId,
    opened: u64,
    given_up_early: u64,
    skipped: u64,
    held: usize,
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl Connection {
    /// A new connection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            critical: unidirectional::Critical::default(),
            max_push_id: 0,
            client_goes: None,
            going: Going::No,
            next: 0,
            opened: 0,
            given_up_early: 0,
            skipped: 0,
            held: 0,
        }
    }

    /// The first bytes of the server's control stream: its type and SETTINGS. `max_head_bytes` is the longest list of
    /// fields, as in RFC 9114 section 4.2.2.
    #[must_use]
    pub fn control_stream(max_head_bytes: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        write_integer(&mut out, unidirectional::kind::CONTROL);
        settings::write(max_head_bytes, &mut out);
        out
    }

    /// A frame for the control stream that says nothing.
    //= RFC 9114 section 7.2.8
    //# Frame types of the format 0x1f * N + 0x21 for non-negative integer values of N are reserved to exercise the
    //# requirement that unknown types be ignored
    #[must_use]
    pub fn reserved_frame() -> Vec<u8> {
        let mut out = Vec::new();
        write_integer(&mut out, kind::IGNORED);
        write_integer(&mut out, 0);
        out
    }

    /// Records a new stream of a request. Returns false if it is to be rejected with
    /// [`ErrorCode::REQUEST_REJECTED`], because its id is beyond that of GOAWAY.
    pub fn accept(&mut self, id: StreamId) -> bool {
        if matches!(self.going, Going::Before(first) if id >= first) {
            return false;
        }
        self.next = self.next.max(id.saturating_add(STREAM_STEP));
        self.opened += 1;
        true
    }

    /// Begins or completes the end of the connection. Returns a GOAWAY frame for the control stream. The first one only
    /// announces the end, so that requests in flight are accepted; the second one names the first request that is not.
    pub fn go_away(&mut self) -> Option<Vec<u8>> {
        let id = match self.going {
            Going::No => {
                self.going = Going::Announced;
                LAST_STREAM
            }
            Going::Announced => {
                self.going = Going::Before(self.next);
                self.next
            }
            Going::Before(_) => return None,
        };
        let mut payload = Vec::new();
        write_integer(&mut payload, id);
        let mut out = Vec::new();
        write_integer(&mut out, kind::GOAWAY);
        write_integer(&mut out, payload.len() as u64);
        out.extend_from_slice(&payload);
        Some(out)
    }

    /// Whether the second GOAWAY was sent.
    #[must_use]
    pub fn has_sent_last_goaway(&self) -> bool {
        matches!(self.going, Going::Before(_))
    }

    /// Whether the connection ends: the second GOAWAY was sent, or the client has sent one.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.has_sent_last_goaway() || self.has_client_gone()
    }

    /// Whether the client has sent GOAWAY.
    #[must_use]
    pub fn has_client_gone(&self) -> bool {
        self.client_goes.is_some()
    }

    /// Counts a request that the client gave up before its response, or on which it violated the protocol. A client
    /// that does little else is disconnected.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn count_given_up(&mut self) -> Result<(), ErrorCode> {
        self.given_up_early += 1;
        if self.given_up_early > MAX_GIVEN_UP_EARLY && self.given_up_early > self.opened / 2 {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        Ok(())
    }

    /// Records that a request holds an unfinished head of `now` bytes, and held `before` bytes until now.
    ///
    /// # Errors
    /// All requests together hold too much: this one is to be reset, and no longer holds anything.
    pub fn hold(&mut self, before: usize, now: usize) -> Result<(), Fault> {
        let others = self.held.saturating_sub(before);
        if others + now > MAX_HELD_BYTES && now > before {
            self.held = others;
            return Err(Fault::Stream(ErrorCode::EXCESSIVE_LOAD));
        }
        self.held = others + now;
        Ok(())
    }

    /// Counts what a stream has skipped, in bytes.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn count_skipped(&mut self, bytes: u64) -> Result<(), ErrorCode> {
        self.skipped = self.skipped.saturating_add(bytes);
        let max = MAX_SKIPPED_BYTES.saturating_add(self.opened.saturating_mul(MAX_SKIPPED_BYTES_PER_REQUEST));
        if self.skipped > max { Err(ErrorCode::EXCESSIVE_LOAD) } else { Ok(()) }
    }
}
