//! Failed TLS handshakes, as sentences with a remedy.

use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, Error};

/// Reason why a TLS handshake with a server failed. The [`io::Error`] of [`crate::connect_tls`] holds it.
#[derive(Debug)]
pub struct TlsFailure {
    sentence: String,
    error: Error,
}

impl TlsFailure {
    /// The error of rustls.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Whether the server's certificate was refused. Nothing was sent to the server then.
    #[must_use]
    pub fn is_certificate(&self) -> bool {
        matches!(self.error, Error::InvalidCertificate(_))
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for TlsFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Turns an error of a handshake into a sentence. `at` has host and port.
pub(crate) fn handshake_failure(error: io::Error, at: &str, server_name: &str) -> io::Error {
    let kind = error.kind();
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return match kind {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                io::Error::new(kind, format!("{at} closed the connection during the TLS handshake"))
            }
            _ => io::Error::new(kind, format!("TLS with {at} failed: {error}")),
        };
    };
    let sentence = match tls {
        Error::InvalidCertificate(reason) => certificate_sentence(reason, at, server_name),
        Error::AlertReceived(
            AlertDescription::AccessDenied | AlertDescription::UnrecognisedName | AlertDescription::MissingExtension,
        ) => {
            format!("{at} has no certificate for {server_name}: it does not serve that name")
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) | Error::NoApplicationProtocol => {
            format!("{at} does not speak the requested protocol: is it a Sallyport edge?")
        }
        Error::InvalidMessage(_) => format!("{at} does not speak TLS"),
        other => format!("TLS with {at} failed: {other}"),
    };
    io::Error::new(kind, TlsFailure { sentence, error: tls.clone() })
}

fn certificate_sentence(reason: &CertificateError, at: &str, server_name: &str) -> String {
    match reason {
        CertificateError::UnknownIssuer => format!(
            "the certificate of {at} is signed by an authority that is not trusted here: name its root with --ca FILE, \
             or log in again and pin it"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the certificate of {at} is not for {server_name}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of {at} has ended, or this machine's clock is ahead")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of {at} is not valid yet: this machine's clock is behind")
        }
        CertificateError::Other(other) => format!("the certificate of {at} is not accepted: {}", other.0),
        other => format!("the certificate of {at} is not accepted: {other}"),
    }
}
