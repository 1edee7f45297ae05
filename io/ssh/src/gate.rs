//! The decisions that are not this crate's.

use std::net::SocketAddr;

use sallyport_ssh_proto::ssh_key::{Certificate, PublicKey};

use crate::{BoxFuture, Connection, Forward};

/// Decides who may log in and what their forwards mean. Calls that return futures are given ten seconds.
pub trait SshGate: Send + Sync + 'static {
    /// Whether a connection from this address is taken at all; for limits by address over time. The bounds of
    /// [`SshConfig`](crate::SshConfig) have been checked.
    fn admits(&self, peer: SocketAddr) -> bool {
        let _ = peer;
        true
    }

    /// Whether the attempt is good. Unknown users and foreign keys should take the same work and get the same answer;
    /// the server answers a refusal after a fixed time.
    fn authenticate<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Verdict>;

    /// A client wants to prove that it owns this RSA key with a signature by SHA-1, which is refused. Called once for a
    /// connection at most; whether the client owns the key is not known. Must not wait.
    fn refused_sha1(&self, user: &str, key: &PublicKey, peer: SocketAddr) {
        let _ = (user, key, peer);
    }

    /// A login has succeeded. Its forwards come after this. Must not wait.
    fn opened(&self, connection: &Connection) {
        let _ = connection;
    }

    /// The client asks for a forward. Whoever keeps the [`Forward`] can open streams through it once this has returned
    /// [`Granted`].
    fn forward<'a>(
        &'a self,
        connection: &'a Connection,
        forward: Forward,
    ) -> BoxFuture<'a, Result<Granted, ForwardRefusal>>;

    /// A forward that was granted can be used from now on; the client hears of it after this. Must not wait.
    fn granted(&self, forward: &Forward) {
        let _ = forward;
    }

    /// The client has taken a granted forward back; it is not usable any more. When the connection ends there is one
    /// call of [`closed`](Self::closed) instead; only a forward that is granted after that is taken back by this.
    fn cancelled(&self, connection: &Connection, forward: &Forward);

    /// The connection is over, and all of its forwards with it. Called once for each [`opened`](Self::opened).
    fn closed(&self, connection: &Connection);
}

/// One attempt to log in.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The user's name (`ssh -l`), as the client says.
    pub user: &'a str,
    /// Where the client is.
    pub peer: SocketAddr,
    /// What it shows.
    pub credential: Credential<'a>,
}

/// What a client shows to log in.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    /// A public key that the client has not yet proven to own: would it do? A client asks for each of its keys, so this
    /// should count less than a failure.
    Offered(&'a PublicKey),
    /// A key that the client owns.
    Key(&'a PublicKey),
    /// A user certificate (PROTOCOL.certkeys) whose key the client has not yet proven to own: would it do?
    OfferedCertificate(&'a Certificate),
    /// A user certificate whose key the client owns. It is valid now, rightly signed by
    /// [`signature_key`](Certificate::signature_key), and carries no critical options. Whether that authority is to be
    /// trusted, and whether the principals fit, is the gate's to say.
    Certificate(&'a Certificate),
    /// Nothing at all; every client begins with this.
    Nothing,
    /// Nothing, after the client's keys were refused (keyboard-interactive without a question); only with
    /// [`SshConfig::guests`](crate::SshConfig::guests).
    Guest,
}

/// What the gate says of an [`Attempt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Let in, under this name for the gate's own use ([`Connection::login`]).
    Accept(String),
    /// Not let in.
    Refuse,
}

/// A forward that was granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// The port that is told to the client if it asked for port 0 (then not 0), else without meaning.
    pub port: u32,
    /// Lines for the client's shell: the address of the service, for example.
    pub lines: Vec<String>,
}

/// A forward that was refused. `ssh` with `ExitOnForwardFailure=yes` then ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ForwardRefusal {
    /// One sentence for the client's shell and its debug log: what is wrong, and what to do.
    pub message: String,
}

impl ForwardRefusal {
    /// A refusal with this sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
