//! What a client does, as the connection's driver hears of it.

use ssh_key::{Certificate, PublicKey};

/// A channel of one connection. No two channels of a connection have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub(crate) u32);

impl std::fmt::Display for ChannelId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Something that happened, in the order in which it did.
#[derive(Debug)]
pub enum Event {
    /// A client wants to log in. Nothing more of it is read until
    /// [`answer_login`](crate::Server::answer_login).
    Login(Login),
    /// A client asks for a forward (RFC 4254 section 7.1). The next request comes after
    /// [`answer_request`](crate::Server::answer_request).
    Forward {
        /// The address to listen on.
        address: String,
        /// The port to listen on; 0 leaves the choice to the server.
        port: u32,
    },
    /// A client takes a forward back. The answer is as with [`Forward`](Self::Forward).
    CancelForward {
        /// The address of the forward.
        address: String,
        /// The port of the forward.
        port: u32,
    },
    /// The client opened the channel that the server asked for.
    Opened(ChannelId),
    /// The client did not open the channel; the channel is gone.
    Refused {
        /// The channel.
        channel: ChannelId,
        /// The reason of RFC 4254 section 5.1.
        reason: u32,
    },
    /// A reader that waited has something to read, or an end.
    Readable(ChannelId),
    /// A writer that waited for its window, or whose channel the client has closed, may go on.
    Writable(ChannelId),
    /// The client opened a session.
    SessionOpened(ChannelId),
    /// The client closed a session, first or as an answer.
    SessionClosed(ChannelId),
    /// The client asks something of a session. The answer is
    /// [`answer_session`](crate::Server::answer_session).
    Session {
        /// The session.
        channel: ChannelId,
        /// What it asks for.
        request: SessionRequest,
        /// Whether it waits for an answer.
        wants_reply: bool,
    },
    /// What the client typed in a session.
    Typed {
        /// The session.
        channel: ChannelId,
        /// Bytes as they came.
        data: Vec<u8>,
    },
    /// The client answered this [`ping`](crate::Server::ping).
    Pong(u64),
}

/// What a client asks of a session (RFC 4254 section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRequest {
    /// A terminal.
    Terminal,
    /// A shell.
    Shell,
    /// A command, or a subsystem such as SFTP.
    Command,
    /// A signal by its name, without `SIG`.
    Signal(String),
    /// Something that no server of this kind does, such as an environment; to be refused. It is an event because replies
    /// have the order of their requests (RFC 4254 section 5.4).
    Other,
}

/// One attempt to log in.
#[derive(Debug)]
pub struct Login {
    /// The user's name as the client says it, at most [`MAX_USER_BYTES`](crate::MAX_USER_BYTES) bytes.
    pub user: String,
    /// What the client shows.
    pub credential: Credential,
}

/// What a client shows to log in.
#[derive(Debug)]
pub enum Credential {
    /// Nothing; the client asks which methods there are.
    Nothing,
    /// A key.
    Key {
        /// The key.
        key: PublicKey,
        /// Whether a signature proves that the client owns it. Without, the client asks whether it would do.
        is_proven: bool,
    },
    /// A user certificate that the authority signed which it names. Dates, type and options are for others to check.
    Certificate {
        /// The certificate.
        certificate: Box<Certificate>,
        /// Whether a signature proves that the client owns its key.
        is_proven: bool,
    },
    /// A key that would sign with RSA and SHA-1. It must be refused.
    Sha1(PublicKey),
    /// Keyboard-interactive (RFC 4256).
    Interactive,
    /// What was worth nothing by itself: an unknown method or algorithm, a wrong signature, an answer to a hint. It
    /// must be refused.
    Unusable,
}

/// The answer to a [`Login`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Let in; of an offered key: it would do.
    Accept,
    /// Not let in.
    Refuse,
    /// Not let in by keyboard-interactive, which the client need not try again.
    RefuseInteractive,
    /// Keyboard-interactive only: shows this text, asks nothing, and refuses then.
    Hint(String),
}
