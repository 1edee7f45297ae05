//! One reading of a socket.

use serde::Serialize;

/// One reading of a TCP socket. Counts grow over the life of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The time since the first reading, in microseconds.
    pub at_us: u64,
    /// The budget of the receive buffer: twice SO_RCVBUF, if a program has set it.
    pub receive_buffer_bytes: u32,
    /// The memory that received segments charge against this budget.
    pub receive_memory_bytes: u32,
    /// What the application has not read yet.
    pub receive_queue_bytes: u32,
    /// The receive window as last advertised. None: the kernel does not tell it (before Linux 6.2).
    pub receive_window_bytes: Option<u32>,
    /// The bound to which the advertised window may grow now (rcv_ssthresh).
    pub receive_ssthresh_bytes: u32,
    /// The round trip as the receiver measures it, in microseconds; zero while it is unknown.
    pub receive_rtt_us: u32,
    /// Bytes that arrived, in order.
    pub received_bytes: u64,
    /// Segments that arrived out of order.
    pub out_of_order_segments: u32,
    /// Segments that this socket dropped.
    pub dropped_segments: u32,
    /// The budget of the send buffer.
    pub send_buffer_bytes: u32,
    /// What the application has written and the peer has not acknowledged.
    pub send_queue_bytes: u32,
    /// The window that the peer advertised last. None: the kernel does not tell it (before Linux 5.4).
    pub peer_window_bytes: Option<u32>,
    /// The congestion window.
    pub congestion_window_bytes: u64,
    /// The smoothed round trip, in microseconds.
    pub rtt_us: u32,
    /// Bytes that the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// Segments with data that were sent.
    pub sent_segments: u32,
    /// Segments that were sent again.
    pub sent_again_segments: u32,
    /// How long there was something to send, in microseconds.
    pub busy_us: u64,
    /// How much of it the peer's window held back, in microseconds.
    pub held_by_peer_us: u64,
    /// How much of it the send buffer held back, in microseconds.
    pub held_by_send_buffer_us: u64,
}

/// What the whole network namespace counted meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NetworkCounts {
    /// Segments that were merged with the one before them in a receive queue.
    pub coalesced: u64,
    /// Segments that were collapsed, because a receive buffer was full.
    pub collapsed: u64,
    /// Segments that were dropped for want of receive memory.
    pub dropped: u64,
}

impl NetworkCounts {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            coalesced: self.coalesced.saturating_sub(earlier.coalesced),
            collapsed: self.collapsed.saturating_sub(earlier.collapsed),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}
