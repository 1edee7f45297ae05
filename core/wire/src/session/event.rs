//! Configuration, events and errors of a session.

use std::{fmt, time::Duration};

use sallyport_model::{FlowRecord, HealthRecord, LinkReport, RequestRecord, TunnelId};

use crate::{Attach, Edges, Hello, Open, OpenFailure, Refusal, ResetCode, Violation, Welcome};

/// Parameters of a session. WELCOME sends the edge's values to the connector, and they hold for both. The connector
/// keeps the shorter of the two keepalive intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Time without input after which a PING is sent; 100 ms to 1 h.
    pub keepalive: Duration,
    /// Consecutive unanswered PINGs that end the session; 1 to 100.
    pub missed_limit: u32,
    /// Initial window of each stream in each direction; 1 KiB to 16 MiB.
    pub stream_window_bytes: u32,
    /// The most concurrent streams; 1 to 65,536.
    pub max_streams: u32,
    /// Time within which a session must be welcomed (connector) and have a tunnel attached (edge).
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

/// Id of a stream on a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event of a session; see [`crate::Session::poll_event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The edge accepted the session (connector).
    Welcome(Welcome),
    /// HELLO was received; the session is established (edge).
    HelloReceived(Hello),
    /// The connector requests an attachment: answer with `accept_attach` or `refuse_attach` (edge).
    AttachRequested(Attach),
    /// The tunnel is attached (connector).
    Attached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Public URL of the socket.
        url: String,
        /// Whether the tunnel carries datagrams: a datagram leg is wanted.
        datagrams: bool,
    },
    /// The tunnel is not attached (connector).
    NotAttached {
        /// The tunnel.
        tunnel: TunnelId,
        /// The reason.
        refusal: Refusal,
    },
    /// The peer detached the tunnel. Running streams continue.
    Detached {
        /// The tunnel.
        tunnel: TunnelId,
        /// The reason for programs.
        code: String,
        /// The reason for people.
        message: String,
    },
    /// The edge requests this many more legs (connector).
    LegsWanted(u16),
    /// The peer accepts no new streams on this session.
    GoAway {
        /// The reason for programs.
        code: String,
        /// The reason for people.
        message: String,
    },
    /// The edge refused the session and ended it (connector).
    Refused(Refusal),
    /// The list of other edges, and whether to leave this one (connector).
    Edges(Edges),
    /// The links of the connector, as they are now (edge).
    Links(Vec<LinkReport>),
    /// The edge served a request (connector).
    RequestLog(RequestRecord),
    /// A flow ended at the edge (connector).
    FlowLog(FlowRecord),
    /// The health of an origin changed at the edge (connector).
    HealthLog(HealthRecord),
    /// The edge opened a stream: answer with `opened` or `failed` (connector).
    StreamOpen(StreamId, Open),
    /// The origin accepted the connection (edge).
    StreamOpened(StreamId),
    /// The origin was not reached (edge). `read` and `write` return the same error. The stream is kept until it is
    /// `reset`.
    StreamFailed(StreamId, OpenFailure),
    /// The stream is readable or ended; sent for the first data, and after `read` returned [`Read::Blocked`].
    Readable(StreamId),
    /// The stream is writable; sent after `write` accepted less than it was given.
    Writable(StreamId),
    /// The peer reset the stream, or (after its end of data) no longer reads. `write` returns the same error, and so
    /// does `read` unless the data had ended before. The stream is kept until it is `reset`, or finished and read to
    /// its end.
    StreamReset(StreamId, ResetCode),
    /// The stream is over and its id is free. Both ends are done, and the user has finished the stream and read it to
    /// its end, or called `reset` or `failed`.
    StreamClosed(StreamId),
    /// The session is over, and all its streams. Send the remaining output of `poll_transmit`.
    Down(DownReason),
}

/// Reason of the end of a session, as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    /// The peer was silent for too long.
    #[error("the peer has not answered {missed} keepalives in a row")]
    DeadPeer {
        /// Number of unanswered PINGs.
        missed: u32,
    },
    /// WELCOME did not arrive in time (connector).
    #[error("the edge has not answered HELLO in time")]
    NotWelcomed,
    /// No tunnel was attached in time (edge).
    #[error("the connector has attached no tunnel in time")]
    NothingAttached,
    /// Too many attachments were refused while none was granted (edge).
    #[error("the connector requested too many tunnels without authorisation")]
    TooManyRefused,
    /// There is no common version (edge).
    #[error("the connector supports none of the edge's versions of the tunnel protocol")]
    Version,
    /// The peer sends requests but does not read the answers: more than a megabyte of control frames is queued.
    #[error("the peer does not read the answers to its requests")]
    Stuck,
    /// The driver reported that the connection is lost.
    #[error("the connection to the peer is lost")]
    CarrierLost,
    /// The peer violated the protocol. `handle_input` returns the violation, and no event repeats it; the variant is
    /// for drivers that keep one reason for all cases.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Reason why [`crate::Session::poll_timeout`] wants a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeoutReason {
    /// The session must be welcomed by this time (connector).
    WelcomeDeadline,
    /// A tunnel must be attached by this time (edge).
    AttachDeadline,
    /// A PING is due, or an answer is overdue.
    Keepalive,
}

/// Result of [`crate::Session::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes were copied, at least one (none if the buffer was empty).
    Bytes(usize),
    /// No data now; [`Event::Readable`] follows.
    Blocked,
    /// The end: the peer sent all its data.
    End,
}

/// Reason why a stream cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Before HELLO, after the end of the session, or on the connector's side.
    #[error("the session is not established")]
    NotUp,
    /// After GOAWAY.
    #[error("the session accepts no new streams")]
    GoingAway,
    /// The tunnel was detached or never attached.
    #[error("the tunnel is not attached to this session")]
    NotAttached,
    /// The limit of streams is reached.
    #[error("the session has reached its limit of streams")]
    TooManyStreams,
    /// All 2^32 stream ids are used up.
    #[error("the session has used up its stream ids")]
    Exhausted,
}

/// Reason why a stream cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The stream is over, or never existed.
    #[error("the stream is closed")]
    Closed,
    /// The peer reset the stream.
    #[error("the peer reset the stream ({0})")]
    Reset(ResetCode),
    /// The origin was not reached.
    #[error("the origin was not reached: {0}")]
    Failed(OpenFailure),
    /// A write after `finish`.
    #[error("the stream was finished and accepts no more data")]
    Finished,
    /// A write by the connector before `opened`.
    #[error("the stream is not opened yet")]
    NotOpened,
    /// The session is over.
    #[error("the tunnel's session is over")]
    Down,
}
