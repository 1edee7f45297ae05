//! The error of a connection through a proxy.

use std::fmt;

/// Advice about a proxy that is unreachable, or is not a proxy.
pub(crate) const CHECK_PROXY: &str =
    "check its address (--proxy, or HTTPS_PROXY in the environment), or go without it by --proxy none";

/// Reason why a proxy did not connect to a server. It is inside the [`std::io::Error`] of [`crate::connect_tcp_by`].
#[derive(Debug)]
pub struct ProxyFailure {
    sentence: String,
    advice: Option<String>,
}

impl ProxyFailure {
    pub(crate) fn new(sentence: String) -> Self {
        Self { sentence, advice: None }
    }

    /// Adds advice.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// The failure as a sentence.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Advice, if the failure concerns the proxy and not the server behind it.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }
}

impl fmt::Display for ProxyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.advice {
            Some(advice) => write!(f, "{}: {advice}", self.sentence),
            None => f.write_str(&self.sentence),
        }
    }
}

impl std::error::Error for ProxyFailure {}
