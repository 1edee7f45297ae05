//! Events of a connection for its driver.

use ssh_key::{Certificate, PublicKey};

/// The id of a channel, unique within a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub(crate) u32);

impl std::fmt::Display for ChannelId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An event, in order.
#[derive(Debug)]
pub enum Event {
    /// A client wants to log in. No further input is handled until [`answer_login`](crate::Server::answer_login).
    Login(Login),
    /// A client requests a forward (RFC 4254 section 7.1). The next request follows after
    /// [`answer_request`](crate::Server::answer_request).
    Forward {
        /// The address to listen on.
        address: String,
        /// The port to listen on; 0 leaves the choice to the server.
        port: u32,
    },
    /// A client cancels a forward. Answered like [`Forward`](Self::Forward).
    CancelForward {
        /// The address of the forward.
        address: String,
        /// The port of the forward.
        port: u32,
    },
    /// The client has opened the channel that the server requested.
    Opened(ChannelId),
    /// The client refused the channel, which is removed.
    Refused {
        /// The channel.
        channel: ChannelId,
        /// The reason of RFC 4254 section 5.1.
        reason: u32,
    },
    /// A waiting reader has data, or an end.
    Readable(ChannelId),
    /// A waiting writer has window, or the client has closed its channel.
    Writable(ChannelId),
    /// The client has opened a session.
    SessionOpened(ChannelId),
    /// The client has closed a session, first or as an answer.
    SessionClosed(ChannelId),
    /// A request of the client in a session. Answered by [`answer_session`](crate::Server::answer_session).
    Session {
        /// The session.
        channel: ChannelId,
        /// The request.
        request: SessionRequest,
        /// Whether the client expects an answer.
        wants_reply: bool,
    },
    /// Input of the client in a session.
    Typed {
        /// The session.
        channel: ChannelId,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The answer to this [`ping`](crate::Server::ping).
    Pong(u64),
}

/// A request in a session (RFC 4254 section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRequest {
    /// A terminal.
    Terminal,
    /// A shell.
    Shell,
    /// A command, or a subsystem such as SFTP.
    Command,
    /// A signal by name, without `SIG`.
    Signal(String),
    /// An unsupported request, such as an environment variable; to be refused. It is an event because replies have the
    /// order of their requests (RFC 4254 section 5.4).
    Other,
}

/// A login attempt.
#[derive(Debug)]
pub struct Login {
    /// The user name, at most [`MAX_USER_BYTES`](crate::MAX_USER_BYTES) bytes.
    pub user: String,
    /// The credential.
    pub credential: Credential,
}

/// A credential for a login.
#[derive(Debug)]
pub enum Credential {
    /// None; the client queries the methods.
    Nothing,
    /// A key.
    Key {
        /// The key.
        key: PublicKey,
        /// Whether a signature proves the ownership. Otherwise the client asks whether the key would be accepted.
        is_proven: bool,
    },
    /// A user certificate with a valid signature of the authority that it names. Dates, type and options are not
    /// checked.
    Certificate {
        /// The certificate.
        certificate: Box<Certificate>,
        /// Whether a signature proves the ownership of its key.
        is_proven: bool,
    },
    /// A key that would sign with RSA and SHA-1. Must be refused.
    Sha1(PublicKey),
    /// Keyboard-interactive (RFC 4256).
    Interactive,
    /// An invalid attempt: an unknown method or algorithm, a wrong signature, an answer to a hint. Must be refused.
    Unusable,
}

/// The answer to a [`Login`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Accept the login; for an offered key: it would be accepted.
    Accept,
    /// Refuse the login.
    Refuse,
    /// Refuse, and do not offer keyboard-interactive again.
    RefuseInteractive,
    /// Only for keyboard-interactive: show this text without a prompt, and refuse then.
    Hint(String),
}
