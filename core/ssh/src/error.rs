//! Errors of a connection.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer is not a client of SSH 2.0.
    #[error("the peer is not a client of SSH 2.0")]
    NoClient,
    /// The client violates the protocol.
    #[error("the client violates the protocol: {0}")]
    Protocol(&'static str),
    /// Client and server share no algorithm of this kind.
    #[error("client and server have no {0} in common")]
    NothingInCommon(&'static str),
    /// The key exchange failed.
    #[error("the key exchange failed: {0}")]
    KeyExchange(&'static str),
    /// A packet has a wrong authentication tag.
    #[error("a packet has a wrong authentication tag")]
    Forged,
    /// The client exceeded the limits before its login.
    #[error("the client sent too much before its login")]
    TooMuchBeforeLogin,
    /// Too many refused logins.
    #[error("Too many authentication attempts")]
    TooManyAttempts,
    /// The client sent DISCONNECT.
    #[error("the client left (reason {reason})")]
    Left {
        /// The reason of RFC 4253 section 11.1.
        reason: u32,
    },
    /// The client is unresponsive.
    #[error("the client does not answer")]
    Silent,
    /// A primitive failed that fails only for lack of memory.
    #[error("a cipher failed")]
    Cipher,
}

/// `SSH_DISCONNECT_PROTOCOL_ERROR` (RFC 4253 section 11.1).
const PROTOCOL_ERROR: u32 = 2;
/// `SSH_DISCONNECT_KEY_EXCHANGE_FAILED`.
const KEY_EXCHANGE_FAILED: u32 = 3;
/// `SSH_DISCONNECT_MAC_ERROR`.
const MAC_ERROR: u32 = 5;
/// `SSH_DISCONNECT_BY_APPLICATION`.
pub(crate) const BY_APPLICATION: u32 = 11;
/// `SSH_DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE`.
const NO_MORE_METHODS: u32 = 14;

impl Error {
    /// The reason of RFC 4253 section 11.1 for the client; `None` if the client would not read it.
    pub(crate) fn disconnect_reason(self) -> Option<u32> {
        match self {
            Self::NoClient | Self::Left { .. } | Self::Silent | Self::Cipher => None,
            Self::Protocol(_) | Self::TooMuchBeforeLogin => Some(PROTOCOL_ERROR),
            Self::NothingInCommon(_) | Self::KeyExchange(_) => Some(KEY_EXCHANGE_FAILED),
            Self::Forged => Some(MAC_ERROR),
            Self::TooManyAttempts => Some(NO_MORE_METHODS),
        }
    }
}
