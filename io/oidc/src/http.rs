//! One request on one connection, with bounds on time and size.

use std::{
    io,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sallyport_model::is_loopback_host;
use sallyport_net::{TlsFailure, Trust};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{OidcError, error::harmless};

/// Timeout of one call to a provider, from the first packet to the last byte.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest accepted answer of a provider, in bytes.
pub const MAX_ANSWER_BYTES: usize = 512 * 1_024;
/// Timeout of one connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bound on the addresses of a provider that are tried.
const MAX_TRIES: usize = 4;

/// The addresses that providers may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere: those who configure providers are trusted with everything that this machine can reach.
    Anywhere,
    /// Only at public addresses: anybody may configure a provider, and must not reach internal services.
    Public,
}

/// One call to a provider.
pub(crate) struct Call<'a> {
    /// Its purpose, for errors.
    pub(crate) to: &'static str,
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    /// Of the form `Basic …` or `Bearer …`.
    pub(crate) authorization: Option<String>,
    /// A form, or the type given in `more`.
    pub(crate) body: Option<String>,
    /// Additional or replacing header fields.
    pub(crate) more: Vec<(HeaderName, HeaderValue)>,
}

impl<'a> Call<'a> {
    pub(crate) fn get(to: &'static str, url: &'a str) -> Self {
        Self { to, method: Method::GET, url, authorization: None, body: None, more: Vec::new() }
    }
}

/// An answer with any status.
pub(crate) struct Answer {
    pub(crate) host: String,
    pub(crate) to: &'static str,
    pub(crate) status: StatusCode,
    body: Bytes,
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, OidcError> {
        serde_json::from_slice(&self.body).map_err(|error| self.bad(harmless(&error.to_string())))
    }

    /// The decoded answer, if its status is a success.
    pub(crate) fn good<T: DeserializeOwned>(&self) -> Result<T, OidcError> {
        if self.status.is_success() { self.json() } else { Err(self.bad(format!("status {}", self.status.as_u16()))) }
    }

    pub(crate) fn bad(&self, reason: String) -> OidcError {
        OidcError::Answer { host: self.host.clone(), to: self.to, reason }
    }
}

/// Checks that browsers and secrets may be sent to the URL: https, or this machine.
pub(crate) fn check_url(url: &str) -> Result<Uri, OidcError> {
    let insecure = || OidcError::Insecure(harmless(url));
    let uri: Uri = url.parse().map_err(|_| insecure())?;
    let host = uri.host().ok_or_else(insecure)?;
    let is_plain = uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || url.contains('#');
    match uri.scheme_str() {
        Some("https") if !is_plain => Ok(uri),
        Some("http") if !is_plain && is_loopback_host(host) => Ok(uri),
        _ => Err(insecure()),
    }
}

/// Makes calls.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) reach: Reach,
    agent: String,
    system: tokio::sync::OnceCell<Arc<rustls::ClientConfig>>,
}

impl Http {
    pub(crate) fn new(reach: Reach, agent: String) -> Self {
        Self { reach, agent, system: tokio::sync::OnceCell::new() }
    }

    /// Makes one call; the certificate is verified with these CAs, or with the system's.
    pub(crate) async fn call(&self, ca_pem: Option<&str>, call: Call<'_>) -> Result<Answer, OidcError> {
        let uri = check_url(call.url)?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let timed = tokio::time::timeout(CALL_TIMEOUT, self.exchange(ca_pem, &uri, &host, call));
        timed.await.unwrap_or(Err(OidcError::TimedOut { host }))
    }

    async fn exchange(&self, ca_pem: Option<&str>, uri: &Uri, host: &str, call: Call<'_>) -> Result<Answer, OidcError> {
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let request = self.request(uri, &call)?;
        let stream = self.connect(host, port).await?;
        if !is_tls {
            return send(stream, request, host, call.to).await;
        }
        let tls = self.tls(ca_pem).await?;
        let stream = sallyport_net::start_tls(stream, host, port, host, tls, CONNECT_TIMEOUT)
            .await
            .map_err(|error| unreachable(host, &error))?;
        send(stream, request, host, call.to).await
    }

    fn request(&self, uri: &Uri, call: &Call<'_>) -> Result<Request<Full<Bytes>>, OidcError> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(path)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, &self.agent)
            .header(header::CONNECTION, "close");
        if call.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        if let Some(authorization) = &call.authorization {
            let mut value = HeaderValue::from_str(authorization)
                .map_err(|_| OidcError::Config("the secret has invalid characters".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let body = Full::new(Bytes::from(call.body.clone().unwrap_or_default()));
        let mut request = request.body(body).map_err(|_| OidcError::Insecure(harmless(call.url)))?;
        for (name, value) in &call.more {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, OidcError> {
        let addresses = sallyport_net::resolve(host, port).await.map_err(|error| unreachable(host, &error))?;
        let is_open = |address: IpAddr| self.reach == Reach::Anywhere || is_public(address);
        let allowed: Vec<_> = addresses.into_iter().filter(|address| is_open(address.ip())).take(MAX_TRIES).collect();
        let mut last = None;
        for address in allowed {
            // The checked address, not the name, which could resolve to another one by now.
            match sallyport_net::connect_tcp(&address.ip().to_string(), port, CONNECT_TIMEOUT).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) => unreachable(host, &error),
            None => OidcError::Private { host: host.to_owned() },
        })
    }

    async fn tls(&self, ca_pem: Option<&str>) -> Result<Arc<rustls::ClientConfig>, OidcError> {
        if let Some(pem) = ca_pem {
            return sallyport_net::client_config_of_pem(pem.as_bytes(), &[b"http/1.1"])
                .ok_or_else(|| OidcError::Config("its ca_pem has no usable certificate".to_owned()));
        }
        let load = async || {
            sallyport_net::client_config(&Trust::System, &[b"http/1.1"])
                .map_err(|error| OidcError::Config(error.to_string()))
        };
        self.system.get_or_try_init(load).await.cloned()
    }
}

async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
    host: &str,
    to: &'static str,
) -> Result<Answer, OidcError> {
    let lost = |_: hyper::Error| OidcError::Unreachable {
        host: host.to_owned(),
        reason: "the provider closed the connection".to_owned(),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(lost)?.into_parts();
        let bad = |reason: String| OidcError::Answer { host: host.to_owned(), to, reason };
        if head.status.is_redirection() {
            return Err(bad("the answer is a redirect".to_owned()));
        }
        match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok(Answer { host: host.to_owned(), to, status: head.status, body: body.to_bytes() }),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(bad(format!("the answer is longer than {MAX_ANSWER_BYTES} bytes")))
            }
            Err(_) => Err(OidcError::Unreachable {
                host: host.to_owned(),
                reason: "the provider closed the connection".to_owned(),
            }),
        }
    };
    // The connection must be driven while the answer is read; afterwards it has nothing more to do.
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => return result,
        result = connection => if let Err(error) = result { tracing::debug!(%error, "the connection ended") },
    }
    exchange.await
}

fn unreachable(host: &str, error: &io::Error) -> OidcError {
    let reason = match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>()) {
        Some(failure) if failure.is_certificate() => {
            "its certificate is not trusted here: name its authority by a CA file of the provider".to_owned()
        }
        Some(failure) => harmless(&failure.to_string()),
        None => match error.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            io::ErrorKind::NotFound => "there is no such host".to_owned(),
            _ => harmless(&error.to_string()),
        },
    };
    OidcError::Unreachable { host: host.to_owned(), reason }
}

/// Whether the address is globally unique (the registries of RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            !(v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b)))
        }
        IpAddr::V6(v6) => {
            let segments = v6.segments();
            // Only 2000::/3 is assigned, without the parts for IPv4 addresses and documentation.
            (segments[0] & 0xe000) == 0x2000
                && segments[0] != 0x2002
                && !(segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8))
                && v6 != Ipv6Addr::UNSPECIFIED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for public in ["1.1.1.1", "100.63.0.1", "172.32.0.1", "2606:4700::1111"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn secrets_go_to_https_or_this_machine() {
        for good in ["https://a.test/x?y", "http://127.0.0.1:1/", "http://localhost:5/x", "http://[::1]/"] {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://a.test/",
            "ftp://localhost/",
            "javascript:alert(1)",
            "/x",
            "",
            "https://a@b.test/",
            "https://a.test/#x",
            "http://localhost.evil.test/",
            "http://127.0.0.1.evil.test/",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }
}
