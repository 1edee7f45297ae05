//! One multiplexed stream: what waits to be sent, what waits to be read, and the windows of both directions.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::event::StreamError;
use crate::{Client, ResetCode, Side, lifecycle::Lifecycle};

/// How much one stream may have waiting to be sent, in bytes.
pub(crate) const MAX_QUEUED_BYTES: usize = 256 * 1024;
/// The most data that a stream sends before it is another's turn, in bytes.
pub(crate) const QUANTUM_BYTES: usize = crate::frame::MAX_MUX_DATA_BYTES;
/// The largest window that a stream grows to, in bytes.
pub(crate) const MAX_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// The most that a peer may let us send on one stream without reading any of it, in bytes.
pub(crate) const MAX_CREDIT_BYTES: u32 = 1 << 30;
/// Round trips shorter than this are taken for this, so that windows grow where the scheduler is the longest way.
const MIN_TUNING_RTT: Duration = Duration::from_millis(1);

/// One multiplexed stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) life: Lifecycle,
    /// Whom it is for.
    pub(crate) client: Client,
    /// How much of its first window counts as its client's, in bytes.
    pub(crate) counted_bytes: u64,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    /// Why the peer gave it up: what `write`, and `read` unless the data had ended before, answer from then on.
    pub(crate) error: Option<StreamError>,
    /// Its user is done with it.
    pub(crate) released: bool,
    /// It counts among those that run: a terminal is still missing.
    pub(crate) running: bool,
}

/// What waits to be sent.
#[derive(Debug)]
pub(crate) struct SendHalf {
    /// Never more than the peer's window allows, so whatever is here can be sent at once.
    pub(crate) queue: VecDeque<u8>,
    /// How much more may be queued before the peer grants more, in bytes.
    pub(crate) credit: u32,
    /// FIN follows the queue.
    pub(crate) finish: bool,
    /// RESET follows FIN.
    pub(crate) reset_after: Option<ResetCode>,
    /// The writer was told to wait.
    pub(crate) blocked: bool,
    /// It waits for its turn.
    pub(crate) has_turn: bool,
}

/// What waits to be read.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(crate) buffer: VecDeque<u8>,
    /// How much more the peer may send, in bytes.
    pub(crate) credit: u32,
    /// How much may be on its way or in the buffer at a time, in bytes.
    pub(crate) window: u32,
    /// What the window was at first, in bytes.
    pub(crate) first_window: u32,
    /// Read but not yet granted again, in bytes.
    consumed: u32,
    /// Since when, and how much, the present window's worth has been read.
    round_start: Option<Instant>,
    round_bytes: u32,
    /// The reader was told that there is something, and has not been told to wait since.
    pub(crate) told: bool,
    /// The reader has seen the end.
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
                told: false,
                seen_end: false,
            },
            error: None,
            released: false,
            running: true,
        }
    }

    /// Its user has finished it and has seen the end of what the peer sent.
    pub(crate) fn ended_cleanly(&self) -> bool {
        self.send.finish && self.recv.seen_end
    }
}

impl SendHalf {
    /// How much the queue would take now, in bytes.
    fn room(&self) -> usize {
        MAX_QUEUED_BYTES.saturating_sub(self.queue.len()).min(self.credit as usize)
    }

    /// Queues as much as fits. What does not fit makes the writer wait.
    pub(crate) fn push(&mut self, data: &[u8]) -> usize {
        let taken = data.len().min(self.room());
        self.queue.extend(&data[..taken]);
        // `taken` is at most the credit.
        self.credit -= taken as u32;
        self.blocked = taken < data.len();
        taken
    }

    /// Appends the next turn's data to `out` and forgets it.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>, len: usize) {
        let (front, back) = self.queue.as_slices();
        let of_front = len.min(front.len());
        out.extend_from_slice(&front[..of_front]);
        out.extend_from_slice(&back[..len - of_front]);
        self.queue.drain(..len);
    }

    /// True if a writer waits and there is room worth waking it for. It is then no longer known to wait.
    pub(crate) fn wakes_writer(&mut self) -> bool {
        let room = self.room();
        let wakes = self.blocked && (room >= QUANTUM_BYTES || (self.queue.is_empty() && room > 0));
        if wakes {
            self.blocked = false;
        }
        wakes
    }

    /// Forgets what waits; its memory too.
    pub(crate) fn discard(&mut self) {
        self.queue = VecDeque::new();
        self.blocked = false;
    }
}

impl RecvHalf {
    /// Gives the reader what there is, at most so much.
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

    /// So many bytes were read. Returns how many to grant the peer now, and by how many of them the window grew:
    /// a window that is used up within two round trips is what holds the sender back, and doubles if it fits into
    /// `budget`.
    pub(crate) fn on_consumed(
        &mut self,
        bytes: usize,
        now: impl Fn() -> Instant,
        rtt: Option<Duration>,
        budget: impl Fn() -> u64,
    ) -> Option<(u32, u32)> {
        // What is read was within the window.
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

    /// Forgets what waits; its memory too.
    pub(crate) fn discard(&mut self) {
        self.buffer = VecDeque::new();
    }
}
