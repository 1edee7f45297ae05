//! The address of an API.

use std::{fmt, str::FromStr};

use http::Uri;

/// The port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// The address of an API: `https://host` or `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiAddress {
    host: String,
    port: u16,
}

/// The text is not the address of an API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Malformed.
    #[error("{0:?} is not the address of an API such as https://api.example.com")]
    Malformed(String),
    /// Not HTTPS.
    #[error("{0:?} is not an https address: the API needs TLS")]
    Scheme(String),
    /// More than a host and a port.
    #[error("{0:?} has more than a host and a port, such as https://api.example.com:8443")]
    More(String),
}

impl ApiAddress {
    /// The host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as in a URL; the port of HTTPS is left out.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == HTTPS_PORT { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether the host is this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let address: Option<std::net::IpAddr> = self.host.parse().ok();
        self.host == "localhost" || self.host.ends_with(".localhost") || address.is_some_and(|ip| ip.is_loopback())
    }
}

impl FromStr for ApiAddress {
    type Err = AddressError;

    /// Parses `https://host:port`; `https://` may be absent.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let shown = || text.chars().take(200).collect::<String>();
        let text = text.trim();
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| AddressError::Malformed(shown()))?;
        if uri.scheme_str() != Some("https") {
            return Err(AddressError::Scheme(shown()));
        }
        let authority = uri.authority().ok_or_else(|| AddressError::Malformed(shown()))?;
        if uri.path() != "/" || uri.query().is_some() || authority.as_str().contains('@') || with_scheme.contains('#') {
            return Err(AddressError::More(shown()));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let has_port = authority.as_str().len() > authority.host().len();
        let port = if has_port {
            authority.port_u16().filter(|port| *port != 0).ok_or_else(|| AddressError::Malformed(shown()))?
        } else {
            HTTPS_PORT
        };
        if host.is_empty() {
            return Err(AddressError::Malformed(shown()));
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_address_is_shown_the_same() {
        for (given, shown) in [
            ("https://api.localhost:8443", "https://api.localhost:8443"),
            ("https://API.Example.com/", "https://api.example.com"),
            ("https://api.example.com:443", "https://api.example.com"),
            ("api.example.com:8443", "https://api.example.com:8443"),
            ("https://[::1]:8443", "https://[::1]:8443"),
        ] {
            assert_eq!(given.parse::<ApiAddress>().unwrap().to_string(), shown, "{given}");
        }
        let six: ApiAddress = "https://[::1]:8443".parse().unwrap();
        assert_eq!((six.host(), six.port(), six.is_local()), ("::1", 8443, true));
        assert!("https://api.localhost".parse::<ApiAddress>().unwrap().is_local());
        assert!(!"https://localhost.example.com".parse::<ApiAddress>().unwrap().is_local());
    }

    #[test]
    fn what_is_no_address_of_an_api_is_refused_with_its_reason() {
        let error = |text: &str| text.parse::<ApiAddress>().unwrap_err();
        assert!(matches!(error("http://api.example.com"), AddressError::Scheme(_)));
        for more in ["https://a.example/v1", "https://a.example?x=1", "https://u:p@a.example", "https://a.example/#x"] {
            assert!(matches!(error(more), AddressError::More(_)), "{more}");
        }
        for bad in ["", "https://", "https://a:b", "https://a:99999", "https://a:0", "https://a b", "https://a:"] {
            assert!(matches!(error(bad), AddressError::Malformed(_)), "{bad}");
        }
    }
}
