//! Reaching other machines: names, TCP, TLS.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, pki_types::ServerName};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    Congestion, LeanTls, Proxy, ReadAhead,
    failure::{ProxyFailure, handshake_failure},
    proxy_connect,
    socket::{keep_urgent_inline, stream_socket},
    socket::{set_keepalive, set_nodelay},
};

/// How many addresses of one name are tried at most.
pub const MAX_ADDRESSES: usize = 16;
/// How long one address may be silent before the next is tried beside it (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// What to do about a proxy that is none, or is not there.
pub(crate) const CHECK_PROXY: &str =
    "check its address (--proxy, or HTTPS_PROXY in the environment), or go without it by --proxy none";

/// The addresses of a host: an IP address is itself, `localhost` and every name beneath it is this machine (RFC 6761
/// section 6.3), anything else is asked of the system. The two families take turns (RFC 8305 section 4), beginning
/// with the one that the system puts first.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when the name has no address.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if is_localhost(host) {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    let unknown = |reason: &dyn fmt::Display| {
        io::Error::new(io::ErrorKind::NotFound, format!("the name {host} has no address: {reason}"))
    };
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| unknown(&error))?;
    let addresses = take_turns(found);
    if addresses.is_empty() { Err(unknown(&"none was found")) } else { Ok(addresses) }
}

fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    last.eq_ignore_ascii_case("localhost")
}

fn take_turns(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut first = VecDeque::new();
    let mut second = VecDeque::new();
    for address in found {
        let same = first.front().is_none_or(|front: &SocketAddr| front.is_ipv4() == address.is_ipv4());
        let family = if same { &mut first } else { &mut second };
        if !family.contains(&address) && first.len() + second.len() < MAX_ADDRESSES {
            if same { first.push_back(address) } else { second.push_back(address) }
        }
    }
    let mut addresses = Vec::with_capacity(first.len() + second.len());
    while let Some(address) = first.pop_front() {
        addresses.push(address);
        addresses.extend(second.pop_front());
    }
    addresses.extend(second);
    addresses
}

/// How connections leave this machine. The default is the straight way.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// Through this proxy.
    pub proxy: Option<Proxy>,
    /// With this congestion control.
    pub congestion: Option<Congestion>,
    /// By Multipath TCP (RFC 8684), where the kernel and the other side have it.
    pub mptcp: bool,
}

/// Connects to a host within `timeout`, names included. When it has several addresses, a silent one does not hold up
/// the others. The connection sends small writes at once and notices a vanished peer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when the name has no address, [`io::ErrorKind::TimedOut`] when nothing answers in time,
/// else what the last address gave. The text says host and port.
pub async fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    connect_tcp_by(&Outbound::default(), host, port, timeout).await
}

/// As [`connect_tcp`], by the way that `outbound` says. A proxy resolves the name itself, and its time counts too.
///
/// # Errors
/// As [`connect_tcp`]; where the proxy is at fault the error holds a [`ProxyFailure`], which says what it refused and what
/// to do, with [`io::ErrorKind::PermissionDenied`] when it wants credentials or does not allow the connection.
pub async fn connect_tcp_by(outbound: &Outbound, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let Some(proxy) = &outbound.proxy else { return connect_direct(outbound, host, port, timeout).await };
    let began = time::Instant::now();
    let stream = connect_direct(outbound, &proxy.host, proxy.port, timeout).await.map_err(|error| {
        let failure = ProxyFailure::new(format!("the proxy cannot be reached: {error}"));
        io::Error::new(error.kind(), failure.advise(CHECK_PROXY))
    })?;
    let left = timeout.saturating_sub(began.elapsed());
    match time::timeout(left, proxy_connect::through(proxy, stream, host, port)).await {
        Ok(result) => result,
        Err(_) => {
            let at = display_host_port(host, port);
            let text = format!("the proxy {proxy} did not say within {timeout:?} whether it reached {at}");
            Err(io::Error::new(io::ErrorKind::TimedOut, ProxyFailure::new(text).advise(CHECK_PROXY)))
        }
    }
}

async fn connect_direct(outbound: &Outbound, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let at = display_host_port(host, port);
    let connect = async {
        let addresses = resolve(host, port).await?;
        race(&addresses, outbound)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot connect to {at}: {}", reason(&error))))
    };
    match time::timeout(timeout, connect).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{at} did not answer within {timeout:?}"))),
    }
}

/// Connects to the first of these addresses that takes the connection, within `timeout`.
///
/// # Errors
/// As [`connect_tcp`].
pub async fn connect_tcp_to(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let all = || addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match time::timeout(timeout, race(addresses, &Outbound::default())).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("cannot connect to {}: {}", all(), reason(&error)))),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} did not answer within {timeout:?}", all()))),
    }
}

/// Connects to the addresses one after the other, each as soon as the one before failed or was silent for a while.
async fn race(addresses: &[SocketAddr], outbound: &Outbound) -> io::Result<TcpStream> {
    let Some((first, rest)) = addresses.split_first() else { return Err(io::ErrorKind::NotFound.into()) };
    // Nearly always the first address answers at once: that way needs no task.
    let mut first: Option<Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>> =
        Some(Box::pin(connect_one(*first, outbound.congestion.clone(), outbound.mptcp)));
    let mut rest = rest.iter().copied();
    let mut attempts = JoinSet::new();
    let mut last_error = None;
    loop {
        let more = rest.len() > 0;
        let outcome = tokio::select! {
            biased;
            result = async { first.as_mut().expect("guarded").await }, if first.is_some() => {
                first = None;
                Some(result)
            }
            Some(joined) = attempts.join_next(), if !attempts.is_empty() => {
                Some(joined.unwrap_or_else(|error| Err(io::Error::other(error))))
            }
            () = time::sleep(ATTEMPT_DELAY), if more => None,
        };
        match outcome {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last_error = Some(error),
            None => {}
        }
        if let Some(address) = rest.next() {
            attempts.spawn(connect_one(address, outbound.congestion.clone(), outbound.mptcp));
        } else if first.is_none() && attempts.is_empty() {
            return Err(last_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()));
        }
    }
}

/// Connects to one address, with what is wanted of its socket.
async fn connect_one(address: SocketAddr, congestion: Option<Congestion>, mptcp: bool) -> io::Result<TcpStream> {
    let stream = open_one(address, congestion, mptcp).await?;
    set_nodelay(&stream)?;
    // What is on this machine does not vanish without a word: the kernel ends its connections.
    if !address.ip().to_canonical().is_loopback() {
        set_keepalive(&stream)?;
    }
    keep_urgent_inline(&SockRef::from(&stream))?;
    Ok(stream)
}

async fn open_one(address: SocketAddr, congestion: Option<Congestion>, mptcp: bool) -> io::Result<TcpStream> {
    if congestion.is_none() && !mptcp {
        return TcpStream::connect(address).await;
    }
    let socket = stream_socket(address, mptcp)?;
    if let Some(congestion) = congestion {
        congestion.set_on(&SockRef::from(&socket))?;
    }
    socket.set_nonblocking(true)?;
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

/// Connects with TLS within `timeout`, all in all, and verifies that the server is `server_name`.
///
/// # Errors
/// As [`connect_tcp`]; when the handshake fails the error holds a [`crate::TlsFailure`], whose text says what to do.
pub async fn connect_tls(
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<ReadAhead<TcpStream>>> {
    connect_tls_by(&Outbound::default(), host, port, server_name, config, timeout).await
}

/// As [`connect_tls`], by the way that `outbound` says.
///
/// # Errors
/// As [`connect_tcp_by`] and [`connect_tls`].
pub async fn connect_tls_by(
    outbound: &Outbound,
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<ReadAhead<TcpStream>>> {
    let name = name_of(server_name)?;
    let began = time::Instant::now();
    let stream = connect_tcp_by(outbound, host, port, timeout).await?;
    let left = timeout.saturating_sub(began.elapsed());
    let handshake = TlsConnector::from(config).connect(name, ReadAhead::new(stream));
    let at = display_host_port(host, port);
    match time::timeout(left, handshake).await {
        Ok(result) => result.map_err(|error| handshake_failure(error, &at, server_name)),
        Err(_) => Err(handshake_took_too_long(&at, timeout)),
    }
}

/// Begins TLS on a connection to `host` and `port`, within `timeout`, and verifies that the server is `server_name`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] when it takes too long; else the error holds a [`crate::TlsFailure`], whose text says what
/// to do, unless the connection itself broke.
pub async fn start_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<ReadAhead<S>>> {
    let at = display_host_port(host, port);
    let name = name_of(server_name)?;
    match time::timeout(timeout, TlsConnector::from(config).connect(name, ReadAhead::new(stream))).await {
        Ok(result) => result.map_err(|error| handshake_failure(error, &at, server_name)),
        Err(_) => Err(handshake_took_too_long(&at, timeout)),
    }
}

/// As [`start_tls`], for a connection that rests for long: TLS 1.3 without buffers of its own. Says also what was agreed on
/// (ALPN). The configuration must allow that secrets are taken out (`enable_secret_extraction`).
///
/// # Errors
/// As [`start_tls`], and [`io::ErrorKind::Unsupported`] when the server speaks TLS 1.2.
pub async fn start_lean_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<(LeanTls<S>, Option<Vec<u8>>)> {
    let at = display_host_port(host, port);
    let name = name_of(server_name)?;
    match time::timeout(timeout, LeanTls::connect(stream, config, name)).await {
        Ok(result) => result.map_err(|error| handshake_failure(error, &at, server_name)),
        Err(_) => Err(handshake_took_too_long(&at, timeout)),
    }
}

fn name_of(server_name: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(server_name.to_owned()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{server_name:?} is not a name that a server can have"))
    })
}

fn handshake_took_too_long(at: &str, timeout: Duration) -> io::Error {
    let text = format!("{at} took the connection but did not finish the TLS handshake within {timeout:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

pub(crate) fn display_host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused (nothing listens there)".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to it".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_need_no_name_server() {
        for name in ["localhost", "LOCALHOST", "api.localhost", "a.b.localhost", "x.localhost."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in ["", ".", "localhost.example", "notlocalhost", "localhost.."] {
            assert!(!is_localhost(name), "{name}");
        }
    }

    #[test]
    fn the_families_take_turns_and_none_comes_twice() {
        let (four, six) = (
            |n: u8| SocketAddr::from(([10, 0, 0, n], 1)),
            |n: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, n], 1)),
        );
        let found = vec![six(1), six(2), six(1), six(3), four(1), four(2), four(1)];
        assert_eq!(take_turns(found.into_iter()), [six(1), four(1), six(2), four(2), six(3)]);
        assert_eq!(take_turns((0..=255).map(four)).len(), MAX_ADDRESSES);
        assert!(take_turns(std::iter::empty()).is_empty());
    }
}
