//! The proxy that leads out of this network: from an option, or from the environment.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use percent_encoding::percent_decode_str;

/// The longest user name or password, in bytes (RFC 1929 section 2).
const MAX_CREDENTIAL_BYTES: usize = 255;

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// HTTP, by CONNECT (RFC 9110 section 9.3.6).
    Http,
    /// SOCKS version 5 (RFC 1928).
    Socks5,
}

/// A proxy for outgoing connections.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its protocol.
    pub kind: ProxyKind,
    /// Its host, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// User name and password, if there are any.
    pub credentials: Option<(String, String)>,
}

/// Reason why a text is not a proxy address. The error omits the text, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The form is wrong.
    #[error(
        "expected the proxy's address, such as http://proxy.example:3128 or http://USER:PASSWORD@proxy.example:3128"
    )]
    Form,
    /// The scheme is unknown.
    #[error("the address of a proxy must begin with http:// or socks5://")]
    Scheme,
    /// The user name or the password cannot be used.
    #[error(
        "the proxy's user name and password may have {MAX_CREDENTIAL_BYTES} bytes each, and no colon in the name; \
         other signs than letters and digits are written as %XX"
    )]
    Credentials,
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let (scheme, rest) = text.trim().split_once("://").unwrap_or(("http", text.trim()));
        let (kind, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (ProxyKind::Http, 80),
            "socks5" | "socks5h" => (ProxyKind::Socks5, 1_080),
            _ => return Err(ProxyError::Scheme),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, at) = match rest.rsplit_once('@') {
            Some((credentials, at)) => (Some(read_credentials(credentials)?), at),
            None => (None, rest),
        };
        let (host, port) = split_port(at).ok_or(ProxyError::Form)?;
        let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if host.is_empty() || host.len() > 253 || !(is_name || host.parse::<IpAddr>().is_ok()) {
            return Err(ProxyError::Form);
        }
        Ok(Self { kind, host: host.to_owned(), port: port.unwrap_or(default_port), credentials })
    }
}

fn read_credentials(text: &str) -> Result<(String, String), ProxyError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |part: &str| {
        let part = percent_decode_str(part).decode_utf8().map_err(|_| ProxyError::Credentials)?.into_owned();
        if part.len() <= MAX_CREDENTIAL_BYTES { Ok(part) } else { Err(ProxyError::Credentials) }
    };
    let (user, password) = (decoded(user)?, decoded(password)?);
    // A colon would end the name in Basic credentials (RFC 7617 section 2).
    if user.is_empty() || user.contains(':') { Err(ProxyError::Credentials) } else { Ok((user, password)) }
}

/// Host and port of `host`, `host:port`, `[address]` or `[address]:port`.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return match port {
            "" => Some((host, None)),
            port => Some((host, Some(port.strip_prefix(':')?.parse().ok()?))),
        };
    }
    match text.split_once(':') {
        None => Some((text, None)),
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = self.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("kind", &self.kind).field("at", &self.to_string()).finish_non_exhaustive()
    }
}

/// A variable of the environment that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {variable} cannot be used: {reason}")]
pub struct ProxyVariableError {
    /// The variable.
    pub variable: &'static str,
    /// The error.
    pub reason: ProxyError,
}

/// The proxies of the environment: `HTTPS_PROXY`, otherwise `ALL_PROXY`, except for the hosts in `NO_PROXY`. A variable
/// in lower case has precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    proxy: Option<Proxy>,
    exceptions: Vec<String>,
}

impl ProxyEnvironment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// A variable names no proxy.
    pub fn read() -> Result<Self, ProxyVariableError> {
        Self::read_from(|name| std::env::var(name).ok())
    }

    /// Reads variables by this function.
    ///
    /// # Errors
    /// A variable names no proxy.
    pub fn read_from(look_up: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyVariableError> {
        let find = |name: &str| look_up(name).filter(|value| !value.trim().is_empty());
        let named = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
            .into_iter()
            .find_map(|variable| Some((variable, find(variable)?)));
        let proxy = match named {
            None => None,
            Some((variable, value)) => Some(value.parse().map_err(|reason| ProxyVariableError { variable, reason })?),
        };
        let exceptions = find("no_proxy").or_else(|| find("NO_PROXY")).unwrap_or_default();
        let exceptions =
            exceptions.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(Self { proxy, exceptions })
    }

    /// The proxy for this host and port, if there is one. This machine itself needs none.
    #[must_use]
    pub fn proxy_for(&self, host: &str, port: u16) -> Option<&Proxy> {
        let proxy = self.proxy.as_ref()?;
        let host = host.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        let is_here = host == "localhost"
            || host.ends_with(".localhost")
            || address.is_some_and(|address| address.to_canonical().is_loopback());
        let is_excepted = self.exceptions.iter().any(|exception| matches(exception, &host, address, port));
        if is_here || is_excepted { None } else { Some(proxy) }
    }
}

/// Whether an entry of `NO_PROXY` matches a host: `*`, an address, a network, or a domain with its subdomains. An entry
/// with a port matches that port alone.
fn matches(exception: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if exception == "*" {
        return true;
    }
    if let (Ok(network), Some(address)) = (exception.parse::<IpNet>(), address) {
        return network.contains(&address);
    }
    if let Ok(excepted) = exception.parse::<IpAddr>() {
        return address == Some(excepted);
    }
    let Some((name, only_port)) = split_port(exception) else { return false };
    if only_port.is_some_and(|only| only != port) {
        return false;
    }
    if let Ok(excepted) = name.parse::<IpAddr>() {
        return address == Some(excepted);
    }
    let name = name.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase();
    let beneath = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
    !name.is_empty() && (host == name || beneath)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_with_its_credentials_and_shown_without() {
        let proxy: Proxy = "http://us%40er:p%3Ass@proxy.example:3128/".parse().unwrap();
        assert_eq!((proxy.kind, proxy.host.as_str(), proxy.port), (ProxyKind::Http, "proxy.example", 3128));
        assert_eq!(proxy.credentials, Some(("us@er".into(), "p:ss".into())));
        assert_eq!(proxy.to_string(), "proxy.example:3128");
        assert!(!format!("{proxy:?}").contains("p:ss"));
        for (text, kind, host, port) in [
            ("proxy.example", ProxyKind::Http, "proxy.example", 80),
            ("10.0.0.1:8080", ProxyKind::Http, "10.0.0.1", 8080),
            ("HTTP://[::1]:8080", ProxyKind::Http, "::1", 8080),
            ("socks5://[fd00::7]", ProxyKind::Socks5, "fd00::7", 1_080),
            ("socks5h://proxy:9050", ProxyKind::Socks5, "proxy", 9050),
        ] {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!((proxy.kind, proxy.host.as_str(), proxy.port), (kind, host, port), "{text}");
            assert_eq!(proxy.to_string().parse::<Proxy>().unwrap().host, host);
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        for bad in ["", "http://", "http://a b:1", "a:port", "a:70000", "http://a:1/path", "::1", "http://a:80?x"] {
            assert_eq!(bad.parse::<Proxy>(), Err(ProxyError::Form), "{bad}");
        }
        for bad in ["https://a:1", "socks4://a", "ftp://a"] {
            assert_eq!(bad.parse::<Proxy>(), Err(ProxyError::Scheme), "{bad}");
        }
        let long = format!("http://{}:x@a", "u".repeat(256));
        for bad in ["http://:x@a", "http://a%3Ab:x@a", "http://%ff:x@a", &long] {
            assert_eq!(bad.parse::<Proxy>(), Err(ProxyError::Credentials), "{bad}");
        }
    }

    #[test]
    fn the_environment_names_the_proxy_and_what_goes_without() {
        let environment = |pairs: &[(&str, &str)]| {
            ProxyEnvironment::read_from(|name| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let named = [("HTTPS_PROXY", "http://a:1"), ("ALL_PROXY", "http://b:2"), ("HTTP_PROXY", "http://c:3")];
        assert_eq!(environment(&named).unwrap().proxy_for("x.example", 443).unwrap().host, "a");
        assert_eq!(environment(&named[1..]).unwrap().proxy_for("x.example", 443).unwrap().host, "b");
        assert_eq!(environment(&named[2..]).unwrap().proxy_for("x.example", 443), None);
        let error = environment(&[("https_proxy", "https://a")]).unwrap_err();
        assert_eq!(error.variable, "https_proxy");

        let list = " localhost, .corp.example ten.example:8443,192.0.2.7,10.0.0.0/8,fd00::/8,*.star.example";
        let with = environment(&[("ALL_PROXY", "http://a:1"), ("NO_PROXY", list)]).unwrap();
        for (host, port, goes_through) in [
            ("x.example", 443, true),
            ("corp.example", 443, false),
            ("api.Corp.example", 443, false),
            ("notcorp.example", 443, true),
            ("a.ten.example", 8443, false),
            ("a.ten.example", 443, true),
            ("192.0.2.7", 443, false),
            ("192.0.2.8", 443, true),
            ("10.1.2.3", 443, false),
            ("[fd00::1]", 443, false),
            ("deep.star.example", 443, false),
            ("localhost", 443, false),
            ("tunnel.localhost", 443, false),
            ("127.0.0.1", 443, false),
            ("::1", 443, false),
        ] {
            assert_eq!(with.proxy_for(host, port).is_some(), goes_through, "{host}:{port}");
        }
        let none = environment(&[("ALL_PROXY", "http://a:1"), ("no_proxy", "*")]).unwrap();
        assert_eq!(none.proxy_for("x.example", 443), None);
    }
}
