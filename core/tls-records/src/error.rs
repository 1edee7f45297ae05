//! Errors of the handshake and of records.

use rustls::AlertDescription;

/// Reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// rustls rejected the input. [`crate::Handshake::outgoing`] has the alert for the peer.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The peer sent more than any handshake needs.
    #[error("the TLS handshake is longer than {0} bytes")]
    TooLong(usize),
    /// The handshake agreed on TLS 1.2, which has other records.
    #[error("the peer speaks TLS 1.2, and TLS 1.3 is required")]
    Version,
    /// The record layer could not use the keys.
    #[error(transparent)]
    Records(#[from] RecordError),
}

/// Reason why the record layer ends a connection.
#[derive(Debug, thiserror::Error)]
#[error("{reason} ({alert:?})")]
pub struct RecordError {
    reason: &'static str,
    alert: AlertDescription,
    is_from_peer: bool,
}

impl RecordError {
    pub(crate) fn new(alert: AlertDescription, reason: &'static str) -> Self {
        Self { reason, alert, is_from_peer: false }
    }

    pub(crate) fn unexpected(reason: &'static str) -> Self {
        Self::new(AlertDescription::UnexpectedMessage, reason)
    }

    /// rustls and AWS-LC always derive keys from secrets of the right length.
    pub(crate) fn no_keys<E>(_: E) -> Self {
        Self::new(AlertDescription::InternalError, "the connection has no keys")
    }

    pub(crate) fn from_peer(alert: AlertDescription) -> Self {
        Self { reason: "the peer ended the connection with an alert", alert, is_from_peer: true }
    }

    /// The alert (RFC 8446 section 6) that names the reason.
    #[must_use]
    pub fn alert(&self) -> AlertDescription {
        self.alert
    }

    /// Whether the peer sent the alert; otherwise this side has to send it.
    #[must_use]
    pub fn is_from_peer(&self) -> bool {
        self.is_from_peer
    }
}
