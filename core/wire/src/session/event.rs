//! The words that a session and its driver exchange.

use std::{fmt, time::Duration};

use sallyport_model::{FlowRecord, HealthRecord, RequestRecord, TunnelId};

use crate::{Attach, Edges, Hello, Open, OpenFailure, Refusal, ResetCode, Violation, Welcome};

/// How a session behaves. The edge's values go to the connector in WELCOME and
/// hold for both; of the two keepalive intervals, the connector keeps the shorter one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// After how long without any input a PING is sent; 100 ms to 1 h.
    pub keepalive: Duration,
    /// How many PINGs in a row may go unanswered; 1 to 100.
    pub missed_limit: u32,
    /// The first window of each stream in each direction; 1 KiB to 16 MiB.
    pub stream_window_bytes: u32,
    /// How many streams may run at a time; 1 to 65,536.
    pub max_streams: u32,
    /// By when a session must be welcomed (connector) and have a tunnel attached (edge).
    pub attach_deadline: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            keepalive: Duration::from_secs(10),
            missed_limit: 3,
            stream_window_bytes: 256 * 1024,
            max_streams: 16_384,
            attach_deadline: Duration::from_secs(10),
        }
    }
}

/// A stream on a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened; see [`crate::Session::poll_event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The edge took the session (connector).
    Welcome(Welcome),
    /// The connector introduced itself; the session is up (edge).
    HelloReceived(Hello),
    /// A tunnel wants to attach: answer with `accept_attach` or `refuse_attach` (edge).
    AttachRequested(Attach),
    /// The tunnel is attached (connector).
    Attached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Where clients reach it.
        url: String,
        /// Its clients send datagrams: a datagram leg is wanted.
        datagrams: bool,
    },
    /// The tunnel is not attached (connector).
    NotAttached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Why not.
        refusal: Refusal,
    },
    /// The peer let go of the tunnel. Streams that run are left as they are.
    Detached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Why, for programs.
        code: String,
        /// Why, for people.
        message: String,
    },
    /// The edge wants so many more legs now (connector).
    LegsWanted(u16),
    /// The peer wants no new streams on this session.
    GoAway {
        /// Why, for programs.
        code: String,
        /// Why, for people.
        message: String,
    },
    /// The edge refused the session, which is over (connector).
    Refused(Refusal),
    /// Which other edges serve, and whether this one is to be left (connector).
    Edges(Edges),
    /// The edge served a request (connector).
    RequestLog(RequestRecord),
    /// A flow ended at the edge (connector).
    FlowLog(FlowRecord),
    /// The edge finds an origin so from now on (connector).
    HealthLog(HealthRecord),
    /// A stream begins: answer with `opened` or `failed` (connector).
    StreamOpen(StreamId, Open),
    /// The origin took the connection (edge).
    StreamOpened(StreamId),
    /// The origin was not reached (edge). `read` and `write` say so too. The stream is kept until it is `reset`.
    StreamFailed(StreamId, OpenFailure),
    /// After `read` said [`Read::Blocked`], or for the first time: there is something to read, or the end.
    Readable(StreamId),
    /// After `write` took less than it was given: there is room again.
    Writable(StreamId),
    /// The peer gave up the stream, or (after its end of data) reads no more. `write` says so too, and `read` unless
    /// the data had ended before. The stream is kept until it is `reset`, or finished and read to its end.
    StreamReset(StreamId, ResetCode),
    /// The stream is over and its id forgotten: both ends are done, and so is the user, who has finished it and read
    /// it to its end, or `reset` it, or declared it `failed`.
    StreamClosed(StreamId),
    /// The session is over, and with it all its streams. What `poll_transmit` still gives should be sent.
    Down(DownReason),
}

/// Why a session is over, as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    /// Nothing came for too long.
    #[error("the peer has not answered {missed} keepalives in a row")]
    DeadPeer {
        /// How many.
        missed: u32,
    },
    /// No WELCOME in time (connector).
    #[error("the edge has not answered HELLO in time")]
    NotWelcomed,
    /// Nothing was attached in time (edge).
    #[error("the connector has attached no tunnel in time")]
    NothingAttached,
    /// Too many attachments were refused, and none was granted (edge).
    #[error("the connector asked for too many tunnels that it may not have")]
    TooManyRefused,
    /// No common version (edge).
    #[error("the connector speaks none of the versions of the tunnel protocol that this edge knows")]
    Version,
    /// The peer does not read while we have to answer: more than a megabyte of control frames waits.
    #[error("the peer does not take in what it asked for")]
    Stuck,
    /// The driver said that the connection under the session is gone.
    #[error("the connection to the peer is gone")]
    CarrierLost,
    /// The peer broke the protocol. `handle_input` returns this and no event repeats it; it is here for drivers that
    /// keep one reason for either case.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Why [`crate::Session::poll_timeout`] wants to be called back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeoutReason {
    /// The session must be welcomed by then (connector).
    WelcomeDeadline,
    /// A tunnel must be attached by then (edge).
    AttachDeadline,
    /// A PING is due, or the last one's answer is overdue.
    Keepalive,
}

/// What [`crate::Session::read`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes were copied, at least one (none if the buffer was empty).
    Bytes(usize),
    /// Nothing now; [`Event::Readable`] follows.
    Blocked,
    /// The end: the peer sent all it had.
    End,
}

/// Why a stream cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Before HELLO, after the session is over, or by the connector.
    #[error("the session is not up")]
    NotUp,
    /// After GOAWAY.
    #[error("the session takes no new streams")]
    GoingAway,
    /// The tunnel has left the session or was never attached to it.
    #[error("the tunnel is not attached to this session")]
    NotAttached,
    /// As many streams run as the session may have.
    #[error("the session carries as many streams as it may")]
    TooManyStreams,
    /// All 2^32 stream ids are used up.
    #[error("the session has used up its stream ids")]
    Exhausted,
}

/// Why a stream cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The stream is over and forgotten, or never was.
    #[error("the stream is closed")]
    Closed,
    /// The peer gave the stream up.
    #[error("the stream was reset by the other end of the tunnel ({0})")]
    Reset(ResetCode),
    /// The origin was not reached.
    #[error("the origin was not reached: {0}")]
    Failed(OpenFailure),
    /// A write after `finish`.
    #[error("the stream was finished and takes no more data")]
    Finished,
    /// A write by the connector before `opened`.
    #[error("the stream is not opened yet")]
    NotOpened,
    /// The session is over.
    #[error("the tunnel's session is over")]
    Down,
}
