//! Connecting through a proxy: HTTP CONNECT (RFC 9110 section 9.3.6) and SOCKS 5 (RFC 1928).

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_socks::{Error as SocksError, tcp::Socks5Stream};

use super::{
    address::{Proxy, ProxyKind},
    failure::{CHECK_PROXY, ProxyFailure},
};
use crate::tcp::display_host_port;

/// The longest head of a proxy's answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1_024;
/// The most header fields of that answer.
const MAX_HEADERS: usize = 64;

/// Asks the proxy behind `stream` for a connection to `host` and `port`. The proxy resolves the name.
///
/// # Errors
/// A [`ProxyFailure`] with the proxy and its answer.
pub(crate) async fn through(proxy: &Proxy, stream: TcpStream, host: &str, port: u16) -> io::Result<TcpStream> {
    match proxy.kind {
        ProxyKind::Http => connect(proxy, stream, host, port).await,
        ProxyKind::Socks5 => socks5(proxy, stream, host, port).await,
    }
}

async fn connect(proxy: &Proxy, mut stream: TcpStream, host: &str, port: u16) -> io::Result<TcpStream> {
    let target = display_host_port(host, port);
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some((user, password)) = &proxy.credentials {
        let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
        request.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
    }
    request.push_str("\r\n");
    let lost = |error: io::Error| broke_off(proxy, &error);
    stream.write_all(request.as_bytes()).await.map_err(lost)?;
    let mut head = Vec::new();
    loop {
        if stream.read_buf(&mut head).await.map_err(lost)? == 0 {
            return Err(lost(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        match answer.parse(&head) {
            Ok(httparse::Status::Complete(length)) => {
                let status = answer.code.unwrap_or(0);
                if !(200..300).contains(&status) {
                    return Err(refused(proxy, &target, &answer));
                }
                // A TLS server does not send first, so early bytes come from the proxy.
                if length < head.len() {
                    return Err(no_proxy(format!("the proxy {proxy} sends bytes that {target} cannot have sent")));
                }
                return Ok(stream);
            }
            Ok(httparse::Status::Partial) if head.len() < MAX_HEAD_BYTES => {}
            _ => return Err(no_proxy(format!("{proxy} does not answer like an HTTP proxy"))),
        }
    }
}

fn broke_off(proxy: &Proxy, error: &io::Error) -> io::Error {
    let text = format!("the proxy {proxy} closed the connection before it answered: {error}");
    io::Error::new(error.kind(), ProxyFailure::new(text).advise(CHECK_PROXY))
}

fn no_proxy(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, ProxyFailure::new(sentence).advise(CHECK_PROXY))
}

/// The error of an answer that refuses.
fn refused(proxy: &Proxy, target: &str, answer: &httparse::Response<'_, '_>) -> io::Error {
    let status = answer.code.unwrap_or(0);
    let (kind, failure) = match status {
        // 401 is for servers, but some proxies answer wrong credentials with it.
        401 | 407 => (io::ErrorKind::PermissionDenied, wants_credentials(proxy, answer)),
        403 | 405 => {
            let text = format!("the proxy {proxy} does not let connections to {target} through (status {status})");
            let advice = "ask its operator, or use an edge on port 443, which is often the only port let through";
            (io::ErrorKind::PermissionDenied, ProxyFailure::new(text).advise(advice))
        }
        500..=599 => {
            let text = format!("the proxy {proxy} did not reach {target} (status {status})");
            (io::ErrorKind::HostUnreachable, ProxyFailure::new(text).advise(must_reach(target)))
        }
        _ => {
            let text = format!("the proxy {proxy} answered with status {status} to CONNECT {target}");
            (io::ErrorKind::Unsupported, ProxyFailure::new(text).advise(CHECK_PROXY))
        }
    };
    io::Error::new(kind, failure)
}

/// The advice when the proxy cannot reach the host.
fn must_reach(target: &str) -> String {
    format!("the proxy itself must be able to resolve the name in {target} and to connect to it")
}

fn wants_credentials(proxy: &Proxy, answer: &httparse::Response<'_, '_>) -> ProxyFailure {
    let challenges = answer.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("proxy-authenticate"));
    let schemes: Vec<String> = challenges
        .filter_map(|field| {
            let scheme = field.value.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-').next()?;
            std::str::from_utf8(scheme).ok().filter(|scheme| !scheme.is_empty()).map(str::to_owned)
        })
        .collect();
    if !schemes.is_empty() && !schemes.iter().any(|scheme| scheme.eq_ignore_ascii_case("basic")) {
        let schemes = schemes.join(" or ");
        let text = format!("the proxy {proxy} asks for {schemes} credentials, and only Basic ones are supported");
        return ProxyFailure::new(text).advise("ask its operator for another way out");
    }
    credentials(proxy, "http")
}

/// The error of a proxy that requires credentials, or others than the given ones.
fn credentials(proxy: &Proxy, scheme: &str) -> ProxyFailure {
    match proxy.credentials {
        Some(_) => ProxyFailure::new(format!("the proxy {proxy} rejected the credentials"))
            .advise("correct user name and password in --proxy or HTTPS_PROXY"),
        None => ProxyFailure::new(format!("the proxy {proxy} requires credentials"))
            .advise(format!("give them as {scheme}://USER:PASSWORD@{proxy}")),
    }
}

async fn socks5(proxy: &Proxy, stream: TcpStream, host: &str, port: u16) -> io::Result<TcpStream> {
    let outcome = match &proxy.credentials {
        Some((user, password)) => {
            Socks5Stream::connect_with_password_and_socket(stream, (host, port), user, password).await
        }
        None => Socks5Stream::connect_with_socket(stream, (host, port)).await,
    };
    let target = display_host_port(host, port);
    let (kind, failure) = match outcome {
        Ok(stream) => return Ok(stream.into_inner()),
        Err(SocksError::PasswordAuthFailure(_) | SocksError::NoAcceptableAuthMethods) => {
            (io::ErrorKind::PermissionDenied, credentials(proxy, "socks5"))
        }
        Err(SocksError::ConnectionNotAllowedByRuleset) => {
            let text = format!("the proxy {proxy} does not let connections to {target} through");
            (io::ErrorKind::PermissionDenied, ProxyFailure::new(text).advise("ask its operator"))
        }
        Err(
            error @ (SocksError::HostUnreachable
            | SocksError::NetworkUnreachable
            | SocksError::ConnectionRefused
            | SocksError::TtlExpired
            | SocksError::GeneralSocksServerFailure),
        ) => {
            let text = format!("the proxy {proxy} did not reach {target}: {error}");
            (io::ErrorKind::HostUnreachable, ProxyFailure::new(text).advise(must_reach(&target)))
        }
        Err(SocksError::Io(error)) => return Err(broke_off(proxy, &error)),
        Err(error) => return Err(no_proxy(format!("{proxy} does not answer like a SOCKS 5 proxy: {error}"))),
    };
    Err(io::Error::new(kind, failure))
}
