//! TCP to other machines, directly or through a proxy.

use std::{io, time::Duration};

use tokio::{net::TcpStream, time};

use crate::{
    proxy::{self, CHECK_PROXY, Proxy, ProxyFailure},
    tcp::{Congestion, SocketChoice, connect_host, display_host_port},
};

/// How connections leave this machine. The default is direct TCP.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// Through this proxy.
    pub proxy: Option<Proxy>,
    /// With this congestion control.
    pub congestion: Option<Congestion>,
    /// Whether to use Multipath TCP (RFC 8684), if the kernel and the peer support it.
    pub mptcp: bool,
}

/// Connects to a host within `timeout`, names included. A silent address does not hold up the others. The connection
/// sends small writes at once and notices a vanished peer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when the name has no address, [`io::ErrorKind::TimedOut`] when nothing answers in time;
/// otherwise the error of the last address. The text has host and port.
pub async fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    connect_tcp_by(&Outbound::default(), host, port, timeout).await
}

/// Like [`connect_tcp`], with the given route out. A proxy resolves the name itself, within the same timeout.
///
/// # Errors
/// As [`connect_tcp`]. If the proxy is at fault, the error holds a [`ProxyFailure`] with the cause and the remedy. It
/// has [`io::ErrorKind::PermissionDenied`] if the proxy requires credentials or forbids the connection.
pub async fn connect_tcp_by(outbound: &Outbound, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let choice = SocketChoice { congestion: outbound.congestion.clone(), mptcp: outbound.mptcp };
    let Some(proxy) = &outbound.proxy else { return connect_host(&choice, host, port, timeout).await };
    let began = time::Instant::now();
    let stream = connect_host(&choice, &proxy.host, proxy.port, timeout).await.map_err(|error| {
        let failure = ProxyFailure::new(format!("the proxy cannot be reached: {error}"));
        io::Error::new(error.kind(), failure.advise(CHECK_PROXY))
    })?;
    let left = timeout.saturating_sub(began.elapsed());
    match time::timeout(left, proxy::through(proxy, stream, host, port)).await {
        Ok(result) => result,
        Err(_) => {
            let at = display_host_port(host, port);
            let text = format!("the proxy {proxy} did not report within {timeout:?} whether it reached {at}");
            Err(io::Error::new(io::ErrorKind::TimedOut, ProxyFailure::new(text).advise(CHECK_PROXY)))
        }
    }
}
