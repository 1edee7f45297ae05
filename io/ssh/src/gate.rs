//! The decisions that the user of this crate makes.

use std::net::SocketAddr;

use sallyport_ssh_proto::ssh_key::{Certificate, PublicKey};

use crate::{BoxFuture, Connection, Forward};

/// Decides about logins and forwards. Futures have a timeout of ten seconds.
pub trait SshGate: Send + Sync + 'static {
    /// Whether to accept a connection from this address; for rate limits by address. The limits of
    /// [`SshConfig`](crate::SshConfig) were checked before.
    fn admits(&self, peer: SocketAddr) -> bool {
        let _ = peer;
        true
    }

    /// Decides about a login attempt. Unknown users and unknown keys should cost the same work and get the same answer;
    /// the server answers a refusal after a fixed time.
    fn authenticate<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Verdict>;

    /// Reports that a client wants to sign with this RSA key and SHA-1, which is refused. Called at most once for a
    /// connection; whether the client owns the key is unknown. Must not wait.
    fn refused_sha1(&self, user: &str, key: &PublicKey, peer: SocketAddr) {
        let _ = (user, key, peer);
    }

    /// Reports a successful login, before its forwards. Must not wait.
    fn opened(&self, connection: &Connection) {
        let _ = connection;
    }

    /// Decides about a forward. Streams can be opened through the [`Forward`] once this has returned [`Granted`].
    fn forward<'a>(
        &'a self,
        connection: &'a Connection,
        forward: Forward,
    ) -> BoxFuture<'a, Result<Granted, ForwardRefusal>>;

    /// Reports that a granted forward is usable; the client gets the answer afterwards. Must not wait.
    fn granted(&self, forward: &Forward) {
        let _ = forward;
    }

    /// Reports that the client has cancelled a granted forward, which is no longer usable. At the end of the connection
    /// [`closed`](Self::closed) is called once instead; only a forward that is granted after that is reported here.
    fn cancelled(&self, connection: &Connection, forward: &Forward);

    /// Reports the end of the connection with all its forwards. Called once for each [`opened`](Self::opened).
    fn closed(&self, connection: &Connection);
}

/// One attempt to log in.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The user name (`ssh -l`) that the client sent.
    pub user: &'a str,
    /// The client's address.
    pub peer: SocketAddr,
    /// The credential.
    pub credential: Credential<'a>,
}

/// A credential for a login.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    /// A public key whose ownership is not proven yet: would it be accepted? A client asks for each of its keys, so a
    /// refusal should count less than a failed login.
    Offered(&'a PublicKey),
    /// A key that the client owns.
    Key(&'a PublicKey),
    /// A user certificate (PROTOCOL.certkeys) whose ownership is not proven yet: would it be accepted?
    OfferedCertificate(&'a Certificate),
    /// A user certificate whose key the client owns. It is currently valid, correctly signed by
    /// [`signature_key`](Certificate::signature_key), and has no critical options. The gate decides whether to trust
    /// that authority, and whether the principals match.
    Certificate(&'a Certificate),
    /// No credential; every client starts with this one.
    Nothing,
    /// No credential, after the client's keys were refused (keyboard-interactive without a prompt); only with
    /// [`SshConfig::guests`](crate::SshConfig::guests).
    Guest,
}

/// The gate's decision about an [`Attempt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted, under this name for the gate's own use ([`Connection::login`]).
    Accept(String),
    /// Refused.
    Refuse,
}

/// A granted forward.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// The port that the client gets if it asked for port 0 (then not 0); ignored otherwise.
    pub port: u32,
    /// Lines for the client's shell, such as the address of the service.
    pub lines: Vec<String>,
}

/// A refused forward. `ssh` with `ExitOnForwardFailure=yes` then ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ForwardRefusal {
    /// One sentence for the client's shell and its debug log: the problem and the remedy.
    pub message: String,
}

impl ForwardRefusal {
    /// A refusal with this sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
