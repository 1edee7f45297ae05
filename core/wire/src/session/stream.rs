//! One multiplexed stream: its send queue, its receive buffer, and the windows of both directions.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::event::StreamError;
use crate::{Client, ResetCode, Side, lifecycle::Lifecycle};

/// Bound on the send queue of one stream, in bytes.
pub(crate) const MAX_QUEUED_BYTES: usize = 256 * 1024;
/// The most data that a stream sends in one turn, in bytes.
pub(crate) const QUANTUM_BYTES: usize = crate::frame::MAX_MUX_DATA_BYTES;
/// The largest window that a stream grows to, in bytes.
pub(crate) const MAX_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Bound on the window that a peer may grant on one stream, in bytes.
pub(crate) const MAX_CREDIT_BYTES: u32 = 1 << 30;
/// Shorter round trips count as this one, so that windows grow even if the scheduler dominates the delay.
const MIN_TUNING_RTT: Duration = Duration::from_millis(1);

/// One multiplexed stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) life: Lifecycle,
    /// The client of the stream.
    pub(crate) client: Client,
    /// The part of the initial window that counts in the client's share, in bytes.
    pub(crate) counted_bytes: u64,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    /// Reason of a reset by the peer: `write` returns it from then on, and so does `read` unless the data had ended
    /// before.
    pub(crate) error: Option<StreamError>,
    /// Whether the user has released the stream.
    pub(crate) released: bool,
    /// Whether a terminal frame is missing.
    pub(crate) running: bool,
}

/// The send direction.
#[derive(Debug)]
pub(crate) struct SendHalf {
    /// Never more than the peer's window allows, so the whole queue can be sent at once.
    pub(crate) queue: VecDeque<u8>,
    /// Bytes that may be queued before the peer grants more.
    pub(crate) credit: u32,
    /// Whether FIN follows the queue.
    pub(crate) finish: bool,
    /// Set if RESET follows FIN.
    pub(crate) reset_after: Option<ResetCode>,
    /// Whether the writer waits for room.
    pub(crate) blocked: bool,
    /// Whether the stream is queued for its turn.
    pub(crate) has_turn: bool,
}

/// The receive direction.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(crate) buffer: VecDeque<u8>,
    /// Bytes that the peer may still send.
    pub(crate) credit: u32,
    /// Bytes that may be in flight or buffered.
    pub(crate) window: u32,
    /// The initial window, in bytes.
    pub(crate) first_window: u32,
    /// Read but not yet granted again, in bytes.
    consumed: u32,
    /// Start of the current window's round, and the bytes read in it.
    round_start: Option<Instant>,
    round_bytes: u32,
    /// Whether the reader was notified of data, and has not had to wait since.
    pub(crate) is_notified: bool,
    /// Whether the reader has seen the end.
    pub(crate) seen_end: bool,
}

impl Stream {
    pub(crate) fn new(side: Side, window: u32, client: Client) -> Self {
        Self {
            life: Lifecycle::new(side),
            client,
            counted_bytes: 0,
            send: SendHalf {
                queue: VecDeque::new(),
                credit: window,
                finish: false,
                reset_after: None,
                blocked: false,
                has_turn: false,
            },
            recv: RecvHalf {
                buffer: VecDeque::new(),
                credit: window,
                window,
                first_window: window,
                consumed: 0,
                round_start: None,
                round_bytes: 0,
                is_notified: false,
                seen_end: false,
            },
            error: None,
            released: false,
            running: true,
        }
    }

    /// Whether the user has finished the stream and has read the peer's data to its end.
    pub(crate) fn ended_cleanly(&self) -> bool {
        self.send.finish && self.recv.seen_end
    }
}

impl SendHalf {
    /// Free room of the queue in bytes.
    fn room(&self) -> usize {
        MAX_QUEUED_BYTES.saturating_sub(self.queue.len()).min(self.credit as usize)
    }

    /// Queues as much as fits. A remainder makes the writer wait.
    pub(crate) fn push(&mut self, data: &[u8]) -> usize {
        let taken = data.len().min(self.room());
        self.queue.extend(&data[..taken]);
        // `taken` is at most the credit.
        self.credit -= taken as u32;
        self.blocked = taken < data.len();
        taken
    }

    /// Moves the next turn's data to `out`.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>, len: usize) {
        let (front, back) = self.queue.as_slices();
        let of_front = len.min(front.len());
        out.extend_from_slice(&front[..of_front]);
        out.extend_from_slice(&back[..len - of_front]);
        self.queue.drain(..len);
    }

    /// True if a writer waits and there is enough room to wake it. The wait is cleared.
    pub(crate) fn wakes_writer(&mut self) -> bool {
        let room = self.room();
        let wakes = self.blocked && (room >= QUANTUM_BYTES || (self.queue.is_empty() && room > 0));
        if wakes {
            self.blocked = false;
        }
        wakes
    }

    /// Drops the queue and its memory.
    pub(crate) fn discard(&mut self) {
        self.queue = VecDeque::new();
        self.blocked = false;
    }
}

impl RecvHalf {
    /// Passes at most `most` bytes to the reader.
    pub(crate) fn pop(&mut self, most: usize, mut put: impl FnMut(&[u8])) -> usize {
        let (front, back) = self.buffer.as_slices();
        let of_front = most.min(front.len());
        let of_back = (most - of_front).min(back.len());
        put(&front[..of_front]);
        if of_back > 0 {
            put(&back[..of_back]);
        }
        self.buffer.drain(..of_front + of_back);
        of_front + of_back
    }

    /// Records that bytes were read. Returns the number of bytes to grant to the peer, and by how many of them the
    /// window grew. A window that is used up within two round trips limits the sender, and doubles if it fits into
    /// `budget`.
    pub(crate) fn on_consumed(
        &mut self,
        bytes: usize,
        now: impl Fn() -> Instant,
        rtt: Option<Duration>,
        budget: impl Fn() -> u64,
    ) -> Option<(u32, u32)> {
        // The bytes were within the window.
        let bytes = bytes as u32;
        self.consumed += bytes;
        let round_start = *self.round_start.get_or_insert_with(&now);
        self.round_bytes = self.round_bytes.saturating_add(bytes);
        let mut grown = 0;
        if self.round_bytes >= self.window {
            let now = now();
            let two_trips = rtt.map(|rtt| rtt.max(MIN_TUNING_RTT) * 2);
            let fast = two_trips.is_some_and(|limit| now.saturating_duration_since(round_start) <= limit);
            if fast && self.window <= MAX_WINDOW_BYTES / 2 && u64::from(self.window) <= budget() {
                grown = self.window;
                self.window *= 2;
            }
            self.round_start = Some(now);
            self.round_bytes = 0;
        }
        if grown == 0 && self.consumed < self.window.div_ceil(2) {
            return None;
        }
        let grant = self.consumed + grown;
        self.consumed = 0;
        self.credit += grant;
        Some((grant, grown))
    }

    /// Drops the buffer and its memory.
    pub(crate) fn discard(&mut self) {
        self.buffer = VecDeque::new();
    }
}
